"""PTX text -> functions made of instructions with resolved registers and labels. Knows the grammar, not what an instruction does.

Only what is asked for is parsed in full: `parse_module` finds the functions and variables, `Module.body` parses one function. Registers
get a slot each; a register declared in a nested scope (inline assembly) shadows the outer one and has a slot of its own. Read from: PTX
ISA 9.0, sections 4 (syntax), 5 (state spaces, types), 11.5 (debugging directives), 9.7.13 (control flow).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .errors import ParseError, SourcePlace
from .ptx_operands import Operand, Register
from .ptx_text import split_commas

TYPE_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4,
    "bf16x2": 4, "tf32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "e4m3x2": 2, "e5m2x2": 2, "pred": 1,
}  # fmt: skip

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_FUNCTION = re.compile(r"\.(entry|func)\b")
_VARIABLE = re.compile(
    r"\s*(?:\.align\s+(?P<align>\d+)\s*)?(?:\.attribute\s*\([^)]*\)\s*)?\.(?P<type>\w+)\s+(?:\.ptr\b[^%A-Za-z_$]*(?:\.\w+\s*(?:\d+\s+)?)*)?"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*(?P<dims>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.S,
)


@dataclass(frozen=True)
class Variable:
    """A variable or parameter: its state space, alignment and size in bytes (size None: `[]`, dynamic shared memory)."""

    name: str
    space: str
    type: str
    align: int
    size: int | None
    init: str | None = None


@dataclass(slots=True)
class Instruction:
    """One instruction: its dotted parts (`("add", "s32")`), operands, guard predicate, and where it stands."""

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    negated: bool
    offset: int
    location: int
    targets: tuple[int, ...] = ()

    @property
    def opcode(self) -> str:
        """The instruction's name with all its modifiers."""
        return ".".join(self.parts)

    def __str__(self) -> str:
        guard = "" if self.guard is None else f"@{'!' if self.negated else ''}{self.guard} "
        return f"{guard}{self.opcode} {', '.join(map(str, self.operands))}".strip()


@dataclass(frozen=True)
class Label:
    """A place in a body that branches name by its number."""

    number: int


@dataclass
class Body:
    """A parsed function with the functions it calls put in its place: instructions and labels, registers, variables, branch tables."""

    statements: list[Instruction | Label] = field(default_factory=list)
    registers: list[str] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    labels: int = 0


@dataclass(frozen=True)
class Function:
    """A function's head: parameters, launch bounds, and where its body stands in the text."""

    name: str
    entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    directives: dict[str, tuple[int, ...]]
    start: int
    stop: int


class Module:
    """A PTX module. `functions` and `variables` by name, `files` by number; `place(instruction)` says where one stands.

    >>> module = parse_module(".version 8.0 .target sm_90a .visible .entry k(.param .u32 n) { .reg .b32 %r<2>; ld.param.u32 %r1, [n]; ret; }")
    >>> [str(statement) for statement in module.body("k").statements]
    ['ld.param.u32 %r1, [n]', 'ret']
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.files: dict[int, str] = {}
        self.target = ""
        self.version = ""
        self.callers: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
        self.locations: list[tuple[int, int, tuple[tuple[int, int], ...]]] = [(0, 0, ())]
        self._location_numbers: dict[tuple[int, int, tuple[tuple[int, int], ...]], int] = {self.locations[0]: 0}
        self._lines: list[int] | None = None

    def ptx_line(self, offset: int) -> int:
        """The line of the PTX text, from 1, that holds the character at `offset`."""
        if self._lines is None:
            self._lines = [found.start() for found in re.finditer("\n", self.text)]
        return bisect.bisect_left(self._lines, offset) + 1

    def place(self, instruction: Instruction) -> SourcePlace:
        """Where an instruction comes from."""
        file, line, calls = self.locations[instruction.location]
        name = self.files.get(file, f"file {file}")
        inlined = tuple((self.files.get(number, f"file {number}"), at) for number, at in calls)
        return SourcePlace(name, line, self.ptx_line(instruction.offset), inlined)

    def location(self, file: int, line: int, calls: tuple[tuple[int, int], ...]) -> int:
        """The number of a source location."""
        key = (file, line, calls)
        number = self._location_numbers.get(key)
        if number is None:
            number = self._location_numbers[key] = len(self.locations)
            self.locations.append(key)
        return number

    def body(self, name: str) -> Body:
        """Parses a function's body and everything it calls. Raises ParseError for what cannot be read."""
        if name not in self.functions:
            raise ParseError(f"no function {name!r} in this PTX; it has {', '.join(sorted(self.functions)) or 'none'}")
        body = Body()
        from .ptx_body import BodyParser

        BodyParser(self, body, self.functions[name], (name,)).run(exit_label=None)
        return body

    def error(self, message: str, offset: int) -> ParseError:
        """A ParseError that names the line."""
        return ParseError(f"PTX line {self.ptx_line(offset)}: {message}")


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    return text if text[0] == '"' else re.sub(r"[^\n]", " ", text)


def _closing(text: str, start: int, brackets: str) -> int:
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for found in re.compile(f"[{re.escape(brackets)}]").finditer(text, start):
        depth += 1 if found.group() == brackets[0] else -1
        if not depth:
            return found.end()
    raise ParseError(f"unbalanced {brackets[0]} in the PTX")


def parse_variable(space: str, text: str) -> Variable:
    """One declaration after its state space: `.align 8 .b8 name[32] = {..}` -> Variable.

    >>> parse_variable("shared", " .align 8 .b8 full[4][8]").size
    32
    """
    found = _VARIABLE.match(text)
    if found is None or (
        found["type"] not in TYPE_BYTES and found["type"] not in ("v2", "v4", "texref", "surfref", "samplerref")
    ):
        raise ParseError(f"declaration .{space}{text} is not understood")
    if found["type"] not in TYPE_BYTES:
        raise ParseError(f"variables of type .{found['type']} are not modelled: .{space}{text}")
    width = TYPE_BYTES[found["type"]]
    size: int | None = width
    for extent in re.findall(r"\[\s*(\d*)\s*\]", found["dims"]):
        size = None if not extent or size is None else size * int(extent)
    return Variable(found["name"], space, found["type"], int(found["align"] or width), size, found["init"])


def parse_module(text: str) -> Module:
    """Finds a module's functions, variables and files. Raises ParseError where the text is not PTX."""
    text = _COMMENT.sub(_blank, text)
    module = Module(text)
    position = 0
    scanner = re.compile(r"\s*(\.?[\w$]+)")
    while (found := scanner.match(text, position)) is not None:
        word = found[1]
        if word in (".version", ".target", ".address_size"):
            end = text.find("\n", found.end())
            value = text[found.end() : end if end >= 0 else len(text)]
            value_found = re.match(r"\s*([\w.]+(?:\s*,\s*\w+)*)", value)
            position = found.end() + (value_found.end() if value_found else 0)
            if word == ".target":
                module.target = value_found[1] if value_found else ""
            elif word == ".version":
                module.version = value_found[1] if value_found else ""
        elif word == ".file":
            entry = re.compile(r'\s*(\d+)\s+"([^"\n]*)"[^\n]*').match(text, found.end())
            if entry is None:
                raise module.error(".file is not understood", found.start(1))
            module.files[int(entry[1])] = entry[2]
            position = entry.end()
        elif word == ".section":
            position = _closing(text, text.index("{", found.end()), "{}")
        else:
            position = _declaration(module, found.start(1))
    if text[position:].strip():
        raise module.error(f"not understood: {text[position:].strip()[:40]!r}", position)
    return module


def _declaration(module: Module, start: int) -> int:
    text = module.text
    end = re.compile(r"[;{(]").search(text, start)
    if end is None:
        raise module.error(f"not understood: {text[start : start + 40]!r}", start)
    head = text[start : end.start()]
    function = _FUNCTION.search(head)
    if function is None:
        brace = re.compile(r"[;={]").search(text, start)
        stop = text.index(";", brace.start() if brace else start)
        words = text[start:stop]
        space = re.search(r"\.(global|const|shared|local)\b", words)
        if space is not None:
            for piece in split_commas(words[space.end() :]):
                variable = parse_variable(space[1], piece)
                module.variables[variable.name] = variable
        elif not re.match(r"\s*\.(pragma|alias|weak|extern|visible|common)\b", words):
            raise module.error(f"directive not understood: {words[:60]!r}", start)
        return stop + 1
    return _function(module, function[1] == "entry", start + function.end())


def _parameters(text: str) -> tuple[Variable, ...]:
    found = [re.sub(r"^\s*\.(param|reg)\b", "", piece) for piece in split_commas(text) if piece.strip()]
    return tuple(parse_variable("param", piece) for piece in found)


def _function(module: Module, entry: bool, position: int) -> int:
    text = module.text
    results: tuple[Variable, ...] = ()
    opening = re.compile(r"\s*\(").match(text, position)
    if opening is not None:
        stop = _closing(text, opening.end() - 1, "()")
        results = _parameters(text[opening.end() : stop - 1])
        position = stop
    name = re.compile(r"\s*([A-Za-z_$%][\w$]*)").match(text, position)
    if name is None:
        raise module.error("function without a name", position)
    position = name.end()
    parameters: tuple[Variable, ...] = ()
    opening = re.compile(r"\s*\(").match(text, position)
    if opening is not None:
        stop = _closing(text, opening.end() - 1, "()")
        parameters = _parameters(text[opening.end() : stop - 1])
        position = stop
    body = re.compile(r"[;{]").search(text, position)
    if body is None:
        raise module.error(f"function {name[1]} has no body", position)
    directives = {
        found[1]: tuple(int(number) for number in re.findall(r"\d+", found[2]))
        for found in re.finditer(r"\.(\w+)([^.]*)", text[position : body.start()])
    }
    if body.group() == ";":
        return body.end()
    stop = _closing(text, body.start(), "{}")
    module.functions[name[1]] = Function(name[1], entry, parameters, results, directives, body.start() + 1, stop - 1)
    return stop


def walk(body: Body) -> Iterator[Instruction]:
    """The instructions of a body in order."""
    return (statement for statement in body.statements if isinstance(statement, Instruction))
