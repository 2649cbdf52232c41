"""Finds blocks that touch the same bytes of global memory, one of them writing, with nothing that orders blocks.

Every block is one agent, so what happens within a block is not looked at here. A kernel that has instructions by which blocks may
wait for each other (atomics, acquire and release, fences of the whole device) is left alone: that order is not followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .global_shadow import GlobalShadow
from .report import Access, Race
from .shadow import Actor, Conflict

if TYPE_CHECKING:
    from .cta import Cta
    from .launch import Launch
    from .ptx import Instruction
    from .tensor_copy import BoundTensorMap, TensorCopy

_ORDERING = frozenset({"acquire", "release", "acq_rel", "relaxed", "sc", "volatile", "mmio"})


def orders_blocks(item: Instruction) -> bool:
    """Whether blocks may be ordered by this instruction through global memory."""
    parts = frozenset(item.parts)
    if parts & {"shared", "shared::cta", "shared::cluster"} or item.parts[0] in ("mbarrier", "barrier", "wgmma", "cp"):
        return False
    if item.parts[0] in ("atom", "red", "membar"):
        return True
    if item.parts[0] == "fence":
        return bool(parts & {"gpu", "sys"})
    return item.parts[0] in ("ld", "st") and bool(parts & _ORDERING)


class GlobalRaces:
    """The accesses of all blocks of a launch to the arrays that are written."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.shadow = GlobalShadow(launch.memory)
        self.blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self._actors: dict[int, Actor] = {}
        self._ctaids: dict[int, tuple[int, int, int]] = {}
        self._written: set[int] = set()

    def _actor(self, cta: Cta) -> Actor:
        x, y, z = cta.ctaid
        number = x + self.launch.grid[0] * (y + self.launch.grid[1] * z)
        found = self._actors.get(number)
        if found is None:
            clock = np.zeros(self.blocks, np.uint32)
            clock[number] = 1
            found = self._actors[number] = Actor(number, 1, clock)
            self._ctaids[number] = cta.ctaid
        return found

    def lanes(self, cta: Cta, m: Any, address: Any, size: int, where: int, write: bool) -> None:
        """Loads and stores of threads."""
        addresses = address if address.__class__ is np.ndarray else np.array([address], np.uint64)
        mask = m if address.__class__ is np.ndarray else None
        first = int(addresses[0] if mask is None else addresses[int(mask.argmax())])
        start = self.launch.memory.find(first, 1).address
        if write:
            self._written.add(start)
            found = self.shadow.write_lanes(self._actor(cta), addresses, size, where, mask)
        elif start in self._written:
            found = self.shadow.read_lanes(self._actor(cta), addresses, size, where, mask)
        else:
            return
        if found:
            self._report(found, cta)

    def rows(self, cta: Cta, bound: BoundTensorMap, copied: TensorCopy, where: int, write: bool) -> None:
        """Tensor copies."""
        start = bound.inside
        if not write and start not in self._written:
            return
        starts, length = copied.global_rows()
        if not length:
            return
        if write:
            self._written.add(start)
            found = self.shadow.write_rows(self._actor(cta), starts, length, where)
        else:
            found = self.shadow.read_rows(self._actor(cta), starts, length, where)
        if found:
            self._report(found, cta)

    def _report(self, conflicts: list[Conflict], cta: Cta) -> None:
        program = self.launch.program
        for one in conflicts:
            first = Access(
                f"block {self._ctaids[one.other_agent]}",
                program.instructions[one.other_where].opcode,
                str(program.places[one.other_where]),
            )
            second = Access(
                f"block {cta.ctaid}", program.instructions[one.where].opcode, str(program.places[one.where])
            )
            allocation = self.launch.memory.find(one.low, 1)
            missing = f"blocks must write different bytes of {allocation.name!r} (here byte {one.low - allocation.address}), or be ordered"
            self.launch.checks.report(Race(one.kind, first, second, cta.ctaid, one.low, missing, space="global"))
