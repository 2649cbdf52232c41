"""What a general GEMM should give, in float64, and how far each element may be from it.

The definition, written once more without kernels: ``act(alpha * acc + beta * C + bias) * scale_d`` of the very inputs, and a
bound from the accumulator's steps, float32 arithmetic after it and the rounding to D's format. Works on numpy arrays,
and on CuPy ones through the array module that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stridewright.kernels.fusion import BLOCK_K

_ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "e4m3": 2.0**-4, "e5m2": 2.0**-3, "s8": 0.0, "s32": 0.0}
_HALF_STEP = {
    "bf16": 2.0**-134,
    "f16": 2.0**-25,
    "f32": 2.0**-150,
    "e4m3": 2.0**-10,
    "e5m2": 2.0**-17,
    "s8": 0.5,
    "s32": 0.5,
}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "s8": 127.0, "s32": 2.0**31 - 1}
"""Where results saturate."""

_FLOAT = 2.0**-23
_FUNCTION_ERROR = 4e-6
"""Of the activations beside float32's own roundings: the hardware's exponential and reciprocal."""
_COARSE_GELU = 2.0**-9.8
"""Relative, of gelu where D keeps 8 bits or fewer (kernels/cuda/activations.cuh)."""


@dataclass(frozen=True)
class Expected:
    """``d`` in float64, ``allowed`` the largest difference of each element; ``x`` and ``x_allowed`` the same of what the
    activation is applied to; ``amax`` the largest |D| before scale_d.
    """

    d: Any
    allowed: Any
    x: Any
    x_allowed: Any
    amax: float


def widened(array: Any, dtype: str, xp: Any = np) -> Any:
    """An array of this format in float64; of 8-bit floats the bytes may be given. tf32 is rounded as the copy engine does.

    >>> float(widened(np.array([1 + 2**-11], np.float32), "tf32")[0])
    1.0
    """
    if dtype in ("e4m3", "e5m2") and array.dtype == np.uint8:
        from .tensors import numpy_type

        table = np.arange(256, dtype=np.uint8).view(numpy_type(dtype)).astype(np.float64)
        return xp.asarray(table)[array.astype(np.int32)]
    if dtype == "tf32":
        bits = xp.ascontiguousarray(array).view(xp.uint32).astype(xp.uint64)
        low = bits & 0x1FFF
        up = (low > 0x1000) | ((low == 0x1000) & ((bits >> 13) & 1 == 1))
        rounded = ((bits >> 13) + up.astype(xp.uint64)) << 13
        return (rounded & 0xFFFFFFFF).astype(xp.uint32).view(xp.float32).astype(xp.float64)
    return array.astype(xp.float64)


def activation(name: str, xp: Any = np) -> Callable[[Any], Any]:
    """The activation in float64.

    >>> float(activation("relu")(np.array(-2.0)))
    0.0
    """
    if name == "gelu":
        if xp is np:
            from math import erf

            error: Any = np.vectorize(erf, otypes=[np.float64])
        else:
            import importlib

            error = importlib.import_module("cupyx.scipy.special").erf
        return lambda x: 0.5 * x * (1.0 + error(x / 2.0**0.5))
    functions: dict[str, Callable[[Any], Any]] = {
        "none": lambda x: x,
        "relu": lambda x: xp.maximum(x, 0.0),
        "sigmoid": lambda x: 0.5 * (1.0 + xp.tanh(x / 2)),
        "silu": lambda x: 0.5 * x * (1.0 + xp.tanh(x / 2)),
        "gelu_tanh": lambda x: 0.5 * x * (1.0 + xp.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    }
    return functions[name]


def spread(scales: Any, shape: tuple[int, ...], by_rows: int, xp: Any = np) -> Any:
    """Block scales for every element of (.., rows, k): each stands for ``by_rows`` rows and 128 of k."""
    wide = xp.repeat(xp.repeat(scales.astype(xp.float64), by_rows, axis=-2), BLOCK_K, axis=-1)
    return wide[..., : shape[-2], : shape[-1]]


def expected(
    a: Any,
    b: Any,
    d_format: str,
    *,
    step: float = 2.0**-23,
    alpha: float = 1.0,
    c: Any = None,
    beta: float = 0.0,
    bias: Any = None,
    act: str = "none",
    gated: bool = False,
    expression: str = "",
    scale_d: float = 1.0,
    product: Callable[[Any, Any], Any] | None = None,
    xp: Any = np,
) -> Expected:
    """The result of float64 operands a (.., M, K) and b (.., N, K), scales already multiplied in.

    ``step``: of the accumulator, relative (0 where sums are exact). ``expression``: C++ in place of ``act``.
    ``product(a, b)`` in place of ``a @ b.T``, for groups. All of ``c`` and ``bias`` must broadcast to the product.

    >>> expected(np.ones((1, 2)), np.ones((1, 2)), "f32", alpha=3.0).d.tolist()
    [[6.0]]
    """
    multiply = product or (lambda left, right: left @ xp.swapaxes(right, -1, -2))
    acc, size = multiply(a, b), multiply(xp.abs(a), xp.abs(b))
    k = max(a.shape[-1], 1)
    error = step * k * size
    x = alpha * acc
    x_allowed = abs(alpha) * (error + 4 * _FLOAT * (xp.abs(acc) + error)) if step or alpha != 1.0 else error + 0 * acc
    for added, factor in ((c, beta), (bias, 1.0)):
        if added is not None and factor:
            x = x + factor * added.astype(xp.float64)
            x_allowed = x_allowed + 4 * _FLOAT * (xp.abs(factor * added) + xp.abs(x))
    if gated:
        value, allowed = _gated(x, x_allowed, act, d_format, xp)
    elif expression:
        from .expression_bound import bounded

        row, column = xp.arange(x.shape[-2])[:, None], xp.arange(x.shape[-1])[None, :]
        zero = xp.zeros(())
        named = {"x": (x, x_allowed), "acc": (acc, error + 0 * acc), "row": (row, zero), "col": (column, zero)}
        named |= {"alpha": (xp.asarray(alpha), zero), "beta": (xp.asarray(beta), zero)}
        named |= {name: (array, zero) for name, array in (("c", c), ("bias", bias)) if array is not None}
        value, allowed = bounded(expression, named, xp)
    elif act == "none":
        value, allowed = x, x_allowed
    else:
        value = activation(act, xp)(x)
        allowed = 1.2 * x_allowed + _function_error(act, d_format, x, value, xp)
    amax = float(xp.max(xp.abs(value))) if value.size else 0.0
    value, allowed = value * scale_d, allowed * abs(scale_d) * (1 + 4 * _FLOAT)
    return Expected(*_rounded(value, allowed, d_format, xp), *_rounded(x, x_allowed, d_format, xp), amax)


def _function_error(act: str, d_format: str, x: Any, value: Any, xp: Any) -> Any:
    """Of an activation at x, beside float32's own roundings."""
    if act in ("none", "relu"):
        return 0.0 * x
    error = _FUNCTION_ERROR * (1.0 + xp.abs(x))
    return (
        error + _COARSE_GELU * xp.abs(value) if act == "gelu" and d_format in ("bf16", "e4m3", "e5m2", "s8") else error
    )


def _gated(x: Any, x_allowed: Any, act: str, d_format: str, xp: Any) -> tuple[Any, Any]:
    gate, other = x[..., ::2], x[..., 1::2]
    value = activation(act, xp)(gate)
    gate_error = 1.2 * x_allowed[..., ::2] + _function_error(act, d_format, gate, value, xp)
    other_error = x_allowed[..., 1::2]
    product = value * other
    allowed = (
        gate_error * xp.abs(other)
        + xp.abs(value) * other_error
        + gate_error * other_error
        + 4 * _FLOAT * xp.abs(product)
    )
    return product, allowed


def _rounded(value: Any, allowed: Any, d_format: str, xp: Any) -> tuple[Any, Any]:
    """The value as it saturates, and the difference allowed with its rounding."""
    limit = LARGEST.get(d_format)
    if limit is not None:
        value = xp.clip(value, -limit - (1 if d_format in ("s8", "s32") else 0), limit)
    half = _HALF_STEP[d_format]
    if d_format in ("s8", "s32"):
        # Whole numbers stay what they are; anything else is rounded to the nearest.
        half = xp.where(value == xp.rint(value), 0.0, 0.5) + xp.where(allowed > 0, 0.5, 0.0)
    return value, allowed + _ROUNDOFF[d_format] * (xp.abs(value) + allowed) + half
