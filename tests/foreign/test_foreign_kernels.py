"""Hopper GEMMs that others wrote or compiled, right on the emulator: Triton, QuACK and the CuTe DSL.

Each is compiled while the test runs, on a machine with no GPU, and executed from the PTX that its compiler emits. The CuTe DSL's host code
(QuACK's too) runs as well and says itself what it launches: grid, cluster, shared memory, tensor maps, parameters. Nothing that these
packages made is kept in the repository.

    pip install -r tests/foreign/requirements.txt
    pytest tests/foreign                              # one kernel each of Triton and of the CuTe DSL
    pytest tests/foreign -m "slow or not slow"        # all of them: the nightly command

Two properties are held. Small integers: all sums are exact, so D must be the float64 result rounded to D's type, to the bit, under any legal
order of asynchronous work. Normal values: each element lies within K roundings of float32 on |A| |B| plus one rounding of D.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationResult

from .capture import COMPILER, DeviceTensor

Array = NDArray[Any]

NUMPY_TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "f32": np.float32,
    "s8": np.int8,
    "s32": np.int32,
}

SHAPES = ((256, 256, 512), (128, 384, 64), (200, 264, 192))
"""(m, n, k): several tiles and turns of the ring; one k-tile; ragged in m, n and (for 128-wide k-tiles) k."""


@dataclass(frozen=True)
class Kernel:
    """One kernel under test: how to compile it, and what its operands look like."""

    package: str
    options: dict[str, Any] = field(default_factory=dict)
    dtype: str = "bf16"
    a_major: str = "k"
    b_major: str = "k"
    d_major: str = "n"
    d_dtype: str = "bf16"
    strict: bool = True
    arch: str = "sm_90a"


# Triton starts bulk copies on a barrier after `mbarrier.init; bar.sync`, with none of the fences that PTX documents between an
# initialisation and the async proxy's use of the barrier. With warps specialised it also lets several warps write one same value to one place,
# and gives a wait the parity 0xffffffff, of which the chip takes the lowest bit. All three pass on hardware: `strict=False`.
KERNELS: dict[str, Kernel] = {
    "triton-pointers": Kernel("triton", {"function": "pointers", "tile": (128, 128, 64)}),
    "triton-pointers-8-warps": Kernel(
        "triton", {"function": "pointers", "tile": (128, 128, 32), "warps": 8, "stages": 4}
    ),
    "triton-pointers-f16": Kernel("triton", {"function": "pointers", "tile": (64, 64, 64)}, dtype="f16"),
    "triton-tma": Kernel("triton", {"function": "descriptors", "tile": (128, 128, 64)}, strict=False),
    "triton-tma-8-warps": Kernel(
        "triton", {"function": "descriptors", "tile": (128, 256, 64), "warps": 8}, strict=False
    ),
    "triton-device-descriptors": Kernel(
        "triton", {"function": "device_descriptors", "tile": (128, 128, 64), "warps": 8}
    ),
    "triton-tma-b-row": Kernel(
        "triton", {"function": "row_times_row", "tile": (64, 128, 64)}, b_major="n", strict=False
    ),
    "triton-tma-e4m3": Kernel(
        "triton", {"function": "descriptors", "tile": (128, 128, 128)}, dtype="e4m3", strict=False
    ),
    "triton-pointers-tf32": Kernel(
        "triton", {"function": "pointers", "tile": (128, 128, 32)}, dtype="f32", d_dtype="f32"
    ),
    "triton-two-blocks": Kernel("triton", {"function": "pointers", "tile": (128, 128, 64), "blocks": 2}),
    "triton-warp-specialized": Kernel(
        "triton", {"function": "descriptors", "tile": (64, 128, 64), "specialize": True}, strict=False
    ),
    "quack-cooperative": Kernel("quack"),
    "quack-cooperative-256x128": Kernel("quack", {"tile": (256, 128)}),
    "quack-ping-pong": Kernel("quack", {"ping_pong": True}),
    "quack-ping-pong-128x192": Kernel("quack", {"ping_pong": True, "tile": (128, 192)}),
    "quack-cluster-2x1": Kernel("quack", {"cluster": (2, 1)}),
    "quack-cluster-1x2": Kernel("quack", {"cluster": (1, 2)}),
    "quack-cluster-2x1-one-tile-a-block": Kernel("quack", {"cluster": (2, 1), "persistent": False}),
    "quack-ping-pong-cluster-2x1": Kernel("quack", {"ping_pong": True, "cluster": (2, 1)}),
    "quack-mn-major": Kernel("quack", a_major="m", b_major="n"),
    "quack-d-columns": Kernel("quack", d_major="m"),
    "quack-e4m3": Kernel("quack", dtype="e4m3"),
    "quack-e4m3-ping-pong": Kernel("quack", {"ping_pong": True}, dtype="e4m3"),
    "cute-cooperative": Kernel("cute"),
    "cute-ping-pong": Kernel("cute", {"tile": (64, 128, 64), "ping_pong": True}),
    "cute-ping-pong-64x96-five-stages": Kernel(
        "cute", {"tile": (64, 96, 64), "ping_pong": True, "stages": 5}, b_major="n"
    ),
    "cute-cluster-2x1": Kernel("cute", {"cluster": (2, 1)}),
    "cute-cluster-2x2": Kernel("cute", {"cluster": (2, 2)}),
    "cute-mn-major": Kernel("cute", a_major="m", b_major="n"),
    "cute-e4m3": Kernel("cute", {"tile": (128, 128, 128)}, dtype="e4m3"),
    "cute-e5m2": Kernel("cute", {"tile": (128, 64, 128), "cluster": (1, 2)}, dtype="e5m2", d_dtype="f32"),
    "cute-s8": Kernel("cute", {"tile": (128, 96, 128)}, dtype="s8", d_dtype="s32"),
    "cute-one-consumer": Kernel("cute", {"tile": (64, 256, 32), "consumers": 1, "stages": 3}, dtype="f16"),
}

IN_CI = ("triton-tma", "cute-cooperative")

MODULES = {
    "triton": ("triton",),
    "cute": ("cutlass", "tvm_ffi"),
    "quack": ("quack", "cutlass", "tvm_ffi", "torch"),
}


def skip_unless_available(package: str) -> None:
    missing = [name for name in MODULES[package] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install -r tests/foreign/requirements.txt")
    if package != "triton" and COMPILER is None:
        pytest.skip("no C compiler (cc, gcc or clang), needed to run the CuTe DSL's host code without a driver")


Run = Callable[..., EmulationResult]


def prepare_triton(kernel: Kernel, folder: Path) -> Run:
    from . import triton_gemm

    options = kernel.options | {"function": getattr(triton_gemm, kernel.options["function"])}
    compiled = triton_gemm.compile_triton(dtype=kernel.dtype, d_dtype=kernel.d_dtype, arch=kernel.arch, **options)

    def run(a: Array, b: Array, d: Array, **how: Any) -> EmulationResult:
        stored = b.T if kernel.b_major == "n" else b
        return compiled.emulate(a, stored, d, **how)

    return run


ADDRESSES = (0x7F00_0000_0000, 0x7F10_0000_0000, 0x7F20_0000_0000)


def prepare_hosted(compiled: Any, kernel: Kernel, batch: bool) -> Run:
    """For functions whose host code runs: tensors go to it by address, and come back by it in the launch."""

    def run(a: Array, b: Array, d: Array, **how: Any) -> EmulationResult:
        tensors = []
        for address, array, dtype in zip(
            ADDRESSES, (a, b, d), (kernel.dtype, kernel.dtype, kernel.d_dtype), strict=True
        ):
            shape, strides = array.shape, tuple(stride // array.itemsize for stride in array.strides)
            if batch:
                shape, strides = (1, *shape), (array.size, *strides)
            tensors.append(DeviceTensor(address, shape, strides, dtype))
        launch = compiled.launch(*tensors, clusters=2)
        return launch.emulate(dict(zip(ADDRESSES, (a, b, d), strict=True)), **how)

    return run


def prepare_quack(kernel: Kernel, folder: Path) -> Run:
    from .quack_gemm import QuackGemm

    majors = {"a_major": kernel.a_major, "b_major": kernel.b_major, "d_major": kernel.d_major}
    return prepare_hosted(
        QuackGemm(folder, dtype=kernel.dtype, arch=kernel.arch, **majors, **kernel.options), kernel, batch=True
    )


def prepare_cute(kernel: Kernel, folder: Path) -> Run:
    if kernel.arch == "sm_100a":
        from .cute_blackwell_gemm import BlackwellForm, CompiledBlackwellGemm

        types = (kernel.dtype, kernel.d_dtype, kernel.a_major, kernel.b_major)
        compiled = CompiledBlackwellGemm(folder, BlackwellForm(**kernel.options), *types)
        return prepare_hosted(compiled, kernel, batch=False)
    from .cute_gemm import CompiledCuteGemm, Form

    form = Form(**kernel.options)
    return prepare_hosted(
        CompiledCuteGemm(folder, form, kernel.dtype, kernel.d_dtype, kernel.a_major, kernel.b_major),
        kernel,
        batch=False,
    )


PREPARE: dict[str, Callable[[Kernel, Path], Run]] = {
    "triton": prepare_triton,
    "quack": prepare_quack,
    "cute": prepare_cute,
}


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


ROUNDING = {"bf16": 2.0**-8, "f32": 2.0**-23, "s32": 0.0}
"""Unit roundoff of D's type, where truncation is allowed."""


def matrix(values: Array, dtype: str, rows_contiguous: bool) -> Array:
    if dtype == "s8":
        array = np.rint(values).astype(np.int8)
    else:
        array = values.astype(np.float32).astype(NUMPY_TYPES[dtype])
    if dtype == "f32":
        # What tf32 keeps: the tensor core does not look at the low 13 bits.
        array = (array.view(np.uint32) & np.uint32(0xFFFF_E000)).view(np.float32)
    return np.ascontiguousarray(array) if rows_contiguous else np.ascontiguousarray(array.T).T


def unwritten(kernel: Kernel, m: int, n: int) -> Array:
    """A D full of what no kernel computes: NaN, or the most negative integer."""
    order: Any = "C" if kernel.d_major == "n" else "F"
    kind = NUMPY_TYPES[kernel.d_dtype]
    return np.full((m, n), np.iinfo(kind).min if kernel.d_dtype == "s32" else np.nan, kind, order=order)


def operands(kernel: Kernel, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """A, B and an unwritten D in the kernel's types and majors."""
    return (
        matrix(a, kernel.dtype, kernel.a_major == "k"),
        matrix(b, kernel.dtype, kernel.b_major == "k"),
        unwritten(kernel, a.shape[0], b.shape[0]),
    )


def named(names: tuple[str, ...] = tuple(KERNELS)) -> list[Any]:
    return [pytest.param(name, marks=() if name in IN_CI else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("name", named())
def test_normal_values_within_the_error_bound(name: str, shape: tuple[int, int, int], run: Run) -> None:
    kernel = KERNELS[name]
    m, n, k = shape
    random = np.random.default_rng(sum(shape))
    scale = 30 if kernel.dtype == "s8" else 1
    a, b, d = operands(kernel, scale * random.standard_normal((m, k)), scale * random.standard_normal((n, k)))
    result = run(a, b, d, strict=kernel.strict)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    expected = a64 @ b64.T
    error = np.abs(d.astype(np.float64) - expected)
    # Each of k additions rounds or truncates by at most 2**-23; integers are exact.
    sums = 0.0 if kernel.d_dtype == "s32" else k * 2.0**-23
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
    result = run(a, b, d, strict=kernel.strict, seed=seed)
    # Every sum is below 2**24: float32 accumulates exactly, and D is the exact sum rounded once.
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
    assert np.array_equal(d, exact.astype(NUMPY_TYPES[kernel.d_dtype]))
    assert not result.races
