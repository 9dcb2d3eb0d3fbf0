"""The engine's sampler as a BaseSampler of PyG's. Importing this imports torch_geometric."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)

from .._database import Database, direction_of
from .._errors import Unsupported, UsageError
from .._values import ids_of
from ._hetero import Types
from ._loader import fanouts_of

if TYPE_CHECKING:
    from ._stores import FeatureStore, GraphStore

    EdgeType = tuple[str, str, str]
    Ints = npt.NDArray[np.int64]

# Options of PyG's NeighborSampler, with the only value that there is yet.
ONLY = {
    "subgraph_type": "directional",
    "disjoint": False,
    "temporal_strategy": "uniform",
    "time_attr": None,
    "weight_attr": None,
    "sample_direction": "forward",
}
# Where there is something in the place of an option.
_INSTEAD = {
    "weight_attr": "weighted=True draws by the weights of the database's edges",
    "sample_direction": "direction='out' follows edges the other way",
}


class NeighborSampler(BaseSampler):
    """Samples neighbors of nodes, or of the ends of edges, by the engine's sampler: PyG's needs pyg-lib.

    data            the database, or a pair of FeatureStore and GraphStore of one
    num_neighbors   neighbors a hop, from the seeds outwards: 1 to 1024, or -1 for all, where no node has more than that;
                    each at most once, uniformly. Of a database with types, a list for all types of edges, or a dict of
                    lists by (source, name, destination), from 0 on; types that are left out are not followed
    replace         neighbors are drawn independently, as many as num_neighbors says
    direction       "in": from the sources of a node's edges to it, as in PyG; "out", "both". With types "in" alone
    weighted        neighbors are drawn with probability proportional to the weights of the database's edges; those of weight 0
                    never, by -1 neither. Not with types

    For every loader of PyG's that takes a BaseSampler: NeighborLoader(..., neighbor_sampler=sampler). An output has
    node (the seeds first), row and col (int64, from neighbor to node, as positions in node), edge (positions in
    `db.edges()`; None where the direction is not "in"), num_sampled_nodes, num_sampled_edges, and the metadata that
    PyG's NodeLoader and LinkLoader read. From a database with types it is a HeteroSamplerOutput, with all of these by type,
    ids of nodes from 0 on in theirs; every type is there, empty or not. Inputs then say their input_type: the seeds' type, or
    that of the edges whose ends are seeds. torch.manual_seed repeats the samples. Negatives are drawn uniformly or by
    weight among all nodes (of the type), so that some may be edges, as in PyG. Seed edges are not left out of the sampled
    ones.

    Nothing is kept from call to call; threads may share it. What cannot be done raises NotImplementedError.
    """

    def __init__(
        self,
        data: Database | tuple[FeatureStore, GraphStore],
        num_neighbors: Sequence[int] | dict[EdgeType, Sequence[int]],
        *,
        replace: bool = False,
        weighted: bool = False,
        direction: str = "in",
        topology: str = "graph",
        **others: Any,
    ) -> None:
        for name, value in others.items():
            if name not in ONLY:
                raise TypeError(f"NeighborSampler has no argument {name!r}")
            if getattr(value, "value", value) != ONLY[name]:
                raise Unsupported(f"NeighborSampler has no {name}={value!r}, only {ONLY[name]!r}" + (f"; {_INSTEAD[name]}" if name in _INSTEAD else ""))
        self.db = data if isinstance(data, Database) else data[1].db
        direction_of(direction)
        self.types = Types.of(self.db)
        self._draws: dict[str, Any] = {"direction": direction, "topology": topology, "replace": replace, "weighted": weighted}
        if self.types is None:
            self.num_neighbors: Any = fanouts_of(num_neighbors)
            self._fanouts: list[int] = self.num_neighbors
            self.num_nodes: Any = self.db.num_nodes
        else:
            by_relation = self.types.by_relation(num_neighbors)
            self.num_neighbors = dict(zip(self.types.edges, by_relation))
            self._fanouts = [-1] * len(by_relation[0])
            self._draws["relation_fanouts"] = [fanouts[hop] for hop in range(len(by_relation[0])) for fanouts in by_relation]
            self.num_nodes = {type_.name: type_.num_nodes for type_ in self.types.nodes}

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """Neighborhoods of the nodes. The first of `node` (of their type) are the seeds as they were given; one that is given
        twice is there twice, with the same neighbors."""
        self._check_time(index)
        type_ = self._type_of_nodes(index.input_type)
        seeds = index.node.to(torch.int64).numpy()
        once = _once(seeds)
        out = self._sample([(type_, once)])
        if len(once) != len(seeds):
            out = _repeat_seeds(out, seeds, type_)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput | HeteroSamplerOutput:
        """Neighborhoods of the ends of the edges and of the negatives, each end sampled once."""
        self._check_time(index)
        source, destination = self._types_of_edges(index.input_type)
        positives = index.row.numel()
        rows, cols, label = [index.row], [index.col], index.label
        if neg_sampling is not None:
            negatives = math.ceil(positives * neg_sampling.amount)
            if neg_sampling.is_binary():
                rows.append(neg_sampling.sample(negatives, "src", self._count(source)))
                label = torch.ones(positives) if label is None else label
                label = torch.cat([label, label.new_zeros((negatives, *label.shape[1:]))])
            elif label is not None:
                raise UsageError("edge_label with triplets: which of them are edges is told by src_index, dst_pos_index and dst_neg_index")
            cols.append(neg_sampling.sample(negatives, "dst", self._count(destination)))
        row, col = torch.cat(rows), torch.cat(cols)
        if source == destination:
            seeds, at = torch.cat([row, col]).unique(return_inverse=True)
            row, col = at[: len(row)], at[len(row) :]
            out = self._sample([(source, seeds.numpy())])
        else:
            sources, row = row.unique(return_inverse=True)
            destinations, col = col.unique(return_inverse=True)
            out = self._sample([(source, sources.numpy()), (destination, destinations.numpy())])
        if neg_sampling is not None and neg_sampling.is_triplet():
            out.metadata = (index.input_id, row, col[:positives], col[positives:].view(positives, -1).squeeze(-1), None)
        else:
            out.metadata = (index.input_id, torch.stack([row, col]), label, None)
        return out

    def _check_time(self, index: NodeSamplerInput | EdgeSamplerInput) -> None:
        if index.time is not None:
            raise Unsupported("NeighborSampler has no times of seeds")

    def _type_of_nodes(self, given: Any) -> str | None:
        """None where there is one."""
        if self.types is not None:
            return self.types.by_name(given, "seeds").name
        if given is not None:
            raise Unsupported(f"seeds of type {given!r}: a database has one type of nodes and edges; give seeds without a type")
        return None

    def _types_of_edges(self, given: Any) -> tuple[str | None, str | None]:
        if self.types is None:
            return self._type_of_nodes(given), None
        source, _, destination = self.types.edge_type(given, "edges")
        return source, destination

    def _count(self, type_: str | None) -> int:
        return int(self.num_nodes if type_ is None else self.num_nodes[type_])

    def _sample(self, seeds: list[tuple[str | None, Ints]]) -> SamplerOutput | HeteroSamplerOutput:
        """The neighborhoods of seeds of different types, which differ within each."""
        stream_seed = int(torch.randint(2**63 - 1, ()))
        ids = [ids_of(given, self._count(type_), "seeds") for type_, given in seeds]
        if self.types is None:
            raw = self.db._sampled(ids[0], self._fanouts, stream_seed, **self._draws)
            block, n_id, _, _, edge_ids, num_nodes, num_edges, _ = raw.pyg_block().arrays()
            if edge_ids is None and raw.edge_count == 0:
                edge_ids = np.empty(0, np.int64)  # else there are none along other directions than "in"
            node, edge_index = torch.from_numpy(n_id), torch.from_numpy(block)
            edge = None if edge_ids is None else torch.from_numpy(edge_ids)
            return SamplerOutput(node, edge_index[0], edge_index[1], edge, num_sampled_nodes=num_nodes, num_sampled_edges=num_edges)
        nodes_of = [self.types.by_name(type_, "seeds").ids(part).astype(np.uint32) for part, (type_, _) in zip(ids, seeds)]
        raw = self.db._sampled(np.concatenate(nodes_of), self._fanouts, stream_seed, **self._draws)
        made = raw.hetero_block(self.types.raw, 0, None)
        nodes, edges = dict(zip(self.types.names, made["nodes"])), dict(zip(self.types.edges, made["edges"]))
        return HeteroSamplerOutput(
            node={name: torch.from_numpy(n_id) for name, (n_id, _, _) in nodes.items()},
            row={edge_type: torch.from_numpy(edge_index[0]) for edge_type, (edge_index, _, _) in edges.items()},
            col={edge_type: torch.from_numpy(edge_index[1]) for edge_type, (edge_index, _, _) in edges.items()},
            edge={edge_type: torch.from_numpy(np.empty(0, np.int64) if e_id is None else e_id) for edge_type, (_, e_id, _) in edges.items()},
            num_sampled_nodes={name: counts for name, (_, _, counts) in nodes.items()},
            num_sampled_edges={edge_type: counts for edge_type, (_, _, counts) in edges.items()},
        )


def _once(seeds: Ints) -> Ints:
    """Each of them where it first appears."""
    first = np.unique(seeds, return_index=True)[1]
    return seeds if len(first) == len(seeds) else seeds[np.sort(first)]


class _Repeated:
    """What becomes of a sample from _once(seeds) where each of `seeds` has a node of its own, with the same neighbors."""

    def __init__(self, seeds: Ints, nodes: int) -> None:
        _, first, inverse = np.unique(seeds, return_index=True, return_inverse=True)
        order = np.argsort(first)  # sampled seed -> unique value
        self._seeds = seeds
        self._sampled = np.argsort(order)[inverse]  # seed -> sampled seed
        self._count = len(first)
        # Where each node of the sample is now: a seed where it first appears, the others behind all seeds.
        self._moved = np.concatenate([first[order], np.arange(self._count, nodes) + len(seeds) - self._count])

    def nodes(self, node: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.from_numpy(self._seeds), node[self._count :]])

    def ends(self, positions: torch.Tensor) -> torch.Tensor:
        """Where nodes of the sample, seeds where they first appear, are now."""
        return torch.from_numpy(self._moved)[positions]

    def edges_into(self, col: torch.Tensor, of_first_hop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Which edges of the sample are taken, again for a seed that is there again, and where each leads to. The first hop's,
        those of each seed together, lead to sampled seeds in ascending order."""
        degree = np.bincount(col[:of_first_hop].numpy(), minlength=self._count)
        start = np.cumsum(degree) - degree
        repeated = degree[self._sampled]
        within = np.arange(repeated.sum()) - np.repeat(np.cumsum(repeated) - repeated, repeated)
        taken = np.concatenate([np.repeat(start[self._sampled], repeated) + within, np.arange(of_first_hop, len(col))])
        leads_to = np.concatenate([np.repeat(np.arange(len(self._seeds)), repeated), self._moved[col[of_first_hop:].numpy()]])
        return torch.from_numpy(taken), torch.from_numpy(leads_to)


@dataclasses.dataclass
class _Edges:
    row: torch.Tensor
    col: torch.Tensor
    edge: torch.Tensor | None
    by_hop: list[int]

    def repeated(self, sources: _Repeated | None, destinations: _Repeated | None) -> _Edges:
        """Of edges from nodes and to nodes some of which are there again; None: none are, of that type."""
        row, col, edge, by_hop = self.row, self.col, self.edge, self.by_hop
        if destinations is not None:
            taken, col = destinations.edges_into(col, by_hop[0])
            by_hop = [len(taken) - (len(row) - by_hop[0]), *by_hop[1:]]
            row, edge = row[taken], None if edge is None else edge[taken]
        return _Edges(row if sources is None else sources.ends(row), col, edge, by_hop)


def _repeat_seeds(out: SamplerOutput | HeteroSamplerOutput, seeds: Ints, type_: str | None) -> SamplerOutput | HeteroSamplerOutput:
    """`out`, sampled from _once(seeds), nodes of the type, with a copy of a seed's node and of its edges wherever `seeds`
    repeats it."""
    if type_ is None:
        again = _Repeated(seeds, len(out.node))
        edges = _Edges(out.row, out.col, out.edge, out.num_sampled_edges).repeated(again, again)
        counts = [len(seeds), *out.num_sampled_nodes[1:]]
        return SamplerOutput(again.nodes(out.node), edges.row, edges.col, edges.edge, num_sampled_nodes=counts, num_sampled_edges=edges.by_hop)
    again = _Repeated(seeds, len(out.node[type_]))
    out.node[type_] = again.nodes(out.node[type_])
    out.num_sampled_nodes[type_] = [len(seeds), *out.num_sampled_nodes[type_][1:]]
    for key in out.row:
        edges = _Edges(out.row[key], out.col[key], out.edge[key], out.num_sampled_edges[key])
        edges = edges.repeated(*(again if end == type_ else None for end in (key[0], key[2])))
        out.row[key], out.col[key], out.edge[key], out.num_sampled_edges[key] = edges.row, edges.col, edges.edge, edges.by_hop
    return out
