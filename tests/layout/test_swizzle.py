"""Swizzles, swizzled layouts, recasts, and the F2 maps that prove things of them."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_definitions import compact_layouts, digits, is_layout, layouts, leaves, random_layout, refines, values

from stridewright.layout import (
    E,
    Layout,
    LayoutError,
    LinearLayout,
    Swizzle,
    SwizzledLayout,
    coalesce,
    compose,
    cosize,
    downcast,
    flatten,
    group,
    recast,
    size,
    upcast,
)

POWERS = (1, 2, 4, 8, 16)


def bit(x: int, i: int) -> int:
    return x >> i & 1


def defined(b: int, m: int, s: int, x: int) -> int:
    """A swizzle bit by bit: bit m+i is XORed with bit m+i+s; for negative s bit m+i-s with bit m+i."""
    for i in range(b):
        if s >= 0:
            x ^= bit(x, m + s + i) << (m + i)
        else:
            x ^= bit(x, m + i) << (m - s + i)
    return x


def all_swizzles(bits: int) -> list[tuple[int, int, int]]:
    return [
        (b, m, s)
        for b in range(bits // 2 + 1)
        for s in range(-bits, bits + 1)
        if abs(s) >= b
        for m in range(bits + 1)
        if m + b + abs(s) <= bits
    ]


def test_every_swizzle_of_16_bits_is_a_bijection_and_its_own_inverse() -> None:
    numbers = np.arange(2**16)
    for b, m, s in all_swizzles(16):
        swizzle = Swizzle(b, m, s)
        moved = swizzle(numbers)
        assert np.array_equal(swizzle(moved), numbers), swizzle
        assert swizzle.inverse() == swizzle
        assert LinearLayout.of(swizzle).prove_bijective()


@given(st.sampled_from(all_swizzles(12)), st.integers(0, 2**14))
def test_a_swizzle_xors_bit_by_bit(bms: tuple[int, int, int], x: int) -> None:
    assert Swizzle(*bms)(x) == defined(*bms, x)


@pytest.mark.parametrize(
    "bms",
    [
        (3, 4, 2),
        (2, 0, 1),
        (1, 0, 0),
        (-1, 0, 3),
        (3, -1, 3),
        (3.0, 4, 3),
        (3, True, 3),
        (3, 4, "3"),
        (3, 4, -2),
        (1, 0, 9999),
    ],
)
def test_swizzles_that_overlap_or_are_none_are_refused(bms: tuple[Any, Any, Any]) -> None:
    with pytest.raises(LayoutError):
        Swizzle(*bms)


def test_swizzles_are_values() -> None:
    assert Swizzle(0, 3, 0) == Swizzle(0, 0, 0)
    assert hash(Swizzle(0, 3, 0)) == hash(Swizzle(0, 5, 2))
    assert pickle.loads(pickle.dumps(Swizzle(3, 4, 3))) == eval(repr(Swizzle(3, 4, 3))) == Swizzle(3, 4, 3)
    assert str(Swizzle(3, 4, -3)) == "S<3,4,-3>"
    with pytest.raises(AttributeError):
        Swizzle(3, 4, 3).bits = 2  # type: ignore[misc]
    layout = compose(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)))
    assert pickle.loads(pickle.dumps(layout)) == eval(repr(layout)) == layout
    assert len({layout, eval(repr(layout))}) == 1


@given(
    st.sampled_from(all_swizzles(10)), layouts(strides=(0, 1, 2, 4, 5, 8, 16)), st.sampled_from((0, 3, 8)), st.data()
)
def test_a_swizzled_layout_is_the_swizzle_of_the_layout(
    bms: tuple[int, int, int], layout: Layout, offset: int, data: st.DataObject
) -> None:
    swizzled = SwizzledLayout(Swizzle(*bms), offset, layout)
    want = [defined(*bms, x + offset) for x in values(layout)]
    assert [swizzled(i) for i in range(size(layout))] == want
    assert swizzled(np.arange(size(layout))).tolist() == want
    assert cosize(swizzled) == max(want) - min(want) + 1
    if isinstance(layout.shape, tuple):
        fixed = [None] * len(layout.shape)
        i = data.draw(st.integers(0, len(fixed) - 1))
        fixed[i] = data.draw(st.integers(0, size(layout, i) - 1))
        part = swizzled.slice(*fixed)
        plain, start = layout.slice_and_offset(*fixed)
        assert [part(j) for j in range(size(part))] == [defined(*bms, x + start + offset) for x in values(plain)]
    assert flatten(swizzled).layout == flatten(layout)
    assert coalesce(swizzled).layout == coalesce(layout)


def test_the_span_of_a_huge_swizzled_layout_is_exact() -> None:
    assert cosize(compose(Swizzle(3, 4, 3), Layout(2**70))) == 2**70
    assert cosize(SwizzledLayout(Swizzle(2, 0, 3), 5, Layout((3, 2**40), (1, 64)))) == 64 * (2**40 - 1) + 3


@given(st.sampled_from(all_swizzles(8)), st.sampled_from(all_swizzles(8)))
def test_two_swizzles_join_where_one_does_both(a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
    want = [defined(*a, defined(*b, x)) for x in range(256)]
    exists = [c for c in all_swizzles(8) if [defined(*c, x) for x in range(256)] == want]
    try:
        joined = compose(Swizzle(*a), Swizzle(*b))
    except LayoutError:
        assert not exists
        assert LinearLayout.of(Swizzle(*a), 8).compose(LinearLayout.of(Swizzle(*b), 8))(0b10110101) == want[0b10110101]
        return
    assert [joined(x) for x in range(256)] == want


@given(st.sampled_from(all_swizzles(6)), compact_layouts(modes=3, extents=(1, 2, 4)), st.data())
def test_a_layout_after_a_swizzle_is_a_layout_behind_one_where_that_exists(
    bms: tuple[int, int, int], inner: Layout, data: st.DataObject
) -> None:
    outer = data.draw(compact_layouts(modes=3, extents=(1, 2, 4)))
    swizzled = compose(Swizzle(*bms), inner)
    want = [outer(swizzled(i)) for i in range(size(inner))]
    try:
        result = compose(outer, swizzled)
    except LayoutError:
        return
    assert [result(i) for i in range(size(inner))] == want


def test_a_layout_of_any_extent_takes_a_swizzle_of_its_first_modes_along() -> None:
    for outer, inner in [
        (Layout(24), Layout((3, 8), (8, 1))),
        (Layout((8, 8, 3), (8, 1, 64)), Layout((3, 64), (64, 1))),
        (Layout((8, 24), (1, 16)), Layout((4, 24), (2, 8))),
        (Layout((64, 3), (4, 1000 * 256)), Layout(192)),
    ]:
        result = compose(outer, compose(Swizzle(2, 0, 3), inner))
        assert [result(i) for i in range(size(inner))] == [
            outer(Swizzle(2, 0, 3)(inner(i))) for i in range(size(inner))
        ]
    with pytest.raises(LayoutError):
        compose(Layout((6, 8), (8, 1)), Swizzle(2, 0, 3))


@given(
    st.sampled_from(all_swizzles(6)),
    layouts(modes=3, strides=(1, 2, 8, 16, 64)),
    layouts(modes=2, strides=(1, 2, 4, 8)),
)
def test_any_layout_after_a_swizzle_is_right_or_refused(
    bms: tuple[int, int, int], outer: Layout, inner: Layout
) -> None:
    swizzled = compose(Swizzle(*bms), inner)
    try:
        result = compose(outer, swizzled)
    except LayoutError:
        return
    assert [result(i) for i in range(size(inner))] == [outer(swizzled(i)) for i in range(size(inner))]


@given(st.sampled_from(all_swizzles(6)), st.sampled_from(all_swizzles(6)), compact_layouts(modes=2, extents=(2, 4, 8)))
def test_two_swizzled_layouts_compose_where_their_swizzles_join(
    one: tuple[int, int, int], two: tuple[int, int, int], layout: Layout
) -> None:
    outer, inner = compose(Swizzle(*one), Layout(64)), compose(Swizzle(*two), layout)
    try:
        result = compose(outer, inner)
    except LayoutError:
        return
    assert [result(i) for i in range(size(layout))] == [outer(inner(i)) for i in range(size(layout))]


def test_a_permuting_layout_takes_the_swizzle_to_where_its_bits_go() -> None:
    result = compose(Layout((8, 8), (8, 1)), Swizzle(3, 0, 3))
    assert result.swizzle == Swizzle(3, 0, -3)
    assert compose(Layout((8, 8), (8, 1)), compose(Swizzle(3, 3, 3), Layout(8))) == Layout(8, 8)


def in_whole_units(layout: Layout, n: int) -> bool:
    """Whether every mode steps by units, or runs through whole units, or ends in one where another goes on."""
    shape, stride = layout.flat
    modes = list(zip(shape, stride, strict=True))
    for s, d in modes:
        if s == 1 or d % n == 0:
            continue
        if n % abs(d):
            return False
        inside = n // abs(d)
        goes_on = any(t > 1 and e == s * d for t, e in modes)
        if s % inside and (inside % s or not goes_on):
            return False
    return True


def check_upcast(layout: Layout, n: int) -> None:
    """up(c) == layout(n * c) // n, n scaling the modes inside a unit; refused only where a mode is not made of whole units."""
    _, stride = layout.flat
    try:
        up = flatten(upcast(layout, n))
    except LayoutError:
        assert not in_whole_units(layout, n)
        return
    assert in_whole_units(layout, n)
    scale = [1 if d % n == 0 else n // abs(d) if n % abs(d) == 0 else 1 for d in stride]
    for i in range(size(up)):
        coordinate, left = [], i
        for s in up.flat[0]:
            left, c = divmod(left, s)
            coordinate.append(c)
        first = sum([c * k * d for c, k, d in zip(coordinate, scale, stride, strict=True)])
        assert first % n == 0
        assert up(i) == first // n


@given(layouts(strides=(0, 1, 2, 4, 8, 16, -1, 3), extents=(1, 2, 4, 8, 6)), st.sampled_from((1, 2, 4, 8, 3)))
def test_an_upcast_is_the_layout_at_the_first_element_of_every_unit(layout: Layout, n: int) -> None:
    check_upcast(layout, n)


@pytest.mark.slow
def test_five_thousand_random_casts_are_right_or_impossible() -> None:
    rng = random.Random(2)
    for number in range(5000):
        layout, n = random_layout(rng, negative=number % 5 == 0), rng.choice((1, 2, 3, 4, 8))
        check_upcast(layout, n)
        assert flatten(upcast(downcast(layout, n), n)) == flatten(layout)


@given(layouts(strides=(0, 1, 2, 4, 6, -1, -4)), st.sampled_from((1, 2, 4, 3)))
def test_an_upcast_undoes_a_downcast(layout: Layout, n: int) -> None:
    assert upcast(downcast(layout, n), n) == layout


def test_recasts_of_swizzles_move_the_lowest_bit() -> None:
    assert [recast(Swizzle(3, 4, 3), 8, bits) for bits in (8, 16, 32, 4)] == [
        Swizzle(3, 4, 3), Swizzle(3, 3, 3), Swizzle(3, 2, 3), Swizzle(3, 5, 3),
    ]  # fmt: skip
    with pytest.raises(LayoutError, match="ratio of widths must be a power of two"):
        recast(Swizzle(3, 3, 3), 8, 6)
    with pytest.raises(LayoutError, match="ratio of widths must be a power of two"):
        recast(compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))), 8, 24)
    assert recast(Layout((8, 64), (64, 1)), 16, 8) == Layout((8, 128), (128, 1))
    for wrong in ((0, 8), (8, 0), (8, 12), (8.0, 16)):
        with pytest.raises(LayoutError):
            recast(Layout((8, 64), (64, 1)), *wrong)


@given(st.sampled_from(all_swizzles(10)), st.sampled_from((1, 2, 4, 8)), st.sampled_from((0, 8, 64)))
def test_an_upcast_behind_a_swizzle_is_the_swizzled_offset_in_units(
    bms: tuple[int, int, int], n: int, offset: int
) -> None:
    layout = SwizzledLayout(Swizzle(*bms), offset, Layout((8, 64), (64, 1)))
    up = upcast(layout, n)
    for row in range(8):
        for unit in range(64 // n):
            assert up(row, unit) == layout(row, n * unit) // n


@given(compact_layouts(modes=3, extents=(1, 2, 4, 8)), st.sampled_from(all_swizzles(8)))
def test_a_linear_map_is_the_layout_it_was_made_from(layout: Layout, bms: tuple[int, int, int]) -> None:
    for given_layout in (layout, compose(Swizzle(*bms), layout)):
        linear = LinearLayout.of(given_layout)
        want = [given_layout(i) for i in range(size(layout))]
        assert [linear(i) for i in range(size(layout))] == want
        assert linear(np.arange(size(layout))).tolist() == want
        back = linear.to_layout(layout.shape)
        assert [back(i) for i in range(size(layout))] == want
        assert linear.rank == linear.inputs
        inverse = LinearLayout(linear.bases, None).inverse() if linear.outputs == linear.inputs else None
        if inverse is not None:
            assert [inverse(x) for x in want] == list(range(size(layout)))


@given(st.lists(st.integers(0, 63), max_size=7), st.lists(st.integers(0, 63), max_size=6))
def test_rank_decides_what_a_walk_over_all_inputs_would(bases: list[int], others: list[int]) -> None:
    linear, inner = LinearLayout(bases, 6), LinearLayout(others)
    outputs = [linear(x) for x in range(2**linear.inputs)]
    assert len(set(outputs)) == 2**linear.rank
    assert bool(linear.prove_injective()) == (len(set(outputs)) == len(outputs))
    assert bool(linear.prove_bijective()) == (sorted(outputs) == list(range(64)))
    for k in linear.kernel:
        assert linear(k) == 0 != k
    if linear.prove_bijective():
        inverse = linear.inverse()
        assert [inverse(x) for x in outputs] == list(range(64))
        assert inverse.compose(linear) == LinearLayout([1 << j for j in range(6)])
    else:
        with pytest.raises(LayoutError):
            linear.inverse()
    if max(others, default=0) < 2**linear.inputs:
        assert linear.compose(inner)(2**inner.inputs - 1) == linear(inner(2**inner.inputs - 1))
    proof = linear.prove_same(inner)
    assert bool(proof) == (
        linear.inputs == inner.inputs and all(linear(x) == inner(x) for x in range(2**linear.inputs))
    )
    assert "claim" in str(proof)


@given(st.sampled_from(all_swizzles(9)))
def test_no_conflict_is_decided_by_rank_as_by_counting(bms: tuple[int, int, int]) -> None:
    tile = LinearLayout.of(compose(Swizzle(*bms), Layout((8, 64), (64, 1))))
    words = {tile(row) >> 3 for row in range(8)}
    banks = {word % 8 for word in words}
    proof = tile.prove_no_conflict(lanes=[0, 1, 2], banks=[3, 4, 5], word=3)
    assert bool(proof) == (len(words) == len(banks))


def test_maps_that_are_not_linear_are_refused_with_the_reason() -> None:
    for layout, reason in [
        (Layout(6), "power of two"), (Layout(4, 3), "carries"), (Layout(2, -1), "at least 0"), (Layout((2, 2), (1, 1)), "carries"),
    ]:  # fmt: skip
        with pytest.raises(LayoutError, match=reason):
            LinearLayout.of(layout)
    with pytest.raises(LayoutError, match="offset"):
        LinearLayout.of(SwizzledLayout(Swizzle(1, 0, 1), 1, Layout(4)))
    assert LinearLayout.of(SwizzledLayout(Swizzle(1, 0, 1), 4, Layout(4)))(1) == 5
    for wrong in ([-1], [0.5], ["1"]):
        with pytest.raises(LayoutError):
            LinearLayout(wrong)
    with pytest.raises(LayoutError):
        LinearLayout([4], 2)
    with pytest.raises(LayoutError):
        LinearLayout([1, 2])(4)
    with pytest.raises(LayoutError, match="behind a single swizzle"):
        LinearLayout([3, 5, 7]).to_layout()


def test_composing_two_swizzles_over_layouts() -> None:
    tile = compose(Swizzle(1, 0, 3), Layout((8, 8), (8, 1)))
    assert compose(compose(Swizzle(1, 1, 3), Layout(64)), tile) == compose(Swizzle(2, 0, 3), Layout((8, 8), (8, 1)))
    assert compose(compose(Swizzle(1, 0, 3), Layout(64)), tile)(5) == Layout((8, 8), (8, 1))(5)
    with pytest.raises(LayoutError, match="offset"):
        compose(SwizzledLayout(Swizzle(1, 1, 3), 4, Layout(64)), tile)


def test_offsets_stay_inside_the_swizzle() -> None:
    layout = compose(Swizzle(3, 4, 3), Layout((10, 2), (2, 1)))
    part = layout.slice(None, 0)
    assert (part.swizzle, part.offset, part.layout) == (Swizzle(3, 4, 3), 0, Layout(10, 2))
    assert group(layout, 0, 2).layout == Layout(((10, 2),), ((2, 1),))
    assert str(compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))).slice(2, None)) == "S<3,3,3> o 128 o 64:1"


def test_random_arrays_through_swizzled_layouts_match_single_indices() -> None:
    rng = random.Random(1)
    for _ in range(200):
        k = rng.randint(1, 4)
        layout = Layout(
            tuple(rng.choice((1, 2, 3, 4, 8)) for _ in range(k)), tuple(rng.choice((0, 1, 7, 64, -3)) for _ in range(k))
        )
        b = rng.randint(0, 3)
        swizzle = Swizzle(b, rng.randint(0, 3), rng.choice((-1, 1)) * rng.randint(b, b + 2))
        swizzled = SwizzledLayout(swizzle, rng.choice((0, 3, 8)), layout)
        indices = np.array([rng.randint(0, 300) for _ in range(20)])
        assert swizzled(indices).tolist() == [swizzled(int(i)) for i in indices]


def exists_behind_one_swizzle(offsets: list[int], shape: Any) -> bool:
    """Whether some layout behind some swizzle of these bits has the given values: all are tried."""
    for bms in [(0, 0, 0), *all_swizzles(max(offsets).bit_length())]:
        swizzle = Swizzle(*bms)
        moved = [swizzle(x) - swizzle(offsets[0]) for x in offsets]
        parts, before = [], 1
        for extent in leaves(shape):
            parts.append([moved[before * c] for c in range(extent)])
            before *= extent
        if all(is_layout(part) for part in parts) and all(
            x == sum(part[digit] for part, digit in zip(parts, digits(i, tuple(leaves(shape))), strict=True))
            for i, x in enumerate(moved)
        ):
            return True
    return False


def random_swizzled(rng: random.Random) -> SwizzledLayout:
    b = rng.randint(0, 2)
    swizzle = Swizzle(b, rng.randint(0, 2), rng.randint(max(b, 1), 3) * rng.choice((1, 1, -1)))
    layout = random_layout(rng, modes=2)
    return SwizzledLayout(swizzle, rng.choice((0, 0, 0, 1, 3, 4, 8, 16)), layout)


def check_compositions_with_swizzles(seed: int, cases: int) -> None:
    rng = random.Random(seed)
    outcomes = {"right": 0, "refused": 0}
    for _ in range(cases):
        outer, inner = random_swizzled(rng), random_swizzled(rng)
        if size(inner) > 32:
            continue
        a: Any = rng.choice((outer, outer.layout, outer.swizzle))
        b: Any = rng.choice((inner, inner, inner.layout)) if type(a) is SwizzledLayout else inner
        offsets = [a(b(i)) for i in range(size(b))]
        try:
            result = compose(a, b)
        except LayoutError as error:
            outcomes["refused"] += 1
            assert str(b) in str(error)  # noqa: PT017
            if max(offsets).bit_length() <= 7:
                assert not exists_behind_one_swizzle(offsets, b.shape), (a, b)
            continue
        outcomes["right"] += 1
        assert [result(i) for i in range(size(result))] == offsets, (a, b, result)
        assert refines(b.shape, result.shape)
    assert min(outcomes.values()) > cases // 40


def test_compositions_with_swizzles_and_offsets_are_right_or_impossible() -> None:
    check_compositions_with_swizzles(5, 400)


@pytest.mark.slow
def test_five_thousand_compositions_with_swizzles_are_right_or_impossible() -> None:
    check_compositions_with_swizzles(6, 5000)


def test_a_last_mode_of_extent_one_goes_on_past_a_swizzle() -> None:
    a, b = Layout((4, 1), (1, 2)), SwizzledLayout(Swizzle(1, 0, -1), 0, Layout(16))
    with pytest.raises(LayoutError, match="at index 3 the offset is 1, while the steps before it add up to 5"):
        compose(a, b)  # 0, 3, 2, 1, 2, ...
    a, b = Layout((2, 8, 1), (1, 2, 2)), SwizzledLayout(Swizzle(1, 1, -2), 16, Layout((2, 4), (1, 2)))
    result = compose(a, b)
    assert [result(i) for i in range(8)] == [a(b(i)) for i in range(8)] == [2, 3, 12, 13, 6, 7, 16, 17]


def test_a_layout_with_a_swizzle_after_it_keeps_its_form() -> None:
    # CuTe's composition(Layout, Swizzle): the swizzle of the bits that the layout carries its bits to, and the layout.
    assert compose(Layout((8, 8), (1, 8)), Swizzle(3, 0, 3)) == compose(Swizzle(3, 0, 3), Layout((8, 8), (1, 8)))
    assert compose(Layout((8, 8), (8, 1)), Swizzle(3, 0, 3)) == compose(Swizzle(3, 0, -3), Layout((8, 8), (8, 1)))


def test_units_of_a_swizzle_alone() -> None:
    assert upcast(Swizzle(3, 4, 3), 2) == Swizzle(3, 3, 3)
    assert downcast(Swizzle(3, 3, 3), 4) == Swizzle(3, 5, 3)
    for cast in (upcast, downcast):
        with pytest.raises(LayoutError, match="power of two"):
            cast(Swizzle(3, 4, 3), 3)


def test_recasts_between_widths_of_which_neither_divides_the_other() -> None:
    # Three elements of 16 bits are two of 24.
    assert recast(Layout((2, 24), (24, 1)), 16, 24) == Layout((2, 16), (16, 1))
    assert recast(Layout((2, 16), (16, 1)), 24, 16) == Layout((2, 24), (24, 1))
    with pytest.raises(LayoutError, match="whole units"):
        recast(Layout((8, 64), (64, 1)), 16, 24)


def test_swizzles_cannot_be_taken_apart() -> None:
    for value, name in (
        (Swizzle(3, 3, 3), "bits"), (SwizzledLayout(Swizzle(3, 3, 3), 0, Layout(4)), "layout"), (E(0), "terms"),
        (LinearLayout([1]), "bases"), (Layout(4), "shape"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match="immutable"):
            delattr(value, name)
