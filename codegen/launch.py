"""Running a cubin on a GPU through CuPy: is there one, load, give arguments their exact width, launch.

CuPy is imported when something is first launched or asked for. This module knows nothing of GEMMs; how arrays come in
and go out is in ``launch_arrays``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import driver

INSTALL_HINT = "pip install 'stridewright[cuda13]' (or [cuda12] for a driver older than CUDA 13)"
OLDEST_CUPY = 14

# CUfunction_attribute of cuda.h: clusters of more than 8 blocks are refused unless this is set (CUDA C++ guide,
# clusters).
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
_PORTABLE_CLUSTER_BLOCKS = 8
_LARGEST_CLUSTER_BLOCKS = 16
_MAP_BYTES = 128


class LaunchError(RuntimeError):
    """A kernel cannot be launched as asked; the message says what was given and what would work."""


@dataclass(frozen=True)
class DevicePointer:
    """An address in device memory, in bytes, told apart from an integer of the same value."""

    address: int


_told: set[str] = set()
_MOST_TOLD = 200
"""Warnings of a process: after so many of one kind, with other numbers each time, one more tells nothing."""


def tell_once(log: logging.Logger, text: str) -> None:
    """Logs a warning the first time that it is given."""
    if text not in _told and len(_told) < _MOST_TOLD:
        _told.add(text)
        log.warning(text)


def import_cupy() -> Any:
    """CuPy, or LaunchError naming the pip command where it is missing, too old or cannot be loaded."""
    try:
        import cupy
    except ImportError as error:
        # CuPy raises ImportError also where it is installed and one of CUDA's libraries is not.
        detail = "" if isinstance(error, ModuleNotFoundError) and error.name == "cupy" else f" ({error})"
        raise LaunchError(f"CuPy cannot be imported{detail}: {INSTALL_HINT}") from error
    version = str(cupy.__version__)
    if int(version.split(".")[0]) < OLDEST_CUPY:
        raise LaunchError(
            f"CuPy {version} is too old: {OLDEST_CUPY} or newer is needed for bf16 arrays; {INSTALL_HINT}"
        )
    return cupy


def gpu_available(arch: str | None = None) -> tuple[bool, str]:
    """Whether kernels can be launched here, and the reason where not (or the device, where so).

    With ``arch`` ("sm_90a") the current device must be of that architecture. Never raises and costs nothing where
    there is no driver: CuPy is imported last.
    """
    try:
        if driver.device_count() == 0:
            return False, "the NVIDIA driver sees no device"
        cupy = import_cupy()
        device = int(cupy.cuda.runtime.getDevice())
        capability = driver.compute_capability(device)
    except (driver.DriverError, LaunchError) as error:
        return False, str(error)
    except Exception as error:  # CuPy's own errors (a driver older than its runtime, say) are its own classes
        return False, f"CuPy cannot use the device: {error}"
    found = driver.architecture(capability)
    shown = f"device {device} of compute capability {capability[0]}.{capability[1]}"
    if found is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in driver.ARCHITECTURES)
        return False, f"{shown} is none that kernels are generated for ({known})"
    if arch is not None and arch != found:
        return False, f"{shown} runs {found}, not {arch}"
    return True, f"{shown} ({found})"


def device_arch() -> str:
    """The architecture of CuPy's current device, "sm_90a" or "sm_100a". Raises LaunchError with the reason
    otherwise.
    """
    usable, reason = gpu_available()
    if not usable:
        raise LaunchError(f"no usable GPU: {reason}")
    device = int(import_cupy().cuda.runtime.getDevice())
    found = driver.architecture(driver.compute_capability(device))
    assert found is not None  # gpu_available has looked
    return found


def current_device() -> int:
    """CuPy's current device, a number from 0."""
    return int(import_cupy().cuda.runtime.getDevice())


@functools.cache
def several_devices() -> bool:
    """Whether this process sees more than one device, so that calls must look which one is current."""
    try:
        return driver.device_count() > 1
    except driver.DriverError:
        return False


def on_device(device: int) -> contextlib.AbstractContextManager[Any]:
    """Makes a device CuPy's current one for a while, where it is not already."""
    if device == current_device():
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[Any] = import_cupy().cuda.Device(device)
    return context


@dataclass(frozen=True)
class _StreamProtocol:
    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.pointer)


def cupy_stream(stream: Any = None) -> Any:
    """The CuPy stream for a stream of whatever kind: None (CuPy's current one), CuPy's, PyTorch's, an address, or an
    object with ``__cuda_stream__`` (the CUDA stream protocol). Raises TypeError for anything else.
    """
    cupy = import_cupy()
    if stream is None:
        return cupy.cuda.get_current_stream()
    if type(stream).__module__.split(".")[0] == "cupy":
        return stream
    return cupy.cuda.Stream.from_external(_StreamProtocol(stream_address(stream)))


def stream_address(stream: Any) -> int:
    """The cudaStream_t of a stream object, as an integer: ``__cuda_stream__``, ``.cuda_stream`` (PyTorch), ``.ptr``
    (CuPy) or an int. Raises TypeError for anything else.

    >>> stream_address(7)
    7
    """
    if hasattr(stream, "__cuda_stream__"):
        answer = stream.__cuda_stream__
        return int((answer() if callable(answer) else answer)[1])
    for attribute in ("cuda_stream", "ptr"):
        value = getattr(stream, attribute, None)
        if isinstance(value, int):
            return value
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    raise TypeError(
        f"stream: {type(stream).__name__} is no stream; give None (CuPy's current stream), a CuPy or PyTorch stream, a "
        "cudaStream_t as int, or an object with __cuda_stream__"
    )


def pack_argument(value: Any, position: int = 0) -> Any:
    """One kernel argument in the form CuPy passes with its exact width, or TypeError saying what to give instead.

    numpy scalars go by value in their own width, a DevicePointer or an array on the device as its address, an encoded
    tensor map (a numpy array of one 128-byte scalar) by value. Python's int and float are refused: they have no width.

    >>> pack_argument(np.float32(1.5)), pack_argument(DevicePointer(256)).dtype
    (np.float32(1.5), dtype('uint64'))
    """
    if isinstance(value, np.generic):
        if value.dtype.kind not in "biufc":
            raise TypeError(f"argument {position}: a numpy scalar of type {value.dtype} has no CUDA counterpart")
        return value
    if isinstance(value, DevicePointer):
        return np.uint64(value.address)
    if isinstance(value, np.ndarray):
        if value.size == 1 and value.dtype.kind == "V":
            return value
        raise TypeError(
            f"argument {position}: a numpy array lies in host memory; give cupy.asarray(it), or one structured "
            "scalar (an array of size 1) to pass a struct by value"
        )
    if value is None:
        return np.uint64(0)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return np.uint64(interface["data"][0])
    if isinstance(value, bool | int | float):
        advice = "np.float32" if isinstance(value, float) else "np.uint32 or np.int64"
        raise TypeError(
            f"argument {position}: Python's {type(value).__name__} {value!r} has no width (CuPy would pass 8 bytes); "
            f"wrap it as the kernel declares it, for instance {advice}({value!r}), or DevicePointer for an address"
        )
    raise TypeError(f"argument {position}: {type(value).__name__} cannot be passed to a kernel")


def _dimensions(name: str, given: int | Sequence[int], limits: tuple[int, int, int]) -> tuple[int, int, int]:
    values = (given,) if isinstance(given, int) else tuple(int(value) for value in given)
    filled = (*values, 1, 1, 1)[:3]
    if not 1 <= len(values) <= 3 or any(not 1 <= value <= limit for value, limit in zip(filled, limits, strict=True)):
        raise LaunchError(
            f"{name}={given}: must be one to three numbers in 1..{limits[0]}, 1..{limits[1]}, 1..{limits[2]}"
        )
    return filled[0], filled[1], filled[2]


def check_launch(
    grid: int | Sequence[int], block: int | Sequence[int], cluster: Sequence[int] = (1, 1, 1)
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block as three numbers each. Raises LaunchError for sizes no device takes and for a grid the cluster
    does not divide. Source: CUDA C++ Programming Guide, "Compute capabilities" and "Thread block clusters".

    >>> check_launch(132, 384)
    ((132, 1, 1), (384, 1, 1))
    """
    blocks = _dimensions("grid", grid, (2**31 - 1, 65535, 65535))
    threads = _dimensions("block", block, (1024, 1024, 64))
    if threads[0] * threads[1] * threads[2] > 1024:
        raise LaunchError(f"block={block}: {threads[0] * threads[1] * threads[2]} threads; at most 1024")
    shape = (*cluster, 1, 1, 1)[:3]
    if shape[0] * shape[1] * shape[2] > _LARGEST_CLUSTER_BLOCKS:
        raise LaunchError(f"cluster={tuple(cluster)}: at most {_LARGEST_CLUSTER_BLOCKS} blocks, 8 of them portable")
    if any(count % size for count, size in zip(blocks, shape, strict=True)):
        rounded = tuple(-(-count // size) * size for count, size in zip(blocks, shape, strict=True))
        raise LaunchError(f"grid={blocks}: must be a multiple of the cluster {shape}; nearest {rounded}")
    return blocks, threads


class LoadedKernel:
    """One kernel of a cubin, ready to be launched on whichever device is current; it is loaded there at its first
    launch.

    ``cubin``: the bytes or the path of a file holding them (whose contents must not change). ``name``: the extern "C"
    name. ``shared_bytes``: dynamic shared memory a block. ``cluster``: the kernel's ``__cluster_dims__``, to check
    grids.
    """

    def __init__(
        self,
        cubin: bytes | str | os.PathLike[str],
        name: str,
        shared_bytes: int = 0,
        cluster: Sequence[int] = (1, 1, 1),
    ) -> None:
        if shared_bytes < 0:
            raise LaunchError(f"shared_bytes={shared_bytes}: must not be negative")
        self.cubin = cubin
        self.name = name
        self.shared_bytes = shared_bytes
        self.cluster = tuple(cluster)
        self._functions: dict[int, Any] = {}
        self._loading = threading.Lock()

    def __call__(
        self, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], stream: Any = None
    ) -> None:
        """Launch. ``args`` as ``pack_argument`` takes them, in the order of the parameters; ``stream`` as
        ``cupy_stream`` does. Returns at once; raises LaunchError or TypeError before anything is launched where an
        argument is wrong.
        """
        blocks, threads = check_launch(grid, block, self.cluster)
        packed = tuple(pack_argument(value, position) for position, value in enumerate(args))
        function = self.function()
        function(blocks, threads, packed, self.shared_bytes, cupy_stream(stream))

    def function(self) -> Any:
        """CuPy's Function on the current device (``.ptr`` is the CUfunction), loaded and its attributes set."""
        cupy = import_cupy()
        device = int(cupy.cuda.runtime.getDevice())
        found = self._functions.get(device)
        if found is None:
            with self._loading:  # of many threads one loads it
                found = self._functions.get(device)
                if found is None:
                    found = self._functions[device] = self._load(cupy, device)
        return found

    def _load(self, cupy: Any, device: int) -> Any:
        with _as_file(self.cubin) as path:
            try:
                kernel = cupy.RawModule(path=path).get_function(self.name)
                function = kernel.kernel
            except Exception as error:
                raise LaunchError(
                    f"kernel {self.name!r} could not be loaded on device {device}: {error}. A cubin runs on the very "
                    f"architecture it was made for; this is {gpu_available()[1]}"
                ) from error
        limit = driver.shared_bytes_limit(device)
        static = int(kernel.shared_size_bytes)
        if static + self.shared_bytes > limit:
            raise LaunchError(
                f"shared_bytes={self.shared_bytes} and {static} static ones: device {device} allows {limit} bytes "
                "a block, both together"
            )
        # Always: without it dynamic and static memory together end at 48 KiB.
        kernel.max_dynamic_shared_size_bytes = self.shared_bytes
        if self.cluster[0] * self.cluster[1] * self.cluster[2] > _PORTABLE_CLUSTER_BLOCKS:
            from cupy_backends.cuda.api import driver as cupy_driver

            cupy_driver.funcSetAttribute(function.ptr, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        return function


@contextlib.contextmanager
def _as_file(cubin: bytes | str | os.PathLike[str]) -> Iterator[str]:
    """The path of a cubin. Bytes are put into a file of a name never used again, since CuPy remembers modules by
    path.
    """
    if not isinstance(cubin, bytes):
        yield str(Path(cubin))
        return
    descriptor, name = tempfile.mkstemp(suffix=".cubin")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(cubin)
        yield name
    finally:
        os.unlink(name)
