"""The widest tiles beside fused terms are right on the emulator, and compile without a spill."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stridewright.codegen.breadth import Case, Recipe, draw_case, emulate
from stridewright.codegen.build import build
from stridewright.codegen.source import generate
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.fusion import Fusion
from stridewright.kernels.hopper_rules import accumulators, element_bytes, most_accumulators

ROWS: dict[str, Any] = {"scale_a": "row", "scale_b": "row"}
FUSIONS = (
    Fusion(bias="n", activation="gelu"),
    Fusion(**ROWS),
    Fusion(**ROWS, alpha=True, bias="n", activation="silu"),
    Fusion(**ROWS, c="bf16", bias="n", activation="gelu", aux=True),
    Fusion(**ROWS, c="f32", alpha=True, bias="m", aux=True, amax=True, scale_d=True),
    Fusion(c="f32", alpha=True),
    Fusion(aux=True, amax=True, activation="relu"),
    Fusion(**ROWS, expression="fmaxf(x, 0.1f * x) + 0.25f * float(row) - float(col)"),
)
FORMATS = (("e4m3", "bf16"), ("e4m3", "f32"), ("bf16", "bf16"), ("s8", "f32"), ("e5m2", "f16"), ("f16", "f32"))
SHAPES: tuple[dict[str, Any], ...] = (
    {"schedule_kind": "pingpong", "tile_m": 128},
    {"tile_m": 256},
    {"tile_m": 128},
    {"tile_m": 64, "consumers": 1},
    {"tile_m": 128, "consumers": 1},
    {"schedule_kind": "pingpong", "tile_m": 64},
    {"tile_m": 192, "consumers": 3},
)


def widest(random: np.random.Generator, promoted: bool = False) -> GemmConfig:
    """A drawn kernel with the widest tile that its rules allow."""

    def one_of(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    a, d = one_of(("e4m3", "bf16"), ("e4m3", "f32")) if promoted else one_of(*FORMATS)
    fusion, shape = one_of(*FUSIONS), one_of(*(SHAPES[:3] if promoted else SHAPES))
    if promoted and random.random() < 0.5:
        fusion = dataclasses.replace(fusion, scale_a="block", scale_b="block")
    form = "one" if shape.get("consumers") == 3 else one_of("one", "one", "batch", "groups_m")
    config = GemmConfig(problem=Problem(a=a, b=a, d=d, form=form), fusion=fusion).replace(
        tile_k=128 // element_bytes(a),
        store="tma" if d in ("bf16", "f16") else "direct",
        cluster_m=1 if form != "one" or "consumers" in shape else one_of(1, 1, 2),
        stages=2,
        **shape,
    )
    if promoted:
        sets = 1 if shape.get("schedule_kind") == "pingpong" else one_of(1, 2)
        config = config.replace(promote=128, accumulators=sets)
    elif form == "one" and random.random() < 0.25:
        config = config.replace(swap=True)
    elif form == "one" and shape == {"tile_m": 128} and random.random() < 0.5:
        config = config.replace(split_kind="split", parts=2, reduce=one_of("ordered", "atomic"))
    for tile_n in range(256, 0, -16):
        if not config.replace(tile_n=tile_n).violations():
            return config.replace(tile_n=tile_n)
    raise AssertionError(f"{config.replace(tile_n=16).violations()}")


def drawn(seed: int, count: int) -> list[Case]:
    random = np.random.default_rng(seed)
    configs = [widest(random, promoted=number % 3 == 2) for number in range(count)]
    return [draw_case(random, Recipe(config), most=(150, 260, 300)) for config in configs]


FEW, MANY = drawn(seed=1, count=9), drawn(seed=2, count=48)


def test_the_widest_tiles_fill_most_registers_that_they_may() -> None:
    for case in (*FEW, *MANY):
        config = case.recipe.config
        filled = config.replace(tile_n=min(config.tile.n + 32, 256))
        assert config.tile.n >= 224 or accumulators(filled) > most_accumulators(config) or filled.violations()


@pytest.mark.parametrize("case", FEW, ids=str)
def test_a_tile_of_most_accumulators_is_right(case: Case) -> None:
    assert emulate(case) == ""


@pytest.mark.slow
@pytest.mark.parametrize("case", MANY, ids=str)
def test_many_tiles_of_most_accumulators_are_right(case: Case) -> None:
    assert emulate(case) == ""


@pytest.mark.slow
def test_many_tiles_of_most_accumulators_compile() -> None:
    for case in MANY:
        assert build(generate(case.recipe.config), arch="sm_90a").kernels[0].spill_store_bytes == 0
