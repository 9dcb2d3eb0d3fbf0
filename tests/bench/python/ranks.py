"""One epoch from layouts for R trainers, beside one trainer with R times the batch: ranks.py FOLDER R FANOUTS BATCH [--real].
FOLDER/graph.db has the layouts "one" and "own-0ofR" and so on. The last line is a JSON object:

  steps, losses   of R ranks, gradients averaged by hand
  difference      the largest from the losses of one trainer
  bytes_read      by rank, as the engine counts them
  gradient_bytes  2 (R - 1) / R x the model's bytes a step and rank, over all: what a ring needs
  seconds         of a rank, the mean: reading and computing, without sums
  real            of R processes under torchrun: difference; counted (whether there was a network namespace), and by its
                  counter reading_bytes (an epoch of batches, without training) and training_bytes
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F

import quarry
from models import GraphSAGE
from quarry.pyg import Loader

HIDDEN = 32


def batches(db: Any, layout: str, fanouts: list[int], batch: int) -> tuple[Iterator[Any], Loader]:
    loader = Loader(db, fanouts, batch, "train", shuffle=True, plan=layout)
    return iter(loader), loader


def model_for(db: Any) -> tuple[GraphSAGE, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = GraphSAGE(db["feature"].shape[1], HIDDEN, db.num_classes)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def as_one(parts: list[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """R batches as one graph of their nodes side by side: x, edge_index, where the seeds are, and their labels."""
    first, edges, seeds = 0, [], []
    for part in parts:
        edges.append(part.edge_index + first)
        seeds.append(torch.arange(part.batch_size) + first)
        first += len(part.x)
    return torch.cat([part.x for part in parts]), torch.cat(edges, dim=1), torch.cat(seeds), torch.cat([part.y for part in parts])


def one_trainer(db: Any, ranks: int, fanouts: list[int], batch: int) -> list[float]:
    """Losses of one trainer whose steps have R batches of the layout for one."""
    model, optimizer = model_for(db)
    coming, _ = batches(db, "one", fanouts, batch)
    losses = []
    while parts := [part for _, part in zip(range(ranks), coming)]:
        x, edge_index, seeds, y = as_one(parts)
        for i, layer in enumerate(model.layers):
            x = model.between(layer(x, edge_index), i)
        loss = F.cross_entropy(x[seeds], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def gradients(model: GraphSAGE, data: Any | None, step_seeds: int, ranks: int) -> float:
    """Gradients of one rank, scaled so that their average over the ranks is that of the step's mean loss; its part of that loss."""
    model.zero_grad()
    if data is None:
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        return 0.0
    loss = F.cross_entropy(model(data), data.y, reduction="sum") / step_seeds
    (loss * ranks).backward()
    return loss.item()


def by_hand(folder: Path, ranks: int, fanouts: list[int], batch: int) -> dict[str, Any]:
    """A rank after the other in each step. Each reads its layout by itself, with the database to itself, so that its bytes are
    counted; what it read is kept for the steps."""
    read, kept, seconds = [], [], 0.0
    for rank in range(ranks):
        with quarry.open(folder / "graph.db", memory="512MiB") as db:
            began = time.monotonic()
            coming, loader = batches(db, f"own-{rank}of{ranks}", fanouts, batch)
            kept.append(list(coming))
            seconds += time.monotonic() - began
            read.append(bytes_read(loader))
            model, optimizer = model_for(db)
    losses = []
    for step in range(max(map(len, kept))):
        parts = [rank[step] if step < len(rank) else None for rank in kept]
        seeds = sum(part.batch_size for part in parts if part is not None)
        sums = [torch.zeros_like(weight) for weight in model.parameters()]
        total = 0.0
        began = time.monotonic()
        for part in parts:
            total += gradients(model, part, seeds, ranks)
            for one, weight in zip(sums, model.parameters()):
                one += weight.grad
        seconds += time.monotonic() - began
        for one, weight in zip(sums, model.parameters()):
            weight.grad = one / ranks
        optimizer.step()
        losses.append(total)
    size = sum(weight.numel() * 4 for weight in model.parameters())
    return {"steps": len(losses), "losses": losses, "bytes_read": read, "gradient_bytes": 2 * (ranks - 1) * size * len(losses), "seconds": seconds / ranks}


def bytes_read(loader: Loader) -> int:
    """Bytes of its epoch, by the engine's counters."""
    counts = loader.stats()
    return int(counts["feature_bytes_read"] + counts["topology_bytes_read"])


def loopback_bytes() -> int:
    """What went through the loopback of this network namespace."""
    with open("/proc/net/dev") as devices:
        return next(int(line.split(":")[1].split()[0]) for line in devices if line.strip().startswith("lo:"))


def worker(folder: Path, ranks: int, fanouts: list[int], batch: int) -> None:
    """One of R processes: an epoch that is only read, before there is any connection, and one that is trained. Its database
    is its own, without the layouts of others."""
    rank, out = int(os.environ["RANK"]), folder / "processes"
    with quarry.open(folder / f"host{rank}.db", memory="512MiB") as db:
        model, optimizer = model_for(db)
        before = loopback_bytes()
        coming, loader = batches(db, f"own-{rank}of{ranks}", fanouts, batch)
        steps = sum(1 for _ in coming)
        told: dict[str, Any] = {"reading_bytes": loopback_bytes() - before, "bytes_read": bytes_read(loader)}
        (out / f"read{rank}").touch()
        while len(list(out.glob("read*"))) < ranks:  # no barrier of gloo, whose bytes others would count
            time.sleep(0.01)
        dist.init_process_group("gloo")
        most = torch.tensor(steps)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        before = loopback_bytes()
        coming, losses = iter(loader), []
        for _ in range(int(most)):
            data = next(coming, None)
            seeds = torch.tensor([0 if data is None else data.batch_size])
            dist.all_reduce(seeds)
            loss = torch.tensor([gradients(model, data, int(seeds), ranks)], dtype=torch.float64)
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
                weight.grad /= ranks
            optimizer.step()
            dist.all_reduce(loss)
            losses.append(loss.item())
        told |= {"losses": losses, "training_bytes": loopback_bytes() - before}
    (out / f"rank{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


def processes(folder: Path, ranks: int, fanouts: str, batch: int) -> dict[str, Any]:
    """R processes by torchrun. In a network namespace of their own, where one can be made, nobody else uses the loopback."""
    for rank in range(ranks):
        host = folder / f"host{rank}.db"
        shutil.rmtree(host, ignore_errors=True)
        with quarry.open(folder / "graph.db", memory="256MiB") as db:
            db.checkpoint(host, progress=False)
        with quarry.open(host, memory="256MiB") as db:
            for name in set(db.layouts) - {f"own-{rank}of{ranks}"}:
                db.drop_layout(name)
    out = folder / "processes"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--master-addr", "127.0.0.1", "--master-port", "29511", "--nproc-per-node", str(ranks)]
    command = [*torchrun, __file__, str(folder), str(ranks), fanouts, str(batch), "--worker"]
    alone = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    counted = shutil.which("ip") is not None and subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    subprocess.run([*(alone if counted else []), *command], check=True, env=dict(os.environ, GLOO_SOCKET_IFNAME="lo"), stdout=sys.stderr)
    told = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(ranks)]
    return {
        "counted": counted,
        "losses": told[0]["losses"],
        "bytes_read": [one["bytes_read"] for one in told],
        "reading_bytes": max(one["reading_bytes"] for one in told),
        "training_bytes": max(one["training_bytes"] for one in told),
    }


def difference(one: list[float], other: list[float]) -> float:
    return max((abs(mine - its) for mine, its in zip(one, other)), default=0.0) if len(one) == len(other) else float("inf")


def main(folder: Path, ranks: int, fanouts: str, batch: int, real: bool) -> dict[str, Any]:
    hops = [int(fanout) for fanout in fanouts.split(",")]
    with quarry.open(folder / "graph.db", memory="512MiB") as db:
        wanted = one_trainer(db, ranks, hops, batch)
    told = by_hand(folder, ranks, hops, batch)
    told["difference"] = difference(told["losses"], wanted)
    if real:
        told["real"] = processes(folder, ranks, fanouts, batch)
        told["real"]["difference"] = difference(told["real"]["losses"], wanted)
    return told


if __name__ == "__main__":
    if sys.argv[-1] == "--worker":
        worker(Path(sys.argv[1]), int(sys.argv[2]), [int(fanout) for fanout in sys.argv[3].split(",")], int(sys.argv[4]))
    else:
        print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[-1] == "--real")))
