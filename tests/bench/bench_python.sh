#!/usr/bin/env bash
# The Python package beside the engine under it, and beside what else PyG trains from (tests/bench/python/bench.py).
# usage: ./dev bench python [PART...] [--nodes N] [--epochs N] [--rival-batches N] [--planned-rounds N] [--sets SET,..] [--accuracy-epochs N]
#   PART   loader, epochs, accuracy; default: all of them
exec python3 "$(dirname "$0")/python/bench.py" "$@"
