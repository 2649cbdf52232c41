"""The swizzle's bit diagram: which address bits are read, which are changed, and the map as a matrix over F2."""

from __future__ import annotations

from .. import LayoutError, LinearLayout, Swizzle
from ..banks import BANK_BYTES, BANKS
from ..tuples import to_int
from .canvas import Canvas, text_width
from .drawing import Drawing

_CELL = 26
_MAXIMUM_BITS = 64


def describe(swizzle: Swizzle) -> str:
    """What a swizzle does, in a few words.

    >>> describe(Swizzle(3, 4, 3))
    'bits 7-9 XOR into bits 4-6'
    """
    if swizzle.bits == 0:
        return "no bit changes: the identity"

    def name(mask: int) -> str:
        low, high = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
        return f"bit {low}" if low == high else f"bits {low}-{high}"

    return f"{name(swizzle.source_mask)} XOR into {name(swizzle.target_mask)}"


def _role(bit: int, unit: int) -> str:
    """What a bit of an address in units of ``unit`` bytes selects."""
    low = (1 << bit) * unit
    if low < BANK_BYTES:
        return "byte"
    return "bank" if low < BANK_BYTES * BANKS else "line"


def swizzle_bits(swizzle: Swizzle, bits: int | None = None, unit_bytes: int = 1, address: int | None = None) -> Drawing:
    """The address before and after, bit by bit, an arrow for each XOR, and the matrix with its rank.

    ``bits``: how many bits to show, 12 or as many as the swizzle needs; ``unit_bytes``: bytes of one unit of the
    address, a power of two; ``address``: one to follow through. A rank equal to ``bits`` shows that the swizzle is a
    bijection. Raises LayoutError where ``bits`` does not hold the swizzle or the address.

    >>> swizzle_bits(Swizzle(3, 4, 3), address=0x380).text().splitlines()[1]
    '  bits 7-9 XOR into bits 4-6; rank 12 of 12: a bijection'
    """
    if not isinstance(swizzle, Swizzle):
        raise LayoutError(f"the bit diagram is that of a Swizzle, not of {swizzle!r}")
    if address is not None and to_int(address, "address") < 0:
        raise LayoutError(f"address={address}: must not be negative, it has no highest bit")
    needed = max((swizzle.source_mask | swizzle.target_mask).bit_length(), (address or 0).bit_length(), 1)
    bits = max(12, needed) if bits is None else to_int(bits, "bits")
    if needed > _MAXIMUM_BITS:
        at = "" if address is None else f" and address {address:#x}"
        raise LayoutError(f"{swizzle}{at} need {needed} bits: the diagram shows at most {_MAXIMUM_BITS}")
    if not needed <= bits <= _MAXIMUM_BITS:
        raise LayoutError(f"bits={bits}: must be {needed} to {_MAXIMUM_BITS} for {swizzle}")
    if to_int(unit_bytes, "unit_bytes") < 1 or unit_bytes & (unit_bytes - 1):
        raise LayoutError(f"unit_bytes={unit_bytes}: must be a power of two")
    linear = LinearLayout.of(swizzle, bits)
    matrix, rank = list(linear.bases), linear.rank
    what = describe(swizzle)
    proof = f"rank {rank} of {bits}: {'a bijection' if rank == bits else 'no bijection'}"
    unit = "bytes" if unit_bytes == 1 else f"units of {unit_bytes} bytes"
    canvas = Canvas()
    canvas.text(0, 15, f"{swizzle} on {unit}", 15, "bold")
    canvas.text(0, 34, what, 12)
    width = _draw_address(canvas, swizzle, bits, unit_bytes, address)
    _draw_matrix(canvas, width + 60, 60, swizzle, matrix, bits)
    y = max(canvas.height, 60 + bits * 16.0) + 10
    canvas.text(0, y + 8, proof, 12, "good" if rank == bits else "warn")
    legend = [("k0", "read"), ("k1", "changed"), ("empty", "kept")]
    canvas.legend(0, y + 18, legend)
    facts: dict[str, object] = {"rank": rank, "bits": bits}
    lines = [f"{swizzle} on {unit}", f"  {what}; {proof}"]
    lines.append("  bit     " + " ".join(f"{j:>2}" for j in reversed(range(bits))))
    kinds = {0: " .", 1: " r", 2: " x"}
    marks = [kinds[(swizzle.source_mask >> j & 1) + 2 * (swizzle.target_mask >> j & 1)] for j in reversed(range(bits))]
    lines.append("          " + " ".join(marks) + "   r: read, x: changed")
    if address is not None:
        facts |= {"address": address, "swizzled": int(swizzle(address))}
        for name, value in (("before", address), ("after", int(swizzle(address)))):
            spelled = " ".join(f"{value >> j & 1:>2}" for j in reversed(range(bits)))
            lines.append(f"  {name:<8}{spelled}   {value} = {value:#x}")
    return Drawing.of(f"Swizzle {swizzle}: {what}", canvas, "\n".join(lines), facts)


def _draw_address(canvas: Canvas, swizzle: Swizzle, bits: int, unit: int, address: int | None) -> float:
    left = text_width("after", 12) + 12
    top, low = 86.0, 190.0

    def x(bit: int) -> float:
        return left + (bits - 1 - bit) * _CELL

    start = 0
    while start < bits:
        role = _role(start, unit)
        end = start
        while end + 1 < bits and _role(end + 1, unit) == role:
            end += 1
        canvas.line(x(end) + 3, top - 22, x(start) + _CELL - 3, top - 22)
        if (end - start + 1) * _CELL >= text_width(role, 11):
            canvas.text((x(end) + x(start) + _CELL) / 2, top - 27, role, 11, "faint", "middle")
        start = end + 1
    after = None if address is None else int(swizzle(address))
    for y, name, value in ((top, "before", address), (low, "after", after)):
        canvas.text(0, y + 17, name, 12, "faint")
        for bit in range(bits):
            read, changed = swizzle.source_mask >> bit & 1, swizzle.target_mask >> bit & 1
            kind = "k0" if read else "k1" if changed else "empty"
            label = "" if value is None else str(value >> bit & 1)
            canvas.cell(x(bit), y, _CELL, _CELL, kind, label, None, 12, {"bit": bit}, "on" if read or changed else "")
            if y == top:
                canvas.text(x(bit) + _CELL / 2, y - 6, bit, 10, "faint", "middle")
        if value is not None:
            canvas.text(x(0) + _CELL + 8, y + 17, f"{value} = {value:#x}", 12)
    for i in range(swizzle.bits):
        target = swizzle.base + max(0, -swizzle.shift) + i
        source = swizzle.base + max(0, swizzle.shift) + i
        canvas.arrow(x(source) + _CELL / 2, top + _CELL + 2, x(target) + _CELL / 2, low - 18)
        with canvas.group("xor", f"bit {target} ^= bit {source}", {"source": source, "target": target}):
            # A circle with a plus in it: XOR.
            centre = x(target) + _CELL / 2
            canvas.path(
                f"M{centre - 6:.1f} {low - 10:.1f}a6 6 0 1 0 12 0a6 6 0 1 0 -12 0h12M{centre:.1f} {low - 16:.1f}v12",
                "arrow",
            )
    return max(canvas.width, x(0) + _CELL)


def _draw_matrix(canvas: Canvas, left: float, top: float, swizzle: Swizzle, matrix: list[int], bits: int) -> None:
    side = 16.0
    canvas.text(left, top - 20, "over F2: after = matrix x before", 11, "faint")
    for j in range(0, bits, 1 if bits <= 16 else 4):
        canvas.text(left + (bits - 1 - j + 0.5) * side, top - 4, j, 9, "faint", "middle")
        canvas.text(left - 5, top + (bits - 1 - j + 0.5) * side + 3.5, j, 9, "faint", "end")
    for i in range(bits):
        for j in range(bits):
            one = matrix[j] >> i & 1
            kind = "empty" if not one else "k7" if i == j else "k1"
            canvas.cell(
                left + (bits - 1 - j) * side,
                top + (bits - 1 - i) * side,
                side,
                side,
                kind,
                "1" if one else "",
                f"bit {i} after {'depends' if one else 'does not depend'} on bit {j} before",
                10,
                {"matrix": one},
            )
