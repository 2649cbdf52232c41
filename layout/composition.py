"""Composition, decided exactly and without visiting the domain.

A layout with flat modes (s0, d0), (s1, d1), ... and prefix products P0 = 1, P1 = s0, P2 = s0 s1, ... is, on all integers,

    A(x) = w0 x + w1 floor(x / P1) + w2 floor(x / P2) + ...      with w0 = d0 and wk = dk - s(k-1) d(k-1),

the last mode being unbounded. Modes that continue one another have wk = 0, so a coalesced layout has one term for each break
in its run. Everything below follows from this form:

* Along one mode (t, e) of B, x = e c. The sum keeps a constant slope until the first c at which some term jumps that the
  slope does not account for. Because a layout's first extent IS the position of its first break, the mode splits in one way
  only, and exists only if each break position divides what is left of t.
* Modes then add up if no sum of their parts carries over a Pk: the largest residues (e c mod Pk) must sum to less than Pk.
  Where they do carry, the carries may still cancel (their weights sum to zero at every coordinate); that is decided in
  `carries`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .basis import E
from .carries import first_break, largest_residue, resolve_carries
from .core import Layout, _set_steps, make
from .errors import LayoutError
from .tuples import show, unwrap

Steps = tuple[Any, tuple[tuple[int, Any], ...]]


def steps_of(layout: Layout) -> Steps:
    """The slope w0 and the breaks (Pk, wk) with wk != 0 of a layout.

    >>> steps_of(Layout((4, 6, 8), (2, 8, 5)))
    (2, ((24, -43),))
    """
    try:
        return layout._steps  # type: ignore[no-any-return]
    except AttributeError:
        pass
    shape, stride = layout.shape, layout.stride
    if type(shape) is tuple:
        shape, stride = layout.flat
        try:
            steps = _steps_of_modes(shape, stride) if shape else (0, ())
        except TypeError:
            raise LayoutError(f"{layout} has both numbers and basis strides, so its offsets are neither") from None
    else:
        steps = (stride, ())
    _set_steps(layout, steps)
    return steps


def _steps_of_modes(shape: tuple[Any, ...], stride: tuple[Any, ...]) -> Steps:
    breaks: list[tuple[int, Any]] = []
    total, run = 1, 0  # the product of the extents so far; the stride with which they would continue
    slope = stride[0]
    for s, d in zip(shape, stride):  # noqa: B905 - of one form, and this loop is a good part of composing
        if total == 1:
            slope = d
        elif d != run:
            weight = d - run
            if breaks and breaks[-1][0] == total:
                # Modes of extent 1 lie between: one break with the sum of the weights.
                weight = breaks.pop()[1] + weight
            if weight != 0:
                breaks.append((total, weight))
        total *= s
        run = s * d
    return slope, tuple(breaks)


class _CoordinatesError(Exception):
    """The strides of b are coordinates, not numbers."""


def compose_flat(a: Layout, b: Layout) -> Layout:
    """``R(i) == a(b(i))`` for every index i of b, with the shape of R refining that of b.

    >>> compose_flat(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)))
    Layout(((2, 2), 3), ((24, 2), 8))
    """
    if type(a) is not Layout or type(b) is not Layout:
        from . import symbolic

        return symbolic.compose(a, b)
    slope, breaks = steps_of(a)
    parts: list[tuple[int, int, Any]] = []  # (extent, stride in b, stride in R) of every mode of R
    try:
        if type(b.shape) is tuple:
            shapes, strides = _walk(b.shape, b.stride, slope, breaks, parts, a, b)
        else:
            shapes, strides = _split(b.shape, b.stride, slope, breaks, parts, a, b)
    except _CoordinatesError:
        return _compose_coordinates(a, b)
    if len(parts) > 1:
        _check_additive(slope, breaks, parts, a, b)
    return make(shapes, strides)


def _check_additive(slope: Any, breaks: Any, parts: Any, a: Layout, b: Layout) -> None:
    """Raises unless the parts add up: unless no sum of residues reaches a break, or the carries cancel."""
    for p, _ in breaks:
        total = 0
        for n, e, _r in parts:
            span = e * (n - 1)
            total += span if 0 <= span < p else (0 if e % p == 0 else largest_residue(e % p, n, p))
        if total >= p:
            problem = resolve_carries(slope, breaks, parts)
            if problem is not None:
                raise _not_additive(a, b, parts, problem)
            return


def _compose_coordinates(a: Layout, b: Layout) -> Layout:
    """Where the offsets of b are coordinates: each mode of b that steps along a coordinate is composed with that mode of a."""
    parts: dict[tuple[int, ...], list[tuple[int, int, Any]]] = {}

    def walk(t: Any, e: Any) -> tuple[Any, Any]:
        if type(t) is tuple:
            pairs = [walk(u, f) for u, f in zip(t, e, strict=True)]
            return tuple([p[0] for p in pairs]), tuple([p[1] for p in pairs])
        if e == 0:
            return t, 0
        if type(e) is not E or len(e.terms) > 1:
            raise LayoutError(
                f"compose({a}, {b}): the mode {t}:{e} of {b} does not step along one coordinate of {a}; "
                f"a layout of coordinates has strides such as 2@0 in every mode"
            )
        path, step = e.terms[0]
        try:
            mode = a[path]
        except LayoutError:
            raise LayoutError(f"compose({a}, {b}): {a} has no coordinate {'.'.join(map(str, path))}") from None
        slope, breaks = steps_of(mode)
        return _split(t, step, slope, breaks, parts.setdefault(path, []), mode, Layout(t, step))

    shape, stride = walk(b.shape, b.stride)
    paths = sorted(parts)
    for one, other in pairwise(paths):
        if other[: len(one)] == one:
            raise LayoutError(f"compose({a}, {b}): {b} steps along the coordinate {one} and along {other} inside it")
    for path, along in parts.items():
        slope, breaks = steps_of(a[path])
        _check_additive(slope, breaks, along, a[path], b)
    return make(shape, stride)


def _walk(shape: Any, stride: Any, slope: Any, breaks: Any, parts: Any, a: Layout, b: Layout) -> tuple[Any, Any]:
    shapes = []
    strides = []
    for t, e in zip(shape, stride, strict=True):
        if type(t) is tuple:
            s, d = _walk(t, e, slope, breaks, parts, a, b)
        else:
            s, d = _split(t, e, slope, breaks, parts, a, b)
        shapes.append(s)
        strides.append(d)
    return tuple(shapes), tuple(strides)


def _split(t: int, e: int, slope: Any, breaks: Any, parts: Any, a: Layout, b: Layout) -> tuple[Any, Any]:
    """The modes of R that stand for the mode (t, e) of b."""
    if type(e) is not int:
        raise _CoordinatesError
    shapes: list[int] = []
    strides: list[Any] = []
    left, step = t, e
    while True:
        value = slope * step
        for p, w in breaks:
            value = value + w * (step // p)
        n = left
        if left > 1 and step:
            nearest, ties = left, 0
            for p, _ in breaks:
                residue = step % p
                if residue:
                    jump = -(-p // residue)
                    if jump < nearest:
                        nearest, ties = jump, 0
                    elif jump == nearest:
                        ties = 1
            if nearest < left:
                n = first_break(step, breaks, left) if ties else nearest
                if left % n:
                    raise _no_split(a, b, t, e, t // left, n, slope, breaks)
        if step:
            parts.append((n, step, value))
        shapes.append(n)
        strides.append(value)
        if n == left:
            break
        left //= n
        step *= n
    if len(shapes) == 1:
        return shapes[0], strides[0]
    return tuple(shapes), tuple(strides)


def _at(slope: Any, breaks: Any, x: int) -> Any:
    value = slope * x
    for p, w in breaks:
        value = value + w * (x // p)
    return value


def _modes_of(a: Layout) -> str:
    return show(unwrap(a.flat[0])) if a.flat[0] else "()"


def _no_split(a: Layout, b: Layout, t: int, e: int, done: int, n: int, slope: Any, breaks: Any) -> LayoutError:
    step = e * done
    x = step * n
    wanted, found = n * _at(slope, breaks, step), _at(slope, breaks, x)
    guilty = [p for p, _ in breaks if step % p and (step * n) // p != n * (step // p)]
    shape, product = a.flat[0], 1
    mode = len(shape) - 1
    for i, s in enumerate(shape):
        product *= s
        if guilty and product == guilty[0]:
            mode = i
            break
    return LayoutError(
        f"compose({a}, {b}): no layout represents it. Mode {t}:{e} of {b} crosses the end of mode {mode} ({shape[mode]}:"
        f"{a.flat[1][mode]}) of {a} after {n * done} steps, and {n * done} does not divide {t}. "
        f"Counterexample: at coordinate {n * done} of that mode {b} is {x} and {a} is {show(found)} there, "
        f"while {n} steps of {show(_at(slope, breaks, step))} reach {show(wanted)}"
    )


def _not_additive(a: Layout, b: Layout, parts: Any, problem: tuple[tuple[int, ...], Any, Any]) -> LayoutError:
    coordinate, found, wanted = problem
    guilty = [f"{n}:{e}" for (n, e, _), c in zip(parts, coordinate, strict=True) if c]
    x = sum(c * e for c, (_, e, _) in zip(coordinate, parts, strict=True))
    at = ", ".join(f"{c} along {n}:{e}" for c, (n, e, _) in zip(coordinate, parts, strict=True) if c)
    return LayoutError(
        f"compose({a}, {b}): no layout represents it. The modes {' and '.join(guilty)} of {b} carry into each other inside {a}. "
        f"Counterexample: at coordinate ({at}) {b} is {x} and {a} is {show(found)} there, "
        f"while the modes apart add up to {show(wanted)}"
    )
