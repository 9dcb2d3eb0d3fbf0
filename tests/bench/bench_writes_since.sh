#!/usr/bin/env bash
# Synced commits a second now beside those of an older revision: both are built and measured in turns (old, new, new,
# old), each on a database of its own making, since the device wanders more from minute to minute than they differ.
#
# usage: ./dev bench writes_since REVISION [PAIRS [NODES]]     (default 2 pairs of turns, 200k nodes)
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n 2,5p "$0" >&2; exit 2; }
revision=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "bench writes_since: $1 is no revision of this repository" >&2; exit 2; }
pairs=${2:-2} nodes=${3:-200k}

folder=$PWD/build/writes-since
source=$folder/source
[ ! -e "$source" ] || git worktree remove --force "$source"
rm -rf "$folder"
mkdir -p "$folder"
trap 'git worktree remove --force "$source"; rm -rf "$folder"' EXIT
git worktree add --quiet --detach "$source" "$revision"
cmake -S "$source" -B "$folder/build" --preset release -G Ninja -DQUARRY_TRAINER=OFF >"$folder/configure.log" 2>&1 ||
  { cat "$folder/configure.log" >&2; exit 1; }
cmake --build "$folder/build" --target quarry bench_writes

turn() {  # NAME BINARIES
  "$2/quarry" generate "$folder/graph" --nodes "$nodes" --dim 128 --degree 15 --classes 50 --seed 1 >"$folder/log"
  "$2/quarry" import "$folder/graph.db" "$folder/graph" --memory 2GiB >"$folder/log"
  "$2/bench_writes" "$folder/graph.db" | awk -v name="$1" '
    /^commits of one row/ { for (i = 1; i <= NF; ++i) if ($i ~ /^syncs/) syncs = $(i - 1) }
    $2 == "yes" { print name, $1, $3, $3 / syncs }' | tee -a "$folder/turns"
  rm -rf "$folder/graph" "$folder/graph.db"
}

echo "build, writers, synced commits/s, share of the syncs/s of 4 KiB measured beside them"
for _ in $(seq "$pairs"); do
  turn old "$folder/build/bin"
  turn new build/release/bin
  turn new build/release/bin
  turn old "$folder/build/bin"
done
awk '{ rate[$1, $2] += $3; share[$1, $2] += $4; ++count[$1, $2]; writers[$2] }
  END {
    for (w in writers) {
      printf "%2d writers: old %.0f, new %.0f synced commits/s: %.2f times as many; of the syncs %.2f and %.2f\n", w,
        rate["old", w] / count["old", w], rate["new", w] / count["new", w],
        rate["new", w] / count["new", w] / (rate["old", w] / count["old", w]),
        share["old", w] / count["old", w], share["new", w] / count["new", w]
    }
  }' "$folder/turns" | sort -n
