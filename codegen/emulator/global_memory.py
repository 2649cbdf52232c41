"""Global memory of the emulated machine: the caller's arrays at invented addresses. memory.py lists the calls."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import MemoryAccessError
from .lanes import (
    DTYPES,
    SHIFTS,
    LaneMask,
    UIntArray,
    Update,
    access_size,
    first_lane,
    pack,
    spread,
    typed_views,
    update_lanes,
)

__all__ = ["Allocation", "GlobalMemory"]


@dataclass(frozen=True, eq=False)
class Allocation:
    """One array in global memory: its bytes (shared with the caller), its address and its name."""

    address: int
    data: NDArray[np.uint8]
    name: str
    writable: bool
    views: dict[int, NDArray[Any]] = field(repr=False)

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.data.size


class GlobalMemory:
    """Arrays of the caller at invented 64-bit addresses, 256-byte aligned like cudaMalloc's, gaps between them.

    >>> memory = GlobalMemory()
    >>> array = np.zeros(4, np.float32)
    >>> address = memory.register(array, "out")
    >>> memory.scatter(np.array([address + 4], np.uint64), np.array([1.5], np.float32).view(np.uint32), 4)
    >>> array.tolist()
    [0.0, 1.5, 0.0, 0.0]
    """

    FIRST = 0x7_0000_0000
    GAP = 4096

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._allocations: list[Allocation] = []
        self._next = self.FIRST

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Every array registered so far, by address."""
        return tuple(self._allocations)

    def register(self, array: NDArray[Any], name: str = "") -> int:
        """Gives an array an address (that of its first element) and returns it. The bytes are shared, never copied.

        A strided view is registered with the gaps between its elements, which belong to the same buffer. An array
        inside one registered before gets the address it has there. Negative strides are refused.

        >>> memory, array = GlobalMemory(), np.zeros((8, 8), np.uint16)
        >>> address = memory.register(array)
        >>> memory.register(array[1:, 2:]) - address
        20
        """
        if any(stride < 0 for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1):
            raise ValueError(
                f"array {name or array.shape}: negative strides {array.strides}; pass numpy.ascontiguousarray(array)"
            )
        span = (
            array.itemsize + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
            if array.size
            else 0
        )
        pointer: int = array.__array_interface__["data"][0]
        for allocation in self._allocations:
            start: int = allocation.data.__array_interface__["data"][0]
            if (
                span
                and start <= pointer
                and pointer + span <= start + allocation.data.size
                and allocation.writable == array.flags.writeable
            ):
                return allocation.address + pointer - start
        data = _bytes_of(array, span)
        address = self._next
        self._next = -(-(address + span + self.GAP) // 256) * 256
        self._starts.append(address)
        self._allocations.append(
            Allocation(
                address, data, name or f"array {len(self._allocations)}", array.flags.writeable, typed_views(data)
            )
        )
        return address

    def find(self, address: int, size: int, writing: bool = False) -> Allocation:
        """The allocation that holds all of [address, address + size), or an error that names the nearest one.

        >>> memory = GlobalMemory()
        >>> address = memory.register(np.zeros(4, np.uint8), "bias")
        >>> memory.find(address + 3, 1).name
        'bias'
        >>> memory.find(address + 4, 1)
        Traceback (most recent call last):
        ...
        stridewright.codegen.emulator.faults.MemoryAccessError: out of bounds: 1 bytes at global address 0x700000004: 0 bytes after the end of 'bias' (4 bytes at 0x700000000)
        """
        position = bisect.bisect_right(self._starts, address) - 1
        if position >= 0:
            allocation = self._allocations[position]
            if address + size <= allocation.end:
                if writing and not allocation.writable:
                    raise MemoryAccessError(
                        "read-only",
                        f"{size} bytes at {address:#x} are written, but the array {allocation.name!r} is read-only",
                    )
                return allocation
        raise MemoryAccessError(
            "out of bounds", f"{size} bytes at global address {address:#x}: {self._nearest(address)}"
        )

    def _nearest(self, address: int) -> str:
        if not self._allocations:
            return "no array was passed"
        best = min(self._allocations, key=lambda one: max(one.address - address, address - one.end + 1))
        where = (
            f"{address - best.end} bytes after the end"
            if address >= best.end
            else f"{best.address - address} bytes before the start"
        )
        if best.address <= address < best.end:
            where = f"starts {best.end - address} bytes before the end"
        return f"{where} of {best.name!r} ({best.data.size} bytes at {best.address:#x})"

    def _locate(
        self, addresses: NDArray[Any], total: int, mask: LaneMask, writing: bool
    ) -> tuple[Allocation, NDArray[Any]] | None:
        """The one allocation all active lanes use, and their item numbers in it; None if they use several."""
        active = addresses if mask is None else addresses[mask]
        if active.dtype != np.uint64:
            active = active.astype(np.uint64)
        if int(np.bitwise_or.reduce(active)) & (total - 1):
            lane = first_lane((addresses.astype(np.uint64) & np.uint64(total - 1)) != 0, mask)
            raise MemoryAccessError(
                "misaligned", f"lane {lane}: global address {int(addresses[lane]):#x} is not a multiple of {total}"
            )
        position = bisect.bisect_right(self._starts, int(active[0])) - 1
        if position < 0:
            self._lane_fault(addresses, total, mask, writing)
        allocation = self._allocations[position]
        offsets = active - np.uint64(allocation.address)
        if int(offsets.max()) > allocation.data.size - total:
            self._lane_fault(addresses, total, mask, writing)
            return None
        if writing and not allocation.writable:
            self.find(int(active[0]), total, writing)
        return allocation, (offsets >> np.uint64(SHIFTS[total])).view(np.int64)

    def _lane_fault(self, addresses: NDArray[Any], total: int, mask: LaneMask, writing: bool) -> None:
        for lane in range(addresses.size) if mask is None else np.flatnonzero(mask):
            try:
                self.find(int(addresses[lane]), total, writing)
            except MemoryAccessError as fault:
                raise MemoryAccessError(fault.kind, f"lane {int(lane)}: {fault.message}") from None

    def gather(self, addresses: NDArray[Any], width: int, count: int = 1, mask: LaneMask = None) -> UIntArray:
        """As SharedMemory.gather, by absolute global address."""
        total = access_size(width, count)
        if mask is not None and not mask.any():
            return spread(np.zeros(0, DTYPES[total]), width, count, mask, addresses.size)
        located = self._locate(addresses, total, mask, False)
        if located is not None:
            return spread(located[0].views[total].take(located[1]), width, count, mask, addresses.size)
        lanes = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
        items = np.array([self._item(int(addresses[lane]), total, False) for lane in lanes])
        return spread(items, width, count, mask, addresses.size)

    def scatter(
        self, addresses: NDArray[Any], values: UIntArray, width: int, count: int = 1, mask: LaneMask = None
    ) -> None:
        """As SharedMemory.scatter, by absolute global address."""
        total = access_size(width, count)
        if mask is not None and not mask.any():
            return
        located = self._locate(addresses, total, mask, True)
        items = pack(values, width, count, mask)
        if located is not None:
            located[0].views[total][located[1]] = items
            return
        lanes = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
        for lane, item in zip(lanes, items, strict=True):
            address = int(addresses[lane])
            allocation = self.find(address, total, True)
            allocation.views[total][(address - allocation.address) >> SHIFTS[total]] = item

    def _item(self, address: int, total: int, writing: bool) -> Any:
        allocation = self.find(address, total, writing)
        return allocation.views[total][(address - allocation.address) >> SHIFTS[total]]

    def update(
        self,
        addresses: NDArray[Any],
        width: int,
        function: Update,
        mask: LaneMask = None,
    ) -> UIntArray:
        """As SharedMemory.update, by absolute global address."""
        return update_lanes(self, addresses, width, function, mask)

    def load(self, address: int, width: int) -> int:
        """The unsigned integer of ``width`` bytes (1 to 16) at one address.

        >>> memory = GlobalMemory()
        >>> memory.load(memory.register(np.array([1.0], np.float32)), 4) == 0x3F800000
        True
        """
        if address % width:
            raise MemoryAccessError("misaligned", f"global address {address:#x} is not a multiple of {width}")
        return int.from_bytes(self.read(address, width).tobytes(), "little")

    def store(self, address: int, width: int, value: int) -> None:
        """Stores the low ``width`` bytes of an integer at one address."""
        if address % width:
            raise MemoryAccessError("misaligned", f"global address {address:#x} is not a multiple of {width}")
        self.write(address, np.frombuffer((value & ((1 << 8 * width) - 1)).to_bytes(width, "little"), np.uint8))

    def read(self, address: int, size: int) -> NDArray[np.uint8]:
        """A view of ``size`` bytes, all inside one array."""
        allocation = self.find(address, size)
        return allocation.data[address - allocation.address : address - allocation.address + size]

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Writes a range of bytes, all inside one array."""
        allocation = self.find(address, data.size, writing=True)
        allocation.data[address - allocation.address : address - allocation.address + data.size] = data.reshape(-1)


def _bytes_of(array: NDArray[Any], span: int) -> NDArray[np.uint8]:
    """The ``span`` bytes from an array's first element on, as a view."""
    if not span:
        return np.zeros(0, np.uint8)
    whole: NDArray[np.uint8] = np.lib.stride_tricks.as_strided(
        array.view(np.uint8) if array.ndim and array.flags.c_contiguous else _one_byte(array),
        (span,),
        (1,),
        writeable=array.flags.writeable,
    )
    return whole


def _one_byte(array: NDArray[Any]) -> NDArray[np.uint8]:
    """A view of an array's first byte, whatever its strides and element type."""
    corner = array[(slice(0, 1),) * array.ndim] if array.ndim else array.reshape(1)
    return np.lib.stride_tricks.as_strided(corner, (1,), (corner.itemsize,)).view(np.uint8)[:1]
