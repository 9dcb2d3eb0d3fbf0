#!/usr/bin/env python3
"""The main job, once, for show: train on a graph that is larger than the memory it is given, beside the same training
over a memory-mapped array and with everything in memory (`./dev demo`)."""

import json
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, "tests/bench/python")
from memory_cgroup import Cgroup  # noqa: E402

QUARRY = "build/release/bin/quarry"
MAPPED = "build/release/bin/bench_mapped"
FOLDER = pathlib.Path("demo-data")
DISK_BYTES = 12e9  # source, database and layout, at their largest together
MEMORY_BYTES = 768 << 20
ALL_BYTES = 5 << 30  # with which everything lies in memory
GENERATE = "--nodes 4M --degree 15 --dim 128 --classes 50 --valid-share 0.2% --seed 1".split()
FANOUTS, BATCH_SIZE = "15,10", 1024
TRAIN = f"--layers 2 --fanout {FANOUTS} --batch-size {BATCH_SIZE} --seed 1".split()
EPOCHS = 2
WARM_BATCHES, MAPPED_BATCHES = 6, 6


def gib(size):
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def run(*arguments):
    """Runs a verb, shows its command line, returns its output and seconds."""
    command = [QUARRY, *map(str, arguments)]
    print("$ " + " ".join(command), flush=True)
    start = time.monotonic()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return output, time.monotonic() - start


def train(database, *options):
    """Trains, with a line per epoch; returns the summary, the last epoch, as the first fills caches, and the seconds before
    the first: opening, probing and, where it is planned, sampling ahead and packing."""
    command = [QUARRY, "train", str(database), *TRAIN, "--epochs", str(EPOCHS), *options, "--json"]
    print("$ " + " ".join(command), flush=True)
    epochs, summary, before, start = [], None, 0.0, time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            if "summary" in row:
                summary = row["summary"]
                continue
            if "epoch" not in row:
                continue  # an error, which stderr has in words
            if not epochs:
                before = time.monotonic() - start - row["seconds"]
            epochs.append(row)
            print(f"  epoch {row['epoch']}: loss {row['loss']:.3f}, validation accuracy {row['valid_accuracy']:.3f}, "
                  f"{row['seconds']:.1f} s, read {gib(row['bytes_read'])}", flush=True)
    if process.returncode != 0:
        sys.exit(process.returncode)
    return summary, epochs[-1], before


def train_mapped(database, graph):
    """Seconds and bytes of an epoch that waits for rows of a memory-mapped array, by some of its batches; whether the page
    cache was bounded, without which it is as good as memory."""
    cgroup = Cgroup(MEMORY_BYTES)
    command = [MAPPED, database, graph / "features.npy", FANOUTS, BATCH_SIZE, WARM_BATCHES, MAPPED_BATCHES]
    print("$ " + " ".join(map(str, command)), flush=True)
    try:
        output = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True,
                                preexec_fn=cgroup.enter).stdout
        bounded = cgroup.folder is not None
    finally:
        cgroup.close()
    batches, _, seconds, bytes_read = map(float, output.split())
    return batches * seconds, batches * bytes_read, bounded


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    free = shutil.disk_usage(".").free
    if free < DISK_BYTES:
        sys.exit(f"demo: needs {gib(DISK_BYTES)} of disk, {gib(free)} are free here")
    FOLDER.mkdir()
    graph, database = FOLDER / "graph", FOLDER / "db"
    _, generate_seconds = run("generate", graph, *GENERATE)
    _, import_seconds = run("import", database, graph, "--memory", "768MiB")
    info = json.loads(run("info", database, "--json")[0])
    _, verify_seconds = run("verify", database)
    mapped_seconds, mapped_bytes, bounded = train_mapped(database, graph)
    shutil.rmtree(graph)
    live, live_epoch, live_before = train(database, "--memory", str(MEMORY_BYTES), "--road", "live")
    planned, planned_epoch, planned_before = train(database, "--memory", str(MEMORY_BYTES), "--road", "planned")
    _, memory_epoch, memory_before = train(database, "--memory", str(ALL_BYTES), "--road", "live")

    size = sum(file["file_bytes"] for file in info["tables"] + info["topologies"])
    print(f"""
database: {info['nodes'] / 1e6:.1f} M nodes, {info['edges'] / 1e6:.1f} M edges, {gib(size)}: {size / MEMORY_BYTES:.1f} times the memory
generated in {generate_seconds:.1f} s, imported in {import_seconds:.1f} s, every checksum verified in {verify_seconds:.1f} s
test accuracy {planned['test_accuracy']:.3f} planned, {live['test_accuracy']:.3f} live, of {info['classes']} classes (chance: {1 / info['classes']:.3f})
""")
    # Training over a mapped array computes as the others do, at best while it waits for rows.
    rows = [
        ("memory-mapped array", MEMORY_BYTES, 0, max(mapped_seconds, memory_epoch["seconds"]), mapped_bytes),
        ("Quarry, live", MEMORY_BYTES, live_before, live_epoch["seconds"], live_epoch["bytes_read"]),
        ("Quarry, planned", MEMORY_BYTES, planned_before, planned_epoch["seconds"], planned_epoch["bytes_read"]),
        ("all in memory", ALL_BYTES, memory_before, memory_epoch["seconds"], memory_epoch["bytes_read"]),
    ]
    print(f"{'GraphSAGE':<22}{'memory':>10}{'before, s':>11}{'an epoch, s':>13}{'times':>7}{'it reads':>12}")
    for name, memory, before, seconds, bytes_read in rows:
        print(f"{name:<22}{gib(memory):>10}{before:>11.1f}{seconds:>13.2f}{seconds / memory_epoch['seconds']:>7.2f}{gib(bytes_read):>12}")
    print(f"""
memory-mapped: the rows of {MAPPED_BATCHES} batches, copied by 16 threads, scaled to the epoch{
        "" if bounded else "; NOT bounded, which takes root: what it read before lies in memory"}
planned: its batches are sampled before the first epoch and repeated, so that training neither samples nor waits""")
    for name, summary in (("live", live), ("planned", planned)):
        allowed = summary["memory_budget_bytes"] + summary["memory_overhead_bytes"]
        print(f"peak memory {name}: {gib(summary['peak_rss_bytes'])} of {gib(summary['memory_budget_bytes'])} + "
              f"{gib(summary['memory_overhead_bytes'])} for LibTorch and code")
        if summary["peak_rss_bytes"] > allowed:
            sys.exit("demo: peak memory exceeds budget + overhead")
    print(f"""
Next:
  {QUARRY} info {database}                    what is in it
  {QUARRY} train {database} --help            models, budgets, threads
  {QUARRY} import my.db my-folder/            your own data; docs/cli.md lists the formats
  rm -r {FOLDER}                               when you are done""")


if __name__ == "__main__":
    main()
