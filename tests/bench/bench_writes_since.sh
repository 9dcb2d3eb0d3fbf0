#!/usr/bin/env bash
# Synced commits a second of this build beside those of an older revision, which is built for it: what a change of
# the write path costs. Each build has a database of its own, and they run in turns: old, new, new, old.
#
# usage: ./dev bench writes_since REVISION [PAIRS] [NODES]     (default 6 pairs, 200k nodes of 128 float32)
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '5s/# //p' "$0" >&2; exit 2; }
revision=$(git rev-parse --verify --short "$1^{commit}")
pairs=${2:-6}
nodes=${3:-200k}
tree=$PWD/build/writes-since/$revision
[ -e "$tree/dev" ] || git worktree add -q --detach "$tree" "$revision"
cmake -S "$tree" -B "$tree/build/release" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" \
  -DQUARRY_TRAINER=OFF >"$tree.log"
cmake --build "$tree/build/release" --target quarry bench_writes >"$tree.log"

. tests/bench/graph.sh
new_bench=build/release/bin/bench_writes old_bench=$tree/build/release/bin/bench_writes
make_graph writes-since "$nodes"
mv "$folder/graph.db" "$folder/new.db"
quarry=$tree/build/release/bin/quarry
$quarry generate "$folder/graph" --nodes "$nodes" --dim 128 --degree 15 --classes 50 --seed 1
$quarry import "$folder/old.db" "$folder/graph" --memory 4GiB
rm -rf "$folder/graph"

measure() {  # which: a line for each number of writers: which, writers, commits/s, share of the disk's syncs
  local bench=${1}_bench
  "${!bench}" "$folder/$1.db" | awk -v which="$1" '$2 == "yes" { print which, $1, $3, $4 }' | tee -a "$folder/runs"
}
for ((pair = 0; pair < pairs; ++pair)); do
  if ((pair % 2)); then measure new; measure old; else measure old; measure new; fi
done
echo "synced commits/s of $pairs runs of each build: means, their ratio, and the median share of the disk's syncs"
for writers in $(awk '{ print $2 }' "$folder/runs" | sort -nu); do
  for which in old new; do
    awk -v w="$writers" -v b="$which" '$1 == b && $2 == w { print $3, $4 }' "$folder/runs" | sort -k2 -n |
      awk '{ sum += $1; share[NR] = $2 } END { print sum / NR, share[int((NR + 1) / 2)] }'
  done | paste -sd' ' | awk -v w="$writers" -v r="$revision" \
    '{ printf "%3d writers: %s %.0f (%.2f of its syncs), this build %.0f (%.2f): %.3f times\n", w, r, $1, $2, $3, $4, $3 / $1 }'
done
