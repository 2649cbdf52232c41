"""Operations walked through step by step, with the numbers of the case at hand.

`explain` does the operation itself, and beside it says what happens to these operands in the operation's own terms. The
steps read the same quantities that the operation decides by: prefix products, breaks, residues, filled offsets.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stridewright.layout as _library

from .algebra import coalesce, cosize, size
from .carries import largest_residue
from .complements import complement
from .composition import steps_of
from .core import Layout, SymbolicLayout, as_layout
from .errors import LayoutError
from .operations import compose
from .swizzle import Swizzle, SwizzledLayout
from .tuples import to_int


@dataclass(frozen=True)
class Explanation:
    """The steps of one operation on given operands. `result` is what it returned, or the LayoutError it raised.

    >>> explanation = explain("coalesce", Layout((2, 4), (1, 2)))
    >>> explanation.result
    Layout(8, 1)
    """

    title: str
    meaning: str
    steps: tuple[str, ...]
    result: Any

    def __str__(self) -> str:
        last = f"raises: {self.result}" if isinstance(self.result, LayoutError) else f"result: {_text(self.result)}"
        return "\n".join([self.title, "  " + self.meaning, *["  " + step for step in self.steps], last])


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_text, value)) + ")"
    return str(value) if isinstance(value, (Layout, SwizzledLayout, Swizzle, int)) else repr(value)


def explain(operation: Any, *arguments: Any, **options: Any) -> Explanation:
    """The steps of ``operation(*arguments)``: print the result. `operation` is a function of this library or its name.

    A Swizzle explains what it does to an offset, a Layout how it evaluates an index or a coordinate. Operations that raise
    are explained up to the reason. Raises LayoutError where `operation` is none of the algebra's.

    >>> print(explain("coalesce", Layout((2, (1, 6)), (1, (6, 2)))))
    coalesce((2,(1,6)):(1,(6,2)))
      the same function of an index with the fewest modes
      2:1 begins
      1:6 has extent 1 and is dropped
      6:2 goes on where 2:1 ends (2 * 1 == 2): together 12:1
    result: 12:1
    >>> print(explain(Swizzle(2, 0, 3), 25))
    S<2,0,3>(25)
      XORs bits 3..4 into bits 0..1
      offset 25 = 0b11001
      read   0b11000 -> 24, moved by 3: 0b11 = 3
      0b11001 ^ 0b11 = 0b11010
    result: 26
    """
    if isinstance(operation, Swizzle):
        return _explain_swizzle(operation, *arguments)
    if isinstance(operation, (Layout, SwizzledLayout)):
        return _explain_call(operation, *arguments)
    name = operation if isinstance(operation, str) else getattr(operation, "__name__", "")
    function = getattr(_library, name, None) if name in _library.__all__ else None
    if not inspect.isfunction(function):
        raise LayoutError(f"explain takes an operation of the algebra, such as compose or 'compose', not {operation!r}")
    shown = [*map(_text, arguments), *[f"{key}={value!r}" for key, value in options.items()]]
    title = f"{name}({', '.join(shown)})"
    summary = re.split(r"[:;] |\.$", (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " "))[0]
    meaning = summary.replace("`", "")
    meaning = meaning[:1].lower() + meaning[1:]
    try:
        result = function(*arguments, **options)
    except LayoutError as error:
        result = error
    symbolic = any(type(a) is SymbolicLayout for a in arguments)
    steps = _generic if symbolic else _STEPS.get(name, _generic)
    try:
        lines = steps(*arguments, **options)
    except LayoutError as error:
        lines = [f"here it stops: {error}"]
    return Explanation(title, _MEANING.get(name, meaning), tuple(lines), result)


def _explain_swizzle(swizzle: Swizzle, offset: int) -> Explanation:
    offset = to_int(offset, "an offset")
    source, target = swizzle.source_mask, swizzle.target_mask
    result = swizzle(offset)
    steps = []
    if swizzle.bits:
        low, into = (source & -source).bit_length() - 1, (target & -target).bit_length() - 1
        last = swizzle.bits - 1
        meaning = f"XORs bits {low}..{low + last} into bits {into}..{into + last}"
        read = offset & source
        moved = read >> swizzle.shift if swizzle.shift > 0 else read << -swizzle.shift
        steps = [
            f"offset {offset} = {offset:#b}",
            f"read   {source:#b} -> {read}, moved by {swizzle.shift}: {moved:#b} = {moved}",
            f"{offset:#b} ^ {moved:#b} = {result:#b}",
        ]
    else:
        meaning = "no bits: the identity"
    return Explanation(f"{swizzle}({offset})", meaning, tuple(steps), result)


def _explain_call(layout: Any, *coordinate: Any) -> Explanation:
    plain = layout.layout if isinstance(layout, SwizzledLayout) else layout
    result = layout(*coordinate)
    steps = []
    if len(coordinate) == 1 and not isinstance(coordinate[0], tuple):
        coordinate = (to_int(coordinate[0], "an index to explain"),)
    if len(coordinate) == 1 and isinstance(coordinate[0], int):
        index, terms = coordinate[0], []
        shape, stride = plain.flat
        for i, (s, d) in enumerate(zip(shape, stride, strict=True)):
            if i == len(shape) - 1:
                digit = index
                steps.append(f"mode {s}:{d} takes what is left, {digit}, and adds {digit} * {d} = {digit * d}")
            else:
                index, digit = divmod(index, s)
                steps.append(
                    f"mode {s}:{d} takes the digit {digit}, adds {digit} * {d} = {digit * d}, and leaves {index}"
                )
            terms.append(digit * d)
        steps.append(f"sum: {' + '.join(map(str, terms)) or 0} = {plain(*coordinate)}")
    else:
        c = coordinate[0] if len(coordinate) == 1 else coordinate
        for entry, mode in zip(c, plain, strict=True):
            steps.append(f"coordinate {_text(entry)} of mode {mode} adds {mode(entry)}")
        steps.append(f"sum: {plain(*coordinate)}")
    if isinstance(layout, SwizzledLayout):
        inner = plain(*coordinate) + layout.offset
        steps += [f"offset {layout.offset} added: {inner}", *_explain_swizzle(layout.swizzle, inner).steps]
    title = f"{layout}({', '.join(map(_text, coordinate))})"
    return Explanation(title, "the inner product of coordinate and strides", tuple(steps), result)


def _coalesce_steps(layout: Any, profile: Any = None) -> list[str]:
    if profile is not None:
        return [f"mode {i}: {m} becomes {coalesce(m)}" for i, m in enumerate(as_layout(layout))]
    lines = []
    run: tuple[Any, Any] | None = None
    for s, d in zip(*as_layout(layout).flat, strict=True):
        if s == 1:
            lines.append(f"1:{d} has extent 1 and is dropped")
        elif run is None:
            lines.append(f"{s}:{d} begins")
            run = (s, d)
        elif d == run[0] * run[1]:
            joined = (run[0] * s, run[1])
            lines.append(
                f"{s}:{d} goes on where {run[0]}:{run[1]} ends ({run[0]} * {run[1]} == {d}): together {joined[0]}:{joined[1]}"
            )
            run = joined
        else:
            lines.append(
                f"{s}:{d} does not go on where {run[0]}:{run[1]} ends ({run[0]} * {run[1]} != {d}): it begins a new mode"
            )
            run = (s, d)
    return lines


def _compose_steps(a: Any, b: Any) -> list[str]:
    if isinstance(a, (Swizzle, SwizzledLayout)) or isinstance(b, (Swizzle, SwizzledLayout)):
        return [f"the swizzle stays outside: offsets of {_text(b)} are looked up first", f"then {_text(a)} moves them"]
    a = as_layout(a)
    if b is None:
        return ["None leaves the layout as it is"]
    if isinstance(b, (tuple, list)):
        return [
            f"mode {i}: {m} by {_text(t)} is {_text(compose(m, t))}" for i, (m, t) in enumerate(zip(a, b, strict=False))
        ]
    b = as_layout(b)
    slope, breaks = steps_of(a)
    lines = [f"{a} steps by {slope}" + "".join([f", and by {w} more at each multiple of {p}" for p, w in breaks])]
    parts: list[tuple[int, int]] = []
    for t, e in zip(*b.flat, strict=True):
        lines.append(f"mode {t}:{e} of {b}: visits 0, {e}, ... {e * (t - 1)}")
        mode = compose(a, Layout(t, e))
        step = e
        for n, d in zip(*mode.flat, strict=True):
            lines.append(
                f"  {n} steps of {step} move by {d} each" + ("" if step == e else f", {a} at {step} being {d}")
            )
            parts.append((n, step))
            step *= n
    for p, _ in breaks:
        sums = [largest_residue(e % p, n, p) for n, e in parts]
        total = sum(sums)
        verdict = (
            f"stays under {p}: nothing carries" if total < p else f"reaches {p}: the modes may carry into each other"
        )
        lines.append(f"largest remainders modulo {p}: {' + '.join(map(str, sums)) or 0} = {total} {verdict}")
    return lines


def _complement_steps(layout: Any, cotarget: Any = None) -> list[str]:
    layout = as_layout(layout)
    modes = sorted([(abs(d), s) for s, d in zip(*layout.flat, strict=True) if s != 1 and d != 0])
    lines = [
        "modes by rising stride, without those of stride 0 or extent 1: "
        + (", ".join(f"{s}:{d}" for d, s in modes) or "none")
    ]
    filled = 1
    for d, s in modes:
        if d == filled:
            lines.append(f"{s}:{d} begins where {filled} offsets are filled: no gap")
        elif d % filled == 0:
            lines.append(
                f"{s}:{d} leaves a gap: {d // filled} blocks of {filled} go before it, so {d // filled}:{filled}"
            )
        else:
            lines.append(f"{s}:{d} does not begin at a multiple of the {filled} offsets filled: it overlaps them")
            return lines
        filled = d * s
        lines.append(f"  {filled} offsets are filled")
    if cotarget is not None:
        target = size(cotarget)
        count = -(-target // filled)
        lines.append(
            f"the cotarget {target} takes {count} such blocks"
            + (f", so {count}:{filled}" if count > 1 else ": nothing is added")
        )
    return lines


def _inverse_steps(layout: Any) -> list[str]:
    layout = as_layout(layout)
    lines = []
    before = 1
    modes = []
    for s, d in zip(*layout.flat, strict=True):
        if s != 1:
            modes.append((d, s, before))
        before *= s
    for d, s, p in sorted(modes):
        lines.append(f"offsets step by {d} while the index steps by {p}, {s} times")
    lines.append("reading them by rising stride turns offsets back into indices")
    return lines


def _divide_steps(layout: Any, tiler: Any, pad: bool = False) -> list[str]:
    layout = layout.layout if isinstance(layout, SwizzledLayout) else as_layout(layout)
    if tiler is None:
        return ["None leaves the mode whole"]
    if isinstance(tiler, (tuple, list)):
        lines = []
        for i, (mode, t) in enumerate(zip(layout, tiler, strict=False)):
            lines.append(f"mode {i}: {mode} by {_text(t)}")
            lines += ["  " + line for line in _divide_steps(mode, t, pad)]
        return lines
    tile = as_layout(tiler)
    rest = complement(tile, size(layout))
    filled = size(rest) * size(tile)
    lines = [f"the tile {tile} leaves out {rest} of {size(layout)} elements"]
    if filled != size(layout):
        lines.append(
            f"tile and rest have {filled} elements, not {size(layout)}: "
            + ("rounded up" if pad else "they do not fill it")
        )
        if not pad:
            return lines
    else:
        both = Layout((tile.shape, rest.shape), (tile.stride, rest.stride))
        lines.append(f"composed with (tile, rest) = {both}: {compose(layout, both)}")
    return lines


def _product_steps(layout: Any, tiler: Any) -> list[str]:
    layout = layout.layout if isinstance(layout, SwizzledLayout) else as_layout(layout)
    if tiler is None:
        return ["None leaves the mode whole"]
    if isinstance(tiler, (tuple, list)):
        lines = []
        for i, (mode, t) in enumerate(zip(layout, tiler, strict=False)):
            lines.append(f"mode {i}: {mode} by {_text(t)}")
            lines += ["  " + line for line in _product_steps(mode, t)]
        return lines
    other = as_layout(tiler)
    target = size(layout) * cosize(other)
    rest = complement(layout, target)
    return [
        f"{size(layout)} elements, repeated over a span of {cosize(other)}: a cotarget of {target}",
        f"{layout} leaves out {rest} of it",
        f"the repetition {other} picks from what is left out: {compose(rest, other)}",
    ]


def _cast_steps(layout: Any, n: int) -> list[str]:
    plain = layout.layout if isinstance(layout, SwizzledLayout) else as_layout(layout)
    lines = []
    for s, d in zip(*plain.flat, strict=True):
        if d % n == 0:
            lines.append(f"{s}:{d} steps by whole units of {n}: {s}:{d // n}")
        elif n % abs(d) == 0 and s % (n // abs(d)) == 0:
            lines.append(
                f"{s}:{d} has {n // abs(d)} elements in a unit of {n}: {s // (n // abs(d))}:{1 if d > 0 else -1}"
            )
        else:
            lines.append(f"{s}:{d} is not made of whole units of {n}")
    if isinstance(layout, SwizzledLayout):
        lines.append(f"{layout.swizzle} in units of {n}: its bits move down by {n.bit_length() - 1}")
    return lines


def _downcast_steps(layout: Any, n: int) -> list[str]:
    plain = layout.layout if isinstance(layout, SwizzledLayout) else as_layout(layout)
    return [
        f"{s}:{d} runs through elements: {n} parts each, {s * n}:{d}"
        if abs(d) == 1
        else f"{s}:{d} steps {n} times as far: {s}:{d * n}"
        for s, d in zip(*plain.flat, strict=True)
    ]


def _generic(*arguments: Any, **options: Any) -> list[str]:
    return [f"given {_text(a)}, {size(a)} coordinates" for a in arguments if isinstance(a, (Layout, SwizzledLayout))]


def _arranged(steps: Callable[..., list[str]], how: str) -> Callable[..., list[str]]:
    return lambda *arguments, **options: [*steps(*arguments, **options), how]


def _interleaved(how: str) -> Callable[..., list[str]]:
    def lines(layout: Any, tiler: Any) -> list[str]:
        return [*_product_steps(layout, as_layout(tiler)), how]

    return lines


_STEPS: dict[str, Callable[..., list[str]]] = {
    "coalesce": _coalesce_steps,
    "compose": _compose_steps,
    "complement": _complement_steps,
    "right_inverse": _inverse_steps,
    "left_inverse": _inverse_steps,
    "logical_divide": _divide_steps,
    "zipped_divide": _arranged(_divide_steps, "gathered: (all tiles), (all rests)"),
    "tiled_divide": _arranged(_divide_steps, "gathered: (all tiles), rest, rest, ..."),
    "flat_divide": _arranged(_divide_steps, "gathered: tile, tile, ..., rest, rest, ..."),
    "logical_product": _product_steps,
    "zipped_product": _arranged(_product_steps, "gathered: (all blocks), (all repetitions)"),
    "tiled_product": _arranged(_product_steps, "gathered: (all blocks), repetition, repetition, ..."),
    "flat_product": _arranged(_product_steps, "gathered: block, block, ..., repetition, repetition, ..."),
    "blocked_product": _interleaved("mode by mode: (block, repetition), so that blocks lie side by side"),
    "raked_product": _interleaved("mode by mode: (repetition, block), so that the elements of blocks alternate"),
    "upcast": _cast_steps,
    "downcast": _downcast_steps,
}

_MEANING = {
    "compose": "R with R(i) == a(b(i)), its shape refining that of b",
    "complement": "what the layout leaves out, so that both together fill the cotarget",
    "right_inverse": "the largest R with layout(R(i)) == i",
    "left_inverse": "an R with R(layout(i)) == i",
    "logical_divide": "each divided mode becomes (tile, rest)",
    "logical_product": "(layout, repetition)",
    "upcast": "the layout in wider units",
    "downcast": "the layout in narrower units",
}
