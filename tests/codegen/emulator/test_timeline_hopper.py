"""The timeline's model against times measured on an H200 (benchmarks/results): it ranks configurations, and is near.

In CI two shapes to which nothing was fitted; the nightly command holds all of them against the recorded comparison.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stridewright.codegen.emulator.timeline_model import FITTED, CostModel

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "benchmarks/results/timeline_hopper.json"
HELD_OUT = [(1024, 1024, 1024), (128, 28672, 4096)]


def program() -> ModuleType:
    """benchmarks/timeline_hopper.py as a module."""
    name = "stridewright_timeline_hopper"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks/timeline_hopper.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def recorded_rows(shape: tuple[int, int, int]) -> list[Any]:
    """Configurations of a shape with the measured times of the recorded comparison."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    (found,) = [one for one in record["shapes"] if tuple(one["shape"]) == shape]
    return [program().Measured(shape, row["config"], row["measured_us"]) for row in found["rows"]]


def test_the_shapes_tested_here_were_not_fitted() -> None:
    assert not set(HELD_OUT) & program().FITTED_SHAPES


def test_rank_correlation_by_its_definition() -> None:
    """1 for the same order, -1 for the reverse, ties in the middle of their places."""
    correlation = program().rank_correlation
    assert correlation([1.0, 2.0, 9.0], [10.0, 11.0, 12.0]) == pytest.approx(1)
    assert correlation([1.0, 2.0, 9.0], [3.0, 2.0, 1.0]) == pytest.approx(-1)
    assert correlation([1.0, 1.0, 2.0], [5.0, 5.0, 7.0]) == pytest.approx(1)


def test_names_are_read_back() -> None:
    found = program()
    for row in found.measured():
        assert found.config_of(row.config).name == row.config


@pytest.mark.parametrize("shape", HELD_OUT, ids=lambda shape: "x".join(map(str, shape)))
def test_ranks_and_is_within_15_percent(shape: tuple[int, int, int]) -> None:
    """At least 8 configurations of each shape within 15 % of the measured time, and in about the measured order."""
    found = program()
    rows = [row for row in recorded_rows(shape) if not found.config_of(row.config).violations()]
    modelled = [found.modelled(row, CostModel()) for row in rows]
    near = [row for row, value in zip(rows, modelled, strict=True) if abs(value / row.microseconds - 1) <= 0.15]
    assert len(near) >= 8
    assert found.rank_correlation([row.microseconds for row in rows], modelled) >= 0.7


def test_the_record_is_of_these_constants() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["constants"] == {name: getattr(CostModel(), name) for name in FITTED}
    assert len(FITTED) <= 6
    for group in ("other", "later"):
        assert record["groups"][group]["within_15_percent"] >= 8


@pytest.mark.slow
def test_the_record_comes_out_again() -> None:
    """Every modelled time of benchmarks/results/timeline_hopper.json, to 3 %: what ptxas and NVRTC versions may change."""
    found = program()
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for shape in record["shapes"]:
        for row in shape["rows"]:
            measured = found.Measured(tuple(shape["shape"]), row["config"], row["measured_us"])
            if found.config_of(row["config"]).violations():
                continue
            assert found.modelled(measured, CostModel()) == pytest.approx(row["modelled_us"], rel=0.03)
