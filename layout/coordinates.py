"""Indices and coordinates of a shape, each turned into the other."""

from __future__ import annotations

from typing import Any

from .core import Layout, offset_of
from .errors import LayoutError
from .tuples import IntTuple, compact_strides, product, show, to_int


def idx2crd(index: Any, shape: Any, stride: Any = None) -> IntTuple:
    """The coordinate of an index in a shape, counted colexicographically; the last mode is unbounded.

    With `stride`, each leaf is ``index // stride % extent`` instead: the coordinate of an offset of a compact layout.

    >>> idx2crd(13, (4, 3)), idx2crd(7, (1, (2, 2)), (0, (1, 2)))
    ((1, 3), (0, (1, 1)))
    """
    if isinstance(shape, Layout):
        shape = shape.shape
    shape = Layout(shape).shape
    index = to_int(index, "an index")
    if stride is None:
        return _unrank(index, shape)
    stride = Layout(shape, stride).stride

    def digit(s: IntTuple, d: IntTuple) -> IntTuple:
        if type(s) is tuple:
            return tuple(map(digit, s, d))
        return 0 if d == 0 or s == 1 else index // d % s

    return digit(shape, stride)


def _unrank(index: int, shape: IntTuple) -> IntTuple:
    if type(shape) is not tuple:
        return index
    if not shape:
        if index:
            raise LayoutError(f"the empty shape () has no index {index}")
        return ()
    coordinate = []
    for s in shape[:-1]:
        index, here = divmod(index, product(s))
        coordinate.append(_unrank(here, s) if type(s) is tuple else here)
    coordinate.append(_unrank(index, shape[-1]))
    return tuple(coordinate)


def crd2idx(coordinate: Any, shape: Any, stride: Any = None) -> Any:
    """The index of a coordinate in a shape, or with `stride` its offset.

    >>> crd2idx((1, 3), (4, 3)), crd2idx((1, 2), (4, 8), (8, 1))
    (13, 10)
    """
    if isinstance(shape, Layout):
        if stride is None:
            shape, stride = shape.shape, shape.stride
        else:
            raise LayoutError(f"crd2idx takes a shape and a stride, or the layout {shape} alone")
    layout = Layout(shape, compact_strides(Layout(shape).shape) if stride is None else stride)
    return offset_of(_tuples(coordinate), layout.shape, layout.stride)


def crd2crd(coordinate: Any, source: Any, target: Any) -> IntTuple:
    """The coordinate in the shape `target` that has the index of `coordinate` in the shape `source`.

    >>> crd2crd((1, 3), (4, 6), (8, 3))
    (5, 1)
    """
    if product(Layout(source).shape) != product(Layout(target).shape):
        raise LayoutError(f"the shapes {show(source)} and {show(target)} have different sizes")
    return idx2crd(crd2idx(coordinate, source), target)


def _tuples(value: Any) -> Any:
    return tuple([_tuples(v) for v in value]) if isinstance(value, (tuple, list)) else value
