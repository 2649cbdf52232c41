"""Generated source beside the layouts that it comes from: pointing at a line outlines the cells behind it, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import LayoutError
from .canvas import Canvas, text_width
from .drawing import Drawing
from .grid import LABEL
from .links import add_rules, joined
from .style import group

_LINE = 17.0
_MAXIMUM_LINES, _MAXIMUM_CELLS = 200, 2048


@dataclass(frozen=True)
class SourceLine:
    """A line of source; ``names``: what it derives, empty for a comment; ``why``: from what it follows, in words."""

    text: str
    names: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class LinkedCell:
    """A cell of a layout's table: its label, its tooltip, and the names that are derived from it."""

    label: str
    tip: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class LinkedTable:
    """A layout as rows of cells. ``rows`` and ``columns``: their headings; rows may leave some out; ``notes``: lines below the title."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[LinkedCell, ...], ...]
    axes: str = ""
    notes: tuple[str, ...] = ()


def linked_source(
    tables: Sequence[LinkedTable], lines: Sequence[SourceLine], title: str = "layout and source"
) -> Drawing:
    """Tables of layouts above the source that is derived from them. A cell that something comes from is coloured.

    Raises LayoutError for more than 200 lines or 2,048 cells, and for a name that a cell has and no line.

    >>> table = LinkedTable("tile", ("0", "1"), ("0",), ((LinkedCell("0", "row 0"),), (LinkedCell("64", "row 1", ("PITCH",)),)))
    >>> linked_source([table], [SourceLine("constexpr int PITCH = 64;", ("PITCH",), "row 1 minus row 0")]).facts["links"]
    1
    """
    names = list(dict.fromkeys(name for line in lines for name in line.names))
    count = sum(len(row) for table in tables for row in table.cells)
    if len(lines) > _MAXIMUM_LINES or count > _MAXIMUM_CELLS:
        raise LayoutError(
            f"{len(lines)} lines and {count} cells: at most {_MAXIMUM_LINES} and {_MAXIMUM_CELLS}; show a part"
        )
    unknown = {name for table in tables for row in table.cells for cell in row for name in cell.names} - set(names)
    if unknown:
        raise LayoutError(f"cells name {', '.join(sorted(unknown))}, which no line derives")
    colour = {name: group(i) for i, name in enumerate(names)}
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    canvas.text(
        0, 34, "point at a line to see the cells it comes from, or at a cell to see what comes from it", 11, "faint"
    )
    y = 56.0
    for table in tables:
        y += _table(canvas, 0, y, table, colour) + 14
    # The source stands beside the tables, and below them only where there are none.
    x = max((_width(table) for table in tables), default=0.0)
    x, y = (x + 40, 56.0) if x else (0.0, 56.0)
    wide = max((text_width(line.text, 11) for line in lines), default=0) + 10
    for line in lines:
        if line.names:
            tip = f"{line.text.strip()}\n{line.why}" if line.why else line.text.strip()
            canvas.rect(x + 18, y, wide, _LINE, "hit", tip, joined(line.names))
            canvas.rect(x, y + 3, 10, 10, f"swatch {colour[line.names[0]]}", line.why or None)
        # Spaces at the start of a text are dropped by SVG: they are drawn as a distance.
        indent = len(line.text) - len(line.text.lstrip())
        left = x + 22 + text_width(" " * indent, 11)
        canvas.text(left, y + 12.5, line.text.strip(), 11, "" if line.names else "bold")
        y += _LINE if line.names else _LINE + 3
    add_rules(canvas, names)
    words = [title]
    for table in tables:
        words.append(f"  {table.title}")
        for row_name, row in zip(table.rows, table.cells, strict=True):
            words.append(f"    {row_name:>5}  " + " ".join(f"{cell.label:>7}" for cell in row))
    words += [f"  {line.text}{f'    <- {line.why}' if line.why else ''}" for line in lines]
    return Drawing.of(title, canvas, "\n".join(words), {"links": len(names), "cells": count})


def _measure(table: LinkedTable) -> tuple[float, float]:
    """The width of a cell and of the row headings."""
    labels = [*(cell.label for row in table.cells for cell in row), *table.columns]
    cell = max(26.0, max(text_width(label, LABEL - 1) for label in labels) + 8)
    left = max([text_width(name, LABEL) for name in table.rows] + [text_width(table.axes, LABEL - 1)]) + 8
    return cell, left


def _width(table: LinkedTable) -> float:
    cell, left = _measure(table)
    texts = [text_width(table.title, 12), *(text_width(note, 11) for note in table.notes)]
    return max(left + cell * len(table.columns), *texts)


def _table(canvas: Canvas, x: float, y: float, table: LinkedTable, colour: dict[str, str]) -> float:
    """Draws a table; returns its height."""
    cell_width, left = _measure(table)
    canvas.text(x, y + 12, table.title, 12, "bold")
    for i, note in enumerate(table.notes):
        canvas.text(x, y + 29 + 16 * i, note, 11, "faint")
    top = y + 36 + 16 * len(table.notes)
    if table.axes:
        canvas.text(x, top - 5, table.axes, LABEL - 1, "faint")
    for i, name in enumerate(table.columns):
        canvas.text(x + left + (i + 0.5) * cell_width, top - 5, name, LABEL - 1, "faint", "middle")
    for j, (name, row) in enumerate(zip(table.rows, table.cells, strict=True)):
        canvas.text(x + left - 6, top + 19 * j + 13, name, LABEL - 1, "faint", "end")
        for i, cell in enumerate(row):
            style = colour[cell.names[0]] if cell.names else "empty"
            tip = cell.tip + (f"\nfrom it: {', '.join(cell.names)}" if cell.names else "")
            place = x + left + i * cell_width
            ink = "on" if cell.names else "faint"
            canvas.rect(place, top + 19 * j, cell_width, 19, f"cell {style}", tip, joined(cell.names))
            canvas.text(place + cell_width / 2, top + 19 * j + 13, cell.label, LABEL - 1, ink, "middle")
    return top - y + 19 * len(table.rows)
