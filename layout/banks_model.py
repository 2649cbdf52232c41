"""Shared-memory banks: how many wavefronts a warp's access takes, which lanes collide, and which swizzle mends it.

Shared memory has 32 banks of 4 bytes. A warp's access is served in phases of 32, 16 or 8 lanes for up to 4, 8 or 16
bytes a lane, ldmatrix and stmatrix in phases of 8 rows of 16 bytes; lanes of a phase that touch the same word share
it, and a phase takes as many wavefronts as the busiest bank has different words.

One exception was measured: a LOAD of 8 or 16 bytes joins its phases two by two if, over the whole warp, every pair of
active lanes (l, l^1) reads one address, or every pair (l, l^2) does. Reads of wgmma operands never conflict: one
wavefront for each 8 rows of 16 bytes.

Source: ncu's counters on an H200, 419 access patterns, all of which this model gives
(tests/data/h200/banks.json). Searching a swizzle is in ``banks_search``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .core import Layout
from .errors import LayoutError
from .hardware.shared_memory import BANK_BYTES, BANKS, MATRIX_ROWS, WARP
from .tuples import product, to_int

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OPERATIONS = ("ld", "st", "ldmatrix", "stmatrix", "wgmma", "tma")
_SIZES = (1, 2, 4, 8, 16)

_LINE_BITS = 40  # of a key that also names a phase and a bank
_LINE_OFFSET = 1 << 38  # keeps lines of negative offsets apart from the next bank's

Lane = int | tuple[Any, ...] | None


@dataclass(frozen=True)
class Access:
    """What one warp does in one instruction.

    ``bytes`` a lane (1, 2, 4, 8 or 16; 16 for a row of ldmatrix, stmatrix and for wgmma). ``lanes``: for every lane the
    index or coordinate in the layout at which it begins, None for a lane that is switched off; or a Layout from lane to
    index; None means lane l has index l, 32 of them. For ldmatrix and stmatrix the lanes are the 8, 16 or 32 row
    addresses. ``op``: ld, st, ldmatrix, stmatrix; wgmma (an operand read: lanes are its 16-byte chunks, any number) or
    tma (a write or read by the copy engine, which only restricts the swizzles of ``suggest_swizzle``).
    ``element_bytes``: bytes of one unit of the layout's offsets; 1 when the layout maps to bytes.

    >>> Access(4).op
    'ld'
    """

    bytes: int = 4
    lanes: Sequence[Lane] | Layout | None = None
    op: str = "ld"
    element_bytes: int = 1

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS:
            raise LayoutError(f"op {self.op!r}: must be one of {', '.join(OPERATIONS)}")
        object.__setattr__(self, "bytes", to_int(self.bytes, "bytes"))
        object.__setattr__(self, "element_bytes", to_int(self.element_bytes, "element_bytes"))
        if self.bytes not in _SIZES:
            raise LayoutError(f"bytes={self.bytes}: a lane accesses {', '.join(map(str, _SIZES))} bytes")
        if self.op in ("ldmatrix", "stmatrix", "wgmma") and self.bytes != 16:
            raise LayoutError(f"bytes={self.bytes}: {self.op} reads rows of 16 bytes")
        if self.element_bytes < 1:
            raise LayoutError(f"element_bytes={self.element_bytes}: must be at least 1")
        if self.lanes is not None and not isinstance(self.lanes, Layout):
            if not isinstance(self.lanes, Iterable) or isinstance(self.lanes, str | Mapping):
                raise LayoutError(
                    f"lanes={self.lanes!r}: must be a sequence with an index or coordinate for each lane, or a Layout"
                )
            object.__setattr__(self, "lanes", tuple(self.lanes))

    def byte_offsets(self, layout: Any) -> tuple[int | None, ...]:
        """The byte offset at which every lane begins, None where a lane is off. ``layout``: a Layout, swizzled or not.

        Raises LayoutError for an offset that is not aligned to the access, as the hardware faults.

        >>> from stridewright.layout import Layout
        >>> Access(4, lanes=(0, 1, None), element_bytes=4).byte_offsets(Layout(8, 2))
        (0, 8, None)
        """
        if not callable(layout) or not hasattr(layout, "shape"):
            raise LayoutError(f"the layout that is accessed must be a Layout, swizzled or not, not {layout!r}")
        if self.lanes is None:
            lanes: Sequence[Lane] = range(WARP)
        elif isinstance(self.lanes, Layout):
            lanes = [self.lanes(i) for i in range(_size(self.lanes))]
        else:
            lanes = self.lanes
        offsets = _evaluated(layout, lanes, self.element_bytes)
        for lane, offset in enumerate(offsets):
            if offset is not None and offset % self.bytes:
                raise LayoutError(
                    f"lane {lane} begins at byte {offset}: a {self.bytes}-byte {self.op} must be aligned to {self.bytes}"
                )
        return offsets


def _size(layout: Layout) -> int:
    return int(product(layout.shape))


def _evaluated(layout: Any, lanes: Sequence[Lane], element_bytes: int) -> tuple[int | None, ...]:
    """The byte offset of every lane: in one numpy evaluation where all are indices or flat coordinates in range."""
    shape = layout.shape if isinstance(layout.shape, tuple) else (layout.shape,)
    extents = [product(mode) for mode in shape]
    indices: list[int] = []
    for lane in lanes:
        if lane is None:
            continue
        if type(lane) is tuple and len(lane) == len(extents):
            index, step = 0, 1
            for c, n in zip(lane, extents, strict=True):
                if type(c) is not int or not 0 <= c < n:
                    return tuple(None if x is None else int(layout(x)) * element_bytes for x in lanes)
                index, step = index + c * step, step * n
            indices.append(index)
        elif type(lane) is int:
            indices.append(lane)
        else:
            return tuple(None if x is None else int(layout(x)) * element_bytes for x in lanes)
    import numpy as np

    found = iter((np.asarray(layout(np.array(indices, np.int64))) * element_bytes).tolist() if indices else [])
    return tuple(None if lane is None else next(found) for lane in lanes)


@dataclass(frozen=True)
class Phase:
    """One phase: its active lanes, the wavefronts it takes, and for the busiest banks the lanes whose words differ
    there.

    ``collisions``: (bank, lanes) with one lane for each different word, only where a bank has more than one word.
    """

    lanes: tuple[int, ...]
    wavefronts: int
    collisions: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class BankReport:
    """What an access costs. ``wavefronts``; ``ideal``: the phases, each of which takes at least one wavefront;
    ``ratio`` = wavefronts / ideal; ``conflicts`` = wavefronts - ideal, which is ncu's conflict counter; ``phases``;
    ``joined``: whether a load joined its phases two by two; ``method``: "F2 rank" where the lanes' addresses are an
    affine map over F2 (then a phase takes 2 ** (rank of its words - rank of their banks)), else "count".
    """

    access: Access
    wavefronts: int
    ideal: int
    phases: tuple[Phase, ...]
    joined: bool
    method: str

    @property
    def ratio(self) -> float:
        """Wavefronts over the ideal number; 1.0 is free of conflicts."""
        return self.wavefronts / self.ideal if self.ideal else 1.0

    @property
    def conflicts(self) -> int:
        """Wavefronts over the ideal number, as ncu counts bank conflicts."""
        return self.wavefronts - self.ideal

    def __str__(self) -> str:
        lines = [
            f"{self.access.op} of {self.access.bytes} bytes a lane: {self.wavefronts} wavefront{'' if self.wavefronts == 1 else 's'}, ideal {self.ideal},"
            f" ratio {self.ratio:g} ({self.method})"
        ]
        for number, phase in enumerate(self.phases):
            for bank, lanes in phase.collisions[:4]:
                lines.append(
                    f"  phase {number}: bank {bank} serves lanes {', '.join(map(str, lanes))} one after another"
                )
        return "\n".join(lines)


def phase_lanes(size: int, op: str = "ld") -> int:
    """Lanes that are served together before any joining.

    >>> [phase_lanes(size) for size in (1, 4, 8, 16)], phase_lanes(16, "ldmatrix")
    ([32, 32, 16, 8], 8)
    """
    return {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]


def joins(offsets: Sequence[int | None], size: int, op: str) -> bool:
    """Whether a load joins its phases two by two (measured on an H200; see the module's text).

    >>> joins([0] * 32, 16, "ld"), joins([0] * 32, 16, "st"), joins(list(range(0, 512, 16)), 16, "ld")
    (True, False, False)
    """
    if op != "ld" or size not in (8, 16):
        return False
    for distance in (1, 2):
        pairs = [(offsets[i], offsets[i ^ distance]) for i in range(len(offsets)) if i ^ distance < len(offsets)]
        if all(a == b for a, b in pairs if a is not None and b is not None):
            return True
    return False


def _phases(offsets: Sequence[int | None], size: int, op: str) -> tuple[list[list[int]], bool]:
    """The active lanes of each phase that has any, and whether phases were joined."""
    joined = joins(offsets, size, op)
    width = phase_lanes(size, op) * (2 if joined else 1)
    groups = [
        [lane for lane in range(first, min(first + width, len(offsets))) if offsets[lane] is not None]
        for first in range(0, len(offsets), width)
    ]
    return [group for group in groups if group], joined


def _count(offsets: Sequence[int | None], lanes: Sequence[int], size: int) -> Phase:
    words: dict[int, dict[int, int]] = {}
    for lane in lanes:
        offset = offsets[lane]
        assert offset is not None
        for word in range(offset // BANK_BYTES, (offset + size - 1) // BANK_BYTES + 1):
            words.setdefault(word % BANKS, {}).setdefault(word, lane)
    worst = max(len(different) for different in words.values())
    collisions = tuple(
        (bank, tuple(different.values())) for bank, different in sorted(words.items()) if len(different) == worst > 1
    )
    return Phase(tuple(lanes), worst, collisions)


def f2_rank(vectors: Sequence[int]) -> int:
    """The rank over F2 of bit vectors given as ints.

    >>> f2_rank([0b011, 0b101, 0b110])
    2
    """
    rank, pool = 0, [v for v in vectors if v]
    while pool:
        pivot = pool.pop()
        rank += 1
        low = pivot & -pivot
        pool = [v for v in (w ^ pivot if w & low else w for w in pool) if v]
    return rank


def linear_wavefronts(offsets: Sequence[int | None], lanes: Sequence[int], size: int) -> int | None:
    """The wavefronts of one phase by rank: 2 ** (rank of its words - rank of their banks).

    None where the lanes are no power of two, some are off or the addresses are no affine map of the lane's bits over
    F2. The words a wide access touches count as further bits of the lane.

    >>> linear_wavefronts([128 * i for i in range(32)], range(32), 4)
    32
    """
    count = len(lanes)
    bits = count.bit_length() - 1
    if count != 1 << bits or any(offsets[lane] is None for lane in lanes):
        return None
    values = [offsets[lane] // BANK_BYTES for lane in lanes]  # type: ignore[operator]
    generators = [values[1 << i] ^ values[0] for i in range(bits)]
    reached = [0]
    for generator in generators:
        reached += [value ^ generator for value in reached]
    if any(value ^ values[0] != seen for value, seen in zip(values, reached, strict=True)):
        return None
    generators += [1 << i for i in range(max(size // BANK_BYTES, 1).bit_length() - 1)]
    return 1 << (f2_rank(generators) - f2_rank([generator % BANKS for generator in generators]))


def report_of_offsets(offsets: Sequence[int | None], access: Access) -> BankReport:
    """The report for byte offsets, lane by lane (None: the lane is off).

    Raises LayoutError for op "tma": what the copy engine costs in banks was never measured.

    >>> report_of_offsets([16 * i for i in range(32)], Access(16, op="st")).wavefronts
    4
    """
    if access.op == "tma":
        raise LayoutError("op 'tma': how the copy engine loads the banks is not known; ask about the reads instead")
    if access.op in ("ldmatrix", "stmatrix") and len(offsets) not in (8, 16, 32):
        raise LayoutError(f"{access.op} of {len(offsets)} rows: x1, x2 and x4 have 8, 16 and 32 row addresses")
    if access.op != "wgmma" and len(offsets) > WARP:
        raise LayoutError(f"{len(offsets)} lanes: a warp has {WARP}")
    if access.op == "wgmma":
        chunks = sum(offset is not None for offset in offsets)
        count = -(-chunks // MATRIX_ROWS)
        return BankReport(access, count, count, (), False, "measured: operand reads never conflict")
    groups, joined = _phases(offsets, access.bytes, access.op)
    phases = tuple(_count(offsets, lanes, access.bytes) for lanes in groups)
    ranks = [linear_wavefronts(offsets, lanes, access.bytes) for lanes in groups]
    method = "F2 rank" if ranks and None not in ranks else "count"
    return BankReport(access, sum(phase.wavefronts for phase in phases), len(phases), phases, joined, method)


def bank_report(layout: Any, access: Access) -> BankReport:
    """Wavefronts, ideal, ratio and colliding lanes of one warp's access to ``layout``, a Layout with or without
    swizzle.

    Raises LayoutError for a misaligned access. Source: the module's text.

    >>> from stridewright.layout import Layout
    >>> column = Access(4, lanes=[(i, 0) for i in range(32)], element_bytes=4)
    >>> report = bank_report(Layout((32, 32), (32, 1)), column)
    >>> report.wavefronts, report.ideal, report.ratio
    (32, 1, 32.0)
    >>> bank_report(Layout((32, 32), (33, 1)), column).ratio
    1.0
    """
    if not isinstance(access, Access):
        raise LayoutError(f"the access must be an Access, not {access!r}")
    return report_of_offsets(access.byte_offsets(layout), access)


def count_wavefronts(
    addresses: NDArray[np.int64], size: int, op: str = "ld", active: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(wavefronts, ideal) of many warps at once: addresses (warps, lanes) in bytes, ``active`` of the same shape.

    Both results are int64 of shape (warps,). The same model as ``bank_report``, in numpy.

    >>> import numpy
    >>> count_wavefronts(numpy.arange(32)[None] * 128, 4)
    (array([32]), array([1]))
    """
    import numpy as np

    warps, lanes = addresses.shape
    width = phase_lanes(size, op)
    if active is None:
        active = np.ones(addresses.shape, bool)
    padding = -lanes % width
    if padding:
        addresses = np.pad(addresses, ((0, 0), (0, padding)))
        active = np.pad(active, ((0, 0), (0, padding)))
        lanes += padding
    phase = np.broadcast_to(np.arange(lanes) // width, (warps, lanes))
    if op == "ld" and size in (8, 16):
        joined = np.zeros(warps, bool)
        for distance in (1, 2):
            partner = np.arange(lanes) ^ distance
            same = (addresses == addresses[:, partner]) | ~(active & active[:, partner])
            joined |= same.all(axis=1)
        phase = np.where(joined[:, None], phase // 2, phase)
    slots = lanes // width * BANKS
    words = addresses[:, :, None] // BANK_BYTES + np.arange(max(size // BANK_BYTES, 1))
    # One number for (phase, bank, word): sorted along each warp, equal words of a phase lie side by side.
    key = (phase[:, :, None] * BANKS + words % BANKS << _LINE_BITS) + (words // BANKS + _LINE_OFFSET)
    key = np.where(active[:, :, None], key, slots << _LINE_BITS).reshape(warps, -1)
    key.sort(axis=1)
    fresh = np.ones(key.shape, bool)
    np.not_equal(key[:, 1:], key[:, :-1], out=fresh[:, 1:])
    # One slot more takes the lanes that are off.
    slot = (key >> _LINE_BITS) + np.arange(warps)[:, None] * (slots + 1)
    counted = np.bincount(slot[fresh], minlength=warps * (slots + 1)).reshape(warps, slots + 1)[:, :slots]
    loads = counted.reshape(warps, slots // BANKS, BANKS).max(axis=2)
    return loads.sum(axis=1).astype(np.int64), (loads > 0).sum(axis=1).astype(np.int64)
