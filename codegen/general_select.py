"""Chooses a configuration for what goes beyond one plain bf16 product, from the choice for a plain one of the same bytes.

Knows what differs: the depth of a slot by element size, stores by D's format, registers beside what is fused. Nothing is
measured here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stridewright.kernels.config import ConfigError, GemmConfig, Problem
from stridewright.kernels.fusion import Fusion
from stridewright.kernels.hopper_fusion_rules import STAGED_FORMATS
from stridewright.kernels.hopper_rules import element_bytes

from . import tuned
from .select import SMS, select

MOST_STAGES = 12


def choose(
    problem: Problem,
    fusion: Fusion,
    promote: int,
    direct: bool = False,
    batches: int = 1,
    sms: int = SMS,
    load: str = "bursts",
) -> GemmConfig:
    """The first valid configuration of ``candidates``. Raises ConfigError with what is wrong with the last one if none is.

    >>> choose(Problem(m=4096, n=4096, k=4096, a="e4m3", b="e4m3"), Fusion(), 0).tile.k
    128
    """
    config = None
    for config in candidates(problem, fusion, promote, direct, batches, sms, load):
        fitting = with_most_stages(config)
        if fitting is not None:
            return fitting
    assert config is not None
    raise ConfigError(config.replace(stages=2).violations())


def slot_of(promote: int, element: int) -> int:
    """Elements of K of a slot: 128 bytes, or 64 where sums are promoted after a number of elements that is in no whole ones.

    >>> slot_of(0, 2), slot_of(256, 1), slot_of(192, 1)
    (64, 128, 64)
    """
    whole = 128 // element
    return whole // 2 if promote % whole else whole


def with_most_stages(config: GemmConfig) -> GemmConfig | None:
    """The configuration with as many stages as fit and are of use; None if it is not valid with any."""
    k_blocks = -(-(config.problem.k or 1) // config.tile.k)
    for stages in range(min(MOST_STAGES, max(k_blocks, 2)), 1, -1):
        candidate = config.replace(stages=stages)
        if not candidate.violations():
            return candidate
    return None


def candidates(
    problem: Problem, fusion: Fusion, promote: int, direct: bool, batches: int, sms: int, load: str = "bursts"
) -> Iterator[GemmConfig]:
    """Configurations from the likeliest on, valid or not."""
    m, n, k = (int(size or 1) for size in (problem.m, problem.n, problem.k))
    element = element_bytes(problem.a)
    staged = problem.d in STAGED_FORMATS and n % 8 == 0 and not direct and not fusion.gated
    base = GemmConfig(
        problem=problem,
        fusion=fusion,
    ).replace(promote=promote, store="tma" if staged else "direct", tile_k=slot_of(promote, element))
    grouped = problem.form in ("groups_m", "groups_k")
    exact = tuned.lookup(problem, sms=sms, load=load) if problem.form == "one" and not promote else None
    if exact is not None:
        found = exact.config
        yield base.replace(tile=found.tile, schedule=found.schedule, cluster=found.cluster, split=found.split)
    if not promote and not grouped:
        # Many matrices of more than a few rows are as much work as one high one.
        rows = m * max(batches, 1) if problem.form == "batch" and m > 64 else m
        same = Problem(m=rows, n=max(n // 8 * 8, 8), k=max(k * element // 2 // 8 * 8, 8))
        known = tuned.lookup(same, sms=sms, load=load)
        plain = select(same, sms=sms) if known is None else known.config
        # With operands swapped, plain stores go down D's columns; for a few rows of A it is worth it all the same.
        if staged or m <= 64 or not plain.schedule.swap:
            yield base.replace(
                tile=dataclasses.replace(plain.tile, k=plain.tile.k * 2 // element),
                schedule=plain.schedule,
                cluster=plain.cluster,
                split=plain.split,
            )
    if promote:
        # Float32 sums beside the tensor core's: each has a part of the registers.
        slot = base.tile.k
        width = min(128, max(-(-n // 16) * 16, 16))
        widths = (128, 64) if fusion.scale_a == "block" or n > 64 else (width, 64, 32)
        if m > 64:
            for tile_n in widths:
                # While one set is added to the float32 sums the tensor core fills the other.
                if slot == promote:
                    yield base.replace(tile_m=128, tile_n=tile_n, tile_k=slot, accumulators=2)
                yield base.replace(tile_m=128, tile_n=tile_n, tile_k=slot)
        for tile_n in widths:
            yield base.replace(tile_m=64, tile_n=tile_n, tile_k=slot, consumers=1)
    tiles = batches * -(-m // 128) * -(-n // 128)
    if tiles >= sms and problem.form != "groups_k":
        for tile_n in (192, 176, 160, 128):
            if n >= tile_n:
                yield base.replace(schedule_kind="pingpong", tile_m=128, tile_n=tile_n)
    if m > 64 and n > 64:
        yield base.replace(tile_m=128, tile_n=128)
        yield base.replace(tile_m=128, tile_n=64)
    for tile_n in (128, 64, 32, 16, 8):
        if tile_n < 2 * n or tile_n == 8:
            yield base.replace(tile_m=64, tile_n=tile_n, consumers=1)
