"""A layout, a swizzle and an instruction looked at together: the state of the widget, and everything that it shows.

The state is a line of text that restores it. All numbers are the library's; the front end only shows them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from .. import Layout, LayoutError, Swizzle, compose, cosize, rank
from ..banks import BANK_BYTES, BANKS, Access, BankReport, bank_report, swizzle_search
from ..hardware.dtypes import data_type
from ..hardware.swizzle_modes import swizzle_modes
from .bits import describe, swizzle_bits
from .canvas import Canvas, text_width
from .drawing import Drawing, beside, paragraph, stack
from .grid import LABEL, coordinate, draw_grid, extent_of, spell, values
from .grid import Cell as GridCell
from .heat import touches_of
from .links import MAXIMUM, add_rules, joined
from .operand import descriptor_view
from .style import group, heat

DTYPES = ("e4m3", "bf16", "f16", "f32", "f64")
INSTRUCTIONS: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {
        "ld.b32": ("ld", 4, 32),
        "ld.b64": ("ld", 8, 32),
        "ld.b128": ("ld", 16, 32),
        "st.b32": ("st", 4, 32),
        "st.b64": ("st", 8, 32),
        "st.b128": ("st", 16, 32),
        "ldmatrix.x1": ("ldmatrix", 16, 8),
        "ldmatrix.x2": ("ldmatrix", 16, 16),
        "ldmatrix.x4": ("ldmatrix", 16, 32),
        "stmatrix.x1": ("stmatrix", 16, 8),
        "stmatrix.x2": ("stmatrix", 16, 16),
        "stmatrix.x4": ("stmatrix", 16, 32),
        "wgmma": ("wgmma", 16, 0),
    }
)
"""Name -> the bank model's operation, bytes a lane, lanes."""
LANES = ("down", "along")
SLIDERS: Mapping[str, tuple[int, int]] = MappingProxyType({"bits": (0, 5), "base": (0, 7), "shift": (-5, 7)})
"""What the sliders of a swizzle reach."""
_ROWS, _CELLS, _LINES = 32, 1024, 32
_MAXIMUM_ELEMENTS = 1 << 16
_WORD = LABEL - 1


@dataclass(frozen=True)
class Numbers:
    """What is said beside the pictures: names and values, in order."""

    rows: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> str:
        return dict(self.rows)[name]


@dataclass(frozen=True)
class View:
    """All that a state shows. ``panels``: (name, picture); ``error``: why there are none, "" otherwise; ``phases``: how many the access has."""

    panels: tuple[tuple[str, Drawing], ...]
    numbers: Numbers
    error: str = ""
    phases: int = 0


@dataclass(frozen=True)
class Explorer:
    """A state: layout, swizzle (in elements), type, instruction, which lanes access what, and the phase that is looked at.

    ``lanes``: "down" (lane l at row l, then on to the next columns), "along" (along a row), or a layout from lane to index. Wrong
    values are no error here but in what ``view`` shows, since people type them letter by letter.

    >>> Explorer().view.numbers["wavefronts"], Explorer(bits=0).view.numbers["wavefronts"]
    ('4', '32')
    >>> Explorer.parse(Explorer(bits=2, phase=1).state) == Explorer(bits=2, phase=1)
    True
    """

    shape: str = "(32,64)"
    stride: str = "(64,1)"
    bits: int = 3
    base: int = 3
    shift: int = 3
    dtype: str = "bf16"
    instruction: str = "ldmatrix.x4"
    lanes: str = "down"
    phase: int = 0

    @property
    def state(self) -> str:
        """The state as one line, which ``parse`` reads.

        >>> Explorer().state
        'shape=(32,64) stride=(64,1) swizzle=3,3,3 dtype=bf16 instruction=ldmatrix.x4 lanes=down phase=0'
        """
        plain = {name: getattr(self, name).replace(" ", "") for name in ("shape", "stride", "lanes")}
        return (
            f"shape={plain['shape']} stride={plain['stride']} swizzle={self.bits},{self.base},{self.shift}"
            f" dtype={self.dtype} instruction={self.instruction} lanes={plain['lanes']} phase={self.phase}"
        )

    @staticmethod
    def parse(text: str) -> Explorer:
        """The state of a line that ``state`` wrote; what it leaves out has its default. Raises LayoutError for what is no state.

        >>> Explorer.parse("shape=(8,8) swizzle=0,3,3").shape
        '(8,8)'
        """
        found: dict[str, Any] = {}
        allowed = "shape, stride, swizzle, dtype, instruction, lanes, phase"
        for part in text.split():
            name, equals, value = part.partition("=")
            if not equals or name not in allowed.split(", "):
                raise LayoutError(f"state {part!r}: must be name=value with a name of {allowed}")
            if name == "swizzle":
                numbers = value.split(",")
                if len(numbers) != 3 or not all(n.lstrip("-").isdecimal() for n in numbers):
                    raise LayoutError(f"state {part!r}: a swizzle is three whole numbers, for example swizzle=3,3,3")
                found |= dict(zip(("bits", "base", "shift"), map(int, numbers), strict=True))
            elif name == "phase":
                if not value.isdecimal():
                    raise LayoutError(f"state {part!r}: a phase is a whole number from 0 on")
                found[name] = int(value)
            else:
                found[name] = value
        return Explorer(**found)

    def replaced(self, changes: Mapping[str, Any]) -> Explorer:
        """The state with other values, each of the type it has; a ``state`` among them replaces all. Raises LayoutError for a name or value that is none.

        >>> Explorer().replaced({"bits": 1}).bits
        1
        """
        if "state" in changes:
            return Explorer.parse(str(changes["state"]))
        names = {f.name for f in dataclasses.fields(self)}
        for name, value in changes.items():
            if name not in names or type(value) is not type(getattr(self, name)):
                raise LayoutError(
                    f"{name}={value!r}: must be one of {', '.join(sorted(names))}, with a value of its type"
                )
        return dataclasses.replace(self, **changes)

    # -- what follows from it ------------------------------------------------------------------------------------------

    @property
    def element_bytes(self) -> int:
        """Bytes of an element. Raises LayoutError for a type that is not offered.

        >>> Explorer(dtype="f32").element_bytes
        4
        """
        if self.dtype not in DTYPES:
            raise LayoutError(f"type {self.dtype!r}: must be one of {', '.join(DTYPES)}")
        return data_type(self.dtype).bits // 8

    @property
    def layout(self) -> Layout:
        """The layout without its swizzle. Raises LayoutError for one that is too large or is none of memory.

        >>> Explorer().layout
        Layout((32, 64), (64, 1))
        """
        layout = Layout.parse(f"{self.shape}:{self.stride}")
        if extent_of(layout) > _MAXIMUM_ELEMENTS:
            raise LayoutError(f"{layout} has {extent_of(layout)} elements: at most {_MAXIMUM_ELEMENTS} are looked at")
        if any(type(d) is not int or d < 0 for d in layout.flat[1]):
            raise LayoutError(f"{layout}: the strides must be numbers from 0 on, for offsets in memory")
        return layout

    @property
    def swizzle(self) -> Swizzle:
        """The swizzle, in elements. Raises LayoutError for parameters that make none.

        >>> Explorer().swizzle(64)
        72
        """
        return Swizzle(self.bits, self.base, self.shift)

    @property
    def access(self) -> Access:
        """What the warp does. Raises LayoutError for an instruction that is not offered.

        >>> Explorer(instruction="st.b64").access.bytes
        8
        """
        if self.instruction not in INSTRUCTIONS:
            raise LayoutError(f"instruction {self.instruction!r}: must be one of {', '.join(INSTRUCTIONS)}")
        op, size, count = INSTRUCTIONS[self.instruction]
        layout = self.layout
        rows, columns = _table(layout)
        wide = max(1, size // self.element_bytes)
        if self.instruction == "wgmma":
            rows, columns, count = min(rows, 64), min(columns, 32 // self.element_bytes), 0
            pairs = [(r, c) for c in range(0, columns, wide) for r in range(rows)]
        elif self.lanes == "down":
            pairs = [(lane % rows, lane // rows * wide % columns) for lane in range(count)]
        elif self.lanes == "along":
            across = max(columns // wide, 1)
            pairs = [(lane // across % rows, lane % across * wide) for lane in range(count)]
        else:
            return Access(size, Layout.parse(self.lanes), op, self.element_bytes)
        return Access(size, [r + rows * c for r, c in pairs], op, self.element_bytes)

    @cached_property
    def view(self) -> View:
        """The pictures and numbers; where the state makes none, why.

        >>> "multiple" in Explorer(stride="(63,1)").view.error or "aligned" in Explorer(stride="(63,1)").view.error
        True
        """
        try:
            return self._view()
        except (LayoutError, ValueError, TypeError, OverflowError) as error:
            return View((), Numbers(), str(error) or type(error).__name__)

    def _view(self) -> View:
        layout, swizzle, access, size = self.layout, self.swizzle, self.access, self.element_bytes
        seen = compose(swizzle, layout)
        report = bank_report(seen, access)
        offsets = access.byte_offsets(seen)
        phase = min(self.phase, max(len(report.phases) - 1, 0))
        chosen = report.phases[phase].lanes if report.phases else tuple(range(len(offsets)))
        numbers = [
            ("layout", str(seen)),
            ("size", str(extent_of(layout))),
            ("cosize", str(int(cosize(layout)))),
            ("swizzle", describe(swizzle)),
            ("wavefronts", str(report.wavefronts)),
            ("ideal", str(report.ideal)),
            ("ratio", f"{report.ratio:g}"),
        ]
        if report.phases:
            numbers.append(("this phase", f"{report.phases[phase].wavefronts} of them"))
        numbers.append(("smallest swizzle that mends it", self._mended(layout, access)))
        panels = [
            ("layout", _layout_panel(seen, access, offsets, chosen, size)),
            ("memory", _memory_panel(seen, access, offsets, chosen, size)),
        ]
        if report.phases:
            panels.append(("phase", _phase_panel(report, offsets, phase)))
        else:
            panels.append(("descriptor", self._descriptor(seen)))
            numbers.append(("descriptor", str(panels[-1][1].facts.get("word", "none: see the picture"))))
        high = max(12, (int(cosize(layout)) - 1).bit_length(), (swizzle.source_mask | swizzle.target_mask).bit_length())
        panels.append(("swizzle", swizzle_bits(swizzle, high, size)))
        return View(tuple(panels), Numbers(tuple(numbers)), "", len(report.phases))

    def _mended(self, layout: Layout, access: Access) -> str:
        if access.op == "wgmma":
            return "none is needed: operand reads never conflict"
        chosen = swizzle_search(layout, [access]).swizzle
        if chosen is None:
            return "none does"
        # The search speaks in the layout's units, the hardware's modes in bytes.
        unit = self.element_bytes.bit_length() - 1
        modes = {(m.bits, m.base - unit, m.shift): m.name for m in swizzle_modes() if m.bits and not m.flip_8_bytes}
        known = f", the hardware's {modes[chosen]}" if chosen in modes else ""
        return "none is needed" if chosen[0] == 0 else f"Swizzle{chosen}{known}"

    def _descriptor(self, seen: Any) -> Drawing:
        try:
            return descriptor_view(seen, self.dtype)
        except LayoutError as error:
            canvas = Canvas()
            canvas.text(0, 15, "no matrix descriptor names this layout", 14, "bold")
            lines = paragraph(str(error), 90)
            for i, line in enumerate(lines):
                canvas.text(0, 36 + 17 * i, line, 12, "warn")
            return Drawing.of("no matrix descriptor", canvas, "\n".join(["no matrix descriptor", *lines]))

    def drawing(self) -> Drawing:
        """All panels as one picture, for where there is no kernel.

        >>> Explorer().drawing().facts["ratio"]
        '1'
        """
        view = self.view
        if view.error:
            canvas = Canvas()
            canvas.text(0, 15, "nothing to show", 14, "bold")
            for i, line in enumerate(paragraph(view.error, 100)):
                canvas.text(0, 36 + 17 * i, line, 12, "warn")
            return Drawing.of(f"explorer: {view.error}", canvas, view.error)
        canvas = Canvas()
        canvas.text(0, 15, f"{self.instruction}, {self.dtype}, lanes {self.lanes}", 15, "bold")
        canvas.text(0, 34, self.state, 11, "faint")
        for i, (name, value) in enumerate(view.numbers.rows):
            canvas.text(0, 56 + 17 * i, name, 11, "faint")
            canvas.text(230, 56 + 17 * i, value, 11, "good" if (name, value) == ("ratio", "1") else "")
        words = "\n".join([self.state, *(f"  {name}: {value}" for name, value in view.numbers.rows)])
        names = _links("".join(picture.body for _, picture in view.panels))
        if len(names) > MAXIMUM:
            # Of too many words those of the phase are linked.
            names = _links(dict(view.panels).get("phase", view.panels[0][1]).body)[:MAXIMUM]
        add_rules(canvas, names)
        head = Drawing.of("explorer", canvas, words)
        first, second, *rest = (picture for _, picture in view.panels)
        whole = stack(head, beside(first, second), *rest)
        facts = {"ratio": view.numbers["ratio"], "state": self.state}
        return dataclasses.replace(whole, title=f"explorer: {self.state}", facts=MappingProxyType(facts))

    def _repr_html_(self) -> str:
        return self.drawing()._repr_html_()


def _links(body: str) -> list[str]:
    return list(dict.fromkeys(name for names in re.findall(r'data-link="([^"]*)"', body) for name in names.split()))


def _table(layout: Layout) -> tuple[int, int]:
    """Rows (the first mode) and columns (all others) of a layout."""
    rows = extent_of(layout[0]) if rank(layout) > 1 else 1
    return rows, extent_of(layout) // rows


def _word_names(byte: int, size: int) -> list[str]:
    return [f"w{word}" for word in range(byte // BANK_BYTES, (byte + size - 1) // BANK_BYTES + 1)]


def _lane_at(access: Access, offsets: tuple[int | None, ...], chosen: tuple[int, ...]) -> dict[int, int]:
    """From a byte offset at which a lane of the phase begins to the lane; the first of several."""
    found: dict[int, int] = {}
    for lane in chosen:
        offset = offsets[lane]
        if offset is not None:
            found.setdefault(offset, lane)
    return found


def _start(touched: list[int], shown: int, of: int) -> int:
    """The first row to show of ``of`` so that what is touched is seen: 0 wherever that will do.

    >>> _start([3, 9], 16, 64), _start([24, 31], 16, 64), _start([60, 63], 16, 64)
    (0, 24, 48)
    """
    return 0 if not touched or max(touched) < shown else max(min(min(touched), of - shown), 0)


def _layout_panel(
    seen: Any, access: Access, offsets: tuple[int | None, ...], chosen: tuple[int, ...], size: int
) -> Drawing:
    """The table of byte offsets, a cell for as many elements as a lane accesses; those of the phase's lanes are coloured."""
    plain = seen.layout if hasattr(seen, "layout") else seen
    rows, columns = _table(plain)
    wide = max(1, access.bytes // size)
    across = -(-columns // wide)
    shown_rows = min(rows, _ROWS, max(1, _CELLS // across))
    shown_across = min(across, _CELLS)
    lanes = _lane_at(access, offsets, chosen)
    bytes_of = [b * size for b in values(seen, range(extent_of(plain)))]
    canvas = Canvas()
    canvas.text(0, 14, f"layout: byte of each {'element' if wide == 1 else f'{wide} elements'}", 13, "bold")
    longest = max(len(str(b)) for b in bytes_of)
    width = max(24.0, text_width("0" * longest, _WORD) + 6)
    height = 17.0
    left, top = text_width(str(rows), _WORD) + 12, 40.0
    for c in range(0, shown_across, max(1, int(-(-text_width(str(columns), _WORD) // width)))):
        canvas.text(left + (c + 0.5) * width, top - 5, c * wide, _WORD, "faint", "middle")
    start = _start([i % rows for i, b in enumerate(bytes_of) if b in lanes], shown_rows, rows)
    for row in range(shown_rows):
        r = start + row
        canvas.text(left - 6, top + row * height + 12, r, _WORD, "faint", "end")
        for c in range(shown_across):
            parts = [bytes_of[r + rows * k] for k in range(c * wide, min((c + 1) * wide, columns))]
            first = parts[0]
            lane = lanes.get(first)
            line, bank = first // (BANK_BYTES * BANKS), first // BANK_BYTES % BANKS
            where = spell(coordinate(r + rows * c * wide, plain.shape))
            tip = f"{where}: byte {first}, line {line}, bank {bank}" + ("" if lane is None else f"; lane {lane}")
            data = joined(dict.fromkeys(name for byte in parts for name in _word_names(byte, size)))
            style, ink = ("empty", "faint") if lane is None else (group(lane), "on")
            x, y = left + c * width, top + row * height
            canvas.rect(x, y, width, height, f"cell {style}", tip, data)
            canvas.text(x + width / 2, y + 12, first, _WORD, ink, "middle")
    if (shown_rows, shown_across) != (rows, across):
        note = f"shown: {shown_rows} of {rows} rows, {shown_across * wide} of {columns} columns"
        canvas.text(0, top + shown_rows * height + 14, note, LABEL, "warn")
    words = f"layout {seen}: {rows} x {columns} elements"
    return Drawing.of("layout", canvas, words)


def _memory_panel(
    seen: Any, access: Access, offsets: tuple[int | None, ...], chosen: tuple[int, ...], size: int
) -> Drawing:
    """Shared memory as lines of 32 banks, labelled with the coordinates that lie there; what the phase touches is coloured by how many words its
    bank must serve."""
    plain = seen.layout if hasattr(seen, "layout") else seen
    cell = max(BANK_BYTES, min(access.bytes, 16), size)
    per_line = BANK_BYTES * BANKS // cell
    found: dict[int, int] = {}
    for index, offset in enumerate(values(seen, range(extent_of(plain)))):
        found.setdefault(offset * size // cell, index)
    lines = (max(found) // per_line) + 1
    shown = min(lines, _LINES)
    ways: dict[int, int] = {}
    touched = touches_of(offsets, chosen, access.bytes) if access.op != "wgmma" else {}
    for touches in touched.values():
        for touch in touches:
            place = touch.word * BANK_BYTES // cell
            ways[place] = max(ways.get(place, 1), touch.ways)
    canvas = Canvas()
    canvas.text(0, 14, f"shared memory: lines of 32 banks, {cell} bytes a cell", 13, "bold")
    start = _start([place // per_line for place in ways], shown, lines)
    inside = range(start * per_line, (start + shown) * per_line)
    labels = {n: spell(coordinate(i, plain.shape)).strip("()") for n, i in found.items() if n in inside}
    step = cell // BANK_BYTES

    def content(row: int, column: int) -> GridCell | None:
        return None

    left, top, width, height = draw_grid(
        canvas,
        0,
        22,
        shown,
        per_line,
        content,
        row_name=lambda r: str(start + r),
        column_name=lambda c: str(c * step),
        label_characters=max(map(len, labels.values()), default=1),
        height=17,
        axes="line  bank",
    )
    for place in inside:
        row, column = divmod(place - inside.start, per_line)
        x, y = left + column * width, top + row * height
        data = joined(_word_names(place * cell, cell)) if place in found else None
        style = heat(ways[place]) if place in ways else "empty"
        tip = f"bytes {place * cell} to {place * cell + cell - 1}: {labels.get(place, 'nothing')}"
        if place in ways:
            tip += f"; its bank serves {ways[place]} word{'s' * (ways[place] > 1)} of this phase"
        canvas.rect(x, y, width, height, f"cell {style}", tip, data)
        if place in labels:
            canvas.text(x + width / 2, y + 12, labels[place], _WORD, "on" if place in ways else "faint", "middle")
    y = top + shown * height + 6
    if shown < lines:
        canvas.text(0, y + 10, f"shown: {shown} of {lines} lines", LABEL, "warn")
        y += 18
    swatches = [
        (heat(1), "touched, alone in its bank"),
        (heat(2), "2 words in the bank"),
        (heat(4), "4"),
        (heat(8), "8"),
    ]
    if touched:
        canvas.legend(0, y + 4, swatches, limit=max(canvas.width, 500))
    return Drawing.of("memory", canvas, f"shared memory: {lines} lines")


def _phase_panel(report: BankReport, offsets: tuple[int | None, ...], number: int) -> Drawing:
    """The lanes of one phase, and the banks that each touches."""
    phase = report.phases[number]
    touched = touches_of(offsets, phase.lanes, report.access.bytes)
    canvas = Canvas()
    many = "" if phase.wavefronts == 1 else "s"
    title = f"phase {number} of {len(report.phases)}: {phase.wavefronts} wavefront{many}"
    canvas.text(0, 14, title, 13, "bold")
    width, height, left, top = 21.0, 17.0, 62.0, 40.0
    canvas.text(0, top - 5, "lane bank", _WORD, "faint")
    for bank in range(BANKS):
        canvas.text(left + (bank + 0.5) * width, top - 5, bank, _WORD, "faint", "middle")
    for row, lane in enumerate(phase.lanes):
        y = top + row * height
        canvas.rect(left - 24, y + 2, 13, 13, f"swatch {group(lane)}", f"lane {lane}")
        canvas.text(left - 30, y + 12, lane, _WORD, "faint", "end")
        canvas.rect(left, y, BANKS * width, height, "empty")
        for touch in touched[lane]:
            bank, line = touch.word % BANKS, touch.word // BANKS
            data = joined([f"w{touch.word}"])
            words = "1 word" if touch.ways == 1 else f"{touch.ways} different words"
            tip = f"lane {lane}: byte {offsets[lane]}, line {line}, bank {bank}; {words} in that bank"
            canvas.rect(left + bank * width, y, width, height, f"cell {heat(touch.ways)}", tip, data)
            if len(str(line)) < 4:
                canvas.text(left + (bank + 0.5) * width, y + 12, line, 9, "on", "middle")
    y = top + len(phase.lanes) * height + 12
    canvas.text(0, y, "on the cells: the line of 128 bytes; two lines in one bank take turns", LABEL, "faint")
    facts: dict[str, object] = {"phase": number, "phase-wavefronts": phase.wavefronts}
    return Drawing.of(title, canvas, title, facts)
