"""What the lanes of a warp wrote to shared memory since they last waited for each other, and what some of them waited for and the others did not.

To the race check a warp is one agent, whose instructions are in order. But lanes of a warp are threads of their own: what another lane has stored is
ordered before what this one does only by bar.warp.sync, or a barrier of more threads (PTX ISA, "bar.warp.sync"; elect.sync and shuffles promise nothing of
the kind). So before a lane lets the copy engine or the tensor core read shared memory, the others' stores to it need one; and what one lane alone has waited
for, an mbarrier's phase or its own bulk groups, is over for the others only after one.
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


LANES = 32
_Clock = NDArray[np.uint32]


class LaneClocks:
    """What has happened as far as each lane of a warp (a row number) knows, while its lanes differ in that.

    >>> clocks, warp = LaneClocks(), np.array([1, 4], np.uint32)
    >>> clocks.learnt(0, np.arange(32) == 0, np.array([1, 0], np.uint32), warp)
    >>> [(lanes.tolist(), clock.tolist()) for lanes, clock in clocks.of(0, np.arange(32) < 3, warp)]
    [([1, 2], [1, 0]), ([0], [1, 4])]
    >>> clocks.synchronised(0, None)
    >>> clocks.differ(0)
    False
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[NDArray[np.uint32], _Clock]] = {}
        """By row: (lane, agent) -> epoch, and the warp's clock as far as it is accounted for."""

    def differ(self, row: int) -> bool:
        """Whether lanes of a warp may know different things."""
        return row in self._held

    def learnt(self, row: int, lanes: NDArray[np.bool_], before: _Clock, news: _Clock) -> None:
        """Some lanes have waited for what is in ``news``; ``before`` is the warp's clock without it."""
        if row in self._held:
            each, seen = self._caught_up(row, before)
        elif lanes.all():
            return
        else:
            each, seen = np.tile(before, (LANES, 1)), before.copy()
            self._held[row] = each, seen
        mine = each[:, : news.size]
        mine[lanes] = np.maximum(mine[lanes], news)
        np.maximum(seen[: news.size], news, out=seen[: news.size])

    def _caught_up(self, row: int, clock: _Clock) -> tuple[NDArray[np.uint32], _Clock]:
        """What the warp has come to know in other ways, its lanes know: its own epoch, and what it waits for as a whole."""
        each, seen = self._held[row]
        if clock.size > seen.size:
            more = clock.size - seen.size
            each, seen = np.pad(each, ((0, 0), (0, more))), np.pad(seen, (0, more))
            self._held[row] = each, seen
        elsewhere = np.flatnonzero(clock > seen)
        each[:, elsewhere] = clock[elsewhere]
        seen[elsewhere] = clock[elsewhere]
        return each, seen

    def of(self, row: int, lanes: NDArray[np.bool_], clock: _Clock) -> list[tuple[NDArray[np.intp], _Clock]]:
        """The lanes by what they know, each with that; ``clock`` is the warp's."""
        each, _ = self._caught_up(row, clock)
        numbers = np.flatnonzero(lanes)
        kinds, which = np.unique(each[numbers], axis=0, return_inverse=True)
        return [(numbers[which.reshape(-1) == kind], kinds[kind]) for kind in range(len(kinds))]

    def least(self, row: int, lanes: NDArray[np.bool_], clock: _Clock) -> _Clock:
        """What all of these lanes know."""
        least: _Clock = self._caught_up(row, clock)[0][lanes].min(axis=0)
        return least

    def synchronised(self, row: int, lanes: NDArray[np.bool_] | None) -> None:
        """Lanes of a warp (None: all) have waited for each other: each knows what any of them knew."""
        if row not in self._held:
            return
        if lanes is None or lanes.all():
            del self._held[row]
        else:
            each = self._held[row][0]
            each[lanes] = each[lanes].max(axis=0)


RELEASE, FENCE = "release", "fence"
"""How a lane passes on what it did: to who waits for a barrier at which it arrives, and to the async proxy."""
_Accesses = tuple[int, NDArray[Any], NDArray[np.bool_], int, int, bool]
"""(rank of a block, address of each lane, which lanes, bytes, instruction, whether they stored)."""


class LaneAccesses:
    """What the lanes of each warp (a row number) did since they last met, and have not passed on themselves.

    >>> accesses, every = LaneAccesses(), np.ones(32, np.bool_)
    >>> accesses.accessed(0, (0, np.arange(32) * 4, every, 4, 7, False))
    >>> [(where, int(lanes.sum())) for _, _, lanes, _, where, _ in accesses.passed_on(RELEASE, 0, np.arange(32) == 5)]
    [(7, 31)]
    >>> accesses.passed_on(FENCE, 0, every), accesses.pending(FENCE, 0), accesses.passed_on(RELEASE, 0, every)
    ([], False, [])
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[int, deque[_Accesses]]] = {RELEASE: {}, FENCE: {}}

    def accessed(self, row: int, what: _Accesses) -> None:
        """Lanes of a warp load or store."""
        for held in self._held.values():
            if row not in held:
                held[row] = deque(maxlen=_MOST)
            held[row].append(what)

    def pending(self, kind: str, row: int) -> bool:
        """Whether there is anything that lanes have not passed on in this way."""
        return row in self._held[kind]

    def passed_on(self, kind: str, row: int, lanes: NDArray[np.bool_]) -> list[_Accesses]:
        """These lanes pass on what they did: returns what the others did, of which nothing is kept."""
        found = []
        for rank, addresses, who, size, where, write in self._held[kind].pop(row, ()):
            others = who & ~lanes
            if others.any():
                found.append((rank, addresses, others, size, where, write))
        return found

    def synchronised(self, row: int) -> None:
        """The lanes of a warp have waited for each other."""
        for held in self._held.values():
            held.pop(row, None)
