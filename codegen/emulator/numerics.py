"""Number formats as bits: decoding, and conversion with PTX's rounding modes and saturation, for whole arrays.

    to_float32(raw, dtype), to_float64(bits, dtype)            exact values of any format
    convert(bits, source, target, rounding, saturate, relu)    PTX cvt between floating formats, bits in and out
    round_to_bits(values, target, rounding, saturate, relu)    the same from float64 values
    pack(high, low, width), unpack(packed, width)              x2 registers: bf16x2, f16x2 (16), e4m3x2, e5m2x2 (8)

Formats: f64, f32, tf32 (in an f32's container), f16, bf16, e4m3, e5m2. Rounding: "rn" nearest even, "rna" nearest with
ties away from zero, "rz", "rm" (down), "rp" (up). A NaN becomes the format's one NaN, 0x7fff... (PTX ISA, "cvt").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import MachineError

__all__ = ["FORMATS", "Format", "convert", "pack", "round_to_bits", "to_float32", "to_float64", "unpack"]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: container bits, fraction bits, smallest normal exponent, largest finite value.

    ``has_infinity`` is false for e4m3, whose largest exponent holds numbers. ``nan`` is the NaN that conversions make.
    ``shift``: unused low bits of the container (tf32).
    """

    bits: int
    fraction: int
    least: int
    largest: float
    nan: int
    has_infinity: bool = True
    shift: int = 0

    @property
    def container(self) -> Any:
        """numpy's unsigned type of the container."""
        return _UNSIGNED[self.bits]

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.bits - 1)


_UNSIGNED: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

FORMATS: dict[str, Format] = {
    "f64": Format(64, 52, -1022, float(np.finfo(np.float64).max), 0x7FFFFFFFFFFFFFFF),
    "f32": Format(32, 23, -126, float(np.finfo(np.float32).max), 0x7FFFFFFF),
    "tf32": Format(32, 10, -126, (2 - 2.0**-10) * 2.0**127, 0x7FFFFFFF, shift=13),
    "f16": Format(16, 10, -14, 65504.0, 0x7FFF),
    "bf16": Format(16, 7, -126, (2 - 2.0**-7) * 2.0**127, 0x7FFF),
    "e4m3": Format(8, 3, -6, 448.0, 0x7F, has_infinity=False),
    "e5m2": Format(8, 2, -14, 57344.0, 0x7F),
}


def _format(name: str) -> Format:
    try:
        return FORMATS[name]
    except KeyError:
        raise MachineError("unknown", f"number format {name!r}; allowed are {', '.join(FORMATS)}") from None


@lru_cache(maxsize=8)
def _table(name: str) -> NDArray[np.float32]:
    """The 256 values of an 8-bit format."""
    if name in ("s8", "u8"):
        return np.arange(256, dtype=np.uint8).view(np.int8 if name == "s8" else np.uint8).astype(np.float32)
    one = FORMATS[name]
    code = np.arange(256)
    exponent, fraction = (code & 0x7F) >> one.fraction, code & ((1 << one.fraction) - 1)
    normal = exponent > 0
    scaled = np.where(normal, fraction + (1 << one.fraction), fraction).astype(np.float64)
    values = np.ldexp(scaled, np.maximum(exponent, 1) - 1 + one.least - one.fraction)
    if one.has_infinity:
        top = exponent == exponent.max()
        values[top] = np.where(fraction[top] == 0, np.inf, np.nan)
    else:
        values[(code & 0x7F) == one.nan] = np.nan
    table: NDArray[np.float32] = np.where(code & 0x80, -values, values).astype(np.float32)
    return table


def to_float32(raw: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """The exact values of packed raw bytes (or of unsigned integers) of bf16, f16, tf32, e4m3, e5m2, s8, u8 or f32.

    The last axis shrinks by the format's size if ``raw`` is uint8. tf32 drops the 13 low bits, as the tensor core does.

    >>> to_float32(np.array([0x3F80, 0xC000], np.uint16), "bf16").tolist()
    [1.0, -2.0]
    >>> to_float32(np.array([0x38, 0x7E], np.uint8), "e4m3").tolist()
    [1.0, 448.0]
    """
    if dtype == "bf16":
        wide = raw.view(np.uint16).astype(np.uint32)
        wide <<= np.uint32(16)
        return wide.view(np.float32)
    if dtype == "f16":
        with np.errstate(invalid="ignore"):
            return raw.view(np.float16).astype(np.float32)
    if dtype == "tf32":
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    if dtype in ("e4m3", "e5m2", "s8", "u8"):
        return _table(dtype).take(raw.view(np.uint8))
    if dtype == "f32":
        return raw.view(np.float32)
    raise MachineError("unknown", f"operand format {dtype!r}; allowed are bf16, f16, tf32, e4m3, e5m2, s8, u8, f32")


def to_float64(bits: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """The exact values as float64. A tf32 container is read whole, as an f32.

    >>> to_float64(np.array([0x7BFF], np.uint16), "f16").tolist()
    [65504.0]
    """
    one = _format(dtype)
    values = np.asarray(bits).astype(one.container, copy=False)
    if dtype == "f64":
        return values.view(np.float64)
    with np.errstate(invalid="ignore"):
        return to_float32(values, "f32" if dtype == "tf32" else dtype).astype(np.float64)


def convert(
    bits: NDArray[Any],
    source: str,
    target: str,
    rounding: str = "rn",
    saturate: bool = False,
    relu: bool = False,
) -> NDArray[Any]:
    """PTX cvt between floating-point formats: bits of ``source`` -> bits of ``target``, in unsigned integers.

    ``saturate`` is .satfinite (8-bit targets have no other form), ``relu`` turns negative results into +0.

    >>> [hex(x) for x in convert(np.array([1.00390625, -0.0], np.float32).view(np.uint32), "f32", "bf16")]
    ['0x3f80', '0x8000']
    >>> [hex(x) for x in convert(np.array([1e6, np.nan], np.float32).view(np.uint32), "f32", "e4m3", saturate=True)]
    ['0x7e', '0x7f']
    """
    if source == "f32" and rounding == "rn" and not saturate and not relu:
        words = np.asarray(bits).astype(np.uint32, copy=False)
        if target == "bf16":
            return _bfloat16(words)
        if target == "f16":
            return _float16(words)
    return round_to_bits(to_float64(bits, source), target, rounding, saturate, relu)


def _bfloat16(words: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Round to nearest even by adding half of the last place, less one if the kept part is even."""
    rounded = words >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += words
    rounded >>= np.uint32(16)
    result = rounded.astype(np.uint16)
    values = words.view(np.float32)
    bad = values != values
    if bad.any():
        result[bad] = FORMATS["bf16"].nan
    return result


def _float16(words: NDArray[np.uint32]) -> NDArray[np.uint16]:
    values = words.view(np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = values.astype(np.float16).view(np.uint16)
    bad = values != values
    if bad.any():
        result[bad] = FORMATS["f16"].nan
    return result


def _rounded(scaled: NDArray[np.float64], rounding: str) -> NDArray[np.float64]:
    """Exact values in units of the last place -> integers."""
    if rounding == "rn":
        return np.rint(scaled)
    if rounding == "rz":
        return np.trunc(scaled)
    if rounding == "rm":
        return np.floor(scaled)
    if rounding == "rp":
        return np.ceil(scaled)
    if rounding == "rna":
        whole = np.trunc(scaled)
        return whole + np.where(np.abs(scaled - whole) >= 0.5, np.copysign(1.0, scaled), 0.0)
    raise MachineError("unknown", f"rounding {rounding!r}; allowed are rn, rna, rz, rm, rp")


def round_to_bits(
    values: NDArray[np.float64], target: str, rounding: str = "rn", saturate: bool = False, relu: bool = False
) -> NDArray[Any]:
    """float64 values -> bits of ``target``, rounded once. For f64 the bits of the values.

    Overflow gives infinity in the directions that round away from zero (and for "rn", "rna"), else the largest number;
    with ``saturate`` always the largest number, also for infinities. Raises for an 8-bit target without ``saturate``.

    >>> [hex(x) for x in round_to_bits(np.array([1 / 3, -70000.0, 1e-8]), "f16", "rz")]
    ['0x3555', '0xfbff', '0x0']
    """
    one = _format(target)
    values = np.asarray(values, np.float64)
    bad = values != values
    if one.bits == 8 and not saturate:
        raise MachineError("unknown", f"a conversion to {target} needs .satfinite; PTX has no other")
    if relu:
        values = np.where(values > 0, values, 0.0)
    if target == "f64":
        bits: NDArray[Any] = values.view(np.uint64).copy()
        bits[bad] = one.nan
        return bits
    magnitude = np.abs(np.where(bad, 0.0, values))
    infinite = np.isinf(magnitude)
    finite = np.where(infinite, one.largest, magnitude)
    _, exponent = np.frexp(finite)
    quantum = np.maximum(exponent - 1, one.least) - one.fraction
    signed = np.copysign(np.ldexp(finite, -quantum), values)
    with np.errstate(over="ignore"):
        result = np.ldexp(np.abs(_rounded(signed, rounding)), quantum)
    over = (result > one.largest) | infinite
    code = _encode(np.minimum(result, one.largest), one)
    if over.any():
        infinity = _infinity(one)
        away = _away(np.signbit(values), rounding) | infinite
        code = np.where(over & away & (not saturate), np.uint64(infinity), code)
    code = np.where(np.signbit(values), code | np.uint64(one.sign), code)
    code = np.where(bad, np.uint64(one.nan), code)
    return code.astype(one.container)


def _away(negative: NDArray[np.bool_], rounding: str) -> NDArray[np.bool_]:
    """Whether a result too large for the format becomes infinity."""
    if rounding in ("rn", "rna"):
        return np.ones_like(negative)
    return negative if rounding == "rm" else ~negative if rounding == "rp" else np.zeros_like(negative)


def _infinity(one: Format) -> int:
    if not one.has_infinity:
        return one.nan
    exponent_bits = one.bits - 1 - one.fraction - one.shift
    return ((1 << exponent_bits) - 1) << (one.fraction + one.shift)


def _encode(magnitude: NDArray[np.float64], one: Format) -> NDArray[np.uint64]:
    """Non-negative values that the format holds exactly -> bits without sign."""
    _, exponent = np.frexp(magnitude)
    exponent = exponent - 1
    normal = (magnitude != 0) & (exponent >= one.least)
    field = np.where(normal, exponent - one.least + 1, 0)
    unit = np.where(normal, exponent, one.least) - one.fraction
    digits = np.ldexp(magnitude, -unit).astype(np.int64)
    digits = np.where(normal, digits - (1 << one.fraction), digits)
    code: NDArray[np.uint64] = (((field.astype(np.int64) << one.fraction) + digits) << one.shift).astype(np.uint64)
    return code


def pack(high: NDArray[Any], low: NDArray[Any], width: int) -> NDArray[Any]:
    """Two values of ``width`` bits in one of twice as many; PTX's first source is the high half.

    >>> hex(pack(np.array([0x3F80]), np.array([0xC000]), 16)[0])
    '0x3f80c000'
    """
    wide = _UNSIGNED[2 * width]
    packed: NDArray[Any] = np.asarray(high).astype(wide)
    packed <<= wide(width)
    packed |= np.asarray(low).astype(wide)
    return packed


def unpack(packed: NDArray[Any], width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The high and the low half, as unsigned integers of ``width`` bits.

    >>> [hex(half[0]) for half in unpack(np.array([0x3F80C000], np.uint32), 16)]
    ['0x3f80', '0xc000']
    """
    wide, narrow = _UNSIGNED[2 * width], _UNSIGNED[width]
    values = np.asarray(packed).astype(wide)
    return (values >> wide(width)).astype(narrow), values.astype(narrow)
