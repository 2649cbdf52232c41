"""Layouts in other units: upcast to wider elements, downcast to narrower ones, recast between widths."""

from __future__ import annotations

from math import gcd
from typing import Any

from .core import Layout, SymbolicLayout, make
from .errors import LayoutError
from .swizzle import Swizzle, SwizzledLayout
from .tuples import IntTuple, to_int


def upcast(layout: Any, n: int) -> Any:
    """The layout in units of n elements: ``up(c) == layout(n * c) // n``, where n scales the modes that run inside a unit.

    A mode of stride d with n | d keeps its extent; one with d | n is scaled: its extent is divided by n/d. A mode that ends
    inside a unit gets extent 1 if another goes on where it ends. Anything else raises LayoutError. Of a swizzle, which is
    then in units too, what happens inside a unit is given up: the order of the elements of a unit is not represented.
    Source: CuTe, upcast.

    >>> upcast(Layout((8, 64), (64, 1)), 2)
    Layout((8, 32), (32, 1))
    >>> print(upcast(SwizzledLayout(Swizzle(3, 0, 3), 0, Layout((8, 64), (64, 1))), 2))
    S<2,0,3> o (8,32):(32,1)
    """
    n = to_int(n, "the number of elements of a unit")
    if n < 1:
        raise LayoutError(f"a unit has at least one element, not {n}")
    if type(layout) is Swizzle:
        if n & (n - 1):
            raise LayoutError(f"upcast of {layout} by {n}: the ratio of widths must be a power of two")
        return layout.rescale(-(n.bit_length() - 1))
    if type(layout) is SwizzledLayout:
        if n & (n - 1):
            raise LayoutError(f"upcast of {layout} by {n}: the ratio of widths must be a power of two under a swizzle")
        if layout.offset % n:
            raise LayoutError(f"upcast of {layout} by {n}: its offset {layout.offset} is not a multiple of {n}")
        swizzle = layout.swizzle.rescale(-(n.bit_length() - 1))
        return SwizzledLayout(swizzle, layout.offset // n, upcast(layout.layout, n))

    def cast(s: IntTuple, d: IntTuple) -> tuple[IntTuple, IntTuple]:
        if type(s) is tuple:
            pairs = [cast(t, e) for t, e in zip(s, d, strict=True)]
            return tuple([p[0] for p in pairs]), tuple([p[1] for p in pairs])
        if type(d) is not int:
            raise LayoutError(f"upcast of {layout} by {n}: the basis stride {d} counts no elements")
        if d % n == 0:
            return s, d // n
        if s == 1:
            return 1, 0
        step = abs(d)
        if n % step == 0:
            unit = n // step
            if s % unit == 0:
                return s // unit, 1 if d > 0 else -1
            if unit % s == 0 and any(e == s * d and t > 1 for t, e in zip(*layout.flat, strict=True)):
                return 1, 0
        raise LayoutError(
            f"upcast of {layout} by {n}: the mode {s}:{d} is not made of whole units; "
            f"allowed are strides that {n} divides, and strides d that divide {n} with an extent that {n} / d divides"
        )

    if type(layout) is SymbolicLayout:
        from . import symbolic

        return symbolic.upcast(layout, n)
    if type(layout) is not Layout:
        raise LayoutError(f"upcast takes a layout, not {layout!r}")
    return make(*cast(layout.shape, layout.stride))


def downcast(layout: Any, n: int) -> Any:
    """The layout in units n times smaller: modes of stride 1 grow n times longer, other strides n times larger.

    ``upcast(downcast(l, n), n) == l``. A layout without a mode of stride 1 keeps the first part of every element.
    Source: CuTe, downcast.

    >>> downcast(Layout((8, 32), (32, 1)), 2)
    Layout((8, 64), (64, 1))
    """
    n = to_int(n, "the number of parts of an element")
    if n < 1:
        raise LayoutError(f"an element has at least one part, not {n}")
    if type(layout) is Swizzle:
        if n & (n - 1):
            raise LayoutError(f"downcast of {layout} by {n}: the ratio of widths must be a power of two")
        return layout.rescale(n.bit_length() - 1)
    if type(layout) is SwizzledLayout:
        if n & (n - 1):
            raise LayoutError(
                f"downcast of {layout} by {n}: the ratio of widths must be a power of two under a swizzle"
            )
        return SwizzledLayout(layout.swizzle.rescale(n.bit_length() - 1), layout.offset * n, downcast(layout.layout, n))

    def cast(s: IntTuple, d: IntTuple) -> tuple[IntTuple, IntTuple]:
        if type(s) is tuple:
            pairs = [cast(t, e) for t, e in zip(s, d, strict=True)]
            return tuple([p[0] for p in pairs]), tuple([p[1] for p in pairs])
        if type(d) is not int:
            raise LayoutError(f"downcast of {layout} by {n}: the basis stride {d} counts no elements")
        return (s * n, d) if d in (1, -1) else (s, d * n)

    if type(layout) is SymbolicLayout:
        from . import symbolic

        return symbolic.downcast(layout, n)
    if type(layout) is not Layout:
        raise LayoutError(f"downcast takes a layout, not {layout!r}")
    return make(*cast(layout.shape, layout.stride))


def recast(layout: Any, old_bits: int, new_bits: int) -> Any:
    """The layout of elements of `old_bits` bits as a layout of elements of `new_bits` bits: an upcast or a downcast.

    Where neither width is a multiple of the other it is an upcast to their common multiple and a downcast from there. A
    swizzle's lowest bit moves with the width: the 128-byte shared-memory swizzle is S<3,4,3> of bytes, S<3,3,3> of 16-bit
    and S<3,2,3> of 32-bit elements. Raises LayoutError where the layout is not made of whole units, or under a swizzle where
    the widths are not a power of two apart.

    >>> recast(Layout((8, 64), (64, 1)), 16, 32), recast(Layout((2, 24), (24, 1)), 16, 24)
    (Layout((8, 32), (32, 1)), Layout((2, 16), (16, 1)))
    >>> recast(Swizzle(3, 4, 3), 8, 16), recast(Swizzle(3, 4, 3), 8, 4)
    (Swizzle(3, 3, 3), Swizzle(3, 5, 3))
    """
    old, new = to_int(old_bits, "a width in bits"), to_int(new_bits, "a width in bits")
    if old < 1 or new < 1:
        raise LayoutError(f"widths are at least one bit, not {min(old, new)}")
    if type(layout) is Swizzle or type(layout) is SwizzledLayout:
        ratio = max(old, new) // min(old, new)
        if max(old, new) % min(old, new) or ratio & (ratio - 1):
            raise LayoutError(
                f"recast of {layout} from {old} to {new} bits: the ratio of widths must be a power of two"
            )
        if type(layout) is Swizzle:
            bits = ratio.bit_length() - 1
            return layout.rescale(-bits if new > old else bits)
    common = gcd(old, new)
    if new == common:
        return downcast(layout, old // new)
    wide = upcast(layout, new // common)
    return wide if old == common else downcast(wide, old // common)
