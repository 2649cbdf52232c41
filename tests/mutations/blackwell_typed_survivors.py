"""Mutants of the block-scaled and typed Blackwell kernels that nothing catches, each with the reason: because they compute the same by the rules of the machine, or because
a check is missing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

TYPED_EQUIVALENT: dict[str, str] = {
    "mxfp8/source/no fence after the accumulator is free": (
        "Before a slot's factors are copied to tensor memory the same thread fences again, behind the wait for the accumulator and before the first multiply into it."
    ),
    "registers/source/one lane alone fences what all have read": (
        "The lanes have met before, so that the one's fence speaks for what all of them read (PTX ISA, bar.warp.sync), and it is this lane that frees the slot."
    ),
}
"""Patterns of names -> why the mutant is no fault."""

TYPED_GAPS: dict[str, str] = {}
"""Patterns of names -> the fault, and the check that the emulator lacks."""

TYPED_SURVIVORS = {**TYPED_EQUIVALENT, **TYPED_GAPS}


def reason(name: str) -> str | None:
    """Why a mutant with this name may survive; None if it must be caught."""
    return next((why for pattern, why in TYPED_SURVIVORS.items() if fnmatchcase(name, pattern)), None)
