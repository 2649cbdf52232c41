"""Faults planted in promoted sums, in their scales of blocks and in the epilogue's bias are found: a wrong value, a race or an error."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.emulator import DeadlockError, EmulationError
from stridewright.codegen.reference import expected, spread, widened
from stridewright.codegen.source import whole
from stridewright.kernels.config import GemmConfig
from stridewright.kernels.fusion import Fusion

BLOCKS = 6
SHAPE = (150, 136, 128 * BLOCKS - 32)
KERNELS = {
    "two sets": (
        GemmConfig(fusion=Fusion(scale_a="block", scale_b="block", bias="n"))
        .replace(tile_m=128, tile_n=128, tile_k=128, stages=3, promote=128, accumulators=2)
    ),
    "one set": (
        GemmConfig(fusion=Fusion(scale_a="block", scale_b="block", bias="n"))
        .replace(tile_m=128, tile_n=128, tile_k=64, stages=4, promote=128)
    ),
}  # fmt: skip
FAULTS = (
    ("two sets", "        wgmma_wait<Later>();\n", ""),
    ("two sets", "blocks.take<0>(sums, odd, odd_slot);", "blocks.take<1>(sums, odd, odd_slot);"),
    ("two sets", "        results(partial);\n        ring.release(slot);\n", "        results(partial);\n"),
    ("two sets", "        wgmma_wait<Later>();\n        results(partial);\n        ring.release(slot);\n", "        ring.release(slot);\n        wgmma_wait<Later>();\n        results(partial);\n"),
    ("two sets", "blocks.take<1>(sums, even, even_slot);\n        even_slot = blocks.start(even);", "even_slot = blocks.start(even);\n        blocks.take<1>(sums, even, even_slot);"),
    ("two sets", "        ring.wait_full(at);\n        wgmma_fence();", "        wgmma_fence();"),
    ("two sets", "        first += 4;\n", "        first += 3;\n"),
    ("two sets", "        first += threadIdx.x % 4;\n", ""),
    ("two sets", "threadIdx.x % 32 / 4 * 4 + among_four", "threadIdx.x % 32 / 4 * 4 + (among_four + 1) % 4"),
    ("two sets", "        ++scales.taken;\n", ""),
    ("two sets", "if (SCALED && among_four == 0)", "if (SCALED && scales.taken == 0)"),
    ("two sets", "const uint32 block = min(first, last);", "const uint32 block = min(first, 3u);"),
    ("two sets", "factors.of[strip][value / 2 % 2]", "factors.of[strip][value % 2]"),
    ("two sets", "min(column, finish.n - 1) / 128 * terms", "0 * terms"),
    ("two sets", "from.move(first_row, first_column);", "from.move(first_row, column);"),
    ("two sets", "Inside ? right : near_column);", "Inside ? right : column - near_column);"),
    ("one set", "        wgmma_wait<0>();\n        results(partial);", "        results(partial);"),
    ("one set", "        results(partial);\n        ring.release(previous);\n", "        results(partial);\n"),
    ("one set", "slot == 0);", "k_block == 0 && slot == 0);"),
    ("one set", "            wgmma_fence();\n", ""),
)  # fmt: skip


def verdict(gemm: Gemm) -> str:
    """What the emulator makes of a kernel on a shape with whole tiles and parts of some."""
    m, n, k = SHAPE
    random = np.random.default_rng(5)
    a, b = (random.integers(0, 256, (rows, k), dtype=np.uint8) & 0xBF for rows in (m, n))
    scale_a = random.uniform(0.5, 2.0, (m, BLOCKS)).astype(np.float32)
    scale_b = random.uniform(0.5, 2.0, (2, BLOCKS)).astype(np.float32)
    bias = 8 * random.standard_normal(n).astype(np.float32)
    wide_a = widened(a, "e4m3") * spread(scale_a, a.shape, 1)
    wide_b = widened(b, "e4m3") * spread(scale_b, b.shape, 128)
    should = expected(wide_a, wide_b, "bf16", bias=bias)
    for seed in range(3):
        try:
            run = gemm.emulate(a, b, scale_a=scale_a, scale_b=scale_b, bias=bias, seed=seed, sms=2)
        except DeadlockError:
            return "deadlock"
        except EmulationError as error:
            return f"error: {error}"
        if run.races:
            return "race"
        if not (np.abs(run.d.astype(np.float64) - should.d) <= should.allowed).all():
            return "wrong value"
    return "pass"


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernels_without_a_fault_pass(kernel: str) -> None:
    assert verdict(Gemm(*SHAPE, "e4m3", "e4m3", "bf16", config=KERNELS[kernel])) == "pass"


@pytest.mark.parametrize("place", range(len(FAULTS)))
def test_every_fault_is_found(place: int) -> None:
    kernel, old, new = FAULTS[place]
    gemm = Gemm(*SHAPE, "e4m3", "e4m3", "bf16", config=KERNELS[kernel])
    source = whole(gemm.derivation.config)
    assert source.count(old) >= 1, f"{old!r} is not in the source"
    gemm.__dict__["build"] = build(source.replace(old, new), arch="sm_90a", strict=False)
    assert verdict(gemm) != "pass", f"not found: {old!r} -> {new!r}"
