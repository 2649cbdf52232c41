"""One picture or more of every view, at default size."""

from __future__ import annotations

from collections.abc import Callable

from stridewright.layout import E, Layout, Swizzle
from stridewright.layout.banks import Access
from stridewright.layout.draw import (
    AccessNode,
    Drawing,
    Edge,
    Kind,
    LinkedCell,
    LinkedTable,
    Node,
    Roof,
    RooflinePoint,
    SourceLine,
    TimelineBar,
    Track,
    TunePoint,
    access_map,
    algebra_strip,
    bank_map,
    beside,
    descriptor_view,
    fragment_view,
    layout_card,
    linked_source,
    model_scatter,
    pipeline_timeline,
    race_view,
    roofline,
    shared_memory_map,
    stack,
    swizzle_atlas,
    swizzle_bits,
    tensor_map_view,
    tensor_memory_map,
    tensor_memory_view,
    tile_order,
    tuner_landscape,
    wait_graph,
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

WORK = (
    Kind("multiply", "k0", "#", "multiplies"),
    Kind("bubble", "h5", "!", "stands still"),
    Kind("copy", "k2", "=", "copies"),
)
TRACKS = (
    Track(
        "tensor core",
        (
            TimelineBar(0, 40, "bubble", "waits for full[0]", "40", ("full[0]",)),
            *(TimelineBar(40 + 16 * i, 56 + 16 * i, "multiply", f"number {i}") for i in range(8)),
        ),
    ),
    Track(
        "copies",
        tuple(TimelineBar(10 * i, 10 * i + 36, "copy", f"box {i}", f"{i}", (f"full[{i}]",)) for i in range(6)),
        "issued by warp 0",
    ),
)
RING = (
    [
        Node("producer", ("waits for parity 0 of empty[0]", "at k.cu:105 (inlined at 478, 552, 669; PTX line 1793)")),
        Node("consumer", ("waits for parity 0 of full[0]",)),
    ],
    [
        Node("empty[0]", ("phase 0", "lacks 8 of 8 arrivals"), ("init 8",)),
        Node("full[0]", ("phase 0", "lacks 1 of 1 arrivals")),
    ],
    [
        Edge("producer", "empty[0]", "waits"),
        Edge("empty[0]", "consumer", "supposed"),
        Edge("consumer", "full[0]", "waits"),
        Edge("full[0]", "producer", "owes"),
    ],
)
TUNED = [
    TunePoint(f"n{n}_s{s}", {"tile_n": n, "stages": s}, (abs(n - 176) + 3 * abs(s - 5) + 200) * 1e-6, (n + 30) * 1e-6)
    for n in (96, 128, 176, 256)
    for s in (3, 4, 5, 7)
    if n * s < 1200
]
CHIP = Roof("chip", 989e12, 4.8e12)
DERIVED = (
    [
        LinkedTable(
            "tile",
            ("0", "1", "8"),
            ("0", "8"),
            tuple(
                tuple(
                    LinkedCell(str(128 * r + 16 * c), f"row {r}", ("PITCH",) if (r, c) in ((0, 0), (1, 0)) else ())
                    for c in range(2)
                )
                for r in (0, 1, 8)
            ),
            "row  k",
            ("(8,64):(64,1)",),
        )
    ],
    [
        SourceLine("A slot"),
        SourceLine("constexpr int PITCH = 128;", ("PITCH",), "from row 0 to row 1"),
        SourceLine("    return PITCH;", ("PITCH",)),
    ],
)

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
    "pipeline": lambda: pipeline_timeline(TRACKS, WORK, notes=["a model, not a measurement"]),
    "pipeline, a part": lambda: pipeline_timeline(TRACKS, WORK, (30.0, 60.0), "part"),
    "deadlock": lambda: wait_graph(*RING),
    "race": lambda: race_view(
        "write after read",
        AccessNode(
            "read",
            "wgmma of warpgroup 1 of block (0, 0, 0)",
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
            "k.cu:323",
        ),
        AccessNode(
            "write",
            "copies on full[0]",
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile",
            "k.cu:140 (inlined at 563)",
        ),
        "wgmma.wait_group for the group that reads this memory",
        70_000,
        PARTS,
        "B(3, 8) of slot 0",
    ),
    "race in global memory": lambda: race_view(
        "write after write",
        AccessNode("write", "warp 0", "st", "k.cu:3"),
        AccessNode("write", "warp 1", "st", "k.cu:4"),
        "a barrier",
        0x7F00,
        space="global",
    ),
    "landscape": lambda: tuner_landscape(TUNED, "tile_n", "stages", "n128_s4"),
    "model and measurement": lambda: model_scatter(TUNED),
    "roofline": lambda: roofline([CHIP], [RooflinePoint("square", 1365, 676e12), RooflinePoint("decode", 16, 60e12)]),
    "layout and source": lambda: linked_source(*DERIVED),
}
