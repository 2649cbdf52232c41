"""A kernel's generated source beside the layouts that it is derived from, linked by hover.

Each constant of the source's derived block is traced to the cells of its layout from which it follows; what it is, is read from the
derivation that also writes the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stridewright.layout import SwizzledLayout, size
from stridewright.layout.draw import Drawing, LinkedCell, LinkedTable, SourceLine, linked_source

if TYPE_CHECKING:
    from stridewright.kernels.hopper import Derivation, OperandTile

CHUNK = 8
"""Elements of a cell: the 16 bytes that copies and descriptors count in."""
_BLOCK_ROWS = 64
"""Rows of A that one wgmma reads."""

Cell = tuple[int, int]


def _plain(operand: OperandTile) -> Any:
    """The layout without its swizzle: what descriptors count in."""
    layout = operand.layout
    return layout.layout if isinstance(layout, SwizzledLayout) else layout


def _sources(operand: OperandTile, element_bytes: int) -> dict[str, tuple[tuple[Cell, ...], str]]:
    """For each constant of an operand's slot: the cells (row, k) it comes from, and how."""
    layout, name = _plain(operand), operand.name
    rows, columns = int(size(layout[0])), int(size(layout[1]))
    last = (rows - 1, columns - CHUNK)
    found: dict[str, tuple[tuple[Cell, ...], str]] = {
        f"{name}_SLOT_BYTES": (((0, 0), last), f"the tile's {rows} x {columns} elements of {element_bytes} bytes"),
        f"{name}_ROW_BYTES": (((0, 0), (1, 0)), "from row 0 to row 1"),
        f"{name}_SLICE_ROWS": (((0, 0), (operand.slice_rows - 1, 0)), "rows that one block of a cluster loads"),
    }
    if rows > 8:
        found[f"{name}_DESCRIPTOR"] = (
            ((0, 0), (8, 0)),
            f"stride: from row 0 to row 8, {int(layout(8, 0) - layout(0, 0)) * element_bytes} bytes; the swizzle is the layout's",
        )
    steps = [(0, 16 * step) for step in range(int(size(operand.step_advance)))]
    found[f"{name.lower()}_step_advance"] = (
        tuple(steps),
        "from one k-step of 16 elements to the next, in units of 16 bytes",
    )
    if columns > 64:
        found[f"{name}_PANEL_BYTES"] = (((0, 0), (0, 64)), "from one panel of 64 elements of K to the next")
    else:
        found[f"{name}_PANEL_BYTES"] = (((0, 0), last), "one panel: the whole slot")
    if rows > _BLOCK_ROWS:
        found[f"{name}_BLOCK_ADVANCE"] = (
            ((0, 0), (_BLOCK_ROWS, 0)),
            "from one block of 64 rows to the next, in units of 16 bytes",
        )
    return found


def _table(operand: OperandTile, roles: dict[str, tuple[tuple[Cell, ...], str]], element_bytes: int) -> LinkedTable:
    """The rows of a tile that matter, in chunks of 16 bytes."""
    layout = operand.layout
    rows, columns = int(size(_plain(operand)[0])), int(size(_plain(operand)[1]))
    wanted = {row for cells, _ in roles.values() for row, _ in cells}
    shown = sorted({row for row in [*range(min(9, rows)), *wanted] if 0 <= row < rows})
    body = []
    for row in shown:
        cells = []
        for column in range(0, columns, CHUNK):
            names = tuple(n for n, (places, _) in roles.items() if (row, column) in places)
            byte = int(layout(row, column)) * element_bytes
            tip = f"{operand.name}({row}, {column}) and the {CHUNK - 1} after it: byte {byte} of the slot; {byte // 128} x 128 + {byte % 128}"
            cells.append(LinkedCell(str(byte), tip, names))
        body.append(tuple(cells))
    return LinkedTable(
        f"a slot of {operand.name}: the first byte of every 16",
        tuple(map(str, shown)),
        tuple(str(column) for column in range(0, columns, CHUNK)),
        tuple(body),
        "row  k",
        (str(layout),),
    )


def _staging(derivation: Derivation) -> LinkedTable | None:
    """Where each lane's 16 bytes go in the epilogue: lanes down, steps across, for warp 0."""
    addresses = derivation.staging_addresses
    if addresses is None:
        return None
    lanes, steps = int(size(addresses.layout[0])), int(size(addresses.layout[2]))
    body = []
    for lane in range(min(lanes, 9)):
        row = []
        for step in range(steps):
            byte = int(addresses(lane, 0, step))
            row.append(LinkedCell(str(byte), f"lane {lane}, warp 0, step {step}: byte {byte}", ("staging_offset",)))
        body.append(tuple(row))
    return LinkedTable(
        "the epilogue: where a lane of warp 0 writes 16 bytes",
        tuple(map(str, range(min(lanes, 9)))),
        tuple(map(str, range(steps))),
        tuple(body),
        "lane  step",
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

    ``gemm``: a Gemm of the Hopper family; its ``source`` and ``derivation`` are used as they are.

    >>> from stridewright import Gemm
    >>> view = source_picture(Gemm(4096, 4096, 4096))
    >>> view.facts["links"] > 5, "A_DESCRIPTOR" in view.text()
    (True, True)
    """
    from stridewright.kernels.hopper import ELEMENT_BYTES

    derivation: Derivation = gemm.derivation
    source = gemm.source.splitlines()
    roles: dict[str, tuple[tuple[Cell, ...], str]] = {}
    tables = []
    for operand in (derivation.a, derivation.b):
        mine = {
            name: role
            for name, role in _sources(operand, ELEMENT_BYTES).items()
            if any(f" {name} = " in line or f" {name}(" in line for line in source)
        }
        roles.update(mine)
        tables.append(_table(operand, mine, ELEMENT_BYTES))
    names = list(roles)
    staging = _staging(derivation)
    if staging is not None and any(line.startswith("DEVICE") and " staging_offset(" in line for line in source):
        names.append("staging_offset")
        tables.append(staging)
    end = next((i for i, line in enumerate(source) if line.startswith("#define CLUSTER_ATTRIBUTE")), len(source))
    block = source[:end]

    def why(name: str) -> str:
        return roles[name][1] if name in roles else "the byte of each lane's row of 16 bytes, as stmatrix takes it"

    lines = _lines(block, names, why)
    # A heading with nothing under it says nothing.
    lines = [line for i, line in enumerate(lines) if line.names or (i + 1 < len(lines) and lines[i + 1].names)]
    return linked_source(tables, lines, f"from layouts to source: {derivation.config.name}")
