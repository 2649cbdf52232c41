"""Fragments: which thread holds which element of a matrix, in which of its registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import Layout, LayoutError, rank
from ..hardware.tensor_memory import cells_per_column
from ..tuples import to_int
from .canvas import Canvas, escape, number, text_width
from .drawing import Drawing
from .grid import LABEL, MAXIMUM_LABELS, extent_of, values
from .style import group

_SMALL = 8.0
MAXIMUM_CELLS = 16_384
"""Elements of the largest fragment, wgmma m64n256: many cells make one path a thread here."""
_LISTED = 16

Place = tuple[int, int]


def fragment_places(layout: Layout, rows: int, row_major: int | None = None) -> dict[tuple[int, int], Place]:
    """(thread, value) -> (row, column) of a fragment that maps to row + rows * column, or, with ``row_major`` columns, to
    column + columns * row.

    >>> from stridewright.layout.hardware import mma_d_layout
    >>> fragment_places(mma_d_layout(16, 8, 16, "bf16"), 16)[5, 1]
    (1, 3)
    """
    if rank(layout) != 2:
        raise LayoutError(f"{layout} has {rank(layout)} modes: a fragment has two, thread and value")
    threads, count = extent_of(layout[0]), extent_of(layout)
    if count > MAXIMUM_CELLS:
        raise LayoutError(f"{layout} has {count} elements: a fragment picture shows at most {MAXIMUM_CELLS}")
    for name, value in (("rows", rows), ("row_major", 1 if row_major is None else row_major)):
        if to_int(value, name) < 1:
            raise LayoutError(f"{name}={value}: must be at least 1")
    places = {}
    for index, offset in enumerate(values(layout, range(count))):
        if not isinstance(offset, int) or offset < 0:
            raise LayoutError(f"{layout} maps {index} to {offset}: a fragment's places are numbers from 0 on")
        place = divmod(offset, row_major) if row_major else (offset % rows, offset // rows)
        places[index % threads, index // threads] = place
    return places


def draw_fragment(
    places: Mapping[tuple[int, int], Place],
    title: str,
    row_name: str = "row",
    column_name: str = "column",
    thread_name: str = "thread",
    value_name: str = "value",
    note: str = "",
    hidden: str = "further copies of elements are not drawn",
) -> Drawing:
    """A fragment given as (thread, value) -> (row, column). Cells are labelled thread.value; hovering one outlines all
    of its thread's, whose tooltip lists its registers. Several threads may hold one element: the first is drawn, and ``hidden``
    says of the others what they are.

    >>> draw_fragment({(0, 0): (0, 0), (1, 0): (0, 1)}, "two").facts["threads"]
    2
    """
    if not places:
        raise LayoutError("the fragment holds no element: nothing to draw")
    rows, columns = 1 + max(r for r, _ in places.values()), 1 + max(c for _, c in places.values())
    if rows * columns > MAXIMUM_CELLS:
        raise LayoutError(f"{rows} x {columns} elements: a fragment picture shows at most {MAXIMUM_CELLS}")
    owners: dict[Place, tuple[int, int]] = {}
    held: dict[int, list[tuple[int, Place]]] = {}
    replicas = 0
    for (thread, value), place in places.items():
        held.setdefault(thread, []).append((value, place))
        replicas += place in owners
        owners.setdefault(place, (thread, value))
    labelled = rows * columns <= MAXIMUM_LABELS
    longest = max(len(f"{t}.{v}") for t, v in owners.values())
    width = max(22.0, text_width("0" * longest, LABEL) + 6) if labelled else _SMALL
    height = 19.0 if labelled else _SMALL
    canvas = Canvas()
    canvas.text(0, 15, title, 14, "bold")
    fewest, most = min(map(len, held.values())), max(map(len, held.values()))
    each = str(most) if fewest == most else f"{fewest} to {most}"
    grid = f"{rows} x {columns} elements"
    if row_name != "row" or len(owners) < rows * columns:
        # Lanes and columns of tensor memory are no elements, and not all of them need be taken.
        grid = f"{len(owners)} of {rows} x {columns} {row_name}s and {column_name}s"
    counts = f"{grid}, {len(held)} {thread_name}s of {each} {value_name}s"
    canvas.text(0, 34, counts, 12, "faint")
    if note:
        canvas.text(0, 51, note, 12, "faint")
    corner = f"{row_name} / {column_name}"
    left, top = text_width(corner, 10) + 12, 83.0 if note else 66.0
    canvas.text(0, top - 6, corner, 10, "faint")
    _names(canvas, left, top, rows, columns, width, height)
    canvas.rect(left, top, columns * width, rows * height, "empty")
    for thread, elements in held.items():
        listed = "; ".join(f"{value_name} {v} ({r},{c})" for v, (r, c) in elements[:_LISTED])
        more = f"; and {len(elements) - _LISTED} more" if len(elements) > _LISTED else ""
        own = [(v, place) for v, place in elements if owners[place] == (thread, v)]
        tip = f"{thread_name} {thread}: {listed}{more}"
        data = {"thread": thread}
        with canvas.group("owner", tip, data):
            if labelled:
                for v, (r, c) in own:
                    x, y = left + c * width, top + r * height
                    canvas.cell(x, y, width, height, group(thread), f"{thread}.{v}", None, LABEL)
            else:
                cells = "".join(f"M{number(left + c * width)} {number(top + r * height)}h8v8h-8z" for _, (r, c) in own)
                canvas.parts.append(f'<path d="{cells}" class="cell {escape(group(thread))}"/>')
    canvas.reach(left + columns * width, top + rows * height)
    y = top + rows * height + 16
    how = f"label: {thread_name}.{value_name}; " if labelled else ""
    canvas.text(
        0, y, f"{how}colour: {thread_name} modulo 8; hover a cell: all that its {thread_name} holds", 11, "faint"
    )
    if replicas:
        canvas.text(0, y + 17, f"{replicas} {hidden}", 11, "warn")
    facts = {"rows": rows, "columns": columns, "threads": len(held), "values": most, "replicas": replicas}
    return Drawing.of(
        title, canvas, _words(title, f"{counts}; {thread_name}.{value_name}", owners, rows, columns), facts
    )


def _names(canvas: Canvas, left: float, top: float, rows: int, columns: int, width: float, height: float) -> None:
    every = 1 if width >= 20 else 4
    for c in range(0, columns, every):
        canvas.text(left + (c + 0.5) * width, top - 6, c, 10, "faint", "middle")
    every = 1 if height >= 14 else 2
    for r in range(0, rows, every):
        canvas.text(left - 5, top + (r + 0.5) * height + 3.5, r, 10, "faint", "end")


def _words(title: str, counts: str, owners: Mapping[Place, tuple[int, int]], rows: int, columns: int) -> str:
    width = max(len(f"{t}.{v}") for t, v in owners.values()) + 1
    lines = [title, f"  {counts}"]
    shown_rows, shown_columns = min(rows, 16), min(columns, 16)
    for r in range(shown_rows):
        cells = ""
        for c in range(shown_columns):
            owner = owners.get((r, c))
            cells += f"{'.' if owner is None else f'{owner[0]}.{owner[1]}':>{width}}"
        lines.append(f"  {cells}{' ...' if shown_columns < columns else ''}")
    if shown_rows < rows:
        lines.append(f"  ... {rows - shown_rows} more rows")
    return "\n".join(lines)


def fragment_view(layout: Layout, rows: int, title: str | None = None, row_major: int | None = None) -> Drawing:
    """The fragment of an instruction as ``layout.hardware`` gives it: a Layout from (thread, value) to row + rows * column
    (wgmma, mma.sync), or with ``row_major`` = the number of columns to column + columns * row (ldmatrix and stmatrix: 8
    columns, the rows being those whose address a lane gives).

    Raises LayoutError for another rank or more than 16,384 elements.

    >>> from stridewright.layout.hardware import wgmma_d_layout
    >>> fragment_view(wgmma_d_layout(16), rows=64).facts["threads"]
    128
    """
    places = fragment_places(layout, rows, row_major)
    return draw_fragment(places, title or f"fragment {layout}", note=str(layout) if title else "")


def tensor_memory_view(access: Any, split: int | None = None, registers: Iterable[int] | None = None) -> Drawing:
    """tcgen05.ld or tcgen05.st of one warp: lanes of tensor memory down, 32-bit columns across, labelled thread.register.

    ``access``: of ``tensor_memory_access``; ``split``: the second half's column for 16x32bx2; ``registers``: those shown.

    >>> from stridewright.layout.hardware.tensor_memory_moves import tensor_memory_access
    >>> tensor_memory_view(tensor_memory_access("16x256b")).facts["columns"]
    8
    """
    chosen = range(access.register_count) if registers is None else registers
    places = {(thread, register): access.place(thread, register, split) for register in chosen for thread in range(32)}
    title = f"tcgen05.ld/st {access.shape}.x{access.repeat}{' packed' if access.packed else ''}"
    return draw_fragment(places, title, "lane", "column", "thread", "register", "lanes and columns of tensor memory")


def tensor_memory_map(layout: Layout, title: str | None = None, value_bits: int = 32) -> Drawing:
    """An accumulator in tensor memory: lanes down, 32-bit columns across, each cell labelled row.column of the matrix.

    ``layout``: of ``accumulator_layout``, (rows, n) -> address in cells of ``value_bits``. Of more than 16,384 elements the
    first columns are drawn, and the picture says so.

    >>> from stridewright.layout.hardware.tensor_memory import accumulator_layout
    >>> tensor_memory_map(accumulator_layout(128, 16)).facts["rows"]
    128
    """
    rows, count = extent_of(layout[0]), extent_of(layout)
    each = cells_per_column(value_bits)

    def places(columns: int) -> dict[tuple[int, int], Place]:
        addresses = [offset // each for offset in values(layout, range(rows * columns))]
        return {(i % rows, i // rows): (address >> 16, address & 0xFFFF) for i, address in enumerate(addresses)}

    # Layouts C and F leave half of the lanes they span free, so the cells may be more than the elements.
    shown = min(count // rows, max(MAXIMUM_CELLS // rows, 1))
    drawn = places(shown)
    while (
        shown > 1 and (1 + max(r for r, _ in drawn.values())) * (1 + max(c for _, c in drawn.values())) > MAXIMUM_CELLS
    ):
        shown //= 2
        drawn = places(shown)
    note = f"{layout}" if title else "lanes and columns of tensor memory"
    if shown < count // rows:
        note += f"; shown: the first {shown} of {count // rows} columns of the matrix"
    hidden = "further values in the same 32-bit columns have no label"
    return draw_fragment(drawn, title or f"accumulator {layout}", "lane", "column", "row", "column", note, hidden)
