"""On a GPU: random operands, checks, graph loops, cuBLASLt and NVML are what the stand-ins take them for."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen import cublaslt, measure, nvml
from stridewright.codegen.bench import Ours, bench_shape, known_configurations
from stridewright.codegen.check import check_gemm
from stridewright.codegen.gpu_values import (
    check_on_gpu,
    different_elements,
    fill_random,
    poison,
    random_buffers,
)
from stridewright.codegen.speed_of_light import current
from stridewright.kernels.config import GemmConfig

pytestmark = pytest.mark.gpu


def on_host(array: Any) -> np.ndarray[Any, Any]:
    import cupy

    found: np.ndarray[Any, Any] = cupy.asnumpy(array)
    return found


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_operands_are_standard_normal(dtype: str) -> None:
    values = on_host(random_buffers(1024, 1000, 999, dtype).a).astype(np.float64)
    assert abs(values.mean()) < 5 / 1024
    assert abs(values.var() - 1) < 0.01
    assert np.isfinite(values).all()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (300, 517, 264), (1000, 1000, 1000)])
def test_check_agrees_with_numpys(dtype: str, shape: tuple[int, int, int]) -> None:
    buffers = random_buffers(*shape, dtype, seed=3)
    algorithm = cublaslt.heuristics(*shape, dtype)[0]
    cublaslt.CublasLtGemm(*shape, algorithm, dtype).launch(buffers.a, buffers.b, buffers.d)
    found = check_on_gpu(buffers, dtype)
    d, a, b = (on_host(array) for array in (buffers.d, buffers.a, buffers.b))
    expected = check_gemm(d, a, b, output=dtype)
    assert found.passed
    assert found.relative_error == pytest.approx(expected.relative_error, rel=1e-9)
    assert found.max_abs_error == pytest.approx(expected.max_abs_error, rel=1e-9)


def test_wrong_and_unwritten_elements_are_found() -> None:
    buffers = random_buffers(256, 256, 64, integers=True)
    assert not check_on_gpu(buffers).passed
    Gemm(256, 256, 64)(buffers.a, buffers.b, out=buffers.d)
    assert check_on_gpu(buffers, exact_sums=True).passed
    copy = buffers.d.copy()
    assert different_elements(copy, buffers.d) == 0
    copy[17, 5] = copy[17, 5] + 64
    assert different_elements(copy, buffers.d) == 1
    found = check_on_gpu(dataclasses.replace(buffers, d=copy))
    assert found.outside == 1
    assert "d[17, 5]" in found.worst


def test_every_algorithm_of_cublaslt_is_right_in_a_graph() -> None:
    shape = (512, 768, 1024)
    buffers = random_buffers(*shape)
    algorithms = cublaslt.heuristics(*shape)
    assert len(algorithms) > 1
    for algorithm in algorithms:
        launches = cublaslt.CublasLtGemm(*shape, algorithm).launches([buffers])
        loop = measure.GraphLoop(launches, repeats=3)
        poison(buffers.d, loop.stream)
        assert loop.replay_us() > 0
        assert check_on_gpu(buffers).passed, algorithm.name


@pytest.mark.parametrize("dependent", [False, True])
def test_a_graph_of_our_launches_is_right_in_every_buffer(dependent: bool) -> None:
    shape = (512, 512, 512)
    buffers = measure.rotation(*shape)
    assert sum(one.size_bytes for one in buffers) > 2 * measure.l2_bytes()
    loop = measure.GraphLoop(measure.gemm_launches(Gemm(*shape), buffers, dependent), repeats=2)
    for one in buffers:
        poison(one.d, loop.stream)
    loop.replay_us()
    assert all(check_on_gpu(one).passed for one in buffers[:5] + buffers[-5:])


def test_a_loop_takes_as_long_as_its_products_and_pairs_of_one_loop_are_alike() -> None:
    shape = (2048, 2048, 2048)
    launches = measure.gemm_launches(Gemm(*shape), measure.rotation(*shape))
    short, long = measure.GraphLoop(launches, repeats=5), measure.GraphLoop(launches, repeats=40)
    times = measure.measure_rounds({"short": short, "long": long}, rounds=9)
    assert statistics.median(times["short"]) == pytest.approx(statistics.median(times["long"]), rel=0.1)
    same = measure.measure_pairs(long, long, pairs=15)
    assert same.low - 0.01 <= 1 <= same.high + 0.01
    assert same.high - same.low < 0.1


def test_a_sustained_run_has_a_clock_and_power() -> None:
    shape = (4096, 4096, 4096)
    loop = measure.GraphLoop(measure.gemm_launches(Gemm(*shape), measure.rotation(*shape)))
    found = measure.measure_alone(loop, seconds=0.5, warm=0.2)
    light = current()
    assert found.us > 2e6 * 4096**3 / light.peak() * 0.8
    if nvml.gpu_or_none() is not None:
        assert found.clock_mhz is not None
        assert 300 < found.clock_mhz < 3000
        assert found.watts is not None
        assert 50 < found.watts < 2000


def test_a_shape_is_benched_with_everybody_right() -> None:
    given = Ours("given", GemmConfig().replace(tile_m=128, tile_n=64, split_kind="stream"), (False, True))
    found = bench_shape(640, 1024, 768, [*known_configurations(640, 1024, 768), given], current(), rounds=7)
    assert found.passed
    assert not found.refused
    assert found.first is not None
    assert found.best is not None
    assert found.entries[found.best].us <= found.entries[found.first].us
    assert {label for entry in found.entries for label in entry.labels} >= {"untuned", "given", "cublaslt"}


def test_random_numbers_are_the_same_for_a_seed() -> None:
    first, second = random_buffers(64, 64, 64, seed=9), random_buffers(64, 64, 64, seed=9)
    assert different_elements(first.a, second.a) == 0
    fill_random(second.a, 10)
    assert different_elements(first.a, second.a) > 3000
