"""Vectors that are learned: GraphSAGE over an embedding table instead of features: `embeddings.py [DB]`.

A node has a vector of 32 floats and its optimizer's state, on disk; a batch reads those of its nodes and writes them
back. Model, optimizer and vectors are saved in one commit after every epoch; run it again on the same database, and it
goes on from there. Without a database, on a small graph made here.
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

import quarry
from graphsage import GraphSAGE
from quarry.pyg import Loader
from quarry.torch import Embedding, load_checkpoint, save_checkpoint
from quickstart import make

DIM = 32


def train(path: Path, epochs: int = 8) -> float:
    torch.manual_seed(1)
    with quarry.open(path, memory="1GiB") as db:
        vectors = Embedding(db, "vectors", DIM, lr=0.1)
        model = GraphSAGE(DIM, 64, db.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        first = 0
        try:
            first = load_checkpoint(db, "graphsage", model, optimizer)["epochs"]
            print(f"goes on after epoch {first}")
        except quarry.NotFound:
            pass
        trained = Loader(db, [10, 5], 256, "train", shuffle=True)
        for epoch in range(first, first + epochs):
            total = 0.0
            for data in trained:
                data.x = vectors(data.n_id)
                loss = F.cross_entropy(model(data), data.y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                vectors.step()
                total += loss.item() * data.batch_size
            save_checkpoint(db, "graphsage", model, optimizer, extra={"epochs": epoch + 1})
            print(f"epoch {epoch + 1}: loss {total / trained.num_seeds:.3f}")
        return total / trained.num_seeds


def main(path: Path) -> None:
    if not path.exists():
        make(path)
    before = train(path)
    after = train(path)  # as another process would, later
    assert after < before, "it does not go on where it was"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "graph.db")
