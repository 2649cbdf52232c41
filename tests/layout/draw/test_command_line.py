"""Every view on the command line: the picture is that of the library, the text too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from stridewright.codegen.cli import app
from stridewright.layout import Layout, Swizzle
from stridewright.layout.draw import access_map, atom_view, layout_card, swizzle_bits

from .gallery import FLOATS, HALVES, LDMATRIX


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["draw", *arguments])


COMMANDS = {
    "card": ["(4,8):(8,1)"],
    "strip": ["compose", "(4,8):(8,1)", "8:2"],
    "bits": ["3,4,3", "--address", "0x380"],
    "bank-map": ["(8,64):(64,1)", "--swizzle", "3,3,3"],
    "access": ["(32,32):(32,1)", "--element-bytes", "4"],
    "atlas": ["(32,32):(32,1)", "--element-bytes", "4"],
    "descriptor": ["((8,8),64):((64,512),1)", "--swizzle", "3,3,3"],
    "tensor-map": ["(4096,4096):(4096,1)", "(64,64):(64,1)", "--swizzle", "3,3,3"],
    "fragment": ["mma.m16n8k16.f32.bf16", "D"],
    "shared-memory": ["512", "512", "256"],
    "source": ["512", "512", "256"],
    "landscape": ["512", "512", "512"],
    "roofline": ["512", "512", "512", "--us", "3.8"],
    "timeline": ["128", "128", "128", "--window", "0,3000"],
    "tile-order": ["8", "8", "--group", "4", "--processors", "16"],
}


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_view_prints_and_writes(command: str, tmp_path: Path) -> None:
    svg, page = tmp_path / "picture.svg", tmp_path / "picture.html"
    result = call(command, *COMMANDS[command], "--output", str(svg))
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) > 2
    assert result.stdout.endswith(f"drawn in {svg}\n")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    report = json.loads(call(command, *COMMANDS[command], "-o", str(page), "--json").stdout)
    assert report["title"]
    assert svg.read_text(encoding="utf-8") in page.read_text(encoding="utf-8")


def test_the_pictures_are_the_librarys(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"

    def drawn(*arguments: str) -> str:
        assert call(*arguments, "-o", str(path)).exit_code == 0
        return path.read_text(encoding="utf-8")

    assert drawn("card", "(4,8):(8,1)", "--highlight", "2,_") == layout_card(Layout((4, 8), (8, 1)), (2, None)).svg()
    assert drawn("bits", "3,4,3", "--address", "896") == swizzle_bits(Swizzle(3, 4, 3), address=896).svg()
    assert drawn("fragment", "ldmatrix.x2") == atom_view("ldmatrix.x2").svg()
    lanes = ["--lanes", "32:1", "--element-bytes", "2", "--op", "ldmatrix", "--bytes", "16"]
    assert (
        drawn("access", "(64,64):(64,1)", *lanes, "--swizzle", "3,3,3")
        == access_map(HALVES, LDMATRIX, Swizzle(3, 3, 3)).svg()
    )


def test_numbers_as_an_object() -> None:
    report = json.loads(call("access", str(FLOATS), "--element-bytes", "4", "--json").stdout)
    assert (report["wavefronts"], report["ideal"]) == (32, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["card", "(4,8):(8"],
        ["card", "(4,8)", "--highlight", "two"],
        ["card", "(4,8)", "-o", "picture.png"],
        ["strip", "compose", "(4,6,8):(2,3,5)", "6:3"],
        ["strip", "multiply", "4"],
        ["bits", "3,4"],
        ["fragment", "nothing"],
        ["access", "(32,32):(32,1)", "--op", "wgmma", "--bytes", "16", "--element-bytes", "16"],
        ["tile-order", "0", "4"],
        ["descriptor", "(8,60):(64,1)"],
    ],
)
def test_what_makes_no_sense_is_refused_in_one_message(arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("order", ["grouped", "serpentine", "row", "column", "nested", "hilbert"])
def test_every_order_of_tiles_is_drawn(order: str, tmp_path: Path) -> None:
    picture = tmp_path / "order.svg"
    done = call("tile-order", "6", "10", "--order", order, "--group", "4", "--processors", "12", "-o", str(picture))
    assert done.exit_code == 0, done.output
    assert f"{order} order of tiles" in picture.read_text(encoding="utf-8")


def test_an_order_that_there_is_not_names_those_there_are() -> None:
    done = call("tile-order", "6", "10", "--order", "spiral")
    assert done.exit_code == 2
    assert "serpentine" in done.output


def test_a_nested_order_has_patches_of_the_size_that_is_asked_for() -> None:
    def first_row(*options: str) -> list[str]:
        done = call("tile-order", "4", "8", "--order", "nested", "--group", "4", *options)
        assert done.exit_code == 0, done.output
        rows = [line.split() for line in done.output.splitlines()]
        return next(row for row in rows if row[:1] == ["0"] and len(row) == 8)

    assert first_row("--patch", "1,8") == [str(number) for number in range(8)]
    assert first_row()[:5] == ["0", "4", "8", "12", "16"]
    for wrong in ("1", "0,4", "a,b", "4,4,4"):
        done = call("tile-order", "4", "8", "--order", "nested", "--patch", wrong)
        assert done.exit_code == 2
        assert "two whole numbers" in done.output
