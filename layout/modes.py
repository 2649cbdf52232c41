"""Rearranging the modes of a layout: building, grouping, zipping, slicing and dicing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .algebra import bundle
from .core import Layout, as_layout, make
from .errors import LayoutError
from .swizzle import SwizzledLayout
from .tuples import show, to_int, unwrap


def make_layout(*parts: Any) -> Layout:
    """A layout from its modes, given as layouts, or from a shape and a stride.

    >>> make_layout(Layout(4, 2), Layout((2, 3)))
    Layout((4, (2, 3)), (2, (1, 2)))
    >>> make_layout((4, 8), (8, 1)), make_layout([Layout(4), Layout(2, 4)])
    (Layout((4, 8), (8, 1)), Layout((4, 2), (1, 4)))
    """
    if parts and all(isinstance(part, Layout) for part in parts):
        return bundle(parts)
    if len(parts) == 1 and isinstance(parts[0], Iterable) and all(isinstance(part, Layout) for part in parts[0]):
        return bundle(parts[0])
    if 1 <= len(parts) <= 2 and not any(isinstance(part, Layout) for part in parts):
        return Layout(*parts)
    raise LayoutError(f"a layout is made from layouts, or from a shape and a stride, not from {parts}")


def _through_swizzle(layout: Any) -> Any:
    return layout.layout if type(layout) is SwizzledLayout else as_layout(layout)


def _rewrap(original: Any, result: Layout) -> Any:
    return original.with_layout(result) if type(original) is SwizzledLayout else result


def group(layout: Any, begin: int, end: int) -> Any:
    """Modes begin .. end-1 gathered into one mode; an `end` of -1 is the rank, as in CuTe.

    >>> group(Layout((2, 3, 4)), 0, 2), group(Layout((2, 3, 4)), 1, -1)
    (Layout(((2, 3), 4), ((1, 2), 6)), Layout((2, (3, 4)), (1, (2, 6))))
    """
    modes = list(_through_swizzle(layout))
    first, last = to_int(begin, "a mode's number"), to_int(end, "a mode's number")
    last = len(modes) if last == -1 else last
    if not 0 <= first < last <= len(modes):
        raise LayoutError(f"modes {first} to {last} are not a range of the {len(modes)} modes of {layout}")
    return _rewrap(layout, bundle([*modes[:first], bundle(modes[first:last]), *modes[last:]]))


def append(layout: Any, mode: Any, rank: int | None = None) -> Any:
    """The layout with `mode` after its last mode; with `rank`, as many times as it takes to reach that rank.

    >>> append(Layout((4, 8)), Layout(2, 32)), append(Layout((4, 8)), Layout(1, 0), rank=4)
    (Layout((4, 8, 2), (1, 4, 32)), Layout((4, 8, 1, 1), (1, 4, 0, 0)))
    """
    modes = list(_through_swizzle(layout))
    return _rewrap(layout, bundle(modes + [as_layout(mode)] * _missing(layout, len(modes), rank)))


def prepend(layout: Any, mode: Any, rank: int | None = None) -> Any:
    """The layout with `mode` before its first mode; with `rank`, as many times as it takes to reach that rank.

    >>> prepend(Layout((4, 8)), Layout(2, 32))
    Layout((2, 4, 8), (32, 1, 4))
    """
    modes = list(_through_swizzle(layout))
    return _rewrap(layout, bundle([as_layout(mode)] * _missing(layout, len(modes), rank) + modes))


def _missing(layout: Any, have: int, rank: int | None) -> int:
    if rank is None:
        return 1
    wanted = to_int(rank, "a rank")
    if wanted > 1000:
        raise LayoutError(f"a rank of {wanted} is more than a layout is padded to: at most 1000")
    if wanted < have:
        raise LayoutError(f"{layout} has rank {have}, more than {wanted}")
    return wanted - have


def replace(layout: Any, mode: int, new: Any) -> Any:
    """The layout with one mode replaced.

    >>> replace(Layout((4, 8)), 1, Layout((2, 3), (10, 20)))
    Layout((4, (2, 3)), (1, (10, 20)))
    """
    modes = list(_through_swizzle(layout))
    i = to_int(mode, "a mode's number")
    if not -len(modes) <= i < len(modes):
        raise LayoutError(f"mode {i} does not exist: {layout} has rank {len(modes)}")
    modes[i] = as_layout(new)
    return _rewrap(layout, bundle(modes))


def zip_modes(layout: Any, other: Any = None) -> Any:
    """The modes of two layouts in pairs, ((a0, b0), (a1, b1), ...); of one layout, those of its own modes transposed.

    >>> zip_modes(Layout((2, 3)), Layout((4, 5), (6, 24)))
    Layout(((2, 4), (3, 5)), ((1, 6), (2, 24)))
    >>> zip_modes(Layout(((2, 3), (4, 5)), ((1, 2), (6, 24))))
    Layout(((2, 4), (3, 5)), ((1, 6), (2, 24)))
    """
    plain = _through_swizzle(layout)
    rows = [list(m) for m in (plain if other is None else (plain, as_layout(other)))]
    if len({len(row) for row in rows}) > 1:
        raise LayoutError(f"modes of different ranks cannot be paired: {[len(row) for row in rows]} in {layout}")
    return _rewrap(layout, bundle([bundle(pair) for pair in zip(*rows, strict=True)]))


def slice_and_offset(coordinate: Any, layout: Any) -> tuple[Any, Any]:
    """The modes marked None in `coordinate` as a layout, and the offset of the others: ``layout.slice_and_offset``.

    >>> slice_and_offset((None, 3), Layout((4, 8), (8, 1)))
    (Layout(4, 8), 3)
    """
    if type(layout) is not SwizzledLayout:
        layout = as_layout(layout)
    return layout.slice_and_offset(coordinate)  # type: ignore[no-any-return]


def dice(coordinate: Any, layout: Any) -> Layout:
    """The modes NOT marked None in `coordinate` as a layout: what `slice` leaves out, without nesting as in CuTe.

    >>> dice((None, 3), Layout((4, 8), (8, 1))), dice((0, (0, 0)), Layout((4, (2, 3))))
    (Layout(8, 1), Layout((4, 2, 3), (1, 4, 8)))
    """

    def keep(c: Any, s: Any, d: Any) -> list[tuple[Any, Any]]:
        if c is None:
            return []
        if type(c) is tuple:
            if type(s) is not tuple or len(c) != len(s):
                raise LayoutError(f"the coordinate {c} does not fit the shape {show(s)} inside {layout}")
            return [pair for triple in zip(c, s, d, strict=True) for pair in keep(*triple)]
        return [(s, d)]

    plain = _through_swizzle(layout)
    kept = keep(coordinate, plain.shape, plain.stride)
    if not kept:
        return make((), ())
    return make(unwrap([s for s, _ in kept]), unwrap([d for _, d in kept]))
