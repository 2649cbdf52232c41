"""Tensor copies that only sm_100a has: four rows anywhere (gather4, scatter4), and barriers in the other block of a pair (cta_group::2)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from stridewright.codegen import nvrtc
from stridewright.codegen.emulator import (
    DeadlockError,
    EmulationError,
    TensorMapArgument,
    UnsupportedInstruction,
    emulate_ptx,
)
from stridewright.layout.hardware import TensorMap

from .cuda_pieces import WRAPPERS


@functools.cache
def compiled(source: str) -> str:
    return nvrtc.compile(source, "sm_100a", ("-lineinfo",), "test.cu").ptx


FOUR = (
    WRAPPERS
    + """
extern "C" __global__ void gather(const __grid_constant__ Map map, u32 *out, int words, int column, int r0, int r1, int r2, int r3) {
    extern __shared__ __align__(1024) u32 tile[];
    __shared__ u64 full;
    for (int i = threadIdx.x; i < words; i += 32) tile[i] = 0xABABABAB;
    if (threadIdx.x == 0) {
        init(&full, 1); fence_init(); fence_async();
        expect(&full, BYTES);
        ASM("cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%0, {%1, %2, %3, %4, %5}];"
            :: "l"(&map), "r"(column), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
        ASM("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
            :: "r"(shared(tile) + START), "l"(&map), "r"(column), "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(shared(&full)) : "memory");
    }
    __syncthreads();
    wait(&full, 0);
    for (int i = threadIdx.x; i < words; i += 32) out[i] = tile[i];
}
extern "C" __global__ void scatter(const __grid_constant__ Map map, const u32 *in, int words, int column, int r0, int r1, int r2, int r3) {
    extern __shared__ __align__(1024) u32 tile[];
    for (int i = threadIdx.x; i < words; i += 32) tile[i] = in[i];
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        ASM("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];"
            :: "l"(&map), "r"(column), "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(shared(tile)) : "memory");
        store_commit(); store_wait<0>();
    }
}
"""
)
SPANS = {"none": 0, "32B": 1, "64B": 3, "128B": 7}


def lands(address: int, swizzle: str) -> int:
    """The swizzle's definition: address bits from 7 on go, exclusive-or, into those from 4 on."""
    return address ^ ((address >> 7 & SPANS[swizzle]) << 4)


def expected_tile(array: Any, rows: list[int], column: int, width: int, swizzle: str, start: int, size: int) -> Any:
    """Byte by byte: row i of the copy lies at i row pitches, zeros where the matrix ends."""
    tile = np.full(size, 0xAB, np.uint8)
    data = array.view(np.uint8).reshape(array.shape[0], -1)
    pitch = width if swizzle == "none" else int(swizzle[:-1])
    first = column * array.itemsize
    for number, row in enumerate(rows):
        for byte in range(width):
            inside = 0 <= row < data.shape[0] and 0 <= first + byte < data.shape[1]
            tile[lands(start + number * pitch + byte, swizzle)] = data[row, first + byte] if inside else 0
    return tile


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("start", [0, 128, 896])
def test_four_rows_land_side_by_side(swizzle: str, start: int) -> None:
    columns = {"none": 24, "32B": 16, "64B": 32, "128B": 64}[swizzle]
    array = np.random.default_rng(1).integers(0, 1 << 16, (40, 80)).astype(np.uint16)
    tensor_map = TensorMap("u16", (80, 40), (160,), (columns, 1), swizzle, arch="sm_100a")
    source = f"#define BYTES {8 * columns}\n#define START {start}\n" + FOUR
    for seed, (column, rows) in enumerate(
        [(0, [3, 39, 0, 3]), (16, [7, 8, 9, 10]), (64, [1, 40, -1, 1000]), (-16, [2, 4, 6, 8])]
    ):
        out = np.zeros(512, np.uint32)
        arguments = [TensorMapArgument(tensor_map, array), out, np.int32(512), np.int32(column), *map(np.int32, rows)]
        result = emulate_ptx(compiled(source), "gather", 1, 32, arguments, shared=3072, seed=seed)
        want = expected_tile(array, rows, column, 2 * columns, swizzle, start, 2048)
        # The tile's own alignment is 1024 bytes, so that offsets in it swizzle as addresses do.
        assert np.array_equal(out.view(np.uint8), want), (column, rows)
        assert result.races == ()


@pytest.mark.parametrize("swizzle", SPANS)
def test_four_rows_are_written_where_they_are_named(swizzle: str) -> None:
    columns = {"none": 24, "32B": 16, "64B": 32, "128B": 64}[swizzle]
    tensor_map = TensorMap("u16", (80, 40), (160,), (columns, 1), swizzle, arch="sm_100a")
    tile = np.random.default_rng(2).integers(0, 256, 1024).astype(np.uint8)
    source = "#define BYTES 0\n#define START 0\n" + FOUR
    for column, rows in [(0, [3, 39, 0, 5]), (64, [7, 40, 9, 100])]:
        array = np.zeros((40, 80), np.uint16)
        arguments = [
            TensorMapArgument(tensor_map, array),
            tile.view(np.uint32),
            np.int32(256),
            np.int32(column),
            *map(np.int32, rows),
        ]
        result = emulate_ptx(compiled(source), "scatter", 1, 32, arguments, shared=2048)
        assert result.races == ()
        want = np.zeros((40, 160), np.uint8)
        pitch = 2 * columns if swizzle == "none" else int(swizzle[:-1])
        for number, row in enumerate(rows):
            for byte in range(2 * columns):
                if row < 40 and 2 * column + byte < 160:
                    want[row, 2 * column + byte] = tile[lands(number * pitch + byte, swizzle)]
        assert np.array_equal(array.view(np.uint8).reshape(40, 160), want)


def test_boxes_of_several_rows_and_other_chips_are_refused() -> None:
    array = np.zeros((40, 80), np.uint16)
    source = "#define BYTES 512\n#define START 0\n" + FOUR
    arguments = [
        TensorMapArgument(TensorMap("u16", (80, 40), (160,), (64, 4), arch="sm_100a"), array),
        np.zeros(512, np.uint32),
    ]
    with pytest.raises(EmulationError, match="whose box is one row"):
        emulate_ptx(compiled(source), "gather", 1, 32, [*arguments, *map(np.int32, (512, 0, 0, 1, 2, 3))], shared=3072)
    text = compiled(source).replace("sm_100a", "sm_90a")
    with pytest.raises(UnsupportedInstruction, match="sm_100a"):
        emulate_ptx(text, "gather", 1, 32, [*arguments, *map(np.int32, (512, 0, 0, 1, 2, 3))], shared=3072)


PAIRS = (
    WRAPPERS
    + """
// Each block of a pair loads its own half of the rows; one barrier, in the even block, counts both.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) pairs(const __grid_constant__ Map map, u32 *out) {
    __shared__ __align__(1024) u32 tile[512];
    __shared__ u64 full, seen;
    if (threadIdx.x == 0) { init(&full, 1); init(&seen, 1); fence_init(); }
    cluster_sync();
    u32 leader = rank() & ~1u;
    if (threadIdx.x == 0) {
        if (rank() == leader) expect(&full, BYTES);
        ISSUE;
    }
    if (rank() == leader && threadIdx.x < 32) {
        wait(&full, 0);
        if (threadIdx.x < 2) { arrive_at(&seen, leader + threadIdx.x); }
    }
    WAIT;
    for (int i = threadIdx.x; i < 512; i += 64) out[rank() * 512 + i] = tile[i];
    cluster_sync();
}
"""
)
PAIR_PARTS = {
    "CLUSTER": "2",
    "BYTES": "4096",
    "ISSUE": """ASM("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, %3}], [%4];"
        :: "r"(shared(tile)), "l"(&map), "r"(0), "r"(int(rank()) * 16), "r"(shared(&full) & 0xFEFFFFFF) : "memory")""",
    "WAIT": "wait(&seen, 0)",
}
MULTICAST = """if (rank() < 2) ASM("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2"
    " [%0], [%1, {%2, %3}], [%4], %5;" :: "r"(shared(tile)), "l"(&map), "r"(0), "r"(int(rank()) * 16), "r"(shared(&full) & 0xFEFFFFFF),
    "h"((u16)(5 << rank())) : "memory")"""


def pairs(seed: int = 0, **changes: str) -> tuple[bool, Any]:
    pieces = {**PAIR_PARTS, **changes}
    text = "".join("#define {} {}\n".format(name, value.replace("\n", " ")) for name, value in pieces.items()) + PAIRS
    array = np.arange(64 * 32, dtype=np.uint32).reshape(64, 32)
    tensor_map = TensorMap("u32", (32, 64), (128,), (32, 16), arch="sm_100a")
    blocks = int(pieces["CLUSTER"])
    out = np.zeros((blocks, 16, 32), np.uint32)
    result = emulate_ptx(compiled(text), "pairs", blocks, 64, [TensorMapArgument(tensor_map, array), out], seed=seed)
    shares = [array[16 * (rank % 2 if "multicast" in pieces["ISSUE"] else rank) :][:16] for rank in range(blocks)]
    return bool((out == np.array(shares)).all()), result.races


def test_both_blocks_of_a_pair_count_on_the_even_one_s_barrier() -> None:
    for seed in range(8):
        right, races = pairs(seed)
        assert right
        assert races == ()
        right, races = pairs(seed, CLUSTER="4")
        assert right
        assert races == ()


def test_a_multicast_tells_the_even_block_of_each_destination_s_pair() -> None:
    # Block 0 fills blocks 0 and 2, block 1 fills 1 and 3; blocks 0 and 2 count both copies of their pair.
    for seed in range(8):
        right, races = pairs(seed, CLUSTER="4", ISSUE=MULTICAST)
        assert right
        assert races == ()


def test_bytes_of_one_block_only_and_bytes_of_four() -> None:
    found = set()
    for seed in range(6):
        try:
            found |= {race.kind for race in pairs(seed, BYTES="2048")[1]}
        except EmulationError as error:
            found.add("never written" if "never written" in str(error) else str(error))
    assert found & {"never written", "end with work in flight", "read after write"}
    with pytest.raises(DeadlockError, match="4096 bytes"):
        pairs(BYTES="8192")


def test_the_other_block_does_not_know_without_being_told() -> None:
    found = set()
    for seed in range(4):
        try:
            found |= {race.kind for race in pairs(seed, WAIT="if (rank() == leader) wait(&seen, 0)")[1]}
        except EmulationError as error:
            found.add("never written" if "never written" in str(error) else str(error))
    assert found & {"read after write", "never written"}


def test_without_cta_group_2_the_barrier_must_be_beside_the_destination() -> None:
    with pytest.raises(EmulationError, match="it must be in its block"):
        pairs(ISSUE=PAIR_PARTS["ISSUE"].replace(".cta_group::2", ""))
    with pytest.raises(EmulationError, match="the other one of its pair"):
        pairs(
            CLUSTER="4",
            ISSUE=PAIR_PARTS["ISSUE"].replace("shared(&full) & 0xFEFFFFFF", "(shared(&full) & 0xFFFFFF) ^ 0x2000000"),
        )
