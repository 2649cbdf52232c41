"""What the selection model looks at: the features of configurations, and how a launch divides the work among CTAs.

Arrays, an element a configuration. Knows no times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.config import GemmConfig

from .select import RESIDENT, SMS

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Features:
    """What the model looks at, an array a field, an element a configuration."""

    rows: NDArray[Any]
    """Of the kernel's problem: with operands swapped, D's columns."""
    columns: NDArray[Any]
    k: NDArray[Any]
    tile_m: NDArray[Any]
    tile_n: NDArray[Any]
    tile_k: NDArray[Any]
    stages: NDArray[Any]
    consumers: NDArray[Any]
    pingpong: NDArray[Any]
    cluster_m: NDArray[Any]
    cluster_n: NDArray[Any]
    swapped: NDArray[Any]
    parts: NDArray[Any]
    """CTAs that share a tile; 1 is none, 0 a stream."""
    atomic: NDArray[Any]
    direct: NDArray[Any]
    group: NDArray[Any]


def features(configs: Iterable[GemmConfig]) -> Features:
    """The features of configurations whose problems have their sizes. Raises ValueError where one has not."""
    rows = []
    for config in configs:
        problem, tile, schedule = config.problem, config.tile, config.schedule
        m, n, k = problem.m, problem.n, problem.k
        if m is None or n is None or k is None:
            raise ValueError("the modelled time needs the sizes m, n and k")
        first, second = (n, m) if schedule.swap else (m, n)
        parts = {"none": 1, "stream": 0}.get(config.split.kind, config.split.parts)
        made = (first, second, k, tile.m, tile.n, tile.k, config.pipeline.stages, schedule.consumers)
        how = (schedule.kind == "pingpong", config.cluster.m, config.cluster.n, schedule.swap, parts)
        ends = (config.split.reduce == "atomic", config.epilogue.store == "direct", schedule.group_m)
        rows.append((*made, *how, *ends))
    return Features(*np.asarray(rows, dtype=np.float64).reshape(-1, len(fields(Features))).T)


def up(value: Any, step: Any) -> Any:
    return np.ceil(value / step)


@dataclass(frozen=True)
class Work:
    """Who computes what: arrays, as in Features."""

    size: Any
    """CTAs of a cluster."""
    ctas: Any
    k_blocks: Any
    turns: Any
    slots: Any
    """Of the CTA with the most."""
    divided: Any
    """Whether CTAs share the sum over K."""
    uneven: Any
    """Whether those stand at different K."""
    tile_rows: Any
    tile_columns: Any
    """Tiles along either side, in whole clusters."""
    high: Any
    wide: Any
    """Rows and columns of tiles that are computed at once."""


def work_of(x: Features, sms: int) -> Work:
    size = x.cluster_m * x.cluster_n
    resident = np.maximum(np.select([size == one for one in RESIDENT], list(RESIDENT.values()), 120) * sms // SMS, size)
    most = resident // size
    block_rows, block_columns = up(x.rows, x.tile_m * x.cluster_m), up(x.columns, x.tile_n * x.cluster_n)
    blocks, k_blocks = block_rows * block_columns, up(x.k, x.tile_k)
    stream = (x.parts == 0) & (blocks % most != 0)
    shared = np.where(x.parts > 1, blocks, np.where(stream, blocks % most + np.where(blocks > most, most, 0), 0))
    clusters = np.where(
        x.parts > 1, np.minimum(np.minimum(blocks * x.parts, most), blocks * k_blocks), np.minimum(blocks, most)
    )
    clusters = np.where(stream, np.minimum(most, shared * k_blocks), clusters)
    ctas = clusters * size
    divided = shared > 0
    cut = shared * k_blocks / clusters + (blocks - shared) / clusters * k_blocks
    turns = np.where(divided, np.ceil(cut / k_blocks) + 1, up(blocks, clusters))
    tile_rows, tile_columns = block_rows * x.cluster_m, block_columns * x.cluster_n
    at_once = np.minimum(ctas, tile_rows * tile_columns)
    high = np.minimum(np.minimum(x.group * x.cluster_m, tile_rows), at_once)
    return Work(
        size=size,
        ctas=ctas,
        k_blocks=k_blocks,
        turns=turns,
        slots=np.where(divided, cut, turns * k_blocks),
        divided=divided,
        uneven=stream | ((x.parts > 1) & (clusters != blocks * x.parts)),
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        high=high,
        wide=np.clip(at_once / high, 1, tile_columns),
    )
