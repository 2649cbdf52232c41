"""Small numbers to and from the bits of every type, and registers full of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from stridewright.layout.hardware.dtypes import bits

Array = np.ndarray[Any, Any]


def _decoded(exponent_bits: int, mantissa_bits: int, bias: int) -> dict[float, int]:
    """Value -> code of the non-negative finite codes of an 8-bit float, small ones only."""
    table: dict[float, int] = {}
    for code in range(1 << (exponent_bits + mantissa_bits)):
        exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        fraction = mantissa / (1 << mantissa_bits)
        value = (1 + fraction) * 2.0 ** (exponent - bias) if exponent else fraction * 2.0 ** (1 - bias)
        if value <= 256:
            table.setdefault(value, code)
    return table


_FLOAT8 = {"e4m3": _decoded(4, 3, 7), "e5m2": _decoded(5, 2, 15)}


def encode(values: Array, dtype: str) -> Array:
    """Codes (uint8, uint16, uint32 or uint64) of small non-negative integers that the type holds exactly."""
    if dtype in _FLOAT8:
        table = _FLOAT8[dtype]
        return np.vectorize(lambda v: table[float(v)], otypes=[np.uint8])(values)
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    if dtype in ("f32", "tf32"):
        return values.astype(np.float32).view(np.uint32)
    if dtype == "f64":
        return values.astype(np.float64).view(np.uint64)
    return values.astype({"s8": np.int8, "u8": np.uint8, "s32": np.int32}[dtype]).view(f"u{bits(dtype) // 8}")


def registers(values: Array, dtype: str) -> Array:
    """(threads, elements) of small integers as (threads, 32-bit words), low element first."""
    return np.ascontiguousarray(encode(values, dtype)).view(np.uint32)


def results(words: Array, dtype: str) -> Array:
    """(threads, 32-bit words) of an accumulator as (threads, elements) of float64."""
    kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32, "f64": np.float64}[dtype]
    return np.ascontiguousarray(words).view(kind).astype(np.float64)


def digits(numbers: Array, count: int) -> list[Array]:
    """Base-8 digits, lowest first: every type holds 0..7, 8 and 64 exactly."""
    return [numbers >> (3 * i) & 7 for i in range(count)]


def placed(layout: Any, threads: int) -> Array:
    """(threads, elements) of element numbers of a fragment layout."""
    from stridewright.layout import size

    return np.asarray(layout(np.arange(int(size(layout))))).reshape(-1, threads).T


def image(tile: Any, values: Array, dtype: str, length: int) -> Array:
    """Shared memory (bytes) that holds (rows, k) values as ``tile`` says; bytes not used are 0xA5."""
    codes = encode(values, dtype)
    rows, k = values.shape
    offsets = np.asarray(tile(np.arange(rows * k))).reshape(k, rows).T
    memory = np.full(length, 0xA5, np.uint8)
    memory.view(codes.dtype)[offsets] = codes
    return memory
