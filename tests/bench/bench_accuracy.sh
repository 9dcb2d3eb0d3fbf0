#!/usr/bin/env bash
# The real node-classification sets: imports each and trains with --cache 25%, beside the accuracy that logistic regression
# reaches on features plus 2-hop smoothed features (the sets' README). usage: ./dev bench accuracy [--quick] [SET...]
exec python3 "$(dirname "$0")/accuracy.py" "$@"
