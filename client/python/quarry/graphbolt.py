"""Quarry under DGL's GraphBolt: features by duck typing, a sampler, and a datapipe of complete mini-batches.

    import dgl.graphbolt as gb
    from quarry.graphbolt import FeatureStore, Loader, NeighborSampler

    pipe = gb.ItemSampler(gb.ItemSet(db.split("train"), names="seed_nodes"), batch_size=1024, shuffle=True)
    pipe = NeighborSampler(pipe, db, fanouts=[10, 5])
    pipe = pipe.fetch_feature(FeatureStore(db), node_feature_keys=["feature"])

    for minibatch in Loader(db, fanouts=[10, 5], batch_size=1024, shuffle=True): ...   # all of it by the engine

torch is imported by the first read, dgl when `NeighborSampler` or `Loader` is first named. dgl 2.1, the last on
PyPI, needs torch 2.2 or older, torchdata 0.7 and numpy 1.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping

import numpy as np

from ._errors import NotFound, UsageError

if TYPE_CHECKING:
    from ._database import Database, Snapshot
    from ._graphbolt_pipes import Loader as Loader
    from ._graphbolt_pipes import NeighborSampler as NeighborSampler

FeatureKey = tuple[str, Any, str]

_OF_DGL = ("Loader", "NeighborSampler")


def __getattr__(name: str) -> Any:
    if name in _OF_DGL:
        from . import _graphbolt_pipes

        return getattr(_graphbolt_pipes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Feature:
    """A table of a database as GraphBolt's `Feature`, of 2.1 and of later versions. Threads may share it.

    Rows come as tensors of the table's dtype, on the device of `ids`, read once each whatever the order of ids
    and however often one is given.
    """

    def __init__(self, db: Database, table: str = "feature", *, snapshot: Snapshot | None = None) -> None:
        """`snapshot`: the rows as they were then; they cannot be updated."""
        self._db = db
        self._snapshot = snapshot
        self._table = db[table] if snapshot is None else snapshot[table]

    def read(self, ids: Any = None) -> Any:
        """Rows of `ids`, a tensor of integers [n]; None: all rows."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        if ids is None:
            return torch.from_numpy(self._table[:])
        rows = torch.from_numpy(self._table[ids.detach().cpu().numpy()])
        return rows.to(ids.device)

    def read_async(self, ids: Any) -> Iterator[Any]:
        """Yields once: what has begun to be read, whose wait() gives the rows. For one wait()."""
        yield _Reading(lambda: self.read(ids))

    def read_async_num_stages(self, ids_device: Any) -> int:
        return 1

    def size(self) -> Any:
        """Shape of a row."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        return torch.Size(self._table.shape[1:])

    def count(self) -> int:
        return len(self._table)

    def update(self, value: Any, ids: Any = None) -> None:
        """Rows of `ids`, each given once, become those of `value`, in one durable commit; None: all rows.
        Loaders and snapshots that are open go on with the rows they began with."""
        if self._snapshot is not None:
            raise UsageError(f"table '{self._table.name}' is read here as of a snapshot: update the Feature of the database itself")
        wanted = np.arange(len(self._table)) if ids is None else ids.detach().cpu().numpy()
        rows = value.detach().cpu().numpy()
        if len(rows) != len(wanted):
            raise UsageError(f"{len(rows)} rows of table '{self._table.name}' for {len(wanted)} ids")
        self._db.put(wanted, **{self._table.name: rows})

    def metadata(self) -> dict[str, str]:
        return {"table": self._table.name, "stored": self._table.stored}

    def __repr__(self) -> str:
        return f"<quarry.graphbolt.Feature over {self._table!r}>"


class FeatureStore:
    """The tables of a database as GraphBolt's `FeatureStore`, of 2.1 and of later versions.

    A key is ("node", None, name): `names` gives the name of each and its table; without it all tables are there
    under their own. Other features, such as a gpu_cached_feature over one of these, are set by their keys.
    """

    def __init__(self, db: Database, names: Mapping[str, str] | None = None, *, snapshot: Snapshot | None = None) -> None:
        tables = {name: name for name in db.tables} if names is None else names
        self._features: dict[FeatureKey, Any] = {("node", None, name): Feature(db, table, snapshot=snapshot) for name, table in tables.items()}

    def __getitem__(self, feature_key: FeatureKey) -> Any:
        try:
            return self._features[tuple(feature_key)]
        except KeyError:
            raise NotFound(f"there is no feature {tuple(feature_key)}; features are {', '.join(map(str, self._features))}") from None

    def __setitem__(self, feature_key: FeatureKey, feature: Any) -> None:
        domain, type_name, name = feature_key
        self._features[(domain, type_name, name)] = feature

    def __contains__(self, feature_key: object) -> bool:
        return isinstance(feature_key, tuple) and tuple(feature_key) in self._features

    def __len__(self) -> int:
        return len(self._features)

    def keys(self) -> list[FeatureKey]:
        return list(self._features)

    def read(self, domain: str, type_name: str | None, feature_name: str, ids: Any = None) -> Any:
        return self[(domain, type_name, feature_name)].read(ids)

    def size(self, domain: str, type_name: str | None, feature_name: str) -> Any:
        return self[(domain, type_name, feature_name)].size()

    def count(self, domain: str, type_name: str | None, feature_name: str) -> int:
        return int(self[(domain, type_name, feature_name)].count())

    def metadata(self, domain: str, type_name: str | None, feature_name: str) -> Any:
        return self[(domain, type_name, feature_name)].metadata()

    def update(self, domain: str, type_name: str | None, feature_name: str, value: Any, ids: Any = None) -> None:
        self[(domain, type_name, feature_name)].update(value, ids)

    def __repr__(self) -> str:
        return f"<quarry.graphbolt.FeatureStore: {', '.join(map(str, self._features))}>"


class _Reading:
    """A read on a thread of its own: the engine works without Python's lock meanwhile."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._result: list[Any] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(read,), name="quarry-read")
        self._thread.start()

    def _run(self, read: Callable[[], Any]) -> None:
        try:
            self._result.append(read())
        except BaseException as error:  # noqa: BLE001: raised by wait()
            self._failure = error

    def wait(self) -> Any:
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._result.pop()  # a future that is kept keeps no rows
