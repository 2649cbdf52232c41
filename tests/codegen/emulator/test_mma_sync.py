"""mma.sync on the emulated machine: every modelled shape against plain products and against the chip's sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator.accumulate import mma_sync_sum
from stridewright.codegen.emulator.faults import MachineError
from stridewright.codegen.emulator.fragments import mma_registers, mma_rows
from stridewright.codegen.emulator.mma_sync import MmaShape, mma_sync
from stridewright.codegen.emulator.numerics import to_float32
from stridewright.layout.hardware import mma_a_layout, mma_b_layout

SHAPES = [
    MmaShape(16, 8, k, a, b, d)
    for a, b, d, ks in (
        ("f16", "f16", "f32", (8, 16)),
        ("f16", "f16", "f16", (8, 16)),
        ("bf16", "bf16", "f32", (8, 16)),
        ("tf32", "tf32", "f32", (4, 8)),
        ("s8", "s8", "s32", (16, 32)),
        ("u8", "s8", "s32", (16, 32)),
        ("e4m3", "e4m3", "f32", (32,)),
        ("e5m2", "e4m3", "f32", (32,)),
    )
    for k in ks
] + [MmaShape(8, 8, 16, "s8", "s8", "s32")]
ELEMENTS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}
CONTAINERS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}
WARPS = 3


def codes(shape: MmaShape, dtype: str, rows: int, seed: int) -> NDArray[Any]:
    """(warps, rows, k) codes of small integers and halves, exact in every sum."""
    rng = np.random.default_rng(seed)
    if dtype in ("s8", "u8"):
        return rng.integers(0, 256, (WARPS, rows, shape.k), np.uint8)
    line = {
        "f16": lambda v: v.astype(np.float16).view(np.uint16),
        "bf16": lambda v: (v.view(np.uint32) >> 16).astype(np.uint16),
        "tf32": lambda v: v.view(np.uint32),
    }
    values = (rng.integers(-4, 5, (WARPS, rows, shape.k)) / 2).astype(np.float32)
    if dtype in line:
        return np.asarray(line[dtype](values))
    table = to_float32(np.arange(256).astype(np.uint8), dtype)
    return np.array([int(np.flatnonzero(table == v / 2)[0]) for v in range(-4, 5)], np.uint8)[
        (values * 2).astype(int) + 4
    ]


def placed(matrices: NDArray[Any], layout: Any, registers: int) -> NDArray[np.uint32]:
    """(warps, rows, k) codes in registers, element by element through the layout of the hardware folder."""
    warps, rows, _ = matrices.shape
    per = 4 // matrices.itemsize
    result = np.zeros((registers, 32 * warps), np.uint32)
    for lane in range(32):
        for value in range(registers * per):
            place = layout(lane, value)
            column = matrices[:, place % rows, place // rows].astype(np.uint32)
            result[value // per, lane::32] |= column << np.uint32(8 * matrices.itemsize * (value % per))
    return result


@pytest.mark.parametrize("numerics", ["float32", "hardware"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_d_is_a_b_plus_c(shape: MmaShape, numerics: Any) -> None:
    a, b = codes(shape, shape.a, shape.m, 0), codes(shape, shape.b, 8, 1)
    c = np.random.default_rng(2).integers(-8, 9, (WARPS, shape.m, 8)).astype(ELEMENTS[shape.d])
    if shape.m == 16:
        left = placed(a, mma_a_layout(16, 8, shape.k, shape.a), shape.a_registers)
        right = placed(b, mma_b_layout(16, 8, shape.k, shape.b), shape.b_registers)
    else:
        # m8n8k16: lane l holds k 4 (l % 4) .. + 3 of row (column of B) l // 4.
        left, right = (np.ascontiguousarray(x).view(np.uint32).reshape(1, -1) for x in (a, b))
    got = mma_rows(mma_sync(shape, left, right, mma_registers(c), numerics), ELEMENTS[shape.d], shape.m)
    product = to_float32(a, shape.a).astype(np.float64) @ to_float32(b, shape.b).astype(np.float64).transpose(0, 2, 1)
    assert (got == product + c).all()


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.m == 16 and (s.a, s.d) != ("e4m3", "f16")], ids=str)
def test_hardware_numerics_are_the_chips_sum_of_each_warp(shape: MmaShape) -> None:
    rng = np.random.default_rng(5)
    container = CONTAINERS[shape.size]
    a = rng.integers(0, 1 << 32, (shape.a_registers, 64), np.uint32)
    b = rng.integers(0, 1 << 32, (shape.b_registers, 64), np.uint32)
    c = rng.integers(0, 1 << 32, (shape.d_registers, 64), np.uint32)
    got = mma_sync(shape, a, b, c, "hardware")
    for warp in (0, 1):
        part = slice(32 * warp, 32 * warp + 32)
        left = np.zeros((16, shape.k), container)
        right = np.zeros((8, shape.k), container)
        for target, layout, registers, rows in (
            (left, mma_a_layout(16, 8, shape.k, shape.a), a[:, part], 16),
            (right, mma_b_layout(16, 8, shape.k, shape.b), b[:, part], 8),
        ):
            flat = np.ascontiguousarray(registers.T).view(container)
            for lane in range(32):
                for value in range(flat.shape[1]):
                    place = layout(lane, value)
                    target[place % rows, place // rows] = flat[lane, value]
        start = mma_rows(c[:, part], np.uint16 if shape.d == "f16" else np.uint32, 16)[0]
        want = mma_sync_sum(left, right, start, shape.a, shape.b, shape.d)
        assert (got[:, part] == mma_registers(want[None])).all()


def test_integers_saturate_only_if_asked() -> None:
    ones = np.full((4, 32), 0x01010101, np.uint32)
    top = np.full((4, 32), 2**31 - 1, np.uint32)
    for numerics in ("float32", "hardware"):
        wrapped = mma_sync(MmaShape(16, 8, 32, "s8", "s8", "s32"), ones, ones[:2], top, numerics)
        clamped = mma_sync(MmaShape(16, 8, 32, "s8", "s8", "s32", True), ones, ones[:2], top, numerics)
        assert (wrapped == 2**31 + 31).all()
        assert (clamped == 2**31 - 1).all()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: MmaShape(16, 8, 32, "f16", "f16", "f32"), "allowed are m16n8k8, m16n8k16"),
        (lambda: MmaShape(16, 8, 64, "s4", "s4", "s32"), "none that is modelled"),
        (lambda: MmaShape(16, 8, 16, "f16", "bf16", "f32"), "no f16 x bf16"),
        (lambda: MmaShape(16, 8, 16, "bf16", "bf16", "f16"), "bf16 -> f16"),
        (lambda: MmaShape(16, 8, 16, "f16", "f16", "f32", True), "satfinite"),
        (lambda: mma_sync(SHAPES[0], *(np.zeros((1, 32), np.uint32),) * 3), "1 registers of A; it has 2"),
    ],
)
def test_what_does_not_exist_is_refused(act: Callable[[], object], words: str) -> None:
    with pytest.raises(MachineError, match=words):
        act()
