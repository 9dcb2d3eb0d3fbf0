"""Accuracy from a layout against the live road, on real sets, three seeds each: the same batches every epoch (--plan),
fresh ones (--plan --resample every-epoch), and proximity order.

A set passes when the mean from its layout is within two points, or twice the spread of the live seeds, of the live mean.

usage: layout_accuracy.py [SET...]     (default: arxiv-2023 amazon-computers)
Exit codes: 0 all pass, 1 one does not, 77 the data is not there.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from accuracy import DATA, SETS, run

ROADS = {
    "live": [],
    "layout": ["--plan"],
    "layout, 4 epochs": ["--plan", "--epochs-planned", "4"],
    "layout, proximity": ["--plan", "--seed-order", "proximity"],
    "superbatches": ["--plan", "--resample", "every-epoch"],
}
SEEDS = (0, 1, 2)


def train(database, metric, flags, seed, road):
    lines = run(["train", database, "--ordered", "--cache", "25%", "--seed", str(seed), "--json", *flags.split(), *ROADS[road]])
    summary = json.loads(lines.splitlines()[-1])["summary"]
    return summary[metric], summary["cache_hit_ratio"], summary["read_amplification"]


def compare(name, scratch):
    _, metric, import_flags, flags = SETS[name]
    subprocess.run([str(DATA / "unpack"), name, scratch], check=True, stdout=subprocess.DEVNULL)
    database = f"{scratch}/{name}.db"
    run(["import", database, f"{scratch}/{name}", *import_flags.split()])
    passed = True
    live = []
    for road in ROADS:
        results = [train(database, metric, flags, seed, road) for seed in SEEDS]
        values = [result[0] for result in results]
        live = live or values
        mean, margin = statistics.mean(values), max(0.02, 2 * statistics.stdev(live))
        held = road in ("live", "layout, proximity") or mean >= statistics.mean(live) - margin
        passed &= held
        print(f"{name:<18} {road:<18} {mean:>7.4f} +- {statistics.stdev(values):.4f}  "
              f"{' '.join(f'{value:.4f}' for value in values)}  hits {results[0][1]:>6.1%}  ampl {results[0][2]:>5.2f}  "
              f"{'' if road == 'live' else 'for information' if 'proximity' in road else 'PASS' if held else 'FAIL'}", flush=True)
    return passed


def main(names):
    if not (DATA / "unpack").exists():
        print(f"skipped: the data sets are not in {DATA} (QUARRY_SHARED_DATA names it)")
        return 77
    print(f"{'set':<18} {'road':<18} {'test':>7}     spread  by seed")
    with tempfile.TemporaryDirectory(dir=os.environ.get("QUARRY_BENCH_DATA")) as scratch:
        return 0 if all([compare(name, scratch) for name in names or ("arxiv-2023", "amazon-computers")]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
