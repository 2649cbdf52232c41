"""Maps that are linear over F2."""

from __future__ import annotations

from typing import Any

from .errors import LayoutError


def swizzled_span(layout: Any) -> tuple[int, int]:
    """The smallest and the largest offset of a swizzled layout.

    >>> from stridewright.layout import Layout, Swizzle, SwizzledLayout
    >>> swizzled_span(SwizzledLayout(Swizzle(1, 0, 2), 0, Layout((2, 2), (1, 4))))
    (0, 5)
    """
    offsets = [layout(i) for i in range(len(range(_size(layout))))]
    return min(offsets), max(offsets)


def _size(layout: Any) -> int:
    from .algebra import size

    return int(size(layout.layout))


def compose_swizzles(a: Any, b: Any) -> Any:
    """The swizzle that does b and then a, where one does.

    >>> from stridewright.layout import Swizzle
    >>> compose_swizzles(Swizzle(3, 4, 3), Swizzle(3, 4, 3))
    Swizzle(0, 4, 3)
    """
    if a.bits == 0:
        return b
    if b.bits == 0:
        return a
    if a == b:
        return type(a)(0, a.base, a.shift)
    raise LayoutError(f"compose({a}, {b}): no single swizzle does both")


def compose_through(a: Any, b: Any) -> Any:
    """A layout or swizzled layout that reads b first and then the layout a, where one exists.

    >>> from stridewright.layout import Layout, Swizzle
    >>> compose_through(Layout(8), Swizzle(0, 0, 0))
    Layout(8, 1)
    """
    swizzle = getattr(b, "swizzle", b)
    if swizzle.bits == 0 and swizzle is b:
        return a
    raise LayoutError(f"compose({a}, {b}): no layout or swizzled layout represents it")
