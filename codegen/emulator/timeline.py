"""A timeline of a launch: when threads, copy engine and tensor core work and when they wait, by a model, not by a measurement.

`emulate_ptx(..., timeline=True)` gives one as `EmulationResult.timeline`. It records the events of every block that is emulated and replays
them with the costs of `timeline_model`. benchmarks/timeline_hopper.py holds the model against times measured on an H200.
Of Blackwell nothing was measured: tensor cores multiply at the rate that NVIDIA states, and all else is as on an H200.
Not modelled: bank conflicts of what wgmma and the copy engine read, several blocks on one SM, divergent sides of one warp taking turns, warps that compete for an
issue slot, caches other than by a fixed latency and a share of bandwidth, and the difference between PTX and the machine's instructions. Seen to be off by more
than 15 %: rows whose pitch is no multiple of 32 bytes (too fast), few blocks that all load at a high clock (too fast, L2 has a clock of its own), and clusters in which a
block's whole tile lies outside D.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from .errors import SourcePlace
from .timeline_model import CostModel, Sharing, sharing
from .timeline_record import Recorder, Recording
from .timeline_replay import PhaseEnd, Replay, Span

__all__ = ["CostModel", "PhaseEnd", "RecordingMachine", "Span", "Timeline", "timeline_of"]

_UNITS = ("tensor core", "copy engine", "copy engine stores")
MICROSECONDS = 1e6


@dataclass(frozen=True)
class Timeline:
    """Modelled times of a launch, in clocks of the SM from the start of its first block.

    `spans`: what took time, by block and track ("tensor core", "copy engine", "copy engine stores", or threads); `clocks`: the end of the last; `busy`: clocks
    for which each block's tensor core multiplied; `clock`: the SM clock in Hz that the model expects; `places`: source places of the
    instructions that spans name; `unfinished`: gangs that the model could not follow to their end (0 unless a kernel uses what is not modelled).
    `phases`: each completed phase of an mbarrier, when, and whose arrival or copy it waited for last.
    """

    spans: tuple[Span, ...]
    clocks: float
    busy: dict[int, float]
    blocks: tuple[tuple[int, int, int], ...]
    clock: float
    model: CostModel
    places: dict[int, SourcePlace]
    share: Sharing
    unfinished: int = 0
    phases: tuple[PhaseEnd, ...] = ()

    @property
    def seconds(self) -> float:
        """Modelled seconds of the launch, with the model's constant for what a launch costs."""
        return self.clocks / self.clock + self.model.launch_seconds

    def waits(self, block: int = 0) -> dict[str, float]:
        """Clocks for which a block's tensor core did nothing, by why: before its first operands came, waiting for operands or for another warpgroup's turn,
        while the warpgroup that multiplies next did other work (its epilogue, issue), and after the last multiply.
        """
        tensor = sorted((s for s in self.spans if s.block == block and s.track == "tensor core"), key=lambda s: s.start)
        found: dict[str, float] = defaultdict(float)
        if not tensor:
            return {}
        found["before the first operands"] = tensor[0].start
        last = max(span.end for span in tensor)
        mine = [span for span in self.spans if span.block == block]
        found["after the last multiply"] = max(max(span.end for span in mine) - last, 0.0)
        stalls = [span for span in mine if span.track not in _UNITS]
        end = tensor[0].end
        position = 0
        stalls.sort(key=lambda span: span.end)
        for span in tensor[1:]:
            if span.start > end:
                who = span.name.partition(" of ")[2]
                gap = span.start - end
                while position < len(stalls) and stalls[position].end <= end:
                    position += 1
                for stall in stalls[position:]:
                    if stall.start >= span.start or stall.end > span.start + self.model.barrier_latency:
                        continue
                    if stall.track == who:
                        overlap = min(stall.end, span.start) - max(stall.start, end)
                        if overlap > 0:
                            found[f"{stall.name} ({self._line(stall.place)})"] += overlap
                            gap -= overlap
                    if stall.end > span.start:
                        break
                if gap > 0:
                    found["other work of the warpgroup"] += gap
            end = max(end, span.end)
        return {key: value for key, value in found.items() if value > 0}

    def _line(self, place: int) -> str:
        found = self.places.get(place)
        return (
            f"instruction {place}"
            if found is None
            else f"{found.file}:{found.line}"
            if found.line
            else f"PTX line {found.ptx_line}"
        )

    def to_json(self) -> dict[str, Any]:
        """An object that json.dumps takes: clocks, the constants, and all spans."""
        return {
            "kind": "model, not a measurement",
            "clocks": self.clocks,
            "clock_hz": self.clock,
            "seconds": self.seconds,
            "unfinished": self.unfinished,
            "tensor_core_busy_clocks": {str(block): busy for block, busy in self.busy.items()},
            "tensor_core_waits": {str(block): self.waits(block) for block in range(min(len(self.blocks), 4))},
            "blocks": [list(block) for block in self.blocks],
            "constants": asdict(self.model),
            "spans": [
                {
                    "block": span.block,
                    "track": span.track,
                    "name": span.name,
                    "start": span.start,
                    "end": span.end,
                    "place": self._line(span.place) if span.place >= 0 else None,
                }
                for span in self.spans
            ],
        }

    def to_chrome_trace(self) -> dict[str, Any]:
        """An object for chrome://tracing or ui.perfetto.dev (Trace Event Format): a process for each block, a row for each unit and warp; times in microseconds of
        the model's clock.
        """
        scale = MICROSECONDS / self.clock
        rows: dict[tuple[int, str], int] = {}
        events: list[dict[str, Any]] = []
        for block, place in enumerate(self.blocks):
            name = f"block {','.join(map(str, place))} (modelled)"
            events.append({"ph": "M", "name": "process_name", "pid": block, "tid": 0, "args": {"name": name}})
        lanes: dict[tuple[int, str], list[float]] = defaultdict(list)
        for span in sorted(self.spans, key=lambda one: one.start):
            # Copies overlap: each goes to the first row that is free.
            free = lanes[span.block, span.track]
            lane = next((at for at, until in enumerate(free) if until <= span.start), len(free))
            free[lane : lane + 1] = [span.end]
            track = span.track if lane == 0 else f"{span.track} +{lane}"
            row = rows.get((span.block, track))
            if row is None:
                row = rows[span.block, track] = len(rows) + 1
                head = {"ph": "M", "pid": span.block, "tid": row}
                order = _UNITS.index(span.track) if span.track in _UNITS else 10
                events.append({**head, "name": "thread_name", "args": {"name": track}})
                events.append({**head, "name": "thread_sort_index", "args": {"sort_index": 100 * order + lane}})
            event: dict[str, Any] = {
                "ph": "X",
                "name": span.name,
                "pid": span.block,
                "tid": row,
                "ts": span.start * scale,
                "dur": (span.end - span.start) * scale,
                "args": {"clocks": span.end - span.start},
            }
            if span.place >= 0:
                event["args"]["place"] = self._line(span.place)
            events.append(event)
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def __str__(self) -> str:
        lines = [
            f"timeline (a model, not a measurement): {self.clocks:.0f} clocks, {self.clocks / self.clock * MICROSECONDS:.1f} us at {self.clock / 1e9:.2f} GHz, "
            f"and {self.model.launch_seconds * MICROSECONDS:.2f} us of launch"
        ]
        if self.unfinished:
            lines.append(f"incomplete: {self.unfinished} gangs wait for something that is not modelled")
        for block in range(min(len(self.blocks), 2)):
            busy = self.busy.get(block, 0.0)
            lines.append(
                f"block {self.blocks[block]}: tensor core busy {busy:.0f} clocks, {busy / max(self.clocks, 1):.1%}; it waits:"
            )
            waits = sorted(self.waits(block).items(), key=lambda item: -item[1])
            lines.extend(f"  {value:8.0f} clocks {name}" for name, value in waits)
        return "\n".join(lines)


class RecordingMachine(Recorder):
    """A machine that records, and can make a timeline of it."""

    def timeline(self) -> Timeline:
        """The timeline of what has run."""
        return timeline_of(self.recording)


def timeline_of(recording: Recording, model: CostModel | None = None) -> Timeline:
    """The timeline of a recording."""
    model = CostModel() if model is None else model
    missing = recording.unique_bytes / max(recording.loaded_bytes, 1)
    clock, blocks = model.highest_clock, len(recording.blocks)
    share = sharing(model, blocks, missing, clock)
    replay = Replay(recording, model, share).run()
    for _ in range(3):
        # Power is drawn by the whole chip, over the time that a launch takes.
        total = model.sms * (replay.clocks + model.launch_seconds * clock)
        clock = model.clock(sum(replay.busy.values()) / total, recording.received_bytes / total)
    used = {span.place for span in replay.spans if span.place >= 0}
    return Timeline(
        spans=tuple(replay.spans),
        clocks=replay.clocks,
        busy=replay.busy,
        blocks=tuple(recording.blocks),
        clock=clock,
        model=model,
        places={number: recording.program.places[number] for number in used},
        share=share,
        unfinished=replay.unfinished,
        phases=tuple(replay.phases),
    )
