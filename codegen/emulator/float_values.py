"""Floating-point values of registers (as bits) and what instructions do to them, with IEEE rounding.

Uniform values come as ints, others as unsigned arrays, as in values.py. Every result that PTX leaves to the implementation (the .approx
functions) is the correctly rounded one here: closer than hardware's, within its documented error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .values import MASK, UNSIGNED, Value, lift, select

FLOAT: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
NAN = {16: 0x7FFF, 32: 0x7FFFFFFF, 64: 0x7FF8000000000000}
_FRACTION = {16: 10, 32: 23, 64: 52}


def floats(value: Value, width: int) -> Any:
    """Bits -> numpy floats (a scalar for an int)."""
    if value.__class__ is np.ndarray:
        return value.view(FLOAT[width])
    return UNSIGNED[width](value).view(FLOAT[width])


def float_bits(value: Any, width: int) -> Value:
    """numpy floats -> bits, every NaN as the hardware's."""
    if value.__class__ is np.ndarray:
        raw = value.astype(FLOAT[width], copy=False).view(UNSIGNED[width])
        bad = value != value
        return np.where(bad, UNSIGNED[width](NAN[width]), raw) if bad.any() else raw
    value = FLOAT[width](value)
    return NAN[width] if value != value else int(value.view(UNSIGNED[width]))


def flush(value: Value, width: int) -> Value:
    """.ftz: subnormal numbers become zeros of their sign."""
    sign = 1 << (width - 1)
    small = value & (MASK[width] ^ sign)
    return select(small < (1 << _FRACTION[width]), value & sign, value, width)


def round_direction(exact: Any, rounded: Any, mode: str) -> Any:
    """Moves `rounded` (the nearest number) to the neighbour that a directed mode asks for; `exact` is wider or equal."""
    wide = rounded.astype(exact.dtype)
    kind = rounded.dtype.type
    with np.errstate(all="ignore"):
        down, up = np.nextafter(rounded, kind(-np.inf)), np.nextafter(rounded, kind(np.inf))
    low, high = np.where(wide > exact, down, rounded), np.where(wide < exact, up, rounded)
    if mode == "rm":
        return low
    if mode == "rp":
        return high
    return np.where(exact < 0, high, low)


def _two_sum_odd(a: Any, b: Any) -> Any:
    """a + b in float64 rounded to odd, so that a later rounding to fewer bits is the only one."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    raw = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & (raw & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, raw + toward, raw).view(np.float64)


def _narrow(exact: Any, mode: str) -> Any:
    result = exact.astype(np.float32)
    return result if mode == "rn" else round_direction(exact, result, mode)


def _binary(name: str, width: int, mode: str) -> Callable[..., Value]:
    @lift(width, width)
    def compute(a: Any, b: Any) -> Any:
        a, b = np.atleast_1d(a.view(FLOAT[width])), np.atleast_1d(b.view(FLOAT[width]))
        with np.errstate(all="ignore"):
            if mode == "rn":
                result = a + b if name == "add" else a - b if name == "sub" else a * b if name == "mul" else a / b
            else:
                if width != 32:
                    raise ValueError(f"{name} of {width}-bit floats with rounding {mode} is not modelled")
                x, y = a.astype(np.float64), b.astype(np.float64)
                if name == "div":
                    result = round_direction(x.astype(np.longdouble) / y, (x / y).astype(np.float32), mode)
                else:
                    exact = x * y if name == "mul" else _two_sum_odd(x, -y if name == "sub" else y)
                    result = _narrow(exact, mode)
        return float_bits(result, width)

    return compute


_BINARY: dict[tuple[str, int, str], Callable[..., Value]] = {}


def binary(name: str, a: Value, b: Value, width: int, mode: str = "rn") -> Value:
    """add, sub, mul or div with one rounding (rn, rz, rm, rp)."""
    found = _BINARY.get((name, width, mode))
    if found is None:
        found = _BINARY[name, width, mode] = _binary(name, width, mode)
    return found(a, b)


def _fma(width: int, mode: str) -> Callable[..., Value]:
    @lift(width, width, width)
    def compute(a: Any, b: Any, c: Any) -> Any:
        x, y, z = (np.atleast_1d(part.view(FLOAT[width])) for part in (a, b, c))
        with np.errstate(all="ignore"):
            if width == 64:
                return float_bits(_fma64(x, y, z), 64)
            exact = _two_sum_odd(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64))
            if width == 16:
                return float_bits(exact.astype(np.float16), 16)
            return float_bits(_narrow(exact, mode), 32)

    return compute


def _fma64(x: Any, y: Any, z: Any) -> Any:
    """Exact by integers: rare in these kernels, so slow is fine."""
    from fractions import Fraction

    x, y, z = np.broadcast_arrays(x, y, z)
    plain = x * y + z
    result = plain.copy()
    for i in range(plain.size):
        if np.isfinite(x[i]) and np.isfinite(y[i]) and np.isfinite(z[i]):
            exact = Fraction(float(x[i])) * Fraction(float(y[i])) + Fraction(float(z[i]))
            if exact:
                try:
                    result[i] = exact.numerator / exact.denominator
                except OverflowError:
                    result[i] = np.inf if exact > 0 else -np.inf
    return result


_FMA: dict[tuple[int, str], Callable[..., Value]] = {}


def fma(a: Value, b: Value, c: Value, width: int, mode: str = "rn") -> Value:
    """a * b + c with one rounding.

    >>> hex(fma(0x3F800001, 0x3F800001, 0xBF800002, 32))
    '0x28800000'
    """
    found = _FMA.get((width, mode))
    if found is None:
        found = _FMA[width, mode] = _fma(width, mode)
    return found(a, b, c)


def float_negate(a: Value, width: int) -> Value:
    """neg: the sign bit, nothing else."""
    return a ^ (1 << (width - 1))


def float_absolute(a: Value, width: int) -> Value:
    """abs."""
    return a & (MASK[width] >> 1)


def float_compare(a: Value, b: Value, width: int, name: str) -> Value:
    """setp on floats: eq ne lt le gt ge false with NaN; equ neu ltu leu gtu geu true with NaN; num, nan."""
    x, y = floats(a, width), floats(b, width)
    unordered = (x != x) | (y != y)
    if name in ("num", "nan"):
        result = ~unordered if name == "num" else unordered
    else:
        base = name[:2]
        result = {
            "eq": x.__eq__, "ne": x.__ne__, "lt": x.__lt__, "le": x.__le__, "gt": x.__gt__, "ge": x.__ge__,
        }[base](y)  # fmt: skip
        result = result | unordered if name.endswith("u") else result & ~unordered
    return result if result.__class__ is np.ndarray and result.ndim else bool(result)


def float_extremum(a: Value, b: Value, width: int, maximum: bool, propagate: bool) -> Value:
    """min or max: a NaN loses, or with .NaN wins; -0 is below +0."""
    return _extremum(width, maximum, propagate)(a, b)


_EXTREMUM: dict[tuple[int, bool, bool], Callable[..., Value]] = {}


def _extremum(width: int, maximum: bool, propagate: bool) -> Callable[..., Value]:
    key = (width, maximum, propagate)
    if key in _EXTREMUM:
        return _EXTREMUM[key]
    sign = UNSIGNED[width](1 << (width - 1))

    @lift(width, width)
    def compute(a: Any, b: Any) -> Any:
        # Order of the bits as sign and magnitude: an integer comparison that puts -0 below +0.
        rank_a = np.where(a & sign, ~a, a | sign)
        rank_b = np.where(b & sign, ~b, b | sign)
        better = np.where((rank_a > rank_b) == maximum, a, b)
        x, y = a.view(FLOAT[width]), b.view(FLOAT[width])
        nan_a, nan_b = x != x, y != y
        nan = UNSIGNED[width](NAN[width])
        if propagate:
            return np.where(nan_a | nan_b, nan, better)
        return np.where(nan_a & nan_b, nan, np.where(nan_a, b, np.where(nan_b, a, better)))

    _EXTREMUM[key] = compute
    return compute


def saturate(a: Value, width: int) -> Value:
    """.sat: clamped to [0, 1], NaN to 0."""
    one = {16: 0x3C00, 32: 0x3F800000, 64: 0x3FF0000000000000}[width]
    below = negate_or(float_compare(a, 0, width, "gt"))
    return select(below, 0, select(float_compare(a, one, width, "gt"), one, a, width), width)


def negate_or(predicate: Value) -> Value:
    """not p, for bool and arrays."""
    return ~predicate if predicate.__class__ is np.ndarray else not predicate


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
}


def unary(name: str, a: Value, width: int, mode: str = "rn") -> Value:
    """ex2, lg2, sin, cos, tanh, sqrt, rcp, rsqrt, computed in wider precision and rounded once."""
    values = np.atleast_1d(floats(a, width))
    wide = np.longdouble if width == 64 else np.float64
    with np.errstate(all="ignore"):
        exact = _FUNCTIONS[name](values.astype(wide))
        rounded = exact.astype(FLOAT[width])
        if mode != "rn":
            rounded = round_direction(exact, rounded, mode)
    result = float_bits(rounded, width)
    return result if a.__class__ is np.ndarray else int(result[0])


def copy_sign(a: Value, b: Value, width: int) -> Value:
    """copysign: the sign of a, the rest of b."""
    sign = 1 << (width - 1)
    return (a & sign) | (b & (MASK[width] ^ sign))


def test_property(a: Value, width: int, name: str) -> Value:
    """testp."""
    magnitude = a & (MASK[width] >> 1)
    infinite = (MASK[width] >> 1) & ~((1 << _FRACTION[width]) - 1)
    result = {
        "finite": lambda: magnitude < infinite,
        "infinite": lambda: magnitude == infinite,
        "number": lambda: magnitude <= infinite,
        "notanumber": lambda: magnitude > infinite,
        "normal": lambda: (magnitude < infinite) & (magnitude >= 1 << _FRACTION[width]),
        "subnormal": lambda: (magnitude < 1 << _FRACTION[width]) & (magnitude != 0),
    }[name]()
    return result if result.__class__ is np.ndarray else bool(result)
