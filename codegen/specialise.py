"""Leaves out of a kernel's source what its constants make dead, so that a reader sees the kernel that runs.

Branches under conditions that are known go, and comments that speak of what is not there; templates that are used with one
argument become plain functions; then ``unused`` takes what nothing reads any more. What is not understood stays as it is,
and the compiler makes the same instructions of both (tests/codegen/test_specialise.py compares them; of kernels that divide
K among CTAs it may order addresses differently, outside of the loop over K). Knows the plain dialect in which
``kernels/cuda`` is written, one statement a line and braces at the ends of lines; knows nothing of any kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .unused import WORD, closing, masked, split, without_unused

Value = int | str
"""Of a constant: a number, a truth value, or the name of an enumerator."""

_INDENT = "    "
_TOKEN = re.compile(r"\s*(?:(\d+)u?\b|([A-Za-z_]\w*)|(\|\||&&|==|!=|<=|>=|[-+*/%<>!()]))")
_PRECEDENCE = (("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"))
_CONSTANT = re.compile(r"^\s*constexpr \w+ (\w+) = ([^;]+);")
_ENUM = re.compile(r"^enum \w+ \{([^}]*)\}", re.M)
_IF = re.compile(r"^(\s*)if (?:constexpr )?\(")
_ELSE_IF = re.compile(r"^\s*\} else if (?:constexpr )?\(")


def specialised(text: str, before: str = "") -> str:
    """The source without what its own constants, the ``constexpr`` of whole numbers and enumerators, make dead. ``before`` comes
    first: types, instructions and constants, of which each is taken or left, as a whole.

    >>> print(specialised("constexpr bool WIDE = false;\\n\\nvoid kernel(int x) {\\n    if (WIDE && x > 1) x *= 2;\\n    run(WIDE ? 2 : x);\\n}"), end="")
    void kernel(int x) {
        run(x);
    }
    """
    known = constants(f"{before}\n{text}")
    before = "\n".join(_folded(before.splitlines(), known))
    folded = "\n".join(_folded(_without_templates(text, known).splitlines(), known))
    return without_unused(folded, before)


# ---- what is known ----------------------------------------------------------------------------------------------------


def constants(text: str) -> dict[str, Value]:
    """The values of a source's enumerators and constants, by name.

    >>> constants("enum Order { BY_ROW, BY_COLUMN };\\nconstexpr Order ORDER = BY_ROW;\\nconstexpr bool ROWS = ORDER == BY_ROW;")
    {'BY_ROW': 'BY_ROW', 'BY_COLUMN': 'BY_COLUMN', 'ORDER': 'BY_ROW', 'ROWS': True}
    """
    known: dict[str, Value] = {}
    for enumerators in _ENUM.findall(text):
        known.update((name, name) for name in WORD.findall(enumerators))
    for line in text.splitlines():
        match = _CONSTANT.match(line)
        value = evaluated(match[2], known) if match else None
        if match and value is not None:
            known[match[1]] = value
    return known


def evaluated(expression: str, known: Mapping[str, Value]) -> Value | None:
    """The value of an expression of numbers, constants and operators; None if it holds anything else.

    >>> evaluated("2 * N + 1 > 8", {"N": 4}), evaluated("row > 8", {"N": 4})
    (True, None)
    """
    tokens: list[str] = []
    place = 0
    while place < len(expression.rstrip()):
        match = _TOKEN.match(expression, place)
        if match is None:
            return None
        tokens.append(match[1] or match[2] or match[3])
        place = match.end()
    names = {"true": True, "false": False, **known}
    if not tokens or any(WORD.fullmatch(token) and token not in names for token in tokens):
        return None
    tokens.reverse()  # the next one is the last

    def operand() -> Value | None:
        token = tokens.pop() if tokens else ""
        if token == "(":
            value = operation(0)
            return value if tokens and tokens.pop() == ")" else None
        if token == "!":
            value = operand()
            return None if value is None else not value
        if token.isdigit():
            return int(token)
        return names.get(token)

    def operation(level: int) -> Value | None:
        if level == len(_PRECEDENCE):
            return operand()
        left = operation(level + 1)
        while tokens and tokens[-1] in _PRECEDENCE[level]:
            operator = tokens.pop()
            right = operation(level + 1)
            left = None if left is None or right is None else _applied(operator, left, right)
        return left

    value = operation(0)
    return None if tokens else value


def _applied(operator: str, left: Value, right: Value) -> Value | None:
    if operator == "&&":
        return bool(left) and bool(right)
    if operator == "||":
        return bool(left) or bool(right)
    if operator in ("==", "!="):
        return (left == right) == (operator == "==")
    if isinstance(left, str) or isinstance(right, str) or (operator in ("/", "%") and right == 0):
        return None
    return {
        "<": left < right,
        ">": left > right,
        "<=": left <= right,
        ">=": left >= right,
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "/": left // (right or 1),
        "%": left % (right or 1),
    }[operator]


def simplified(condition: str, known: Mapping[str, Value]) -> bool | str:
    """The condition without its parts that are known; True or False if nothing else is left.

    >>> simplified("SPLIT && slot < end", {"SPLIT": 1}), simplified("!SPLIT && slot < end", {"SPLIT": 1})
    ('slot < end', False)
    """
    alternatives = []
    for alternative in split(condition, "||"):
        left: list[str] | None = []
        for part in split(alternative, "&&"):
            kept = _part(part.strip(), known)
            if kept is False:
                left = None
                break
            if kept is not True and left is not None:
                left.append(kept)
        if left == []:
            return True
        if left is not None:
            alternatives.append(" && ".join(left))
    if not alternatives:
        return False
    return " || ".join(alternatives)


def _part(part: str, known: Mapping[str, Value]) -> bool | str:
    value = evaluated(part, known)
    if value is not None and any(word in known for word in WORD.findall(part)):
        return bool(value)
    if part.startswith("(") and closing(part, 0) == len(part) - 1:
        inside = simplified(part[1:-1], known)
        return inside if isinstance(inside, bool) else f"({inside})"
    return part


# ---- branches ---------------------------------------------------------------------------------------------------------


_TAGGED = re.compile(r"^(\s*// )(!?[A-Z][A-Z_]+(?: [^:a-z]*)?): (.*)$")


def _speaks(lines: list[str], i: int, known: Mapping[str, Value]) -> tuple[list[str], int]:
    """The paragraph of comment that starts at line ``i`` and the line behind it. One that begins with a condition is for
    kernels of which that holds: "// SPLIT && ATOMIC: the sums are added in any order."
    """
    if lines[i].startswith("// ===="):
        return [lines[i]], i + 1  # a title
    end = i
    while end < len(lines) and re.match(r"\s*// ?\S", lines[end]):
        end += 1
    if end == i:
        return [lines[i]], i + 1
    paragraph = lines[i:end]
    match = _TAGGED.match(paragraph[0])
    holds = simplified(match[2], known) if match else ""
    if match is None or not isinstance(holds, bool):
        return paragraph, end
    if holds:
        return [match[1] + match[3][0].upper() + match[3][1:], *paragraph[1:]], end
    return [], end + (end < len(lines) and lines[end].strip() == "//")


def _folded(lines: list[str], known: Mapping[str, Value]) -> Iterator[str]:
    """The lines without branches that are never taken, and without conditions that always hold."""
    waiting: list[str] = []  # comments: they go with what they stand above
    others = False  # whether some were for other kernels
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.lstrip().startswith("//"):
            paragraph, i = _speaks(lines, i, known)
            waiting += paragraph
            others = others or not paragraph
            if i == len(lines) or not lines[i].lstrip().startswith("//"):
                while waiting and waiting[-1].strip() == "//":
                    waiting.pop()
            continue
        if others and not waiting and line.startswith(("DEVICE ", "template ")):
            # A function of which all that is said is for other kernels is for them, too.
            while not lines[i].endswith("}") or (lines[i] != "}" and line.endswith("{")):
                i += 1
            i += 1 + (i + 1 < len(lines) and not lines[i + 1])
            others = False
            continue
        others = False
        match = _IF.match(line)
        close = closing(line, match.end() - 1) if match else -1
        if match is None or close < 0:
            yield from waiting
            yield _choices(line, known)
            waiting = []
            i += 1
            continue
        rest = line[close + 1 :].strip()
        if rest != "{":
            condition = simplified(line[match.end() : close], known)
            if condition is True:
                yield from waiting
                yield from _folded([match[1] + rest], known)
            elif condition is not False:
                yield from waiting
                yield _choices(f"{line[: match.end()]}{condition}) {rest}", known)
            waiting = []
            i += 1
            continue
        arms, i = _arms(lines, i)
        yield from _chosen(waiting, match[1], arms, known)
        waiting = []
    yield from waiting


def _arms(lines: list[str], i: int) -> tuple[list[tuple[str, str, list[str]]], int]:
    """The arms of the if that starts at line ``i``, (words before the condition, condition, body), and the line behind.
    An else has no condition.
    """
    indent = lines[i][: len(lines[i]) - len(lines[i].lstrip())]
    arms: list[tuple[str, str, list[str]]] = []
    while True:
        line = lines[i]
        if line.rstrip() == f"{indent}}} else {{":
            words, condition = "", ""
        else:
            match = _ELSE_IF.match(line) or _IF.match(line)
            assert match is not None, line
            words, condition = line[: match.end()], line[match.end() : closing(line, match.end() - 1)]
        body = []
        i += 1
        while not lines[i].startswith(f"{indent}}}"):
            body.append(lines[i])
            i += 1
        arms.append((words.strip().removeprefix("} else "), condition, body))
        if lines[i].rstrip() == f"{indent}}}":
            return arms, i + 1


def _chosen(
    comments: list[str], indent: str, arms: list[tuple[str, str, list[str]]], known: Mapping[str, Value]
) -> Iterator[str]:
    """What is left of an if."""
    kept: list[tuple[str, str, list[str]]] = []
    for words, condition, body in arms:
        found = simplified(condition, known) if words else True
        if found is False:
            continue
        kept.append((words, "" if found is True else str(found), body))
        if found is True:
            break
    if not kept:
        return
    if not kept[0][1]:
        yield from comments
        yield from _folded([line.removeprefix(_INDENT) for line in kept[0][2]], known)
        return
    bodies = [list(_folded(body, known)) for _, _, body in kept]
    if not any(line.strip() for body in bodies for line in body):
        return
    yield from comments
    for place, ((words, condition, _), body) in enumerate(zip(kept, bodies, strict=True)):
        start = "} else " if place else ""
        yield f"{indent}{start}{words}{condition}) {{" if condition else f"{indent}{start}{{"
        yield from body
    yield f"{indent}}}"


def _choices(line: str, known: Mapping[str, Value]) -> str:
    """The line with what is chosen by conditions that are known: ``(WIDE ? 2 : 1)`` becomes ``2`` or ``1``."""
    place = 0
    while True:
        place = line.find(" ? ", place)
        comment = line.find("//")
        if place < 0 or 0 <= comment < place or '"' in line[:place]:
            return line
        start = _start(line, place)
        condition = simplified(line[start:place], known)
        between, end = _ends(line, place + 3)
        if end < 0 or between < 0:
            return line
        if not isinstance(condition, bool):
            line = f"{line[:start]}{condition}{line[place:]}"
            place = start + len(condition) + 3
            continue
        chosen = (line[place + 3 : between] if condition else line[between + 1 : end]).strip()
        before, after = line[:start], line[end:]
        if before.endswith("(") and after.startswith(")") and _alone(chosen) and not re.search(r"[\w>]\($", before):
            before, after = before[:-1], after[1:]
        if chosen == "0":
            # A summand that is nothing.
            if before.endswith(" + ") and re.match(r"[;,)]| [+-] ", after):
                before, chosen = before[:-3], ""
            elif after.startswith(" + ") and re.search(r"[=(,] ?$|return $", before):
                after, chosen = after[3:], ""
        # A name needs no parentheses of its own within others.
        line = re.sub(r"\(\((\w+(?:\.\w+)*)\)", r"(\1", before + chosen + after)
        place = len(before)


def _alone(expression: str) -> bool:
    """Whether it needs no parentheses: a name, a number, a call, or products of them."""
    return re.fullmatch(r"[\w.]+(\([^()]*\))?( \* [\w.]+)*", expression) is not None


def _start(line: str, place: int) -> int:
    """Where the condition of the choice at ``place`` begins."""
    depth = 0
    for i in range(place - 1, -1, -1):
        letter = line[i]
        depth += (letter in ")]}") - (letter in "([{")
        ends = letter in ",;?" or (letter == ":" and line[i - 1] == " ")
        ends = ends or (letter == "=" and line[i - 1] == " " and line[i + 1] == " ")
        if depth < 0 or (depth == 0 and (ends or line[: i + 1].endswith("return "))):
            start = i + 1
            break
    else:
        start = 0
    return start + len(line[start:]) - len(line[start:].lstrip())


def _ends(line: str, place: int) -> tuple[int, int]:
    """Where the first alternative of a choice ends, its colon, and where the second does."""
    depth, inner, colon = 0, 0, -1
    for i in range(place, len(line)):
        letter = line[i]
        if depth == 0 and letter in ",;)]}":
            return colon, i
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and line.startswith(" ? ", i):
            inner += 1
        elif depth == 0 and line.startswith(" : ", i):
            if inner == 0 and colon < 0:
                colon = i + 1
            else:
                inner -= 1
    return colon, -1


# ---- templates ----------------------------------------------------------------------------------------------------------

_SPECIAL = re.compile(r"^template <([^>]*)> struct (\w+)(?:<([^>]*)>)? \{\n    using type = ([^;]*);\n\};\n", re.M)
_ALIAS = re.compile(r"(?:typename )?\b(\w+)<([^<>]*)>::type\b")
_TEMPLATE = re.compile(r"^template <([A-Za-z]\w* \w+)> (?=DEVICE [^(;]*?(\w+)\()", re.M)


def _without_templates(text: str, known: Mapping[str, Value]) -> str:
    """With the function itself for a template that is used with one argument only, and with the type for one that names it."""
    code = masked(text)
    definitions: dict[str, list[re.Match[str]]] = {}
    for match in _TEMPLATE.finditer(code):
        definitions.setdefault(match[2], []).append(match)
    for name, matches in definitions.items():
        kind, parameter = matches[0][1].split()
        arguments = set(re.findall(rf"\b{name}<([^<>]*)>\(", code)) - {parameter}
        if kind in ("typename", "int") or len(arguments) != 1 or next(iter(arguments)) not in known:
            continue
        argument = next(iter(arguments))
        for match in reversed(matches):
            end = closing(code, code.index("{", match.end()))
            body = re.sub(rf"\b{parameter}\b", argument, text[match.end() : end])
            text = text[: match.start()] + body + text[end:]
        text = re.sub(rf"\b{name}<{argument}>\(", f"{name}(", text)
        code = masked(text)
    types: dict[str, dict[Value | None, str]] = {}
    for special in _SPECIAL.finditer(text):
        key = None if special[3] is None else evaluated(special[3], known)
        types.setdefault(special[2], {})[key] = special[4]

    def resolved(match: re.Match[str]) -> str:
        found, value = types.get(match[1], {}), evaluated(match[2], known)
        return match[0] if value is None or None not in found else found.get(value, found[None])

    return _ALIAS.sub(resolved, text)
