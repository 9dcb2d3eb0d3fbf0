"""Epochs of a PyG GraphSAGE on a GPU from a database that the GPU's memory does not hold: `./dev bench gpu epochs FOLDER`.

gpu_epochs.py FOLDER [--nodes N] [--train-share S] [--layers L] [--hidden H] [--epochs E] [--caches LIST] [--memory SIZE] [--keep]

FOLDER: a file system of disk (or memory, where the disk is not to be the limit) for graph.db. Beside each other, in one run:
  device     all features in the GPU's memory, blocks too: what computing and gathering alone take
  pinned     batches by way of Torch's pinned memory (gpu_memory=0), of the first layout
  0%, 5% ..  Loader(device="cuda") of a layout whose cache is that share of the features, all of it on the GPU
Seconds an epoch, what the compute stream was busy of them, by events, and the bytes that disk and link moved, over the rates of
both measured in the same run. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import torch

import quarry
from models import GraphSAGE, step
from quarry.pyg import Loader

FANOUTS = {1: [15], 2: [15, 10], 3: [15, 10, 5]}
RATE_BYTES = 16 << 20


def link_rate() -> float:
    """Bytes a second of pinned copies of 16 MiB."""
    host = torch.empty(RATE_BYTES, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(RATE_BYTES, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(20):
            device.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        rates.append(20 * RATE_BYTES / (begin.elapsed_time(end) / 1000))
    return statistics.median(rates)


class Trainer:
    """A model, and how long its stream was busy."""

    def __init__(self, dim: int, hidden: int, classes: int, layers: int) -> None:
        torch.manual_seed(1)
        self.model = GraphSAGE(dim, hidden, classes, layers).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.003)
        self.spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def epoch(self, batches: Iterator[Any]) -> tuple[float, float, int]:
        """Seconds, the part of them that the stream computed, and how many batches."""
        self.spans.clear()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for data in batches:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            step(self.model, self.optimizer, self.model(data), data.y)
            end.record()
            self.spans.append((begin, end))
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        busy = sum(begin.elapsed_time(end) for begin, end in self.spans) / 1000
        return seconds, busy / seconds, len(self.spans)


def on_device(batches: list[Any], table: torch.Tensor) -> Iterator[Any]:
    for data in batches:
        made = data.clone()  # its attributes, not their memory
        made.x = table[made.n_id]
        yield made


def graph(folder: Path, nodes: str, share: str) -> Path:
    """A database of the generated graph, which is made once."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "graph.db"
    if not path.exists():
        raw = folder / "raw"
        tool = [sys.executable, "-m", "quarry_command"] if shutil.which("quarry") is None else ["quarry"]
        subprocess.run([*tool, "generate", str(raw), "--nodes", nodes, "--train-share", share, "--degree", "15", "--dim", "128"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*tool, "import", str(path), str(raw), "--memory", "8GiB"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(raw)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", default="10M")
    parser.add_argument("--train-share", default="2%")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--caches", default="0%,5%,10%,50%")
    parser.add_argument("--memory", default="16GiB")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    path = graph(asked.folder, asked.nodes, asked.train_share)
    print(f"graph: {time.perf_counter() - start:.1f} s", flush=True)
    rows: list[dict[str, Any]] = []
    with quarry.open(path, memory=asked.memory) as db:
        rate = db.calibrate(force=True)  # what the disk gives
        disk = rate["sequential_bytes_per_second"]
        link = link_rate()
        dim, classes = db["feature"].shape[1], db.num_classes
        fanouts = FANOUTS[asked.layers]

        def run(name: str, batches: Callable[[], Iterator[Any]], loader: Any = None) -> None:
            trainer = Trainer(dim, asked.hidden, classes, asked.layers)
            times = [trainer.epoch(batches()) for _ in range(asked.epochs + 1)][1:]
            seconds, busy, count = statistics.median_low(times)
            row = {"name": name, "seconds": seconds, "busy": busy, "batches": count, "spread": [round(t[0], 3) for t in times]}
            if loader is not None:
                stats = loader.stats()
                row["disk_bytes"] = stats["feature_bytes_read"] + stats["topology_bytes_read"]
                row["link_bytes"] = stats.get("device_bytes", 0)
                row["device_hits"] = stats.get("device_hits", 0) / max(1, stats["cache_lookups"])
            rows.append(row)
            print(json.dumps(row), flush=True)

        for number, cache in enumerate(asked.caches.split(",")):
            for name in list(db.layouts):
                db.drop_layout(name)
            start = time.perf_counter()
            loader = Loader(db, fanouts, asked.batch, "train", shuffle=True, plan=True, cache=cache, device="cuda", gpu_cache="100%")
            loader._open()
            print(f"plan with a cache of {cache}: {time.perf_counter() - start:.1f} s", flush=True)
            if number == 0:
                # The blocks that all others train on, and the table.
                recorded = []
                for data in loader:
                    del data.x
                    recorded.append(data)
                table = torch.empty((db.num_nodes, dim), device="cuda")
                for first in range(0, db.num_nodes, 1 << 20):
                    ids = np.arange(first, min(first + (1 << 20), db.num_nodes))
                    table[first : first + len(ids)] = torch.from_numpy(db["feature"][ids])
                run("device", lambda: on_device(recorded, table))
                del recorded, table
                torch.cuda.empty_cache()
            run(cache, lambda: iter(loader), loader)
            loader._stream.close()
            if number == 0:
                by_torch = Loader(db, fanouts, asked.batch, "train", shuffle=True, plan=True, cache=cache, device="cuda", gpu_memory=0)
                run("pinned", lambda: iter(by_torch), by_torch)
                by_torch._stream.close()
    base = rows[0]["seconds"]
    print(f"\ndisk {disk / 1e9:.2f} GB/s, link {link / 1e9:.2f} GB/s, {rows[0]['batches']} batches of {asked.batch}, {asked.layers} layers of {asked.hidden}")
    print(f"{'cache':>8} {'s/epoch':>8} {'/device':>8} {'busy':>6} {'disk GB':>8} {'/limit':>7} {'link GB':>8} {'of link':>8} {'hits':>6}")
    for row in rows:
        line = f"{row['name']:>8} {row['seconds']:8.3f} {row['seconds'] / base:8.3f} {row['busy']:6.3f}"
        if "disk_bytes" in row:
            limit = row["disk_bytes"] / disk if disk else 0.0
            line += f" {row['disk_bytes'] / 1e9:8.2f} {row['seconds'] / limit if limit else 0:7.2f} {row['link_bytes'] / 1e9:8.2f} {row['link_bytes'] / link / row['seconds']:8.3f} {row['device_hits']:6.3f}"
        print(line)
    if not asked.keep:
        shutil.rmtree(path)
    print(json.dumps({"rows": rows, "disk": disk, "link": link, "gpu": torch.cuda.get_device_name(), "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
