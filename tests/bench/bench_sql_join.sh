#!/usr/bin/env bash
# Joins and point lookups by SQL beside DuckDB's over the same arrays in memory, in one process (tests/bench/sql_join.py):
# seconds of processor, one thread each.
#
# usage: ./dev bench sql_join [NODES]     (default 1M, of 15 edges each)
set -euo pipefail
cd "$(dirname "$0")/../.."
quarry=build/release/bin/quarry
folder=${QUARRY_BENCH_DATA:-build/bench-data}/sql_join
python=build/bench-duckdb
# Debian's Python, whose sqlite3 takes extensions; DuckDB and NumPy of PyPI, in an environment of their own. What an
# interrupted run left of that is made anew.
if ! "$python/bin/python" -c "import duckdb, numpy" 2>/dev/null; then
  rm -rf "$python"
  /usr/bin/python3 -m venv "$python"
  "$python/bin/pip" install -q duckdb numpy
fi
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
$quarry generate "$folder/graph" --nodes "${1:-1M}" --dim 8 --degree 15 --classes 50 --seed 1
$quarry import "$folder/graph.db" "$folder/graph" --memory 2GiB
"$python/bin/python" tests/bench/sql_join.py "$folder" build/release/lib/libquarry_sqlite
