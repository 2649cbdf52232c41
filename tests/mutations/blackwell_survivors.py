"""Mutants of the Blackwell kernels that nothing catches, each with the reason: because they compute the same by the rules of the machine, or because a check is
missing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

EQUIVALENT: dict[str, str] = {}
"""Patterns of names -> why the mutant is no fault."""

GAPS: dict[str, str] = {}
"""Patterns of names -> the fault, and the check that the emulator lacks."""

SURVIVORS = {**EQUIVALENT, **GAPS}


def reason(name: str) -> str | None:
    """Why a mutant with this name may survive; None if it must be caught."""
    return next((why for pattern, why in SURVIVORS.items() if fnmatchcase(name, pattern)), None)
