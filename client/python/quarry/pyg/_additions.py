"""What a `Loader` adds to its batches beside what the engine makes of them: functions of a batch, called before the transform
that was given to it, on the thread that makes batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from .._errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._database import Database, NodeType, Table
    from ._hetero import EdgePlaces, Types

    EdgeType = tuple[str, str, str]

Addition = Callable[[Any], Any]


# Group of the attributes of edges where there is one type of them. Those of nodes have the group None.
EDGE = ("node", "to", "node")


class EdgeAttributes:
    """Arrays or tensors by edge, of a database with types for each type of edges by itself: row i is the i-th edge's, in the order
    of `db.edges()`. Immutable; threads may share it."""

    def __init__(self, db: Database, edge_attrs: Mapping[Any, Any] | None, types: Types | None) -> None:
        self.by_type: dict[EdgeType, dict[str, Any]] = {}
        self._places: dict[EdgeType, EdgePlaces] | None = None
        if not edge_attrs:
            return
        if types is None:
            self.by_type[EDGE] = self._checked(edge_attrs, db.num_edges, "")
            return
        for edge_type, attrs in edge_attrs.items():
            if not isinstance(attrs, Mapping):
                raise UsageError(f"edge_attrs of a database with types: arrays by type of edges, as {{{types.edges[0]}: {{{edge_type!r}: array}}}}")
            self.by_type[types.edge_type(edge_type, "edge_attrs")] = dict(attrs)
        self._places = types.edge_places(list(self.by_type))
        for edge_type, attrs in self.by_type.items():
            self._checked(attrs, self._places[edge_type].count, f" of {edge_type}")

    @staticmethod
    def _checked(attrs: Mapping[str, Any], edges: int, of_type: str) -> dict[str, Any]:
        for name, values in attrs.items():
            if len(values) != edges:
                raise UsageError(f"edge attribute {name!r}{of_type} has {len(values)} rows for {edges} edges")
        return dict(attrs)

    def __bool__(self) -> bool:
        return bool(self.by_type)

    def places(self, edge_type: EdgeType, e_id: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Rows of the attributes of edges, whose ids are columns of `db.edges()`."""
        return e_id if self._places is None else self._places[edge_type].of(e_id)

    def add(self, data: Any) -> Any:
        """Puts those of a batch's edges, which it names by e_id, beside them."""
        import torch

        for edge_type, attrs in self.by_type.items():
            edges = data if self._places is None else data[edge_type]
            if "e_id" not in edges:  # there are no edges
                edges.e_id = torch.empty(0, dtype=torch.int64)
            at = self.places(edge_type, edges.e_id.cpu().numpy())
            for name, values in attrs.items():
                edges[name] = rows_by_id(values, at).to(edges.e_id.device)
        return data


def rows_by_id(values: Any, ids: Any) -> Any:
    """A tensor of the rows of an array or tensor; a memory-mapped array is read at these rows alone."""
    import torch

    if isinstance(values, torch.Tensor):
        return values[torch.from_numpy(ids) if isinstance(ids, np.ndarray) else ids]
    return torch.from_numpy(np.array(values[ids]))


def targets_of_seeds(table: Table, seed_type: NodeType | None = None) -> Addition:
    """y of a database whose nodes have numbers to learn instead of a class; with types, of nodes of one."""

    def add(data: Any) -> Any:
        import torch

        seeds = data if seed_type is None else data[seed_type.name]
        nodes = seeds.n_id[: seeds.batch_size].cpu().numpy()
        rows = table[nodes if seed_type is None else seed_type.ids(nodes)]
        seeds.y = torch.from_numpy(rows.astype(np.float32, copy=False)).to(seeds.n_id.device)
        return data

    return add


def adjacency(data: Any) -> Any:
    """adj_t in the place of edge_index, of a Data or of every type of edges of a HeteroData: torch.sparse_csr, a row for each
    node as a target. An edge that was drawn several times has that number, another 1."""
    import torch

    for edges in data.edge_stores:
        source, target = edges.edge_index
        types = edges._key
        nodes = [len(data.n_id)] * 2 if types is None else [data[types[2]].num_nodes, data[types[0]].num_nodes]
        drawn = torch.ones(len(source), device=source.device)
        edges.adj_t = torch.sparse_coo_tensor(torch.stack([target, source]), drawn, nodes).coalesce().to_sparse_csr()
        del edges.edge_index
    return data


def in_turn(*additions: Addition | None) -> Addition | None:
    """One function that calls all of these which are not None."""
    called = [addition for addition in additions if addition is not None]
    if len(called) < 2:
        return called[0] if called else None

    def add(data: Any) -> Any:
        for addition in called:
            data = addition(data)
        return data

    return add
