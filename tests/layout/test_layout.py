"""What a Layout is: built, compared, evaluated, sliced, written and read."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_definitions import count, layouts, value, values

from stridewright.layout import (
    E,
    Layout,
    LayoutError,
    compose,
    cosize,
    crd2crd,
    crd2idx,
    depth,
    flatten,
    idx2crd,
    rank,
    size,
)


@given(layouts())
def test_a_call_is_the_inner_product_of_the_digits_of_the_index_with_the_strides(layout: Layout) -> None:
    n = size(layout)
    assert [layout(i) for i in range(n)] == values(layout)
    assert layout(3 * n + 1) == value(layout, 3 * n + 1)
    assert layout(-1) == value(layout, -1)


@given(layouts(), st.integers(0, 500))
def test_an_index_and_its_coordinate_have_the_same_offset(layout: Layout, index: int) -> None:
    coordinate = idx2crd(index, layout.shape)
    assert layout(coordinate) == layout(index)
    assert crd2idx(coordinate, layout.shape) == index
    assert crd2idx(coordinate, layout.shape, layout.stride) == layout(index)


@given(layouts(), st.lists(st.integers(-100, 1000), max_size=20))
def test_an_array_of_indices_is_evaluated_element_by_element(layout: Layout, indices: list[int]) -> None:
    array = np.array(indices, np.int64).reshape(-1, 1)
    got = layout(array)
    assert got.shape == array.shape
    assert got.dtype == np.int64
    assert got.ravel().tolist() == [value(layout, i) for i in indices]


def test_arrays_larger_than_one_piece_and_of_any_integer_type_are_evaluated() -> None:
    layout = Layout((64, 3, 500), (3, 1, 192))
    want = values(layout)
    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        assert layout(np.arange(size(layout), dtype=dtype)).tolist() == want
    assert layout(np.arange(size(layout))[::-1]).tolist() == want[::-1]


def test_arrays_whose_offsets_pass_64_bits_are_refused_and_not_wrapped() -> None:
    with pytest.raises(LayoutError, match="2\\*\\*63"):
        Layout(4, 2**62)(np.arange(4))
    assert Layout(4, 2**62)(3) == 3 * 2**62
    with pytest.raises(LayoutError):
        Layout(4)(np.array([0.5]))
    with pytest.raises(LayoutError):
        Layout(4)(np.array([2**63], np.uint64))


@given(layouts())
def test_repr_evaluates_to_an_equal_layout_and_str_parses_to_it(layout: Layout) -> None:
    assert eval(repr(layout)) == layout
    assert Layout.parse(str(layout)) == layout
    copy = pickle.loads(pickle.dumps(layout))
    assert copy == layout
    assert hash(copy) == hash(layout)


def test_str_is_cute_style() -> None:
    assert str(Layout((4, 8), (8, 1))) == "(4,8):(8,1)"
    assert str(Layout(((2, 4),), ((1, 2),))) == "((2,4)):((1,2))"
    assert str(Layout(4, 2 * E(0))) == "4:2@0"
    assert Layout.parse("4:2@0") == Layout(4, 2 * E(0))
    assert Layout.parse(" ( 4 , 8 ) : ( 8 , 1 ) ") == Layout((4, 8), (8, 1))
    assert Layout.parse("(4,8)") == Layout((4, 8))
    assert Layout.parse("(4)") == Layout((4,))
    assert Layout.parse("():()") == Layout((), ())


@given(st.one_of(st.text(), st.text(alphabet="0123456789(),:@-+. "), st.binary(), st.none(), st.integers()))
def test_parse_raises_nothing_but_layout_error(text: Any) -> None:
    try:
        layout = Layout.parse(text)
    except LayoutError:
        return
    assert Layout.parse(str(layout)) == layout


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "4:",
        ":4",
        "4:1:1",
        "(4,8:(8,1)",
        "4)",
        "(4,,8)",
        "(,4)",
        "4 8",
        "0:1",
        "-4:1",
        "(4,8):8",
        "4:(1)",
        "x",
        "9" * 5000,
        "(" * 5000 + ")" * 5000,
        "4:1@",
        "4:@1",
        "٤:1",
        "4.0:1",
        "1e3:1",
        "True:1",
    ],
)
def test_text_that_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(LayoutError):
        Layout.parse(text)


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        (0, None), (-1, None), (4.0, None), (True, None), ("4", None), (None, None), ((4, 0), None), ((4, 2.5), None),
        (4, 1.0), (4, True), ((4, 8), (8,)), ((4, 8), 1), (4, (1,)), ((4, (2, 3)), (1, 4)), ((4, 8), (1, None)), (4, "1"),
        (np.float64(4), None), (np.bool_(True), None), ({4}, None), (Layout(4), None), ((4, (2, 3)), ((1, 2), 4)),
    ],
)  # fmt: skip
def test_what_is_no_layout_is_refused(shape: Any, stride: Any) -> None:
    with pytest.raises(LayoutError):
        Layout(shape, stride)


def test_nesting_without_end_is_refused() -> None:
    shape: Any = 4
    for _ in range(100_000):
        shape = (shape,)
    for arguments in ((shape,), (shape, shape)):
        with pytest.raises(LayoutError, match="nested too deeply"):
            Layout(*arguments)


def test_numbers_and_basis_strides_do_not_mix() -> None:
    with pytest.raises(LayoutError, match="neither"):
        compose(Layout((4, 8), (E(0), 3)), Layout(8))


def test_numpy_integers_lists_and_huge_sizes_are_accepted() -> None:
    layout = Layout((np.int32(4), np.uint8(8)), [np.int64(8), 1])
    assert layout == Layout((4, 8), (8, 1))
    assert all(type(leaf) is int for leaf in (*layout.shape, *layout.stride))
    assert layout(np.int64(5)) == layout(5)
    assert layout(np.int32(1), np.int8(2)) == 10
    huge = Layout((2**70, 3), (1, 2**80))
    assert size(huge) == 3 * 2**70
    assert huge(2**70 + 5) == 2**80 + 5
    assert cosize(huge) == 2 * 2**80 + 2**70


def test_the_empty_layout_has_one_coordinate() -> None:
    empty = Layout((), ())
    assert (size(empty), rank(empty), cosize(empty), depth(empty)) == (1, 0, 1, 1)
    assert empty(0) == 0
    assert empty(()) == 0


def test_layouts_are_immutable_and_hash_by_value() -> None:
    layout = Layout((4, 8))
    for name in ("shape", "stride", "_flat", "other"):
        with pytest.raises(AttributeError):
            setattr(layout, name, 1)
    with pytest.raises(AttributeError):
        del layout.shape
    assert {Layout((4, 8), (1, 4)): 1}[layout] == 1
    assert layout != Layout((4, 8), (8, 1))
    assert layout != "(4,8):(1,4)"
    assert layout != Layout(32)


def test_default_strides_count_every_extent_before() -> None:
    assert Layout((4, 1, 3)).stride == (1, 4, 4)
    assert Layout(((2, 3), 4)).stride == ((1, 2), 6)
    assert Layout(5) == Layout(5, 1)


def test_modes_are_layouts() -> None:
    layout = Layout((4, (2, 3)), (1, (4, 8)))
    assert layout[0] == Layout(4, 1)
    assert layout[-1] == Layout((2, 3), (4, 8))
    assert layout[1, 1] == Layout(3, 8)
    assert layout[0:1] == Layout((4,), (1,))
    assert list(layout) == [layout[0], layout[1]]
    assert len(layout) == 2
    assert Layout(4)[0] == Layout(4)
    for wrong in (2, -3, "0", 1.0, True, (1, 2), None):
        with pytest.raises(LayoutError):
            layout[wrong]


@given(layouts(modes=3), st.data())
def test_a_slice_is_the_layout_with_some_coordinates_fixed(layout: Layout, data: st.DataObject) -> None:
    if not isinstance(layout.shape, tuple):
        return
    fixed = [data.draw(st.one_of(st.none(), st.integers(0, count(s) - 1))) for s in layout.shape]
    part, offset = layout.slice_and_offset(*fixed)
    assert layout.slice(*fixed) == part
    free = [i for i, c in enumerate(fixed) if c is None]
    for index in range(size(part)):
        coordinate = list(fixed)
        left = index
        for i in free:
            left, coordinate[i] = divmod(left, count(layout.shape[i]))
        assert part(index) + offset == layout(tuple(coordinate))


def test_slices_of_nested_modes_keep_what_is_left_of_them() -> None:
    layout = Layout((4, (2, 3), 5), (1, (4, 8), 24))
    assert layout.slice(None, 0, 2) == Layout(4, 1)
    assert layout.slice(1, (None, 2), 0) == Layout(2, 4)
    assert layout.slice(None, (None, None), 0) == Layout((4, (2, 3)), (1, (4, 8)))
    assert layout.slice_and_offset(1, (1, 2), 3) == (Layout((), ()), 1 + 4 + 16 + 72)
    assert layout.slice(None, None, None) == layout
    for wrong in ((None, 1), (None, (1, 2, 3), 1), (None, 1, 1, 1), ("x", None, None)):
        with pytest.raises(LayoutError):
            layout.slice(*wrong)


@pytest.mark.parametrize("coordinate", [(1, 2, 3), ("a", 1), (1.5, 0), ((1, 1), 0), (True, 0), (None, 1)])
def test_coordinates_that_do_not_fit_are_refused(coordinate: Any) -> None:
    with pytest.raises(LayoutError):
        Layout((4, 8))(*coordinate)


def test_idx2crd_leaves_the_last_mode_unbounded() -> None:
    assert idx2crd(13, (4, 3)) == (1, 3)
    assert idx2crd(7, (1, (2, 2)), (0, (1, 2))) == (0, (1, 1))
    assert idx2crd(5, 4) == 5
    assert crd2crd((1, 3), (4, 6), (8, 3)) == (5, 1)
    with pytest.raises(LayoutError):
        crd2crd((1, 3), (4, 6), (8, 4))


@given(layouts())
def test_size_rank_depth_cosize_and_flatten_follow_from_the_tuples(layout: Layout) -> None:
    assert size(layout) == count(layout.shape)
    assert rank(layout) == (len(layout.shape) if isinstance(layout.shape, tuple) else 1)
    all_values = values(layout)
    assert cosize(layout) == max(all_values) - min(all_values) + 1
    assert values(flatten(layout)) == all_values
    assert depth(flatten(layout)) <= 1


def test_cosize_spans_the_image() -> None:
    assert cosize(Layout((4, 8), (-1, 4))) == 32
    assert cosize(Layout(4, -2)) == 7
    assert cosize(Layout((4, 8), (E(0), E(1)))) == (4, 8)


def test_basis_strides_give_coordinates() -> None:
    layout = Layout((4, 8), (2 * E(0), E(1)))
    assert layout(3, 5) == 6 * E(0) + 5 * E(1)
    assert layout(3, 5).coordinate() == (6, 5)
    assert E(0) * 2 - 2 * E(0) == 0
    assert pickle.loads(pickle.dumps(2 * E(0) + E(1, 2))) == 2 * E(0) + E(1, 2)
    assert eval(repr(E(0) + 3 * E(1, 2))) == E(0) + 3 * E(1, 2)
    for wrong in ((), (-1,), (0.5,), (True,)):
        with pytest.raises(LayoutError):
            E(*wrong)
    with pytest.raises(TypeError):
        E(0) + 1
    with pytest.raises(TypeError):
        E(0) * 1.5
