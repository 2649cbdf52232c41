"""A gang: threads of one block that execute together, with one register list and one place in the program.

A gang starts as a warpgroup (or a whole block, if the kernel has no warpgroup instructions). Where a branch divides it, each side goes on as a
child gang with its own copy of the list until the branch's immediate post-dominator, where the parent takes their registers
together again. Arrays always span all threads of the first gang; `mask` tells which of them this one executes (None: all).
A child of one thread holds plain ints, so a thread elected to run a loop costs what a scalar program costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .accumulators import Fragment
from .errors import EmulationError
from .values import Value, select

if TYPE_CHECKING:
    from .cta import Cta
    from .translate import Program

EXIT = -1
PARK = -2
SPLIT = -3
YIELD = -4
"""What a block's function returns instead of the next block: done, wait for an event, divided, let others run first."""


class Gang:
    """Threads `base .. base + width - 1` of a block, of which `mask` execute."""

    __slots__ = (
        "arrived", "at", "base", "carry", "children", "collapsed", "cta", "direct", "ended", "join", "lane", "laneid", "last_wait", "local", "mask",
        "open", "parameters", "parent", "pc", "poll", "program", "reduced",
        "registers", "start", "stop", "tid_x", "tid_y", "tid_z", "waiting", "warpid",
        "warps_cache", "width",
    )  # fmt: skip

    def __init__(self, program: Program, cta: Cta, base: int, width: int) -> None:
        self.program = program
        self.cta = cta
        self.base = base
        self.width = width
        self.mask: Any = None
        self.registers: list[Any] = program.fresh_registers()
        self.pc = 0
        self.stop = EXIT
        self.at = 0
        self.carry: Value = 0
        self.parameters: dict[tuple[str, int], Value] = {}
        self.parent: Gang | None = None
        self.children: list[Gang] = []
        self.arrived: list[Gang] = []
        self.open = 0
        self.join = EXIT
        self.direct = False
        self.ended = False
        self.reduced: tuple[int, int] | None = None
        self.last_wait: Any = None
        self.poll: Any = None
        """The latest load or atomic that may be a poll: (instruction, what it saw)."""
        self.collapsed: dict[int, Value] = {}
        self.start = 0
        self.waiting: Any = None
        self.warps_cache: tuple[int, ...] | None = None
        self.local: Any = None
        threads = np.arange(base, base + width, dtype=np.uint32)
        nx, ny, nz = cta.ntid
        self.tid_x: Value = threads % np.uint32(nx) if ny * nz > 1 else threads
        self.tid_y: Value = threads // np.uint32(nx) % np.uint32(ny) if ny > 1 else 0
        self.tid_z: Value = threads // np.uint32(nx * ny) if nz > 1 else 0
        self.laneid: Value = threads % np.uint32(32)
        self.warpid: Value = threads // np.uint32(32) if width > 32 else base // 32
        self.lane = -1
        """The one thread that executes, counted from `base`; -1 if there are several."""
        if width == 1:
            self._shrink(0)

    def _shrink(self, lane: int) -> None:
        self.lane = lane
        for name in ("tid_x", "tid_y", "tid_z", "laneid", "warpid"):
            value = getattr(self, name)
            if value.__class__ is np.ndarray:
                setattr(self, name, value[lane].item())

    # -- who ---------------------------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> Any:
        """Numbers of the executing threads, counted from `base`."""
        return np.arange(self.width) if self.mask is None else np.flatnonzero(self.mask)

    @property
    def count(self) -> int:
        """How many threads execute."""
        return self.width if self.mask is None else int(np.count_nonzero(self.mask))

    @property
    def warps(self) -> tuple[int, ...]:
        """Numbers in the block of the warps with a thread that executes."""
        if self.warps_cache is None:
            first = self.base // 32
            if self.mask is None:
                self.warps_cache = tuple(range(first, (self.base + self.width + 31) // 32))
            elif self.width % 32 == 0:
                used = np.flatnonzero(self.mask.reshape(-1, 32).any(axis=1)).tolist()
                self.warps_cache = tuple(first + warp for warp in used)
            else:
                self.warps_cache = tuple(np.unique((self.lanes + self.base) // 32).tolist())
        return self.warps_cache

    def who(self, mask: Any = None) -> str:
        """The threads in words."""
        lanes = self.lanes if mask is None or mask is False else np.flatnonzero(mask)
        threads = lanes + self.base
        warps = np.unique(threads // 32).tolist()
        block = ",".join(map(str, self.cta.ctaid))
        if len(threads) == 1:
            return f"block ({block}) thread {int(threads[0])} (warp {warps[0]})"
        full = len(threads) == sum(min(32, self.cta.threads - 32 * warp) for warp in warps)
        names = (
            f"warp {warps[0]}"
            if len(warps) == 1
            else f"warps {warps[0]}..{warps[-1]}"
            if warps == list(range(warps[0], warps[-1] + 1))
            else f"warps {warps}"
        )
        return f"block ({block}) {names}" + ("" if full else f" ({len(threads)} of their threads)")

    def require_full_warps(self, mask: Any, what: str) -> None:
        """For .aligned instructions: of every warp all threads (that have not exited) or none must execute."""
        active = self.mask if mask is None else mask
        if active is None:
            return
        alive = self.cta.alive[self.base : self.base + self.width]
        pad = -self.width % 32
        active_warps = np.pad(active, (0, pad)).reshape(-1, 32)
        alive_warps = np.pad(alive, (0, pad)).reshape(-1, 32)
        bad = active_warps.any(axis=1) & (active_warps != alive_warps).any(axis=1)
        if bad.any():
            warp = int(np.flatnonzero(bad)[0])
            missing = np.flatnonzero(alive_warps[warp] & ~active_warps[warp])
            raise EmulationError(
                f"{what} is .aligned, but of warp {warp + self.base // 32} only {int(active_warps[warp].sum())} threads execute it "
                f"(thread {int(missing[0]) + 32 * warp + self.base} does not): its result is undefined"
            )

    def lane_mask(self, relation: str) -> Value:
        """%lanemask_*."""

        def one(lane: int) -> int:
            bit = 1 << lane
            return {
                "eq": bit,
                "lt": bit - 1,
                "le": 2 * bit - 1,
                "gt": 0xFFFFFFFF & ~(2 * bit - 1),
                "ge": 0xFFFFFFFF & ~(bit - 1),
            }[relation]

        if self.laneid.__class__ is int:
            return one(self.laneid)
        table = np.array([one(lane) for lane in range(32)], np.uint32)
        return table[self.laneid]

    # -- dividing ----------------------------------------------------------------------------------------------------------------

    def child(self, mask: Any, pc: int, join: int) -> Gang:
        """A gang of the threads in `mask`, at block `pc`, until block `join`."""
        new = Gang.__new__(Gang)
        new.program, new.cta, new.base, new.width = self.program, self.cta, self.base, self.width
        new.tid_x, new.tid_y, new.tid_z, new.laneid, new.warpid = (
            self.tid_x,
            self.tid_y,
            self.tid_z,
            self.laneid,
            self.warpid,
        )
        new.at, new.carry, new.local = self.at, self.carry, self.local
        new.mask, new.pc, new.start, new.stop, new.parent = mask, pc, pc, join, self
        new.children, new.arrived, new.collapsed = [], [], {}
        new.open, new.join, new.direct, new.ended, new.lane = 0, EXIT, False, False, -1
        new.warps_cache = None
        new.waiting = new.reduced = new.last_wait = new.poll = None
        new.registers = self.registers[:]
        new.parameters = dict(self.parameters) if self.parameters else {}
        lanes = np.flatnonzero(mask)
        if len(lanes) == 1:
            lane = int(lanes[0])
            new.warps_cache = ((self.base + lane) // 32,)
            new._shrink(lane)
            registers = new.registers
            for slot in self.program.region(pc, join)[0]:
                value = registers[slot]
                if value.__class__ is np.ndarray:
                    registers[slot] = new.collapsed[slot] = value[lane].item()
        return new

    def split(self, sides: list[tuple[Any, int]], join: int) -> int:
        """Divides the gang: (mask, block) for each side. Returns what the block's function returns."""
        leaving = [mask for mask, pc in sides if pc == EXIT]
        sides = [(mask, pc) for mask, pc in sides if pc != EXIT]
        for mask in leaving:
            self.cta.exit_threads(self, mask)
        if leaving and len(sides) == 1:
            # Only the others are left: they stay this gang.
            self.mask, pc = sides[0]
            self.warps_cache = None
            return pc
        self.children = [self.child(mask, pc, join) for mask, pc in sides if pc != join]
        if not self.children:
            return join
        self.direct = len(self.children) < len(sides)
        self.open = len(self.children)
        self.arrived = []
        self.join = join
        self.pc = join
        self.cta.machine.divide(self)
        return SPLIT

    def loosen(self) -> Gang | None:
        """Lets the warps that wait at the join go on alone, when the others wait for them: hardware joins threads of a warp only.

        Returns the new gang, or None if there is none to make. All parts meet again where this gang itself would end.
        """
        running, waiting = self._parts()
        if waiting is None or self.join == self.stop:
            return None
        join, children = self.join, running
        self.direct = self.direct or len(self.arrived) > 1
        self._merge()
        new = self.child(waiting, join, self.stop)
        for child in children:
            child.stop = self.stop
        self.children = [*children, new]
        self.arrived, self.direct = [], False
        self.join = self.pc = self.stop
        self.open = len(self.children)
        return new

    def _parts(self) -> tuple[list[Gang], Any]:
        """Children that have not come to the join, and the threads that wait there; None if it is nobody, or warps are divided."""
        running = [child for child in self.children if child not in self.arrived and not child.ended]
        every = np.ones(self.width, np.bool_) if self.mask is None else self.mask
        busy = np.zeros(self.width, np.bool_)
        for child in running:
            busy |= child.mask
        waiting = every & ~busy
        pad = -self.width % 32
        shared = np.pad(waiting, (0, pad)).reshape(-1, 32).any(axis=1) & np.pad(busy, (0, pad)).reshape(-1, 32).any(
            axis=1
        )
        return running, None if not running or not waiting.any() or shared.any() else waiting

    def hoist(self) -> bool:
        """Where the join is also the end of this gang, its waiting warps have come to the parent's join; its children become the parent's.

        Returns whether that was so; this gang has ended then.
        """
        parent = self.parent
        if parent is None or self.join != self.stop or parent.join != self.stop:
            return False
        running, waiting = self._parts()
        if waiting is None:
            return False
        self.direct = self.direct or len(self.arrived) > 1
        self._merge()
        for child in running:
            # What this gang wrote before it divided is the children's too.
            child.parent, child.start = parent, self.start
        self.mask, self.warps_cache = waiting, None
        self.ended, self.open = True, 0
        parent.children = [*(child for child in parent.children if child is not self), *running, self]
        parent.arrived.append(self)
        parent.open += len(running) - 1
        return True

    def finish_child(self, child: Gang, exited: bool) -> bool:
        """A child has come to the join, or its threads have exited. Returns whether the parent may go on (or end: mask empty)."""
        self.open -= 1
        child.ended = True
        if not exited:
            self.arrived.append(child)
        if self.open:
            return False
        if self.direct or self.arrived:
            self._merge()
        return True

    def _merge(self) -> None:
        arrived = self.arrived
        own = self.registers
        if not self.direct and len(arrived) == 1:
            child = arrived[0]
            merged = child.registers
            for slot, value in child.collapsed.items():
                if merged[slot].__class__ is value.__class__ and merged[slot] == value:
                    merged[slot] = own[slot]
            self.registers = merged
        else:
            region = self.program.region
            slots = {slot for child in arrived for slot in region(child.start, self.join)[1]}
            for slot in slots:
                self._merge_slot(slot, own, arrived)
        if arrived and arrived[0].parameters:
            self.parameters.update(arrived[0].parameters)
        self.arrived, self.children = [], []

    def _merge_slot(self, slot: int, own: list[Any], arrived: list[Gang]) -> None:
        old = own[slot]
        values = []
        for child in arrived:
            value = child.registers[slot]
            held = child.collapsed.get(slot)
            values.append(old if held is not None and held.__class__ is value.__class__ and held == value else value)
        width = self.program.width(slot)
        first = 0
        current = old
        if not self.direct:
            current, first = values[0], 1
        for child, value in zip(arrived[first:], values[first:], strict=True):
            if value is current or (
                value.__class__ is current.__class__ and value.__class__ is not np.ndarray and value == current
            ):
                continue
            current = select(child.mask, self._plain(value), self._plain(current), width)
        own[slot] = current

    def _plain(self, value: Any) -> Any:
        return value.read(self, self.at) if value.__class__ is Fragment else value


def guard(g: Gang, predicate: Value) -> Any:
    """The threads that execute an instruction guarded by @p: g.mask itself if all do, False if none."""
    if predicate is True:
        return g.mask
    if predicate is False:
        return False
    mask = g.mask
    if mask is None:
        if predicate.all():
            return None
        return predicate if predicate.any() else False
    both = predicate & mask
    if not both.any():
        return False
    return mask if bool((both == mask).all()) else both


def guard_not(g: Gang, predicate: Value) -> Any:
    """The same for @!p."""
    if predicate.__class__ is bool:
        return False if predicate else g.mask
    return guard(g, ~predicate)


def diverge(g: Gang, predicate: Any, taken: int, fall: int, join: int) -> int:
    """A branch whose predicate differs between threads."""
    mask = g.mask
    yes = predicate if mask is None else predicate & mask
    no = ~predicate if mask is None else ~predicate & mask
    if not yes.any():
        return fall
    if not no.any():
        return taken
    return g.split([(yes, taken), (no, fall)], join)


def diverge_table(g: Gang, index: Value, targets: tuple[int, ...], join: int) -> int:
    """brx.idx."""
    if index.__class__ is int:
        if index >= len(targets):
            raise EmulationError(f"brx.idx with index {index}; the table has {len(targets)} targets")
        return targets[index]
    active = g.mask if g.mask is not None else np.ones(g.width, np.bool_)
    used = np.unique(index[active]).tolist()
    if used[-1] >= len(targets):
        raise EmulationError(f"brx.idx with index {used[-1]}; the table has {len(targets)} targets")
    if len(used) == 1:
        return int(targets[used[0]])
    return g.split([(active & (index == number), targets[number]) for number in used], join)
