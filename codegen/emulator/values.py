"""Integer values of registers and what instructions do to them. Called by translated code; knows no instruction names.

A register holds its bits: a Python int in [0, 2**width) where all threads of the gang agree ("uniform"), else a numpy array of uint16,
uint32 or uint64 with one entry for each thread. Predicates are bool or arrays of bool. Arrays are never changed in place, so copies of a
register list may share them. Every function takes any mix and returns an int if all its arguments are ints.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Value = Any
"""int | bool | NDArray[uint16 | uint32 | uint64 | bool]"""

UNSIGNED: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
MASK = {1: 1, 8: 0xFF, 16: 0xFFFF, 32: 0xFFFFFFFF, 64: 0xFFFFFFFFFFFFFFFF}


def lift(*widths: int) -> Callable[[Callable[..., Any]], Callable[..., Value]]:
    """Makes a function of equally long unsigned arrays accept any mix of ints and arrays; widths are the arguments' bits."""
    types = [np.bool_ if width == 1 else UNSIGNED[width] for width in widths]

    def wrap(function: Callable[..., Any]) -> Callable[..., Value]:
        @functools.wraps(function)
        def call(*values: Value) -> Value:
            for value in values:
                if value.__class__ is np.ndarray:
                    return function(
                        *[v if v.__class__ is np.ndarray else t(v) for v, t in zip(values, types, strict=True)]
                    )
            result = function(*[np.array([v], t) for v, t in zip(values, types, strict=True)])
            if isinstance(result, tuple):
                return tuple(part[0].item() for part in result)
            return result[0].item()

        return call

    return wrap


def cast(value: Value, width: int) -> Value:
    """Cuts or zero-extends to `width` bits."""
    if value.__class__ is np.ndarray:
        return value.astype(UNSIGNED[width])
    return int(value) & MASK[width]


def extend(value: Value, source: int, width: int) -> Value:
    """Takes the low `source` bits as a signed number and sign-extends it to `width` bits.

    >>> hex(extend(0x80, 8, 32))
    '0xffffff80'
    """
    if value.__class__ is np.ndarray:
        return value.astype(UNSIGNED[source]).view(SIGNED[source]).astype(SIGNED[width]).view(UNSIGNED[width])
    value &= MASK[source]
    if value >> (source - 1):
        value -= 1 << source
    return value & MASK[width]


def signed(value: Value, width: int) -> Value:
    """The same bits as a signed number (int, or array of signed integers)."""
    if value.__class__ is np.ndarray:
        return value.view(SIGNED[width])
    return value - (1 << width) if value >> (width - 1) else value


def bits(value: Value, width: int) -> Value:
    """A signed or wide result back to bits."""
    if value.__class__ is np.ndarray:
        return value.astype(UNSIGNED[width])
    return int(value) & MASK[width]


def collapse(value: Value) -> Value:
    """An array whose entries agree becomes an int: a result of a shift or mask is often the same for a whole warpgroup."""
    if value.__class__ is np.ndarray and value[0] == value[-1] and bool((value == value[0]).all()):
        return value[0].item()
    return value


def select(predicate: Value, a: Value, b: Value, width: int) -> Value:
    """a where the predicate holds, else b."""
    if predicate.__class__ is not np.ndarray:
        return a if predicate else b
    if width == 1:
        return np.where(predicate, a, b)
    kind = UNSIGNED[width]
    return np.where(predicate, a if a.__class__ is np.ndarray else kind(a), b if b.__class__ is np.ndarray else kind(b))


def negate_predicate(value: Value) -> Value:
    """not p."""
    return ~value if value.__class__ is np.ndarray else not value


def multiply_wide(a: Value, b: Value, width: int, is_signed: bool) -> Value:
    """The full product of two `width`-bit numbers in twice the bits (width 16 or 32)."""
    double = 2 * width
    if a.__class__ is not np.ndarray and b.__class__ is not np.ndarray:
        if is_signed:
            return signed(a, width) * signed(b, width) & MASK[double]
        return a * b
    if is_signed:
        a = (
            a.view(SIGNED[width]).astype(SIGNED[double])
            if a.__class__ is np.ndarray
            else SIGNED[double](signed(a, width))
        )
        b = (
            b.view(SIGNED[width]).astype(SIGNED[double])
            if b.__class__ is np.ndarray
            else SIGNED[double](signed(b, width))
        )
        return (a * b).view(UNSIGNED[double])
    a = a.astype(UNSIGNED[double]) if a.__class__ is np.ndarray else UNSIGNED[double](a)
    b = b.astype(UNSIGNED[double]) if b.__class__ is np.ndarray else UNSIGNED[double](b)
    return a * b


def multiply_high(a: Value, b: Value, width: int, is_signed: bool) -> Value:
    """The upper half of the product.

    >>> multiply_high(0xFFFFFFFF, 0xFFFFFFFF, 32, False), multiply_high(0xFFFFFFFF, 5, 32, True)
    (4294967294, 4294967295)
    """
    if a.__class__ is not np.ndarray and b.__class__ is not np.ndarray:
        if is_signed:
            a, b = signed(a, width), signed(b, width)
        return a * b >> width & MASK[width]
    if width <= 32:
        return (multiply_wide(a, b, width, is_signed) >> UNSIGNED[2 * width](width)).astype(UNSIGNED[width])
    return _high64_signed(a, b) if is_signed else _high64(a, b)


@lift(64, 64)
def _high64(a: Any, b: Any) -> Any:
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half)


@lift(64, 64)
def _high64_signed(a: Any, b: Any) -> Any:
    top = np.uint64(63)
    return _high64(a, b) - np.where(a >> top, b, np.uint64(0)) - np.where(b >> top, a, np.uint64(0))


def divide(a: Value, b: Value, width: int, is_signed: bool, remainder: bool) -> Value:
    """Quotient (toward zero) or remainder. Division by zero gives all ones, its remainder the dividend.

    >>> signed(divide(2**32 - 7, 2, 32, True, False), 32), signed(divide(2**32 - 7, 2, 32, True, True), 32)
    (-3, -1)
    """
    if a.__class__ is not np.ndarray and b.__class__ is not np.ndarray:
        if b == 0:
            return a if remainder else MASK[width]
        if is_signed:
            a, b = signed(a, width), signed(b, width)
        quotient = abs(a) // abs(b)
        if (a < 0) != (b < 0):
            quotient = -quotient
        return (a - quotient * b if remainder else quotient) & MASK[width]
    kind = UNSIGNED[width]
    a, b = np.broadcast_arrays(a if a.__class__ is np.ndarray else kind(a), b if b.__class__ is np.ndarray else kind(b))
    zero = b == 0
    safe = np.where(zero, kind(1), b)
    if is_signed:
        top = kind(width - 1)
        minus_a, minus_b = (a >> top).astype(np.bool_), (safe >> top).astype(np.bool_)
        # Magnitudes as unsigned numbers: the most negative number has none as a signed one.
        zeros = np.zeros_like(a)
        size_a, size_b = np.where(minus_a, zeros - a, a), np.where(minus_b, zeros - safe, safe)
        quotient = size_a // size_b
        quotient = np.where(minus_a ^ minus_b, zeros - quotient, quotient)
    else:
        quotient = a // safe
    result = a - quotient * safe if remainder else quotient
    return collapse(np.where(zero, a if remainder else kind(MASK[width]), result))


def shift_left(a: Value, b: Value, width: int) -> Value:
    """a << b; shifts of the width and more give 0."""
    if a.__class__ is not np.ndarray and b.__class__ is not np.ndarray:
        return (a << b) & MASK[width] if b < width else 0
    kind = UNSIGNED[width]
    a = a if a.__class__ is np.ndarray else kind(a)
    if b.__class__ is not np.ndarray:
        return a << kind(b) if b < width else np.zeros_like(a)
    big = b >= width
    return np.where(big, kind(0), a << np.where(big, 0, b).astype(kind))


def shift_right(a: Value, b: Value, width: int, is_signed: bool) -> Value:
    """a >> b, arithmetic if signed; shifts of the width and more give the sign (or 0)."""
    if a.__class__ is not np.ndarray and b.__class__ is not np.ndarray:
        if is_signed:
            return (signed(a, width) >> min(b, width)) & MASK[width]
        return a >> b if b < width else 0
    kind = UNSIGNED[width]
    if b.__class__ is not np.ndarray:
        if is_signed:
            return collapse((a.view(SIGNED[width]) >> SIGNED[width](min(b, width - 1))).view(kind))
        return collapse(a >> kind(b)) if b < width else 0
    a = a if a.__class__ is np.ndarray else kind(a)
    amount = np.minimum(b, np.uint32(width - 1)).astype(kind)
    if is_signed:
        return (a.view(SIGNED[width]) >> amount.view(SIGNED[width])).view(kind)
    return np.where(b >= width, kind(0), a >> amount)


def compare(a: Value, b: Value, width: int, is_signed: bool, name: str) -> Value:
    """a NAME b -> bool or array of bool; lo, ls, hi, hs are the unsigned names."""
    if is_signed:
        a, b = signed(a, width), signed(b, width)
        if a.__class__ is not b.__class__:  # a Python int against an array of signed integers of its width
            a = SIGNED[width](a) if a.__class__ is int else a
            b = SIGNED[width](b) if b.__class__ is int else b
    if name in ("lt", "lo"):
        return a < b
    if name in ("le", "ls"):
        return a <= b
    if name in ("gt", "hi"):
        return a > b
    if name in ("ge", "hs"):
        return a >= b
    return a == b if name == "eq" else a != b


def extremum(a: Value, b: Value, width: int, is_signed: bool, maximum: bool) -> Value:
    """min or max."""
    return select(compare(a, b, width, is_signed, "gt" if maximum else "lt"), a, b, width)


def absolute(a: Value, width: int) -> Value:
    """|a| of a signed number, wrapping for the most negative one."""
    return select(compare(a, 0, width, True, "lt"), negate(a, width), a, width)


def negate(a: Value, width: int) -> Value:
    """-a."""
    return UNSIGNED[width](0) - a if a.__class__ is np.ndarray else -a & MASK[width]


def wrap_add(a: Value, b: Value, width: int) -> Value:
    """a + b modulo 2**width."""
    total = a + b
    return total & MASK[width] if total.__class__ is int else total


def saturate_signed(a: Value, b: Value, subtract: bool) -> Value:
    """add.sat.s32 and sub.sat.s32."""
    wide_a, wide_b = signed(extend(a, 32, 64), 64), signed(extend(b, 32, 64), 64)
    total = wide_a - wide_b if subtract else wide_a + wide_b
    if total.__class__ is int:
        return max(-(2**31), min(2**31 - 1, total)) & MASK[32]
    return np.clip(total, -(2**31), 2**31 - 1).astype(np.int32).view(np.uint32)


def add_carry(a: Value, b: Value, carry: Value, width: int) -> tuple[Value, Value]:
    """a + b + carry -> sum, carry out (0 or 1, ints or arrays of uint32)."""
    if a.__class__ is not np.ndarray and b.__class__ is not np.ndarray and carry.__class__ is not np.ndarray:
        total = a + b + carry
        return total & MASK[width], total >> width
    kind = UNSIGNED[width]
    # Arrays of one element and not scalars: numpy warns of a scalar's overflow.
    a = a if a.__class__ is np.ndarray else np.array([a], kind)
    b = b if b.__class__ is np.ndarray else np.array([b], kind)
    part = a + b
    total = part + (carry.astype(kind) if carry.__class__ is np.ndarray else kind(carry))
    return total, ((part < a) | (total < part)).astype(np.uint32) + np.zeros(np.shape(total), np.uint32)


def logic3(a: Value, b: Value, c: Value, table: int) -> Value:
    """lop3: bit 4*a + 2*b + c of the table, for every bit position.

    >>> hex(logic3(0xF0F0, 0xCCCC, 0xAAAA, 0xE8) & 0xFF)
    '0xe8'
    """
    full = MASK[32]
    result: Value = 0
    for row in range(8):
        if table >> row & 1:
            term = (a if row & 4 else a ^ full) & (b if row & 2 else b ^ full) & (c if row & 1 else c ^ full)
            result = result | term
    return collapse(result)


@lift(32, 32, 32)
def permute(a: Any, b: Any, selector: Any) -> Any:
    """prmt in its default mode: each selector nibble picks a byte of b:a, its top bit replicates that byte's sign."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result = np.zeros(np.broadcast(a, b, selector).shape, np.uint32)
    for position in range(4):
        nibble = selector >> np.uint32(4 * position) & np.uint32(15)
        byte = (both >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8)) & np.uint64(255)).astype(np.uint32)
        sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        result = result | np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * position)
    return result


def permute_mode(a: Value, b: Value, c: Value, mode: str) -> Value:
    """prmt's special modes, as the selector that does the same in the default mode (PTX, prmt)."""
    tables = {
        "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123), "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
        "ecl": (0x3210, 0x3211, 0x3222, 0x3333), "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
    }  # fmt: skip
    table = tables[mode]
    if c.__class__ is int:
        return permute(a, b, table[c & 3])
    return permute(a, b, np.array(table, np.uint32)[c & np.uint32(3)])


def funnel_shift(low: Value, high: Value, amount: Value, left: bool, wrap: bool) -> Value:
    """shf: the 64-bit number high:low shifted; the upper (left) or lower (right) half. Clamped at 32 or wrapped."""
    return _funnel(low, high, amount, left, wrap)


def _funnel(low: Value, high: Value, amount: Value, left: bool, wrap: bool) -> Value:
    n = amount & 31 if wrap else extremum(amount, 32, 32, False, False)
    whole = cast(high, 64) << (32 if high.__class__ is int else np.uint64(32)) | cast(low, 64)
    wide = cast(n, 64)
    if left:
        return cast(shift_right(shift_left(whole, wide, 64), 32, 64, False), 32)
    return cast(shift_right(whole, wide, 64, False), 32)


def bit_extract(a: Value, position: Value, length: Value, width: int, is_signed: bool) -> Value:
    """bfe.

    >>> bit_extract(0xABCD, 4, 8, 32, False), hex(bit_extract(0x80, 4, 4, 32, True))
    (188, '0xfffffff8')
    """
    if is_signed:
        return _bfe_signed(width)(cast(a, width), cast(position, 32), cast(length, 32))
    position, length = position & 255, length & 255
    field = shift_right(a, position, width, False)
    if length.__class__ is int and field.__class__ is int:
        return field & ((1 << length) - 1)
    ones = shift_left(1, length, width)
    ones = ones - (1 if ones.__class__ is int else UNSIGNED[width](1))
    return collapse(field & (ones & MASK[width] if ones.__class__ is int else ones))


@functools.cache
def _bfe_signed(width: int) -> Callable[..., Value]:
    kind = UNSIGNED[width]

    @lift(width, 32, 32)
    def extract(a: Any, position: Any, length: Any) -> Any:
        pos, size = position & np.uint32(255), length & np.uint32(255)
        top = np.minimum(pos + size - np.uint32(1), np.uint32(width - 1)).astype(kind)
        sign = np.where(size == 0, kind(0), a >> top & kind(1)) * kind(MASK[width])
        shifted = np.where(pos >= width, sign, a >> np.minimum(pos, np.uint32(width - 1)).astype(kind))
        valid = np.where(
            pos >= width, np.uint32(0), np.minimum(size, np.uint32(width) - np.minimum(pos, np.uint32(width)))
        )
        keep = np.where(
            valid >= width,
            kind(MASK[width]),
            (kind(1) << np.minimum(valid, np.uint32(width - 1)).astype(kind)) - kind(1),
        )
        return shifted & keep | sign & ~keep

    return extract


def bit_insert(a: Value, b: Value, position: Value, length: Value, width: int) -> Value:
    """bfi: the low `length` bits of a put into b at `position`."""
    position, length = position & 255, length & 255
    ones = shift_left(1, length, width)
    ones = (ones - 1) & MASK[width] if ones.__class__ is int else ones - UNSIGNED[width](1)
    keep = shift_left(ones, position, width)
    return (shift_left(a, position, width) & keep) | (b & (keep ^ MASK[width]))


def bit_count(a: Value, width: int) -> Value:
    """popc."""
    if a.__class__ is np.ndarray:
        return np.bitwise_count(a).astype(np.uint32)
    return a.bit_count()


def leading_zeros(a: Value, width: int) -> Value:
    """clz."""
    if a.__class__ is not np.ndarray:
        return width - a.bit_length()
    for step in (1, 2, 4, 8, 16, 32):
        if step < width:
            a = a | a >> UNSIGNED[width](step)
    return np.uint32(width) - np.bitwise_count(a).astype(np.uint32)


def find_leading(a: Value, width: int, is_signed: bool, shift_amount: bool) -> Value:
    """bfind: position of the highest set bit (of the highest bit unlike the sign), 0xffffffff if none."""
    if is_signed:
        a = select(compare(a, 0, width, True, "lt"), a ^ MASK[width], a, width)
    zeros = leading_zeros(a, width)
    none = zeros == width
    found = zeros if shift_amount else width - 1 - zeros if zeros.__class__ is int else np.uint32(width - 1) - zeros
    return select(none, MASK[32], found, 32)


def reverse_bits(a: Value, width: int) -> Value:
    """brev.

    >>> reverse_bits(1, 32) == 1 << 31
    True
    """
    if a.__class__ is not np.ndarray:
        return int(f"{a:0{width}b}"[::-1], 2)
    table = np.array([int(f"{n:08b}"[::-1], 2) for n in range(256)], np.uint8)
    swapped = table[np.ascontiguousarray(a).view(np.uint8)].reshape(a.size, width // 8)[:, ::-1]
    return np.ascontiguousarray(swapped).view(UNSIGNED[width])[:, 0]


def dot_product(a: Value, b: Value, c: Value, signed_a: bool, signed_b: bool) -> Value:
    """dp4a."""
    for position in range(4):
        x = cast(shift_right(a, 8 * position, 32, False), 32) & 255
        y = cast(shift_right(b, 8 * position, 32, False), 32) & 255
        x = extend(x, 8, 32) if signed_a else x
        y = extend(y, 8, 32) if signed_b else y
        product = x * y
        c = wrap_add(c, product & MASK[32] if product.__class__ is int else product, 32)
    return c


def sad(a: Value, b: Value, c: Value, width: int, is_signed: bool) -> Value:
    """sad: c + |a - b|."""
    bigger, smaller = extremum(a, b, width, is_signed, True), extremum(a, b, width, is_signed, False)
    difference = bigger - smaller
    return wrap_add(c, difference & MASK[width] if difference.__class__ is int else difference, width)


def pack(parts: tuple[Value, ...], width: int) -> Value:
    """mov.bN d, {parts}: equal parts of a `width`-bit number, the lowest first."""
    step = width // len(parts)
    total: Value = 0
    for position, part in enumerate(parts):
        if part.__class__ is np.ndarray:
            total = total | (part.astype(UNSIGNED[width]) << UNSIGNED[width](step * position))
        else:
            total = total | (
                UNSIGNED[width](part << step * position) if total.__class__ is np.ndarray else part << step * position
            )
    return total


def unpack(value: Value, width: int, count: int) -> tuple[Value, ...]:
    """mov.bN {parts}, a."""
    step = width // count
    if value.__class__ is not np.ndarray:
        return tuple(value >> step * position & MASK[step] for position in range(count))
    if step >= 8:
        halves = np.ascontiguousarray(value).view(UNSIGNED[step]).reshape(value.size, count)
        return tuple(np.ascontiguousarray(halves[:, position]) for position in range(count))
    raise ValueError(f"no parts of {step} bits")
