"""A database of arrays; rows by id, SQL, mini-batches, and a change of rows. Needs NumPy alone."""

import sys
import tempfile
from pathlib import Path

import numpy as np

import quarry


def make(path: Path, nodes: int = 2000, dim: int = 32, classes: int = 4) -> None:
    """A graph in which nodes of one class are linked more often, with features that hint at the class."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, classes, nodes)
    by_class = [np.flatnonzero(labels == label) for label in range(classes)]
    targets = np.repeat(np.arange(nodes), 8)
    alike = rng.random(len(targets)) < 0.8
    sources = np.where(alike, [rng.choice(by_class[label]) for label in labels[targets]], rng.integers(0, nodes, len(targets)))
    features = rng.standard_normal((classes, dim))[labels] + 2 * rng.standard_normal((nodes, dim))
    order = rng.permutation(nodes)
    quarry.import_(
        path,
        edges=np.stack([sources, targets]),
        features=features.astype(np.float32),
        labels=labels,
        train=order[: nodes // 2],
        valid=order[nodes // 2 : 3 * nodes // 4],
        test=order[3 * nodes // 4 :],
        undirected=True,
    )


def main(path: Path) -> None:
    if not path.exists():
        make(path)
    with quarry.open(path, memory="256MiB") as db:
        print(db)
        print(db["feature"][[3, 1, 3]].mean(axis=1))
        print(db.sql("SELECT split, count(*) FROM nodes GROUP BY split").fetchall())

        with db.stream(fanouts=[10, 5], batch_size=256, cache="10%") as stream:
            for batch in stream.epoch("train"):
                assert batch.x is not None
            print(batch)

        ids = np.arange(10)
        before = db["feature"][ids]
        commit = db.put(ids, feature=before * 0.5)
        print("commit", commit, "- halved:", np.allclose(db["feature"][ids], before * 0.5))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "quickstart.db")
