"""The command `ladder` as programs see it: every rung checked, one JSON object, refusals in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from stridewright.codegen import launch
from stridewright.codegen.build import build
from stridewright.codegen.cli import app
from stridewright.codegen.ladder import Rung


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (False, "no GPU in this test"))


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["ladder", *arguments])


def test_without_a_gpu_a_rung_is_emulated_checked_and_explained() -> None:
    result = call("130", "136", "72", "--rung", "7")
    assert result.exit_code == 0, result.output
    assert "on the emulator: no GPU in this test" in result.output
    assert "cheap barriers             right" in result.output
    assert "+        if (elect_one()) mbarrier_arrive(empty + slot * 8);" in result.output


def test_json_is_one_object_with_what_changed() -> None:
    result = call("--rung", "8", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["on"], report["right"], report["checked"]) == ("emulator", True, True)
    (rung,) = report["rungs"]
    assert rung["number"] == "8"
    assert rung["races"] == []
    assert "CLUSTER_M = 2 (new)" in rung["constants_changed"]
    assert rung["published_gain"] == pytest.approx(734 / 726)
    assert "load_box_multicast" in rung["diff"]


@pytest.mark.slow
def test_the_whole_ladder_is_right_on_the_default_shape() -> None:
    result = call("--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert len(report["rungs"]) == 13
    assert all(rung["right"] and rung["relative_error"] < 2**-8 for rung in report["rungs"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("A_SLOT_BYTES + B_SLOT_BYTES);", "A_SLOT_BYTES + B_SLOT_BYTES + 16);", "FAULT"),
        ("chunk_row = row + accumulator_row", "chunk_row = row + 1 + accumulator_row", "WRONG"),
        ("        wgmma_wait<0>();\n", "", "race"),
    ],
    ids=["deadlock", "wrong", "race"],
)
def test_a_faulty_rung_ends_with_status_1(monkeypatch: pytest.MonkeyPatch, old: str, new: str, words: str) -> None:
    def faulty(self: Rung) -> Any:
        assert old in self.source
        return build(self.source.replace(old, new), strict=False)

    monkeypatch.setattr(Rung, "build", property(faulty))
    result = call("65", "72", "200", "--rung", "4")
    assert result.exit_code == 1
    assert words in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rung", "13"), "rung 13: there is none; the rungs are 1, 1b, 2"),
        (("64", "64"), "M, N and K: give all three sizes"),
        (("64", "64", "100"), "k=100: must be a multiple of 8"),
        (("--svg", "chart.svg"), "the chart shows measured speeds"),
        (("--svg", "chart.png"), "must end in .svg"),
        (("--on", "gpu"), "no GPU in this test"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(arguments: tuple[str, ...], words: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in result.output
