"""Tiles of a layout, the share of one thread, and thread-value layouts."""

from __future__ import annotations

from typing import Any

from .algebra import bundle, size
from .composition import compose_flat
from .coordinates import idx2crd
from .core import Layout, as_layout, numeric
from .division import zipped_divide
from .errors import LayoutError
from .inverse import left_inverse, right_inverse
from .products import raked_product
from .swizzle import SwizzledLayout
from .tuples import product, to_int


def local_tile(layout: Any, tiler: Any, coordinate: Any, projection: Any = None) -> tuple[Any, Any]:
    """One tile of a layout and its offset: `zipped_divide`, all of the tile, and the rest fixed at `coordinate`.

    Entries of `coordinate` that are None, or missing at its end, keep their mode, after those of the tile. A `projection`
    picks the entries of tiler and coordinate that this layout takes part in: those where it is not None. A swizzled layout
    keeps the offset inside (and 0 is returned). Source: CuTe, local_tile.

    >>> local_tile(Layout((8, 16), (16, 1)), (4, 8), (1, 1))
    (Layout((4, 8), (16, 1)), 72)
    >>> local_tile(Layout((8, 16), (16, 1)), (4, 8), (1, None))
    (Layout((4, 8, 2), (16, 1, 8)), 64)
    >>> local_tile(Layout((8, 16), (16, 1)), (4, 32, 8), (1, 5, None), projection=(1, None, 1))
    (Layout((4, 8, 2), (16, 1, 8)), 64)
    """
    if projection is not None:
        tiler, coordinate = _projected(projection, tiler), _projected(projection, coordinate)
    divided = zipped_divide(layout, tiler)
    if type(divided) is SwizzledLayout:
        part, offset = _tile_at(divided.layout, coordinate)
        return SwizzledLayout(divided.swizzle, divided.offset + offset, part), 0
    return _tile_at(divided, coordinate)


def _projected(projection: Any, value: Any) -> Any:
    if type(projection) is not tuple or type(value) is not tuple or len(projection) != len(value):
        raise LayoutError(f"the projection {projection} has no entry for each of {value}")
    return tuple([v for p, v in zip(projection, value, strict=True) if p is not None])


def _tile_at(divided: Layout, coordinate: Any) -> tuple[Layout, Any]:
    tile, rest = divided
    if type(coordinate) is list:
        coordinate = tuple(coordinate)
    if type(coordinate) is not tuple:
        kept, offset = ([rest], 0) if coordinate is None else ([], rest(coordinate))
    else:
        if len(coordinate) > len(rest):
            raise LayoutError(f"the coordinate {coordinate} has {len(coordinate)} entries; the tiles are {rest}")
        kept, offset = [], 0
        for i, mode in enumerate(rest):
            part, step = mode.slice_and_offset(coordinate[i] if i < len(coordinate) else None)
            offset = offset + step
            if part.shape != ():
                kept.append(part)
    if not kept:
        return tile, offset
    return bundle([*(tile if type(tile.shape) is tuple else [tile]), *kept]), offset


def local_partition(layout: Any, threads: Any, index: int, projection: Any = None) -> tuple[Any, Any]:
    """The elements of one thread and their offset: the layout divided by the shape of the threads, fixed at thread `index`.

    `threads` is a compact layout from thread coordinates to thread numbers. A `projection` picks the modes of it that this
    layout is divided among, those where it is not None: threads that differ in the others share their elements. Source: CuTe,
    local_partition.

    >>> local_partition(Layout((8, 16), (16, 1)), Layout((2, 4), (4, 1)), 5)
    (Layout((4, 4), (32, 4)), 17)
    >>> local_partition(Layout((8, 16), (16, 1)), Layout((2, 4), (4, 1)), 5, projection=(1, None))
    (Layout((4, 16), (32, 1)), 16)
    """
    threads = as_layout(threads)
    index = to_int(index, "a thread's number")
    if type(threads) is not Layout:
        raise LayoutError(f"local_partition: {threads} has symbolic sizes; put numbers in with subs first")
    if not 0 <= index < size(threads):
        raise LayoutError(f"thread {index} does not exist: {threads} has {size(threads)} threads")
    place = left_inverse(threads)(index)
    if threads(place) != index:
        raise LayoutError(f"no coordinate of {threads} has the number {index}")
    coordinate = idx2crd(
        place, tuple([product(s) for s in threads.shape]) if type(threads.shape) is tuple else threads.shape
    )
    extents = tuple([product(m.shape) for m in threads])
    if projection is not None:
        coordinate, extents = _projected(projection, coordinate), _projected(projection, extents)
    divided = zipped_divide(layout, extents if type(threads.shape) is tuple else extents[0])
    return divided.slice_and_offset(coordinate, None)  # type: ignore[no-any-return]


def make_tv_layout(threads: Any, values: Any) -> tuple[tuple[int, ...], Layout]:
    """(tile, tv) for `values` of every thread, threads laid out as `threads`: tv maps (thread, value) to an index of the tile.

    `threads` maps coordinates to thread numbers and `values` to value numbers; the tile is their raked product, a shape with
    one extent a mode. Source: CuTe DSL, make_layout_tv.

    >>> make_tv_layout(Layout((2, 4), (4, 1)), Layout((2, 2), (2, 1)))
    ((4, 8), Layout(((4, 2), (2, 2)), ((8, 2), (4, 1))))
    """
    threads, values = numeric(threads, "make_tv_layout"), numeric(values, "make_tv_layout")
    owners = raked_product(threads, values)
    tile = tuple([product(m.shape) for m in owners])
    both = Layout((size(threads), size(values)))
    for what, numbers in (("threads", threads), ("values", values)):
        if size(right_inverse(numbers)) != size(numbers):
            raise LayoutError(
                f"make_tv_layout: {numbers} does not number its {what} 0 to {size(numbers) - 1}, each once"
            )
    inverse = right_inverse(owners)
    return tile, compose_flat(inverse, both)


def invert_tv_layout(tv: Any) -> Layout:
    """The layout from an index of the tile to ``thread + threads * value``: who holds the element, and as which value.

    >>> owner = invert_tv_layout(Layout(((4, 2), (2, 2)), ((8, 2), (4, 1))))
    >>> [divmod(owner(i), 8)[::-1] for i in range(3)]  # (thread, value) of the first elements
    [(0, 0), (0, 2), (4, 0)]
    """
    tv = as_layout(tv)
    if len(tv) != 2:
        raise LayoutError(f"a thread-value layout has the two modes (thread, value), not {len(tv)}: {tv}")
    return left_inverse(tv)  # type: ignore[no-any-return]


def thread_values(tv: Any, thread: int) -> list[Any]:
    """The indices of the tile that one thread holds, in the order of its values.

    >>> thread_values(Layout(((4, 2), (2, 2)), ((8, 2), (4, 1))), 1)
    [8, 12, 9, 13]
    """
    if type(tv) is not SwizzledLayout:
        tv = numeric(tv, "thread_values")
    return [tv(thread, v) for v in range(size(tv[1]))]


def identity_layout(shape: Any) -> Layout:
    """The layout whose offset at a coordinate is the coordinate: basis strides, one for every mode.

    >>> print(identity_layout((4, 8)), identity_layout((4, 8))(1, 2))
    (4,8):(1@0,1@1) 1@0+2@1
    """
    from .basis import E

    shape = Layout(shape).shape

    def strides(s: Any, path: tuple[int, ...]) -> Any:
        if type(s) is tuple:
            return tuple([strides(t, (*path, i)) for i, t in enumerate(s)])
        return E(*(path or (0,)))

    return Layout(shape, strides(shape, ()))


def in_bounds(shape: Any, coordinate: Any) -> bool:
    """Whether every entry of a coordinate lies inside a shape: the predicate of tiles that were rounded up.

    >>> in_bounds((10, 6), (9, 5)), in_bounds((10, 6), (10, 0))
    (True, False)
    """
    if type(coordinate) is tuple:
        if type(shape) is not tuple or len(shape) != len(coordinate):
            raise LayoutError(f"the coordinate {coordinate} does not fit the shape {shape}")
        return all(map(in_bounds, shape, coordinate))
    return bool(0 <= to_int(coordinate, "a coordinate") < product(numeric(shape, "in_bounds").shape))


def product_each(shape: Any) -> tuple[Any, ...]:
    """The size of every mode of a shape or layout.

    >>> product_each(((2, 3), 4))
    (6, 4)
    """
    shape = getattr(shape, "shape", shape)
    return tuple([product(s) for s in shape]) if type(shape) is tuple else (product(shape),)
