"""The feature cache of a host of trainers as an actor: it completes the groups that workers send without the rows it has."""

from __future__ import annotations

import os
from typing import Sequence

from .._errors import OutOfBudget
from .._values import bytes_text
from ._belady import PlannedCache
from ._cache import Heard, HostCache, Stamp, Update
from ._groups import Group


class Host:
    """One a host, beside its trainers; its calls come one after the other, in the coordinator's order. begin() comes first,
    and again for another generation of the cache, which is empty."""

    def begin(self, generation: int, rows: int, dim: int, lives: Sequence[int], planned: bool) -> int:
        """Its process. `lives` of the workers, as the coordinator counts them. `OutOfBudget` where this machine has no room for the rows."""
        self._planned: PlannedCache | None = None
        self._agreed: HostCache | None = None
        wanted, free = rows * dim * 4, _available_bytes()
        if wanted > free:
            raise OutOfBudget(f"a feature cache of {bytes_text(wanted)} on {os.uname().nodename}, which has {bytes_text(free)} free: give cache= less")
        self._generation = generation
        if planned:
            self._planned = PlannedCache(rows, dim)
        else:
            self._agreed = HostCache(rows, dim, lives, generation)
        return os.getpid()

    def received(self, generation: int, position: int, stamp: Stamp | None, group: Group) -> tuple[tuple[Update | None, bool], Group | None]:
        """(What is to be announced, whether the group counts), and the group, whole. `position`: in the plan; `stamp`: where
        there is none."""
        if generation != self._generation:
            return (None, False), None
        if self._planned is not None:
            return (None, True), self._planned.received(position, group)
        assert self._agreed is not None and stamp is not None
        got = self._agreed.received(stamp, group)
        return (got.update, got.group is not None), got.group

    def void(self, stamp: Stamp) -> None:
        if self._agreed is not None:
            self._agreed.void(stamp)

    def heard(self, heard: Heard) -> None:
        if self._agreed is not None:
            self._agreed.heard(heard)

    def replaced(self, worker: int, life: int) -> tuple[Update | None]:
        """What is to be announced to the new one."""
        return (self._agreed.replaced(worker, life) if self._agreed is not None else None,)


def _available_bytes() -> int:
    """Memory that this machine has free, or that its cgroup may have in all."""
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    try:
        with open("/proc/self/cgroup") as lines:
            group = next(line.strip().split("::", 1)[1] for line in lines if line.startswith("0::"))
        with open(f"/sys/fs/cgroup{group}/memory.max") as file:
            limit = file.read().strip()
        return free if limit == "max" else min(free, int(limit))
    except (OSError, StopIteration):
        return free  # no cgroup that limits memory
