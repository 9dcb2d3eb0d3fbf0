"""quarry.pyg.NeighborSampler, NodeLoader and LinkLoader over a database with types, against the arrays that it is made of, and
against PyG's loaders over the same stores and sampler. Need torch and torch_geometric.

They restate what the heterogeneous cases of PyG's test_neighbor_loader.py and test_link_neighbor_loader.py ask. What differs:
edge ids are columns of db.edges(), which count edges of all types; no times, no disjoint or induced samples.
"""

import importlib.util
import os
import pickle
import unittest

import numpy as np

import quarry
from small_graph import BINARY, serve
from test_hetero import EDGES, NODES, HeteroDatabaseTest

_TORCH = importlib.util.find_spec("torch_geometric") is not None
if _TORCH:
    import torch
    import torch_geometric.loader as pyg
    from torch_geometric.data import HeteroData
    from torch_geometric.sampler import EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, NodeSamplerInput

    from quarry.pyg import FeatureStore, GraphStore, LinkLoader, NeighborSampler, NodeLoader

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
FANOUTS = {edge_type: [i % 4, (i + 1) % 3 + 1] for i, edge_type in enumerate(EDGES)}


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class TypedSamplesTest(HeteroDatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        torch.manual_seed(1)
        self.edges = self.db.edges()

    def nodes(self, seeds, fanouts, type_="paper", **options):
        index = NodeSamplerInput(torch.arange(len(seeds)) + 100, torch.as_tensor(seeds), input_type=type_)
        return NeighborSampler(self.db, fanouts, **options).sample_from_nodes(index)

    def check_sample(self, out, fanouts, seeds):
        """A sample of `seeds` (by type): edges that exist, each node's of each type at most once, as many as it has or as the
        fanout allows (-1: all)."""
        self.assertIsInstance(out, HeteroSamplerOutput)
        self.assertEqual(list(out.node), list(NODES))
        self.assertEqual([list(part) for part in (out.row, out.col, out.edge, out.num_sampled_edges)], [list(EDGES)] * 4)
        for name, node in out.node.items():
            self.assertEqual(node.dtype, torch.int64)
            expected = np.asarray(seeds.get(name, []))
            self.assertEqual(out.num_sampled_nodes[name][0], len(expected))
            np.testing.assert_array_equal(node[: len(expected)], expected)
            self.assertEqual(sum(out.num_sampled_nodes[name]), len(node))
            rest = node[len(expected) :].tolist()
            self.assertEqual(len(set(rest)), len(rest))
            self.assertTrue(set(rest).isdisjoint(expected.tolist()))
        for edge_type in EDGES:
            source, _, destination = edge_type
            row, col = out.row[edge_type].numpy(), out.col[edge_type].numpy()
            sources, targets = out.node[source].numpy(), out.node[destination].numpy()
            self.assertLessEqual(set(zip(sources[row].tolist(), targets[col].tolist())), self.sets[edge_type])
            self.assertEqual(len(set(zip(sources[row].tolist(), col.tolist()))), len(row), "each neighbor of a node once")
            ends = np.stack([sources[row] + self.first[source], targets[col] + self.first[destination]])
            np.testing.assert_array_equal(self.edges[:, out.edge[edge_type].numpy()], ends)
            counts = out.num_sampled_edges[edge_type]
            self.assertEqual(sum(counts), len(row))
            bounds, first = np.cumsum([0, *out.num_sampled_nodes[destination]]), 0
            for hop, count in enumerate(counts):
                given = np.bincount(col[first : first + count], minlength=len(targets))
                degree, fanout = self.degrees[edge_type][targets], fanouts[edge_type][hop]
                wanted = degree if fanout == -1 else np.minimum(degree, fanout)
                places = np.arange(len(targets))
                np.testing.assert_array_equal(given, np.where((places >= bounds[hop]) & (places < bounds[hop + 1]), wanted, 0))
                first += count

    def neighborhood(self, seeds, hops, followed):
        """Nodes and edges within so many hops of the seeds, by type: every edge into a node, once."""
        seen = {name: set(seeds.get(name, ())) for name in NODES}
        near = {name: set(found) for name, found in seen.items()}
        edges = {edge_type: set() for edge_type in EDGES}
        for _ in range(hops):
            found = {name: set() for name in NODES}
            for edge_type in followed:
                into = {pair for pair in self.sets[edge_type] if pair[1] in near[edge_type[2]]}
                edges[edge_type] |= into
                found[edge_type[0]] |= {pair[0] for pair in into}
            near = {name: found[name] - seen[name] for name in NODES}
            seen = {name: seen[name] | found[name] for name in NODES}
        return seen, edges


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class TypedNeighborSamplerTest(TypedSamplesTest):
    def test_samples_are_of_the_graph(self):
        for fanouts in (FANOUTS, dict.fromkeys(EDGES, [3, 2])):
            for type_, seeds in (("paper", [40, 3, 299]), ("author", [7]), ("field_of_study", [0, 39])):
                out = self.nodes(seeds, fanouts if fanouts is FANOUTS else [3, 2], type_)
                self.check_sample(out, fanouts, {type_: seeds})
                self.assertEqual(out.metadata[0].tolist(), list(range(100, 100 + len(seeds))))
                self.assertIsNone(out.metadata[1])
                self.assertIsNone(out.batch)
        out = self.nodes([5, 6], {CITES: [2, 2, 1]})
        self.check_sample(out, {edge_type: [2, 2, 1] if edge_type == CITES else [0, 0, 0] for edge_type in EDGES}, {"paper": [5, 6]})

    def test_all_neighbors_are_the_neighborhood(self):
        for type_, seeds, fanouts in (("paper", [11, 230], [-1, -1]), ("field_of_study", [3], [-1, -1, -1]), ("author", [9], {("paper", "rev_writes", "author"): [-1, -1], CITES: [0, -1]})):
            out = self.nodes(seeds, fanouts, type_)
            followed = fanouts if isinstance(fanouts, dict) else EDGES
            by_type = {edge_type: fanouts.get(edge_type, [0, 0]) for edge_type in EDGES} if isinstance(fanouts, dict) else dict.fromkeys(EDGES, fanouts)
            self.check_sample(out, by_type, {type_: seeds})
            seen, edges = self.neighborhood({type_: seeds}, len(by_type[CITES]), followed)
            for name in NODES:
                self.assertEqual(set(out.node[name].tolist()), seen[name])
            for edge_type in EDGES:
                source, _, destination = edge_type
                got = zip(out.node[source][out.row[edge_type]].tolist(), out.node[destination][out.col[edge_type]].tolist())
                self.assertEqual(sorted(got), sorted(edges[edge_type]))

    def test_samples_follow_the_seed_of_torch(self):
        draws = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            draws.append([self.nodes([5, 6, 7], [3, 2]) for _ in range(2)])
        for one, other in zip(draws[0], draws[1]):
            for name in NODES:
                self.assertTrue(torch.equal(one.node[name], other.node[name]))
            for edge_type in EDGES:
                self.assertTrue(torch.equal(one.edge[edge_type], other.edge[edge_type]))
        for other in (draws[0][1], draws[2][0]):
            self.assertFalse(all(torch.equal(draws[0][0].edge[edge_type], other.edge[edge_type]) for edge_type in EDGES))

    def test_a_seed_that_is_given_twice_is_there_twice_with_its_neighbors(self):
        seeds = [9, 4, 9, 30, 4, 9, 2]
        torch.manual_seed(3)
        out = self.nodes(seeds, [3, 2])
        self.check_sample(out, dict.fromkeys(EDGES, [3, 2]), {"paper": seeds})
        torch.manual_seed(3)
        once = self.nodes([9, 4, 30, 2], [3, 2])
        places = [[0, 2, 5], [1, 4], [3], [6]]  # of each of them
        for edge_type in EDGES:
            source, _, destination = edge_type

            def neighbors(sample, place):
                return sorted(sample.node[source][sample.row[edge_type][sample.col[edge_type] == place]].tolist())

            if destination != "paper":
                self.assertTrue(torch.equal(out.edge[edge_type], once.edge[edge_type]))
                continue
            for place, again in enumerate(places):
                for other in again:
                    self.assertEqual(neighbors(out, other), neighbors(once, place))
        self.assertTrue(torch.equal(out.node["author"], once.node["author"]))

    def test_replacement_gives_as_many_as_asked(self):
        out = self.nodes([4, 90], {CITES: [7]}, replace=True)
        papers = out.node["paper"].numpy()
        self.assertLessEqual(set(zip(papers[out.row[CITES]].tolist(), papers[out.col[CITES]].tolist())), self.sets[CITES])
        np.testing.assert_array_equal(np.bincount(out.col[CITES], minlength=2)[:2], 7 * (self.degrees[CITES][[4, 90]] > 0))

    def test_edges_as_seeds(self):
        for edge_type in (WRITES, CITES):
            pairs = self.graph["edges"][edge_type][:, 50:70]
            for neg_sampling, label in ((None, None), (None, torch.rand(20, 2)), (NegativeSampling("binary", 1.5), None), (NegativeSampling("triplet", 2), None), (NegativeSampling("triplet"), None)):
                with self.subTest(edge_type=edge_type, neg_sampling=neg_sampling):
                    index = EdgeSamplerInput(torch.arange(20) + 7, *torch.from_numpy(pairs), label, input_type=edge_type)
                    out = NeighborSampler(self.db, [3, 2]).sample_from_edges(index, neg_sampling)
                    nodes = [out.node[edge_type[0]], out.node[edge_type[2]]]
                    self.assertEqual(out.metadata[0].tolist(), list(range(7, 27)))
                    if neg_sampling is None or neg_sampling.is_binary():
                        (rows, cols), got = out.metadata[1], out.metadata[2]
                        self.assertEqual(len(rows), 20 if neg_sampling is None else 50)
                        if neg_sampling is None:
                            self.assertIs(got, label)
                        else:
                            self.assertEqual(got.tolist(), [1] * 20 + [0] * 30)
                    else:
                        _, rows, positives, negatives, _ = out.metadata
                        self.assertEqual(negatives.shape, (20,) if neg_sampling.amount == 1 else (20, 2))
                        cols = torch.cat([positives, negatives.flatten()])
                    np.testing.assert_array_equal(nodes[0][rows[:20]], pairs[0])
                    np.testing.assert_array_equal(nodes[1][cols[:20]], pairs[1])
                    self.assertIsNone(out.metadata[-1])
                    ends = [{*nodes[0][rows].tolist()}, {*nodes[1][cols].tolist()}]
                    seeds = {"paper": sorted(ends[0] | ends[1])} if edge_type == CITES else {"author": sorted(ends[0]), "paper": sorted(ends[1])}
                    self.check_sample(out, dict.fromkeys(EDGES, [3, 2]), seeds)
        weight = torch.zeros(NODES["paper"])
        weight[[3, 8]] = 1
        index = EdgeSamplerInput(None, *torch.from_numpy(self.graph["edges"][WRITES][:, :30]), input_type=WRITES)
        out = NeighborSampler(self.db, [1]).sample_from_edges(index, NegativeSampling("triplet", 1, dst_weight=weight))
        self.assertEqual(set(out.node["paper"][out.metadata[3]].tolist()), {3, 8})

    def test_what_it_cannot_do_is_said(self):
        sampler, nodes = NeighborSampler(self.db, [2]), torch.tensor([1, 2])
        for input_type in (None, "venue"):
            with self.assertRaisesRegex(quarry.UsageError, "a type of nodes .paper, author, field_of_study. is wanted"):
                sampler.sample_from_nodes(NodeSamplerInput(None, nodes, input_type=input_type))
        for input_type in (None, ("paper", "writes", "author")):
            with self.assertRaisesRegex(quarry.UsageError, "a type of edges is wanted"):
                sampler.sample_from_edges(EdgeSamplerInput(None, nodes, nodes, input_type=input_type))
        with self.assertRaises(quarry.InvalidArgument):
            sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([40]), input_type="field_of_study"))
        for bad in ([-2], [2000], [], {("paper", "writes", "author"): [2]}, {CITES: [2], WRITES: [2, 2]}):
            with self.assertRaisesRegex(quarry.UsageError, "num_neighbors"):
                NeighborSampler(self.db, bad)
        with self.assertRaisesRegex(quarry.Unsupported, "along 'in'"):
            self.nodes([1], [2], direction="out")
        with self.assertRaisesRegex(quarry.UsageError, "with replacement"):
            self.nodes([1], [-1], replace=True)
        with self.assertRaisesRegex(quarry.Unsupported, "times"):
            sampler.sample_from_nodes(NodeSamplerInput(None, nodes, time=nodes, input_type="paper"))

    def test_all_neighbors_of_a_hub_are_more_than_can_be_drawn_by_number(self):
        self.db.close()
        data = HeteroData()
        data["hub"].num_nodes, data["leaf"].num_nodes = 2, 1500
        data["leaf", "of", "hub"].edge_index = torch.stack([torch.arange(1500), torch.arange(1500) // 1100])
        data["hub", "has", "leaf"].edge_index = data["leaf", "of", "hub"].edge_index.flip(0)
        quarry.from_pyg(data, self.folder / "hub.db", progress=False)
        with quarry.open(self.folder / "hub.db", memory="256MiB") as db:
            out = NeighborSampler(db, [-1]).sample_from_nodes(NodeSamplerInput(None, torch.tensor([0]), input_type="hub"))
            self.assertEqual(out.num_sampled_edges["leaf", "of", "hub"], [1100])
            self.assertEqual(sorted(out.node["leaf"].tolist()), list(range(1100)))
            batches = list(self.Loader(db, [-1], input_nodes=("hub", None)))
            self.assertEqual(sum(batch["leaf", "of", "hub"].edge_index.shape[1] for batch in batches), 1500)
            out = NeighborSampler(db, {("hub", "has", "leaf"): [-1], ("leaf", "of", "hub"): [1024]}).sample_from_nodes(NodeSamplerInput(None, torch.tensor([1]), input_type="hub"))
            self.assertEqual(out.num_sampled_edges["leaf", "of", "hub"], [400])


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class TypedLoadersTest(TypedSamplesTest):
    def setUp(self) -> None:
        super().setUp()
        self.stores = (FeatureStore(self.db), GraphStore(self.db))

    def check_batch(self, data, fanouts, seeds):
        self.assertEqual((data.node_types, data.edge_types), (self.data.node_types, self.data.edge_types))
        for name in NODES:
            ids = data[name].n_id
            self.assertEqual(data[name].num_nodes, len(ids))
            for attribute in ("x", "y", "train_mask", "val_mask", "test_mask"):
                self.assertEqual(attribute in data[name], attribute in self.data[name])
                if attribute in data[name]:
                    self.assertTrue(torch.equal(data[name][attribute], self.data[name][attribute][ids]), (name, attribute))
        parts = [{edge_type: part(data[edge_type]) for edge_type in EDGES} for part in (lambda s: s.edge_index[0], lambda s: s.edge_index[1], lambda s: s.e_id)]
        counts = [{key: data[key][name] for key in keys} for keys, name in ((NODES, "num_sampled_nodes"), (EDGES, "num_sampled_edges"))]
        nodes = {name: data[name].n_id for name in NODES}
        self.check_sample(HeteroSamplerOutput(nodes, *parts, num_sampled_nodes=counts[0], num_sampled_edges=counts[1]), fanouts, seeds)

    def test_an_epoch_around_nodes(self):
        for input_nodes, type_, ids in (
            ("train", "paper", self.train),
            (("paper", self.graph["masks"]["val"]), "paper", np.flatnonzero(self.graph["masks"]["val"])),
            ("field_of_study", "field_of_study", np.arange(40)),
            (("author", [7, 3, 150]), "author", np.array([7, 3, 150])),
        ):
            seen = []
            for data in NodeLoader(self.db, FANOUTS, input_nodes, batch_size=32):
                seeds = data[type_].n_id[: data[type_].batch_size]
                self.check_batch(data, FANOUTS, {type_: seeds})
                seen += seeds.tolist()
                self.assertEqual(len(data[type_].input_id), len(seeds))
            self.assertEqual(seen, ids.tolist())
        loader = NodeLoader(self.stores, [2, 1], "train", batch_size=64, shuffle=True, transform=lambda data: (data["paper"].batch_size, data["paper"].input_id))
        sizes, places = zip(*loader)
        self.assertEqual(sum(sizes), len(self.train))
        self.assertEqual(sorted(torch.cat(places).tolist()), list(range(len(self.train))))

    def test_batches_are_those_of_pyg_over_the_same_stores(self):
        ids, sampler = torch.arange(0, 200, 3), NeighborSampler(self.db, FANOUTS)
        pairs = torch.from_numpy(self.graph["edges"][WRITES][:, :60])
        options = {"batch_size": 25, "filter_per_worker": False}
        cases = (
            (lambda: NodeLoader(self.stores, sampler, ("paper", ids), batch_size=25), lambda: pyg.NodeLoader(self.stores, sampler, ("paper", ids), **options)),
            (lambda: NodeLoader(self.db, sampler, ("paper", ids), batch_size=25), lambda: pyg.NeighborLoader(self.stores, FANOUTS, ("paper", ids), neighbor_sampler=sampler, **options)),
            *(
                (
                    lambda mode=mode: LinkLoader(self.db, sampler, (WRITES, pairs), neg_sampling=mode, batch_size=25),
                    lambda mode=mode: pyg.LinkNeighborLoader(self.stores, FANOUTS, (WRITES, pairs), neg_sampling=mode, neighbor_sampler=sampler, **options),
                )
                for mode in (None, "binary", "triplet")
            ),
        )
        for ours, theirs in cases:
            batches = []
            for loader in (ours, theirs):
                torch.manual_seed(5)
                batches.append(list(loader()))
            self.assertEqual(len(batches[0]), 3)
            for one, other in zip(*batches, strict=True):
                one, other = one.to_dict(), other.to_dict()
                self.assertEqual(set(one), set(other))
                for key, store in other.items():
                    for name, value in store.items() if isinstance(store, dict) else ():
                        if value is None:
                            self.assertIsNone(one[key].get(name), (key, name))
                        elif isinstance(value, torch.Tensor):
                            self.assertTrue(torch.equal(one[key][name], value.nan_to_num() if value.is_floating_point() else value), (key, name))
                        else:
                            self.assertEqual(one[key][name], value, (key, name))

    def test_an_epoch_around_edges(self):
        for edge_type, given in ((WRITES, None), (CITES, torch.from_numpy(self.graph["edges"][CITES][:, ::9]))):
            source, _, destination = edge_type
            all_edges = np.stack(self.stores[1].get_edge_index(edge_type, "coo")) if given is None else given.numpy()
            for mode in (None, "binary", "triplet"):
                with self.subTest(edge_type=edge_type, mode=mode):
                    seen = []
                    for data in LinkLoader(self.db, [3, 2], edge_type if given is None else (edge_type, given), neg_sampling=mode, batch_size=300):
                        sources, targets = data[source], data[destination]
                        if mode == "triplet":
                            rows, cols = sources.src_index, targets.dst_pos_index
                            self.assertEqual(len(targets.dst_neg_index), len(rows))
                            self.assertNotIn("edge_label_index", data[edge_type])
                        else:
                            rows, cols = data[edge_type].edge_label_index
                            label = data[edge_type].get("edge_label")
                            if mode is None:
                                self.assertIsNone(label)
                            else:
                                rows, cols = rows[label > 0], cols[label > 0]
                                self.assertEqual(2 * len(rows), len(label))
                        self.assertEqual(len(data[edge_type].input_id), len(rows))
                        seen.append(np.stack([sources.n_id[rows], targets.n_id[cols]]))
                        ends = {name: data[name].n_id[: data[name].num_sampled_nodes[0]] for name in (source, destination)}
                        self.check_batch(data, dict.fromkeys(EDGES, [3, 2]), ends)
                    np.testing.assert_array_equal(np.concatenate(seen, axis=1), all_edges)

    def test_batches_have_the_attributes_of_their_edges(self):
        attrs = {edge_type: {"ends": torch.stack(self.stores[1].get_edge_index(edge_type, "coo")).T} for edge_type in (WRITES, CITES)}
        store = FeatureStore(self.db, edge_attrs=attrs)
        self.assertEqual([(attr.group_name, attr.attr_name) for attr in store.get_all_edge_tensor_attrs()], [(WRITES, "ends"), (CITES, "ends")])
        self.assertTrue(torch.equal(store[CITES, "ends", torch.tensor([7, 0])], attrs[CITES]["ends"][[7, 0]]))
        self.assertEqual(store.get_tensor_size(WRITES, "ends"), tuple(attrs[WRITES]["ends"].shape))
        with self.assertRaisesRegex(quarry.NotFound, "no edge attribute 'ends' of .*'reviews'"):
            store.get_tensor(("author", "reviews", "paper"), "ends", torch.tensor([0]))
        seeds = (WRITES, torch.from_numpy(self.graph["edges"][WRITES][:, :40]))
        for loader in (NodeLoader((store, self.stores[1]), [3, 2], "train", batch_size=64), LinkLoader((store, self.stores[1]), [3, 2], seeds, neg_sampling="binary", batch_size=20)):
            for data in loader:
                for edge_type in EDGES:
                    self.assertEqual("ends" in data[edge_type], edge_type in attrs)
                    if edge_type in attrs:
                        row, col = data[edge_type].edge_index
                        self.assertTrue(torch.equal(data[edge_type].ends, torch.stack([data[edge_type[0]].n_id[row], data[edge_type[2]].n_id[col]]).T))

    def test_it_pickles(self):
        sampler, loader = pickle.loads(pickle.dumps((NeighborSampler(self.db, FANOUTS), self.Loader(self.db, FANOUTS, 32, ("paper", "test")))))
        self.assertIs(sampler.db, self.db)
        index = NodeSamplerInput(None, torch.tensor([4, 40]), input_type="paper")
        self.check_sample(sampler.sample_from_nodes(index), FANOUTS, {"paper": [4, 40]})
        epochs = list(loader), list(self.Loader(self.db, FANOUTS, 32, ("paper", "test")))
        for one, other in zip(*epochs, strict=True):
            self.assertTrue(torch.equal(one["paper"].n_id, other["paper"].n_id))

    def test_wrong_seeds_are_refused(self):
        for wrong in (None, torch.tensor([[1], [2]]), ("paper", [[1], [2]])):
            with self.assertRaisesRegex(quarry.UsageError, "a type of edges"):
                LinkLoader(self.db, [2], wrong)
        with self.assertRaises(quarry.InvalidArgument):
            LinkLoader(self.db, [2], (WRITES, torch.tensor([[200], [1]])))
        for wrong in (None, [1, 2], "venue", ("venue", [1])):
            with self.assertRaisesRegex(quarry.UsageError, "a type of nodes"):
                NodeLoader(self.db, [2], wrong)
        with self.assertRaisesRegex(quarry.Unsupported, "num_workers=1"):
            NodeLoader(self.db, [2], "train", num_workers=1)


@unittest.skipUnless(_TORCH and os.path.exists(BINARY), "torch and torch_geometric are not there, or QUARRY_BINARY names no command")
class ServedTypesTest(TypedSamplesTest):
    """What a server gives is what the database gives, to the bit."""

    def assert_same(self, one, other):
        self.assertEqual(type(one), type(other))
        if isinstance(one, HeteroData):
            one, other = one.to_dict(), other.to_dict()
        if isinstance(one, HeteroSamplerOutput):
            one, other = vars(one), vars(other)
        if isinstance(one, dict):
            self.assertEqual(list(one), list(other))
            for key in one:
                self.assert_same(one[key], other[key])
        elif isinstance(one, (list, tuple)):
            self.assertEqual(len(one), len(other))
            for ours, theirs in zip(one, other):
                self.assert_same(ours, theirs)
        elif isinstance(one, torch.Tensor):
            self.assertTrue(torch.equal(one, other))
        else:
            self.assertEqual(one, other)

    def made(self):
        """Batches of each kind from self.db."""
        attrs = {WRITES: {"place": torch.arange(self.graph["edges"][WRITES].shape[1])}}
        made = [
            sorted(self.Loader(self.db, FANOUTS, 32, "train", shuffle=True, seed=3, edge_attrs=attrs), key=lambda batch: batch["paper"].input_id.tolist()),
            list(self.Loader(self.db, [-1, 2], 32, ("author", None), edge_ids=True)),
            list(self.Loader(self.db, [2, 2], 16, "field_of_study", replace=True)),
        ]
        torch.manual_seed(7)
        pairs = (WRITES, torch.from_numpy(self.graph["edges"][WRITES][:, :60]))
        made.append([self.nodes([40, 3, 299, 3], FANOUTS), self.nodes([7], [-1, -1], "author"), self.nodes([4, 90], {CITES: [7]}, replace=True)])
        made.append(list(NodeLoader(self.db, FANOUTS, "train", batch_size=64)))
        for neg_sampling in ("binary", "triplet"):
            made.append(list(LinkLoader(self.db, [3, -1], pairs, neg_sampling=neg_sampling, batch_size=30)))
        return made

    def test_batches_are_those_of_the_database(self):
        expected = self.made()
        serve(self)
        self.assert_same(self.made(), expected)
        out = self.nodes([5, 6], [-1, 2])
        self.check_sample(out, dict.fromkeys(EDGES, [-1, 2]), {"paper": [5, 6]})

    def test_workers_sample_over_a_connection_of_their_own(self):
        serve(self)
        seen = []
        for data in NodeLoader(self.db, [3, 2], "train", batch_size=100, num_workers=1):
            ids = data["paper"].n_id
            self.assertTrue(torch.equal(data["paper"].x, self.data["paper"].x[ids]))
            row, col = data[WRITES].edge_index
            self.assertLessEqual(set(zip(data["author"].n_id[row].tolist(), ids[col].tolist())), self.sets[WRITES])
            seen += ids[: data["paper"].batch_size].tolist()
        self.assertEqual(seen, self.train.tolist())

    def test_what_it_cannot_do_is_said_as_by_the_database(self):
        serve(self)
        with self.assertRaisesRegex(quarry.Unsupported, "along 'in'"):
            self.nodes([1], [2], direction="out")
        with self.assertRaisesRegex(quarry.UsageError, "with replacement"):
            self.nodes([1], [-1], replace=True)
        with self.assertRaisesRegex(quarry.Error, "1 hops of 6 types take 6"):
            self.db.stream([6], 32, relation_fanouts=[1])


if __name__ == "__main__":
    unittest.main()
