"""quarry.graphbolt: features by duck typing (needs torch), and its datapipes in GraphBolt's own (needs dgl 2.1)."""

import importlib.util
import unittest

import numpy as np

import quarry
from small_graph import DIM, NODES, DatabaseTest

_TORCH = importlib.util.find_spec("torch") is not None
_DGL = importlib.util.find_spec("dgl") is not None


@unittest.skipUnless(_TORCH, "torch is not there")
class FeatureTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        import torch

        from quarry.graphbolt import Feature, FeatureStore

        self.torch, self.Feature, self.FeatureStore = torch, Feature, FeatureStore

    def read_async(self, feature, ids):
        """As GraphBolt's FeatureFetcher reads."""
        reading = feature.read_async(ids)
        for _ in range(feature.read_async_num_stages(ids.device)):
            future = next(reading)
        return future.wait()

    def test_a_feature_reads_the_rows_of_ids(self):
        feature = self.Feature(self.db)
        x = self.torch.from_numpy(self.graph["features"])
        ids = self.torch.tensor([7, 3, 7, 499])
        for read in (feature.read(ids), self.read_async(feature, ids)):
            self.assertEqual(read.dtype, self.torch.float32)
            self.assertTrue(self.torch.equal(read, x[ids]))
        self.assertTrue(self.torch.equal(feature.read(), x))
        self.assertTrue(self.torch.equal(feature.read(ids.to(self.torch.int32)), x[ids]))
        self.assertEqual(feature.read(ids[:0]).shape, (0, DIM))
        self.assertEqual((feature.size(), feature.count()), (self.torch.Size([DIM]), NODES))
        self.assertEqual(feature.metadata(), {"table": "feature", "stored": "float32"})
        label = self.Feature(self.db, "label")
        self.assertEqual((label.size(), label.read(ids).tolist()), (self.torch.Size([]), self.graph["labels"][ids.numpy()].tolist()))

    def test_reads_of_several_features_are_under_way_at_a_time(self):
        store = self.FeatureStore(self.db)
        readings = [next(store[("node", None, name)].read_async(self.torch.arange(NODES))) for name in ("feature", "label")]
        for future, name in zip(readings, ("features", "labels")):
            np.testing.assert_array_equal(future.wait().numpy(), self.graph[name])

    def test_what_a_read_fails_with_is_raised_by_wait(self):
        feature = self.Feature(self.db)
        with self.assertRaisesRegex(quarry.InvalidArgument, "there are 500"):
            self.read_async(feature, self.torch.tensor([NODES]))

    def test_an_update_is_a_commit_that_later_reads_see(self):
        with self.db.snapshot() as before:
            feature, old = self.Feature(self.db), self.Feature(self.db, snapshot=before)
            ids = self.torch.tensor([9, 2])
            feature.update(self.torch.full((2, DIM), 3.0), ids)
            expected = self.torch.from_numpy(self.graph["features"]).clone()
            self.assertTrue(self.torch.equal(old.read(), expected))
            with self.assertRaisesRegex(quarry.UsageError, "snapshot"):
                old.update(self.torch.zeros(2, DIM), ids)
        expected[ids] = 3.0
        self.assertTrue(self.torch.equal(feature.read(), expected))
        feature.update(expected * 2)
        self.assertTrue(self.torch.equal(feature.read(), expected * 2))
        self.db.close()
        with quarry.open(self.path, memory="256MiB") as db:
            self.assertTrue(self.torch.equal(self.Feature(db).read(), expected * 2), "on disk")

    def test_an_update_that_does_not_fit_changes_nothing(self):
        feature = self.Feature(self.db)
        for value, ids in (((1, DIM), [1, 2]), ((2, DIM + 1), [1, 2]), ((2, DIM), [1, 1]), ((2, DIM), [1, NODES]), ((2, DIM), None)):
            with self.assertRaises((quarry.UsageError, quarry.InvalidArgument)):
                feature.update(self.torch.zeros(value), None if ids is None else self.torch.tensor(ids))
        np.testing.assert_array_equal(feature.read().numpy(), self.graph["features"])

    def test_a_store_has_the_tables_under_their_keys(self):
        store = self.FeatureStore(self.db)
        self.assertEqual(sorted(key[2] for key in store.keys()), sorted(self.db.tables))
        self.assertEqual(len(store), len(self.db.tables))
        store = self.FeatureStore(self.db, {"feat": "feature"})
        key = ("node", None, "feat")
        self.assertEqual(store.keys(), [key])
        self.assertIn(key, store)
        self.assertNotIn(("edge", None, "feat"), store)
        ids = self.torch.tensor([5, 4])
        np.testing.assert_array_equal(store.read(*key, ids).numpy(), self.graph["features"][[5, 4]])
        self.assertEqual((store.size(*key), store.count(*key)), (self.torch.Size([DIM]), NODES))
        self.assertEqual(store.metadata(*key)["table"], "feature")
        store.update(*key, self.torch.ones(2, DIM), ids)
        self.assertTrue(self.torch.equal(store[key].read(ids), self.torch.ones(2, DIM)))
        with self.assertRaisesRegex(KeyError, "no feature .*'y'.*'feat'"):
            store.read("node", None, "y")
        store[("node", None, "y")] = self.Feature(self.db, "label")
        self.assertEqual(store.count("node", None, "y"), NODES)
        with self.assertRaises(quarry.NotFound):
            self.FeatureStore(self.db, {"feat": "features"})


@unittest.skipUnless(_DGL, "dgl is not there")
class DatapipeTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        import dgl.graphbolt as gb
        import torch

        import quarry.graphbolt

        self.torch, self.gb, self.quarry = torch, gb, quarry.graphbolt
        self.edges = set(map(tuple, self.graph["edges"].T))
        self.labelled = self.graph["train"][self.graph["labels"][self.graph["train"]] >= 0]

    def check(self, minibatch, fanouts, feature="feature"):
        """Structure, rows and labels against the graph's arrays."""
        layers = minibatch.sampled_subgraphs
        self.assertEqual(len(layers), len(fanouts))
        ids = minibatch.input_nodes.numpy()
        self.assertEqual(len(np.unique(ids)), len(ids))
        np.testing.assert_array_equal(layers[0].original_row_node_ids.numpy(), ids)
        np.testing.assert_array_equal(layers[-1].original_column_node_ids.numpy(), minibatch.seed_nodes.numpy())
        for outer, inner in zip(layers, layers[1:]):
            np.testing.assert_array_equal(outer.original_column_node_ids.numpy(), inner.original_row_node_ids.numpy())
        known = len(layers[-1].original_column_node_ids)
        for layer, fanout in reversed(list(zip(layers, fanouts))):
            indptr, indices = layer.sampled_csc.indptr.numpy(), layer.sampled_csc.indices.numpy()
            columns, rows = layer.original_column_node_ids.numpy(), layer.original_row_node_ids.numpy()
            degrees = np.diff(indptr)
            np.testing.assert_array_equal(rows[: len(columns)], columns)
            # Nodes that this layer adds have at most its fanout of neighbors, and as many as there are.
            added = columns[0 if layer is layers[-1] else known :]
            known = len(columns)
            in_degrees = np.array([np.count_nonzero(self.graph["edges"][1] == node) for node in added], int)
            np.testing.assert_array_equal(degrees[len(columns) - len(added) :], np.minimum(in_degrees, fanout))
            targets = np.repeat(columns, degrees)
            self.assertTrue(all(edge in self.edges for edge in zip(rows[indices].tolist(), targets.tolist())), "from neighbor to node")
            if layer.original_edge_ids is not None:
                sources, destinations = self.db.edges()[:, layer.original_edge_ids.numpy()]
                np.testing.assert_array_equal(sources, rows[indices])
                np.testing.assert_array_equal(destinations, targets)
        np.testing.assert_array_equal(minibatch.node_features[feature].numpy(), self.graph["features"][ids])
        blocks = minibatch.blocks
        self.assertEqual([block.num_dst_nodes() for block in blocks], [len(layer.original_column_node_ids) for layer in layers])
        self.assertEqual(blocks[0].srcdata["_ID"].tolist(), ids.tolist())

    def test_the_sampler_and_the_features_in_a_datapipe_of_graphbolt(self):
        gb, torch = self.gb, self.torch
        items = gb.ItemSet((torch.from_numpy(self.labelled), torch.from_numpy(self.graph["labels"][self.labelled])), names=("seed_nodes", "labels"))
        store = self.quarry.FeatureStore(self.db, {"feat": "feature"})
        pipe = gb.ItemSampler(items, batch_size=64, shuffle=True)
        pipe = self.quarry.NeighborSampler(pipe, self.db, [4, 3])
        pipe = pipe.fetch_feature(store, node_feature_keys=["feat"]).copy_to("cpu")
        loader = gb.DataLoader(pipe)
        epochs = [list(loader), list(loader)]
        for epoch in epochs:
            for minibatch in epoch:
                self.check(minibatch, [4, 3], "feat")
                self.assertTrue(all(layer.original_edge_ids is not None for layer in minibatch.sampled_subgraphs))
                np.testing.assert_array_equal(minibatch.labels.numpy(), self.graph["labels"][minibatch.seed_nodes.numpy()])
            seeds = np.concatenate([minibatch.seed_nodes.numpy() for minibatch in epoch])
            np.testing.assert_array_equal(np.sort(seeds), self.labelled)

    def test_samples_differ_by_mini_batch_and_repeat_by_seed(self):
        gb, torch = self.gb, self.torch
        items = gb.ItemSet(torch.arange(NODES), names="seed_nodes")

        def epochs(seed):
            pipe = gb.ItemSampler(items, batch_size=NODES).sample_quarry(self.db, [2], seed=seed)
            return [next(iter(pipe)).sampled_subgraphs[0].sampled_csc.indices.tolist() for _ in range(2)]

        one, other, again = epochs(0), epochs(1), epochs(0)
        self.assertEqual(one, again)
        self.assertNotEqual(one[0], one[1])
        self.assertNotEqual(one[0], other[0])

    def test_link_prediction_samples_around_both_ends(self):
        gb, torch = self.gb, self.torch
        pairs = torch.from_numpy(np.ascontiguousarray(self.graph["edges"].T[:100]))
        pipe = gb.ItemSampler(gb.ItemSet(pairs, names="node_pairs"), batch_size=25)
        pipe = self.quarry.NeighborSampler(pipe, self.db, [3])
        for i, minibatch in enumerate(pipe):
            (layer,) = minibatch.sampled_subgraphs
            columns = layer.original_column_node_ids
            ends = torch.stack([columns[end] for end in minibatch.compacted_node_pairs], dim=1)
            self.assertTrue(torch.equal(ends, pairs[25 * i : 25 * (i + 1)]))
            without = layer.exclude_edges(pairs[25 * i : 25 * (i + 1)])
            kept = np.repeat(columns.numpy(), np.diff(without.sampled_csc.indptr.numpy()))
            left = set(zip(without.original_row_node_ids[without.sampled_csc.indices].tolist(), kept.tolist()))
            self.assertFalse(left & set(map(tuple, pairs[25 * i : 25 * (i + 1)].tolist())))

    def test_the_loader_gives_complete_mini_batches(self):
        gb, torch = self.gb, self.torch
        self.db.plan([3, 4], 64, name="packed", progress=False)  # hops, from the seeds outwards
        for options in ({}, {"edge_ids": True}, {"layout": "packed"}):
            loader = self.quarry.Loader(self.db, [4, 3], batch_size=64, shuffle=True, **options)
            for epoch in (list(loader), list(gb.DataLoader(loader.copy_to("cpu")))):
                for minibatch in epoch:
                    self.check(minibatch, [4, 3])
                    self.assertEqual(minibatch.sampled_subgraphs[0].original_edge_ids is not None, "edge_ids" in options)
                    np.testing.assert_array_equal(minibatch.labels.numpy(), self.graph["labels"][minibatch.seed_nodes.numpy()])
                seeds = np.concatenate([minibatch.seeds.numpy() for minibatch in epoch])
                np.testing.assert_array_equal(np.sort(seeds), self.labelled)
        nodes = torch.tensor([400, 3, 77, 20, 9])
        ordered = list(self.quarry.Loader(self.db, [2], batch_size=2, seeds=nodes, feature="feat"))
        self.assertEqual([minibatch.seeds.tolist() for minibatch in ordered], [[400, 3], [77, 20], [9]])
        self.assertEqual(list(ordered[0].node_features), ["feat"])

    def test_a_pass_that_another_loader_took_over_says_so(self):
        train = self.quarry.Loader(self.db, [4, 3], 64, "train", shuffle=True)
        valid = self.quarry.Loader(self.db, [4, 3], 64, "valid")
        half = iter(train)
        next(half)
        self.assertEqual(len(list(valid)), 2)
        with self.assertRaisesRegex(quarry.UsageError, "another epoch"):
            next(half)

    def test_a_model_of_dgl_learns_from_it(self):
        import dgl.nn

        torch = self.torch
        torch.manual_seed(1)
        model = dgl.nn.SAGEConv(DIM, 4, "mean")
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for _ in range(20):
            for minibatch in self.quarry.Loader(self.db, [5], batch_size=300, shuffle=True):
                (block,) = minibatch.blocks
                loss = torch.nn.functional.cross_entropy(model(block, minibatch.node_features["feature"]), minibatch.labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss))
        self.assertLess(np.mean(losses[-3:]), 0.9 * np.mean(losses[:3]))

    def test_what_it_cannot_do_is_said(self):
        gb, torch = self.gb, self.torch
        pipe = gb.ItemSampler(gb.ItemSet(torch.tensor([3, 3]), names="seed_nodes"), batch_size=2)
        with self.assertRaisesRegex(quarry.InvalidArgument, "seed node 3 is given twice"):
            next(iter(self.quarry.NeighborSampler(pipe, self.db, [2])))
        for wrong in ([], [0], [-1]):
            with self.assertRaisesRegex(quarry.UsageError, "fanouts"):
                self.quarry.NeighborSampler(pipe, self.db, wrong)
        sampler = self.quarry.NeighborSampler(pipe, self.db, [2])
        for seeds, times in (({"user": torch.tensor([1])}, None), (torch.tensor([1]), torch.tensor([0]))):
            with self.assertRaises(quarry.Unsupported):
                sampler.sample_subgraphs(seeds, times)
        with self.assertRaises(quarry.UsageError):
            self.quarry.Loader(self.db, [2], seeds="training")
        with self.assertRaisesRegex(quarry.UsageError, "shuffle=True"):
            self.quarry.Loader(self.db, [2], layout="packed")


if __name__ == "__main__":
    unittest.main()
