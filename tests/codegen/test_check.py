"""The check of results: it accepts what arithmetic allows and nothing more."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright.codegen.check import check_gemm

BF16 = ml_dtypes.bfloat16


def inputs(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k)).astype(BF16), rng.standard_normal((n, k)).astype(BF16)


def rounded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(BF16)


@settings(max_examples=50, deadline=None)
@given(m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(1, 300), seed=st.integers(0, 9))
def test_correctly_rounded_results_pass(m: int, n: int, k: int, seed: int) -> None:
    a, b = inputs(m, n, k, seed)
    assert check_gemm(rounded(a, b), a, b).passed


@settings(max_examples=30, deadline=None)
@given(k=st.integers(1, 2000), seed=st.integers(0, 9))
def test_float32_accumulation_in_any_order_passes(k: int, seed: int) -> None:
    a, b = inputs(5, 7, k, seed)
    left, right = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((5, 7), np.float32)
    for index in np.random.default_rng(seed).permutation(k):
        total = total + np.outer(left[:, index], right[:, index])
    assert check_gemm(total.astype(BF16), a, b).passed


@pytest.mark.parametrize("place", [(0, 0), (129, 4), (1500, 16)])
def test_one_wrong_element_is_found_and_named(place: tuple[int, int]) -> None:
    a, b = inputs(1501, 17, 64)
    d = rounded(a, b)
    d[place] = BF16(float(d[place]) + 1)
    found = check_gemm(d, a, b)
    assert not found.passed
    assert found.outside == 1
    assert found.worst.startswith(f"d[{place[0]}, {place[1]}] is ")
    assert found.max_abs_error == pytest.approx(1, rel=0.1)


def test_one_missing_product_of_512_is_found() -> None:
    a, b = inputs(64, 64, 512)
    short = rounded(a[:, :-8], b[:, :-8])
    assert check_gemm(short, a, b).outside > 64 * 64 // 2


def test_relative_error_is_frobenius() -> None:
    a, b = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)
    d = np.eye(3, dtype=np.float32)
    d[0, 1] = 3.0
    assert check_gemm(d, a, b, output="f32").relative_error == pytest.approx(3 / np.sqrt(3))
    zero = np.zeros((3, 3), np.float32)
    assert check_gemm(zero, zero, zero, output="f32").relative_error == 0
    assert check_gemm(d, zero, zero, output="f32").relative_error == np.inf


def test_nan_and_infinity_must_be_where_the_reference_has_them() -> None:
    a, b = inputs(4, 4, 8)
    a[1, 0], b[2, 3] = BF16(np.nan), BF16(np.inf)
    with np.errstate(invalid="ignore"):
        d = rounded(a, b)
        assert check_gemm(d, a, b).passed
        for row, column in ((1, 1), (0, 2)):
            wrong = d.copy()
            wrong[row, column] = BF16(0)
            found = check_gemm(wrong, a, b)
            assert found.outside == 1
            assert found.worst.startswith(f"d[{row}, {column}]")
    clean_a, clean_b = inputs(4, 4, 8)
    spoilt = rounded(clean_a, clean_b)
    spoilt[3, 3] = BF16(np.nan)
    assert check_gemm(spoilt, clean_a, clean_b).outside == 1


def test_overflow_to_infinity_of_the_right_sign_is_right() -> None:
    a = np.full((1, 8), 300.0, np.float32)
    assert check_gemm(np.array([[np.inf]], np.float16), a, a, output="f16").passed
    assert not check_gemm(np.array([[-np.inf]], np.float16), a, a, output="f16").passed
    assert check_gemm(np.array([[-np.inf]], np.float16), a, -a, output="f16").passed


def test_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\), b \(2, 4\)"):
        check_gemm(np.zeros((2, 2)), np.zeros((2, 3)), np.zeros((2, 4)))
