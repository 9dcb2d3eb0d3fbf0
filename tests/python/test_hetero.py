"""Graphs with types: import, SQL and streams with NumPy alone; from_pyg and quarry.pyg.Loader against what PyG documents of
HeteroData batches, where torch and torch_geometric are there."""

import importlib.util
import shutil
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np

import quarry

_TORCH = importlib.util.find_spec("torch_geometric") is not None
NODES = {"paper": 300, "author": 200, "field_of_study": 40}
DIMS = {"paper": 12, "author": 7}  # fields have no features
EDGES = {
    ("author", "writes", "paper"): 900,
    ("author", "reviews", "paper"): 300,  # a second relation between the same types
    ("paper", "cites", "paper"): 1500,
    ("paper", "rev_writes", "author"): 900,
    ("paper", "has_topic", "field_of_study"): 500,
    ("field_of_study", "rev_has_topic", "paper"): 500,
}


def typed_arrays(seed: int = 1) -> dict:
    rng = np.random.default_rng(seed)
    edges = {}
    for (source, name, destination), count in EDGES.items():
        pairs = np.stack([rng.integers(0, NODES[source], count), rng.integers(0, NODES[destination], count)])
        edges[source, name, destination] = np.unique(pairs, axis=1)
    labels = rng.integers(0, 5, NODES["paper"])
    labels[::20] = -1
    split = rng.integers(0, 4, NODES["paper"])
    return {
        "x": {name: rng.standard_normal((NODES[name], dim), dtype=np.float32) for name, dim in DIMS.items()},
        "edges": edges,
        "labels": labels,
        "masks": {name: split == i + 1 for i, name in enumerate(("train", "val", "test"))},
    }


def write_folder(folder: Path, graph: dict) -> None:
    for name, count in NODES.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "metadata.yaml").write_text(f"num_nodes: {count}\n")
        if name in graph["x"]:
            np.save(folder / name / "features.npy", graph["x"][name])
    np.save(folder / "paper/labels.npy", graph["labels"])
    for name, mask in graph["masks"].items():
        np.save(folder / f"paper/{name}_mask.npy", mask)
    for edge_type, pairs in graph["edges"].items():
        (folder / "__".join(edge_type)).mkdir()
        np.save(folder / "__".join(edge_type) / "edge_index.npy", pairs)


class TypedTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="quarry-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.graph = typed_arrays()
        self.path = self.folder / "typed.db"
        self.make()
        self.db = quarry.open(self.path, memory="256MiB")
        self.addCleanup(lambda: self.db.close())
        self.first = {type_.name: type_.first for type_ in self.db.node_types}

    def make(self) -> None:
        write_folder(self.folder / "set", self.graph)
        quarry.import_(self.path, self.folder / "set", progress=False)


class TypedDatabaseTest(TypedTest):
    def test_types_are_listed(self):
        self.assertEqual({type_.name: type_.num_nodes for type_ in self.db.node_types}, NODES)
        self.assertEqual({type_.name: type_.dim for type_ in self.db.node_types if type_.dim}, DIMS)
        self.assertEqual({type_.name: type_.num_classes for type_ in self.db.node_types}["paper"], 5)
        self.assertEqual(sorted(self.db.edge_types), sorted(EDGES))
        self.assertEqual(self.db.num_nodes, sum(NODES.values()))
        np.testing.assert_array_equal(self.db["paper.feature"][[5, 0, 5]], self.graph["x"]["paper"][[5, 0, 5]])
        self.assertEqual(self.db.verify(progress=False)["faults"], [])

    def test_sql_shows_types(self):
        sql = self.db.sql
        self.assertEqual(dict(sql("SELECT type, count(*) FROM nodes GROUP BY type")), NODES)
        counts = {":".join(edge_type): pairs.shape[1] for edge_type, pairs in self.graph["edges"].items()}
        self.assertEqual(dict(sql("SELECT type, count(*) FROM edges GROUP BY type")), counts)
        self.assertEqual(dict(sql("SELECT source || ':' || name || ':' || destination, count FROM edge_types")), counts)
        self.assertEqual(dict(sql("SELECT name, id FROM relations")), dict(sql("SELECT source || ':' || name || ':' || destination, relation FROM edge_types")))
        # A row of a type's table has the id of its node.
        ids = [row[0] for row in sql('SELECT n.id FROM nodes n JOIN features f ON f.id = n.id WHERE n.type = ?1 AND f."table" = ?2', ["author", "author.feature"])]
        self.assertEqual(sorted(ids), list(range(self.first["author"], self.first["author"] + NODES["author"])))
        row = sql("SELECT feature FROM features WHERE id = ?1", [self.first["paper"] + 7]).fetchone()
        np.testing.assert_array_equal(np.frombuffer(row[0], np.float32), self.graph["x"]["paper"][7])
        # Edges of two relations between the same nodes are two rows, whichever way they are found.
        writes, reviews = self.graph["edges"]["author", "writes", "paper"], self.graph["edges"]["author", "reviews", "paper"]
        both = sorted(set(map(tuple, writes.T)) & set(map(tuple, reviews.T)))
        self.assertTrue(both)
        author, paper = (int(both[0][0]) + self.first["author"], int(both[0][1]) + self.first["paper"])
        found = sql("SELECT relation FROM edges WHERE (src = ?1 AND dst = ?2) OR (dst = ?2 AND src = ?1)", [author, paper]).fetchall()
        self.assertEqual(len(found), 2)

    def test_rows_of_a_type_are_changed_by_the_ids_of_their_nodes(self):
        row = np.full(DIMS["author"], 2, np.float32)
        self.db.sql("INSERT OR REPLACE INTO features (id, \"table\", feature) VALUES (?1, 'author.feature', ?2)", [self.first["author"] + 3, row.tobytes()], write=True)
        np.testing.assert_array_equal(self.db["author.feature"][3], row)
        with self.assertRaisesRegex(quarry.Error, f"rows of nodes of type \"author\", and node {self.first['author'] - 1} is none"):
            self.db.sql("INSERT OR REPLACE INTO features (id, \"table\", feature) VALUES (?1, 'author.feature', ?2)", [self.first["author"] - 1, row.tobytes()], write=True)

    def test_streams_draw_by_type(self):
        relations = len(EDGES)
        with self.db.stream([6, 2], 32, relation_fanouts=[1] * relations + [0] * (relations - 1) + [2], edge_ids=True) as stream:
            edges = self.db.edges()
            for batch in stream.epoch(np.arange(NODES["paper"]) + self.first["paper"]):
                np.testing.assert_array_equal(edges[0, batch.edge_ids], batch.nodes[batch.indices])
                self.assertIsNone(batch.x, "rows are of several tables")
        with self.db.stream([6], 32, relation_fanouts=[1] * relations, fresh=True) as stream:
            seeds = [seed for batch in stream.epoch("train") for seed in batch.seeds.tolist()]
        self.assertEqual(sorted(seeds), (np.flatnonzero(self.graph["masks"]["train"] & (self.graph["labels"] >= 0)) + self.first["paper"]).tolist())
        with self.assertRaisesRegex(quarry.Error, "1 hops of 6 types take 6"):
            self.db.stream([6], 32, relation_fanouts=[1])

    def edges_now(self) -> dict:
        """By type, as ids of the types, sorted."""
        rows = np.array(list(self.db.sql("SELECT src, dst, relation FROM edges")), np.int64)
        found = {}
        for number, edge_type in enumerate(self.db.edge_types):
            pairs = rows[rows[:, 2] == number, :2].T - np.array([[self.first[edge_type[0]]], [self.first[edge_type[2]]]])
            found[edge_type] = set(map(tuple, pairs.T.tolist()))
        return found

    def test_edges_of_a_type_come_and_go(self) -> None:
        model = {edge_type: set(map(tuple, pairs.T.tolist())) for edge_type, pairs in self.graph["edges"].items()}
        self.assertEqual(self.edges_now(), model)
        rng = np.random.default_rng(3)
        for step in range(6):
            edge_type = list(EDGES)[rng.integers(len(EDGES))]
            source, name, destination = edge_type
            new = np.stack([rng.integers(0, NODES[source], 40), rng.integers(0, NODES[destination], 40)])
            new = np.array([pair for pair in np.unique(new, axis=1).T.tolist() if tuple(pair) not in model[edge_type]]).T
            done = self.db.add_edges(new, type=edge_type if step % 2 == 0 else ":".join(edge_type))
            self.assertEqual(done["added"], new.shape[1])
            model[edge_type] |= set(map(tuple, new.T.tolist()))
            gone = np.array(sorted(model[edge_type]))[::7].T
            done = self.db.remove_edges(gone, type=name)
            self.assertEqual((done["removed"], done["absent"]), (gone.shape[1], 0))
            model[edge_type] -= set(map(tuple, gone.T.tolist()))
            self.assertEqual(self.edges_now(), model)
        done = self.db.remove_nodes([5, 7], type="author")
        before = sum(map(len, model.values()))
        for (source, name, destination), pairs in model.items():
            model[source, name, destination] = {
                (u, v) for u, v in pairs if not (source == "author" and u in (5, 7)) and not (destination == "author" and v in (5, 7))
            }
        self.assertEqual((done["nodes_removed"], done["removed"]), (2, before - sum(map(len, model.values()))))
        self.assertFalse(self.db["author.feature"][5].any())
        self.db.compact(progress=False)
        self.assertEqual(self.edges_now(), model)
        self.assertEqual(
            {(s, n, d): count for s, n, d, count in self.db.sql("SELECT source, name, destination, count FROM edge_types")},
            {edge_type: len(pairs) for edge_type, pairs in model.items()},
        )

    def test_what_edges_of_types_are_refused(self) -> None:
        pair = np.array([[0], [0]])
        with self.assertRaisesRegex(quarry.UsageError, "which relation"):
            self.db.add_edges(pair)
        with self.assertRaisesRegex(quarry.NotFound, "no relation 'likes'"):
            self.db.add_edges(pair, type="likes")
        with self.assertRaisesRegex(quarry.InvalidArgument, "nodes of type 'author' from 200 to 200"):
            self.db.add_edges(np.array([[200], [0]]), type=("author", "writes", "paper"))
        with self.assertRaisesRegex(quarry.NotFound, "no type of nodes 'editor'"):
            self.db.remove_nodes([1], type="editor")
        with self.assertRaisesRegex(quarry.InvalidArgument, "its nodes have types, and none is given"):
            self.db.add_nodes(count=3)


class EdgePlacesTest(unittest.TestCase):
    def test_places_are_those_of_a_count(self):
        from quarry.pyg._hetero import EdgePlaces

        rng = np.random.default_rng(3)
        for edges in (1, 63, 64, 65, 1000, 5000):
            for part in (64, 320, 8192):
                relations = rng.integers(0, 3, edges) if edges % 2 else np.sort(rng.integers(0, 3, edges))  # together, too
                for relation in range(3):
                    places = EdgePlaces(edges)
                    for first in range(0, edges, part):
                        places.add(first, relations[first : first + part] == relation)
                    places.end()
                    columns = np.flatnonzero(relations == relation)
                    self.assertEqual(places.count, len(columns))
                    order = rng.permutation(len(columns))
                    np.testing.assert_array_equal(places.of(columns[order]), order)


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class HeteroDatabaseTest(TypedTest):
    """With the HeteroData that the database is made of as self.data."""

    def make(self) -> None:
        import torch
        from torch_geometric.data import HeteroData

        self.data = HeteroData()
        for name, count in NODES.items():
            self.data[name].num_nodes = count
            if name in self.graph["x"]:
                self.data[name].x = torch.from_numpy(self.graph["x"][name])
        self.data["paper"].y = torch.from_numpy(self.graph["labels"])
        for name, mask in self.graph["masks"].items():
            self.data["paper"][f"{name}_mask"] = torch.from_numpy(mask)
        for edge_type, pairs in self.graph["edges"].items():
            self.data[edge_type].edge_index = torch.from_numpy(pairs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quarry.from_pyg(self.data, self.path, progress=False)

    def setUp(self) -> None:
        super().setUp()
        from quarry.pyg import Loader

        self.Loader = Loader
        self.sets = {edge_type: set(map(tuple, pairs.T)) for edge_type, pairs in self.graph["edges"].items()}
        self.degrees = {edge_type: np.bincount(pairs[1], minlength=NODES[edge_type[2]]) for edge_type, pairs in self.graph["edges"].items()}
        labelled = self.graph["masks"]["train"] & (self.graph["labels"] >= 0)
        self.train = np.flatnonzero(labelled)


class HeteroTest(HeteroDatabaseTest):
    def check(self, batch, nodes, fanouts, seed_type="paper"):
        """One batch against the arrays: all types, rows, edges, and as many of each type as its fanout says."""
        from torch_geometric.data import HeteroData

        self.assertIsInstance(batch, HeteroData)
        self.assertEqual(batch.node_types, self.data.node_types)
        self.assertEqual(batch.edge_types, self.data.edge_types)
        ids = {name: batch[name].n_id.numpy() for name in NODES}
        for name in NODES:
            store = batch[name]
            self.assertEqual(len(np.unique(ids[name])), len(ids[name]))
            self.assertEqual(store.num_nodes, len(ids[name]))
            self.assertEqual(sum(store.num_sampled_nodes), len(ids[name]))
            self.assertEqual("x" in store, name in DIMS)
            if name in DIMS:
                np.testing.assert_array_equal(store.x.numpy(), self.graph["x"][name][ids[name]])
        seeds = batch[seed_type]
        self.assertEqual(seeds.batch_size, len(seeds.input_id))
        np.testing.assert_array_equal(ids[seed_type][: seeds.batch_size], np.asarray(nodes)[seeds.input_id.numpy()])
        self.assertEqual([batch[name].num_sampled_nodes[0] for name in NODES if name != seed_type], [0] * (len(NODES) - 1))
        if seed_type == "paper":
            np.testing.assert_array_equal(seeds.y.numpy(), self.graph["labels"][ids["paper"][: seeds.batch_size]])
        for edge_type in EDGES:
            source, _, destination = edge_type
            store = batch[edge_type]
            rows, columns = store.edge_index.numpy()
            pairs = list(zip(ids[source][rows].tolist(), ids[destination][columns].tolist()))
            self.assertTrue(set(pairs) <= self.sets[edge_type], edge_type)
            self.assertEqual(len(set(pairs)), len(pairs), "drawn without replacement")
            self.assertEqual(sum(store.num_sampled_edges), len(pairs))
            # Nodes that hop k - 1 found are given as many neighbors as the fanout of hop k, or as they have.
            bounds = np.cumsum([0, *batch[destination].num_sampled_nodes])
            first = 0
            for hop, count in enumerate(store.num_sampled_edges):
                given = np.bincount(columns[first : first + count], minlength=len(ids[destination]))
                inside = np.zeros(len(ids[destination]), bool)
                inside[bounds[hop] : bounds[hop + 1]] = True
                self.assertTrue(np.all(given[~inside] == 0))
                np.testing.assert_array_equal(given[inside], np.minimum(self.degrees[edge_type][ids[destination][inside]], fanouts[edge_type][hop]))
                first += count

    def test_from_pyg_keeps_all_of_it(self):
        self.assertEqual([type_.name for type_ in self.db.node_types], self.data.node_types)
        self.assertEqual(self.db.edge_types, self.data.edge_types)
        relation = {edge_type: i for i, edge_type in enumerate(self.db.edge_types)}
        rows = self.db.sql("SELECT relation, src, dst FROM edges").fetchall()
        for edge_type, i in relation.items():
            shift = (self.first[edge_type[0]], self.first[edge_type[2]])
            found = {(src - shift[0], dst - shift[1]) for number, src, dst in rows if number == i}
            self.assertEqual(found, self.sets[edge_type])
        for name in DIMS:
            np.testing.assert_array_equal(self.db[f"{name}.feature"][:], self.graph["x"][name])

    def test_batches_are_those_of_neighbor_loader(self):
        fanouts = {edge_type: [i % 4, (i + 1) % 3 + 1] for i, edge_type in enumerate(EDGES)}
        loader = self.Loader(self.db, fanouts, 32, ("paper", "train"), shuffle=True, cache="20%")
        self.assertEqual((len(loader), loader.num_seeds), (-(-len(self.train) // 32), len(self.train)))
        epochs = [list(loader), list(loader)]
        for epoch in epochs:
            for batch in epoch:
                self.check(batch, self.train, fanouts)
            seen = np.concatenate([batch["paper"].input_id.numpy() for batch in epoch])
            np.testing.assert_array_equal(np.sort(seen), np.arange(len(self.train)))
        self.assertFalse(np.array_equal(epochs[0][0]["paper"].n_id, epochs[1][0]["paper"].n_id), "another order every epoch")
        self.assertIn("'paper'", repr(loader))

    def test_all_neighbors_of_each_type(self):
        writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
        for given in ([-1, -1], [-1, 2], {writes: [-1, 2], cites: [3, -1]}):
            fanouts = {edge_type: given.get(edge_type, [0, 0]) if isinstance(given, dict) else given for edge_type in EDGES}
            for batch in self.Loader(self.db, given, 64, ("paper", "test"), edge_ids=True):
                self.check(batch, np.flatnonzero(self.graph["masks"]["test"]), {edge_type: [1024 if f == -1 else f for f in hops] for edge_type, hops in fanouts.items()})
                ids = np.concatenate([batch[edge_type].e_id.numpy() for edge_type in EDGES])
                self.assertEqual(len(np.unique(ids)), len(ids), "each edge once")
        with self.assertRaisesRegex(quarry.InvalidArgument, "all neighbors, with replacement"):
            list(self.Loader(self.db, [-1], 64, ("paper", "test"), replace=True))

    def test_attributes_of_edges_are_by_type(self):
        import torch

        from quarry.pyg import GraphStore

        given, attrs, number = {}, {}, {}
        for i, (edge_type, pairs) in enumerate(self.graph["edges"].items()):
            if i % 3 == 2:
                continue  # not all types have some
            given[edge_type] = torch.rand(pairs.shape[1], 2)  # in the order of the arrays
            number[edge_type] = {tuple(edge): at for at, edge in enumerate(pairs.T.tolist())}
            places = self.db.edge_ids(pairs, edge_type=edge_type)
            np.testing.assert_array_equal(np.stack(GraphStore(self.db).get_edge_index(edge_type, "coo"))[:, places], pairs)
            by_place = torch.empty_like(given[edge_type])
            by_place[places] = given[edge_type]
            np.save(self.folder / f"attrs-{i}.npy", by_place.numpy())
            attrs[edge_type] = {"edge_attr": by_place, "mapped": np.load(self.folder / f"attrs-{i}.npy", mmap_mode="r")}
        for batch in self.Loader(self.db, [4, 3], 64, ("paper", "train"), shuffle=True, edge_attrs=attrs):
            for edge_type in EDGES:
                store = batch[edge_type]
                self.assertEqual("edge_attr" in store, edge_type in attrs)
                if edge_type not in attrs:
                    continue
                ends = np.stack([batch[edge_type[0]].n_id[store.edge_index[0]], batch[edge_type[2]].n_id[store.edge_index[1]]])
                expected = given[edge_type][[number[edge_type][tuple(edge)] for edge in ends.T.tolist()]]
                torch.testing.assert_close(store.edge_attr, expected)
                torch.testing.assert_close(store.mapped, expected)
        cites = ("paper", "cites", "paper")
        for wrong, why in (
            ({cites: {"a": [0]}}, f"'a' of .*'cites'.* has 1 rows for {self.graph['edges'][cites].shape[1]} edges"),
            ({"a": np.zeros(3)}, "arrays by type of edges, as .*{'a': array}"),
            ({("paper", "writes", "author"): {"a": [0]}}, "a type of edges is wanted"),
        ):
            with self.assertRaisesRegex(quarry.UsageError, why):
                self.Loader(self.db, [2], input_nodes=("paper", None), edge_attrs=wrong)
        with self.assertRaisesRegex(quarry.NotFound, "no edges of type .*'writes', 'author'"):
            self.db.edge_ids([[1], [1]], edge_type=("paper", "writes", "author"))
        with self.assertRaisesRegex(quarry.NotFound, "no edge from 199 to 3, column 1"):
            writes = self.graph["edges"]["author", "writes", "paper"]
            absent = [[writes[0, 0], 199], [writes[1, 0], 3]]
            self.assertNotIn((199, 3), self.sets["author", "writes", "paper"])
            self.db.edge_ids(absent, edge_type=("author", "writes", "paper"))

    def test_seeds_are_named_in_every_way(self):
        fanouts = dict.fromkeys(EDGES, [3, 2])
        ids = np.array([70, 3, 199, 5])
        for input_nodes, seed_type, nodes in (
            ("train", "paper", self.train),
            (("paper", "valid"), "paper", np.flatnonzero(self.graph["masks"]["val"])),
            ("field_of_study", "field_of_study", np.arange(NODES["field_of_study"])),
            (("author", None), "author", np.arange(NODES["author"])),
            (("author", ids), "author", ids),
            (("paper", self.graph["masks"]["test"]), "paper", np.flatnonzero(self.graph["masks"]["test"])),
        ):
            with self.subTest(input_nodes=input_nodes):
                batches = list(self.Loader(self.db, [3, 2], 64, input_nodes))
                for batch in batches:
                    self.check(batch, nodes, fanouts, seed_type)
                in_order = np.concatenate([batch[seed_type].input_id.numpy() for batch in batches])
                np.testing.assert_array_equal(in_order, np.arange(len(nodes)))

    def test_types_left_out_are_not_followed_and_edges_have_ids(self):
        wanted = ("author", "writes", "paper")
        edges = self.db.edges()
        for batch in self.Loader(self.db, {wanted: [5, 5]}, 50, ("paper", "test"), edge_ids=True):
            for edge_type in EDGES:
                store = batch[edge_type]
                self.assertEqual(store.edge_index.shape[1] > 0, edge_type == wanted)
                rows, columns = store.edge_index
                source, destination = batch[edge_type[0]].n_id[rows] + self.first[edge_type[0]], batch[edge_type[2]].n_id[columns] + self.first[edge_type[2]]
                np.testing.assert_array_equal(edges[:, store.e_id.numpy()], np.stack([source, destination]))

    def test_a_feature_store_has_attributes_by_type(self):
        import torch
        from torch_geometric.loader.utils import filter_custom_hetero_store

        from quarry.pyg import FeatureStore, GraphStore

        store = FeatureStore(self.db)
        of_papers = ["x", "y", "train_mask", "val_mask", "test_mask"]
        expected = {(name, attribute): self.data[name][attribute] for name in DIMS for attribute in (of_papers if name == "paper" else ["x"])}
        self.assertEqual({(attr.group_name, attr.attr_name) for attr in store.get_all_tensor_attrs()}, set(expected))
        for (name, attribute), values in expected.items():
            self.assertEqual(store.get_tensor_size(name, attribute, None), tuple(values.shape))
            for index in (None, slice(3, 30, 4), torch.tensor([7, 0, 7]), 5, torch.arange(len(values)) % 3 == 0):
                with self.subTest(name=name, attribute=attribute, index=index):
                    self.assertTrue(torch.equal(store[name, attribute, index], values[slice(None) if index is None else index]))
        for wrong in (("field_of_study", "x"), ("author", "y"), (None, "x")):
            with self.assertRaisesRegex(KeyError, "group 'paper' has .*y"):
                store.get_tensor(*wrong, index=None)
        # What PyG's own loaders make of a sample: the rows that a batch of the engine's has.
        (batch,) = self.Loader(self.db, [4, 3], 300, ("paper", None), edge_ids=True)
        ids = {name: batch[name].n_id for name in NODES}
        parts = [{edge_type: part(batch[edge_type]) for edge_type in EDGES} for part in (lambda b: b.edge_index[0], lambda b: b.edge_index[1], lambda b: b.e_id)]
        theirs = filter_custom_hetero_store(FeatureStore(self.db, attrs=["x", "y"]), GraphStore(self.db), ids, *parts)
        for name in DIMS:
            self.assertTrue(torch.equal(theirs[name].x, batch[name].x))
        self.assertTrue(torch.equal(theirs["paper"].y[: batch["paper"].batch_size], batch["paper"].y))
        # Rows change by the ids of their type.
        rows = torch.rand(2, DIMS["author"])
        self.assertTrue(store.put_tensor(rows, "author", "x", torch.tensor([199, 4])))
        self.assertTrue(store.put_tensor(torch.tensor([3]), "paper", "y", torch.tensor([11])))
        expected["author", "x"][[199, 4]] = rows
        expected["paper", "y"][11] = 3
        for (name, attribute), values in expected.items():
            self.assertTrue(torch.equal(store[name, attribute, None], values), (name, attribute))

    def test_targets_are_by_type(self):
        import torch

        from quarry.pyg import FeatureStore, NodeLoader

        rng, data = np.random.default_rng(4), self.data.clone()
        targets = {name: torch.from_numpy(rng.standard_normal((NODES[name], 2), dtype=np.float32)) for name in ("author", "field_of_study")}
        targets["author"][5] = torch.nan
        for name, values in targets.items():
            data[name].y = values
        quarry.from_pyg(data, self.folder / "targets.db", progress=False)
        with quarry.open(self.folder / "targets.db", memory="256MiB") as db:
            expected = np.concatenate([targets[name] if name in targets else np.full((NODES[name], 2), np.nan) for name in NODES])
            np.testing.assert_array_equal(db["target"][:], expected)
            self.assertEqual(db.verify(progress=False)["faults"], [])
            for name, values in targets.items():
                for batch in self.Loader(db, [3, 2], 64, (name, None)):
                    seeds = batch[name].n_id[: batch[name].batch_size]
                    self.assertEqual(batch[name].y.dtype, torch.float32)
                    torch.testing.assert_close(batch[name].y, values[seeds], equal_nan=True)
            with db.snapshot() as before:
                db.put([self.first["author"] + 7], target=np.full((1, 2), 8, np.float32))
                (old,) = self.Loader(db, [2], 64, ("author", [7]), snapshot=before)
            (new,) = self.Loader(db, [2], 64, ("author", [7]))
            torch.testing.assert_close(old["author"].y, targets["author"][[7]])
            self.assertEqual(new["author"].y.tolist(), [[8, 8]])
            targets["author"][7] = 8
            for batch in self.Loader(db, [3, 2], 64, "train"):
                np.testing.assert_array_equal(batch["paper"].y, self.graph["labels"][batch["paper"].n_id[: batch["paper"].batch_size]])
            store = FeatureStore(db)
            for name, values in targets.items():
                torch.testing.assert_close(store[name, "y", None], values, equal_nan=True)
            np.testing.assert_array_equal(store["paper", "y", None], self.graph["labels"])
            for batch in NodeLoader(db, [3, 2], "train", batch_size=64):
                torch.testing.assert_close(batch["author"].y, targets["author"][batch["author"].n_id], equal_nan=True)
        for name in targets:
            del data[name].y
        data["paper"].y = torch.rand(NODES["paper"])
        quarry.from_pyg(data, self.folder / "fractions.db", progress=False)
        with quarry.open(self.folder / "fractions.db", memory="256MiB") as db:
            for batch in self.Loader(db, [3, 2], 64, "train", shuffle=True):
                papers = batch["paper"]
                torch.testing.assert_close(papers.y, data["paper"].y[papers.n_id[: papers.batch_size], None])

    def test_types_may_be_without_features(self):
        import torch

        for kept in (["author"], []):
            data = self.data.clone()
            for name in DIMS:
                if name not in kept:
                    del data[name].x
            path = self.folder / f"bare{len(kept)}.db"
            quarry.from_pyg(data, path, progress=False)
            with quarry.open(path, memory="256MiB") as db:
                for one, other in zip(*(list(self.Loader(of, [3, 2], 64, ("paper", None), seed=3)) for of in (db, self.db)), strict=True):
                    for name in NODES:
                        self.assertTrue(torch.equal(one[name].n_id, other[name].n_id))
                        self.assertEqual("x" in one[name], name in kept)
                        if name in kept:
                            self.assertTrue(torch.equal(one[name].x, other[name].x))

    def test_a_graph_store_has_edges_by_type(self):
        import unittest.mock

        from quarry.pyg import GraphStore

        all_edges = self.db.edges().astype(np.int64)
        for at_a_time in (1 << 20, 97):
            with unittest.mock.patch("quarry._database._EDGES_AT_A_TIME", at_a_time):
                store = GraphStore(self.db)
                self.assertEqual({attr.edge_type: attr.size for attr in store.get_all_edge_attrs()}, {edge_type: (NODES[edge_type[0]], NODES[edge_type[2]]) for edge_type in EDGES})
                coo, csc, csr = store.coo(), store.csc(), store.csr()
                for edge_type, pairs in self.graph["edges"].items():
                    (row, col, ids), (rows, colptr, perm), (rowptr, cols, by_source) = ([part[edge_type] for part in layout] for layout in (coo, csc, csr))
                    self.assertEqual(sorted(zip(row.tolist(), col.tolist())), sorted(map(tuple, pairs.T)))
                    self.assertTrue(np.all(np.diff(col) >= 0))
                    first = np.array([[self.first[edge_type[0]]], [self.first[edge_type[2]]]])
                    for order, ends in ((ids, np.stack([row, col])), (perm, np.stack([row, col])), (by_source, np.stack([np.repeat(np.arange(len(rowptr) - 1), np.diff(rowptr)), cols]))):
                        np.testing.assert_array_equal(all_edges[:, order.numpy()], ends + first)
                    np.testing.assert_array_equal(rows, row)
                    np.testing.assert_array_equal(colptr, np.searchsorted(col, np.arange(NODES[edge_type[2]] + 1)))
                    for one, other in zip(store[edge_type, "csc"], (rows, colptr), strict=True):
                        np.testing.assert_array_equal(one, other)
        with self.assertRaisesRegex(KeyError, "no edges of type None"):
            store.csc([None])
        with self.assertRaisesRegex(MemoryError, "1500 edges as|edges as csc"):
            GraphStore(self.db, limit="1KiB").csc()

    def test_matrices_and_weights_are_by_type(self):
        import torch

        data = self.data.clone()
        weights = {edge_type: torch.rand(pairs.shape[1]) for edge_type, pairs in self.graph["edges"].items()}
        for edge_type, values in weights.items():
            data[edge_type].edge_weight = values
        quarry.from_pyg(data, self.folder / "weights.db", progress=False)
        with quarry.open(self.folder / "weights.db", memory="256MiB") as db:
            stored = dict(db.sql("SELECT type, sum(weight) FROM edges GROUP BY type"))
        for edge_type, values in weights.items():
            self.assertAlmostEqual(stored[":".join(edge_type)], float(values.double().sum()), 3)
        options = {"batch_size": 64, "input_nodes": ("paper", "test"), "drop_last": True}
        loaders = [self.Loader(self.db, [4, 3], adj_t=adj_t, **options) for adj_t in (True, False)]
        batches, plain = (list(loader) for loader in loaders)  # first epochs of one seed: the same draws
        self.assertEqual([batch["paper"].batch_size for batch in batches], [64] * len(loaders[0]))
        self.assertGreater(len(batches), 0)
        for batch, other in zip(batches, plain, strict=True):
            for edge_type in EDGES:
                dense = torch.zeros(batch[edge_type[2]].num_nodes, batch[edge_type[0]].num_nodes)
                dense[tuple(other[edge_type].edge_index.flip(0))] = 1
                torch.testing.assert_close(batch[edge_type].adj_t.to_dense(), dense)
                self.assertNotIn("edge_index", batch[edge_type])

    def test_trim_to_layer_takes_the_counts(self):
        import torch
        from torch_geometric.nn import HeteroConv, SAGEConv
        from torch_geometric.utils import trim_to_layer

        torch.manual_seed(1)
        types = {edge_type: SAGEConv((-1, -1), 8) for edge_type in EDGES if edge_type[0] in DIMS and edge_type[2] in DIMS}
        layers = [HeteroConv(types), HeteroConv({edge_type: SAGEConv((-1, -1), 4) for edge_type in types})]

        def run(batch, trims):
            x, edge_index = {name: batch[name].x for name in DIMS}, {edge_type: batch[edge_type].edge_index for edge_type in types}
            nodes = {name: batch[name].num_sampled_nodes for name in DIMS}
            edges = {edge_type: batch[edge_type].num_sampled_edges for edge_type in types}
            for i, layer in enumerate(layers):
                if trims:
                    x, edge_index, _ = trim_to_layer(i, nodes, edges, x, edge_index)
                x = layer(x, edge_index)
            return x["paper"][: batch["paper"].batch_size]

        batch = next(iter(self.Loader(self.db, [4, 3], 64, ("paper", "test"))))
        torch.testing.assert_close(run(batch, True), run(batch, False))

    def test_what_does_not_fit_is_refused(self):
        Loader, db = self.Loader, self.db
        with self.assertRaisesRegex(quarry.UsageError, "no edges of type"):
            Loader(db, {("paper", "writes", "author"): [2]}, input_nodes=("paper", None))
        for bad in ([-2], [2000], [], {("paper", "cites", "paper"): [2], ("author", "writes", "paper"): [2, 2]}):
            with self.assertRaisesRegex(quarry.UsageError, "num_neighbors"):
                Loader(db, bad, input_nodes=("paper", None))
        for bad in (("venue", None), None, np.arange(3)):
            with self.assertRaisesRegex(quarry.UsageError, "a type of nodes"):
                Loader(db, [2], input_nodes=bad)
        with self.assertRaisesRegex(quarry.UsageError, "no valid nodes of this type"):
            Loader(db, [2], input_nodes=("author", "valid"))
        with self.assertRaises(quarry.Error):
            Loader(db, [2], input_nodes=("author", [200]))
        with self.assertRaisesRegex(NotImplementedError, "plan"):
            Loader(db, [2], input_nodes=("paper", None), plan=True)
        with self.assertRaisesRegex(quarry.Unsupported, "partitioning: .*sampled as they come"):
            Loader(db, [2], input_nodes=("paper", None), partitioning="default")
        for call in (lambda: db.plan([2], 64), lambda: db.stream([2], 64)):
            with self.assertRaisesRegex(quarry.Unsupported, "types of nodes and edges: .*quarry.pyg.Loader"):
                call()
        data = self.data.clone()
        data["a b"].num_nodes = 3
        with self.assertRaisesRegex(quarry.UsageError, "'a b'"):
            quarry.from_pyg(data, self.folder / "other.db", progress=False)
        data = self.data.clone()
        del data["paper"].y
        for name, columns in (("paper", 2), ("author", 3)):
            data[name].y = np.ones((NODES[name], columns), np.float32)
        with self.assertRaisesRegex(quarry.InvalidArgument, "targets of author.*are 3 x float32, those of type 'paper' 2 x float32"):
            quarry.from_pyg(data, self.folder / "other.db", progress=False)
        data = self.data.clone()
        data["author", "writes", "paper"].edge_index[0, 0] = 10**6
        with self.assertRaisesRegex(quarry.Error, "edges of author__writes__paper.*1000000 is out of range"):
            quarry.from_pyg(data, self.folder / "other.db", progress=False)
        self.assertFalse((self.folder / "other.db").exists())
        self.assertEqual([path.name for path in self.folder.iterdir() if "arrays" in path.name], [])


if __name__ == "__main__":
    unittest.main()
