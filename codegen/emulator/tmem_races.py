"""Finds races on the tensor memory of a cluster, and on the shared memory that tcgen05 reads, on top of the clocks of races.py.

Agents are the tcgen05.ld and the tcgen05.st of each warp, and for each issuing thread the streams of operations that are pipelined among
themselves: the tcgen05.mma of one accumulator and shape, the tcgen05.cp, the tcgen05.shift. A stream's epochs are the thread's commits: an mbarrier phase
that a commit completes passes on the streams' epochs, as wgmma.wait_group does for wgmma. A warp's epochs are its tcgen05.wait.

What a warp's tcgen05 operations come after is a clock of its own: it takes from the warp's generic clock only at tcgen05.fence::after_thread_sync, and
what a warp has waited for enters its generic clock only at tcgen05.fence::before_thread_sync (tcgen05.commit implies one). In lenient mode both
happen by themselves, and tcgen05.ld is complete at once: NVIDIA's own kernels rely on the register dependence.

Rules: PTX ISA 9.1, section 9.7.16.6. Pipelined pairs: mma -> mma of the same group, accumulator, shape and kind; cp -> mma; shift -> mma;
shift -> cp.4x256b; mma -> shift; all three -> commit; ld -> wait::ld; st -> wait::st.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.layout.hardware.tensor_memory import COLUMNS

from .report import Access, Race
from .shadow import Actor, Conflict, Shadow
from .tmem import GROUPS, LANE_GROUP

if TYPE_CHECKING:
    from .cta import Barrier, Cta
    from .gang import Gang
    from .races import ClusterRaces

CELL = 16
"""Bytes that stand for one cell of the race check, 16 lanes of a column: the shadow's granule."""
TENSOR = "tcgen05"


class Line:
    """The tcgen05.ld or the tcgen05.st of one warp. `twin` is the agent that needs no fence: what is complete, fenced or not."""

    __slots__ = ("agent", "done", "epoch", "twin")

    def __init__(self, agent: int, twin: int) -> None:
        self.agent = agent
        self.twin = twin
        self.epoch = 1
        self.done = 0


class Issuer:
    """The asynchronous operations of one thread: an agent for each stream, and how many commits it has made."""

    __slots__ = ("commits", "last", "name", "reads", "row", "streams")

    def __init__(self, row: int, name: str) -> None:
        self.row = row
        self.name = name
        self.commits = 0
        self.last: Any = None
        """The last operation's stream, epoch and cells."""
        self.streams: dict[Any, int] = {}
        self.reads: dict[tuple[int, int], tuple[int, int]] = {}
        """By (rank of the block whose shared memory is read, stream): the last epoch, and the instruction."""


class TensorRaces:
    """Clocks and shadows of a cluster's tensor memories."""

    def __init__(self, races: ClusterRaces) -> None:
        self.races = races
        self.launch = races.launch
        self.lenient = races.launch.lenient
        self.shadows: dict[int, Shadow] = {}
        self.effective: dict[int, Any] = {}
        self.lines: dict[tuple[int, str], Line] = {}
        self.issuers: dict[tuple[int, int], Issuer] = {}
        self._kinds: dict[int, Line] = {}

    # -- clocks ------------------------------------------------------------------------------------------------------------------

    def rows(self, g: Gang, m: Any) -> list[int]:
        """Clock rows of the warps of the threads in m."""
        base = g.cta.rank * self.races.warps
        if m is None or m is g.mask:
            return [base + warp for warp in g.warps]
        return [base + warp for warp in np.unique((np.flatnonzero(m) + g.base) // 32).tolist()]

    def _clock(self, row: int) -> Any:
        """What a warp's tcgen05 operations come after."""
        size = self.races.clocks.shape[2]
        known = self.effective.get(row)
        if known is None:
            known = self.effective[row] = np.zeros(size, np.uint32)
        elif known.size < size:
            known = self.effective[row] = np.pad(known, (0, size - known.size))
        if self.lenient:
            np.maximum(known, self.races.clocks[row, 0], out=known)
        return known

    def shadow(self, rank: int) -> Shadow:
        """The accesses to a block's tensor memory."""
        found = self.shadows.get(rank)
        if found is None:
            found = self.shadows[rank] = Shadow(0, GROUPS * COLUMNS * CELL)
        return found

    def line(self, row: int, kind: str) -> Line:
        """The loads ("ld") or stores ("st") of a warp."""
        found = self.lines.get((row, kind))
        if found is None:
            who = self.races.agents[row][1]
            agent = self.races._agent(TENSOR, f"tcgen05.{kind} of {who}")
            found = self.lines[row, kind] = Line(agent, self.races._agent(TENSOR, f"tcgen05.{kind} of {who}"))
            self._kinds[agent] = found
        return found

    def issuer(self, g: Gang, lane: int) -> Issuer:
        """The asynchronous operations of a thread."""
        thread = g.base + lane
        key = (g.cta.rank, thread)
        found = self.issuers.get(key)
        if found is None:
            row = g.cta.rank * self.races.warps + thread // 32
            found = self.issuers[key] = Issuer(row, f"thread {thread} of block {g.cta.ctaid}")
        return found

    def _stream(self, one: Issuer, key: Any) -> int:
        found = one.streams.get(key)
        if found is None:
            found = one.streams[key] = self.races._agent(TENSOR, f"tcgen05.{key[0]} of {one.name}")
        return found

    # -- accesses of warps -------------------------------------------------------------------------------------------------------

    def load(self, g: Gang, row: int, cells: Any) -> None:
        """tcgen05.ld of a warp."""
        line = self.line(row, "ld")
        found = self.shadow(g.cta.rank).read_chunks(Actor(line.agent, line.epoch, self._clock(row)), cells, g.at)
        if found:
            self.report(found, g.cta, row)
        if self.lenient:
            self.waited(row, "ld")

    def store(self, g: Gang, row: int, cells: Any) -> None:
        """tcgen05.st of a warp."""
        line = self.line(row, "st")
        actor = Actor(line.agent, line.epoch, self._clock(row))
        found = self.shadow(g.cta.rank).write_lanes(actor, cells * CELL, CELL, g.at)
        if found:
            self.report(found, g.cta, row)
        if self.lenient:
            self.waited(row, "st")

    def waited(self, row: int, kind: str) -> None:
        """tcgen05.wait::ld or wait::st: the warp's own later operations come after what it waited for."""
        line = self.line(row, kind)
        line.done, line.epoch = line.epoch, line.epoch + 1
        self._clock(row)[line.agent] = line.done
        self.races.clocks[row, 0, line.twin] = line.done
        if self.lenient:
            self.races.clocks[row, 0, line.agent] = line.done

    def fence_before(self, row: int) -> None:
        """tcgen05.fence::before_thread_sync: what is complete is passed on by the synchronisation that follows."""
        for kind in ("ld", "st"):
            line = self.lines.get((row, kind))
            if line is not None:
                self.races.clocks[row, 0, line.agent] = line.done

    def fence_after(self, row: int) -> None:
        """tcgen05.fence::after_thread_sync: operations that follow come after what the synchronisation told."""
        known = self._clock(row)
        np.maximum(known, self.races.clocks[row, 0], out=known)

    # -- allocation --------------------------------------------------------------------------------------------------------------

    def allocated(self, cta: Cta, cells: Any) -> None:
        """Columns are handed over anew."""
        shadow = self.shadow(cta.rank)
        ranges = np.sort(cells)
        breaks = np.flatnonzero(np.diff(ranges) != 1)
        firsts, lasts = ranges[np.r_[0, breaks + 1]], ranges[np.r_[breaks, ranges.size - 1]] + 1
        shadow.forget((int(low) * CELL, int(high) * CELL) for low, high in zip(firsts, lasts, strict=True))

    def released(self, g: Gang, row: int, cta: Cta, cells: Any) -> None:
        """tcgen05.dealloc: every use must be over. It needs no tcgen05.fence: a barrier after the waits is enough.

        Both warps of a pair give back the columns of both blocks, in any order.
        """
        line = self.line(row, "st")
        clock = np.maximum(self._clock(row), self.races.clocks[row, 0])
        for one in self._kinds.values():
            clock[one.agent] = max(clock[one.agent], clock[one.twin])
        found = self.shadow(cta.rank).write_lanes(Actor(line.agent, line.epoch, clock), cells * CELL, CELL, g.at)
        instructions = self.launch.program.instructions
        found = [one for one in found if instructions[one.other_where].parts[:2] != ("tcgen05", "dealloc")]
        if found:
            self.report(found, cta, row)

    # -- operations of the tensor pipe -------------------------------------------------------------------------------------------

    def operation(
        self,
        g: Gang,
        lane: int,
        key: tuple[Any, ...],
        after: Iterable[str],
        memory: Sequence[tuple[Cta, Any, bool]],
        shared: Sequence[tuple[Cta, Any]],
    ) -> None:
        """An mma, cp or shift is issued: it may access memory until its commit is waited for.

        `key`: its stream, first the name of the instruction; `after`: names of the thread's other streams that it is pipelined after;
        `memory`: (block, cells, writes) of tensor memory; `shared`: (block, chunks read) of shared memory.
        """
        one = self.issuer(g, lane)
        agent = self._stream(one, key)
        epoch = one.commits + 1
        clock = self._clock(one.row).copy()
        for other, number in one.streams.items():
            if self.lenient or (number == agent and key[0] == "mma") or other[0] in after:
                clock[number] = epoch
        actor = Actor(agent, epoch, clock)
        # The next step of a product touches what the last one did, in the same epoch: whoever came between has been held against that one.
        touched = [cells for _, cells, _ in memory]
        before = one.last
        again = (
            before is not None
            and before[:2] == (agent, epoch)
            and len(before[2]) == len(touched)
            and all(map(operator.is_, before[2], touched))
        )
        one.last = (agent, epoch, touched)
        for cta, cells, writes in () if again else memory:
            shadow = self.shadow(cta.rank)
            if writes:
                found = shadow.write_lanes(actor, cells * CELL, CELL, g.at)
            else:
                found = shadow.read_chunks(actor, cells, g.at)
            if found:
                self.report(found, cta, one.row)
        for cta, chunks in shared:
            actor = Actor(agent, epoch, self.races.clocks[one.row, 1])
            if self.races.lanes.order.pending(one.row):
                self.races.lanes.check(g, lane, cta, _ranges(chunks, cta.shared.base))
            found = self.races._shadow(cta).read_chunks(actor, chunks, g.at)
            if found:
                self.report(found, cta, one.row, shared=True)
            one.reads[cta.rank, agent] = (epoch, g.at)

    def commit(self, g: Gang, lane: int, barriers: Iterable[Barrier]) -> Any:
        """tcgen05.commit. Returns the stamp that its arrivals carry: they pass on the thread's operations, and what these came after.

        An arrival of asynchronous work does not pass on what the thread's warp wrote itself; lenient mode takes it as if it did.
        """
        one = self.issuer(g, lane)
        for barrier in barriers:
            if barrier.cta is not g.cta:
                self.races.remote_access(g, None if g.lane >= 0 else _only(g, lane), barrier.cta)
            self.races._check_init(barrier, one.row, g, not self.lenient)
        one.commits += 1
        self.fence_before(one.row)
        stamp = self.races.clocks[one.row].copy()
        if not self.lenient:
            stamp[0, : self.races.clocks.shape[0]] = 0
        for agent in one.streams.values():
            stamp[:, agent] = one.commits
        return stamp

    @staticmethod
    def landed(barrier: Barrier, stamp: Any) -> None:
        """A commit's arrival: who waits for the barrier's phase knows what the stamp knows."""
        held = barrier.clock
        if held is None:
            barrier.clock = stamp.copy()
            return
        size = max(stamp.shape[1], held.shape[1])
        joined = np.zeros((stamp.shape[0], size), np.uint32)
        joined[:, : stamp.shape[1]] = stamp
        mine = joined[:, : held.shape[1]]
        np.maximum(mine, held, out=mine)
        barrier.clock = joined

    def block_end(self, cta: Cta) -> list[tuple[str, int, str]]:
        """Reads of a block's shared memory that none of its threads knows to be over: (agent, instruction, what is missing)."""
        first = cta.rank * self.races.warps
        known = self.races.clocks[first : first + self.races.warps, 0].max(axis=0)
        return [
            (self.races.agents[agent][1], at, "tcgen05.commit, and a wait for its mbarrier before the block's end")
            for one in self.issuers.values()
            for (rank, agent), (epoch, at) in one.reads.items()
            if rank == cta.rank and int(known[agent]) < epoch
        ]

    # -- reports -----------------------------------------------------------------------------------------------------------------

    def report(self, conflicts: list[Conflict], cta: Cta, row: int, shared: bool = False) -> None:
        """Puts conflicts into words."""
        places, instructions = self.launch.program.places, self.launch.program.instructions
        for one in conflicts:
            first_text, second_text = self.races.agents[one.other_agent][1], self.races.agents[one.agent][1]
            first = Access(first_text, instructions[one.other_where].opcode, str(places[one.other_where]))
            second = Access(second_text, instructions[one.where].opcode, str(places[one.where]))
            address, space = one.low, "shared"
            if shared:
                missing = self._missing_shared(one, row)
                if missing is None:
                    continue
            else:
                cell = one.low // CELL
                address, space = (cell // COLUMNS * LANE_GROUP) << 16 | cell % COLUMNS, "tensor"
                missing = self._missing(one, row)
            self.launch.checks.report(Race(one.kind, first, second, cta.ctaid, address, missing, space=space))

    def _missing_shared(self, one: Conflict, row: int) -> str | None:
        """What would order a tensor operation's read of shared memory; None if lenient mode lets it pass."""
        kind = self.races.agents[one.other_agent][0]
        known = int(self.races.clocks[row, 0, one.other_agent]) >= one.other_epoch
        return self.races._missing(kind, TENSOR, one.kind, known)

    def _missing(self, one: Conflict, row: int) -> str:
        line = self._kinds.get(one.other_agent)
        known = self.races.clocks[row, 0]
        if line is not None:
            kind = "ld" if self.races.agents[one.other_agent][1].startswith("tcgen05.ld") else "st"
            if int(known[one.other_agent]) >= one.other_epoch:
                return "tcgen05.fence::after_thread_sync after the barrier or mbarrier wait"
            if int(known[line.twin]) >= one.other_epoch:
                return f"tcgen05.fence::before_thread_sync after tcgen05.wait::{kind}, before the barrier or arrival"
            if line.done < one.other_epoch:
                return f"tcgen05.wait::{kind} after the access, and a barrier or arrival that hands the columns over"
            return f"a barrier or arrival after tcgen05.wait::{kind}, and a wait for it"
        if int(known[one.other_agent]) >= one.other_epoch:
            return "tcgen05.fence::after_thread_sync after the mbarrier wait"
        if one.agent == one.other_agent or (self.races.agents[one.agent][0] == TENSOR and one.agent not in self._kinds):
            return (
                "tcgen05.commit and a wait for its mbarrier between the two: only mma -> mma of one accumulator, shape and kind, cp -> mma, "
                "shift -> mma, mma -> shift and shift -> cp.4x256b are pipelined"
            )
        return "tcgen05.commit after the operation, by the thread that issued it, and a wait for its mbarrier"


@functools.lru_cache(maxsize=4096)
def _runs(chunks: bytes, base: int) -> tuple[tuple[int, int], ...]:
    numbers = np.frombuffer(chunks, np.intp)
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = numbers[np.r_[0, breaks + 1]], numbers[np.r_[breaks, numbers.size - 1]] + 1
    return tuple((base + 16 * int(low), base + 16 * int(high)) for low, high in zip(firsts, lasts, strict=True))


def _ranges(chunks: Any, base: int) -> tuple[tuple[int, int], ...]:
    """Addresses of 16-byte chunks, given by ascending numbers."""
    return _runs(chunks.tobytes(), base)


def _only(g: Gang, lane: int) -> Any:
    mask = np.zeros(g.width, np.bool_)
    mask[lane] = True
    return mask
