"""What a user's expression should give, in float64, and how far float32's own result may be from it.

Goes through the expression once, with a bound for every part from those of its parts. Works on numpy arrays, and on CuPy ones
through the array module that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stridewright.kernels.expression import Term, parse

_ROUNDOFF = 2.0**-23
_TINY = 2.0**-126
_FUNCTION = 4e-6
"""Of the activations, absolute beside 1 + |x|: the hardware's exponential and reciprocal."""

_LARGEST = (2 - 2.0**-24) * 2.0**127
"""Float32 has no number for what is as large as this or larger; it rounds to an infinity."""

_OF_NUMBERS = ("+", "-", "*", "/", "%")

Bounded = tuple[Any, Any]
"""Values, and how far each may be off."""


def bounded(text: str, values: Mapping[str, Bounded], xp: Any = np) -> Bounded:
    """The expression of these values: its own in float64, and the largest difference that is allowed. What float32 has no
    number for is infinite with a difference of 0 where it surely is; where anything may come out the
    value is 0 and the difference infinite.

    >>> value, allowed = bounded("x < 0 ? 0.5f * x : x", {"x": (np.array([-2.0, 3.0]), np.array([0.0, 0.0]))})
    >>> value.tolist(), bool((allowed < 1e-5).all())
    ([-1.0, 3.0], True)
    """
    value, error = _as("float", parse(text), values, xp)
    # Infinities, and what has no value, stand for themselves alone: where anything may come out 0 stands.
    value = xp.where(~xp.isfinite(value) & xp.isinf(error), 0.0, value)
    shape = np.broadcast_shapes(*(np.shape(one) for one, _ in values.values()), np.shape(value))
    return xp.broadcast_to(xp.asarray(value, dtype=xp.float64), shape), xp.broadcast_to(xp.asarray(error), shape)


def _as(kind: str, term: Term, values: Mapping[str, Bounded], xp: Any) -> Bounded:
    """A part as C++ converts it."""
    return _converted(kind, term.kind, _value(term, values, xp), xp)


def _converted(kind: str, own: str, bounded: Bounded, xp: Any) -> Bounded:
    value, error = bounded
    if kind == own or kind == "int":
        return value, error
    if kind == "unsigned":
        with np.errstate(invalid="ignore"):  # of a whole number divided by 0
            return value % 2.0**32, error
    # Whole numbers of up to 24 bits are floats, too.
    return value, error + _ROUNDOFF * xp.where(xp.abs(value) <= 2.0**24, 0.0, xp.abs(value))


def _value(term: Term, values: Mapping[str, Bounded], xp: Any) -> Bounded:
    if term.what in _OF_NUMBERS:
        # A long sum leans to the left: from its first part on, without a call for each.
        above = [term]
        while above[-1].parts[0].what in _OF_NUMBERS:
            above.append(above[-1].parts[0])
        left, kind = _value(above[-1].parts[0], values, xp), above[-1].parts[0].kind
        for sign in reversed(above):
            one, other = _converted(sign.kind, kind, left, xp), _as(sign.kind, sign.parts[1], values, xp)
            if sign.what in "+-":
                one, other = (_perhaps_fused(*pair, xp) for pair in zip(sign.parts, (one, other), strict=True))
            left, kind = _arithmetic(sign, *one, *other, xp), sign.kind
        return left
    if term.what == "number":
        exact = term.kind != "float" or float(np.float32(term.number)) == term.number
        return term.number, 0.0 if exact else max(abs(term.number) * _ROUNDOFF, 2.0**-150)
    if term.what == "name":
        return values[term.name]
    if term.what == "?:":
        return _choice(term, values, xp)
    if term.what in ("<", ">", "<=", ">=", "==", "!=", "&&", "||", "not"):
        truth, unsure = _truth(term, values, xp)
        return xp.where(truth, 1.0, 0.0), xp.where(unsure, 1.0, 0.0)
    parts = [_as(term.kind, part, values, xp) for part in term.parts]
    if term.what == "minus":
        value, error = parts[0]
        if term.kind == "float":
            return -value, error
        return _converted(term.kind, "int", (0.0 - value, error), xp)  # a whole 0 has no sign
    return _call(term.what, parts, xp)


def _perhaps_fused(term: Term, bounded: Bounded, xp: Any) -> Bounded:
    """A part of a sum: of a product the compiler makes a multiply-add, in which it may be larger than float32's numbers are."""
    while term.what == "minus":
        term = term.parts[0]
    value, error = bounded
    return (value, xp.where(xp.isinf(value), xp.inf, error)) if term.what == "*" else bounded


def _choice(term: Term, values: Mapping[str, Bounded], xp: Any) -> Bounded:
    # A row of them leans to the right: from its last one back.
    above = [term]
    while above[-1].parts[2].what == "?:":
        above.append(above[-1].parts[2])
    last, kind = _value(above[-1].parts[2], values, xp), above[-1].parts[2].kind
    for choice in reversed(above):
        truth, unsure = _truth(choice.parts[0], values, xp)
        then, error = _as(choice.kind, choice.parts[1], values, xp)
        otherwise, other_error = _converted(choice.kind, kind, last, xp)
        with np.errstate(invalid="ignore"):
            either = xp.abs(then - xp.asarray(otherwise)) + error + other_error
        # What is infinite in one of the two, or has no value, may be anything where it is unsure which.
        either = xp.where(xp.isnan(either), xp.inf, either)
        last = xp.where(truth, then, otherwise), xp.where(unsure, either, xp.where(truth, error, other_error))
        kind = choice.kind
    return last


def _truth(term: Term, values: Mapping[str, Bounded], xp: Any) -> tuple[Any, Any]:
    """Whether it holds, and whether float32 may see it otherwise."""
    if term.what == "not":
        truth, unsure = _truth(term.parts[0], values, xp)
        return ~truth, unsure
    if term.what in ("&&", "||"):
        (left, one), (right, other) = (_truth(part, values, xp) for part in term.parts)
        return (left & right if term.what == "&&" else left | right), one | other
    if term.what in ("<", ">", "<=", ">=", "==", "!="):
        kinds = {part.kind for part in term.parts}
        kind = "float" if "float" in kinds else "unsigned" if "unsigned" in kinds else "int"
        (a, error_a), (b, error_b) = (_as(kind, part, values, xp) for part in term.parts)
        compare = {"<": xp.less, ">": xp.greater, "<=": xp.less_equal, ">=": xp.greater_equal, "==": xp.equal}
        truth = xp.not_equal(a, b) if term.what == "!=" else compare[term.what](a, b)
        with np.errstate(invalid="ignore"):
            difference = a - xp.asarray(b)
        return xp.asarray(truth), _near(difference, error_a + error_b, xp)
    value, error = _value(term, values, xp)
    return xp.asarray(xp.not_equal(value, 0.0)), _near(value, error, xp)


def _near(difference: Any, error: Any, xp: Any) -> Any:
    # Of infinities the difference may have no value: they may be any.
    return (xp.asarray(error) > 0) & ~(xp.abs(difference) > error)


def _arithmetic(term: Term, a: Any, error_a: Any, b: Any, error_b: Any, xp: Any) -> Bounded:
    a, b = xp.asarray(a, dtype=xp.float64), xp.asarray(b, dtype=xp.float64)
    if term.kind != "float":
        if term.kind == "unsigned" and term.what == "*":
            # More bits than float64 has.
            low = (a.astype(xp.uint64) * b.astype(xp.uint64)) & xp.uint64(2**32 - 1)
            return low.astype(xp.float64), error_a + error_b
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = {
                "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: xp.trunc(a / b), "%": lambda: xp.fmod(a, b),
            }[term.what]()  # fmt: skip
            whole = whole + 0.0  # a whole 0 has no sign
            # Divided by 0, C++ says nothing of it.
            nothing = (b == 0) & (term.what in "/%")
            whole, error = xp.where(nothing, 0.0, whole), xp.where(nothing, xp.inf, error_a + error_b)
            return (whole % 2.0**32 if term.kind == "unsigned" else whole), error
    with np.errstate(all="ignore"):
        if term.what in "+-":
            value = a + b if term.what == "+" else a - b
            error = error_a + error_b
        elif term.what == "*":
            value = a * b
            error = xp.abs(a) * error_b + xp.abs(b) * error_a + error_a * error_b
        else:
            value = a / b
            least = xp.abs(b) - error_b
            error = xp.where(least > 0, (error_a + xp.abs(value) * error_b) / xp.where(least > 0, least, 1.0), xp.inf)
            error = xp.where((xp.asarray(error_b) == 0) & (xp.asarray(error_a) == 0), 0.0, error)
        sure = _surely(term.what, a, error_a, b, error_b, xp)
        return _in_float32(value, error + 2 * _ROUNDOFF * xp.abs(value) + _TINY, sure, xp)


def _surely(sign: str, a: Any, error_a: Any, b: Any, error_b: Any, xp: Any) -> Any:
    """Where an infinite result is so whatever its parts are within their errors; also one without a value."""
    # An infinite part that is not sure has an infinite error.
    sure = (error_a < xp.inf) & (error_b < xp.inf)
    signs = ((xp.abs(a) > error_a) | (error_a == 0)) & ((xp.abs(b) > error_b) | (error_b == 0))
    return sure & signs if sign in "*/" else sure


def _in_float32(value: Any, error: Any, sure: Any, xp: Any) -> Bounded:
    """A value as float32 has it: infinite beyond its numbers. ``sure``: where what is infinite in float64, or has no value,
    is the same in float32.
    """
    ends = xp.abs(value)
    beyond = ends >= _LARGEST
    lies = xp.where(beyond & (value == value), xp.copysign(xp.inf, value), value)
    finite = xp.isfinite(value)
    near = xp.where(finite, xp.where(ends + error >= _LARGEST, xp.inf, error), xp.where(sure, 0.0, xp.inf))
    return lies, xp.where(finite & beyond & (ends - error >= _LARGEST), 0.0, near)


def _call(name: str, parts: list[Bounded], xp: Any) -> Bounded:
    from .reference import activation

    value, error = parts[0]
    value = xp.asarray(value, dtype=xp.float64)
    with np.errstate(all="ignore"):
        if name == "float":
            return value, error + _ROUNDOFF * xp.where(xp.isfinite(value), xp.abs(value), 0.0)
        if name in ("gelu", "gelu_tanh", "silu", "sigmoid"):
            result, apart = activation(name, xp)(value), 1.2 * error + _FUNCTION * (1.0 + xp.abs(value))
            apart = xp.where(xp.isfinite(value) | (xp.asarray(error) > 0), apart, 0.0)
            return _in_float32(result, apart, xp.asarray(error) == 0, xp)
        if name in ("relu", "fabsf"):
            return (xp.abs(value) if name == "fabsf" else xp.where(value < 0, 0.0, value)), error
        if name in ("fmaxf", "fminf"):
            other, other_error = parts[1]
            # The hardware's give the number where one is NaN.
            return (xp.fmax if name == "fmaxf" else xp.fmin)(value, other), xp.maximum(error, other_error)
        known = xp.isfinite(error)
        near = xp.where(known, error, 0.0)
        if name == "powf":
            other, other_error = parts[1]
            other_near = xp.where(xp.isfinite(other_error), other_error, 0.0)
            corners = [xp.power(value + i * near, other + j * other_near) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            middle, same = corners[4], known & xp.isfinite(other_error)
            # The power of a negative number has a value, and its sign, where the exponent is whole.
            whole = xp.floor(other + other_near) >= xp.ceil(other - other_near)
            same = same & ~((value - near < 0) & (other_near > 0) & whole)
        else:
            corners = [_function(name, value + i * near, xp) for i in (-1, 0, 1)]
            middle, same = corners[1], known
        apart, sure = xp.zeros(()), same
        for one in corners:
            apart = xp.maximum(apart, xp.where(xp.isfinite(one), xp.abs(one - middle), 0.0))
            sure = sure & ((one == middle) | (xp.isnan(one) & xp.isnan(middle)))
            # Where a corner is infinite or has no value, and the middle is a number, float32 may give any.
            apart = xp.where(xp.isfinite(one) | ~xp.isfinite(middle), apart, xp.inf)
        apart = xp.where(same, apart, xp.inf)
        return _in_float32(middle, apart + 16 * _ROUNDOFF * xp.abs(middle) + _TINY, sure, xp)


def _function(name: str, value: Any, xp: Any) -> Any:
    if name == "erff":
        from .reference import activation

        # gelu is x (1 + erf(x / sqrt 2)) / 2.
        scaled = xp.clip(value, -30.0, 30.0) * 2.0**0.5
        far = 2.0 * activation("gelu", xp)(scaled) / xp.where(scaled == 0, 1.0, scaled) - 1.0
        # Near 0 little is left of that; the series' next part is below 2^-50 of the first.
        return xp.where(xp.abs(value) < 1e-4, 1.1283791670955126 * (value - value**3 / 3.0), far)
    functions = {
        "expf": xp.exp, "logf": xp.log, "log1pf": xp.log1p, "tanhf": xp.tanh, "sqrtf": xp.sqrt,
        "rsqrtf": lambda x: 1.0 / xp.sqrt(x), "floorf": xp.floor, "ceilf": xp.ceil, "rintf": xp.rint,
    }  # fmt: skip
    return functions[name](value)
