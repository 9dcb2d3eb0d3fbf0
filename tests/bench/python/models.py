"""The GraphSAGE of the benchmarks."""

from __future__ import annotations

import resource
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer


class GraphSAGE(torch.nn.Module):
    """Mean aggregation; each layer computes only the nodes that the layers after it look at."""

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        sizes = [inputs, *[hidden] * (layers - 1), classes]
        self.layers = torch.nn.ModuleList(SAGEConv(one, other) for one, other in zip(sizes, sizes[1:]))
        self.dropout = dropout

    def between(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        if layer + 1 == len(self.layers):
            return x
        return F.dropout(F.relu(x), self.dropout, self.training)

    def forward(self, data: Any) -> torch.Tensor:
        """`data`: x, edge_index, and nodes and edges by hop, as torch_geometric.data.Data has them."""
        x, edge_index = data.x, data.edge_index
        for i, layer in enumerate(self.layers):
            x, edge_index, _ = trim_to_layer(i, data.num_sampled_nodes, data.num_sampled_edges, x, edge_index)
            x = self.between(layer(x, edge_index), i)
        return x[: data.batch_size]

    def forward_blocks(self, x: torch.Tensor, blocks: list[tuple[torch.Tensor, int]]) -> torch.Tensor:
        """A block a layer: its edge_index, and how many of the nodes, the first ones, it computes."""
        for i, (layer, (edge_index, count)) in enumerate(zip(self.layers, blocks, strict=True)):
            x = self.between(layer((x, x[:count]), edge_index), i)
        return x


def peak_anonymous_bytes() -> int:
    """The most that this process held of memory that is its own: without the libraries that it maps."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - int(fields["RssFile"].split()[0]) * 1024


def step(model: GraphSAGE, optimizer: torch.optim.Optimizer, out: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(out, y).backward()
    optimizer.step()
