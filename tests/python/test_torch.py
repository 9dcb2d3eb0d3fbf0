"""quarry.torch: embedding tables against torch.nn.Embedding and Torch's optimizers in memory. Needs torch."""

import importlib.util
import subprocess
import sys
import threading
import unittest

import numpy as np

import quarry
from small_graph import NODES, DatabaseTest, ServedDatabaseTest

_TORCH = importlib.util.find_spec("torch") is not None
DIM, CLASSES = 8, 3


class TorchTest(DatabaseTest):
    def setUp(self) -> None:
        if not _TORCH:
            self.skipTest("torch is not there")
        super().setUp()
        import torch

        from quarry.torch import Embedding, load_checkpoint, save_checkpoint

        self.torch, self.Embedding = torch, Embedding
        self.save_checkpoint, self.load_checkpoint = save_checkpoint, load_checkpoint

    def rows(self, name, dtype="values", db=None):
        """All of a table, as the engine reads it."""
        return getattr((db or self.db)._store.read_embeddings(name, np.arange(NODES, dtype=np.uint64)), dtype).copy()


class EmbeddingTest(TorchTest):
    def test_forward_reads_the_rows_of_ids_in_any_shape(self):
        torch = self.torch
        vectors = self.Embedding(self.db, "x", DIM)
        self.assertEqual((vectors.num_embeddings, vectors.embedding_dim), (NODES, DIM))
        table = torch.from_numpy(self.rows("x"))
        for ids in ([7, 3, 7, 499], [[1, 2, 1], [0, 0, 499]], [], 5):
            ids = torch.tensor(ids, dtype=torch.int64)
            out = vectors(ids)
            self.assertEqual((out.dtype, out.requires_grad), (torch.float32, True))
            self.assertTrue(torch.equal(out, table[ids]))
        with torch.no_grad():
            self.assertFalse(vectors(ids).requires_grad)
        self.assertTrue(torch.equal(vectors(torch.tensor([3], dtype=torch.int32)), table[3:4]))
        self.assertEqual(list(vectors.parameters()), [])
        self.assertIn("'x', 500, 8, adagrad", repr(vectors))

    def train_beside(self, vectors, reference, optimizer, steps=6, forwards=1):
        """The same model, ids and losses with `vectors`, and with `reference` in memory."""
        torch = self.torch
        generator = torch.Generator().manual_seed(5)
        models = [torch.nn.Linear(DIM, CLASSES) for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        for _ in range(steps):
            batches = [torch.randint(0, 40, (60,), generator=generator) for _ in range(forwards)]  # many ids twice and more
            labels = torch.randint(0, CLASSES, (60,), generator=generator)
            for model, embed, step in ((models[0], vectors, vectors.step), (models[1], reference, optimizer.step)):
                for ids in batches:
                    torch.nn.functional.cross_entropy(model(embed(ids)), labels).backward()
                step()
                optimizer.zero_grad()
            for own in optimizers:
                own.step()
                own.zero_grad()
        torch.testing.assert_close(torch.from_numpy(self.rows(vectors.name)), reference.weight.detach(), rtol=1e-5, atol=1e-6)
        for one, other in zip(models[0].parameters(), models[1].parameters()):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)

    def reference(self, name, **options):
        return self.torch.nn.Embedding.from_pretrained(self.torch.from_numpy(self.rows(name)), freeze=False, **options)

    def test_training_equals_torch_in_memory(self):
        optim = self.torch.optim
        for forwards in (1, 3):
            vectors = self.Embedding(self.db, f"adagrad-{forwards}", DIM, lr=0.2)
            reference = self.reference(vectors.name, sparse=True)
            optimizer = optim.Adagrad(reference.parameters(), lr=0.2, eps=1e-10)
            self.train_beside(vectors, reference, optimizer, forwards=forwards)
            squares = optimizer.state[reference.weight]["sum"]
            self.torch.testing.assert_close(self.torch.from_numpy(self.rows(vectors.name, "state")), squares, rtol=1e-5, atol=1e-8)

            vectors = self.Embedding(self.db, f"sgd-{forwards}", DIM, optimizer="sgd", lr=0.2)
            reference = self.reference(vectors.name, sparse=True)
            self.train_beside(vectors, reference, optim.SGD(reference.parameters(), lr=0.2), forwards=forwards)

    def test_adam_counts_the_steps_of_each_row(self):
        torch = self.torch
        vectors = self.Embedding(self.db, "adam", DIM, optimizer="adam", lr=0.05, eps=1e-8)
        start = torch.from_numpy(self.rows("adam"))
        generator = torch.Generator().manual_seed(6)
        batches = [torch.randperm(30, generator=generator)[:20] for _ in range(8)]
        for ids in batches:
            vectors(ids).pow(2).sum().backward()
            vectors.step()
        # A dense Adam of its own for each row, which steps when the row is in the batch.
        for row in range(30):
            weight = torch.nn.Parameter(start[row].clone())
            optimizer = torch.optim.Adam([weight], lr=0.05, eps=1e-8)
            for ids in batches:
                if row in ids:
                    optimizer.zero_grad()
                    weight.pow(2).sum().backward()
                    optimizer.step()
            torch.testing.assert_close(torch.from_numpy(self.rows("adam")[row]), weight.detach(), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(self.rows("adam", "state")[:30, -1], [sum(row in ids for ids in batches) for row in range(30)])

    def test_adagrad_is_the_engines_rule_bit_by_bit(self):
        torch = self.torch
        vectors = self.Embedding(self.db, "x", DIM, lr=0.3)
        ids = torch.arange(0, NODES, 3)
        values = self.rows("x")[ids]
        state = np.zeros_like(values)
        factors = torch.randn(len(ids), DIM, generator=torch.Generator().manual_seed(2))
        lr, eps = np.float32(0.3), np.float32(1e-10)
        for _ in range(3):
            (vectors(ids) * factors).sum().backward()
            vectors.step()
            for i, row in enumerate(factors.numpy()):  # as engine/embedding/optimizer.cc, an element at a time
                for j, g in enumerate(row):
                    state[i, j] = state[i, j] + g * g
                    values[i, j] = values[i, j] - lr * g / (np.sqrt(state[i, j]) + eps)
        np.testing.assert_array_equal(self.rows("x")[ids], values)
        np.testing.assert_array_equal(self.rows("x", "state")[ids], state)

    def test_gradients_wait_for_a_step_and_can_be_forgotten(self):
        torch = self.torch
        vectors = self.Embedding(self.db, "x", DIM, optimizer="sgd", lr=1.0, init="zeros")
        self.assertIsNone(vectors.step())
        vectors(torch.tensor([1]))  # no backward, no gradient
        self.assertIsNone(vectors.step())
        out = vectors(torch.tensor([1, 2, 2]))
        out.sum().backward(retain_graph=True)
        out.sum().backward()
        self.assertFalse(self.rows("x").any())
        first = vectors.step()
        expected = np.zeros((NODES, DIM), np.float32)
        expected[1], expected[2] = -2, -4
        np.testing.assert_array_equal(self.rows("x"), expected)
        vectors(torch.tensor([5])).sum().backward()
        vectors.zero_grad()
        self.assertIsNone(vectors.step())
        vectors.lr = 0.5
        vectors(torch.tensor([1])).sum().backward()
        self.assertGreater(vectors.step(), first)
        expected[1] = -2.5
        np.testing.assert_array_equal(self.rows("x"), expected)

    def test_a_gradient_is_applied_to_rows_that_were_written_meanwhile(self):
        torch = self.torch
        one, other = (self.Embedding(self.db, "x", DIM, lr=0.1, init="zeros") for _ in range(2))
        one(torch.tensor([1, 2])).sum().backward()
        other(torch.tensor([2, 3])).sum().backward()
        other.step()
        one.step()
        np.testing.assert_array_equal(self.rows("x", "state")[:5, 0], [0, 1, 2, 1, 0])

    def test_threads_that_step_on_the_same_rows_lose_no_update(self):
        torch = self.torch
        rounds, threads = 25, 3
        tables = {"state": self.Embedding(self.db, "adagrad", DIM, init="zeros"), "values": self.Embedding(self.db, "sgd", DIM, optimizer="sgd", lr=1.0, init="zeros")}
        generators = [np.random.default_rng(seed) for seed in range(threads)]
        batches = [[generator.integers(0, 12, 8) for _ in range(rounds)] for generator in generators]
        failures = []

        def train(own, name, optimizer):
            try:
                vectors = self.Embedding(self.db, name, DIM, optimizer=optimizer, lr=1.0)
                for ids in own:
                    (vectors(torch.from_numpy(ids)) * 2).sum().backward()
                    vectors.step()
            except BaseException as error:  # noqa: BLE001: told by the test's thread
                failures.append(error)

        for kind, vectors in tables.items():
            running = [threading.Thread(target=train, args=(own, vectors.name, vectors.optimizer)) for own in batches]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            self.assertEqual(failures, [])
            # Sums of small integers are exact: of gradients (SGD), and of their squares (Adagrad's state).
            expected = np.zeros(NODES)
            for ids in (ids for own in batches for ids in own):
                counts = np.bincount(ids, minlength=NODES)
                expected += (2 * counts) ** 2 if kind == "state" else -2 * counts
            np.testing.assert_array_equal(self.rows(vectors.name, kind)[:, 0], expected)

    def test_a_step_that_never_comes_through_keeps_its_gradient(self):
        torch = self.torch
        vectors = self.Embedding(self.db, "x", DIM, optimizer="sgd", lr=1.0, init="zeros")
        store = self.db._store

        class Contended:
            """Another trainer that is always faster."""

            def __getattr__(self, name):
                return getattr(store, name)

            def commit_embeddings(self, updates):
                rows = store.read_embeddings("x", np.array([1], np.uint64))
                rows.values[:] += 100
                assert store.commit_embeddings([("x", rows)])[0] >= 0
                return store.commit_embeddings(updates)

        vectors(torch.tensor([0, 1])).sum().backward()
        self.db._store = Contended()
        try:
            with self.assertRaisesRegex(quarry.Busy, "100 attempts"):
                vectors.step()
        finally:
            self.db._store = store
        vectors.step()
        np.testing.assert_array_equal(self.rows("x")[:3, 0], [-1, 100 * 100 - 1, 0])

    def test_a_table_goes_on_where_it_was_and_must_fit(self):
        torch = self.torch
        vectors = self.Embedding(self.db, "x", DIM, num_embeddings=1000, dtype="bfloat16", seed=3)
        vectors(torch.tensor([999])).sum().backward()
        vectors.step()
        before = vectors(torch.tensor([999, 0])).detach()
        self.db.close()
        self.db = quarry.open(self.path, memory="256MiB")
        again = self.Embedding(self.db, "x", DIM, num_embeddings=1000, seed=4)
        self.assertTrue(torch.equal(again(torch.tensor([999, 0])), before))
        for options, expected in (
            ({"dim": 4}, "1000 rows of 8 for adagrad, not 1000 of 4 for adagrad"),
            ({"num_embeddings": None}, "not 500 of 8"),
            ({"optimizer": "adam"}, "for adam"),
        ):
            with self.assertRaisesRegex(quarry.UsageError, expected):
                self.Embedding(self.db, "x", **{"dim": DIM, "num_embeddings": 1000, **options})

    def test_bad_ids_and_options_are_refused(self):
        torch = self.torch
        vectors = self.Embedding(self.db, "x", DIM)
        for ids in ([NODES], [-1]):
            with self.assertRaisesRegex(quarry.InvalidArgument, "500 rows"):
                vectors(torch.tensor(ids))
        with self.assertRaisesRegex(quarry.UsageError, "integers"):
            vectors(torch.tensor([1.0]))
        for options in ({"optimizer": "rmsprop"}, {"init": "ones"}, {"dtype": "int8"}):
            with self.assertRaisesRegex(quarry.UsageError, next(iter(options))):
                self.Embedding(self.db, "y", DIM, **options)
        with self.assertRaises(quarry.InvalidArgument):
            self.Embedding(self.db, "a/b", DIM)


_TRAINS_UNTIL_KILLED = """
import os, sys
import torch, quarry
from quarry.torch import Embedding, save_checkpoint

db = quarry.open(sys.argv[1], memory="256MiB")
vectors = Embedding(db, "x", 8, init="zeros", optimizer="sgd", lr=1.0)
model = torch.nn.Linear(8, 1)

def train():
    vectors(torch.tensor([1])).sum().backward()
    vectors.step()
    with torch.no_grad():
        model.bias += 1

model.bias.data.zero_()
train()
save_checkpoint(db, "run", model)
train()
os._exit(9)
"""


class CheckpointTest(TorchTest):
    def test_model_and_optimizer_come_back_as_they_were_saved(self):
        torch = self.torch
        model = torch.nn.Sequential(torch.nn.Linear(DIM, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        vectors = self.Embedding(self.db, "x", DIM)
        for _ in range(3):
            model(vectors(torch.arange(20))).sum().backward()
            optimizer.step()
            vectors.step()
        self.save_checkpoint(self.db, "run", model, optimizer, extra={"epoch": 3, "best": torch.tensor(0.5)})
        trained = self.rows("x")
        self.db.close()
        self.db = quarry.open(self.path, memory="256MiB")
        np.testing.assert_array_equal(self.rows("x"), trained)
        again = torch.nn.Sequential(torch.nn.Linear(DIM, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        its_optimizer = torch.optim.Adam(again.parameters(), lr=1.0)
        extra = self.load_checkpoint(self.db, "run", again, its_optimizer)
        self.assertEqual((extra["epoch"], float(extra["best"])), (3, 0.5))
        for one, other in zip(model.parameters(), again.parameters()):
            self.assertTrue(torch.equal(one, other))
        self.assertEqual(its_optimizer.state_dict()["param_groups"][0]["lr"], 0.01)
        self.assertEqual(len(its_optimizer.state), 4)
        # Model, table and optimizers go on alike.
        for one, own in ((model, optimizer), (again, its_optimizer)):
            one.zero_grad()
            one(torch.from_numpy(trained[:20])).sum().backward()
            own.step()
        for one, other in zip(model.parameters(), again.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_after_a_crash_model_and_vectors_are_of_one_moment(self):
        torch = self.torch
        self.db.close()
        done = subprocess.run([sys.executable, "-c", _TRAINS_UNTIL_KILLED, self.path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 9, done.stderr)
        self.db = quarry.open(self.path, memory="256MiB")
        model = torch.nn.Linear(8, 1)
        self.load_checkpoint(self.db, "run", model)
        self.assertEqual(float(model.bias.detach()), 1)
        self.assertEqual(float(self.rows("x")[1, 0]), -1)

    def test_what_cannot_be_loaded_is_refused_and_changes_nothing(self):
        torch = self.torch
        model = torch.nn.Linear(2, 2)
        self.save_checkpoint(self.db, "run", model)
        with self.assertRaisesRegex(quarry.NotFound, "run"):
            self.load_checkpoint(self.db, "other")
        for settings in ("", "decoder distmult", '{"trainer": "other"}'):
            self.db._store.save_training("foreign", settings, b"state", False)
            with self.assertRaisesRegex(quarry.UsageError, "foreign"):
                self.load_checkpoint(self.db, "foreign")
        other = torch.nn.Linear(2, 2)
        before = other.weight.clone()
        with self.assertRaisesRegex(quarry.UsageError, "without an optimizer"):
            self.load_checkpoint(self.db, "run", other, torch.optim.SGD(other.parameters(), lr=0.1))
        self.assertTrue(torch.equal(other.weight, before))
        self.assertIsNone(self.load_checkpoint(self.db, "run", other))
        self.assertTrue(torch.equal(other.weight, model.weight))


@unittest.skipUnless(_TORCH, "torch is not there")
class ServedEmbeddingTest(ServedDatabaseTest):
    def prepare(self) -> None:
        from quarry.torch import Embedding

        Embedding(self.db, "x", DIM, init="zeros", optimizer="sgd")

    def test_trainers_over_a_server_train_one_table(self):
        import torch

        from quarry.torch import Embedding, load_checkpoint, save_checkpoint

        self.assertEqual(len(Embedding(self.db, "y", DIM)(torch.tensor([0, 1]))), 2)  # is made there, too
        with quarry.open(self.address, memory="64MiB", timeout=60) as other:
            trainers = [Embedding(db, "x", DIM, optimizer="sgd", lr=1.0) for db in (self.db, other)]
            for vectors, ids in zip(trainers, ([1, 2, 2], [2, 3])):
                vectors(torch.tensor(ids)).sum().backward()
            for vectors in trainers:
                vectors.step()
            model = torch.nn.Linear(2, 2)
            save_checkpoint(self.db, "run", model)
            again = torch.nn.Linear(2, 2)
            load_checkpoint(other, "run", again)
            self.assertTrue(torch.equal(again.weight, model.weight))
        with torch.no_grad():
            self.assertEqual(trainers[0](torch.arange(5))[:, 0].tolist(), [0, -1, -3, -1, 0])


if __name__ == "__main__":
    unittest.main()
