"""The floats of 4, 6 and 8 bits: their values, and the code nearest to a number, exactly.

A format is its table of values. The nearest code is found between the midpoints of neighbours, which are exact in float64;
nothing is rounded twice, whatever the input's precision. Formats: OCP "Microscaling Formats (MX) Specification" 1.0
(e4m3, e5m2, e3m2, e2m3, e2m1, ue8m0) and PTX ISA 9.1, section 5.2.3 (ue4m3: e4m3 without a sign).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SmallFloat:
    """A format of ``bits`` bits: sign (or none), ``exponent`` bits, ``fraction`` bits, and which codes are no numbers.

    ``infinity``: whether the greatest exponent holds infinity and NaNs, as in IEEE formats; ``one_nan``: whether the greatest
    code alone is NaN, as in e4m3. The others' every code is a number.
    """

    name: str
    exponent: int
    fraction: int
    signed: bool = True
    infinity: bool = False
    one_nan: bool = False

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.signed + self.exponent + self.fraction

    @property
    def numpy_type(self) -> str:
        """The name of ml_dtypes' type of an element, a byte each whatever its bits; of ue4m3 that of e4m3.

        >>> [small_float(name).numpy_type for name in ("e4m3", "e2m1", "ue8m0")]
        ['float8_e4m3fn', 'float4_e2m1fn', 'float8_e8m0fnu']
        """
        digits = f"e{self.exponent}m{self.fraction}"
        return (
            f"float{8 if not self.signed else self.bits}_{digits}"
            + ("" if self.infinity else "fn")
            + "u" * (digits == "e8m0")
        )

    @property
    def bias(self) -> int:
        """Of the exponent field."""
        return (1 << self.exponent - 1) - 1

    @cached_property
    def magnitudes(self) -> NDArray[np.float64]:
        """Values of the codes without a sign from 0 on that are finite: ascending, so that a code is an index.

        >>> small_float("e2m1").magnitudes.tolist()
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        """
        count = 1 << self.exponent + self.fraction
        if self.infinity:
            count -= 1 << self.fraction
        elif self.one_nan:
            count -= 1
        code = np.arange(count)
        if self.fraction == 0:  # ue8m0 has neither zero nor subnormal numbers
            return np.asarray(np.ldexp(1.0, code - self.bias), dtype=np.float64)
        field, digits = code >> self.fraction, code & ((1 << self.fraction) - 1)
        digits = np.where(field > 0, digits + (1 << self.fraction), digits)
        return np.asarray(np.ldexp(digits.astype(np.float64), np.maximum(field, 1) - self.bias - self.fraction))

    @property
    def maximum(self) -> float:
        """The greatest finite value.

        >>> [small_float(name).maximum for name in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue4m3")]
        [448.0, 57344.0, 28.0, 7.5, 6.0, 448.0]
        """
        return float(self.magnitudes[-1])

    @property
    def greatest_exponent(self) -> int:
        """floor(log2(maximum)): what the MX specification calls emax.

        >>> [small_float(name).greatest_exponent for name in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")]
        [8, 15, 4, 2, 2]
        """
        return int(np.frexp(self.maximum)[1]) - 1

    @property
    def nan(self) -> int | None:
        """A code that is NaN, None where there is none."""
        return (1 << self.exponent + self.fraction) - 1 if self.infinity or self.one_nan else None

    @cached_property
    def midpoints(self) -> NDArray[np.float64]:
        """Half way between each value and the next: exact."""
        return (self.magnitudes[1:] + self.magnitudes[:-1]) / 2

    def values(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """What codes (unsigned bytes, one each) stand for, infinities and NaNs included.

        >>> small_float("e4m3").values(np.array([0x7E, 0x7F, 0x81], np.uint8)).tolist()
        [448.0, nan, -0.001953125]
        """
        return self._table.take(np.asarray(codes, np.uint8) & ((1 << self.bits) - 1))

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        positive = np.full(1 << self.exponent + self.fraction, np.nan)
        positive[: self.magnitudes.size] = self.magnitudes
        if self.infinity:
            positive[self.magnitudes.size] = np.inf
        return np.concatenate([positive, -positive]) if self.signed else positive

    def nearest(self, values: NDArray[Any], unit: NDArray[Any] | float = 1.0) -> NDArray[np.uint8]:
        """The code nearest to ``values / unit``: of two equally near the even one, beyond the greatest the greatest.

        ``unit`` is positive and broadcasts against ``values``; the quotient is never formed: a value is held against the
        midpoints times the unit, which must be exact in float64 (a unit of at most 40 significant bits). NaN becomes
        the format's NaN, or ValueError where it has none. The sign stays, on zeros too.

        >>> small_float("e2m1").nearest(np.array([0.24, 0.25, 0.26, 2.5, 5.0, 100.0, -0.1])).tolist()
        [0, 0, 1, 4, 6, 7, 8]
        """
        values = np.asarray(values, np.float64)
        lost = np.isnan(values)
        if lost.any() and self.nan is None:
            raise ValueError(f"{self.name} has no NaN: a value that is none cannot be rounded to it")
        size = np.abs(values)
        if np.ndim(unit) == 0 and float(unit) == 1.0:
            below = np.searchsorted(self.midpoints, size, side="left")
            upto = np.searchsorted(self.midpoints, size, side="right")
        else:
            below, upto = self._counted(size, np.asarray(unit, np.float64))
        # On a midpoint the two differ by one: the even code of the two neighbours.
        code = np.where(below == upto, below, below + (below & 1))
        if self.signed:
            code = code + (np.signbit(values).astype(np.int64) << self.bits - 1)
        elif (values < 0).any():
            raise ValueError(f"{self.name} has no sign: a negative value cannot be rounded to it")
        found: NDArray[np.uint8] = code.astype(np.uint8)
        if self.nan is not None:
            found[lost] = self.nan
        return found

    def _counted(self, size: NDArray[Any], unit: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Midpoints times the unit that are less than each size, and those not greater."""
        significand, exponent = np.frexp(unit)
        # Dividing by a power of two is exact, or so far below the least midpoint, or beyond the greatest, that it does not matter.
        with np.errstate(over="ignore"):
            size = np.ldexp(size, -exponent)
        if (significand == 0.5).all():
            halves = self.midpoints * 0.5
            return np.searchsorted(halves, size, side="left"), np.searchsorted(halves, size, side="right")
        below, upto = np.zeros(size.shape, np.int64), np.zeros(size.shape, np.int64)
        for midpoint in self.midpoints:
            edge = midpoint * significand
            below += edge < size
            upto += edge <= size
        return below, upto


_FORMATS = (
    SmallFloat("e4m3", 4, 3, one_nan=True),
    SmallFloat("e5m2", 5, 2, infinity=True),
    SmallFloat("e3m2", 3, 2),
    SmallFloat("e2m3", 2, 3),
    SmallFloat("e2m1", 2, 1),
    SmallFloat("ue4m3", 4, 3, signed=False, one_nan=True),
    SmallFloat("ue8m0", 8, 0, signed=False, one_nan=True),
)


@lru_cache(maxsize=16)
def small_float(name: str) -> SmallFloat:
    """The format of that name. Raises ValueError naming those there are.

    >>> small_float("ue8m0").values(np.array([0, 127, 254, 255], np.uint8)).tolist()
    [5.877471754111438e-39, 1.0, 1.7014118346046923e+38, nan]
    """
    for one in _FORMATS:
        if one.name == name:
            return one
    raise ValueError(f"{name!r}: no float of 8 bits or fewer; there is {', '.join(one.name for one in _FORMATS)}")


def pack(codes: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Codes side by side in memory, along the last axis: 8 bits as they are, 4 bits two to a byte (the first in the low half),
    6 bits four in three bytes (the first in the lowest bits). Raises ValueError for a code of more bits, and where codes fill no
    whole bytes. Source: PTX ISA 9.1, section 5.2.4 (packed types), and
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B, 16U6_ALIGN16B in global memory.

    >>> [hex(x) for x in pack(np.array([1, 2, 3, 4], np.uint8), 4)], [hex(x) for x in pack(np.array([1, 2, 3, 4], np.uint8), 6)]
    (['0x21', '0x43'], ['0x81', '0x30', '0x10'])
    """
    together = {8: 1, 4: 2, 6: 4}.get(bits)
    if together is None:
        raise ValueError(f"bits={bits}: codes have 4, 6 or 8")
    codes = np.asarray(codes)
    if codes.dtype.kind not in "iu" or (codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < 1 << bits):
        raise ValueError(
            f"{codes.dtype} {codes.shape}: codes of {bits} bits are whole numbers from 0 to {(1 << bits) - 1}"
        )
    codes = codes.astype(np.uint8, copy=False)
    if bits == 8:
        return np.ascontiguousarray(codes)
    if codes.ndim == 0 or codes.shape[-1] % together:
        raise ValueError(f"{codes.shape}: {together} codes of {bits} bits fill whole bytes; pad the last axis to a multiple of {together}")  # fmt: skip
    groups = codes.reshape(*codes.shape[:-1], -1, together).astype(np.uint32)
    word = np.zeros(groups.shape[:-1], np.uint32)
    for place in range(together):
        word |= groups[..., place] << np.uint32(bits * place)
    size = bits * together // 8
    out = np.stack([word >> np.uint32(8 * byte) & np.uint32(255) for byte in range(size)], axis=-1)
    return out.astype(np.uint8).reshape(*codes.shape[:-1], -1)


def unpack(data: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """The reverse of :func:`pack`.

    >>> unpack(pack(np.arange(8, dtype=np.uint8), 6), 6).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    data = np.asarray(data, np.uint8)
    if bits == 8:
        return np.ascontiguousarray(data)
    together = {4: 2, 6: 4}.get(bits)
    if together is None:
        raise ValueError(f"bits={bits}: codes have 4, 6 or 8")
    size = bits * together // 8
    if data.ndim == 0 or data.shape[-1] % size:
        raise ValueError(f"{data.shape}: {together} codes of {bits} bits take {size} bytes; the last axis must be a multiple of that")  # fmt: skip
    groups = data.reshape(*data.shape[:-1], -1, size).astype(np.uint32)
    word = np.zeros(groups.shape[:-1], np.uint32)
    for byte in range(size):
        word |= groups[..., byte] << np.uint32(8 * byte)
    out = np.stack([word >> np.uint32(bits * place) & np.uint32((1 << bits) - 1) for place in range(together)], axis=-1)
    return out.astype(np.uint8).reshape(*data.shape[:-1], -1)
