"""What a `Loader` adds to its batches beside what the engine makes of them: functions of a batch, called before the transform
that was given to it, on the thread that makes batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping

import numpy as np

from .._errors import UsageError

if TYPE_CHECKING:
    from .._database import Database, Table

Addition = Callable[[Any], Any]


def checked_edge_attrs(db: Database, edge_attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arrays or tensors by edge id, the edge's position in `db.edges()`."""
    attrs = dict(edge_attrs or {})
    edges = db.num_edges if attrs else 0
    for name, values in attrs.items():
        if len(values) != edges:
            raise UsageError(f"edge attribute {name!r} has {len(values)} rows for {edges} edges")
    return attrs


def rows_by_id(values: Any, ids: Any) -> Any:
    """A tensor of the rows of an array or tensor; a memory-mapped array is read at these rows alone."""
    import torch

    if isinstance(values, torch.Tensor):
        return values[torch.from_numpy(ids) if isinstance(ids, np.ndarray) else ids]
    return torch.from_numpy(np.array(values[ids]))


def edge_attributes(attrs: Mapping[str, Any]) -> Addition:
    """Attributes of the edges that a batch names by e_id."""

    def add(data: Any) -> Any:
        ids = data.e_id.cpu().numpy()
        for name, values in attrs.items():
            data[name] = rows_by_id(values, ids).to(data.e_id.device)
        return data

    return add


def targets_of_seeds(table: Table, seed_type: str | None = None, first: int = 0) -> Addition:
    """y of a database whose nodes have numbers to learn instead of a class; with types, of nodes of one, from `first` on."""

    def add(data: Any) -> Any:
        import torch

        seeds = data if seed_type is None else data[seed_type]
        rows = table[seeds.n_id[: seeds.batch_size].cpu().numpy() + first]
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
