"""The emulator's timeline as a picture: rows of threads and units, phases of barriers, and why the tensor core stood still.

Every number is the timeline's; this module sorts its spans into rows and follows each gap back to what it waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stridewright.layout.draw import Drawing, Kind, TimelineBar, Track, pipeline_timeline

if TYPE_CHECKING:
    from .emulator.timeline import PhaseEnd, Span, Timeline

UNITS = ("tensor core", "copy engine", "copy engine stores")
KINDS = (
    Kind("multiply", "k0", "#", "the tensor core multiplies"),
    Kind("bubble", "h5", "!", "it could, and does not: point here for why"),
    Kind("copy", "k2", "=", "a copy is in flight"),
    Kind("store", "k6", "s", "a store is in flight"),
    Kind("wait", "box", "-", "threads wait"),
    Kind("issue", "k1", "i", "a run of instructions is issued"),
    Kind("even", "k3", "0", "a barrier's phase of parity 0"),
    Kind("odd", "k7", "1", "of parity 1"),
)
_SHORTEST_BUBBLE = 8.0
"""Clocks: a shorter gap between two multiplies is drawn as none."""
_LINKS = 3
"""How far back an explanation goes."""

Names = Callable[[int], str]


def _warps(label: str) -> tuple[int, int]:
    """The first and last warp of the threads that a track's label names.

    >>> _warps("4 threads of warps 8..11"), _warps("warp 3"), _warps("thread 70")
    ((8, 11), (3, 3), (2, 2))
    """
    if found := re.search(r"warps? (\d+)(?:\.\.(\d+))?", label):
        return int(found[1]), int(found[2] or found[1])
    if found := re.search(r"thread (\d+)", label):
        return int(found[1]) // 32, int(found[1]) // 32
    return -1, -1


def _within(label: str, other: str) -> bool:
    """Whether all warps of one label are among those of another."""
    (first, last), (low, high) = _warps(label), _warps(other)
    return low <= first and last <= high


def _rows(labels: Sequence[str]) -> dict[str, str]:
    """From a label of threads to the row it belongs to. Some threads of a warp or warpgroup go with the whole, unless that is a larger group
    of which other parts have rows of their own (all warps, before they take up their roles).

    >>> _rows(["warps 0..3", "thread 0", "4 threads of warps 4..7", "warps 4..7"])["thread 0"]
    'warps 0..3'
    >>> _rows(["warps 0..7", "thread 0", "warps 4..7"])["thread 0"]
    'thread 0'
    """
    whole = [label for label in labels if label.startswith("warp")]
    smallest = [one for one in whole if not any(other != one and _within(other, one) for other in whole)]
    return {
        label: label if label in whole else next((row for row in smallest if _within(label, row)), label)
        for label in labels
    }


class _Story:
    """One block's spans and phases, and what can be told of them."""

    def __init__(self, timeline: Timeline, block: int, names: Names) -> None:
        self.timeline, self.block, self.names = timeline, block, names
        self.spans = sorted((s for s in timeline.spans if s.block == block), key=lambda s: (s.start, s.end))
        self.ends: dict[tuple[int, int, int], PhaseEnd] = {(p.block, p.barrier, p.phase): p for p in timeline.phases}
        self.rows = _rows(list(dict.fromkeys(span.track for span in self.spans if span.track not in UNITS)))
        self.tensor = [span for span in self.spans if span.track == "tensor core"]
        self.consumers = dict.fromkeys(self.row(s.name.partition(" of ")[2]) for s in self.tensor)
        self.producers = dict.fromkeys(self.row(p.by) for p in timeline.phases if p.what == "copy" and p.block == block)
        # Of those who wait for products in tensor memory, the producer waits for their operands' slots.
        commits = {(p.block, p.barrier, p.phase) for p in timeline.phases if p.what == "commit"}
        self.readers = dict.fromkeys(
            self.row(s.track) for s in self.spans if s.track not in UNITS and not commits.isdisjoint(s.on)
        )

    def row(self, label: str) -> str:
        """The row of some threads."""
        if label in self.rows:
            return self.rows[label]
        return next((row for row in self.rows.values() if row.startswith("warp") and _within(label, row)), label)

    def role(self, row: str) -> str:
        """What the threads of a row are there for, by what they were seen to do."""
        if row in self.consumers:
            if any(span.name.startswith("tcgen05") for span in self.tensor[:1]):
                return "issues products"
            number = list(self.consumers).index(row)
            return f"consumer {number}" if len(self.consumers) > 1 else "consumer"
        if row in self.producers:
            return "producer"
        if row in self.readers:
            return "epilogue"
        parts = [other for other in self.rows.values() if other != row and _within(other, row)]
        return "all together" if parts else ""

    def place(self, number: int) -> str:
        """A source place in words."""
        found = self.timeline.places.get(number)
        if found is None or not found.line:
            return "" if found is None else f" (PTX line {found.ptx_line})"
        calls = f", called at {', '.join(str(line) for _, line in found.inlined_at)}" if found.inlined_at else ""
        return f" (line {found.line}{calls})"

    def who(self, label: str) -> str:
        """Threads with their role."""
        role = self.role(self.row(label))
        return f"{label} ({role})" if role else label

    def barrier(self, key: tuple[int, int, int]) -> str:
        """A phase in words."""
        block, address, phase = key
        there = "" if block == self.block else f" of block {self.timeline.blocks[block]}"
        name = self.names(address) or f"mbarrier {address:#x}"
        return f"{name}{there}, phase {phase} (parity {phase & 1})"

    def link(self, key: tuple[int, int, int]) -> str:
        """The name that everything about a phase shares."""
        return "p{}-{:x}-{}".format(*key)

    def why(self, key: tuple[int, int, int], depth: int = 0) -> list[str]:
        """How a phase came to its end, and what that waited for in turn, a line each."""
        end = self.ends.get(key)
        if end is None:
            return [f"{self.barrier(key)} was never completed"]
        did = {"copy": "copied", "commit": "committed products"}.get(end.what, "arrived")
        took = "" if did == "arrived" else f", {end.end - end.since:.0f} clocks before it was counted"
        lines = [
            f"{self.barrier(key)} was completed at {end.end:.0f}: {self.who(end.by)} {did} last, at {end.since:.0f}{took}"
        ]
        if depth >= _LINKS or end.block != self.block:
            return lines
        # What those threads waited for just before: another barrier's phase, whose story goes on.
        row = self.row(end.by)
        mine = [
            s for s in self.spans if s.track not in UNITS and self.row(s.track) == row and s.end <= end.since + 1e-6
        ]
        before = max(mine, key=lambda s: s.end, default=None)
        waits = [s for s in mine if s.name.startswith("waits")]
        last = max(waits, key=lambda s: s.end, default=None)
        if last is None or before is None:
            return lines
        lines.append(
            f"before that {row} {last.name.replace('waits', 'waited')} from {last.start:.0f} to {last.end:.0f}{self.place(last.place)}"
        )
        known = [one for one in last.on if one in self.ends and self.ends[one].end >= last.end - 1e-6]
        return lines + (self.why(known[0], depth + 1) if known else [])

    def bubble(self, start: float, end: float, following: Span | None) -> str:
        """Why the tensor core did nothing from `start` to `end`; `following` is what it did next."""
        head = f"the tensor core stands still for {end - start:.0f} clocks, {start:.0f} to {end:.0f}"
        if following is None:
            tail = [s for s in self.spans if s.end > start and s.track != "tensor core"]
            rest = dict.fromkeys(
                f"{self.who(s.track) if s.track not in UNITS else s.track}: {s.name}" for s in tail[-6:]
            )
            return "\n".join([head, "nothing is left to multiply; what still goes on:", *rest])
        owner = self.row(following.name.partition(" of ")[2])
        lines = [head, f"next to multiply: {self.who(owner)}"]
        stalls = [
            s
            for s in self.spans
            if s.track not in UNITS and self.row(s.track) == owner and s.end > start + 1e-6 and s.start < end
        ]
        for stall in stalls:
            lines.append(
                f"{stall.track}: {stall.name} from {stall.start:.0f} to {stall.end:.0f}{self.place(stall.place)}"
            )
            known = [one for one in stall.on if one in self.ends]
            if known:
                lines += [f"  {line}" for line in self.why(max(known, key=lambda one: self.ends[one].end))]
        if not stalls:
            lines.append("it waits for nothing that is modelled: it does other work (its epilogue, or issuing)")
        return "\n".join(lines)

    def bubbles(self) -> list[TimelineBar]:
        """The gaps between multiplies, each with its story."""
        found: list[TimelineBar] = []
        end = 0.0
        for span in self.tensor:
            if span.start - end >= _SHORTEST_BUBBLE:
                found.append(self._gap(end, span.start, span))
            end = max(end, span.end)
        last = max((span.end for span in self.spans), default=end)
        if self.tensor and last - end >= _SHORTEST_BUBBLE:
            found.append(self._gap(end, last, None))
        return found

    def _gap(self, start: float, end: float, following: Span | None) -> TimelineBar:
        links: tuple[str, ...] = ()
        if following is not None:
            owner = self.row(following.name.partition(" of ")[2])
            keys = [
                key
                for s in self.spans
                if s.track not in UNITS and self.row(s.track) == owner and s.end > start + 1e-6 and s.start < end
                for key in s.on
                if key in self.ends
            ]
            links = tuple(self.link(key) for key in keys)
        return TimelineBar(start, end, "bubble", self.bubble(start, end, following), f"{end - start:.0f}", links)

    def unit_track(self, unit: str) -> Track:
        """The bars of the tensor core or the copy engine."""
        kind = {"tensor core": "multiply", "copy engine": "copy"}.get(unit, "store")
        bars = []
        for span in self.spans:
            if span.track == unit:
                tip = f"{span.name}: {span.start:.0f} to {span.end:.0f}, {span.end - span.start:.0f} clocks{self.place(span.place)}"
                if span.on:
                    tip += "\ncounted by " + "; ".join(self.barrier(key) for key in span.on)
                bars.append(TimelineBar(span.start, span.end, kind, tip, "", tuple(self.link(key) for key in span.on)))
        if unit == "tensor core":
            bars += self.bubbles()
        return Track(unit, tuple(sorted(bars, key=lambda bar: bar.start)))

    def thread_track(self, row: str) -> Track:
        """The bars of some threads."""
        bars = []
        for span in self.spans:
            if span.track in UNITS or self.row(span.track) != row:
                continue
            kind = "wait" if span.name.startswith("waits") else "issue"
            tip = f"{span.track}: {span.name}, {span.start:.0f} to {span.end:.0f}, {span.end - span.start:.0f} clocks{self.place(span.place)}"
            keys = [key for key in span.on if key in self.ends]
            for key in keys:
                tip += "\n" + "\n".join(self.why(key))
            bars.append(TimelineBar(span.start, span.end, kind, tip, "", tuple(self.link(key) for key in keys)))
        return Track(row, tuple(bars), self.role(row))

    def barrier_tracks(self) -> list[Track]:
        """A row for each mbarrier of the block: its phases, one after another."""
        by_address: dict[int, list[PhaseEnd]] = {}
        for end in self.timeline.phases:
            if end.block == self.block:
                by_address.setdefault(end.barrier, []).append(end)
        tracks = []
        for address, ends in sorted(by_address.items()):
            bars, start = [], 0.0
            for one in sorted(ends, key=lambda end: end.phase):
                key = (one.block, one.barrier, one.phase)
                tip = "\n".join(self.why(key))
                kind = "odd" if one.phase & 1 else "even"
                bars.append(TimelineBar(start, one.end, kind, tip, str(one.phase), (self.link(key),)))
                start = one.end
            tracks.append(Track(self.names(address) or f"{address:#x}", tuple(bars)))
        return tracks


def timeline_picture(
    timeline: Timeline,
    block: int = 0,
    window: tuple[float, float] | None = None,
    names: Names | None = None,
    title: str = "",
) -> Drawing:
    """One block of an emulation's timeline: tensor core, copy engine, threads by role, and barriers with their phases, on one axis of clocks.

    A gap of the tensor core is explained in its tooltip: who multiplies next, what those threads waited for, who completed that
    barrier last, and what they had waited for. ``window``: clocks to show, all by default; ``names``: what lies at a shared address, for barriers
    (``Gemm.emulate`` users pass ``lambda a: describe(gemm.derivation, a)``). Raises ValueError for a block that was not emulated.

    >>> from stridewright.codegen.emulator.timeline import Timeline, CostModel, Span
    >>> from stridewright.codegen.emulator.timeline_model import Sharing
    >>> spans = (Span(0, "tensor core", "wgmma m64n64 of warps 0..3", 50, 90, -1), Span(0, "warps 0..3", "waits for wgmma", 60, 100, -1))
    >>> view = timeline_picture(Timeline(spans, 100, {0: 40.0}, ((0, 0, 0),), 1e9, CostModel(), {}, Sharing(80, 80)))
    >>> view.facts["busy"], view.facts["bubbles"]
    ('40.0%', 2)
    """
    if not 0 <= block < len(timeline.blocks):
        raise ValueError(f"block={block}: {len(timeline.blocks)} blocks were emulated, 0 to {len(timeline.blocks) - 1}")
    story = _Story(timeline, block, names or (lambda address: ""))
    tracks = [story.unit_track(unit) for unit in UNITS]
    order = sorted(dict.fromkeys(story.rows.values()), key=lambda row: (_warps(row), row))
    tracks += [story.thread_track(row) for row in order]
    tracks += story.barrier_tracks()
    tracks = [track for track in tracks if track.bars]
    busy = timeline.busy.get(block, 0.0)
    gaps = story.bubbles()
    share = f"{busy / max(timeline.clocks, 1):.1%}"
    running = timeline.clocks / timeline.clock
    notes = [
        f"a model, not a measurement: {timeline.clocks:.0f} clocks, {running * 1e6:.1f} us at {timeline.clock / 1e9:.2f} GHz, "
        f"and {(timeline.seconds - running) * 1e6:.2f} us of launch",
        f"block {timeline.blocks[block]}: the tensor core is busy for {busy:.0f} clocks, {share}; {len(gaps)} gaps of 8 clocks and more",
    ]
    facts: dict[str, object] = {"clocks": round(timeline.clocks), "busy": share, "bubbles": len(gaps)}
    return pipeline_timeline(tracks, KINDS, window, title or "timeline of a block", notes, facts=facts)
