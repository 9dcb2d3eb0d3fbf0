#!/usr/bin/env bash
# What a cycle of a packed layout reads with each cache policy, beside the least that any could (bench_belady.cc).
#
# usage: ./dev bench belady [PART...]
#   PART   1M (10 batches a cycle), 200k (1, 2, 3, 5, 10 and 60), fb15k-237 (10; the knowledge graph's triples as edges,
#          both ways, rows of 128 float32, every node trained on); default: all of them
# Databases of one's own: build/release/bin/bench_belady DB BATCHES [FANOUT,FANOUT,...]...
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/bench/graph.sh

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(1M 200k fb15k-237)

# The real set as a graph with features: what caches see is the degrees of its nodes.
make_fb15k() {
  local sets=${QUARRY_SHARED_DATA:-../shared/data}
  if [ ! -x "$sets/unpack" ]; then
    echo "fb15k-237: skipped, since the data sets are not in $sets (QUARRY_SHARED_DATA names it)" >&2
    return 1
  fi
  folder=${QUARRY_BENCH_DATA:-build/bench-data}/belady
  rm -rf "$folder"
  mkdir -p "$folder/graph"
  trap 'rm -rf "$folder"' EXIT
  "$sets/unpack" fb15k-237 "$folder" >/dev/null
  python3 tests/bench/triples_as_graph.py "$folder/fb15k-237" "$folder/graph"
  $quarry import "$folder/graph.db" "$folder/graph" --undirected
}
status=0
for part in "${parts[@]}"; do
  if [ "$part" = fb15k-237 ]; then
    make_fb15k || continue
  else
    make_graph belady "$part"
  fi
  batches=(10)
  [ "$part" != 200k ] || batches=(1 2 3 5 10 60)
  for count in "${batches[@]}"; do
    build/release/bin/bench_belady "$folder/graph.db" "$count" || status=1
  done
done
exit $status
