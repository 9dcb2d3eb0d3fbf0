#!/usr/bin/env bash
# What a cycle of a packed layout reads with each cache policy, beside the least that any could (bench_belady.cc).
#
# usage: ./dev bench belady [PART...]
#   PART   1M (10 batches a cycle), 200k (1, 2, 3, 5, 10 and 60); default: both
# Databases of one's own: build/release/bin/bench_belady DB BATCHES [FANOUT,FANOUT,...]...
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/bench/graph.sh

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(1M 200k)
status=0
for part in "${parts[@]}"; do
  make_graph belady "$part"
  batches=(10)
  [ "$part" = 1M ] || batches=(1 2 3 5 10 60)
  for count in "${batches[@]}"; do
    build/release/bin/bench_belady "$folder/graph.db" "$count" || status=1
  done
done
exit $status
