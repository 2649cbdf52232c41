"""Finds accesses to the same bytes of global memory, one of them writing, that nothing orders.

`GlobalRaces` is for kernels that have no instruction by which blocks may wait for each other: every block is one agent, and what
happens within a block is not looked at. `OrderedRaces` is for the others (atomics, acquire and release, fences of the whole device):
every warp is an agent, and ordering.py follows what they know of one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .global_shadow import GlobalShadow
from .ordering import GENERIC, GLOBAL_ASYNC, SCOPES, Order
from .report import Access, Race
from .shadow import Actor, Conflict

if TYPE_CHECKING:
    from .cta import Barrier, BulkGroups, Cta
    from .gang import Gang
    from .launch import Launch
    from .ptx import Instruction

_ORDERING = frozenset({"acquire", "release", "acq_rel", "relaxed", "sc", "volatile", "mmio"})


def orders_blocks(item: Instruction) -> bool:
    """Whether blocks may be ordered by this instruction through global memory."""
    parts = frozenset(item.parts)
    if parts & {"shared", "shared::cta", "shared::cluster"} or item.parts[0] in ("mbarrier", "barrier", "wgmma", "cp"):
        return False
    if item.parts[0] in ("atom", "red", "membar"):
        return True
    if item.parts[0] == "fence":
        return bool(parts & {"gpu", "sys"})
    return item.parts[0] in ("ld", "st") and bool(parts & _ORDERING)


def is_strong(item: Instruction) -> bool:
    """Whether an instruction's accesses are strong: atomics, and loads and stores with an order."""
    if item.parts[:3] == ("cp", "reduce", "async"):
        return True
    return item.parts[0] in ("atom", "red") or (
        item.parts[0] in ("ld", "st") and bool(_ORDERING & frozenset(item.parts))
    )


def strong_scope(item: Instruction) -> int:
    """The number of the scope of a strong instruction."""
    return next((SCOPES[part] for part in item.parts if part in SCOPES), SCOPES["gpu"])


class Issued:
    """An asynchronous copy as an agent: who it is, and the block that issued it."""

    __slots__ = ("actor", "cta", "races")

    def __init__(self, races: GlobalRaces, actor: Actor, cta: Cta) -> None:
        self.races = races
        self.actor = actor
        self.cta = cta

    def rows(self, starts: Any, length: int, where: int, write: bool, strong: bool = False) -> None:
        """Rows of bytes that the copy has read or written."""
        self.races.rows(self, starts, length, where, write, strong)


class GlobalRaces:
    """The accesses of all blocks of a launch to the arrays that are written."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.shadow = GlobalShadow(launch.memory)
        self.blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self._actors: dict[int, Actor] = {}
        self._names: dict[int, str] = {}
        self._written: set[int] = set()

    def _actor(self, cta: Cta) -> Actor:
        x, y, z = cta.ctaid
        number = x + self.launch.grid[0] * (y + self.launch.grid[1] * z)
        found = self._actors.get(number)
        if found is None:
            clock = np.zeros(self.blocks, np.uint32)
            clock[number] = 1
            found = self._actors[number] = Actor(number, 1, clock)
            self._names[number] = f"block {cta.ctaid}"
        return found

    def load(self, g: Gang, lane: int, barrier: Barrier) -> Issued:
        """A copy into shared memory that a thread issues; `barrier` counts it."""
        return Issued(self, self._actor(g.cta), g.cta)

    def store(self, g: Gang, lane: int, groups: BulkGroups) -> Issued:
        """A copy out of shared memory that a thread issues, in its bulk group that is open."""
        return Issued(self, self._actor(g.cta), g.cta)

    def lanes(self, g: Gang, m: Any, address: Any, size: int, where: int, write: bool, strong: bool = False) -> None:
        """Loads and stores of threads; `strong`: atomics, and accesses with an order."""
        addresses = address if address.__class__ is np.ndarray else np.array([address], np.uint64)
        mask = m if address.__class__ is np.ndarray else None
        first = int(addresses[0] if mask is None else addresses[int(mask.argmax())])
        if not self._watched(first, write):
            return
        access = self.shadow.write_lanes if write else self.shadow.read_lanes
        actor = self._actor(g.cta)
        self._report(access(actor, addresses, size, where, mask, strong), g.cta, actor)

    def rows(self, issued: Issued, starts: Any, length: int, where: int, write: bool, strong: bool = False) -> None:
        """Rows of bytes that a copy has read or written."""
        if not length or not len(starts) or not self._watched(int(starts[0]), write):
            return
        access = self.shadow.write_rows if write else self.shadow.read_rows
        self._report(access(issued.actor, starts, length, where, strong), issued.cta, issued.actor)

    def _watched(self, address: int, write: bool) -> bool:
        """Whether an access to an array matters: reads of an array that nobody writes do not."""
        start = self.launch.memory.find(address, 1).address
        if write:
            self._written.add(start)
        return write or start in self._written

    def name(self, agent: int) -> str:
        """An agent in words."""
        return self._names[agent]

    def _report(self, conflicts: list[Conflict], cta: Cta, actor: Actor) -> None:
        program = self.launch.program
        for one in conflicts:
            if self._excused(one, actor):
                continue
            first = Access(
                self.name(one.other_agent),
                program.instructions[one.other_where].opcode,
                str(program.places[one.other_where]),
            )
            second = Access(
                self.name(one.agent), program.instructions[one.where].opcode, str(program.places[one.where])
            )
            missing = self._missing(one)
            self.launch.checks.report(Race(one.kind, first, second, cta.ctaid, one.low, missing, space="global"))

    def _place(self, address: int) -> str:
        allocation = self.launch.memory.find(address, 1)
        return f"{allocation.name!r} (here byte {address - allocation.address})"

    def _excused(self, one: Conflict, actor: Actor) -> bool:
        """Whether the two accesses are in order for a reason that clocks do not show."""
        return False

    def _missing(self, one: Conflict) -> str:
        return f"blocks must write different bytes of {self._place(one.low)}, or be ordered"


class OrderedRaces(GlobalRaces):
    """The same with warps and copies as agents, and what atomics, fences, barriers and waits order."""

    def __init__(self, launch: Launch, order: Order) -> None:
        super().__init__(launch)
        self.order = order

    def load(self, g: Gang, lane: int, barrier: Barrier) -> Issued:
        """A copy that reads when it likes until its barrier's phase is complete."""
        return self._issued(g, lane, barrier.agent, barrier.phase + 1)

    def store(self, g: Gang, lane: int, groups: BulkGroups) -> Issued:
        """A copy that has written when its group was waited for without .read."""
        return self._issued(g, lane, g.cta.races.bulk_writer(g, lane, groups), groups.groups + 1)

    def _issued(self, g: Gang, lane: int, agent: int, epoch: int) -> Issued:
        row = g.cta.rank * g.cta.races.warps + (g.base + lane) // 32
        return Issued(self, self.order.actor(g.cta, row, agent, epoch, GLOBAL_ASYNC), g.cta)

    def lanes(self, g: Gang, m: Any, address: Any, size: int, where: int, write: bool, strong: bool = False) -> None:
        """Loads and stores, warp by warp."""
        access = self.shadow.write_lanes if write else self.shadow.read_lanes
        races = g.cta.races
        for row in races.rows(g, m):
            actor = self.order.actor(g.cta, row, row, int(races.clocks[row, 0, row]), GENERIC)
            if address.__class__ is not np.ndarray:
                found = access(actor, np.array([address], np.uint64), size, where, None, strong)
            else:
                first = max(32 * (row % races.warps) - g.base, 0)
                part = slice(first, first + 32)
                found = access(actor, address[part], size, where, None if m is None else m[part], strong)
            if found:
                self._report(found, g.cta, actor)

    def _watched(self, address: int, write: bool) -> bool:
        """Every access matters: what is read too early may be written later."""
        return True

    def name(self, agent: int) -> str:
        """An agent in words."""
        return self.order.names[agent]

    def _excused(self, one: Conflict, actor: Actor) -> bool:
        first, second = (self.launch.program.instructions[where] for where in (one.other_where, one.where))
        if not is_strong(first):
            return False
        if is_strong(second):
            # Of a scope narrower than the device, or they would not be in conflict: enough for warps that are both in it.
            return self.order.together(one.other_agent, one.agent, min(strong_scope(first), strong_scope(second)))
        return one.kind.endswith("after write") and self.order.observed(actor, one.low, one.other_agent)

    def _missing(self, one: Conflict) -> str:
        return (
            f"an order between the two accesses to {self._place(one.low)}: within a block a barrier; between blocks a release (fence.acq_rel.gpu, or "
            ".release on the atomic) after the first, an acquire of its value before the second, and the barriers that take both to every warp"
        )
