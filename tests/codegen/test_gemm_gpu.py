"""The GEMM on the GPU: right for every shape, in the caller's kind of array, refusing what does not fit before anything is launched."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen.bind import OperandError
from stridewright.codegen.check import check_gemm
from stridewright.kernels.config import GemmConfig

pytestmark = pytest.mark.gpu

SHAPES = [(1, 8, 8), (130, 136, 72), (257, 129, 512), (333, 777, 1504), (1024, 1024, 1024), (4096, 64, 64)]


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def operands(m: int, n: int, k: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16) for rows in (m, n))
    return a, b


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_the_chosen_kernel_is_right_and_bit_equal_to_the_emulator(cupy: Any, shape: tuple[int, int, int]) -> None:
    a, b = operands(*shape)
    made = Gemm(*shape)
    d = cupy.asnumpy(made(cupy.asarray(a), cupy.asarray(b)))
    assert check_gemm(d, a, b).passed
    if shape[0] * shape[1] * shape[2] < 2**25:
        emulated = made.emulate(a, b, numerics="hardware").d
        np.testing.assert_array_equal(d.view(np.uint16), emulated.view(np.uint16))


@pytest.mark.parametrize("parameters", [{}, {"schedule_kind": "pingpong", "tile_n": 128, "cluster_m": 2}], ids=str)
def test_launches_that_depend_on_one_another_see_each_other_s_results(cupy: Any, parameters: dict[str, Any]) -> None:
    """A chain d1 = a b^T, d2 = d1 b^T, ... launched so that each kernel starts while the one before it ends."""
    size = 1024
    config = GemmConfig().replace(**parameters)
    random = np.random.default_rng(0)
    start, b = (cupy.asarray(random.integers(-1, 2, (size, size)).astype(ml_dtypes.bfloat16)) for _ in range(2))
    b /= cupy.asarray(np.float32(32)).astype(ml_dtypes.bfloat16)
    made = Gemm(size, size, size, config=config)
    chains = []
    for dependent in (False, True):
        a, launches = start, []
        for _ in range(12):
            out = cupy.full((size, size), np.nan, dtype=ml_dtypes.bfloat16)
            launches.append(made.bind(a, b, out, dependent=dependent))
            a = out
        cupy.cuda.Device().synchronize()
        for launch in launches:
            launch.launch()
        chains.append(cupy.asnumpy(a).view(np.uint16))
    np.testing.assert_array_equal(*chains)


def test_torch_arrays_come_back_as_torch_and_views_keep_their_pitch(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    wide = torch.randn(200, 1024, device="cuda").bfloat16()
    a, b = wide[:100, 64:576], torch.randn(72, 512, device="cuda").bfloat16()
    d = gemm(a, b)
    assert isinstance(d, torch.Tensor)
    assert d.dtype == torch.bfloat16
    torch.testing.assert_close(d.float(), (a.double() @ b.double().t()).float(), rtol=2e-2, atol=0.5)
    out = torch.full((100, 136), float("nan"), device="cuda").bfloat16()
    Gemm(100, 72, 512)(a, b, out=out[:, 32:104])
    torch.testing.assert_close(out[:, 32:104], d)
    assert out[:, :32].isnan().all()
    assert out[:, 104:].isnan().all()


def test_a_cuda_graph_replays_the_launch(cupy: Any) -> None:
    a, b = operands(256, 256, 256)
    bound = Gemm(256, 256, 256).bind(cupy.asarray(a), cupy.asarray(b))
    expected = cupy.asnumpy(bound())
    out = bound()
    out.fill(0)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        bound.launch()
        graph = stream.end_capture()
        graph.launch()
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)


def test_the_source_alone_is_a_raw_module(cupy: Any) -> None:
    module = cupy.RawModule(code=Gemm(512, 512, 512).source, options=("-arch=sm_90a",))
    assert module.get_function("stridewright_gemm") is not None


def test_numpy_arrays_go_there_and_come_back() -> None:
    a, b = operands(64, 72, 128)
    d = Gemm(64, 72, 128)(a, b)
    assert isinstance(d, np.ndarray)
    assert check_gemm(d, a, b).passed


def test_arrays_that_do_not_fit_are_refused_and_out_is_untouched(cupy: Any) -> None:
    a, b = (cupy.asarray(array) for array in operands(64, 72, 128))
    made = Gemm(64, 72, 128)
    out = cupy.full((64, 72), 7, dtype=ml_dtypes.bfloat16)
    for left, right, words in (
        (a.astype(np.float32), b, "dtype float32"),
        (a, b[:, :64], "shape (72, 64)"),
    ):
        with pytest.raises(OperandError) as caught:
            made(left, right, out=out)
        assert words in str(caught.value)
    with pytest.raises(OperandError, match=r"must be \(M, K\) and \(N, K\)"):
        gemm(a, b.T)
    assert (cupy.asnumpy(out) == 7).all()


def test_operands_of_other_majors_and_pitches_give_the_same_result(cupy: Any) -> None:
    a, b = (cupy.asarray(array) for array in operands(64, 72, 128))
    plain = cupy.asnumpy(Gemm(64, 72, 128)(a, b))
    wide = cupy.empty((64, 137), dtype=ml_dtypes.bfloat16)
    wide[:, 5:133] = a
    for left in (cupy.asfortranarray(a), wide[:, 5:133]):
        np.testing.assert_array_equal(cupy.asnumpy(Gemm(64, 72, 128)(left, b)), plain)
    doubled = cupy.asnumpy(Gemm(64, 72, 128)(a, b, alpha=2.0))
    np.testing.assert_array_equal(doubled.astype(np.float64), 2.0 * plain.astype(np.float64))


def test_nan_in_a_row_of_a_stays_in_that_row(cupy: Any) -> None:
    a, b = operands(300, 200, 64)
    a[17, 3] = np.nan
    d = cupy.asnumpy(Gemm(300, 200, 64)(cupy.asarray(a), cupy.asarray(b)))
    expected = np.zeros((300, 200), dtype=bool)
    expected[17] = True
    np.testing.assert_array_equal(np.isnan(d), expected)
