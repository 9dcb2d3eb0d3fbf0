#!/usr/bin/env python3
"""Applies the weights of `quarry export --run`, of a model of one layer, to the arrays of `quarry export` by NumPy alone,
and compares with what `quarry predict --what scores` said of all nodes.

    read_weights.py WEIGHTS ARRAYS SCORES

Exits with 77, and a sentence, where there is no NumPy.
"""

import json
import sys
from pathlib import Path

try:
    import numpy as np
except ModuleNotFoundError:
    print("skipped: this Python has no NumPy")
    sys.exit(77)


def read_safetensors(path: Path) -> tuple[dict[str, "np.ndarray"], dict[str, str]]:
    data = path.read_bytes()
    length = int(np.frombuffer(data, "<u8", 1)[0])
    header = json.loads(data[8 : 8 + length])
    notes = header.pop("__metadata__")
    types = {"F32": "<f4"}
    tensors = {}
    for name, tensor in header.items():
        begin, end = (8 + length + at for at in tensor["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], types[tensor["dtype"]]).reshape(tensor["shape"])
    return tensors, notes


def main() -> int:
    weights, notes = read_safetensors(Path(sys.argv[1]))
    arrays = Path(sys.argv[2])
    settings = notes["settings"].split()
    features = np.load(arrays / "features.npy").astype(np.float64)
    sources, destinations = np.load(arrays / "edges.npy")
    degrees = np.bincount(destinations, minlength=len(features))[:, None]
    told = np.zeros_like(features)
    if "both" in settings:
        scales = 1 / np.sqrt(1.0 + degrees)
        np.add.at(told, destinations, (features * scales)[sources])
        rows = scales * (told + features * scales)
    elif settings[settings.index("--model") + 1] == "gcn":
        np.add.at(told, destinations, features[sources])
        rows = (told + features) / (1 + degrees)
    else:
        np.add.at(told, destinations, features[sources])
        rows = np.concatenate([features, told / np.maximum(degrees, 1)], axis=1)
    logits = rows @ weights["layers.0.weight"].astype(np.float64) + weights["layers.0.bias"]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    scores = np.load(sys.argv[3])
    assert scores.shape == expected.shape, (scores.shape, expected.shape)
    error = np.abs(scores - expected).max()
    print(f"{len(scores)} nodes, {sorted(weights)}, largest difference {error:.2e}")
    assert expected.std(axis=0).min() > 0.01, "the model says the same of every node"
    assert error < 1e-4, error
    return 0


sys.exit(main())
