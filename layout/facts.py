"""What is known of symbolic sizes: positive integers, some declared to be multiples of a number.

Questions are decided for ALL values the sizes may take, or answered with None. A size N declared as a multiple of 64 is 64 n
with n a positive integer; quotients and signs of polynomials in such n are then decided by their coefficients.
"""

from __future__ import annotations

from typing import Any

import sympy

from .errors import LayoutError
from .tuples import to_int


class SizeSymbol(sympy.Symbol):  # type: ignore[misc]
    """A size that is a positive integer and a multiple of a known number; made by `dimension`.

    >>> SizeSymbol("N", 64).multiple_of
    64
    """

    __slots__ = ("multiple_of",)

    def __new__(cls, name: str, multiple_of: int = 1) -> SizeSymbol:
        result = sympy.Symbol.__xnew__(cls, name, integer=True, positive=True)
        result.multiple_of = multiple_of
        return result  # type: ignore[no-any-return]

    def _hashable_content(self) -> tuple[Any, ...]:
        return (*super()._hashable_content(), self.multiple_of)

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.name, self.multiple_of), {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (SizeSymbol, (self.name, self.multiple_of))


def dimension(name: str, multiple_of: int = 1) -> SizeSymbol:
    """A symbolic size: a positive integer of which only its name and a divisor are known.

    >>> N = dimension("N", multiple_of=64)
    >>> N, N.multiple_of
    (N, 64)
    """
    multiple = to_int(multiple_of, "a divisor of a dimension")
    if multiple < 1:
        raise LayoutError(f"a divisor of a dimension is at least 1, not {multiple}")
    if not isinstance(name, str) or not name.isidentifier():
        raise LayoutError(f"a dimension's name is an identifier, not {name!r}")
    return SizeSymbol(name, multiple)


def _unit(symbol: Any) -> tuple[Any, int]:
    multiple = getattr(symbol, "multiple_of", 1)
    if multiple == 1:
        return symbol, 1
    return sympy.Symbol(f"{symbol.name}/{multiple}", integer=True, positive=True), multiple


def _reduced(value: Any) -> tuple[Any, dict[Any, Any]]:
    """The value in units of the declared divisors, and how to come back."""
    value = sympy.sympify(value)
    forth, back = {}, {}
    for symbol in value.free_symbols:
        unit, multiple = _unit(symbol)
        forth[symbol] = unit * multiple
        back[unit] = symbol / multiple
    return sympy.expand(value.xreplace(forth)), back


def clean(value: Any) -> Any:
    """The expanded value, an int where it is one.

    >>> clean(sympy.Integer(4)), clean(dimension("N") * 2 - dimension("N"))
    (4, N)
    """
    if type(value) is int:
        return value
    if not hasattr(value, "free_symbols"):
        return value
    value = sympy.expand(value)
    return int(value) if value.is_Integer else value


def quotient(a: Any, b: Any) -> Any:
    """a / b where b is known to divide a, else None.

    >>> N = dimension("N", multiple_of=64)
    >>> quotient(N, 16), quotient(N * 3, N), quotient(N, 128) is None
    (N/16, 3, True)
    """
    if type(a) is int and type(b) is int:
        return a // b if b and a % b == 0 else None
    first, back = _reduced(a)
    second, more = _reduced(b)
    back.update(more)
    if second == 0:
        return None
    symbols = sorted(first.free_symbols | second.free_symbols, key=str)
    if not symbols:
        return quotient(int(first), int(second))
    result, rest = sympy.div(sympy.Poly(first, *symbols, domain="QQ"), sympy.Poly(second, *symbols, domain="QQ"))
    if not rest.is_zero or any(not c.is_Integer for c in result.coeffs()):
        return None
    return clean(result.as_expr().xreplace(back))


def sign(value: Any) -> int | None:
    """1, 0 or -1 where the value has that sign for all sizes, else None.

    >>> N = dimension("N", multiple_of=64)
    >>> sign(N - 1), sign(N - N), sign(16 - N), sign(N - 100) is None
    (1, 0, -1, True)
    """
    if type(value) is int:
        return (value > 0) - (value < 0)
    reduced, _ = _reduced(value)
    symbols = sorted(reduced.free_symbols, key=str)
    if not symbols:
        return int(sympy.sign(reduced))
    shifted = sympy.Poly(sympy.expand(reduced.xreplace({s: s + 1 for s in symbols})), *symbols)
    coefficients = shifted.coeffs()
    constant = shifted.eval(dict.fromkeys(symbols, 0))
    if constant > 0 and all(c >= 0 for c in coefficients):
        return 1
    if constant < 0 and all(c <= 0 for c in coefficients):
        return -1
    return None


def missing_divisor(a: Any, b: Any) -> str:
    """The fact that would make b divide a, in words.

    >>> missing_divisor(dimension("N"), 64)
    'N % 64 == 0'
    """
    return f"{a} % {b if not getattr(b, 'args', ()) else f'({b})'} == 0"
