"""What a database must hold: the acknowledged rows and edges, kept apart from the code under attack.

A Model has the features, labels and splits of every node as plain Python values, the edges as pairs, and for each writer the
changes that it made, in order. An export of the database (`quarry export`) is read by this file's own reader of .npy and
compared. The graph is undirected.
"""

import ast
import copy
import pathlib
import random
import struct

SPLITS = ("none", "train", "valid", "test")
CLASSES = 5


def write_npy(path, kind, shape, payload):
    """A .npy 1.0 file: `kind` as NumPy writes it ("<f4", "<i8"), `payload` the elements as bytes."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload)


def write_ids(path, ids):
    write_npy(path, "<i8", (len(ids),), struct.pack(f"<{len(ids)}q", *ids))


def read_npy(path):
    """(kind, shape, payload) of a .npy 1.0 file; ValueError where it is none, or holds fewer bytes than it says."""
    data = pathlib.Path(path).read_bytes()
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{path}: no .npy 1.0 file")
    (length,) = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10:10 + length].decode())
    payload = data[10 + length:]
    elements = 1
    for extent in header["shape"]:
        elements *= extent
    if len(payload) != elements * int(header["descr"][2:]):
        raise ValueError(f"{path}: {len(payload)} bytes for the shape {header['shape']}")
    return header["descr"], header["shape"], payload


def row_of(author, number, node, dim):
    """A row that says who wrote it: author, number and node, then floats that depend on all three."""
    values = random.Random(f"{author}.{number}.{node}")
    return struct.pack(f"<{dim}f", author, number, node, *(values.random() for _ in range(dim - 3)))


def pair_of(source, destination):
    return (min(source, destination), max(source, destination))


class State:
    """Features (bytes of a row), label and split of each node, and the edges, a set of pairs, at one moment. `edges` of None:
    nobody has looked at them."""

    def __init__(self, rows, labels, splits, edges=None):
        self.rows, self.labels, self.splits, self.edges = rows, labels, splits, edges

    def copy(self):
        return State(list(self.rows), list(self.labels), list(self.splits), None if self.edges is None else set(self.edges))

    def of(self, node):
        return self.rows[node], self.labels[node], self.splits[node]

    def describe(self, node):
        row, label, split = self.of(node)
        author, number = struct.unpack_from("<2f", row)
        return f"row {number:.0f} of writer {author:.0f}, label {label}, {split}"

    @staticmethod
    def of_export(folder):
        """What `quarry export --format npy` wrote."""
        folder = pathlib.Path(folder)
        kind, (nodes, dim), payload = read_npy(folder / "features.npy")
        if kind != "<f4":
            raise ValueError(f"{folder}/features.npy: {kind} instead of <f4")
        rows = [payload[i * 4 * dim:(i + 1) * 4 * dim] for i in range(nodes)]
        labels = list(struct.unpack(f"<{nodes}q", read_npy(folder / "labels.npy")[2]))
        splits = ["none"] * nodes
        for split in SPLITS[1:]:
            file = folder / f"{split}_idx.npy"
            payload = read_npy(file)[2] if file.exists() else b""
            for node in struct.unpack(f"<{len(payload) // 8}q", payload):
                splits[node] = split
        kind, (_, count), payload = read_npy(folder / "edges.npy")
        ends = struct.unpack(f"<{2 * count}{'q' if kind == '<i8' else 'I'}", payload)
        return State(rows, labels, splits, {pair_of(*pair) for pair in zip(ends[:count], ends[count:])})


class Change:
    """One commit: for some nodes new rows, labels or a split."""

    def __init__(self, ids, rows=None, labels=None, split=None):
        self.ids, self.rows, self.labels, self.split = ids, rows, labels, split

    def apply(self, state):
        for i, node in enumerate(self.ids):
            if self.rows is not None:
                state.rows[node] = self.rows[i]
            if self.labels is not None:
                state.labels[node] = self.labels[i]
            if self.split is not None:
                state.splits[node] = self.split


class Growth:
    """One commit of the graph: nodes with these rows and labels and of this split come behind the last one, edges come or go."""

    def __init__(self, first, rows=(), labels=(), split="none", edges=(), gone=()):
        self.first, self.rows, self.labels, self.split = first, list(rows), list(labels), split
        self.edges = {pair_of(*edge) for edge in edges}
        self.gone = {pair_of(*edge) for edge in gone}

    def apply(self, state):
        assert len(state.rows) == self.first, "one writer at a time lets the graph grow"
        state.rows += self.rows
        state.labels += self.labels
        state.splits += [self.split] * len(self.rows)
        if state.edges is not None:
            state.edges = (state.edges - self.gone) | self.edges


class Writer:
    """The changes of one writer that the settled state has not, in order. The first `answered` of them were answered, the
    first `durable` as being on disk."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.changes = []
        self.answered = self.durable = 0

    def grows(self):
        return any(isinstance(change, Growth) for change in self.changes)

    def difference(self, trial, before, found):
        """What of the writer's, had it made `trial` of `before`, is not as was found; None: nothing."""
        nodes = (*self.nodes, *range(before, len(trial.rows)))
        wrong = [node for node in nodes if node >= len(found.rows) or trial.of(node) != found.of(node)]
        if wrong:
            node = wrong[0]
            there = found.describe(node) if node < len(found.rows) else "nothing"
            return f"{len(wrong)} nodes are not as acknowledged, node {node} first: {there} instead of {trial.describe(node)}"
        return difference_of_graphs(trial, found) if self.grows() else None


def difference_of_graphs(expected, found):
    if len(found.rows) != len(expected.rows):
        return f"{len(found.rows)} nodes instead of {len(expected.rows)}"
    if found.edges is None or expected.edges is None or found.edges == expected.edges:
        return None
    missing, strange = sorted(expected.edges - found.edges), sorted(found.edges - expected.edges)
    return f"{len(missing)} edges are missing, {len(strange)} are there that should not be: {(missing + strange)[0]} first"


class Model:
    """What must be there. Writers own their nodes; each makes one change after the other. One of them may let the graph grow:
    nodes that come are its own.

    attempt(change)  the change is about to be made: it may be there from now on, or not
    withdraw()       it was refused: it is not there
    acknowledge()    it was acknowledged: it must be there, and so must those before it. One that is not synced may be lost with
                     the power, or the process, but not before a later one
    difference(state)  None, or what of `state` cannot be; what was found of open changes is settled otherwise
    """

    def __init__(self, state, writers=1):
        self.state = state
        nodes = range(len(state.rows))
        self.writers = [Writer(nodes[i::writers]) for i in range(writers)]
        self.number = 0  # of changes ever made, so that no two write the same rows
        self.named = set()  # states of training runs by their file, embedding tables by name and checkpoint

    def copy(self):
        return copy.deepcopy(self)

    def owned_by(self, writers, grower=False):
        """Divides the nodes anew among so many writers; the grower, behind them, has none. REQUIRES: nothing is open."""
        assert not any(writer.changes for writer in self.writers)
        nodes = range(len(self.state.rows))
        self.writers = [Writer(nodes[i::writers]) for i in range(writers)] + [Writer([])] * grower

    @property
    def dim(self):
        return len(self.state.rows[0]) // 4

    @property
    def nodes(self):
        return len(self.state.rows)

    def next_rows(self, ids, author=0):
        self.number += 1
        return [row_of(author + 1, self.number, node, self.dim) for node in ids]

    def attempt(self, change, writer=0):
        writer = self.writers[writer]
        assert writer.answered == len(writer.changes), "an earlier change is open: settle it first"
        writer.changes.append(change)

    def withdraw(self, writer=0):
        """The change was refused before anything of it was done: it is not there."""
        assert self.is_open(writer)
        self.writers[writer].changes.pop()

    def is_open(self, writer=0):
        """Whether nobody knows what became of a change."""
        return self.writers[writer].answered != len(self.writers[writer].changes)

    def acknowledge(self, writer=0, synced=True):
        writer = self.writers[writer]
        writer.answered = len(writer.changes)
        if synced:
            writer.durable = writer.answered

    def acknowledged(self):
        return sum(writer.durable for writer in self.writers)

    def difference(self, found):
        """None when `found` has every acknowledged change, each open one wholly or not at all, and nothing else."""
        settled = self.state.copy()
        before = len(settled.rows)
        grown = {}  # nodes by who owns them from now on
        for number, writer in enumerate(self.writers):
            text = None
            for count in range(writer.durable, len(writer.changes) + 1):
                trial = settled.copy()
                for change in writer.changes[:count]:
                    change.apply(trial)
                wrong = writer.difference(trial, len(settled.rows), found)
                if wrong is None:
                    grown[number] = range(len(settled.rows), len(trial.rows))
                    settled = trial
                    break
                text = text or f"writer {number}: {wrong}"
            else:
                return text
        wrong = difference_of_graphs(settled, found)
        if wrong:
            return wrong
        assert sum(map(len, grown.values())) == len(settled.rows) - before
        self.state = settled
        for number, writer in enumerate(self.writers):
            writer.nodes = [*writer.nodes, *grown[number]] if grown[number] else writer.nodes
            writer.changes, writer.answered, writer.durable = [], 0, 0
        return None


def named_in(info):
    """What `quarry info --json` names of what a Model has as `named`."""
    runs = {training["file"] for training in info["trainings"]}
    return runs | {f"{table['name']} as of {table['timestamp']}" for table in info["embeddings"]}


class Graph:
    """A small graph with everything that a database can have, as a folder for `quarry import`."""

    def __init__(self, seed, nodes=400, dim=16):
        rng = random.Random(f"graph {seed}")
        self.nodes, self.dim = nodes, dim
        self.edges = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(8 * nodes)]
        rows = [row_of(0, 0, node, dim) for node in range(nodes)]
        labels = [node % CLASSES for node in range(nodes)]
        splits = ["train" if node % 4 == 0 else SPLITS[rng.randrange(4)] for node in range(nodes)]
        self.state = State(rows, labels, splits, {pair_of(*edge) for edge in self.edges})

    def write(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir()
        sources, targets = zip(*self.edges)
        count = len(self.edges)
        write_npy(folder / "edges.npy", "<i8", (2, count), struct.pack(f"<{2 * count}q", *sources, *targets))
        write_npy(folder / "features.npy", "<f4", (self.nodes, self.dim), b"".join(self.state.rows))
        write_npy(folder / "labels.npy", "<i8", (self.nodes,), struct.pack(f"<{self.nodes}q", *self.state.labels))
        for split in SPLITS[1:]:
            write_ids(folder / f"{split}_idx.npy", [n for n in range(self.nodes) if self.state.splits[n] == split])
