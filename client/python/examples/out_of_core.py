"""A graph larger than the memory it is trained in: `out_of_core.py [--nodes 400000 --dim 128 --memory 96MiB]`.

Makes the graph in pieces, imports it, packs the epoch and trains GraphSAGE from the packed file (plan=True). Prints
what each step took and read. By default features of 195 MiB in 96 MiB; take more for figures that say something.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import quarry
from graphsage import GraphSAGE
from quarry.pyg import Loader

CLASSES = 8


def make(folder: Path, nodes: int, dim: int, degree: int = 8, piece: int = 1 << 16) -> None:
    """Arrays as .npy files, a piece of the nodes at a time: neighbors and features hint at the class."""
    rng = np.random.default_rng(7)
    centers = rng.standard_normal((CLASSES, dim), dtype=np.float32)
    labels = rng.integers(0, CLASSES, nodes)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (nodes, dim))
    edges = np.lib.format.open_memmap(folder / "edges.npy", "w+", np.int64, (nodes * degree, 2))
    for first in range(0, nodes, piece):
        own = labels[first : first + piece]
        features[first : first + piece] = centers[own] + 2 * rng.standard_normal((len(own), dim), dtype=np.float32)
        targets = np.repeat(np.arange(first, first + len(own)), degree)
        sources = rng.integers(0, nodes, (4, len(targets)))
        # The first of four draws that is of the node's class; the last one if none is.
        alike = np.argmax(labels[sources] == labels[targets], axis=0)
        edges[first * degree : first * degree + len(targets), 0] = sources[alike, np.arange(len(targets))]
        edges[first * degree : first * degree + len(targets), 1] = targets
    np.save(folder / "labels.npy", labels)
    order = rng.permutation(nodes)
    np.save(folder / "train_idx.npy", order[: nodes // 40])
    np.save(folder / "test_idx.npy", order[nodes // 40 : nodes // 36])


def mebibytes(count: float) -> str:
    return f"{count / 2**20:.1f} MiB"


def train(path: Path, memory: str, epochs: int) -> float:
    torch.manual_seed(1)
    with quarry.open(path, memory=memory) as db:
        print(f"features: {mebibytes(db['feature'].nbytes)}, memory: {memory}")
        batches = {"num_neighbors": [5, 5], "batch_size": 256, "cache": "5%"}
        trained = Loader(db, input_nodes="train", shuffle=True, plan=True, **batches)
        tested = Loader(db, input_nodes="test", **batches)  # over the same road, which has the memory
        model = GraphSAGE(db["feature"].shape[1], 64, db.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            start = time.perf_counter()
            model.train()
            for data in trained:  # the first epoch samples and packs itself before it begins
                optimizer.zero_grad()
                loss = F.cross_entropy(model(data), data.y)
                loss.backward()
                optimizer.step()
            stats = trained.stats()
            seconds = time.perf_counter() - start
            read = stats["feature_bytes_read"] + stats["topology_bytes_read"]
            print(f"epoch {epoch}: loss {loss:.3f}, {seconds:.2f} s, {mebibytes(read)} read, {read / stats['bytes_useful']:.2f} bytes for each that is used")
        model.eval()
        right = total = 0
        with torch.no_grad():
            for data in tested:
                right += int((model(data).argmax(dim=1) == data.y).sum())
                total += data.batch_size
        print(f"test accuracy {right / total:.3f}")
        return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=400_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--memory", default="96MiB")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for the graph and its database; a temporary one if not given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        source, path = Path(folder) / "arrays", Path(folder) / "graph.db"
        source.mkdir()
        start = time.perf_counter()
        make(source, arguments.nodes, arguments.dim)
        made = time.perf_counter()
        quarry.import_(path, source, memory=arguments.memory, progress=False)
        print(f"made in {made - start:.2f} s, imported in {time.perf_counter() - made:.2f} s")
        accuracy = train(path, arguments.memory, arguments.epochs)
    assert accuracy > 2 / CLASSES, "it learned nothing"


if __name__ == "__main__":
    main()
