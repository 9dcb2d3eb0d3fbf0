"""What growing costs: commits of nodes and edges onto a graph, what epochs take meanwhile, and what compaction takes.

  by runs      seconds of an epoch (sampled batches with their rows, no model) with 1 to 8 runs over the graph's file, in turns
               with one of the untouched database (a checkpoint of it), since a disk's rates change within minutes
  alone        commits with nothing beside them: durable edges/s; beside reading and syncing as many bytes as one has read and
               written, at the disk's own rates. Lists that change are read, since edges have places in them
  beside       commits at a server, one after the other, beside a trainer that opens each epoch on the newest graph
               (`quarry train --newest`): durable edges/s, seconds of an epoch beside those over the untouched graph, bytes
               written per added edge. Limits: commits/s that the disk syncs of as many bytes as one has written, and of the
               edges' ends and the rows alone, times edges
  compaction   seconds and bytes, of the graph and of tables; beside reading what there was and writing what there is, at the
               disk's own rates; then an epoch of the new files, in turns again
  prices       what `quarry layout explain` predicts of runs and of mending a layout, beside what these take: so the constants of
               engine/storage/runs_price.cc and engine/layout/mend_price.cc are held against this machine
  parts        seconds and bytes of renewing a partitioning that edges came to, by the lists that changed and by sorting all edges,
               beside building it

usage: growth.py [--nodes N] [--commits N] [--edges N] [--new-nodes N] [--turns N] [--only-prices] [--keep FOLDER]
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
SLOWDOWN_MAX = 1.3  # of sampling, because of runs


def moved(which: str, process: object = "self") -> int:
    """Bytes that a process has had read from disks ("read") or written to them ("write")."""
    with open(f"/proc/{process}/io") as file:
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


def epoch(db) -> float:
    """Seconds of an epoch, of a stream that is opened on the newest graph. Added nodes have no split: it stays as long."""
    with db.stream(FANOUTS, batch_size=BATCH) as stream:
        start = time.perf_counter()
        for batch in stream.epoch("train"):
            batch.x() if callable(batch.x) else batch.x
        return time.perf_counter() - start


def median_epoch(db, count: int = 3) -> float:
    return statistics.median(epoch(db) for _ in range(count))


def in_turns(db, still, count: int = 3) -> dict:
    """Seconds of an epoch of it and of the untouched one, and how many times as long it takes."""
    seconds, untouched = zip(*((epoch(db), epoch(still)) for _ in range(count)))
    ratio = statistics.median(a / b for a, b in zip(seconds, untouched))
    return {"seconds": statistics.median(seconds), "untouched_seconds": statistics.median(untouched), "times": ratio}


class Writer:
    """Commits of new nodes and of edges among all nodes."""

    def __init__(self, db, numpy, nodes: int, edges: int) -> None:
        self.db, self.np, self.nodes, self.edges = db, numpy, nodes, edges
        self.rng = numpy.random.default_rng(5)

    def commit(self) -> None:
        total = self.db.num_nodes + self.nodes
        pairs = self.rng.integers(0, total, (2, self.edges))
        rows = self.rng.standard_normal((self.nodes, DIM), dtype=self.np.float32)
        self.db.add_nodes(rows, label=self.rng.integers(0, 50, self.nodes), edges=pairs)


class Training:
    """A server, and `quarry train` at it, whose epochs are of the newest graph, until the end of the block."""

    def __init__(self, path: Path) -> None:
        self.path, self.seconds = path, []
        self.folder = tempfile.TemporaryDirectory(prefix="quarry-growth-")
        self.address = f"unix:{self.folder.name}/q.sock"

    def __enter__(self) -> Training:
        socket = Path(self.address.removeprefix("unix:"))
        self.server = subprocess.Popen([QUARRY, "serve", self.path, "--socket", socket, "--memory", "5GiB"], stdout=subprocess.DEVNULL)
        while not socket.exists():
            if self.server.poll() is not None:
                raise RuntimeError(f"the server ended with {self.server.returncode}")
            time.sleep(0.05)
        words = ["train", self.address, "--newest", "--epochs", 100_000, "--fanout", ",".join(map(str, FANOUTS)), "--batch-size", BATCH, "--hidden", 32]
        self.trainer = subprocess.Popen([QUARRY, *map(str, words), "--memory", "1536MiB", "--json"], stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.wait(1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.trainer, self.server):
            process.terminate()
            process.wait()
        self.reader.join()
        self.folder.cleanup()

    def _read(self) -> None:
        for line in self.trainer.stdout:
            told = json.loads(line)
            if "epoch" in told:
                self.seconds.append(told["seconds"])

    def wait(self, epochs: int) -> None:
        """Until so many more epochs have ended."""
        wanted = len(self.seconds) + epochs
        while len(self.seconds) < wanted:
            if self.trainer.poll() is not None:
                raise RuntimeError(f"the training ended with {self.trainer.returncode}")
            time.sleep(0.05)

    def written(self) -> int:
        return moved("write", self.server.pid)


def beside(path: Path, writer: Writer, commits: int) -> dict:
    """So many commits at a server that a trainer uses, and the epochs that ended meanwhile."""
    import quarry

    with Training(path) as training, quarry.open(training.address, memory="1GiB") as db:
        writer.db = db
        first, before, start = len(training.seconds), training.written(), time.perf_counter()
        for _ in range(commits):
            writer.commit()
        seconds, bytes_written = time.perf_counter() - start, training.written() - before
        if len(training.seconds) == first:
            training.wait(1)
        runs = int(db.sql("SELECT count(*) FROM runs").fetchone()[0])
        return {"seconds": seconds, "bytes": bytes_written, "epochs": training.seconds[first:], "runs": runs}


def training_epochs(path: Path, count: int = 3) -> float:
    """The same trainer's, of a graph that stays."""
    with Training(path) as training:
        first = len(training.seconds)
        training.wait(count)
        return statistics.median(training.seconds[first:])


def alone(db, writer: Writer, path: Path, folder: Path, commits: int = 5) -> dict:
    """Commits with nothing beside them, and what the disk takes to read and sync as many bytes."""
    read, before, seconds = moved("read"), written(), []
    for _ in range(commits):
        start = time.perf_counter()
        writer.commit()
        seconds.append(time.perf_counter() - start)
    read_bytes, written_bytes = (moved("read") - read) / commits, (written() - before) / commits
    limit = read_bytes / read_rate(data_files(path)) + 1 / disk_commits(folder, int(written_bytes))
    commit = statistics.median(seconds)
    return {
        "commit_seconds": commit,
        "edges_per_second": writer.edges / commit,
        "read_bytes": read_bytes,
        "written_bytes": written_bytes,
        "limit_seconds": limit,
    }


def compaction(db, path: Path, folder: Path) -> dict:
    files = data_files(path)
    reads = sum(file.stat().st_size for file in files)
    read_seconds = reads / read_rate(files)
    before, start = written(), time.perf_counter()
    reports = db.compact()
    seconds = time.perf_counter() - start
    size = sum(int(report["bytes"]) for report in reports.values())
    return {
        "seconds": seconds,
        "bytes": size,
        "bytes_written": written() - before,
        "reads_bytes": reads,
        "limit_seconds": size / disk_rate(folder, size) + read_seconds,
        "graph": {name: float(reports["graph"][name]) for name in ("seconds", "bytes")} if "graph" in reports else None,
    }


def measure(path: Path, folder: Path, arguments: argparse.Namespace) -> dict:
    import numpy
    import quarry

    untouched = folder / "untouched.db"
    command("checkpoint", path, untouched)
    with quarry.open(path, memory="2GiB") as db, quarry.open(untouched, memory="2GiB") as still:
        told = {"nodes": db.num_nodes, "edges": db.num_edges, "epoch_seconds": median_epoch(still), "epoch_by_runs": {}}
        writer = Writer(db, numpy, arguments.new_nodes, arguments.edges)
        while True:
            writer.commit()
            runs = int(db.sql("SELECT count(*) FROM runs").fetchone()[0])
            if runs in told["epoch_by_runs"]:
                break  # they were merged
            told["epoch_by_runs"][runs] = in_turns(db, still, arguments.turns)
        told["alone"] = alone(db, writer, path, folder)
    stream = beside(path, writer, arguments.commits)
    edges = arguments.commits * arguments.edges
    each = stream["bytes"] // arguments.commits
    told["beside"] = {
        "commits": arguments.commits,
        "runs": stream["runs"],
        "commits_per_second": arguments.commits / stream["seconds"],
        "edges_per_second": edges / stream["seconds"],
        # Limits: what the disk syncs of as many bytes as were written, and of nothing but what was given.
        "written_limit_per_second": arguments.edges * disk_commits(folder, each),
        "given_limit_per_second": arguments.edges * disk_commits(folder, arguments.edges * EDGE_BYTES + arguments.new_nodes * DIM * 4),
        "bytes_per_added_edge": stream["bytes"] / edges,
        "epochs": len(stream["epochs"]),
        "epoch_seconds": statistics.median(stream["epochs"]),
        "untouched_epoch_seconds": training_epochs(untouched),
    }
    with quarry.open(path, memory="2GiB") as db, quarry.open(untouched, memory="2GiB") as still:
        told["compaction"] = compaction(db, path, folder)
        told["epoch_compacted"] = in_turns(db, still)
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
        nodes = still.num_nodes
        for count in (1, 20, edges, edges):
            numpy.save(folder / "new_edges.npy", rng.integers(0, nodes, (2, count)))
            command("add", path, "--edges", folder / "new_edges.npy")
            with quarry.open(path, memory="2GiB") as db:
                slowdown = in_turns(db, still)["times"]
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
    print(f"epoch of the untouched graph ({told['nodes']} nodes, {told['edges']} edges): {told['epoch_seconds']:.3f} s")
    for runs, turns in told["epoch_by_runs"].items():
        print(f"  {runs} runs over it: {turns['seconds']:.3f} s, {turns['times']:.2f} times the {turns['untouched_seconds']:.3f} s without")
    one = told["alone"]
    print(f"nothing beside it, a commit takes {one['commit_seconds']:.3f} s: {one['edges_per_second']:.0f} durable edges/s")
    print(f"  limit, reading {one['read_bytes'] / 1e6:.1f} MB and a sync of {one['written_bytes'] / 1e6:.1f}: {one['limit_seconds']:.3f} s; that is {one['limit_seconds'] / one['commit_seconds']:.2f} of the time")
    beside = told["beside"]
    print(f"at a server, beside a trainer: {beside['edges_per_second']:.0f} durable edges/s by {beside['commits']} commits, {beside['commits_per_second']:.2f} a second; {beside['runs']} runs at the end")
    for limit, what in (("written", "as many bytes"), ("given", "the ends of the edges and the new rows alone")):
        rate = beside[f"{limit}_limit_per_second"]
        print(f"  limit, a sync of {what} a commit: {rate:.0f} edges/s; that is {beside['edges_per_second'] / rate:.3f} of it")
    print(f"  an epoch beside them: {beside['epoch_seconds']:.3f} s, {beside['epoch_seconds'] / beside['untouched_epoch_seconds']:.2f} times the {beside['untouched_epoch_seconds']:.3f} s over the untouched graph, of {beside['epochs']}")
    print(f"  {beside['bytes_per_added_edge']:.0f} bytes written per added edge, rows of new nodes and merges of runs included")
    folded = told["compaction"]
    print(f"compaction: {folded['bytes'] / 1e6:.1f} MB of files in {folded['seconds']:.2f} s, {folded['bytes_written'] / 1e6:.1f} MB written")
    print(f"  limit, reading {folded['reads_bytes'] / 1e6:.1f} MB and writing these: {folded['limit_seconds']:.2f} s; that is {folded['limit_seconds'] / max(folded['seconds'], 1e-9):.2f} of the time")
    if folded["graph"]:
        print(f"  of these the graph: {folded['graph']['bytes'] / 1e6:.1f} MB in {folded['graph']['seconds']:.2f} s")
    after = told["epoch_compacted"]
    print(f"  an epoch afterwards: {after['seconds']:.3f} s, {after['times']:.2f} times the {after['untouched_seconds']:.3f} s of the untouched graph")
    worst = max(turns["times"] for turns in told["epoch_by_runs"].values())
    if worst > SLOWDOWN_MAX:
        print(f"an epoch takes {worst:.2f} times as long with runs: more than {SLOWDOWN_MAX}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="200k", help="of the base graph, of 128 float32 and 15 edges each")
    parser.add_argument("--commits", type=int, default=24, help="beside a trainer")
    parser.add_argument("--edges", type=int, default=5000, help="of a commit")
    parser.add_argument("--new-nodes", type=int, default=100, help="of a commit")
    parser.add_argument("--turns", type=int, default=3, help="epochs by number of runs, each of both graphs")
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
        return 1 if max([turns["times"] for turns in told.get("epoch_by_runs", {}).values()], default=0) > SLOWDOWN_MAX else 0
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
