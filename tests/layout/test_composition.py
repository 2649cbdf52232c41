"""compose: R(i) == a(b(i)), R's shape refines b's, and LayoutError exactly where no such layout exists."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_definitions import (
    compact_layouts,
    composition_exists,
    count,
    is_layout,
    layouts,
    random_layout,
    refines,
    value,
    values,
)

from stridewright.layout import E, Layout, LayoutError, coalesce, compose, size
from stridewright.layout.carries import first_break, largest_fraction_below, largest_residue, place_of_largest


def check(a: Layout, b: Layout) -> bool:
    """Holds one composition to the definition; True where there is one."""
    try:
        result = compose(a, b)
    except LayoutError:
        assert not composition_exists(a, b), f"needlessly refused: {a} o {b}"
        return False
    assert refines(b.shape, result.shape), f"{a} o {b} = {result} does not refine"
    assert values(result) == [value(a, value(b, i)) for i in range(size(b))], f"{a} o {b} = {result}"
    return True


def random_pair(rng: random.Random, number: int) -> tuple[Layout, Layout]:
    """Mostly ordinary layouts; every fifth pair is built so that weights cancel."""
    if number % 5:
        return random_layout(rng, negative=number % 4 == 0), random_layout(rng, negative=number % 3 == 0)
    shape = tuple(rng.choice((2, 2, 3, 4)) for _ in range(3))
    weight = rng.choice((1, 2, 3, -2, 5))
    first = rng.randint(-3, 5)
    second = shape[0] * first + weight
    third = shape[1] * second + rng.choice((-weight, -weight, weight, -2 * weight))
    k = rng.randint(1, 3)
    b = Layout(tuple(rng.choice((2, 3, 4, 6, 8)) for _ in range(k)), tuple(rng.randint(0, 12) for _ in range(k)))
    return Layout(shape, (first, second, third)), b


def run(seed: int, cases: int) -> tuple[int, int]:
    rng = random.Random(seed)
    done = sum([check(*random_pair(rng, number)) for number in range(cases)])
    return done, cases - done


def test_random_compositions_are_right_or_impossible() -> None:
    composed, refused = run(1, 2000)
    assert composed > 1000
    assert refused > 100


@pytest.mark.slow
def test_twenty_thousand_random_compositions_are_right_or_impossible() -> None:
    composed, refused = run(2, 20_000)
    assert composed > 10_000
    assert refused > 1_000


@given(layouts(modes=3), layouts(modes=3, extents=(1, 2, 3, 4, 6)))
def test_any_composition_is_right_or_impossible(a: Layout, b: Layout) -> None:
    check(a, b)


@given(compact_layouts(modes=3), compact_layouts(modes=2), st.data())
def test_composition_is_associative_where_it_is_defined(a: Layout, b: Layout, data: st.DataObject) -> None:
    c = data.draw(st.sampled_from([Layout(size(b)), Layout(max(1, size(b) // 2), 2), Layout(1, 0)]))
    try:
        left = compose(compose(a, b), c)
        right = compose(a, compose(b, c))
    except LayoutError:
        return
    assert [left(i) for i in range(size(c))] == [right(i) for i in range(size(c))]


@given(layouts())
def test_the_identity_is_neutral(a: Layout) -> None:
    assert values(compose(a, Layout(size(a)))) == values(a)
    assert coalesce(compose(Layout(size(a)), a)) == coalesce(a)


def test_what_a_layout_is_needs_no_more_than_its_first_breaks() -> None:
    assert is_layout([0, 1, 10, 11])
    assert not is_layout([0, 1, 10, 12])
    assert not is_layout([0, 6, 7, 8, 9, 15])


def test_a_refusal_names_both_layouts_the_modes_and_a_true_counterexample() -> None:
    a, b = Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3))
    with pytest.raises(LayoutError) as caught:
        compose(a, b)
    text = str(caught.value)
    for part in (str(a), str(b), "3:2", "2:3"):
        assert part in text
    along_first, along_second = map(int, re.search(r"\((\d) along 3:2, (\d) along 2:3\)", text).groups())  # type: ignore[union-attr]
    x = 2 * along_first + 3 * along_second
    found, wanted = map(int, re.search(r"is (\d+) there, while the modes apart add up to (\d+)", text).groups())  # type: ignore[union-attr]
    assert found == value(a, x)
    assert wanted == along_first * value(a, 2) + along_second * value(a, 3) != found


def test_a_refusal_of_one_mode_names_where_it_breaks() -> None:
    with pytest.raises(LayoutError, match=r"mode 0 \(4:2\).*does not divide 6") as caught:
        compose(Layout((4, 6, 8), (2, 3, 5)), Layout(6, 3))
    assert "(4,6,8):(2,3,5)" in str(caught.value)
    assert "6:3" in str(caught.value)


def test_tuples_nones_and_ints_compose_by_mode() -> None:
    a = Layout((8, 8), (8, 1))
    assert compose(a, (4, None)) == Layout((4, 8), (8, 1))
    assert compose(a, (Layout(2, 4),)) == Layout((2, 8), (32, 1))
    assert compose(a, None) == a
    assert compose(a, 4) == Layout(4, 8)
    assert compose(a, [4, (2,)]) == Layout((4, (2,)), (8, (1,)))
    for wrong in ((1, 2, 3), 1.5, "4", (4, 4.0), True):
        with pytest.raises(LayoutError):
            compose(a, wrong)


@pytest.mark.parametrize("scale", [2**20, 2**40, 2**70])
def test_huge_sizes_are_decided_at_once(scale: int) -> None:
    start = time.perf_counter()
    a = Layout((scale, 4, scale), (4, 1, 4 * scale))
    b = Layout((scale * 4, scale), (1, 4 * scale))
    result = compose(a, b)
    for i in (0, 1, scale - 1, scale, 4 * scale + 3, size(b) - 1):
        assert value(result, i) == value(a, value(b, i))
    with pytest.raises(LayoutError):
        compose(a, Layout((scale + 1, 3), (1, scale // 2)))
    with pytest.raises(LayoutError):
        compose(Layout((scale, scale), (1, scale + 1)), Layout((scale // 2, scale), (2, scale - 1)))
    assert time.perf_counter() - start < 1


def test_huge_carries_that_cancel_are_seen_to_cancel_or_refused_as_undecided() -> None:
    # Breaks at 2**20 and 2**21 of opposite weights: a step that passes one passes both.
    n = 2**20
    a = Layout((n, 2, n), (1, n + 5, 2 * n + 10 - 5))
    b = Layout((2, 2), (3 * n // 2, 3 * n // 2))
    result = compose(a, b)
    assert values(result) == [value(a, value(b, i)) for i in range(4)]


def test_negative_steps_read_a_layout_below_zero_along_its_last_mode() -> None:
    assert compose(Layout(8, 3), Layout(4, -1)) == Layout(4, -3)
    a = Layout((4, 8), (8, 1))
    assert compose(a, Layout(2, -1)) == Layout(2, value(a, -1))
    with pytest.raises(LayoutError):
        compose(Layout((4, 8), (1, 10)), Layout(4, -1))


def test_basis_strides_pass_through() -> None:
    coordinates = Layout((8, 16), (E(0), E(1)))
    assert compose(coordinates, Layout((4, 4), (2, 8))) == Layout((4, 4), (2 * E(0), E(1)))
    assert compose(Layout((4, 8), (E(0), 4 * E(0))), Layout(32)) == Layout(32, E(0))


@settings(max_examples=200)
@given(st.integers(1, 60), st.integers(0, 200), st.integers(1, 70))
def test_the_largest_residue_is_the_largest(modulus: int, step: int, n: int) -> None:
    step %= modulus
    every = [step * c % modulus for c in range(n)]
    assert largest_residue(step, n, modulus) == max(every)
    assert every[place_of_largest(step, n, modulus)] == max(every)


@settings(max_examples=200)
@given(st.integers(1, 60), st.integers(0, 200), st.integers(1, 70))
def test_the_fraction_below_gives_the_same_floors(q: int, p: int, bound: int) -> None:
    p %= q
    u, v = largest_fraction_below(p, q, bound)
    assert v <= bound
    assert all(p * c // q == u * c // v for c in range(bound + 1))


@settings(max_examples=200)
@given(st.integers(1, 40), st.lists(st.sampled_from((1, 2, -1, -2, 3)), min_size=1, max_size=3), st.data())
def test_the_first_break_is_the_first(step: int, weights: list[int], data: st.DataObject) -> None:
    breaks, p = [], 1
    for w in weights:
        p *= data.draw(st.integers(2, 4))
        breaks.append((p, w))
    n = data.draw(st.integers(1, 60))
    sums = [sum(w * (step % p * c // p) for p, w in breaks) for c in range(n)]
    assert first_break(step, tuple(breaks), n) == next((c for c, x in enumerate(sums) if x), n)


def test_count_is_the_number_of_coordinates() -> None:
    assert count(((2, 3), 4)) == 24
