#!/usr/bin/env bash
# The road that `quarry train` chooses, beside every road by its flag, on databases that are generated (choice.py).
#
# usage: ./dev bench choice [CASE...]
#   CASE   names of cases (default: all; `./dev bench choice --list` names them)
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 tests/bench/choice.py "${@}"
