"""Tile orders: every tile once, layouts and tables agree, and what each does to the panels of a window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright.kernels.orders import ORDERS, order_layout, order_table, packed_table


@given(
    order=st.sampled_from(ORDERS),
    rows=st.integers(min_value=1, max_value=40),
    columns=st.integers(min_value=1, max_value=40),
    group=st.integers(min_value=1, max_value=12),
)
@settings(max_examples=200, deadline=None)
def test_every_tile_is_taken_once(order: str, rows: int, columns: int, group: int) -> None:
    table = order_table(order, rows, columns, group)
    assert sorted(map(tuple, table.tolist())) == [(row, column) for row in range(rows) for column in range(columns)]
    packed = packed_table(order, rows, columns, group)
    assert (packed & 0xFFFF).tolist() == table[:, 0].tolist()
    assert (packed >> 16).tolist() == table[:, 1].tolist()


@pytest.mark.parametrize("side", [1, 2, 4, 8, 16, 32])
def test_hilberts_curve_never_jumps_in_a_square(side: int) -> None:
    steps = np.abs(np.diff(order_table("hilbert", side, side), axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_hilberts_squares_join_along_the_longer_side() -> None:
    for rows, columns in ((4, 16), (16, 4)):
        steps = np.abs(np.diff(order_table("hilbert", rows, columns), axis=0)).sum(axis=1)
        assert (steps == 1).all()


def test_grouped_walks_column_by_column_and_serpentine_turns_round() -> None:
    grouped = order_table("grouped", 5, 3, group=2).tolist()
    assert grouped[:6] == [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]]
    assert grouped[-3:] == [[4, 0], [4, 1], [4, 2]]
    serpentine = order_table("serpentine", 5, 3, group=2).tolist()
    assert serpentine[6:12] == [[2, 2], [3, 2], [2, 1], [3, 1], [2, 0], [3, 0]]
    assert serpentine[-3:] == [[4, 0], [4, 1], [4, 2]]


def test_what_is_no_layout_says_so() -> None:
    assert order_layout("serpentine", 8, 8) is None
    assert order_layout("hilbert", 8, 8) is None
    assert order_layout("grouped", 9, 8, group=8) is None


def test_unknown_orders_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="must be one of grouped"):
        order_table("spiral", 2, 2)
    with pytest.raises(ValueError, match="at least 1"):
        order_table("row", 0, 2)
    with pytest.raises(ValueError, match="16 bits"):
        packed_table("hilbert", 1, 70000)
