"""The examples run as they are."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

_EXAMPLES = Path(os.environ.get("QUARRY_EXAMPLES", Path(__file__).resolve().parents[2] / "client/python/examples"))
_SETS = Path(__file__).resolve().parents[3] / "shared/data"
_TORCH = importlib.util.find_spec("torch_geometric") is not None


class ExamplesTest(unittest.TestCase):
    def test_every_example_runs(self):
        examples = sorted(_EXAMPLES.glob("*.py"))
        self.assertIn("quickstart.py", [path.name for path in examples])
        for path in examples:
            if "import torch" in path.read_text() and not _TORCH:
                continue
            with self.subTest(path.name):
                done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=600)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)


@unittest.skipUnless(_TORCH, "torch and torch_geometric are not there")
class LearningTest(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(_EXAMPLES))
        self.addCleanup(sys.path.remove, str(_EXAMPLES))
        folder = tempfile.TemporaryDirectory(prefix="quarry-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    @unittest.skipUnless((_SETS / "cora.tar.xz").exists(), f"{_SETS} has no cora")
    def test_gat_learns_cora(self):
        import gat

        import quarry

        subprocess.run([_SETS / "unpack", "cora", self.folder], check=True, stdout=subprocess.DEVNULL)
        quarry.import_(self.folder / "cora.db", self.folder / "cora")
        # Logistic regression over features smoothed along two hops reaches .80, over the features alone .61.
        self.assertGreater(gat.train(self.folder / "cora.db", epochs=25), 0.77)

    def test_edges_that_were_left_out_score_above_random_pairs(self):
        import link_prediction
        import quickstart

        quickstart.make(self.folder / "graph.db")
        # Four fifths of the edges are within a class, whatever else: who knows the classes, and no more, has .80.
        self.assertGreater(link_prediction.train(self.folder / "graph.db", self.folder / "trained.db"), 0.75)


if __name__ == "__main__":
    unittest.main()
