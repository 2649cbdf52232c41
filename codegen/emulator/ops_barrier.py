"""mbarriers and fences of translated code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cta import Barrier, Cta
from .errors import EmulationError
from .values import Value

if TYPE_CHECKING:
    from .gang import Gang


class Waiting:
    """What a gang parked on mbarriers waits for: for each the parity, or a token, and the phase then in progress."""

    __slots__ = ("targets",)

    def __init__(self) -> None:
        self.targets: list[tuple[Barrier, int, bool, int]] = []


def lane_values(g: Gang, m: Any, *values: Value) -> list[tuple[tuple[int, ...], int]]:
    """The different tuples of values of the executing threads, and how many threads have each."""
    if all(value.__class__ is int for value in values):
        count = 1 if g.lane >= 0 else g.width if m is None else int(np.count_nonzero(m))
        return [(values, count)]
    lanes = np.arange(g.width) if m is None else np.flatnonzero(m)
    counts: dict[tuple[int, ...], int] = {}
    columns = [
        value[lanes].tolist() if value.__class__ is np.ndarray else [int(value)] * len(lanes) for value in values
    ]
    for key in zip(*columns, strict=True):
        counts[key] = counts.get(key, 0) + 1
    return list(counts.items())


def phase_check(barrier: Barrier, before: int) -> None:
    """After any operation on a barrier: a new phase wakes who waits."""
    if barrier.phase == before:
        return
    races = barrier.cta.races
    if races is not None:
        races.phase_complete(barrier)
    barrier.cta.machine.phase_complete(barrier)


def mbarrier_init(g: Gang, m: Any, address: Value, count: Value) -> None:
    """mbarrier.init: the 8 bytes then belong to the barrier."""
    for (at, amount), threads in lane_values(g, m, address, count):
        if threads > 1:
            raise EmulationError(
                f"mbarrier.init of {at:#x} by {threads} threads at once: all but the first find a barrier that lives"
            )
        cta = g.cta.cluster.of_address(at) if g.cta.ranks > 1 else g.cta
        if cta is not g.cta:
            raise EmulationError(f"mbarrier.init of {at:#x} in another block of the cluster")
        if at % 8:
            raise EmulationError(f"mbarrier.init: address {at:#x} is not a multiple of 8")
        barrier = cta.barriers.get(at)
        if barrier is None:
            barrier = Barrier(at, cta)
        barrier.init(amount, _where(g), _who(g))
        if cta.races is not None:
            cta.races.barrier_init(g, m, barrier)
        cta.shared.guard(at, 8, "mbarrier")
        cta.barriers[at] = barrier


def mbarrier_invalidate(g: Gang, m: Any, address: Value) -> None:
    """mbarrier.inval: the bytes are ordinary memory again."""
    for (at,), _ in lane_values(g, m, address):
        barrier = g.cta.barrier(at)
        if barrier.waiters:
            raise EmulationError(f"{barrier.describe()}: invalidated while {barrier.waiters[0].who()} waits on it")
        barrier.invalidate(_where(g), _who(g))
        g.cta.shared.release(at)
        del g.cta.barriers[at]


def _where(g: Gang) -> Any:
    return g.program.places[g.at]


def _who(g: Gang) -> Any:
    return Who(g)


class Who:
    """A gang's threads in words, made when a report is written."""

    __slots__ = ("g", "mask")

    def __init__(self, g: Gang) -> None:
        self.g = g
        self.mask = g.mask

    def __str__(self) -> str:
        return self.g.who(np.ones(self.g.width, np.bool_) if self.mask is None else self.mask)


def mbarrier_arrive(
    g: Gang, m: Any, address: Value, value: Value, expect: bool, drop: bool, partial: bool, remote: bool, release: bool
) -> Value:
    """mbarrier.arrive with all its forms; returns the token."""
    token = 0
    machine = g.cta.machine
    machine.idle = 0
    for (at, amount), threads in lane_values(g, m, address, value):
        cta = g.cta.cluster.of_address(at) if remote else g.cta
        barrier = cta.barrier(at)
        races = cta.races
        left = threads
        while left:
            before = barrier.phase
            if races is not None:
                races.arrive(barrier, g, m, release)
            if expect:
                token = barrier.arrive_expect_tx(amount, 1, _where(g), _who(g))
                left -= 1
            else:
                step = min(left, max(1, barrier.pending // amount if amount else left))
                token = barrier.arrive(amount * step, _where(g), _who(g), drop, partial)
                left -= step
            phase_check(barrier, before)
            if left and barrier.phase != before and not g.cta.launch.lenient:
                # Here the warps of a gang arrive at once; on the chip the last ones may still be at work when the phase completes without them.
                raise EmulationError(
                    f"{barrier.describe()}: phase {before} completed with {threads - left} of the {threads} arrivals of "
                    f"{g.who()}, and the rest count for the next phase: the barrier's count is too low for the threads that arrive, "
                    "or some arrived twice"
                )
    return token


def mbarrier_tx(g: Gang, m: Any, address: Value, size: Value, expect: bool, remote: bool) -> None:
    """mbarrier.expect_tx and complete_tx."""
    for (at, amount), threads in lane_values(g, m, address, size):
        cta = g.cta.cluster.of_address(at) if remote else g.cta
        barrier = cta.barrier(at)
        for _ in range(threads):
            before = barrier.phase
            if cta.races is not None:
                cta.races.touch_barrier(barrier, g, m)
            if expect:
                barrier.expect_tx(amount, _where(g), _who(g))
            else:
                barrier.complete_tx(amount, _where(g), _who(g))
            phase_check(barrier, before)


def _done(barrier: Barrier, value: int, by_parity: bool) -> bool:
    return barrier.test_parity(value) if by_parity else barrier.test_state(value)


def _impatient(g: Gang) -> bool:
    """Whether try_wait gives up: after a time that the hardware chooses it returns false, so that it needs a loop around it (PTX ISA,
    "mbarrier.try_wait").
    """
    machine = g.cta.machine
    return machine.shuffled and machine.random.random() < 0.1


def try_wait(g: Gang, address: Value, value: Value, by_parity: bool, blocks: bool, acquire: bool) -> Value | None:
    """try_wait and test_wait: whether the phase is complete; None: the gang is parked until a phase completes."""
    cta = g.cta
    if by_parity and cta.launch.lenient:
        # PTX allows 0 and 1 only; the chip takes the lowest bit, and Triton relies on it.
        value = value & 1
    if address.__class__ is int and value.__class__ is int:
        barrier = cta.barriers.get(address) or cta.barrier(address)
        if _done(barrier, value, by_parity):
            g.last_wait = None
            if cta.races is not None:
                cta.races.wait(barrier, g, None, acquire)
            return True
        if not blocks:
            return False
        last = g.last_wait
        if last is not None and last[0] is barrier and barrier.phase - last[1] > 1:
            raise EmulationError(
                f"{barrier.describe()}: the wait for parity {value} began in phase {last[1]}, and two phases were completed before "
                "it looked again: it has missed its phase (others must not run ahead of a waiter by two phases)"
            )
        g.last_wait = (barrier, barrier.phase)
        if _impatient(g):
            return False
        waiting = Waiting()
        waiting.targets.append((barrier, value, by_parity, barrier.phase))
        barrier.waiters.append(g)
        g.waiting = waiting
        return None
    return _try_wait_lanes(g, address, value, by_parity, blocks, acquire)


def _try_wait_lanes(
    g: Gang, address: Value, value: Value, by_parity: bool, blocks: bool, acquire: bool
) -> Value | None:
    """Threads that wait on different barriers or for different parities."""
    cta = g.cta
    waiting = Waiting()
    result = np.zeros(g.width, np.bool_)
    for (at, wanted), _ in lane_values(g, g.mask, address, value):
        barrier = cta.barrier(at)
        here = np.ones(g.width, np.bool_) if g.mask is None else g.mask.copy()
        here &= (address == at) & (value == wanted)
        if _done(barrier, wanted, by_parity):
            if cta.races is not None:
                cta.races.wait(barrier, g, here, acquire)
            result |= here
        else:
            waiting.targets.append((barrier, wanted, by_parity, barrier.phase))
    if result.any() or not blocks or _impatient(g):
        if bool((result if g.mask is None else result[g.mask]).all()):
            return True
        return result if result.any() else False
    for barrier, *_ in waiting.targets:
        barrier.waiters.append(g)
    g.waiting = waiting
    return None


# -- fences ----------------------------------------------------------------------------------------------------------------------


def fence_proxy_async(g: Gang, m: Any, space: str) -> None:
    """fence.proxy.async: generic accesses before it are ordered with asynchronous ones after it."""
    if g.cta.races is not None:
        g.cta.races.fence_proxy(g, m, space)


def fence_mbarrier_init(g: Gang, m: Any) -> None:
    """fence.mbarrier_init."""
    if g.cta.races is not None:
        g.cta.races.fence_barrier_init(g, m)


def owner_of(cta: Cta, address: int) -> Cta:
    """The block of a shared::cluster address."""
    return cta.cluster.of_address(address)
