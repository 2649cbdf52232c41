"""The planner never lets two regions meet, and every rule of allocation is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.layout.hardware import (
    Event,
    HardwareError,
    Request,
    accumulator_request,
    allocation_problems,
    plan_tensor_memory,
    scale_request,
)


def cells(request: Request, column: int) -> set[tuple[int, int]]:
    lanes = [group for group in range(8) if request.lanes >> group & 1]
    return {(lane, c) for lane in lanes for c in range(column, column + request.columns)}


@given(
    st.lists(st.tuples(st.integers(1, 200), st.sampled_from([0xFF, 0x55, 0xAA, 0x0F, 0xF0])), min_size=1, max_size=6)
)
def test_no_two_regions_share_a_cell(sizes: list[tuple[int, int]]) -> None:
    requests = [Request(f"r{i}", columns, lanes) for i, (columns, lanes) in enumerate(sizes)]
    try:
        plan = plan_tensor_memory(requests)
    except HardwareError:
        assert sum(columns for columns, _ in sizes) > 256
        return
    taken: set[tuple[int, int]] = set()
    for region in plan.regions:
        mine = cells(region.request, region.column)
        assert not mine & taken
        taken |= mine
    assert plan.columns in (32, 64, 128, 256, 512)
    assert max(c for _, c in taken) < plan.used <= plan.columns
    assert plan.columns == 32 or plan.columns < 2 * plan.used


def test_two_64_row_accumulators_share_columns() -> None:
    plan = plan_tensor_memory([accumulator_request("a", 64, 256), accumulator_request("b", 64, 256, upper=True)])
    assert (plan["a"].column, plan["b"].column, plan.columns) == (0, 0, 256)


def test_sharing_is_only_by_consent() -> None:
    a, b = Request("a", 300), Request("b", 300)
    with pytest.raises(HardwareError, match="does not fit"):
        plan_tensor_memory([a, b])
    assert plan_tensor_memory([a, Request("b", 300, shares=("a",))]).used == 300
    with pytest.raises(HardwareError, match="not requested"):
        plan_tensor_memory([Request("b", 300, shares=("c",))])


def test_a_full_double_buffered_kernel_with_scales() -> None:
    requests = [accumulator_request("acc0", 128, 192), accumulator_request("acc1", 128, 192)]
    requests += [scale_request("sfa", 128, 16), scale_request("sfb", 256, 16)]
    plan = plan_tensor_memory(requests)
    assert plan.used == 192 * 2 + 16 + 32
    assert "acc1" in plan.explain()
    with pytest.raises(HardwareError, match="no region"):
        plan["sfc"]


@pytest.mark.parametrize(
    ("events", "rules"),
    [
        ([Event("alloc", 512), Event("relinquish"), Event("dealloc", 512), Event("exit")], []),
        ([Event("alloc", 48), Event("dealloc", 48), Event("exit")], ["power of two", "power of two"]),
        ([Event("alloc", 64), Event("exit")], ["still allocated"]),
        (
            [Event("alloc", 64), Event("alloc", 128), Event("dealloc", 64), Event("dealloc", 128), Event("exit")],
            ["earlier"],
        ),
        (
            [Event("alloc", 64), Event("relinquish"), Event("alloc", 32), Event("dealloc", 64), Event("dealloc", 32)],
            ["after"],
        ),
        ([Event("alloc", 512), Event("alloc", 512), Event("dealloc", 512), Event("dealloc", 512)], ["block for ever"]),
        ([Event("dealloc", 64)], ["not allocated"]),
        ([Event("alloc", 32, 1), Event("dealloc", 32, 2)], ["one cta_group"]),
        ([Event("free", 32)], ["must be alloc"]),
    ],
)
def test_rules_of_allocation(events: list[Event], rules: list[str]) -> None:
    found = allocation_problems(events)
    assert len(found) == len(rules), [str(problem) for problem in found]
    for problem, rule in zip(found, rules, strict=True):
        assert rule in problem.rule
