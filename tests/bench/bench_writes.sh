#!/usr/bin/env bash
# Writes, snapshots and compaction (bench_writes.cc) on a graph of its own.
#
# usage: ./dev bench writes [NODES]     (default 2M, of 128 float32)
set -euo pipefail
cd "$(dirname "$0")/../.."
quarry=build/release/bin/quarry
folder=${QUARRY_BENCH_DATA:-build/bench-data}/writes
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
$quarry generate "$folder/graph" --nodes "${1:-2M}" --dim 128 --degree 15 --classes 50 --seed 1
$quarry import "$folder/graph.db" "$folder/graph" --memory 4GiB
rm -rf "$folder/graph"
build/release/bin/bench_writes "$folder/graph.db"
