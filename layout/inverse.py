"""Complements and inverses."""

from __future__ import annotations

from typing import Any

from .algebra import coalesce, merge_modes, shape_of
from .core import Layout, as_layout, make
from .errors import LayoutError
from .tuples import product, unwrap


def complement(layout: Any, cotarget: Any = None) -> Layout:
    """The layout R of the offsets that `layout` leaves out, so that the two together fill the cotarget.

    Post-condition: R is coalesced and strictly increasing; every sum ``layout(i) + R(j)`` is a different number once modes
    of stride 0 are left out; and the sums cover range(cotarget). `cotarget` is an int or a shape (its size); without it, the
    cosize of the layout. Raises LayoutError where no such R exists: the layout is not injective, or its modes overlap.

    >>> complement(Layout((2, (2, 2)), (16, (4, 1))), 64)
    Layout((2, 2, 2), (2, 8, 32))
    >>> complement(Layout(4, 2), 8)
    Layout(2, 1)
    """
    layout = as_layout(layout)
    shape, stride = layout.flat
    target = 1 if cotarget is None else product(shape_of(cotarget))
    modes = [(d, s) for d, s in zip(stride, shape, strict=True) if s != 1 and d != 0]
    modes.sort()
    shapes: list[int] = []
    strides: list[int] = []
    filled = 1
    for d, s in modes:
        if d % filled or d < filled:
            raise LayoutError(
                f"complement({layout}, {target}): the mode {s}:{d} overlaps the modes before it, which fill {filled} offsets; "
                f"its stride would have to be a multiple of {filled}"
            )
        if d != filled:
            shapes.append(d // filled)
            strides.append(filled)
        filled = d * s
    if target > filled:
        shapes.append(-(-target // filled))
        strides.append(filled)
    if len(shapes) > 1:
        shapes, strides = merge_modes(tuple(shapes), tuple(strides))
        return make(unwrap(shapes), unwrap(strides))
    return make(shapes[0], strides[0]) if shapes else make(1, 0)


def right_inverse(layout: Any) -> Layout:
    """The largest layout R with ``layout(R(i)) == i`` for every index i of R; modes of stride 0 are skipped.

    >>> right_inverse(Layout((4, 8), (8, 1)))
    Layout((8, 4), (4, 1))
    >>> right_inverse(Layout((3, 4), (1, 0)))
    Layout(3, 1)
    """
    layout = as_layout(layout)
    shape, stride = layout.flat
    modes = []
    before = 1
    for s, d in zip(shape, stride, strict=True):
        if s != 1 and d != 0:
            modes.append((d, s, before))
        before *= s
    modes.sort()
    shapes, strides, reached = [], [], 1
    for d, s, p in modes:
        if d != reached:
            if d < reached:
                continue
            break
        shapes.append(s)
        strides.append(p)
        reached *= s
    shapes, strides = merge_modes(tuple(shapes), tuple(strides))
    return make(unwrap(shapes), unwrap(strides)) if shapes else make(1, 0)


def left_inverse(layout: Any) -> Layout:
    """A layout R with ``R(layout(i)) == i`` for every index i of `layout`.

    >>> left_inverse(Layout(4, 2))
    Layout((2, 4), (0, 1))
    >>> left_inverse(Layout((4, 8), (8, 1)))
    Layout((8, 4), (4, 1))
    """
    layout = as_layout(layout)
    shape, stride = layout.flat
    modes = []
    before = 1
    for s, d in zip(shape, stride, strict=True):
        if s != 1:
            modes.append((d, s, before))
        before *= s
    modes.sort()
    shapes: list[int] = []
    strides: list[int] = []
    filled = 1
    for d, s, p in modes:
        if d <= 0 or d % filled or d < filled:
            raise LayoutError(f"left_inverse({layout}): the mode {s}:{d} overlaps the modes before it")
        if d != filled:
            shapes.append(d // filled)
            strides.append(0)
        shapes.append(s)
        strides.append(p)
        filled = d * s
    result: Layout = coalesce(make(tuple(shapes), tuple(strides)) if shapes else make(1, 0))
    return result
