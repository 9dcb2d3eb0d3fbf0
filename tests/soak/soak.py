#!/usr/bin/env python3
"""Attacks a build of Quarry for some minutes, and counts what it does not withstand (`./dev soak`).

Each kind of attack takes its turn, in slices, until the time is over. A trial is a function of seed, attack and number, as far
as instants allow: what failed runs again by the command that is printed with it. Its folder is kept, with a log of all verbs.
The table of counts, which ends it, is Markdown, for docs/testing.md. Exit code 1 when anything failed.
"""

import argparse
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import databases
import harness
from harness import say

import cgroups
import crash_tests
import dying_clients
import exhaustion
import flip_catalog
import flip_files
import full_disk
import fuzz_targets
import hostile_frames
import kill_server
import kill_verbs

ATTACKS = (kill_verbs.KillVerbs, kill_server.KillServer, crash_tests.PowerCuts, crash_tests.Crashes, crash_tests.Faults,
           flip_files.FlipFiles, flip_catalog.FlipLog, flip_catalog.FlipManifest, flip_catalog.DamageCatalog,
           full_disk.FullDisk, full_disk.FullDiskServer, exhaustion.LimitVerbs, exhaustion.LimitServer,
           hostile_frames.HostileFrames, dying_clients.DyingClients, crash_tests.ClientKills, fuzz_targets.Fuzz,
           cgroups.MemoryGroup)

SLICE_SECONDS = 20
KEPT_MAX = 3  # failures of a kind of an attack that are told and kept; more of them are counted


class Tally:
    """An attack's row of the table, and its share of the time."""

    def __init__(self, attack):
        self.attack = attack
        self.runs = 0
        self.next = 0  # trial
        self.seconds = 0.0
        self.failures = dict.fromkeys(harness.KINDS, 0)
        self.found = {}
        self.skipped = None

    def failed(self):
        return sum(self.failures.values())

    def cells(self):
        what = self.attack.what
        if self.found:
            what += ": " + ", ".join(f"{times:,} {word}" for word, times in sorted(self.found.items()))
        if self.skipped:
            what += f" (skipped: {self.skipped})"
        return [self.attack.name, what, f"{self.runs:,}", *(f"{self.failures[kind]:,}" for kind in harness.KINDS)]


class Soak:
    def __init__(self, arguments, root):
        self.seed = arguments.seed
        self.quarry = arguments.quarry.resolve()
        self.bin = (arguments.bin or arguments.quarry.parent).resolve()
        self.repository = pathlib.Path(__file__).resolve().parents[2]
        self.root = root
        self.keep = arguments.keep
        self.smoke = arguments.smoke
        self.databases = databases.Databases(root, self.quarry, self.seed)
        self.tallies = [Tally(attack(self)) for attack in ATTACKS
                        if not arguments.only or attack.name in arguments.only]
        self.began = time.monotonic()

    def run_trial(self, tally, number):
        attack = tally.attack
        folder = self.root / f"{attack.name}-{number}"
        trial = harness.Trial(self, folder, harness.seeded(self.seed, attack.name, number))
        if trial.rng.random() < 0.25:
            trial.environment["QUARRY_IO"] = "threads"
        begin = time.monotonic()
        try:
            attack.trial(trial)
        except harness.Skip:
            raise
        except Exception as caught:  # one of the attack's own is a failure of the soak, which goes on
            failure = caught if isinstance(caught, harness.Failure) else harness.Failure("other", traceback.format_exc())
            trial.note(f"FAILED, {failure.kind}: {failure}")
            tally.failures[failure.kind] += 1
            if tally.failures[failure.kind] <= KEPT_MAX:
                self.tell(tally, number, trial, failure)
        finally:
            trial.close()
            shutil.rmtree(folder, ignore_errors=True)
            tally.seconds += time.monotonic() - begin
        if self.smoke:
            say(f"{attack.name} {number}: {time.monotonic() - begin:.1f} s")
        for word, times in trial.found.items():
            tally.found[word] = tally.found.get(word, 0) + times
        # A trial counts as one run, or as what it counts as runs.
        tally.runs += tally.found.pop("runs", 1)

    def tell(self, tally, number, trial, failure):
        """Says how it can be seen again, and keeps the trial's folder."""
        say(f"{tally.attack.name} {number}: {failure.kind}: {failure}")
        say(f"  again by: ./dev soak --only {tally.attack.name} --seed {self.seed} --trial {number}")
        to = self.keep / f"{tally.attack.name}-{self.seed}-{number}"
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(trial.folder, to, symlinks=True, ignore=left_out)
        say(f"  kept in {to}")

    def prepare(self):
        for tally in self.tallies:
            try:
                tally.attack.prepare()
            except harness.Skip as skip:
                tally.skipped = str(skip)
                say(f"{tally.attack.name}: skipped: {skip}")

    def run_trials(self, tally, numbers):
        for number in numbers:
            if tally.skipped:
                return
            try:
                self.run_trial(tally, number)
            except harness.Skip as skip:
                tally.skipped = str(skip)
                say(f"{tally.attack.name}: skipped: {skip}")
            tally.next = number + 1

    def run_for(self, seconds):
        """Slices go to whoever has had the least for his weight, so that long trials are paid back; each attack has one at least,
        whatever the time."""
        end = self.began + seconds
        slice_seconds = min(SLICE_SECONDS, seconds / max(1, 2 * len(self.tallies)))
        while True:
            able = [tally for tally in self.tallies if not tally.skipped]
            if time.monotonic() > end:
                able = [tally for tally in able if tally.next == 0]
            if not able:
                return
            tally = min(able, key=lambda t: t.seconds / t.attack.weight)
            slice_end = min(end, time.monotonic() + slice_seconds)
            self.run_trials(tally, [tally.next])
            while not tally.skipped and time.monotonic() < slice_end:
                self.run_trials(tally, [tally.next])

    def close(self):
        for tally in self.tallies:
            tally.attack.close()

    def table(self):
        minutes = (time.monotonic() - self.began) / 60
        described = subprocess.run(["git", "-C", self.repository, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
        version = described.stdout.strip() or "no commit"
        lines = [f"seed {self.seed}, {minutes:.1f} minutes, {version}, {machine()}", ""]
        lines.append("| attack | what | runs | " + " | ".join(harness.KINDS) + " |")
        lines.append("| --- | --- | ---: |" + " ---: |" * len(harness.KINDS))
        lines += ["| " + " | ".join(tally.cells()) + " |" for tally in self.tallies]
        sums = [sum(t.failures[kind] for t in self.tallies) for kind in harness.KINDS]
        lines.append(f"| **all** | | **{sum(t.runs for t in self.tallies):,}** | " + " | ".join(f"**{n:,}**" for n in sums) + " |")
        return "\n".join(lines)


def left_out(folder, names):
    """Of a failure's folder: sockets, and what fills a disk."""
    return [name for name in names if name == "filling" or not (os.path.isfile(f"{folder}/{name}") or os.path.isdir(f"{folder}/{name}"))]


def machine():
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(os.sched_getaffinity(0))} processors, {memory:.0f} GiB, Linux {platform.release()}"


def parse():
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float, nargs="?", default=10, help="how long (default 10)")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="of all trials (default: the clock)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="these attacks, separated by commas")
    parser.add_argument("--trial", type=int, help="this trial of each attack alone, as often as it takes: once")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("build/soak"), help="where failures are kept")
    parser.add_argument("--quarry", type=pathlib.Path, default=pathlib.Path("build/release/bin/quarry"))
    parser.add_argument("--bin", type=pathlib.Path, help="where the test binaries are (default: beside quarry)")
    parser.add_argument("--smoke", action="store_true", help="few and small trials of each attack, whatever the time")
    parser.add_argument("--list", action="store_true", help="the attacks, and what they do")
    arguments = parser.parse_args()
    if arguments.list:
        for attack in ATTACKS:
            print(f"{attack.name:<16} {attack.what}")
        sys.exit(0)
    names = {attack.name for attack in ATTACKS}
    for name in arguments.only or ():
        if name not in names:
            parser.error(f"there is no attack {name!r}; there are {', '.join(sorted(names))}")
    if not arguments.quarry.exists():
        parser.error(f"{arguments.quarry}: not there; ./dev build release quarry")
    return arguments


def main():
    arguments = parse()
    say(f"seed {arguments.seed}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, which cleans up and prints the table
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="quarry-soak-", ignore_cleanup_errors=True) as root:
        soak = Soak(arguments, pathlib.Path(root))
        try:
            soak.prepare()
            if arguments.trial is not None:
                for tally in soak.tallies:
                    soak.run_trials(tally, [arguments.trial])
            elif arguments.smoke:
                for tally in soak.tallies:
                    soak.run_trials(tally, range(tally.attack.smoke))
            else:
                soak.run_for(arguments.minutes * 60)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            soak.close()
        print(soak.table())
    if any(tally.failed() for tally in soak.tallies):
        sys.exit(1)
    sys.exit(130 if interrupted else 0)


if __name__ == "__main__":
    main()
