#!/usr/bin/env python3
"""Writes the .pt files beside it, by torch.save itself: each form, each pickle protocol, NumPy 1 and 2.

    python3 make_torch_files.py [SUFFIX]

They were made by torch 2.2.1 with NumPy 1.26.4, and those with the suffix _numpy2 with NumPy 2. Files of PyTorch Geometric,
which it need not have, by version 2.8.1 with torch 2.15:

    python3 make_torch_files.py pyg
torch_reader_test.cc has what they hold.
"""
import pathlib
import sys

import numpy as np
import torch

FOLDER = pathlib.Path(__file__).parent


def values():
    edge = np.array([[0, 1], [200, 40000], [2**40, 3]])
    tensor = torch.arange(10)
    return {
        "edge": edge,
        "edge_by_columns": np.asfortranarray(edge),
        "weight": np.array([0.5, -2], dtype=np.float32),
        "year": np.array([-1, 2017], dtype=np.int32),
        "negative": np.array([[-1, -300], [7, 8]], dtype=np.int16),
        "bytes": np.arange(256).astype(np.uint8),
        "mask": np.array([True, False, True]),
        "long": (np.arange(2200) * 29).astype(np.uint16),
        "long_by_columns": np.asfortranarray((np.arange(1200) * 7919).astype(np.int32).reshape(600, 2)),
        "empty": np.zeros((0, 2), dtype=np.int64),
        "big_endian": np.array([1], dtype=">i4"),
        "wide_by_columns": np.zeros((2, 20), order="F"),
        "scalar": np.int64(-300),
        "count": 7,
        "large": 2**40,
        "list": [5, np.int32(-6), -2**33],
        "ragged": [1, 0.5],
        "tensor": torch.tensor([[0, 1], [200, 40000], [1 << 40, 3]]),
        "tensor_by_columns": torch.tensor([[0, 200, 1 << 40], [1, 40000, 3]]).t(),
        "part": tensor[4:7],
        "column": torch.arange(12).reshape(2, 6).t()[1:4],
        "every_other": tensor[::2],
        "tensor_mask": torch.tensor([True, False, True]),
        "tensor_bytes": torch.tensor([1, 255], dtype=torch.uint8),
        "float": torch.tensor([0.5, -2]),
        "double": torch.tensor([0.5, -2], dtype=torch.float64),
        "half": torch.tensor([0.5, -2], dtype=torch.float16),
        "bfloat16": torch.tensor([0.5, -2], dtype=torch.bfloat16),
        "no_elements": torch.zeros((0, 2), dtype=torch.int64),
        "name": "a text",
        "none": None,
        "fraction": 0.5,
    }


def graph():
    return {
        "edge_index": torch.tensor([[0, 1, 4], [1, 3, 2]]),
        "x": torch.tensor([[0.5, 1], [1.5, 2], [2.5, 3], [3.5, 4], [4.5, 5]]),
        "y": [1, 0, 1, 2, 0],
        "train_mask": np.array([True, True, False, False, False]),
        "val_idx": np.array([2]),
        "test_idx": [np.int64(4)],
    }


def save(name, value, protocol, new):
    torch.save(value, FOLDER / f"{name}.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=new)


def pyg():
    from torch_geometric.data import Data, HeteroData

    data = Data(**{name: torch.as_tensor(np.asarray(value)) for name, value in graph().items()})
    save("pyg_data", data, 2, True)
    save("pyg_data_legacy", data, 2, False)
    save("pyg_dataset", (data.to_dict(), None, Data), 2, True)  # as InMemoryDataset saves one graph
    save("pyg_many", (data.to_dict(), {"x": torch.tensor([0, 2, 5])}, Data), 2, True)
    typed = HeteroData()
    typed["paper"].x = torch.zeros(2, 2)
    save("pyg_hetero", typed, 2, True)
    save("pyg_hetero_dataset", (typed.to_dict(), None, HeteroData), 2, True)


def main():
    if sys.argv[1:] == ["pyg"]:
        pyg()
        return
    suffix = sys.argv[1] if len(sys.argv) > 1 else ""
    for new, form in ((False, "legacy"), (True, "zip")):
        for protocol in (2, 5) if suffix else (2, 3, 4, 5):
            save(f"{form}{protocol}{suffix}", values(), protocol, new)
        if not suffix:
            save(f"graph_{form}", graph(), 2, new)
    if not suffix:
        save("code", {"edge": torch.nn.Linear(1, 1)}, 2, True)
        save("parameters", torch.nn.Linear(1, 1).state_dict(), 2, True)
        save("tensor", torch.zeros(3), 2, False)


main()
