"""A database as PyG's FeatureStore and GraphStore. Importing this imports torch_geometric."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch_geometric.data as pyg_data
from torch_geometric.data import EdgeAttr, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from .._errors import NotFound, OutOfBudget, Unsupported, UsageError
from .._values import SPLITS, bytes_text, ids_of, size
from ._additions import EDGE, EdgeAttributes, rows_by_id
from ._hetero import Types, array_of, types_of
from ._memory import available_bytes

if TYPE_CHECKING:
    from .._database import Database, NodeType, Snapshot, Table

# Names that PyG's models look for, and the tables that have them; other tables go by their own names.
_ATTRIBUTES = {"feature": ("x",), "label": ("y",), "split": ("train_mask", "val_mask", "test_mask")}
_OF_CLASSES = ("label", "split")  # of a database with types: of those types that have classes
_SPLIT_OF_MASK = {"train_mask": SPLITS["train"], "val_mask": SPLITS["valid"], "test_mask": SPLITS["test"]}

# Edges in one of PyG's layouts: its two tensors, and edge ids where their order is another.
_Layout = tuple[torch.Tensor, torch.Tensor, "torch.Tensor | None"]


@dataclasses.dataclass(frozen=True)
class _Column:
    """An attribute of the nodes of one group: rows of a table, which are by node or by the number in the type."""

    table: Table
    count: int
    of_type: NodeType | None = None  # whose nodes' rows they are, of a table of all nodes

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.table.shape[1:])

    def ids(self, key: slice | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Rows of the table, one behind the other."""
        rows = np.arange(*key.indices(self.count), dtype=np.int64) if isinstance(key, slice) else ids_of(key, self.count).astype(np.int64)
        return rows if self.of_type is None else self.of_type.ids(rows)

    def read(self, key: slice | npt.NDArray[Any]) -> npt.NDArray[Any]:
        if isinstance(key, slice):
            wanted = len(range(*key.indices(self.count))) * self.table.dtype.itemsize * int(np.prod(self.shape[1:]))
            if wanted > available_bytes():
                raise OutOfBudget(
                    f"rows of table '{self.table.name}' take {bytes_text(wanted)}, and {bytes_text(available_bytes())} of memory are free: read them by ids, a part at a time"
                )
        rows = self.table[self.ids(key)]
        return rows if isinstance(key, slice) or key.dtype == np.bool_ else rows.reshape(key.shape + self.shape[1:])


class FeatureStore(pyg_data.FeatureStore):
    """The tables of a database as attributes of its nodes, by node id. Their group is None; in a database with types it is
    the type, and ids count from 0 in the type: x where the type has features, y and masks where it has classes; y of the others are targets,
    where there are any.

    x           float32 or float16 [N, D], of table "feature"; rows of bfloat16 and int8 come as float32
    y           int64 [N], of table "label"; -1: none. Without labels float32 [N, K], of table "target"; NaN: none
    train_mask, val_mask, test_mask   bool [N], of table "split"

    attrs       those that get_all_tensor_attrs lists, and so those that loaders put into a batch; None: all
    snapshot    what is read; None: the newest commit, at every read
    edge_attrs  arrays or tensors by edge id, the edge's position in `db.edges()`: {"edge_attr": weights}; memory-mapped
                ones stay on disk. Their group is EDGE, and get_all_edge_tensor_attrs lists them, for NodeLoader and
                LinkLoader of quarry.pyg. get_all_tensor_attrs does not: PyG's own loaders index everything by node.
                With types, by type of edges, {("author", "writes", "paper"): {"edge_attr": weights}}: row i is the i-th
                edge's of the type, in the order of `db.edges()`; the type is their group, and all edges are read once

    Tensors belong to the caller, and ids may come in any order and more than once. Attributes that are asked for
    together are one read of each table. Threads may share it. An attribute that is not there raises
    `quarry.NotFound`, a KeyError.

    put_tensor and update_tensor change rows of tables that exist, in one commit. remove_tensor deletes the rows of an
    index (x reads as zeros then, y as none, a mask as False), and refuses to drop a whole table.
    """

    def __init__(
        self,
        db: Database,
        *,
        attrs: Sequence[str] | None = None,
        snapshot: Snapshot | None = None,
        edge_attrs: Mapping[Any, Any] | None = None,
    ) -> None:
        super().__init__()
        self.db = db
        self._snapshot = snapshot
        self._columns = _columns_of(db, db if snapshot is None else snapshot)  # by group and name of the attribute
        self._edge_attrs = EdgeAttributes(db, edge_attrs, Types.of(db) if edge_attrs else None)
        names = [name for _, name in self._columns]
        for attribute in attrs or ():
            if attribute not in names:
                raise NotFound(f"{db.address}: there is no attribute {attribute!r}; there are {', '.join(dict.fromkeys(names))}")
        self._listed = [key for name in attrs for key in self._columns if key[1] == name] if attrs is not None else list(self._columns)

    # ---- reading

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor | None:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[torch.Tensor | None]:
        read: dict[tuple[str, str | None, int], npt.NDArray[Any]] = {}  # by rows of a table, and index
        out: list[torch.Tensor | None] = []
        for attr in attrs:
            if isinstance(attr.group_name, tuple):
                out.append(self._edge_rows(attr))
                continue
            column = self._column(attr.attr_name, attr.group_name)
            key = (column.table.name, None if column.of_type is None else column.of_type.name, id(attr.index))
            if key not in read:
                read[key] = column.read(_key_of(attr.index))
            out.append(_tensor_of(attr.attr_name, read[key]))
        return out

    def _edge_rows(self, attr: TensorAttr) -> torch.Tensor:
        attrs = self._edge_attrs.by_type.get(attr.group_name, {})
        if attr.attr_name not in attrs:
            raise NotFound(f"there is no edge attribute {attr.attr_name!r} of {attr.group_name}; {self._edge_groups()}")
        values, key = attrs[attr.attr_name], _key_of(attr.index)
        rows: torch.Tensor = rows_by_id(values, key)
        return rows

    def _edge_groups(self) -> str:
        by_type = self._edge_attrs.by_type or {EDGE: {}}
        return ", ".join(f"group {group} has {', '.join(attrs) or 'none'}" for group, attrs in by_type.items())

    def edge_places(self, edge_type: Any, e_id: torch.Tensor) -> torch.Tensor:
        """The index of edges' attributes: where the edges of a group, columns of `db.edges()`, stand among themselves."""
        return torch.from_numpy(self._edge_attrs.places(edge_type, e_id.cpu().numpy()))

    def _column(self, attribute: str | None, group: Any = None) -> _Column:
        column = self._columns.get((group, attribute or ""))
        if column is not None:
            return column
        whose = "of nodes" if group is None else f"of group {group!r}"
        groups = [f"group {known!r} has {', '.join(name for other, name in self._columns if other == known)}" for known in dict.fromkeys(known for known, _ in self._columns)]
        if self._edge_attrs or None in (known for known, _ in self._columns):
            groups.append(self._edge_groups())
        raise NotFound(f"{self.db.address}: there is no attribute {attribute!r} {whose}; {', '.join(groups)}")

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        key = _key_of(attr.index)
        if isinstance(attr.group_name, tuple):
            values = self._edge_attrs.by_type.get(attr.group_name, {}).get(attr.attr_name)
            shape = None if values is None else tuple(values.shape)
        else:
            column = self._columns.get((attr.group_name, attr.attr_name or ""))
            shape = None if column is None else column.shape
        if shape is None:
            return None
        if isinstance(key, slice):
            return (len(range(*key.indices(shape[0]))), *shape[1:])
        return (*key.shape, *shape[1:]) if key.dtype != np.bool_ else (int(key.sum()), *shape[1:])

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Attributes of nodes, without index: objects of the caller's."""
        return [TensorAttr(group, name) for group, name in self._listed]

    def get_all_edge_tensor_attrs(self) -> list[TensorAttr]:
        """Attributes of edges, without index: objects of the caller's."""
        return [TensorAttr(group, name) for group, attrs in self._edge_attrs.by_type.items() for name in attrs]

    # ---- writing

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        column = self._column_to_write(attr)
        table, ids = column.table, column.ids(_key_of(attr.index))
        values = array_of(tensor)
        if isinstance(attr.index, int):
            values = values[None]
        if attr.attr_name in _SPLIT_OF_MASK:
            if values.dtype != np.bool_ or values.shape != ids.shape:
                raise UsageError(f"{attr.attr_name} of {values.dtype} {list(values.shape)}: bool [{len(ids)}] is wanted")
            values = self._splits(table, ids, attr.attr_name, values)
        elif table.name == "label" and values.dtype.kind not in "iu":
            raise UsageError(f"y of {values.dtype}: labels are integers")
        self.db.put(ids, **_rows_of(table, values))
        return True

    def update_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> bool:
        """The same as put_tensor: rows are replaced in one commit, not removed first."""
        return bool(self.put_tensor(tensor, *args, **kwargs))

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        column = self._column_to_write(attr)
        table = column.table
        if attr.index is None or (isinstance(attr.index, slice) and attr.index == slice(None)):
            raise Unsupported(f"attribute {attr.attr_name!r} is the table '{table.name}', which is not dropped: remove_tensor with an index deletes rows")
        ids = column.ids(_key_of(attr.index))
        rows = None
        if attr.attr_name in _SPLIT_OF_MASK:
            rows = self._splits(table, ids, attr.attr_name, np.zeros(len(ids), np.bool_))
        elif table.name == "label":
            rows = np.full(len(ids), -1)
        elif attr.attr_name == "y":
            rows = np.full((len(ids), *table.shape[1:]), np.nan)
        self.db.put(ids, **_rows_of(table, rows))
        return True

    def _splits(self, table: Table, ids: npt.NDArray[Any], mask: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Splits of the nodes once the mask has these values. A node has one split: the last mask set counts."""
        split, now = _SPLIT_OF_MASK[mask], table[ids]
        return np.where(values, split, np.where(now == split, 0, now))

    def _column_to_write(self, attr: TensorAttr) -> _Column:
        if self._snapshot is not None:
            raise Unsupported("this FeatureStore reads a snapshot, which does not change: write by one without")
        if isinstance(attr.group_name, tuple):
            raise Unsupported("attributes of edges are arrays of the caller's: change them there")
        column = self._columns.get((attr.group_name, attr.attr_name or ""))
        if column is None:
            raise Unsupported(
                f"{self.db.address} has no table for attribute {attr.attr_name!r} of group {attr.group_name!r}: rows of {', '.join(dict.fromkeys(name for _, name in self._columns))} can be put. "
                "Tables are made when a database is (quarry.import_), or by db.create_table"
            )
        return column

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.db.address!r})"


@dataclasses.dataclass(frozen=True)
class _Edges:
    """The edges of one type: how many, of which relation (None: there is one type), and which nodes their ends may be."""

    count: int
    sources: int  # how many nodes
    targets: int
    relation: int | None = None
    types: tuple[NodeType, NodeType] | None = None  # of sources and targets

    @staticmethod
    def of(count: int, relation: int, source: NodeType, target: NodeType) -> _Edges:
        return _Edges(count, source.num_nodes, target.num_nodes, relation, (source, target))

    def numbers(self, sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Ends of edges, by ids of the database, as numbers in their types."""
        if self.types is None:
            return sources, targets
        row, col = self.types[0].numbers(sources), self.types[1].numbers(targets)
        if np.any(row < 0) or np.any(col < 0):
            raise UsageError("nodes were added after this GraphStore was made: make it anew")
        return row, col


class GraphStore(pyg_data.GraphStore):
    """The edges of a database, by type, and the number of their nodes, without reading them. In a database without types
    there is one type, None; else ids of nodes count from 0 in their type.

    get_edge_index reads all edges of a type, as int64 tensors of the caller's, for those who want them in memory: "coo" (row,
    col), by destination, which is the order of edge ids; "csc" (row, colptr); "csr" (rowptr, col). coo(), csc() and
    csr() give the permutation from edge ids, too, where there is one: of a database with types always, as its edge ids count
    edges of all types. `limit`: the most that one of them may take, as bytes or "4GiB" (default: what the machine and its
    cgroup have free); what takes more raises `quarry.OutOfBudget`, a MemoryError. Edges are added and removed by the
    database's own methods, and a GraphStore that is made after that has them. Threads may share it.
    """

    def __init__(self, db: Database, *, topology: str = "graph", limit: int | str | None = None) -> None:
        super().__init__()
        self.db = db
        self._topology = topology
        self._limit = None if limit is None else size(limit, what="limit")
        self._num_edges = db.num_edges
        self._types: dict[Any, _Edges] = {}
        types = {type_.name: type_ for type_ in types_of(db)}
        if not types:
            self._types[None] = _Edges(db.num_edges, db.num_nodes, db.num_nodes)
            return
        for name, relation, source, destination, count in db.sql("SELECT name, relation, source, destination, count FROM edge_types"):
            self._types[source, name, destination] = _Edges.of(count, relation, types[source], types[destination])

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        return [EdgeAttr(name, EdgeLayout.CSC, is_sorted=True, size=(edges.sources, edges.targets)) for name, edges in self._types.items()]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor] | None:
        edges = self._types.get(edge_attr.edge_type)
        if edges is None:
            return None
        if edge_attr.layout == EdgeLayout.COO:
            return self._coo(edges)[:2]
        return (self._csc(edges) if edge_attr.layout == EdgeLayout.CSC else self._csr(edges))[:2]

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise Unsupported("a GraphStore puts no edges: db.add_edges adds some, in one commit")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise Unsupported("a GraphStore removes no edges: db.remove_edges does, in one commit")

    # PyG's would convert one layout to another, for which the memory of both is needed.

    def coo(self, edge_types: Sequence[Any] | None = None, store: bool = False) -> Any:
        return self._converted(self._coo, edge_types, store)

    def csc(self, edge_types: Sequence[Any] | None = None, store: bool = False) -> Any:
        return self._converted(self._csc, edge_types, store)

    def csr(self, edge_types: Sequence[Any] | None = None, store: bool = False) -> Any:
        return self._converted(self._csr, edge_types, store)

    def _converted(self, convert: Callable[[_Edges], _Layout], edge_types: Sequence[Any] | None, store: bool) -> Any:
        if store:
            raise Unsupported("store=True: a database serves every layout, and keeps no copies")
        if edge_types is None and None in self._types:
            return convert(self._types[None])
        wanted = list(self._types) if edge_types is None else list(edge_types)
        unknown = [edge_type for edge_type in wanted if edge_type not in self._types]
        if unknown:
            raise NotFound(f"{self.db.address}: there are no edges of type {unknown[0]}; types are {', '.join(map(str, self._types))}")
        converted = {edge_type: convert(self._types[edge_type]) for edge_type in wanted}
        return tuple({edge_type: parts[i] for edge_type, parts in converted.items()} for i in range(3))

    def _coo(self, edges: _Edges) -> _Layout:
        self.check_size((16 if edges.relation is None else 24) * edges.count, "coo", edges.count)
        row, col = np.empty(edges.count, np.int64), np.empty(edges.count, np.int64)
        ids = _ids_to_fill(edges)
        for first, sources, targets, at in self._parts(edges):
            here = slice(first, first + len(sources))
            row[here], col[here] = sources, targets
            if ids is not None:
                ids[here] = at
        return torch.from_numpy(row), torch.from_numpy(col), None if ids is None else torch.from_numpy(ids)

    def _csc(self, edges: _Edges) -> _Layout:
        self.check_size(8 * ((1 if edges.relation is None else 2) * edges.count + edges.targets + 1), "csc", edges.count)
        row, colptr = np.empty(edges.count, np.int64), np.zeros(edges.targets + 1, np.int64)
        ids = _ids_to_fill(edges)
        for first, sources, targets, at in self._parts(edges):
            row[first : first + len(sources)] = sources
            colptr[1 + targets[0] : 2 + targets[-1]] += np.bincount(targets - targets[0])
            if ids is not None:
                ids[first : first + len(sources)] = at
        return torch.from_numpy(row), torch.from_numpy(np.cumsum(colptr, out=colptr)), None if ids is None else torch.from_numpy(ids)

    def _csr(self, edges: _Edges) -> _Layout:
        """A counting sort by source, over two reads of the edges."""
        self.check_size(16 * edges.count + 16 * (edges.sources + 1), "csr", edges.count)
        rowptr = np.zeros(edges.sources + 1, np.int64)
        for _, sources, _, _ in self._parts(edges):
            found, counts = np.unique(sources, return_counts=True)
            rowptr[1 + found] += counts
        np.cumsum(rowptr, out=rowptr)
        col, perm = np.empty(edges.count, np.int64), np.empty(edges.count, np.int64)
        free = rowptr[:-1].copy()  # the next place of each source
        for _, sources, targets, at in self._parts(edges):
            order = np.argsort(sources, kind="stable")
            found, starts, counts = np.unique(sources[order], return_index=True, return_counts=True)
            places = np.repeat(free[found] - starts, counts) + np.arange(len(order))
            col[places], perm[places] = targets[order], at[order]
            free[found] += counts
        return torch.from_numpy(rowptr), torch.from_numpy(col), torch.from_numpy(perm)

    def _parts(self, edges: _Edges) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Parts of a type's edges, each with how many came before it, sources, targets, and edge ids; no part is empty."""
        before = 0
        for first, rows in self.db._edges_in_parts(self._topology):
            got = rows[: max(0, self._num_edges - first)].astype(np.int64)  # edges may have come meanwhile
            at = np.arange(first, first + len(got))
            if edges.relation is not None:
                at, got = at[got[:, 1] == edges.relation], got[got[:, 1] == edges.relation]
            if len(got) > 0:
                yield before, *edges.numbers(got[:, 0], got[:, 2]), at
            before += len(got)

    def edge_count(self, edge_type: Any) -> int:
        """Edges of a type that there is."""
        return self._types[edge_type].count

    def check_size(self, wanted: int, what: str, edges: int) -> None:
        """Raises `quarry.OutOfBudget` where so many edges would take more than there is."""
        room = available_bytes() if self._limit is None else self._limit
        if wanted > room:
            raise OutOfBudget(
                f"{self.db.address}: {edges} edges as {what} take {bytes_text(wanted)}, and {bytes_text(room)} "
                f"{'of memory are free' if self._limit is None else 'are the limit of this GraphStore'}: sample them (quarry.pyg.Loader, NeighborSampler), or read a part, db.edges(first, count)"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.db.address!r})"


def _ids_to_fill(edges: _Edges) -> npt.NDArray[np.int64] | None:
    """Memory for the ids of edges, which those of one type have in their order."""
    return None if edges.relation is None else np.empty(edges.count, np.int64)


def _columns_of(db: Database, source: Database | Snapshot) -> dict[tuple[str | None, str], _Column]:
    columns: dict[tuple[str | None, str], _Column] = {}
    types = types_of(db)
    for name in db.tables:
        table = source[name]
        names = _ATTRIBUTES.get(name, (name,))
        if not types:
            columns.update(((None, attribute), _Column(table, len(table))) for attribute in names)
        for type_ in types:
            if name == type_.feature_table:
                columns[type_.name, "x"] = _Column(table, type_.num_nodes)
            elif len(table) == db.num_nodes and not name.endswith(".feature") and (name not in _OF_CLASSES or type_.num_classes > 0):
                columns.update(((type_.name, attribute), _Column(table, type_.num_nodes, type_)) for attribute in names)
    for group in dict.fromkeys(group for group, _ in columns):
        if (group, "y") not in columns and (group, "target") in columns:
            columns[group, "y"] = columns.pop((group, "target"))
    return columns


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
    return torch.from_numpy(rows.astype(np.int64, copy=False) if attribute == "y" and rows.dtype.kind == "i" else rows)
