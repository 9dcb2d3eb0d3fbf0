"""A database as PyG's FeatureStore and GraphStore. Importing this imports torch_geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch_geometric.data as pyg_data
from torch_geometric.data import EdgeAttr, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from .._errors import NotFound, OutOfBudget, Unsupported, UsageError
from .._values import SPLITS, bytes_text, ids_of, size
from ._hetero import array_of, refuse_types
from ._memory import available_bytes

if TYPE_CHECKING:
    from .._database import Database, Snapshot, Table

# Group of the attributes of edges. Those of nodes have the group None.
EDGE = ("node", "to", "node")

# Names that PyG's models look for, and the tables that have them; other tables go by their own names.
_ATTRIBUTES = {"feature": ("x",), "label": ("y",), "split": ("train_mask", "val_mask", "test_mask")}
_SPLIT_OF_MASK = {"train_mask": SPLITS["train"], "val_mask": SPLITS["valid"], "test_mask": SPLITS["test"]}

_EDGES_AT_A_TIME = 1 << 20


class FeatureStore(pyg_data.FeatureStore):
    """The tables of a database as attributes of its nodes, by node id.

    x           float32 or float16 [N, D], of table "feature"; rows of bfloat16 and int8 come as float32
    y           int64 [N], of table "label"; -1: none
    train_mask, val_mask, test_mask   bool [N], of table "split"

    attrs       those that get_all_tensor_attrs lists, and so those that loaders put into a batch; None: all
    snapshot    what is read; None: the newest commit, at every read
    edge_attrs  arrays or tensors by edge id, the edge's position in `db.edges()`: {"edge_attr": weights}; memory-mapped
                ones stay on disk. Their group is EDGE, and get_all_edge_tensor_attrs lists them, for NodeLoader and
                LinkLoader of quarry.pyg. get_all_tensor_attrs does not: PyG's own loaders index everything by node.

    Tensors belong to the caller, and ids may come in any order and more than once. Attributes that are asked for
    together are one read of each table. Threads may share it. An attribute that is not there raises
    `quarry.NotFound`, a KeyError.

    put_tensor and update_tensor change rows of tables that exist, in one commit. remove_tensor deletes the rows of an
    index (x reads as zeros then, y as -1, a mask as False), and refuses to drop a whole table.
    """

    def __init__(
        self,
        db: Database,
        *,
        attrs: Sequence[str] | None = None,
        snapshot: Snapshot | None = None,
        edge_attrs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        refuse_types(db, "a FeatureStore")
        self.db = db
        self._snapshot = snapshot
        self._tables: dict[str, Table] = {}  # by the name of the attribute
        for name in db.tables:
            table = (db if snapshot is None else snapshot)[name]
            self._tables.update((attribute, table) for attribute in _ATTRIBUTES.get(name, (name,)))
        self._edge_attrs = dict(edge_attrs or {})
        for attribute, values in self._edge_attrs.items():
            if len(values) != db.num_edges:
                raise UsageError(f"edge attribute {attribute!r} has {len(values)} rows for {db.num_edges} edges")
        self._listed = list(self._tables) if attrs is None else list(attrs)
        for attribute in self._listed:
            self._table(attribute)

    # ---- reading

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor | None:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[torch.Tensor | None]:
        read: dict[tuple[str, int], npt.NDArray[Any]] = {}  # by table and index
        out: list[torch.Tensor | None] = []
        for attr in attrs:
            if attr.group_name == EDGE:
                out.append(self._edge_rows(attr))
                continue
            table = self._table(attr.attr_name, attr.group_name)
            key = (table.name, id(attr.index))
            if key not in read:
                read[key] = self._rows(table, attr.index)
            out.append(_tensor_of(attr.attr_name, read[key]))
        return out

    def _rows(self, table: Table, index: Any) -> npt.NDArray[Any]:
        key = _key_of(index)
        if isinstance(key, slice):
            wanted = len(range(*key.indices(len(table)))) * table.dtype.itemsize * int(np.prod(table.shape[1:]))
            if wanted > available_bytes():
                raise OutOfBudget(
                    f"rows of table '{table.name}' take {bytes_text(wanted)}, and {bytes_text(available_bytes())} of memory are free: read them by ids, a part at a time"
                )
        return np.asarray(table[key])

    def _edge_rows(self, attr: TensorAttr) -> torch.Tensor:
        if attr.attr_name not in self._edge_attrs:
            raise NotFound(f"there is no edge attribute {attr.attr_name!r}; edge attributes are {', '.join(self._edge_attrs) or 'none'}")
        values, key = self._edge_attrs[attr.attr_name], _key_of(attr.index)
        if isinstance(values, torch.Tensor):
            return values[torch.from_numpy(key) if isinstance(key, np.ndarray) else key]
        return torch.from_numpy(np.array(values[key]))

    def _table(self, attribute: str | None, group: Any = None) -> Table:
        if group is None and attribute in self._tables:
            return self._tables[attribute]
        whose = "of nodes" if group is None else f"of group {group!r}"
        raise NotFound(f"{self.db.address}: there is no attribute {attribute!r} {whose}; group None has {', '.join(self._tables)}, group {EDGE} has {', '.join(self._edge_attrs) or 'none'}")

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        key = _key_of(attr.index)
        if attr.group_name == EDGE:
            values = self._edge_attrs.get(attr.attr_name)
            shape = None if values is None else tuple(values.shape)
        else:
            table = self._tables.get(attr.attr_name) if attr.group_name is None else None
            shape = None if table is None else table.shape
        if shape is None:
            return None
        if isinstance(key, slice):
            return (len(range(*key.indices(shape[0]))), *shape[1:])
        return (*key.shape, *shape[1:]) if key.dtype != np.bool_ else (int(key.sum()), *shape[1:])

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Attributes of nodes, without index: objects of the caller's."""
        return [TensorAttr(None, name) for name in self._listed]

    def get_all_edge_tensor_attrs(self) -> list[TensorAttr]:
        """Attributes of edges, without index: objects of the caller's."""
        return [TensorAttr(EDGE, name) for name in self._edge_attrs]

    # ---- writing

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        table = self._table_to_write(attr)
        ids = self._ids_to_write(attr)
        values = array_of(tensor)
        if isinstance(attr.index, int):
            values = values[None]
        if attr.attr_name in _SPLIT_OF_MASK:
            if values.dtype != np.bool_ or values.shape != ids.shape:
                raise UsageError(f"{attr.attr_name} of {values.dtype} {list(values.shape)}: bool [{len(ids)}] is wanted")
            values = self._splits(table, ids, attr.attr_name, values)
        elif attr.attr_name == "y" and values.dtype.kind not in "iu":
            raise UsageError(f"y of {values.dtype}: labels are integers")
        self.db.put(ids, **_rows_of(table, values))
        return True

    def update_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> bool:
        """The same as put_tensor: rows are replaced in one commit, not removed first."""
        return bool(self.put_tensor(tensor, *args, **kwargs))

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        table = self._table_to_write(attr)
        if attr.index is None or (isinstance(attr.index, slice) and attr.index == slice(None)):
            raise Unsupported(f"attribute {attr.attr_name!r} is the table '{table.name}', which is not dropped: remove_tensor with an index deletes rows")
        ids = self._ids_to_write(attr)
        rows = None
        if attr.attr_name in _SPLIT_OF_MASK:
            rows = self._splits(table, ids, attr.attr_name, np.zeros(len(ids), np.bool_))
        elif attr.attr_name == "y":
            rows = np.full(len(ids), -1)
        self.db.put(ids, **_rows_of(table, rows))
        return True

    def _splits(self, table: Table, ids: npt.NDArray[Any], mask: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Splits of the nodes once the mask has these values. A node has one split: the last mask set counts."""
        split, now = _SPLIT_OF_MASK[mask], table[ids]
        return np.where(values, split, np.where(now == split, 0, now))

    def _table_to_write(self, attr: TensorAttr) -> Table:
        if self._snapshot is not None:
            raise Unsupported("this FeatureStore reads a snapshot, which does not change: write by one without")
        if attr.group_name == EDGE:
            raise Unsupported("attributes of edges are arrays of the caller's: change them there")
        if attr.group_name is not None or attr.attr_name not in self._tables:
            raise Unsupported(
                f"{self.db.address} has no table for attribute {attr.attr_name!r} of group {attr.group_name!r}: rows of {', '.join(self._tables)} can be put. "
                "Tables are made when a database is (quarry.import_)"
            )
        return self._tables[attr.attr_name]

    def _ids_to_write(self, attr: TensorAttr) -> npt.NDArray[Any]:
        key = _key_of(attr.index)
        count = self.db.num_nodes
        return np.arange(*key.indices(count), dtype=np.int64) if isinstance(key, slice) else ids_of(key, count)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.db.address!r})"


class GraphStore(pyg_data.GraphStore):
    """The edges of a database: one type of them (None), and their number of nodes, without reading them.

    get_edge_index reads all edges, as int64 tensors of the caller's, for those who want them in memory: "coo" (row,
    col), by destination, which is the order of edge ids; "csc" (row, colptr); "csr" (rowptr, col). coo(), csc() and
    csr() give the permutation from edge ids, too, where there is one. `limit`: the most that one of them may take, as
    bytes or "4GiB" (default: what the machine and its cgroup have free); what takes more raises
    `quarry.OutOfBudget`, a MemoryError. Edges cannot be put or removed. Threads may share it.
    """

    def __init__(self, db: Database, *, topology: str = "graph", limit: int | str | None = None) -> None:
        super().__init__()
        refuse_types(db, "a GraphStore")
        self.db = db
        self._topology = topology
        self._limit = None if limit is None else size(limit, what="limit")
        self._num_nodes, self._num_edges = db.num_nodes, db.num_edges

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        return [EdgeAttr(None, EdgeLayout.CSC, is_sorted=True, size=(self._num_nodes, self._num_nodes))]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor] | None:
        if edge_attr.edge_type is not None:
            return None
        if edge_attr.layout == EdgeLayout.COO:
            return self._coo()
        return self._csc() if edge_attr.layout == EdgeLayout.CSC else self._csr()[:2]

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise Unsupported("edges of a database do not change: make a new one of the new edges (quarry.import_)")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise Unsupported("edges of a database do not change, and are not removed")

    # PyG's would convert one layout to another, for which the memory of both is needed.

    def coo(self, edge_types: Sequence[Any] | None = None, store: bool = False) -> Any:
        return self._converted((*self._coo(), None), edge_types, store)

    def csc(self, edge_types: Sequence[Any] | None = None, store: bool = False) -> Any:
        return self._converted((*self._csc(), None), edge_types, store)

    def csr(self, edge_types: Sequence[Any] | None = None, store: bool = False) -> Any:
        return self._converted(self._csr(), edge_types, store)

    @staticmethod
    def _converted(edges: tuple[Any, Any, Any], edge_types: Sequence[Any] | None, store: bool) -> Any:
        if store:
            raise Unsupported("store=True: a database serves every layout, and keeps no copies")
        if edge_types is None:
            return edges
        if any(edge_type is not None for edge_type in edge_types):
            raise NotFound(f"edge types {list(edge_types)}: there is one type, None")
        return tuple({None: part} for part in edges)

    def _coo(self) -> tuple[torch.Tensor, torch.Tensor]:
        self.check_size(16 * self._num_edges, "coo")
        row, col = np.empty(self._num_edges, np.int64), np.empty(self._num_edges, np.int64)
        for first, edges in self._parts():
            row[first : first + edges.shape[1]], col[first : first + edges.shape[1]] = edges
        return torch.from_numpy(row), torch.from_numpy(col)

    def _csc(self) -> tuple[torch.Tensor, torch.Tensor]:
        self.check_size(8 * (self._num_edges + self._num_nodes + 1), "csc")
        row, colptr = np.empty(self._num_edges, np.int64), np.zeros(self._num_nodes + 1, np.int64)
        for first, (sources, targets) in self._parts():
            row[first : first + len(sources)] = sources
            colptr[1 + int(targets[0]) : 2 + int(targets[-1])] += np.bincount(targets - targets[0])
        return torch.from_numpy(row), torch.from_numpy(np.cumsum(colptr, out=colptr))

    def _csr(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A counting sort by source, over two reads of the edges."""
        self.check_size(16 * (self._num_edges + self._num_nodes + 1), "csr")
        rowptr = np.zeros(self._num_nodes + 1, np.int64)
        for _, (sources, _) in self._parts():
            found, counts = np.unique(sources, return_counts=True)
            rowptr[1 + found.astype(np.int64)] += counts
        np.cumsum(rowptr, out=rowptr)
        col, perm = np.empty(self._num_edges, np.int64), np.empty(self._num_edges, np.int64)
        free = rowptr[:-1].copy()  # the next place of each source
        for first, (sources, targets) in self._parts():
            order = np.argsort(sources, kind="stable")
            found, starts, counts = np.unique(sources[order], return_index=True, return_counts=True)
            at = np.repeat(free[found] - starts, counts) + np.arange(len(order))
            col[at], perm[at] = targets[order], order + first
            free[found] += counts
        return torch.from_numpy(rowptr), torch.from_numpy(col), torch.from_numpy(perm)

    def _parts(self) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
        for first in range(0, self._num_edges, _EDGES_AT_A_TIME):
            yield first, self.db.edges(first, _EDGES_AT_A_TIME, self._topology)

    def check_size(self, wanted: int, what: str) -> None:
        """Raises `quarry.OutOfBudget` where all edges would take more than there is."""
        room = available_bytes() if self._limit is None else self._limit
        if wanted > room:
            raise OutOfBudget(
                f"{self.db.address}: {self._num_edges} edges as {what} take {bytes_text(wanted)}, and {bytes_text(room)} "
                f"{'of memory are free' if self._limit is None else 'are the limit of this GraphStore'}: sample them (quarry.pyg.Loader, NeighborSampler), or read a part, db.edges(first, count)"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.db.address!r})"


def _key_of(index: Any) -> slice | npt.NDArray[Any]:
    """An index of PyG's, as a slice or an array; None is all."""
    if index is None:
        return slice(None)
    return index if isinstance(index, slice) else array_of(index)


def _rows_of(table: Table, rows: npt.NDArray[Any] | None) -> dict[str, Any]:
    return {table.name: rows}


def _tensor_of(attribute: str, rows: npt.NDArray[Any]) -> torch.Tensor:
    if attribute in _SPLIT_OF_MASK:
        return torch.from_numpy(np.asarray(rows == _SPLIT_OF_MASK[attribute]))
    return torch.from_numpy(rows.astype(np.int64, copy=False) if attribute == "y" else rows)
