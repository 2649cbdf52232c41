"""Tuning on a GPU: what is found is right, no slower than what is chosen without tuning, and used from then on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.check import check_gemm
from stridewright.codegen.select import select
from stridewright.codegen.tune import tune
from stridewright.codegen.tune_bench import GpuBench
from stridewright.codegen.tuned import Store, current_device, lookup
from stridewright.kernels.config import Problem

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("m", "n", "k"), [(64, 4096, 4096), (2048, 2048, 2048), (200, 333, 1000)])
def test_the_fastest_is_right_and_found_again(m: int, n: int, k: int, tmp_path: Path) -> None:
    import cupy
    import ml_dtypes

    problem, store = Problem(m=m, n=n, k=k), Store(tmp_path)
    result = tune(problem, seconds=4, store=store)
    assert result.finished
    assert len(result.measured) >= 10
    assert not [one for one in result.outcomes if one.status in ("wrong", "failed")]
    assert result.untuned_ratio is None or result.untuned_ratio > 0.98
    found = lookup(problem, store=store, tables=())
    assert found is not None
    assert found.config == result.config
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16) for rows in (m, n))
    d = Gemm(m, n, k, config=result.config)(cupy.asarray(a), cupy.asarray(b))
    check = check_gemm(cupy.asnumpy(d), a, b)
    assert check.passed, check.worst
    again = tune(problem, seconds=4, store=store)
    assert (again.config, again.seconds) == (result.config, result.seconds)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 4096, 4096), (4096, 4096, 4096)])
def test_a_configuration_screened_again_takes_as_long(m: int, n: int, k: int) -> None:
    problem = Problem(m=m, n=n, k=k)
    bench, config = GpuBench(problem), select(problem)
    assert bench.device == current_device()
    times = []
    for _ in range(6):
        _ = Gemm(m, n, k, config=config).build
        runner = bench.open(config, True)
        assert runner.check() == ""
        times.append(runner.screen_us(100.0))
    assert max(times[1:]) / min(times[1:]) < 1.03
