"""`BatchTier`: preparation workers and their coordinator as actors of Ray, and what trainers see of them."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Iterator, Mapping

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._errors import Busy, Error, UsageError
from ._coordinator import Coordinator, Ended, Settings
from ._groups import Group, empty, unpacked
from ._prepare import Prepared

_NAMESPACE = "quarry"
_POLL_SECONDS = 0.2


class BatchTier:
    """Mini-batches of what `prepare` published, made by `workers` processes of the cluster for hosts × group trainers.

    prepared   of `quarry.ray.prepare`. Each worker opens it by itself, and has a disjoint set of its shares in each epoch, by
               the coordinator's policy: every share is read once an epoch, and every example is used once
    workers    preparation workers, each an actor of `cpus` CPUs and `resources`, with `memory` for the engine
    hosts, group   trainers: `group` on each of `hosts`; rank r is trainer r % group of host r // group. A host's batches of a
               step come as one group, a row of several of them once
    ahead      groups that a worker makes before the first of them was used: what bounds memory
    cache      rows that each host keeps, in bytes or as a share of the features ("10%"), beside its trainers: workers send the
               others alone. Nothing of a batch changes. `cache_policy` "belady": what is kept is planned by what comes, for
               which each share is read once more before its first epoch; "lru": both ends agree on what it has, as it changes
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
        cache: int | str = 0,
        cache_policy: str = "belady",
    ) -> None:
        for what, count, least in (("workers", workers, 1), ("hosts", hosts, 1), ("group", group, 1), ("ahead", ahead, 1), ("replaced_max", replaced_max, 0)):
            if count < least:
                raise UsageError(f"{what} {count}: {least} at least")
        if workers > prepared.shares:
            raise UsageError(f"{workers} workers for {prepared.shares} shares: each has one at least; prepare more shares, or give fewer workers")
        if cache_policy not in ("belady", "lru"):
            raise UsageError(f"cache_policy {cache_policy!r}: 'belady' or 'lru'")
        settings = Settings(prepared, workers, hosts, group, ahead, memory, cpus, dict(resources or {}), seed, replaced_max, start_seconds, cache, cache_policy)
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
        """What the workers made so far: batches, seeds, rows_sent (of unions), rows_cached (that were not, by a feature cache),
        rows_of_batches, feature_bytes_sent, seconds and core_seconds, and how many workers were replaced; cache_messages and
        cache_message_bytes, by which versions were agreed on."""
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
        self._token, self._steps = _get(coordinator.begin.remote(epoch, first_step, rank, ray.get_runtime_context().get_node_id()))

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
        if isinstance(error.cause, Ended):
            raise UsageError("the epoch was begun anew by another trainer: this one is over") from None
        if isinstance(error.cause, Error):
            raise error.cause from None
        raise
