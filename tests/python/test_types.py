"""The package's types and stubs, by mypy --strict, where it is installed with Torch and PyG."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

_SOURCE = Path(os.environ.get("QUARRY_EXAMPLES", Path(__file__).resolve().parents[2] / "client/python/examples")).parent


@unittest.skipUnless(all(map(importlib.util.find_spec, ("mypy", "torch_geometric"))), "mypy or torch_geometric is not there")
class TypesTest(unittest.TestCase):
    def test_the_package_is_strictly_typed(self):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", cache, "quarry", "quarry_command"], cwd=_SOURCE, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
