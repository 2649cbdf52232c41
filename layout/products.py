"""Products: a layout repeated as another layout says, in the arrangements of the field."""

from __future__ import annotations

from typing import Any

from .algebra import bundle, cosize, shape_of, size
from .complements import complement
from .composition import compose_flat
from .core import Layout, as_layout, make
from .division import by_mode, unzip
from .errors import LayoutError
from .swizzle import SwizzledLayout
from .tuples import product, show, to_int


def logical_product(layout: Any, tiler: Any) -> Any:
    """(layout, repetition): `layout` repeated as `tiler` says, in the offsets that `layout` leaves out.

    It is ``(layout, compose(complement(layout, size(layout) * cosize(tiler)), tiler))``. `tiler` is a layout, an int n (for
    n:1), None (no repetition), or a tuple of those for the modes of `layout`.

    >>> logical_product(Layout((2, 5), (5, 1)), 4)
    Layout(((2, 5), 4), ((5, 1), 10))
    >>> logical_product(Layout((2, 2), (4, 1)), 6)
    Layout(((2, 2), (2, 3)), ((4, 1), (2, 8)))
    """
    if type(layout) is SwizzledLayout:
        return layout.with_layout(logical_product(layout.layout, tiler))
    layout = as_layout(layout)
    if tiler is None:
        return layout
    if type(tiler) is tuple or type(tiler) is list:
        return bundle(by_mode(logical_product, layout, tiler))
    tiler = as_layout(tiler)
    span = cosize(tiler)
    if type(span) is tuple:
        raise LayoutError(
            f"logical_product({layout}, {tiler}): a repetition counts copies, and its basis strides count nothing"
        )
    try:
        rest = complement(layout, size(layout) * span)
        return bundle([layout, compose_flat(rest, tiler)])
    except LayoutError as error:
        raise LayoutError(f"logical_product({layout}, {tiler}): {error}") from None


def zipped_product(layout: Any, tiler: Any) -> Any:
    """`logical_product` gathered into two modes: ((layout's modes), (their repetitions)).

    >>> zipped_product(Layout((2, 5), (5, 1)), 4)
    Layout(((2, 5), 4), ((5, 1), 10))
    """
    if type(layout) is SwizzledLayout:
        return layout.with_layout(zipped_product(layout.layout, tiler))
    return bundle(unzip(logical_product, as_layout(layout), tiler))


def tiled_product(layout: Any, tiler: Any) -> Any:
    """`logical_product` as ((layout's modes), repetition 0, repetition 1, ...).

    >>> tiled_product(Layout((2, 5), (5, 1)), Layout((2, 2)))
    Layout(((2, 5), 2, 2), ((5, 1), 10, 20))
    """
    if type(layout) is SwizzledLayout:
        return layout.with_layout(tiled_product(layout.layout, tiler))
    tiles, rests = unzip(logical_product, as_layout(layout), tiler)
    return bundle([tiles, *rests])


def flat_product(layout: Any, tiler: Any) -> Any:
    """`logical_product` as (mode 0, mode 1, ..., repetition 0, repetition 1, ...).

    >>> flat_product(Layout((2, 5), (5, 1)), Layout((2, 2)))
    Layout((2, 5, 2, 2), (5, 1, 10, 20))
    """
    if type(layout) is SwizzledLayout:
        return layout.with_layout(flat_product(layout.layout, tiler))
    tiles, rests = unzip(logical_product, as_layout(layout), tiler)
    return bundle([*tiles, *rests])


def _pad_rank(layout: Layout, wanted: int) -> list[Layout]:
    return list(layout) + [make(1, 0)] * (wanted - len(layout))


def _interleave(layout: Any, tiler: Any, blocked: bool) -> Any:
    if type(layout) is SwizzledLayout:
        return layout.with_layout(_interleave(layout.layout, tiler, blocked))
    layout, tiler = as_layout(layout), as_layout(tiler)
    wanted = max(len(layout), len(tiler))
    try:
        repetition = logical_product(bundle(_pad_rank(layout, wanted)), bundle(_pad_rank(tiler, wanted)))[1]
    except LayoutError as error:
        raise LayoutError(f"{'blocked' if blocked else 'raked'}_product({layout}, {tiler}): {error}") from None
    pairs = zip(_pad_rank(layout, wanted), repetition, strict=True)
    return bundle([bundle((block, step) if blocked else (step, block)) for block, step in pairs])


def blocked_product(layout: Any, tiler: Any) -> Any:
    """The logical product taken mode by mode: mode i is (mode i of `layout`, repetition along it): blocks side by side.

    >>> blocked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3)))
    Layout(((2, 3), (5, 4)), ((5, 10), (1, 30)))
    >>> print(blocked_product(Layout(4, 2), Layout(2, 1)))
    ((4,2)):((2,1))
    """
    return _interleave(layout, tiler, True)


def raked_product(layout: Any, tiler: Any) -> Any:
    """The logical product taken mode by mode with the repetition first: the elements of the blocks are interleaved.

    >>> raked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3)))
    Layout(((3, 2), (4, 5)), ((10, 5), (30, 1)))
    """
    return _interleave(layout, tiler, False)


def ordered_layout(shape: Any, order: Any = None) -> Layout:
    """The compact layout of a shape whose modes are laid out in the given order, the smallest entry fastest.

    Modes of extent 1 get stride 0.

    >>> ordered_layout((4, 8), (1, 0)), ordered_layout((4, 1, 8))
    (Layout((4, 8), (8, 1)), Layout((4, 1, 8), (1, 0, 4)))
    """
    shape = Layout(shape).shape
    modes = shape if type(shape) is tuple else (shape,)
    order = tuple(range(len(modes))) if order is None else order
    if type(order) is not tuple and type(order) is not list:
        order = (order,)
    keys = [to_int(o, "an order's entry") for o in order]
    if len(keys) != len(modes) or len(set(keys)) != len(keys):
        raise LayoutError(f"an order for {show(shape)} holds {len(modes)} different ints, not {order}")
    strides: list[Any] = [0] * len(modes)
    step = 1
    for i in sorted(range(len(modes)), key=lambda i: keys[i]):
        strides[i] = _ordered(modes[i], step)
        step *= product(modes[i])
    return Layout(shape, tuple(strides) if type(shape) is tuple else strides[0])


def _ordered(shape: Any, step: int) -> Any:
    if type(shape) is tuple:
        strides = []
        for s in shape:
            strides.append(_ordered(s, step))
            step *= product(s)
        return tuple(strides)
    return 0 if shape == 1 else step


def tile_to_shape(atom: Any, shape: Any, order: Any = None) -> Any:
    """`atom` repeated until it fills `shape`; the repetitions follow each other in `order`, the smallest entry fastest.

    `order` is a tuple of different ints, one a mode, column-major if left out. Each extent of `shape` must be a multiple of
    the atom's; LayoutError otherwise.

    >>> print(tile_to_shape(Layout((8, 64), (64, 1)), (128, 64), order=(1, 0)))
    ((8,16),(64,1)):((64,512),(1,0))
    """
    if type(atom) is SwizzledLayout:
        return atom.with_layout(tile_to_shape(atom.layout, shape, order))
    atom = as_layout(atom)
    extents = shape_of(tuple(shape) if isinstance(shape, list) else shape)
    extents = tuple([product(Layout(e).shape) for e in extents]) if type(extents) is tuple else (Layout(extents).shape,)
    if len(extents) < len(atom):
        raise LayoutError(f"the shape {show(extents)} has fewer modes than {atom}")
    blocks = _pad_rank(atom, len(extents))
    counts = []
    for extent, block in zip(extents, blocks, strict=True):
        counts.append(_copies(atom, extents, extent, size(block)))
    return blocked_product(bundle(blocks), ordered_layout(tuple(counts), order))


def _copies(atom: Layout, extents: Any, extent: Any, block: Any) -> Any:
    """How many blocks an extent takes."""
    if type(extent) is int and type(block) is int:
        if extent % block == 0:
            return extent // block
        low = extent // block * block
        near = f"{low} and {low + block}" if low else f"{block}"
        raise LayoutError(
            f"tile_to_shape({atom}, {show(extents)}): the extent {extent} is not a multiple of the atom's {block}; nearest: {near}"
        )
    from .facts import missing_divisor, quotient

    count = quotient(extent, block)
    if count is None:
        raise LayoutError(
            f"tile_to_shape({atom}, {show(extents)}): not determined; missing is the fact {missing_divisor(extent, block)}"
        )
    return count
