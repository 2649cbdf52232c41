"""The bank map: shared memory as lines of 32 banks, each cell labelled with the coordinate that lies there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import LayoutError, Swizzle, SwizzledLayout, compose
from ..banks import BANK_BYTES, BANKS
from ..hardware.tensor_map_rules import CHUNK
from ..tuples import to_int
from .canvas import Canvas
from .drawing import Drawing, stack
from .grid import MAXIMUM_CELLS, MAXIMUM_LABELS, AnyLayout, Cell, coordinate, draw_grid, extent_of, spell, values
from .style import group

Colours = str | Callable[[Any], int]
"""How a cell gets its colour: "rows", "columns", or a function from a coordinate to a number."""

LINE = BANKS * BANK_BYTES
_CUT_LINES = 64
_MAXIMUM_ELEMENTS = 1 << 20


def _contents(
    layout: AnyLayout, element_bytes: int, cell_bytes: int, limit: int
) -> tuple[dict[int, list[int]], int, int]:
    """Cell number (byte offset // cell_bytes) -> the indices of the elements that begin there, in order of offset, for the
    lines shown; how many lines those are; and how many there are.
    """
    import numpy as np

    number, columns = extent_of(layout), LINE // cell_bytes
    if number > _MAXIMUM_ELEMENTS:
        raise LayoutError(f"{layout} has {number} elements: a bank map shows at most {_MAXIMUM_ELEMENTS}; slice it")
    plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
    if any(not isinstance(stride, int) for stride in plain.flat[1]):
        raise LayoutError(f"{layout} has basis strides: a bank map needs offsets in memory")
    cells = np.asarray(values(layout, range(number)), np.int64) * element_bytes
    if cells.min() < 0:
        raise LayoutError(f"{layout} has negative offsets: shift it to start at 0")
    lines = int(cells.max()) // LINE + 1
    shown = lines if lines * columns <= limit else _CUT_LINES
    kept = np.flatnonzero(cells < shown * LINE)
    found: dict[int, list[int]] = {}
    for index in kept[np.argsort(cells[kept], kind="stable")].tolist():
        found.setdefault(int(cells[index]) // cell_bytes, []).append(index)
    return found, shown, lines


def _one(layout: AnyLayout, element_bytes: int, cell_bytes: int, colours: Colours, title: str, limit: int) -> Drawing:
    columns = LINE // cell_bytes
    contents, shown, lines = _contents(layout, element_bytes, cell_bytes, limit)
    shape = layout.shape
    labels = {number: spell(coordinate(indices[0], shape)).strip("()") for number, indices in contents.items()}
    labelled = len(labels) <= MAXIMUM_LABELS
    canvas = Canvas()
    canvas.text(0, 14, title, 13, "bold")
    canvas.text(0, 32, f"{lines} lines of {LINE} bytes; a cell is {cell_bytes} bytes", 11, "faint")

    place, meaning = _colouring(layout, element_bytes, colours)

    def cell(row: int, column: int) -> Cell:
        number = row * columns + column
        if number not in contents:
            return Cell("empty")
        first = coordinate(contents[number][0], shape)
        last = coordinate(contents[number][-1], shape)
        chosen = colours(first) if callable(colours) else place(contents[number][0])
        several = f" .. {spell(last)}" if len(contents[number]) > 1 else ""
        bank = number * cell_bytes // BANK_BYTES % BANKS
        until = f"-{bank + cell_bytes // BANK_BYTES - 1}" if cell_bytes > BANK_BYTES else ""
        return Cell(
            group(chosen),
            labels[number],
            f"{spell(first)}{several} at byte {number * cell_bytes}, bank {bank}{until}, line {row}",
        )

    per_cell = cell_bytes // BANK_BYTES
    draw_grid(
        canvas,
        0,
        38,
        shown,
        columns,
        cell,
        row_name=lambda r: str(r),
        column_name=(lambda c: f"{c * per_cell}-{c * per_cell + per_cell - 1}") if per_cell > 1 else str,
        label_characters=max(map(len, labels.values()), default=1),
        labelled=labelled,
        minimum_width=44 if per_cell > 1 else 20,
        axes="line  bank",
    )
    y = canvas.height + 6
    if shown < lines:
        canvas.text(0, y + 10, f"shown: the first {shown} of {lines} lines", 11, "warn")
    else:
        canvas.text(0, y + 10, f"label: coordinate of a cell's first element; colour: {meaning}", 11, "faint")
    words = _words(title, labels, columns, shown, per_cell, lines)
    return Drawing.of(title, canvas, words, {"lines": lines, "cells": len(contents)})


def _colouring(layout: AnyLayout, element_bytes: int, colours: Colours) -> tuple[Callable[[int], int], str]:
    """From an element's index to its colour, and what the colour means."""
    if callable(colours):
        return int, "as chosen"
    rows = extent_of(layout.shape[0]) if isinstance(layout.shape, tuple) and len(layout.shape) > 1 else 1
    if colours == "rows":
        return (lambda index: index % rows), "its row, repeating after 8"
    if colours != "columns":
        raise LayoutError(f'colours {colours!r}: must be "rows", "columns" or a function of the coordinate')
    chunk = max(1, CHUNK // element_bytes)
    several = f"its column in chunks of {chunk}" if chunk > 1 else "its column"
    return (lambda index: index // rows // chunk), f"{several}, repeating after 8"


def _words(title: str, labels: dict[int, str], columns: int, shown: int, per_cell: int, lines: int) -> str:
    width = max(map(len, labels.values()), default=1) + 1
    result = [title, "  bank  " + "".join(f"{c * per_cell:>{width}}" for c in range(columns))]
    for row in range(min(shown, 32)):
        cells = "".join(f"{labels.get(row * columns + c, '.'):>{width}}" for c in range(columns))
        result.append(f"  {row:>4}  {cells}")
    if lines > 32 or shown < lines:
        result.append(f"  ... {lines - min(shown, 32)} more lines")
    return "\n".join(result)


def bank_map(
    layout: AnyLayout,
    element_bytes: int,
    swizzle: Swizzle | None = None,
    cell_bytes: int = BANK_BYTES,
    colours: Colours = "columns",
    title: str | None = None,
) -> Drawing:
    """Where in the 32 banks each element lies; with ``swizzle``, before and after it.

    ``layout``: coordinates to offsets in units of ``element_bytes``; ``swizzle`` in the same units. ``cell_bytes``: bytes of
    a cell, 4 for a bank or 16 for a chunk of four. ``colours``: "columns" (in chunks of 16 bytes), "rows", or a function of the coordinate. Raises
    LayoutError for negative offsets, for a cell narrower than an element, and beyond 2**20 elements.

    >>> from stridewright.layout import Layout
    >>> print(bank_map(Layout((2, 4), (4, 1)), element_bytes=16, cell_bytes=16).text())
    (2,4):(4,1)
      bank     0   4   8  12  16  20  24  28
         0   0,0 0,1 0,2 0,3 1,0 1,1 1,2 1,3
    """
    cell_bytes, element_bytes = to_int(cell_bytes, "cell_bytes"), to_int(element_bytes, "element_bytes")
    if cell_bytes not in (4, 8, 16, 32):
        raise LayoutError(f"cell_bytes={cell_bytes}: must be 4, 8, 16 or 32")
    if element_bytes < 1 or (element_bytes > cell_bytes):
        raise LayoutError(f"element_bytes={element_bytes}: must be 1 to cell_bytes={cell_bytes}; give a larger cell")
    name = title or str(layout)
    if swizzle is None:
        return _one(layout, element_bytes, cell_bytes, colours, name, MAXIMUM_CELLS)
    limit = MAXIMUM_CELLS // 2
    before = _one(layout, element_bytes, cell_bytes, colours, name, limit)
    after = _one(compose(swizzle, layout), element_bytes, cell_bytes, colours, f"{name} after {swizzle}", limit)
    return stack(before, after)
