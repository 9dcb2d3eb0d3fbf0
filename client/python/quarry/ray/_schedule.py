"""Who makes which mini-batches of an epoch, and what has become of each: the coordinator's policy and its books. Pure values
and a state machine without threads, clock or Ray; one thread at a time."""

from __future__ import annotations

import heapq
from typing import Container, Iterator, NamedTuple, Sequence

import numpy as np

from .._errors import UsageError


def layout_name(name: str, epoch: int) -> str:
    """The layouts that `prepare` makes for a planned epoch, as `quarry layout build` is told it."""
    return f"{name}-e{epoch}"


def share_name(name: str, epoch: int, share: int, shares: int) -> str:
    """The layout of one share of a planned epoch."""
    return f"{layout_name(name, epoch)}-{share}of{shares}"


class Piece(NamedTuple):
    """Mini-batches [first, first + batches) of a share: what one worker makes at a time, for the trainers of one host."""

    number: int  # in the order of use
    worker: int
    share: int
    first: int
    batches: int


def shares_of_workers(shares: int, workers: int, seed: int, epoch: int) -> list[list[int]]:
    """The coordinator's policy (Waleffe §6.2): shares at random into disjoint subsets, one for each worker, in a random order
    within each. That is Algorithm 7 per worker on its subset: each share is read once."""
    order = np.random.default_rng([seed, epoch]).permutation(shares)
    return [order[worker::workers].tolist() for worker in range(workers)]


def pieces_of(batches: Sequence[int], of_workers: Sequence[Sequence[int]], group: int) -> list[Piece]:
    """The pieces of an epoch in the order of use: in turns over the workers, each in its own order. `batches`: by share, how
    many it has. `group`: mini-batches of a piece, fewer only at the end of a share."""
    queues = [
        [(share, first, min(group, batches[share] - first)) for share in shares for first in range(0, batches[share], group)] for shares in of_workers
    ]
    pieces: list[Piece] = []
    for turn in range(max(map(len, queues), default=0)):
        for worker, queue in enumerate(queues):
            if turn < len(queue):
                pieces.append(Piece(len(pieces), worker, *queue[turn]))
    return pieces


_WAITING, _ASKED, _MADE, _USED = range(4)


class Ledger:
    """The books of one epoch. A step uses the next `hosts` pieces, one a host; rank r is trainer r % group of host r // group.

        kWaiting -> kAsked [ask] -> kMade [made] -> kUsed [release, by the last trainer of its host]
        kAsked -> kWaiting [lose, of a worker that died]    kMade -> kWaiting [unmake, where its bytes are lost]
        kAsked, kMade -> kWaiting [restart, of a host whose feature cache is lost]

    No worker has more than `ahead` pieces asked or made, but for those of the step that is trained, so that memory is bounded
    and the step in hand never waits for a later one to be used.
    """

    def __init__(self, pieces: Sequence[Piece], workers: int, hosts: int, group: int, ahead: int, first_step: int = 0) -> None:
        self.pieces = list(pieces)
        self.hosts = hosts
        self.group = group
        self.steps = -(-len(self.pieces) // hosts)
        if not 0 <= first_step <= self.steps:
            raise UsageError(f"step {first_step} of an epoch of {self.steps}")
        self._ahead = ahead
        self._state = [_USED if piece.number < first_step * hosts else _WAITING for piece in self.pieces]
        self._attempts = [0] * len(self.pieces)
        self._seeds = [0] * len(self.pieces)
        self._released = [first_step] * (hosts * group)  # by rank, the step that it is at
        # By worker: heaps of what waits, and what it is asked for and has made.
        self._waiting: list[list[int]] = [[] for _ in range(workers)]
        self._asked: list[set[int]] = [set() for _ in range(workers)]
        self._held: list[set[int]] = [set() for _ in range(workers)]
        for piece in self.pieces[first_step * hosts :]:
            self._waiting[piece.worker].append(piece.number)

    @property
    def step(self) -> int:
        """The earliest step that a rank has not released."""
        return min(self._released)

    @property
    def done(self) -> bool:
        return self.step == self.steps

    def finished(self, rank: int) -> bool:
        return self._released[rank] == self.steps

    def ask(self, worker: int) -> Iterator[tuple[Piece, int]]:
        """What the worker is to make now, in order, and the number of the attempt."""
        waiting, step = self._waiting[worker], self.step
        while waiting:
            held = len(self._asked[worker]) + len(self._held[worker])
            if held >= self._ahead and waiting[0] // self.hosts > step:
                return
            number = heapq.heappop(waiting)
            self._state[number] = _ASKED
            self._asked[worker].add(number)
            self._attempts[number] += 1
            yield self.pieces[number], self._attempts[number]

    def made(self, number: int, attempt: int, seeds: int) -> bool:
        """Whether it counts: what a worker made that was given up does not."""
        if self._state[number] != _ASKED or self._attempts[number] != attempt:
            return False
        worker = self.pieces[number].worker
        self._state[number] = _MADE
        self._asked[worker].remove(number)
        self._held[worker].add(number)
        self._seeds[number] = seeds
        return True

    def lose(self, worker: int) -> None:
        """The worker is gone: what it had not made, another makes. What it made lies in the object store."""
        for number in self._asked[worker]:
            self._wait(number)
        self._asked[worker].clear()

    def holds(self, number: int, attempt: int) -> bool:
        """Whether that attempt was made, and is not used yet."""
        return self._state[number] == _MADE and self._attempts[number] == attempt

    def unmake(self, number: int, attempt: int) -> bool:
        """What was made is lost, with the host that had it; False where that is known."""
        if not self.holds(number, attempt):
            return False
        self._held[self.pieces[number].worker].remove(number)
        self._wait(number)
        return True

    def restart(self, host: int, complete: Container[int]) -> list[int]:
        """Pieces of a host that are not complete are to be made again, whoever has them: their rows count on a feature cache
        that is lost. The numbers of those that are still to come, in the order of use."""
        remaining = [number for number in range(host, len(self.pieces), self.hosts) if self._state[number] != _USED and number not in complete]
        for number in remaining:
            worker = self.pieces[number].worker
            if self._state[number] != _WAITING:
                (self._asked if self._state[number] == _ASKED else self._held)[worker].remove(number)
                self._wait(number)
        return remaining

    def piece(self, step: int, rank: int) -> tuple[Piece, int] | None:
        """The piece of a rank's host in a step, and its attempt; None behind the last."""
        number = step * self.hosts + rank // self.group
        return (self.pieces[number], self._attempts[number]) if number < len(self.pieces) else None

    def ready(self, step: int) -> bool:
        return all(self._state[number] in (_MADE, _USED) for number in self._numbers(step))

    def seeds(self, step: int) -> int:
        """How many seeds all its mini-batches have together, once it is ready."""
        return sum(self._seeds[number] for number in self._numbers(step))

    def release(self, step: int, rank: int) -> int | None:
        """The rank has used its batch of the step. The number of the piece that nobody needs any more by that."""
        if self._released[rank] != step:
            raise UsageError(f"rank {rank} releases step {step}, and is at step {self._released[rank]}")
        self._released[rank] += 1
        host = rank // self.group
        number = step * self.hosts + host
        if number >= len(self.pieces) or min(self._released[host * self.group : (host + 1) * self.group]) <= step:
            return None
        self._state[number] = _USED
        self._held[self.pieces[number].worker].remove(number)
        return number

    def counts(self, worker: int) -> dict[str, int]:
        """Its pieces by state, but those that are used."""
        return {"waiting": len(self._waiting[worker]), "asked": len(self._asked[worker]), "made": len(self._held[worker])}

    def _wait(self, number: int) -> None:
        self._state[number] = _WAITING
        heapq.heappush(self._waiting[self.pieces[number].worker], number)

    def _numbers(self, step: int) -> range:
        return range(step * self.hosts, min((step + 1) * self.hosts, len(self.pieces)))
