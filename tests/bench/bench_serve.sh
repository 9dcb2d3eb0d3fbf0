#!/usr/bin/env bash
# A server and its clients (bench_serve.cc) on a graph of its own.
#
# usage: ./dev bench serve [NODES]     (default 4M, of 128 float32)
set -euo pipefail
cd "$(dirname "$0")/../.."
quarry=build/release/bin/quarry
folder=${QUARRY_BENCH_DATA:-build/bench-data}/serve
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
$quarry generate "$folder/graph" --nodes "${1:-4M}" --dim 128 --degree 15 --classes 50 --seed 1
$quarry import "$folder/graph.db" "$folder/graph" --memory 4GiB
rm -rf "$folder/graph"
$quarry calibrate "$folder/graph.db"
$quarry layout build "$folder/graph.db" serve --fanout 10,15 --cache 10% --memory 4GiB
build/release/bin/bench_serve "$folder/graph.db" "$quarry"
