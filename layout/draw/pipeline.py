"""The pipeline timeline: what every unit and group of threads of a block does, one row each, on one axis of time.

Takes plain records; who makes them (the emulator, a profiler) is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from .. import LayoutError
from .canvas import Canvas, text_width
from .drawing import Drawing, paragraph
from .links import add_rules, joined

_WIDTH = 860.0
_LANE, _THIN = 17.0, 7.0
_MAXIMUM_BARS = 4000
_COLUMNS = 96  # of the text form


@dataclass(frozen=True)
class TimelineBar:
    """Something that lasts from ``start`` to ``end``. ``kind``: a name of the legend; ``tip``: what it is, in words; ``label``: written on it where
    there is room; ``links``: names it shares with what belongs to it."""

    start: float
    end: float
    kind: str
    tip: str
    label: str = ""
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Track:
    """A row: its name, a word below it, and its bars. Bars that overlap are drawn in lanes of their own."""

    name: str
    bars: tuple[TimelineBar, ...]
    role: str = ""


@dataclass(frozen=True)
class Kind:
    """What a kind of bar looks like (a class of the style sheet, a character of the text form) and means."""

    name: str
    style: str
    character: str
    meaning: str


def _lanes(bars: Sequence[TimelineBar]) -> list[tuple[int, TimelineBar]]:
    """Each bar with the first lane that is free when it starts."""
    ends: list[float] = []
    placed = []
    for bar in sorted(bars, key=lambda one: (one.start, one.end)):
        lane = next((i for i, end in enumerate(ends) if end <= bar.start + 1e-9), len(ends))
        ends[lane : lane + 1] = [bar.end]
        placed.append((lane, bar))
    return placed


def nice_step(span: float, most: int = 10) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides the span into at most ``most`` parts.

    >>> nice_step(10118), nice_step(7)
    (2000.0, 1.0)
    """
    raw = span / most
    power = float(10 ** floor(log10(raw)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)


def pipeline_timeline(
    tracks: Sequence[Track],
    kinds: Sequence[Kind],
    window: tuple[float, float] | None = None,
    title: str = "timeline",
    notes: Sequence[str] = (),
    unit: str = "clocks",
    facts: dict[str, object] | None = None,
) -> Drawing:
    """Rows of bars on a shared axis. A bar's tooltip explains it; pointing at it outlines what it is linked with.

    ``window``: the part of the axis to show, all by default; ``notes``: lines below the title; ``facts``: numbers to state. Raises
    LayoutError for bars of a kind that ``kinds`` does not have, for nothing to draw, and for more than 4,000 bars in the window.

    >>> work = Kind("work", "k0", "#", "works")
    >>> view = pipeline_timeline([Track("unit", (TimelineBar(0, 40, "work", "first"), TimelineBar(60, 100, "work", "second")))], [work])
    >>> view.facts["bars"], view.text().splitlines()[-2].count("#") > 60
    (2, True)
    """
    known = {kind.name: kind for kind in kinds}
    unknown = {bar.kind for track in tracks for bar in track.bars} - set(known)
    if unknown:
        raise LayoutError(f"bars of kind {', '.join(sorted(unknown))}: the legend has {', '.join(known)}")
    if not any(track.bars for track in tracks):
        raise LayoutError("no track has a bar: nothing to draw")
    low = min(bar.start for track in tracks for bar in track.bars) if window is None else window[0]
    high = max(bar.end for track in tracks for bar in track.bars) if window is None else window[1]
    if high <= low:
        raise LayoutError(f"the window {low:g} to {high:g} is empty: its end must come after its start")
    inside = [(t, [bar for bar in t.bars if bar.end > low and bar.start < high]) for t in tracks]
    count = sum(len(bars) for _, bars in inside)
    if count > _MAXIMUM_BARS:
        raise LayoutError(f"{count} bars between {low:g} and {high:g}: at most {_MAXIMUM_BARS}; give a shorter window")
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    y = 34.0
    for note in notes:
        for line in paragraph(note, 124):
            canvas.text(0, y, line, 12, "faint")
            y += 17
    left = max(text_width(text, 11) for t in tracks for text in (t.name, t.role)) + 14
    scale = _WIDTH / (high - low)
    top = y + 14
    step = nice_step(high - low)
    marks = [step * i for i in range(ceil(low / step), floor(high / step) + 1)]
    backdrop = len(canvas.parts)
    for mark in marks:
        canvas.text(left + (mark - low) * scale, top - 4, f"{mark:g}", 10, "faint", "middle")
    y = top + 4
    links: list[str] = []
    for track, bars in inside:
        placed = _lanes(bars)
        lanes = max((lane for lane, _ in placed), default=0) + 1
        height = _LANE if lanes <= 2 else max(_THIN, min(_LANE, 4 * _LANE / lanes))
        middle = y + max(lanes * height, 26 if track.role else _LANE) / 2
        canvas.text(left - 10, middle + (-1 if track.role else 4), track.name, 11, "", "end")
        if track.role:
            canvas.text(left - 10, middle + 12, track.role, 10, "faint", "end")
        offset = max(0.0, (2 * (middle - y) - lanes * height) / 2)
        for lane, bar in placed:
            x1, x2 = (left + (min(max(at, low), high) - low) * scale for at in (bar.start, bar.end))
            width = max(x2 - x1, 0.7)
            style = known[bar.kind].style
            place = y + offset + lane * height
            # The edge of a cell is of the paper's colour: of a narrow bar it would leave nothing.
            looks = style if width < 3 and style != "box" else f"cell {style}"
            canvas.rect(x1, place, width, height - 1, looks, bar.tip, joined(bar.links))
            links.extend(bar.links)
            if bar.label and height >= 12 and width >= text_width(bar.label, 10) + 4:
                canvas.text(x1 + width / 2, place + height / 2 + 3, bar.label, 10, "on", "middle")
        y += max(lanes * height, 26 if track.role else _LANE) + 7
    # Behind the bars.
    front, canvas.parts = canvas.parts[backdrop:], canvas.parts[:backdrop]
    for mark in marks:
        canvas.line(left + (mark - low) * scale, top, left + (mark - low) * scale, y, "rule")
    canvas.parts += front
    canvas.text(left + _WIDTH, y + 10, unit, 10, "faint", "end")
    used = {bar.kind for _, bars in inside for bar in bars}
    shown = [(kind.style, kind.meaning) for kind in kinds if kind.name in used]
    canvas.legend(0, y + 20, shown, limit=left + _WIDTH)
    add_rules(canvas, links)
    words = [title, *(f"  {line}" for note in notes for line in paragraph(note, 120))]
    words += _words(inside, known, low, high)
    words.append("  " + ", ".join(f"{kind.character} {kind.meaning}" for kind in kinds if kind.name in used))
    return Drawing.of(title, canvas, "\n".join(words), {"bars": count, **(facts or {})})


def _words(inside: list[tuple[Track, list[TimelineBar]]], known: dict[str, Kind], low: float, high: float) -> list[str]:
    """Each track as a line of characters: what covers most of each of the equal parts of the window."""
    names = [f"{track.name}{f' ({track.role})' if track.role else ''}" for track, _ in inside]
    width = max(len(name) for name in names)
    part = (high - low) / _COLUMNS
    lines = [f"  {'':<{width}}  {low:<{_COLUMNS // 2}g}{high:>{_COLUMNS // 2}g}"]
    for name, (_, bars) in zip(names, inside, strict=True):
        cover: list[dict[str, float]] = [{} for _ in range(_COLUMNS)]
        for bar in bars:
            first = max(int((bar.start - low) / part), 0)
            last = min(int((bar.end - low) / part), _COLUMNS - 1)
            for column in range(first, last + 1):
                start = low + column * part
                share = min(bar.end, start + part) - max(bar.start, start)
                cover[column][bar.kind] = cover[column].get(bar.kind, 0.0) + share
        strip = "".join(known[max(c, key=c.__getitem__)].character if c else "." for c in cover)
        lines.append(f"  {name:<{width}}  {strip}")
    return lines
