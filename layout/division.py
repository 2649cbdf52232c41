"""Divides: a layout split into tiles and the rest, in the four arrangements of the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .algebra import bundle, size
from .complements import complement
from .composition import compose_flat
from .core import Layout, as_layout, make
from .errors import LayoutError
from .swizzle import SwizzledLayout
from .tuples import product, show, unwrap

_ONE = make(1, 0)


def logical_divide(layout: Any, tiler: Any, pad: bool = False) -> Any:
    """The layout with each divided mode turned into (tile, rest): ``compose(layout, (T, complement(T, size(layout))))``.

    `tiler` is a layout T, an int n (for n:1), None (no division), or a tuple of those for the modes of `layout`. Tiles that
    do not fill the layout exactly raise LayoutError; with ``pad=True`` extents are rounded up instead, as for tiles with
    predicates, and the result leaves the domain of `layout`.

    >>> logical_divide(Layout((12, 32), (1, 12)), Layout((4, 8), (1, 4)))
    Layout(((4, 8), 12), ((1, 4), 32))
    >>> logical_divide(Layout((12, 32), (1, 12)), (4, 8))
    Layout(((4, 3), (8, 4)), ((1, 4), (12, 96)))
    >>> logical_divide(Layout((6, 8), (8, 1)), 4, pad=True)
    Layout((4, (2, 8)), (8, (32, 1)))
    """
    if type(layout) is SwizzledLayout:
        return layout.with_layout(logical_divide(layout.layout, tiler, pad))
    if type(layout) is not Layout:
        layout = as_layout(layout)
    if tiler is None:
        return layout
    if type(tiler) is tuple or type(tiler) is list:
        modes = list(layout)
        if len(tiler) > len(modes):
            raise _too_many(tiler, layout)
        for i, t in enumerate(tiler):
            if t is not None:
                try:
                    modes[i] = _divide(modes[i], t, pad)
                except LayoutError as error:
                    raise in_mode(layout, tiler, i, error) from None
        return bundle(modes)
    return _divide(layout, tiler, pad)


def _divide(layout: Layout, tiler: Any, pad: bool) -> Layout:
    if type(tiler) is int and tiler > 0:
        tiler = make(tiler, 1)
    elif type(tiler) is not Layout:
        if type(tiler) is tuple or type(tiler) is list:
            return logical_divide(layout, tiler, pad)  # type: ignore[no-any-return]
        tiler = as_layout(tiler)
    total = product(layout.shape)
    try:
        rest = complement(tiler, total)
    except LayoutError as error:
        raise LayoutError(f"logical_divide({layout}, {tiler}): {error}") from None
    filled = product(rest.shape)
    if type(tiler.shape) is tuple:
        for s, d in zip(*tiler.flat, strict=True):
            if d != 0:
                filled *= s
    elif tiler.stride != 0:
        filled *= tiler.shape
    whole = filled == total
    if not whole and not (type(total) is int and type(filled) is int):
        from .facts import clean

        whole = clean(filled - total) == 0
    if not whole and not pad:
        raise LayoutError(
            f"logical_divide({layout}, {tiler}): tiles of {tiler} do not fill {total} elements: with the rest {rest} they "
            f"take {filled}; pad=True rounds up"
        )
    try:
        return compose_flat(layout, _pair(tiler, rest))
    except LayoutError as error:
        if not pad or type(layout) is not Layout or type(tiler.shape) is not int or tiler.stride != 1:
            raise LayoutError(f"logical_divide({layout}, {tiler}): {error}") from None
    layout = _round_up(layout, tiler.shape)
    rest = complement(tiler, size(layout))
    return compose_flat(layout, _pair(tiler, rest))


def _pair(tile: Layout, rest: Layout) -> Layout:
    if type(tile) is not Layout or type(rest) is not Layout:
        return bundle([tile, rest])
    return make((tile.shape, rest.shape), (tile.stride, rest.stride))


def _round_up(layout: Layout, n: int) -> Layout:
    """The layout with extents rounded up, from the first mode on, until n consecutive indices divide it."""
    shape, stride = layout.flat
    rounded = []
    left = n
    for s in shape:
        if left == 1 or left % s == 0:
            rounded.append(s)
            left = max(1, left // s)
        elif s >= left:
            rounded.append(-(-s // left) * left)
            left = 1
        else:
            s = next(t for t in range(s, left + 1) if left % t == 0)
            rounded.append(s)
            left //= s
    if left > 1:
        rounded[-1] *= left
    return make(unwrap(rounded), unwrap(list(stride)))


def _too_many(tiler: Any, layout: Layout) -> LayoutError:
    return LayoutError(f"the tiler {show(tuple(tiler))} has {len(tiler)} modes, more than {layout} has")


def in_mode(layout: Any, tiler: Any, mode: int, error: LayoutError) -> LayoutError:
    """The error of one mode, with the whole operands before it.

    >>> print(in_mode(Layout((4, 8)), (None, 3), 1, LayoutError("no")))
    (4,8):(1,4) by (None,3), mode 1: no
    """
    return LayoutError(f"{layout} by {show(tuple(tiler))}, mode {mode}: {error}")


def by_mode(operation: Callable[[Layout, Any], Layout], layout: Layout, tiler: Any) -> list[Layout]:
    """The modes of `layout`, those that have an entry in `tiler` replaced by ``operation(mode, entry)``.

    >>> by_mode(lambda mode, t: mode, Layout((4, 8)), (2,))
    [Layout(4, 1), Layout(8, 4)]
    """
    modes = list(layout)
    if len(tiler) > len(modes):
        raise _too_many(tiler, layout)
    for i, t in enumerate(tiler):
        try:
            modes[i] = operation(modes[i], t)
        except LayoutError as error:
            raise in_mode(layout, tiler, i, error) from None
    return modes


def unzip(split: Callable[[Layout, Any], Layout], layout: Layout, tiler: Any) -> tuple[Layout, Layout]:
    """(tiles, rests) of a divide or product: the parts of each mode gathered, modes without a tiler going to the rests.

    >>> unzip(logical_divide, Layout((4, 8)), (2, 4))
    (Layout((2, 4), (1, 4)), Layout((2, 2), (2, 16)))
    """
    if tiler is None:
        return _ONE, layout
    if type(tiler) is tuple or type(tiler) is list:
        if len(tiler) > len(layout):
            raise _too_many(tiler, layout)
        pairs = []
        for i, (m, t) in enumerate(zip(layout, tiler, strict=False)):
            try:
                pairs.append(unzip(split, m, t))
            except LayoutError as error:
                raise in_mode(layout, tiler, i, error) from None
        rests = [p[1] for p in pairs] + [layout[i] for i in range(len(tiler), len(layout))]
        return bundle([p[0] for p in pairs]), bundle(rests)
    both = split(layout, tiler)
    return both[0], both[1]


def _swizzled(operation: Callable[..., Any], layout: SwizzledLayout, *rest: Any) -> SwizzledLayout:
    return layout.with_layout(operation(layout.layout, *rest))


def zipped_divide(layout: Any, tiler: Any, pad: bool = False) -> Any:
    """`logical_divide` gathered into two modes: ((tiles of every mode), (rests of every mode)).

    A None in the tiler leaves its mode whole: a tile of 1 and the mode itself as the rest.

    >>> zipped_divide(Layout((12, 32), (1, 12)), (4, 8))
    Layout(((4, 8), (3, 4)), ((1, 12), (4, 96)))
    >>> zipped_divide(Layout((64, 50, 80), (16000, 160, 1)), (32, None, 40))
    Layout(((32, 1, 40), (2, 50, 2)), ((16000, 0, 1), (512000, 160, 40)))
    """
    if type(layout) is SwizzledLayout:
        return _swizzled(zipped_divide, layout, tiler, pad)
    return bundle(unzip(lambda m, t: logical_divide(m, t, pad), as_layout(layout), tiler))


def tiled_divide(layout: Any, tiler: Any, pad: bool = False) -> Any:
    """`logical_divide` as ((tiles of every mode), rest of mode 0, rest of mode 1, ...).

    >>> tiled_divide(Layout((12, 32), (1, 12)), (4, 8))
    Layout(((4, 8), 3, 4), ((1, 12), 4, 96))
    """
    if type(layout) is SwizzledLayout:
        return _swizzled(tiled_divide, layout, tiler, pad)
    tiles, rests = unzip(lambda m, t: logical_divide(m, t, pad), as_layout(layout), tiler)
    return bundle([tiles, *rests])


def flat_divide(layout: Any, tiler: Any, pad: bool = False) -> Any:
    """`logical_divide` as (tile of mode 0, tile of mode 1, ..., rest of mode 0, rest of mode 1, ...).

    >>> flat_divide(Layout((12, 32), (1, 12)), (4, 8))
    Layout((4, 8, 3, 4), (1, 12, 4, 96))
    """
    if type(layout) is SwizzledLayout:
        return _swizzled(flat_divide, layout, tiler, pad)
    tiles, rests = unzip(lambda m, t: logical_divide(m, t, pad), as_layout(layout), tiler)
    return bundle([*tiles, *rests])
