"""Notes what is done to tensor memory, in order, for pictures of an accumulator's life. Has no times, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .report import TensorEvent

if TYPE_CHECKING:
    from .cta import Cta
    from .gang import Gang


class TensorLog:
    """What happened so far.

    >>> TensorLog().events()
    ()
    """

    def __init__(self) -> None:
        self._events: list[TensorEvent] = []
        self._ends: list[int] = []
        self._step = 0

    def note(
        self,
        g: Gang,
        cta: Cta,
        what: str,
        lanes: tuple[int, int],
        column: int,
        columns: int,
        thread: int = -1,
        warp: int = -1,
        done: bool = False,
        fresh: bool = False,
    ) -> int:
        """Something begins on the tensor memory of `cta`, by a thread or a warp of the gang. Returns its number, for `done`."""
        mask = None
        if thread >= 0 or warp >= 0:
            number = np.arange(g.width) + g.base
            mask = number == thread if thread >= 0 else number // 32 == warp
        place = str(g.program.places[g.at])
        self._events.append(
            TensorEvent(cta.ctaid, what, self._step, -1, lanes, column, columns, g.who(mask), place, fresh)
        )
        self._ends.append(self._step if done else -1)
        self._step += 1
        return len(self._events) - 1

    def done(self, numbers: list[int]) -> None:
        """These are done."""
        for number in numbers:
            self._ends[number] = self._step
        if numbers:
            self._step += 1

    def events(self) -> tuple[TensorEvent, ...]:
        """Everything, in the order of issue."""
        return tuple(replace(one, done=end) for one, end in zip(self._events, self._ends, strict=True))
