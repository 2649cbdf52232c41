"""Operands of 4 and 6 bits on their way to a Blackwell kernel: packed bytes as they lie in memory, told by elements.

Two e2m1 lie in a byte, four e2m3 or e3m2 in three, the first in the low bits (PTX ISA 9.1, section 5.5.1.1). A caller gives the
packed bytes, uint8 (rows, K / 2) or (rows, 3 K / 4), or numpy arrays of ml_dtypes' own types (rows, K), which hold an
element in each byte and are packed into a copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.layout.hardware.dtypes import data_type

from .bind import OperandError
from .given import Collector, Operand
from .small_floats import pack
from .tensors import Tensor, numpy_type

if TYPE_CHECKING:
    from .blackwell_general import BlackwellGeneralGemm

PACKED = ("e2m3", "e3m2", "e2m1")
"""Formats whose elements are less than a byte."""

_ALIGNMENT = 32
"""Bytes: the padded types take no other addresses and pitches (CUDA driver API, cuTensorMapEncodeTiled)."""


def packed_length(k: int, dtype: str) -> int:
    """Bytes of a row of ``k`` elements.

    >>> packed_length(128, "e2m1"), packed_length(128, "e3m2")
    (64, 96)
    """
    return k * data_type(dtype).bits // 8


@dataclasses.dataclass(frozen=True)
class PackedOperand(Operand):
    """A or B of packed elements: ``tensor`` holds bytes, ``shape`` and ``strides`` count elements and bytes."""

    @property
    def alignment(self) -> int:
        """Bytes that its start and its pitch are a multiple of."""
        return _ALIGNMENT

    @property
    def major(self) -> str:
        """K, or "" where the bytes of a row are no neighbours."""
        return "k" if self.contiguous("k") else ""

    def contiguous(self, major: str) -> bool:
        """Whether this dimension is contiguous: no kernel reads packed elements along another than K."""
        return major == "k" and (self.strides[2] == 1 or self.tensor.shape[-1] <= 1 or 0 in self.shape)

    def pitches(self, major: str) -> tuple[int, int]:
        """Bytes from one row to the next, and from matrix to matrix."""
        row = packed_length(self.shape[2], self.dtype)
        pitch = self.strides[1] if self.shape[1] > 1 else -(-row // self.alignment) * self.alignment
        return pitch, self.strides[0] if self.shape[0] > 1 else pitch * max(self.shape[1], 1)

    def misaligned(self, major: str) -> str:
        """ "": raises OperandError for what TMA does not take, which no copy here mends."""
        pitch, _ = self.pitches(major)
        # The emulator gives arrays addresses of its own, of enough alignment.
        address = 0 if self.tensor.on_host else self.tensor.address
        for what, value in (("its address", address), ("the bytes from one row to the next", pitch)):
            if value % self.alignment:
                raise OperandError(
                    f"{self.name}: {what}, {value}, must be a multiple of {self.alignment} for {self.dtype} (TMA); a copy has that"
                )
        return ""


class BlackwellCollector(Collector):
    """Checks the arrays of a call, packed ones among them."""

    gemm: BlackwellGeneralGemm

    def __init__(self, gemm: BlackwellGeneralGemm, tensor_of: Callable[[Any, str], Tensor]):
        super().__init__(gemm, tensor_of)

    def operand(self, array: Any, name: str) -> Operand:
        """A or B. Raises OperandError for a wrong shape or format."""
        gemm, dtype = self.gemm, self.format_of(name)
        if dtype not in PACKED:
            return super().operand(array, name)
        rows, letter = (gemm.m, "M") if name == "a" else (gemm.n, "N")
        kind, length = numpy_type(dtype), packed_length(gemm.k, dtype)
        if isinstance(array, np.ndarray) and array.dtype == kind and array.shape == (rows, gemm.k):
            # ml_dtypes looks at the low bits of a byte alone; what a view of other bytes has above them is no part of the value.
            bits = data_type(dtype).bits
            array = pack(np.ascontiguousarray(array).view(np.uint8) & np.uint8((1 << bits) - 1), bits)
        shape = tuple(int(size) for size in getattr(array, "shape", ()))
        if str(getattr(array, "dtype", "")).removeprefix("torch.") != "uint8" or shape != (rows, length):
            raise OperandError(
                f"{name}: shape {shape}, dtype {getattr(array, 'dtype', type(array).__name__)}; {dtype} is taken packed, uint8 ({letter}, bytes of K) = "
                f"{(rows, length)}, or as numpy {kind.name} ({letter}, K) = {(rows, gemm.k)}"
            )
        tensor = self.tensor_of(array, name)
        return PackedOperand(tensor, name, dtype, (1, rows, gemm.k), (0, tensor.strides[0], tensor.strides[1]))
