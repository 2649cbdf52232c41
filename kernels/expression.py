"""A user's expression of an epilogue, read as C++ reads it: what it is made of, or the first thing that is wrong with it.

It has the values and functions of an epilogue (``kernels.fusion``), numbers, ``? :`` and the signs between numbers of C++, with
C++'s precedence and its whole numbers: ``row / 2`` drops the half, and ``row`` and ``col`` are unsigned. One thing differs: a
number with a point or an exponent is float32, with an f behind it or without, where C++ would compute in float64.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

VALUES = ("x", "acc", "c", "bias", "alpha", "beta", "row", "col")
WHOLE = ("row", "col")
"""The values that are whole numbers, of 32 bits and unsigned; the others are float32."""

FUNCTIONS = (
    "relu", "sigmoid", "silu", "gelu", "gelu_tanh", "erff", "expf", "logf", "log1pf", "tanhf", "sqrtf", "rsqrtf",
    "fabsf", "fmaxf", "fminf", "powf", "floorf", "ceilf", "rintf", "float",
)  # fmt: skip
_LARGEST = (2 - 2.0**-23) * 2.0**127
_SMALLEST = 2.0**-149
"""Of the positive float32 numbers."""
_OF_TWO = ("fmaxf", "fminf", "powf")
_SIGNS = "- + * / % ( ) ? : , < > <= >= == != && || !"
_BINARY: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)
"""From the loosest to the tightest."""

_LEVELS = {sign: level for level, signs in enumerate(_BINARY) for sign in signs}

LONGEST = 8192
"""Characters that an expression may have."""

DEEPEST = 128
"""Parentheses, calls, signs and right operands that may lie in one another; a sum or a row of ``? :`` may be of any length."""

_SPACES = " \t\n\r\f\v"

# Of ASCII alone, as C++ has it: other alphabets have digits and spaces, too.
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fFuU]?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|==|!=|&&|\|\||[-+*/%()?:,<>!]))",
    re.ASCII,
)


_TOO_DEEP = (
    f"is nested more than {DEEPEST} deep (parentheses, calls, signs and right operands in one another); "
    "a sum or a row of '? :' may be as long as it likes"
)


class ExpressionError(ValueError):
    """What is wrong with an expression."""


@dataclass(frozen=True)
class Term:
    """A part of an expression: ``what`` is "number", "name", a function's name, "?:", "not", "minus" or a sign between two;
    ``kind`` is "float", "int" or "unsigned".
    """

    what: str
    kind: str
    parts: tuple[Term, ...] = ()
    name: str = ""
    number: float = 0.0

    @property
    def names(self) -> frozenset[str]:
        """The values that it reads.

        >>> sorted(parse("x + (row < 3 ? bias : 0)").names)
        ['bias', 'row', 'x']
        """
        found: set[str] = set()
        waiting = [self]
        while waiting:
            term = waiting.pop()
            found |= {term.name} if term.what == "name" else set()
            waiting += term.parts
        return frozenset(found)


@dataclass(frozen=True)
class _Token:
    what: str
    text: str
    at: int


def parse(text: str) -> Term:
    """The expression. Raises ExpressionError with the first word or sign that does not belong there.

    >>> parse("fmaxf(x, 0.1f * x)").what
    'fmaxf'
    >>> parse("x +")
    Traceback (most recent call last):
    stridewright.kernels.expression.ExpressionError: ends where a value is wanted
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"has {len(text)} characters, and an expression may have {LONGEST}")
    tokens = _tokens(text)
    if not tokens:
        raise ExpressionError("is empty")
    try:
        return _Reader(tokens).whole()
    except RecursionError:  # of a caller that is deep in calls itself
        raise ExpressionError(_TOO_DEEP) from None


def in_float32(text: str) -> str:
    """The expression as it stands in a kernel's source: an f behind each number with a point or an exponent that has none.

    Raises ExpressionError as :func:`parse` does.

    >>> in_float32("x > 1e-3 ? 0.1 * x : 2 * x + 0.5f")
    'x > 1e-3f ? 0.1f * x : 2 * x + 0.5f'
    """
    parse(text)
    written = text
    for token in reversed(_tokens(text)):
        if token.what == "number" and not token.text.isdigit() and token.text[-1] not in "fFuU":
            end = token.at + len(token.text)
            written = f"{written[:end]}f{written[end:]}"
    return written


def _tokens(text: str) -> list[_Token]:
    comment = re.search(r"//|/\*", text)
    if comment:
        raise ExpressionError(f"{comment[0]!r} at {comment.start()} begins a comment, and an expression has none")
    found: list[_Token] = []
    position = depth = 0
    while text[position:].strip(_SPACES):
        match = _TOKEN.match(text, position)
        if match is None:
            at = position + len(text[position:]) - len(text[position:].lstrip(_SPACES))
            raise ExpressionError(f"{text[at]!r} at {at} is none of the signs {_SIGNS}")
        kind = match.lastgroup or ""
        word = match[kind]
        if word in "+-" and found and found[-1].text == word and match.start(kind) == position:
            raise ExpressionError(
                f"'{word}{word}' at {position - 1} changes a value in C++, and an expression changes none; "
                f"'{word} {word}', apart, are two signs"
            )
        position = match.end()
        found.append(_Token(kind, word, match.start(kind)))
        if kind == "name":
            called = text[position:].lstrip(_SPACES).startswith("(")
            allowed = FUNCTIONS if called else VALUES
            if word not in allowed:
                which = "function" if called else "value"
                raise ExpressionError(f"{_shown(word)} is no {which} of an epilogue; there are {', '.join(allowed)}")
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth < 0:
            raise ExpressionError(f"')' at {position - 1} closes nothing")
    if depth:
        raise ExpressionError(f"{depth} '(' are not closed")
    return found


class _Reader:
    """Reads tokens from the first on, one rule of C++'s grammar for each method."""

    def __init__(self, tokens: Sequence[_Token]):
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def whole(self) -> Term:
        term = self._choice()
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            raise ExpressionError(f"{token.text!r} at {token.at} follows a value; an operator is wanted there")
        return term

    def _sees(self, *texts: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next].text in texts

    def _take(self) -> _Token:
        if self._next == len(self._tokens):
            raise ExpressionError("ends where a value is wanted")
        self._next += 1
        return self._tokens[self._next - 1]

    @contextlib.contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionError(_TOO_DEEP)
        yield
        self._depth -= 1

    def _choice(self) -> Term:
        with self._deeper():
            chosen: list[tuple[Term, Term]] = []
            otherwise = self._binary(0)
            while self._sees("?"):
                mark = self._take()
                then = self._choice()
                if not self._sees(":"):
                    raise ExpressionError(f"'?' at {mark.at} has no ':'")
                self._take()
                chosen.append((otherwise, then))
                otherwise = self._binary(0)
        for condition, then in reversed(chosen):
            otherwise = Term("?:", _common(then, otherwise), (condition, then, otherwise))
        return otherwise

    def _binary(self, least: int) -> Term:
        """A value and what is done to it by signs that bind as this level of ``_BINARY`` does, or tighter."""
        left = self._unary()
        while self._next < len(self._tokens):
            level = _LEVELS.get(self._tokens[self._next].text, -1)
            if level < least:
                break
            sign = self._take()
            with self._deeper():
                right = self._binary(level + 1)
            left = _of_two(sign, level, left, right)
        return left

    def _unary(self) -> Term:
        if self._sees("-", "+", "!"):
            sign = self._take()
            with self._deeper():
                part = self._unary()
            if sign.text == "+":
                return part
            return Term("not", "int", (part,)) if sign.text == "!" else Term("minus", part.kind, (part,))
        return self._value()

    def _value(self) -> Term:
        token = self._take()
        if token.what == "number":
            return _number(token)
        if token.what == "name":
            if not self._sees("("):
                kind = "unsigned" if token.text in WHOLE else "float"
                return Term("name", kind, name=token.text)
            return self._call(token)
        if token.text == "(":
            inner = self._choice()
            self._close(token)
            return inner
        raise ExpressionError(f"{token.text!r} at {token.at} stands where a value is wanted")

    def _call(self, name: _Token) -> Term:
        opening = self._take()
        given = [] if self._sees(")") else [self._choice()]
        while self._sees(","):
            self._take()
            given.append(self._choice())
        self._close(opening)
        wanted = 2 if name.text in _OF_TWO else 1
        if len(given) != wanted:
            raise ExpressionError(
                f"{name.text} at {name.at} takes {wanted} value{'s' * (wanted > 1)}, and {len(given)} are given"
            )
        return Term(name.text, "float", tuple(given))

    def _close(self, opening: _Token) -> None:
        if not self._sees(")"):
            token = self._tokens[self._next]
            raise ExpressionError(f"{token.text!r} at {token.at} stands where the '(' at {opening.at} should be closed")
        self._take()


def _of_two(sign: _Token, level: int, left: Term, right: Term) -> Term:
    kind = _common(left, right)
    if sign.text == "%" and kind == "float":
        raise ExpressionError(f"'%' at {sign.at} divides whole numbers, which row and col are, and floats are not")
    if sign.text in "/%" and kind != "float" and right.what == "number" and right.number == 0:
        raise ExpressionError(f"{sign.text!r} at {sign.at} divides a whole number by 0")
    return Term(sign.text, kind if level > 3 else "int", (left, right))


def _common(one: Term, other: Term) -> str:
    kinds = (one.kind, other.kind)
    return "float" if "float" in kinds else "unsigned" if "unsigned" in kinds else "int"


def _shown(word: str) -> str:
    return repr(word if len(word) <= 40 else f"{word[:40]}...")


def _number(token: _Token) -> Term:
    text, shown = token.text, f"{_shown(token.text)} at {token.at}"
    digits = text.rstrip("fFuU")
    whole = digits.isdigit()
    # Of 1e-400 float64, too, makes 0.
    nothing = not re.search("[1-9]", re.split("[eE]", digits)[0])
    if float(digits) > _LARGEST or (float(digits) < _SMALLEST and not nothing):
        nearest = f"{_LARGEST:.8g}" if float(digits) > 1 else "0.0"
        raise ExpressionError(
            f"{shown} is no float32, whose numbers lie between {_SMALLEST:.3g} and {_LARGEST:.8g}; nearest {nearest}"
        )
    if (text[-1] in "fF" and whole) or (text[-1] in "uU" and not whole):
        raise ExpressionError(f"{shown} is no number of C++; {digits}.0f is, or {digits.split('.')[0]}u")
    if whole and len(digits) > 1 and digits[0] == "0":
        raise ExpressionError(f"{shown} is octal in C++; {digits.lstrip('0') or '0'} is decimal")
    if whole and int(digits) >= 2**31:
        raise ExpressionError(f"{shown} has more than 31 bits; {digits}.0f is a float")
    kind = "float" if not whole else "unsigned" if text[-1] in "uU" else "int"
    return Term("number", kind, number=float(digits))
