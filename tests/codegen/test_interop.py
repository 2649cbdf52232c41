"""Arrays of several libraries in one launch: whose stream it goes to, who waits for whom, where results come from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen import bind, first_call, general_bind, launch, launch_arrays
from stridewright.codegen.bind import OperandError
from stridewright.codegen.calls import _torch_key, library_of
from stridewright.codegen.general import GeneralGemm

from .fake_devices import BF16, Array, Machine, Tensor, kernel_of, machine

__all__ = ["machine"]


@pytest.fixture(autouse=True)
def kernels(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are numbers, tensor maps are empty, and numpy's arrays go to the device and back."""
    for kind in (Gemm, GeneralGemm):
        monkeypatch.setattr(kind, "kernel", kernel_of())
    for module in (bind, general_bind):
        monkeypatch.setattr(module, "_encoded", lambda tensor_map, address: np.zeros(1, "V128"))

    def back(array: Array, stream: Any = None) -> Any:
        machine.events.append(("to the host", None if stream is None else stream.ptr))
        return np.full(array.shape, 3, array.dtype)

    machine.cupy.asnumpy = back
    monkeypatch.setattr(launch, "_told", set())
    first_call.forget()
    yield
    first_call.forget()


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    return Tensor(2**20, (40, 64)), Tensor(2**21, (24, 64)), Tensor(2**22, (40, 24))


def arrays() -> tuple[Array, Array, Array]:
    return Array(2**20, (40, 64)), Array(2**21, (24, 64)), Array(2**22, (40, 24))


@pytest.mark.parametrize("options", [{}, {"activation": "relu"}], ids=["plain", "fused"])
def test_a_bound_launch_of_tensors_goes_to_torch_s_stream(machine: Machine, options: dict[str, Any]) -> None:
    made = Gemm(40, 24, 64, **options)
    a, b, out = tensors()
    bound = made.bind(a, b, out)
    machine.torch_streams[0] = 6
    assert bound() is out
    machine.torch_streams[0] = 7
    bound()
    bound(8)
    assert [one.stream for one in machine.launched] == [6, 7, 8]
    assert machine.events == []


def test_a_result_for_tensors_is_of_torch_s_memory(machine: Machine) -> None:
    a, b, _ = tensors()
    made = Gemm(40, 24, 64).bind(a, b)()
    assert isinstance(made, Tensor)
    assert machine.allocated == []


@pytest.mark.parametrize("options", [{}, {"activation": "relu"}], ids=["plain", "fused"])
@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1)])
def test_mixed_arrays_are_ordered_before_and_after(
    machine: Machine, options: dict[str, Any], which: tuple[int, ...]
) -> None:
    """The launch waits for what either library has queued, and what either queues next waits for the launch."""
    given: list[Any] = list(arrays())
    for place in which:
        given[place] = tensors()[place]
    machine.streams[0], machine.torch_streams[0] = 5, 6
    a, b, out = given
    for _ in range(2):
        assert Gemm(40, 24, 64, **options)(a, b, out=out) is out
    assert [one.stream for one in machine.launched] == [6, 6]
    assert machine.events == [("wait", 6, 5), ("wait", 5, 6)] * 2


def test_a_bias_of_another_library_is_ordered_too(machine: Machine) -> None:
    machine.streams[0], machine.torch_streams[0] = 5, 6
    a, b, out = arrays()
    assert gemm(a, b, out=out, bias=Tensor(2**24, (24,), "torch.float32")) is out
    assert machine.events == [("wait", 6, 5), ("wait", 5, 6)]


def test_who_names_a_stream_orders_it(machine: Machine) -> None:
    machine.streams[0], machine.torch_streams[0] = 5, 6
    a, _, out = arrays()
    Gemm(40, 24, 64)(a, tensors()[1], out=out, stream=9)
    assert [one.stream for one in machine.launched] == [9]
    assert machine.events == []


@pytest.mark.parametrize("options", [{}, {"activation": "relu"}], ids=["plain", "fused"])
@pytest.mark.parametrize("stream", [None, 9])
def test_arrays_of_numpy_are_there_before_and_back_after(
    machine: Machine, options: dict[str, Any], stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = np.zeros((40, 64), BF16), np.zeros((24, 64), BF16)
    out = np.zeros((40, 24), BF16)
    made = Gemm(40, 24, 64, **options)
    with caplog.at_level(logging.WARNING):
        assert made(a, b, out=out, stream=stream) is out
        back = made(a, b, stream=stream)
    assert isinstance(back, np.ndarray)
    assert (out == 3).all()
    assert (back == 3).all()
    assert [one.stream for one in machine.launched] == [stream or 0] * 2
    told = [record.message for record in caplog.records if "numpy" in record.message]
    assert told == [
        "arrays of numpy are copied to the device at each call, and the result back; cupy.asarray(array) once spares that"
    ]
    kinds = [event[0] for event in machine.events]
    assert kinds == ["synchronize"] * 3 + ["to the host"] + ["synchronize"] * 2 + ["to the host"]
    assert {event[1] for event in machine.events if event[0] == "to the host"} == {stream}


def test_views_are_bound_to_where_they_begin_and_how_they_lie(machine: Machine) -> None:
    whole = [Array(2**20, (40, 128)), Array(2**21, (24, 128)), Array(2**22, (40, 48))]
    left = [Array(2**20, (40, 64)), Array(2**21, (24, 64)), Array(2**22, (40, 24))]
    for one, of in zip(left, whole, strict=True):
        one.lying(of.strides)
    made = Gemm(40, 24, 64)
    made(left[0], left[1], out=left[2])
    made(*arrays()[:2], out=arrays()[2])
    made(left[0], left[1], out=left[2])
    pitches = [int.from_bytes(one.arguments[5], "little") for one in machine.launched]
    assert pitches == [48, 24, 48]


def test_a_strided_result_is_refused_again_and_again(machine: Machine) -> None:
    a, b, out = arrays()
    for _ in range(2):
        with pytest.raises(OperandError, match="out: its rows are not contiguous"):
            gemm(a, b, out=out.lying((2, 80)))


def test_arrays_of_several_devices_are_refused_by_name(machine: Machine) -> None:
    machine.devices = 2
    a, b, out = arrays()
    far = Array(2**21, (24, 64), device=1)
    for call in (Gemm(40, 24, 64), gemm):
        with pytest.raises(launch.LaunchError, match="b: lies on device 1, and the launch is on device 0"):
            call(a, far, out=out)
    with pytest.raises(launch.LaunchError, match="out: lies on device 1"):
        gemm(a, b, out=Array(2**22, (40, 24), device=1))


def test_where_an_array_lies_and_whose_stream_is_its(machine: Machine) -> None:
    machine.devices = 2
    machine.torch_streams[1] = 4
    assert launch_arrays.device_of(Array(16, device=1)) == 1
    assert launch_arrays.device_of(Tensor(16, device=1)) == 1
    assert launch_arrays.device_of(Tensor(16, device=-1)) is None
    assert launch_arrays.device_of(np.zeros(3)) is None
    assert launch_arrays.device_of(3) is None
    assert launch_arrays.device_of(SimpleNamespace(__dlpack_device__=lambda: (2, 1))) == 1
    assert launch_arrays.device_of(SimpleNamespace(__dlpack_device__=lambda: (1, 0))) is None
    assert launch_arrays.current_stream_of(Tensor(16, device=1)) == 4
    assert launch_arrays.current_stream_of(Array(16)) is None


def test_real_tensors_have_places_and_host_tensors_are_refused() -> None:
    torch: Any = pytest.importorskip("torch")
    a, b = torch.zeros(8, 16, dtype=torch.bfloat16), torch.zeros(24, 16, dtype=torch.bfloat16)
    assert library_of(type(a)) == library_of(torch.nn.Parameter) == "torch"
    key = _torch_key(a, b, a)
    assert key == _torch_key(a.view(8, 16), b, a)
    assert hash(key) == hash(_torch_key(a, b, a))
    assert key != _torch_key(a.t(), b, a) != _torch_key(a.view(torch.float16), b, a)
    with pytest.raises(TypeError, match=r"lies in host memory; move it to the GPU first \(PyTorch: \.cuda\(\)"):
        launch_arrays._foreign(a, "a", None)
