"""quarry.pyg.Loader beside the stream under it: `loader.py DB [ROUNDS]`, with ROUNDS of the planned passes alone. The last
line is a JSON object.

batches/s   the same passes three ways, in turns: the stream alone (`next`); the stream and one gather of each
            batch into memory that is there; the Loader, to tensors; and what each takes of the processor
next        what a trainer waits for, whose steps take longer than a batch: the tensors of the next one, x too
tensors     from what `next` gave to PyG's Data without x, which the engine's thread has made int64 arrays for
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

import quarry
from quarry import _quarry
from quarry._values import FLOAT32
from quarry.pyg import Loader

FANOUTS, BATCH = [10, 10], 1024
ROUNDS, ROUNDS_LIVE = 7, 2  # a live pass reads the table once a batch
GROWTH_BATCHES = 10_000
OVERHEAD_PASSES = 5
GROWTH_MAX = 16 << 20
GOAL, GOAL_MICROSECONDS = 0.97, 50


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


def overhead(db: quarry.Database, plan: bool) -> tuple[float, float, float]:
    """Medians over batches without features: edges, and the microseconds from what `next` gave to what the Loader yields,
    by the clock and of the processor."""
    loader = Loader(db, FANOUTS, BATCH, "train", shuffle=True, plan=plan)
    stream = loader._open()
    without = _quarry.PygPass(*loader._seeds_by_id())
    edges, clock, processor = [], [], []
    for number in range(1, OVERHEAD_PASSES + 1):
        stream.start("train", number=number, _pyg=without)
        while (raw := stream._raw.next()) is not None:
            edges.append(raw.edge_count)
            start, start_processor = time.perf_counter_ns(), time.thread_time_ns()
            data = loader._data(raw.pyg_block(dlpack=True))
            end_processor, end = time.thread_time_ns(), time.perf_counter_ns()
            clock.append((end - start) / 1e3)
            processor.append((end_processor - start_processor) / 1e3)
            assert data.x is None
            raw.close()
    stream.close()
    return statistics.median(edges), statistics.median(clock), statistics.median(processor)


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


def main(path: str, planned_rounds: int) -> None:
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
        for road in roads:
            edges, clock, processor = overhead(db, road == "planned")
            print(
                f"on the Loader's thread, ahead, from what next gave to Data without x, {road}, {edges:,.0f} edges a batch: "
                f"{clock:.0f} us, {processor:.0f} us of the processor"
            )
        gathered, copied = gather_rates(db)
        print(f"x: {gathered:.1f} GB/s by one gather, beside {copied:.1f} GB/s by np.copyto of as many bytes in order")
        for name in list(db.layouts):
            db.drop_layout(name)
        before, after, seen = growth(db)
        grows = after - before >= GROWTH_MAX
        held &= not grows
        print(
            f"resident memory: {before / 2**20:.0f} MiB after {GROWTH_BATCHES // 10:,} batches, {after / 2**20:.0f} MiB after {seen:,} "
            f"(goal: less than {GROWTH_MAX >> 20} MiB more: {'FAIL' if grows else 'PASS'})"
        )
    print(json.dumps({"held": held}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
