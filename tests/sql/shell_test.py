"""The shell of `quarry sql` on a terminal, on a folder and on a server.

    shell_test.py QUARRY FOLDER

Makes a small database in FOLDER, and types into a pseudo-terminal.
"""
import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

PATIENCE_SECONDS = 60


class Shell:
    def __init__(self, command, home):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(HOME=home, TERM="xterm")
            os.execv(command[0], command)
        self.text = ""  # all that was printed
        self.seen = 0

    def read(self, seconds):
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            return False
        # Without what steers the terminal.
        self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", data.decode("utf-8", "replace"))
        return bool(data)

    def expect(self, wanted):
        """What was printed since the last call, up to and with `wanted`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while wanted not in self.text[self.seen:]:
            if time.monotonic() > deadline:
                raise AssertionError(f"no {wanted!r} in {self.text[self.seen:]!r}")
            self.read(0.1)
        end = self.text.index(wanted, self.seen) + len(wanted)
        found, self.seen = self.text[self.seen:end], end
        return found

    def type(self, text):
        os.write(self.terminal, text.encode())

    def say(self, line):
        """Types a line; what was printed until the next prompt."""
        self.type(line + "\n")
        return self.expect("quarry> ")

    def end(self, by=""):
        """Its exit code. `by` is typed until it ends: what comes between the prompt and the line editor's mode of the
        terminal is the terminal's, which turns a Ctrl-D into a character of the line."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        again = 0
        while time.monotonic() < deadline:
            if by and time.monotonic() > again:
                again = time.monotonic() + 0.5
                with contextlib.suppress(OSError):  # it has ended
                    self.type(by)
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it does not end: {self.text[self.seen:][-200:]!r}")


def wait_until_busy(pid):
    """Until the process `pid` has computed for some ticks of its clock: a statement runs in it."""
    def ticks():
        return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    deadline = time.monotonic() + PATIENCE_SECONDS
    before = ticks()
    while ticks() < before + 10:
        check(time.monotonic() < deadline, f"process {pid} runs no statement")
        time.sleep(0.01)


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def run_session(quarry, database, folder, server=None):
    """`server`: the process that runs the statements, where the shell itself does not."""
    shell = Shell([quarry, "sql", database], folder)
    shell.expect("quarry> ")
    out = shell.say("SELECT count(*) FROM nodes;")
    check("│      200 │" in out, out)

    shell.type("SELECT id\n")
    shell.expect("   ...> ")
    shell.type("  FROM nodes\n")
    shell.expect("   ...> ")
    out = shell.say(" WHERE id = 7;")
    check("│  7 │" in out, out)

    out = shell.say("SELECT nobody FROM nodes;")
    check("no such column: nobody" in out, out)
    check("embedding_rows" in shell.say(".tables"), ".tables")
    check("nodes(id INTEGER, name TEXT" in shell.say(".schema nodes"), ".schema")
    check(".timer on|off" in shell.say(".help"), ".help")
    check("no such command: .nothing" in shell.say(".nothing"), ".nothing")
    shell.say(".mode csv")
    out = shell.say("SELECT id, dim FROM features WHERE id < 2;")
    check("id,dim\n0,4\n1,4\n" in out, out)
    shell.say(".timer on")
    check(re.search(r"\n\d+\.\d+ s\n", shell.say("SELECT 1;")), "timer")
    shell.say(".timer off")

    # Completion: one name is filled in, several are listed.
    shell.type("SELECT sum(in_de\t")
    shell.expect("in_degree")
    out = shell.say(") FROM edges\t LIMIT 1;")
    check("no such column: in_degree" in out, out)
    shell.type("SELECT ti\t\t")
    shell.expect("timestamp")
    shell.type("\x03")
    shell.expect("^C")
    shell.expect("quarry> ")

    # Ctrl-C ends a statement, and the shell goes on.
    shell.type("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n;\n")
    wait_until_busy(server.pid if server else shell.pid)
    shell.type("\x03")
    check("interrupted" in shell.expect("quarry> "), "interrupted")
    check("200" in shell.say("SELECT count(*) FROM nodes;"), "after an interrupt")

    check(shell.end(by="\x15\x04") == 0, "exit code")
    history = pathlib.Path(folder, ".quarry_history").read_text()
    check("nobody" in history, history)

    # The last line of the session before, and .quit.
    shell = Shell([quarry, "sql", database, "--csv"], folder)
    shell.expect("quarry> ")
    out = shell.say("\x1b[A")
    check("count(*)\n200\n" in out, out)
    shell.type(".quit\n")
    check(shell.end() == 0, "exit code")

    # A script from a pipe is no shell, and ends at its first error.
    script = subprocess.run([quarry, "sql", database, "--csv"], input="SELECT 1;\nSELEKT 2;\nSELECT 3;\n",
                            capture_output=True, text=True, env={**os.environ, "HOME": folder})
    check(script.returncode == 1 and script.stdout == "1\n1\n" and "line 2" in script.stderr, script)


def main(quarry, folder):
    shutil.rmtree(folder, ignore_errors=True)
    pathlib.Path(folder).mkdir(parents=True)
    source, database = f"{folder}/source", f"{folder}/db"
    for command in (["generate", source, "--nodes", "200", "--degree", "4", "--dim", "4"],
                    ["import", database, source]):
        subprocess.run([quarry, *command], check=True, capture_output=True)

    run_session(quarry, database, folder)
    # The same on a server.
    server = subprocess.Popen([quarry, "serve", database, "--socket", f"{folder}/run/s", "--json"],
                              stdout=subprocess.PIPE)
    try:
        check(server.stdout.readline() != b"", "the server does not listen")
        run_session(quarry, f"unix:{folder}/run/s", folder, server)
    finally:
        server.terminate()
    check(server.wait() == 0, "the server's exit code")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
