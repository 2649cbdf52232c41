"""The space of configurations of a GEMM: every one that the validity predicate allows and that makes a difference.

Walked lazily, from coarse to fine. ``cores`` chooses tiles, clusters and who multiplies, each with as many slots as fit;
``variants`` chooses the rest for one of them: slots, stores, orders, split sums, L2 hints, sizes baked in.
``configurations`` is the product of both, ``neighbours`` what is one step away. Nothing here ranks, compiles or
measures. What the predicate refuses is kept with its reason in a ``Rejections``, and so is what cannot differ from
another configuration or would only compute padding.

The walk relies on the predicate being monotone: where a narrow tile or a shallow slot does not fit, a wider or deeper
one does not either, so that a whole branch is refused by its smallest member (the tests hold this against every member).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from stridewright.kernels.config import (
    Cluster,
    Epilogue,
    GemmConfig,
    Hint,
    Pipeline,
    Problem,
    Schedule,
    Split,
    Tile,
    Violation,
)
from stridewright.kernels.hopper_choice_rules import MAXIMUM_PARTS
from stridewright.kernels.hopper_rules import (
    ALIGNMENT_SLACK,
    MAXIMUM_GROUP,
    MAXIMUM_STAGES,
    SHARED_LIMIT,
    SLOT_DEPTHS,
    TILE_ROWS,
    shared_bytes,
)

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a")
"""Architectures whose space is known: Hopper's here, Blackwell's in ``space_blackwell``."""

SCHEDULES = (("cooperative", 1), ("cooperative", 2), ("cooperative", 3), ("pingpong", 2))
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
COLUMNS = range(8, 257, 8)
"""Every N of a bf16 wgmma (PTX ISA, wgmma.mma_async)."""
GROUPS = (2, 4, 8, 16, 32)
HINTS = ("none", "first", "last")
SPECIALIZATIONS = ("", "nk", "mnk")
BUFFERS = (1, 2, 4)
SMS = 132
"""Multiprocessors of an H100 SXM and an H200: what a turn of a persistent grid is counted by."""


def multiprocessors(arch: str) -> int:
    """Multiprocessors of the chip that an architecture is known by: H200, B200.

    >>> multiprocessors("sm_90a"), multiprocessors("sm_100a")
    (132, 148)
    """
    if GemmConfig(arch=arch).on_blackwell:
        from . import blackwell_select

        return blackwell_select.SMS
    return SMS


@dataclass
class Rejections:
    """What was left out and why: reasons in words, how often each, and the first configuration it met."""

    groups: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """By the reason without its numbers: count, the reason in full, and the configuration's name."""

    def add(self, config: GemmConfig, reasons: tuple[Violation, ...], count: int = 1) -> None:
        """Records ``count`` configurations refused for ``reasons``, ``config`` the first of them."""
        reason = "; ".join(f"{one.parameter}={one.value}: {one.rule}" for one in reasons)
        key = re.sub(r"\d+", "N", reason)
        seen, first, name = self.groups.get(key, (0, reason, config.name))
        self.groups[key] = (seen + count, first, name)

    @property
    def total(self) -> int:
        """How many were left out."""
        return sum(count for count, _, _ in self.groups.values())

    def lines(self) -> list[str]:
        """A line for each reason, most frequent first: ``312 x tile_n=216: ... (first ...)``."""
        ordered = sorted(self.groups.values(), key=lambda group: -group[0])
        return [f"{count} x {reason} (first {name})" for count, reason, name in ordered]


def sizes_of(problem: Problem) -> tuple[int, int, int]:
    """m, n and k; ValueError where one is not given."""
    if problem.m is None or problem.n is None or problem.k is None:
        raise ValueError("the space of a problem needs its sizes m, n and k")
    return problem.m, problem.n, problem.k


def tile_counts(config: GemmConfig) -> tuple[int, int, int]:
    """Tiles along the kernel's rows and columns, in whole clusters, and slots along K.

    >>> tile_counts(GemmConfig(problem=Problem(m=300, n=512, k=100)))
    (3, 2, 2)
    """
    m, n, k = sizes_of(config.problem)
    rows, columns = (n, m) if config.schedule.swap else (m, n)
    tile, cluster = config.tile, config.cluster
    down = -(-rows // (tile.m * cluster.m)) * cluster.m
    across = -(-columns // (tile.n * cluster.n)) * cluster.n
    return down, across, -(-k // tile.k)


def most_stages(config: GemmConfig, sms: int = SMS) -> int:
    """Slots of a ring that fit into shared memory beside the rest, and that a CTA has blocks of K for; under 2 where no
    ring fits.

    >>> most_stages(GemmConfig(problem=Problem(m=4096, n=4096, k=4096)))
    4
    >>> most_stages(GemmConfig(problem=Problem(m=128, n=256, k=128)))
    2
    """
    used = shared_bytes(config)
    ring = used["tiles of A"] + used["tiles of B"] + used["barriers"]
    slot = ring // config.pipeline.stages
    fit = min((SHARED_LIMIT - ALIGNMENT_SLACK - sum(used.values()) + ring) // slot, MAXIMUM_STAGES)
    # The tiles of B are rounded up to whole KiB together, so the last slot is asked for itself.
    while fit >= 2 and sum(shared_bytes(_staged(config, fit)).values()) + ALIGNMENT_SLACK > SHARED_LIMIT:
        fit -= 1
    rows, columns, depth = tile_counts(config)
    turns = -(-rows * columns // sms)
    return min(fit, max(2, depth * turns))


@lru_cache(maxsize=256)
def _ring(stages: int, hint_a: Hint, hint_b: Hint) -> Pipeline:
    return Pipeline(stages=stages, hint_a=hint_a, hint_b=hint_b)


def _staged(config: GemmConfig, stages: int) -> GemmConfig:
    """As ``config.replace(stages=stages)``, and faster: the walk does it for every tile."""
    if config.pipeline.stages == stages:
        return config
    pipeline = config.pipeline
    return GemmConfig(
        arch=config.arch,
        problem=config.problem,
        tile=config.tile,
        pipeline=_ring(stages, pipeline.hint_a, pipeline.hint_b),
        cluster=config.cluster,
        schedule=config.schedule,
        split=config.split,
        epilogue=config.epilogue,
        specialize=config.specialize,
    )


def with_most_stages(config: GemmConfig, sms: int = SMS) -> GemmConfig:
    """``config`` with as many slots as fit and are of use; with 2 where not even they fit, which the predicate refuses.

    >>> with_most_stages(GemmConfig(problem=Problem(m=4096, n=4096, k=4096)).replace(tile_n=128)).pipeline.stages
    6
    """
    return _staged(config, max(2, most_stages(config, sms)))


def cores(
    problem: Problem,
    arch: str = "sm_90a",
    sms: int = SMS,
    rejected: Rejections | None = None,
    swaps: tuple[bool, ...] = (False, True),
    depths: tuple[int, ...] = SLOT_DEPTHS,
) -> Iterator[GemmConfig]:
    """Every valid choice of schedule, swap, tile and cluster, each with the most slots that are of use and the rest at
    its default. ``sms``: multiprocessors of the device; ``swaps`` and ``depths`` (tile_k) narrow the walk. Raises ValueError without sizes and for an architecture whose
    space is not known.

    >>> found = list(cores(Problem(m=64, n=64, k=64)))
    >>> len(found), found[0].name
    (136, 'sm_90a_bf16_cooperative1_64x8x32_stages2_group8_tma2')
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"arch={arch!r}: its space is not known; there is {', '.join(ARCHITECTURES)}")
    left_out = Rejections() if rejected is None else rejected
    if GemmConfig(arch=arch).on_blackwell:
        from . import space_blackwell

        yield from space_blackwell.cores(problem, arch, left_out, depths)
        return
    m, n, k = sizes_of(problem)
    epilogue = Epilogue(store="direct" if n * 2 % 16 else "tma")
    for kind, consumers in SCHEDULES:
        for swap in swaps:
            schedule = Schedule(kind=kind, consumers=consumers, swap=swap)  # type: ignore[arg-type]
            rows, columns = (n, m) if swap else (m, n)
            for tile_m in TILE_ROWS:
                first = GemmConfig(
                    arch=arch,
                    problem=problem,
                    tile=Tile(m=tile_m, n=8, k=depths[0]),
                    pipeline=Pipeline(stages=2),
                    schedule=schedule,
                    epilogue=epilogue,
                )
                refused = first.violations() or padding("tile_m", tile_m, -(-rows // 64) * 64)
                if refused:
                    left_out.add(first, refused, len(depths) * len(CLUSTERS) * len(COLUMNS))
                    continue
                for tile_k in depths:
                    yield from _tiles(first, (rows, columns, k), tile_k, sms, left_out)


def _tiles(
    first: GemmConfig, sizes: tuple[int, int, int], tile_k: int, sms: int, left_out: Rejections
) -> Iterator[GemmConfig]:
    """The clusters and widths of one tile height and slot depth."""
    rows, columns, k = sizes
    everything = len(CLUSTERS) * len(COLUMNS)
    # A slot of which half is padding moves nothing that a slot of half the depth does not.
    if tile_k > SLOT_DEPTHS[0] and tile_k // 2 >= k:
        left_out.add(first, padding("tile_k", tile_k, tile_k // 2), everything)
        return
    for cluster_m, cluster_n in CLUSTERS:
        cluster = Cluster(m=cluster_m, n=cluster_n)
        base = _with(first, Tile(m=first.tile.m, n=8 * cluster_m, k=tile_k), cluster)
        refused = base.violations() or _idle("cluster_m", cluster_m, -(-rows // first.tile.m))
        if refused:
            left_out.add(base, refused, len(COLUMNS))
            continue
        step = 8 * cluster_m
        widest = min(COLUMNS[-1], -(-columns // step) * step)
        for tile_n in range(step, widest + 1, step):
            config = _with(base, Tile(m=first.tile.m, n=tile_n, k=tile_k), cluster)
            refused = _idle("cluster_n", cluster_n, -(-columns // tile_n))
            if not refused:
                config = with_most_stages(config, sms)
                refused = config.violations()
            if refused:
                left_out.add(config, refused, (widest - tile_n) // step + 1)
                break
            yield config


def _with(config: GemmConfig, tile: Tile, cluster: Cluster) -> GemmConfig:
    return GemmConfig(
        arch=config.arch,
        problem=config.problem,
        tile=tile,
        pipeline=config.pipeline,
        cluster=cluster,
        schedule=config.schedule,
        epilogue=config.epilogue,
    )


def padding(name: str, value: int, enough: int) -> tuple[Violation, ...]:
    """The reason against a size beyond what the problem needs, or nothing.

    >>> str(padding("tile_m", 256, 192)[0])
    'tile_m=256: 192 covers the problem, and more would be padding'
    """
    if value <= enough:
        return ()
    return (Violation(parameter=name, value=value, rule=f"{enough} covers the problem, and more would be padding"),)


def _idle(name: str, value: int, tiles: int) -> tuple[Violation, ...]:
    if value <= tiles:
        return ()
    rule = f"there are {tiles} tiles along that side, and the other CTAs of a cluster would compute padding"
    return (Violation(parameter=name, value=value, rule=rule),)


def useful_stages(config: GemmConfig, sms: int = SMS) -> tuple[int, ...]:
    """The most slots that fit, one and two fewer, and half: fewer leave shared memory for more panels of D, or for a
    second CTA under programmatic dependent launch.

    >>> useful_stages(GemmConfig(problem=Problem(m=4096, n=4096, k=4096)).replace(tile_n=64))
    (8, 7, 6, 4)
    """
    most = most_stages(config, sms)
    return tuple(sorted({stages for stages in (most, most - 1, most - 2, most // 2) if stages >= 2}, reverse=True))


def useful_parts(config: GemmConfig, sms: int = SMS) -> tuple[int, ...]:
    """In how many parts K is worth splitting: where whole tiles leave half of the chip idle, up to as many as give every
    multiprocessor one, each number with another share of K than the one before; () where splitting is of no use.

    >>> useful_parts(GemmConfig(problem=Problem(m=256, n=256, k=65536)))[-3:]
    (61, 64, 66)
    >>> useful_parts(GemmConfig(problem=Problem(m=4096, n=4096, k=4096)))
    ()
    """
    rows, columns, depth = tile_counts(config)
    if 2 * rows * columns > sms:
        return ()
    most = min(-(-sms // (rows * columns)), MAXIMUM_PARTS, depth)
    found: list[int] = []
    shares: set[int] = set()
    for parts in range(2, most + 1):
        share = -(-depth // parts)
        if share not in shares or parts == most:
            shares.add(share)
            found.append(parts)
    return tuple(found)


def splits(config: GemmConfig, sms: int = SMS) -> tuple[Split, ...]:
    """The ways to divide the sum over K that make a difference for this tile, none first. A stream needs a last turn that
    is not full."""
    rows, columns, depth = tile_counts(config)
    found = [Split()]
    if config.schedule.kind == "pingpong" or depth < 2:
        return tuple(found)
    for reduce in ("ordered", "atomic"):
        found += [Split(kind="split", parts=parts, reduce=reduce) for parts in useful_parts(config, sms)]
        if rows * columns % sms:
            found.append(Split(kind="stream", reduce=reduce))
    return tuple(found)


def orders(config: GemmConfig, sms: int = SMS) -> tuple[tuple[str, int], ...]:
    """(order, group) that take the tiles of this configuration in different ways; one where all tiles run at once, or lie
    in one row or column. A group of one row is "row", one of all rows is "column", and neither is listed twice.

    >>> orders(GemmConfig(problem=Problem(m=512, n=8192, k=64)))
    (('grouped', 8),)
    >>> orders(GemmConfig(problem=Problem(m=1024, n=16384, k=64)))[:3]
    (('grouped', 8), ('grouped', 2), ('grouped', 4))
    """
    rows, columns, _ = tile_counts(config)
    default = ("grouped", Schedule().group_m)
    if rows == 1 or columns == 1 or rows * columns <= sms:
        return (default,)
    found = [default]
    for order in ("grouped", "serpentine"):
        found += [(order, group) for group in GROUPS if group < rows and (order, group) != default]
    found.append(("row", default[1]))
    if rows > default[1]:
        found.append(("column", default[1]))
    found.append(("hilbert", default[1]))
    return tuple(found)


def variants(core: GemmConfig, sms: int = SMS, rejected: Rejections | None = None) -> Iterator[GemmConfig]:
    """Every valid configuration of a core's tile, cluster and schedule, the core itself first: all stores and panels,
    slots, splits, orders, hints and specializations that make a difference.

    >>> small = next(cores(Problem(m=64, n=64, k=64)))
    >>> sum(1 for _ in variants(small))
    540
    """
    left_out = Rejections() if rejected is None else rejected
    for epilogue in epilogues(core):
        stored = core.replace(epilogue=epilogue)
        for stages in useful_stages(stored, sms) or (2,):
            staged = _staged(stored, stages)
            refused = staged.violations()
            if refused:
                left_out.add(staged, refused)
                continue
            for split in splits(staged, sms):
                for order, group in orders(staged, sms):
                    for hint_a in HINTS:
                        for hint_b in HINTS:
                            for specialize in SPECIALIZATIONS:
                                config = staged.replace(
                                    split=split,
                                    order=order,
                                    group_m=group,
                                    hint_a=hint_a,
                                    hint_b=hint_b,
                                    specialize=specialize,
                                )
                                refused = config.violations()
                                if refused:
                                    left_out.add(config, refused)
                                else:
                                    yield config


def epilogues(config: GemmConfig) -> tuple[Epilogue, ...]:
    """The configuration's own way to store first, then the others that its problem allows."""
    own = config.epilogue
    found = [own]
    if sizes_of(config.problem)[1] * 2 % 16 == 0:
        found += [Epilogue(store="tma", buffers=buffers) for buffers in BUFFERS]
    found.append(Epilogue(store="direct"))
    if own.store == "direct":
        found = [one for one in found if one.store == "tma" or one is own]
    return tuple(dict.fromkeys(found))


def configurations(
    problem: Problem, arch: str = "sm_90a", sms: int = SMS, rejected: Rejections | None = None
) -> Iterator[GemmConfig]:
    """The whole space of the Hopper kernels, lazily: every variant of every core.

    >>> next(configurations(Problem(m=4096, n=4096, k=4096))).problems()
    []
    """
    for core in cores(problem, arch, sms, rejected):
        yield from variants(core, sms, rejected)


def neighbours(config: GemmConfig, sms: int = SMS) -> Iterator[GemmConfig]:
    """Configurations one step away, coarse steps first: another width, height, cluster, schedule or depth of slot (then with
    as many slots as fit), other slots, another order, split, hint, store or specialization. Some are invalid, for the
    predicate to name; none is the configuration itself, none comes twice.

    >>> config = next(cores(Problem(m=4096, n=4096, k=4096))).replace(tile_n=128)
    >>> [one.tile.n for one in neighbours(config)][:4]
    [120, 136, 112, 144]
    """
    if config.on_blackwell:
        from . import space_blackwell

        yield from space_blackwell.neighbours(config)
        return
    seen = {config}
    for other in _steps(config, sms):
        if other not in seen:
            seen.add(other)
            yield other


def _steps(config: GemmConfig, sms: int) -> Iterator[GemmConfig]:
    tile, cluster, schedule = config.tile, config.cluster, config.schedule
    rows, columns, _ = tile_counts(config)

    def refilled(**changes: object) -> GemmConfig:
        return with_most_stages(config.replace(**changes), sms)

    step = 8 * cluster.m
    for distance in (1, 2):
        for sign in (-1, 1):
            if COLUMNS[0] <= tile.n + sign * distance * step <= COLUMNS[-1]:
                yield refilled(tile_n=tile.n + sign * distance * step)
    for cluster_m, cluster_n in CLUSTERS:
        if cluster_m <= rows and cluster_n <= columns:
            yield refilled(cluster_m=cluster_m, cluster_n=cluster_n)
    for kind, consumers in SCHEDULES:
        tile_m = 192 if consumers == 3 else tile.m if tile.m != 192 else 128
        yield refilled(schedule_kind=kind, consumers=consumers, tile_m=tile_m, split=Split())
    at = TILE_ROWS.index(tile.m) if tile.m in TILE_ROWS else 0
    for tile_m in TILE_ROWS[max(at - 1, 0) : at + 2]:
        yield refilled(tile_m=tile_m)
    for tile_k in SLOT_DEPTHS:
        if tile_k in (tile.k // 2, tile.k * 2):
            yield refilled(tile_k=tile_k)
    for stages in (config.pipeline.stages - 1, config.pipeline.stages + 1):
        if 2 <= stages <= most_stages(config, sms):
            yield _staged(config, stages)
    for split in _near_splits(config, sms):
        yield config.replace(split=split)
    for order, group in orders(config, sms):
        if order != schedule.order or group in (schedule.group_m // 2, schedule.group_m * 2):
            if order in ("grouped", "serpentine") and order != schedule.order and group != min(schedule.group_m, 8):
                continue
            yield config.replace(order=order, group_m=min(group, MAXIMUM_GROUP))
    if config.split.kind == "none":
        yield config.replace(launch="placed" if schedule.launch == "static" else "static")
        if schedule.order != "nested":
            yield config.replace(order="nested", launch="placed")
    for operand in ("hint_a", "hint_b"):
        for hint in HINTS:
            yield config.replace(**{operand: hint})
    for specialize in SPECIALIZATIONS:
        yield config.replace(specialize=specialize)
    for epilogue in epilogues(config):
        yield refilled(epilogue=epilogue)


def _near_splits(config: GemmConfig, sms: int) -> Iterator[Split]:
    """The next numbers of parts below and above, the other way to add, and the other kinds."""
    possible = splits(config, sms)
    own = config.split
    numbers = [split.parts for split in possible if split.kind == "split" and split.reduce == "ordered"]
    near = [parts for parts in numbers if parts > own.parts][:2] + [parts for parts in numbers if parts < own.parts][
        -2:
    ]
    for split in possible:
        if split.kind != "split" or (split.parts in near and split.reduce == own.reduce) or split.parts == own.parts:
            yield split
