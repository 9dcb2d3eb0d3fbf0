"""GAT of PyTorch Geometric over PyG's own kind of loader: `gat.py [FOLDER]`, a folder of arrays that `quarry import`
takes. Without one, on a small graph made here."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.nn import GAT

import quarry
from quarry.pyg import NodeLoader
from quickstart import make


def predict(model: GAT, data):
    # A layer computes only the nodes that the layers after it look at. Seeds come first.
    out = model(data.x, data.edge_index, num_sampled_nodes_per_hop=data.num_sampled_nodes, num_sampled_edges_per_hop=data.num_sampled_edges)
    return out[: data.batch_size], data.y[: data.batch_size]


@torch.no_grad()
def accuracy(model: GAT, loader: NodeLoader) -> float:
    model.eval()
    right = total = 0
    for data in loader:
        out, labels = predict(model, data)
        right += int((out.argmax(dim=1) == labels).sum())
        total += data.batch_size
    return right / total


def train(path: Path, epochs: int = 5) -> float:
    torch.manual_seed(1)
    with quarry.open(path, memory="1GiB") as db:
        trained = NodeLoader(db, num_neighbors=[10, 10], input_nodes="train", batch_size=256, shuffle=True)
        tested = NodeLoader(db, num_neighbors=[10, 10], input_nodes="test", batch_size=256)
        model = GAT(db["feature"].shape[1], 64, num_layers=2, out_channels=db.num_classes, heads=8, dropout=0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
        for epoch in range(epochs):
            model.train()
            for data in trained:
                optimizer.zero_grad()
                loss = F.cross_entropy(*predict(model, data))
                loss.backward()
                optimizer.step()
            if (epoch + 1) % 5 == 0:
                print(f"epoch {epoch + 1}: loss {loss:.3f}, test accuracy {accuracy(model, tested):.3f}")
        return accuracy(model, tested)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.db"
        if len(sys.argv) > 1:
            quarry.import_(path, sys.argv[1])
            train(path, epochs=50)
        else:
            make(path)
            train(path)
