#!/usr/bin/env bash
# Link prediction by parts on FB15k-237 with a buffer of a quarter: the filtered test MRR of training on all edges at once, and of
# COMET's and BETA's order, after as many epochs (Waleffe, Table 5.4). A command that is stopped goes on where it was, and one that
# is given more seeds keeps those that are done (sets.sh).
# usage: ./dev bench partition_link [EPOCHS (10)] [SEEDS (1 2 3)] [ENCODERS (none sage), of none, sage, gat, gcn and gin]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/sets.sh
epochs=${1:-10} seeds=${2:-1 2 3} encoders=${3:-none sage}
use_sets partition_link
import_set fb15k-237
partition_set fb15k-237 default --method random --parts 16 --table none

train() {  # ENCODER ORDER SEED
  local options=(--task link --embedding-mode sync --epochs "$epochs" --valid-every 0 --seed "$3" --json)
  [ "$2" = memory ] || options+=(--road partitioned --partition-order "$2" --buffer 4)
  [ "$2" = comet ] && options+=(--logical 8)
  case $1 in
    none) ;;
    gat) options+=(--encoder gat --fanout all --heads 10 --encoder-lr 0.01 --lr 0.1) ;;  # all neighbors, as §5.5.3 has them
    *) options+=(--encoder "$1" --fanout 20) ;;
  esac
  once "$epochs-$1-$2-$3" "$quarry" train "$folder/fb15k-237.db" "${options[@]}"
}

# All orders of a seed before the next seed: what is done first is a whole row of comparisons.
for encoder in $encoders; do
  for seed in $seeds; do
    for order in memory comet beta; do train "$encoder" "$order" "$seed" >/dev/null; done
  done
done
printf '%-8s %-7s' encoder order
for seed in $seeds; do printf ' %8s' "seed $seed"; done
printf ' %8s %9s %9s\n' mean 's/epoch' 'cpu s'
for encoder in $encoders; do
  for order in memory comet beta; do
    printf '%-8s %-7s' "$encoder" "$order"
    for seed in $seeds; do train "$encoder" "$order" "$seed"; done | python3 -c '
import json, sys
lines = sys.stdin.read().splitlines()
runs = [json.loads(line)["summary"] for line in lines[::2]]
processor = [sum(map(float, line.split())) for line in lines[1::2]]
mrrs = [run["test_mrr"] for run in runs]
mean = lambda values: sum(values) / len(values)
print("".join(f" {mrr:8.4f}" for mrr in mrrs), f"{mean(mrrs):8.4f}",
      "{:9.2f}".format(mean([run["seconds_per_epoch"] for run in runs])), f"{mean(processor):9.0f}")'
  done
done
