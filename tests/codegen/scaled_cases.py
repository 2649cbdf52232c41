"""Block-scaled operands on which the Blackwell kernels are tried, and what right means."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright import Gemm
from stridewright.codegen.blackwell_scaled import BlackwellScaledGemm
from stridewright.codegen.blackwell_select import slot_depth
from stridewright.codegen.gemm import GemmEmulation
from stridewright.codegen.quantise import BlockScaled, quantise, scaled_format
from stridewright.codegen.reference import expected, widened
from stridewright.kernels.config import GemmConfig, Problem

SHAPES = [
    (1, 8, 32),
    (64, 64, 64),
    (128, 128, 128),
    (130, 72, 96),
    (257, 136, 224),
    (100, 520, 96),
    (128, 256, 640),
    (384, 128, 160),
    (333, 129, 512),
    (200, 7, 288),
    (513, 264, 352),
    (255, 511, 1024),
    (260, 96, 1056),
]
"""Sizes that no tile divides, K that no slot and no atom of factors divides, one row, N that TMA cannot store, and sizes that fit exactly."""

FORMATS = ("mxfp8", "mxfp4", "nvfp4")
MIXED = [
    ("mxfp8", "mxfp8_e5m2"),
    ("mxfp8", "mxfp4"),
    ("mxfp4", "mxfp8_e5m2"),
    ("mxfp6_e3m2", "mxfp6_e2m3"),
    ("mxfp6_e2m3", "mxfp8"),
    ("mxfp8_e5m2", "mxfp8_e5m2"),
    ("mxfp4", "mxfp6_e3m2"),
]
TILES = [(False, 128, 64), (False, 128, 128), (False, 128, 192), (False, 128, 256), (True, 256, 64), (True, 256, 128), (True, 256, 192), (True, 256, 256)]  # fmt: skip
"""(pair, tile_m, tile_n): all that block scaling has."""


def exact_operand(rows: int, k: int, name: str, seed: int) -> BlockScaled:
    """Elements 0 to 4 and factors other than one, so few bits in all that every sum of their products is exact in float32."""
    form, random = scaled_format(name), np.random.default_rng(seed)
    codes = form.elements.nearest(random.integers(-4, 5, (rows, k)).astype(np.float64))
    shape = (rows, k // form.vector)
    # ue8m0: 1/4 to 4; ue4m3: 1/2 to 3.5 in steps of a quarter of their power of two.
    drawn = 125 + random.integers(0, 5, shape) if form.scale == "ue8m0" else 0x30 + 2 * random.integers(0, 12, shape)
    return BlockScaled(form, codes, drawn.astype(np.uint8))


def config_of(a: str, b: str, pair: bool, m: int, n: int, d: str = "bf16", **changes: Any) -> GemmConfig:
    problem = Problem(a=a, b=b, d=d)
    config = GemmConfig(arch="sm_100a", problem=problem).replace(
        pair=pair, tile_m=m, tile_n=n, tile_k=slot_depth(problem, 4096), stages=3, group_m=2
    )
    return config.replace(**changes)


def turn_of(number: int) -> dict[str, Any]:
    """Everything beside formats and tiles, in turn."""
    launches, stores = ("static", "clc", "one"), ("tma", "direct")
    return {"launch": launches[number % 3], "store": stores[number // 2 % 2], "order": ("grouped", "row")[number % 2]}


def gemm_of(config: GemmConfig, shape: tuple[int, int, int]) -> BlackwellScaledGemm:
    problem = config.problem
    size = {"f32": 4, "e4m3": 1, "e5m2": 1}.get(problem.d, 2)
    if shape[1] * size % 16:
        config = config.replace(store="direct")
    made = Gemm(*shape, problem.a, problem.b, problem.d, config.arch, problem.a_major, problem.b_major, config)
    assert isinstance(made, BlackwellScaledGemm)
    return made


def assert_exact(config: GemmConfig, shape: tuple[int, int, int], seed: int = 0, sms: int = 4, **options: Any) -> GemmEmulation:  # fmt: skip
    """In strict mode, under this order of completion: the exact product of what was quantised, rounded once to D; no race."""
    gemm = gemm_of(config, shape)
    a, b = exact_operand(shape[0], shape[2], config.problem.a, seed + 1), exact_operand(shape[1], shape[2], config.problem.b, seed + 2)  # fmt: skip
    assert (len(np.unique(a.factors)) > 1) == (a.factors.size > 1) or a.factors.size < 4
    emulation = gemm.emulate(a, b, seed=seed, sms=sms, **options)
    assert emulation.races == ()
    product = a.values() @ b.values().T
    assert np.array_equal(emulation.d, product.astype(np.float32).astype(emulation.d.dtype)), config.name
    return emulation


def assert_near(
    gemm: Any, a: BlockScaled, b: BlockScaled, seed: int = 0, numerics: str = "float32", **others: Any
) -> None:
    """Normal inputs, quantised: within the rounding of float32 sums and of D of the float64 product, terms included."""
    emulation = gemm.emulate(a, b, seed=seed, sms=4, numerics=numerics, **others)
    assert emulation.races == ()
    alpha = others.get("alpha", 1.0) * a.tensor_scale * b.tensor_scale
    left, right = (one.values() / one.tensor_scale for one in (a, b))
    more = {name: others[name] for name in ("c", "beta", "bias") if name in others}
    should = expected(left, right, gemm.problem.d, alpha=alpha, act=gemm.config.fusion.activation, **more)
    eight = gemm.problem.d in ("e4m3", "e5m2")
    got = widened(emulation.d.view(np.uint8), gemm.problem.d) if eight else emulation.d.astype(np.float64)
    off = np.abs(got - should.d)
    assert (off <= should.allowed).all(), float((off - should.allowed).max())


def normal(rows: int, k: int, name: str, seed: int, **options: Any) -> BlockScaled:
    """Normal numbers of rows of many magnitudes, quantised."""
    random = np.random.default_rng(seed)
    values: NDArray[np.float64] = random.standard_normal((rows, k)) * 2.0 ** random.integers(-4, 5, (rows, 1))
    return quantise(values, name, **options)


def every(formats: Any, count: int) -> list[tuple[Any, int]]:
    return list(itertools.product(formats, range(count)))
