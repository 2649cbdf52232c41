"""Every rung of the ladder on the GPU: right into poisoned outputs, at every edge, and bit-equal to the emulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.bind import OperandError
from stridewright.codegen.check import check_gemm
from stridewright.codegen.ladder import Rung, rungs
from stridewright.kernels.ladder import RUNGS

pytestmark = pytest.mark.gpu

NUMBERS = [spec.number for spec in RUNGS]
SHAPES = [
    (1, 8, 8),
    (130, 136, 72),
    (257, 515, 136),
    (300, 520, 456),
    (333, 777, 1504),
    (1024, 1024, 1024),
    (2049, 1032, 264),
]


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def rung(number: str, m: int, n: int, k: int) -> Rung:
    return rungs(m, n, k)[NUMBERS.index(number)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("number", NUMBERS)
def test_a_rung_writes_every_element_and_nothing_else(cupy: Any, number: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16) for rows in (m, n))
    # The result is a part of a larger matrix: what lies beside it must stay as it was.
    wide = cupy.full((m + 2, -(-n // 8) * 8 + 16), np.nan, dtype=ml_dtypes.bfloat16)
    out = wide[1 : m + 1, 8 : 8 + n]
    bound = rung(number, m, n, k).bind(cupy.asarray(a), cupy.asarray(b), out)
    for _ in range(3):
        wide.fill(np.nan)
        bound()
        found = cupy.asnumpy(wide).astype(np.float32)
        check = check_gemm(found[1 : m + 1, 8 : 8 + n].astype(ml_dtypes.bfloat16), a, b)
        assert check.passed, check.worst
        found[1 : m + 1, 8 : 8 + n] = np.nan
        assert np.isnan(found).all()


@pytest.mark.parametrize("number", [number for number in NUMBERS if number != "1"])
def test_a_rung_is_bit_equal_to_the_emulator(cupy: Any, number: str) -> None:
    m, n, k = 257, 264, 200
    random = np.random.default_rng(7)
    a, b = (random.standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16) for rows in (m, n))
    made = rung(number, m, n, k)
    d = cupy.asnumpy(made.bind(cupy.asarray(a), cupy.asarray(b))())
    emulated = made.emulate(a, b, numerics="hardware").d
    np.testing.assert_array_equal(d.view(np.uint16), emulated.view(np.uint16))


def test_arrays_that_do_not_fit_are_refused_before_anything_is_launched(cupy: Any) -> None:
    a, b = (cupy.zeros((rows, 64), dtype=ml_dtypes.bfloat16) for rows in (64, 72))
    made = rung("10", 64, 72, 64)
    for left, right, out, words in (
        (a.astype(np.float32), b, None, "dtype float32"),
        (a, b[:, :32], None, "shape"),
        (cupy.asfortranarray(a), b, None, "not contiguous"),
        (a, b, cupy.zeros((64, 64), dtype=ml_dtypes.bfloat16), "out: shape"),
    ):
        with pytest.raises(OperandError, match=words):
            made.bind(left, right, out)


def test_the_whole_ladder_is_measured_and_drawn(cupy: Any) -> None:
    from stridewright.codegen.ladder_chart import ladder_drawing
    from stridewright.codegen.ladder_measure import measure_ladder

    result = measure_ladder(rungs(1024, 1024, 1024), pairs=3)
    assert result.right
    assert [row.number for row in result.rows] == NUMBERS
    assert all(row.us > 0 and row.ratio > 0 for row in result.rows)
    assert ladder_drawing([result], "a GPU").svg().startswith("<svg")
