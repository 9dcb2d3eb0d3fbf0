"""quarry.pyg.Loader against what PyG's NeighborLoader documents. Needs torch and torch_geometric."""

import copy
import importlib.util
import os
import pickle
import queue
import subprocess
import sys
import threading
import unittest
import unittest.mock
import weakref
from pathlib import Path

import numpy as np

import quarry
from quarry import _quarry
from small_graph import DIM, NODES, DatabaseTest, resident_bytes

_EXAMPLES = Path(os.environ.get("QUARRY_EXAMPLES", Path(__file__).resolve().parents[2] / "client/python/examples"))
_BATCHES_WITHOUT_GROWTH = 2000
_TORCH = importlib.util.find_spec("torch_geometric") is not None


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class LoaderTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        import torch

        from quarry.pyg import Loader

        self.torch, self.Loader = torch, Loader
        self.labelled = self.graph["train"][self.graph["labels"][self.graph["train"]] >= 0]

    def check(self, data, nodes):
        torch = self.torch
        ids = data.n_id.numpy()
        edges = set(map(tuple, self.graph["edges"].T))
        self.assertEqual((data.edge_index.dtype, data.n_id.dtype, data.x.dtype), (torch.int64, torch.int64, torch.float32))
        self.assertEqual(data.num_nodes, len(ids))
        self.assertEqual(len(np.unique(ids)), len(ids))
        np.testing.assert_array_equal(data.x.numpy(), self.graph["features"][ids])
        sources, targets = data.edge_index.numpy()
        self.assertTrue(all(edge in edges for edge in zip(ids[sources], ids[targets])), "from neighbor to node")
        np.testing.assert_array_equal(ids[: data.batch_size], np.asarray(nodes)[data.input_id.numpy()])
        np.testing.assert_array_equal(data.y.numpy(), self.graph["labels"][ids[: data.batch_size]])
        self.assertEqual(data.num_sampled_nodes[0], data.batch_size)
        self.assertEqual(sum(data.num_sampled_nodes), len(ids))
        self.assertEqual(sum(data.num_sampled_edges), data.num_edges)
        # The edges of hop k lead to the nodes that hop k - 1 found.
        bounds = np.cumsum([0, *data.num_sampled_nodes])
        first = 0
        for hop, count in enumerate(data.num_sampled_edges):
            inside = targets[first : first + count]
            self.assertTrue(np.all((inside >= bounds[hop]) & (inside < bounds[hop + 1])))
            first += count

    def test_batches_are_those_of_neighbor_loader(self):
        loader = self.Loader(self.db, num_neighbors=[4, 3], batch_size=64, input_nodes="train", shuffle=True, cache="20%")
        self.assertEqual((len(loader), loader.num_seeds), (5, len(self.labelled)))
        epochs = [list(loader), list(loader)]
        for epoch in epochs:
            self.assertEqual(len(epoch), 5)
            for data in epoch:
                self.check(data, self.labelled)
            seen = np.concatenate([data.input_id.numpy() for data in epoch])
            np.testing.assert_array_equal(np.sort(seen), np.arange(len(self.labelled)))
        self.assertFalse(self.torch.equal(epochs[0][0].n_id, epochs[1][0].n_id), "another order every epoch")
        self.assertIn("num_neighbors [4, 3]", repr(loader))

    def test_edge_ids_are_in_the_order_of_edge_index(self):
        edges = self.db.edges()
        self.db.plan([4, 3], 64, name="pyg-4-3-b64-e1-s0-in")  # which "auto" would take
        for replace in (False, True):
            for data in self.Loader(self.db, [4, 3], 64, "train", shuffle=True, replace=replace, edge_ids=True):
                self.assertEqual((data.e_id.dtype, len(data.e_id)), (self.torch.int64, data.num_edges))
                np.testing.assert_array_equal(edges[:, data.e_id.numpy()], data.n_id[data.edge_index].numpy())
        self.assertNotIn("e_id", next(iter(self.Loader(self.db, [4, 3], 64, "valid"))))
        with self.assertRaisesRegex(quarry.UsageError, "no edge ids"):
            self.Loader(self.db, [4, 3], 64, "train", shuffle=True, plan=True, edge_ids=True)

    def test_without_shuffle_batches_come_in_the_order_of_input_nodes(self):
        nodes = self.torch.tensor([400, 3, 77, 20, 9])
        loader = self.Loader(self.db, [4, 3], batch_size=2, input_nodes=nodes)
        data = list(loader)
        self.assertEqual([batch.input_id.tolist() for batch in data], [[0, 1], [2, 3], [4]])
        for batch in data:
            self.check(batch, nodes)
        mask = self.torch.zeros(NODES, dtype=self.torch.bool)
        mask[nodes] = True
        (batch,) = self.Loader(self.db, [2], batch_size=10, input_nodes=mask)
        self.assertEqual(batch.n_id[: batch.batch_size].tolist(), sorted(nodes.tolist()))
        self.assertEqual(len(self.Loader(self.db, [2], batch_size=100, input_nodes=None)), 5)
        seen = [batch.batch_size for batch in self.Loader(self.db, [2], batch_size=64, input_nodes="test")]
        self.assertEqual(seen, [64, 36])

    def test_parts_take_turns(self):
        self.db.partition(6, chunk=0.5)
        loader = self.Loader(self.db, [4, 3], 64, "train", shuffle=True, partitioning="default", buffer=3)
        for _ in range(2):
            seen = []
            for data in loader:
                self.check(data, self.labelled)
                seen.append(data.input_id.numpy())
            np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(len(self.labelled)))
        with self.assertRaisesRegex(TypeError, "how many batches"):
            len(loader)
        with self.assertRaisesRegex(quarry.UsageError, "those of a split"):
            self.Loader(self.db, [4, 3], 64, [1, 2], partitioning="default")
        with self.assertRaisesRegex(quarry.UsageError, "not planned"):
            self.Loader(self.db, [4, 3], 64, "train", shuffle=True, plan=True, partitioning="default")

    def test_a_plan_is_built_once_and_repeats(self):
        phases = []
        loader = self.Loader(self.db, [4, 3], 64, "train", shuffle=True, plan=True, progress=lambda phase, *_: phases.append(phase))
        self.assertEqual(self.db.layouts, {})
        epochs = [list(loader), list(loader)]
        self.assertEqual(list(self.db.layouts), ["pyg-4-3-b64-e1-s0-in"])
        for epoch in epochs:
            for data in epoch:
                self.check(data, self.labelled)
        for one, other in zip(*epochs, strict=True):
            self.assertTrue(self.torch.equal(one.n_id, other.n_id))
        valid = self.Loader(self.db, [4, 3], 64, "valid")
        for data in valid:
            self.check(data, self.graph["valid"])
        with self.assertRaisesRegex(quarry.UsageError, "shuffle=True"):
            self.Loader(self.db, [4, 3], 64, "train", plan=True)

    def test_loaders_take_turns(self):
        train = self.Loader(self.db, [4, 3], 64, "train", shuffle=True)
        valid = self.Loader(self.db, [4, 3], 64, "valid")
        half = iter(train)
        next(half)
        self.assertEqual(len(list(valid)), 2)
        with self.assertRaisesRegex(quarry.UsageError, "another epoch"):
            next(half)
        self.assertEqual(len(list(train)), 5)

    def test_two_batches_are_made_ahead_on_another_thread(self):
        made = queue.SimpleQueue()

        def seen(data):
            made.put(threading.get_ident())
            return data

        loader = self.Loader(self.db, [4, 3], 64, "train", shuffle=True, transform=seen)
        batches = iter(loader)
        next(batches)
        threads = {made.get(timeout=60) for _ in range(3)}  # the second and third without being asked for
        self.assertEqual(len(threads - {threading.get_ident()}), 1)
        self.assertGreaterEqual(loader.stats()["batches"], 1)  # in the midst of it
        self.assertTrue(made.empty(), "no fourth before the second is taken")
        batches.close()
        self.assertEqual(len(list(loader)), 5)

    def test_what_a_transform_raises_reaches_the_caller(self):
        def fails(data):
            raise LookupError("no such thing")

        with self.assertRaisesRegex(LookupError, "no such thing"):
            next(iter(self.Loader(self.db, [2], 64, "train", shuffle=True, transform=fails)))
        self.assertEqual(len(list(self.Loader(self.db, [2], 64, "train", shuffle=True))), 5)

    def test_a_batch_dies_with_its_last_name(self):
        batches = iter(self.Loader(self.db, [2], 64, "train", shuffle=True))
        data = next(batches)
        dead = weakref.ref(data)
        del data
        self.assertIsNone(dead())

    def test_a_fork_is_told(self):
        batches = iter(self.Loader(self.db, [2], 64, "train", shuffle=True))
        next(batches)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                next(batches)
            except quarry.Forked:
                self.db.close()  # which a `with` block does there, too
                os.write(write, b"forked")
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        self.assertEqual(os.read(read, 16), b"forked")
        os.close(read)
        self.assertEqual(len(list(batches)), 4)

    def test_the_interpreter_exits_in_the_midst_of_a_pass(self):
        program = f"""
import quarry
from quarry.pyg import Loader
db = quarry.open({str(self.path)!r}, memory="64MiB")
batches = iter(Loader(db, [2], 64, "train", shuffle=True))
next(batches)
"""
        self.db.close()
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_batches_do_not_add_up(self):
        loader = self.Loader(self.db, [3], 2, "train", shuffle=True, plan=False)
        done, after_warmup = 0, 0
        while done < _BATCHES_WITHOUT_GROWTH:
            done += sum(1 for _ in loader)
            if after_warmup == 0 and done >= _BATCHES_WITHOUT_GROWTH // 5:
                after_warmup = resident_bytes()
        self.assertLess(resident_bytes() - after_warmup, 16 << 20)

    def test_a_gpu_that_is_not_there_is_said(self):
        if self.torch.cuda.is_available():
            self.skipTest("there is one")
        for device in ("cuda", "cuda:1", 0, self.torch.device("cuda")):
            with self.assertRaisesRegex(quarry.UsageError, "device 'cuda.*(has no CUDA|finds no GPU).*leave device out"):
                next(iter(self.Loader(self.db, [3], device=device, shuffle=True, plan=True)))
        self.assertFalse(self.db.layouts, "nothing was planned for it")
        self.assertEqual(next(iter(self.Loader(self.db, [3], device="cpu"))).x.device.type, "cpu")

    def test_data_that_lacks_something_is_told_what(self):
        from torch_geometric.data import Data

        torch = self.torch
        edges, y = torch.from_numpy(self.graph["edges"]), torch.from_numpy(self.graph["labels"])
        masks = torch.zeros(NODES, 10, dtype=torch.bool)
        with self.assertRaisesRegex(quarry.UsageError, r"train_mask has 10 columns.*train_mask\[:, 0\]"):
            quarry.from_pyg(Data(edge_index=edges, y=y, train_mask=masks, num_nodes=NODES), self.folder / "masks.db")
        with self.assertRaisesRegex(quarry.InvalidArgument, r"^labels: has shape \[500, 10\]"):
            quarry.from_pyg(Data(edge_index=edges, y=masks.float(), num_nodes=NODES), self.folder / "labels.db")
        with self.assertWarnsRegex(UserWarning, "edge_weight of this Data is not taken"):
            quarry.from_pyg(Data(edge_index=edges, y=y, edge_weight=torch.ones(edges.shape[1]), num_nodes=NODES), self.folder / "splits.db")
        with quarry.open(self.folder / "splits.db", memory="256MiB") as db:
            for split in ("train", "valid"):
                with self.assertRaisesRegex(quarry.UsageError, f"no {split} nodes.*give input_nodes"):
                    iter(self.Loader(db, [2], input_nodes=split))
        sizes = (NODES, NODES)
        adj_t = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.shape[1]), sizes).coalesce().to_sparse_csr()
        quarry.from_pyg(Data(adj_t=adj_t, y=y, num_nodes=NODES), self.folder / "adj.db")
        with quarry.open(self.folder / "adj.db", memory="256MiB") as db:
            self.assertEqual(set(map(tuple, db.edges().T)), set(map(tuple, self.graph["edges"].T)))

    def test_types_that_nothing_counts_are_refused(self):
        from torch_geometric.data import HeteroData

        data = HeteroData()
        data["author"].x = self.torch.zeros(2, 3)
        data["author", "writes", "paper"].edge_index = self.torch.zeros(2, 1, dtype=self.torch.int64)
        with self.assertRaisesRegex(quarry.UsageError, "join nodes of type 'paper'.*num_nodes"):
            quarry.from_pyg(data, self.folder / "hetero.db")

    def test_rows_that_change_are_the_next_loaders(self):
        with self.db.snapshot() as before:
            self.db.put([5], feature=np.zeros((1, DIM), np.float32))
            (old,) = self.Loader(self.db, [2], input_nodes=[5], snapshot=before)
            (new,) = self.Loader(self.db, [2], input_nodes=[5])
            self.check(old, [5])
            self.assertEqual(float(new.x[0].abs().sum()), 0)

    def test_what_it_cannot_do_is_said(self):
        for options, expected in (({"num_workers": 4}, TypeError), ({"disjoint": True}, NotImplementedError), ({"frobnicate": 1}, TypeError)):
            with self.assertRaisesRegex(expected, next(iter(options))):
                self.Loader(self.db, [2], **options)
        for wrong in ([], [0], [-1], [2000], 10):
            with self.assertRaisesRegex(quarry.UsageError, "num_neighbors"):
                self.Loader(self.db, wrong)
        with self.assertRaisesRegex(quarry.UsageError, "say 1024"):
            self.Loader(self.db, [5, -1])
        with self.assertRaisesRegex(quarry.UsageError, "by type"):
            self.Loader(self.db, {("a", "to", "b"): [5]})
        with self.assertRaisesRegex(quarry.UsageError, "gpu_sampling: .*the GPU that device names"):
            self.Loader(self.db, [4], gpu_sampling=True)
        with self.assertRaisesRegex(quarry.UsageError, "batch_size 0"):
            self.Loader(self.db, [2], batch_size=0)
        with self.assertRaisesRegex(quarry.UsageError, "'my.db': a database is wanted"):
            self.Loader("my.db", [2])
        with self.assertRaises(quarry.UsageError):
            self.Loader(self.db, [2], input_nodes="training")
        with self.assertRaisesRegex(quarry.UsageError, "twice"):
            list(self.Loader(self.db, [2], input_nodes=[3, 3]))

    def test_a_data_is_what_its_constructors_make(self):
        """Though none of them is called."""
        from torch_geometric.data import Data

        from quarry.pyg._loader import _torch

        raws = self.db.stream([4, 3], batch_size=64)
        raws.start("train", number=1)
        raw = raws._raw.next()
        block = raw.pyg_block(True)
        maker = _torch()[1]
        self.assertIsInstance(maker, _quarry.PygData, "else the constructor would be compared with itself")
        data = maker(block)
        expected = Data(**raw.pyg_block(True).attributes(self.torch.from_dlpack))
        self.assertEqual(data.__dict__.keys(), expected.__dict__.keys())
        self.assertEqual(data._store.__dict__.keys(), expected._store.__dict__.keys())
        self.assertEqual((type(data._store), data._store._parent()), (type(expected._store), data))
        for other in (expected, copy.copy(data), data.clone(), pickle.loads(pickle.dumps(data))):
            self.assertEqual(sorted(data.keys()), sorted(other.keys()))
            for name, value in other.to_dict().items():
                self.assertTrue(self.torch.equal(data[name], value) if isinstance(value, self.torch.Tensor) else data[name] == value, name)
        data.more = 1
        self.assertNotIn("more", expected)
        with self.assertRaisesRegex(quarry.UsageError, "was taken"):
            block.arrays()
        lost = raw.pyg_block(True)
        with self.assertRaisesRegex(ZeroDivisionError, "of its own"):
            lost.attributes(unittest.mock.Mock(side_effect=ZeroDivisionError("of its own")))
        untaken = raw.pyg_block(True).attributes(lambda capsule: capsule)
        self.assertIn("dltensor", repr(untaken["x"]))
        raw.close()
        raws.close()
        x, dead = data.x, weakref.ref(data)
        del data, untaken, lost
        self.assertIsNone(dead(), "nothing else holds a Data")
        np.testing.assert_array_equal(x.numpy(), self.graph["features"][expected.n_id.numpy()])

    def test_torch_tensors_go_in_and_out(self):
        ids = self.torch.tensor([3, 1, 3])
        out = self.torch.empty(3, DIM)
        self.db["feature"].read(ids, out)
        np.testing.assert_array_equal(out.numpy(), self.graph["features"][[3, 1, 3]])
        views = self.db.stream([2], batch_size=8)
        views.start("train")
        batch = views.next()
        self.assertEqual(self.torch.from_dlpack(batch.copy().indptr).dtype, self.torch.int32)

    def test_from_pyg_keeps_what_a_data_has(self):
        from torch_geometric.data import Data

        torch = self.torch
        data = Data(x=torch.from_numpy(self.graph["features"]), edge_index=torch.from_numpy(self.graph["edges"]), y=torch.from_numpy(self.graph["labels"]))
        for name, split in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
            mask = torch.zeros(NODES, dtype=torch.bool)
            mask[self.graph[split]] = True
            setattr(data, name, mask)
        path = self.folder / "pyg.db"
        quarry.from_pyg(data, path)
        with quarry.open(path, memory="64MiB") as db:
            np.testing.assert_array_equal(db["feature"][:], self.graph["features"])
            np.testing.assert_array_equal(db["label"][:], self.graph["labels"])
            np.testing.assert_array_equal(db.split("valid"), self.graph["valid"])
            self.assertEqual(db.num_edges, data.num_edges)
        with self.assertRaises(quarry.UsageError):
            quarry.from_pyg(Data(), self.folder / "none.db")

    def test_the_model_of_the_example_learns(self):
        sys.path.insert(0, str(_EXAMPLES))
        self.addCleanup(sys.path.remove, str(_EXAMPLES))
        import graphsage
        import quickstart

        path = self.folder / "example.db"
        quickstart.make(path)
        for plan in (False, True):
            self.assertGreater(graphsage.train(path, epochs=4, plan=plan), 0.8)


if __name__ == "__main__":
    unittest.main()
