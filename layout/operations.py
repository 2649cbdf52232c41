"""`compose` for every kind of operand: layouts, swizzles, tuples of tilers, ints and None."""

from __future__ import annotations

from typing import Any

from .algebra import bundle, size
from .composition import compose_flat
from .core import Layout, as_layout
from .errors import LayoutError
from .swizzle import Swizzle, SwizzledLayout


def compose(a: Any, b: Any) -> Any:
    """The composition R with ``R(i) == a(b(i))`` for every index i of b, a continued past its size by its last mode.

    The shape of R refines the shape of b. `b` may be a layout, an int n (for n:1), None (a itself), or a tuple of those for
    the modes of a, where missing and None modes stay as they are. `a` may be a Swizzle, giving a swizzled layout. Raises
    LayoutError, with a counterexample, where no layout is that function; decided by algebra, whatever the sizes.
    Source: CuTe, "Layout algebra", composition.

    >>> compose(Layout((10, 2), (16, 4)), Layout((3, 4), (1, 5)))
    Layout((3, (2, 2)), (16, (80, 4)))
    >>> compose(Layout((4, 6, 1), (2, 3, 0)), Layout(30, 4))
    Layout((6, 5), (3, 0))
    >>> compose(Layout((8, 8), (8, 1)), (4, None))
    Layout((4, 8), (8, 1))
    >>> print(compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))))
    S<3,3,3> o (8,64):(64,1)
    """
    if isinstance(a, Layout):
        if isinstance(b, Layout):
            return compose_flat(a, b)
    elif type(a) is Swizzle:
        return _swizzle_first(a, b)
    elif type(a) is SwizzledLayout:
        if type(b) is SwizzledLayout or type(b) is Swizzle:
            from .swizzled import compose_through

            return compose_through(a, b)
        try:
            return a.with_layout(compose(a.layout, b))
        except LayoutError:
            # What is no layout by itself can still be one behind another swizzle.
            if type(b) is not Layout or size(b) > 1 << 10:
                raise
            from .swizzled import compose_through

            return compose_through(a, SwizzledLayout(Swizzle(0, 0, 0), 0, b))
    else:
        return compose(as_layout(a), b)
    if b is None:
        return a
    if type(b) is tuple or type(b) is list:
        modes = list(a)
        if len(b) > len(modes):
            raise LayoutError(f"the tiler {b} has {len(b)} modes, more than {a} has")
        for i, t in enumerate(b):
            try:
                modes[i] = compose(modes[i], t)
            except LayoutError as error:
                from .division import in_mode

                raise in_mode(a, b, i, error) from None
        return bundle(modes)
    if type(b) is SwizzledLayout or type(b) is Swizzle:
        from .swizzled import compose_through

        return compose_through(a, b)
    return compose_flat(a, as_layout(b))


def _swizzle_first(a: Swizzle, b: Any) -> Any:
    if type(b) is Swizzle:
        from .swizzled import compose_swizzles

        return compose_swizzles(a, b)
    if type(b) is SwizzledLayout:
        from .swizzled import compose_through

        return compose_through(a, b)
    return SwizzledLayout(a, 0, as_layout(b))
