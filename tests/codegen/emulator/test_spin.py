"""Threads that poll global memory get their turns, let others go on, and are named when nobody can change what they wait for."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import DeadlockError

from .harness import HEAD, run_cuda
from .test_atomics import run

TURNS = """
typedef unsigned int u32;
__device__ __forceinline__ u32 acquire(const u32 *p) {
    u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v;
}
extern "C" __global__ void turns(u32 *turn, u32 *order, int blocks) {
    // Blocks go one after another in the reverse of the order in which they start.
    u32 mine = blocks - 1 - blockIdx.x;
    if (threadIdx.x == 0) {
        while (acquire(turn) != mine) {}
        order[mine] = blockIdx.x + 100;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(turn) : "memory");
    }
}
"""


def test_blocks_that_take_turns_in_reverse_order() -> None:
    for seed in range(3):
        order = np.zeros(40, np.uint32)
        result = run_cuda(TURNS, "turns", 40, 64, [np.zeros(1, np.uint32), order, np.int32(40)], seed=seed)
        assert order.tolist() == [139 - n for n in range(40)]
        assert result.races == ()


def test_a_poll_costs_turns_only_when_memory_changes() -> None:
    # 40 blocks that poll one word, 40 changes: at most one look for each pair, and a few more, however long the others take.
    result = run_cuda(TURNS, "turns", 40, 32, [np.zeros(1, np.uint32), np.zeros(40, np.uint32), np.int32(40)])
    assert result.instructions < 40 * 40 * 8 + 40 * 40


def test_blocks_that_have_not_started_are_named() -> None:
    arrays = [np.zeros(1, np.uint32), np.zeros(133, np.uint32), np.int32(133)]
    with pytest.raises(DeadlockError) as caught:
        run_cuda(TURNS, "turns", 133, 32, arrays)
    text = str(caught.value)
    assert "1 clusters (1 blocks) of the grid have not started: 132 blocks are resident" in text
    assert "must all be resident" in text


def test_too_many_expected_names_the_address_the_value_and_who_polls() -> None:
    for seed in range(3):
        with pytest.raises(DeadlockError) as caught:
            run(seed=seed, EXPECTED="parts + 1")
        text = str(caught.value)
        assert "threads poll" in text
        for tile in range(3):
            # Counters of 4 bytes, two for each tile of four parts.
            assert f"block ({4 * tile},0,0) thread 0 (warp 0) waits at test.cu" in text
            assert f"another value at byte {8 * tile} of 'split_param_2'" in text
        assert "where it sees 4 (0x4)" in text


def test_a_counter_that_was_not_reset_is_seen_too_early() -> None:
    # What a second launch does to a counter that the first one left behind.
    counters = np.zeros(6, np.uint32)
    right, result = run(counters=counters, RESET="")
    assert right
    assert result.races == ()
    _, result = run(counters=counters, RESET="")
    assert any("'split_param_1'" in race.missing for race in result.races)


def test_a_lock_by_compare_and_swap() -> None:
    source = """extern "C" __global__ void k(unsigned *lock, unsigned *total) {
        if (threadIdx.x == 0) {
            while (atomicCAS(lock, 0u, 1u) != 0u) {}
            __threadfence();
            *total += blockIdx.x;
            __threadfence();
            atomicExch(lock, 0u);
        }
    }"""
    for seed in range(8):
        total = np.zeros(1, np.uint32)
        result = run_cuda(source, "k", 24, 32, [np.zeros(1, np.uint32), total], seed=seed)
        assert total[0] == sum(range(24))
        assert result.races == ()
    without = source.replace("*total += blockIdx.x;\n            __threadfence();", "*total += blockIdx.x;")
    assert run_cuda(without, "k", 24, 32, [np.zeros(1, np.uint32), np.zeros(1, np.uint32)]).races
    with pytest.raises(DeadlockError, match="where it sees 1"):
        run_cuda(source.replace("atomicExch(lock, 0u);", ""), "k", 2, 32, [np.zeros(1, np.uint32), total])


def test_a_thread_that_polls_only_so_often_goes_on() -> None:
    source = """extern "C" __global__ void k(volatile unsigned *flag, unsigned *out) {
        unsigned tries = 0;
        while (*flag == 0 && tries < 100) ++tries;
        out[blockIdx.x] = tries;
    }"""
    out = np.zeros(4, np.uint32)
    run_cuda(source, "k", 4, 1, [np.zeros(1, np.uint32), out])
    assert out.tolist() == [100] * 4


def test_a_barrier_of_the_whole_grid() -> None:
    source = """extern "C" __global__ void k(unsigned *count, unsigned *data, unsigned *out) {
        for (unsigned round = 1; round <= 3; ++round) {
            data[blockIdx.x * 64 + threadIdx.x] = round * (blockIdx.x + 1);
            __syncthreads();
            if (threadIdx.x == 0) {
                __threadfence();
                atomicAdd(count, 1u);
                while (*(volatile unsigned *)count < SIGNALS) {}
                __threadfence();
            }
            __syncthreads();
            out[blockIdx.x * 64 + threadIdx.x] += data[(blockIdx.x * 64 + threadIdx.x + 64) % (gridDim.x * 64)];
            SECOND
        }
    }"""
    second = """__syncthreads();
            if (threadIdx.x == 0) {
                __threadfence(); atomicAdd(count, 1u);
                while (*(volatile unsigned *)count < 2 * round * gridDim.x) {}
                __threadfence();
            }
            __syncthreads();"""
    right = source.replace("SIGNALS", "(2 * round - 1) * gridDim.x").replace("SECOND", second)
    for seed in range(6):
        out = np.zeros(5 * 64, np.uint32)
        result = run_cuda(right, "k", 5, 64, [np.zeros(1, np.uint32), np.zeros(5 * 64, np.uint32), out], seed=seed)
        assert out.reshape(5, 64)[:, 0].tolist() == [6 * n for n in (2, 3, 4, 5, 1)]
        assert result.races == ()
    wrong = source.replace("SIGNALS", "round * gridDim.x").replace("SECOND", "")
    arrays = [np.zeros(1, np.uint32), np.zeros(5 * 64, np.uint32), np.zeros(5 * 64, np.uint32)]
    assert {race.kind for race in run_cuda(wrong, "k", 5, 64, arrays).races} >= {"write after read"}


def test_scopes_within_a_block_and_a_cluster() -> None:
    source = """extern "C" __global__ void CLUSTER k(unsigned *flag, unsigned *data, unsigned *out) {
        unsigned group = blockIdx.x / SIZE, who = (blockIdx.x % SIZE) * 2 + threadIdx.x / 32;
        if (who == 0 && threadIdx.x == 0) {
            data[group] = 7 + group;
            asm volatile("st.release.SCOPE.global.u32 [%0], 1;" :: "l"(flag + group) : "memory");
        }
        if (who == LAST && threadIdx.x % 32 == 0) {
            unsigned seen;
            do { asm volatile("ld.acquire.SCOPE.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag + group) : "memory"); } while (!seen);
            out[group] = data[group];
        }
    }"""
    cases = [("cta", 1, True), ("cluster", 2, True), ("cta", 2, False), ("gpu", 2, True), ("sys", 2, True)]
    for scope, size, right in cases:
        text = source.replace("SCOPE", scope).replace("SIZE", str(size)).replace("LAST", str(2 * size - 1))
        text = text.replace("CLUSTER", f"__cluster_dims__({size}, 1, 1)" if size > 1 else "")
        for seed in range(3):
            out = np.zeros(2, np.uint32)
            arrays = [np.zeros(2, np.uint32), np.zeros(2, np.uint32), out]
            races = run_cuda(text, "k", 2 * size, 64, arrays, seed=seed).races
            assert out.tolist() == [7, 8]
            assert (races == ()) == right, (scope, size, [str(race) for race in races])


def test_the_forms_of_fences_loads_and_stores() -> None:
    fences = ["membar.cta;", "membar.gl;", "membar.sys;"]
    fences += [f"fence.{sem}.{scope};" for sem in ("sc", "acq_rel") for scope in ("cta", "cluster", "gpu", "sys")]
    stores = ["st.volatile.global.u32 [%a], 7;"]
    loads = ["ld.volatile.global.u32 %r, [%a];"]
    for scope in ("cta", "cluster", "gpu", "sys"):
        stores += [f"st.{sem}.{scope}.global.u32 [%a], 7;" for sem in ("relaxed", "release")]
        loads += [
            f"ld.{sem}.{scope}.{space}u32 %r, [%a];" for sem in ("relaxed", "acquire") for space in ("", "global.")
        ]
    from stridewright.codegen.emulator import emulate_ptx

    for store in stores:
        for load in loads:
            text = f"""{HEAD}.visible .entry k(.param .u64 p, .param .u64 q) {{ .reg .b64 %a, %b; .reg .b32 %r;
                ld.param.u64 %a, [p]; ld.param.u64 %b, [q]; {store} {" ".join(fences)} {load} st.global.u32 [%b], %r; ret; }}"""
            out = np.zeros(1, np.uint32)
            emulate_ptx(text, "k", 2, 1, [np.zeros(1, np.uint32), out])
            assert out[0] == 7
