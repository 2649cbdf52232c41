"""Atomics, loads and stores with an order, and fences of translated code; and gangs that poll an address until it changes.

A thread that reads the same value again from the same address by the same instruction is parked until somebody writes another value
there, or until nobody else can go on. That is a matter of turns only: parked or not, it sees what memory holds when it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import convert_values as cv
from .cta import Cta
from .errors import EmulationError
from .ops_memory import (
    array_of,
    block_of_address,
    first_lane_of,
    load_const,
    load_generic,
    load_of_space,
    spaces_of,
    store_generic,
    store_global_bytes,
    store_of_space,
)
from .values import UNSIGNED, Value, add_carry, compare, select

if TYPE_CHECKING:
    from .gang import Gang

DEVICE = 2
"""The scope that every block of the grid is in (`Order.SCOPES`)."""


# -- polls -----------------------------------------------------------------------------------------------------------------------


class Polling:
    """What a gang that polls waits for: the address (or one for each thread), the value it saw, and how it loads."""

    __slots__ = ("address", "count", "mask", "value", "width")

    def __init__(self, mask: Any, address: Value, width: int, count: int, value: Any) -> None:
        self.mask = mask
        self.address = address
        self.width = width
        self.count = count
        self.value = value

    def span(self) -> tuple[int, int]:
        """The lowest address, and the one after the highest."""
        size = self.width * self.count
        if self.address.__class__ is int:
            return self.address, self.address + size
        used = self.address if self.mask is None else self.address[self.mask]
        return int(used.min()), int(used.max()) + size

    def changed(self, g: Gang) -> bool:
        """Whether the gang would see another value now."""
        return not _same(load_const(g, self.mask, self.address, self.width, self.count), self.value)

    def describe(self, g: Gang) -> str:
        """For reports."""
        address, lane = self.address, first_lane_of(g, self.mask)
        first = address if address.__class__ is int else int(address[lane])
        parts = self.value if self.count > 1 else [self.value]
        seen = [int(one[lane]) if one.__class__ is np.ndarray else int(one) for one in parts]
        allocation = g.cta.launch.memory.find(first, 1)
        text = ", ".join(f"{one} ({one:#x})" for one in seen)
        return f"another value at byte {first - allocation.address} of {allocation.name!r} (global address {first:#x}), where it sees {text}"


def _same(a: Any, b: Any) -> bool:
    if a.__class__ is list or b.__class__ is list:
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if a.__class__ is np.ndarray or b.__class__ is np.ndarray:
        return bool(np.array_equal(a, b))
    return bool(a == b)


def polls(g: Gang, address: Value, width: int, count: int, value: Any) -> bool:
    """After a load or an atomic that changed nothing: whether the gang only saw again what it saw before, and is parked."""
    seen = g.poll
    if address.__class__ is np.ndarray:
        used = address if g.mask is None else address[g.mask]
        if bool((used >> np.uint64(44)).any()):
            return False
    elif address >> 44:  # windows of generic addresses that are not global
        return False
    now = Polling(g.mask, address, width, count, value)
    g.poll = (g.at, now)
    if seen is None or seen[0] != g.at:
        return False
    before = seen[1]
    if before.mask is not now.mask or not _same(before.address, address) or not _same(before.value, value):
        return False
    g.cta.machine.park_poll(g, now)
    return True


# -- loads, stores, fences ---------------------------------------------------------------------------------------------------------


def _global_of(g: Gang, m: Any, space: str, address: Value) -> Value | None:
    """The address if it is one of global memory for every thread, else None."""
    if space == "global":
        return address
    if space == "generic":
        parts = spaces_of(g, m, address)
        if len(parts) == 1 and parts[0][0] == "global":
            return address
    return None


def strong_load(g: Gang, m: Any, space: str, address: Value, width: int, count: int, acquires: bool, scope: int) -> Any:
    """ld.relaxed, ld.acquire, ld.volatile, ld.mmio."""
    if _global_of(g, m, space, address) is None:
        load = load_generic if space == "generic" else load_of_space(space)
        return load(g, m, address, width, count)
    found = load_const(g, m, address, width, count)
    launch = g.cta.launch
    if launch.global_races is not None:
        launch.global_races.lanes(g, m, address, width * count, g.at, False, scope >= DEVICE)
    if launch.order is not None:
        for part in range(count):
            launch.order.read(g, m, address + _step(address, part * width), scope, acquires)
    return found


def strong_store(
    g: Gang, m: Any, space: str, address: Value, value: Any, width: int, count: int, releases: bool, scope: int
) -> None:
    """st.relaxed, st.release, st.volatile, st.mmio."""
    if _global_of(g, m, space, address) is None:
        store = store_generic if space == "generic" else store_of_space(space)
        store(g, m, address, value, width, count)
        return
    g.cta.machine.idle = 0
    store_global_bytes(g, m, address, value, width, count)
    launch = g.cta.launch
    if launch.global_races is not None:
        launch.global_races.lanes(g, m, address, width * count, g.at, True, scope >= DEVICE)
    if launch.order is not None:
        for part in range(count):
            launch.order.wrote(g, m, address + _step(address, part * width), scope, releases, False)
    if g.cta.machine.polled is not None:
        g.cta.machine.global_written(address, width * count)


def _step(address: Value, amount: int) -> Any:
    return np.uint64(amount) if address.__class__ is np.ndarray else amount


def fence_thread(g: Gang, m: Any, scope: int, acquires: bool, releases: bool) -> None:
    """fence and membar. A thread's own accesses are always in order here; what others learn by it is checked."""
    order = g.cta.launch.order
    if order is not None:
        order.fence(g, m, scope, acquires, releases)


# -- atomics ---------------------------------------------------------------------------------------------------------------------


def _combine(operation: str, kind: str, old: Any, values: list[Any]) -> Any:
    width = old.dtype.itemsize * 8
    b = values[0]
    if kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        function = {"add": cv.float_add, "min": cv.float_min, "max": cv.float_max}.get(operation)
        if function is not None:
            return function((old, b), kind, "rn", False)
    if operation == "add":
        return add_carry(old, b, 0, width)[0]
    if operation in ("min", "max"):
        return select(compare(old, b, width, kind[0] == "s", "lt" if operation == "min" else "gt"), old, b, width)
    if operation in ("and", "or", "xor"):
        return old & b if operation == "and" else old | b if operation == "or" else old ^ b
    if operation == "exch":
        return b
    if operation == "cas":
        return select(old == b, values[1], old, width)
    one = UNSIGNED[width](1)
    if operation == "inc":
        return select(old >= b, 0, old + one, width)
    return select((old == 0) | (old > b), b, old - one, width)


def atomic(
    g: Gang,
    m: Any,
    space: str,
    operation: str,
    kind: str,
    address: Value,
    values: tuple[Value, ...],
    width: int,
    acquires: bool,
    releases: bool,
    scope: int,
    returns: bool,
    elements: int = 1,
) -> Any:
    """atom (`returns`) and red: the old values. `width` in bytes; `elements` are checked with this one, none if another did so."""
    if space == "generic":
        parts = spaces_of(g, m, address)
        if len(parts) != 1:
            raise EmulationError("an atomic on addresses of several state spaces at once is not modelled")
        space, m, address = parts[0]
    lanes = g.width
    single = (
        address.__class__ is int
        and all(value.__class__ is int for value in values)
        and (m is not None and m.sum() == 1)
    )
    addresses = array_of(address, 8 if space == "global" else 4, lanes)
    operands = [array_of(value, width, lanes) for value in values]
    machine = g.cta.machine
    changes = False

    def change(old: Any, who: Any) -> Any:
        nonlocal changes
        new = _combine(operation, kind, old, [operand[who] for operand in operands])
        if bool((new != old).any()):
            changes = True
        return new

    if space == "global":
        old = g.cta.launch.memory.update(addresses, width, change, m)
        if elements:
            _atomic_order(g, m, address, width, elements, kind, acquires and returns, releases, scope, returns)
    else:
        where = block_of_address(g, m, address) if space == "cluster" else g.cta
        if not isinstance(where, Cta):
            raise EmulationError("an atomic on shared memory of several blocks at once is not modelled")
        if where.races is not None:
            where.races.atomic(g, m, where, address, width)
        old = where.shared.update(addresses, width, change, m)
    if changes:  # one that changes nothing is a poll
        machine.idle = 0
        g.poll = None
        if space == "global" and machine.polled is not None:
            machine.global_written(address, width)
    if single:
        return int(old[first_lane_of(g, m)])
    return old


def _atomic_order(
    g: Gang,
    m: Any,
    address: Value,
    width: int,
    elements: int,
    kind: str,
    acquires: bool,
    releases: bool,
    scope: int,
    returns: bool,
) -> None:
    launch = g.cta.launch
    if launch.global_races is not None:
        launch.global_races.lanes(g, m, address, width * elements, g.at, True, scope >= DEVICE)
    order = launch.order
    # Sums of floats carry data, not flags: a relaxed one hands nothing over, so that each need not be looked up.
    if order is None or ("f" in kind and not acquires and not releases):
        return
    for part in range(elements):
        at = address + _step(address, part * width)
        if returns:
            order.read(g, m, at, scope, acquires)
        order.wrote(g, m, at, scope, releases, True)
