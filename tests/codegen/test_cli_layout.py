"""The commands about layouts: what they print is what the library says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from stridewright.codegen.cli import app
from stridewright.layout import Layout, Swizzle


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_layout_facts_follow_from_the_definition() -> None:
    report = json.loads(call("layout", "(4,8):(8,1)", "--json").stdout)
    assert (report["size"], report["cosize"], report["rank"], report["depth"]) == (32, 32, 2, 1)
    assert report["injective"] is True
    assert report["coalesced"] == "(4,8):(8,1)"
    assert json.loads(call("layout", "(4,8):(0,1)", "--json").stdout)["injective"] is False


def test_table_shows_the_first_mode_down() -> None:
    lines = call("layout", "(2,3):(3,1)").stdout.splitlines()
    assert [line.split() for line in lines[-2:]] == [["0", "1", "2"], ["3", "4", "5"]]


def test_swizzle_acts_in_the_layouts_units() -> None:
    lines = call("layout", "(8,8):(8,1)", "--swizzle", "3,0,3").stdout.splitlines()
    table = [[int(value) for value in line.split()] for line in lines[-8:]]
    swizzle = Swizzle(3, 0, 3)
    assert table == [[swizzle(8 * row + column) for column in range(8)] for row in range(8)]


def test_large_layout_is_described_without_a_table() -> None:
    done = call("layout", "((8,16),(64,1)):((64,512),(1,0))", "--swizzle", "3,3,3")
    assert done.exit_code == 0
    assert "8192" in done.stdout
    assert len(done.stdout.splitlines()) < 10


def test_svg_is_well_formed_and_names_what_it_shows(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    done = call("layout", "((8,16),(64,1)):((64,512),(1,0))", "--swizzle", "3,3,3", "--svg", str(out))
    assert done.exit_code == 0, done.output
    root = ElementTree.fromstring(out.read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("swizzle", "wavefronts"),
    [(None, 8), ("3,4,3", 1)],
)
def test_banks_counts_what_eight_rows_of_128_bytes_cost(swizzle: str | None, wavefronts: int) -> None:
    # ldmatrix reads 8 rows of 16 bytes; 128 bytes apart they all begin in bank 0.
    lanes = ("--lanes", "8:1", "--op", "ldmatrix", "--bytes", "16", "--json")
    more = () if swizzle is None else ("--swizzle", swizzle)
    report = json.loads(call("banks", "(8,8):(128,16)", *lanes, *more).stdout)
    assert (report["wavefronts"], report["ideal"]) == (wavefronts, 1)
    assert report["suggested_swizzle"] == [3, 4, 3]


def test_a_suggested_swizzle_can_be_given_as_it_is_printed() -> None:
    command = ("banks", "(32,32):(32,1)", "--element-bytes", "4")
    first = call(*command).stdout
    given = first.splitlines()[-1].removeprefix("try it with ").split()
    assert given[0] == "--swizzle"
    assert "ld of 4 bytes a lane: 32 wavefronts, ideal 1" in first
    assert "ld of 4 bytes a lane: 1 wavefront, ideal 1" in call(*command, *given).stdout


def test_no_swizzle_is_suggested_where_none_is_needed() -> None:
    done = call("banks", "32:1", "--element-bytes", "4").stdout
    assert "no swizzle is needed: 1 wavefront without one, ideal 1." in done
    assert "--swizzle" not in done


def test_atoms_are_listed_and_searched() -> None:
    everything = json.loads(call("atoms", "--json").stdout)
    some = json.loads(call("atoms", "wgmma", "--json").stdout)
    assert some
    assert set(some) < set(everything)
    done = call("atoms", "no-such-atom")
    assert done.exit_code == 2
    assert "no-such-atom" in done.stderr


def test_layout_is_parsed_as_the_library_parses_it() -> None:
    text = "((2,(2,2)),(4,1)):((1,(8,4)),(16,0))"
    report = json.loads(call("layout", text, "--json").stdout)
    assert report["layout"] == str(Layout.parse(text))
