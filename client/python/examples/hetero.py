"""A graph with types of nodes and edges: PyTorch Geometric's HeteroConv over a database. `hetero.py [DB [TYPE]]` classifies nodes
of a type; without a database, papers of a small one made here."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, Linear, SAGEConv
from torch_geometric.utils import trim_to_layer

import quarry
from quarry.pyg import Loader


def make(path: Path, papers: int = 4000, classes: int = 6) -> None:
    """Papers of a class are written by authors of that class, whose features tell it, while papers' own are noise."""
    generator = torch.Generator().manual_seed(1)
    authors = papers // 2
    topic = torch.randint(classes, (authors,), generator=generator)
    label = torch.randint(classes, (papers,), generator=generator)
    order = torch.argsort(topic)
    first, count = torch.searchsorted(topic[order], torch.arange(classes)), torch.bincount(topic, minlength=classes)
    paper = torch.arange(papers).repeat_interleave(3)
    drawn = (torch.rand(len(paper), generator=generator) * count[label[paper]]).long()
    data = HeteroData()
    data["paper"].x = torch.randn(papers, 16, generator=generator)
    data["author"].x = F.one_hot(topic, classes).float() + 0.5 * torch.randn(authors, classes, generator=generator)
    data["paper"].y = label
    split = torch.randint(3, (papers,), generator=generator)
    data["paper"].train_mask, data["paper"].val_mask, data["paper"].test_mask = split == 0, split == 1, split == 2
    data["author", "writes", "paper"].edge_index = torch.stack([order[first[label[paper]] + drawn], paper])
    quarry.from_pyg(T.ToUndirected()(data), path)  # rev_writes, too: authors hear of their papers


class HeteroSAGE(torch.nn.Module):
    def __init__(self, db: quarry.Database, target: str, hidden: int = 32) -> None:
        super().__init__()
        self.target = target
        # Types without features begin as one learned vector each.
        self.begin = torch.nn.ModuleDict({t.name: Linear(t.dim or 1, hidden) for t in db.node_types})
        self.layers = torch.nn.ModuleList([HeteroConv({e: SAGEConv(hidden, hidden) for e in db.edge_types}) for _ in range(2)])
        self.classify = Linear(hidden, {t.name: t.num_classes for t in db.node_types}[target])

    def forward(self, batch: HeteroData) -> torch.Tensor:
        rows = {name: batch[name].x if "x" in batch[name] else torch.ones(batch[name].num_nodes, 1) for name in batch.node_types}
        x, edge_index = {name: self.begin[name](row) for name, row in rows.items()}, batch.edge_index_dict
        for i, layer in enumerate(self.layers):
            # A layer computes only the nodes that the layers after it look at.
            x, edge_index, _ = trim_to_layer(i, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edge_index)
            x = {name: value.relu() for name, value in layer(x, edge_index).items()}
        return self.classify(x[self.target][: batch[self.target].batch_size])


@torch.no_grad()
def accuracy(model: HeteroSAGE, loader: Loader) -> float:
    model.eval()
    right = total = 0
    for batch in loader:
        right += int((model(batch).argmax(dim=1) == batch[model.target].y).sum())
        total += batch[model.target].batch_size
    return right / total


def train(path: Path, target: str = "paper", epochs: int = 4) -> float:
    torch.manual_seed(1)
    with quarry.open(path, memory="1GiB") as db:
        trained = Loader(db, [10, 5], 256, (target, "train"), shuffle=True)
        tested = Loader(db, [10, 5], 256, (target, "test"))
        model = HeteroSAGE(db, target)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            model.train()
            for batch in trained:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(batch), batch[target].y)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, test accuracy {accuracy(model, tested):.3f}")
        return accuracy(model, tested)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]), *sys.argv[2:3])
    else:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder) / "graph.db")
            train(Path(folder) / "graph.db")
