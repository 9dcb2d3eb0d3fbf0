"""Quarry on a cluster of Ray: plans are built as tasks, and mini-batches made by actors on machines without GPUs.

    import ray, quarry.ray

    ray.init()
    prepared = quarry.ray.prepare("graph.db", "s3://bucket/graph.db", shares=8, fanouts=[10, 10], batch_size=1024)
    with quarry.ray.BatchTier(prepared, workers=4, hosts=1, group=2) as tier:
        for data in tier.batches(epoch=0, rank=0): ...

prepare      builds and publishes the packed shares of an epoch
BatchTier    preparation workers and their coordinator (Armada, Waleffe ch. 6)
divide, fitted, Stage   cores and bandwidth divided among the stages of a batch (BGL §3.4); need no Ray

Ray is imported when one of the first two is asked for; docs/cluster.md is the manual.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._isolation import Division, Stage, divide, fitted

if TYPE_CHECKING:
    from ._prepare import Prepared, prepare
    from ._tier import Batches, BatchTier

__all__ = ["BatchTier", "Batches", "Division", "Prepared", "Stage", "divide", "fitted", "prepare"]

_OF_RAY = {"BatchTier": "_tier", "Batches": "_tier", "Prepared": "_prepare", "prepare": "_prepare"}


def __getattr__(name: str) -> Any:
    if name not in _OF_RAY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_OF_RAY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
