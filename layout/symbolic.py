"""The operations on layouts whose extents or strides are symbolic.

Each follows the numeric one step by step, deciding every question for all values of the sizes (see `facts`). Where a question
is open, LayoutError says which fact would settle it: nothing is guessed. With numbers put in, a result is what the numeric
operation gives; only where a size makes an extent 1, so that the numeric operation drops its mode, may it keep modes that
the other does not need. Its post-condition holds there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .basis import E
from .core import Layout, as_layout
from .errors import LayoutError
from .facts import clean, missing_divisor, quotient, sign
from .tuples import product, unwrap

Mode = tuple[Any, Any]


def rebuild(modes: list[Mode]) -> Layout:
    """The coalesced layout of flat modes (extent, stride).

    >>> print(rebuild([(4, 1), (8, 4)]))
    32:1
    """
    merged: list[Mode] = []
    for s, d in modes:
        if s == 1:
            continue
        if merged and clean(d - merged[-1][0] * merged[-1][1]) == 0:
            merged[-1] = (clean(merged[-1][0] * s), merged[-1][1])
        else:
            merged.append((s, d))
    if not merged:
        return Layout(1, 0)
    return Layout(unwrap([s for s, _ in merged]), unwrap([d for _, d in merged]))


def flat_modes(layout: Layout) -> list[Mode]:
    """The flat modes (extent, stride) of a layout.

    >>> flat_modes(Layout((4, 8)))
    [(4, 1), (8, 4)]
    """
    if any(type(d) is E for d in layout.flat[1]):
        raise LayoutError(f"{layout} has basis strides, which are not combined with symbolic sizes")
    return list(zip(*layout.flat, strict=True))


def _open(what: str, fact: str) -> LayoutError:
    return LayoutError(f"{what}: not determined; missing is the fact {fact}")


def coalesce(layout: Layout) -> Layout:
    """The same function with the fewest modes that hold for all sizes.

    >>> from stridewright.layout import dimension
    >>> print(coalesce(Layout((16, dimension("N")), (1, 16))))
    16*N:1
    """
    return rebuild(flat_modes(layout))


def _steps(layout: Layout) -> tuple[Any, list[tuple[Any, Any]]]:
    slope: Any = 0
    breaks: list[tuple[Any, Any]] = []
    total: Any = 1
    run: Any = 0
    for s, d in flat_modes(layout):
        if total == 1:
            slope = d
        elif clean(d - run) != 0:
            weight = clean(d - run)
            if breaks and breaks[-1][0] == total:
                weight = clean(breaks.pop()[1] + weight)
            if weight != 0:
                breaks.append((total, weight))
        total, run = clean(total * s), clean(s * d)
    return slope, breaks


class _Composition:
    def __init__(self, a: Layout, b: Layout) -> None:
        self.what = f"compose({a}, {b})"
        self.slope, self.breaks = _steps(a)
        self.parts: list[tuple[Any, Any]] = []

    def value(self, x: Any, extent: Any) -> Any:
        """a(x), where x is the stride of a mode of that extent (and of no account if the extent is 1)."""
        result = self.slope * x
        for p, w in self.breaks:
            result = result + w * self.floor(x, p, extent)
        return clean(result)

    def floor(self, x: Any, p: Any, extent: Any) -> Any:
        if type(x) is int and type(p) is int:
            return x // p
        q = quotient(x, p)
        if q is not None:
            return q
        if sign(x) in (0, 1) and (sign(p - x) == 1 or sign(clean(p - x * (extent - 1))) == 1):
            return 0
        raise _open(self.what, f"{missing_divisor(x, p)}, or {x} < {p}")

    def split(self, t: Any, e: Any) -> tuple[Any, Any]:
        shapes, strides = [], []
        left, step = t, e
        while True:
            n = self.run(left, step)
            if n is not left:
                rest = quotient(left, n)
                if rest is None:
                    if type(left) is int and type(n) is int:
                        raise LayoutError(
                            f"{self.what}: no layout represents it: the mode {t}:{e} breaks after {n} of {left} steps of {step}"
                        )
                    raise _open(self.what, missing_divisor(left, n))
            shapes.append(n)
            strides.append(self.value(step, n))
            self.parts.append((n, step))
            if n is left:
                break
            left, step = rest, clean(step * n)
            if left == 1:
                break
        return unwrap(shapes), unwrap(strides)

    def run(self, left: Any, step: Any) -> Any:
        """How many steps keep one slope: `left` itself, or the first break before it."""
        nearest = left
        for p, _ in self.breaks:
            if step == 0 or left == 1 or quotient(step, p) is not None:
                continue
            if type(step) is int and type(p) is int:
                jump: Any = -(-p // (step % p))
            else:
                jump = quotient(p, step)
                if jump is None:
                    if sign(step) == 1 and sign(p - step * (left - 1)) == 1:
                        continue
                    raise _open(self.what, f"{missing_divisor(p, step)}, or {missing_divisor(step, p)}")
            known = sign(jump - nearest)
            if known in (0, 1):
                continue
            if known is None and quotient(nearest, jump) is None:
                if quotient(jump, nearest) is not None:
                    continue
                raise _open(self.what, f"{missing_divisor(nearest, jump)}, or {nearest} <= {jump}")
            nearest = jump
        return nearest

    def walk(self, shape: Any, stride: Any) -> tuple[Any, Any]:
        if type(shape) is tuple:
            pairs = [self.walk(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple([p[0] for p in pairs]), tuple([p[1] for p in pairs])
        return self.split(shape, stride)

    def check(self) -> None:
        """That no sum of parts carries over a break."""
        for p, _ in self.breaks:
            total: Any = 0
            for n, e in self.parts:
                if n == 1 or e == 0 or quotient(e, p) is not None:
                    continue
                span = clean(e * (n - 1))
                if sign(e) == 1 and sign(p - span) == 1:
                    total = total + span
                elif quotient(p, e) is not None and sign(e) == 1:
                    total = total + p - e
                else:
                    raise _open(self.what, f"{missing_divisor(p, e)}, or {span} < {p}")
            if sign(clean(p - total)) != 1:
                raise _open(self.what, f"{clean(total)} < {p}, so that its modes do not carry into each other")


def compose(a: Layout, b: Layout) -> Layout:
    """``R(i) == a(b(i))`` for all sizes.

    >>> from stridewright.layout import dimension
    >>> N = dimension("N", multiple_of=16)
    >>> print(compose(Layout((16, N), (1, 32)), Layout(N, 1)))
    (16,N/16):(1,32)
    """
    work = _Composition(a, b)
    shape, stride = work.walk(b.shape, b.stride)
    work.check()
    return Layout(shape, stride)


def _nested(modes: list[tuple[Any, ...]], what: str) -> list[tuple[Any, ...]]:
    """The modes (extent, stride, ...) of positive stride by rising stride."""
    ordered: list[tuple[Any, ...]] = []
    for mode in modes:
        s, d = mode[:2]
        if s == 1 or d == 0:
            continue
        if sign(d) != 1:
            raise _open(what, f"{d} > 0")
        place = len(ordered)
        for i, (_, other, *_rest) in enumerate(ordered):
            order = sign(clean(other - d))
            if order is None:
                if quotient(other, d) is not None:
                    order = 1
                elif quotient(d, other) is not None:
                    order = -1
                else:
                    raise _open(what, f"{d} < {other}, or {other} < {d}")
            if order == 1:
                place = i
                break
        ordered.insert(place, mode)
    return ordered


def complement(layout: Layout, cotarget: Any = None) -> Layout:
    """What `layout` leaves out of the cotarget, for all sizes.

    >>> from stridewright.layout import dimension
    >>> print(complement(Layout(4, 1), dimension("N", multiple_of=8)))
    N/4:4
    """
    target = None if cotarget is None else clean(product(as_layout(cotarget).shape))
    what = f"complement({layout}, {target})"
    modes: list[Mode] = []
    filled: Any = 1
    for s, d in _nested(list(flat_modes(layout)), what):
        gap = quotient(d, filled)
        if gap is None:
            raise _open(what, missing_divisor(d, filled))
        if gap != 1:
            modes.append((gap, filled))
        filled = clean(d * s)
    if target is not None and sign(clean(target - filled)) not in (0, -1):
        rest = quotient(target, filled)
        if rest is None:
            raise _open(what, missing_divisor(target, filled))
        modes.append((rest, filled))
    return rebuild(modes)


def right_inverse(layout: Layout) -> Layout:
    """The largest R with ``layout(R(i)) == i``, for all sizes.

    >>> from stridewright.layout import dimension
    >>> print(right_inverse(Layout((16, dimension("N")), (1, 16))))
    16*N:1
    """
    what = f"right_inverse({layout})"
    before: Any = 1
    left = []
    for s, d in flat_modes(layout):
        if s != 1 and d != 0:
            left.append((s, d, before))
        before = clean(before * s)
    modes: list[Mode] = []
    reached: Any = 1
    while True:
        found = next((m for m in left if clean(m[1] - reached) == 0), None)
        if found is None:
            break
        left.remove(found)
        modes.append((found[0], found[2]))
        reached = clean(reached * found[0])
    for s, d, _ in left:
        if sign(clean(d - reached)) != 1:
            raise _open(what, f"{d} > {reached}, so that {s}:{d} cannot go on where the others end")
    return rebuild(modes)


def left_inverse(layout: Layout) -> Layout:
    """An R with ``R(layout(i)) == i``, for all sizes.

    >>> from stridewright.layout import dimension
    >>> print(left_inverse(Layout((4, dimension("N")), (1, 8))))
    (8,N):(1,4)
    """
    what = f"left_inverse({layout})"
    if any(d == 0 and s != 1 for s, d in flat_modes(layout)):
        raise LayoutError(f"{what}: not injective, it has a mode of stride 0")
    before: Any = 1
    given: list[tuple[Any, ...]] = []
    for s, d in flat_modes(layout):
        given.append((s, d, before))
        before = clean(before * s)
    modes: list[Mode] = []
    read: Any = 0
    previous: Any = 1
    end: Any = 1
    for s, d, place in _nested(given, what):
        gap = quotient(d, previous)
        if gap is None:
            raise _open(what, missing_divisor(d, previous))
        if clean(d - end) != 0 and quotient(d, end) is None and sign(clean(d - end)) != 1:
            raise _open(what, f"{d} >= {end}")
        modes.append((gap, read))
        read, previous, end = place, d, clean(d * s)
    modes.append((quotient(end, previous), read))
    return rebuild(modes)


def upcast(layout: Layout, n: int) -> Layout:
    """The layout in units of n elements, for all sizes.

    >>> from stridewright.layout import dimension
    >>> print(upcast(Layout((8, dimension("N", multiple_of=4)), (dimension("P", multiple_of=4), 1)), 4))
    (8,N/4):(P/4,1)
    """

    def cast(s: Any, d: Any) -> tuple[Any, Any]:
        if type(s) is tuple:
            pairs = [cast(t, e) for t, e in zip(s, d, strict=True)]
            return tuple([p[0] for p in pairs]), tuple([p[1] for p in pairs])
        whole = quotient(d, n)
        if whole is not None:
            return s, whole
        if type(d) is not int or n % abs(d):
            raise _open(f"upcast({layout}, {n})", missing_divisor(d, n))
        shorter = quotient(s, n // abs(d))
        if shorter is None:
            raise _open(f"upcast({layout}, {n})", missing_divisor(s, n // abs(d)))
        return shorter, 1 if d > 0 else -1

    return Layout(*cast(layout.shape, layout.stride))


def downcast(layout: Layout, n: int) -> Layout:
    """The layout in units n times smaller, for all sizes.

    >>> from stridewright.layout import dimension
    >>> print(downcast(Layout((8, dimension("N")), (dimension("P", multiple_of=8), 1)), 4))
    (8,4*N):(4*P,1)
    """

    def cast(s: Any, d: Any) -> tuple[Any, Any]:
        if type(s) is tuple:
            pairs = [cast(t, e) for t, e in zip(s, d, strict=True)]
            return tuple([p[0] for p in pairs]), tuple([p[1] for p in pairs])
        if type(d) is not int and sign(clean(d - 1)) not in (1, -1) and sign(clean(d + 1)) != -1:
            raise _open(f"downcast({layout}, {n})", f"{d} > 1")
        return (clean(s * n), d) if d in (1, -1) else (s, clean(d * n))

    return Layout(*cast(layout.shape, layout.stride))


def substitute(layout: Any, values: Mapping[Any, int]) -> Layout:
    """The layout with numbers for its sizes. Raises LayoutError for numbers that break what was declared.

    >>> from stridewright.layout import dimension
    >>> N = dimension("N", multiple_of=16)
    >>> substitute(Layout((16, N), (1, 16)), {N: 32})
    Layout((16, 32), (1, 16))
    """
    layout = as_layout(layout)
    if not isinstance(values, Mapping):
        raise LayoutError(f"numbers for sizes are given as a mapping, such as {{N: 64}}, not as {values!r}")
    for symbol, value in values.items():
        multiple = getattr(symbol, "multiple_of", 1)
        if type(value) is int and (value < 1 or value % multiple):
            raise LayoutError(f"{symbol} is a positive multiple of {multiple}, not {value}")

    def put(t: Any) -> Any:
        if type(t) is tuple:
            return tuple([put(u) for u in t])
        return clean(t.subs(values)) if hasattr(t, "free_symbols") else t

    return Layout(put(layout.shape), put(layout.stride))
