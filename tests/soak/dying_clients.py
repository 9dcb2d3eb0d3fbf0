"""Clients that die in the middle of everything, beside some that do nothing wrong: the server goes on, gives right answers, and
has afterwards the descriptors and threads that it had before."""

import signal
import time

import databases
import harness
import model
import server
from harness import DONE

SQL_SORT = "select a.src, b.dst from edges a, edges b order by a.dst + b.src"


class DyingClients(harness.Attack):
    name = "dying-clients"
    what = "clients that are killed in the middle of puts, SQL, training, streams, pieces, frames"
    weight = 2

    def trial(self, trial):
        rng = trial.rng
        database, truth = self.soak.databases.copy(trial, "full")
        # Nodes of the first writer nobody changes: these the good clients look at.
        writers = 6
        truth.owned_by(writers)
        running = server.Server(trial, database, memory="256MiB")
        self.do_all_once(trial, running, truth)
        # A thread that had nothing to do yet makes its ring when it has.
        descriptors, threads = running.descriptors() + 4, running.threads()
        good = [server.GoodClient(running, truth, truth.writers[0].nodes) for _ in range(2)]
        for client in good:
            client.start()
        trial.count("runs", 0)
        for number in range(1, writers):
            self.put(trial, running, truth, number)
        deaths = [self.sql, self.train, self.streams, self.pieces, self.half_frame, self.greeted, self.top]
        for _ in range(2 if self.soak.smoke else rng.randint(4, 10)):
            rng.choice(deaths)(trial, running)
            trial.count("runs")
            running.check_alive()
        for client in good:
            client.finish()
        trial.count("right answers", sum(client.answers for client in good))
        server.settle(running, truth)
        if not server.wait_until(lambda: running.descriptors() <= descriptors and running.threads() <= threads, 60):
            raise harness.Failure("other", f"after all clients have gone the server has {running.descriptors()} descriptors and "
                                  f"the threads {running.threads()}; {descriptors} and {threads} before")
        self.whole_budget(running)
        running.stop()
        trial.check(database, truth, "clients that died")

    def do_all_once(self, trial, running, truth):
        """So that the server has opened what it keeps open."""
        change = harness.random_change(trial.rng, truth, truth.writers[1].nodes, 1)
        truth.attempt(change, 1)
        trial.put(running.address, change)
        truth.acknowledge(1)
        trial.run("sql", running.address, "select sum(vec_dim(feature)) from features", expect=[DONE])
        ways = ((), ("--layout", "default"), ("--checkpoint-every", "1", "--overwrite"))
        for how in ways[-1:] if self.soak.smoke else ways:
            trial.run("train", running.address, *databases.TRAIN[:6], "--epochs", "1", "--torch-threads", "1", *how, expect=[DONE])
        self.streams(trial, running)
        time.sleep(2.5)  # sessions end within two seconds of their connections

    @staticmethod
    def whole_budget(running):
        """What dead sessions held is there again: 3/4 of the budget, less what SQL keeps."""
        try:
            server.Client(running.socket, budget=64 << 20).close()
        except (server.Gone, server.Refused) as error:
            raise harness.Failure("other", f"a session of 64 MiB after all others have gone: {error}") from error

    @staticmethod
    def put(trial, running, truth, number):
        """One that dies at some instant, of nodes of its own: it happens, or not."""
        nodes = list(truth.writers[number].nodes)
        ids = nodes if trial.rng.random() < 0.3 else sorted(trial.rng.sample(nodes, 10))
        change = model.Change(ids, rows=truth.next_rows(ids, number))
        truth.attempt(change, number)
        outcome = trial.put(running.address, change, kill_after=trial.rng.uniform(0.001, 0.06), expect=(DONE,),
                            arguments=trial.rng.choice(((), ("--inline",), ("--memory", "16KiB"))))
        if outcome.code == DONE and not outcome.killed:
            truth.acknowledge(number)
        trial.count("runs")

    @staticmethod
    def sql(trial, running):
        trial.run("sql", running.address, trial.rng.choice((SQL_SORT, "select sum(vec_dim(feature)) from features")),
                  kill_after=trial.rng.uniform(0.01, 0.5))

    @staticmethod
    def top(trial, running):
        trial.run("top", running.address, "--once", "--json", kill_after=trial.rng.uniform(0.001, 0.05))

    @staticmethod
    def train(trial, running):
        process = trial.start([trial.quarry, "train", running.address, *databases.TRAIN[:6], "--epochs", "50", "--torch-threads", "1",
                               *trial.rng.choice(((), ("--layout", "default"), ("--inline",), ("--checkpoint-every", "1", "--overwrite")))])
        time.sleep(trial.rng.uniform(0.1, 2.5))
        if process.poll() is not None and process.returncode < 0 and process.returncode != -signal.SIGKILL:
            raise harness.Failure("aborts", f"train on a server: signal {-process.returncode}")
        harness.kill_group(process)

    @staticmethod
    def streams(trial, running):
        """With passes under way and batches that nobody takes."""
        with server.Client(running.socket, budget=32 << 20) as client:
            for _ in range(trial.rng.randint(1, 4)):
                answer = client.call(server.LIVE_STREAM)
                stream = answer.integer(answer.first(), 0)
                client.call(f"(startPass = (stream = {stream}, seeds = (split = 1), pass = 1))")
                for _ in range(trial.rng.randint(0, 8)):
                    client.send(server.encode(f"(nextBatch = {stream})"))
            time.sleep(trial.rng.uniform(0, 0.05))

    @staticmethod
    def pieces(trial, running):
        """Pieces of a put, and never the last."""
        row = model.row_of(99, 1, 0, 16)
        block = server.data((0).to_bytes(8, "little") + row)
        with server.Client(running.socket) as client:
            for piece in range(1, trial.rng.randint(2, 6)):
                text = (f"(put = (number = 1, piece = {piece}, tables = [(table = \"feature\", rows = 1, rowBytes = {len(row)}, "
                        f"block = (inline = {block}))]))")
                try:
                    client.call(text)
                except server.Refused as refused:
                    trial.note(f"a piece: {refused}")  # another put in pieces is under way
                    return

    @staticmethod
    def half_frame(trial, running):
        frame = server.numbered(server.lookup_frame(tuple(range(100))), 99)
        with server.Client(running.socket) as client:
            client.socket.sendall(frame[:trial.rng.randrange(1, len(frame))])

    @staticmethod
    def greeted(trial, running):
        """Many connections in each state before a session."""
        held = [server.connected(running.socket, trial.rng.choice((b"", server.numbered(server.encode(server.HELLO), 1)))) for _ in range(20)]
        time.sleep(0.01)
        for one in held:
            one.close()
