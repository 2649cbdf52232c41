"""What can be said of one layout: its size, its span, its simplest form."""

from __future__ import annotations

from typing import Any

from .basis import E
from .core import Layout, as_layout, make, retype
from .errors import LayoutError
from .tuples import IntTuple, flatten_tuple, product, show, to_int, unwrap


def _part(value: Any, modes: tuple[int, ...]) -> Any:
    """`value`, or its mode down the path `modes`; values are layouts, swizzled layouts, ints or tuples."""
    if type(value) is list:
        value = tuple(value)
    for mode in modes:
        if type(value) is tuple:
            i = to_int(mode, "a mode's number")
            if not -len(value) <= i < len(value):
                raise LayoutError(f"mode {i} does not exist in {show(value)}")
            value = value[i]
        elif hasattr(value, "shape") and not hasattr(value, "dtype"):
            value = value[mode]
        elif to_int(mode, "a mode's number") not in (0, -1):
            raise LayoutError(f"mode {mode} does not exist in {value}")
    return value


def shape_of(value: Any) -> IntTuple:
    """The shape of a layout or swizzled layout; an int or a tuple is its own shape.

    >>> shape_of(Layout((4, 8))), shape_of((4, 8))
    ((4, 8), (4, 8))
    """
    if type(value) is int:
        return value
    if type(value) is tuple or type(value) is list:
        return Layout(value).shape
    if hasattr(value, "shape") and not hasattr(value, "dtype"):
        return value.shape
    return to_int(value, "an operand that is neither layout nor shape")


def size(value: Any, *modes: int) -> Any:
    """The number of coordinates of a layout or a shape, or of its mode down the path `modes`.

    >>> size(Layout((4, (2, 3)))), size(Layout((4, (2, 3))), 1), size((4, 8))
    (24, 6, 32)
    """
    return product(shape_of(_part(value, modes)))


def rank(value: Any, *modes: int) -> int:
    """The number of modes of a layout or of elements of a tuple; 1 for an int.

    >>> rank(Layout((4, (2, 3)))), rank(Layout((4, (2, 3))), 1), rank(7)
    (2, 2, 1)
    """
    shape = shape_of(_part(value, modes))
    return len(shape) if type(shape) is tuple else 1


def depth(value: Any, *modes: int) -> int:
    """The number of levels of brackets: 0 for an int.

    >>> depth(Layout(4)), depth(Layout((4, (2, 3))))
    (0, 2)
    """
    shape = shape_of(_part(value, modes))
    if type(shape) is not tuple:
        return 0
    return 1 + max([depth(element) for element in shape], default=0)


def cosize(value: Any, *modes: int) -> Any:
    """The span of the offsets: the largest minus the smallest, plus one. For ints and shapes, that of their compact layout.

    With basis strides the span of every coordinate, as a tuple.

    >>> cosize(Layout((4, 8), (8, 1))), cosize(Layout((4, 8), (-1, 4))), cosize(Layout(4, -2)), cosize(Layout(4, 3))
    (32, 32, 7, 10)
    """
    part = _part(value, modes)
    if type(part) is int or type(part) is tuple:
        return product(shape_of(part))
    if not isinstance(part, Layout):
        if hasattr(part, "cosize"):
            return part.cosize()
        return product(shape_of(part))
    shape, stride = part.flat
    span: Any = 0
    for s, d in zip(shape, stride, strict=True):
        if type(d) is E:
            span = span + (s - 1) * sum([abs(c) * E(*path) for path, c in d.terms])
        else:
            span = span + (s - 1) * abs(d)
    if type(span) is E:
        return _plus_one(span.coordinate())
    return span + 1 if type(span) is int else span.expand() + 1


def _plus_one(coordinate: IntTuple) -> IntTuple:
    return tuple([_plus_one(c) for c in coordinate]) if type(coordinate) is tuple else coordinate + 1


def flatten(value: Any) -> Any:
    """The layout with all nesting removed, or the tuple of leaves of a tuple. An int stays an int.

    >>> flatten(Layout((4, (2, 3)))), flatten((4, (2, 3))), flatten(Layout(4))
    (Layout((4, 2, 3), (1, 4, 8)), (4, 2, 3), Layout(4, 1))
    """
    if isinstance(value, Layout):
        return value if type(value.shape) is not tuple else retype(make(*value.flat), value)
    if hasattr(value, "swizzle"):
        return value.with_layout(flatten(value.layout))
    return flatten_tuple(value) if type(value) is tuple else to_int(value, "a tuple's leaf")


def merge_modes(shape: tuple[Any, ...], stride: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Adjacent modes joined where one continues the other, and modes of extent 1 dropped.

    >>> merge_modes((2, 1, 3, 4), (1, 9, 2, 8))
    ([6, 4], [1, 8])
    """
    shapes: list[Any] = []
    strides: list[Any] = []
    for s, d in zip(shape, stride, strict=True):
        if s == 1:
            continue
        if shapes and d == shapes[-1] * strides[-1]:
            shapes[-1] *= s
        else:
            shapes.append(s)
            strides.append(d)
    return shapes, strides


def coalesce(layout: Any, profile: Any = None) -> Any:
    """The same function of an index with the fewest modes; with a `profile`, the fewest in each of its modes.

    Post-condition: the size is kept, ``coalesce(l)(i) == l(i)`` for every index i of l, and no layout of fewer modes does
    that. A profile is a tuple with an int for each mode to coalesce, a tuple for one to go into, and None for one to leave
    alone; modes past its end stay as they are.

    >>> coalesce(Layout((2, (1, 6)), (1, (6, 2))))
    Layout(12, 1)
    >>> coalesce(Layout(((2, 4), 8), ((1, 2), 8)), profile=(1, 1))
    Layout((8, 8), (1, 8))
    """
    if type(layout) is not Layout:
        if hasattr(layout, "swizzle"):
            return layout.with_layout(coalesce(layout.layout, profile))
        layout = as_layout(layout)
        if type(layout) is not Layout and type(profile) is not tuple and type(profile) is not list:
            from . import symbolic

            return symbolic.coalesce(layout)
    if type(profile) is list:
        profile = tuple(profile)
    if type(profile) is tuple:
        return _by_profile(coalesce, layout, profile)
    if profile is not None:
        to_int(profile, "a leaf of a profile")
    shapes, strides = merge_modes(*layout.flat)
    if len(shapes) > 1:
        return make(tuple(shapes), tuple(strides))
    return make(shapes[0], strides[0]) if shapes else make(1, 0)


def _by_profile(operation: Any, layout: Layout, profile: tuple[Any, ...]) -> Layout:
    if len(profile) > len(layout):
        raise LayoutError(f"the profile {show(profile)} has {len(profile)} modes, more than {layout} has")
    modes = [m if p is None else operation(m, p) for m, p in zip(layout, profile, strict=False)]
    modes += [layout[i] for i in range(len(profile), len(layout))]
    return bundle(modes)


def bundle(modes: Any) -> Layout:
    """The layout whose modes are the given layouts.

    >>> bundle([Layout(4, 2), Layout((2, 3))])
    Layout((4, (2, 3)), (2, (1, 2)))
    """
    if type(modes) is not list:
        if not hasattr(modes, "__iter__") or type(modes) is str:
            raise LayoutError(f"modes are given as a sequence of layouts, not as {modes!r}")
        modes = list(modes)
    for m in modes:
        if not isinstance(m, Layout):
            raise LayoutError(f"a mode is a layout, not {m!r}")
    result = make(tuple([m.shape for m in modes]), tuple([m.stride for m in modes]))
    for m in modes:
        if type(m) is not Layout:
            return retype(result, m)
    return result


def filter_zeros(layout: Layout) -> Layout:
    """The layout with every mode of stride 0 given extent 1, its form kept.

    >>> filter_zeros(Layout((4, (2, 3)), (0, (1, 0))))
    Layout((1, (2, 1)), (0, (1, 0)))
    """

    if not isinstance(layout, Layout):
        layout = as_layout(layout)

    def clear(s: IntTuple, d: IntTuple) -> IntTuple:
        if type(s) is tuple:
            return tuple(map(clear, s, d))
        return 1 if d == 0 else s

    return make(clear(layout.shape, layout.stride), layout.stride)


def filter(layout: Any, profile: Any = None) -> Any:
    """The coalesced layout without the modes of stride 0 or extent 1, in order: the same offsets, each repetition dropped.

    With a `profile`, as for `coalesce`, each of its modes is done by itself.

    >>> filter(Layout((4, 1, 8), (0, 3, 1)))
    Layout(8, 1)
    >>> filter(Layout(((4, 2), (1, 8)), ((0, 1), (3, 2))), (1, 1))
    Layout((2, 8), (1, 2))
    """
    if hasattr(layout, "swizzle"):
        return layout.with_layout(filter(layout.layout, profile))
    layout = as_layout(layout)
    if type(profile) is list:
        profile = tuple(profile)
    if type(profile) is tuple:
        return _by_profile(filter, layout, profile)
    if profile is not None:
        to_int(profile, "a leaf of a profile")
    kept = [(s, d) for s, d in zip(*layout.flat, strict=True) if d != 0]
    shapes, strides = merge_modes(tuple([s for s, _ in kept]), tuple([d for _, d in kept]))
    return make(unwrap(shapes), unwrap(strides)) if shapes else make(1, 0)
