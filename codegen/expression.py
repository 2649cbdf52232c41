"""A layout as a C++ index expression.

>>> from stridewright.layout import Layout
>>> coordinate_expression(Layout((8, 4), (4, 1)), ("row", "column"))
'row * 4u + column'
"""

from __future__ import annotations

from collections.abc import Sequence

from stridewright.layout import Layout, SwizzledLayout, coalesce


def coordinate_expression(layout: Layout | SwizzledLayout, names: Sequence[str]) -> str:
    """``layout`` at the coordinate whose modes are called ``names``, an expression of unsigned 32-bit integers.

    One name for each mode of the layout; a mode with a shape of its own is taken apart with divisions and remainders
    by constants. A swizzled layout gives an expression in ``x``, the offset before the XOR: see
    :func:`swizzle_expression`.
    """
    inner = layout.layout if isinstance(layout, SwizzledLayout) else layout
    terms: list[str] = []
    for mode, name in zip(inner, names, strict=True):
        flat = coalesce(mode)
        shapes, strides = flat.flat
        below = 1
        for position, (extent, stride) in enumerate(zip(shapes, strides, strict=True)):
            if stride != 0 and extent != 1:
                part = name if below == 1 else f"{name} / {below}u"
                if position + 1 < len(shapes):
                    part = f"{part} % {extent}u"
                terms.append(part if stride == 1 else f"{part} * {stride}u")
            below *= extent
    if isinstance(layout, SwizzledLayout) and layout.offset:
        terms.append(f"{layout.offset}u")
    return " + ".join(terms) or "0u"


def swizzle_expression(layout: SwizzledLayout, x: str = "x") -> str:
    """The XOR of ``layout``'s swizzle on the offset called ``x``.

    >>> from stridewright.layout import Swizzle, compose
    >>> swizzle_expression(compose(Swizzle(3, 4, 3), Layout((8, 128), (128, 1))))
    'x ^ (x >> 3 & 0x70u)'
    """
    swizzle = layout.swizzle
    if swizzle.bits == 0:
        return x
    shift = f"{x} >> {swizzle.shift}" if swizzle.shift > 0 else f"{x} << {-swizzle.shift}"
    return f"{x} ^ ({shift} & {swizzle.target_mask:#x}u)"
