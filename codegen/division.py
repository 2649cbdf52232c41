"""How a problem's tiles are divided among the CTAs of a launch: the grid, the blocks whose K is shared, the memory that takes.

A block is one tile for each CTA of a cluster. Knows configurations and sizes; the kernel computes the same from
``gridDim`` and its arguments (``kernels/cuda/scheduler.cuh``).
"""

from __future__ import annotations

from dataclasses import dataclass

from stridewright.kernels.config import GemmConfig

from .select import SMS, resident_ctas

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Division:
    """What a launch computes, and by whom."""

    rows: int
    """Blocks along the kernel's m, of one matrix."""
    columns: int
    cluster: int
    """CTAs of a cluster, each with one tile of a block."""
    clusters: int
    """Clusters that are launched; they run at the same time."""
    k_blocks: int
    """Slots of the ring that a tile's K fills."""
    shared_blocks: int
    """The first so many blocks are laid end to end and cut into equal shares, one for each cluster."""
    partial_floats: int
    """float32 numbers of the workspace for partial sums."""
    counters: int
    """32-bit counters beside it, zero before and after every launch."""
    placed: bool = False
    """Whether these count numbers of clusters, which take them when they start."""
    batches: int = 1
    """Matrices of a batch, or groups of K."""

    @property
    def blocks(self) -> int:
        """Blocks of the problem."""
        return self.rows * self.columns * self.batches

    @property
    def ctas(self) -> int:
        """CTAs to launch."""
        return self.clusters * self.cluster


def divide(config: GemmConfig, m: int, n: int, k: int, sms: int = SMS, batches: int = 1) -> Division:
    """The division of a problem of the kernel's sizes (with operands swapped, its m is the problem's n) on ``sms``
    multiprocessors, ``batches`` of them in one launch. Groups of M count as a batch of one: how their rows add up is known on
    the device, and no more blocks are needed than if each group began one.

    >>> divide(GemmConfig(), 8192, 8192, 256).ctas
    132
    >>> divide(GemmConfig().replace(tile_n=128, split_kind="split", parts=30), 256, 256, 65536).ctas
    120
    """
    tile, cluster, split = config.tile, config.cluster.m * config.cluster.n, config.split
    rows, columns = -(-m // (tile.m * config.cluster.m)), -(-n // (tile.n * config.cluster.n))
    if config.problem.form == "groups_m":
        rows, batches = rows + batches, 1
    blocks, k_blocks = rows * columns * batches, -(-k // tile.k)
    most = resident_ctas(cluster, sms) // cluster
    shared = 0
    clusters = min(blocks, most)
    if split.kind == "split":
        shared = blocks
        clusters = min(blocks * split.parts, most, blocks * k_blocks)
    elif split.kind == "stream" and blocks % most:
        # What does not fill a turn, together with the turn before it, so that no share is shorter than a tile.
        shared = blocks % most + (most if blocks > most else 0)
        clusters = min(most, shared * k_blocks)
    placed = config.schedule.launch == "placed"
    places = shared if split.reduce == "atomic" else 2 * clusters
    return Division(
        rows=rows,
        columns=columns,
        cluster=cluster,
        clusters=clusters,
        k_blocks=k_blocks,
        shared_blocks=shared,
        partial_floats=places * cluster * tile.m * tile.n if shared else 0,
        counters=clusters + 1 if placed else 2 * shared * cluster,
        placed=placed,
        batches=batches,
    )
