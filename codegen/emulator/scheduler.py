"""Runs the gangs of all blocks in turn, completes asynchronous operations in between, and notices when nobody can go on.

Order: a gang runs until it waits, divides or ends. The next block of the grid starts when nobody is ready, up to 132 resident blocks (one
for each SM of an H200), so blocks that wait for each other through global memory find each other; a gang that polls is parked until memory
changes there, or until nobody else has a turn. Where blocks take over others (clusterlaunchcontrol), few are resident. With seed 0 asynchronous
operations complete in the order of issue; with another seed in any order, and gangs take turns in any order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .cta import Cluster, Cta, cluster_origin
from .deadlock import deadlock_error
from .errors import EmulationError
from .faults import MachineError
from .gang import EXIT, PARK, SPLIT, YIELD, Gang

if TYPE_CHECKING:
    from .cta import Barrier, NamedBarrier
    from .launch import Launch
    from .ops_order import Polling
    from .tensor_log import TensorLog

RESIDENT = 132
"""Blocks that may run at once: the SMs of an H200, one block on each."""
QUANTUM = 2_000
"""Blocks of code after which a gang lets others run."""
PATIENCE = 4_000
"""Turns without any event after which polling threads count as dead."""


class AsyncOperation(Protocol):
    """Work of the copy engine that is in flight."""

    place: int

    def complete(self) -> None:
        """Moves the data and tells whoever waits."""

    def describe(self) -> str:
        """For reports."""


class Machine:
    """All blocks of a launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.random = random.Random(launch.seed)
        self.shuffled = launch.seed != 0
        self.ready: deque[Gang] = deque()
        self.gangs: list[Gang] = []
        self.flying: list[AsyncOperation] = []
        self.polling: list[Gang] = []
        self.polled: tuple[int, int] | None = None
        """Gangs parked until memory changes, and the addresses (first, end) between which they look."""
        self.resident = 0
        self.next_cluster = 0
        self.cluster_size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        self.clusters = launch.grid[0] * launch.grid[1] * launch.grid[2] // self.cluster_size
        self.idle = 0
        self.instructions = 0
        self.time = 0
        self.multiplies = 0
        self.ended = 0
        self.watch: Callable[[], None] | None = None
        self.tensor_log: TensorLog | None = None
        self.room = self._room()

    # -- the loop ----------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs the whole grid. Raises EmulationError, DeadlockError."""
        ready = self.ready
        if self.launch.program.cancels_launches:
            while self._start():
                pass
        while True:
            if not ready:
                if self.flying:
                    self._complete(all_of_them=not self.shuffled)
                elif not self._start():
                    if self._loosen() or self._poll_again():
                        continue
                    if self.gangs:
                        raise deadlock_error(self, polling=bool(self.polling))
                    return
                continue
            if self.shuffled and len(ready) > 1:
                ready.rotate(self.random.randrange(len(ready)))
            self.step(ready.popleft())
            if self.watch is not None:
                self.watch()
            if self.flying and (not self.shuffled or self.random.random() < 0.5):
                self._complete(all_of_them=not self.shuffled)
            if self.idle > PATIENCE and not self.flying and not self._start():
                raise deadlock_error(self, polling=True)

    def step(self, g: Gang) -> None:
        """Runs one gang until it waits, divides, ends or has had its turn."""
        functions, sizes = g.program.functions, g.program.sizes
        registers, stop = g.registers, g.stop
        pc, count, budget = g.pc, 0, QUANTUM
        try:
            while pc != stop:
                if pc < 0:
                    break
                count += sizes[pc]
                pc = functions[pc](g, registers)
                budget -= 1
                if not budget:
                    g.pc, pc = pc, YIELD
                    self.idle += PATIENCE // 1000
                    break
        except MachineError as fault:
            raise self._located(EmulationError(str(fault)), g) from fault
        except EmulationError as error:
            if error.place is None:
                raise self._located(error, g) from error
            raise
        self.instructions += count
        self.time += count
        if pc in (stop, EXIT):
            self.finish(g, pc == EXIT)
        elif pc == YIELD:
            # Perhaps it polls for what another block will do.
            self.idle += 1
            self.ready.append(g)
            self._start()
        elif pc == SPLIT:
            self.idle = 0

    def _located(self, error: EmulationError, g: Gang) -> EmulationError:
        place = g.program.places[g.at]
        instruction = g.program.instructions[g.at]
        made = type(error)(f"{error.message}\n  in {instruction}\n  by {g.who()}", place)
        if hasattr(error, "waits"):
            return error
        return made

    def finish(self, g: Gang, exited: bool) -> None:
        """A gang has come to its join, or its threads have ended."""
        self.idle = 0
        if exited and (g.mask is None or g.mask.any()):
            g.cta.exit_threads(g, g.mask)
        self.gangs.remove(g)
        parent = g.parent
        if parent is None:
            g.cta.gangs -= 1
            if not g.cta.gangs:
                self._end(g.cta)
            return
        if parent.finish_child(g, exited):
            if parent.mask is not None and not parent.mask.any():
                self.finish(parent, True)
            else:
                self.ready.append(parent)

    def divide(self, g: Gang) -> None:
        """Takes in the children of a divided gang."""
        self.gangs.extend(g.children)
        self.ready.extendleft(reversed(g.children))

    def wake(self, gangs: list[Gang]) -> None:
        """Gangs that waited may look again."""
        self.idle = 0
        for g in gangs:
            if g.waiting is not None:
                g.waiting = None
                self.ready.append(g)
        gangs.clear()

    # -- polls -------------------------------------------------------------------------------------------------------------------

    def park_poll(self, g: Gang, polling: Polling) -> None:
        """A gang only sees again what it saw before: it has its next turn when that changes, or when nobody else has one."""
        g.waiting = polling
        self.polling.append(g)
        low, high = polling.span()
        self.polled = (low, high) if self.polled is None else (min(low, self.polled[0]), max(high, self.polled[1]))

    def global_written(self, address: Any = None, size: int = 0) -> None:
        """Global memory was written, at an address (of each thread) or anywhere: who polls another value now goes on."""
        if self.polled is None:
            return
        if address is not None:
            several = address.__class__ is np.ndarray
            low, high = (int(address.min()), int(address.max())) if several else (address, address)
            if low >= self.polled[1] or high + size <= self.polled[0]:
                return
        woken = [g for g in self.polling if g.waiting.changed(g)]
        if woken:
            self._unpark(woken)
            self.idle = 0

    def _unpark(self, woken: list[Gang]) -> None:
        left = [g for g in self.polling if g not in woken]
        self.polling, self.polled = [], None
        for g in left:
            self.park_poll(g, g.waiting)
        for g in woken:
            g.waiting = None
            self.ready.append(g)

    def _poll_again(self) -> bool:
        """Nobody can go on but by polling: perhaps a thread polls only so often. Without any event it is a deadlock after some rounds."""
        if not self.polling or self.idle > PATIENCE:
            return False
        self.idle += PATIENCE // 400
        self._unpark(self.polling)
        return True

    def _loosen(self) -> bool:
        """Nobody can go on: warps that wait only for other warps of their gang at a join go on alone."""
        hoisted = [g for g in reversed(self.gangs) if g.open and g.hoist()]
        for g in hoisted:
            self.hoisted(g)
        made = [new for g in self.gangs if g.open for new in (g.loosen(),) if new is not None]
        self.gangs.extend(made)
        self.ready.extend(made)
        return bool(made or hoisted)

    def hoisted(self, g: Gang) -> None:
        """A gang has ended: its children go on as its parent's."""
        self.gangs.remove(g)

    # -- blocks ------------------------------------------------------------------------------------------------------------------

    def cancel_cluster(self) -> tuple[int, int, int] | None:
        """Takes the next cluster off the grid (clusterlaunchcontrol); its first block, or None if none is left or the hardware refuses."""
        if self.next_cluster >= self.clusters or (self.shuffled and self.random.random() < 0.05):
            return None
        found = cluster_origin(self.launch, self.next_cluster)
        self.next_cluster += 1
        self.ended += self.cluster_size
        return found

    def _room(self) -> int:
        """How many clusters may be resident. A kernel that takes over clusters meets a machine smaller than its grid, of some size."""
        if not self.launch.program.cancels_launches:
            return max(RESIDENT // self.cluster_size, 1)
        return self.random.randint(1, 4) if self.shuffled else 2

    def _start(self) -> bool:
        """Starts the next cluster, if one is left and there is room."""
        if self.next_cluster >= self.clusters or self.resident + self.cluster_size > self.room * self.cluster_size:
            return False
        cluster = Cluster(self.launch, self, self.next_cluster)
        self.next_cluster += 1
        self.resident += self.cluster_size
        program = self.launch.program
        for cta in cluster.ctas:
            step = 128 if program.uses_warpgroups else self.launch.threads if self.launch.threads <= 1024 else 128
            for base in range(0, self.launch.threads, step):
                g = Gang(program, cta, base, min(step, self.launch.threads - base))
                cta.gangs += 1
                self.gangs.append(g)
                self.ready.append(g)
        return True

    def _end(self, cta: Cta) -> None:
        """A block has ended: what it must not leave behind is checked."""
        self.resident -= 1
        self.ended += 1
        self.launch.checks.block_end(cta)
        if cta.tensor is not None:
            cta.tensor.end()

    # -- asynchronous operations -------------------------------------------------------------------------------------------------

    def fly(self, operation: AsyncOperation) -> None:
        """Takes in an operation of the copy engine."""
        self.flying.append(operation)

    def _complete(self, all_of_them: bool) -> None:
        flying = self.flying
        if all_of_them:
            self.flying = []
            for operation in flying:
                self._land(operation)
            return
        for _ in range(self.random.randint(1, len(flying))):
            self._land(flying.pop(self.random.randrange(len(flying))))

    def _land(self, operation: AsyncOperation) -> None:
        self.idle = 0
        try:
            operation.complete()
        except MachineError as fault:
            program = self.launch.program
            raise EmulationError(
                f"{fault}\n  in {program.instructions[operation.place]}, when it completed",
                program.places[operation.place],
            ) from fault

    # -- barriers ----------------------------------------------------------------------------------------------------------------

    def phase_complete(self, barrier: Barrier) -> None:
        """An mbarrier has changed its phase."""
        if barrier.waiters:
            self.wake(barrier.waiters)

    def recheck_named(self, cta: Cta) -> None:
        """Threads have ended: a barrier of all threads may be complete."""
        for barrier in cta.named.values():
            if barrier.waiters and not barrier.expected:
                self.check_named(cta, barrier)

    def check_named(self, cta: Cta, barrier: NamedBarrier) -> bool:
        """Whether a named barrier is complete; if so it starts anew and its waiters go on."""
        needed = barrier.expected or 32 * cta.alive_warps
        if barrier.arrived < needed:
            return False
        if barrier.arrived > needed:
            raise EmulationError(
                f"named barrier {barrier.number}: {barrier.arrived} threads have arrived where {needed} were expected"
            )
        if cta.races is not None:
            cta.races.named_complete(cta, barrier)
        if barrier.voters:
            for g in barrier.waiters:
                g.reduced = (barrier.votes, barrier.voters)
            barrier.votes = barrier.voters = 0
        barrier.arrived = 0
        barrier.expected = 0
        barrier.arrivers = []
        barrier.clock = None
        self.wake(barrier.waiters)
        return True

    def recheck_cluster(self, cta: Cta) -> None:
        """Threads have ended: the cluster barrier may be complete."""
        if cta.cluster.arrived:
            self.check_cluster(cta.cluster)

    def check_cluster(self, cluster: Cluster) -> None:
        """Completes the cluster barrier's phase if every thread that lives has arrived."""
        waiting = sum(int((cta.alive & (cta.cluster_token < cluster.phase)).sum()) for cta in cluster.ctas)
        if waiting:
            return
        cluster.phase += 1
        cluster.arrived = 0
        cluster.done_clock = cluster.clock
        cluster.clock = None
        self.wake(cluster.waiters)


def parked(g: Gang, waiting: Any) -> None:
    """Notes what a gang waits for."""
    g.waiting = waiting


__all__ = ["PARK", "AsyncOperation", "Machine", "parked"]
