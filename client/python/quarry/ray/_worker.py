"""A preparation worker: reads shares of an epoch where they are published, and makes groups of their mini-batches."""

from __future__ import annotations

import os
import time
from typing import Any, Iterator

from .._batches import Batch, Stream
from .._database import Database
from .._errors import Busy, Corruption, NotFound
from ._groups import Group, pack
from ._prepare import Prepared
from ._schedule import share_name

_BUSY_SECONDS = 60  # that a worker's folder may take to be free, once the one before was killed
_POLL_SECONDS = 0.05


class Worker:
    """One a process, as an actor of Ray; its calls come one after the other. The database is open as long as it lives."""

    def __init__(self, prepared: Prepared, memory: int | str | None) -> None:
        self._prepared, self._memory = prepared, memory
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
        return {
            "pid": os.getpid(),
            "dim": self._db["feature"].shape[1],
            "batches": [[layouts[self._layout(epoch, share)].batch_count for share in range(self._prepared.shares)] for epoch in range(self._prepared.epochs)],
        }

    def make(self, epoch: int, share: int, first: int, count: int) -> tuple[dict[str, Any], Group]:
        """Mini-batches [first, first + count) of a share of an epoch: the same ones, whoever makes them and however often."""
        began, cpu = time.monotonic(), time.process_time()
        planned = epoch % self._prepared.epochs
        there, self._at = self._at, None
        if there != (planned, share, first):
            self._open(planned, share)
            for _ in range(first):  # that a worker before this one has made
                self._next(planned, share)
        batches = [self._next(planned, share) for _ in range(count)]
        self._at = (planned, share, first + count)
        group = pack(batches)
        told = {
            "seeds": sum(len(batch.seeds) for batch in batches),
            "batches": count,
            "rows_sent": len(group.ids),
            "rows_of_batches": sum(len(batch.nodes) for batch in batches),
            "feature_bytes_sent": group.rows.nbytes,
            "seconds": time.monotonic() - began,
            "core_seconds": time.process_time() - cpu,
        }
        return told, group

    def _layout(self, epoch: int, share: int) -> str:
        return share_name(self._prepared.name, epoch, share, self._prepared.shares)

    def _open(self, epoch: int, share: int) -> None:
        """From its beginning."""
        if self._stream is not None:
            self._stream.close()
        self._stream = self._db.stream(self._prepared.fanouts, self._prepared.batch_size, layout=self._layout(epoch, share))
        self._batches = self._stream.epoch("train", ordered=True)

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
