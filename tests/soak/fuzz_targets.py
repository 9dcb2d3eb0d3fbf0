"""The fuzz targets: by libFuzzer where they were built (`./dev fuzz`), else the replays over a corpus that is changed at random."""

import pathlib
import shutil

import harness
from hostile_frames import mutate

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "fuzz/corpus"
TARGETS = ("wire", "sql", "import")
INPUTS = 300  # of a trial without libFuzzer


class Fuzz(harness.Attack):
    name = "fuzz"
    what = "fuzz targets: frames, SQL, sources of an import"
    weight = 2

    def prepare(self):
        instrumented = self.soak.repository / "build/fuzz/bin"
        self.instrumented = [target for target in TARGETS if (instrumented / f"fuzz_{target}").exists()]
        self.replays = [target for target in TARGETS if (self.soak.bin / f"fuzz_{target}_replay").exists()]
        self.folder = instrumented
        if not self.instrumented and not self.replays:
            raise harness.Skip("neither the fuzz targets are built nor their replays")

    def trial(self, trial):
        if self.instrumented and not self.soak.smoke:
            self.by_libfuzzer(trial, trial.rng.choice(self.instrumented))
        else:
            self.by_replay(trial, trial.rng.choice(self.replays or self.instrumented))

    def by_libfuzzer(self, trial, target):
        found = trial.folder / "found"
        found.mkdir()
        options = ["-max_total_time=8", f"-seed={trial.rng.randrange(1, 1 << 31)}", f"-artifact_prefix={trial.folder}/", "-print_final_stats=1"]
        dictionary = CORPUS.parent / f"{target}.dict"
        if dictionary.exists():
            options.append(f"-dict={dictionary}")
        if target == "import":
            options.append("-malloc_limit_mb=64")  # what a file claims is not believed
        outcome = trial.run(*options, found, CORPUS / target, program=str(self.folder / f"fuzz_{target}"))
        for line in outcome.stderr.splitlines():
            if line.startswith("stat::number_of_executed_units:"):
                trial.count("runs", int(line.split()[1]))
        if outcome.code != 0:
            raise harness.Failure("aborts", f"{outcome}: {outcome.stderr[-2000:]}")

    def by_replay(self, trial, target):
        inputs = trial.folder / "inputs"
        inputs.mkdir()
        seeds = [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]
        count = INPUTS // 10 if self.soak.smoke else INPUTS
        for number in range(count):
            (inputs / f"{number:06}").write_bytes(mutate(trial.rng, trial.rng.choice(seeds)))
        outcome = trial.run(inputs, program=str(self.soak.bin / f"fuzz_{target}_replay"))
        if outcome.code != 0:
            raise harness.Failure("aborts", f"{outcome}: {outcome.stderr[-2000:]}")
        trial.count("runs", count)
        shutil.rmtree(inputs)
