"""Is a result right? A float64 reference from the same inputs, the relative error, and a bound that every element
must keep.

Knows matrices and number formats; knows no kernels. Works on numpy arrays, and on CuPy ones through the array module
that it is given, so that large results are checked where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Half the distance from 1 to the next number (round to nearest), and the smallest positive number of each format.
_ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "e4m3": 2.0**-4, "e5m2": 2.0**-3}
_SMALLEST = {"bf16": 2.0**-133, "f16": 2.0**-24, "f32": 2.0**-149, "e4m3": 2.0**-9, "e5m2": 2.0**-16}
_LARGEST = {
    "bf16": (2 - 2.0**-7) * 2.0**127,
    "f16": 65504.0,
    "f32": (2 - 2.0**-23) * 2.0**127,
    "e4m3": 448.0,
    "e5m2": 57344.0,
}

# Steps between neighbours of 1. The tensor core truncates when it adds (measured on an H200), hence a step and not
# half of one.
_ACCUMULATOR_STEP = {"f32": 2.0**-23, "f16": 2.0**-10}

_ROWS_AT_ONCE = 1024


def bound_terms(accumulator: str, output: str) -> tuple[float, float, float]:
    """What an element's bound is made of: the accumulator's step, the output's roundoff, and half its smallest number.

    >>> bound_terms("f32", "bf16")[:2] == (2**-23, 2**-8)
    True
    """
    return _ACCUMULATOR_STEP[accumulator], _ROUNDOFF[output], _SMALLEST[output] / 2


@dataclass(frozen=True)
class Check:
    """How a result compares with its float64 reference.

    ``relative_error`` is the Frobenius norm of D - D64 over that of D64, ``max_abs_error`` the largest difference,
    both over the finite elements. ``outside`` counts elements beyond their bound or not finite where the reference is
    (or the other way round); ``worst`` describes the one furthest out. ``passed`` is ``outside == 0``.
    """

    relative_error: float
    max_abs_error: float
    elements: int
    outside: int
    worst: str

    @property
    def passed(self) -> bool:
        """Whether every element is within its bound."""
        return self.outside == 0


def check_gemm(
    d: Any, a: Any, b: Any, accumulator: str = "f32", output: str = "bf16", array_module: Any = None
) -> Check:
    """Compare ``d`` (M, N) with ``a @ b.T`` in float64, for ``a`` (M, K) and ``b`` (N, K), a block of rows at a time.

    The bound of an element is K * eps of the accumulator on the row of abs(A) times that of abs(B), plus the
    rounding to the output's format. Where the reference is NaN or infinite, the result must be the same; beyond the
    output's largest number, infinity of its sign is right. ``array_module`` is numpy unless given
    (CuPy).

    >>> import numpy as np
    >>> a = np.ones((2, 3), np.float32)
    >>> check_gemm(np.full((2, 2), 3, np.float32), a, a, output="f32").passed
    True
    >>> check_gemm(np.full((2, 2), 4, np.float32), a, a, output="f32").worst
    'd[0, 0] is 4, a @ b.T is 3 in float64, and 1e-06 apart would be allowed'
    """
    import numpy

    xp = numpy if array_module is None else array_module
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or d.shape != (a.shape[0], b.shape[0]):
        raise ValueError(f"a {a.shape}, b {b.shape}, d {d.shape}: must be (M, K), (N, K) and (M, N)")
    total = _Total()
    with numpy.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are inputs like others here
        for first, got, exact, allowed in _blocks(d, a, b, accumulator, output, xp):
            total.add(xp, first, got, exact, allowed, _LARGEST[output])
    norm = math.sqrt(total.reference_square)
    error = math.sqrt(total.error_square)
    relative = error / norm if norm else (0.0 if error == 0 else math.inf)
    return Check(relative, total.largest, int(d.size), total.outside, total.worst)


def _blocks(d: Any, a: Any, b: Any, accumulator: str, output: str, xp: Any) -> Iterator[tuple[int, Any, Any, Any]]:
    """Blocks of rows: the first row's number, the result and the reference in float64, and the difference allowed."""
    k = a.shape[1]
    right = b.astype(xp.float64)
    right_size = xp.abs(right)
    for first in range(0, d.shape[0], _ROWS_AT_ONCE):
        left = a[first : first + _ROWS_AT_ONCE].astype(xp.float64)
        exact = left @ right.T
        accumulated = k * _ACCUMULATOR_STEP[accumulator] * (xp.abs(left) @ right_size.T)
        allowed = accumulated + _ROUNDOFF[output] * (xp.abs(exact) + accumulated) + _SMALLEST[output] / 2
        yield first, d[first : first + _ROWS_AT_ONCE].astype(xp.float64), exact, allowed


class _Total:
    """Sums over the blocks."""

    def __init__(self) -> None:
        self.error_square = self.reference_square = self.largest = 0.0
        self.outside = 0
        self.worst = ""
        self._worst_excess = -1.0

    def add(self, xp: Any, first: int, got: Any, exact: Any, allowed: Any, largest: float) -> None:
        finite = xp.isfinite(got) & xp.isfinite(exact)
        difference = xp.abs(xp.where(finite, got, 0.0) - xp.where(finite, exact, 0.0))
        self.error_square += float(xp.sum(difference * difference))
        kept = xp.where(finite, exact, 0.0)
        self.reference_square += float(xp.sum(kept * kept))
        self.largest = max(self.largest, float(xp.max(difference)) if difference.size else 0.0)
        overflow = xp.abs(exact) + allowed > largest
        # An infinite or NaN bound allows nothing by itself: such elements must equal the reference.
        right = xp.where(finite, difference <= allowed, (got == exact) | (xp.isnan(got) & xp.isnan(exact)))
        right = right | (overflow & xp.isinf(got) & (xp.sign(got) == xp.sign(exact)))
        wrong = ~right
        count = int(xp.sum(wrong))
        if not count:
            return
        self.outside += count
        excess = xp.where(wrong, xp.where(finite, difference / allowed, xp.inf), -1.0)
        position = int(xp.argmax(excess))
        row, column = divmod(position, got.shape[1])
        if float(excess[row, column]) > self._worst_excess:
            self._worst_excess = float(excess[row, column])
            values = (float(got[row, column]), float(exact[row, column]), float(allowed[row, column]))
            self.worst = (
                f"d[{first + row}, {column}] is {values[0]:.8g}, a @ b.T is {values[1]:.8g} in float64, and "
                f"{values[2]:.1g} apart would be allowed"
            )
