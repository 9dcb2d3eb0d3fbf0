#!/usr/bin/env python3
"""The main job, once, for show: train on a graph that is larger than the memory it is given (`./dev demo`)."""

import json
import pathlib
import shutil
import subprocess
import sys
import time

QUARRY = "build/release/bin/quarry"
FOLDER = pathlib.Path("demo-data")
DISK_BYTES = 6e9  # source and database, at their largest together
GENERATE = "--nodes 4M --degree 15 --dim 128 --classes 50 --valid-share 0.2% --seed 1".split()
TRAIN = "--layers 3 --fanout 10,10,5 --batch-size 1024 --epochs 3 --memory 768MiB --cache 10% --seed 1".split()


def gib(size):
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def run(*arguments):
    """Runs a verb, shows its command line, returns its output and seconds."""
    command = [QUARRY, *map(str, arguments)]
    print("$ " + " ".join(command), flush=True)
    start = time.monotonic()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return output, time.monotonic() - start


def train(database):
    """Trains, with a line per epoch; returns the epochs, the summary and seconds."""
    command = [QUARRY, "train", str(database), *TRAIN, "--json"]
    print("$ " + " ".join(command), flush=True)
    start = time.monotonic()
    epochs, summary = [], None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            if "summary" in row:
                summary = row["summary"]
                continue
            epochs.append(row)
            print(f"  epoch {row['epoch']}: loss {row['loss']:.3f}, validation accuracy {row['valid_accuracy']:.3f}, "
                  f"{row['seconds']:.1f} s, read {gib(row['bytes_read'])}", flush=True)
    if process.returncode != 0:
        sys.exit(process.returncode)
    return epochs, summary, time.monotonic() - start


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
    epochs, summary, train_seconds = train(database)

    size = sum(file["file_bytes"] for file in info["tables"] + info["topologies"])
    budget, overhead = summary["memory_budget_bytes"], summary["memory_overhead_bytes"]
    rows = [
        ("generate", f"{info['nodes'] / 1e6:.1f} M nodes, {info['edges'] / 1e6:.1f} M edges", f"{generate_seconds:.1f} s"),
        ("import", f"database of {gib(size)}, {size / budget:.1f} times the memory budget", f"{import_seconds:.1f} s"),
        ("verify", "every checksum and cross-reference", f"{verify_seconds:.1f} s"),
        ("train", f"GraphSAGE, {len(epochs)} epochs, {summary['seconds_per_epoch']:.1f} s each, then the test",
         f"{train_seconds:.1f} s"),
        ("accuracy", f"on test nodes, of {info['classes']} classes (chance: {1 / info['classes']:.3f})",
         f"{summary['test_accuracy']:.3f}"),
        ("read", f"{gib(summary['bytes_read'])} in {summary['read_requests'] / 1e3:.0f} thousand requests, for rows of "
         f"{gib(summary['bytes_useful'])}", f"{summary['bytes_read'] / 1e9 / (summary['seconds_per_epoch'] * len(epochs)):.2f} GB/s"),
        ("amplification", "bytes read per useful byte (reading through a short gap is cheaper than a request)",
         f"{summary['read_amplification']:.2f}"),
        ("hit ratio", f"of a cache of {gib(summary['cache_budget_bytes'])}", f"{summary['cache_hit_ratio']:.3f}"),
        ("peak memory", f"of {gib(budget)} budget + {gib(overhead)} for LibTorch and code", gib(summary["peak_rss_bytes"])),
    ]
    width = max(len(what) for _, what, _ in rows)
    print("\n" + "-" * (width + 28))
    for name, what, figure in rows:
        print(f"{name:<14}{what:<{width}}  {figure:>12}")
    print("-" * (width + 28))
    if summary["peak_rss_bytes"] > budget + overhead:
        sys.exit("demo: peak memory exceeds budget + overhead")
    print(f"""
Next:
  {QUARRY} info {database}                    what is in it
  {QUARRY} train {database} --help            models, budgets, threads
  {QUARRY} import my.db my-folder/            your own data; docs/cli.md lists the formats
  rm -r {FOLDER}                               when you are done""")


if __name__ == "__main__":
    main()
