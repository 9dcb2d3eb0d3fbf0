"""Bit flips, cuts, zeroed pages and removal of every kind of file of a database at rest."""

import shutil

import damage
import databases
import harness
import server
from harness import CORRUPTION, DONE, FAILED

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


def use(trial, database, truth, what):
    """Looks at it by some reading verbs, now and then as a writer, a server or a copy would, and then repairs it."""
    read_some(trial, database, 2)
    for share, check in ((0.25, check_write), (0.15, check_copy), (0.2, check_serve)):
        if trial.rng.random() < share:
            check(trial, database, truth, what)
    check_repair(trial, database, truth, what)


def check_write(trial, database, truth, what):
    """A put is refused, or on top of all that was acknowledged. Not where another was cut off: the database, which may be
    damaged, cannot be asked what became of it."""
    if truth.is_open():
        return
    change = harness.random_change(trial.rng, truth)
    truth.attempt(change)
    if trial.put(database, change, expect=None).code == DONE:
        truth.acknowledge()
        trial.count("written to")
    trial.check_damaged(database, truth, f"{what}; and a put")


def check_copy(trial, database, truth, what):
    """A checkpoint is refused, or has what was acknowledged, or what is wrong with it is found."""
    copy = trial.folder / "copy"
    if trial.read("checkpoint", database, copy, database=database).code == DONE:
        trial.check_damaged(copy, truth, f"{what}; and a checkpoint")


def check_serve(trial, database, truth, what):
    """A server does not start, or serves what was acknowledged, or says that it cannot."""
    running = server.Server(trial, database)
    if not running.started:
        return
    try:
        found = server.state(running, truth.nodes)
    except (server.Gone, server.Refused) as refused:
        trial.note(f"a lookup: {refused}")
        found = None
    difference = truth.copy().difference(found) if found is not None else None
    if difference:
        raise harness.Failure("silent", f"{what}: a server serves it: {difference}")
    running.stop()


def check_repair(trial, database, truth, what):
    """`repair` may end with 0 only where verify agrees, and the rows are the model's."""
    outcome = trial.run("repair", database, expect=(DONE, FAILED, CORRUPTION))
    if outcome.code != DONE:
        trial.count("refused by repair")
        return
    trial.count("repaired")
    verified = trial.read("verify", database, database=database)
    if verified.code != DONE:
        raise harness.Failure("other", f"{what}: {outcome}, and then {verified}")
    exported, state = trial.export(database)
    if state is None:
        raise harness.Failure("other", f"{what}: {outcome}, and then {exported}")
    difference = trial.difference(database, state, truth)
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
        use(trial, database, truth, what)

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
            outcome = trial.run("train", copy, *databases.TRAIN, "--epochs", "2", "--json", *how, expect=[DONE])
            losses.append([line.split(",")[1] for line in outcome.stdout.splitlines()])
        shutil.rmtree(copy)
        shutil.rmtree(to)
        return content, losses
