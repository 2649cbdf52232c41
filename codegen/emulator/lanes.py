"""One access of many lanes as numpy arrays: widths, masks, packing, and lanes that take turns. Serves both memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .faults import MemoryAccessError

__all__ = [
    "DTYPES",
    "SHIFTS",
    "LaneMask",
    "UIntArray",
    "Update",
    "access_size",
    "first_lane",
    "pack",
    "spread",
    "typed_views",
    "update_lanes",
]

UIntArray = NDArray[Any]
LaneMask = NDArray[np.bool_] | None
Update = Callable[[UIntArray, NDArray[np.intp]], UIntArray]
"""``function(old values, lane numbers) -> new values``, the body of a read-modify-write."""

# 16-byte accesses travel as complex128: numpy copies it as one item, twice as fast as V16, and never looks inside.
DTYPES: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}


class LaneMemory(Protocol):
    """What both memories offer."""

    def gather(self, addresses: NDArray[Any], width: int, count: int = 1, mask: LaneMask = None) -> UIntArray:
        """Loads for each lane."""

    def scatter(
        self, addresses: NDArray[Any], values: UIntArray, width: int, count: int = 1, mask: LaneMask = None
    ) -> None:
        """Stores for each lane."""


def typed_views(data: NDArray[np.uint8]) -> dict[int, NDArray[Any]]:
    """The same bytes as items of 1, 2, 4, 8 and 16 bytes; a tail shorter than an item is left out."""
    return {size: data[: data.size // size * size].view(dtype) for size, dtype in DTYPES.items()}


def access_size(width: int, count: int) -> int:
    """Bytes of one lane, if such an access exists."""
    total = width * count
    if width not in SHIFTS or total not in SHIFTS:
        raise MemoryAccessError(
            "unknown", f"an access of {count} x {width} bytes a lane does not exist; 1, 2, 4, 8 or 16 bytes in all"
        )
    return total


def first_lane(bad: NDArray[np.bool_], mask: LaneMask) -> int:
    """The first active lane for which ``bad`` holds."""
    lanes = np.flatnonzero(bad if mask is None else bad & mask)
    return int(lanes[0]) if lanes.size else 0


def spread(items: NDArray[Any], width: int, count: int, mask: LaneMask, lanes: int) -> UIntArray:
    """Active lanes' items -> (lanes,) or (count, lanes) values."""
    unit, parts = (8, 2) if width == 16 else (width, count)
    values = items if parts == 1 else items.view(DTYPES[unit]).reshape(items.size, parts).T
    if mask is None:
        return values
    full: UIntArray = np.zeros((lanes,) if parts == 1 else (parts, lanes), DTYPES[unit])
    full[..., mask] = values
    return full


def pack(values: UIntArray, width: int, count: int, mask: LaneMask) -> NDArray[Any]:
    """(lanes,) or (parts, lanes) values -> one item per active lane."""
    unit, parts = (8, 2) if width == 16 else (width, count)
    values = np.asarray(values)
    if mask is not None:
        values = values[..., mask]
    if values.dtype.itemsize == unit:
        values = values.view(DTYPES[unit])
    else:
        values = values.astype(DTYPES[unit])
    if parts == 1:
        return values
    packed: NDArray[Any] = np.ascontiguousarray(values.T).view(DTYPES[unit * parts])
    return packed[:, 0]


def update_lanes(
    memory: LaneMemory,
    addresses: NDArray[Any],
    width: int,
    function: Update,
    mask: LaneMask,
) -> UIntArray:
    """Reads, changes and writes back, once for each active lane; those that share an address go in lane order."""
    lanes = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
    old: UIntArray = np.zeros(addresses.size, DTYPES[width])
    while lanes.size:
        _, first = np.unique(addresses[lanes], return_index=True)
        turn = lanes[np.sort(first)]
        old[turn] = memory.gather(addresses[turn], width)
        memory.scatter(addresses[turn], function(old[turn], turn), width)
        if turn.size == lanes.size:
            break
        lanes = np.setdiff1d(lanes, turn, assume_unique=True)
    return old
