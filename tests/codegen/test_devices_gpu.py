"""On two or more GPUs: a call runs where its arrays lie, whichever device is current, with a kernel, streams and workspaces of
that device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen import launch
from stridewright.codegen.gpu_values import Buffers, check_on_gpu, fill_random, poison, random_buffers
from stridewright.kernels.config import GemmConfig

pytestmark = pytest.mark.gpu
BF16 = ml_dtypes.bfloat16


@pytest.fixture
def cupy() -> Iterator[Any]:
    module: Any = pytest.importorskip("cupy")
    if module.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    with module.cuda.Device(0):
        yield module
        assert module.cuda.runtime.getDevice() == 0


def buffers_on(cupy: Any, device: int, m: int = 320, n: int = 512, k: int = 256, seed: int = 0) -> Buffers:
    with cupy.cuda.Device(device):
        made = random_buffers(m, n, k, seed=seed)
        cupy.cuda.Device(device).synchronize()
    return made


def right(cupy: Any, device: int, buffers: Buffers) -> bool:
    with cupy.cuda.Device(device):
        cupy.cuda.Device(device).synchronize()
        return check_on_gpu(buffers).passed


@pytest.mark.parametrize("way", ["Gemm", "gemm"])
def test_calls_follow_their_arrays_from_device_to_device(cupy: Any, way: str) -> None:
    made = Gemm(320, 512, 256)
    sets = {device: buffers_on(cupy, device, seed=device) for device in (1, 0)}
    for turn in range(4):
        for device, one in sets.items():
            with cupy.cuda.Device(device):
                fill_random(one.a, 100 + turn)
                poison(one.d)
                cupy.cuda.Device(device).synchronize()
            call = made if way == "Gemm" else gemm
            assert call(one.a, one.b, out=one.d) is one.d
            assert right(cupy, device, one)
            fresh = call(one.a, one.b)
            assert int(fresh.device.id) == device
            assert right(cupy, device, Buffers(one.a, one.b, fresh))


def test_a_bound_launch_stays_on_its_device(cupy: Any) -> None:
    one = buffers_on(cupy, 1)
    with cupy.cuda.Device(1):
        bound = Gemm(320, 512, 256).bind(one.a, one.b, one.d)
        poison(one.d)
        cupy.cuda.Device(1).synchronize()
    bound.launch()
    assert right(cupy, 1, one)


def test_a_stream_of_the_arrays_device_is_used(cupy: Any) -> None:
    one = buffers_on(cupy, 1)
    made = Gemm(320, 512, 256)
    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream(non_blocking=True)
        poison(one.d)
        cupy.cuda.Device(1).synchronize()
    for _ in range(3):
        made(one.a, one.b, out=one.d, stream=stream)
    with cupy.cuda.Device(1):
        stream.synchronize()
        assert check_on_gpu(one).passed


def test_split_sums_have_a_workspace_on_each_device(cupy: Any) -> None:
    config = GemmConfig().replace(tile_n=64, split_kind="split", parts=4)
    made = Gemm(128, 128, 8192, config=config)
    sets = {device: buffers_on(cupy, device, 128, 128, 8192, seed=device) for device in (0, 1)}
    for _ in range(20):
        for one in sets.values():
            made(one.a, one.b, out=one.d)
    for device, one in sets.items():
        assert right(cupy, device, one)


def test_fused_and_batched_calls_follow_their_arrays(cupy: Any) -> None:
    fused, batched = Gemm(64, 96, 128, d="f32", activation="relu"), Gemm(64, 96, 128, d="f32", batch=3)
    for device in (1, 0, 1):
        with cupy.cuda.Device(device):
            a, b = (cupy.random.standard_normal((3, rows, 128), np.float32).astype(BF16) for rows in (64, 96))
            bias = cupy.random.standard_normal(96, np.float32)
            sums = a.astype(np.float32) @ b.astype(np.float32).transpose(0, 2, 1)
            cupy.cuda.Device(device).synchronize()
        d = fused(a[0], b[0], bias=bias)
        several = batched(a, b)
        with cupy.cuda.Device(device):
            cupy.testing.assert_allclose(d, cupy.maximum(sums[0] + bias, 0), rtol=1e-3, atol=1e-2)
            cupy.testing.assert_allclose(several, sums, rtol=1e-3, atol=1e-2)


def test_arrays_of_two_devices_are_refused(cupy: Any) -> None:
    near, far = buffers_on(cupy, 0), buffers_on(cupy, 1)
    with pytest.raises(launch.LaunchError, match="b: lies on device 1, and the launch is on device 0"):
        gemm(near.a, far.b, out=near.d)
    with pytest.raises(launch.LaunchError, match="out: lies on device 0, and the launch is on device 1"):
        gemm(far.a, far.b, out=near.d)


def test_each_thread_has_its_own_device(cupy: Any) -> None:
    failed: list[Any] = []

    def work(device: int) -> None:
        try:
            one = buffers_on(cupy, device, 256, 256, 192, seed=device)
            with cupy.cuda.Device(device):
                for _ in range(50):
                    gemm(one.a, one.b, out=one.d)
            assert right(cupy, device, one)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_graph_of_the_other_device(cupy: Any) -> None:
    one = buffers_on(cupy, 1)
    gemm(one.a, one.b, out=one.d)
    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            gemm(one.a, one.b, out=one.d)
            graph = stream.end_capture()
        fill_random(one.b, 5)
        poison(one.d)
        cupy.cuda.Device(1).synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert check_on_gpu(one).passed


def test_tensors_of_the_other_device(cupy: Any) -> None:
    torch: Any = pytest.importorskip("torch")
    a, b = (torch.randn(rows, 256, device="cuda:1").bfloat16() for rows in (320, 512))
    out = torch.empty(320, 512, device="cuda:1", dtype=torch.bfloat16)
    expected = a.float() @ b.float().t()
    for stream in (torch.cuda.default_stream(1), torch.cuda.Stream(1)):
        with torch.cuda.device(1), torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.default_stream(1))
            out.zero_()
            for _ in range(2):
                assert gemm(a, b, out=out) is out
            fresh = gemm(a, b)
            stream.synchronize()
        assert fresh.device == a.device
        for d in (out, fresh):
            assert float((d.float() - expected).norm() / expected.norm()) < 0.01
