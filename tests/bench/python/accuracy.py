"""PyG's GraphSAGE on a real set, trained from Quarry and from memory: `accuracy.py SET FOLDER [EPOCHS]`. The last line is a JSON
object.

In memory the batches are NeighborLoader's, made by a sampler in NumPy that shares no code with Quarry, and x is an array.
Hyperparameters are those of the best validation accuracy in memory, by one seed; then each road trains with three seeds,
and its test accuracy is that of the epoch with the best validation accuracy. With EPOCHS each training has so many, by the
first hyperparameters of the grid, unsought.
"""

from __future__ import annotations

import copy
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import numpy as np
import torch

import quarry
from models import GraphSAGE, step
from quarry.pyg import Loader

FANOUTS = [10, 10]
SEEDS = (0, 1, 2)
HIDDEN = 128
GRID = {"lr": (0.01, 0.003), "dropout": (0.5, 0.8)}
# set: (epochs, batch size, weight decay, undirected, rows scaled to length one)
SETS = {
    "cora": (40, 140, 5e-3, False, True),
    "amazon-computers": (15, 1024, 0.0, False, True),
    "arxiv-2023": (10, 1024, 0.0, True, False),
}
Batches = Callable[[str], Iterator[Any]]


class NumpySampler:
    """NeighborLoader's batches: of each node, when it is first seen, so many different in-neighbors."""

    def __init__(self, edges: np.ndarray, nodes: int) -> None:
        order = np.argsort(edges[1], kind="stable")
        self.sources = edges[0][order]
        self.indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[1], minlength=nodes))])
        self.local = np.full(nodes, -1)

    def sample(self, seeds: np.ndarray, rng: np.random.Generator) -> SimpleNamespace:
        nodes, frontier = [seeds], seeds
        self.local[seeds] = np.arange(len(seeds))
        found, edges = len(seeds), []
        for fanout in FANOUTS:
            degrees = self.indptr[frontier + 1] - self.indptr[frontier]
            owner = np.repeat(np.arange(len(frontier)), degrees)
            first = np.cumsum(degrees) - degrees
            at = np.arange(degrees.sum()) - first[owner]  # an edge's place among those of its node
            drawn = np.lexsort((rng.random(len(owner)), owner))  # each node's edges, shuffled
            chosen = drawn[at < fanout]
            sources = self.sources[self.indptr[frontier[owner[chosen]]] + at[chosen]]
            new = np.unique(sources[self.local[sources] < 0])
            self.local[new] = found + np.arange(len(new))
            edges.append(np.stack([self.local[sources], self.local[frontier[owner[chosen]]]]))
            nodes.append(new)
            found, frontier = found + len(new), new
        n_id = np.concatenate(nodes)
        self.local[n_id] = -1
        return SimpleNamespace(
            n_id=n_id,
            edge_index=torch.from_numpy(np.concatenate(edges, axis=1)),
            batch_size=len(seeds),
            num_sampled_nodes=[len(part) for part in nodes],
            num_sampled_edges=[part.shape[1] for part in edges],
        )


def in_memory(graph: dict[str, np.ndarray], batch_size: int, seed: int) -> Batches:
    sampler = NumpySampler(graph["edges"], len(graph["labels"]))
    rng = np.random.default_rng(seed)
    x, y = torch.from_numpy(graph["features"]), torch.from_numpy(graph["labels"])

    def batches(split: str) -> Iterator[Any]:
        seeds = rng.permutation(graph[split]) if split == "train" else graph[split]
        for first in range(0, len(seeds), batch_size):
            data = sampler.sample(seeds[first : first + batch_size], rng)
            data.x, data.y = x[data.n_id], y[data.n_id[: data.batch_size]]
            yield data

    return batches


def from_quarry(db: quarry.Database, batch_size: int, seed: int, plan: bool) -> Batches:
    options = {"num_neighbors": FANOUTS, "batch_size": batch_size, "cache": "25%", "seed": seed}
    loaders = {"train": Loader(db, input_nodes="train", shuffle=True, plan=plan, epochs=4, **options)}
    if plan:
        list(loaders["train"])  # builds the plan while no other stream is open
    loaders |= {split: Loader(db, input_nodes=split, plan=False, **options) for split in ("valid", "test")}
    return lambda split: iter(loaders[split])


@torch.no_grad()
def accuracy(model: GraphSAGE, batches: Iterator[Any]) -> float:
    model.eval()
    right = total = 0
    for data in batches:
        right += int((model(data).argmax(dim=1) == data.y).sum())
        total += data.batch_size
    return right / total


def train(batches: Batches, sizes: tuple[int, int], epochs: int, decay: float, seed: int, lr: float, dropout: float) -> tuple[float, float]:
    """The best validation accuracy, and the test accuracy of that epoch."""
    torch.manual_seed(seed)
    model = GraphSAGE(sizes[0], HIDDEN, sizes[1], dropout=dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=decay)
    best, state = -1.0, None
    for _ in range(epochs):
        model.train()
        for data in batches("train"):
            step(model, optimizer, model(data), data.y)
        valid = accuracy(model, batches("valid"))
        if valid > best:
            best, state = valid, copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    return best, accuracy(model, batches("test"))


def read(folder: Path, undirected: bool, scaled: bool) -> dict[str, np.ndarray]:
    graph = {name: np.load(folder / f"{name}.npy") for name in ("edges", "features", "labels")}
    graph |= {split: np.load(folder / f"{split}_idx.npy") for split in ("train", "valid", "test")}
    if undirected:
        graph["edges"] = np.unique(np.concatenate([graph["edges"], graph["edges"][::-1]], axis=1), axis=1)
    if scaled:
        graph["features"] /= np.maximum(np.linalg.norm(graph["features"], axis=1, keepdims=True), 1e-12)
    return graph


def best_hyperparameters(graph: dict[str, np.ndarray], options: tuple[int, int, float, bool, bool], sizes: tuple[int, int]) -> dict[str, float]:
    epochs, batch_size, decay, *_ = options
    tried = []
    for values in itertools.product(*GRID.values()):
        chosen = dict(zip(GRID, values))
        valid, _ = train(in_memory(graph, batch_size, SEEDS[0]), sizes, epochs, decay, SEEDS[0], **chosen)
        tried.append((valid, chosen))
    return max(tried, key=lambda one: one[0])[1]


def main(name: str, folder: Path, epochs_given: int) -> bool:
    epochs, batch_size, decay, undirected, scaled = SETS[name]
    graph = read(folder, undirected, scaled)
    sizes = (graph["features"].shape[1], int(graph["labels"].max()) + 1)
    if epochs_given:
        epochs, chosen = epochs_given, {key: values[0] for key, values in GRID.items()}
    else:
        chosen = best_hyperparameters(graph, SETS[name], sizes)
    print(f"{name}: hidden {HIDDEN}, {', '.join(f'{key} {value}' for key, value in chosen.items())}, {epochs} epochs, batches of {batch_size}, num_neighbors {','.join(map(str, FANOUTS))}")
    found: dict[str, list[float]] = {"in memory": [], "Quarry, live": [], "Quarry, planned": []}
    for seed in SEEDS:
        found["in memory"].append(train(in_memory(graph, batch_size, seed), sizes, epochs, decay, seed, **chosen)[1])
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        quarry.import_(Path(scratch) / "set.db", progress=False, **graph)
        for road in ("Quarry, live", "Quarry, planned"):
            for seed in SEEDS:
                with quarry.open(Path(scratch) / "set.db", memory="1GiB") as db:
                    batches = from_quarry(db, batch_size, seed, "planned" in road)
                    found[road].append(train(batches, sizes, epochs, decay, seed, **chosen)[1])
    reference = found["in memory"]
    held = True
    for road, values in found.items():
        mean, spread = statistics.mean(values), statistics.stdev(values)
        margin = max(0.01, 2 * max(spread, statistics.stdev(reference)))
        same = abs(mean - statistics.mean(reference)) <= margin
        held &= same
        verdict = "" if road == "in memory" else f"within {margin:.3f}: {'PASS' if same else 'FAIL'}"
        print(f"  {road:<18}{mean:.4f} +- {spread:.4f}   {' '.join(f'{value:.4f}' for value in values)}   {verdict}")
    return held


if __name__ == "__main__":
    print(json.dumps({"held": main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)}))
