"""The coordinator's side of the hosts' feature caches: what was made passes through the actor of its host before trainers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._errors import Error, InternalError
from ._belady import chosen
from ._cache import Place, Stamp, Update
from ._host import Host
from ._schedule import Piece

if TYPE_CHECKING:
    from ._coordinator import Coordinator


class _Book:
    """Of one host."""

    def __init__(self) -> None:
        self.node: str | None = None  # of its trainers; None: none has begun yet
        self.actor: Any = None
        self.pid: int | None = None
        self.generation = 0  # of the cache: one that died lost its rows
        self.lost = 0  # caches that died
        self.in_vain = 0  # of these, since one completed something
        self.made: dict[int, tuple[int, int, Stamp | None, Any]] = {}  # by number: token, attempt, and the group to be completed
        self.voids: list[Stamp] = []  # of groups that do not come
        # A plan's state: the pieces that are to come, in their order; which of them comes next; what is decided for each.
        self.numbers: list[int] = []
        self.positions: dict[int, int] = {}
        self.next = 0
        self.choices: Any = None


class Hosts:
    """Caches of `rows` rows on each of `count` hosts. On the coordinator's thread, between two awaits.

    A group that a worker made waits here until its host's actor runs and, by a plan, until those before it have gone there;
    what the actor completes goes to the trainers. A cache that is lost begins again, empty: pieces that are not complete are
    made anew, for the next generation.
    """

    def __init__(self, coordinator: Coordinator, count: int, rows: int, dim: int, planned: bool, died_max: int) -> None:
        self._coordinator = coordinator
        self._books = [_Book() for _ in range(count)]
        self._rows, self._dim, self._died_max = rows, dim, died_max
        self.planned = planned

    def place(self, host: int, node: str) -> None:
        """The host's trainers are on the node."""
        book = self._books[host]
        if book.node == node:
            return
        moved, book.node = book.node is not None, node
        if moved:
            self._restart(host, book.generation)
        else:
            self._start(host)

    def begin(self, traces: Sequence[Any]) -> None:
        """An epoch begins. By a plan, with empty caches; else they stay as they are, but for what was made for the last one."""
        for host, book in enumerate(self._books):
            stamps = [stamp for _, _, stamp, _ in book.made.values() if stamp is not None]
            book.made = {}
            if self.planned:
                self._plan(host, self._coordinator.restart(host), traces)
                if book.actor is not None:
                    self._begin_actor(host)
            else:
                for stamp in stamps:
                    self.void(host, stamp)

    def place_of(self, piece: Piece, host: int) -> tuple[Place, Any]:
        """What a worker is told with the piece, and the plan's reference."""
        book = self._books[host]
        return Place(host, book.generation, book.positions.get(piece.number, 0)), book.choices

    def made(self, host: int, token: int, number: int, attempt: int, stamp: Stamp | None, group: Any) -> None:
        self._books[host].made[number] = (token, attempt, stamp, group)
        self._pass_on(host)

    def void(self, host: int, stamp: Stamp | None) -> None:
        """A group that was made is not wanted."""
        book = self._books[host]
        if stamp is not None and book.actor is None:
            book.voids.append(stamp)
        elif stamp is not None:
            book.actor.void.remote(stamp)

    def lost(self, host: int) -> None:
        """What the host's cache completed is lost, and may have been all that it had."""
        self._restart(host, self._books[host].generation)

    def replaced(self, worker: int, life: int) -> None:
        for host, book in enumerate(self._books):
            if book.actor is not None and not self.planned:
                self._coordinator.spawn(self._introduce(host, book.generation, worker, life))

    def status(self) -> list[dict[str, Any]]:
        return [{"pid": book.pid, "lost": book.lost} for book in self._books]

    def stop(self) -> None:
        for book in self._books:
            if book.actor is not None:
                ray.kill(book.actor)

    def _plan(self, host: int, numbers: list[int], traces: Sequence[Any]) -> None:
        book = self._books[host]
        book.generation += 1
        book.numbers, book.next = numbers, 0
        book.positions = {number: position for position, number in enumerate(numbers)}
        task: Any = ray.remote(chosen)
        book.choices = task.options(num_cpus=0).remote(self._rows, [self._coordinator.piece(number) for number in numbers], *traces)

    def _start(self, host: int) -> None:
        book = self._books[host]
        assert book.node is not None
        actor: Any = ray.remote(Host)
        beside = NodeAffinitySchedulingStrategy(book.node, soft=True)
        book.actor = actor.options(num_cpus=0, scheduling_strategy=beside).remote()
        self._begin_actor(host)
        for stamp in book.voids:
            book.actor.void.remote(stamp)
        book.voids = []
        self._pass_on(host)

    def _begin_actor(self, host: int) -> None:
        book = self._books[host]
        begun = book.actor.begin.remote(book.generation, self._rows, self._dim, self._coordinator.lives(), self.planned)
        self._coordinator.spawn(self._begun(host, book.generation, begun))

    def _restart(self, host: int, generation: int) -> None:
        book = self._books[host]
        if book.generation != generation or book.actor is None:
            return  # known
        ray.kill(book.actor)
        book.actor = None
        book.pid = None
        book.lost += 1
        book.in_vain += 1
        if book.in_vain > self._died_max:
            self._coordinator.fail(InternalError(f"the feature cache of host {host} was lost {book.in_vain} times before it completed anything"))
            return
        book.made, book.voids = {}, []
        remaining = self._coordinator.restart(host)
        if self.planned:
            self._plan(host, remaining, self._coordinator.traces())
        else:
            book.generation += 1
        self._start(host)
        self._coordinator.ask_all()

    def _pass_on(self, host: int) -> None:
        """Gives the actor what may go there."""
        book = self._books[host]
        if book.actor is None:
            return
        ready = list(book.made)
        if self.planned:
            ready = []
            while book.next < len(book.numbers) and book.numbers[book.next] in book.made:
                ready.append(book.numbers[book.next])
                book.next += 1
        for number in ready:
            token, attempt, stamp, group = book.made.pop(number)
            told, whole = book.actor.received.options(num_returns=2).remote(book.generation, book.positions.get(number, 0), stamp, group)
            self._coordinator.spawn(self._complete(host, book.generation, token, number, attempt, told, whole))

    async def _begun(self, host: int, generation: int, begun: Any) -> None:
        self._books[host].pid = await self._answer(host, generation, begun)

    async def _complete(self, host: int, generation: int, token: int, number: int, attempt: int, told: Any, whole: Any) -> None:
        book = self._books[host]
        answer = await self._answer(host, generation, told)
        if answer is None or generation != book.generation:
            return
        update, counts = answer
        book.in_vain = 0
        if counts:
            await self._coordinator.completed(token, number, attempt, whole)
        else:
            await self._coordinator.refused(token, number, attempt)
        if update is not None:
            for worker, life in enumerate(self._coordinator.lives()):
                self._coordinator.spawn(self._announce(host, generation, worker, life, update))

    async def _introduce(self, host: int, generation: int, worker: int, life: int) -> None:
        book = self._books[host]
        if book.actor is None or book.generation != generation:
            return  # it began again, and knows of this life
        answer = await self._answer(host, generation, book.actor.replaced.remote(worker, life))
        if answer is not None and answer[0] is not None:
            await self._announce(host, generation, worker, life, answer[0])

    async def _announce(self, host: int, generation: int, worker: int, life: int, update: Update) -> None:
        heard = await self._coordinator.hear(host, worker, life, update)
        book = self._books[host]
        if heard is not None and book.generation == generation and book.actor is not None:
            book.actor.heard.remote(heard)

    async def _answer(self, host: int, generation: int, asked: Any) -> Any:
        """What the actor answers; None where it is lost, or a group was on its way there: then its cache begins again."""
        try:
            return await asked
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, ray.exceptions.RayError):
                self._coordinator.fail(error.cause if isinstance(error.cause, Error) else InternalError(str(error)))
            else:
                self._restart(host, generation)
        except ray.exceptions.RayError:
            self._restart(host, generation)
        return None
