"""The project's own test binaries that kill, cut the power and fail the disk, with ever new seeds: one test of one of them a trial."""

import functools
import re
import subprocess

import harness


class Binaries(harness.Attack):
    """`programs`: those whose tests take turns; `environment`: what is given to them, with {seed}, {count} and {stride}
    replaced."""

    programs = ()
    suite = ""  # or several: of these tests alone
    environment = {}
    count = 100
    smoke = 0  # ctest runs these binaries by themselves

    def prepare(self):
        self.present = [name for name in self.programs if (self.soak.bin / name).exists()]
        if not self.present:
            raise harness.Skip(f"not built: {', '.join(self.programs)}")

    def trial(self, trial):
        program = trial.rng.choice(self.present)
        path = self.soak.bin / program
        test = trial.rng.choice([test for test in tests_of(path) if test.startswith(self.suite)])
        values = {"seed": trial.rng.randrange(1, 1_000_000), "count": self.count, "stride": trial.rng.randint(1, 6)}
        env = {name: value.format(**values) for name, value in self.environment.items()}
        # Beside everything else that runs here, and not to be taken for a hang.
        report = trial.folder / "report.json"
        outcome = trial.run(f"--gtest_filter={test}", f"--gtest_output=json:{report}", program=str(path), env={**env, "TMPDIR": str(trial.folder)}, seconds=900)
        trial.note(f"{env}\n{outcome.stdout[-4000:]}")
        if outcome.code != 0:
            failed = [line for line in outcome.stdout.splitlines() if "Failure" in line or "FAILED" in line]
            raise harness.Failure("other", f"{' '.join(f'{k}={v}' for k, v in env.items())} {outcome}: {'; '.join(failed[:3])}")
        self.counted(trial, outcome.stdout, report.read_text())

    def counted(self, trial, text, report):
        """Adds what the binary says that it did, in its output or in GoogleTest's report."""


@functools.lru_cache(maxsize=None)
def tests_of(path):
    listed = subprocess.run([path, "--gtest_list_tests"], capture_output=True, text=True, check=True, timeout=60).stdout
    tests, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            tests.append(suite + name)
        elif name.endswith("."):
            suite = name
    return [test for test in tests if "DISABLED" not in test]


def stated(word, text):
    """What a binary says first: "300 kills, seed 7"."""
    found = re.search(rf"^(\d+) {word}, seed", text, re.MULTILINE)
    return int(found.group(1)) if found else 1


class PowerCuts(Binaries):
    name = "power-cuts"
    what = "the power goes at any operation, and what was not synced is lost, torn or reordered"
    weight = 2
    programs = ("power_cut_test",)
    suite = "PowerCutTest."  # not what shows that it notices missing syncs
    environment = {"QUARRY_TEST_SEED": "{seed}", "QUARRY_TEST_CUTS": "{count}"}

    def counted(self, trial, text, report):
        trial.count("runs", stated("cuts", text))


class Crashes(Binaries):
    name = "crash-test"
    what = "kill points, k-th operations and instants of children that do everything at once"
    programs = ("crash_test",)
    environment = {"QUARRY_TEST_SEED": "{seed}", "QUARRY_TEST_KILLS": "{count}"}
    count = 200  # so many that a child comes by every kill point

    def counted(self, trial, text, report):
        trial.count("runs", stated("kills", text))


class Faults(Binaries):
    name = "faults"
    what = "EIO, ENOSPC, short transfers and failed syncs at every operation (tests/faults), and random writes, compactions and copies"
    weight = 2
    programs = ("commit_faults_test", "copy_faults_test", "layout_faults_test", "training_faults_test", "write_faults_test",
                "large_write_test", "compaction_resume_test", "checkpoint_test", "rebuild_test")
    environment = {"QUARRY_TEST_FAULT_STRIDE": "{stride}"}

    def counted(self, trial, text, report):
        trial.count("runs", max(1, sum(map(int, re.findall(r'"faults": "(\d+)"', report)))))


class ClientKills(Binaries):
    name = "client-kills"
    what = "clients killed in each of the states of the protocol (server_fault_test)"
    programs = ("server_fault_test",)
    environment = {"QUARRY_TEST_KILLS": "{count}"}
    suite = ("KillTest.", "SqlKillTest.", "GroupKillTest.")
    count = 120

    def counted(self, trial, text, report):
        trial.count("runs", self.count // 6)  # of which a state has a sixth
