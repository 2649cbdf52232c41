"""Basis strides: strides whose offsets are coordinates instead of numbers.

A TMA tensor map is addressed by a coordinate, not by an offset, so the layout of a TMA tensor has strides such as ``2@0``:
two steps along coordinate 0. Sums of such strides are coordinates, kept sparse.
"""

from __future__ import annotations

from typing import Any

from .errors import LayoutError
from .tuples import IntTuple, to_int


class E:
    """The basis vector along one (possibly nested) coordinate, and integer combinations of such vectors.

    ``E(0)`` is the unit step along coordinate 0, ``E(1, 0)`` along coordinate 0 inside coordinate 1. Multiply by ints and
    add; a sum that vanishes is the int 0.

    >>> 2 * E(0), E(0) + 3 * E(1), E(1, 0)
    (2 * E(0), E(0) + 3 * E(1), E(1, 0))
    >>> str(2 * E(0)), str(E(0) + 3 * E(1)), str(E(1, 0))
    ('2@0', '1@0+3@1', '1@1.0')
    >>> E(0) - E(0)
    0
    """

    __slots__ = ("terms",)
    terms: tuple[tuple[tuple[int, ...], int], ...]

    def __init__(self, *path: int) -> None:
        if not path:
            raise LayoutError("E() needs the number of a coordinate, as in E(0)")
        clean = tuple([to_int(p, "a coordinate's number") for p in path])
        if min(clean) < 0:
            raise LayoutError(f"a coordinate's number is at least 0, not {min(clean)}")
        object.__setattr__(self, "terms", ((clean, 1),))

    @classmethod
    def _of(cls, coefficients: dict[tuple[int, ...], int]) -> Any:
        terms = tuple(sorted([(p, c) for p, c in coefficients.items() if c != 0]))
        if not terms:
            return 0
        result = object.__new__(cls)
        object.__setattr__(result, "terms", terms)
        return result

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a basis stride is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a basis stride is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.terms,))

    def __add__(self, other: Any) -> Any:
        if type(other) is not E:
            if type(other) is int and other == 0:
                return self
            return NotImplemented
        total = dict(self.terms)
        for path, coefficient in other.terms:
            total[path] = total.get(path, 0) + coefficient
        return E._of(total)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return E._of({path: -coefficient for path, coefficient in self.terms})

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, factor: Any) -> Any:
        if type(factor) is not int:
            if isinstance(factor, (E, bool, float)):
                return NotImplemented
            try:
                factor = to_int(factor, "a factor of a basis stride")
            except LayoutError:
                return NotImplemented
        return E._of({path: factor * coefficient for path, coefficient in self.terms})

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return type(other) is E and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(("E", self.terms))

    def coordinate(self) -> IntTuple:
        """The dense coordinate: missing entries are 0.

        >>> (E(0) + 3 * E(2)).coordinate()
        (1, 0, 3)
        >>> (E(0) + 3 * E(1, 1)).coordinate()
        (1, (0, 3))
        """

        def build(terms: list[tuple[tuple[int, ...], int]]) -> IntTuple:
            if len(terms) == 1 and terms[0][0] == ():
                return terms[0][1]
            if any(path == () for path, _ in terms):
                raise LayoutError(f"{self} uses a coordinate both as a number and as a tuple")
            count = 1 + max(path[0] for path, _ in terms)
            parts = [[(path[1:], c) for path, c in terms if path[0] == i] for i in range(count)]
            return tuple([build(part) if part else 0 for part in parts])

        return build(list(self.terms))

    def __repr__(self) -> str:
        shown = []
        for path, coefficient in self.terms:
            vector = "E(" + ", ".join(map(str, path)) + ")"
            shown.append(vector if coefficient == 1 else f"{coefficient} * {vector}")
        return " + ".join(shown)

    def __str__(self) -> str:
        return "+".join(f"{coefficient}@{'.'.join(map(str, path))}" for path, coefficient in self.terms)


def _rebuild(terms: tuple[tuple[tuple[int, ...], int], ...]) -> Any:
    return E._of(dict(terms))
