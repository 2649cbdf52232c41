"""The launches of GEMMs, kept by where their arrays lie: called again with them, one costs the host little more than the
driver's call.

A launch is found by the address, shape, strides and type of every array, which are all that its tensor maps and
arguments depend on, and keeps no array alive: memory that was freed and given to another array of the same shape is the
same place. The very arrays of an earlier call are found faster still: of CuPy's arrays nothing but the shape can change,
so that whose they are and how long tells all. Knows CuPy's and PyTorch's arrays; all others take the way through
``Gemm.bind``.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .workspace import Workspaces

if TYPE_CHECKING:
    from .gemm import Gemm

MOST = 512
"""Launches kept in one table; the oldest are forgotten first."""

Key = Callable[[Any, Any, Any], tuple[Any, ...]]


# fmt: off
# Each written out for three arrays: a loop, or a function for one array, costs half a microsecond more.
def _cupy_key(a: Any, b: Any, d: Any) -> tuple[Any, ...]:
    # What CuPy knows of an array anyway is faster to ask for than strides, of which it makes a tuple.
    if a._c_contiguous and b._c_contiguous and d._c_contiguous:
        return (a.data.ptr, b.data.ptr, d.data.ptr, a.shape, b.shape, d.shape, a.dtype, b.dtype, d.dtype)
    return _strided_cupy_key(a, b, d)


def _strided_cupy_key(a: Any, b: Any, d: Any) -> tuple[Any, ...]:
    return (a.data.ptr, a.shape, a.strides, a.dtype, b.data.ptr, b.shape, b.strides, b.dtype,
            d.data.ptr, d.shape, d.strides, d.dtype)


def _torch_key(a: Any, b: Any, d: Any) -> tuple[Any, ...]:
    return (a.data_ptr(), a.shape, a.stride(), a.dtype, b.data_ptr(), b.shape, b.stride(), b.dtype,
            d.data_ptr(), d.shape, d.stride(), d.dtype)


# An address is one device's at a time, and another's after the memory was freed.
def _cupy_key_of_devices(a: Any, b: Any, d: Any) -> tuple[Any, ...]:
    return (*_strided_cupy_key(a, b, d), a.data.device_id, b.data.device_id, d.data.device_id)


def _torch_key_of_devices(a: Any, b: Any, d: Any) -> tuple[Any, ...]:
    return (*_torch_key(a, b, d), a.get_device(), b.get_device(), d.get_device())
# fmt: on


_LIBRARIES: dict[type, str] = {}


def library_of(kind: type) -> str:
    """ "cupy", "torch", or "" for a type of array whose launches are not kept.

    >>> library_of(int)
    ''
    """
    found = _LIBRARIES.get(kind)
    if found is None:
        names = {f"{base.__module__.split('.')[0]}.{base.__name__}" for base in kind.__mro__}
        found = "cupy" if "cupy.ndarray" in names else "torch" if "torch.Tensor" in names else ""
        _LIBRARIES[kind] = found
    return found


@functools.cache
def torch_stream() -> Callable[[int], int]:
    """PyTorch's current stream of a device, as a number."""
    torch = sys.modules["torch"]
    # What PyTorch's own compiler calls: it makes no object.
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


class Table:
    """Kept launches, and the way to them: ``table.launch(a, b, out, stream)`` launches what is kept for these arrays and
    returns ``out``, or does nothing and returns None.

    Threads may share it. A stream of None is the current one of the arrays' library, on their device.
    """

    launch: Callable[..., Any]

    def __init__(self) -> None:
        from .launch import several_devices

        self.several = several_devices()
        self._known: dict[tuple[Any, ...], Any] = {}
        self._recent: dict[int, tuple[Any, ...]] = {}
        self._lock = threading.Lock()
        self._key_of: dict[type, Key | None] = {}
        self.launch = self._launcher()

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, a: Any, b: Any, out: Any, calls: Any) -> None:
        """Keeps a launch on these arrays: what the driver is called with by stream (:class:`.launch_packed.CallsByStream`)."""
        key_of = self._learn(type(a))
        assert key_of is not None
        with self._lock:
            self._known[key_of(a, b, out)] = calls
            while len(self._known) > MOST:
                del self._known[next(iter(self._known))]

    def _learn(self, kind: type) -> Key | None:
        if kind not in self._key_of:
            dense = _cupy_key if hasattr(kind, "_c_contiguous") else _strided_cupy_key
            keys = {"cupy": (dense, _cupy_key_of_devices), "torch": (_torch_key, _torch_key_of_devices)}
            found = keys.get(library_of(kind))
            self._key_of[kind] = None if found is None else found[self.several]
        return self._key_of[kind]

    def _launcher(self) -> Callable[..., Any]:
        """The function that ``launch`` is: everything it needs at hand, since looking it up takes as long as the work."""
        from . import driver
        from .launch import current_device, import_cupy, on_device, stream_address
        from .launch_packed import launcher

        cupy = import_cupy()
        recent, reference = self._recent, weakref.ref
        recent_of, kept_at, key_of_kind = recent.get, self._known.get, self._key_of.get
        learn, several = self._learn, self.several
        current_stream, call_driver = cupy.cuda.get_current_stream, launcher()
        torch_key = _torch_key_of_devices if several else _torch_key

        def launch(a: Any, b: Any, out: Any, stream: Any = None) -> Any:
            found = recent_of(id(out))
            if found is not None:
                first, second, third, rows_a, rows_b, rows_out, calls = found
                # The size of an array stays, and with it the number of its rows tells its shape.
                if not (
                    first() is a and second() is b and third() is out
                    and len(a) == rows_a and len(b) == rows_b and len(out) == rows_out
                    and a.ndim == b.ndim == out.ndim == 2
                ):  # fmt: skip
                    calls = None
            else:
                calls = None
            if calls is None:
                kind = type(a)
                key_of = key_of_kind(kind) or learn(kind)
                if key_of is None or out is None:
                    return None
                try:
                    calls = kept_at(key_of(a, b, out))
                except (AttributeError, TypeError):  # arrays of several libraries
                    return None
                if calls is None:
                    return None
                if key_of is torch_key:
                    if stream is None:
                        stream = torch_stream()(calls.device)
                elif kind is type(b) is type(out) and a.ndim == b.ndim == out.ndim == 2:
                    # Others may have its identity once an array is gone, but then no weak reference leads to it.
                    if len(recent) >= MOST:
                        recent.clear()
                    recent[id(out)] = reference(a), reference(b), reference(out), len(a), len(b), len(out), calls
            if several:
                return elsewhere(calls, out, stream)
            if stream is None:
                address = current_stream().ptr
            else:
                address = stream if type(stream) is int else stream_address(stream)
            status = call_driver(*calls[address])
            if status:
                driver.check(status, "cuLaunchKernelEx")
            return out

        def elsewhere(calls: Any, out: Any, stream: Any) -> Any:
            """With several devices: on that of the arrays, into its current stream."""
            device = calls.device
            address = current_stream(device).ptr if stream is None else stream_address(stream)
            if current_device() == device:
                status = call_driver(*calls[address])
            else:
                with on_device(device):
                    status = call_driver(*calls[address])
            driver.check(status, "cuLaunchKernelEx")
            return out

        return launch


class Calls:
    """The calls of a Gemm whose launches are kept, in a table of its own or a given one."""

    def __init__(self, gemm: Any, table: Table | None = None) -> None:
        self._gemm = gemm
        self.table = Table() if table is None else table
        self.workspaces = Workspaces()
        # New results are of the operands' type, which PyTorch's new_empty takes from them.
        self._same_type = gemm.problem.a == gemm.problem.d

    def __call__(self, a: Any, b: Any, out: Any, stream: Any) -> Any:
        """``a @ b.T`` into ``out``, or into a new array; None, and nothing done, where the arrays are not all of one library
        known here. Raises what ``Gemm.bind`` does.
        """
        library = library_of(type(a))
        if not library or library_of(type(b)) != library:
            return None
        if out is None:
            if not self._same_type:
                return None
            out = self._new(a, library, stream)
        elif library_of(type(out)) != library:
            return None
        if self.table.launch(a, b, out, stream) is None:
            from .launch_arrays import current_stream_of

            launch = self._gemm.bind(a, b, out, workspace=self.workspaces).launch
            if launch.calls is not None:
                # Not the bound GEMM itself, which would keep its arrays alive.
                self.table.keep(a, b, out, launch.calls)
            launch(current_stream_of(a) if stream is None else stream)
        return out

    def _new(self, a: Any, library: str, stream: Any) -> Any:
        """An array for the result, of the memory of the stream that writes it."""
        from .launch import cupy_stream, import_cupy

        shape = (self._gemm.m, self._gemm.n)
        if library == "torch":
            return a.new_empty(shape)
        cupy = import_cupy()
        if stream is None:
            return cupy.empty(shape, dtype=a.dtype)
        with cupy_stream(stream):
            return cupy.empty(shape, dtype=a.dtype)


def call(gemm: Gemm, a: Any, b: Any, out: Any, stream: Any, workspace: Any = None) -> Any:
    """A call of a Gemm for whose arrays no launch is kept yet."""
    from .launch_arrays import on_device_of

    with on_device_of(a):
        calls = gemm._calls
        if calls is None:
            # Before an array is moved to a device: "no GPU" is the clearer answer, with the way to run without one.
            gemm._require_gpu()
            calls = gemm._calls = Calls(gemm)
            gemm._launch = calls.table.launch
        result = calls(a, b, out, stream) if workspace is None else None
        return gemm.bind(a, b, out, workspace=workspace)(stream) if result is None else result
