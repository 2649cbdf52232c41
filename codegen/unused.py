"""Leaves out of a kernel's source what nothing reads any more: variables, parameters, members, functions, types, constants.

The second half of ``specialise``, which leaves out the branches first. It relies on the dialect of ``kernels/cuda``: making
a value has no effect of its own unless it is a statement of its own, so that what is never read need not be made; structs
are written with braces at the margin, and members and functions with ``DEVICE`` in front. It knows nothing of any kernel.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

WORD = re.compile(r"[A-Za-z_]\w*")
_NOT_CODE = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"')
_TITLE, _SECTION = "// ========", "// ----"
_FUNCTION = re.compile(
    r"^(?P<indent>(?: {4})?)(?:template <[^>]*>\s+)?DEVICE (?:[^(;={]*?[\s*&:])?(?P<name>\w+)\(", re.M
)
_STRUCT_NAME = re.compile(r"^struct (?:alignas\(\d+\) )?(\w+) ", re.M)
_STRUCT = re.compile(r"^struct (?:alignas\(\d+\) )?(\w+) \{\n(.*?)^\};\n?", re.M | re.S)
_KERNEL = re.compile(r"^extern[^(]*__global__[^{]*", re.M)
_FIELD = re.compile(
    r"^    (?=\w)(?!DEVICE|template|using|return)[\w:<> ]+?[ *&](\w+)(?:\[[^;]*\])?(?: = [^;]*)?;.*\n", re.M
)
_CALL = re.compile(r"(?:\b(\w+) )?\b(\w+)(?:<[^<>;(]*>)?\(")
_TYPES = "bool|int|float|uint16|uint32|uint64"
_LOCAL = re.compile(
    rf"^[ ]+const(?:expr)? (?:{_TYPES}|[A-Z]\w+)(?: \*const)? (\w+)(?: = [^;]*|\(.*\))?;[^;\n]*\n|^ {{8}}[ ]*[A-Z]\w+ (\w+)(?:\(.*\))?;[^;\n]*\n",
    re.M,
)
_DEFINED = re.compile(
    r"^(?:template <[^>]*>\s+)?DEVICE [^(;=]*?(?:(\w+)::)?(\w+)\(|^(?:template <[^>]*>\s+)?struct (?:alignas\(\d+\) )?(\w+)"
    r"|^using (\w+)|^constexpr \w+ (\w+) = |^enum (\w+)",
    re.M,
)


def without_unused(text: str, before: str = "") -> str:
    """The source without what nothing reads, again and again until nothing more is found. ``before`` comes first: definitions
    that are taken or left, as a whole.

    >>> print(without_unused("DEVICE int twice(int x, int unread) {\\n    return 2 * x;\\n}\\n\\nint kernel(int y) { return twice(y, 7); }"), end="")
    DEVICE int twice(int x) {
        return 2 * x;
    }
    <BLANKLINE>
    int kernel(int y) { return twice(y); }
    """
    while True:
        last = text
        text = _forwarders(_constructors(_round(used(text))))
        if text == last:
            return used(f"{before}\n{text}") if before else text


_Edit = tuple[int, int, str]
"""From, to, and what stands there instead."""


def _round(text: str) -> str:
    """The text without what is found in one look at it. What belongs together is done together or left for the next."""
    code = masked(text)
    functions = list(_functions(code))
    done: list[_Edit] = []
    for edits in (
        *_methods(text, code, functions),
        *_fields(text, code, functions),
        *_parameters(text, code, functions),
        *_locals(text, code),
    ):
        if all(end <= first or last <= start for start, end, _ in edits for first, last, _ in done):
            done += edits
    for start, end, instead in sorted(done, reverse=True):
        text = text[:start] + instead + text[end:]
    return text


def masked(text: str) -> str:
    """The text with blanks for comments and strings, as long as before.

    >>> masked('f("g"); // h') == 'f(   );     '
    True
    """
    return _NOT_CODE.sub(lambda match: " " * len(match[0]), text)


def closing(text: str, opening: int) -> int:
    """Where the parenthesis, bracket or brace that is opened there is closed; -1 if it is not.

    >>> closing("f(a[1], g())", 1)
    11
    """
    depth = 0
    for match in re.compile(r"[()\[\]{}]").finditer(text, opening):
        depth += 1 if match[0] in "([{" else -1
        if depth == 0:
            return match.start()
    return -1


def split(text: str, separator: str) -> list[str]:
    """What stands between the separators outside of parentheses.

    >>> split("a, f(b, c)", ",")
    ['a', ' f(b, c)']
    """
    parts, depth, start = [], 0, 0
    for match in re.compile(rf"[()\[\]{{}}]|{re.escape(separator)}").finditer(text):
        if match[0] == separator:
            if depth == 0:
                parts.append(text[start : match.start()])
                start = match.end()
        else:
            depth += 1 if match[0] in "([{" else -1
    return [*parts, text[start:]]


# ---- functions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    """Where a function's definition, or its declaration, stands in the text."""

    name: str
    start: int
    name_start: int
    opening: int
    closing: int
    end: int
    member: bool


def _functions(code: str) -> Iterator[_Function]:
    for match in _FUNCTION.finditer(code):
        opening = match.end() - 1
        close = closing(code, opening)
        body = re.compile(r"[;{]").search(code, _initialised(code, close))
        assert body is not None
        end = body.start() if body[0] == ";" else closing(code, body.start())
        yield _Function(
            match["name"], match.start(), match.start("name"), opening, close, end + 1, bool(match["indent"])
        )


def _initialised(code: str, close: int) -> int:
    """Where the list of initialisers after a constructor's parameters ends; ``close`` if there is none."""
    match = re.compile(r"\)\s*:\s*").match(code, close)
    place = close
    while match:
        opening = code.index("(", match.end())
        place = closing(code, opening)
        match = re.compile(r"\)\s*,\s*").match(code, place)
    return place


def _with_comment(text: str, start: int) -> int:
    """Where the comment lines above this place begin."""
    while True:
        before = text.rfind("\n", 0, max(start - 1, 0)) + 1
        if start == 0 or not text[before:start].lstrip().startswith("//"):
            break
        start = before
    return start


def _methods(text: str, code: str, functions: list[_Function]) -> Iterator[list[_Edit]]:
    """Members that are functions and never called."""
    words = Counter(WORD.findall(code))
    defined = Counter(function.name for function in functions)
    structs = set(_STRUCT_NAME.findall(code))
    for function in functions:
        if function.member and function.name not in structs and words[function.name] == defined[function.name]:
            line_end = text.index("\n", function.end) + 1
            # One of the blank lines around it goes too.
            yield [(_with_comment(text, function.start), line_end + text.startswith("\n", line_end), "")]


def _constructors(text: str) -> str:
    """Without constructors that do nothing."""
    text = re.sub(r"\{\n\s*\}", "{}", text)
    text = re.sub(r"^    DEVICE \w+\(\) \{\}\n\n?", "", text, flags=re.M)
    text = re.sub(r"^(struct .* \{\n)\n", r"\1", text, flags=re.M)
    return re.sub(r"\n\n(\};\n)", r"\n\1", text)


_FORWARDER = re.compile(
    r"^(?:// .*\n|//\n)*DEVICE \w+ (\w+)\(([^()\n]*)\) \{\s+(?:return )?(\w+)\(([\w, ]*)\);\s+\}\n(?:\n|$)?", re.M
)


def _forwarders(text: str) -> str:
    """Without functions that do nothing but call another with the same arguments: that one is called instead."""
    for match in _FORWARDER.finditer(text):
        name, parameters, other, passed = match.groups()
        if [_parameter(one) for one in parameters.split(",")] == [
            one.strip() for one in passed.split(",")
        ] and name != other:
            rest = text[: match.start()] + text[match.end() :]
            if not re.search(rf"\bDEVICE \w+ {name}\(", masked(rest)):
                return re.sub(rf"\b{name}\(", f"{other}(", rest)
    return text


def _parameters(text: str, code: str, functions: list[_Function]) -> Iterator[list[_Edit]]:
    """Parameters that are never read, and what is passed for them."""
    counts = Counter(function.name for function in functions)
    calls: dict[str, list[tuple[int, int]]] = {}
    for match in _CALL.finditer(code):
        # "Struct name(..)" makes a struct, "name(..)" and "name<..>(..)" call a function.
        for name in {match[1] or match[2], match[2]}:
            if name in counts:
                calls.setdefault(name, []).append((match.start(2), match.end() - 1))
    for function in functions:
        if counts[function.name] != 1 or function.opening + 1 == function.closing:
            continue
        names = [_parameter(one) for one in split(code[function.opening + 1 : function.closing], ",")]
        read = set(WORD.findall(code, function.closing, function.end))
        kept = [place for place, name in enumerate(names) if name in read]
        if len(kept) == len(names):
            continue
        places = [(function.opening, function.closing)]
        for start, opening in calls.get(function.name, ()):
            if start != function.name_start:
                places.append((opening, closing(code, opening)))
        edits = []
        for start, end in places:
            passed = [one.strip() for one in split(text[start + 1 : end], ",")]
            if len(passed) != len(names):
                break
            joined = ", ".join(passed[place] for place in kept)
            # "Struct name()" would declare a function.
            declared = start != function.opening and not joined and re.search(r"[\w>] \w+$", text[:start][-80:])
            edits.append((start, end + 1, "" if declared else f"({joined})"))
        else:
            yield edits


def _parameter(text: str) -> str:
    """A parameter's name, "" if it has none."""
    reference = re.search(r"\(&(\w*)\)", text)
    if reference:
        return reference[1]
    match = re.search(r"[\w>*&]\s*[ *&](\w+)$", text.strip())
    return match[1] if match else ""


# ---- variables ----------------------------------------------------------------------------------------------------------


def _fields(text: str, code: str, functions: list[_Function]) -> Iterator[list[_Edit]]:
    """Members that hold what nobody asks for, and what they are made of."""
    asked = set(re.findall(r"(?:\.|->)(\w+)", code))
    # What is made by a list of its members keeps them all.
    listed = set(re.findall(r"(?<!struct )\b([A-Z]\w*)(?: \w+)?(?: =)? ?\{", code))
    # So does what the host passes to the kernel.
    listed |= {word for signature in _KERNEL.findall(code) for word in WORD.findall(signature)}
    for struct in _STRUCT.finditer(code):
        name, (start, end) = struct[1], struct.span(2)
        if name in listed:
            continue
        inside, entries = code[start:end], list[str]()
        constructor = None
        words: Counter[str] = Counter()
        for function in functions:
            if f"{name}::" in code[function.start : function.opening]:
                words.update(WORD.findall(code, function.opening, function.end))
            if function.name == name and start <= function.start < end:
                constructor = (function.closing + 1, _initialised(code, function.closing) + 1)
                entries = [one.strip() for one in split(code[slice(*constructor)].lstrip().removeprefix(":"), ",")]
                inside = (
                    code[start : function.opening]
                    + " " * (constructor[1] - function.opening)
                    + code[constructor[1] : end]
                )
        words.update(WORD.findall(inside))
        gone = set()
        edits: list[_Edit] = []
        for field in _FIELD.finditer(inside):
            member = field[1]
            others = " ".join(entry for entry in entries if not entry.startswith(f"{member}("))
            if member not in asked and words[member] == 1 and member not in WORD.findall(others):
                gone.add(member)
                edits.append((start + field.start(), text.index("\n", start + field.start()) + 1, ""))
        if gone and constructor is not None:
            first, last = constructor
            before = text[first:last]
            kept = [
                one
                for entry in split(before.lstrip().removeprefix(":"), ",")
                if (one := entry.strip()).split("(")[0] not in gone
            ]
            lead = "\n        : " if "\n" in before and len(", ".join(kept)) > 60 else " : "
            edits.append((first, last, lead + ", ".join(kept) if any(kept) else ""))
        if edits:
            yield edits


def _locals(text: str, code: str) -> Iterator[list[_Edit]]:
    """Constants of a function that are never read, with the comment above them."""
    starts = [match.start() for match in re.finditer(r"^[A-Za-z#]|^    (?:DEVICE|template) ", code, re.M)] + [len(code)]
    for start, end in itertools.pairwise(starts):
        words: Counter[str] | None = None
        for match in _LOCAL.finditer(code, start, end):
            words = words or Counter(WORD.findall(code, start, end))
            if words[match[1] or match[2]] == 1:
                yield [(_with_comment(text, match.start()), text.index("\n", match.start()) + 1, "")]


# ---- definitions ----------------------------------------------------------------------------------------------------------


def pieces(text: str) -> list[str]:
    """Top-level pieces of a source: what blank lines separate outside of braces.

    >>> pieces("int a;\\nint b;\\n\\nint f() {\\n    g();\\n\\n    return 1;\\n}")
    ['int a;\\nint b;', 'int f() {\\n    g();\\n\\n    return 1;\\n}']
    """
    found: list[list[str]] = [[]]
    depth = 0
    for line in text.splitlines():
        if depth == 0 and (not line.strip() or line.startswith(_TITLE)):
            found.append([])
        if line.strip() or depth:
            found[-1].append(line)
        depth += _depth(line)
    return ["\n".join(lines) for lines in found if lines]


def _depth(line: str) -> int:
    code = line.partition("//")[0]
    return code.count("{") - code.count("}")


def used(text: str) -> str:
    """Without the functions, types and constants that nothing among the rest names, and without titles that nothing follows.

    >>> print(used("constexpr int A = 1;\\nconstexpr int B = 2;\\n\\nDEVICE int f() { return A; }\\n\\nint kernel() { return B; }"), end="")
    constexpr int B = 2;
    <BLANKLINE>
    int kernel() { return B; }
    """
    items = [item for piece in pieces(text) for item in _items(piece)]
    named: dict[str, list[_Item]] = {}
    for item in items:
        for name in item.names:
            named.setdefault(name, []).append(item)
    # From what has no name of its own, the kernel and macros, to what it names, and on.
    kept = {id(item) for item in items if not item.names}
    found = {word for item in items if not item.names for word in item.words}
    waiting = list(found)
    while waiting:
        for item in named.get(waiting.pop(), ()):
            kept.add(id(item))
            new = item.words - found
            found |= new
            waiting += new
    return _joined([item for item in items if id(item) in kept])


class _Item:
    """A definition with the comment above it, or a comment of its own. ``words``: what its code names, once each. ``first``:
    whether a blank line stands above it.
    """

    def __init__(self, text: str, first: bool):
        self.text = text
        self.first = first
        code = masked(text)
        self.words = set(WORD.findall(code))
        self.names = {groups[0] or next(filter(None, groups[1:])) for groups in _DEFINED.findall(code)}
        enumerators = re.match(r"\s*enum \w+ \{([^}]*)\}", code)
        if enumerators:
            self.names |= set(WORD.findall(enumerators[1]))
        self.title = text.startswith(_TITLE)
        self.section = text.startswith(_SECTION)
        self.comment = not self.words


@lru_cache(maxsize=1024)
def _items(piece: str) -> tuple[_Item, ...]:
    """The definitions of a piece, one by one."""
    found: list[_Item] = []
    lines: list[str] = []
    depth, first = 0, True
    for line in piece.splitlines():
        if lines and depth == 0 and lines[0].startswith(_TITLE):
            found.append(_Item("\n".join(lines), first))
            lines, first = [], False
        lines.append(line)
        depth += _depth(line)
        code = line.partition("//")[0].rstrip()
        if depth == 0 and (code.endswith((";", "}")) or code.startswith("#")):
            found.append(_Item("\n".join(lines), first))
            lines, first = [], False
    if lines:
        found.append(_Item("\n".join(lines), first))
    return tuple(found)


def _joined(items: list[_Item]) -> str:
    """The items with blank lines as before; titles and comments that stood above something that is gone are left out."""
    found: list[_Item] = []
    for item in reversed(items):
        following = found[-1] if found else None
        nothing = following is None or following.title
        heading = item.title or (item.comment and not item.section)
        if (heading or item.section) and nothing:
            continue
        if item.section and following is not None and following.section:
            continue
        found.append(item)
    lines: list[str] = []
    for place, item in enumerate(found[::-1]):
        if place and (item.first or item.title):
            lines.append("")
        lines.append(item.text)
    return "\n".join(lines) + "\n"
