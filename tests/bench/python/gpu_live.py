"""Epochs over the live road to a GPU, whose feature buffer lies there: what its batches hold, and what they cost.

gpu_live.py FOLDER [--nodes N] [--train-share S] [--epochs E] [--memory SIZE] [--keep]

FOLDER: a file system of disk for graph.db. First a pass whose every batch must be, bit by bit, that of a Loader to memory. Then
seconds of an epoch in which nothing is computed, so that they are the road's own:
  memory     a Loader to memory, a tenth of the rows in its buffer
  pinned     the same, and from there by Torch's pinned memory
  fed        the same, and from there by the engine's copies
  0%, 10% .. the buffer on the GPU, with that share of the rows that stay
  sampled    all rows stay there, and batches are sampled there, too: beside 100%, by processors
Beside them what disk and link moved, and the least seconds that both could need, by their rates in the same run. The last line
is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import quarry
from gpu_epochs import graph, link_rate
from quarry.pyg import Loader

FANOUTS = [15, 10]


def same(loader: Loader, memory: Loader, batches: int) -> int:
    """How many batches were compared."""
    count = 0
    for ours, theirs in zip(loader, memory):
        for name in ("x", "edge_index", "n_id", "y", "input_id"):
            got, want = ours[name].cpu(), theirs[name]
            if not torch.equal(got.view(torch.int32) if got.is_floating_point() else got, want.view(torch.int32) if want.is_floating_point() else want):
                raise SystemExit(f"batch {count}: {name} on the GPU is not what it is in memory")
        count += 1
        if count == batches:
            break
    return count


def epoch(loader: Loader) -> tuple[float, int]:
    """Seconds and batches. Every batch is on the GPU before the end."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    count = sum(1 for _ in loader)
    torch.cuda.synchronize()
    return time.perf_counter() - start, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", default="2M")
    parser.add_argument("--train-share", default="5%")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--caches", default="0%,10%,50%,100%")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    path = graph(asked.folder, asked.nodes, asked.train_share)
    print(f"graph: {time.perf_counter() - start:.1f} s", flush=True)
    rows: list[dict[str, Any]] = []
    with quarry.open(path, memory=asked.memory) as db:
        rate = db.calibrate(force=True)
        disk = float(rate.get("sequential_bytes_per_second", 0))
        link = link_rate()

        def loader(**options: Any) -> Loader:
            return Loader(db, FANOUTS, asked.batch, "train", plan=False, **options)

        for sampling in (False, True):
            to_gpu = loader(shuffle=False, cache=0, device="cuda", gpu_memory="8GiB", gpu_cache="10%", gpu_sampling=sampling)
            compared = same(to_gpu, loader(shuffle=False), 50)
            to_gpu._stream.close()
        print(f"{compared} batches are what they are in memory, bit by bit", flush=True)

        kinds: dict[str, dict[str, Any]] = {
            "memory": {"cache": "10%"},
            "pinned": {"cache": "10%", "device": "cuda", "gpu_memory": 0},
            "fed": {"cache": "10%", "device": "cuda", "gpu_memory": "8GiB", "gpu_cache": 0},
        }
        for cache in asked.caches.split(","):
            kinds[cache] = {"cache": 0, "device": "cuda", "gpu_memory": "32GiB", "gpu_cache": cache}
        kinds["sampled"] = {"cache": 0, "device": "cuda", "gpu_memory": "32GiB", "gpu_cache": "100%", "gpu_sampling": True}
        for name, options in kinds.items():
            batches = loader(shuffle=True, **options)
            times = [epoch(batches) for _ in range(asked.epochs + 1)][1:]
            seconds, count = statistics.median_low(times)
            stats = batches.stats()
            moved = {"disk": stats["feature_bytes_read"] + stats["topology_bytes_read"], "link": stats.get("device_bytes", 0)}
            hits = stats["cache_hits"] / max(1, stats["cache_lookups"])
            rows.append({"name": name, "seconds": seconds, "batches": count, "hits": hits, "spread": [round(t[0], 3) for t in times], **moved})
            print(json.dumps(rows[-1]), flush=True)
            if batches._stream is not None:
                batches._stream.close()
    print(f"\ndisk {disk / 1e9:.2f} GB/s, link {link / 1e9:.2f} GB/s, {rows[0]['batches']} batches of {asked.batch}, fanouts {FANOUTS}")
    print(f"{'buffer':>8} {'s/epoch':>8} {'hits':>6} {'disk GB':>8} {'at least s':>10} {'link GB':>8} {'at least s':>10}")
    for row in rows:
        print(
            f"{row['name']:>8} {row['seconds']:8.3f} {row['hits']:6.3f} {row['disk'] / 1e9:8.2f} {row['disk'] / disk if disk else 0:10.3f} "
            f"{row['link'] / 1e9:8.2f} {row['link'] / link:10.3f}"
        )
    if not asked.keep:
        shutil.rmtree(path)
    print(json.dumps({"rows": rows, "disk": disk, "link": link, "gpu": torch.cuda.get_device_name()}))


if __name__ == "__main__":
    main()
