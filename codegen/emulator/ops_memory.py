"""Loads, stores and atomics of translated code, on the emulated memories. `g` is the gang, `m` the mask of the threads that execute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cta import RANK_SHIFT, Cta
from .errors import EmulationError
from .values import MASK, UNSIGNED, Value, cast, extend, select

if TYPE_CHECKING:
    from .gang import Gang

PARAM_WINDOW = 0x7D00_0000_0000
LOCAL_WINDOW = 0x7E00_0000_0000
SHARED_WINDOW = 0x7F00_0000_0000
_WINDOW_SIZE = 1 << 32


def array_of(value: Value, width: int, lanes: int) -> Any:
    """A value as one entry for each lane."""
    if value.__class__ is np.ndarray:
        return value
    return np.full(lanes, value, UNSIGNED[8 * width])


def first_lane_of(g: Gang, m: Any) -> int:
    """The first thread that executes."""
    return 0 if m is None else int(m.argmax())


def _last_lane(g: Gang, m: Any) -> int:
    return g.width - 1 if m is None else g.width - 1 - int(m[::-1].argmax())


def _one(value: Value, lane: int) -> int:
    return int(value[lane]) if value.__class__ is np.ndarray else int(value)


def _split_int(word: int, width: int, count: int) -> Any:
    if count == 1:
        return word
    step = 8 * width
    return [word >> step * k & MASK[step] for k in range(count)]


# -- shared ----------------------------------------------------------------------------------------------------------------------


def load_shared(g: Gang, m: Any, address: Value, width: int, count: int) -> Any:
    """ld.shared: a value, or a list of `count` values."""
    return _load_block(g, m, g.cta, address, width, count)


def _load_block(g: Gang, m: Any, cta: Cta, address: Value, width: int, count: int) -> Any:
    found = _load_bytes(g, m, cta, address, width, count)
    if cta.races is not None:
        cta.races.generic(g, m, cta, address, width * count, False)
    return found


def _load_bytes(g: Gang, m: Any, cta: Cta, address: Value, width: int, count: int) -> Any:
    if address.__class__ is int:
        if width * count <= 8 or count == 1:
            return _split_int(cta.shared.load(address, width * count), width, count)
        if address % (width * count):
            cta.shared.load(address, width * count)
        return [cta.shared.load(address + width * k, width) for k in range(count)]
    g.cta.launch.banks.count(g, m, address, width * count, "ld")
    found = cta.shared.gather(address, width, count, m)
    return found if count == 1 and found.ndim == 1 else list(found)


def store_shared(g: Gang, m: Any, address: Value, value: Any, width: int, count: int) -> None:
    """st.shared."""
    _store_block(g, m, g.cta, address, value, width, count)


def _store_block(g: Gang, m: Any, cta: Cta, address: Value, value: Any, width: int, count: int) -> None:
    g.cta.machine.idle = 0
    if cta.races is None:
        _store_bytes(g, m, cta, address, value, width, count)
        return
    size = width * count
    lenient = g.cta.launch.lenient
    before = _peek(cta, m, address, size) if lenient else None
    _store_bytes(g, m, cta, address, value, width, count)
    # Threads that store what is there already, or the same at once, without order: harmless, and Triton does it.
    unchanged = before is not None and before == _peek(cta, m, address, size)
    alike = (
        lenient and address.__class__ is int and all(_agree(part, m) for part in ((value,) if count == 1 else value))
    )
    cta.races.generic(g, m, cta, address, size, True, unchanged, alike)


def _agree(value: Value, m: Any) -> bool:
    """Whether all executing threads have one value."""
    if value.__class__ is not np.ndarray:
        return True
    used = value if m is None else value[m]
    return bool((used == used[0]).all())


def _peek(cta: Cta, m: Any, address: Value, size: int) -> bytes:
    """The bytes at the addresses of a store, whatever they are."""
    offsets = np.atleast_1d(np.asarray(address, np.int64) - cta.shared.base)
    if m is not None and offsets.size > 1:
        offsets = offsets[m]
    index = np.clip(offsets[:, None] + np.arange(size), 0, max(cta.shared.bytes.size - 1, 0))
    return bytes(cta.shared.bytes[index].tobytes() + cta.shared.state[index].tobytes())


def _store_bytes(g: Gang, m: Any, cta: Cta, address: Value, value: Any, width: int, count: int) -> None:
    if address.__class__ is int:
        # All threads write one address: one of them wins, here the last.
        lane = _last_lane(g, m)
        values = (value,) if count == 1 else value
        if count > 1 and address % (width * count):
            cta.shared.store(address, width * count, 0)
        for k, part in enumerate(values):
            cta.shared.store(address + width * k, width, _one(part, lane))
        return
    g.cta.launch.banks.count(g, m, address, width * count, "st")
    lanes = g.width
    if count == 1:
        cta.shared.scatter(address, array_of(value, width, lanes), width, 1, m)
    else:
        cta.shared.scatter(address, np.array([array_of(part, width, lanes) for part in value]), width, count, m)


def block_of_address(g: Gang, m: Any, address: Value) -> Any:
    """The blocks of a cluster that addresses name: one block, or (block, mask) for each."""
    if address.__class__ is int:
        return g.cta.cluster.of_address(address)
    ranks = address >> np.uint32(RANK_SHIFT)
    active = ranks if m is None else ranks[m]
    first = int(active[0])
    if bool((active == first).all()):
        return g.cta.cluster.of_address(first << RANK_SHIFT)
    every = np.ones(g.width, np.bool_) if m is None else m
    return [(g.cta.cluster.of_address(int(r) << RANK_SHIFT), every & (ranks == r)) for r in np.unique(active)]


def load_cluster(g: Gang, m: Any, address: Value, width: int, count: int) -> Any:
    """ld.shared::cluster."""
    where = block_of_address(g, m, address)
    if isinstance(where, Cta):
        return _load_block(g, m, where, address, width, count)
    total: Any = None
    for cta, part in where:
        found = _load_block(g, part, cta, address, width, count)
        if total is None:
            total = found
        elif count == 1:
            total = np.where(part, found, total)
        else:
            total = [np.where(part, new, old) for new, old in zip(found, total, strict=True)]
    return total


def store_cluster(g: Gang, m: Any, address: Value, value: Any, width: int, count: int) -> None:
    """st.shared::cluster."""
    where = block_of_address(g, m, address)
    if isinstance(where, Cta):
        _store_block(g, m, where, address, value, width, count)
        return
    for cta, part in where:
        _store_block(g, part, cta, address, value, width, count)


# -- global, constant, local -----------------------------------------------------------------------------------------------------


def load_global(g: Gang, m: Any, address: Value, width: int, count: int) -> Any:
    """ld.global."""
    found = load_const(g, m, address, width, count)
    if g.cta.launch.global_races is not None:
        g.cta.launch.global_races.lanes(g, m, address, width * count, g.at, False)
    return found


def load_const(g: Gang, m: Any, address: Value, width: int, count: int) -> Any:
    """ld.const: constant variables lie in global memory here."""
    memory = g.cta.launch.memory
    if address.__class__ is int:
        if width * count <= 8 or count == 1:
            return _split_int(memory.load(address, width * count), width, count)
        if address % (width * count):
            memory.load(address, width * count)
        return [memory.load(address + width * k, width) for k in range(count)]
    found = memory.gather(address, width, count, m)
    return found if count == 1 and found.ndim == 1 else list(found)


def store_global(g: Gang, m: Any, address: Value, value: Any, width: int, count: int) -> None:
    """st.global."""
    g.cta.machine.idle = 0
    store_global_bytes(g, m, address, value, width, count)
    launch = g.cta.launch
    if launch.global_races is not None:
        launch.global_races.lanes(g, m, address, width * count, g.at, True)
        if launch.order is not None:
            launch.order.overwrote(m, address)
    if g.cta.machine.polled is not None:
        g.cta.machine.global_written(address, width * count)


def store_global_bytes(g: Gang, m: Any, address: Value, value: Any, width: int, count: int) -> None:
    """The bytes of a store, without its checks."""
    memory = g.cta.launch.memory
    if address.__class__ is int:
        lane = _last_lane(g, m)
        if count > 1 and address % (width * count):
            memory.store(address, width * count, 0)
        for k, part in enumerate((value,) if count == 1 else value):
            memory.store(address + width * k, width, _one(part, lane))
        return
    lanes = g.width
    if count == 1:
        memory.scatter(address, array_of(value, width, lanes), width, 1, m)
    else:
        memory.scatter(address, np.array([array_of(part, width, lanes) for part in value]), width, count, m)


def _local(g: Gang) -> Any:
    if g.local is None:
        root = g
        while root.parent is not None:
            root = root.parent
        if root.local is None:
            root.local = np.zeros((root.width, max(g.program.local_size, 16)), np.uint8)
        g.local = root.local
    return g.local


def load_local(g: Gang, m: Any, address: Value, width: int, count: int) -> Any:
    """ld.local: every thread has its own bytes."""
    local = _local(g)
    addresses = array_of(address, 8, g.width).astype(np.int64)
    _check_local(g, m, addresses, width * count)
    kind = UNSIGNED[8 * width]
    table = local.view(kind)
    lanes = np.arange(g.width)
    index = np.clip(addresses // width, 0, table.shape[1] - count)
    found = [table[lanes, index + k] for k in range(count)]
    return found[0] if count == 1 else found


def store_local(g: Gang, m: Any, address: Value, value: Any, width: int, count: int) -> None:
    """st.local."""
    local = _local(g)
    addresses = array_of(address, 8, g.width).astype(np.int64)
    _check_local(g, m, addresses, width * count)
    table = local.view(UNSIGNED[8 * width])
    lanes = np.arange(g.width) if m is None else np.flatnonzero(m)
    index = addresses // width
    for k, part in enumerate((value,) if count == 1 else value):
        table[lanes, index[lanes] + k] = array_of(part, width, g.width)[lanes]


def _check_local(g: Gang, m: Any, addresses: Any, size: int) -> None:
    used = addresses if m is None else addresses[m]
    if (used % size).any() or (used < 0).any() or (used + size > max(g.program.local_size, 16)).any():
        bad = int(used[(used % size != 0) | (used < 0) | (used + size > max(g.program.local_size, 16))][0])
        raise EmulationError(
            f"local access of {size} bytes at {bad:#x}: misaligned or outside the {g.program.local_size} bytes of a thread's stack"
        )


# -- generic ---------------------------------------------------------------------------------------------------------------------


def _space_of(address: int) -> str:
    if PARAM_WINDOW <= address < PARAM_WINDOW + _WINDOW_SIZE:
        return "param"
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + _WINDOW_SIZE:
        return "local"
    if SHARED_WINDOW <= address < SHARED_WINDOW + _WINDOW_SIZE:
        return "cluster"
    return "global"


def spaces_of(g: Gang, m: Any, address: Value) -> list[tuple[str, Any, Value]]:
    """(state space, threads, address there) of generic addresses."""
    if address.__class__ is int:
        space = _space_of(address)
        return [(space, m, _strip(address, space))]
    active = address if m is None else address[m]
    low, high = _space_of(int(active.min())), _space_of(int(active.max()))
    if low == high:
        return [(low, m, _strip(address, low))]
    names = np.array([_space_of(int(one)) for one in address])
    every = np.ones(g.width, np.bool_) if m is None else m
    return [(str(name), every & (names == name), _strip(address, str(name))) for name in np.unique(names[every])]


def _strip(address: Value, space: str) -> Value:
    if space == "global":
        return address
    base = {"param": PARAM_WINDOW, "local": LOCAL_WINDOW, "cluster": SHARED_WINDOW}[space]
    if address.__class__ is int:
        return address - base
    offset = address - np.uint64(base)
    return offset.astype(np.uint32) if space == "cluster" else offset


def load_param(g: Gang, m: Any, address: Value, width: int, count: int) -> Any:
    """A load from the parameter block by address."""
    parameter = g.cta.launch.parameter
    if address.__class__ is int:
        numbers = [parameter(address + width * k, width) for k in range(count)]
        return numbers[0] if count == 1 else numbers
    lanes = range(g.width) if m is None else np.flatnonzero(m)
    found = [np.zeros(g.width, UNSIGNED[8 * width]) for _ in range(count)]
    for lane in lanes:
        for k in range(count):
            found[k][lane] = parameter(int(address[lane]) + width * k, width)
    return found[0] if count == 1 else found


def load_of_space(space: str) -> Any:
    """The load function of a state space other than generic."""
    return {"shared": load_shared, "const": load_const, **_LOADS}[space]


def store_of_space(space: str) -> Any:
    """The store function of a state space other than generic."""
    return {"shared": store_shared, "global": store_global, "cluster": store_cluster, "local": store_local}[space]


_LOADS = {"global": load_global, "cluster": load_cluster, "local": load_local, "param": load_param}


def load_generic(g: Gang, m: Any, address: Value, width: int, count: int) -> Any:
    """ld without a state space."""
    parts = spaces_of(g, m, address)
    if len(parts) == 1:
        space, mask, stripped = parts[0]
        return _LOADS[space](g, mask, stripped, width, count)
    total: Any = None
    for space, mask, stripped in parts:
        safe = np.where(mask, stripped, stripped[int(mask.argmax())])
        found = _LOADS[space](g, mask, safe, width, count)
        found = [found] if count == 1 else found
        total = found if total is None else [select(mask, a, b, 8 * width) for a, b in zip(found, total, strict=True)]
    return total[0] if count == 1 else total


def store_generic(g: Gang, m: Any, address: Value, value: Any, width: int, count: int) -> None:
    """st without a state space."""
    for space, mask, stripped in spaces_of(g, m, address):
        if space == "param":
            raise EmulationError("a store to a kernel's parameters")
        store = {"global": store_global, "cluster": store_cluster, "local": store_local}[space]
        store(g, mask, stripped, value, width, count)


def from_generic(address: Value, space: str) -> Value:
    """cvta.to."""
    return (
        address
        if space in ("global", "const")
        else _strip(address, "cluster" if space == "shared" else space) & MASK[64]
    )


def to_generic(address: Value, space: str) -> Value:
    """cvta."""
    if space in ("global", "const") or space == "param":
        return address
    base = SHARED_WINDOW if space in ("shared", "cluster") else LOCAL_WINDOW
    return address + base if address.__class__ is int else cast(address, 64) + np.uint64(base)


def is_space(g: Gang, address: Value, space: str) -> Value:
    """isspacep."""
    if space == "const":
        return False
    if address.__class__ is int:
        found = _space_of(address)
        if space == "shared":
            return found == "cluster" and (address - SHARED_WINDOW) >> RANK_SHIFT == g.cta.rank
        return found == space
    return np.array([is_space(g, int(one), space) for one in address])


def shared_of_generic(g: Gang, address: Value) -> Value:
    """The shared::cluster address behind a generic one."""
    for space, _, stripped in spaces_of(g, g.mask, address):
        if space != "cluster":
            raise EmulationError(f"a generic address of {space} memory where one of shared memory is needed")
        return stripped
    raise EmulationError("no thread executes")


def map_address(g: Gang, m: Any, address: Value, rank: Value, width: int, generic: bool) -> Value:
    """mapa: the same place in another block of the cluster.

    A rank that the cluster does not have gives an address that no access may use; compilers compute it in lanes that never do.
    """
    base = SHARED_WINDOW if generic else 0
    local = address - base & (1 << RANK_SHIFT) - 1
    if rank.__class__ is int:
        return local + (base + (rank << RANK_SHIFT))
    wide = UNSIGNED[width]
    return (
        (local if local.__class__ is np.ndarray else wide(local)) + (rank.astype(wide) << wide(RANK_SHIFT)) + wide(base)
    )


def address_rank(g: Gang, address: Value, width: int, generic: bool) -> Value:
    """getctarank."""
    local = address - (SHARED_WINDOW if generic else 0)
    return cast(local >> RANK_SHIFT, 32)


# -- others ----------------------------------------------------------------------------------------------------------------------


def extend_value(value: Value, source: int, width: int) -> Value:
    """Sign extension, under a name of its own for callers outside."""
    return extend(value, source, width)


def trap(g: Gang, m: Any) -> None:
    """trap."""
    raise EmulationError(f"trap executed by {g.who(m)}")
