"""The README's part about the ladder is what was recorded, and the chart in the repository is its chart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import ladder_chart
import ladder_hopper
import pytest

from stridewright.codegen.ladder_measure import LadderResult, RungResult
from stridewright.kernels.ladder import RUNGS


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """A record with figures that could not be taken for others."""
    results = []
    for size in (2048, 4096):
        rows = [
            RungResult(spec.number, spec.title, "tile", 100.0 + place, size / 10 + place, 0.5 + place / 100, 0.4, 0.7, 15, place != 3, 0.002, 168, spec.published)
            for place, spec in enumerate(RUNGS)
        ]  # fmt: skip
        results.append(LadderResult(size, size, size, "cublaslt0", 99.0, size / 5, tuple(rows)))
    device = {"name": "NVIDIA H200", "date": "2026-11-30T01:00:00+00:00"}
    busy: list[dict[str, Any]] = [{"number": number, "tensor_active_percent": 40.0} for number in ("cuBLASLt", "7")]
    path = tmp_path / "ladder.json"
    record = {
        "device": device,
        "speed": [dataclasses.asdict(result) for result in results],
        "counters": [{"size": 4096, "rows": busy}],
    }
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def test_there_is_nothing_to_say_without_a_record(tmp_path: Path) -> None:
    assert ladder_chart.lines(tmp_path / "missing.json") == []
    (tmp_path / "other.json").write_text('{"sanitize": []}', encoding="utf-8")
    assert ladder_chart.lines(tmp_path / "other.json") == []


def test_the_markdown_has_the_recorded_figures(made_up: Path) -> None:
    lines = ladder_chart.lines(made_up)
    assert lines[0].startswith("![")
    assert "one NVIDIA H200 (2026-11-30); 26 of 28 results right" in lines[2]
    assert sum(line.startswith("| ") for line in lines) == 1 + len(RUNGS) + 1
    assert any("| 205 (0.50) | 410 (0.50) |" in line for line in lines)
    assert lines[-1] == "Tensor cores busy at 4096 cubed (Nsight Compute): 7 40 %, cuBLASLt 40 %."


def test_the_chart_names_the_device(made_up: Path) -> None:
    found = ladder_chart.record(made_up)
    assert found is not None
    assert "one NVIDIA H200" in ladder_chart.chart(found)


def test_the_chart_in_the_repository_is_the_record_s() -> None:
    found = ladder_chart.record()
    if found is None:
        assert not ladder_chart.CHART.exists()
        return
    assert ladder_chart.CHART.read_text(encoding="utf-8") == ladder_chart.chart(found) + "\n", (
        "run: python benchmarks/ladder_chart.py --write"
    )


@pytest.mark.parametrize(("number", "what", "edit"), ladder_hopper.CHOICES, ids=str)
def test_what_a_choice_undoes_stands_once_in_its_rung(number: str, what: str, edit: tuple[str, str]) -> None:
    (rung,) = ladder_hopper.chosen((512, 512, 512), [number])
    assert rung.source.count(edit[0]) == 1
    assert edit[1] not in rung.source


def test_programs_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder_hopper.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="compute-sanitizer is not installed"):
        ladder_hopper.tool("compute-sanitizer")
