"""quarry.pyg.Loader beside the stream under it: `loader.py DB SMALL ROUNDS`, over DB, and some of it over SMALL, too; with
ROUNDS > 0 so many of the planned passes alone. The last line is a JSON object.

batches/s   the same passes three ways, in turns: the stream alone (`next`); the stream and one gather of each
            batch into memory that is there; the Loader, to tensors; and what each takes of the processor
next        what a trainer waits for, whose steps take longer than a batch: the tensors of the next one, x too
tensors     from what `next` gave to PyG's Data without x, which the engine's thread has made int64 arrays for, beside
            what Torch and PyG take alone for as many
gather      bytes of x a second, beside np.copyto of as many bytes
growth      of the resident memory, in 10,000 batches
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any, Callable, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

import quarry
from quarry import _quarry
from quarry._values import FLOAT32
from quarry.pyg import Loader

FANOUTS, BATCH = [10, 10], 1024
ROUNDS, ROUNDS_LIVE = 41, 2  # a planned pass takes .3 s and differs by a fifth from the next; a live one reads the table once a batch
GROWTH_BATCHES = 10_000
OVERHEAD_PASSES = 3
GROWTH_MAX = 16 << 20
GOAL, GOAL_MICROSECONDS = 0.97, 50
GOAL_OF_ALONE = 0.5  # of what Torch and PyG take for as many arrays


class Pass(NamedTuple):
    """Of one pass: batches/s, and the CPU milliseconds a batch of all threads of the process."""

    rate: float
    cpu: float


def timed_pass(count: int, run: Callable[[], None]) -> Pass:
    start, cpu = time.perf_counter(), time.process_time()
    run()
    return Pass(count / (time.perf_counter() - start), (time.process_time() - cpu) * 1e3 / count)


def each(stream: Any, number: int, use: Callable[[Any], None]) -> Pass:
    """One pass over the train split, whose batches go to `use`."""

    def run() -> None:
        while (raw := stream._raw.next()) is not None:
            use(raw)
            raw.close()

    return timed_pass(stream.start("train", number=number), run)


def passes(db: quarry.Database, plan: bool, rounds: int) -> dict[str, list[Pass]]:
    """By way, those of each round, behind one that is not counted."""
    loader = Loader(db, FANOUTS, BATCH, "train", shuffle=True, plan=plan)
    stream = loader._open()
    kept = np.empty((0, 0), np.float32)

    def gather(raw: Any) -> None:
        nonlocal kept
        if len(kept) < raw.node_count:
            kept = np.empty((raw.node_count * 5 // 4, raw.dim), np.float32)
        raw.gather(kept[: raw.node_count], FLOAT32, raw.dim * 4)

    def load() -> None:
        for _ in loader:
            pass

    found: dict[str, list[Pass]] = {"next": [], "gathered": [], "loader": []}
    for number in range(1, rounds + 2):
        measured = {"next": each(stream, number, lambda raw: None), "gathered": each(stream, number, gather), "loader": timed_pass(len(loader), load)}
        for way, one in measured.items():
            if number > 1:
                found[way].append(one)
    stream.close()
    return found


class Overhead(NamedTuple):
    """Medians over batches without features: their edges, and microseconds of the thread's processor."""

    edges: float
    made: float  # from what `next` gave to what the Loader yields
    alone: float  # of Torch and PyG alone: torch.from_dlpack of as many arrays of NumPy, and Data() of them


def overhead(db: quarry.Database, plan: bool) -> Overhead:
    """Of both in turns, batch by batch, behind the same waits: a thread that waited for a batch finds its caches cold,
    which is most of what either takes."""
    loader = Loader(db, FANOUTS, BATCH, "train", shuffle=True, plan=plan)
    stream = loader._open()
    without = _quarry.PygPass(*loader._seeds_by_id())
    arrays = [np.zeros(shape, np.int64) for shape in ((2, BATCH), BATCH, BATCH, BATCH)]  # edge_index, n_id, y, input_id
    edges: list[int] = []
    made, alone = [], []
    for number in range(1, OVERHEAD_PASSES + 1):
        stream.start("train", number=number, _pyg=without)
        while (raw := stream._raw.next()) is not None:
            ours = len(edges) % 2 == 0
            edges.append(raw.edge_count)
            time.thread_time_ns()  # so that the clock is not what is cold
            start = time.thread_time_ns()
            if ours:
                data = loader._data((raw.pyg_block(), None))
            else:
                edge_index, n_id, y, input_id = map(torch.from_dlpack, arrays)
                data = Data(
                    edge_index=edge_index, n_id=n_id, y=y, input_id=input_id, batch_size=BATCH, num_nodes=BATCH, num_sampled_nodes=[], num_sampled_edges=[]
                )
            end = time.thread_time_ns()
            (made if ours else alone).append((end - start) / 1e3)
            assert data.x is None
            del data  # to forget a batch is the trainer's time
            raw.close()
    stream.close()
    return Overhead(statistics.median(edges), statistics.median(made), statistics.median(alone))


def waits(db: quarry.Database) -> float:
    """The median microseconds of next(), from a trainer that computes for twice as long as a batch takes to come."""
    loader = Loader(db, FANOUTS, BATCH, "train", shuffle=True, plan=True)
    start = time.perf_counter()
    count = sum(1 for _ in loader)
    step_seconds = 2 * (time.perf_counter() - start) / count
    a = torch.rand(256, 256)
    times = []
    for _ in range(3):
        batches = iter(loader)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            end = time.perf_counter()
            if batch is None:
                break
            times.append((end - start) * 1e6)
            while time.perf_counter() < end + step_seconds:
                a @ a
            del batch  # to forget a batch is the trainer's time
    return statistics.median(times)


def gather_rates(db: quarry.Database) -> tuple[float, float]:
    """GB/s of x: gathered into memory that is there, and copied there from an array of that size."""
    stream = db.stream(FANOUTS, BATCH, layout=next(iter(db.layouts)))
    gathered, copied = [], []
    stream.start("train")
    rows = np.empty((0, 0), np.float32)
    while (raw := stream._raw.next()) is not None:
        if len(rows) < raw.node_count:
            rows = np.zeros((raw.node_count * 5 // 4, raw.dim), np.float32)
            source = np.ones_like(rows)
        part = rows[: raw.node_count]
        start = time.perf_counter()
        raw.gather(part, FLOAT32, raw.dim * 4)
        middle = time.perf_counter()
        np.copyto(part, source[: raw.node_count])
        end = time.perf_counter()
        gathered.append(part.nbytes / (middle - start) / 1e9)
        copied.append(part.nbytes / (end - middle) / 1e9)
        raw.close()
    stream.close()
    return statistics.median(gathered), statistics.median(copied)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def growth(db: quarry.Database) -> tuple[int, int, int]:
    """Resident bytes after a tenth of the batches and after all of them, and how many those were."""
    seeds = np.arange(min(db.num_nodes, 64 * 1000))
    loader = Loader(db, [5, 5], 64, seeds, shuffle=True, plan=False)
    before, seen = 0, 0
    while seen < GROWTH_BATCHES:
        for _ in loader:
            seen += 1
            if seen == GROWTH_BATCHES // 10:
                before = resident()
    return before, resident(), seen


def report_overhead(db: quarry.Database) -> bool:
    held = True
    for road in ("planned", "live"):
        found = overhead(db, road == "planned")
        fast = found.made <= GOAL_OF_ALONE * found.alone
        held &= fast
        print(
            f"to tensors without x, on the Loader's thread, ahead, {road}, {db.num_nodes:,} nodes, {found.edges:,.0f} edges a batch: {found.made:.0f} us of the processor; "
            f"torch.from_dlpack and Data() of as many arrays alone: {found.alone:.0f} us (goal <= {GOAL_OF_ALONE} of them: {'PASS' if fast else 'FAIL'})"
        )
    return held


def drop_layouts(db: quarry.Database) -> None:
    """So that the next run's are of the build that it measures."""
    for name in list(db.layouts):
        db.drop_layout(name)


def main(path: str, small: str, planned_rounds: int) -> None:
    held = True
    roads = {"planned": planned_rounds} if planned_rounds else {"planned": ROUNDS, "live": ROUNDS_LIVE}
    with quarry.open(path, memory="4GiB") as db:
        print(f"{'road':<9}{'next alone':>12}{'next + gather':>15}{'Loader':>9}   batches/s, medians; Loader / next + gather; Loader / next")
        for road, rounds in roads.items():
            found = passes(db, road == "planned", rounds)
            stream, gathered, loader = (statistics.median(one.rate for one in found[way]) for way in ("next", "gathered", "loader"))
            cpu = ", ".join(f"{statistics.median(one.cpu for one in found[way]):.1f}" for way in found)
            held &= loader / gathered >= GOAL
            print(
                f"{road:<9}{stream:>12.1f}{gathered:>15.1f}{loader:>9.1f}   {loader / gathered:.3f} "
                f"(goal >= {GOAL}: {'PASS' if loader / gathered >= GOAL else 'FAIL'}); {loader / stream:.3f}  "
                f"rounds {' '.join(f'{one.rate:.1f}' for one in found['loader'])}; CPU {cpu} ms a batch"
            )
        if planned_rounds:
            print(json.dumps({"held": held}))
            return
        waited = waits(db)
        fast = waited <= GOAL_MICROSECONDS
        held &= fast
        print(f"next() of a trainer that computes meanwhile, x too: {waited:.0f} us (goal <= {GOAL_MICROSECONDS}: {'PASS' if fast else 'FAIL'})")
        held &= report_overhead(db)
        gathered, copied = gather_rates(db)
        print(f"x: {gathered:.1f} GB/s by one gather, beside {copied:.1f} GB/s by np.copyto of as many bytes in order")
        drop_layouts(db)
        before, after, seen = growth(db)
        grows = after - before >= GROWTH_MAX
        held &= not grows
        print(
            f"resident memory: {before / 2**20:.0f} MiB after {GROWTH_BATCHES // 10:,} batches, {after / 2**20:.0f} MiB after {seen:,} "
            f"(goal: less than {GROWTH_MAX >> 20} MiB more: {'FAIL' if grows else 'PASS'})"
        )
    with quarry.open(small, memory="1GiB") as db:
        held &= report_overhead(db)
        drop_layouts(db)
    print(json.dumps({"held": held}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
