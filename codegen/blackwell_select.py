"""Chooses a Blackwell configuration for a shape without measuring, and without ever having measured.

The model counts what is known of the chip: turns of the grid, each as long as its multiplies take (4096 multiply-adds of
16-bit operands for each SM and clock) or as its operands take to arrive from L2, and an epilogue that nothing hides
behind the last tile. It ranks; whether it ranks well nobody has seen on hardware.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewright.kernels.blackwell_problem_rules import problem_violations
from stridewright.kernels.blackwell_scales import scaled_types
from stridewright.kernels.blackwell_types import (
    RATE,
    contiguous_unit,
    converts,
    kind_of,
    operand_formats,
    padded,
    result_bytes,
    shared_bits,
)
from stridewright.kernels.config import ConfigError, GemmConfig, Problem
from stridewright.kernels.fusion import Fusion

SMS = 148
"""Streaming multiprocessors of a B200 (NVIDIA, "Blackwell Tuning Guide")."""

_MULTIPLY_ADDS = 4096
"""Dense 16-bit multiply-adds of an SM and clock: a pair takes 128 clocks for 256 x 256 x 16. Other kinds: RATE."""

_BYTES_FROM_L2 = 64
"""Bytes that reach an SM from L2 in a clock: an assumption, that of Hopper."""

_LONG_RING = 4
"""Slots that keep the copy engine ahead of the multiplies: as many as the default, an assumption."""

_FIXED_CLOCKS = 1500
"""Clocks to start a tile and to end the last one: an assumption."""


def candidates(
    problem: Problem, arch: str = "sm_100a", sms: int = SMS, fusion: Fusion | None = None, direct: bool = False
) -> Iterator[GemmConfig]:
    """Valid configurations worth considering for the problem's sizes, each with as many stages as fit. ``direct``: D's rows
    lie where TMA cannot store them.

    >>> next(candidates(Problem(m=16, n=6144, k=4096))).tile.m
    64
    """
    m, n, k = problem.m, problem.n, problem.k
    if m is None or n is None or k is None:
        raise ValueError("a choice needs the sizes m, n and k")
    gated = fusion is not None and fusion.gated
    direct = direct or gated or bool(n * result_bytes(problem) % 16)
    base = GemmConfig(arch=arch, problem=problem, fusion=fusion or Fusion()).replace(
        store="direct" if direct else "tma", accumulators=2, tile_k=slot_depth(problem, k)
    )
    converted = converts(problem)
    if converted:
        base = base.replace(a_in="registers")
    unit_b = contiguous_unit(operand_formats(problem)[1])
    scaled = scaled_types(problem) is not None
    least = 128 if scaled else 64
    for pair, tile_m in ((False, 64), (False, 128), (True, 128), (True, 256)):
        if tile_m > least and m <= tile_m // 2 and not converted:
            continue
        for tile_n in range(16, 257, 16):
            # MN-major operands want whole spans of the widest swizzle.
            step = 8 * unit_b * (2 if pair else 1)
            if problem.b_major == "mn" and tile_n % step and n >= step:
                continue
            for accumulators in (2, 1) if scaled else (2,):
                config = with_most_stages(
                    base.replace(pair=pair, tile_m=tile_m, tile_n=tile_n, accumulators=accumulators)
                )
                # Where factors leave tensor memory for two accumulators only with a short ring, one and a long ring.
                if config is not None and (accumulators == 1 or config.pipeline.stages >= _LONG_RING or not scaled):
                    yield config
                    break


def slot_depth(problem: Problem, k: int) -> int:
    """Elements of K in a slot: those of the 128 bytes of the widest swizzle's span, or 32 where K is no more.

    >>> slot_depth(Problem(), 4096), slot_depth(Problem(a="e4m3", b="e4m3"), 4096), slot_depth(Problem(a="tf32", b="tf32"), 4096)
    (64, 128, 32)
    """
    formats = operand_formats(problem)
    types = scaled_types(problem)
    if types is not None:
        # Whole atoms of factors, and the widest swizzle's span.
        return max(1024 // max(shared_bits(dtype) for dtype in formats), 4 * types[0].vector)
    widest = max(shared_bits(dtype) for dtype in formats)
    if any(padded(dtype) for dtype in formats) or k > 32:
        return 1024 // widest
    return 32


def with_most_stages(config: GemmConfig, most: int = 12) -> GemmConfig | None:
    """``config`` with as many stages as fit, ``most`` at most; None if it is not valid with any.

    >>> with_most_stages(GemmConfig(arch="sm_100a")).pipeline.stages
    4
    """
    for stages in range(most, 0, -1):
        candidate = config.replace(stages=stages)
        if not candidate.violations():
            return candidate
    return None


def modelled_clocks(config: GemmConfig, sms: int = SMS, batches: int = 1) -> float:
    """The model's clocks for the configuration's problem. A rank, not a prediction.

    >>> problem = Problem(m=8192, n=8192, k=8192)
    >>> round(modelled_clocks(select(problem)) / (8192**3 / SMS / 4096), 2)
    1.02
    """
    problem, tile = config.problem, config.tile
    if problem.m is None or problem.n is None or problem.k is None:
        raise ValueError("a choice needs the sizes m, n and k")
    ctas = 2 if config.cluster.pair else 1
    k = -(-problem.k // tile.k) * tile.k
    tiles = -(-problem.m // tile.m) * -(-problem.n // tile.n)
    turns = -(-tiles * batches // (sms // ctas))
    bits_a, bits_b = (shared_bits(dtype) for dtype in operand_formats(problem))
    # Of 64 rows the tensor core's half stands idle.
    multiply = max(tile.m / ctas, 128) * tile.n * k / (_MULTIPLY_ADDS * RATE[kind_of(problem)])
    load = (tile.m * bits_a + tile.n * bits_b) / 8 / ctas * k / _BYTES_FROM_L2
    return turns * (max(multiply, load) + _FIXED_CLOCKS / config.pipeline.accumulators)


def select(
    problem: Problem,
    arch: str = "sm_100a",
    sms: int = SMS,
    fusion: Fusion | None = None,
    direct: bool = False,
    batches: int = 1,
) -> GemmConfig:
    """The configuration that the model ranks first; of equals the larger tile. Raises ConfigError where no tile is valid.

    >>> select(Problem(m=8192, n=8192, k=8192)).name
    'sm_100a_bf16_pair256x256x64_stages6_acc2_static_group8_tma2'
    """
    wrong = tuple(problem_violations(problem, arch))
    if wrong:
        raise ConfigError(wrong)
    best = min(
        candidates(problem, arch, sms, fusion, direct),
        key=lambda config: (modelled_clocks(config, sms, batches), -config.tile.m * config.tile.n),
        default=None,
    )
    if best is None:
        probe = GemmConfig(arch=arch, problem=problem, fusion=fusion or Fusion())
        probe = probe.replace(a_in="registers" if converts(problem) else "shared")
        return probe.replace(store="direct", stages=1, tile_n=128, tile_k=slot_depth(problem, 128)).require_valid()
    return best
