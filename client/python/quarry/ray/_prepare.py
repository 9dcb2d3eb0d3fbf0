"""`prepare`: the packed shares of planned epochs, built by the command `quarry` as a task of Ray, and published."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

import ray

from .._errors import AlreadyExists, Corruption, Error, NotFound, UsageError
from ._schedule import layout_name

_REFUSALS: dict[int, type[Error]] = {2: UsageError, 3: Corruption}


class Prepared(NamedTuple):
    """What a `BatchTier` is made of; a value, which may be kept as JSON: Prepared(**json.loads(...)), json.dumps(p._asdict()).

    address  of the database for each worker: a place in an object store, or a path with {worker} for its number
    name     of the layouts: of epoch 0 NAME-e0-0of8, NAME-e0-1of8 and so on
    shares   layouts of an epoch: what workers divide among themselves
    epochs   that are planned; later ones repeat them
    """

    address: str
    name: str
    shares: int
    epochs: int
    fanouts: Sequence[int]  # of their mini-batches
    batch_size: int


def prepare(
    source: str | os.PathLike[str],
    place: str | os.PathLike[str],
    *,
    shares: int,
    fanouts: Sequence[int] = (10, 10),
    batch_size: int = 1024,
    epochs: int = 1,
    name: str = "tier",
    by: str = "random",
    parts: int = 0,
    method: str = "grem",
    cache: int | str = "10%",
    seed: int = 0,
    memory: int | str | None = None,
    copies: int = 0,
    replace: bool = False,
    cpus: float = 1,
    resources: Mapping[str, float] | None = None,
) -> Prepared:
    """Packs `epochs` epochs of the train nodes in `shares` shares each, and publishes the database with them. One task of Ray
    does so, on a node that has `cpus` and `resources`, and sees `source`.

    source   a database's folder, which gets the layouts, or a place s3://..., which is brought to that node's disk first
    place    where workers find it: s3://..., or a new folder that their hosts share, for `copies` workers: each opens PLACE/0,
             PLACE/1 and so on, by itself; as long as source and place are on one file system, these are links and take no room
    replace  also where another database is published in the store, or a later commit of this one
    by       "random": batch i of an epoch goes to share i mod shares; "partition": shares have the train nodes of parts, so
             that their batches have more rows in common: part i those of share i mod shares, of the partitioning NAME, which
             is built where it is missing, with `parts` (0: as many as the device reads well) by `method`
    cache    rows that a worker keeps in memory while it reads a share, in bytes or as a share of the features
    seed     of epoch 0; epoch e is planned with seed + e

    `UsageError`, `Corruption` and `Error` have the command's own words. A task that dies begins anew (`max_retries` 3 of
    Ray): layouts that are whole are built again, and a push goes on with what is there.
    """
    source, place = os.fspath(source), os.fspath(place)
    if by not in ("random", "partition"):
        raise UsageError(f"by {by!r}: 'random' or 'partition'")
    if shares < 1 or epochs < 1:
        raise UsageError(f"{shares} shares of {epochs} epochs: one at least of each")
    if not place.startswith("s3://") and copies < 1:
        raise UsageError(f"{place}: a folder needs copies=, one for each worker, since a database's folder is one process's")
    if place.startswith("s3://") and copies > 0:
        raise UsageError(f"{place}: a place in an object store needs no copies")
    if "{" in place or "}" in place:
        raise UsageError(f"{place}: a path with braces, which stand for a worker's number")
    options = ["--fanout", ",".join(map(str, fanouts)), "--batch-size", str(batch_size), "--cache", str(cache), "--ranks", str(shares)]
    partition: list[str] = []
    if by == "partition":
        options += ["--by", "partition", "--partitioning", name]
        partition = ["--method", method, "--parts", str(parts)] if parts else ["--method", method]
    if replace and copies > 0:
        raise UsageError(f"{place}: a folder is not replaced; name a new one")
    held = ["--memory", str(memory)] if memory is not None else []
    task = ray.remote(_build).options(num_cpus=cpus, resources=dict(resources or {}) or None, max_retries=3)
    try:
        ray.get(task.remote(source, place, name, [seed + epoch for epoch in range(epochs)], options, partition, held, copies, replace))
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Error) else error) from None
    return Prepared(place if copies == 0 else f"{place}/{{worker}}", name, shares, epochs, list(fanouts), batch_size)


def _build(
    source: str, place: str, name: str, seeds: list[int], options: list[str], partition: list[str], held: list[str], copies: int, replace: bool
) -> None:
    """The task."""
    if copies > 0 and os.path.lexists(place):
        raise AlreadyExists(f"{place}: is there already; name a new folder for the copies, or remove it")
    scratch: str | None = None
    try:
        database = source
        if source.startswith("s3://"):
            scratch = tempfile.mkdtemp(prefix="quarry-prepare-")
            database = f"{scratch}/graph.db"
            _run("pull", source, database, *held)
        if partition:
            built = [record["name"] for record in json.loads(_run("partition", "list", database, "--json"))]
            if name not in built:
                _run("partition", "build", database, name, *partition, *held)
        for epoch, seed in enumerate(seeds):
            _run("layout", "build", database, layout_name(name, epoch), "--seed", str(seed), *options, *held)
        if place.startswith("s3://"):
            _run("push", database, place, *(["--replace"] if replace else []), *held)
        if copies > 0:
            _copy(database, Path(place), copies)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _copy(database: str, place: Path, copies: int) -> None:
    """All copies, or none: they are made beside the place, and renamed."""
    making = place.with_name(place.name + ".preparing")
    shutil.rmtree(making, ignore_errors=True)  # of a task that died
    making.mkdir(parents=True)
    for copy in range(copies):
        _run("checkpoint", database, making / str(copy))
    os.rename(making, place)
    for folder in (place, place.parent):
        opened = os.open(folder, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)


def _command() -> str:
    """The command: that of QUARRY_BINARY, of the package, or on the PATH."""
    beside = Path(__file__).resolve().parents[2] / "quarry_command/quarry"
    found = os.environ.get("QUARRY_BINARY") or (str(beside) if beside.exists() else shutil.which("quarry", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])))
    if found is None:
        raise NotFound(f"there is no command `quarry` on {os.uname().nodename}, which builds layouts: install the package there, or name it by QUARRY_BINARY")
    return found


def _run(*words: Any) -> str:
    done = subprocess.run([_command(), *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip() or f"ended with {done.returncode}"
        raise _REFUSALS.get(done.returncode, Error)(f"quarry {words[0]}: {said}")
    return done.stdout
