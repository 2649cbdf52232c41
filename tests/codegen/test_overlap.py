"""Memory in common, against numpy's own answer and against every element's bytes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.codegen.overlap import Place, overlaps_itself, same_elements, share_memory, shared_with

SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=3)


def bytes_of(place: Place) -> list[int]:
    """The bytes of every element, those of several as often."""
    address, shape, strides, item = place
    starts = (
        address + sum(index * stride for index, stride in zip(indices, strides, strict=True))
        for indices in itertools.product(*map(range, shape))
    )
    return [start + byte for start in starts for byte in range(item)]


@st.composite
def places(draw: st.DrawFn) -> Place:
    shape = tuple(draw(SHAPES))
    item = draw(st.sampled_from([1, 2, 4]))
    strides = tuple(item * draw(st.integers(0, 12)) for _ in shape)
    return draw(st.integers(0, 80)), shape, strides, item


@given(places(), places())
def test_arrays_share_memory_where_bytes_are_common(one: Place, other: Place) -> None:
    common = bool(set(bytes_of(one)) & set(bytes_of(other)))
    assert share_memory(one, other) is common
    assert share_memory(other, one) is common
    assert shared_with(one, [("far", (10**6, (1,), (1,), 1)), ("other", other)]) == ("other" if common else "")


@given(places())
def test_an_array_overlaps_itself_where_a_byte_is_two_elements(place: Place) -> None:
    found = bytes_of(place)
    assert overlaps_itself(place) is (len(found) != len(set(found)))


def test_empty_arrays_share_nothing() -> None:
    empty = (64, (0, 8), (16, 2), 2)
    assert not share_memory(empty, (64, (8,), (2,), 2))
    assert not overlaps_itself(empty)


def test_views_with_gaps_are_told_apart_by_elements() -> None:
    buffer = np.zeros((3, 200, 400), np.int16)

    def place(view: np.ndarray[tuple[int, ...], np.dtype[np.int16]]) -> Place:
        return view.ctypes.data, view.shape, view.strides, 2

    first = place(buffer[:, :190, :384])
    assert share_memory(first, first)
    assert same_elements(first, place(buffer[:, :190, :384]))
    assert share_memory(first, place(buffer[:, 189:, 383:]))
    assert not share_memory(first, place(buffer[:, 190:, :]))
    assert not share_memory(first, place(buffer[:, :, 384:]))
    assert not share_memory(place(buffer[:, ::2]), place(buffer[:, 1::2]))


def test_the_same_elements_are_of_the_same_size_and_order() -> None:
    place = (64, (4, 8), (32, 2), 2)
    assert same_elements(place, (64, (1, 4, 8), (999, 32, 2), 2))
    for other in (
        (66, (4, 8), (32, 2), 2),
        (64, (4, 8), (32, 4), 4),
        (64, (4, 4), (32, 2), 2),
        (64, (8, 4), (2, 32), 2),
    ):
        assert not same_elements(place, other)


@pytest.mark.parametrize("pitch", [8206, 8211, 16411])
def test_an_answer_takes_no_time_worth_naming(pitch: int) -> None:
    import time

    start = time.perf_counter()
    share_memory(
        (0, (64, 8192, 4096), (8192 * 8200 * 2, 8200 * 2, 2), 2),
        (8194, (97, 4099, 11), (pitch * 4099 * 2, pitch * 2, 6), 2),
    )
    overlaps_itself((0, (97, 4099, 4096), (pitch * 14, pitch * 2, 6), 2))
    assert time.perf_counter() - start < 2
