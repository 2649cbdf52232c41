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
    assert len(made._calls._known) < 20


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
