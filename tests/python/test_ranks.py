"""Layouts for several trainers, trained from by PyG: losses beside those of one trainer with as much larger batches, bytes that
each reads, and bytes that pass between them (tests/bench/python/ranks.py)."""

import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

from small_graph import BINARY, DatabaseTest

_BENCH = Path(__file__).resolve().parents[1] / "bench/python"


@unittest.skipUnless(importlib.util.find_spec("torch_geometric") is not None, "torch and torch_geometric are not there")
@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class RanksTest(DatabaseTest):
    def build(self, *words):
        plan = ["--fanout", "4,3", "--batch-size", "16", "--cache", "10%"]
        subprocess.run([BINARY, "layout", "build", self.path, *words, *plan], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def test_ranks_learn_what_one_trainer_learns_and_read_their_own_rows_alone(self):
        sys.path.insert(0, str(_BENCH))
        self.addCleanup(sys.path.remove, str(_BENCH))
        import ranks

        self.db.close()
        self.build("one")
        for count in (2, 8):
            self.build("own", "--ranks", str(count))
            with self.subTest(ranks=count):
                told = ranks.main(self.folder, count, "4,3", 16, real=count == 2)
                self.assertLess(told["difference"], 1e-5)
                self.assertGreater(told["losses"][0], 0.5)
                self.assertNotEqual(told["losses"][0], told["losses"][-1])
                self.assertEqual(len(told["bytes_read"]), count)
                self.assertTrue(all(told["bytes_read"]))
                if "real" not in told:
                    continue
                real = told["real"]
                self.assertLess(real["difference"], 1e-5)
                self.assertEqual(real["bytes_read"], told["bytes_read"])  # without the layouts of others
                if real["counted"]:
                    self.assertEqual(real["reading_bytes"], 0)
                    self.assertGreater(real["training_bytes"], told["gradient_bytes"])


if __name__ == "__main__":
    unittest.main()
