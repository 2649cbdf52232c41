"""Finds races on the shared memory of a cluster by vector clocks: two accesses, one a write, that nothing orders.

Agents are the warps of the cluster, the copies that each mbarrier counts, the wgmmas of each warpgroup (their commit groups are its
epochs), and the bulk groups of each thread. Every warp has two clocks: what happened before its generic accesses, and what happened
before the asynchronous operations that it issues. The second knows of generic accesses only what a fence.proxy.async has passed on, so a
missing proxy fence is an unordered access. Arrivals pass both clocks to a barrier, waits take them from it; a copy's completion
passes its issuer's clocks and its own epoch (the phase). Which accesses to remember is shadow.py's business.

Rules: PTX ISA 9.0, "Memory Consistency Model" (8.), "Asynchronous Operations", "Async proxy". `strict` also demands a proxy fence between a
generic read and an asynchronous overwrite, which `lenient` takes as ordered by the barrier between them, as CUTLASS does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .lane_order import FENCE, RELEASE
from .lane_races import MISSING, WAITED, LaneRaces
from .report import Access, Race
from .shadow import Actor, Conflict, Shadow

if TYPE_CHECKING:
    from .cta import Barrier, BulkGroups, Cluster, Cta, NamedBarrier, WarpGroup
    from .gang import Gang
    from .launch import Launch
    from .ops_copy import Copies

WARP, COPY, WGMMA, BULK, LANES = "warp", "copy", "wgmma", "bulk", "lanes"


@functools.lru_cache(maxsize=4096)
def _chunks(ranges: tuple[tuple[int, int], ...], base: int) -> Any:
    """The 16-byte chunks of ranges, by number from the base."""
    return np.concatenate([np.arange(low - base, high - base, 16, dtype=np.intp) // 16 for low, high in ranges])


def _read(shadow: Shadow, actor: Actor, ranges: Any, where: int) -> list[Conflict]:
    """A read of many short ranges at once; all of the copy engine are whole chunks."""
    if len(ranges) < 4:
        return shadow.read(actor, ranges, where)
    return shadow.read_chunks(actor, _chunks(tuple(ranges), shadow.base), where)


def _write(shadow: Shadow, actor: Actor, ranges: Any, where: int) -> list[Conflict]:
    if len(ranges) < 4:
        return shadow.write(actor, ranges, where)
    return shadow.write_lanes(actor, _chunks(tuple(ranges), shadow.base) * 16 + shadow.base, 16, where)


class ClusterRaces:
    """Clocks and shadows of one cluster."""

    def __init__(self, cluster: Cluster, launch: Launch) -> None:
        self.cluster = cluster
        self.launch = launch
        self.warps = -(-launch.threads // 32)
        count = self.warps * cluster.size
        self.agents: list[tuple[str, str]] = [
            (WARP, f"warp {warp} of block {cta.ctaid}") for cta in cluster.ctas for warp in range(self.warps)
        ]
        # The third row is only looked at where blocks are ordered through global memory.
        self.proxies = 3 if launch.order is not None else 2
        self.clocks = np.zeros((count, self.proxies, count + 64), np.uint32)
        """[warp, 0]: before its generic accesses; [warp, 1]: before asynchronous operations that it issues on shared memory; [warp, 2]: on
        global memory."""
        self.clocks[np.arange(count), 0, np.arange(count)] = 1
        self.shadows: dict[int, Shadow] = {}
        self.fenced_inits: list[Barrier] = []
        self.lanes = LaneRaces(self, launch.strict)
        self.remote: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
        self.arrivals: dict[int, dict[tuple[int, Barrier], tuple[int, int, int]]] = {}
        """By rank of a block, its barriers that warps of other blocks arrived at: the last such phase, where, and the cluster's phase."""
        self.seen: dict[Barrier, int] = {}
        """Phases of a barrier that threads of its own block have seen complete."""
        """By rank of a block: accesses of other blocks to its shared memory, (clock row, instruction) -> (epoch, cluster phase)."""
        self.issued: dict[tuple[int, int], tuple[int, int]] = {}
        """By agent of an mbarrier and rank of the block it goes to: the latest phase that counts a copy, and the instruction."""

    # -- agents ------------------------------------------------------------------------------------------------------------------

    def _agent(self, kind: str, text: str) -> int:
        self.agents.append((kind, text))
        if len(self.agents) > self.clocks.shape[2]:
            old = self.clocks
            self.clocks = np.zeros((old.shape[0], self.proxies, 2 * old.shape[2]), np.uint32)
            self.clocks[:, :, : old.shape[2]] = old
        return len(self.agents) - 1

    def rows(self, g: Gang, m: Any) -> Sequence[int]:
        """Clock rows of the warps of the threads in m."""
        base = g.cta.rank * self.warps
        if m is None or m is g.mask:
            return [base + warp for warp in g.warps] if base else g.warps
        return [base + warp for warp in np.unique((np.flatnonzero(m) + g.base) // 32).tolist()]

    def _row(self, g: Gang, lane: int) -> int:
        return g.cta.rank * self.warps + (g.base + lane) // 32

    def _shadow(self, cta: Cta) -> Shadow:
        found = self.shadows.get(cta.rank)
        if found is None:
            found = self.shadows[cta.rank] = Shadow(cta.shared.base, cta.shared.size)
        return found

    def _joined(self, held: Any, row: int) -> Any:
        """The join of a clock that an object holds (or None) with a warp's clocks."""
        mine = self.lanes.passes(row, self.clocks[row])
        if held is None:
            return mine.copy()
        if held.shape[1] < mine.shape[1]:
            held = np.pad(held, ((0, 0), (0, mine.shape[1] - held.shape[1])))
        return np.maximum(held, mine, out=held)

    def release_column(self, whose: str) -> int:
        """A column for the releases of a warp, of this cluster or another, through global memory (ordering.py)."""
        return self._agent("release", f"releases of {whose}")

    def acquire(self, row: int, clock: Any) -> None:
        if clock is not None:
            mine = self.clocks[row, :, : clock.shape[1]]
            np.maximum(mine, clock, out=mine)

    def _tick(self, row: int) -> None:
        self.clocks[row, 0, row] += 1

    # -- accesses ----------------------------------------------------------------------------------------------------------------

    def generic(
        self,
        g: Gang,
        m: Any,
        cta: Cta,
        address: Any,
        size: int,
        write: bool,
        unchanged: bool = False,
        alike: bool = False,
    ) -> None:
        """Loads and stores of threads. `unchanged`: a store of what is there already, which no other store can be in conflict with;

        `alike`: one value by all threads of the gang, which are in no conflict with each other.
        """
        shadow = self._shadow(cta)
        if cta is not g.cta:
            self.remote_access(g, m, cta)
        for row in self.rows(g, m):
            found = self.lanes.access(g, m, row, cta, shadow, address, size, write)
            if unchanged:
                found = [one for one in found if one.kind != "write after write"]
            elif alike:
                found = [one for one in found if one.kind != "write after write" or one.other_where != g.at]
            if found:
                self._report(found, cta, row)

    def atomic(self, g: Gang, m: Any, cta: Cta, address: Any, size: int) -> None:
        """Atomics do not race with each other; what they are ordered with is not checked."""

    def warp_sync(self, g: Gang, m: Any) -> None:
        """A warp is one agent: its threads are ordered already, but for operations that one of them issues or waits for."""
        for row in self.rows(g, m):
            self.lanes.warp_sync(g, m, row)

    def _synchronised(self, rows: Sequence[int]) -> None:
        """All threads of these warps have waited for each other."""
        for row in rows:
            self.lanes.met(row)

    def bulk_load(
        self, g: Gang, lane: int, cta: Cta, ranges: list[tuple[int, int]], barrier: Barrier, generic: bool = False
    ) -> Any:
        """A copy into shared memory is issued: it may write from now on. Returns the stamp for its completion.

        `generic` copies (st.async) come after what their thread did, with no fence between proxies.
        """
        row = self._row(g, lane)
        self._check_init(barrier, row, g, not generic)
        clock = self.clocks[row, 0 if generic else 1]
        self.issued[barrier.agent, cta.rank] = (barrier.phase + 1, g.at)
        found = _write(self._shadow(cta), Actor(barrier.agent, barrier.phase + 1, clock), ranges, g.at)
        if found:
            self._report(found, cta, row)
        return self.clocks[row].copy() if self.launch.lenient else None

    def bulk_source(self, g: Gang, lane: int, cta: Cta, ranges: list[tuple[int, int]], barrier: Barrier) -> None:
        """The shared memory that a copy to another block reads."""
        row = self._row(g, lane)
        found = self._shadow(cta).read(Actor(barrier.agent, barrier.phase + 1, self.clocks[row, 1]), ranges, g.at)
        if found:
            self._report(found, cta, row)

    def landed(self, barrier: Barrier, stamp: Any) -> None:
        """A copy has completed. Its complete-tx does not pass on what its issuer did before (PTX ISA, "Async operations": it "does not
        transitively establish ordering" with them); lenient mode takes it as if it did.
        """
        if stamp is None or not self.launch.lenient:
            return
        if barrier.clock is None:
            barrier.clock = stamp.copy()
            return
        size = max(stamp.shape[1], barrier.clock.shape[1])
        joined = np.zeros((self.proxies, size), np.uint32)
        joined[:, : stamp.shape[1]] = stamp
        mine = joined[:, : barrier.clock.shape[1]]
        np.maximum(mine, barrier.clock, out=mine)
        barrier.clock = joined

    def bulk_store(self, g: Gang, lane: int, cta: Cta, ranges: Any, groups: BulkGroups) -> None:
        """A copy out of shared memory is issued: it may read until its group is waited for."""
        row = self._row(g, lane)
        if groups.agent < 0:
            groups.agent = self._agent(BULK, f"bulk groups of thread {g.base + lane} of block {cta.ctaid}")
        found = _read(self._shadow(cta), Actor(groups.agent, groups.groups + 1, self.clocks[row, 1]), ranges, g.at)
        if found:
            self._report(found, cta, row)
        self.lanes.check(g, lane, cta, ranges)

    def bulk_wait(self, g: Gang, lane: int, groups: BulkGroups) -> None:
        """Groups have read their source, and those that were waited for without .read have written."""
        if groups.agent >= 0:
            row = self._row(g, lane)
            before = self.clocks[row, 0].copy()
            self.clocks[row, :, groups.agent] = groups.read
            self.lanes.learnt(row, np.arange(32) == (g.base + lane) % 32, before, self.clocks[row, 0])
        if groups.writer >= 0:
            self.clocks[self._row(g, lane), :, groups.writer] = groups.written

    def bulk_writer(self, g: Gang, lane: int, groups: BulkGroups) -> int:
        """The agent of what a thread's bulk groups write to global memory."""
        if groups.writer < 0:
            groups.writer = self._agent(BULK, f"bulk groups of thread {g.base + lane} of block {g.cta.ctaid}")
        return groups.writer

    def wgmma(self, g: Gang, group: WarpGroup, chunks: Any) -> None:
        """A wgmma is issued: it may read its operands until its group is waited for."""
        cta = g.cta
        if group.agent < 0:
            group.agent = self._agent(WGMMA, f"wgmma of warpgroup {g.base // 128} of block {cta.ctaid}")
        row = cta.rank * self.warps + g.base // 32
        clock = self.clocks[row : row + 4, 1].min(axis=0)
        found = self._shadow(cta).read_chunks(Actor(group.agent, group.queue.groups + 1, clock), chunks, g.at)
        if found:
            self._report(found, cta, row)

    def wgmma_wait(self, g: Gang, group: WarpGroup) -> None:
        """wgmma groups are complete."""
        if group.agent >= 0:
            row = g.cta.rank * self.warps + g.base // 32
            self.clocks[row : row + 4, :, group.agent] = group.queue.complete

    def copy_async(self, g: Gang, warp: int, mask: Any, addresses: Any, size: int, copies: Copies) -> None:
        """cp.async of one warp is issued: in the generic proxy, done when its group is waited for."""
        row = g.cta.rank * self.warps + warp
        if copies.agent < 0:
            copies.agent = self._agent(LANES, f"cp.async of {self.agents[row][1]}")
        actor = Actor(copies.agent, copies.groups + 1, self.clocks[row, 0])
        found = self._shadow(g.cta).write_lanes(actor, addresses, size, g.at, mask)
        if found:
            self._report(found, g.cta, row)

    def copy_wait(self, g: Gang, warp: int, copies: Copies) -> None:
        """Groups of cp.async are complete: other proxies see them after a proxy fence, as what the warp wrote itself."""
        if copies.agent >= 0:
            self.clocks[g.cta.rank * self.warps + warp, 0, copies.agent] = copies.done

    def remote_access(self, g: Gang, m: Any, cta: Cta) -> None:
        """A thread uses the shared memory of another block, which must outlive that."""
        held = self.remote.setdefault(cta.rank, {})
        for row in self.rows(g, m):
            held[row, g.at] = (int(self.clocks[row, 0, row]), self.cluster.phase)

    def block_end(self, cta: Cta) -> list[tuple[str, int, str]]:
        """What still uses the shared memory of a block that has ended: (agent, instruction, what is missing).

        A use is over when a thread of the block knows of it (it waited for the copy's phase, or on a barrier at which the user arrived
        afterwards), or when a barrier of the cluster, relaxed or not, was completed since. Arrivals from other blocks at several barriers
        may overtake each other: each is over when a thread of the block has seen its own phase complete.
        """
        first = cta.rank * self.warps
        known = self.clocks[first : first + self.warps, 0].max(axis=0)
        found = [
            (self.agents[agent][1], at, "a wait for the copy's phase before the end")
            for (agent, rank), (phase, at) in self.issued.items()
            if rank == cta.rank and int(known[agent]) < phase
        ]
        for (row, at), (epoch, phase) in self.remote.get(cta.rank, {}).items():
            if int(known[row]) < epoch and self.cluster.phase <= phase:
                found.append(
                    (self.agents[row][1], at, "a wait for this access or a cluster barrier before the block's end")
                )
        for (row, barrier), (arrived, at, phase) in self.arrivals.get(cta.rank, {}).items():
            if self.seen.get(barrier, 0) <= arrived and self.cluster.phase <= phase:
                found.append(
                    (self.agents[row][1], at, "a wait on this very barrier or a cluster barrier before the block's end")
                )
        return found

    # -- order -------------------------------------------------------------------------------------------------------------------

    def fence_proxy(self, g: Gang, m: Any, space: str) -> None:
        """fence.proxy.async: asynchronous operations from here on, on memory of that space, come after all that came before."""
        proxies = range(1 if space != "global" else 2, self.proxies if space in ("all", "global") else 2)
        for row in self.rows(g, m):
            for proxy in proxies:
                np.maximum(self.clocks[row, proxy], self.clocks[row, 0], out=self.clocks[row, proxy])
            if space != "global":
                self.lanes.passed_on(FENCE, g, m, row)
            self._tick(row)

    def barrier_init(self, g: Gang, m: Any, barrier: Barrier) -> None:
        """A new barrier: a new agent for its copies."""
        row = self.rows(g, m)[0]
        barrier.agent = self._agent(COPY, f"copies on mbarrier {barrier.address:#x} of block {barrier.cta.ctaid}")
        barrier.clock = barrier.done_clock = None
        barrier.initialised = (row, int(self.clocks[row, 0, row]), g.at)
        barrier.init_fenced = False
        barrier.known = {row}
        barrier.known_async = set()

    def fence_barrier_init(self, g: Gang, m: Any) -> None:
        """fence.mbarrier_init: barriers that these warps initialised are visible to asynchronous operations and other blocks."""
        rows = set(self.rows(g, m))
        for cta in self.cluster.ctas:
            for barrier in cta.barriers.values():
                if barrier.initialised[0] in rows and not barrier.init_fenced:
                    barrier.init_fenced = True
                    self.fenced_inits.append(barrier)

    def _check_init(self, barrier: Barrier, row: int, g: Gang, asynchronous: bool) -> None:
        """The initialisation of a barrier must be ordered before its use."""
        if row in (barrier.known_async if asynchronous else barrier.known):
            return
        owner, epoch, at = barrier.initialised
        if row not in barrier.known and self.clocks[row, 0, owner] < epoch:
            self._rule(
                barrier,
                row,
                g,
                at,
                "a barrier (bar.sync, barrier.cluster) between mbarrier.init and its use by other warps",
            )
        elif self.launch.lenient:
            pass  # Triton has a bar.sync here and no fence
        elif asynchronous and not barrier.init_fenced and self.clocks[row, 1, owner] < epoch:
            self._rule(
                barrier,
                row,
                g,
                at,
                "fence.mbarrier_init or fence.proxy.async after mbarrier.init, before asynchronous operations",
            )
        barrier.known.add(row)
        if asynchronous:
            barrier.known_async.add(row)

    def _rule(self, barrier: Barrier, row: int, g: Gang, at: int, missing: str) -> None:
        places = self.launch.program.places
        first = Access(self.agents[barrier.initialised[0]][1], "mbarrier.init", str(places[at]))
        second = Access(self.agents[row][1], "its use", str(places[g.at]))
        self.launch.checks.report(
            Race("barrier used before it is ready", first, second, barrier.cta.ctaid, barrier.address, missing)
        )

    def arrive(self, barrier: Barrier, g: Gang, m: Any, release: bool) -> None:
        """Before an arrival: it passes on what its warps know."""
        if barrier.cta is not g.cta:
            held = self.arrivals.setdefault(barrier.cta.rank, {})
            for row in self.rows(g, m):
                held[row, barrier] = (barrier.phase, g.at, self.cluster.phase)
        for row in self.rows(g, m):
            self._check_init(barrier, row, g, False)
            if release:
                self.lanes.passed_on(RELEASE, g, m, row)
                barrier.clock = self._joined(barrier.clock, row)
                self._tick(row)

    def touch_barrier(self, barrier: Barrier, g: Gang, m: Any) -> None:
        """expect_tx and the like."""
        if barrier.cta is not g.cta:
            self.remote_access(g, m, barrier.cta)
        for row in self.rows(g, m):
            self._check_init(barrier, row, g, False)

    def phase_complete(self, barrier: Barrier) -> None:
        """The phase's copies are done: its number is their epoch."""
        clock = barrier.clock
        size = self.clocks.shape[2]
        if clock is None:
            clock = np.zeros((self.proxies, size), np.uint32)
        elif clock.shape[1] <= barrier.agent:
            clock = np.pad(clock, ((0, 0), (0, size - clock.shape[1])))
        clock[:, barrier.agent] = barrier.phase
        barrier.done_clock = clock
        barrier.clock = None

    def wait(self, barrier: Barrier, g: Gang, m: Any, acquire: bool) -> None:
        """A wait has seen the last phase complete."""
        if g.cta is barrier.cta:
            self.seen[barrier] = barrier.phase
        for row in self.rows(g, m):
            self._check_init(barrier, row, g, False)
            if acquire and barrier.done_clock is not None:
                before = self.clocks[row, 0].copy()
                self.acquire(row, barrier.done_clock)
                self.lanes.learnt(row, self.lanes.lanes(g, m, row), before, barrier.done_clock[0])
            self.lanes.waited(row)

    def named_arrive(self, g: Gang, barrier: NamedBarrier) -> None:
        """bar.sync and bar.arrive. Each arrival must come after all arrivals of the barrier's last turn, else turns may mix."""
        rows = self.rows(g, g.mask)
        for row in rows:
            clock = self.clocks[row, 0]
            for other, epoch, at in barrier.last:
                if clock[other] < epoch:
                    self._mixed(g, row, other, at, barrier)
                    break
        for row in rows:
            self.lanes.passed_on(RELEASE, g, g.mask, row)
            barrier.marks.append((row, int(self.clocks[row, 0, row]), g.at))
            barrier.clock = self._joined(barrier.clock, row)
            self._tick(row)

    def _mixed(self, g: Gang, row: int, other: int, at: int, barrier: NamedBarrier) -> None:
        program = self.launch.program
        first = Access(self.agents[other][1], program.instructions[at].opcode, str(program.places[at]))
        second = Access(self.agents[row][1], program.instructions[g.at].opcode, str(program.places[g.at]))
        missing = "an order between the two groups that use this barrier, or barriers of their own"
        self.launch.checks.report(
            Race(
                "turns of a named barrier may mix", first, second, g.cta.ctaid, barrier.number, missing, space="barrier"
            )
        )

    def named_complete(self, cta: Cta, barrier: NamedBarrier) -> None:
        """Everybody who waits knows what everybody who arrived knew."""
        barrier.last, barrier.marks = barrier.marks, []
        for g in barrier.waiters:
            for row in self.rows(g, g.mask):
                self.acquire(row, barrier.clock)
            self._synchronised(self.rows(g, g.mask))

    def cluster_arrive(self, g: Gang, release: bool) -> None:
        """barrier.cluster.arrive."""
        if release:
            for row in self.rows(g, g.mask):
                self.lanes.passed_on(RELEASE, g, g.mask, row)
                self.cluster.clock = self._joined(self.cluster.clock, row)
                self._tick(row)

    def cluster_wait(self, g: Gang) -> None:
        """barrier.cluster.wait. Barriers whose initialisation was fenced are known even after a relaxed arrive."""
        for row in self.rows(g, g.mask):
            self.acquire(row, self.cluster.done_clock)
            for barrier in self.fenced_inits:
                barrier.known.add(row)
        self._synchronised(self.rows(g, g.mask))

    # -- reports -----------------------------------------------------------------------------------------------------------------

    def _report(self, conflicts: list[Conflict], cta: Cta, row: int) -> None:
        places = self.launch.program.places
        for one in conflicts:
            kind, first_text = self.agents[one.other_agent]
            mine, second_text = self.agents[one.agent]
            known = int(self.clocks[row, 0, one.other_agent]) >= one.other_epoch
            if self.launch.lenient and one.kind == "write after read" and kind == WARP and mine != WARP and known:
                continue
            instructions = self.launch.program.instructions
            if self.launch.lenient and known and mine == COPY and instructions[one.other_where].parts[0] == "tcgen05":
                continue  # Triton reuses the place of an allocation's answer for copies
            copies = instructions[one.other_where].parts[:2] == ("cp", "async")
            if self.launch.lenient and one.kind == "read after write" and mine == WGMMA and known and copies:
                continue  # cp.async, an mbarrier and no proxy fence: CUTLASS's multistage mainloop
            first = Access(first_text, instructions[one.other_where].opcode, str(places[one.other_where]))
            second = Access(
                second_text if mine == WARP else f"{second_text}, issued by {self.agents[row][1]}",
                instructions[one.where].opcode,
                str(places[one.where]),
            )
            missing = self._missing(kind, mine, one.kind, known)
            if mine == WARP and known:
                missing += WAITED
            self.launch.checks.report(Race(one.kind, first, second, cta.ctaid, one.low, missing))

    @staticmethod
    def _missing(first: str, second: str, kind: str, known: bool) -> str:
        if first in MISSING:
            return MISSING[first]
        if first == WARP and second == WARP:
            return "a barrier between the two warps"
        if first == WARP:
            fence = "fence.proxy.async after the generic access, before the barrier that orders the two"
            return fence if known else f"a barrier between the two, and {fence}"
        if first == LANES and not known:
            return "cp.async.wait_group for the group of the copy, and a barrier to other warps"
        if first == LANES:
            return "fence.proxy.async after cp.async.wait_group, before the barrier that orders the two"
        if first == COPY:
            return "a wait on the copy's mbarrier for the phase that counts it"
        if first == "tcgen05":
            return "tcgen05.commit after the operation that uses this memory, and a wait for its mbarrier"
        handed = "before the barrier that hands it over"
        if second == COPY:
            handed += ", and a wait for that barrier before the copy is issued"
        if first == WGMMA:
            return f"wgmma.wait_group for the group that reads this memory, {handed}"
        return f"cp.async.bulk.wait_group.read for the group that reads this memory, {handed}"
