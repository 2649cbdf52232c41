"""Arrays of any number of dimensions as a kernel sees them: what lies where, with which strides, in which format.

Over numpy arrays for the emulator, over device arrays for a GPU; what is done with them is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .bind import OperandError
from .launch_arrays import family_of, format_of, host_array

ACCEPTED = {"tf32": ("f32",), "e4m3": ("e4m3", "u8"), "e5m2": ("e5m2", "u8")}
"""Formats of arrays that hold operands of these; of any other, its own. Bytes may be 8-bit floats: CuPy has none."""


@dataclass(frozen=True)
class Tensor:
    """An array: ``shape`` and ``strides`` in elements, the number format, and its address (on a device, or in numpy's
    memory). ``array`` keeps it alive; ``family`` is the library of the caller's array.
    """

    array: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    address: int
    family: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.array.dtype.itemsize)

    @property
    def raw(self) -> Any:
        """The array, of 8-bit elements as bytes: numpy has no character for all of their types."""
        return self.array.view(np.uint8) if self.itemsize == 1 else self.array

    @property
    def on_host(self) -> bool:
        """Whether it lies in numpy's memory."""
        return isinstance(self.array, np.ndarray)

    def contiguous_along(self, axis: int) -> bool:
        """Whether neighbours along ``axis`` are neighbours in memory, which a single element always is."""
        return self.shape[axis] <= 1 or self.strides[axis] == 1 or 0 in self.shape


def of_numpy(array: Any, name: str) -> Tensor:
    """A numpy array as it is, or in the machine's byte order. Raises OperandError for anything else.

    >>> of_numpy(np.zeros((4, 8), np.float32), "a").strides
    (8, 1)
    """
    if not isinstance(array, np.ndarray):
        raise OperandError(f"{name}: {type(array).__name__} was given; the emulator takes numpy arrays")
    array = host_array(array, name)
    try:
        dtype = format_of(array.dtype)
    except TypeError:
        raise _unknown(array, name) from None
    return _tensor(array, name, dtype, int(array.__array_interface__["data"][0]), "numpy")


def of_device(array: Any, name: str) -> Tensor:
    """A caller's array on the current device: CuPy's, or anything's that speaks DLPack (no copy), or numpy's, copied there."""
    from .launch_arrays import adopt_array

    try:
        held, dtype, family = adopt_array(array, name)
    except TypeError as error:
        if str(error).startswith(name):
            raise
        raise _unknown(array, name) from None  # it knows the type, and not which array it is of
    return _tensor(held, name, dtype, int(held.data.ptr), family)


def empty(shape: Sequence[int], dtype: str, like: Tensor) -> Tensor:
    """A new array where ``like`` lies. On the host its bytes are 0xff: NaN, or a number no sum has; an element that is not
    written shows.
    """
    kind = numpy_type(dtype)
    if like.on_host:
        array = np.full(int(np.prod(shape)) * kind.itemsize, 0xFF, np.uint8).view(kind).reshape(tuple(shape))
        return of_numpy(array, "out")
    from .launch import import_cupy

    cupy = import_cupy()
    made = cupy.empty(tuple(shape), dtype=np.uint8 if dtype in ("e4m3", "e5m2") else kind)
    return _tensor(made, "out", dtype, int(made.data.ptr), like.family)


def zeros(shape: Sequence[int], dtype: str, like: Tensor) -> Tensor:
    """A new array of zeros where ``like`` lies."""
    made = empty(shape, dtype, like)
    if made.on_host:
        made.raw[...] = 0
    else:
        from .workspace import fill_with_zeros

        fill_with_zeros(int(made.array.data.ptr), int(made.array.nbytes))
    return made


def numpy_type(dtype: str) -> np.dtype[Any]:
    """The numpy type of a format; of 8-bit floats and bf16 that of ml_dtypes, of tf32 float32.

    >>> numpy_type("tf32"), numpy_type("s8")
    (dtype('float32'), dtype('int8'))
    """
    import ml_dtypes

    own = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    own |= {"e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn}
    plain = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "s8": np.int8, "u8": np.uint8, "s32": np.int32}
    return np.dtype(own.get(dtype) or plain[dtype])


def require_format(tensor: Tensor, name: str, wanted: str) -> None:
    """OperandError unless the array holds elements of this format."""
    accepted = ACCEPTED.get(wanted, (wanted,))
    if tensor.dtype not in accepted:
        kind = numpy_type(wanted)
        own = kind.type.__module__.partition(".")[0]  # numpy's own, or ml_dtypes'
        change = f"to(torch.{kind.name})" if tensor.family == "torch" else f"astype({own}.{kind.name})"
        raise OperandError(
            f"{name}: dtype {tensor.dtype}, and this GEMM takes {' or '.join(accepted)}: convert it, for instance "
            f"{name}.{change}"
        )


def _unknown(array: Any, name: str) -> OperandError:
    """That no kernel takes elements of this type, and the one that is nearest."""
    dtype = str(array.dtype).removeprefix("torch.")
    nearest = next((known for start, known in _NEAREST.items() if dtype.startswith(start)), "")
    hint = f"; nearest {nearest}" if nearest else ""
    return OperandError(f"{name}: dtype {dtype}, and kernels take {', '.join(_TAKEN)}{hint}")


_TAKEN = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int32")
_NEAREST = {
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "int": "int32",
    "uint": "int32",
    "bool": "int8",
}
"""By how a name begins: float8_e4m3 has infinities and float8_e4m3fnuz another bias than what tensor cores read."""


def _tensor(array: Any, name: str, dtype: str, address: int, family: str) -> Tensor:
    item = int(array.dtype.itemsize)
    if any(stride % item for stride in array.strides):
        raise OperandError(f"{name}: strides {tuple(array.strides)} in bytes are no multiples of the element's {item}")
    strides = tuple(int(stride) // item for stride in array.strides)
    if any(stride < 0 and size > 1 for stride, size in zip(strides, array.shape, strict=True)):
        copy = f"{'np' if isinstance(array, np.ndarray) else 'xp'}.ascontiguousarray({name})"
        raise OperandError(f"{name}: strides {strides}: must not be negative; {copy} makes a copy that has none")
    return Tensor(array, tuple(int(size) for size in array.shape), strides, dtype, address, family)


__all__ = [
    "ACCEPTED",
    "Tensor",
    "empty",
    "family_of",
    "numpy_type",
    "of_device",
    "of_numpy",
    "require_format",
    "zeros",
]
