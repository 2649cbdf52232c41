"""tcgen05.alloc, dealloc, relinquish_alloc_permit, ld, st and wait of translated code.

ld and st are asynchronous: a register that tcgen05.ld writes holds a Fragment until tcgen05.wait::ld, and reading it before is an error in strict mode. When the
words really move is chosen at random between issue and wait, unless the seed is 0.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.hardware.tensor_memory_moves import LOAD_SHAPES, tensor_memory_access

from .accumulators import Fragment, Owner
from .errors import EmulationError
from .ops_memory import array_of, store_shared
from .report import Access, Race
from .tensor_state import TensorState, state_of
from .tmem import EVERY_GROUP, LANE_GROUP, TensorMemoryError, cells, split_address
from .values import Value, collapse, select

if TYPE_CHECKING:
    from .gang import Gang


# -- allocation ------------------------------------------------------------------------------------------------------------------


def split_warps(g: Gang, block: int, following: int) -> int | None:
    """Divides a gang of several warps, one side for each: an instruction that a single warp executes. None for one warp."""
    g.require_full_warps(g.mask, "this instruction")
    if len(g.warps) == 1:
        return None
    every = np.ones(g.width, np.bool_) if g.mask is None else g.mask
    number = (np.arange(g.width) + g.base) // 32
    return g.split([(every & (number == warp), block) for warp in g.warps], following)


def _uniform(g: Gang, value: Value, what: str) -> int:
    """A value that all threads of a warp must share."""
    if value.__class__ is int:
        return value
    lanes = g.lanes
    part = value[lanes]
    if not bool((part == part[0]).all()):
        other = int(np.flatnonzero(part != part[0])[0])
        raise EmulationError(
            f"{what} must be the same in all threads of the warp: thread {g.base + int(lanes[0])} has {int(part[0]):#x}, thread "
            f"{g.base + int(lanes[other])} {int(part[other]):#x}"
        )
    return int(part[0])


def _pick(state: TensorState) -> Any:
    machine = state.cta.machine
    return (lambda places: places[machine.random.randrange(len(places))]) if machine.shuffled else None


def _check_pair(g: Gang, state: TensorState, what: str) -> None:
    """The pair's other block must run: known by a cluster barrier."""
    peer, cta = state.peer, g.cta
    if not peer.alive.any():
        raise EmulationError(
            f"{what}: the pair's other block {peer.ctaid} has ended; both blocks of a pair must live until the last .cta_group::2 "
            "instruction is done (a cluster barrier before the end)"
        )
    if cta.cluster.phase == 0 and not cta.launch.lenient:
        place = str(g.program.places[g.at])
        access = Access(f"warp {g.warps[0]} of block {cta.ctaid}", what, place)
        cta.launch.checks.report(
            Race(
                "pair used before it is known to run", Access(f"block {peer.ctaid}", "its start", place), access, cta.ctaid, 0,
                "barrier.cluster.arrive and wait by all threads of both blocks before the first .cta_group::2 instruction", space="tensor",
            )
        )  # fmt: skip


def _partner(state: TensorState, g: Gang, request: tuple[str, int, int]) -> Gang | None:
    """The gang of the pair's other block that waits in the same instruction; None: this one must wait for it."""
    what, column, columns = request
    _check_pair(g, state, f"tcgen05.{what}.cta_group::2")
    other = state_of(state.peer)
    if other.offer is None or other.offer[0] != what:
        state.offer = (what, column, columns, g)
        g.waiting = (
            f"tcgen05.{what}.cta_group::2: one warp of each block of the pair executes it; block {state.peer.ctaid} "
            + (f"waits in tcgen05.{other.offer[0]}" if other.offer else "has not")
        )
        return None
    _, their_column, their_columns, gang = other.offer
    if (their_column, their_columns) != (column, columns):
        raise TensorMemoryError(
            "allocation",
            f"tcgen05.{what}.cta_group::2 of {columns} columns{f' from {column}' if what == 'dealloc' else ''}, but the pair's other block "
            f"asks for {their_columns}{f' from {their_column}' if what == 'dealloc' else ''}",
        )
    other.offer = None
    partner: Gang = gang
    return partner


def _members(state: TensorState, group: int) -> list[TensorState]:
    return [state] if group == 1 else [state, state_of(state.peer)]


def _grant(state: TensorState, partner: Gang, column: int) -> None:
    """The other block's warp goes on: what it waits for has been done for both."""
    state_of(state.peer).granted[partner] = column
    state.cta.machine.wake([partner])


def tmem_alloc(g: Gang, address: Value, columns: Value, group: int) -> bool:
    """tcgen05.alloc. Returns whether it is done; else the gang waits for columns, or for the pair's other block."""
    state = state_of(g.cta)
    target = _uniform(g, address, "tcgen05.alloc's address")
    column = state.granted.pop(g, None)
    if column is None:
        count = _uniform(g, columns, "tcgen05.alloc's number of columns")
        state.use_group(group, g)
        state.memory.request(count, group, g.program.places[g.at])
        column = state.memory.place(count, _pick(state))
        if column is None:
            state.waiters.append(g)
            g.waiting = f"tcgen05.alloc of {count} columns: {state.memory.owners()}, and there are 512"
            return False
        if group == 2:
            partner = _partner(state, g, ("alloc", 0, count))
            if partner is None:
                return False
            _grant(state, partner, column)
        races = g.cta.cluster.tensor
        for one in _members(state, group):
            one.memory.take(column, count, group, g.program.places[g.at])
            _log_columns(g, one, "alloc", column, count)
            if races is not None:
                races.allocated(one.cta, cells(EVERY_GROUP, column, count))
    _store_address(g, target, column)
    return True


def _log_columns(g: Gang, state: TensorState, what: str, column: int, columns: int) -> None:
    log = g.cta.machine.tensor_log
    if log is not None:
        log.note(g, state.cta, what, (0, 128), column, columns, done=True)


def _store_address(g: Gang, target: int, column: int) -> None:
    """The address goes to shared memory, as an ordinary store of the warp."""
    mask = np.zeros(g.width, np.bool_)
    mask[g.lanes[0]] = True
    store_shared(g, mask, target, column, 4, 1)


def tmem_dealloc(g: Gang, address: Value, columns: Value, group: int) -> bool:
    """tcgen05.dealloc. Returns whether it is done; else the gang waits for the pair's other block."""
    state = state_of(g.cta)
    if state.granted.pop(g, None) is not None:
        return True
    count = _uniform(g, columns, "tcgen05.dealloc's number of columns")
    lane, column = split_address(_uniform(g, address, "tcgen05.dealloc's address"))
    state.use_group(group, g)
    if lane:
        raise TensorMemoryError("allocation", f"tcgen05.dealloc from lane {lane}: an allocation begins at lane 0")
    state.memory.check_free(column, count, group)
    races = g.cta.cluster.tensor
    members = _members(state, group)
    if races is not None:
        for one in members:
            races.released(g, races.rows(g, g.mask)[0], one.cta, cells(EVERY_GROUP, column, count))
    if group == 2:
        partner = _partner(state, g, ("dealloc", column, count))
        if partner is None:
            return False
        _grant(state, partner, 0)
    for one in members:
        one.memory.free(column, count, group)
        _log_columns(g, one, "dealloc", column, count)
        g.cta.machine.wake(one.waiters)
    return True


def tmem_relinquish(g: Gang, group: int) -> bool:
    """tcgen05.relinquish_alloc_permit. Returns whether it is done; else the gang waits for the pair's other block."""
    state = state_of(g.cta)
    if state.granted.pop(g, None) is not None:
        return True
    state.use_group(group, g)
    if group == 2:
        partner = _partner(state, g, ("relinquish_alloc_permit", 0, 0))
        if partner is None:
            return False
        _grant(state, partner, 0)
    for one in _members(state, group):
        one.memory.relinquish(g.program.places[g.at])
    return True


# -- where registers lie ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def register_places(shape: str, repeat: int, packed: bool, split: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(lane, column) of every register of every thread, from the address: (halves, registers, 32); halves 2 if packed, else 1.

    >>> lane, column = register_places("16x256b", 1, False, 0)
    >>> int(lane[0, 2, 5]), int(column[0, 2, 5])
    (9, 2)
    """
    access = tensor_memory_access(shape, repeat, packed)
    halves = 2 if packed else 1
    half, register, thread = np.ogrid[:halves, : access.register_count, :32]
    logical = np.asarray(access.registers((thread + 32 * (32 * register + 16 * half)).reshape(-1)), np.int64)
    bit = np.asarray(access.value_id(logical), np.int64).reshape(halves, access.register_count, 32)
    lane, column = bit >> 21, bit % (1 << 21) // 32
    if shape == "16x32bx2":
        first = access.columns // 2
        column = np.where(column >= first, column - first + split, column)
    return lane.astype(np.intp), column.astype(np.intp)


class _Form:
    """One shape of tcgen05.ld or st."""

    __slots__ = ("columns", "lanes", "name", "packed", "places", "registers", "runs", "simple")

    def __init__(self, name: str, shape: str, repeat: int, packed: bool, split: int) -> None:
        access = tensor_memory_access(shape, repeat, packed)
        self.name = name
        self.packed = packed
        self.registers = access.register_count
        self.lanes = LOAD_SHAPES[shape][0]
        half = access.columns // 2
        self.runs = ((0, half), (split, half)) if shape == "16x32bx2" else ((0, access.columns),)
        self.simple = shape == "32x32b" and not packed
        self.places = register_places(shape, repeat, packed, split)


@functools.lru_cache(maxsize=512)
def _form(name: str, shape: str, repeat: int, packed: bool, split: int) -> _Form:
    return _Form(name, shape, repeat, packed, split)


class _Reach:
    """What one warp's instruction reaches: the first lane and column, and the form."""

    __slots__ = ("column", "form", "lane", "state")

    def __init__(self, g: Gang, state: TensorState, form: _Form, warp: int, address: int) -> None:
        lane, column = split_address(address)
        base = 32 * (warp % 4)
        allowed = (base,) if form.lanes == 32 else (base, base + LANE_GROUP)
        if lane not in allowed:
            if not g.cta.launch.lenient:
                raise TensorMemoryError(
                    "lane rule",
                    f"{form.name} by warp {warp} at lane {lane}: warp w reaches the lanes from 32 * (w % 4), so this one's address must "
                    f"name lane {' or '.join(map(str, allowed))} (bits 16 and up)",
                )
            lane = base + lane % 32 // LANE_GROUP * LANE_GROUP if form.lanes == LANE_GROUP else base
        for start, width in form.runs:
            state.memory.check(column + start, width, form.name)
        self.state, self.form, self.lane, self.column = state, form, lane, column

    def cells(self) -> NDArray[np.intp]:
        """The race check's cells."""
        first = self.lane // LANE_GROUP
        groups = tuple(range(first, first + self.form.lanes // LANE_GROUP))
        parts = [cells(groups, self.column + start, width) for start, width in self.form.runs]
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))

    def require_written(self) -> None:
        """All that is read must have been written."""
        memory = self.state.memory
        lanes = np.arange(self.lane, self.lane + self.form.lanes)
        for start, width in self.form.runs:
            at = self.column + start
            view = memory.written[self.lane : self.lane + self.form.lanes, at : at + width]
            memory.require_written(view, lanes, at, self.form.name)

    def require_words(self) -> None:
        """Nothing that is read may have been decompressed by a copy."""
        memory = self.state.memory
        if memory.decompressed:
            for start, width in self.form.runs:
                at = self.column + start
                held = memory.formats[self.lane : self.lane + self.form.lanes, at : at + width]
                memory.require_format(held, 0, self.form.name)

    def read(self) -> NDArray[np.uint32]:
        """(registers, 32)."""
        words: NDArray[np.uint32] = self.state.memory.words
        form = self.form
        if form.simple:
            return words[self.lane : self.lane + 32, self.column : self.column + form.registers].T
        lane, column = form.places
        found: NDArray[np.uint32] = words[self.lane + lane, self.column + column]
        if form.packed:
            found[0] = (found[0] & 0xFFFF) | found[1] << 16
        first: NDArray[np.uint32] = found[0]
        return first

    def write(self, values: NDArray[np.uint32]) -> None:
        """(registers, 32) into tensor memory."""
        memory, form = self.state.memory, self.form
        if form.simple:
            place: Any = (slice(self.lane, self.lane + 32), slice(self.column, self.column + form.registers))
            memory.words[place] = values.T
        else:
            lane, column = form.places
            place = (self.lane + lane, self.column + column)
            memory.words[place] = np.stack([values & 0xFFFF, values >> 16]) if form.packed else values[None]
        memory.written[place] = True
        if memory.decompressed:
            memory.formats[place] = 0


# -- ld and st -------------------------------------------------------------------------------------------------------------------


class Load(Owner):
    """The registers of one tcgen05.ld until it is waited for."""

    __slots__ = ("late", "pending")

    def __init__(self, count: int, width: int, place: int) -> None:
        self.fragments = [Fragment(self, index) for index in range(count)]
        self.copied = self.stale = False
        self.rows = np.zeros((count, width), np.uint32)
        self.place = place
        self.pending: set[int] = set()
        self.late: dict[int, tuple[_Reach, slice]] = {}

    def take(self, warp: int) -> None:
        """Reads the words of one warp, if that has not been done."""
        found = self.late.pop(warp, None)
        if found is not None:
            reach, lanes = found
            self.rows[:, lanes] = reach.read()

    def complete(self) -> None:
        """Reads all words: some time after the issue."""
        for warp in tuple(self.late):
            self.take(warp)

    def describe(self) -> str:
        """For reports."""
        return "tcgen05.ld"

    def value(self, index: int, g: Gang, at: int) -> Value:
        """A register's value. Raises if the load may still be under way."""
        if self.pending and not self.pending.isdisjoint(g.warps):
            g.at = at
            raise EmulationError(
                f"a register that tcgen05.ld writes ({g.program.places[self.place]}) is read before tcgen05.wait::ld: the load may still "
                "be under way"
            )
        row = self.rows[index]
        return row[g.lane].item() if g.lane >= 0 else row

    def refuse_write(self, g: Gang, at: int) -> None:
        """An ordinary instruction writes a register that the load will write."""
        if self.pending and not self.pending.isdisjoint(g.warps) and not self.copied:
            g.at = at
            raise EmulationError(
                f"a register that tcgen05.ld writes ({g.program.places[self.place]}) is written before tcgen05.wait::ld: the load may "
                "still be under way"
            )


def _warps(g: Gang, m: Any, what: str) -> list[tuple[int, slice]]:
    """(warp, its lanes in the gang) of the warps that execute."""
    if g.width % 32:
        raise EmulationError(f"{what} in a block whose last warp is not full")
    g.require_full_warps(m, what)
    if m is None or m is g.mask:
        warps = g.warps
    else:
        warps = tuple((np.flatnonzero(m.reshape(-1, 32).any(axis=1)) + g.base // 32).tolist())
    return [(warp, slice(32 * warp - g.base, 32 * warp - g.base + 32)) for warp in warps]


def _address(address: Value, lanes: slice, warp: int, what: str) -> int:
    if address.__class__ is int:
        return address
    part = address[lanes]
    if not bool((part == part[0]).all()):
        raise EmulationError(
            f"{what}: the threads of warp {warp} give different addresses: {int(part.min()):#x} to {int(part.max()):#x}"
        )
    return int(part[0])


def tmem_load(
    g: Gang,
    R: list[Any],
    m: Any,
    slots: tuple[int, ...],
    shape: str,
    repeat: int,
    packed: bool,
    split: int,
    address: Value,
) -> None:
    """tcgen05.ld."""
    form = _form("tcgen05.ld", shape, repeat, packed, split)
    cta = g.cta
    state = state_of(cta)
    races = cta.cluster.tensor
    lenient = cta.launch.lenient
    load = Load(form.registers, g.width, g.at)
    late = cta.machine.shuffled and cta.machine.random.random() < 0.5
    for warp, lanes in _warps(g, m, "tcgen05.ld"):
        reach = _Reach(g, state, form, warp, _address(address, lanes, warp, "tcgen05.ld"))
        if races is not None:
            races.load(g, cta.rank * races.races.warps + warp, reach.cells())
        reach.require_words()
        if not lenient:
            reach.require_written()
        if late and not lenient:
            load.late[warp] = (reach, lanes)
        else:
            load.rows[:, lanes] = reach.read()
        if not lenient:
            load.pending.add(warp)
            state.loads.setdefault(warp, []).append(load)
        _log_warp(g, state, warp, reach, "ld")
    if load.late:
        cta.machine.fly(load)
    whole = m is None or m is g.mask
    for slot, fragment in zip(slots, load.fragments, strict=True):
        old = R[slot]
        if old.__class__ is Fragment:
            old.owner.refuse_write(g, g.at)
        if lenient or not whole:
            value: Any = collapse(load.rows[fragment.index])
            if not whole:
                load.complete()
                value = load.rows[fragment.index]
                held = old.read(g, g.at) if old.__class__ is Fragment else old
                value = select(m, value, held, 32)
            R[slot] = value[g.lane].item() if g.lane >= 0 and value.__class__ is np.ndarray else value
        else:
            R[slot] = fragment


def _log_warp(g: Gang, state: TensorState, warp: int, reach: _Reach, what: str) -> None:
    log = g.cta.machine.tensor_log
    if log is not None:
        for start, width in reach.form.runs:
            lanes = (reach.lane, reach.form.lanes)
            number = log.note(g, state.cta, what, lanes, reach.column + start, width, warp=warp)
            state.logged.setdefault((warp, what), []).append(number)


class _Store:
    """A tcgen05.st that has not been done yet."""

    __slots__ = ("done", "place", "reach", "values")

    def __init__(self, place: int, reach: _Reach, values: NDArray[np.uint32]) -> None:
        self.place = place
        self.reach = reach
        self.values = values
        self.done = False

    def complete(self) -> None:
        """Writes tensor memory, once."""
        if not self.done:
            self.done = True
            self.reach.write(self.values)

    def describe(self) -> str:
        """For reports."""
        return "tcgen05.st"


def tmem_store(
    g: Gang, m: Any, shape: str, repeat: int, packed: bool, split: int, address: Value, values: tuple[Value, ...]
) -> None:
    """tcgen05.st."""
    form = _form("tcgen05.st", shape, repeat, packed, split)
    cta = g.cta
    cta.machine.idle = 0
    state = state_of(cta)
    races = cta.cluster.tensor
    table = np.array([array_of(value, 4, g.width) for value in values])
    late = cta.machine.shuffled and not cta.launch.lenient and cta.machine.random.random() < 0.5
    for warp, lanes in _warps(g, m, "tcgen05.st"):
        reach = _Reach(g, state, form, warp, _address(address, lanes, warp, "tcgen05.st"))
        if races is not None:
            races.store(g, cta.rank * races.races.warps + warp, reach.cells())
        if late:
            store = _Store(g.at, reach, table[:, lanes])
            state.stores.setdefault(warp, []).append(store)
            cta.machine.fly(store)
        else:
            reach.write(table[:, lanes])
        _log_warp(g, state, warp, reach, "st")


def tmem_wait(g: Gang, m: Any, kind: str) -> None:
    """tcgen05.wait::ld and wait::st."""
    cta = g.cta
    state = state_of(cta)
    races = cta.cluster.tensor
    for warp, _ in _warps(g, m, f"tcgen05.wait::{kind}"):
        if kind == "ld":
            for load in state.loads.pop(warp, ()):
                load.take(warp)
                load.pending.discard(warp)
        else:
            for store in state.stores.pop(warp, ()):
                store.complete()
        if cta.machine.tensor_log is not None:
            cta.machine.tensor_log.done(state.logged.pop((warp, kind), []))
        if races is not None:
            races.waited(cta.rank * races.races.warps + warp, kind)
