"""Shared-memory banks: wavefronts of an access, colliding lanes, and the smallest swizzle that mends them.

The model and its source are in ``banks_model``, the search in ``banks_search``; this module is their public face.
"""

from __future__ import annotations

from .banks_model import (
    Access,
    BankReport,
    Phase,
    bank_report,
    count_wavefronts,
    linear_wavefronts,
    report_of_offsets,
)
from .banks_search import NoSwizzleError, SwizzleSearch, suggest_swizzle, swizzle_search
from .hardware.shared_memory import BANK_BYTES, BANKS

__all__ = [
    "BANKS",
    "BANK_BYTES",
    "Access",
    "BankReport",
    "NoSwizzleError",
    "Phase",
    "SwizzleSearch",
    "bank_report",
    "count_wavefronts",
    "linear_wavefronts",
    "report_of_offsets",
    "suggest_swizzle",
    "swizzle_search",
]
