"""The arrays of one call, checked against the GEMM: which is what, how it lies, and what the kernel is told of it.

Knows shapes, strides and formats; the arrays may lie on a device or, for the emulator, in numpy's memory. Compiling,
launching and copying are elsewhere.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.expression import parse
from stridewright.kernels.fusion import BLOCK_K
from stridewright.kernels.hopper_rules import element_bytes

from .bind import OperandError, require_own_elements
from .given_scales import Scales, are_blocks
from .launch import tell_once
from .launch_arrays import WRITTEN
from .overlap import place_of, place_of_host, same_elements, share_memory
from .relayout import ALIGNMENT, padded_pitch
from .tensors import Tensor, require_format

if TYPE_CHECKING:
    from .general import GeneralGemm

_log = logging.getLogger(__name__)

NUMBERS = (int, float, np.integer, np.floating)
"""What is a number and no array."""

SIXTEEN_BITS = ("bf16", "f16")
"""Formats that wgmma reads MN-major (PTX ISA, wgmma)."""


@dataclass(frozen=True)
class Operand:
    """A or B as (batches, rows, k): ``strides`` of these in elements; a batch stride of 0 is one matrix for all."""

    tensor: Tensor
    name: str
    dtype: str
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]

    @property
    def major(self) -> str:
        """The contiguous dimension: "k", "mn", or "" if neither is."""
        _, rows, k = self.shape
        _, row_stride, k_stride = self.strides
        if k_stride == 1 or k <= 1:
            return "k"
        return "mn" if row_stride == 1 or rows <= 1 else ""

    def contiguous(self, major: str) -> bool:
        """Whether this dimension is contiguous; one of a single element always is."""
        axis = 2 if major == "k" else 1
        return self.shape[axis] <= 1 or self.strides[axis] == 1 or 0 in self.shape

    def pitches(self, major: str) -> tuple[int, int]:
        """Bytes from one contiguous run to the next, and from matrix to matrix. Where there is no next, any that TMA takes."""
        size = element_bytes(self.dtype)
        runs, run = (1, 2) if major == "k" else (2, 1)
        pitch = self.strides[runs] * size
        if self.shape[runs] <= 1:
            pitch = padded_pitch(self.shape[run], size) * size
        between = self.strides[0] * size if self.shape[0] > 1 else pitch * max(self.shape[runs], 1)
        return pitch, between

    def misaligned(self, major: str) -> str:
        """What TMA does not take of how this lies, "" if nothing."""
        pitch, between = self.pitches(major)
        what = "from one row to the next" if major == "k" else "from one element of K to the next"
        if self.tensor.address % ALIGNMENT:
            # Not which: what is said once of all such arrays must be the same of all.
            return f"its address is no multiple of {ALIGNMENT}"
        for text, value in ((f"the bytes {what}", pitch), ("the bytes from matrix to matrix", between)):
            if value % ALIGNMENT:
                return f"{text} are {value}, no multiple of {ALIGNMENT}"
        return ""


@dataclass
class Given:
    """What one call gives: the operands, and what goes into the struct ``Terms``."""

    a: Operand
    b: Operand
    out: Tensor | None = None
    fusion: dict[str, Any] = field(default_factory=dict)
    """Fields of Fusion that the arrays ask for."""
    numbers: dict[str, float] = field(default_factory=dict)
    pointers: dict[str, Tensor] = field(default_factory=dict)
    copied_back: dict[str, Any] = field(default_factory=dict)
    """The caller's numpy arrays that what is written goes back to, where the kernel writes a copy."""

    @property
    def arrays(self) -> dict[str, Tensor]:
        """All that was given, by the names that the caller has for it."""
        own = {"factor0": "alpha", "factor1": "scale_a", "factor2": "scale_b"}
        given = {"a": self.a.tensor, "b": self.b.tensor} | ({} if self.out is None else {"out": self.out})
        return given | {own.get(name, name): tensor for name, tensor in self.pointers.items()}


def _require_start(value: float) -> None:
    """Raises OperandError for an amax that nothing is compared with rightly: patterns of these are above all others."""
    if math.isnan(value) or math.copysign(1.0, value) < 0:
        raise OperandError(
            f"amax: begins at {value}, and it is raised from what it holds, which must be 0.0 or more; amax[...] = 0 begins anew"
        )


class Collector:
    """Checks the arrays of a call one after the other; ``tensor_of`` makes tensors of the caller's arrays."""

    def __init__(self, gemm: GeneralGemm, tensor_of: Callable[[Any, str], Tensor]):
        self.gemm = gemm
        self.tensor_of = tensor_of
        self._result: Any = None

    def format_of(self, name: str) -> str:
        """The format of A's or B's elements."""
        return self.gemm.problem.a if name == "a" else self.gemm.problem.b

    def operand(self, array: Any, name: str) -> Operand:
        """A or B. Raises OperandError for a wrong shape or format."""
        gemm, dtype = self.gemm, self.format_of(name)
        tensor = self.tensor_of(array, name)
        require_format(tensor, name, dtype)
        rows = gemm.m if name == "a" else gemm.n
        one, several = (rows, gemm.k), (gemm.batches, rows, gemm.k)
        form, letter = gemm.problem.form, "M" if name == "a" else "N"
        may = {"one": (one,), "batch": (several, one), "groups_k": (one,)}.get(form) or (
            (one,) if name == "a" else (several,)
        )
        if tensor.shape not in may:
            words = {
                one: f"({letter}, K) = {one}",
                several: f"({'G' if form == 'groups_m' else 'B'}, {letter}, K) = {several}",
            }
            turned = tensor.shape[:-2] + tensor.shape[-2:][::-1] in may
            raise OperandError(
                f"{name}: shape {tensor.shape}, and this GEMM takes {' or '.join(words[shape] for shape in may)}"
                + (" (this is its transpose: d = a @ b.T)" if turned else "")
            )
        if len(tensor.shape) == 2:
            return Operand(tensor, name, dtype, (1, *one), (0, *tensor.strides))  # type: ignore[arg-type]
        return Operand(tensor, name, dtype, several, tensor.strides)  # type: ignore[arg-type]

    def vector(self, array: Any, name: str, length: int, axis: str) -> tuple[Tensor, int, int]:
        """A vector for each matrix, or one for all: the tensor, its stride, and that from matrix to matrix."""
        tensor = self.tensor_of(array, name)
        shapes = self._shapes_of_vectors(length)
        if tensor.shape not in shapes:
            wanted = f"({length},)" + (
                f" or ({self.gemm.batches}, {length})" if self.gemm.problem.form != "one" else ""
            )
            raise OperandError(f"{name}: shape {tensor.shape}, and one for each {axis} is {wanted}")
        return tensor, *self._steps(tensor, length)

    def _steps(self, tensor: Tensor, length: int) -> tuple[int, int]:
        """The stride along a vector, and that from matrix to matrix."""
        place, outer = self._shapes_of_vectors(length)[tensor.shape]
        return tensor.strides[place] if length > 1 else 1, 0 if outer is None else tensor.strides[outer]

    def _shapes_of_vectors(self, length: int) -> dict[tuple[int, ...], tuple[int, int | None]]:
        """The shapes that a vector may have: the axis along it, and the one from matrix to matrix."""
        shapes: dict[tuple[int, ...], tuple[int, int | None]] = {
            (length,): (0, None),
            (1, length): (1, None),
            (length, 1): (0, None),
        }
        if self.gemm.problem.form != "one":
            several = self.gemm.batches
            shapes |= {(several, length): (1, 0), (several, 1, length): (2, 0), (several, length, 1): (1, 0)}
        return shapes

    @property
    def _named(self) -> frozenset[str]:
        """The values that the GEMM's expression names."""
        expression = self.gemm.config.fusion.expression
        return parse(expression).names if expression else frozenset()

    def require_what_is_named(self, given: Given) -> None:
        """Raises OperandError where the expression names an array that the call does not give."""
        expression = self.gemm.config.fusion.expression
        for name, field_of in (("c", "c"), ("bias", "bias")):
            if name in self._named and not given.fusion.get(field_of):
                raise OperandError(f"{name}: must be given, since the expression {expression!r} names it")

    def require_apart(self, given: Given) -> None:
        """Raises OperandError where what is written lies over what else is read or written. C may be what is written, element
        for element: each is read before it is written, and by the same thread.
        """
        arrays = {name: (tensor, place_of(tensor)) for name, tensor in given.arrays.items()}
        for written in WRITTEN:
            if written not in arrays:
                continue
            place = arrays[written][1]
            for name, (_, other) in arrays.items():
                in_place = name == "c" and written != "amax" and same_elements(place, other)
                if name == written or in_place or not share_memory(place, other):
                    continue
                also = "; C may be the very same elements" if name == "c" and written != "amax" else ""
                raise OperandError(
                    f"{written}: shares memory with {name}, which the kernel reads or writes, too, at other times; give it memory of "
                    f"its own{also}"
                )
        if given.out is not None:
            self._to_copy_back(given, "out", self._result)
        self._require_apart_on_the_host(given)

    @staticmethod
    def _require_apart_on_the_host(given: Given) -> None:
        """The same of the caller's numpy arrays, where copies of them lie apart and go back one after the other."""
        for one, other in itertools.combinations(given.copied_back, 2):
            if share_memory(*(place_of_host(given.copied_back[name]) for name in (one, other))):
                raise OperandError(
                    f"{one}: shares memory with {other}, and both are written; give it memory of its own"
                )

    def scalar(self, array: Any, name: str) -> Tensor:
        """One float32 in memory."""
        if isinstance(array, NUMBERS):
            array = array if isinstance(array, int | float) else array.item()
            raise OperandError(
                f"{name}: a number was given, and it is one float32 where the operands lie: xp.full(1, {array!r}, dtype='float32')"
            )
        tensor = self.tensor_of(array, name)
        require_format(tensor, name, "f32")
        if any(size != 1 for size in tensor.shape):
            raise OperandError(f"{name}: shape {tensor.shape}, and it is one number")
        return tensor

    def matrix(self, array: Any, name: str, columns: int) -> tuple[Tensor, int, int]:
        """A matrix like D with so many columns: the tensor, its row stride, its batch stride. Rows must be contiguous."""
        gemm = self.gemm
        tensor = self.tensor_of(array, name)
        one = (gemm.m, columns)
        several = (gemm.batches, *one)
        may: tuple[tuple[int, ...], ...] = (several,) if gemm.several_d else (one,)
        if name == "c" and gemm.several_d:
            may = (several, one)
        if tensor.shape not in may:
            raise OperandError(f"{name}: shape {tensor.shape}, and this GEMM takes {' or '.join(map(str, may))}")
        if name in WRITTEN:
            require_own_elements(name, place_of(tensor))
        if not tensor.contiguous_along(len(tensor.shape) - 1):
            raise OperandError(
                f"{name}: its rows are not contiguous; for a column-major D exchange the operands: D.T = b @ a.T, with out=out.T"
            )
        between = tensor.strides[0] if len(tensor.shape) == 3 else 0
        return tensor, tensor.strides[-2] if gemm.m > 1 else columns, between

    def result(self, out: Any) -> Tensor:
        """The caller's array for D."""
        tensor, _, _ = self.matrix(out, "out", self.gemm.columns)
        wanted = self.gemm.problem.d
        if not self._holds_d(tensor):
            raise OperandError(f"out: dtype {tensor.dtype}, and this GEMM writes {wanted}")
        self._require_reach(tensor)
        self._result = out
        return tensor

    def _holds_d(self, tensor: Tensor) -> bool:
        """Whether elements of D's format fit there: bytes may be 8-bit floats."""
        wanted = self.gemm.problem.d
        return tensor.dtype == wanted or (tensor.dtype == "u8" and wanted in ("e4m3", "e5m2"))

    def _require_reach(self, out: Tensor) -> None:
        """Raises OperandError where a given configuration stores by TMA what TMA cannot reach. Without one a kernel is chosen that
        can.
        """
        config = self.gemm._given_config
        if config is None or config.on_blackwell or config.epilogue.store != "tma" or 0 in out.shape:
            return
        steps = zip(out.strides[:-1], out.shape[:-1], strict=True)
        between = [("the bytes between its rows", stride * out.itemsize) for stride, length in steps if length > 1]
        for what, value in (("its address", out.address), *reversed(between)):
            if value % ALIGNMENT:
                raise OperandError(
                    f'out: {what}, {value}, must be a multiple of {ALIGNMENT} for the given configuration, which has store="tma"; '
                    f'config.replace(store="direct") takes any, and without config such a kernel is chosen'
                )

    def bias(self, given: Given, array: Any) -> None:
        """A bias for each column (N,), (1, N), (B, 1, N), or each row (M, 1), (B, M, 1)."""
        gemm = self.gemm
        shape = tuple(int(size) for size in getattr(array, "shape", ()))
        along_m = len(shape) >= 2 and shape[-1] == 1 and shape[-2] == gemm.m and not (gemm.n == 1 and gemm.m == 1)
        length, axis = (gemm.m, "row") if along_m else (gemm.n, "column")
        tensor, stride, between = self.vector(array, "bias", length, f"{axis} of D")
        if stride != 1:
            raise OperandError(f"bias: its elements are {stride} apart, and must be neighbours; a copy has that")
        if tensor.dtype not in ("f32", "bf16", "f16"):
            raise OperandError(f"bias: dtype {tensor.dtype}; there is f32, bf16, f16")
        given.fusion |= {"bias": "m" if along_m else "n", "bias_format": tensor.dtype}
        given.pointers["bias"] = tensor
        given.numbers["bias_batch_stride"] = between

    def added(self, given: Given, c: Any, beta: float) -> None:
        """C, times beta. With beta 0 it is not read."""
        if isinstance(beta, bool) or not isinstance(beta, int | float | np.integer | np.floating):
            raise OperandError(f"beta: {type(beta).__name__} was given; it is a number (alpha may lie in memory)")
        if c is None:
            if beta:
                raise OperandError(f"beta={beta!r}: there is no C for it; give c")
            return
        tensor, row, between = self.matrix(c, "c", self.gemm.n)
        if beta == 0 and "c" not in self._named:
            tell_once(_log, "c is given and beta is 0, so C is not read; beta=1.0 adds it")
            return
        if tensor.dtype not in ("f32", "bf16", "f16"):
            raise OperandError(f"c: dtype {tensor.dtype}; there is f32, bf16, f16")
        given.fusion["c"] = tensor.dtype
        given.pointers["c"] = tensor
        given.numbers |= {"c_row_stride": row, "c_batch_stride": between, "beta": float(beta)}

    def factor(self, given: Given, alpha: Any) -> None:
        """alpha: a number, or a float32 in the arrays' memory."""
        if isinstance(alpha, int | float) or (getattr(alpha, "shape", None) == () and not hasattr(alpha, "__dlpack__")):
            if float(alpha) != 1.0:
                given.fusion["alpha"] = True
                given.numbers["alpha"] = float(alpha)
            return
        given.fusion["alpha"] = True
        given.pointers["factor0"] = self.scalar(alpha, "alpha")

    def both_scales(self, given: Given, scale_a: Any, scale_b: Any) -> None:
        """Scales of A and of B: for each one number, one for each row, or one for each block of 128 of K (and, of B, of 128
        rows).
        """
        tensors: dict[str, Tensor] = {}
        for name, array in (("scale_a", scale_a), ("scale_b", scale_b)):
            if isinstance(array, NUMBERS):
                given.fusion["alpha"] = True
                given.numbers["alpha"] = given.numbers.get("alpha", 1.0) * float(array)
            elif array is not None:
                tensors[name] = self.tensor_of(array, name)
                require_format(tensors[name], name, "f32")
        rows, k_blocks = {"scale_a": self.gemm.m, "scale_b": self.gemm.n}, -(-self.gemm.k // BLOCK_K)
        blocks_of = {"scale_a": (self.gemm.m, k_blocks), "scale_b": (-(-self.gemm.n // BLOCK_K), k_blocks)}
        several = self.gemm.problem.form != "one"
        found = {
            name: Scales(
                name,
                tensor.shape,
                rows[name],
                blocks_of[name],
                frozenset(self._shapes_of_vectors(rows[name])),
                self.gemm.batches,
                several,
            )
            for name, tensor in tensors.items()
        }
        blocks = are_blocks(found, self.gemm.config.pipeline.promote, blocks_of)
        if blocks and self.gemm.k == 0:
            return  # there are none
        for name, tensor in tensors.items():
            if blocks:
                given.fusion[name] = "block"
                given.numbers |= {
                    f"{name}_stride": tensor.strides[-2],
                    f"{name}_k_stride": tensor.strides[-1],
                    f"{name}_batch_stride": tensor.strides[0] if len(tensor.shape) == 3 else 0,
                }
            elif found[name].is_number:
                given.fusion["alpha"] = True
                given.pointers["factor1" if name == "scale_a" else "factor2"] = tensor
                continue
            else:
                stride, between = self._steps(tensor, rows[name])
                given.fusion[name] = "row"
                given.numbers |= {f"{name}_stride": stride, f"{name}_batch_stride": between}
            given.pointers[name] = tensor

    def auxiliary(self, given: Given, aux: Any, amax: Any, scale_d: Any) -> None:
        """What is written beside D, and D's factor. ``amax`` is raised, as the unsigned pattern of a float32, from the value that it
        has to the largest |D| before the factor: it must begin at 0 or more. NaN in D does not count.
        """
        if aux is not None:
            tensor, row, between = self.matrix(aux, "aux", self.gemm.n)
            if not self._holds_d(tensor):
                raise OperandError(f"aux: dtype {tensor.dtype}, and it is written in D's format, {self.gemm.problem.d}")
            given.fusion["aux"] = True
            given.pointers["aux"] = tensor
            self._to_copy_back(given, "aux", aux)
            given.numbers |= {"aux_row_stride": row, "aux_batch_stride": between}
        if amax is not None:
            given.fusion["amax"] = True
            given.pointers["amax"] = self.scalar(amax, "amax")
            if isinstance(amax, np.ndarray):
                # On a device only the kernel looks at it.
                _require_start(float(amax.reshape(-1)[0]))
            self._to_copy_back(given, "amax", amax)
        if scale_d is not None:
            given.fusion["scale_d"] = True
            given.pointers["scale_d"] = self.scalar(scale_d, "scale_d")

    @staticmethod
    def _to_copy_back(given: Given, name: str, array: Any) -> None:
        if isinstance(array, np.ndarray) and not given.arrays[name].on_host:
            given.copied_back[name] = array

    def offsets(self, given: Given, array: Any) -> None:
        """The groups' beginnings and the end of the last, ascending, int32, (G + 1,)."""
        grouped = self.gemm.problem.form in ("groups_m", "groups_k")
        if array is None:
            if grouped:
                raise OperandError(
                    f"offsets: must be given, ({self.gemm.batches + 1},) int32: where each group begins, and the end"
                )
            return
        if not grouped:
            raise OperandError("offsets: this GEMM has no groups; Gemm(..., groups=8) has")
        dtype = str(getattr(array, "dtype", "int32"))
        if dtype.removeprefix("torch.") != "int32":
            change = "to(torch.int32)" if dtype.startswith("torch.") else "astype(np.int32)"
            raise OperandError(f"offsets: dtype {dtype.removeprefix('torch.')}, and they are int32: offsets.{change}")
        tensor = self.tensor_of(array, "offsets")
        if tensor.shape != (self.gemm.batches + 1,) or tensor.dtype != "s32" or tensor.strides != (1,):
            raise OperandError(
                f"offsets: shape {tensor.shape}, dtype {tensor.dtype}, and this GEMM takes ({self.gemm.batches + 1},), s32, contiguous"
            )
        if isinstance(array, np.ndarray):
            # On a device they are the kernel's alone, which goes by them without looking.
            end = self.gemm.m if self.gemm.problem.form == "groups_m" else self.gemm.k
            if array[0] < 0 or array[-1] > end or (np.diff(array) < 0).any():
                raise OperandError(
                    f"offsets: {array.tolist()}; must ascend (or stay, for empty groups) from 0 or more to {end} or less"
                )
        given.pointers["offsets"] = tensor
