"""quarry.pyg.NeighborSampler, NodeLoader and LinkLoader against the edge list, and against PyG's loaders over the same
stores and sampler. Need torch and torch_geometric.

They restate what test/loader/test_neighbor_loader.py and test_link_neighbor_loader.py of PyG ask of a pair of stores.
What differs: there is at least one hop; weights are the database's; no times, no disjoint or induced samples. The heterogeneous
cases are those of test_hetero_loaders.py.
"""

import importlib.util
import multiprocessing
import os
import pickle
import unittest
from collections import Counter

import numpy as np

import quarry
from small_graph import DIM, NODES, DatabaseTest

_TORCH = importlib.util.find_spec("torch_geometric") is not None
if _TORCH:
    import torch
    import torch_geometric.loader as pyg
    from torch_geometric.data import Data
    from torch_geometric.nn import SAGEConv
    from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput
    from torch_geometric.utils import trim_to_layer

    from quarry.pyg import FeatureStore, GraphStore, LinkLoader, NeighborSampler, NodeLoader


class LoadersTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        torch.manual_seed(1)
        self.stores = (FeatureStore(self.db), GraphStore(self.db))
        self.edges = self.db.edges().astype(np.int64)
        self.pairs = set(map(tuple, self.edges.T))
        self.degree = np.bincount(self.edges[1], minlength=NODES)

    def check_sample(self, node, row, col, edge, num_nodes, num_edges, fanouts):
        """Edges that exist, each at most once; as many for each node as it has, or as the fanout allows."""
        node, row, col = node.numpy(), row.numpy(), col.numpy()
        self.assertEqual((len(num_nodes), len(num_edges)), (len(fanouts) + 1, len(fanouts)))
        self.assertEqual((sum(num_nodes), sum(num_edges)), (len(node), len(row)))
        found = list(zip(node[row], node[col]))
        self.assertLessEqual(set(found), self.pairs)
        bounds = np.cumsum([0, *num_nodes])
        first = 0
        for hop, count in enumerate(num_edges):
            inside = slice(first, first + count)
            targets = np.arange(bounds[hop], bounds[hop + 1])
            wanted = np.minimum(self.degree[node[targets]], fanouts[hop])
            np.testing.assert_array_equal(np.bincount(col[inside], minlength=len(node)).nonzero()[0], targets[wanted > 0])
            np.testing.assert_array_equal(np.bincount(col[inside], minlength=len(node))[targets], wanted)
            self.assertEqual(len(set(zip(row[inside], col[inside]))), count)
            self.assertLess(row[inside].max(initial=0), bounds[hop + 2])
            first += count
        self.assertEqual(edge.dtype, torch.int64)
        np.testing.assert_array_equal(self.edges[:, edge.numpy()], node[np.stack([row, col])])

    def check_data(self, data, fanouts):
        node = data.n_id.numpy()
        self.check_sample(data.n_id, *data.edge_index, data.e_id, data.num_sampled_nodes, data.num_sampled_edges, fanouts)
        self.assertEqual(data.num_nodes, len(node))
        np.testing.assert_array_equal(data.x.numpy(), self.graph["features"][node])
        np.testing.assert_array_equal(data.y.numpy(), self.graph["labels"][node])
        for mask, split in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
            np.testing.assert_array_equal(data[mask].numpy(), np.isin(node, self.graph[split]))

    def assert_same_batches(self, ours, theirs):
        """Two loaders give the same, attribute by attribute, from the same seed of Torch."""
        batches = []
        for loader in (ours, theirs):
            torch.manual_seed(5)
            batches.append(list(loader))
        self.assertEqual(len(batches[0]), len(batches[1]))
        for one, other in zip(*batches):
            self.assertEqual(sorted(one.to_dict()), sorted(other.to_dict()))
            for name, value in other.to_dict().items():
                if isinstance(value, torch.Tensor):
                    self.assertTrue(torch.equal(one[name], value), name)
                else:
                    self.assertEqual(one[name], value, name)


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class NeighborSamplerTest(LoadersTest):
    def sample(self, seeds, fanouts, **options):
        return NeighborSampler(self.db, fanouts, **options).sample_from_nodes(NodeSamplerInput(torch.arange(len(seeds)), torch.as_tensor(seeds)))

    def check(self, out, fanouts):
        self.assertEqual({part.dtype for part in (out.node, out.row, out.col)}, {torch.int64})
        self.check_sample(out.node, out.row, out.col, out.edge, out.num_sampled_nodes, out.num_sampled_edges, fanouts)

    def test_a_sample_is_of_the_graph_and_begins_with_the_seeds(self):
        for data in (self.db, self.stores):
            seeds = torch.tensor([400, 3, 77, 20, 9])
            out = NeighborSampler(data, [4, 3]).sample_from_nodes(NodeSamplerInput(seeds + 1000, seeds))
            self.check(out, [4, 3])
            self.assertEqual(len(out.node.unique()), len(out.node))
            self.assertTrue(torch.equal(out.node[:5], seeds))
            self.assertTrue(torch.equal(out.metadata[0], seeds + 1000))
            self.assertIsNone(out.metadata[1])
            self.assertIsNone(out.batch)
        self.check(self.sample(np.array([8], np.int32), [2]), [2])

    def test_all_neighbors_are_the_neighborhood(self):
        out = self.sample([11, 230], [-1, -1])
        self.check(out, [1024, 1024])
        near, seen = {11, 230}, {11, 230}
        wanted = []
        for _ in range(2):
            wanted += [pair for pair in self.pairs if pair[1] in near]
            near = {pair[0] for pair in wanted} - seen
            seen |= near
        self.assertEqual(set(out.node.tolist()), seen)
        self.assertEqual(sorted(zip(out.node[out.row].tolist(), out.node[out.col].tolist())), sorted(wanted))

    def test_all_neighbors_of_a_hub_are_more_than_can_be_drawn_by_number(self):
        quarry.import_(self.folder / "hub.db", edges=np.stack([np.arange(1100), np.full(1100, 1100)]), progress=False)
        with quarry.open(self.folder / "hub.db", memory="64MiB") as db:
            out = NeighborSampler(db, [-1]).sample_from_nodes(NodeSamplerInput(None, torch.tensor([1100])))
            self.assertEqual(sorted(out.node.tolist()), list(range(1101)))
            with self.assertRaisesRegex(quarry.UsageError, "from 1 to 1024, or -1"):
                NeighborSampler(db, [1100]).sample_from_nodes(NodeSamplerInput(None, torch.tensor([3])))

    def test_draws_by_weights_are_of_edges_that_have_some(self):
        sources = np.arange(1, 41)
        weights = np.where(sources % 4 == 0, 0, sources).astype(np.float32)
        quarry.import_(self.folder / "weights.db", edges=np.stack([sources, np.zeros(40, int)]), weights=weights, progress=False)
        with quarry.open(self.folder / "weights.db", memory="64MiB") as db:
            index, drawn = NodeSamplerInput(None, torch.tensor([0])), np.zeros(41)
            sampler = NeighborSampler(db, [5], weighted=True)
            for _ in range(600):
                neighbors = sampler.sample_from_nodes(index).node[1:].numpy()
                self.assertEqual(len(neighbors), 5)
                drawn[neighbors] += 1
            self.assertEqual(drawn[4::4].sum(), 0)
            light, heavy = drawn[[1, 2, 3]].sum(), drawn[[37, 38, 39]].sum()
            self.assertGreater(heavy, 8 * light, "19 times the weight; without replacement a little less often")
            self.assertGreater(light, 0)
            out = NeighborSampler(db, [-1], weighted=True).sample_from_nodes(index)
            self.assertEqual(sorted(out.node[1:].tolist()), sources[weights > 0].tolist())
            (data,) = NodeLoader(db, [3], [0], batch_size=1, weighted=True)
            self.assertEqual(data.num_sampled_edges, [3])
        with self.assertRaisesRegex(quarry.InvalidArgument, "no weights to draw by"):
            self.sample([1], [2], weighted=True)

    def test_replacement_gives_as_many_as_asked(self):
        out = self.sample([11, 230, 4], [7], replace=True)
        np.testing.assert_array_equal(np.bincount(out.col, minlength=3)[:3], 7 * (self.degree[[11, 230, 4]] > 0))
        self.assertLessEqual(set(zip(out.node[out.row].tolist(), out.node[out.col].tolist())), self.pairs)
        with self.assertRaisesRegex(quarry.UsageError, "with replacement"):
            self.sample([1], [-1], replace=True)

    def test_stores_and_samplers_pickle(self):
        stores, sampler = pickle.loads(pickle.dumps((self.stores, NeighborSampler(self.stores, [4, 3]))))
        self.assertIs(sampler.db, self.db)
        index = NodeSamplerInput(None, torch.tensor([4, 40]))
        torch.manual_seed(2)
        out = sampler.sample_from_nodes(index)
        self.check(out, [4, 3])
        np.testing.assert_array_equal(stores[0].get_tensor(None, "x", index=out.node), self.graph["features"][out.node])
        self.assertEqual(stores[1].get_all_edge_attrs()[0].size, (NODES, NODES))

    def test_samples_follow_the_seed_of_torch(self):
        draws = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            draws.append([self.sample([5, 6, 7], [3, 2]) for _ in range(2)])
        for one, other in zip(draws[0], draws[1]):
            self.assertTrue(torch.equal(one.node, other.node))
            self.assertTrue(torch.equal(one.row, other.row))
        self.assertFalse(torch.equal(draws[0][0].node, draws[0][1].node))
        self.assertFalse(torch.equal(draws[0][0].node, draws[2][0].node))

    def test_every_neighbor_is_as_likely(self):
        target = int(np.argmax(self.degree))
        sampler = NeighborSampler(self.db, [4])
        times = 2000
        seen = Counter()
        for _ in range(times):
            out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([target])))
            seen.update(out.node[out.row].tolist())
        expected = times * 4 / self.degree[target]
        self.assertEqual(len(seen), self.degree[target])
        for count in seen.values():  # within five standard deviations
            self.assertLess(abs(count - expected), 5 * expected**0.5)

    def test_a_seed_that_is_given_twice_is_there_twice_with_its_neighbors(self):
        seeds = [9, 4, 9, 30, 4, 9, 2]
        out = self.sample(seeds, [3, 2])
        self.assertEqual(out.node[:7].tolist(), seeds)
        self.check(out, [3, 2])
        self.assertEqual(len(out.node[7:].unique()), len(out.node) - 7)
        self.assertTrue(set(out.node[7:].tolist()).isdisjoint(seeds))
        neighbors = [sorted(out.node[out.row[out.col == place]].tolist()) for place in range(7)]
        self.assertEqual((neighbors[0], neighbors[1]), (neighbors[2], neighbors[4]))
        self.assertEqual(neighbors[0], neighbors[5])
        once = self.sample([9, 4, 30, 2], [3, 2])
        self.assertEqual(out.num_sampled_nodes[0] - once.num_sampled_nodes[0], 3)

    def test_the_other_direction(self):
        path = self.folder / "both.db"
        quarry.import_(path, edges=self.graph["edges"], num_nodes=NODES, both_directions=True, progress=False)
        with quarry.open(path, memory="64MiB") as db:
            out = NeighborSampler(db, [1024], direction="out").sample_from_nodes(NodeSamplerInput(None, torch.tensor([9])))
            self.assertEqual(sorted(out.node[out.row].tolist()), sorted(pair[1] for pair in self.pairs if pair[0] == 9))
            self.assertIsNone(out.edge)

    def links(self, neg_sampling=None, label=None, count=20):
        rows = torch.from_numpy(self.edges[:, 100 : 100 + count])
        sampler = NeighborSampler(self.db, [4, 3])
        out = sampler.sample_from_edges(EdgeSamplerInput(torch.arange(count) + 7, *rows, label), neg_sampling)
        self.check(out, [4, 3])
        self.assertEqual(out.metadata[0].tolist(), list(range(7, 7 + count)))
        return rows, out

    def test_edges_as_seeds(self):
        for label in (None, torch.arange(20), torch.rand(20, 3)):
            rows, out = self.links(label=label)
            _, index, got, time = out.metadata
            self.assertTrue(torch.equal(out.node[index], rows))
            self.assertTrue(got is label)
            self.assertIsNone(time)
            self.assertEqual(out.num_sampled_nodes[0], len(rows.unique()), "each end is sampled once")

    def test_binary_negatives(self):
        for amount, label in ((1, None), (0.5, torch.arange(1, 21)), (2, torch.rand(20, 3))):
            rows, out = self.links(NegativeSampling("binary", amount), label)
            _, index, got, _ = out.metadata
            negatives = int(20 * amount)
            self.assertEqual(index.shape, (2, 20 + negatives))
            self.assertTrue(torch.equal(out.node[index[:, :20]], rows))
            self.assertTrue(torch.equal(got[:20], torch.ones(20) if label is None else label))
            self.assertEqual(float(got[20:].abs().sum()), 0)
            self.assertEqual(len(got), 20 + negatives)
        weight = torch.zeros(NODES)
        weight[[3, 8]] = 1
        _, out = self.links(NegativeSampling("binary", 1, src_weight=weight, dst_weight=weight.flip(0)))
        negative = out.node[out.metadata[1][:, 20:]]
        self.assertEqual(set(negative[0].tolist()), {3, 8})
        self.assertEqual(set(negative[1].tolist()), {NODES - 4, NODES - 9})

    def test_triplets(self):
        for amount in (1, 3):
            rows, out = self.links(NegativeSampling("triplet", amount))
            _, source, target, negative, time = out.metadata
            self.assertTrue(torch.equal(out.node[torch.stack([source, target])], rows))
            self.assertEqual(negative.shape, (20,) if amount == 1 else (20, 3))
            self.assertLess(int(negative.max()), out.num_sampled_nodes[0])
            self.assertIsNone(time)
            self.assertGreater(len(out.node[negative].unique()), 10)
        with self.assertRaisesRegex(quarry.UsageError, "dst_neg_index"):
            self.links(NegativeSampling("triplet"), torch.ones(20))

    def test_what_it_cannot_do_is_said(self):
        for options in ({"disjoint": True}, {"subgraph_type": "induced"}, {"time_attr": "time"}, {"weight_attr": "weight"}, {"temporal_strategy": "last"}, {"sample_direction": "backward"}):
            (name,) = options
            with self.assertRaisesRegex(NotImplementedError, name):
                NeighborSampler(self.db, [2], **options)
        NeighborSampler(self.db, [2], replace=False, subgraph_type="directional", disjoint=False, time_attr=None)
        with self.assertRaisesRegex(TypeError, "frobnicate"):
            NeighborSampler(self.db, [2], frobnicate=1)
        with self.assertRaisesRegex(quarry.UsageError, "list"):
            NeighborSampler(self.db, {("a", "to", "b"): [2]})
        for wrong in ([], [0], [-2], [2000]):
            with self.assertRaises(quarry.UsageError):
                NeighborSampler(self.db, wrong)
        sampler = NeighborSampler(self.db, [2])
        nodes = torch.tensor([1, 2])
        for wrong in (NodeSamplerInput(None, nodes, time=nodes), NodeSamplerInput(None, nodes, input_type="paper")):
            with self.assertRaises(NotImplementedError):
                sampler.sample_from_nodes(wrong)
        with self.assertRaises(NotImplementedError):
            sampler.sample_from_edges(EdgeSamplerInput(None, nodes, nodes, time=nodes))
        with self.assertRaises(quarry.InvalidArgument):
            sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([NODES])))


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class NodeLoaderTest(LoadersTest):
    def test_an_epoch(self):
        labelled = self.graph["train"][self.graph["labels"][self.graph["train"]] >= 0]
        loader = NodeLoader(self.db, num_neighbors=[4, 3], batch_size=64, shuffle=True)
        self.assertEqual(len(loader), 5)
        epochs = [list(loader), list(loader)]
        for epoch in epochs:
            for data in epoch:
                self.assertIs(type(data), Data)
                self.check_data(data, [4, 3])
                np.testing.assert_array_equal(data.n_id[: data.batch_size].numpy(), labelled[data.input_id.numpy()])
            self.assertEqual([data.batch_size for data in epoch], [64] * 4 + [len(labelled) - 256])
            seen = torch.cat([data.input_id for data in epoch])
            self.assertTrue(torch.equal(seen.sort()[0], torch.arange(len(labelled))))
        self.assertFalse(torch.equal(epochs[0][0].n_id, epochs[1][0].n_id))
        self.assertEqual(len(NodeLoader(self.db, [2], batch_size=64, drop_last=True)), 4)
        self.assertEqual(loader([0]).n_id[:1].tolist(), [labelled[0]])

    def test_batches_are_those_of_pyg_over_the_same_stores(self):
        sampler = NeighborSampler(self.db, [4, 3])
        nodes = torch.arange(0, 200, 2)
        for theirs in (
            pyg.NodeLoader(self.stores, sampler, nodes, batch_size=20, shuffle=True),
            pyg.NeighborLoader(self.stores, [4, 3], nodes, neighbor_sampler=sampler, batch_size=20, shuffle=True),
        ):
            self.assertTrue(theirs.filter_per_worker, "PyG's choice for stores")
            self.assert_same_batches(NodeLoader(self.db, [4, 3], nodes, batch_size=20, shuffle=True), theirs)
            for data in theirs:
                self.check_data(data, [4, 3])
                self.assertTrue(torch.equal(data.n_id[:20], nodes[data.input_id]))

    def test_seeds_of_every_kind(self):
        nodes = [400, 3, 77]
        mask = torch.zeros(NODES, dtype=torch.bool)
        mask[nodes] = True
        for given, wanted in (
            (nodes, nodes),
            (np.array(nodes, np.uint32), nodes),
            (torch.tensor(nodes, dtype=torch.int32), nodes),
            (mask, sorted(nodes)),
            (mask.numpy(), sorted(nodes)),
            ("valid", self.graph["valid"].tolist()),
            (None, list(range(NODES))),
        ):
            (data,) = NodeLoader(self.db, [2], given, batch_size=NODES)
            self.assertEqual(data.n_id[: data.batch_size].tolist(), wanted)
        with self.assertRaises(quarry.UsageError):
            NodeLoader(self.db, [2], "training")
        with self.assertRaises(quarry.InvalidArgument):
            NodeLoader(self.db, [2], [NODES])

    def test_transforms_and_classes_of_ones_own(self):
        class Mine(Data):
            pass

        def halve(out):
            out.metadata = (out.metadata[0], torch.zeros(1))
            return out

        loader = NodeLoader(self.db, [2], [1, 2], batch_size=2, transform=lambda data: (data, 1), transform_sampler_output=halve, custom_cls=Mine)
        ((data, one),) = loader
        self.assertEqual((type(data), one, data.seed_time.tolist()), (Mine, 1, [0]))

    def test_stores_choose_what_is_in_a_batch(self):
        sampler = NeighborSampler(self.db, [4])
        with self.db.snapshot() as before:
            self.db.put([5], feature=np.zeros((1, DIM), np.float32))
            (data,) = NodeLoader((FeatureStore(self.db, attrs=["x"], snapshot=before), self.stores[1]), sampler, [5])
            np.testing.assert_array_equal(data.x.numpy(), self.graph["features"][data.n_id.numpy()])
            self.assertNotIn("y", data)
        (data,) = NodeLoader(self.db, sampler, [5])
        self.assertEqual(float(data.x[0].abs().sum()), 0)
        with self.assertRaisesRegex(quarry.UsageError, "direction"):
            NodeLoader(self.db, sampler, [5], direction="out")

    def test_trimming_to_layers_changes_nothing(self):
        convs = torch.nn.ModuleList([SAGEConv(DIM, 8), SAGEConv(8, 8), SAGEConv(8, 4)])

        def model(data, trim):
            x, edge_index = data.x, data.edge_index
            for i, conv in enumerate(convs):
                if trim:
                    x, edge_index, _ = trim_to_layer(i, data.num_sampled_nodes, data.num_sampled_edges, x, edge_index)
                x = conv(x, edge_index).relu()
            return x[: data.batch_size]

        data = next(iter(NodeLoader(self.db, [4, 3, 2], batch_size=32)))
        whole = model(data, False)
        torch.testing.assert_close(model(data, True), whole)
        # Seeds that are drawn with replacement, as for classes of unlike size.
        draw = torch.utils.data.WeightedRandomSampler(torch.arange(1.0, 11), 64)
        data = next(iter(NodeLoader(self.db, [4, 3, 2], list(range(10)), batch_size=64, sampler=draw)))
        self.assertEqual(data.batch_size, 64)
        whole = model(data, False)
        torch.testing.assert_close(model(data, True), whole)
        seeds = data.n_id[:64]
        self.assertLess(len(seeds.unique()), 11)
        for node in seeds.unique():
            rows = whole[seeds == node]
            torch.testing.assert_close(rows, rows[:1].expand_as(rows))

    def test_workers_need_a_server(self):
        with self.assertRaisesRegex(quarry.Unsupported, "num_workers=2: .*quarry serve"):
            NodeLoader(self.db, [2], num_workers=2)
        sampler = NeighborSampler(self.db, [2])
        theirs = pyg.NodeLoader(self.stores, sampler, torch.arange(4), num_workers=1, multiprocessing_context=multiprocessing.get_context("fork"))
        with self.assertRaisesRegex(quarry.Forked, "forked"):
            next(iter(theirs))
        theirs = pyg.NodeLoader(self.stores, sampler, torch.arange(4), num_workers=1, multiprocessing_context="spawn")
        with self.assertRaisesRegex(quarry.Unsupported, "is open in this process.*quarry serve"):
            next(iter(theirs))

    def test_options_that_are_not_there_are_refused(self):
        for options, expected in (({"disjoint": True}, NotImplementedError), ({"input_time": torch.zeros(3)}, NotImplementedError), ({"frobnicate": 1}, TypeError)):
            with self.assertRaisesRegex(expected, next(iter(options))):
                NodeLoader(self.db, [2], [1, 2, 3], **options)


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class EdgeAttributesTest(LoadersTest):
    def setUp(self) -> None:
        super().setUp()
        # Attributes that tell the edge: its ends, and its id from a file.
        np.save(self.folder / "ids.npy", np.arange(self.db.num_edges))
        attributes = {"edge_attr": torch.from_numpy(self.edges.T.copy()), "edge_id": np.load(self.folder / "ids.npy", mmap_mode="r")}
        self.with_edges = (FeatureStore(self.db, edge_attrs=attributes), self.stores[1])

    def test_they_are_looked_up_by_edge_and_not_by_node(self):
        ends = torch.from_numpy(self.edges)
        draw = torch.utils.data.WeightedRandomSampler(torch.ones(20), 64)
        for loader in (
            NodeLoader(self.with_edges, [4, 3], batch_size=64),
            NodeLoader(self.with_edges, [4, 3], list(range(20)), batch_size=64, sampler=draw),
            LinkLoader(self.with_edges, [4, 3], ends[:, ::8], neg_sampling="binary", batch_size=50),
            LinkLoader(self.with_edges, [4, 3], ends[:, ::8], neg_sampling="triplet", batch_size=50),
        ):
            for data in loader:
                self.check_data(data, [4, 3])
                self.assertTrue(torch.equal(data.edge_attr.T, data.n_id[data.edge_index]))
                self.assertTrue(torch.equal(data.edge_id, data.e_id))

    def test_pygs_own_loaders_do_not_get_them_wrong(self):
        nodes = torch.arange(40)
        sampler = NeighborSampler(self.db, [4, 3])
        theirs = list(pyg.NodeLoader(self.with_edges, sampler, nodes, batch_size=20))
        for data in theirs:
            self.check_data(data, [4, 3])
            self.assertNotIn("edge_attr", data)

    def test_a_sample_without_ids_of_edges_is_refused(self):
        def forget(out):
            out.edge = None
            return out

        with self.assertRaisesRegex(quarry.Unsupported, "'edge_attr' of edges"):
            next(iter(NodeLoader(self.with_edges, [2], [1], transform_sampler_output=forget)))


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class LinkLoaderTest(LoadersTest):
    def setUp(self) -> None:
        super().setUp()
        self.seeds = torch.from_numpy(self.edges[:, ::8].copy())

    def test_binary_negatives(self):
        loader = LinkLoader(self.db, [4, 3], self.seeds, neg_sampling="binary", batch_size=50, shuffle=True)
        seen = []
        for data in loader:
            count = len(data.input_id)
            self.check_data(data, [4, 3])
            self.assertTrue(torch.equal(data.n_id[data.edge_label_index[:, :count]], self.seeds[:, data.input_id]))
            self.assertEqual(data.edge_label.tolist(), [1.0] * count + [0.0] * count)
            seen += data.input_id.tolist()
        self.assertEqual(sorted(seen), list(range(self.seeds.size(1))))
        labels = torch.arange(self.seeds.size(1)) % 3
        data = next(iter(LinkLoader(self.db, [2], self.seeds, labels, neg_sampling_ratio=2.0, batch_size=50)))
        self.assertEqual(data.edge_label.tolist(), (labels[:50] + 1).tolist() + [0] * 100)
        data = next(iter(LinkLoader(self.db, [2], self.seeds, labels, batch_size=50)))
        self.assertTrue(torch.equal(data.edge_label, labels[:50]))

    def test_triplets(self):
        for amount in (1, 3):
            data = next(iter(LinkLoader(self.db, [4, 3], self.seeds, neg_sampling={"mode": "triplet", "amount": amount}, batch_size=50)))
            self.check_data(data, [4, 3])
            self.assertTrue(torch.equal(data.n_id[torch.stack([data.src_index, data.dst_pos_index])], self.seeds[:, data.input_id]))
            self.assertEqual(data.dst_neg_index.shape, (50,) if amount == 1 else (50, 3))
            self.assertNotIn("edge_label_index", data)

    def test_batches_are_those_of_pyg_over_the_same_stores(self):
        sampler = NeighborSampler(self.db, [4, 3])
        for negatives in (None, "binary", {"mode": "triplet", "amount": 2}):
            options = {"neg_sampling": negatives, "batch_size": 50, "shuffle": True}
            ours = LinkLoader(self.db, [4, 3], self.seeds, **options)
            for theirs in (
                pyg.LinkLoader(self.stores, sampler, (None, self.seeds), **options),
                pyg.LinkNeighborLoader(self.stores, [4, 3], (None, self.seeds), neighbor_sampler=sampler, **options),
            ):
                self.assert_same_batches(ours, theirs)

    def test_all_edges_are_seeds_where_none_are_given(self):
        loader = LinkLoader(self.db, [2], batch_size=1000)
        self.assertTrue(torch.equal(torch.cat([data.n_id[data.edge_label_index] for data in loader], dim=1), torch.from_numpy(self.edges)))
        theirs = pyg.LinkNeighborLoader(self.stores, [2], (None, None), neighbor_sampler=NeighborSampler(self.db, [2]), batch_size=1000)
        self.assert_same_batches(loader, theirs)
        with self.assertRaisesRegex(MemoryError, "limit"):
            LinkLoader((self.stores[0], GraphStore(self.db, limit="16KiB")), [2])

    def test_edges_are_sampled_by_hand_and_without_a_graph(self):
        loader = LinkLoader(self.db, [4, 3], self.seeds, batch_size=50)
        data = loader([3, 10])
        self.check_data(data, [4, 3])
        self.assertTrue(torch.equal(data.n_id[data.edge_label_index], self.seeds[:, [3, 10]]))
        quarry.import_(self.folder / "none.db", edges=np.empty((2, 0), np.int64), num_nodes=20, progress=False)
        with quarry.open(self.folder / "none.db", memory="64MiB") as db:
            pairs = torch.tensor([[3, 4, 3], [5, 3, 19]])
            for data in LinkLoader(db, [4, 3], pairs, batch_size=3):
                self.assertEqual((data.num_edges, data.num_nodes), (0, 4))
                self.assertTrue(torch.equal(data.n_id[data.edge_label_index], pairs))

    def test_wrong_seeds_are_refused(self):
        for wrong, expected in ((torch.tensor([1, 2]), quarry.UsageError), (torch.tensor([[1], [NODES]]), quarry.InvalidArgument), (torch.rand(2, 3), quarry.UsageError)):
            with self.assertRaises(expected):
                LinkLoader(self.db, [2], wrong)
        with self.assertRaisesRegex(NotImplementedError, "edge_label_time"):
            LinkLoader(self.db, [2], self.seeds, edge_label_time=torch.zeros(3))


if __name__ == "__main__":
    unittest.main()
