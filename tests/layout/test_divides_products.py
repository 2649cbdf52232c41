"""Coalesce, filter, divides and products, each by its defining property."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_definitions import (
    EXTENTS,
    compact_layouts,
    composition_exists,
    count,
    layouts,
    leaves,
    random_layout,
    value,
    values,
)

from stridewright.layout import (
    Layout,
    LayoutError,
    Swizzle,
    blocked_product,
    coalesce,
    compatible,
    complement,
    compose,
    congruent,
    cosize,
    filter,
    filter_zeros,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    ordered_layout,
    raked_product,
    rank,
    size,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    weakly_congruent,
    zipped_divide,
    zipped_product,
)


def fewest_modes(numbers: list[int]) -> int:
    """The number of modes that a list of values needs: each mode is as long as its slope lasts."""
    modes = 0
    while len(numbers) > 1:
        n = 1
        while n < len(numbers) and numbers[n] == n * numbers[1]:
            n += 1
        numbers = numbers[::n]
        modes += 1
    return modes


@given(layouts())
def test_coalesce_keeps_the_function_with_the_fewest_modes(layout: Layout) -> None:
    result = coalesce(layout)
    assert values(result) == values(layout)
    assert size(result) == size(layout)
    assert (0 if result == Layout(1, 0) else rank(result)) == fewest_modes(values(layout))


@pytest.mark.slow
def test_five_thousand_random_layouts_are_coalesced_and_filtered() -> None:
    rng = random.Random(3)
    for number in range(5000):
        layout = random_layout(rng, negative=number % 3 == 0, modes=4)
        result = coalesce(layout)
        assert values(result) == values(layout)
        assert (0 if result == Layout(1, 0) else rank(result)) == fewest_modes(values(layout))
        assert sorted(set(values(filter(layout)))) == sorted(set(values(layout)))


@given(layouts(), st.data())
def test_coalesce_by_mode_keeps_each_mode(layout: Layout, data: st.DataObject) -> None:
    if not isinstance(layout.shape, tuple):
        return
    profile = tuple(data.draw(st.lists(st.sampled_from((1, None)), max_size=rank(layout))))
    result = coalesce(layout, profile)
    assert rank(result) == rank(layout)
    for i, mode in enumerate(layout):
        want = coalesce(mode) if i < len(profile) and profile[i] is not None else mode
        assert result[i] == want


def test_profiles_that_do_not_fit_are_refused() -> None:
    assert coalesce(Layout(((2, 4), 8), ((1, 2), 8)), profile=(1, 1)) == Layout((8, 8), (1, 8))
    assert coalesce(Layout(((2, (2, 2)), 8)), ((None, 1),)) == Layout(((2, 4), 8), ((1, 2), 8))
    for wrong in ((1, 1, 1), "1", 1.5, (1, "x")):
        with pytest.raises(LayoutError):
            coalesce(Layout((4, 8)), wrong)


@given(layouts())
def test_filter_keeps_each_offset_of_the_moving_modes(layout: Layout) -> None:
    moving = [(s, d) for s, d in zip(leaves(layout.shape), leaves(layout.stride), strict=True) if d and s > 1]
    flat = Layout(tuple([s for s, _ in moving]), tuple([d for _, d in moving])) if moving else Layout(1, 0)
    assert values(filter(layout)) == values(flat)
    zeros = filter_zeros(layout)
    assert congruent(zeros, layout)
    assert sorted(set(values(zeros))) == sorted(set(values(layout)))


def division_exists(layout: Layout, tiler: Layout) -> bool:
    """Whether tiles and a rest fill the layout exactly and the composition is a layout."""
    try:
        rest = complement(tiler, size(layout))
    except LayoutError:
        return False
    moving = 1
    for s, d in zip(leaves(tiler.shape), leaves(tiler.stride), strict=True):
        moving *= s if d else 1
    both = Layout((tiler.shape, rest.shape), (tiler.stride, rest.stride))
    return moving * size(rest) == size(layout) and composition_exists(layout, both)


def check_divide(layout: Layout, tiler: Layout) -> bool:
    try:
        result = logical_divide(layout, tiler)
    except LayoutError:
        assert not division_exists(layout, tiler), f"needlessly refused: {layout} / {tiler}"
        return False
    rest = complement(tiler, size(layout))
    assert compatible(tiler.shape, result.shape[0])
    for t in range(size(tiler)):
        for r in range(size(rest)):
            assert value(result[0], t) + value(result[1], r) == value(layout, value(tiler, t) + value(rest, r))
    if all(leaves(tiler.stride)):
        assert sorted(values(result)) == sorted(values(layout))
    return True


def check_product(layout: Layout, tiler: Layout) -> bool:
    try:
        result = logical_product(layout, tiler)
    except LayoutError:
        try:
            rest = complement(layout, size(layout) * cosize(tiler))
        except LayoutError:
            return False
        assert not composition_exists(rest, tiler), f"needlessly refused: {layout} x {tiler}"
        return False
    assert result[0] == layout
    rest = complement(layout, size(layout) * cosize(tiler))
    assert [value(result[1], i) for i in range(size(tiler))] == [
        value(rest, value(tiler, i)) for i in range(size(tiler))
    ]
    return True


def run(seed: int, cases: int) -> None:
    rng = random.Random(seed)
    made = [0, 0]
    for number in range(cases):
        layout = random_layout(rng, negative=number % 6 == 0)
        tiler = Layout(rng.choice(EXTENTS)) if number % 2 else random_layout(rng, modes=2)
        made[0] += check_divide(layout, tiler)
        made[1] += check_product(random_layout(rng), tiler)
    assert all(cases // 8 < n < cases for n in made)


def test_random_divides_and_products_are_right_or_impossible() -> None:
    run(1, 1000)


@pytest.mark.slow
def test_five_thousand_random_divides_and_products_are_right_or_impossible() -> None:
    run(2, 5000)


@given(layouts(modes=3), layouts(modes=2, extents=(1, 2, 3, 4)))
def test_any_divide_is_right_or_impossible(layout: Layout, tiler: Layout) -> None:
    check_divide(layout, tiler)


@given(layouts(modes=3), layouts(modes=2, extents=(1, 2, 3, 4)))
def test_any_product_is_right_or_impossible(layout: Layout, tiler: Layout) -> None:
    check_product(layout, tiler)


@given(compact_layouts(modes=2), compact_layouts(modes=2))
def test_dividing_a_product_gives_its_factors_back(block: Layout, tiler: Layout) -> None:
    result = logical_product(block, tiler)
    assert sorted(values(result)) == list(range(size(block) * size(tiler)))
    split = logical_divide(result, Layout(size(block)))
    assert values(split[0]) == values(block)
    assert values(split[1]) == values(result[1])


FORMS: list[tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = [
    (logical_divide, zipped_divide, tiled_divide, flat_divide),
    (logical_product, zipped_product, tiled_product, flat_product),
]


@pytest.mark.parametrize("forms", FORMS)
@given(data=st.data())
def test_zipped_tiled_and_flat_hold_the_same_modes_as_logical(forms: Any, data: st.DataObject) -> None:
    logical, zipped, tiled, flat = forms
    layout = Layout(tuple(data.draw(st.lists(st.sampled_from((4, 8, 12)), min_size=2, max_size=3))))
    tiler = tuple([data.draw(st.sampled_from((1, 2, 4, None, Layout(2, 2)))) for _ in range(rank(layout))])
    tiler = tiler[: data.draw(st.integers(1, rank(layout)))]
    try:
        by_mode = logical(layout, tiler)
    except LayoutError:
        with pytest.raises(LayoutError):
            zipped(layout, tiler)
        return
    tiles = [Layout(1, 0) if t is None else mode[0] for mode, t in zip(by_mode, tiler, strict=False)]
    rests = [mode if t is None else mode[1] for mode, t in zip(by_mode, tiler, strict=False)]
    rests += list(by_mode)[len(tiler) :]

    def join(*modes: Layout) -> Layout:
        return Layout(tuple(m.shape for m in modes), tuple(m.stride for m in modes))

    assert zipped(layout, tiler) == join(join(*tiles), join(*rests))
    assert tiled(layout, tiler) == join(join(*tiles), *rests)
    assert flat(layout, tiler) == join(*tiles, *rests)


def test_tilers_that_do_not_fit_are_refused() -> None:
    layout = Layout((12, 32), (1, 12))
    for operation in (logical_divide, zipped_divide, tiled_divide, flat_divide, logical_product, zipped_product):
        for wrong in ((2, 2, 2), 0, -4, 1.5, "4", (2.0, 2), True):
            with pytest.raises(LayoutError):
                operation(layout, wrong)
    with pytest.raises(LayoutError, match="pad=True"):
        logical_divide(Layout(10), 4)


def test_padding_rounds_up_and_agrees_inside() -> None:
    assert logical_divide(Layout(10), Layout(4), pad=True) == Layout((4, 3), (1, 4))
    assert logical_divide(Layout((6, 8), (8, 1)), 4, pad=True) == Layout((4, (2, 8)), (8, (32, 1)))
    assert zipped_divide(Layout((10, 6), (6, 1)), (4, 4), pad=True) == Layout(((4, 4), (3, 2)), ((6, 1), (24, 4)))
    assert logical_divide(Layout(12), 4, pad=True) == logical_divide(Layout(12), 4)


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from((1, 2, 3)))
def test_a_padded_divide_counts_the_tiles_that_it_takes(extent: int, tile: int, stride: int) -> None:
    layout = Layout(extent, stride)
    result = logical_divide(layout, tile, pad=True)
    assert size(result) == -(-extent // tile) * tile
    assert [result(i) for i in range(extent)] == values(layout)


@given(compact_layouts(modes=2), compact_layouts(modes=2))
def test_blocked_and_raked_products_place_a_block_at_every_coordinate_of_the_tiler(
    block: Layout, tiler: Layout
) -> None:
    n = max(rank(block), rank(tiler))
    repetition = logical_product(block, tiler)[1]
    blocked, raked = blocked_product(block, tiler), raked_product(block, tiler)
    assert rank(blocked) == rank(raked) == n
    assert sorted(values(blocked)) == sorted(values(raked)) == list(range(size(block) * size(tiler)))
    for i in range(n):
        assert blocked[i][0] == raked[i][1]
        assert blocked[i][1] == raked[i][0]
    origin = {0: values(block)}
    for t in range(size(tiler)):
        offsets = [x + repetition(t) for x in origin[0]]
        assert set(offsets) <= set(values(blocked))


@given(
    st.sampled_from([Layout((8, 16), (16, 1)), Layout((4, 2)), Layout((2, 4), (4, 1)), Layout(8), Layout((2, (2, 3)))]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([None, (0, 1), (1, 0), (5, 2)]),
)
def test_tile_to_shape_fills_the_shape_with_copies_in_order(atom: Layout, rows: int, columns: int, order: Any) -> None:
    extents = (size(atom[0]) * rows, (size(atom[1]) if rank(atom) > 1 else 1) * columns)
    result = tile_to_shape(atom, extents, order)
    assert tuple(count(s) for s in result.shape) == extents
    assert sorted(values(result)) == list(range(count(extents)))
    fastest = 0 if order is None or order[0] < order[1] else 1
    counts = (rows, columns)
    for r in range(rows):
        for c in range(columns):
            copy = r + rows * c if fastest == 0 else c + columns * r
            assert copy < counts[0] * counts[1]
            for i in range(size(atom[0])):
                for j in range(extents[1] // columns):
                    inside = atom(i, j) if rank(atom) > 1 else atom(i)
                    place = result(i + r * size(atom[0]), j + c * (extents[1] // columns))
                    assert place == inside + copy * size(atom)


def test_tile_to_shape_refuses_what_does_not_divide_and_names_the_nearest() -> None:
    with pytest.raises(LayoutError, match="nearest: 128 and 136"):
        tile_to_shape(Layout((8, 64), (64, 1)), (130, 64))
    for wrong in ((0, 0), (0,), (0, 1, 2), (0, "1"), (0.0, 1)):
        with pytest.raises(LayoutError):
            tile_to_shape(Layout((8, 64), (64, 1)), (128, 64), wrong)
    with pytest.raises(LayoutError):
        tile_to_shape(Layout((8, 64), (64, 1)), (128,))


def test_ordered_layouts_are_compact_in_the_order_given() -> None:
    assert ordered_layout((4, 8), (1, 0)) == Layout((4, 8), (8, 1))
    assert ordered_layout((4, (2, 3)), (1, 0)) == Layout((4, (2, 3)), (6, (1, 2)))
    assert ordered_layout((4, 1, 8)) == Layout((4, 1, 8), (1, 0, 4))
    assert ordered_layout(8) == Layout(8, 1)


def test_swizzled_layouts_are_divided_and_repeated_inside_their_swizzle() -> None:
    inner = Layout((16, 64), (64, 1))
    tile = compose(Swizzle(3, 3, 3), inner)
    assert zipped_divide(tile, (8, 8)) == compose(Swizzle(3, 3, 3), zipped_divide(inner, (8, 8)))
    assert tile_to_shape(tile, (32, 128), (1, 0)) == compose(Swizzle(3, 3, 3), tile_to_shape(inner, (32, 128), (1, 0)))
    assert logical_product(tile, 4).layout == logical_product(inner, 4)


@given(layouts(), layouts())
def test_the_relations_between_shapes_nest(a: Layout, b: Layout) -> None:
    if compatible(a, b):
        assert weakly_congruent(a, b)
        assert size(a) == size(b)
    if congruent(a, b):
        assert weakly_congruent(a, b)
        assert weakly_congruent(b, a)
    assert compatible(size(a), a)


def test_a_divide_whose_tiler_has_no_complement_names_both_operands() -> None:
    with pytest.raises(LayoutError, match=r"logical_divide\(12:1, \(4,2\):\(1,2\)\)") as caught:
        logical_divide(Layout(12), Layout((4, 2), (1, 2)))
    assert "reached twice" in str(caught.value) or "overlaps" in str(caught.value)


def test_refusals_by_mode_name_the_whole_operands_and_the_mode() -> None:
    layout = Layout((4, (6, 5)))
    for operation in (logical_divide, zipped_divide, tiled_divide, flat_divide):
        with pytest.raises(
            LayoutError, match=r"\(4,\(6,5\)\):\(1,\(4,24\)\) by \(2,\(None,3\)\), mode 1: .*mode 1: .*pad=True"
        ):
            operation(layout, (2, (None, 3)))
    with pytest.raises(LayoutError, match=r"\(4,\(6,5\)\):\(1,\(4,30\)\) by \(None,4:2\), mode 1: .*Counterexample"):
        compose(Layout((4, (6, 5)), (1, (4, 30))), (None, Layout(4, 2)))
    with pytest.raises(LayoutError, match=r"blocked_product\(\(4,2\):\(1,2\), 3:1\)"):
        blocked_product(Layout((4, 2), (1, 2)), Layout(3))
