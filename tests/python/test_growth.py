"""A graph that grows while it is trained on: nodes and edges that are added, here and at a server."""

import collections
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import quarry
from small_graph import BINARY, DIM, NODES, DatabaseTest, ServedDatabaseTest, serve

_SEED = int(os.environ.get("QUARRY_GROWN_SEED", "7"))


class Model:
    """What the database should have: rows, labels and splits by node, and how often each edge is there."""

    def __init__(self, graph):
        self.x, self.labels = graph["features"].copy(), graph["labels"].astype(np.int64)
        self.splits = np.zeros(len(self.labels), np.int64)
        for number, name in enumerate(("train", "valid", "test"), 1):
            self.splits[graph[name]] = number
        self.edges = collections.Counter(map(tuple, graph["edges"].T.tolist()))

    def remove_nodes(self, ids):
        """How many edges went with them."""
        gone = [edge for edge in self.edges if ids & set(edge)]
        for node in ids:
            self.x[node], self.labels[node], self.splits[node] = 0, -1, 0
        return sum(self.edges.pop(edge) for edge in gone)

    def all_edges(self):
        """By destination, then source, as the database has them."""
        return np.array(sorted(self.edges.elements(), key=lambda edge: (edge[1], edge[0])), np.int64).reshape(-1, 2).T


class GrowthTest(DatabaseTest):
    def reopen(self):
        """Whoever holds the database opens it anew."""
        self.db.close()
        self.db = quarry.open(self.path, memory="256MiB")

    def check(self, model):
        self.assertEqual((self.db.num_nodes, self.db.num_edges), (len(model.x), model.edges.total()))
        np.testing.assert_array_equal(self.db["feature"][:], model.x)
        np.testing.assert_array_equal(self.db["label"][:], model.labels)
        np.testing.assert_array_equal(self.db["split"][:], model.splits)
        np.testing.assert_array_equal(self.db.edges(), model.all_edges())

    def check_epoch(self, model, batches):
        """Seeds are all training nodes with a label; edges, rows and labels are those of the model."""
        wanted = np.flatnonzero((model.splits == 1) & (model.labels >= 0))
        np.testing.assert_array_equal(np.sort(np.concatenate([batch.seeds for batch in batches])), wanted)
        for batch in batches:
            nodes = batch.nodes.astype(np.int64)
            np.testing.assert_array_equal(batch.x() if callable(batch.x) else batch.x, model.x[nodes])
            np.testing.assert_array_equal(batch.labels, model.labels[nodes[: len(batch.seeds)]])
            targets = np.repeat(nodes[: len(batch.indptr) - 1], np.diff(batch.indptr))
            for edge in zip(nodes[batch.indices].tolist(), targets.tolist()):
                self.assertIn(edge, model.edges)

    def test_what_is_added_and_removed_is_there_for_whoever_looks(self):
        rng = np.random.default_rng(_SEED)
        model = Model(self.graph)
        self.assertEqual(self.db.num_edges, model.edges.total())
        for step in range(12):
            with self.subTest(f"QUARRY_GROWN_SEED={_SEED}", step=step):
                count = int(rng.integers(1, 9)) if step % 3 < 2 else 0
                first = len(model.x)
                edges = rng.integers(0, first + count, (2, int(rng.integers(0, 20))))
                if count:
                    x = rng.standard_normal((count, DIM), dtype=np.float32)
                    labels = rng.integers(-1, 4, count)
                    split = ("train", "valid", "none")[step % 3]
                    ids = self.db.add_nodes(x, label=labels, split=split, edges=edges)
                    np.testing.assert_array_equal(ids, np.arange(first, first + count))
                    model.x = np.concatenate([model.x, x])
                    model.labels = np.concatenate([model.labels, labels])
                    model.splits = np.concatenate([model.splits, np.full(count, {"train": 1, "valid": 2, "none": 0}[split])])
                    model.edges.update(map(tuple, edges.T.tolist()))
                else:
                    gone = list(model.edges)[:: max(1, len(model.edges) // 5)]
                    done = self.db.remove_edges(np.array(gone).T)
                    self.assertEqual(done["removed"], sum(model.edges[edge] for edge in gone))
                    for edge in gone:
                        del model.edges[edge]
                    done = self.db.add_edges(edges)
                    self.assertEqual((done["added"], done["nodes"]), (edges.shape[1], first))
                    model.edges.update(map(tuple, edges.T.tolist()))
                if step % 2 == 1:
                    ids = rng.integers(0, len(model.x), 2)
                    done = self.db.remove_nodes(ids)
                    gone = model.remove_nodes(set(ids.tolist()))
                    self.assertEqual((done["nodes_removed"], done["removed"]), (len(set(ids.tolist())), gone))
                if step % 4 == 3:
                    self.db.compact()
                self.check(model)
        with self.db.stream([50, 50], batch_size=64) as stream:
            self.check_epoch(model, list(stream.epoch("train")))

    def test_an_epoch_sees_the_graph_of_its_beginning_and_the_next_one_the_new_edges(self):
        model = Model(self.graph)
        before = Model(self.graph)
        with self.db.stream([50, 50], batch_size=64) as old:
            epoch = old.epoch("train")
            seen = [next(epoch)]
            x = np.full((3, DIM), 5, np.float32)
            ids = self.db.add_nodes(x, label=[0, 1, 2], split="train", edges=[[NODES, 1, 2], [0, NODES, NODES + 1]])
            model.x, model.labels = np.concatenate([model.x, x]), np.concatenate([model.labels, [0, 1, 2]])
            model.splits = np.concatenate([model.splits, [1, 1, 1]])
            model.edges.update([(NODES, 0), (1, NODES), (2, NODES + 1)])
            self.check_epoch(before, seen + list(epoch))
            with self.db.stream([50, 50], batch_size=64) as new:
                self.check_epoch(model, list(new.epoch("train")))
                (batch,) = new.epoch(ids)
                self.assertEqual({1, 2} - set(batch.nodes.tolist()), set(), "neighbors of new nodes")
            self.check_epoch(before, list(old.epoch("train")))

    def test_what_cannot_be_is_refused_and_changes_nothing(self):
        model = Model(self.graph)
        for error, call in (
            (quarry.InvalidArgument, lambda: self.db.add_edges([[0], [NODES]])),
            (quarry.UsageError, lambda: self.db.add_edges([[0, 1, 2]])),
            (quarry.UsageError, lambda: self.db.add_edges([[0], [1]], weights=[1, 2])),
            (quarry.InvalidArgument, lambda: self.db.add_edges([[0], [1]], weights=[1])),
            (quarry.UsageError, lambda: self.db.add_nodes()),
            (quarry.UsageError, lambda: self.db.add_nodes(np.zeros((2, DIM + 1), np.float32))),
            (quarry.UsageError, lambda: self.db.add_nodes(np.zeros((2, DIM), np.float32), label=[1])),
            (quarry.InvalidArgument, lambda: self.db.add_nodes(count=1, label=[-2])),
            (quarry.InvalidArgument, lambda: self.db.add_nodes(count=1, edges=[[0], [NODES + 1]])),
            (quarry.Unsupported, lambda: self.db.add_nodes(count=1, names=["a"])),
            (quarry.NotFound, lambda: self.db.add_edges([[0], [1]], topology="other")),
            (quarry.InvalidArgument, lambda: self.db.remove_nodes([0, NODES])),
            (quarry.InvalidArgument, lambda: self.db.remove_nodes([-1])),
        ):
            with self.assertRaises(error):
                call()
            self.check(model)
        self.assertEqual(list(self.db.add_nodes(count=2)), [NODES, NODES + 1])
        np.testing.assert_array_equal(self.db["feature"][NODES:], np.zeros((2, DIM)))
        np.testing.assert_array_equal(self.db["label"][NODES:], [-1, -1])

    def test_tables_come_and_go(self):
        self.db.create_table("age", 1, "float16")
        np.testing.assert_array_equal(self.db["age"][:], np.zeros((NODES, 1)))
        (node,) = self.db.add_nodes(count=1, age=[[0.5]])
        self.db.put([3], age=[[2.0]])
        self.assertEqual((self.db["age"][node][0], self.db["age"][3][0], len(self.db["age"])), (0.5, 2.0, NODES + 1))
        for error, call in (
            (quarry.AlreadyExists, lambda: self.db.create_table("age", 2)),
            (quarry.InvalidArgument, lambda: self.db.create_table("label_code", 1, "int64")),
            (quarry.InvalidArgument, lambda: self.db.create_table("a/b", 1)),
            (quarry.UsageError, lambda: self.db.create_table("b", 1, "complex")),
        ):
            with self.assertRaises(error):
                call()
        with self.assertRaises(quarry.Busy):
            self.db.drop_table("age")
        self.reopen()
        self.db.drop_table("age")
        self.assertNotIn("age", self.db)


class ServedGrowthTest(ServedDatabaseTest, GrowthTest):
    """The same calls at a server, and one more: pieces, since the session's memory does not hold all of it."""

    def reopen(self):
        self.server.terminate()
        self.server.wait()
        super().reopen()

    def test_more_than_the_session_holds_goes_in_pieces(self):
        with quarry.open(self.address, memory="48MiB", timeout=60) as small:
            count = 120_000
            x = np.arange(count * DIM, dtype=np.float32).reshape(count, DIM)
            edges = np.stack([np.arange(count) + NODES, np.arange(count) % NODES])
            ids = small.add_nodes(x, edges=edges)
            self.assertEqual((ids[0], ids[-1], small.num_nodes), (NODES, NODES + count - 1, NODES + count))
            some = ids[:: count // 50]
            np.testing.assert_array_equal(self.db["feature"][some], x[some - NODES])
        self.assertEqual(self.db.num_edges, self.graph["edges"].shape[1] + count)


class WeightedGrowthTest(unittest.TestCase):
    """Edges of two relations, with weights, which come and go by every call that takes some."""

    RELATIONS = ("cites", "likes")

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="quarry-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = self.folder / "graph.db"
        self.rng = np.random.default_rng(_SEED)
        source = self.folder / "source"
        source.mkdir()
        np.save(source / "features.npy", np.zeros((40, DIM), np.float32))
        self.model = collections.defaultdict(list)
        for relation, name in enumerate(self.RELATIONS):
            edges, weights = self.some(60, 40)
            np.save(source / f"edges_{name}.npy", edges)
            np.save(source / f"edge_weights_{name}.npy", weights)
            self.add(relation, edges, weights)
        quarry.import_(self.path, source, progress=False)
        self.db = quarry.open(self.path, memory="256MiB")
        self.addCleanup(lambda: self.db.close())

    def some(self, count, nodes):
        return self.rng.integers(0, nodes, (2, count)), self.rng.integers(0, 9, count).astype(np.float32) / 4

    def add(self, relation, edges, weights):
        for source, destination, weight in zip(*edges.tolist(), weights.tolist()):
            self.model[source, destination, relation].append(weight)

    def check(self):
        wanted = sorted((*edge, weight) for edge, weights in self.model.items() for weight in weights)
        rows = self.db.sql("SELECT src, dst, relation, weight FROM edges ORDER BY 1, 2, 3, 4").fetchall()
        self.assertEqual([tuple(row) for row in rows], wanted)

    def test_edges_keep_relation_and_weight(self):
        self.check()
        nodes = 40
        for step in range(12):
            relation = int(self.rng.integers(2))
            name = self.RELATIONS[relation]
            edges, weights = self.some(int(self.rng.integers(1, 12)), nodes)
            with self.subTest(f"QUARRY_GROWN_SEED={_SEED}", step=step):
                if step % 4 == 0:
                    self.db.add_edges(edges, weights, type=name)
                    self.add(relation, edges, weights)
                elif step % 4 == 1:
                    edges[0, 0] = nodes  # the first of the new ones
                    self.db.add_nodes(count=2, edges=edges, weights=weights, type=name)
                    self.add(relation, edges, weights)
                    nodes += 2
                elif step % 4 == 2:
                    known = [edge[:2] for edge in self.model if edge[2] == relation][::3]
                    self.db.remove_edges(np.array(known).T, type=name)
                    for edge in known:
                        del self.model[(*edge, relation)]
                else:
                    least = float(weights[0])
                    self.db.sql("UPDATE edges SET weight = weight + 1 WHERE relation = ? AND weight > ?", (relation, least), write=True)
                    for edge, known in self.model.items():
                        if edge[2] == relation:
                            known[:] = [weight + 1 if weight > least else weight for weight in known]
                self.check()
        for call in (self.db.add_edges, lambda edges: self.db.add_nodes(count=1, edges=edges)):
            with self.assertRaisesRegex(quarry.UsageError, "which relation"):
                call([[0], [1]])
        self.assertEqual(self.db.num_nodes, nodes)
        added, removed = self.db.sql("SELECT sum(added), sum(removed) FROM runs").fetchall()[0]
        growth = self.db.sql("SELECT run_edges_added, run_edges_removed, added_nodes FROM growth").fetchall()[0]
        self.assertEqual(tuple(growth), (added, removed, nodes - 40))


@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class ServedWeightedGrowthTest(WeightedGrowthTest):
    """The same calls at a server."""

    def setUp(self):
        super().setUp()
        serve(self, memory="512MiB", session="192MiB")  # a transaction that writes takes 128 MiB


@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class CommandTest(DatabaseTest):
    def run_quarry(self, *arguments):
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_add_and_remove(self):
        self.db.close()
        np.save(self.folder / "x.npy", np.ones((3, DIM), np.float32))
        np.save(self.folder / "wide.npy", np.ones((3, DIM + 1), np.float32))
        np.save(self.folder / "y.npy", np.array([0, 1, 2]))
        np.save(self.folder / "e.npy", np.array([[NODES, NODES + 1], [0, NODES + 2]]))
        rows = ["--nodes", self.folder / "x.npy", "--labels", self.folder / "y.npy", "--split", "train"]
        code, out, error = self.run_quarry("add", self.path, *rows, "--edges", self.folder / "e.npy")
        self.assertEqual((code, error), (0, ""))
        self.assertRegex(out, rf"3 nodes added, {NODES} to {NODES + 2}\n2 edges added and 0 removed as \d+ in .* s: {NODES + 3} nodes, \d+ edges, 1 run\n")
        code, out, _ = self.run_quarry("add", self.path, "--nodes", 2)
        self.assertEqual(code, 0)
        self.assertRegex(out, rf"2 nodes added, {NODES + 3} to {NODES + 4}\n")
        for arguments, code, expected in (
            (["--labels", self.folder / "y.npy"], 2, "give --nodes"),
            ([], 2, "nothing to add"),
            (["--nodes", self.folder / "wide.npy"], 1, "columns"),
            (["--nodes", 1, "--labels", self.folder / "y.npy"], 1, "labels"),
        ):
            done = self.run_quarry("add", self.path, *arguments)
            self.assertEqual(done[0], code, done)
            self.assertIn(expected, done[2])
        self.assertEqual(self.run_quarry("remove", self.path, "--edges", self.folder / "e.npy")[0], 0)
        np.save(self.folder / "ids.npy", np.array([NODES + 1, NODES + 1]))
        np.save(self.folder / "far.npy", np.array([0, NODES + 5]))
        code, out, error = self.run_quarry("remove", self.path, "--nodes", self.folder / "ids.npy")
        self.assertEqual((code, error), (0, ""))
        self.assertRegex(out, r"1 node removed\n0 edges added and 0 removed as \d+ ")
        code, _, error = self.run_quarry("remove", self.path, "--nodes", self.folder / "far.npy")
        self.assertEqual(code, 1)
        self.assertRegex(error, rf"far.npy.*: node id {NODES + 5} is out of range")
        self.assertEqual(self.run_quarry("remove", self.path)[0], 2)
        self.assertEqual(self.run_quarry("verify", self.path)[0], 0)
        self.assertRegex(self.run_quarry("info", self.path)[1], rf"nodes +{NODES + 5}; 5 of them added\n")
        self.assertEqual(self.run_quarry("compact", self.path)[0], 0)
        self.assertRegex(self.run_quarry("info", self.path)[1], rf"nodes +{NODES + 5}\n")
        with quarry.open(self.path) as db:
            np.testing.assert_array_equal(db["feature"][NODES:], [[1] * DIM, [0] * DIM, [1] * DIM] + [[0] * DIM] * 2)
            np.testing.assert_array_equal(db["label"][NODES:], [0, -1, 2, -1, -1])
            self.assertEqual(set(db.split("train")) & {NODES, NODES + 1, NODES + 2}, {NODES, NODES + 2})


if __name__ == "__main__":
    unittest.main()
