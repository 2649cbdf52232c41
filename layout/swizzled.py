"""Composition with swizzles, decided over F2, and the exact span of swizzled layouts."""

from __future__ import annotations

from itertools import product as cartesian
from math import gcd, prod
from typing import Any

from .algebra import coalesce
from .composition import compose_flat
from .core import Layout, make
from .errors import LayoutError
from .linear import LinearLayout
from .swizzle import Swizzle, SwizzledLayout
from .swizzle_values import MOST_VALUES, layout_of_values, swizzles
from .tuples import flatten_tuple, unflatten_tuple, unwrap

_MOST_POINTS = 1 << 20
_MOST_INVERTED = 1 << 11


def layout_from_bases(linear: LinearLayout, shape: Any = None) -> Layout | SwizzledLayout:
    """See `LinearLayout.to_layout`.

    >>> layout_from_bases(LinearLayout([1, 2, 4, 9, 18, 36]), (8, 8))
    SwizzledLayout(Swizzle(3, 0, 3), 0, Layout((8, 8), (1, 8)))
    """
    if shape is None:
        shape = 1 << linear.inputs
    leaves = flatten_tuple(shape)
    if prod(leaves) != 1 << linear.inputs or any(s & (s - 1) for s in leaves):
        raise LayoutError(f"the shape {shape} does not have powers of two for {linear.inputs} input bits")
    for swizzle in swizzles(linear.outputs):
        bases = [swizzle(b) for b in linear.bases]
        offset = swizzle(linear.constant)
        used = offset
        for base in bases:
            if base & used:
                break
            used |= base
        else:
            layout = _assemble(bases, leaves, shape)
            return layout if swizzle.bits == 0 and offset == 0 else SwizzledLayout(swizzle, offset, layout)
    raise LayoutError(f"{linear} is no layout behind a single swizzle")


def _assemble(bases: list[int], leaves: tuple[int, ...], shape: Any) -> Layout:
    shapes: list[Any] = []
    strides: list[Any] = []
    taken = 0
    for s in leaves:
        bits = s.bit_length() - 1
        modes: list[list[int]] = []
        for base in bases[taken : taken + bits]:
            if modes and base == modes[-1][0] * modes[-1][1]:
                modes[-1][0] *= 2
            else:
                modes.append([2, base])
        taken += bits
        shapes.append(unwrap([n for n, _ in modes]) if modes else 1)
        strides.append(unwrap([d for _, d in modes]) if modes else 0)
    return make(unflatten_tuple(shapes, shape), unflatten_tuple(strides, shape))


def compose_swizzles(a: Swizzle, b: Swizzle) -> Swizzle:
    """The swizzle that does b and then a; LayoutError where no single swizzle does.

    >>> compose_swizzles(Swizzle(3, 4, 3), Swizzle(3, 4, 3)), compose_swizzles(Swizzle(1, 0, 3), Swizzle(1, 1, 3))
    (Swizzle(0, 0, 0), Swizzle(2, 0, 3))
    """
    bits = max([s.base + s.bits + abs(s.shift) for s in (a, b)])
    moved = [(j, a(b(1 << j)) ^ (1 << j)) for j in range(bits)]
    moved = [(j, change) for j, change in moved if change]
    if not moved:
        return Swizzle(0, 0, 0)
    first, change = moved[0]
    target = change.bit_length() - 1
    if len({j - first for j, _ in moved}) == len(moved) and abs(first - target) >= len(moved):
        result = Swizzle(len(moved), min(first, target), first - target)
        if all(result(1 << j) == a(b(1 << j)) for j in range(bits)):
            return result
    raise LayoutError(
        f"compose({a}, {b}): no single swizzle does both; LinearLayout.of(a).compose(b) is their linear map"
    )


def compose_through(a: Any, b: Any) -> Layout | SwizzledLayout:
    """The layout or swizzled layout that reads the swizzle or swizzled layout b first and then the layout a.

    A swizzle alone has the shape of a. Where the swizzle changes nothing on the offsets of b this is plain composition.
    Otherwise a carries the swizzle's bits to where another swizzle changes them, or a and b are linear over F2; what is left
    is decided by its values, up to 2**14 of them. LayoutError where no layout behind one swizzle is that function. `a` may be
    swizzled too, or a swizzle.

    >>> print(compose_through(Layout((8, 8), (1, 8)), Swizzle(3, 0, 3)))
    S<3,0,3> o (8,8):(1,8)
    >>> print(compose_through(Layout((8, 8), (8, 1)), SwizzledLayout(Swizzle(3, 0, 3), 0, Layout((8, 8)))))
    S<3,0,-3> o (8,8):(8,1)
    >>> print(compose_through(Layout((4, 8), (1, 8)), SwizzledLayout(Swizzle(0, 0, 0), 4, Layout(4, 1))))
    S<0,0,0> o 8 o 4:1
    """
    given = b
    if type(b) is Swizzle:
        b = SwizzledLayout(b, 0, Layout(a.shape))
    try:
        result = _by_algebra(a, b)
        if result is not None:
            return result
        problem = "its swizzles and offsets do not join"
    except LayoutError as error:
        problem = str(error)
    count = prod(b.layout.flat[0])
    if count > MOST_VALUES or any(type(d) is not int for m in (a, b) if hasattr(m, "shape") for d in _strides(m)):
        raise LayoutError(f"compose({a}, {given}): no layout behind one swizzle is known to represent it: {problem}")
    return layout_of_values([a(b(i)) for i in range(count)], b.layout.shape, f"compose({a}, {given})")


def inverse_through(layout: SwizzledLayout, operation: str) -> Layout | SwizzledLayout:
    """The right or left inverse of a swizzled layout: undo the swizzle, then the layout.

    >>> print(inverse_through(SwizzledLayout(Swizzle(1, 0, 1), 0, Layout((2, 2), (2, 1))), "left_inverse"))
    S<1,0,-1> o (2,2):(2,1)
    """
    from .inverse import left_inverse, right_inverse

    what = f"{operation}({layout})"
    swizzle, plain = layout.swizzle, layout.layout
    if layout.offset:
        raise LayoutError(f"{what}: the offset {layout.offset} inside the swizzle is not undone by a layout")
    if swizzle.bits == 0:
        return right_inverse(plain) if operation == "right_inverse" else left_inverse(plain)  # type: ignore[no-any-return]
    low, high = plain_span(plain)
    if low < 0:
        raise LayoutError(f"{what}: offsets below 0, here down to {low}, are not undone through a swizzle")
    reach = 1 << max(high.bit_length(), (swizzle.source_mask | swizzle.target_mask).bit_length())
    if high < swizzle.source_mask & -swizzle.source_mask:
        reach = high + 1
    if operation == "right_inverse":
        inverse = right_inverse(plain)
        if prod(inverse.flat[0]) != high + 1 or (high + 1) % reach:
            return _searched_right_inverse(layout, reach)
        reach = high + 1
    else:
        inverse = left_inverse(plain)
    try:
        return compose_through(inverse, SwizzledLayout(swizzle, 0, Layout(reach)))
    except LayoutError as error:
        if operation == "right_inverse":
            return _searched_right_inverse(layout, reach)
        raise LayoutError(f"{what}: {error}") from None


def _searched_right_inverse(layout: SwizzledLayout, period: int) -> Layout | SwizzledLayout:
    size = prod(layout.layout.flat[0])
    places: dict[int, int] = {}
    if size <= _MOST_INVERTED:
        places = {layout(i): i for i in range(size)}
    if len(places) < size:
        raise LayoutError(
            f"right_inverse({layout}): the largest is not known where the layout inside does not take every value below a "
            f"multiple of {period}, the swizzle's period, if it also repeats offsets or has more than {_MOST_INVERTED} coordinates"
        )
    known = next(i for i in range(size + 1) if i not in places)
    for count in range(known, 1, -1):
        try:
            return layout_of_values([places[i] for i in range(count)], count, "right_inverse")
        except LayoutError:
            continue
    return make(1, 0)


def _strides(layout: Any) -> Any:
    return (layout if type(layout) is Layout else layout.layout).flat[1]


def _by_algebra(a: Any, b: SwizzledLayout) -> Layout | SwizzledLayout | None:
    """The composition as far as it follows from the modes alone; None or LayoutError where it does not."""
    if type(a) is Swizzle:
        try:
            return SwizzledLayout(compose_swizzles(a, b.swizzle), b.offset, b.layout)
        except LayoutError:
            inner = LinearLayout.of(b)
            return (
                LinearLayout.of(a, max(inner.outputs, a.base + a.bits + abs(a.shift)))
                .compose(inner)
                .to_layout(b.layout.shape)
            )
    if type(a) is SwizzledLayout:
        inside = _by_algebra(a.layout, b)
        if inside is None or type(inside) is Layout:
            return inside and SwizzledLayout(a.swizzle, a.offset, inside)
        assert type(inside) is SwizzledLayout
        if inside.swizzle.bits == 0:
            return SwizzledLayout(a.swizzle, a.offset + inside.offset, inside.layout)
        return None if a.offset else _by_algebra(a.swizzle, inside)
    low, high = plain_span(b.layout, b.offset)
    swizzle = b.swizzle
    if swizzle.bits == 0 or (low >= 0 and high < swizzle.source_mask & -swizzle.source_mask):
        return _moved(a, b.offset, b.layout)
    moved = _past(a, swizzle)
    if moved is not None:
        plain = _moved(a, b.offset, b.layout)
        if type(plain) is SwizzledLayout:
            return SwizzledLayout(moved, plain.offset, plain.layout)
        assert type(plain) is Layout
        return SwizzledLayout(moved, 0, plain)
    linear = LinearLayout.of(b)
    return LinearLayout.of(_reaching(a, linear.outputs)).compose(linear).to_layout(b.layout.shape)


def _moved(a: Layout, offset: int, b: Layout) -> Layout | SwizzledLayout:
    """``a(offset + b(i))``: the offset is one more mode of b, and must add up with the others."""
    if offset == 0:
        return compose_flat(a, b)
    start = a(offset)
    plain = compose_flat(a, make((b.shape, 2), (b.stride, offset)))[0]
    return plain if start == 0 else SwizzledLayout(Swizzle(0, 0, 0), start, plain)


def _reaching(a: Layout, bits: int) -> Layout:
    """The layout a with its last mode, which goes on without end, long enough for indices of so many bits."""
    shape, stride = a.flat
    before = prod(shape[:-1])
    if not shape or before & (before - 1) or before.bit_length() - 1 > bits:
        return a
    return make((*shape[:-1], 1 << bits + 1 - before.bit_length()), stride)


def _past(a: Layout, swizzle: Swizzle) -> Swizzle | None:
    """The swizzle s with ``a(swizzle(x)) == s(a(x))`` for all x >= 0, where the modes of a show one; None otherwise.

    The first modes of a, up to the swizzle's period or a multiple of it, must be linear; those after it must step by whole multiples of what the
    first and the new swizzle reach, so that neither disturbs the other.
    """
    period = 1 << (swizzle.base + swizzle.bits + abs(swizzle.shift))
    total = prod(a.flat[0])
    while True:
        moved = _past_period(a, swizzle, period)
        if moved is not None or period >= total:
            return moved
        period *= 2


def _past_period(a: Layout, swizzle: Swizzle, period: int) -> Swizzle | None:
    inside: list[tuple[int, int]] = []
    outside: list[tuple[int, int]] = []
    left = period
    flat = list(zip(*a.flat, strict=True))
    for i, (s, d) in enumerate(flat):
        last = i == len(flat) - 1
        if left == 1:
            outside.append((2 if last else s, d))  # the last goes on without end, whatever its extent
        elif last:  # it goes on without end
            inside.append((left, d))
            outside.append((2, d * left))
        elif left % s == 0:
            inside.append((s, d))
            left //= s
        elif s % left == 0:
            inside.append((left, d))
            outside.append((s // left, d * left))
            left = 1
        else:
            return None
    if not inside:
        return None
    try:
        low = Layout(*zip(*inside, strict=True))
        joined = LinearLayout.of(low).compose(LinearLayout.of(swizzle, period.bit_length() - 1)).to_layout(low.shape)
    except LayoutError:
        return None
    if type(joined) is not SwizzledLayout or joined.offset or coalesce(joined.layout) != coalesce(low):
        return None
    moved = joined.swizzle
    reach = max(plain_span(low)[1], moved.source_mask, moved.target_mask).bit_length()
    return moved if all(s == 1 or d % (1 << reach) == 0 for s, d in outside) else None


def plain_span(layout: Layout, offset: int = 0) -> tuple[int, int]:
    """The smallest and the largest offset of a layout, moved by `offset`.

    >>> plain_span(Layout((4, 8), (-1, 4)))
    (-3, 28)
    """
    low = high = offset
    for s, d in zip(*layout.flat, strict=True):
        if d < 0:
            low += (s - 1) * d
        else:
            high += (s - 1) * d
    return low, high


def swizzled_span(layout: SwizzledLayout) -> tuple[int, int]:
    """The smallest and the largest offset of a swizzled layout.

    Steps by multiples of the swizzle's period add to the offset as they do without it; only what is left is visited.

    >>> swizzled_span(SwizzledLayout(Swizzle(1, 0, 2), 0, Layout((2, 2), (1, 4))))
    (0, 5)
    >>> swizzled_span(SwizzledLayout(Swizzle(3, 4, 3), 0, Layout(2**60)))
    (0, 1152921504606846975)
    """
    swizzle = layout.swizzle
    if swizzle.bits == 0:
        return plain_span(layout.layout, layout.offset)
    period = 1 << (swizzle.base + swizzle.bits + abs(swizzle.shift))
    low = high = 0
    inside: list[tuple[int, int]] = []
    for s, d in zip(*layout.layout.flat, strict=True):
        if d == 0 or s == 1:
            continue
        repeat = period // gcd(period, d)  # d * repeat is a multiple of the period
        if s % repeat == 0:
            outer, s = s // repeat, repeat
            low += min(0, (outer - 1) * d * repeat)
            high += max(0, (outer - 1) * d * repeat)
        if s > 1:
            inside.append((s, d))
    try:
        linear = LinearLayout.of(SwizzledLayout(swizzle, layout.offset, Layout(*zip(*inside, strict=True))))
    except (LayoutError, TypeError):
        if prod([s for s, _ in inside]) > _MOST_POINTS:
            raise LayoutError(f"the span of {layout} is not settled for more than {_MOST_POINTS} coordinates") from None
        points = cartesian(*[range(0, s * d, d) for s, d in inside])
        offsets = [swizzle(layout.offset + sum(point)) for point in points]
        return low + min(offsets), high + max(offsets)
    from .linear import eliminate

    least = most = linear.constant
    for _, vector, _ in sorted(eliminate(linear.bases)[0], reverse=True):
        least, most = min(least, least ^ vector), max(most, most ^ vector)
    return low + least, high + most
