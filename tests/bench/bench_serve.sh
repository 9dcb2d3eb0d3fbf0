#!/usr/bin/env bash
# A server and its clients (bench_serve.cc) on a graph of its own.
#
# usage: ./dev bench serve [NODES]     (default 4M, of 128 float32)
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/graph.sh
make_graph serve "${1:-4M}"
$quarry calibrate "$folder/graph.db"
$quarry layout build "$folder/graph.db" serve --fanout 10,15 --cache 10% --memory 4GiB
build/release/bin/bench_serve "$folder/graph.db" "$quarry"
