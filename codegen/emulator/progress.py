"""How far a long emulation has come, told now and then to whoever asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scheduler import Machine

_STEPS = 32
"""Turns of the scheduler between two looks at the clock."""


@dataclass(frozen=True)
class Progress:
    """What an emulation has done so far: host seconds, PTX instructions, wgmma instructions issued, blocks ended of all."""

    seconds: float
    instructions: int
    multiplies: int
    ended: int
    blocks: int

    def remaining(self, multiplies: int | None = None) -> float | None:
        """Host seconds that are left at this pace, None while nothing can be said. ``multiplies``: how many wgmma
        instructions the whole launch issues, if known; a persistent kernel's blocks all end at the end.

        >>> Progress(2.0, 1000, 50, 0, 132).remaining(multiplies=200), Progress(2.0, 1000, 0, 33, 132).remaining()
        (6.0, 6.0)
        """
        done, whole = (self.multiplies, multiplies) if multiplies else (self.ended, self.blocks)
        return None if not done else self.seconds * max(whole - done, 0) / done


class Watch:
    """Calls ``report`` with a :class:`Progress` at most every ``interval`` seconds; the scheduler calls it every turn."""

    def __init__(self, machine: Machine, report: Callable[[Progress], None], interval: float = 0.2) -> None:
        self._machine = machine
        self._report = report
        self._interval = interval
        self._start = time.perf_counter()
        self._next = self._start + interval
        self._turns = 0

    def __call__(self) -> None:
        self._turns += 1
        if self._turns % _STEPS:
            return
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + self._interval
            self._report(self.progress())

    def progress(self) -> Progress:
        """How far it has come."""
        machine = self._machine
        return Progress(
            seconds=time.perf_counter() - self._start,
            instructions=machine.instructions,
            multiplies=machine.multiplies,
            ended=machine.ended,
            blocks=machine.clusters * machine.cluster_size,
        )
