"""On a GPU: calls whose launches are kept stay right when arrays move, streams change, graphs are captured, or the launch
comes from another process's record.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import pytest

from stridewright import Gemm, gemm
from stridewright.codegen.gpu_values import Buffers, check_on_gpu, fill_random, poison, random_buffers

pytestmark = pytest.mark.gpu

CHILD = """
import sys, time
import cupy
from stridewright.codegen.gpu_values import random_buffers, check_on_gpu, Buffers
buffers = random_buffers({m}, {n}, {k}, seed=5)
cupy.cuda.Device().synchronize()
import stridewright
d = stridewright.gemm(buffers.a, buffers.b)
cupy.cuda.Device().synchronize()
whole = "stridewright.codegen.gemm" in sys.modules
print(check_on_gpu(Buffers(buffers.a, buffers.b, d)).passed, whole)
"""


def test_repeated_calls_are_right_with_new_contents_and_new_arrays() -> None:
    made = Gemm(320, 512, 256)
    for seed in range(6):
        one = random_buffers(320, 512, 256, seed=seed)
        for _ in range(3):
            fill_random(one.a, 1000 + seed)
            poison(one.d)
            assert made(one.a, one.b, out=one.d) is one.d
            assert check_on_gpu(one).passed
        assert check_on_gpu(Buffers(one.a, one.b, made(one.a, one.b))).passed
        del one
        gc.collect()  # memory goes back to the pool, and to the next arrays
    assert made._calls is not None
    assert len(made._calls.table) < 20


def test_another_shape_at_the_same_address_is_refused() -> None:
    one = random_buffers(320, 512, 256)
    made = Gemm(320, 512, 256)
    made(one.a, one.b, out=one.d)
    with pytest.raises(ValueError, match="shape"):
        made(one.a.reshape(640, 128), one.b, out=one.d)
    halves = one.a[:, :128]
    with pytest.raises(ValueError, match="shape"):
        made(halves, one.b, out=one.d)


def test_split_sums_stay_right_call_after_call_and_in_two_streams() -> None:
    import cupy

    from stridewright.kernels.config import GemmConfig

    config = GemmConfig().replace(tile_n=64, split_kind="split", parts=4)
    made = Gemm(128, 128, 8192, config=config)
    first, second = random_buffers(128, 128, 8192, seed=1), random_buffers(128, 128, 8192, seed=2)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    cupy.cuda.Device().synchronize()
    for _ in range(50):
        made(first.a, first.b, out=first.d, stream=streams[0])
        made(second.a, second.b, out=second.d, stream=streams[1])
    cupy.cuda.Device().synchronize()
    assert check_on_gpu(first).passed
    assert check_on_gpu(second).passed


def test_calls_are_captured_into_a_graph() -> None:
    import cupy

    one = random_buffers(256, 256, 256)
    made = Gemm(256, 256, 256)
    made(one.a, one.b, out=one.d)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        made(one.a, one.b, out=one.d)
        gemm(one.a, one.b, out=one.d)
        graph = stream.end_capture()
    fill_random(one.b, 77)
    poison(one.d)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert check_on_gpu(one).passed


def test_tensors_of_torch_are_ordered_with_their_own_stream() -> None:
    torch: Any = pytest.importorskip("torch")
    a, b = (torch.randn(rows, 1024, device="cuda").bfloat16() for rows in (1024, 768))
    expected = a.double() @ b.double().t()
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        for _ in range(3):
            with torch.cuda.stream(stream):
                fresh = torch.zeros_like(a)
                torch.cuda._sleep(2_000_000)
                fresh.copy_(a)  # queued behind the sleep: read too early, the result is zero
                d = gemm(fresh, b)
                torch.cuda.synchronize()
            assert isinstance(d, torch.Tensor)
            assert float((d.double() - expected).norm() / expected.norm()) < 0.01


def test_a_result_given_to_torch_is_ordered_with_torch_s_stream() -> None:
    """Nothing but PyTorch's current stream orders what comes before and after the launch."""
    torch: Any = pytest.importorskip("torch")
    a, b = (torch.randn(rows, 1024, device="cuda").bfloat16() for rows in (1024, 768))
    bias = torch.randn(768, device="cuda")
    expected = a.double() @ b.double().t()
    out = torch.empty(1024, 768, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    for _ in range(3):
        with torch.cuda.stream(torch.cuda.Stream()):
            for options in ({}, {"bias": bias}):
                fresh = torch.zeros_like(a)
                torch.cuda._sleep(2_000_000)
                fresh.copy_(a)
                gemm(fresh, b, out=out, **options)
                read = out.double()  # queued right behind: read too early, it is what was there before
                out.zero_()
                torch.cuda.current_stream().synchronize()
                should = expected + bias.double() if options else expected
                assert float((read - should).norm() / should.norm()) < 0.01


def test_torch_captures_calls_from_the_first_on() -> None:
    torch: Any = pytest.importorskip("torch")
    a, b = (torch.randn(rows, 320, device="cuda").bfloat16() for rows in (192, 264))
    out = torch.empty(192, 264, device="cuda", dtype=torch.bfloat16)
    fused = Gemm(192, 264, 320, activation="relu")
    plain = Gemm(192, 264, 320)
    fused.kernel.function()  # modules are loaded before: loading is no work of a stream
    plain.kernel.function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plain(a, b, out=out)
        fused(a, b, out=out)
    b.copy_(torch.randn(264, 320, device="cuda"))
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    expected = torch.relu(a.double() @ b.double().t())
    assert float((out.double() - expected).norm() / expected.norm()) < 0.01


def test_arrays_of_numpy_are_ordered_with_a_stream_that_does_not_block() -> None:
    import cupy
    import ml_dtypes
    import numpy as np

    stream = cupy.cuda.Stream(non_blocking=True)
    a, b = (
        np.random.default_rng(rows).standard_normal((rows, 2048)).astype(ml_dtypes.bfloat16) for rows in (2048, 1024)
    )
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    for made in (Gemm(2048, 1024, 2048), Gemm(2048, 1024, 2048, d="f32")):
        for _ in range(3):
            d = made(a, b, stream=stream)
            assert np.linalg.norm(d.astype(np.float32) - expected) < 0.01 * np.linalg.norm(expected)


def test_the_caller_s_workspace_may_hold_anything() -> None:
    import cupy

    from stridewright.kernels.config import GemmConfig

    for reduce in ("ordered", "atomic"):
        config = GemmConfig().replace(tile_n=64, split_kind="split", parts=4, reduce=reduce)
        made = Gemm(128, 128, 8192, config=config)
        one = random_buffers(128, 128, 8192, seed=3)
        mine = cupy.full(made.workspace_bytes, 0xA5, dtype=cupy.uint8)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        for _ in range(3):
            poison(one.d, stream)
            made(one.a, one.b, out=one.d, workspace=mine, stream=stream)
            stream.synchronize()
            assert check_on_gpu(one).passed
            mine[...] = 0xA5
            cupy.cuda.Device().synchronize()
        with pytest.raises(ValueError, match="this launch needs"):
            made(one.a, one.b, out=one.d, workspace=mine[:-16])


def test_launches_captured_with_memory_of_their_own_replay_after_it_is_forgotten() -> None:
    import cupy
    import ml_dtypes
    import numpy as np

    odd = Gemm(96, 104, 77)
    a, b = (cupy.random.standard_normal((rows, 77), np.float32).astype(ml_dtypes.bfloat16) for rows in (96, 104))
    out = cupy.zeros((96, 104), ml_dtypes.bfloat16)
    odd(a, b, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        odd(a, b, out=out)
        graph = stream.end_capture()
    odd._calls = None
    odd.__dict__.pop("_launch_with", None)
    gc.collect()
    trash = [cupy.full(2**16, 255, cupy.uint8) for _ in range(64)]
    out[...] = 0
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    assert float(cupy.linalg.norm(out.astype(np.float32) - expected) / cupy.linalg.norm(expected)) < 0.01
    assert len(trash) == 64


def test_an_array_that_is_reshaped_in_place_is_refused() -> None:
    one = random_buffers(320, 512, 256)
    made = Gemm(320, 512, 256)
    for _ in range(3):
        made(one.a, one.b, out=one.d)
    one.a.shape = (640, 128)
    with pytest.raises(ValueError, match="shape"):
        made(one.a, one.b, out=one.d)


@pytest.mark.parametrize("shape", [(512, 512, 512), (16, 4096, 4096), (333, 777, 1504)])
def test_the_next_process_launches_from_the_record(shape: tuple[int, int, int], tmp_path: Any) -> None:
    m, n, k = shape
    environment = {**os.environ, "STRIDEWRIGHT_CACHE_DIR": str(tmp_path)}
    answers = []
    for _ in range(2):
        command = [sys.executable, "-c", CHILD.format(m=m, n=n, k=k)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        answers.append(done.stdout.split()[-2:])
    assert answers[0] == ["True", "True"]
    assert answers[1][0] == "True"
    # The shapes that are divided by a table, or whose kernel has one, go the whole way again.
    assert answers[1][1] == ("True" if Gemm(m, n, k).order_table().size else "False")
