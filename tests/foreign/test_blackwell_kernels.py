"""Blackwell GEMMs (sm_100a, tcgen05) that others wrote or compiled, right on the emulator: Triton, QuACK and the CuTe DSL.

As test_foreign_kernels.py, whose two properties hold here too. None of these compilers emits tcgen05.fence, nor most of the tcgen05.wait::ld that
PTX asks for, so all of them run with `strict=False`; values, races between copies, threads and tensor cores, and deadlocks are checked all the same.
"""

from __future__ import annotations

import re
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
    "cute-1-cta": Kernel("cute"),
    "cute-1-cta-64-rows": Kernel("cute", {"tile": (64, 96)}, dtype="f16"),
    "cute-2-cta": Kernel("cute", {"tile": (256, 256), "pair": True, "cluster": (2, 1)}),
    "cute-2-cta-128-rows": Kernel("cute", {"tile": (128, 128), "pair": True, "cluster": (2, 1)}),
    "cute-cluster-2x2": Kernel("cute", {"cluster": (2, 2)}),
    "cute-2-cta-cluster-4x2": Kernel("cute", {"tile": (256, 128), "pair": True, "cluster": (4, 2)}),
    "cute-mn-major": Kernel("cute", {"tile": (128, 192)}, a_major="m", b_major="n"),
    "cute-2-cta-mn-major": Kernel(
        "cute", {"tile": (256, 128), "pair": True, "cluster": (2, 1)}, a_major="m", b_major="n"
    ),
    "cute-e5m2": Kernel("cute", {"tile": (128, 64)}, dtype="e5m2", d_dtype="f32"),
    "cute-s8": Kernel("cute", {"tile": (128, 128)}, dtype="s8", d_dtype="s32"),
}
KERNELS = {name: replace(kernel, arch="sm_100a", strict=False) for name, kernel in KERNELS.items()}

IN_CI = ("triton-tma", "cute-2-cta")


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


def test_columns_given_back_before_all_warps_have_read_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The barrier before the deallocation of cute_blackwell_gemm.py, taken out of its PTX."""
    kernel = KERNELS["cute-1-cta"]
    skip_unless_available(kernel.package)
    run = PREPARE[kernel.package](kernel, tmp_path_factory.mktemp("planted"))
    a, b, d = operands(kernel, np.ones((128, 64)), np.ones((128, 64)))
    sites: list[str] = []

    def without(text: str) -> str:
        sites.extend(re.findall(r"bar.*sync.*\b2, 128;", text))
        return re.sub(r"bar.*sync.*\b2, 128;", "", text)

    races = run(a, b, d, strict=False, edit=without).races
    assert len(sites) == 1
    assert {(race.kind, race.space) for race in races} == {("write after read", "tensor")}
    assert all("tcgen05.wait::ld" in race.missing for race in races)
