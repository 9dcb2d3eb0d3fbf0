"""Quarry: a storage engine for the data that graph neural networks train on, larger than memory.

    import quarry

    quarry.import_("my.db", "my-folder/")
    with quarry.open("my.db", memory="8GiB") as db:
        db["feature"][[3, 1, 3]]
        db.sql("SELECT split, count(*) FROM nodes GROUP BY split").fetchall()

quarry.pyg has a loader for PyTorch Geometric, quarry.graphbolt datapipes for DGL's GraphBolt, and quarry.torch vectors
that are learned. docs/python.md is the manual.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._batches import Batch, BatchViews, Stream
from ._database import Database, Layout, Snapshot, Table
from ._errors import (
    AlreadyExists,
    BatchesHeld,
    Busy,
    Cancelled,
    Corruption,
    Error,
    Forked,
    InternalError,
    InvalidArgument,
    IoError,
    NoSpace,
    NotFound,
    OutOfBudget,
    TimedOut,
    Unsupported,
    UsageError,
)
from ._import import from_pyg, import_
from ._sql import Result

if TYPE_CHECKING:
    from . import graphbolt as graphbolt
    from . import pyg as pyg
    from . import torch as torch

__version__ = "0.1.0"


def open(path: str | os.PathLike[str], *, memory: int | str | None = None, timeout: float | None = None) -> Database:
    """Opens the database at `path`, or the one that a server on this machine has: 'unix:/run/quarry.sock'.

    `memory`: the most that the engine holds, as bytes or '8GiB' (default: 80 % of what the machine or cgroup
    allows; of a server a quarter of what it has). `timeout`: seconds that a call to a server may take (60).
    """
    try:
        return Database(os.fspath(path), memory, timeout)
    except Busy as error:
        if f"process {os.getpid()}," not in str(error):
            raise
        raise Busy(f"{os.fspath(path)} is open in this process already: use the Database that it is (threads may share it), or close() it first") from None


__all__ = [
    "AlreadyExists",
    "Batch",
    "BatchViews",
    "BatchesHeld",
    "Busy",
    "Cancelled",
    "Corruption",
    "Database",
    "Error",
    "Forked",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "Layout",
    "NoSpace",
    "NotFound",
    "OutOfBudget",
    "Result",
    "Snapshot",
    "Stream",
    "Table",
    "TimedOut",
    "Unsupported",
    "UsageError",
    "from_pyg",
    "import_",
    "open",
]
