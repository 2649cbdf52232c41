"""Chooses a configuration for a shape without measuring: a small model of where the time of a GEMM goes.

The model is deliberately coarse. A CTA computes its tiles one after another, so the time is the number of turns
("waves") times the time of a tile; a tile takes as long as its slowest resource, tensor core or L2; the narrower of
two tiles loses some of the tensor core's rate. It ranks, it does not predict.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewright.kernels.config import GemmConfig, Problem, sharers

SMS = 132
"""Streaming multiprocessors of an H100 SXM and an H200."""

_RESIDENT = {1: 132, 2: 132, 4: 120}
"""CTAs that run at once on 132 SMs with one CTA an SM, by cluster size, measured on an H200: a cluster lies within one of
the chip's groups of SMs, whose sizes 4 does not divide.
"""

MULTIPLIES_PER_CLOCK = 2048
"""bf16 multiply-adds of one SM and clock: 989 TFLOP/s / 2 / 132 SMs / 1.83 GHz (NVIDIA H100 datasheet, dense)."""

L2_BYTES_PER_CLOCK = 56
"""Bytes that one SM gets from L2 in a clock when all ask at once. Chosen, not measured: between the 48 that a 128 x
256 tile needs, which runs at the tensor core's rate, and the 64 that a 128 x 128 tile needs, which does not
(benchmarks/results).
"""

TILE_OVERHEAD = 900
"""Clocks that a tile costs beside its multiplies: the first load's latency and the part of the epilogue that nothing hides."""

# (tile_m, tile_n, consumers): 64 rows a consumer where the problem is small, 128 columns and more where it is not.
_TILES = (
    (128, 256, 2),
    (256, 128, 2),
    (128, 208, 2),
    (128, 192, 2),
    (128, 160, 2),
    (128, 128, 2),
    (128, 96, 2),
    (128, 64, 2),
    (64, 256, 1),
    (64, 192, 1),
    (64, 128, 1),
    (64, 96, 1),
    (64, 64, 1),
    (64, 48, 1),
    (64, 32, 1),
    (64, 16, 1),
    (64, 8, 1),
)


def resident_ctas(cluster: int, sms: int = SMS) -> int:
    """CTAs in clusters of ``cluster`` that run at once, one an SM: the grid of a persistent kernel.

    >>> resident_ctas(1), resident_ctas(2), resident_ctas(4), resident_ctas(4, sms=4)
    (132, 132, 120, 4)
    """
    share = sms * _RESIDENT[cluster] // SMS
    return max(share // cluster, 1) * cluster


def candidates(problem: Problem, arch: str = "sm_90a") -> Iterator[GemmConfig]:
    """The valid configurations the model ranks, each with as many stages as fit (8 at most)."""
    store = "direct" if problem.n is not None and problem.n * 2 % 16 else "tma"
    for tile_m, tile_n, consumers in _TILES:
        for stages in range(8, 1, -1):
            config = GemmConfig(arch=arch, problem=problem).replace(
                tile_m=tile_m, tile_n=tile_n, consumers=consumers, stages=stages, store=store
            )
            if not config.violations():
                yield config
                break


def modelled_clocks(config: GemmConfig, sms: int = SMS) -> float:
    """Clocks that the model gives this configuration for its problem, whose sizes must be known."""
    problem, tile = config.problem, config.tile
    if problem.m is None or problem.n is None or problem.k is None:
        raise ValueError("the model needs the sizes m, n and k")
    tiles = -(-problem.m // tile.m) * -(-problem.n // tile.n)
    turns = -(-tiles // sms)
    k = -(-problem.k // tile.k) * tile.k
    # Below 128 columns wgmma waits for A from shared memory: 64 rows of A take as long to read as 128 columns take to
    # multiply.
    multiply = tile.m * max(tile.n, 128 if tile.m // sharers(config) == 64 else 64) * k / MULTIPLIES_PER_CLOCK
    load = (tile.m + tile.n) * k * 2 / L2_BYTES_PER_CLOCK
    return turns * (max(multiply, load) + TILE_OVERHEAD)


def select(problem: Problem, arch: str = "sm_90a", sms: int = SMS) -> GemmConfig:
    """The configuration that the model ranks first; the larger tile where two are equal.

    >>> from stridewright.kernels.config import Problem
    >>> select(Problem(m=4096, n=4096, k=4096)).tile
    Tile(m=128, n=256, k=64)
    """
    return min(
        candidates(problem, arch), key=lambda config: (modelled_clocks(config, sms), -config.tile.m * config.tile.n)
    )
