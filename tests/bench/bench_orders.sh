#!/usr/bin/env bash
# BGL's question: which share of rows a cache finds by policy, with seeds at random and in proximity order, and what the
# order does to accuracy (bench_orders.py). usage: ./dev bench orders [communities|arxiv-2023]
exec python3 "$(dirname "$0")/bench_orders.py" "$@"
