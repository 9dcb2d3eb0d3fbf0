#!/usr/bin/env bash
# Link prediction by parts on FB15k-237 with a buffer of a quarter: the filtered test MRR of training on all edges at once, and of
# COMET's and BETA's order, after as many epochs (Waleffe, Table 5.4).
# usage: ./dev bench partition_link [EPOCHS (10)] [SEEDS (1 2 3)] [ENCODERS (none sage)]
set -euo pipefail
cd "$(dirname "$0")/../.."
epochs=${1:-10} seeds=${2:-1 2 3} encoders=${3:-none sage}
sets=${QUARRY_SHARED_DATA:-../shared/data}
[ -x "$sets/unpack" ] || { echo "FB15k-237 is not in $sets (QUARRY_SHARED_DATA names it)" >&2; exit 1; }
folder=build/bench-data/partition_link
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
"$sets/unpack" fb15k-237 "$folder" >/dev/null
quarry=build/release/bin/quarry
"$quarry" import "$folder/db" "$folder/fb15k-237" >/dev/null
"$quarry" partition build "$folder/db" --method random --parts 16 --table none >/dev/null
printf '%-8s %-7s' encoder order
for seed in $seeds; do printf ' %8s' "seed $seed"; done
printf ' %8s %9s\n' mean 's/epoch'
for encoder in $encoders; do
  for order in memory comet beta; do
    road=()
    [ "$order" = memory ] || road=(--road partitioned --partition-order "$order" --buffer 4)
    [ "$order" = comet ] && road+=(--logical 8)
    [ "$encoder" = sage ] && road+=(--encoder sage --fanout 20)
    results=()
    for seed in $seeds; do
      results+=("$("$quarry" train "$folder/db" --task link "${road[@]}" --embedding-mode sync --epochs "$epochs" --valid-every 0 \
        --seed "$seed" --json 2>/dev/null | tail -1)")
    done
    printf '%-8s %-7s' "$encoder" "$order"
    printf '%s\n' "${results[@]}" | python3 -c '
import json, sys
runs = [json.loads(line)["summary"] for line in sys.stdin]
mrrs = [run["test_mrr"] for run in runs]
seconds = sum(run["seconds_per_epoch"] for run in runs) / len(runs)
print("".join(f" {mrr:8.4f}" for mrr in mrrs), f"{sum(mrrs) / len(mrrs):8.4f} {seconds:9.2f}")'
  done
done
