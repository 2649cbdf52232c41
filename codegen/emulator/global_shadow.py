"""Shadow memory for global memory: one Shadow for each array that is ever written. Knows no PTX.

    shadow = GlobalShadow(memory)
    conflicts = shadow.write_lanes(actor, addresses, size, where, mask)     st.global, by absolute addresses of the lanes
    conflicts = shadow.read_lanes(actor, addresses, size, where, mask)
    conflicts = shadow.write_rows(actor, starts, length, where)             tensor copies: TensorCopy.global_rows()
    conflicts = shadow.read_rows(actor, starts, length, where)

Actors and conflicts are those of shadow.py. Blocks that never synchronise through global memory can be one agent each
(epoch 1, a clock that is 1 at the block itself): then any two blocks that touch one byte, one of them writing, conflict.
Reads of an array that nobody has written yet are only noted and looked at with the first write; inputs cost next to
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .memory import GlobalMemory
from .shadow import Actor, Conflict, Shadow

__all__ = ["GlobalShadow"]

_NOTHING = np.zeros(1, np.uint32)


class GlobalShadow:
    """The accesses to every array of a GlobalMemory.

    >>> memory = GlobalMemory()
    >>> address = memory.register(np.zeros(64, np.uint32))
    >>> shadow, lanes = GlobalShadow(memory), np.arange(32)
    >>> one, two = (Actor(block, 1, np.eye(2, dtype=np.uint32)[block]) for block in range(2))
    >>> shadow.write_lanes(one, address + 4 * lanes, 4, where=10), shadow.write_lanes(two, address + 128 + 4 * lanes, 4, 11)
    ([], [])
    >>> shadow.read_lanes(two, address + 124 + 4 * lanes, 4, 12)[0].kind
    'read after write'
    """

    def __init__(self, memory: GlobalMemory) -> None:
        self.memory = memory
        self._shadows: dict[int, Shadow] = {}
        self._noted: dict[int, list[tuple[Actor, NDArray[np.int64], int, int, bool]]] = {}

    def read_lanes(
        self,
        actor: Actor,
        addresses: NDArray[Any],
        size: int,
        where: int,
        mask: NDArray[np.bool_] | None = None,
        strong: bool = False,
    ) -> list[Conflict]:
        """Notes a read of ``size`` bytes at the address of each active lane."""
        found: list[Conflict] = []
        for start, part in self._parts(addresses, mask):
            shadow = self._shadows.get(start)
            if shadow is None:
                # The copy keeps a caller from changing what is noted; of the actor only its agent and epoch will matter.
                noted = Actor(actor.agent, actor.epoch, _NOTHING)
                self._noted.setdefault(start, []).append((noted, part, size, where, strong))
            else:
                found.extend(shadow.read_lanes(actor, part, size, where, strong=strong))
        return found

    def write_lanes(
        self,
        actor: Actor,
        addresses: NDArray[Any],
        size: int,
        where: int,
        mask: NDArray[np.bool_] | None = None,
        strong: bool = False,
    ) -> list[Conflict]:
        """Notes a write of ``size`` bytes at the address of each active lane."""
        found: list[Conflict] = []
        for start, part in self._parts(addresses, mask):
            found.extend(self._shadow(start).write_lanes(actor, part, size, where, strong=strong))
        return found

    def read_rows(
        self, actor: Actor, starts: NDArray[np.int64], length: int, where: int, strong: bool = False
    ) -> list[Conflict]:
        """Notes a read of ``length`` bytes at each start."""
        return self.read_lanes(actor, starts, length, where, strong=strong) if length else []

    def write_rows(
        self, actor: Actor, starts: NDArray[np.int64], length: int, where: int, strong: bool = False
    ) -> list[Conflict]:
        """Notes a write of ``length`` bytes at each start."""
        return self.write_lanes(actor, starts, length, where, strong=strong) if length else []

    def _shadow(self, start: int) -> Shadow:
        shadow = self._shadows.get(start)
        if shadow is None:
            allocation = self.memory.find(start, 1)
            # Whole granules at the end: a store of 16 bytes may not be refined because an array ends in the middle of one.
            size = -(-allocation.data.size // 16) * 16
            shadow = self._shadows[start] = Shadow(start, size)
            for actor, part, length, where, strong in self._noted.pop(start, ()):
                shadow.read_lanes(actor, part, length, where, strong=strong)
        return shadow

    def _parts(self, addresses: NDArray[Any], mask: NDArray[np.bool_] | None) -> list[tuple[int, NDArray[np.int64]]]:
        """(address of the array, addresses in it) of every array that active lanes use."""
        active = (addresses if mask is None else addresses[mask]).astype(np.int64)
        if not active.size:
            return []
        allocation = self.memory.find(int(active[0]), 1)
        inside = (active >= allocation.address) & (active < allocation.end)
        if inside.all():
            return [(allocation.address, active)]
        return [(allocation.address, active[inside]), *self._parts(active[~inside], None)]
