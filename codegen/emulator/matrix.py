"""wgmma: asynchronous matrix products of one warpgroup; operands come out of shared memory through descriptors.

    shape = WgmmaShape(n=128, a="bf16", b="bf16", d="f32")   one instruction's kind; refuses what does not exist
    accumulator = Accumulator(128, "f32")                    zeros; or Accumulator.from_registers(registers, "f32")
    queue = WgmmaQueue(shared, numerics="float32")           one for each warpgroup
    queue.issue(shape, accumulator, a, b, scale_d)           a: descriptor, or registers (4, 128); b: descriptor
    queue.commit()                                           closes a commit group
    queue.wait(1)                                            all groups but the newest 1 are complete
    accumulator.registers()                                  (n/2, 128) uint32, row r is register r of each lane

Order and time. Instructions of a queue complete in the order of issue. By default an instruction reads shared memory as
it is at ``issue``: the bytes are taken later, many instructions at once, but before any write to them (SharedMemory
tells its readers). With ``late=True`` they are taken when the group is waited for, or by ``queue.take(count)``, the
latest and any earlier time that hardware may read them. ``accumulator.in_flight`` counts instructions issued on it and
not yet waited for: touching it then is an error that the caller reports. ``footprint_chunks`` gives the ranges read, for a
race check.

Numerics. ``"float32"`` sums in float32 in any order and without intermediate truncation: fast, the same for data whose
sums are exact. ``"hardware"`` gives the bits of an H200 (numerics model in accumulate.py).

Consecutive instructions on one accumulator become one product: operands of the k-steps are read side by side.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.hardware.fragments import wgmma_n_values

from .accumulate import fused_sum
from .faults import DescriptorError
from .fragments import Registers, accumulator_to_registers, registers_to_accumulator, wgmma_a_bytes
from .memory import SharedMemory
from .numerics import to_float32
from .operands import ChunkTable, chunk_table, chunk_union, read_chunks

__all__ = ["Accumulator", "Numerics", "Operand", "WgmmaQueue", "WgmmaShape", "wgmma"]

Numerics = Literal["float32", "hardware"]
Operand = int | NDArray[np.uint32]
"""A 64-bit matrix descriptor, or registers (4, 128) of A."""

ROWS = 64
"""Rows of every wgmma."""
_BITS = {"bf16": 16, "f16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
_ACCUMULATORS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}
_EIGHT_BIT_FLOATS = ("e4m3", "e5m2")
_INTEGERS = ("s8", "u8")
# An 8-bit integer product sum of up to this many k stays below 2^24, so that float32 holds it exactly.
_EXACT_INTEGER_K = 256
# OpenBLAS splits products of more than 4 * 65536 multiplications over its threads (interface/gemm.c). For the small ones
# here that gains nothing, and where the cores are busy it costs a factor of 30: its threads wait by spinning.
_ONE_THREAD = 1 << 18


@dataclass(frozen=True)
class WgmmaShape:
    """One kind of wgmma.mma_async: n, types, majors, signs (PTX ISA, "wgmma.mma_async", shapes and types).

    >>> WgmmaShape(200, "bf16", "bf16", "f32").k
    16
    >>> WgmmaShape(204, "bf16", "bf16", "f32")
    Traceback (most recent call last):
    ...
    stridewright.codegen.emulator.faults.DescriptorError: unknown: wgmma n=204 (bf16): 8, 16 .. 256; nearest 200, 208
    """

    n: int
    a: str
    b: str
    d: str
    a_major: str = "k"
    b_major: str = "k"
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        sizes = wgmma_n_values(self.a)
        if self.n not in sizes:
            near = sorted(sorted(sizes, key=lambda n: abs(n - self.n))[:2])
            raise DescriptorError(
                "unknown",
                f"wgmma n={self.n} ({self.a}): {sizes[0]}, {sizes[1]} .. {sizes[-1]}; "
                f"nearest {', '.join(map(str, near))}",
            )

    def _check_types(self) -> None:
        integer = self.a in _INTEGERS
        legal = (
            (self.a == self.b == "bf16" and self.d == "f32")
            or (self.a == self.b == "f16" and self.d in ("f16", "f32"))
            or (self.a == self.b == "tf32" and self.d == "f32")
            or (self.a in _EIGHT_BIT_FLOATS and self.b in _EIGHT_BIT_FLOATS and self.d in ("f16", "f32"))
            or (integer and self.b in _INTEGERS and self.d == "s32")
        )
        if not legal:
            raise DescriptorError("unknown", f"wgmma has no {self.a} x {self.b} -> {self.d}")
        if {self.a_major, self.b_major} - {"k", "mn"}:
            raise DescriptorError("unknown", f"majors {self.a_major!r}, {self.b_major!r}; allowed are 'k' and 'mn'")
        if "mn" in (self.a_major, self.b_major) and _BITS[self.a] != 16:
            raise DescriptorError("unknown", f"only 16-bit operands may be MN-major, {self.a} is K-major")
        if integer and (self.negate_a or self.negate_b):
            raise DescriptorError("unknown", "integer wgmma has no operand signs")
        if self.saturate and not integer:
            raise DescriptorError("unknown", f"only integer wgmma has .satfinite, not {self.a}")

    @property
    def size(self) -> int:
        """Bytes of one operand element."""
        return _BITS[self.a] // 8

    @property
    def k(self) -> int:
        """Extent of k of one instruction: 32 bytes."""
        return 32 // self.size


class Accumulator:
    """The D of a chain of wgmmas as a matrix (64, n) of f32, f16 or s32.

    >>> Accumulator(16, "f32").registers().shape
    (8, 128)
    """

    __slots__ = ("d", "in_flight", "matrix", "n")

    def __init__(self, n: int, d: str, matrix: NDArray[Any] | None = None) -> None:
        if d not in _ACCUMULATORS:
            raise DescriptorError("unknown", f"an accumulator of type {d!r}; allowed are {', '.join(_ACCUMULATORS)}")
        self.n = n
        self.d = d
        self.in_flight = 0
        self.matrix: NDArray[Any] = np.zeros((ROWS, n), _ACCUMULATORS[d]) if matrix is None else matrix

    @classmethod
    def from_registers(cls, registers: Registers, d: str) -> Accumulator:
        """From the registers of a warpgroup: (n/2, 128), or (n/4, 128) for f16.

        >>> Accumulator.from_registers(np.zeros((8, 128), np.uint32), "f16").n
        32
        """
        n = registers.shape[0] * (4 if d == "f16" else 2)
        return cls(n, d, registers_to_accumulator(registers, _ACCUMULATORS[d]))

    def registers(self) -> Registers:
        """A copy as registers: (n/2, 128), or (n/4, 128) for f16; row r is register r of each lane."""
        return accumulator_to_registers(self.matrix)


class _Issued:
    __slots__ = (
        "a",
        "a_high",
        "a_items",
        "a_low",
        "accumulator",
        "b",
        "b_high",
        "b_items",
        "b_low",
        "scale_d",
        "shape",
    )

    def __init__(self, shape: WgmmaShape, accumulator: Accumulator, a: Operand, b: int, scale_d: bool) -> None:
        self.shape = shape
        self.accumulator = accumulator
        self.a = a
        self.b = b
        self.scale_d = scale_d
        self.a_items: NDArray[Any] | None = None
        self.b_items: NDArray[Any] | None = None
        # Hulls of what is read: a write inside one makes the instruction read early, which is never wrong.
        self.a_low = self.a_high = self.b_low = self.b_high = 0


class WgmmaQueue:
    """The wgmmas of one warpgroup that are in flight.

    >>> shared = SharedMemory(4096)
    >>> shared.write(0, np.ones(2048, np.float16).view(np.uint8))
    >>> queue, accumulator = WgmmaQueue(shared), Accumulator(8, "f32")
    >>> queue.issue(WgmmaShape(8, "f16", "f16", "f32"), accumulator, 0x0000001000080000, 0x0000001000080080, True)
    >>> accumulator.in_flight, queue.commit()
    (1, 1)
    >>> queue.wait(0)
    >>> accumulator.in_flight, float(accumulator.matrix[63, 7])
    (0, 16.0)
    """

    def __init__(self, shared: SharedMemory, numerics: Numerics = "float32") -> None:
        if numerics not in ("float32", "hardware"):
            raise ValueError(f"numerics {numerics!r}; allowed are 'float32' and 'hardware'")
        self.shared = shared
        self.numerics = numerics
        self.groups = 0
        """Commit groups closed so far."""
        self.complete = 0
        """Of these, the ones waited for."""
        self._open: list[_Issued] = []
        self._closed: deque[list[_Issued]] = deque()
        self._early: list[_Issued] = []
        self._scratch: dict[int, NDArray[np.float32]] = {}

    @property
    def pending(self) -> int:
        """Commit groups not yet waited for."""
        return len(self._closed)

    @property
    def uncommitted(self) -> int:
        """Instructions issued since the last commit."""
        return len(self._open)

    def issue(
        self, shape: WgmmaShape, accumulator: Accumulator, a: Operand, b: int, scale_d: bool = True, late: bool = False
    ) -> None:
        """Starts D = A B^T + D, or A B^T if not ``scale_d``; checks the descriptors."""
        if accumulator.n != shape.n or accumulator.d != shape.d:
            raise DescriptorError(
                "unknown", f"wgmma n={shape.n} into {shape.d} on an accumulator of n={accumulator.n}, {accumulator.d}"
            )
        one = _Issued(shape, accumulator, a, b, scale_d)
        table = self._b_table(shape, (b,))
        one.b_low, one.b_high = table.low, table.high
        if isinstance(a, int):
            table = self._a_table(shape, (a,))
            one.a_low, one.a_high = table.low, table.high
        else:
            if shape.a_major != "k":
                raise DescriptorError("unknown", "A in registers is always K-major")
            one.a_items = wgmma_a_bytes(a)
        accumulator.in_flight += 1
        self._open.append(one)
        if not late:
            if not self._early:
                self.shared.readers.append(self)
            self._early.append(one)

    def commit(self) -> int:
        """Closes the open instructions, possibly none, as one group. Returns the group's number, counted from 1."""
        self._closed.append(self._open)
        self._open = []
        self.groups += 1
        return self.groups

    def wait(self, pending: int = 0) -> None:
        """Completes the oldest groups until at most ``pending`` are left."""
        issued: list[_Issued] = []
        while len(self._closed) > pending:
            issued.extend(self._closed.popleft())
            self.complete += 1
        if issued:
            self._run(issued)

    def take(self, count: int) -> None:
        """Lets the oldest ``count`` instructions in flight read their operands now (for those issued ``late``)."""
        for group in (*self._closed, self._open):
            for one in group[: max(count, 0)]:
                self._take(one)
            count -= len(group)

    def before_write(self, low: int, high: int) -> None:
        """Called by SharedMemory: instructions that were to read at issue take the bytes that are about to change."""
        touched = [
            one
            for one in self._early
            if (one.b_low < high and low < one.b_high) or (one.a_low < high and low < one.a_high)
        ]
        if touched:
            for one in touched:
                self._take(one)
            self._keep_early([one for one in self._early if one.b_items is None])

    def _keep_early(self, kept: list[_Issued]) -> None:
        self._early = kept
        if not kept:
            self.shared.readers.remove(self)

    def footprint(self, shape: WgmmaShape, a: Operand, b: int) -> tuple[tuple[int, int], ...]:
        """The shared addresses that an instruction reads, as [low, high) pairs: those of A, then those of B."""
        first = self._a_table(shape, (a,)).ranges if isinstance(a, int) else ()
        return first + self._b_table(shape, (b,)).ranges

    def footprint_chunks(self, shape: WgmmaShape, a: Operand, b: int) -> NDArray[np.intp]:
        """The same as numbers of 16-byte chunks from the window's base, ascending: for ``Shadow.read_chunks``.

        The array is the same object each time, so that the shadow can remember what it made of it.
        """
        other = self._b_table(shape, (b,))
        return chunk_union(self._a_table(shape, (a,)), other) if isinstance(a, int) else chunk_union(other)

    def _a_table(self, shape: WgmmaShape, words: tuple[int, ...]) -> ChunkTable:
        shared = self.shared
        return chunk_table(words, ROWS, shape.a, shape.a_major, shared.base, shared.size)

    def _b_table(self, shape: WgmmaShape, words: tuple[int, ...]) -> ChunkTable:
        shared = self.shared
        return chunk_table(words, shape.n, shape.b, shape.b_major, shared.base, shared.size)

    def _take(self, one: _Issued) -> None:
        if one.a_items is None and isinstance(one.a, int):
            one.a_items = _to_bytes(read_chunks(self.shared, self._a_table(one.shape, (one.a,))))
        if one.b_items is None:
            one.b_items = _to_bytes(read_chunks(self.shared, self._b_table(one.shape, (one.b,))))

    def _run(self, issued: list[_Issued]) -> None:
        if self._early:
            done = set(map(id, issued))
            self._keep_early([one for one in self._early if id(one) not in done])
        chains: dict[int, list[_Issued]] = {}
        for one in issued:
            chains.setdefault(id(one.accumulator), []).append(one)
        for chain in chains.values():
            self._run_chain(chain)

    def _run_chain(self, issued: list[_Issued]) -> None:
        """Completes instructions on one accumulator, in order; those on others are independent of them."""
        limit = _EXACT_INTEGER_K // 32 if self.numerics == "float32" else 1
        start, count = 0, len(issued)
        while start < count:
            first = issued[start]
            accumulator, shape = first.accumulator, first.shape
            stop = start + 1
            while stop < count and stop - start < limit:
                one = issued[stop]
                if not one.scale_d or not (one.shape is shape or one.shape == shape):
                    break
                stop += 1
            self._multiply(issued[start:stop])
            accumulator.in_flight -= stop - start
            start = stop

    def _multiply(self, steps: list[_Issued]) -> None:
        first = steps[0]
        shape = first.shape
        a = self._side(steps, "a", ROWS)
        b = self._side(steps, "b", shape.n)
        if self.numerics == "hardware":
            first.accumulator.matrix = _hardware(shape, first.accumulator, a, b, first.scale_d)
        else:
            self._float32(shape, first.accumulator, a, b, first.scale_d)

    def _side(self, steps: list[_Issued], side: str, rows: int) -> NDArray[np.uint8]:
        """Bytes of one operand for all steps: (rows, bytes of k) if K-major, (k, bytes of rows) if MN-major."""
        shape = steps[0].shape
        if side == "a":
            major = shape.a_major
            words = [one.a for one in steps if one.a_items is None]
        else:
            major = shape.b_major
            words = [one.b for one in steps if one.b_items is None]
        if len(words) == len(steps):
            # Descriptors whose bytes nobody has taken yet: all steps are read at once.
            shared = self.shared
            table = chunk_table(tuple(words), rows, shape.a, major, shared.base, shared.size)
            return _to_bytes(read_chunks(shared, table))
        for one in steps:
            self._take(one)
        items = [one.a_items if side == "a" else one.b_items for one in steps]
        whole = [item for item in items if item is not None]
        return whole[0] if len(whole) == 1 else np.concatenate(whole, axis=1 if major == "k" else 0)

    def _float32(
        self, shape: WgmmaShape, accumulator: Accumulator, a: NDArray[np.uint8], b: NDArray[np.uint8], scale_d: bool
    ) -> None:
        left, right = to_float32(a, shape.a), to_float32(b, shape.b)
        left = left if shape.a_major == "k" else left.T
        width = _block_width(shape.n, left.shape[1])
        if shape.b_major == "k":
            blocks = right.reshape(-1, width, right.shape[1]).transpose(0, 2, 1)
        else:
            blocks = right.reshape(right.shape[0], -1, width).transpose(1, 0, 2)
        scratch = self._scratch.get(shape.n)
        if scratch is None:
            scratch = self._scratch[shape.n] = np.empty((ROWS, shape.n), np.float32)
        matrix = accumulator.matrix
        direct = not scale_d and shape.d == "f32"
        with np.errstate(over="ignore", invalid="ignore"):
            product = matrix if direct else scratch
            np.matmul(left, blocks, out=product.reshape(ROWS, -1, width).transpose(1, 0, 2))
            if shape.negate_a != shape.negate_b:
                np.negative(product, out=product)
            if direct:
                return
            if shape.d == "f32":
                matrix += product
            elif shape.d == "f16":
                accumulator.matrix = (product + matrix if scale_d else product).astype(np.float16)
            else:
                total = product.astype(np.int64) + (matrix if scale_d else 0)
                if shape.saturate:
                    total = np.clip(total, -(1 << 31), (1 << 31) - 1)
                accumulator.matrix = total.astype(np.int32)


@lru_cache(maxsize=1024)
def _block_width(n: int, k: int) -> int:
    """Columns to multiply at once: the largest divisor of n for which OpenBLAS keeps to one thread."""
    most = _ONE_THREAD // (ROWS * k)
    return next(width for width in range(min(n, max(most, 8)), 0, -1) if n % width == 0)


def _to_bytes(items: NDArray[Any]) -> NDArray[np.uint8]:
    return items.view(np.uint8)


def _hardware(
    shape: WgmmaShape, accumulator: Accumulator, a: NDArray[np.uint8], b: NDArray[np.uint8], scale_d: bool
) -> NDArray[Any]:
    """One instruction with the bits of the chip."""
    unit: Any = {1: np.uint8, 2: np.uint16, 4: np.uint32}[shape.size]
    left, right = a.view(unit), b.view(unit)
    left = left if shape.a_major == "k" else left.T
    right = right if shape.b_major == "k" else right.T
    sign = unit(1 << _BITS[shape.a] - 1)
    if shape.negate_a:
        left = left ^ sign
    if shape.negate_b:
        right = right ^ sign
    matrix = accumulator.matrix
    bits: Any = np.uint16 if shape.d == "f16" else np.uint32
    start = matrix.view(bits) if scale_d else np.zeros(matrix.shape, bits)
    return fused_sum(left, right, start, shape.a, shape.b, shape.d, shape.saturate).view(matrix.dtype)


def wgmma(
    shared: SharedMemory,
    shape: WgmmaShape,
    accumulator: Accumulator,
    a: Operand,
    b: int,
    scale_d: bool = True,
    numerics: Numerics = "float32",
) -> None:
    """One instruction, at once: for tests and for those who need no queue.

    >>> shared, accumulator = SharedMemory(4096), Accumulator(8, "s32")
    >>> shared.write(0, np.ones(4096, np.uint8))
    >>> wgmma(shared, WgmmaShape(8, "s8", "u8", "s32"), accumulator, 0x0000001000080000, 0x0000001000080080)
    >>> int(accumulator.matrix[0, 0])
    32
    """
    queue = WgmmaQueue(shared, numerics)
    queue.issue(shape, accumulator, a, b, scale_d)
    queue.commit()
    queue.wait(0)
