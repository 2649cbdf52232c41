"""The sums of a tensor core, bit for bit those of an H200."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from stridewright.codegen.emulator.accumulate import fused_sum, mma_sync_sum
from stridewright.codegen.emulator.faults import MachineError

from .oracle import arrays, records

ENTRIES = records("numerics", "entries")
DATA = arrays("numerics")


def chain(entry: dict[str, Any], sums: Any, letter: str) -> None:
    """Four instructions in a row, the first and the last result compared."""
    name, k = entry["name"], entry["k"]
    a, b, total = DATA[name + "_a"], DATA[name + "_b"], DATA[name + "_c"]
    for step in range(4):
        part = slice(step * k, step * k + k)
        total = sums(
            np.ascontiguousarray(a[:, part]),
            np.ascontiguousarray(b[part].T),
            total,
            entry["a"],
            entry["b"],
            entry["accumulator"],
            entry["satfinite"],
        )
        if step in (0, 3):
            want = DATA[f"{name}_{letter}{step + 1}"]
            assert total.dtype == want.dtype
            assert (total == want).all()


@pytest.mark.parametrize("entry", [pytest.param(e, id=e["name"]) for e in ENTRIES])
def test_wgmma_gives_the_chips_bits(entry: dict[str, Any]) -> None:
    chain(entry, fused_sum, "d")


@pytest.mark.parametrize("entry", [pytest.param(e, id=e["name"]) for e in ENTRIES if e["mma_sync"] != "none"])
def test_mma_sync_gives_the_chips_bits(entry: dict[str, Any]) -> None:
    chain(entry, mma_sync_sum, "m" if entry["mma_sync"] == "differs" else "d")


def test_mma_sync_of_eight_bit_floats_into_f16_was_never_measured() -> None:
    codes = np.zeros((16, 32), np.uint8)
    with pytest.raises(MachineError, match="never measured"):
        mma_sync_sum(codes, codes[:8], np.zeros((16, 8), np.uint16), "e4m3", "e4m3", "f16")


def slow_sum(a: list[int], b: list[int], c: int) -> int:
    """C + sum(a b) of bf16 bits in Python integers, from the words of the model; finite inputs only."""

    def parts(code: int, fraction: int, bias: int, bits: int) -> tuple[int, int]:
        """(signed significand, exponent): value = significand * 2^(exponent - fraction)."""
        sign, field = code >> (bits - 1), (code >> fraction) & 0xFF
        digits = code & ((1 << fraction) - 1)
        significand = digits + ((1 << fraction) if field else 0)
        return (-significand if sign else significand), max(field, 1) - bias

    terms = []
    for x, y in zip(a, b, strict=True):
        (s, e), (t, f) = parts(x, 7, 127, 16), parts(y, 7, 127, 16)
        terms.append((s * t, e + f, 14))
    terms.append((*parts(c, 23, 127, 32), 23))
    terms = [term for term in terms if term[0]]
    top = max([e for _, e, _ in terms] + [-133])
    total = 0
    for significand, exponent, fraction in terms:
        shift = exponent - fraction - (top - 25)
        size = abs(significand) << shift if shift >= 0 else abs(significand) >> -shift
        total += size if significand > 0 else -size
    if not total:
        return 0
    size, unit = abs(total), top - 25
    # Toward zero to 24 bits, or to a multiple of 2^-149.
    drop = max(size.bit_length() - 24, -149 - unit)
    size, unit = (size >> drop, unit + drop) if drop > 0 else (size << -drop, unit + drop)
    if not size:
        return 0
    field = unit + 23 + 127 if size >> 23 else 0
    code = 0x7F800000 if field >= 255 else (field << 23) + (size & 0x7FFFFF)
    return code | (0x80000000 if total < 0 else 0)


BF16 = st.integers(0, 0xFFFF).filter(lambda code: code & 0x7F80 != 0x7F80)
F32 = st.integers(0, 0xFFFFFFFF).filter(lambda code: code & 0x7F800000 != 0x7F800000)
NEAR_ONE = st.builds(
    lambda s, e, f: s << 15 | e << 7 | f, st.integers(0, 1), st.integers(100, 140), st.integers(0, 127)
)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(any_array(np.uint16, (16,), elements=BF16), any_array(np.uint16, (16,), elements=NEAR_ONE)),
    st.one_of(any_array(np.uint16, (16,), elements=BF16), any_array(np.uint16, (16,), elements=NEAR_ONE)),
    F32,
)
def test_the_fast_sum_is_the_models_sum_in_whole_numbers(a: Any, b: Any, c: int) -> None:
    got = fused_sum(a[None, :], b[None, :], np.array([[c]], np.uint32), "bf16", "bf16", "f32")
    assert int(got[0, 0]) == slow_sum(a.tolist(), b.tolist(), c)


def test_a_large_product_beside_many_small_ones_agrees_with_the_model() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 24, 16)).astype(np.float32)
    a *= np.exp2(rng.integers(-14, 3, a.shape)).astype(np.float32)
    codes = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)]
    c = rng.standard_normal((24, 24)).astype(np.float32).view(np.uint32)
    got = fused_sum(codes[0], codes[1], c, "bf16", "bf16", "f32")
    for m in range(24):
        for n in range(24):
            assert int(got[m, n]) == slow_sum(codes[0][m].tolist(), codes[1][n].tolist(), int(c[m, n]))
