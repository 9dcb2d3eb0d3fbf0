"""Features that change while a model trains: an epoch sees the rows as of its beginning, the next one those of now.

    updates.py [DB]

One thread puts new features, commit after commit; the other trains. Every epoch takes a snapshot, so that its batches
are of one state of the database. Without a database, on a small graph made here.
"""

import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import quarry
from graphsage import GraphSAGE
from quarry.pyg import Loader
from quickstart import make


def sharpen(db: quarry.Database, committed: list[int], stop: threading.Event) -> None:
    """Moves features towards their class's mean, a thousand rows a commit: better features arrive."""
    labels = db["label"][:]
    x = db["feature"][:]
    means = np.stack([x[labels == label].mean(axis=0) for label in range(db.num_classes)])
    rng = np.random.default_rng(3)
    while not stop.is_set():
        ids = rng.choice(len(x), min(1000, len(x)), replace=False)
        ids = ids[labels[ids] >= 0]
        rows = 0.8 * db["feature"][ids] + 0.2 * means[labels[ids]]
        committed.append(db.put(ids, feature=rows, sync=False))


def train(path: Path, epochs: int = 4) -> list[float]:
    torch.manual_seed(1)
    losses: list[float] = []
    with quarry.open(path, memory="1GiB") as db:
        model = GraphSAGE(db["feature"].shape[1], 64, db.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        committed: list[int] = []
        stop = threading.Event()
        writer = threading.Thread(target=sharpen, args=(db, committed, stop))
        writer.start()
        try:
            for epoch in range(epochs):
                with db.snapshot() as snapshot:
                    total = 0.0
                    loader = Loader(db, [10, 5], 256, "train", shuffle=True, plan=False, snapshot=snapshot)
                    for data in loader:
                        ids = data.n_id.numpy()
                        assert np.array_equal(snapshot["feature"][ids], data.x.numpy()), "one state, whatever is put meanwhile"
                        optimizer.zero_grad()
                        loss = F.cross_entropy(model(data), data.y)
                        loss.backward()
                        optimizer.step()
                        total += loss.item() * data.batch_size
                    losses.append(total / loader.num_seeds)
                    print(f"epoch {epoch}: as of commit {snapshot.timestamp}, loss {losses[-1]:.3f}; {len(committed)} commits so far")
        finally:
            stop.set()
            writer.join()
    return losses


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder) / "graph.db")
            train(Path(folder) / "graph.db")
