"""Mutants of the Blackwell kernels that nothing catches, each with the reason: because they compute the same by the rules of the machine, or because a check is
missing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_DRAIN = (
    "The epilogue has waited for the commit of the last tile, which the same thread issued after those of all slots, and for tensor memory's "
    "end all warps have met. That the earlier commits have arrived by then is how commits work, in order; the drain does not rely on it."
)

EQUIVALENT: dict[str, str] = {
    "*/source/slices of B of the other tile": (
        "The CTAs of a column exchange which slice of B they fetch; source and destination agree, so every slice arrives at its place."
    ),
    "*/source/*slots are not drained*": _DRAIN,
    "static/ptx/drop mbarrier.try_wait #[89]": _DRAIN,
    "static/ptx/drop mbarrier.try_wait #10": _DRAIN,
    "pair/ptx/drop mbarrier.try_wait #9": _DRAIN,
    "pair/ptx/drop mbarrier.try_wait #1[01]": _DRAIN,
    "*/ptx/twice tcgen05.mma #1": (
        "The first multiply of a tile does not add to what was there, so that done twice it leaves the same."
    ),
}
"""Patterns of names -> why the mutant is no fault."""

GAPS: dict[str, str] = {
    "*/ptx/drop tcgen05.relinquish_alloc_permit #1": (
        "A launch is emulated alone: that a CTA of another kernel on the same SM must wait for the permit, until this one ends, cannot be said."
    ),
}
"""Patterns of names -> the fault, and the check that the emulator lacks."""

SURVIVORS = {**EQUIVALENT, **GAPS}


def reason(name: str) -> str | None:
    """Why a mutant with this name may survive; None if it must be caught."""
    return next((why for pattern, why in SURVIVORS.items() if fnmatchcase(name, pattern)), None)
