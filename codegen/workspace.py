"""The device memory that a launch writes beside its result: partial sums and counters of tiles that several CTAs share.

Three ways to have it: an own one for each bound launch; for kept launches one for each stream, where they come one after the
other; or the caller's own memory. Knows sizes and where memory lies; the kernel's use of it is in
``kernels/cuda/partial_sums.cuh``.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .division import Division
    from .overlap import Place

ALIGNMENT = 16
"""Bytes: partial sums are written four float32 at a time."""

NUMBER_BYTES = 2**12
"""What a stream's workspace has for the numbers that clusters take (``launch="placed"``): apart, since they are taken while the
kernel before, which may count there, still runs."""

COUNTER_BYTES = 2**16
"""What a stream's workspace has for counters; a GEMM with more has one of its own."""

PER_THREAD_STREAM = 2
"""cudaStreamPerThread: one address, and another stream in each thread (CUDA runtime API, "Stream synchronization behavior")."""

_PARTIALS_AT = COUNTER_BYTES + NUMBER_BYTES
_MOST_STREAMS = 64


@dataclass(frozen=True)
class Sizes:
    """What a launch needs: ``partials`` and ``counters`` in bytes, ``shared_blocks`` of tiles; ``added`` if partial sums are added
    up in place, and so must be zeros before, as they are after.
    """

    partials: int
    counters: int
    shared_blocks: int
    added: bool = False
    numbers: bool = False
    """Whether the counters are for numbers of clusters."""

    @property
    def bytes(self) -> int:
        """Both together.

        >>> Sizes(4096, 8, 1).bytes
        4104
        """
        return self.partials + self.counters


def sizes(division: Division, added: bool = False) -> Sizes:
    """What a launch that is so divided needs."""
    numbers = getattr(division, "placed", False)
    return Sizes(4 * division.partial_floats, 4 * division.counters, division.shared_blocks, added, numbers)


class Memory:
    """The workspace of one launch at a time: ``partials`` and ``counters`` are addresses, 0 where there is none. The counters
    follow the partial sums, which are at the beginning, or stand there themselves, with the partial sums ``partials_at`` behind.
    """

    def __init__(self, needed: Sizes, held: Any = None, address: int = 0, partials_at: int = 0):
        self.needed, self.held, self.address, self._partials_at = needed, held, address, partials_at

    @property
    def partials(self) -> int:
        """The address of the partial sums."""
        return self.address + self._partials_at if self.needed.partials else 0

    @property
    def counters(self) -> int:
        """The address of the counters."""
        after = 0 if self._partials_at else self.needed.partials
        return self.address + after if self.needed.counters else 0

    def __call__(self, stream: Any = None) -> None:
        """Makes it zeros, as a launch wants to find it and leaves it, in the order of a stream (None: CuPy's current one)."""
        from .launch import cupy_stream, import_cupy, stream_address

        address = int(cupy_stream().ptr) if stream is None else stream_address(stream)
        import_cupy().cuda.runtime.memsetAsync(self.address, 0, self.needed.bytes, address)


def new(needed: Sizes) -> Memory:
    """Zeroed memory on the current device, ready for every stream."""
    if not needed.bytes:
        return Memory(needed)
    from .launch import import_cupy

    cupy = import_cupy()
    with filling_stream(int(cupy.cuda.runtime.getDevice())):
        held = cupy.empty(needed.bytes, dtype=np.uint8)
    address = int(held.data.ptr)
    fill_with_zeros(address, needed.bytes)
    return Memory(needed, held, address)


def fill_with_zeros(address: int, size: int) -> None:
    """Makes memory of the current device zeros, ready for every stream when this returns."""
    from .launch import import_cupy

    cupy = import_cupy()
    stream = filling_stream(int(cupy.cuda.runtime.getDevice()))
    cupy.cuda.runtime.memsetAsync(address, 0, size, stream.ptr)
    stream.synchronize()


@functools.lru_cache(maxsize=64)
def filling_stream(device: int) -> Any:
    """A stream of a device that only fills memory: the caller's may be captured into a graph, which would record that."""
    from .launch import import_cupy

    return import_cupy().cuda.Stream(non_blocking=True)


_PINNED: list[Any] = []


def pin_if_captured(launch: Any, stream: Any = None) -> None:
    """Keeps a launch, and with it the memory of its own, for as long as the process runs, if its stream (None: CuPy's current
    one) is captured into a graph: the graph will use the memory, and nobody says when it is gone.
    """
    from .launch import cupy_stream, import_cupy, stream_address

    address = int(cupy_stream().ptr) if stream is None else stream_address(stream)
    # The streams 0 to 2 are the default ones, which cannot be captured.
    if address > 2 and import_cupy().cuda.runtime.streamIsCapturing(address) and launch not in _PINNED:
        _PINNED.append(launch)


def given(array: Any, needed: Sizes) -> Memory:
    """The caller's memory as a workspace. Raises OperandError where it is too small, strided, or starts at an odd place."""
    from .bind import OperandError
    from .launch_arrays import adopt_array

    held, _, family = adopt_array(array, "workspace")
    if family == "numpy":
        raise OperandError(
            "workspace: numpy's memory is the host's; cupy.empty(gemm.workspace_bytes, 'uint8') is the device's"
        )
    if not held.flags.c_contiguous:
        raise OperandError("workspace: its elements are not neighbours; a new array of bytes has that")
    if held.nbytes < needed.bytes:
        raise OperandError(
            f"workspace: has {held.nbytes} bytes, and this launch needs {needed.bytes} (gemm.workspace_bytes says so)"
        )
    address = int(held.data.ptr)
    if needed.bytes and address % ALIGNMENT:
        raise OperandError(
            f"workspace: begins at address {address}, which must be a multiple of {ALIGNMENT}; whole arrays of CuPy do"
        )
    return Memory(needed, held, address)


def require_array(source: Any) -> None:
    """Raises OperandError for what is no memory, whether or not any is needed."""
    if source is None or isinstance(source, Workspaces) or (hasattr(source, "dtype") and hasattr(source, "shape")):
        return
    from .bind import OperandError

    raise OperandError(
        f"workspace: {type(source).__name__} was given, and it is an array on the device: "
        "cupy.empty(gemm.workspace_bytes, 'uint8'), or None for one that is kept"
    )


class _OfStreams:
    """For each stream of each device a workspace for the launches of all GEMMs that go there one after the other. Every launch
    finds the counters zero and leaves them so, and whatever partial sums are left over, the next one writes over.

    They are never moved or freed while their stream is in use: graphs that were captured may hold their addresses. (Two graphs
    captured from one stream use the same one, and must not run at the same time; each can have its own by ``workspace=``.)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[int, int], list[tuple[int, Any]]] = {}

    def of(self, device: int, stream: int, needed: Sizes) -> Memory:
        """The one of a stream, made when first asked for so much; ``device`` must be current."""
        with self._lock:
            if (device, stream) not in self._made and len(self._made) >= _MOST_STREAMS:
                # Streams that are gone had theirs; what still runs must end before the memory is given to others.
                from .launch import import_cupy

                import_cupy().cuda.Device(device).synchronize()
                self._made.clear()
            sizes_made = self._made.setdefault((device, stream), [])
            for size, memory in sizes_made:
                if size >= needed.partials:
                    return _part(needed, memory)
            # Twice as much each time: the ones that were too small are together no larger than the last.
            size = 1 << max(needed.partials - 1, 1).bit_length()
            memory = new(Sizes(_PARTIALS_AT + size, 0, 0))
            sizes_made.append((size, memory))
            return _part(needed, memory)

    @property
    def bytes(self) -> int:
        """Bytes of device memory that all of them hold."""
        return sum(_PARTIALS_AT + size for made in self._made.values() for size, _ in made)


_thread = threading.local()
_thread_numbers = itertools.count(1)


def _in_this_thread(stream: int) -> int:
    """The stream's address, and for the one that each thread has of its own a number of this thread, which is negative."""
    if stream != PER_THREAD_STREAM:
        return stream
    if not hasattr(_thread, "number"):
        _thread.number = next(_thread_numbers)
    return -int(_thread.number)


def _part(needed: Sizes, whole: Memory) -> Memory:
    """What a launch has of a stream's workspace."""
    if needed.numbers:
        return Memory(needed, whole.held, whole.address + COUNTER_BYTES)
    return Memory(needed, whole.held, whole.address, _PARTIALS_AT)


_of_streams = _OfStreams()


class Workspaces:
    """Where the kept launches of one GEMM have their workspaces: in those of their streams; or in ones of its own, where partial
    sums are added up in place or counters are many.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: dict[tuple[int, int], Memory] = {}

    def of(self, device: int, stream: int, needed: Sizes) -> Memory:
        """The one of a stream, made when first asked for; ``device`` must be current."""
        if not needed.added and needed.counters <= (NUMBER_BYTES if needed.numbers else COUNTER_BYTES):
            return _of_streams.of(device, stream, needed)
        with self._lock:
            found = self._own.get((device, stream))
            if found is None:
                if len(self._own) >= _MOST_STREAMS:
                    from .launch import import_cupy

                    import_cupy().cuda.Device(device).synchronize()
                    self._own.clear()
                found = self._own[device, stream] = new(needed)
            return found

    @property
    def bytes(self) -> int:
        """Bytes of device memory that those of its own hold."""
        return sum(memory.needed.bytes for memory in self._own.values())


@functools.lru_cache(maxsize=256)
def _order_table(table: bytes, device: int) -> Any:
    """An order of tiles in the memory of a device, which must be current. Read only, and so shared by all launches."""
    from .launch import import_cupy

    cupy = import_cupy()
    stream = filling_stream(device)
    with stream:
        held = cupy.asarray(np.frombuffer(table, dtype=np.uint32))
    stream.synchronize()
    return held


def _with_numbers(gemm: Any, division: Division) -> Any:
    """The order of tiles with the numbers of clusters on the current device behind it."""
    from .placement import gpcs

    return gemm.order_table(gpcs=gpcs(), clusters=division.clusters)


class Workspace:
    """How one launch comes by its workspace. ``source``: None for one of its own, ``Workspaces`` for one for each stream, or
    an array of the caller's, which is cleared before each launch, since anything may stand in it.
    """

    def __init__(self, gemm: Any, division: Any, source: Any = None):
        from .launch import current_device

        require_array(source)
        # What was recorded of a division says itself how its sums are added.
        added = getattr(division, "added", None)
        self.needed = sizes(division, gemm.config.split.reduce == "atomic" if added is None else added)
        table = _with_numbers(gemm, division) if self.needed.numbers else gemm.order_table()
        # Kernels without need of any must not pay for the import, nor for allocations.
        self._table = _order_table(table.tobytes(), current_device()) if table.size else None
        self._shared: Workspaces | None = None
        self.clear: Memory | None = None
        """What must be cleared before each launch, if anything."""
        if not self.needed.bytes:
            self.memory = Memory(self.needed)
        elif isinstance(source, Workspaces):
            self._shared, self.memory = source, Memory(self.needed)
        elif source is None:
            self.memory = new(self.needed)
        else:
            self.memory = self.clear = given(source, self.needed)

    def require_apart(self, others: Iterable[tuple[str, Place]]) -> None:
        """Raises OperandError where the caller's memory, as far as the launch uses it, is that of another array, by name."""
        if self.clear is None:
            return
        from .bind import OperandError
        from .overlap import shared_with

        name = shared_with((self.clear.address, (self.needed.bytes,), (1,), 1), others)
        if name:
            raise OperandError(
                f"workspace: the {self.needed.bytes} bytes that this launch clears and writes share memory with {name}; "
                "cupy.empty(gemm.workspace_bytes, 'uint8') is memory of its own"
            )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The kernel's four arguments: the order of the tiles, partial sums, counters, how many blocks are shared."""
        from .launch import DevicePointer

        table = DevicePointer(0 if self._table is None else int(self._table.data.ptr))
        return (table, *self._pointers(self.memory), np.uint32(self.needed.shared_blocks))

    @staticmethod
    def _pointers(memory: Memory) -> tuple[Any, Any]:
        from .launch import DevicePointer

        return DevicePointer(memory.partials), DevicePointer(memory.counters)

    def by_stream(self, place: int) -> Callable[[int], tuple[dict[int, Any], Any]] | None:
        """For ``PackedLaunch``, where each stream has its own: what differs, if ``arguments`` begin at ``place``."""
        shared, needed = self._shared, self.needed
        if shared is None:
            return None
        from .launch import current_device

        device = current_device()

        def of_stream(stream: int) -> tuple[dict[int, Any], Any]:
            memory = shared.of(device, _in_this_thread(stream), needed)
            partials, counters = self._pointers(memory)
            return {place + 1: partials, place + 2: counters}, memory

        return of_stream

    @property
    def bytes(self) -> int:
        """Bytes of device memory that the launch writes beside its result."""
        return self.needed.bytes
