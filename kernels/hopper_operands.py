"""The tile of an operand in shared memory, written once as a layout, and what follows from it for copies and multiplies.

Knows layouts, element types and majors; knows nothing of the ring it lies in or of the kernel that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stridewright.layout import Layout, Swizzle, SwizzledLayout, compose, cosize, tile_to_shape
from stridewright.layout.hardware import swizzle_mode
from stridewright.layout.hardware.canonical import k_advance, matrix_descriptor, smem_tile

from .config import GemmConfig
from .hopper_rules import MN_BOX, element_bytes, kernel_operands, slot_rows

ELEMENT_BYTES = 2
"""Bytes of an element that is staged on its way to D."""

PANEL_COLUMNS = 64
"""Columns of a panel of D in shared memory: 64 elements of 2 bytes are the 128 bytes of the swizzle's span."""

SPAN = 128
"""Bytes of the widest swizzle's span (PTX ISA, wgmma matrix descriptors)."""


@dataclass(frozen=True)
class OperandTile:
    """An operand's tile in shared memory: ``layout`` maps (row, k) to an element offset in its slot."""

    name: str
    dtype: str
    major: str
    rows: int
    slice_rows: int
    """Rows that one CTA of a cluster loads, for itself and for the others that need the same tile."""
    layout: SwizzledLayout
    slot_bytes: int
    descriptor: int
    step_advance: Layout
    """k-step of 32 bytes -> what is added to the descriptor, in its units of 16 bytes."""
    panel_bytes: int
    """Bytes from one box of the copy engine to the next: K-major a panel of a swizzle's span along K, MN-major 64 rows."""
    boxes: int
    """Boxes that a CTA loads into a slot."""
    block_advance: int
    """Descriptor units from one block of 64 rows to the next (A only)."""
    row_bytes: int
    """Bytes from a row to the next; MN-major, a sixty-fourth of those from one box of 64 rows to the next."""

    @property
    def box(self) -> SwizzledLayout:
        """(row, k) of one box -> element offset."""
        if self.major == "mn":
            return mn_tile(MN_BOX, self.k, self.dtype)
        size = element_bytes(self.dtype)
        panel = min(self.k, SPAN // size)
        return swizzled_tile(self.slice_rows, panel, panel, size)

    @property
    def k(self) -> int:
        """Elements of K in a slot."""
        return self.slot_bytes // (element_bytes(self.dtype) * slot_rows(self.rows, self.major))

    @property
    def step_words(self) -> tuple[str, ...]:
        """How the descriptor of a slot's next multiply follows from that of its first, in lines.

        >>> operand_tile("A", GemmConfig()).step_words[-1]
        'and a slot begins at a multiple of 1024 bytes, where the swizzle begins anew.'
        """
        elements = 32 // element_bytes(self.dtype)
        if self.major == "mn":
            return (
                f"A multiply takes {elements} elements of K, as many lines; the next one's descriptor is as much further on.",
            )
        span = min(self.k * element_bytes(self.dtype), SPAN)
        return (
            f"A multiply takes {elements} elements of K, 32 bytes of a row; the next one's descriptor is as much further on, in the middle of a swizzled row.",
            "That is right, with base offset 0: the hardware swizzles each address that it comes to, with bits above those that the steps change,",
            f"and a slot begins at a multiple of {8 * span} bytes, where the swizzle begins anew.",
        )


def panel_k(config: GemmConfig) -> int:
    """Elements of K in a panel of a slot, one box of the copy engine: the span of the swizzle. 64 of 16 bits are 128 bytes,
    and 32, where a slot holds no more, 64 bytes.

    >>> panel_k(GemmConfig().replace(tile_k=128)), panel_k(GemmConfig().replace(tile_k=32))
    (64, 32)
    """
    return min(config.tile.k, SPAN // element_bytes(config.problem.a))


def swizzle_of(span: int, element: int = ELEMENT_BYTES) -> str:
    """The swizzle whose span is ``span`` elements of ``element`` bytes.

    >>> swizzle_of(64), swizzle_of(32)
    ('128B', '64B')
    """
    return f"{span * element}B"


def swizzled_tile(rows: int, columns: int, span: int = 64, element: int = ELEMENT_BYTES) -> SwizzledLayout:
    """A K-major tile of elements of ``element`` bytes under a swizzle: (row, column) -> element offset.

    The atom is 8 rows of ``span`` elements, 64 for the 128-byte swizzle; rows beyond it follow after the atom's bytes.
    ``columns`` is a multiple of the span, or less for a row that does not fill it.

    >>> print(swizzled_tile(128, 64))
    S<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))
    >>> print(swizzled_tile(64, 8))
    S<3,3,3> o (64,8):(64,1)
    >>> print(swizzled_tile(128, 32, 32))
    S<2,3,3> o ((8,16),(32,1)):((32,256),(1,0))
    """
    swizzle = Swizzle(*swizzle_mode(swizzle_of(span, element)).element_parameters(8 * element))
    atom = compose(swizzle, Layout((8, span), (span, 1)))
    tile: SwizzledLayout = tile_to_shape(atom, (rows, max(columns, span)))
    if columns >= span:
        return tile
    narrow: SwizzledLayout = compose(tile, (rows, columns))
    return narrow


def byte_offsets(layout: SwizzledLayout, element_bytes: int = ELEMENT_BYTES) -> SwizzledLayout:
    """The same map from coordinates, to byte offsets instead of element offsets.

    >>> print(byte_offsets(swizzled_tile(128, 64)))
    S<3,4,3> o ((8,16),(64,1)):((128,1024),(2,0))
    """
    bytes_of_element = Layout(cosize(layout.layout), element_bytes)
    inner = compose(bytes_of_element, layout.layout)
    swizzle = layout.swizzle
    shift = element_bytes.bit_length() - 1
    scaled = Swizzle(swizzle.bits, swizzle.base + shift, swizzle.shift)
    return SwizzledLayout(scaled, layout.offset * element_bytes, inner)


def mn_tile(rows: int, k: int, dtype: str) -> SwizzledLayout:
    """An MN-major tile: (row, k) -> element offset. Boxes of 64 rows follow one another, in each a line of 128 bytes for
    every element of K.

    >>> print(mn_tile(128, 64, "bf16"))
    S<3,3,3> o ((64,2),(8,8)):((1,4096),(64,512))
    """
    tile = smem_tile("128B", "mn", dtype, rows, k, order=(1, 0))
    assert isinstance(tile, SwizzledLayout)
    return tile


def operand_tile(name: str, config: GemmConfig) -> OperandTile:
    """The tile of the kernel's operand ``name``, "A" or "B".

    >>> operand_tile("A", GemmConfig()).slot_bytes
    16384
    """
    of_a = name == "A"
    dtype, major = kernel_operands(config)[0 if of_a else 1]
    rows, parts = (config.tile.m, config.cluster.n) if of_a else (config.tile.n, config.cluster.m)
    element, k = element_bytes(dtype), config.tile.k
    panel = panel_k(config)
    layout = mn_tile(slot_rows(rows, major), k, dtype) if major == "mn" else swizzled_tile(rows, k, panel, element)
    slot_bytes = cosize(layout.layout) * element

    def advance(row: int) -> int:
        """Bytes between rows 0 and ``row``, before the swizzle: the hardware applies that to the final address."""
        return int(layout.layout(row, 0)) * element

    if major == "mn":
        panel_bytes, boxes = MN_BOX * k * element, slot_rows(rows // parts, major) // MN_BOX
        row_bytes = panel_bytes // MN_BOX
    else:
        panel_bytes, boxes, row_bytes = slot_bytes * panel // k, k // panel, advance(1)
    return OperandTile(
        name=name,
        dtype=dtype,
        major=major,
        rows=rows,
        slice_rows=rows // parts,
        layout=layout,
        slot_bytes=slot_bytes,
        descriptor=matrix_descriptor(layout, dtype=dtype, arch=config.arch, major=major, address=0),
        step_advance=k_advance(layout, dtype=dtype, arch=config.arch, major=major),
        panel_bytes=panel_bytes,
        boxes=boxes,
        block_advance=advance(64) >> 4 if rows > 64 else 0,
        row_bytes=row_bytes,
    )
