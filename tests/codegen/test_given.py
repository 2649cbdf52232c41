"""The arrays of a call: scales that are told from one another by their shapes, and what is said of those that do not fit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.bind import OperandError
from stridewright.codegen.quantise import quantise


def drawn(rows: int, k: int, dtype: Any = ml_dtypes.float8_e4m3fn) -> np.ndarray[Any, Any]:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(rows).integers(-2, 3, (rows, k)).astype(dtype)


def test_scales_of_a_single_block_of_k_are_taken() -> None:
    a, b = drawn(64, 128), drawn(256, 128)
    scale_a = np.exp2(np.arange(64) % 3).astype(np.float32)[:, None]
    scale_b = np.array([[0.5], [4.0]], np.float32)
    d = Gemm(64, 256, 128, "e4m3", "e4m3", "f32").emulate(a, b, scale_a=scale_a, scale_b=scale_b).d
    wanted = (a.astype(np.float64) * scale_a) @ (b.astype(np.float64) * np.repeat(scale_b, 128, 0)).T
    assert (d == wanted).all()


def test_scales_of_rows_stay_scales_of_rows_where_there_is_one_block_of_k() -> None:
    g = Gemm(64, 256, 128, "e4m3", "e4m3", "f32")
    a, b = drawn(64, 128), drawn(256, 128)
    rows = {"scale_a": np.ones((64, 1), np.float32), "scale_b": np.ones((256, 1), np.float32)}
    fusion = g.variant_for(a, b, **rows).config.fusion  # type: ignore[attr-defined]
    assert (fusion.scale_a, fusion.scale_b) == ("row", "row")


def test_scales_that_do_not_fit_are_refused_with_all_the_shapes_there_are() -> None:
    g = Gemm(200, 64, 512, "e4m3", "e4m3")
    a, b = drawn(200, 512), drawn(64, 512)
    with pytest.raises(OperandError, match=r"\(4, 200\); there is one number, \(200,\) .* \(200, 4\) .*scale_a\.T"):
        g.emulate(a, b, scale_a=np.ones((4, 200), np.float32), scale_b=np.ones((1, 4), np.float32))


@pytest.mark.parametrize("two", [2, 2.0, np.float32(2), np.float64(2), np.int64(2), np.array(2, np.float32)])
def test_a_number_of_any_kind_is_a_scale(two: Any) -> None:
    a, b = drawn(64, 64), drawn(24, 64)
    d = Gemm(64, 24, 64, "e4m3", "e4m3", "f32").emulate(a, b, scale_a=two).d
    assert (d == 2 * a.astype(np.float64) @ b.astype(np.float64).T).all()


@pytest.mark.parametrize("dtype", ["int64", "uint32", "float32"])
def test_offsets_of_another_type_are_named(dtype: str) -> None:
    a, b = drawn(40, 64, np.float16), np.zeros((2, 24, 64), np.float16)
    words = rf"offsets: dtype {dtype}, and they are int32: offsets\.astype\(np\.int32\)"
    with pytest.raises(OperandError, match=words):
        Gemm(40, 24, 64, "f16", "f16", groups=2).emulate(a, b, offsets=np.array([0, 20, 40], dtype))


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (ml_dtypes.float8_e4m3, "a: dtype float8_e4m3, and kernels take .*; nearest float8_e4m3fn$"),
        (np.int64, "a: dtype int64, .*; nearest int32$"),
        (np.complex64, "a: dtype complex64, and kernels take bfloat16, .*int32$"),
        (np.float64, r"a: dtype f64, .*a\.astype\(ml_dtypes\.float8_e4m3fn\)"),
    ],
)
def test_types_that_no_kernel_takes_are_refused_with_the_array_they_are_of(dtype: Any, words: str) -> None:
    with pytest.raises(OperandError, match=words):
        Gemm(64, 24, 64, "e4m3", "e4m3").emulate(np.zeros((64, 64), dtype), drawn(24, 64))


def test_how_factors_lie_is_told_from_the_factors() -> None:
    one, other = (quantise(np.random.default_rng(i).standard_normal((64, 256)), "mxfp8") for i in range(2))
    g = Gemm(64, 64, 256, "mxfp8", "mxfp8", "f32", "sm_100a")
    with pytest.raises(OperandError, match=r"scale_a: this ScaleTensor .* holds none; .* as \.scales"):
        g.emulate(one.data, other.data, scale_a=one.scale_tensor, scale_b=other.scales)
    with pytest.raises(OperandError, match=r"place\(\) lays them out; a quantised matrix has them so as \.scales"):
        g.emulate(one.data, other.data, scale_a=one.factors, scale_b=other.scales)
