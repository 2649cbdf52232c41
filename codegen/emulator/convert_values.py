"""Values of instructions that name a number format: arithmetic by type name, pairs of 16-bit floats, conversions.

The formats themselves are in numerics.py; this module only bridges registers (ints or arrays) to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import float_values as fv
from .numerics import convert, round_to_bits, to_float32
from .values import MASK, SIGNED, UNSIGNED, Value, lift, signed

_WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8}


def _halves(value: Value, width: int = 16) -> tuple[Value, Value]:
    if value.__class__ is np.ndarray:
        kind = UNSIGNED[width]
        return (value & value.dtype.type(MASK[width])).astype(kind), (value >> value.dtype.type(width)).astype(kind)
    return value & MASK[width], value >> width


def _join(low: Value, high: Value, width: int = 16) -> Value:
    kind = UNSIGNED[2 * width]
    low = low.astype(kind) if low.__class__ is np.ndarray else low
    high = high.astype(kind) << kind(width) if high.__class__ is np.ndarray else high << width
    return low | high


def _by_kind(values: tuple[Value, ...], kind: str, function: Callable[[tuple[Value, ...], str], Value]) -> Value:
    if kind.endswith("x2"):
        pairs = [_halves(value) for value in values]
        low = function(tuple(pair[0] for pair in pairs), kind[:-2])
        high = function(tuple(pair[1] for pair in pairs), kind[:-2])
        return _join(low, high)
    return function(values, kind)


def bf16_to_f32(value: Value) -> Value:
    """bf16 bits -> f32 bits."""
    return value.astype(np.uint32) << np.uint32(16) if value.__class__ is np.ndarray else value << 16


def _bf16(name: str, values: tuple[Value, ...], mode: str) -> Value:
    @lift(*[32] * len(values))
    def compute(*arrays: Any) -> Any:
        x = [np.atleast_1d(array.view(np.float32)).astype(np.float64) for array in arrays]
        with np.errstate(all="ignore"):
            if name in ("fma", "mad"):
                exact = fv._two_sum_odd(x[0] * x[1], x[2])
            elif name in ("add", "sub"):
                exact = fv._two_sum_odd(x[0], x[1] if name == "add" else -x[1])
            else:
                exact = x[0] * x[1]
        return round_to_bits(exact, "bf16", mode)

    return compute(*[bf16_to_f32(value) for value in values])


def _arithmetic(name: str) -> Callable[[tuple[Value, ...], str, str, bool], Value]:
    def compute(values: tuple[Value, ...], kind: str, mode: str, propagate: bool) -> Value:
        def one(parts: tuple[Value, ...], single: str) -> Value:
            if single == "bf16":
                return _bf16(name, parts, mode)
            width = _WIDTH[single]
            if name in ("fma", "mad"):
                return fv.fma(parts[0], parts[1], parts[2], width, mode)
            return fv.binary(name, parts[0], parts[1], width, mode)

        return _by_kind(values, kind, one)

    return compute


float_add, float_sub, float_mul = _arithmetic("add"), _arithmetic("sub"), _arithmetic("mul")
float_div, float_fma, float_mad = _arithmetic("div"), _arithmetic("fma"), _arithmetic("mad")


def _extremum(maximum: bool) -> Callable[[tuple[Value, ...], str, str, bool], Value]:
    def compute(values: tuple[Value, ...], kind: str, mode: str, propagate: bool) -> Value:
        def one(parts: tuple[Value, ...], single: str) -> Value:
            if single != "bf16":
                return fv.float_extremum(parts[0], parts[1], _WIDTH[single], maximum, propagate)
            wide = fv.float_extremum(bf16_to_f32(parts[0]), bf16_to_f32(parts[1]), 32, maximum, propagate)
            return wide >> 16 if wide.__class__ is not np.ndarray else (wide >> np.uint32(16)).astype(np.uint16)

        return _by_kind(values, kind, one)

    return compute


float_min, float_max = _extremum(False), _extremum(True)


def float_neg(values: tuple[Value, ...], kind: str, mode: str, propagate: bool) -> Value:
    """neg."""
    return _by_kind(values, kind, lambda parts, single: fv.float_negate(parts[0], _WIDTH[single]))


def float_abs(values: tuple[Value, ...], kind: str, mode: str, propagate: bool) -> Value:
    """abs."""
    return _by_kind(values, kind, lambda parts, single: fv.float_absolute(parts[0], _WIDTH[single]))


def function_kind(name: str, value: Value, kind: str, mode: str) -> Value:
    """ex2, tanh and the like, of any float type."""

    def one(parts: tuple[Value, ...], single: str) -> Value:
        if single != "bf16":
            return fv.unary(name, parts[0], _WIDTH[single], mode)
        return convert_float(fv.unary(name, bf16_to_f32(parts[0]), 32), "f32", "bf16", "rn", False, False)

    return _by_kind((value,), kind, one)


def saturate_kind(value: Value, kind: str) -> Value:
    """.sat of any float type."""

    def one(parts: tuple[Value, ...], single: str) -> Value:
        if single == "bf16":
            wide = fv.saturate(bf16_to_f32(parts[0]), 32)
            return wide >> 16 if wide.__class__ is not np.ndarray else (wide >> np.uint32(16)).astype(np.uint16)
        return fv.saturate(parts[0], _WIDTH[single])

    return _by_kind((value,), kind, one)


def convert_float(value: Value, source: str, target: str, mode: str, finite: bool, relu: bool) -> Value:
    """cvt between float formats."""
    if value.__class__ is np.ndarray:
        return convert(value, source, target, mode, finite, relu)
    return int(convert(np.array([value], UNSIGNED[_WIDTH[source]]), source, target, mode, finite, relu)[0])


def _bf16_pair(high: Value, low: Value) -> Value | None:
    """cvt.rn.bf16x2.f32 of arrays without NaN: the epilogue of every GEMM. None if this short way does not apply."""
    if high.__class__ is not np.ndarray or low.__class__ is not np.ndarray:
        return None
    if (np.maximum(high & _MAGNITUDE, low & _MAGNITUDE)).max() > 0x7F800000:
        return None
    top = high + _HALF + (high >> _SIXTEEN & _ONE) & _UPPER
    return top | low + _HALF + (low >> _SIXTEEN & _ONE) >> _SIXTEEN


_MAGNITUDE, _HALF, _SIXTEEN, _ONE, _UPPER = (np.uint32(n) for n in (0x7FFFFFFF, 0x7FFF, 16, 1, 0xFFFF0000))


def convert_two(high: Value, low: Value, source: str, target: str, mode: str, finite: bool, relu: bool) -> Value:
    """cvt.x2 of two values: `high` into the upper half."""
    if target == "bf16" and source == "f32" and mode == "rn" and not relu and not finite:
        pair = _bf16_pair(high, low)
        if pair is not None:
            return pair
    width = _WIDTH[target]
    top = convert_float(high, source, target, mode, finite, relu)
    bottom = convert_float(low, source, target, mode, finite, relu)
    return _join(bottom, top, width)


def convert_pair(value: Value, source: str, target: str, mode: str, finite: bool, relu: bool) -> Value:
    """cvt of a packed pair."""
    low, high = _halves(value, _WIDTH[source])
    return convert_two(high, low, source, target, mode, finite, relu)


def _float64(value: Any, kind: str) -> Any:
    if kind == "f64":
        return value.view(np.float64)
    return to_float32(value, kind).astype(np.float64)


_ROUND: dict[str, Callable[[Any], Any]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def float_to_integer(value: Value, source: str, width: int, is_signed: bool, mode: str) -> Value:
    """cvt to an integer: out-of-range values clamp, NaN gives 0 (for 64 bits of f64 and f32: the sign bit, PTX cvt)."""
    if value.__class__ is not np.ndarray:
        array = np.array([value], UNSIGNED[_WIDTH[source]])
        return int(float_to_integer(array, source, width, is_signed, mode)[0])
    numbers = _ROUND[mode](_float64(value, source))
    low = -(2 ** (width - 1)) if is_signed else 0
    high = 2 ** (width - 1) - 1 if is_signed else 2**width - 1
    kind: Any = SIGNED[width] if is_signed else UNSIGNED[width]
    nan = numbers != numbers
    with np.errstate(invalid="ignore"):
        inside = (numbers >= float(low)) & (numbers < float(high + 1))
        result = np.where(inside, numbers, 0).astype(kind)
        result = np.where(numbers < float(low), kind(low), np.where(numbers >= float(high + 1), kind(high), result))
    invalid = 0 if width < 64 else (1 << 63)
    return np.where(nan, UNSIGNED[width](invalid), result.view(UNSIGNED[width]))


def integer_to_float(value: Value, width: int, is_signed: bool, target: str, mode: str) -> Value:
    """cvt from an integer, rounded once."""
    if value.__class__ is not np.ndarray:
        return int(integer_to_float(np.array([value], UNSIGNED[width]), width, is_signed, target, mode)[0])
    number = signed(value, width) if is_signed else value
    if target in ("f32", "f64") and mode == "rn":
        return number.astype(fv.FLOAT[_WIDTH[target]]).view(UNSIGNED[_WIDTH[target]])
    if width == 64:
        exact = number.astype(np.longdouble)  # 64 bits of fraction: exact
        result = exact.astype(fv.FLOAT[_WIDTH[target]])
        return fv.float_bits(fv.round_direction(exact, result, mode), _WIDTH[target])
    return round_to_bits(number.astype(np.float64), target, mode)


def round_to_integer(value: Value, kind: str, mode: str) -> Value:
    """cvt.rni.f32.f32 and the like."""
    if value.__class__ is not np.ndarray:
        return int(round_to_integer(np.array([value], UNSIGNED[_WIDTH[kind]]), kind, mode)[0])
    if kind == "bf16":
        return round_to_bits(_ROUND[mode](_float64(value, kind)), kind, "rn")
    width = _WIDTH[kind]
    return fv.float_bits(_ROUND[mode](value.view(fv.FLOAT[width])), width)


def saturate_integer(value: Value, source: int, source_signed: bool, target: int, target_signed: bool) -> Value:
    """cvt.sat between integers: clamps to the target's range.

    >>> saturate_integer(300, 32, False, 8, False), saturate_integer(2**32 - 5, 32, True, 8, False)
    (255, 0)
    """
    number = signed(value, source) if source_signed else value
    low = -(2 ** (target - 1)) if target_signed else 0
    high = 2 ** (target - 1) - 1 if target_signed else 2**target - 1
    if value.__class__ is not np.ndarray:
        return max(low, min(high, number)) & MASK[target]
    kind = number.dtype.type
    info = np.iinfo(number.dtype)
    clipped = np.clip(number, kind(max(low, int(info.min))), kind(min(high, int(info.max))))
    return clipped.astype(SIGNED[target] if target_signed else UNSIGNED[target]).view(UNSIGNED[target])
