"""The launches of GEMMs, kept by where their arrays lie: called again with them, one costs the host little more than the
driver's call.

A launch is found by the address, shape, strides and type of every array, which are all that its tensor maps and
arguments depend on, and keeps no array alive: memory that was freed and given to another array of the same shape is the
same place. The very arrays of an earlier call are found faster still: of CuPy's arrays nothing but the shape can change,
so that whose they are and how long tells all. Knows CuPy's and PyTorch's arrays; all others take the way through
``Gemm.bind``.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .workspace import Workspaces

if TYPE_CHECKING:
    from .gemm import Gemm

MOST = 512
"""Launches kept in one table; the oldest are forgotten first."""
MOST_BYTES = 2**28
"""Device memory that the launches kept in one table may hold, for copies of operands."""
MOST_BYTES_OF_ALL = 2**30
"""The same, of all tables."""

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


def _cupy_place(x: Any) -> tuple[Any, ...]:
    return x.data.ptr, x.shape, x.strides, x.dtype, x.data.device_id


def _torch_place(x: Any) -> tuple[Any, ...]:
    return x.data_ptr(), x.shape, x.stride(), x.dtype, x.get_device()


_PLACES = {"cupy": _cupy_place, "torch": _torch_place}
_PLAIN = frozenset((int, float, bool, str, type(None)))


def places(kind: type, others: dict[str, Any]) -> list[Any]:
    """Names and places, or values, of what a call gives beside its operands. Raises TypeError unless all arrays are of the
    library of ``kind``.
    """
    place_of = _PLACES[library_of(kind)]
    found: list[Any] = []
    for name, value in others.items():
        what = type(value)
        if what is kind:
            found += name, place_of(value)
        elif what in _PLAIN or isinstance(value, np.generic):
            # 1 and 1.0 and True are equal, and are not the same to all that look at them.
            found += name, what, value
        elif library_of(what) == library_of(kind):
            found += name, place_of(value)
        else:
            raise TypeError(f"{name}: {what.__name__} is no array of {library_of(kind)}")
    return found


def identity(a: Any, b: Any, out: Any, others: dict[str, Any]) -> tuple[Any, ...]:
    """Whose a call's arrays are and their shapes: what ``still_the_same`` looks at."""
    arrays = [value for value in others.values() if type(value) is type(a)]
    shapes = [(weakref.ref(array), array.shape) for array in arrays]
    # Numbers are kept, so that nothing else has their identity.
    numbers = [value for value in others.values() if type(value) is not type(a)]
    three = (weakref.ref(a), weakref.ref(b), weakref.ref(out), a.shape, b.shape, out.shape)
    return *three, tuple(others), [*map(id, others.values())], shapes, numbers


def still_the_same(found: tuple[Any, ...], a: Any, b: Any, out: Any, others: dict[str, Any]) -> bool:
    """Whether these are the very arrays and numbers of an ``identity``, and the arrays, CuPy's, of the same shapes yet."""
    first, second, third, shape_a, shape_b, shape_out, names, identities, arrays, _, _ = found
    if not (
        first() is a
        and second() is b
        and third() is out
        and a.shape == shape_a
        and b.shape == shape_b
        and out.shape == shape_out
        and tuple(others) == names
        and [*map(id, others.values())] == identities
    ):
        return False
    for reference, shape in arrays:
        array = reference()
        if array is None or array.shape != shape:
            return False
    return True


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
    launch_with: Callable[..., Any]
    """The same for calls that give more than two operands: ``launch_with(a, b, out, stream, others)``, with the others, numbers
    and arrays of the same library, by name.
    """

    def __init__(self) -> None:
        from .launch import several_devices

        self.several = several_devices()
        self._known: dict[tuple[Any, ...], Any] = {}
        self._recent: dict[int, tuple[Any, ...]] = {}
        self._recent_with: dict[int, tuple[Any, ...]] = {}
        self._memory: dict[tuple[Any, ...], int] = {}
        self._lock = threading.Lock()
        self._key_of: dict[type, Key | None] = {}
        self._bytes = 0
        self.launch, self.launch_with = self._launchers()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def memory(self) -> int:
        """Bytes of device memory that the kept launches hold."""
        return self._bytes

    def keep(self, a: Any, b: Any, out: Any, calls: Any, others: dict[str, Any] | None = None, memory: int = 0) -> None:
        """Keeps a launch on these arrays: what the driver is called with by stream (:class:`.launch_packed.CallsByStream`).
        ``memory``: the bytes of device memory that live as long. More than ``MOST_BYTES`` are not kept, and the oldest are
        forgotten first.
        """
        key_of = self._learn(type(a))
        if key_of is None or memory > MOST_BYTES:
            return
        key = key_of(a, b, out)
        if others is not None:
            key = (*key, *places(type(a), others))
        with self._lock:
            self._bytes += memory - self._memory.pop(key, 0)
            self._known[key] = calls
            if memory:
                self._memory[key] = memory
            while len(self._known) > MOST or self._bytes > MOST_BYTES:
                self._forget(next(iter(self._known)))
        if memory:
            _keep_within_bounds(self)

    def _forget(self, key: tuple[Any, ...]) -> None:
        calls, memory = self._known.pop(key, None), self._memory.pop(key, 0)
        self._bytes -= memory
        if memory:  # nothing else may hold it
            for recent in (self._recent, self._recent_with):
                for identity_of_out, found in list(recent.items()):
                    if found[-1] is calls:
                        recent.pop(identity_of_out, None)

    def forget_memory(self) -> bool:
        """Forgets the oldest launch that holds memory; whether there was one."""
        with self._lock:
            oldest = next(iter(self._memory), None)
            if oldest is not None:
                self._forget(oldest)
        return oldest is not None

    def _learn(self, kind: type) -> Key | None:
        if kind not in self._key_of:
            dense = _cupy_key if hasattr(kind, "_c_contiguous") else _strided_cupy_key
            keys = {"cupy": (dense, _cupy_key_of_devices), "torch": (_torch_key, _torch_key_of_devices)}
            found = keys.get(library_of(kind))
            self._key_of[kind] = None if found is None else found[self.several]
        return self._key_of[kind]

    def _launchers(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The functions that ``launch`` and ``launch_with`` are: all that they need at hand, since looking it up takes as long
        as the work.
        """
        from . import driver
        from .launch import current_device, import_cupy, on_device, stream_address
        from .launch_packed import launcher

        cupy = import_cupy()
        recent, reference = self._recent, weakref.ref
        recent_with, recent_with_of = self._recent_with, self._recent_with.get
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

        def launch_with(a: Any, b: Any, out: Any, stream: Any, others: dict[str, Any]) -> Any:
            found = recent_with_of(id(out))
            calls = found[-1] if found is not None and still_the_same(found, a, b, out, others) else None
            if calls is None:
                kind = type(a)
                key_of = key_of_kind(kind) or learn(kind)
                if key_of is None or out is None:
                    return None
                try:
                    calls = kept_at((*key_of(a, b, out), *places(kind, others)))
                except (AttributeError, TypeError):  # arrays of several libraries
                    return None
                if calls is None:
                    return None
                if key_of is torch_key:
                    if stream is None:
                        stream = torch_stream()(calls.device)
                elif kind is type(b) is type(out):
                    if len(recent_with) >= MOST:
                        recent_with.clear()
                    recent_with[id(out)] = (*identity(a, b, out, others), calls)
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
            if stream is None:
                address = current_stream(device).ptr
            else:
                address = stream if type(stream) is int else stream_address(stream)
            if current_device() == device:
                status = call_driver(*calls[address])
            else:
                with on_device(device):
                    status = call_driver(*calls[address])
            driver.check(status, "cuLaunchKernelEx")
            return out

        return launch, launch_with


_holders: weakref.WeakSet[Table] = weakref.WeakSet()
"""The tables with launches that hold device memory."""


_bounding = threading.Lock()


def _keep_within_bounds(table: Table) -> None:
    """Notes that a table holds memory, and has launches forgotten until all tables together hold no more than they may."""
    with _bounding:
        _holders.add(table)
        holders = list(_holders)
        for one in holders:
            while sum(holder.memory for holder in holders) > MOST_BYTES_OF_ALL and one.forget_memory():
                pass


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
            out = new_result(a, (self._gemm.m, self._gemm.n), None, stream)
        elif library_of(type(out)) != library:
            return None
        if self.table.launch(a, b, out, stream) is None:
            calls, memory, _ = self.bound(a, b, out, stream)
            if calls is not None:
                self.table.keep(a, b, out, calls, None, memory)
        return out

    def bound(
        self, a: Any, b: Any, out: Any, stream: Any, workspace: Any = None, others: dict[str, Any] | None = None
    ) -> tuple[Any, int, Any]:
        """Binds and launches. Returns what is to be kept of it, None if nothing, the bytes of its own memory, and the whole."""
        from .launch import cupy_stream
        from .launch_arrays import current_stream_of
        from .workspace import pin_if_captured

        if stream is None:
            stream = current_stream_of(a)
        # What is allocated is memory of the stream that will use it.
        with contextlib.nullcontext() if stream is None else cupy_stream(stream):
            shared = self.workspaces if workspace is None else workspace
            bound = self._gemm.bind(a, b, out, workspace=shared, **(others or {}))
        launch = bound.launch
        memory = sum(int(array.nbytes) for array in launch.kept or () if array is not None)
        if memory:
            pin_if_captured(launch, stream)
        launch(stream)
        # Not the bound GEMM itself, which would keep its arrays alive.
        return getattr(launch, "calls", None), memory, bound


def new_result(a: Any, shape: tuple[int, ...], dtype: str | None, stream: Any) -> Any:
    """An array for the result, of a's library (CuPy or PyTorch), on its device, in memory of the stream that writes it: of a's
    type, or of a format's.
    """
    from .launch import cupy_stream, import_cupy

    if library_of(type(a)) == "torch":
        if dtype is None:
            return a.new_empty(shape)
        return a.new_empty(shape, dtype=getattr(sys.modules["torch"], _TORCH_TYPES[dtype]))
    from .tensors import numpy_type

    cupy = import_cupy()
    kind = a.dtype if dtype is None else np.uint8 if dtype in ("e4m3", "e5m2") else numpy_type(dtype)
    if stream is None:
        return cupy.empty(shape, dtype=kind)
    with cupy_stream(stream):
        return cupy.empty(shape, dtype=kind)


_TORCH_TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
}


def call(gemm: Gemm, a: Any, b: Any, out: Any, stream: Any, workspace: Any = None) -> Any:
    """A call of a Gemm for whose arrays no launch is kept yet, or with the caller's workspace."""
    from .launch import cupy_stream
    from .launch_arrays import on_device_of

    if workspace is not None:
        return call_with(gemm, a, b, out, stream, {"workspace": workspace})
    with on_device_of(a):
        calls = _calls_of(gemm)
        gemm._launch = calls.table.launch
        result = calls(a, b, out, stream)
        if result is not None:
            return result
        # Where DLPack lets streams wait, it is the launch's that must.
        chosen = None if stream is None else cupy_stream(stream)
        with chosen or contextlib.nullcontext():
            return gemm.bind(a, b, out, workspace=calls.workspaces)(chosen)


def _calls_of(gemm: Any) -> Calls:
    calls: Calls | None = gemm._calls
    if calls is None:
        # Before an array is moved to a device: "no GPU" is the clearer answer, with the way to run without one.
        gemm._require_gpu()
        calls = gemm._calls = Calls(gemm)
    return calls


def call_with(
    gemm: Any, a: Any, b: Any, out: Any, stream: Any, given: dict[str, Any], also: dict[str, Any] | None = None,
    table: Callable[[], Table] | None = None,
) -> Any:  # fmt: skip
    """A call that gives more than two operands: ``given`` has the others by name, None for what is not there. The launch is
    kept in ``table``, too, as one of a call that gave ``also``.
    """
    from .launch import cupy_stream
    from .launch_arrays import on_device_of

    with on_device_of(a):
        kept = _calls_of(gemm)
        gemm._launch_with = kept.table.launch_with
        others = {name: value for name, value in given.items() if value is not None}
        library, workspace = library_of(type(a)), others.pop("workspace", None)
        arrays = [
            x for x in (b, out, workspace, *others.values()) if type(x) not in _PLAIN and not isinstance(x, np.generic)
        ]
        if not library or any(library_of(type(x)) != library for x in arrays):
            # Copies are freed when this returns: memory of this stream, which its later work may have. A workspace is the stream's.
            chosen = None if stream is None else cupy_stream(stream)
            with chosen or contextlib.nullcontext():
                shared = kept.workspaces if workspace is None else workspace
                return gemm.bind(a, b, out, workspace=shared, **others)(chosen)
        if out is None:
            out = new_result(a, gemm.shape_d, gemm.problem.d, stream)
        if kept.table.launch_with(a, b, out, stream, given) is not None:
            return out
        calls, memory, bound = kept.bound(a, b, out, stream, workspace, others)
        if calls is not None:
            if workspace is not None and bound.workspace is not None:
                # The caller's array is not kept alive; called with another at its place, the launch clears that.
                bound.workspace.memory.held = None
            kept.table.keep(a, b, out, calls, given, memory)
            if table is not None:
                table().keep(a, b, out, calls, also, memory)
        return out
