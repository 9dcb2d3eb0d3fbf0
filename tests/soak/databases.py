"""The databases that attacks begin with, made once by the quarry under attack, and copied for each trial."""

import shutil

import harness
import model

TRAIN = "--fanout 3,3 --hidden 8 --batch-size 64 --memory 64MiB --threads 2 --torch-threads 1 --ordered".split()
LINK = ("--task link --dim 8 --decoder dot --negatives 20 --chunk 100 --valid-share 5% --test-share 5% --memory 64MiB "
        "--threads 2").split()
LAYOUT = "--fanout 3,3 --batch-size 64 --cache 10% --memory 64MiB".split()


class Databases:
    """plain: imported, with rows that changed since, compacted ones too. full: also with a layout, the state of a training
    run and embedding tables, that is every kind of file."""

    def __init__(self, root, quarry, seed):
        self.root, self.quarry, self.seed = root, quarry, seed
        self.made = {}
        self.graph = model.Graph(seed)
        self.source = root / "source"
        self.graph.write(self.source)

    def copy(self, trial, kind="plain", to=None):
        """(folder, model) of a copy of one's own."""
        folder, truth = self.original(kind)
        to = to or trial.folder / "db"
        shutil.copytree(folder, to)
        return to, truth.copy()

    def original(self, kind):
        if kind not in self.made:
            rng = harness.seeded(self.seed, "database", kind)
            maker = harness.Trial(self, self.root / f"make-{kind}", rng)
            try:
                self.made[kind] = self.make(maker, kind, rng)
            finally:
                maker.close()
        return self.made[kind]

    def make(self, maker, kind, rng):
        database = self.root / f"{kind}.db"
        if kind == "plain":
            maker.run("import", database, self.source, "--undirected", "--memory", "64MiB", expect=[0])
            truth = model.Model(self.graph.state)
            for _ in range(2):
                self.put(maker, database, truth, rng)
            maker.run("compact", database, "--table", "feature", expect=[0])
        else:
            folder, plain = self.original("plain")
            shutil.copytree(folder, database)
            truth = plain.copy()
            maker.run("layout", "build", database, *LAYOUT, expect=[0])
            maker.run("train", database, *TRAIN, "--epochs", "1", "--checkpoint-every", "1", expect=[0])
            maker.run("train", database, *LINK, "--epochs", "1", "--save", expect=[0])
        for _ in range(2):
            self.put(maker, database, truth, rng)
        maker.check(database, truth, "a new database")
        truth.named = maker.named(database)
        return database, truth

    @staticmethod
    def put(maker, database, truth, rng):
        change = harness.random_change(rng, truth)
        truth.attempt(change)
        maker.put(database, change)
        truth.acknowledge()
