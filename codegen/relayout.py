"""Operands that the copy engine cannot read, copied on the device into rows that it can: the slower path for leading
dimensions that are no multiple of 16 bytes, and, where asked for, for majors and strides that the hardware does not read.

Knows strides and element sizes; the kernel is ``kernels/cuda/relayout.cuh``.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .build import Build

BLOCK = 256
ALIGNMENT = 16
"""Bytes between the starts of rows that TMA takes (CUDA driver API, cuTensorMapEncodeTiled)."""

_MOST_BLOCKS = 4096


def padded_pitch(k: int, element: int) -> int:
    """Elements from row to row of a copy: the least that are whole 16 bytes.

    >>> padded_pitch(107, 2), padded_pitch(16, 1)
    (112, 16)
    """
    unit = ALIGNMENT // element
    return max(-(-k // unit), 1) * unit


@functools.cache
def build(arch: str) -> Build:
    """The compiled copies."""
    from .build import build as compiled

    source = resources.files("stridewright.kernels").joinpath("cuda", "relayout.cuh").read_text(encoding="utf-8")
    return compiled(source, arch, name="relayout.cu")


@functools.cache
def kernel(element: int, arch: str) -> Any:
    """The copy of elements of so many bytes, ready to launch."""
    from .launch import LoadedKernel

    return LoadedKernel(build(arch).cubin, f"relayout_{element}")


def grid(rows: int, k: int, batches: int) -> int:
    """Blocks of a launch.

    >>> grid(100, 100, 2)
    32
    """
    return min(max(-(-rows // 32) * -(-k // 32) * batches, 1), _MOST_BLOCKS)


def arguments(
    source: Any, target: Any, shape: tuple[int, int, int], strides: tuple[int, int, int], pitch: int
) -> tuple[Any, ...]:
    """The kernel's arguments: pointers as the launcher takes them, (batches, rows, k) and the source's strides (elements)."""
    batches, rows, k = shape
    batch_stride, row_stride, k_stride = strides
    sizes = (np.uint64(rows), np.uint64(k), np.uint64(batches))
    return (source, target, *sizes, np.int64(row_stride), np.int64(k_stride), np.int64(batch_stride), np.uint64(pitch))
