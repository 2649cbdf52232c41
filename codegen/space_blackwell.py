"""The space of the Blackwell kernels: what ``space`` is for the Hopper ones, with the parameters of that family.

Much smaller: roles are fixed, a tile is one instruction wide and high. Nobody has measured any of it on hardware.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewright.kernels.blackwell_rules import MAXIMUM_STAGES, SLOT_DEPTHS, TILE_ROWS
from stridewright.kernels.blackwell_types import result_bytes
from stridewright.kernels.config import GemmConfig, Problem

from .blackwell_select import SMS, modelled_clocks, with_most_stages
from .space import BUFFERS, GROUPS, Rejections, padding, sizes_of

COLUMNS = range(16, 257, 16)
LAUNCHES = ("static", "clc", "one")
_CLOCK_HZ = 1.8e9


def estimate(config: GemmConfig, sms: int = SMS) -> float:
    """Modelled seconds: a rank in another unit.

    >>> estimate(GemmConfig(arch="sm_100a", problem=Problem(m=8192, n=8192, k=8192))) > 0
    True
    """
    return modelled_clocks(config, sms) / _CLOCK_HZ


def cores(
    problem: Problem, arch: str = "sm_100a", rejected: Rejections | None = None, depths: tuple[int, ...] = SLOT_DEPTHS
) -> Iterator[GemmConfig]:
    """Every valid choice of pair, tile and accumulators, each with as many slots as fit.

    >>> next(cores(Problem(m=64, n=64, k=64))).name
    'sm_100a_bf16_64x16x32_stages16_acc1_static_group8_tma2'
    """
    left_out = Rejections() if rejected is None else rejected
    m, n, k = sizes_of(problem)
    base = GemmConfig(arch=arch, problem=problem).replace(
        store="direct" if n * result_bytes(problem) % 16 else "tma", stages=1
    )
    for pair in (False, True):
        for tile_m in TILE_ROWS[2 if pair else 1]:
            for tile_k in depths:
                first = base.replace(pair=pair, tile_m=tile_m, tile_n=COLUMNS[0], tile_k=tile_k)
                useless = padding("tile_m", tile_m, -(-m // 64) * 64) if tile_m > 64 and tile_m // 2 >= m else ()
                if tile_k > SLOT_DEPTHS[0] and tile_k // 2 >= k:
                    useless += padding("tile_k", tile_k, tile_k // 2)
                if useless:
                    left_out.add(first, useless, 2 * len(COLUMNS))
                    continue
                for tile_n in COLUMNS:
                    if tile_n - COLUMNS.step >= n:
                        break
                    for accumulators in (1, 2):
                        config = first.replace(tile_n=tile_n, accumulators=accumulators)
                        filled = with_most_stages(config, MAXIMUM_STAGES)
                        if filled is None:
                            left_out.add(config, config.violations())
                        else:
                            yield filled


def neighbours(config: GemmConfig) -> Iterator[GemmConfig]:
    """Configurations one step away, some of them invalid; none comes twice, none is the configuration itself.

    >>> problem = Problem(m=4096, n=4096, k=4096)
    >>> [one.tile.n for one in neighbours(GemmConfig(arch="sm_100a", problem=problem).replace(tile_n=128))][:2]
    [112, 144]
    """
    seen = {config}
    for other in _steps(config):
        if other not in seen:
            seen.add(other)
            yield other


def _steps(config: GemmConfig) -> Iterator[GemmConfig]:
    tile, schedule, pipeline = config.tile, config.schedule, config.pipeline

    def refilled(**changes: object) -> GemmConfig:
        changed = config.replace(**changes)
        return with_most_stages(changed, MAXIMUM_STAGES) or changed

    for distance in (1, 2):
        for sign in (-1, 1):
            width = tile.n + sign * distance * COLUMNS.step
            if width in COLUMNS:
                yield refilled(tile_n=width)
    for pair in (False, True):
        for tile_m in TILE_ROWS[2 if pair else 1]:
            yield refilled(pair=pair, tile_m=tile_m)
    for tile_k in (tile.k // 2, tile.k * 2):
        if tile_k in SLOT_DEPTHS:
            yield refilled(tile_k=tile_k)
    yield refilled(accumulators=3 - pipeline.accumulators)
    for launch in LAUNCHES:
        yield refilled(launch=launch)
    for stages in (pipeline.stages - 1, pipeline.stages + 1):
        if stages >= 1:
            yield config.replace(stages=stages)
    yield config.replace(order="row" if schedule.order == "grouped" else "grouped")
    if schedule.order == "grouped":
        for group in GROUPS:
            if group in (schedule.group_m // 2, schedule.group_m * 2):
                yield config.replace(group_m=group)
    for buffers in BUFFERS:
        yield refilled(store="tma", buffers=buffers)
    yield refilled(store="direct", buffers=config.epilogue.buffers)
