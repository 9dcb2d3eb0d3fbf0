"""quarry.ray on a real cluster of Ray on this machine: plans are prepared, batches are made by workers, workers are killed."""

import faulthandler
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import quarry
from quarry.ray._belady import choose
from quarry.ray._schedule import pieces_of, shares_of_workers
from small_graph import BINARY, arrays

_MOTO = all(map(importlib.util.find_spec, ("moto", "boto3", "flask")))
_STORE = Path(__file__).resolve().parents[1] / "objects/moto_store.py"
_RAY = importlib.util.find_spec("ray") is not None
FANOUTS, BATCH, SHARES, EPOCHS = [4, 3], 16, 4, 2
_LONG = "QUARRY_TEST_ALL_FAULTS" in os.environ
_HANG_SECONDS = 900  # all tests take a tenth of it, on two cores that others want


@unittest.skipUnless(_RAY, "ray is not there")
@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class TierTest(unittest.TestCase):
    """One cluster of two nodes on the loopback, and one prepared database."""

    @classmethod
    def setUpClass(cls):
        import ray
        from ray.cluster_utils import Cluster

        import quarry.ray

        # They wait for processes of others: one that never comes ends them with where each thread waits.
        faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
        cls.addClassCleanup(faulthandler.cancel_dump_traceback_later)
        cls.ray = ray
        cls.folder = Path(tempfile.mkdtemp(prefix="quarry-ray-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.variables(QUARRY_TEST_CLUSTER=str(cls.folder))  # by which this cluster's processes are known
        if _MOTO:
            cls.start_store()  # before the nodes, whose processes have its address of them
        node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
        # Groups are small here: kept where they are made, as large ones are, and lost with that node.
        cls.cluster = Cluster(initialize_head=True, head_node_args={**node, "_system_config": {"max_direct_call_object_size": 0}})
        cls.addClassCleanup(cls.cluster.shutdown)
        cls.other = cls.cluster.add_node(**node, resources={"other": 4})
        ray.init(address=cls.cluster.address, log_to_driver=False, logging_level="ERROR")
        cls.addClassCleanup(ray.shutdown)
        cls.graph = arrays()
        cls.source = cls.folder / "graph.db"
        quarry.import_(cls.source, **cls.graph, progress=False)
        cls.plan = dict(shares=SHARES, fanouts=FANOUTS, batch_size=BATCH, epochs=EPOCHS, cpus=0.5)
        cls.prepared = quarry.ray.prepare(cls.source, cls.folder / "copies", copies=2, by="partition", parts=8, method="random", **cls.plan)
        # What each share of each epoch holds, from the layouts themselves.
        cls.shares = {}
        with quarry.open(cls.folder / "copies/0", memory="256MiB") as db:
            for epoch in range(EPOCHS):
                for share in range(SHARES):
                    with db.stream(FANOUTS, BATCH, layout=f"tier-e{epoch}-{share}of{SHARES}") as stream:
                        cls.shares[epoch, share] = list(stream.epoch("train", ordered=True))
        labels, train = cls.graph["labels"], cls.graph["train"]
        cls.examples = sorted(train[labels[train] >= 0].tolist())

    @classmethod
    def start_store(cls):
        store = subprocess.Popen([sys.executable, _STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(lambda: (store.communicate(), store.wait()))
        cls.endpoint = f"http://127.0.0.1:{store.stdout.readline().strip()}"
        cls.variables(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1", AWS_ENDPOINT_URL_S3=cls.endpoint)

    @classmethod
    def variables(cls, **values):
        patch = mock.patch.dict(os.environ, **values)
        patch.start()
        cls.addClassCleanup(patch.stop)

    def tier(self, **options):
        tier = quarry.ray.BatchTier(self.prepared, **{"workers": 2, "memory": "128MiB", "cpus": 0.5, "seed": 3, **options})
        self.addCleanup(tier.close)
        return tier

    def epoch_of(self, tier, epoch, rank=0, between=lambda step: None, **options):
        """The batches of an epoch; between(step) is called while the batch of the step is held."""
        got = []
        for step, batch in enumerate(tier.batches(epoch, rank, arrays=True, **options)):
            between(step)
            got.append(batch)
        return got

    def wanted(self, epoch, workers, group=1):
        """The batches of an epoch in the order of use, piece by piece, by the shares' own layouts."""
        shares = [self.shares[epoch % EPOCHS, share] for share in range(SHARES)]
        pieces = pieces_of(list(map(len, shares)), shares_of_workers(SHARES, workers, 3, epoch), group)
        return [shares[piece.share][piece.first : piece.first + piece.batches] for piece in pieces]

    def check_batch(self, got, wanted):
        np.testing.assert_array_equal(got["n_id"], wanted.nodes)
        np.testing.assert_array_equal(got["x"], wanted.x)
        np.testing.assert_array_equal(got["y"], wanted.labels)
        np.testing.assert_array_equal(got["edge_index"][0], wanted.indices)
        self.assertEqual(got["batch_size"], len(wanted.seeds))

    def check_epoch(self, batches, epoch, workers=2, first_step=0):
        """One rank's epoch: every batch is that of its share, bit by bit, in the order of use, and every example is used once."""
        wanted = [batch for piece in self.wanted(epoch, workers) for batch in piece]
        seeds = np.concatenate([batch.seeds for batch in wanted])
        self.assertEqual(sorted(seeds.tolist()), self.examples)
        self.assertEqual(len(batches), len(wanted) - first_step)
        for got, its in zip(batches, wanted[first_step:]):
            self.check_batch(got, its)

    def test_every_example_is_used_once_an_epoch_in_an_order_that_is_repeated(self):
        tier = self.tier()
        epochs = [self.epoch_of(tier, epoch) for epoch in (0, 1, 2)]
        for epoch, batches in enumerate(epochs):
            self.check_epoch(batches, epoch)
        self.assertNotEqual([batch["n_id"].tolist() for batch in epochs[0]], [batch["n_id"].tolist() for batch in epochs[1]])
        self.check_epoch(self.epoch_of(tier, 1, first_step=3), 1, first_step=3)
        stats = tier.stats()
        self.assertEqual(stats["rows_sent"], stats["rows_of_batches"])  # of groups of one

    def test_groups_send_rows_of_the_union_once(self):
        """Two hosts with two trainers each, as threads that step together."""
        from concurrent.futures import ThreadPoolExecutor

        tier = self.tier(workers=2, hosts=2, group=2)
        with ThreadPoolExecutor(4) as ranks:
            got = list(ranks.map(lambda rank: self.epoch_of(tier, 0, rank), range(4)))
        groups = self.wanted(0, workers=2, group=2)
        self.assertEqual(set(map(len, got)), {-(-len(groups) // 2)})
        rows = sent = 0
        for step in range(len(got[0])):
            members = [got[rank][step] for rank in range(4)]
            self.assertEqual({batch["step_seeds"] for batch in members}, {sum(batch["batch_size"] for batch in members)})
            for host in (0, 1):
                group = groups[2 * step + host] if 2 * step + host < len(groups) else []
                for member in range(2):
                    batch = members[2 * host + member]
                    if member < len(group):
                        self.check_batch(batch, group[member])
                    else:
                        self.assertEqual((batch["batch_size"], batch["x"].shape), (0, (0, self.graph["features"].shape[1])))
                if group:
                    ids = [batch.nodes for batch in group]
                    rows += sum(map(len, ids))
                    sent += len(np.unique(np.concatenate(ids)))
        stats = tier.stats()
        self.assertEqual((stats["rows_of_batches"], stats["rows_sent"]), (rows, sent))
        self.assertEqual(stats["feature_bytes_sent"], sent * self.graph["features"].shape[1] * 4)
        self.assertLess(sent, rows)

    def test_workers_that_are_killed_in_every_state_change_nothing(self):
        """Idle before the epoch, at making (held by SIGSTOP, so that it cannot end first), with groups that are made and not
        taken, with groups that are taken, the one in its place too, and when all is made."""
        tier = self.tier()
        steps = len(self.wanted(0, workers=2))

        def worker(number):
            return tier.status()["workers"][number]

        def kill(number):
            was = worker(number)
            os.kill(was["pid"], signal.SIGKILL)
            while worker(number)["replaced"] == was["replaced"]:
                pass

        def until(true):
            while not true():
                pass

        kill_idle = worker(0)["pid"]
        os.kill(kill_idle, signal.SIGKILL)  # nobody asks it for anything: its death is found by the first call
        seen = []

        def between(step):
            if step == 1:  # all that it may make is made, and none of it is taken but this step's
                until(lambda: worker(1)["made"] == 2 and worker(1)["asked"] == 0)
                seen.append("made")
                os.kill(worker(1)["pid"], signal.SIGKILL)  # found by the next call, once this step is released
            elif step == 3:
                until(lambda: worker(0)["made"] == 2)
                os.kill(worker(0)["pid"], signal.SIGSTOP)
                seen.append("stopped")
            elif step == 5:  # its groups that were ahead are used up: what it is asked for now, it is at
                until(lambda: worker(0)["asked"] > 0)
                seen.append("making")
                kill(0)
                until(lambda: worker(0)["pid"] is not None)
                seen.append("again")
                os.kill(worker(0)["pid"], signal.SIGKILL)
            elif step == steps - 1:
                until(lambda: all(one["asked"] == one["waiting"] == 0 for one in tier.status()["workers"]))
                seen.append("drained")
                os.kill(worker(1)["pid"], signal.SIGKILL)

        got = self.epoch_of(tier, 0, between=between)
        self.assertEqual(seen, ["made", "stopped", "making", "again", "drained"])
        self.check_epoch(got, 0)
        self.check_epoch(self.epoch_of(tier, 1), 1)
        self.assertGreaterEqual(tier.stats()["replaced"], 4)

    def unions(self, epoch, hosts=1, group=1):
        """By host, the ids of its groups in the order of use."""
        groups = [np.unique(np.concatenate([batch.nodes for batch in piece])) for piece in self.wanted(epoch, workers=2, group=group)]
        return [groups[host::hosts] for host in range(hosts)]

    def check_cached_epoch(self, tier, epoch, hosts, group):
        """Every rank's batches of an epoch, bit by bit."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(hosts * group) as ranks:
            got = list(ranks.map(lambda rank: self.epoch_of(tier, epoch, rank), range(hosts * group)))
        for number, piece in enumerate(self.wanted(epoch, workers=2, group=group)):
            for member, batch in enumerate(piece):
                self.check_batch(got[number % hosts * group + member][number // hosts], batch)

    def check_sent(self, stats, unions):
        """What was sent and what was not are the unions' rows, so that bytes fell by the share of hits."""
        rows = sum(map(len, unions))
        self.assertEqual(stats["rows_sent"] + stats["rows_cached"], rows)
        self.assertEqual(stats["feature_bytes_sent"], round(rows * (1 - stats["rows_cached"] / rows)) * self.graph["features"].shape[1] * 4)
        self.assertGreater(stats["rows_cached"], 0)

    def test_hosts_with_a_planned_cache_have_the_same_batches_of_fewer_rows(self):
        hosts, group, rows = 2, 2, 100
        tier = self.tier(hosts=hosts, group=group, cache=rows * self.graph["features"].shape[1] * 4)
        every = []
        sent = 0
        for epoch in range(EPOCHS):
            self.check_cached_epoch(tier, epoch, hosts, group)
            for unions in self.unions(epoch, hosts, group):
                every += unions
                sent += int((~choose(unions, rows).known).sum())
        stats = tier.stats()
        self.check_sent(stats, every)
        self.assertEqual((stats["rows_sent"], stats["cache_messages"]), (sent, 0))  # as Belady has it, and both ends know it

    def test_hosts_with_an_agreed_cache_have_the_same_batches_of_fewer_rows(self):
        tier = self.tier(hosts=1, group=2, cache="40%", cache_policy="lru")
        for epoch in range(EPOCHS):
            self.check_cached_epoch(tier, epoch, 1, 2)
        stats = tier.stats()
        self.check_sent(stats, sum((self.unions(epoch, 1, 2)[0] for epoch in range(EPOCHS)), []))
        self.assertGreater(stats["cache_messages"], 2)

    def test_caches_and_workers_that_are_killed_change_no_batch(self):
        for policy in ("belady", "lru"):
            with self.subTest(policy):
                tier = self.tier(cache="40%", cache_policy=policy)
                killed = []

                def between(step):
                    if step in (2, 6):
                        killed.append("host")
                        while (pid := tier.status()["hosts"][0]["pid"]) is None:
                            pass
                        os.kill(pid, signal.SIGKILL)
                    elif step in (4, 7):
                        killed.append("worker")
                        os.kill(tier.status()["workers"][step % 2]["pid"], signal.SIGKILL)

                self.check_epoch(self.epoch_of(tier, 0, between=between), 0)
                self.check_epoch(self.epoch_of(tier, 1), 1)
                self.assertEqual(killed, ["host", "worker", "host", "worker"])
                self.assertGreaterEqual(tier.status()["hosts"][0]["lost"], 1)
                self.assertGreaterEqual(tier.stats()["replaced"], 1)
                tier.close()

    @unittest.skipUnless(_MOTO, "moto is not there")
    def test_an_object_store_is_where_plans_come_from_and_go_to(self):
        import boto3

        boto3.client("s3", endpoint_url=self.endpoint).create_bucket(Bucket="bucket")
        source = self.folder / "stored.db"
        quarry.import_(source, **self.graph, progress=False)
        published = quarry.ray.prepare(source, "s3://bucket/a.db", **self.plan)
        again = quarry.ray.prepare("s3://bucket/a.db", "s3://bucket/b.db", **{**self.plan, "epochs": 1}, name="again", by="partition", parts=8, method="random")
        for prepared, epochs in ((published, EPOCHS), (again, 1)):
            tier = quarry.ray.BatchTier(prepared, workers=2, memory="256MiB", cpus=0.5)
            for epoch in range(epochs):
                got = self.epoch_of(tier, epoch)
                self.assertEqual(sorted(np.concatenate([batch["n_id"][: batch["batch_size"]] for batch in got]).tolist()), self.examples)
                for batch in got:
                    np.testing.assert_array_equal(batch["x"], self.graph["features"][batch["n_id"]])
            tier.close()

    def starting(self):
        """Processes of this cluster's workers that open their database, by the titles that Ray gives them."""
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and (process / "cmdline").read_bytes().startswith(b"ray::Worker.hello"):
                    if f"QUARRY_TEST_CLUSTER={self.folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                        found.append(int(process.name))
            except OSError:
                pass  # it has ended
        return found

    @unittest.skipUnless(_LONG, "QUARRY_TEST_ALL_FAULTS asks for it")
    def test_a_worker_that_is_killed_while_it_starts_is_replaced(self):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as beside:
            with quarry.open(self.folder / "copies/0", memory="64MiB"):  # so that it waits
                made = beside.submit(self.tier, workers=1)
                while not (found := self.starting()):
                    self.assertFalse(made.done())
                os.kill(found[0], signal.SIGKILL)
                while self.starting() in ([], found):  # until another has its place
                    self.assertFalse(made.done())
            tier = made.result()
        self.assertEqual(tier.stats()["replaced"], 1)
        self.check_epoch(self.epoch_of(tier, 0), 0, workers=1)

    @unittest.skipUnless(_LONG, "QUARRY_TEST_ALL_FAULTS asks for it")
    def test_groups_that_are_lost_with_their_host_are_made_again(self):
        tier = self.tier(workers=1, ahead=4, resources={"other": 1})

        def between(step):
            if step == 2:
                while tier.status()["workers"][0]["made"] < 4:  # this step's, which this process has, and three more
                    pass
                type(self).cluster.remove_node(type(self).other, allow_graceful=False)
                type(self).other = self.cluster.add_node(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, resources={"other": 4})

        got = self.epoch_of(tier, 0, between=between)
        self.check_epoch(got, 0, workers=1)
        self.assertGreaterEqual(tier.stats()["replaced"], 1)
        self.assertGreater(tier.stats()["batches"], len(got))  # those that were lost were made twice

    def test_what_cannot_be_is_refused_by_its_words(self):
        ray = quarry.ray
        for call, error, words in (
            (lambda: self.tier(workers=5), quarry.UsageError, "5 workers for 4 shares"),
            (lambda: self.tier(group=0), quarry.UsageError, "group 0: 1 at least"),
            (lambda: self.tier(cache="10%", cache_policy="fifo"), quarry.UsageError, "cache_policy 'fifo'"),
            (lambda: self.tier(cache=1), quarry.UsageError, "cache 1 has room for 0 rows of 64 bytes"),
            (lambda: ray.prepare(self.source, "s3://b/p", copies=2, **self.plan), quarry.UsageError, "needs no copies"),
            (lambda: ray.prepare(self.source, self.folder / "x", **self.plan), quarry.UsageError, "needs copies="),
            (lambda: ray.prepare(self.source, self.folder / "copies", copies=1, **self.plan), quarry.AlreadyExists, "is there already"),
            (lambda: ray.prepare(self.folder / "none.db", self.folder / "x", copies=1, **self.plan), quarry.Error, "none.db"),
            (lambda: ray.BatchTier(self.prepared._replace(name="other"), workers=1, memory="128MiB", cpus=0.5), quarry.NotFound, "no layout 'other-e0-0of4'"),
            (lambda: self.tier(workers=1, cpus=64, start_seconds=1), quarry.TimedOut, "0 of 1 preparation workers started within 1 s"),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                call()
        tier = self.tier(workers=1, name="named")
        with self.assertRaisesRegex(quarry.Busy, "'named'"):
            self.tier(workers=1, name="named")
        with self.assertRaisesRegex(quarry.UsageError, "rank 1: there are 1"):
            tier.batches(0, 1)
        begun = iter(tier.batches(0, arrays=True))
        next(begun)
        self.check_epoch(self.epoch_of(quarry.ray.BatchTier.connect("named"), 0), 0, workers=1)  # begun anew
        with self.assertRaisesRegex(quarry.UsageError, "begun anew"):
            list(begun)


if __name__ == "__main__":
    unittest.main()
