"""Benchmarks of the Python package. Parts:

  loader     quarry.pyg.Loader beside the stream under it: batches/s, time a batch, gather rate, growth of memory
  epochs     seconds an epoch of one GraphSAGE, over the same batches, from Quarry and from what else PyG and
             GraphBolt read, with memory for a tenth of the features
  accuracy   the real sets of ../shared/data, trained from the Loader and from memory by a sampler in NumPy

usage: bench.py [PART...] [--nodes N] [--epochs N] [--rival-batches N] [--planned-rounds N]
                [--sets SET,..] [--accuracy-epochs N]

The parts run in the interpreter QUARRY_PYTHON (torch, torch_geometric, nanobind) and, for GraphBolt,
QUARRY_PYTHON_DGL (torch 2.2, dgl 2.1, torch_geometric, pydantic, pandas, torchdata 0.7, numpy 1). With neither, both are
made in build/bench-python from PyPI. Exit code 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tests/python"))
from memory_cgroup import Cgroup  # noqa: E402
import run as module_build  # noqa: E402: tests/python/run.py, which builds the module

QUARRY = os.environ.get("QUARRY_BINARY", str(ROOT / "build/release/bin/quarry"))
FOLDER = ROOT / "build/bench-python"
DATA = Path(os.environ.get("QUARRY_BENCH_DATA", ROOT / "build/bench-data"))
DGL_PACKAGES = ["torch==2.2.1", "dgl==2.1.0", "torchdata==0.7.1", "numpy<2", "pandas", "pydantic", "pyyaml", "torch_geometric==2.6.1"]
DIM = 128
BATCHES_IN_FLIGHT = 4  # of the engine
BATCHES_AHEAD = 3  # of the Loader: two that are made, and one under way
ENGINE_BYTES = 96 << 20  # for its catalog and buffers, whatever the graph
SMALL_NODES = "200k"
EPOCH_BATCHES_MIN = 39  # of a small graph, too


def interpreters() -> tuple[Path, Path | None]:
    """That of the package, and that of GraphBolt where there is one."""
    named, named_dgl = os.environ.get("QUARRY_PYTHON"), os.environ.get("QUARRY_PYTHON_DGL")
    install = named is None and named_dgl is None
    modules = ["numpy", "nanobind", "nanobind_backend", "torch", "torch_geometric"]
    packages = module_build.NEEDED + module_build.WITH_TORCH
    python = module_build.interpreter(FOLDER / "pyg", packages, modules, install)
    if install and not (FOLDER / "dgl/bin/python").exists():
        try:
            module_build.environment(FOLDER / "dgl", DGL_PACKAGES)
        except SystemExit:  # it has said why
            shutil.rmtree(FOLDER / "dgl", ignore_errors=True)
    dgl = Path(named_dgl) if named_dgl else FOLDER / "dgl/bin/python"
    return python, dgl if dgl.exists() and module_build.has(dgl, ["dgl.graphbolt", "torch_geometric"]) else None


class Runner:
    """Runs a script of this folder in an environment, and gives the JSON object of its last line."""

    def __init__(self, python: Path, package: Path | None) -> None:
        self.python = python
        self.environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1", PYTHONWARNINGS="ignore", OMP_WAIT_POLICY="PASSIVE")
        self.environment["PYTHONPATH"] = os.pathsep.join([str(HERE), *([str(package)] if package else [])])

    def run(self, script: str, *arguments: object, limit_bytes: int | None = None) -> dict:
        cgroup = Cgroup(limit_bytes) if limit_bytes else None
        if cgroup is not None and cgroup.folder is None:
            print("  no memory cgroup can be made here (root is needed): the page cache serves what reads through it")
        try:
            command = [str(self.python), str(HERE / script), *map(str, arguments)]
            with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True, preexec_fn=cgroup.enter if cgroup else None) as process:
                last = ""
                for line in process.stdout:  # what takes minutes shows what it has found
                    if last:
                        print(last, end="", flush=True)
                    last = line
        finally:
            if cgroup is not None:
                cgroup.close()
        if process.returncode != 0:
            sys.exit(f"{last}{' '.join(command)}: exit {process.returncode}")
        return json.loads(last)


def quarry(*arguments: object) -> None:
    subprocess.run([QUARRY, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def load() -> str:
    return f"load average {os.getloadavg()[0]:.1f}"


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def make_graph(nodes: str) -> Path:
    """A folder with the features of a generated graph, its database, and the same with features of one column."""
    folder = DATA / f"python-{nodes}"
    if (folder / "topology.db").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    arrays = folder / "arrays"
    count = float(nodes.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(nodes[-1], 1)
    share = max(0.01, EPOCH_BATCHES_MIN * 1024 / count)
    quarry("generate", arrays, "--nodes", nodes, "--dim", DIM, "--classes", 50, "--seed", 1, "--train-share", f"{share:.4f}")
    quarry("import", folder / "graph.db", arrays, "--memory", "2GiB")
    (arrays / "features.npy").rename(folder / "features.npy")
    with open(arrays / "features.npy", "wb") as column:
        column.write(npy_header("<f4", (int(count), 1)))
        column.truncate(column.tell() + 4 * int(count))
    (arrays / "metadata.yaml").unlink()  # which counts the columns
    quarry("import", folder / "topology.db", arrays, "--memory", "2GiB")
    shutil.rmtree(arrays)
    return folder


def forget_cached(file: Path) -> None:
    """Takes a file out of the page cache, whose pages belong to the cgroup that read them first."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def loader(pyg: Runner, options: argparse.Namespace) -> bool:
    folder = make_graph(options.nodes)
    print(f"\n## Loader: {options.nodes} nodes x {DIM} float32, batches of 1,024, num_neighbors 10,10; {load()}")
    found = pyg.run("loader.py", folder / "graph.db", make_graph(SMALL_NODES) / "graph.db", options.planned_rounds)
    print(load())
    return bool(found["held"])


def epochs(pyg: Runner, dgl: Runner | None, options: argparse.Namespace) -> bool:
    folder = make_graph(options.nodes)
    features = folder / "features.npy"
    feature_bytes = features.stat().st_size
    print(f"\n## Epochs: {options.nodes} nodes x {DIM} float32 ({feature_bytes / 1e9:.2f} GB), batches of 1,024, num_neighbors 10,10, GraphSAGE of 2 layers; {load()}")
    made = pyg.run("epochs.py", "prepare", folder, options.epochs)
    print(f"device: {made['random_reads_per_second'] / 1e3:.1f} k row reads/s, {made['sequential_bytes_per_second'] / 1e9:.2f} GB/s in order; plan built in {made['plan_seconds']:.1f} s, {made['plan_bytes'] / 1e9:.2f} GB")
    tenth, batch = feature_bytes // 10, made["batch_bytes"]
    memory = ENGINE_BYTES + made["topology_bytes"] + tenth + BATCHES_IN_FLIGHT * batch
    share = tenth + (BATCHES_IN_FLIGHT + BATCHES_AHEAD) * batch
    print(f"memory: what the run in memory takes without its features, and {share / 2**20:,.0f} MiB: a tenth of the features, and {BATCHES_IN_FLIGHT + BATCHES_AHEAD} batches")

    print(f"{'':<36}{'s/epoch':>9}{'slowest to quickest':>22}{'batches timed':>15}{'GB read':>8}{'limit MiB':>10}{'peak MiB':>11}{'load':>7}", flush=True)

    def contender(runner: Runner, script: str, name: str, title: str, limit: int | None, batches: int = 0) -> dict:
        forget_cached(features)
        found = runner.run(script, name, folder, options.epochs, memory, batches, limit_bytes=limit)
        spread = f"{max(found['seconds']):.2f} to {min(found['seconds']):.2f}"
        read = f"{found['bytes_read'] / 1e9:.2f}" if found["bytes_read"] else ""
        limit_text = f"{limit / 2**20:,.0f}" if limit else "none"
        print(
            f"{title:<36}{found['seconds_per_epoch']:>9.2f}{spread:>22}{found['batches']:>7} of {found['batches_per_epoch']:<5}{read:>8}{limit_text:>10}"
            f"{found['peak_bytes'] / 2**20:>11,.0f}{os.getloadavg()[0]:>7.1f}",
            flush=True,
        )
        return found

    in_memory = contender(pyg, "epochs.py", "in-memory", "all in memory", None)
    limit = in_memory["peak_bytes"] - feature_bytes + share
    planned = contender(pyg, "epochs.py", "planned", "Quarry, planned", limit)
    live = contender(pyg, "epochs.py", "live", "Quarry, live", limit)
    rivals = [contender(pyg, "epochs.py", "mapped", "PyG over a mapped NumPy array", limit, options.rival_batches)]
    rivals.append(contender(pyg, "epochs.py", "mapped-threads", "the same, rows read by 16 threads", limit, options.rival_batches))
    if dgl is None:
        print("GraphBolt is left out: QUARRY_PYTHON_DGL names no interpreter with torch 2.2, dgl 2.1 and torch_geometric")
    else:
        in_memory_dgl = contender(dgl, "epochs_graphbolt.py", "in-memory", "GraphBolt, all in memory", None, options.rival_batches)
        limit_dgl = in_memory_dgl["peak_bytes"] - feature_bytes + share
        rivals.append(contender(dgl, "epochs_graphbolt.py", "on-disk", "GraphBolt, features on disk", limit_dgl, options.rival_batches))
    same = {found["first_epoch"] for found in (in_memory, planned, live)}
    best = min(rival["seconds_per_epoch"] for rival in rivals)
    ratio, gain = planned["seconds_per_epoch"] / in_memory["seconds_per_epoch"], best / planned["seconds_per_epoch"]
    held = ratio <= 1.05 and gain >= 5 and len(same) == 1
    print(f"planned / in memory {ratio:.3f} (goal <= 1.05); best rival from disk / planned {gain:.1f} (goal >= 5): {'PASS' if held else 'FAIL'}")
    print(f"batches of the first epoch {'are the same' if len(same) == 1 else 'DIFFER'} in memory, planned and live; {load()}")
    return held


def accuracy(pyg: Runner, options: argparse.Namespace) -> bool:
    shared = Path(os.environ.get("QUARRY_SHARED_DATA", ROOT.parent / "shared/data"))
    if not (shared / "unpack").exists():
        print(f"accuracy: left out, the data sets are not in {shared} (QUARRY_SHARED_DATA names it)")
        return True
    print(f"\n## Accuracy: {load()}")
    scratch = DATA / "python-accuracy"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        held = True
        for name in options.sets.split(","):
            subprocess.run([str(shared / "unpack"), name, str(scratch)], check=True, stdout=subprocess.DEVNULL)
            held &= bool(pyg.run("accuracy.py", name, scratch / name, options.accuracy_epochs)["held"])
        return held
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> int:
    sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="loader, epochs, accuracy")
    parser.add_argument("--nodes", default="4M", help="of the generated graph (default: 4M)")
    parser.add_argument("--epochs", type=int, default=4, help="of each contender; the first is not counted (default: 4)")
    parser.add_argument("--rival-batches", type=int, default=4, help="of an epoch that are timed where rows are read from a mapped file (default: 4)")
    parser.add_argument("--planned-rounds", type=int, default=0, help="of the loader part, which then measures the planned passes and nothing else")
    parser.add_argument("--sets", default="cora,amazon-computers,arxiv-2023", help="of the accuracy part")
    parser.add_argument("--accuracy-epochs", type=int, default=0, help="of each of its trainings, by hyperparameters that are not sought (default: the set's own, sought by 4 more trainings)")
    options = parser.parse_args()
    parts = options.parts or ["loader", "epochs", "accuracy"]
    if unknown := set(parts) - {"loader", "epochs", "accuracy"}:
        parser.error(f"no part {', '.join(sorted(unknown))}: loader, epochs, accuracy")
    python, dgl_python = interpreters()
    library = Path(os.environ.get("QUARRY_LIBRARY", ROOT / "build/release/client/libquarry.so.0")).resolve()
    pyg = Runner(python, module_build.build(python, library, FOLDER))
    dgl = Runner(dgl_python, None) if dgl_python else None
    held = True
    for part in parts:
        held &= {"loader": lambda: loader(pyg, options), "epochs": lambda: epochs(pyg, dgl, options), "accuracy": lambda: accuracy(pyg, options)}[part]()
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
