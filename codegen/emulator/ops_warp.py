"""Shuffles, votes, named barriers, cluster barriers and register counts of translated code."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import EmulationError
from .values import UNSIGNED, Value, collapse, signed

if TYPE_CHECKING:
    from .gang import Gang


def _active(g: Gang, m: Any) -> Any:
    """(warps, 32) bool: who executes; lanes that the gang lacks do not."""
    full = np.ones(g.width, np.bool_) if m is None else m
    pad = -g.width % 32
    return (np.pad(full, (0, pad)) if pad else full).reshape(-1, 32)


def _table(g: Gang, value: Value, kind: Any) -> Any:
    """(warps, 32) of a value."""
    pad = -g.width % 32
    if value.__class__ is not np.ndarray:
        return np.full((-(-g.width // 32), 32), value, kind)
    return (np.pad(value, (0, pad)) if pad else value).reshape(-1, 32)


def _back(g: Gang, table: Any) -> Any:
    return table.reshape(-1)[: g.width]


def _whole_warps(g: Gang, m: Any) -> bool:
    """Whether of every warp all threads execute or none."""
    if m is None:
        return True
    if g.width % 32:
        return False
    counts = np.add.reduce(m.reshape(-1, 32), axis=1, dtype=np.int64)
    return bool(((counts == 0) | (counts == 32)).all())


@functools.cache
def _leaders(width: int) -> Any:
    return np.arange(width) % 32 == 0


def _check_members(g: Gang, m: Any, members: Value, what: str) -> None:
    """A .sync instruction must be executed by exactly the threads that its mask names (those that have ended aside)."""
    if members.__class__ is int and members == 0xFFFFFFFF and _whole_warps(g, m):
        return
    active = _active(g, m)
    table = _table(g, members, np.uint32)
    for warp in range(active.shape[0]):
        if not active[warp].any():
            continue
        base = g.base + 32 * warp
        alive = np.zeros(32, np.bool_)
        here = g.cta.alive[base : base + 32]
        alive[: here.size] = here
        mask = int(table[warp][active[warp]][0])
        wanted = np.array([mask >> lane & 1 for lane in range(32)], np.bool_)
        missing = wanted & alive & ~active[warp]
        strangers = active[warp] & ~wanted
        if strangers.any():
            lane = int(np.flatnonzero(strangers)[0])
            raise EmulationError(
                f"{what}: thread {base + lane} executes it, but the member mask {mask:#010x} does not name lane {lane}"
            )
        if missing.any() and not g.cta.launch.lenient:
            lane = int(np.flatnonzero(missing)[0])
            raise EmulationError(
                f"{what}: the member mask {mask:#010x} names lane {lane}, but thread {base + lane} does not execute it together with "
                f"{int(active[warp].sum())} others of its warp"
            )


def shuffle(g: Gang, m: Any, mode: str, a: Value, b: Value, c: Value, members: Value) -> tuple[Value, Value]:
    """shfl.sync -> (value, in range)."""
    _check_members(g, m, members, "shfl.sync")
    if mode == "idx" and b.__class__ is int and c.__class__ is int and c & 0x1F1F == 31 and _whole_warps(g, m):
        # The usual broadcast of one lane to its whole warp.
        if a.__class__ is int:
            return a, True
        if g.width % 32 == 0:
            return collapse(np.repeat(a.reshape(-1, 32)[:, b & 31], 32)), True
    lane = np.arange(32)
    source = _table(g, a, np.uint32)
    offset = _table(g, b, np.uint32).astype(np.int64) & 31
    control = _table(g, c, np.uint32).astype(np.int64)
    clamp, segment = control & 31, control >> 8 & 31
    highest = (lane & segment) | (clamp & ~segment & 31)
    lowest = lane & segment
    if mode == "up":
        picked = lane - offset
        valid = picked >= highest
    elif mode == "down":
        picked = lane + offset
        valid = picked <= highest
    elif mode == "bfly":
        picked = lane ^ offset
        valid = picked <= highest
    else:
        picked = lowest | (offset & ~segment & 31)
        valid = picked <= highest
    picked = np.where(valid, picked, lane)
    active = _active(g, m)
    asleep = ~np.take_along_axis(active, picked, 1) & active
    if asleep.any():
        warp, at = (int(part[0]) for part in np.nonzero(asleep))
        raise EmulationError(
            f"shfl.sync: lane {at} of warp {warp + g.base // 32} reads lane {int(picked[warp, at])}, which does not execute it"
        )
    value = collapse(_back(g, np.take_along_axis(source, picked, 1)))
    flags = _back(g, np.broadcast_to(valid, picked.shape))
    return value, bool(flags[0]) if bool((flags == flags[0]).all()) else flags.copy()


def _ballots(g: Gang, m: Any, predicate: Value) -> Any:
    """(warps,) uint32: the executing lanes whose predicate holds."""
    table = _table(g, predicate, np.bool_) & _active(g, m)
    return (table.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(axis=1).astype(np.uint32)


def vote(g: Gang, m: Any, mode: str, predicate: Value, members: Value) -> Value:
    """vote.sync."""
    _check_members(g, m, members, "vote.sync")
    yes = _ballots(g, m, predicate)
    every = _ballots(g, m, True)
    if mode == "ballot":
        return collapse(np.repeat(yes, 32)[: g.width])
    found = yes == every if mode == "all" else yes != 0 if mode == "any" else (yes == every) | (yes == 0)
    flags = np.repeat(found, 32)[: g.width]
    return bool(flags[0]) if bool((flags == flags[0]).all()) else flags


def active_mask(g: Gang, m: Any) -> Value:
    """activemask."""
    return collapse(np.repeat(_ballots(g, m, True), 32)[: g.width])


def match(g: Gang, m: Any, all_of_them: bool, value: Value, members: Value) -> tuple[Value, Value]:
    """match.sync -> (lanes with the same value, whether all have it)."""
    _check_members(g, m, members, "match.sync")
    table = _table(g, value, np.uint64 if value.__class__ is int else value.dtype)
    active = _active(g, m)
    same = (table[:, :, None] == table[:, None, :]) & active[:, None, :]
    masks = (same.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=2).astype(np.uint32)
    every = _ballots(g, m, True)
    full = masks == every[:, None]
    if all_of_them:
        masks = np.where(full, masks, np.uint32(0))
    return _back(g, masks), _back(g, full)


def warp_reduce(g: Gang, m: Any, operation: str, value: Value, members: Value, is_signed: bool) -> Value:
    """redux.sync."""
    _check_members(g, m, members, "redux.sync")
    table = _table(g, value, np.uint32)
    active = _active(g, m)
    numbers = signed(np.ascontiguousarray(table), 32) if is_signed else table
    result = []
    for row, who in zip(numbers, active, strict=True):
        part = row[who]
        if not part.size:
            result.append(0)
            continue
        function = {
            "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
        }[operation]  # fmt: skip
        result.append(int(function.reduce(part, dtype=part.dtype)) & 0xFFFFFFFF)
    return collapse(np.repeat(np.array(result, np.uint32), 32)[: g.width])


def elect(g: Gang, m: Any, members: Value) -> tuple[Value, Value]:
    """elect.sync -> (whether this lane is the leader, the leader's lane): the lowest lane that the mask names."""
    _check_members(g, m, members, "elect.sync")
    if m is None:
        return _leaders(g.width), 0
    active = _active(g, m)
    first = active.argmax(axis=1)
    leaders = np.zeros(active.shape, np.bool_)
    rows = np.flatnonzero(active.any(axis=1))
    leaders[rows, first[rows]] = True
    if m is not None and m.sum() == 1:
        return True, int(first[rows[0]])
    return _back(g, leaders), collapse(np.repeat(first.astype(np.uint32), 32)[: g.width])


def warp_sync(g: Gang, m: Any, members: Value) -> None:
    """bar.warp.sync."""
    _check_members(g, m, members, "bar.warp.sync")
    if g.cta.races is not None:
        g.cta.races.warp_sync(g, m)


def set_register_count(g: Gang, count: int, increase: bool) -> bool:
    """setmaxnreg. Returns whether the registers are there; else the gang waits for others to give theirs back."""
    cta = g.cta
    launch = cta.launch
    if count % 8 or not 24 <= count <= 256:
        raise EmulationError(f"setmaxnreg {count}: must be a multiple of 8 in 24..256")
    warps = g.warps
    groups = sorted({warp // 4 for warp in warps})
    last = -(-cta.threads // 32)
    needed = [warp for group in groups for warp in range(4 * group, min(4 * group + 4, last))]
    if list(warps) != needed or (
        g.mask is not None and not bool((cta.alive[g.base : g.base + g.width] == g.mask).all())
    ):
        g.require_full_warps(g.mask, "setmaxnreg")
        if list(warps) != needed and not launch.lenient:  # Triton's warps execute it one by one
            raise EmulationError(
                f"setmaxnreg {count} is executed by {g.who()}: every warp of a warpgroup must execute it, a part of one is undefined"
            )
    total = 0
    for warp in warps:
        held = cta.warp_registers[warp]
        if (increase and count < held) or (not increase and count > held):
            raise EmulationError(
                f"setmaxnreg.{'inc' if increase else 'dec'} {count}, but warp {warp} has {held} registers a thread "
                f"(launched with {launch.registers_per_thread})"
            )
        total += (count - held) * 32
    if total > cta.free_registers:
        cta.register_waiters.append(g)
        g.waiting = (
            f"setmaxnreg.inc {count}: needs {total} more registers, {cta.free_registers} are free of the "
            f"{launch.registers_per_thread * cta.threads} the block was launched with ({launch.registers_per_thread} x {cta.threads}); "
            + ", ".join(f"warp {warp} has {held}" for warp, held in sorted(cta.warp_registers.items()) if warp % 4 == 0)
        )
        return False
    cta.free_registers -= total
    for warp in warps:
        cta.warp_registers[warp] = count
    if total < 0:
        cta.machine.wake(cta.register_waiters)
    return True


# -- named barriers --------------------------------------------------------------------------------------------------------------


def _one_number(g: Gang, value: Value, what: str) -> int:
    if value.__class__ is int:
        return value
    active = value if g.mask is None else value[g.mask]
    if bool((active == active[0]).all()):
        return int(active[0])
    raise EmulationError(f"{what} differs between the threads of {g.who()}: not modelled")


def _arrive(g: Gang, number: Value, count: Value, aligned: bool, waits: bool) -> Any:
    cta = g.cta
    barrier = cta.named_barrier(_one_number(g, number, "the barrier's number"))
    threads = _one_number(g, count, "the barrier's thread count")
    if threads % 32 or threads > 1024:
        raise EmulationError(f"barrier {barrier.number} with {threads} threads: must be a multiple of 32, at most 1024")
    if aligned:
        g.require_full_warps(g.mask, f"bar.sync {barrier.number}")
    if barrier.arrived and barrier.expected != threads:
        raise EmulationError(
            f"barrier {barrier.number} with {threads or 'all'} threads, but others wait in it with {barrier.expected or 'all'}"
        )
    for warp in g.warps:
        if any(warp == other and g is not gang for other, gang, _ in barrier.arrivers) and aligned:
            raise EmulationError(f"warp {warp} arrives twice at barrier {barrier.number} in one turn of it")
    barrier.expected = threads
    barrier.arrived += 32 * len(g.warps)
    barrier.arrivers.extend((warp, g, g.at) for warp in g.warps)
    if cta.races is not None:
        cta.races.named_arrive(g, barrier)
    return barrier


def bar_sync(g: Gang, number: Value, count: Value, aligned: bool) -> bool:
    """bar.sync: arrive and wait. Returns whether the barrier is complete."""
    barrier = _arrive(g, number, count, aligned, True)
    barrier.waiters.append(g)
    g.waiting = barrier
    if g.cta.machine.check_named(g.cta, barrier):
        # This gang was woken with the others: it need not queue.
        g.cta.machine.ready.remove(g)
        return True
    return False


def bar_reduce(g: Gang, number: Value, count: Value, aligned: bool, predicate: Value) -> tuple[int, int] | None:
    """bar.red: (threads whose predicate holds, threads) once the barrier is complete; None: the gang waits."""
    found = g.reduced
    if found is not None:
        g.reduced = None
        return found
    barrier = _arrive(g, number, count, aligned, True)
    lanes = g.count
    if predicate.__class__ is np.ndarray:
        barrier.votes += int(np.count_nonzero(predicate if g.mask is None else predicate & g.mask))
    else:
        barrier.votes += lanes if predicate else 0
    barrier.voters += lanes
    barrier.waiters.append(g)
    g.waiting = barrier
    if g.cta.machine.check_named(g.cta, barrier):
        g.cta.machine.ready.remove(g)
        found, g.reduced = g.reduced, None
        return found
    return None


def bar_arrive(g: Gang, number: Value, count: Value, aligned: bool) -> None:
    """bar.arrive."""
    barrier = _arrive(g, number, count, aligned, False)
    g.cta.machine.check_named(g.cta, barrier)


# -- clusters --------------------------------------------------------------------------------------------------------------------


def cluster_arrive(g: Gang, aligned: bool, release: bool) -> None:
    """barrier.cluster.arrive."""
    cta = g.cta
    cluster = cta.cluster
    if aligned:
        g.require_full_warps(g.mask, "barrier.cluster.arrive")
    threads = g.base + g.lanes
    if bool((cta.cluster_token[threads] >= cluster.phase).any()):
        raise EmulationError(f"barrier.cluster.arrive twice by {g.who()} without a wait in between")
    cta.cluster_token[threads] = cluster.phase
    cluster.arrived += len(threads)
    if cta.races is not None:
        cta.races.cluster_arrive(g, release)
    cta.machine.check_cluster(cluster)


def cluster_wait(g: Gang, aligned: bool) -> bool:
    """barrier.cluster.wait. Returns whether the phase is complete."""
    cta = g.cta
    cluster = cta.cluster
    if aligned:
        g.require_full_warps(g.mask, "barrier.cluster.wait")
    tokens = cta.cluster_token[g.base + g.lanes]
    if bool((tokens < 0).any()):
        raise EmulationError(f"barrier.cluster.wait by {g.who()} without a barrier.cluster.arrive since its last wait")
    if bool((tokens < cluster.phase).all()):
        cta.cluster_token[g.base + g.lanes] = -1
        if cta.races is not None:
            cta.races.cluster_wait(g)
        return True
    cluster.waiters.append(g)
    g.waiting = cluster
    return False


def split_off(g: Gang, mask: Any, block: int, following: int) -> int:
    """Threads whose guard holds execute a waiting instruction, the others go on to the block after it."""
    every = np.ones(g.width, np.bool_) if g.mask is None else g.mask
    return g.split([(mask, block), (every & ~mask, following)], following)


def split_by_value(g: Gang, values: tuple[Value, ...], block: int, following: int) -> int | None:
    """Divides a gang whose threads have different values, one side for each; None if all agree."""
    arrays = [value for value in values if value.__class__ is np.ndarray]
    if not arrays:
        return None
    every = np.ones(g.width, np.bool_) if g.mask is None else g.mask
    keys = np.stack([array.astype(np.int64) for array in arrays], axis=1)
    different = np.unique(keys[every], axis=0)
    if len(different) == 1:
        return None
    return g.split([(every & (keys == key).all(axis=1), block) for key in different], following)


def clock(g: Gang, width: int) -> int:
    """A clock that never stands still: instructions run so far."""
    g.cta.machine.time += 1
    return int(g.cta.machine.time) & ((1 << width) - 1)


def lanes_of(value: Value, lanes: int, width: int) -> Any:
    """One entry for each lane."""
    return value if value.__class__ is np.ndarray else np.full(lanes, value, UNSIGNED[width])
