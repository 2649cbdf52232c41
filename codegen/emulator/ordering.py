"""What happened before what, between the warps of all blocks, through global memory: the release and acquire patterns of the PTX memory model.

    order = Order(launch)
    order.fence(g, m, scope, acquires, releases)                     fence.acq_rel, fence.sc, membar
    order.wrote(g, m, addresses, scope, releases, combines)          a strong store, atom or red (`combines`: it goes on from the old value)
    order.read(g, m, addresses, scope, acquires)                     a strong load or atom
    actor = order.actor(g.cta, row, agent, epoch, kind)              for a Shadow: who accesses, and what happened before

Within a cluster ClusterRaces keeps the clocks of its warps and passes them on at every barrier. What one release hands over is a Snapshot: a
clock over the agents of all clusters. A warp that acquires it only notes "the third release of that warp" in a column of its own clock, so that
barriers pass it on like everything else; `actor` puts the snapshots behind these columns together again.

Rules (PTX ISA, "Memory Consistency Model"): a release pattern is a release operation, or a fence and a strong write after it by the same
thread; an acquire pattern the reverse. It synchronises if the read takes the value of that write, or of atomics on it, and if both scopes
include the other thread. Lanes of a warp count as ordered with one another; that the thread that fences is the one that writes is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .faults import MachineError
from .shadow import Actor

if TYPE_CHECKING:
    from .cta import Cta
    from .gang import Gang
    from .launch import Launch
    from .races import ClusterRaces

__all__ = ["GENERIC", "GLOBAL_ASYNC", "SCOPES", "Order", "Snapshot"]

SCOPES = {"cta": 0, "cluster": 1, "gpu": 2, "gl": 2, "sys": 3}
"""Scopes, the narrowest first; `gl` is membar's old name of `gpu`."""
GENERIC, GLOBAL_ASYNC = 0, 2
"""Rows of a warp's clocks: before its generic accesses, and before asynchronous operations that it issues on global memory."""
MOST_AGENTS = 30_000
Source = tuple[int, int]
"""A warp: the number of its cluster and its clock row there."""


class Snapshot:
    """What one warp knew when it released: clocks over all agents, and the clocks of its own cluster as they were."""

    __slots__ = ("asynchronous", "generic", "local", "number")

    def __init__(self, generic: Any, asynchronous: Any, local: Any) -> None:
        self.generic = generic
        self.asynchronous = asynchronous
        self.local = local
        self.number = 0
        """Its place among the releases of its warp, from 1; 0 while nothing was written after the fence."""


class _Location:
    """An address that strong accesses use: what its value hands over, and who has written and read which of its versions."""

    __slots__ = ("published", "read", "version", "wrote")

    def __init__(self) -> None:
        self.published: dict[tuple[Source, int], int] = {}
        self.version = 0
        self.wrote: dict[int, int] = {}
        self.read: dict[int, list[tuple[int, int]]] = {}
        """By agent: its latest version; and (epoch, version) of its reads."""


class _Agents:
    """The agents of one cluster that ever touched global memory, and its columns for the releases of warps."""

    def __init__(self, races: ClusterRaces, number: int) -> None:
        self.races = races
        self.number = number
        self.numbers: dict[int, int] = {}
        self.local = np.zeros(0, np.intp)
        self.wide = np.zeros(0, np.intp)
        self.releases: dict[Source, tuple[int, int]] = {}
        self.columns = np.zeros(0, np.intp)
        self.behind: list[tuple[Source, int]] = []
        """For each column: whose releases, and which proxy's clock they hand over."""
        self.expanded: dict[bytes, Any] = {}


class Order:
    """Knowledge of all warps of a launch about each other."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.names: list[str] = []
        self.homes: list[Source] = []
        """Of every agent its name, and its cluster and number there."""
        self._clusters: dict[int, _Agents] = {}
        self._released: dict[Source, list[Snapshot]] = {}
        self._locations: dict[int, _Location] = {}
        self._fences: dict[Source, list[tuple[int, int, Snapshot]]] = {}
        self._pending: dict[Source, dict[tuple[Source, int], tuple[int, int]]] = {}

    # -- clocks over all agents ----------------------------------------------------------------------------------------------------

    def _agents(self, cta: Cta) -> _Agents:
        found = self._clusters.get(cta.cluster.number)
        if found is None:
            assert cta.cluster.races is not None
            found = self._clusters[cta.cluster.number] = _Agents(cta.cluster.races, cta.cluster.number)
        return found

    def _number(self, agents: _Agents, local: int) -> int:
        """The number of a cluster's agent among all agents."""
        found = agents.numbers.get(local)
        if found is None:
            found = len(self.names)
            if found >= MOST_AGENTS:
                raise MachineError(
                    "unknown",
                    f"order through global memory is followed for at most {MOST_AGENTS} warps and copies; "
                    "emulate a smaller grid, or pass check_races=False",
                )
            self.names.append(agents.races.agents[local][1])
            self.homes.append((agents.number, local))
            agents.numbers[local] = found
            agents.local = np.append(agents.local, local)
            agents.wide = np.append(agents.wide, found)
        return found

    def _clock(self, agents: _Agents, row: int, kind: int) -> Any:
        """What a warp knows of all agents, before its accesses of one kind."""
        mine = agents.races.clocks[row, kind]
        found = np.zeros(len(self.names), np.uint32)
        if agents.columns.size:
            known = mine[agents.columns]
            key = known.tobytes()
            expanded = agents.expanded.get(key)
            if expanded is None:
                expanded = found.copy()
                for (source, proxy), number in zip(agents.behind, known.tolist(), strict=True):
                    if number:
                        snapshot = self._released[source][number - 1]
                        handed = snapshot.asynchronous if proxy else snapshot.generic
                        np.maximum(expanded[: handed.size], handed, out=expanded[: handed.size])
                if len(agents.expanded) > 256:
                    agents.expanded.clear()
                agents.expanded[key] = expanded
            found[: expanded.size] = expanded
        if agents.local.size:
            found[agents.wide] = np.maximum(found[agents.wide], mine[agents.local])
        return found

    def actor(self, cta: Cta, row: int, agent: int, epoch: int, kind: int) -> Actor:
        """An agent of the block's cluster (a warp, or what a warp has issued) for a Shadow, with the clock of the warp `row`."""
        agents = self._agents(cta)
        number = self._number(agents, agent)
        return Actor(number, epoch, self._clock(agents, row, kind))

    # -- releases ------------------------------------------------------------------------------------------------------------------

    def _snapshot(self, agents: _Agents, row: int) -> Snapshot:
        self._number(agents, row)
        generic, asynchronous = self._clock(agents, row, GENERIC), self._clock(agents, row, GLOBAL_ASYNC)
        races = agents.races
        snapshot = Snapshot(generic, asynchronous, races.clocks[row].copy())
        races.clocks[row, 0, row] += 1
        return snapshot

    def _publish(self, source: Source, snapshot: Snapshot) -> int:
        if not snapshot.number:
            released = self._released.setdefault(source, [])
            released.append(snapshot)
            snapshot.number = len(released)
        return snapshot.number

    def fence(self, g: Gang, m: Any, scope: int, acquires: bool, releases: bool) -> None:
        """A fence: it completes earlier reads to acquires, and lets later writes release what came before."""
        agents = self._agents(g.cta)
        for row, lanes in _warps(g, m):
            source = (agents.number, row)
            if acquires:
                for (other, made), (number, readers) in list(self._pending.get(source, {}).items()):
                    if readers & lanes and self._reaches(source, other, min(made, scope)):
                        self._learn(agents, row, other, number)
            if releases:
                held = [one for one in self._fences.get(source, ()) if one[0] & ~lanes or one[1] > scope]
                held.append((lanes, scope, self._snapshot(agents, row)))
                self._fences[source] = held

    def wrote(self, g: Gang, m: Any, addresses: Any, scope: int, releases: bool, combines: bool) -> None:
        """A strong write: whoever acquires from these addresses learns what this releases, if anything."""
        agents = self._agents(g.cta)
        for row, lanes, written in _warp_addresses(g, m, addresses):
            source = (agents.number, row)
            made: dict[tuple[Source, int], int] = {}
            for holders, reach, snapshot in self._fences.get(source, ()):
                if not lanes & ~holders:
                    made[source, min(reach, scope)] = self._publish(source, snapshot)
            if releases:
                made[source, scope] = self._publish(source, self._snapshot(agents, row))
            for address in written:
                location = self._locations.get(address)
                if location is None:
                    location = self._locations[address] = _Location()
                before = location.published
                if not combines:
                    # Only this thread's own release on the same place still holds ("followed by a strong write in program order").
                    before = {key: number for key, number in before.items() if key[0] == source}
                location.published = {**before, **made}
                location.version += 1
                location.wrote[self._number(agents, row)] = location.version

    def overwrote(self, m: Any, addresses: Any) -> None:
        """A weak store: nothing is released through these addresses any more."""
        if not self._locations:
            return
        if addresses.__class__ is np.ndarray:
            for address in (addresses if m is None else addresses[m]).tolist():
                self._locations.pop(address, None)
        else:
            self._locations.pop(int(addresses), None)

    # -- acquires ------------------------------------------------------------------------------------------------------------------

    def read(self, g: Gang, m: Any, addresses: Any, scope: int, acquires: bool) -> None:
        """A strong read: it learns what was released through these addresses, at once or at the next fence."""
        if not self._locations:
            return
        agents = self._agents(g.cta)
        for row, lanes, seen in _warp_addresses(g, m, addresses):
            source = (agents.number, row)
            number = self._number(agents, row)
            epoch = int(agents.races.clocks[row, GENERIC, row])
            for address in seen:
                location = self._locations.get(address)
                if location is None:
                    continue
                reads = location.read.setdefault(number, [])
                if reads and reads[-1][0] == epoch:
                    reads.pop()
                reads.append((epoch, location.version))
                for (other, made), release in location.published.items():
                    reach = min(made, scope)
                    if acquires and self._reaches(source, other, reach):
                        self._learn(agents, row, other, release)
                    elif not acquires and other != source:
                        pending = self._pending.setdefault(source, {})
                        known, readers = pending.get((other, reach), (0, 0))
                        pending[other, reach] = (max(known, release), readers | lanes)

    def observed(self, actor: Actor, address: int, writer: int) -> bool:
        """Whether something before an access has read what a strong write left at its address, or a later atomic: that write, though not
        what its thread did before it, comes before the access ("Causality order": observation, then base causality).
        """
        location = self._locations.get(address)
        version = None if location is None else location.wrote.get(writer)
        if location is None or version is None:
            return False
        return any(
            seen >= version and int(actor.clock[reader]) >= epoch
            for reader, reads in location.read.items()
            if reader < actor.clock.size
            for epoch, seen in reads
        )

    def together(self, one: int, other: int, scope: int) -> bool:
        """Whether a scope includes two agents, of which those that are no warps count as in no narrow scope."""
        if scope >= SCOPES["gpu"]:
            return True
        a, b = self.homes[one], self.homes[other]
        most = self._clusters[a[0]].races.clocks.shape[0]
        return a[1] < most and b[1] < most and self._reaches(a, b, scope)

    def _reaches(self, source: Source, other: Source, scope: int) -> bool:
        """Whether a scope includes both warps."""
        if scope >= SCOPES["gpu"]:
            return True
        if source[0] != other[0]:
            return False
        warps = self._clusters[source[0]].races.warps
        return scope >= SCOPES["cluster"] or source[1] // warps == other[1] // warps

    def _learn(self, agents: _Agents, row: int, other: Source, number: int) -> None:
        """A warp takes over what another one released."""
        if other == (agents.number, row):
            return
        races = agents.races
        columns = agents.releases.get(other)
        if columns is None:
            theirs = self._clusters[other[0]].races.agents[other[1]][1]
            columns = agents.releases[other] = (races.release_column(theirs), races.release_column(theirs))
            agents.columns = np.append(agents.columns, columns)
            agents.behind += [(other, 0), (other, 1)]
            agents.expanded.clear()
        clocks = races.clocks[row]
        clocks[GENERIC, columns[0]] = max(int(clocks[GENERIC, columns[0]]), number)
        clocks[GLOBAL_ASYNC, columns[1]] = max(int(clocks[GLOBAL_ASYNC, columns[1]]), number)
        if other[0] == agents.number:
            races.acquire(row, self._released[other][number - 1].local)


def _warps(g: Gang, m: Any) -> Iterator[tuple[int, int]]:
    """(clock row, bits of the lanes) of every warp with a thread that executes."""
    races = g.cta.cluster.races
    assert races is not None
    base = g.cta.rank * races.warps
    if g.lane >= 0:
        thread = g.base + g.lane
        yield base + thread // 32, 1 << thread % 32
        return
    active = np.ones(g.width, np.bool_) if m is None else m
    for first in range(0, g.width, 32):
        lanes = np.flatnonzero(active[first : first + 32])
        if lanes.size:
            yield base + (g.base + first) // 32, int(np.bitwise_or.reduce(np.uint64(1) << lanes.astype(np.uint64)))


def _warp_addresses(g: Gang, m: Any, addresses: Any) -> Iterator[tuple[int, int, list[int]]]:
    """The same with the different addresses of each warp's threads."""
    for row, lanes in _warps(g, m):
        if addresses.__class__ is not np.ndarray:
            yield row, lanes, [int(addresses)]
            continue
        first = 32 * (row - g.cta.rank * _warps_of(g)) - g.base
        yield row, lanes, sorted({int(addresses[first + k]) for k in range(32) if lanes >> k & 1})


def _warps_of(g: Gang) -> int:
    races = g.cta.cluster.races
    assert races is not None
    return races.warps
