"""The general GEMM on the GPU: arrays of any library, streams, graphs, views, and bits equal to the emulator's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen.breadth import draw, launch
from stridewright.kernels.config import GemmConfig

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def operands(m: int, n: int, k: int, dtype: Any = ml_dtypes.bfloat16) -> tuple[Any, Any]:
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal((rows, k)).astype(dtype) for rows in (m, n))
    return a, b


def test_a_sample_of_random_mixtures_is_right(cupy: Any) -> None:
    cases, _ = draw(seed=5, count=60, kernels=20)
    wrong = {str(case): found for case in cases if (found := launch(case)) and not found.startswith("refused")}
    assert wrong == {}


@pytest.mark.parametrize("dtype", ["f16", "tf32", "s8"])
def test_sums_have_the_emulator_s_bits(cupy: Any, dtype: str) -> None:
    kind = {"f16": np.float16, "tf32": np.float32, "s8": np.int8}[dtype]
    a, b = (
        operands(130, 136, 264, kind)
        if dtype != "s8"
        else ((9 * one).astype(np.int8) for one in operands(130, 136, 264))
    )
    made = Gemm(130, 136, 264, dtype, dtype, "s32" if dtype == "s8" else "f32")
    d = cupy.asnumpy(made(cupy.asarray(a), cupy.asarray(b)))
    np.testing.assert_array_equal(d, made.emulate(a, b, numerics="hardware").d)


def test_promotion_keeps_what_the_tensor_core_drops(cupy: Any) -> None:
    a, b = operands(64, 136, 7168, ml_dtypes.float8_e4m3fn)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    errors = {}
    # One sum over all of K: parts of it that are added in float32 lose less.
    whole_k = GemmConfig().replace(tile_m=64, tile_n=64, tile_k=128, consumers=1, store="direct", stages=3)
    for promote in (0, 128):
        made = Gemm(64, 136, 7168, "e4m3", "e4m3", "f32", config=whole_k, promote=promote)
        d = cupy.asnumpy(made(cupy.asarray(a.view(np.uint8)), cupy.asarray(b.view(np.uint8))))
        errors[promote] = np.linalg.norm(d - exact) / np.linalg.norm(exact)
        np.testing.assert_array_equal(d, made.emulate(a, b, numerics="hardware").d)
    assert errors[128] < 3e-4 < errors[0]


def test_a_graph_of_a_fused_launch_replays(cupy: Any) -> None:
    a, b = map(cupy.asarray, operands(256, 264, 128))
    bias, out = cupy.arange(264, dtype=np.float32), cupy.zeros((256, 264), dtype=ml_dtypes.bfloat16)
    bound = Gemm(256, 264, 128, activation="relu").bind(a, b, out, bias=bias)
    stream = cupy.cuda.Stream(non_blocking=True)
    bound.launch(stream)
    stream.synchronize()
    first = out.copy()
    with stream:
        stream.begin_capture()
        bound.launch(stream)
        graph = stream.end_capture()
    out[...] = 0
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert bool((out.view(np.uint16) == first.view(np.uint16)).all())


def test_majors_come_from_strides_and_views_are_written_in_place(cupy: Any) -> None:
    a, b = operands(128, 136, 64)
    whole = cupy.zeros((128, 160), dtype=ml_dtypes.bfloat16)
    out = whole[:, 8:144]
    plain = cupy.asnumpy(gemm(cupy.asarray(a), cupy.asarray(b)))
    turned = cupy.asarray(np.ascontiguousarray(b.T)).T
    given = gemm(cupy.asarray(a), turned, out=out)
    assert given is out
    np.testing.assert_array_equal(cupy.asnumpy(out).view(np.uint16), plain.view(np.uint16))
    assert not cupy.asnumpy(whole[:, :8]).view(np.uint16).any()


def test_torch_tensors_come_back_as_torch_tensors(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    a = torch.randn(64, 128, device="cuda", dtype=torch.float16)
    b = torch.randn(72, 128, device="cuda", dtype=torch.float16)
    d = gemm(a, b, activation="relu", bias=torch.ones(72, device="cuda", dtype=torch.float16))
    assert d.dtype == torch.float16
    torch.testing.assert_close(d, torch.relu(a.float() @ b.float().T + 1).half(), rtol=2e-3, atol=2e-3)
