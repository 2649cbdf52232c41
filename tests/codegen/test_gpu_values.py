"""Random operands and checks on the GPU: the kernels run on the emulator, against numpy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.check import check_gemm
from stridewright.codegen.gpu_values import (
    Buffers,
    check_on_gpu,
    different_elements,
    fill_random,
    poison,
    random_buffers,
    rows_to_check,
)

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def product(buffers: Buffers) -> np.ndarray[Any, Any]:
    a, b = (array.values.astype(np.float64) for array in (buffers.a, buffers.b))
    rounded: np.ndarray[Any, Any] = (a @ b.T).astype(buffers.d.dtype)
    return rounded


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_standard_normal_and_differ_by_seed(fake_gpu: Any, dtype: str) -> None:
    drawn = []
    for seed in (0, 1):
        array = fake_gpu.cupy.empty(20_001, dtype=TYPES[dtype])
        fill_random(array, seed)
        drawn.append(array.values.astype(np.float64))
    for values in drawn:
        # Five standard errors of the mean and of the variance of 20,001 normal numbers.
        assert abs(values.mean()) < 5 / np.sqrt(20_001)
        assert abs(values.var() - 1) < 5 * np.sqrt(2 / 20_001)
        assert 3.3 < np.abs(values).max() < 6
        # Neighbours are independent: so are the two of a pair, and a pair and the next.
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / np.sqrt(20_000)
    assert abs(np.corrcoef(*drawn)[0, 1]) < 5 / np.sqrt(20_001)


def test_whole_numbers_run_from_minus_three_to_three(fake_gpu: Any) -> None:
    array = fake_gpu.cupy.empty(5_000, dtype=ml_dtypes.bfloat16)
    fill_random(array, 5, integers=True)
    values, counts = np.unique(array.values.astype(float), return_counts=True)
    assert values.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert counts.min() > 5_000 / 7 * 0.8


def test_filling_stops_at_the_end(fake_gpu: Any) -> None:
    storage = fake_gpu.cupy.empty(64, dtype=ml_dtypes.bfloat16)
    part = type(storage)(fake_gpu, storage.values[:33])
    fill_random(part, 0)
    assert (storage.values[:33] != 0).sum() > 30
    assert (storage.values[33:] == 0).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 72), (17, 3, 41), (9, 20, 8)])
def test_a_right_product_passes_with_the_errors_that_numpy_finds(
    fake_gpu: Any, dtype: str, shape: tuple[int, int, int]
) -> None:
    buffers = random_buffers(*shape, dtype, seed=7)
    assert np.isnan(buffers.d.values.astype(float)).all()
    buffers.d.values[...] = product(buffers)
    found = check_on_gpu(buffers, dtype)
    expected = check_gemm(buffers.d.values, buffers.a.values, buffers.b.values, output=dtype)
    assert found.passed
    assert found.elements == shape[0] * shape[1]
    assert found.relative_error == pytest.approx(expected.relative_error, rel=1e-12, abs=1e-300)
    assert found.max_abs_error == pytest.approx(expected.max_abs_error, rel=1e-12, abs=1e-300)


def test_a_wrong_element_is_found_and_named(fake_gpu: Any) -> None:
    buffers = random_buffers(20, 13, 64)
    buffers.d.values[...] = product(buffers)
    buffers.d.values[11, 7] += 1
    buffers.d.values[12, 2] -= 1
    found = check_on_gpu(buffers)
    assert found.outside == 2
    assert "d[11, 7]" in found.worst
    assert found.max_abs_error == pytest.approx(1, abs=0.1)


def test_the_bound_is_that_of_check_gemm(fake_gpu: Any) -> None:
    # Errors of about the size of the bound: both must draw the line at the same elements.
    buffers = random_buffers(16, 16, 256, seed=3)
    exact = buffers.a.values.astype(float) @ buffers.b.values.astype(float).T
    noise = np.random.default_rng(0).uniform(-2, 2, exact.shape) * 2.0**-8 * np.abs(exact)
    buffers.d.values[...] = (exact + noise).astype(ml_dtypes.bfloat16)
    expected = check_gemm(buffers.d.values, buffers.a.values, buffers.b.values)
    assert 20 < expected.outside < 200
    assert check_on_gpu(buffers).outside == expected.outside


def test_whole_numbers_leave_only_the_rounding(fake_gpu: Any) -> None:
    buffers = random_buffers(16, 16, 512, integers=True)
    buffers.d.values[...] = product(buffers)
    assert check_on_gpu(buffers, exact_sums=True).passed
    # One step of bf16 away: within what inexact sums are allowed, not within the rounding.
    largest = np.unravel_index(np.abs(buffers.d.values.astype(float)).argmax(), (16, 16))
    buffers.d.values.view(np.uint16)[largest] += 2
    assert not check_on_gpu(buffers, exact_sums=True).passed


def test_what_is_not_written_is_found_also_in_rows_that_are_not_compared(fake_gpu: Any) -> None:
    buffers = random_buffers(64, 16, 16)
    buffers.d.values[...] = product(buffers)
    compared = rows_to_check(64, 16, 16, most_products=16 * 16 * 16)
    missed = next(row for row in range(64) if row not in compared)
    buffers.d.values[missed, 3] = np.nan
    found = check_on_gpu(buffers, most_products=16 * 16 * 16)
    assert found.elements == 16 * 16
    assert not found.passed
    assert found.worst == "1 elements of D are NaN"


def test_rows_to_check_take_one_of_every_strip() -> None:
    rows = rows_to_check(1000, 4096, 4096, most_products=1e9, seed=4)
    assert len(rows) == 59
    assert all(1000 * strip // 59 <= row < 1000 * (strip + 1) // 59 for strip, row in enumerate(rows))
    assert len(rows_to_check(10**6, 10**5, 10**5)) == 16


def test_bits_are_compared(fake_gpu: Any) -> None:
    x = fake_gpu.cupy.asarray(np.linspace(-1, 1, 700).astype(ml_dtypes.bfloat16))
    y = fake_gpu.cupy.asarray(x.values)
    assert different_elements(x, y) == 0
    y.values[[3, 600]] += 1
    poison(x)
    poison(y)
    assert different_elements(x, y) == 0
    y.values.view(np.uint16)[[3, 600, 699]] = 1
    assert different_elements(x, y) == 3
    with pytest.raises(ValueError, match="one shape"):
        different_elements(x, fake_gpu.cupy.asarray(np.zeros(3, ml_dtypes.bfloat16)))


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'f32'.*'bf16' or 'f16'"):
        random_buffers(8, 8, 8, "f32")
