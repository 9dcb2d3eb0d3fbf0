"""Streams of mini-batches, as NumPy arrays."""

from __future__ import annotations

import os
import threading
from queue import Empty, SimpleQueue
from typing import Any, Callable, Iterator, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from . import _quarry
from ._errors import TimedOut, UsageError
from ._values import FLOAT32, NUMPY_TYPES, SPLITS, ids_of


T = TypeVar("T")
U = TypeVar("U")

_POLL_SECONDS = 0.1
_AHEAD = 2  # batches made before they are asked for; with one, the thread would wait for the caller to have woken


class _Views(Protocol):
    index: int
    nodes: npt.NDArray[np.uint32]
    hop_offsets: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]
    indices: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int64]
    edge_ids: npt.NDArray[np.int64]


def gather(raw: _quarry.Batch, dtype: Any = np.float32, threads: int = 0) -> npt.NDArray[Any] | None:
    """The feature rows of a batch's nodes; None when it has none."""
    if raw.dim == 0:
        return None
    kind = np.dtype(dtype)
    stored = NUMPY_TYPES.get(raw.element_type)
    if kind == np.float32:
        element_type = FLOAT32
    elif stored is not None and kind == stored:
        element_type = raw.element_type
    else:
        raise UsageError(f"features as {kind}: float32, or what is stored")
    out = np.empty((raw.node_count, raw.dim), kind)
    raw.gather(out, element_type, raw.dim * kind.itemsize, threads)
    return out


class Batch:
    """A mini-batch with memory of its own: a sampled block, its features and labels.

    nodes        ids of all nodes, each once: the seeds, then what each hop found
    hop_offsets  nodes known after each hop; the first is the number of seeds
    indptr, indices   neighbors of node v: indices[indptr[v]:indptr[v + 1]], as positions in `nodes`, for all
                 nodes but those of the last hop
    x            the feature row of each node, float32; None without features
    labels       of the seeds, -1 = none; empty without labels
    edge_ids     by edge, its column in `db.edges()`; empty where they were not asked for
    """

    __slots__ = ("index", "nodes", "hop_offsets", "indptr", "indices", "labels", "edge_ids", "x")

    def __init__(self, raw: _quarry.Batch, features: bool = True) -> None:
        self.index = raw.index
        self.nodes = raw.nodes.copy()
        self.hop_offsets = raw.hop_offsets.copy()
        self.indptr = raw.indptr.copy()
        self.indices = raw.indices.copy()
        self.labels = raw.labels.copy()
        self.edge_ids = raw.edge_ids.copy()
        self.x = gather(raw) if features else None

    @property
    def seeds(self) -> npt.NDArray[np.uint32]:
        return self.nodes[: self.hop_offsets[0]]

    def __repr__(self) -> str:
        dim = 0 if self.x is None else self.x.shape[1]
        return f"<quarry.Batch {self.index}: {len(self.seeds)} seeds, {len(self.nodes)} nodes x {dim}, {len(self.indices)} edges>"


class BatchViews:
    """A mini-batch in place: the arrays of `Batch` (without x) as views of the engine's memory, read-only.

    The batch lives as long as one of its arrays. A stream has memory for so many at a time (`Stream.slots`, one
    for a database in this process): the next one is refused with `BatchesHeld` while arrays of the others are
    used. x() gathers the feature rows; copy() gives a `Batch` to keep.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: _quarry.Batch) -> None:
        self._raw = raw

    @property
    def index(self) -> int:
        return self._raw.index

    @property
    def nodes(self) -> npt.NDArray[np.uint32]:
        return self._raw.nodes

    @property
    def hop_offsets(self) -> npt.NDArray[np.int32]:
        return self._raw.hop_offsets

    @property
    def indptr(self) -> npt.NDArray[np.int32]:
        return self._raw.indptr

    @property
    def indices(self) -> npt.NDArray[np.int32]:
        return self._raw.indices

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        return self._raw.labels

    @property
    def edge_ids(self) -> npt.NDArray[np.int64]:
        return self._raw.edge_ids

    @property
    def seeds(self) -> npt.NDArray[np.uint32]:
        return self.nodes[: self._raw.seed_count]

    def x(self, dtype: Any = np.float32) -> npt.NDArray[Any] | None:
        return gather(self._raw, dtype)

    def copy(self) -> Batch:
        return Batch(self._raw)

    def close(self) -> None:
        self._raw.close()

    def __repr__(self) -> str:
        if self._raw.closed:
            return "<quarry.BatchViews: given back>"
        return f"<quarry.BatchViews {self.index}: {self._raw.seed_count} seeds, {self._raw.node_count} nodes x {self._raw.dim}, {self._raw.edge_count} edges>"


def _asked(wanted: SimpleQueue[bool]) -> bool:
    """Whether one more is wanted; no more are where the interpreter ends, which waits for the thread that asks."""
    while True:
        try:
            return wanted.get(timeout=_POLL_SECONDS)
        except Empty:
            if not threading.main_thread().is_alive():
                return False


class Stream:
    """A road to mini-batches, open for many passes. For one thread at a time.

    for batch in stream.epoch(seeds="train"): ...
    """

    # `_use` is held by whoever uses `_raw`: the caller's thread, or that of `made_ahead`.

    def __init__(self, raw: _quarry.Stream, node_count: int) -> None:
        self._raw = raw
        self._node_count = node_count
        self._passes = 0
        self._pid = os.getpid()
        self._use = threading.Lock()
        self._turn: object = None  # the pass that runs, where several loaders share the stream
        self.closed = False

    @property
    def slots(self) -> int:
        """Batches that may be held at a time, where they are views."""
        return self._raw.slots

    @property
    def timestamp(self) -> int:
        """Of the snapshot that it reads."""
        return self._raw.timestamp

    @property
    def feature_dim(self) -> int:
        """Columns of the rows of its batches: the table's, and those of places and times that are joined to them."""
        return self._raw.feature_dim

    def start(
        self,
        seeds: Any = "train",
        *,
        shuffle: bool = True,
        ordered: bool = False,
        number: int | None = None,
        _pyg: _quarry.PygPass | None = None,
    ) -> int:
        """Begins a pass; the number of its batches. `seeds`: the name of a split, ids, or a mask; each is used
        once. `number` names the random streams of order and samples: passes of one number are equal."""
        if isinstance(seeds, str) and seeds not in SPLITS:
            raise UsageError(f"seeds {seeds!r}: 'train', 'valid' or 'test', ids, or a mask")
        split, ids = (SPLITS[seeds], None) if isinstance(seeds, str) else (0, ids_of(seeds, self._node_count, "seeds"))
        self._passes = self._passes + 1 if number is None else number
        self._turn = object()  # before the lock: a batch that is being made ahead is the last of its pass
        self._refuse_fork()
        with self._use:
            return self._raw.start_pass(split, ids, shuffle, ordered, self._passes, _pyg)

    def next(self, timeout: float | None = None) -> BatchViews | None:
        """The next batch of the pass, in place; None behind the last. Ctrl-C ends it. `TimedOut` when none came
        within `timeout` seconds: nothing is lost, and the next call waits for the same batch."""
        raw = self._raw.next(-1.0 if timeout is None else max(0.0, timeout))
        return None if raw is None else BatchViews(raw)

    def epoch(
        self,
        seeds: Any = "train",
        *,
        shuffle: bool = True,
        ordered: bool = False,
        number: int | None = None,
        features: bool = True,
    ) -> Iterator[Batch]:
        """One pass: batches to keep as long as one likes."""
        self.start(seeds, shuffle=shuffle, ordered=ordered, number=number)
        turn = self._turn
        while batch := self._taken(turn, lambda raw: Batch(raw, features)):
            yield batch.pop()

    def made_ahead(
        self,
        seeds: Any,
        take: Callable[[_quarry.Batch], T],
        make: Callable[[T], U],
        *,
        shuffle: bool,
        ordered: bool,
        number: int,
        pyg: _quarry.PygPass | None = None,
    ) -> Iterator[U]:
        """One pass, for loaders: make(take(batch in place)) of each, on a thread of its own that is ahead of the
        caller: a batch is ready and another under way, so that the caller's work hides what making takes. The engine
        makes the next one as soon as `take` has what it wants of this one. Begin another pass, and this one ends with
        `UsageError` when it is asked for more. Stopping early costs at most two batches. `pyg`: what the engine makes
        of each batch ahead, which `pyg_block` then has. Torch is called here, too: its code has left the caches when a
        batch has come, so that a batch's tensors took the caller 150 us."""
        self.start(seeds, shuffle=shuffle, ordered=ordered, number=number, _pyg=pyg)
        turn = self._turn
        wanted: SimpleQueue[bool] = SimpleQueue()
        made: SimpleQueue[tuple[list[U], BaseException | None]] = SimpleQueue()

        def work() -> None:
            while _asked(wanted):
                try:
                    made.put(([make(taken) for taken in self._taken(turn, take)], None))
                except BaseException as error:  # noqa: BLE001: the caller's, below
                    made.put(([], error))

        # No daemon: one that comes back from the engine while the interpreter ends would take the process with it.
        threading.Thread(target=work, name="quarry", daemon=False).start()
        for _ in range(_AHEAD):
            wanted.put(True)
        try:
            while True:
                self._refuse_fork()  # whose thread stayed behind, and would be waited for without end
                batch, error = made.get()
                if error is not None:
                    raise error
                if not batch:
                    return
                self._check_turn(turn)
                wanted.put(True)
                yield batch.pop()  # the caller's alone: it dies with the caller's name for it
        finally:
            wanted.put(False)

    def _taken(self, turn: object, take: Callable[[_quarry.Batch], T]) -> list[T]:
        """What is taken of the next batch of the pass `turn`; nothing behind the last."""
        with self._use:
            raw = None
            while raw is None:
                self._check_turn(turn)
                try:
                    raw = self._raw.next(_POLL_SECONDS)
                except TimedOut:
                    if not threading.main_thread().is_alive():
                        return []  # the interpreter exits, and waits for this thread
                    continue
                if raw is None:
                    return []
            try:
                taken = [take(raw)]
            finally:
                raw.close()
            self._raw.begin_next()  # while this one goes to the caller
            return taken

    def _check_turn(self, turn: object) -> None:
        if self._turn is not turn:
            raise UsageError("another epoch of this kind of batches was begun, here or by another Loader of the database: finish one before the next")

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            _ = self._raw.slots  # raises Forked

    def cancel(self) -> None:
        """From any thread: the `next` that waits, or else the next one, ends with `Cancelled`."""
        self._raw.cancel()

    def stats(self) -> dict[str, float]:
        """Counters of the pass so far."""
        self._refuse_fork()
        with self._use:
            return self._raw.stats()

    def close(self) -> None:
        self.closed = True
        self._turn = None
        if os.getpid() != self._pid:
            return  # what a process was forked with is its parent's to close
        with self._use:
            self._raw.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
