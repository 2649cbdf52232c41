"""Which lane holds which element: registers of a warp or warpgroup <-> matrices, for wgmma and mma.sync.

Registers are arrays (registers, lanes) of uint32; lanes are 32 for each warp, several warps side by side. Every map is
a reshape and a transposition, so that nothing is indexed. Source: PTX ISA, "Register Fragments" of wgmma and mma; tests
hold them against what an H200 did (tests/data/h200/wgmma_fragments.npz, mma_fragments.npz).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "a_bytes",
    "accumulator_to_registers",
    "b_bytes",
    "mma_registers",
    "mma_rows",
    "registers_to_accumulator",
    "wgmma_a_bytes",
]

Registers = NDArray[np.uint32]


def accumulator_to_registers(matrix: NDArray[Any]) -> Registers:
    """A wgmma accumulator (64, n) -> registers: (n/2, 128) for 32-bit elements, (n/4, 128) for 16-bit ones.

    >>> r = accumulator_to_registers(np.arange(64 * 8, dtype=np.int32).reshape(64, 8))
    >>> r[:, 5].tolist() == [1 * 8 + 2, 1 * 8 + 3, 9 * 8 + 2, 9 * 8 + 3]
    True
    """
    n = matrix.shape[1]
    if matrix.itemsize == 2:
        pairs: Registers = np.ascontiguousarray(matrix).view(np.uint32).reshape(4, 2, 8, n // 8, 4)
        return pairs.transpose(3, 1, 0, 2, 4).reshape(n // 4, 128)
    words: Registers = np.ascontiguousarray(matrix).view(np.uint32).reshape(4, 2, 8, n // 8, 4, 2)
    return words.transpose(3, 1, 5, 0, 2, 4).reshape(n // 2, 128)


def registers_to_accumulator(registers: Registers, dtype: Any) -> NDArray[Any]:
    """The inverse: registers of a warpgroup -> the accumulator (64, n) of ``dtype`` (4 or 2 bytes an element).

    >>> matrix = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
    >>> bool((registers_to_accumulator(accumulator_to_registers(matrix), np.float32) == matrix).all())
    True
    """
    count = registers.shape[0]
    if np.dtype(dtype).itemsize == 2:
        pairs = np.asarray(registers, np.uint32).reshape(count // 2, 2, 4, 8, 4).transpose(2, 1, 3, 0, 4)
        return np.ascontiguousarray(pairs).reshape(64, count * 2).view(dtype)
    words = np.asarray(registers, np.uint32).reshape(count // 4, 2, 2, 4, 8, 4).transpose(3, 1, 4, 0, 5, 2)
    return np.ascontiguousarray(words).reshape(64, count * 2).view(dtype)


def wgmma_a_bytes(registers: Registers) -> NDArray[np.uint8]:
    """A in registers of one wgmma, (4, 128) -> its bytes (64 rows, 32 bytes of k), whatever the element type.

    >>> wgmma_a_bytes(np.arange(512, dtype=np.uint32).reshape(4, 128)).view(np.uint32)[1, :5].tolist()
    [4, 5, 6, 7, 260]
    """
    return a_bytes(registers, 16).reshape(64, 32)


def a_bytes(registers: Registers, rows: int) -> NDArray[np.uint8]:
    """mma.sync's A, (registers, 32 * warps) -> bytes (warps, rows, bytes of k): 8 rows and 16 bytes of k a register.

    >>> a_bytes(np.zeros((4, 32), np.uint32), 16).shape
    (1, 16, 32)
    """
    blocks = rows // 8
    depth = registers.shape[0] // blocks
    parts = np.asarray(registers, np.uint32).reshape(depth, blocks, -1, 8, 4).transpose(2, 1, 3, 0, 4)
    return np.ascontiguousarray(parts).reshape(-1, rows, depth * 4).view(np.uint8)


def b_bytes(registers: Registers) -> NDArray[np.uint8]:
    """mma.sync's B, (registers, 32 * warps) -> bytes (warps, 8 columns, bytes of k): 16 bytes of k a register.

    >>> b_bytes(np.zeros((2, 64), np.uint32)).shape
    (2, 8, 32)
    """
    return a_bytes(registers, 8)


def mma_rows(registers: Registers, dtype: Any, rows: int) -> NDArray[Any]:
    """mma.sync's C or D, (registers, 32 * warps) -> (warps, rows, 8) of ``dtype`` (2 or 4 bytes an element).

    >>> mma_rows(np.arange(128, dtype=np.uint32).reshape(4, 32), np.uint32, 16)[0, 9, :3].tolist()
    [68, 100, 69]
    """
    blocks = rows // 8
    values = np.asarray(registers, np.uint32)
    if np.dtype(dtype).itemsize == 2:
        pairs = values.reshape(blocks, -1, 8, 4).transpose(1, 0, 2, 3)
        return np.ascontiguousarray(pairs).reshape(-1, rows, 4).view(dtype)
    words = values.reshape(blocks, 2, -1, 8, 4).transpose(2, 0, 3, 4, 1)
    return np.ascontiguousarray(words).reshape(-1, rows, 8).view(dtype)


def mma_registers(matrices: NDArray[Any]) -> Registers:
    """The inverse of ``mma_rows``: (warps, rows, 8) -> (registers, 32 * warps).

    >>> matrices = np.arange(128, dtype=np.float32).reshape(1, 16, 8)
    >>> bool((mma_rows(mma_registers(matrices), np.float32, 16) == matrices).all())
    True
    """
    warps, rows, _ = matrices.shape
    blocks = rows // 8
    words: Registers = np.ascontiguousarray(matrices).view(np.uint32)
    if matrices.itemsize == 2:
        return words.reshape(warps, blocks, 8, 4).transpose(1, 0, 2, 3).reshape(blocks, warps * 32)
    return words.reshape(warps, blocks, 8, 4, 2).transpose(1, 4, 0, 2, 3).reshape(blocks * 2, warps * 32)
