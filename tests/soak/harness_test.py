#!/usr/bin/env python3
"""The oracle of the soak sees what it is there to see: each kind of failure is planted, and must be called by its name."""

import contextlib
import io
import pathlib
import stat
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest

import damage
import harness
import model
import server
import soak


def small_model(writers=1):
    rows = [model.row_of(0, 0, node, 4) for node in range(6)]
    return model.Model(model.State(rows, [0] * 6, ["none"] * 6, {(0, 1), (2, 5)}), writers)


def state_of(truth):
    return truth.state.copy()


class ModelTest(unittest.TestCase):
    def test_an_acknowledged_change_must_be_there(self):
        truth = small_model()
        before = state_of(truth)
        truth.attempt(model.Change([1, 2], rows=truth.next_rows([1, 2])))
        truth.acknowledge()
        self.assertIn("writer 0: 2 nodes", truth.copy().difference(before))

    def test_an_open_change_is_there_or_not_but_never_in_part(self):
        change = model.Change([1, 2], labels=[3, 4], split="train")
        for nodes, agrees in (((), True), ((1, 2), True), ((1,), False), ((2,), False)):
            truth = small_model()
            found = state_of(truth)
            truth.attempt(change)
            for i, node in enumerate(change.ids):
                if node in nodes:
                    found.labels[node], found.splits[node] = change.labels[i], "train"
            self.assertEqual(truth.difference(found) is None, agrees, nodes)

    def test_what_was_not_synced_is_lost_only_from_the_end(self):
        truth = small_model()
        for label, synced in ((1, True), (2, False), (3, False)):
            truth.attempt(model.Change([label], labels=[label]))
            truth.acknowledge(synced=synced)
        for found, agrees in (((1, 2, 3), True), ((1, 2), True), ((1,), True), ((), False), ((1, 3), False), ((2, 3), False)):
            state = state_of(truth)
            for label in found:
                state.labels[label] = label
            self.assertEqual(truth.copy().difference(state) is None, agrees, found)

    def test_what_was_found_of_an_open_change_stays(self):
        truth = small_model()
        before = state_of(truth)
        truth.attempt(model.Change([1], labels=[3]))
        found = state_of(truth)
        found.labels[1] = 3
        self.assertIsNone(truth.difference(found))
        self.assertIsNotNone(truth.difference(before))

    def test_a_change_that_nobody_made_is_seen(self):
        truth = small_model()
        found = state_of(truth)
        found.splits[5] = "test"
        self.assertIn("node 5 first", truth.difference(found))

    def test_writers_are_judged_apart(self):
        truth = small_model(2)
        for writer in (0, 1):
            ids = list(truth.writers[writer].nodes)[:1]
            truth.attempt(model.Change(ids, labels=[2]), writer)
        truth.acknowledge(1)
        found = state_of(truth)
        found.labels[1] = 2
        self.assertIsNone(truth.copy().difference(found))
        found.labels[0], found.labels[1] = 2, 0
        self.assertIn("writer 1", truth.copy().difference(found))

    def test_a_graph_grows_whole_or_not_at_all(self):
        """Each part of an acknowledged growth, and of one that is open, is missed; what nobody added is seen."""
        growth = model.Growth(6, [model.row_of(1, 1, node, 4) for node in (6, 7)], [3, 4], "train", edges=[(7, 6), (0, 6)])
        whole = state_of(small_model())
        growth.apply(whole)
        self.assertEqual((len(whole.rows), whole.edges), (8, {(0, 1), (2, 5), (6, 7), (0, 6)}))
        for synced in (True, False):
            truth = small_model()
            truth.attempt(growth)
            if synced:
                truth.acknowledge()
            self.assertEqual(truth.copy().difference(state_of(truth)) is None, not synced)
            for spoil, text in ((lambda state: state.rows.pop(), "node 7 first: nothing instead"),
                                (lambda state: state.labels.__setitem__(6, 0), "node 6 first"),
                                (lambda state: state.splits.__setitem__(7, "none"), "node 7 first"),
                                (lambda state: state.edges.remove((0, 6)), "1 edges are missing"),
                                (lambda state: state.edges.add((3, 3)), "1 are there that should not be: (3, 3)")):
                found = whole.copy()
                spoil(found)
                self.assertIsNotNone(truth.copy().difference(found), text)
                if synced:
                    self.assertIn(text, truth.copy().difference(found))
            self.assertIsNone(truth.difference(whole.copy()))
            self.assertEqual((truth.nodes, list(truth.writers[0].nodes)), (8, list(range(8))))
            truth.attempt(model.Growth(8, gone=[(1, 0)]))
            truth.acknowledge()
            self.assertIn("(0, 1) first", truth.copy().difference(whole.copy()))

    def test_who_grows_is_judged_apart_from_who_writes(self):
        truth = small_model()
        truth.owned_by(2, grower=True)
        truth.attempt(model.Growth(6, [model.row_of(1, 1, 6, 4)], [2]), 2)
        truth.attempt(model.Change([0], labels=[4]), 0)
        truth.acknowledge(0)
        found = state_of(truth)
        found.labels[0] = 4
        self.assertIsNone(truth.copy().difference(found))
        truth.acknowledge(2)
        self.assertIn("writer 2: 1 nodes are not as acknowledged, node 6 first", truth.copy().difference(found))
        truth.writers[2].changes[0].apply(found)
        self.assertIsNone(truth.difference(found))
        self.assertEqual([list(writer.nodes) for writer in truth.writers], [[0, 2, 4], [1, 3, 5], [6]])
        found.rows.append(found.rows[0])
        self.assertEqual(truth.difference(found), "8 nodes instead of 7")

    def test_arrays_come_back_as_they_were_written(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "a.npy"
            model.write_npy(file, "<i8", (2, 3), struct.pack("<6q", *range(6)))
            self.assertEqual(model.read_npy(file), ("<i8", (2, 3), struct.pack("<6q", *range(6))))
            file.write_bytes(file.read_bytes()[:-1])
            with self.assertRaises(ValueError):
                model.read_npy(file)


class TrialTest(unittest.TestCase):
    """With shell scripts in the place of quarry."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.database = self.root / "db"
        self.database.mkdir()
        (self.database / "rows").write_text("rows")
        self.trials = 0

    def tearDown(self):
        self.folder.cleanup()

    def trial_of(self, script):
        program = self.root / "quarry"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.trials += 1
        trial = harness.Trial(types.SimpleNamespace(quarry=program), self.root / f"trial-{self.trials}", harness.seeded(1))
        self.addCleanup(trial.close)
        return trial

    def expect(self, kind, text, call, *arguments, **options):
        with self.assertRaises(harness.Failure) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.kind, kind)
        self.assertIn(text, str(caught.exception))

    def exporting(self, truth):
        """A script that exports this state."""
        files = self.root / "files"
        files.mkdir(exist_ok=True)
        state = truth.state
        model.write_npy(files / "features.npy", "<f4", (truth.nodes, truth.dim), b"".join(state.rows))
        model.write_ids(files / "labels.npy", state.labels)
        sources, destinations = zip(*sorted(state.edges))
        model.write_npy(files / "edges.npy", "<i8", (2, len(sources)), struct.pack(f"<{2 * len(sources)}q", *sources, *destinations))
        return f"""[ "$1" = export ] && cp -r {files} "$3"
            [ "$1" = info ] && echo '{{"trainings": [{{"file": "training/2.qts"}}], "embeddings": []}}'
            exit 0"""

    def test_a_verb_that_aborts_or_hangs_is_called_so(self):
        self.expect("aborts", "signal 6", self.trial_of("kill -ABRT $$").run, "info")
        self.expect("aborts", "exit 134", self.trial_of("sh -c 'kill -ABRT $$'; exit $?").run, "info")
        self.expect("hangs", "after 0.2 s", self.trial_of("sleep 30").run, "info", seconds=0.2)
        self.expect("other", "no such exit code", self.trial_of("exit 4").run, "info")
        self.expect("other", "expected 0", self.trial_of("exit 1").run, "info", expect=[0])
        self.assertTrue(self.trial_of("sleep 30").run("put", kill_after=0.05).killed)

    def test_a_verb_that_reads_changes_nothing(self):
        for script, text in ((f"rm {self.database}/rows", "removed rows"), (f"echo >{self.database}/new", "made new"),
                             (f"echo >{self.database}/rows", "wrote rows")):
            (self.database / "rows").write_text("rows")
            (self.database / "new").unlink(missing_ok=True)
            self.expect("other", text, self.trial_of(script).read, "info", database=self.database)
        self.trial_of(f"echo 12 >{self.database}/LOCK").read("info", database=self.database)

    def test_rows_that_are_older_than_acknowledged_are_silent_or_lost(self):
        truth = small_model()
        old = self.exporting(truth)
        truth.attempt(model.Change([1], rows=truth.next_rows([1])))
        truth.acknowledge()
        self.expect("silent", "node 1", self.trial_of(old).check_damaged, self.database, truth, "a flip")
        self.expect("lost", "node 1", self.trial_of(old).check, self.database, truth, "a kill")

    def test_damage_that_is_found_is_no_failure_nor_is_damage_that_does_no_harm(self):
        truth = small_model()
        self.assertTrue(self.trial_of("exit 3").check_damaged(self.database, truth, "a flip"))
        truth.named = {"training/2.qts"}
        self.assertFalse(self.trial_of(self.exporting(truth)).check_damaged(self.database, truth, "a flip"))
        self.expect("lost", "exit 3", self.trial_of("exit 3").check, self.database, truth, "a kill")

    def test_a_training_that_is_not_named_any_more_is_silent(self):
        truth = small_model()
        truth.named = {"training/3.qts"}
        self.expect("silent", "training/2.qts", self.trial_of(self.exporting(truth)).check_damaged, self.database, truth, "a flip")

    def test_a_sound_database_that_cannot_be_read_is_a_failure(self):
        self.expect("other", "says sound", self.trial_of('[ "$1" = verify ]').check_damaged, self.database, small_model(), "a flip")

    def test_damage_is_damage(self):
        for seed in range(200):
            file = self.root / "file"
            file.write_bytes(b"a" * 700 + bytes(700))
            text = damage.damage(harness.seeded(seed), file)
            self.assertTrue(not file.exists() or file.read_bytes() != b"a" * 700 + bytes(700), text)


class SoakTest(unittest.TestCase):
    def test_a_quarry_that_fails_at_everything_ends_with_exit_code_1(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(soak.__file__)
            command = [sys.executable, script, "--smoke", "--only", "flip-log", "--quarry", "/bin/false", "--keep", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stdout, r"\| flip-log \| .* \| 2 \| 0 \| 0 \| 0 \| 0 \| 2 \|")

    def test_failures_are_counted_and_kept(self):
        class Bad(harness.Attack):
            name, what = "bad", "fails"

            def trial(self, trial):
                (trial.folder / "file").write_text("x")
                raise harness.Failure("silent", "a row is old")

        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "work").mkdir()
            arguments = types.SimpleNamespace(seed=7, quarry=root / "quarry", bin=None, keep=root / "kept", smoke=False, only=["none"])
            run = soak.Soak(arguments, root / "work")
            run.tallies = [soak.Tally(Bad(run))]
            with contextlib.redirect_stderr(io.StringIO()) as told:
                run.run_trials(run.tallies[0], range(soak.KEPT_MAX + 2))
            self.assertIn("./dev soak --only bad --seed 7 --trial 0", told.getvalue())
            self.assertEqual(run.tallies[0].failures["silent"], soak.KEPT_MAX + 2)
            self.assertIn("| bad | fails | {0} | 0 | {0} | 0 | 0 | 0 |".format(soak.KEPT_MAX + 2), run.table())
            self.assertEqual(len(list((root / "kept").iterdir())), soak.KEPT_MAX)
            self.assertTrue((root / "kept/bad-7-0/file").exists())
            self.assertIn("FAILED, silent", (root / "kept/bad-7-0/log.txt").read_text())
            self.assertEqual(list((root / "work").glob("bad-*")), [])

    def test_every_attack_has_its_turn_in_a_short_time(self):
        class Slow(harness.Attack):
            def trial(self, trial):
                time.sleep(0.05)

        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            arguments = types.SimpleNamespace(seed=7, quarry=root / "quarry", bin=None, keep=root, smoke=False, only=["none"])
            run = soak.Soak(arguments, root)
            for number in range(20):
                attack = Slow(run)
                attack.name = f"slow{number}"
                run.tallies.append(soak.Tally(attack))
            run.run_for(0.5)
            self.assertTrue(all(tally.runs > 0 for tally in run.tallies), run.table())


class MessageTest(unittest.TestCase):
    def test_answers_are_read_as_capnp_writes_them(self):
        text = '(failure = (code = 8, message = "there are 5 MiB"))'
        message = server.Message(server.encode(text, "Response")[16:])
        self.assertEqual((message.tag, message.failure()), (server.FAILURE, "code 8: there are 5 MiB"))
        message = server.Message(server.encode("(written = 77)", "Response")[16:])
        self.assertEqual((message.tag, message.value()), (server.WRITTEN, 77))

    def test_a_put_is_the_one_that_its_text_says(self):
        change = model.Change([3, 5], rows=[model.row_of(1, 2, node, 4) for node in (3, 5)])
        block = server.data(struct.pack("<2Q", 3, 5) + b"".join(change.rows))
        text = f'(put = (number = 9, tables = [(table = "feature", rows = 2, rowBytes = 16, block = (inline = {block}))]))'
        self.assertEqual(server.PutFrame(2, 4).make(9, change), server.encode(text))
        text = text.replace("number = 9,", "number = 9, piece = 2, last = true, unsynced = true,")
        self.assertEqual(server.PutFrame(2, 4, "piece = 2, last = true, unsynced = true").make(9, change), server.encode(text))


if __name__ == "__main__":
    unittest.main()
