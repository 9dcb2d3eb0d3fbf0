"""SIGKILL at random instants of the verbs that write: afterwards all that was acknowledged is there, what was under way is there
or not, and the verb goes on."""

import shutil

import databases
import harness
import model
from harness import DONE, FAILED


class Operation:
    """A verb, how to begin it anew after it was killed, and the change of rows or of the graph that it makes, if any."""

    def __init__(self, arguments, change=None, cleanup=()):
        self.arguments, self.change, self.cleanup = arguments, change, cleanup


class KillVerbs(harness.Attack):
    name = "kill-verbs"
    what = "SIGKILL at random instants of verbs that write"
    weight = 3
    smoke = 2

    def __init__(self, soak):
        super().__init__(soak)
        self.seconds = {}  # of each verb, when it is let alone; instants are drawn from these

    def trial(self, trial):
        rng = trial.rng
        kind = "full" if rng.random() < 0.4 else "plain"
        database, truth = self.soak.databases.copy(trial, kind)
        trial.count("runs", 0)
        for _ in range(rng.randint(2, 5)):
            name = rng.choice(NAMES[kind])
            self.kill(trial, database, truth, name, kind)
            trial.count("runs")

    def kill(self, trial, database, truth, name, kind):
        operation = make(trial, database, truth, name)
        if operation.change is not None:
            truth.attempt(operation.change)
        usual = self.seconds.get((name, kind), 0.3)
        outcome = trial.run(*operation.arguments, kill_after=trial.rng.uniform(0.005, 1.1) * usual, expect=(DONE, FAILED))
        when = f"{name}, {'killed' if outcome.killed else 'which ended'} after {outcome.seconds:.3f} s"
        if not outcome.killed:
            self.seconds[name, kind] = outcome.seconds
            if outcome.code == DONE:
                truth.acknowledge()
            elif name not in REFUSED_SOMETIMES:
                raise harness.Failure("other", f"let alone, {outcome}")
        trial.check(database, truth, when)
        # It goes on: the same verb, let alone this time.
        for path in operation.cleanup:
            shutil.rmtree(path, ignore_errors=True)
        if outcome.killed and trial.rng.random() < 0.5:
            if isinstance(operation.change, model.Growth):  # of the graph as it has become: the same nodes would be others
                operation = make(trial, database, truth, name)
            if operation.change is not None:
                truth.attempt(operation.change)
            again = trial.run(*operation.arguments, expect=(DONE,) if name not in REFUSED_SOMETIMES else (DONE, FAILED))
            if again.code == DONE:
                truth.acknowledge()
            self.seconds[name, kind] = again.seconds
            trial.check(database, truth, f"{when}, and was run again")
            for path in operation.cleanup:
                shutil.rmtree(path, ignore_errors=True)


# `drop` finds nothing when an earlier one has been done; `--resume` has nothing to go on from after `--overwrite`.
REFUSED_SOMETIMES = ("layout-drop", "layout-rebuild", "layout-resume", "sql-write")
PLAIN = ("put", "put-large", "put-labels", "put-compact", "compact", "compact-graph", "delete", "sql-write", "import", "export",
         "checkpoint", "layout-build", "grow", "grow-compact", "sql-grow")
NAMES = {
    "plain": PLAIN,
    "full": (*PLAIN, "layout-rebuild", "layout-resume", "layout-drop", "train", "train-link", "restore", "repair"),
}


def make(trial, database, truth, name, folder=None):
    """The Operation of this name, which may need a file or two; what it makes lies in `folder`."""
    rng, folder = trial.rng, folder or trial.folder
    if name in ("put", "put-large", "put-labels", "put-compact", "delete", "sql-write"):
        return make_write(trial, database, truth, name)
    if name in ("grow", "grow-compact", "sql-grow"):
        return make_growth(trial, database, truth, name)
    if name == "compact":
        return Operation(["compact", database])
    if name == "compact-graph":
        return Operation(["compact", database, "--table", "graph"])
    if name == "import":
        return Operation(["import", folder / "new.db", trial.soak.databases.source, "--memory", "64MiB"], cleanup=[folder / "new.db"])
    if name == "export":
        return Operation(["export", database, folder / "out", "--format", rng.choice(("npy", "csv", "graphbolt"))], cleanup=[folder / "out"])
    if name == "checkpoint":
        return Operation(["checkpoint", database, folder / "copy"], cleanup=[folder / "copy"])
    if name == "restore":
        source, _ = trial.soak.databases.original("full")
        return Operation(["restore", source, folder / "restored"], cleanup=[folder / "restored"])
    if name == "repair":
        return Operation(["repair", database])
    if name == "train":
        how = rng.choice((("--resume", "--epochs", "3"), ("--overwrite", "--epochs", "2")))
        return Operation(["train", database, *databases.TRAIN, "--checkpoint-every", "1", *how])
    if name == "train-link":
        return Operation(["train", database, *databases.LINK, "--epochs", "2", "--checkpoint-every", "5", "--overwrite"])
    verb = name.split("-")[1]
    if verb == "resume":
        return Operation(["layout", "build", database, *databases.LAYOUT, "--resume"])
    return Operation(["layout", verb, database, *(databases.LAYOUT if verb == "build" else ())])


def make_write(trial, database, truth, name):
    rng, put = trial.rng, trial.folder / "put"
    nodes = range(truth.nodes)
    if name == "sql-write":
        node = rng.randrange(truth.nodes)
        label, split = rng.randrange(model.CLASSES), rng.choice(model.SPLITS[1:])
        change = model.Change([node], labels=[label], split=split)
        return Operation(["sql", database, "--write", f"UPDATE nodes SET label = {label}, split = '{split}' WHERE id = {node}"], change)
    if name == "delete":
        ids = sorted(rng.sample(nodes, 20))
        change = model.Change(ids, rows=[bytes(4 * truth.dim)] * len(ids))
        harness.write_change(put, change)
        return Operation(["put", database, "--ids", put / "ids.npy", "--delete"], change)
    if name == "put-labels":
        ids = sorted(rng.sample(nodes, 30))
        change = model.Change(ids, labels=[rng.randrange(model.CLASSES) for _ in ids])
        harness.write_change(put, change)
        return Operation(["put", database, "--ids", put / "ids.npy", "--labels", put / "labels.npy"], change)
    ids = list(nodes) if name == "put-large" else sorted(rng.sample(nodes, rng.randint(1, 100)))
    change = model.Change(ids, rows=truth.next_rows(ids))
    harness.write_change(put, change)
    arguments = ["put", database, "--ids", put / "ids.npy", "--features", put / "rows.npy"]
    if name == "put-large":  # more than the memory for rows on their way: in pieces
        arguments += ["--memory", "16KiB"]
    if name == "put-compact":
        arguments += ["--auto-compact", "1%"]
    return Operation(arguments, change)


def make_growth(trial, database, truth, name):
    """`add` or `remove`, with a fold of the graph behind it at times; or SQL's one node with an edge."""
    rng = trial.rng
    if name == "sql-grow":
        node, other, label = truth.nodes, rng.randrange(truth.nodes), rng.randrange(model.CLASSES)
        growth = model.Growth(node, [bytes(4 * truth.dim)], [label], "valid", edges=[(node, other)])
        text = (f"BEGIN; INSERT INTO nodes (label, split) VALUES ({label}, 'valid'); "
                f"INSERT INTO edges (src, dst) VALUES ({node}, {other}); COMMIT")
        return Operation(["sql", database, "--write", text], growth)
    growth = harness.random_growth(rng, truth.state, truth.next_rows)
    arguments = ["remove" if growth.gone else "add", database, *trial.grow_arguments(growth)]
    return Operation(arguments + (["--auto-compact=1.0001"] if name == "grow-compact" else []), growth)
