"""Bars of ratios to a reference, in groups: how fast each of several kernels is beside one that all know.

Takes plain records: what was measured, and by whom, is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from .. import LayoutError
from .canvas import Canvas, text_width
from .drawing import Drawing
from .grid import LABEL
from .style import GROUPS, group

_WIDTH, _BAR, _GAP = 420.0, 13.0, 9.0


@dataclass(frozen=True)
class Bar:
    """One bar: which series it belongs to, its ratio, the ends of its interval if it has one, words for its tooltip, and what
    stands behind its number.
    """

    series: str
    value: float
    low: float | None = None
    high: float | None = None
    tip: str = ""
    note: str = ""


@dataclass(frozen=True)
class BarGroup:
    """Bars that belong together, under one label. ``mark`` is a figure from elsewhere, drawn as a stroke across the bars."""

    label: str
    bars: Sequence[Bar]
    mark: float | None = None
    values: Mapping[str, object] = field(default_factory=dict)


def ratio_chart(
    groups: Sequence[BarGroup],
    title: str,
    reference: str,
    mark: str = "",
    notes: Sequence[str] = (),
) -> Drawing:
    """Horizontal bars from 0, the reference a dashed line at 1. ``reference`` says what 1 is, ``mark`` what the strokes are;
    ``notes`` are lines under the title. Series get their colours in the order in which they first occur, and the legend names them.

    Raises LayoutError for no bars, for a bar that is negative or not finite, and for more series than there are colours.

    >>> chart = ratio_chart([BarGroup("rung 1", [Bar("4096", 0.5)])], "ladder", "cuBLAS")
    >>> chart.facts["rung-1-4096"]
    '0.500'
    """
    series = list(dict.fromkeys(bar.series for one in groups for bar in one.bars))
    if not series:
        raise LayoutError("no bars: nothing to draw")
    if len(series) > GROUPS - 1:
        raise LayoutError(f"{len(series)} series: there are {GROUPS - 1} colours to tell them apart")
    for one in groups:
        for bar in one.bars:
            if not 0 <= bar.value < float("inf"):
                raise LayoutError(
                    f"{one.label}, {bar.series}: {bar.value} is no ratio; a bar has a finite one from 0 up"
                )
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    y = 20.0
    for note in notes:
        y += 16
        canvas.text(0, y, note, 11, "faint")
    left = max(text_width(one.label, LABEL) for one in groups) + 12
    reach = [value for one in groups for bar in one.bars for value in (bar.value, bar.high or 0.0)]
    reach += [one.mark for one in groups if one.mark is not None]
    top = ceil(max(1.0, *reach) * 10) / 10
    scale = _WIDTH / top

    y += 34
    above = y
    height = sum(len(one.bars) * _BAR + _GAP for one in groups)
    for step in range(int(top * 10) + 1):
        if step % 2 == 0:
            canvas.line(left + step / 10 * scale, above - 6, left + step / 10 * scale, above + height, "rule")
            canvas.text(left + step / 10 * scale, above - 10, f"{step / 10:.1f}", 10, "faint", "middle")
    for one in groups:
        middle = y + len(one.bars) * _BAR / 2
        canvas.text(left - 8, middle + 4, one.label, LABEL, "", "end")
        for bar in one.bars:
            _bar(canvas, left, y, scale, one, bar, group(series.index(bar.series)), left + top * scale)
            y += _BAR
        if one.mark is not None:
            x = left + one.mark * scale
            with canvas.group("", f"{one.label}: {one.mark:.3f}, {mark}"):
                canvas.line(x, y - len(one.bars) * _BAR - 2, x, y + 2, "panel")
        y += _GAP
    canvas.line(left, above - 6, left, above + height, "line")
    canvas.line(left + scale, above - 6, left + scale, above + height, "dashed")
    y = canvas.height + 10
    y = canvas.legend(0, y, [(group(number), name) for number, name in enumerate(series)], limit=left + _WIDTH)
    strokes = [("dashed", f"1.0: {reference}")] + ([("panel", mark)] if mark else [])
    for kind, meaning in strokes:
        canvas.line(0, y + 7, 13, y + 7, kind)
        canvas.text(19, y + 10.5, meaning, 11, "faint")
        y += 18
    facts = {_fact(one.label, bar.series): f"{bar.value:.3f}" for one in groups for bar in one.bars}
    return Drawing.of(title, canvas, _words(groups, title, reference, mark, notes), facts)


def _fact(label: str, series: str) -> str:
    """A name for the fact that XML takes as a part of an attribute's."""
    return re.sub(r"[^a-z0-9]+", "-", f"{label} {series}".lower()).strip("-")


def _bar(canvas: Canvas, left: float, y: float, scale: float, one: BarGroup, bar: Bar, kind: str, edge: float) -> None:
    spread = "" if bar.low is None or bar.high is None else f" ({bar.low:.3f} to {bar.high:.3f})"
    tip = f"{one.label}, {bar.series}: {bar.value:.3f}{spread}" + (f"\n{bar.tip}" if bar.tip else "")
    data = {"series": bar.series, "value": f"{bar.value:.4f}"}
    canvas.rect(left, y, bar.value * scale, _BAR - 1, f"cell {kind}", tip, data)
    if bar.low is not None and bar.high is not None:
        canvas.line(left + bar.low * scale, y + _BAR / 2, left + bar.high * scale, y + _BAR / 2, "under")
    note = f"{bar.value:.3f}" + (f"  {bar.note}" if bar.note else "")
    canvas.text(edge + 10, y + _BAR - 3, note, 10)


def _words(groups: Sequence[BarGroup], title: str, reference: str, mark: str, notes: Sequence[str]) -> str:
    wide = max(len(one.label) for one in groups)
    narrow = max(len(bar.series) for one in groups for bar in one.bars)
    lines = [title, *(f"  {note}" for note in notes), f"  1.0 is {reference}" + (f"; | is {mark}" if mark else "")]
    for one in groups:
        for place, bar in enumerate(one.bars):
            cells = ["#"] * round(bar.value * 40)
            if one.mark is not None:
                at = round(one.mark * 40)
                cells += [" "] * (at + 1 - len(cells))
                cells[at] = "|"
            label = one.label if place == 0 else ""
            lines.append(f"  {label:<{wide}}  {bar.series:>{narrow}}  {bar.value:.3f}  {''.join(cells)}")
    return "\n".join(lines)
