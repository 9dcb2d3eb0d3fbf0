"""Few descriptors, threads, bytes of address space or of a file: verbs and servers end with a sentence, or go on; none aborts, none
hangs, and nothing is lost."""

import os
import subprocess

import control_groups
import harness
import kill_verbs
import server
from harness import DONE, FAILED

OTHER_UID = 64321  # nobody's, so that RLIMIT_NPROC counts the threads of a trial alone

READING = ("info", "verify", "stats", "sql")


class LimitVerbs(harness.Attack):
    name = "limit-verbs"
    what = "verbs under RLIMIT_NOFILE, _NPROC (as another user), _AS, _FSIZE and pids.max"
    weight = 2
    smoke = 2

    def prepare(self):
        self.least_bytes = self.find_least_bytes()
        self.kinds = ["nofile", "as", "fsize"]
        other = as_other_user([str(self.soak.quarry), "--version"])
        if os.geteuid() == 0 and subprocess.run(other, capture_output=True, check=False).returncode == 0:
            self.kinds.append("nproc")
        else:
            harness.say(f"{self.name}: without RLIMIT_NPROC: no other user can run {self.soak.quarry}")
        try:
            control_groups.Group("pids", 100).remove()
            self.kinds.append("pids")
        except harness.Skip as skip:
            harness.say(f"{self.name}: without pids.max: {skip}")

    def find_least_bytes(self):
        """Of address space, so that the program is loaded at all."""
        low, high = 1 << 20, 1 << 32
        while high - low > 1 << 20:
            middle = (low + high) // 2
            done = subprocess.run(["prlimit", f"--as={middle}", self.soak.quarry, "--version"], capture_output=True, check=False)
            low, high = (low, middle) if done.returncode == 0 else (middle, high)
        return high

    def trial(self, trial):
        rng = trial.rng
        kind = "full" if rng.random() < 0.4 else "plain"
        home = trial.folder / "mine"
        home.mkdir()
        database, truth = self.soak.databases.copy(trial, kind, home / "db")
        name = rng.choice((*kill_verbs.NAMES[kind], *READING))
        limit = rng.choice(self.kinds)
        prefix, what = self.limit(trial, limit)
        if name in READING:
            statement = ["select count(*) from nodes"] if name == "sql" else []
            operation = kill_verbs.Operation([name, database, *statement])
        else:
            operation = kill_verbs.make(trial, database, truth, name, home)
        if operation.change is not None:
            truth.attempt(operation.change)
        if limit == "nproc":
            give_away(trial)
        outcome = trial.run(*operation.arguments, prefix=prefix, loader_may_fail=True)
        if outcome.code == harness.CORRUPTION:
            raise harness.Failure("other", f"{what}: a sound database is called corrupt: {outcome}")
        if outcome.code != DONE and not outcome.stderr.strip():
            raise harness.Failure("other", f"{what}: {outcome}: says nothing")
        if outcome.code == DONE:
            truth.acknowledge()
        trial.count("done" if outcome.code == DONE else "refused")
        trial.check(database, truth, f"{name} with {what}: exit {outcome.code}")

    def limit(self, trial, limit):
        """(prefix, words) of a limit of this kind, somewhere near what things need."""
        rng = trial.rng
        if limit == "nofile":
            value = rng.randint(6, 64)
        elif limit == "as":
            value = int(self.least_bytes * (1 + rng.random() ** 3 * 20))
        elif limit == "fsize":
            value = rng.choice((0, 4096, 1 << 16, 1 << 18, 1 << 20))
        elif limit == "nproc":
            value = rng.randint(1, 12)
            return [*as_other_user([]), "prlimit", f"--nproc={value}"], f"RLIMIT_NPROC {value}"
        else:
            value = rng.randint(2, 12)
            group = control_groups.Group("pids", value)
            trial.exit.callback(group.remove)
            return group.prefix, f"pids.max {value}"
        return ["prlimit", f"--{limit}={value}"], f"RLIMIT_{limit.upper()} {value}"


def as_other_user(command):
    return ["setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups", *command]


def give_away(trial):
    """The trial's folder and all in it, to the other user; those above are let through."""
    for folder, _, names in os.walk(trial.folder):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.chown(path, OTHER_UID, OTHER_UID)
    for folder in (trial.folder, trial.soak.root, trial.soak.databases.root):
        os.chmod(folder, 0o755)
    os.chmod(trial.soak.databases.source, 0o755)


class LimitServer(harness.Attack):
    name = "limit-server"
    what = "clients that open streams until a server of few threads or descriptors refuses; then it goes on"
    weight = 2

    def prepare(self):
        self.kinds = ["nofile"]
        try:
            control_groups.Group("pids", 100).remove()
            self.kinds.append("pids")
        except harness.Skip as skip:
            harness.say(f"{self.name}: without pids.max: {skip}")

    def trial(self, trial):
        rng = trial.rng
        database, truth = self.soak.databases.copy(trial)
        if rng.choice(self.kinds) == "nofile":
            value = rng.choice((30, 48, 64, 128, 256, 1024))
            prefix, what = ["prlimit", f"--nofile={value}:{value}"], f"RLIMIT_NOFILE {value}"
        else:
            value = rng.choice((20, 41, 64, 100, 200, 400))
            group = control_groups.Group("pids", value)
            trial.exit.callback(group.remove)
            prefix, what = group.prefix, f"pids.max {value}"
        running = server.Server(trial, database, memory="2GiB", prefix=prefix)
        if not running.started:
            trial.note(f"{what}: no server")
            trial.check(database, truth, f"a server with {what}, which did not start")
            return
        clients = []
        threads = running.status("Threads")
        trial.exit.callback(lambda: [client.close() for client in clients])
        try:
            clients.append(server.Client(running.socket))
        except (server.Gone, server.Refused) as error:
            trial.note(f"the first session: {error}")
        opened = self.open_streams(trial, running, clients)
        trial.count("streams", opened)
        running.check_alive()
        # While they are open, a put may be refused. Afterwards none is, nor any reading.
        self.put_beside_streams(trial, running, truth, clients[0] if clients else None)
        for client in clients:
            client.close()
        server.wait_until(lambda: running.process.poll() is not None or running.status("Threads") <= threads + 4, 10)
        # Sessions give their descriptors back a little after their sockets are closed.
        server.wait_until(lambda: running.process.poll() is not None or self.lets_in(running), 10)
        running.check_alive()
        server.settle(running, truth)
        outcome = self.put(trial, running, truth)
        if outcome.code != DONE:
            raise harness.Failure("other", f"all {opened} streams have gone, {what}, and a put is refused: {outcome}")
        outcome = trial.run("sql", running.address, "--csv", "select count(*) from nodes", expect=(DONE, FAILED))
        if outcome.code != DONE and value >= 100:
            raise harness.Failure("other", f"{what}: {outcome}")
        running.stop()
        trial.check(database, truth, f"a server with {what}")

    @staticmethod
    def lets_in(running):
        try:
            with server.Client(running.socket):
                return True
        except (server.Gone, server.Refused):
            return False

    @staticmethod
    def open_streams(trial, running, clients):
        """Sessions of twelve streams each, every one with a pass under way, until 120 are open or three were refused."""
        opened = refused = 0
        while opened < 120 and refused < 3:
            try:
                client = server.Client(running.socket, budget=112 << 20, seconds=4, wait_ms=0)
                clients.append(client)
                for _ in range(12):
                    stream = client.call(server.LIVE_STREAM)
                    number = stream.integer(stream.first(), 0)
                    client.call(f"(startPass = (stream = {number}, seeds = (split = 1), pass = 1))")
                    client.call(f"(nextBatch = {number})")
                    opened += 1
            except (server.Gone, server.Refused) as error:
                trial.note(f"stream {opened}: {error}")
                running.check_alive()
                refused += 1
        return opened

    @staticmethod
    def put_beside_streams(trial, running, truth, client):
        """By a session that was there before them, since there may be no descriptor for another."""
        if client is None:
            return
        ids = list(range(8))
        change = harness.model.Change(ids, rows=truth.next_rows(ids))
        truth.attempt(change)
        try:
            client.call(server.PutFrame(len(ids), truth.dim).make(1, change))
            truth.acknowledge()
        except (server.Gone, server.Refused) as error:
            trial.note(f"a put beside the streams: {error}")
        running.check_alive()

    @staticmethod
    def put(trial, running, truth):
        ids = sorted(trial.rng.sample(range(truth.nodes), 20))
        change = harness.model.Change(ids, rows=truth.next_rows(ids))
        truth.attempt(change)
        outcome = trial.put(running.address, change, expect=(DONE, FAILED))
        running.check_alive()
        if outcome.code == DONE:
            truth.acknowledge()
        return outcome
