"""Mini-batch grouping (Armada, Waleffe §6.2): the batches of the trainers of one host travel together, and the row of a node
that several of them have travels once, or not at all where the host has it in its feature cache."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from .._batches import Batch


class Member(NamedTuple):
    """One mini-batch of a group: its block, as `quarry.Batch` has it, with positions in the group's union for nodes."""

    slots: npt.NDArray[np.int32]  # by node of the batch, its place in `Group.ids`
    hop_offsets: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]
    indices: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int64]


class Group(NamedTuple):
    """Mini-batches over one array of rows: a value without owner, which Ray keeps in shared memory on a host that has it."""

    ids: npt.NDArray[np.uint32]  # nodes of all of them, each once, ascending
    rows: npt.NDArray[np.float32]  # features, by id; where the host has some in its cache, of the other ids alone
    members: list[Member]
    known: npt.NDArray[np.bool_] | None = None  # by id, whether the host has its row; None: whole, all rows are here
    slots: npt.NDArray[np.int32] | None = None  # of a plan (_belady.py), by id: where the host has its row, or keeps it


def union_of(nodes: Sequence[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
    """Ids of a group whose batches have these nodes."""
    return np.unique(np.concatenate(nodes))


def pack(batches: Sequence[Batch], known: npt.NDArray[np.bool_] | None = None, slots: npt.NDArray[np.int32] | None = None) -> Group:
    """The group of these batches, which have features; without the rows that are `known`, by id of their union."""
    ids, first, which = np.unique(np.concatenate([batch.nodes for batch in batches]), return_index=True, return_inverse=True)
    places: npt.NDArray[np.int32] = which.reshape(-1).astype(np.int32)
    sent = np.ones(len(ids), np.bool_) if known is None else ~known
    at = np.cumsum(sent) - 1  # of an id whose row is sent, the row's place
    parts = [batch.x for batch in batches]
    rows = np.empty((int(np.count_nonzero(sent)), parts[0].shape[1] if parts[0] is not None else 0), np.float32)
    members, offset = [], 0
    for batch, part in zip(batches, parts):
        end = offset + len(batch.nodes)
        if part is not None:
            mine = (first >= offset) & (first < end) & sent  # rows that no batch before this one has
            rows[at[mine]] = part[first[mine] - offset]
        members.append(Member(places[offset:end].copy(), batch.hop_offsets, batch.indptr, batch.indices, batch.labels))
        offset = end
    return Group(ids, rows, members, known, slots)


def completed(group: Group, rows_of_known: npt.NDArray[np.float32]) -> Group:
    """The whole group, by the rows that were not sent."""
    if group.known is None:
        return group
    rows = np.empty((len(group.ids), group.rows.shape[1]), np.float32)
    rows[group.known] = rows_of_known
    rows[~group.known] = group.rows
    return Group(group.ids, rows, group.members)


def uses(group: Group) -> npt.NDArray[np.int64]:
    """By id, how many edges of the group's blocks read its row."""
    ends = [member.slots[member.indices] for member in group.members]
    return np.bincount(np.concatenate(ends), minlength=len(group.ids)).astype(np.int64)


def unpacked(group: Group, member: int) -> dict[str, Any]:
    """What PyG's loaders give of a mini-batch of a whole group, as NumPy arrays of its own, but for `y`."""
    of = group.members[member]
    targets = len(of.indptr) - 1
    edge_index = np.empty((2, len(of.indices)), np.int64)
    edge_index[0] = of.indices
    edge_index[1] = np.repeat(np.arange(targets), np.diff(of.indptr))
    return {
        "x": np.take(group.rows, of.slots, axis=0),
        "edge_index": edge_index,
        "n_id": group.ids[of.slots].astype(np.int64),
        "y": of.labels.astype(np.int64, copy=True),
        "batch_size": int(of.hop_offsets[0]),
        "num_sampled_nodes": np.diff(of.hop_offsets, prepend=0).tolist(),
        "num_sampled_edges": np.diff(of.indptr[of.hop_offsets[:-1]], prepend=0).tolist(),
    }


def empty(dim: int, hops: int) -> dict[str, Any]:
    """A mini-batch of no seeds: what a trainer has in the last step of an epoch where there are fewer batches than trainers."""
    return {
        "x": np.empty((0, dim), np.float32),
        "edge_index": np.empty((2, 0), np.int64),
        "n_id": np.empty(0, np.int64),
        "y": np.empty(0, np.int64),
        "batch_size": 0,
        "num_sampled_nodes": [0] * (hops + 1),
        "num_sampled_edges": [0] * hops,
    }
