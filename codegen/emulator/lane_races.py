"""What holds between the lanes of a warp, for the race check: to it a warp is one agent, but its lanes are threads of their own. In strict mode only.

    check(g, lane, cta, ranges)             one lane lets something asynchronous read shared memory: what others stored there must be ordered before
    access(g, m, row, cta, ...)             an access of lanes, some of which may not know what others have waited for
    learnt(row, lanes, before, news)        some lanes have waited
    passed_on(kind, g, m, row)              some lanes arrive at a barrier, or fence: what the others did is not passed on
    met(row), warp_sync(g, m)               lanes have waited for one another

What the others did when one passes on what it did becomes the access of an agent of its own, the warp's other lanes: the warp knows of it, and a barrier's
phase passes it on only once the lanes have met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .lane_order import LANES, RELEASE, LaneAccesses, LaneClocks, LaneOrder
from .report import Access, Race
from .shadow import Actor, Conflict, Shadow

if TYPE_CHECKING:
    from .cta import Cta
    from .gang import Gang
    from .races import ClusterRaces

OTHERS, UNFENCED = "other lanes", "other lanes, not fenced"
MISSING = {
    OTHERS: "bar.warp.sync (__syncwarp) or a barrier between what the lanes of the warp did and the arrival of some of them",
    UNFENCED: "fence.proxy.async by each lane, or by one after bar.warp.sync (__syncwarp) or a barrier",
}
"""By kind of agent, what orders its accesses."""

WAITED = "; some lanes have waited: bar.warp.sync (__syncwarp) or a barrier before what the others access"


class LaneRaces:
    """What the lanes of the warps of a cluster know of each other."""

    def __init__(self, races: ClusterRaces, strict: bool) -> None:
        self.races = races
        self.strict = strict
        self.order = LaneOrder()
        self.clocks = LaneClocks()
        self.accesses = LaneAccesses()
        self.agents: dict[tuple[str, int], int] = {}
        """Of the other lanes of a warp (a row): (kind, row) -> agent."""
        self.epochs: dict[int, int] = {}
        self.held_back: dict[int, tuple[int, int, Any]] = {}
        """By row: agent whose accesses no arrival passes on yet, the epoch up to which they are passed on, and the lanes that arrived alone."""

    def lanes(self, g: Gang, m: Any, row: int) -> Any:
        """Which lanes of a warp are among the threads in m."""
        found = np.zeros(LANES, np.bool_)
        m = g.mask if m is None else m
        threads = g.base + (np.arange(g.width) if m is None else np.flatnonzero(m))
        found[threads[threads // LANES == row % self.races.warps] % LANES] = True
        return found

    # -- accesses ----------------------------------------------------------------------------------------------------------------

    def check(self, g: Gang, lane: int, cta: Cta, ranges: Any) -> None:
        """A thread lets something asynchronous read shared memory: what other lanes of its warp stored there must be ordered before."""
        if not self.strict:
            return
        row = self.races._row(g, lane)
        at = self.order.unsynced(row, (g.base + lane) % LANES, cta.rank, ranges)
        if at is not None:
            launch = self.races.launch
            places, instructions = launch.program.places, launch.program.instructions
            who = self.races.agents[row][1]
            first = Access(f"other lanes of {who}", instructions[at].opcode, str(places[at]))
            second = Access(f"thread {g.base + lane} of {who}", instructions[g.at].opcode, str(places[g.at]))
            missing = "bar.warp.sync (__syncwarp) or a barrier between the lanes' stores and what one of them issues"
            launch.checks.report(Race("read after write", first, second, cta.ctaid, int(ranges[0][0]), missing))

    def access(
        self, g: Gang, m: Any, row: int, cta: Cta, shadow: Shadow, address: Any, size: int, write: bool
    ) -> list[Conflict]:
        """Threads of a warp load or store: one address of all of them, or one of each thread of the gang."""
        clock = self.races.clocks[row, 0]
        epoch = int(clock[row])
        differ = self.clocks.differ(row)
        if address.__class__ is int:
            if differ:
                clock = self.clocks.least(row, self.lanes(g, m, row), clock)
            actor, ranges = Actor(row, epoch, clock), ((address, address + size),)
            found = shadow.write(actor, ranges, g.at) if write else shadow.read(actor, ranges, g.at)
            if self.strict and g.lane < 0:
                where = np.full(LANES, address)
                self.accesses.accessed(row, (cta.rank, where, self.lanes(g, m, row), size, g.at, write))
            return found
        first = LANES * (row % self.races.warps) - g.base
        part = slice(max(first, 0), first + LANES)
        mask = None if m is None else m[part]
        addresses = address[part]
        access = shadow.write_lanes if write else shadow.read_lanes
        if differ:
            found = []
            numbers = (np.arange(part.start, part.start + addresses.size) + g.base) % LANES
            for lanes, known in self.clocks.of(row, self.lanes(g, m, row), clock):
                some = np.isin(numbers, lanes) if mask is None else np.isin(numbers, lanes) & mask
                found += access(Actor(row, epoch, known), addresses, size, g.at, some)
        else:
            found = access(Actor(row, epoch, clock), addresses, size, g.at, mask)
        if self.strict:
            if write:
                self.order.wrote(row, cta.rank, addresses, size, mask, g.at)
            if addresses.size == LANES:
                here = np.ones(LANES, np.bool_) if mask is None else mask
                self.accesses.accessed(row, (cta.rank, addresses, here, size, g.at, write))
        return found

    # -- order -------------------------------------------------------------------------------------------------------------------

    def learnt(self, row: int, lanes: Any, before: Any, news: Any) -> None:
        """Some lanes of a warp have waited for something, and the others have not."""
        if self.strict:
            self.clocks.learnt(row, lanes, before, news)

    def passed_on(self, kind: str, g: Gang, m: Any, row: int) -> None:
        """Lanes of a warp arrive at a barrier (RELEASE), or pass on what they did to the async proxy (FENCE)."""
        held = self.held_back.get(row) if kind == RELEASE else None
        if held is None and not self.accesses.pending(kind, row):
            return
        lanes = self.lanes(g, m, row)
        if held is not None and not (lanes == held[2]).all():
            del self.held_back[row]  # another lane speaks for itself now, and perhaps for what was held back
        left = self.accesses.passed_on(kind, row, lanes)
        if not left:
            return
        races = self.races
        agent = self.agents.get((kind, row))
        if agent is None:
            name = OTHERS if kind == RELEASE else UNFENCED
            agent = self.agents[kind, row] = races._agent(name, f"other lanes of {races.agents[row][1]}")
        epoch = self.epochs[agent] = self.epochs.get(agent, 0) + 1
        # They were held against everything when they happened.
        everything = np.full(races.clocks.shape[2], np.iinfo(np.uint32).max, np.uint32)
        for rank, addresses, others, size, where, write in left:
            shadow = races.shadows[rank]
            note = shadow.write_lanes if write else shadow.read_lanes
            note(Actor(agent, epoch, everything), addresses, size, where, others)
        races.clocks[row, 0, agent] = epoch
        if kind == RELEASE:
            races.clocks[row, 1, agent] = epoch
            known = self.held_back[row][1] if row in self.held_back else epoch - 1
            self.held_back[row] = agent, known, lanes

    def passes(self, row: int, clocks: Any) -> Any:
        """The clocks of a warp that an arrival passes on."""
        held = self.held_back.get(row)
        if held is None:
            return clocks
        agent, known, _ = held
        clocks = clocks.copy()
        clocks[:, agent] = np.minimum(clocks[:, agent], known)
        return clocks

    def met(self, row: int) -> None:
        """All threads of a warp have waited for each other."""
        self.clocks.synchronised(row, None)
        self._ordered(row)

    def warp_sync(self, g: Gang, m: Any, row: int) -> None:
        """bar.warp.sync: of some lanes, perhaps."""
        if self.clocks.differ(row):
            self.clocks.synchronised(row, self.lanes(g, m, row))
        self._ordered(row)

    def _ordered(self, row: int) -> None:
        self.order.synchronised(row)
        self.accesses.synchronised(row)
        self.held_back.pop(row, None)

    def waited(self, row: int) -> None:
        """A warp has seen a barrier's phase complete, at which its lanes may have arrived one by one."""
        self.order.synchronised(row)
