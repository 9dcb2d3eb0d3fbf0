"""quarry.pyg.Loader against what PyG's NeighborLoader documents. Needs torch and torch_geometric."""

import copy
import importlib.util
import os
import pickle
import queue
import signal
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
from small_graph import DIM, NODES, DatabaseTest, heed_interrupts, resident_bytes

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

    def test_all_neighbors_are_the_neighborhood(self):
        pairs, edges = self.graph["edges"], self.db.edges()
        into = [np.sort(pairs[0, pairs[1] == node]) for node in range(NODES)]
        for fanouts, options in (([-1], {}), ([-1, -1], {}), ([-1, -1], {"sampler": "labor"}), ([2, -1], {"shuffle": True}), ([-1, 3], {})):
            for data in self.Loader(self.db, fanouts, 50, "test", edge_ids=True, **options):
                self.check(data, self.graph["test"])
                ids, (sources, targets) = data.n_id.numpy(), data.edge_index.numpy()
                np.testing.assert_array_equal(edges[:, data.e_id.numpy()], np.stack([ids[sources], ids[targets]]))
                self.assertEqual(len(data.e_id.unique()), data.num_edges, "each edge once")
                first, near = 0, set(ids[: data.batch_size].tolist())
                for fanout, end in zip(fanouts, np.cumsum(data.num_sampled_nodes)):
                    for target in range(first, end):
                        found = np.sort(ids[sources[targets == target]])
                        if fanout == -1:
                            np.testing.assert_array_equal(found, into[ids[target]])
                        else:
                            self.assertEqual(len(found), min(fanout, len(into[ids[target]])))
                    near |= {source for node in ids[first:end] for source in into[node].tolist()}
                    first = end
                if fanouts == [-1] * len(fanouts):
                    self.assertEqual(set(ids.tolist()), near)

    def test_all_neighbors_are_refused_where_they_cannot_be(self):
        for options in ({"plan": True}, {"plan": "mine"}, {"partitioning": "default"}):
            with self.assertRaisesRegex(quarry.UsageError, "num_neighbors -1: .*sampled as they come"):
                self.Loader(self.db, [2, -1], shuffle=True, **options)
        for call in (lambda: self.db.plan([-1], 64), lambda: self.db.stream([-1], 64, fresh=True)):
            with self.assertRaisesRegex(quarry.Unsupported, "all neighbors are taken by batches that are sampled as they come"):
                call()
        with self.assertRaisesRegex(quarry.InvalidArgument, "all neighbors, with replacement"):
            list(self.Loader(self.db, [-1], replace=True))
        quarry.import_(self.folder / "hub.db", edges=np.stack([np.arange(1100), np.full(1100, 1100)]), features=np.ones((1101, 2), np.float32), progress=False)
        with quarry.open(self.folder / "hub.db", memory="64MiB") as db:
            (data,) = self.Loader(db, [-1], input_nodes=[1100])
            self.assertEqual(data.num_edges, 1100)

    def test_a_batch_that_is_larger_than_memory_was_planned_for_is_refused(self):
        hubs, leaves = np.arange(100), np.arange(1000, 2000)  # training nodes, by which memory is planned, have no neighbors
        edges = np.stack([np.tile(leaves, 100), np.repeat(hubs, 1000)])
        quarry.import_(self.folder / "hubs.db", edges=edges, features=np.ones((2000, 4), np.float32), train=leaves, progress=False)
        with quarry.open(self.folder / "hubs.db", memory="64MiB") as db:
            with self.assertRaisesRegex(quarry.OutOfBudget, "batch 0 takes all neighbors and has more than the 65536 edges"):
                list(self.Loader(db, [-1], 100, hubs))
            self.assertEqual([data.num_edges for data in self.Loader(db, [-1], 50, hubs)], [50_000] * 2)

    def test_edge_ids_are_in_the_order_of_edge_index(self):
        edges = self.db.edges()
        self.db.plan([4, 3], 64, name="pyg-4-3-b64-e1-s0-in")  # which "auto" would take
        for replace in (False, True):
            for data in self.Loader(self.db, [4, 3], 64, "train", shuffle=True, replace=replace, edge_ids=True):
                self.assertEqual((data.e_id.dtype, len(data.e_id)), (self.torch.int64, data.num_edges))
                np.testing.assert_array_equal(edges[:, data.e_id.numpy()], data.n_id[data.edge_index].numpy())
        self.assertNotIn("e_id", next(iter(self.Loader(self.db, [4, 3], 64, "valid"))))
        # A plan of its own has them, too, and no other layout is taken for it.
        for data in self.Loader(self.db, [4, 3], 64, "train", shuffle=True, plan=True, edge_ids=True):
            self.assertEqual(len(data.e_id), data.num_edges)
            np.testing.assert_array_equal(edges[:, data.e_id.numpy()], data.n_id[data.edge_index].numpy())
        self.assertIn("pyg-4-3-b64-e1-s0-in-ids", self.db.layouts)
        with self.assertRaisesRegex(quarry.Unsupported, "no edge ids"):
            next(iter(self.Loader(self.db, [4, 3], 64, "train", shuffle=True, plan="pyg-4-3-b64-e1-s0-in", edge_ids=True)))

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
        for drop_last, sizes in ((False, [64, 36]), (True, [64])):
            loader = self.Loader(self.db, [2], batch_size=64, input_nodes="test", drop_last=drop_last)
            self.assertEqual((len(loader), [batch.batch_size for batch in loader]), (len(sizes), sizes))

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
        with self.assertRaisesRegex(quarry.InvalidArgument, r"^labels: has shape \[500, 10, 1\]"):
            quarry.from_pyg(Data(edge_index=edges, y=masks.float()[:, :, None], num_nodes=NODES), self.folder / "labels.db")
        with self.assertWarnsRegex(UserWarning, "edge_attr, pos of this Data is not taken.*edge_attrs="):
            quarry.from_pyg(Data(edge_index=edges, y=y, edge_attr=torch.ones(edges.shape[1], 2), pos=torch.ones(NODES, 2), num_nodes=NODES), self.folder / "splits.db")
        with quarry.open(self.folder / "splits.db", memory="256MiB") as db:
            for split in ("train", "valid"):
                with self.assertRaisesRegex(quarry.UsageError, f"no {split} nodes.*give input_nodes"):
                    iter(self.Loader(db, [2], input_nodes=split))
        sizes = (NODES, NODES)
        weights = torch.rand(edges.shape[1])
        for name, values in (("ones", torch.ones(edges.shape[1])), ("weights", weights)):
            adj_t = torch.sparse_coo_tensor(edges.flip(0), values, sizes).coalesce().to_sparse_csr()
            quarry.from_pyg(Data(adj_t=adj_t, y=y, num_nodes=NODES), self.folder / f"{name}.db")
        quarry.from_pyg(Data(edge_index=edges, edge_weight=weights[:, None], num_nodes=NODES), self.folder / "column.db")
        expected = {tuple(edge): weight for edge, weight in zip(self.graph["edges"].T.tolist(), weights.tolist())}
        for name in ("ones", "weights", "column"):
            with quarry.open(self.folder / f"{name}.db", memory="256MiB") as db:
                self.assertEqual(set(map(tuple, db.edges().T)), set(expected))
                rows = db.sql("SELECT src, dst, weight FROM edges").fetchall()
                self.assertEqual({(source, destination): weight for source, destination, weight in rows}, dict.fromkeys(expected) if name == "ones" else expected)
                self.assertEqual(sum(data.batch_size for data in self.Loader(db, [2], input_nodes=None, weighted=name != "ones")), NODES)
                db.create_table("feature", 1)
                for data in self.Loader(db, [2], input_nodes=None, weighted=name != "ones"):
                    self.assertTrue(torch.equal(data.x, torch.zeros(data.num_nodes, 1)))

    def test_without_features_batches_are_the_same_without_x(self):
        graph = {name: values for name, values in self.graph.items() if name != "features"}
        quarry.import_(self.folder / "bare.db", **graph, num_nodes=NODES, progress=False)
        with quarry.open(self.folder / "bare.db", memory="256MiB") as db:
            self.assertNotIn("feature", db)
            for options in ({"input_nodes": "train", "shuffle": True}, {"input_nodes": [9, 3, 77], "edge_ids": True}, {"input_nodes": None, "replace": True}, {"input_nodes": "valid", "sampler": "labor"}):
                bare, whole = (list(self.Loader(of, [4, 3], 64, seed=5, **options)) for of in (db, self.db))
                # Batches come as they are made where seeds are shuffled.
                for one, other in zip(*(sorted(batches, key=lambda data: data.input_id.tolist()) for batches in (bare, whole)), strict=True):
                    self.assertEqual({*other.keys()} - {*one.keys()}, {"x"})
                    for name in one.keys():
                        self.assertTrue(np.array_equal(one[name], other[name]), name)
            for option in ({"plan": True, "shuffle": True}, {"gpu_sampling": True}):
                with self.assertRaisesRegex(quarry.UsageError, "has no features|gpu_sampling"):
                    self.Loader(db, [2], **option)
            with self.assertRaisesRegex(quarry.NotFound, "no table 'feature'"):
                db.plan([2], 64)

    def test_targets_are_the_seeds_rows(self):
        """y of fractions, and of several columns: numbers to learn, not classes."""
        from torch_geometric.data import Data

        from quarry.pyg import NodeLoader

        torch = self.torch
        mask = torch.zeros(NODES, dtype=torch.bool)
        mask[self.graph["train"]] = True
        numbers = torch.randn(NODES)
        numbers[3] = torch.nan
        several = torch.rand(NODES, 5) < 0.3
        for name, y, expected in (("one", numbers, numbers[:, None]), ("many", several, several.float())):
            path = self.folder / f"{name}.db"
            quarry.from_pyg(Data(x=torch.from_numpy(self.graph["features"]), edge_index=torch.from_numpy(self.graph["edges"]), y=y, train_mask=mask), path)
            with quarry.open(path, memory="256MiB") as db:
                loader = self.Loader(db, [4, 3], 64, "train", shuffle=True, transform=lambda data: (self.assertIn("y", data), data)[1])
                seen = 0
                for data in loader:
                    self.assertEqual((data.y.dtype, data.y.shape), (torch.float32, (data.batch_size, expected.shape[1])))
                    torch.testing.assert_close(data.y, expected[data.n_id[: data.batch_size]], equal_nan=True)
                    seen += data.batch_size
                self.assertEqual(seen, 300)
                with db.snapshot() as before:
                    db.put([7], target=np.full((1, expected.shape[1]), 8, np.float32))
                    (old,) = self.Loader(db, [2], input_nodes=[7], snapshot=before)
                (new,) = self.Loader(db, [2], input_nodes=[7])
                torch.testing.assert_close(old.y, expected[[7]])
                self.assertEqual(new.y.tolist(), [[8] * expected.shape[1]])
                (all_of_them,) = NodeLoader(db, [2], input_nodes=[7], batch_size=1)
                torch.testing.assert_close(all_of_them.y[1:], expected[all_of_them.n_id[1:]], equal_nan=True)

    def test_attributes_of_edges_follow_their_edges(self):
        torch = self.torch
        given = torch.arange(2.0 * self.db.num_edges).view(-1, 2)  # in the order of edge_index
        by_id = torch.empty_like(given)
        by_id[self.db.edge_ids(self.graph["edges"])] = given
        np.save(self.folder / "by_id.npy", by_id.numpy())
        number = {tuple(edge): i for i, edge in enumerate(self.graph["edges"].T.tolist())}
        for values, plan in ((by_id, "auto"), (np.load(self.folder / "by_id.npy", mmap_mode="r"), True)):
            for data in self.Loader(self.db, [4, 3], 64, "train", shuffle=True, plan=plan, edge_attrs={"edge_attr": values}):
                edges = data.n_id[data.edge_index].T.tolist()
                torch.testing.assert_close(data.edge_attr, given[[number[tuple(edge)] for edge in edges]])
        with self.assertRaisesRegex(quarry.UsageError, f"'edge_attr' has 3 rows for {self.db.num_edges} edges"):
            self.Loader(self.db, [2], edge_attrs={"edge_attr": given[:3]})
        with self.assertRaisesRegex(quarry.UsageError, "adj_t: "):
            self.Loader(self.db, [2], adj_t=True, edge_attrs={"edge_attr": given})

    def test_adj_t_is_the_matrix_of_edge_index(self):
        from torch_geometric.nn import GraphConv

        torch = self.torch
        layer = GraphConv(DIM, 3)
        for replace in (False, True):
            options = {"batch_size": 64, "input_nodes": "test", "replace": replace}
            data = next(iter(self.Loader(self.db, [4, 3], adj_t=True, **options)))
            self.assertNotIn("edge_index", data)
            self.assertEqual((data.adj_t.layout, tuple(data.adj_t.shape)), (torch.sparse_csr, (data.num_nodes, data.num_nodes)))
            plain = next(iter(self.Loader(self.db, [4, 3], **options)))
            torch.testing.assert_close(plain.n_id, data.n_id)
            dense = torch.zeros(data.num_nodes, data.num_nodes)
            dense.index_put_((plain.edge_index[1], plain.edge_index[0]), torch.ones(plain.num_edges), accumulate=True)
            torch.testing.assert_close(data.adj_t.to_dense(), dense)
            self.assertEqual(float(dense.max()) > 1, replace)
            torch.testing.assert_close(layer(data.x, data.adj_t), layer(plain.x, plain.edge_index))

    def test_ctrl_c_ends_the_wait_for_a_batch(self):
        heed_interrupts(self)
        entered, leave = threading.Event(), threading.Event()

        def stuck(data):
            entered.set()
            leave.wait()
            return data

        loader = self.Loader(self.db, [4, 3], 64, "train", shuffle=True, transform=stuck)
        batches = iter(loader)

        def interrupt():
            entered.wait()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        with self.assertRaises(KeyboardInterrupt):
            thread.start()
            next(batches)
        thread.join()
        leave.set()
        self.assertEqual(len(list(loader)), 5, "the next epoch is whole")

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

    def test_a_loader_pickles_as_what_it_was_made_of(self):
        loader = self.Loader(self.db, [4, 3], 64, "train", shuffle=True, seed=3, edge_ids=True)
        first = list(loader)
        again = pickle.loads(pickle.dumps(loader))
        self.assertEqual(repr(again), repr(loader))
        batches = ({tuple(data.input_id.tolist()): data for data in epoch} for epoch in (first, again))
        for one, other in zip(*(sorted(epoch.items()) for epoch in batches), strict=True):
            self.assertEqual(one[0], other[0])
            self.assertTrue(self.torch.equal(one[1].e_id, other[1].e_id))

    def test_what_it_cannot_do_is_said(self):
        for options, expected in (({"num_workers": 4}, TypeError), ({"disjoint": True}, NotImplementedError), ({"frobnicate": 1}, TypeError)):
            with self.assertRaisesRegex(expected, next(iter(options))):
                self.Loader(self.db, [2], **options)
        for wrong in ([], [0], [-2], [2000], 10):
            with self.assertRaisesRegex(quarry.UsageError, "num_neighbors"):
                self.Loader(self.db, wrong)
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
