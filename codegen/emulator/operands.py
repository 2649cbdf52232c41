"""Where wgmma finds its operands: the 64-bit matrix descriptor taken apart bit by bit, every element's address.

The rules were measured on an H200 and hold for every entry of tests/data/h200/wgmma_descriptors.npz; PTX ISA, "Matrix
Descriptor Format" and "Strides", says the same where it says anything. An operand is read as 16-byte chunks: 16 bytes
of k for a K-major operand, 16 bytes of rows (A) or columns (B) for an MN-major one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import DescriptorError
from .memory import SharedMemory

__all__ = ["ChunkTable", "Descriptor", "chunk_table", "decode", "element_addresses", "read_chunks"]

CHUNK = 16
"""Bytes that stay together under every swizzle."""

_SWIZZLE_SPAN = {0: 0, 1: 128, 2: 64, 3: 32}
_LINE_SHIFT = 7


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What hardware reads from a matrix descriptor, in bytes. ``span`` is 0 without a swizzle, else 32, 64 or 128."""

    start: int
    leading: int
    stride: int
    base_offset: int
    span: int


@lru_cache(maxsize=65536)
def decode(word: int) -> Descriptor:
    """Takes a descriptor apart. Bits 14, 15, 30, 31, 46-48 and 52-61 are ignored, as by hardware.

    >>> decode(0x4000004000010040)
    Descriptor(start=1024, leading=16, stride=1024, base_offset=0, span=128)
    """
    if not 0 <= word < 1 << 64:
        raise DescriptorError("unknown", f"matrix descriptor {word:#x} does not fit 64 bits")
    return Descriptor(
        start=(word & 0x3FFF) << 4,
        leading=(word >> 16 & 0x3FFF) << 4,
        stride=(word >> 32 & 0x3FFF) << 4,
        base_offset=word >> 49 & 7,
        span=_SWIZZLE_SPAN[word >> 62],
    )


def element_addresses(word: int, rows: int, k: int, size: int, major: str) -> NDArray[np.int64]:
    """The byte address of every element of an operand, (rows, k); elements of ``size`` bytes, major "k" or "mn".

    ``rows`` are the rows of A or the columns of B.

    >>> element_addresses(0x4000004000010040, 64, 16, 2, "k")[1, :9].tolist()
    [1168, 1170, 1172, 1174, 1176, 1178, 1180, 1182, 1152]
    """
    one = decode(word)
    row = np.arange(rows, dtype=np.int64)[:, None]
    depth = np.arange(k, dtype=np.int64)[None, :]
    per_chunk = CHUNK // size
    if major == "k" and not one.span:
        offset = row % 8 * CHUNK + row // 8 * one.stride + depth // per_chunk * one.leading + depth % per_chunk * size
    elif major == "k":
        # The leading offset is not looked at here: hardware reads the same bytes for any value.
        offset = row % 8 * one.span + row // 8 * one.stride + depth * size
    elif major == "mn" and not one.span:
        offset = depth % 8 * CHUNK + depth // 8 * one.leading + row // per_chunk * one.stride + row % per_chunk * size
    elif major == "mn":
        per_line = one.span // size
        offset = depth % 8 * one.span + depth // 8 * one.stride + row // per_line * one.leading + row % per_line * size
    else:
        raise DescriptorError("unknown", f"major {major!r}; allowed are 'k' and 'mn'")
    address = one.start + offset
    if one.span:
        # The line number is that of the absolute address; base_offset is taken off before the exclusive or.
        address ^= (((address >> _LINE_SHIFT) - one.base_offset) & (one.span // CHUNK - 1)) << 4
    return address


@dataclass(frozen=True, eq=False, slots=True)
class ChunkTable:
    """The chunks of an operand over one or more k-steps.

    ``index``: chunk numbers in shared memory, (rows, chunks of k) if K-major, (k, chunks of rows) if MN-major;
    ``ranges``: the addresses read, as disjoint ascending [low, high) pairs; ``low``, ``high``: their hull.
    """

    index: NDArray[np.intp]
    ranges: tuple[tuple[int, int], ...]
    low: int
    high: int


@lru_cache(maxsize=16384)
def chunk_table(words: tuple[int, ...], rows: int, k: int, size: int, major: str, base: int, extent: int) -> ChunkTable:
    """The chunks that the descriptors ``words`` (consecutive k-steps of ``k`` elements each) read.

    ``base`` and ``extent`` are the window address and size of shared memory; reading outside raises DescriptorError.
    """
    per_chunk = CHUNK // size
    parts = []
    for word in words:
        addresses = element_addresses(word, rows, k, size, major)
        parts.append(addresses[:, ::per_chunk] if major == "k" else addresses[::per_chunk, :].T)
    chunks = np.concatenate(parts, axis=1 if major == "k" else 0)
    low, high = int(chunks.min()), int(chunks.max()) + CHUNK
    if low < base or high > base + extent:
        raise DescriptorError(
            "out of bounds",
            f"matrix descriptor {words[0]:#018x} ({decode(words[0])}, {major}-major, {rows} rows) reads addresses "
            f"{low:#x}..{high - 1:#x}; this block has {base:#x}..{base + extent - 1:#x}",
        )
    index = np.ascontiguousarray((chunks - base) >> 4).astype(np.intp)
    used = np.unique(chunks)
    breaks = np.flatnonzero(np.diff(used) != CHUNK)
    firsts, lasts = used[np.r_[0, breaks + 1]], used[np.r_[breaks, used.size - 1]] + CHUNK
    ranges = tuple((int(first), int(last)) for first, last in zip(firsts, lasts, strict=True))
    return ChunkTable(index, ranges, low, high)


def read_chunks(shared: SharedMemory, table: ChunkTable) -> NDArray[Any]:
    """The bytes of a table's chunks as items of 16 bytes, in the table's shape; all must have been written."""
    if table not in shared.verified:
        for low, high in table.ranges:
            shared.read(low, high - low)
        shared.verified.add(table)
    return shared.chunks.take(table.index)
