"""Hierarchical integer tuples: an int, or a tuple of such things.

Shapes, strides, coordinates and profiles are all of this form. Nothing here knows what a layout is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index as _as_index
from typing import Any

from .errors import LayoutError

IntTuple = Any
"""An int or a nested tuple of ints; the type system cannot say this without costing every caller a cast."""


def to_int(value: object, what: str) -> int:
    """The plain int that `value` stands for; numpy integers are accepted, bools and floats are not.

    >>> to_int(7, "an extent")
    7
    """
    if type(value) is int:
        return value
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        raise LayoutError(f"{what} must be an int, not the bool {value!r}")
    try:
        return _as_index(value)  # type: ignore[arg-type]
    except TypeError:
        raise LayoutError(f"{what} must be an int, not {value!r} of type {type(value).__name__}") from None


def flatten_tuple(t: IntTuple) -> tuple[Any, ...]:
    """The leaves of `t` from left to right.

    >>> flatten_tuple((1, ((2, 3), 4)))
    (1, 2, 3, 4)
    >>> flatten_tuple(5)
    (5,)
    """
    if type(t) is not tuple:
        return (t,)
    leaves: list[Any] = []
    nested = False
    for element in t:
        if type(element) is tuple:
            nested = True
            leaves += flatten_tuple(element)
        else:
            leaves.append(element)
    return tuple(leaves) if nested else t


def unflatten_tuple(leaves: Iterable[Any], profile: IntTuple) -> IntTuple:
    """The tuple of the form of `profile` whose leaves are `leaves`.

    >>> unflatten_tuple([1, 2, 3], (0, (0, 0)))
    (1, (2, 3))
    """
    iterator = iter(leaves)

    def take(p: IntTuple) -> IntTuple:
        if type(p) is tuple:
            return tuple([take(q) for q in p])
        try:
            return next(iterator)
        except StopIteration:
            raise LayoutError(f"too few leaves for the profile {profile}") from None

    result = take(profile)
    for _ in iterator:
        raise LayoutError(f"too many leaves for the profile {profile}")
    return result


def product(t: IntTuple) -> Any:
    """The product of the leaves: the number of coordinates of a shape.

    >>> product((2, (3, 4)))
    24
    >>> product(())
    1
    """
    if type(t) is not tuple:
        return t
    result = 1
    for element in t:
        result *= product(element) if type(element) is tuple else element
    return result


def compact_strides(shape: IntTuple, start: Any = 1) -> IntTuple:
    """Column-major strides of `shape`: each mode's stride is `start` times the product of all extents before it.

    >>> compact_strides((4, (2, 3)))
    (1, (4, 8))
    """
    if type(shape) is not tuple:
        return start
    strides = []
    for element in shape:
        if type(element) is tuple:
            strides.append(compact_strides(element, start))
            start *= product(element)
        else:
            strides.append(start)
            start *= element
    return tuple(strides)


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether `a` and `b` have the same nesting. Layouts stand for their shapes.

    >>> congruent((1, (2, 3)), (7, (8, 9)))
    True
    >>> congruent((1, 2), (1, (2, 3)))
    False
    """
    a, b = _shape_of(a), _shape_of(b)
    if type(a) is tuple:
        return type(b) is tuple and len(a) == len(b) and all(map(congruent, a, b))
    return type(b) is not tuple


def weakly_congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether `b` has the nesting of `a` or refines it: every leaf of `a` may be a leaf or a tuple in `b`.

    >>> weakly_congruent((1, 2), (1, (2, 3)))
    True
    >>> weakly_congruent((1, (2, 3)), (1, 2))
    False
    """
    a, b = _shape_of(a), _shape_of(b)
    if type(a) is tuple:
        return type(b) is tuple and len(a) == len(b) and all(map(weakly_congruent, a, b))
    return True


def compatible(a: IntTuple, b: IntTuple) -> bool:
    """Whether `b` refines `a`: they have equal sizes, and every coordinate of `a` is a coordinate of `b`.

    >>> compatible(24, (4, 6)), compatible((4, 6), ((2, 2), 6)), compatible((4, 6), 24)
    (True, True, False)
    """
    a, b = _shape_of(a), _shape_of(b)
    if type(a) is tuple:
        return type(b) is tuple and len(a) == len(b) and all(map(compatible, a, b))
    if any(isinstance(leaf, (str, bytes)) or leaf is None for leaf in flatten_tuple(b)):
        raise LayoutError(f"{b!r} is no shape: a shape is an int or a nested tuple of ints")
    return bool(a == product(b))


def _shape_of(t: Any) -> IntTuple:
    return t if type(t) is tuple or type(t) is int else getattr(t, "shape", t)


def show(t: Any) -> str:
    """CuTe's spelling of a hierarchical tuple: no blanks, and no trailing comma in a tuple of one.

    >>> show((4, (2,), 1))
    '(4,(2),1)'
    """
    if type(t) is tuple:
        return "(" + ",".join([show(e) for e in t]) + ")"
    return str(t)


def unwrap(modes: Sequence[Any]) -> IntTuple:
    """The tuple of `modes`, or the mode itself when there is only one.

    >>> unwrap([3]), unwrap([3, 4])
    (3, (3, 4))
    """
    return modes[0] if len(modes) == 1 else tuple(modes)
