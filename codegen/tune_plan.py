"""Which configurations a tuner tries first, and which next: the order that the model of time gives, spread over kinds.

Knows no card and no results; what was measured comes back as the parents of the next steps.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stridewright.kernels.config import GemmConfig, Problem

from . import space
from .model import best_first, features, modelled_us
from .select import ranked, resident_ctas, select

_FRONT = 8
"""How many of the order in which configurations are chosen come first, whatever their kind."""
_OF_A_KIND = 2
_LOOKED_AT = 1200
_HOPELESS = 1.5
_SUSTAINED_KINDS: tuple[tuple[dict[str, Any], range, int], ...] = (
    ({"schedule_kind": "pingpong", "tile_m": 128}, range(112, 209, 8), 2),
    ({"schedule_kind": "pingpong", "tile_m": 192}, range(96, 137, 8), 1),
    ({"schedule_kind": "pingpong", "tile_m": 256}, range(80, 105, 8), 1),
    ({"tile_m": 128}, range(192, 257, 8), 4),
    ({"tile_m": 256}, range(128, 209, 8), 4),
    ({"tile_m": 192, "consumers": 3}, range(128, 193, 8), 2),
)
_SUSTAINED_CLUSTERS = ((1, 1), (2, 1), (1, 2))


def estimate(config: GemmConfig, sms: int = space.SMS) -> float:
    """Modelled seconds of ``config`` for its problem, whose sizes must be known.

    >>> big = Problem(m=4096, n=4096, k=4096)
    >>> estimate(GemmConfig(problem=big)) < estimate(GemmConfig(problem=big).replace(tile_n=64))
    True
    """
    if config.on_blackwell:
        from . import space_blackwell

        return space_blackwell.estimate(config, sms)
    return 1e-6 * float(modelled_us(features([config]), sms)[0])


def starting_points(
    problem: Problem, most: int, arch: str = "sm_90a", sms: int = space.SMS
) -> list[tuple[float, GemmConfig]]:
    """Up to ``most`` configurations to begin with, as (modelled seconds, configuration): what is chosen without tuning and
    what would be chosen next; then what the model ranks next at most two of a schedule, tile height and way to take K, so that
    each kind is tried; then the rest.

    >>> points = starting_points(Problem(m=4096, n=4096, k=4096), 24)
    >>> len(points), points[0][1] == select(Problem(m=4096, n=4096, k=4096))
    (24, True)
    """
    front = [select(problem, arch, sms), *(config for _, config in ranked(problem, arch, sms, most=_FRONT))]
    found = dict.fromkeys(front[:most])
    taken: Counter[tuple[object, ...]] = Counter()
    passed_over: list[GemmConfig] = []
    for config in _in_order(problem, arch, sms):
        if len(found) >= most:
            break
        if config in found:
            continue
        schedule = config.schedule
        kind: tuple[object, ...] = (schedule.kind, schedule.consumers, schedule.swap, config.tile.m)
        kind += (config.cluster.pair, config.split.kind != "none")
        if taken[kind] < _OF_A_KIND and not taken[(*kind, config.tile.n)]:
            taken[kind] += 1
            taken[(*kind, config.tile.n)] += 1
            found[config] = None
        else:
            passed_over.append(config)
    found.update(dict.fromkeys(passed_over))
    return [(estimate(config, sms), config) for config in list(found)[:most]]


def sustained_points(problem: Problem, sms: int = space.SMS) -> list[GemmConfig]:
    """Hopper's tiles of six kinds that ask least of the L2 cache and shared memory for each multiply: what is likely to be fast
    at the power limit, where the bytes that a kernel moves cost clock.

    >>> {config.schedule.kind for config in sustained_points(Problem(m=4096, n=4096, k=4096))} == {"pingpong", "cooperative"}
    True
    """
    base = GemmConfig(problem=problem)
    points: list[GemmConfig] = []
    for changes, widths, most in _SUSTAINED_KINDS:
        found = []
        for width, (cluster_m, cluster_n) in itertools.product(widths, _SUSTAINED_CLUSTERS):
            one = base.replace(**changes, tile_n=width, cluster_m=cluster_m, cluster_n=cluster_n)
            config = space.with_most_stages(one)
            if not config.violations():
                found.append(config)
        points += sorted(found, key=lambda config: _bytes_and_turns(config, sms))[:most]
    return points


def for_sustained_load(
    first: Sequence[GemmConfig], problem: Problem, arch: str = "sm_90a", sms: int = space.SMS
) -> list[GemmConfig]:
    """What to begin with for sustained load: the first of those for bursts, on Hopper what asks least of memory, then the others.

    >>> problem = Problem(m=512, n=512, k=512)
    >>> first = [config for _, config in starting_points(problem, 3, "sm_100a", 148)]
    >>> for_sustained_load(first, problem, "sm_100a", 148) == first
    True
    """
    sparing = sustained_points(problem, sms) if arch == "sm_90a" else []
    return list(dict.fromkeys([first[0], *sparing, *first[1:]]))


def _bytes_and_turns(config: GemmConfig, sms: int) -> float:
    """What ranks tiles of one kind: turns times the area of a tile, and the bytes that come through L2 for it. Multiprocessors
    that idle in a last turn leave power to the clock of the others, so that half of such a turn counts.
    """
    tile, cluster = config.tile, config.cluster
    rows, columns, _ = space.tile_counts(config)
    resident = resident_ctas(cluster.m * cluster.n, sms)
    turns = (rows * columns / resident + -(-rows * columns // resident)) / 2
    return turns * tile.m * tile.n * (1 + 12 / (tile.m * cluster.m) + 12 / (tile.n * cluster.n))


def _in_order(problem: Problem, arch: str, sms: int) -> Iterator[GemmConfig]:
    """Valid configurations as the model ranks them."""
    if GemmConfig(arch=arch).on_blackwell:
        every = list(space.cores(problem, arch, sms, depths=(64, 128)))
        yield from sorted(every, key=lambda config: estimate(config, sms))
        return
    for _, config in itertools.islice(best_first(problem, arch, sms, most=_LOOKED_AT), _LOOKED_AT):
        yield config


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
