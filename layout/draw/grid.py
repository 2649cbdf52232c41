"""What views share: a layout's values as a table of rows and columns, and the table as cells with headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import Layout, LayoutError, SwizzledLayout, rank, size
from .canvas import Canvas, text_width

MAXIMUM_CELLS = 8_192
"""A table of more cells is cut to its first rows and columns, and the picture says so."""
MAXIMUM_LABELS = 2_048
"""Cells of a larger table carry no text, only tooltips."""
CUT = (32, 32)
WRAP = 32
LABEL = 11

AnyLayout = Layout | SwizzledLayout


def extent_of(layout: Any) -> int:
    """The number of coordinates of a layout or shape. Raises LayoutError where it is no number but a symbol.

    >>> extent_of(Layout((4, 8)))
    32
    """
    try:
        return int(size(layout))
    except TypeError as error:
        raise LayoutError(f"{layout} has symbolic sizes: substitute numbers before drawing it") from error


def values(layout: AnyLayout, indices: Sequence[int] | range) -> list[Any]:
    """The offsets at those indices: ints, or basis vectors where the strides are.

    >>> values(Layout(4, 2), range(3))
    [0, 2, 4]
    """
    import numpy as np

    plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
    if not len(indices):
        return []
    if all(type(d) is int and abs(d) < 2**31 for d in plain.flat[1]) and max(indices) < 2**31:
        return [int(v) for v in layout(np.asarray(indices, np.int64)).tolist()]
    return [layout(i) for i in indices]


def coordinate(index: int, shape: Any) -> Any:
    """The coordinate of an index in a shape, as nested tuples.

    >>> coordinate(13, (4, (2, 3)))
    (1, (1, 1))
    """
    if not isinstance(shape, tuple):
        return index
    result = []
    for extent in shape:
        number = extent_of(extent)
        result.append(coordinate(index % number, extent))
        index //= number
    return tuple(result)


def spell(value: Any) -> str:
    """A coordinate or tuple without spaces, _ for None.

    >>> spell((1, (0, None)))
    '(1,(0,_))'
    """
    if isinstance(value, tuple):
        return "(" + ",".join(spell(v) for v in value) + ")"
    return "_" if value is None else str(value)


@dataclass(frozen=True)
class Table:
    """A layout as rows and columns: the first mode down, all others across; a single mode is wrapped.

    ``rows``, ``columns``: what is shown; ``all_rows``, ``all_columns``: what there is. ``index(row, column)`` is the
    layout's index there, None past the end of a wrapped single mode.
    """

    rows: int
    columns: int
    all_rows: int
    all_columns: int
    wrapped: bool
    number: int

    @staticmethod
    def of(layout: AnyLayout, cells: int = MAXIMUM_CELLS) -> Table:
        """The table of a layout, cut if it has more than ``cells`` cells.

        >>> table = Table.of(Layout((4, (2, 3))))
        >>> table.rows, table.columns, table.index(1, 2)
        (4, 6, 9)
        """
        number = extent_of(layout)
        if rank(layout) > 1:
            plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
            rows, wrapped = extent_of(plain[0]), False
            columns = number // rows
        else:
            columns = number if number <= 2 * WRAP else WRAP
            rows, wrapped = -(-number // columns), True
        shown_rows, shown_columns = rows, columns
        if rows * columns > cells or max(rows, columns) > 512:
            shown_rows, shown_columns = min(rows, CUT[0]), min(columns, CUT[1])
        return Table(shown_rows, shown_columns, rows, columns, wrapped, number)

    @property
    def cut(self) -> bool:
        """Whether only a part is shown."""
        return (self.rows, self.columns) != (self.all_rows, self.all_columns)

    def index(self, row: int, column: int) -> int | None:
        """The layout's index of a cell."""
        index = row * self.all_columns + column if self.wrapped else row + column * self.all_rows
        return index if index < self.number else None

    def indices(self) -> list[int | None]:
        """The indices of all cells shown, row by row."""
        return [self.index(row, column) for row in range(self.rows) for column in range(self.columns)]

    def note(self) -> str:
        """What is missing, "" if nothing is."""
        if not self.cut:
            return ""
        return f"shown: the first {self.rows} x {self.columns} of {self.all_rows} x {self.all_columns}"


@dataclass(frozen=True)
class Cell:
    """A cell of a grid: its class, its label, its tooltip."""

    kind: str
    label: str = ""
    tip: str | None = None


def draw_grid(
    canvas: Canvas,
    x: float,
    y: float,
    rows: int,
    columns: int,
    cell: Callable[[int, int], Cell | None],
    row_name: Callable[[int], str] = str,
    column_name: Callable[[int], str] = str,
    label_characters: int = 4,
    height: float = 19,
    labelled: bool = True,
    minimum_width: float = 20,
    axes: str = "",
) -> tuple[float, float, float, float]:
    """Cells with names of rows and columns beside them. Returns (left, top, cell width, cell height) of the cells.

    ``label_characters``: the longest label. Names that would touch are left out, evenly. ``axes``: what rows and
    columns are, written into the corner.
    """
    width = max(minimum_width, text_width("0" * label_characters, LABEL) + 7) if labelled else 8.0
    height = height if labelled else 8.0
    left = x + max([text_width(row_name(r), LABEL) for r in (0, rows - 1)] + [text_width(axes, LABEL - 1)]) + 8
    top = y + 17
    if axes:
        canvas.text(x, top - 5, axes, LABEL - 1, "faint")
    longest = max(text_width(column_name(c), LABEL) for c in (0, columns - 1)) + 4
    every = max(1, int(-(-longest // width)))
    every = every if every <= 2 else 1 << (every - 1).bit_length()
    for c in range(0, columns, every):
        canvas.text(left + (c + 0.5) * width, top - 5, column_name(c), LABEL, "faint", "middle")
    every = max(1, int(-(-14 // height)))
    every = 1 << (every - 1).bit_length()
    for r in range(rows):
        row_top = top + r * height
        if r % every == 0:
            canvas.text(left - 6, row_top + height / 2 + 0.35 * LABEL, row_name(r), LABEL, "faint", "end")
        for c in range(columns):
            content = cell(r, c)
            if content is not None:
                label = content.label if labelled else ""
                canvas.cell(left + c * width, row_top, width, height, content.kind, label, content.tip, LABEL)
    return left, top, width, height
