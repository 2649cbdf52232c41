"""The explorer shows what the library says, restores itself from its line of text, and says why it shows nothing."""

from __future__ import annotations

import random
import re

import pytest

from stridewright.layout import Layout, LayoutError, Swizzle, compose
from stridewright.layout.banks import Access, bank_report
from stridewright.layout.draw import Explorer
from stridewright.layout.draw.explorer import DTYPES, INSTRUCTIONS
from stridewright.layout.draw.widget import message

from .reading import elements, overlaps


def some_states(count: int = 60) -> list[Explorer]:
    draw = random.Random(4)
    states = []
    while len(states) < count:
        rows, columns = draw.choice([8, 16, 32, 64]), draw.choice([16, 32, 64, 72])
        bits = draw.randint(0, 3)
        states.append(
            Explorer(
                shape=f"({rows},{columns})",
                stride=f"({columns},1)" if draw.random() < 0.8 else f"(1,{rows})",
                bits=bits,
                base=draw.randint(0, 4),
                shift=draw.randint(max(bits, 1), 5),
                dtype=draw.choice(DTYPES),
                instruction=draw.choice(list(INSTRUCTIONS)),
                lanes=draw.choice(["down", "along", "32:1", "(8,4):(1,8)"]),
                phase=draw.randint(0, 3),
            )
        )
    return states


def test_a_state_comes_back_from_its_line() -> None:
    for explorer in some_states():
        assert Explorer.parse(explorer.state) == explorer


def test_the_numbers_are_those_of_the_bank_report() -> None:
    shown = 0
    for explorer in some_states():
        view = explorer.view
        if view.error:
            continue
        shown += 1
        tile = compose(
            Swizzle(explorer.bits, explorer.base, explorer.shift), Layout.parse(f"{explorer.shape}:{explorer.stride}")
        )
        report = bank_report(tile, explorer.access)
        assert view.numbers["wavefronts"] == str(report.wavefronts)
        assert view.numbers["ideal"] == str(report.ideal)
        assert view.phases == len(report.phases)
        if report.phases:
            number = min(explorer.phase, len(report.phases) - 1)
            panel = dict(view.panels)["phase"]
            assert panel.facts["phase-wavefronts"] == report.phases[number].wavefronts
    assert shown > 20


def test_down_and_along_are_what_they_say() -> None:
    tile = Layout((32, 64), (64, 1))
    down, along = Explorer(bits=0, lanes="down"), Explorer(bits=0, lanes="along")
    assert down.access.byte_offsets(tile) == tuple(128 * lane for lane in range(32))
    assert along.access.byte_offsets(tile) == tuple(16 * lane for lane in range(32))
    assert isinstance(Explorer(lanes="32:2").access, Access)


def test_the_phase_s_words_are_marked_in_every_panel() -> None:
    """Of each lane of the phase: its cell in the layout, its chunk in memory, its words in the phase."""
    explorer = Explorer(phase=2)
    panels = dict(explorer.view.panels)
    tile = compose(explorer.swizzle, explorer.layout)
    offsets = [2 * tile(lane, 0) for lane in range(16, 24)]
    words = {f"w{offset // 4 + i}" for offset in offsets for i in range(4)}
    for name in ("layout", "memory", "phase"):
        marked = [
            e
            for e in elements(panels[name], "rect", "cell")
            if "empty" not in e.classes and e.attributes.get("data-link")
        ]
        assert {word for e in marked for word in e.attributes["data-link"].split()} == words, name


def test_a_cell_of_the_layout_says_its_byte_and_bank() -> None:
    explorer = Explorer(shape="(8,16)", stride="(16,1)", bits=1, base=3, shift=3, instruction="ldmatrix.x1")
    tile = compose(explorer.swizzle, explorer.layout)
    cells = elements(dict(explorer.view.panels)["layout"], "rect", "cell")
    for cell in cells:
        found = re.match(r"\((\d+),(\d+)\): byte (\d+), line (\d+), bank (\d+)", cell.tip)
        assert found is not None
        row, column, byte, line, bank = map(int, found.groups())
        assert byte == 2 * tile(row, column)
        assert (line, bank) == (byte // 128, byte // 4 % 32)


def test_the_smallest_swizzle_does_mend_it() -> None:
    for explorer in some_states(40):
        if explorer.view.error or not (
            found := re.match(
                r"Swizzle\((-?\d+), (-?\d+), (-?\d+)\)", explorer.view.numbers["smallest swizzle that mends it"]
            )
        ):
            continue
        bits, base, shift = map(int, found.groups())
        tile = compose(Swizzle(bits, base, shift), explorer.layout)
        assert bank_report(tile, explorer.access).ratio == 1


@pytest.mark.parametrize(
    ("changes", "message_"),
    [
        ({"shape": "(4,"}, "."),
        ({"stride": "(63,1)"}, "aligned to 16"),
        ({"dtype": "f7"}, "must be one of e4m3, bf16"),
        ({"instruction": "ldx"}, "must be one of ld.b32"),
        ({"shift": 1}, "."),
        ({"lanes": "sideways"}, "."),
        ({"shape": "(4096,4096)", "stride": "(4096,1)"}, "at most 65536"),
        ({"stride": "(-64,1)"}, "from 0 on"),
    ],
)
def test_what_shows_nothing_says_why(changes: dict[str, object], message_: str) -> None:
    explorer = Explorer().replaced(changes)
    assert re.search(message_, explorer.view.error)
    assert explorer.view.panels == ()
    assert explorer.view.error.split()[0] in explorer.drawing().text()


@pytest.mark.parametrize("text", ["shape", "colour=red", "swizzle=3,3", "swizzle=a,b,c", "phase=-1"])
def test_lines_that_are_no_state(text: str) -> None:
    with pytest.raises(LayoutError, match="state"):
        Explorer.parse(text)


@pytest.mark.parametrize("changes", [{"bits": "3"}, {"colour": "red"}, {"_view": 1}, {"bits": True}])
def test_changes_that_are_none(changes: dict[str, object]) -> None:
    with pytest.raises(LayoutError, match="must be one of"):
        Explorer().replaced(changes)


def test_every_instruction_and_type_draws_or_says_why() -> None:
    for instruction in INSTRUCTIONS:
        for dtype in DTYPES:
            explorer = Explorer(instruction=instruction, dtype=dtype, bits=0)
            assert explorer.view.error or overlaps(explorer.drawing()) == [], (instruction, dtype)


def test_a_layout_without_a_descriptor_says_so() -> None:
    numbers = Explorer(instruction="wgmma", base=2).view.numbers
    assert numbers["descriptor"].startswith("none")
    assert Explorer(instruction="wgmma").view.numbers["descriptor"] == "0x4000004000010000"


def test_the_message_is_plain_and_small() -> None:
    import json

    for explorer in (
        Explorer(),
        Explorer(shape="(128,64)"),
        Explorer(dtype="f32", instruction="ld.b32", stride="(32,1)", shape="(32,32)"),
    ):
        assert len(json.dumps(message(explorer))) < 700_000
