#!/usr/bin/env bash
# The road that `quarry train` chooses, beside every road by its flag, on databases that are generated (choice.py).
#
# usage: ./dev bench choice [--prepare] [--only CASE[,CASE]] [CASE...]
#   CASE       names of cases (default: all, the cheap ones first; `--list` names them)
#   --prepare  make their databases under build/bench-data (7 GB in all), and run nothing
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 tests/bench/choice.py "${@}"
