"""A kernel's PTX -> Python functions, one for each basic block, with what the scheduler needs to run them.

Translation does not depend on a launch, so that a kernel is translated once and run many times.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import isa_async, isa_float, isa_integer, isa_launch, isa_memory, isa_order, isa_tensor_map  # noqa: F401 - they enter the instructions
from .emit import Emitter, bits_of
from .errors import EmulationError, SourcePlace, UnsupportedInstruction
from .flow import BRANCHES, ENDS, Block, build_blocks, liveness, post_dominators, reachable
from .gang import EXIT, Gang
from .isa_tcgen05 import fragment_slots
from .isa_warp import enter_blocking, is_blocking
from .namespace import namespace
from .ptx import Body, Function, Instruction, Module, Variable, parse_module
from .ptx_operands import Immediate, Register, Vector

BlockFunction = Callable[[Gang, list[Any]], int]

SHARED_START = 1024
"""Shared addresses of a block start here: the first 1024 bytes belong to the system (CUDA programming guide, compute capability 9.0)."""
PARAM_WINDOW = 0x7D00_0000_0000
LOCAL_WINDOW = 0x7E00_0000_0000
SHARED_WINDOW = 0x7F00_0000_0000
"""Where the generic addresses of parameters, local and shared memory start. Any choice that global addresses avoid would do."""


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter: offset and size in the parameter block, and its declared type."""

    name: str
    offset: int
    size: int
    type: str
    align: int


class Program:
    """A translated kernel.

    `functions[n]` runs block n and returns the next one (or EXIT, PARK, SPLIT, YIELD), `live[n]` are the slots that block n may read,
    `places[i]` is where instruction i stands, `sizes[n]` how many instructions block n has.
    """

    def __init__(self, module: Module, kernel: str) -> None:
        function = module.functions.get(kernel)
        entries = sorted(name for name, one in module.functions.items() if one.entry)
        if function is None or not function.entry:
            raise EmulationError(f"no kernel {kernel!r} in this PTX; it has {', '.join(entries) or 'none'}")
        self.module = module
        self.kernel = kernel
        self.function: Function = function
        body = module.body(kernel)
        self.registers = body.registers
        self._default = [False if kind == "pred" else 0 for kind in body.registers]
        self.parameters = _parameters(function)
        self.static_shared = SHARED_START
        self.dynamic_shared = SHARED_START
        self.local_size = 0
        self.variables: list[Variable] = []
        self._symbols = self._layout(body)
        self.blocks, self.instructions = build_blocks(body, lambda i: is_blocking(i) is not None)
        self.joins = post_dominators(self.blocks)
        self.places: list[SourcePlace] = _Places(module, self.instructions)
        self.cancels_launches = any(i.parts[:2] == ("clusterlaunchcontrol", "try_cancel") for i in self.instructions)
        self.uses_warpgroups = any(i.parts[0] in ("wgmma", "setmaxnreg") for i in self.instructions)
        wgmma = next((i for i in self.instructions if i.parts[0] == "wgmma"), None)
        if wgmma is not None and module.target != "sm_90a":
            raise UnsupportedInstruction(
                f"wgmma is an instruction of sm_90a alone, and this PTX is for {module.target or 'no target'}; ptxas refuses it",
                module.place(wgmma),
            )
        self.largest_register_count = _largest_register_count(self.instructions)
        self.fragments = _fragment_slots(self.instructions)
        self.live: dict[int, tuple[int, ...]] = {}
        self._reads: dict[int, set[int]] = {}
        self._assigned: dict[int, set[int]] = {}
        self._regions: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.source = self._translate()
        self.sizes = [len(block.instructions) for block in self.blocks]
        scope = dict(namespace())
        exec(compile(self.source, f"<{kernel}>", "exec"), scope)
        self.functions: list[BlockFunction] = [
            scope.get(f"b{index}", _unreachable) for index in range(len(self.blocks))
        ]

    def fresh_registers(self) -> list[Any]:
        """A register list for a new gang."""
        return self._default[:]

    def region(self, start: int, join: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the blocks from `start` to `join`: slots they may read at entry, and slots they write that `join` may read."""
        found = self._regions.get((start, join))
        if found is None:
            blocks, stack = set(), [start]
            while stack:
                block = stack.pop()
                if block not in blocks and block != join and block >= 0:
                    blocks.add(block)
                    stack.extend(self.blocks[block].successors)
            reads: set[int] = set().union(*(self._reads[block] for block in blocks))
            assigned: set[int] = set().union(*(self._assigned[block] for block in blocks))
            read = tuple(slot for slot in self.live[start] if slot in reads) if start >= 0 else ()
            written = tuple(slot for slot in self.live[join] if slot in assigned) if join >= 0 else ()
            found = self._regions[start, join] = read, written
        return found

    def width(self, slot: int) -> int:
        """Bits of a register."""
        return bits_of(self.registers[slot])

    def _layout(self, body: Body) -> dict[str, str]:
        """Puts variables at addresses; an expression for each name."""
        symbols: dict[str, str] = {}
        for parameter in self.parameters:
            symbols[parameter.name] = str(PARAM_WINDOW + parameter.offset)
        dynamic: list[Variable] = []
        for variable in (*self.module.variables.values(), *body.variables):
            if variable.space == "shared":
                if variable.size is None:
                    dynamic.append(variable)
                    continue
                offset = -(-self.static_shared // variable.align) * variable.align
                self.static_shared = offset + variable.size
                symbols[variable.name] = f"(g.cta.window + {offset - SHARED_START})"
            elif variable.space == "local":
                offset = -(-self.local_size // variable.align) * variable.align
                self.local_size = offset + (variable.size or 0)
                symbols[variable.name] = str(offset)
            else:
                self.variables.append(variable)
                symbols[variable.name] = f"g.cta.launch.symbols[{variable.name!r}]"
        align = max((variable.align for variable in dynamic), default=16)
        self.dynamic_shared = -(-self.static_shared // max(align, 16)) * max(align, 16)
        for variable in dynamic:
            symbols[variable.name] = f"(g.cta.window + {self.dynamic_shared - SHARED_START})"
        return symbols

    # -- text --------------------------------------------------------------------------------------------------------------------

    def _translate(self) -> str:
        used = sorted(reachable(self.blocks))
        offsets = {parameter.name: parameter.offset for parameter in self.parameters}
        emitters: dict[int, Emitter] = {}
        ends: dict[int, list[str]] = {}
        for index in used:
            e = Emitter(self.module, self.fragments, self._symbols, offsets)
            emitters[index] = e
            ends[index] = self._block(e, index, self.blocks[index])
        reads = {index: e.reads for index, e in emitters.items()}
        writes = {index: e.writes for index, e in emitters.items()}
        self._reads = reads
        self._assigned = {index: e.assigned for index, e in emitters.items()}
        inside, outside = liveness(self.blocks, reads, writes)
        self.live = {index: tuple(sorted(slots)) for index, slots in inside.items()}
        text: list[str] = []
        for index in used:
            e = emitters[index]
            text.append(f"def b{index}(g, R):")
            text.extend(" " + line for line in e.lines)
            text.extend(f" R[{slot}] = r{slot}" for slot in sorted(e.dirty & outside[index]))
            text.extend(" " + line for line in ends[index])
        return "\n".join(text) + "\n"

    def _block(self, e: Emitter, index: int, block: Block) -> list[str]:
        """Writes a block's instructions; returns the lines that end it."""
        following = index + 1 if index + 1 < len(self.blocks) else EXIT
        if block.waits:
            number, item = block.instructions[0]
            e.number = number
            emit = is_blocking(item)
            assert emit is not None
            emit(e, item, index, block.successors[0])
            e.lines.extend(e.body)
            return []
        instructions = block.instructions
        position = 0
        while position < len(instructions):
            number, item = instructions[position]
            name = item.parts[0]
            if name in BRANCHES or name in ENDS:
                return self._branch(e, index, number, item, following)
            run = self._accumulator_moves(instructions, position)
            if run > 3:
                self._move_run(e, instructions, position, run)
                position += run
                continue
            try:
                e.emit(item, number)
            except (IndexError, ValueError) as error:
                if isinstance(error, ValueError) and "values to unpack" not in str(error):
                    raise
                raise UnsupportedInstruction(
                    f"{item} is not modelled: it does not take {len(item.operands)} operands", self.module.place(item)
                ) from None
            position += 1
        return ["return EXIT"] if block.stops else [f"return {block.successors[0]}"]

    def _branch(self, e: Emitter, index: int, number: int, item: Instruction, following: int) -> list[str]:
        e.current, e.number = item, number
        join = self.joins[index]
        successors = self.blocks[index].successors
        if item.parts[0] == "brx":
            if item.guard is not None:
                e.unsupported("a guarded brx.idx")
            name = e.use(item.operands[0], 32)
            return [f"g.at = {number}", f"return diverge_table(g, {name}, {successors!r}, {join})"]
        target = successors[0]
        following = successors[1] if item.guard is not None else following
        if item.guard is None:
            return [f"return {target}"]
        name = e.use(Register(item.guard.name, item.guard.slot, item.guard.type), 1)
        yes, no = (following, target) if item.negated else (target, following)
        return [
            f"if {name}.__class__ is bool: return {yes} if {name} else {no}",
            f"g.at = {number}",
            f"return diverge(g, {name}, {yes}, {no}, {join})",
        ]

    def _accumulator_moves(self, instructions: list[tuple[int, Instruction]], start: int) -> int:
        """How many moves from here on copy consecutive accumulator registers to consecutive ones."""
        first: tuple[int, int] | None = None
        count = 0
        for _, item in instructions[start:]:
            if item.parts[0] != "mov" or item.guard is not None:
                break
            if len(item.operands) != 2:
                break
            target, source = item.operands
            if not isinstance(target, Register) or not isinstance(source, Register):
                break
            if target.slot not in self.fragments or source.slot not in self.fragments:
                break
            if first is None:
                first = (target.slot, source.slot)
            if (target.slot, source.slot) != (first[0] + count, first[1] + count):
                break
            if abs(first[0] - first[1]) <= count:
                break
            count += 1
        return count

    def _move_run(self, e: Emitter, instructions: list[tuple[int, Instruction]], start: int, count: int) -> None:
        item = instructions[start][1]
        target, source = item.operands
        assert isinstance(target, Register)
        assert isinstance(source, Register)
        e.touch(tuple(range(source.slot, source.slot + count)))
        e.writes.update(range(target.slot, target.slot + count))
        e.assigned.update(range(target.slot, target.slot + count))
        e.lines.append(f"move_range(g, R, {target.slot}, {source.slot}, {count})")


class _Places(list[SourcePlace]):
    """Places of instructions, made when asked for."""

    def __init__(self, module: Module, instructions: list[Instruction]) -> None:
        super().__init__()
        self.module = module
        self.instructions = instructions
        self._made: dict[int, SourcePlace] = {}

    def __getitem__(self, number: Any) -> Any:
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = self.module.place(self.instructions[number])
        return found

    def __len__(self) -> int:
        return len(self.instructions)


def _unreachable(g: Gang, registers: list[Any]) -> int:
    raise EmulationError("control flow came to a block that no path leads to")


def _parameters(function: Function) -> tuple[Parameter, ...]:
    found, offset = [], 0
    for variable in function.parameters:
        offset = -(-offset // variable.align) * variable.align
        size = variable.size or 0
        found.append(Parameter(variable.name, offset, size, variable.type, variable.align))
        offset += size
    return tuple(found)


def _fragment_slots(instructions: list[Instruction]) -> frozenset[int]:
    """Slots that may hold an accumulator's register: destinations of wgmma and tcgen05.ld, and whatever moves copy them to."""
    found: set[int] = set()
    for item in instructions:
        found.update(fragment_slots(item))
    moves: list[tuple[int, int]] = []
    for item in instructions:
        if item.parts[:2] == ("wgmma", "mma_async") and isinstance(item.operands[0], Vector):
            found.update(register.slot for register in item.operands[0].items if isinstance(register, Register))
        elif item.parts[0] == "mov" and item.guard is None and len(item.operands) == 2:
            target, source = item.operands
            if isinstance(target, Register) and isinstance(source, Register):
                moves.append((target.slot, source.slot))
    changed = bool(found)
    while changed:
        changed = False
        for target_slot, source_slot in moves:
            if source_slot in found and target_slot not in found:
                found.add(target_slot)
                changed = True
    return frozenset(found)


def _largest_register_count(instructions: list[Instruction]) -> int:
    """The largest operand of setmaxnreg, 256 without one."""
    found = [item.operands[0] for item in instructions if item.parts[0] == "setmaxnreg"]
    return max((int(one.value) for one in found if isinstance(one, Immediate)), default=256)


@functools.lru_cache(maxsize=64)
def _module(text: str) -> Module:
    return parse_module(text)


@functools.lru_cache(maxsize=64)
def program_of(text: str, kernel: str) -> Program:
    """The translated kernel of a PTX text; repeated calls in one process return the same object."""
    return Program(_module(text), kernel)


def kernels_of(text: str) -> tuple[str, ...]:
    """Names of the kernels in a PTX text.

    >>> kernels_of(".version 8.0 .target sm_90a .visible .entry k() { ret; }")
    ('k',)
    """
    return tuple(name for name, function in _module(re.sub(r"\r", "", text)).functions.items() if function.entry)


__all__ = ["PARAM_WINDOW", "Parameter", "Program", "enter_blocking", "kernels_of", "program_of"]
