#!/usr/bin/env bash
# Epochs of a batch tier by the number of its workers, and what feature caches spare (tests/bench/python/tier_bench.py).
# usage: ./dev bench tier [curve] [cache] [--nodes N] [--dim N] [--hidden N] [--workers 1,2,4] [--quota CPUS] [--epochs N] [--cache 5%,20%]
exec python3 "$(dirname "$0")/python/tier_bench.py" "$@"
