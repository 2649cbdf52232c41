"""cp.async.bulk without a tensor map, and the lane-wise cp.async: plain bytes between the memories. Knows no barriers.

load(memory, source, shared, target, size)            global to shared; returns the bytes the mbarrier counts
store(memory, target, shared, source, size)           shared to global
between(source_shared, source, target_shared, target, size)          shared of one block to shared of another
reduce(memory, target, shared, source, size, dtype, operation)       shared into global
reduce_between(source_shared, source, target_shared, target, size, dtype, operation)
copy_lanes(memory, sources, shared, targets, width, sizes, mask)     cp.async: 4, 8, 16 bytes a lane, rest zeros
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import TensorCopyError
from .lanes import LaneMask
from .memory import GlobalMemory, SharedMemory
from .reductions import reduce_values

__all__ = ["between", "copy_lanes", "load", "reduce", "reduce_between", "store"]

ALIGNMENT = 16
"""Of both addresses and of the size (PTX ISA, "cp.async.bulk")."""


def _check(size: int, **addresses: int) -> None:
    if size < 0 or size % ALIGNMENT:
        raise TensorCopyError(
            "misaligned", f"cp.async.bulk of {size} bytes: the size must be a multiple of {ALIGNMENT}"
        )
    for name, address in addresses.items():
        if address % ALIGNMENT:
            raise TensorCopyError("misaligned", f"cp.async.bulk: {name} {address:#x} must be a multiple of {ALIGNMENT}")


def load(memory: GlobalMemory, source: int, shared: SharedMemory, target: int, size: int) -> int:
    """Copies ``size`` bytes from global to shared memory and returns ``size``.

    >>> memory, shared = GlobalMemory(), SharedMemory(64)
    >>> load(memory, memory.register(np.arange(16, dtype=np.uint8)), shared, 32, 16), shared.load(32, 4)
    (16, 50462976)
    """
    _check(size, source=source, destination=target)
    shared.write(target, memory.read(source, size))
    return size


def store(memory: GlobalMemory, target: int, shared: SharedMemory, source: int, size: int) -> None:
    """Copies ``size`` bytes from shared to global memory.

    >>> memory, shared, array = GlobalMemory(), SharedMemory(64), np.zeros(16, np.uint8)
    >>> shared.write(0, np.arange(16, dtype=np.uint8))
    >>> store(memory, memory.register(array), shared, 0, 16)
    >>> int(array[15])
    15
    """
    _check(size, source=source, destination=target)
    memory.write(target, shared.read(source, size))


def between(source_shared: SharedMemory, source: int, target_shared: SharedMemory, target: int, size: int) -> int:
    """Copies ``size`` bytes into the shared memory of another block of the cluster and returns ``size``.

    >>> one, two = SharedMemory(64), SharedMemory(64)
    >>> one.write(0, np.arange(16, dtype=np.uint8))
    >>> between(one, 0, two, 16, 16), two.load(16, 2)
    (16, 256)
    """
    _check(size, source=source, destination=target)
    target_shared.write(target, source_shared.read(source, size).copy())
    return size


def reduce(
    memory: GlobalMemory, target: int, shared: SharedMemory, source: int, size: int, dtype: str, operation: str
) -> None:
    """Combines shared into global memory, element by element of ``dtype`` (see reductions.py).

    >>> memory, shared, array = GlobalMemory(), SharedMemory(64), np.ones(4, np.uint32)
    >>> shared.write(0, np.full(4, 3, np.uint32).view(np.uint8))
    >>> reduce(memory, memory.register(array), shared, 0, 16, "u32", "add")
    >>> array.tolist()
    [4, 4, 4, 4]
    """
    _check(size, source=source, destination=target)
    old = memory.read(target, size)
    memory.write(target, reduce_values(old, shared.read(source, size), dtype, operation))


def reduce_between(
    source_shared: SharedMemory,
    source: int,
    target_shared: SharedMemory,
    target: int,
    size: int,
    dtype: str,
    operation: str,
) -> int:
    """Combines into the shared memory of another block of the cluster and returns ``size``.

    >>> one, two = SharedMemory(64), SharedMemory(64)
    >>> one.write(0, np.full(4, 3, np.uint32).view(np.uint8))
    >>> two.write(0, np.full(4, 5, np.uint32).view(np.uint8))
    >>> reduce_between(one, 0, two, 0, 16, "u32", "max"), two.load(0, 4)
    (16, 5)
    """
    _check(size, source=source, destination=target)
    old = target_shared.read(target, size)
    target_shared.write(target, reduce_values(old, source_shared.read(source, size), dtype, operation))
    return size


def copy_lanes(
    memory: GlobalMemory,
    sources: NDArray[Any],
    shared: SharedMemory,
    targets: NDArray[Any],
    width: int,
    sizes: NDArray[Any] | None = None,
    mask: LaneMask = None,
) -> None:
    """cp.async of ``width`` bytes (4, 8, 16) for each lane; of these only ``sizes`` are read, the others are zero.

    >>> memory, shared, lanes = GlobalMemory(), SharedMemory(64), np.arange(2)
    >>> address = memory.register(np.arange(1, 33, dtype=np.uint8))
    >>> copy_lanes(memory, address + 16 * lanes, shared, 16 * lanes, 16, np.array([16, 2]))
    >>> shared.read(16, 4).tolist()
    [17, 18, 0, 0]
    """
    if width not in (4, 8, 16):
        raise TensorCopyError("unknown", f"cp.async of {width} bytes; allowed are 4, 8 and 16")
    active = np.ones(sources.size, bool) if mask is None else mask
    used = np.full(sources.size, width) if sizes is None else np.asarray(sizes).astype(np.int64)
    if ((used < 0) | (used > width))[active].any():
        raise TensorCopyError("unknown", f"cp.async reads {used[active].tolist()} bytes of {width}")
    data = np.zeros((sources.size, width), np.uint8)
    whole = active & (used == width)
    if whole.any():
        words = memory.gather(sources, 4, width // 4, whole)
        data[whole] = np.ascontiguousarray(words.reshape(width // 4, -1).T).view(np.uint8)[whole]
    for lane in np.flatnonzero(active & (used < width) & (used > 0)):
        data[lane, : used[lane]] = memory.read(int(sources[lane]), int(used[lane]))
    values = data.view(np.uint32).T
    shared.scatter(targets, values if width > 4 else values[0], 4, width // 4, mask)
