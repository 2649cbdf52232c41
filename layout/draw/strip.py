"""The algebra strip: operands and result of an operation linked by colour, with the defining identity checked below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import (
    LayoutError,
    bundle,
    coalesce,
    complement,
    compose,
    cosize,
    left_inverse,
    logical_divide,
    logical_product,
    rank,
    right_inverse,
    size,
)
from ..core import Layout, as_layout
from .canvas import Canvas, text_width
from .drawing import Drawing
from .grid import LABEL, AnyLayout, extent_of, values
from .style import GROUPS, group

MAXIMUM_SHOWN = 64
MAXIMUM_CHECKED = 1 << 16
_PER_LINE = 32


@dataclass(frozen=True)
class _Row:
    """A strip: its name, the layout as text, its values, and the colour of each (None: plain)."""

    name: str
    layout: str
    values: Sequence[Any]
    colours: Sequence[int | None]
    meaning: str = ""


@dataclass(frozen=True)
class _Identity:
    """The defining identity in words, how many cases were checked, the first that failed (None: all hold), and how many
    cases there are."""

    text: str
    checked: int
    failed: str | None
    total: int


def _range(count: int) -> range:
    return range(min(count, MAXIMUM_CHECKED))


def _whole(layout: Any, name: str) -> range:
    """All indices of a layout that the check needs in full."""
    count = extent_of(layout)
    if count > MAXIMUM_CHECKED:
        raise LayoutError(f"{name} {layout} has {count} elements: the strip checks at most {MAXIMUM_CHECKED}")
    return range(count)


def _first_difference(got: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if a != b:
            return f"i = {i}: {a} is not {b}"
    return None


def _compose(a: AnyLayout, b: Any) -> tuple[Any, list[_Row], _Identity]:
    b = as_layout(b)
    result = compose(a, b)
    indices = _range(extent_of(b))
    inner = values(b, indices)
    shown, reached = range(min(extent_of(a), MAXIMUM_SHOWN)), set(inner)
    got, wanted = values(result, indices), values(a, inner)
    rows = [
        _Row("B", str(b), inner, inner, "B(i), an index of A"),
        _Row("A", str(a), values(a, shown), [j if j in reached else None for j in shown], "A(j)"),
        _Row("R", str(result), got, inner, "R(i)"),
    ]
    return result, rows, _Identity("R(i) == A(B(i))", len(indices), _first_difference(got, wanted), extent_of(b))


def _coalesce(a: AnyLayout, _: Any) -> tuple[Any, list[_Row], _Identity]:
    result = coalesce(a)
    indices = _range(extent_of(a))
    got, wanted = values(result, indices), values(a, indices)
    rows = [_Row("A", str(a), wanted, wanted, "A(i)"), _Row("R", str(result), got, got, "R(i)")]
    text = f"R(i) == A(i), with {rank(result)} mode{'s' * (rank(result) > 1)}"
    return result, rows, _Identity(text, len(indices), _first_difference(got, wanted), extent_of(a))


def _complement(a: Any, b: Any) -> tuple[Any, list[_Row], _Identity]:
    a = as_layout(a)
    result = complement(a, b)
    first, copies = values(a, _whole(a, "A")), values(result, _whole(result, "the complement"))
    if len(first) * len(copies) > MAXIMUM_CHECKED:
        raise LayoutError(f"{len(first) * len(copies)} offsets: the strip checks at most {MAXIMUM_CHECKED}")
    owner = {x + y: (i, j) for j, y in enumerate(copies) for i, x in enumerate(first)}
    line = range(min(max(owner) + 1, MAXIMUM_SHOWN))
    rows = [
        _Row("A", str(a), first, [0] * len(first), "A(i)"),
        _Row("R", str(result), copies, list(range(len(copies))), "R(j), where copy j begins"),
        _Row(
            "memory",
            f"offsets 0 to {max(owner)}",
            [owner[x][0] if x in owner else "" for x in line],
            [owner[x][1] if x in owner else None for x in line],
            "i of A(i) + R(j), coloured by j",
        ),
    ]
    disjoint = len(owner) == len(first) * len(copies)
    target = extent_of(b) if b is not None else int(cosize(a))
    ordered = copies == sorted(copies)
    covers = int(cosize(bundle([a, result]))) >= target
    failed = None if disjoint and ordered and covers else f"disjoint {disjoint}, ordered {ordered}, covers {covers}"
    text = f"A(i) + R(j) all different, R(j) increasing, span at least {target}"
    return result, rows, _Identity(text, len(owner), failed, len(owner))


def _right_inverse(a: Any, _: Any) -> tuple[Any, list[_Row], _Identity]:
    result = right_inverse(a)
    indices = _range(extent_of(result))
    inner = values(result, indices)
    shown, reached = range(min(extent_of(a), MAXIMUM_SHOWN)), set(inner)
    offsets = values(a, shown)
    rows = [
        _Row("A", str(a), offsets, [v if j in reached else None for j, v in zip(shown, offsets, strict=True)], "A(j)"),
        _Row("R", str(result), inner, list(indices), "R(i), an index of A"),
    ]
    failed = _first_difference(values(a, inner), list(indices))
    return result, rows, _Identity("A(R(i)) == i", len(indices), failed, extent_of(result))


def _left_inverse(a: Any, _: Any) -> tuple[Any, list[_Row], _Identity]:
    result = left_inverse(a)
    indices = _range(extent_of(a))
    outer = values(a, indices)
    shown = range(min(max(outer) + 1, MAXIMUM_SHOWN))
    back = {offset: i for i, offset in zip(indices, outer, strict=True)}
    rows = [
        _Row("A", str(a), outer, list(indices), "A(i)"),
        _Row("R", str(result), values(result, shown), [back.get(j) for j in shown], "R(j) where A reaches j"),
    ]
    failed = _first_difference(values(result, outer), list(indices))
    return result, rows, _Identity("R(A(i)) == i", len(indices), failed, extent_of(a))


def _divide(a: Any, b: Any) -> tuple[Any, list[_Row], _Identity]:
    a = as_layout(a)
    result = logical_divide(a, b)
    count = extent_of(result)
    indices = _range(count)
    got, tile = values(result, indices), extent_of(result[0])
    number = {offset: i // tile for i, offset in zip(indices, got, strict=True)}
    source = values(a, _range(extent_of(a)))
    if isinstance(b, (int, Layout)):
        tiler = as_layout(b)
        pair = bundle([tiler, complement(tiler, size(a))])
        wanted, text = values(a, values(pair, indices)), "R(i) == A((B, complement of B)(i))"
        failed = _first_difference(got, wanted)
    else:
        text = "R has the offsets of A, each once"
        source = values(a, _whole(a, "A"))
        failed = None if sorted(got) == sorted(source) else "the offsets differ"
    rows = [
        _Row("A", str(a), source, [number.get(offset) for offset in source], "A(j), coloured by tile"),
        _Row("R", str(result), got, [i // tile for i in indices], f"R(i): tiles of {tile}"),
    ]
    return result, rows, _Identity(text, len(indices), failed, count)


def _product(a: Any, b: Any) -> tuple[Any, list[_Row], _Identity]:
    a = as_layout(a)
    result = logical_product(a, b)
    indices = _range(extent_of(result))
    got, tile = values(result, indices), extent_of(a)
    first = values(a, _whole(a, "A"))
    copies = values(result[1], range(-(-len(indices) // tile)))
    wanted = [first[i % tile] + copies[i // tile] for i in indices]
    failed = _first_difference(got, wanted) or (None if result[0] == a else f"mode 0 is {result[0]}")
    rows = [
        _Row("A", str(a), first, [0] * tile, "A(i)"),
        _Row("R", str(result), got, [i // tile for i in indices], "R: A once for each element of B, coloured by copy"),
    ]
    return result, rows, _Identity("R(i, j) == A(i) + R(0, j), mode 0 is A", len(indices), failed, extent_of(result))


_OPERATIONS: dict[str, tuple[Callable[[Any, Any], tuple[Any, list[_Row], _Identity]], bool]] = {
    "compose": (_compose, True),
    "coalesce": (_coalesce, False),
    "complement": (_complement, False),
    "right_inverse": (_right_inverse, False),
    "left_inverse": (_left_inverse, False),
    "logical_divide": (_divide, True),
    "logical_product": (_product, True),
}


def _draw_row(canvas: Canvas, y: float, row: _Row, width: float) -> float:
    canvas.text(0, y + 12, row.name, 12, "bold")
    left = text_width("memory", 12) + 14
    canvas.text(left, y + 12, row.layout, 12)
    if row.meaning:
        canvas.text(left + text_width(row.layout, 12) + 18, y + 12, row.meaning, 11, "faint")
    y += 20
    shown = min(len(row.values), MAXIMUM_SHOWN)
    for start in range(0, shown, _PER_LINE):
        if shown > _PER_LINE:
            canvas.text(left - 6, y + 13, start, 10, "faint", "end")
        for i in range(start, min(start + _PER_LINE, shown)):
            colour = row.colours[i]
            kind = "empty" if colour is None else group(colour)
            tip = f"{row.name}: position {i} is {row.values[i]}"
            label, ink = str(row.values[i]), "faint" if colour is None else "on"
            x = left + (i - start) * width
            canvas.cell(x, y, width, 19, kind, label, tip, LABEL, {"row": row.name, "position": i}, ink)
        y += 19
    if shown < len(row.values):
        canvas.text(left, y + 13, f"shown: the first {shown} of {len(row.values)}", 11, "warn")
        y += 18
    return y + 12


def algebra_strip(operation: str, a: Any, b: Any = None) -> Drawing:
    """Operands and result of one operation as strips of values, equal colours where one leads to the other, and the identity
    that defines the operation, checked for every index (up to 65,536).

    ``operation``: compose, coalesce, complement, right_inverse, left_inverse, logical_divide or logical_product; ``b``
    its second operand, where there is one. Raises LayoutError for another name and for what the operation refuses.

    >>> strip = algebra_strip("compose", Layout((4, 8), (8, 1)), Layout(8, 2))
    >>> strip.facts["holds"], strip.facts["result"]
    ('yes', '(2,4):(16,1)')
    """
    if operation not in _OPERATIONS:
        raise LayoutError(f"operation {operation!r}: must be one of {', '.join(_OPERATIONS)}")
    work, needs_b = _OPERATIONS[operation]
    if needs_b and b is None:
        raise LayoutError(f"{operation} takes two operands")
    result, rows, identity = work(a, b)
    title = f"{operation}({a}{'' if b is None else f', {b}'}) = {result}"
    canvas = Canvas()
    canvas.text(0, 15, title, 14, "bold")
    y = 30.0
    longest = max(len(str(v)) for row in rows for v in list(row.values)[:MAXIMUM_SHOWN])
    width = max(20.0, text_width("0" * longest, LABEL) + 7)
    for row in rows:
        y = _draw_row(canvas, y, row, width)
    part = "all" if identity.checked == identity.total else "the first"
    rest = "" if identity.checked == identity.total else f" of {identity.total}"
    outcome = f"holds for {part} {identity.checked}{rest}" if identity.failed is None else f"FAILS at {identity.failed}"
    canvas.text(0, y + 6, f"{identity.text}: {outcome}", 12, "good" if identity.failed is None else "warn")
    canvas.text(0, y + 24, f"equal colours belong together; colours repeat after {GROUPS}", 11, "faint")
    words = [title]
    for row in rows:
        cells = " ".join(str(v) if v != "" else "." for v in list(row.values)[:MAXIMUM_SHOWN])
        more = " ..." if len(row.values) > MAXIMUM_SHOWN else ""
        words.append(f"  {row.name:<7}{row.layout}\n         {cells}{more}")
    words.append(f"  {identity.text}: {outcome}")
    facts: dict[str, object] = {
        "result": str(result),
        "checked": identity.checked,
        "holds": "yes" if identity.failed is None else "no",
    }
    return Drawing.of(title, canvas, "\n".join(words), facts)
