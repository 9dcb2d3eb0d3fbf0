"""The datapipes of quarry.graphbolt, which are classes of GraphBolt's: importing this imports dgl."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import dgl.graphbolt as gb  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
from torch.utils.data import IterDataPipe, functional_datapipe  # type: ignore[import-not-found,unused-ignore]

from ._errors import Unsupported, UsageError
from ._values import FLOAT32, SPLITS

if TYPE_CHECKING:
    from ._batches import Stream
    from ._database import Database, Snapshot

_FIELDS = {field.name for field in dataclasses.fields(gb.MiniBatch)}


def _hops(fanouts: Sequence[int]) -> list[int]:
    """Neighbors of each hop, from the seeds outwards: GraphBolt's order is the layers', whose last has the seeds."""
    hops = [int(fanout) for fanout in reversed(fanouts)]
    if not hops or min(hops) < 1:
        raise UsageError(f"fanouts {list(fanouts)}: for each layer a number from 1 on (where GraphBolt has -1, all neighbors, say 1024)")
    return hops


def _subgraphs(n_id: torch.Tensor, block: Any) -> list[Any]:
    """A subgraph a layer, the outermost first. All share copies of the block's arrays: a node's neighbors are
    drawn once, and are the same in every layer."""
    indptr, indices = torch.from_numpy(block.indptr.copy()), torch.from_numpy(block.indices.copy())
    edge_ids = torch.from_numpy(block.edge_ids.copy()) if len(block.edge_ids) == len(indices) else None
    layers = []
    for columns, rows in reversed(list(itertools.pairwise(block.hop_offsets.tolist()))):
        edges = int(indptr[columns])
        layers.append(
            gb.SampledSubgraphImpl(
                sampled_csc=gb.CSCFormatBase(indptr=indptr[: columns + 1], indices=indices[:edges]),
                original_column_node_ids=n_id[:columns],
                original_row_node_ids=n_id[:rows],
                original_edge_ids=None if edge_ids is None else edge_ids[:edges],
            )
        )
    return layers


@functional_datapipe("sample_quarry")
class NeighborSampler(gb.SubgraphSampler):  # type: ignore[misc,unused-ignore]
    """GraphBolt's sample_neighbor over a database, larger than memory: `NeighborSampler(pipe, db, fanouts)`, or
    `pipe.sample_quarry(db, fanouts)`.

    fanouts    neighbors a layer, the layer of the seeds last, as GraphBolt has them: 1 to 1024 each
    direction  which edges lead to neighbors: "in", "out" or "both"
    seed       names the random streams: samplers of one seed draw the same for the same mini-batches

    A node's neighbors are drawn once for all layers. original_edge_ids are positions in `db.edges()`, and None
    where the direction is not "in". In this process alone, since a database does not survive a fork: the
    DataLoader's num_workers stays 0.
    """

    def __init__(self, datapipe: Any, db: Database, fanouts: Sequence[int], *, direction: str = "in", seed: int = 0, topology: str = "graph") -> None:
        self._db = db
        self._hops = _hops(fanouts)
        self._options: dict[str, Any] = {"direction": direction, "topology": topology}
        self._seed = seed
        self._sampled = itertools.count()
        super().__init__(datapipe)

    def sample_subgraphs(self, seeds: Any, seeds_timestamp: Any = None, seeds_pre_time_window: Any = None) -> tuple[torch.Tensor, list[Any]]:
        if isinstance(seeds, dict):
            raise Unsupported("NeighborSampler: seeds of several types; a database has nodes of one type")
        if seeds_timestamp is not None:
            raise Unsupported("NeighborSampler: mini-batches with timestamps; edges are sampled whatever their time")
        batch = self._db.sample(seeds.cpu().numpy(), self._hops, seed=((self._seed << 32) + next(self._sampled)) % 2**64, **self._options)
        n_id = torch.from_numpy(batch.nodes.astype(np.int64)).to(seeds.dtype)
        layers = _subgraphs(n_id, batch)
        if seeds.is_cuda:
            layers = [layer.to(seeds.device) for layer in layers]
        return n_id.to(seeds.device), layers


class Loader(IterDataPipe):  # type: ignore[misc,type-arg,unused-ignore]
    """A datapipe of complete mini-batches, an epoch each time it is iterated: sampled, read and gathered by the
    engine's threads, with no ItemSampler, sampler or FeatureFetcher before it.

    fanouts         neighbors a layer, the layer of the seeds last, as GraphBolt has them: 1 to 1024 each
    seeds           "train" (those with a label, where nodes have any), "valid" or "test", ids, or a mask
    shuffle         seeds in another order every epoch; else mini-batches come in the order of `seeds`
    layout, fresh   epochs that `db.plan` packed, with the fanouts and the batch_size that it was given; or
                    packed anew each while the one before is used (within `disk`). They have an order of
                    their own, and need shuffle. See `Database.stream`
    cache           rows that stay in memory, as bytes or a share of the features
    edge_ids        original_edge_ids too, as positions in `db.edges()`; not from a layout
    sampler         "neighbor", or "labor": as LayerNeighborSampler, the same neighbors for the nodes of a layer where it
                    can; with batch_dependency alike for so many mini-batches
    weighted        with probability proportional to the weights of edges
    feature         the name of the features in node_features
    pin_memory      of the features, for the copy_to that follows

    A MiniBatch has seeds (also as seed_nodes, where GraphBolt has those), labels of the seeds (-1: none),
    input_nodes, sampled_subgraphs and node_features. They are the caller's to keep. Loaders of one database and
    one kind of mini-batch take turns on one road.
    """

    def __init__(
        self,
        db: Database,
        fanouts: Sequence[int],
        batch_size: int = 1024,
        seeds: Any = "train",
        *,
        shuffle: bool = False,
        layout: str | None = None,
        fresh: bool = False,
        cache: int | str = "10%",
        disk: int | str | None = None,
        direction: str = "in",
        seed: int = 0,
        replace: bool = False,
        sampler: str = "neighbor",
        batch_dependency: int = 0,
        weighted: bool = False,
        edge_ids: bool = False,
        snapshot: Snapshot | None = None,
        feature: str = "feature",
        pin_memory: bool = False,
    ) -> None:
        if isinstance(seeds, str) and seeds not in SPLITS:
            raise UsageError(f"seeds {seeds!r}: 'train', 'valid' or 'test', ids, or a mask")
        if (layout is not None or fresh) and seeds == "train" and not shuffle:
            raise UsageError("packed epochs have an order of their own: layout and fresh need shuffle=True")
        self._db = db
        self._spec = {
            "fanouts": tuple(_hops(fanouts)),
            "batch_size": batch_size,
            "layout": layout,
            "fresh": fresh,
            "cache": cache,
            "disk": disk,
            "direction": direction,
            "seed": seed,
            "replace": replace,
            "sampler": sampler,
            "batch_dependency": batch_dependency,
            "weighted": weighted,
            "edge_ids": edge_ids,
            "snapshot": snapshot,
        }
        self._seeds = seeds if isinstance(seeds, str) else np.asarray(seeds)
        self._shuffle = shuffle
        self._feature = feature
        self._pin_memory = pin_memory
        self._stream: Stream | None = None
        self._epochs = 0

    def __iter__(self) -> Iterator[Any]:
        if self._stream is None or self._stream.closed:
            self._stream = self._db._shared_stream(**self._spec)
        self._epochs += 1
        return self._stream.made_ahead(self._seeds, self._minibatch, lambda minibatch: minibatch, shuffle=self._shuffle, ordered=not self._shuffle, number=self._epochs)

    def _minibatch(self, raw: Any) -> Any:
        fields: dict[str, Any] = {}
        if raw.dim > 0:
            x = torch.empty((raw.node_count, raw.dim), dtype=torch.float32, pin_memory=self._pin_memory)
            raw.gather(x.numpy(), FLOAT32, raw.dim * 4)
            fields["node_features"] = {self._feature: x}
        n_id = torch.empty(raw.node_count, dtype=torch.int64)
        raw.write_node_ids(n_id.numpy())
        seeds = n_id[: raw.seed_count]
        fields |= {"seeds": seeds, "seed_nodes": seeds, "input_nodes": n_id, "sampled_subgraphs": _subgraphs(n_id, raw)}
        labels = raw.labels.copy()
        if len(labels) > 0:
            fields["labels"] = torch.from_numpy(labels)
        return gb.MiniBatch(**{name: value for name, value in fields.items() if name in _FIELDS})
