"""The definitions, as slow and plain as can be, and random layouts to hold the library to them.

Nothing here uses the library's operations: a layout is only read, by `shape` and `stride`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product as cartesian
from typing import Any

from hypothesis import strategies as st

from stridewright.layout import Layout


def leaves(t: Any) -> list[Any]:
    return [leaf for element in t for leaf in leaves(element)] if isinstance(t, tuple) else [t]


def count(t: Any) -> int:
    result = 1
    for leaf in leaves(t):
        result *= leaf
    return result


def value(layout: Layout, index: int) -> int:
    """The offset at an index: colexicographic digits, the last one unbounded."""
    shape, stride = leaves(layout.shape), leaves(layout.stride)
    total = 0
    for s, d in list(zip(shape, stride, strict=True))[:-1]:
        total += index % s * d
        index //= s
    return total + index * stride[-1] if stride else 0


def values(layout: Layout) -> list[int]:
    return [value(layout, i) for i in range(count(layout.shape))]


def refines(coarse: Any, fine: Any) -> bool:
    """Whether every extent of `coarse` is kept, or split into extents of that product."""
    if isinstance(coarse, tuple):
        return isinstance(fine, tuple) and len(coarse) == len(fine) and all(map(refines, coarse, fine))
    return coarse == count(fine)


def factorizations(n: int) -> Iterator[tuple[int, ...]]:
    """All ways to write n as an ordered product of factors above 1."""
    if n == 1:
        yield ()
    for first in range(2, n + 1):
        if n % first == 0:
            for rest in factorizations(n // first):
                yield (first, *rest)


def is_layout(numbers: list[int]) -> bool:
    """Whether a list of numbers is the list of values of some layout: every form is tried."""
    for extents in factorizations(len(numbers)):
        strides, before = [], 1
        for n in extents:
            strides.append(numbers[before])
            before *= n
        if all(
            sum(digit * d for digit, d in zip(digits(i, extents), strides, strict=True)) == x
            for i, x in enumerate(numbers)
        ):
            return True
    return len(numbers) == 1 and numbers[0] == 0


def digits(index: int, extents: tuple[int, ...]) -> list[int]:
    result = []
    for n in extents:
        index, digit = divmod(index, n)
        result.append(digit)
    return result


def composition_exists(a: Layout, b: Layout) -> bool:
    """Whether any layout with a shape refining b's is a after b: each mode apart, and all together additive."""
    shape, stride = leaves(b.shape), leaves(b.stride)
    apart = [[value(a, d * c) for c in range(s)] for s, d in zip(shape, stride, strict=True)]
    if not all(is_layout(part) for part in apart):
        return False
    return all(
        value(a, sum(c * d for c, d in zip(point, stride, strict=True)))
        == sum(part[c] for part, c in zip(apart, point, strict=True))
        for point in cartesian(*[range(s) for s in shape])
    )


def largest_right_inverse(layout: Layout) -> int:
    """The size of the largest R with layout(R(i)) == i, by trying all of them."""
    offsets = values(layout)
    best = 1

    def extend(known: list[int]) -> None:
        nonlocal best
        n = len(known)
        best = max(best, n)
        for step in [x for x, offset in enumerate(offsets) if offset == n]:
            longer = list(known)
            for c in range(1, len(offsets)):
                block = [v + c * step for v in known]
                if any(v >= len(offsets) or offsets[v] != c * n + i for i, v in enumerate(block)):
                    break
                longer += block
                extend(longer)

    extend([0])
    return best


def chains(before: int, last: int) -> Iterator[tuple[int, ...]]:
    """All sequences of extents above 1 whose running product stays at most `last`."""
    yield ()
    for n in range(2, last // before + 1):
        for rest in chains(before * n, last):
            yield (n, *rest)


def left_inverse_exists(layout: Layout, strides: range = range(-6, 7)) -> bool:
    """Whether some layout of at most 3 modes with small strides takes the offsets back to their indices."""
    offsets = values(layout)
    for extents in chains(1, max(offsets) + 1):
        if len(extents) > 2:
            continue
        rows = []
        for x in offsets:
            row = digits(x, extents)
            before = count(extents)
            rows.append([*row, x // before])
        for candidate in cartesian(strides, repeat=len(extents) + 1):
            if all(sum(a * b for a, b in zip(row, candidate, strict=True)) == i for i, row in enumerate(rows)):
                return True
    return False


EXTENTS = (1, 2, 2, 3, 4, 4, 5, 6, 8)
STRIDES = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
NEGATIVE = (-1, -2, -3, -4)


def random_layout(rng: random.Random, negative: bool = False, modes: int = 3, gaps: bool = True) -> Layout:
    """A small layout: arbitrary strides, or compact ones in any order, sometimes with gaps."""
    k = rng.randint(1, modes)
    shape = [rng.choice(EXTENTS) for _ in range(k)]
    if rng.random() < 0.4:
        stride, step = [0] * k, 1
        for i in rng.sample(range(k), k):
            if gaps:
                step *= rng.choice((1, 1, 1, 2))
            stride[i] = step
            step *= shape[i]
    else:
        stride = [rng.choice(STRIDES + (NEGATIVE if negative else ())) for _ in range(k)]
    if k == 3 and rng.random() < 0.3:
        return Layout((shape[0], tuple(shape[1:])), (stride[0], tuple(stride[1:])))
    if k == 1 and rng.random() < 0.5:
        return Layout(shape[0], stride[0])
    return Layout(tuple(shape), tuple(stride))


def _nest(shape: list[int], stride: list[int], cut: int) -> Layout:
    if len(shape) == 1:
        return Layout(shape[0], stride[0])
    if 0 < cut < len(shape):
        return Layout((tuple(shape[:cut]), *shape[cut:]), (tuple(stride[:cut]), *stride[cut:]))
    return Layout(tuple(shape), tuple(stride))


@st.composite
def layouts(
    draw: Any, modes: int = 4, extents: tuple[int, ...] = EXTENTS, strides: tuple[int, ...] = STRIDES + NEGATIVE
) -> Layout:
    """Layouts of up to `modes` leaves, flat or nested, with any strides."""
    k = draw(st.integers(1, modes))
    shape = [draw(st.sampled_from(extents)) for _ in range(k)]
    stride = [draw(st.sampled_from(strides)) for _ in range(k)]
    return _nest(shape, stride, draw(st.integers(0, k)))


@st.composite
def compact_layouts(draw: Any, modes: int = 4, extents: tuple[int, ...] = EXTENTS) -> Layout:
    """Bijective layouts: compact strides in any order of the modes."""
    k = draw(st.integers(1, modes))
    shape = [draw(st.sampled_from(extents)) for _ in range(k)]
    stride, step = [0] * k, 1
    for i in draw(st.permutations(range(k))):
        stride[i] = step
        step *= shape[i]
    return _nest(shape, stride, draw(st.integers(0, k)))
