"""A Blackwell GEMM and its arrays on a GPU: operands of either major checked, tensor maps encoded, arguments packed.

As :mod:`.bind` for Hopper. Written against the driver's documentation; never run on a Blackwell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .bind import BoundGemm, OperandError, _encoded, _multiprocessors

if TYPE_CHECKING:
    from .blackwell_gemm import BlackwellGemm
    from .launch_arrays import DeviceMatrix

_ROW_ALIGNMENT = 16
"""Bytes: TMA takes no other starts and pitches of rows (CUDA driver API, cuTensorMapEncodeTiled)."""


class BoundBlackwellGemm(BoundGemm):
    """The launch of one Blackwell GEMM on given arrays; see :class:`~stridewright.codegen.bind.BoundGemm`."""

    def __init__(
        self,
        gemm: BlackwellGemm,
        a: DeviceMatrix,
        b: DeviceMatrix,
        d: DeviceMatrix,
        family: str,
        out: Any,
        dependent: bool = False,
    ):
        from .launch_packed import PackedLaunch

        self._operands = (a, b, d)
        self._family = family
        self._out = out
        grid = gemm.grid(_multiprocessors())
        self.launch = PackedLaunch(gemm.kernel, grid, (gemm.threads, 1, 1), launch_arguments(gemm, a, b, d), dependent)
        """``launch(stream=None)`` launches and returns nothing."""


def bind_blackwell(gemm: BlackwellGemm, a: Any, b: Any, out: Any = None, dependent: bool = False) -> BoundBlackwellGemm:
    """Checks the arrays against the GEMM and prepares its launch. Raises OperandError, TypeError or LaunchError; ``out``
    is untouched then.
    """
    from .blackwell_gemm import wrong_major_of
    from .launch import import_cupy
    from .launch_arrays import adopt, family_of

    operands = []
    for name, array, rows in (("a", a, gemm.m), ("b", b, gemm.n)):
        operand = adopt(array, name)
        numpy_name = {"bf16": "bfloat16", "f16": "float16"}.get(operand.dtype, operand.dtype)
        gemm.check_operand(name, operand.shape, numpy_name, rows)
        major = getattr(gemm.problem, f"{name}_major")
        if major not in operand.majors:
            raise OperandError(wrong_major_of(name, major == "mn", "xp.ascontiguousarray"))
        _check_rows(name, operand, major)
        if gemm.rung is not None and not gemm.rung.maps and row_bytes(operand, major) != gemm.k * 2:
            raise OperandError(f"{name}: rung {gemm.rung.number} takes dense rows")
        operands.append(operand)
    family = family_of(a)
    if out is None:
        result = adopt(import_cupy().empty((gemm.m, gemm.n), dtype=gemm.result_dtype), "out")
    else:
        result = adopt(out, "out")
        if result.shape != (gemm.m, gemm.n) or result.dtype != gemm.problem.d:
            raise OperandError(
                f"out: shape {result.shape}, {result.dtype}; this GEMM writes {(gemm.m, gemm.n)}, {gemm.problem.d}"
            )
        if "k" not in result.majors:
            raise OperandError("out: its rows are not contiguous, and this kernel writes rows of (M, N)")
        if gemm.config.epilogue.store == "tma":
            _check_rows("out", result, "k")
        if gemm.rung is not None and not gemm.rung.maps and row_bytes(result, "k") != gemm.n * 2 and gemm.m > 1:
            raise OperandError(f"out: rung {gemm.rung.number} writes dense rows")
        family = family_of(out)
    return BoundBlackwellGemm(gemm, operands[0], operands[1], result, family, out, dependent)


def launch_arguments(gemm: BlackwellGemm, a: DeviceMatrix, b: DeviceMatrix, d: DeviceMatrix) -> tuple[Any, ...]:
    """The kernel's arguments in its order, as ``pack_argument`` takes them."""
    from .launch import DevicePointer

    sizes = tuple(map(np.uint32, (gemm.m, gemm.n, gemm.k)))
    if gemm.rung is not None and not gemm.rung.maps:
        return (DevicePointer(a.address), DevicePointer(b.address), DevicePointer(d.address), *sizes)
    pitches = (row_bytes(a, gemm.problem.a_major), row_bytes(b, gemm.problem.b_major), row_bytes(d, "k"))
    # A single row of D has no pitch of its own, and plain stores do not care for alignment.
    maps = gemm.tensor_maps(pitches)
    unused = np.zeros(1, dtype="V128")
    return (
        _encoded(maps.a, a.address),
        _encoded(maps.b, b.address),
        unused if maps.d is None else _encoded(maps.d, d.address),
        unused if maps.d_tail is None else _encoded(maps.d_tail, d.address),
        DevicePointer(d.address),
        np.uint64(pitches[2] // 2),
        *sizes,
    )


def row_bytes(matrix: DeviceMatrix, major: str) -> int:
    """Bytes from one contiguous row to the next, along K or along M or N; a single row has no next, and any pitch that
    TMA takes will do.
    """
    rows, run = matrix.shape if major == "k" else matrix.shape[::-1]
    if rows == 1:
        return -(-run * 2 // _ROW_ALIGNMENT) * _ROW_ALIGNMENT
    return matrix.strides[0 if major == "k" else 1] * 2


def _check_rows(name: str, matrix: DeviceMatrix, major: str) -> None:
    for what, value in (
        ("its address", matrix.address),
        ("the bytes from one row to the next", row_bytes(matrix, major)),
    ):
        if value % _ROW_ALIGNMENT:
            raise OperandError(
                f"{name}: {what}, {value}, must be a multiple of {_ROW_ALIGNMENT} (TMA); a copy has that"
            )
