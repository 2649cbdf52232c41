"""The smallest swizzle that makes given shared-memory accesses free of conflicts, or the proof that none does.

A swizzle matters to the banks only through the bits it changes among address bits 2 to 6, and only while the bits it
reads are bits that the layout's offsets use; all others act as the identity or as a smaller one. So the swizzles that
differ in effect are finitely many, and trying them all is a proof. They are tried in order of size: fewest bits, then
the least distance, then the lowest base.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .banks_model import Access, count_wavefronts
from .errors import LayoutError
from .hardware.shared_memory import BANK_BYTES, BANKS
from .hardware.swizzle_modes import swizzle_modes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from . import Swizzle

_BANK_BITS = range(BANK_BYTES.bit_length() - 1, (BANK_BYTES * BANKS).bit_length() - 1)  # of a byte address


class NoSwizzleError(LayoutError):
    """No swizzle makes every access ideal; ``search`` says what was tried and what the best one reaches."""

    def __init__(self, search: SwizzleSearch) -> None:
        super().__init__(search.explain())
        self.search = search


@dataclass(frozen=True)
class SwizzleSearch:
    """Outcome of a search. ``swizzle``: the smallest that makes all accesses ideal, as (bits, base, shift) in the
    layout's units, None if none does; ``best``: the one with the fewest wavefronts; ``best_wavefronts`` and ``ideal``
    sums over the accesses; ``plain_wavefronts`` without a swizzle; ``tried`` the number of swizzles tried.
    ``impossible``: indices of the accesses that no candidate makes ideal, even alone.
    """

    swizzle: tuple[int, int, int] | None
    best: tuple[int, int, int]
    best_wavefronts: int
    ideal: int
    plain_wavefronts: int
    tried: int
    impossible: tuple[int, ...]

    def explain(self) -> str:
        """One paragraph: what was found or why nothing can be.

        >>> SwizzleSearch((3, 3, 3), (3, 3, 3), 4, 4, 32, 9, ()).explain()
        'Swizzle(3, 3, 3): 4 wavefronts, ideal 4, 32 without a swizzle; the smallest of those that reach it.'
        """
        if self.swizzle is not None and not self.swizzle[0]:
            return f"no swizzle is needed: {_wavefronts(self.plain_wavefronts)} without one, ideal {self.ideal}."
        if self.swizzle is not None:
            return (
                f"Swizzle{self.swizzle}: {_wavefronts(self.best_wavefronts)}, ideal {self.ideal}, {self.plain_wavefronts}"
                " without a swizzle; the smallest of those that reach it."
            )
        reason = (
            f"accesses {', '.join(map(str, self.impossible))} conflict under each of them, whatever the others need"
            if self.impossible
            else "each access can be mended alone, but no single swizzle mends them all"
        )
        return (
            f"no swizzle makes all accesses ideal: all {self.tried} that keep the accesses whole and differ in their effect on"
            f" the banks were tried; {reason}. The best, Swizzle{self.best}, takes {_wavefronts(self.best_wavefronts)};"
            f" ideal {self.ideal}, {self.plain_wavefronts} without a swizzle. Pad the pitch, or change who reads what."
        )


def _wavefronts(count: int) -> str:
    return f"{count} wavefront{'' if count == 1 else 's'}"


def unit_bits(accesses: Sequence[Access]) -> int:
    """log2 of the bytes of the unit that all accesses count in. Raises LayoutError where they differ.

    >>> unit_bits([Access(4, element_bytes=4)])
    2
    """
    if odd := [access for access in accesses if not isinstance(access, Access)]:
        raise LayoutError(f"an access must be an Access, not {odd[0]!r}")
    sizes = {access.element_bytes for access in accesses}
    if len(sizes) != 1:
        raise LayoutError(f"accesses count in units of {sorted(sizes)} bytes: give all the layout's own unit")
    unit = sizes.pop()
    if unit & (unit - 1):
        raise LayoutError(f"element_bytes={unit}: a swizzle needs elements of a power of two bytes")
    return unit.bit_length() - 1


def _candidates(top: int, vector: int, unit: int, hardware: bool) -> Iterator[tuple[int, int, int]]:
    """(bits, base, shift) on byte addresses whose effects on banks differ, smallest first.

    ``top``: address bits in use; ``vector``: log2 of the widest access, whose bytes must stay together; ``unit``: log2
    of the layout's unit, below which no swizzle in its units reaches; ``hardware``: only what TMA can do.
    """
    if hardware:
        # 32B, 64B and 128B, which both the copy engine and the matrix units have.
        for mode in swizzle_modes():
            if mode.bits and mode.wgmma_code is not None and vector <= mode.base:
                yield (mode.bits, mode.base, mode.shift)
        return
    floor = max(vector, unit)
    for bits in range(1, top + 1):
        for distance in range(bits, top + 1):
            for base in range(floor, top):
                if base > _BANK_BITS[-1]:
                    break
                # The lowest field holds bits base .. base+bits-1; the highest bit read must be in use.
                if base + bits > _BANK_BITS[0] and base + distance + bits <= top:
                    yield (bits, base, distance)
                # A negative shift reads the low field and changes the high one, which must reach a bank bit.
                if base + distance <= _BANK_BITS[-1] and base + bits <= top:
                    yield (bits, base, -distance)


def _apply(addresses: Any, bits: int, base: int, shift: int) -> Any:
    mask = (1 << bits) - 1
    if shift >= 0:
        return addresses ^ ((addresses >> (base + shift) & mask) << base)
    return addresses ^ ((addresses >> base & mask) << (base - shift))


@dataclass(frozen=True)
class _Group:
    """Accesses of one kind, evaluated at once: their numbers, and addresses and lane masks of shape (accesses,
    lanes)."""

    members: list[int]
    size: int
    op: str
    addresses: NDArray[np.int64]
    active: NDArray[np.bool_]


def _grouped(layout: Any, accesses: Sequence[Access]) -> list[_Group]:
    import numpy as np

    kinds: dict[tuple[int, str, int], list[tuple[int, tuple[int | None, ...]]]] = {}
    for number, access in enumerate(accesses):
        offsets = access.byte_offsets(layout)
        if any(offset is not None and offset < 0 for offset in offsets):
            raise LayoutError("negative offsets cannot be swizzled: shift the layout to start at 0")
        kinds.setdefault((access.bytes, access.op, len(offsets)), []).append((number, offsets))
    return [
        _Group(
            [number for number, _ in members],
            size,
            op,
            np.array([[offset or 0 for offset in offsets] for _, offsets in members], np.int64),
            np.array([[offset is not None for offset in offsets] for _, offsets in members]),
        )
        for (size, op, _), members in kinds.items()
    ]


def swizzle_search(layout: Any, accesses: Iterable[Access]) -> SwizzleSearch:
    """Try every swizzle that could matter on ``layout`` for all the accesses; one that is swizzled already gets one more.

    An access with op "tma" restricts the search to the swizzles the copy engine has. Raises LayoutError where there is
    nothing to make ideal, or the units differ.

    >>> from stridewright.layout import Layout
    >>> from stridewright.layout.banks import Access
    >>> column = Access(4, lanes=[(i, 0) for i in range(32)], element_bytes=4)
    >>> swizzle_search(Layout((32, 32), (32, 1)), [column]).swizzle
    (5, 0, 5)
    """
    import numpy as np

    if not isinstance(accesses, Iterable):
        raise LayoutError(f"accesses must be Access objects, not {accesses!r}")
    accesses = list(accesses)
    unit = unit_bits(accesses) if accesses else 0
    # Operand reads of wgmma never conflict (measured): they only restrict what else the tile may be.
    read = [access for access in accesses if access.op not in ("tma", "wgmma")]
    hardware = any(access.op in ("tma", "wgmma") for access in accesses)
    if not read and not any(access.op == "wgmma" for access in accesses):
        raise LayoutError("no ld, st, ldmatrix, stmatrix or wgmma among the accesses: nothing to make ideal")
    groups = _grouped(layout, read)
    top = max((max(int(group.addresses.max()), 1).bit_length() for group in groups), default=1)
    vector = max((access.bytes.bit_length() - 1 for access in read), default=0)

    def cost(parameters: tuple[int, int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        wavefronts = np.zeros(len(read), np.int64)
        ideals = np.zeros(len(read), np.int64)
        for group in groups:
            counted = count_wavefronts(_apply(group.addresses, *parameters), group.size, group.op, group.active)
            wavefronts[group.members], ideals[group.members] = counted
        return wavefronts, ideals

    def in_units(parameters: tuple[int, int, int]) -> tuple[int, int, int]:
        bits, base, shift = parameters
        return (bits, base - unit, shift) if bits else (0, 0, 0)

    # The ideal of an access is that of the plain layout: a swizzle is one to one and cannot change it.
    plain, ideals = cost((0, 0, 0))
    plain_sum, ideal = int(plain.sum()), int(ideals.sum())
    best, best_sum, tried = (0, 0, 0), plain_sum, 1
    mended = plain == ideals
    found = best_sum == ideal
    if not found:
        for parameters in _candidates(top, vector, unit, hardware):
            tried += 1
            wavefronts, _ = cost(parameters)
            mended |= wavefronts == ideals
            total = int(wavefronts.sum())
            if total < best_sum:
                best, best_sum = parameters, total
            if total == ideal:
                found = True
                break
    impossible = () if found else tuple(accesses.index(read[i]) for i in np.flatnonzero(~mended))
    return SwizzleSearch(
        in_units(best) if found else None, in_units(best), best_sum, ideal, plain_sum, tried, impossible
    )


def suggest_swizzle(layout: Any, accesses: Access | Iterable[Access]) -> Swizzle:
    """The smallest swizzle, in the layout's units, that makes every given read and write ideal.

    Swizzle(0, 0, 0) where none is needed. Raises NoSwizzleError, with the proof and the best there is, where none does.

    >>> from stridewright.layout import Layout, Swizzle
    >>> from stridewright.layout.banks import Access
    >>> rows = Access(16, lanes=[(i, 0) for i in range(8)], op="ldmatrix", element_bytes=2)
    >>> suggest_swizzle(Layout((64, 64), (64, 1)), [rows, Access(16, op="tma", element_bytes=2)]) == Swizzle(3, 3, 3)
    True
    """
    from . import Swizzle

    search = swizzle_search(layout, [accesses] if isinstance(accesses, Access) else accesses)
    if search.swizzle is None:
        raise NoSwizzleError(search)
    return Swizzle(*search.swizzle)
