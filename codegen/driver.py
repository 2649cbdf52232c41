"""The CUDA driver through ctypes: is there one, which devices does it see, and the 128 bytes of a tensor map.

Importing this module loads nothing; ``libcuda.so.1`` comes with the GPU's driver and is opened when first asked for.
What a tensor map may hold is known to ``layout.hardware``; this module only hands it over.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from stridewright.layout.hardware import TensorMap

# CUdevice_attribute of cuda.h: the compute capability, and the most shared memory a block may opt in to.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_SHARED_OPTIN = 97
_MULTIPROCESSORS = 16

# Of layout.hardware.tensor_map, which is not imported for them: a process's first call should not wait for the algebra.
_MAP_BYTES, _MAP_ALIGNMENT = 128, 128

ARCHITECTURES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}


class DriverError(RuntimeError):
    """The CUDA driver is missing or refused a call; the message says which call and what it answered."""


@functools.cache
def cuda_driver() -> ctypes.CDLL:
    """The driver library, initialised. Raises DriverError where it is not installed or finds no device."""
    try:
        handle = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError("no NVIDIA driver is installed (libcuda.so.1 was not found)") from error
    _check(handle, handle.cuInit(0), "cuInit")
    return handle


def _check(handle: Any, status: int, call: str, given: str = "") -> None:
    if status == 0:
        return
    name = ctypes.c_char_p()
    handle.cuGetErrorName(status, ctypes.byref(name))
    text = name.value.decode() if name.value else "unknown error"
    raise DriverError(f"{call} failed: {text} ({status})" + (f"; it was given {given}" if given else ""))


def check(status: int, call: str) -> None:
    """Raises DriverError, naming the call and what the driver answered, unless ``status`` is 0."""
    if status:
        _check(cuda_driver(), status, call)


def device_count() -> int:
    """How many devices the driver sees. Raises DriverError without a driver."""
    handle = cuda_driver()
    count = ctypes.c_int()
    _check(handle, handle.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    return count.value


def _attribute(which: int, device: int) -> int:
    handle = cuda_driver()
    identity, value = ctypes.c_int(), ctypes.c_int()
    _check(handle, handle.cuDeviceGet(ctypes.byref(identity), device), "cuDeviceGet", f"device {device}")
    status = handle.cuDeviceGetAttribute(ctypes.byref(value), which, identity)
    _check(handle, status, "cuDeviceGetAttribute", f"attribute {which}")
    return value.value


def compute_capability(device: int = 0) -> tuple[int, int]:
    """The device's compute capability, for instance (9, 0) for an H100 or H200."""
    return _attribute(_CAPABILITY_MAJOR, device), _attribute(_CAPABILITY_MINOR, device)


def shared_bytes_limit(device: int = 0) -> int:
    """The most shared memory, static and dynamic together, that one block may have on the device, in bytes."""
    return _attribute(_SHARED_OPTIN, device)


def multiprocessors(device: int = 0) -> int:
    """The device's streaming multiprocessors."""
    return _attribute(_MULTIPROCESSORS, device)


def architecture(capability: tuple[int, int]) -> str | None:
    """The architecture kernels are generated for on a device of that compute capability, None where there is none yet.

    >>> architecture((9, 0)), architecture((10, 0)), architecture((8, 0))
    ('sm_90a', 'sm_100a', None)
    """
    return ARCHITECTURES.get(capability)


def driver_version() -> int:
    """The CUDA version the driver supports, as cuDriverGetVersion gives it: 13020 is 13.2."""
    handle = cuda_driver()
    version = ctypes.c_int()
    _check(handle, handle.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    return version.value


def encode_tensor_map(map: TensorMap, address: int, allocation_bytes: int | None = None) -> np.ndarray[Any, Any]:
    """The driver's 128-byte encoding of a tensor map over global memory at ``address`` (bytes, on the device).

    Returns a numpy array of one structured scalar of 128 bytes, which CuPy passes by value to a parameter declared
    ``const __grid_constant__ CUtensorMap``. ``allocation_bytes``, the size of the memory it points into, is what the
    repair for some Blackwell drivers goes by. Raises HardwareError listing every violated rule before the driver is
    asked, DriverError without a driver or where it refuses. Source: CUDA driver API, cuTensorMapEncodeTiled.
    """
    import numpy as np

    from stridewright.layout.hardware.tensor_map_driver import driver_arguments, needs_bit_85_cleared, patched

    encoded = encode_numbers(driver_arguments(map.check(address)), address, str(map))
    if allocation_bytes is not None and needs_bit_85_cleared(map, allocation_bytes, driver_version()):
        return np.frombuffer(patched(encoded.tobytes()), dtype=encoded.dtype).copy()
    return encoded


class MapNumbers(Protocol):
    """What cuTensorMapEncodeTiled is called with; ``layout.hardware``'s DriverArguments, or the same from a record."""

    @property
    def dtype(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def strides_bytes(self) -> Sequence[int]: ...
    @property
    def box(self) -> Sequence[int]: ...
    @property
    def element_strides(self) -> Sequence[int]: ...
    @property
    def interleave(self) -> int: ...
    @property
    def swizzle(self) -> int: ...
    @property
    def l2_promotion(self) -> int: ...
    @property
    def oob_fill(self) -> int: ...


def encode_numbers(given: MapNumbers, address: int, name: str = "") -> np.ndarray[Any, Any]:
    """As ``encode_tensor_map``, from the numbers alone, which were checked before; ``name`` for messages."""
    import numpy as np

    handle = cuda_driver()
    if not hasattr(handle, "cuTensorMapEncodeTiled"):
        raise DriverError("this driver has no cuTensorMapEncodeTiled: it must be of CUDA 12.0 or newer")
    # The object must be aligned, and neither ctypes nor numpy promise that: take the aligned part of a larger buffer.
    storage = np.zeros(_MAP_BYTES + _MAP_ALIGNMENT, dtype=np.uint8)
    start = -storage.ctypes.data % _MAP_ALIGNMENT
    encoded = storage[start : start + _MAP_BYTES]
    rank = given.rank
    status = handle.cuTensorMapEncodeTiled(
        ctypes.c_void_p(encoded.ctypes.data),
        ctypes.c_int(given.dtype),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*given.shape),
        (ctypes.c_uint64 * rank)(*given.strides_bytes),  # rank - 1 are read; one more spares rank 1 an empty array
        (ctypes.c_uint32 * rank)(*given.box),
        (ctypes.c_uint32 * rank)(*given.element_strides),
        ctypes.c_int(given.interleave),
        ctypes.c_int(given.swizzle),
        ctypes.c_int(given.l2_promotion),
        ctypes.c_int(given.oob_fill),
    )
    _check(handle, status, "cuTensorMapEncodeTiled", f"{name} at address {address:#x}")
    return encoded.view(np.dtype((np.void, _MAP_BYTES))).copy()
