"""A kernel's generated source beside the layouts that it is derived from, linked by hover.

Each constant of the source's derived block is traced to the cells of its layout from which it follows, and linked if its value is that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stridewright.layout import SwizzledLayout, size
from stridewright.layout.draw import Drawing, LinkedCell, LinkedTable, SourceLine, linked_source

CHUNK_BYTES = 16
"""Bytes of a cell: the unit that copies and descriptors count in."""
SPAN_BYTES = 128
"""Bytes of K in a panel: the span of the 128-byte swizzle."""
STEP_BYTES = 32
"""Bytes of K that one wgmma or tcgen05.mma reads."""
_AFTER = ("// ======== the multiply", "#define CLUSTER_ATTRIBUTE")
"""What stands behind the derived constants."""
_BLOCK_ROWS = 64
"""Rows of A that one wgmma reads."""

Cell = tuple[int, int]


@dataclass(frozen=True)
class _Role:
    """Where a constant comes from: cells (row, k), in words, and whether the source's value is what follows from them."""

    cells: tuple[Cell, ...]
    why: str
    agrees: Callable[[int], bool]


def _plain(operand: Any) -> Any:
    """The layout without its swizzle: what descriptors count in."""
    layout = operand.layout
    return layout.layout if isinstance(layout, SwizzledLayout) else layout


def _element_bytes(operand: Any) -> int:
    return int(operand.slot_bytes) // int(size(_plain(operand)))


def _roles(operand: Any, slice_rows: int) -> dict[str, _Role]:
    """For each constant of a K-major operand's slot: the cells it comes from, and how."""
    layout, name, element = _plain(operand), operand.name, _element_bytes(operand)
    rows, columns = int(size(layout[0])), int(size(layout[1]))
    chunk, panel, step = CHUNK_BYTES // element, SPAN_BYTES // element, STEP_BYTES // element

    def apart(row: int, k: int) -> int:
        return int(layout(row, k) - layout(0, 0)) * element

    last = (rows - 1, columns - chunk)
    whole = rows * columns * element
    found = {
        f"{name}_SLOT_BYTES": _Role(
            ((0, 0), last), f"the tile's {rows} x {columns} elements of {element} bytes", lambda v: v == whole
        ),
        f"{name}_SLICE_ROWS": _Role(
            ((0, 0), (slice_rows - 1, 0)), "rows that one block of a cluster loads", lambda v: v == slice_rows
        ),
    }
    if rows > 1:
        row = apart(1, 0)
        found[f"{name}_ROW_BYTES"] = _Role(((0, 0), (1, 0)), "from row 0 to row 1", lambda v: v == row)
    if rows > 8:
        stride = apart(8, 0)
        found[f"{name}_DESCRIPTOR"] = _Role(
            ((0, 0), (8, 0)),
            f"its stride: from row 0 to row 8, {stride} bytes; its swizzle is the layout's",
            lambda v: (v >> 32 & 0x3FFF) * CHUNK_BYTES == stride,
        )
    steps = [(0, step * i) for i in range(columns // step)]
    distances = [apart(*cell) // CHUNK_BYTES for cell in steps]
    found[f"{name.lower()}_step_advance"] = _Role(
        tuple(steps),
        f"from one k-step of {step} elements to the next, in units of 16 bytes",
        lambda _: distances == [int(operand.step_advance(i)) for i in range(int(size(operand.step_advance)))],
    )
    if columns > panel:
        between = apart(0, panel)
        found[f"{name}_BOX_BYTES"] = _Role(
            ((0, 0), (0, panel)), f"from one box of {panel} elements of K to the next", lambda v: v == between
        )
    else:
        found[f"{name}_BOX_BYTES"] = _Role(((0, 0), last), "one box: the whole slot", lambda v: v == whole)
    if rows > _BLOCK_ROWS:
        block = apart(_BLOCK_ROWS, 0)
        found[f"{name}_STRIP_ADVANCE"] = _Role(
            ((0, 0), (_BLOCK_ROWS, 0)),
            "from one block of 64 rows to the next, in units of 16 bytes",
            lambda v: v * CHUNK_BYTES == block,
        )
    return found


def _value(source: Sequence[str], name: str) -> int | None:
    """The value of a constant in the source; 0 for a function, None for what is not there."""
    for line in source:
        if line.startswith("DEVICE") and f" {name}(" in line:
            return 0
        if line.startswith("constexpr") and f" {name} = " in line:
            number = line.partition(" = ")[2].partition(";")[0].rstrip("ul")
            return int(number, 0) if number.startswith("0x") or number.isdecimal() else None
    return None


def _table(operand: Any, roles: dict[str, _Role]) -> LinkedTable:
    """The rows of a tile that matter, in chunks of 16 bytes."""
    layout, element = operand.layout, _element_bytes(operand)
    rows, columns = int(size(_plain(operand)[0])), int(size(_plain(operand)[1]))
    chunk = CHUNK_BYTES // element
    wanted = {row for role in roles.values() for row, _ in role.cells}
    shown = sorted({row for row in [*range(min(9, rows)), *wanted] if 0 <= row < rows})
    body = []
    for row in shown:
        cells = []
        for column in range(0, columns, chunk):
            names = tuple(n for n, role in roles.items() if (row, column) in role.cells)
            byte = int(layout(row, column)) * element
            tip = f"{operand.name}({row}, {column}) and the {chunk - 1} after it: byte {byte} of the slot; {byte // 128} x 128 + {byte % 128}"
            cells.append(LinkedCell(str(byte), tip, names))
        body.append(tuple(cells))
    return LinkedTable(
        f"a slot of {operand.name}: the first byte of every 16",
        tuple(map(str, shown)),
        tuple(str(column) for column in range(0, columns, chunk)),
        tuple(body),
        "row  k",
        (str(layout),),
    )


def _staging(derivation: Any, source: Sequence[str]) -> LinkedTable | None:
    """Where each lane's 16 bytes go in the epilogue: lanes down, the last parameter across, the other at 0."""
    addresses = getattr(derivation, "staging_addresses", None)
    head = next((line for line in source if line.startswith("DEVICE") and " staging_offset(" in line), "")
    names = re.findall(r"uint32 (\w+)[,)]", head)
    if not isinstance(addresses, SwizzledLayout) or len(names) != 3 or len(addresses.shape) != 3:
        return None
    lanes, steps = int(size(addresses.layout[0])), int(size(addresses.layout[2]))
    body = []
    for lane in range(min(lanes, 9)):
        row = []
        for step in range(steps):
            byte = int(addresses(lane, 0, step))
            tip = f"{names[0]} {lane}, {names[1]} 0, {names[2]} {step}: byte {byte}"
            row.append(LinkedCell(str(byte), tip, ("staging_offset",)))
        body.append(tuple(row))
    return LinkedTable(
        f"the epilogue: where 16 bytes go, {names[1]} 0",
        tuple(map(str, range(min(lanes, 9)))),
        tuple(map(str, range(steps))),
        tuple(body),
        f"{names[0]}  {names[2]}",
        (str(addresses),),
    )


def _lines(source: Sequence[str], names: Iterable[str], why: Callable[[str], str]) -> list[SourceLine]:
    """The lines of the derived block: those that define or compute one of the names are linked, headings are kept."""
    wanted = list(names)
    found = []
    inside = ""
    for line in source:
        name = next((n for n in wanted if f" {n} = " in line or f" {n}(" in line), "")
        if line.startswith("DEVICE"):
            inside = name
        if name or (inside and line.startswith(" ")):
            found.append(SourceLine(line, (name or inside,), why(name or inside)))
        elif line.startswith("// ===="):
            found.append(SourceLine(line.strip("/= ")))
        if line.startswith("}"):
            inside = ""
    return found


def source_picture(gemm: Any) -> Drawing:
    """The derived constants of a GEMM's source, each linked by hover with the cells of the layouts that it comes from.

    ``gemm``: a Gemm; its ``source`` and ``derivation`` are used as they are. A constant is linked only if its value in the source is what
    follows from its cells. Operands that are MN-major are left out.

    >>> from stridewright import Gemm
    >>> view = source_picture(Gemm(4096, 4096, 4096))
    >>> view.facts["links"] > 5, "A_DESCRIPTOR" in view.text()
    (True, True)
    """
    derivation: Any = gemm.derivation
    source = gemm.source.splitlines()
    roles: dict[str, _Role] = {}
    tables = []
    left_out = []
    for operand in (derivation.a, derivation.b):
        if int(_plain(operand)(0, 1) - _plain(operand)(0, 0)) != 1:
            left_out.append(operand.name)  # MN-major: its chunks lie along the other mode
            continue
        slice_rows = int(getattr(operand, "slice_rows", operand.rows))
        mine = {
            name: role
            for name, role in _roles(operand, slice_rows).items()
            if (value := _value(source, name)) is not None and role.agrees(value)
        }
        roles.update(mine)
        tables.append(_table(operand, mine))
    names = list(roles)
    staging = _staging(derivation, source)
    if staging is not None:
        names.append("staging_offset")
        tables.append(staging)
    end = next((i for i, line in enumerate(source) if line.startswith(_AFTER)), len(source))
    block = source[:end]

    def why(name: str) -> str:
        return roles[name].why if name in roles else "the byte that each lane's 16 bytes go to"

    lines = _lines(block, names, why)
    # A heading with nothing under it says nothing.
    lines = [line for i, line in enumerate(lines) if line.names or (i + 1 < len(lines) and lines[i + 1].names)]
    title = f"from layouts to source: {derivation.config.name}"
    if left_out:
        lines.append(SourceLine(f"{' and '.join(left_out)}: MN-major, not linked"))
    return linked_source(tables, lines, title)
