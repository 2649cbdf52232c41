"""What an engineer could get wrong on A's way to tensor memory is found by the emulator: a wrong result, a race, or a stop."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stridewright import Gemm
from stridewright.codegen.breadth import Case, Recipe, make, wrong
from stridewright.codegen.build import build
from stridewright.codegen.emulator import EmulationError
from stridewright.kernels.config import GemmConfig, Problem

BASE = GemmConfig(arch="sm_100a").replace(stages=2, accumulators=2, tile_m=128, tile_n=64, group_m=2)
COPIED = BASE.replace(a_in="tensor", problem=Problem(a="bf16", b="bf16", d="f32"))
CONVERTED = BASE.replace(a_in="registers", problem=Problem(a="s8", b="bf16", d="f32"))
FLOATS = BASE.replace(a_in="registers", problem=Problem(a="e4m3", b="f16", d="f32"))

FAULTS = [
    ("copies before the slot is full", COPIED, "            ring.wait_full(at);\n", ""),
    ("copies only the first step", COPIED, "for (int step = 0; step < K_STEPS; ++step) tmem_copy_rows", "for (int step = 0; step < 1; ++step) tmem_copy_rows"),
    ("copies one step on", COPIED, "tmem_copy_rows(tmem + tensor_a(at.slot, step), a + a_step_advance(step))", "tmem_copy_rows(tmem + tensor_a(at.slot, step), a + a_step_advance((step + 1) % K_STEPS))"),
    ("every slot in the columns of the first", COPIED, "return {tmem + tensor_a(slot, step)};", "return {tmem + tensor_a(0, step)};"),
    ("A over an accumulator", COPIED, "tmem(tmem + TENSOR_A_COLUMN)", "tmem(tmem + TENSOR_A_COLUMN - 32)"),
    ("stores are not waited for", CONVERTED, "                tmem_store_wait();\n", ""),
    ("no fence before the multiply is told", CONVERTED, "                tmem_fence_before_sync();\n                fence_async_proxy();", "                fence_async_proxy();"),
    ("no fence between what is read and what the copy engine writes", CONVERTED, "                fence_async_proxy();    // the copy", "                // the copy"),
    ("slots are free while they are read", CONVERTED, "                    mbarrier_arrive(ring.empty_barrier(at.slot));    // beside", "                    // beside"),
    ("the multiply does not wait for A", CONVERTED, "        mbarrier_wait(ready + at.slot * 8, at.parity);\n", ""),
    ("no fence after the wait for A", CONVERTED, "        mbarrier_wait(ready + at.slot * 8, at.parity);\n        tmem_fence_after_sync();\n", "        mbarrier_wait(ready + at.slot * 8, at.parity);\n"),
    ("A is read before it has landed", CONVERTED, "                ring.wait_full(at);\n                tmem_fence_after_sync();\n", "                tmem_fence_after_sync();\n"),
    ("one warp says that all have written", CONVERTED, "mbarrier_init(shared + A_READY_OFFSET + slot * 8, WARPS)", "mbarrier_init(shared + A_READY_OFFSET + slot * 8, 1)"),
    ("a warp writes the lanes of another", CONVERTED, "part * A_STORED + warp_lanes(warp)", "part * A_STORED + warp_lanes((warp + 1) % 4)"),
    ("rows of another warp", CONVERTED, "const uint32 row = threadIdx.x % 128;", "const uint32 row = threadIdx.x % 32;"),
    ("chunks in the wrong order", CONVERTED, "part * A_STORE_CHUNKS + chunk)", "part * A_STORE_CHUNKS + (chunk ^ 1))"),
    ("signed numbers as unsigned ones", CONVERTED, "constexpr bool A_SIGNED = true", "constexpr bool A_SIGNED = false"),
    ("both elements of a pair are the first", CONVERTED, "whole(two >> 8 & 0xff)", "whole(two & 0xff)"),
    ("another 8-bit float", FLOATS, '#define A_TYPE "e4m3x2"', '#define A_TYPE "e5m2x2"'),
    ("the wrong 16-bit format", FLOATS, "constexpr bool TO_F16 = true", "constexpr bool TO_F16 = false"),
    ("more registers than there are", CONVERTED, "constexpr int FEW_REGISTERS = 96", "constexpr int FEW_REGISTERS = 168"),
]  # fmt: skip


def gemm_of(config: GemmConfig) -> tuple[Any, Case, Any]:
    problem = config.problem
    case = Case(Recipe(config), 200, 72, 328, 1, 5, True, (0, 0, 0), (False, False))
    return Gemm(200, 72, 328, problem.a, problem.b, problem.d, config=config), case, make(case)


def verdict(config: GemmConfig, source: str | None) -> str:
    """What the emulator says, under four orders of completion; "" if nothing."""
    gemm, case, arrays = gemm_of(config)
    if source is not None:
        gemm.__dict__["build"] = build(source, arch="sm_100a", strict=False, name="mutant.cu", use_cache=False)
    for seed in range(4):
        try:
            run = gemm.emulate(arrays.a, arrays.b, seed=seed, sms=2)
        except EmulationError as error:
            return f"{type(error).__name__}: {error}"
        if run.races:
            return str(run.races[0])
        found = wrong(case, arrays, run.d, 2.0**-23)
        if found:
            return found
    return ""


@pytest.mark.parametrize("config", [COPIED, CONVERTED, FLOATS], ids=["copied", "integers", "floats"])
def test_the_kernels_without_a_fault_raise_no_alarm(config: GemmConfig) -> None:
    assert verdict(config, None) == ""


@pytest.mark.parametrize(("name", "config", "before", "after"), FAULTS, ids=[name for name, *_ in FAULTS])
def test_a_fault_on_a_s_way_is_found(name: str, config: GemmConfig, before: str, after: str) -> None:
    source = gemm_of(config)[0].source
    assert source.count(before) == 1, f"{name}: stands {source.count(before)} times in the source"
    assert verdict(config, source.replace(before, after)) != ""


def test_the_source_says_where_a_lies() -> None:
    source = gemm_of(dataclasses.replace(CONVERTED))[0].source
    assert "A in tensor memory, through registers" in source
    assert "s8 becomes bf16 on the way, exactly." in source
