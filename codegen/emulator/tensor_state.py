"""What a block has of the tensor core: its tensor memory, the operations in flight, and the rules that hold for the whole block.

A block gets one when it executes its first tcgen05 instruction: `state_of(cta)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import EmulationError
from .tcgen05_queue import Queue
from .tmem import TensorMemory, TensorMemoryError
from .tmem_races import TensorRaces

if TYPE_CHECKING:
    from .cta import Cta
    from .gang import Gang


class TensorState:
    """`loads`, `stores`: by warp, what tcgen05.wait has to wait for. `queues`: by thread."""

    def __init__(self, cta: Cta) -> None:
        self.cta = cta
        self.memory = TensorMemory()
        self.queues: dict[int, Queue] = {}
        self.loads: dict[int, list[Any]] = {}
        self.stores: dict[int, list[Any]] = {}
        self.waiters: list[Gang] = []
        self.collectors: dict[str, tuple[object, bytes]] = {}
        """What the collector buffers hold."""
        self.logged: dict[tuple[int, str], list[int]] = {}
        self.group = 0
        self.offer: tuple[str, int, int, Any] | None = None
        """What a warp of this block asks for together with one of the pair's other block: (what, column, columns, gang)."""
        self.granted: dict[Any, int] = {}
        self.synchronised = False
        """Whether the pair is known to run: a cluster barrier was completed."""
        self._group_place: Any = None

    def queue(self, thread: int) -> Queue:
        """The operations of a thread."""
        found = self.queues.get(thread)
        if found is None:
            found = self.queues[thread] = Queue(self.cta, thread)
        return found

    def use_group(self, group: int, g: Gang) -> None:
        """All tcgen05 instructions of a kernel have one .cta_group (PTX ISA, tcgen05.alloc and others)."""
        if self.group == group:
            return
        place = g.program.places[g.at]
        if self.group:
            raise TensorMemoryError(
                "group",
                f".cta_group::{group} in a block that has used .cta_group::{self.group} ({self._group_place}): all tcgen05 instructions of a "
                "kernel must have the same",
            )
        if group == 2:
            size = self.cta.cluster.size
            if size % 2:
                raise TensorMemoryError(
                    "group",
                    f".cta_group::2 in a cluster of {size}: it needs pairs of blocks, so an even cluster (__cluster_dims__ or the launch attribute)",
                )
            peer = self.peer
            if peer.tensor is not None and peer.tensor.group == 1:
                raise TensorMemoryError("group", ".cta_group::2, but the pair's other block has used .cta_group::1")
        self.group = group
        self._group_place = place

    @property
    def peer(self) -> Cta:
        """The other block of the pair: their ranks differ in the lowest bit (PTX ISA 9.1, section 9.7.16.5)."""
        return self.cta.cluster.ctas[self.cta.rank ^ 1]

    def members(self, group: int) -> tuple[Cta, ...]:
        """The blocks that an instruction of that group works on, the even-ranked one first."""
        if group == 1:
            return (self.cta,)
        peer = self.peer
        return (self.cta, peer) if self.cta.rank < peer.rank else (peer, self.cta)

    def end(self) -> None:
        """The block has ended: nothing may be left."""
        if self.memory.allocations:
            one = next(iter(self.memory.allocations.values()))
            raise EmulationError(
                f"block {self.cta.ctaid} has ended with tensor memory that it did not deallocate: "
                + ", ".join(str(each) for each in self.memory.allocations.values())
                + "; tcgen05.dealloc it before the end, in every path",
                one.where if hasattr(one.where, "ptx_line") else None,
            )
        races = self.cta.cluster.tensor
        if races is None or self.cta.launch.lenient:
            return
        checks, program = self.cta.launch.checks, self.cta.launch.program
        for agent, place, missing in races.block_end(self.cta):
            checks.left(self.cta, agent, program.instructions[place].opcode, str(program.places[place]), missing)


def state_of(cta: Cta) -> TensorState:
    """The state of a block, made when it is first asked for."""
    found: TensorState | None = cta.tensor
    if found is None:
        found = cta.tensor = TensorState(cta)
        if cta.races is not None and cta.cluster.tensor is None:
            cta.cluster.tensor = TensorRaces(cta.races)
    return found
