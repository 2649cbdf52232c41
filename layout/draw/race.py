"""A race as a picture: the two accesses, the edge that is missing between them, and where in shared memory they meet. Takes plain records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .. import LayoutError
from .canvas import Canvas, number, text_width
from .drawing import Drawing, paragraph
from .grid import LABEL
from .style import group

_BAR = 780.0
_CHARACTERS = 42
LINE, GRANULE = 128, 16
"""Bytes of a line of all banks, and of the unit in which copies and matrix instructions touch it."""


@dataclass(frozen=True)
class AccessNode:
    """One side of a race: "read" or "write", who, by which instruction, where in the source."""

    verb: str
    agent: str
    operation: str
    place: str


def race_view(
    kind: str,
    first: AccessNode,
    second: AccessNode,
    missing: str,
    address: int,
    parts: Sequence[tuple[str, int, int]] = (),
    where: str = "",
    space: str = "shared",
    title: str | None = None,
) -> Drawing:
    """Two accesses that nothing orders. ``parts``: (what, offset, bytes) of shared memory, in the terms of ``address`` (bytes); with them the memory is
    drawn to scale and the granule of 16 bytes marked in it. ``where``: what stands at the address. ``space``: "shared", "global", or "tensor", whose
    address is lane << 16 | column. Raises LayoutError for a negative address.

    >>> view = race_view("write after read", AccessNode("read", "wgmma of warpgroup 1", "wgmma", "k.cu:3"),
    ...     AccessNode("write", "copies on full[0]", "cp.async.bulk", "k.cu:9"), "wgmma.wait_group", 1024, [("A", 1024, 4096)])
    >>> view.facts["address"], view.facts["part"]
    (1024, 'A')
    """
    if address < 0:
        raise LayoutError(f"address={address}: must not be negative")
    title = title or f"race: {kind}"
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    at = f"{space} address {address:#x}"
    if space == "tensor":
        at = f"lane {address >> 16}, column {address & 0xFFFF} of tensor memory"
    at += f": {where}" if where else ""
    canvas.text(0, 34, at, 12, "faint")
    y = 50.0
    boxes = [_box(canvas, x, y, name, node) for x, name, node in ((0.0, "first", first), (470.0, "second", second))]
    height = max(bottom for _, bottom in boxes) - y
    middle, x1, x2 = y + 34, boxes[0][0], 470.0
    with canvas.group("edge", f"nothing orders these two; missing: {missing}"):
        canvas.path(f"M{number(x1)} {number(middle)}L{number(x2)} {number(middle)}", "broken")
        canvas.path(
            f"M{number(x2 - 7)} {number(middle - 5)}L{number(x2)} {number(middle)}L{number(x2 - 7)} {number(middle + 5)}",
            "alarm",
        )
        cross = (x1 + x2) / 2
        canvas.path(
            f"M{number(cross - 6)} {number(middle - 6)}l12 12M{number(cross + 6)} {number(middle - 6)}l-12 12", "alarm"
        )
    canvas.text((x1 + x2) / 2, middle - 12, "no order", LABEL, "warn", "middle")
    y += height + 20
    for line in paragraph(f"missing: {missing}", 116):
        canvas.text(0, y, line, 12, "warn")
        y += 17
    facts: dict[str, object] = {"kind": kind, "address": address, "part": ""}
    words = [title, f"  {at}"]
    for name, node in (("first", first), ("second", second)):
        words.append(f"  {name}: {node.verb} by {node.agent}, {node.operation} at {node.place}")
    words.append(f"  missing: {missing}")
    ordered = sorted((p for p in parts if p[2] > 0), key=lambda part: part[1])
    if ordered:
        facts["part"] = next((name for name, start, size in ordered if start <= address < start + size), "")
        _memory(canvas, y + 8, ordered, address, where)
        words += [
            f"  {start:>8}  {name:<16}{size:>8} bytes{'   <- here' if name == facts['part'] else ''}"
            for name, start, size in ordered
        ]
    return Drawing.of(title, canvas, "\n".join(words), facts)


def broken(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` characters where it can be, broken at spaces and after the dots and colons of an instruction's name.

    >>> broken("cp.async.bulk.tensor", 10)
    ['cp.async.', 'bulk.', 'tensor']
    """
    lines = [""]
    for piece in re.split(r"(?<=[.:\s])(?![:\s])", text):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _box(canvas: Canvas, x: float, y: float, name: str, node: AccessNode) -> tuple[float, float]:
    """An access; returns the right and the lower edge."""
    lines = [line for text in (node.agent, node.operation, node.place) for line in broken(text, _CHARACTERS)]
    head = f"{name}: {node.verb}"
    width = max([text_width(head, 13)] + [text_width(line, 11) for line in lines]) + 24
    height = 30 + 16 * len(lines)
    tip = f"{node.verb} by {node.agent}\n{node.operation}\n{node.place}"
    canvas.rect(x, y, width, height, "box", tip, {"access": name}, radius=6)
    canvas.text(x + 12, y + 19, head, 13, "bold")
    for i, line in enumerate(lines):
        canvas.text(x + 12, y + 37 + 16 * i, line, 11, "faint")
    return x + width, y + height


def _memory(canvas: Canvas, y: float, parts: list[tuple[str, int, int]], address: int, where: str) -> None:
    """Shared memory to scale with the address marked, and the line of 128 bytes around it."""
    low, high = min(parts[0][1], address), max(max(start + size for _, start, size in parts), address + GRANULE)
    scale = _BAR / (high - low)
    canvas.text(0, y + 10, "shared memory, to scale", 11, "faint")
    y += 20
    canvas.rect(0, y, _BAR, 26, "box", f"bytes {low:#x} to {high - 1:#x}")
    shown = []
    for i, (name, start, size) in enumerate(parts):
        tip = f"{name}: {start:#x} to {start + size - 1:#x}, {size} bytes"
        canvas.rect((start - low) * scale, y, max(size * scale, 2), 26, f"cell {group(i)}", tip, {"part": name})
        shown.append((group(i), name))
    here = (address - low) * scale
    granule = address - address % GRANULE
    # The mark is wider than 16 bytes to scale would be.
    canvas.rect(
        max(here - 2, 0),
        y - 5,
        5,
        36,
        "cell h5",
        f"{address:#x}, in the granule {granule:#x} to {granule + GRANULE - 1:#x}",
    )
    y += 46
    start = address - address % LINE
    left, width = 0.0, _BAR / (LINE // GRANULE)
    edge = f"M{number(max(here - 2, 0))} {number(y - 15)}L0 {number(y + 14)}M{number(min(here + 3, _BAR))} {number(y - 15)}L{number(_BAR)} {number(y + 14)}"
    canvas.path(edge, "rule")
    y += 14
    part = next((i for i, (_, begin, size) in enumerate(parts) if begin <= address < begin + size), None)
    for chunk in range(LINE // GRANULE):
        begin = start + chunk * GRANULE
        hit = begin == granule
        style = "h5" if hit else "empty" if part is None else group(part)
        banks = f"banks {begin % LINE // 4} to {begin % LINE // 4 + 3}"
        tip = f"bytes {begin:#x} to {begin + GRANULE - 1:#x}, {banks}" + (f": {where}" if hit and where else "")
        canvas.cell(
            left + chunk * width,
            y,
            width,
            26,
            style,
            f"{begin:#x}",
            tip,
            11,
            {"granule": begin},
            "on" if style != "empty" else "faint",
        )
    canvas.text(0, y + 42, f"the line of {LINE} bytes around it, in granules of {GRANULE}", 11, "faint")
    canvas.legend(0, y + 54, [*shown, ("h5", "where the two meet")], limit=_BAR)
