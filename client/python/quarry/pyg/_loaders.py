"""PyG's NodeLoader and LinkLoader over a database. Importing this imports torch_geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import numpy as np
import torch
import torch_geometric.loader as pyg_loader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from .._database import Database
from .._errors import Unsupported, UsageError
from .._values import SPLITS, ids_of
from ._hetero import array_of, nodes_of_split
from ._sampler import ONLY, NeighborSampler
from ._stores import FeatureStore, GraphStore

if TYPE_CHECKING:
    from torch_geometric.data import FeatureStore as AnyFeatureStore

    Stores = tuple[AnyFeatureStore, GraphStore]
    EdgeType = tuple[str, str, str]

_OF_SAMPLER = ("replace", "weighted", "direction", "topology", *ONLY)


class NodeLoader(pyg_loader.NodeLoader):
    """Mini-batches around nodes, as PyG's NodeLoader gives them, each made when it is asked for.

        NodeLoader(db, num_neighbors=[10, 10], input_nodes="train", batch_size=1024, shuffle=True)

    data            a database; or (FeatureStore, GraphStore) of one, to choose the attributes or a snapshot, or to add
                    attributes of edges
    num_neighbors   neighbors a hop, of a database with types also a dict by type of edges; or a NeighborSampler
    input_nodes     the seeds: "train" (those with a label), "valid" or "test", ids, a mask; None: all nodes. In a database
                    with types a pair, the type and which of its nodes: ("paper", "train"); or the type: all of them
    transform, transform_sampler_output, custom_cls, input_id   as in PyG's
    direction and others   of NeighborSampler
    batch_size, shuffle, drop_last and others   of torch.utils.data.DataLoader

    A batch is a Data with the attributes of its nodes (x, y, masks), those of its edges (by e_id), edge_index, n_id,
    e_id, input_id, batch_size, num_sampled_nodes and num_sampled_edges. y are the labels of all nodes, as in PyG;
    `quarry.pyg.Loader` has those of the seeds, and reads ahead. Of a database with types a batch is a HeteroData with all of
    these by type; input_id and batch_size are of the seeds' type. Worker processes (num_workers) sample, and features are
    read in this one; they need a database of a server, since one that is opened here cannot be shared with them.
    """

    def __init__(
        self,
        data: Database | Stores,
        num_neighbors: Sequence[int] | dict[EdgeType, Sequence[int]] | NeighborSampler,
        input_nodes: Any = "train",
        **options: Any,
    ) -> None:
        stores, sampler = _parts(data, num_neighbors, options)
        super().__init__(
            stores,
            sampler,
            input_nodes=_nodes(sampler, input_nodes),
            **options,
        )

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Any:
        """The batch of a sample."""
        data, out = _batch(self, out)
        seeds = data if isinstance(out, SamplerOutput) else data[self.input_data.input_type]
        seeds.input_id, seeds.seed_time = out.metadata
        seeds.batch_size = seeds.input_id.numel()
        return data if self.transform is None else self.transform(data)


class LinkLoader(pyg_loader.LinkLoader):
    """Mini-batches around edges and negatives, as PyG's LinkLoader gives them, each made when it is asked for.

        LinkLoader(db, [10, 10], edges, neg_sampling="binary", batch_size=1024, shuffle=True)

    edge_label_index   the seeds, int64 [2, edges]; None: all edges of the database, which are read into memory. In a
                       database with types a pair, (source, name, destination) and edges of the type, ids from 0 on in each
                       end's; or the type: all of its edges
    edge_label         of the seeds; with binary negatives, 0 is kept for these
    neg_sampling       "binary", "triplet" or a NegativeSampling; neg_sampling_ratio: binary negatives for an edge
    The other arguments are those of NodeLoader.

    A batch is a Data as NodeLoader's, with edge_label_index and edge_label (the edges first, then negatives), or with
    src_index, dst_pos_index and dst_neg_index for triplets: positions in n_id. In a HeteroData the edges' type has the former,
    the types of their ends the latter; negatives are nodes of these types.
    """

    def __init__(
        self,
        data: Database | Stores,
        num_neighbors: Sequence[int] | dict[EdgeType, Sequence[int]] | NeighborSampler,
        edge_label_index: Any = None,
        edge_label: Any = None,
        **options: Any,
    ) -> None:
        stores, sampler = _parts(data, num_neighbors, options)
        super().__init__(
            stores,
            sampler,
            edge_label_index=_edges(sampler, stores[1], edge_label_index),
            edge_label=edge_label,
            **options,
        )

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Any:
        """The batch of a sample."""
        data, out = _batch(self, out)
        edges = sources = destinations = data
        if isinstance(out, HeteroSamplerOutput):
            edges = data[self.input_data.input_type]
            sources, destinations = (data[self.input_data.input_type[end]] for end in (0, -1))
        if self.neg_sampling is not None and self.neg_sampling.is_triplet():
            edges.input_id, sources.src_index, destinations.dst_pos_index, destinations.dst_neg_index, seed_time = out.metadata
            sources.seed_time = destinations.seed_time = seed_time
        else:
            edges.input_id, edges.edge_label_index, edges.edge_label, edges.edge_label_time = out.metadata
        return data if self.transform is None else self.transform(data)


def _parts(data: Database | Stores, num_neighbors: Any, options: dict[str, Any]) -> tuple[Stores, NeighborSampler]:
    """Stores and sampler; `options` keeps what goes to PyG's loader."""
    stores = (FeatureStore(data), GraphStore(data)) if isinstance(data, Database) else data
    for name in ("input_time", "edge_label_time"):
        if options.get(name) is not None:
            raise Unsupported(f"there is no {name}: seeds have no times")
    of_sampler = {name: options.pop(name) for name in _OF_SAMPLER if name in options}
    if not isinstance(num_neighbors, NeighborSampler):
        sampler = NeighborSampler(stores, num_neighbors, **of_sampler)
    elif of_sampler:
        raise UsageError(f"{', '.join(of_sampler)}: the NeighborSampler that is given has its own")
    else:
        sampler = num_neighbors
    if options.get("num_workers", 0) > 0:
        if not sampler.db.address.startswith("unix:"):
            raise Unsupported(
                f"num_workers={options['num_workers']}: {sampler.db.address} is open in this process, and workers cannot share it. Leave num_workers out "
                "(quarry.pyg.Loader samples ahead in threads), or open the database of a server (`quarry serve`)"
            )
        # The connection of a forked process would be its parent's.
        options.setdefault("multiprocessing_context", "spawn")
    # PyG's default for stores would read features in the workers.
    options.setdefault("filter_per_worker", False)
    return stores, sampler


def _nodes(sampler: NeighborSampler, given: Any) -> torch.Tensor | tuple[str, torch.Tensor]:
    """Seeds as PyG's loader takes them: a mask, whose positions are then the ids of inputs, or ids."""
    if sampler.types is not None:
        place, nodes = sampler.types.seeds_of(given)
        return sampler.types.names[place], torch.from_numpy(nodes)
    db = sampler.db
    if given is None:
        return torch.arange(db.num_nodes)
    if isinstance(given, str):
        if given not in SPLITS:
            raise UsageError(f"input_nodes {given!r}: 'train', 'valid' or 'test', ids, a mask, or None")
        return torch.from_numpy(nodes_of_split(db, given))
    nodes = array_of(given)
    ids = ids_of(nodes, db.num_nodes, "input_nodes")
    return torch.from_numpy(nodes if nodes.dtype == np.bool_ else ids.astype(np.int64))


def _edges(sampler: NeighborSampler, graph_store: GraphStore, given: Any) -> tuple[EdgeType | None, torch.Tensor]:
    """Seed edges and their type, None where there is one."""
    if sampler.types is None:
        return None, _edges_of_type(sampler, graph_store, given, None)
    if given is None or (isinstance(given, (tuple, list)) and len(given) == 3 and isinstance(given[0], str)):
        given = (given, None)
    if not isinstance(given, (tuple, list)) or len(given) != 2 or isinstance(given[0], str):
        raise UsageError(f"edge_label_index of a database with types: a type of edges and which of them, as ({sampler.types.edges[0]}, edges)")
    type_ = sampler.types.edge_type(given[0], "edge_label_index")
    return type_, _edges_of_type(sampler, graph_store, given[1], type_)


def _edges_of_type(sampler: NeighborSampler, graph_store: GraphStore, given: Any, type_: EdgeType | None) -> torch.Tensor:
    if given is None:
        count = graph_store.edge_count(type_)
        graph_store.check_size(32 * count, "seeds, which PyG keeps twice,", count)
        return torch.stack(graph_store.get_edge_index(type_, "coo"))
    edges = array_of(given)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise UsageError(f"edge_label_index of shape {list(edges.shape)}: [2, edges] is wanted")
    counts = [sampler.num_nodes] * 2 if type_ is None else [sampler.num_nodes[type_[0]], sampler.num_nodes[type_[2]]]
    ids = [ids_of(ends, count, "nodes in edge_label_index").astype(np.int64) for ends, count in zip(edges, counts)]
    return torch.from_numpy(np.stack(ids))


def _batch(loader: Any, out: SamplerOutput | HeteroSamplerOutput) -> tuple[Any, SamplerOutput | HeteroSamplerOutput]:
    """The sampled graph with its attributes, all of them in one call of the feature store, and what it is made of.
    PyG's own filter would read attributes of edges by the ids of nodes."""
    if loader.transform_sampler_output is not None:
        out = loader.transform_sampler_output(out)
    feature_store = loader.data[0]
    attrs = list(feature_store.get_all_tensor_attrs())
    if isinstance(out, HeteroSamplerOutput):
        return _batch_of_types(loader, feature_store, attrs, out), out
    data = Data() if loader.custom_cls is None else loader.custom_cls()
    data.edge_index = torch.stack([out.row, out.col])
    data.num_nodes = out.node.numel()
    if isinstance(feature_store, FeatureStore):
        attrs += feature_store.get_all_edge_tensor_attrs()
    for attr in attrs:
        of_edges = isinstance(attr.group_name, tuple)
        if of_edges and out.edge is None:
            raise Unsupported(f"attribute {attr.attr_name!r} of edges: the sample has no ids of edges")
        attr.index = out.edge if of_edges else out.node
    for attr, tensor in zip(attrs, feature_store.multi_get_tensor(attrs, convert_type=True)):
        data[attr.attr_name] = tensor
    data.n_id = out.node
    if out.edge is not None:
        data.e_id = out.edge
    data.batch = out.batch
    data.num_sampled_nodes, data.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
    return data, out


def _batch_of_types(loader: Any, feature_store: AnyFeatureStore, attrs: list[Any], out: HeteroSamplerOutput) -> Any:
    data = HeteroData() if loader.custom_cls is None else loader.custom_cls()
    for name, node in out.node.items():
        store = data[name]
        store.n_id, store.num_nodes, store.num_sampled_nodes = node, node.numel(), out.num_sampled_nodes[name]
    for edge_type, row in out.row.items():
        store = data[edge_type]
        store.edge_index = torch.stack([row, out.col[edge_type]])
        store.e_id, store.num_sampled_edges = out.edge[edge_type], out.num_sampled_edges[edge_type]
    wanted = [attr for attr in attrs if attr.group_name in out.node]
    for attr in wanted:
        attr.index = out.node[attr.group_name]
    if isinstance(feature_store, FeatureStore):
        for attr in feature_store.get_all_edge_tensor_attrs():
            attr.index = feature_store.edge_places(attr.group_name, out.edge[attr.group_name])
            wanted.append(attr)
    for attr, tensor in zip(wanted, feature_store.multi_get_tensor(wanted, convert_type=True)):
        data[attr.group_name][attr.attr_name] = tensor
    return data
