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
from .launch import LoadedKernel, check_launch, cupy_stream, pack_argument

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


class PackedLaunch:
    """One launch of a kernel with fixed grid, block and arguments on the device that is current when it is made.

    ``args`` as ``pack_argument`` takes them; arrays they point to must outlive this. With ``dependent`` the kernel
    may start while the one before it in the stream ends (programmatic dependent launch): the kernel itself must wait
    before it touches memory. Raises LaunchError or TypeError like LoadedKernel.
    """

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
        self._config = _Config(
            grid=(ctypes.c_uint * 3)(*blocks),
            block=(ctypes.c_uint * 3)(*threads),
            shared_bytes=kernel.shared_bytes,
            attributes=ctypes.pointer(self._attribute),
            attribute_count=int(dependent),
        )
        handle = driver.cuda_driver()
        self._launch = handle.cuLaunchKernelEx
        self._launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._fixed = (ctypes.addressof(self._config), self._function.ptr, ctypes.addressof(self._pointers), None)

    def __call__(self, stream: Any = None) -> None:
        """Launches into ``stream`` (as ``cupy_stream`` takes it; None: CuPy's current one) and returns at once."""
        self._config.stream = cupy_stream(stream).ptr
        driver.check(self._launch(*self._fixed), "cuLaunchKernelEx")
