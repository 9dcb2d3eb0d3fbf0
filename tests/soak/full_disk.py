"""Disks that fill and empty: small file systems in memory, filled to some bytes under a verb or a server. A failure is a sentence,
nothing that was acknowledged is lost, and once there is room, writes go on, in a server without a restart."""

import os
import shutil
import subprocess

import harness
import kill_verbs
import server
from harness import DONE, FAILED


class Disk:
    """A file system of its own with so many bytes."""

    def __init__(self, trial, size):
        self.path = trial.folder / "disk"
        self.path.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "quarry-soak", self.path],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            raise harness.Skip(f"no file system can be mounted: {mounted.stderr.strip().splitlines()[0]}")
        trial.exit.callback(subprocess.run, ["umount", "--lazy", self.path], check=False)
        self.filling = self.path / "filling"

    def fill(self, left):
        """Until so many bytes are free."""
        with open(self.filling, "ab") as file:
            free = shutil.disk_usage(self.path).free
            if free > left:
                os.posix_fallocate(file.fileno(), file.tell(), free - left)

    def empty(self):
        self.filling.unlink(missing_ok=True)


def probe(attack):
    """Skip where nothing can be mounted."""
    folder = attack.soak.root / f"mount-{attack.name}"
    trial = harness.Trial(attack.soak, folder, None)
    try:
        Disk(trial, 1 << 20)
    finally:
        trial.close()


class FullDisk(harness.Attack):
    name = "full-disk"
    what = "verbs on a disk that is full, or has some kB left; then there is room again"
    weight = 2

    def prepare(self):
        probe(self)

    def trial(self, trial):
        rng = trial.rng
        disk = Disk(trial, 96 << 20)
        kind = "full" if rng.random() < 0.3 else "plain"
        database, truth = self.soak.databases.copy(trial, kind, disk.path / "db")
        name = rng.choice([name for name in kill_verbs.NAMES[kind] if name != "layout-drop"])
        operation = kill_verbs.make(trial, database, truth, name, disk.path)
        if operation.change is not None:
            truth.attempt(operation.change)
        left = rng.choice((0, rng.randrange(1 << 16), rng.randrange(1 << 20), rng.randrange(40 << 20)))
        disk.fill(left)
        outcome = trial.run(*operation.arguments, expect=(DONE, FAILED))
        if outcome.code == DONE:
            truth.acknowledge()
        elif not outcome.stderr.strip():
            raise harness.Failure("other", f"{outcome}: says nothing")
        when = f"{name} with {left} bytes left: exit {outcome.code}"
        trial.check(database, truth, when)
        disk.empty()
        trial.check(database, truth, f"{when}, and room again")
        for path in operation.cleanup:
            shutil.rmtree(path, ignore_errors=True)
        if operation.change is not None:
            truth.attempt(operation.change)
        again = trial.run(*operation.arguments, expect=(DONE,) if name not in kill_verbs.REFUSED_SOMETIMES else (DONE, FAILED))
        if again.code == DONE:
            truth.acknowledge()
        trial.count("refused" if outcome.code == FAILED else "had room")
        trial.check(database, truth, f"{when}, and again with room")


class FullDiskServer(harness.Attack):
    name = "full-disk-server"
    what = "a server whose disk fills and empties: it reads meanwhile, and writes again without a restart"

    def prepare(self):
        probe(self)

    def trial(self, trial):
        rng = trial.rng
        disk = Disk(trial, rng.choice((4, 8, 24, 64)) << 20)
        database, truth = self.soak.databases.copy(trial, "plain", disk.path / "db")
        if rng.random() < 0.5:
            disk.fill(rng.choice((0, 1 << 12, 1 << 16, 1 << 20)))
        running = server.Server(trial, database)
        if not running.started:  # there is no room for its log
            disk.empty()
            trial.check(database, truth, "a server that found no room")
            return
        for _ in range(rng.randint(1, 3)):
            disk.fill(rng.choice((0, 0, 1 << 12, 1 << 16)))
            for _ in range(rng.randint(2, 12)):
                if not self.put(trial, running, truth):
                    break
            self.look(trial, running, truth)
            disk.empty()
            if not self.put(trial, running, truth):
                raise harness.Failure("other", f"there is room again, and a put is refused until a restart: {trial.last}")
        running.stop()
        trial.check(database, truth, "a disk that was full for a while")

    @staticmethod
    def put(trial, running, truth):
        ids = list(range(truth.nodes)) if trial.rng.random() < 0.5 else sorted(trial.rng.sample(range(truth.nodes), 30))
        change = harness.model.Change(ids, rows=truth.next_rows(ids))
        server.settle(running, truth)
        truth.attempt(change)
        outcome = trial.put(running.address, change, expect=(DONE, FAILED))
        trial.last = outcome
        running.check_alive()
        if outcome.code == DONE:
            truth.acknowledge()
        trial.count("refused puts" if outcome.code == FAILED else "puts")
        return outcome.code == DONE

    @staticmethod
    def look(trial, running, truth):
        """SQL and lookups are of what is there, and need no room."""
        outcome = trial.run("sql", running.address, "--csv", "select count(*) from nodes", expect=(DONE, FAILED))
        if outcome.code != DONE or str(truth.nodes) not in outcome.stdout:
            raise harness.Failure("other", f"reading by SQL while the disk is full: {outcome}")
        server.settle(running, truth)

