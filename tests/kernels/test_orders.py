"""Tile orders: every tile once, layouts and tables agree, and what each does to the panels of a window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright.kernels.orders import GPC_SMS, ORDERS, order_layout, order_table, packed_table, patch_of


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


def walked(rows: int, columns: int, group: int, patch: tuple[int, int]) -> list[list[int]]:
    """The nested order by its definition: bands, in them patches column by column, in them tiles column by column."""
    found = []
    for band in range(0, rows, group):
        below = min(band + group, rows)
        for left in range(0, columns, patch[1]):
            right = min(left + patch[1], columns)
            for top in range(band, below, patch[0]):
                bottom = min(top + patch[0], below)
                found += [[row, column] for column in range(left, right) for row in range(top, bottom)]
    return found


sizes = st.integers(min_value=1, max_value=26)
patches = st.tuples(st.integers(min_value=1, max_value=9), st.integers(min_value=1, max_value=9))


@given(rows=sizes, columns=sizes, group=st.integers(min_value=1, max_value=12), patch=patches)
@settings(max_examples=200, deadline=None)
def test_nested_walks_bands_in_patches(rows: int, columns: int, group: int, patch: tuple[int, int]) -> None:
    table = order_table("nested", rows, columns, group, patch).tolist()
    assert table == walked(rows, columns, group, patch)
    assert sorted(table) == [[row, column] for row in range(rows) for column in range(columns)]
    packed = packed_table("nested", rows, columns, group, patch)
    assert [[entry & 0xFFFF, entry >> 16] for entry in packed.tolist()] == table
    # Of every band whatever is whole comes in patches, one after the other.
    high, wide = min(patch[0], group, rows), min(patch[1], columns)
    first = table[: high * wide]
    assert {tuple(tile) for tile in first} == {(row, column) for row in range(high) for column in range(wide)}


@given(
    bands=st.integers(min_value=1, max_value=3),
    down=st.integers(min_value=1, max_value=3),
    across=st.integers(min_value=1, max_value=4),
    patch=patches,
)
@settings(max_examples=100, deadline=None)
def test_nested_is_its_layout_where_the_sizes_divide(
    bands: int, down: int, across: int, patch: tuple[int, int]
) -> None:
    group, columns = down * patch[0], across * patch[1]
    rows = bands * group
    layout = order_layout("nested", rows, columns, group, patch)
    assert layout is not None
    places = [layout(place) for place in range(rows * columns)]
    assert [[place % rows, place // rows] for place in places] == walked(rows, columns, group, patch)


@pytest.mark.parametrize(("rows", "columns", "group"), [(15, 8, 8), (16, 7, 8), (12, 8, 6)])
def test_nested_is_no_layout_where_a_patch_is_smaller(rows: int, columns: int, group: int) -> None:
    assert order_layout("nested", rows, columns, group, (4, 4)) is None


@pytest.mark.parametrize("cluster", [(m, n) for m in (1, 2, 4) for n in (1, 2, 4) if m * n <= 8], ids=str)
def test_a_patch_is_what_a_gpc_computes(cluster: tuple[int, int]) -> None:
    """As many clusters as its SMs hold, along the operand that the CTAs of a cluster do not share."""
    down, across = patch_of(*cluster)
    assert down * across == GPC_SMS // (cluster[0] * cluster[1])
    if cluster[0] == 1 < cluster[1]:
        assert across == 1, "A is multicast: B's columns are shared"
    elif cluster[1] == 1 < cluster[0]:
        assert down == 1, "B is multicast: A's rows are shared"
    else:
        assert max(down, across) <= 2 * min(down, across)


def test_a_patch_has_a_tile() -> None:
    with pytest.raises(ValueError, match=r"patch=\(0, 4\): each must be at least 1"):
        order_table("nested", 4, 4, 8, (0, 4))
