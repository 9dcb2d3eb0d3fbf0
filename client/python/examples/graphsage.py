"""GraphSAGE of PyTorch Geometric over a database: `graphsage.py [DB]`. Without one, on a small graph made here."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

import quarry
from quarry.pyg import Loader
from quickstart import make


class GraphSAGE(torch.nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([SAGEConv(inputs, hidden), SAGEConv(hidden, classes)])

    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        for i, layer in enumerate(self.layers):
            # A layer computes only the nodes that the layers after it look at.
            x, edge_index, _ = trim_to_layer(i, data.num_sampled_nodes, data.num_sampled_edges, x, edge_index)
            x = layer(x, edge_index)
            if i + 1 < len(self.layers):
                x = F.dropout(F.relu(x), 0.5, self.training)
        return x[: data.batch_size]


@torch.no_grad()
def accuracy(model: GraphSAGE, loader: Loader) -> float:
    model.eval()
    right = total = 0
    for data in loader:
        right += int((model(data).argmax(dim=1) == data.y).sum())
        total += data.batch_size
    return right / total


def train(path: Path, epochs: int = 5, plan: bool = False) -> float:
    torch.manual_seed(1)
    with quarry.open(path, memory="1GiB") as db:
        batches = {"num_neighbors": [10, 5], "batch_size": 256, "cache": "10%", "plan": plan}
        trained = Loader(db, input_nodes="train", shuffle=True, **batches)
        tested = Loader(db, input_nodes="test", **batches)
        model = GraphSAGE(db["feature"].shape[1], 64, db.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            model.train()
            for data in trained:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(data), data.y)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, test accuracy {accuracy(model, tested):.3f}")
        return accuracy(model, tested)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder) / "graph.db")
            train(Path(folder) / "graph.db")
