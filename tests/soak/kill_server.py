"""SIGKILL of a server under writers and a reader: what was acknowledged is there, each commit whole."""

import functools
import threading
import time

import harness
import model
import server

WRITERS = 3


class KillServer(harness.Attack):
    name = "kill-server"
    what = "SIGKILL of a server under three writers and a reader of whole commits"
    weight = 2

    def trial(self, trial):
        database, truth = self.soak.databases.copy(trial)
        truth.owned_by(WRITERS)
        trial.count("runs", 0)
        for _ in range(trial.rng.randint(1, 4)):
            count = write_until_killed(trial, database, truth)
            trial.count("acknowledged puts", count)
            trial.count("runs")
            if trial.rng.random() < 0.7:  # otherwise the next server begins with what this one left
                trial.check(database, truth, f"a server killed after {count} puts")
            else:
                settle_by_reading(trial, database, truth)


def settle_by_reading(trial, database, truth):
    """Over a server, which is the first to open what another left."""
    running = server.Server(trial, database)
    if not running.started:
        raise harness.Failure("lost", f"the next server does not start: {running.text()}")
    outcome = trial.run("sql", running.address, "--json", "select count(*) as n from nodes", expect=[0])
    if f'"n": {truth.nodes}' not in outcome.stdout.replace('"n":', '"n": ').replace("  ", " "):
        raise harness.Failure("lost", f"{outcome}: {outcome.stdout}")
    running.kill()
    trial.check(database, truth, "a server killed after one that was killed")


def write_until_killed(trial, database, truth):
    """Serves, writes by several clients at once, kills the server. How many puts were acknowledged; the model has them."""
    running = server.Server(trial, database)
    if not running.started:
        raise harness.Failure("lost", f"a server does not start: {running.text()}")
    ways = (("whole", "whole", "pieces"), ("whole", "unsynced"), ("whole",))
    writers = [Writer(running, truth, i, harness.seeded(trial.rng.random(), i), ways=ways[i]) for i in range(WRITERS)]
    reader = Reader(running, truth)
    for thread in (*writers, reader):
        thread.start()
    if trial.rng.random() < 0.9:  # however slow the machine is
        server.wait_until(lambda: all(writer.count > 0 or not writer.is_alive() for writer in writers), 20)
    time.sleep(trial.rng.uniform(0, 0.4))
    running.kill()
    for thread in (*writers, reader):
        thread.join(60)
        if thread.is_alive():
            raise harness.Failure("hangs", "a client of a server that was killed")
        if thread.failure:
            raise harness.Failure("lost", thread.failure)
    return sum(writer.count for writer in writers)


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
                    for frame in self.frames(way, number, change):
                        answer = client.call(frame)
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
        groups = [list(writer.nodes[:4]) for writer in self.truth.writers]
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
