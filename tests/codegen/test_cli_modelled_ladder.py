"""`ladder --arch sm_100a` and the waits in `explain`: the cycle model as programs and people see it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from stridewright.codegen.cli import app


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_the_blackwell_ladder_says_where_each_rung_waits() -> None:
    result = call("ladder", "--arch", "sm_100a")
    assert result.exit_code == 0, result.output
    assert "not a measurement" in result.output
    assert "D[8192,8192]" in result.output
    for title in ("textbook", "two accumulators", "the best"):
        assert title in result.output
    assert "latency of the copy engine" in result.output
    assert "doubled" in result.output


def test_columns_and_constants_are_explained() -> None:
    lines = call("ladder", "--arch", "sm_100a").stdout.splitlines()
    assert any(line.startswith("of peak: ") and "steady: " in line for line in lines)
    assert any(line.startswith("latency = 1500 clocks ") for line in lines)
    # Launch control hands out the same tiles: the model sees no difference, and says so.
    (control,) = [line for line in lines if "launch control " in line]
    assert "; as rung 4: " in control
    (pairs,) = [line for line in lines if line.startswith("   6  pairs")]
    assert "; as rung" not in pairs


def test_one_rung_is_said_in_full() -> None:
    result = call("ladder", "1024", "2048", "512", "--arch", "sm_103a", "--rung", "6")
    assert result.exit_code == 0, result.output
    assert "Of all SMs' time goes:" in result.output
    assert "pairs" in result.output
    assert "roles" not in result.output


def test_json_has_every_rung_and_the_sensitivity() -> None:
    result = call("ladder", "4096", "4096", "4096", "--arch", "sm_100a", "--json")
    report = json.loads(result.stdout)
    assert report["what"] == "a cycle model, not a measurement"
    assert [rung["number"] for rung in report["rungs"]] == list(range(10))
    for rung in report["rungs"]:
        assert sum(rung["lost"].values()) + rung["use"] == pytest.approx(1.0)
    assert set(report["sensitivity"]["l2"]) == {"0.5", "0.8", "1.2", "2.0"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arch", "sm_80"), "there are ladders for sm_90a, sm_100a, sm_103a"),
        (("--arch", "sm_100a", "--rung", "12"), "the rungs of sm_100a are 0, 1, 2"),
        (("128", "--arch", "sm_100a"), "give all three sizes"),
    ],
)
def test_what_there_is_no_ladder_for_is_refused(arguments: tuple[str, ...], message: str) -> None:
    result = call("ladder", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_explain_says_where_the_tensor_core_waits() -> None:
    result = call("explain", "4096", "4096", "4096", "--arch", "sm_100a", "--device", "b200")
    assert result.exit_code == 0, result.output
    assert "Cycle model of a B200 (a model, not a measurement)" in result.output
    assert "idle SMs of the last wave" in result.output
