"""Pictures at their limits: what is cut says so, what cannot be drawn is refused in words, and nothing is claimed wrongly."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from stridewright.layout import E, Layout, LayoutError, Swizzle
from stridewright.layout.banks import Access
from stridewright.layout.draw import (
    access_map,
    algebra_strip,
    atlas,
    atom_view,
    bank_map,
    draw_fragment,
    fragment_view,
    grouped_order,
    layout_card,
    shared_memory_map,
    swizzle_bits,
    tensor_map_view,
    tensor_memory_map,
    tile_order,
)
from stridewright.layout.hardware import TensorMap, accumulator_layout, operand_a_layout, swizzle_mode

from .reading import elements


@pytest.mark.parametrize("highlight", [(5, None), (-1, None), (2, (None, None)), 32, (), "x", (1.5, None)])
def test_a_highlight_outside_the_layout_is_refused(highlight: Any) -> None:
    with pytest.raises(LayoutError):
        layout_card(Layout((4, 8), (8, 1)), highlight=highlight)


def test_the_text_form_marks_the_highlight_too() -> None:
    text = layout_card(Layout((4, 8), (8, 1)), highlight=(2, None)).text()
    assert re.findall(r"\[(\d+)\]", text) == [str(16 + j) for j in range(8)]


def test_a_highlight_of_a_huge_layout_is_counted_without_being_listed() -> None:
    drawing = layout_card(Layout((1 << 20, 1 << 20)), highlight=(3, None))
    assert drawing.facts["highlighted"] == 1 << 20
    assert len(elements(drawing, "rect", "mark")) == 32


def test_the_atlas_names_a_mode_only_where_the_swizzle_is_that_mode() -> None:
    column = Access(4, lanes=[(i, 0) for i in range(32)], element_bytes=4)
    entries, _, _ = atlas(Layout((32, 32), (32, 1)), [column])
    named = {entry.hardware: entry.swizzle for entry in entries if entry.hardware}
    assert set(named) == {"32B", "64B", "128B", "128B_atom_32B", "128B_atom_64B"}
    for name, parameters in named.items():
        mode = swizzle_mode(name)
        assert all(Swizzle(*parameters)(i) * 4 == mode.apply(i * 4) for i in range(1024))


def test_a_large_tile_order_is_cut_and_says_so() -> None:
    drawing = tile_order(grouped_order(100, 100, 8), processors=132, panel=8)
    assert drawing.facts["tiles"] == 10_000
    assert "the first 64 x 64 of 100 x 100 tiles" in drawing.svg()
    assert len(drawing.svg()) < 1_000_000


def test_accumulators_of_every_form_are_drawn_and_cut_where_they_are_too_large() -> None:
    whole = tensor_memory_map(accumulator_layout(128, 256, cta_group=2))
    assert (whole.facts["rows"], whole.facts["columns"], whole.facts["values"]) == (128, 128, 256)
    for m, n, form in ((128, 256, {}), (256, 256, {"cta_group": 2}), (64, 256, {})):
        drawing = tensor_memory_map(accumulator_layout(m, n, **form))
        assert "shown: the first 128 of 256 columns" in drawing.svg()
    text = tensor_memory_map(accumulator_layout(64, 16)).text()
    assert "1024 of 112 x 16 lanes and columns, 64 rows of 16 columns" in text


def test_packed_values_are_not_called_copies() -> None:
    svg = tensor_memory_map(operand_a_layout(128, 16)[0], value_bits=16).svg()
    assert "1024 further values in the same 32-bit columns" in svg
    assert "copies" not in svg


def test_a_strip_says_how_much_of_its_identity_was_checked() -> None:
    long = algebra_strip("coalesce", Layout((1 << 10, 1 << 10)))
    assert "holds for the first 65536 of 1048576" in long.text()
    assert "holds for all 32" in algebra_strip("coalesce", Layout((4, 8))).text()
    with pytest.raises(LayoutError, match="at most 65536"):
        algebra_strip("complement", Layout(4), 1 << 40)


def test_a_map_of_padded_values_counts_the_bytes_of_global_memory() -> None:
    padded = TensorMap("e2m1_padded", (256, 64), (256,), (128, 8), "128B", arch="sm_100a")
    assert tensor_map_view(padded).facts["box-bytes"] == 8 * 128 // 2


REFUSED: dict[str, Callable[[], object]] = {
    "bits of an address below 0": lambda: swizzle_bits(Swizzle(3, 4, 3), address=-1),
    "bits of a float": lambda: swizzle_bits(Swizzle(3, 4, 3), address=1.5),  # type: ignore[arg-type]
    "bits beyond 64": lambda: swizzle_bits(Swizzle(3, 60, 3)),
    "bits of no swizzle": lambda: swizzle_bits(None),  # type: ignore[arg-type]
    "bank map of basis strides": lambda: bank_map(Layout((4, 8), (E(0), E(1))), 2),
    "bank map of a float": lambda: bank_map(Layout((4, 8)), 2.0),  # type: ignore[arg-type]
    "access of no lane": lambda: access_map(Layout(32), Access(4, lanes=[None] * 32)),
    "fragment of no rows": lambda: fragment_view(Layout((32, 4)), rows=0),
    "fragment below 0": lambda: fragment_view(Layout((32, 4), (-1, 32)), rows=8),
    "fragment of nothing": lambda: draw_fragment({}, "nothing"),
    "order of nothing": lambda: tile_order([], 4),
    "order below 0": lambda: tile_order([(0, -1)], 4),
    "order of text": lambda: tile_order("ab", 4),  # type: ignore[arg-type]
    "order beyond a million": lambda: grouped_order(100_000, 100_000, 8),
    "part below 0": lambda: shared_memory_map([("a", -16, 32)]),
    "part of a float": lambda: shared_memory_map([("a", 0, 1.5)]),  # type: ignore[list-item]
    "no slots": lambda: shared_memory_map([("a", 0, 32)], {"a": 0}),
    "slots of another part": lambda: shared_memory_map([("a", 0, 32)], {"b": 2}),
    "no capacity": lambda: shared_memory_map([("a", 0, 32)], capacity=0),
    "atom None": lambda: atom_view(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_words(name: str) -> None:
    with pytest.raises(LayoutError):
        REFUSED[name]()


def test_very_many_slots_are_one_bar() -> None:
    drawing = shared_memory_map([("tiles", 0, 1 << 17)], {"tiles": 1 << 17})
    assert len(drawing.svg()) < 20_000
    assert "131072 slots of 1" in drawing.text()
