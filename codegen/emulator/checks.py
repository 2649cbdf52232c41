"""Collects races and broken rules of one launch, each pair of places once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .report import Access, Race

if TYPE_CHECKING:
    from .cta import Cta
    from .launch import Launch

_LIMIT = 200


class Checks:
    """What was found so far."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._found: dict[tuple[str, str, str, str], Race] = {}

    def report(self, race: Race) -> None:
        """Takes in a race; the same kind between the same two places is counted."""
        key = (race.kind, race.first.place, race.second.place, race.second.operation)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, count=known.count + 1)
        elif len(self._found) < _LIMIT:
            self._found[key] = race

    def races(self) -> tuple[Race, ...]:
        """All races, in the order in which they were first seen."""
        return tuple(self._found.values())

    def block_end(self, cta: Cta) -> None:
        """A block has ended: no asynchronous work may be left that uses its shared memory."""
        if not self.launch.strict:
            return
        places = self.launch.program.places
        for thread, groups in cta.bulk.items():
            for operation in (*groups.open, *(one for group in groups.closed for one in group)):
                if not operation.done:
                    operation.complete()
                    self.left(
                        cta,
                        f"thread {thread}",
                        operation.describe(),
                        str(places[operation.place]),
                        "cp.async.bulk.wait_group before the end",
                    )
        for base, group in cta.warpgroups.items():
            if group.queue.pending or group.queue.uncommitted:
                self.left(
                    cta,
                    f"warpgroup {base // 128}",
                    "wgmma in flight",
                    str(places[-1]),
                    "wgmma.wait_group before the end",
                )
        if cta.races is not None:
            for agent, place, missing in cta.races.block_end(cta):
                self.left(cta, agent, self.launch.program.instructions[place].opcode, str(places[place]), missing)

    def left(self, cta: Cta, agent: str, operation: str, place: str, missing: str) -> None:
        """Takes in asynchronous work that a block has left behind."""
        access = Access(agent, operation, place)
        self.report(
            Race("end with work in flight", access, Access(f"block {cta.ctaid}", "end", place), cta.ctaid, 0, missing)
        )
