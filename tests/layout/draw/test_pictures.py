"""What holds for every picture: well-formed, legible, small, quick, the same twice, and of the structure that was reviewed."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from stridewright.layout import Layout, Swizzle
from stridewright.layout.draw import Drawing, access_map, bank_map, fragment_view, layout_card, stack, tile_order
from stridewright.layout.draw.canvas import Canvas, escape
from stridewright.layout.hardware import smem_tile, wgmma_d_layout

from .gallery import CHUNK_COLUMN, CHUNKS, VIEWS
from .reading import beyond_the_edge, elements, outline, overlaps, root

OUTLINES = Path(__file__).parents[2] / "data" / "draw" / "outlines.txt"
MEGABYTE = 1_000_000

every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))


@every_view
def test_the_svg_and_the_page_are_well_formed(view: Callable[[], Drawing]) -> None:
    drawing = view()
    top = root(drawing)
    assert top.tag == "{http://www.w3.org/2000/svg}svg"
    assert top.get("viewBox") == f"0 0 {top.get('width')} {top.get('height')}"
    page = drawing.html()
    assert page.startswith("<!DOCTYPE html>")
    assert drawing._repr_svg_() == drawing.svg() in page
    assert "http" not in drawing.svg().replace("http://www.w3.org/2000/svg", "")


@every_view
def test_no_text_covers_another_or_leaves_the_page(view: Callable[[], Drawing]) -> None:
    drawing = view()
    assert overlaps(drawing) == []
    assert beyond_the_edge(drawing) == []


@every_view
def test_every_cell_says_in_words_what_it_shows(view: Callable[[], Drawing]) -> None:
    drawing = view()
    tipped = sum(bool(e.tip) for e in elements(drawing))
    assert tipped > 0
    assert drawing.title in ElementTree.tostring(root(drawing), encoding="unicode", method="text")


@every_view
def test_the_text_form_fits_and_names_the_picture(view: Callable[[], Drawing]) -> None:
    words = view().text()
    assert words == str(view())
    assert len(words.splitlines()) > 1
    assert not any(line != line.rstrip() for line in words.splitlines() if line.strip() == "")
    assert all(character.isprintable() or character == "\n" for character in words)


@every_view
def test_the_same_twice(view: Callable[[], Drawing]) -> None:
    assert view().svg() == view().svg()


def read_outlines() -> dict[str, str]:
    parts = OUTLINES.read_text(encoding="utf-8").split("== ")[1:]
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


@pytest.mark.parametrize("name", list(VIEWS))
def test_the_structure_is_the_reviewed_one(name: str) -> None:
    """To accept a change: write ``"".join(f"== {n}\\n{outline(v())}" for n, v in VIEWS.items())`` to the file, and look at it."""
    assert outline(VIEWS[name]()) == read_outlines()[name]


@pytest.mark.parametrize(
    "view",
    [
        lambda: layout_card(smem_tile("128B", "k", "bf16", 128, 64)),
        lambda: bank_map(smem_tile("128B", "k", "bf16", 128, 64), 2),
        lambda: bank_map(Layout((128, 64), (64, 1)), 4),
        lambda: bank_map(Layout((128, 64), (64, 1)), 4, Swizzle(3, 2, 3)),
        lambda: fragment_view(wgmma_d_layout(256), 64),
        lambda: tile_order([(r, c) for r in range(128) for c in range(64)], 132),
    ],
    ids=["card", "bank map of halves", "bank map of floats", "before and after", "wgmma m64n256", "tile order"],
)
def test_a_large_tile_is_quick_and_small(view: Callable[[], Drawing]) -> None:
    view()
    start = time.process_time()
    svg = view().svg()
    assert time.process_time() - start < 0.5
    assert len(svg.encode()) < MEGABYTE


@pytest.mark.parametrize("layout", [Layout((4096, 4096), (4096, 1)), Layout(1 << 30, 3), Layout((3, 1 << 20))])
def test_a_huge_layout_is_summarised(layout: Layout) -> None:
    start = time.process_time()
    drawing = layout_card(layout)
    assert time.process_time() - start < 0.5
    assert len(drawing.svg()) < MEGABYTE
    assert any(text.text.startswith("shown: the first") for text in elements(drawing, "text"))
    assert overlaps(drawing) == []


def test_both_schemes_are_there_and_need_no_variables() -> None:
    svg = layout_card(Layout(4)).svg()
    assert "@media (prefers-color-scheme:dark)" in svg
    assert "var(" not in svg


def channel(value: int) -> float:
    """WCAG 2.2's linear value of a channel."""
    share = value / 255
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


def luminance(colour: str) -> float:
    red, green, blue = (channel(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def rule(svg: str, selector: str, dark: bool) -> str:
    part = svg.split("@media")[1 if dark else 0]
    return part.split(f".sw {selector}{{fill:")[1][:7]


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_it_stands_on(dark: bool) -> None:
    """WCAG 2.2 asks for a contrast of 4.5 for text."""
    svg = layout_card(Layout(4)).svg()
    on_cells = luminance("#111111")
    for name in [f".k{i}" for i in range(8)] + [f".h{i}" for i in range(6)]:
        assert (luminance(rule(svg, name, dark)) + 0.05) / (on_cells + 0.05) >= 4.5, name
    for paper in (".paper", ".empty"):
        for ink in ("text", "text.faint", "text.warn", "text.good"):
            a, b = sorted([luminance(rule(svg, paper, dark)), luminance(rule(svg, ink, dark))])
            assert (b + 0.05) / (a + 0.05) >= 4.5, (paper, ink)


def protanopia(colour: str) -> tuple[float, float, float]:
    """What a colour looks like without long-wave cones: Vienot, Brettel and Mollon 1999, in linear RGB."""
    r, g, b = (channel(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return 0.11238 * r + 0.88762 * g, 0.11238 * r + 0.88762 * g, 0.00401 * r - 0.00401 * g + b


def deuteranopia(colour: str) -> tuple[float, float, float]:
    """Without middle-wave cones: Vienot, Brettel and Mollon 1999."""
    r, g, b = (channel(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return 0.29275 * r + 0.70725 * g, 0.29275 * r + 0.70725 * g, -0.02234 * r + 0.02234 * g + b


@pytest.mark.parametrize("eye", [protanopia, deuteranopia])
@pytest.mark.parametrize("dark", [False, True])
def test_groups_differ_for_colour_blind_eyes(dark: bool, eye: Callable[[str], tuple[float, float, float]]) -> None:
    svg = layout_card(Layout(4)).svg()
    seen = [eye(rule(svg, f".k{i}", dark)) for i in range(8)]
    nearest = min(
        sum((x - y) ** 2 for x, y in zip(seen[i], seen[j], strict=True)) ** 0.5 for i in range(8) for j in range(i)
    )
    assert nearest > 0.04


def test_hostile_text_stays_text() -> None:
    drawing = layout_card(Layout(2), title='</title><script>alert("1")</script>\x00')
    assert "<script" not in drawing.svg() + drawing.html()
    ElementTree.fromstring(drawing.svg())


def test_escaping_leaves_nothing_that_xml_forbids() -> None:
    everything = "".join(map(chr, [*range(0x250), 0xD800, 0xFFFE, 0x1F600]))
    ElementTree.fromstring(f'<a b="{escape(everything)}">{escape(everything)}</a>')


def test_a_canvas_reaches_around_its_texts() -> None:
    canvas = Canvas()
    canvas.text(0, 10, "0123456789", 10)
    assert canvas.width >= 60


def test_joined_pictures_keep_their_facts() -> None:
    both = stack(access_map(CHUNKS, CHUNK_COLUMN), layout_card(Layout(4)))
    assert both.facts["wavefronts-0"] == 8
    assert both.facts["size-1"] == 4
    assert root(both).get("data-wavefronts-0") == "8"
