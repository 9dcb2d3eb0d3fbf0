"""The feature cache of a host whose groups are known beforehand: which rows it keeps is planned by their next uses (Belady), a
pure function of the groups. Each group says where its rows are and go; nothing else passes between worker and host."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from .._errors import InternalError, UsageError
from ._groups import Group, completed, union_of
from ._schedule import Piece


class Trace(NamedTuple):
    """Nodes of each batch of a share, one behind the other."""

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]

    def of(self, batch: int) -> npt.NDArray[np.uint32]:
        return self.ids[self.offsets[batch] : self.offsets[batch + 1]]


class Choices(NamedTuple):
    """What is decided for each group, one behind the other."""

    offsets: npt.NDArray[np.int64]  # of each group's ids
    known: npt.NDArray[np.bool_]  # by id, whether the host has its row
    slots: npt.NDArray[np.int32]  # by id: of a known row where it is, of another one where it goes; -1: it is not kept

    def of(self, position: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
        here = slice(self.offsets[position], self.offsets[position + 1])
        return self.known[here], self.slots[here]


def choose(groups: Sequence[npt.NDArray[np.uint32]], capacity: int) -> Choices:
    """The choices for groups of these ids (each once in a group), in the order of their use, by a cache that is empty before
    the first. Behind each group it keeps those rows, of its own and of the group's, that are used again the soonest (among
    equals the lower ids). No other way to keep `capacity` rows sends fewer: a row that is kept instead of one that is used
    sooner saves what that one would have saved, and later."""
    if capacity < 1:
        raise UsageError(f"a feature cache of {capacity} rows: one at least")
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in groups])]).astype(np.int64)
    nodes, which = np.unique(np.concatenate([*groups, np.empty(0, np.uint32)]), return_inverse=True)
    which = which.reshape(-1)
    never = len(groups)
    group_of = np.repeat(np.arange(len(groups)), np.diff(offsets))
    order = np.argsort(which, kind="stable")  # uses of a node behind each other
    next_use = np.full(len(which), never, np.int64)
    again = which[order[:-1]] == which[order[1:]]
    next_use[order[:-1][again]] = group_of[order[1:][again]]
    known = np.zeros(len(which), np.bool_)
    slots = np.full(len(which), -1, np.int32)
    slot_of = np.full(len(nodes), -1, np.int32)
    used_at = np.full(len(nodes), never, np.int64)  # next, of what is held
    stays = np.zeros(len(nodes), np.bool_)
    held = np.empty(0, np.int64)
    free = np.arange(min(capacity, len(nodes)), dtype=np.int32)[::-1]
    for group in range(len(groups)):
        here = slice(offsets[group], offsets[group + 1])
        ids = which[here]
        has = slot_of[ids] >= 0
        known[here], slots[here] = has, slot_of[ids]
        used_at[ids] = next_use[here]
        wanted = np.concatenate([held, ids[~has]])
        wanted = wanted[used_at[wanted] < never]
        if len(wanted) > capacity:
            wanted = wanted[np.argpartition(used_at[wanted] * len(nodes) + wanted, capacity - 1)[:capacity]]
        stays[wanted] = True
        gone, come = held[~stays[held]], ids[~has & stays[ids]]
        stays[wanted] = False
        free = np.concatenate([free, slot_of[gone]])
        slot_of[gone] = -1
        slot_of[come] = free[len(free) - len(come) :]
        free = free[: len(free) - len(come)]
        slots[here][~has] = slot_of[ids[~has]]
        held = wanted
    return Choices(offsets, known, slots)


def chosen(capacity: int, pieces: Sequence[Piece], *traces: Trace) -> Choices:
    """The choices for these pieces. `traces`: by share."""
    unions = [union_of([traces[piece.share].of(batch) for batch in range(piece.first, piece.first + piece.batches)]) for piece in pieces]
    return choose(unions, capacity)


class PlannedCache:
    """The host's end."""

    def __init__(self, capacity: int, dim: int) -> None:
        self._rows = np.zeros((capacity, dim), np.float32)
        self._next = 0

    def received(self, position: int, group: Group) -> Group:
        """The group at a position of the plan, completed; each once, in their order."""
        if position != self._next or group.known is None or group.slots is None:
            raise InternalError(f"group {position} of the feature cache's plan comes where {self._next} does")
        self._next += 1
        whole = completed(group, self._rows[group.slots[group.known]])
        come = ~group.known & (group.slots >= 0)
        self._rows[group.slots[come]] = whole.rows[come]
        return whole
