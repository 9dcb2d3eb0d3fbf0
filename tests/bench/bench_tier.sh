#!/usr/bin/env bash
# Epochs of a batch tier by the number of its workers, what feature caches spare, and accuracy of batches made of parts alone
# (tests/bench/python/tier_bench.py).
# usage: ./dev bench tier [curve] [cache] [accuracy] [--nodes N] [--dim N] [--hidden N] [--workers 1,2,4] [--quota CPUS] [--epochs N]
#        [--cache 5%,20%] [--sets SET,..] [--parts P] [--held C] [--accuracy-epochs N]
exec python3 "$(dirname "$0")/python/tier_bench.py" "$@"
