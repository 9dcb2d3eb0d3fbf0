"""What quarry.ray decides without Ray: who makes which batches, groups of batches, and the division of cores."""

import importlib.util
import itertools
import random
import unittest
from types import SimpleNamespace

import numpy as np

import quarry
from quarry.ray import Stage, divide, fitted
from quarry.ray._groups import completed, pack, unpacked
from quarry.ray._schedule import Ledger, pieces_of, shares_of_workers
from small_graph import DatabaseTest


class IsolationTest(unittest.TestCase):
    def bgl(self, t1, t2, net, t3, a, d, d1, d2, gpu, servers, workers, pcie):
        """The problem of BGL §3.4: ((c1, c2), (c3, c4), (b1, b2)) and the seconds."""
        stages = [
            Stage("requests", t1, "servers"), Stage("construct", t2, "servers"), Stage("network", net), Stage("process", t3, "workers"),
            Stage("move", d1, "pcie"), Stage("cache", a, "workers", d), Stage("copy", d2, "pcie"), Stage("gpu", gpu),
        ]  # fmt: skip
        found = divide(stages, {"servers": servers, "workers": workers, "pcie": pcie})
        of = found.shares
        return (of["requests"], of["construct"]), (of["process"], of["cache"]), (of["move"], of["copy"]), found.seconds, found.limit

    def test_the_golden_optima_are_found(self):
        self.assertEqual(self.bgl(40, 24, 9, 30, 60, 2, 5, 60, 10, 8, 8, 12), ((5, 3), (3, 5), (1, 11), 14.0, "cache"))
        self.assertEqual(self.bgl(400, 240, 9, 300, 900, 3, 5, 60, 10, 96, 96, 12), ((60, 36), (20, 76), (1, 11), 15.0, "process"))

    def test_no_division_is_faster(self):
        """Against all divisions of up to three pools."""
        for seed in range(300):
            rng = random.Random(seed)
            pools = {f"pool{i}": rng.randint(4, 9) for i in range(rng.randint(1, 3))}
            stages = [
                Stage(f"{pool}.{i}", rng.choice([0.0, rng.uniform(0, 50)]), pool, rng.choice([0.0, rng.uniform(0, 5)]), rng.choice([None, rng.randint(1, 4)]))
                for pool in pools for i in range(rng.randint(1, 4))
            ] + [Stage("alone", rng.uniform(0, 10))]  # fmt: skip
            found = divide(stages, pools)
            best = stages[-1].seconds()
            for pool, units in pools.items():
                sharing = [stage for stage in stages if stage.pool == pool]
                self.assertLessEqual(sum(found.shares[stage.name] for stage in sharing), units)
                ranges = [range(1, min(units, stage.most or units) + 1) for stage in sharing]
                best = max(best, min(max(stage.seconds(c) for stage, c in zip(sharing, shares)) for shares in itertools.product(*ranges) if sum(shares) <= units))
            with self.subTest(seed=seed):
                self.assertAlmostEqual(found.seconds, best, places=12)
                self.assertEqual(found.seconds, max(stage.seconds(found.shares.get(stage.name, 1)) for stage in stages))

    def test_curves_are_fitted_and_what_cannot_be_is_refused(self):
        stage = fitted("cache", "cores", [(cores, 900 / cores + 3) for cores in (1, 2, 8, 40)], most=40)
        self.assertAlmostEqual(stage.work, 900, places=6)
        self.assertAlmostEqual(stage.constant, 3, places=6)
        self.assertEqual(fitted("slower", "cores", [(1, 1.0), (2, 3.0)])[1:4], (0.0, "cores", 2.0))
        self.assertEqual(fitted("steeper", "cores", [(1, 4.0), (2, 1.0)]).constant, 0.0)
        for stages, pools, words in (
            ([], {}, "no stages"),
            ([Stage("a", 1), Stage("a", 2)], {}, "name of its own"),
            ([Stage("a", -1)], {}, "numbers from 0"),
            ([Stage("a", 1, "cores", most=0)], {"cores": 2}, "at least"),
            ([Stage("a", 1, "cores")], {}, "pool 'cores'"),
            ([Stage("a", 1, "cores"), Stage("b", 1, "cores")], {"cores": 1}, "1 units for 2"),
        ):
            with self.assertRaisesRegex(quarry.UsageError, words):
                divide(stages, pools)
        with self.assertRaisesRegex(quarry.UsageError, "two different"):
            fitted("cache", "cores", [(2, 1.0), (2, 1.1)])


class ScheduleTest(unittest.TestCase):
    def test_every_share_has_one_worker_and_every_batch_is_in_one_piece(self):
        for seed in range(200):
            rng = random.Random(seed)
            shares, group = rng.randint(1, 20), rng.randint(1, 5)
            workers = rng.randint(1, shares)
            batches = [rng.randint(1, 12) for _ in range(shares)]
            of_workers = shares_of_workers(shares, workers, seed, epoch=rng.randint(0, 3))
            with self.subTest(seed=seed):
                self.assertEqual(sorted(sum(of_workers, [])), list(range(shares)))
                self.assertLessEqual(max(map(len, of_workers)) - min(map(len, of_workers)), 1)
                pieces = pieces_of(batches, of_workers, group)
                self.assertEqual([piece.number for piece in pieces], list(range(len(pieces))))
                self.assertEqual(
                    sorted((piece.share, batch) for piece in pieces for batch in range(piece.first, piece.first + piece.batches)),
                    [(share, batch) for share in range(shares) for batch in range(batches[share])],
                )
                for worker, its in enumerate(of_workers):  # each reads a share front to back, one after the other
                    read = [(its.index(piece.share), piece.first) for piece in pieces if piece.worker == worker]
                    self.assertEqual(read, sorted(read))
                    self.assertTrue(all(piece.worker == worker for piece in pieces if piece.share in its))

    def test_the_policy_differs_by_epoch_and_seed_alone(self):
        plans = [tuple(map(tuple, shares_of_workers(16, 2, seed, epoch))) for seed in (0, 1) for epoch in (0, 1)]
        self.assertEqual(len(set(plans)), 4)
        self.assertEqual(plans[0], tuple(map(tuple, shares_of_workers(16, 2, 0, 0))))
        self.assertEqual([len(shares) for shares in plans[0]], [8, 8])  # Figure 6.2

    def test_any_schedule_uses_each_piece_once_in_order(self):
        """Workers that make pieces in any order of arrival, and die; bytes that are lost; trainers at different steps."""
        for seed in range(500):
            rng = random.Random(seed)
            shares = rng.randint(1, 8)
            workers, hosts, group, ahead = rng.randint(1, shares), rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
            pieces = pieces_of([rng.randint(1, 6) for _ in range(shares)], shares_of_workers(shares, workers, seed, 0), group)
            steps = -(-len(pieces) // hosts)
            first = rng.choice([0, 0, rng.randint(0, steps)])
            ledger = Ledger(pieces, workers, hosts, group, ahead, first)
            asked: list[tuple[int, int, int]] = []  # what workers are at
            stale: list[tuple[int, int]] = []  # what dead ones were
            used: list[list[int]] = [[] for _ in range(hosts * group)]
            at = [first] * (hosts * group)
            with self.subTest(seed=seed):
                for turn in itertools.count():
                    self.assertLess(turn, 20000, "it stands still")
                    for worker in range(workers):
                        for piece, attempt in ledger.ask(worker):
                            self.assertEqual(piece.worker, worker)
                            asked.append((worker, piece.number, attempt))
                        counts = ledger.counts(worker)
                        self.assertLessEqual(counts["asked"] + counts["made"], ahead + hosts)
                    if ledger.done:
                        break
                    what = rng.random()
                    if what < 0.45 and asked:
                        worker, number, attempt = asked.pop(rng.randrange(len(asked)))
                        self.assertTrue(ledger.made(number, attempt, seeds=number + 1))
                    elif what < 0.5:
                        worker = rng.randrange(workers)
                        ledger.lose(worker)
                        stale += [(number, attempt) for one, number, attempt in asked if one == worker]
                        asked = [one for one in asked if one[0] != worker]
                    elif what < 0.53:
                        host, complete = rng.randrange(hosts), {number for number in range(len(pieces)) if rng.random() < 0.5}
                        remaining = ledger.restart(host, complete)
                        self.assertEqual(remaining, sorted(remaining))
                        self.assertTrue(all(number % hosts == host and number not in complete for number in remaining))
                        stale += [(number, attempt) for _, number, attempt in asked if number in remaining]
                        asked = [one for one in asked if one[1] not in remaining]
                    elif what < 0.57 and stale:
                        self.assertFalse(ledger.made(*stale.pop(), seeds=99))
                    else:
                        rank = rng.randrange(hosts * group)
                        if at[rank] == steps or not ledger.ready(at[rank]):
                            continue
                        found = ledger.piece(at[rank], rank)
                        if found is not None and rng.random() < 0.1 and all(step <= at[rank] for step in at):
                            self.assertTrue(ledger.unmake(found[0].number, found[1]))
                            self.assertFalse(ledger.unmake(found[0].number, found[1]))
                            continue
                        self.assertEqual(ledger.seeds(at[rank]), sum(number + 1 for number in range(at[rank] * hosts, min((at[rank] + 1) * hosts, len(pieces)))))
                        used[rank] += [] if found is None else [found[0].number]
                        ledger.release(at[rank], rank)
                        at[rank] += 1
                self.assertFalse(any(ledger.made(*one, seeds=1) for one in stale))
                for rank in range(hosts * group):
                    self.assertEqual(used[rank], list(range(first * hosts + rank // group, len(pieces), hosts)))

    def test_a_release_out_of_turn_is_refused(self):
        ledger = Ledger(pieces_of([3], [[0]], 1), workers=1, hosts=1, group=1, ahead=1)
        with self.assertRaisesRegex(quarry.UsageError, "step 1, and is at step 0"):
            ledger.release(1, 0)
        with self.assertRaisesRegex(quarry.UsageError, "step 4 of an epoch of 3"):
            Ledger(pieces_of([3], [[0]], 1), 1, 1, 1, 1, first_step=4)


class GroupsTest(DatabaseTest):
    def test_a_group_has_each_row_once_and_gives_every_batch_back(self):
        with self.db.stream([4, 3], 32, cache="10%") as stream:
            batches = list(stream.epoch("train", ordered=True))
        for size in (1, 2, 3, len(batches)):
            for first in range(0, len(batches), size):
                members = batches[first : first + size]
                group = pack(members)
                union = set(itertools.chain.from_iterable(batch.nodes.tolist() for batch in members))
                self.assertEqual(group.ids.tolist(), sorted(union))
                self.assertEqual(group.rows.nbytes, len(union) * self.graph["features"].shape[1] * 4)
                np.testing.assert_array_equal(group.rows, self.graph["features"][group.ids])
                known = np.random.default_rng(first).random(len(union)) < 0.5  # rows that a host has
                rest = pack(members, known)
                np.testing.assert_array_equal(rest.rows, group.rows[~known])
                np.testing.assert_array_equal(completed(rest, group.rows[known]).rows, group.rows)
                for member, batch in enumerate(members):
                    got = SimpleNamespace(**unpacked(group, member))
                    np.testing.assert_array_equal(got.n_id, batch.nodes)
                    np.testing.assert_array_equal(got.x, batch.x)
                    np.testing.assert_array_equal(got.y, batch.labels)
                    edges = [(batch.indices[at], node) for node in range(len(batch.indptr) - 1) for at in range(batch.indptr[node], batch.indptr[node + 1])]
                    self.assertEqual(list(map(tuple, got.edge_index.T)), edges)
                    self.assertEqual(got.batch_size, len(batch.seeds))
                    self.assertEqual(sum(got.num_sampled_nodes), len(batch.nodes))
                    hop_of = np.searchsorted(batch.hop_offsets, np.arange(len(batch.nodes)), side="right")
                    self.assertEqual(got.num_sampled_edges, [sum(hop_of[node] == hop for _, node in edges) for hop in range(2)])

    @unittest.skipUnless(importlib.util.find_spec("torch_geometric") is not None, "torch and torch_geometric are not there")
    def test_gradients_of_grouped_batches_are_those_of_a_loaders_bit_by_bit(self):
        import torch
        import torch.nn.functional as F
        from torch_geometric.data import Data
        from torch_geometric.nn import SAGEConv

        from quarry.pyg import Loader

        self.db.plan([4, 3], 32, name="own", progress=False)
        with self.db.stream([4, 3], 32, layout="own") as stream:
            batches = list(stream.epoch("train", ordered=True))
        group = pack(batches)
        self.assertLess(len(group.ids), sum(len(batch.nodes) for batch in batches))
        torch.manual_seed(1)
        layers = torch.nn.ModuleList([SAGEConv(16, 8), SAGEConv(8, 4)])

        def gradients(data):
            layers.zero_grad()
            out = layers[1](F.relu(layers[0](data.x, data.edge_index)), data.edge_index)[: data.batch_size]
            F.cross_entropy(out, data.y).backward()
            return [weight.grad.clone() for weight in layers.parameters()]

        loaded = list(Loader(self.db, [4, 3], 32, "train", shuffle=True, plan="own"))
        self.assertEqual(len(loaded), len(batches))
        for member, data in enumerate(loaded):
            arrays = unpacked(group, member)
            mine = Data(**{name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in arrays.items()})
            for name in ("x", "edge_index", "n_id", "y"):
                self.assertTrue(torch.equal(mine[name], data[name]), name)
            for name in ("batch_size", "num_sampled_nodes", "num_sampled_edges"):
                self.assertEqual(mine[name], data[name], name)
            self.assertTrue(all(map(torch.equal, gradients(mine), gradients(data))))


if __name__ == "__main__":
    unittest.main()
