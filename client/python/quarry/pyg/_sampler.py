"""The engine's sampler as a BaseSampler of PyG's. Importing this imports torch_geometric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)

from .. import _quarry
from .._database import Database, direction_of
from .._errors import Unsupported, UsageError
from .._values import ids_of
from ._hetero import refuse_types
from ._loader import fanouts_of

if TYPE_CHECKING:
    from ._stores import FeatureStore, GraphStore

# Options of PyG's NeighborSampler, with the only value that there is yet.
ONLY = {
    "replace": False,
    "subgraph_type": "directional",
    "disjoint": False,
    "temporal_strategy": "uniform",
    "time_attr": None,
    "weight_attr": None,
    "sample_direction": "forward",
}
# Where there is something in the place of an option.
_INSTEAD = {
    "replace": "quarry.pyg.Loader has it",
    "weight_attr": "quarry.pyg.Loader(weighted=True) draws by the weights of the database's edges",
    "sample_direction": "direction='out' follows edges the other way",
}


class NeighborSampler(BaseSampler):
    """Samples neighbors of nodes, or of the ends of edges, by the engine's sampler: PyG's needs pyg-lib.

    data            the database, or a pair of FeatureStore and GraphStore of one
    num_neighbors   neighbors a hop, from the seeds outwards: 1 to 1024 (where PyG has -1, say 1024); each at most
                    once, uniformly
    direction       "in": from the sources of a node's edges to it, as in PyG; "out", "both"

    For every loader of PyG's that takes a BaseSampler: NeighborLoader(..., neighbor_sampler=sampler). An output has
    node (the seeds first), row and col (int64, from neighbor to node, as positions in node), edge (positions in
    `db.edges()`; None where the direction is not "in"), num_sampled_nodes, num_sampled_edges, and the metadata that
    PyG's NodeLoader and LinkLoader read. torch.manual_seed repeats the samples. Negatives are drawn uniformly or by
    weight among all nodes, so that some may be edges, as in PyG. Seed edges are not left out of the sampled ones.

    Nothing is kept from call to call; threads may share it. What cannot be done raises NotImplementedError.
    """

    def __init__(
        self,
        data: Database | tuple[FeatureStore, GraphStore],
        num_neighbors: Sequence[int],
        *,
        direction: str = "in",
        topology: str = "graph",
        **others: Any,
    ) -> None:
        for name, value in others.items():
            if name not in ONLY:
                raise TypeError(f"NeighborSampler has no argument {name!r}")
            if getattr(value, "value", value) != ONLY[name]:
                raise Unsupported(f"NeighborSampler has no {name}={value!r}, only {ONLY[name]!r}" + (f"; {_INSTEAD[name]}" if name in _INSTEAD else ""))
        self.num_neighbors = fanouts_of(num_neighbors)
        self.db = data if isinstance(data, Database) else data[1].db
        refuse_types(self.db, "a NeighborSampler")
        self.num_nodes = self.db.num_nodes
        self._direction = direction_of(direction)
        self._topology = topology

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """Neighborhoods of the nodes. The first of `node` are the seeds as they were given; one that is given twice
        is there twice, with the same neighbors."""
        self._refuse(index)
        seeds = index.node.to(torch.int64).numpy()
        first = np.unique(seeds, return_index=True)[1]
        if len(first) == len(seeds):
            out = self._sample(seeds)
        else:
            out = _repeat_seeds(self._sample(seeds[np.sort(first)]), seeds)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """Neighborhoods of the ends of the edges and of the negatives, each end sampled once."""
        self._refuse(index)
        positives = index.row.numel()
        ends, label = [index.row, index.col], index.label
        if neg_sampling is not None:
            negatives = math.ceil(positives * neg_sampling.amount)
            drawn = neg_sampling.sample(negatives, "dst", self.num_nodes)
            if neg_sampling.is_triplet():
                if label is not None:
                    raise UsageError("edge_label with triplets: which of them are edges is told by src_index, dst_pos_index and dst_neg_index")
                ends.append(drawn)
            else:
                ends = [index.row, neg_sampling.sample(negatives, "src", self.num_nodes), index.col, drawn]
                label = torch.ones(positives) if label is None else label
                label = torch.cat([label, label.new_zeros((negatives, *label.shape[1:]))])
        seeds, position = torch.cat(ends).unique(return_inverse=True)
        out = self._sample(seeds.numpy())
        if neg_sampling is not None and neg_sampling.is_triplet():
            source, target, negative = position[:positives], position[positives : 2 * positives], position[2 * positives :]
            out.metadata = (index.input_id, source, target, negative.view(positives, -1).squeeze(-1), None)
        else:
            out.metadata = (index.input_id, position.view(2, -1), label, None)
        return out

    def _refuse(self, index: NodeSamplerInput | EdgeSamplerInput) -> None:
        if index.time is not None:
            raise Unsupported("NeighborSampler has no times of seeds")
        if index.input_type is not None:
            raise Unsupported(f"seeds of type {index.input_type!r}: a database has one type of nodes and edges; give seeds without a type")

    def _sample(self, seeds: npt.NDArray[np.int64]) -> SamplerOutput:
        """The neighborhoods of seeds that differ."""
        stream_seed = int(torch.randint(2**63 - 1, ()))
        wanted = ids_of(seeds, self.num_nodes, "seeds")
        raw = _quarry.sample(self.db._store, self._topology, wanted, self.num_neighbors, self._direction, stream_seed)
        block, n_id, _, _, edge_ids, num_nodes, num_edges, _ = raw.pyg_block().arrays()
        if edge_ids is None and raw.edge_count == 0:
            edge_ids = np.empty(0, np.int64)  # else there are none along other directions than "in"
        node, edge_index = torch.from_numpy(n_id), torch.from_numpy(block)
        edge = None if edge_ids is None else torch.from_numpy(edge_ids)
        return SamplerOutput(node, edge_index[0], edge_index[1], edge, num_sampled_nodes=num_nodes, num_sampled_edges=num_edges)


def _repeat_seeds(out: SamplerOutput, seeds: npt.NDArray[np.int64]) -> SamplerOutput:
    """`out`, sampled from each of `seeds` once in the order of their first appearance, with a copy of a seed's node
    and of its edges wherever `seeds` repeats it."""
    _, first, inverse = np.unique(seeds, return_index=True, return_inverse=True)
    order = np.argsort(first)  # sampled seed -> unique value
    sampled_of_value = np.argsort(order)
    sampled = sampled_of_value[inverse]  # seed -> sampled seed
    count, added = len(first), len(seeds) - len(first)
    # Where each node of `out` is now: a seed where it first appears, the others behind all seeds.
    moved = np.concatenate([first[order], np.arange(count, len(out.node)) + added])
    # The first hop's edges, those of each seed together, lead to sampled seeds in ascending order.
    edges = out.num_sampled_edges[0]
    degree = np.bincount(out.col[:edges].numpy(), minlength=count)
    start = np.cumsum(degree) - degree
    repeated = degree[sampled]
    within = np.arange(repeated.sum()) - np.repeat(np.cumsum(repeated) - repeated, repeated)
    taken = torch.from_numpy(np.concatenate([np.repeat(start[sampled], repeated) + within, np.arange(edges, len(out.row))]))
    col = np.concatenate([np.repeat(np.arange(len(seeds)), repeated), moved[out.col[edges:].numpy()]])
    return SamplerOutput(
        node=torch.cat([torch.from_numpy(seeds), out.node[count:]]),
        row=torch.from_numpy(moved)[out.row[taken]],
        col=torch.from_numpy(col),
        edge=None if out.edge is None else out.edge[taken],
        num_sampled_nodes=[len(seeds), *out.num_sampled_nodes[1:]],
        num_sampled_edges=[int(repeated.sum()), *out.num_sampled_edges[1:]],
    )
