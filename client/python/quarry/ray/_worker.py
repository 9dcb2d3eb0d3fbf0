"""A preparation worker: reads shares of an epoch where they are published, and makes groups of their mini-batches."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Iterator

import numpy as np

from .._batches import Batch, Stream
from .._database import Database
from .._errors import Busy, Corruption, NotFound
from ._belady import Choices, Trace
from ._cache import Heard, HostView, Place, Stamp, Update
from ._groups import Group, pack, union_of
from ._schedule import share_name

if TYPE_CHECKING:
    from ._prepare import Prepared

_BUSY_SECONDS = 60  # that a worker's folder may take to be free, once the one before was killed
_POLL_SECONDS = 0.05


class Worker:
    """One a process, as an actor of Ray; its calls come one after the other. The database is open as long as it lives."""

    def __init__(self, prepared: Prepared, memory: int | str | None, number: int, life: int) -> None:
        self._prepared, self._memory = prepared, memory
        self._number, self._life = number, life
        self._views: dict[int, HostView] = {}  # by host, of the newest generation of its cache
        self._stream: Stream | None = None
        self._batches: Iterator[Batch] = iter(())
        self._at: tuple[int, int, int] | None = None  # planned epoch, share, and its next batch

    def hello(self) -> dict[str, Any]:
        """Opens the database. What trainers and coordinator need to know of it. Its first call: errors of a constructor would
        look like a death, and be tried again."""
        self._db = _opened(self._prepared.address, self._memory)
        layouts = self._db.layouts
        first = self._layout(0, 0)
        if first not in layouts:
            raise NotFound(f"{self._db.address}: there is no layout {first!r} of quarry.ray.prepare; layouts are {', '.join(layouts) or 'none'}")
        with self._db.stream(self._prepared.fanouts, self._prepared.batch_size, layout=first) as stream:
            dim = stream.feature_dim  # more than the table's where columns of places and times are joined to its rows
        return {
            "pid": os.getpid(),
            "dim": dim,
            "nodes": self._db.num_nodes,
            "batches": [[layouts[self._layout(epoch, share)].batch_count for share in range(self._prepared.shares)] for epoch in range(self._prepared.epochs)],
        }

    def make(self, epoch: int, share: int, first: int, count: int, place: Place | None, choices: Choices | None) -> tuple[dict[str, Any], Group]:
        """Mini-batches [first, first + count) of a share of an epoch: the same ones, whoever makes them and however often.
        `place`: of the feature cache whose rows are left out; `choices`: by a plan."""
        began, cpu = time.monotonic(), time.process_time()
        planned = epoch % self._prepared.epochs
        there, self._at = self._at, None
        if there != (planned, share, first):
            self._open(planned, share)
            for _ in range(first):  # that a worker before this one has made
                self._next(planned, share)
        batches = [self._next(planned, share) for _ in range(count)]
        self._at = (planned, share, first + count)
        stamp: Stamp | None = None
        if place is None:
            group = pack(batches)
        elif choices is not None:
            group = pack(batches, *choices.of(place.position))
        else:
            view = self._view(place.host, place.generation)
            group = pack(batches, view.known(union_of([batch.nodes for batch in batches])))
            stamp = view.stamp()
        told = {
            "stamp": stamp,
            "seeds": sum(len(batch.seeds) for batch in batches),
            "batches": count,
            "rows_sent": len(group.rows),
            "rows_cached": len(group.ids) - len(group.rows),
            "rows_of_batches": sum(len(batch.nodes) for batch in batches),
            "feature_bytes_sent": group.rows.nbytes,
            "seconds": time.monotonic() - began,
            "core_seconds": time.process_time() - cpu,
        }
        return told, group

    def hear(self, host: int, update: Update) -> Heard:
        """A host announces what its cache will have."""
        return self._view(host, update.generation).hear(update)

    def trace(self, epoch: int, share: int) -> Trace:
        """Nodes of the batches of a share, without their rows. It is read to its end."""
        self._at = None
        self._open(epoch % self._prepared.epochs, share, features=False)
        nodes = [batch.nodes for batch in self._batches]
        return Trace(np.concatenate(nodes), np.cumsum([0, *map(len, nodes)]))

    def _view(self, host: int, generation: int) -> HostView:
        view = self._views.get(host)
        if view is None or generation > view.generation:
            view = self._views[host] = HostView(self._number, self._life, generation)
        elif generation < view.generation:
            view = HostView(self._number, self._life, generation)  # of a cache that is gone: nothing counts there
        return view

    def _layout(self, epoch: int, share: int) -> str:
        return share_name(self._prepared.name, epoch, share, self._prepared.shares)

    def _open(self, epoch: int, share: int, features: bool = True) -> None:
        """From its beginning."""
        if self._stream is not None:
            self._stream.close()
        self._stream = self._db.stream(self._prepared.fanouts, self._prepared.batch_size, layout=self._layout(epoch, share))
        self._batches = self._stream.epoch("train", ordered=True, features=features)

    def _next(self, epoch: int, share: int) -> Batch:
        batch = next(self._batches, None)
        if batch is None:
            raise Corruption(f"{self._db.address}: layout {self._layout(epoch, share)!r} ends before the last of the batches that it is said to have")
        return batch


def _opened(address: str, memory: int | str | None) -> Database:
    """Opens it, once whoever had it before is gone: a worker that was killed may hold its folder for a moment."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return Database(address, memory, None)
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL_SECONDS)
