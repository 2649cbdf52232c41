"""One picture or more of every view, at default size."""

from __future__ import annotations

from collections.abc import Callable

from stridewright.layout import E, Layout, Swizzle
from stridewright.layout.banks import Access
from stridewright.layout.draw import (
    Drawing,
    access_map,
    algebra_strip,
    bank_map,
    beside,
    descriptor_view,
    fragment_view,
    layout_card,
    shared_memory_map,
    stack,
    swizzle_atlas,
    swizzle_bits,
    tensor_map_view,
    tensor_memory_map,
    tensor_memory_view,
    tile_order,
)
from stridewright.layout.hardware import (
    TensorMap,
    ldmatrix_layout,
    mma_a_layout,
    mma_d_layout,
    smem_tile,
    wgmma_d_layout,
)
from stridewright.layout.hardware.tensor_memory import accumulator_layout
from stridewright.layout.hardware.tensor_memory_moves import tensor_memory_access

CHUNKS = Layout((8, 8), (8, 1))
FLOATS = Layout((32, 32), (32, 1))
COLUMN = Access(4, lanes=[(i, 0) for i in range(32)], element_bytes=4)
ROW = Access(4, lanes=[(0, i) for i in range(32)], element_bytes=4)
CHUNK_COLUMN = Access(16, lanes=[(i, 0) for i in range(8)], element_bytes=16)
SHARED_WORDS = Access(4, lanes=[(i // 2, i % 4 // 2) for i in range(32)], element_bytes=4)
HALVES = Layout((64, 64), (64, 1))
LDMATRIX = Access(16, lanes=[(i, 0) for i in range(32)], op="ldmatrix", element_bytes=2)
GROUPED = [(4 * g + r, c) for g in range(2) for c in range(8) for r in range(4)]
PARTS = [
    ("tiles of A", 0, 65536),
    ("tiles of B", 65536, 131072),
    ("staging of D", 196608, 32768),
    ("barriers", 229376, 64),
]

VIEWS: dict[str, Callable[[], Drawing]] = {
    "card": lambda: layout_card(Layout((4, (2, 4)), (2, (1, 8))), highlight=(2, None)),
    "card of one mode": lambda: layout_card(Layout(100, 3)),
    "card of 16 x 64": lambda: layout_card(smem_tile("128B", "k", "bf16", 16, 64)),
    "card of 64 x 16": lambda: layout_card(Layout((64, 16), (16, 1))),
    "card of basis strides": lambda: layout_card(Layout((4, 3), (E(0), E(1)))),
    "card with large offsets": lambda: layout_card(Layout((16, 64), (100_000, 7))),
    "card with negative strides": lambda: layout_card(Layout((4, 8), (-8, 1)), title="downwards", colours="columns"),
    "compose": lambda: algebra_strip("compose", Layout((4, 8), (8, 1)), Layout((2, 4), (2, 4))),
    "complement": lambda: algebra_strip("complement", Layout((2, 2), (1, 6)), 24),
    "divide": lambda: algebra_strip("logical_divide", Layout(24, 2), Layout(4, 2)),
    "product": lambda: algebra_strip("logical_product", Layout((2, 2), (4, 1)), 6),
    "right inverse": lambda: algebra_strip("right_inverse", Layout((4, 8), (8, 1))),
    "left inverse": lambda: algebra_strip("left_inverse", Layout(4, 2)),
    "coalesce": lambda: algebra_strip("coalesce", Layout((2, (1, 6)), (1, (6, 2)))),
    "bits": lambda: swizzle_bits(Swizzle(3, 4, 3), address=0x380),
    "bits of a negative shift": lambda: swizzle_bits(Swizzle(2, 0, -3), bits=20, unit_bytes=2),
    "bits of the identity": lambda: swizzle_bits(Swizzle(0, 4, 3)),
    "bank map of chunks": lambda: bank_map(CHUNKS, 16, Swizzle(3, 0, 3), 16),
    "bank map of halves": lambda: bank_map(Layout((8, 64), (64, 1)), 2, Swizzle(3, 3, 3)),
    "bank map of 16 x 64": lambda: bank_map(Layout((16, 64), (64, 1)), 4, colours="rows"),
    "access of chunks": lambda: access_map(CHUNKS, CHUNK_COLUMN, Swizzle(3, 0, 3)),
    "access with shared words": lambda: access_map(FLOATS, SHARED_WORDS),
    "access of ldmatrix": lambda: access_map(HALVES, LDMATRIX, Swizzle(3, 3, 3)),
    "atlas of floats": lambda: swizzle_atlas(FLOATS, [COLUMN, ROW]),
    "atlas of halves": lambda: swizzle_atlas(HALVES, [LDMATRIX, Access(16, op="tma", element_bytes=2)]),
    "descriptor of Hopper": lambda: descriptor_view(smem_tile("128B", "k", "bf16", 64, 64)),
    "descriptor of Blackwell": lambda: descriptor_view(
        smem_tile("none", "mn", "bf16", 64, 64), arch="sm_100a", major="mn"
    ),
    "tensor map": lambda: tensor_map_view(TensorMap("bf16", (256, 128), (512,), (64, 64), swizzle="128B")),
    "tensor map refused": lambda: tensor_map_view(TensorMap("f16", (100, 256), (200,), (64, 64), swizzle="128B")),
    "wgmma": lambda: fragment_view(wgmma_d_layout(16), 64, "wgmma m64n16 accumulator"),
    "mma.sync": lambda: beside(
        fragment_view(mma_a_layout(16, 8, 16, "bf16"), 16, "A"), fragment_view(mma_d_layout(16, 8, 16, "bf16"), 16, "D")
    ),
    "ldmatrix": lambda: fragment_view(ldmatrix_layout(4, True), 32, "ldmatrix.x4.trans", row_major=8),
    "tensor memory load": lambda: tensor_memory_view(tensor_memory_access("16x256b", 2)),
    "tensor memory accumulator": lambda: tensor_memory_map(accumulator_layout(64, 16)),
    "shared memory": lambda: shared_memory_map(PARTS, {"tiles of A": 4, "tiles of B": 4}),
    "tile order": lambda: tile_order(GROUPED, 16, panel=4),
    "several": lambda: stack(layout_card(Layout((2, 2))), beside(layout_card(Layout(3)), layout_card(Layout(4, 2)))),
}
