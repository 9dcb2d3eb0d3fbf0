"""Mini-batches made by workers of a Ray cluster, trained on by Ray Train: `ray_train.py [DB]`. Without a database, on a small
graph made here. It needs ray[train]; cluster.py has the same by torchrun."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train.torch import TorchTrainer

import quarry.ray
from cluster import TRAINERS, prepared, train
from quickstart import make


def loop(config: dict[str, Any]) -> None:
    """One of the trainers, as Ray Train starts it: with a process group, and the tier among what it is given."""
    ray.train.report({"loss": train(config["tier"], config["classes"])})


def main(path: Path, folder: Path) -> None:
    with quarry.open(path, memory="256MiB") as db:
        classes = db.num_classes
    ray.init(address="local", num_cpus=4, include_dashboard=False)  # a cluster of its own, as in cluster.py
    with quarry.ray.BatchTier(prepared(path, folder), workers=2, hosts=1, group=TRAINERS, cpus=1) as tier:
        trainer = TorchTrainer(
            loop,
            train_loop_config={"tier": tier, "classes": classes},
            scaling_config=ray.train.ScalingConfig(num_workers=TRAINERS, resources_per_worker={"CPU": 0.5}),
            run_config=ray.train.RunConfig(storage_path=str(folder / "runs")),
            torch_config=ray.train.torch.TorchConfig(backend="gloo"),
        )
        trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        if len(sys.argv) == 1:
            make(Path(temporary) / "graph.db")
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "graph.db", Path(temporary))
