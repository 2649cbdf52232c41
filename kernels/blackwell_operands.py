"""The tile of an operand of the Blackwell GEMM, written once as a layout of shared memory, and what follows from it: boxes of the
copy engine, bytes that a barrier expects, the matrix descriptor and its steps.

Knows layouts, formats and majors; knows nothing of the ring the tile lies in or of the kernel that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stridewright.layout import Layout, SwizzledLayout, cosize
from stridewright.layout.hardware import k_advance, matrix_descriptor, smem_tile, swizzle_mode
from stridewright.layout.hardware.dtypes import data_type

from .blackwell_rules import operand_swizzle
from .blackwell_types import operand_formats, shared_bits
from .config import GemmConfig

Tile = Layout | SwizzledLayout


@dataclass(frozen=True)
class OperandTile:
    """An operand's tile in one CTA's shared memory: ``layout`` maps (row, k) to an element offset in its slot."""

    name: str
    dtype: str
    """The format as shared memory holds it: what lies padded there has a name of its own."""
    rows: int
    """Rows of M or N in a CTA's slot: of a pair's tile, each holds half."""
    major: str
    swizzle: str
    layout: Tile
    slot_bytes: int
    descriptor: int
    step_advance: Layout
    """k-step of one instruction, 32 bytes -> what is added to the descriptor, in its units of 16 bytes."""
    slice_rows: int
    """Rows that one CTA loads, for itself and for those of other tiles in its cluster that need the same."""
    slice_bytes: int
    """From one slice to the next, in a slot."""
    box: Tile
    """(row, k) -> element offset in one box, of which a slice has ``boxes``."""
    boxes: int
    box_span: int
    """Elements from one box to the next: of K in a K-major operand, else of M or N."""
    box_step: int
    """Bytes from one box to the next, in a slot."""
    box_bytes: int

    @property
    def counted_bytes(self) -> int:
        """What the barrier counts of a slot: the bytes that are brought, without the padding between 4- and 6-bit elements
        (see ``TensorMap.box_bytes``)."""
        return self.slot_bytes * data_type(self.dtype).bits // self.bits

    @property
    def bits(self) -> int:
        """Bits of an element in shared memory, padding included."""
        return shared_bits(self.dtype)

    def bytes_of(self, elements: int) -> int:
        """Bytes of so many elements in shared memory."""
        return elements * self.bits // 8


def operand_tile(name: str, rows: int, config: GemmConfig, swizzle: str | None = None, slices: int = 1) -> OperandTile:
    """The tile of one operand, ``rows`` of M or N in a CTA, and all that follows from it. ``slices``: tiles of a cluster
    that share it.

    The swizzle is the widest whose span divides a slice's contiguous run; boxes follow one another along that run.

    >>> tile = operand_tile("A", 128, GemmConfig(arch="sm_100a"))
    >>> print(tile.layout, hex(tile.descriptor), tile.step_advance)
    S<3,3,3> o ((8,16),(64,1)):((64,512),(1,0)) 0x4000404000010000 4:2
    """
    problem, k = config.problem, config.tile.k
    number = 0 if name == "A" else 1
    dtype, major = operand_formats(problem)[number], (problem.a_major, problem.b_major)[number]
    bits = shared_bits(dtype)
    slice_rows = rows // slices
    run = k if major == "k" else slice_rows
    swizzle = operand_swizzle(dtype, major, run) if swizzle is None else swizzle
    span = max(swizzle_mode(swizzle).span, 16) * 8 // bits
    order = (0, 1) if major == "k" else (1, 0)
    layout = smem_tile(swizzle, major, dtype, rows, k, order=order)
    box = smem_tile(swizzle, major, dtype, *((slice_rows, span) if major == "k" else (span, k)), order=order)
    return OperandTile(
        name=name,
        dtype=dtype,
        rows=rows,
        major=major,
        swizzle=swizzle,
        layout=layout,
        slot_bytes=_elements(layout) * bits // 8,
        descriptor=matrix_descriptor(layout, dtype=dtype, arch=config.arch, major=major, address=0),
        step_advance=k_advance(layout, dtype=dtype, arch=config.arch, major=major),
        slice_rows=slice_rows,
        slice_bytes=int(plain(layout)(slice_rows % rows, 0)) * bits // 8,
        box=box,
        boxes=run // span,
        box_span=span,
        box_step=_elements(layout) * span // (k if major == "k" else rows) * bits // 8,
        box_bytes=_elements(box) * bits // 8,
    )


def plain(tile: Tile) -> Layout:
    """The layout under a swizzle, if there is one.

    >>> print(plain(smem_tile("128B", "k", "bf16", 16, 64)))
    ((8,2),(64,1)):((64,512),(1,0))
    """
    return tile.layout if isinstance(tile, SwizzledLayout) else tile


def _elements(tile: Tile) -> int:
    return int(cosize(plain(tile)))
