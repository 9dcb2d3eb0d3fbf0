"""Frames that were changed at random, or made to do harm, in all states of a connection, beside a client that does nothing wrong."""

import pathlib
import socket
import struct
import time

import harness
import model
import server

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "fuzz/corpus/wire"
LABEL = server.data(struct.pack("<Qq", 3, 1))
# Every kind of request. None writes a feature: these are what is held against the model afterwards.
REQUESTS = (
    server.HELLO, server.open_session(b"0123456789abcdef"), "(describe = void)", "(ping = void)", "(stats = 0)", "(cancel = 1)",
    "(takeSnapshot = void)", "(releaseSnapshot = 1)", "(releaseLeases = [1, 2, 3])", "(readLease = (lease = 1, offset = 0, bytes = 4096))",
    '(lookup = (table = "feature", ids = (list = [1, 2, 3, 399])))', '(lookup = (table = "label", ids = (range = (region = 1, offset = 0, bytes = 64))))',
    '(sample = (topology = "graph", seeds = [1, 2, 3], fanouts = [3, 3], direction = 0, streamSeed = 1))', server.LIVE_STREAM,
    '(openStream = (road = (planned = (layout = "default")), mode = 0, members = 1))',
    f'(openStream = (road = {server.LIVE}, mode = 1, group = "g", members = 2))',
    f'(openStream = (road = (superbatch = (live = {server.LIVE[len("(live = "):-1]}, policy = "belady", seedOrder = "random")), mode = 0, members = 1))',
    "(startPass = (stream = 1, seeds = (split = 1), pass = 1))", "(startPass = (stream = 1, seeds = (ids = (list = [1, 2, 3])), pass = 2, ordered = true))",
    "(nextBatch = 1)", "(closeStream = 1)", '(readEmbeddings = (table = "link-nodes", ids = (list = [1, 2])))',
    '(commitEmbeddings = (number = 1, updates = [(table = "link-nodes", rows = 1, dim = 8, stateDim = 8, block = (inline = "abc"))]))',
    f'(put = (number = 1, tables = [(table = "label", rows = 1, rowBytes = 8, block = (inline = {LABEL}))]))',
    f'(put = (number = 2, piece = 1, last = true, tables = [(table = "label", rows = 1, rowBytes = 8, block = (inline = {LABEL}))]))', "(forgetPut = 2)",
    '(saveTraining = (name = "x", settings = "s", stateBytes = 4, offset = 0, piece = (inline = "abcd")))', '(readTraining = (name = "node"))',
    '(readEdges = (topology = "graph", first = 0, count = 100))', "(openSql = (timeoutSeconds = 1))", "(openSql = (write = true, timeoutSeconds = 1))",
    '(query = (connection = 1, text = (inline = "select * from nodes"), parameters = 0))',
    '(query = (connection = 1, script = true, text = (inline = "select 1; select count(*) from edges"), parameters = 0))',
    '(query = (connection = 2, text = (inline = "update nodes set label = 1 where id = 5"), parameters = 0))',
    "(fetch = (cursor = 1))", "(fetch = (cursor = 1, next = true))", "(closeQuery = 1)", "(closeSql = 1)", "(getStatus = void)",
)


class HostileFrames(harness.Attack):
    name = "hostile-frames"
    what = "changed frames of every request, and the fuzz corpus, in all states of a connection, beside a good client"
    weight = 2

    def trial(self, trial):
        rng = trial.rng
        database, truth = self.soak.databases.copy(trial, "full")
        running = server.Server(trial, database, memory="128MiB", env={"QUARRY_LOG": "error"})
        good = server.GoodClient(running, truth, range(truth.nodes))
        good.start()
        corpus = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
        trial.count("runs", 0)
        end = time.monotonic() + (1 if self.soak.smoke else 8)
        while time.monotonic() < end and good.is_alive():
            self.converse(trial, running, rng, corpus)
        good.finish()
        trial.count("right answers", good.answers)
        if not server.wait_until(lambda: self.works(running), 20):
            raise harness.Failure("other", "a session cannot be opened after hostile ones have gone")
        running.stop()
        outcome = trial.read("verify", database, database=database)
        if outcome.code != harness.DONE:
            raise harness.Failure("lost", f"after hostile frames: {outcome}\n{outcome.stdout}")
        _, state = trial.export(database)
        # Labels and splits may have been changed by frames that were still good.
        truth.state = model.State(truth.state.rows, state.labels, state.splits, truth.state.edges)
        difference = truth.difference(state)
        if difference:
            raise harness.Failure("lost", f"after hostile frames: {difference}")

    @staticmethod
    def works(running):
        running.check_alive()
        try:
            server.Client(running.socket).close()
            return True
        except (server.Gone, server.Refused):
            return False

    @staticmethod
    def converse(trial, running, rng, corpus):
        """A connection: perhaps a right beginning, then frames that are changed."""
        try:
            peer = server.connected(running.socket, b"")
        except OSError:
            running.check_alive()
            return
        frames = []
        state = rng.randrange(4)
        if state >= 1:
            frames.append(server.encode(server.HELLO))
        if state >= 2:
            frames.append(server.encode(server.open_session(rng.randbytes(16), 8 << 20)))
        if state >= 3:
            frames += [server.encode(text) for text in rng.choice((
                (server.LIVE_STREAM, "(startPass = (stream = 1, seeds = (split = 1), pass = 1))"), ("(openSql = (timeoutSeconds = 1))",)))]
        beginning = len(frames)
        for _ in range(rng.randint(1, 30)):
            frames.append(rng.choice(corpus) if rng.random() < 0.1 else server.encode(rng.choice(REQUESTS)))
        sent = b""
        for number, frame in enumerate(frames, 1):
            if number > beginning:
                frame = server.numbered(frame, number) if rng.random() < 0.9 and len(frame) >= 16 else frame
                frame = mutate(rng, frame)
                trial.count("runs")
            else:
                frame = server.numbered(frame, number)
            sent += frame
        with peer:
            peer.settimeout(0.05)
            try:
                peer.sendall(sent)
                if rng.random() < 0.7:
                    peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
            except OSError:  # closed on us, or nothing to say: both are right
                pass


def mutate(rng, frame):
    """Changed bits, words, lengths, ends; sometimes not changed at all."""
    frame = bytearray(frame)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        way = rng.random()
        place = rng.randrange(len(frame)) if frame else 0
        if not frame or way < 0.1:
            frame += rng.randbytes(8 * rng.randint(1, 4))
        elif way < 0.5:
            frame[place] ^= 1 << rng.randrange(8)
        elif way < 0.7:
            place = place // 4 * 4
            frame[place:place + 4] = struct.pack("<I", rng.choice((0, 1, 7, 8, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, rng.getrandbits(32))))
        elif way < 0.8:
            del frame[rng.randrange(len(frame)):]
        elif way < 0.9:
            frame[place:place] = frame[:rng.randrange(len(frame))]
        else:
            frame[0:4] = struct.pack("<I", max(0, len(frame) - 16 + 8 * rng.randint(-2, 2)))
    return bytes(frame)
