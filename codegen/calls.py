"""The launches of one GEMM, kept by where its arrays lie: called again with them, it costs the host one launch.

A launch is found by the address, shape, strides and type of every array, which are all that its tensor maps and
arguments depend on, and keeps no array alive: memory that was freed and given to another array of the same shape is the
same place. Knows CuPy's and PyTorch's arrays; all others take the way through ``Gemm.bind``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gemm import Gemm

MOST = 512
"""Launches kept for one GEMM; the oldest are forgotten first."""

Key = Callable[[Any, Any, Any], tuple[Any, ...]]


# fmt: off
# Each written out for three arrays: a loop, or a function for one array, costs half a microsecond more.
def _cupy_key(a: Any, b: Any, d: Any) -> tuple[Any, ...]:
    return (a.data.ptr, a.shape, a.strides, a.dtype, b.data.ptr, b.shape, b.strides, b.dtype,
            d.data.ptr, d.shape, d.strides, d.dtype)


def _torch_key(a: Any, b: Any, d: Any) -> tuple[Any, ...]:
    return (a.data_ptr(), a.shape, a.stride(), a.dtype, b.data_ptr(), b.shape, b.stride(), b.dtype,
            d.data_ptr(), d.shape, d.stride(), d.dtype)
# fmt: on


_KEYS: dict[type, Key | None] = {}
"""By the type of an array what tells the places of three of its library; None for libraries not known here."""


def _learn(kind: type) -> Key | None:
    names = {f"{base.__module__.split('.')[0]}.{base.__name__}" for base in kind.__mro__}
    found: Key | None = None
    if "cupy.ndarray" in names:
        found = _cupy_key
    elif "torch.Tensor" in names:
        found = _torch_key
    _KEYS[kind] = found
    return found


def _key_of(array: Any) -> Key | None:
    kind = type(array)
    return _KEYS[kind] if kind in _KEYS else _learn(kind)


@functools.cache
def _raw_stream() -> Callable[[int], int]:
    """PyTorch's current stream of a device, as a number."""
    torch = sys.modules["torch"]
    # What PyTorch's own compiler calls: it makes no object.
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


class Calls:
    """The kept launches of a Gemm."""

    def __init__(self, gemm: Gemm) -> None:
        from .launch import import_cupy

        self._gemm = gemm
        self._cupy = import_cupy()
        self._current_stream = self._cupy.cuda.get_current_stream
        self._known: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        # New results are of the operands' type, which PyTorch's new_empty takes from them.
        self._same_type = gemm.problem.a == gemm.problem.d

    def __call__(self, a: Any, b: Any, out: Any, stream: Any) -> Any:
        """``a @ b.T`` into ``out``, or into a new array; None, and nothing done, where the arrays are not of a library
        known here or must be ordered first. Raises what ``Gemm.bind`` does.
        """
        kind = type(a)
        key_of = _KEYS.get(kind) or _key_of(a)
        if key_of is None or (type(b) is not kind and _key_of(b) is not key_of):
            return None
        if stream is None and key_of is _torch_key:
            stream = self._in_step(a)
            if stream is None:
                return None
        if out is None:
            if not self._same_type:
                return None
            out = self._new(a)
        elif type(out) is not kind and _key_of(out) is not key_of:
            return None
        key = key_of(a, b, out)
        kept = self._known.get(key) or self._keep(key, a, b, out)
        kept[0](stream)
        return out

    def _in_step(self, tensor: Any) -> int | None:
        """CuPy's current stream where it is PyTorch's too: what PyTorch has queued comes before the launch then. None
        where it is not: DLPack orders the two, on the way through ``Gemm.bind``.
        """
        address = int(self._current_stream().ptr)
        return address if _raw_stream()(tensor.get_device()) == address else None

    def _new(self, a: Any) -> Any:
        gemm = self._gemm
        if _key_of(a) is _torch_key:
            return a.new_empty((gemm.m, gemm.n))
        return self._cupy.empty((gemm.m, gemm.n), dtype=a.dtype)

    def _keep(self, key: tuple[Any, ...], a: Any, b: Any, out: Any) -> tuple[Any, Any]:
        bound = self._gemm.bind(a, b, out)
        # Not the bound GEMM itself, which would keep its arrays alive.
        kept = self._known[key] = (bound.launch, bound.workspace)
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return kept
