"""TMA: tensor copies between global and shared memory, as measured on an H200. Knows nothing of PTX, barriers or time.

    bound = BoundTensorMap(tensor_map, memory, address)       a TensorMap and where its tensor begins in GlobalMemory
    copied = load(bound, coordinates, shared, shared_address)       cp.async.bulk.tensor, global to shared
    copied = store(bound, coordinates, shared, shared_address)      and back
    copied = reduce(bound, coordinates, shared, shared_address, "add")
    prefetch(bound, coordinates)                              moves nothing, faults as a load does
    check(bound, coordinates, shared_address, store=False)    only the faults of the issue
    shared_ranges(bound, shared_address)                      where a box at that address lies, before it is copied
    copied.bytes                the bytes that complete_tx takes off the mbarrier (a load counts filled bytes too)
    copied.shared_ranges        the shared addresses written or read, disjoint ascending [low, high) pairs
    copied.global_rows()        the global addresses: starts of rows and the bytes of each

Coordinates are innermost first, in elements. A multicast is one ``load`` for each destination. Data is moved when the
function is called: who executes decides when that is. Every rule (pitch, swizzle, fill, counted bytes, faults) is
layout.hardware's, whose ``copy_plan`` says the same one byte at a time; here whole boxes move as strided views and one
permutation of 16-byte chunks. A fault raises TensorCopyError, an access outside the array MemoryAccessError.

Values of 4 and 6 bits that TMA pads to 16 bytes a group of 16 (PTX ISA 9.1, section 5.5.1.1; not measured) leave ``GAP`` in
the gaps: PTX calls them uninitialised, so that no program may depend on what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.hardware.dtypes import data_type
from stridewright.layout.hardware.errors import HardwareError
from stridewright.layout.hardware.swizzle_modes import swizzle_mode
from stridewright.layout.hardware.tensor_copy import GROUP, TransferFault, check_transfer, fill_pattern, loaded_values
from stridewright.layout.hardware.tensor_map import TensorMap
from stridewright.layout.hardware.tensor_map_rules import CHUNK, DESTINATION_ALIGNMENT

from .faults import MemoryAccessError, TensorCopyError
from .memory import WRITTEN, Allocation, GlobalMemory, SharedMemory
from .reductions import reduce_values

__all__ = ["GAP", "BoundTensorMap", "TensorCopy", "check", "load", "prefetch", "reduce", "shared_ranges", "store"]

GAP = 0xFF
"""What the emulator leaves between the groups of padded values."""

_REMEMBERED = 1 << 16
_PATTERN = 1024
"""Every swizzle pattern starts anew at a multiple of this."""


@dataclass(frozen=True, eq=False, slots=True)
class _Landing:
    """Where the chunks of a box go, relative to its first chunk. ``index`` (rows, chunks): chunk numbers of the box.

    ``source``: for a box without gaps, the box chunk that lies at each place, else None. ``ranges``: relative bytes.
    """

    index: NDArray[np.intp]
    source: NDArray[np.intp] | None
    ranges: tuple[tuple[int, int], ...]
    extent: int


@lru_cache(maxsize=1024)
def _landing(rows: int, row_bytes: int, pitch: int, swizzle: str, phase: int) -> _Landing:
    """The landing of a box whose first byte is at ``phase`` bytes from a multiple of 1024."""
    column = np.arange(0, row_bytes, CHUNK, dtype=np.int64)
    plain = phase + np.arange(rows, dtype=np.int64)[:, None] * pitch + column
    chunks = (np.asarray(swizzle_mode(swizzle).apply(plain), np.int64) - phase) // CHUNK
    index = chunks.astype(np.intp)
    source = np.argsort(index, axis=None) if row_bytes == pitch else None
    used = np.unique(chunks)
    breaks = np.flatnonzero(np.diff(used) != 1)
    firsts, lasts = used[np.r_[0, breaks + 1]], used[np.r_[breaks, used.size - 1]] + 1
    ranges = tuple((int(a) * CHUNK, int(b) * CHUNK) for a, b in zip(firsts, lasts, strict=True))
    return _Landing(index, source, ranges, int(used[-1] + 1) * CHUNK)


def _bytes_of_pairs(tensor_map: TensorMap) -> TensorMap:
    """The same tensor in bytes, where 4-bit elements are packed without gaps (cuda.h, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B)."""
    shape, box = tensor_map.shape, tensor_map.box
    return replace(tensor_map, dtype="u8", shape=(shape[0] // 2, *shape[1:]), box=(box[0] // 2, *box[1:]))


class BoundTensorMap:
    """A tensor map together with the array it describes: ``address`` is that of the tensor's first element.

    ``inside`` is an address in the array, for a map that begins elsewhere: ragged tensors, whose coordinates lead back.

    Raises HardwareError (layout.hardware) for a map the driver would refuse, TensorCopyError for what neither a chip was
    seen to copy nor the ISA describes.

    >>> memory = GlobalMemory()
    >>> array = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    >>> bound = BoundTensorMap(TensorMap("u16", (64, 64), (128,), (64, 8)), memory, memory.register(array))
    >>> shared = SharedMemory(2048)
    >>> load(bound, (0, 2), shared, 1024).bytes
    1024
    >>> int(shared.load(1024, 2)), int(array[2, 0])
    (128, 128)
    """

    def __init__(self, tensor_map: TensorMap, memory: GlobalMemory, address: int, inside: int | None = None) -> None:
        tensor_map.check(address % (1 << 64))  # addresses wrap: a ragged map may begin before address 0
        dtype = data_type(tensor_map.dtype)
        if dtype.packed and tensor_map.interleave != "none":
            raise TensorCopyError(
                "unknown", f"{tensor_map.dtype} with an interleave: nothing says where its groups lie"
            )
        self.pairs = dtype.tma == "16U4_ALIGN8B"
        if self.pairs:
            tensor_map = _bytes_of_pairs(tensor_map)
        if swizzle_mode(tensor_map.swizzle).flip_8_bytes:
            raise TensorCopyError(
                "unknown", f"swizzle {tensor_map.swizzle} moves less than 16 bytes: it is not modelled"
            )
        if tensor_map.interleave != "none" and tensor_map.steps[0] != 1:
            raise TensorCopyError(
                "unknown",
                f"element stride {tensor_map.steps[0]} along the pixels of an interleaved map is not modelled",
            )
        self.map = tensor_map
        self.memory = memory
        self.address = address
        self.row_bytes = tensor_map.row_bytes
        self.pitch = tensor_map.pitch
        self.box_bytes = tensor_map.box_bytes
        self.unit = self.row_bytes // tensor_map.box[0]
        self.padded = dtype.packed and not self.pairs
        self.group_bytes = GROUP * dtype.bits // 8 if self.padded else 0
        """Bytes of a group of padded values in global memory; in shared memory it takes 16."""
        self.rows = prod(tensor_map.counts[1:])
        self.rounds = tensor_map.dtype in ("tf32", "tf32_ftz")
        self._allocation: Allocation = memory.find(address if inside is None else inside, 1)
        self._offset = address - self._allocation.address
        # Dimensions but the first, outermost first as numpy has them.
        self._counts = tuple(reversed(tensor_map.counts[1:]))
        self._steps = tuple(reversed(tensor_map.steps[1:]))
        self._sizes = tuple(reversed(tensor_map.shape[1:]))
        self._strides = tuple(reversed(tensor_map.strides_bytes))
        self._jumps = tuple(s * t for s, t in zip(self._strides, self._steps, strict=True))
        self._row_end = self._global_bytes(tensor_map.shape[0])
        self._plain = tensor_map.interleave == "none"
        self._boxes: dict[tuple[tuple[int, ...], bool], _Box] = {}

    def position(self, coordinates: tuple[int, ...]) -> tuple[int, ...]:
        """The coordinates of an instruction in elements of ``map``, which are bytes where the tensor has 4-bit elements."""
        if not self.pairs:
            return coordinates
        if coordinates[0] % 2:
            raise TensorCopyError("misaligned", f"coordinates[0]={coordinates[0]}: 4-bit elements lie two in a byte")
        return (coordinates[0] // 2, *coordinates[1:])

    def _global_bytes(self, elements: int) -> int:
        """What so many elements of a row take in global memory."""
        return elements * self.group_bytes // GROUP if self.padded else elements * self.unit

    @property
    def inside(self) -> int:
        """The address of the array that holds the tensor; the map itself may begin elsewhere."""
        return self._allocation.address

    def box(self, coordinates: Sequence[int], whole_chunks: bool) -> _Box:
        """The part of the box at ``coordinates`` that lies in the tensor; ``whole_chunks``: rows end at 16 bytes.

        Boxes are remembered: the tiles of a matrix product use each of them many times.
        """
        key = (tuple(coordinates), whole_chunks)
        box = self._boxes.get(key)
        if box is None:
            if len(self._boxes) >= _REMEMBERED:
                self._boxes.clear()
            box = self._boxes[key] = self._box(coordinates, whole_chunks)
        return box

    def _box(self, coordinates: Sequence[int], whole_chunks: bool) -> _Box:
        first = self._global_bytes(coordinates[0])
        width = self._global_bytes(self.map.box[0]) if self.padded else self.row_bytes
        end = -(-self._row_end // CHUNK) * CHUNK if whole_chunks else self._row_end
        low, high = max(0, -first), min(width, end - first)
        start = self._offset + first + low
        last = start + high - low
        full = low == 0 and high == width
        spans = []
        for position, count, step, size, stride, jump in zip(
            reversed(coordinates[1:]), self._counts, self._steps, self._sizes, self._strides, self._jumps, strict=True
        ):
            begin = 0 if position >= 0 else -(position // step)
            stop = min(count, -((position - size) // step))
            spans.append((begin, max(begin, stop)))
            full = full and begin == 0 and stop == count
            start += (position + begin * step) * stride
            last += (position + begin * step) * stride + max(0, stop - begin - 1) * jump
        empty = high <= low or any(begin == stop for begin, stop in spans)
        return _Box(self, tuple(spans), low, high, start, last, full, empty)

    def view(self, box: _Box, item: Any, writing: bool) -> NDArray[Any]:
        """The box's part of the tensor as an array (outer dimensions..., items of a row) over the caller's memory."""
        allocation = self._allocation
        if box.last > allocation.data.size or box.start < 0:
            raise MemoryAccessError(
                "out of bounds",
                f"the tensor map of {allocation.name!r} reaches byte {box.last} of an array of {allocation.data.size} "
                f"bytes{' (a store writes whole 16-byte chunks)' if writing else ''}",
            )
        if writing and not allocation.writable:
            raise MemoryAccessError("read-only", f"a tensor store into {allocation.name!r}, which is read-only")
        size = np.dtype(item).itemsize
        shape = (*(stop - begin for begin, stop in box.spans), (box.high - box.low) // size)
        return np.ndarray(shape, item, allocation.data, box.start, (*self._jumps, size))


@dataclass(frozen=True, eq=False, slots=True)
class _Box:
    """The part of one box that lies in the tensor.

    ``spans``: indices of the outer dimensions, outermost first; ``low``, ``high``: bytes of each row; ``start``,
    ``last``: where it begins and ends in the array's bytes.
    """

    bound: BoundTensorMap
    spans: tuple[tuple[int, int], ...]
    low: int
    high: int
    start: int
    last: int
    full: bool
    empty: bool


@dataclass(frozen=True, eq=False, slots=True)
class TensorCopy:
    """What one copy did: counted bytes and the addresses it touched."""

    bytes: int
    shared_ranges: tuple[tuple[int, int], ...]
    _box: _Box = field(repr=False)

    def global_rows(self) -> tuple[NDArray[np.int64], int]:
        """The global addresses touched: the first address of every row in box order, and the bytes of a row."""
        box = self._box
        if box.empty:
            return np.zeros(0, np.int64), 0
        bound = box.bound
        starts = np.array([bound._allocation.address + box.start], np.int64)
        for (begin, stop), jump in zip(box.spans, bound._jumps, strict=True):
            starts = (starts[:, None] + np.arange(stop - begin, dtype=np.int64) * jump).reshape(-1)
        return starts, box.high - box.low


def _check(bound: BoundTensorMap, coordinates: Sequence[int], address: int, store: bool) -> None:
    if (
        bound._plain
        and not bound.padded
        and not address % DESTINATION_ALIGNMENT
        and not coordinates[0] * bound.unit % CHUNK
        and len(coordinates) == bound.map.rank
        and not (store and min(coordinates) < 0)
    ):
        return
    try:
        check_transfer(bound.map, coordinates, address, store)
    except TransferFault as fault:
        kind = {"cudaErrorMisalignedAddress": "misaligned", "undefined": "undefined"}.get(
            fault.error, "illegal instruction"
        )
        raise TensorCopyError(kind, str(fault)) from None
    if store and bound.map.interleave != "none":
        raise TensorCopyError("unknown", f"a store with interleave {bound.map.interleave} was never measured")


def check(bound: BoundTensorMap, coordinates: Sequence[int], address: int, store: bool = False) -> None:
    """Raises what a load (or store) of this box raises at issue, for its coordinates and its shared address.

    >>> memory = GlobalMemory()
    >>> tensor_map = TensorMap("u8", (32,), (), (16,))
    >>> check(BoundTensorMap(tensor_map, memory, memory.register(np.zeros(32, np.uint8))), (16,), 128)
    """
    _check(bound, coordinates, address, store)


def shared_ranges(bound: BoundTensorMap, address: int) -> tuple[tuple[int, int], ...]:
    """The shared addresses of a whole box at ``address``, as disjoint ascending [low, high) pairs.

    >>> memory = GlobalMemory()
    >>> tensor_map = TensorMap("u8", (32, 2), (32,), (16, 2), swizzle="128B")
    >>> bound = BoundTensorMap(tensor_map, memory, memory.register(np.zeros((2, 32), np.uint8)))
    >>> shared_ranges(bound, 1024)
    ((1024, 1040), (1168, 1184))
    """
    return _ranges(_place(bound, address), address)


def _place(bound: BoundTensorMap, address: int) -> _Landing:
    return _landing(bound.rows, bound.row_bytes, bound.pitch, bound.map.swizzle, address % _PATTERN)


@lru_cache(maxsize=4096)
def _ranges(landing: _Landing, address: int) -> tuple[tuple[int, int], ...]:
    return tuple((address + low, address + high) for low, high in landing.ranges)


def load(bound: BoundTensorMap, coordinates: Sequence[int], shared: SharedMemory, address: int) -> TensorCopy:
    """Copies the box at ``coordinates`` to shared memory; elements outside the tensor are filled.

    >>> memory, shared = GlobalMemory(), SharedMemory(256)
    >>> address = memory.register(np.arange(64, dtype=np.uint8))
    >>> bound = BoundTensorMap(TensorMap("u8", (32, 2), (32,), (16, 2)), memory, address)
    >>> copied = load(bound, (16, 1), shared, 128)
    >>> copied.bytes, copied.shared_ranges, shared.read(128, 32)[14:18].tolist()
    (32, ((128, 160),), [62, 63, 0, 0])
    """
    _check(bound, coordinates, address, False)
    landing = _place(bound, address)
    ranges = _ranges(landing, address)
    for low, high in ranges:
        shared.check_write(low, high)
    box = bound.box(coordinates, whole_chunks=False)
    if bound.padded:
        chunks = _spread(bound, box).view(np.complex128)
    elif not box.full:
        chunks = _filled(bound, box).view(np.complex128)
    elif bound.rounds:
        chunks = _rounded(bound, bound.view(box, np.uint32, False)).view(np.complex128)
    else:
        chunks = bound.view(box, np.complex128, False)
    first = (address - shared.base) // CHUNK
    if landing.source is not None:
        size = landing.source.size
        # take with "clip" writes straight into its output; the indices are a permutation, so that nothing is clipped.
        np.take(chunks, landing.source, out=shared.chunks[first : first + size], mode="clip")
    else:
        shared.chunks[landing.index + first] = chunks.reshape(landing.index.shape)
    for low, high in ranges:
        shared.state[low - shared.base : high - shared.base] = WRITTEN
    return TensorCopy(bound.box_bytes, ranges, box)


def _filled(bound: BoundTensorMap, box: _Box) -> NDArray[np.uint8]:
    """A box that hangs over the tensor's edge: the fill pattern, and what is inside on top of it."""
    tile = np.zeros((*bound._counts, bound.row_bytes), np.uint8)
    if bound.map.oob_fill != "zero":
        try:
            pattern = np.frombuffer(fill_pattern(bound.map), np.uint8)
        except HardwareError as error:
            raise TensorCopyError("unknown", str(error)) from None
        tile.reshape(-1, pattern.size)[:] = pattern
    if not box.empty:
        inside = (*(slice(begin, stop) for begin, stop in box.spans), slice(box.low, box.high))
        part = bound.view(box, np.uint8, False)
        # What fills is not rounded: a NaN keeps its pattern (measured).
        tile[inside] = _rounded(bound, np.ascontiguousarray(part).view(np.uint32)) if bound.rounds else part
    return tile


def _spread(bound: BoundTensorMap, box: _Box) -> NDArray[np.uint8]:
    """A box of padded values as it lies in shared memory without a swizzle: groups at the start of 16-byte chunks."""
    tile = np.full((*bound._counts, bound.row_bytes // CHUNK, CHUNK), GAP, np.uint8)
    tile[..., : bound.group_bytes] = 0
    if not box.empty:
        # Rows are inside or outside as a whole: sizes and coordinates are multiples of the box's 128 elements.
        part = bound.view(box, np.uint8, False)
        inside = tuple(slice(begin, stop) for begin, stop in box.spans)
        tile[inside][..., : bound.group_bytes] = part.reshape(*part.shape[:-1], -1, bound.group_bytes)
    return tile.reshape(*bound._counts, -1)


def _gathered(bound: BoundTensorMap, tile: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """6-bit values in bytes, packed for global memory (PTX ISA 9.1, 5.5.1.1, .b6p2x16): each byte's two upper bits are dropped."""
    four = (tile & 63).reshape(*tile.shape[:-1], -1, 4).astype(np.uint32)
    word = four[..., 0] | four[..., 1] << 6 | four[..., 2] << 12 | four[..., 3] << 18
    three = np.stack([word & 255, word >> 8 & 255, word >> 16], axis=-1).astype(np.uint8)
    return three.reshape(*tile.shape[:-1], -1)


def _rounded(bound: BoundTensorMap, words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(loaded_values(bound.map, words), np.uint32).view(np.uint8)


def _tile(bound: BoundTensorMap, shared: SharedMemory, address: int, box: _Box) -> tuple[NDArray[np.uint8], _Landing]:
    """The valid part of a box in shared memory, (outer dimensions..., bytes), its swizzle undone."""
    landing = _place(bound, address)
    if not address + landing.extent <= shared.base + shared.size or address < shared.base:
        raise MemoryAccessError(
            "out of bounds",
            f"a tensor store of {landing.extent} bytes at shared address {address:#x}; {shared.extent()}",
        )
    index = (landing.index + (address - shared.base) // CHUNK).reshape(*bound._counts, -1)
    columns = slice(None) if bound.padded else slice(box.low // CHUNK, box.high // CHUNK)
    inside = (*(slice(begin, stop) for begin, stop in box.spans), columns)
    index = index[inside]
    state = shared.state_chunks.take(index).view(np.uint8)
    if state.size and (int(state.min()) != WRITTEN or int(state.max()) != WRITTEN):
        for chunk in np.sort(index, axis=None):
            shared.read(shared.base + int(chunk) * CHUNK, CHUNK)
    return shared.chunks.take(index).view(np.uint8), landing


def store(bound: BoundTensorMap, coordinates: Sequence[int], shared: SharedMemory, address: int) -> TensorCopy:
    """Copies a box from shared memory to ``coordinates``; what is outside the tensor is not written.

    Rows are cut at the end of the 16-byte chunk in which the tensor's row ends, as on the chip.

    >>> memory, shared, array = GlobalMemory(), SharedMemory(256), np.zeros((2, 32), np.uint8)
    >>> shared.write(128, np.ones(32, np.uint8))
    >>> bound = BoundTensorMap(TensorMap("u8", (32, 2), (32,), (16, 2)), memory, memory.register(array))
    >>> starts, size = store(bound, (16, 0), shared, 128).global_rows()
    >>> (starts - bound.address).tolist(), size, array.sum(axis=1).tolist()
    ([16, 48], 16, [16, 16])
    """
    _check(bound, coordinates, address, True)
    box = bound.box(coordinates, whole_chunks=True)
    if box.empty:
        return TensorCopy(bound.box_bytes, (), box)
    tile, landing = _tile(bound, shared, address, box)
    if bound.padded:
        tile = _gathered(bound, tile)
    target = bound.view(box, np.complex128, True)
    target[...] = tile.view(np.complex128)
    return TensorCopy(bound.box_bytes, _ranges(landing, address), box)


def reduce(
    bound: BoundTensorMap, coordinates: Sequence[int], shared: SharedMemory, address: int, operation: str
) -> TensorCopy:
    """cp.reduce.async.bulk.tensor: combines a box in shared memory into the tensor, element by element.

    ``operation``: add, min, max, inc, dec, and, or, xor, on the map's type (PTX ISA, "cp.reduce.async.bulk.tensor").

    >>> memory, shared, array = GlobalMemory(), SharedMemory(256), np.ones((1, 4), np.float32)
    >>> shared.write(0, np.full(4, 2.5, np.float32).view(np.uint8))
    >>> bound = BoundTensorMap(TensorMap("f32", (4, 1), (16,), (4, 1)), memory, memory.register(array))
    >>> _ = reduce(bound, (0, 0), shared, 0, "add")
    >>> array.tolist()
    [[3.5, 3.5, 3.5, 3.5]]
    """
    _check(bound, coordinates, address, True)
    if bound.padded or bound.pairs:
        raise TensorCopyError(
            "undefined", "a tensor reduction of 4- or 6-bit values does not exist (PTX ISA 9.7.9.27.1.1)"
        )
    box = bound.box(coordinates, whole_chunks=False)
    if box.empty:
        return TensorCopy(bound.box_bytes, (), box)
    if box.high % CHUNK:
        raise TensorCopyError(
            "unknown", "a tensor reduction whose row ends inside a 16-byte chunk was never measured; pad the row"
        )
    tile, landing = _tile(bound, shared, address, box)
    target = bound.view(box, np.uint8, True)
    target[...] = reduce_values(np.ascontiguousarray(target), tile, bound.map.dtype, operation)
    return TensorCopy(bound.box_bytes, _ranges(landing, address), box)


def prefetch(bound: BoundTensorMap, coordinates: Sequence[int]) -> None:
    """cp.async.bulk.prefetch.tensor: no effect that a program can see, but a load's faults.

    >>> memory = GlobalMemory()
    >>> tensor_map = TensorMap("u8", (32,), (), (16,))
    >>> prefetch(BoundTensorMap(tensor_map, memory, memory.register(np.zeros(32, np.uint8))), (16,))
    """
    _check(bound, coordinates, 0, False)
