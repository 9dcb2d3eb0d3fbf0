#!/usr/bin/env bash
# SQL beside the engine alone (tests/sql/bench_sql.cc), on a database of its own.
#
# usage: ./dev bench sql [NODES]     (default 4M, of 128 float32)
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/graph.sh
make_graph sql "${1:-4M}"
$quarry calibrate "$folder/graph.db"
build/release/bin/bench_sql "$folder/graph.db"
