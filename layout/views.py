"""Layouts as text for a terminal: a grid of offsets, a thread-value table, and memory as the hardware sees it.

Each view is a str; nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .algebra import size
from .core import numeric
from .errors import LayoutError
from .swizzle import SwizzledLayout
from .tuples import product, to_int

_MOST_CELLS = 4096


def _table(cells: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str]) -> str:
    width = max([len(c) for line in cells for c in line] + [len(c) for c in columns])
    head = max(len(r) for r in rows)
    lines = [" " * head + " |" + "".join([" " + c.rjust(width) for c in columns])]
    lines.append("-" * head + "-+" + "-" * ((width + 1) * len(columns)))
    for name, line in zip(rows, cells, strict=True):
        lines.append(name.rjust(head) + " |" + "".join([" " + c.rjust(width) for c in line]))
    return "\n".join(lines)


def _numeric(layout: Any) -> Any:
    if type(layout) is SwizzledLayout:
        return layout
    layout = numeric(layout, "view")
    if any(type(d) is not int for d in layout.flat[1]):
        raise LayoutError(f"{layout} has basis strides: its offsets are coordinates, not places")
    return layout


def grid_text(layout: Any, show: Callable[[int], str] = str) -> str:
    """The offsets of a layout of rank 1 or 2 as a grid: mode 0 down, mode 1 across. `show` writes an offset.

    >>> from stridewright.layout import Layout
    >>> print(grid_text(Layout((2, 4), (4, 1))))
      | 0 1 2 3
    --+--------
    0 | 0 1 2 3
    1 | 4 5 6 7
    """
    layout = _numeric(layout)
    if not callable(show):
        raise LayoutError(f"show writes an offset as text: a function, not {show!r}")
    if len(layout) > 2:
        raise LayoutError(f"a grid has rank 1 or 2, not {len(layout)}; slice {layout} or group its modes first")
    rows = size(layout[0]) if len(layout) == 2 else 1
    columns = size(layout[1]) if len(layout) == 2 else size(layout)
    if rows * columns > _MOST_CELLS:
        raise LayoutError(f"a grid of {rows} x {columns} is too large to read: at most {_MOST_CELLS} cells")
    cells = [[str(show(layout(i, j) if len(layout) == 2 else layout(j))) for j in range(columns)] for i in range(rows)]
    return _table(cells, [str(i) for i in range(rows)], [str(j) for j in range(columns)])


def tv_text(tv: Any, tile: Any) -> str:
    """Who holds each element of a tile: TtVv for value v of thread t. Elements that nobody holds are dots.

    `tv` maps (thread, value) to an index of the shape `tile`, counted with mode 0 fastest.

    >>> from stridewright.layout import Layout
    >>> print(tv_text(Layout(((4, 2), (2, 2)), ((8, 2), (4, 1))), (4, 8)))
      |    0    1    2    3    4    5    6    7
    --+----------------------------------------
    0 | T0V0 T0V1 T1V0 T1V1 T2V0 T2V1 T3V0 T3V1
    1 | T0V2 T0V3 T1V2 T1V3 T2V2 T2V3 T3V2 T3V3
    2 | T4V0 T4V1 T5V0 T5V1 T6V0 T6V1 T7V0 T7V1
    3 | T4V2 T4V3 T5V2 T5V3 T6V2 T6V3 T7V2 T7V3
    """
    tv = _numeric(tv)
    if len(tv) != 2:
        raise LayoutError(f"a thread-value layout has the two modes (thread, value), not {len(tv)}: {tv}")
    shape = numeric(tile, "tv_text").shape
    extents = tuple([product(s) for s in shape]) if type(shape) is tuple else (1, shape)
    if len(extents) != 2 or extents[0] * extents[1] > _MOST_CELLS:
        raise LayoutError(f"a table of the tile {tile} is not readable: rank 1 or 2 and at most {_MOST_CELLS} elements")
    rows, columns = extents
    owners: list[list[str]] = [[] for _ in range(rows * columns)]
    for thread in range(size(tv[0])):
        for v in range(size(tv[1])):
            place = tv(thread, v)
            if not 0 <= place < len(owners):
                raise LayoutError(f"value {v} of thread {thread} is index {place}, outside the tile {tile}")
            owners[place].append(f"T{thread}V{v}")
    cells = [["/".join(owners[i + rows * j]) or "." for j in range(columns)] for i in range(rows)]
    return _table(cells, [str(i) for i in range(rows)], [str(j) for j in range(columns)])


def hardware_text(layout: Any, bits: int, banks: int = 32) -> str:
    """Memory line by line, as banks of 4 bytes: which index of the layout begins in each bank. `bits` is an element's width.

    A line is one row of all banks (128 bytes for 32). Several elements in one bank show as first-last.

    >>> from stridewright.layout import Layout
    >>> print(hardware_text(Layout((4, 4), (4, 1)), bits=32, banks=8))
      bytes | b0 b1 b2 b3 b4 b5 b6 b7
    --------+------------------------
     0 - 31 |  0  4  8 12  1  5  9 13
    32 - 63 |  2  6 10 14  3  7 11 15
    """
    layout = _numeric(layout)
    bits, banks = to_int(bits, "a width in bits"), to_int(banks, "a number of banks")
    if banks > _MOST_CELLS or bits > 32 * _MOST_CELLS:
        raise LayoutError(f"{banks} banks and elements of {bits} bits are too many to read")
    if bits < 1 or banks < 1:
        raise LayoutError(f"an element has at least 1 bit and memory at least 1 bank, not {bits} and {banks}")
    if size(layout) > _MOST_CELLS:
        raise LayoutError(f"{size(layout)} elements are too many to read: at most {_MOST_CELLS}")
    words: dict[int, list[tuple[int, int]]] = {}
    for i in range(size(layout)):
        first = layout(i) * bits
        if first < 0:
            raise LayoutError(f"index {i} of {layout} has the offset {layout(i)}, before memory begins")
        for word in range(first // 32, (first + bits - 1) // 32 + 1):
            words.setdefault(word, []).append((first, i))
    lines = max(words) // banks + 1
    if lines * banks > _MOST_CELLS:
        raise LayoutError(f"{lines} lines of {banks} banks are too many to read: at most {_MOST_CELLS} words")

    def text(word: int) -> str:
        held = [i for _, i in sorted(words.get(word, []))]
        if not held:
            return "."
        return str(held[0]) if len(held) == 1 else f"{held[0]}-{held[-1]}"

    cells = [[text(line * banks + bank) for bank in range(banks)] for line in range(lines)]
    digits = len(str(lines * banks * 4 - 1))
    rows = [f"{line * banks * 4:>{digits}} - {(line + 1) * banks * 4 - 1:>{digits}}" for line in range(lines)]
    text_rows = _table(cells, rows, [f"b{bank}" for bank in range(banks)])
    head, rest = text_rows.split("\n", 1)
    label = "bytes"
    if len(rows[0]) >= len(label):
        head = label.rjust(len(rows[0])) + head[len(rows[0]) :]
    return head + "\n" + rest
