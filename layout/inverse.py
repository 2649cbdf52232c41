"""Inverses on the right, of maximal size, and on the left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

from .algebra import merge_modes, size
from .carries import first_break
from .composition import steps_of
from .core import Layout, as_layout, make
from .errors import LayoutError
from .lattice import collision, solve_integers
from .tuples import compact_strides, unwrap

_SMALL = 1 << 16
_MOST_NODES = 300_000
_MOST_CHAINS = 30_000

Modes = list[tuple[int, int]]


def _layout_of(modes: Modes) -> Layout:
    shapes, strides = merge_modes(tuple([s for s, _ in modes]), tuple([d for _, d in modes]))
    return make(unwrap(shapes), unwrap(strides)) if shapes else make(1, 0)


def right_inverse(layout: Any) -> Any:
    """The largest layout R with ``layout(R(i)) == i`` for every index i of R.

    R takes its values in the domain of `layout`; no layout of more coordinates does that. Modes of stride 0 are skipped.
    Where modes nest, R reads them by rising stride; where they overlap it is searched for, and LayoutError is raised in the
    case, of large overlapping modes only, that the search does not end with a proof. The inverse of a
    swizzled layout is a layout behind another swizzle.

    >>> right_inverse(Layout((4, 8), (8, 1)))
    Layout((8, 4), (4, 1))
    >>> right_inverse(Layout((3, 4), (1, 0))), right_inverse(Layout((2, (8, 4)), (0, (0, 1))))
    (Layout(3, 1), Layout(4, 16))
    >>> right_inverse(Layout((4, 4), (1, 2)))
    Layout((4, 2), (1, 8))
    >>> from stridewright.layout import Swizzle, compose
    >>> print(right_inverse(compose(Swizzle(3, 0, 3), Layout((8, 8), (8, 1)))))
    S<3,0,-3> o (8,8):(8,1)
    """
    if hasattr(layout, "swizzle"):
        from .swizzled import inverse_through

        return inverse_through(layout, "right_inverse")
    layout = as_layout(layout)
    if type(layout) is not Layout:
        from . import symbolic

        return symbolic.right_inverse(layout)
    modes = []
    before = 1
    for s, d in zip(*layout.flat, strict=True):
        if type(d) is not int:
            raise LayoutError(
                f"right_inverse({layout}): offsets along the basis stride {d} are coordinates, not indices"
            )
        if s != 1 and d != 0:
            modes.append((d, s, before))
        before *= s
    modes.sort()
    chain: Modes = []
    reached = bound = 1
    for d, s, p in modes:
        if d == reached:
            chain.append((s, p))
            reached *= s
        if 0 < d <= bound:
            bound += (s - 1) * d
    if modes and modes[0][0] < 0:
        bound = 1 + sum([(s - 1) * d for d, s, _ in modes if d > 0])
    if reached == bound:
        return _layout_of(chain)
    best = _largest_right_inverse(layout, before, bound, (reached, chain))
    return _layout_of(best)


def _largest_right_inverse(layout: Layout, domain: int, bound: int, best: tuple[int, Modes]) -> Modes:
    if domain > _SMALL:
        raise LayoutError(
            f"right_inverse({layout}): its modes overlap; one of size {best[0]} is {_layout_of(best[1])}, but that none of up to "
            f"{bound} exists is not settled for more than {_SMALL} coordinates"
        )
    return search_right_inverse([layout(i) for i in range(domain)], bound, best, f"right_inverse({layout})")


def search_right_inverse(offsets: list[int], bound: int, best: tuple[int, Modes], what: str) -> Modes:
    """The modes of the largest R with ``offsets[R(i)] == i``, of size at most `bound`; `best` is one that is known.

    >>> search_right_inverse([0, 2, 1, 3], 4, (1, []), "right_inverse")
    [(2, 2), (2, 1)]
    """
    domain = len(offsets)
    places: dict[int, list[int]] = {}
    for place, offset in enumerate(offsets):
        places.setdefault(offset, []).append(place)
    bound = next((i for i in range(bound) if i not in places), bound)
    nodes = 0
    largest, found = best

    def extend(values: list[int], modes: Modes) -> None:
        """`values` are R(0) .. R(n-1) of the modes so far; the next mode steps by a place of offset n."""
        nonlocal largest, found, nodes
        n = len(values)
        if n > largest:
            largest, found = n, list(modes)
        if bound // n * n <= largest or n >= bound:
            return
        options = []
        for step in places[n]:
            longer = list(values)
            for c in range(1, bound // n):
                nodes += 1
                block = [v + c * step for v in values]
                if block[-1] >= domain or any(v >= domain or offsets[v] != c * n + i for i, v in enumerate(block)):
                    break
                longer += block
            if len(longer) > n:
                options.append((step, longer))
        if nodes > _MOST_NODES:
            raise LayoutError(f"{what}: the largest is not settled after {nodes} steps")
        options.sort(key=lambda option: -len(option[1]))
        for step, longer in options:
            for m in range(len(longer) // n, 1, -1):
                if bound // (n * m) * (n * m) > largest:
                    extend(longer[: n * m], [*modes, (m, step)])

    extend([0], [])
    return found


def left_inverse(layout: Any) -> Any:
    """A layout R with ``R(layout(i)) == i`` for every index i of `layout`.

    Offsets that `layout` leaves out get any value. Raises LayoutError where two coordinates share an offset, naming them, and
    where no layout inverts the map. Where modes nest, R reads them by rising stride, each up to the beginning of the next.
    Of a swizzled layout R is a layout behind another swizzle.

    >>> left_inverse(Layout(4, 2)), left_inverse(Layout((4, 8), (8, 1)))
    (Layout((2, 4), (0, 1)), Layout((8, 4), (4, 1)))
    >>> left_inverse(Layout((4, 8), (16, 1)))
    Layout((16, 4), (4, 1))
    >>> left_inverse(Layout((2, 2), (2, 3)))
    Layout((2, 3), (1, 1))
    """
    if hasattr(layout, "swizzle"):
        from .swizzled import inverse_through

        return inverse_through(layout, "left_inverse")
    layout = as_layout(layout)
    if type(layout) is not Layout:
        from . import symbolic

        return symbolic.left_inverse(layout)
    modes = []
    before = 1
    for s, d in zip(*layout.flat, strict=True):
        if type(d) is not int:
            raise LayoutError(
                f"left_inverse({layout}): offsets along the basis stride {d} are coordinates, not indices"
            )
        if s != 1:
            modes.append((d, s, before))
        before *= s
    modes.sort()
    # Each mode is read up to where the next begins, so that it takes in the gap behind it; a gap before the first is skipped.
    # The last is read without end, downwards too: a single negative stride above all others counts its steps below 0.
    inverse: Modes = []
    read, previous, end = 0, 1, 1
    nested = modes
    if modes and modes[0][0] < 0 and (len(modes) == 1 or -modes[0][0] > modes[-1][0]):
        d, s, p = modes[0]
        nested = [*modes[1:], (-d, s, -p)]
    for d, s, p in nested:
        if d < end or d % previous:
            return _searched_left_inverse(layout, modes)
        inverse.append((d // previous, read))
        read, previous, end = p, d, d * s
    inverse.append((end // previous, read))
    return _layout_of(inverse)


def _searched_left_inverse(layout: Layout, modes: list[tuple[int, int, int]]) -> Layout:
    hit = collision([(s, d) for d, s, _ in modes])
    if hit is not None:
        one = sum([max(0, c) * p for c, (_, _, p) in zip(hit, modes, strict=True)])
        two = sum([max(0, -c) * p for c, (_, _, p) in zip(hit, modes, strict=True)])
        raise LayoutError(
            f"left_inverse({layout}): not injective, indices {min(one, two)} and {max(one, two)} have the offset {layout(one)}"
        )
    low = sum([(s - 1) * d for d, s, _ in modes if d < 0])
    high = sum([(s - 1) * d for d, s, _ in modes if d > 0])
    last = max(high, -low) + 1
    first = _first_bend(layout, last)
    tried = 0
    for chain in _chains(first, last):
        tried += 1
        if tried > _MOST_CHAINS:
            raise LayoutError(f"left_inverse({layout}): none found among {_MOST_CHAINS} forms; not settled")
        result = _fit(layout, modes, chain, high)
        if result is not None:
            return result
    raise LayoutError(
        f"left_inverse({layout}): injective, but no layout takes its offsets back to its indices: all {tried} forms whose modes "
        f"end inside offsets {low} to {high} were tried"
    )


def _first_bend(layout: Layout, last: int) -> int:
    """No layout whose first mode is longer than this is linear on the offsets inside it."""
    if size(layout) > _SMALL:
        return last
    points = sorted([(x, i) for i in range(1, size(layout)) if (x := layout(i)) > 0])
    for (x, i), (y, j) in pairwise(points):
        if i * y != j * x:
            return min(last, int(y))
    return last


def _chains(first: int, last: int) -> Iterator[tuple[int, ...]]:
    """Sequences p0 | p1 | ... of different numbers in 2 .. last, the shortest first, with p0 at most `first`."""
    level: list[tuple[int, ...]] = [()]
    while level:
        yield from level
        longer = []
        for chain in level:
            # No more than the caller looks at: the last offset can be a number of any length.
            places = range(2 * chain[-1], last + 1, chain[-1]) if chain else range(2, first + 1)
            longer += [(*chain, p) for p in islice(places, _MOST_CHAINS + 1)]
            if len(longer) > _MOST_CHAINS:
                break
        level = longer


def _fit(layout: Layout, modes: list[tuple[int, int, int]], chain: tuple[int, ...], high: int) -> Layout | None:
    """The strides that make the modes ending at `chain` a left inverse; None where there are none."""
    radices = []
    before = 1
    for p in chain:
        radices.append(p // before)
        before = p
    points = [(d, p) for d, _, p in modes]
    while True:
        rows, wanted = [], []
        for x, i in points:
            row = []
            for r in radices:
                x, digit = divmod(x, r)
                row.append(digit)
            rows.append([*row, x])
            wanted.append(i)
        strides = solve_integers(rows, wanted)
        if strides is None:
            return None
        shape = [*radices, max(1, high // before + 1)]
        result = make(tuple(shape), tuple(strides)) if len(shape) > 1 else make(shape[0], strides[0])
        wrong = differs(result, layout)
        if wrong is None:
            return result
        points.append((layout(wrong), wrong))


def differs(outer: Layout, inner: Layout) -> int | None:
    """An index i of `inner` with ``outer(inner(i)) != i``, or None: decided by algebra.

    >>> differs(Layout((2, 4), (0, 1)), Layout(4, 2)) is None, differs(Layout(8, 1), Layout(4, 2))
    (True, 1)
    """
    from .carries import resolve_carries

    slope, breaks = steps_of(outer)
    parts = []
    shape, stride = inner.flat
    before = compact_strides(shape)
    for s, d, p in zip(shape, stride, before, strict=True):
        if s == 1:
            continue
        value = slope * d + sum([w * (d // q) for q, w in breaks])
        if value != p:
            return int(p)
        n = first_break(d, breaks, s)
        if n < s:
            return int(p * n)
        parts.append((s, d, p))
    problem = resolve_carries(slope, breaks, parts)
    if problem is None:
        return None
    places = [p for s, p in zip(shape, before, strict=True) if s != 1]
    return int(sum([c * p for c, p in zip(problem[0], places, strict=True)]))
