"""`Loader`, over a stream of the engine. Torch is imported when one is iterated."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .. import _quarry
from .._batches import Stream
from .._errors import Unsupported, UsageError
from .._values import FLOAT32, SPLITS, ids_of, size
from ._additions import EdgeAttributes, adjacency, in_turn, targets_of_seeds
from ._hetero import NEIGHBORS_MAX, Hetero, array_of, nodes_of_split

if TYPE_CHECKING:
    from .._database import Database, Snapshot
    from .._waiting import ProgressCallable

_OF_DATALOADER = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "worker_init_fn", "filter_per_worker")
_NOT_THERE = ("subgraph_type", "disjoint", "temporal_strategy", "time_attr", "input_time", "neighbor_sampler")


class Loader:
    """Mini-batches of a database as torch_geometric.data.Data: an epoch each time it is iterated.

    num_neighbors  neighbors a hop, from the seeds outwards: 1 to 1024, or -1 for all, where no node has more than that (by
                   all types together 4096): such batches are sampled as they come, not planned; of a database with types, a
                   list for all types of edges, or a dict of lists by (source, name, destination), from 0 on
    input_nodes    the seeds: "train", "valid" or "test", ids, a mask; None: all nodes. In a database with types a pair,
                   the type and which of its nodes, ids from 0 on: ("paper", "train"); or the type: all of them
    shuffle        seeds in another order every epoch; else batches come in the order of `input_nodes`
    plan           True: epochs over the train split are sampled and packed once, by the first epoch, and read at
                   the disk's speed from then on (they repeat after `epochs`); needs shuffle. "auto": where such a
                   layout has been built; False: never; or the name of a layout of `db.plan`
    cache, disk    rows that stay in memory, and the most that a plan may take, as bytes or shares of the
                   features: "10%", "3x"
    sampler        "neighbor" draws of each node by itself; "labor" the same neighbors for the nodes of a hop where it
                   can, with batch_dependency alike for so many batches
    weighted       neighbors are drawn with probability proportional to the weights of edges
    device         where the tensors go. To a GPU the engine brings them: rows in one copy, by a stream of its own, beside
                   the caller's work; what a plan's cache holds stays there, as far as gpu_memory goes
    gpu_memory     what may be taken of the GPU's memory, as bytes ("2GiB"); "auto": half of what is free; 0: nothing, and
                   batches go there through Torch's pinned memory
    gpu_cache      part of it for rows that stay there between batches, as bytes or a share of the features; None: as
                   many as there is room for
    gpu_sampling   batches are sampled on the GPU, from lists that take part of gpu_memory and lie there as long as the
                   Loader's road is open; never from a plan. Uniform draws only; the same batches either way
    partitioning   part by part: the name of what `quarry partition build` has cut the graph into, for a graph whose edges
                   do not fit into memory either; `buffer` parts are there at a time (0: as many as there is room for), and
                   neighbors are drawn among them. For splits alone; an epoch has as many batches as its parts make
    edge_attrs     arrays or tensors by edge id, an edge's column in db.edges(), of which each batch has the rows of its
                   edges: {"edge_attr": array}; memory-mapped ones stay on disk. `db.edge_ids(edge_index)` brings what lies
                   beside an edge_index into that order. With types, by type of edges, each in the order that
                   its edges have in db.edges(): {("author", "writes", "paper"): {"edge_attr": array}}
    adj_t          batches have adj_t in the place of edge_index: torch.sparse_csr, [nodes, nodes], by target
    drop_last      leaves batches with fewer than batch_size seeds out of an epoch: its last one, and of parts any
    transform      called with each batch, on the thread that makes them; of batches on a GPU on a stream of the Loader's,
                   behind what the caller's stream had to do when the epoch began

    A batch has x (float32; without features none), edge_index (from neighbor to node, as local ids), y (labels of the seeds, which come
    first; -1: none; of a database with a table "target" and no labels its rows, float32, NaN: none), n_id (global ids), batch_size, input_id (positions in input_nodes), num_sampled_nodes and
    num_sampled_edges (for trim_to_layer); with edge_ids also e_id (by column of edge_index, its column in
    db.edges()). The labels of other nodes are not there. Batches
    are the caller's: they may be kept. From a database with types it is a HeteroData: the same by type of nodes and of edges,
    x where nodes of the type have features, y, input_id and batch_size of the seeds' type; e_id is a column of db.edges()
    there, too. Such batches are sampled as they come, uniformly, along "in", to memory. Two are made ahead, on a thread of the Loader, in memory beside the database's.
    Loaders of one database and one kind of batch take turns on one road, so that one pass runs at a time.
    """

    def __init__(
        self,
        db: Database,
        num_neighbors: Sequence[int] | dict[tuple[str, str, str], Sequence[int]],
        batch_size: int = 1024,
        input_nodes: Any = "train",
        *,
        shuffle: bool = False,
        plan: bool | str = "auto",
        cache: int | str = "10%",
        disk: int | str | None = None,
        epochs: int = 1,
        seed: int = 0,
        replace: bool = False,
        sampler: str = "neighbor",
        batch_dependency: int = 0,
        weighted: bool = False,
        edge_ids: bool = False,
        direction: str = "in",
        snapshot: Snapshot | None = None,
        device: Any = None,
        gpu_memory: int | str = "auto",
        gpu_cache: int | str | None = None,
        gpu_sampling: bool = False,
        partitioning: str | None = None,
        buffer: int = 0,
        edge_attrs: Mapping[Any, Any] | None = None,
        adj_t: bool = False,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        progress: ProgressCallable | bool | None = None,
        **others: Any,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "others")}
        for name in others:
            if name in _OF_DATALOADER:
                raise TypeError(f"Loader has no {name}: batches are made by threads of the engine, not by worker processes; leave it out")
            if name == "weight_attr":
                raise Unsupported("Loader has no weight_attr: weights are those of the database's edges, and weighted=True draws by them")
            if name in _NOT_THERE:
                raise Unsupported(f"Loader has no {name} yet")
            raise TypeError(f"Loader has no argument {name!r}")
        self._db = db
        if not hasattr(db, "num_nodes"):
            raise UsageError(f"a Loader of {db!r}: a database is wanted, as quarry.open gives it")
        if batch_size < 1:
            raise UsageError(f"batch_size {batch_size}: 1 seed at least")
        self._hetero = Hetero.of(db, num_neighbors, input_nodes)
        self._fanouts = fanouts_of(num_neighbors) if self._hetero is None else self._hetero.fanouts
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._shuffle = shuffle
        self._plan = plan
        self._cache = cache
        self._disk = disk
        self._epochs = epochs
        self._seed = seed
        self._draws: dict[str, Any] = {"replace": replace, "sampler": sampler, "batch_dependency": 0 if batch_dependency == 1 else batch_dependency, "weighted": weighted}
        of_edges = EdgeAttributes(db, edge_attrs, None if self._hetero is None else self._hetero.types)
        edge_ids = edge_ids or bool(of_edges)
        if adj_t and edge_ids:
            raise UsageError("adj_t: its entries are in another order than ids and attributes of edges, which go with edge_index; leave one of them out")
        self._edge_ids = edge_ids
        self._has_targets = "target" in db and ("label" not in db if self._hetero is None else self._hetero.seeds_of.num_classes == 0)
        self._direction = direction
        self._snapshot = snapshot
        self._device = device
        self._pinned = isinstance(device, int) or str(device).startswith("cuda")
        self._gpu_memory = 0 if gpu_memory == "auto" else size(gpu_memory, None, "gpu_memory")  # as the engine has it
        self._by_engine = self._pinned and self._hetero is None and (gpu_memory == "auto" or self._gpu_memory > 0)
        self._gpu_cache = gpu_cache
        self._gpu_sampling = gpu_sampling
        if gpu_sampling and not self._by_engine and self._hetero is None:
            raise UsageError("gpu_sampling: batches are sampled on the GPU that device names, where gpu_memory leaves it memory")
        if gpu_sampling and plan not in (False, "auto"):
            raise UsageError("gpu_sampling: a plan's batches are sampled ahead, by the processor; give plan=False")
        self._parts = {"partitioning": partitioning, "buffer": buffer} if partitioning is not None or buffer else {}
        if partitioning is not None and (plan not in (False, "auto") or edge_ids or gpu_sampling):
            raise UsageError("partitioning: batches of parts are not planned, have no edge ids, and are sampled by the processor; leave plan, edge_ids and gpu_sampling out")
        if partitioning is not None and not isinstance(input_nodes, str) and self._hetero is None:
            raise UsageError("partitioning: seeds are those of a split; give input_nodes its name")
        self._gpu: _Gpu | None = None  # while the engine brings batches to it
        self._given = transform
        self._added = in_turn(of_edges.add if of_edges else None, adjacency if adj_t else None)
        self._transform = in_turn(self._added, transform)
        self._progress = progress
        if self._hetero is not None:
            self._hetero.check(plan=plan not in (False, "auto"), partitioning=partitioning is not None, gpu_sampling=gpu_sampling, weighted=weighted, labor=sampler != "neighbor", other_direction=direction != "in")
            input_nodes = self._hetero.seeds
        # Batches of a database without features have no x; what is packed, and parts, are made of rows, and say so.
        named = isinstance(plan, str) and plan != "auto"
        self._table = "feature" if "feature" in db or self._hetero is not None or self._parts or named else None
        if self._table is None:
            for option, asked in (("plan", plan is True), ("gpu_sampling", gpu_sampling)):
                if asked:
                    raise UsageError(f"{option}: {db.address} has no features, and batches without x are sampled as they come, to memory; leave {option} out")
            self._by_engine = False
        self._split = input_nodes if isinstance(input_nodes, str) else None
        if self._split is not None and self._split not in SPLITS:
            raise UsageError(f"input_nodes {input_nodes!r}: 'train', 'valid' or 'test', ids, a mask, or None")
        if plan is True and self._split == "train" and not shuffle:
            raise UsageError("a plan has an order of its own: plan=True needs shuffle=True")
        if -1 in self._fanouts and (named or plan is True or self._parts):
            raise UsageError("num_neighbors -1: all neighbors are taken by batches that are sampled as they come; give numbers, or leave plan and partitioning out")
        self._seeds: npt.NDArray[np.uint32] | None = None
        if self._split is None:
            nodes = np.arange(db.num_nodes) if input_nodes is None else array_of(input_nodes)
            self._seeds = ids_of(nodes, db.num_nodes, "input_nodes")
        self._pass: _quarry.PygPass | None = None
        self._num_seeds = 0
        self._stream: Stream | None = None
        self._passes = 0

    @property
    def num_seeds(self) -> int:
        """Seeds of an epoch. Of the train split those with a label."""
        self._prepare()
        return self._num_seeds

    def __len__(self) -> int:
        if self._parts:
            raise TypeError("a Loader of parts has no len(): the parts that an epoch holds together decide how many batches it has")
        return self.num_seeds // self._batch_size if self._drop_last else -(-self.num_seeds // self._batch_size)

    def _check_device(self) -> None:
        if self._device is None:
            return
        torch, _ = _torch()
        device = torch.device(self._device)
        if device.type == "cuda" and not torch.cuda.is_available():
            why = "has no CUDA" if torch.version.cuda is None else "finds no GPU (torch.cuda.is_available() is False)"
            raise UsageError(f"device {str(device)!r}: the installed torch {torch.__version__} {why}; leave device out, and batches stay in memory")

    def __iter__(self) -> Iterator[Any]:
        self._check_device()
        if self.num_seeds == 0 and self._split is not None:
            labelled = " with labels" if self._split == "train" else ""
            raise UsageError(
                f"input_nodes {self._split!r}: the database has no {self._split} nodes{labelled}; give input_nodes ids or a mask, or name them when it is made "
                f"({self._split}= of import_, {self._split.replace('valid', 'val')}_mask of a Data)"
            )
        stream, pyg = self._open(), self._prepare()
        self._passes += 1
        seeds: Any = self._seeds if self._split is None else self._split
        if self._gpu is not None:
            self._gpu.begin()
            ahead = stream.made_ahead(seeds, self._gpu.take, self._gpu.data, shuffle=self._shuffle, ordered=not self._shuffle, number=self._passes)
            return self._kept(self._gpu.handed_over(ahead))
        ahead_of = None if self._hetero is not None else pyg
        return self._kept(stream.made_ahead(seeds, self._take, self._data, shuffle=self._shuffle, ordered=not self._shuffle, number=self._passes, pyg=ahead_of))

    def _kept(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Without those that drop_last drops. No generator, which would keep the last batch that it gave."""
        return filter(self._is_full, batches) if self._drop_last else batches

    def _is_full(self, data: Any) -> bool:
        return bool((data if self._hetero is None else data[self._hetero.seed_type]).batch_size == self._batch_size)

    def _take(self, raw: Any) -> tuple[Any, Any]:
        """What a batch has for PyG: ids, which the engine made ahead, and rows. Pinned memory is Torch's to make."""
        if self._hetero is not None:
            return self._hetero.take(raw, self._prepare()), None
        block = raw.pyg_block(features=not self._pinned)
        if not self._pinned or raw.dim == 0:
            return block, None
        torch, _ = _torch()
        x = torch.empty((raw.node_count, raw.dim), pin_memory=True)
        raw.gather(x.numpy(), FLOAT32, raw.dim * 4)
        return block, x

    def _data(self, taken: tuple[Any, Any]) -> Any:
        block, x = taken
        data = _torch(self._pinned)[1](block) if self._hetero is None else self._hetero.data(block, self._pinned)
        if x is not None:
            data.x = x
        if self._transform is not None:
            data = self._transform(data)
        return data if self._device is None else data.to(self._device, non_blocking=self._pinned)

    def _seeds_by_id(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32] | None]:
        """The seeds, ascending, and where each stands in input_nodes, if that is elsewhere."""
        if self._seeds is None:
            return nodes_of_split(self._db, self._split or "train").astype(np.uint32), None
        order = np.argsort(self._seeds, kind="stable")
        nodes = self._seeds[order]
        if np.any(nodes[1:] == nodes[:-1]):
            raise UsageError("input_nodes has a node twice")
        return nodes, order.astype(np.uint32)

    def _prepare(self) -> _quarry.PygPass:
        """What the engine makes of each batch, which needs to know the seeds."""
        if self._pass is None:
            nodes, order = self._seeds_by_id()
            self._num_seeds = len(nodes)
            self._pass = _quarry.PygPass(nodes, order)
        return self._pass

    def _suffix(self) -> str:
        """How neighbors are drawn, in the name of a layout."""
        suffix = "-r" if self._draws["replace"] else ""
        if self._draws["sampler"] != "neighbor":
            suffix += f"-{self._draws['sampler']}{self._draws['batch_dependency'] or ''}"
        return suffix + ("-w" if self._draws["weighted"] else "") + ("-ids" if self._edge_ids else "")

    def _layout(self) -> str | None:
        """The layout that an epoch is read from, built if it has to be."""
        if self._hetero is not None or self._plan is False or self._parts or -1 in self._fanouts or self._gpu_sampling or (self._split == "train" and not self._shuffle):
            return None
        layouts = self._db.layouts
        if isinstance(self._plan, str) and self._plan != "auto":
            return self._plan
        fanouts = "-".join(map(str, self._fanouts))
        name = f"pyg-{fanouts}-b{self._batch_size}-e{self._epochs}-s{self._seed}-{self._direction}{self._suffix()}"
        if name in layouts and layouts[name].servable:
            return name
        if self._plan == "auto" or self._split != "train":
            return None
        self._db.plan(
            self._fanouts,
            self._batch_size,
            name=name,
            cache=self._cache,
            disk=self._disk,
            epochs=self._epochs,
            direction=self._direction,
            seed=self._seed,
            edge_ids=self._edge_ids,
            progress=self._progress,
            **self._draws,
        )
        return name

    def _open(self) -> Stream:
        if self._stream is None or self._stream.closed:
            layout = self._layout()
            spec = dict(
                fanouts=tuple(self._fanouts),
                batch_size=self._batch_size,
                layout=layout,
                cache=self._cache if layout is None and not self._parts else 0,
                direction=self._direction,
                seed=self._seed,
                edge_ids=self._edge_ids,
                snapshot=self._snapshot,
                table=self._table,
                **self._draws,
                **self._parts,
            )
            if self._has_targets:
                source = self._snapshot or self._db.snapshot()
                of_type = None if self._hetero is None else self._hetero.seeds_of
                self._transform = in_turn(targets_of_seeds(source["target"], of_type), self._added, self._given)
            if self._hetero is not None:
                spec["relation_fanouts"] = self._hetero.relation_fanouts
            self._stream, self._gpu = self._opened_gpu(spec) if self._by_engine else (self._db._shared_stream(**spec), None)
        return self._stream

    def _opened_gpu(self, spec: dict[str, Any]) -> tuple[Stream, _Gpu | None]:
        """A stream to the GPU; where the engine cannot reach it (a server's database, a Quarry without kernels), one to
        memory, whose batches go on by way of Torch's pinned memory."""
        torch, _ = _torch()
        device = torch.device(self._device)
        ordinal = torch.cuda.current_device() if device.index is None else device.index
        try:
            stream = self._db._shared_stream(device=ordinal, gpu_memory=self._gpu_memory, gpu_cache=self._gpu_cache, gpu_sampling=self._gpu_sampling, **spec)
        except Unsupported:
            if self._gpu_sampling:
                raise
            return self._db._shared_stream(**spec), None
        nodes, order = self._seeds_by_id()
        return stream, _Gpu(torch.device("cuda", ordinal), nodes, order, self._transform)

    def __reduce__(self) -> tuple[Any, ...]:
        """What it was made of; its road is opened anew, and its first epoch is the next one."""
        return _made_of, (self._arguments,)

    def stats(self) -> dict[str, float]:
        """Counters of the epoch so far."""
        return self._open().stats()

    def __repr__(self) -> str:
        if self._hetero is not None:
            return f"<quarry.pyg.Loader: {len(self._hetero.seeds)} nodes of type {self._hetero.seed_type!r}, batches of {self._batch_size}>"
        seeds = self._split or f"{len(self._seeds) if self._seeds is not None else 0} nodes"
        return f"<quarry.pyg.Loader: {seeds}, num_neighbors {self._fanouts}, batches of {self._batch_size}, plan {self._plan}>"


def _made_of(arguments: dict[str, Any]) -> Loader:
    return Loader(**arguments)


class _Gpu:
    """What a Loader does with batches that the engine brings to a GPU. They are written to Torch's memory on a stream of
    the Loader's, whose work the caller's stream waits for when a batch is handed over."""

    def __init__(self, device: Any, nodes: npt.NDArray[np.uint32], order: npt.NDArray[np.uint32] | None, transform: Callable[[Any], Any] | None) -> None:
        torch, _ = _torch()
        self._device = device
        self._transform = transform
        self._side = torch.cuda.Stream(device)
        with torch.cuda.stream(self._side):
            self._nodes = torch.from_numpy(nodes.astype(np.int64)).to(device)
            self._order = None if order is None else torch.from_numpy(order.astype(np.int64)).to(device)

    def begin(self) -> None:
        """Whatever a transform reads was written by then."""
        import torch

        self._side.wait_stream(torch.cuda.current_stream(self._device))

    def take(self, raw: Any) -> Any:
        import torch
        from torch_geometric.data import Data

        nodes, edges, seeds = raw.node_count, raw.edge_count, raw.seed_count
        with torch.cuda.stream(self._side):

            def ids(*shape: int) -> Any:
                return torch.empty(shape, dtype=torch.int64, device=self._device)

            data = Data(edge_index=ids(2, edges), n_id=ids(nodes), batch_size=seeds, num_nodes=nodes)
            if raw.dim > 0:
                data.x = torch.empty((nodes, raw.dim), device=self._device)
            if raw.has_labels:
                data.y = ids(seeds)
            if raw.has_edge_ids:
                data.e_id = ids(edges)
            raw.to_device(self._side.cuda_stream, *(data[name].data_ptr() if name in data else 0 for name in ("x", "edge_index", "n_id", "y", "e_id")))
            at = torch.searchsorted(self._nodes, data.n_id[:seeds])
            data.input_id = at if self._order is None else self._order[at]
        data.num_sampled_nodes, data.num_sampled_edges = raw.hops()
        return data

    def data(self, data: Any) -> tuple[Any, Any]:
        import torch

        with torch.cuda.stream(self._side):
            if self._transform is not None:
                data = self._transform(data)
            return data, self._side.record_event()

    def handed_over(self, ahead: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
        import torch

        for data, written in ahead:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(written)
            # The allocator gives the memory to nobody before what the caller's stream does with it until then is through.
            data.record_stream(current)
            held = [data]
            del data
            yield held.pop()  # the caller's alone: it dies with the caller's name for it


def fanouts_of(num_neighbors: Any) -> list[int]:
    """Neighbors a hop; -1: all of them."""
    if isinstance(num_neighbors, dict):
        raise UsageError("num_neighbors by type of edges: this database has one type; give a list")
    fanouts = [int(fanout) for fanout in num_neighbors] if np.iterable(num_neighbors) else []
    if not fanouts or any(not (1 <= fanout <= NEIGHBORS_MAX or fanout == -1) for fanout in fanouts):
        raise UsageError(f"num_neighbors {num_neighbors}: a list, for each hop a number from 1 to {NEIGHBORS_MAX}, or -1 for all neighbors")
    return fanouts


@functools.cache
def _torch(pinned: bool = False) -> tuple[Any, Callable[[_quarry.PygBlock], Any]]:
    """torch, and what makes a Data of a block: imported once, as the statement takes tens of microseconds in a batch."""
    import torch
    from torch.utils.dlpack import from_dlpack
    from torch_geometric.data import Data

    def tensor_of(capsule: Any) -> Any:
        tensor = from_dlpack(capsule)
        return tensor.pin_memory() if pinned else tensor

    def by_constructor(block: _quarry.PygBlock) -> Any:
        data = Data()
        data._store._mapping.update(block.attributes(tensor_of))
        return data

    # Both give what setting an attribute does in the end. The second calls neither the constructors, whose dozen functions
    # of Python meet cold caches in every batch, nor Torch's function of Python, which takes arrays too: it is for a PyG
    # whose Data has what it knows of.
    blank = Data()
    fields, store = blank.__dict__, blank._store
    if set(store.__dict__) != {"_mapping", "_parent"} or "_store" not in fields:
        return torch, by_constructor
    direct = tensor_of if pinned else getattr(torch._C, "_from_dlpack", from_dlpack)
    return torch, _quarry.PygData(direct, Data, type(store), {name: value for name, value in fields.items() if name != "_store"})
