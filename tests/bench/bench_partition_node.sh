#!/usr/bin/env bash
# Node classification by parts beside the live road: test accuracy as training reports it (of held neighbors), and that of the
# same weights with all neighbors (`quarry predict`), where the training nodes' parts stay in memory and where Algorithm 7
# reads every part once (Waleffe §5.5). A command that is stopped goes on where it was (sets.sh).
# usage: ./dev bench partition_node [SETS (arxiv-2023 debian-nodes)] [EPOCHS (6)] [SEEDS (1 2 3)]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/sets.sh
names=${1:-arxiv-2023 debian-nodes} epochs=${2:-6} seeds=${3:-1 2 3}
use_sets partition_node

train() {  # NAME PARTITIONING|- BUFFER SEED: trains and predicts; the last line is the summary, with the accuracy over all neighbors
  local db=$folder/$1.db options=(--road live) summary
  [ "$2" = - ] || options=(--road partitioned --partitioning "$2" --buffer "$3")
  summary=$("$quarry" train "$db" "${options[@]}" --layers 2 --hidden 64 --epochs "$epochs" --ordered --seed "$4" \
    --run bench --overwrite --json | tail -1)
  rm -f "$folder/classes.npy" "$folder/nodes.npy"
  "$quarry" predict "$db" --run bench --split test --out "$folder/classes.npy" --ids "$folder/nodes.npy" >/dev/null
  (cd "$folder" && python3 - "$1" "$summary" <<'PYTHON'
import array, json, sys
def load(path):  # int64, .npy of version 1
    data = open(path, "rb").read()
    return array.array("q", data[10 + int.from_bytes(data[8:10], "little"):])
name, summary = sys.argv[1], json.loads(sys.argv[2])["summary"]
labels, classes, nodes = load(f"{name}/labels.npy"), load("classes.npy"), load("nodes.npy")
summary["whole"] = sum(labels[node] == told for node, told in zip(nodes, classes)) / len(nodes)
print(json.dumps(summary))
PYTHON
  )
}

printf '%-13s %-28s %s\n' set road 'validation, mean | test accuracy by seed, mean | with all neighbors, mean | s/epoch | MiB read/epoch'
for name in $names; do
  import_set "$name" --undirected
  partition_set "$name" first --parts 16 --training-first
  partition_set "$name" spread --parts 16
  for road in live 'first 12' 'spread 12' 'spread 8' 'spread 4'; do
    read -r partitioning buffer <<<"$road"
    case $road in
      live) what=live partitioning=- ;;
      first*) what="training parts stay, $buffer/16" ;;
      *) what="Algorithm 7, $buffer/16" ;;
    esac
    printf '%-13s %-28s ' "$name" "$what"
    for seed in $seeds; do
      once "$name-${road/ /-}-$epochs-$seed" train "$name" "$partitioning" "${buffer:-0}" "$seed"
    done | python3 -c '
import json, sys
runs = [json.loads(line) for line in sys.stdin.read().splitlines()[::2]]
mean = lambda field: sum(run[field] for run in runs) / len(runs)
for run in runs:
    run["read"] = (run["bytes_read"] + run["topology_bytes_read"]) / run["epochs"] / 2**20
print("{:.4f} |".format(mean("valid_accuracy")), *("{:.4f}".format(run["test_accuracy"]) for run in runs), "{:.4f} |".format(mean("test_accuracy")),
      *("{:.4f}".format(run["whole"]) for run in runs), "{:.4f} |".format(mean("whole")), "{:.2f} | {:.0f}".format(mean("seconds_per_epoch"), mean("read")))'
  done
done
