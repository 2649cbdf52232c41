"""Writes the Python text of one basic block. Knows registers, guards and types, not what instructions do: the isa_* modules do.

In the text, `g` is the gang, `R` its register list, `m` the mask of the threads that execute (None: all). A register is read into a local
name once and written back where somebody else may look: at the block's end if it is live there, and before an instruction that works on
`R` itself. Registers that may hold a piece of a wgmma accumulator stay in `R` and are turned into arrays when something reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NoReturn

from .errors import UnsupportedInstruction
from .ptx import TYPE_BYTES, Instruction, Module
from .ptx_operands import Bracket, Immediate, Operand, Register, Symbol, Vector
from .values import MASK

Emit = Callable[["Emitter", Instruction], None]
TABLE: dict[str, Emit] = {}
"""First part of an instruction's name -> what writes its text."""

FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32"})
SIGNED_TYPES = frozenset({"s8", "s16", "s32", "s64"})

SPECIAL = {
    **{f"%tid.{axis}": f"g.tid_{axis}" for axis in "xyz"},
    **{f"%{name}.{axis}": f"g.cta.{name}[{n}]" for n, axis in enumerate("xyz") for name in ("ntid", "ctaid", "nctaid")},
    **{
        f"%{name}.{axis}": f"g.cta.{name}[{n}]"
        for n, axis in enumerate("xyz")
        for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    },
    "%cluster_ctarank": "g.cta.rank", "%cluster_nctarank": "g.cta.ranks", "%laneid": "g.laneid", "%warpid": "g.warpid",
    "%nwarpid": "64", "%smid": "g.cta.smid", "%nsmid": "132", "%gridid": "1", "%is_explicit_cluster": "g.cta.explicit_cluster",
    "%clock": "clock(g, 32)", "%clock_hi": "clock(g, 64) >> 32", "%clock64": "clock(g, 64)", "%globaltimer": "clock(g, 64)",
    "%globaltimer_lo": "clock(g, 32)", "%globaltimer_hi": "clock(g, 64) >> 32", "%dynamic_smem_size": "g.cta.dynamic_size",
    "%total_smem_size": "g.cta.shared.size", "%lanemask_eq": "g.lane_mask('eq')", "%lanemask_lt": "g.lane_mask('lt')",
    "%lanemask_le": "g.lane_mask('le')", "%lanemask_gt": "g.lane_mask('gt')", "%lanemask_ge": "g.lane_mask('ge')", "WARP_SZ": "32",
}  # fmt: skip
_SPECIAL_64 = frozenset({"%clock64", "%globaltimer", "%gridid"})


def instruction(*names: str) -> Callable[[Emit], Emit]:
    """Enters a function in the table under the given names."""

    def enter(function: Emit) -> Emit:
        for name in names:
            if name in TABLE:
                raise ValueError(f"{name} is entered twice")
            TABLE[name] = function
        return function

    return enter


def bits_of(kind: str) -> int:
    """Bits of a type name, 1 for pred."""
    return 1 if kind == "pred" else 8 * TYPE_BYTES[kind]


class Emitter:
    """The text of one block under construction, with the registers it reads before writing them and those it writes."""

    def __init__(
        self, module: Module, fragments: frozenset[int], symbols: dict[str, str], parameters: dict[str, int]
    ) -> None:
        self.module = module
        self.fragments = fragments
        self.symbols = symbols
        self.parameters = parameters
        self.lines: list[str] = []
        self.body: list[str] = []
        self.loaded: set[int] = set()
        self.dirty: set[int] = set()
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.assigned: set[int] = set()
        self.guarded = False
        self.number = 0
        self.current: Instruction | None = None
        self._names = 0

    # -- instructions ------------------------------------------------------------------------------------------------------------

    def emit(self, item: Instruction, number: int) -> None:
        """Writes one instruction that is no branch."""
        self.current, self.number = item, number
        function = TABLE.get(item.parts[0])
        if function is None:
            self.unsupported()
        self.body = []
        self.guarded = item.guard is not None
        if item.guard is not None:
            predicate = self.use(item.guard, 1)
            self.lines.append(f"m = {'guard_not' if item.negated else 'guard'}(g, {predicate})")
        function(self, item)
        if self.guarded:
            self.lines.append("if m is not False:")
            self.lines.extend(" " + line for line in self.body or ["pass"])
        else:
            self.lines.extend(self.body)
        self.body = []

    @property
    def mask(self) -> str:
        """The expression for the threads that execute the current instruction."""
        return "m" if self.guarded else "g.mask"

    def at(self) -> None:
        """Notes the instruction for errors, races and conflicts: for every instruction that can have one."""
        self.body.append(f"g.at = {self.number}")

    def line(self, text: str) -> None:
        """Adds a line to the current instruction."""
        self.body.append(text)

    def name(self) -> str:
        """A fresh local name."""
        self._names += 1
        return f"t{self._names}"

    def unsupported(self, why: str = "") -> NoReturn:
        """Refuses the current instruction."""
        item = self.current
        assert item is not None
        reason = f": {why}" if why else ""
        raise UnsupportedInstruction(f"{item} is not modelled{reason}", self.module.place(item))

    def allow(self, *modifiers: str) -> frozenset[str]:
        """The current instruction's modifiers; any that is not listed is refused."""
        assert self.current is not None
        given = frozenset(self.current.parts[1:])
        extra = given - frozenset(modifiers)
        if extra:
            self.unsupported(f"modifier .{sorted(extra)[0]}")
        return given

    # -- registers ---------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Writes changed registers back, for an instruction that works on R. Only for instructions without a guard."""
        target = self.lines if self.guarded else self.body
        target.extend(f"R[{slot}] = r{slot}" for slot in sorted(self.dirty))
        self.dirty.clear()

    def forget(self, slots: tuple[int, ...]) -> None:
        """The instruction changes these slots of R: local copies are stale."""
        self.loaded.difference_update(slots)
        self.writes.update(slots)
        self.assigned.update(slots)

    def _read(self, slot: int) -> None:
        if slot not in self.writes:
            self.reads.add(slot)

    def touch(self, slots: tuple[int, ...]) -> None:
        """The instruction reads these slots of R itself."""
        for slot in slots:
            self._read(slot)

    def use(self, operand: Operand, width: int, kind: str = "") -> str:
        """An expression for an operand's value, `width` bits wide (1: a predicate). `kind` names a float type for decimal immediates."""
        if isinstance(operand, Register):
            return self._use_register(operand, width)
        if isinstance(operand, Immediate):
            return self.immediate(operand.value, width, kind)
        if isinstance(operand, Symbol):
            special = SPECIAL.get(operand.name)
            if special is not None:
                if width == 32 and operand.name in _SPECIAL_64:
                    return f"({special} & 4294967295)"
                return (
                    f"cast({special}, {width})"
                    if width not in (32, 64) or (special.startswith("g.tid") and width == 64)
                    else special
                )
            if operand.name in self.symbols:
                return self.symbols[operand.name]
            self.unsupported(f"operand {operand}")
        if not isinstance(operand, Bracket) or not operand.address_only:
            self.unsupported(f"operand {operand}")
        return f"wrap_add({self.use(operand.base, width)}, {int(operand.amount) & MASK[width]}, {width})"

    def _use_register(self, operand: Register, width: int) -> str:
        slot, own = operand.slot, bits_of(operand.type)
        if slot in self.fragments:
            self._read(slot)
            name = self.name()
            self.lines.append(f"{name} = R[{slot}]")
            self.lines.append(f"if {name}.__class__ is Fragment: {name} = take(g, R, {slot}, {self.number})")
        else:
            name = f"r{slot}"
            if slot not in self.loaded:
                self.loaded.add(slot)
                self._read(slot)
                self.lines.append(f"{name} = R[{slot}]")
        if operand.negated:
            return f"negate_predicate({name})"
        if own == width or 1 in (own, width):
            if own != width:
                self.unsupported(
                    f"register {operand} of type .{operand.type} as a {'predicate' if width == 1 else 'number'}"
                )
            return name
        return f"cast({name}, {width})"

    def immediate(self, value: int | float, width: int, kind: str = "") -> str:
        """A constant's bits."""
        if isinstance(value, float):
            if kind == "f32" or width == 32:
                return str(struct.unpack("<I", struct.pack("<f", value))[0])
            if kind == "f64" or width == 64:
                return str(struct.unpack("<Q", struct.pack("<d", value))[0])
            self.unsupported(f"immediate {value}")
        if kind == "f32" and value > MASK[32]:  # a 0d immediate in an f32 instruction
            return self.immediate(struct.unpack("<d", struct.pack("<Q", value))[0], 32, "f32")
        return str(bool(value)) if width == 1 else str(value & MASK[width])

    def put(self, operand: Operand, text: str, width: int) -> None:
        """Assigns an expression of `width` bits to a register (`_`: evaluates it only)."""
        if isinstance(operand, Symbol) and operand.name == "_":
            self.line(text)
            return
        if not isinstance(operand, Register):
            self.unsupported(f"destination {operand}")
        slot, own = operand.slot, bits_of(operand.type)
        self.assigned.add(slot)
        if own != width:
            if 1 in (own, width):
                self.unsupported(f"destination {operand} of type .{operand.type}")
            text = f"cast({text}, {own})"
        if slot in self.fragments:
            if self.guarded:
                self._read(slot)
                name = self.name()
                self.line(f"{name} = {text}")
                text = f"{name} if m is g.mask else select(m, {name}, take(g, R, {slot}, {self.number}), {own})"
            else:
                self.writes.add(slot)
            self.line(f"if R[{slot}].__class__ is Fragment: overwrite(g, R[{slot}], {self.number})")
            self.line(f"R[{slot}] = {text}")
            return
        local = f"r{slot}"
        if self.guarded:
            if slot not in self.loaded:
                self._read(slot)
                self.loaded.add(slot)
                self.lines.append(f"{local} = R[{slot}]")
            name = self.name()
            self.line(f"{name} = {text}")
            text = f"{name} if m is g.mask else select(m, {name}, {local}, {own})"
        else:
            self.writes.add(slot)
        self.loaded.add(slot)
        self.dirty.add(slot)
        self.line(f"{local} = {text}")

    def wrap(self, operand: Operand, text: str, width: int) -> None:
        """put, of a sum or product of ints that may exceed the width (arrays wrap by themselves)."""
        name = self.name()
        self.line(f"{name} = {text}")
        self.line(f"if {name}.__class__ is int: {name} &= {MASK[width]}")
        self.put(operand, name, width)

    # -- addresses and vectors ---------------------------------------------------------------------------------------------------

    def address(self, operand: Operand, width: int = 0) -> str:
        """The address that a bracket names. Its width is the base register's unless given."""
        if not isinstance(operand, Bracket):
            self.unsupported(f"address {operand}")
        base = operand.base
        if not width:
            width = bits_of(base.type) if isinstance(base, Register) else 64
        text = self.use(base, width)
        amount = int(operand.amount) & MASK[width]
        if isinstance(base, Immediate):
            return str(int(base.value) + int(operand.amount) & MASK[width])
        return f"wrap_add({text}, {amount}, {width})" if amount else text

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        """The elements of a vector operand; a plain operand is a vector of one."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    def slots(self, operand: Operand) -> tuple[int, ...]:
        """The register slots of a vector of registers."""
        found = []
        for item in self.items(operand):
            if not isinstance(item, Register):
                self.unsupported(f"{item} where a register is needed")
            found.append(item.slot)
        return tuple(found)
