"""The feature cache of a host of trainers (Armada, Waleffe §6.2): preparation workers send it only the rows that it has not.
Two ends as state machines, without threads, clock or Ray; each for one thread at a time.

Which rows the host has is a sequence of versions, agreed between both ends:

    host -> workers   Update{version n + 1, ids that came, ids that go}, once the rows that come are there
    worker -> host    Heard{n + 1, the number of its first group under n + 1}
    worker -> host    groups, with the version and a number of their own (Stamp)

    kSettled -> kAnnounced [received, with rows to keep]
    kAnnounced -> kSettled [heard, received or void, by the last of: each worker heard, each of its groups before that came]

The host has the rows of both versions until n + 1 is settled, and announces no other meanwhile. So whatever is delayed,
reordered or repeated between them, a group finds the rows that its worker counted on. Rows leave by LRU.

Where groups are known beforehand, there are no versions and no messages: _belady.py.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from .._errors import InternalError, UsageError
from ._groups import Group, completed, uses

_IDS = npt.NDArray[np.uint32]
_SPARE = 8  # one row in so many is room for those that come before others have gone


class Update(NamedTuple):
    """The host's announcement of a version."""

    generation: int  # of the host's cache: one that lost its rows begins another
    version: int
    base: int  # the version that it changes; 0: none, it says all that there is
    admitted: _IDS  # ascending
    evicted: _IDS  # ascending

    @property
    def nbytes(self) -> int:
        return int(self.admitted.nbytes + self.evicted.nbytes)


class Heard(NamedTuple):
    """A worker's answer: its groups from `first` on are made under the version."""

    generation: int
    worker: int
    life: int  # how many workers there were in its place before
    version: int
    first: int


class Stamp(NamedTuple):
    """What a group was made under."""

    generation: int
    worker: int
    life: int
    number: int  # among its worker's groups for the host
    version: int


class Place(NamedTuple):
    """Where a group goes: what a worker is told with each piece of a tier with caches."""

    host: int
    generation: int
    position: int  # in a plan; 0 without


class Received(NamedTuple):
    """What became of a group: None where it came before, or is another life's or generation's; and what is to be announced."""

    group: Group | None
    update: Update | None


def found(ids: _IDS, among: _IDS) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """By id, whether it is among those, which ascend, and where."""
    at = np.searchsorted(among, ids).astype(np.int64)
    there = np.zeros(len(ids), np.bool_)
    inside = at < len(among)
    there[inside] = among[at[inside]] == ids[inside]
    return there, at


class HostView:
    """A preparation worker's end, for one host."""

    def __init__(self, worker: int, life: int, generation: int) -> None:
        self.generation, self._worker, self._life = generation, worker, life
        self.version = 0
        self._ids: _IDS = np.empty(0, np.uint32)  # that the host has, ascending
        self._groups = 0
        self._first = 0  # group under the version

    def hear(self, update: Update) -> Heard:
        """Takes an announcement over. One that it heard before, or that changes a version which it has not, alters nothing."""
        if update.generation == self.generation and update.version > self.version and update.base in (0, self.version):
            stay = np.empty(0, np.uint32) if update.base == 0 else np.setdiff1d(self._ids, update.evicted, assume_unique=True)
            self._ids = np.union1d(stay, update.admitted)
            self.version, self._first = update.version, self._groups
        return Heard(self.generation, self._worker, self._life, self.version, self._first)

    def known(self, ids: _IDS) -> npt.NDArray[np.bool_]:
        """By id, whether the host has its row under the version."""
        return found(ids, self._ids)[0]

    def stamp(self) -> Stamp:
        """Of one more group, made of what known() says now."""
        self._groups += 1
        return Stamp(self.generation, self._worker, self._life, self._groups - 1, self.version)


class HostCache:
    """The host's end: `capacity` rows of `dim` floats for `lives` workers, whose lives are given."""

    def __init__(self, capacity: int, dim: int, lives: Sequence[int], generation: int = 0) -> None:
        if capacity < 2:
            raise UsageError(f"a feature cache of {capacity} rows: 2 at least, one of which is room for a row that comes")
        self._generation = generation
        self._capacity = capacity
        self._rows = np.zeros((capacity, dim), np.float32)
        self._free: npt.NDArray[np.int64] = np.arange(capacity, dtype=np.int64)  # slots
        # The rows that are here, by ascending id, and where each lies.
        self._ids: _IDS = np.empty(0, np.uint32)
        self._slots: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._used: npt.NDArray[np.int64] = np.empty(0, np.int64)  # the group that used it last
        self._leaving: npt.NDArray[np.bool_] = np.empty(0, np.bool_)  # gone in the version that is announced
        self._groups = 0
        self.version = 0
        # By worker: its life; the version that it heard, and its first group under it; the groups that came: all below a
        # number, and some behind it.
        self._lives = list(lives)
        self._heard = [0] * len(self._lives)
        self._first = [0] * len(self._lives)
        self._all_below = [0] * len(self._lives)
        self._beyond: list[set[int]] = [set() for _ in self._lives]

    @property
    def settled(self) -> bool:
        """Whether every group that is still to come was made under the version."""
        return all(heard == self.version and below >= first for heard, below, first in zip(self._heard, self._all_below, self._first))

    def received(self, stamp: Stamp, group: Group) -> Received:
        """A group, completed by the rows that its worker did not send. `InternalError` where one of them is not here: that
        would be a fault of this protocol."""
        if not self._counts(stamp):
            return Received(None, None)
        known = np.zeros(len(group.ids), np.bool_) if group.known is None else group.known
        here, at = found(group.ids, self._ids)
        if np.any(known & ~here):
            raise InternalError(f"the feature cache lacks node {group.ids[known & ~here][0]} of version {stamp.version}, which is at {self.version}")
        whole = completed(group, self._rows[self._slots[at[known]]])
        self._groups += 1
        self._used[at[here]] = self._groups
        self._saw(stamp)
        return Received(whole, self._announce(whole, ~here) if self.settled else None)

    def void(self, stamp: Stamp) -> None:
        """A group does not come."""
        if self._counts(stamp):
            self._saw(stamp)

    def heard(self, heard: Heard) -> None:
        if (heard.generation, heard.life, heard.version) == (self._generation, self._lives[heard.worker], self.version):
            self._heard[heard.worker], self._first[heard.worker] = heard.version, heard.first
            self._settle()

    def replaced(self, worker: int, life: int) -> Update | None:
        """Another worker has its place, and knows of nothing: what is to be announced to it. Groups of the one before count
        no more."""
        if life <= self._lives[worker]:
            return None
        self._lives[worker] = life
        self._heard[worker] = self._first[worker] = self._all_below[worker] = 0
        self._beyond[worker] = set()
        self._settle()
        return Update(self._generation, self.version, 0, self._ids[~self._leaving], np.empty(0, np.uint32)) if self.version > 0 else None

    def _counts(self, stamp: Stamp) -> bool:
        worker = stamp.worker
        return (stamp.generation, stamp.life) == (self._generation, self._lives[worker]) and not (
            stamp.number < self._all_below[worker] or stamp.number in self._beyond[worker]
        )

    def _saw(self, stamp: Stamp) -> None:
        beyond = self._beyond[stamp.worker]
        beyond.add(stamp.number)
        while self._all_below[stamp.worker] in beyond:
            beyond.remove(self._all_below[stamp.worker])
            self._all_below[stamp.worker] += 1
        self._settle()

    def _settle(self) -> None:
        """What the version evicted goes, once nobody counts on it."""
        if self.settled and np.any(self._leaving):
            self._free = np.concatenate([self._free, self._slots[self._leaving]])
            self._keep(~self._leaving)

    def _keep(self, these: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> None:
        self._ids, self._slots, self._used, self._leaving = self._ids[these], self._slots[these], self._used[these], self._leaving[these]

    def _announce(self, whole: Group, new: npt.NDArray[np.bool_]) -> Update | None:
        """Keeps rows of the group in hand, the most used ones first, in the place of those that were used the longest ago."""
        older = np.flatnonzero(self._used < self._groups)
        target = self._capacity - max(1, self._capacity // _SPARE)
        count = min(int(np.count_nonzero(new)), len(self._free), target - len(self._ids) + len(older))
        if count <= 0:
            return None
        candidates = np.flatnonzero(new)
        chosen = np.sort(candidates[np.lexsort((candidates, -uses(whole)[candidates]))[:count]])
        leaving = older[np.argsort(self._used[older], kind="stable")[: max(0, len(self._ids) + count - target)]]
        self._leaving[leaving] = True
        update = Update(self._generation, self.version + 1, self.version, whole.ids[chosen], self._ids[leaving])
        slots, self._free = self._free[:count], self._free[count:]
        self._rows[slots] = whole.rows[chosen]
        self._ids = np.concatenate([self._ids, update.admitted])
        self._slots = np.concatenate([self._slots, slots])
        self._used = np.concatenate([self._used, np.full(count, self._groups, np.int64)])
        self._leaving = np.concatenate([self._leaving, np.zeros(count, np.bool_)])
        self._keep(np.argsort(self._ids))
        self.version += 1
        return update
