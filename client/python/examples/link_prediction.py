"""Link prediction with LinkLoader: `link_prediction.py [DB]`. Without a database, on a small graph made here.

A tenth of the edges are left out of the graph that is trained on. The model, GraphSAGE, learns to score edges above pairs of
random nodes, and is tested on those left out."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import quarry
from quarry.pyg import LinkLoader
from quickstart import make


def leave_out(source: Path, path: Path, share: float = 0.1) -> torch.Tensor:
    """Makes `path` of the database `source` without some edges, in both directions; these."""
    with quarry.open(source, memory="1GiB") as db:
        pairs = np.unique(np.sort(db.edges(), axis=0), axis=1)
        out = np.random.default_rng(1).random(pairs.shape[1]) < share
        quarry.import_(path, edges=pairs[:, ~out], features=db["feature"][:], num_nodes=db.num_nodes, undirected=True)
    return torch.from_numpy(pairs[:, out].astype(np.int64))


def scores(model: GraphSAGE, data) -> torch.Tensor:
    nodes = model(data.x, data.edge_index)
    source, target = data.edge_label_index
    return (nodes[source] * nodes[target]).sum(dim=1)


@torch.no_grad()
def auc(model: GraphSAGE, loader: LinkLoader) -> float:
    """The chance that an edge scores above a pair of random nodes."""
    model.eval()
    batches = [(scores(model, data), data.edge_label) for data in loader]
    score, label = (torch.cat(parts) for parts in zip(*batches))
    edge, pair = score[label == 1], score[label == 0].sort()[0]
    below = torch.searchsorted(pair, edge) + torch.searchsorted(pair, edge, right=True)
    return float(below.double().mean() / 2 / len(pair))


def train(source: Path, path: Path, epochs: int = 5) -> float:
    torch.manual_seed(1)
    left_out = leave_out(source, path)
    with quarry.open(path, memory="1GiB") as db:
        batches = {"num_neighbors": [10, 5], "neg_sampling": "binary", "batch_size": 2048}
        trained = LinkLoader(db, shuffle=True, **batches)  # all edges
        tested = LinkLoader(db, edge_label_index=left_out, **batches)
        model = GraphSAGE(db["feature"].shape[1], 64, num_layers=2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            model.train()
            for data in trained:
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(scores(model, data), data.edge_label)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, AUC of edges left out {auc(model, tested):.3f}")
        return auc(model, tested)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            source = Path(sys.argv[1])
        else:
            source = Path(folder) / "graph.db"
            make(source)
        train(source, Path(folder) / "trained.db")
