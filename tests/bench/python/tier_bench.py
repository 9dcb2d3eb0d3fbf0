"""A batch tier (quarry.ray): epochs by the number of preparation workers, and what a feature cache spares.

`curve`: a generated graph is planned in shares, and an epoch is trained by one trainer of one thread (tier.py, in the
interpreter QUARRY_PYTHON or one that is made in build/bench-python) on mini-batches that 1, 2, 4 workers make, each of whom
has a share of a processor: a CPU quota of a cgroup, or, where none can be made, a core. More workers shorten the epoch until
the trainer's computing is all that is left (Armada, Figure 6.4). Beside it stands max(computing alone, core seconds of
preparation / (workers x quota)), which is what it should be where nothing else limits.
`cache`: the same with the most workers and feature caches of some sizes at the trainer's host, by Belady's plan and by LRU.

usage: tier_bench.py [curve] [cache] [--nodes N] [--dim N] [--hidden N] [--workers W,..] [--quota CPUS] [--epochs N]
       [--cache 5%,20%]. Without a part: both.
Exit code 1: an epoch with more workers took a tenth longer than one with fewer, or bytes did not fall by the share of hits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import DATA, FOLDER, HERE, QUARRY, ROOT, interpreters, load, module_build, quarry

BATCH = 256
FANOUTS = [10, 5]
SLOWER = 1.1  # than with fewer workers, at most
MIB = 1 << 20


class Tier:
    """Runs tier.py over one graph."""

    def __init__(self, python: Path, package: Path, arguments: argparse.Namespace) -> None:
        self.python = python
        self.workers = [int(count) for count in arguments.workers.split(",")]
        self.environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE), str(package)]), PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1", QUARRY_BINARY=QUARRY)
        self.options = {
            "fanouts": FANOUTS,
            "batch": BATCH,
            "most": max(self.workers),
            "shares": 2 * max(self.workers),
            "epochs": arguments.epochs,
            "quota": arguments.quota,
            "hidden": arguments.hidden,
            "memory": "256MiB",
            "store": 512 * MIB,
            "cache": 0,
            "policy": "belady",
        }
        self.folder = DATA / f"tier-{arguments.nodes}-{arguments.dim}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        quarry("generate", self.folder / "arrays", "--nodes", arguments.nodes, "--dim", arguments.dim, "--classes", 10, "--seed", 1, "--train-share", "0.1")
        quarry("import", self.folder / "graph.db", self.folder / "arrays", "--memory", "1GiB")
        shutil.rmtree(self.folder / "arrays")

    def run(self, workers: int, **options: Any) -> dict[str, Any]:
        command = [str(self.python), str(HERE / "tier.py"), str(self.folder), str(workers), json.dumps({**self.options, **options})]
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}")
        return dict(json.loads(done.stdout.splitlines()[-1]))


def curve(tier: Tier) -> bool:
    print("\n| workers | s an epoch (median; all) | of these waited | the model's s | limit | core s of preparation | rows sent | MiB sent |")
    print("| ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |")
    held, before, how = True, float("inf"), ""
    for workers in tier.workers:
        told = tier.run(workers)
        prepared = told["core_seconds"] / (workers * tier.options["quota"])
        limit = "computing" if told["alone"] >= prepared else "preparation"
        seconds = told["median"]
        held &= seconds <= before * SLOWER
        before, how = seconds, told["quota"]
        print(
            f"| {workers} | {seconds:.2f}; {', '.join(f'{one:.2f}' for one in told['seconds'])} | {sum(told['waited']) / len(told['waited']):.2f} | {max(told['alone'], prepared):.2f} | {limit} "
            f"| {told['core_seconds']:.2f} | {told['rows'] - told['cached']:.0f} | {told['bytes'] / MIB:.1f} |",
            flush=True,
        )
    print(f"each worker has {tier.options['quota']:g} of a processor: {how}; {load()}")
    return held


def cache(tier: Tier, sizes: list[str]) -> bool:
    workers = max(tier.workers)
    print(f"\n| feature cache, {workers} workers | s an epoch | rows of unions | found | bytes sent, MiB | of those without | messages | their KiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    held, whole, losses = True, 0.0, None
    for size, policy in [("", ""), *((size, policy) for size in sizes for policy in ("belady", "lru"))]:
        told = tier.run(workers, **({"cache": size, "policy": policy} if size else {}))
        whole = whole or told["bytes"]
        losses = losses or told["losses"]
        found = told["cached"] / told["rows"]
        held &= told["bytes"] == whole / told["rows"] * (told["rows"] - told["cached"]) and told["losses"] == losses
        print(
            f"| {f'{size}, {policy}' if size else 'none'} | {told['median']:.2f} | {told['rows']:.0f} | {found:.1%} | {told['bytes'] / MIB:.1f} | {told['bytes'] / whole:.1%} "
            f"| {told['messages']:.0f} | {told['message_bytes'] / 1024:.1f} |",
            flush=True,
        )
    print(f"losses are the same to the last bit, and bytes fall by the share of rows that are found: {'PASS' if held else 'FAIL'}; {load()}")
    return held


def main() -> int:
    parser = argparse.ArgumentParser(usage=(__doc__ or "").split("usage: ")[1].split(". Without a part")[0])
    parser.add_argument("what", nargs="*", metavar="PART", choices=["curve", "cache"])
    parser.add_argument("--nodes", default="200k")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--quota", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cache", default="5%,20%")
    arguments = parser.parse_args()
    wanted = arguments.what or ["curve", "cache"]
    python, _ = interpreters()
    package = module_build.build(python, ROOT / "build/release/client/libquarry.so.0", FOLDER)
    held = True
    tier = Tier(python, package, arguments)
    print(f"{arguments.nodes} nodes x {arguments.dim}, batches of {BATCH} in groups of 2, fanouts {','.join(map(str, FANOUTS))}, hidden {arguments.hidden}; {load()}")
    held &= curve(tier) if "curve" in wanted else True
    held &= cache(tier, arguments.cache.split(",")) if "cache" in wanted else True
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
