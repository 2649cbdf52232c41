"""Whether arrays have memory in common: with one another, or an array's elements with each other.

Knows addresses, shapes, strides and sizes of elements; what is written when is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .tensors import Tensor

Place = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""An address, a shape, strides in bytes, and the bytes of an element."""

_MOST_WORK = 100_000
"""Steps of numpy's search, some milliseconds; views of one buffer take a few."""

_SOMEWHERE = 2**16
"""Added to addresses: numpy takes address 0 for none."""


def place_of(tensor: Tensor) -> Place:
    """Where a tensor lies."""
    item = tensor.itemsize
    return tensor.address, tensor.shape, tuple(stride * item for stride in tensor.strides), item


def place_of_host(array: np.ndarray[Any, Any]) -> Place:
    """Where a numpy array lies.

    >>> place_of_host(np.zeros((4, 8), np.int16))[1:]
    ((4, 8), (16, 2), 2)
    """
    return int(array.__array_interface__["data"][0]), array.shape, array.strides, array.itemsize


def share_memory(one: Place, other: Place) -> bool:
    """Whether two arrays are known to have bytes in common: exactly, but for strides so odd that finding out takes long, of
    which it says False.

    >>> share_memory((0, (4, 8), (32, 2), 2), (16, (4, 8), (32, 2), 2)), share_memory((0, (4, 8), (32, 2), 2), (14, (4, 8), (32, 2), 2))
    (False, True)
    """
    if 0 in one[1] or 0 in other[1]:
        return False
    (start, end), (other_start, other_end) = _span(one), _span(other)
    if end <= other_start or other_end <= start:
        return False
    try:
        # It looks at where arrays lie, and never at what is there, which may be a device's memory.
        return bool(np.shares_memory(_as_numpy(one), _as_numpy(other), max_work=_MOST_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False


def overlaps_itself(place: Place) -> bool:
    """Whether two elements of an array are known to have bytes in common, as those of a broadcast one have.

    >>> overlaps_itself((0, (40, 24), (48, 2), 2)), overlaps_itself((0, (40, 24), (32, 2), 2)), overlaps_itself((0, (40, 24), (0, 2), 2))
    (False, True, True)
    """
    address, shape, strides, item = place
    if 0 in shape:
        return False
    lies = sorted((abs(stride), size) for stride, size in zip(strides, shape, strict=True) if size > 1)
    width, nested = item, True
    for stride, size in lies:
        nested = nested and stride >= width
        width += stride * (size - 1)
    if nested:
        return False
    # All pairs of elements that are so far apart along the first dimension lie to each other as one with its first index 0.
    rest = tuple(size for _, size in lies), tuple(stride for stride, _ in lies)
    for axis in range(len(lies)):
        sizes, steps = rest[0][axis:], rest[1][axis:]
        first = (address, sizes[1:], steps[1:], item)
        others = (address + steps[0], (sizes[0] - 1, *sizes[1:]), steps, item)
        if share_memory(first, others):
            return True
    return False


def same_elements(one: Place, other: Place) -> bool:
    """Whether two arrays are the same elements in the same order.

    >>> same_elements((64, (4, 8), (32, 2), 2), (64, (1, 4, 8), (0, 32, 2), 2))
    True
    """
    return _essence(one) == _essence(other)


def shared_with(place: Place, others: Iterable[tuple[str, Place]]) -> str:
    """The name of the first of others that has memory in common with an array, "" if none has."""
    return next((name for name, other in others if share_memory(place, other)), "")


def _essence(place: Place) -> tuple[Any, ...]:
    address, shape, strides, item = place
    return address, item, *((size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1)


def _span(place: Place) -> tuple[int, int]:
    """The first byte, and the one behind the last."""
    address, shape, strides, item = place
    reach = [stride * (size - 1) for stride, size in zip(strides, shape, strict=True)]
    return address + sum(min(one, 0) for one in reach), address + sum(max(one, 0) for one in reach) + item


def _as_numpy(place: Place) -> np.ndarray[Any, Any]:
    address, shape, strides, item = place
    lies = {"data": (address + _SOMEWHERE, True), "shape": shape, "strides": strides, "typestr": f"|V{item}"}
    return np.asarray(SimpleNamespace(__array_interface__={**lies, "version": 3}))
