"""A cycle model of one SM: what its tensor core does in a GEMM, and what it waits for. One piece of code for Hopper and Blackwell.

    walk(work, chip)        the tiles of the busiest SM, slot after slot: a Walk with its waits by reason
    Chip                    the constants, each with its source; H200 and B200 are two of them
    Work                    what one CTA does with each slot and each tile; ``cycles_kernels`` makes one of a configuration or of a rung

The copy engine, the tensor core and the epilogue are servers; a slot is asked for when it is free, arrives a latency after its
bytes, is multiplied when it is there and the accumulator is free, and is free again then. A model: of Blackwell nothing was
measured here, and Hopper's constants were fitted to other times than those it is held against (benchmarks/cycles.py).
Not modelled: bank conflicts, what the SMs of a cluster wait for each other, power, and instructions other than those of the epilogue.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

from . import speed_of_light

__all__ = ["B200", "H200", "WAITS", "Chip", "Walk", "Work", "walk"]

FIRST = "first operands of a CTA"
LATENCY = "latency of the copy engine: the ring is too short"
BYTES = "bytes from L2 and DRAM"
SHARED = "shared-memory bandwidth"
EPILOGUE = "epilogue: no accumulator is free"
DRAINED = "multiplies that are awaited before the next are issued"
TAIL = "last epilogue"
WAITS = (FIRST, LATENCY, BYTES, SHARED, DRAINED, EPILOGUE, TAIL)
"""Why a tensor core does nothing, in the order in which reports name them."""


@dataclass(frozen=True)
class Chip:
    """Constants of a chip. Clocks are of the SM, rates are bytes a clock of one SM, unless the name says otherwise."""

    name: str
    sms: int
    clock: float
    """SM clocks a second."""
    flops: float
    """Dense operations on 16-bit operands that an SM does in a clock, a multiply and an add being two."""
    shared: float
    """What the tensor core reads from shared memory."""
    l2: float
    """What reaches one SM from L2 while all SMs load."""
    dram: float
    """Bytes a second."""
    l2_bytes: float
    latency: float
    """From a tensor copy's issue to its barrier, when nothing queues."""
    barrier: float
    """From the last arrival at a barrier to whoever waits."""
    commit: float
    """From a multiply's end to whoever waits for it."""
    copy: float
    """For which the copy engine is busy with one copy, whatever its size."""
    registers: float
    """What a warp reads of tensor memory; 0 where accumulators are in registers."""
    store: float
    """What an SM writes to L2."""
    convert: float
    """Clocks in which a warp converts 32 results a thread and writes them to shared memory, beside the bytes."""
    start: float
    """From a CTA's start to its first copy: barriers, tensor memory, tensor maps."""
    launch: float
    """Seconds from one kernel's end to the next one's first instruction."""
    port: float = 0.0
    """Share of what the copy engine and the epilogue move through shared memory that takes from what the tensor core reads of it: 0 is
    apart from each other, 1 is one port for all. An assumption."""
    copy_alone: bool = True
    """Whether tcgen05.cp and tcgen05.mma overlap: shared memory is then all that they share. Else one waits for the other."""


H200 = Chip(
    name="H200",
    sms=132,
    clock=1.98e9,
    flops=4096,
    shared=128,
    l2=85,
    dram=4.2e12,
    l2_bytes=50 * 2**20,
    latency=1200,
    barrier=20,
    commit=32,
    copy=4,
    registers=0,
    store=64,
    convert=48,
    start=1000,
    launch=1.95e-6,
)
"""SMs, operations (989.4 TFLOP/s at 1830 MHz) and L2: NVIDIA H100 Tensor Core GPU Architecture. ``l2``, ``dram``, ``latency`` and
``launch`` were fitted to times of whole kernels on an H200 for the emulator's timeline (``emulator/timeline_model.py``, which also
has the sources of ``shared``, ``barrier``, ``commit`` and ``copy``). ``store``: an L2 slice takes 64 bytes a clock (the same
paper), taken for an SM's share. ``convert``: 16 conversions, 4 stores and their addresses a thread; ``start``: assumptions.
"""

B200 = Chip(
    name="B200",
    sms=148,
    clock=speed_of_light.B200.tensor_clock,
    flops=8192,
    shared=128,
    l2=70,
    dram=7.0e12,
    l2_bytes=126 * 2**20,
    latency=1500,
    barrier=20,
    commit=64,
    copy=4,
    registers=57,
    store=64,
    convert=48,
    start=1500,
    launch=1.95e-6,
)
"""``flops``: 2.25 dense bf16 PFLOP/s (NVIDIA, DGX B200 data sheet) with 148 SMs at 1856 MHz. ``clock``
is that one, not the 1965 MHz that its driver allows: no modelled time is then below the floor of ``speed_of_light``. ``shared``: tcgen05.mma of both operands from
shared memory is bound at 128 bytes a clock, and a pair scales to twice the rate (SemiAnalysis, "Dissecting Nvidia Blackwell",
2026). ``l2``, ``dram``: 20.5 TB/s of L2 and 7.0 of DRAM measured by the authors of TileSight; Chips and Cheese ("Nvidia's B200", 2025)
have 126 MB of L2. ``latency``: Hopper's, and the 300 clocks that the other die costs (SemiAnalysis). ``registers``: 57 bytes a clock a
warp is the least that anybody published of tcgen05.ld (B300, 65 TB/s in all); others saw ten times as much. The rest is Hopper's
or, ``commit`` and ``start``, an assumption. None of it was measured here.
"""


@dataclass(frozen=True)
class Work:
    """What the SM's CTAs do. Bytes and clocks are those of one CTA, of a pair each one's half."""

    slots: int
    """Blocks of K of a tile."""
    tiles: int
    """Tiles that the busiest SM computes, one after another (of a pair's tile its half)."""
    multiply: float
    """Clocks of a slot's multiplies at the tensor core's rate."""
    operations: float
    """Operations of a slot's multiplies, two for a multiply and an add."""
    reads: float
    """Bytes of shared memory that they read."""
    arrives: float
    """Bytes that arrive in shared memory with a slot, its own requests and others'."""
    requests: float
    """Bytes that the CTA asks L2 for in a slot."""
    copies: int
    """Tensor copies of a slot."""
    stages: int
    columns: int = 0
    """Columns of 32-bit sums that a warp reads from tensor memory."""
    d_bytes: float = 0.0
    accumulators: int = 1
    """Tiles whose sums may be held at a time."""
    resident: int = 1
    """CTAs of an SM at a time."""
    persistent: bool = True
    """Whether a CTA goes on to another tile, loading it under the epilogue."""
    own_epilogue: bool = False
    """Whether each accumulator has threads of its own that store it (warpgroups of Hopper), or all share four warps."""
    staged: bool = True
    """Whether results leave through shared memory and the copy engine."""
    awaited: float = 0.0
    """Clocks a slot for which the tensor core waits for the thread that waits for it."""
    scales: float = 0.0
    """Bytes of scale factors that a slot copies to tensor memory."""
    missing: float = 0.0
    """Share of the requests that reach DRAM."""
    active: float = 1.0
    """SMs that load at a time."""
    label: str = ""


@dataclass(frozen=True)
class Walk:
    """What became of it. ``clocks`` from the CTA's start to its last store; ``multiply`` of them at the tensor core's rate; ``first`` and ``last``: the
    multiplies' first clock and their end. ``waits``: clocks by reason.
    """

    clocks: float
    multiply: float
    first: float
    last: float
    waits: dict[str, float] = field(default_factory=dict)

    @property
    def steady(self) -> float:
        """The tensor core's share of the time between its first multiply and its last.

        >>> Walk(120.0, 90.0, 10.0, 110.0).steady
        0.9
        """
        return self.multiply / (self.last - self.first)


class _Cta:
    """A CTA at work: what its ring and its accumulators wait for."""

    def __init__(self, start: float, tiles: int) -> None:
        self.tiles = tiles
        self.start = start
        self.slot = 0
        self.issued: list[tuple[float, float, float]] = []
        """Of each load: when it could be asked for, when the copy engine began, when it was there."""
        self.held: list[float] = []
        """When each accumulator is free again, in the order of use."""
        self.stored = start


def _rate(work: Work, chip: Chip) -> float:
    """Bytes a clock that reach the SM: of L2, or of its share of DRAM."""
    if work.missing <= 0:
        return chip.l2
    return min(chip.l2, chip.dram / chip.clock / work.active / work.missing)


def walk(work: Work, chip: Chip) -> Walk:
    """The busiest SM's tiles.

    >>> alone = Work(slots=4, tiles=1, multiply=128.0, operations=2.0**20, reads=0.0, arrives=0.0, requests=0.0, copies=1, stages=4)
    >>> found = walk(alone, B200)
    >>> found.multiply, found.steady
    (512.0, 1.0)
    """
    return _Walker(work, chip).run()


class _Walker:
    def __init__(self, work: Work, chip: Chip) -> None:
        self.work, self.chip = work, chip
        self.transfer = work.requests / _rate(work, chip) + work.copies * chip.copy
        others = work.arrives + 2 * work.d_bytes * work.staged / work.slots
        read = (work.reads + (work.scales if chip.copy_alone else 0.0) + chip.port * others) / chip.shared
        apart = 0.0 if chip.copy_alone else work.scales / chip.shared
        self.multiply = work.multiply
        self.slot = max(work.multiply, read) + apart
        self.drain, self.store = _epilogue(work, chip)
        self.engine = self.tensor = self.warps = 0.0
        self.waits = dict.fromkeys(WAITS, 0.0)
        self.heap: list[tuple[float, int, _Cta]] = []
        self.numbers = 0
        self.left = work.tiles
        self.first = -1.0
        self.end = 0.0

    def run(self) -> Walk:
        work = self.work
        each = work.tiles if work.persistent else 1
        for _ in range(min(work.resident, work.tiles)):
            self._begin(0.0, each)
        while self.heap:
            _, _, cta = heapq.heappop(self.heap)
            self._step(cta)
        self.waits[TAIL] = max(self.end - self.tensor, 0.0)
        return Walk(self.end, work.tiles * work.slots * self.multiply, self.first, self.tensor, self.waits)

    def _begin(self, time: float, tiles: int) -> None:
        if self.left < tiles:
            return
        self.left -= tiles
        cta = _Cta(time + self.chip.start, tiles)
        for _ in range(min(self.work.stages, tiles * self.work.slots)):
            self._load(cta, cta.start)
        self._queue(cta)

    def _queue(self, cta: _Cta) -> None:
        self.numbers += 1
        heapq.heappush(self.heap, (cta.issued[cta.slot][2], self.numbers, cta))

    def _load(self, cta: _Cta, time: float) -> None:
        begun = max(self.engine, time)
        self.engine = begun + self.transfer
        cta.issued.append((time, begun, self.engine + self.chip.latency + self.chip.barrier))

    def _step(self, cta: _Cta) -> None:
        """The next slot of a CTA is multiplied."""
        work, chip = self.work, self.chip
        tile, within = divmod(cta.slot, work.slots)
        asked, begun, there = cta.issued[cta.slot]
        free = cta.held[tile - work.accumulators] if within == 0 and tile >= work.accumulators else 0.0
        start = max(self.tensor, there, free)
        if self.first < 0:
            self.first = start
        gap = start - self.tensor
        if gap > 0:
            self._blame(gap, cta, free >= there, begun - asked)
        extra = self.slot - self.multiply
        self.waits[SHARED] += extra
        self.waits[DRAINED] += work.awaited
        done = start + self.slot
        self.tensor = done + work.awaited
        cta.slot += 1
        if len(cta.issued) < cta.tiles * work.slots:
            self._load(cta, done + chip.commit + chip.barrier)
        if within == work.slots - 1:
            self._finish(cta, done)
        if cta.slot < cta.tiles * work.slots:
            self._queue(cta)

    def _finish(self, cta: _Cta, done: float) -> None:
        """A tile is summed: its results are stored."""
        work, chip = self.work, self.chip
        ready = done + chip.commit + chip.barrier
        begun = ready if work.own_epilogue else max(ready, self.warps)
        drained, stored = begun + self.drain, begun + self.store
        if not work.own_epilogue:
            self.warps = stored
        cta.held.append(drained + chip.barrier)
        cta.stored = max(cta.stored, stored)
        self.end = max(self.end, stored)
        if cta.slot == cta.tiles * work.slots and not work.persistent:
            self._begin(cta.stored, 1)

    def _blame(self, gap: float, cta: _Cta, by_accumulator: bool, queued: float) -> None:
        if by_accumulator:
            reason = EPILOGUE
        elif cta.slot == 0:
            reason = FIRST
        elif queued > 0:
            reason = BYTES
        else:
            reason = LATENCY
        self.waits[reason] += gap


def _epilogue(work: Work, chip: Chip) -> tuple[float, float]:
    """Clocks until an accumulator may be overwritten, and until its results are stored, from when it is full."""
    through = work.d_bytes / chip.shared + work.d_bytes / 4 / 2 / 32 / 32 * chip.convert if work.staged else 0.0
    # A thread's 16 bytes are half of a sector of L2: plain stores of rows take twice their bytes.
    out = work.d_bytes / chip.store * (1 if work.staged else 2)
    read = work.columns * 128 / chip.registers if chip.registers else 0.0
    stored = max(read + through, out)
    return (read, stored) if chip.registers else (stored, stored)


def changed(chip: Chip, constant: str, factor: float) -> Chip:
    """The chip with one constant multiplied; its SMs are a whole number of at least 1.

    >>> changed(B200, "l2", 0.5).l2, changed(B200, "sms", 0.8).sms
    (35.0, 118)
    """
    value = getattr(chip, constant) * factor
    return replace(chip, **{constant: max(round(value), 1) if constant == "sms" else value})
