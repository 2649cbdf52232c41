"""What two layouts have in common, and what a layout sends to zero."""

from __future__ import annotations

from typing import Any

from .algebra import size
from .carries import first_break
from .composition import steps_of
from .core import Layout, make, numeric
from .errors import LayoutError
from .inverse import Modes, _layout_of, right_inverse, search_right_inverse
from .lattice import collision
from .tuples import unwrap

_SMALL = 1 << 16


def max_common_layout(a: Any, b: Any) -> Layout:
    """The largest layout R with ``a(R(i)) == i == b(R(i))`` for every index i of R: what both keep contiguous alike.

    R takes its values in both domains. A copy from a to b can move size(R) elements at once.

    >>> max_common_layout(Layout((4, 8), (1, 4)), Layout((4, 8), (1, 8)))
    Layout(4, 1)
    >>> max_common_layout(Layout((4, 8), (8, 1)), Layout((4, 8), (8, 1)))
    Layout((8, 4), (4, 1))
    >>> from stridewright.layout import Swizzle, compose
    >>> tile = Layout((8, 64), (64, 1))
    >>> max_common_layout(compose(Swizzle(3, 3, 3), tile), tile)  # the swizzle leaves the first row alone
    Layout(64, 8)
    """
    swizzled = hasattr(a, "swizzle") or hasattr(b, "swizzle")
    a, b = [x if hasattr(x, "swizzle") else numeric(x, "max_common_layout") for x in (a, b)]
    domain = min(size(a), size(b))
    if swizzled:
        return _searched(a, b, domain)
    for one, other in ((b, a), (a, b)):
        # Where a layout is injective, R is a beginning of its right inverse: nothing else takes these values.
        modes = list(zip(*one.flat, strict=True))
        if all(type(d) is int for _, d in modes) and collision(modes) is None:
            return _beginning(right_inverse(one), other, domain)
    return _searched(a, b, domain)


def _searched(a: Any, b: Any, domain: int) -> Layout:
    if domain > _SMALL:
        raise LayoutError(
            f"max_common_layout({a}, {b}): neither is injective and plain, and the largest is not settled for more than {_SMALL} "
            f"coordinates"
        )
    offsets = [x if (x := a(i)) == b(i) else -1 for i in range(domain)]
    return _layout_of(search_right_inverse(offsets, domain, (1, []), f"max_common_layout({a}, {b})"))


def _beginning(inverse: Layout, other: Layout, domain: int) -> Layout:
    """The longest beginning of `inverse` that stays inside the domain and that `other` inverts too."""
    slope, breaks = steps_of(other)
    kept: Modes = []
    reached, highest = 1, 0
    for s, d in zip(*inverse.flat, strict=True):
        if s == 1 or d == 0:
            continue
        value = slope * d + sum([w * (d // p) for p, w in breaks])
        if value != reached:
            break
        extent = min(first_break(d, breaks, s), (domain - 1 - highest) // d + 1)
        low, high = 1, extent
        while low < high:  # adding up holds for an extent if it holds for a larger one
            middle = (low + high + 1) // 2
            if _inverts(other, [*kept, (middle, d)]):
                low = middle
            else:
                high = middle - 1
        if low > 1:
            kept.append((low, d))
            reached *= low
            highest += (low - 1) * d
        if low < s:
            break
    return _layout_of(kept)


def _inverts(other: Layout, modes: Modes) -> bool:
    from .carries import resolve_carries

    slope, breaks = steps_of(other)
    parts = []
    reached = 1
    for s, d in modes:
        parts.append((s, d, reached))
        reached *= s
    return resolve_carries(slope, breaks, parts) is None


def max_common_vector(a: Any, b: Any) -> int:
    """The number of elements that two layouts hold contiguously in the same order: the size of `max_common_layout`.

    >>> max_common_vector(Layout((4, 8), (1, 4)), Layout((4, 8), (1, 8)))
    4
    """
    return int(size(max_common_layout(a, b)))


def nullspace(layout: Any) -> Layout:
    """The strictly increasing layout N of all indices that `layout` sends to 0: ``layout(N(i)) == 0``.

    These are the modes of stride 0, each a mode of N as in CuTe; with strides of both signs others can cancel too, and
    LayoutError is raised where the indices then are no layout.

    >>> nullspace(Layout((4, 8), (0, 1))), nullspace(Layout((2, 2), (1, -1)))
    (Layout(4, 1), Layout(2, 3))
    """
    layout = numeric(layout, "nullspace")
    zeros: Modes = []
    others: Modes = []
    before = 1
    for s, d in zip(*layout.flat, strict=True):
        if s != 1:
            if d == 0:
                zeros.append((s, before))
            else:
                others.append((s, d))
        before *= s
    numbers = [(s, d) for s, d in others if type(d) is int]
    signs = {d > 0 for _, d in numbers}
    if len(numbers) == len(others) and (len(signs) < 2 or collision(others) is None):
        return make(unwrap([s for s, _ in zeros]), unwrap([d for _, d in zeros])) if zeros else make(1, 0)
    if before > _SMALL:
        raise LayoutError(
            f"nullspace({layout}): strides of both signs cancel; not settled for more than {_SMALL} coordinates"
        )
    places = [i for i in range(before) if layout(i) == 0]
    result = increasing_layout(places)
    if result is None:
        raise LayoutError(f"nullspace({layout}): the indices {places[:8]} that are sent to 0 are no layout")
    return result


def increasing_layout(places: list[int]) -> Layout | None:
    """The layout whose values are the given strictly increasing numbers from 0 on, if there is one.

    >>> increasing_layout([0, 1, 4, 5]), increasing_layout([0, 1, 3])
    (Layout((2, 2), (1, 4)), None)
    """
    modes: Modes = []
    done = 1
    while done < len(places):
        step = places[done]
        count = 1
        while count * done < len(places) and places[count * done] == count * step:
            count += 1
        if len(places) % (done * count):
            return None
        modes.append((count, step))
        done *= count
    result = _layout_of(modes) if modes else make(1, 0)
    return result if all(result(i) == x for i, x in enumerate(places)) else None
