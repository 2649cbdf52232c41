"""The questions on which the field disagrees, each with its answer and the reason; and cases reported against other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from layout_definitions import value, values

from stridewright.layout import (
    E,
    Layout,
    LayoutError,
    Swizzle,
    SwizzledLayout,
    blocked_product,
    coalesce,
    complement,
    compose,
    cosize,
    flatten,
    idx2crd,
    in_bounds,
    left_inverse,
    logical_divide,
    logical_product,
    recast,
    right_inverse,
    size,
    tile_to_shape,
    upcast,
    zipped_divide,
)

DATA = Path(__file__).parents[1] / "data"


def L(text: str) -> Layout:
    return Layout.parse(text)


def tuples(value: Any) -> Any:
    return tuple([tuples(v) for v in value]) if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        # A continues past its size by its last mode, even one of extent 1.
        ("(4,6,1):(2,3,0)", "30:4", "(6,5):(3,0)"),
        ("(4,1):(1,0)", "8:1", "(4,2):(1,0)"),
        # Refused by peers although a layout represents it.
        ("(2,2):(2,1)", "2:3", "2:3"),
        ("(4,4):(4,1)", "2:3", "2:12"),
        ("(2,3):(1,2)", "(2,3):(3,1)", "(2,3):(3,1)"),
        ("(10,2):(16,4)", "(3,4):(1,5)", "(3,(2,2)):(16,(80,4))"),
        ("(3,6,2,8):(1000,100,10,1)", "96:3", "(6,2,8):(100,10,1)"),
        ("(8,4):(1,100)", "6:3", "(3,2):(3,101)"),
    ],
)
def test_compositions_that_peers_get_wrong_or_refuse(a: str, b: str, want: str) -> None:
    assert compose(L(a), L(b)) == L(want)
    assert values(L(want)) == [value(L(a), value(L(b), i)) for i in range(size(L(b)))]


@pytest.mark.parametrize(("a", "b"), [("(4,6,8):(2,3,5)", "6:3"), ("(6,2):(1,7)", "(3,2):(2,3)")])
def test_compositions_that_no_layout_represents(a: str, b: str) -> None:
    with pytest.raises(LayoutError):
        compose(L(a), L(b))


def test_the_values_of_the_impossible_compositions() -> None:
    assert [value(L("(4,6,8):(2,3,5)"), 3 * i) for i in range(6)] == [0, 6, 7, 8, 9, 15]
    assert value(L("(6,2):(1,7)"), 2 * 2 + 3) == 8


def test_tiles_that_do_not_divide_are_refused_unless_padded() -> None:
    with pytest.raises(LayoutError):
        logical_divide(L("(6,8):(8,1)"), 4)
    assert logical_divide(L("(6,8):(8,1)"), 4, pad=True) == L("(4,(2,8)):(8,(32,1))")


@pytest.mark.parametrize("text", ["(4,2):(1,2)", "(2,4):(6,2)"])
def test_overlapping_layouts_have_no_complement(text: str) -> None:
    with pytest.raises(LayoutError):
        complement(L(text), 16)
    with pytest.raises(LayoutError):
        complement(L(text))


def test_complement_and_inverses() -> None:
    assert complement(L("(2,(2,2)):(16,(4,1))"), 64) == L("(2,2,2):(2,8,32)")
    assert left_inverse(L("4:2")) == L("(2,4):(0,1)")
    assert left_inverse(L("(2,2):(2,3)")) == L("(2,3):(1,1)")
    assert right_inverse(L("(3,4):(1,0)")) == L("3:1")
    assert right_inverse(L("(2,(8,4)):(0,(0,1))")) == L("4:16")


def test_products() -> None:
    assert logical_product(L("(2,5):(5,1)"), 4) == L("((2,5),4):((5,1),10)")
    assert logical_product(L("(2,2):(4,1)"), 6) == L("((2,2),(2,3)):((4,1),(2,8))")
    assert logical_product(L("(2,2):(4,1)"), 6) == logical_product(L("(2,2):(4,1)"), Layout(6))
    assert blocked_product(L("4:2"), L("2:1")) == L("((4,2)):((2,1))")
    assert str(tile_to_shape(L("(8,64):(64,1)"), (128, 64), order=(1, 0))) == "((8,16),(64,1)):((64,512),(1,0))"


def test_coalesce_by_mode() -> None:
    assert coalesce(L("((2,4),8):((1,2),8)"), profile=(1, 1)) == L("(8,8):(1,8)")


def test_coordinates() -> None:
    assert idx2crd(13, (4, 3)) == (1, 3)
    assert idx2crd(7, (1, (2, 2)), (0, (1, 2))) == (0, (1, 1))


def test_cosize_of_negative_strides_is_the_span() -> None:
    assert cosize(L("(4,8):(-1,4)")) == 32
    assert cosize(L("4:-2")) == 7


def test_none_in_a_tiler_is_a_no_op_that_is_kept() -> None:
    layout = L("(64,50,80):(16000,160,1)")
    assert zipped_divide(layout, (32, None, 40)) == L("((32,1,40),(2,50,2)):((16000,0,1),(512000,160,40))")
    assert logical_divide(layout, (32, None, 40))[1] == layout[1]


def test_swizzles() -> None:
    assert [Swizzle(0, 4, 3)(i) for i in range(3000)] == list(range(3000))
    for wrong in ((3, 4, 2), (2, 3, -1)):
        with pytest.raises(LayoutError):
            Swizzle(*wrong)
    assert Swizzle(2, 0, -2)(0b0110) == 0b0110 ^ 0b1000
    part = compose(Swizzle(3, 4, 3), L("(10,2):(2,1)")).slice(None, 0)
    assert part == SwizzledLayout(Swizzle(3, 4, 3), 0, L("10:2"))


def test_recasts_of_swizzled_layouts() -> None:
    up = upcast(compose(Swizzle(3, 0, 3), L("(8,64):(64,1)")), 2)
    assert up == compose(Swizzle(2, 0, 3), L("(8,32):(32,1)"))
    in_bytes = compose(Swizzle(3, 4, 3), L("(8,128):(128,1)"))
    assert recast(in_bytes, 8, 16) == compose(Swizzle(3, 3, 3), L("(8,64):(64,1)"))
    assert recast(in_bytes, 8, 32) == compose(Swizzle(3, 2, 3), L("(8,32):(32,1)"))


# The vendor's cases, as data


def _case(op: str) -> Any:
    return [case for case in json.loads((DATA / "layout_cases.json").read_text()) if case["op"] == op]


def _layout(pair: Any) -> Layout:
    return Layout(*tuples(pair))


def test_every_recorded_operation_has_a_test_here() -> None:
    known = {"composition", "complement", "logical_product", "recast_smem", "cosize", "zipped_divide"}
    recorded = {case["op"] for case in json.loads((DATA / "layout_cases.json").read_text())}
    assert recorded - known == {"bank_ways_ldmatrix_phase"}  # held to the bank model, in test_banks


def test_recorded_compositions() -> None:
    for case in _case("composition"):
        a, b = map(_layout, case["inputs"])
        if case["expected"] == {"raises": True}:
            with pytest.raises(LayoutError):
                compose(a, b)
        else:
            assert compose(a, b) == _layout((case["expected"]["shape"], case["expected"]["stride"]))


@pytest.mark.parametrize(("op", "call"), [("complement", complement), ("logical_product", logical_product)])
def test_recorded_complements_and_products(op: str, call: Any) -> None:
    for case in _case(op):
        layout, other = case["inputs"]
        assert call(_layout(layout), other) == _layout((case["expected"]["shape"], case["expected"]["stride"]))


def test_recorded_recasts_cosizes_and_divides() -> None:
    for case in _case("recast_smem"):
        given, bits = case["inputs"]
        # The swizzle is that of bytes over a layout of bits: recast the layout from bits, the swizzle from bytes.
        swizzle = recast(Swizzle(*given["swizzle"]), 8, bits)
        assert swizzle == Swizzle(*case["expected"]["swizzle"])
        want = _layout((case["expected"]["shape"], case["expected"]["stride"]))
        assert recast(_layout(given["bits_layout"]), 1, bits) == want
    for case in _case("cosize"):
        assert cosize(_layout(case["inputs"][0])) == case["expected"]
    for case in _case("zipped_divide"):
        tiler = tuples(case["inputs"][1]["tiler"])
        want = _layout((case["expected"]["shape"], case["expected"]["stride"]))
        assert zipped_divide(_layout(case["inputs"][0]), tiler) == want


# Field reports: what users ran into with other libraries


def a01() -> None:
    with pytest.raises(LayoutError, match="mode 0"):
        compose(L("(4,6,8):(2,3,5)"), L("6:3"))


def a03() -> None:
    assert compose(L("(2,3):(1,2)"), L("(2,3):(3,1)")) == L("(2,3):(3,1)")


def a04() -> None:
    assert compose(L("(10,2):(16,4)"), L("(3,4):(1,5)")) == L("(3,(2,2)):(16,(80,4))")


def a06() -> None:
    assert logical_divide(L("(12,32):(1,12)"), L("(4,8):(1,4)")) == L("((4,8),12):((1,4),32)")
    assert zipped_divide(L("(12,32):(1,12)"), (4, 8)) == L("((4,8),(3,4)):((1,12),(4,96))")


def a07() -> None:
    layout = L("(12,(4,8)):(7,(1,30))")
    with pytest.raises(LayoutError):
        zipped_divide(layout, 128)
    assert zipped_divide(layout, 12) == layout


def a09() -> None:
    assert complement(L("4:2"), 8) == L("2:1")


def a10() -> None:
    for text in ("(4,2):(1,2)", "(3,2):(2,3)"):
        with pytest.raises(LayoutError):
            complement(L(text), 16)


def a12() -> None:
    swizzle = Swizzle(3, 4, 3)
    wanted = {8: (3, 4, 3), 16: (3, 3, 3), 32: (3, 2, 3), 4: (3, 5, 3)}
    assert all(recast(swizzle, 8, bits) == Swizzle(*want) for bits, want in wanted.items())


def a13() -> None:
    tile = L("(32,8):(1,32)")
    assert compose(Swizzle(3, 4, 3), tile)(0, 1) == 32
    assert compose(recast(Swizzle(3, 4, 3), 8, 32), tile)(0, 1) == 36
    assert Swizzle(3, 4, 3)(128) == 144


def a15() -> None:
    assert cosize(L("4:-2")) == 7


def a16() -> None:
    assert compose(L("(3,6,2,8):(1000,100,10,1)"), L("96:3")) == L("(6,2,8):(100,10,1)")
    shape = Layout((3, 6, 2, 8))
    # "Shape divided by n" is the shape of what every n-th index visits.
    for n, want in ((3, (6, 2, 8)), (6, (3, 2, 8)), (9, (2, 2, 8)), (72, (4,))):
        reached = compose(Layout((3, 6, 2, 8), (E(0), E(1), E(2), E(3))), Layout(size(shape) // n, n))
        assert flatten(reached).shape == (want if len(want) > 1 else want[0])


def a18() -> None:
    with pytest.raises(LayoutError) as caught:
        recast(Swizzle(3, 3, 3), 8, 6)
    assert "ratio of widths must be a power of two" in str(caught.value)
    assert "\n" not in str(caught.value)


def a19() -> None:
    assert logical_product(L("(2,2):(4,1)"), 6) == L("((2,2),(2,3)):((4,1),(2,8))")


def a21() -> None:
    result = zipped_divide(L("(2,6):(6,1)"), (1, 2))
    assert result.shape == ((1, 2), (2, 3))
    assert result.stride[0][1] == 1
    assert result.stride[1] == (6, 2)
    assert [[[result((0, c), (i, j)) for c in range(2)] for j in range(3)] for i in range(2)] == [
        [[0, 1], [2, 3], [4, 5]],
        [[6, 7], [8, 9], [10, 11]],
    ]


def a22() -> None:
    # Offsets are in elements, so that two types of one width cannot differ: the type does not enter.
    tile = compose(Swizzle(1, 3, 3), L("(64,16):(16,1)"))
    assert [tile(i) for i in range(1024)] == [
        i ^ ((i >> 6 & 1) << 3) for i in [(r % 64) * 16 + r // 64 for r in range(1024)]
    ]


def a24() -> None:
    with pytest.raises(LayoutError):
        logical_divide(L("10:1"), L("4:1"))
    padded = logical_divide(L("10:1"), L("4:1"), pad=True)
    assert padded == L("(4,3):(1,4)")
    assert [i for i in range(size(padded)) if not in_bounds(10, padded(i))] == [10, 11]
    tiles = zipped_divide(L("(10,6):(6,1)"), (4, 4), pad=True)
    assert tiles == L("((4,4),(3,2)):((6,1),(24,4))")
    assert (size(tiles), size(L("(10,6):(6,1)"))) == (96, 60)


def test_every_field_report_has_its_check() -> None:
    reports = [case["id"] for case in json.loads((DATA / "layout_field_reports.json").read_text())]
    assert reports
    for name in reports:
        globals()[name]()
