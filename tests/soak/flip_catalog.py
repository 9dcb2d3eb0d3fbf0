"""Damage of the catalog: its log with acknowledged commits in it, after a kill -9, its MANIFEST, its tables, CURRENT and whatever
else proves it. Whatever is damaged, no verb says that all is well, or gives rows, but those that were acknowledged."""

import damage
import databases
import flip_files
import harness
import kill_server
import server


def serve_and_write(trial, database, truth):
    """Acknowledged commits over a server: the model has them."""
    truth.owned_by(1)
    running = server.Server(trial, database)
    if not running.started:
        raise harness.Failure("lost", f"a server does not start: {running.text()}")
    writer = kill_server.Writer(running, truth, 0, harness.seeded(trial.rng.random()), most=trial.rng.randint(1, 8))
    writer.start()
    writer.join(60)
    if writer.failure or writer.is_alive():
        raise harness.Failure("other", f"a writer: {writer.failure or 'does not end'}")
    if trial.rng.random() < 0.15:  # a manifest or two that name the newest of a file, and the one before is gone
        trial.run("train", running.address, *databases.TRAIN[:6], "--epochs", "2", "--torch-threads", "1", "--checkpoint-every", "1",
                  expect=[harness.DONE])
        truth.named |= {f"training/{path.name}" for path in (database / "training").iterdir()}
    return running


def leave_by_kill(trial, database, truth):
    serve_and_write(trial, database, truth).kill()


def leave_closed(trial, database, truth):
    serve_and_write(trial, database, truth).stop()


def leave_by_killed_compaction(trial, database, truth):
    """A table that was just folded into a new file, and the one before may be gone."""
    truth.owned_by(1)
    change = harness.random_change(trial.rng, truth)
    truth.attempt(change)
    # Some tenths of a second, most of which is its end.
    trial.put(database, change, kill_after=trial.rng.uniform(0.03, 0.25), arguments=("--auto-compact", "1%"))


class Catalog(harness.Attack):
    weight = 2
    smoke = 2

    def make(self, trial):
        """(database, model) to damage."""
        database, truth = self.soak.databases.copy(trial)
        leave = leave_by_kill if trial.rng.random() < 0.7 else leave_closed
        leave(trial, database, truth)
        trial.note(f"{truth.acknowledged()} commits: {leave.__name__}")
        return database, truth

    def attack(self, trial, database, truth, paths, ways=damage.WAYS):
        what = "; ".join(f"{path}: {damage.damage(trial.rng, database / path, ways)}" for path in paths)
        trial.note(what)
        found = trial.check_damaged(database, truth, what)
        trial.count("found" if found else "harmless")
        flip_files.use(trial, database, truth, what)


def catalog_files(database, beginning="", end=""):
    return [path for path in damage.files_of(database)
            if path.startswith("catalog/" + beginning) and path.endswith(end) and not path.endswith(("LOCK", "IDENTITY"))]


class FlipLog(Catalog):
    name = "flip-log"
    what = "damage of the catalog's log with acknowledged commits in it, after a kill -9"

    def trial(self, trial):
        database, truth = self.soak.databases.copy(trial)
        if trial.rng.random() < 0.3:
            leave_by_killed_compaction(trial, database, truth)
        logs = catalog_files(database, end=".log")
        if not logs:
            trial.check(database, truth, "a compaction that was killed")  # settles what became of its put
            leave_by_kill(trial, database, truth)
            logs = catalog_files(database, end=".log")
        if not logs:
            raise harness.Failure("other", "a server that was killed left no log with commits in it: this attack does not attack any more")
        self.attack(trial, database, truth, [trial.rng.choice(logs)], ("flip", "flip", "truncate", "zero", "garbage", "remove"))


class FlipManifest(Catalog):
    name = "flip-manifest"
    what = "damage of the catalog's MANIFEST, after a kill and after a clean end"

    def trial(self, trial):
        database, truth = self.make(trial)
        path = trial.rng.choice(catalog_files(database, "MANIFEST"))
        self.attack(trial, database, truth, [path], ("flip", "truncate", "truncate", "zero"))


class DamageCatalog(Catalog):
    name = "damage-catalog"
    what = "damage of one or two files of the catalog, or of what anchors it, then repair"

    def trial(self, trial):
        database, truth = self.make(trial)
        # The anchor, wherever it lies: a file beside the folders.
        files = [path for path in damage.files_of(database) if path.startswith("catalog/") or "/" not in path]
        self.attack(trial, database, truth, trial.rng.sample(files, trial.rng.choice((1, 1, 2))))
