"""A folder that `quarry import` takes, of triples' training edges: the nodes get features (random), two labels in turn, and are all trained on.

usage: triples_as_graph.py SOURCE TARGET    SOURCE: train.txt (head TAB relation TAB tail); TARGET: a folder
"""

import array
import pathlib
import random
import struct
import sys

DIM = 128


def save(path, descr, shape, values):
    """A .npy file of format 1.0."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        values.tofile(file)


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    ids = {}
    heads, tails = array.array("q"), array.array("q")
    for line in (source / "train.txt").read_text().splitlines():
        head, _, tail = line.split("\t")
        heads.append(ids.setdefault(head, len(ids)))
        tails.append(ids.setdefault(tail, len(ids)))
    nodes = len(ids)
    edges = heads + tails
    rng = random.Random(1)
    save(target / "edges.npy", "<i8", (2, len(heads)), edges)
    save(target / "features.npy", "<f4", (nodes, DIM), array.array("f", (rng.random() for _ in range(nodes * DIM))))
    save(target / "labels.npy", "<i8", (nodes,), array.array("q", (i % 2 for i in range(nodes))))
    save(target / "train_idx.npy", "<i8", (nodes,), array.array("q", range(nodes)))


main()
