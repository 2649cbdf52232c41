"""Shadow memory: who last wrote and read every byte, and whether a new access is ordered after them. Knows no PTX.

    shadow = Shadow(base, size)                           one for a block's shared memory, or for an array in global memory
    actor = Actor(agent, epoch, clock)                    who accesses, at which of its epochs, and what it knows has happened
    conflicts = shadow.write(actor, ranges, where)        ranges: [low, high) pairs of addresses; [] if all is in order
    conflicts = shadow.read(actor, ranges, where)
    conflicts = shadow.write_lanes(actor, addresses, size, where, mask)     the same for scattered lanes
    conflicts = shadow.read_lanes(actor, addresses, size, where, mask)
    conflicts = shadow.write_rows(actor, starts, length, where)             and for rows of a box
    conflicts = shadow.read_chunks(actor, chunks, where)                    16-byte chunks: WgmmaQueue.footprint_chunks
    ... strong=True                                       atomics, and what is relaxed, acquire, release or volatile

Agents are small integers: whatever executes on its own, such as a warp, the copies of one mbarrier, the wgmmas of a
warpgroup, a bulk group. ``clock[b]`` is the latest epoch of agent b that happened before this access; an earlier access
of b at epoch e is ordered before it exactly if e <= clock[b]. That holds for the agent itself too: a warp, which runs in
order, passes ``epoch == clock[agent]``; an asynchronous agent passes as ``clock[agent]`` the epoch up to which its
operations are known to be complete, so that two overlapping copies on one barrier are seen. A proxy fence is a matter of
the clock: what a warp wrote before the fence is in the clock that its later asynchronous operations carry, and not before.

A write conflicts with every access that is not ordered before it, a read with every such write; two strong accesses
never conflict (PTX ISA, "Morally strong operations"; that their scopes include each other is for the caller to see to).
Kept are, for each granule, the last weak write, and the last read and the last strong write of each agent: enough to
find a race whenever there is one with the last write or with a read since. Granules start at 16 bytes and split by themselves when an access is smaller or not aligned,
so that neighbours in one granule are never taken for one another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Actor", "Conflict", "Shadow"]

COARSEST = 16
Kind = Literal["write after write", "write after read", "read after write"]
_Place = slice | NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who accesses memory: its number, its epoch (at least 1), and the epochs of all agents that it is ordered after.

    ``clock`` needs an entry for every agent that ever accessed the memory.
    """

    agent: int
    epoch: int
    clock: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses that nothing orders; the first of the bytes at ``low`` .. ``high`` - 1 (one granule).

    ``count`` is the number of granules concerned, ``where`` and ``other_where`` are what the callers passed.
    """

    kind: Kind
    low: int
    high: int
    count: int
    agent: int
    where: int
    other_agent: int
    other_epoch: int
    other_where: int


# An access is one 64-bit stamp, so that noting it is one assignment: the agent on top for writes, then the epoch, then
# the place. Without the agent, the stamps of one agent's reads grow with their epochs.
_WHERE_BITS = 18
_EPOCH_BITS = 30
_AGENT_SHIFT = _WHERE_BITS + _EPOCH_BITS
_WHERE_MASK = (1 << _WHERE_BITS) - 1
_EPOCH_MASK = (1 << _EPOCH_BITS) - 1
_LIMIT = 1 << 15
"""Agents that fit: stamps are signed 64-bit integers."""


def _stamp(actor: Actor, where: int) -> int:
    """Epoch and place in one number."""
    if where >> _WHERE_BITS or actor.epoch >> _EPOCH_BITS or not 0 <= actor.agent < _LIMIT:
        raise ValueError(
            f"place {where}, epoch {actor.epoch}, agent {actor.agent}: must be non-negative and below "
            f"{1 << _WHERE_BITS}, {1 << _EPOCH_BITS}, {_LIMIT}"
        )
    return actor.epoch << _WHERE_BITS | where


_CROWD = 16
"""Agents from which on it is noted which of them were in which page."""
_PAGE_BITS = 7


def _pages(place: _Place) -> Iterable[int]:
    """The pages, of 128 granules each, that a place lies in."""
    if isinstance(place, slice):
        return range(place.start >> _PAGE_BITS, (place.stop - 1 >> _PAGE_BITS) + 1)
    return set((place >> _PAGE_BITS).tolist())


class _Last:
    """The last access of one kind of each agent, by granule."""

    __slots__ = ("latest", "pages", "stamps")

    def __init__(self) -> None:
        self.stamps: dict[int, NDArray[np.int64]] = {}
        self.latest: dict[int, int] = {}
        self.pages: dict[int, set[int]] | None = None
        """Who was ever in a page, if there are many agents: a grid's warps each use a small part of an array."""

    def note(self, agent: int, place: _Place, stamp: int, size: int) -> None:
        """Notes an access."""
        stamps = self.stamps.get(agent)
        if stamps is None:
            stamps = self.stamps[agent] = np.zeros(size, np.int64)
        stamps[place] = stamp
        if stamp > self.latest.get(agent, 0):
            self.latest[agent] = stamp
        if self.pages is not None:
            for page in _pages(place):
                self.pages.setdefault(page, set()).add(agent)
        elif len(self.latest) > _CROWD:
            self._index()

    def _index(self) -> None:
        self.pages = {}
        for agent, stamps in self.stamps.items():
            for page in _pages(np.flatnonzero(stamps)):
                self.pages.setdefault(page, set()).add(agent)

    def near(self, place: _Place) -> Iterable[int]:
        """Agents that may have been at a place, in the order of their numbers if they are many."""
        if self.pages is None:
            return self.latest
        empty: set[int] = set()
        return sorted(empty.union(*(self.pages.get(page, empty) for page in _pages(place))))

    def refine(self, times: int) -> None:
        """Granules become smaller."""
        self.stamps = {agent: np.repeat(stamps, times) for agent, stamps in self.stamps.items()}
        if self.pages is not None:
            self._index()


class Shadow:
    """The accesses to the addresses [base, base + size).

    >>> shadow = Shadow(0, 1024)
    >>> producer, consumer = (lambda *seen: Actor(0, 1, np.array(seen, np.uint32))), np.array([0, 1], np.uint32)
    >>> shadow.write(producer(1, 0), [(0, 128)], where=40)
    []
    >>> found = shadow.read(Actor(1, 1, consumer), [(64, 80)], where=80)
    >>> found[0].kind, found[0].other_agent, found[0].other_where, hex(found[0].low)
    ('read after write', 0, 40, '0x40')
    >>> shadow.read(Actor(1, 1, np.array([1, 1], np.uint32)), [(64, 80)], where=80)
    []
    """

    def __init__(self, base: int, size: int, granule: int = COARSEST) -> None:
        if granule not in (1, 2, 4, 8, 16) or base % granule:
            raise ValueError(f"granule {granule} at {base:#x}: 1, 2, 4, 8 or 16 bytes, and the base a multiple of it")
        self.base = base
        self.size = size
        self.granule = granule
        count = -(-size // granule)
        self._writes: NDArray[np.int64] = np.zeros(count, np.int64)
        self._reads = _Last()
        self._strong_reads = _Last()
        self._strong_writes = _Last()
        self._expanded: dict[int, tuple[NDArray[np.intp], NDArray[np.intp]]] = {}

    def read(self, actor: Actor, ranges: Iterable[tuple[int, int]], where: int) -> list[Conflict]:
        """Notes a read of ranges of addresses; returns its conflicts, at most one for each range.

        >>> shadow = Shadow(0, 64)
        >>> shadow.read(Actor(0, 1, np.array([1], np.uint32)), [(0, 16), (32, 48)], where=7)
        []
        """
        found: list[Conflict] = []
        for low, high in ranges:
            if low < high:
                self._read(actor, self._slice(low, high), where, found)
        return found

    def write(self, actor: Actor, ranges: Iterable[tuple[int, int]], where: int) -> list[Conflict]:
        """Notes a write of ranges of addresses; returns its conflicts, at most one for each range and agent.

        >>> shadow = Shadow(0, 64)
        >>> shadow.read(Actor(0, 2, np.array([2, 0], np.uint32)), [(0, 64)], where=7)
        []
        >>> shadow.write(Actor(1, 1, np.array([1, 1], np.uint32)), [(16, 32)], where=8)[0].kind
        'write after read'
        """
        found: list[Conflict] = []
        for low, high in ranges:
            if low < high:
                self._write(actor, self._slice(low, high), where, found)
        return found

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
        place = self._lanes(addresses, size, mask)
        if place.size:
            self._read(actor, place, where, found, strong)
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
        """Notes a write of ``size`` bytes at the address of each active lane; an atomic is a strong one.

        >>> shadow, alone = Shadow(0, 64), np.eye(3, dtype=np.uint32)
        >>> shadow.write_lanes(Actor(0, 1, alone[0]), np.array([0, 8, 20]), 4, where=7), shadow.granule
        ([], 4)
        >>> shadow.write_lanes(Actor(1, 1, alone[1]), np.array([32]), 4, where=8, strong=True)
        []
        >>> shadow.write_lanes(Actor(2, 1, alone[2]), np.array([32]), 4, where=9, strong=True)
        []
        >>> [one.other_where for one in shadow.read_lanes(Actor(0, 1, alone[0]), np.array([32]), 4, where=10)]
        [8, 9]
        """
        found: list[Conflict] = []
        place = self._lanes(addresses, size, mask)
        if place.size:
            self._write(actor, place, where, found, strong)
        return found

    def read_rows(self, actor: Actor, starts: NDArray[np.int64], length: int, where: int) -> list[Conflict]:
        """Notes a read of ``length`` bytes at each start: the rows of a tensor copy."""
        return self.read_lanes(actor, starts, length, where)

    def write_rows(self, actor: Actor, starts: NDArray[np.int64], length: int, where: int) -> list[Conflict]:
        """Notes a write of ``length`` bytes at each start: the rows of a tensor copy."""
        return self.write_lanes(actor, starts, length, where)

    def read_chunks(self, actor: Actor, chunks: NDArray[np.intp], where: int) -> list[Conflict]:
        """Notes a read of 16-byte chunks, given by their numbers from the base; quick for an array seen before.

        >>> shadow = Shadow(0, 64)
        >>> shadow.read_chunks(Actor(0, 1, np.array([1], np.uint32)), np.array([0, 3]), where=5)
        []
        """
        place = chunks
        if self.granule != COARSEST:
            known = self._expanded.get(id(chunks))
            if known is None or known[0] is not chunks:
                times = COARSEST // self.granule
                known = chunks, (chunks[:, None] * times + np.arange(times)).reshape(-1)
                self._expanded[id(chunks)] = known
            place = known[1]
        found: list[Conflict] = []
        self._read(actor, place, where, found)
        return found

    def forget(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Takes all accesses to these addresses as ordered before everything to come (memory handed over anew).

        >>> shadow = Shadow(0, 64)
        >>> shadow.write(Actor(0, 1, np.array([1, 0], np.uint32)), [(0, 64)], where=7)
        []
        >>> shadow.forget([(0, 64)])
        >>> shadow.write(Actor(1, 1, np.array([0, 1], np.uint32)), [(0, 64)], where=8)
        []
        """
        for low, high in ranges:
            place = self._slice(low, high)
            self._writes[place] = 0
            for table in (self._reads, self._strong_reads, self._strong_writes):
                for stamps in table.stamps.values():
                    stamps[place] = 0

    def _read(self, actor: Actor, place: _Place, where: int, found: list[Conflict], strong: bool = False) -> None:
        stamp = _stamp(actor, where)
        self._after_write(actor, place, where, "read after write", found)
        if not strong:
            self._after_all(self._strong_writes, actor, place, where, "read after write", found)
        (self._strong_reads if strong else self._reads).note(actor.agent, place, stamp, self._writes.size)

    def _write(self, actor: Actor, place: _Place, where: int, found: list[Conflict], strong: bool = False) -> None:
        stamp = _stamp(actor, where)
        self._after_write(actor, place, where, "write after write", found)
        self._after_all(self._reads, actor, place, where, "write after read", found)
        if strong:
            self._strong_writes.note(actor.agent, place, stamp, self._writes.size)
            return
        self._after_all(self._strong_reads, actor, place, where, "write after read", found)
        self._after_all(self._strong_writes, actor, place, where, "write after write", found)
        self._writes[place] = actor.agent << _AGENT_SHIFT | stamp

    def _after_all(
        self, table: _Last, actor: Actor, place: _Place, where: int, kind: Kind, found: list[Conflict]
    ) -> None:
        for agent in table.near(place):
            # The largest stamp that is ordered before this access.
            known = int(actor.clock[agent]) << _WHERE_BITS | _WHERE_MASK
            if table.latest[agent] <= known:
                continue
            stamps = table.stamps[agent]
            here = stamps[place]
            if int(np.maximum.reduce(here)) > known:
                late = here > known
                first = self._first(place, late)
                found.append(self._conflict(kind, first, late, actor, where, agent, int(stamps[first])))

    def _after_write(self, actor: Actor, place: _Place, where: int, kind: Kind, found: list[Conflict]) -> None:
        stamps = self._writes[place]
        low, high = int(np.minimum.reduce(stamps)), int(np.maximum.reduce(stamps))
        clock = actor.clock
        if high >> _AGENT_SHIFT >= clock.size:
            raise ValueError(f"a clock of {clock.size} agents, but agent {high >> _AGENT_SHIFT} accessed this memory")
        # If one agent wrote all of it, its latest epoch decides.
        uniform = low >> _AGENT_SHIFT == high >> _AGENT_SHIFT
        if uniform and high >> _WHERE_BITS & _EPOCH_MASK <= int(clock[high >> _AGENT_SHIFT]):
            return
        late = ((stamps >> _WHERE_BITS) & _EPOCH_MASK) > clock.take(stamps >> _AGENT_SHIFT)
        if late.any():
            first = self._first(place, late)
            stamp = int(self._writes[first])
            found.append(self._conflict(kind, first, late, actor, where, stamp >> _AGENT_SHIFT, stamp))

    def _conflict(
        self, kind: Kind, first: int, late: NDArray[np.bool_], actor: Actor, where: int, other: int, stamp: int
    ) -> Conflict:
        low = self.base + first * self.granule
        high = min(low + self.granule, self.base + self.size)
        epoch = stamp >> _WHERE_BITS & _EPOCH_MASK
        count = int(np.count_nonzero(late))
        return Conflict(kind, low, high, count, actor.agent, where, other, epoch, stamp & _WHERE_MASK)

    @staticmethod
    def _first(place: _Place, late: NDArray[np.bool_]) -> int:
        """The lowest granule of a place for which ``late`` holds."""
        if isinstance(place, slice):
            return int(place.start) + int(late.argmax())
        return int(place[late].min())

    def _slice(self, start: int, stop: int) -> slice:
        low, high = start - self.base, stop - self.base
        if low < 0 or high > self.size:
            self._outside(low, high)
        bits = low | high if high != self.size else low
        if bits & (self.granule - 1):
            self._refine(bits)
        return slice(low // self.granule, -(-high // self.granule))

    def _lanes(self, addresses: NDArray[Any], size: int, mask: NDArray[np.bool_] | None) -> NDArray[np.intp]:
        offsets = addresses.astype(np.int64)
        if mask is not None:
            offsets = offsets[mask]
        if not offsets.size or not size:
            return np.zeros(0, np.intp)
        if self.base:
            offsets -= self.base
        low, high = int(np.minimum.reduce(offsets)), int(np.maximum.reduce(offsets)) + size
        if low < 0 or high > self.size:
            self._outside(low, high)
        bits = int(np.bitwise_or.reduce(offsets)) | size
        if bits & (self.granule - 1):
            self._refine(bits)
        offsets >>= self.granule.bit_length() - 1
        if size == self.granule:
            return offsets
        return (offsets[:, None] + np.arange(size // self.granule)).reshape(-1)

    def _outside(self, low: int, high: int) -> None:
        raise ValueError(
            f"addresses {low + self.base:#x}..{high + self.base - 1:#x} are outside this shadow "
            f"({self.base:#x}..{self.base + self.size - 1:#x})"
        )

    def _refine(self, bits: int) -> None:
        """Splits granules until they are no larger than the lowest set bit of ``bits``."""
        wanted = bits & -bits
        times = self.granule // wanted
        self.granule = wanted
        self._expanded.clear()
        self._writes = np.repeat(self._writes, times)
        for table in (self._reads, self._strong_reads, self._strong_writes):
            table.refine(times)
