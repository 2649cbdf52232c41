"""A Blackwell GEMM of block-scaled operands: mxfp8, mxfp6, mxfp4, nvfp4.

    g = Gemm(512, 512, 1024, a="nvfp4", b="nvfp4", d="bf16", arch="sm_100a")
    a, b = quantise(x, "nvfp4", tensor_scale="amax"), quantise(w, "nvfp4", tensor_scale="amax")
    g.emulate(a, b)                                              quantised matrices, their tensor scales in alpha
    g.emulate(a.data, b.data, scale_a=a.scales, scale_b=b.scales, alpha=a.tensor_scale * b.tensor_scale)       the same

``d = act(alpha * (a x factors) (b x factors)^T + beta * c + bias)``. Factors come laid out in atoms of 128 rows x 4 (:class:`~stridewright.layout.hardware.ScaleTensor`),
which is what quantise makes and what cuBLASLt and CUTLASS take. Emulated and assembled; never run on hardware.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.blackwell_scales import scale_tensors
from stridewright.kernels.blackwell_types import element_of, padded, stored
from stridewright.kernels.config import ConfigError, Violation
from stridewright.layout.hardware import HardwareError
from stridewright.layout.hardware.scale_factors import SCALED_TYPES, ScaleTensor

from .bind import OperandError
from .blackwell_general import BlackwellGeneralGemm
from .blackwell_operands import BlackwellCollector, PackedOperand
from .given import Given, Operand
from .quantise import BlockScaled
from .tensors import Tensor

if TYPE_CHECKING:
    from stridewright.layout.hardware import TensorMap

_ROWS = 16
"""Bytes: TMA takes no other starts and pitches of rows of packed 4-bit pairs (16U4_ALIGN8B) and of bytes."""


@dataclass
class ScaledGiven(Given):
    """What one call gives, and the operands' factors as bytes."""

    scale_a: Tensor | None = None
    scale_b: Tensor | None = None


@dataclass(frozen=True)
class PackedPairs(PackedOperand):
    """An operand of packed e2m1 that the multiply reads packed."""

    @property
    def alignment(self) -> int:
        """Bytes that its start and its pitch are a multiple of."""
        return _ROWS


class ScaledCollector(BlackwellCollector):
    """Checks the arrays of a call, the elements' formats being those without factors."""

    def format_of(self, name: str) -> str:
        """The elements' format of A or B."""
        return element_of(super().format_of(name))

    def operand(self, array: Any, name: str) -> Operand:
        """A or B. Raises OperandError for a wrong shape or format."""
        found = super().operand(array, name)
        problem = self.gemm.problem
        own = problem.a if name == "a" else problem.b
        if isinstance(found, PackedOperand) and not padded(stored(own, self.gemm.derivation.kind)):
            return PackedPairs(**{one.name: getattr(found, one.name) for one in dataclasses.fields(found)})
        return found

    def factors(self, array: Any, expected: ScaleTensor) -> Tensor:
        """The factors of A or B as bytes. Raises OperandError with the layout that is expected, drawn."""
        name = expected.name
        if array is None:
            raise OperandError(
                f"{name}: must be given, or a quantised matrix as {name[-1]} (stridewright.codegen.quantise)\n{expected.draw()}"
            )
        if isinstance(array, ScaleTensor):
            raise OperandError(
                f"{name}: this ScaleTensor is how factors lie, and holds none; a quantised matrix has them as .scales"
            )
        if isinstance(array, int | float) or not hasattr(array, "shape"):
            given = f"{array!r}" if isinstance(array, int | float) else f"a {type(array).__name__}"
            raise OperandError(f"{name}: {given} is no array; alpha takes a number for all of D\n{expected.draw()}")
        dtype = str(getattr(array, "dtype", type(array).__name__)).removeprefix("torch.")
        found = list(expected.problems(tuple(array.shape), dtype))
        if not found:
            tensor = self.tensor_of(_as_bytes(array), name)
            dense = tensor.strides == _dense(tensor.shape)
            found = list(expected.problems(tensor.shape, "uint8", tensor.address, dense))
        if found:
            raise OperandError("\n".join([*map(str, found), expected.draw()]))
        if tensor.on_host:
            try:
                expected.require_numbers(tensor.array)
            except HardwareError as error:
                raise OperandError(str(error)) from None
        return tensor


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    return tuple(int(stride) for stride in strides)


def _as_bytes(array: Any) -> Any:
    """The same memory as uint8: the libraries' own names of such formats are not known to all of them."""
    if str(array.dtype).removeprefix("torch.") == "uint8":
        return array
    if hasattr(array, "data_ptr"):
        import torch

        return array.view(torch.uint8)
    return array.view(np.uint8)


class BlackwellScaledGemm(BlackwellGeneralGemm):
    """``d = act(alpha * acc + beta * c + bias)`` of block-scaled operands on sm_100a or sm_103a; see :class:`Gemm`.

    Operands: mxfp8 (e4m3), mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3 and mxfp4, any two of these together, or nvfp4 with nvfp4.
    A call takes ``scale_a`` and ``scale_b``, or matrices of :func:`.quantise.quantise`.

    >>> from stridewright.codegen.gemm import Gemm
    >>> g = Gemm(200, 264, 512, "mxfp8", "mxfp8", "f32", "sm_100a")
    >>> type(g).__name__, g.derivation.kind, [one.shape for one in g.scale_tensors]
    ('BlackwellScaledGemm', 'mxf8f6f4', [(2, 4, 32, 4, 4), (3, 4, 32, 4, 4)])
    """

    # alpha is multiplied by the operands' tensor scales first.
    _float32_numbers = ("beta",)

    def __init__(self, m: int, n: int, k: int, *args: Any, **options: Any):
        if isinstance(k, int | np.integer) and k == 0:
            rule = "must be at least one vector of elements that share a factor"
            fix = "beta * c + bias is what remains without K; formats without factors compute it"
            raise ConfigError((Violation(parameter="k", value=0, rule=rule, fix=fix),))
        super().__init__(m, n, k, *args, **options)

    @property
    def scale_tensors(self) -> tuple[ScaleTensor, ScaleTensor]:
        """How the factors of A and of B lie in memory: ``scale_tensors[0].place(codes)`` lays out factors (M, K / vector)."""
        return scale_tensors(self.problem, max(self.m, 1), max(self.n, 1), self.k)

    def _collector(self, tensor_of: Callable[[Any, str], Tensor]) -> ScaledCollector:
        return ScaledCollector(self, tensor_of)

    def collect(
        self, tensor_of: Callable[[Any, str], Tensor], a: Any, b: Any, out: Any, others: dict[str, Any]
    ) -> ScaledGiven:
        """The call's arrays, checked; quantised matrices taken apart. Raises OperandError."""
        others = dict(others)
        whole, scales = 1.0, [others.pop("scale_a", None), others.pop("scale_b", None)]
        parts: list[Any] = []
        for number, (name, operand) in enumerate((("a", a), ("b", b))):
            if isinstance(operand, BlockScaled):
                self._require_same(operand, name, scales[number])
                whole *= operand.tensor_scale
                scales[number] = operand.scales
                operand = operand.data
            parts.append(operand)
        given = super().collect(tensor_of, parts[0], parts[1], out, others)
        if whole != 1.0:
            given.fusion["alpha"] = True
            given.numbers["alpha"] = _within_float32(given.numbers["alpha"], whole)
        found = ScaledGiven(**vars(given))
        if not self.empty_result:
            collector = self._collector(tensor_of)
            found.scale_a, found.scale_b = (
                collector.factors(array, expected) for array, expected in zip(scales, self.scale_tensors, strict=True)
            )
        return found

    def _require_same(self, operand: BlockScaled, name: str, scales: Any) -> None:
        wanted = getattr(self.problem, name)
        if operand.format.name != wanted:
            raise OperandError(
                f"{name}: quantised to {operand.format.name}, and this GEMM takes {wanted}; quantise(x, {wanted!r}) makes that"
            )
        if scales is not None:
            raise OperandError(
                f"scale_{name}: {name} is a quantised matrix, which has its factors; give one of the two"
            )

    def arguments_beside(self, given: Given, encoded: Callable[[TensorMap, Tensor], Any]) -> list[Any]:
        """The tensor maps of the factors."""
        if not isinstance(given, ScaledGiven) or given.scale_a is None or given.scale_b is None:
            raise AssertionError("a launch of block-scaled operands has their factors")
        maps = self.derivation.scale_maps(max(self.m, 1), max(self.n, 1), self.k)
        return [encoded(one, tensor) for one, tensor in zip(maps, (given.scale_a, given.scale_b), strict=True)]


def _within_float32(alpha: float, whole: float) -> float:
    """alpha times the tensor scales. Raises OperandError where that is no normal float32 though its factors are: sums times 0 or
    infinity would not be the product.

    >>> _within_float32(0.5, 2.0)
    1.0
    """
    limits = np.finfo(np.float32)
    product = alpha * whole
    if alpha and np.isfinite(alpha) and not float(limits.tiny) <= abs(product) <= float(limits.max):
        raise OperandError(
            f"a, b: their tensor scales and alpha are {product:.3g} together, which float32 does not hold (from {float(limits.tiny):.3g} to "
            f"{float(limits.max):.3g}); quantise multiples of them by powers of two, or give an alpha that brings it back"
        )
    return product


def is_scaled(*formats: object) -> bool:
    """Whether one of these formats has factors.

    >>> is_scaled("bf16", "bf16"), is_scaled("nvfp4", "nvfp4")
    (False, True)
    """
    return any(name in SCALED_TYPES for name in formats if isinstance(name, str))
