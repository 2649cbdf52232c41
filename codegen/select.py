"""Chooses a configuration for a shape without measuring.

Large problems take many turns of a persistent grid: their time is turns times the width of a tile plus a little, and
that ranks ping-pong schedules of 128 rows within a percent. Where tiles are few, M is small or K deep, latency, memory
and the split of K decide, and a model fitted to measured runs (:mod:`stridewright.codegen.model`) ranks the whole space.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from stridewright.kernels.config import GemmConfig, Problem

SMS = 132
"""Streaming multiprocessors of an H100 SXM and an H200."""

RESIDENT = {1: 132, 2: 132, 4: 120}
"""CTAs that run at once on 132 SMs with one CTA an SM, by cluster size, as seen on an H200 in another program: a
cluster lies within one of the chip's groups of SMs, whose sizes 4 does not divide.
"""

TURN_OVERHEAD = 3
"""Columns of a tile that a turn of a ping-pong schedule costs beside its multiplies."""

COOPERATIVE_OVERHEAD = 12
"""The same of a cooperative schedule, whose epilogue nothing hides."""

MANY_ROWS = 512
"""From so many rows of A on, and with tiles of 128 x 208 for more than one turn, turns decide."""


def resident_ctas(cluster: int, sms: int = SMS) -> int:
    """CTAs in clusters of ``cluster`` that run at once, one an SM: the grid of a persistent kernel.

    >>> resident_ctas(1), resident_ctas(2), resident_ctas(4), resident_ctas(4, sms=4)
    (132, 132, 120, 4)
    """
    share = sms * RESIDENT[cluster] // SMS
    return max(share // cluster, 1) * cluster


def _with_most_stages(config: GemmConfig, most: int) -> GemmConfig | None:
    """``config`` with as many stages as fit, ``most`` at most; None if it is not valid with any."""
    for stages in range(most, 1, -1):
        candidate = config.replace(stages=stages)
        if not candidate.violations():
            return candidate
    return None


def candidates(problem: Problem, arch: str = "sm_90a", sms: int = SMS) -> Iterator[GemmConfig]:
    """The valid configurations of the problem's regime, each with as many stages as are of use. The sizes must be
    known.

    >>> from stridewright.kernels.config import Problem
    >>> next(candidates(Problem(m=16, n=6144, k=4096))).schedule.swap
    True
    """
    base = GemmConfig(arch=arch, problem=problem)
    if base.on_blackwell:
        from . import blackwell_select

        yield from blackwell_select.candidates(problem, arch, sms)
        return
    m, n, _ = _sizes(problem)
    if not many_turns(m, n, sms):
        from .model import best_first

        yield from (config for _, config in best_first(problem, arch, sms, most=16))
        return
    for shape in _many_turns(n):
        config = _with_most_stages(base.replace(**shape), 12)
        if config is not None:
            yield config


def many_turns(m: int, n: int, sms: int = SMS) -> bool:
    """Whether a problem is large enough for its turns to decide, and its results leave by TMA: plain stores cost more than
    a turn hides.

    >>> many_turns(4096, 4096), many_turns(256, 57344), many_turns(4096, 4095)
    (True, False, False)
    """
    return m >= MANY_ROWS and n * 2 % 16 == 0 and -(-m // 128) * -(-n // 208) > sms


def _many_turns(n: int) -> Iterator[dict[str, object]]:
    if n < 96:
        yield {"schedule_kind": "pingpong", "tile_m": 128, "tile_n": -(-n // 8) * 8}
        return
    for tile_n in range(96, 209, 8):
        for cluster_m in (1, 2):
            yield {"schedule_kind": "pingpong", "tile_m": 128, "tile_n": tile_n, "cluster_m": cluster_m}
    yield {"tile_m": 128, "tile_n": 256}


def _sizes(problem: Problem) -> tuple[int, int, int]:
    if problem.m is None or problem.n is None or problem.k is None:
        raise ValueError("a choice needs the sizes m, n and k")
    return problem.m, problem.n, problem.k


def modelled_columns(config: GemmConfig, sms: int = SMS) -> float:
    """The model's cost of ``config`` for its problem: columns of a tile that an SM multiplies one after another.

    >>> modelled_columns(select(Problem(m=8192, n=8192, k=8192)))  # 20 turns of 200 + 3
    4060
    """
    m, n, _ = _sizes(config.problem)
    tile, cluster = config.tile, config.cluster
    rows, columns = (n, m) if config.schedule.swap else (m, n)
    ctas = cluster.m * cluster.n
    blocks = -(-rows // (tile.m * cluster.m)) * -(-columns // (tile.n * cluster.n))
    turns = -(-blocks * ctas // resident_ctas(ctas, sms))
    overhead = TURN_OVERHEAD if config.schedule.kind == "pingpong" else COOPERATIVE_OVERHEAD
    return turns * (tile.n + overhead)


def ranked(
    problem: Problem, arch: str = "sm_90a", sms: int = SMS, most: int | None = None
) -> list[tuple[float, GemmConfig]]:
    """(modelled cost, configuration), best first and the chosen one before all: ``most`` of them, or all that the model
    considers. Costs compare within one list only: microseconds, or columns of a tile where turns decide.

    >>> [config.tile.n for _, config in ranked(Problem(m=8192, n=8192, k=8192), most=2)]
    [200, 192]
    """
    if GemmConfig(arch=arch).on_blackwell:
        from .space_blackwell import estimate

        found = [(estimate(config, sms), config) for config in candidates(problem, arch, sms)]
    else:
        m, n, _ = _sizes(problem)
        if not many_turns(m, n, sms):
            from .model import best_first

            return list(best_first(problem, arch, sms, most=most or 64))
        found = [(modelled_columns(config, sms), config) for config in candidates(problem, arch, sms)]
    # Of equals the one without a cluster, then the wider tile.
    found.sort(key=lambda one: (one[0], one[1].cluster.m * one[1].cluster.n, -one[1].tile.n))
    return found[:most]


@lru_cache(maxsize=1024)
def select(problem: Problem, arch: str = "sm_90a", sms: int = SMS) -> GemmConfig:
    """The configuration that the model ranks first.

    >>> from stridewright.kernels.config import Problem
    >>> select(Problem(m=8192, n=8192, k=8192)).name
    'sm_90a_bf16_pingpong2_128x200x64_stages4_group8_tma2'
    """
    if GemmConfig(arch=arch).on_blackwell:
        from . import blackwell_select

        return blackwell_select.select(problem, arch, sms)
    return ranked(problem, arch, sms, most=1)[0][1]
