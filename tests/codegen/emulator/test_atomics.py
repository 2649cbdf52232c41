"""Blocks ordered through global memory: right hand-overs are free of races over many orders, and each missing part is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationResult, Race

from .harness import run_cuda

SPLIT = """
typedef unsigned int u32;
#define ASM(...) asm volatile(__VA_ARGS__)
// Every block of a group writes its partial sums; the last part of each group to arrive (or part 0, which waits) adds all of them up.
__device__ __forceinline__ u32 acquire(const u32 *p) { u32 v; ASM("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ u32 relaxed(const u32 *p) { u32 v; ASM("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ u32 volatile_load(const u32 *p) { u32 v; ASM("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ u32 read_and_add(u32 *p) { u32 v; ASM("atom.acquire.gpu.global.add.u32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ void red_release(u32 *p) { ASM("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(p) : "memory"); }
__device__ __forceinline__ void red_relaxed(u32 *p) { ASM("red.relaxed.gpu.global.add.u32 [%0], 1;" :: "l"(p) : "memory"); }
__device__ __forceinline__ void red_release_cta(u32 *p) { ASM("red.release.cta.global.add.u32 [%0], 1;" :: "l"(p) : "memory"); }
__device__ __forceinline__ void atom_acq_rel(u32 *p) { u32 v; ASM("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(p) : "memory"); }
__device__ __forceinline__ void fence() { ASM("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ void fence_cta() { ASM("fence.acq_rel.cta;" ::: "memory"); }
__device__ __forceinline__ void put(float *p, float4 v) { ASM("st.global.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory"); }
__device__ __forceinline__ void add(float *p, float4 v) { ASM("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory"); }
__device__ __forceinline__ float4 get(const float *p) {
    float4 v; ASM("ld.LOAD.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory"); return v;
}
__device__ __forceinline__ void bar() { ASM("bar.sync 1, 128;" ::: "memory"); }

extern "C" __global__ void __launch_bounds__(128) split(const float *in, float *work, u32 *counters, float *out, int parts) {
    int tile = blockIdx.x / parts, part = blockIdx.x % parts, thread = threadIdx.x;
    const float4 mine = ((const float4 *)in)[blockIdx.x * 128 + thread];
    u32 *arrived = counters + 2 * tile, *left = arrived + 1;
    WRITE(work + ((tile * parts + part) * 128 + thread) * 4, work + (tile * 128 + thread) * 4);
    AFTER_WRITE;
    if (thread == LEADER) { SIGNAL; }
    if (part == 0) {
        if (thread == 0) { WAIT; }
        AFTER_WAIT;
        float4 sum = make_float4(0, 0, 0, 0);
        for (int p = 0; p < READ_PARTS; ++p) {
            float4 v = get(work + ((tile * READ_PARTS + p) * 128 + thread) * 4);
            sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
        }
        ((float4 *)out)[tile * 128 + thread] = sum;
        RESET;
    }
}
"""
PARTS = {
    "LOAD": "global.cg",
    "WRITE(mine_at, shared_at)": "put(mine_at, mine)",
    "AFTER_WRITE": "bar()",
    "LEADER": "0",
    "SIGNAL": "red_release(arrived)",
    "WAIT": "while (acquire(arrived) < EXPECTED) {}",
    "EXPECTED": "parts",
    "AFTER_WAIT": "bar()",
    "READ_PARTS": "parts",
    "RESET": "if (thread == 0) *arrived = 0",
}


def run(
    tiles: int = 3, parts: int = 4, seed: int = 0, counters: Any = None, options: Any = None, **changes: str
) -> tuple[bool, EmulationResult]:
    """Whether every tile's sum is right, and what was found."""
    pieces = {**PARTS, **changes}
    source = "".join(f"#define {name} {text}\n" for name, text in pieces.items() if name != "LOAD")
    values = np.random.default_rng(seed).integers(-8, 9, (tiles, parts, 512)).astype(np.float32)
    work = np.zeros(tiles * parts * 512, np.float32)
    out = np.full((tiles, 512), np.nan, np.float32)
    counters = np.zeros(2 * tiles, np.uint32) if counters is None else counters
    text = source + SPLIT.replace("LOAD", pieces["LOAD"])
    result = run_cuda(
        text, "split", tiles * parts, 128, [values, work, counters, out, np.int32(parts)], seed=seed, **(options or {})
    )
    return bool((out == values.sum(axis=1)).all()), result


def kinds(races: tuple[Race, ...]) -> set[tuple[str, str]]:
    return {(race.space, race.kind) for race in races}


RIGHT: dict[str, dict[str, str]] = {
    "red.release, ld.acquire": {},
    "atom.acq_rel": {"SIGNAL": "atom_acq_rel(arrived)"},
    "fence and relaxed red": {"SIGNAL": "fence(); red_relaxed(arrived)"},
    "threadfence and atomicAdd": {"SIGNAL": "__threadfence(); atomicAdd(arrived, 1u)"},
    "relaxed loop and a fence after it": {"WAIT": "while (relaxed(arrived) < parts) {} fence()"},
    "volatile loop and a fence after it": {"WAIT": "while (volatile_load(arrived) < parts) {} __threadfence()"},
    "an atomic that reads": {"WAIT": "while (read_and_add(arrived) < parts) {}"},
    "with a pause": {"WAIT": "while (acquire(arrived) < parts) __nanosleep(20)"},
    "relaxed loads of the partial sums": {"LOAD": "relaxed.gpu.global"},
    "past the first cache": {"LOAD": "global.L1::no_allocate"},
    "reset by an exchange": {"RESET": "if (thread == 0) atomicExch(arrived, 0u)"},
    "another thread signals": {"LEADER": "77"},
    "sums by vector atomics": {"WRITE(mine_at, shared_at)": "add(shared_at, mine)", "READ_PARTS": "1"},
    "everybody waits": {"AFTER_WAIT": "while (acquire(arrived) < parts) {}", "WAIT": "", "RESET": ""},
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_handovers_are_right_and_free_of_races_in_every_order(name: str) -> None:
    for seed in range(20 if name == "red.release, ld.acquire" else 6):
        right, result = run(seed=seed, **RIGHT[name])
        assert right, (name, seed)
        assert result.races == (), (name, seed, str(result.races[0]))


FAULTS: dict[str, dict[str, str]] = {
    "no barrier before the signal": {"AFTER_WRITE": ""},
    "a barrier of the wrong kind before the signal": {"AFTER_WRITE": "__syncwarp()"},
    "a relaxed signal": {"SIGNAL": "red_relaxed(arrived)"},
    "a plain signal by atomicAdd": {"SIGNAL": "atomicAdd(arrived, 1u)"},
    "the fence after the signal": {"SIGNAL": "red_relaxed(arrived); fence()"},
    "the fence before the writes' barrier": {
        "AFTER_WRITE": "fence(); bar()",
        "SIGNAL": "red_relaxed(arrived)",
        "LEADER": "77",
    },
    "a fence of the block only": {"SIGNAL": "fence_cta(); red_relaxed(arrived)"},
    "a release to the block only": {"SIGNAL": "red_release_cta(arrived)"},
    "a relaxed loop": {"WAIT": "while (relaxed(arrived) < parts) {}"},
    "a volatile loop": {"WAIT": "while (volatile_load(arrived) < parts) {}"},
    "a fence before the loop": {"WAIT": "fence(); while (relaxed(arrived) < parts) {}"},
    "no barrier after the loop": {"AFTER_WAIT": ""},
    "one part too few": {"EXPECTED": "parts - 1"},
    "no wait at all": {"WAIT": ""},
    "waits for its own part only": {"EXPECTED": "1"},
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_missing_part_of_a_handover_is_a_race_on_the_workspace(name: str) -> None:
    for seed in range(4):
        _, result = run(seed=seed, **FAULTS[name])
        found = [race for race in result.races if race.space == "global" and "'split_param_1'" in race.missing]
        assert found, (name, seed, [str(race) for race in result.races])
        assert found[0].kind in ("read after write", "write after read")
        assert "test.cu" in found[0].first.place
        assert "test.cu" in found[0].second.place


def test_atomic_sums_read_without_an_order() -> None:
    changes = {"WRITE(mine_at, shared_at)": "add(shared_at, mine)", "READ_PARTS": "1", "SIGNAL": "red_relaxed(arrived)"}
    _, result = run(**changes)
    assert ("global", "read after write") in kinds(result.races)
    assert any(
        "red.global.add.v4.f32" in race.first.operation or "red" in race.first.operation for race in result.races
    )


def test_a_plain_counter_is_a_race_on_itself() -> None:
    _, result = run(SIGNAL="fence(); *arrived += 1", WAIT="", EXPECTED="0")
    assert any("'split_param_2'" in race.missing for race in result.races)
