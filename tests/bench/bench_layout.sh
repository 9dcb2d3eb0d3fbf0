#!/usr/bin/env bash
# Layouts against other roads, beside their limits (bench_layout.cc), and the accuracy of training from them
# (layout_accuracy.py).
#
# usage: ./dev bench layout [PART...]
#   PART   roads, disk, search, packing, superbatch, pipeline (all of them on 10 M nodes), sampling (10 M nodes, sampled from disk within 512 and 768 MiB), accuracy, huge (50 M nodes
#          planned in 2 GB); default: all but huge
set -euo pipefail
cd "$(dirname "$0")/../.."
quarry=build/release/bin/quarry
folder=${QUARRY_BENCH_DATA:-build/bench-data}
mkdir -p "$folder"

# make_database NAME GENERATE-FLAG...
make_database() {
  local data=$folder/$1
  [ -d "$data.db" ] && return
  rm -rf "$data"
  $quarry generate "$data" "${@:2}" --degree 15 --classes 50 --seed 1
  $quarry import "$data.db" "$data" --memory 4GiB
  rm -rf "$data"
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(roads disk search packing superbatch pipeline sampling accuracy)
status=0
for part in "${parts[@]}"; do
  case $part in
    accuracy) python3 tests/bench/layout_accuracy.py || status=1 ;;
    sampling)
      make_database layout-10M-16 --nodes 10M --dim 16
      for memory in 512MiB 768MiB; do
        build/release/bin/bench_layout "$folder/layout-10M-16.db" sampling --memory $memory || status=1
      done
      ;;
    huge)
      make_database layout-50M --nodes 50M --dim 16
      $quarry layout build "$folder/layout-50M.db" bench --fanout 10,15,20 --cache 10% --memory 2GB --json | tee "$folder/huge.json"
      python3 - "$folder/huge.json" <<'PYTHON' || status=1
import json, sys
record = json.load(open(sys.argv[1]))
peak = record["peak_rss_bytes"]
print(f"50 M nodes, {record['batches']} batches, {record['accesses'] / 1e6:.0f} M accesses: peak RSS {peak / 1e9:.2f} GB of 2 GB: "
      f"{'PASS' if peak <= 2e9 else 'FAIL'}")
sys.exit(peak > 2e9)
PYTHON
      $quarry layout drop "$folder/layout-50M.db" bench
      ;;
    *)
      make_database layout-10M --nodes 10M --dim 128
      sync && sleep 3  # or the disk still writes while its rates are measured
      build/release/bin/bench_layout "$folder/layout-10M.db" "$part" || status=1
      ;;
  esac
done
exit $status
