"""How long a GEMM would take on an H200, by the emulator's timeline model: an estimate that ranks, not a measurement.

To emulate every block of a large problem takes too long, and is of no use: all blocks of a persistent grid do the same. So one cluster is emulated on a
few tiles with a few blocks of K, the real PTX of the configuration, and its record is replayed with the share of L2 and DRAM that it would get in the whole grid.
Time is linear in the tiles of a block and in the blocks of K once the ring is full, which gives the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from stridewright.kernels.config import GemmConfig, Problem

from .emulator.timeline import CostModel
from .emulator.timeline_model import Sharing, sharing
from .emulator.timeline_record import Recording
from .emulator.timeline_replay import Replay
from .select import resident_ctas

if TYPE_CHECKING:
    from .gemm import Gemm

L2_BYTES = 50 * 2**20
"""The L2 cache of an H100 and H200 (NVIDIA H100 Tensor Core GPU Architecture)."""

_FILLED, _LONGER = 3, 5
"""Turns of the ring of a shorter and a longer tile, between which time is taken to grow evenly. Whole turns, since a ring that is too short for the
latency of memory moves in steps of a turn; fewer than three still show how the first one started.
"""


@dataclass(frozen=True)
class ModelledTime:
    """An estimate. `seconds` of one launch in a stream of launches; `clocks` of the block with the most tiles; `clock_hz` that the model expects; `busy`:
    the tensor cores' share of the time over all SMs; `turns`: tiles of that block; `dram_bytes` read and written.
    """

    seconds: float
    clocks: float
    clock_hz: float
    busy: float
    turns: int
    dram_bytes: float

    @property
    def microseconds(self) -> float:
        """`seconds` in microseconds."""
        return self.seconds * 1e6


def modelled_time(gemm: Gemm, model: CostModel | None = None) -> ModelledTime:
    """Estimates the time of `gemm` on an H200 by emulating a few of its tiles.

    Args:
        gemm: the GEMM, with its configuration; its PTX is built if it was not yet.
        model: the constants; the fitted ones if not given.

    Returns:
        A ModelledTime. benchmarks/results/timeline_hopper.json says how near measured times are, shape by shape.

    Raises:
        BuildError: if the configuration does not compile.
    """
    model = CostModel() if model is None else model
    config = gemm.config
    size = config.cluster.m * config.cluster.n
    tiles, k_blocks = gemm.tiles(), -(-gemm.k // config.tile.k)
    blocks = min(tiles, resident_ctas(size, model.sms))
    turns = -(-tiles // blocks)
    dram = dram_bytes(gemm, blocks)
    tile_counts, k_counts = _points(turns, k_blocks, config.pipeline.stages)
    kernel = replace(config, problem=Problem())
    t, k = tile_counts[0], k_counts[0]
    record = recorded(kernel, t, k)
    loaded = record.loaded_bytes / (t * k) * k_blocks * tiles / size
    # What a replay does not depend on is left out, so that it is not repeated.
    costs = replace(
        model,
        launch_seconds=0.0,
        dram_bytes_per_second=0.0,
        l2_bytes_per_clock=0.0,
        sustained_clock=0.0,
        traffic_power=0.0,
    )
    clock, clocks, busy = model.sustained_clock, 0.0, 1.0
    for _ in range(3):
        share = sharing(model, blocks, dram / loaded, clock)
        found = {(t, k): _replayed(kernel, t, k, costs, share) for t in tile_counts for k in k_counts}
        clocks = _extend(found, 0, tile_counts, k_counts, turns, k_blocks)
        multiplied = _extend(found, 1, tile_counts, k_counts, turns, k_blocks) * tiles / turns
        total = model.sms * (clocks + model.launch_seconds * clock)
        busy = multiplied / total
        clock = model.clock(busy, loaded / total * record.received_bytes / record.loaded_bytes)
    return ModelledTime(
        seconds=model.launch_seconds + clocks / clock,
        clocks=clocks,
        clock_hz=clock,
        busy=busy,
        turns=turns,
        dram_bytes=dram,
    )


def _points(turns: int, k_blocks: int, stages: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tiles of a block and the blocks of K to emulate: the numbers themselves if they are small, else two from which to go on."""
    few = 2 + turns % 2  # ping-pong consumers take turns: an odd number of tiles and an even one do not lie on one line
    tiles = (turns,) if turns <= few + 2 else (few, few + 2)
    filled, longer = _FILLED * stages, _LONGER * stages
    return tiles, (k_blocks,) if k_blocks <= longer else (filled, longer)


def _extend(
    found: dict[tuple[int, int], tuple[float, float]],
    which: int,
    tiles: tuple[int, ...],
    k_counts: tuple[int, ...],
    turns: int,
    k_blocks: int,
) -> float:
    """Linear in both."""

    def line(points: tuple[int, ...], values: list[float], at: int) -> float:
        if len(points) == 1:
            return values[0]
        return values[0] + (values[1] - values[0]) / (points[1] - points[0]) * (at - points[0])

    return line(tiles, [line(k_counts, [found[t, k][which] for k in k_counts], k_blocks) for t in tiles], turns)


@lru_cache(maxsize=4096)
def _replayed(config: GemmConfig, tiles: int, k_blocks: int, costs: CostModel, share: Sharing) -> tuple[float, float]:
    """Clocks of a recorded cluster, and clocks for which a tensor core of it multiplies."""
    replay = Replay(recorded(config, tiles, k_blocks), costs, share, keep=False).run()
    return replay.clocks, sum(replay.busy.values()) / (config.cluster.m * config.cluster.n)


@lru_cache(maxsize=512)
def recorded(config: GemmConfig, tiles: int, k_blocks: int) -> Recording:
    """What one cluster of this configuration does for so many tiles of so many blocks of K, on zeros."""
    import ml_dtypes

    from .emulator.launch import Launch
    from .emulator.timeline_record import Recorder
    from .emulator.translate import program_of
    from .gemm import Gemm
    from .source import KERNEL_NAME

    tile, cluster = config.tile, config.cluster
    m, n, k = tile.m * cluster.m * tiles, tile.n * cluster.n, tile.k * k_blocks
    if config.schedule.swap:
        m, n = n, m
    gemm = Gemm(m, n, k, config=config)
    a, b, d = (np.zeros(shape, ml_dtypes.bfloat16) for shape in ((m, k), (n, k), (m, n)))
    size = cluster.m * cluster.n
    launch = Launch(
        program_of(gemm.ptx, KERNEL_NAME),
        (size, 1, 1),
        (config.threads, 1, 1),
        gemm.emulator_arguments(a, b, d),
        (size, 1, 1),
        gemm.derivation.shared_bytes,
        seed=0,
        strict=True,
        numerics="float32",
        check_races=False,
    )
    machine = Recorder(launch)
    machine.run()
    return machine.recording


def dram_bytes(gemm: Gemm, blocks: int) -> float:
    """Bytes that a grid of `blocks` reads from DRAM and writes to it. What the blocks load in one turn is read once; from turn to turn L2 keeps operands only
    if half of it holds them all.

    >>> from stridewright import Gemm
    >>> dram_bytes(Gemm(m=512, n=512, k=512), 128) == 2 * (512 * 512 + 512 * 512 + 512 * 512)
    True
    """
    config = gemm.config
    m, n = gemm.kernel_sizes
    written = 2.0 * m * n
    everything = 2.0 * (m + n) * gemm.k
    if everything <= L2_BYTES / 2:
        return everything + written
    height, width = config.tile.m * config.cluster.m, config.tile.n * config.cluster.n
    rows, columns = -(-m // height), -(-n // width)
    clusters = max(blocks // (config.cluster.m * config.cluster.n), 1)
    group = config.schedule.group_m
    order = np.arange(rows * columns)
    first = order // (group * columns) * group
    within = order % (group * columns)
    high = np.minimum(rows - first, group)
    row, column = first + within % high, within // high
    read = 0.0
    for start in range(0, rows * columns, clusters):
        turn = slice(start, start + clusters)
        read += len(np.unique(row[turn])) * height + len(np.unique(column[turn])) * width
    return max(2.0 * read * gemm.k, everything) + written
