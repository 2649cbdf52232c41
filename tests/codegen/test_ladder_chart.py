"""The ladder's chart and tables, from results made up here: what they say is what was measured."""

from __future__ import annotations

import dataclasses
import json

import pytest

from stridewright.codegen.ladder_chart import ladder_drawing, markdown, record_of, result_of, shape_name
from stridewright.codegen.ladder_measure import LadderResult, RungResult, tflops
from stridewright.kernels.ladder import RUNGS


def made_up(size: int) -> LadderResult:
    rows = []
    for place, spec in enumerate(RUNGS):
        ratio = 0.05 + 0.08 * place
        us = 2000.0 / ratio
        rows.append(
            RungResult(spec.number, spec.title, "128x256x64", us, tflops(size, size, size, us), ratio, ratio - 0.01, ratio + 0.01, 15, True, 0.002, 168, spec.published)
        )  # fmt: skip
    return LadderResult(size, size, size, "cublaslt0", 2000.0, tflops(size, size, size, 2000.0), tuple(rows))


def test_a_result_survives_json() -> None:
    result = made_up(4096)
    assert result_of(json.loads(json.dumps(record_of(result)))) == result


def test_one_wrong_rung_makes_the_ladder_wrong() -> None:
    result = made_up(4096)
    rows = (dataclasses.replace(result.rows[3], right=False), *result.rows[4:])
    assert result.right
    assert not dataclasses.replace(result, rows=rows).right


def test_speed_is_operations_over_time() -> None:
    # 2 * 4096^3 operations in 137.438953472 us are 10^15 a second.
    assert tflops(4096, 4096, 4096, 137.438953472) == pytest.approx(1000.0)


def test_the_chart_has_a_bar_for_each_rung_and_shape_with_its_figures() -> None:
    results = [made_up(2048), made_up(4096)]
    drawing = ladder_drawing(results, "one NVIDIA H200")
    svg = drawing.svg()
    assert svg.count('class="cell k0"') == svg.count('class="cell k1"') == len(RUNGS)
    assert drawing.facts["7-cheap-barriers-4096-cubed"] == f"{results[1].rows[7].ratio:.3f}"
    assert "one NVIDIA H200" in svg
    assert "cuBLASLt's first choice" in svg
    assert "median of 15 pairs, right" in svg


def test_the_table_has_a_line_for_each_rung_and_cublaslt_s() -> None:
    lines = markdown([made_up(4096), made_up(8192)])
    assert lines[0] == "| rung | what it adds | 4096 cubed | 8192 cubed | public source |"
    assert len(lines) == 2 + len(RUNGS) + 1
    assert all(line.count("|") == 6 for line in lines)
    assert lines[2].startswith("| 1 | **no tensor cores**: ")
    assert lines[2].endswith(
        f"| {made_up(4096).rows[0].tflops:.0f} (0.05) | {made_up(8192).rows[0].tflops:.0f} (0.05) | 0.04 |"
    )


def test_shapes_that_are_no_cubes_are_named_in_full() -> None:
    assert shape_name(dataclasses.replace(made_up(64), n=128)) == "64 x 128 x 64"
