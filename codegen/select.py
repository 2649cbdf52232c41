"""Chooses a configuration for a shape without measuring.

Three regimes, and in each a coarse model that ranks and does not predict. A persistent grid computes its tiles in
turns ("waves"), so where there is work for many turns the time is turns times the width of a tile plus a little;
where one turn is enough the narrowest tiles of 32 columns and more that still fit into it win; and where M is small
the weights are read once from memory, which many small slots in flight do best. The constants were fitted to runs on
an H200 (benchmarks/results).
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewright.kernels.config import GemmConfig, Problem

SMS = 132
"""Streaming multiprocessors of an H100 SXM and an H200."""

_RESIDENT = {1: 132, 2: 132, 4: 120}
"""CTAs that run at once on 132 SMs with one CTA an SM, by cluster size, as seen on an H200 in another program: a
cluster lies within one of the chip's groups of SMs, whose sizes 4 does not divide.
"""

SMALL_M = 96
"""Up to so many rows of A the operands are swapped: 64 rows of weights fill wgmma's M, and the few rows of A its N."""

TURN_OVERHEAD = 3
"""Columns of a tile that a turn of a ping-pong schedule costs beside its multiplies."""

COOPERATIVE_OVERHEAD = 12
"""The same of a cooperative schedule, whose epilogue nothing hides."""


def resident_ctas(cluster: int, sms: int = SMS) -> int:
    """CTAs in clusters of ``cluster`` that run at once, one an SM: the grid of a persistent kernel.

    >>> resident_ctas(1), resident_ctas(2), resident_ctas(4), resident_ctas(4, sms=4)
    (132, 132, 120, 4)
    """
    share = sms * _RESIDENT[cluster] // SMS
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
    m, n, k = _sizes(problem)
    base = base.replace(store="direct" if n * 2 % 16 else "tma")
    if m <= SMALL_M:
        shapes = _small_m(m, n, k, sms)
    elif -(-m // 64) * -(-n // 256) <= sms:
        shapes = _one_turn(m, n, sms)
    else:
        shapes = _many_turns(n)
    for shape in shapes:
        config = _with_most_stages(base.replace(**shape), 12)
        if config is not None:
            yield config


def _small_m(m: int, n: int, k: int, sms: int) -> Iterator[dict[str, object]]:
    rows = -(-m // 8) * 8
    blocks = -(-n // 64)
    parts = 1
    # Two CTAs share a block of weights, each with half the rows of A, while there are SMs to spare.
    if blocks * 2 <= sms and rows >= 32:
        parts = 2
    tile_n = -(-rows // parts // 8) * 8
    tile_k = 64 if k <= 1024 else 128
    yield {"swap": True, "tile_m": 64, "tile_n": tile_n, "tile_k": tile_k, "consumers": 1, "cluster_n": parts}


def _one_turn(m: int, n: int, sms: int) -> Iterator[dict[str, object]]:
    rows = -(-m // 64)
    # Under 32 columns a CTA loads more than twice as much of A as of B, and starting it costs more than it saves.
    for tile_n in range(min(32, -(-n // 8) * 8), 257, 8):
        if rows * -(-n // tile_n) <= sms:
            yield {"tile_m": 64, "tile_n": tile_n, "consumers": 1}
            return


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


def select(problem: Problem, arch: str = "sm_90a", sms: int = SMS) -> GemmConfig:
    """The configuration that the model ranks first; of equals the one without a cluster, then the wider tile.

    >>> from stridewright.kernels.config import Problem
    >>> select(Problem(m=8192, n=8192, k=8192)).name
    'sm_90a_bf16_pingpong2_128x200x64_stages4_group8_tma2'
    """

    if GemmConfig(arch=arch).on_blackwell:
        from . import blackwell_select

        return blackwell_select.select(problem, arch, sms)

    def rank(config: GemmConfig) -> tuple[float, int, int]:
        return modelled_columns(config, sms), config.cluster.m * config.cluster.n, -config.tile.n

    return min(candidates(problem, arch, sms), key=rank)
