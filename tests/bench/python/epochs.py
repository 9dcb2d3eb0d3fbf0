"""One contender of the epochs part, or what they need; the last line is a JSON object.

epochs.py prepare FOLDER EPOCHS
epochs.py in-memory | planned | live | mapped | mapped-threads FOLDER EPOCHS MEMORY BATCHES

FOLDER has graph.db, topology.db (the same without features) and features.npy. `in-memory` and `mapped` take batches of
topology.db from Quarry's sampler, and the rows of features.npy, read whole or mapped. The kernel is told not to read
ahead (madvise): where it reads 8 MiB ahead of each row, a batch takes minutes. `mapped-threads` has 16 threads wait for
pages. MEMORY: bytes for the engine.
BATCHES: only so many of one epoch are timed, behind one that is not, and scaled; 0: all of them, EPOCHS times, of which
the first is not counted.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch

import quarry
from models import GraphSAGE, peak_anonymous_bytes, step
from quarry.pyg import Loader

FANOUTS, BATCH, HIDDEN = [10, 10], 1024, 32
BATCHES_UNTIMED = 1
THREADS = 16


def prepare(folder: Path) -> dict[str, Any]:
    """The layout, GraphBolt's topology, and what the device does."""
    with quarry.open(folder / "topology.db", memory="2GiB") as db:
        if not (folder / "indptr.npy").exists():
            sources, targets = db.edges()
            np.save(folder / "indices.npy", sources.astype(np.int64))
            np.save(folder / "indptr.npy", np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=db.num_nodes))]))
            np.save(folder / "labels.npy", db["label"][:])
            nodes = db.split("train")
            np.save(folder / "train.npy", nodes)
        topology_bytes = 4 * db.num_edges + 8 * (db.num_nodes + 1)
    with quarry.open(folder / "graph.db", memory="2GiB") as db:
        device = db.calibrate(force=True)
        for name in list(db.layouts):
            db.drop_layout(name)
        start = time.perf_counter()
        stream = Loader(db, FANOUTS, BATCH, "train", shuffle=True, plan=True)._open()
        seconds = time.perf_counter() - start
        stream.start("train")
        batch_bytes = 0
        while (batch := stream.next()) is not None:
            batch_bytes = max(batch_bytes, len(batch.nodes) * db["feature"].shape[1] * 4)
        batch = None
        stream.close()
        plan_bytes = sum(layout["bytes"] for layout in db.info()["layouts"].values())
    return {"topology_bytes": topology_bytes, "batch_bytes": batch_bytes, "plan_seconds": seconds, "plan_bytes": plan_bytes, **device}


def features_of(name: str, file: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    """Rows by n_id."""
    if name == "in-memory":
        table = torch.from_numpy(np.load(file))
        return lambda n_id: table[n_id]
    array = np.load(file, mmap_mode="c")
    array._mmap.madvise(mmap.MADV_RANDOM)
    mapped = torch.from_numpy(array)
    if name == "mapped":
        return lambda n_id: mapped[n_id]
    pool = ThreadPoolExecutor(THREADS)

    def rows(n_id: torch.Tensor) -> torch.Tensor:
        out = torch.empty((len(n_id), mapped.shape[1]))
        parts = zip(n_id.chunk(THREADS), out.chunk(THREADS), strict=True)
        list(pool.map(lambda part: torch.index_select(mapped, 0, part[0], out=part[1]), parts))
        return out

    return rows


def main(name: str, folder: Path, epoch_count: int, memory: int, limited: int) -> dict[str, Any]:
    torch.manual_seed(1)
    torch.set_num_threads(2)
    from_quarry = name in ("planned", "live")
    with quarry.open(folder / ("graph.db" if from_quarry else "topology.db"), memory=memory) as db:
        loader = Loader(db, FANOUTS, BATCH, "train", shuffle=True, plan=name == "planned", cache="10%" if from_quarry else "100%")
        rows = None if from_quarry else features_of(name, folder / "features.npy")
        model = GraphSAGE(128, HIDDEN, db.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        per_epoch = len(loader)
        seconds: list[float] = []
        nodes_seen = 0  # by the batches of the first epoch, in whatever order they came
        bytes_read = 0.0
        for epoch in range(1 if limited else epoch_count):
            start = time.perf_counter()
            for number, data in enumerate(loader):
                if limited and number == BATCHES_UNTIMED:
                    start = time.perf_counter()
                if rows is not None:
                    data.x = rows(data.n_id)
                step(model, optimizer, model(data), data.y)
                if epoch == 0 and not limited:
                    nodes_seen ^= int.from_bytes(hashlib.sha256(np.sort(data.n_id.numpy())).digest()[:8], "little")
                if limited and number + 1 == BATCHES_UNTIMED + limited:
                    break
            elapsed = time.perf_counter() - start
            if limited:
                seconds.append(elapsed * per_epoch / limited)
            elif epoch > 0 or epoch_count == 1:
                seconds.append(elapsed)
                bytes_read = loader.stats().get("feature_bytes_read", 0) if from_quarry else 0
    return {
        "seconds": seconds,
        "seconds_per_epoch": statistics.median(seconds),
        "batches": limited or per_epoch,
        "batches_per_epoch": per_epoch,
        "bytes_read": bytes_read,
        "first_epoch": nodes_seen,
        "peak_bytes": peak_anonymous_bytes(),
    }


if __name__ == "__main__":
    where = Path(sys.argv[2])
    found = prepare(where) if sys.argv[1] == "prepare" else main(sys.argv[1], where, *map(int, sys.argv[3:6]))
    print(json.dumps(found))
