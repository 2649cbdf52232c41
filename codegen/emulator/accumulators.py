"""Accumulators of wgmma as registers: kept as a matrix until something reads one of its registers.

A register slot holds a Fragment while its value is a piece of an accumulator. Moves copy the Fragment, wgmma on the same slots goes on
with the same matrix, and any other instruction that reads the slot gets an array.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import EmulationError
from .matrix import Accumulator
from .values import Value

if TYPE_CHECKING:
    from .gang import Gang


class Owner:
    """One accumulator and the fragments that stand for its registers."""

    __slots__ = ("accumulator", "copied", "fragments", "place", "rows", "stale")

    def __init__(self, accumulator: Accumulator, count: int) -> None:
        self.accumulator = accumulator
        self.fragments = [Fragment(self, index) for index in range(count)]
        self.copied = False
        self.stale = False
        self.rows: Any = None
        self.place = 0

    def registers(self) -> Any:
        """All registers as (count, 128) uint32, remembered until the next wgmma."""
        if self.rows is None:
            self.rows = np.ascontiguousarray(self.accumulator.registers())
        return self.rows

    def value(self, index: int, g: Gang, at: int) -> Value:
        """A register's value. Raises if a wgmma on it is still in flight."""
        if self.accumulator.in_flight:
            g.at = at
            raise EmulationError(
                f"an accumulator register is read while {self.accumulator.in_flight} wgmma on it are in flight "
                f"(the last issued at {g.program.places[self.place]}); wgmma.wait_group must come first"
            )
        if self.stale:
            g.at = at
            raise EmulationError(
                "a copy of accumulator registers, made while a wgmma on them was in flight, is read after a later wgmma changed "
                f"them (issued at {g.program.places[self.place]}): what it holds is not defined"
            )
        return self.registers()[index]

    def refuse_write(self, g: Gang, at: int) -> None:
        """An ordinary instruction writes a register that a wgmma in flight owns."""
        if self.accumulator.in_flight and not self.copied:
            g.at = at
            raise EmulationError(
                f"an accumulator register is written while {self.accumulator.in_flight} wgmma on it are in flight (the last issued at "
                f"{g.program.places[self.place]}); wgmma.wait_group must come first"
            )


class Fragment:
    """One register of an accumulator."""

    __slots__ = ("index", "owner")

    def __init__(self, owner: Owner, index: int) -> None:
        self.owner = owner
        self.index = index

    def read(self, g: Gang, at: int) -> Value:
        """The register's value. Raises if an asynchronous instruction that writes it is still in flight."""
        return self.owner.value(self.index, g, at)


def take(g: Gang, R: list[Any], slot: int, at: int) -> Value:
    """The value of a register that may be a fragment; the slot then holds the value."""
    value = R[slot]
    if value.__class__ is Fragment:
        value = R[slot] = value.read(g, at)
    return value


def overwrite(g: Gang, fragment: Fragment, at: int) -> None:
    """An ordinary instruction writes a register that an asynchronous instruction in flight may own."""
    fragment.owner.refuse_write(g, at)


def share(value: Any) -> Any:
    """A move of a register that may be a fragment."""
    if value.__class__ is Fragment:
        value.owner.copied = True
    return value


def gather_registers(R: list[Any], slots: tuple[int, ...], width: int, g: Gang) -> Any:
    """Registers as (len(slots), width) uint32."""
    rows = []
    for slot in slots:
        value = take(g, R, slot, g.at)
        rows.append(value if value.__class__ is np.ndarray else np.full(width, value, np.uint32))
    return np.array(rows)


def bind(g: Gang, R: list[Any], slots: tuple[int, ...], n: int, d: str, keep: bool) -> Owner:
    """The accumulator whose registers the slots are, made from their values if they are not one. `keep`: whether values matter."""
    first = R[slots[0]]
    low, high = slots[0], slots[-1] + 1
    contiguous = high - low == len(slots)
    if first.__class__ is Fragment:
        owner = first.owner
        held = R[low:high] if contiguous else [R[slot] for slot in slots]
        same = len(held) == len(owner.fragments) and all(map(operator.is_, owner.fragments, held))
        if same and owner.accumulator.d == d and owner.accumulator.n == n:
            if owner.copied:
                old = owner
                matrix = old.accumulator
                if not matrix.in_flight:
                    matrix = Accumulator(n, d, matrix.matrix.copy() if keep else None)
                else:
                    old.stale = True
                owner = Owner(matrix, len(slots))
                _store(R, slots, owner, contiguous)
            owner.rows = None
            return owner
    values = [R[slot] for slot in slots]
    for value in values:
        if value.__class__ is Fragment and value.owner.accumulator.in_flight:
            value.read(g, g.at)
    if not keep or all(value.__class__ is int and not value for value in values):
        accumulator = Accumulator(n, d)
    else:
        accumulator = Accumulator.from_registers(gather_registers(R, slots, g.width, g), d)
    owner = Owner(accumulator, len(slots))
    _store(R, slots, owner, contiguous)
    return owner


def _store(R: list[Any], slots: tuple[int, ...], owner: Owner, contiguous: bool) -> None:
    if contiguous:
        R[slots[0] : slots[-1] + 1] = owner.fragments
    else:
        for slot, fragment in zip(slots, owner.fragments, strict=True):
            R[slot] = fragment
