"""The examples run as they are."""

import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

_EXAMPLES = Path(os.environ.get("QUARRY_EXAMPLES", Path(__file__).resolve().parents[2] / "client/python/examples"))
_TORCH = {"graphsage.py"}


class ExamplesTest(unittest.TestCase):
    def test_every_example_runs(self):
        names = sorted(path.name for path in _EXAMPLES.glob("*.py"))
        self.assertIn("quickstart.py", names)
        for name in names:
            if name in _TORCH and not importlib.util.find_spec("torch_geometric"):
                continue
            with self.subTest(name):
                done = subprocess.run([sys.executable, _EXAMPLES / name], capture_output=True, text=True, timeout=600)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)


if __name__ == "__main__":
    unittest.main()
