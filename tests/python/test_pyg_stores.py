"""quarry.pyg.FeatureStore and GraphStore against the contracts of PyG's stores. Need torch and torch_geometric.

FeatureStoreTest restates test/data/test_feature_store.py of PyG, GraphStoreTest its test_graph_store.py. What differs:
a database has its attributes (x, y, masks) from the beginning, in the group None, by node id; new ones cannot be put,
and those that are there are not removed, only rows of theirs. Edges are not put or removed, and there is one type. An index
that is a NumPy array has one element: PyG's TensorAttr (2.8) compares it as a truth value.
"""

import importlib.util
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import quarry
from quarry.pyg._memory import available_bytes
from small_graph import DIM, NODES, DatabaseTest

_TORCH = importlib.util.find_spec("torch_geometric") is not None
if _TORCH:
    import torch
    from torch_geometric.data import EdgeAttr, TensorAttr
    from torch_geometric.data.feature_store import AttrView, _FieldStatus

    from quarry.pyg import EDGE, FeatureStore, GraphStore


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class FeatureStoreTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        self.store = FeatureStore(self.db)
        self.x = torch.from_numpy(self.graph["features"])
        self.y = torch.from_numpy(self.graph["labels"])
        self.ids = torch.tensor([7, 0, 499, 7])

    def mask(self, split):
        mask = torch.zeros(NODES, dtype=torch.bool)
        mask[self.graph[split]] = True
        return mask

    def assert_equal(self, got, wanted):
        self.assertIsInstance(got, torch.Tensor)
        self.assertEqual(got.dtype, wanted.dtype)
        self.assertTrue(torch.equal(got, wanted))

    def test_every_attribute_by_every_kind_of_index(self):
        wanted = {"x": self.x, "y": self.y, "train_mask": self.mask("train"), "val_mask": self.mask("valid"), "test_mask": self.mask("test")}
        indices = (self.ids, self.ids.int(), np.array([7]), slice(None), slice(10, 400, 7), self.mask("valid"), torch.tensor([], dtype=torch.long), 3, -1, None)
        for name, whole in wanted.items():
            for index in indices:
                with self.subTest(name, index=index):
                    rows = whole if index is None else whole[index if not isinstance(index, torch.Tensor) or index.dtype == torch.bool else index.long()]
                    self.assert_equal(self.store.get_tensor(None, name, index), rows)
                    size = self.store.get_tensor_size(None, name, index)
                    self.assertEqual(size, tuple(rows.shape))
            self.assertEqual(self.store.get_tensor_size(None, name), tuple(whole.shape))
        self.assertIsInstance(self.store.get_tensor(None, "x", np.array([7]), convert_type=True), np.ndarray)
        self.assertIsNone(self.store.get_tensor_size(None, "nothing"))

    def test_forms_of_access(self):
        store, ids = self.store, self.ids
        attr = TensorAttr(None, "x", ids)
        self.assert_equal(store.get_tensor(attr), self.x[ids])
        view = store.view(group_name=None)
        view.attr_name = "x"
        view["index"] = ids
        self.assertEqual(view, AttrView(store, TensorAttr(None, "x", ids)))
        self.assertNotEqual(view, "not a view")
        self.assertIn(f"store=FeatureStore('{self.path}')", str(view))
        for got in (store[None, "x", ids], store[None, "x"][ids], store[TensorAttr(None)].x[ids], view()):
            self.assert_equal(got, self.x[ids])
        for got in (store[None, "x", None], store[None, "x", :], store[None, "x"][:], store[None, "x"]()):
            self.assert_equal(got, self.x)
        self.assertIsInstance(store[None, "x"], AttrView)
        with self.assertRaises(AttributeError):
            store.view(group_name=None, index=None).x.more
        with self.assertRaises(ValueError):
            store.get_tensor(None, "x")

    def test_attributes_without_a_group(self):
        class Attr(TensorAttr):
            def __init__(self, attr_name=_FieldStatus.UNSET, index=_FieldStatus.UNSET):
                super().__init__(None, attr_name, index)

        self.store._tensor_attr_cls = Attr
        for got in (self.store["x", self.ids], self.store["x"][self.ids]):
            self.assert_equal(got, self.x[self.ids])
        self.assert_equal(self.store["x", :], self.x)

    def test_what_is_not_there_is_a_key_error_that_says_what_is(self):
        for group, name in ((None, "z"), ("paper", "x"), (EDGE, "edge_attr")):
            with self.assertRaisesRegex(KeyError, "attribute"):
                self.store.get_tensor(group, name, None)
        with self.assertRaisesRegex(quarry.NotFound, "'z' of nodes; group None has .*x"):
            self.store.get_tensor(None, "z", None)
        with self.assertRaises(quarry.NotFound):
            FeatureStore(self.db, attrs=["x", "z"])
        with self.assertRaises(quarry.InvalidArgument):
            self.store.get_tensor(None, "x", torch.tensor([NODES]))

    def test_attributes_of_one_batch_are_one_read_of_each_table(self):
        attrs = self.store.get_all_tensor_attrs()
        self.assertEqual({attr.attr_name for attr in attrs}, {"x", "y", "train_mask", "val_mask", "test_mask"})
        for attr in attrs:
            self.assertFalse(attr.is_set("index"))
            attr.index = self.ids
        self.assertFalse(any(attr.is_set("index") for attr in self.store.get_all_tensor_attrs()), "others at every call")
        lookup = quarry.Table._lookup
        with mock.patch.object(quarry.Table, "_lookup", autospec=True, side_effect=lookup) as read:
            tensors = self.store.multi_get_tensor(attrs)
        self.assertEqual(sorted(call.args[0].name for call in read.call_args_list), ["feature", "label", "split"])
        got = {attr.attr_name: tensor for attr, tensor in zip(attrs, tensors)}
        self.assert_equal(got["x"], self.x[self.ids])
        self.assert_equal(got["y"], self.y[self.ids])
        self.assert_equal(got["val_mask"], self.mask("valid")[self.ids])
        others = self.store.multi_get_tensor([TensorAttr(None, "x", self.ids), TensorAttr(None, "x", torch.tensor([1]))])
        self.assert_equal(others[1], self.x[[1]])
        self.assertEqual([attr.attr_name for attr in FeatureStore(self.db, attrs=["y", "x"]).get_all_tensor_attrs()], ["y", "x"])

    def test_put_and_update_change_rows(self):
        rows = torch.rand(2, DIM)
        for write in (self.store.put_tensor, self.store.update_tensor):
            rows = rows + 1
            self.assertTrue(write(rows, None, "x", torch.tensor([3, 9])))
            self.x[[3, 9]] = rows
            self.assert_equal(self.store[None, "x", :], self.x)
        self.store[None, "x", slice(20, 22)] = rows
        self.store.put_tensor(rows[0], None, "x", 5)
        self.x[20:22], self.x[5] = rows, rows[0]
        self.assert_equal(self.store[None, "x", :], self.x)
        self.store[None, "x", None] = self.x * 2
        self.assert_equal(self.store[None, "x", :], self.x * 2)
        self.store.put_tensor(np.array([2, 3]), None, "y", torch.tensor([1, 0]))
        self.assertEqual(self.store[None, "y", torch.tensor([0, 1])].tolist(), [3, 2])

    def test_a_mask_moves_nodes_between_splits(self):
        train, valid = self.mask("train"), self.mask("valid")
        ids = torch.cat([torch.from_numpy(self.graph["train"][:4]), torch.from_numpy(self.graph["valid"][:2])])
        self.store.put_tensor(torch.tensor([True, True, False, False, True, False]), None, "train_mask", ids)
        train[ids[2:4]], train[ids[4]], valid[ids[4]] = False, True, False
        self.assert_equal(self.store[None, "train_mask", :], train)
        self.assert_equal(self.store[None, "val_mask", :], valid)
        for wrong in (torch.ones(6), torch.ones(5, dtype=torch.bool)):
            with self.assertRaisesRegex(quarry.UsageError, "bool \\[6\\]"):
                self.store.put_tensor(wrong, None, "train_mask", ids)

    def test_removing_deletes_rows_and_no_table(self):
        ids = torch.from_numpy(self.graph["test"][:2])
        for name, empty in (("x", torch.zeros(2, DIM)), ("y", torch.tensor([-1, -1])), ("test_mask", torch.tensor([False, False]))):
            self.assertTrue(self.store.remove_tensor(None, name, ids))
            self.assert_equal(self.store[None, name, ids], empty)
        for remove in (lambda: self.store.remove_tensor(None, "x", None), lambda: self.store.__delitem__((None, "x"))):
            with self.assertRaisesRegex(quarry.Unsupported, "not dropped"):
                remove()
        self.x[ids] = 0
        self.assert_equal(self.store[None, "x", :], self.x)

    def test_what_cannot_be_put_is_refused_and_changes_nothing(self):
        rows = torch.rand(2, DIM)
        ids = torch.tensor([1, 2])
        with self.db.snapshot() as snapshot:
            refused = (
                (self.store, rows, (None, "z", ids), quarry.Unsupported, "no table for attribute 'z'"),
                (self.store, rows, ("paper", "x", ids), quarry.Unsupported, "group 'paper'"),
                (self.store, rows, (EDGE, "edge_attr", ids), quarry.Unsupported, "caller's"),
                (FeatureStore(self.db, snapshot=snapshot), rows, (None, "x", ids), quarry.Unsupported, "snapshot"),
                (self.store, rows[:, 1:], (None, "x", ids), quarry.UsageError, "columns"),
                (self.store, rows[:1], (None, "x", ids), quarry.UsageError, "1 rows"),
                (self.store, rows, (None, "x", torch.tensor([1, 1])), quarry.UsageError, "twice"),
                (self.store, rows[:, 0], (None, "y", ids), quarry.UsageError, "integers"),
            )
            for store, tensor, attr, expected, words in refused:
                with self.subTest(words), self.assertRaisesRegex(expected, words):
                    store.put_tensor(tensor, *attr)
        self.assert_equal(self.store[None, "x", :], self.x)
        self.assert_equal(self.store[None, "y", :], self.y)

    def test_a_snapshot_is_read_as_it_was(self):
        with self.db.snapshot() as before:
            old = FeatureStore(self.db, snapshot=before)
            self.store.put_tensor(torch.zeros(1, DIM), None, "x", torch.tensor([7]))
            self.assert_equal(old[None, "x", self.ids], self.x[self.ids])
            self.assert_equal(self.store[None, "x", torch.tensor([7])], torch.zeros(1, DIM))

    def test_attributes_of_edges_are_arrays_by_edge_id(self):
        count = self.db.num_edges
        weights = np.arange(count, dtype=np.float32)
        np.save(self.folder / "weights.npy", weights)
        mapped = np.load(self.folder / "weights.npy", mmap_mode="r")
        pairs = torch.rand(count, 2)
        store = FeatureStore(self.db, edge_attrs={"edge_weight": mapped, "edge_attr": pairs})
        ids = torch.tensor([5, count - 1, 5])
        self.assert_equal(store[EDGE, "edge_weight", ids], torch.from_numpy(weights)[ids])
        self.assert_equal(store[EDGE, "edge_attr", ids], pairs[ids])
        self.assert_equal(store[EDGE, "edge_attr", :], pairs)
        self.assertEqual(store.get_tensor_size(EDGE, "edge_attr"), (count, 2))
        self.assertEqual([attr.attr_name for attr in store.get_all_edge_tensor_attrs()], ["edge_weight", "edge_attr"])
        self.assertFalse([attr for attr in store.get_all_tensor_attrs() if attr.group_name is not None], "PyG's loaders would index them by nodes")
        with self.assertRaisesRegex(quarry.UsageError, f"10 rows for {count} edges"):
            FeatureStore(self.db, edge_attrs={"edge_attr": pairs[:10]})

    def test_a_whole_table_that_does_not_fit_is_refused_with_the_figure(self):
        with mock.patch("quarry.pyg._stores.available_bytes", return_value=NODES * DIM * 4 - 1):
            with self.assertRaisesRegex(MemoryError, "'feature' take 31.2 KiB, and 31.2 KiB"):
                self.store.get_tensor(None, "x", None)
            self.assert_equal(self.store[None, "x", slice(0, 400)], self.x[:400])

    def test_rows_of_every_stored_type(self):
        for stored, dtype in (("float16", torch.float16), ("bfloat16", torch.float32), ("int8", torch.float32)):
            path = self.folder / f"{stored}.db"
            quarry.import_(path, **self.graph, feature_dtype=stored, progress=False)
            with quarry.open(path, memory="64MiB") as db:
                x = FeatureStore(db)[None, "x", self.ids]
                self.assertEqual(x.dtype, dtype)
                self.assertLess(float((x.float() - self.x[self.ids]).abs().max()), 0.05)


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class GraphStoreTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        self.store = GraphStore(self.db)
        self.edges = self.db.edges().astype(np.int64)

    def check(self, store, edges, nodes):
        """All layouts of `store` against the edges, by destination."""
        sources, targets = edges
        row, col = store[None, "coo"]
        np.testing.assert_array_equal(np.stack([row, col]), edges)
        row, colptr = store[None, "csc"]
        np.testing.assert_array_equal(row, sources)
        np.testing.assert_array_equal(colptr, np.searchsorted(targets, np.arange(nodes + 1)))
        by_source = np.argsort(sources, kind="stable")
        rowptr, col, perm = store.csr()
        np.testing.assert_array_equal(rowptr, np.searchsorted(sources[by_source], np.arange(nodes + 1)))
        np.testing.assert_array_equal(col, targets[by_source])
        np.testing.assert_array_equal(perm, by_source)
        for one, other in zip(store[None, "csr"], (rowptr, col), strict=True):
            self.assertTrue(torch.equal(one, other))
        self.assertEqual({part.dtype for part in (row, col, rowptr, colptr, perm)}, {torch.int64})

    def test_the_type_and_the_size_are_told_without_reading(self):
        (attr,) = self.store.get_all_edge_attrs()
        self.assertEqual((attr.edge_type, attr.layout.value, attr.is_sorted, attr.size), (None, "csc", True, (NODES, NODES)))
        self.assertIsNot(attr, self.store.get_all_edge_attrs()[0])
        self.assertEqual(str(self.store), f"GraphStore('{self.path}')")

    def test_every_layout_holds_every_edge(self):
        self.assertEqual(set(map(tuple, self.edges.T)), set(map(tuple, self.graph["edges"].T)))
        self.check(self.store, self.edges, NODES)
        with mock.patch("quarry._database._EDGES_AT_A_TIME", 97):
            self.check(self.store, self.edges, NODES)

    def test_nodes_without_edges_have_their_places(self):
        for name, edges in (("few", [[5, 5, 9], [2, 9, 2]]), ("none", [[], []])):
            path = self.folder / f"{name}.db"
            quarry.import_(path, edges=np.array(edges, np.int64), num_nodes=12, progress=False)
            with quarry.open(path, memory="64MiB") as db:
                self.check(GraphStore(db), db.edges().astype(np.int64), 12)
                self.assertEqual(db.num_edges, len(edges[0]))

    def test_conversions_are_those_of_pyg(self):
        row, col, perm = self.store.coo()
        self.assertIsNone(perm)
        np.testing.assert_array_equal(np.stack([row, col]), self.edges)
        row, colptr, perm = self.store.csc()
        self.assertIsNone(perm)
        self.assertEqual((len(row), len(colptr)), (self.db.num_edges, NODES + 1))
        rows, cols, perms = self.store.csr([None])
        self.assertEqual((list(rows), list(cols), list(perms)), ([None], [None], [None]))
        with self.assertRaises(KeyError):
            self.store.coo([("paper", "to", "paper")])
        with self.assertRaises(KeyError):
            self.store["paper", "coo"]

    def test_edges_are_not_written(self):
        coo = self.store[None, "coo"]
        for write in (
            lambda: self.store.put_edge_index(coo, None, "coo"),
            lambda: self.store.remove_edge_index(EdgeAttr(None, "coo")),
            lambda: self.store.coo(store=True),
        ):
            with self.assertRaises(quarry.Unsupported):
                write()
        self.check(self.store, self.edges, NODES)

    def test_what_does_not_fit_is_refused_with_the_figure_and_what_to_do(self):
        edges = self.db.num_edges
        for layout, wanted in (("coo", 16 * edges), ("csc", 8 * (edges + NODES + 1)), ("csr", 16 * (edges + NODES + 1))):
            with self.subTest(layout):
                self.assertEqual(len(GraphStore(self.db, limit=wanted)[None, layout]), 2)
                with self.assertRaisesRegex(MemoryError, f"{edges} edges as {layout} take .* are the limit.*db.edges"):
                    GraphStore(self.db, limit=wanted - 1)[None, layout]
        with mock.patch("quarry.pyg._stores.available_bytes", return_value=1 << 10):
            with self.assertRaisesRegex(quarry.OutOfBudget, "1.0 KiB of memory are free"):
                self.store.csc()


class MemoryTest(unittest.TestCase):
    def test_the_tightest_of_machine_and_cgroups_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            self.assertEqual(available_bytes(root), 1 << 62)
            (root / "proc/self").mkdir(parents=True)
            (root / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
            self.assertEqual(available_bytes(root), 8000 * 1024)
            (root / "proc/self/cgroup").write_text("0::/outer/inner\n")
            for group, most, used, cached in (("outer", "3000000", "1500000", 500000), ("outer/inner", "max", "1500000", 0)):
                at = root / "sys/fs/cgroup" / group
                at.mkdir(parents=True)
                (at / "memory.max").write_text(most + "\n")
                (at / "memory.current").write_text(used + "\n")
                (at / "memory.stat").write_text(f"anon 7\ninactive_file {cached}\nactive_file 0\n")
            self.assertEqual(available_bytes(root), 2000000)
            (root / "sys/fs/cgroup/outer/inner/memory.max").write_text("1600000\n")
            self.assertEqual(available_bytes(root), 100000)
        self.assertGreater(available_bytes(), 1 << 20)


if __name__ == "__main__":
    unittest.main()
