"""Counts bank conflicts of each shared-memory instruction with the model of stridewright.layout.banks.

The wavefronts of a pattern of addresses are computed once: a pattern is what is left when the gang's first address is moved to
its place within a line of 128 bytes, and kernels use few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.layout.banks import count_wavefronts

from .report import BankConflicts

if TYPE_CHECKING:
    from .gang import Gang
    from .translate import Program

_LINE = 128


class BankCounter:
    """Totals by instruction."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.totals: dict[tuple[int, int, str], list[int]] = {}
        self._patterns: dict[tuple[bytes, bytes, int, str, int], tuple[int, int, int]] = {}

    def count(self, g: Gang, m: Any, addresses: Any, size: int, kind: str, matrices: int = 0) -> None:
        """One access of a gang: a shared address for each of its threads, `size` bytes each."""
        start = int(addresses[0])
        base = start - start % _LINE
        key = ((addresses - np.uint32(base)).tobytes(), b"" if m is None else m.tobytes(), size, kind, matrices)
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = self._measure(addresses, m, size, kind, matrices)
        total = self.totals.get((g.at, size, kind))
        if total is None:
            self.totals[g.at, size, kind] = list(found)
        else:
            total[0] += found[0]
            total[1] += found[1]
            total[2] += found[2]

    def _measure(self, addresses: Any, m: Any, size: int, kind: str, matrices: int) -> tuple[int, int, int]:
        lanes = addresses.size
        active = np.ones(lanes, np.bool_) if m is None else m
        pad = -lanes % 32
        table = np.pad(addresses.astype(np.int64), (0, pad)).reshape(-1, 32)
        who = np.pad(active, (0, pad)).reshape(-1, 32)
        if matrices:
            table, who = table[:, : 8 * matrices], who[:, : 8 * matrices]
        used = who.any(axis=1)
        if not used.any():
            return 0, 0, 0
        table, who = table[used], who[used]
        # Lanes that are off must not stretch the range of addresses.
        table = np.where(who, table, table[np.arange(len(table)), who.argmax(axis=1)][:, None])
        waves, ideal = count_wavefronts(table, size, kind, who)
        return int(waves.sum()), int(ideal.sum()), int(used.sum())

    def records(self) -> tuple[BankConflicts, ...]:
        """What was counted, in the order of the program."""
        found = []
        for (number, size, kind), (waves, ideal, accesses) in sorted(self.totals.items()):
            place = self.program.places[number]
            found.append(BankConflicts(place.file, place.line, place.ptx_line, kind, size, accesses, waves, ideal))
        return tuple(found)
