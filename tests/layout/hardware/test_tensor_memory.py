"""Every tensor-memory fragment and copy that CuTe's headers printed, and the closed forms of PTX."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from stridewright.layout import Layout, size
from stridewright.layout.hardware import HardwareError
from stridewright.layout.hardware import tensor_memory as tm
from stridewright.layout.hardware import tensor_memory_moves as tc

from .cute_oracle import TEXT, blocks, layout

FRAGMENTS: dict[str, Any] = {
    "1SM M=64  N=128 f32 (Layout F)": lambda: tm.accumulator_tiles(64, 128),
    "1SM M=64 x2 MMA_M Interleaved": lambda: tm.accumulator_tiles(64, 128, 2, interleaved=True),
    "1SM M=64 x2 NonInterleaved": lambda: tm.accumulator_tiles(64, 128, 2),
    "1SM M=128 N=256 f32 (Layout D)": lambda: tm.accumulator_tiles(128, 256),
    "1SM M=128 N=128 x(2,2)": lambda: tm.accumulator_tiles(128, 128, 2, 2),
    "2SM M=128 (64 per CTA) N=256 (Layout B)": lambda: tm.accumulator_tiles(128, 256, cta_group=2),
    "2SM M=256 (128 per CTA) N=256 (Layout A)": lambda: tm.accumulator_tiles(256, 256, cta_group=2),
    # 32 rows a CTA: no dense tcgen05.mma makes it, but the fragment is that of layout G.
    "2SM M_MMA_SM=32 N=256 1x4": lambda: tm.accumulator_tiles(32, 256, ws=True),
    "WS M=32 N=256 (Layout G)": lambda: tm.accumulator_tiles(32, 256, ws=True),
    "WS M=64 N=256 (Layout E)": lambda: tm.accumulator_tiles(64, 256, ws=True),
    "WS M=128 N=256 (Layout D)": lambda: tm.accumulator_tiles(128, 256, ws=True),
    "1SM M=128 N=256 f16 in 32-bit cells": lambda: tm.accumulator_tiles(128, 256, value_bits=16),
    "A in TMEM 1SM M=128 K=16 bf16 packed x4 k": lambda: tm.operand_a_layout(128, 16, steps=4),
    "A in TMEM 1SM M=64 K=16 bf16": lambda: tm.operand_a_layout(64, 16, steps=4),
    "A in TMEM 2SM M=128 (64/CTA) bf16 dup": lambda: tm.operand_a_layout(128, 16, cta_group=2, steps=4),
    "SFA mxf8 VS32 M=128 K=32 x4k": lambda: tm.scale_layout("mxf8f6f4", 128, 32, 4),
    "SFA nvf4 VS16 M=128 K=64 x4k": lambda: tm.scale_layout("mxf4nvf4", 128, 16, 4),
    "SFA mxf4 VS32 M=128 K=64 x4k": lambda: tm.scale_layout("mxf4", 128, 32, 4),
    "SFB mxf8 VS32 N=256 K=32 x4k": lambda: tm.scale_layout("mxf8f6f4", 256, 32, 4),
    "SFB nvf4 VS16 N=256 K=64 x4k": lambda: tm.scale_layout("mxf4nvf4", 256, 16, 4),
    "SFB 2x2 dp nvf4 N=256": lambda: tm.scale_layout("mxf4nvf4", 256, 16, two_by_two=True),
}


def printed_fragments() -> dict[str, Layout]:
    lines = re.findall(r"^TMEM (.*?)\s+shape \S+ -> (\S+)$", TEXT, re.MULTILINE)
    return {name: layout(text) for name, text in lines}


def test_every_printed_fragment_has_a_derivation() -> None:
    assert set(printed_fragments()) == set(FRAGMENTS)


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragment_equals_cutes(name: str) -> None:
    assert FRAGMENTS[name]() == printed_fragments()[name]


def copy_blocks(prefix: str) -> list[tuple[str, dict[str, str]]]:
    return [(name, fields) for name, fields in blocks("COPY") if name.startswith(prefix)]


def test_no_line_of_the_oracle_is_left_out() -> None:
    """Each line is a heading, or one that a parser here or in the tests of traits and descriptors takes."""
    taken = (
        r"#.*|==.*|-- scale factors.*|",
        r"MMA (SM100_MMA_|SM90::GMMA::)\S.*",
        r"  (MNK|ThrID|ALayout|BLayout|CLayout|idesc|ValID\(bit\)|Src|Dst) +\S.*",
        r"TMEM .*  shape \S+ -> \S+",
        r"COPY SM100_(TMEM_(LOAD|STORE)|UTCCP)_\S+",
        r"[UG]DESC \w+ +(K|MN) .*",
        r"     desc=0x[0-9a-f]{16} .*desc-iter layout \S+",
    )
    for line in TEXT.splitlines():
        assert any(re.fullmatch(pattern, line) for pattern in taken), line
    assert TEXT.count("\nCOPY ") == 19 + len(CP)
    assert TEXT.count("DESC ") == 22
    assert TEXT.count("\nTMEM ") == len(FRAGMENTS)
    assert TEXT.count("\nMMA ") == 19 + 6


def same_map(a: Layout, b: Layout) -> bool:
    count = int(size(a))
    if count != int(size(b)):
        return False
    return a == b or [a(i) for i in range(count)] == [b(i) for i in range(count)]


def test_loads_and_stores_equal_cutes() -> None:
    seen = 0
    for kind in ("LOAD", "STORE"):
        for name, fields in copy_blocks(f"SM100_TMEM_{kind}_"):
            match = re.fullmatch(r"SM100_TMEM_\w+_(\d+)dp(\d+)b(\d+)x(_16b)?", name)
            assert match, name
            lanes, width, repeat, packed = match.groups()
            shape = "16x32bx2" if (lanes, width) == ("16", "32") else f"{lanes}x{width}b"
            access = tc.tensor_memory_access(shape, int(repeat), bool(packed))
            assert same_map(access.value_id, layout(fields["ValID(bit)"])), name
            registers = fields["Dst" if kind == "LOAD" else "Src"]
            assert same_map(access.registers, layout(registers)), name
            assert str(access.registers) == registers.replace("_", ""), name
            assert access.memory == layout(fields["Src" if kind == "LOAD" else "Dst"]), name
            assert fields["ThrID"] == "_32:_1", name
            seen += 1
    assert seen == 19


CP = {
    "SM100_UTCCP_128dp256bit_1cta": ("128x256b", ""),
    "SM100_UTCCP_128dp128bit_1cta": ("128x128b", ""),
    "SM100_UTCCP_4dp256bit_1cta": ("4x256b", ""),
    "SM100_UTCCP_4x32dp128bit_1cta": ("32x128b", "warpx4"),
    "SM100_UTCCP_2x64dp128bitlw0213_1cta": ("64x128b", "warpx2::02_13"),
    "SM100_UTCCP_2x64dp128bitlw0123_1cta": ("64x128b", "warpx2::01_23"),
}


def test_copies_from_shared_memory_equal_cutes() -> None:
    printed = dict(copy_blocks("SM100_UTCCP_"))
    assert set(printed) == set(CP)
    for name, fields in printed.items():
        copy = tc.tensor_memory_copy(*CP[name])
        assert copy.value_id == layout(fields["ValID(bit)"])
        assert copy.source == layout(fields["Src"])
        assert copy.destination == layout(fields["Dst"])


# PTX ISA 9.1 section 9.7.16.8.1: (lane, column) of thread t's register r.
CLOSED = {
    "32x32b": lambda t, r: (t, r),
    "16x64b": lambda t, r: ((t >> 2) + 8 * (t & 1), 2 * r + ((t >> 1) & 1)),
    "16x128b": lambda t, r: ((t >> 2) + 8 * (r & 1), 4 * (r >> 1) + (t & 3)),
    "16x256b": lambda t, r: ((t >> 2) + 8 * ((r >> 1) & 1), 8 * (r >> 2) + 2 * (t & 3) + (r & 1)),
}


@pytest.mark.parametrize("shape", CLOSED)
def test_every_repeat_of_a_load_follows_the_closed_form(shape: str) -> None:
    for repeat in tc.REPEATS:
        if repeat > tc.LOAD_SHAPES[shape][3]:
            continue
        access = tc.tensor_memory_access(shape, repeat)
        for thread in range(32):
            for register in range(access.register_count):
                assert access.place(thread, register) == CLOSED[shape](thread, register)


def test_16x32bx2_takes_its_second_half_from_the_split() -> None:
    access = tc.tensor_memory_access("16x32bx2", 4)
    for thread in range(32):
        for register in range(4):
            assert access.place(thread, register, split=64) == (thread & 15, register + (64 if thread >= 16 else 0))
    with pytest.raises(HardwareError, match="split"):
        access.place(0, 0)


def test_every_load_reads_each_cell_once() -> None:
    for shape, (lanes, _, _, largest) in tc.LOAD_SHAPES.items():
        for repeat in (1, 2, largest):
            access = tc.tensor_memory_access(shape, repeat)
            cells = {access.place(t, r, split=256) for t in range(32) for r in range(access.register_count)}
            assert len(cells) == 32 * access.register_count
            assert {lane for lane, _ in cells} == set(range(lanes))


# facts of PTX 9.7.16.5: (lane, column) of element (row in this CTA, n).
PATHS = [
    ((128, 1, False, False), "D", lambda m, n, N: (m, n)),
    ((256, 2, False, False), "A", lambda m, n, N: (m % 128, n)),
    ((64, 1, False, False), "F", lambda m, n, N: (m % 16 + 32 * (m // 16), n)),
    ((128, 2, False, False), "B", lambda m, n, N: (m % 64 + 64 * (n >= N // 2), n % (N // 2))),
    ((128, 2, False, True), "C", lambda m, n, N: (m % 16 + 32 * (m // 16), n)),
    ((128, 1, True, False), "D", lambda m, n, N: (m, n)),
    ((64, 1, True, False), "E", lambda m, n, N: (m % 64 + 64 * (n >= N // 2), n % (N // 2))),
    ((32, 1, True, False), "G", lambda m, n, N: (m + 32 * (n // (N // 4)), n % (N // 4))),
]


@pytest.mark.parametrize(("form", "letter", "place"), PATHS, ids=[f"{p[1]}-{p[0]}" for p in PATHS])
def test_accumulators_follow_the_data_paths(form: tuple[int, int, bool, bool], letter: str, place: Any) -> None:
    m, cta_group, ws, sparse = form
    assert tm.data_path(m, cta_group, ws, sparse) == letter
    for n in (64, 128, 256):
        accumulator = tm.accumulator_layout(m, n, cta_group, ws, sparse)
        rows = int(size(accumulator[0]))
        words = accumulator(np.arange(rows * n)).reshape(n, rows).T
        lane, column = place(np.arange(rows)[:, None], np.arange(n)[None, :], n)
        assert np.array_equal(words, (lane << 16) + column)
        assert max(place(0, column, n)[1] for column in range(n)) + 1 == tm.accumulator_columns(
            m, n, cta_group, ws, sparse
        )


def test_scale_factor_bytes_follow_the_closed_form() -> None:
    smem = tm.scale_smem_layout()
    for row in range(128):
        for k in range(4):
            assert smem(row, k * 32) == row % 32 * 16 + row // 32 * 4 + k
    for rows, columns in ((128, 4), (256, 8)):
        scales = tm.scale_layout("mxf4nvf4", rows, 16)
        assert tm.scale_columns(rows, 4) == columns
        for row in range(rows):
            for replica in range(4):
                for k in range(4):
                    cell = int(scales((((row % 32, row // 32), replica), (0, k)), 0, 0))
                    assert (cell >> 18, (cell & 0x3FFFF) // 4, cell % 4) == (row % 32 + 32 * replica, row // 32, k)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tm.tmem_address(128, 0), "128 lanes of 512 columns"),
        (lambda: tm.data_path(96), "M may be 64, 128"),
        (lambda: tm.data_path(128, 2, True), "none: .ws"),
        (lambda: tm.accumulator_layout(32, 66, ws=True), "nearest 64, 72"),
        (lambda: tm.accumulator_layout(128, 64, value_bits=64), "8, 16 or 32"),
        (lambda: tm.accumulator_tiles(128, 64, 2, interleaved=True), "two tiles along M"),
        (lambda: tm.scale_layout("mxf8f6f4", 128, 16), "mxf8f6f4 with 32"),
        (lambda: tm.scale_layout("mxf4", 100, 32), "multiples of 128"),
        (lambda: tm.scale_smem_layout(64), "128 rows"),
        (lambda: tm.mma_operand_layouts(128, 128, 16, 3), "1 or 2"),
        (lambda: tc.tensor_memory_access("16x512b"), "must be one of"),
        (lambda: tc.tensor_memory_access("16x256b", 64), "x32"),
        (lambda: tc.tensor_memory_access("32x32b", 3), "x1, x2, x4"),
        (lambda: tc.tensor_memory_copy("64x128b"), "warpx2::02_13"),
    ],
)
def test_what_does_not_exist_is_refused(call: Any, message: str) -> None:
    with pytest.raises(HardwareError, match=message):
        call()
