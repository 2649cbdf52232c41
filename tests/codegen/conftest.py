"""A stand-in for CuPy with a GPU whose clock is a number: memory is numpy's, kernels of values.cuh run on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright.codegen import gpu_values, launch


class FakeArray:
    """An array on the fake GPU; its address is a number that leads back to it."""

    def __init__(self, gpu: FakeGpu, values: np.ndarray[Any, Any]) -> None:
        self.values = values
        gpu.next_address += 1 << 32
        self.data = SimpleNamespace(ptr=gpu.next_address)
        gpu.memory[self.data.ptr] = values

    def __getattr__(self, name: str) -> Any:
        return getattr(self.values, name)


class FakeStream:
    """Runs what it is given at once, or notes it while it is captured."""

    ptr = 77

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.captured: list[tuple[float, Callable[[], None] | None]] | None = None

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, us: float, work: Callable[[], None] | None = None) -> None:
        """A kernel of so many microseconds, and what it does."""
        if self.captured is not None:
            self.captured.append((us, work))
            return
        self.gpu.now_us += us
        if work is not None:
            work()

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> SimpleNamespace:
        assert self.captured is not None
        nodes, self.captured = self.captured, None
        self.gpu.graphs.append(len(nodes))

        def launch(stream: FakeStream) -> None:
            for us, work in nodes:
                stream.run(us, work)

        return SimpleNamespace(launch=launch)

    def synchronize(self) -> None:
        assert self.captured is None, "waiting for a stream that is being captured is an error of CUDA's"


class FakeGpu:
    """What of CuPy the package uses."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.graphs: list[int] = []
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.next_address = 0
        self.stream = FakeStream(self)
        gpu = self

        class Event:
            def record(self, stream: FakeStream) -> None:
                self.at = gpu.now_us

            def synchronize(self) -> None:
                pass

        runtime = SimpleNamespace(
            getDevice=lambda: 0, memsetAsync=self.memset, deviceGetPCIBusId=lambda d: "0000:01:00.0"
        )
        device = SimpleNamespace(synchronize=lambda: None, attributes={"L2CacheSize": 4096, "MultiProcessorCount": 132})
        self.cupy = SimpleNamespace(
            __version__="14.2.0",
            empty=lambda shape, dtype: FakeArray(gpu, np.zeros(shape, dtype)),
            asarray=lambda values: FakeArray(gpu, values.copy()),
            asnumpy=lambda array: array.values.copy(),
            cuda=SimpleNamespace(
                runtime=runtime,
                Device=lambda *given: device,
                Event=Event,
                Stream=lambda non_blocking: self.stream,
                get_elapsed_time=lambda start, end: (end.at - start.at) / 1000,
            ),
        )

    def memset(self, address: int, value: int, size: int, stream: int) -> None:
        array = self.memory[address]
        assert array.nbytes == size
        array.view(np.uint8)[...] = value

    def launch_values(self, name: str, grid: tuple[int, ...], args: tuple[Any, ...], stream: Any = None) -> None:
        """A kernel of values.cuh, on the emulator."""
        from importlib import resources

        from stridewright.codegen.build import build
        from stridewright.codegen.emulator import emulate_ptx

        source = resources.files("stridewright.kernels").joinpath("cuda", "values.cuh").read_text(encoding="utf-8")
        found = [self.memory[arg.address] if isinstance(arg, launch.DevicePointer) else arg for arg in args]
        emulate_ptx(build(source).ptx, name, grid, gpu_values.BLOCK, found, check_races=False)


@pytest.fixture
def numpy_values(fake_gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random operands and checks by numpy, where a test is not about them: the emulator takes its time."""
    from stridewright.codegen import bench, measure
    from stridewright.codegen.check import Check, check_gemm

    def fill(array: Any, seed: int, integers: bool = False, stream: Any = None) -> None:
        drawn = np.random.default_rng(seed).standard_normal(array.shape, np.float32)
        array.values[...] = drawn.astype(array.dtype)

    def check(buffers: gpu_values.Buffers, dtype: str = "bf16", *given: Any, **options: Any) -> Check:
        return check_gemm(buffers.d.values, buffers.a.values, buffers.b.values, output=dtype)

    monkeypatch.setattr(gpu_values, "fill_random", fill)
    monkeypatch.setattr(gpu_values, "check_on_gpu", check)
    monkeypatch.setattr(measure, "check_on_gpu", check)
    monkeypatch.setattr(bench, "check_on_gpu", check)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """The stand-in, in place of CuPy."""
    gpu = FakeGpu()
    importing: Callable[[], Any] = lambda: gpu.cupy  # noqa: E731
    monkeypatch.setattr(launch, "import_cupy", importing)
    monkeypatch.setattr(launch, "cupy_stream", lambda stream=None: gpu.stream if stream is None else stream)
    monkeypatch.setattr(gpu_values, "_launch", gpu.launch_values)
    from stridewright.codegen import measure

    measure._timing_stream.cache_clear()
    return gpu
