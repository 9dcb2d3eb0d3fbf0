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
from quarry import _quarry
from quarry.pyg._hetero import Hetero, Types
from small_graph import BINARY, DIM, NODES, DatabaseTest, ServedDatabaseTest, serve
from test_hetero import DIMS, EDGES, TypedTest
from test_hetero import NODES as COUNTS

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

    def test_attributes_by_edge_id_follow_edges_that_come_and_go(self):
        """As docs/python.md has it: arrays of the edges as they came, put in order for the graph as it is."""
        rng = np.random.default_rng(_SEED)
        edges = self.db.edges().astype(np.int64)
        times = np.arange(edges.shape[1])
        for step in range(8):
            with self.subTest(f"QUARRY_GROWN_SEED={_SEED}", step=step):
                if rng.random() < 0.3:
                    gone = edges[:, rng.choice(edges.shape[1], 20)]
                    self.db.remove_edges(gone)
                    left = ~np.isin(edges[0] << 32 | edges[1], gone[0] << 32 | gone[1])
                    edges, times = edges[:, left], times[left]
                else:
                    new = rng.integers(0, self.db.num_nodes, (2, int(rng.integers(1, 60))))
                    self.db.add_edges(new)
                    edges, times = np.concatenate([edges, new], axis=1), np.concatenate([times, np.arange(new.shape[1]) + 10**6 * (step + 1)])
                by_id = np.empty(self.db.num_edges, times.dtype)
                by_id[self.db.edge_ids(edges)] = times
                self.assertEqual(sorted(zip(*self.db.edges().tolist(), by_id.tolist())), sorted(zip(*edges.tolist(), times.tolist())))
                if rng.random() < 0.5:
                    before = self.db.edges()
                    self.db.compact("graph", progress=False)
                    np.testing.assert_array_equal(self.db.edges(), before)
        with self.assertRaisesRegex(quarry.Unsupported, r"times=: a database keeps the weights and types of edges, .* by_id\[db.edge_ids\(edges\)\] = values"):
            self.db.add_edges(edges[:, :2], times=times[:2])

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
        with self.db.snapshot(), self.assertRaises(quarry.Busy):
            self.db.drop_table("age")
        self.db.drop_table("age")
        self.assertNotIn("age", self.db)
        self.db.create_table("age", 2)  # in its place: rows of its own
        np.testing.assert_array_equal(self.db["age"][3], np.zeros(2))
        self.assertEqual(self.db.sql("SELECT drop_table('age')", write=True).fetchall(), [("age",)])
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


class TypedModel:
    """What a database with types should have, by type: rows and labels of nodes, and how often each edge is there; nodes by
    their numbers in the type."""

    def __init__(self, graph):
        self.x = {name: graph["x"][name].copy() if name in DIMS else np.zeros((count, 0), np.float32) for name, count in COUNTS.items()}
        self.labels = {name: graph["labels"].astype(np.int64) if name == "paper" else np.full(count, -1) for name, count in COUNTS.items()}
        self.edges = {edge_type: collections.Counter(map(tuple, pairs.T.tolist())) for edge_type, pairs in graph["edges"].items()}

    def count(self, name):
        return len(self.x[name])

    def remove(self, name, numbers):
        """How many edges went with them."""
        self.x[name][list(numbers)], self.labels[name][list(numbers)] = 0, -1
        went = 0
        for (source, _, destination), edges in self.edges.items():
            gone = [edge for edge in edges if (source == name and edge[0] in numbers) or (destination == name and edge[1] in numbers)]
            went += sum(edges.pop(edge) for edge in gone)
        return went


class TypedGrowthTest(TypedTest):
    def make(self):
        super().make()
        self.model = TypedModel(self.graph)

    def some_edges(self, rng, edge_type, count):
        """Half of them lead to the last nodes of their types or from them."""
        ends = []
        for name in edge_type[::2]:
            nodes = self.model.count(name)
            ends.append(np.where(rng.random(count) < 0.5, nodes - 1 - rng.integers(0, 4, count), rng.integers(0, nodes, count)))
        return np.stack(ends)

    def check(self):
        types = Types.of(self.db)
        self.assertEqual({type_.name: type_.num_nodes for type_ in types.nodes}, {name: self.model.count(name) for name in COUNTS})
        self.assertEqual(dict(self.db.sql("SELECT type, count(*) FROM nodes GROUP BY type")), {name: self.model.count(name) for name in COUNTS})
        self.assertEqual(dict(self.db.sql("SELECT name, count FROM node_types")), {name: self.model.count(name) for name in COUNTS})
        all_ids = np.concatenate([type_.ids(np.arange(type_.num_nodes)) for type_ in types.nodes])
        np.testing.assert_array_equal(np.sort(all_ids), np.arange(self.db.num_nodes))
        for type_ in types.nodes:
            ids = type_.ids(np.arange(type_.num_nodes))
            np.testing.assert_array_equal(type_.numbers(ids), np.arange(type_.num_nodes))
            np.testing.assert_array_equal(self.db["label"][ids], self.model.labels[type_.name])
            if type_.feature_table:
                np.testing.assert_array_equal(self.db[type_.feature_table][:], self.model.x[type_.name])
                rows = dict(self.db.sql('SELECT id, feature FROM features WHERE "table" = ?1 AND id >= ?2', [type_.feature_table, int(ids[-3])]))
                self.assertEqual(rows, {int(node): self.model.x[type_.name][-3:][i].tobytes() for i, node in enumerate(ids[-3:])})
        counts = {edge_type: edges.total() for edge_type, edges in self.model.edges.items()}
        self.assertEqual({(source, name, to): count for source, name, to, count in self.db.sql("SELECT source, name, destination, count FROM edge_types")}, counts)
        for place, type_ in enumerate(types.nodes):
            self.check_sample(types, place)
            self.check_epoch(types.names[place])

    def check_edges(self, block, types, seeds_of):
        """Nodes, and edges into nodes of the type, as pairs of numbers in their types."""
        numbers = {name: n_id for name, (n_id, _, _) in zip(types.names, block["nodes"])}
        for (source, name, to), (edge_index, _, _) in zip(types.edges, block["edges"]):
            pairs = zip(numbers[source][edge_index[0]].tolist(), numbers[to][edge_index[1]].tolist())
            yield (source, name, to), collections.Counter(pairs) if to == seeds_of else None

    def check_sample(self, types, place):
        """All neighbors of all nodes of a type are all edges into it."""
        seeds = types.nodes[place].ids(np.arange(types.nodes[place].num_nodes)).astype(np.uint32)
        raw = self.db._sampled(seeds, [-1], 1, relation_fanouts=[-1] * len(types.edges))
        block = raw.hetero_block(types.raw, place, None)
        np.testing.assert_array_equal(block["nodes"][place][0][: len(seeds)], np.arange(len(seeds)))
        for edge_type, drawn in self.check_edges(block, types, types.names[place]):
            self.assertIn(drawn, (None, self.model.edges[edge_type]), edge_type)

    def check_epoch(self, name):
        """Batches of all nodes of a type, as Loader makes a HeteroData of them: rows of each type, labels, edges."""
        hetero = Hetero.of(self.db, [-1], (name, None))
        place, into = hetero.types.names.index(name), collections.defaultdict(collections.Counter)
        with self.db.stream(hetero.fanouts, 128, relation_fanouts=hetero.relation_fanouts) as stream:
            order = np.sort(hetero.seeds).astype(np.uint32)
            stream.start(hetero.seeds)
            seen = []
            while (view := stream.next()) is not None:
                block = hetero.take(view._raw, _quarry.PygPass(order, None))
                for of_type, (n_id, x, _) in zip(hetero.types.names, block["nodes"]):
                    if x is not None:
                        np.testing.assert_array_equal(x, self.model.x[of_type][n_id])
                seeds = block["nodes"][place][0][: block["batch_size"]]
                np.testing.assert_array_equal(block["y"], self.model.labels[name][seeds])
                seen.extend(seeds.tolist())
                for edge_type, drawn in self.check_edges(block, hetero.types, name):
                    into[edge_type].update(drawn or ())
                view.close()
            self.assertEqual(sorted(seen), list(range(self.model.count(name))))
        for edge_type, drawn in into.items():
            if edge_type[2] == name:
                self.assertEqual(drawn, self.model.edges[edge_type], edge_type)

    def test_types_grow_as_the_model(self):
        rng = np.random.default_rng(_SEED)
        model = self.model
        for step in range(10):
            with self.subTest(f"QUARRY_GROWN_SEED={_SEED}", step=step):
                name = ("paper", "author", "field_of_study")[int(rng.integers(0, 3))]
                edge_type = list(EDGES)[int(rng.integers(0, len(EDGES)))]
                count, dim = int(rng.integers(1, 9)), DIMS.get(name, 0)
                x = rng.standard_normal((count, dim), dtype=np.float32)
                labels = rng.integers(-1, 4, count)
                first = model.count(name)
                model.x[name] = np.concatenate([model.x[name], x])
                model.labels[name] = np.concatenate([model.labels[name], labels])
                edges = self.some_edges(rng, edge_type, 12)
                numbers = self.db.add_nodes(
                    x if dim else None, count=None if dim else count, type=name, label=labels, split="train", edges=edges, edge_type=edge_type
                )
                np.testing.assert_array_equal(numbers, np.arange(first, first + count))
                model.edges[edge_type].update(map(tuple, edges.T.tolist()))
                if step % 3 == 1:
                    other = list(EDGES)[int(rng.integers(0, len(EDGES)))]
                    edges = self.some_edges(rng, other, 5)
                    self.db.add_edges(edges, type=other)
                    model.edges[other].update(map(tuple, edges.T.tolist()))
                if step % 3 == 2:
                    gone = set(rng.integers(0, model.count(name), 3).tolist()) | {model.count(name) - 1}
                    done = self.db.remove_nodes(sorted(gone), type=name)
                    self.assertEqual((done["nodes_removed"], done["removed"]), (len(gone), model.remove(name, gone)))
                if step % 4 == 3:
                    self.db.compact()
                if step % 2:
                    self.check()
        self.assertEqual(self.db.verify(progress=False)["faults"], [])
        # Columns of edges, by numbers in the types.
        for edge_type in EDGES:
            pairs = np.array(sorted(model.edges[edge_type].elements(), key=lambda edge: (edge[1], edge[0]))).T
            np.testing.assert_array_equal(np.sort(self.db.edge_ids(pairs, edge_type=edge_type)), np.arange(pairs.shape[1]))

    def test_what_cannot_be_is_refused_and_changes_nothing(self):
        wide = np.zeros((2, DIMS["paper"] + 1), np.float32)
        for error, call in (
            (quarry.InvalidArgument, lambda: self.db.add_nodes(count=1)),
            (quarry.NotFound, lambda: self.db.add_nodes(count=1, type="venue")),
            (quarry.UsageError, lambda: self.db.add_nodes(wide, type="paper")),
            (quarry.UsageError, lambda: self.db.add_nodes(wide, type="field_of_study")),
            (quarry.UsageError, lambda: self.db.add_nodes(count=1, type="paper", edges=[[0], [0]])),
            (quarry.InvalidArgument, lambda: self.db.add_nodes(count=1, type="paper", edges=[[COUNTS["author"]], [0]], edge_type="writes")),
            (quarry.InvalidArgument, lambda: self.db.add_nodes(count=1, type="paper", edges=[[0], [COUNTS["paper"] + 1]], edge_type="writes")),
        ):
            with self.assertRaises(error):
                call()
        self.check()

    def test_batches_of_nodes_that_came_after_the_types_were_asked_for_are_refused(self):
        types = Types.of(self.db)
        (number,) = self.db.add_nodes(count=1, type="paper")
        node = Types.of(self.db).nodes[types.names.index("paper")].ids([number])
        raw = self.db._sampled(node.astype(np.uint32), [len(EDGES)], 1, relation_fanouts=[1] * len(EDGES))
        with self.assertRaisesRegex(quarry.UsageError, "added after its types were asked for"):
            raw.hetero_block(types.raw, 0, None)


class TypedSqlGrowthTest(TypedTest):
    def test_sql_adds_nodes_of_a_type(self):
        nodes, sql = self.db.num_nodes, lambda text, *values: self.db.sql(text, values, write=True)
        sql("INSERT INTO nodes (type, label, split) VALUES ('author', 3, 'test'), ('author', NULL, 'none')")
        self.assertEqual(self.db.sql("SELECT id, type, label, split FROM nodes WHERE id >= ?1", [nodes]).fetchall(), [(nodes, "author", 3, "test"), (nodes + 1, "author", None, "none")])
        row = np.full(DIMS["author"], 2, np.float32)
        sql("INSERT OR REPLACE INTO features (id, \"table\", feature) VALUES (?1, 'author.feature', ?2)", nodes + 1, row.tobytes())
        np.testing.assert_array_equal(self.db["author.feature"][COUNTS["author"] :], [np.zeros_like(row), row])
        sql("INSERT INTO edges (src, dst, type) VALUES (?1, ?2, 'writes')", nodes + 1, self.first["paper"])
        sql("INSERT INTO nodes (type) VALUES ('paper')")
        self.assertEqual(self.db.sql("SELECT type, first, count, row FROM node_ranges WHERE first >= ?1 ORDER BY first", [nodes]).fetchall(), [("author", nodes, 2, COUNTS["author"]), ("paper", nodes + 2, 1, COUNTS["paper"])])
        for text, why in (
            ("INSERT INTO nodes (label) VALUES (1)", "its nodes have types, and none is given"),
            ("INSERT INTO nodes (type) VALUES ('venue')", 'there is no type of nodes "venue"'),
            ("INSERT INTO nodes (type) VALUES ('paper'), ('author')", 'this transaction adds nodes of type "paper": commit it'),
            (f"INSERT INTO edges (src, dst, type) VALUES ({nodes + 2}, {self.first['paper']}, 'writes')", 'is of type "paper"'),
            (f"INSERT OR REPLACE INTO features (id, \"table\", feature) VALUES ({nodes + 2}, 'author.feature', zeroblob(28))", f"node {nodes + 2} is none"),
        ):
            with self.assertRaisesRegex(quarry.Error, why):
                sql(text)
        self.assertEqual(self.db.num_nodes, nodes + 3)


@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class ServedTypedGrowthTest(TypedGrowthTest):
    """The same calls at a server."""

    def setUp(self):
        super().setUp()
        serve(self)


@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class TypedCommandTest(TypedTest):
    def run_quarry(self, *arguments):
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_add_and_remove(self):
        self.db.close()
        x = np.arange(3 * DIMS["author"], dtype=np.float32).reshape(3, -1)
        np.save(self.folder / "x.npy", x)
        np.save(self.folder / "y.npy", np.array([0, -1, 2]))
        np.save(self.folder / "e.npy", np.array([[COUNTS["author"], COUNTS["author"] + 2], [0, 1]]))
        np.save(self.folder / "far.npy", np.array([[0], [COUNTS["paper"] + 3]]))
        nodes, rows = sum(COUNTS.values()), ["--nodes", self.folder / "x.npy", "--labels", self.folder / "y.npy", "--split", "train"]
        code, out, error = self.run_quarry("add", self.path, *rows, "--node-type", "author", "--edges", self.folder / "e.npy", "--type", "writes")
        self.assertEqual((code, error), (0, ""))
        self.assertRegex(out, rf"3 nodes added, {nodes} to {nodes + 2}: author \d+ to \d+\n2 edges added")
        self.assertEqual(self.run_quarry("add", self.path, "--nodes", 2, "--type", "paper")[0], 0)
        self.assertEqual(self.run_quarry("add", self.path, "--nodes", 1, "--node-type", "author")[0], 0)
        for arguments, code, expected in (
            (["--nodes", 1], 2, "say by --node-type of which one they are: author, field_of_study, paper"),
            (["--nodes", 1, "--type", "venue"], 2, 'there is no type of nodes "venue"'),
            (["--nodes", self.folder / "x.npy", "--type", "paper"], 1, "columns"),
            (["--nodes", self.folder / "x.npy", "--type", "field_of_study"], 1, "have no features"),
            (["--nodes", 1, "--node-type", "paper", "--edges", self.folder / "far.npy", "--type", "writes"], 1, "node id"),
        ):
            done = self.run_quarry("add", self.path, *arguments)
            self.assertEqual(done[0], code, done)
            self.assertIn(expected, done[2])
        np.save(self.folder / "ids.npy", np.array([COUNTS["author"] + 1, 0]))
        self.assertRegex(self.run_quarry("remove", self.path, "--nodes", self.folder / "ids.npy", "--type", "author")[1], "2 nodes removed")
        self.assertEqual(self.run_quarry("verify", self.path)[0], 0)
        self.assertRegex(self.run_quarry("info", self.path)[1], rf"author +{COUNTS['author'] + 4} ")
        self.assertEqual(self.run_quarry("compact", self.path)[0], 0)
        self.assertEqual(self.run_quarry("verify", self.path)[0], 0)
        # An export counts the nodes of each type from 0, and an import of it has one range of each.
        self.assertEqual(self.run_quarry("export", self.path, self.folder / "out", "--format", "graphbolt")[0], 0)
        again = self.folder / "again.db"
        quarry.import_(again, self.folder / "out", progress=False)
        with quarry.open(self.path) as db, quarry.open(again) as other:
            self.assertEqual({t.name: t.num_nodes for t in db.node_types}, {"author": COUNTS["author"] + 4, "paper": COUNTS["paper"] + 2, "field_of_study": COUNTS["field_of_study"]})
            self.assertEqual({t.name: len(t.ranges) for t in db.node_types}, {"author": 3, "paper": 2, "field_of_study": 1})
            x[1] = 0
            np.testing.assert_array_equal(db["author.feature"][COUNTS["author"] :], np.concatenate([x, np.zeros((1, DIMS["author"]))]))
            self.assertEqual([len(t.ranges) for t in other.node_types], [1, 1, 1])
            new = {t.name: t for t in other.node_types}
            for type_ in db.node_types:
                ids, new_ids = (t.ids(np.arange(type_.num_nodes)) for t in (type_, new[type_.name]))
                np.testing.assert_array_equal(db["label"][ids], other["label"][new_ids])
                np.testing.assert_array_equal(db["split"][ids], other["split"][new_ids])
                if type_.feature_table:
                    np.testing.assert_array_equal(db[type_.feature_table][:], other[type_.feature_table][:])
            for edge_type in EDGES:
                self.assertEqual(self.edges_of(db, edge_type), self.edges_of(other, edge_type))

    def edges_of(self, db, edge_type):
        relation, of, to = db._edge_type(edge_type)
        rows = np.concatenate([part.copy() for _, part in db._edges_in_parts()])
        rows = rows[rows[:, 1] == relation]
        return sorted(zip(of.numbers(rows[:, 0]).tolist(), to.numbers(rows[:, 2]).tolist()))


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
                    self.db.add_nodes(count=2, edges=edges, weights=weights, edge_type=name)
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
