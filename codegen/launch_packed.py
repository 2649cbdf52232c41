"""A launch packed once: every argument laid out as the driver wants it, so that launching again is one driver call.

Knows cuLaunchKernelEx (CUDA driver API, cuda.h 13.0: CUlaunchConfig, CUlaunchAttribute); knows nothing of GEMMs. What
a launch through CuPy costs the host beside this: see benchmarks/results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import driver
from .launch import LoadedKernel, check_launch, import_cupy, pack_argument, stream_address

_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CUlaunchAttributeID, cuda.h


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


_MOST_STREAMS = 64

_Call = tuple[tuple[Any, ...], _Config]
"""The arguments of a driver call, and the structure that they point to."""


class PackedLaunch:
    """One launch of a kernel with fixed grid, block and arguments on the device that is current when it is made.

    ``args`` as ``pack_argument`` takes them; arrays they point to must outlive this. With ``dependent`` the kernel
    may start while the one before it in the stream ends (programmatic dependent launch): the kernel itself must wait
    before it touches memory. Threads may share it. Raises LaunchError or TypeError like LoadedKernel.
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
    ):
        blocks, threads = check_launch(grid, block, kernel.cluster)
        self._function = kernel.function()
        self._values = [np.ascontiguousarray(pack_argument(value, place)) for place, value in enumerate(args)]
        self._pointers = (ctypes.c_void_p * len(self._values))(*(value.ctypes.data for value in self._values))
        self._attribute = _Attribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        self._sizes = (blocks, threads, kernel.shared_bytes, int(dependent))
        # By stream: what the driver is called with. Never changed once made, so that a thread which launches into
        # another stream cannot turn this one's launch away.
        self._calls: dict[int, _Call] = {}
        self._current_stream = import_cupy().cuda.get_current_stream
        self._launch = driver.cuda_driver().cuLaunchKernelEx
        self._launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

    def __call__(self, stream: Any = None) -> None:
        """Launches into ``stream`` (as ``cupy_stream`` takes it; None: CuPy's current one) and returns at once."""
        if stream is None:
            address = self._current_stream().ptr
        else:
            address = stream if type(stream) is int else stream_address(stream)
        call = self._calls.get(address) or self._call_for(address)
        status = self._launch(*call[0])
        if status:
            driver.check(status, "cuLaunchKernelEx")

    def _call_for(self, stream: int) -> _Call:
        blocks, threads, shared_bytes, attributes = self._sizes
        config = _Config(
            grid=(ctypes.c_uint * 3)(*blocks),
            block=(ctypes.c_uint * 3)(*threads),
            shared_bytes=shared_bytes,
            stream=stream,
            attributes=ctypes.pointer(self._attribute),
            attribute_count=attributes,
        )
        call = (ctypes.addressof(config), self._function.ptr, ctypes.addressof(self._pointers), None), config
        if len(self._calls) >= _MOST_STREAMS:
            self._calls.clear()
        self._calls[stream] = call
        return call
