#!/usr/bin/env bash
# Writes, snapshots and compaction (bench_writes.cc) on a graph of its own.
#
# usage: ./dev bench writes [NODES]     (default 2M, of 128 float32)
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/graph.sh
make_graph writes "${1:-2M}"
build/release/bin/bench_writes "$folder/graph.db"
