"""Integer expressions in C++: immutable nodes, a printer that knows precedence, and the index expression of a layout.

The printer writes no parentheses beyond those that precedence asks for, and those that compilers ask for under
``-Wparentheses`` (arithmetic inside a shift, either inside ``& ^ |``); a shift of a shift keeps its pair, for the reader. The index expression uses shifts and masks where
extents and strides are powers of two, and leaves out every division and remainder that the ranges of the coordinates make
idle. This module knows nothing of kernels or of how the text is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import LayoutError

_LEVEL = {"*": 5, "/": 5, "%": 5, "+": 6, "-": 6, "<<": 7, ">>": 7, "&": 10, "^": 11, "|": 12}
_ASSOCIATIVE = frozenset("*+&^|")


@dataclass(frozen=True, slots=True)
class Number:
    """An integer literal; masks are written in hexadecimal.

    >>> str(Number(7)), str(Number(448, mask=True))
    ('7', '0x1c0')
    """

    value: int
    mask: bool = False

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value.

        >>> Number(7).evaluate({})
        7
        """
        return self.value

    def __str__(self) -> str:
        if self.mask and self.value > 15:
            return hex(self.value)
        if abs(self.value) >= 2**31:
            return f"{self.value}ll"
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, or any text that binds as tightly as one.

    >>> str(Name("lane"))
    'lane'
    """

    text: str

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value given for the name.

        >>> Name("x").evaluate({"x": 3})
        3
        """
        return values[self.text]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands and a C++ operator: ``* / % + - << >> & ^ |``.

    >>> x, y = Name("x"), Name("y")
    >>> str(Binary("*", Binary("+", x, y), Number(3))), str(Binary("-", x, Binary("-", y, Number(1))))
    ('(x + y) * 3', 'x - (y - 1)')
    >>> str(Binary("^", x, Binary("<<", Binary("&", y, Number(7)), Number(3))))
    'x ^ ((y & 7) << 3)'
    """

    operator: str
    left: Expression
    right: Expression

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value for given values of the names; divisions round down, as C++ does for operands that are not negative.

        >>> Binary("/", Name("x"), Number(4)).evaluate({"x": 11})
        2
        """
        a, b = self.left.evaluate(values), self.right.evaluate(values)
        match self.operator:
            case "*":
                return a * b
            case "/":
                return a // b
            case "%":
                return a % b
            case "+":
                return a + b
            case "-":
                return a - b
            case "<<":
                return a << b
            case ">>":
                return a >> b
            case "&":
                return a & b
            case "^":
                return a ^ b
            case _:
                return a | b

    def __str__(self) -> str:
        return f"{self._inside(self.left, False)} {self.operator} {self._inside(self.right, True)}"

    def _inside(self, operand: Expression, is_right: bool) -> str:
        text = str(operand)
        if isinstance(operand, Number):
            return f"({text})" if operand.value < 0 and self.operator not in "+^&|" else text
        if not isinstance(operand, Binary):
            return text
        mine, its = _LEVEL[self.operator], _LEVEL[operand.operator]
        bare = its < mine
        if its == mine:
            same = operand.operator == self.operator and self.operator in _ASSOCIATIVE
            bare = same or (self.operator == "+" and is_right) or (not is_right and mine != 7)
        if bare and mine >= 7 and its != mine:
            bare = False  # -Wparentheses
        return text if bare else f"({text})"


Expression = Number | Name | Binary


def operators(e: Expression) -> int:
    """The number of operators in an expression.

    >>> operators(Binary("+", Name("x"), Number(1)))
    1
    """
    return 1 + operators(e.left) + operators(e.right) if isinstance(e, Binary) else 0


@dataclass(frozen=True, slots=True)
class _Field:
    """Some bits of a variable, moved: ``(name & mask) << shift``, to the right for negative shifts."""

    name: str
    mask: int
    shift: int
    top: int  # all bits the variable may have

    @property
    def bits(self) -> int:
        return self.mask << self.shift if self.shift >= 0 else self.mask >> -self.shift

    def expression(self) -> Expression:
        name: Expression = Name(self.name)
        low = (self.mask & -self.mask).bit_length() - 1
        if self.mask | ((1 << low) - 1) == self.top:  # everything from bit `low` up: shifting right masks it
            down: Expression = Binary(">>", name, Number(low)) if low else name
            up = self.shift + low
            if low == 0 or up == 0 or self.shift != 0:
                return Binary("<<", down, Number(up)) if up else down
        if self.shift == 0:
            return Binary("&", name, Number(self.mask, mask=True))
        if self.shift < 0:
            return Binary("&", Binary(">>", name, Number(-self.shift)), Number(self.mask >> -self.shift, mask=True))
        return Binary("<<", Binary("&", name, Number(self.mask, mask=True)), Number(self.shift))


def _power(value: Any) -> int:
    """log2 of a power of two, else -1."""
    return value.bit_length() - 1 if type(value) is int and value > 0 and value & (value - 1) == 0 else -1


def _times(e: Expression, factor: Any, may_be_negative: bool = False) -> Expression:
    if factor == 1:
        return e
    power = _power(factor)
    if power > 0 and not may_be_negative:
        return Binary("<<", e, Number(power))
    return Binary("*", e, Number(factor) if type(factor) is int else symbol(factor))


def symbol(value: Any) -> Expression:
    """A symbolic (sympy) polynomial as an expression.

    >>> import sympy
    >>> str(symbol(16 * sympy.Symbol("N") + 1))
    '16 * N + 1'
    """
    import sympy

    if type(value) is int:
        return Number(value)
    if isinstance(value, sympy.Integer):
        return Number(int(value))
    if isinstance(value, sympy.Symbol):
        return Name(str(value))
    numerator, denominator = sympy.fraction(sympy.together(value))
    if denominator != 1 and not isinstance(value, sympy.floor):  # exact, by what was declared of the sizes
        return Binary("/", symbol(numerator), symbol(denominator))
    if isinstance(value, (sympy.Add, sympy.Mul)):
        arguments = value.as_ordered_terms() if isinstance(value, sympy.Add) else value.as_ordered_factors()
        result: Expression | None = None
        for argument in arguments:
            part = symbol(argument)
            result = part if result is None else Binary("+" if isinstance(value, sympy.Add) else "*", result, part)
        assert result is not None
        return result
    if isinstance(value, sympy.Pow) and value.exp.is_Integer and value.exp > 0:
        base = symbol(value.base)
        result = base
        for _ in range(int(value.exp) - 1):
            result = Binary("*", result, base)
        return result
    if isinstance(value, sympy.floor):
        numerator, denominator = sympy.fraction(sympy.together(value.args[0]))
        return Binary("/", symbol(numerator), symbol(denominator))
    raise LayoutError(f"{value} has no C++ integer expression")


class _Sum:
    """The terms of an index expression: a constant, bit fields, and everything else."""

    def __init__(self) -> None:
        self.constant = 0
        self.fields: list[_Field] = []
        self.others: list[tuple[Expression, bool, int]] = []  # (term, to be subtracted, a power of two that divides it)
        self.order: list[Any] = []

    def field(self, new: _Field) -> None:
        for i, old in enumerate(self.fields):
            if (old.name, old.shift) == (new.name, new.shift) and not old.mask & new.mask:
                merged = _Field(old.name, old.mask | new.mask, old.shift, old.top)
                self.fields[i] = merged
                self.order[self.order.index(old)] = merged
                return
        self.fields.append(new)
        self.order.append(new)

    def other(self, term: Expression, negative: bool = False, unit: int = 1) -> None:
        self.others.append((term, negative, unit))
        self.order.append(self.others[-1])

    def separate(self, mask: int) -> bool:
        """Whether the bits of the sum inside `mask` are those of bit fields that never share a bit, so that nothing carries."""
        seen = 0
        for part in [*[f.bits for f in self.fields], self.constant]:
            if part < 0 or part & seen:
                return False
            seen |= part
        return all(unit > max(seen, mask) for _, _, unit in self.others)

    def expression(self) -> Expression:
        result: Expression | None = None
        terms = [(t.expression(), False) if isinstance(t, _Field) else (t[0], t[1]) for t in self.order]
        terms.sort(key=lambda t: t[1])
        for term, negative in terms:
            if result is None:
                result = Binary("-", Number(0), term) if negative else term
            else:
                result = Binary("-" if negative else "+", result, term)
        if result is None:
            return Number(self.constant)
        if self.constant:
            sign = "-" if self.constant < 0 else "+"
            result = Binary(sign, result, Number(abs(self.constant)))
        return result


def _add_mode(into: _Sum, name: str, low: int, stop: Any, shape: list[Any], stride: list[Any]) -> None:
    """Adds the terms of one coordinate with range(low, stop) over the flat, merged modes given."""
    digits, floors = _Sum(), _Sum()
    negative = low < 0
    top = (1 << (stop - 1).bit_length()) - 1 if type(stop) is int and not negative else -1
    before: Any = 1
    previous: Any = 0
    floors_usable = len(shape) > 1
    for k, (s, d) in enumerate(zip(shape, stride, strict=True)):
        last = k == len(shape) - 1
        inside = type(stop) is int and not negative and type(before) is int
        if inside and before >= max(stop, 1):
            break
        bounded = not last and not (inside and type(s) is int and before * s >= stop)
        a = _power(before)
        if d != 0:
            p, q = _power(s) if bounded else 0, _power(d)
            if top > 0 and a >= 0 and p >= 0 and q >= 0:
                mask = top & ~((1 << a) - 1)
                if bounded:
                    mask &= (1 << (a + p)) - 1
                if mask:
                    digits.field(_Field(name, mask, q - a, top))
            else:
                term = _quotient(Name(name), before, negative)
                if bounded:
                    term = _remainder(term, s, negative)
                minus = type(d) is int and d < 0
                unit = d & -d if type(d) is int else 1
                digits.other(_times(term, -d if minus else d, negative), minus, unit)
        if floors_usable:
            weight = d - previous
            if type(weight) is not int or weight < 0 or negative:
                floors_usable = False
            elif weight:
                floors.other(_times(_quotient(Name(name), before, negative), weight), False, weight & -weight)
        previous = s * d if type(s) is int and type(d) is int else None
        if previous is None:
            floors_usable = False
        if not bounded:
            break
        before = before * s
    chosen = floors if floors_usable and operators(floors.expression()) < operators(digits.expression()) else digits
    for term in chosen.order:
        if isinstance(term, _Field):
            into.field(term)
        else:
            into.other(*term)


def _quotient(e: Expression, divisor: Any, negative: bool) -> Expression:
    if divisor == 1:
        return e
    power = _power(divisor)
    if power > 0:
        return Binary(">>", e, Number(power))
    if negative:
        raise LayoutError(f"{e} may be negative, and C++ does not round a quotient by {divisor} down")
    return Binary("/", e, symbol(divisor) if type(divisor) is not int else Number(divisor))


def _remainder(e: Expression, divisor: Any, negative: bool) -> Expression:
    power = _power(divisor)
    if power > 0:
        return Binary("&", e, Number(divisor - 1, mask=True))
    if negative:
        raise LayoutError(f"{e} may be negative, and C++ does not keep a remainder by {divisor} positive")
    return Binary("%", e, symbol(divisor) if type(divisor) is not int else Number(divisor))


def index_expression(layout: Any, *names: str, ranges: Mapping[str, Any] | None = None) -> Expression:
    """The offset of a layout or swizzled layout as an expression: see `cpp_expression`.

    >>> from stridewright.layout import Layout
    >>> index_expression(Layout((4, 8), (8, 1)), "i", "j").evaluate({"i": 1, "j": 2})
    10
    """
    from .algebra import merge_modes
    from .core import Layout
    from .tuples import flatten_tuple, product

    plain = layout.layout if hasattr(layout, "swizzle") else layout
    if not isinstance(plain, Layout):
        raise LayoutError(f"an index expression is made from a layout, not from {layout!r}")
    for name in names:
        if not isinstance(name, str):
            raise LayoutError(f"a coordinate's name is a str, not {name!r}")
    if any(hasattr(d, "terms") for d in plain.flat[1]):
        raise LayoutError(f"{plain} has basis strides: its offsets are coordinates, not numbers")
    if len(names) == 1 and len(plain) != 1:
        modes = [(plain.shape, plain.stride)]
    elif len(names) == len(plain):
        modes = [(m.shape, m.stride) for m in plain]
    else:
        raise LayoutError(f"{plain} takes one name for its index or {len(plain)} for its coordinates, not {len(names)}")
    terms = _Sum()
    terms.constant = layout.offset if hasattr(layout, "swizzle") else 0
    for name, (shape, stride) in zip(names, modes, strict=True):
        low, stop = 0, product(shape)
        if ranges is not None and name in ranges:
            given = ranges[name]
            low, stop = given if isinstance(given, tuple) else (0, given)
            if type(low) is int and type(stop) is int and stop <= low:
                raise LayoutError(f"the range of {name} is empty: {given}")
        leaves, steps = flatten_tuple(shape), flatten_tuple(stride)
        shapes, strides = merge_modes(leaves, steps)
        beyond = low != 0 or stop != product(shape)  # the last mode is unbounded, even of extent 1
        if leaves and leaves[-1] == 1 and beyond and not (shapes and steps[-1] == shapes[-1] * strides[-1]):
            shapes.append(1)
            strides.append(steps[-1])
        if shapes:
            _add_mode(terms, name, low, stop, shapes, strides)
    if not hasattr(layout, "swizzle") or layout.swizzle.bits == 0:
        return terms.expression()
    return _swizzled(terms, layout.swizzle)


def _swizzled(terms: _Sum, swizzle: Any) -> Expression:
    source, shift = swizzle.source_mask, swizzle.shift
    if terms.separate(source | swizzle.target_mask):
        moved = _Sum()
        read = terms.constant & source
        moved.constant = read >> shift if shift >= 0 else read << -shift
        for f in terms.fields:
            mask = f.mask & (source >> f.shift if f.shift >= 0 else source << -f.shift)
            if mask:
                moved.field(_Field(f.name, mask, f.shift - shift, f.top))
        if not moved.fields and not moved.constant:
            return terms.expression()
        if not moved.fields:
            return Binary("^", terms.expression(), Number(moved.constant))
        return Binary("^", terms.expression(), moved.expression())
    whole = terms.expression()
    read_bits = Binary("&", whole, Number(source, mask=True))
    return Binary("^", whole, Binary(">>" if shift > 0 else "<<", read_bits, Number(abs(shift))))


def cpp_expression(layout: Any, *names: str, ranges: Mapping[str, Any] | None = None) -> str:
    """The C++ expression of the offset of a layout or swizzled layout.

    `names` are one for each top-level mode, or a single one for the linear index. `ranges` says which values a name takes:
    an extent n for 0 <= name < n, or a pair (low, stop); without it a coordinate stays inside its mode. A single mode that
    runs on past its size continues by its last part, as the layout itself does. Nothing is said about types: the variables
    must be wide enough for the offset.

    >>> from stridewright.layout import Layout, Swizzle, compose
    >>> cpp_expression(Layout((128, 64), (64, 1)), "row", "column")
    '(row << 6) + column'
    >>> cpp_expression(compose(Swizzle(3, 3, 3), Layout((128, 64), (64, 1))), "row", "column")
    '((row << 6) + column) ^ ((row & 7) << 3)'
    >>> cpp_expression(Layout((4, 8), (8, 1)), "i"), cpp_expression(Layout((3, 5), (7, 1)), "i")
    ('((i & 3) << 3) + (i >> 2)', 'i % 3 * 7 + i / 3')
    """
    return str(index_expression(layout, *names, ranges=ranges))
