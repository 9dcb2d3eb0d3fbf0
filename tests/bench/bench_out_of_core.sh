#!/usr/bin/env bash
# Trains on a graph several times larger than its memory: generated, 4 M nodes x 128 float32 (2 GB of features), with
# --cache 10% --memory 1GiB, inside a memory cgroup of that budget plus the overhead that `quarry train` states, where one
# can be made (v1 or v2, as root). Prints each epoch's figures, and how near the run came to its memory limit.
#
# usage: ./dev bench out_of_core [NODES [MEMORY [CACHE [EPOCHS]]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/memory_group.sh
nodes=${1:-4M} memory=${2:-1GiB} cache=${3:-10%} epochs=${4:-2}
quarry=build/release/bin/quarry
data=${QUARRY_BENCH_DATA:-build/bench-data}/out-of-core-$nodes
mkdir -p "$(dirname "$data")"

[ -d "$data.db" ] || {
  rm -rf "$data"
  $quarry generate "$data" --nodes "$nodes" --degree 15 --dim 128 --classes 50 --seed 1
  $quarry import "$data.db" "$data" --memory "$memory"
  rm -rf "$data"
}

train=(train "$data.db" --layers 3 --hidden 256 --fanout 10,15,20 --batch-size 1024 --epochs "$epochs"
  --memory "$memory" --cache "$cache" --json)

# The overhead is a property of the plan: one short run tells it, the limited run is held to it.
plan=$($quarry "${train[@]:0:2}" --dry-run "${train[@]:2}")
limit=$(python3 -c 'import json, sys; p = json.loads(sys.argv[1]); print(p["memory_budget_bytes"] + p["memory_overhead_bytes"])' "$plan")
if cgroup=$(make_cgroup "$limit" 2>/dev/null); then
  trap 'remove_cgroup "$cgroup"' EXIT
  echo "memory cgroup of $limit bytes: budget plus stated overhead" >&2
else
  cgroup=
  echo "no memory cgroup can be made here: the limit of $limit bytes is checked against peak RSS only" >&2
fi

(
  [ -z "$cgroup" ] || echo "$BASHPID" >"$cgroup/cgroup.procs"
  exec $quarry "${train[@]}"
) | python3 tests/bench/report_out_of_core.py "$limit"
