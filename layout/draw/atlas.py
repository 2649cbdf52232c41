"""The swizzle atlas: what every (B, M, S) costs for given reads and writes together, the smallest ideal one outlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import LayoutError, Swizzle
from ..banks import Access, count_wavefronts, swizzle_search
from ..banks_search import unit_bits
from ..hardware.swizzle_modes import swizzle_modes
from .canvas import Canvas
from .drawing import Drawing
from .style import heat

_CELL_WIDTH, _CELL_HEIGHT = 34.0, 20.0
_MAXIMUM_BITS = 5  # 32 banks: no swizzle needs to change more than five bits


@dataclass(frozen=True)
class AtlasEntry:
    """What one swizzle, in the layout's units, costs: wavefronts of all accesses together, None where it would cut an access in
    two; ``hardware``: the name of the hardware's mode that it is, "" if it is none.
    """

    swizzle: tuple[int, int, int]
    wavefronts: int | None
    hardware: str


def atlas(layout: Any, accesses: Sequence[Access], negative: bool = False) -> tuple[list[AtlasEntry], int, int]:
    """(entries, ideal wavefronts, wavefronts without a swizzle) of every B <= 5, M and S >= B whose bits are in use; with
    ``negative`` also of S <= -B.

    >>> from stridewright.layout import Layout
    >>> rows = Access(16, lanes=[(i, 0) for i in range(8)], op="ldmatrix", element_bytes=2)
    >>> entries, ideal, plain = atlas(Layout((8, 64), (64, 1)), [rows])
    >>> [e.swizzle for e in entries if e.wavefronts == ideal], plain
    ([(3, 3, 3)], 8)
    """
    import numpy as np

    unit = unit_bits(accesses)
    counted = [access for access in accesses if access.op not in ("tma", "wgmma")]
    if not counted:
        raise LayoutError("no ld, st, ldmatrix or stmatrix among the accesses: nothing costs anything")
    patterns = []
    for access in counted:
        offsets = access.byte_offsets(layout)
        active = np.array([offset is not None for offset in offsets])
        patterns.append((access, np.array([0 if o is None else o for o in offsets], np.int64), active))
    vector = max(access.bytes.bit_length() - 1 for access in counted)
    top = max(int(addresses.max()).bit_length() for _, addresses, _ in patterns) - unit
    # 128B_atom_32B_flip_8B is no Swizzle(b, m, s): it also swaps halves of 16 bytes.
    modes = {
        (mode.bits, mode.base - unit, mode.shift): mode.name
        for mode in swizzle_modes()
        if mode.bits and not mode.flip_8_bytes
    }
    candidates = [
        (bits, base, sign * distance)
        for sign in ((1, -1) if negative else (1,))
        for bits in range(1, _MAXIMUM_BITS + 1)
        for distance in range(bits, top + 1)
        for base in range(top + 1 - distance - bits)
    ]
    if len(candidates) > 4096:
        raise LayoutError(f"{len(candidates)} swizzles: the addresses use {top + unit} bits; look at a smaller tile")
    totals = np.zeros(len(candidates) + 1, np.int64)
    ideal = 0
    for access, addresses, active in patterns:
        stacked = np.stack(
            [addresses] + [np.asarray(Swizzle(bits, base + unit, shift)(addresses)) for bits, base, shift in candidates]
        )
        several = np.broadcast_to(active, stacked.shape)
        wavefronts, least = count_wavefronts(stacked, access.bytes, access.op, several)
        totals += wavefronts
        # A swizzle is one to one: the ideal is that of the plain layout.
        ideal += int(least[0])
    entries = [
        AtlasEntry(parameters, int(total) if parameters[1] + unit >= vector else None, modes.get(parameters, ""))
        for parameters, total in zip(candidates, totals[1:], strict=True)
    ]
    return entries, ideal, int(totals[0])


def swizzle_atlas(layout: Any, accesses: Access | Sequence[Access], title: str | None = None) -> Drawing:
    """The wavefronts of the accesses together under every Swizzle(B, M, S), a panel a B, M across and S down; the smallest
    swizzle that makes all ideal is outlined (that of ``suggest_swizzle``), the hardware's own modes are marked.

    ``accesses``: reads and writes in the layout's units; one with op "tma" restricts the outlined one to what the copy
    engine can do. Raises LayoutError as ``suggest_swizzle`` does, and where more than 4,096 swizzles would be shown.

    >>> from stridewright.layout import Layout
    >>> column = Access(4, lanes=[(i, 0) for i in range(32)], element_bytes=4)
    >>> swizzle_atlas(Layout((32, 32), (32, 1)), column).facts["smallest"]
    '5,0,5'
    """
    accesses = [accesses] if isinstance(accesses, Access) else list(accesses)
    chosen = swizzle_search(layout, accesses).swizzle
    # The search prefers positive shifts: only where none of them will do are the others shown.
    entries, ideal, plain = atlas(layout, accesses, negative=chosen is not None and chosen[2] < 0)
    name = title or f"swizzles of {layout}"
    canvas = Canvas()
    canvas.text(0, 14, name, 14, "bold")
    ways = f"{plain} wavefronts without a swizzle, ideal {ideal}"
    canvas.text(0, 34, ways, 12)
    verdict = _verdict(chosen, entries)
    canvas.text(0, 52, verdict, 12, "good" if chosen is not None else "warn")
    x, y, tallest = 0.0, 72.0, 0.0
    by_bits: dict[int, list[AtlasEntry]] = {}
    for entry in entries:
        by_bits.setdefault(entry.swizzle[0], []).append(entry)
    by_bits = {b: panel for b, panel in by_bits.items() if any(entry.wavefronts is not None for entry in panel)}
    for bits, panel in by_bits.items():
        width = 40 + (1 + max(entry.swizzle[1] for entry in panel)) * _CELL_WIDTH
        if x and x + width > 1000:
            x, y, tallest = 0.0, y + tallest + 14, 0.0
        tallest = max(tallest, _panel(canvas, x, y, bits, panel, ideal, chosen))
        x += width + 26
    y += tallest + 12
    y = canvas.legend(
        0,
        y,
        [
            (heat(1), "ideal"),
            (heat(2), "up to twice"),
            (heat(4), "4 times"),
            (heat(8), "8"),
            (heat(16), "more"),
            ("empty", "- would cut an access in two"),
        ],
    )
    canvas.text(0, y + 10, "outlined: the smallest ideal one; underlined: a mode of the hardware", 11, "faint")
    words = [name, f"  {ways}", f"  {verdict}"]
    for bits, panel in by_bits.items():
        words += _panel_words(bits, panel, chosen)
    facts: dict[str, object] = {
        "ideal": ideal,
        "plain": plain,
        "smallest": "none" if chosen is None else ",".join(map(str, chosen)),
    }
    return Drawing.of(f"{name}: {verdict}", canvas, "\n".join(words), facts)


def _verdict(chosen: tuple[int, int, int] | None, entries: list[AtlasEntry]) -> str:
    if chosen is None:
        return "no swizzle makes all accesses ideal"
    if chosen[0] == 0:
        return "none is needed"
    mode = next((entry.hardware for entry in entries if entry.swizzle == chosen and entry.hardware), "")
    return f"smallest ideal: Swizzle{chosen}{f', the hardware mode {mode}' if mode else ''}"


def _panel(
    canvas: Canvas,
    x: float,
    y: float,
    bits: int,
    panel: list[AtlasEntry],
    ideal: int,
    chosen: tuple[int, int, int] | None,
) -> float:
    canvas.text(x, y + 10, f"B={bits}", 12, "bold")
    left, top = x + 40, y + 32
    bases = sorted({entry.swizzle[1] for entry in panel})
    shifts = sorted({entry.swizzle[2] for entry in panel})
    for base in bases:
        canvas.text(left + (base + 0.5) * _CELL_WIDTH, top - 5, f"M={base}", 10, "faint", "middle")
    for row, shift in enumerate(shifts):
        canvas.text(left - 5, top + (row + 0.5) * _CELL_HEIGHT + 3.5, f"S={shift}", 10, "faint", "end")
    for entry in panel:
        _, base, shift = entry.swizzle
        cx, cy = left + base * _CELL_WIDTH, top + shifts.index(shift) * _CELL_HEIGHT
        cost = entry.wavefronts
        note = f", the hardware's {entry.hardware}" if entry.hardware else ""
        tip = f"Swizzle{entry.swizzle}: {'cuts an access in two' if cost is None else f'{cost} wavefronts'}{note}"
        kind = "empty" if cost is None else heat(cost / ideal)
        label, ink = ("-", "faint") if cost is None else (str(cost), "on")
        data = {"swizzle": ",".join(map(str, entry.swizzle)), "wavefronts": "" if cost is None else cost}
        canvas.cell(cx, cy, _CELL_WIDTH, _CELL_HEIGHT, kind, label, tip, 11, data, ink)
        if entry.hardware:
            canvas.path(f"M{cx + 7:.1f} {cy + 17:.1f}h{_CELL_WIDTH - 14:.1f}", "under")
        if entry.swizzle == chosen:
            canvas.rect(cx + 1, cy + 1, _CELL_WIDTH - 2, _CELL_HEIGHT - 2, "mark")
    return 32 + len(shifts) * _CELL_HEIGHT


def _panel_words(bits: int, panel: list[AtlasEntry], chosen: tuple[int, int, int] | None) -> list[str]:
    bases = sorted({entry.swizzle[1] for entry in panel})
    cells = {entry.swizzle: entry for entry in panel}
    lines = [f"  B={bits}  " + "".join(f"{f'M={base}':>6}" for base in bases)]
    for shift in sorted({entry.swizzle[2] for entry in panel}):
        row = ""
        for base in bases:
            entry = cells.get((bits, base, shift))
            cost = "" if entry is None else "-" if entry.wavefronts is None else str(entry.wavefronts)
            row += f"{f'[{cost}]' if entry is not None and entry.swizzle == chosen else cost:>6}"
        lines.append(f"  S={shift:<3} {row}".rstrip())
    return lines
