"""What all attacks share: running verbs under a clock, the oracle over a database, failures and their counts."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

import model

# What a failure is counted as. lost: acknowledged rows are not there, and nobody damaged anything. silent: damage was
# planted, and a verb says that all is well, or gives other rows, with exit code 0. other: whatever else should not be.
KINDS = ("lost", "silent", "aborts", "hangs", "other")

DONE, FAILED, USAGE, CORRUPTION = range(4)
HANG_SECONDS = 120  # for verbs that take some tenths of a second on a database of a MB


class Failure(Exception):
    def __init__(self, kind, text):
        super().__init__(text)
        assert kind in KINDS
        self.kind = kind


class Skip(Exception):
    """What an attack needs is not permitted or not there; the text says what."""


@dataclasses.dataclass
class Outcome:
    command: list
    code: int | None  # None: ended by a signal
    signal: int
    seconds: float
    stdout: str
    stderr: str
    killed: bool = False  # by us

    def __str__(self):
        end = f"signal {self.signal}" if self.code is None else f"exit {self.code}"
        last = self.stderr.strip().splitlines()[-1:] or self.stdout.strip().splitlines()[-1:] or [""]
        return f"{' '.join(map(str, self.command))}: {end}: {last[0]}"


def listing(database):
    """{path: what it is} of all that lies in a database's folder, but LOCK, whose text is the process that holds it."""
    found = {}
    for folder, folders, files in os.walk(database):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), database)] = "folder"
        for name in files:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, database)
            if relative != "LOCK":
                with open(path, "rb") as file:
                    found[relative] = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    return found


class Trial:
    """One run of an attack: a folder of its own, a random generator, verbs that are logged, processes that end with it."""

    def __init__(self, soak, folder, rng):
        self.soak, self.folder, self.rng = soak, pathlib.Path(folder), rng
        self.folder.mkdir(parents=True)
        self.quarry = str(soak.quarry)
        self.exit = contextlib.ExitStack()  # what is to be undone afterwards, newest first
        self.log = open(self.folder / "log.txt", "w", buffering=1)
        self.environment = {"QUARRY_LOG": "info", "HOME": str(self.folder)}  # of all that it starts
        self.found = {}  # what else is worth a count in the table: word -> times

    def close(self):
        self.exit.close()
        self.log.close()

    def note(self, text):
        self.log.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def count(self, word, times=1):
        self.found[word] = self.found.get(word, 0) + times

    # ---- processes

    def start(self, command, prefix=(), env=None, cwd=None, stdin=subprocess.DEVNULL,
              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        """A process in a group of its own, which ends with the trial."""
        environment = {**os.environ, **self.environment, **(env or {})}
        process = subprocess.Popen([*map(str, prefix), *map(str, command)], stdin=stdin, stdout=stdout, stderr=stderr,
                                   env=environment, cwd=cwd or self.folder, start_new_session=True)
        self.exit.callback(kill_group, process)
        return process

    def run(self, *arguments, program=None, prefix=(), env=None, cwd=None, seconds=HANG_SECONDS, kill_after=None, expect=None,
            stdin=None, killed_is_fair=False, loader_may_fail=False):
        """Runs a verb (or `program`) to its end, or kills it after `kill_after` seconds. Failure: a signal that was not ours
        (or SIGKILL, where `killed_is_fair`: by a cgroup's limit), an exit code that a verb does not have (127 is the system's,
        where `loader_may_fail`), one that is not in `expect`, no end within `seconds`."""
        command = [program or self.quarry, *map(str, arguments)]
        begin = time.monotonic()
        # Pipes: under RLIMIT_FSIZE a verb could say nothing to a file.
        process = self.start(command, prefix, env, cwd, subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                             subprocess.PIPE, subprocess.PIPE)
        killed = hung = False
        try:
            out, err = process.communicate(None if stdin is None else stdin.encode(),
                                           kill_after if kill_after is not None else seconds)
        except subprocess.TimeoutExpired:
            killed, hung = True, kill_after is None
            kill_group(process)
            out, err = process.communicate()
        (self.folder / "out.txt").write_bytes(out)
        (self.folder / "err.txt").write_bytes(err)
        outcome = Outcome(command[1:] if program is None else command,
                          process.returncode if process.returncode >= 0 else None, max(0, -process.returncode),
                          time.monotonic() - begin, out.decode(errors="replace"), err.decode(errors="replace"), killed)
        self.note(f"{'killed after %.4f s: ' % kill_after if killed and not hung else ''}{' '.join(map(str, prefix))} {outcome}")
        if hung:
            raise Failure("hangs", f"{outcome} (after {seconds} s)")
        if killed:
            return outcome
        fair = killed_is_fair and outcome.signal == signal.SIGKILL
        # A shell or a launcher gives the signal of its child as an exit code above 128.
        if (outcome.code is None or outcome.code > 128 or "terminate called" in outcome.stderr) and not fair:
            raise Failure("aborts", str(outcome))
        not_loaded = loader_may_fail and outcome.code in (126, 127)
        if program is None and outcome.code not in (DONE, FAILED, USAGE, CORRUPTION) and not fair and not not_loaded:
            raise Failure("other", f"{outcome}: there is no such exit code")
        if expect is not None and outcome.code not in expect:
            raise Failure("other", f"{outcome}: expected {' or '.join(map(str, expect))}")
        return outcome

    def read(self, *arguments, database, **options):
        """A verb that reads: it leaves every byte of the database as it is."""
        before = listing(database)
        outcome = self.run(*arguments, **options)
        after = listing(database)
        for path in before.keys() - after.keys():
            raise Failure("other", f"{outcome}: it removed {path}, and {len(before.keys() - after.keys()) - 1} more")
        for path in sorted(after):
            if before.get(path) != after[path]:
                raise Failure("other", f"{outcome}: it {'wrote' if path in before else 'made'} {path}")
        return outcome

    # ---- the oracle

    def put(self, target, change, expect=(DONE,), **options):
        """`quarry put` of a Change into a database or a server."""
        write_change(self.folder / "put", change)
        arguments = ["put", target, "--ids", self.folder / "put/ids.npy"]
        if change.rows is not None:
            arguments += ["--features", self.folder / "put/rows.npy"]
        if change.labels is not None:
            arguments += ["--labels", self.folder / "put/labels.npy"]
        if change.split is not None:
            arguments += ["--split", change.split]
        extra = options.pop("arguments", ())
        return self.run(*arguments, *extra, expect=expect, **options)

    def grow_arguments(self, growth):
        """`add` and `remove` of a Growth, behind the verb and its target."""
        folder = self.folder / "grow"
        folder.mkdir(exist_ok=True)
        arguments = []
        if growth.rows:
            model.write_npy(folder / "rows.npy", "<f4", (len(growth.rows), len(growth.rows[0]) // 4), b"".join(growth.rows))
            model.write_ids(folder / "labels.npy", growth.labels)
            arguments += ["--nodes", folder / "rows.npy", "--labels", folder / "labels.npy", "--split", growth.split]
        edges = sorted(growth.edges or growth.gone)
        if edges:
            ends = [pair[0] for pair in edges] + [pair[1] for pair in edges]
            model.write_npy(folder / "edges.npy", "<i8", (2, len(edges)), struct.pack(f"<{len(ends)}q", *ends))
            arguments += ["--edges", folder / "edges.npy"]
        return arguments

    def export(self, database, seconds=HANG_SECONDS, read=True):
        """(Outcome, State or None): what `quarry export` gives, by an exit code of 0."""
        to = self.folder / "exported"
        shutil.rmtree(to, ignore_errors=True)
        arguments = ("export", database, to, "--what", "topology,features,labels,split")
        outcome = self.read(*arguments, database=database, seconds=seconds) if read else self.run(*arguments, seconds=seconds)
        if outcome.code != DONE:
            return outcome, None
        try:
            return outcome, model.State.of_export(to)
        except (OSError, ValueError) as error:
            raise Failure("other", f"{outcome}: its files do not hold: {error}") from error

    def check(self, database, truth, when):
        """Nothing was damaged: verify and export agree with the model, and nothing changes by being looked at."""
        outcome = self.read("verify", database, database=database)
        if outcome.code != DONE:
            raise Failure("lost", f"{when}: {outcome}\n{outcome.stdout}")
        outcome, state = self.export(database)
        if state is None:
            raise Failure("lost", f"{when}: {outcome}")
        difference = truth.difference(state)
        if difference:
            raise Failure("lost", f"{when}: {difference}")

    def named(self, database):
        """What the catalog names besides rows."""
        outcome = self.run("info", database, "--json", expect=(DONE,))
        return model.named_in(json.loads(outcome.stdout))

    def difference(self, database, state, truth):
        """Of what was exported and is named; None where all is as in the model, which stays as it is."""
        found = truth.copy().difference(state)
        if found is None:
            named = self.named(database)
            if named != truth.named:
                found = f"trainings and embeddings are {sorted(named)} instead of {sorted(truth.named)}"
        return found

    def check_damaged(self, database, truth, damage):
        """Something was damaged: a verb that ends with 0 must agree with the model. True when verify found the damage."""
        outcome = self.read("verify", database, database=database)
        found = outcome.code != DONE
        exported, state = self.export(database)
        if state is None and not found:
            raise Failure("other", f"{damage}: verify says sound, and {exported}")
        if state is None:
            return True
        # Where a database was found to be damaged, only what is read with an exit code of 0 must be right.
        difference = truth.copy().difference(state) if found else self.difference(database, state, truth)
        if difference:
            raise Failure("silent", f"{damage}: exit 0 of {exported.command[0]}, verify: exit {outcome.code}; {difference}")
        return found


def kill_group(process):
    """Of a process that leads its group: all of it ends."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write_change(folder, change):
    """The files of a Change, as `quarry put` takes them."""
    folder.mkdir(exist_ok=True)
    model.write_ids(folder / "ids.npy", change.ids)
    if change.rows is not None:
        model.write_npy(folder / "rows.npy", "<f4", (len(change.ids), len(change.rows[0]) // 4), b"".join(change.rows))
    if change.labels is not None:
        model.write_ids(folder / "labels.npy", change.labels)


def random_change(rng, truth, nodes=None, author=0, most=40):
    """Rows, labels or a split for some of the nodes. Rows mostly, since these are the ones that tell who wrote them."""
    nodes = list(nodes if nodes is not None else range(truth.nodes))
    ids = sorted(rng.sample(nodes, rng.randint(1, min(most, len(nodes)))))
    kind = rng.random()
    change = model.Change(ids, rows=truth.next_rows(ids, author) if kind < 0.8 else None)
    if kind > 0.6:
        change.labels = [rng.randrange(model.CLASSES) for _ in ids]
    if kind > 0.9:
        change.split = rng.choice(model.SPLITS)
    return change


def random_growth(rng, state, rows_of):
    """Some nodes with edges to and among them, some edges, or some that go; of the state as it is."""
    first = len(state.rows)
    kind = rng.random()
    if kind < 0.3 and state.edges:
        return model.Growth(first, gone=rng.sample(sorted(state.edges), min(20, len(state.edges))))
    new = list(range(first, first + rng.randint(1, 12))) if kind < 0.8 else []
    edges = [(rng.choice(new) if new else rng.randrange(first), rng.randrange(first + len(new))) for _ in range(rng.randint(1, 40))]
    labels = [rng.randrange(model.CLASSES) for _ in new]
    return model.Growth(first, rows_of(new), labels, rng.choice(model.SPLITS) if new else "none", edges=edges)


class Attack:
    """A kind of attack. `trial` is one run of it: it raises Failure, or returns; `weight` is its share of the time."""

    name = ""
    what = ""  # for the table
    weight = 1
    smoke = 1  # runs in the smoke test

    def __init__(self, soak):
        self.soak = soak

    def prepare(self):
        """Before the first trial. Skip where this machine does not have what it takes."""

    def trial(self, trial):
        raise NotImplementedError

    def close(self):
        """After the last trial."""


def seeded(*parts):
    return random.Random(".".join(map(str, parts)))


def say(text):
    print(text, file=sys.stderr, flush=True)
