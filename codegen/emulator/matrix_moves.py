"""ldmatrix, stmatrix and movmatrix: 8x8 matrices of 16-bit elements between shared memory and registers.

Lanes come 32 for each warp, several warps side by side; all lanes of a warp take part (.sync.aligned). Row r of matrix j
lies at the address of lane 8j + r; other addresses are not looked at. Lane l holds columns 2(l%4) and
2(l%4) + 1 of row l//4, transposed with ``trans``. Source: PTX ISA, "ldmatrix", "stmatrix", "movmatrix"; measured on an
H200.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import MachineError
from .fragments import Registers
from .memory import SharedMemory

__all__ = ["ldmatrix", "movmatrix", "row_lanes", "stmatrix"]


@lru_cache(maxsize=64)
def row_lanes(lanes: int, count: int) -> NDArray[np.bool_]:
    """Which lanes' addresses an instruction of ``count`` matrices uses.

    >>> int(row_lanes(64, 2).sum())
    32
    """
    if count not in (1, 2, 4):
        raise MachineError("unknown", f"{count} matrices; allowed are 1, 2 and 4")
    if lanes % 32:
        raise MachineError("unknown", f"{lanes} lanes; whole warps of 32 take part")
    mask: NDArray[np.bool_] = np.arange(lanes) % 32 < 8 * count
    mask.setflags(write=False)
    return mask


def ldmatrix(shared: SharedMemory, addresses: NDArray[Any], count: int, trans: bool = False) -> Registers:
    """Loads ``count`` matrices for each warp. Returns registers (count, lanes).

    >>> shared = SharedMemory(128)
    >>> shared.write(0, np.arange(64, dtype=np.uint16).view(np.uint8))
    >>> [hex(x) for x in ldmatrix(shared, np.arange(32) % 8 * 16, 1)[0][:5]]
    ['0x10000', '0x30002', '0x50004', '0x70006', '0x90008']
    """
    lanes = addresses.size
    mask = row_lanes(lanes, count)
    rows = shared.gather_chunks(addresses, None if count == 4 else mask)
    matrices = rows.view(np.uint16).reshape(lanes // 32, count, 8, 8)
    return _to_registers(matrices.transpose(0, 1, 3, 2) if trans else matrices)


def stmatrix(shared: SharedMemory, addresses: NDArray[Any], registers: Registers, trans: bool = False) -> None:
    """Stores registers (count, lanes) as ``count`` matrices for each warp.

    >>> shared = SharedMemory(128)
    >>> stmatrix(shared, np.arange(32) % 8 * 16, np.arange(32, dtype=np.uint32)[None, :])
    >>> shared.load(4, 4), shared.load(16, 4)
    (1, 4)
    """
    lanes = addresses.size
    count = registers.shape[0]
    mask = row_lanes(lanes, count)
    matrices = _to_matrices(np.asarray(registers, np.uint32))
    matrices = np.ascontiguousarray(matrices.transpose(0, 1, 3, 2) if trans else matrices)
    shared.scatter_chunks(addresses, matrices.view(np.complex128).reshape(-1), None if count == 4 else mask)


def movmatrix(register: NDArray[Any]) -> NDArray[np.uint32]:
    """Transposes the 8x8 matrix that each warp holds in one register.

    >>> [hex(x) for x in movmatrix(np.arange(32, dtype=np.uint32))[:2]]
    ['0x40000', '0xc0008']
    """
    matrices = _to_matrices(np.asarray(register, np.uint32)[None, :])
    transposed: NDArray[np.uint32] = _to_registers(matrices.transpose(0, 1, 3, 2))[0]
    return transposed


def _to_registers(matrices: NDArray[np.uint16]) -> Registers:
    """(warps, count, 8, 8) -> (count, lanes)."""
    warps, count = matrices.shape[:2]
    words: Registers = np.ascontiguousarray(matrices).view(np.uint32).reshape(warps, count, 32)
    return words.transpose(1, 0, 2).reshape(count, warps * 32)


def _to_matrices(registers: Registers) -> NDArray[np.uint16]:
    """(count, lanes) -> (warps, count, 8, 8)."""
    count, lanes = registers.shape
    words = registers.reshape(count, lanes // 32, 8, 4).transpose(1, 0, 2, 3)
    return np.ascontiguousarray(words).view(np.uint16)
