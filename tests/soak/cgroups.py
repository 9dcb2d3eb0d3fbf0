"""Memory: verbs and servers in a control group of 1.1 times their budget plus their stated overhead are not killed."""

import array
import json
import os
import shutil
import socket

import control_groups
import databases
import harness
import server
from harness import DONE

MIB = 1 << 20
# What docs/cli.md states beside `--memory`: the catalog's 40 MiB; the rest is code, and page tables. `train` prints its own.
OVERHEAD = 40 * MIB + 24 * MIB


class MemoryGroup(harness.Attack):
    name = "memory-cgroup"
    what = "train, import, layouts, export, verify, put, serve in a memory cgroup of 1.1 times budget plus stated overhead"
    weight = 2
    smoke = 1

    def prepare(self):
        control_groups.Group("memory", 1 << 30).remove()
        self.large = None

    def trial(self, trial):
        rng = trial.rng
        verb = "import" if self.soak.smoke else rng.choice(("train", "import", "layout", "export", "verify", "put", "serve", "sessions"))
        budget = rng.choice((32, 48, 64, 128, 256)) * MIB
        database = trial.folder / "db"
        shutil.copytree(self.graph(trial), database)
        if verb in ("serve", "sessions"):
            getattr(self, verb)(trial, database, budget)
            return
        arguments = {
            "train": ["train", database, "--fanout", "10,5", "--hidden", rng.choice((16, 64)), "--epochs", "1", "--batch-size",
                      rng.choice((256, 1024)), "--threads", "2", "--torch-threads", "1"],
            "import": ["import", trial.folder / "new.db", self.source, "--undirected"],
            "layout": ["layout", "build", database, "--fanout", "10,5", "--batch-size", "512", "--cache", "10%"],
            "export": ["export", database, trial.folder / "out"],
            "verify": ["verify", database],
            "put": ["put", database, "--ids", self.source / "train_idx.npy", "--split", "valid"],
        }[verb]
        if verb != "verify":
            arguments += ["--memory", budget]
        allowed = budget + OVERHEAD
        if verb == "train":
            allowed = self.stated(trial, arguments)
            if allowed is None:
                return
        group = control_groups.Group("memory", int(1.1 * allowed))
        trial.exit.callback(group.remove)
        outcome = trial.run(*arguments, prefix=group.prefix, expect=None, killed_is_fair=True)
        self.judge(trial, group, f"{outcome} ({budget // MIB} MiB, {allowed / MIB:.0f} MiB with overhead)")
        if outcome.code not in (DONE, harness.FAILED):
            raise harness.Failure("other", str(outcome))

    @staticmethod
    def stated(trial, arguments):
        """What `train --dry-run` says that it will take in all; None where the budget is too small for a batch."""
        outcome = trial.run(*arguments, "--dry-run", "--json", expect=(DONE, harness.FAILED))
        if outcome.code != DONE:
            return None
        plan = json.loads(outcome.stdout)
        return plan["memory_budget_bytes"] + plan["memory_overhead_bytes"]

    @staticmethod
    def judge(trial, group, what):
        trial.note(f"peak {group.peak() / MIB:.0f} MiB, {group.killed()} killed")
        if group.killed():
            raise harness.Failure("aborts", f"killed by the limit of its control group: {what}")

    def graph(self, trial):
        """A database of 20,000 nodes with 64 columns, made once."""
        if self.large is None:
            self.source = self.soak.root / "large-source"
            large = self.soak.root / "large.db"
            trial.run("generate", self.source, "--nodes", "20k", "--degree", "10", "--dim", "64", "--classes", "5", "--train-share", "20%",
                      "--seed", self.soak.seed, expect=[0])
            trial.run("import", large, self.source, "--undirected", expect=[0])
            self.large = large
        return self.large

    def serve(self, trial, database, budget):
        """Trainers, SQL and a put over a server in a group."""
        group, running = self.start(trial, database, budget)
        if running is None:
            return
        for _ in range(2):
            trial.run("put", running.address, "--ids", self.source / "train_idx.npy", "--split", trial.rng.choice(("train", "valid")),
                      expect=(DONE, harness.FAILED))
            trial.run("sql", running.address, "select count(*), sum(in_degree), sum(vec_dim(feature)) from nodes join features using (id)",
                      expect=(DONE, harness.FAILED))
            trial.run("train", running.address, *databases.TRAIN[:6], "--epochs", "1", "--torch-threads", "1",
                      expect=(DONE, harness.FAILED))
        self.end(trial, group, running, budget)

    def sessions(self, trial, database, budget):
        """Sessions one after the other, each of which fills what it was granted, and leaves with the descriptors of it."""
        group, running = self.start(trial, database, budget)
        if running is None:
            return
        held = []
        trial.exit.callback(lambda: [os.close(descriptor) for descriptor in held])
        for _ in range(30):
            try:
                fill_session(running, held, budget)
            except (server.Gone, server.Refused, OSError) as error:
                trial.note(f"a session: {error}")
        trial.note(f"{len(held)} descriptors")
        self.end(trial, group, running, budget)

    @staticmethod
    def start(trial, database, budget):
        group = control_groups.Group("memory", int(1.1 * (budget + OVERHEAD)))
        trial.exit.callback(group.remove)
        running = server.Server(trial, database, memory=str(budget), prefix=group.prefix)
        return group, running if running.started else None

    def end(self, trial, group, running, budget):
        self.judge(trial, group, f"a server of {budget // MIB} MiB: {running.text()}")
        running.stop()
        self.judge(trial, group, f"a server of {budget // MIB} MiB that ends: {running.text()}")


def fill_session(running, held, budget):
    """Maps nothing: that the server wrote there is enough. Puts the descriptors that come into `held`."""
    hello = server.HELLO.replace(f"capabilities = {server.ALL}", f"capabilities = {server.ALL | server.SHARED}")
    client = server.Client(running.socket, budget=budget, endpoint=SocketOfDescriptors(held), hello=hello)
    try:
        ids = tuple(range(16384))  # 4 MiB of rows
        for _ in range(max(1, budget // (4 * MIB))):
            client.send(server.lookup_frame(ids))
        client.socket.settimeout(0.3)
        while True:
            client.receive()
    except server.Gone:  # nothing comes any more, since leases are held
        pass
    finally:
        client.close()


class SocketOfDescriptors(socket.socket):
    """Keeps the descriptors that come."""

    def __init__(self, held):
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self.descriptors = held

    def recv(self, size, flags=0):
        data, ancillary, _, _ = self.recvmsg(size, socket.CMSG_SPACE(16 * 4), flags)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(content[:len(content) - len(content) % found.itemsize])
                self.descriptors.extend(found)
        return data
