"""Problems on which the Blackwell kernels are tried, and what right means: integers whose sums are exact, bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from stridewright.codegen.blackwell_gemm import BlackwellGemm, RungGemm
from stridewright.codegen.gemm import GemmEmulation
from stridewright.kernels.config import GemmConfig, Problem

SHAPES = [
    (1, 8, 8),
    (64, 64, 64),
    (128, 64, 64),
    (130, 72, 72),
    (257, 136, 200),
    (100, 520, 96),
    (128, 256, 640),
    (384, 128, 48),
    (333, 129, 512),
    (200, 7, 264),
    (513, 264, 328),
    (255, 511, 104),
    (260, 96, 1000),
]
"""Sizes that no tile divides, K that no slot divides, one row, N that TMA cannot store, and sizes that fit exactly."""


def numpy_type(dtype: str) -> Any:
    return {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]


def operand(rows: int, k: int, seed: int, dtype: str = "bf16", major: str = "k") -> np.ndarray[Any, Any]:
    """Integers from -4 to 4: sums of up to 2^20 of their products are exact in float32."""
    drawn = np.random.default_rng(seed).integers(-4, 5, (rows, k))
    return drawn.astype(numpy_type(dtype), order="F" if major == "mn" else "C")


def operands(gemm: BlackwellGemm, seed: int = 1) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    problem = gemm.problem
    return (
        operand(gemm.m, gemm.k, seed, problem.a, problem.a_major),
        operand(gemm.n, gemm.k, seed + 1, problem.b, problem.b_major),
    )


def exact(gemm: BlackwellGemm, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The exact product, rounded once."""
    product: np.ndarray[Any, Any] = (a.astype(np.float64) @ b.astype(np.float64).T).astype(gemm.result_dtype)
    return product


def assert_right(gemm: BlackwellGemm, seed: int = 0, sms: int = 4) -> GemmEmulation:
    """In strict mode, under this order of completion: the exact product bit for bit, no race, no memory of any kind left."""
    a, b = operands(gemm)
    emulation = gemm.emulate(a, b, seed=seed, sms=sms)
    np.testing.assert_array_equal(emulation.d.view(np.uint16), exact(gemm, a, b).view(np.uint16))
    assert emulation.races == ()
    return emulation


def rung(number: int, shape: tuple[int, int, int], **parameters: object) -> RungGemm:
    return RungGemm(number, *shape, **parameters)  # type: ignore[arg-type]


def gemm_of(config: GemmConfig, shape: tuple[int, int, int]) -> BlackwellGemm:
    problem: Problem = config.problem
    return BlackwellGemm(*shape, problem.a, problem.b, problem.d, config.arch, problem.a_major, problem.b_major, config)
