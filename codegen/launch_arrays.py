"""Arrays of other libraries on their way to a kernel and back: DLPack in, the caller's own array type out.

Nothing is copied on the way from a device array; numpy arrays are copied to the device and their results back. This
module knows shapes, strides and number formats of matrices, not what a kernel does with them.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from .calls import library_of, torch_stream
from .launch import LaunchError, cupy_stream, import_cupy, on_device, several_devices, tell_once

# The names that numpy (with ml_dtypes) gives to the number formats kernels compute with.
_FORMATS = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
    "int32": "s32",
}
_FP8 = ("e4m3", "e5m2")
WRITTEN = ("out", "aux", "amax")
"""What of a caller's arrays is written."""

_log = logging.getLogger(__name__)

# DLDeviceType of dlpack.h: device memory and managed memory.
_CUDA, _CUDA_MANAGED = 2, 13


@dataclass(frozen=True)
class DeviceMatrix:
    """A matrix in device memory: its address, shape and strides (elements), number format, and where it came from.

    ``array`` is the CuPy array that keeps it alive, ``family`` the library of the caller's array ("torch", "jax", ...).
    """

    address: int
    shape: tuple[int, int]
    strides: tuple[int, int]
    dtype: str
    family: str
    array: Any

    @property
    def majors(self) -> tuple[str, ...]:
        """Which of its two dimensions run contiguously; see ``majors``."""
        return majors(self.shape, self.strides)


def majors(shape: tuple[int, int], strides: tuple[int, int]) -> tuple[str, ...]:
    """How an operand of shape (M or N, K) lies in memory, strides in elements: ("k",), ("mn",), both, or () for
    neither.

    A dimension of size 1 has no stride to speak of, so such a matrix may be both. A neither-matrix (every second
    column, say) must be copied before a kernel can read it.

    >>> majors((128, 64), (64, 1)), majors((128, 64), (1, 128)), majors((128, 64), (128, 2))
    (('k',), ('mn',), ())
    """
    rows, columns = shape
    found = []
    if (strides[1] == 1 or columns == 1) and (strides[0] >= columns or rows == 1):
        found.append("k")
    if (strides[0] == 1 or rows == 1) and (strides[1] >= rows or columns == 1):
        found.append("mn")
    return tuple(found)


def family_of(array: Any) -> str:
    """The library an array belongs to: "numpy", "cupy", "torch", "jax", or the first part of its module's name.

    >>> family_of(np.zeros(3))
    'numpy'
    """
    root = type(array).__module__.split(".")[0]
    return {"jaxlib": "jax"}.get(root, root)


def device_of(array: Any) -> int | None:
    """The number of the device that an array lies on; None for one in host memory, or for no array."""
    library = library_of(type(array))
    if library == "torch":
        device = int(array.get_device())
        return device if device >= 0 else None
    if library == "cupy":
        return int(array.device.id)
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
        return None
    kind, device = array.__dlpack_device__()
    return int(device) if int(kind) == _CUDA else None


def on_device_of(array: Any) -> contextlib.AbstractContextManager[Any]:
    """Makes the device of an array CuPy's current one for a while; the current one stays for arrays in host memory."""
    device = device_of(array) if several_devices() else None
    return contextlib.nullcontext() if device is None else on_device(device)


def current_stream_of(array: Any) -> int | None:
    """The stream that an array's library works in now, on the array's device: PyTorch's, by its address, or None for CuPy's
    current one, which all others' work is ordered with by DLPack.
    """
    return torch_stream()(int(array.get_device())) if library_of(type(array)) == "torch" else None


def launch_in_order(launch: Any, families: set[str], result: Any, stream: Any = None) -> Any:
    """Launches into ``stream``, or into the current one of the libraries whose arrays these are: PyTorch's for its own, else
    CuPy's. Where both take part, the launch comes after what either has queued, and before what either queues next. Returns
    the stream. ``result`` is a CuPy array, which lies on the device.
    """
    if stream is not None or "torch" not in families:
        launch(stream)
        return stream
    cupy = import_cupy()
    device = int(result.device.id)
    chosen = torch_stream()(device)
    other = int(cupy.cuda.get_current_stream().ptr) if families - {"torch"} else chosen
    with on_device(device):
        if other != chosen:
            _let_wait(chosen, other)
        launch(chosen)
        if other != chosen:
            _let_wait(other, chosen)
    return chosen


def _let_wait(stream: int, before: int) -> None:
    """What is queued next in ``stream`` begins after what is queued now in ``before``."""
    event = import_cupy().cuda.Event(disable_timing=True)
    event.record(cupy_stream(before))
    cupy_stream(stream).wait_event(event)


def format_of(dtype: Any) -> str:
    """The name used here for a numpy dtype: "bf16" for bfloat16. TypeError for one that no kernel computes with.

    >>> format_of(np.dtype(np.float16))
    'f16'
    """
    name = np.dtype(dtype).name
    if name not in _FORMATS:
        raise TypeError(f"dtype {name} is none that kernels compute with: {', '.join(_FORMATS)}")
    return _FORMATS[name]


def _foreign(array: Any, name: str, dtype: str | None) -> Any:
    """A CuPy array over the memory of another library's device array."""
    cupy = import_cupy()
    if not hasattr(array, "__dlpack__"):
        raise TypeError(
            f"{name}: {type(array).__name__} is no array; give a CuPy array, anything that speaks DLPack "
            "(PyTorch, JAX), or a numpy array"
        )
    kind, _ = array.__dlpack_device__()
    if int(kind) not in (_CUDA, _CUDA_MANAGED):
        raise TypeError(
            f"{name}: this {type(array).__name__} lies in host memory; move it to the GPU first (PyTorch: .cuda(), "
            "JAX: jax.device_put(array, jax.devices('gpu')[0]))"
        )
    torch = family_of(array) == "torch"
    if torch:
        array = array.detach()  # PyTorch refuses to export a tensor that needs gradients
        if "float8" in str(array.dtype):
            # CuPy has no 8-bit float: the bytes travel as uint8, and the format beside them.
            array = array.view(sys.modules["torch"].uint8)
    try:
        return cupy.from_dlpack(_Unordered(array) if torch else array)
    except Exception as error:
        hint = " 8-bit floats: pass their bytes as uint8 and dtype='e4m3'" if dtype is None else ""
        kind_of = type(array).__name__
        raise TypeError(f"{name}: CuPy cannot take this {kind_of} through DLPack ({error}).{hint}") from error


class _Unordered:
    """A tensor of PyTorch's whose export waits for nothing: the launch goes to PyTorch's stream. (To wait, CuPy's stream would
    have to be told, which no graph allows while it is captured.)
    """

    def __init__(self, tensor: Any):
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self._tensor.__dlpack__(stream=-1, **options)


def adopt(array: Any, name: str = "array", dtype: str | None = None) -> DeviceMatrix:
    """A caller's array as a DeviceMatrix, without a copy unless it is numpy's.

    ``dtype`` says what a uint8 array's bytes mean ("e4m3", "e5m2"); otherwise it is what the array says. Raises
    TypeError for something that is no array on a device or of no known format, LaunchError for one that is not a
    matrix or lies on another device. The work is ordered on CuPy's current stream, as DLPack prescribes.
    """
    held, found, family = adopt_array(array, name, dtype)
    if held.ndim != 2:
        raise LaunchError(f"{name}: has shape {tuple(held.shape)}; a matrix (two dimensions) is needed")
    item = held.itemsize
    if any(stride % item for stride in held.strides):
        raise LaunchError(f"{name}: strides {held.strides} in bytes are no multiples of the element's {item}")
    strides = (held.strides[0] // item, held.strides[1] // item)
    return DeviceMatrix(int(held.data.ptr), tuple(held.shape), strides, found, family, held)


def adopt_array(array: Any, name: str = "array", dtype: str | None = None) -> tuple[Any, str, str]:
    """A caller's array of any rank as (CuPy array, number format, the caller's library); see ``adopt``."""
    cupy = import_cupy()
    family = family_of(array)
    said = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if family == "cupy":
        held = array
    elif family == "numpy":
        array = host_array(array, name)
        if np.dtype(array.dtype).name.startswith("float8"):
            array = array.view(np.uint8)
        tell_once(
            _log,
            "arrays of numpy are copied to the device at each call, and the result back; cupy.asarray(array) once spares that",
        )
        held = cupy.asarray(array)
        # Any stream may launch, and must find it there.
        cupy.cuda.get_current_stream().synchronize()
    else:
        held = _foreign(array, name, dtype)
    device = int(cupy.cuda.runtime.getDevice())
    if int(held.device.id) != device:
        raise LaunchError(
            f"{name}: lies on device {held.device.id}, and the launch is on device {device}, where the first operand lies, or "
            "the current one; all arrays of a launch must lie on one device"
        )
    found = _FORMATS[said] if _FORMATS.get(said) in _FP8 else format_of(held.dtype)
    if dtype is not None and found != dtype:
        if not (found == "u8" and dtype in _FP8):
            raise TypeError(f"{name}: is {found}, and {dtype} was asked for")
        found = dtype
    return held, found, family


def host_array(array: Any, name: str) -> Any:
    """A numpy array in the machine's byte order, which one that is read is copied to. Raises OperandError for one that is
    written (``WRITTEN``) and is in the other order, may not be written, or has elements in the same bytes.

    >>> host_array(np.ones(2, ">f4"), "bias").dtype.isnative
    True
    """
    from .bind import OperandError, require_own_elements
    from .overlap import place_of_host

    native = array.dtype.isnative
    if name not in WRITTEN:
        return array if native else array.astype(array.dtype.newbyteorder("="))
    if not native:
        order = "big-endian" if sys.byteorder == "little" else "little-endian"
        raise OperandError(
            f"{name}: its elements are {order} ({array.dtype.str}), and kernels write the machine's byte order: "
            f'give {name}.astype({name}.dtype.newbyteorder("="))'
        )
    if not array.flags.writeable:
        raise OperandError(
            f"{name}: this numpy array is read-only (flags.writeable is False), and it is written; {name}.copy() may be"
        )
    require_own_elements(name, place_of_host(array))
    return array


def give_back(array: Any, family: str, stream: Any = None) -> Any:
    """A CuPy array as an array of ``family``, by its from_dlpack (no copy), or copied to the host for numpy, after what is
    queued in ``stream`` (None: CuPy's current one).

    Raises TypeError for a library without one.
    """
    if family == "cupy":
        return array
    if family == "numpy":
        cupy = import_cupy()
        return cupy.asnumpy(array) if stream is None else cupy.asnumpy(array, stream=cupy_stream(stream))
    if family == "jax":
        import jax

        return jax.dlpack.from_dlpack(array)
    convert = getattr(sys.modules.get(family), "from_dlpack", None)
    if convert is None:
        raise TypeError(f"{family} has no from_dlpack: use CuPy, PyTorch, JAX or numpy arrays")
    return convert(array)
