"""A kernel that cannot go on is reported with who waits where, for which barrier and parity, and what happened last."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import DeadlockError, EmulationError

from .cuda_pieces import RING, RING_PARTS, WRAPPERS, filled
from .harness import run_cuda
from .test_exec_async import run_cluster, run_product, run_ring, word_map, words


def test_bytes_that_never_come() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_ring(4, BYTES="4096 + 16")
    text = str(caught.value)
    assert "parity 0 of mbarrier" in text
    assert "waits for 0 of 1 arrivals and 16 bytes" in text
    assert "complete_tx 4096" in text
    assert "warp 1 waits at test.cu:" in text
    assert len(caught.value.waits) == 2
    assert any("expect_tx 4112" in line for line in caught.value.history)


@pytest.mark.parametrize("tiles", [3, 4, 9])
def test_a_slot_that_is_never_released(tiles: int) -> None:
    if tiles == 3:
        assert run_ring(tiles, RELEASE="")[0]  # the ring is never refilled
        return
    with pytest.raises(DeadlockError, match="waits for 32 of 32 arrivals"):
        run_ring(tiles, RELEASE="")


def test_a_wrong_initial_phase() -> None:
    source = filled(RING.replace("i / SLOTS & 1 ^ 1", "i / SLOTS & 1"), RING_PARTS)
    arguments = [word_map(words(64)), np.zeros(32, np.uint32), np.int32(2)]
    with pytest.raises(DeadlockError, match="parity 0"):
        run_cuda(source, "ring", 1, 64, arguments, shared=3 * 4096)


def test_an_arrival_too_few_in_another_block() -> None:
    with pytest.raises(DeadlockError, match="waits for") as caught:
        run_cluster(3, CLUSTER_SYNC="cluster_sync(); if (rank() == 1 && threadIdx.x == 40) return")
    assert "block (1,0,0)" in str(caught.value) or "block (0,0,0)" in str(caught.value)


def test_a_named_barrier_that_not_all_reach() -> None:
    source = """extern "C" __global__ void k(int *out) {
        if (threadIdx.x < 64) asm volatile("bar.sync 3, 128;" ::: "memory");
        out[threadIdx.x] = 1;
    }"""
    with pytest.raises(DeadlockError, match=r"named barrier 3: 64 of 128 threads have arrived") as caught:
        run_cuda(source, "k", 1, 128, [np.zeros(128, np.int32)])
    assert "test.cu:2" in str(caught.value)


def test_polling_for_ever_is_noticed() -> None:
    source = """extern "C" __global__ void k(volatile int *flag) { while (*flag == 0) { } }"""
    with pytest.raises(DeadlockError, match="poll"):
        run_cuda(source, "k", 1, 32, [np.zeros(1, np.int32)])


def test_a_barrier_that_was_never_initialised() -> None:
    source = (
        WRAPPERS
        + """extern "C" __global__ void k(u32 *out) { __shared__ u64 bar[2]; if (threadIdx.x == 0) init(&bar[0], 1); __syncthreads(); wait(&bar[1], 0); }"""
    )
    with pytest.raises(EmulationError, match="no mbarrier was initialised at shared address"):
        run_cuda(source, "k", 1, 32, [np.zeros(1, np.uint32)])


def test_a_count_of_nobody_is_refused() -> None:
    source = (
        WRAPPERS
        + """extern "C" __global__ void k(u32 n) { __shared__ u64 bar; if (threadIdx.x == 0) init(&bar, n); }"""
    )
    # The count is an argument: the assembler of NVRTC 13.0 crashes on a constant 0.
    with pytest.raises(EmulationError, match="count 0"):
        run_cuda(source, "k", 1, 32, [np.uint32(0)])


def test_reading_an_accumulator_before_the_wait_is_an_error() -> None:
    with pytest.raises(EmulationError, match="accumulator register is read while 4 wgmma"):
        run_product(1, WAIT="", WAIT_ALL="")


def test_a_waiter_that_misses_its_phase() -> None:
    # Warp 1 completes phase after phase without regard for warp 0, which waits for the end of an even one.
    source = (
        WRAPPERS
        + """
    extern "C" __global__ void k(u32 *out) {
        __shared__ u64 bar;
        if (threadIdx.x == 0) init(&bar, 32);
        __syncthreads();
        if (threadIdx.x < 32) { wait(&bar, 0); wait(&bar, 1); out[threadIdx.x] = 1; }
        else for (int i = 0; i < 9; ++i) arrive(&bar);
    }"""
    )
    with pytest.raises(EmulationError, match=r"missed its phase|can go on"):
        run_cuda(source, "k", 1, 64, [np.zeros(32, np.uint32)])
