"""The numbers in the pictures are the library's, read back out of the SVG."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from stridewright.layout import Layout, LayoutError, Swizzle, compose, cosize, dimension, size
from stridewright.layout.banks import Access, bank_report, swizzle_search
from stridewright.layout.draw import (
    access_map,
    algebra_strip,
    atlas,
    bank_map,
    descriptor_view,
    fragment_view,
    layout_card,
    shared_memory_map,
    swizzle_atlas,
    swizzle_bits,
    swizzle_sliders,
    tensor_map_view,
    tensor_memory_view,
    tile_order,
    tiles_touched,
)
from stridewright.layout.draw.grid import coordinate
from stridewright.layout.hardware import TensorMap, matrix_descriptor, smem_tile, wgmma_d_layout
from stridewright.layout.hardware.tensor_map_driver import driver_arguments
from stridewright.layout.hardware.tensor_memory_moves import tensor_memory_access

from .gallery import CHUNK_COLUMN, CHUNKS, COLUMN, FLOATS, GROUPED, HALVES, LDMATRIX, PARTS, ROW, SHARED_WORDS
from .reading import elements, label_of_cells, overlaps, root

DATA = Path(__file__).parents[2] / "data"

LAYOUTS: list[Any] = [
    Layout((4, 8), (8, 1)),
    Layout((4, (2, 4)), (2, (1, 8))),
    Layout(((2, 2), (2, 3)), ((1, 12), (6, 2))),
    Layout((3, 5), (0, 7)),
    Layout((4, 8), (-1, 4)),
    compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))),
    Layout(40, 3),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_cards_cells_are_the_layouts_offsets(layout: Any) -> None:
    cells = label_of_cells(layout_card(layout))
    assert len(cells) == size(layout)
    for cell, label in cells:
        place, offset = cell.tip.split(": ")
        assert label == offset
        coordinates = json.loads(place.replace("(", "[").replace(")", "]"))
        given = (
            tuple(tuple(c) if isinstance(c, list) else c for c in coordinates)
            if isinstance(coordinates, list)
            else coordinates
        )
        assert int(offset) == layout(given)


def test_a_cards_facts_are_the_librarys() -> None:
    layout = Layout((3, 5), (0, 7))
    top = root(layout_card(layout))
    assert int(top.attrib["data-size"]) == size(layout)
    assert int(top.attrib["data-cosize"]) == cosize(layout)
    assert top.attrib["data-injective"] == "no"
    assert root(layout_card(Layout((3, 5), (5, 1)))).attrib["data-injective"] == "yes"


@pytest.mark.parametrize(
    ("layout", "injective"),
    [
        (Layout((4, 8), (-8, 1)), "yes"),
        (Layout((2, 2), (2, 3)), "yes"),
        (Layout((3, 3), (2, 3)), "yes"),
        (Layout((4, 3), (2, 3)), "no"),
        (Layout((4, 1), (1, 0)), "yes"),
        (compose(Swizzle(1, 0, 1), Layout((2, 2), (1, 0))), "no"),
        (Layout((1 << 20, 1 << 20), (1, 1 << 20)), "yes"),
    ],
    ids=str,
)
def test_injective_is_said_by_definition(layout: Any, injective: str) -> None:
    if size(layout) < 100:
        assert (len({layout(i) for i in range(size(layout))}) == size(layout)) == (injective == "yes")
    assert root(layout_card(layout)).attrib["data-injective"] == injective


def test_a_highlighted_slice_is_outlined() -> None:
    drawing = layout_card(Layout((4, 8), (8, 1)), highlight=(2, None))
    marks = elements(drawing, "rect", "mark")
    assert len(marks) == 8
    assert len({mark.y for mark in marks}) == 1
    marked = {
        label
        for cell, label in label_of_cells(drawing)
        if any(abs(cell.x - m.x) < 2 and abs(cell.y - m.y) < 2 for m in marks)
    }
    assert marked == {str(16 + j) for j in range(8)}


def test_a_highlight_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LayoutError):
        layout_card(Layout((4, 8)), highlight=(1, 2, None))


def test_coordinates_are_colexicographic() -> None:
    shape = (4, (2, 3))
    assert [coordinate(i, shape) for i in (0, 1, 4, 8, 23)] == [
        (0, (0, 0)),
        (1, (0, 0)),
        (0, (1, 0)),
        (0, (0, 1)),
        (3, (1, 2)),
    ]


@pytest.mark.parametrize("swizzle", [None, Swizzle(3, 3, 3)])
def test_a_bank_map_puts_every_element_into_its_bank(swizzle: Swizzle | None) -> None:
    layout: Any = Layout((8, 64), (64, 1)) if swizzle is None else compose(swizzle, Layout((8, 64), (64, 1)))
    seen = 0
    for cell in elements(bank_map(layout, 2), "rect", "cell"):
        found = re.fullmatch(r"\((\d+),(\d+)\) \.\. \((\d+),(\d+)\) at byte (\d+), bank (\d+), line (\d+)", cell.tip)
        assert found
        row, column, row_2, column_2, byte, bank, line = map(int, found.groups())
        assert (2 * layout(row, column), 2 * layout(row_2, column_2)) == (byte, byte + 2)
        assert (bank, line) == (byte // 4 % 32, byte // 128)
        seen += 2
    assert seen == 512


def test_colours_follow_columns() -> None:
    cells = elements(bank_map(CHUNKS, 16, None, 16), "rect", "cell")
    assert [c.classes - {"cell"} for c in cells[:8]] == [{f"k{i}"} for i in range(8)]


@pytest.mark.parametrize(
    ("layout", "access"),
    [
        (FLOATS, COLUMN),
        (FLOATS, ROW),
        (FLOATS, SHARED_WORDS),
        (CHUNKS, CHUNK_COLUMN),
        (HALVES, LDMATRIX),
        (compose(Swizzle(2, 3, 3), HALVES), LDMATRIX),
        (Layout(32, 1), Access(8, lanes=[2 * i for i in range(32)], element_bytes=4)),
        (Layout(32, 1), Access(8, lanes=[0] * 32, element_bytes=4)),
        (Layout(64, 1), Access(4, lanes=[None, 3, None, 40], element_bytes=4)),
    ],
)
def test_an_access_map_counts_as_the_bank_report_does(layout: Any, access: Access) -> None:
    report = bank_report(layout, access)
    drawing = access_map(layout, access)
    top = root(drawing)
    assert int(top.attrib["data-wavefronts"]) == report.wavefronts
    assert int(top.attrib["data-ideal"]) == report.ideal
    assert float(top.attrib["data-ratio"]) == pytest.approx(report.ratio, rel=1e-5)
    phases = elements(drawing, "g", "phase")
    assert [int(g.attributes["data-wavefronts"]) for g in phases] == [p.wavefronts for p in report.phases]
    # The row of counts under each phase, read from the picture, gives the wavefronts again: its largest number.
    counts: list[list[int]] = []
    for cell, label in label_of_cells(drawing):
        if "data-bank" in cell.attributes:
            if cell.attributes["data-bank"] == "0":
                counts.append([])
            assert label == ("" if cell.attributes["data-ways"] == "0" else cell.attributes["data-ways"])
            counts[-1].append(int(cell.attributes["data-ways"]))
    assert [max(row) for row in counts] == [p.wavefronts for p in report.phases]


def test_shared_words_are_marked_apart_from_conflicts() -> None:
    drawing = access_map(FLOATS, SHARED_WORDS)
    marks = [e for e in elements(drawing, "rect", "shared") if "swatch" not in e.classes]
    assert len(marks) == 32
    assert drawing.facts["merged"] == 32
    everyone = access_map(FLOATS, Access(4, lanes=[0] * 32, element_bytes=4))
    assert (everyone.facts["wavefronts"], everyone.facts["conflicting"], everyone.facts["merged"]) == (1, 0, 32)
    assert access_map(FLOATS, COLUMN).facts["merged"] == 0


def measured() -> list[dict[str, Any]]:
    """Patterns of lanes' offsets with the wavefronts that ncu counted on an H200, 60 of them."""
    patterns = json.loads((DATA / "h200" / "banks.json").read_text(encoding="utf-8"))["patterns"]
    known = [p for p in patterns if p["instruction"] in ("ld", "st", "ldmatrix", "stmatrix") and p["active"]]
    return random.Random(5).sample(known, 60)


@pytest.mark.parametrize("pattern", measured(), ids=lambda p: f"{p['instruction']}{p['size']} {p['name']}")
def test_an_access_map_shows_what_the_chip_counted(pattern: dict[str, Any]) -> None:
    lanes = [o if pattern["active"] >> i & 1 else None for i, o in enumerate(pattern["offsets"])]
    if pattern["instruction"].endswith("matrix"):
        # The size is the number of matrices: eight lanes' rows each; the addresses of further lanes are not used.
        access = Access(16, lanes=lanes[: 8 * pattern["size"]], op=pattern["instruction"])
    else:
        access = Access(pattern["size"], lanes=lanes, op=pattern["instruction"])
    drawing = access_map(Layout(1 << 20, 1), access)
    assert int(root(drawing).attrib["data-wavefronts"]) == pattern["wavefronts"]


def test_an_access_without_phases_is_refused() -> None:
    with pytest.raises(LayoutError, match="no phases"):
        access_map(Layout(64, 16), Access(16, lanes=list(range(64)), op="wgmma"))


@pytest.mark.parametrize("parameters", [(3, 4, 3), (2, 0, 3), (1, 2, -4), (0, 4, 3), (5, 0, 5)])
def test_the_bit_diagrams_matrix_is_the_swizzle(parameters: tuple[int, int, int]) -> None:
    swizzle = Swizzle(*parameters)
    drawing = swizzle_bits(swizzle, bits=10)
    ones = [int(e.attributes["data-matrix"]) for e in elements(drawing, "rect") if "data-matrix" in e.attributes]
    assert [matrix_times(ones, address) for address in range(1 << 10)] == [
        swizzle(address) for address in range(1 << 10)
    ]
    assert len(elements(drawing, "g", "xor")) == swizzle.bits


def matrix_times(ones: list[int], address: int) -> int:
    """The matrix as drawn, row by row (row i says which bits before make bit i after), times an address."""
    result = 0
    for i in range(10):
        row = ones[10 * i : 10 * i + 10]
        result |= (sum(one & (address >> j) for j, one in enumerate(row)) & 1) << i
    return result


def test_a_followed_address_is_the_swizzled_one() -> None:
    drawing = swizzle_bits(Swizzle(3, 4, 3), address=0x380)
    assert "bits 7-9 XOR into bits 4-6" in drawing.text()
    bits: dict[float, dict[int, str]] = {}
    for cell, label in label_of_cells(drawing):
        if "data-bit" in cell.attributes:
            bits.setdefault(cell.y, {})[int(cell.attributes["data-bit"])] = label
    before, after = (sum(int(v) << k for k, v in row.items()) for _, row in sorted(bits.items()))
    assert (before, after) == (0x380, Swizzle(3, 4, 3)(0x380))


def test_bits_that_do_not_hold_the_swizzle_are_refused() -> None:
    with pytest.raises(LayoutError, match="must be 10 to 64"):
        swizzle_bits(Swizzle(3, 4, 3), bits=8)
    with pytest.raises(LayoutError, match="power of two"):
        swizzle_bits(Swizzle(3, 4, 3), unit_bytes=3)


@pytest.mark.parametrize(
    ("layout", "accesses"), [(FLOATS, [COLUMN, ROW]), (HALVES, [LDMATRIX]), (CHUNKS, [CHUNK_COLUMN])]
)
def test_an_atlas_counts_what_each_swizzle_costs(layout: Layout, accesses: list[Access]) -> None:
    shown = 0
    for cell, label in label_of_cells(swizzle_atlas(layout, accesses)):
        swizzle = Swizzle(*map(int, cell.attributes["data-swizzle"].split(",")))
        if cell.attributes["data-wavefronts"]:
            reports = [bank_report(compose(swizzle, layout), access) for access in accesses]
            assert int(label) == sum(r.wavefronts for r in reports) == int(cell.attributes["data-wavefronts"])
            shown += 1
        else:
            assert label == "-"
    assert shown > 10


@pytest.mark.parametrize(
    ("layout", "accesses"), [(FLOATS, [COLUMN, ROW]), (HALVES, [LDMATRIX]), (CHUNKS, [CHUNK_COLUMN])]
)
def test_the_outlined_swizzle_is_the_searchs_and_none_smaller_is_ideal(layout: Layout, accesses: list[Access]) -> None:
    drawing = swizzle_atlas(layout, accesses)
    mark = elements(drawing, "rect", "mark")[0]
    outlined = [c for c, _ in label_of_cells(drawing) if abs(c.x - mark.x) < 2 and abs(c.y - mark.y) < 2]
    chosen = tuple(map(int, outlined[0].attributes["data-swizzle"].split(",")))
    assert chosen == swizzle_search(layout, accesses).swizzle
    entries, ideal, _ = atlas(layout, accesses)
    assert min(e.swizzle[0] for e in entries if e.wavefronts == ideal) == chosen[0]


def test_an_atlas_counts_negative_shifts_where_asked() -> None:
    rows = Access(4, lanes=[(i % 8, 4 * (i // 8)) for i in range(32)], element_bytes=4)
    entries, _, _ = atlas(FLOATS, [rows], negative=True)
    below = [e for e in entries if e.swizzle[2] < 0]
    assert len(below) * 2 == len(entries)
    for entry in below:
        assert entry.wavefronts == bank_report(compose(Swizzle(*entry.swizzle), FLOATS), rows).wavefronts


def test_an_atlas_for_the_copy_engine_outlines_a_hardware_mode() -> None:
    drawing = swizzle_atlas(HALVES, [LDMATRIX, Access(16, op="tma", element_bytes=2)])
    assert drawing.facts["smallest"] == "3,3,3"
    assert "the hardware mode 128B" in drawing.text()


def test_an_atlas_of_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(LayoutError, match="among the accesses"):
        swizzle_atlas(HALVES, [Access(16, op="tma", element_bytes=2)])
    with pytest.raises(LayoutError, match="units"):
        swizzle_atlas(HALVES, [COLUMN, LDMATRIX])


@pytest.mark.parametrize(
    ("swizzle", "major", "arch"), [("128B", "k", "sm_90a"), ("none", "mn", "sm_100a"), ("64B", "mn", "sm_90a")]
)
def test_the_descriptors_bits_are_its_word(swizzle: str, major: str, arch: str) -> None:
    tile = smem_tile(swizzle, major, "bf16", 64, 64)
    word = 0
    for cell, label in label_of_cells(descriptor_view(tile, "bf16", arch, major)):
        word |= int(label) << int(cell.attributes["data-bit"])
    assert word == matrix_descriptor(tile, "bf16", arch, major)


def test_a_descriptors_sources_are_steps_of_the_layout() -> None:
    tile = smem_tile("128B", "k", "bf16", 64, 64)
    drawing = descriptor_view(tile)
    assert f"{2 * tile.layout(8, 0)} B" in drawing.text()
    assert int(root(drawing).attrib["data-sbo"]) == 2 * tile.layout(8, 0)


def test_a_tensor_maps_numbers() -> None:
    m = TensorMap("bf16", (256, 128), (512,), (64, 64), swizzle="128B")
    top = root(tensor_map_view(m))
    assert int(top.attrib["data-box-bytes"]) == m.box_bytes
    assert int(top.attrib["data-pitch"]) == m.pitch
    bad = TensorMap("f16", (100, 256), (200,), (64, 64), swizzle="128B")
    drawing = tensor_map_view(bad)
    shown = " ".join(e.text for e in elements(drawing, "text"))
    assert all(str(problem) in shown and str(problem) in drawing.text() for problem in bad.problems())


@pytest.mark.parametrize("n", [8, 16, 32])
def test_a_fragments_cells_are_the_hardware_layouts(n: int) -> None:
    layout = wgmma_d_layout(n)
    seen = {}
    xs: set[float] = set()
    ys: set[float] = set()
    for cell, label in label_of_cells(fragment_view(layout, 64)):
        seen[cell.x, cell.y] = tuple(map(int, label.split(".")))
        xs.add(cell.x)
        ys.add(cell.y)
    columns = {x: i for i, x in enumerate(sorted(xs))}
    rows = {y: i for i, y in enumerate(sorted(ys))}
    assert len(seen) == 64 * n
    for (x, y), (thread, value) in seen.items():
        assert layout(thread, value) == rows[y] + 64 * columns[x]


def test_hovering_a_thread_tells_its_registers() -> None:
    owners = elements(fragment_view(wgmma_d_layout(8), 64), "g", "owner")
    assert len(owners) == 128
    assert owners[5].tip == "thread 5: value 0 (1,2); value 1 (1,3); value 2 (9,2); value 3 (9,3)"


def test_a_tensor_memory_load_is_placed_as_the_library_says() -> None:
    access = tensor_memory_access("16x128b", 2)
    owners = elements(tensor_memory_view(access), "g", "owner")
    for owner in owners:
        thread = int(owner.attributes["data-thread"])
        for register in range(access.register_count):
            lane, column = access.place(thread, register)
            assert f"register {register} ({lane},{column})" in owner.tip


def test_shared_memory_is_to_scale() -> None:
    drawing = shared_memory_map(PARTS, {"tiles of A": 4})
    cells = [e for e in elements(drawing, "rect", "cell") if "data-part" in e.attributes]
    assert [(e.attributes["data-part"], int(e.attributes["data-offset"])) for e in cells][:5] == [
        *(("tiles of A", 16384 * i) for i in range(4)),
        ("tiles of B", 65536),
    ]
    a, b = float(cells[0].attributes["width"]), float(cells[4].attributes["width"])
    assert b / a == pytest.approx(8, rel=0.02)
    assert sum(int(e.attributes["data-bytes"]) for e in cells) == sum(part[2] for part in PARTS)


@pytest.mark.parametrize(
    "parts", [[], [("a", 0, 0)], [("a", 0, 10), ("b", 5, 10)], [("a", 0, 10), ("b", 10, 4), ("c", -4, 2)]]
)
def test_parts_that_make_no_sense_are_refused(parts: list[tuple[str, int, int]]) -> None:
    with pytest.raises(LayoutError):
        shared_memory_map(parts)
    with pytest.raises(LayoutError, match="equal slots"):
        shared_memory_map([("a", 0, 10)], {"a": 3})


def snake(group: int) -> list[tuple[int, int]]:
    """Groups of rows, column by column inside, each second group from right to left."""
    order = []
    for g in range(8 // group):
        columns = range(8) if g % 2 == 0 else reversed(range(8))
        order += [(g * group + r, c) for c in columns for r in (range(group) if c % 2 == 0 else reversed(range(group)))]
    return order


@pytest.mark.parametrize(
    ("order", "touched"),
    [
        ([(r, c) for r in range(8) for c in range(8)], 9.860),
        (GROUPED, 7.018),
        ([(2 * g + r, c) for g in range(4) for c in range(8) for r in range(2)], 7.123),
        (snake(2), 6.596),
    ],
    ids=["row by row", "groups of 4 rows", "groups of 2 rows", "groups of 2 rows back and forth"],
)
def test_tile_orders_touch_what_was_published(order: list[tuple[int, int]], touched: float) -> None:
    assert tiles_touched(order, 8) == pytest.approx(touched, abs=5e-4)
    assert float(root(tile_order(order, 16)).attrib["data-touched"]) == pytest.approx(touched, abs=5e-4)


def test_waves_are_turns_divided_by_processors() -> None:
    drawing = tile_order(GROUPED, 24)
    for cell, label in label_of_cells(drawing):
        assert label == cell.attributes["data-turn"]
        assert cell.tip.startswith(f"turn {label}, wave {int(label) // 24}:")
    assert (drawing.facts["waves"], drawing.facts["last"]) == (3, 16)
    assert len(elements(tile_order(GROUPED, 24, panel=4), "rect", "panel")) == 2


def test_a_layout_is_an_order() -> None:
    by_layout = tile_order(Layout((4, 8, 2), (1, 8, 4)), 16, rows=8)
    assert by_layout.svg() == tile_order(GROUPED, 16).svg()
    with pytest.raises(LayoutError, match="twice"):
        tile_order([(0, 0), (0, 0)], 1)
    with pytest.raises(LayoutError, match="how many rows"):
        tile_order(Layout(4), 1)


@pytest.mark.parametrize(
    ("operation", "a", "b", "result"),
    [
        ("compose", Layout((4, 6, 1), (2, 3, 0)), Layout(30, 4), "(6,5):(3,0)"),
        ("complement", Layout((2, (2, 2)), (16, (4, 1))), 64, "(2,2,2):(2,8,32)"),
        ("left_inverse", Layout(4, 2), None, "(2,4):(0,1)"),
        ("right_inverse", Layout((3, 4), (1, 0)), None, "3:1"),
        ("logical_product", Layout((2, 5), (5, 1)), 4, "((2,5),4):((5,1),10)"),
        ("coalesce", Layout((2, (1, 6)), (1, (6, 2))), None, "12:1"),
    ],
)
def test_strips_show_the_agreed_results(operation: str, a: Layout, b: Any, result: str) -> None:
    drawing = algebra_strip(operation, a, b)
    assert drawing.facts["result"] == result
    assert drawing.facts["holds"] == "yes"


def test_a_strips_colours_link_result_and_operand() -> None:
    a, b = Layout((4, 8), (8, 1)), Layout((2, 4), (2, 4))
    cells = [(e, label) for e, label in label_of_cells(algebra_strip("compose", a, b)) if "data-row" in e.attributes]

    def row(name: str) -> dict[int, tuple[str, str]]:
        return {
            int(e.attributes["data-position"]): (label, (e.classes - {"cell"}).pop())
            for e, label in cells
            if e.attributes["data-row"] == name
        }

    for i, (label, colour) in row("R").items():
        assert row("A")[b(i)] == (label, colour)
        assert row("B")[i] == (str(b(i)), colour)


def test_what_the_algebra_refuses_is_refused() -> None:
    with pytest.raises(LayoutError):
        algebra_strip("compose", Layout((4, 6, 8), (2, 3, 5)), Layout(6, 3))
    with pytest.raises(LayoutError, match="must be one of"):
        algebra_strip("multiply", Layout(2))
    with pytest.raises(LayoutError, match="two operands"):
        algebra_strip("compose", Layout(2))


def test_sliders_show_the_bit_diagram_or_the_reason() -> None:
    pytest.importorskip("ipywidgets")
    widget = swizzle_sliders()
    assert widget.result.svg() == swizzle_bits(Swizzle(3, 4, 3), address=0x380).svg()
    address, shift = widget.children[3], widget.children[2]
    address.value = 0x100
    assert widget.result.facts["swizzled"] == Swizzle(3, 4, 3)(0x100)
    shift.value = 2
    assert "the bits would overlap" in widget.result


def test_symbolic_sizes_are_refused_in_words() -> None:
    with pytest.raises(LayoutError, match="symbolic sizes"):
        layout_card(Layout((dimension("m"), 4)))


def test_a_tensor_map_shows_what_the_driver_is_told() -> None:
    codes = driver_arguments(TensorMap("bf16", (256, 128), (512,), (64, 64), swizzle="128B"))
    text = tensor_map_view(TensorMap("bf16", (256, 128), (512,), (64, 64), swizzle="128B")).text()
    assert (
        f"data type {codes.dtype}, rank {codes.rank}, interleave {codes.interleave}, swizzle {codes.swizzle}," in text
    )


def test_labels_of_far_lines_are_left_out() -> None:
    drawing = access_map(Layout(32, 1), Access(4, lanes=list(range(32)), element_bytes=128 * 4096))
    assert overlaps(drawing) == []
