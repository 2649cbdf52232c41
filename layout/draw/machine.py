"""A kernel seen from outside: its shared memory, and the order in which its tiles are worked on. Takes plain tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import Layout, LayoutError
from ..hardware.tensor_map_rules import SHARED_MEMORY_LIMIT
from ..tuples import to_int
from .canvas import Canvas, text_width
from .drawing import Drawing
from .grid import LABEL, MAXIMUM_CELLS, MAXIMUM_LABELS, extent_of, values
from .style import GROUPS, group

_BAR = 760.0
_MAXIMUM_TILES = 1 << 20
_CUT = 64
_MAXIMUM_SLOTS = 64  # of more, the bar would show nothing


def shared_memory_map(
    parts: Sequence[tuple[str, int, int]],
    stages: Mapping[str, int] | None = None,
    capacity: int = SHARED_MEMORY_LIMIT,
    title: str = "shared memory",
) -> Drawing:
    """What lies where in a kernel's shared memory: a bar to scale, and a table of offsets and bytes.

    ``parts``: (what, offset, bytes) in bytes, in any order; ``stages``: into how many equal slots a part is divided;
    ``capacity``: what a CTA can have, by default Hopper's. Raises LayoutError where parts overlap, leave 0 or a part's
    slots are not equal.

    >>> shared_memory_map([("tiles", 0, 65536), ("barriers", 65536, 64)], {"tiles": 4}).facts["bytes"]
    65600
    """
    stages = stages or {}
    for name, offset, length in parts:
        for what, value in ((f"offset of {name}", offset), (f"bytes of {name}", length)):
            if to_int(value, what) < 0:
                raise LayoutError(f"{what} is {value}: must not be negative")
    for name, slots in stages.items():
        if to_int(slots, f"slots of {name}") < 1:
            raise LayoutError(f"{name} has {slots} slots: must be at least 1")
        if name not in {part[0] for part in parts}:
            raise LayoutError(f"stages names {name!r}, which is no part: {', '.join(part[0] for part in parts)}")
    if to_int(capacity, "capacity") < 1:
        raise LayoutError(f"capacity={capacity}: must be at least 1 byte")
    ordered = sorted(((n, o, b) for n, o, b in parts if b > 0), key=lambda part: part[1])
    if not ordered:
        raise LayoutError("no part has any bytes: nothing to draw")
    end = 0
    for name, offset, length in ordered:
        if offset < end:
            raise LayoutError(f"{name} begins at {offset}, before the part below it ends at {end}")
        if length % stages.get(name, 1):
            raise LayoutError(f"{name}: {length} bytes are no {stages[name]} equal slots")
        end = offset + length
    whole = max(capacity, end)
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    used = f"{end} of {capacity} bytes, {100 * end / capacity:.1f} %"
    canvas.text(0, 34, used, 12, "good" if end <= capacity else "warn")
    y = 48.0
    canvas.rect(0, y, _BAR * capacity / whole, 34, "box", f"{capacity} bytes")
    rows = []
    for i, (name, offset, length) in enumerate(ordered):
        slots = stages.get(name, 1)
        drawn = slots if slots <= _MAXIMUM_SLOTS else 1
        for slot in range(drawn):
            begin = offset + slot * length // drawn
            width = max(_BAR * length / drawn / whole, 2)
            part = f"{name}, slot {slot}" if drawn > 1 else name
            tip = f"{part}: bytes {begin} to {begin + length // drawn - 1}"
            data = {"part": name, "offset": begin, "bytes": length // drawn}
            canvas.rect(_BAR * begin / whole, y, width, 34, f"cell {group(i)}", tip, data)
            if drawn > 1 and width >= text_width(str(slot), 10) + 4:
                canvas.text(_BAR * begin / whole + width / 2, y + 21, slot, 10, "on", "middle")
        each = f"{slots} slots of {length // slots}" if slots > 1 else ""
        rows.append((name, str(offset), str(length), each))
    y += 58
    columns = ("part", "offset", "bytes", "")
    x = 20.0
    for column, heading in enumerate(columns):
        if heading:
            canvas.text(x, y, heading, 11, "faint")
        for i, row in enumerate(rows):
            if row[column]:
                canvas.text(x, y + 20 + 20 * i, row[column], 12)
        x += max(text_width(text, 12) for text in [heading, *(row[column] for row in rows)]) + 22
    for i in range(len(rows)):
        canvas.rect(0, y + 9 + 20 * i, 13, 13, f"swatch {group(i)}")
    width = max(len(row[0]) for row in rows) + 2
    words = [title, f"  {used}"]
    words += [f"  {row[1]:>8}  {row[0]:<{width}}{row[2]:>8}  {row[3]}".rstrip() for row in rows]
    return Drawing.of(title, canvas, "\n".join(words), {"bytes": end, "capacity": capacity})


def tiles_touched(order: Sequence[tuple[int, int]], window: int) -> float:
    """Rows of A plus columns of B that ``window`` consecutive tiles touch, averaged over every such window.

    >>> tiles_touched([(0, 0), (0, 1), (1, 1), (1, 0)], 2)
    3.0
    """
    if not 1 <= window <= len(order):
        raise LayoutError(f"window={window}: must be 1 to {len(order)}, the number of tiles")
    total = 0
    for start in range(len(order) - window + 1):
        part = order[start : start + window]
        total += len({row for row, _ in part}) + len({column for _, column in part})
    return total / (len(order) - window + 1)


def grouped_order(rows: int, columns: int, group: int) -> list[tuple[int, int]]:
    """Groups of ``group`` rows of tiles, each walked column by column; the last group may be lower.

    >>> grouped_order(3, 2, 2)
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    for name, value in (("rows", rows), ("columns", columns), ("group", group)):
        if to_int(value, name) < 1:
            raise LayoutError(f"{name}={value}: must be at least 1")
    if rows * columns > _MAXIMUM_TILES:
        raise LayoutError(f"{rows} x {columns} tiles: at most {_MAXIMUM_TILES} are listed; order a part of them")
    return [
        (row, column)
        for start in range(0, rows, group)
        for column in range(columns)
        for row in range(start, min(start + group, rows))
    ]


def _order_of(order: Layout | Sequence[tuple[int, int]], rows: int | None) -> list[tuple[int, int]]:
    if isinstance(order, Layout):
        if rows is None:
            raise LayoutError("an order given as a layout maps to row + rows * column: say how many rows")
        return [(v % rows, v // rows) for v in values(order, range(extent_of(order)))]
    try:
        return [(to_int(row, "a row"), to_int(column, "a column")) for row, column in order]
    except (TypeError, ValueError) as error:
        raise LayoutError(f"an order is a Layout or a list of (row, column), not {order!r:.60}") from error


def tile_order(
    order: Layout | Sequence[tuple[int, int]],
    processors: int,
    panel: int | None = None,
    window: int = 8,
    rows: int | None = None,
    title: str = "order of tiles",
) -> Drawing:
    """The order in which a grid of output tiles is worked on: a cell is a tile, labelled with its place in the order and
    coloured by wave; panels of ``panel`` rows, whose operands stay in L2, are outlined. Of more than 8,192 tiles the first 64 x 64 are drawn.

    ``order``: (row, column) of each tile in turn, or a Layout from the turn to row + rows * column; ``processors``: how many
    tiles run at once (a wave); ``window``: consecutive tiles whose rows of A and columns of B are counted. Raises LayoutError
    for an order that names a tile twice.

    >>> by_rows = [(r, c) for r in range(8) for c in range(8)]
    >>> tile_order(by_rows, processors=16).facts["touched"]
    '9.860'
    """
    turns = _order_of(order, rows)
    if not turns:
        raise LayoutError("the order names no tile: nothing to draw")
    if len(set(turns)) != len(turns):
        raise LayoutError("the order names a tile twice")
    if min(min(tile) for tile in turns) < 0:
        raise LayoutError(f"the order names the tile {min(turns)}: rows and columns count from 0")
    for name, value in (("processors", processors), ("window", window), ("panel", panel or 1)):
        if to_int(value, name) < 1:
            raise LayoutError(f"{name}={value}: must be at least 1")
    height, width = 1 + max(r for r, _ in turns), 1 + max(c for _, c in turns)
    # A grid of more tiles is cut to its corner, and the picture says so.
    cut = height * width > MAXIMUM_CELLS
    tall_part, wide_part = (min(height, _CUT), min(width, _CUT)) if cut else (height, width)
    waves = -(-len(turns) // processors)
    last = len(turns) - (waves - 1) * processors
    touched = f"{tiles_touched(turns, min(window, len(turns))):.3f}"
    labelled = tall_part * wide_part <= MAXIMUM_LABELS
    cell = max(24.0, text_width(str(len(turns) - 1), LABEL) + 8) if labelled else 8.0
    tall = 20.0 if labelled else 8.0
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    many = "" if waves == 1 else "s"
    summary = (
        f"{height} x {width} tiles on {processors} processors: {waves} wave{many}, the last with {last}",
        f"{min(window, len(turns))} consecutive tiles touch {touched} rows of A and columns of B",
    )
    for i, line in enumerate(summary):
        canvas.text(0, 34 + 17 * i, line, 12, "faint")
    left, top = 30.0, 79.0
    every = 1 if labelled else 4
    for c in range(0, wide_part, every):
        canvas.text(left + (c + 0.5) * cell, top - 6, c, 10, "faint", "middle")
    for r in range(0, tall_part, 1 if labelled else 2):
        canvas.text(left - 6, top + (r + 0.5) * tall + 3.5, r, 10, "faint", "end")
    for turn, (r, c) in enumerate(turns):
        if r >= tall_part or c >= wide_part:
            continue
        wave = turn // processors
        tip = f"turn {turn}, wave {wave}: tile ({r},{c})"
        data = {"turn": turn} if labelled else None
        label = str(turn) if labelled else ""
        canvas.cell(left + c * cell, top + r * tall, cell, tall, group(wave), label, tip, LABEL, data)
    if panel:
        for start in range(0, tall_part, panel):
            rows_here = min(panel, tall_part - start)
            canvas.rect(left, top + start * tall, wide_part * cell, rows_here * tall, "panel", None, {"panel": start})
    y = top + tall_part * tall + 8
    if cut:
        canvas.text(0, y + 10, f"shown: the first {tall_part} x {wide_part} of {height} x {width} tiles", 11, "warn")
        y += 18
    shown = [(group(w), f"wave {w}") for w in range(min(waves, GROUPS))]
    y = canvas.legend(0, y, shown + ([("empty", "colours repeat")] if waves > GROUPS else []))
    if panel:
        canvas.text(0, y + 8, f"outlined: panels of {panel} rows of tiles", 11, "faint")
    facts: dict[str, object] = {"waves": waves, "last": last, "touched": touched, "tiles": len(turns)}
    return Drawing.of(title, canvas, _order_words(title, summary, turns, height, width), facts)


def _order_words(title: str, summary: tuple[str, ...], turns: list[tuple[int, int]], height: int, width: int) -> str:
    place: dict[tuple[int, int], Any] = {tile: turn for turn, tile in enumerate(turns)}
    digits = len(str(len(turns))) + 1
    lines = [title, *(f"  {line}" for line in summary)]
    for r in range(min(height, 32)):
        lines.append("  " + "".join(f"{place.get((r, c), '.'):>{digits}}" for c in range(min(width, 32))))
    if height > 32 or width > 32:
        lines.append("  ...")
    return "\n".join(lines)
