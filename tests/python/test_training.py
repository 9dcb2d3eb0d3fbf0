"""Embedding tables and states of training runs, as `_quarry` has them."""

import threading
import unittest

import numpy as np

import quarry
from quarry import _quarry
from small_graph import DatabaseTest

ADAGRAD, SGD, ADAM = 0, 1, 2
FLOAT32, BFLOAT16 = 1, 3
UNIFORM, NORMAL, ZEROS = 0, 1, 2
ROWS, WIDTH = 1000, 8


def ids(*rows: int) -> np.ndarray:
    return np.array(rows, np.uint64)


class EmbeddingsTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.db._store

    def create(self, name: str = "x", *, rows: int = ROWS, dim: int = WIDTH, optimizer: int = ADAGRAD, element_type: int = FLOAT32, init: int = UNIFORM, scale: float = 0.0, seed: int = 0) -> None:
        _quarry.create_embeddings(self.store, name, rows, dim, optimizer, element_type, init, scale, seed)

    def test_what_is_committed_is_read_and_outlives_the_database_object(self):
        self.create()
        rows = self.store.read_embeddings("x", ids(3, 7, 999))
        self.assertEqual((rows.values.shape, rows.state.shape), ((3, WIDTH), (3, WIDTH)))
        self.assertEqual((rows.values.dtype, rows.state.dtype), (np.float32, np.float32))
        np.testing.assert_array_equal(rows.ids, [3, 7, 999])
        np.testing.assert_array_equal(rows.timestamps, [-1, -1, -1])
        np.testing.assert_array_equal(rows.state, 0)
        self.assertFalse(rows.ids.flags.writeable or rows.timestamps.flags.writeable)
        rows.values[:] = np.arange(3 * WIDTH).reshape(3, WIDTH)
        rows.state[1] = 5
        timestamp, stale = self.store.commit_embeddings([("x", rows)])
        self.assertEqual(stale, 0)
        self.assertGreaterEqual(timestamp, 0)
        self.db.close()
        self.db = quarry.open(self.path, memory="256MiB")
        read = self.db._store.read_embeddings("x", ids(3, 6, 7, 999))
        np.testing.assert_array_equal(read.values[[0, 2, 3]], np.arange(3 * WIDTH).reshape(3, WIDTH))
        np.testing.assert_array_equal(read.state[2], 5)
        np.testing.assert_array_equal(read.timestamps, [timestamp, -1, timestamp, timestamp])

    def test_of_two_that_read_the_same_row_the_first_commit_counts(self):
        self.create("x")
        self.create("y", dim=4, optimizer=SGD)
        mine, theirs, beside = self.store.read_embeddings("x", ids(1, 2)), self.store.read_embeddings("x", ids(2, 3)), self.store.read_embeddings("y", ids(0))
        self.assertEqual(beside.state.shape, (1, 0))
        mine.values[:], theirs.values[:], beside.values[:] = 1, 2, 3
        first, _ = self.store.commit_embeddings([("x", mine)])
        self.assertEqual(self.store.commit_embeddings([("x", theirs), ("y", beside)]), (-1, 1))
        self.assertFalse(np.any(self.store.read_embeddings("y", ids(0)).values == 3), "all or none")
        again = self.store.read_embeddings("x", ids(2, 3))
        again.values[:] = 2
        second, stale = self.store.commit_embeddings([("x", again), ("y", beside)])
        self.assertEqual((second > first, stale), (True, 0))
        np.testing.assert_array_equal(self.store.read_embeddings("x", ids(1, 2, 3)).values[:, 0], [1, 2, 2])

    def test_first_values_are_as_the_table_was_made(self):
        everything = np.arange(ROWS, dtype=np.uint64)
        self.create("uniform", scale=0.5, seed=4)
        self.create("same", scale=0.5, seed=4)
        self.create("other", scale=0.5, seed=5)
        self.create("default")
        self.create("normal", init=NORMAL, scale=2.0)
        self.create("zeros", init=ZEROS, optimizer=ADAM, element_type=BFLOAT16)
        values = {name: self.store.read_embeddings(name, everything).values for name in ("uniform", "same", "other", "default", "normal", "zeros")}
        np.testing.assert_array_equal(values["uniform"], values["same"])
        self.assertFalse(np.array_equal(values["uniform"], values["other"]))
        self.assertTrue(0.48 < np.abs(values["uniform"]).max() <= 0.5)
        self.assertTrue(0.09 < np.abs(values["default"]).max() <= 0.1)
        self.assertTrue(1.9 < values["normal"].std() < 2.1)
        self.assertFalse(values["zeros"].any())
        rows = self.store.read_embeddings("zeros", ids(0))
        self.assertEqual(rows.state.shape, (1, 2 * WIDTH + 1))
        rows.values[0, :2] = 1.0, 1.0 + 2**-12
        self.store.commit_embeddings([("zeros", rows)])
        np.testing.assert_array_equal(self.store.read_embeddings("zeros", ids(0)).values[0, :2], [1, 1], "bfloat16 rounds")
        self.assertIn(("zeros", ROWS, WIDTH, 2 * WIDTH + 1), self.store.describe()["embeddings"])

    def test_a_table_that_cannot_be_is_refused(self):
        self.create("x")
        for error, arguments in (
            (quarry.AlreadyExists, {}),
            (quarry.InvalidArgument, {"name": "a/b"}),
            (quarry.InvalidArgument, {"name": "y", "rows": 0}),
            (quarry.InvalidArgument, {"name": "y", "dim": 0}),
            (quarry.InvalidArgument, {"name": "y", "dim": 1 << 31, "optimizer": ADAM}),
            (quarry.InvalidArgument, {"name": "y", "optimizer": 9}),
            (quarry.InvalidArgument, {"name": "y", "init": 9}),
            (quarry.InvalidArgument, {"name": "y", "element_type": 7}),
            (quarry.InvalidArgument, {"name": "y", "scale": float("nan")}),
        ):
            with self.assertRaises(error, msg=arguments):
                self.create(**arguments)
        with self.assertRaisesRegex(quarry.NotFound, "x"):
            self.store.read_embeddings("y", ids(0))
        for wrong in (ids(2, 1), ids(1, 1), ids(ROWS)):
            with self.assertRaises(quarry.InvalidArgument):
                self.store.read_embeddings("x", wrong)
        self.assertEqual(self.store.read_embeddings("x", ids()).values.shape, (0, WIDTH))

    def test_a_dropped_table_is_gone_and_its_name_is_free(self):
        self.create("x")
        rows = self.store.read_embeddings("x", ids(1))
        rows.values[:] = 7
        self.store.commit_embeddings([("x", rows)])
        values = rows.values
        _quarry.drop_embeddings(self.store, "x")
        np.testing.assert_array_equal(values, 7, "what was read is the reader's")
        with self.assertRaises(quarry.NotFound):
            self.store.read_embeddings("x", ids(1))
        with self.assertRaises(quarry.NotFound):
            _quarry.drop_embeddings(self.store, "x")
        self.create("x", dim=4, init=ZEROS)
        read = self.store.read_embeddings("x", ids(1))
        np.testing.assert_array_equal(read.values, np.zeros((1, 4)))
        with self.assertRaises(quarry.InvalidArgument, msg="rows of the table that was"):
            self.store.commit_embeddings([("x", rows)])
        self.assertEqual(self.db.verify(progress=False)["faults"], [])

    def test_arrays_outlive_their_rows_and_the_store(self):
        self.create()
        values = self.store.read_embeddings("x", ids(1, 2)).values
        self.db.close()
        values[:] = 3
        np.testing.assert_array_equal(values, 3)

    def test_threads_train_one_table(self):
        self.create("x", dim=1, init=ZEROS)
        rounds, threads = 50, 4
        failures: list[BaseException] = []

        def add(seed: int) -> None:
            random = np.random.default_rng(seed)
            try:
                for _ in range(rounds):
                    chosen = np.sort(random.choice(20, 3, replace=False)).astype(np.uint64)
                    while True:
                        rows = self.store.read_embeddings("x", chosen)
                        rows.values[:] += 1
                        if self.store.commit_embeddings([("x", rows)])[0] >= 0:
                            break
            except BaseException as error:  # noqa: BLE001: told by the test's thread
                failures.append(error)

        running = [threading.Thread(target=add, args=(seed,)) for seed in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        self.assertEqual(failures, [])
        counted = np.zeros(20)
        for seed in range(threads):
            random = np.random.default_rng(seed)
            for _ in range(rounds):
                counted[random.choice(20, 3, replace=False)] += 1
        read = self.store.read_embeddings("x", np.arange(20, dtype=np.uint64))
        np.testing.assert_array_equal(read.values[:, 0], counted)


class TrainingRunsTest(DatabaseTest):
    def test_a_state_is_read_as_it_was_saved_with_the_embeddings_of_its_time(self):
        store = self.db._store
        state = np.random.default_rng(1).bytes(100_000)
        saved = store.save_training("run", "lr=0.1", state, False)
        self.assertEqual((saved.settings, saved.timestamp, saved.state), ("lr=0.1", -1, b""))
        read = store.read_training("run")
        self.assertEqual((read.state, read.settings, read.created_utc), (state, "lr=0.1", saved.created_utc))
        self.assertEqual(store.read_training("run", with_state=False).state, b"")
        _quarry.create_embeddings(store, "x", 10, 4, ADAGRAD, FLOAT32, UNIFORM, 0.0, 0)
        rows = store.read_embeddings("x", ids(1))
        rows.values[:] = 7
        timestamp, _ = store.commit_embeddings([("x", rows)])
        self.assertEqual(store.save_training("run", "", b"2", True).timestamp, timestamp)
        self.db.close()
        self.db = quarry.open(self.path, memory="256MiB")
        read = self.db._store.read_training("run")
        self.assertEqual((read.state, read.timestamp), (b"2", timestamp))
        with self.assertRaisesRegex(quarry.NotFound, "run"):
            self.db._store.read_training("other")
        with self.assertRaises(quarry.InvalidArgument):
            self.db._store.save_training("run", "", b"", False)


if __name__ == "__main__":
    unittest.main()
