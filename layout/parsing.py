"""Reading layouts from text: Shape:Stride, as `str` writes them."""

from __future__ import annotations

import re
from typing import Any

from .basis import E
from .core import Layout
from .errors import LayoutError
from .tuples import IntTuple

_BASIS = r"-?[0-9]+@[0-9]+(?:\.[0-9]+)*"
_TOKEN = re.compile(rf"\s*(?:({_BASIS}(?:[+]{_BASIS})*|-?[0-9]+)|([(),]))")
_MAX_TEXT = 100_000
_MAX_DEPTH = 100


def parse(text: str) -> Layout:
    """The layout written as Shape:Stride; a shape alone is column-major. See `Layout.parse`.

    >>> parse("(4,(2,3)):(1,(4,8))")
    Layout((4, (2, 3)), (1, (4, 8)))
    """
    if not isinstance(text, str):
        raise LayoutError(f"a layout is parsed from a str, not from {type(text).__name__}")
    if len(text) > _MAX_TEXT:
        raise LayoutError(f"the text has {len(text)} characters; a layout has at most {_MAX_TEXT}")
    parts = text.split(":")
    if len(parts) > 2:
        raise LayoutError(f"expected Shape:Stride with one colon, not {_shorten(text)}")
    shape = _parse_tuple(parts[0], text)
    return Layout(shape) if len(parts) == 1 else Layout(shape, _parse_tuple(parts[1], text))


def _parse_tuple(part: str, text: str) -> IntTuple:
    stack: list[list[Any]] = [[]]
    position, part = 0, part.rstrip()
    value_allowed, comma_allowed = True, False
    while position < len(part):
        match = _TOKEN.match(part, position)
        if match is None:
            raise LayoutError(f"unexpected {part[position:].strip()[:1]!r} in {_shorten(text)}")
        position = match.end()
        number, mark = match.groups()
        if number is not None or mark == "(":
            if not value_allowed:
                raise LayoutError(f"expected ',' or ')' before {number or mark!r} in {_shorten(text)}")
            value_allowed, comma_allowed = mark == "(", number is not None
            if number is not None:
                stack[-1].append(_parse_number(number))
            elif len(stack) > _MAX_DEPTH:
                raise LayoutError(f"more than {_MAX_DEPTH} levels of brackets in {_shorten(text)}")
            else:
                stack.append([])
        elif mark == ",":
            if not comma_allowed or len(stack) == 1:
                raise LayoutError(f"unexpected ',' in {_shorten(text)}")
            value_allowed, comma_allowed = True, False
        else:
            if len(stack) == 1:
                raise LayoutError(f"unexpected ')' in {_shorten(text)}")
            closed = stack.pop()
            stack[-1].append(tuple(closed))
            value_allowed, comma_allowed = False, True
    if len(stack) > 1 or len(stack[0]) != 1:
        raise LayoutError(f"expected an int or one bracketed tuple on each side of ':', not {_shorten(text)}")
    return stack[0][0]


def _parse_number(token: str) -> Any:
    if len(token) > 4000:
        raise LayoutError(f"a number has at most 4000 digits, not {len(token)}")
    if "@" not in token:
        return int(token)
    total: Any = 0
    for term in token.split("+"):
        coefficient, path = term.split("@")
        total = total + int(coefficient) * E(*[int(p) for p in path.split(".")])
    return total


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
