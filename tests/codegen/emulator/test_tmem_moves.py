"""tcgen05.ld, st and cp: every shape, repeat and multicast moves the words that CuTe's layouts say, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationError, UnsupportedInstruction, emulate_ptx
from stridewright.codegen.emulator.ops_tcgen05 import COPIES
from stridewright.layout import size
from stridewright.layout.hardware import (
    matrix_descriptor,
    smem_tile,
    tensor_memory_access,
    tensor_memory_copies,
    tensor_memory_copy,
)

HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"
COLUMNS = 512


def vector(first: int, count: int) -> str:
    return "{" + ", ".join(f"%w{first + number}" for number in range(count)) + "}"


def kernel(body: str) -> str:
    """A block of 128 threads that owns all of tensor memory: filled from `before`, then `body`, then written to `after`."""
    fill, dump = [], []
    for column in range(0, COLUMNS, 64):
        fill += [f"ld.global.b32 %w{n}, [%before+{4 * (column + n)}];" for n in range(64)]
        fill.append(f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%row+{column}], {vector(0, 64)};")
        dump += [
            f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {vector(0, 64)}, [%row+{column}];",
            "tcgen05.wait::ld.sync.aligned;",
        ]
        dump += [f"st.global.b32 [%after+{4 * (column + n)}], %w{n};" for n in range(64)]
    lines = [
        ".reg .b32 %w<129>; .reg .b32 %t<9>; .reg .b64 %d<9>; .reg .b64 %before; .reg .b64 %after; .reg .b64 %data; .reg .b32 %row; .reg .pred %p<4>;",
        ".shared .align 4 .b32 slot; .shared .align 8 .b64 done; .shared .align 1024 .b8 tile[8192];",
        "ld.param.u64 %before, [p0]; ld.param.u64 %after, [p1]; ld.param.u64 %data, [p2];",
        "mov.u32 %t0, %tid.x; mul.wide.u32 %d0, %t0, 2048; add.s64 %before, %before, %d0; add.s64 %after, %after, %d0;",
        "shr.u32 %t1, %t0, 5; setp.eq.u32 %p0, %t1, 0; setp.eq.u32 %p1, %t0, 0; mov.u32 %t2, slot; mov.u32 %t6, done;",
        "@!%p0 bra ready;",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%t2], 512; tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
        "@!%p1 bra ready; mbarrier.init.shared::cta.b64 [%t6], 1; fence.mbarrier_init.release.cluster;",
        "ready: bar.sync 0; ld.shared.b32 %t3, [%t2]; shl.b32 %t4, %t1, 21; add.u32 %row, %t3, %t4;",
        *fill, "tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;",
        body,
        "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;",
        *dump, "bar.sync 0; @!%p0 bra over; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t3, 512; over: ret;",
    ]  # fmt: skip
    return f"{HEAD}.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2) {{\n" + "\n".join(lines) + "\n}\n"


def run(body: str, data: NDArray[Any], seed: int = 0) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Tensor memory before and after."""
    before = np.random.default_rng(1).integers(0, 1 << 32, (128, COLUMNS), np.uint32)
    after = np.zeros_like(before)
    result = emulate_ptx(kernel(body), "k", 1, 128, [before, after, data], seed=seed)
    assert [str(race) for race in result.races] == []
    return before, after


def forms() -> list[tuple[str, int, bool, int, int, int]]:
    """(shape, repeat, packed, split, column, first lane)."""
    found = []
    for shape, largest in (("32x32b", 128), ("16x64b", 128), ("16x128b", 64), ("16x256b", 32), ("16x32bx2", 128)):
        for number, repeat in enumerate((1, 2, 8, largest)):
            for packed in (False, True):
                width = tensor_memory_access(shape, repeat, packed).columns
                if width <= COLUMNS:
                    upper = 16 if shape != "32x32b" and number % 2 else 0
                    split = width // 2 + 8 * (width < 256) if shape == "16x32bx2" else 0
                    found.append((shape, repeat, packed, split, 32 if width < 256 else 0, upper))
    return found


def words_of(shape: str, repeat: int, packed: bool, split: int, thread: int, register: int) -> list[tuple[int, int]]:
    """(lane, column) of a register's word, or of its two halves."""
    access = tensor_memory_access(shape, repeat, packed)
    lane, column = access.place(thread, register, split if shape == "16x32bx2" else None)
    return [(lane, column), (lane, column + 1)] if packed else [(lane, column)]


@pytest.mark.parametrize("form", forms(), ids=str)
def test_a_load_brings_the_words_of_its_shape(form: tuple[str, int, bool, int, int, int]) -> None:
    shape, repeat, packed, split, column, upper = form
    count = tensor_memory_access(shape, repeat, packed).register_count
    address = f"[%row+{(upper << 16) + column}]" + (f", {split}" if shape == "16x32bx2" else "")
    body = [
        f"tcgen05.ld.sync.aligned.{shape}.x{repeat}{'.pack::16b' if packed else ''}.b32 {vector(0, count)}, {address};"
    ]
    body += ["tcgen05.wait::ld.sync.aligned;", f"mul.wide.u32 %d1, %t0, {4 * count}; add.s64 %d2, %data, %d1;"]
    body += [f"st.global.b32 [%d2+{4 * n}], %w{n};" for n in range(count)]
    data = np.zeros((128, count), np.uint32)
    before, after = run("\n".join(body), data, seed=repeat)
    assert (after == before).all()
    for thread in range(128):
        base = thread // 32 * 32 + upper
        for register in range(count):
            places = words_of(shape, repeat, packed, split, thread % 32, register)
            words = [int(before[base + lane, column + at]) for lane, at in places]
            wanted = words[0] if not packed else words[0] & 0xFFFF | (words[1] & 0xFFFF) << 16
            assert int(data[thread, register]) == wanted


@pytest.mark.parametrize("form", forms(), ids=str)
def test_a_store_puts_words_where_a_load_finds_them(form: tuple[str, int, bool, int, int, int]) -> None:
    shape, repeat, packed, split, column, upper = form
    count = tensor_memory_access(shape, repeat, packed).register_count
    address = f"[%row+{(upper << 16) + column}]" + (f", {split}" if shape == "16x32bx2" else "")
    body = [f"mul.wide.u32 %d1, %t0, {4 * count}; add.s64 %d2, %data, %d1;"]
    body += [f"ld.global.b32 %w{n}, [%d2+{4 * n}];" for n in range(count)]
    body += [
        f"tcgen05.st.sync.aligned.{shape}.x{repeat}{'.unpack::16b' if packed else ''}.b32 {address}, {vector(0, count)};"
    ]
    body += ["tcgen05.wait::st.sync.aligned;"]
    data = np.random.default_rng(2).integers(0, 1 << 32, (128, count), np.uint32)
    before, after = run("\n".join(body), data, seed=repeat)
    wanted = before.copy()
    for thread in range(128):
        base = thread // 32 * 32 + upper
        for register in range(count):
            value = int(data[thread, register])
            places = words_of(shape, repeat, packed, split, thread % 32, register)
            for half, (lane, at) in enumerate(places):
                wanted[base + lane, column + at] = value >> 16 * half & 0xFFFF if packed else value
    assert (after == wanted).all()


# -- cp --------------------------------------------------------------------------------------------------------------------------

FILL = (
    "mul.wide.u32 %d1, %t0, 64; add.s64 %d2, %data, %d1; mov.u32 %t5, tile; shl.b32 %t7, %t0, 6; add.u32 %t7, %t7, %t5;"
    + "".join(f"ld.global.b32 %w0, [%d2+{4 * n}]; st.shared.b32 [%t7+{4 * n}], %w0;" for n in range(16))
    + "fence.proxy.async.shared::cta; bar.sync 0;"
)
WAIT = (
    "again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%t6], 0; @!%p2 bra again; tcgen05.fence::after_thread_sync;"
)
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%t6];"


def copy_body(name: str, swizzle: str) -> tuple[str, Any]:
    """A copy to column 40 by thread 0, and the layout (row, byte) of the tile it reads."""
    shape = name.split(".")[0]
    rows, bits = (int(part) for part in shape[:-1].split("x"))
    tile = smem_tile(
        swizzle,
        "k",
        "u8",
        max(rows, 8),
        max(bits // 8, 32 if swizzle == "none" else {"32B": 32, "64B": 64, "128B": 128}[swizzle]),
    )
    word = matrix_descriptor(tile, "u8", "sm_100a")
    body = f"""{FILL}
@!%p1 bra waits; and.b32 %t7, %t5, 262143; shr.u32 %t7, %t7, 4; cvt.u64.u32 %d3, %t7; add.u64 %d3, %d3, {word};
add.u32 %t7, %t3, 40; tcgen05.cp.cta_group::1.{name} [%t7], %d3; {COMMIT}
waits: {WAIT}"""
    return body, tile


@pytest.mark.parametrize("swizzle", ["none", "32B"])
@pytest.mark.parametrize("name", [copy.name for copy in tensor_memory_copies()])
def test_a_copy_moves_rows_to_the_lanes_of_its_shape(name: str, swizzle: str) -> None:
    shape, _, multicast = name.partition(".")
    body, tile = copy_body(name, swizzle)
    data = np.random.default_rng(3).integers(0, 256, 8192).astype(np.uint8)
    before, after = run(body, data)
    copy = tensor_memory_copy(shape, multicast)
    wanted = before.copy()
    for number in range(int(size(copy.destination))):
        place = int(copy.value_id(int(copy.destination(0, number))))
        if place % 32:
            continue
        lane, column = place >> 21, place % (1 << 21) // 32
        row = next(row for row, lanes in enumerate(COPIES[shape, multicast][2]) if lane in lanes)
        raw = np.array([data[int(tile(row, 4 * column + byte))] for byte in range(4)], np.uint8)
        wanted[lane, 40 + column] = raw.view(np.uint32)[0]
    assert (after == wanted).all()


@pytest.mark.parametrize("name", [copy.name for copy in tensor_memory_copies()])
def test_the_rows_of_a_copy_go_where_cute_says(name: str) -> None:
    """COPIES, which the emulator uses, and CuTe's source and destination layouts name the same lanes for every row."""
    shape, _, multicast = name.partition(".")
    copy = tensor_memory_copy(shape, multicast)
    rows, _, lanes = COPIES[shape, multicast]
    assert rows == int(shape.split("x")[0])
    reached = {int(copy.value_id(int(copy.destination(0, n)))) >> 21 for n in range(int(size(copy.destination)))}
    assert reached == {lane for row in lanes for lane in row}
    if not multicast:
        return
    for number in range(int(size(copy.source))):
        source = int(copy.value_id(int(copy.source(0, number)))) >> 21
        target = int(copy.value_id(int(copy.destination(0, number)))) >> 21
        row = next(row for row, places in enumerate(lanes) if source in places)
        assert target in lanes[row]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("add.u32 %t7, %t3, 40", "add.u32 %t7, %t3, 510"), "there are columns 0..511"),
        (("add.u32 %t7, %t3, 40", "add.u32 %t7, %t3, 65536"), "its rows begin at lane 0"),
        (("add.u64 %d3, %d3, ", "add.u64 %d3, %d3, 4096; add.u64 %d3, %d3, "), "reads shared addresses"),
    ],
)
def test_a_copy_out_of_place_is_refused(change: tuple[str, str], message: str) -> None:
    body, _ = copy_body("128x256b", "none")
    assert change[0] in body
    with pytest.raises(EmulationError, match=message):
        run(body.replace(*change), np.zeros(8192, np.uint8))


@pytest.mark.parametrize(
    "text",
    [
        "tcgen05.cp.cta_group::1.32x128b [%t7], %d3;",
        "tcgen05.cp.cta_group::1.128x256b.b4x16_p64 [%t7], %d3;",
        "tcgen05.cp.cta_group::1.128x256b.b8x16 [%t7], %d3;",
        "tcgen05.cp.128x256b [%t7], %d3;",
        "tcgen05.shift.cta_group::1.down [%t7];",
        "tcgen05.ld.sync.aligned.16x256b.x64.b32 {%w0, %w1}, [%t7];",
        "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%w0}, [%t7];",
        "tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {%w0, %w1}, %w2, [%t7];",
        "tcgen05.mma.cta_group::1.kind::mxf4 [%t7], %d3, %d3, %t1, %p0;",
        "tcgen05.mma.sp.cta_group::1.kind::f16 [%t7], %d3, %d3, [%t1], %t1, %p0;",
        "tcgen05.mma.cta_group::1.kind::f16.ashift [%t7], [%t1], %d3, %t1, %p0;",
        "tcgen05.wait::cp.sync.aligned;",
        "tcgen05.fence::around_thread_sync;",
    ],
)
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedInstruction):
        run(text, np.zeros(8192, np.uint8))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100", "sm_120a"])
def test_other_targets_have_no_tensor_memory(target: str) -> None:
    with pytest.raises(UnsupportedInstruction, match="tcgen05 is for sm_100a"):
        emulate_ptx(kernel("").replace("sm_100a", target), "k", 1, 128, [np.zeros(65536, np.uint32)] * 3)
