"""Floating-point instructions round once and treat NaN, infinities and zeros as PTX says."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .harness import check, execute

F32 = np.float32
CORNERS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
    1.5,
    3.4e38,
    -3.4e38,
    1e-45,
    1.1754944e-38,
    0.1,
    7.0,
    2.0**24 + 2,
]


def singles(count: int = 64, seed: int = 0) -> NDArray[np.uint32]:
    """Random f32 bits, corner cases first."""
    random = np.random.default_rng(seed)
    values = np.array(CORNERS, F32)
    values = np.roll(values, 4 * seed)
    rest = (random.standard_normal(count) * 2.0 ** random.integers(-30, 30, count)).astype(F32)
    return np.concatenate([values, rest])[:count].view(np.uint32)


def doubles(count: int = 48, seed: int = 0) -> NDArray[np.uint64]:
    random = np.random.default_rng(seed)
    values = np.roll(np.array(CORNERS), 4 * seed)
    return np.concatenate([values, random.standard_normal(count)])[:count].view(np.uint64)


def value32(bits: int) -> float:
    return float(np.uint32(bits).view(F32))


def rounded32(exact: Fraction, mode: str = "rn") -> int:
    """The f32 bits of a rational number, from the definition of rounding."""
    if exact == 0:
        return 0
    size = abs(exact)
    exponent = max(-126, _exponent(size))
    quantum = Fraction(2) ** (exponent - 23)
    steps = size / quantum
    whole = steps.numerator // steps.denominator
    rest = steps - whole
    negative = exact < 0
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    else:
        up = rest > 0 and ((mode == "rp" and not negative) or (mode == "rm" and negative))
    result = (whole + up) * quantum
    if result > Fraction(2) ** 128 - Fraction(2) ** 104:
        overflow = mode == "rn" or (mode == "rp" and not negative) or (mode == "rm" and negative)
        bits = 0x7F800000 if overflow else 0x7F7FFFFF
    else:
        bits = int(F32(float(result)).view(np.uint32))
    return bits | (0x80000000 if negative else 0)


def _exponent(size: Fraction) -> int:
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= size else exponent - 1


def finite(*bits: int) -> bool:
    return all(math.isfinite(value32(one)) for one in bits)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f32_sums_and_products_round_once(mode: str) -> None:
    a, b, c = (singles(seed=seed) for seed in range(3))
    names = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}
    for name, define in names.items():
        got = execute(f"{name}.{mode}.f32 {{d}}, {{a}}, {{b}};", [a, b])
        for x, y, have in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            if finite(x, y):
                exact = define(Fraction(value32(x)), Fraction(value32(y)))
                if exact:  # the sign of an exact zero has rules of its own
                    assert have == rounded32(exact, mode), (name, mode, hex(x), hex(y))
    got = execute(f"fma.{mode}.f32 {{d}}, {{a}}, {{b}}, {{c}};", [a, b, c])
    for x, y, z, have in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        if finite(x, y, z):
            exact = Fraction(value32(x)) * Fraction(value32(y)) + Fraction(value32(z))
            if exact:
                assert have == rounded32(exact, mode), (mode, hex(x), hex(y), hex(z))


def test_fma_rounds_once_where_two_roundings_differ() -> None:
    # 1 + 2^-23 squared is 1 + 2^-22 + 2^-46; a rounding of the product loses the last term.
    one = np.full(32, 0x3F800001, np.uint32)
    minus = np.full(32, np.array(-(1 + 2.0**-22), F32).view(np.uint32), np.uint32)
    got = execute("fma.rn.f32 {d}, {a}, {b}, {c};", [one, one, minus])
    assert got.view(F32).tolist() == [2.0**-46] * 32


def test_special_values_of_f32() -> None:
    nan, inf, ninf = 0x7FFFFFFF, 0x7F800000, 0xFF800000
    table = [
        ("add.f32 {d}, {a}, {b};", inf, ninf, nan),
        ("mul.f32 {d}, {a}, {b};", inf, 0, nan),
        ("div.rn.f32 {d}, {a}, {b};", 0x3F800000, 0, inf),
        ("div.rn.f32 {d}, {a}, {b};", 0, 0, nan),
        ("min.f32 {d}, {a}, {b};", nan, 0x3F800000, 0x3F800000),
        ("max.f32 {d}, {a}, {b};", 0x80000000, 0, 0),
        ("min.f32 {d}, {a}, {b};", 0, 0x80000000, 0x80000000),
        ("max.NaN.f32 {d}, {a}, {b};", 0x3F800000, nan, nan),
        ("add.ftz.f32 {d}, {a}, {b};", 1, 0x80000000, 0),
        ("mul.sat.f32 {d}, {a}, {b};", 0x40000000, 0x3F800000, 0x3F800000),
        ("add.sat.f32 {d}, {a}, {b};", nan, 0, 0),
        ("copysign.f32 {d}, {a}, {b};", 0x80000000, 0x3F800000, 0xBF800000),
    ]
    for body, x, y, expected in table:
        inputs = [np.full(32, x, np.uint32), np.full(32, y, np.uint32)]
        assert execute(body, inputs).tolist() == [expected] * 32, body
        assert execute(body, [one[:1] for one in inputs], uniform=True).tolist() == [expected], body


def test_f32_sign_operations_touch_only_the_sign() -> None:
    a = singles()
    check("neg.f32 {d}, {a};", lambda x: x ^ 0x80000000, (a,))
    check("abs.f32 {d}, {a};", lambda x: x & 0x7FFFFFFF, (a,))


def test_f32_comparisons_and_nan() -> None:
    a, b = singles(), singles(seed=1)
    b[20:30] = a[20:30]
    for name, define in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
        code = compile(f"x {define} y", "", "eval")

        def holds(x: int, y: int, code: Any = code, unordered: bool = False) -> int:
            p, q = value32(x), value32(y)
            if p != p or q != q:
                return int(unordered)
            return int(eval(code, {"x": p, "y": q}))

        check(f"setp.{name}.f32 %p1, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %p1;", holds, (a, b))
        check(
            f"setp.{name}u.f32 %p1, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %p1;",
            lambda x, y, holds=holds: holds(x, y, unordered=True),
            (a, b),
        )
    check(
        "setp.num.f32 %p1, {a}, {b}; selp.b32 {d}, 1, 0, %p1;",
        lambda x, y: int(value32(x) == value32(x) and value32(y) == value32(y)),
        (a, b),
    )
    check("testp.infinite.f32 %p1, {a}; selp.b32 {d}, 1, 0, %p1;", lambda x: int(math.isinf(value32(x))), (a,))
    check("testp.notanumber.f32 %p1, {a}; selp.b32 {d}, 1, 0, %p1;", lambda x: int(math.isnan(value32(x))), (a,))


def test_f32_division_and_roots_are_correctly_rounded() -> None:
    a, b = singles(seed=3), singles(seed=4)
    got = execute("div.rn.f32 {d}, {a}, {b};", [a, b])
    for x, y, have in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        if finite(x, y) and value32(y) and value32(x):
            assert have == rounded32(Fraction(value32(x)) / Fraction(value32(y)))
    positive = a & np.uint32(0x7FFFFFFF)
    root = execute("sqrt.rn.f32 {d}, {a};", [positive]).view(F32)
    with np.errstate(all="ignore"):
        expected = np.sqrt(positive.view(F32).astype(np.float64)).astype(F32)
    assert np.array_equal(root, expected, equal_nan=True)


def test_approximate_functions_are_within_their_documented_error() -> None:
    x = np.linspace(-20, 20, 64).astype(F32)
    bits = x.view(np.uint32)
    assert np.allclose(
        execute("ex2.approx.f32 {d}, {a};", [bits]).view(F32), np.exp2(x.astype(np.float64)), rtol=2.0**-22
    )
    assert np.allclose(
        execute("tanh.approx.f32 {d}, {a};", [bits]).view(F32), np.tanh(x.astype(np.float64)), rtol=2.0**-11
    )
    above = np.abs(x) + F32(0.5)
    bits = above.view(np.uint32)
    wide = above.astype(np.float64)
    assert np.allclose(execute("rcp.approx.f32 {d}, {a};", [bits]).view(F32), 1 / wide, rtol=2.0**-23)
    assert np.allclose(execute("rsqrt.approx.f32 {d}, {a};", [bits]).view(F32), wide**-0.5, rtol=2.0**-22.9)
    assert np.allclose(
        execute("lg2.approx.f32 {d}, {a};", [bits]).view(F32), np.log2(wide), rtol=2.0**-22, atol=2.0**-22
    )
    assert np.allclose(execute("sin.approx.f32 {d}, {a};", [bits]).view(F32), np.sin(wide), atol=2.0**-20)


def test_f64_arithmetic() -> None:
    a, b, c = (doubles(seed=seed) for seed in range(3))
    x, y = a.view(np.float64), b.view(np.float64)
    with np.errstate(all="ignore"):
        for name, expected in {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}.items():
            mode = ".rn" if name == "div" else ""
            got = execute(f"{name}{mode}.f64 {{d}}, {{a}}, {{b}};", [a, b], 64).view(np.float64)
            assert np.array_equal(got, expected, equal_nan=True), name
    got = execute("fma.rn.f64 {d}, {a}, {b}, {c};", [a, b, c], 64).view(np.float64)
    for p, q, r, have in zip(a.view(np.float64), b.view(np.float64), c.view(np.float64), got, strict=True):
        if math.isfinite(p) and math.isfinite(q) and math.isfinite(r):
            exact = Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))
            assert have == exact.numerator / exact.denominator


def test_half_precision_pairs() -> None:
    random = np.random.default_rng(0)
    a, b, c = (random.standard_normal(64).astype(np.float16).view(np.uint32) for _ in range(3))
    x, y, z = (one.view(np.float16).astype(np.float64) for one in (a, b, c))
    got = execute("fma.rn.f16x2 {d}, {a}, {b}, {c};", [a, b, c]).view(np.float16)
    assert np.array_equal(got, (x * y + z).astype(np.float16))
    got = execute("add.f16x2 {d}, {a}, {b};", [a, b]).view(np.float16)
    assert np.array_equal(got, (x + y).astype(np.float16))
    got = execute("max.f16x2 {d}, {a}, {b};", [a, b]).view(np.float16)
    assert np.array_equal(got, np.maximum(x, y).astype(np.float16))


def bfloat(values: NDArray[Any]) -> NDArray[np.uint16]:
    import ml_dtypes

    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def test_bfloat16_pairs() -> None:
    import ml_dtypes

    random = np.random.default_rng(1)
    a, b, c = (bfloat(random.standard_normal(64).astype(F32)).view(np.uint32) for _ in range(3))
    x, y, z = (one.view(ml_dtypes.bfloat16).astype(np.float64) for one in (a, b, c))
    got = execute("fma.rn.bf16x2 {d}, {a}, {b}, {c};", [a, b, c]).view(np.uint16)
    assert np.array_equal(got, bfloat(x * y + z))
    got = execute("mul.rn.bf16x2 {d}, {a}, {b};", [a, b]).view(np.uint16)
    assert np.array_equal(got, bfloat(x * y))


def test_conversions_between_floats() -> None:
    import ml_dtypes

    a, b = singles(seed=5), singles(seed=6)
    a, b = a[np.isfinite(a.view(F32))], b[np.isfinite(b.view(F32))]
    count = min(len(a), len(b)) // 2 * 2
    a, b = a[:count], b[:count]
    got = execute("cvt.rn.bf16x2.f32 {d}, {a}, {b};", [a, b]).view(np.uint16)
    assert np.array_equal(got[1::2], bfloat(a.view(F32)))
    assert np.array_equal(got[::2], bfloat(b.view(F32)))
    with np.errstate(over="ignore"):
        expected = a.view(F32).astype(np.float16).view(np.uint16)
    assert np.array_equal(execute("cvt.rn.f16.f32 {d}, {a};", [a], 16), expected)
    halves = np.arange(0, 64, dtype=np.uint16) * np.uint16(331)
    assert np.array_equal(
        execute("cvt.f32.f16 {d}, {a};", [halves]), halves.view(np.float16).astype(F32).view(np.uint32)
    )
    assert np.array_equal(execute("cvt.f64.f32 {d}, {a};", [a], 64), a.view(F32).astype(np.float64).view(np.uint64))
    small = np.linspace(-500, 500, 64).astype(F32).view(np.uint32)
    got = execute("cvt.rn.satfinite.e4m3x2.f32 {d}, {a}, {b};", [small, small[::-1].copy()], 16)
    expected8 = np.clip(small.view(F32), -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert np.array_equal((got >> 8).astype(np.uint8), expected8)
    assert np.array_equal((got & 0xFF).astype(np.uint8), expected8[::-1])


def test_conversions_to_integers_clamp_and_round() -> None:
    a = np.array([0.5, 1.5, -0.5, -1.5, 2.5, 3e9, -3e9, 1e20, -1e20, math.nan, math.inf, 7.999] * 3, F32).view(
        np.uint32
    )

    def clamp(x: int, low: int, high: int, rounding: Any) -> int:
        value = value32(x)
        if value != value:
            return 0
        return low if value <= low else high if value >= high else int(rounding(value))

    s32 = (-(2**31), 2**31 - 1)
    check("cvt.rzi.s32.f32 {d}, {a};", lambda x: clamp(x, *s32, math.trunc), (a,))
    check("cvt.rni.s32.f32 {d}, {a};", lambda x: clamp(x, *s32, round), (a,))
    check("cvt.rmi.s32.f32 {d}, {a};", lambda x: clamp(x, *s32, math.floor), (a,))
    check("cvt.rpi.s32.f32 {d}, {a};", lambda x: clamp(x, *s32, math.ceil), (a,))
    check("cvt.rzi.u32.f32 {d}, {a};", lambda x: clamp(x, 0, 2**32 - 1, math.trunc), (a,))


def test_conversions_from_integers_round_once() -> None:
    random = np.random.default_rng(2)
    a = random.integers(0, 2**32, 64, dtype=np.uint64).astype(np.uint32)
    for mode in ("rn", "rz", "rm", "rp"):
        check(f"cvt.{mode}.f32.u32 {{d}}, {{a}};", lambda x, mode=mode: rounded32(Fraction(x), mode), (a,))
        check(
            f"cvt.{mode}.f32.s32 {{d}}, {{a}};",
            lambda x, mode=mode: rounded32(Fraction(x - (x >> 31 << 32)), mode),
            (a,),
        )
    wide = random.integers(0, 2**63, 64, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    check("cvt.rn.f32.u64 {d}, {a};", lambda x: rounded32(Fraction(x)), (wide,))


def test_an_unknown_combination_is_refused_with_its_text() -> None:
    from stridewright.codegen.emulator import UnsupportedInstruction

    with pytest.raises(UnsupportedInstruction, match=r"cvt\.pack\.sat\.u8\.s32\.b32"):
        execute("cvt.pack.sat.u8.s32.b32 {d}, {a}, {b}, {a};", [np.zeros(32, np.uint32)] * 2)
    with pytest.raises(UnsupportedInstruction, match="wmma"):
        execute("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{%r1}}, [{a}];", [np.zeros(32, np.uint32)])


def test_fma_with_relu_and_conversion_to_tf32() -> None:
    random = np.random.default_rng(7)
    a, b, c = (random.standard_normal(64).astype(np.float16).view(np.uint32) for _ in range(3))
    x, y, z = (one.view(np.float16).astype(np.float64) for one in (a, b, c))
    got = execute("fma.rn.relu.f16x2 {d}, {a}, {b}, {c};", [a, b, c]).view(np.float16)
    assert np.array_equal(got, np.maximum((x * y + z).astype(np.float16), 0))
    bits = random.standard_normal(64).astype(F32).view(np.uint32)
    # Nearest with ties away from zero: half of the dropped 13 bits added to the magnitude.
    check("cvt.rna.tf32.f32 {d}, {a};", lambda v: (v + 0x1000) & 0xFFFFE000, (bits,))
