#!/usr/bin/env python3
"""Whether DGL itself opens what `quarry export --format graphbolt` writes, and finds in it what the database holds.

    python3 tests/dgl_opens_export.py build/release/bin/quarry [DATABASE..]

Needs dgl 2.1 or later; docs/testing.md says which versions it was run with. Every database, and without one small ones
of each kind, is exported twice: for GraphBolt, which DGL opens, and as plain arrays, which are what it is held against.
Exits with 1 when something differs.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("DGLBACKEND", "pytorch")
import dgl.graphbolt as gb
import numpy as np
import yaml

PARTS = "topology,features,labels,split,embeddings"
NODES, CLASSES = 300, 5


class Differs(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Differs(what)


def quarry(program, *arguments):
    subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE)


def make_databases(program, folder):
    """Small databases of every kind that an export can have."""
    random = np.random.default_rng(1)

    def source(name, **arrays):
        (folder / name).mkdir()
        for key, values in arrays.items():
            np.save(folder / name / f"{key}.npy", values)
        return folder / name

    def build(name, origin, *options):
        quarry(program, "import", folder / f"{name}.db", origin, *options)
        return folder / f"{name}.db"

    edges = random.integers(0, NODES, (2, 2000))
    nodes = random.permutation(NODES)
    known = {
        "features": random.standard_normal((NODES, 24), dtype=np.float32),
        "labels": random.integers(-1, CLASSES, NODES),
        "train_idx": nodes[:100],
        "valid_idx": nodes[100:150],
        "test_idx": nodes[150:200],
    }
    plain = source("plain", edges=edges, **known)
    yield build("float32", plain)
    for element in ("float16", "bfloat16", "int8"):
        yield build(element, plain, "--feature-dtype", element, "--undirected", "--dedup")
    relations = {"edges_likes": edges[:, :900], "edges_knows": edges[:, 900:], "edges_nothing": edges[:, :0]}
    yield build("relations", source("relations", **relations, **known))
    yield build("reverse", plain, "--add-reverse")
    yield build("edges", source("edges", edges=edges))
    yield build("split", source("split", edges=edges, train_idx=nodes[:10]))
    yield build("labels", source("labels", edges=edges, labels=known["labels"]))

    pairs = source("vectors", edges=edges, **known)
    trained = build("vectors", pairs)
    link = ("--task", "link", "--dim", 8, "--epochs", 1, "--memory", "1GiB", "--save", "--valid-every", 0)
    quarry(program, "train", trained, *link, "--decoder", "dot", "--valid-share", "5%", "--test-share", "5%")
    yield trained
    triples = folder / "triples"
    triples.mkdir()
    for part, count in (("train", 2000), ("valid", 50), ("test", 50)):
        lines = zip(random.integers(0, NODES, count), random.integers(0, 3, count), random.integers(0, NODES, count))
        (triples / f"{part}.txt").write_text("".join(f"n{head}\tr/{relation}\tn{tail}\n" for head, relation, tail in lines))
    graph = build("triples", triples)
    quarry(program, "train", graph, *link, "--decoder", "distmult")
    yield graph


def ids_of(path):
    """Of a dictionary: id TAB name."""
    return {name: int(number) for number, name in (line.split("\t") for line in path.read_text().splitlines())}


def edges_of(arrays):
    """Rows of (source, relation, destination), the relations' names by their ids (none for edges of one kind), and the
    number of nodes."""
    if (arrays / "train.txt").exists():
        entities, relations = ids_of(arrays / "entities.dict"), ids_of(arrays / "relations.dict")
        triples = (line.split("\t") for line in (arrays / "train.txt").read_text().splitlines())
        rows = [(entities[head], relations[relation], entities[tail]) for head, relation, tail in triples]
        return np.array(rows).reshape(-1, 3), sorted(relations, key=relations.get), len(entities)
    about = yaml.safe_load((arrays / "metadata.yaml").read_text())
    names = about.get("relations") or []
    rows = []
    for relation, path in enumerate([arrays / f"edges_{name}.npy" for name in names] or [arrays / "edges.npy"]):
        source, destination = np.load(path)
        rows.append(np.stack([source, np.full_like(source, relation), destination], axis=1))
    return np.concatenate(rows), names, about["num_nodes"]


def features_of(arrays):
    """float32 whatever the database has, as GraphBolt gets bfloat16 and int8."""
    rows = np.load(arrays / "features.npy")
    if rows.dtype == np.uint16:
        return (rows.astype(np.uint32) << 16).view(np.float32)
    if rows.dtype == np.int8:
        return rows.astype(np.float32) * np.load(arrays / "features_scale.npy")[:, None]
    return rows


def check_graph(graph, arrays):
    rows, relations, node_count = edges_of(arrays)
    nodes = {"node": node_count} if relations else node_count
    require(graph.num_nodes == nodes, f"{graph.num_nodes} nodes instead of {nodes}")
    require(graph.total_num_edges == len(rows), f"{graph.total_num_edges} edges instead of {len(rows)}")
    indptr, indices = graph.csc_indptr.numpy(), graph.indices.numpy()
    kinds = np.zeros(len(rows), dtype=np.int64)
    if relations:
        ids = {number: relations.index(name.split(":")[1]) for name, number in graph.edge_type_to_id.items()}
        require(len(ids) == len(relations), f"{len(ids)} relations instead of {len(relations)}")
        kinds = np.array([ids[number] for number in graph.type_per_edge.tolist()], dtype=np.int64)
    found = np.stack([indices, kinds, np.repeat(np.arange(node_count), np.diff(indptr))], axis=1)
    require(sorted(map(tuple, found.tolist())) == sorted(map(tuple, rows.tolist())), "other edges")
    return "node" if relations else None, node_count


def check_features(store, node_type, node_count, arrays):
    wanted = {path.stem: np.load(path) for path in arrays.glob("embeddings_*.npy")}
    wanted = {name: rows for name, rows in wanted.items() if len(rows) == node_count}  # not those of relations
    if (arrays / "features.npy").exists():
        wanted["feat"] = features_of(arrays)
    if (arrays / "labels.npy").exists():
        wanted["label"] = np.load(arrays / "labels.npy")[:, None]
    names = {name for _, _, name in store.keys()}
    require(names == set(wanted), f"features {sorted(names)} instead of {sorted(wanted)}")
    for name, rows in wanted.items():
        found = store.read("node", node_type, name).numpy()
        require(found.dtype == rows.dtype, f"{name} of {found.dtype} instead of {rows.dtype}")
        require(np.array_equal(found, rows), f"other rows of {name}")
    return wanted


def check_tasks(tasks, node_type, arrays):
    if not (arrays / "train_idx.npy").exists():
        require(not tasks, f"{len(tasks)} tasks, where there are no splits")
        return
    require(len(tasks) == 1, f"{len(tasks)} tasks instead of one")
    labels = np.load(arrays / "labels.npy") if (arrays / "labels.npy").exists() else None
    for part, found in (("train", tasks[0].train_set), ("valid", tasks[0].validation_set), ("test", tasks[0].test_set)):
        seeds = np.load(arrays / f"{part}_idx.npy")
        items = found._itemsets[node_type] if node_type else found
        columns = [column.numpy() for column in items._items]
        names = ("seeds",) if labels is None else ("seeds", "labels")
        require(items.names == names, f"{part}: {items.names} instead of {names}")
        require(np.array_equal(columns[0], seeds), f"{part}: other seeds")
        require(labels is None or np.array_equal(columns[1], labels[seeds]), f"{part}: other labels")


def check_batches(dataset, node_type, features):
    """An epoch of mini-batches: the rows that DGL fetches are those of the nodes that it sampled."""
    if not dataset.tasks or "feat" not in features:
        return
    batches = gb.ItemSampler(dataset.tasks[0].train_set, batch_size=32).sample_neighbor(dataset.graph, [3, 3])
    batches = batches.fetch_feature(dataset.feature, {node_type: ["feat"]} if node_type else ["feat"])
    count = 0
    for batch in gb.DataLoader(batches, num_workers=0):
        nodes, rows = batch.input_nodes, batch.node_features
        nodes, rows = (nodes[node_type], rows[node_type, "feat"]) if node_type else (nodes, rows["feat"])
        require(np.array_equal(rows.numpy(), features["feat"][nodes.numpy()]), "other rows in a mini-batch")
        count += 1
    require(count > 0, "no mini-batches")


def check(program, database, folder):
    arrays, opened = folder / "arrays", folder / "graphbolt"
    for form, path in (("npy", arrays), ("graphbolt", opened)):
        quarry(program, "export", database, path, "--format", form, "--what", PARTS)
    dataset = gb.OnDiskDataset(str(opened)).load()
    node_type, node_count = check_graph(dataset.graph, arrays)
    features = check_features(dataset.feature, node_type, node_count, arrays)
    check_tasks(dataset.tasks, node_type, arrays)
    check_batches(dataset, node_type, features)
    return f"{dataset.graph.total_num_edges} edges, {', '.join(sorted(features)) or 'no features'}, {len(dataset.tasks)} tasks"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, failed = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as made:
        databases = map(pathlib.Path, sys.argv[2:]) if sys.argv[2:] else make_databases(program, pathlib.Path(made))
        for database in databases:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    print(f"{database.name}: the same: {check(program, database, pathlib.Path(folder))}", flush=True)
                except Exception as error:  # whatever DGL raises
                    failed += 1
                    print(f"{database.name}: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
