"""Quarry under PyTorch Geometric.

    from quarry.pyg import Loader

    with quarry.open("my.db", memory="8GiB") as db:
        for data in Loader(db, num_neighbors=[10, 10], batch_size=1024, input_nodes="train", shuffle=True):
            out = model(data.x, data.edge_index)[:data.batch_size]

Loader          the engine's own pipeline: batches are sampled, read and gathered ahead, by its threads
NodeLoader, LinkLoader   PyG's loaders over a database: nodes, or edges with negatives, as seeds, and the
                options of torch's DataLoader; each batch is made when it is asked for
FeatureStore, GraphStore, NeighborSampler   what these two stand on, for code that has loaders of its own

torch and torch_geometric are imported when the first of these but Loader is asked for, and when a Loader is first
iterated.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._loader import Loader

if TYPE_CHECKING:
    from ._additions import EDGE
    from ._loaders import LinkLoader, NodeLoader
    from ._sampler import NeighborSampler
    from ._stores import FeatureStore, GraphStore

__all__ = ["EDGE", "FeatureStore", "GraphStore", "LinkLoader", "Loader", "NeighborSampler", "NodeLoader"]

# Classes derived from PyG's, and where they are.
_DERIVED = {
    "EDGE": "_additions",
    "FeatureStore": "_stores",
    "GraphStore": "_stores",
    "LinkLoader": "_loaders",
    "NeighborSampler": "_sampler",
    "NodeLoader": "_loaders",
}


def __getattr__(name: str) -> Any:
    if name not in _DERIVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_DERIVED[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
