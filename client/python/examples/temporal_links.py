"""Link prediction over a graph that grows and drifts: each round's edges are first scored, then added, and are examples of the
next epoch, without a restart.

    temporal_links.py [ROUNDS]

Nodes are in groups and move between them; edges are mostly within the groups of their round. Two models begin as one. One goes
on: every epoch opens a LinkLoader on the graph as it is then. The other stopped behind the first round. Both are asked for the
edges of a round before anything is trained on them: AUC against pairs of random nodes.
"""

import copy
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import quarry
from quarry.pyg import LinkLoader

NODES, GROUPS, DIM = 1000, 20, 16
FIRST, ARRIVING = 8000, 2000  # edges
MOVES, WITHIN = 0.15, 0.9  # shares: of nodes that change their group before a round, of edges within a group
EPOCHS = 4  # of a round


class Drift:
    """Edges by round."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.group = self.rng.integers(0, GROUPS, NODES)

    def edges(self, count: int) -> np.ndarray:
        members = [np.flatnonzero(self.group == group) for group in range(GROUPS)]
        source = self.rng.integers(0, NODES, count)
        near = np.array([self.rng.choice(members[group]) for group in self.group[source]])
        return np.stack([source, np.where(self.rng.random(count) < WITHIN, near, self.rng.integers(0, NODES, count))])

    def move(self) -> None:
        moving = self.rng.random(NODES) < MOVES
        self.group[moving] = self.rng.integers(0, GROUPS, moving.sum())


class Model(torch.nn.Module):
    """A vector of each node that is learned, and what GraphSAGE makes of it and of its neighbors."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = torch.nn.Embedding(NODES, DIM)
        self.encoder = GraphSAGE(DIM, DIM, num_layers=1)

    def forward(self, data) -> torch.Tensor:
        nodes = self.encoder(self.vectors(data.n_id), data.edge_index)
        source, destination = data.edge_label_index
        return (nodes[source] * nodes[destination]).sum(dim=1)


def loader(db: quarry.Database, edges: torch.Tensor | None = None) -> LinkLoader:
    """Batches around these edges, or around all that there are now, and as many pairs of random nodes."""
    return LinkLoader(db, [10], edges, neg_sampling="binary", batch_size=512, shuffle=edges is None)


@torch.no_grad()
def auc(model: Model, batches: LinkLoader) -> float:
    """The chance that an edge scores above a pair of random nodes."""
    found = [(model(data), data.edge_label) for data in batches]
    score, label = (torch.cat(parts) for parts in zip(*found))
    edge, pair = score[label == 1], score[label == 0].sort()[0]
    below = torch.searchsorted(pair, edge) + torch.searchsorted(pair, edge, right=True)
    return float(below.double().mean() / 2 / len(pair))


def train(path: Path, rounds: int = 6, seed: int = 1) -> list[tuple[float, float]]:
    """By round, the AUC on its edges of the model that goes on and of the one that stopped."""
    torch.manual_seed(seed)
    drift = Drift(seed)
    quarry.import_(path, edges=drift.edges(FIRST), num_nodes=NODES, undirected=True)
    found = []
    with quarry.open(path, memory="1GiB") as db:
        growing, stopped = Model(), None
        optimizer = torch.optim.Adam(growing.parameters(), lr=0.02)
        for number in range(rounds):
            for _ in range(EPOCHS):
                for data in loader(db):
                    optimizer.zero_grad()
                    F.binary_cross_entropy_with_logits(growing(data), data.edge_label).backward()
                    optimizer.step()
            stopped = stopped or copy.deepcopy(growing)
            drift.move()
            arriving = drift.edges(ARRIVING)
            batches = loader(db, torch.from_numpy(arriving))
            found.append((auc(growing, batches), auc(stopped, batches)))
            print(f"round {number}: {db.num_edges} edges; AUC on those that come next: {found[-1][0]:.3f}, had it stopped {found[-1][1]:.3f}")
            db.add_edges(arriving)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder) / "drifting.db", *map(int, sys.argv[1:2]))
