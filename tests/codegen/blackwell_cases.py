"""Problems on which the Blackwell kernels are tried, and what right means: integers whose sums are exact, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from stridewright import Gemm
from stridewright.codegen.blackwell_gemm import BlackwellGemm, RungGemm
from stridewright.codegen.breadth import Case, Recipe, make, wrong
from stridewright.codegen.gemm import GemmEmulation
from stridewright.codegen.reference import LARGEST
from stridewright.codegen.tensors import numpy_type as format_type
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.fusion import Fusion
from stridewright.layout.hardware.dtypes import data_type

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


# ---- every format ---------------------------------------------------------------------------------------------------------------

FORMS = ((False, 64), (False, 128), (True, 128), (True, 256))
"""(two CTAs share a tile, its rows)."""

TYPES = (
    ("bf16", "bf16", ("f32", "e4m3", "s8", "bf16")),
    ("f16", "f16", ("f32", "bf16", "e5m2", "f16")),
    ("tf32", "tf32", ("f32", "bf16", "f16", "e4m3")),
    ("e4m3", "e4m3", ("bf16", "e4m3", "f32", "s8")),
    ("e4m3", "e5m2", ("f16", "f32", "e5m2", "bf16")),
    ("e5m2", "e4m3", ("f32", "bf16", "e4m3", "f16")),
    ("e5m2", "e5m2", ("bf16", "e5m2", "f32", "f16")),
    ("e2m3", "e2m3", ("f32", "bf16", "f16", "e4m3")),
    ("e3m2", "e4m3", ("bf16", "f32", "e4m3", "f16")),
    ("e2m1", "e2m1", ("f32", "f16", "bf16", "e5m2")),
    ("e5m2", "e2m1", ("bf16", "f32", "f16", "e4m3")),
    ("e2m1", "e3m2", ("f16", "bf16", "f32", "e4m3")),
    ("s8", "s8", ("s32", "s8", "bf16", "f32")),
    ("u8", "s8", ("s32", "f32", "s8", "e4m3")),
    ("s8", "u8", ("s8", "s32", "f16", "bf16")),
    ("u8", "u8", ("s32", "s8", "f32", "bf16")),
)
"""A, B, and formats of D, used in turn."""

FUSIONS = (
    Fusion(),
    Fusion(alpha=True, c="f32"),
    Fusion(alpha=True, bias="n", activation="relu"),
    Fusion(),
    Fusion(scale_a="row", scale_b="row", c="bf16", bias="m", bias_format="bf16", aux=True, amax=True),
    Fusion(alpha=True, c="f16", scale_d=True, activation="gelu"),
    Fusion(bias="n", bias_format="f16", amax=True),
    Fusion(),
    Fusion(gated=True, activation="silu", alpha=True, bias="n", aux=True),
)

IN_BYTES = ("e2m3", "e3m2", "e2m1")


def depth_of(a: str, b: str) -> int:
    """Elements of K in a slot: those of the widest swizzle's span."""
    return {"tf32": 32, "bf16": 64, "f16": 64}.get(a, 128)


def typed_case(number: int, types: tuple[str, str, tuple[str, ...]], shape: tuple[int, int, int]) -> Case:
    """A case of these formats and this shape; everything else in turn by ``number``."""
    a, b, results = types
    (pair, tile_m), fusion = FORMS[number % 4], FUSIONS[number % len(FUSIONS)]
    m, n, k = shape
    n += n % 2 if fusion.gated else 0
    majors = ("k", "k")
    if a in IN_BYTES or b in IN_BYTES:
        k = -(-k // 128) * 128
    elif number % 3 == 1:
        majors = (("mn", "mn"), ("k", "mn"), ("mn", "k"))[number % 9 // 3]
    config = GemmConfig(arch="sm_100a", fusion=fusion).replace(
        problem=Problem(a=a, b=b, d=results[number % len(results)], a_major=majors[0], b_major=majors[1]),  # type: ignore[arg-type]
        pair=pair, tile_m=tile_m, tile_n=(64, 64 if a == "tf32" else 96, 192)[number % 3], tile_k=depth_of(a, b), stages=2 + number % 2,
        accumulators=1 + number // 2 % 2, launch=("static", "clc")[number % 5 == 0], group_m=2,
    )  # fmt: skip
    size = 128 // data_type(config.problem.d).bits
    config = config.replace(store="direct" if n % size or number % 6 == 5 or fusion.gated else "tma")
    integers = number % 8 != 7 or a in ("s8", "u8")
    return Case(Recipe(config), m, n, k, 1, number, integers, (0, 0, 0), (False, False))


CONVERTED = (
    ("e4m3", "bf16", ("bf16", "f32", "e4m3")),
    ("e4m3", "f16", ("f32", "f16")),
    ("e5m2", "bf16", ("f32", "bf16", "s8")),
    ("e5m2", "f16", ("f16", "f32")),
    ("s8", "bf16", ("bf16", "f32")),
    ("s8", "f16", ("f32", "f16")),
    ("u8", "bf16", ("f32", "bf16")),
    ("u8", "f16", ("f16", "f32", "e5m2")),
)
"""A of 8 bits that becomes B's format on its way."""


def in_tensor_memory(number: int, types: tuple[str, str, tuple[str, ...]], shape: tuple[int, int, int]) -> Case:
    """A case whose A is multiplied from tensor memory, to which it is copied or written by a warpgroup, in turn."""
    case = typed_case(number, types, shape)
    config = case.recipe.config
    problem = dataclasses.replace(config.problem, a_major="k")
    through = types in CONVERTED or number % 2 == 1
    pair = not through and number % 4 == 2
    tile_k = 64 if types in CONVERTED else depth_of(types[0], types[1])
    config = config.replace(
        problem=problem, a_in="registers" if through else "tensor", pair=pair, tile_m=256 if pair else 128, tile_k=tile_k,
        tile_n=(64, 64 if types[0] == "tf32" else 96, 128)[number % 3],
    )  # fmt: skip
    return dataclasses.replace(case, recipe=Recipe(config))


def rounded_once(product: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Exact numbers in a format: to the nearest, ties to even; 8-bit formats and whole numbers saturate."""
    largest = LARGEST.get(dtype)
    if largest is not None:
        product = np.clip(product, -largest - (dtype in ("s8", "s32")), largest)
    kept: np.ndarray[Any, Any] = product.astype(format_type(dtype))
    return kept


def assert_typed(case: Case, seed: int = 0, sms: int = 3, numerics: str = "float32") -> None:
    """In strict mode: right against float64 of the same inputs, per-tensor scales included; a plain product of whole numbers
    is the exact one bit for bit; no race.
    """
    problem, arrays = case.recipe.problem, make(case)
    many = {"batch": case.batches} if problem.form == "batch" else {}
    gemm = Gemm(
        case.m, case.n, case.k, problem.a, problem.b, problem.d, "sm_100a", problem.a_major, problem.b_major, case.recipe.config,
        **many,
    )  # fmt: skip
    given = dict(arrays.others)
    if case.recipe.config.fusion.alpha and not case.recipe.config.fusion.scale_a:
        # One scale of all of A, in memory, and one of all of B, a number: their product joins alpha.
        given |= {"scale_a": np.array([0.5], np.float32), "scale_b": 4.0}
        arrays.others["alpha"] = 2.0 * float(np.asarray(arrays.others["alpha"]).reshape(-1)[0])
    emulation = gemm.emulate(arrays.a, arrays.b, seed=seed, sms=sms, numerics=numerics, **given)
    assert emulation.races == ()
    assert wrong(case, arrays, emulation.d, 2.0**-23, written=given) == "", str(case)
    if case.integers and not case.recipe.config.fusion.uses_terms:
        exact = arrays.a.astype(np.float64) @ np.swapaxes(arrays.b.astype(np.float64), -1, -2)
        exact = np.ascontiguousarray(np.broadcast_to(exact, emulation.d.shape))
        expected = rounded_once(exact, problem.d)
        np.testing.assert_array_equal(emulation.d.view(np.uint8), expected.view(np.uint8), str(case))
