"""The layout card: a layout's grid of offsets, its tree of modes, and what can be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .. import LayoutError, SwizzledLayout, coalesce, cosize, depth, rank
from ..lattice import collision
from ..tuples import flatten_tuple, show, to_int
from .canvas import Canvas, text_width
from .drawing import Drawing
from .grid import LABEL, MAXIMUM_LABELS, AnyLayout, Cell, Table, coordinate, draw_grid, extent_of, spell, values
from .style import GROUPS, group

_MAXIMUM_COUNTED = 1 << 17
_TEXT_ROWS, _TEXT_COLUMNS = 64, 32


def _injective(layout: AnyLayout) -> bool | None:
    """Whether no two coordinates share an offset; None where that is not settled."""
    # A swizzle is one to one, so only the layout inside matters.
    plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
    shape, stride = plain.flat
    if all(type(d) is int for d in stride):
        try:
            return collision(list(zip(shape, stride, strict=True))) is None
        except LayoutError:
            return None
    count = extent_of(plain)
    return len({plain(i) for i in range(count)}) == count if count <= _MAXIMUM_COUNTED else None


def _wanted(shape: Any, given: Any) -> list[tuple[int, int | None]]:
    """(extent, the coordinate that is marked or None for all) of each leaf of a shape, for a coordinate with Nones."""
    if given is None:
        return [(extent_of(extent), None) for extent in flatten_tuple(shape)]
    if isinstance(given, tuple) and (not isinstance(shape, tuple) or len(given) != len(shape)):
        if len(given) != 1:
            raise LayoutError(f"the highlight {spell(given)} does not fit the shape {show(shape)}")
        return _wanted(shape, given[0])
    if isinstance(given, tuple):
        return [leaf for mode, part in zip(shape, given, strict=True) for leaf in _wanted(mode, part)]
    extent = extent_of(shape)
    if not 0 <= to_int(given, "a highlighted coordinate") < extent:
        raise LayoutError(f"the highlight {given} is outside the shape {show(shape)}: 0 to {extent - 1}")
    if isinstance(shape, tuple):
        return _wanted(shape, coordinate(given, shape))
    return [(extent, given)]


def _highlighted(layout: AnyLayout, highlight: Any, shown: Sequence[int | None]) -> tuple[frozenset[int], int]:
    """Which of the indices shown a coordinate with Nones marks, and how many it marks in all."""
    if highlight is None:
        return frozenset(), 0
    leaves = _wanted(layout.shape, highlight)

    def marked(index: int) -> bool:
        for extent, want in leaves:
            index, place = divmod(index, extent)
            if want is not None and place != want:
                return False
        return True

    total = prod(extent for extent, want in leaves if want is None)
    return frozenset(index for index in shown if index is not None and marked(index)), total


def _tree(canvas: Canvas, x: float, y: float, shape: Any, stride: Any, name: str = "") -> tuple[float, float, float]:
    """Draw a mode and what is in it; returns its centre, its width and the height used."""
    label = f"{show(shape)}:{show(stride)}"
    own = text_width(label, LABEL) + 14
    if isinstance(shape, tuple) and shape:
        left, centres, used = x, [], 0.0
        for s, d in zip(shape, stride, strict=True):
            centre, width, height = _tree(canvas, left, y + 42, s, d)
            left += width + 10
            centres.append(centre)
            used = max(used, height)
        width = max(own, left - 10 - x)
        centre = x + width / 2 if width == own else (centres[0] + centres[-1]) / 2
        for child in centres:
            canvas.path(f"M{centre:.1f} {y + 22:.1f}L{child:.1f} {y + 42:.1f}", "line")
        box = max(x, min(centre - own / 2, x + width - own))
        height = used + 42
    else:
        centre, width, box, height = x + own / 2, own, x, 22.0
    canvas.rect(box, y, own, 22, "box mode", f"mode {label}", {"mode": label}, 4)
    canvas.text(box + own / 2, y + 15, label, LABEL, "", "middle")
    return centre, width, height


def _facts(layout: AnyLayout) -> dict[str, object]:
    injective = _injective(layout)
    facts: dict[str, object] = {
        "size": extent_of(layout),
        "cosize": show(cosize(layout)) if isinstance(cosize(layout), tuple) else int(cosize(layout)),
        "rank": rank(layout),
        "depth": depth(layout),
        "coalesced": str(coalesce(layout)),
    }
    if injective is not None:
        facts["injective"] = "yes" if injective else "no"
    return facts


def _words(layout: AnyLayout, table: Table, facts: dict[str, object], marked: frozenset[int]) -> str:
    lines = [str(layout), *(f"  {name:<12}{value}" for name, value in facts.items())]
    columns = min(table.columns, _TEXT_COLUMNS)
    rows = min(table.rows, _TEXT_ROWS)
    cells = []
    for row in range(rows):
        indices = [table.index(row, column) for column in range(columns)]
        known = [i for i in indices if i is not None]
        offsets = values(layout, known)
        cells.append([f"[{v}]" if i in marked else str(v) for i, v in zip(known, offsets, strict=True)])
    width = max(len(cell) for line in cells for cell in line) + 1
    for line in cells:
        end = " ..." if columns < table.all_columns and not table.wrapped else ""
        lines.append("  " + "".join(f"{cell:>{width}}" for cell in line) + end)
    if rows < table.all_rows:
        lines.append(f"  ... {table.all_rows - rows} more rows")
    return "\n".join(lines)


def layout_card(layout: AnyLayout, highlight: Any = None, title: str | None = None, colours: str = "order") -> Drawing:
    """The grid of offsets (first mode down, the others across), the tree of modes, size, cosize, rank, depth, the simplest
    form, and whether two coordinates share an offset.

    ``layout``: a Layout, swizzled or not. ``highlight``: a coordinate with None for whole modes, outlined. ``colours``:
    "order" paints eight bands of the offsets' range, "columns" the columns. A layout of more than 8,192 cells is cut to its
    first 32 by 32. Raises LayoutError for a highlight that does not fit.

    >>> from stridewright.layout import Layout
    >>> card = layout_card(Layout((4, 8), (8, 1)), highlight=(2, None))
    >>> card.facts["cosize"], card.facts["highlighted"]
    (32, 8)
    """
    if colours not in ("order", "columns"):
        raise LayoutError(f'colours {colours!r}: must be "order" or "columns"')
    table = Table.of(layout)
    indices = table.indices()
    marked, total = _highlighted(layout, highlight, indices)
    offsets = dict(
        zip([i for i in indices if i is not None], values(layout, [i for i in indices if i is not None]), strict=True)
    )
    facts = _facts(layout)
    if highlight is not None:
        facts["highlighted"] = total
    canvas = Canvas()
    canvas.text(0, 15, title or str(layout), 15, "bold")
    y = 36.0
    known = [f"{name} {value}" for name, value in facts.items() if name != "coalesced"]
    canvas.text(0, y, " · ".join(known), 12, "faint")
    y += 18
    if title:
        canvas.text(0, y, str(layout), 12, "faint")
        y += 18
    canvas.text(0, y, f"coalesced  {facts['coalesced']}", 12, "faint")
    y += 14
    if rank(layout) > 1 or depth(layout) > 0:
        plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
        _, _, used = _tree(canvas, 0, y, plain.shape, plain.stride)
        y += used + 12
    numeric = all(type(v) is int for v in offsets.values())
    low = min(offsets.values()) if numeric else 0
    span = max(offsets.values()) - low + 1 if numeric else 1
    shape = layout.shape
    labelled = len(indices) <= MAXIMUM_LABELS
    characters = max(len(str(v)) for v in offsets.values())

    def cell(row: int, column: int) -> Cell | None:
        index = table.index(row, column)
        if index is None:
            return None
        offset = offsets[index]
        band = column if colours == "columns" else (offset - low) * GROUPS // span if numeric else column
        # Of many cells the tooltips are most of the file: rows and columns say less than nested coordinates, but fit.
        place = spell(coordinate(index, shape)) if labelled else f"{row},{column}"
        return Cell(group(band), str(offset), f"{place}: {offset}")

    corner = draw_grid(
        canvas,
        0,
        y,
        table.rows,
        table.columns,
        cell,
        row_name=(lambda r: str(r * table.all_columns)) if table.wrapped else str,
        label_characters=characters,
        labelled=labelled,
    )
    _outline(canvas, table, marked, corner)
    y = canvas.height + 10
    if table.cut:
        canvas.text(0, y + 8, table.note(), 11, "warn")
        y += 20
    meaning = (
        "colours: eight bands of the offsets, low to high" if colours == "order" and numeric else "colours: columns"
    )
    if numeric and span >= GROUPS and colours == "order":
        y = canvas.legend(
            0,
            y,
            [(group(b), f"from {low + -(-b * span // GROUPS)}") for b in range(GROUPS)],
            limit=max(760, canvas.width),
        )
    else:
        canvas.text(0, y + 8, meaning, 11, "faint")
        y += 18
    if total:
        canvas.text(0, y + 12, f"outlined: {spell(highlight)}, {total} cell{'s' * (total != 1)}", 11, "faint")
    words = _words(layout, table, facts, marked)
    return Drawing.of(title or f"Layout {layout}", canvas, words, facts)


def _outline(canvas: Canvas, table: Table, marked: frozenset[int], place: Sequence[float]) -> None:
    left, top, width, height = place
    for row in range(table.rows):
        for column in range(table.columns):
            index = table.index(row, column)
            if index is not None and index in marked:
                canvas.rect(left + column * width + 1, top + row * height + 1, width - 2, height - 2, "mark")


def layout_svg(layout: AnyLayout, highlight: Any = None, title: str | None = None) -> str:
    """The layout card as an SVG document.

    >>> from stridewright.layout import Layout
    >>> layout_svg(Layout((4, 8), (8, 1))).startswith("<svg")
    True
    """
    return layout_card(layout, highlight, title).svg()
