"""The command as a package brings it. Needs QUARRY_BINARY, which names a wheel's in `run.py --wheel`."""

import os
import shutil
import subprocess
import unittest

import quarry
from small_graph import BINARY, DatabaseTest


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True)


@unittest.skipUnless(os.path.exists(BINARY), "QUARRY_BINARY names no command")
class CommandTest(DatabaseTest):
    def test_it_is_of_the_packages_version(self):
        self.assertIn(quarry.__version__, run("--version").stdout)

    def test_it_reads_what_the_package_wrote(self):
        self.db.close()
        counted = run("sql", self.path, "SELECT count(*) FROM nodes WHERE split = 'train'", "--csv")
        self.assertEqual((counted.returncode, counted.stdout.split()[-1]), (0, "300"), counted.stderr)
        verified = run("verify", self.path)
        self.assertEqual(verified.returncode, 0, verified.stderr)

    def test_arguments_and_exit_codes_pass_as_they_are(self):
        self.assertEqual(run("info", self.folder / "none of this name").returncode, 1)
        self.assertIn("none of this name", run("info", self.folder / "none of this name").stderr)
        self.assertEqual(run("no-verb").returncode, 2)

    def test_without_the_trainer_it_says_what_to_do(self):
        program = shutil.which("quarry-train", path=os.path.dirname(BINARY))
        if program is not None:
            self.skipTest(f"{program} has the models")
        self.db.close()
        for verb in ("train", "predict"):
            refused = run(verb, self.path, "--epochs", "1")
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, "quarry-train.*quarry.pyg.*Debian")


if __name__ == "__main__":
    unittest.main()
