"""The operands of a PTX instruction. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Register:
    """A register: its slot in a gang's register list and its declared type. `negated` is `!p` as an operand."""

    name: str
    slot: int
    type: str
    negated: bool = False

    def __str__(self) -> str:
        return f"!{self.name}" if self.negated else self.name


@dataclass(frozen=True, slots=True)
class Immediate:
    """A number. Floating immediates written as 0f/0d are already bits."""

    value: int | float

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, a special register (`%tid.x`), a parameter, or `_`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """A .param variable of one call, under a name that no other call has."""

    name: str

    def __str__(self) -> str:
        return self.name.split("@")[0]


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ..}`."""

    items: tuple[Operand, ...]

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.items)) + "}"


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two results."""

    first: Operand
    second: Operand

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(frozen=True, slots=True)
class Bracket:
    """`[base + amount, rest..]`; with `address_only` it is the address `base + amount` itself, not what it points to."""

    base: Operand
    amount: int | float
    rest: tuple[Operand, ...]
    address_only: bool = False

    def __str__(self) -> str:
        inside = f"{self.base}+{self.amount}" if self.amount else str(self.base)
        inside = ", ".join([inside, *map(str, self.rest)])
        return inside if self.address_only else f"[{inside}]"


Operand = Register | Immediate | Symbol | Call | Vector | Pair | Bracket
