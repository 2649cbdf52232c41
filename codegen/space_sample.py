"""Samples of the space of configurations, for tests: drawn with a seed, or chosen so that every pair of features comes
together in at least one.

A fault of a kernel mostly takes one parameter, or two together; the pairs of all parameters need some dozens of
configurations where all combinations would need millions (D. M. Cohen et al., The AETG System, 1997). Pairs that no
valid configuration has are left out.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from stridewright.kernels.config import Epilogue, GemmConfig, Problem, Split

from . import space

Feature = tuple[str, object]

_POOL = 4000
_SIDE = 4096
"""A large problem, for which every parameter makes a difference."""


def features(config: GemmConfig) -> tuple[Feature, ...]:
    """What a configuration is made of, in classes: widths of tiles by what they ask of a kernel (one block of 8 columns,
    under a panel of 64, whole panels, the widest; an odd number of blocks of 8), slots by how the ring turns.

    >>> dict(features(GemmConfig()))["width"]
    'wide'
    """
    tile, schedule, split = config.tile, config.schedule, config.split
    width = "one" if tile.n == 8 else "narrow" if tile.n < 64 else "middle" if tile.n <= 128 else "wide"
    store = config.epilogue.store
    stages = config.pipeline.stages
    return (
        ("schedule", schedule.kind + str(schedule.consumers)),
        ("swap", schedule.swap),
        ("tile_m", tile.m),
        ("width", width),
        ("remainder", "panels" if tile.n % 64 == 0 else "pairs" if tile.n % 16 == 0 else "odd"),
        ("tile_k", tile.k),
        ("cluster", "pair" if config.cluster.pair else (config.cluster.m, config.cluster.n)),
        ("order", schedule.order),
        ("split", split.kind if split.kind == "none" else f"{split.kind} {split.reduce}"),
        ("hint_a", config.pipeline.hint_a),
        ("hint_b", config.pipeline.hint_b),
        ("store", store + (str(config.epilogue.buffers) if store == "tma" else "")),
        ("specialize", config.specialize),
        ("stages", stages if stages < 4 else "more"),
        ("accumulators", config.pipeline.accumulators),
        ("launch", schedule.launch),
    )


def pairs(config: GemmConfig) -> frozenset[tuple[Feature, Feature]]:
    """Every two features that come together in a configuration.

    >>> len(pairs(GemmConfig()))
    120
    """
    return frozenset(itertools.combinations(features(config), 2))


def draw(seed: int, arch: str = "sm_90a") -> Iterator[GemmConfig]:
    """Valid configurations without sizes, drawn at random for ever: every parameter by itself, and what is invalid thrown
    away. (``specialize`` needs sizes, so it is judged as if there were some.)

    >>> next(draw(1)).problem.m is None
    True
    """
    dice = random.Random(seed)
    sized = Problem(m=_SIDE, n=_SIDE, k=_SIDE)
    base = GemmConfig(arch=arch, problem=sized)
    yield from _draw_blackwell(base, dice) if base.on_blackwell else _draw_hopper(base, dice)


def _draw_blackwell(base: GemmConfig, dice: random.Random) -> Iterator[GemmConfig]:
    while True:
        config = base.replace(
            pair=dice.random() < 0.5,
            tile_m=dice.choice((64, 128, 256)),
            tile_n=dice.choice(
                (16, dice.randrange(32, 64, 16), dice.randrange(64, 144, 16), dice.randrange(144, 272, 16))
            ),
            tile_k=dice.choice((32, 64, 128, 256)),
            accumulators=dice.choice((1, 2)),
            launch=dice.choice(("static", "clc", "one")),
            order=dice.choice(("grouped", "row")),
            group_m=dice.choice((1, 2, 3, 8)),
            epilogue=dice.choice((*(Epilogue(buffers=count) for count in space.BUFFERS), Epilogue(store="direct"))),
            stages=dice.choice((1, 2, 3, dice.randint(4, 12))),
        )
        if not config.violations():
            yield config.replace(problem=Problem())


def _draw_hopper(base: GemmConfig, dice: random.Random) -> Iterator[GemmConfig]:
    while True:
        kind, consumers = dice.choice(space.SCHEDULES)
        width = dice.choice((8, dice.randrange(16, 64, 8), dice.randrange(64, 136, 8), dice.randrange(136, 264, 8)))
        cluster_m, cluster_n = dice.choice(space.CLUSTERS)
        split = dice.choice((Split(), Split(), Split(kind="split", parts=dice.randint(2, 5)), Split(kind="stream")))
        if split.kind != "none" and dice.random() < 0.5:
            split = Split(kind=split.kind, parts=split.parts, reduce="atomic")
        config = base.replace(
            schedule_kind=kind,
            consumers=consumers,
            swap=dice.random() < 0.4,
            tile_m=dice.choice((64, 128, 192, 256)),
            tile_n=width,
            tile_k=dice.choice((32, 64, 128, 256)),
            cluster_m=cluster_m,
            cluster_n=cluster_n,
            order=dice.choice(("grouped", "serpentine", "row", "column", "nested", "hilbert")),
            group_m=dice.choice((1, 2, 3, 8)),
            launch=dice.choice(("static", "static", "placed")),
            split=split,
            hint_a=dice.choice(space.HINTS),
            hint_b=dice.choice(space.HINTS),
            epilogue=dice.choice((*(Epilogue(buffers=count) for count in space.BUFFERS), Epilogue(store="direct"))),
            specialize=dice.choice(space.SPECIALIZATIONS),
        )
        most = space.most_stages(config)
        if most < 2:
            continue
        config = config.replace(stages=min(most, dice.choice((2, 3, 4, dice.randint(4, 12)))))
        if not config.violations():
            yield config.replace(problem=Problem())


@lru_cache(maxsize=4)
def covering(seed: int = 0, arch: str = "sm_90a") -> tuple[GemmConfig, ...]:
    """Valid configurations among which every pair of features that any of some thousands drawn has comes together: each
    time the one that adds the most pairs.
    """
    pool = list(itertools.islice(draw(seed, arch), _POOL))
    found = [pairs(config) for config in pool]
    missing = set().union(*found)
    chosen: list[GemmConfig] = []
    # How much each adds only shrinks, so that an old figure is a bound: only the front of the queue is counted again.
    gains = sorted(((-len(some), number) for number, some in enumerate(found)))
    while missing:
        while True:
            bound, number = gains[0]
            gain = -len(found[number] & missing)
            gains[0] = gain, number
            if len(gains) == 1 or gain <= gains[1][0]:
                break
            _sink(gains)
            if gain == bound:
                break
        _, number = gains.pop(0)
        chosen.append(pool[number])
        missing -= found[number]
    return tuple(chosen)


def _sink(gains: list[tuple[int, int]]) -> None:
    import bisect

    bisect.insort(gains, gains.pop(0))


def small_shape(config: GemmConfig, seed: int) -> tuple[tuple[int, int, int], int]:
    """A problem ((m, n, k), multiprocessors to pretend) on which a configuration does all that it can do: ragged edges on every
    side, several tiles a CTA, more blocks of K than slots, split tiles cut inside. N is odd where plain stores allow.

    >>> small_shape(GemmConfig(), 1)[1]
    2
    """
    dice = random.Random(seed)
    tile, cluster = config.tile, config.cluster
    sharing = 2 if cluster.pair else 1
    blocks_down, blocks_across = dice.choice(((2, 2), (1, 3), (3, 1)))
    rows = tile.m * cluster.m * blocks_down - dice.randint(1, min(tile.m - 1, 61))
    columns = tile.n * cluster.n * blocks_across - dice.randint(0, min(tile.n - 1, 13))
    m, n = (columns, rows) if config.schedule.swap else (rows, columns)
    if config.epilogue.store == "tma":
        n = -(-n // 8) * 8
    depth = min(config.pipeline.stages + 2, 7)
    k = tile.k * depth - 8 * dice.randint(0, tile.k // 8 - 1)
    ctas = cluster.m * cluster.n * sharing
    # Blocks are few: so few CTAs that each takes several, or where K is shared, more than there are blocks.
    clusters = 2 if config.split.kind == "none" else blocks_down * blocks_across + 1
    return (m, n, k), ctas * clusters


def sample(count: int, seed: int, arch: str = "sm_90a") -> Sequence[GemmConfig]:
    """``count`` of the covering configurations, drawn with a seed."""
    return random.Random(seed).sample(covering(0, arch), count)
