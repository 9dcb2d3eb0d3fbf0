#!/usr/bin/env bash
# Node classification by parts beside the live road: test accuracy as training reports it (of held neighbors), and that of the
# same weights with all neighbors (`quarry predict`), where the training nodes' parts stay in memory and where Algorithm 7
# reads every part once (Waleffe §5.5).
# usage: ./dev bench partition_node [SETS (arxiv-2023 debian-nodes)] [EPOCHS (6)] [SEEDS (1 2 3)]
set -euo pipefail
cd "$(dirname "$0")/../.."
names=${1:-arxiv-2023 debian-nodes} epochs=${2:-6} seeds=${3:-1 2 3}
sets=${QUARRY_SHARED_DATA:-../shared/data}
[ -x "$sets/unpack" ] || { echo "the data sets are not in $sets (QUARRY_SHARED_DATA names it)" >&2; exit 1; }
folder=build/bench-data/partition_node
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
quarry=build/release/bin/quarry
printf '%-13s %-28s %s\n' set road 'validation, mean | test accuracy by seed, mean | with all neighbors, mean | s/epoch | MiB read/epoch'
for name in $names; do
  "$sets/unpack" "$name" "$folder" >/dev/null
  db=$folder/$name.db
  "$quarry" import "$db" "$folder/$name" --undirected >/dev/null
  "$quarry" partition build "$db" first --parts 16 --training-first >/dev/null
  "$quarry" partition build "$db" spread --parts 16 >/dev/null
  for road in live 'first 12' 'spread 12' 'spread 8' 'spread 4'; do
    read -r partitioning buffer <<<"$road"
    options=()
    [ "$road" = live ] || options=(--road partitioned --partitioning "$partitioning" --buffer "$buffer")
    [ "$road" = live ] && options=(--road live)
    results=()
    for seed in $seeds; do
      summary=$("$quarry" train "$db" "${options[@]}" --layers 2 --hidden 64 --epochs "$epochs" --ordered --seed "$seed" \
        --run bench --overwrite --json 2>/dev/null | tail -1)
      "$quarry" predict "$db" --run bench --split test --out "$folder/classes.npy" --ids "$folder/nodes.npy" >/dev/null 2>&1
      results+=("$summary" "$(cd "$folder" && python3 -c "
import array
def load(path):  # int64, .npy of version 1
    data = open(path, 'rb').read()
    return array.array('q', data[10 + int.from_bytes(data[8:10], 'little'):])
labels, classes, nodes = load('$name/labels.npy'), load('classes.npy'), load('nodes.npy')
print(sum(labels[node] == told for node, told in zip(nodes, classes)) / len(nodes))")")
      rm -f "$folder/classes.npy" "$folder/nodes.npy"
    done
    case $road in
      live) what=live ;;
      first*) what="training parts stay, $buffer/16" ;;
      *) what="Algorithm 7, $buffer/16" ;;
    esac
    printf '%-13s %-28s ' "$name" "$what"
    printf '%s\n' "${results[@]}" | python3 -c '
import json, sys
lines = sys.stdin.read().split("\n")[:-1]
runs = [json.loads(line)["summary"] for line in lines[::2]]
whole = [float(line) for line in lines[1::2]]
mine = [run["test_accuracy"] for run in runs]
mean = lambda values: sum(values) / len(values)
print("{:.4f} |".format(mean([run["valid_accuracy"] for run in runs])), " ".join(f"{v:.4f}" for v in mine), f"{mean(mine):.4f} |", " ".join(f"{v:.4f}" for v in whole), f"{mean(whole):.4f} |",
      "{:.2f} |".format(mean([run["seconds_per_epoch"] for run in runs])),
      "{:.0f}".format(mean([(run["bytes_read"] + run["topology_bytes_read"]) / run["epochs"] / 2**20 for run in runs])))'
  done
done
