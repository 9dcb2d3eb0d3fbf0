"""GraphBolt as a contender of the epochs part; the last line is a JSON object.

epochs_graphbolt.py in-memory | on-disk FOLDER EPOCHS MEMORY BATCHES

FOLDER is as `epochs.py prepare` leaves it. The sampler and the rows are GraphBolt's, the topology is in memory, and the
rows of features.npy are read whole or mapped, which is how its features are on disk; as in epochs.py the kernel is told
not to read ahead, and BATCHES are timed behind one that is not, and scaled. EPOCHS and MEMORY are not used.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
from pathlib import Path
from typing import Any

import dgl.graphbolt as gb
import numpy as np
import torch

from models import GraphSAGE, peak_anonymous_bytes, step

FANOUTS, BATCH, HIDDEN = [10, 10], 1024, 32
BATCHES_UNTIMED = 1


def blocks_of(minibatch: Any) -> list[tuple[torch.Tensor, int]]:
    """From the outermost hop inwards, as the layers take them: edges from neighbor to node, and the count of nodes."""
    blocks = []
    for sampled in minibatch.sampled_subgraphs:
        csc = sampled.sampled_csc
        count = len(csc.indptr) - 1
        targets = torch.repeat_interleave(torch.arange(count), csc.indptr.diff())
        blocks.append((torch.stack([csc.indices.long(), targets]), count))
    return blocks


def main(name: str, folder: Path, limited: int) -> dict[str, Any]:
    torch.manual_seed(1)
    torch.set_num_threads(2)
    indptr, indices, labels, train = (torch.from_numpy(np.load(folder / f"{part}.npy")) for part in ("indptr", "indices", "labels", "train"))
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    array = np.load(folder / "features.npy", mmap_mode=None if name == "in-memory" else "r+")  # as its OnDiskFeatureData does
    if name != "in-memory":
        array._mmap.madvise(mmap.MADV_RANDOM)
    store = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(torch.from_numpy(array))})
    items = gb.ItemSet((train, labels[train]), names=("seed_nodes", "labels"))
    pipe = gb.ItemSampler(items, batch_size=BATCH, shuffle=True)
    pipe = pipe.sample_neighbor(graph, FANOUTS).fetch_feature(store, node_feature_keys=["feat"])
    loader = gb.DataLoader(pipe, num_workers=0)
    model = GraphSAGE(128, HIDDEN, int(labels.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    per_epoch = -(-len(train) // BATCH)
    start = 0.0
    for number, minibatch in enumerate(loader):
        if number == BATCHES_UNTIMED:
            start = time.perf_counter()
        out = model.forward_blocks(minibatch.node_features["feat"], blocks_of(minibatch))
        step(model, optimizer, out, minibatch.labels)
        if number + 1 == BATCHES_UNTIMED + limited:
            break
    seconds = (time.perf_counter() - start) * per_epoch / limited
    return {
        "seconds": [seconds],
        "seconds_per_epoch": seconds,
        "batches": limited,
        "batches_per_epoch": per_epoch,
        "bytes_read": 0,
        "first_epoch": "",
        "peak_bytes": peak_anonymous_bytes(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[5]))))
