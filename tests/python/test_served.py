"""The same over a server: `unix:...`. Needs the command (QUARRY_BINARY)."""

import ctypes
import importlib.util
import pickle
import signal
import threading
import time
import unittest

import numpy as np

import quarry
from small_graph import DIM, NODES, ServedDatabaseTest, heed_interrupts
from test_streams import check_edge_ids


class ServedTest(ServedDatabaseTest):
    def test_the_calls_are_the_same(self):
        np.testing.assert_array_equal(self.db["feature"][[3, 1, 3]], self.graph["features"][[3, 1, 3]])
        self.assertEqual(self.db.sql("SELECT count(*) FROM nodes WHERE split = 'train'").fetchone(), (300,))
        self.db.put([3], feature=np.ones((1, DIM), np.float32))
        with self.db.stream([4, 3], batch_size=64) as stream:
            for batch in stream.epoch("train"):
                x = self.graph["features"][batch.nodes]
                x[batch.nodes == 3] = 1
                np.testing.assert_array_equal(batch.x, x)
        edges = self.db.edges()
        with self.db.stream([4, 3], batch_size=64, edge_ids=True) as stream:
            for batch in stream.epoch("train"):
                check_edge_ids(self, batch, edges)
        check_edge_ids(self, self.db.sample([3, 400, 5], [4, 3]), edges)
        self.assertEqual(self.db.partition(5, method="random")["parts"], 5)
        with self.db.stream([4, 3], batch_size=64, partitioning="default", buffer=2) as stream:
            batches = list(stream.epoch("valid"))
            np.testing.assert_array_equal(np.sort(np.concatenate([batch.seeds for batch in batches])), self.graph["valid"])
            for batch in batches:  # what was put above is younger than they are
                x = self.graph["features"][batch.nodes]
                x[batch.nodes == 3] = 1
                np.testing.assert_array_equal(batch.x, x)
        with pickle.loads(pickle.dumps(self.db)) as other:
            self.assertEqual(other.num_nodes, self.db.num_nodes)

    def test_batches_without_rows_and_blocks_of_all_neighbors(self):
        with self.db.stream([4, 3], batch_size=64, table=None) as stream:
            batches = list(stream.epoch("valid", ordered=True))
        np.testing.assert_array_equal(np.sort(np.concatenate([batch.seeds for batch in batches])), self.graph["valid"])
        self.assertEqual([batch.x for batch in batches], [None] * len(batches))
        block = self.db.sample([3, 400], [-1])
        degrees = np.bincount(self.graph["edges"][1], minlength=NODES)
        np.testing.assert_array_equal(np.diff(block.indptr), degrees[[3, 400]])
        with self.db.stream([-1, 2], batch_size=64, table=None) as stream:
            for batch in stream.epoch("valid"):
                np.testing.assert_array_equal(np.diff(batch.indptr)[: len(batch.seeds)], degrees[batch.seeds])
        with self.assertRaisesRegex(quarry.InvalidArgument, "all neighbors, with replacement"):
            self.db.stream([-1], batch_size=64, replace=True)
        block = self.db.sample([3, 400], [9], replace=True)
        np.testing.assert_array_equal(np.diff(block.indptr), 9 * (degrees[[3, 400]] > 0))

    def test_upkeep_is_the_servers(self):
        self.db.put([3], feature=np.ones((1, DIM), np.float32))
        self.assertEqual(self.db.compact("feature", dry_run=True)["feature"]["rows_changed"], 1)
        self.assertEqual(self.db.compact("feature")["feature"]["rows_changed"], 1)
        self.assertEqual(self.db.verify()["faults"], [])
        np.testing.assert_array_equal(self.db["feature"][[3]], np.ones((1, DIM), np.float32))
        with self.assertRaisesRegex(quarry.InvalidArgument, "copy.db"):
            self.db.checkpoint("copy.db")

    @unittest.skipUnless(importlib.util.find_spec("torch_geometric"), "torch and torch_geometric are not there")
    def test_workers_sample_over_a_connection_of_their_own(self):
        from quarry.pyg import NodeLoader

        edges = set(map(tuple, self.graph["edges"].T))
        loader = NodeLoader(self.db, [4, 3], "valid", batch_size=50, num_workers=1)
        self.assertEqual(loader.multiprocessing_context.get_start_method(), "spawn")
        seeds = []
        for data in loader:
            ids = data.n_id.numpy()
            np.testing.assert_array_equal(data.x.numpy(), self.graph["features"][ids])
            self.assertLessEqual(set(zip(ids[data.edge_index[0]], ids[data.edge_index[1]])), edges)
            seeds += ids[: data.batch_size].tolist()
        self.assertEqual(seeds, self.graph["valid"].tolist())

    def test_as_many_views_are_held_as_there_are_slots(self):
        stream = self.db.stream([4, 3], batch_size=32)
        stream.start("train")
        held = [stream.next().nodes for _ in range(stream.slots)]
        with self.assertRaisesRegex(quarry.BatchesHeld, f"^{stream.slots} of"):
            stream.next()
        held.pop(0)
        self.assertIsNotNone(stream.next())

    def test_ctrl_c_and_a_timeout_end_next_and_lose_nothing(self):
        heed_interrupts(self)
        with self.db.stream([4, 3], batch_size=32) as stream:
            count = stream.start("train", ordered=True)
            self.server.send_signal(signal.SIGSTOP)
            got = []
            with self.assertRaises(TimeoutError):
                while True:  # what was made ahead comes first
                    got.append(stream.next(timeout=0.2).index)
            timer = threading.Timer(0.1, ctypes.pythonapi.PyErr_SetInterrupt)
            start = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                timer.start()
                stream.next()
            self.assertLess(time.monotonic() - start, 20, "far from the 60 s that a call may take")
            timer.join()
            self.server.send_signal(signal.SIGCONT)
            while (batch := stream.next()) is not None:
                got.append(batch.index)
            self.assertEqual(got, list(range(count)))


if __name__ == "__main__":
    unittest.main()
