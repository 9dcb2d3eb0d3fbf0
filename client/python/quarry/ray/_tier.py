"""`BatchTier`: preparation workers and their coordinator as actors of Ray, and what trainers see of them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Iterator, Mapping, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._errors import Busy, Error, InternalError, TimedOut, UsageError
from ._groups import Group, empty, unpacked
from ._prepare import Prepared
from ._schedule import Ledger, pieces_of, shares_of_workers
from ._worker import Worker

_NAMESPACE = "quarry"
_POLL_SECONDS = 0.2
_COUNTED = ("seeds", "batches", "rows_sent", "rows_of_batches", "feature_bytes_sent", "seconds", "core_seconds")


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


class _Ended(Exception):
    """The epoch that a trainer asks for was begun anew."""


class Coordinator:
    """One actor for a tier. Its calls run side by side on one thread, so that its books need no lock. A worker is replaced
    when a call to it ends with its death; what it made lies in Ray's object store and is used, the rest is made again."""

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
        self._groups: dict[int, Any] = {}  # by piece, the reference of what was made
        self._counted = {name: 0.0 for name in _COUNTED}
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
        return self._database

    def known(self) -> tuple[tuple[int, int], dict[str, Any]]:
        """What a `BatchTier` that connects to it is made of."""
        return (self._settings.hosts, self._settings.group), self._database

    async def begin(self, epoch: int, first_step: int, rank: int) -> tuple[int, int]:
        """A rank begins an epoch: a token for it, and how many steps it has. The last epoch ends first, unless this rank had
        not ended it itself: then its trainers were started anew, and so is the epoch, for all of them."""
        ledger = self._ledger
        if ledger is None or not ledger.finished(rank):
            if ledger is None or rank in self._begun or epoch != self._epoch:
                self._begin(epoch, first_step)
        else:
            await self._until(lambda: self._ledger is not ledger or ledger.done)
            if self._ledger is ledger:
                self._begin(epoch, first_step)
        if epoch != self._epoch or first_step != self._first_step:
            raise UsageError(
                f"rank {rank} begins epoch {epoch} at step {first_step}, another one epoch {self._epoch} at step {self._first_step}: all ranks begin the same"
            )
        assert self._ledger is not None
        self._begun.add(rank)
        self._ask_all()
        await self._tell()
        return self._token, self._ledger.steps

    async def take(self, token: int, step: int, rank: int) -> tuple[list[Any], int, int, int]:
        """The reference of the group of a rank's host in a step, within a list, none behind the last; the number of its piece,
        and its attempt; and how many seeds the step has over all ranks. Waits until all groups of the step are made."""
        ledger = self._ledger_of(token)
        await self._until(lambda: self._token != token or ledger.ready(step))
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
        self._ask_all()
        await self._tell()

    async def lost(self, token: int, number: int, attempt: int) -> None:
        """A group that was made did not come: the host that had it is gone. It is made again."""
        if token == self._token:
            self._ledger_of(token).unmake(number, attempt)
            self._ask_all()

    def stats(self) -> dict[str, float]:
        """Sums over all groups so far, those that were made twice among them; `replaced` workers."""
        return {**self._counted, "replaced": sum(self._life)}

    def status(self) -> dict[str, Any]:
        """The epoch, the step that is trained, and by worker its process and the states of its pieces."""
        ledger = self._ledger
        workers = [
            {"pid": self._told[worker].get("pid"), "replaced": self._life[worker], **(ledger.counts(worker) if ledger else {})}
            for worker in range(self._settings.workers)
        ]
        return {"epoch": self._epoch, "step": ledger.step if ledger else 0, "steps": ledger.steps if ledger else 0, "workers": workers}

    def stop(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            if worker is not None:
                ray.kill(worker)

    # ---- one thread, between two awaits

    def _begin(self, epoch: int, first_step: int) -> None:
        settings = self._settings
        batches = self._database["batches"]
        of_workers = shares_of_workers(settings.prepared.shares, settings.workers, settings.seed, epoch)
        pieces = pieces_of(batches[epoch % settings.prepared.epochs], of_workers, settings.group)
        self._ledger = Ledger(pieces, settings.workers, settings.hosts, settings.group, settings.ahead, first_step)
        self._begun = set()
        self._epoch, self._first_step = epoch, first_step
        self._token += 1
        self._groups = {}

    def _ledger_of(self, token: int) -> Ledger:
        if token != self._token or self._ledger is None:
            raise _Ended
        return self._ledger

    def _start_worker(self, worker: int) -> None:
        settings = self._settings
        address = settings.prepared.address.format(worker=worker)
        actor = ray.remote(Worker).options(num_cpus=settings.cpus, resources=settings.resources or None, scheduling_strategy="SPREAD")
        self._workers[worker] = actor.remote(settings.prepared._replace(address=address), settings.memory)
        self._spawn(self._hear(worker, self._life[worker], self._workers[worker].hello.remote()))

    def _ask_all(self) -> None:
        if self._ledger is None or self._failure is not None:
            return
        for worker, actor in enumerate(self._workers):
            for piece, attempt in self._ledger.ask(worker):
                told, group = actor.make.options(num_returns=2).remote(self._epoch, piece.share, piece.first, piece.batches)
                self._spawn(self._receive(worker, self._life[worker], self._token, piece.number, attempt, told, group))

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
        if token == self._token and self._ledger_of(token).made(number, attempt, int(counts["seeds"])):
            self._groups[number] = group
            await self._tell()

    async def _answer(self, worker: int, life: int, asked: Any) -> dict[str, Any] | None:
        """What a worker answers; None where it died, and another has its place, or where it failed."""
        try:
            answer: dict[str, Any] = await asked
            return answer
        except ray.exceptions.RayTaskError as error:  # the worker lives, and said no
            await self._fail(error.cause if isinstance(error.cause, Error) else InternalError(str(error)))
        except ray.exceptions.RayError as error:
            await self._replace(worker, life, error)
        return None

    async def _replace(self, worker: int, life: int, error: Exception) -> None:
        if self._life[worker] != life or self._failure is not None:
            return  # by an earlier call to the same one
        if self._in_vain[worker] == self._settings.replaced_max:
            await self._fail(
                InternalError(f"preparation worker {worker} died {self._in_vain[worker] + 1} times without making anything, the last time so: {error}")
            )
            return
        ray.kill(self._workers[worker])  # one that cannot be reached may still live, and have its folder
        self._life[worker] += 1
        self._in_vain[worker] += 1
        self._told[worker] = {}
        if self._ledger is not None:
            self._ledger.lose(worker)
        self._start_worker(worker)
        self._ask_all()
        await self._tell()

    async def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        await self._tell()

    async def _until(self, true: Any) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._failure is not None or true())
        if self._failure is not None:
            raise self._failure

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop keeps none alive
        task.add_done_callback(self._tasks.discard)


def _of_cluster() -> str:
    available: Any = ray.available_resources
    return ", ".join(f"{name} {count:g}" for name, count in sorted(available().items()) if not name.startswith(("node:", "object_store", "memory"))) or "nothing free"


class BatchTier:
    """Mini-batches of what `prepare` published, made by `workers` processes of the cluster for hosts × group trainers.

    prepared   of `quarry.ray.prepare`. Each worker opens it by itself, and has a disjoint set of its shares in each epoch, by
               the coordinator's policy: every share is read once an epoch, and every example is used once
    workers    preparation workers, each an actor of `cpus` CPUs and `resources`, with `memory` for the engine
    hosts, group   trainers: `group` on each of `hosts`; rank r is trainer r % group of host r // group. A host's batches of a
               step come as one group, a row of several of them once
    ahead      groups that a worker makes before the first of them was used: what bounds memory
    seed       of the policy
    replaced_max   times in a row that a worker is replaced which dies before it has made anything

    A batch is a function of (plan, epoch, share, number), and their order one of (seed, epoch, workers): a worker that dies
    is replaced, what it had not made is made again, and nobody sees a difference. Trainers take steps together, as DDP's do.
    Give the tier to Ray's tasks and actors as it is; other processes of the cluster find it by `name`, with `connect`.
    The coordinator runs on the node of the program that makes the tier, and is not replaced: where that node dies, the job
    ends. close() ends all actors; without a name they end with that program.
    """

    def __init__(
        self,
        prepared: Prepared,
        *,
        workers: int = 2,
        hosts: int = 1,
        group: int = 1,
        ahead: int = 2,
        memory: int | str | None = "512MiB",
        cpus: float = 1,
        resources: Mapping[str, float] | None = None,
        seed: int = 0,
        replaced_max: int = 3,
        start_seconds: float = 300,
        name: str | None = None,
    ) -> None:
        for what, count, least in (("workers", workers, 1), ("hosts", hosts, 1), ("group", group, 1), ("ahead", ahead, 1), ("replaced_max", replaced_max, 0)):
            if count < least:
                raise UsageError(f"{what} {count}: {least} at least")
        if workers > prepared.shares:
            raise UsageError(f"{workers} workers for {prepared.shares} shares: each has one at least; prepare more shares, or give fewer workers")
        settings = Settings(prepared, workers, hosts, group, ahead, memory, cpus, dict(resources or {}), seed, replaced_max, start_seconds)
        # Beside the program that makes the tier: with any other node, the job would depend on one more.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": 1000, "scheduling_strategy": here}
        if name is not None:
            options.update(name=name, namespace=_NAMESPACE, lifetime="detached")
        actor: Any = ray.remote(Coordinator)
        try:
            self._coordinator = actor.options(**options).remote(settings)
        except ValueError as error:
            raise Busy(f"tier {name!r}: {error}") from None
        self._shape = (hosts, group)
        self._told: dict[str, Any] = {}
        try:
            self._told = _get(self._coordinator.start.remote())
        except Exception:
            self.close()
            raise

    @classmethod
    def connect(cls, name: str) -> BatchTier:
        """The tier of this name, which another process of the cluster made: ray.init(address=...) comes first."""
        coordinator = ray.get_actor(name, _NAMESPACE)
        return _tier(coordinator, *_get(coordinator.known.remote()))

    @property
    def dim(self) -> int:
        """Columns of a batch's x."""
        return int(self._told["dim"])

    def batches(self, epoch: int, rank: int = 0, *, first_step: int = 0, arrays: bool = False) -> Batches:
        """The mini-batches of an epoch for one rank, from a step on; all ranks ask for the same. `arrays`: as dicts of NumPy
        arrays, in the place of torch_geometric.data.Data. Where trainers were started anew, those that begin an epoch which
        they had not ended begin it anew for all."""
        ranks = self._shape[0] * self._shape[1]
        if not 0 <= rank < ranks:
            raise UsageError(f"rank {rank}: there are {ranks}, from 0 on")
        if epoch < 0 or first_step < 0:
            raise UsageError(f"epoch {epoch} from step {first_step} on: both count from 0")
        return Batches(self._coordinator, epoch, rank, rank % self._shape[1], first_step, self._told, arrays)

    def stats(self) -> dict[str, float]:
        """What the workers made so far: batches, seeds, rows_sent (of unions), rows_of_batches, feature_bytes_sent, seconds
        and core_seconds, and how many workers were replaced."""
        return dict(_get(self._coordinator.stats.remote()))

    def status(self) -> dict[str, Any]:
        """The epoch, its step, and by worker: pid, and how many pieces wait, are asked for, are made, were used."""
        return dict(_get(self._coordinator.status.remote()))

    def close(self) -> None:
        """Ends workers and coordinator."""
        try:
            ray.get(self._coordinator.stop.remote())
        except ray.exceptions.RayError:
            pass  # it is gone already, and its workers went with it
        ray.kill(self._coordinator)

    def __enter__(self) -> BatchTier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _tier, (self._coordinator, self._shape, self._told)


def _tier(coordinator: Any, shape: tuple[int, int], told: dict[str, Any]) -> BatchTier:
    tier = BatchTier.__new__(BatchTier)
    tier._coordinator, tier._shape, tier._told = coordinator, shape, told
    return tier


class Batches:
    """An epoch of one rank: iterate it once. len() is the number of steps that are left of it. A batch of a step in which
    there is none for this rank has no seeds. `step_seeds` of a batch counts those of all ranks in its step: losses that are
    summed, divided by it and multiplied by the number of ranks average to the mean over the step's seeds."""

    def __init__(self, coordinator: Any, epoch: int, rank: int, member: int, first_step: int, told: dict[str, Any], arrays: bool) -> None:
        self._coordinator, self._rank, self._member, self._arrays = coordinator, rank, member, arrays
        self._dim, self._hops = int(told["dim"]), int(told["hops"])
        self._step = first_step
        self._given_up = False
        self._token, self._steps = _get(coordinator.begin.remote(epoch, first_step, rank))

    def __len__(self) -> int:
        return int(self._steps) - self._step

    def __iter__(self) -> Iterator[Any]:
        ahead = ThreadPoolExecutor(1, "quarry")  # whose thread fetches the next one beside the caller's work
        try:
            coming: Future[Any] | None = ahead.submit(self._fetch, self._step) if len(self) > 0 else None
            while coming is not None:
                batch = coming.result()
                coming = ahead.submit(self._fetch, self._step + 1) if len(self) > 1 else None
                yield batch
                _get(self._coordinator.release.remote(self._token, self._step, self._rank))
                self._step += 1
        finally:
            self._given_up = True
            ahead.shutdown()

    def _fetch(self, step: int) -> Any:
        while True:
            asked = self._coordinator.take.remote(self._token, step, self._rank)
            while not ray.wait([asked], timeout=_POLL_SECONDS)[0]:
                if self._given_up or not threading.main_thread().is_alive():
                    return None  # nobody wants it: the interpreter, too, waits for this thread
            refs, number, attempt, seeds = _get(asked)
            if not refs:
                return self._made(empty(self._dim, self._hops), seeds)
            try:
                group: Group = ray.get(refs[0])
            except (ray.exceptions.ObjectLostError, ray.exceptions.RayActorError):
                _get(self._coordinator.lost.remote(self._token, number, attempt))
                continue
            if self._member >= len(group.members):
                return self._made(empty(self._dim, self._hops), seeds)
            return self._made(unpacked(group, self._member), seeds)

    def _made(self, arrays: dict[str, Any], step_seeds: int) -> Any:
        arrays["step_seeds"] = step_seeds
        if self._arrays:
            return arrays
        import torch
        from torch_geometric.data import Data

        tensors = {name: torch.from_numpy(arrays[name]) for name in ("x", "edge_index", "n_id", "y")}
        return Data(num_nodes=len(arrays["n_id"]), **{**arrays, **tensors})


def _get(asked: Any) -> Any:
    """What the coordinator answers; its refusals as they are."""
    try:
        return ray.get(asked)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, _Ended):
            raise UsageError("the epoch was begun anew by another trainer: this one is over") from None
        if isinstance(error.cause, Error):
            raise error.cause from None
        raise
