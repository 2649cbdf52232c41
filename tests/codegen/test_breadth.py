"""Random mixtures of shape, type, major, epilogue, batch, group and configuration are right on the emulator; what is refused has a reason."""

from __future__ import annotations

from typing import Any

import pytest

from stridewright import Gemm
from stridewright.codegen.breadth import draw, emulate
from stridewright.codegen.build import BuildError, build
from stridewright.codegen.source import generate

CASES, REFUSED = draw(seed=2026, count=300, kernels=60, most=(100, 100, 200))
REASONS = {
    "cluster", "consumers", "form", "group_m", "order", "parts", "promote", "reduce", "schedule_kind", "scale_a", "split_kind",
    "stages", "store", "swap", "tile_k", "tile_m", "tile_n", "producer_registers", "n",
}  # fmt: skip
"""Parameters that a rule may refuse a drawn kernel for; each names the value, the rule and what works."""


@pytest.mark.parametrize("part", range(10))
def test_random_mixtures_are_right(part: int) -> None:
    wrong = {str(case): found for case in CASES[part::10] if (found := emulate(case))}
    assert wrong == {}


def test_every_refusal_has_a_reason_from_the_list() -> None:
    assert set(REFUSED) <= REASONS


def test_hardware_numerics_keep_their_bound_too() -> None:
    eight = [case for case in CASES if case.recipe.problem.a in ("e4m3", "e5m2") and not case.integers][:6]
    assert len(eight) == 6
    wrong = {str(case): found for case in eight if (found := emulate(case, numerics="hardware"))}
    assert wrong == {}


@pytest.mark.slow
def test_random_mixtures_compile_without_a_complaint() -> None:
    cases, _ = draw(seed=7, count=150, kernels=150)
    failed = []
    for case in cases:
        try:
            build(generate(case.recipe.config), arch="sm_90a")
        except BuildError as error:
            failed.append(f"{case.recipe.config.name}: {str(error)[:200]}")
    assert failed == []


@pytest.mark.parametrize("options", [{"batch": 3}, {"groups": 3}, {"activation": "gelu", "a_major": "mn"}], ids=str)
def test_a_kernel_beyond_the_plain_one_explains_itself(options: dict[str, Any]) -> None:
    gemm = Gemm(100, 104, 100, **options)
    assert gemm.explain().count("TMA: ") == 2
    assert ("the struct Terms below" in gemm.source) == (options != {"a_major": "mn"})
