"""Element-wise reductions of the copy engine: cp.reduce.async.bulk with and without a tensor map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import TensorCopyError
from .numerics import round_to_bits, to_float64

__all__ = ["OPERATIONS", "reduce_values"]

# PTX ISA, "cp.reduce.async.bulk" and "cp.reduce.async.bulk.tensor": which operation takes which type.
OPERATIONS: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64", "u32", "s32", "u64", "s64"),
    "or": ("b32", "b64", "u32", "s32", "u64", "s64"),
    "xor": ("b32", "b64", "u32", "s32", "u64", "s64"),
}
_INTEGERS: dict[str, Any] = {
    "b32": np.uint32,
    "b64": np.uint64,
    "u32": np.uint32,
    "s32": np.int32,
    "u64": np.uint64,
    "s64": np.int64,
}
_FLOATS: dict[str, Any] = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}


def reduce_values(old: NDArray[np.uint8], new: NDArray[np.uint8], dtype: str, operation: str) -> NDArray[np.uint8]:
    """The bytes after ``old = old operation new`` on elements of ``dtype``; floating sums are rounded to nearest even.

    >>> one = np.array([1, 7], np.uint32).view(np.uint8)
    >>> reduce_values(one, one, "u32", "add").view(np.uint32).tolist()
    [2, 14]
    """
    if operation not in OPERATIONS:
        raise TensorCopyError("unknown", f"reduction {operation!r}; allowed are {', '.join(OPERATIONS)}")
    if dtype not in OPERATIONS[operation]:
        allowed = ", ".join(OPERATIONS[operation])
        raise TensorCopyError("unknown", f"reduction {operation} of {dtype}; it takes {allowed}")
    result: NDArray[Any]
    if dtype in _FLOATS:
        result = _float(old.view(_FLOATS[dtype]), new.view(_FLOATS[dtype]), dtype, operation)
        return result.view(np.uint8)
    left, right = old.view(_INTEGERS[dtype]), new.view(_INTEGERS[dtype])
    with np.errstate(over="ignore"):
        result = _integer(left, right, operation).astype(left.dtype)
    return result.view(np.uint8)


_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _integer(old: NDArray[Any], new: NDArray[Any], operation: str) -> NDArray[Any]:
    if operation == "inc":
        # PTX: old >= limit ? 0 : old + 1
        return np.where(old >= new, 0, old + 1)
    if operation == "dec":
        # PTX: old == 0 or old > limit ? limit : old - 1
        return np.where((old == 0) | (old > new), new, old - 1)
    result: NDArray[Any] = _UFUNCS[operation](old, new)
    return result


def _float(old: NDArray[Any], new: NDArray[Any], dtype: str, operation: str) -> NDArray[Any]:
    left, right = to_float64(old, dtype), to_float64(new, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        if operation != "add":
            if np.isnan(left).any() or np.isnan(right).any():
                raise TensorCopyError("unknown", f"reduction {operation} of a NaN of {dtype} was never measured")
            return round_to_bits((np.fmin if operation == "min" else np.fmax)(left, right), dtype)
        if dtype == "f32":
            total = old.view(np.float32) + new.view(np.float32)
            return round_to_bits(total.astype(np.float64), dtype)
        # Rounding twice is harmless: a sum of two 16-bit floats that float64 cannot hold is dominated by one of them.
        return round_to_bits(left + right, dtype)
