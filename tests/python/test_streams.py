"""Streams: batches in place and copied, their lives, waiting and its end, layouts."""

import gc
import subprocess
import sys
import textwrap
import threading
import unittest
import weakref

import numpy as np

import quarry
from quarry import _quarry
from small_graph import DIM, NODES, DatabaseTest, resident_bytes

_BATCHES_WITHOUT_GROWTH = 10_000


def check_edge_ids(test, batch, edges, replace=False):
    """Each edge of the block is the one that its id names; without replacement no edge is drawn twice."""
    ids, nodes = batch.edge_ids, batch.nodes
    test.assertEqual((ids.dtype, len(ids)), (np.int64, len(batch.indices)))
    targets = np.repeat(nodes[: len(batch.indptr) - 1], np.diff(batch.indptr))
    np.testing.assert_array_equal(edges[:, ids], [nodes[batch.indices], targets])
    if not replace:
        test.assertEqual(len(np.unique(ids)), len(ids))


class StreamsTest(DatabaseTest):
    def check(self, batch):
        """A batch is a block of the graph, with the features and labels that were imported."""
        edges = set(map(tuple, self.graph["edges"].T))
        nodes = batch.nodes.astype(np.int64)
        self.assertEqual(len(np.unique(nodes)), len(nodes))
        self.assertEqual(batch.hop_offsets[-1], len(nodes))
        for target in range(len(batch.indptr) - 1):
            sources = batch.indices[batch.indptr[target] : batch.indptr[target + 1]]
            for source in sources:
                self.assertIn((nodes[source], nodes[target]), edges)
        x = batch.x() if callable(batch.x) else batch.x
        np.testing.assert_array_equal(x, self.graph["features"][nodes])
        np.testing.assert_array_equal(batch.labels, self.graph["labels"][nodes[: len(batch.seeds)]])

    def test_an_epoch_visits_every_seed_once_with_what_the_graph_has(self):
        with self.db.stream([4, 3], batch_size=64) as stream:
            batches = list(stream.epoch("train"))
            labelled = self.graph["train"][self.graph["labels"][self.graph["train"]] >= 0]
            np.testing.assert_array_equal(np.sort(np.concatenate([batch.seeds for batch in batches])), labelled)
            for batch in batches:
                self.check(batch)
            wanted = [7, 3, 400]
            (batch,) = stream.epoch(wanted, shuffle=False, ordered=True)
            np.testing.assert_array_equal(batch.seeds, wanted)
            self.assertEqual(list(stream.epoch([])), [])
            self.assertEqual(stream.stats()["batches"], 0)
            first = [batch.nodes for batch in stream.epoch("train", ordered=True, number=5)]
            again = [batch.nodes for batch in stream.epoch("train", ordered=True, number=5)]
            for one, other in zip(first, again, strict=True):
                np.testing.assert_array_equal(one, other)

    def test_batches_of_parts_are_of_the_graph(self):
        report = self.db.partition(6, name="six", chunk=0.5, seed=2)
        self.assertEqual((report["parts"], report["nodes"]), (6, NODES))
        self.assertEqual(self.db.sql("SELECT count(*) FROM partitions WHERE partitioning = 'six'").fetchone(), (6,))
        with self.db.stream([4, 3], batch_size=64, partitioning="six", buffer=3) as stream:
            for split in ("train", "valid"):
                nodes = self.graph[split]
                if split == "train":
                    nodes = nodes[self.graph["labels"][nodes] >= 0]
                batches = list(stream.epoch(split))
                np.testing.assert_array_equal(np.sort(np.concatenate([batch.seeds for batch in batches])), np.sort(nodes))
                for batch in batches:
                    self.check(batch)
            with self.assertRaisesRegex(quarry.Unsupported, "given nodes"):
                stream.start([1, 2])
        with self.assertRaisesRegex(quarry.UsageError, "layout"):
            self.db.stream(partitioning="six", layout="default")
        with self.assertRaisesRegex(quarry.UsageError, "which partitioning"):
            self.db.stream(buffer=3)
        with self.assertRaisesRegex(quarry.InvalidArgument, "partitioner 'hash'"):
            self.db.partition(6, method="hash")
        self.db.drop_partitioning("six")
        with self.assertRaisesRegex(quarry.NotFound, "six"):
            self.db.stream(partitioning="six")

    def test_parts_without_rows_are_smaller(self):
        with_rows, without = (self.db.partition(6, name=name, chunk=0.5, seed=2, table=table) for name, table in (("rows", "feature"), ("edges", None)))
        self.assertEqual(with_rows["cut_edges"], without["cut_edges"])
        self.assertGreaterEqual(with_rows["disk_bytes"] - without["disk_bytes"], self.graph["features"].nbytes)
        with self.assertRaisesRegex(quarry.Unsupported, '"edges" has no rows'):
            self.db.stream([4, 3], batch_size=64, partitioning="edges").start("train")

    def test_without_a_table_batches_have_no_rows(self):
        spec = {"fanouts": [4, 3], "batch_size": 64, "seed": 9}
        with self.db.stream(**spec) as with_rows, self.db.stream(**spec, table=None) as stream:
            for one, other in zip(with_rows.epoch("valid", ordered=True, number=2), stream.epoch("valid", ordered=True, number=2), strict=True):
                np.testing.assert_array_equal(one.nodes, other.nodes)
                np.testing.assert_array_equal(one.indices, other.indices)
                np.testing.assert_array_equal(one.labels, other.labels)
                self.assertIsNone(other.x)
            self.assertEqual(stream.stats()["feature_bytes_read"], 0)
        with self.assertRaisesRegex(quarry.Unsupported, "without rows"):
            self.db.stream(**spec, table=None, fresh=True)

    def test_edge_ids_are_columns_of_the_edge_list(self):
        edges = self.db.edges()
        for replace in (False, True):
            with self.db.stream([4, 3], batch_size=64, replace=replace, edge_ids=True) as stream:
                for batch in stream.epoch("train"):
                    check_edge_ids(self, batch, edges, replace)
                stream.start("train")
                views = stream.next()
                self.assertFalse(views.edge_ids.flags.writeable)
                check_edge_ids(self, views, edges, replace)
        check_edge_ids(self, self.db.sample([3, 400, 5], [4, 3]), edges)
        with self.db.stream([4]) as stream:
            self.assertEqual([len(batch.edge_ids) for batch in stream.epoch([3])], [0])
        self.db.plan([4, 3], 64, name="plan")
        for options, error in (({"direction": "out"}, "'out' has no edge ids"), ({"layout": "plan"}, "keeps no edge ids")):
            with self.assertRaisesRegex(quarry.Unsupported, error, msg=options):
                self.db.stream([4, 3], batch_size=64, edge_ids=True, **options)
        with self.db.stream([4, 3], batch_size=64, edge_ids=True, fresh=True) as stream:
            for batch in stream.epoch("train"):
                check_edge_ids(self, batch, edges, False)

    def test_samplers_and_weights_are_those_of_the_engine(self):
        arrays = self.graph
        folder = self.folder / "arrays"
        folder.mkdir()
        weights = np.arange(arrays["edges"].shape[1], dtype=np.float32) % 7
        np.save(folder / "edges.npy", arrays["edges"])
        np.save(folder / "edge_weights.npy", weights)
        np.save(folder / "features.npy", arrays["features"])
        np.save(folder / "labels.npy", arrays["labels"])
        np.save(folder / "train_idx.npy", arrays["train"])
        path = self.folder / "weighted.db"
        quarry.import_(path, folder, progress=False)
        zeros = set(map(tuple, arrays["edges"][:, weights == 0].T))

        def epoch(db, **options):
            with db.stream([4, 3], batch_size=64, seed=3, **options) as stream:
                return [batch for batch in stream.epoch("train", ordered=True, number=1)]

        with quarry.open(path, memory="256MiB") as db:
            plain = epoch(db)
            labor = epoch(db, sampler="labor")
            self.assertLess(sum(len(batch.nodes) for batch in labor), sum(len(batch.nodes) for batch in plain))
            slow = epoch(db, sampler="labor", batch_dependency=8)
            self.assertFalse(all(np.array_equal(one.nodes, other.nodes) for one, other in zip(labor, slow, strict=True)))
            for options in ({"weighted": True}, {"weighted": True, "sampler": "labor"}, {"weighted": True, "replace": True}):
                for batch in epoch(db, **options):
                    targets = np.repeat(batch.nodes[: len(batch.indptr) - 1], np.diff(batch.indptr))
                    drawn = set(zip(batch.nodes[batch.indices].tolist(), targets.tolist(), strict=True))
                    self.assertFalse(drawn & zeros, options)
            db.plan([4, 3], 64, name="labor", sampler="labor")
            with self.assertRaisesRegex(quarry.InvalidArgument, "labor"):
                db.stream([4, 3], batch_size=64, layout="labor")
            with db.stream([4, 3], batch_size=64, layout="labor", sampler="labor") as stream:
                self.assertEqual(len(list(stream.epoch("train"))), len(plain))
            for options, error in (({"sampler": "saint"}, "no sampler 'saint'"), ({"sampler": "labor", "replace": True}, "distinct"), ({"batch_dependency": 4}, "labor")):
                with self.assertRaisesRegex(ValueError, error, msg=options):
                    db.stream([4, 3], **options)
        with self.assertRaisesRegex(quarry.InvalidArgument, "no weights"):
            self.db.stream([4, 3], weighted=True)

    def test_edges_between_the_same_nodes_have_ids_of_their_own(self):
        path = self.folder / "multi.db"
        quarry.import_(path, edges=np.array([[1, 1, 2, 1, 0], [0, 0, 0, 0, 2]]), features=np.zeros((3, 2), np.float32), progress=False)
        with quarry.open(path, memory="64MiB") as db:
            batch = db.sample([0], [10])
            self.assertEqual(batch.nodes.tolist()[0], 0)
            np.testing.assert_array_equal(batch.edge_ids, [0, 1, 2, 3])
            check_edge_ids(self, batch, db.edges())

    def test_views_are_of_the_engines_memory_and_keep_their_batch(self):
        stream = self.db.stream([4, 3], batch_size=64)
        self.assertEqual(stream.start("train"), 5)
        batch = stream.next()
        self.check(batch)
        nodes = batch.nodes
        self.assertFalse(nodes.flags.writeable)
        self.assertEqual(nodes.ctypes.data, batch.nodes.ctypes.data, "no copy")
        copy, kept = batch.copy(), nodes[2:4]
        expected = kept.copy()
        del batch, nodes
        with self.assertRaisesRegex(quarry.BatchesHeld, "1 of this stream's batches"):
            stream.next()
        np.testing.assert_array_equal(kept, expected)
        np.testing.assert_array_equal(copy.nodes[2:4], expected)
        del kept
        second = stream.next()
        third = stream.next()  # nothing of the second is used
        with self.assertRaisesRegex(quarry.UsageError, "given back"):
            second.nodes
        self.assertIn("given back", repr(second))
        # NumPy of before 2.1 has no DLPack of read-only memory.
        indices = np.from_dlpack(third.indices) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else third.indices
        with self.assertRaises(quarry.BatchesHeld):
            third.close()
        del third
        with self.assertRaises(quarry.BatchesHeld):
            stream.start("train")
        stream.close()
        self.db.close()
        self.assertGreaterEqual(int(indices.max()), 0, "an array outlives stream and database")

    def test_what_a_loader_has_of_a_batch_is_the_same_ahead_and_on_demand(self):
        seeds = np.random.default_rng(3).permutation(self.graph["train"])
        order = np.argsort(seeds)
        ahead = _quarry.PygPass(seeds[order].astype(np.uint32), order.astype(np.uint32))
        with self.db.stream([4, 3], batch_size=64, edge_ids=True) as stream:
            stream.start("train", number=1, _pyg=ahead)
            while (raw := stream._raw.next()) is not None:
                targets = np.repeat(np.arange(len(raw.indptr) - 1), np.diff(raw.indptr))
                expected = np.stack([raw.indices, targets]), raw.nodes.copy(), raw.labels.copy(), raw.edge_ids.copy()
                prepared = raw.pyg_block(True).arrays()
                edge_index, n_id, input_id, labels, edge_ids, nodes, edges, x = prepared
                for array, wanted in zip((edge_index, n_id, labels, edge_ids), expected, strict=True):
                    self.assertEqual(array.dtype, np.int64)
                    np.testing.assert_array_equal(array, wanted)
                np.testing.assert_array_equal(seeds[input_id], n_id[: raw.seed_count])
                np.testing.assert_array_equal(x, self.graph["features"][n_id])
                self.assertEqual((sum(nodes), sum(edges)), (len(n_id), edge_index.shape[1]))
                again = raw.pyg_block(True).arrays()  # what was made ahead is taken once
                for i, (one, other) in enumerate(zip(prepared, again, strict=True)):
                    if i == 2:
                        self.assertIsNone(other)
                    else:
                        np.testing.assert_array_equal(one, other)
                self.assertIsNone(raw.pyg_block().arrays()[-1])
                raw.close()
            stream.start("train", number=1)  # a pass that does not ask for it
            raw = stream._raw.next()
            self.assertIsNone(raw.pyg_block().arrays()[2])
            raw.close()

    def test_batches_do_not_add_up(self):
        with self.db.stream([3], batch_size=4) as stream:
            done, after_warmup = 0, 0
            while done < _BATCHES_WITHOUT_GROWTH:
                stream.start("train")
                while (batch := stream.next()) is not None:
                    batch.nodes, batch.labels, batch.x()
                    done += 1
                if after_warmup == 0 and done >= _BATCHES_WITHOUT_GROWTH // 5:
                    after_warmup = resident_bytes()
            gc.collect()
            self.assertLess(resident_bytes() - after_warmup, 16 << 20)

    def test_a_stream_goes_when_nobody_has_it(self):
        stream = self.db.stream([3], batch_size=16)
        watched = weakref.ref(stream)
        next(iter(stream.epoch("train")))
        del stream
        gc.collect()
        self.assertIsNone(watched())

    def test_a_layout_serves_the_same_rows(self):
        report = self.db.plan([4, 3], 64, name="plan", cache="10%")
        self.assertEqual(report["batches"], 5)
        layout = self.db.layouts["plan"]
        self.assertEqual((layout.batch_count, layout.batch_size, layout.servable), (5, 64, True))
        with self.db.stream([4, 3], 64, layout="plan") as stream:
            for batch in stream.epoch("train"):
                self.check(batch)
            for batch in stream.epoch("valid"):
                self.check(batch)
        with self.db.stream([4, 3], 64, fresh=True) as stream:
            for batch in stream.epoch("train"):
                self.check(batch)
        self.db.drop_layout("plan")
        with self.assertRaises(quarry.NotFound):
            self.db.stream(layout="plan")

    def test_a_stream_reads_its_snapshot(self):
        with self.db.snapshot() as before:
            self.db.put([5], feature=np.zeros((1, DIM), np.float32))
            with self.db.stream([3], snapshot=before) as stream:
                (batch,) = stream.epoch([5])
                self.check(batch)
        with self.db.stream([3]) as stream:
            (batch,) = stream.epoch([5])
            np.testing.assert_array_equal(batch.x[0], np.zeros(DIM))

    def test_sampling_by_itself(self):
        block = self.db.sample([9, 4], [3, 3], seed=2)
        np.testing.assert_array_equal(block.seeds, [9, 4])
        self.assertIsNone(block.x)

    def test_another_thread_ends_the_waiting(self):
        with self.db.stream([4, 3], batch_size=64) as stream:
            stream.start("train")
            stream.cancel()
            with self.assertRaises(quarry.Cancelled):
                stream.next()
            self.assertIsNotNone(stream.next())

    def test_another_threads_stream_is_refused(self):
        stream = self.db.stream([4, 3], batch_size=2)
        stream.start("train")
        refused, done = threading.Event(), threading.Event()

        def drain():
            while not done.is_set():
                try:
                    if stream.next() is None:
                        stream.start("train")
                except quarry.UsageError:
                    refused.set()

        threads = [threading.Thread(target=drain) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.assertTrue(refused.wait(60))
        done.set()
        for thread in threads:
            thread.join()
        stream.close()

    def test_the_interpreter_ends_cleanly_with_everything_open(self):
        self.db.close()
        code = textwrap.dedent(f"""
            import quarry
            db = quarry.open({str(self.path)!r}, memory="64MiB")
            stream = db.stream([4, 3], batch_size=8)
            stream.start("train")
            batch = stream.next()
            nodes = batch.nodes
            snapshot = db.snapshot()
            print("ok")
        """)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, "ok", ""))


if __name__ == "__main__":
    unittest.main()
