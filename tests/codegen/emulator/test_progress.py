"""How far an emulation has come is told while it runs, and the number of multiplies that it is measured by is the true one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.emulator import Progress
from stridewright.codegen.emulator import progress as module
from stridewright.kernels.config import GemmConfig


@pytest.mark.parametrize(
    "parameters",
    [
        {"tile_n": 128},
        {"schedule_kind": "pingpong", "tile_n": 64, "tile_k": 128, "stages": 3},
        {"tile_n": 64, "cluster_m": 2},
        {"tile_m": 64, "tile_n": 40, "consumers": 1, "swap": True},
    ],
    ids=str,
)
def test_a_launch_issues_the_multiplies_it_is_said_to(
    parameters: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STEPS", 1)
    gemm = Gemm(200, 136, 200, config=GemmConfig().replace(**parameters))
    told: list[Progress] = []
    watch = module.Watch.__init__
    monkeypatch.setattr(module.Watch, "__init__", lambda self, machine, report: watch(self, machine, report, 0.0))
    gemm.emulate(*(np.ones((rows, 200), ml_dtypes.bfloat16) for rows in (200, 136)), sms=2, progress=told.append)
    assert told[-1].multiplies == gemm.multiplies()
    assert [one.multiplies for one in told] == sorted(one.multiplies for one in told)
    assert told[-1].ended == told[-1].blocks
    assert told[-1].remaining(gemm.multiplies()) == 0.0


def test_nothing_is_estimated_before_something_is_done() -> None:
    assert Progress(1.0, 10, 0, 0, 8).remaining() is None
    assert Progress(1.0, 10, 0, 0, 8).remaining(multiplies=100) is None
    assert Progress(3.0, 10, 25, 0, 8).remaining(multiplies=100) == 9.0
