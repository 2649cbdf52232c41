"""The command `ladder` as programs see it: every rung checked, one JSON object, refusals in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stridewright.codegen import ladder_measure, launch, nvml
from stridewright.codegen.build import build
from stridewright.codegen.cli import app
from stridewright.codegen.ladder import Rung
from stridewright.codegen.ladder_measure import LadderResult, RungResult


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
    assert "times the rung before in the public source" in result.output
    assert "the public source (pranjalssh, " in result.output
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
    assert len(report["rungs"]) == 14
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


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, wrong: str = "") -> None:
    """A GPU whose measurements are made up: rung after rung 5 % more of cuBLASLt's speed."""

    def measured(rungs: Any, pairs: int, report: Any) -> LadderResult:
        rows = []
        for place, rung in enumerate(rungs):
            ratio = 0.25 + place / 20
            row = RungResult(rung.number, rung.title, rung.configuration, 100 / ratio, 700 * ratio, ratio, ratio - 0.01, ratio + 0.01, pairs, rung.number != wrong, 0.002, 168, rung.spec.published)  # fmt: skip
            rows.append(row)
            report(row)
        return LadderResult(rungs[0].m, rungs[0].n, rungs[0].k, "cublaslt0", 100.0, 700.0, tuple(rows))

    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (True, "a pretended GPU"))
    monkeypatch.setattr(ladder_measure, "measure_ladder", measured)
    monkeypatch.setattr(nvml, "gpu_or_none", lambda: None)


def test_on_a_gpu_the_ladder_is_a_table_and_a_chart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_gpu(monkeypatch)
    result = call("--svg", str(tmp_path / "ladder.svg"))
    assert result.exit_code == 0, result.output
    assert "D[4096,4096] = A[4096,4096] B[4096,4096]^T" in result.output
    assert "   7  cheap barriers                420.0  0.600 (0.590 to 0.610)    0.94  right" in result.output
    assert "cuBLASLt, first choice        700.0" in result.output
    svg = (tmp_path / "ladder.svg").read_text(encoding="utf-8")
    assert svg.count('class="cell k0"') == 14
    assert "this GPU" in svg


def test_on_a_gpu_json_has_every_rung_s_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch)
    report = json.loads(call("2048", "2048", "2048", "--pairs", "7", "--json").stdout)
    assert (report["on"], report["right"], report["m"], report["cublaslt"]) == ("gpu", True, 2048, "cublaslt0")
    assert [rung["pairs"] for rung in report["rungs"]] == [7] * 14
    assert report["rungs"][-1]["tflops"] == pytest.approx(630.0)


def test_a_wrong_rung_on_a_gpu_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch, wrong="4")
    result = call()
    assert result.exit_code == 1
    assert "WRONG" in result.output
