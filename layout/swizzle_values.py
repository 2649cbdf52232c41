"""Which layout behind a swizzle has given values: the last resort of composition with swizzles, for small domains.

The algebra in `swizzled` decides what is linear over F2, of any size. Where extents are no powers of two, or modes carry,
the values still are a layout behind one swizzle now and then; here every swizzle that can act on them is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product as cartesian
from typing import Any

from .core import Layout, make
from .errors import LayoutError
from .swizzle import Swizzle, SwizzledLayout
from .tuples import flatten_tuple, unflatten_tuple, unwrap

MOST_VALUES = 1 << 14
_MOST_BITS = 24


def swizzles(bits: int) -> Iterator[Swizzle]:
    """The identity and every swizzle of numbers of so many bits.

    >>> list(swizzles(2))
    [Swizzle(0, 0, 0), Swizzle(1, 0, 1), Swizzle(1, 0, -1)]
    """
    yield Swizzle(0, 0, 0)
    for count in range(1, bits // 2 + 1):
        for shift in range(count, bits - count + 1):
            for base in range(bits - count - shift + 1):
                yield Swizzle(count, base, shift)
                yield Swizzle(count, base, -shift)


def layout_of_values(values: list[int], shape: Any, what: str) -> Layout | SwizzledLayout:
    """The layout, or the layout behind one swizzle, with the given values, its shape refining `shape`.

    Raises LayoutError, which begins with `what`, where there is none.

    >>> layout_of_values([0, 1, 5, 4], (2, 2), "example")
    SwizzledLayout(Swizzle(1, 0, 2), 0, Layout((2, 2), (1, 4)))
    """
    extents = flatten_tuple(shape)
    bits = max([v.bit_length() for v in values])
    if bits > _MOST_BITS:
        raise LayoutError(f"{what}: not settled for offsets of {bits} bits, more than {_MOST_BITS}")
    wrong: tuple[int, int, int] | None = None
    for swizzle in swizzles(bits + (min(values) < 0)):
        offset = swizzle(values[0])
        modes, bend = _modes(lambda i, s=swizzle, o=offset: s(values[i]) - o, extents)  # type: ignore[misc]
        if modes is not None:
            layout = make(
                unflatten_tuple([unwrap([n for n, _ in part]) for part in modes], shape),
                unflatten_tuple([unwrap([d for _, d in part]) for part in modes], shape),
            )
            return layout if swizzle.bits == 0 == offset else SwizzledLayout(swizzle, offset, layout)
        wrong = wrong or bend
    assert wrong is not None
    index, found, expected = wrong
    raise LayoutError(
        f"{what}: no layout represents it, and none behind a swizzle of {bits} bits. Counterexample without a swizzle: "
        f"at index {index} the offset is {found}, while the steps before it add up to {expected}"
    )


def _modes(
    value: Callable[[int], int], extents: tuple[int, ...]
) -> tuple[list[list[tuple[int, int]]] | None, tuple[int, int, int] | None]:
    """The modes that each extent splits into, with their strides; or None, and (index, offset there, offset expected)."""
    parts: list[list[tuple[int, int]]] = []
    before = 1
    start = value(0)
    for extent in extents:
        modes: list[tuple[int, int]] = []
        done = 1
        while done < extent:
            step = value(before * done) - start
            count = 1
            while count * done < extent and value(before * done * count) - start == count * step:
                count += 1
            if extent % (done * count):
                index = before * done * count
                return None, (index, value(index), start + count * step)
            modes.append((count, step))
            done *= count
        parts.append(modes or [(1, 0)])
        before *= extent
    flat = [mode for part in parts for mode in part]
    sums = cartesian(*[range(0, n * d, d) if d else [0] * n for n, d in reversed(flat)])
    for index, steps in enumerate(sums):
        if value(index) - start != sum(steps):
            return None, (index, value(index), start + sum(steps))
    return parts, None
