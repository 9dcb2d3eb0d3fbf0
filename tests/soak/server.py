"""A `quarry serve` under attack, and a client of its protocol in Python.

Messages are Cap'n Proto, made of text by the `capnp` tool from the schema of the repository; of answers only what is needed is
read, by hand.
"""

import collections
import contextlib
import functools
import os
import pathlib
import signal
import socket
import struct
import subprocess
import threading
import time

import harness
import model

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "format/wire.capnp"
MAGIC = 0x0A0D455249575189
SHARED, INLINE, TRAININGS, SQL, PIECES = 1, 2, 4, 8, 16  # capabilities
ALL = INLINE | TRAININGS | SQL | PIECES
FAILURE, DONE, WELCOME, SESSION_OPENED, ROWS, STREAM_OPENED, WRITTEN = 0, 1, 2, 3, 5, 7, 14


class Server:
    """Started, and listening. stop() and kill() end it; `check_alive` says so when it has ended by itself."""

    def __init__(self, trial, database, *arguments, memory="64MiB", prefix=(), env=None, seconds=30, cwd=None):
        self.trial, self.database = trial, database
        self.socket = trial.folder / "run" / "s"
        self.address = f"unix:{self.socket}"
        self.errors = trial.folder / "serve-err.txt"
        self.output = trial.folder / "serve-out.txt"
        command = [trial.quarry, "serve", database, "--socket", self.socket, "--memory", memory, "--json", *arguments]
        self.command = " ".join(map(str, (*prefix, *command)))
        with open(self.output, "wb") as out, open(self.errors, "ab") as err:
            self.process = trial.start(command, prefix, {"QUARRY_LOG": "warn", **(env or {})}, cwd, stdout=out, stderr=err)
        trial.note(f"serve: {self.command}")
        deadline = time.monotonic() + seconds
        while b"socket" not in self.output.read_bytes():
            if self.process.poll() is not None:
                break
            if time.monotonic() > deadline:
                raise harness.Failure("hangs", f"{self.command}: does not listen after {seconds} s")
            time.sleep(0.002)
        self.started = self.process.poll() is None
        if not self.started:
            self.check_end(self.process.returncode)

    def text(self):
        return self.errors.read_text(errors="replace").strip()[-2000:]

    def check_end(self, code):
        """Of a server that ended by itself, or by SIGTERM: by an exit code, not a signal."""
        self.trial.note(f"serve ended: {code}: {self.text()}")
        if code < 0 or code > 128:
            raise harness.Failure("aborts", f"{self.command}: {'signal' if code < 0 else 'exit'} {abs(code)}: {self.text()}")

    def check_alive(self):
        code = self.process.poll()
        if code is None:
            return
        self.check_end(code)
        raise harness.Failure("other", f"{self.command}: ended by itself: exit {code}: {self.text()}")

    def kill(self):
        self.check_alive()
        harness.kill_group(self.process)
        self.trial.note("serve killed")

    def stop(self, seconds=60):
        self.check_alive()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            harness.kill_group(self.process)
            raise harness.Failure("hangs", f"{self.command}: {seconds} s after SIGTERM") from None
        self.check_end(code)
        if code != 0:
            raise harness.Failure("other", f"{self.command}: exit {code} after SIGTERM: {self.text()}")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self):
        """How often each name of a thread is there. RocksDB and io_uring start theirs when they have work for them."""
        names = collections.Counter()
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                names[(task / "comm").read_text().strip()] += 1
        return collections.Counter({name: count for name, count in names.items() if not name.startswith(("rocksdb", "iou-"))})

    def status(self, field):
        """A number of /proc/PID/status, such as Threads or VmRSS (kB)."""
        with open(f"/proc/{self.process.pid}/status") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        return 0


@functools.lru_cache(maxsize=None)
def encode(text, kind="Request"):
    """The frame of a request, with id 0: `text` as `capnp convert text:binary` takes it."""
    done = subprocess.run(["capnp", "convert", "text:binary", SCHEMA, kind], input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"capnp: {text}: {done.stderr.decode()}")
    return struct.pack("<IIQ", len(done.stdout), 0, 0) + done.stdout


def numbered(frame, number):
    return frame[:8] + struct.pack("<Q", number) + frame[16:]


def data(payload):
    """Bytes as capnp's text form of Data."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in payload) + '"'


HELLO = f"(hello = (magic = {MAGIC}, versionMin = 1, versionMax = 1, capabilities = {ALL}, messageBytesMax = 1048576))"


def open_session(client_id, budget=1 << 20, wait_ms=0):
    return f"(openSession = (clientId = {data(client_id)}, budgetBytes = {budget}, budgetBytesMin = {min(budget, 1 << 16)}, waitMs = {wait_ms}))"


LIVE = "(live = (featureTable = \"feature\", topology = \"graph\", fanouts = [3, 3], batchSize = 16, cacheBytes = 65536, seed = 1))"
LIVE_STREAM = f"(openStream = (road = {LIVE}, mode = 0, members = 1))"


class Message:
    """A Cap'n Proto message: enough of it to read an answer. Places are words of all segments, one behind the other."""

    def __init__(self, payload):
        count = struct.unpack_from("<I", payload)[0] + 1
        sizes = struct.unpack_from(f"<{count}I", payload, 4)
        self.words = payload[(4 * (count + 1) + 7) // 8 * 8:]
        self.segments = [sum(sizes[:i]) for i in range(count)]
        self.root = self.struct(0)

    def pointer(self, at):
        """(place, offset and kind, sizes) of the pointer at this word, wherever its landing pad is."""
        low, sizes = struct.unpack_from("<iI", self.words, 8 * at)
        if low & 3 != 2:
            return at, low, sizes
        if low & 4:
            raise ValueError("a far pointer to a far pointer")
        return self.pointer(self.segments[sizes] + (low >> 3))

    def struct(self, at):
        """(first data word, first pointer word) of the struct that the pointer at this word leads to; None: null."""
        at, low, sizes = self.pointer(at)
        if low == 0 and sizes == 0:
            return None
        begin = at + 1 + (low >> 2)
        return begin, begin + (sizes & 0xFFFF)

    def integer(self, place, word):
        return struct.unpack_from("<Q", self.words, 8 * (place[0] + word))[0]

    def bytes(self, place, pointer):
        at, low, sizes = self.pointer(place[1] + pointer)
        begin = 8 * (at + 1 + (low >> 2))
        return self.words[begin:begin + (sizes >> 3)]

    @property
    def tag(self):
        return struct.unpack_from("<H", self.words, 8 * self.root[0])[0]

    def value(self):
        """Of answers that are a number: written."""
        return self.integer(self.root, 1)

    def first(self):
        """The struct that answers with one hold."""
        return self.struct(self.root[1])

    def failure(self):
        place = self.first()
        return f"code {self.integer(place, 0) & 0xFF}: {self.bytes(place, 0)[:-1].decode(errors='replace')}"


class Gone(Exception):
    """The server closed the connection, or does not answer in time."""


class Refused(Exception):
    """Answered by a failure."""


class Client:
    """A session, in the plainest way: a request, its answer."""

    def __init__(self, path, client_id=None, budget=1 << 20, seconds=30, endpoint=None, hello=None, wait_ms=10_000):
        self.socket = endpoint or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(seconds)
        self.last = 0
        self.buffer = b""
        try:
            self.socket.connect(str(path))
            self.call(hello or HELLO)
            # A verb that has just ended may have had all memory: its session ends a little later than it.
            self.call(open_session(client_id or os.urandom(16), budget, wait_ms))
        except OSError as error:
            self.close()
            raise Gone(str(error)) from error
        except (Gone, Refused):
            self.close()
            raise

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, frame):
        self.last += 1
        try:
            self.socket.sendall(numbered(frame, self.last))
        except OSError as error:
            raise Gone(str(error)) from error
        return self.last

    def receive(self):
        """(id, Message) of the next answer."""
        try:
            while True:
                if len(self.buffer) >= 16:
                    length, _, number = struct.unpack_from("<IIQ", self.buffer)
                    if len(self.buffer) >= 16 + length:
                        payload, self.buffer = self.buffer[16:16 + length], self.buffer[16 + length:]
                        return number, Message(payload)
                piece = self.socket.recv(1 << 16)
                if not piece:
                    raise Gone("closed")
                self.buffer += piece
        except OSError as error:  # a timeout too
            raise Gone(str(error)) from error

    def call(self, request):
        """The answer to a request (its text, or its frame). Refused, Gone."""
        number = self.send(encode(request) if isinstance(request, str) else request)
        while True:
            answered, message = self.receive()
            if answered == 0:
                raise Gone(message.failure())
            if answered == number:
                if message.tag == FAILURE:
                    raise Refused(message.failure())
                return message


def connected(path, beginning):
    """A socket of a server that these bytes were sent to."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(30)
    try:
        peer.connect(str(path))
        peer.sendall(beginning)
    except OSError:
        peer.close()
        raise
    return peer


class PutFrame:
    """Frames of puts of `count` feature rows: one is encoded, its number and bytes are replaced for each put. `fields`: other
    fields of the put, as text."""

    NUMBER = 0x1A2B3C4D5E6F7081

    def __init__(self, count, dim, fields="piece = 0"):
        self.bytes = count * (8 + 4 * dim)
        marker = bytes(i % 251 for i in range(self.bytes))
        text = (f"(put = (number = {self.NUMBER}, {fields}, tables = [(table = \"feature\", rows = {count}, rowBytes = {4 * dim}, "
                f"block = (inline = {data(marker)}))]))")
        self.frame = encode(text)
        self.number_at = self.frame.index(struct.pack("<Q", self.NUMBER))
        self.block_at = self.frame.index(marker)

    def make(self, number, change):
        block = struct.pack(f"<{len(change.ids)}Q", *change.ids) + b"".join(change.rows)
        assert len(block) == self.bytes
        frame = bytearray(self.frame)
        struct.pack_into("<Q", frame, self.number_at, number)
        frame[self.block_at:self.block_at + self.bytes] = block
        return bytes(frame)


class GoodClient(threading.Thread):
    """Beside hostile ones: looks rows up and holds them against the model, writes to nodes of its own where `writer` is given.
    Afterwards, join() and look at `failure`, `answers` and `slowest`."""

    def __init__(self, server, truth, nodes, writer=None):
        super().__init__(daemon=True)
        self.server, self.truth, self.nodes, self.writer = server, truth, list(nodes), writer
        self.ending = threading.Event()
        self.failure = None
        self.answers = 0
        self.slowest = 0.0

    def run(self):
        try:
            with Client(self.server.socket) as client:
                while not self.ending.is_set():
                    begin = time.monotonic()
                    self.look(client)
                    self.answers += 1
                    self.slowest = max(self.slowest, time.monotonic() - begin)
                    time.sleep(0.005)
        except (Gone, Refused, ValueError) as error:
            if self.server.process.poll() is None:
                self.failure = f"a client that does nothing wrong: {error}"

    def look(self, client):
        ids = self.nodes[:16]
        rows = lookup(client, ids)
        for node, row in zip(ids, rows):
            if row != self.truth.state.rows[node]:
                raise ValueError(f"row {node} is not as it was")

    def finish(self):
        self.ending.set()
        self.join(60)
        if self.is_alive():
            raise harness.Failure("hangs", "a client that does nothing wrong waits for 60 s")
        self.server.check_alive()
        if self.failure:
            raise harness.Failure("other", self.failure)


@functools.lru_cache(maxsize=64)
def lookup_frame(ids, table="feature"):
    return encode(f"(lookup = (table = \"{table}\", ids = (list = [{', '.join(map(str, ids))}])))")


def lookup(client, ids, table="feature"):
    """The rows of these nodes, as bytes."""
    message = client.call(lookup_frame(tuple(ids), table))
    rows = message.first()
    payload = message.struct(rows[1])
    block = message.bytes(payload, 0)
    size = len(block) // len(ids)
    return [block[i * size:(i + 1) * size] for i in range(len(ids))]


def state(running, nodes):
    """What readers see of so many nodes. Gone, Refused."""
    nodes = range(nodes)
    with Client(running.socket) as client:
        rows = lookup(client, nodes)
        labels = [int.from_bytes(label, "little", signed=True) for label in lookup(client, nodes, "label")]
        splits = [model.SPLITS[split[0]] for split in lookup(client, nodes, "split")]
    return model.State(rows, labels, splits)


def settle(running, truth):
    """What became of a put that failed, as readers see it; all else is the model's."""
    try:
        found = state(running, truth.nodes)
    except (Gone, Refused) as error:
        raise harness.Failure("other", f"a lookup: {error}") from error
    difference = truth.difference(found)
    if difference:
        raise harness.Failure("lost", f"over the server: {difference}")


def wait_until(holds, seconds):
    """Whether it held in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
