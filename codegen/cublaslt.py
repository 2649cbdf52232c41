"""cuBLASLt through ctypes: every algorithm of its heuristic for D = A B^T, each as a launch beside ours.

The library is the one already in the process (PyTorch's, say), or of the nvidia-cublas wheels, or of a CUDA toolkit.
cuBLASLt counts matrices column by column: our D (M, N) by rows is its D^T (N, M), so that its first operand is our B,
transposed, and its second our A. Source: cublasLt.h 13.0 and "Using the cuBLASLt API" (cuBLAS documentation).
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gpu_values import Buffers
    from .measure import Launch

WORKSPACE_BYTES = 32 * 2**20
"""What cuBLAS itself takes on Hopper (cuBLAS documentation, "cublasSetWorkspace")."""

MOST_ALGORITHMS = 16

_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
_WHEEL_FOLDERS = ("nvidia/cu13/lib", "nvidia/cublas/lib")

# cublasLt.h: cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatmulAlgoConfigAttributes_t;
# cublas_api.h: cublasComputeType_t, cublasOperation_t; library_types.h: cudaDataType.
_TRANSA, _TRANSB = 3, 4
_MAX_WORKSPACE = 1
_CONFIG = {"id": 0, "tile": 1, "split_k": 2, "reduction": 3, "swizzle": 4, "custom": 5, "stages": 6}
_CONFIG_16_BIT = {"inner_shape": 7, "cluster": 8}
_COMPUTE_32F, _OP_N, _OP_T = 68, 0, 1
_TYPES = {"bf16": 14, "f16": 2, "e4m3": 28, "e4m3 fast": 28}
_RESULTS = {"e4m3": 14, "e4m3 fast": 14}
_FAST_ACCUMULATION = 25  # of 8-bit floats: sums are not promoted
_FLOAT32 = 0


class CublasLtError(RuntimeError):
    """cuBLASLt is missing or refused a call; the message says which call, with what, and what it answered."""


class _Algo(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class _HeuristicResult(ctypes.Structure):
    _fields_ = (
        ("algo", _Algo),
        ("workspace_size", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves_count", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_Pointer = ctypes.c_void_p
_Handle = ctypes.POINTER(ctypes.c_void_p)
_Size = ctypes.POINTER(ctypes.c_size_t)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_Handle,),
    "cublasLtMatmulDescCreate": (_Handle, ctypes.c_int, ctypes.c_int),
    "cublasLtMatmulDescSetAttribute": (_Pointer, ctypes.c_int, _Pointer, ctypes.c_size_t),
    "cublasLtMatmulDescDestroy": (_Pointer,),
    "cublasLtMatrixLayoutCreate": (_Handle, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (_Pointer,),
    "cublasLtMatmulPreferenceCreate": (_Handle,),
    "cublasLtMatmulPreferenceSetAttribute": (_Pointer, ctypes.c_int, _Pointer, ctypes.c_size_t),
    "cublasLtMatmulPreferenceDestroy": (_Pointer,),
    "cublasLtMatmulAlgoGetHeuristic": (
        *(_Pointer,) * 7,
        ctypes.c_int,
        ctypes.POINTER(_HeuristicResult),
        ctypes.POINTER(ctypes.c_int),
    ),
    "cublasLtMatmulAlgoConfigGetAttribute": (ctypes.POINTER(_Algo), ctypes.c_int, _Pointer, ctypes.c_size_t, _Size),
    "cublasLtMatmul": (*(_Pointer,) * 14, ctypes.c_size_t, _Pointer),
}
"""The parameters of each call, in the order of cublasLt.h; each returns a cublasStatus_t."""


def _candidates() -> Iterator[str]:
    """Where the library may lie: in the process already, in a wheel, in a toolkit, where the linker looks."""
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        mapped = ""
    yield from dict.fromkeys(line.split(maxsplit=5)[5] for line in mapped.splitlines() if "libcublasLt.so" in line)
    for folder in _WHEEL_FOLDERS:
        for entry in sys.path:
            for name in _NAMES:
                path = Path(entry or ".") / folder / name
                if path.is_file():
                    yield str(path)
    for root in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        for name in _NAMES:
            if root and (Path(root) / "lib64" / name).is_file():
                yield str(Path(root) / "lib64" / name)
    yield from _NAMES


@functools.cache
def library() -> ctypes.CDLL:
    """cuBLASLt with its signatures declared. Raises CublasLtError, naming the pip command, where there is none."""
    refused = []
    for candidate in _candidates():
        try:
            handle = ctypes.CDLL(candidate)
        except OSError as error:
            if "/" in candidate:
                refused.append(f"{candidate}: {error}")
            continue
        declare(handle)
        return handle
    found = f" (found but not usable: {'; '.join(refused)})" if refused else ""
    raise CublasLtError(
        f"cuBLASLt is not installed{found}: pip install 'nvidia-cublas>=13,<14' (or nvidia-cublas-cu12), a CUDA toolkit "
        "or PyTorch brings it"
    )


def declare(handle: Any) -> None:
    """Gives the functions of a loaded library their parameter types."""
    for name, parameters in _SIGNATURES.items():
        function = getattr(handle, name)
        function.argtypes, function.restype = parameters, ctypes.c_int
    handle.cublasLtGetVersion.restype = ctypes.c_size_t
    handle.cublasLtGetStatusName.argtypes, handle.cublasLtGetStatusName.restype = (ctypes.c_int,), ctypes.c_char_p


def version() -> str:
    """The version of the library in use, for instance "13.0.2"."""
    number = int(library().cublasLtGetVersion())
    # cublas_api.h: 10000 * major + 100 * minor + patch since 11.
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _check(status: int, call: str, given: str = "") -> None:
    if status:
        name = library().cublasLtGetStatusName(status)
        shown = name.decode() if name else f"status {status}"
        raise CublasLtError(f"{call} failed: {shown}" + (f"; it was given {given}" if given else ""))


@functools.cache
def _handle(device: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _check(library().cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate", f"device {device}")
    return handle


def _current_handle() -> ctypes.c_void_p:
    from .launch import import_cupy

    return _handle(int(import_cupy().cuda.runtime.getDevice()))


@dataclass(frozen=True)
class Algorithm:
    """One entry of the heuristic's list: its place, the workspace it needs (bytes), how many waves cuBLASLt counts, and
    its settings as numbers of cublasLt.h. ``words`` are the eight of cublasLtMatmulAlgo_t.
    """

    place: int
    workspace_bytes: int
    waves: float
    settings: tuple[tuple[str, int], ...]
    words: tuple[int, ...]

    @property
    def name(self) -> str:
        """A short name: place and what tells algorithms apart.

        >>> Algorithm(2, 0, 1.0, (("id", 66), ("tile", 20), ("split_k", 1)), (0,) * 8).name
        'cublaslt2_id66_tile20'
        """
        shown = {"split_k": 1, "reduction": 0, "swizzle": 0, "custom": 0, "inner_shape": 0, "cluster": 0, "stages": 0}
        parts = [f"{name}{value}" for name, value in self.settings if value != shown.get(name)]
        return "_".join([f"cublaslt{self.place}", *parts])


class _Descriptors:
    """The descriptors of one product, destroyed with this object."""

    def __init__(self, m: int, n: int, k: int, dtype: str) -> None:
        lib = library()
        if dtype not in _TYPES:
            raise CublasLtError(f"dtype={dtype!r}: must be one of {', '.join(_TYPES)}")
        self._destroy: list[tuple[Any, ctypes.c_void_p]] = []
        given = f"m={m}, n={n}, k={k}, {dtype}"
        self.operation = self._create(
            "cublasLtMatmulDescCreate", lib.cublasLtMatmulDescDestroy, given, _COMPUTE_32F, _FLOAT32
        )
        for attribute, value in ((_TRANSA, _OP_T), (_TRANSB, _OP_N)):
            number = ctypes.c_int32(value)
            status = lib.cublasLtMatmulDescSetAttribute(
                self.operation, attribute, ctypes.byref(number), ctypes.sizeof(number)
            )
            _check(status, "cublasLtMatmulDescSetAttribute", given)
        if dtype == "e4m3 fast":
            fast = ctypes.c_int8(1)
            status = lib.cublasLtMatmulDescSetAttribute(self.operation, _FAST_ACCUMULATION, ctypes.byref(fast), 1)
            _check(status, "cublasLtMatmulDescSetAttribute", given)
        kind = _TYPES[dtype]
        result = _RESULTS.get(dtype, kind)
        self.b, self.a, self.d = (
            self._create(
                "cublasLtMatrixLayoutCreate", lib.cublasLtMatrixLayoutDestroy, given, which, rows, columns, rows
            )
            for which, rows, columns in ((kind, k, n), (kind, k, m), (result, n, m))
        )

    def _create(self, call: str, destroy: Any, given: str, *arguments: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        _check(getattr(library(), call)(ctypes.byref(made), *arguments), call, given)
        self._destroy.append((destroy, made))
        return made

    def preference(self, workspace_bytes: int) -> ctypes.c_void_p:
        """A search preference that allows so much workspace."""
        lib = library()
        made = self._create("cublasLtMatmulPreferenceCreate", lib.cublasLtMatmulPreferenceDestroy, "")
        allowed = ctypes.c_uint64(workspace_bytes)
        status = lib.cublasLtMatmulPreferenceSetAttribute(
            made, _MAX_WORKSPACE, ctypes.byref(allowed), ctypes.sizeof(allowed)
        )
        _check(status, "cublasLtMatmulPreferenceSetAttribute", f"{workspace_bytes} bytes of workspace")
        return made

    def __del__(self) -> None:
        for destroy, made in getattr(self, "_destroy", ()):
            destroy(made)


def heuristics(m: int, n: int, k: int, dtype: str = "bf16", most: int = MOST_ALGORITHMS) -> list[Algorithm]:
    """What cuBLASLt's heuristic proposes for D (m, n) = A (m, k) B (n, k)^T, its first choice first, ``most`` at most.

    Raises CublasLtError where the library is missing or proposes nothing. Operands start at multiples of 256 bytes, as
    CuPy's do.
    """
    lib, descriptors = library(), _Descriptors(m, n, k, dtype)
    found, count = (_HeuristicResult * most)(), ctypes.c_int()
    status = lib.cublasLtMatmulAlgoGetHeuristic(
        _current_handle(),
        descriptors.operation,
        descriptors.b,
        descriptors.a,
        descriptors.d,
        descriptors.d,
        descriptors.preference(WORKSPACE_BYTES),
        most,
        found,
        ctypes.byref(count),
    )
    given = f"m={m}, n={n}, k={k}, {dtype}"
    _check(status, "cublasLtMatmulAlgoGetHeuristic", given)
    usable = [one for one in found[: count.value] if one.state == 0]
    if not usable:
        raise CublasLtError(f"cuBLASLt proposes no algorithm for {given}")
    return [
        Algorithm(
            place, int(one.workspace_size), float(one.waves_count), _settings(lib, one.algo), tuple(one.algo.data)
        )
        for place, one in enumerate(usable)
    ]


def _settings(lib: Any, algo: _Algo) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    written = ctypes.c_size_t()
    for names, kind in ((_CONFIG, ctypes.c_int32), (_CONFIG_16_BIT, ctypes.c_uint16)):
        for name, attribute in names.items():
            value = kind()
            status = lib.cublasLtMatmulAlgoConfigGetAttribute(
                ctypes.byref(algo), attribute, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written)
            )
            if status == 0:
                found.append((name, int(value.value)))
    return tuple(found)


@functools.cache
def _workspace(device: int) -> Any:
    from .launch import import_cupy

    # One for all: launches of one stream follow one another.
    return import_cupy().cuda.alloc(WORKSPACE_BYTES)


class CublasLtGemm:
    """One product by one algorithm of ``heuristics``. All launches share a workspace, so they belong in one stream."""

    def __init__(self, m: int, n: int, k: int, algorithm: Algorithm, dtype: str = "bf16") -> None:
        from .launch import import_cupy

        self.algorithm = algorithm
        self._given = f"m={m}, n={n}, k={k}, {dtype}, {algorithm.name}"
        self._descriptors = _Descriptors(m, n, k, dtype)
        self._handle = _current_handle()
        self._algo = _Algo((ctypes.c_uint64 * 8)(*algorithm.words))
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._workspace = _workspace(int(import_cupy().cuda.runtime.getDevice()))

    def launch(self, a: Any, b: Any, d: Any, stream: Any = None) -> None:
        """Multiplies CuPy arrays a (m, k) and b (n, k) into d (m, n), all dense, in ``stream``; returns at once."""
        from .launch import cupy_stream

        of = self._descriptors
        status = library().cublasLtMatmul(
            self._handle,
            of.operation,
            ctypes.byref(self._one),
            b.data.ptr,
            of.b,
            a.data.ptr,
            of.a,
            ctypes.byref(self._zero),
            d.data.ptr,
            of.d,
            d.data.ptr,
            of.d,
            ctypes.byref(self._algo),
            self._workspace.ptr,
            WORKSPACE_BYTES,
            cupy_stream(stream).ptr,
        )
        _check(status, "cublasLtMatmul", self._given)

    def launches(self, buffers: Sequence[Buffers]) -> list[Launch]:
        """One launch for each set of buffers, as ``measure`` takes them."""
        return [functools.partial(self.launch, one.a, one.b, one.d) for one in buffers]
