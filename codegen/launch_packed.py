"""A launch packed once: every argument laid out as the driver wants it, so that launching again is one driver call.

Knows cuLaunchKernelEx (CUDA driver API, cuda.h 13.0: CUlaunchConfig, CUlaunchAttribute); knows nothing of GEMMs. What
a launch through CuPy costs the host beside this: see benchmarks/results.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import driver
from .launch import (
    LoadedKernel,
    check_launch,
    current_device,
    import_cupy,
    on_device,
    pack_argument,
    several_devices,
    stream_address,
)
from .workspace import PER_THREAD_STREAM, pin_if_captured

_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CUlaunchAttributeID, cuda.h


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    held: Any = None
    """What the driver's call points to beside this."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


_MOST_STREAMS = 64


class CallsByStream(dict[int, tuple[Any, ...]]):
    """By the stream's address what the driver is called with, made when first asked for; the oldest are forgotten.

    An entry never changes once made, so that a thread which launches into another stream cannot turn this one's launch
    away. ``device`` is the one that all of them launch on. The stream that each thread has of its own has one address for all of
    them, and an entry for each.
    """

    def __init__(self, make: Callable[[int], tuple[Any, ...]], device: int):
        super().__init__()
        self._make = make
        self._of_thread = threading.local()
        self.device = device

    def __missing__(self, stream: int) -> tuple[Any, ...]:
        if stream == PER_THREAD_STREAM:
            found: tuple[Any, ...] | None = getattr(self._of_thread, "call", None)
            if found is None:
                found = self._of_thread.call = self._make(stream)
            return found
        call = self._make(stream)
        if len(self) >= _MOST_STREAMS:
            self.clear()
        self[stream] = call
        return call


def launcher() -> Callable[..., int]:
    """The driver's cuLaunchKernelEx, to be called with an entry of ``CallsByStream``; its answer is 0 where all is well."""
    # Without argtypes: the entries are ctypes' own argument objects, which pass as they are.
    function: Callable[..., int] = driver.cuda_driver().cuLaunchKernelEx
    return function


class PackedLaunch:
    """One launch of a kernel with fixed grid, block and arguments on the device that is current when it is made.

    ``args`` as ``pack_argument`` takes them; arrays they point to must outlive this. With ``dependent`` the kernel
    may start while the one before it in the stream ends (programmatic dependent launch): the kernel itself must wait
    before it touches memory. ``by_stream`` gives, for a stream's address, arguments that differ from stream to stream, by
    their places, and what must live as long as they are used. Threads may share it. Raises LaunchError or TypeError like
    LoadedKernel.
    """

    kept: Any = None
    """What must live as long as the launch: device memory that its arguments point to and that nobody else holds."""

    def __init__(
        self,
        kernel: LoadedKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        dependent: bool = False,
        by_stream: Callable[[int], tuple[dict[int, Any], Any]] | None = None,
    ):
        blocks, threads = check_launch(grid, block, kernel.cluster)
        self._function = kernel.function()
        self._values = [np.ascontiguousarray(pack_argument(value, place)) for place, value in enumerate(args)]
        self._attribute = _Attribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        self._sizes = (blocks, threads, kernel.shared_bytes, int(dependent))
        self._by_stream = by_stream
        self.device = current_device()
        """The device of all launches, whichever is current then."""
        self.calls = CallsByStream(self._call_for, self.device)
        """By stream what the driver is called with."""
        streams = import_cupy().cuda.get_current_stream
        self._several = several_devices()
        self._current_stream = functools.partial(streams, self.device) if self._several else streams
        self._launch = launcher()

    def __call__(self, stream: Any = None) -> None:
        """Launches into ``stream`` (as ``cupy_stream`` takes it; None: CuPy's current one) and returns at once."""
        if stream is None:
            address = self._current_stream().ptr
        else:
            address = stream if type(stream) is int else stream_address(stream)
        if self._several and current_device() != self.device:
            with on_device(self.device):
                status = self._launch(*self.calls[address])
        else:
            status = self._launch(*self.calls[address])
        if status:
            driver.check(status, "cuLaunchKernelEx")

    def _call_for(self, stream: int) -> tuple[Any, ...]:
        blocks, threads, shared_bytes, attributes = self._sizes
        values, held = self._values, None
        if self._by_stream is not None:
            own, held = self._by_stream(stream)
            values = [
                np.ascontiguousarray(pack_argument(own[place], place)) if place in own else value
                for place, value in enumerate(values)
            ]
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        config = _Config(
            grid=(ctypes.c_uint * 3)(*blocks),
            block=(ctypes.c_uint * 3)(*threads),
            shared_bytes=shared_bytes,
            stream=stream,
            attributes=ctypes.pointer(self._attribute),
            attribute_count=attributes,
        )
        config.held = (values, held, self._function)
        return ctypes.byref(config), ctypes.c_void_p.from_param(self._function.ptr), ctypes.byref(pointers), None


class Launches:
    """Launches one after the other in a stream, the last of them a kernel's; with what they make and read kept."""

    def __init__(self, launches: Sequence[Callable[[Any], None]] = ()):
        self.launches = list(launches)
        self.kept: list[Any] = []

    def __call__(self, stream: Any = None) -> None:
        for launch in self.launches:
            launch(stream)

    @property
    def calls(self) -> Any:
        """As ``PackedLaunch.calls``: what the driver is called with last, once the others are launched; None for none."""
        if not self.launches:
            return None
        last: Any = self.launches[-1]
        return last.calls if len(self.launches) == 1 else _AfterOthers(self)


class _AfterOthers:
    """``calls[stream]`` launches all but the last into the stream, and is what the last is launched with."""

    def __init__(self, launches: Launches):
        self._launches = launches  # and with it what they need
        *self._first, last = launches.launches
        self._calls = last.calls  # type: ignore[attr-defined]
        self.device: int = self._calls.device

    def __getitem__(self, stream: int) -> tuple[Any, ...]:
        if any(array is not None for array in self._launches.kept):
            pin_if_captured(self._launches, stream)
        for launch in self._first:
            launch(stream)
        call: tuple[Any, ...] = self._calls[stream]
        return call
