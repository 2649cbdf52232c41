"""Numbers in blocks that share a scale factor, and the reverse: mxfp8, mxfp6, mxfp4, nvfp4, in numpy, rounded once.

    q = quantise(x, "nvfp4", tensor_scale="amax")       x (rows, K): any floats, taken as they are
    q.data, q.scales                                    what a block-scaled GEMM takes: packed elements, laid-out factors
    q.values()                                          what they stand for, exactly, in float64

A block is ``vector`` neighbouring elements of a row. Its factor comes from the largest magnitude in it, amax; then each
element is the element format's number nearest to x / factor, ties to even, and the greatest where it is beyond that.

Rules for the factor
    "floor"    2^(floor(log2(amax)) - emax): the OCP Microscaling specification 1.0, section 6.3. The largest elements of a
               block may lie beyond the format's maximum and saturate.
    "up"       the least factor for which nothing saturates: the least power of two (or ue4m3 number) that is at least
               amax / maximum.
    "nearest"  nvfp4's own: the ue4m3 number nearest to amax / (6 tensor_scale), and at least the least positive one.
               The largest elements may saturate by the factor's rounding.

Special blocks
    zeros      the least factor, code 0 (ue8m0: 2^-127, ue4m3: 0), elements 0 with their signs.
    tiny       a factor below the least of its format is the least, and elements round on that grid, possibly to 0.
    huge       a factor beyond the greatest (2^127, 448) is the greatest, and elements saturate.
    NaN, Inf   the factor is NaN and the elements 0: the whole block stands for NaN, and so does every result that it
               enters. (4- and 6-bit elements have neither NaN nor infinity.) ``nonfinite="raise"`` refuses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.hardware.errors import nearest, nearest_multiples
from stridewright.layout.hardware.scale_factors import SCALED_TYPES, ScaledType, ScaleTensor

from .small_floats import SmallFloat, pack, small_float, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class ScaledFormat(ScaledType):
    """Elements, their factors, and how many elements share one. ``rules``: what the factor may follow, the first by default."""

    rules: tuple[str, ...]

    @property
    def elements(self) -> SmallFloat:
        """The element's format."""
        return small_float(self.element)

    @property
    def factors(self) -> SmallFloat:
        """The factor's format."""
        return small_float(self.scale)


RULES = {"ue8m0": ("floor", "up"), "ue4m3": ("nearest", "up")}
FORMATS = {
    one.name: ScaledFormat(one.name, one.element, one.scale, one.vector, RULES[one.scale])
    for one in SCALED_TYPES.values()
}


def scaled_format(name: str) -> ScaledFormat:
    """The format of that name. Raises ValueError naming the nearest.

    >>> scaled_format("nvfp4").vector
    16
    """
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(
            f"{name!r}: no block-scaled format; there is {', '.join(FORMATS)}; nearest {nearest(str(name), FORMATS)}"
        )
    return found


@dataclass(frozen=True, eq=False)
class BlockScaled:
    """A matrix of blocks: ``codes`` (rows, K) and ``factors`` (rows, K / vector), a byte each, and ``tensor_scale``, a
    number for all of it (1 unless asked for).

    >>> q = quantise(np.arange(64.0).reshape(2, 32), "mxfp4")
    >>> q.factors.tolist(), q.values()[0, :8].tolist()
    ([[129], [130]], [0.0, 0.0, 2.0, 4.0, 4.0, 4.0, 6.0, 8.0])
    """

    format: ScaledFormat
    codes: NDArray[np.uint8]
    factors: NDArray[np.uint8]
    tensor_scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, K), elements."""
        rows, k = self.codes.shape
        return int(rows), int(k)

    @cached_property
    def data(self) -> NDArray[Any]:
        """The elements as kernels take them: 8-bit floats of ml_dtypes (rows, K); e2m1 two to a byte, uint8 (rows, K / 2); 6-bit
        floats four in three bytes, uint8 (rows, 3 K / 4).
        """
        import ml_dtypes

        packed = pack(self.codes, self.format.elements.bits)
        types = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
        return packed.view(types[self.format.element]) if self.format.element in types else packed

    @property
    def scale_tensor(self) -> ScaleTensor:
        """How the factors are laid out in memory."""
        rows, k = self.shape
        return ScaleTensor("scales", rows, k, self.format.vector, self.format.scale)

    @cached_property
    def scales(self) -> NDArray[Any]:
        """The factors as kernels take them: (rows / 128, factors / 4, 32, 4, 4), ml_dtypes' float8_e8m0fnu or float8_e4m3fn;
        padding is code 0.
        """
        import ml_dtypes

        kind = ml_dtypes.float8_e8m0fnu if self.format.scale == "ue8m0" else ml_dtypes.float8_e4m3fn
        found: NDArray[Any] = self.scale_tensor.place(self.factors).view(kind)
        return found

    def values(self) -> NDArray[np.float64]:
        """What it stands for: element * factor * tensor_scale, exact in float64 (a factor's 4 bits, an element's 4, 24 of a
        float32).
        """
        spread = np.repeat(self.format.factors.values(self.factors), self.format.vector, axis=1)
        found: NDArray[np.float64] = self.format.elements.values(self.codes) * spread * self.tensor_scale
        return found


def quantise(
    values: NDArray[Any],
    format: str = "mxfp8",
    rule: str | None = None,
    tensor_scale: float | str | None = None,
    nonfinite: str = "nan",
) -> BlockScaled:
    """Blocks of a matrix (rows, K) of floats; K is a multiple of the format's vector.

    ``rule`` for the factors: "floor" or "up" of the mx formats, "nearest" or "up" of nvfp4 (the module says what they are; by
    default the first). ``tensor_scale``, of nvfp4: a positive float32 that all factors are taken relative to, or "amax" for
    the one that makes the largest factor 448. A GEMM that is given the quantised matrix itself multiplies by it; only one
    that is given ``data`` and ``scales`` apart needs it in alpha. ``nonfinite``: "nan", or "raise" for ValueError at a NaN or
    an infinity. Raises ValueError for anything else.

    >>> q = quantise(np.linspace(-3, 3, 32).reshape(2, 16), "nvfp4", tensor_scale="amax")
    >>> round(q.tensor_scale * 448 * 6, 6), q.factors.tolist()
    (3.0, [[126], [126]])
    """
    kind = scaled_format(format)
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] < 1:
        raise ValueError(f"values of shape {array.shape}: a matrix (rows, K) of at least one row is taken")
    if array.dtype.kind not in "fiu" and str(array.dtype) not in ("bfloat16",) and "float" not in str(array.dtype):
        raise ValueError(f"values of type {array.dtype}: real numbers are taken")
    _require_exact(array)
    rows, k = array.shape
    if k < 1 or k % kind.vector:
        raise ValueError(
            f"K={k}: must be a multiple of {kind.vector}, the elements that share a factor of {format}; {nearest_multiples(k, kind.vector)}: "
            "pad with zeros, which changes no product"
        )
    rule = kind.rules[0] if rule is None else rule
    if rule not in kind.rules:
        raise ValueError(f"rule={rule!r}: {format} has {_or(kind.rules)}")
    if nonfinite not in ("nan", "raise"):
        raise ValueError(f"nonfinite={nonfinite!r}: must be 'nan' or 'raise'")
    blocks = array.astype(np.float64).reshape(rows, k // kind.vector, kind.vector)
    amax = np.abs(blocks).max(axis=2)
    lost = ~np.isfinite(amax)
    if lost.any() and nonfinite == "raise":
        row, block = (int(x) for x in np.argwhere(lost)[0])
        raise ValueError(
            f"row {row}, elements {block * kind.vector}..{block * kind.vector + kind.vector - 1} of K: a NaN or an infinity, which {format} "
            "cannot hold beside numbers"
        )
    amax = np.where(lost, 0.0, amax)
    blocks = np.where(lost[..., None], 0.0, blocks)
    whole = _tensor_scale(kind, tensor_scale, float(amax.max()))
    factors = _powers(kind, amax, rule) if kind.scale == "ue8m0" else _fractions(kind, amax, rule, whole)
    unit = kind.factors.values(factors) * whole
    # A factor of 0 has only zeros under it.
    unit = np.where(unit == 0, 1.0, unit)
    codes = kind.elements.nearest(blocks, unit[..., None]).reshape(rows, k)
    nan = kind.factors.nan
    if nan is not None:
        factors = np.where(lost, nan, factors).astype(np.uint8)
    return BlockScaled(kind, codes, factors, whole)


def _require_exact(array: NDArray[Any]) -> None:
    """Raises ValueError for what float64 does not hold: it would be rounded twice."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise ValueError(
            f"values of type {array.dtype}: would be rounded to float64 first; values.astype(np.float64) says so"
        )
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4 and array.size:
        most = max(abs(int(array.max())), abs(int(array.min())))
        if most > 2**53:
            raise ValueError(
                f"values of type {array.dtype} up to {most}: beyond 2^53 they would be rounded to float64 first; "
                "values.astype(np.float64) says so"
            )


def _or(words: Iterable[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def _tensor_scale(kind: ScaledFormat, wanted: float | str | None, amax: float) -> float:
    """The float32 that all factors are relative to."""
    if wanted is None:
        return 1.0
    if kind.scale != "ue4m3":
        raise ValueError(
            f"tensor_scale={wanted!r}: {kind.name} has none, its factors reach every power of two; nvfp4 has one"
        )
    if isinstance(wanted, str):
        if wanted != "amax":
            raise ValueError(f"tensor_scale={wanted!r}: must be a positive number or 'amax'")
        if amax == 0:
            return 1.0
        exact = amax / (kind.factors.maximum * kind.elements.maximum)
        limits = np.finfo(np.float32)
        return float(np.float32(min(max(exact, float(limits.smallest_subnormal)), float(limits.max))))
    scale = np.nan
    if np.ndim(wanted) == 0 and np.isrealobj(wanted):
        with np.errstate(over="ignore"):
            scale = float(np.float32(wanted))
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"tensor_scale={wanted!r}: must be a positive float32 or 'amax'")
    return scale


def _powers(kind: ScaledFormat, amax: NDArray[Any], rule: str) -> NDArray[np.uint8]:
    """Codes of ue8m0: 127 + the exponent, from -127 to 127."""
    significand, exponent = np.frexp(amax)  # amax = significand * 2^exponent, significand in [1/2, 1)
    if rule == "floor":
        power = exponent - 1 - kind.elements.greatest_exponent
    else:
        top, above = np.frexp(kind.elements.maximum)
        power = exponent - int(above) + (significand > top)
    return np.where(amax == 0, 0, np.clip(power, -127, 127) + 127).astype(np.uint8)


def _fractions(kind: ScaledFormat, amax: NDArray[Any], rule: str, whole: float) -> NDArray[np.uint8]:
    """Codes of ue4m3 for amax / (6 whole)."""
    unit = kind.elements.maximum * whole
    if rule == "nearest":
        codes = kind.factors.nearest(amax, unit).astype(np.int64)
    else:
        # The values times the unit are exact: 4 bits by 27.
        codes = np.minimum(np.searchsorted(kind.factors.magnitudes * unit, amax, side="left"), kind.factors.magnitudes.size - 1)  # fmt: skip
    return np.where(amax == 0, 0, np.maximum(codes, 1)).astype(np.uint8)


def dequantise(
    data: NDArray[Any], scales: NDArray[Any], format: str = "mxfp8", tensor_scale: float = 1.0, name: str = "scales"
) -> NDArray[np.float64]:
    """What arrays in a kernel's form stand for: elements as :attr:`BlockScaled.data` and factors as :attr:`BlockScaled.scales`
    -> float64 (rows, K). ml_dtypes' own 4- and 6-bit floats (rows, K), an element in each byte, are taken too. Raises ValueError for
    elements of another type, and HardwareError, with the expected layout drawn, for factors of another form.

    >>> q = quantise(np.random.default_rng(0).standard_normal((3, 64)), "mxfp4")
    >>> bool((dequantise(q.data, q.scales, "mxfp4") == q.values()).all())
    True
    """
    kind = scaled_format(format)
    codes = _codes(np.asarray(data), kind)
    rows, k = codes.shape
    factors = ScaleTensor(name, int(rows), int(k), kind.vector, kind.scale).gather(scales)
    return BlockScaled(kind, codes, factors, float(tensor_scale)).values()


def _codes(data: NDArray[Any], kind: ScaledFormat) -> NDArray[np.uint8]:
    """The elements' codes, a byte each, of packed bytes or of ml_dtypes' arrays."""
    own, bits = kind.elements.numpy_type, kind.elements.bits
    if data.ndim != 2 or str(data.dtype) not in ("uint8", own):
        k = "K" if bits == 8 else "3 K / 4" if bits == 6 else "K / 2"
        raise ValueError(
            f"data of shape {data.shape}, {data.dtype}: {kind.name} is uint8 (rows, {k}) or {own} (rows, K)"
        )
    raw = np.ascontiguousarray(data).view(np.uint8)
    return raw & np.uint8((1 << bits) - 1) if str(data.dtype) == own else unpack(raw, bits)
