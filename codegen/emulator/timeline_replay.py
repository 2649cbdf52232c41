"""Gives a recording times: a discrete-event simulation of what was recorded, with the costs of `timeline_model`.

Each stream does its events in order. What it waits for are phases of barriers, wgmma groups, stores and streams; a phase is complete when all
that the emulator saw arrive in it has arrived. Each SM has one tensor core (the four work on one wgmma together) and one copy engine, which
serve in the order of issue; L2 and DRAM are a rate that an SM gets.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .timeline_model import CostModel, Sharing
from .timeline_record import Recording, Stream

_SHOWN = 16
"""Instructions in a row from which on their issue is a span of its own."""


@dataclass(frozen=True)
class Span:
    """Something that takes time. `track`: the unit or threads of block `block`; times in clocks; `place`: the PTX instruction's number, -1 for none.
    `on`: the phases that it waits for, or that a copy counts in, each (block, shared address, phase).
    """

    block: int
    track: str
    name: str
    start: float
    end: float
    place: int
    on: tuple[Any, ...] = ()


@dataclass(frozen=True)
class PhaseEnd:
    """A phase of an mbarrier, completed at `end`. `barrier`: its address in the shared memory of `block`; `by`: the threads whose arrival or copy came last,
    `what` it was ("arrival", "copy", "commit"), when they did it (`since`), and the PTX instruction's number.
    """

    block: int
    barrier: int
    phase: int
    end: float
    by: str
    what: str
    since: float
    place: int


class _Phase:
    """A phase of a barrier: arrivals still missing, the latest of them that is known, and who waits."""

    __slots__ = ("latest", "missing", "time", "waiters")

    def __init__(self) -> None:
        self.missing = 0
        self.time = 0.0
        self.latest: tuple[float, str, str, float, int] = (-1.0, "", "", 0.0, -1)
        self.waiters: list[tuple[int, float, int, Sequence[Any]]] = []


class _Sm:
    """The units of one SM."""

    __slots__ = ("busy", "copies", "engine", "running", "tensor")

    def __init__(self, start: float) -> None:
        self.tensor = start
        self.engine = start
        self.copies = start
        self.busy = 0.0
        self.running = 0


class Replay:
    """One run. After `run`: `spans` (if kept), `clocks`, `busy` (clocks of the tensor core, by block)."""

    def __init__(self, recording: Recording, model: CostModel, share: Sharing, keep: bool = True) -> None:
        self.recording = recording
        self.model = model
        self.share = share
        self.keep = keep
        self.spans: list[Span] = []
        self.clocks = 0.0
        self._phases: dict[Any, _Phase] = {}
        self._heap: list[tuple[float, int, int, Any]] = []
        self._order = 0
        self._position = [0] * len(recording.streams)
        self._ended: dict[int, float] = {}
        self._joins: dict[int, list[int]] = {}
        self._groups: dict[tuple[int, int], list[float]] = {}
        self._open: dict[tuple[int, int], float] = {}
        self._stores: dict[tuple[int, int], list[tuple[float, float]]] = {}
        self._open_stores: dict[tuple[int, int], tuple[float, float]] = {}
        self._copies: dict[int, list[float]] = {}
        self._open_copies: dict[int, float] = {}
        self._sms: dict[int, _Sm] = {}
        self._roots: list[list[Stream]] = [[] for _ in range(len(recording.blocks) // recording.cluster_size)]
        self._next = 0
        self._count()

    def _count(self) -> None:
        phases = self._phases
        for stream in self.recording.streams:
            if stream.root:
                self._roots[stream.cta // self.recording.cluster_size].append(stream)
            for kind, _, _, data in stream.events:
                if kind == "arrive":
                    for key in data:
                        phases.setdefault(key, _Phase()).missing += 1
                elif kind == "load":
                    for _, key in data[2]:
                        phases.setdefault(key, _Phase()).missing += 1
                elif kind == "commit_umma":
                    for _, keys in data:
                        for key in keys:
                            phases.setdefault(key, _Phase()).missing += 1
                elif kind == "bar" and data[1] is not None:
                    phases.setdefault(data[0], _Phase()).missing += 1

    @property
    def unfinished(self) -> int:
        """Streams that did not come to their end: events that the model did not see are missing then."""
        return len(self.recording.streams) - len(self._ended)

    @property
    def phases(self) -> list[PhaseEnd]:
        """The phases of mbarriers that were completed, in the order of their ends."""
        found = []
        for (block, barrier, number), phase in (
            item for item in self._phases.items() if item[0][0] not in ("bar", "cluster") and item[1].missing == 0
        ):
            _, by, what, since, place = phase.latest
            found.append(PhaseEnd(block, barrier, number, phase.time, by, what, since, place))
        return sorted(found, key=lambda one: one.end)

    # -- the loop ----------------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> dict[int, float]:
        """Clocks for which each block's tensor core multiplied."""
        return {block: sm.busy for block, sm in self._sms.items()}

    def run(self) -> Replay:
        """Runs all streams to their ends."""
        room = max(self.model.sms // self.recording.cluster_size, 1)
        for _ in range(min(room, len(self._roots))):
            self._start(0.0)
        heap = self._heap
        while heap:
            time, _, number, key = heapq.heappop(heap)
            if number < 0:
                self._arrive(key, time)
            else:
                self._step(number, time)
        return self

    def _start(self, time: float) -> None:
        """Starts the next cluster: a block on each of its SMs."""
        if self._next >= len(self._roots):
            return
        streams = self._roots[self._next]
        self._next += 1
        for stream in streams:
            sm = self._sms.setdefault(stream.cta, _Sm(time))
            sm.running += 1
        for stream in streams:
            self._go(stream.number, time)

    def _reach(self, time: float, key: Any, what: str, stream: Stream, since: float, place: int) -> None:
        """An arrival, or a copy's bytes, will be counted at `time`."""
        phase = self._phases[key]
        if time >= phase.latest[0]:
            phase.latest = time, stream.label, what, since, place
        self._push(time, -1, key)

    def _push(self, time: float, number: int, key: Any = None) -> None:
        self._order += 1
        heapq.heappush(self._heap, (time, self._order, number, key))

    def _go(self, number: int, time: float) -> None:
        """A stream may do its next event, once it has issued what comes before."""
        events = self.recording.streams[number].events
        position = self._position[number]
        if position < len(events):
            _, count, place, _ = events[position]
            issued = time + count * self.model.instruction_clocks
            if count >= _SHOWN:
                self._span(number, "issues instructions", time, issued, place)
            self._push(issued, number)
        else:
            self._finish(number, time)

    def _finish(self, number: int, time: float) -> None:
        self._ended[number] = time
        self.clocks = max(self.clocks, time)
        stream = self.recording.streams[number]
        if stream.root:
            sm = self._sms[stream.cta]
            sm.running -= 1
            first = stream.cta - stream.cta % self.recording.cluster_size
            if all(self._sms[first + rank].running == 0 for rank in range(self.recording.cluster_size)):
                self._start(time)
        for waiter in self._joins.pop(number, ()):
            self._go_joined(waiter, time)

    def _go_joined(self, number: int, time: float) -> None:
        needed = self.recording.streams[number].events[self._position[number]][3]
        missing = [child for child in needed if child not in self._ended]
        if missing:
            self._joins.setdefault(missing[0], []).append(number)
            return
        self._position[number] += 1
        self._go(number, max([time, *(self._ended[child] for child in needed)]))

    def _arrive(self, key: Any, time: float) -> None:
        phase = self._phases[key]
        phase.missing -= 1
        phase.time = time
        if phase.missing == 0:
            waiters, phase.waiters = phase.waiters, []
            for number, since, place, keys in waiters:
                if not self._parked(number, keys, since, place):
                    self._span(number, "waits", since, time, place, keys)
                    self._go(number, time)

    def _span(self, number: int, name: str, start: float, end: float, place: int, keys: Sequence[Any] = ()) -> None:
        if self.keep and end > start:
            stream = self.recording.streams[number]
            if name == "waits":
                name = "waits for a named barrier" if keys[0][0] in ("bar", "cluster") else "waits for an mbarrier"
            self.spans.append(Span(stream.cta, stream.label, name, start, end, place, tuple(keys)))

    def _wait(self, number: int, keys: Sequence[Any], time: float, place: int) -> None:
        """A stream goes on once all of these phases are complete; several are what different threads wait for."""
        self._position[number] += 1
        if not self._parked(number, keys, time, place):
            self._go(number, time)

    def _parked(self, number: int, keys: Sequence[Any], time: float, place: int) -> bool:
        for key in keys:
            phase = self._phases.get(key)
            if phase is not None and phase.missing > 0:
                phase.waiters.append((number, time, place, keys))
                return True
        return False

    # -- events ------------------------------------------------------------------------------------------------------------------

    def _step(self, number: int, time: float) -> None:
        stream = self.recording.streams[number]
        kind, _, place, data = stream.events[self._position[number]]
        model = self.model
        if kind == "wait":
            self._wait(number, data, time, place)
            return
        if kind == "bar":
            key, waits = data
            if waits is not None:
                self._push(time + (model.cluster_latency if key[0] == "cluster" else model.barrier_latency), -1, key)
            if waits is not False:
                self._wait(number, (key,), time, place)
                return
        elif kind == "join":
            self._go_joined(number, time)
            return
        elif kind == "arrive":
            for key in data:
                delay = model.barrier_latency if key[0] == stream.cta else model.cluster_latency
                self._reach(time + delay, key, "arrival", stream, time, place)
        elif kind == "load":
            self._load(stream, data, time, place)
        elif kind == "wgmma":
            self._multiply(stream, model.wgmma_clocks(*data), f"wgmma m64n{data[0]}", time, place)
        elif kind == "mma":
            time = self._multiply(stream, stream.threads / 32 * model.mma_clocks(*data), "mma.sync", time, place)
        elif kind == "umma":
            for one in data:
                self._multiply_pair(stream, one, time, place)
        elif kind == "commit_umma":
            for thread, phases in data:
                finished = max(time, self._open.get((stream.cta, thread), time))
                for key in phases:
                    delay = (
                        model.umma_latency if key[0] == stream.cta else max(model.umma_latency, model.cluster_latency)
                    )
                    self._reach(finished + delay, key, "commit", stream, time, place)
        elif kind == "columns":
            time += data / model.tensor_columns_moved
        elif kind == "commit_wgmma":
            group = stream.cta, stream.base
            self._groups.setdefault(group, []).append(self._open.pop(group, time))
        elif kind == "wait_wgmma":
            closed = self._groups.get((stream.cta, stream.base), [])
            done = closed[: len(closed) - data]
            if done:
                until = done[-1] + model.wgmma_latency
                self._span(number, "waits for wgmma", time, until, place)
                time = max(time, until)
        elif kind == "store":
            self._store(stream, data, time, place)
        elif kind == "commit":
            for thread in data:
                held = self._open_stores.pop((stream.cta, thread), (0.0, 0.0))
                self._stores.setdefault((stream.cta, thread), []).append(held)
        elif kind == "drain":
            threads, pending, read = data
            until = time
            for thread in threads:
                closed_stores = self._stores.get((stream.cta, thread), [])
                for ends in closed_stores[: len(closed_stores) - pending]:
                    until = max(until, ends[0 if read else 1])
            self._span(number, "waits for a store", time, until, place)
            time = until
        elif kind == "shared":
            time += data
        elif kind == "read":
            time += data / self.share.load
            if self._kind_after(stream) != "read":
                # A run of loads waits once: for the last.
                self._span(number, "waits for global memory", time, time + model.load_latency, place)
                time += model.load_latency
        elif kind == "copy":
            sm = self._sms[stream.cta]
            sm.engine = max(time, sm.engine) + data / self.share.load
            self._open_copies[number] = sm.engine + model.load_latency
        elif kind == "commit_copy":
            self._copies.setdefault(number, []).append(self._open_copies.pop(number, time))
        elif kind == "wait_copy":
            groups = self._copies.get(number, [])
            if data < 0:
                groups = [*groups, self._open_copies.get(number, time)]
            until = max([time, *groups[: len(groups) - max(data, 0)]])
            self._span(number, "waits for cp.async", time, until, place)
            time = until
        elif kind == "write":
            time += data / self.share.store
        elif kind == "fork":
            for child in data:
                self._go(child, time)
        self._position[number] += 1
        self._go(number, time)

    def _kind_after(self, stream: Stream) -> str:
        position = self._position[stream.number] + 1
        return stream.events[position][0] if position < len(stream.events) else ""

    def _multiply(self, stream: Stream, clocks: float, name: str, time: float, place: int) -> float:
        sm = self._sms[stream.cta]
        start = max(time, sm.tensor)
        sm.tensor = end = start + clocks
        sm.busy += clocks
        self._open[stream.cta, stream.base] = end
        if self.keep:
            self.spans.append(Span(stream.cta, "tensor core", f"{name} of {stream.label}", start, end, place))
        return end

    def _multiply_pair(self, stream: Stream, one: tuple[int, int, int, int], time: float, place: int) -> None:
        """tcgen05.mma, on the tensor core of one block or of a pair."""
        thread, rows, n, group = one
        blocks = (stream.cta,) if group == 1 else (stream.cta, stream.cta ^ 1)
        clocks = self.model.umma_clocks(rows, n, group)
        start = max(time, *(self._sms[block].tensor for block in blocks))
        for block in blocks:
            sm = self._sms[block]
            sm.tensor = start + clocks
            sm.busy += clocks
            if self.keep:
                name = f"tcgen05.mma {rows * group}x{n} of {stream.label}"
                self.spans.append(Span(block, "tensor core", name, start, start + clocks, place))
        self._open[stream.cta, thread] = start + clocks

    def _load(self, stream: Stream, data: Any, time: float, place: int) -> None:
        size, what, targets = data
        model, sm = self.model, self._sms[stream.cta]
        start = max(time, sm.engine)
        sm.engine = end = start + max(size / self.share.load, model.issue_clocks)
        landed = end + model.load_latency
        for _, key in targets:
            self._reach(landed, key, "copy", stream, time, place)
        if self.keep:
            counted = tuple(key for _, key in targets)
            self.spans.append(Span(stream.cta, "copy engine", what, start, landed, place, counted))

    def _store(self, stream: Stream, data: Any, time: float, place: int) -> None:
        size, thread = data
        sm = self._sms[stream.cta]
        start = max(time, sm.copies)
        read = sm.copies = start + size / self.share.store + self.model.issue_clocks
        written = read + self.model.store_latency
        key = stream.cta, thread
        held = self._open_stores.get(key, (0.0, 0.0))
        self._open_stores[key] = max(held[0], read), max(held[1], written)
        self.clocks = max(self.clocks, written)
        if self.keep:
            self.spans.append(Span(stream.cta, "copy engine stores", "store", start, written, place))
