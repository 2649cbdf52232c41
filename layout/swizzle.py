"""Swizzles, and layouts seen through one.

A swizzle permutes offsets by XORing some of their bits into others, which is how shared memory is laid out so that rows and
columns of a tile both spread over all banks. It acts in the units of the layout it follows: a swizzle of bytes is another
swizzle in elements, which `recast` computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core import Layout, evaluate
from .errors import LayoutError
from .tuples import IntTuple, to_int

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_BIT = 4096


class Swizzle:
    """Swizzle<B, M, S>: XORs the B bits that start at bit M + S into the B bits that start at bit M.

    With negative S the bits at M go into the bits at M - S. Needs B >= 0, M >= 0 and abs(S) >= B, so that the two groups do
    not overlap and the map is a bijection; B = 0 is the identity. Raises LayoutError otherwise. Source: CuTe, swizzle.hpp.

    >>> Swizzle(3, 4, 3)(0b1_010_000_0000)
    1312
    >>> Swizzle(3, 4, 3)(1312) == 0b1_010_000_0000
    True
    >>> Swizzle(1, 0, -2)(1)
    5
    """

    __slots__ = ("base", "bits", "shift")
    bits: int
    base: int
    shift: int

    def __init__(self, bits: int, base: int, shift: int) -> None:
        bits, base, shift = (
            to_int(bits, "the number of swizzled bits"),
            to_int(base, "the lowest swizzled bit"),
            to_int(shift, "the swizzle's shift"),
        )
        if bits < 0 or base < 0:
            raise LayoutError(f"Swizzle({bits}, {base}, {shift}): the number of bits and the lowest bit are at least 0")
        if bits and abs(shift) < bits:
            raise LayoutError(
                f"Swizzle({bits}, {base}, {shift}): the shift is smaller than the number of bits, so the bits would overlap; "
                f"allowed are shifts of at least {bits} or at most -{bits}"
            )
        if max(bits, base, abs(shift)) > _MAX_BIT:
            raise LayoutError(f"Swizzle({bits}, {base}, {shift}): no bit beyond {_MAX_BIT} can be named")
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "shift", shift)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a swizzle is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a swizzle is immutable")

    @property
    def source_mask(self) -> int:
        """The bits that are read.

        >>> bin(Swizzle(2, 0, 3).source_mask)
        '0b11000'
        """
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def target_mask(self) -> int:
        """The bits that are changed.

        >>> bin(Swizzle(2, 0, 3).target_mask)
        '0b11'
        """
        return ((1 << self.bits) - 1) << (self.base + max(0, -self.shift))

    def __call__(self, offset: Any) -> Any:
        """The swizzled offset; an integer array is swizzled element by element."""
        if type(offset) is not int and not (hasattr(offset, "__array__") and getattr(offset, "ndim", None)):
            offset = to_int(offset, "an offset")
        if self.bits == 0:
            return offset
        read = offset & self.source_mask
        return offset ^ (read >> self.shift if self.shift > 0 else read << -self.shift)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Swizzle:
            return NotImplemented
        if self.bits == 0 == other.bits:
            return True
        return (self.bits, self.base, self.shift) == (other.bits, other.base, other.shift)

    def __hash__(self) -> int:
        return hash((self.bits, self.base, self.shift)) if self.bits else 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (Swizzle, (self.bits, self.base, self.shift))

    def __repr__(self) -> str:
        return f"Swizzle({self.bits}, {self.base}, {self.shift})"

    def __str__(self) -> str:
        return f"S<{self.bits},{self.base},{self.shift}>"

    def inverse(self) -> Swizzle:
        """The swizzle itself: the bits it reads are not the bits it changes, so doing it twice does nothing.

        >>> Swizzle(3, 4, 3).inverse()
        Swizzle(3, 4, 3)
        """
        return self

    def rescale(self, finer: int) -> Swizzle:
        """The same permutation in units 2**finer times smaller (or larger, for negative `finer`).

        Going to larger units keeps what happens to whole units: bits below the unit are given up.

        >>> Swizzle(3, 4, 3).rescale(-1), Swizzle(3, 3, 3).rescale(1), Swizzle(3, 0, 3).rescale(-1)
        (Swizzle(3, 3, 3), Swizzle(3, 4, 3), Swizzle(2, 0, 3))
        """
        base = self.base + finer
        if base >= 0:
            return Swizzle(self.bits, base, self.shift)
        return Swizzle(max(0, self.bits + base), 0, self.shift)


class SwizzledLayout:
    """A layout whose offsets, shifted by `offset`, are swizzled: ``swizzle(offset + layout(c))``.

    Built by ``compose(Swizzle(...), layout)``; called, indexed and sliced as a layout is.

    >>> l = SwizzledLayout(Swizzle(3, 4, 3), 0, Layout((10, 2), (2, 1)))
    >>> l(3, 1), l.slice(None, 0), l.shape
    (7, SwizzledLayout(Swizzle(3, 4, 3), 0, Layout(10, 2)), (10, 2))
    """

    __slots__ = ("layout", "offset", "swizzle")
    swizzle: Swizzle
    offset: int
    layout: Layout

    def __init__(self, swizzle: Swizzle, offset: int, layout: Layout) -> None:
        if type(swizzle) is not Swizzle or type(layout) is not Layout:
            raise LayoutError(
                f"a swizzled layout is made of a Swizzle, an int and a Layout of numbers, not of {swizzle!r} and {layout!r}"
            )
        object.__setattr__(self, "swizzle", swizzle)
        object.__setattr__(self, "offset", to_int(offset, "the offset of a swizzled layout"))
        object.__setattr__(self, "layout", layout)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a swizzled layout is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a swizzled layout is immutable")

    @property
    def shape(self) -> IntTuple:
        """The shape of the layout inside.

        >>> SwizzledLayout(Swizzle(1, 0, 1), 0, Layout((2, 4))).shape
        (2, 4)
        """
        return self.layout.shape

    def with_layout(self, layout: Layout) -> SwizzledLayout:
        """The same swizzle and offset over another layout.

        >>> SwizzledLayout(Swizzle(1, 0, 1), 4, Layout(8)).with_layout(Layout(4))
        SwizzledLayout(Swizzle(1, 0, 1), 4, Layout(4, 1))
        """
        return SwizzledLayout(self.swizzle, self.offset, layout)

    def __call__(self, *coordinate: Any) -> Any:
        """The offset at an index, a coordinate, or every index of an integer array."""
        if len(coordinate) == 1 and getattr(coordinate[0], "ndim", None):
            return evaluate(self.layout, coordinate[0], self.offset, self.swizzle)
        offset = self.layout(*coordinate)
        return self.swizzle(offset + self.offset if self.offset else offset)

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, mode: Any) -> SwizzledLayout:
        return self.with_layout(self.layout[mode])

    def __iter__(self) -> Iterator[SwizzledLayout]:
        return iter([self[i] for i in range(len(self))])

    def slice(self, *coordinate: Any) -> SwizzledLayout:
        """The modes marked None, the others being fixed: their offset moves into `offset`, inside the swizzle.

        >>> SwizzledLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1))).slice(2, None)
        SwizzledLayout(Swizzle(3, 3, 3), 128, Layout(64, 1))
        """
        part, offset = self.layout.slice_and_offset(*coordinate)
        return SwizzledLayout(self.swizzle, self.offset + offset, part)

    def slice_and_offset(self, *coordinate: Any) -> tuple[SwizzledLayout, int]:
        """What `slice` returns, and 0: the offset stays inside the swizzle.

        >>> SwizzledLayout(Swizzle(1, 0, 1), 0, Layout((2, 2))).slice_and_offset(None, 1)
        (SwizzledLayout(Swizzle(1, 0, 1), 2, Layout(2, 1)), 0)
        """
        return self.slice(*coordinate), 0

    def cosize(self) -> int:
        """The largest offset minus the smallest, plus one, exactly.

        >>> SwizzledLayout(Swizzle(1, 0, 2), 0, Layout((2, 2), (1, 4))).cosize()
        6
        """
        from .swizzled import swizzled_span

        low, high = swizzled_span(self)
        return high - low + 1

    def __eq__(self, other: object) -> bool:
        if type(other) is not SwizzledLayout:
            return NotImplemented
        return (self.swizzle, self.offset, self.layout) == (other.swizzle, other.offset, other.layout)

    def __hash__(self) -> int:
        return hash((self.swizzle, self.offset, self.layout))

    def __reduce__(self) -> tuple[Any, ...]:
        return (SwizzledLayout, (self.swizzle, self.offset, self.layout))

    def __repr__(self) -> str:
        return f"SwizzledLayout({self.swizzle!r}, {self.offset}, {self.layout!r})"

    def __str__(self) -> str:
        middle = f" o {self.offset}" if self.offset else ""
        return f"{self.swizzle}{middle} o {self.layout}"
