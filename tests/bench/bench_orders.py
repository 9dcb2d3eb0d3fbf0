"""Hit ratios of cache policies by the order of seeds, and the accuracy of training in that order (`./dev bench orders`).

Graphs: `communities` (generated: 1 M nodes in communities of 500, 9 of 10 edges inside, a tenth of the nodes trained on)
and arxiv-2023 of ../shared/data (QUARRY_SHARED_DATA names another place). Each row of the table is one packed layout, whose
trace every policy is run over (`quarry layout trace`), and trainings over three seeds: planned from that layout, and
sampled anew every epoch, by the live road at random (whose cache is lru) and by the fresh road in proximity order (with
fifo, as BGL has it), whose own hit ratio stands beside it.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUARRY = str(ROOT / "build/release/bin/quarry")
FOLDER = pathlib.Path(os.environ.get("QUARRY_BENCH_DATA", ROOT / "build/bench-data")) / "orders"
SETS = pathlib.Path(os.environ.get("QUARRY_SHARED_DATA", ROOT.parent / "shared/data"))
POLICIES = ("fifo", "lru", "static-degree", "static-frequency", "belady")
SIZES = "5%,10%,20%"
SEEDS = (1, 2, 3)
SAMPLED_ANEW = {"random": ("--road", "live"), "proximity": ("--road", "fresh", "--policy", "fifo")}
GRAPHS = {
    "communities": {"fanout": "10,10", "batch": "1024", "epochs": "2", "generate": [
        "--nodes", "1M", "--degree", "15", "--dim", "32", "--classes", "2000", "--homophily", "0.9", "--noise", "2",
        "--train-share", "10%", "--seed", "1"]},
    "arxiv-2023": {"fanout": "10,10", "batch": "512", "epochs": "15"},
}


def quarry(*arguments):
    done = subprocess.run([QUARRY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"quarry {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def make(name, database):
    source = FOLDER / name
    if name == "communities":
        quarry("generate", source, *GRAPHS[name]["generate"])
    else:
        if not (SETS / "unpack").exists():
            return False
        subprocess.run([SETS / "unpack", name, FOLDER], check=True, stdout=subprocess.DEVNULL)
    quarry("import", database, source)
    return True


def train(database, graph, seed, *options, epochs=None):
    output = quarry("train", database, "--fanout", graph["fanout"], "--batch-size", graph["batch"], "--epochs",
                    epochs or graph["epochs"], "--seed", seed, "--json", *options)
    return json.loads(output.splitlines()[-1])["summary"]


def spread(values):
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def measure(name):
    graph, database = GRAPHS[name], FOLDER / f"{name}.db"
    print(f"\n{name}: fanout {graph['fanout']}, batches of {graph['batch']}, {graph['epochs']} epochs, seeds {SEEDS}", flush=True)
    if not make(name, database):
        print(f"  skipped: no data sets in {SETS} (QUARRY_SHARED_DATA names them)")
        return
    print(f"{'order':<11}{'cache':>6}" + "".join(f"{policy:>18}" for policy in POLICIES) + f"{'anew':>8}{'rows a batch':>14}"
          f"{'planned accuracy':>18}{'anew, accuracy':>18}", flush=True)
    for order in ("random", "proximity"):
        shared = ["--fanout", graph["fanout"], "--batch-size", graph["batch"], "--seed-order", order]
        quarry("layout", "build", database, order, *shared, "--cache", "10%", "--seed", SEEDS[0])
        trace = json.loads(quarry("layout", "trace", database, order, "--sizes", SIZES, "--json"))
        planned = [train(database, graph, seed, "--layout", order) for seed in SEEDS]
        for sizes in trace["hit_ratios"]:
            trained = sizes["size"] == "10%"
            # What a cache finds shows in two epochs; accuracy takes all of them.
            anew = [train(database, graph, seed, "--cache", sizes["size"], *SAMPLED_ANEW[order],
                          *(() if order == "random" else ("--seed-order", order)), epochs=None if trained else 2)
                    for seed in (SEEDS if trained else SEEDS[:1])]
            print(f"{order:<11}{sizes['size']:>6}" + "".join(f"{sizes[policy]:>18.3f}" for policy in POLICIES) +
                  f"{statistics.mean(run['cache_hit_ratio'] for run in anew):>8.3f}{trace['input_nodes_mean']:>14.0f}" +
                  (f"{spread([run['test_accuracy'] for run in planned]):>18}{spread([run['test_accuracy'] for run in anew]):>18}"
                   if trained else ""), flush=True)


def main():
    names = sys.argv[1:] or list(GRAPHS)
    if unknown := [name for name in names if name not in GRAPHS]:
        sys.exit(f"bench orders: no graph {unknown[0]}; there are {', '.join(GRAPHS)}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        for name in names:
            measure(name)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    main()
