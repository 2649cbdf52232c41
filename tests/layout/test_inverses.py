"""Complements, inverses, common layouts and the nullspace, each held to its definition by brute force."""

from __future__ import annotations

import random
import time
from itertools import product as cartesian

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_definitions import (
    compact_layouts,
    is_layout,
    largest_right_inverse,
    layouts,
    leaves,
    left_inverse_exists,
    random_layout,
    value,
    values,
)

from stridewright.layout import (
    E,
    Layout,
    LayoutError,
    Swizzle,
    SwizzledLayout,
    coalesce,
    complement,
    compose,
    cosize,
    left_inverse,
    max_common_layout,
    max_common_vector,
    nullspace,
    right_inverse,
    size,
)
from stridewright.layout.lattice import collision, solve_integers


def image(layout: Layout) -> list[int]:
    """Every offset once for each coordinate of the modes whose stride is not 0."""
    result = [0]
    for s, d in zip(leaves(layout.shape), leaves(layout.stride), strict=True):
        if d:
            result = [x + c * d for x in result for c in range(s)]
    return result


def forced(offsets: list[int], target: int) -> list[int] | None:
    """The beginning of any strictly increasing R whose sums with `offsets` cover range(target): each gap's first number."""
    covered, numbers = set(offsets), [0]
    while True:
        gap = next((x for x in range(target) if x not in covered), None)
        if gap is None:
            return numbers
        moved = [x + gap for x in offsets]
        if covered & set(moved):
            return None
        covered.update(moved)
        numbers.append(gap)


def extends(numbers: list[int], offsets: list[int]) -> bool:
    """Whether a strictly increasing layout begins with `numbers` and has sums with `offsets` that are all different."""

    def grow(known: list[int]) -> bool:
        if len(known) >= len(numbers):
            sums = [x + y for x in offsets for y in known]
            return known[: len(numbers)] == numbers and len(set(sums)) == len(sums)
        if known != numbers[: len(known)]:
            return False
        step = numbers[len(known)]
        for m in range(2, len(numbers) + 1):
            longer = [v + c * step for c in range(m) for v in known]
            if longer != sorted(set(longer)):
                return False
            if grow(longer):
                return True
        return False

    return grow([0])


def check_complement(layout: Layout, target: int) -> bool:
    offsets = image(layout)
    try:
        result = complement(layout, target)
    except LayoutError:
        if len(set(offsets)) == len(offsets) and min(offsets) >= 0:
            numbers = forced(offsets, target)
            assert numbers is None or not extends(numbers, offsets), (
                f"needlessly refused: complement({layout}, {target})"
            )
        return False
    numbers = values(result)
    sums = [x + y for x in offsets for y in numbers]
    assert numbers == sorted(set(numbers)), f"complement({layout}, {target}) = {result} is not increasing"
    assert len(set(sums)) == len(sums), f"complement({layout}, {target}) = {result} is not disjoint"
    assert set(range(min(offsets), target)) <= set(sums), f"complement({layout}, {target}) = {result} does not cover"
    assert coalesce(result) == result
    return True


def check_right_inverse(layout: Layout) -> None:
    result = right_inverse(layout)
    places = values(result)
    assert all(0 <= place < size(layout) for place in places)
    assert [value(layout, place) for place in places] == list(range(size(result)))
    assert size(result) == largest_right_inverse(layout), f"right_inverse({layout}) = {result} is not the largest"


def check_left_inverse(layout: Layout) -> bool:
    offsets = values(layout)
    try:
        result = left_inverse(layout)
    except LayoutError:
        if len(set(offsets)) == len(offsets) and min(offsets) >= 0 and max(offsets) <= 12:
            assert not left_inverse_exists(layout), f"needlessly refused: left_inverse({layout})"
        return False
    assert [value(result, x) for x in offsets] == list(range(len(offsets))), f"left_inverse({layout}) = {result}"
    return True


def run(seed: int, cases: int) -> None:
    rng = random.Random(seed)
    made = [0, 0]
    for number in range(cases):
        layout = random_layout(rng, negative=number % 4 == 0)
        made[0] += check_complement(layout, rng.randint(1, 40))
        check_right_inverse(layout)
        made[1] += check_left_inverse(layout)
    assert all(cases // 4 < n < cases for n in made)


def test_random_complements_and_inverses_are_right_or_impossible() -> None:
    run(1, 600)


@pytest.mark.slow
def test_five_thousand_random_complements_and_inverses_are_right_or_impossible() -> None:
    run(2, 5000)


@given(layouts(modes=3), st.integers(1, 64))
def test_any_complement_is_ordered_disjoint_and_covers(layout: Layout, target: int) -> None:
    check_complement(layout, target)


@given(layouts(modes=3, extents=(1, 2, 3, 4, 6)))
def test_any_right_inverse_is_right_and_the_largest(layout: Layout) -> None:
    check_right_inverse(layout)


@given(layouts(modes=3, extents=(1, 2, 3, 4)))
def test_any_left_inverse_takes_offsets_back(layout: Layout) -> None:
    check_left_inverse(layout)


@given(compact_layouts())
def test_a_bijection_has_one_inverse_on_both_sides(layout: Layout) -> None:
    assert right_inverse(layout) == left_inverse(layout)
    assert values(right_inverse(right_inverse(layout))) == values(layout)
    assert complement(layout) == Layout(1, 0)


def test_the_complement_without_a_cotarget_fills_the_gaps_inside() -> None:
    assert complement(Layout(4, 2)) == Layout(2, 1)
    assert complement(Layout((2, 2), (1, 6))) == Layout(3, 2)
    assert complement(Layout((2, 2), (1, 6)), (4, 6)) == Layout((3, 2), (2, 12))
    assert complement(Layout(4, 2), Layout(8)) == Layout(2, 1)


def test_a_layout_that_does_not_nest_has_the_complement_that_a_small_cotarget_asks_for() -> None:
    assert complement(Layout((2, 2), (2, 5)), 4) == Layout(2, 1)
    with pytest.raises(LayoutError, match="5"):
        complement(Layout((2, 2), (2, 5)), 5)


def test_refusals_name_the_layout_and_two_coordinates_of_one_offset() -> None:
    with pytest.raises(LayoutError, match=r"left_inverse\(\(4,2\):\(1,2\)\).*indices 2 and 4 have the offset 2"):
        left_inverse(Layout((4, 2), (1, 2)))
    with pytest.raises(LayoutError, match=r"complement\(\(4,2\):\(1,2\), 16\)"):
        complement(Layout((4, 2), (1, 2)), 16)
    for operation in (complement, right_inverse, left_inverse, nullspace):
        with pytest.raises(LayoutError):
            operation("4:1")
    with pytest.raises(LayoutError):
        complement(Layout(4), 0)
    with pytest.raises(LayoutError):
        right_inverse(Layout(4, E(0)))


def test_huge_sizes_are_decided_at_once() -> None:
    start = time.perf_counter()
    n = 2**70
    layout = Layout((n, 4, n), (8, 1, 16 * n))
    assert complement(layout, size(layout) * 4) == Layout((2, 2), (4, 8 * n))
    assert right_inverse(Layout((n, 4), (4, 1))) == Layout((4, n), (n, 1))
    assert left_inverse(layout)(layout(n + 3)) == n + 3
    with pytest.raises(LayoutError):
        left_inverse(Layout((n, n), (1, n - 1)))
    with pytest.raises(LayoutError):
        complement(Layout((n, n), (1, n - 1)), n)
    assert max_common_vector(layout, layout) == 4
    assert time.perf_counter() - start < 1


def common_size(a: Layout, b: Layout) -> int:
    """The size of the largest R that both take to 0, 1, 2, ..."""
    domain = min(size(a), size(b))
    shared = [x if (x := value(a, i)) == value(b, i) else -1 for i in range(domain)]
    best = 1

    def extend(known: list[int]) -> None:
        nonlocal best
        n = len(known)
        best = max(best, n)
        for step in [i for i, x in enumerate(shared) if x == n]:
            longer = list(known)
            for c in range(1, domain):
                block = [v + c * step for v in known]
                if any(v >= domain or shared[v] != c * n + i for i, v in enumerate(block)):
                    break
                longer += block
                extend(longer)

    extend([0])
    return best


def check_common(a: Layout, b: Layout) -> None:
    result = max_common_layout(a, b)
    places = values(result)
    assert all(0 <= place < min(size(a), size(b)) for place in places)
    assert [value(a, i) for i in places] == [value(b, i) for i in places] == list(range(len(places)))
    assert size(result) == max_common_vector(a, b) == common_size(a, b), f"{a} and {b}: {result}"


def test_random_common_layouts_are_common_and_the_largest() -> None:
    rng = random.Random(3)
    for number in range(600):
        a = random_layout(rng, negative=number % 7 == 0)
        check_common(a, a if number % 5 == 0 else random_layout(rng))


@pytest.mark.slow
def test_five_thousand_random_common_layouts_and_nullspaces_are_right() -> None:
    rng = random.Random(4)
    for number in range(5000):
        a = random_layout(rng, negative=number % 7 == 0)
        check_common(a, a if number % 5 == 0 else random_layout(rng))
        check_nullspace(a)


@given(compact_layouts(modes=3, extents=(1, 2, 4)), compact_layouts(modes=3, extents=(1, 2, 4)))
def test_any_common_layout_is_common_and_the_largest(a: Layout, b: Layout) -> None:
    check_common(a, b)


def check_nullspace(layout: Layout) -> None:
    zeros = [i for i, x in enumerate(values(layout)) if x == 0]
    try:
        result = nullspace(layout)
    except LayoutError:
        assert min(leaves(layout.stride)) < 0 < max(leaves(layout.stride))
        assert not is_layout(zeros)
        return
    assert values(result) == zeros


@given(layouts(modes=3))
def test_the_nullspace_is_every_index_sent_to_zero_in_order(layout: Layout) -> None:
    check_nullspace(layout)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(-8, 12)), min_size=1, max_size=4))
def test_modes_collide_exactly_if_two_coordinates_share_an_offset(modes: list[tuple[int, int]]) -> None:
    points = list(cartesian(*[range(s) for s, _ in modes]))
    offsets = [sum(c * d for c, (_, d) in zip(point, modes, strict=True)) for point in points]
    hit = collision(modes)
    assert (hit is None) == (len(set(offsets)) == len(offsets))
    if hit is not None:
        assert any(hit)
        assert all(abs(c) < s for c, (s, _) in zip(hit, modes, strict=True))
        assert sum(c * d for c, (_, d) in zip(hit, modes, strict=True)) == 0


@given(
    st.integers(1, 3).flatmap(
        lambda n: st.tuples(
            st.lists(st.lists(st.integers(-4, 4), min_size=n, max_size=n), min_size=1, max_size=4),
            st.lists(st.integers(-3, 3), min_size=n, max_size=n),
        )
    )
)
def test_integer_systems_that_have_a_solution_are_solved(case: tuple[list[list[int]], list[int]]) -> None:
    rows, x = case
    wanted = [sum(a * b for a, b in zip(row, x, strict=True)) for row in rows]
    found = solve_integers(rows, wanted)
    assert found is not None
    assert [sum(a * b for a, b in zip(row, found, strict=True)) for row in rows] == wanted


def test_integer_systems_without_a_solution_are_refused() -> None:
    assert solve_integers([[2, 4]], [1]) is None
    assert solve_integers([[1, 0], [1, 0]], [1, 2]) is None
    assert solve_integers([[2, 0], [0, 3]], [4, 5]) is None


@given(layouts())
def test_the_span_of_a_complement_continues_the_layout(layout: Layout) -> None:
    try:
        gaps = complement(layout)
    except LayoutError:
        return
    if min(leaves(layout.stride)) >= 0:
        assert cosize(gaps) <= cosize(layout)


def check_inverses_of_swizzled_layouts(seed: int, cases: int) -> None:
    rng = random.Random(seed)
    found = {"left": 0, "right": 0}
    for _ in range(cases):
        swizzle = Swizzle(rng.randint(0, 2), rng.randint(0, 2), rng.choice((2, 3, -2, -3)))
        layout = SwizzledLayout(swizzle, 0, random_layout(rng))
        if size(layout) > 64:
            continue
        offsets = [layout(i) for i in range(size(layout))]
        try:
            inverse = left_inverse(layout)
        except LayoutError as error:
            assert str(layout.layout) in str(error)  # noqa: PT017
        else:
            found["left"] += 1
            assert [inverse(x) for x in offsets] == list(range(len(offsets)))
        try:
            inverse = right_inverse(layout)
        except LayoutError:
            assert len(set(offsets)) < len(offsets)  # one-to-one is always decided
        else:
            found["right"] += 1
            places = [inverse(i) for i in range(size(inverse))]
            assert [offsets[x] for x in places] == list(range(len(places)))
    assert min(found.values()) > cases // 5


def test_inverses_of_swizzled_layouts_undo_swizzle_and_layout() -> None:
    check_inverses_of_swizzled_layouts(7, 300)


@pytest.mark.slow
def test_inverses_of_five_thousand_swizzled_layouts() -> None:
    check_inverses_of_swizzled_layouts(8, 5000)


def test_inverses_of_tiles_in_shared_memory() -> None:
    tile = compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1)))
    for inverse in (left_inverse(tile), right_inverse(tile)):
        # The row's bits 6-8 of an offset are bits 0-2 of the index, the column's bits 3-5 are bits 6-8 there.
        assert inverse == compose(Swizzle(3, 0, -6), Layout((64, 8), (8, 1)))
        assert [inverse(tile(i)) for i in range(512)] == list(range(512))
    with pytest.raises(LayoutError, match="offset 8"):
        left_inverse(SwizzledLayout(Swizzle(3, 3, 3), 8, Layout((8, 64), (64, 1))))
    with pytest.raises(LayoutError, match="swizzled"):
        complement(tile, 1024)


def test_refused_complements_show_two_sums_of_one_value() -> None:
    with pytest.raises(LayoutError, match="the indices 4 and 2 both have the offset 2"):
        complement(Layout((4, 2), (1, 2)), 16)
    with pytest.raises(LayoutError, match=r"3 \+ 1 and 4 \+ 0 are both 4"):
        complement(Layout((3, 2), (2, 3)), 16)


@given(st.sampled_from([(1, 0, 3), (2, 1, 3), (3, 3, 3), (1, 2, -2)]), layouts(modes=3, strides=(0, 1, 2, 4, 8, 16)))
def test_common_layouts_of_swizzled_layouts_are_the_largest(bms: tuple[int, int, int], layout: Layout) -> None:
    if size(layout) > 64:
        return
    other = compose(Swizzle(*bms), layout)
    common = max_common_layout(other, layout)
    places = values(common)
    assert [layout(x) for x in places] == [other(x) for x in places] == list(range(len(places)))
    assert len(places) == max_common_vector(layout, other)
    agreed = [x if x == other(i) else -1 for i, x in enumerate(values(layout))]
    first = next((i for i in range(len(agreed) + 1) if i not in agreed), 0)
    assert len(places) <= max(1, first)


def test_left_inverses_of_enormous_layouts_with_negative_strides_take_no_time() -> None:
    layout = Layout((2**33, 2), (1, -(2**33)))
    inverse = left_inverse(layout)
    assert [inverse(layout(i)) for i in (0, 1, 2**33, 2**34 - 1)] == [0, 1, 2**33, 2**34 - 1]
    start = time.process_time()
    with pytest.raises(LayoutError):
        left_inverse(Layout((100, 10**9), (3, -301)))
    assert time.process_time() - start < 5
