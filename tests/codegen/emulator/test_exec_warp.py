"""Warp instructions, named barriers and shared memory between threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError

from .harness import execute, numbers, run_cuda

LANES = np.arange(64)


def by_warp(values: Any) -> list[list[int]]:
    return [list(map(int, values[w : w + 32])) for w in range(0, len(values), 32)]


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
@pytest.mark.parametrize("amount", [0, 1, 5, 31])
@pytest.mark.parametrize("segment", [32, 8])
def test_shuffles(mode: str, amount: int, segment: int) -> None:
    a = numbers(32)
    clamp = 0 if mode == "up" else segment - 1
    control = (32 - segment) << 8 | clamp
    body = f"shfl.sync.{mode}.b32 {{d}}|%p1, {{a}}, {amount}, {control}, -1; @!%p1 xor.b32 {{d}}, {{d}}, 1;"
    expected = []
    for warp in by_warp(a):
        for lane in range(32):
            first, last = lane // segment * segment, lane // segment * segment + segment - 1
            source = {
                "idx": first + amount % segment,
                "up": lane - amount,
                "down": lane + amount,
                "bfly": lane ^ amount,
            }[mode]
            inside = first <= source <= last if mode in ("idx", "up") else source <= last
            expected.append(warp[source] if inside else warp[lane] ^ 1)
    assert execute(body, [a]).tolist() == expected


def test_votes_match_and_reductions() -> None:
    a = numbers(32, seed=3) % np.uint32(5)
    warps = by_warp(a)
    flat = lambda per_warp: [value for value in per_warp for _ in range(32)]  # noqa: E731
    ballot = flat([sum(1 << n for n, v in enumerate(warp) if v > 2) for warp in warps])
    assert execute("setp.gt.u32 %p1, {a}, 2; vote.sync.ballot.b32 {d}, %p1, -1;", [a]).tolist() == ballot
    for mode, define in (("any", any), ("all", all)):
        expected = flat([int(define(v > 2 for v in warp)) for warp in warps])
        body = f"setp.gt.u32 %p1, {{a}}, 2; vote.sync.{mode}.pred %p2, %p1, -1; selp.b32 {{d}}, 1, 0, %p2;"
        assert execute(body, [a]).tolist() == expected
    same = [sum(1 << n for n, v in enumerate(warp) if v == value) for warp in warps for value in warp]
    assert execute("match.any.sync.b32 {d}, {a}, -1;", [a]).tolist() == same
    b = numbers(32, seed=4)
    number = lambda x: x - (x >> 31 << 32)  # noqa: E731
    for name, kind, define in (
        ("add", "u32", lambda warp: sum(warp) % 2**32),
        ("min", "s32", lambda warp: min(map(number, warp)) % 2**32),
        ("max", "u32", max),
        ("xor", "b32", lambda warp: int(np.bitwise_xor.reduce(np.array(warp)))),
    ):
        assert execute(f"redux.sync.{name}.{kind} {{d}}, {{a}}, -1;", [b]).tolist() == flat(
            [define(w) for w in by_warp(b)]
        )


def test_elect_takes_the_lowest_lane_of_each_warp() -> None:
    body = "elect.sync %r20|%p1, -1; selp.b32 {d}, 1, 0, %p1; shl.b32 %r20, %r20, 8; or.b32 {d}, {d}, %r20;"
    assert execute(body, [np.zeros(64, np.uint32)]).tolist() == ([1] + [0] * 31) * 2


def test_active_mask_inside_a_branch() -> None:
    body = "mov.u32 {d}, 0; setp.lt.u32 %p1, {a}, 10; @!%p1 bra skip; activemask.b32 {d}; skip:"
    a = np.arange(32, dtype=np.uint32)
    assert execute(body, [a]).tolist() == [0x3FF] * 10 + [0] * 22


def test_a_shuffle_that_its_mask_does_not_allow_is_an_error() -> None:
    source = """extern "C" __global__ void k(int *out) {
        int v = -1;
        if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffffff, threadIdx.x, 1);
        out[threadIdx.x] = v;
    }"""
    with pytest.raises(EmulationError, match="names lane 16"):
        run_cuda(source, "k", 1, 32, [np.zeros(32, np.int32)])
    source = source.replace("0xffffffff", "0xffff")
    out = np.zeros(32, np.int32)
    run_cuda(source, "k", 1, 32, [out])
    assert out[:16].tolist() == [t ^ 1 for t in range(16)]


def test_reduction_by_shuffles_and_shared_memory() -> None:
    source = """extern "C" __global__ void k(const float *in, float *out, int n) {
        __shared__ float sums[8];
        float v = 0;
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
        for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
        __syncthreads();
        if (threadIdx.x < 32) {
            v = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
            for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d);
            if (threadIdx.x == 0) atomicAdd(out, v);
        }
    }"""
    values = np.random.default_rng(0).integers(-50, 50, 1000).astype(np.float32)
    out = np.zeros(1, np.float32)
    result = run_cuda(source, "k", 3, 256, [values, out, np.int32(1000)])
    assert out[0] == values.sum()
    assert result.races == ()


TRANSPOSE = """extern "C" __global__ void k(const float *in, float *out, int n) {
    __shared__ float tile[32][PITCH];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
    SYNC
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}"""


@pytest.mark.parametrize(("pitch", "conflicts"), [(32, True), (33, False)])
def test_transpose_is_right_and_its_bank_conflicts_are_counted(pitch: int, conflicts: bool) -> None:
    source = TRANSPOSE.replace("PITCH", str(pitch)).replace("SYNC", "__syncthreads();")
    data = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    out = np.zeros_like(data)
    result = run_cuda(source, "k", (2, 2), (32, 8), [data, out, np.int32(64)])
    assert np.array_equal(out, data.T)
    assert result.races == ()
    loads = [record for record in result.bank_conflicts if record.kind == "ld"]
    assert {record.line for record in loads} == {7}
    # Column reads of a 32-wide tile: 32 lanes in one bank.
    assert all(record.ratio == (32.0 if conflicts else 1.0) for record in loads)
    assert sum(record.accesses for record in loads) == 4 * 4 * 8


def test_a_transpose_without_its_barrier_is_a_race() -> None:
    source = TRANSPOSE.replace("PITCH", "33").replace("SYNC", "")
    data = np.zeros((32, 32), np.float32)
    # The warps of a block run in step here, so the value may be right by luck: the race is reported all the same.
    result = run_cuda(source, "k", 1, (32, 8), [data, np.zeros_like(data), np.int32(32)])
    race = next(race for race in result.races if race.kind == "read after write")
    assert "test.cu:4" in race.first.place
    assert "test.cu:7" in race.second.place
    assert race.missing == "a barrier between the two warps"


def test_named_barriers_of_parts_of_a_block() -> None:
    source = """extern "C" __global__ void k(int *out) {
        __shared__ int s[128];
        int t = threadIdx.x, half = t / 64;
        s[t] = t;
        asm volatile("bar.sync %0, 64;" :: "r"(half + 1) : "memory");
        out[t] = s[half * 64 + 63 - t % 64];
    }"""
    out = np.zeros(128, np.int32)
    assert run_cuda(source, "k", 1, 128, [out]).races == ()
    assert out.tolist() == [t // 64 * 64 + 63 - t % 64 for t in range(128)]


def test_bar_arrive_does_not_wait() -> None:
    source = """extern "C" __global__ void k(int *out) {
        __shared__ int s[32];
        if (threadIdx.x < 32) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[threadIdx.x] = s[31 - threadIdx.x];
        } else {
            s[threadIdx.x - 32] = threadIdx.x;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        }
    }"""
    out = np.zeros(32, np.int32)
    assert run_cuda(source, "k", 1, 64, [out]).races == ()
    assert out.tolist() == [63 - t for t in range(32)]


def test_an_aligned_barrier_of_part_of_a_warp_is_an_error() -> None:
    source = """extern "C" __global__ void k(int *out) {
        if (threadIdx.x % 2 == 0) asm volatile("bar.sync 1, 32;" ::: "memory");
        out[threadIdx.x] = 1;
    }"""
    with pytest.raises(EmulationError, match="aligned"):
        run_cuda(source, "k", 1, 32, [np.zeros(32, np.int32)])


def test_barriers_that_count_predicates() -> None:
    source = """extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x;
        int count = __syncthreads_count(t % 3 == 0);
        int all = __syncthreads_and(t < n), any = __syncthreads_or(t == n);
        out[t] = count * 100 + (all != 0) * 10 + (any != 0);
    }"""
    for n, expected in ((96, 3210), (95, 3201), (200, 3210)):
        out = np.zeros(96, np.int32)
        run_cuda(source, "k", 1, 96, [out, np.int32(n)])
        assert set(out.tolist()) == {expected}
