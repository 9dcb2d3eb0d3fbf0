"""quarry.pyg.Loader to a GPU: every batch as the same Loader gives it in memory. Needs torch with CUDA, and a GPU."""

import gc
import importlib.util
import unittest

import numpy as np

import quarry
from small_graph import DatabaseTest

_GPU = importlib.util.find_spec("torch_geometric") is not None and __import__("torch").cuda.is_available()


@unittest.skipUnless(_GPU, "no torch with CUDA, or no GPU")
class GpuTest(DatabaseTest):
    def setUp(self) -> None:
        super().setUp()
        import torch

        from quarry.pyg import Loader

        self.torch, self.Loader = torch, Loader

    def check_epochs(self, epochs: int, ahead=None, gpu_sampling=False, **kind) -> None:
        """The same passes, in memory and on the GPU."""
        torch = self.torch
        host, gpu = self.Loader(self.db, **kind), self.Loader(self.db, device="cuda", gpu_memory="64MiB", gpu_sampling=gpu_sampling, **kind)
        for _ in range(epochs):
            batches = list(host)
            kept = []
            for data in gpu:
                kept.append(data if ahead is None else ahead(data))
            self.assertIsNotNone(gpu._gpu, "the engine brought them")
            self.assertEqual(len(kept), len(batches))
            by_first = {tuple(data.n_id[: data.batch_size].tolist()): data for data in batches}  # live passes come in any order
            for data in kept:
                want = by_first[tuple(data.n_id[: data.batch_size].cpu().tolist())]
                self.assertEqual(sorted(data.keys()), sorted(want.keys()))
                for name in data.keys():
                    got, wanted = data[name], want[name]
                    if torch.is_tensor(wanted):
                        self.assertTrue(got.is_cuda, name)
                        self.assertEqual(got.dtype, wanted.dtype, name)
                        self.assertTrue(torch.equal(got.cpu(), wanted), name)
                    else:
                        self.assertEqual(got, wanted, name)

    def test_live_batches(self) -> None:
        self.check_epochs(2, num_neighbors=[4, 3], batch_size=64, shuffle=True, plan=False)
        self.check_epochs(1, num_neighbors=[4], batch_size=16, input_nodes="valid")
        self.check_epochs(1, num_neighbors=[4, 3], batch_size=64, shuffle=True, plan=False, edge_ids=True)

    def test_batches_sampled_there_are_the_processors(self) -> None:
        self.check_epochs(2, gpu_sampling=True, num_neighbors=[4, 3], batch_size=64, shuffle=True, plan=False)
        self.check_epochs(1, gpu_sampling=True, num_neighbors=[4, 3], batch_size=64, shuffle=True, plan=False, edge_ids=True)
        self.check_epochs(1, gpu_sampling=True, num_neighbors=[4, 3], batch_size=64, shuffle=True, plan=False, replace=True)
        with self.assertRaises(quarry.Unsupported):
            list(self.Loader(self.db, [4, 3], 64, shuffle=True, plan=False, device="cuda", gpu_sampling=True, sampler="labor"))

    def test_input_nodes_in_any_order(self) -> None:
        nodes = np.random.default_rng(1).permutation(self.db.num_nodes)[:200]
        self.check_epochs(2, num_neighbors=[4, 3], batch_size=64, input_nodes=nodes)

    def test_planned_batches_however_much_stays_there(self) -> None:
        for cache in ("0%", "20%", "100%"):
            for gpu_cache in (0, "10%", None):
                with self.subTest(cache=cache, gpu_cache=gpu_cache):
                    for name in list(self.db.layouts):
                        self.db.drop_layout(name)
                    self.check_epochs(3, num_neighbors=[4, 3], batch_size=64, shuffle=True, plan=True, cache=cache, gpu_cache=gpu_cache)

    def test_the_callers_stream_is_waited_for(self) -> None:
        torch = self.torch
        stream = torch.cuda.Stream()
        busy = torch.randn(2000, 2000, device="cuda")
        with torch.cuda.stream(stream):

            def ahead(data):
                _ = busy @ busy  # the stream is behind
                copy = data.clone()
                for name in copy.keys():
                    if torch.is_tensor(copy[name]):
                        copy[name] = copy[name] + 0
                return copy

            self.check_epochs(3, ahead, num_neighbors=[4, 3], batch_size=8, shuffle=True, plan=True, cache="20%")
        stream.synchronize()

    def test_a_transform_runs_on_the_gpu(self) -> None:
        def transform(data):
            data.z = data.x * 2
            return data

        self.check_epochs(1, num_neighbors=[4], batch_size=64, shuffle=True, plan=False, transform=transform)

    def test_device_memory_is_given_back(self) -> None:
        torch = self.torch

        def left() -> int:
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return torch.cuda.mem_get_info()[0]

        def run() -> None:
            loader = self.Loader(self.db, [4, 3], 64, shuffle=True, plan=True, device="cuda", gpu_memory="256MiB")
            for data in loader:
                del data
            loader._stream.close()

        run()
        before = left()
        for _ in range(5):
            run()
        self.assertLessEqual(before - left(), 4 << 20)

    def test_too_little_names_the_least(self) -> None:
        with self.assertRaisesRegex(quarry.Error, "device's memory.*at least [0-9]+MiB"):
            list(self.Loader(self.db, [4, 3], 64, shuffle=True, plan=True, device="cuda", gpu_memory=4096))


if __name__ == "__main__":
    unittest.main()
