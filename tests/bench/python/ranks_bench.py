"""Layouts for 1, 2, 4, 8 trainers: bytes that each reads, bytes between them, losses beside those of one trainer.

A generated graph gets a layout for one trainer and layouts for R, by `quarry layout build --ranks R`. One epoch is trained
from them by PyG's GraphSAGE (ranks.py, in the interpreter QUARRY_PYTHON or one that is made in build/bench-python):

  one     one trainer with R times the batch: R batches of the layout for one as one graph, one backward
  hand    the R layouts one after the other in one process, gradients averaged by hand
  gloo    R processes under torchrun, gradients averaged by gloo over the loopback of a network namespace of their own,
          where there may be one: then its counter has every byte that passes between them

usage: ranks_bench.py [--nodes N] [--dim N] [--ranks R,..] [--real R] [--by random|partition]. Exit code 1: losses differ by
more than 1e-4, or bytes passed between hosts while batches were read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench import DATA, FOLDER, HERE, ROOT, interpreters, load, module_build, quarry

BATCH = 256
FANOUTS = "10,5"


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split(". Exit")[0])
    parser.add_argument("--nodes", default="200k")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--real", type=int, default=2, help="how many run as processes")
    parser.add_argument("--by", choices=("random", "partition"), default="random")
    arguments = parser.parse_args()
    python, _ = interpreters()
    package = module_build.build(python, ROOT / "build/release/client/libquarry.so.0", FOLDER)
    folder = DATA / f"ranks-{arguments.nodes}-{arguments.dim}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    quarry("generate", folder / "arrays", "--nodes", arguments.nodes, "--dim", arguments.dim, "--classes", 10, "--seed", 1, "--train-share", "0.1")
    quarry("import", folder / "graph.db", folder / "arrays", "--memory", "1GiB")
    shutil.rmtree(folder / "arrays")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE), str(package)]), PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")
    plan = ("--fanout", FANOUTS, "--batch-size", BATCH, "--cache", "10%", "--memory", "1GiB")
    if arguments.by == "partition":
        quarry("partition", "build", folder / "graph.db", "--parts", 16, "--memory", "1GiB")
    quarry("layout", "build", folder / "graph.db", "one", *plan)
    print(f"{arguments.nodes} nodes x {arguments.dim}, batches of {BATCH}, fanouts {FANOUTS}, cache 10 % a rank, by {arguments.by}; {load()}")
    print("| ranks | batches a rank | read by a rank (mean, most) | read by all | features between hosts | gradients between hosts | s a rank | largest difference of losses |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    failed = False
    for ranks in map(int, arguments.ranks.split(",")):
        by = ("--by", "partition") if arguments.by == "partition" else ()
        quarry("layout", "build", folder / "graph.db", "own", "--ranks", ranks, *by, *plan)
        asked = [str(python), str(HERE / "ranks.py"), str(folder), str(ranks), FANOUTS, str(BATCH)]
        if ranks == arguments.real:
            asked.append("--real")
        done = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return 1
        told = json.loads(done.stdout.splitlines()[-1])
        read, mib = told["bytes_read"], 1 << 20
        real = told.get("real")
        between = f"{real['reading_bytes']} B" if real and real["counted"] else "-"
        sums = f"{real['training_bytes'] / mib:.1f} MiB" if real and real["counted"] else f"{told['gradient_bytes'] / mib:.1f} MiB computed"
        difference = max(told["difference"], real["difference"] if real else 0.0)
        failed |= (difference > 1e-4 and arguments.by == "random") or bool(real and real["counted"] and real["reading_bytes"])
        difference_text = f"{difference:.1e}" if arguments.by == "random" else "other batches"
        print(f"| {ranks}{' (processes)' if real else ''} | {told['steps']} | {sum(read) / ranks / mib:.1f}, {max(read) / mib:.1f} MiB | {sum(read) / mib:.1f} MiB | {between} | {sums} | {told['seconds']:.2f} | {difference_text} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
