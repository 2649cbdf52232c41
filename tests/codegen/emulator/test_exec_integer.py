"""Integer, logic, comparison and move instructions do what PTX defines, for varying and for uniform registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from .harness import check, execute, numbers


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def truncated(a: int, b: int) -> int:
    """C's division."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def on_signed(function: Callable[..., int], width: int) -> Callable[..., int]:
    return lambda *values: function(*(signed(value, width) for value in values))


WIDTHS = (16, 32, 64)


@pytest.mark.parametrize("width", WIDTHS)
def test_sums_products_and_logic_wrap(width: int) -> None:
    a, b, c = (numbers(width, seed=seed) for seed in range(3))
    check(f"add.u{width} {{d}}, {{a}}, {{b}};", lambda x, y: x + y, (a, b), width)
    check(f"sub.s{width} {{d}}, {{a}}, {{b}};", lambda x, y: x - y, (a, b), width)
    check(f"mul.lo.u{width} {{d}}, {{a}}, {{b}};", lambda x, y: x * y, (a, b), width)
    check(f"mad.lo.s{width} {{d}}, {{a}}, {{b}}, {{c}};", lambda x, y, z: x * y + z, (a, b, c), width)
    check(f"and.b{width} {{d}}, {{a}}, {{b}};", lambda x, y: x & y, (a, b), width)
    check(f"or.b{width} {{d}}, {{a}}, {{b}};", lambda x, y: x | y, (a, b), width)
    check(f"xor.b{width} {{d}}, {{a}}, {{b}};", lambda x, y: x ^ y, (a, b), width)
    check(f"not.b{width} {{d}}, {{a}};", lambda x: ~x, (a,), width)
    check(f"neg.s{width} {{d}}, {{a}};", lambda x: -x, (a,), width)
    check(f"cnot.b{width} {{d}}, {{a}};", lambda x: int(x == 0), (a,), width)
    check(f"abs.s{width} {{d}}, {{a}};", on_signed(abs, width), (a,), width)
    check(f"add.s{width} {{d}}, {{a}}, -3;", lambda x: x - 3, (a,), width)
    check(f"and.b{width} {{d}}, {{a}}, -8;", lambda x: x & ~7, (a,), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sign", ["u", "s"])
def test_high_and_wide_products(width: int, sign: str) -> None:
    a, b = numbers(width), numbers(width, seed=1)
    number = (lambda x: signed(x, width)) if sign == "s" else (lambda x: x)
    check(f"mul.hi.{sign}{width} {{d}}, {{a}}, {{b}};", lambda x, y: number(x) * number(y) >> width, (a, b), width)
    if width < 64:
        check(f"mul.wide.{sign}{width} {{d}}, {{a}}, {{b}};", lambda x, y: number(x) * number(y), (a, b), 2 * width)
        c = numbers(2 * width, seed=2)
        body = f"mad.wide.{sign}{width} {{d}}, {{a}}, {{b}}, {{c}};"
        check(body, lambda x, y, z: number(x) * number(y) + z, (a, b, c), 2 * width)
    c = numbers(width, seed=2)
    body = f"mad.hi.{sign}{width} {{d}}, {{a}}, {{b}}, {{c}};"
    check(body, lambda x, y, z: (number(x) * number(y) >> width) + z, (a, b, c), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sign", ["u", "s"])
def test_division_minimum_and_maximum(width: int, sign: str) -> None:
    a, b = numbers(width), np.maximum(numbers(width, seed=1), 1)
    number = (lambda x: signed(x, width)) if sign == "s" else (lambda x: x)
    check(f"div.{sign}{width} {{d}}, {{a}}, {{b}};", lambda x, y: truncated(number(x), number(y)), (a, b), width)
    check(
        f"rem.{sign}{width} {{d}}, {{a}}, {{b}};",
        lambda x, y: number(x) - truncated(number(x), number(y)) * number(y),
        (a, b),
        width,
    )
    check(f"min.{sign}{width} {{d}}, {{a}}, {{b}};", lambda x, y: min(number(x), number(y)), (a, b), width)
    check(f"max.{sign}{width} {{d}}, {{a}}, {{b}};", lambda x, y: max(number(x), number(y)), (a, b), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_shifts_clamp_at_the_width(width: int) -> None:
    a, b = numbers(width), numbers(32, seed=1)
    check(f"shl.b{width} {{d}}, {{a}}, {{b}};", lambda x, n: x << n if n < width else 0, (a, b), width)
    check(f"shr.u{width} {{d}}, {{a}}, {{b}};", lambda x, n: x >> n if n < width else 0, (a, b), width)
    check(f"shr.s{width} {{d}}, {{a}}, {{b}};", lambda x, n: signed(x, width) >> min(n, width), (a, b), width)
    check(f"shr.s{width} {{d}}, {{a}}, 3;", lambda x: signed(x, width) >> 3, (a,), width)
    check(f"shl.b{width} {{d}}, {{a}}, 5;", lambda x: x << 5, (a,), width)


def funnel(low: int, high: int, n: int, left: bool, wrap: bool) -> int:
    n = n % 32 if wrap else min(n, 32)
    whole = high << 32 | low
    return (whole << n) >> 32 if left else whole >> n


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("wrap", [True, False])
def test_funnel_shifts(left: bool, wrap: bool) -> None:
    inputs = [numbers(32, seed=seed) for seed in range(3)]
    body = f"shf.{'l' if left else 'r'}.{'wrap' if wrap else 'clamp'}.b32 {{d}}, {{a}}, {{b}}, {{c}};"
    check(body, lambda low, high, n: funnel(low, high, n, left, wrap), inputs)


@pytest.mark.parametrize("table", [0x00, 0x1E, 0x96, 0xE8, 0xF8, 0xCA, 0x01, 0xFF])
def test_lop3_looks_up_every_bit(table: int) -> None:
    def define(a: int, b: int, c: int) -> int:
        bits = ((a >> n & 1) << 2 | (b >> n & 1) << 1 | c >> n & 1 for n in range(32))
        return sum((table >> row & 1) << n for n, row in enumerate(bits))

    check(f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table:#x};", define, [numbers(32, seed=seed) for seed in range(3)])


def permuted(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    out = []
    for n in range(4):
        nibble = selector >> 4 * n & 15
        byte = source[nibble & 7]
        out.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def test_prmt_picks_bytes() -> None:
    inputs = [numbers(32, seed=seed) for seed in range(3)]
    check("prmt.b32 {d}, {a}, {b}, {c};", permuted, inputs)
    check("prmt.b32 {d}, {a}, {b}, 0x5410;", lambda a, b: permuted(a, b, 0x5410), inputs[:2])


@pytest.mark.parametrize(
    ("mode", "define"),
    [
        ("f4e", lambda a, b, n: permuted(a, b, (0x3210, 0x4321, 0x5432, 0x6543)[n & 3])),
        ("b4e", lambda a, b, n: permuted(a, b, (0x5670, 0x6701, 0x7012, 0x0123)[n & 3])),
        ("rc8", lambda a, b, n: (a >> 8 * (n & 3) & 0xFF) * 0x01010101),
        ("rc16", lambda a, b, n: (a >> 16 * (n & 1) & 0xFFFF) * 0x00010001),
    ],
)
def test_prmt_modes(mode: str, define: Callable[..., int]) -> None:
    check(f"prmt.b32.{mode} {{d}}, {{a}}, {{b}}, {{c}};", define, [numbers(32, seed=seed) for seed in range(3)])


def extracted(a: int, position: int, length: int, width: int, is_signed: bool) -> int:
    """The definition in the PTX ISA, bfe."""
    pos, size = position & 0xFF, length & 0xFF
    msb = width - 1
    sign = 0 if not is_signed or size == 0 else a >> min(pos + size - 1, msb) & 1
    result = 0
    for i in range(width):
        bit = a >> (pos + i) & 1 if i < size and pos + i <= msb else sign
        result |= bit << i
    return result


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_bit_field_extract(width: int, sign: str) -> None:
    a = numbers(width)
    position, length = numbers(32, seed=1) % np.uint32(70), numbers(32, seed=2) % np.uint32(70)
    body = f"bfe.{sign}{width} {{d}}, {{a}}, {{b}}, {{c}};"
    check(body, lambda x, p, n: extracted(x, p, n, width, sign == "s"), (a, position, length), width)


@pytest.mark.parametrize("width", [32, 64])
def test_bit_field_insert(width: int) -> None:
    def define(a: int, b: int, position: int, length: int) -> int:
        for i in range(length & 0xFF):
            if (position & 0xFF) + i < width:
                at = (position & 0xFF) + i
                b = b & ~(1 << at) | (a >> i & 1) << at if i < width else b & ~(1 << at)
        return b

    position, length = numbers(32, seed=2) % np.uint32(70), numbers(32, seed=3) % np.uint32(70)
    check(
        f"bfi.b{width} {{d}}, {{a}}, {{b}}, {{c}}, {{e}};",
        define,
        (numbers(width), numbers(width, seed=1), position, length),
        width,
    )


@pytest.mark.parametrize("width", [32, 64])
def test_counting_bits(width: int) -> None:
    a = numbers(width)
    check(f"popc.b{width} {{d}}, {{a}};", lambda x: x.bit_count(), (a,))
    check(f"clz.b{width} {{d}}, {{a}};", lambda x: width - x.bit_length(), (a,))
    check(f"brev.b{width} {{d}}, {{a}};", lambda x: int(f"{x:0{width}b}"[::-1], 2), (a,), width)
    check(f"bfind.u{width} {{d}}, {{a}};", lambda x: x.bit_length() - 1, (a,))
    check(f"bfind.shiftamt.u{width} {{d}}, {{a}};", lambda x: width - x.bit_length() if x else -1, (a,))
    check(
        f"bfind.s{width} {{d}}, {{a}};",
        lambda x: (x ^ (2**width - 1) if x >> (width - 1) else x).bit_length() - 1,
        (a,),
    )


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_comparisons(name: str, kind: str) -> None:
    width = int(kind[1:])
    a, b = numbers(width), numbers(width, seed=1)
    number = (lambda x: signed(x, width)) if kind[0] == "s" else (lambda x: x)
    body = f"setp.{name}.{kind} %p1, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %p1;"
    check(body, lambda x, y: int(RELATIONS[name](number(x), number(y))), (a, b))


def test_setp_combines_and_gives_both_results() -> None:
    a, b = numbers(32), numbers(32, seed=1)
    check(
        "setp.lt.u32 %p2, {b}, 100; setp.lt.and.s32 %p1|%p3, {a}, {b}, %p2; selp.b32 {d}, 1, 0, %p1; @%p3 add.s32 {d}, {d}, 2;",
        lambda x, y: (
            int(signed(x, 32) < signed(y, 32) and y < 100) + 2 * int(not signed(x, 32) < signed(y, 32) and y < 100)
        ),
        (a, b),
    )


def test_predicates_are_logic_values() -> None:
    a, b = numbers(32), numbers(32, seed=1)
    check(
        "setp.lt.u32 %p1, {a}, {b}; setp.gt.u32 %p2, {a}, 5; and.pred %p3, %p1, %p2; xor.pred %p4, %p1, %p2; not.pred %p5, %p3;"
        " selp.b32 {d}, 1, 0, %p3; @%p4 or.b32 {d}, {d}, 2; @!%p5 or.b32 {d}, {d}, 4;",
        lambda x, y: int(x < y and x > 5) | 2 * int((x < y) != (x > 5)) | 4 * int(x < y and x > 5),
        (a, b),
    )


def test_a_guard_keeps_the_old_value_where_it_does_not_hold() -> None:
    a, b = numbers(32), numbers(32, seed=1)
    check(
        "mov.b32 {d}, {b}; setp.lt.s32 %p1, {a}, 3; @%p1 mul.lo.u32 {d}, {a}, 7;",
        lambda x, y: x * 7 if signed(x, 32) < 3 else y,
        (a, b),
    )


def test_conversions_between_integers() -> None:
    for source in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        width = int(source[1:])
        a = numbers(width)
        for target in ("u16", "s16", "u32", "s32", "u64", "s64"):
            out = int(target[1:])
            number = (lambda x, w=width: signed(x, w)) if source[0] == "s" else (lambda x: x)
            check(f"cvt.{target}.{source} {{d}}, {{a}};", number, (a,), out)
    a = numbers(32)
    check("cvt.u8.u32 %h20, {a}; cvt.u32.u16 {d}, %h20;", lambda x: x & 0xFF, (a,))
    check("cvt.s8.s32 %h20, {a}; cvt.s32.s16 {d}, %h20;", lambda x: signed(x & 0xFF, 8), (a,))
    check("cvt.sat.u8.s32 %h20, {a}; cvt.u32.u16 {d}, %h20;", lambda x: max(0, min(255, signed(x, 32))), (a,))
    check("cvt.sat.s16.s32 %h20, {a}; cvt.s32.s16 {d}, %h20;", lambda x: max(-32768, min(32767, signed(x, 32))), (a,))


def test_packing_and_unpacking() -> None:
    a, b = numbers(32), numbers(32, seed=1)
    check("mov.b64 {d}, {{{a}, {b}}};", lambda x, y: y << 32 | x, (a, b), 64)
    check(
        "mov.b64 {{%r20, %r21}}, {a}; sub.s32 {d}, %r21, %r20;", lambda x: (x >> 32) - (x & 0xFFFFFFFF), (numbers(64),)
    )
    check("mov.b32 {{%h20, %h21}}, {a}; mov.b32 {d}, {{%h21, %h20}};", lambda x: x >> 16 | (x & 0xFFFF) << 16, (a,))


def test_carry_chains() -> None:
    a, b, c, e = (numbers(32, seed=seed) for seed in range(4))
    check(
        "add.cc.u32 %r20, {a}, {b}; addc.u32 {d}, {c}, {e};",
        lambda x, y, z, w: z + w + (x + y >> 32),
        (a, b, c, e),
    )
    check("sub.cc.u32 %r20, {a}, {b}; subc.u32 {d}, {c}, {e};", lambda x, y, z, w: z - w - int(x < y), (a, b, c, e))
    check(
        "mad.lo.cc.u32 %r20, {a}, {b}, {c}; madc.hi.u32 {d}, {a}, {b}, {e};",
        lambda x, y, z, w: (x * y >> 32) + w + ((x * y & 0xFFFFFFFF) + z >> 32),
        (a, b, c, e),
    )


def test_saturating_sums_and_sad_and_dp4a() -> None:
    a, b, c = (numbers(32, seed=seed) for seed in range(3))
    limit = lambda x: max(-(2**31), min(2**31 - 1, x))  # noqa: E731
    check("add.sat.s32 {d}, {a}, {b};", lambda x, y: limit(signed(x, 32) + signed(y, 32)), (a, b))
    check("sub.sat.s32 {d}, {a}, {b};", lambda x, y: limit(signed(x, 32) - signed(y, 32)), (a, b))
    check("sad.u32 {d}, {a}, {b}, {c};", lambda x, y, z: z + abs(x - y), (a, b, c))

    def dot(x: int, y: int, z: int) -> int:
        xs, ys = x.to_bytes(4, "little"), y.to_bytes(4, "little")
        return z + sum(signed(p, 8) * signed(q, 8) for p, q in zip(xs, ys, strict=True))

    check("dp4a.s32.s32 {d}, {a}, {b}, {c};", dot, (a, b, c))


def test_selection() -> None:
    a, b, c = (numbers(32, seed=seed) for seed in range(3))
    check(
        "setp.gt.s32 %p1, {c}, 0; selp.b32 {d}, {a}, {b}, %p1;",
        lambda x, y, z: x if signed(z, 32) > 0 else y,
        (a, b, c),
    )
    check("slct.b32.s32 {d}, {a}, {b}, {c};", lambda x, y, z: x if signed(z, 32) >= 0 else y, (a, b, c))
    check("set.lt.u32.s32 {d}, {a}, {b};", lambda x, y: -int(signed(x, 32) < signed(y, 32)), (a, b))


def test_special_registers() -> None:
    zeros = np.zeros(96, np.uint32)
    lane = np.arange(96) % 32
    assert execute("mov.u32 {d}, %tid.x;", [zeros]).tolist() == list(range(96))
    assert execute("mov.u32 {d}, %laneid;", [zeros]).tolist() == lane.tolist()
    assert execute("mov.u32 {d}, %warpid;", [zeros]).tolist() == (np.arange(96) // 32).tolist()
    assert set(execute("mov.u32 {d}, %ntid.x;", [zeros]).tolist()) == {96}
    assert set(execute("mov.u32 {d}, WARP_SZ;", [zeros]).tolist()) == {32}
    assert execute("mov.u32 {d}, %lanemask_lt;", [zeros]).tolist() == [(1 << n) - 1 for n in lane.tolist()]


def test_uniform_and_varying_operands_mix() -> None:
    # Registers that are uniform are Python ints inside; a large product of two of them meets an array.
    a = numbers(32)
    big = "mov.u32 %r20, 0xfffffff1; mov.u32 %r21, 0x89abcdef;"
    check(f"{big} mad.lo.u32 {{d}}, %r20, %r21, {{a}};", lambda x: 0xFFFFFFF1 * 0x89ABCDEF + x, (a,))
    check(f"{big} mad.lo.u32 {{d}}, %r20, {{a}}, %r21;", lambda x: 0xFFFFFFF1 * x + 0x89ABCDEF, (a,))
    check(
        f"{big} mad.wide.u32 %d20, %r20, %r21, 7; cvt.u32.u64 {{d}}, %d20; add.u32 {{d}}, {{d}}, {{a}};",
        lambda x: 0xFFFFFFF1 * 0x89ABCDEF + 7 + x,
        (a,),
    )
    check(f"{big} sub.u32 {{d}}, %r20, {{a}};", lambda x: 0xFFFFFFF1 - x, (a,))
    check(
        f"{big} shf.l.wrap.b32 {{d}}, %r20, {{a}}, %r21;",
        lambda x: ((x << 32 | 0xFFFFFFF1) << (0x89ABCDEF & 31)) >> 32,
        (a,),
    )
    check(f"{big} lop3.b32 {{d}}, %r20, {{a}}, %r21, 0x96;", lambda x: 0xFFFFFFF1 ^ x ^ 0x89ABCDEF, (a,))
    check(f"{big} prmt.b32 {{d}}, {{a}}, %r20, 0x7410;", lambda x: permuted(x, 0xFFFFFFF1, 0x7410), (a,))
    check(f"{big} bfi.b32 {{d}}, {{a}}, %r21, 4, 12;", lambda x: 0x89ABCDEF & ~0xFFF0 | (x & 0xFFF) << 4, (a,))
    check(f"{big} sad.u32 {{d}}, %r20, {{a}}, %r21;", lambda x: 0x89ABCDEF + abs(0xFFFFFFF1 - x), (a,))
    check(f"{big} slct.b32.s32 {{d}}, %r20, %r21, {{a}};", lambda x: 0xFFFFFFF1 if x < 2**31 else 0x89ABCDEF, (a,))
    wide = numbers(64)
    check(
        "mov.u64 %d20, 0xfffffffffffffff1; mad.lo.u64 {d}, %d20, %d20, {a};",
        lambda x: 0xFFFFFFFFFFFFFFF1**2 + x,
        (wide,),
        64,
    )
    check("mov.u64 %d20, -16; add.s64 {d}, {a}, %d20;", lambda x: x - 16, (wide,), 64)
