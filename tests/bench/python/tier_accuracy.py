"""What local construction costs (Armada, Waleffe §6.1): PyG's GraphSAGE on a real set, its batches drawn from the whole graph
and from parts alone. tier_accuracy.py SET FOLDER PARTS HELD EPOCHS. The last line is a JSON object.

The graph is cut into PARTS, by GREM and at random. Preparation workers divide them anew in each epoch, each holds HELD at a
time (Algorithm 7 on its own), and draws neighbors among what it holds; trainers take their batches in turns. Accuracy on
validation and test nodes is that of samples of the whole graph. Hyperparameters are those of accuracy.py, sought in memory,
or with EPOCHS (0: the set's own) the first ones of its grid; three seeds each.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import torch

import quarry
from accuracy import FANOUTS, GRID, SEEDS, SETS, Batches, best_hyperparameters, from_quarry, read, train
from quarry.ray._groups import pack, unpacked

METHODS = ("grem", "random")


def data_of(batch: quarry.Batch) -> SimpleNamespace:
    arrays = unpacked(pack([batch]), 0)
    return SimpleNamespace(**{**arrays, **{name: torch.from_numpy(arrays[name]) for name in ("x", "edge_index", "y")}})


def in_turns(streams: list[Any], epoch: int) -> Iterator[Any]:
    """The batches of an epoch, in turns over the workers, as a tier has them."""
    passes = [stream.epoch("train", ordered=True, number=epoch) for stream in streams]
    for turn in itertools.zip_longest(*passes):
        for batch in turn:
            if batch is not None:
                yield data_of(batch)


def of_parts(db: quarry.Database, batch_size: int, seed: int, method: str, held: int, workers: int, sample: Batches) -> tuple[Batches, list[Any]]:
    """Batches of parts for training, and of the whole graph for all else; and the streams."""
    streams = [db.stream(FANOUTS, batch_size, partitioning=method, buffer=held, seed=seed, worker=worker, workers=workers) for worker in range(workers)]
    epochs = itertools.count()
    return lambda split: in_turns(streams, next(epochs)) if split == "train" else sample(split), streams


def main(name: str, folder: Path, parts: int, held: int, epochs_given: int) -> bool:
    epochs, batch_size, decay, undirected, scaled = SETS[name]
    graph = read(folder, undirected, scaled)
    sizes = (graph["features"].shape[1], int(graph["labels"].max()) + 1)
    if epochs_given:
        epochs, chosen = epochs_given, {key: values[0] for key, values in GRID.items()}
    else:
        chosen = best_hyperparameters(graph, SETS[name], sizes)
    print(f"{name}: {parts} parts, {held} held, {', '.join(f'{key} {value}' for key, value in chosen.items())}, {epochs} epochs, batches of {batch_size}, num_neighbors {','.join(map(str, FANOUTS))}")
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        quarry.import_(Path(scratch) / "set.db", progress=False, **graph)
        cuts = {}
        with quarry.open(Path(scratch) / "set.db", memory="1GiB") as db:
            for method in METHODS:
                report = db.partition(parts, name=method, method=method, progress=False)
                cuts[method] = report["cut_edges"] / db.num_edges
        rows: list[tuple[str, str, int]] = [("whole graph", "", 0)]
        rows += [(f"{method} ({cuts[method]:.0%} of edges cut), {workers} worker{'s' if workers > 1 else ''}", method, workers) for method in METHODS for workers in (1, parts // held)]
        for title, method, workers in rows:
            for seed in SEEDS:
                with quarry.open(Path(scratch) / "set.db", memory="1GiB") as db:
                    batches, streams = from_quarry(db, batch_size, seed, plan=False), []
                    if method:
                        batches, streams = of_parts(db, batch_size, seed, method, held, workers, batches)
                    found.setdefault(title, []).append(train(batches, sizes, epochs, decay, seed, **chosen)[1])
                    for stream in streams:
                        stream.close()
            values = found[title]
            lost = statistics.mean(found["whole graph"]) - statistics.mean(values)
            print(f"  {title:<44}{statistics.mean(values):.4f} +- {statistics.stdev(values):.4f}   {' '.join(f'{value:.4f}' for value in values)}   {f'lost {lost:+.4f}' if method else ''}", flush=True)
    return all(0 < value <= 1 for values in found.values() for value in values)


if __name__ == "__main__":
    print(json.dumps({"held": main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))}))
