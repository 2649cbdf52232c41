"""Conversions between number formats against definitions: every 8- and 16-bit code, nearest values found by search."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stridewright.codegen.emulator.faults import MachineError
from stridewright.codegen.emulator.numerics import FORMATS, convert, pack, round_to_bits, to_float32, to_float64, unpack

SMALL: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def all_codes(name: str) -> NDArray[Any]:
    """Every bit pattern of a format of at most 16 bits."""
    return np.arange(1 << FORMATS[name].bits).astype(FORMATS[name].container)


def finite_line(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """All finite non-negative values in order, and their codes. tf32 codes are those of its upper 19 bits."""
    if name == "tf32":
        codes: NDArray[Any] = np.arange(255 << 10, dtype=np.uint32) << np.uint32(13)
        return codes.view(np.float32).astype(np.float64), codes
    codes = all_codes(name)[: 1 << FORMATS[name].bits - 1]
    with np.errstate(invalid="ignore"):
        values = codes.view(SMALL[name]).astype(np.float64)
    keep = np.isfinite(values)
    return values[keep], codes[keep]


def samples(name: str) -> NDArray[np.float64]:
    """Values of the format, their midpoints, neighbours of both, and others; all exact in f32 where f32 is meant."""
    line, _ = finite_line(name)
    line = line[:: max(1, line.size // 3000)]
    middle = (line[1:] + line[:-1]) / 2
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(2000) * np.exp2(rng.integers(-30, 20, 2000))
    near = np.concatenate([np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    values = np.concatenate([line, middle, near, spread, [0.0, 5e-324]])
    return np.concatenate([values, -values])


def searched(values: NDArray[np.float64], name: str, rounding: str) -> NDArray[Any]:
    """Codes of the rounded values by search in the format's line; values stay within the largest number."""
    line, codes = finite_line(name)
    size = np.abs(values)
    above = np.searchsorted(line, size, side="left")
    above = np.minimum(above, line.size - 1)
    below = np.where(line[above] == size, above, above - 1)
    low, high = line[below], line[above]
    up = np.where(values > 0, rounding == "rp", rounding == "rm")
    if rounding in ("rn", "rna"):
        # Differences of neighbours are exact here.
        left, right = size - low, high - size
        tie = (left == right) & (above != below)
        up = (right < left) | (tie & ((below % 2 == 1) if rounding == "rn" else True))
    picked = codes[np.where(up, above, below)]
    sign = FORMATS[name].container(FORMATS[name].sign)
    return np.where(np.signbit(values), picked | sign, picked)


@pytest.mark.parametrize("name", list(SMALL))
def test_every_code_has_the_value_of_its_format(name: str) -> None:
    codes = all_codes(name)
    with np.errstate(invalid="ignore"):
        want = codes.view(SMALL[name]).astype(np.float64)
        both = (to_float32(codes, name).astype(np.float64), to_float64(codes, name))
    for got in both:
        assert np.array_equal(got, want, equal_nan=True)
        assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


def test_integers_and_tf32_are_operands_too() -> None:
    codes = np.arange(256).astype(np.uint8)
    assert (to_float32(codes, "u8") == np.arange(256)).all()
    assert (to_float32(codes, "s8") == codes.view(np.int8)).all()
    words = np.array([0x3F801FFF, 0xBF800001], np.uint32)
    assert to_float32(words, "tf32").tolist() == [1.0, -1.0]
    assert to_float32(words.view(np.uint8), "tf32").tolist() == [1.0, -1.0]


@pytest.mark.parametrize("rounding", ["rn", "rna", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", [*SMALL, "tf32"])
def test_rounding_picks_the_neighbour_that_the_mode_names(name: str, rounding: str) -> None:
    values = samples(name)
    values = values[np.abs(values) <= FORMATS[name].largest]
    got = round_to_bits(values, name, rounding, saturate=True)
    assert (got == searched(values, name, rounding)).all()


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32"])
@pytest.mark.parametrize("rounding", ["rn", "rz"])
def test_f32_converts_as_through_float64(name: str, rounding: str) -> None:
    with np.errstate(over="ignore"):
        values = samples(name).astype(np.float32)
    values = values[np.isfinite(values)]
    want = round_to_bits(values.astype(np.float64), name, rounding)
    assert (convert(values.view(np.uint32), "f32", name, rounding) == want).all()


@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=64))
def test_bf16_of_any_f32_is_the_one_of_ml_dtypes(words: list[int]) -> None:
    bits = np.array(words, np.uint32)
    values = bits.view(np.float32)
    with np.errstate(invalid="ignore"):
        want = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    got = convert(bits, "f32", "bf16")
    assert (got == np.where(np.isnan(values), 0x7FFF, want)).all()


@pytest.mark.parametrize(
    ("name", "rounding", "saturate", "want"),
    [
        ("f16", "rn", False, (0x7C00, 0xFC00)),
        ("f16", "rz", False, (0x7BFF, 0xFBFF)),
        ("f16", "rp", False, (0x7C00, 0xFBFF)),
        ("f16", "rm", False, (0x7BFF, 0xFC00)),
        ("f16", "rn", True, (0x7BFF, 0xFBFF)),
        ("bf16", "rn", True, (0x7F7F, 0xFF7F)),
        ("bf16", "rz", False, (0x7F7F, 0xFF7F)),
        ("bf16", "rna", False, (0x7F80, 0xFF80)),
        ("tf32", "rn", True, (0x7F7FE000, 0xFF7FE000)),
        ("tf32", "rz", False, (0x7F7FE000, 0xFF7FE000)),
        ("f32", "rz", False, (0x7F7FFFFF, 0xFF7FFFFF)),
        ("e4m3", "rn", True, (0x7E, 0xFE)),
        ("e5m2", "rn", True, (0x7B, 0xFB)),
    ],
)
def test_overflow_goes_where_the_mode_says(name: str, rounding: str, saturate: bool, want: tuple[int, int]) -> None:
    got = round_to_bits(np.array([1e39, -1e39]), name, rounding, saturate)
    assert tuple(got.tolist()) == want


def test_the_largest_number_overflows_from_half_a_step_on() -> None:
    edge = np.array([65519.99, 65520.0, 65504.0])
    assert round_to_bits(edge, "f16").tolist() == [0x7BFF, 0x7C00, 0x7BFF]
    half = 2.0**127 * (2 - 2.0**-8)
    assert round_to_bits(np.array([half, np.nextafter(half, 0)]), "bf16").tolist() == [0x7F80, 0x7F7F]
    wide = np.array([3.4028235677973366e38, 3.4028235677973362e38])
    assert round_to_bits(wide, "f32").tolist() == [0x7F800000, 0x7F7FFFFF]


@pytest.mark.parametrize("name", list(FORMATS))
def test_nan_becomes_the_formats_one_nan_and_infinity_stays(name: str) -> None:
    nan = np.array([0x7FC00001, 0xFF800001], np.uint32)
    saturate = name in ("e4m3", "e5m2")
    got = convert(nan, "f32", name, saturate=saturate)
    assert got.tolist() == [FORMATS[name].nan] * 2
    if not saturate:
        back = to_float64(convert(np.array([0x7F800000, 0xFF800000], np.uint32), "f32", name), name)
        assert back.tolist() == [np.inf, -np.inf]


def test_relu_turns_negative_results_into_plus_zero() -> None:
    values = np.array([-1.0, -0.0, 2.0, np.nan], np.float32).view(np.uint32)
    assert convert(values, "f32", "bf16", relu=True).tolist() == [0, 0, 0x4000, 0x7FFF]


@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
def test_widening_and_back_changes_nothing(name: str) -> None:
    codes = all_codes(name) if name != "f32" else np.random.default_rng(3).integers(0, 1 << 32, 5000).astype(np.uint32)
    values = to_float64(codes, name)
    codes, values = codes[~np.isnan(values)], values[~np.isnan(values)]
    assert (round_to_bits(values, name) == codes).all()
    assert (convert(convert(codes, name, "f64"), "f64", name) == codes).all()


def test_what_ptx_does_not_have_is_refused() -> None:
    word = np.zeros(1, np.uint32)
    for act, words in (
        (lambda: convert(word, "f32", "e4m3"), "needs .satfinite"),
        (lambda: convert(word, "f32", "f8"), "'f8'; allowed are f64"),
        (lambda: convert(word, "f32", "bf16", "rx"), "rounding 'rx'"),
        (lambda: to_float32(word, "f64"), "operand format 'f64'"),
    ):
        with pytest.raises(MachineError, match=words):
            act()


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_packing_puts_the_first_source_high(high: int, low: int) -> None:
    packed = pack(np.array([high]), np.array([low]), 16)
    assert packed.tolist() == [high << 16 | low]
    assert [half.tolist() for half in unpack(packed, 16)] == [[high], [low]]
    assert pack(np.array([high & 255]), np.array([low & 255]), 8).tolist() == [(high & 255) << 8 | low & 255]
