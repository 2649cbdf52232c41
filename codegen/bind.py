"""A GEMM and its arrays, tied together once: operands checked, tensor maps encoded, arguments packed; then launched as often as wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .workspace import Workspace

if TYPE_CHECKING:
    from stridewright.layout.hardware import TensorMap

    from .gemm import Gemm
    from .launch_arrays import DeviceMatrix
    from .overlap import Place

_ROW_ALIGNMENT = 16
"""Bytes: TMA takes no other starts and pitches of rows (CUDA driver API, cuTensorMapEncodeTiled)."""


class OperandError(ValueError):
    """An array that does not fit the GEMM: its shape, its type, or how it lies in memory."""


class UnreadableError(OperandError):
    """An array of the right shape and type that lies so that the plain kernel cannot read or write it; others can."""


def require_own_elements(name: str, place: Place) -> None:
    """Raises OperandError for an array that is written and has elements in the same bytes."""
    from .overlap import overlaps_itself

    if overlaps_itself(place):
        _, shape, strides, item = place
        apart = tuple(math.prod(shape[axis + 1 :]) * item for axis in range(len(shape)))
        raise OperandError(
            f"{name}: its elements lie over one another (shape {shape}, strides {strides} in bytes), and each is written; those of a "
            f"new array of this shape do not (strides {apart}, or further apart)"
        )


def wrong_major(name: str, remedy: str) -> str:
    """The words for an operand that is not K-major; ``remedy`` makes a copy that is.

    >>> wrong_major("b", "np.ascontiguousarray").split(", and")[0]
    'b: its rows along K are not contiguous'
    """
    axes = "(M, K)" if name == "a" else "(N, K)"
    return (
        f"{name}: its rows along K are not contiguous, and this kernel reads {axes} with contiguous rows "
        f'({name}_major="k"); {remedy}({name}) makes such a copy'
    )


class BoundGemm:
    """The launch of one GEMM on given arrays. ``bound(stream=None)`` launches it and returns the result in the
    caller's kind of array.

    The arrays are kept alive; their contents are read at each launch.
    """

    workspace: Workspace | None = None
    """Device memory that ``launch`` writes beside its result, and needs for as long as it is used."""

    def __init__(
        self,
        gemm: Gemm,
        a: DeviceMatrix,
        b: DeviceMatrix,
        d: DeviceMatrix,
        family: str,
        out: Any,
        dependent: bool = False,
        workspace: Any = None,
    ):
        self._operands = (a, b, d)
        self._family = family
        self._out = out
        division = gemm.division(_multiprocessors())
        self.workspace = Workspace(gemm, division, workspace)
        self.workspace.require_apart(
            (name, _place(one)) for name, one in zip(("a", "b", "out"), (a, b, d), strict=True)
        )
        self.launch = packed(
            gemm.kernel,
            division.ctas,
            gemm.config.threads,
            _arguments(gemm, a, b, d),
            self.workspace,
            dependent=dependent,
        )
        """``launch(stream=None)`` launches and returns nothing."""

    def __call__(self, stream: Any = None) -> Any:
        from .launch_arrays import give_back, launch_in_order

        families = {operand.family for operand in self._operands[:2]} | {self._family}
        chosen = launch_in_order(self.launch, families, self._operands[2].array, stream)
        if self._out is None:
            return give_back(self._operands[2].array, self._family, chosen)
        if self._family == "numpy":
            self._out[...] = give_back(self._operands[2].array, "numpy", chosen)
        return self._out


def packed(
    kernel: Any, ctas: int, threads: int, arguments: tuple[Any, ...], workspace: Workspace, more: tuple[Any, ...] = (),
    dependent: bool = False,
) -> Any:  # fmt: skip
    """The launch of a kernel whose ``arguments`` are followed by those of its workspace and ``more``: a PackedLaunch, after
    what clears the workspace where the caller owns it.
    """
    from .launch_packed import Launches, PackedLaunch

    every = (*arguments, *workspace.arguments, *more)
    by_stream = workspace.by_stream(len(arguments))
    options = {} if by_stream is None else {"by_stream": by_stream}
    launch = PackedLaunch(kernel, ctas, (threads, 1, 1), every, dependent, **options)
    return launch if workspace.clear is None else Launches([workspace.clear, launch])


def bind(gemm: Gemm, a: Any, b: Any, out: Any = None, dependent: bool = False, workspace: Any = None) -> BoundGemm:
    """Checks the arrays against the GEMM and prepares its launch. Raises OperandError, TypeError or LaunchError; ``out`` is untouched then."""
    from .launch import import_cupy
    from .launch_arrays import adopt, family_of
    from .overlap import share_memory

    operands = []
    for name, array, rows in (("a", a, gemm.m), ("b", b, gemm.n)):
        operand = adopt(array, name)
        gemm.check_operand(name, operand.shape, _numpy_name(operand.dtype), rows)
        if "k" not in operand.majors:
            raise UnreadableError(wrong_major(name, "xp.ascontiguousarray"))
        _check_rows(name, operand)
        operands.append(operand)
    family = family_of(a)
    if out is None and family == "torch":
        out = a.new_empty((gemm.m, gemm.n))  # its memory must be PyTorch's: it knows which stream works there
    if out is None:
        cupy = import_cupy()
        result = adopt(cupy.empty((gemm.m, gemm.n), dtype=_bfloat16()), "out")
    else:
        result = adopt(out, "out")
        if result.shape != (gemm.m, gemm.n) or result.dtype != gemm.problem.d:
            raise OperandError(
                f"out: shape {result.shape}, {result.dtype}; this GEMM writes {(gemm.m, gemm.n)}, {gemm.problem.d}"
            )
        require_own_elements("out", _place(result))
        if "k" not in result.majors:
            raise OperandError("out: its rows are not contiguous, and this kernel writes rows of (M, N)")
        if gemm.config.epilogue.store == "tma":
            _check_rows("out", result)
        for name, operand in zip("ab", operands, strict=True):
            if share_memory(_place(result), _place(operand)):
                raise OperandError(
                    f"out: shares memory with {name}, which is still read while it is written; give it memory of its own"
                )
        family = family_of(out)
    return BoundGemm(gemm, operands[0], operands[1], result, family, out, dependent, workspace)


def _arguments(gemm: Gemm, a: DeviceMatrix, b: DeviceMatrix, d: DeviceMatrix) -> tuple[Any, ...]:
    first, second = (b, a) if gemm.config.schedule.swap else (a, b)
    rows = (_row_bytes(first), _row_bytes(second), _row_bytes(d))
    maps = gemm.tensor_maps(rows)
    encoded = [
        None if tensor_map is None else _encoded(tensor_map, matrix.address)
        for tensor_map, matrix in ((maps.a, first), (maps.b, second), (maps.d, d), (maps.d_tail, d))
    ]
    return kernel_arguments(encoded, d.address, rows[2] // 2, (*gemm.kernel_sizes, gemm.k))


def kernel_arguments(maps: Sequence[Any], d: int, pitch: int, sizes: Sequence[int]) -> tuple[Any, ...]:
    """The kernel's arguments but those of its workspace: encoded tensor maps of its operands, of D and of D's last panels
    (None where it has none), D's address and pitch (elements), and its m, n and k.
    """
    from .launch import DevicePointer

    unused = np.zeros(1, dtype="V128")
    return (
        *(unused if encoded is None else encoded for encoded in maps),
        DevicePointer(d),
        np.uint64(pitch),
        *map(np.uint32, sizes),
    )


@lru_cache(maxsize=1024)
def _encoded(tensor_map: TensorMap, address: int) -> np.ndarray[Any, Any]:
    """A tensor map as the driver encodes it. It depends on nothing but the map and the address, and is never written."""
    from .driver import encode_tensor_map

    encoded = encode_tensor_map(tensor_map, address)
    encoded.flags.writeable = False
    return encoded


def _row_bytes(matrix: DeviceMatrix) -> int:
    """Bytes from one row to the next; a single row has no next, and any pitch that TMA takes will do."""
    if matrix.shape[0] == 1:
        return -(-matrix.shape[1] * 2 // _ROW_ALIGNMENT) * _ROW_ALIGNMENT
    return matrix.strides[0] * 2


def _place(matrix: DeviceMatrix) -> Place:
    item = int(matrix.array.dtype.itemsize)
    return matrix.address, matrix.shape, tuple(stride * item for stride in matrix.strides), item


def _check_rows(name: str, matrix: DeviceMatrix) -> None:
    for what, value in (("its address", matrix.address), ("the bytes from one row to the next", _row_bytes(matrix))):
        if value % _ROW_ALIGNMENT:
            raise UnreadableError(
                f"{name}: {what}, {value}, must be a multiple of {_ROW_ALIGNMENT} (TMA); a copy, xp.ascontiguousarray({name}), has that"
            )


def _multiprocessors() -> int:
    from .launch import import_cupy

    return _multiprocessors_of(int(import_cupy().cuda.runtime.getDevice()))


def multiprocessors_here(otherwise: int = 132) -> int:
    """Multiprocessors of the current device; ``otherwise`` where none can be used."""
    from .launch import gpu_available

    return _multiprocessors() if gpu_available()[0] else otherwise


@lru_cache(maxsize=64)
def _multiprocessors_of(device: int) -> int:
    from .launch import import_cupy

    return int(import_cupy().cuda.Device(device).attributes["MultiProcessorCount"])


def _bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def _numpy_name(dtype: str) -> str:
    return {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}.get(dtype, dtype)
