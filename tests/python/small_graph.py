"""A small database of known content, for the tests of the Python package."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np

import quarry

NODES, DIM, CLASSES = 500, 16, 4
BINARY = os.environ.get("QUARRY_BINARY", "")  # the command


def arrays(seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, NODES, (2, 4000))
    edges = np.ascontiguousarray(np.unique(edges[:, edges[0] != edges[1]], axis=1))
    order = rng.permutation(NODES)
    labels = rng.integers(0, CLASSES, NODES)
    labels[::50] = -1
    return {
        "edges": edges,
        "features": rng.standard_normal((NODES, DIM), dtype=np.float32),
        "labels": labels,
        "train": np.sort(order[:300]),
        "valid": np.sort(order[300:400]),
        "test": np.sort(order[400:]),
    }


def heed_interrupts(test: unittest.TestCase) -> None:
    """Ctrl-C raises KeyboardInterrupt, also where this process was started in the background, which ignores it."""
    test.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class DatabaseTest(unittest.TestCase):
    """With self.graph in self.path, opened as self.db."""

    feature_dtype: str | None = None

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="quarry-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = self.folder / "graph.db"
        self.graph = arrays()
        quarry.import_(self.path, **self.graph, feature_dtype=self.feature_dtype, progress=False)
        self.db = quarry.open(self.path, memory="256MiB")
        self.addCleanup(lambda: self.db.close())


def serve(test: unittest.TestCase, memory: str = "256MiB", session: str = "64MiB") -> tuple[subprocess.Popen, str]:
    """Serves the database that is open as test.db, which becomes that of the server; the server, until the test ends, and its
    address."""
    test.db.close()
    socket = test.folder / "run/q.sock"
    server = subprocess.Popen([BINARY, "serve", test.path, "--socket", socket, "--memory", memory], stderr=subprocess.DEVNULL)

    def stop() -> None:
        server.send_signal(signal.SIGCONT)
        server.terminate()
        server.wait()

    test.addCleanup(stop)
    while not socket.exists():
        test.assertIsNone(server.poll(), "the server ended")
        time.sleep(0.02)
    test.db = quarry.open(f"unix:{socket}", memory=session, timeout=60)
    return server, f"unix:{socket}"


@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class ServedDatabaseTest(DatabaseTest):
    """The same, opened as self.db over self.server, at self.address."""

    def setUp(self) -> None:
        super().setUp()
        self.prepare()
        self.server, self.address = serve(self)

    def prepare(self) -> None:
        """What is done with self.db before it is served."""
