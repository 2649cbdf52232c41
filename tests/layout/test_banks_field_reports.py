"""Group f of the field reports: bank conflicts that people met, and the swizzles that mend them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stridewright.layout import Layout, Swizzle, compose
from stridewright.layout.banks import (
    Access,
    NoSwizzleError,
    bank_report,
    report_of_offsets,
    suggest_swizzle,
    swizzle_search,
)
from stridewright.layout.hardware import swizzle_mode, wgmma_d_layout


def degree(layout: Any, access: Access) -> float:
    return bank_report(layout, access).ratio


def column(rows: int, element_bytes: int = 4) -> Access:
    return Access(4, lanes=[(i, 0) for i in range(rows)], element_bytes=element_bytes)


@pytest.mark.parametrize(("stride", "ways"), [(32, 32), (64, 32), (16, 16), (33, 1)])
def test_f01_a_column_of_floats(stride: int, ways: int) -> None:
    assert degree(Layout((32, 16), (stride, 1)), column(32)) == ways


@pytest.mark.parametrize(("swizzle", "ways"), [((5, 0, 5), 1), ((3, 0, 5), 4), ((2, 0, 5), 8)])
def test_f01_a_swizzled_column_of_floats(swizzle: tuple[int, int, int], ways: int) -> None:
    assert degree(compose(Swizzle(*swizzle), Layout((32, 32), (32, 1))), column(32)) == ways


def test_f03_a_contiguous_16_byte_store_is_perfect() -> None:
    report = bank_report(Layout(32, 16), Access(16, op="st"))
    assert (report.wavefronts, report.ideal, report.ratio) == (4, 4, 1.0)


@pytest.mark.parametrize(("swizzle", "ways"), [(None, 8), ((3, 3, 4), 1), ((3, 3, 3), 2)])
def test_f04_ldmatrix_of_a_transposed_tile(swizzle: tuple[int, int, int] | None, ways: int) -> None:
    plain = Layout((128, 8), (1, 128))
    tile = plain if swizzle is None else compose(Swizzle(*swizzle), plain)
    for chunk in range(16):
        rows = Access(16, lanes=[(8 * chunk, k) for k in range(8)], op="ldmatrix", element_bytes=2)
        assert degree(tile, rows) == ways


@pytest.mark.parametrize(
    ("pitch", "swizzle", "ways"),
    [
        (128, None, 8), (64, None, 4), (32, None, 2), (144, None, 1),
        (128, (3, 4, 3), 1), (64, (2, 4, 3), 1), (32, (1, 4, 3), 1),
    ],
)  # fmt: skip
def test_f07_ldmatrix_rows(pitch: int, swizzle: tuple[int, int, int] | None, ways: int) -> None:
    plain = Layout((8, pitch), (pitch, 1))
    tile = plain if swizzle is None else compose(Swizzle(*swizzle), plain)
    assert degree(tile, Access(16, lanes=[(row, 0) for row in range(8)], op="ldmatrix")) == ways


@pytest.mark.parametrize(("swizzle", "ways"), [(None, 2), ((3, 2, 3), 1)])
def test_f09_a_column_major_tile_read_by_rows(swizzle: tuple[int, int, int] | None, ways: int) -> None:
    plain = Layout((8, 8), (1, 8))
    tile = plain if swizzle is None else compose(Swizzle(*swizzle), plain)
    row = Access(4, lanes=[(0, j) for j in range(8)], element_bytes=4)
    assert degree(tile, row) == ways


def accumulator_store(pitch: int, element_bytes: int, swizzle: tuple[int, int, int] | None = None) -> float:
    """One warp stores register pair 0 of a wgmma accumulator: lane t holds row t/4, columns 2*(t%4) and the next."""
    fragment = wgmma_d_layout(8)
    plain: Any = Layout((64, 8), (pitch, element_bytes))
    tile = plain if swizzle is None else compose(Swizzle(*swizzle), plain)
    places = [int(fragment(lane, 0)) for lane in range(32)]
    lanes = [(place % 64, place // 64) for place in places]
    return degree(tile, Access(2 * element_bytes, lanes=lanes, op="st"))


@pytest.mark.parametrize(
    ("pitch", "element_bytes", "swizzle", "ways"),
    [
        (256, 2, None, 8), (272, 2, None, 1), (128, 2, None, 8), (64, 2, None, 4), (128, 2, (3, 4, 3), 1),
        (256, 4, None, 4), (272, 4, None, 2), (288, 4, None, 1),
    ],
)  # fmt: skip
def test_f10_epilogue_stores(pitch: int, element_bytes: int, swizzle: Any, ways: int) -> None:
    assert accumulator_store(pitch, element_bytes, swizzle) == ways


def ldmatrix_tile_reads() -> list[Access]:
    """All ldmatrix rows of 8 of a (64, 64) tile of halves."""
    return [
        Access(16, lanes=[(8 * i + r, 8 * c) for r in range(8)], op="ldmatrix", element_bytes=2)
        for i in range(8)
        for c in range(8)
    ]


def test_f12_the_search_finds_the_128_byte_swizzle() -> None:
    tile = Layout((64, 64), (64, 1))
    accesses = [*ldmatrix_tile_reads(), Access(16, op="tma", element_bytes=2)]
    assert suggest_swizzle(tile, accesses) == Swizzle(3, 3, 3)
    in_bytes = Layout((64, 64), (128, 2))
    byte_accesses = [Access(a.bytes, a.lanes, a.op) for a in accesses]
    assert suggest_swizzle(in_bytes, byte_accesses) == Swizzle(3, 4, 3)
    assert swizzle_mode("128B").element_parameters(16) == (3, 3, 3)


def test_f12_the_smallest_swizzle_without_the_copy_engine_is_the_same_here() -> None:
    assert suggest_swizzle(Layout((64, 64), (64, 1)), ldmatrix_tile_reads()) == Swizzle(3, 3, 3)


def test_f13_two_lanes_of_one_word_do_not_conflict() -> None:
    report = bank_report(Layout(32, 1), Access(2, op="st", element_bytes=2))
    assert (report.wavefronts, report.ratio) == (1, 1.0)


def test_f18_bits_7_to_9_go_into_bits_4_to_6() -> None:
    swizzle = Swizzle(3, 4, 3)
    assert (swizzle.source_mask, swizzle.target_mask) == (0b111 << 7, 0b111 << 4)
    rows = [swizzle(128 * row) for row in range(8)]
    assert rows == [128 * row + 16 * row for row in range(8)]


# The layout facts' table: fp16 tile of 64-element rows, one ldmatrix phase, swizzles in element units.
@pytest.mark.parametrize(("swizzle", "ways"), [((1, 3, 3), 4), ((2, 3, 3), 2), ((3, 3, 3), 1), ((3, 4, 3), 2)])
def test_a_byte_swizzle_misused_on_elements_leaves_conflicts(swizzle: tuple[int, int, int], ways: int) -> None:
    tile = compose(Swizzle(*swizzle), Layout((8, 64), (64, 1)))
    assert degree(tile, Access(16, lanes=[(r, 0) for r in range(8)], op="ldmatrix", element_bytes=2)) == ways


def kept_whole(plain: Layout, tile: Any, access: Access) -> bool:
    """Whether every lane's elements still lie one after another."""
    count = access.bytes // access.element_bytes
    starts = [(plain(lane), tile(lane)) for lane in access.lanes or () if lane is not None]  # type: ignore[union-attr]
    return all(tile.swizzle(a + i) == b + i for a, b in starts for i in range(count))


def brute_force_best(layout: Layout, accesses: list[Access], limit: int = 8) -> int:
    """The fewest wavefronts over all swizzles with small parameters, by applying each to the layout itself."""
    best = sum(bank_report(layout, access).wavefronts for access in accesses)
    for bits in range(1, limit):
        for base in range(limit):
            for shift in [*range(bits, limit), *range(-limit + 1, -bits + 1)]:
                tile = compose(Swizzle(bits, base, shift), layout)
                if not all(kept_whole(layout, tile, access) for access in accesses):
                    continue
                try:
                    total = sum(bank_report(tile, access).wavefronts for access in accesses)
                except ValueError:
                    continue
                best = min(best, total)
    return best


PROBLEMS: list[tuple[Layout, list[Access]]] = [
    (Layout((16, 16), (16, 1)), [Access(4, lanes=[(i, 0) for i in range(16)], element_bytes=4)]),
    (
        Layout((32, 32), (32, 1)),
        [column(32), Access(4, lanes=[(0, j) for j in range(32)], element_bytes=4)],
    ),
    (Layout((8, 32), (32, 1)), [Access(8, lanes=[(i % 8, 2 * (i // 8)) for i in range(32)], element_bytes=4)]),
    (
        Layout(64, 3),
        [Access(4, lanes=list(range(32)), element_bytes=4), Access(4, lanes=list(range(0, 64, 2)), element_bytes=4)],
    ),
]


@pytest.mark.parametrize(("layout", "accesses"), PROBLEMS, ids=range(len(PROBLEMS)))
def test_the_search_is_as_good_as_brute_force(layout: Layout, accesses: list[Access]) -> None:
    search = swizzle_search(layout, accesses)
    assert search.best_wavefronts == brute_force_best(layout, accesses)
    if search.swizzle is not None:
        tile = compose(Swizzle(*search.swizzle), layout)
        assert all(bank_report(tile, access).ratio == 1 for access in accesses)


def test_rows_and_columns_of_floats_need_five_bits() -> None:
    rows = Access(4, lanes=[(0, j) for j in range(32)], element_bytes=4)
    search = swizzle_search(Layout((32, 32), (32, 1)), [column(32), rows])
    assert search.swizzle == (5, 0, 5)


def test_where_no_swizzle_helps_it_is_proved() -> None:
    # 33 words in different accesses, every two of which must differ in their bank: pigeonhole.
    impossible = [Access(4, lanes=[128 * i, 128 * j]) for i in range(33) for j in range(i)]
    with pytest.raises(NoSwizzleError, match="no swizzle makes all accesses ideal") as caught:
        suggest_swizzle(Layout(8192, 1), impossible)
    assert caught.value.search.tried > 10
    assert caught.value.search.best_wavefronts > caught.value.search.ideal


def test_an_access_wider_than_the_swizzles_unit_is_kept_whole() -> None:
    search = swizzle_search(Layout((8, 32), (32, 1)), [Access(16, lanes=[(i, 0) for i in range(8)], element_bytes=4)])
    assert search.swizzle is not None
    assert search.swizzle[1] >= 2


def test_nothing_to_mend_is_the_identity() -> None:
    assert suggest_swizzle(Layout(32, 1), Access(4, element_bytes=4)) == Swizzle(0, 0, 0)


def test_units_must_agree_and_something_must_be_read() -> None:
    with pytest.raises(ValueError, match="units"):
        swizzle_search(Layout(32, 1), [Access(4), Access(4, element_bytes=4)])
    with pytest.raises(ValueError, match="nothing to make ideal"):
        swizzle_search(Layout(32, 1), [Access(16, op="tma")])


def test_equal_addresses_share_a_word() -> None:
    assert report_of_offsets([0] * 32, Access(16)).wavefronts == 2
    assert report_of_offsets([0] * 32, Access(16, op="st")).wavefronts == 4


@pytest.mark.slow
def test_the_search_is_as_good_as_brute_force_on_random_accesses() -> None:
    rng = random.Random(5)
    for _ in range(25):
        rows, pitch, element = rng.choice([4, 8, 16, 32]), rng.choice([8, 16, 24, 32, 40]), rng.choice([2, 4])
        accesses = []
        for _ in range(rng.randint(1, 3)):
            size = rng.choice([4, 8, 16])
            n = size // element
            at = [(i % rows, i // rows * n % pitch // n * n) for i in range(32)]
            if rng.random() < 0.3:
                at = [(rng.randrange(rows), rng.randrange(pitch // n) * n) for _ in range(32)]
            accesses.append(Access(size, at, rng.choice(["ld", "st"]), element))
        layout = Layout((rows, pitch), (pitch, 1))
        search = swizzle_search(layout, accesses)
        assert search.best_wavefronts == brute_force_best(layout, accesses)
