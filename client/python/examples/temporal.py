"""A graph that grows while a model trains: new nodes and edges are examples of the next epoch, without a restart.

    temporal.py [EPOCHS]

Between epochs papers arrive, which cite what is there, in one commit each: rows, labels, split and edges. Every epoch opens
its loader on the newest graph; one that runs keeps the graph that it began with. In the end `compact` makes files of the whole
graph, as if it had been imported so.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import quarry
from graphsage import GraphSAGE
from quarry.pyg import Loader
from quickstart import make

_NEW = 200  # papers between two epochs


def arrive(db: quarry.Database, rng: np.random.Generator) -> np.ndarray:
    """New papers of random classes, each like three of its class, which it cites."""
    labels, first = db["label"][:], db.num_nodes
    classes = rng.integers(0, db.num_classes, _NEW)
    cited = np.stack([rng.choice(np.flatnonzero(labels == label), 3) for label in classes])
    rows = np.stack([db["feature"][row].mean(axis=0) for row in cited])
    papers = np.repeat(np.arange(first, first + _NEW), 3)
    ends = np.concatenate([np.stack([papers, cited.ravel()]), np.stack([cited.ravel(), papers])], axis=1)
    return db.add_nodes(rows, label=classes, split="train", edges=ends)


def train(path: Path, epochs: int = 4) -> list[int]:
    torch.manual_seed(1)
    rng = np.random.default_rng(2)
    seen: list[int] = []
    with quarry.open(path, memory="1GiB") as db:
        model = GraphSAGE(db["feature"].shape[1], 64, db.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        new = np.empty(0, np.int64)
        for epoch in range(epochs):
            loader = Loader(db, [10, 5], 256, "train", shuffle=True, plan=False)
            seeds, total = [], 0.0
            for data in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(data), data.y)
                loss.backward()
                optimizer.step()
                seeds.append(data.n_id[: data.batch_size].numpy())
                total += loss.item() * data.batch_size
            trained = np.concatenate(seeds)
            assert np.isin(new, trained).all(), "what came before the epoch is trained on"
            seen.append(len(trained))
            print(f"epoch {epoch}: {db.num_nodes} nodes, {db.num_edges} edges, {len(trained)} seeds, loss {total / len(trained):.3f}")
            new = arrive(db, rng)
        db.compact()
    return seen


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "graph.db")
        train(Path(folder) / "graph.db", *map(int, sys.argv[1:2]))
