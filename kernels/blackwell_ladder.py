"""The Blackwell GEMM as a ladder: ten kernels, each with one idea more than the one before.

The first three are small kernels of their own. From the fourth on one kernel, ``cuda/blackwell/gemm.cuh``, is put
together from interchangeable parts, and a rung exchanges one part or one parameter, so that the difference between the
sources of two rungs is the idea. None of them was run on a Blackwell: they are assembled and emulated.

A rung is a configuration and a list of device files; knows nothing of compilers or of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config import GemmConfig


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder: what it adds, its configuration, and the file of its kernel where it has its own."""

    number: int
    title: str
    idea: str
    config: GemmConfig
    body: str = "gemm.cuh"
    threads: int = 256
    swizzle: str | None = None
    """The operands' swizzle where it is not the widest that fits."""

    @property
    def maps(self) -> bool:
        """Whether the kernel takes tensor maps, or plain pointers to A and B."""
        return self.body != "rung_0.cuh"


def rungs(arch: str = "sm_100a", dtype: str = "bf16") -> tuple[Rung, ...]:
    """The ladder, from the textbook kernel to the best one.

    >>> [rung.number for rung in rungs()] == list(range(10)) and rungs()[6].config.cluster.pair
    True
    """
    base = GemmConfig(arch=arch).replace(
        tile_m=128, tile_n=64, tile_k=64, stages=1, store="direct", order="row", launch="one"
    )
    problem = {"a": dtype, "b": dtype, "d": dtype}
    base = base.replace(problem=type(base.problem)(**problem))  # type: ignore[arg-type]
    ring = base.replace(stages=4)
    wide = ring.replace(tile_n=128)
    overlapped = wide.replace(accumulators=2, launch="static")
    controlled = overlapped.replace(launch="clc")
    paired = controlled.replace(tile_m=256, tile_n=256, pair=True)
    ordered = paired.replace(order="grouped", group_m=8)
    staged = ordered.replace(store="tma")
    return (
        Rung(
            0,
            "textbook",
            "Take tensor memory, stage A and B with ordinary stores, multiply, commit, load, store, give back.",
            base,
            "rung_0.cuh",
            128,
            "none",
        ),
        Rung(1, "TMA", "The copy engine stages the tiles, under the 128-byte swizzle.", base, "rung_1.cuh", 128),
        Rung(2, "ring", "Slots of shared memory are filled while others are multiplied.", ring, "rung_2.cuh", 128),
        Rung(3, "roles", "One warp copies, one multiplies, four store: each waits only for what it needs.", wide),
        Rung(
            4,
            "two accumulators",
            "A CTA goes on to its next tile, and stores one accumulator while it multiplies into the other.",
            overlapped,
        ),
        Rung(
            5,
            "launch control",
            "Tiles are handed out by the hardware: a CTA that is done cancels one that waits, and does its work.",
            controlled,
        ),
        Rung(
            6,
            "pairs",
            "Two CTAs share a tile of 256 x 256: each loads half the operands, one multiplies for both.",
            paired,
        ),
        Rung(7, "order", "Tiles are walked in groups of rows, so that panels of A and B stay in L2.", ordered),
        Rung(
            8,
            "staged results",
            "Results go through swizzled shared memory, part by part, and the copy engine writes them.",
            staged,
        ),
        Rung(
            9,
            "the best",
            "Two pairs of a cluster load their rows of A once for both (multicast), and the ring is as deep as shared memory allows.",
            staged.replace(stages=6, cluster_n=2, group_m=4),
        ),
    )
