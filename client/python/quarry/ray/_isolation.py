"""Resource isolation (BGL §3.4): cores and bandwidth divided among the stages of a batch, so that the slowest is as fast as
it can be."""

from __future__ import annotations

import math
from typing import Mapping, NamedTuple, Sequence

import numpy as np

from .._errors import UsageError

_UNITS_MAX = 1 << 20  # of one resource


class Stage(NamedTuple):
    """What a stage takes of each batch: `work / share + constant` seconds.

    name      of the stage
    work      core-seconds on one core, or bytes where the pool is a bandwidth
    pool      the resource that it shares with others; None: one of its own, so that it takes work + constant
    constant  seconds that no share makes less: d of BGL's f(c) = a / c + d
    most      units above which it gains nothing (BGL's cache stage: 40 cores); None: no bound
    """

    name: str
    work: float
    pool: str | None = None
    constant: float = 0.0
    most: int | None = None

    def seconds(self, share: int = 1) -> float:
        return self.work / share + self.constant


class Division(NamedTuple):
    """Units of each stage that shares a pool; `seconds` of a batch, which those of the stage `limit` are."""

    seconds: float
    shares: dict[str, int]
    limit: str


def divide(stages: Sequence[Stage], pools: Mapping[str, int]) -> Division:
    """The division of whole units of each pool that minimises the seconds of the slowest stage; each stage of a pool has one
    unit at least. Pools do not depend on each other. Within one, each further unit goes to the stage that is the slowest so
    far, the later one of two that are equally slow. That is an optimum: seconds of a stage only fall as its share grows, so
    whatever is faster than the division so far gives the slowest stage more than it has, and a unit for it is never wrong.
    A pure function. `UsageError` names the stage or pool that cannot be."""
    if not stages:
        raise UsageError("there are no stages to divide anything among")
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise UsageError(f"stages {', '.join(names)}: each needs a name of its own")
    for stage in stages:
        if not (math.isfinite(stage.work) and math.isfinite(stage.constant)) or stage.work < 0 or stage.constant < 0:
            raise UsageError(f"stage {stage.name!r}: work {stage.work} and constant {stage.constant}: numbers from 0 on")
        if stage.most is not None and stage.most < 1:
            raise UsageError(f"stage {stage.name!r}: at most {stage.most} units, where each stage has one at least")
        if stage.pool is not None and stage.pool not in pools:
            raise UsageError(f"stage {stage.name!r} is of pool {stage.pool!r}, of which nothing is said; pools are {', '.join(pools) or 'none'}")
    shares: dict[str, int] = {}
    for pool, units in pools.items():
        sharing = [stage for stage in stages if stage.pool == pool]
        if not len(sharing) <= units <= _UNITS_MAX:
            raise UsageError(f"pool {pool!r} of {units} units for {len(sharing)} stages: one for each at least, and at most {_UNITS_MAX}")
        shares.update({stage.name: 1 for stage in sharing})
        for _ in range(units - len(sharing)):
            open_ = [stage for stage in sharing if stage.most is None or shares[stage.name] < stage.most]
            if not open_:
                break
            slowest = max(reversed(open_), key=lambda stage: stage.seconds(shares[stage.name]))
            shares[slowest.name] += 1
    seconds = {stage.name: stage.seconds(shares.get(stage.name, 1)) for stage in stages}
    limit = max(names, key=lambda name: seconds[name])
    return Division(seconds[limit], shares, limit)


def fitted(name: str, pool: str, samples: Sequence[tuple[int, float]], most: int | None = None) -> Stage:
    """The stage whose seconds at several numbers of cores were measured: a and d of a / c + d by least squares, none of them
    below 0. `samples`: (cores, seconds), of two different numbers of cores at least."""
    cores = np.array([sample[0] for sample in samples], np.float64)
    seconds = np.array([sample[1] for sample in samples], np.float64)
    if len(np.unique(cores)) < 2 or np.any(cores < 1):
        raise UsageError(f"stage {name!r}: seconds at two different numbers of cores are wanted, from 1 on; there are {sorted(set(cores.tolist()))}")
    x = 1 / cores
    slope = float(np.sum((x - x.mean()) * (seconds - seconds.mean())) / np.sum((x - x.mean()) ** 2))
    constant = float(seconds.mean() - slope * x.mean())
    if slope < 0:  # slower with more cores
        slope, constant = 0.0, float(seconds.mean())
    elif constant < 0:
        slope, constant = float(np.sum(x * seconds) / np.sum(x * x)), 0.0
    return Stage(name, slope, pool, constant, most)
