"""Stand-ins for CuPy, PyTorch and the driver with any number of devices: arrays that are addresses, launches that are notes."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen import bind, calls, launch, launch_arrays, launch_packed, workspace

BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Launched:
    """What the driver was asked for, and which device was current then."""

    device: int
    function: int
    stream: int
    grid: int
    dependent: bool
    arguments: tuple[bytes, ...]


class Array:
    """A CuPy array: nothing but where it lies and what it is."""

    def __init__(self, address: int, shape: tuple[int, ...] = (8, 16), dtype: Any = BF16, device: int = 0) -> None:
        self.data = SimpleNamespace(ptr=address, device_id=device)
        self.device = SimpleNamespace(id=device)
        self.dtype = np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self.shape = shape
        self.flags = SimpleNamespace(c_contiguous=True)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @shape.setter
    def shape(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        steps = [int(np.prod(shape[place + 1 :])) for place in range(len(shape))]
        self.strides = tuple(step * self.itemsize for step in steps)

    @property
    def _c_contiguous(self) -> bool:
        return self.flags.c_contiguous

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def lying(self, strides: tuple[int, ...]) -> Array:
        """The same, with other strides in bytes."""
        self.strides, self.flags = strides, SimpleNamespace(c_contiguous=False)
        return self


Array.__module__, Array.__name__ = "cupy", "ndarray"


class Tensor:
    """A tensor of PyTorch."""

    def __init__(self, address: int, shape: tuple[int, ...] = (8, 16), dtype: str = "torch.bfloat16", device: int = 0):
        self.address, self.shape, self.dtype, self.device_number = address, shape, dtype, device
        self.steps: tuple[int, ...] = (*(int(np.prod(shape[place + 1 :])) for place in range(len(shape))),)

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def get_device(self) -> int:
        return self.device_number

    def is_contiguous(self) -> bool:
        return True

    def detach(self) -> Tensor:
        return self

    def new_empty(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(9008, shape, self.dtype, self.device_number)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device_number)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        assert stream == -1, "PyTorch's own stream is the launch's: nothing has to wait"
        return self


Tensor.__module__, Tensor.__name__ = "torch", "Tensor"


class Machine:
    """The devices, what is current, and what was launched, waited for and cleared."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.device = 0
        self.streams = dict.fromkeys(range(devices), 0)
        """CuPy's current stream of each device."""
        self.torch_streams = dict.fromkeys(range(devices), 0)
        self.launched: list[Launched] = []
        self.events: list[Any] = []
        self.allocated: list[int] = []
        self.status = 0
        self.copied = 0
        self.capturing: set[int] = set()
        """Streams that are captured into a graph."""
        runtime = SimpleNamespace(
            getDevice=lambda: self.device,
            memsetAsync=self._memset,
            streamIsCapturing=lambda stream: stream in self.capturing,
        )
        machine = self

        class Device:
            def __init__(self, number: int) -> None:
                self.number, self.attributes = number, {"MultiProcessorCount": 132}

            def __enter__(self) -> Device:
                self.before, machine.device = machine.device, self.number
                return self

            def __exit__(self, *error: object) -> None:
                machine.device = self.before

            def synchronize(self) -> None:
                machine.events.append(("synchronize device", self.number))

        class Event:
            def __init__(self, **options: Any) -> None:
                self.at: Any = None

            def record(self, stream: Any) -> None:
                self.at = stream.ptr

        class Stream:
            def __init__(self, non_blocking: bool = False, ptr: int = 5005) -> None:
                self.ptr = ptr

            def __enter__(self) -> Stream:
                self.before = machine.streams[machine.device]
                machine.streams[machine.device] = self.ptr
                return self

            def __exit__(self, *error: object) -> None:
                machine.streams[machine.device] = self.before

            def synchronize(self) -> None:
                machine.events.append(("synchronize", self.ptr))

            def wait_event(self, event: Event) -> None:
                machine.events.append(("wait", self.ptr, event.at))

            @classmethod
            def from_external(cls, protocol: Any) -> Stream:
                return cls(ptr=protocol.__cuda_stream__()[1])

        self.cupy = SimpleNamespace(
            __version__="14.2.0",
            ndarray=Array,
            empty=self._empty,
            asarray=self._copied,
            from_dlpack=lambda array: self._imported(array.__dlpack__(stream=self.streams[self.device])),
            cuda=SimpleNamespace(
                runtime=runtime,
                get_current_stream=self._current_stream,
                Device=Device,
                Event=Event,
                Stream=Stream,
            ),
        )

    def _current_stream(self, device: int = -1) -> Any:
        return self.cupy.cuda.Stream(ptr=self.streams[self.device if device < 0 else device])

    def _empty(self, shape: Any, dtype: Any) -> Array:
        whole = (shape,) if isinstance(shape, int) else tuple(shape)
        made = Array(80000 + 4096 * len(self.allocated), whole, dtype, self.device)
        self.allocated.append(self.streams[self.device])
        return made

    def _copied(self, array: Any) -> Array:
        self.copied += 1
        return Array(2**40 + 2**32 * self.copied, array.shape, array.dtype, self.device)

    def _imported(self, tensor: Any) -> Array:
        kind = {
            "torch.uint8": np.uint8,
            "torch.bfloat16": BF16,
            "torch.float16": np.float16,
            "torch.float32": np.float32,
        }[tensor.dtype]
        made = Array(tensor.data_ptr(), tuple(tensor.shape), kind, tensor.get_device())
        steps = tuple(step * made.itemsize for step in tensor.stride())
        return made if steps == made.strides else made.lying(steps)

    def _memset(self, address: int, value: int, size: int, stream: int) -> None:
        self.events.append(("clear", address, size, stream))

    def launch(self, config: Any, function: Any, pointers: Any, extra: None) -> int:
        """The driver's cuLaunchKernelEx."""
        given = config._obj
        values = tuple(np.asarray(value).tobytes() for value in given.held[0])
        number = given.held[2].ptr
        launched = Launched(self.device, number, given.stream or 0, given.grid[0], bool(given.attribute_count), values)
        self.launched.append(launched)
        return self.status


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One device, or as many as the test's parameter says."""
    made = Machine(getattr(request, "param", 1))
    for module in (launch, launch_arrays, launch_packed):
        monkeypatch.setattr(module, "import_cupy", lambda: made.cupy)
        if hasattr(module, "several_devices"):
            monkeypatch.setattr(module, "several_devices", lambda: made.devices > 1)
    monkeypatch.setattr(launch_packed, "launcher", lambda: made.launch)
    monkeypatch.setattr(calls, "torch_stream", lambda: made.torch_streams.__getitem__)
    monkeypatch.setattr(launch_arrays, "torch_stream", lambda: made.torch_streams.__getitem__)
    monkeypatch.setattr(calls, "_LIBRARIES", {})
    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (True, ""))
    monkeypatch.setattr(workspace, "_of_streams", workspace._OfStreams())
    monkeypatch.setattr(calls, "_holders", weakref.WeakSet())
    for cached in (workspace.filling_stream, workspace._order_table, bind._multiprocessors_of, bind._encoded):
        cached.cache_clear()
    return made


def kernel_of() -> Any:
    """A kernel that is loaded on any device; its function there is a number of the device's."""
    from stridewright.codegen.launch import current_device

    return SimpleNamespace(
        cluster=(1, 1, 1), shared_bytes=64, function=lambda: SimpleNamespace(ptr=100 + current_device())
    )


def replace_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels become numbers, and tensor maps the addresses that they are of."""
    from stridewright import Gemm
    from stridewright.codegen import general_bind
    from stridewright.codegen.general import GeneralGemm

    def encoded(tensor_map: Any, address: int) -> Any:
        return np.frombuffer(address.to_bytes(8, "little").ljust(128, b"\0"), "V128")

    for owner in (Gemm, GeneralGemm):
        monkeypatch.setattr(owner, "kernel", kernel_of())
    for module in (bind, general_bind):
        monkeypatch.setattr(module, "_encoded", encoded)
