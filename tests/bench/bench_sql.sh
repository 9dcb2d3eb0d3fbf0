#!/usr/bin/env bash
# SQL beside the engine alone (tests/sql/bench_sql.cc), on a database of its own.
#
# usage: ./dev bench sql [NODES]     (default 4M, of 128 float32)
set -euo pipefail
cd "$(dirname "$0")/../.."
quarry=build/release/bin/quarry
folder=${QUARRY_BENCH_DATA:-build/bench-data}/sql
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
$quarry generate "$folder/graph" --nodes "${1:-4M}" --dim 128 --degree 15 --classes 50 --seed 1
$quarry import "$folder/graph.db" "$folder/graph" --memory 4GiB
rm -rf "$folder/graph"
$quarry calibrate "$folder/graph.db"
build/release/bin/bench_sql "$folder/graph.db"
