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


@torch.no_grad()
def accuracy(model: GraphSAGE, vectors: Embedding, loader: Loader) -> float:
    model.eval()
    right = total = 0
    for data in loader:
        data.x = vectors(data.n_id)
        right += int((model(data).argmax(dim=1) == data.y).sum())
        total += data.batch_size
    return right / total


def train(path: Path, epochs: int = 4) -> float:
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
        tested = Loader(db, [10, 5], 256, "test")
        for epoch in range(first, first + epochs):
            model.train()
            for data in trained:
                data.x = vectors(data.n_id)
                loss = F.cross_entropy(model(data), data.y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                vectors.step()
            save_checkpoint(db, "graphsage", model, optimizer, extra={"epochs": epoch + 1})
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, test accuracy {accuracy(model, vectors, tested):.3f}")
        return accuracy(model, vectors, tested)


def main(path: Path) -> None:
    if not path.exists():
        make(path)
    train(path)
    assert train(path) > 0.8, "as another process goes on, later"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "graph.db")
