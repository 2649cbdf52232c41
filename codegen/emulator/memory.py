"""Shared and global memory of the emulated machine, read and written for many lanes at once. Knows nothing of PTX.

Addresses are ints, or integer arrays with one address per lane; a ``mask`` is a bool array with one entry per lane.
Values are unsigned integers of the access width (``uint8/16/32/64``, or pairs of ``uint64`` for 16 bytes).

    SharedMemory(size, base=0)
        .gather(addresses, width, count=1, mask=None)   -> (lanes,) or (count, lanes) unsigned integers
        .scatter(addresses, values, width, count=1, mask=None)
        .gather_chunks(addresses, mask=None)            16 bytes a lane as single items (ldmatrix, stmatrix)
        .scatter_chunks(addresses, chunks, mask=None)
        .load(address, width) -> int                    one address for all lanes, as Python ints
        .store(address, width, value)
        .read(address, size) -> uint8 view              whole ranges, checked
        .write(address, data)
        .update(addresses, width, function, mask=None)  -> old values; lanes with one address take turns
        .guard(address, size, text), .release(address)  bytes that ordinary accesses must not touch (mbarriers)
        .check_write(low, high)                         what every writer calls before it writes [low, high)
        .readers                                        deferred readers, told before bytes they still need are written
        .bytes, .state                                  raw uint8 arrays (index = address - base);
                                                        state 0: never written, 1: written, 2: guarded
    GlobalMemory()
        .register(array, name="")                       -> address of its first byte; shared with the caller, not copied
        .find(address, size) -> Allocation
        .gather, .scatter, .load, .store, .read, .write, .update as above

Bytes that were never written may not be read, a guarded byte may be neither read nor written, an address must be a
multiple of ``width * count`` and stay inside its memory: otherwise MemoryAccessError names the lane and the address.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .faults import MemoryAccessError
from .global_memory import Allocation, GlobalMemory
from .lanes import (
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

__all__ = ["GUARDED", "WRITTEN", "Allocation", "GlobalMemory", "LaneMask", "PendingReader", "SharedMemory", "UIntArray"]

WRITTEN = 1
GUARDED = 2
_WRITTEN_WORD = {size: int.from_bytes(bytes([WRITTEN] * size), "little") for size in (1, 2, 4, 8)}
_GUARDED_WORD = {size: int.from_bytes(bytes([GUARDED] * size), "little") for size in (1, 2, 4, 8)}
_WRITTEN_CHUNK = np.full(16, WRITTEN, np.uint8).view(np.complex128)[0]


class PendingReader(Protocol):
    """A reader that has not yet taken the bytes it was issued for; it takes them when a write would change them."""

    def before_write(self, low: int, high: int) -> None:
        """Called with the addresses [low, high) about to be written."""


class SharedMemory:
    """The shared memory of one CTA: ``size`` bytes at the window address ``base``, a multiple of 1024 as swizzles need.

    >>> memory = SharedMemory(4096)
    >>> memory.scatter(np.arange(32) * 4, np.arange(32, dtype=np.uint32), 4)
    >>> int(memory.gather(np.array([124, 8]), 4)[0]), memory.load(8, 4)
    (31, 2)
    >>> memory.load(2048, 4)
    Traceback (most recent call last):
    ...
    stridewright.codegen.emulator.faults.MemoryAccessError: unwritten: shared bytes 0x800..0x803 are read, never written
    """

    def __init__(self, size: int, base: int = 0) -> None:
        if size < 0 or base % 1024:
            raise ValueError(f"shared memory of {size} bytes at {base:#x}: size at least 0, base a multiple of 1024")
        self.size = size
        self.base = base
        room = -(-size // 16) * 16
        self.bytes: NDArray[np.uint8] = np.zeros(room, np.uint8)
        self.state: NDArray[np.uint8] = np.zeros(room, np.uint8)
        self.readers: list[PendingReader] = []
        self.guards: dict[int, tuple[int, str]] = {}
        self._bytes = typed_views(self.bytes)
        self._state = typed_views(self.state)
        self.chunks: NDArray[Any] = self._bytes[16]
        """The memory as items of 16 bytes, for takes and puts by chunk number."""
        self.state_chunks: NDArray[Any] = self._state[16]
        """``state`` as items of 16 bytes."""
        self.verified: set[object] = set()
        """Operand tables whose bytes are known to be written: a byte stays written until a guard takes it."""

    def _index(self, addresses: NDArray[Any], total: int, mask: LaneMask) -> NDArray[Any]:
        """Item number of every active lane. Below the window an address wraps: one comparison finds both ends."""
        offsets = addresses.astype(np.uint32)
        if self.base:
            offsets -= np.uint32(self.base)
        if mask is not None:
            offsets = offsets[mask]
        if offsets.size:
            if int(np.maximum.reduce(offsets)) > self.size - total:
                self._bounds_fault(addresses, total, mask)
            if total > 1 and int(np.bitwise_or.reduce(offsets)) & (total - 1):
                lane = first_lane((addresses.astype(np.int64) & (total - 1)) != 0, mask)
                at = int(addresses[lane])
                raise MemoryAccessError(
                    "misaligned",
                    f"lane {lane}: shared address {at:#x} is not a multiple of {total}, {at % total} too many",
                )
        return offsets >> np.uint32(SHIFTS[total]) if total > 1 else offsets

    def extent(self) -> str:
        """How large this memory is and where, for error messages."""
        return f"this block has {self.size} bytes, {self.base:#x}..{self.base + self.size - 1:#x}"

    def _bounds_fault(self, addresses: NDArray[Any], total: int, mask: LaneMask) -> None:
        offsets = addresses.astype(np.int64) - self.base
        lane = first_lane((offsets < 0) | (offsets > self.size - total), mask)
        where = f"lane {lane}: {total} bytes at shared address {int(addresses[lane]):#x}"
        raise MemoryAccessError("out of bounds", f"{where}; {self.extent()}")

    def gather(self, addresses: NDArray[Any], width: int, count: int = 1, mask: LaneMask = None) -> UIntArray:
        """Loads ``count`` values of ``width`` bytes for each lane.

        Returns an array (lanes,) for one value, else (count, lanes), of unsigned integers; for width 16 (2, lanes) of
        uint64. Lanes that are masked out get 0.

        >>> memory = SharedMemory(64)
        >>> memory.write(0, np.arange(64, dtype=np.uint8))
        >>> memory.gather(np.array([0, 16]), 4, 4)[1].tolist() == [0x07060504, 0x17161514]
        True
        """
        total = access_size(width, count)
        return spread(self._get(addresses, total, mask), width, count, mask, addresses.size)

    def gather_chunks(self, addresses: NDArray[Any], mask: LaneMask = None) -> NDArray[Any]:
        """Loads 16 bytes for each active lane: an array (active lanes,) of 16-byte items, as in ``chunks``."""
        return self._get(addresses, 16, mask)

    def _get(self, addresses: NDArray[Any], total: int, mask: LaneMask) -> NDArray[Any]:
        index = self._index(addresses, total, mask)
        if index.size:
            words = self._state[total].take(index)
            if total == 16:
                words = words.view(np.uint64)
            word = _WRITTEN_WORD[min(total, 8)]
            if int(np.minimum.reduce(words)) != word or int(np.maximum.reduce(words)) != word:
                self._state_fault(index, total, "read")
        return self._bytes[total].take(index)

    def scatter(
        self, addresses: NDArray[Any], values: UIntArray, width: int, count: int = 1, mask: LaneMask = None
    ) -> None:
        """Stores ``count`` values of ``width`` bytes for each lane; of lanes with one address the highest wins.

        ``values`` is (lanes,) or (count, lanes); wider integers are cut to the width.

        >>> memory = SharedMemory(64)
        >>> memory.scatter(np.array([0, 8]), np.array([[1, 2], [3, 4]]), 4, 2)
        >>> memory.read(0, 16).view(np.uint32).tolist()
        [1, 3, 2, 4]
        """
        total = access_size(width, count)
        self._put(addresses, pack(values, width, count, mask), total, mask)

    def scatter_chunks(self, addresses: NDArray[Any], chunks: NDArray[Any], mask: LaneMask = None) -> None:
        """Stores 16 bytes for each active lane; ``chunks`` as ``gather_chunks`` returns them.

        >>> memory = SharedMemory(64)
        >>> memory.scatter_chunks(np.array([16, 48]), np.arange(32, dtype=np.uint8).view(np.complex128))
        >>> memory.gather_chunks(np.array([48])).view(np.uint8)[:3].tolist()
        [16, 17, 18]
        """
        self._put(addresses, chunks, 16, mask)

    def _put(self, addresses: NDArray[Any], items: NDArray[Any], total: int, mask: LaneMask) -> None:
        index = self._index(addresses, total, mask)
        if not index.size:
            return
        if self.guards:
            words = self._state[total].take(index)
            if total == 16:
                words = words.view(np.uint64)
            if int(np.bitwise_or.reduce(words)) & _GUARDED_WORD[min(total, 8)]:
                self._state_fault(index, total, "written")
        if self.readers:
            low = int(index.min()) * total + self.base
            self._tell(low, int(index.max()) * total + total + self.base)
        self._bytes[total][index] = items
        self._state[total][index] = _WRITTEN_CHUNK if total == 16 else _WRITTEN_WORD[total]

    def update(self, addresses: NDArray[Any], width: int, function: Update, mask: LaneMask = None) -> UIntArray:
        """Atomic read-modify-write by ``function(old values, lane numbers) -> new values``; returns the old values.

        Lanes that share an address take turns in lane order (hardware promises no order). Masked lanes get 0.

        >>> memory = SharedMemory(16)
        >>> memory.store(0, 4, 10)
        >>> memory.update(np.zeros(3, np.int64), 4, lambda old, lane: old + np.uint32(1)).tolist(), memory.load(0, 4)
        ([10, 11, 12], 13)
        """
        return update_lanes(self, addresses, width, function, mask)

    def _range(self, address: int, size: int) -> int:
        low = address - self.base
        if low < 0 or size < 0 or low + size > self.size:
            raise MemoryAccessError("out of bounds", f"{size} bytes at shared address {address:#x}; {self.extent()}")
        return low

    def load(self, address: int, width: int) -> int:
        """The unsigned integer of ``width`` bytes (1 to 16) at one address.

        >>> memory = SharedMemory(16)
        >>> memory.write(0, np.array([1, 2, 3, 4], np.uint8))
        >>> hex(memory.load(0, 4))
        '0x4030201'
        """
        low = self._range(address, width)
        if low % width:
            raise MemoryAccessError("misaligned", f"shared address {address:#x} is not a multiple of {width}")
        if self.state[low : low + width].tobytes() != b"\x01" * width:
            self._range_fault(low, low + width, "read")
        return int.from_bytes(self.bytes[low : low + width].tobytes(), "little")

    def store(self, address: int, width: int, value: int) -> None:
        """Stores the low ``width`` bytes of an integer at one address.

        >>> memory = SharedMemory(16)
        >>> memory.store(2, 2, 0x12345)
        >>> hex(memory.load(2, 2))
        '0x2345'
        """
        if address % width:
            raise MemoryAccessError("misaligned", f"shared address {address:#x} is not a multiple of {width}")
        low = self.check_write(address, address + width)
        data = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        self.bytes[low : low + width] = np.frombuffer(data, np.uint8)
        self.state[low : low + width] = WRITTEN

    def read(self, address: int, size: int) -> NDArray[np.uint8]:
        """A view of ``size`` bytes, all of which must have been written.

        >>> memory = SharedMemory(16)
        >>> memory.store(4, 4, 7)
        >>> memory.read(4, 4).tolist()
        [7, 0, 0, 0]
        """
        low = self._range(address, size)
        state = self.state[low : low + size]
        if size and (int(state.min()) != WRITTEN or int(state.max()) != WRITTEN):
            self._range_fault(low, low + size, "read")
        return self.bytes[low : low + size]

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Writes a range of bytes.

        >>> memory = SharedMemory(16)
        >>> memory.write(8, np.array([5, 6], np.uint8))
        >>> memory.load(8, 2)
        1541
        """
        low = self.check_write(address, address + data.size)
        self.bytes[low : low + data.size] = data.reshape(-1)
        self.state[low : low + data.size] = WRITTEN

    def check_write(self, low: int, high: int) -> int:
        """What a writer of [low, high) calls first: bounds, guards, deferred readers. Returns the index of ``low``.

        >>> SharedMemory(64, 1024).check_write(1040, 1056)
        16
        """
        start = self._range(low, high - low)
        stop = start + high - low
        if self.guards and stop > start and int(self.state[start:stop].max()) & GUARDED:
            self._range_fault(start, stop, "written")
        if self.readers:
            self._tell(low, high)
        return start

    def _tell(self, low: int, high: int) -> None:
        for reader in tuple(self.readers):
            reader.before_write(low, high)

    def guard(self, address: int, size: int, text: str) -> None:
        """Forbids ordinary reads and writes of ``size`` bytes; ``text`` names the owner in errors ("mbarrier").

        >>> memory = SharedMemory(64)
        >>> memory.guard(8, 8, "mbarrier")
        >>> memory.store(12, 4, 0)
        Traceback (most recent call last):
        ...
        stridewright.codegen.emulator.faults.MemoryAccessError: barrier: shared bytes 0xc..0xf are written, but the mbarrier at 0x8 lives there
        """
        low = self._range(address, size)
        if self.readers:
            self._tell(address, address + size)
        self.verified.clear()
        self.guards[address] = (size, text)
        self.state[low : low + size] = GUARDED

    def release(self, address: int) -> None:
        """Ends a guard; what the bytes hold then is undefined, so they count as never written.

        >>> memory = SharedMemory(64)
        >>> memory.guard(8, 8, "mbarrier")
        >>> memory.release(8)
        >>> memory.store(12, 4, 0)
        """
        size, _ = self.guards.pop(address)
        low = address - self.base
        self.state[low : low + size] = 0

    def guards_within(self, low: int, high: int) -> list[tuple[int, str]]:
        """(address, text) of every guard that overlaps the addresses [low, high).

        >>> memory = SharedMemory(64)
        >>> memory.guard(8, 8, "mbarrier")
        >>> memory.guards_within(0, 9), memory.guards_within(16, 64)
        ([(8, 'mbarrier')], [])
        """
        found = [(at, text) for at, (size, text) in self.guards.items() if at < high and low < at + size]
        return sorted(found)

    def _state_fault(self, index: NDArray[Any], total: int, verb: str) -> None:
        for start in sorted({int(item) * total for item in index}):
            self._range_fault(start, start + total, verb)

    def _range_fault(self, start: int, stop: int, verb: str) -> None:
        low, high = start + self.base, stop + self.base
        for address, text in self.guards_within(low, high):
            raise MemoryAccessError(
                "barrier",
                f"shared bytes {low:#x}..{high - 1:#x} are {verb}, but the {text} at {address:#x} lives there",
            )
        if verb == "read":
            missing = np.flatnonzero(self.state[start:stop] != WRITTEN)
            if missing.size:
                first, last = int(missing[0]) + low, int(missing[-1]) + low
                raise MemoryAccessError("unwritten", f"shared bytes {first:#x}..{last:#x} are read, never written")
