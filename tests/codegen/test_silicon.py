"""The emulator against an H200, bit for bit: benchmarks/gemm_hopper.py recorded there a SHA-256 of every result, for inputs drawn from a seed.

Sums of small integers are exact whatever the order and width of an accumulator, so they must agree in the fast default numerics; sums of normal
values agree only if every truncation of the tensor core's adder is reproduced ("hardware" numerics).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.kernels.config import GemmConfig

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "gemm_hopper_check.json"
NUMERICS = {"integers": "float32", "normal": "hardware"}

_NAME = re.compile(
    r"(?P<arch>sm_\d+a)_bf16_(?P<kind>cooperative|pingpong)(?P<consumers>\d)(?P<swap>_swapped)?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"(?:_cluster(?P<cluster_m>\d)x(?P<cluster_n>\d))?_stages(?P<stages>\d+)_group(?P<group>\d+)_(?P<store>tma|direct)(?P<buffers>\d*)"
)


def config_of(name: str) -> GemmConfig:
    """The configuration with this name: the one that was measured, not the one that would be chosen now."""
    match = _NAME.fullmatch(name)
    assert match, name
    config = GemmConfig(arch=match["arch"]).replace(
        schedule_kind=match["kind"],
        consumers=int(match["consumers"]),
        swap=bool(match["swap"]),
        tile_m=int(match["m"]),
        tile_n=int(match["n"]),
        tile_k=int(match["k"]),
        cluster_m=int(match["cluster_m"] or 1),
        cluster_n=int(match["cluster_n"] or 1),
        stages=int(match["stages"]),
        group_m=int(match["group"]),
        store=match["store"],
        buffers=int(match["buffers"] or 2),
    )
    assert config.name == name
    return config


def operand(random: np.random.Generator, rows: int, k: int, kind: str) -> Any:
    """As benchmarks/gemm_hopper.py draws it: integers from -4 to 4, or standard normal values in float32, rounded to bfloat16."""
    if kind == "integers":
        return random.integers(-4, 5, size=(rows, k)).astype(ml_dtypes.bfloat16)
    return random.standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16)


def recorded() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    unique = {(row["config"], tuple(row["shape"]), row["inputs"]): row for row in rows}
    return list(unique.values())


def work(row: dict[str, Any]) -> int:
    m, n, k = row["shape"]
    return int(m * n * k)


def label(row: dict[str, Any]) -> str:
    return f"{row['case']}-{row['inputs']}-{row['config'].removeprefix('sm_90a_bf16_')}"


def few() -> list[dict[str, Any]]:
    """One small case of each of up to five families of kernels, cheap to compile, with both kinds of inputs."""
    rows = sorted(recorded(), key=lambda row: (work(row), row["inputs"]))
    chosen: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        match = _NAME.fullmatch(row["config"])
        assert match, row["config"]
        family = f"{match['kind']}{match['swap']}{match['cluster_m']}{match['store']}{match['consumers']}"
        if work(row) < 2**27:
            chosen.setdefault((family, row["inputs"]), row)
    return list(chosen.values())[:10]


def assert_same_bits(row: dict[str, Any]) -> None:
    m, n, k = row["shape"]
    random = np.random.default_rng(row["seed"])
    a, b = operand(random, m, k, row["inputs"]), operand(random, n, k, row["inputs"])
    emulation = Gemm(m, n, k, config=config_of(row["config"])).emulate(a, b, numerics=NUMERICS[row["inputs"]])
    assert hashlib.sha256(emulation.d.tobytes()).hexdigest() == row["sha256"]
    assert emulation.races == ()


def test_there_are_enough_records_of_the_chip() -> None:
    combinations = {
        kind: {(row["config"], tuple(row["shape"])) for row in recorded() if row["inputs"] == kind} for kind in NUMERICS
    }
    assert all(len(found) >= 40 for found in combinations.values())
    assert len({row["config"] for row in recorded()}) >= 20


@pytest.mark.parametrize("row", few(), ids=label)
def test_small_cases_have_the_chip_s_bits(row: dict[str, Any]) -> None:
    assert_same_bits(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", recorded(), ids=label)
def test_every_recorded_case_has_the_chip_s_bits(row: dict[str, Any]) -> None:
    assert_same_bits(row)
