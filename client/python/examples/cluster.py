"""Mini-batches made by workers of a Ray cluster, trained on by torchrun: `cluster.py [DB]`. Without a database, on a small
graph made here.

Plans two epochs (by the command named by QUARRY_BINARY, or on the PATH), publishes them as a folder that all workers see
(on several machines: s3://...), starts two preparation workers, and two trainers of one host by torchrun. ray_train.py has
the trainers as Ray Train starts them.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import quarry.ray
from graphsage import GraphSAGE
from quickstart import make

TRAINERS, EPOCHS, NAME = 2, 4, "example"


def prepared(path: Path, folder: Path) -> Any:
    """Plans of the database at the path, published as copies by links: one for each of two workers."""
    return quarry.ray.prepare(path, folder / "copies", copies=2, shares=4, epochs=2, fanouts=[10, 5], batch_size=64)


def train(tier: Any, classes: int) -> float:
    """One of the trainers, whose process group is there; the loss of the last epoch."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(GraphSAGE(tier.dim, 64, classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        told = torch.zeros(2)
        for data in tier.batches(epoch, rank):
            optimizer.zero_grad()
            # Averaged over the ranks, this is the mean loss of all seeds of the step.
            loss = F.cross_entropy(model(data), data.y, reduction="sum") / data.step_seeds * ranks
            loss.backward()
            optimizer.step()
            told += torch.tensor([loss.item() * data.step_seeds / ranks, data.batch_size])
        dist.all_reduce(told)
        if rank == 0:
            print(f"epoch {epoch}: loss {told[0] / told[1]:.3f} over {int(told[1])} examples", flush=True)
    for weight in model.parameters():
        weights = [torch.empty_like(weight) for _ in range(ranks)]
        dist.all_gather(weights, weight.detach())
        assert all(torch.equal(weights[0], other) for other in weights), "one model"
    return float(told[0] / told[1])


def trainer(classes: int) -> None:
    """As torchrun starts it: the tier is found by its name, in the cluster that main() started."""
    dist.init_process_group("gloo")
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    train(quarry.ray.BatchTier.connect(NAME), classes)
    dist.destroy_process_group()


def main(path: Path, folder: Path) -> None:
    with quarry.open(path, memory="256MiB") as db:
        classes = db.num_classes
    # A cluster of its own, whatever else of Ray runs on this machine; on several machines: ray.init(address="auto").
    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    with quarry.ray.BatchTier(prepared(path, folder), workers=2, hosts=1, group=TRAINERS, cpus=1, name=NAME) as tier:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(TRAINERS)]
        address = context.address_info["gcs_address"]
        subprocess.run([*torchrun, __file__, str(classes)], check=True, env={**os.environ, "RAY_ADDRESS": address})
        stats = tier.stats()
        print(f"rows sent {stats['rows_sent']:.0f}, of batches {stats['rows_of_batches']:.0f}: grouping saves {stats['rows_of_batches'] / stats['rows_sent']:.2f} x")
    ray.shutdown()


if __name__ == "__main__":
    if "RANK" in os.environ:
        trainer(int(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            if len(sys.argv) == 1:
                make(Path(temporary) / "graph.db")
            main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "graph.db", Path(temporary))
