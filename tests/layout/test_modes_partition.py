"""Modes rearranged, tiles cut out, threads given their share, and coordinates as offsets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_definitions import compact_layouts, count, layouts, values

from stridewright.layout import (
    E,
    Layout,
    LayoutError,
    Swizzle,
    append,
    bundle,
    compose,
    dice,
    group,
    identity_layout,
    idx2crd,
    invert_tv_layout,
    local_partition,
    local_tile,
    make_layout,
    make_tv_layout,
    prepend,
    product_each,
    rank,
    replace,
    size,
    slice_and_offset,
    thread_values,
    zip_modes,
    zipped_divide,
)


@given(layouts(), st.data())
def test_grouping_appending_and_replacing_move_whole_modes(layout: Layout, data: st.DataObject) -> None:
    modes = list(layout)
    if isinstance(layout.shape, tuple):
        first = data.draw(st.integers(0, len(modes) - 1))
        last = data.draw(st.integers(first + 1, len(modes)))
        grouped = group(layout, first, last)
        assert values(grouped) == values(layout)
        assert list(grouped) == [*modes[:first], bundle(modes[first:last]), *modes[last:]]
        assert list(replace(layout, first, 7)) == [*modes[:first], Layout(7), *modes[first + 1 :]]
    extra = Layout(3, 100)
    assert list(append(layout, extra)) == [*modes, extra]
    assert list(prepend(layout, extra)) == [extra, *modes]
    assert rank(append(layout, Layout(1, 0), rank=6)) == rank(prepend(layout, Layout(1, 0), rank=6)) == 6
    assert make_layout(*modes) == make_layout(modes) == bundle(modes)


def test_modes_that_do_not_exist_are_refused() -> None:
    layout = Layout((2, 3, 4))
    for first, last in ((0, 4), (2, 2), (-1, 2), (1.0, 2)):
        with pytest.raises(LayoutError):
            group(layout, first, last)  # type: ignore[arg-type]
    with pytest.raises(LayoutError):
        replace(layout, 3, 1)
    with pytest.raises(LayoutError):
        append(layout, 1, rank=2)
    with pytest.raises(LayoutError):
        make_layout(Layout(4), 3)
    with pytest.raises(LayoutError):
        make_layout()


def test_zipping_pairs_modes_and_undoes_itself() -> None:
    a, b = Layout((2, 3)), Layout((4, 5), (6, 24))
    zipped = zip_modes(a, b)
    assert zipped == Layout(((2, 4), (3, 5)), ((1, 6), (2, 24)))
    assert list(zip_modes(zipped)) == [a, b]
    with pytest.raises(LayoutError, match="ranks"):
        zip_modes(Layout((2, 3)), Layout((2, 3, 4)))


@given(layouts(), st.data())
def test_a_slice_and_what_it_leaves_out_make_up_the_layout(layout: Layout, data: st.DataObject) -> None:
    if not isinstance(layout.shape, tuple):
        return
    coordinate = tuple([data.draw(st.sampled_from((None, 0))) for _ in layout.shape])
    kept, offset = slice_and_offset(coordinate, layout)
    left = dice(coordinate, layout)
    assert offset == 0
    assert size(kept) * size(left) == size(layout)
    assert sorted([x + y for x in values(kept) for y in values(left)]) == sorted(values(layout))


@given(compact_layouts(modes=2, extents=(4, 6, 8)), st.sampled_from((1, 2)), st.data())
def test_local_tiles_cover_the_layout_once(layout: Layout, tile: int, data: st.DataObject) -> None:
    if rank(layout) != 2 or isinstance(layout.shape[0], tuple):
        return
    tiler = (tile, 2)
    tiles = zipped_divide(layout, tiler)[1]
    seen = []
    for i in range(size(tiles)):
        part, offset = local_tile(layout, tiler, idx2crd(i, tiles.shape))
        assert size(part) == tile * 2
        seen += [x + offset for x in values(part)]
    assert sorted(seen) == sorted(values(layout))
    part, _ = local_tile(layout, tiler, (0, None))
    assert size(part) == tile * 2 * size(tiles[1])


@given(st.sampled_from([Layout((2, 4), (4, 1)), Layout((2, 4)), Layout((4, 2), (2, 1)), Layout((2, 2))]))
def test_local_partitions_give_every_element_to_one_thread(threads: Layout) -> None:
    layout = Layout((8, 16), (16, 1))
    seen = []
    for thread in range(size(threads)):
        part, offset = local_partition(layout, threads, thread)
        seen += [x + offset for x in values(part)]
        row, column = next(
            (i, j) for i in range(threads.shape[0]) for j in range(threads.shape[1]) if threads(i, j) == thread
        )
        assert offset == layout(row, column)
    assert sorted(seen) == list(range(128))
    with pytest.raises(LayoutError):
        local_partition(layout, threads, size(threads))


def test_partitions_of_swizzled_layouts_keep_their_offset_inside() -> None:
    tile = compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1)))
    part, offset = local_tile(tile, (4, 8), (1, 2))
    assert offset == 0
    assert [part(i, j) for i in range(4) for j in range(8)] == [tile(4 + i, 16 + j) for i in range(4) for j in range(8)]


@given(
    compact_layouts(modes=2, extents=(1, 2, 4, 8)).filter(
        lambda layout: not isinstance(layout.shape, tuple) or rank(layout) <= 2
    ),
    compact_layouts(modes=2, extents=(1, 2, 4)),
)
def test_thread_value_layouts_give_every_element_one_owner(threads: Layout, per_thread: Layout) -> None:
    tile, tv = make_tv_layout(threads, per_thread)
    assert count(tile) == size(threads) * size(per_thread)
    assert (size(tv[0]), size(tv[1])) == (size(threads), size(per_thread))
    assert sorted(values(tv)) == list(range(count(tile)))
    owner = invert_tv_layout(tv)
    for thread in range(size(threads)):
        for v, place in enumerate(thread_values(tv, thread)):
            assert owner(place) == thread + size(threads) * v


def test_thread_value_layouts_that_miss_elements_are_refused() -> None:
    with pytest.raises(LayoutError):
        make_tv_layout(Layout((2, 4), (8, 2)), Layout(2))
    with pytest.raises(LayoutError, match="two modes"):
        invert_tv_layout(Layout(4))
    with pytest.raises(LayoutError):
        invert_tv_layout(Layout((4, 2), (1, 1)))


@given(layouts(modes=3))
def test_the_identity_layout_gives_every_coordinate(layout: Layout) -> None:
    identity = identity_layout(layout.shape)
    for index in range(size(layout)):
        coordinate = idx2crd(index, layout.shape)
        offset = identity(coordinate)
        dense = offset.coordinate() if offset != 0 else 0
        want = coordinate if isinstance(coordinate, tuple) else (coordinate,)

        def padded(got: Any, form: Any) -> Any:
            if isinstance(form, tuple):
                got = got if isinstance(got, tuple) else ()
                return tuple([padded(got[i] if i < len(got) else 0, f) for i, f in enumerate(form)])
            return got

        assert padded(dense, want) == want


@given(compact_layouts(modes=3, extents=(1, 2, 4, 6)), st.data())
def test_coordinates_as_offsets_are_looked_up_in_a_layout(layout: Layout, data: st.DataObject) -> None:
    coordinates = identity_layout(layout.shape)
    assert values_of(compose(layout, coordinates)) == values(layout)
    tiler = Layout(size(layout) // data.draw(st.sampled_from([d for d in (1, 2, 3, 4) if size(layout) % d == 0])))
    try:
        picked = compose(coordinates, tiler)
    except LayoutError:
        return
    assert values_of(compose(layout, picked)) == values(layout)[: size(tiler)]


def values_of(layout: Layout) -> list[int]:
    return [layout(i) for i in range(size(layout))]


def test_coordinates_that_a_layout_does_not_have_are_refused() -> None:
    for strides in ((E(2), E(0)), (E(0) + E(1), E(1)), (E(0), 1), (E(0), E(0, 0))):
        with pytest.raises(LayoutError):
            compose(Layout((4, 8)), Layout((4, 8), strides))
    with pytest.raises(LayoutError):
        compose(Layout(((6, 2), 3), ((1, 7), 100)), Layout((3, 2), (2 * E(0), 3 * E(0))))


def test_sizes_of_modes() -> None:
    assert product_each(Layout(((2, 3), 4))) == (6, 4)
    assert product_each(5) == (5,)


def test_local_tiles_have_the_form_of_cute() -> None:
    layout = Layout((8, 16, 3), (16, 1, 128))
    # (BLK_M, BLK_K, k, l) of the tutorials: the modes of the tile, then what the coordinate leaves open.
    assert local_tile(layout, (4, 8), (1, None, None)) == (Layout((4, 8, 2, 3), (16, 1, 8, 128)), 64)
    assert local_tile(layout, (4, 8), (1,)) == local_tile(layout, (4, 8), [1, None, None])
    assert local_tile(layout, (4, 8), (1, 1, 2)) == (Layout((4, 8), (16, 1)), 64 + 8 + 256)
    assert local_tile(layout, (4, 8), None)[0] == Layout((4, 8, (2, 2, 3)), (16, 1, (64, 8, 128)))
    assert local_tile(layout, (4, 8), 3) == (Layout((4, 8), (16, 1)), 72)
    assert local_tile(Layout(12), 4, 2) == (Layout(4), 8)
    assert local_tile(Layout(12), 4, None) == (Layout((4, 3)), 0)
    mnk, place = (4, 32, 8), (1, 5, None)
    part = local_tile(Layout((8, 16), (16, 1)), mnk, place, projection=(1, None, 1))
    assert part == (Layout((4, 8, 2), (16, 1, 8)), 64)
    for wrong in ((1, 1, 1, 1), (1, (0, 0)), "x"):
        with pytest.raises(LayoutError):
            local_tile(layout, (4, 8), wrong)
    with pytest.raises(LayoutError, match="projection"):
        local_tile(layout, (4, 8), (1, 1), projection=(1, None, 1))


def test_what_a_slice_leaves_out_is_not_nested() -> None:
    layout = Layout((4, (2, 3), 5))
    assert dice((0, (0, 0), None), layout) == Layout((4, 2, 3), (1, 4, 8))
    assert dice((None, (None, 0), None), layout) == Layout(3, 8)
    assert dice((None, 0, None), layout) == Layout((2, 3), (4, 8))


def test_threads_that_a_projection_leaves_out_share_their_elements() -> None:
    layout, threads = Layout((8, 16), (16, 1)), Layout((2, 4), (4, 1))
    for thread in range(8):
        row, column = divmod(thread, 4)
        rows, start = local_partition(layout, threads, thread, projection=(1, None))
        assert (rows, start) == (Layout((4, 16), (32, 1)), layout(row, 0))
        columns, start = local_partition(Layout((16, 8)), threads, thread, projection=(None, 1))
        assert (columns, start) == (Layout((4, 8), (4, 16)), column)
    with pytest.raises(LayoutError, match="projection"):
        local_partition(layout, threads, 0, projection=(1,))


def test_a_group_that_ends_at_minus_one_reaches_the_last_mode() -> None:
    assert group(Layout((2, 3, 4)), 1, -1) == group(Layout((2, 3, 4)), 1, 3) == Layout((2, (3, 4)), (1, (2, 6)))
