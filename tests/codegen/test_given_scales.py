"""Scales whose shape alone does not tell whether they are of rows or of blocks, and those of no or one element."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.bind import OperandError

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
Array = np.ndarray[Any, Any]


def drawn(*shape: int) -> Array:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(shape[-1]).integers(-2, 3, shape).astype(E4M3)


def factors(*shape: int) -> Array:
    """Powers of two."""
    return np.exp2(np.random.default_rng(len(shape)).integers(-1, 2, shape)).astype(np.float32)


def kinds(gemm: Any, a: Array, b: Array, **others: Any) -> tuple[str, str, bool]:
    fusion = gemm.variant_for(a, b, **others).config.fusion
    return fusion.scale_a, fusion.scale_b, fusion.alpha


def spread(scales: Array, rows: int, k: int, by: int) -> Array:
    """Scales of blocks, one for each element."""
    wide = np.repeat(np.repeat(scales.astype(np.float64), by, -2), 128, -1)
    return np.asarray(wide[..., :rows, :k])


@pytest.mark.parametrize("n", [64, 128, 200])
@pytest.mark.parametrize("k", [64, 128, 256])
def test_batched_blocks_are_told_from_rows_by_their_number(n: int, k: int) -> None:
    a, b = drawn(2, 16, k), drawn(2, n, k)
    scale_a, scale_b = factors(2, 16, -(-k // 128)), factors(2, -(-n // 128), -(-k // 128))
    gemm = Gemm(16, n, k, "e4m3", "e4m3", "f32", batch=2)
    assert kinds(gemm, a, b, scale_a=scale_a, scale_b=scale_b)[:2] == ("block", "block")
    if (n, k) == (64, 128):
        d = gemm.emulate(a, b, scale_a=scale_a, scale_b=scale_b, sms=2).d
        left, right = a * spread(scale_a, 16, k, 1), b * spread(scale_b, n, k, 128)
        assert (d == np.einsum("bmk,bnk->bmn", left, right)).all()


@pytest.mark.parametrize("k", [64, 128, 256])
def test_blocks_of_groups_of_rows_are_told_from_rows(k: int) -> None:
    a, b, offsets = drawn(16, k), drawn(2, 64, k), np.array([0, 5, 16], np.int32)
    gemm = Gemm(16, 64, k, "e4m3", "e4m3", "f32", groups=2)
    given = {"scale_a": factors(16, -(-k // 128)), "scale_b": factors(2, 1, -(-k // 128)), "offsets": offsets}
    assert kinds(gemm, a, b, **given)[:2] == ("block", "block")
    if k == 128:
        d = gemm.emulate(a, b, sms=2, **given).d
        left, right = a * spread(given["scale_a"], 16, k, 1), b * spread(given["scale_b"], 64, k, 128)
        assert (d == np.concatenate([left[:5] @ right[0].T, left[5:] @ right[1].T])).all()


def test_rows_beside_rows_are_rows_whatever_blocks_there_would_be() -> None:
    a, b, scale_a, scale_b = drawn(8, 512), drawn(4, 512), factors(8), factors(1, 4)
    d = Gemm(8, 4, 512, "e4m3", "e4m3", "f32").emulate(a, b, scale_a=scale_a, scale_b=scale_b, sms=2).d
    assert (d == (a * scale_a.astype(np.float64)[:, None]) @ (b * scale_b.astype(np.float64).T).T).all()
    blocks = kinds(Gemm(8, 4, 512, "e4m3", "e4m3", "f32"), a, b, scale_a=factors(8, 4), scale_b=scale_b)
    assert blocks == ("block", "block", False)


def test_where_both_readings_remain_promote_decides() -> None:
    a, b = drawn(4, 4, 512), drawn(4, 512)
    given: dict[str, Any] = {"scale_a": factors(4, 4), "scale_b": factors(1, 4)}
    words = r"scale_a \(4, 4\) and scale_b \(1, 4\) may be .*promote=128\) says blocks.*scale_a \(4, 4, 1\).*scale_b \(4, 4, 1\)"
    with pytest.raises(OperandError, match=words):
        Gemm(4, 4, 512, "e4m3", "e4m3", "f32", batch=4).variant_for(a, b, **given)
    promoted = Gemm(4, 4, 512, "e4m3", "e4m3", "f32", batch=4, promote=128)
    assert kinds(promoted, a, b, **given) == ("block", "block", False)
    columns = {"scale_a": factors(4, 4, 1), "scale_b": factors(4, 4, 1)}
    assert kinds(Gemm(4, 4, 512, "e4m3", "e4m3", "f32", batch=4), a, b, **columns) == ("row", "row", False)


@pytest.mark.parametrize(("promote", "wanted"), [(None, ("row", "", True)), (128, ("block", "block", False))])
def test_of_a_single_block_rows_and_a_number_are_meant_unless_sums_are_promoted(promote: Any, wanted: Any) -> None:
    gemm = Gemm(16, 64, 128, "e4m3", "e4m3", "f32", promote=promote)
    assert kinds(gemm, drawn(16, 128), drawn(64, 128), scale_a=factors(16, 1), scale_b=factors(1, 1)) == wanted


@pytest.mark.parametrize(
    ("scale_b", "words"),
    [
        (None, r"scale_b is one number or not given.*give scale_b of shape \(1, 4\), or scale_a of shape \(8,\)"),
        (2.0, r"scale_b is one number or not given.*give scale_b of shape \(1, 4\)"),
        (np.ones(5, np.float32), r"scale_b's shape \(5,\) is not.*give scale_b of shape \(1, 4\)"),
    ],
)
def test_scales_of_blocks_are_both_operands(scale_b: Any, words: str) -> None:
    gemm = Gemm(8, 5, 512, "e4m3", "e4m3", "f32")
    with pytest.raises(OperandError, match=rf"scale_a: shape \(8, 4\) is one for each block.*{words}"):
        gemm.variant_for(drawn(8, 512), drawn(5, 512), scale_a=factors(8, 4), scale_b=scale_b)


def test_misfits_of_a_batch_are_told_the_shapes_of_a_batch() -> None:
    gemm = Gemm(16, 64, 256, "e4m3", "e4m3", "f32", batch=2)
    words = (
        r"scale_b: shape \(2, 2, 1\); .*\(64,\) .*\(1, 2\) for blocks.*\(2, 64\) or \(2, 1, 2\) \(this is the transpose"
    )
    with pytest.raises(OperandError, match=words):
        gemm.variant_for(drawn(2, 16, 256), drawn(2, 64, 256), scale_a=factors(2, 16, 2), scale_b=factors(2, 2, 1))


@pytest.mark.parametrize("promote", [None, 128])
@pytest.mark.parametrize("batch", [None, 2])
def test_without_k_there_are_no_blocks_and_c_and_the_bias_remain(promote: Any, batch: Any) -> None:
    gemm = Gemm(16, 24, 0, "e4m3", "e4m3", "f32", promote=promote, batch=batch)
    several = (batch,) if batch else ()
    a, b, c = (np.zeros((*several, 16, 0), E4M3), np.zeros((24, 0), E4M3), factors(*several, 16, 24))
    scales = {"scale_a": np.zeros((*several, 16, 0), np.float32), "scale_b": np.zeros((1, 0), np.float32)}
    d = gemm.emulate(a, b, c=c, beta=2.0, bias=np.arange(24, dtype=np.float32), sms=2, **scales).d
    assert (d == 2 * c + np.arange(24)).all()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize(("m", "n"), [(1, 16), (16, 1), (1, 1), (3, 5)])
def test_one_number_is_of_the_tensor_whatever_its_size(shape: tuple[int, ...], m: int, n: int) -> None:
    a, b = drawn(m, 64), drawn(n, 64)
    gemm = Gemm(m, n, 64, "e4m3", "e4m3", "f32")
    given = {"scale_a": np.full(shape, 0.5, np.float32), "scale_b": np.full(shape, 4.0, np.float32)}
    assert kinds(gemm, a, b, **given) == ("", "", True)
    if shape != (1, 1):
        seen = Gemm(m, n, 64, "e4m3", "e4m3", "f32", expression="alpha").emulate(a, b, alpha=3.0, sms=2, **given).d
        assert (seen == 6).all()
