"""Control flow as NVRTC emits it: every thread does what it would do alone, however a gang is divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError, emulate_ptx
from stridewright.codegen.emulator.flow import Block, post_dominators
from stridewright.codegen.emulator.gang import EXIT

from .harness import HEAD, compile_cuda, run_cuda

THREADS = 96


def per_thread(source: str, define: Any, extra: tuple[int, ...] = (), threads: int = THREADS) -> None:
    """Runs a kernel `k(int *out, int...)` and compares with a Python function of the thread number."""
    out = np.full(threads, -1, np.int32)
    run_cuda(source, "k", 1, threads, [out, *(np.int32(one) for one in extra)])
    expected = np.array([define(t, *extra) for t in range(threads)], np.int64).astype(np.int32)
    assert out.tolist() == expected.tolist()


def test_nested_branches() -> None:
    source = """extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x, v = 0;
        if (t & 1) { v = t * 3; if (t % 5 == 0) v += n; else if (t % 7 == 0) v -= 2 * n; }
        else { for (int i = 0; i < (t & 3); ++i) v += i * n; }
        if (t < 17) v = -v;
        out[t] = v;
    }"""

    def define(t: int, n: int) -> int:
        if t & 1:
            v = t * 3 + (n if t % 5 == 0 else -2 * n if t % 7 == 0 else 0)
        else:
            v = sum(i * n for i in range(t & 3))
        return -v if t < 17 else v

    per_thread(source, define, (11,))


def test_loops_of_different_length_with_break_and_continue() -> None:
    source = """extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x, v = t, steps = 0;
        #pragma unroll 1
        while (v != 1 && v != 0) {
            if (++steps > n) break;
            if (v % 3 == 0) { v /= 3; continue; }
            v = (v & 1) ? 3 * v + 1 : v / 2;
        }
        out[t] = steps * 1000 + v;
    }"""

    def define(t: int, n: int) -> int:
        v, steps = t, 0
        while v not in (0, 1):
            steps += 1
            if steps > n:
                break
            v = v // 3 if v % 3 == 0 else 3 * v + 1 if v & 1 else v // 2
        return steps * 1000 + v

    per_thread(source, define, (40,))


def test_early_return_and_barrier_of_the_rest() -> None:
    source = """extern "C" __global__ void k(int *out, int n) {
        __shared__ int s[96];
        int t = threadIdx.x;
        if (t >= n) return;
        s[t] = t * t;
        __syncthreads();
        out[t] = s[n - 1 - t];
    }"""
    out = np.full(THREADS, -1, np.int32)
    run_cuda(source, "k", 1, THREADS, [out, np.int32(64)])
    assert out.tolist() == [(63 - t) ** 2 for t in range(64)] + [-1] * 32


def test_switch_and_branch_table() -> None:
    text = f"""{HEAD}.visible .entry k(.param .u64 p) {{
        .reg .b32 %r<8>; .reg .b64 %d<4>;
        mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3;
        $L_table: .branchtargets $L_a, $L_b, $L_c, $L_a;
        brx.idx %r2, $L_table;
        $L_a: mov.u32 %r3, 10; bra.uni $L_end;
        $L_b: mov.u32 %r3, 20; bra.uni $L_end;
        $L_c: mov.u32 %r3, 30;
        $L_end: ld.param.u64 %d1, [p]; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2; st.global.u32 [%d1], %r3; ret; }}"""
    out = np.zeros(32, np.uint32)
    emulate_ptx(text, "k", 1, 32, [out])
    assert out.tolist() == [[10, 20, 30, 10][t & 3] for t in range(32)]
    source = """extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x, v;
        switch (t % 6) { case 0: v = n; break; case 1: v = 7 * t; break; case 2: v = t - n; break; case 3: v = t ^ n; break; default: v = -1; }
        out[t] = v;
    }"""
    per_thread(source, lambda t, n: [n, 7 * t, t - n, t ^ n, -1, -1][t % 6], (19,))


def test_calls_of_device_functions() -> None:
    source = """
    __device__ __noinline__ int square_plus(int a, int b) { if (a & 1) return a * a + b; return b; }
    struct Pair { int x, y; };
    __device__ __noinline__ Pair swap(Pair p) { Pair q; q.x = p.y; q.y = p.x; return q; }
    extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x;
        Pair p; p.x = t; p.y = n;
        p = swap(p);
        out[t] = square_plus(t, p.x) * 10 + square_plus(t + 1, p.y);
    }"""
    assert "call" in compile_cuda(source)

    def define(t: int, n: int) -> int:
        f = lambda a, b: a * a + b if a & 1 else b  # noqa: E731
        return f(t, n) * 10 + f(t + 1, t)

    per_thread(source, define, (5,))


def test_recursion_is_refused() -> None:
    source = """
    __device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
    extern "C" __global__ void k(int *out, int n) { out[threadIdx.x] = f(n); }"""
    from stridewright.codegen.emulator import UnsupportedInstruction

    with pytest.raises(UnsupportedInstruction, match="recursive"):
        run_cuda(source, "k", 1, 32, [np.zeros(32, np.int32), np.int32(5)])


def test_division_and_remainder_of_several_types() -> None:
    source = """extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x;
        unsigned u = t * 2654435761u;
        long long w = (long long)(t - 40) * 123456789012345ll;
        out[t] = (t - 40) / n + (t - 40) % 7 + (int)(u / 97u) + (int)(u % 1000003u) + (int)(w / (n + 1)) + (int)(w % 1013);
    }"""

    def define(t: int, n: int) -> int:
        def quotient(a: int, b: int) -> int:
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

        def remainder(a: int, b: int) -> int:
            return a - quotient(a, b) * b

        def wrap(x: int) -> int:
            return (x + 2**31) % 2**32 - 2**31

        u = t * 2654435761 % 2**32
        w = (t - 40) * 123456789012345
        parts = (
            quotient(t - 40, n),
            remainder(t - 40, 7),
            u // 97,
            u % 1000003,
            quotient(w, n + 1),
            remainder(w, 1013),
        )
        return wrap(sum(wrap(part) for part in parts))

    per_thread(source, define, (9,))


def test_many_blocks_and_dimensions() -> None:
    source = """extern "C" __global__ void k(int *out) {
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
        int width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
        out[(z * height + y) * width + x] = x + 100 * y + 10000 * z;
    }"""
    out = np.zeros((4, 9, 20), np.int32)
    run_cuda(source, "k", (4, 3, 2), (5, 3, 2), [out])
    z, y, x = np.indices(out.shape)
    assert np.array_equal(out, x + 100 * y + 10000 * z)


def test_trap_names_its_line() -> None:
    source = """extern "C" __global__ void k(int *out, int n) {
        if (threadIdx.x == 37 && n)
            __trap();
        out[threadIdx.x] = 1;
    }"""
    with pytest.raises(EmulationError, match=r"thread 37(.|\n)*test.cu:3"):
        run_cuda(source, "k", 1, 64, [np.zeros(64, np.int32), np.int32(1)])


def test_blocks_that_wait_for_each_other_through_global_memory() -> None:
    source = """extern "C" __global__ void k(int *flags, int *out) {
        int me = blockIdx.x, last = gridDim.x - 1;
        if (threadIdx.x == 0) {
            if (me < last) while (atomicAdd(&flags[me + 1], 0) == 0) { }
            out[me] = me < last ? out[me + 1] + 1 : 0;
            __threadfence();
            atomicExch(&flags[me], 1);
        }
    }"""
    flags, out = np.zeros(12, np.int32), np.zeros(12, np.int32)
    run_cuda(source, "k", 12, 32, [flags, out])
    assert out.tolist() == list(range(11, -1, -1))


def test_immediate_post_dominators() -> None:
    # 0 -> 1, 2; 1 -> 3; 2 -> 3, trap; 3 -> 1, 5
    blocks = [
        Block(successors=(1, 2)),
        Block(successors=(3,)),
        Block(successors=(3, 4)),
        Block(successors=(1, 5)),
        Block(successors=(), stops=True),
        Block(successors=(EXIT,)),
    ]
    assert post_dominators(blocks) == [3, 3, 3, 5, EXIT, EXIT]


def test_warps_that_wait_for_warps_behind_a_join() -> None:
    # Warp 0 waits inside its branch for a barrier that the others reach only after the branch.
    source = """extern "C" __global__ void k(int *out) {
        __shared__ int s[128];
        int t = threadIdx.x;
        if (t < 32) {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            out[t] = s[t + 32] + s[t + 64] + s[t + 96];
        }
        if (t >= 32) {
            s[t] = t;
            asm volatile("bar.sync 1, 128;" ::: "memory");
        }
        __syncthreads();
        out[t] += 1000 * t;
    }"""
    out = np.zeros(128, np.int32)
    result = run_cuda(source, "k", 1, 128, [out])
    assert out.tolist() == [1000 * t + (3 * t + 192 if t < 32 else 0) for t in range(128)]
    assert result.races == ()
