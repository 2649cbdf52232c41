"""clusterlaunchcontrol: running blocks take over those that have not started; every block of the grid is done exactly once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from stridewright.codegen import nvrtc
from stridewright.codegen.emulator import (
    DeadlockError,
    EmulationError,
    EmulationResult,
    UnsupportedInstruction,
    emulate_ptx,
)

from .cuda_pieces import WRAPPERS

STEALING = (
    WRAPPERS
    + """
__device__ __forceinline__ void try_cancel(void *answer, u64 *b) {
    ASM("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.MULTICAST.b128 [%0], [%1];"
        :: "r"(shared(answer)), "r"(shared(b)) : "memory");
}
__device__ __forceinline__ bool query(const void *answer, u32 &x, u32 &y, u32 &z) {
    u32 yes;
    ASM("{\\n.reg .b128 handle;\\n.reg .pred p;\\n.reg .b32 unused;\\nld.shared.b128 handle, [%4];\\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, handle;\\nselp.b32 %3, 1, 0, p;\\n"
        "@p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, unused}, handle;\\n}"
        : "+r"(x), "+r"(y), "+r"(z), "=r"(yes) : "r"(shared(answer)) : "memory");
    return yes;
}
// Every block (or cluster) does its own work, then that of clusters it takes over, one at a time.
extern "C" __global__ void __launch_bounds__(64) CLUSTER steal(u32 *done, u32 *by) {
    __shared__ __align__(16) u32 answer[4];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) { init(&full, 1); init(&empty, 64 * SIZE); fence_init(); }
    SYNC;
    u32 x = blockIdx.x, y = blockIdx.y, z = blockIdx.z, phase = 0;
    bool more = true;
    while (more) {
        if (threadIdx.x == 0) {
            u32 number = x + gridDim.x * (y + gridDim.y * z);
            atomicAdd(done + number, 1u);
            by[number] = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        }
        if (threadIdx.x == 32) { EXPECT; if (LEADER) { WAIT_EMPTY; REQUEST; } }
        WAIT_FULL;
        more = query(answer, x, y, z);
        x += RANK;
        RELEASE;
        phase ^= 1;
    }
    SYNC;
}
"""
)
PARTS = {
    "MULTICAST": "b",
    "CLUSTER": "",
    "SIZE": "1",
    "SYNC": "__syncthreads()",
    "EXPECT": "expect(&full, 16)",
    "LEADER": "true",
    "WAIT_EMPTY": "if (x != blockIdx.x || y != blockIdx.y || z != blockIdx.z) wait(&empty, phase ^ 1)",
    "REQUEST": "try_cancel(answer, &full)",
    "WAIT_FULL": "wait(&full, phase)",
    "RANK": "0",
    "RELEASE": "fence_async(); arrive(&empty)",
}
PAIR = {
    "CLUSTER": "__cluster_dims__(2, 1, 1)",
    "SIZE": "2",
    "SYNC": "cluster_sync()",
    "LEADER": "rank() == 0",
    "RANK": "rank()",
    "RELEASE": "fence_async(); arrive_at(&empty, 0)",
}


@functools.cache
def compiled(source: str) -> str:
    return nvrtc.compile(source, "sm_100a", ("-lineinfo",), "test.cu").ptx


def steal(
    grid: Any = (7, 3, 2), seed: int = 0, strict: bool = True, **changes: str
) -> tuple[bool, Any, EmulationResult]:
    """Whether every block was done once; who did each; and what was found."""
    pieces = {**PARTS, **changes}
    multicast = "" if pieces["SIZE"] == "1" else ".multicast::cluster::all"
    text = STEALING.replace(".MULTICAST", multicast)
    source = "".join(f"#define {name} {value}\n" for name, value in pieces.items() if name != "MULTICAST") + text
    blocks = int(np.prod(grid))
    done, by = np.zeros(blocks, np.uint32), np.zeros(blocks, np.uint32)
    result = emulate_ptx(compiled(source), "steal", grid, 64, [done, by], seed=seed, strict=strict)
    return bool((done == 1).all()), by, result


def test_every_block_is_done_once_and_the_blocks_that_start_do_more_than_their_own() -> None:
    for seed in range(8):
        right, by, result = steal(seed=seed)
        assert right, seed
        assert result.races == (), (seed, str(result.races[0]))
        assert len(set(by.tolist())) < 42


def test_clusters_of_two_are_taken_over_whole() -> None:
    for seed in range(8):
        right, by, result = steal((6, 3, 2), seed, **PAIR)
        assert right, seed
        assert result.races == (), (seed, str(result.races[0]))
        owners = by.reshape(-1, 2)
        assert (owners[:, 1] == owners[:, 0] + 1).all()
        assert (owners[:, 0] % 2 == 0).all()


def test_a_grid_of_one_block_has_nothing_to_take_over() -> None:
    right, by, result = steal(1)
    assert right
    assert by.tolist() == [0]
    assert result.races == ()


def test_the_answer_must_be_waited_for() -> None:
    found = set()
    for seed in range(4):
        try:
            _, _, result = steal(seed=seed, WAIT_FULL="")
        except EmulationError as error:
            found.add("never written" if "never written" in str(error) else str(error))
            continue
        found |= {race.kind for race in result.races}
    assert "read after write" in found
    assert "never written" in found


def test_the_answer_must_be_read_before_the_next_one_is_asked_for() -> None:
    found = set()
    for seed in range(6):
        try:
            _, _, result = steal(seed=seed, RELEASE="arrive(&empty)")
        except EmulationError as error:
            found.add(str(error))
            continue
        found |= {race.kind for race in result.races}
    assert "write after read" in found


def test_too_few_bytes_expected_and_too_many() -> None:
    with pytest.raises(DeadlockError, match="bytes"):
        steal(EXPECT="expect(&full, 32)")


def test_another_request_after_a_failed_one_is_undefined() -> None:
    again = (
        "if (!more) { if (threadIdx.x == 0) { expect(&full, 16); try_cancel(answer, &full); } wait(&full, phase ^ 1); }"
    )
    with pytest.raises(EmulationError, match="has seen an earlier one fail"):
        steal(RELEASE=f"fence_async(); arrive(&empty); __syncthreads(); {again}")


def test_hopper_has_no_launch_control() -> None:
    text = """.version 8.6 .target sm_90a .address_size 64 .visible .entry k() { .reg .b32 %a;
        clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%a], [%a]; ret; }"""
    with pytest.raises(UnsupportedInstruction, match="sm_100"):
        emulate_ptx(text, "k", 1, 32, [])


def test_registers_of_128_bits_hold_two_of_64() -> None:
    text = """.version 8.7 .target sm_100a .address_size 64 .visible .entry k(.param .u64 p) {
        .reg .b128 %q, %s; .reg .b64 %a, %x, %y;
        ld.param.u64 %a, [p]; ld.global.b128 %q, [%a]; mov.b128 %s, %q; mov.b128 {%x, %y}, %s; st.global.v2.b64 [%a], {%y, %x}; ret; }"""
    numbers = np.array([5, 1 << 63], np.uint64)
    emulate_ptx(text, "k", 1, 1, [numbers])
    assert numbers.tolist() == [1 << 63, 5]
