"""TMA's tile modes of four rows (sm_100): rows anywhere in a matrix, side by side in shared memory. Knows nothing of PTX, barriers or time.

    copied = gather(bound, column, rows, shared, address)       cp.async.bulk.tensor.2d ... tile::gather4
    copied = scatter(bound, column, rows, shared, address)      ... tile::scatter4
    shared_ranges(bound, address), check(bound, column, rows, address, store)

The map's box is one row (PTX ISA, "Tensor copy: tile::gather4 and tile::scatter4"); each copy moves four such boxes, at the rows named, from
or to where one box of four rows would lie: the same pitch, the same swizzle of absolute addresses. A row outside the tensor is filled, or
not written. Which chip does that was never measured here: the rules of a single box are those measured on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.hardware.swizzle_modes import swizzle_mode
from stridewright.layout.hardware.tensor_map import TensorMap
from stridewright.layout.hardware.tensor_map_rules import CHUNK

from . import tensor_copy
from .faults import TensorCopyError
from .memory import SharedMemory
from .tensor_copy import BoundTensorMap

__all__ = ["ROWS", "FourRows", "check", "gather", "scatter", "shared_ranges"]

ROWS = 4


@dataclass(frozen=True, eq=False, slots=True)
class FourRows:
    """What one copy did: bytes that it counts, and where in global memory: the start of each row inside, and the bytes of a row."""

    bytes: int
    starts: NDArray[np.int64]
    length: int

    def global_rows(self) -> tuple[NDArray[np.int64], int]:
        """As TensorCopy.global_rows()."""
        return self.starts, self.length


@lru_cache(maxsize=256)
def _whole(tensor_map: TensorMap) -> TensorMap:
    """The map of all four rows as one box."""
    if tensor_map.rank != 2 or tensor_map.box[1] != 1 or tensor_map.interleave != "none":
        raise TensorCopyError(
            "unknown",
            f"tile::gather4 and scatter4 with a box of {tensor_map.box} of rank {tensor_map.rank}, interleave {tensor_map.interleave}: "
            "they take maps of two dimensions without interleave whose box is one row",
        )
    return replace(tensor_map, box=(tensor_map.box[0], ROWS))


@lru_cache(maxsize=256)
def _row(bound: BoundTensorMap) -> BoundTensorMap:
    """The map of one row without a swizzle: its bytes in order."""
    plain = replace(bound.map, swizzle="none")
    return BoundTensorMap(plain, bound.memory, bound.address, bound.inside)


def check(bound: BoundTensorMap, column: int, rows: Sequence[int], address: int, store: bool = False) -> None:
    """The faults of the issue, for each of the four rows."""
    _whole(bound.map)
    for row in rows:
        tensor_copy.check(bound, (column, row), address, store)


@lru_cache(maxsize=1024)
def _places(tensor_map: TensorMap, phase: int) -> NDArray[np.int64]:
    """Where each 16-byte chunk of the four rows lies, from an address with that remainder by 1024: (rows, chunks)."""
    four = _whole(tensor_map)
    plain = phase + np.arange(ROWS, dtype=np.int64)[:, None] * four.pitch + np.arange(0, four.row_bytes, CHUNK)
    return np.asarray(swizzle_mode(four.swizzle).apply(plain), np.int64) - phase


def _phase(address: int) -> int:
    return address % 1024


def shared_ranges(bound: BoundTensorMap, address: int) -> tuple[tuple[int, int], ...]:
    """Where four rows at that address lie, in chunks of 16 bytes."""
    places = np.sort(_places(bound.map, _phase(address)), axis=None) + address
    breaks = np.flatnonzero(np.diff(places) != CHUNK)
    firsts, lasts = places[np.r_[0, breaks + 1]], places[np.r_[breaks, places.size - 1]] + CHUNK
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def gather(bound: BoundTensorMap, column: int, rows: Sequence[int], shared: SharedMemory, address: int) -> FourRows:
    """Copies the boxes at (column, row) for four rows to shared memory; what is outside the tensor is filled.

    >>> from .memory import GlobalMemory
    >>> memory, shared, array = GlobalMemory(), SharedMemory(128), np.arange(128, dtype=np.uint8).reshape(8, 16)
    >>> bound = BoundTensorMap(TensorMap("u8", (16, 8), (16,), (16, 1), arch="sm_100a"), memory, memory.register(array))
    >>> gather(bound, 0, (6, 1, 1, 9), shared, 0).bytes, shared.read(0, 64)[::16].tolist()
    (64, [96, 16, 16, 0])
    """
    check(bound, column, rows, address)
    plain = _row(bound)
    places = _places(bound.map, _phase(address)) + address
    scratch = SharedMemory(-(-plain.row_bytes // CHUNK) * CHUNK)
    starts: list[Any] = []
    length = 0
    for row, chunks in zip(rows, places.tolist(), strict=True):
        copied = tensor_copy.load(plain, (column, row), scratch, 0)
        data = scratch.read(0, plain.row_bytes)
        for number, place in enumerate(chunks):
            shared.write(place, data[number * CHUNK : (number + 1) * CHUNK].copy())
        first, size = copied.global_rows()
        if size:
            starts, length = [*starts, *first.tolist()], size
    return FourRows(ROWS * plain.box_bytes, np.array(starts, np.int64), length)


def scatter(bound: BoundTensorMap, column: int, rows: Sequence[int], shared: SharedMemory, address: int) -> FourRows:
    """Copies four rows of shared memory to the boxes at (column, row); what is outside the tensor is not written.

    >>> from .memory import GlobalMemory
    >>> memory, shared, array = GlobalMemory(), SharedMemory(128), np.zeros((8, 16), np.uint8)
    >>> shared.write(0, np.arange(64, dtype=np.uint8))
    >>> bound = BoundTensorMap(TensorMap("u8", (16, 8), (16,), (16, 1), arch="sm_100a"), memory, memory.register(array))
    >>> scatter(bound, 0, (7, 2, 0, 8), shared, 0).length, array[:, 0].tolist()
    (16, [32, 0, 16, 0, 0, 0, 0, 0])
    """
    check(bound, column, rows, address, store=True)
    plain = _row(bound)
    places = _places(bound.map, _phase(address)) + address
    scratch = SharedMemory(-(-plain.row_bytes // CHUNK) * CHUNK)
    starts: list[Any] = []
    length = 0
    for row, chunks in zip(rows, places.tolist(), strict=True):
        for number, place in enumerate(chunks):
            scratch.write(number * CHUNK, shared.read(place, CHUNK))
        copied = tensor_copy.store(plain, (column, row), scratch, 0)
        first, size = copied.global_rows()
        if size:
            starts, length = [*starts, *first.tolist()], size
    return FourRows(ROWS * plain.box_bytes, np.array(starts, np.int64), length)
