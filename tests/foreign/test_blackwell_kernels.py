"""Blackwell GEMMs (sm_100a, tcgen05) that others wrote or compiled, right on the emulator: Triton, QuACK and the CuTe DSL.

As test_foreign_kernels.py, whose two properties hold here too. None of these compilers emits tcgen05.fence, nor most of the tcgen05.wait::ld that
PTX asks for, so all of them run with `strict=False`; values, races between copies, threads and tensor cores, and deadlocks are checked all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from .test_foreign_kernels import NUMPY_TYPES, PREPARE, ROUNDING, Kernel, Run, operands, skip_unless_available

SHAPES = ((256, 256, 512), (512, 272, 192))
"""(m, n, k): several turns of the ring; ragged in n, and tiles that clusters share unevenly."""

KERNELS: dict[str, Kernel] = {
    "triton-pointers": Kernel("triton", {"function": "pointers", "tile": (128, 128, 64)}),
    "triton-tma": Kernel("triton", {"function": "descriptors", "tile": (128, 128, 64)}),
    "triton-tma-8-warps": Kernel("triton", {"function": "descriptors", "tile": (128, 256, 64), "warps": 8}),
    "triton-warp-specialized": Kernel(
        "triton", {"function": "descriptors", "tile": (128, 128, 64), "specialize": True}
    ),
    "triton-b-row": Kernel("triton", {"function": "row_times_row", "tile": (128, 128, 64)}, b_major="n"),
    "triton-device-descriptors": Kernel(
        "triton", {"function": "device_descriptors", "tile": (128, 128, 64), "warps": 8}
    ),
    "triton-e4m3": Kernel("triton", {"function": "descriptors", "tile": (128, 128, 128)}, dtype="e4m3"),
    "triton-two-blocks": Kernel("triton", {"function": "descriptors", "tile": (256, 128, 64), "blocks": 2}),
    "triton-tf32": Kernel("triton", {"function": "pointers", "tile": (128, 128, 32)}, dtype="f32", d_dtype="f32"),
    "quack-1-cta": Kernel("quack", {"tile": (128, 128)}),
    "quack-1-cta-one-tile-a-block": Kernel("quack", {"tile": (128, 256), "persistent": False}),
    "quack-2-cta": Kernel("quack", {"tile": (256, 256), "cluster": (2, 1)}),
    "quack-2-cta-cluster-4x2": Kernel("quack", {"tile": (256, 128), "cluster": (4, 2)}),
    "quack-launch-control": Kernel("quack", {"tile": (128, 128), "dynamic": True}),
    "quack-launch-control-2-cta": Kernel("quack", {"tile": (256, 256), "cluster": (2, 1), "dynamic": True}),
    "quack-mn-major": Kernel("quack", {"tile": (128, 128)}, a_major="m", b_major="n"),
    "quack-2-cta-mn-major": Kernel("quack", {"tile": (256, 128), "cluster": (2, 1)}, a_major="m", b_major="n"),
    "quack-e4m3": Kernel("quack", {"tile": (128, 128)}, dtype="e4m3"),
}
KERNELS = {name: replace(kernel, arch="sm_100a", strict=False) for name, kernel in KERNELS.items()}

IN_CI = ("triton-tma", "quack-2-cta")


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """Kernels that are compiled already."""
    return {}


@pytest.fixture
def run(request: pytest.FixtureRequest, runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Run:
    name = request.getfixturevalue("name")
    kernel = KERNELS[name]
    skip_unless_available(kernel.package)
    if name not in runs:
        runs[name] = PREPARE[kernel.package](kernel, tmp_path_factory.mktemp(name))
    return runs[name]


def named() -> list[Any]:
    return [pytest.param(name, marks=() if name in IN_CI else pytest.mark.slow) for name in KERNELS]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("name", named())
def test_normal_values_within_the_error_bound(name: str, shape: tuple[int, int, int], run: Run) -> None:
    kernel = KERNELS[name]
    m, n, k = shape
    random = np.random.default_rng(sum(shape))
    a, b, d = operands(kernel, random.standard_normal((m, k)), random.standard_normal((n, k)))
    result = run(a, b, d, strict=False)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    expected = a64 @ b64.T
    error = np.abs(d.astype(np.float64) - expected)
    sums = k * 2.0**-23
    bound = sums * (np.abs(a64) @ np.abs(b64).T) + ROUNDING[kernel.d_dtype] * np.abs(expected) * (1 + sums)
    assert (error <= bound).all()
    assert not result.races


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", named())
def test_small_integers_to_the_bit_in_any_legal_order(name: str, seed: int, run: Run) -> None:
    kernel = KERNELS[name]
    m, n, k = SHAPES[-1]
    random = np.random.default_rng(seed)
    a, b, d = operands(kernel, random.integers(-4, 5, (m, k)), random.integers(-4, 5, (n, k)))
    result = run(a, b, d, strict=False, seed=seed)
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
    assert np.array_equal(d, exact.astype(NUMPY_TYPES[kernel.d_dtype]))
    assert not result.races
