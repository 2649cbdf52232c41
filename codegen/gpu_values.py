"""Random operands and checks of results on the GPU, where they lie: what timing and testing large GEMMs needs.

The kernels are hand-written (``kernels/cuda/values.cuh``), so that neither cuBLAS nor CuPy's own compiler is needed and
a product of 16384 cubed is drawn and checked in milliseconds. This module knows matrices; it knows no GEMM kernels.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from .check import Check, bound_terms

BLOCK = 256
_ROWS_OF_A_GROUP = 8
_COLUMNS_OF_A_BLOCK = BLOCK // 32
_MOST_BLOCKS = 4096
_POISON = 0xFF
"""Every byte of a poisoned output: both bf16 and f16 read it as NaN."""

MOST_PRODUCTS = 2e10
"""Products that a check multiplies unless told otherwise: all rows of 2048 cubed, 74 of 16384 cubed; some milliseconds."""


@dataclass(frozen=True)
class Buffers:
    """A (M, K), B (N, K) and room for D (M, N) on the GPU, as CuPy arrays of bfloat16 or float16."""

    a: Any
    b: Any
    d: Any

    @property
    def size_bytes(self) -> int:
        """Bytes of the three together."""
        return int(self.a.nbytes + self.b.nbytes + self.d.nbytes)


def element_type(dtype: str) -> Any:
    """The numpy type of "bf16" or "f16". ValueError for any other: kernels take no other operands yet.

    >>> element_type("f16")
    <class 'numpy.float16'>
    """
    if dtype == "bf16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    if dtype == "f16":
        return np.float16
    raise ValueError(f"dtype={dtype!r}: must be 'bf16' or 'f16'")


@functools.cache
def _kernel(name: str, arch: str) -> Any:
    from .build import build
    from .launch import LoadedKernel

    source = resources.files("stridewright.kernels").joinpath("cuda", "values.cuh").read_text(encoding="utf-8")
    return LoadedKernel(build(source, arch, name="values.cu").cubin, name)


def _launch(name: str, grid: tuple[int, ...], args: tuple[Any, ...], stream: Any = None) -> None:
    from .launch import device_arch

    _kernel(name, device_arch())(grid, BLOCK, args, stream)


def _address(array: Any) -> Any:
    from .launch import DevicePointer

    return DevicePointer(int(array.data.ptr))


def _blocks(elements: int) -> tuple[int]:
    return (min(max(-(-elements // BLOCK), 1), _MOST_BLOCKS),)


def fill_random(array: Any, seed: int, integers: bool = False, stream: Any = None) -> None:
    """Fills a contiguous CuPy array of bf16 or f16 with standard normal numbers, or with whole numbers from -3 to 3,
    whose products stay exact in float32. The same seed gives the same numbers.
    """
    half = np.uint32(array.dtype == np.float16)
    args = (_address(array), np.uint64(array.size), np.uint64(seed), half, np.uint32(integers))
    _launch("fill_random", _blocks(-(-int(array.size) // 2)), args, stream)


def random_buffers(m: int, n: int, k: int, dtype: str = "bf16", seed: int = 0, integers: bool = False) -> Buffers:
    """A and B drawn anew, D poisoned with NaN."""
    from .launch import import_cupy

    kind, cupy = element_type(dtype), import_cupy()
    made = Buffers(*(cupy.empty(shape, dtype=kind) for shape in ((m, k), (n, k), (m, n))))
    fill_random(made.a, 2 * seed, integers)
    fill_random(made.b, 2 * seed + 1, integers)
    poison(made.d)
    return made


def poison(array: Any, stream: Any = None) -> None:
    """Makes every element NaN, so that one which a kernel does not write shows."""
    from .launch import cupy_stream, import_cupy

    import_cupy().cuda.runtime.memsetAsync(array.data.ptr, _POISON, array.nbytes, cupy_stream(stream).ptr)


def rows_to_check(m: int, n: int, k: int, most_products: float = MOST_PRODUCTS, seed: int = 0) -> list[int]:
    """The rows of D to compare, ascending: all of them where that takes at most ``most_products`` multiplications, else
    one drawn from each of as many equal strips, 16 at least.

    >>> rows_to_check(3, 8, 8)
    [0, 1, 2]
    >>> len(rows_to_check(16384, 16384, 16384))
    74
    """
    count = min(m, max(16, int(most_products // (n * k))))
    if count == m:
        return list(range(m))
    random = np.random.default_rng(seed)
    edges = [m * strip // count for strip in range(count + 1)]
    return [int(random.integers(low, high)) for low, high in itertools.pairwise(edges)]


def check_on_gpu(
    buffers: Buffers,
    dtype: str = "bf16",
    most_products: float = MOST_PRODUCTS,
    seed: int = 0,
    stream: Any = None,
    exact_sums: bool = False,
) -> Check:
    """Compares D with ``a @ b.T`` in float64 as ``check_gemm`` does, with the same bound, on the GPU and on the rows of
    ``rows_to_check``; and counts the NaNs of all of D. Waits for the stream.

    ``elements`` of the answer are those compared; a NaN anywhere is counted as outside. ``exact_sums``: nothing is
    allowed but the rounding of the result, as whole numbers make possible.
    """
    from .launch import import_cupy

    cupy = import_cupy()
    (m, k), n = buffers.a.shape, buffers.b.shape[0]
    rows = rows_to_check(m, n, k, most_products, seed)
    step, roundoff, smallest = bound_terms("f32", dtype)
    step = 0.0 if exact_sums else step
    half = np.uint32(dtype == "f16")
    listed = cupy.asarray(np.array(rows, np.uint32))
    found = cupy.asarray(np.array([0, 0, 0, 0, 2**64 - 1], np.uint64))
    nans = cupy.asarray(np.zeros(1, np.uint64))
    cupy.cuda.Device().synchronize()
    grid = (-(-n // _COLUMNS_OF_A_BLOCK), -(-len(rows) // _ROWS_OF_A_GROUP))
    pitches = tuple(np.uint64(array.strides[0] // array.itemsize) for array in (buffers.a, buffers.b, buffers.d))
    sizes = (np.uint32(len(rows)), np.uint32(n), np.uint32(k))
    bound = (np.float64(step), np.float64(roundoff), np.float64(smallest))
    matrices = (_address(buffers.a), _address(buffers.b), _address(buffers.d), _address(listed))
    _launch("compare_rows", grid, (*matrices, *sizes, *pitches, half, *bound, _address(found)), stream)
    _launch("count_nans", _blocks(m * n), (_address(buffers.d), np.uint64(m * n), half, _address(nans)), stream)
    cupy.cuda.Device().synchronize()
    return _as_check(cupy.asnumpy(found), int(cupy.asnumpy(nans)[0]), len(rows), n)


def _as_check(found: np.ndarray[Any, Any], nans: int, rows: int, n: int) -> Check:
    """The answer from the five 8-byte words of ``Found`` and the number of NaNs."""
    error_square, reference_square, largest = (float(value) for value in found[:3].view(np.float64))
    outside, first = int(found[3]), int(found[4])
    error, norm = math.sqrt(error_square), math.sqrt(reference_square)
    relative = error / norm if norm else (0.0 if error == 0 else math.inf)
    worst = ""
    if outside:
        worst = f"{outside} elements are beyond their bound, the first of them d[{first // n}, {first % n}]"
    if nans:
        worst = f"{nans} elements of D are NaN" + (f"; {worst}" if worst else "")
    return Check(relative, largest, rows * n, max(outside, nans), worst)


def different_elements(x: Any, y: Any, stream: Any = None) -> int:
    """How many elements of two contiguous arrays of one shape differ in their bits. Waits for the stream."""
    from .launch import import_cupy

    if x.shape != y.shape:
        raise ValueError(f"arrays of shape {x.shape} and {y.shape}: must be of one shape")
    cupy = import_cupy()
    count = cupy.asarray(np.zeros(1, np.uint64))
    cupy.cuda.Device().synchronize()
    _launch(
        "count_different", _blocks(int(x.size)), (_address(x), _address(y), np.uint64(x.size), _address(count)), stream
    )
    cupy.cuda.Device().synchronize()
    return int(cupy.asnumpy(count)[0])
