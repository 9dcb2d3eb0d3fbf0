#!/usr/bin/env bash
# A GPU beside its limits (docs/benchmarks.md): links, memory and calls; epochs of PyG from the planned and the live road;
# training of embeddings under optimistic asynchrony control, after a check of its bits.
# usage: ./dev bench gpu [OPTION...]
#        ./dev bench gpu epochs FOLDER [OPTION...]   Python with quarry, torch and torch_geometric: QUARRY_PYTHON, else python3
#        ./dev bench gpu live FOLDER [OPTION...]
#        ./dev bench gpu oac [OPTION...]
set -euo pipefail
here=$(dirname "$0")
case ${1:-} in
  epochs | live) part=$1; shift; exec "${QUARRY_PYTHON:-python3}" "$here/python/gpu_$part.py" "$@" ;;
  oac) shift; exec build/release/bin/gpu_oac_check "$@" ;;
  *) exec build/release/bin/bench_gpu "$@" ;;
esac
