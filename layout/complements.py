"""The complement: what a layout leaves out, as a layout."""

from __future__ import annotations

from itertools import product as cartesian
from typing import Any

from .algebra import merge_modes, shape_of
from .core import Layout, SymbolicLayout, as_layout, make
from .errors import LayoutError
from .lattice import collision
from .tuples import compact_strides, product, unwrap

_MOST_SHOWN = 4096


def complement(layout: Any, cotarget: Any = None) -> Layout:
    """The layout R of the offsets that `layout` leaves out, so that the two together fill the cotarget.

    Post-condition: R is coalesced and strictly increasing; every sum ``layout(i) + R(j)`` is a different number once modes of
    stride 0 are left out; and the sums cover range(cotarget). `cotarget` is an int or a shape (its size); without it, the
    gaps inside the layout's own span are filled. With negative strides the sums cover all numbers from the smallest offset to
    the cotarget. Raises LayoutError where no such R exists: the layout is not injective, or
    its modes overlap so that a gap cannot be filled. Source: CuTe, "Layout algebra", complement.

    >>> complement(Layout((2, (2, 2)), (16, (4, 1))), 64)
    Layout((2, 2, 2), (2, 8, 32))
    >>> complement(Layout(4, 2), 8), complement(Layout(4, 2))
    (Layout(2, 1), Layout(2, 1))
    """
    if type(layout) is not Layout:
        layout = as_layout(layout)
    if type(layout) is not Layout or hasattr(cotarget, "free_symbols") or type(cotarget) is SymbolicLayout:
        from . import symbolic

        return symbolic.complement(layout, cotarget)
    shape, stride = layout.flat
    target = 1
    if cotarget is not None:
        target = cotarget if type(cotarget) is int else product(shape_of(cotarget))
        if target < 1:
            raise LayoutError(f"complement({layout}, {target}): a cotarget is at least 1")
    modes = []
    for s, d in zip(shape, stride, strict=True):
        if s != 1 and d != 0:
            if type(d) is not int or d < 0:
                if type(d) is not int:
                    raise LayoutError(
                        f"complement({layout}): offsets along the basis stride {d} are not numbers to fill up"
                    )
                # The offsets of a mode that runs downwards are those of one that runs upwards from its other end.
                d = -d
                target += (s - 1) * d
            modes.append((d, s))
    if len(modes) > 1:
        modes.sort()
    shapes: list[int] = []
    strides: list[int] = []
    filled = 1
    for d, s in modes:
        if d != filled:
            if d % filled:
                return _sparse(layout, cotarget, target, modes)
            shapes.append(d // filled)
            strides.append(filled)
        filled = d * s
    if target > filled:
        shapes.append(-(-target // filled))
        strides.append(filled)
    # Two modes of the complement are never contiguous: a mode of the layout lies between them.
    if len(shapes) == 1:
        return make(shapes[0], strides[0])
    return make(tuple(shapes), tuple(strides)) if shapes else make(1, 0)


def _sparse(layout: Layout, cotarget: Any, target: int, modes: list[tuple[int, int]]) -> Layout:
    """The complement of a layout whose modes do not nest: only part of the span can be filled, if that is all the cotarget asks.

    Going up, the smallest number not yet covered must be in R, so the prefix of R that is needed is forced.
    """
    if cotarget is None:
        target = 1 + sum([(s - 1) * d for d, s in modes])
    shapes: list[int] = []
    strides: list[int] = []
    filled = 1
    for d, s in modes:
        if filled >= target:
            break
        blocks = min(-(-target // filled), d // filled)
        if blocks > 1:
            shapes.append(blocks)
            strides.append(filled)
        if blocks * filled >= target:
            filled = blocks * filled
            break
        if d % filled or d < filled:
            raise LayoutError(
                f"complement({layout}, {target}): the mode {s}:{d} overlaps what lies below it, where {filled} offsets are filled: "
                f"its stride would have to be a multiple of {filled}; no layout fills the offsets from {blocks * filled} on"
                f"{_clash(layout, target)}"
            )
        filled = d * s
    if target > filled:
        shapes.append(-(-target // filled))
        strides.append(filled)
    hit = collision([(s, d) for d, s in modes] + list(zip(shapes, strides, strict=True)))
    if hit is not None:
        first = [max(0, c) for c in hit]
        all_modes = modes + [(d, s) for s, d in zip(shapes, strides, strict=True)]
        offset = sum([c * d for c, (d, _) in zip(first, all_modes, strict=True)])
        raise LayoutError(
            f"complement({layout}, {target}): offset {offset} is reached twice: the modes {[f'{s}:{d}' for d, s in modes]} overlap"
        )
    merged, steps = merge_modes(tuple(shapes), tuple(strides))
    return make(unwrap(merged), unwrap(steps)) if merged else make(1, 0)


def _clash(layout: Layout, target: int) -> str:
    """Counterexample: two sums that are one number, whatever the complement is; empty where none is found quickly."""
    if product(layout.shape) > _MOST_SHOWN:
        return ""
    indices: dict[int, int] = {}
    moving = [(s, d, p) for s, d, p in zip(*layout.flat, compact_strides(layout.flat[0]), strict=True) if d and s > 1]
    for digits in cartesian(*[range(s) for s, _, _ in moving]):
        offset = sum([c * d for c, (_, d, _) in zip(digits, moving, strict=True)])
        index = sum([c * p for c, (_, _, p) in zip(digits, moving, strict=True)])
        other = indices.setdefault(offset, index)
        if other != index:
            return f". Counterexample: the indices {other} and {index} both have the offset {offset}"
    if min(indices) < 0:
        return ""
    covered = {offset: (offset, 0) for offset in indices}
    for wanted in range(min(target, _MOST_SHOWN)):
        if wanted in covered:
            continue
        for offset in indices:
            first, second = covered.setdefault(offset + wanted, (offset, wanted))
            if second != wanted:
                return (
                    f". Counterexample: {wanted} is not reached yet and so must be in the complement, but {offset} + {wanted} "
                    f"and {first} + {second} are both {offset + wanted}"
                )
    return ""
