"""Where wgmma finds its operands: a 64-bit matrix descriptor -> the chunks of shared memory that are read.

The fields and the address rules are layout.hardware's (measured on an H200, every entry of wgmma_descriptors.npz). An
operand is read as 16-byte chunks: 16 bytes of k for a K-major operand, 16 bytes of rows for an MN-major one, where
"rows" are the rows of A or the columns of B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.errors import LayoutError
from stridewright.layout.hardware.descriptors import FIELD_LIMIT, decode_matrix_descriptor

from .faults import DescriptorError
from .memory import WRITTEN, SharedMemory

__all__ = ["ChunkTable", "chunk_table", "chunk_union", "element_addresses", "read_chunks"]

CHUNK = 16
"""Bytes that stay together under every swizzle."""
_ALL_WRITTEN = int.from_bytes(bytes([WRITTEN] * 8), "little")


def element_addresses(word: int, rows: int, dtype: str, major: str, arch: str = "sm_90a") -> NDArray[np.int64]:
    """The byte address of every element that one wgmma or tcgen05.mma reads: (rows, k of one instruction); major "k" or "mn".

    >>> element_addresses(0x4000004000010040, 64, "bf16", "k")[1, :9].tolist()
    [1168, 1170, 1172, 1174, 1176, 1178, 1180, 1182, 1152]
    """
    try:
        return decode_matrix_descriptor(word, arch).addresses(dtype, major, rows)
    except LayoutError as error:
        raise DescriptorError("unknown", str(error)) from None


@dataclass(frozen=True, eq=False, slots=True)
class ChunkTable:
    """The chunks of an operand over one or more k-steps.

    ``index``: chunk numbers in shared memory, (rows, chunks of k) if K-major, (k, chunks of rows) if MN-major;
    ``ranges``: the addresses read, as disjoint ascending [low, high) pairs; ``low``, ``high``: their hull;
    ``chunks``: the chunk numbers, ascending, each once.
    """

    index: NDArray[np.intp]
    chunks: NDArray[np.intp]
    ranges: tuple[tuple[int, int], ...]
    low: int
    high: int


@lru_cache(maxsize=16384)
def chunk_table(
    words: tuple[int, ...], rows: int, dtype: str, major: str, base: int, extent: int, arch: str = "sm_90a"
) -> ChunkTable:
    """The chunks that wgmmas (or tcgen05.mmas) with the descriptors ``words``, consecutive k-steps, read of one operand.

    ``base`` and ``extent`` are the window address and size of shared memory; reading outside raises DescriptorError.

    >>> table = chunk_table((0x4000004000010000, 0x4000004000010002), 8, "bf16", "k", 0, 1024)
    >>> table.index.shape, table.index[1].tolist(), table.ranges[:2]
    ((8, 4), [9, 8, 11, 10], ((0, 64), (128, 192)))
    """
    parts = []
    for word in words:
        addresses = element_addresses(word, rows, dtype, major, arch)
        per_chunk = CHUNK * addresses.shape[1] // 32
        parts.append(addresses[:, ::per_chunk] if major == "k" else addresses[::per_chunk, :].T)
    # A descriptor holds 18 bits of an address; the bits above, which number the CTAs of a cluster, are the reader's own.
    chunks = np.concatenate(parts, axis=1 if major == "k" else 0) + (base & -FIELD_LIMIT)
    low, high = int(chunks.min()), int(chunks.max()) + CHUNK
    if low < base or high > base + extent:
        raise DescriptorError(
            "out of bounds",
            f"{decode_matrix_descriptor(words[0], arch)} ({words[0]:#018x}, {major}-major, {rows} rows) reads shared addresses "
            f"{low:#x}..{high - 1:#x}; this block has {base:#x}..{base + extent - 1:#x}",
        )
    index = np.ascontiguousarray((chunks - base) >> 4).astype(np.intp)
    used = np.unique(chunks)
    breaks = np.flatnonzero(np.diff(used) != CHUNK)
    firsts, lasts = used[np.r_[0, breaks + 1]], used[np.r_[breaks, used.size - 1]] + CHUNK
    ranges = tuple((int(first), int(last)) for first, last in zip(firsts, lasts, strict=True))
    return ChunkTable(index, ((used - base) >> 4).astype(np.intp), ranges, low, high)


@lru_cache(maxsize=16384)
def chunk_union(*tables: ChunkTable) -> NDArray[np.intp]:
    """The chunk numbers of several tables, ascending, each once; the same array for the same tables.

    >>> table = chunk_table((0x4000004000010000,), 8, "bf16", "k", 0, 1024)
    >>> chunk_union(table, table)[:4].tolist()
    [0, 1, 8, 9]
    """
    return np.unique(np.concatenate([table.chunks for table in tables]))


def read_chunks(shared: SharedMemory, table: ChunkTable) -> NDArray[Any]:
    """The bytes of a table's chunks as items of 16 bytes, in the table's shape; all must have been written.

    >>> shared = SharedMemory(1024)
    >>> shared.write(0, np.arange(1024).astype(np.uint8))
    >>> table = chunk_table((0x4000004000010000,), 8, "bf16", "k", 0, 1024)
    >>> read_chunks(shared, table).view(np.uint8)[1, :3].tolist()
    [144, 145, 146]
    """
    if table not in shared.verified:
        state = shared.state_chunks.take(table.chunks).view(np.uint64)
        if int(np.minimum.reduce(state)) != _ALL_WRITTEN or int(np.maximum.reduce(state)) != _ALL_WRITTEN:
            for low, high in table.ranges:
                shared.read(low, high - low)
        shared.verified.add(table)
    return shared.chunks.take(table.index)
