"""Bit flips, cuts, zeroed pages and removal of every kind of file of a database at rest."""

import shutil

import damage
import databases
import harness
from harness import CORRUPTION, DONE

READERS = (["info"], ["info", "--json"], ["stats"], ["layout", "list"], ["layout", "explain"], ["verify", "--json"], ["upgrade", "--dry-run"],
           ["repair", "--dry-run"], ["sql", "{db}", "select count(*), sum(in_degree), sum(label) from nodes"],
           ["sql", "{db}", "select path, checksum from files"], ["sql", "{db}", "select sum(vec_dim(vector)) from embedding_rows"],
           ["export", "{db}", "{folder}/all", "--what", "topology,features,labels,split,embeddings"], ["compact", "{db}", "--dry-run"])


def read_some(trial, database, most):
    """Some of the reading verbs: they end by an exit code, and leave every byte as it is."""
    for verb in trial.rng.sample(READERS, most):
        arguments = [str(part).format(db=database, folder=trial.folder) for part in verb]
        if str(database) not in arguments:  # behind the verb, and the verb's verb
            at = 2 if verb[0] == "layout" else 1
            arguments.insert(at, database)
        trial.read(*arguments, database=database)
        shutil.rmtree(trial.folder / "all", ignore_errors=True)


def check_repair(trial, database, truth, what, **options):
    """`repair` may end with 0 only where verify agrees, and the rows are the model's."""
    outcome = trial.run("repair", database, **options)
    if outcome.code != DONE:
        if outcome.code != CORRUPTION:
            raise harness.Failure("other", f"{what}: {outcome}")
        trial.count("refused by repair")
        return
    trial.count("repaired")
    verified = trial.read("verify", database, database=database)
    if verified.code != DONE:
        raise harness.Failure("other", f"{what}: {outcome}, and then {verified}")
    exported, state = trial.export(database)
    if state is None:
        raise harness.Failure("other", f"{what}: {outcome}, and then {exported}")
    difference = truth.copy().difference(state)
    if difference:
        raise harness.Failure("silent", f"{what}: {outcome}, but {difference}")


class FlipFiles(harness.Attack):
    name = "flip-files"
    what = "bit flips, cuts, zeroed pages, removal of every kind of file of a closed database, then repair"
    weight = 3
    smoke = 3

    def prepare(self):
        self.whole = None

    def trial(self, trial):
        database, truth = self.soak.databases.copy(trial, "full")
        # Kinds take turns, or topology and layouts, which are large, would get most.
        files = [path for path in damage.files_of(database) if not path.startswith("catalog/")]
        kind = trial.rng.choice(sorted({damage.kind_of(path) for path in files}))
        path = trial.rng.choice([path for path in files if damage.kind_of(path) == kind])
        what = f"{path}: {damage.damage(trial.rng, database / path)}"
        trial.note(what)
        if trial.check_damaged(database, truth, what):
            trial.count("found")
        else:
            self.check_unfound(trial, database, what)
        read_some(trial, database, 2)
        check_repair(trial, database, truth, what)

    def check_unfound(self, trial, database, what):
        """What verify does not mind is nothing that anybody reads: all that can be read is as it was."""
        trial.count("harmless")
        if self.everything(trial, database) != self.as_it_was(trial):
            raise harness.Failure("silent", f"{what}: verify says sound, and other things are read")

    def as_it_was(self, trial):
        if self.whole is None:
            self.whole = self.everything(trial, self.soak.databases.original("full")[0])
        return self.whole

    @staticmethod
    def everything(trial, database):
        """The export of all there is, and the losses of a training from the layout, as text."""
        to = trial.folder / "everything"
        shutil.rmtree(to, ignore_errors=True)
        trial.read("export", database, to, "--what", "topology,features,labels,split,embeddings", database=database, expect=[DONE])
        content = harness.listing(to)
        copy = trial.folder / "trained.db"  # training notes what it measured
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(database, copy)
        losses = []
        for how in (["--layout", "default", "--seed", "0"], ["--checkpoint-every", "1", "--resume"]):
            outcome = trial.run("train", copy, *databases.TRAIN, "--ordered", "--epochs", "2", "--json", *how, expect=[DONE])
            losses.append([line.split(",")[1] for line in outcome.stdout.splitlines()])
        shutil.rmtree(copy)
        shutil.rmtree(to)
        return content, losses
