"""The body of a PTX function -> instructions and labels. Scopes, registers, operands, and calls put in their place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .ptx import TYPE_BYTES, Body, Function, Instruction, Label, Module, Variable, parse_variable
from .ptx_operands import Bracket, Call, Immediate, Operand, Pair, Register, Symbol, Vector
from .ptx_text import parse_number, split_commas

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


@dataclass
class _Scope:
    names: dict[str, Operand] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)


class BodyParser:
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
            found = re.match(r"\s*(?:\.v([24])\s*)?\.(\w+)\s+(.*)$", rest, re.S)
            if found is None or found[2] not in TYPE_BYTES:
                raise self.module.error(f".reg{rest} is not understood", self.offset)
            for piece in found[3].split(","):
                self._declare(scope, piece.strip(), found[2], int(found[1] or 0))
        elif name in (".shared", ".local", ".const", ".global"):
            variable = parse_variable(name[1:], rest)
            unique = (
                f"{variable.name}@{len(self.body.variables)}"
                if len(self.scopes) > 1 or len(self.stack) > 1
                else variable.name
            )
            self.body.variables.append(
                Variable(unique, variable.space, variable.type, variable.align, variable.size, variable.init)
            )
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

    def _declare(self, scope: _Scope, name: str, kind: str, elements: int = 0) -> None:
        registers = self.body.registers
        if elements:
            # A vector register is its elements; PTX ISA 5.4.2 gives each two names.
            items = tuple(Register(f"{name}.{x}", len(registers) + i, kind) for i, x in enumerate("xyzw"[:elements]))
            scope.names[name] = Vector(items)
            for item, colour in zip(items, "rgba", strict=False):
                scope.names[item.name] = scope.names[f"{name}.{colour}"] = item
            registers.extend([kind] * elements)
        elif name.endswith(">"):
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
            return Vector(tuple(self.operand(piece) for piece in split_commas(text[1:-1]) if piece.strip()))
        if "|" in text:
            left, right = text.split("|")
            return Pair(self.operand(left), self.operand(right))
        if first == "!":
            register = self.operand(text[1:])
            if not isinstance(register, Register):
                raise self.module.error(f"operand {text} is not understood", self.offset)
            return Register(register.name, register.slot, register.type, negated=True)
        if first.isdigit() or (first in "-+" and text[1:2].isdigit()):
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
            amount = int(parse_number(plus[3])) * (-1 if plus[2] == "-" else 1)
            return Bracket(self.operand(plus[1]), amount, (), address_only=True)
        if first == "(" and text.endswith(")"):
            return self.operand(text[1:-1])
        raise self.module.error(f"operand {text!r} is not understood", self.offset)

    def _bracket(self, text: str) -> Bracket:
        pieces = split_commas(text)
        base = pieces[0].strip()
        rest = tuple(self.operand(piece) for piece in pieces[1:])
        amount = 0
        plus = re.fullmatch(r"([\w$%.]+)\s*([+-])\s*(-?\w+)", base)
        if plus is not None:
            base = plus[1]
            amount = int(parse_number(plus[3])) * (-1 if plus[2] == "-" else 1)
        return Bracket(self.operand(base), amount, rest)

    def _instruction(
        self, found: re.Match[str], pending: list[tuple[Instruction, str, list[_Scope]]], exit_label: int | None
    ) -> None:
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
                Instruction(
                    ("bra", "uni") if guard is None else ("bra",),
                    (),
                    guard,
                    negated,
                    offset,
                    self.location,
                    (exit_label,),
                )
            )
            return
        operands = tuple(self.operand(piece) for piece in split_commas(text)) if text.strip() else ()
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
        pieces = [piece.strip() for piece in split_commas(text)]
        results = [piece.strip() for piece in split_commas(pieces.pop(0)[1:-1])] if pieces[0].startswith("(") else []
        name = pieces.pop(0)
        arguments = [piece.strip() for piece in split_commas(pieces.pop(0)[1:-1]) if piece.strip()] if pieces else []
        callee = self.module.functions.get(name)
        if guard is not None or callee is None or name in self.stack:
            why = (
                "is guarded"
                if guard is not None
                else "is recursive"
                if name in self.stack
                else "has no body in this PTX"
            )
            self.body.statements.append(
                Instruction((*parts, f"({why})"), (Symbol(name),), guard, negated, offset, self.location)
            )
            return
        parser = BodyParser(self.module, self.body, callee, (*self.stack, name))
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
