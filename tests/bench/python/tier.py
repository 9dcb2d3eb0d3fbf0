"""One batch tier (quarry.ray) and one trainer: tier.py FOLDER WORKERS OPTIONS, where OPTIONS are a JSON object: fanouts, batch,
most (workers of the curve, for whom there are copies), shares, epochs, quota, cache, policy, hidden. FOLDER/graph.db is the
database. The trainer is PyG's GraphSAGE on one thread; workers have `quota` processors each. The last line is a JSON object:

  seconds        of each epoch but the first, in which workers open the database
  alone          seconds of an epoch of the same batches out of memory: what no number of workers is below
  waited         of seconds: the trainer's, for batches
  core_seconds   of the workers, by epoch
  losses         of the first step of each epoch: the same for any number of workers that make the same batches
  rows, cached, bytes, messages, message_bytes   of all epochs: rows of unions, those that were not sent, bytes of features
                 that were, and by how many messages versions of the cache were agreed on
  quota          how it is held
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import ray
import torch
import torch.nn.functional as F

import quarry
import quarry.ray
from cpu_quota import Quota
from models import GraphSAGE

_GROUP = 2  # mini-batches that travel together: two trainers' of a host, which take turns here


def trained(model: GraphSAGE, optimizer: torch.optim.Optimizer, batches: list[Any]) -> float:
    """One step of a group: gradients of its batches are added up."""
    optimizer.zero_grad()
    total = 0.0
    for data in batches:
        if data.batch_size == 0:
            continue
        loss = F.cross_entropy(model(data), data.y, reduction="sum") / data.step_seeds
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def one_epoch(tier: Any, epoch: int, model: GraphSAGE, optimizer: torch.optim.Optimizer, keep: bool) -> tuple[float, float, list[float], list[Any]]:
    """Seconds of an epoch, and of these waited for batches; losses of its steps; its batches where they are to be kept."""
    began, waited, losses, kept = time.monotonic(), 0.0, [], []
    ranks = [iter(tier.batches(epoch, rank)) for rank in range(_GROUP)]
    while True:
        asked = time.monotonic()
        step = [data for data in (next(rank, None) for rank in ranks) if data is not None]
        waited += time.monotonic() - asked
        if not step:
            return time.monotonic() - began, waited, losses, kept
        losses.append(trained(model, optimizer, step))
        if keep:
            kept.append(step)


def main(folder: Path, workers: int, options: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    ray.init(address="local", num_cpus=workers + 2, include_dashboard=False, log_to_driver=False, object_store_memory=options["store"])
    prepared = folder / "prepared.json"
    if not prepared.exists():
        made = quarry.ray.prepare(
            folder / "graph.db", folder / "copies", copies=options["most"], shares=options["shares"], fanouts=options["fanouts"], batch_size=options["batch"], memory="1GiB"
        )
        prepared.write_text(json.dumps(made._asdict()))
    plan = quarry.ray.Prepared(**json.loads(prepared.read_text()))
    with quarry.open(folder / "graph.db", memory="512MiB") as db:
        sizes = (db["feature"].shape[1], db.num_classes)
    torch.manual_seed(1)
    model = GraphSAGE(sizes[0], options["hidden"], sizes[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    quotas: list[Quota] = []
    told: dict[str, Any] = {"seconds": [], "waited": [], "losses": []}
    try:
        cache = {"cache": options["cache"], "cache_policy": options["policy"]} if options["cache"] else {}
        with quarry.ray.BatchTier(plan, workers=workers, group=_GROUP, cpus=0.5, memory=options["memory"], **cache) as tier:
            for worker, one in enumerate(tier.status()["workers"]):
                quotas.append(Quota(options["quota"], f"quarry-tier-{os.getpid()}-{worker}", core=worker + 1))
                quotas[-1].enter(one["pid"])
            kept: list[Any] = []
            for epoch in range(options["epochs"] + 1):
                last = epoch == options["epochs"]
                seconds, waited, losses, kept = one_epoch(tier, epoch, model, optimizer, keep=last)
                told["losses"].append(losses[0])
                if epoch > 0:
                    told["seconds"].append(seconds)
                    told["waited"].append(waited)
            stats = tier.stats()
    finally:
        for quota in quotas:
            quota.close()
    ray.shutdown()
    began = time.monotonic()
    for step in kept:
        trained(model, optimizer, step)
    told |= {
        "alone": time.monotonic() - began,
        "steps": len(kept),
        "core_seconds": stats["core_seconds"] / (options["epochs"] + 1),
        "rows": stats["rows_sent"] + stats["rows_cached"],
        "cached": stats["rows_cached"],
        "bytes": stats["feature_bytes_sent"],
        "messages": stats["cache_messages"],
        "message_bytes": stats["cache_message_bytes"],
        "quota": quotas[0].how,
        "median": statistics.median(told["seconds"]),
    }
    return told


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))))
