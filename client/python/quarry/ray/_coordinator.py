"""The coordinator of a batch tier, as an actor of Ray: it gives workers their pieces, and trainers what was made."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import ray

from .._errors import Error, InternalError, TimedOut, UsageError
from .._values import size
from ._cache import Heard, Update
from ._hosts import Hosts
from ._prepare import Prepared
from ._schedule import Ledger, Piece, pieces_of, shares_of_workers
from ._worker import Worker

_COUNTED = ("seeds", "batches", "rows_sent", "rows_cached", "rows_of_batches", "feature_bytes_sent", "seconds", "core_seconds")


class Settings(NamedTuple):
    """What a coordinator is told, once."""

    prepared: Prepared
    workers: int
    hosts: int
    group: int
    ahead: int
    memory: int | str | None
    cpus: float
    resources: dict[str, float]
    seed: int
    replaced_max: int
    start_seconds: float
    cache: int | str  # of each host, as bytes or a share of the features; 0: none
    cache_policy: str


class Ended(Exception):
    """The epoch that a trainer asks for was begun anew."""


class Coordinator:
    """One actor for a tier. Its calls run side by side on one thread, so that its books need no lock. A worker is replaced
    when a call to it ends with its death; what it made lies in Ray's object store and is used, the rest is made again.
    With caches, what was made passes through its host's (_hosts.py)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers: list[Any] = [None] * settings.workers
        self._told: list[dict[str, Any]] = [{} for _ in range(settings.workers)]
        self._database: dict[str, Any] = {}
        self._life = [0] * settings.workers  # of a worker: how many there were before it
        self._in_vain = [0] * settings.workers  # replacements since one made something
        self._changed = asyncio.Condition()
        self._failure: Exception | None = None
        self._ledger: Ledger | None = None
        self._token = 0  # of the ledger
        self._begun: set[int] = set()  # ranks that have begun it
        self._epoch, self._first_step = -1, 0
        self._groups: dict[int, Any] = {}  # by piece, the reference of what trainers take
        self._hosts: Hosts | None = None  # where there are feature caches
        self._traces: dict[int, Any] = {}  # by planned epoch, the task that gives references of its shares' traces
        self._epoch_traces: list[Any] = []  # of the epoch that is trained
        self._counted = {name: 0.0 for name in (*_COUNTED, "cache_messages", "cache_message_bytes")}
        self._tasks: set[Any] = set()

    async def start(self) -> dict[str, Any]:
        """Starts the workers; what the first one says of the database."""
        for worker in range(self._settings.workers):
            self._start_worker(worker)
        try:
            await asyncio.wait_for(self._until(lambda: all(self._told)), self._settings.start_seconds)
        except asyncio.TimeoutError:
            started = sum(map(bool, self._told))
            raise TimedOut(
                f"{started} of {self._settings.workers} preparation workers started within {self._settings.start_seconds:g} s: the cluster has "
                f"{_of_cluster()}, and each asks for {self._settings.cpus:g} CPU {self._settings.resources or ''}; give fewer workers, or cpus=0.5"
            ) from None
        self._database = {**self._told[0], "hops": len(self._settings.prepared.fanouts)}  # as all of them say
        if self._settings.cache:
            self._hosts = self._cached(self._database["dim"], self._database["nodes"])
        return self._database

    def known(self) -> tuple[tuple[int, int], dict[str, Any]]:
        """What a `BatchTier` that connects to it is made of."""
        return (self._settings.hosts, self._settings.group), self._database

    async def begin(self, epoch: int, first_step: int, rank: int, node: str) -> tuple[int, int]:
        """A rank, which runs on the node, begins an epoch: a token for it, and how many steps it has. The last epoch ends
        first, unless this rank had not ended it itself: then its trainers were started anew, and so is the epoch, for all."""
        traces = await self._traced(epoch) if self._hosts is not None and self._hosts.planned else []
        ledger = self._ledger
        if ledger is None or not ledger.finished(rank):
            if ledger is None or rank in self._begun or epoch != self._epoch:
                self._begin(epoch, first_step, traces)
        else:
            await self._until(lambda: self._ledger is not ledger or ledger.done)
            if self._ledger is ledger:
                self._begin(epoch, first_step, traces)
        if epoch != self._epoch or first_step != self._first_step:
            raise UsageError(
                f"rank {rank} begins epoch {epoch} at step {first_step}, another one epoch {self._epoch} at step {self._first_step}: all ranks begin the same"
            )
        assert self._ledger is not None
        self._begun.add(rank)
        if self._hosts is not None and rank % self._settings.group == 0:
            self._hosts.place(rank // self._settings.group, node)
        self.ask_all()
        await self._tell()
        return self._token, self._ledger.steps

    async def take(self, token: int, step: int, rank: int) -> tuple[list[Any], int, int, int]:
        """The reference of the group of a rank's host in a step, within a list, none behind the last; the number of its piece,
        and its attempt; and how many seeds the step has over all ranks. Waits until all groups of the step are made."""
        ledger = self._ledger_of(token)
        await self._until(lambda: self._token != token or (ledger.ready(step) and self._is_there(step, rank)))
        self._ledger_of(token)
        found = ledger.piece(step, rank)
        if found is None:
            return [], -1, 0, ledger.seeds(step)
        return [self._groups[found[0].number]], found[0].number, found[1], ledger.seeds(step)

    async def release(self, token: int, step: int, rank: int) -> None:
        """The rank needs its batch of the step no more."""
        if token != self._token:
            return  # of an epoch that was begun anew
        unneeded = self._ledger_of(token).release(step, rank)
        if unneeded is not None:
            self._groups.pop(unneeded, None)
        self.ask_all()
        await self._tell()

    async def lost(self, token: int, number: int, attempt: int) -> None:
        """A group that was made did not come: the host that had it is gone. It is made again."""
        if token == self._token and self._ledger_of(token).unmake(number, attempt):
            self._groups.pop(number, None)
            if self._hosts is not None:
                self._hosts.lost(number % self._settings.hosts)
            self.ask_all()

    def stats(self) -> dict[str, float]:
        """Sums over all groups so far, those that were made twice among them; `replaced` workers."""
        return {**self._counted, "replaced": sum(self._life)}

    def status(self) -> dict[str, Any]:
        """The epoch, the step that is trained, by worker its process and the states of its pieces, and by host the process of
        its feature cache, and how many died before it."""
        ledger = self._ledger
        workers = [
            {"pid": self._told[worker].get("pid"), "replaced": self._life[worker], **(ledger.counts(worker) if ledger else {})}
            for worker in range(self._settings.workers)
        ]
        hosts = self._hosts.status() if self._hosts is not None else []
        return {"epoch": self._epoch, "step": ledger.step if ledger else 0, "steps": ledger.steps if ledger else 0, "workers": workers, "hosts": hosts}

    def stop(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            if worker is not None:
                ray.kill(worker)
        if self._hosts is not None:
            self._hosts.stop()

    # ---- one thread, between two awaits

    def lives(self) -> list[int]:
        """By worker, how many there were in its place before."""
        return list(self._life)

    def piece(self, number: int) -> Piece:
        """Of the epoch."""
        assert self._ledger is not None
        return self._ledger.pieces[number]

    def traces(self) -> list[Any]:
        """References of the epoch's traces, by share."""
        return self._epoch_traces

    def restart(self, host: int) -> list[int]:
        """The host's cache begins again: the numbers of its pieces that are to come, all of which are made from here on."""
        return self._ledger.restart(host, self._groups) if self._ledger is not None else []

    async def completed(self, token: int, number: int, attempt: int, group: Any) -> None:
        """What trainers take."""
        if token == self._token and self._ledger_of(token).holds(number, attempt):
            self._groups[number] = group
            await self._tell()

    async def refused(self, token: int, number: int, attempt: int) -> None:
        """The host's cache knows nothing of its worker any more."""
        if token == self._token and self._ledger_of(token).unmake(number, attempt):
            self.ask_all()

    async def hear(self, host: int, worker: int, life: int, update: Update) -> Heard | None:
        """What a worker answers to a host's announcement."""
        self._count_message(update.nbytes)
        heard = await self._answer(worker, life, self._workers[worker].hear.remote(host, update)) if self._life[worker] == life else None
        if heard is not None:
            self._count_message(0)
        return heard

    def _count_message(self, size_bytes: int) -> None:
        self._counted["cache_messages"] += 1
        self._counted["cache_message_bytes"] += size_bytes

    def _cached(self, dim: int, nodes: int) -> Hosts:
        settings, row_bytes = self._settings, 4 * dim
        rows = min(size(settings.cache, nodes * row_bytes, "cache") // row_bytes, 2 * nodes)
        if rows < 2:
            raise UsageError(f"cache {settings.cache!r} has room for {rows} rows of {row_bytes} bytes: two at least")
        return Hosts(self, settings.hosts, rows, dim, settings.cache_policy == "belady", settings.replaced_max)

    async def _traced(self, epoch: int) -> list[Any]:
        """References of the traces of an epoch's shares. They are read once, by the workers that there are at the time."""
        planned = epoch % self._settings.prepared.epochs
        if planned not in self._traces:
            shares = range(self._settings.prepared.shares)
            self._traces[planned] = asyncio.ensure_future(asyncio.gather(*(self._trace(planned, share) for share in shares)))
        return list(await asyncio.shield(self._traces[planned]))

    async def _trace(self, epoch: int, share: int) -> Any:
        worker = share % self._settings.workers
        while self._failure is None:
            trace = await self._answer(worker, self._life[worker], self._workers[worker].trace.remote(epoch, share))
            if trace is not None:
                return ray.put(trace)
        raise self._failure

    def _is_there(self, step: int, rank: int) -> bool:
        assert self._ledger is not None
        found = self._ledger.piece(step, rank)
        return found is None or found[0].number in self._groups

    def _begin(self, epoch: int, first_step: int, traces: list[Any]) -> None:
        settings = self._settings
        batches = self._database["batches"]
        of_workers = shares_of_workers(settings.prepared.shares, settings.workers, settings.seed, epoch)
        pieces = pieces_of(batches[epoch % settings.prepared.epochs], of_workers, settings.group)
        self._ledger = Ledger(pieces, settings.workers, settings.hosts, settings.group, settings.ahead, first_step)
        self._begun = set()
        self._epoch, self._first_step = epoch, first_step
        self._token += 1
        self._groups = {}
        self._epoch_traces = traces
        if self._hosts is not None:
            self._hosts.begin(traces)

    def _ledger_of(self, token: int) -> Ledger:
        if token != self._token or self._ledger is None:
            raise Ended
        return self._ledger

    def _start_worker(self, worker: int) -> None:
        settings = self._settings
        address = settings.prepared.address.format(worker=worker)
        actor = ray.remote(Worker).options(num_cpus=settings.cpus, resources=settings.resources or None, scheduling_strategy="SPREAD")
        self._workers[worker] = actor.remote(settings.prepared._replace(address=address), settings.memory, worker, self._life[worker])
        self.spawn(self._hear(worker, self._life[worker], self._workers[worker].hello.remote()))

    def ask_all(self) -> None:
        """Gives every worker what it may make."""
        if self._ledger is None or self._failure is not None:
            return
        for worker, actor in enumerate(self._workers):
            for piece, attempt in self._ledger.ask(worker):
                place, choices = self._hosts.place_of(piece, piece.number % self._settings.hosts) if self._hosts is not None else (None, None)
                told, group = actor.make.options(num_returns=2).remote(self._epoch, piece.share, piece.first, piece.batches, place, choices)
                self.spawn(self._receive(worker, self._life[worker], self._token, piece.number, attempt, told, group))

    async def _hear(self, worker: int, life: int, hello: Any) -> None:
        told = await self._answer(worker, life, hello)
        if told is not None:
            self._told[worker] = told
            await self._tell()

    async def _receive(self, worker: int, life: int, token: int, number: int, attempt: int, told: Any, group: Any) -> None:
        counts = await self._answer(worker, life, told)
        if counts is None:
            return
        self._in_vain[worker] = 0
        for name in _COUNTED:
            self._counted[name] += counts[name]
        wanted = token == self._token and self._ledger_of(token).made(number, attempt, int(counts["seeds"]))
        host = number % self._settings.hosts
        if self._hosts is not None and wanted:
            self._hosts.made(host, token, number, attempt, counts["stamp"], group)
        elif self._hosts is not None:
            self._hosts.void(host, counts["stamp"])
        elif wanted:
            self._groups[number] = group
        if wanted:
            await self._tell()

    async def _answer(self, worker: int, life: int, asked: Any) -> Any:
        """What a worker answers; None where it died, and another has its place, or where it failed."""
        try:
            return await asked
        except ray.exceptions.RayTaskError as error:  # the worker lives, and said no
            self.fail(error.cause if isinstance(error.cause, Error) else InternalError(str(error)))
        except ray.exceptions.RayError as error:
            await self._replace(worker, life, error)
        return None

    async def _replace(self, worker: int, life: int, error: Exception) -> None:
        if self._life[worker] != life or self._failure is not None:
            return  # by an earlier call to the same one
        if self._in_vain[worker] == self._settings.replaced_max:
            self.fail(InternalError(f"preparation worker {worker} died {self._in_vain[worker] + 1} times without making anything, the last time so: {error}"))
            return
        ray.kill(self._workers[worker])  # one that cannot be reached may still live, and have its folder
        self._life[worker] += 1
        self._in_vain[worker] += 1
        self._told[worker] = {}
        if self._ledger is not None:
            self._ledger.lose(worker)
        self._start_worker(worker)
        if self._hosts is not None:
            self._hosts.replaced(worker, self._life[worker])
        self.ask_all()
        await self._tell()

    def fail(self, error: Exception) -> None:
        """The tier ends with this."""
        if self._failure is None:
            self._failure = error
        self.spawn(self._tell())

    async def _until(self, true: Any) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._failure is not None or true())
        if self._failure is not None:
            raise self._failure

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def spawn(self, work: Any) -> None:
        """Goes on with it beside this."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop keeps none alive
        task.add_done_callback(self._tasks.discard)


def _of_cluster() -> str:
    available: Any = ray.available_resources
    return ", ".join(f"{name} {count:g}" for name, count in sorted(available().items()) if not name.startswith(("node:", "object_store", "memory"))) or "nothing free"
