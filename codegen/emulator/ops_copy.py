"""Copies of translated code: tensor copies, bulk copies, cp.async. Each becomes an operation in flight that completes later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import bulk_copy, tensor_copy, tensor_gather
from .cta import RANK_SHIFT, Barrier, BulkGroups, Cta
from .errors import EmulationError
from .faults import MemoryAccessError
from .ops_barrier import Who, phase_check
from .values import Value, signed

if TYPE_CHECKING:
    from .gang import Gang

_LOCAL = (1 << RANK_SHIFT) - 1


def each_thread(g: Gang, m: Any, *values: Value) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(lane, values as ints) of each executing thread: every one of them issues a copy of its own."""
    if g.lane >= 0:
        lane = g.lane
        yield lane, tuple(value if value.__class__ is int else int(value[lane]) for value in values)
        return
    lanes = range(g.width) if m is None else np.flatnonzero(m).tolist()
    for lane in lanes:
        yield lane, tuple(int(value[lane]) if value.__class__ is np.ndarray else int(value) for value in values)


_Text = tuple[str, Any, Any]
"""What an operation is, where, and the tensor map if it has one; put into words only for a report."""


def _text(parts: _Text) -> str:
    what, where, bound = parts
    return f"{what} {where}" if bound is None else f"{what} {where} of {bound.map.dtype} tensor {bound.map.shape}"


def _inside(cta: Cta, ranges: Any) -> None:
    """The whole of a copy must lie in the block's shared memory."""
    shared = cta.shared
    for low, high in ranges:
        if low < shared.base or high > shared.base + shared.size:
            raise MemoryAccessError(
                "out of bounds", f"a copy of the shared bytes {low:#x}..{high - 1:#x}; {shared.extent()}"
            )


class InFlight:
    """A copy into shared memory of one block or several, each with its barrier."""

    __slots__ = ("move", "place", "targets", "text", "who")

    def __init__(self, g: Gang, targets: list[tuple[Cta, int, Barrier, Any]], move: Any, text: _Text) -> None:
        self.place = g.at
        self.who = Who(g)
        self.targets = targets
        self.move = move
        self.text = text

    def complete(self) -> None:
        """Lands the bytes and counts them on the barriers."""
        for cta, address, barrier, stamp in self.targets:
            size = self.move(cta, address)
            before = barrier.phase
            if cta.races is not None:
                cta.races.landed(barrier, stamp)
            barrier.complete_tx(size, cta.launch.program.places[self.place], self.who)
            phase_check(barrier, before)

    def describe(self) -> str:
        """For reports."""
        return _text(self.text)


def _multicast(g: Gang, target: int, barrier: int, ranks: int | None, group: int = 0) -> list[tuple[Cta, int, Barrier]]:
    """The destinations: one block, or with a mask the same offsets in each block that it names.

    With .cta_group::2 the barrier may be that of the other block of a destination's pair: all even ones or all odd ones
    (PTX ISA, cp.async.bulk.tensor).
    """
    cluster = g.cta.cluster
    home = barrier >> RANK_SHIFT
    if ranks is None:
        cta = cluster.of_address(target)
        if home != cta.rank and (group != 2 or home >> 1 != cta.rank >> 1):
            allowed = "in its block or the other one of its pair" if group == 2 else "in its block"
            raise EmulationError(
                f"a copy to shared memory of block {cta.rank} of the cluster with its mbarrier in block {home}: it must be {allowed}"
            )
        return [(cta, target, cluster.of_address(barrier).barrier(barrier))]
    if ranks >> cluster.size or not ranks:
        raise EmulationError(f"multicast mask {ranks:#x} in a cluster of {cluster.size} blocks")
    found = []
    for rank in range(cluster.size):
        if ranks >> rank & 1:
            base = rank << RANK_SHIFT
            cta = cluster.ctas[rank]
            owner = cluster.ctas[rank & ~1 | home & 1] if group == 2 else cta
            found.append((cta, target & _LOCAL | base, owner.barrier(barrier & _LOCAL | owner.rank << RANK_SHIFT)))
    return found


def _box_ranges(bound: Any, position: tuple[int, ...], address: int, four: bool, store: bool = False) -> Any:
    """Where a copy lies in shared memory, after the checks of its issue. `four`: of a column and four rows of a matrix."""
    if four:
        tensor_gather.check(bound, position[0], position[1:], address, store)
        return tensor_gather.shared_ranges(bound, address)
    tensor_copy.check(bound, position, address, store=store)
    return tensor_copy.shared_ranges(bound, address)


def tensor_load(
    g: Gang,
    m: Any,
    target: Value,
    tensor: Value,
    coordinates: tuple[Value, ...],
    barrier: Value,
    ranks: Value,
    group: int = 0,
    four: bool = False,
) -> None:
    """cp.async.bulk.tensor into shared memory."""
    launch = g.cta.launch
    given = (target, tensor, barrier, 0 if ranks is None else ranks, *coordinates)
    for lane, (to, at, bar, mask, *where) in each_thread(g, m, *given):
        bound = launch.tensor_map(at, g.cta)
        position = bound.position(tuple(signed(one, 32) for one in where))
        ranges = _box_ranges(bound, position, to, four)
        targets = []
        for cta, address, one in _multicast(g, to, bar, None if ranks is None else mask, group):
            stamp = None
            if cta.races is not None:
                shift = address - to
                places = [(low + shift, high + shift) for low, high in ranges]
                _inside(cta, places)
                stamp = cta.races.bulk_load(g, lane, cta, places, one)
            targets.append((cta, address, one, stamp))
        issued = None if launch.global_races is None else launch.global_races.load(g, lane, targets[0][2])

        def move(
            cta: Cta, address: int, bound: Any = bound, position: Any = position, at: int = g.at, issued: Any = issued
        ) -> int:
            copied: Any
            if four:
                copied = tensor_gather.gather(bound, position[0], position[1:], cta.shared, address)
            else:
                copied = tensor_copy.load(bound, position, cta.shared, address)
            if issued is not None:
                issued.rows(*copied.global_rows(), at, False)
            return int(copied.bytes)

        g.cta.machine.fly(InFlight(g, targets, move, ("tensor load of box", position, bound)))


def bulk_load(
    g: Gang,
    m: Any,
    target: Value,
    source: Value,
    size: Value,
    barrier: Value,
    ranks: Value,
    from_global: bool,
    reduction: Any,
    kind: Any,
) -> None:
    """cp.async.bulk into shared memory, from global memory or from another block's shared memory."""
    launch = g.cta.launch
    given = (target, source, size, barrier, 0 if ranks is None else ranks)
    for lane, (to, at, length, bar, mask) in each_thread(g, m, *given):
        targets = []
        for cta, address, one in _multicast(g, to, bar, None if ranks is None else mask):
            stamp = None
            if cta.races is not None:
                _inside(cta, [(address, address + length)])
                stamp = cta.races.bulk_load(g, lane, cta, [(address, address + length)], one)
            targets.append((cta, address, one, stamp))
        home = None if from_global else g.cta.cluster.of_address(at)
        if home is not None and home.races is not None:
            _inside(home, [(at, at + length)])
            home.races.bulk_source(g, lane, home, [(at, at + length)], targets[0][2])

        issued = (
            None
            if home is not None or launch.global_races is None
            else launch.global_races.load(g, lane, targets[0][2])
        )

        def move(
            cta: Cta,
            address: int,
            at: int = at,
            length: int = length,
            home: Cta | None = home,
            issued: Any = issued,
            place: int = g.at,
        ) -> int:
            if home is None:
                if issued is not None:
                    issued.rows(np.array([at], np.int64), length, place, False)
                return bulk_copy.load(launch.memory, at, cta.shared, address, length)
            if reduction is not None:
                bulk_copy.reduce_between(home.shared, at, cta.shared, address, length, kind, reduction)
                return length
            bulk_copy.between(home.shared, at, cta.shared, address, length)
            return length

        g.cta.machine.fly(InFlight(g, targets, move, ("bulk copy of bytes", length, None)))


# -- stores: tracked by groups ---------------------------------------------------------------------------------------------------


class _Store:
    """A copy out of shared memory that has not been done yet."""

    __slots__ = ("done", "move", "place", "text")

    def __init__(self, place: int, move: Any, text: _Text) -> None:
        self.place = place
        self.move = move
        self.text = text
        self.done = False

    def complete(self) -> None:
        """Reads shared memory and writes global memory, once."""
        if not self.done:
            self.done = True
            self.move()

    def describe(self) -> str:
        """For reports."""
        return _text(self.text)


def _groups(g: Gang, lane: int) -> BulkGroups:
    thread = g.base + lane
    found = g.cta.bulk.get(thread)
    if found is None:
        found = g.cta.bulk[thread] = BulkGroups()
    return found


def _lanes(g: Gang, m: Any) -> Any:
    if g.lane >= 0:
        return (g.lane,)
    return range(g.width) if m is None else np.flatnonzero(m).tolist()


def _issued_store(g: Gang, lane: int) -> Any:
    """A store as an agent of the check of global memory, if there is one."""
    races = g.cta.launch.global_races
    return None if races is None else races.store(g, lane, _groups(g, lane))


def _issue_store(g: Gang, lane: int, ranges: Any, move: Any, text: _Text) -> None:
    groups = _groups(g, lane)
    if g.cta.races is not None:
        _inside(g.cta, ranges)
        g.cta.races.bulk_store(g, lane, g.cta, ranges, groups)
    operation = _Store(g.at, move, text)
    groups.open.append(operation)
    machine = g.cta.machine
    if machine.shuffled and machine.random.random() < 0.5:
        machine.fly(operation)


def tensor_store(
    g: Gang,
    m: Any,
    tensor: Value,
    coordinates: tuple[Value, ...],
    source: Value,
    reduction: str | None,
    four: bool = False,
) -> None:
    """cp.async.bulk.tensor out of shared memory, and cp.reduce.async.bulk.tensor."""
    launch, machine = g.cta.launch, g.cta.machine
    shared = g.cta.shared
    made: set[tuple[int, ...]] = set()
    for lane, (at, start, *where) in each_thread(g, m, tensor, source, *coordinates):
        bound = launch.tensor_map(at, g.cta)
        position = bound.position(tuple(signed(one, 32) for one in where))
        ranges = _box_ranges(bound, position, start, four, store=True)
        # The chip's instruction is a warp's: lanes that name one copy do not race with each other (CuTe's kernels store with whole warps).
        key = ((g.base + lane) // 32, at, start, *where)
        issued = None if key in made else _issued_store(g, lane)
        made.add(key)

        def move(
            bound: Any = bound, position: Any = position, start: int = start, at: int = g.at, issued: Any = issued
        ) -> None:
            copied: Any
            if four:
                copied = tensor_gather.scatter(bound, position[0], position[1:], shared, start)
            elif reduction is None:
                copied = tensor_copy.store(bound, position, shared, start)
            else:
                copied = tensor_copy.reduce(bound, position, shared, start, reduction)
            if issued is not None:
                issued.rows(*copied.global_rows(), at, True, reduction is not None)
            machine.global_written()

        _issue_store(g, lane, ranges, move, ("tensor store to box", position, bound))


def bulk_store(
    g: Gang, m: Any, target: Value, source: Value, size: Value, reduction: str | None, kind: str | None
) -> None:
    """cp.async.bulk out of shared memory."""
    launch, machine, shared = g.cta.launch, g.cta.machine, g.cta.shared
    for lane, (to, at, length) in each_thread(g, m, target, source, size):
        issued = _issued_store(g, lane)

        def move(to: int = to, at: int = at, length: int = length, issued: Any = issued, place: int = g.at) -> None:
            if reduction is None or kind is None:
                bulk_copy.store(launch.memory, to, shared, at, length)
            else:
                bulk_copy.reduce(launch.memory, to, shared, at, length, kind, reduction)
            if issued is not None:
                # A reduction's steps are relaxed atomics at the scope of the device (PTX ISA, "cp.reduce.async.bulk").
                strong = reduction is not None
                issued.rows(np.array([to], np.int64), length, place, True, strong)
            machine.global_written()

        _issue_store(g, lane, [(at, at + length)], move, ("bulk store of bytes", length, None))


def bulk_commit(g: Gang, m: Any) -> None:
    """cp.async.bulk.commit_group."""
    for lane in _lanes(g, m):
        groups = g.cta.bulk.get(g.base + lane)
        if groups is not None:
            groups.closed.append(groups.open)
            groups.open = []
            groups.groups += 1


def bulk_wait(g: Gang, m: Any, pending: int, read: bool) -> None:
    """cp.async.bulk.wait_group: all groups but the newest `pending` are complete (or have read their source)."""
    for lane in _lanes(g, m):
        groups = g.cta.bulk.get(g.base + lane)
        if groups is None:
            continue
        while len(groups.closed) > pending:
            for operation in groups.closed.pop(0):
                operation.complete()
            groups.read += 1
        if not read:
            groups.written = max(groups.written, groups.groups - pending)
        if g.cta.races is not None:
            g.cta.races.bulk_wait(g, lane, groups)


def tensor_prefetch(g: Gang, m: Any, tensor: Value, coordinates: tuple[Value, ...], four: bool = False) -> None:
    """cp.async.bulk.prefetch.tensor."""
    for _, (at, *where) in each_thread(g, m, tensor, *coordinates):
        bound = g.cta.launch.tensor_map(at, g.cta)
        position = bound.position(tuple(signed(one, 32) for one in where))
        if four:
            tensor_gather.check(bound, position[0], position[1:], 0)
        else:
            tensor_copy.prefetch(bound, position)


def prefetch_tensormap(g: Gang, m: Any, tensor: Value) -> None:
    """prefetch.tensormap: no effect, but the map must be one."""
    for _, (at,) in each_thread(g, m, tensor):
        g.cta.launch.tensor_map(at, g.cta)


# -- cp.async --------------------------------------------------------------------------------------------------------------------


class Copies:
    """cp.async of one warp: instructions issued, by commit group. Lanes of a warp commit and wait together."""

    __slots__ = ("agent", "closed", "done", "groups", "open")

    def __init__(self) -> None:
        self.agent = -1
        self.open: list[Any] = []
        self.closed: list[list[Any]] = []
        self.groups = 0
        self.done = 0


def _copies(g: Gang, warp: int) -> Copies:
    found: Copies | None = g.cta.copies.get(warp)
    if found is None:
        found = g.cta.copies[warp] = Copies()
    return found


def _warps(g: Gang, m: Any) -> list[int]:
    return list(g.warps) if m is g.mask else np.unique((np.flatnonzero(m) + g.base) // 32).tolist()


def copy_async(g: Gang, m: Any, target: Value, source: Value, size: int, filled: Value, ignored: Value) -> None:
    """cp.async: 4, 8 or 16 bytes a thread, zeros after the first `filled` bytes."""
    lanes = g.width
    to = target if target.__class__ is np.ndarray else np.full(lanes, target, np.uint32)
    at = source if source.__class__ is np.ndarray else np.full(lanes, source, np.uint64)
    sizes = filled if filled.__class__ is np.ndarray else np.full(lanes, filled, np.int64)
    if ignored is not None:
        sizes = np.where(ignored, 0, sizes)
    cta = g.cta
    used = to if m is None else to[m]
    _inside(cta, [(int(used.min()), int(used.max()) + size)])
    cta.launch.banks.count(g, m, to, size, "st")
    every = np.ones(lanes, np.bool_) if m is None else m
    numbers = (np.arange(lanes) + g.base) // 32
    for warp in _warps(g, m):
        mask = every & (numbers == warp)
        copies = _copies(g, warp)
        if cta.races is not None:
            cta.races.copy_async(g, warp, mask, to, size, copies)

        _source_lanes(g, mask & (sizes > 0), at, size)

        def move(mask: Any = mask) -> None:
            bulk_copy.copy_lanes(cta.launch.memory, at, cta.shared, to, size, sizes, mask)

        copies.open.append(move)


def _source_lanes(g: Gang, mask: Any, at: Any, size: int) -> None:
    """What cp.async reads of global memory, taken as read when it is issued."""
    races = g.cta.launch.global_races
    if races is not None and mask.any():
        races.lanes(g, mask, at, size, g.at, False)


def copy_commit(g: Gang, m: Any) -> None:
    """cp.async.commit_group."""
    for warp in _warps(g, m):
        copies = _copies(g, warp)
        copies.closed.append(copies.open)
        copies.open = []
        copies.groups += 1


def copy_wait(g: Gang, m: Any, pending: int) -> None:
    """cp.async.wait_group and wait_all (-1)."""
    if pending < 0:
        copy_commit(g, m)
        pending = 0
    for warp in _warps(g, m):
        copies = _copies(g, warp)
        while len(copies.closed) > pending:
            for move in copies.closed.pop(0):
                move()
            copies.done += 1
        if g.cta.races is not None:
            g.cta.races.copy_wait(g, warp, copies)


def copy_arrive(g: Gang, m: Any, address: Value, keep_count: bool) -> None:
    """cp.async.mbarrier.arrive: arrives once the thread's copies so far are done; here they are done at once."""
    from .ops_barrier import mbarrier_arrive

    copy_wait(g, m, -1)
    if keep_count:
        mbarrier_arrive(g, m, address, 1, False, False, False, False, True)
        return
    threads = g.count if m is g.mask else int(np.count_nonzero(m))
    if address.__class__ is not int:
        raise EmulationError("cp.async.mbarrier.arrive without .noinc on different barriers is not modelled")
    # Without .noinc the pending count is raised first, so that the arrival does not count against it (PTX ISA).
    g.cta.barrier(address).pending += threads
    mbarrier_arrive(g, m, address, 1, False, False, False, False, True)
