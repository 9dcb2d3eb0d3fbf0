"""Times what `quarry train` chooses and every road by its flag, and prints them as a table (`./dev bench choice`).

Each case is a generated database, a model's hops, epochs and a memory budget. A run is a process of its own that begins
without a layout; rows are read past the page cache, as the engine does, and the topology through it, which is read into it
before the first run. `train s` are what building a layout and training took, start-up and probing left out of what is
predicted and counted in `wall`. Where every run takes less than half a minute, each is taken twice, there and back, and the
faster counts.

What is predicted stands beside what was measured: before the first epoch, training passes, validation and test, each by
the clock on the wall and in seconds of processors, which other processes hardly change.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time

QUARRY = "build/release/bin/quarry"
DATA = os.environ.get("QUARRY_BENCH_DATA", "build/bench-data") + "/choice"
SHORT_SECONDS = 30

# Nodes of 128 float32 each (512 bytes), fanouts, epochs, memory, share of nodes that is trained on. The cheap ones first.
CASES = {
    "30MB-2hop-1": ("60k", "10,10", 1, "256MiB", 0.2),
    "250MB-1hop-3": ("500k", "10", 3, "192MiB", 0.1),
    "120MB-2hop-1": ("240k", "10,10", 1, "200MiB", 0.2),
    "30MB-2hop-30": ("60k", "10,10", 30, "256MiB", 0.2),
    "500MB-2hop-1": ("1M", "10,10", 1, "512MiB", 0.05),
    "120MB-1hop-30": ("240k", "15", 30, "160MiB", 0.2),
    "250MB-2hop-10": ("500k", "10,10", 10, "384MiB", 0.1),
    "500MB-2hop-10": ("1M", "10,10", 10, "512MiB", 0.05),
    "500MB-3hop-3": ("1M", "10,10,5", 3, "1GiB", 0.02),
    "5GB-2hop-3": ("10M", "10,10", 3, "2GiB", 0.005),
}
ROADS = {
    "auto": [],
    "live": ["--road", "live"],
    "planned": ["--road", "planned"],
    "plan 10%": ["--plan", "--cache", "10%"],
    "fresh": ["--road", "fresh"],
}
PARTS = ("build", "train", "other")


def make(nodes, share):
    """The database of a size, made once."""
    path = f"{DATA}/{nodes}-{share}.db"
    if not os.path.isdir(path):
        os.makedirs(DATA, exist_ok=True)
        raw = path[:-3]
        shutil.rmtree(raw, ignore_errors=True)
        subprocess.run([QUARRY, "generate", raw, "--nodes", nodes, "--dim", "128", "--degree", "15", "--classes", "16",
                        "--train-share", str(share), "--seed", "1"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([QUARRY, "import", path, raw], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(raw)
    return path


def run(database, case, flags):
    """The figures of one training, or why there is none."""
    _, fanout, epochs, memory, _ = case
    subprocess.run([QUARRY, "layout", "drop", database, "default"], capture_output=True, check=False)
    start = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([QUARRY, "train", database, "--fanout", fanout, "--epochs", str(epochs), "--memory", memory,
                           "--hidden", "32", "--seed", "1", "--json", *flags], capture_output=True, text=True, check=False)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1][:150]}
    lines = [json.loads(line) for line in done.stdout.strip().splitlines()]
    summary, epoch_lines = lines[-1]["summary"], lines[:-1]
    train = sum(line["seconds"] for line in epoch_lines)
    built = summary.get("plan_seconds", 0)
    processors = summary["processor_seconds"] - summary["processor_seconds_before"]
    figures = {"wall": wall, "seconds": summary["seconds"] + built, "epoch": summary["seconds_per_epoch"],
               "road": summary.get("road", ""), "predicted": summary.get("road_seconds_predicted"),
               "processors": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
               "measured": {"build": built, "train": train, "other": summary["seconds"] - train},
               "measured processors": {"training": processors, "before": summary["processor_seconds_before"]},
               "stages": {name: summary[name] for name in ("sample_seconds", "extract_seconds", "train_wait_seconds")},
               "said": [line for line in done.stderr.splitlines() if "road:" in line or "next:" in line]}
    if figures["predicted"] is not None:
        figures["expected"] = {"build": summary["build_seconds_predicted"],
                               "train": summary["epoch_seconds_predicted"] * epochs,
                               "other": summary["other_seconds_predicted"]}
        if figures["road"] == "fresh":  # waits for its first superbatch in the first epoch
            figures["expected"]["train"] += figures["expected"].pop("build")
            figures["expected"]["build"] = 0
        figures["expected processors"] = {part: summary[f"{part}_processor_seconds_predicted"] for part in PARTS}
    return figures


def warm(database):
    """The topology in the page cache, so that the first run does not pay for those behind it."""
    for folder, _, files in os.walk(database + "/topology"):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                while file.read(1 << 24):
                    pass


def run_in_turns(database, case):
    """Every road, and once more, the last first, where none takes long."""
    warm(database)
    runs = {road: run(database, case, flags) for road, flags in ROADS.items()}
    if any(figures.get("wall", 0) > SHORT_SECONDS for figures in runs.values()):
        return runs
    for road, flags in reversed(ROADS.items()):
        again = run(database, case, flags)
        if "wall" in again and again["wall"] < runs[road].get("wall", float("inf")):
            runs[road] = again
    return runs


def rows_of(name, runs, best):
    """A line for each run of a case, and below it what was predicted of its parts."""
    for road, figures in runs.items():
        if "error" in figures:
            yield f"{name:<15} {road:<9} -        {figures['error']}"
            continue
        predicted = figures["predicted"]
        ratio = f"{predicted / figures['seconds']:>6.2f}" if predicted else f"{'-':>6}"
        yield (f"{name:<15} {road:<9} {figures['road'] or '-':<8} {figures['wall']:>7.2f} {figures['wall'] / best:>6.2f}"
               f" {figures['seconds']:>7.2f} {figures['epoch']:>7.3f} {predicted or 0:>9.2f} {ratio}"
               f" {figures['processors']:>7.2f}")
        if "expected" not in figures:
            continue
        expected, measured = figures["expected"], figures["measured"]
        walls = ", ".join(f"{part} {expected[part]:.2f} / {measured[part]:.2f}" for part in PARTS)
        processors, used = figures["expected processors"], figures["measured processors"]
        # Superbatches are built while training is timed, the first one too.
        before = 0 if figures["road"] == "fresh" else processors["build"]
        training = sum(processors.values()) - before
        yield (f"{'':<15} {'':<9} predicted / measured s: {walls}; of processors: building {before:.2f} (in {used['before']:.2f}"
               f" with start and probe), training {training:.2f} / {used['training']:.2f}; stages: "
               + ", ".join(f"{stage[:-8]} {seconds:.2f}" for stage, seconds in figures["stages"].items()))


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


def measure(name):
    """A case; nothing where no road was taken."""
    case = CASES[name]
    database = make(case[0], case[4])
    # The device and the processors as they are now.
    subprocess.run([QUARRY, "calibrate", database, "--force"], check=True, capture_output=True)
    runs = run_in_turns(database, case)
    subprocess.run([QUARRY, "layout", "drop", database, "default"], capture_output=True, check=False)
    best = min((figures["wall"] for figures in runs.values() if "wall" in figures), default=0)
    print("\n".join(rows_of(name, runs, best)), flush=True)
    for line in runs["auto"].get("said", []):
        print(f"{'':<15} {line}")
    return verdict(name, runs) if "wall" in runs["auto"] else None


def main():
    parser = argparse.ArgumentParser(prog="./dev bench choice", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all, the cheap ones first")
    parser.add_argument("--only", default="", metavar="CASE[,CASE]", help="the same, in one word")
    parser.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("--prepare", action="store_true", help="make the databases of the cases, and run nothing")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return
    chosen = arguments.cases + [name for name in arguments.only.split(",") if name]
    for name in chosen:
        if name not in CASES:
            sys.exit(f"there is no case {name}; --list has them: {', '.join(CASES)}")
    names = [name for name in CASES if name in chosen or not chosen]
    if arguments.prepare:
        for name in names:
            start = time.monotonic()
            print(f"{name}: {make(CASES[name][0], CASES[name][4])} in {time.monotonic() - start:.1f} s", flush=True)
        return
    print(f"{'case':<15} {'flags':<9} {'road':<8} {'wall s':>7} {'/ best':>6} {'train s':>7} {'s/epoch':>7} {'predicted':>9}"
          f" {'p / m':>6} {'proc. s':>7}", flush=True)
    load, start = os.getloadavg()[0], time.monotonic()
    verdicts = [verdict for verdict in map(measure, names) if verdict is not None]
    good = sum(ratio <= 1.1 for ratio, _ in verdicts)
    told = sum(within for _, within in verdicts)
    print(f"{good} of {len(verdicts)} choices within 10 % of the best of all flags, {told} predicted within 20 %; the worst ratio"
          f" {max((ratio for ratio, _ in verdicts), default=0):.2f}; {time.monotonic() - start:.0f} s; the load was {load:.1f}"
          f" before and {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
