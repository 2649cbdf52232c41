"""The driver's verdict on every specification measured, and the problems' texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stridewright.layout.hardware import HardwareError, TensorMap, delivery_problems, stage_problems
from stridewright.layout.hardware.tensor_map import MAP_ALIGNMENT, MAP_BYTES

DATA = Path(__file__).parents[2] / "data" / "h200"


def rows() -> list[dict[str, Any]]:
    oracle = json.loads((DATA / "tma_driver.json").read_text())
    return [dict(zip(oracle["fields"], row, strict=True)) for row in oracle["rows"]]


def tensor_map(row: dict[str, Any], arch: str = "sm_90a") -> TensorMap:
    rank = row["rank"]
    return TensorMap(
        row["dtype"],
        row["dims"][:rank],
        row["strides"][: max(rank - 1, 0)],
        row["box"][:rank],
        row["swizzle"],
        row["element_strides"][:rank],
        row["interleave"],
        row["l2_promotion"],
        row["oob_fill"],
        arch,
    )


def test_verdict_equals_the_drivers_on_every_measured_specification() -> None:
    wrong = [
        (row, [str(problem) for problem in tensor_map(row).problems(row["address"])])
        for row in rows()
        if (row["verdict"] == "CUDA_SUCCESS") != (not tensor_map(row).problems(row["address"]))
    ]
    assert wrong == []
    assert len(rows()) >= 2500


# Indices into the oracle's stated_rules of what the driver was seen not to check, or what is broken on purpose here.
MAP_ALIGNMENT_RULE = 24


def test_later_architectures_refuse_exactly_what_a_stated_or_measured_rule_forbids() -> None:
    for row in rows():
        stated = set(row["stated_rules_broken"]) - {MAP_ALIGNMENT_RULE}
        found = tensor_map(row, "sm_100a").problems(row["address"])
        if stated:
            assert found, row
        else:
            assert all("measured" in problem.rule for problem in found), (row, [str(p) for p in found])


def test_every_problem_names_field_value_rule() -> None:
    for row in rows():
        for problem in tensor_map(row).problems(row["address"]):
            assert problem.field
            assert problem.rule
            assert str(problem).startswith(f"{problem.field}={problem.value}: ")


def test_all_violated_rules_come_at_once() -> None:
    bad = TensorMap("bf16", (0, 8), (200,), (512, 300), "128B", (1, 9), oob_fill="maybe")
    fields = {problem.field for problem in bad.problems(address=8)}
    assert {"shape[0]", "strides_bytes[0]", "box[0]", "box[1]", "element_strides[1]", "oob_fill", "address"} <= fields
    with pytest.raises(HardwareError, match=r"(?s)shape\[0\].*box\[0\]"):
        bad.check()


def test_unknown_enumerators_name_the_nearest() -> None:
    (problem,) = TensorMap("bf16", (64, 8), (128,), (64, 8), "126B").problems()
    assert "nearest 128B" in str(problem) or "nearest 128B" in problem.fix
    assert TensorMap("bf17", (64, 8), (128,), (64, 8)).problems()[0].field == "dtype"


def test_rank_mismatch_is_said_before_the_driver_sees_it() -> None:
    found = TensorMap("bf16", (64, 8, 2), (128, 1024), (64, 8)).problems()
    assert any("rank mismatch" in problem.rule and "3" in problem.rule and "2" in problem.rule for problem in found)


def test_map_object_size_and_alignment_serve_cuda_12_and_13() -> None:
    assert (MAP_BYTES, MAP_ALIGNMENT) == (128, 128)


def test_delivery_rules() -> None:
    assert delivery_problems("param") == []
    assert delivery_problems("const") == []
    assert delivery_problems("global", acquire_fence=True) == []
    assert [p.field for p in delivery_problems("global")] == ["acquire_fence"]
    assert [p.field for p in delivery_problems("global", True, rewritten=True)] == ["drained"]
    assert delivery_problems("global", True, rewritten=True, drained=True) == []
    assert delivery_problems("shared", True)
    assert delivery_problems("registers")


def test_stage_bases_need_the_swizzles_repeat() -> None:
    plain = TensorMap("u8", (96, 4), (96,), (96, 1))
    assert [p.field for p in stage_problems(plain, 96, 3)] == ["stage_bytes"]
    assert "0, 96, 192" in str(stage_problems(plain, 96, 3)[0])
    assert stage_problems(plain, 128, 3) == []
    swizzled = TensorMap("bf16", (64, 4), (128,), (64, 4), "128B")
    assert "multiples of 1024" in str(stage_problems(swizzled, 512, 2)[0])
    assert stage_problems(swizzled, 1024, 4) == []


def test_landing_bytes_count_the_span() -> None:
    m = TensorMap("bf16", (64, 64), (128,), (32, 8), "128B")
    assert (m.row_bytes, m.pitch, m.box_bytes, m.smem_bytes) == (64, 128, 512, 1024)
    assert [p.field for p in m.warnings()] == ["box[0]"]


def test_sizes_are_whole_numbers() -> None:
    found = TensorMap("bf16", (64.5, 8), (128,), (64, 8)).problems()  # type: ignore[arg-type]
    assert [str(problem) for problem in found] == ["shape[0]=64.5: must be an int, not float"]
