"""Explanations carry the numbers of the case and the operation's own result; views show the function they are given."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_definitions import compact_layouts, layouts, value

import stridewright.layout as library
from stridewright.layout import (
    Layout,
    LayoutError,
    Swizzle,
    compose,
    dimension,
    explain,
    grid_text,
    hardware_text,
    logical_divide,
    make_tv_layout,
    size,
    tv_text,
)

UNARY = (
    "coalesce",
    "right_inverse",
    "left_inverse",
    "complement",
    "nullspace",
    "filter",
    "flatten",
    "size",
    "cosize",
    "rank",
    "depth",
)
BINARY = (
    "compose", "complement", "logical_divide", "zipped_divide", "tiled_divide", "flat_divide", "logical_product", "zipped_product",
    "tiled_product", "flat_product", "blocked_product", "raked_product", "max_common_layout", "max_common_vector",
)  # fmt: skip


def outcome(operation: Any, *arguments: Any) -> Any:
    try:
        return operation(*arguments)
    except LayoutError as error:
        return str(error)


@given(st.sampled_from(UNARY), layouts(modes=3))
def test_an_explanation_ends_with_the_operations_own_result(name: str, layout: Layout) -> None:
    operation = getattr(library, name)
    explanation = explain(operation, layout)
    want = outcome(operation, layout)
    assert (str(explanation.result) if isinstance(explanation.result, LayoutError) else explanation.result) == want
    text = str(explanation)
    assert text.startswith(f"{name}(")
    assert text.splitlines()[-1].startswith(("result: ", "raises: "))


@given(st.sampled_from(BINARY), layouts(modes=3), layouts(modes=2))
def test_operations_on_two_layouts_are_explained(name: str, a: Layout, b: Layout) -> None:
    operation = getattr(library, name)
    arguments: tuple[Any, Any] = (a, size(b)) if name == "complement" else (a, b)
    explanation = explain(name, *arguments)
    want = outcome(operation, *arguments)
    assert (str(explanation.result) if isinstance(explanation.result, LayoutError) else explanation.result) == want
    assert explanation.steps


@given(layouts(), st.integers(0, 300))
def test_evaluation_is_explained_digit_by_digit(layout: Layout, index: int) -> None:
    explanation = explain(layout, index)
    assert explanation.result == value(layout, index)
    assert explanation.steps[-1].endswith(f"= {value(layout, index)}")


def test_steps_name_the_numbers_that_decide() -> None:
    text = str(explain(compose, Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    assert "by -46 more at each multiple of 6" in text
    assert "3 + 0 + 2 = 5 stays under 6" in text
    text = str(explain("complement", Layout((2, (2, 2)), (16, (4, 1))), 64))
    assert "2:16 leaves a gap: 2 blocks of 8 go before it" in text
    text = str(explain(logical_divide, Layout((12, 32), (1, 12)), (4, None)))
    assert "None leaves the mode whole" in text
    text = str(explain(compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))), 3, 5))
    assert "0b11000101 ^ 0b11000 = 0b11011101" in text
    assert "bits 7..9 into bits 4..6" in str(explain(Swizzle(3, 4, 3), 128))
    assert "identity" in str(explain(Swizzle(0, 0, 0), 5))


def test_casts_swizzles_symbols_and_modes_are_explained() -> None:
    tile = compose(Swizzle(3, 4, 3), Layout((8, 128), (128, 1)))
    assert "its bits move down by 1" in str(explain("upcast", tile, 2))
    assert explain("downcast", Layout((8, 64), (64, 1)), 2).steps
    assert explain("compose", Swizzle(3, 4, 3), Layout(8)).steps
    assert explain("compose", Layout((8, 8)), (4, None)).steps
    assert explain("coalesce", Layout((2, (2, 2))), profile=(1, 1)).steps
    assert str(explain("right_inverse", Layout((16, dimension("N")), (1, 16)))).endswith("result: 16*N:1")
    assert (
        str(explain("tile_to_shape", Layout((8, 64), (64, 1)), (128, 64), order=(1, 0)))
        .splitlines()[-1]
        .endswith("(1,0))")
    )


def test_what_is_no_operation_is_refused() -> None:
    for wrong in ("no_such", print, 3, None, "Layout", "__getattr__"):
        with pytest.raises(LayoutError, match="explain takes"):
            explain(wrong, Layout(4))


def cells(text: str) -> list[list[str]]:
    return [line.split("|")[1].split() for line in text.splitlines()[2:]]


@given(compact_layouts(modes=3, extents=(1, 2, 3, 4)))
def test_a_grid_shows_the_offset_at_every_coordinate(layout: Layout) -> None:
    if len(layout) > 2:
        with pytest.raises(LayoutError, match="rank 1 or 2"):
            grid_text(layout)
        return
    shown = cells(grid_text(layout))
    for i, row in enumerate(shown):
        for j, cell in enumerate(row):
            assert int(cell) == (layout(i, j) if len(layout) == 2 else layout(j))


def test_a_swizzled_grid_and_one_that_is_too_large() -> None:
    tile = compose(Swizzle(1, 0, 1), Layout((2, 2), (2, 1)))
    assert cells(grid_text(tile)) == [["0", "1"], ["3", "2"]]
    assert cells(grid_text(tile, show=lambda x: f"<{x}>"))[1] == ["<3>", "<2>"]
    with pytest.raises(LayoutError, match="too large"):
        grid_text(Layout((1024, 1024)))


def test_a_thread_value_table_shows_every_owner() -> None:
    tile, tv = make_tv_layout(Layout((2, 4), (4, 1)), Layout((2, 2), (2, 1)))
    shown = cells(tv_text(tv, tile))
    for thread in range(8):
        for v in range(4):
            place = tv(thread, v)
            assert shown[place % tile[0]][place // tile[0]] == f"T{thread}V{v}"
    assert cells(tv_text(Layout((2, 1), (2, 0)), 4)) == [["T0V0", ".", "T1V0", "."]]
    assert cells(tv_text(Layout((2, 1), (0, 0)), 1)) == [["T0V0/T1V0"]]
    for wrong in ((Layout(4), 4), (Layout((4, 2)), 4), (tv, (128, 128)), (tv, (2, 2, 8))):
        with pytest.raises(LayoutError):
            tv_text(*wrong)


def test_the_hardware_view_puts_every_index_in_its_bank() -> None:
    layout = compose(Swizzle(2, 0, 3), Layout((4, 8), (8, 1)))
    shown = cells(hardware_text(layout, bits=32, banks=8))
    for i in range(32):
        offset = layout(i)
        assert shown[offset // 8][offset % 8] == str(i)
    halves = cells(hardware_text(Layout((2, 8), (8, 1)), bits=16, banks=4))
    assert halves == [["0-2", "4-6", "8-10", "12-14"], ["1-3", "5-7", "9-11", "13-15"]]
    assert cells(hardware_text(Layout(2, 3), bits=32, banks=4)) == [["0", ".", ".", "1"]]
    for wrong in ((Layout(4, -1), 32), (Layout(2**20), 32), (Layout(2, 2**30), 32), (Layout(4), 0)):
        with pytest.raises(LayoutError):
            hardware_text(wrong[0], bits=wrong[1])
