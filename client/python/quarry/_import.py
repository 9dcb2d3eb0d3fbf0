"""Making databases."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from . import _quarry
from ._errors import Error, UsageError
from ._values import TYPE_NAMES, size
from ._waiting import ProgressCallable, run_with_progress

_MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
_TAKEN = {"edge_index", "adj_t", "edge_weight", "x", "y", "n_id", "e_id", *_MASKS.values()}
_TYPE_NAME = re.compile(r"[A-Za-z0-9-](?:[\w-]*[A-Za-z0-9-])?", re.ASCII)
_FEATURE_TYPES = {name: number for number, name in TYPE_NAMES.items() if number <= 4}


def import_(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str] | None = None,
    *,
    edges: Any = None,
    weights: Any = None,
    features: Any = None,
    labels: Any = None,
    targets: Any = None,
    train: Any = None,
    valid: Any = None,
    test: Any = None,
    num_nodes: int | None = None,
    feature_dtype: str | None = None,
    undirected: bool = False,
    add_reverse: bool = False,
    both_directions: bool = False,
    deduplicate: bool = False,
    allow_nan: bool = False,
    relabel: bool = False,
    types: bool = False,
    memory: int | str | None = None,
    progress: ProgressCallable | bool | None = None,
) -> None:
    """Makes the database `path`, whole or not at all, of a folder or file (`source`; docs/cli.md lists which), or
    of arrays: edges [2, E] or [E, 2] and weights [E] of them, features [N, D], labels [N] that are classes, targets
    [N, K] that are numbers (NaN: none), and the nodes of each split as ids or masks.

    Arrays may be given as files, too; with a source they take the place of its own, but weights and targets, which are
    for edges that are given here. `undirected` stores both
    directions of every edge; `both_directions` lets batches follow out-edges as well. `relabel` numbers the labels
    0, 1, ... in ascending order of what they are; the SQL table `classes` has what each number stands for. `types` takes
    all types of nodes and edges of MAG240M and IGB, which are else taken for their papers.
    """
    numbers: dict[str, int] = {
        "memory_bytes": size(memory, what="memory"),
        "node_count": num_nodes or 0,
        "undirected": undirected,
        "add_reverse": add_reverse,
        "both_directions": both_directions,
        "deduplicate": deduplicate,
        "allow_nan": allow_nan,
        "relabel": relabel,
        "types": types,
    }
    if feature_dtype is not None:
        if feature_dtype not in _FEATURE_TYPES:
            raise UsageError(f"feature_dtype {feature_dtype!r}: {', '.join(_FEATURE_TYPES)}")
        numbers["feature_type"] = _FEATURE_TYPES[feature_dtype]
    arrays = {"edges": edges, "features": features, "labels": labels, "train": train, "valid": valid, "test": test}
    if source is None and edges is None:
        raise UsageError("a source, or edges, are needed to make a database")
    beside = {"edge_weights": weights, "targets": targets}  # found by their names in a folder of arrays
    for argument, value in (("weights", weights), ("targets", targets)):
        if value is not None and source is not None:
            raise UsageError(f"{argument} beside a source: put them into {os.fspath(source)}, or give edges in its place")
    target = Path(path)
    # Beside the database: what was given as an array may not fit anywhere else.
    folder = Path(tempfile.mkdtemp(prefix=target.name + ".arrays-", dir=target.parent))
    try:
        files: dict[str, str] = {}
        for name, value in arrays.items():
            if value is None:
                continue
            files[name] = os.fspath(value) if isinstance(value, (str, os.PathLike)) else _save(folder, name, value)
        for name, value in beside.items():
            if isinstance(value, (str, os.PathLike)):
                os.symlink(Path(value).absolute(), folder / (name + "".join(Path(value).suffixes)))
            elif value is not None:
                _save(folder, name, value)
        origin = os.fspath(source) if source is not None else _source_of(folder, files)
        try:
            run_with_progress(lambda told: _quarry.import_(os.fspath(path), origin, numbers, files, told), progress)
        except Error as error:
            # An array is known to its owner by the name of the argument, not by the file that it lay in.
            raise type(error)(re.sub(re.escape(os.fspath(folder)) + r"/(?:edge_(?=weights))?(\w+)\.npy", r"\1", str(error))) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def from_pyg(
    data: Any,
    path: str | os.PathLike[str],
    *,
    memory: int | str | None = None,
    progress: ProgressCallable | bool | None = None,
    **options: Any,
) -> None:
    """Makes the database `path` of a torch_geometric.data.Data: edge_index (or adj_t), edge_weight, x, y, train_mask, val_mask
    and test_mask, as far as it has them; a warning names what else it has. y of whole numbers are labels; what has
    fractions or several columns is the table "target". Options as `import_`. From a HeteroData the database has its types
    of nodes and edges; targets of several of its types are of as many columns."""
    if hasattr(data, "edge_types"):
        _from_hetero(data, Path(path), memory=memory, progress=progress, **options)
        return
    edges, weights = _edges_of(data)
    if edges is None:
        raise UsageError(f"a {type(data).__name__} without edge_index: a Data of one type of nodes and edges is what can be taken")
    masks = {split: _numpy(getattr(data, name, None)) for split, name in _MASKS.items()}
    for split, mask in masks.items():
        if mask is not None and mask.ndim == 2:
            name = _MASKS[split]
            raise UsageError(f"{name} has {mask.shape[1]} columns, a split each: choose one, as data.{name} = data.{name}[:, 0]")
    others = sorted(name for name in data.keys() if name not in _TAKEN and hasattr(data[name], "shape"))
    if others:
        warnings.warn(
            f"{', '.join(others)} of this {type(data).__name__} is not taken: a database has edges, edge_weight, x, y and masks "
            "(db.create_table makes tables of more by node; Loader(db, edge_attrs=...) takes attributes of edges as arrays)",
            stacklevel=2,
        )
    import_(
        path,
        edges=_numpy(edges),
        weights=weights,
        features=_numpy(getattr(data, "x", None)),
        **_labels_or_targets(getattr(data, "y", None)),
        **masks,
        num_nodes=int(data.num_nodes),
        memory=memory,
        progress=progress,
        **options,
    )


def _from_hetero(data: Any, path: Path, **options: Any) -> None:
    """A folder for each type of nodes and of edges, in the order in which the HeteroData has them, and its import."""
    for names in [*data.node_types, *(name for edge_type in data.edge_types for name in edge_type)]:
        if not _TYPE_NAME.fullmatch(names) or "__" in names:
            raise UsageError(f"the type {names!r} of this {type(data).__name__}: names of types have letters, digits, '-' and single '_' between them")
    for edge_type in data.edge_types:
        for name in (edge_type[0], edge_type[2]):
            if name not in data.node_types:
                raise UsageError(f"the edges {edge_type} join nodes of type {name!r}, of which nothing says how many there are: set data[{name!r}].num_nodes")
    folder = Path(tempfile.mkdtemp(prefix=path.name + ".arrays-", dir=path.parent))
    left: list[str] = []
    try:
        for name in data.node_types:
            _save_nodes(data[name], folder / name, name, left)
        for edge_type in data.edge_types:
            _save_edges(data[edge_type], folder / "__".join(edge_type), edge_type, left)
        relations = [":".join(edge_type) for edge_type in data.edge_types]
        (folder / "metadata.yaml").write_text(f"node_types: {json.dumps(data.node_types)}\nrelations: {json.dumps(relations)}\n")
        if left:
            warnings.warn(f"{', '.join(left)} of this {type(data).__name__} is not taken: a database has edges, edge_weight, x, y and masks", stacklevel=3)
        try:
            import_(path, folder, **options)
        except Error as error:
            raise type(error)(re.sub(re.escape(os.fspath(folder)) + r"/([\w-]+)/(\w+)\.npy", r"\2 of \1", str(error))) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _save_nodes(store: Any, folder: Path, name: str, left: list[str]) -> None:
    folder.mkdir()
    if store.num_nodes is None:
        raise UsageError(f"nothing says how many nodes of type {name!r} there are: set data[{name!r}].num_nodes")
    (folder / "metadata.yaml").write_text(f"num_nodes: {int(store.num_nodes)}\n")
    for argument, values in _labels_or_targets(getattr(store, "y", None)).items():
        _save(folder, argument, values)
    if store.get("x") is not None:
        _save(folder, "features", store["x"])
    for split, mask in _MASKS.items():
        if store.get(mask) is not None:
            _save(folder, f"{split}_mask", store[mask])
    left += [f"{name}.{key}" for key in store.keys() if key not in _TAKEN and hasattr(store[key], "shape")]


def _save_edges(store: Any, folder: Path, edge_type: tuple[str, str, str], left: list[str]) -> None:
    folder.mkdir()
    edges, weights = _edges_of(store)
    if edges is None:
        raise UsageError(f"the edges {edge_type} have no edge_index")
    _save(folder, "edges", edges)
    if weights is not None:
        _save(folder, "edge_weights", weights)
    left += [f"{edge_type}.{key}" for key in store.keys() if key not in _TAKEN and hasattr(store[key], "shape")]


def _edges_of(store: Any) -> tuple[Any, Any]:
    """Edges [2, E] of a Data, or of a HeteroData's type of edges, and their weights; None where there are none."""
    edges, weights = getattr(store, "edge_index", None), _numpy(getattr(store, "edge_weight", None))
    if edges is None and getattr(store, "adj_t", None) is not None:
        from torch_geometric.utils import to_edge_index

        edges, values = to_edge_index(store.adj_t)
        edges, values = edges.flip(0), _numpy(values)  # its rows are targets
        if weights is None and not np.all(values == 1):
            weights = values
    if weights is not None and weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    return edges, weights


def _labels_or_targets(y: Any) -> dict[str, Any]:
    """y as the argument of `import_` that it is: a class of each node, or numbers."""
    values = _numpy(y)
    if values is None:
        return {}
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2:
        return {"targets": values if values.dtype == np.bool_ else values.astype(np.float32, copy=False)}
    if values.dtype.kind == "f" and np.any(values[np.isfinite(values)] % 1):
        return {"targets": values[:, None].astype(np.float32, copy=False)}
    return {"labels": values}


def _numpy(value: Any) -> Any:
    return None if value is None else np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _save(folder: Path, name: str, value: Any) -> str:
    array = _numpy(value)
    if name == "edges" and array.size == 0:
        array = array.reshape(2, 0)
    file = folder / f"{name}.npy"
    np.save(file, np.ascontiguousarray(array), allow_pickle=False)
    return os.fspath(file)


def _source_of(folder: Path, files: dict[str, str]) -> str:
    """The folder of the arrays, with edges under their usual name."""
    edges = Path(files.pop("edges"))
    if edges.parent != folder:
        os.symlink(edges.absolute(), folder / ("edges" + "".join(edges.suffixes)))
    return os.fspath(folder)
