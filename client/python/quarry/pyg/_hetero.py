"""Databases with types: fanouts by type of edges and seeds of a type, for all loaders, and batches as HeteroData, which a
`Loader` has of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import numpy as np
import numpy.typing as npt

from .. import _quarry
from .._errors import Error, Unsupported, UsageError
from .._values import SPLITS, ids_of

if TYPE_CHECKING:
    from .._database import Database, NodeType

    EdgeType = tuple[str, str, str]

NEIGHBORS_MAX = 1024  # of a node in one hop, by edges of a type
_NEIGHBORS_OF_TYPES_MAX = 4096  # and by those of all types


class Types:
    """The types of nodes and edges of a database, and what is asked of it by type."""

    @staticmethod
    def of(db: Database) -> Types | None:
        """None where the database has one type of nodes and edges."""
        types = types_of(db)
        return Types(db, types) if types else None

    def __init__(self, db: Database, types: list[NodeType]) -> None:
        self._db = db
        self.nodes = types
        self.edges = db.edge_types
        self.names = [type_.name for type_ in types]
        self.raw = _quarry.HeteroTypes(
            sorted(
                (first, first + count, place, number)
                for place, type_ in enumerate(types)
                for (first, count), number in zip(type_.ranges, np.cumsum([0, *(count for _, count in type_.ranges)]).tolist())
            ),
            [type_.dim for type_ in types],
            [self.names.index(source) for source, _, _ in self.edges],
            [self.names.index(destination) for _, _, destination in self.edges],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Types.of, (self._db,)

    def by_name(self, name: Any, what: str) -> NodeType:
        if name not in self.names:
            raise UsageError(f"{what} of type {name!r}: a type of nodes ({', '.join(self.names)}) is wanted")
        return self.nodes[self.names.index(name)]

    def edge_type(self, given: Any, what: str) -> tuple[str, str, str]:
        named = tuple(given) if isinstance(given, (tuple, list)) else given
        if named not in self.edges:
            raise UsageError(f"{what} of type {given!r}: a type of edges is wanted, of {', '.join(map(str, self.edges))}")
        return named

    def edge_places(self, edge_types: Sequence[EdgeType]) -> dict[EdgeType, EdgePlaces]:
        """Where edges of each of these types stand among themselves; all edges are read once."""
        places = {self._db._edge_type(edge_type)[0]: EdgePlaces(self._db.num_edges) for edge_type in edge_types}
        for first, rows in self._db._edges_in_parts():
            for relation, of_type in places.items():
                of_type.add(first, rows[:, 1] == relation)
        for of_type in places.values():
            of_type.end()
        return dict(zip(edge_types, places.values()))

    def fanouts_into(self, hop: int, by_relation: list[list[int]]) -> list[int]:
        """The most neighbors of a node in a hop, by its type, but for edges all of which are taken."""
        return [sum(max(0, fanouts[hop]) for (_, _, to), fanouts in zip(self.edges, by_relation) if to == name) for name in self.names]

    def by_relation(self, num_neighbors: Any) -> list[list[int]]:
        """Fanouts of each hop, for each type of edges; types that are left out are not followed."""
        by_relation = _by_relation(num_neighbors, self.edges)
        most = max(max(self.fanouts_into(hop, by_relation)) for hop in range(len(by_relation[0])))
        if most > _NEIGHBORS_OF_TYPES_MAX:
            raise UsageError(f"num_neighbors {num_neighbors}: a node is given {most} neighbors in a hop by all types of edges, and {_NEIGHBORS_OF_TYPES_MAX} are the most")
        return by_relation

    def seeds_of(self, input_nodes: Any) -> tuple[int, npt.NDArray[Any]]:
        """The type of the seeds, by its place, and which of its nodes they are, ids from 0 on; a mask as it is."""
        if isinstance(input_nodes, str) and input_nodes in self.names:
            input_nodes = (input_nodes, None)
        if isinstance(input_nodes, str) and input_nodes in SPLITS:
            nodes = nodes_of_split(self._db, input_nodes)
            found = np.unique(self._types_of(nodes))
            if len(found) != 1:
                of = "of no type" if len(found) == 0 else "of types " + ", ".join(self.names[i] for i in found)
                raise UsageError(f"input_nodes {input_nodes!r}: the split has nodes {of}; give the type, as ({self.names[0]!r}, {input_nodes!r})")
            return int(found[0]), self.nodes[found[0]].numbers(nodes)
        if not isinstance(input_nodes, (tuple, list)) or len(input_nodes) != 2 or input_nodes[0] not in self.names:
            raise UsageError(f"input_nodes {input_nodes!r}: a type of nodes ({', '.join(self.names)}) and which of them, as ({self.names[0]!r}, 'train')")
        index = self.names.index(input_nodes[0])
        type_, wanted = self.nodes[index], input_nodes[1]
        if isinstance(wanted, str):
            if wanted not in SPLITS:
                raise UsageError(f"input_nodes {input_nodes!r}: 'train', 'valid' or 'test', ids, a mask, or None")
            nodes = nodes_of_split(self._db, wanted)
            nodes = type_.numbers(nodes)
            nodes = nodes[nodes >= 0]
            if len(nodes) == 0:
                raise UsageError(f"input_nodes {input_nodes!r}: the database has no {wanted} nodes of this type" + (" with labels" if wanted == "train" else ""))
            return index, nodes
        if wanted is None:
            return index, np.arange(type_.num_nodes)
        given = array_of(wanted)
        ids = ids_of(given, type_.num_nodes, f"input_nodes of type {type_.name!r}")
        return index, given if given.dtype == np.bool_ else ids.astype(np.int64)

    def _types_of(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        types = np.full(len(nodes), -1, np.int64)
        for place, type_ in enumerate(self.nodes):
            types[type_.numbers(nodes) >= 0] = place
        return types


class EdgePlaces:
    """Where the edges of one type stand among themselves, by their columns of db.edges(), which has those of all types: a bit for
    each edge, and a count for 64 of them; nothing where they stand together there, as those of the only type into theirs do."""

    def __init__(self, num_edges: int) -> None:
        self.count = 0
        self._first = self._last = -1  # column
        self._bits = np.zeros(-(-num_edges // 64), np.uint64)
        self._before = np.zeros(len(self._bits), np.int64)  # edges of the type in the words before

    def add(self, first: int, of_type: npt.NDArray[np.bool_]) -> None:
        """The next edges, from column `first`, a multiple of 64, on: which of them are of the type."""
        found = np.flatnonzero(of_type)
        if len(found) == 0:
            self._before[first // 64 : -(-(first + len(of_type)) // 64)] = self.count
            return
        if self._first < 0:
            self._first = first + int(found[0])
        self._last = first + int(found[-1])
        packed = np.zeros(-(-len(of_type) // 64) * 8, np.uint8)
        packed[: -(-len(of_type) // 8)] = np.packbits(of_type, bitorder="little")
        words = packed.view("<u8")
        here = slice(first // 64, first // 64 + len(words))
        self._bits[here] = words
        counts = _BITS[packed].reshape(-1, 8).sum(axis=1, dtype=np.int64)
        self._before[here] = self.count + np.cumsum(counts) - counts
        self.count += len(found)

    def end(self) -> None:
        """Behind the last of them."""
        if self._together:
            self._bits, self._before = np.empty(0, np.uint64), np.empty(0, np.int64)

    @property
    def _together(self) -> bool:
        return self.count > 0 and self._last - self._first + 1 == self.count

    def of(self, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The places of edges of the type."""
        if self._together:
            return columns - self._first
        word, bit = columns >> 6, (columns & 63).astype(np.uint64)
        below = self._bits[word] & ((np.uint64(1) << bit) - np.uint64(1))
        places: npt.NDArray[np.int64] = self._before[word] + _BITS[below.astype("<u8").view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.int64)
        return places


_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


class Hetero:
    """What was asked of a Loader whose database has types."""

    @staticmethod
    def of(db: Database, num_neighbors: Any, input_nodes: Any) -> Hetero | None:
        """None where the database has one type of nodes and edges."""
        types = Types.of(db)
        if types is not None:
            return Hetero(types, num_neighbors, input_nodes)
        if not isinstance(num_neighbors, dict) and isinstance(input_nodes, tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str):
            raise UsageError(f"input_nodes {input_nodes!r}: this database has one type of nodes; give a split's name, ids, or a mask")
        return None

    def __init__(self, types: Types, num_neighbors: Any, input_nodes: Any) -> None:
        self.types = types
        by_relation = types.by_relation(num_neighbors)
        hops = range(len(by_relation[0]))
        self.relation_fanouts = tuple(fanouts[hop] for hop in hops for fanouts in by_relation)
        self.fanouts = [-1 if -1 in (fanouts[hop] for fanouts in by_relation) else max(1, *types.fanouts_into(hop, by_relation)) for hop in hops]
        self._seed_type, seeds = types.seeds_of(input_nodes)
        if seeds.dtype == np.bool_:
            seeds = np.flatnonzero(seeds)
        self.seeds = types.nodes[self._seed_type].ids(seeds)

    @property
    def seeds_of(self) -> NodeType:
        """The type of the seeds."""
        return self.types.nodes[self._seed_type]

    @property
    def seed_type(self) -> str:
        return self.seeds_of.name

    def check(self, **asked: bool) -> None:
        """Refuses what batches with types do not have."""
        for name, wanted in asked.items():
            if wanted:
                raise Unsupported(f"{name.replace('_', ' ')}: batches of a database with types are sampled as they come, uniformly, along 'in', to memory")

    def take(self, raw: Any, pyg: _quarry.PygPass) -> dict[str, Any]:
        return raw.hetero_block(self.types.raw, self._seed_type, pyg)  # type: ignore[no-any-return]

    def data(self, block: dict[str, Any], pinned: bool) -> Any:
        """A HeteroData of what `take` took, in place."""
        import torch
        from torch_geometric.data import HeteroData

        def tensor(array: npt.NDArray[Any]) -> Any:
            made = torch.from_numpy(array)
            return made.pin_memory() if pinned else made

        data = HeteroData()
        for name, (n_id, x, sampled) in zip(self.types.names, block["nodes"]):
            store = data[name]
            store.n_id = tensor(n_id)
            store.num_nodes = len(n_id)
            if x is not None:
                store.x = tensor(x)
            store.num_sampled_nodes = sampled
        for edge_type, (edge_index, e_id, sampled) in zip(self.types.edges, block["edges"]):
            store = data[edge_type]
            store.edge_index = tensor(edge_index)
            if e_id is not None:
                store.e_id = tensor(e_id)
            store.num_sampled_edges = sampled
        seeds = data[self.seed_type]
        if block["y"] is not None:
            seeds.y = tensor(block["y"])
        seeds.input_id = tensor(block["input_id"])
        seeds.batch_size = block["batch_size"]
        return data


def types_of(db: Database) -> list[NodeType]:
    """Types of nodes; none where there is one."""
    try:
        return db.node_types
    except Error:
        if db.address.startswith("unix:"):  # a server of a Quarry that has no types
            return []
        raise


def _by_relation(num_neighbors: Any, edge_types: list[tuple[str, str, str]]) -> list[list[int]]:
    given = num_neighbors if isinstance(num_neighbors, dict) else dict.fromkeys(edge_types, num_neighbors)
    unknown = [edge_type for edge_type in given if edge_type not in edge_types]
    if unknown:
        raise UsageError(f"num_neighbors: there are no edges of type {unknown[0]}; types are {', '.join(map(str, edge_types))}")
    lists = {edge_type: [int(fanout) for fanout in fanouts] if np.iterable(fanouts) else [] for edge_type, fanouts in given.items()}
    hops = {len(fanouts) for fanouts in lists.values()}
    fanouts = [fanout for of_type in lists.values() for fanout in of_type]
    if len(hops) != 1 or not fanouts or min(fanouts) < -1 or max(fanouts) > NEIGHBORS_MAX:
        raise UsageError(f"num_neighbors {num_neighbors}: for each hop a number from 0 to {NEIGHBORS_MAX}, of as many hops for each type, or -1 for all neighbors")
    return [lists.get(edge_type, [0] * hops.copy().pop()) for edge_type in edge_types]


def nodes_of_split(db: Database, split: str) -> npt.NDArray[np.int64]:
    """Seeds of a pass over a split: its nodes, of the train split those with a label; ascending."""
    nodes = db.split(split)
    if split == "train" and "label" in db:
        nodes = nodes[db["label"][nodes] >= 0]
    return nodes


def array_of(nodes: Any) -> npt.NDArray[Any]:
    return np.asarray(nodes.detach().cpu() if hasattr(nodes, "detach") else nodes)
