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
from .ptx_operands import Bracket, Call, Immediate, Operand, Pair, Register, Symbol, Vector

TYPE_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4,
    "bf16x2": 4, "tf32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "e4m3x2": 2, "e5m2x2": 2, "pred": 1,
}  # fmt: skip

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_FUNCTION = re.compile(r"\.(entry|func)\b")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_STATEMENT = re.compile(
    r"\s*(?:"
    r"(?P<loc>\.loc\s+(?P<at>[^\n]*))"
    r"|(?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)"
    r"|(?P<open>\{)"
    r"|(?P<close>\})"
    r"|(?P<directive>\.[a-z]\w*)(?P<rest>[^;{]*(?:\{[^}]*\}[^;{]*)?);"
    r"|(?:@(?P<guard>!?\s*[\w$%]+)\s+)?(?P<op>[a-z][\w.:]*)(?P<args>[^;]*);"
    r"|(?P<empty>;)"
    r")"
)
_LOC = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:\s*,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
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
        _BodyParser(self, body, self.functions[name], (name,)).run(exit_label=None)
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
    if found is None or found["type"] not in TYPE_BYTES and found["type"] not in ("v2", "v4", "texref", "surfref", "samplerref"):
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
            for piece in _split(words[space.end() :]):
                variable = parse_variable(space[1], piece)
                module.variables[variable.name] = variable
        elif not re.match(r"\s*\.(pragma|alias|weak|extern|visible|common)\b", words):
            raise module.error(f"directive not understood: {words[:60]!r}", start)
        return stop + 1
    return _function(module, function[1] == "entry", start + function.end())


def _parameters(text: str) -> tuple[Variable, ...]:
    found = [re.sub(r"^\s*\.(param|reg)\b", "", piece) for piece in _split(text) if piece.strip()]
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


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    if "," not in text:
        return [text]
    if "{" not in text and "[" not in text and "(" not in text:
        return text.split(",")
    pieces, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        if letter in "{[(":
            depth += 1
        elif letter in "}])":
            depth -= 1
        elif letter == "," and not depth:
            pieces.append(text[start:position])
            start = position + 1
    pieces.append(text[start:])
    return pieces


@dataclass
class _Scope:
    names: dict[str, Operand] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)


class _BodyParser:
    """Parses one function body into a shared Body; calls are expanded by another parser on the callee."""

    def __init__(self, module: Module, body: Body, function: Function, stack: tuple[str, ...]) -> None:
        self.module = module
        self.body = body
        self.function = function
        self.stack = stack
        self.scopes = [_Scope()]
        self.places: dict[int, tuple[list[_Scope], int]] = {}
        self.offset = function.start
        self.bound: dict[str, str] = {}
        self.tables: dict[str, list[str]] = {}
        self.location = 0

    def run(self, exit_label: int | None) -> None:
        """Parses the body; `exit_label` is where `ret` goes in an expanded call."""
        text, stop, position = self.module.text, self.function.stop, self.function.start
        statements = self.body.statements
        pending: list[tuple[Instruction, str, list[_Scope]]] = []
        match = _STATEMENT.match
        while position < stop:
            found = match(text, position, stop)
            if found is None:
                if not text[position:stop].strip():
                    break
                raise self.module.error(f"not understood: {text[position:stop].strip()[:60]!r}", position)
            position = found.end()
            kind = found.lastgroup
            self.offset = found.start()
            if kind == "args":
                self._instruction(found, pending, exit_label)
            elif kind == "at":
                self._loc(found["at"])
            elif kind == "label":
                statements.append(Label(self._label(found["label"])))
            elif kind == "open":
                self.scopes.append(_Scope())
            elif kind == "close":
                self.scopes.pop()
            elif kind == "rest":
                self._directive(found["directive"], found["rest"])
            elif kind == "loc":
                self._loc(found["at"])
        for instruction, label, scopes in pending:
            instruction.targets = self._targets(instruction, label, scopes)

    def _label(self, name: str) -> int:
        labels = self.scopes[-1].labels
        if name not in labels:
            labels[name] = self.body.labels
            self.body.labels += 1
        return labels[name]

    def _targets(self, instruction: Instruction, label: str, scopes: list[_Scope]) -> tuple[int, ...]:
        names = self.tables.get(label)
        if names is not None:
            return tuple(self._targets(instruction, name, scopes)[0] for name in names)
        for scope in reversed(scopes):
            if label in scope.labels:
                return (scope.labels[label],)
        raise self.module.error(f"label {label} is not defined in {self.function.name}", instruction.offset)

    def _loc(self, text: str) -> None:
        found = _LOC.match(text)
        if found is None:
            raise self.module.error(f".loc {text} is not understood", self.offset)
        file, line = int(found[1]), int(found[2])
        calls: tuple[tuple[int, int], ...] = ()
        if found[4] is not None:
            outer = (int(found[4]), int(found[5]))
            calls = (outer, *self.module.callers.get(outer, ()))
            self.module.callers.setdefault((file, line), calls)
        self.location = self.module.location(file, line, calls)

    def _directive(self, name: str, rest: str) -> None:
        scope = self.scopes[-1]
        if name == ".reg":
            found = re.match(r"\s*(?:\.v[24]\s*)?\.(\w+)\s+(.*)$", rest, re.S)
            if found is None or found[1] not in TYPE_BYTES:
                raise self.module.error(f".reg{rest} is not understood", self.offset)
            for piece in found[2].split(","):
                self._declare(scope, piece.strip(), found[1])
        elif name in (".shared", ".local", ".const", ".global"):
            variable = parse_variable(name[1:], rest)
            unique = f"{variable.name}@{len(self.body.variables)}" if len(self.scopes) > 1 or len(self.stack) > 1 else variable.name
            self.body.variables.append(Variable(unique, variable.space, variable.type, variable.align, variable.size, variable.init))
            scope.names[variable.name] = Symbol(unique)
        elif name == ".param":
            variable = parse_variable("param", rest)
            scope.parameters[variable.name] = f"{variable.name}@{self.offset}/{len(self.body.registers)}"
        elif name == ".branchtargets":
            statements = self.body.statements
            label = statements[-1] if statements else None
            known = {number: text for text, number in scope.labels.items()}
            if not isinstance(label, Label) or label.number not in known:
                raise self.module.error(f"{name} without a label", self.offset)
            statements.pop()
            self.tables[known[label.number]] = [piece.strip() for piece in rest.split(",")]
        elif name not in (".pragma", ".callprototype", ".maxntid"):
            raise self.module.error(f"directive {name} is not understood", self.offset)

    def _declare(self, scope: _Scope, name: str, kind: str) -> None:
        registers = self.body.registers
        if name.endswith(">"):
            prefix, count = name[:-1].split("<")
            scope.ranges[prefix.strip()] = (len(registers), int(count), kind)
            registers.extend([kind] * int(count))
        else:
            scope.names[name] = Register(name, len(registers), kind)
            registers.append(kind)

    def _lookup(self, name: str) -> Operand | None:
        for scope in reversed(self.scopes):
            found = scope.names.get(name)
            if found is not None:
                return found
            prefix = name.rstrip("0123456789")
            if prefix in scope.ranges and prefix != name:
                first, count, kind = scope.ranges[prefix]
                number = int(name[len(prefix) :])
                if number < count:
                    register = scope.names[name] = Register(name, first + number, kind)
                    return register
        return None

    def operand(self, text: str) -> Operand:
        """One operand. Simple ones are remembered for each scope."""
        text = text.strip()
        cache = self.scopes[-1].operands
        found = cache.get(text)
        if found is None:
            found = cache[text] = self._operand(text)
        return found

    def _operand(self, text: str) -> Operand:
        first = text[:1]
        if first == "[":
            return self._bracket(text[1:-1].strip())
        if first == "{":
            return Vector(tuple(self.operand(piece) for piece in _split(text[1:-1]) if piece.strip()))
        if "|" in text:
            left, right = text.split("|")
            return Pair(self.operand(left), self.operand(right))
        if first == "!":
            register = self.operand(text[1:])
            if not isinstance(register, Register):
                raise self.module.error(f"operand {text} is not understood", self.offset)
            return Register(register.name, register.slot, register.type, negated=True)
        if first.isdigit() or first in "-+" and text[1:2].isdigit():
            return Immediate(parse_number(text))
        found = self._lookup(text)
        if found is not None:
            return found
        if _NAME.fullmatch(text):
            return Symbol(text)
        if re.fullmatch(r"%[\w.]+", text):
            return Symbol(text)
        plus = re.fullmatch(r"([\w$%]+)\s*([+-])\s*(-?\w+)", text)
        if plus is not None:
            amount = parse_number(plus[3]) * (-1 if plus[2] == "-" else 1)
            return Bracket(self.operand(plus[1]), amount, (), address_only=True)
        if first == "(" and text.endswith(")"):
            return self.operand(text[1:-1])
        raise self.module.error(f"operand {text!r} is not understood", self.offset)

    def _bracket(self, text: str) -> Bracket:
        pieces = _split(text)
        base = pieces[0].strip()
        rest = tuple(self.operand(piece) for piece in pieces[1:])
        amount = 0
        plus = re.fullmatch(r"([\w$%.]+)\s*([+-])\s*(-?\w+)", base)
        if plus is not None:
            base = plus[1]
            amount = parse_number(plus[3]) * (-1 if plus[2] == "-" else 1)
        return Bracket(self.operand(base), amount, rest)

    def _instruction(self, found: re.Match[str], pending: list[tuple[Instruction, str, list[_Scope]]], exit_label: int | None) -> None:
        name, text = found["op"], found["args"]
        guard_text = found["guard"]
        guard, negated = None, False
        if guard_text is not None:
            negated = guard_text[0] == "!"
            operand = self.operand(guard_text.lstrip("! "))
            if not isinstance(operand, Register):
                raise self.module.error(f"guard {guard_text} is no predicate register", found.start("guard"))
            guard = operand
        parts = tuple(name.split("."))
        offset = found.start("op")
        if parts[0] == "call":
            self._call(parts, text, guard, negated, offset)
            return
        if parts[0] == "bra" or name == "brx.idx":
            pieces = text.split(",")
            instruction = Instruction(
                parts, tuple(self.operand(piece) for piece in pieces[:-1]), guard, negated, offset, self.location
            )
            pending.append((instruction, pieces[-1].strip(), list(self.scopes)))
            self.body.statements.append(instruction)
            return
        if parts[0] == "ret" and exit_label is not None:
            self.body.statements.append(
                Instruction(("bra", "uni") if guard is None else ("bra",), (), guard, negated, offset, self.location, (exit_label,))
            )
            return
        operands = tuple(self.operand(piece) for piece in _split(text)) if text.strip() else ()
        if len(parts) > 1 and parts[0] in ("ld", "st") and parts[1].startswith("param"):
            operands = tuple(self._renamed(operand) for operand in operands)
        self.body.statements.append(Instruction(parts, operands, guard, negated, offset, self.location))

    def _renamed(self, operand: Operand) -> Operand:
        """Parameters of calls get unique names, so that expanded calls do not meet."""
        if isinstance(operand, Bracket) and isinstance(operand.base, Symbol):
            for scope in reversed(self.scopes):
                if operand.base.name in scope.parameters:
                    return Bracket(Call(scope.parameters[operand.base.name]), operand.amount, ())
            if operand.base.name in self.bound:
                return Bracket(Call(self.bound[operand.base.name]), operand.amount, ())
        return operand

    def _call(self, parts: tuple[str, ...], text: str, guard: Register | None, negated: bool, offset: int) -> None:
        pieces = [piece.strip() for piece in _split(text)]
        results = [piece.strip() for piece in _split(pieces.pop(0)[1:-1])] if pieces[0].startswith("(") else []
        name = pieces.pop(0)
        arguments = [piece.strip() for piece in _split(pieces.pop(0)[1:-1]) if piece.strip()] if pieces else []
        callee = self.module.functions.get(name)
        if guard is not None or callee is None or name in self.stack:
            why = "is guarded" if guard is not None else "is recursive" if name in self.stack else "has no body in this PTX"
            self.body.statements.append(Instruction((*parts, f"({why})"), (Symbol(name),), guard, negated, offset, self.location))
            return
        parser = _BodyParser(self.module, self.body, callee, (*self.stack, name))
        parser.location = self.location
        for formal, actual in zip((*callee.parameters, *callee.results), (*arguments, *results), strict=True):
            parser.bound[formal.name] = self._actual(actual, offset)
        end = self.body.labels
        self.body.labels += 1
        parser.run(exit_label=end)
        self.body.statements.append(Label(end))

    def _actual(self, name: str, offset: int) -> str:
        for scope in reversed(self.scopes):
            if name in scope.parameters:
                return scope.parameters[name]
        raise self.module.error(f"argument {name} of a call is no .param variable", offset)


def parse_number(text: str) -> int | float:
    """An immediate: decimal, 0x, 0b, octal, 0f (bits of an f32), 0d (bits of an f64), or a decimal float.

    >>> parse_number("0f3F800000"), parse_number("-0x10"), parse_number("017U")
    (1065353216, -16, 15)
    """
    sign = -1 if text[0] == "-" else 1
    body = text.lstrip("+-").rstrip("U")
    if body[:2] in ("0f", "0F", "0d", "0D"):
        return int(body[2:], 16)
    if body[:2] in ("0x", "0X"):
        return sign * int(body, 16)
    if body[:2] in ("0b", "0B"):
        return sign * int(body, 2)
    if "." in body or "e" in body:
        return sign * float(body)
    return sign * int(body, 8 if len(body) > 1 and body[0] == "0" else 10)


def walk(body: Body) -> Iterator[Instruction]:
    """The instructions of a body in order."""
    return (statement for statement in body.statements if isinstance(statement, Instruction))
