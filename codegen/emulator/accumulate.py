"""What a tensor core does to a sum, bit by bit: the model measured on an H200.

A wgmma or mma.sync instruction is one fused sum of C and its k products. The exponent of a product is the sum of its
factors' exponents, not normalised; a subnormal number has the smallest normal exponent; zeros do not take part. With E
the largest exponent, at least -133, every term is truncated toward zero to a multiple of 2^(E - F); the sum is exact
and rounded once. Source: measured, equal on all 1,269,760 outputs tried; tests/data/h200/numerics.npz holds a part.

Everything is done in float64, which is exact here: a product has at most 22 significant bits, and after truncation the
terms are multiples of 2^(E - F) below 2^(E + 2), so that their sum has at most F + 2 + 6 bits.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import MachineError
from .numerics import FORMATS, to_float32

__all__ = ["fused_sum", "group_sum", "mma_sync_sum", "tensor_sum"]

FRACTION_BITS = 25
"""F of 16-bit and tf32 operands, and of 8-bit floats in mma.sync."""
FRACTION_BITS_FP4 = 35
"""F of tcgen05.mma's kinds mxf4 and mxf4nvf4 (MMA-Sim, not measured here)."""
FP4_GROUP = 16
"""Products of 4-bit values that are summed exactly before they are scaled."""
FRACTION_BITS_FP8_WGMMA = 13
"""F of 8-bit floats in wgmma; an f32 result keeps as many fraction bits."""
LEAST_EXPONENT = -133
"""E is never smaller."""

_ABSENT = -8000
"""Exponent of a zero: below every sum of two exponents, and two of them still fit int16."""


class _Workspace:
    """Arrays of one result's shape that are used again for every instruction.

    Made anew each time they would cost as much as the arithmetic: memory of this size goes back to the system.
    """

    def __init__(self, m: int, n: int) -> None:
        self.top, self.pair, self.low = np.empty((3, m, n), np.int16)
        self.exponent = np.empty((m, n), np.int32)
        self.wide = np.empty((m, n), np.int64)
        self.start, self.total, self.term = np.empty((3, m, n), np.float64)
        self.narrow, self.narrow_term, self.narrow_total = np.empty((3, m, n), np.float32)


@lru_cache(maxsize=64)
def _workspace(m: int, n: int, thread: int) -> _Workspace:
    return _Workspace(m, n)


def _exponents(values: NDArray[np.float64], least: int) -> NDArray[np.int16]:
    """The exponent of every value, at least that of the smallest normal number; zeros are absent."""
    _, exponent = np.frexp(values)
    result: NDArray[np.int16] = np.maximum(exponent - 1, least).astype(np.int16)
    result[values == 0] = _ABSENT
    return result


def fused_sum(
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    a_type: str,
    b_type: str,
    d_type: str,
    saturate: bool = False,
) -> NDArray[Any]:
    """One wgmma with the chip's bits: C + A B^T.

    ``a`` (m, k), ``b`` (n, k) and ``c`` (m, n) are bits in unsigned integers; the result (m, n) has the bits of D:
    uint32 for f32 and s32, uint16 for f16. ``saturate`` is .satfinite of the integer form.

    >>> one = np.full((1, 16), 0x3F80, np.uint16)
    >>> fused_sum(one, one, np.zeros((1, 1), np.uint32), "bf16", "bf16", "f32").view(np.float32).tolist()
    [[16.0]]
    """
    if d_type == "s32":
        return _integer_sum(a, b, c, a_type, b_type, saturate)
    eight_bit = FORMATS[a_type].bits == 8
    fraction = FRACTION_BITS_FP8_WGMMA if eight_bit else FRACTION_BITS
    return _float_sum(a, b, c, a_type, b_type, d_type, fraction, eight_bit and d_type == "f32")


def mma_sync_sum(
    a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], a_type: str, b_type: str, d_type: str, saturate: bool = False
) -> NDArray[Any]:
    """One mma.sync with the chip's bits, as ``fused_sum``; the two differ for 8-bit floats.

    There the products with k % 4 < 2 are summed first, starting from zero, those with k % 4 >= 2 on top of it, both
    with F = 25 to f32, and C is added last by an ordinary f32 addition.

    >>> one = np.full((1, 32), 0x38, np.uint8)
    >>> mma_sync_sum(one, one, np.zeros((1, 1), np.uint32), "e4m3", "e4m3", "f32").view(np.float32).tolist()
    [[32.0]]
    """
    if d_type == "s32" or FORMATS[a_type].bits != 8:
        return fused_sum(a, b, c, a_type, b_type, d_type, saturate)
    if d_type != "f32":
        raise MachineError("unknown", f"mma.sync of {a_type} into {d_type} was never measured; f32 was")
    late = np.arange(a.shape[1]) % 4 >= 2
    total = np.zeros(c.shape, np.uint32)
    for part in (~late, late):
        total = _float_sum(a[:, part], b[:, part], total, a_type, b_type, "f32", FRACTION_BITS, False)
    with np.errstate(over="ignore", invalid="ignore"):
        result = total.view(np.float32) + c.view(np.float32)
    bits = result.view(np.uint32).copy()
    bits[result != result] = FORMATS["f32"].nan
    bits[result == 0] = 0
    return bits


_LEAST = {**{name: one.least for name, one in FORMATS.items()}, "e2m1": 0, "e2m3": 0, "e3m2": -2}


def tensor_sum(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    before: NDArray[Any],
    a_type: str,
    b_type: str,
    d_type: str,
    factor: NDArray[np.float64] | None = None,
) -> NDArray[Any]:
    """One tcgen05.mma by the model that a paper gives (MMA-Sim, arXiv 2511.10909), not measured: ``before`` + A B^T.

    As ``fused_sum`` with F = 25 for every operand type. ``left`` (m, k), ``right`` (n, k) and ``before`` (m, n) are exact values; the
    result has the bits of D. ``factor`` (m, n): powers of two by which the products of an element are scaled, all alike; the model then only
    shifts exponents, and a result that leaves the normal numbers of f32 raises.

    >>> one = np.ones((1, 32), np.float32)
    >>> tensor_sum(one, one, np.zeros((1, 1)), "e4m3", "e4m3", "f32").view(np.float32).tolist()
    [[32.0]]
    """
    start = before
    if factor is not None:
        # Where all products are 0, as along a padded K, the sum is what it was, however far its exponent is from the factors'.
        nothing = ~(np.abs(left).astype(np.float64) @ np.abs(right).T.astype(np.float64)).astype(np.bool_)
        start = np.where(nothing, 0.0, before / factor)
    bits = _sum_of_values(
        left.astype(np.float64), right.T, start, _LEAST[a_type], _LEAST[b_type], d_type, FRACTION_BITS, False
    )
    if factor is None:
        return bits
    exact = np.where(nothing, before, bits.view(np.float32).astype(np.float64) * factor)
    small = np.abs(exact[exact != 0])
    if not np.isfinite(exact).all() or (small.size and not 2.0**-126 <= small.min() <= small.max() < 2.0**128):
        raise MachineError("unknown", "a block-scaled sum that is no normal number of f32: its bits are not modelled")
    return exact.astype(np.float32).view(np.uint32)


def group_sum(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    before: NDArray[np.float64],
    scale_left: NDArray[np.float64],
    scale_right: NDArray[np.float64],
    least: int,
) -> NDArray[np.uint32]:
    """One tcgen05.mma of kind mxf4 or mxf4nvf4 by MMA-Sim's model (arXiv 2511.10909), not measured: ``before`` + scaled A B^T, bits of f32.

    ``left`` (m, k) and ``right`` (n, k) are e2m1 values; ``scale_left`` (m, groups) and ``scale_right`` (n, groups) a factor for each 16
    elements of k; ``least`` the exponent of the scale type's smallest normal number. Sixteen products are summed exactly and multiplied by the
    scales' digits; that term's exponent is the sum of the scales' exponents. Terms and ``before`` are cut toward zero at 35 bits below the largest
    exponent and summed, and the sum is cut toward zero to f32.

    >>> one = np.ones((1, 64), np.float32)
    >>> half = np.full((1, 4), 0.5)
    >>> group_sum(one, one, np.zeros((1, 1)), half, half, -6).view(np.float32).tolist()
    [[16.0]]
    """
    groups = scale_left.shape[1]
    numbers = [np.isfinite(one).all(axis=1) for one in (scale_left, scale_right)]
    special = ~np.logical_and.outer(*numbers) | np.isnan(before)
    endless = np.isinf(before) & ~special
    start = np.where(special | endless, 0.0, before)
    scales = [np.where(np.isfinite(one), one, 1.0) for one in (scale_left, scale_right)]
    exponents = [_exponents(one, least).astype(np.int64) for one in scales]
    digits = [np.ldexp(one, -e) for one, e in zip(scales, exponents, strict=True)]
    a, b = (one.astype(np.float64).reshape(one.shape[0], groups, FP4_GROUP).transpose(1, 0, 2) for one in (left, right))
    terms = a @ b.transpose(0, 2, 1) * digits[0].T[:, :, None] * digits[1].T[:, None, :]
    places = exponents[0].T[:, :, None] + exponents[1].T[:, None, :]
    places = np.where(terms == 0, _ABSENT, places)
    own = _exponents(start, FORMATS["f32"].least).astype(np.int64)
    top = np.maximum(np.maximum(places.max(axis=0), own), LEAST_EXPONENT)
    unit = top - FRACTION_BITS_FP4
    total = np.trunc(np.ldexp(start, -unit))
    for term, place in zip(terms, places, strict=True):
        total += np.trunc(np.ldexp(term, np.where(term == 0, 0, place - unit)))
    exact = np.ldexp(total, unit) + 0.0
    bits = _toward_zero(exact, False, int(unit.min()), np.empty_like(exact))
    bits[special] = FORMATS["f32"].nan
    bits[endless] = before[endless].astype(np.float32).view(np.uint32)
    return bits


def _integer_sum(
    a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], a_type: str, b_type: str, saturate: bool
) -> NDArray[np.uint32]:
    # k is at most 256: |sum| < 2^24 is exact in float32.
    product = to_float32(a, a_type) @ to_float32(b, b_type).T
    total = product.astype(np.int64) + c.view(np.int32)
    if saturate:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.int32).view(np.uint32)


def _float_sum(
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    a_type: str,
    b_type: str,
    d_type: str,
    fraction: int,
    short: bool,
) -> NDArray[Any]:
    with np.errstate(invalid="ignore"):
        left, right = to_float32(a, a_type).astype(np.float64), to_float32(b, b_type).T
        start = c.view(np.float32 if d_type == "f32" else np.float16)
        return _sum_of_values(left, right, start, FORMATS[a_type].least, FORMATS[b_type].least, d_type, fraction, short)


def _sum_of_values(
    left: NDArray[np.float64],
    right: NDArray[Any],
    before: NDArray[Any],
    a_least: int,
    b_least: int,
    d_type: str,
    fraction: int,
    short: bool,
) -> NDArray[Any]:
    """The same from exact values: (m, k), (k, n), (m, n). ``a_least``: exponent of the smallest normal number."""
    work = _workspace(before.shape[0], before.shape[1], threading.get_ident())
    start = work.start
    right = np.ascontiguousarray(right, dtype=np.float64)
    start[...] = before
    special = None
    if not (np.isfinite(left).all() and np.isfinite(right).all() and np.isfinite(start).all()):
        special = _special_sum(left, right, start)
        left, right = (np.where(np.isfinite(values), values, 0.0) for values in (left, right))
        start[~np.isfinite(start)] = 0.0
    top = _largest_exponent(work, left, right, a_least, b_least, d_type)
    unit = int(top.min()) - fraction
    # 2 ** (F - E), written as the bits of a float64.
    np.subtract(fraction + 1023, top, out=work.wide, dtype=np.int64)
    work.wide <<= 52
    scale = work.wide.view(np.float64)
    total = np.multiply(start, scale, out=work.total)
    np.trunc(total, out=total)
    if fraction == FRACTION_BITS_FP8_WGMMA:
        # Nearly every sum loses bits. Products have 8 bits, their exponents are at least -28, and 32 truncated terms
        # stay below 2^24: float32 is exact. Where E is smaller there are no products, and any scale will do.
        narrow = work.narrow
        np.minimum(scale, 2.0**100, out=work.term)
        narrow[...] = work.term
        total += _truncated(
            left.astype(np.float32), right.astype(np.float32), narrow, work.narrow_term, work.narrow_total
        )
    else:
        np.subtract(top, np.int16(fraction), out=top)
        _add_mostly_exact(work, left, right, scale)
    total += 0.0
    exact = np.divide(total, scale, out=total)
    if d_type == "f16":
        with np.errstate(over="ignore"):
            bits: NDArray[Any] = exact.astype(np.float16).view(np.uint16)
    else:
        bits = _toward_zero(exact, short, unit, work.term)
    # A sum that is zero by rounding is +0 (one that is exactly zero already is).
    bits[bits == bits.dtype.type(FORMATS[d_type].sign)] = 0
    if special is not None:
        odd = ~np.isfinite(special)
        coded = special.astype(np.float16 if d_type == "f16" else np.float32).view(bits.dtype)
        coded = np.where(np.isnan(special), bits.dtype.type(FORMATS[d_type].nan), coded)
        bits[odd] = coded[odd]
    return bits


def _largest_exponent(
    work: _Workspace, left: NDArray[np.float64], right: NDArray[np.float64], a_least: int, b_least: int, d_type: str
) -> NDArray[np.int16]:
    """E of every sum, in ``work.top``."""
    top, pair, exponent = work.top, work.pair, work.exponent
    np.frexp(work.start, out=(work.term, exponent))
    exponent -= 1
    np.maximum(exponent, FORMATS[d_type].least, out=exponent)
    top[...] = exponent
    top[work.start == 0] = LEAST_EXPONENT
    left_exponent = _exponents(left, a_least)
    right_exponent = _exponents(right, b_least)
    for k in range(left.shape[1]):
        np.add(left_exponent[:, k, None], right_exponent[k], out=pair)
        np.maximum(top, pair, out=top)
    return top


def _truncated(
    left: NDArray[Any], right: NDArray[Any], scale: NDArray[Any], term: NDArray[Any], total: NDArray[Any]
) -> NDArray[Any]:
    """The sum over k of trunc(left[m, k] * right[k, n] * scale[m, n]), in ``total``."""
    total[...] = 0
    for k in range(left.shape[1]):
        np.multiply(left[:, k, None], right[k], out=term)
        term *= scale
        np.trunc(term, out=term)
        total += term
    return total


def _add_mostly_exact(
    work: _Workspace, left: NDArray[np.float64], right: NDArray[np.float64], scale: NDArray[np.float64]
) -> None:
    """Adds the same sum to ``work.total``. ``work.top`` holds the exponents of the units.

    Where no term has bits below the unit nothing is cut, and one matrix product serves; the others go term by term.
    """
    low, pair, term, total = work.low, work.pair, work.term, work.total
    left_low, right_low = _lowest_bits(left), _lowest_bits(right)
    np.matmul(left, right, out=term)
    term *= scale
    # The lowest bits of whole rows and columns often settle it, as with small integers.
    np.add(left_low.min(axis=1)[:, None], right_low.min(axis=0), out=low)
    if not (low < work.top).any():
        total += term
        return
    low[...] = -2 * _ABSENT
    for k in range(left.shape[1]):
        np.add(left_low[:, k, None], right_low[k], out=pair)
        np.minimum(low, pair, out=low)
    cut = low < work.top
    if cut.any():
        rows, columns = np.nonzero(cut)
        terms = left[rows] * right.T[columns]
        terms *= scale[cut][:, None]
        term[cut] = np.trunc(terms, out=terms).sum(axis=1)
    total += term


def _lowest_bits(values: NDArray[np.float64]) -> NDArray[np.int16]:
    """The exponent of the lowest bit set in every value; large for zeros."""
    mantissa, exponent = np.frexp(values)
    digits = (mantissa * (1 << 24)).astype(np.int64)
    _, place = np.frexp((digits & -digits).astype(np.float64))
    result: NDArray[np.int16] = (place - 1 + exponent - 24).astype(np.int16)
    result[values == 0] = -_ABSENT
    return result


def _special_sum(left: NDArray[Any], right: NDArray[Any], start: NDArray[Any]) -> NDArray[np.float64]:
    """Infinite or NaN where the sum is: finite numbers are replaced by their signs, so that nothing overflows."""
    with np.errstate(invalid="ignore"):
        left, right, start = (np.where(np.isfinite(one), np.sign(one), one) for one in (left, right, start))
        total = start.copy()
        for k in range(left.shape[1]):
            total += left[:, k, None] * right[k]
    return total


def _toward_zero(
    exact: NDArray[np.float64], short: bool, unit: int, magnitude: NDArray[np.float64]
) -> NDArray[np.uint32]:
    """float64 -> bits of f32, cut toward zero; 2^128 and more is infinity. ``short`` clears the ten low bits.

    All values are multiples of 2^unit; ``magnitude`` is scratch space.
    """
    np.abs(exact, out=magnitude)
    if unit >= FORMATS["f32"].least:
        # No subnormal results: the 29 bits that float64 has more are cleared.
        cut = (exact.view(np.uint64) & np.uint64(0xFFFFFFFFE0000000)).view(np.float64)
        with np.errstate(over="ignore"):
            bits = cut.astype(np.float32).view(np.uint32)
    else:
        with np.errstate(over="ignore", under="ignore"):
            near = exact.astype(np.float32)
        # The next f32 toward zero has the next smaller code.
        bits = near.view(np.uint32) - (np.abs(near) > magnitude).astype(np.uint32)
    if short:
        bits &= np.uint32(0xFFFFFC00)
    if float(magnitude.max()) >= 2.0**128:
        over = magnitude >= 2.0**128
        bits[over] = np.where(exact[over] > 0, np.uint32(0x7F800000), np.uint32(0xFF800000))
    return bits
