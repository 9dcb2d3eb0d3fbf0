#!/usr/bin/env bash
# Bytes that each of several trainers reads of its own layout, bytes between them, and losses beside those of one trainer.
# usage: ./dev bench ranks [--nodes N] [--dim N] [--ranks 1,2,4,8] [--real 2] [--by random|partition]
exec python3 "$(dirname "$0")/python/ranks_bench.py" "$@"
