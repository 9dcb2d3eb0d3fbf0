"""Times what `quarry train` chooses and every road by its flag, and prints them as a table.

Each case is a generated database, a model's hops, epochs and a memory budget. A run is a process of its own that begins
without a layout; rows are read past the page cache, as the engine does, and the topology through it. `seconds` are what
building a layout and training took, start-up and probing left out of what is predicted and counted in `wall`.
"""

import json
import os
import shutil
import subprocess
import sys
import time

QUARRY = "build/release/bin/quarry"
DATA = os.environ.get("QUARRY_BENCH_DATA", "build/bench-data") + "/choice"

# Nodes of 128 float32 each (512 bytes), fanouts, epochs, memory, share of nodes that is trained on.
CASES = {
    "30MB-2hop-1": ("60k", "10,10", 1, "256MiB", 0.2),
    "30MB-2hop-30": ("60k", "10,10", 30, "256MiB", 0.2),
    "120MB-1hop-30": ("240k", "15", 30, "160MiB", 0.2),
    "120MB-2hop-1": ("240k", "10,10", 1, "200MiB", 0.2),
    "250MB-1hop-3": ("500k", "10", 3, "192MiB", 0.1),
    "250MB-2hop-10": ("500k", "10,10", 10, "384MiB", 0.1),
    "500MB-2hop-1": ("1M", "10,10", 1, "512MiB", 0.1),
    "500MB-2hop-10": ("1M", "10,10", 10, "512MiB", 0.1),
    "500MB-3hop-3": ("1M", "10,10,5", 3, "1GiB", 0.02),
    "5GB-2hop-3": ("10M", "10,10", 3, "2GiB", 0.02),
}
ROADS = {
    "auto": [],
    "live": ["--road", "live"],
    "planned": ["--road", "planned"],
    "plan 10%": ["--plan", "--cache", "10%"],
    "fresh": ["--road", "fresh"],
}


def make(nodes, share):
    """The database of a size, calibrated; made once."""
    path = f"{DATA}/{nodes}-{share}.db"
    if not os.path.isdir(path):
        os.makedirs(DATA, exist_ok=True)
        raw = path[:-3]
        shutil.rmtree(raw, ignore_errors=True)
        subprocess.run([QUARRY, "generate", raw, "--nodes", nodes, "--dim", "128", "--degree", "15", "--classes", "16",
                        "--train-share", str(share), "--seed", "1"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([QUARRY, "import", path, raw], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(raw)
        subprocess.run([QUARRY, "calibrate", path], check=True, stdout=subprocess.DEVNULL)
    return path


def run(database, case, flags):
    """The figures of one training, or why there is none."""
    _, fanout, epochs, memory, _ = case
    subprocess.run([QUARRY, "layout", "drop", database, "default"], capture_output=True, check=False)
    start = time.monotonic()
    done = subprocess.run([QUARRY, "train", database, "--fanout", fanout, "--epochs", str(epochs), "--memory", memory,
                           "--hidden", "32", "--seed", "1", "--json", *flags], capture_output=True, text=True, check=False)
    wall = time.monotonic() - start
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1][:150]}
    summary = json.loads(done.stdout.strip().splitlines()[-1])["summary"]
    return {"wall": wall, "seconds": summary["seconds"] + summary.get("plan_seconds", 0),
            "epoch": summary["seconds_per_epoch"], "road": summary.get("road", ""),
            "predicted": summary.get("road_seconds_predicted")}


def rows_of(name, runs, best):
    """A line for each run of a case."""
    for road, figures in runs.items():
        if "error" in figures:
            yield f"{name:<15} {road:<9} -        {figures['error']}"
            continue
        predicted = figures["predicted"]
        ratio = f"{predicted / figures['seconds']:>6.2f}" if predicted else f"{'-':>6}"
        yield (f"{name:<15} {road:<9} {figures['road'] or '-':<8} {figures['wall']:>7.2f} {figures['wall'] / best:>6.2f}"
               f" {figures['seconds']:>7.2f} {figures['epoch']:>7.3f} {predicted or 0:>9.2f} {ratio}")


def verdict(name, runs):
    """What was chosen beside the best, and whether both limits hold: 1.1 of the best, and .8 to 1.25 of what was predicted."""
    walls = {road: figures["wall"] for road, figures in runs.items() if "wall" in figures}
    best, auto = min(walls, key=walls.get), runs["auto"]
    ratio = auto["wall"] / walls[best]
    of_predicted = auto["predicted"] / auto["seconds"] if auto["predicted"] else None
    told = "all rows fit, so nothing was predicted" if of_predicted is None else f"predicted / measured {of_predicted:.2f}"
    print(f"{name}: chosen {auto['road'] or 'live'}, best {best} ({runs[best]['road'] or 'live'}),"
          f" ratio {ratio:.2f} (limit 1.10), {told} (limit .80 to 1.25)", flush=True)
    return ratio, of_predicted is None or 0.8 <= of_predicted <= 1.25


def main(arguments):
    if "--list" in arguments:
        print("\n".join(CASES))
        return
    names = [name for name in arguments if name != "--only"]
    for name in names:
        if name not in CASES:
            sys.exit(f"there is no case {name}; --list has them: {', '.join(CASES)}")
    print(f"{'case':<15} {'flags':<9} {'road':<8} {'wall s':>7} {'/ best':>6} {'train s':>7} {'s/epoch':>7} {'predicted':>9}"
          f" {'p / m':>6}", flush=True)
    verdicts = []
    load = os.getloadavg()[0]
    for name in names or CASES:
        database = make(CASES[name][0], CASES[name][4])
        runs = {road: run(database, CASES[name], flags) for road, flags in ROADS.items()}
        best = min(figures["wall"] for figures in runs.values() if "wall" in figures)
        print("\n".join(rows_of(name, runs, best)), flush=True)
        if "wall" in runs["auto"]:
            verdicts.append(verdict(name, runs))
    good = sum(ratio <= 1.1 for ratio, _ in verdicts)
    told = sum(within for _, within in verdicts)
    print(f"{good} of {len(verdicts)} choices within 10 % of the best of all flags, {told} predicted within 20 %; the worst ratio"
          f" {max((ratio for ratio, _ in verdicts), default=0):.2f}; the load was {load:.1f} before and"
          f" {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} processors")


if __name__ == "__main__":
    main(sys.argv[1:])
