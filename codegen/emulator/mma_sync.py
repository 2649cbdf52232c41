"""mma.sync: the synchronous matrix product of one warp, for many warps at once.

    shape = MmaShape(16, 8, 16, "bf16", "bf16", "f32")
    d = mma_sync(shape, a, b, c, numerics="float32")      registers (count, 32 * warps) in and out

Which lane holds which element: fragments.py. The bits of a sum: accumulate.py. Types that no oracle covers (f64, 4-bit and
1-bit integers, sparse forms) are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .accumulate import mma_sync_sum
from .faults import MachineError
from .fragments import Registers, a_bytes, b_bytes, mma_registers, mma_rows
from .matrix import Numerics
from .numerics import FORMATS, to_float32

__all__ = ["MmaShape", "mma_sync"]

# (m, n, k) by operand type (PTX ISA, "mma", shapes of dense instructions); f64: see _F64_SHAPES.
_SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "f16": ((16, 8, 8), (16, 8, 16)),
    "bf16": ((16, 8, 8), (16, 8, 16)),
    "tf32": ((16, 8, 4), (16, 8, 8)),
    "s8": ((8, 8, 16), (16, 8, 16), (16, 8, 32)),
    "e4m3": ((16, 8, 32),),
}
_SHAPES["u8"] = _SHAPES["s8"]
_SHAPES["e5m2"] = _SHAPES["e4m3"]
_DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}
_UNITS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@dataclass(frozen=True)
class MmaShape:
    """One kind of mma.sync.aligned m n k .row.col; refuses what does not exist on sm_90.

    >>> MmaShape(16, 8, 32, "e4m3", "e5m2", "f32").a_registers
    4
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    d: str
    saturate: bool = False

    def __post_init__(self) -> None:
        shapes = _SHAPES.get(self.a, ())
        if (self.m, self.n, self.k) not in shapes:
            listed = ", ".join(f"m{m}n{n}k{k}" for m, n, k in shapes) or "none that is modelled"
            raise MachineError("unknown", f"mma.sync m{self.m}n{self.n}k{self.k} of {self.a}: allowed are {listed}")
        families = (("f16",), ("bf16",), ("tf32",), ("s8", "u8"), ("e4m3", "e5m2"))
        family = next(one for one in families if self.a in one)
        results = {"f16": ("f16", "f32"), "s8": ("s32",)}.get(family[0], ("f32",))
        if self.b not in family or self.d not in results:
            raise MachineError("unknown", f"mma.sync has no {self.a} x {self.b} -> {self.d}")
        if self.saturate and self.d != "s32":
            raise MachineError("unknown", f"only integer mma.sync has .satfinite, not {self.a}")

    @property
    def size(self) -> int:
        """Bytes of one operand element."""
        return 1 if self.a in ("s8", "u8") else FORMATS[self.a].bits // 8

    @property
    def a_registers(self) -> int:
        """Registers of A for each lane."""
        return self.m * self.k * self.size // 128

    @property
    def b_registers(self) -> int:
        """Registers of B for each lane."""
        return self.n * self.k * self.size // 128

    @property
    def d_registers(self) -> int:
        """Registers of C and of D for each lane."""
        return self.m * self.n * (2 if self.d == "f16" else 4) // 128


def mma_sync(shape: MmaShape, a: Registers, b: Registers, c: Registers, numerics: Numerics = "float32") -> Registers:
    """D = A B + C for each warp: registers (count, 32 * warps) of uint32 in and out.

    >>> shape = MmaShape(16, 8, 8, "f16", "f16", "f32")
    >>> one = np.full((2, 32), 0x3C003C00, np.uint32)
    >>> mma_sync(shape, one, one[:1], np.zeros((4, 32), np.uint32)).view(np.float32)[0, 0]
    np.float32(8.0)
    """
    for name, registers, count in (
        ("A", a, shape.a_registers),
        ("B", b, shape.b_registers),
        ("C", c, shape.d_registers),
    ):
        if registers.shape[0] != count:
            raise MachineError("unknown", f"{shape}: {registers.shape[0]} registers of {name}; it has {count}")
    left, right = a_bytes(a, shape.m), b_bytes(b)
    start = mma_rows(c, _DTYPES[shape.d], shape.m)
    if numerics == "hardware":
        return mma_registers(_hardware(shape, left, right, start))
    return mma_registers(_float32(shape, left, right, start))


def _hardware(shape: MmaShape, left: NDArray[np.uint8], right: NDArray[np.uint8], start: NDArray[Any]) -> NDArray[Any]:
    unit = _UNITS[shape.size]
    bits: Any = np.uint16 if shape.d == "f16" else np.uint32
    result = np.empty_like(start)
    for warp in range(start.shape[0]):
        a, b, c = left[warp].view(unit), right[warp].view(unit), start[warp].view(bits)
        total = mma_sync_sum(a, b, c, shape.a, shape.b, shape.d, shape.saturate)
        result[warp] = total.view(start.dtype)
    return result


def _float32(shape: MmaShape, left: NDArray[np.uint8], right: NDArray[np.uint8], start: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.matmul(to_float32(left, shape.a), to_float32(right, shape.b).transpose(0, 2, 1))
        total = product.astype(np.int64) + start if shape.d == "s32" else product + start
        if shape.saturate:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        result: NDArray[Any] = total.astype(start.dtype)
    return result
