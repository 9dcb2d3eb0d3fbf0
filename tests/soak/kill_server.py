"""SIGKILL of a server under writers and a reader: what was acknowledged is there, each commit whole."""

import contextlib
import functools
import json
import subprocess
import threading
import time

import harness
import model
import server

WRITERS = 3
BUSY = "wait for it"  # of what one client at a time may do: puts in pieces, changes of the graph, compactions


class KillServer(harness.Attack):
    name = "kill-server"
    what = "SIGKILL of a server under three writers, a reader of whole commits, a graph that grows and its compaction"
    weight = 2

    def trial(self, trial):
        database, truth = self.soak.databases.copy(trial)
        truth.owned_by(WRITERS, grower=True)
        trial.count("runs", 0)
        for _ in range(trial.rng.randint(1, 4)):
            count, grown = write_until_killed(trial, database, truth)
            trial.count("acknowledged puts", count)
            trial.count("changes of the graph", grown)
            trial.count("runs")
            if trial.rng.random() < 0.7:  # otherwise the next server begins with what this one left
                trial.check(database, truth, f"a server killed after {count} puts and {grown} changes of the graph")
            else:
                settle_by_reading(trial, database, truth)


def settle_by_reading(trial, database, truth):
    """Over a server, which is the first to open what another left."""
    running = server.Server(trial, database)
    if not running.started:
        raise harness.Failure("lost", f"the next server does not start: {running.text()}")
    outcome = trial.run("sql", running.address, "--json", "select count(*) as n from nodes", expect=[0])
    found = json.loads(outcome.stdout)
    count = (found[0] if isinstance(found, list) else found)["n"]
    growths = [len(change.rows) for change in truth.writers[WRITERS].changes]
    durable = truth.writers[WRITERS].durable
    if count not in (truth.nodes + sum(growths[:durable]), truth.nodes + sum(growths)):
        raise harness.Failure("lost", f"{outcome}: {outcome.stdout}")
    running.kill()
    trial.check(database, truth, "a server killed after one that was killed")


def write_until_killed(trial, database, truth):
    """Serves, writes by several clients at once, kills the server. How many puts and changes of the graph were acknowledged; the
    model has them."""
    running = server.Server(trial, database, memory="384MiB")
    if not running.started:
        raise harness.Failure("lost", f"a server does not start: {running.text()}")
    ways = (("whole", "whole", "pieces"), ("whole", "unsynced"), ("whole",))
    writers = [Writer(running, truth, i, harness.seeded(trial.rng.random(), i), ways=ways[i]) for i in range(WRITERS)]
    reader = Reader(running, truth)
    grower = Grower(trial, running, truth, harness.seeded(trial.rng.random(), "grower"))
    compacter = Compacter(trial, running)
    threads = (*writers, reader, grower, compacter)
    for thread in threads:
        thread.start()
    if trial.rng.random() < 0.9:  # however slow the machine is
        server.wait_until(lambda: all(writer.count > 0 or not writer.is_alive() for writer in (*writers, grower)), 20)
    time.sleep(trial.rng.uniform(0, 0.4))
    running.kill()
    for thread in threads:
        thread.join(60)
    for thread in threads:
        if thread.is_alive():
            raise harness.Failure("hangs", "a client of a server that was killed")
        if thread.failure:
            raise harness.Failure("lost", thread.failure)
    return sum(writer.count for writer in writers), grower.count


class Writer(threading.Thread):
    """Puts the same number of rows each time, all with the same number in them, to its own nodes. `ways`: also some that are not
    synced; and in two pieces, which one client can do at a time."""

    ROWS = 8

    def __init__(self, running, truth, number, rng, most=None, ways=("whole",)):
        super().__init__(daemon=True)
        self.running, self.truth, self.number, self.rng, self.most, self.ways = running, truth, number, rng, most, ways
        self.failure = None
        self.count = 0

    def run(self):
        writer = self.truth.writers[self.number]
        # The first nodes always, so that a reader sees by them whether a commit is whole.
        fixed, others = list(writer.nodes[:4]), list(writer.nodes[4:])
        try:
            with server.Client(self.running.socket) as client:
                number = 0
                while self.most is None or number < self.most:
                    number += 1
                    ids = fixed + self.rng.sample(others, self.ROWS - 4)
                    serial = 1000 * (len(writer.changes) + 1) + self.rng.randrange(1000)
                    rows = [model.row_of(self.number + 1, serial, node, self.truth.dim) for node in ids]
                    change = model.Change(ids, rows=rows)
                    way = self.rng.choice(self.ways)
                    self.truth.attempt(change, self.number)
                    try:
                        for frame in self.frames(way, number, change):
                            answer = client.call(frame)
                    except server.Refused as refused:
                        if BUSY not in str(refused):
                            raise
                        self.truth.withdraw(self.number)
                        continue
                    if answer.tag != server.WRITTEN:
                        raise ValueError("no answer to a put")
                    self.truth.acknowledge(self.number, synced=way != "unsynced")
                    self.count += 1
        except server.Gone:
            pass
        except (server.Refused, ValueError) as error:
            self.failure = f"a put: {error}"

    def frames(self, way, number, change):
        dim = self.truth.dim
        if way == "whole":
            return [put_frame(self.ROWS, dim, "piece = 0").make(number, change)]
        if way == "unsynced":
            return [put_frame(self.ROWS, dim, "unsynced = true").make(number, change)]
        half = self.ROWS // 2
        parts = [model.Change(change.ids[i:i + half], rows=change.rows[i:i + half]) for i in (0, half)]
        return [put_frame(half, dim, fields).make(number, part)
                for fields, part in zip(("piece = 1", "piece = 2, last = true"), parts)]


@functools.lru_cache(maxsize=None)
def put_frame(count, dim, fields):
    return server.PutFrame(count, dim, fields)


class Reader(threading.Thread):
    """Looks at the nodes that each commit of a writer has: they are of one commit."""

    def __init__(self, running, truth):
        super().__init__(daemon=True)
        self.running, self.truth, self.failure = running, truth, None

    def run(self):
        groups = [list(writer.nodes[:4]) for writer in self.truth.writers[:WRITERS]]
        begun = [False] * len(groups)
        try:
            with server.Client(self.running.socket) as client:
                while True:
                    for i, ids in enumerate(groups):
                        serials = {row[4:8] for row in server.lookup(client, ids)}
                        authors = len(serials)
                        if authors == 1:
                            begun[i] = True
                        elif begun[i]:
                            self.failure = f"half of a commit is seen at nodes {ids}"
                            return
        except server.Gone:
            pass
        except server.Refused as error:
            self.failure = f"a lookup: {error}"


class Verbs(threading.Thread):
    """Verbs against the server, one after the other, until it is gone."""

    def __init__(self, trial, running):
        super().__init__(daemon=True)
        self.trial, self.running = trial, running
        self.failure = None
        self.count = 0  # of what was acknowledged

    def run(self):
        try:
            while self.running.process.poll() is None and self.step():
                pass
        except harness.Failure as failure:
            self.failure = f"{failure.kind}: {failure}"

    def step(self):
        raise NotImplementedError

    def done(self, *arguments):
        """Whether the verb ended with 0. None: another one was under way, and nothing was done. Without its server it would try to
        connect for a minute: it is killed."""
        process = self.trial.start([self.trial.quarry, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        text = None
        while text is None:
            gone = self.running.process.poll() is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                text = process.communicate(timeout=0.5)[1].decode(errors="replace")
            if gone and text is None:
                harness.kill_group(process)
                return False
        self.trial.note(f"{' '.join(map(str, arguments))}: exit {process.returncode}: {text.strip()}")
        if process.returncode < 0:
            raise harness.Failure("aborts", f"{arguments[0]}: signal {-process.returncode}")
        if process.returncode == harness.DONE or BUSY in text:
            return True if process.returncode == harness.DONE else None
        if not server.wait_until(lambda: self.running.process.poll() is not None, 20):
            raise harness.Failure("other", f"{arguments[0]}: exit {process.returncode}: {text}")
        return False


class Grower(Verbs):
    """Lets the graph grow by `quarry add` and `quarry remove`: the writer behind the others."""

    def __init__(self, trial, running, truth, rng):
        super().__init__(trial, running)
        self.truth, self.rng = truth, rng
        self.state = truth.state.copy()

    def step(self):
        growth = harness.random_growth(self.rng, self.state, lambda nodes: self.truth.next_rows(nodes, WRITERS))
        self.truth.attempt(growth, WRITERS)
        done = self.done("remove" if growth.gone else "add", self.running.address, *self.trial.grow_arguments(growth))
        if done:
            self.truth.acknowledge(WRITERS)
            growth.apply(self.state)
            self.count += 1
        elif done is None:
            self.truth.withdraw(WRITERS)
        return done is not False


class Compacter(Verbs):
    """Folds the graph and the rows that changed, beside all else."""

    def step(self):
        done = self.done("compact", self.running.address)
        time.sleep(0.05)
        return done is not False
