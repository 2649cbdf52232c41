"""What the lanes of a warp wrote to shared memory since they last waited for each other: for operations that one lane issues on behalf of all.

To the race check a warp is one agent, whose instructions are in order. But lanes of a warp are threads of their own: what another lane has stored is
ordered before what this one does only by bar.warp.sync, or a barrier of more threads (PTX ISA, "bar.warp.sync"; elect.sync and shuffles promise nothing of
the kind). So before a lane lets the copy engine or the tensor core read shared memory, the others' stores to it need one.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST = 256
"""Stores that are remembered for a warp; older ones are forgotten."""


class LaneOrder:
    """The stores of each warp (a row number) since its last synchronisation.

    >>> order = LaneOrder()
    >>> order.wrote(0, 0, np.arange(32) * 4, 4, None, where=7)
    >>> order.unsynced(0, 0, 0, [(64, 128)]), order.unsynced(0, 5, 0, [(20, 24)])
    (7, None)
    >>> order.synchronised(0)
    >>> order.unsynced(0, 0, 0, [(64, 128)]) is None
    True
    """

    def __init__(self) -> None:
        self._stores: dict[int, deque[tuple[int, NDArray[Any], int, Any, int]]] = {}

    def wrote(
        self, row: int, rank: int, addresses: NDArray[Any], size: int, mask: NDArray[np.bool_] | None, where: int
    ) -> None:
        """Lanes of a warp have stored `size` bytes each, in the shared memory of the block of that rank."""
        held = self._stores.get(row)
        if held is None:
            held = self._stores[row] = deque(maxlen=_MOST)
        held.append((rank, addresses, size, mask, where))

    def pending(self, row: int) -> bool:
        """Whether lanes of a warp have stored anything since they last waited for each other."""
        return row in self._stores

    def synchronised(self, row: int) -> None:
        """The lanes of a warp have waited for each other."""
        self._stores.pop(row, None)

    def unsynced(self, row: int, lane: int, rank: int, ranges: Any) -> int | None:
        """The instruction by which another lane of the warp stored to one of the address ranges, since the last synchronisation."""
        for owner, addresses, size, mask, where in self._stores.get(row, ()):
            if owner != rank:
                continue
            others = np.ones(addresses.size, np.bool_) if mask is None else mask.copy()
            if lane < others.size:
                others[lane] = False
            low = addresses[others].astype(np.int64)
            if low.size and any(bool(((low < stop) & (low + size > start)).any()) for start, stop in ranges):
                return where
        return None
