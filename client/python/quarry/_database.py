"""A database, its tables and snapshots."""

from __future__ import annotations

import os
import weakref
from multiprocessing.context import get_spawning_popen
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from . import _html, _quarry
from ._batches import Stream
from ._errors import Busy, Error, InvalidArgument, NotFound, Unsupported, UsageError
from ._sql import Result
from ._values import (
    ALL_NEIGHBORS,
    BFLOAT16,
    DIRECTIONS,
    FLOAT32,
    INT8,
    NUMPY_TYPES,
    SPLITS,
    TYPE_NAMES,
    bytes_text,
    ids_of,
    size,
)
from ._waiting import ProgressCallable, run, run_with_progress

_LOOKUP_ROWS = 1 << 20  # of a scan at a time
_EDGES_AT_A_TIME = 1 << 20
_TABLE_COLUMNS = ("table", "shape", "type", "on disk")


class Layout(NamedTuple):
    """A packed plan of epochs."""

    name: str
    batch_count: int
    batch_size: int
    epochs: int
    seed: int
    servable: bool  # False: built from other data; build it again


class NodeType(NamedTuple):
    """Nodes of one type, numbered in the order of their ids: those from `first` on, as they were imported, and behind them
    those that were added, whose ids are behind other types'."""

    name: str
    first: int
    num_nodes: int
    feature_table: str | None  # whose row i is that of the type's node i; None: nodes of the type have no features
    dim: int  # of its rows
    num_classes: int
    ranges: tuple[tuple[int, int], ...]  # (first id, how many), ascending

    def ids(self, numbers: Any) -> npt.NDArray[np.int64]:
        """Ids in the database of nodes of the type, by their numbers in it."""
        firsts, rows, _ = self._ranges()
        given = np.asarray(numbers, np.int64)
        out: npt.NDArray[np.int64] = given + (firsts - rows)[np.searchsorted(rows, given, side="right") - 1] if given.size else given
        return out

    def numbers(self, ids: Any) -> npt.NDArray[np.int64]:
        """Their numbers in the type, of nodes by their ids; -1 for nodes of other types."""
        firsts, rows, counts = self._ranges()
        given = np.asarray(ids, np.int64)
        if len(firsts) == 0:
            return np.full(given.shape, -1, np.int64)
        at = np.searchsorted(firsts, given, side="right") - 1
        offset = given - firsts[at]
        return np.where((at >= 0) & (offset < counts[at]), rows[at] + offset, -1)

    def _ranges(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First ids, numbers of these, and counts of the ranges."""
        firsts, counts = np.array(self.ranges, np.int64).reshape(-1, 2).T
        return firsts, np.cumsum(counts) - counts, counts


class Table:
    """Rows by node id: `table[ids]`, with an integer, a slice, a mask, or ids in any order and more than once.

    Rows of bfloat16 and int8 are decoded to float32; the others come as they are stored (`stored`).
    """

    def __init__(self, database: Database, name: str, snapshot: Snapshot | None, info: tuple[str, int, int, int, int]) -> None:
        self._database = database
        self._snapshot = snapshot
        self.name = name
        _, self._rows, self._dim, self._row_bytes, self._element_type = info

    @property
    def stored(self) -> str:
        """Type of the elements on disk."""
        return TYPE_NAMES[self._element_type]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(NUMPY_TYPES.get(self._element_type, np.float32))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._rows,) if self._is_scalar else (self._rows, self._dim)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its rows on disk."""
        return self._rows * self._row_bytes

    @property
    def _is_scalar(self) -> bool:  # labels and splits, not features of one column
        return self._dim == 1 and self._element_type > INT8

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        if isinstance(key, slice):
            return self._read(np.arange(*key.indices(self._rows), dtype=np.int64).astype(np.uint32))
        ids = np.asarray(key)
        rows = self._read(ids_of(ids, self._rows))
        if ids.dtype == np.bool_:
            return rows
        return rows.reshape(ids.shape + rows.shape[1:]) if ids.ndim != 1 else rows

    def read(self, ids: Any, out: Any = None) -> Any:
        """The same to `out`: C-contiguous memory of the table's dtype, or float32, of NumPy's or Torch's."""
        if out is None:
            return self[ids]
        flat = ids_of(ids, self._rows)
        name = str(out.dtype).removeprefix("torch.")
        if name == "float32" and self._element_type <= INT8:
            element_type = FLOAT32
        elif name == str(self.dtype):
            element_type = self._element_type
        else:
            raise UsageError(f"rows of {self.stored} as {out.dtype}: {self.dtype}" + (", or float32" if self._element_type <= INT8 else ""))
        self._lookup(flat, element_type, out, self._dim * int(np.dtype(name).itemsize))
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("rows are read from disk: an array of them is a copy")
        rows = self[:]
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def _read(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
        decoded = self._element_type in (BFLOAT16, INT8)
        out = np.empty((len(ids), self._dim), self.dtype)
        self._lookup(ids, FLOAT32 if decoded else self._element_type, out, self._dim * self.dtype.itemsize)
        return out.reshape(len(ids)) if self._is_scalar else out

    def _lookup(self, ids: npt.NDArray[np.uint32], element_type: int, out: Any, row_bytes: int) -> None:
        snapshot = None if self._snapshot is None else self._snapshot._raw
        if len(ids) > 0:
            self._database._store.lookup(self.name, ids, snapshot, element_type, out, row_bytes)

    def _encode(self, rows: Any) -> npt.NDArray[np.uint8]:
        """Rows to be put, as they are stored."""
        array = np.asarray(rows)
        if self._is_scalar and array.ndim <= 1:
            array = array.reshape(-1, 1)
        if array.ndim != 2 or array.shape[1] != self._dim:
            raise UsageError(f"rows of shape {array.shape} for table '{self.name}' of {self._dim} columns")
        if self._element_type in NUMPY_TYPES:
            return np.ascontiguousarray(array.astype(self.dtype, copy=False)).view(np.uint8)
        out = np.zeros((len(array), self._row_bytes), np.uint8)
        _quarry.encode(self._element_type, np.ascontiguousarray(array, np.float32), out)
        return out

    def __repr__(self) -> str:
        return f"<quarry.Table '{self.name}': {' x '.join(map(str, self.shape))} {self.stored}, {bytes_text(self.nbytes)}>"

    def _repr_html_(self) -> str:
        return _html.table(self.name, _TABLE_COLUMNS, [self._shown()])

    def _shown(self) -> tuple[str, str, str, str]:
        return self.name, " x ".join(map(str, self.shape)), self.stored, bytes_text(self.nbytes)


class Snapshot:
    """The database as it was when this was taken: `snapshot["feature"][ids]`, `db.stream(snapshot=snapshot)`."""

    def __init__(self, database: Database, raw: _quarry.Snapshot) -> None:
        self._database = database
        self._raw = raw

    @property
    def timestamp(self) -> int:
        """Number of the last commit that it sees."""
        return self._raw.timestamp

    def __getitem__(self, name: str) -> Table:
        return self._database._table(name, self)

    def close(self) -> None:
        self._raw.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise Unsupported("a snapshot is one process's, and is not pickled: take one where it is read")

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<quarry.Snapshot of commit {self.timestamp}>"


def _live_spec(
    fanouts: Sequence[int],
    batch_size: int,
    direction: str,
    cache_bytes: int,
    seed: int,
    replace: bool,
    sampler: str,
    batch_dependency: int,
    weighted: bool,
    table: str = "feature",
    topology: str = "graph",
    edge_ids: bool = False,
    relation_fanouts: Sequence[int] = (),
) -> _quarry.LiveSpec:
    """How batches are drawn, as streams and layouts of them say it. A fanout of -1: all neighbors."""
    hops, by_type = ([ALL_NEIGHBORS if fanout == -1 else fanout for fanout in given] for given in (fanouts, relation_fanouts))
    return _quarry.LiveSpec(
        table,
        topology,
        direction_of(direction),
        hops,
        batch_size,
        cache_bytes,
        seed,
        replace,
        edge_ids,
        sampler,
        batch_dependency,
        weighted,
        by_type,
    )


# Databases that this process has open, by their real paths: what was pickled here finds them again.
_open_here: weakref.WeakValueDictionary[str, Database] = weakref.WeakValueDictionary()


def _is_path(address: str) -> bool:
    return not address.startswith(("unix:", "s3:"))


def _reopened(address: str, memory: int | str | None, timeout: float | None) -> Database:
    """What a pickled Database becomes: the one that this process has open at the path, or else it is opened."""
    here = _open_here.get(os.path.realpath(address)) if _is_path(address) else None
    if here is not None and here._is_usable():
        return here
    try:
        return Database(address, memory, timeout)
    except Busy as error:
        raise Busy(f"{error}. It was pickled by its path, which one process has open at a time: {_FOR_SEVERAL}") from None


_FOR_SEVERAL = "for several, serve it (`quarry serve PATH --socket run/quarry.sock`), and open it as quarry.open('unix:run/quarry.sock') where it is pickled"


class Database:
    """An open database; `quarry.open` gives it. Threads may share it. See docs/python.md for all of it.

    It pickles by its address, and so do stores, samplers and loaders over it: unpickled in this process it is the one that
    is open here, in another it is opened there, which a path lets one process do at a time.
    """

    def __init__(self, address: str, memory: int | str | None, timeout: float | None) -> None:
        self._address = address
        self._options = (memory, timeout)
        self._store = _quarry.Store.open(address, size(memory, what="memory"), timeout or 0.0)
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._shared: weakref.WeakValueDictionary[Any, Stream] = weakref.WeakValueDictionary()
        self._snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._pid = os.getpid()
        self._is_open = True
        self._relations: list[str] | None = None
        if _is_path(address):
            _open_here[os.path.realpath(address)] = self

    # ---- what there is

    @property
    def address(self) -> str:
        return self._address

    @property
    def num_nodes(self) -> int:
        return int(self._store.describe()["nodes"])

    @property
    def num_edges(self) -> int:
        return sum(edges for name, _, edges in self._store.describe()["topologies"] if name == "graph")

    @property
    def num_classes(self) -> int:
        return int(self._store.describe()["classes"])

    @property
    def tables(self) -> list[str]:
        return [table[0] for table in self._store.describe()["tables"]]

    @property
    def layouts(self) -> dict[str, Layout]:
        return {layout[0]: Layout(*layout) for layout in self._store.describe()["layouts"]}

    @property
    def node_types(self) -> list[NodeType]:
        """Types of nodes; empty where there is one."""
        rows = self.sql("SELECT name, first, count, feature_table, dim, classes FROM node_types").fetchall()
        ranges: dict[str, list[tuple[int, int]]] = {row[0]: [] for row in rows}
        try:
            for name, first, count in self.sql("SELECT type, first, count FROM node_ranges ORDER BY first") if rows else ():
                ranges[name].append((first, count))
        except Error:
            if not self._address.startswith("unix:"):
                raise
            ranges = {row[0]: [(row[1], row[2])] for row in rows}  # of a server whose types are one range each
        return [
            NodeType(name, first, sum(count for _, count in ranges[name]), table, dim or 0, classes, tuple(ranges[name]))
            for name, first, _, table, dim, classes in rows
        ]

    @property
    def edge_types(self) -> list[tuple[str, str, str]]:
        """(source type, name, destination type) of each relation; empty where there is one type of nodes."""
        return [(source, name, destination) for source, name, destination in self.sql("SELECT source, name, destination FROM edge_types")]

    def __getitem__(self, name: str) -> Table:
        return self._table(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self.tables

    def _table(self, name: str, snapshot: Snapshot | None) -> Table:
        for info in self._store.describe()["tables"]:
            if info[0] == name:
                return Table(self, name, snapshot, info)
        raise NotFound(f"{self._address}: there is no table {name!r}; tables are {', '.join(self.tables)}")

    def split(self, name: str) -> npt.NDArray[np.int64]:
        """Ids of a split's nodes, ascending."""
        if name not in SPLITS:
            raise UsageError(f"split {name!r}: 'train', 'valid' or 'test'")
        if "split" not in self:
            return np.empty(0, np.int64)
        table = self["split"]
        parts = [np.empty(0, np.int64)]
        for first in range(0, len(table), _LOOKUP_ROWS):
            parts.append(np.flatnonzero(table[first : first + _LOOKUP_ROWS] == SPLITS[name]) + first)
        return np.concatenate(parts).astype(np.int64, copy=False)

    def info(self) -> dict[str, Any]:
        """Counts, tables, layouts, what the device does, bytes on disk by kind."""
        told = self._store.describe()
        disk: dict[str, int] = dict(self.sql("SELECT kind, sum(bytes) FROM files GROUP BY kind"))
        device = self.sql("SELECT * FROM device_profile")
        return {
            "address": self._address,
            "nodes": told["nodes"],
            "edges": self.num_edges,
            "classes": told["classes"],
            "tables": {
                name: {"rows": rows, "dim": dim, "row_bytes": row_bytes, "element_type": TYPE_NAMES[element_type]}
                for name, rows, dim, row_bytes, element_type in told["tables"]
            },
            "layouts": {row[0]: dict(zip(("batches", "bytes", "servable"), row[1:])) for row in self.sql("SELECT name, batches, bytes, servable FROM layouts")},
            "embeddings": {name: {"rows": rows, "dim": dim} for name, rows, dim, _ in told["embeddings"]},
            "device": dict(zip(device.columns, device.fetchone() or ())),
            "disk_bytes": disk,
        }

    def stats(self) -> dict[str, float]:
        """The memory budget, and of a server what it counts."""
        return self._store.stats()

    # ---- reading

    def sql(self, text: str, parameters: Sequence[Any] = (), *, write: bool = False, timeout: float | None = None) -> Result:
        """Runs one statement, with parameters for ?1, ?2, ...; `write` lets it change rows. Ctrl-C ends it."""
        connection = _quarry.Sql.open(self._store, write, timeout or 0.0)
        try:
            values = [value.item() if isinstance(value, np.generic) else value for value in parameters]
            return Result(run(lambda: connection.run(text, values), connection.interrupt))
        finally:
            connection.close()

    def edges(self, first: int = 0, count: int | None = None, topology: str = "graph") -> npt.NDArray[np.uint32]:
        """Source and destination of edges [first, first + count), by destination: an array [2, count]."""
        total = {name: edges for name, _, edges in self._store.describe()["topologies"]}.get(topology, 0)
        wanted = max(0, total - first) if count is None else count
        out = np.empty((min(wanted, max(0, total - first)), 3), np.uint32)
        got = self._store.read_edges(topology, first, out)
        return np.ascontiguousarray(out[:got, [0, 2]].T)

    def edge_ids(self, edges: Any, topology: str = "graph", edge_type: tuple[str, str, str] | None = None) -> npt.NDArray[np.int64]:
        """Columns of `edges()` that have these edges [2, n], in their order: where attributes that lie beside an
        edge_index belong, `by_id[db.edge_ids(edge_index)] = edge_attr`. The first of equal edges that are given is the
        first one there, and so on. `NotFound` names one that is not there. All edges are read, a part at a time.

        `edge_type`: (source, name, destination) of a graph with types. Ids then count from 0 in the ends' types, and columns
        are those that the edges of this type have among themselves, in the order of `edges()`."""
        relation = None
        if edge_type is None:
            pairs = _pairs_of(edges, self.num_nodes).astype(np.int64)
        else:
            relation, of, to = self._edge_type(edge_type)
            pairs = np.stack([type_.ids(ends) for type_, ends in zip((of, to), _pairs_of(edges, self.num_nodes, of.num_nodes, to.num_nodes))])
        if pairs.shape[1] == 0:
            return np.empty(0, np.int64)
        wanted = pairs[1] << 32 | pairs[0]  # by destination
        order = np.argsort(wanted, kind="stable")
        wanted = wanted[order]
        rank = np.arange(len(wanted)) - np.searchsorted(wanted, wanted)  # among equal ones
        seen = np.zeros(len(wanted), np.int64)  # equal ones in the parts that were read
        found = np.full(len(wanted), -1, np.int64)
        before = 0
        for _, rows in self._edges_in_parts(topology):
            part = (rows if relation is None else rows[rows[:, 1] == relation])[:, [0, 2]].T.astype(np.int64)
            if part.shape[1] == 0:
                continue
            within = slice(*np.searchsorted(wanted, (part[1, 0] << 32, part[1, -1] + 1 << 32)))
            here = part[1] << 32 | part[0]
            by_key = np.argsort(here, kind="stable")
            here = here[by_key]
            left = np.searchsorted(here, wanted[within])
            count = np.searchsorted(here, wanted[within], side="right") - left
            at = np.minimum(rank[within] - seen[within], count - 1)  # where equal edges are kept once, all of them are this one
            hit = (count > 0) & (at >= 0)
            found[within][hit] = before + by_key[(left + at)[hit]]
            seen[within] += count
            before += part.shape[1]
        out = np.empty_like(found)
        out[order] = found
        if np.any(out < 0):
            at = int(np.argmax(out < 0))
            source, destination = np.asarray(edges)[:, at]
            raise NotFound(f"{self._address}: there is no edge from {source} to {destination}, column {at} of those given")
        return out

    def _edges_in_parts(self, topology: str = "graph") -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
        """Parts of all edges, each with how many came before it: source, relation and destination by row. No part is empty, and
        the next one takes its memory."""
        total = {name: edges for name, _, edges in self._store.describe()["topologies"]}.get(topology, 0)
        rows = np.empty((min(_EDGES_AT_A_TIME, total), 3), np.uint32)
        for first in range(0, total, _EDGES_AT_A_TIME):
            got = self._store.read_edges(topology, first, rows[: total - first])
            if got == 0:
                return
            yield first, rows[:got]

    def _edge_type(self, edge_type: Any) -> tuple[int, NodeType, NodeType]:
        """Relation of a type of edges, and the types of its ends."""
        types = {type_.name: type_ for type_ in self.node_types}
        rows = self.sql("SELECT source, name, destination, relation FROM edge_types").fetchall()
        for source, name, destination, relation in rows:
            if (source, name, destination) == (tuple(edge_type) if isinstance(edge_type, (tuple, list)) else edge_type):
                return relation, types[source], types[destination]
        raise NotFound(f"{self._address}: there are no edges of type {edge_type}; types are {', '.join(str(tuple(row[:3])) for row in rows) or 'none'}")

    def snapshot(self) -> Snapshot:
        """The database as it is now, for as long as the snapshot is open."""
        taken = Snapshot(self, self._store.take_snapshot())
        self._snapshots.add(taken)
        return taken

    def sample(
        self, seeds: Any, fanouts: Sequence[int], *, direction: str = "in", seed: int = 0, topology: str = "graph", replace: bool = False, weighted: bool = False
    ) -> Any:
        """A block of `seeds`, each given once, as a batch without features and labels; along "in" with edge ids. A fanout of
        -1 is all neighbors, where no node has more than 2^20. `replace`: neighbors are drawn independently. `weighted`: with
        probability proportional to the weights of edges."""
        from ._batches import Batch

        raw = self._sampled(ids_of(seeds, self.num_nodes, "seeds"), fanouts, seed, direction=direction, topology=topology, replace=replace, weighted=weighted)
        return Batch(raw, features=False)

    def _sampled(
        self,
        seeds: npt.NDArray[np.uint32],
        fanouts: Sequence[int],
        stream_seed: int,
        *,
        direction: str = "in",
        topology: str = "graph",
        replace: bool = False,
        relation_fanouts: Sequence[int] = (),
        weighted: bool = False,
    ) -> _quarry.Batch:
        """A block of seeds that differ. -1 are all neighbors; of `fanouts` by type of edges, as many as these come to."""
        if len(fanouts) == 0:
            raise UsageError("fanouts: for each hop a number of neighbors")
        spec = _live_spec(fanouts, 1, direction, 0, 0, replace, "neighbor", 0, weighted, topology=topology, edge_ids=direction == "in", relation_fanouts=relation_fanouts)
        return _quarry.sample(self._store, spec, seeds, stream_seed)

    def stream(
        self,
        fanouts: Sequence[int] = (10, 10),
        batch_size: int = 1024,
        *,
        layout: str | None = None,
        fresh: bool = False,
        cache: int | str = 0,
        disk: int | str | None = None,
        direction: str = "in",
        seed: int = 0,
        replace: bool = False,
        edge_ids: bool = False,
        sampler: str = "neighbor",
        batch_dependency: int = 0,
        weighted: bool = False,
        table: str | None = "feature",
        topology: str = "graph",
        snapshot: Snapshot | None = None,
        device: int | None = None,
        gpu_memory: int | str = 0,
        gpu_cache: int | str | None = None,
        gpu_sampling: bool = False,
        partitioning: str | None = None,
        buffer: int = 0,
        relation_fanouts: Sequence[int] = (),
    ) -> Stream:
        """A road to mini-batches: sampled and read as they come; `layout`: from a plan that `db.plan` built;
        `fresh`: every epoch is sampled and packed ahead while the one before is used, within `disk`. A fanout of -1 is all
        neighbors, of batches that are sampled as they come, where no node has more than 2^20; a batch for which the memory
        that was planned by a few of them does not do is refused (`OutOfBudget`).

        `cache`: rows that stay in memory, as bytes or a share of the features ('10%'). `edge_ids`: batches say
        which edges were drawn, along "in"; a layout has them that was made with them (else `Unsupported`).
        `sampler`: "neighbor" draws of each node by itself, "labor" the same neighbors for the nodes of a hop where
        it can, so that batches have fewer nodes; its `batch_dependency` is for how many batches a node is drawn
        alike. `weighted`: with probability proportional to the weights of edges. `table`: of the rows that batches have;
        None: they have none, and are sampled as they come, to memory.

        `device`: a GPU, by its number, that batches go to; `gpu_memory`: what may be taken there, as bytes, 0 for half
        of what is free; `gpu_cache`: part of it for rows that stay, as bytes or a share of the features, None for as
        many as there is room for; `gpu_sampling`: batches that are sampled as they come are sampled there, from lists
        that lie there then (uniform draws only). `quarry.pyg.Loader` makes tensors of such batches.

        `partitioning`: batches of splits out of the parts of a graph that `quarry partition build` has cut, `buffer` of
        which are in memory at a time (0: as many as there is room for): neighbors are drawn among what is there, every
        part is read once a pass, and nothing of each node or edge stays. Rows, labels and splits are those of its build.

        `relation_fanouts`: of a graph with types, for each hop and each relation how many neighbors a node is given by
        edges of that type; `fanouts` then bounds those of all types together. `quarry.pyg.Loader` makes HeteroData of
        such batches.
        """
        if partitioning is not None and (layout is not None or fresh):
            raise UsageError("partitioning: batches of parts are sampled as they come; leave layout and fresh out")
        if partitioning is None and buffer != 0:
            raise UsageError("buffer: parts of which partitioning? Name it")
        if device is not None and device < 0:
            raise UsageError(f"device {device}: a GPU by its number, from 0 on; None: batches stay in memory")
        if relation_fanouts:
            tables = [type_.feature_table for type_ in self.node_types if type_.feature_table]
        else:
            tables = [] if table is None else [table]
            if table is not None:
                self._check_rows("a stream", table)
        feature_bytes = sum(map(self._feature_bytes, tables))
        live = _live_spec(
            fanouts,
            batch_size,
            direction,
            size(cache, feature_bytes, "cache"),
            seed,
            replace,
            sampler,
            batch_dependency,
            weighted,
            table or "",
            topology,
            edge_ids,
            relation_fanouts,
        )
        raw = _quarry.Stream.open(
            self._store,
            live,
            layout,
            fresh,
            size(disk, feature_bytes, "disk"),
            None if snapshot is None else snapshot._raw,
            -1 if device is None else device,
            size(gpu_memory, None, "gpu_memory"),
            -1 if gpu_cache is None else size(gpu_cache, feature_bytes, "gpu_cache"),
            gpu_sampling,
            partitioning,
            buffer,
        )
        stream = Stream(raw, self.num_nodes)
        self._streams.add(stream)
        return stream

    def _shared_stream(self, **spec: Any) -> Stream:
        """The stream of this kind that another loader has, or a new one: two roads would need memory for two."""
        key = tuple(sorted(spec.items(), key=lambda item: item[0]))
        stream = self._shared.get(key)
        if stream is None or stream.closed:
            stream = self.stream(**spec)
            self._shared[key] = stream
        return stream

    # ---- writing

    def put(self, ids: Any, *, split: Any = None, sync: bool = True, **rows: Any) -> int:
        """Changes rows in one commit, visible together and on disk by then: db.put(ids, feature=x, label=y,
        split="train"). The commit's number. Each id once; a table of None: its rows are deleted. `split`: a name for
        all of the ids ('none': they leave theirs), or a number for each (0: none, 1: train, 2: valid, 3: test)."""
        wanted = ids_of(ids, self.num_nodes).astype(np.uint64)
        if len(np.unique(wanted)) != len(wanted):
            raise UsageError("an id is given twice: which of its rows counts?")
        return self._store.put([(name, wanted, values) for name, values in self._encoded(len(wanted), split, rows)], sync)

    def _encoded(self, count: int, split: Any, rows: dict[str, Any]) -> list[tuple[str, npt.NDArray[np.uint8] | None]]:
        """Rows of so many nodes by table, as they are stored."""
        if isinstance(split, str):
            numbers = {"none": 0, **SPLITS}
            if split not in numbers:
                raise UsageError(f"split {split!r}: 'train', 'valid', 'test' or 'none'")
            split = np.full(count, numbers[split])
        if split is not None:
            rows = {**rows, "split": split}
        return [(name, None if values is None else self[name]._encode(values)) for name, values in rows.items()]

    def add_nodes(
        self,
        features: Any = None,
        *,
        count: int | None = None,
        type: str | None = None,
        split: Any = None,
        names: Sequence[str] | None = None,
        edges: Any = None,
        edge_type: str | Sequence[str] | None = None,
        weights: Any = None,
        topology: str = "graph",
        **rows: Any,
    ) -> npt.NDArray[np.int64]:
        """Adds nodes behind the last one, in one commit, and returns their ids: db.add_nodes(x, label=y, split="train",
        edges=e). `features` (rows of table "feature") says how many, or else `count`; where there is no row, features
        are zeros, the label is -1 and the split none. `names`, where nodes have names; `edges` [2, n] may lead to the new
        nodes, whose ids begin at `num_nodes`. What is opened from then on has them. Busy when another process has added
        some meanwhile.

        `type`: theirs, where nodes have types; `features` are then rows of the type's table, and ids that are returned count
        from 0 in the type. `edge_type`: the relation of all the edges, where there are several, as add_edges has its type;
        ids of their ends then count from 0 in their types, the new nodes behind the others of theirs."""
        first = self.num_nodes  # before types are read: Busy then tells of any that came meanwhile
        node_type = None if type is None else self._node_type(type)
        if features is not None:
            table = "feature" if node_type is None else node_type.feature_table
            if table is None:
                raise UsageError(f"nodes of type {type!r} have no features: give count= instead of rows")
            rows = {table: features, **rows}
        if count is None:
            count = next((len(values) for values in rows.values() if values is not None), None)
        if count is None:
            raise UsageError("how many nodes? give rows of them, or count=")
        ids = np.arange(first, first + count, dtype=np.uint64)
        grown = () if node_type is None else (node_type._replace(num_nodes=node_type.num_nodes + count, ranges=(*node_type.ranges, (first, count))),)
        pairs, relation = (None, 0) if edges is None else self._typed(edges, edge_type, topology, grown)
        numbers = ids if node_type is None else ids - np.uint64(first - node_type.num_nodes)
        tables = [
            (name, numbers if node_type is not None and name == node_type.feature_table else ids, values) for name, values in self._encoded(count, split, rows)
        ]
        self._change(tables, list(names or ()), pairs, weights, topology, added=(first, count, type or ""), relation=relation)
        return numbers.astype(np.int64)

    def add_edges(
        self, edges: Any, weights: Any = None, *, type: str | Sequence[str] | None = None, topology: str = "graph", **columns: Any
    ) -> dict[str, int]:
        """Adds edges [2, n], sources and destinations, in one commit: what has become of the graph. Where equal edges are
        kept once, one that is there stays ("present"), or gets the new weight. Streams and loaders that are open keep the
        edges that they have; those that are opened from then on have the new ones.

        `type`: of a graph with several relations, the one that all the edges are of: its name, or ("author", "writes",
        "paper"); where nodes have types, ids then count from 0 in each, as in a `HeteroData`'s edge_index. Other columns, as
        times=, are refused: they stay arrays of your own, by `edge_ids`."""
        if columns:
            raise Unsupported(
                f"{', '.join(f'{name}=' for name in columns)}: a database keeps the weights and types of edges, and nothing else of them: keep it in an array "
                "of your own, and put it in the order of edge ids afterwards: by_id[db.edge_ids(edges)] = values (docs/python.md); a Loader takes it as edge_attrs"
            )
        pairs, relation = self._typed(edges, type, topology)
        return self._change([], [], pairs, weights, topology, relation=relation)

    def remove_edges(
        self, edges: Any, *, type: str | Sequence[str] | None = None, topology: str = "graph"
    ) -> dict[str, int]:
        """Removes edges, with all their parallel copies, in one commit; one that is not there is counted ("absent").
        `type` as add_edges has it."""
        pairs, relation = self._typed(edges, type, topology)
        return self._change([], [], pairs, None, topology, remove=True, relation=relation)

    def remove_nodes(self, ids: Any, *, type: str | None = None, topology: str = "graph") -> dict[str, int]:
        """Removes nodes in one commit: all their edges go, their label is -1 and their split none from then on, and their
        rows read as zeros, so that nobody draws them or trains on them. An id stays that of a node without edges, and no
        added node gets it; rows that are put, or edges that are added, make it a node again. "nodes_removed" counts them,
        "removed" their edges. Streams and loaders that are open keep the graph that they have. `type`: theirs, where nodes
        have types; ids then count from 0 in it."""
        given = np.asarray(ids)
        node_type = None if type is None else self._node_type(type)
        count = self.num_nodes if node_type is None else node_type.num_nodes
        if given.dtype.kind == "i" and np.any(given < 0):  # which reading takes from the end; here it is a mistake
            raise InvalidArgument(f"nodes from {given.min()} on: there are {count}, from 0 on")
        removed = ids_of(given, count, "nodes")
        if node_type is not None:
            removed = node_type.ids(removed).astype(np.uint32)
        return self._change([], [], None, None, topology, removed=removed)

    def _node_type(self, name: str) -> NodeType:
        types = {found.name: found for found in self.node_types}
        if name not in types:
            raise NotFound(f"there is no type of nodes {name!r}; there are: {', '.join(types) or 'none'}")
        return types[name]

    def _relation_names(self) -> list[str]:
        """By number. They are asked for once: an import gives a database all that it will ever have."""
        if self._relations is None:
            self._relations = [name for _, name in self.sql("SELECT id, name FROM relations ORDER BY id")]
        return self._relations

    def _typed(self, edges: Any, type_: str | Sequence[str] | None, topology: str, grown: Sequence[NodeType] = ()) -> tuple[Any, int]:
        """Edges of a relation, with ids of the database, and its number. `grown`: types as they will be."""
        names = self._relation_names()
        if type_ is None:
            if len(names) > 1:
                raise UsageError(f"edges of which relation? Its type is one of {', '.join(map(str, names))}")
            return edges, 0
        wanted = type_ if isinstance(type_, str) else ":".join(type_)
        typed = self.edge_types
        matches = [number for number, parts in enumerate(typed) if wanted in (parts[1], ":".join(parts))]
        matches = matches or [number for number, name in enumerate(names) if name == wanted]
        exact = [number for number in matches if typed and ":".join(typed[number]) == wanted] or matches
        if len(exact) != 1:
            raise NotFound(f"there {'is no' if not exact else 'are several'} relation {wanted!r}: {', '.join(map(str, names))}")
        if not typed:
            return edges, exact[0]
        source, _, destination = typed[exact[0]]
        pairs = np.asarray(edges)
        if pairs.ndim != 2 or pairs.shape[0] != 2:
            raise UsageError(f"edges of shape {pairs.shape}: [2, n] is wanted, sources and destinations")
        ends = []
        for ids, name in zip(pairs, (source, destination)):
            end = next((found for found in grown if found.name == name), None) or self._node_type(name)
            ends.append(end.ids(ids_of(ids, end.num_nodes, f"nodes of type {name!r}")))
        return np.stack(ends), exact[0]

    def _change(
        self,
        tables: list[tuple[str, npt.NDArray[np.uint64], npt.NDArray[np.uint8] | None]],
        names: list[str],
        edges: Any,
        weights: Any,
        topology: str,
        remove: bool = False,
        removed: npt.NDArray[np.uint32] | None = None,
        relation: int = 0,
        added: tuple[int, int, str] = (0, 0, ""),
    ) -> dict[str, int]:
        """`added`: the first new node, how many come, and their type."""
        ends = _pairs_of(np.empty((2, 0), np.uint32) if edges is None else edges, self.num_nodes + added[1])
        values = None if weights is None else np.ascontiguousarray(weights, np.float32).reshape(-1)
        gone = np.empty(0, np.uint32) if removed is None else removed
        done = self._store.change_graph(topology, *added, tables, names, ends, values, remove, gone, relation)
        self._shared.clear()  # whoever opens a loader now wants the new graph
        return done

    # ---- layouts and upkeep

    def plan(
        self,
        fanouts: Sequence[int] = (10, 10),
        batch_size: int = 1024,
        *,
        name: str = "default",
        cache: int | str = "10%",
        disk: int | str | None = None,
        epochs: int = 1,
        policy: str = "belady",
        seed_order: str = "random",
        direction: str = "in",
        seed: int = 0,
        replace: bool = False,
        sampler: str = "neighbor",
        batch_dependency: int = 0,
        weighted: bool = False,
        edge_ids: bool = False,
        threads: int = 0,
        resume: bool = False,
        progress: ProgressCallable | bool | None = None,
    ) -> dict[str, float]:
        """Builds the layout `name`: epochs of the train split, sampled ahead and packed in the order of their
        use, for `db.stream(layout=name)`. `edge_ids`: batches say which edges they have, until edges come or go. Gives a
        report. Not while a stream is open."""
        self._check_rows("a layout", "feature")
        feature_bytes = self._feature_bytes("feature")
        live = _live_spec(fanouts, batch_size, direction, size(cache, feature_bytes, "cache"), seed, replace, sampler, batch_dependency, weighted, edge_ids=edge_ids)
        return run_with_progress(
            lambda told: _quarry.build_layout(
                self._store, name, live, epochs, policy, seed_order, size(disk, feature_bytes, "disk"), threads, resume, told
            ),
            progress,
        )

    def partition(
        self,
        parts: int = 0,
        *,
        name: str = "default",
        method: str = "grem",
        chunk: float = 0.1,
        table: str | None = "feature",
        topology: str = "graph",
        training_first: bool = False,
        seed: int = 0,
        progress: ProgressCallable | bool | None = None,
    ) -> dict[str, float]:
        """Cuts the graph into parts (0: as many as the device reads well) and stores them as the partitioning `name`,
        for `db.stream(partitioning=name)`. `method`: "grem", which holds the share `chunk` of the edges in memory,
        "bgl", "metis", "random", or "kept": the parts that nodes have in the one of the name, and for nodes that came since by
        their neighbors' parts; where edges alone came and went, the buckets between parts that changed are written, and nothing else. `table`: whose rows parts have, None for edges alone. `training_first`: training nodes get parts of their own, which stay in memory while
        others take turns. Gives a report. One of the name is replaced, once the new one is whole."""
        if not 0 < chunk <= 1:
            raise UsageError(f"chunk {chunk}: the share of the edges in memory, above 0 and at most 1")
        return run_with_progress(
            lambda told: _quarry.build_partitioning(self._store, name, method, parts, chunk, table, topology, training_first, seed, told), progress
        )

    def drop_partitioning(self, name: str) -> None:
        _quarry.drop_partitioning(self._store, name)

    def drop_layout(self, name: str) -> None:
        _quarry.drop_layout(self._store, name)

    def create_table(self, name: str, dim: int, dtype: str = "float32") -> Table:
        """A new table with a row of `dim` zeros for each node, to be put to: db.create_table("age", 1, "float16"). Where nodes
        have types, "venue.feature" is the table of those of the type venue, which has none yet."""
        types = {known: number for number, known in TYPE_NAMES.items()}
        if dtype not in types:
            raise UsageError(f"dtype {dtype!r}: one of {', '.join(types)}")
        _quarry.create_table(self._store, name, types[dtype], dim)
        return self[name]

    def drop_table(self, name: str) -> None:
        """Drops a table for good. Busy while it is read, and once rows of any table were looked up since this database, or
        the server's, was opened; InvalidArgument where a layout needs it."""
        _quarry.drop_table(self._store, name)

    def drop_embeddings(self, name: str) -> None:
        """Drops an embedding table, with its optimizer's state. Not while it is used."""
        _quarry.drop_embeddings(self._store, name)

    def compact(self, table: str | None = None, *, dry_run: bool = False, progress: ProgressCallable | bool | None = None) -> dict[str, dict[str, float]]:
        """Folds changed rows into new files, of one table or of all, and then nodes and edges that came and went into a new
        file of the graph (alone: table="graph"); a report of each."""
        tables = self.tables
        graph = table is None or (table == "graph" and table not in tables)
        names = tables if table is None else [] if graph else [table]
        reports = {name: run_with_progress(lambda told, name=name: _quarry.compact(self._store, name, dry_run, told), progress) for name in names}  # type: ignore[misc]
        if graph:
            reports["graph"] = run_with_progress(lambda told: _quarry.compact_topology(self._store, "graph", dry_run, told), progress)
        return reports

    def checkpoint(self, path: str | os.PathLike[str], *, progress: ProgressCallable | bool | None = None) -> dict[str, float]:
        """A copy of the database as it is now, by links where that is possible: the folder `path`."""
        return run_with_progress(lambda told: _quarry.checkpoint(self._store, os.fspath(path), told), progress)

    def verify(self, *, progress: ProgressCallable | bool | None = None) -> dict[str, Any]:
        """Reads every byte; `faults` of the report says what does not hold."""
        return run_with_progress(lambda told: _quarry.verify(self._store, told), progress)

    def calibrate(self, *, force: bool = False) -> dict[str, float]:
        """What the device and the memory do, measured in 3 s where that is not known yet. Not while a stream is
        open."""
        return _quarry.calibrate(self._store, force)

    # ---- life

    def close(self) -> None:
        """Closes it, with its streams and snapshots. Arrays of batches that are views still keep it open."""
        for stream in list(self._streams):
            stream.close()
        for snapshot in list(self._snapshots):
            snapshot.close()
        self._store.close()
        self._is_open = False

    def _is_usable(self) -> bool:
        """Neither closed nor of the process that this one was forked from."""
        return self._is_open and self._pid == os.getpid()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if not _is_path(self._address):
            return _reopened, (self._address, *self._options)
        # The parent of a process that is being spawned is told here, rather than a worker that ends.
        if self._is_usable() and get_spawning_popen() is not None:
            raise Unsupported(f"{self._address} is open in this process, so the one that is started could not open it: {_FOR_SEVERAL}")
        return _reopened, (os.path.abspath(self._address), *self._options)

    def __repr__(self) -> str:
        try:
            told = self._store.describe()
        except Exception:  # noqa: BLE001: a repr always works
            return f"<quarry.Database '{self._address}', closed>"
        tables = ", ".join(f"{name} {rows} x {dim} {TYPE_NAMES[kind]} ({bytes_text(rows * row_bytes)})" for name, rows, dim, row_bytes, kind in told["tables"])
        return f"<quarry.Database '{self._address}': {told['nodes']} nodes, {self.num_edges} edges; {tables}>"

    def _repr_html_(self) -> str:
        try:
            tables = [Table(self, info[0], None, info) for info in self._store.describe()["tables"]]
            caption = f"quarry.Database '{self._address}': {self.num_nodes} nodes, {self.num_edges} edges"
        except Exception:  # noqa: BLE001: as the repr
            return _html.table(repr(self))
        return _html.table(caption, _TABLE_COLUMNS, [table._shown() for table in tables])

    def _check_rows(self, what: str, table: str) -> None:
        """Batches have rows of a table. A database with types has its features by type, and none for all nodes."""
        if table in self:
            return
        if table == "feature" and self.node_types:
            raise Unsupported(
                f"{self._address}: {what} of a database with types of nodes and edges: batches are sampled as they come, "
                "by quarry.pyg.Loader, or with relation_fanouts of db.stream"
            )
        raise NotFound(
            f"{self._address}: there is no table {table!r}, whose rows the batches of {what} have; tables are {', '.join(self.tables) or 'none'}. "
            "db.create_table(name, 1) makes one of zeros; table=None of db.stream, quarry.pyg's loaders and db.sample need none"
        )

    def _feature_bytes(self, table: str) -> int:
        return self[table].nbytes if table in self else 0


def _pairs_of(edges: Any, node_count: int, *by_end: int) -> npt.NDArray[np.uint32]:
    """Edges [2, n], sources and destinations; `by_end`: how many nodes each of them may be, where that differs."""
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise UsageError(f"edges of shape {pairs.shape}: [2, n] is wanted, sources and destinations")
    if by_end:
        return np.stack([ids_of(ends, count, "nodes") for ends, count in zip(pairs, by_end)])
    return ids_of(pairs, node_count, "nodes").reshape(2, -1)


def direction_of(name: str) -> int:
    if name not in DIRECTIONS:
        raise UsageError(f"direction {name!r}: 'in', 'out' or 'both'")
    return DIRECTIONS[name]
