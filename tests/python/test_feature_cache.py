"""The feature cache between preparation workers and a host of trainers, without Ray: versions that both ends agree on whatever
the messages between them suffer, and plans by what comes."""

import functools
import itertools
import os
import pathlib
import random
import tempfile
import types
import unittest

import numpy as np

import quarry
from quarry.ray._belady import PlannedCache, choose
from quarry.ray._cache import HostCache, HostView, Place
from quarry.ray._groups import Group, Member, uses
from quarry.ray._host import Host
from quarry.ray._schedule import share_name
from quarry.ray._worker import Worker

_SCHEDULES = 100_000 if "QUARRY_TEST_ALL_FAULTS" in os.environ else 1500


def rows_of(ids):
    return np.stack([ids, 3 * ids + 1], axis=1).astype(np.float32)


def made(rng, ids, known, slots=None):
    """A group of one mini-batch over these ids, whose edges read some of them more than others."""
    indices = np.array(rng.choices(range(len(ids)), k=2 * len(ids)), np.int32)
    none = np.empty(0, np.int64)
    member = Member(np.arange(len(ids), dtype=np.int32), np.array([1], np.int32), np.array([0, len(indices)], np.int32), indices, none)
    return Group(ids, rows_of(ids[~known]), [member], known, slots)


def drawn(rng, nodes):
    """Ids of a group: low ones more often than others."""
    return np.unique(np.array([min(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(rng.randint(1, nodes))], np.uint32))


class Schedule:
    """Workers and a host, and a network between them that delays, reorders and repeats; either end dies at times, and some
    groups are lost. Fails where a row is missing or another node's, or a group comes out twice or not at all."""

    def __init__(self, seed, cache=HostCache):
        self.rng = random.Random(seed)
        self.nodes, self.capacity = self.rng.randint(4, 40), self.rng.randint(2, 16)
        self.lives = [0] * self.rng.randint(1, 4)
        self.generation = 0
        self.kind = cache
        self.begin()
        self.wire, self.out, self.known = [], set(), 0

    def begin(self):
        self.cache = self.kind(self.capacity, 2, self.lives, self.generation)
        self.views = [HostView(worker, life, self.generation) for worker, life in enumerate(self.lives)]

    def run(self):
        for _ in range(self.rng.randint(20, 70)):
            what = self.rng.random()
            if what < 0.4:
                view = self.views[self.rng.randrange(len(self.views))]
                ids = drawn(self.rng, self.nodes)
                known = view.known(ids)
                self.known += int(known.sum())
                self.wire.append(("group", view.stamp(), made(self.rng, ids, known)))
            elif what < 0.92:
                self.deliver(repeated=0.15)
            elif what < 0.95:
                worker = self.rng.randrange(len(self.views))
                self.lives[worker] += 1
                self.views[worker] = HostView(worker, self.lives[worker], self.generation)
                update = self.cache.replaced(worker, self.lives[worker])
                self.wire += [("update", worker, update)] if update is not None else []
            elif what < 0.96:
                self.generation += 1
                self.begin()
            else:
                lost = [message[1] for message in self.wire if message[0] == "group" and message[1] not in self.out]
                if lost:
                    stamp = self.rng.choice(lost)
                    self.wire = [message for message in self.wire if message[1] is not stamp] + [("void", stamp, None)]
        while self.wire:
            self.deliver(repeated=0)
        assert self.cache.settled, "it never settles"
        return self.known

    def deliver(self, repeated):
        if not self.wire:
            return
        at = self.rng.randrange(len(self.wire))
        what, first, second = self.wire[at] if self.rng.random() < repeated else self.wire.pop(at)
        if what == "update":
            self.wire.append(("heard", self.views[first].hear(second), None))
        elif what == "heard":
            self.cache.heard(first)
        elif what == "void":
            self.cache.void(first)
        else:
            group, update = self.cache.received(first, second)
            counts = (first.generation, first.life) == (self.generation, self.lives[first.worker]) and first not in self.out
            assert (group is not None) == counts, "a group that counts is completed, once"
            if group is not None:
                self.out.add(first)
                np.testing.assert_array_equal(group.rows, rows_of(second.ids))
            if update is not None:
                self.wire += [("update", worker, update) for worker in range(len(self.views))]


class AgreedCacheTest(unittest.TestCase):
    def test_no_schedule_misses_a_row_or_finds_a_stale_one(self):
        known = 0
        for seed in range(_SCHEDULES):
            try:
                known += Schedule(seed).run()
            except (AssertionError, quarry.Error) as error:
                raise AssertionError(f"seed {seed}: {error}") from error
        self.assertGreater(known, 10 * _SCHEDULES)  # rows that were not sent

    def test_schedules_find_a_host_that_does_not_wait(self):
        class Hasty(HostCache):  # lets rows go as soon as it has announced so
            settled = True

        class Deaf(HostCache):  # lets them go once workers have heard, whatever they made before
            @property
            def settled(self):
                return all(heard == self.version for heard in self._heard)

        for cache in (Hasty, Deaf):
            with self.subTest(cache.__name__), self.assertRaises((AssertionError, quarry.InternalError)):
                for seed in range(500):
                    Schedule(seed, cache).run()

    def test_rows_that_were_used_the_longest_ago_leave_first(self):
        """One worker that hears at once, against lists."""
        for seed in range(100):
            rng = random.Random(seed)
            nodes, capacity = rng.randint(4, 60), rng.randint(2, 20)
            cache, view, held = HostCache(capacity, 2, [0]), HostView(0, 0, 0), {}
            target = capacity - max(1, capacity // 8)
            for now in range(40):
                ids = drawn(rng, nodes)
                known = view.known(ids)
                with self.subTest(seed=seed, group=now):
                    self.assertEqual(ids[known].tolist(), [node for node in ids.tolist() if node in held])
                    group = made(rng, ids, known)
                    _, update = cache.received(view.stamp(), group)
                    held.update((node, now) for node in ids.tolist() if node in held)
                    older = sorted((last, node) for node, last in held.items() if last < now)
                    count = min(int((~known).sum()), capacity - len(held), target - len(held) + len(older))
                    self.assertEqual(update is None, count <= 0)
                    if update is not None:
                        new = sorted(((-count, node) for node, count, has in zip(ids.tolist(), uses(group).tolist(), known) if not has))
                        gone = [node for _, node in older[: max(0, len(held) + count - target)]]
                        self.assertEqual(sorted(update.evicted.tolist()), sorted(gone))
                        self.assertEqual(update.admitted.tolist(), sorted(node for _, node in new[:count]))
                        held = {node: last for node, last in held.items() if node not in gone} | {node: now for _, node in new[:count]}
                        cache.heard(view.hear(update))
                    self.assertLessEqual(len(held), capacity)

    def test_what_is_asked_twice_is_answered_twice(self):
        cache, view = HostCache(8, 2, [0]), HostView(0, 0, 0)
        group = made(random.Random(1), np.arange(4, dtype=np.uint32), np.zeros(4, np.bool_))
        stamp = view.stamp()
        got = cache.received(stamp, group)
        self.assertEqual(cache.received(stamp, group), (None, None))
        self.assertEqual(view.hear(got.update), view.hear(got.update))
        self.assertIsNone(cache.received(stamp._replace(generation=1), group).group)
        with self.assertRaisesRegex(quarry.InternalError, "lacks node 9"):
            cache.received(view.stamp(), made(random.Random(1), np.array([9], np.uint32), np.ones(1, np.bool_)))
        with self.assertRaisesRegex(quarry.UsageError, "cache of 1 rows"):
            HostCache(1, 2, [0])


    def test_a_cache_that_exceeds_the_machine_is_refused(self):
        with self.assertRaisesRegex(quarry.OutOfBudget, "feature cache of 4096.0 TiB .* free"):
            Host().begin(0, 1 << 50, 1, [0], planned=False)


class PlannedCacheTest(unittest.TestCase):
    def test_no_other_way_sends_fewer_rows(self):
        """Against all ways to keep rows of small plans."""
        for seed in range(150):
            rng = random.Random(seed)
            nodes, capacity = rng.randint(2, 6), rng.randint(1, 3)
            groups = [drawn(rng, nodes) for _ in range(rng.randint(1, 6))]

            @functools.lru_cache(maxsize=None)
            def least(at, held):
                if at == len(groups):
                    return 0
                ids = frozenset(groups[at].tolist())
                kept = itertools.chain.from_iterable(itertools.combinations(sorted(held | ids), count) for count in range(capacity + 1))
                return len(ids - held) + min(least(at + 1, frozenset(one)) for one in kept)

            with self.subTest(seed=seed):
                self.assertEqual(int((~choose(groups, capacity).known).sum()), least(0, frozenset()))

    def test_groups_that_are_completed_by_plan_have_the_rows_of_their_nodes(self):
        sent = by_use = 0
        for seed in range(300):
            rng = random.Random(seed)
            nodes, capacity = rng.randint(2, 60), rng.randint(2, 30)
            groups = [drawn(rng, nodes) for _ in range(rng.randint(1, 40))]
            choices, cache = choose(groups, capacity), PlannedCache(capacity, 2)
            agreed, view = HostCache(capacity, 2, [0]), HostView(0, 0, 0)
            with self.subTest(seed=seed):
                for position, ids in enumerate(groups):
                    known, slots = choices.of(position)
                    np.testing.assert_array_equal(cache.received(position, made(rng, ids, known, slots)).rows, rows_of(ids))
                    sent += int((~known).sum())
                    group = made(rng, ids, view.known(ids))
                    by_use += len(group.rows)
                    _, update = agreed.received(view.stamp(), group)
                    if update is not None:
                        agreed.heard(view.hear(update))
                self.assertLess(int(choices.slots.max()), capacity)
        self.assertLess(sent, by_use)

    def test_groups_out_of_turn_are_refused(self):
        ids = np.arange(3, dtype=np.uint32)
        known, slots = choose([ids, ids], 2).of(0)
        cache = PlannedCache(2, 2)
        group = made(random.Random(1), ids, known, slots)
        with self.assertRaisesRegex(quarry.InternalError, "group 1 .* where 0"):
            cache.received(1, group)
        cache.received(0, group)
        with self.assertRaisesRegex(quarry.InternalError, "group 0 .* where 1"):
            cache.received(0, group)


class WorkerTest(unittest.TestCase):
    def test_a_host_has_room_for_the_columns_of_places_and_times(self):
        rng = np.random.default_rng(7)
        rows, columns = rng.random((4, 3, 5), np.float32), rng.random((3, 2), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "source")
            source.mkdir()
            arrays = {"edges": [[0, 1, 2], [1, 2, 0]], "features": rows, "place_features": columns, "labels": np.arange(12) % 2, "train_idx": np.arange(9)}
            for name, array in arrays.items():
                np.save(source / f"{name}.npy", np.asarray(array))
            quarry.import_(f"{folder}/db", source)
            with quarry.open(f"{folder}/db") as db:
                db.plan([1], 4, name=share_name("tier", 0, 0, 1))
            worker = Worker(types.SimpleNamespace(address=f"{folder}/db", name="tier", shares=1, epochs=1, fanouts=[1], batch_size=4), "64MiB", 0, 0)
            told = worker.hello()
            self.assertEqual(told["dim"], 7)
            host = Host()
            host.begin(1, 12, told["dim"], [0], planned=False)
            for batch in range(3):
                counts, group = worker.make(0, 0, batch, 1, Place(0, 1, 0), None)
                (update, _), whole = host.received(1, 0, counts["stamp"], group)
                if update is not None:
                    host.heard(worker.hear(0, update))
                joined = np.hstack([rows.reshape(12, 5), columns[np.arange(12) % 3]])
                np.testing.assert_array_equal(whole.rows, joined[whole.ids])
            self.assertGreater(counts["rows_cached"], 0)


if __name__ == "__main__":
    unittest.main()
