#!/usr/bin/env bash
# A stream of nodes and edges onto a graph that is trained on meanwhile (growth.py).
#
# usage: ./dev bench growth [--nodes 200k] [--commits 24] [--edges 5000] [--new-nodes 100] [--turns 3] [--only-prices] [--keep FOLDER]
exec python3 "$(dirname "$0")/growth.py" "$@"
