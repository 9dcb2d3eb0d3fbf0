"""Databases and their tables: reading, writing, snapshots, errors, upkeep."""

import copy
import html
import importlib.util
import io
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import quarry
from quarry import _database, _waiting
from small_graph import DIM, NODES, DatabaseTest, arrays


class TablesTest(DatabaseTest):
    def test_a_table_tells_its_shape_and_reads_rows_like_an_array(self):
        features, x = self.db["feature"], self.graph["features"]
        self.assertEqual((len(features), features.shape, features.dtype, features.stored), (NODES, (NODES, DIM), np.float32, "float32"))
        self.assertEqual(features.nbytes, x.nbytes)
        mask = np.arange(NODES) % 3 == 0
        for key in (7, -1, np.int64(3), [5, 3, 5], np.array([[1, 2], [2, 499]]), slice(10, 20), slice(None), slice(None, None, -1), mask, []):
            np.testing.assert_array_equal(features[key], x[np.asarray(key, int)] if isinstance(key, list) else x[key])
        np.testing.assert_array_equal(np.asarray(features), x)
        labels = self.db["label"]
        self.assertEqual(labels.shape, (NODES,))
        np.testing.assert_array_equal(labels[:], self.graph["labels"])
        self.assertEqual(labels[3], self.graph["labels"][3])

    def test_rows_go_where_the_caller_wants_them(self):
        out = np.zeros((3, DIM), np.float32)
        self.assertIs(self.db["feature"].read([4, 2, 4], out), out)
        np.testing.assert_array_equal(out, self.graph["features"][[4, 2, 4]])
        with self.assertRaisesRegex(quarry.UsageError, "bytes"):
            self.db["feature"].read([1, 2, 3, 4], out)
        with self.assertRaises(quarry.UsageError):
            self.db["feature"].read([1], np.zeros((1, DIM), np.int64))

    def test_ids_that_are_none_are_refused_by_what_they_are(self):
        for ids, expected in (([NODES], quarry.InvalidArgument), ([-NODES - 1], quarry.InvalidArgument), ([0.5], quarry.UsageError), (np.ones(3, bool), quarry.UsageError)):
            with self.assertRaises(expected):
                self.db["feature"][ids]
        with self.assertRaisesRegex(KeyError, "no table 'features'; tables are ") as caught:
            self.db["features"]
        self.assertIsInstance(caught.exception, quarry.NotFound)
        self.assertTrue(str(caught.exception).startswith(str(self.path)), "in no quotes, unlike KeyError")

    def test_what_there_is(self):
        self.assertEqual((self.db.num_nodes, self.db.num_edges), (NODES, self.graph["edges"].shape[1]))
        self.assertEqual(sorted(self.db.tables), ["feature", "label", "split"])
        self.assertIn("feature", self.db)
        for split in ("train", "valid", "test"):
            np.testing.assert_array_equal(self.db.split(split), self.graph[split])
        edges = self.db.edges()
        self.assertEqual(sorted(map(tuple, edges.T)), sorted(map(tuple, self.graph["edges"].T)))
        np.testing.assert_array_equal(self.db.edges(10, 5), edges[:, 10:15])
        info = self.db.info()
        self.assertEqual(info["tables"]["feature"], {"rows": NODES, "dim": DIM, "row_bytes": 4 * DIM, "element_type": "float32"})
        self.assertGreater(info["disk_bytes"]["table"], self.graph["features"].nbytes)
        self.assertIn("500 nodes", repr(self.db))
        self.assertIn("feature 500 x 16 float32 (31.2 KiB)", repr(self.db))
        self.assertIn("500 x 16 float32", repr(self.db["feature"]))

    def test_edges_are_found_by_their_ends(self):
        rng = np.random.default_rng(4)
        edges = self.db.edges()
        ids = self.db.edge_ids(self.graph["edges"])
        np.testing.assert_array_equal(edges[:, ids], self.graph["edges"])
        np.testing.assert_array_equal(np.sort(ids), np.arange(self.db.num_edges))
        some = rng.integers(0, self.db.num_edges, 50)
        self.assertEqual(list(self.db.edge_ids(edges[:, some])), list(some), "one that is given twice is there once")
        self.assertEqual(self.db.edge_ids(np.empty((2, 0), np.int64)).shape, (0,))
        with self.assertRaisesRegex(quarry.NotFound, "no edge from 7 to 7, column 1"):
            self.db.edge_ids(np.stack([edges[:, 3], [7, 7]], axis=1))
        with self.assertRaisesRegex(quarry.InvalidArgument, "there are 500"):
            self.db.edge_ids([[0], [NODES]])
        with self.assertRaisesRegex(quarry.UsageError, "shape"):
            self.db.edge_ids([0, 1])
        # Equal edges, in parts of three: each of them once, in their order.
        pairs = rng.integers(0, 4, (2, 40))
        quarry.import_(self.folder / "equal.db", edges=pairs, num_nodes=6)
        with quarry.open(self.folder / "equal.db", memory="64MiB") as db, mock.patch.object(_database, "_EDGES_AT_A_TIME", 3):
            there: dict[tuple[int, int], list[int]] = {}
            for column, pair in enumerate(db.edges().T):
                there.setdefault(tuple(pair), []).append(column)
            self.assertEqual(list(db.edge_ids(pairs)), [there[tuple(pair)].pop(0) for pair in pairs.T])

    def test_notebooks_show_tables(self):
        shown = self.db._repr_html_()
        for part in ("500 nodes", "<th>on disk</th>", "<td>feature</td><td>500 x 16</td><td>float32</td><td>31.2 KiB</td>"):
            self.assertIn(part, shown)
        self.assertIn("<td>500 x 16</td>", self.db["feature"]._repr_html_())
        self.db.close()
        self.assertEqual(self.db._repr_html_(), f"<div>{html.escape(repr(self.db))}</div>")

    def test_what_takes_long_shows_a_line_to_those_who_look(self):
        for terminal, kernel in ((True, False), (False, True), (False, False)):
            told = io.StringIO()
            told.isatty = lambda terminal=terminal: terminal
            with mock.patch.object(sys, "stderr", told), mock.patch.dict(sys.modules, {"ipykernel": html} if kernel else {}):
                bar = _waiting._Bar()
                bar.show("packing", 1, 2)
                self.assertEqual(told.getvalue(), "", "before its time")
                bar._start -= 2 * _waiting._SHOWN_AFTER_SECONDS
                bar.show("packing", 1, 2)
                bar.show("sync", 0, 0)
                bar.clear()
            expected = "\rpacking  50%" + "\rsync        " + "\r    \r"
            self.assertEqual(told.getvalue(), expected if terminal or kernel else "")

    def test_a_put_is_one_commit_that_snapshots_before_it_do_not_see(self):
        rows = np.full((2, DIM), 0.25, np.float32)
        with self.db.snapshot() as before:
            timestamp = self.db.put([7, 3], feature=rows, label=[2, 1], split="test")
            self.assertGreater(timestamp, before.timestamp)
            np.testing.assert_array_equal(self.db["feature"][[3, 7]], rows)
            np.testing.assert_array_equal(self.db["label"][[3, 7]], [1, 2])
            np.testing.assert_array_equal(self.db["split"][[3, 7]], [3, 3])
            np.testing.assert_array_equal(before["feature"][[3, 7]], self.graph["features"][[3, 7]])
        with self.assertRaises(quarry.UsageError):
            before["feature"][0]
        for wrong in ({"feature": rows[:, :3]}, {"feature": rows[:1]}):
            with self.assertRaises(quarry.UsageError):
                self.db.put([1, 2], **wrong)
        with self.assertRaisesRegex(quarry.UsageError, "twice"):
            self.db.put([1, 1], feature=rows)
        report = self.db.compact()
        self.assertEqual(report["feature"]["rows_changed"], 2)
        np.testing.assert_array_equal(self.db["feature"][[3, 7]], rows)
        self.db.put([3], feature=None)
        np.testing.assert_array_equal(self.db["feature"][3], np.zeros(DIM))

    def test_threads_share_a_database(self):
        failures = []

        def read(number):
            rng = np.random.default_rng(number)
            for _ in range(20):
                ids = rng.integers(0, NODES, 64)
                if not np.array_equal(self.db["feature"][ids], self.graph["features"][ids]):
                    failures.append(number)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_upkeep(self):
        copy = self.folder / "copy.db"
        self.assertGreater(self.db.checkpoint(copy)["bytes"], 0)
        with self.assertRaises(FileExistsError):
            self.db.checkpoint(copy)
        with quarry.open(copy, memory="64MiB") as other:
            self.assertEqual(other.verify()["faults"], [])
            (copy / "features/stray.qft").write_text("nobody's")
            self.assertEqual(len(other.verify()["faults"]), 1)
        seen = []
        self.db.verify(progress=lambda phase, done, total: seen.append((phase, done, total)))
        self.assertTrue(seen)

        def refuse(*_):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.db.verify(progress=refuse)

    def test_a_closed_database_says_so(self):
        self.db.close()
        self.db.close()
        with self.assertRaisesRegex(quarry.UsageError, "closed"):
            self.db["feature"]
        self.assertIn("closed", repr(self.db))
        with quarry.open(self.path, memory="64MiB") as again:
            self.assertEqual(again.num_nodes, NODES)

    def test_it_is_one_process_at_a_time(self):
        with self.assertRaisesRegex(quarry.Busy, "open in this process already"):
            quarry.open(self.path)
        other = subprocess.run([sys.executable, "-c", f"import quarry; quarry.open({str(self.path)!r})"], capture_output=True, text=True)
        self.assertIn(f"quarry._errors.Busy: {self.path} is open in process {os.getpid()}", other.stderr)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.db["feature"][0]
                said = "nothing"
            except quarry.Forked as error:
                said = str(error)
            os.write(write, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        self.assertIn("forked", os.read(read, 4096).decode())
        np.testing.assert_array_equal(self.db["feature"][0], self.graph["features"][0])

    def test_it_pickles_by_its_path(self):
        pickled = pickle.dumps(self.db)
        again, table = pickle.loads(pickle.dumps((self.db, self.db["feature"])))
        self.assertIs(again, self.db)
        self.assertIs(copy.deepcopy(self.db), self.db)
        np.testing.assert_array_equal(table[[3, 1]], self.graph["features"][[3, 1]])
        with self.assertRaisesRegex(quarry.Unsupported, "a snapshot is one process's"):
            pickle.dumps(self.db.snapshot())
        # While it is open here: a process that is spawned with it is not started, and one that unpickles it is told.
        with self.assertRaisesRegex(quarry.Unsupported, "is open in this process.*quarry serve.*unix:"):
            multiprocessing.get_context("spawn").Process(target=len, args=(table,)).start()
        load = [sys.executable, "-c", "import pickle, sys; print(pickle.load(sys.stdin.buffer).num_nodes)"]
        other = subprocess.run(load, input=pickled, capture_output=True)
        self.assertRegex(other.stderr.decode(), f"Busy: .*open in process {os.getpid()}.*pickled by its path.*quarry serve.*unix:")
        self.db.close()
        other = subprocess.run(load, input=pickled, capture_output=True, cwd="/")
        self.assertEqual(other.stdout.decode(), f"{NODES}\n", other.stderr.decode())
        again = pickle.loads(pickled)
        self.addCleanup(again.close)
        self.assertIsNot(again, self.db)
        np.testing.assert_array_equal(again["feature"][[3, 1]], self.graph["features"][[3, 1]])


class EncodedTest(DatabaseTest):
    def test_rows_of_every_type_are_read_and_put(self):
        self.db.close()
        for dtype, places in (("float16", 2), ("bfloat16", 1), ("int8", 1)):
            with self.subTest(dtype):
                path = self.folder / f"{dtype}.db"
                quarry.import_(path, **self.graph, feature_dtype=dtype, progress=False)
                with quarry.open(path, memory="64MiB") as db:
                    table = db["feature"]
                    self.assertEqual(table.stored, dtype)
                    self.assertEqual(table.dtype, np.float16 if dtype == "float16" else np.float32)
                    np.testing.assert_array_almost_equal(table[[2, 1]].astype(np.float32), self.graph["features"][[2, 1]], places)
                    row = np.linspace(-1, 1, DIM, dtype=np.float32)
                    db.put([9], feature=row[None])
                    out = table.read([9], np.empty((1, DIM), np.float32))
                    np.testing.assert_array_almost_equal(out[0], row, places)


class ImportTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="quarry-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_folders_files_and_arrays(self):
        graph = arrays()
        source = self.folder / "source"
        source.mkdir()
        names = {"edges": "edges", "features": "features", "labels": "labels", "train": "train_idx", "valid": "valid_idx", "test": "test_idx"}
        for name, array in graph.items():
            np.save(source / f"{names[name]}.npy", array)
        quarry.import_(self.folder / "a.db", source)
        quarry.import_(self.folder / "b.db", edges=source / "edges.npy", features=graph["features"], train=np.isin(np.arange(NODES), graph["train"]))
        with quarry.open(self.folder / "a.db", memory="64MiB") as a, quarry.open(self.folder / "b.db", memory="64MiB") as b:
            np.testing.assert_array_equal(a["feature"][:], b["feature"][:])
            np.testing.assert_array_equal(a.split("train"), b.split("train"))
            self.assertNotIn("label", b)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.db", "b.db", "source"], "no arrays are left over")

    def test_weights_and_targets_lie_beside_edges(self):
        graph = arrays()
        weights = np.random.default_rng(2).random(graph["edges"].shape[1], np.float32)
        targets = np.random.default_rng(3).standard_normal((NODES, 3), np.float32)
        np.save(self.folder / "w.npy", weights)
        for given in (weights, self.folder / "w.npy"):
            path = self.folder / f"{type(given).__name__}.db"
            quarry.import_(path, edges=graph["edges"], weights=given, targets=targets, train=graph["train"])
            with quarry.open(path, memory="64MiB") as db:
                np.testing.assert_array_equal(db["target"][:], targets)
                rows = db.sql("SELECT src, dst, weight FROM edges").numpy()
                stored = {(source, destination): weight for source, destination, weight in zip(rows["src"], rows["dst"], rows["weight"])}
                self.assertEqual(stored, {tuple(edge): weight for edge, weight in zip(graph["edges"].T.tolist(), weights.tolist())})
        left = sorted(os.listdir(self.folder))
        for name, options in (("weights", {"weights": weights[1:]}), ("targets", {"targets": np.array([["a"]])})):
            with self.assertRaisesRegex(quarry.InvalidArgument, f"^{name}\\b"):
                quarry.import_(self.folder / "bad.db", edges=graph["edges"], **options)
        with self.assertRaisesRegex(quarry.UsageError, "weights beside a source"):
            quarry.import_(self.folder / "bad.db", self.folder, weights=weights)
        self.assertEqual(sorted(os.listdir(self.folder)), left)

    def test_labels_that_are_codes_are_numbered(self):
        codes = np.array([700_000_000, 5, -1, 700_000_000])
        with self.assertRaisesRegex(quarry.InvalidArgument, "relabel"):
            quarry.import_(self.folder / "a.db", edges=[[0, 1, 2], [1, 2, 3]], labels=codes)
        quarry.import_(self.folder / "a.db", edges=[[0, 1, 2], [1, 2, 3]], labels=codes, relabel=True)
        with quarry.open(self.folder / "a.db", memory="64MiB") as db:
            np.testing.assert_array_equal(db["label"][:].ravel(), [1, 0, -1, 1])

    def test_what_cannot_be_is_refused_and_nothing_is_left(self):
        with self.assertRaises(quarry.UsageError):
            quarry.import_(self.folder / "a.db")
        with self.assertRaises(quarry.UsageError):
            quarry.import_(self.folder / "a.db", edges=[[0], [1]], feature_dtype="float8")
        with self.assertRaises(quarry.NotFound):
            quarry.import_(self.folder / "a.db", self.folder / "nothing")
        with self.assertRaisesRegex(quarry.InvalidArgument, "nan|NaN"):
            quarry.import_(self.folder / "a.db", edges=[[0], [1]], features=np.full((2, 2), np.nan, np.float32))
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_database_is_not_made_twice(self):
        quarry.import_(self.folder / "a.db", edges=[[0, 1], [1, 2]], undirected=True)
        with self.assertRaises(FileExistsError):
            quarry.import_(self.folder / "a.db", edges=[[0], [1]])
        with quarry.open(self.folder / "a.db", memory="64MiB") as db:
            self.assertEqual(db.num_edges, 4)


class ModuleTest(unittest.TestCase):
    def test_every_error_is_a_built_in_one_too(self):
        for name, built_in in (("NotFound", KeyError), ("IoError", OSError), ("NoSpace", OSError), ("OutOfBudget", MemoryError), ("Cancelled", InterruptedError), ("InvalidArgument", ValueError), ("TimedOut", TimeoutError)):
            self.assertTrue(issubclass(getattr(quarry, name), built_in), name)
            self.assertTrue(issubclass(getattr(quarry, name), quarry.Error), name)
        with self.assertRaises(quarry.NotFound):
            quarry.open("/nothing/there")
        with self.assertRaisesRegex(quarry.UsageError, "8GiB"):
            quarry.open("/nothing/there", memory="much")

    def test_neither_torch_nor_arrow_is_imported(self):
        code = "import sys, quarry, quarry.pyg; print(sorted(set(sys.modules) & {'torch', 'torch_geometric', 'pyarrow', 'pandas'}))"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip(), "[]")

    def test_sqlite_of_python_is_another_one(self):
        code = "import sqlite3, quarry; print(sqlite3.connect(':memory:').execute('SELECT 40 + 2').fetchone()[0])"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip(), "42")

    def test_the_order_of_imports_changes_nothing(self):
        """Each of these loads libraries that another has, too, in other versions."""
        others = [name for name in ("sqlite3", "torch", "pyarrow", "duckdb") if importlib.util.find_spec(name)]
        with tempfile.TemporaryDirectory(prefix="quarry-python-") as folder:
            work = f"""
import sqlite3
quarry.import_(path, edges=[[0, 1], [1, 2]], features=[[1.0], [2.0], [3.0]], progress=False)
with quarry.open(path, memory="64MiB") as db:
    print(db["feature"][[2, 0]].tolist(), db.sql("SELECT count(*) FROM edges").fetchall())
print(sqlite3.connect(":memory:").execute("SELECT 40 + 2").fetchone())
if "torch" in sys.modules:
    import torch
    print((torch.ones(2, 2) @ torch.ones(2, 2)).tolist())
"""
            for place in (0, len(others)):
                names = ", ".join(["sys", *others[:place], "quarry", *others[place:]])
                done = subprocess.run([sys.executable, "-W", "ignore", "-c", f"import {names}\npath = {folder!r} + '/{place}.db'\n{work}"], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), names)
                self.assertEqual(done.stdout.splitlines()[:2], ["[[3.0], [1.0]] [(2,)]", "(42,)"], names)


if __name__ == "__main__":
    unittest.main()
