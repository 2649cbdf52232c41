"""Which configurations a tuner tries first, and which next: a coarse model of time, and the order that follows from it.

The model is the roofline of one GEMM on one chip: turns of tiles at the rate of the tensor cores and of shared memory,
operands through L2, everything once through DRAM. It ranks; what it predicts is not shown to anyone as a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from stridewright.kernels.config import GemmConfig, Problem, Split

from . import space
from .select import resident_ctas, select

_CLOCK_HZ = 1.7e9
_MULTIPLY_CLOCKS = 0.5
"""Clocks of a 64 x 1 column of a wgmma of 16 of K: 2048 multiply-adds a clock and SM."""
_SHARED_BYTES_A_CLOCK = 180
"""More than the 128 that a load sees: no tile was ever seen to be held up by shared memory at that rate."""
_FLIGHT_BYTES = 95_000
"""Bytes an SM must have under way to keep its tensor cores busy (rings of 2, 3 and 4 slots measured on an H200)."""
_L2_BYTES_A_SECOND = 14e12
_DRAM_BYTES_A_SECOND = 4.2e12
"""What an H200 was seen to deliver (benchmarks/results)."""
_LAUNCH_SECONDS = 2.5e-6
_CLUSTER_SECONDS = 0.4e-6
_SPLIT_SECONDS = 1.5e-6
"""For those who share a tile to wait for one another and add."""
_TURN_CLOCKS = {"pingpong": 300.0, "cooperative": 900.0}
"""Clocks between the last multiply of one tile and the first of the next."""
_FILL_CLOCKS = 1200.0
"""From a launch to the first multiply, and from the last to the end."""


_OF_A_KIND = 2
_HOPELESS = 1.5


def estimate(config: GemmConfig, sms: int = space.SMS) -> float:
    """Modelled seconds of ``config`` for its problem, whose sizes must be known.

    >>> big = Problem(m=4096, n=4096, k=4096)
    >>> estimate(GemmConfig(problem=big)) < estimate(GemmConfig(problem=big).replace(tile_n=64))
    True
    """
    if config.on_blackwell:
        from . import space_blackwell

        return space_blackwell.estimate(config, sms)
    tile, cluster, schedule, split = config.tile, config.cluster, config.schedule, config.split
    m, n, k = space.sizes_of(config.problem)
    rows, columns, depth = space.tile_counts(config)
    ctas = cluster.m * cluster.n
    resident = resident_ctas(ctas, sms)
    tiles = rows * columns
    working = min(tiles, resident)
    turns: float = -(-tiles // resident)
    if split.kind != "none":
        # Shares of equal length, laid over the ends of tiles (division.py).
        working = min(tiles * split.parts if split.kind == "split" else tiles * depth, resident)
        turns = tiles / working
    blocks = tile.m // 64
    steps = depth * tile.k // 16
    multiply = blocks * tile.n * _MULTIPLY_CLOCKS
    shared = (blocks * (64 + tile.n) * 32 + (tile.m + tile.n) * 32) / _SHARED_BYTES_A_CLOCK
    # One warpgroup cannot keep the tensor cores busy alone. One slot of the ring is being multiplied, the others load.
    busy = 1.0 if schedule.consumers > 1 else 0.85
    in_flight = (config.pipeline.stages - 1) * (tile.m + tile.n) * tile.k * 2
    busy *= min(1.0, in_flight / _FLIGHT_BYTES)
    clocks = (
        turns * steps * max(multiply / busy, shared) + math.ceil(turns) * _TURN_CLOCKS[schedule.kind] + _FILL_CLOCKS
    )
    loads = tiles * depth * tile.k * 2 * (tile.m / cluster.n + tile.n / cluster.m)
    partial = 8.0 * working * tile.m * tile.n if split.kind != "none" else 0.0
    dram = 2.0 * (m * k + n * k + m * n)
    stored = 2.0 * m * n * (1.0 if config.epilogue.store == "tma" else 4.0)
    moved = max((loads + partial + stored) / _L2_BYTES_A_SECOND, dram / _DRAM_BYTES_A_SECOND)
    # Few CTAs cannot ask memory for all that it could deliver.
    moved *= max(1.0, 0.75 * sms / working)
    started = _LAUNCH_SECONDS + (_CLUSTER_SECONDS if ctas > 1 else 0.0)
    started += _SPLIT_SECONDS if split.kind != "none" else 0.0
    return started + max(clocks / _CLOCK_HZ, moved) + 0.2 * min(clocks / _CLOCK_HZ, moved)


def best_of(configs: Iterable[GemmConfig], most: int, sms: int = space.SMS) -> list[tuple[float, GemmConfig]]:
    """The ``most`` configurations with the least modelled seconds, and these, best first."""
    ranked = sorted(((estimate(config, sms), number, config) for number, config in enumerate(configs)))
    return [(seconds, config) for seconds, _, config in ranked[:most]]


def starting_points(
    problem: Problem, most: int, arch: str = "sm_90a", sms: int = space.SMS, rejected: space.Rejections | None = None
) -> list[tuple[float, GemmConfig]]:
    """Up to ``most`` configurations to begin with, as (modelled seconds, configuration): what is chosen without tuning, and
    what the model ranks next, at most two of a schedule, tile height and way to take K, so that each kind is tried.

    >>> points = starting_points(Problem(m=4096, n=4096, k=4096), 24)
    >>> len(points), points[0][1] == select(Problem(m=4096, n=4096, k=4096))
    (24, True)
    """
    chosen = select(problem, arch, sms)
    everything: list[GemmConfig] = []
    # The steps from these reach the other depths, and with many rows of A swapping only mirrors.
    assert problem.m is not None
    swaps = (True,) if problem.m <= 32 else (False, True) if problem.m <= 256 else (False,)
    for core in space.cores(problem, arch, sms, rejected, swaps, depths=(64, 128)):
        everything.append(core)
        everything += [core.replace(split=split) for split in _likely_splits(core, sms)]
    ranked = best_of(everything, len(everything), sms)
    found = [(estimate(chosen, sms), chosen)]
    known = {chosen}
    taken: Counter[tuple[object, ...]] = Counter()
    for limit in (_OF_A_KIND, len(everything)):
        for seconds, config in ranked:
            if len(found) >= most:
                return found
            schedule = config.schedule
            kind = (schedule.kind, schedule.consumers, schedule.swap, config.cluster.pair, config.tile.m)
            kind += (config.split.kind != "none",)
            if (
                config not in known
                and taken[kind] < limit
                and (limit > _OF_A_KIND or not taken[(*kind, config.tile.n)])
                and not config.violations()  # how K is taken may break a rule that the tile alone kept
            ):
                known.add(config)
                taken[kind] += 1
                taken[(*kind, config.tile.n)] += 1
                found.append((seconds, config))
    return found


def _likely_splits(config: GemmConfig, sms: int) -> Iterator[Split]:
    """Parts that fill one turn and half of one: where tiles are few, how K is split belongs to the choice of the tile."""
    if config.on_blackwell:
        return
    rows, columns, depth = space.tile_counts(config)
    if config.schedule.kind == "pingpong" or 2 * rows * columns > sms or depth < 2:
        return
    possible = space.useful_parts(config, sms)
    for parts in sorted({possible[-1], possible[len(possible) // 2]}) if possible else ():
        yield Split(kind="split", parts=parts)
    yield Split(kind="stream")


def family(config: GemmConfig) -> tuple[object, ...]:
    """What a configuration has in common with those that differ from it in order, hints, panels, slots or specialization
    only: they mostly differ by a percent, families by tens of them.

    >>> family(GemmConfig()) == family(GemmConfig().replace(order="row", stages=3)) != family(GemmConfig().replace(tile_n=64))
    True
    """
    schedule = config.schedule
    tile = (config.tile.m, config.tile.n)
    return (schedule.kind, schedule.consumers, schedule.swap, tile, config.cluster, config.split.kind)


class Walks:
    """Steps from configurations to their neighbours, each neighbour handed out once."""

    def __init__(self, sms: int = space.SMS) -> None:
        self._sms = sms
        self._walks: dict[GemmConfig, Iterator[GemmConfig]] = {}
        self._seen: set[GemmConfig] = set()

    def steps(
        self, parents: Sequence[GemmConfig], tried: Iterable[GemmConfig], most: int
    ) -> tuple[list[GemmConfig], list[GemmConfig]]:
        """Untried neighbours of ``parents``, up to ``most``, and those the predicate refuses. The parents take turns, in their
        order; what the model calls half as slow again as the parent is passed over.
        """
        steps: list[GemmConfig] = []
        refused: list[GemmConfig] = []
        self._seen.update(tried)
        walking = list(parents)
        while walking and len(steps) < most:
            for parent in list(walking):
                if parent not in self._walks:
                    self._walks[parent] = space.neighbours(parent, self._sms)
                config = next((one for one in self._walks[parent] if one not in self._seen), None)
                if config is None:
                    walking.remove(parent)
                    continue
                self._seen.add(config)
                if config.violations():
                    refused.append(config)
                elif estimate(config, self._sms) <= _HOPELESS * estimate(parent, self._sms):
                    steps.append(config)
                if len(steps) == most:
                    break
        return steps, refused
