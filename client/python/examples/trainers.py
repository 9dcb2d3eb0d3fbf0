"""Several trainers of one model over one server: `trainers.py [DB]`. Without a database, on a small graph made here.

Starts `quarry serve` (the command named by QUARRY_BINARY, or on the PATH), which has the database and one copy of its
caches, and two trainers by torchrun. Each reads its own share of the train nodes, and gloo averages their gradients.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import quarry
from graphsage import GraphSAGE
from quarry.pyg import Loader
from quickstart import make

TRAINERS = 2


def train(address: str, epochs: int = 4) -> None:
    """One of the trainers: torchrun sets RANK and WORLD_SIZE."""
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    with quarry.open(address, memory="64MiB") as db:
        nodes = db.split("train")
        nodes = nodes[db["label"][nodes] >= 0]
        share = nodes[rank::count][: len(nodes) // count]  # as many for each: all take the same number of steps
        loader = Loader(db, [10, 5], 128, share, shuffle=True, seed=rank)
        model = DistributedDataParallel(GraphSAGE(db["feature"].shape[1], 64, db.num_classes))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            right = torch.zeros(1)
            for data in loader:
                optimizer.zero_grad()
                out = model(data)
                F.cross_entropy(out, data.y).backward()
                optimizer.step()
                right += (out.argmax(dim=1) == data.y).sum()
            dist.all_reduce(right)
            if rank == 0:
                print(f"epoch {epoch}: train accuracy {right.item() / len(share) / count:.3f} over {count} trainers")
    for weight in model.parameters():
        weights = [torch.empty_like(weight) for _ in range(count)]
        dist.all_gather(weights, weight.detach())
        assert all(torch.equal(weights[0], other) for other in weights), "one model"
    dist.destroy_process_group()


@contextmanager
def server(path: Path, socket: Path) -> Iterator[str]:
    """The address of a server of the database."""
    command = os.environ.get("QUARRY_BINARY") or shutil.which("quarry")
    if command is None:
        sys.exit("there is no command `quarry`: name it by QUARRY_BINARY")
    running = subprocess.Popen([command, "serve", path, "--socket", socket, "--memory", "512MiB"], stderr=subprocess.DEVNULL)
    try:
        while not socket.exists():
            if running.poll() is not None:
                sys.exit(f"the server ended with {running.returncode}")
            time.sleep(0.05)
        yield f"unix:{socket}"
    finally:
        running.terminate()
        running.wait()


def main(path: Path, folder: Path) -> None:
    with server(path, folder / "run/quarry.sock") as address:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(TRAINERS)]
        subprocess.run([*torchrun, __file__, address], check=True)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            if len(sys.argv) == 1:
                make(Path(temporary) / "graph.db")
            main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "graph.db", Path(temporary))
