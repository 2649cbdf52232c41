"""The access map: which bank each lane of a warp touches, phase by phase, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from .. import LayoutError, Swizzle, compose
from ..banks import BANK_BYTES, BANKS, Access, BankReport, bank_report
from .canvas import Canvas
from .drawing import Drawing, stack
from .grid import LABEL, AnyLayout
from .style import heat

_CELL, _ROW = 21.0, 16.0


@dataclass(frozen=True)
class Touch:
    """One word that a lane touches. ``shared``: other lanes of the phase touch the same word; ``ways``: different words
    of this phase in its bank.
    """

    word: int
    shared: bool
    ways: int


def touches_of(offsets: tuple[int | None, ...], lanes: tuple[int, ...], size: int) -> dict[int, list[Touch]]:
    """The words that each lane of a phase touches; ``offsets`` in bytes, ``size`` bytes a lane.

    >>> touches_of((0, 128), (0, 1), 4)[1]
    [Touch(word=32, shared=False, ways=2)]
    """
    per_lane: dict[int, list[int]] = {}
    users: dict[int, set[int]] = {}
    for lane in lanes:
        offset = offsets[lane]
        if offset is None:
            continue
        words = list(range(offset // BANK_BYTES, (offset + size - 1) // BANK_BYTES + 1))
        per_lane[lane] = words
        for word in words:
            users.setdefault(word, set()).add(lane)
    in_bank: dict[int, int] = {}
    for word in users:
        in_bank[word % BANKS] = in_bank.get(word % BANKS, 0) + 1
    return {
        lane: [Touch(word, len(users[word]) > 1, in_bank[word % BANKS]) for word in words]
        for lane, words in per_lane.items()
    }


def summary(report: BankReport) -> str:
    """A report in one line.

    >>> from stridewright.layout import Layout
    >>> summary(bank_report(Layout(32, 1), Access(4, element_bytes=4)))
    'ld of 4 bytes a lane: 1 wavefront, ideal 1, ratio 1'
    """
    many = "" if report.wavefronts == 1 else "s"
    return (
        f"{report.access.op} of {report.access.bytes} bytes a lane: {report.wavefronts} wavefront{many},"
        f" ideal {report.ideal}, ratio {report.ratio:g}"
    )


def _one(layout: AnyLayout, access: Access, title: str) -> Drawing:
    report = bank_report(layout, access)
    if not report.phases:
        why = (
            "no lane is active" if access.op != "wgmma" else f"op {access.op!r} has no phases to show, {report.method}"
        )
        raise LayoutError(f"nothing to draw: {why}")
    offsets = access.byte_offsets(layout)
    canvas = Canvas()
    canvas.text(0, 14, title, 13, "bold")
    canvas.text(0, 33, summary(report), 12, "good" if report.ratio == 1 else "warn")
    left, y = 62.0, 46.0
    canvas.text(0, y + 12, "lane bank", 10, "faint")
    for bank in range(BANKS):
        canvas.text(left + (bank + 0.5) * _CELL, y + 12, bank, 10, "faint", "middle")
    right = left + BANKS * _CELL
    y += 17
    merged = conflicts = 0
    words = [title, "  " + summary(report)]
    for number, phase in enumerate(report.phases):
        touched = touches_of(offsets, phase.lanes, access.bytes)
        start = y
        busiest = [0] * BANKS
        with canvas.group("phase", None, {"phase": number, "wavefronts": phase.wavefronts}):
            for lane in phase.lanes:
                canvas.text(left - 6, y + 12, lane, 10, "faint", "end")
                canvas.rect(left, y, BANKS * _CELL, _ROW, "empty")
                for touch in touched[lane]:
                    bank = touch.word % BANKS
                    busiest[bank] = touch.ways
                    merged += touch.shared
                    conflicts += touch.ways > 1
                    _draw_touch(canvas, left + bank * _CELL, y, lane, touch)
                y += _ROW
            for bank in range(BANKS):
                ways = busiest[bank]
                canvas.cell(
                    left + bank * _CELL,
                    y + 2,
                    _CELL,
                    _ROW,
                    heat(ways) if ways else "empty",
                    str(ways) if ways else "",
                    f"phase {number}: bank {bank} serves {ways} different words",
                    10,
                    {"bank": bank, "ways": ways},
                )
            canvas.text(left - 6, y + 14, "words", 10, "faint", "end")
        middle = (start + y) / 2
        canvas.text(right + 10, middle, f"phase {number}", LABEL, "")
        many = "" if phase.wavefronts == 1 else "s"
        canvas.text(right + 10, middle + 15, f"{phase.wavefronts} wavefront{many}", LABEL, _tone(phase.wavefronts))
        words.append(_phase_words(number, phase.lanes, phase.wavefronts, busiest))
        y += _ROW + 10
    y += 2
    if report.joined:
        canvas.text(0, y + 8, "this load joins its phases two by two (measured on an H200)", 11, "faint")
        y += 18
    swatches = [
        (heat(1), "alone in its bank"),
        (heat(2), "2 words in the bank"),
        (heat(4), "4"),
        (heat(8), "8"),
        (heat(16), "more"),
    ]
    if merged:
        swatches.append(("shared", "underlined: a word that several lanes share, read once"))
    canvas.legend(0, y, swatches, limit=right)
    facts: dict[str, object] = {
        "wavefronts": report.wavefronts,
        "ideal": report.ideal,
        "ratio": f"{report.ratio:g}",
        "merged": merged,
        "conflicting": conflicts,
    }
    return Drawing.of(f"{title}: {summary(report)}", canvas, "\n".join(words), facts)


def _tone(wavefronts: int) -> str:
    return "good" if wavefronts == 1 else "warn"


def _draw_touch(canvas: Canvas, x: float, y: float, lane: int, touch: Touch) -> None:
    line = touch.word // BANKS
    note = ", the same word as other lanes: merged" if touch.shared else ""
    words = "1 word" if touch.ways == 1 else f"{touch.ways} different words"
    tip = f"lane {lane}: word {touch.word} = line {line}, bank {touch.word % BANKS}; {words} there{note}"
    label = str(line) if len(str(line)) < 4 else ""
    canvas.cell(x, y, _CELL, _ROW, heat(touch.ways), label, tip, 9)
    if touch.shared:
        canvas.rect(x + 0.5, y + _ROW - 3.5, _CELL - 1, 3, "shared")


def _phase_words(number: int, lanes: tuple[int, ...], wavefronts: int, busiest: list[int]) -> str:
    span = f"{lanes[0]}-{lanes[-1]}" if len(lanes) > 1 else str(lanes[0])
    counts = " ".join(str(ways) if ways else "." for ways in busiest)
    return f"  phase {number}, lanes {span:<6} {wavefronts:>2} wavefronts; words a bank: {counts}"


def access_map(layout: AnyLayout, access: Access, swizzle: Swizzle | None = None, title: str | None = None) -> Drawing:
    """What one warp's access does to the banks: a row a lane, a column a bank, phase by phase; with ``swizzle``, before
    and after it.

    A cell is a word that the lane touches, labelled with its line of 128 bytes; its colour says how many different words
    the phase wants of that bank. Words that several lanes share are read once, and underlined. ``layout``, ``access`` and the numbers are those of ``bank_report``; ``swizzle`` is in the layout's units.

    >>> from stridewright.layout import Layout
    >>> column = Access(4, lanes=[(i, 0) for i in range(32)], element_bytes=4)
    >>> access_map(Layout((32, 32), (32, 1)), column).facts["wavefronts"]
    32
    """
    name = title or str(layout)
    before = _one(layout, access, name)
    if swizzle is None:
        return before
    return stack(before, _one(compose(swizzle, layout), access, f"{name} after {swizzle}"))
