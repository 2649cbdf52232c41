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

Bounded = tuple[Any, Any]
"""Values, and how far each may be off."""


def bounded(text: str, values: Mapping[str, Bounded], xp: Any = np) -> Bounded:
    """The expression of these values: its own in float64, and the largest difference that is allowed.

    >>> value, allowed = bounded("x < 0 ? 0.5f * x : x", {"x": (np.array([-2.0, 3.0]), np.array([0.0, 0.0]))})
    >>> value.tolist(), bool((allowed < 1e-5).all())
    ([-1.0, 3.0], True)
    """
    value, error = _as("float", parse(text), values, xp)
    shape = np.broadcast_shapes(*(np.shape(one) for one, _ in values.values()), np.shape(value))
    return xp.broadcast_to(xp.asarray(value, dtype=xp.float64), shape), xp.broadcast_to(xp.asarray(error), shape)


def _as(kind: str, term: Term, values: Mapping[str, Bounded], xp: Any) -> Bounded:
    """A part as C++ converts it."""
    value, error = _value(term, values, xp)
    if kind == term.kind or kind == "int":
        return value, error
    if kind == "unsigned":
        return value % 2.0**32, error
    # Whole numbers of up to 24 bits are floats, too.
    return value, error + _ROUNDOFF * xp.where(xp.abs(value) <= 2.0**24, 0.0, xp.abs(value))


def _value(term: Term, values: Mapping[str, Bounded], xp: Any) -> Bounded:
    if term.what == "number":
        exact = term.kind != "float" or float(np.float32(term.number)) == term.number
        return term.number, 0.0 if exact else abs(term.number) * _ROUNDOFF
    if term.what == "name":
        return values[term.name]
    if term.what == "?:":
        return _choice(term, values, xp)
    if term.what in ("<", ">", "<=", ">=", "==", "!=", "&&", "||", "not"):
        truth, unsure = _truth(term, values, xp)
        return xp.where(truth, 1.0, 0.0), xp.where(unsure, 1.0, 0.0)
    parts = [_as(term.kind, part, values, xp) for part in term.parts]
    if term.what == "minus":
        value = -parts[0][0]
        return (value % 2.0**32 if term.kind == "unsigned" else value), parts[0][1]
    if term.what in ("+", "-", "*", "/", "%"):
        (a, error_a), (b, error_b) = parts
        return _arithmetic(term, a, error_a, b, error_b, xp)
    return _call(term.what, parts, xp)


def _choice(term: Term, values: Mapping[str, Bounded], xp: Any) -> Bounded:
    truth, unsure = _truth(term.parts[0], values, xp)
    (then, error), (otherwise, other_error) = (_as(term.kind, part, values, xp) for part in term.parts[1:])
    either = xp.abs(then - xp.asarray(otherwise)) + error + other_error
    return xp.where(truth, then, otherwise), xp.where(unsure, either, xp.where(truth, error, other_error))


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
        return xp.asarray(truth), _near(a - xp.asarray(b), error_a + error_b, xp)
    value, error = _value(term, values, xp)
    return xp.asarray(xp.not_equal(value, 0.0)), _near(value, error, xp)


def _near(difference: Any, error: Any, xp: Any) -> Any:
    return (xp.asarray(error) > 0) & (xp.abs(difference) <= error)


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
        return (whole % 2.0**32 if term.kind == "unsigned" else whole), error_a + error_b
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
    return value, error + 2 * _ROUNDOFF * xp.abs(value) + _TINY


def _call(name: str, parts: list[Bounded], xp: Any) -> Bounded:
    from .reference import activation

    value, error = parts[0]
    value = xp.asarray(value, dtype=xp.float64)
    with np.errstate(all="ignore"):
        if name == "float":
            return value, error + _ROUNDOFF * xp.abs(value)
        if name in ("gelu", "gelu_tanh", "silu", "sigmoid"):
            return activation(name, xp)(value), 1.2 * error + _FUNCTION * (1.0 + xp.abs(value))
        if name in ("relu", "fabsf"):
            return (xp.abs(value) if name == "fabsf" else activation("relu", xp)(value)), error
        if name in ("fmaxf", "fminf"):
            other, other_error = parts[1]
            # The hardware's give the number where one is NaN.
            return (xp.fmax if name == "fmaxf" else xp.fmin)(value, other), xp.maximum(error, other_error)
        if name == "powf":
            other, other_error = parts[1]
            corners = [xp.power(value + i * error, other + j * other_error) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            middle = corners[4]
        else:
            corners = [_function(name, value + i * error, xp) for i in (-1, 0, 1)]
            middle = corners[1]
        apart = xp.zeros(())
        for one in corners:
            apart = xp.maximum(apart, xp.where(xp.isfinite(one), xp.abs(one - middle), 0.0))
    return middle, apart + 16 * _ROUNDOFF * xp.abs(middle) + _TINY


def _function(name: str, value: Any, xp: Any) -> Any:
    if name == "erff":
        from .reference import activation

        # gelu is x (1 + erf(x / sqrt 2)) / 2.
        scaled = value * 2.0**0.5
        return xp.where(
            scaled == 0, 0.0, 2.0 * activation("gelu", xp)(scaled) / xp.where(scaled == 0, 1.0, scaled) - 1.0
        )
    functions = {
        "expf": xp.exp, "logf": xp.log, "log1pf": xp.log1p, "tanhf": xp.tanh, "sqrtf": xp.sqrt,
        "rsqrtf": lambda x: 1.0 / xp.sqrt(x), "floorf": xp.floor, "ceilf": xp.ceil, "rintf": xp.rint,
    }  # fmt: skip
    return functions[name](value)
