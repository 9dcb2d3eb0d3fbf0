"""What growing costs: commits of nodes and edges onto a graph, what epochs take meanwhile, and what compaction takes.

  by runs      seconds of an epoch (sampled batches with their rows, no model) with 1 to 8 runs over the graph's file, in turns
               with one of the untouched database (a checkpoint of it), since a disk's rates change within minutes
  alone        commits with nothing beside them: durable edges/s; beside reading and syncing as many bytes as one has read and
               written, at the disk's own rates. Lists that change are read, since edges have places in them
  beside       commits, one after the other, beside a reader that opens each epoch on the newest graph: durable edges/s and
               the seconds of an epoch; bytes written per added edge. Limits: commits/s that the disk syncs of as many bytes as one
               has written, and of the edges' ends and the rows alone, times edges
  compaction   seconds and bytes, of the graph and of tables; beside reading what there was and writing what there is, at the
               disk's own rates; then an epoch of the new files, in turns again
  prices       what `quarry layout explain` predicts of runs and of mending a layout, beside what these take: so the constants of
               engine/storage/runs_price.cc and engine/layout/mend_price.cc are held against this machine
  parts        seconds and bytes of renewing a partitioning that edges came to, by the lists that changed and by sorting all edges,
               beside building it

usage: growth.py [--nodes N] [--commits N] [--edges N] [--new-nodes N] [--only-prices] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
import run as module_build  # noqa: E402: tests/python/run.py, which builds the module

QUARRY = os.environ.get("QUARRY_BINARY", str(ROOT / "build/release/bin/quarry"))
FOLDER = Path(os.environ.get("QUARRY_BENCH_DATA", ROOT / "build/bench-data"))
DIM, BATCH, FANOUTS = 128, 1024, [10, 5]
EDGE_BYTES = 8  # its ends


def moved(which: str) -> int:
    """Bytes that this process has had read from disks ("read") or written to them ("write")."""
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{which}_bytes"))


def written() -> int:
    return moved("write")


def disk_commits(folder: Path, bytes_each: int, count: int = 40) -> float:
    """Appends of so many bytes that the disk syncs in a second."""
    data = os.urandom(max(bytes_each, 1))
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        start = time.perf_counter()
        for _ in range(count):
            file.write(data)
            os.fsync(file.fileno())
        return count / (time.perf_counter() - start)


def disk_rate(folder: Path, total: int) -> float:
    """Bytes a second of a file of so many, written and synced."""
    data = os.urandom(4 << 20)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        start = time.perf_counter()
        for _ in range(max(1, total // len(data))):
            file.write(data)
        os.fsync(file.fileno())
        return max(1, total // len(data)) * len(data) / (time.perf_counter() - start)


def read_rate(files: list[Path]) -> float:
    """Bytes a second of these files, read front to back past the page cache."""
    total, start = 0, time.perf_counter()
    for path in files:
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while piece := file.read(4 << 20):
                total += len(piece)
    return max(total, 1) / (time.perf_counter() - start)


def data_files(path: Path) -> list[Path]:
    return [file for folder in ("features", "topology") for file in (path / folder).iterdir() if file.suffix in (".qft", ".qtp", ".qtr")]


class Epochs:
    """Epochs of the nodes that the untouched graph trains on: added ones would make them longer by their number."""

    def __init__(self, still) -> None:
        self.still, self.seeds = still, still.split("train")

    def of(self, db) -> float:
        """Seconds of one, of a stream that is opened on the newest graph."""
        with db.stream(FANOUTS, batch_size=BATCH) as stream:
            start = time.perf_counter()
            for batch in stream.epoch(self.seeds):
                batch.x() if callable(batch.x) else batch.x
            return time.perf_counter() - start

    def median(self, db, count: int = 3) -> float:
        return statistics.median(self.of(db) for _ in range(count))

    def in_turns(self, db, count: int = 3) -> dict:
        """Seconds of an epoch of it and of the untouched one, and how many times as long it takes."""
        seconds, untouched = zip(*((self.of(db), self.of(self.still)) for _ in range(count)))
        ratio = statistics.median(a / b for a, b in zip(seconds, untouched))
        return {"seconds": statistics.median(seconds), "untouched_seconds": statistics.median(untouched), "times": ratio}


class Writer:
    """Commits of new nodes and of edges among all nodes."""

    def __init__(self, db, numpy, nodes: int, edges: int) -> None:
        self.db, self.np, self.nodes, self.edges = db, numpy, nodes, edges
        self.rng = numpy.random.default_rng(5)
        self.added = 0

    def commit(self) -> None:
        total = self.db.num_nodes + self.nodes
        pairs = self.rng.integers(0, total, (2, self.edges))
        rows = self.rng.standard_normal((self.nodes, DIM), dtype=self.np.float32)
        self.db.add_nodes(rows, label=self.rng.integers(0, 50, self.nodes), split="train", edges=pairs)
        self.added += self.edges


def beside(db, writer: Writer, epochs: Epochs, commits: int) -> tuple[float, list[float]]:
    """Seconds of so many commits, and of the epochs that ran meanwhile."""
    done = threading.Event()
    failures: list[BaseException] = []
    took: list[float] = []

    def write() -> None:
        try:
            start = time.perf_counter()
            for _ in range(commits):
                writer.commit()
            took.append(time.perf_counter() - start)
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seconds = []
    while not done.is_set():
        seconds.append(epochs.of(db))
    thread.join()
    if failures:
        raise failures[0]
    return took[0], seconds


def alone(db, writer: Writer, folder: Path, files: list[Path], commits: int = 5) -> dict:
    """Commits with nothing beside them, and what the disk takes to read and sync as many bytes."""
    read, before, seconds = moved("read"), written(), []
    for _ in range(commits):
        start = time.perf_counter()
        writer.commit()
        seconds.append(time.perf_counter() - start)
    read_bytes, written_bytes = (moved("read") - read) / commits, (written() - before) / commits
    limit = read_bytes / read_rate(files) + 1 / disk_commits(folder, int(written_bytes))
    commit = statistics.median(seconds)
    return {
        "commit_seconds": commit,
        "edges_per_second": writer.edges / commit,
        "read_bytes": read_bytes,
        "written_bytes": written_bytes,
        "limit_seconds": limit,
    }


def measure(path: Path, folder: Path, arguments: argparse.Namespace) -> dict:
    import numpy
    import quarry

    command("checkpoint", path, folder / "untouched.db")
    with quarry.open(path, memory="2GiB") as db, quarry.open(folder / "untouched.db", memory="2GiB") as still:
        epochs = Epochs(still)
        told = {"nodes": db.num_nodes, "edges": db.num_edges, "epoch_alone_seconds": epochs.median(still), "epoch_by_runs": {}}
        writer = Writer(db, numpy, arguments.new_nodes, arguments.edges)
        while True:
            writer.commit()
            runs = int(db.sql("SELECT count(*) FROM runs").fetchone()[0])
            if runs in told["epoch_by_runs"]:
                break  # they were merged
            told["epoch_by_runs"][runs] = epochs.in_turns(db)
        told["alone"] = alone(db, writer, folder, data_files(path))
        before, edges_before = written(), writer.added
        seconds, beside_seconds = beside(db, writer, epochs, arguments.commits)
        added = writer.added - edges_before
        bytes_written = written() - before
        told |= {
            "commits": arguments.commits,
            "commits_per_second": arguments.commits / seconds,
            "durable_edges_per_second": added / seconds,
            "disk_commits_per_second": disk_commits(folder, bytes_written // arguments.commits),
            # Limits: what the disk syncs of as many bytes as were written, and of nothing but what was given.
            "written_edges_limit_per_second": arguments.edges * disk_commits(folder, bytes_written // arguments.commits),
            "given_edges_limit_per_second": arguments.edges * disk_commits(folder, arguments.edges * EDGE_BYTES + arguments.new_nodes * DIM * 4),
            "bytes_per_added_edge": bytes_written / added,
            "epoch_beside_seconds": statistics.median(beside_seconds) if beside_seconds else None,
            "epochs_beside": len(beside_seconds),
            "epoch_still_seconds": epochs.median(still),
        }
        files = data_files(path)
        told["compaction_reads_bytes"] = sum(file.stat().st_size for file in files)
        told["compaction_read_seconds"] = told["compaction_reads_bytes"] / read_rate(files)
        before = written()
        start = time.perf_counter()
        reports = db.compact()
        told["compaction_seconds"] = time.perf_counter() - start
        told["graph_compaction"] = {name: float(reports["graph"][name]) for name in ("seconds", "bytes")} if "graph" in reports else None
        told["compaction_bytes"] = sum(int(report["bytes"]) for report in reports.values())
        told["compaction_bytes_written"] = written() - before
        rate = disk_rate(folder, told["compaction_bytes"])
        told["compaction_disk_seconds"] = told["compaction_bytes"] / rate
        told["compaction_limit_seconds"] = told["compaction_disk_seconds"] + told["compaction_read_seconds"]
        told["epoch_compacted"] = epochs.in_turns(db)
        return told


def command(*words: object) -> dict:
    """The last object that the command prints."""
    done = subprocess.run([QUARRY, *map(str, words), "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def prices(path: Path, folder: Path, edges: int) -> dict:
    """Predicted beside measured, after each of a few commits of edges: of runs an epoch that opens the graph, of a layout
    mending and building it."""
    import numpy
    import quarry

    rng = numpy.random.default_rng(11)
    command("compact", path)
    shutil.rmtree(folder / "untouched.db", ignore_errors=True)
    command("checkpoint", path, folder / "untouched.db")
    command("layout", "build", path, "prices", "--fanout", ",".join(map(str, FANOUTS)), "--batch-size", BATCH, "--cache", "10%")
    rows = []
    with quarry.open(folder / "untouched.db", memory="2GiB") as still:
        epochs, nodes = Epochs(still), still.num_nodes
        for count in (1, 20, edges, edges):
            numpy.save(folder / "new_edges.npy", rng.integers(0, nodes, (2, count)))
            command("add", path, "--edges", folder / "new_edges.npy")
            with quarry.open(path, memory="2GiB") as db:
                slowdown = epochs.in_turns(db)["times"]
            graph = command("layout", "explain", path, "prices")["graph"]
            rebuilt = command("layout", "rebuild", path, "prices")["rebuild"]
            built = command("layout", "rebuild", path, "prices", "--full")["rebuild"]
            rows.append(
                {
                    "edges": count,
                    "runs": graph["runs"],
                    "slowdown_predicted": graph["loaded_slowdown"],
                    "slowdown_measured": slowdown,
                    "batches_changed": rebuilt["batches_changed"],
                    "path": rebuilt["path"],
                    "mend_seconds_predicted": graph["mend_seconds"],
                    "mend_seconds_measured": rebuilt["seconds"] - rebuilt["find_seconds"] if rebuilt["path"] == "mend" else None,
                    "build_seconds_predicted": graph["anew_seconds"],
                    "build_seconds_measured": built["seconds"],
                }
            )
    command("drop", path, "layout", "prices", "--yes")
    return {"prices": rows}


def parts(path: Path, folder: Path, edges: int) -> dict:
    """A partitioning is renewed after commits of edges, and after one that a compaction has folded."""
    import numpy

    rng = numpy.random.default_rng(12)
    rows = []
    built = command("partition", "build", path, "grown", "--method", "random", "--parts", 16)
    for count, folded in ((1, False), (edges, False), (10 * edges, False), (edges, True)):
        numpy.save(folder / "new_edges.npy", rng.integers(0, built["nodes"], (2, count)))
        command("add", path, "--edges", folder / "new_edges.npy")
        if folded:
            command("compact", path)  # tables have no changed rows: the graph alone
        renewed = command("partition", "build", path, "grown", "--method", "kept")
        rows.append({"edges": count, "folded": folded, "seconds": renewed["build_seconds"], "bytes": renewed["buckets_bytes"]})
    whole = command("partition", "build", path, "grown", "--method", "random", "--parts", 16)
    subprocess.run([QUARRY, "partition", "drop", path, "grown"], check=True)
    return {"parts": rows, "parts_build_seconds": whole["build_seconds"], "parts_build_bytes": whole["disk_bytes"]}


def show_parts(told: dict) -> None:
    print(f"a partitioning of 16 parts, built in {told['parts_build_seconds']:.2f} s, {told['parts_build_bytes'] / 1e6:.1f} MB; renewed:")
    for row in told["parts"]:
        print(f"  {row['edges']} edges{', folded' if row['folded'] else ''}: {row['seconds']:.2f} s, {row['bytes'] / 1e6:.1f} MB written")


def show_prices(told: dict) -> None:
    print("predicted, and measured:")
    for row in told["prices"]:
        mended = row["mend_seconds_measured"]
        print(
            f"  {row['edges']} edges, {row['runs']} runs: an epoch {row['slowdown_predicted']:.2f} times, {row['slowdown_measured']:.2f}; "
            f"{row['batches_changed']} batches touched, {row['path']}: mending {row['mend_seconds_predicted']:.2f} s, "
            + ("not done" if mended is None else f"{mended:.2f}")
            + f"; building {row['build_seconds_predicted']:.2f} s, {row['build_seconds_measured']:.2f}"
        )


def show(told: dict) -> None:
    print(f"epoch of the untouched graph ({told['nodes']} nodes, {told['edges']} edges): {told['epoch_alone_seconds']:.3f} s")
    for runs, turns in told["epoch_by_runs"].items():
        print(f"  {runs} runs over it: {turns['seconds']:.3f} s, {turns['times']:.2f} times the {turns['untouched_seconds']:.3f} s without")
    one = told["alone"]
    print(f"nothing beside it, a commit takes {one['commit_seconds']:.3f} s: {one['edges_per_second']:.0f} durable edges/s")
    print(f"  limit, reading {one['read_bytes'] / 1e6:.1f} MB and a sync of {one['written_bytes'] / 1e6:.1f}: {one['limit_seconds']:.3f} s; that is {one['limit_seconds'] / one['commit_seconds']:.2f} of the time")
    print(f"beside a reader: {told['durable_edges_per_second']:.0f} durable edges/s; {told['commits_per_second']:.1f} commits/s, the disk syncs {told['disk_commits_per_second']:.1f} of as many bytes")
    for limit, what in (("written", "as many bytes"), ("given", "the ends of the edges and the new rows alone")):
        rate = told[f"{limit}_edges_limit_per_second"]
        print(f"  limit, a sync of {what} a commit: {rate:.0f} edges/s; that is {told['durable_edges_per_second'] / rate:.3f} of it")
    if told["epoch_beside_seconds"] is not None:
        still = told["epoch_still_seconds"]
        print(f"  an epoch beside them: {told['epoch_beside_seconds']:.3f} s, {told['epoch_beside_seconds'] / still:.2f} times the {still:.3f} s of the untouched graph behind them, of {told['epochs_beside']}")
    print(f"  {told['bytes_per_added_edge']:.0f} bytes written per added edge, rows of new nodes and merges of runs included")
    print(f"compaction: {told['compaction_bytes'] / 1e6:.1f} MB of files in {told['compaction_seconds']:.2f} s, {told['compaction_bytes_written'] / 1e6:.1f} MB written")
    print(f"  limit, reading {told['compaction_reads_bytes'] / 1e6:.1f} MB and writing these: {told['compaction_limit_seconds']:.2f} s; that is {told['compaction_limit_seconds'] / max(told['compaction_seconds'], 1e-9):.2f} of the time")
    if told["graph_compaction"]:
        print(f"  of these the graph: {told['graph_compaction']['bytes'] / 1e6:.1f} MB in {told['graph_compaction']['seconds']:.2f} s")
    after = told["epoch_compacted"]
    print(f"  an epoch afterwards: {after['seconds']:.3f} s, {after['times']:.2f} times the {after['untouched_seconds']:.3f} s of the untouched graph")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="200k", help="of the base graph, of 128 float32 and 15 edges each")
    parser.add_argument("--commits", type=int, default=24, help="beside a reader")
    parser.add_argument("--edges", type=int, default=5000, help="of a commit")
    parser.add_argument("--new-nodes", type=int, default=100, help="of a commit")
    parser.add_argument("--only-prices", action="store_true", help="what is predicted beside what is measured, and nothing else")
    parser.add_argument("--keep", type=Path, help="a folder that stays, with the database")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        path = arguments.inside / "graph.db"
        told = {} if arguments.only_prices else measure(path, arguments.inside, arguments)
        if told:
            show(told)
        told |= prices(path, arguments.inside, arguments.edges)
        show_prices(told)
        told |= parts(path, arguments.inside, arguments.edges)
        show_parts(told)
        print(json.dumps(told))
        return 0
    python = module_build.interpreter(ROOT / "build/release/python/core", module_build.NEEDED, ["numpy", "nanobind", "nanobind_backend"], install=True)
    package = module_build.build(python, ROOT / "build/release/client/libquarry.so.0", ROOT / "build/release/python")
    folder = arguments.keep or FOLDER / "growth"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        subprocess.run([QUARRY, "generate", folder / "graph", "--nodes", arguments.nodes, "--dim", str(DIM), "--degree", "15", "--classes", "50", "--seed", "1"], check=True)
        subprocess.run([QUARRY, "import", folder / "graph.db", folder / "graph"], check=True)
        shutil.rmtree(folder / "graph")
        inside = [python, __file__, *sys.argv[1:], "--inside", folder]
        return subprocess.run([str(word) for word in inside], env=dict(os.environ, PYTHONPATH=str(package))).returncode
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
