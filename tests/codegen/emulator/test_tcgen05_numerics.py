"""numerics="hardware" of tcgen05.mma against the model of MMA-Sim (arXiv 2511.10909) written out in fractions. No Blackwell has confirmed the model."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator.accumulate import group_sum, tensor_sum
from stridewright.codegen.emulator.faults import MachineError

K = {"bf16": 16, "f16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "e2m1": 32, "e3m2": 32}
TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn, "e3m2": ml_dtypes.float6_e3m2fn,
}  # fmt: skip
LEAST = {"bf16": -126, "f16": -14, "tf32": -126, "e4m3": -6, "e5m2": -14, "e2m1": 0, "e3m2": -2, "f32": -126}
FRACTION_BITS = 25


def values(count: int, k: int, dtype: str, seed: int) -> NDArray[np.float32]:
    """Random values of the type, of quite different sizes, some of them zero."""
    random = np.random.default_rng(seed)
    spread = {"bf16": 30, "tf32": 30, "f16": 8, "e5m2": 8, "e4m3": 4}.get(dtype, 1)
    raw = random.standard_normal((count, k)) * 2.0 ** random.uniform(-spread, spread, (count, k))
    raw[random.random((count, k)) < 0.1] = 0
    if dtype == "tf32":
        return (raw.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)
    limit = float(ml_dtypes.finfo(TYPES[dtype]).max) if dtype != "f16" else 65504.0
    return np.clip(raw, -limit, limit).astype(TYPES[dtype]).astype(np.float32)


def exponent(value: float, least: int) -> int:
    """Of a number that is not zero; subnormal ones have the smallest normal exponent."""
    return max(int(np.frexp(value)[1]) - 1, least)


def toward_zero(value: Fraction, unit: Fraction) -> Fraction:
    whole = abs(value) // unit
    return unit * whole * (1 if value >= 0 else -1)


def model(
    left: NDArray[np.float32], right: NDArray[np.float32], start: float, a: str, b: str, d: str, shift: int = 0
) -> float:
    """One element: the terms cut toward zero at 25 bits below the largest exponent, added exactly, rounded once."""
    terms = [
        (
            Fraction(float(x)) * Fraction(float(y)) * Fraction(2) ** shift,
            exponent(x, LEAST[a]) + exponent(y, LEAST[b]) + shift,
        )
        for x, y in zip(left, right, strict=True)
        if x and y
    ]
    if start:
        terms.append((Fraction(start), exponent(start, LEAST["f32" if d == "f32" else "f16"])))
    if not terms:
        return 0.0
    unit = Fraction(2) ** (max(e for _, e in terms) - FRACTION_BITS)
    total = sum((toward_zero(term, unit) for term, _ in terms), Fraction(0))
    if d == "f16":
        # total has few enough bits that float64 holds it; numpy rounds to nearest even.
        assert Fraction(float(total)) == total
        return float(np.float16(float(total)))
    if not total:
        return 0.0
    size = abs(total)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e = e if Fraction(2) ** e <= size else e - 1
    return float(toward_zero(total, Fraction(2) ** (max(e, -126) - 23)))


@pytest.mark.parametrize(("a", "b", "d"), [
    ("bf16", "bf16", "f32"), ("f16", "f16", "f32"), ("f16", "f16", "f16"), ("tf32", "tf32", "f32"), ("e4m3", "e4m3", "f32"), ("e5m2", "e4m3", "f16"),
    ("e2m1", "e3m2", "f32"),
])  # fmt: skip
def test_the_published_model_in_fractions(a: str, b: str, d: str) -> None:
    left, right = values(24, K[a], a, 1), values(24, K[a], b, 2)
    random = np.random.default_rng(3)
    before = (random.standard_normal((24, 24)) * 2.0 ** random.uniform(-6, 6, (24, 24))).astype(
        np.float16 if d == "f16" else np.float32
    )
    before[:, ::5] = 0
    if d == "f16":
        left = left * np.float32(0.0625)
    found = tensor_sum(left, right, before.astype(np.float64), a, b, d).view(np.float16 if d == "f16" else np.float32)
    for row in range(24):
        for column in range(24):
            assert float(found[row, column]) == model(left[row], right[column], float(before[row, column]), a, b, d)


def test_the_model_cuts_where_float32_would_round() -> None:
    """2^24 + 1 + 1: each small term keeps its bit (25 are kept), their sum is cut toward zero."""
    left = np.array([[2.0**24, 1, 0, 0] + [0] * 12], np.float32)
    right = np.ones((1, 16), np.float32)
    assert tensor_sum(left, right, np.zeros((1, 1)), "bf16", "bf16", "f32").view(np.float32).tolist() == [[2.0**24]]
    left[0, 2] = 1
    assert tensor_sum(left, right, np.zeros((1, 1)), "bf16", "bf16", "f32").view(np.float32).tolist() == [[2.0**24 + 2]]
    assert tensor_sum(-left, right, np.zeros((1, 1)), "bf16", "bf16", "f32").view(np.float32).tolist() == [
        [-(2.0**24) - 2]
    ]


def test_scale_factors_shift_the_exponents() -> None:
    """kind::mxf8f6f4: 32 products of one element have one factor."""
    left, right = values(16, 32, "e4m3", 4), values(16, 32, "e5m2", 5)
    random = np.random.default_rng(6)
    before = (random.standard_normal((16, 16)) * 2.0 ** random.uniform(-12, 12, (16, 16))).astype(np.float32)
    shift = random.integers(-20, 20, 16)[:, None] + random.integers(-20, 20, 16)
    found = tensor_sum(left, right, before.astype(np.float64), "e4m3", "e5m2", "f32", 2.0**shift).view(np.float32)
    for row in range(16):
        for column in range(16):
            start, by = float(before[row, column]), int(shift[row, column])
            assert float(found[row, column]) == model(left[row], right[column], start, "e4m3", "e5m2", "f32", by)
    with pytest.raises(MachineError, match="no normal number"):
        tensor_sum(left, right, np.zeros((16, 16)), "e4m3", "e5m2", "f32", np.full((16, 16), 2.0**130))


def grouped(left: NDArray[np.float32], right: NDArray[np.float32], start: float, scales: Any, least: int) -> float:
    """One element of kinds mxf4 and mxf4nvf4: sixteen products exactly, times the scales' digits; cut at 35 bits below the largest exponent."""
    terms = []
    for group, (x, y) in enumerate(zip(*scales, strict=True)):
        part = slice(16 * group, 16 * group + 16)
        dot = sum(
            (Fraction(float(p)) * Fraction(float(q)) for p, q in zip(left[part], right[part], strict=True)), Fraction(0)
        )
        term = dot * Fraction(float(x)) * Fraction(float(y))
        if term:
            terms.append((term, exponent(x, least) + exponent(y, least)))
    if start:
        terms.append((Fraction(start), exponent(start, -126)))
    unit = Fraction(2) ** (max((e for _, e in terms), default=0) - 35)
    total = sum((toward_zero(term, unit) for term, _ in terms), Fraction(0))
    if not total:
        return 0.0
    size = abs(total)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e = e if Fraction(2) ** e <= size else e - 1
    return float(toward_zero(total, Fraction(2) ** (max(e, -126) - 23)))


@pytest.mark.parametrize("scale", ["ue4m3", "ue8m0"])
def test_groups_of_four_bit_products_are_scaled_and_cut(scale: str) -> None:
    left, right = values(24, 64, "e2m1", 11), values(24, 64, "e2m1", 12)
    random = np.random.default_rng(13)
    if scale == "ue4m3":
        least, shape, codes = -6, (2, 24, 4), random.integers(0, 0x7F, (2, 24, 4), np.uint8)
        codes[:, ::7] %= 8  # subnormal ones, and zero
        factors = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    else:
        least, shape = -127, (2, 24, 2)
        factors = np.repeat(2.0 ** random.integers(-30, 30, shape), 2, axis=2)
    before = (random.standard_normal((24, 24)) * 2.0 ** random.uniform(-40, 20, (24, 24))).astype(np.float32)
    before[:, ::5] = 0
    found = group_sum(left, right, before.astype(np.float64), factors[0], factors[1], least).view(np.float32)
    for row in range(24):
        for column in range(24):
            scales = factors[0][row], factors[1][column]
            assert float(found[row, column]) == grouped(
                left[row], right[column], float(before[row, column]), scales, least
            )


def test_what_a_scale_that_is_no_number_makes() -> None:
    one, scale = np.ones((2, 64), np.float32), np.ones((2, 4))
    scale[1, 2] = np.nan
    before = np.array([[0.0, np.inf], [0.0, np.nan]])
    found = group_sum(one, one, before, scale, np.ones((2, 4)), -127).view(np.float32)
    assert found[0].tolist() == [64.0, np.inf]
    assert np.isnan(found[1]).all()
