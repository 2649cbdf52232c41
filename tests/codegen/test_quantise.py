"""Block quantisation against an independent definition: every code's value from its bits in exact fractions, and the nearest by looking at all.

Long runs: python -m pytest -m slow tests/codegen/test_quantise.py
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.quantise import FORMATS, dequantise, quantise
from stridewright.codegen.small_floats import pack, small_float, unpack
from stridewright.layout.errors import LayoutError

ML = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}
BITS = {"e4m3": (4, 3), "e5m2": (5, 2), "e3m2": (3, 2), "e2m3": (2, 3), "e2m1": (2, 1), "ue4m3": (4, 3)}
MAXIMUM = {"e4m3": 448, "e5m2": 57344, "e3m2": 28, "e2m3": Fraction(15, 2), "e2m1": 6, "ue4m3": 448}
EMAX = {"e4m3": 8, "e5m2": 15, "e3m2": 4, "e2m3": 2, "e2m1": 2}
"""Table 1 and section 5.3 of the MX specification."""


def value(name: str, code: int) -> Fraction:
    """A finite code without a sign, by the definition: (-1)^s 2^(e - bias) 1.f, or 2^(1 - bias) 0.f."""
    exponent, fraction = BITS[name]
    bias = 2 ** (exponent - 1) - 1
    field, digits = divmod(code, 2**fraction)
    if field == 0:
        return Fraction(digits, 2**fraction) * Fraction(2) ** (1 - bias)
    return (1 + Fraction(digits, 2**fraction)) * Fraction(2) ** (field - bias)


def table(name: str) -> list[Fraction]:
    """The finite values without a sign; the code is the index."""
    found = []
    for code in range(2 ** sum(BITS[name])):
        one = value(name, code)
        if one > MAXIMUM[name]:
            break
        found.append(one)
    if name in ("e4m3", "ue4m3"):
        assert len(found) == 127
    return found


TABLES = {name: table(name) for name in BITS}


def brute(name: str, x: Fraction, negative: bool) -> int:
    """The nearest code by trying all: of two equally near the even one; beyond the greatest the greatest."""
    best = min(range(len(TABLES[name])), key=lambda code: (abs(TABLES[name][code] - abs(x)), code & 1))
    return best | (negative << sum(BITS[name]))


# -- formats ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ML)
def test_every_code_has_ml_dtypes_value(name: str) -> None:
    form = small_float(name)
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    assert np.array_equal(form.values(codes), codes.view(ML[name]).astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("name", BITS)
def test_every_code_has_its_defined_value(name: str) -> None:
    form = small_float(name)
    assert [Fraction(x) for x in form.magnitudes.tolist()] == TABLES[name]
    assert form.maximum == MAXIMUM[name]
    if name in EMAX:
        assert form.greatest_exponent == EMAX[name]


def numbers(random: np.random.Generator, count: int, spread: int) -> NDArray[np.float64]:
    """Numbers of many magnitudes, and ones near and on the edges between codes."""
    return np.ldexp(random.standard_normal(count), random.integers(-spread, spread, count))


@pytest.mark.parametrize("name", [name for name in BITS if name != "ue4m3"])
def test_the_nearest_code_is_the_nearest_of_all(name: str) -> None:
    form, random = small_float(name), np.random.default_rng(1)
    edges = form.midpoints
    near = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1e9), form.magnitudes, [form.maximum * 1.5, 1e300, 5e-324]])  # fmt: skip
    every = np.concatenate([near, -near, numbers(random, 300, 18)])
    for x, code in zip(every.tolist(), form.nearest(every).tolist(), strict=True):
        assert code == brute(name, Fraction(x), bool(np.signbit(x))), x


@pytest.mark.parametrize("name", ["e4m3", "e2m1", "e3m2"])
def test_the_nearest_code_to_a_quotient_that_is_never_formed(name: str) -> None:
    form, random = small_float(name), np.random.default_rng(2)
    for unit in (1 / 3, float(np.float32(0.1)) * 1.75, 448.0, float(np.float32(1e-30)), 2.0**-140):
        unit = float(np.float64(np.float32(unit))) if unit > 1e-38 else unit
        values = np.concatenate([form.midpoints * unit, np.nextafter(form.midpoints * unit, 0), random.standard_normal(100) * unit * 3])  # fmt: skip
        for x, code in zip(values.tolist(), form.nearest(values, np.full(1, unit)).tolist(), strict=True):
            assert code == brute(name, Fraction(x) / Fraction(unit), bool(np.signbit(x))), (x, unit)


def test_formats_without_nan_or_sign_refuse_them() -> None:
    with pytest.raises(ValueError, match="e2m1 has no NaN"):
        small_float("e2m1").nearest(np.array([np.nan]))
    with pytest.raises(ValueError, match="ue4m3 has no sign"):
        small_float("ue4m3").nearest(np.array([-1.0]))
    assert small_float("e4m3").nearest(np.array([np.nan, np.inf, -np.inf])).tolist() == [0x7F, 0x7E, 0xFE]
    with pytest.raises(ValueError, match="no float of 8 bits or fewer"):
        small_float("e3m4")


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_packed_codes_lie_one_after_another_from_the_low_bits_on(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (5, 48)).astype(np.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (5, 48 * bits // 8)
    for row in range(5):
        whole = int.from_bytes(packed[row].tobytes(), "little")
        assert [whole >> bits * i & (1 << bits) - 1 for i in range(48)] == codes[row].tolist()
    assert np.array_equal(unpack(packed, bits), codes)
    if bits != 8:
        with pytest.raises(ValueError, match="whole bytes"):
            pack(codes[:, :47], bits)
    with pytest.raises(ValueError, match="codes have 4, 6 or 8"):
        unpack(packed, 5)
    # A code of more bits would change its neighbour.
    for wrong in (1 << bits, -1, 0.5):
        with pytest.raises(ValueError, match=f"codes of {bits} bits are whole numbers from 0 to {(1 << bits) - 1}"):
            pack(np.array([1, 2, 3, wrong]), bits)


# -- blocks -----------------------------------------------------------------------------------------------------------------------


def floor_log2(x: Fraction) -> int:
    power = x.numerator.bit_length() - x.denominator.bit_length()
    return power if Fraction(2) ** power <= x else power - 1


def factor_of(block: list[Fraction], name: str, rule: str, whole: Fraction) -> tuple[int, Fraction]:
    """The factor's code and value, by the rule's words."""
    kind = FORMATS[name]
    amax, top = max(map(abs, block)), Fraction(MAXIMUM[kind.element])
    if kind.scale == "ue8m0":
        if amax == 0:
            return 0, Fraction(2) ** -127
        if rule == "floor":
            power = floor_log2(amax) - EMAX[kind.element]
        else:
            power = floor_log2(amax / top) - 2
            while Fraction(2) ** power * top < amax:
                power += 1
        power = min(max(power, -127), 127)
        return power + 127, Fraction(2) ** power
    if amax == 0:
        return 0, Fraction(0)
    if rule == "nearest":
        code = max(brute("ue4m3", amax / (top * whole), False), 1)
    else:
        enough = [code for code, one in enumerate(TABLES["ue4m3"]) if one * top * whole >= amax and code]
        code = enough[0] if enough else 126
    return code, TABLES["ue4m3"][code]


def check(name: str, rule: str, values: NDArray[np.float64], tensor_scale: float | str | None = None) -> None:
    found, kind = quantise(values, name, rule, tensor_scale), FORMATS[name]
    whole = Fraction(found.tensor_scale)
    for row, block in itertools.product(range(values.shape[0]), range(values.shape[1] // kind.vector)):
        part = slice(block * kind.vector, (block + 1) * kind.vector)
        exact = [Fraction(x) for x in values[row, part].tolist()]
        code, factor = factor_of(exact, name, rule, whole)
        assert found.factors[row, block] == code
        unit = (factor or 1) * whole
        signs = np.signbit(values[row, part]).tolist()
        wanted = [brute(kind.element, x / unit, sign) for x, sign in zip(exact, signs, strict=True)]
        assert found.codes[row, part].tolist() == wanted
        stands = [TABLES[kind.element][c & (1 << sum(BITS[kind.element])) - 1] * factor * whole for c in wanted]
        assert np.abs(found.values()[row, part]).tolist() == [float(x) for x in stands]


RULES = [(name, rule) for name, kind in FORMATS.items() for rule in kind.rules]


def blocks(random: np.random.Generator, vector: int, count: int) -> NDArray[np.float64]:
    """Blocks of many magnitudes, of zeros, of subnormal numbers, of the greatest; each a float32."""
    rows = np.ldexp(random.standard_normal((count, vector)), random.integers(-30, 30, (count, 1)))
    rows[0] = 0.0
    rows[1, ::2] = -0.0
    rows[2] = np.ldexp(random.standard_normal(vector), -140)
    rows[3] = np.float64(np.finfo(np.float32).smallest_subnormal) * random.integers(-9, 9, vector)
    rows[4, 0] = np.finfo(np.float32).max
    rows[5] = random.choice([448.0, 449.0, 6.0, 6.25, 7.0, 7.5, 28.0, 57344.0, -61440.0], vector)
    rows[6] = 2.0 ** random.integers(-8, 8, vector)
    return rows.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize(("name", "rule"), RULES)
def test_blocks_are_quantised_as_the_rule_says(name: str, rule: str) -> None:
    vector = FORMATS[name].vector
    check(name, rule, blocks(np.random.default_rng(3), vector, 10).reshape(5, 2 * vector))


@pytest.mark.parametrize("tensor_scale", ["amax", 0.1, 3.0, 2.0**-20, 1e-30])
@pytest.mark.parametrize("rule", ["nearest", "up"])
def test_factors_are_relative_to_the_tensor_s_scale(tensor_scale: float | str, rule: str) -> None:
    check("nvfp4", rule, np.random.default_rng(4).standard_normal((4, 64)).astype(np.float32).astype(np.float64), tensor_scale)  # fmt: skip
    check("nvfp4", rule, blocks(np.random.default_rng(5), 16, 8), tensor_scale)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), RULES)
def test_many_blocks_are_quantised_as_the_rule_says(name: str, rule: str) -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        check(name, rule, blocks(random, FORMATS[name].vector, 24))
        check(name, rule, numbers(random, 24 * FORMATS[name].vector, 400).reshape(24, -1))


def test_the_largest_factor_is_448_with_the_tensor_s_own_scale() -> None:
    values = np.random.default_rng(6).standard_normal((8, 256)) * 1e-6
    found = quantise(values, "nvfp4", tensor_scale="amax")
    assert found.factors.max() == 0x7E
    assert found.tensor_scale == float(np.float32(np.abs(values).max() / (448 * 6)))
    assert np.abs(found.values() - values).max() <= np.abs(values).max() / 6
    assert quantise(np.zeros((1, 16)), "nvfp4", tensor_scale="amax").tensor_scale == 1.0


@pytest.mark.parametrize("name", [name for name, kind in FORMATS.items() if kind.scale == "ue8m0"])
def test_nothing_saturates_when_factors_are_rounded_up(name: str) -> None:
    kind = FORMATS[name]
    values = blocks(np.random.default_rng(7), kind.vector, 12)[5:]
    values[-1] = 2.0 ** np.arange(kind.vector) * 1.999  # between the maximum and the next power of two, in any format
    up, floor = quantise(values, name, "up"), quantise(values, name, "floor")
    spread = np.repeat(kind.factors.values(up.factors), kind.vector, axis=1)
    assert (np.abs(values) <= kind.elements.maximum * spread).all()
    assert (up.factors.astype(int) - floor.factors).min() == 0
    assert (up.factors.astype(int) - floor.factors).max() == 1


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_nan_or_an_infinity_makes_its_block_nan_and_no_other(name: str, bad: float) -> None:
    vector = FORMATS[name].vector
    values = np.ones((2, 2 * vector))
    values[1, vector + 3] = bad
    found = quantise(values, name)
    assert np.isnan(found.values()[1, vector:]).all()
    assert found.factors[1, 1] == (0xFF if FORMATS[name].scale == "ue8m0" else 0x7F)
    assert (found.codes[1, vector:] == 0).all()
    assert np.isfinite(found.values()[0]).all()
    assert np.isfinite(found.values()[1, :vector]).all()
    with pytest.raises(ValueError, match=rf"row 1, elements {vector}\.\.{2 * vector - 1} of K: a NaN or an infinity"):
        quantise(values, name, nonfinite="raise")


@pytest.mark.parametrize("name", FORMATS)
def test_kernels_arrays_stand_for_the_same_values(name: str) -> None:
    kind = FORMATS[name]
    values = np.random.default_rng(8).standard_normal((150, 6 * kind.vector))
    found = quantise(values, name)
    assert found.data.nbytes == values.size * kind.elements.bits // 8
    assert found.scales.shape == (2, 2, 32, 4, 4)
    assert np.array_equal(dequantise(found.data, found.scales, name), found.values())
    error = np.abs(found.values() - values).reshape(150, -1, kind.vector)
    # Half a step of the coarsest binade, and what saturation may cut: a quarter of the largest (floor's 7.99 -> 6).
    assert (error <= np.abs(values).reshape(error.shape).max(axis=2, keepdims=True) * 0.26).all()


@pytest.mark.parametrize("kind", [np.float16, np.float32, ml_dtypes.bfloat16, np.int8])
def test_any_real_type_is_taken_as_it_is(kind: type) -> None:
    values = (np.random.default_rng(9).standard_normal((2, 32)) * 20).astype(kind)
    wide = values.astype(np.float64)
    for name in FORMATS:
        assert np.array_equal(quantise(values, name).codes, quantise(wide, name).codes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 40)), "mxfp8"), "K=40: must be a multiple of 32.*nearest 32, 64: pad with zeros"),
        ((np.ones((2, 40)), "nvfp4"), "K=40: must be a multiple of 16.*nearest 32, 48"),
        ((np.ones(32), "mxfp8"), "a matrix"),
        ((np.ones((2, 32), np.complex64), "mxfp8"), "real numbers"),
        ((np.ones((2, 32)), "mxfp5"), "no block-scaled format; there is mxfp8, .* nearest mxfp"),
        ((np.ones((2, 32)), "mxfp8", "nearest"), '"floor" or "up"'),
        ((np.ones((2, 32)), "mxfp8", None, 2.0), "has none"),
        ((np.ones((2, 32)), "nvfp4", None, -1.0), "positive float32"),
        ((np.ones((2, 32)), "nvfp4", None, "max"), "positive number or 'amax'"),
        ((np.ones((2, 32)), "nvfp4", None, None, "ignore"), "'nan' or 'raise'"),
        ((np.ones((2, 32)), ["nvfp4"]), "no block-scaled format"),
        ((np.ones((2, 32)), "nvfp4", None, [1.0, 2.0]), "positive float32 or 'amax'"),
        ((np.ones((2, 32)), "nvfp4", None, 1e60), "positive float32"),
        ((np.ones((0, 32)), "mxfp4"), "at least one row"),
        ((np.full((1, 32), 2**53 + 1), "mxfp4"), r"int64 up to 9007199254740993: beyond 2\^53 they would be rounded"),
        ((np.full((1, 32), -(2**63)), "mxfp4"), r"beyond 2\^53"),
    ],
)
def test_what_cannot_be_quantised_is_refused_in_words(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantise(*arguments)  # type: ignore[arg-type]


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 on this platform")
def test_numbers_that_would_be_rounded_twice_are_refused() -> None:
    # 5 + 2^-60 is nearer to 6 than to 4 under a factor of 1; as float64 it is half way, and would go to the even 4.
    values = np.zeros((1, 32), np.longdouble)
    values[0, :2] = 6, np.longdouble(5) + np.longdouble(2) ** -60
    with pytest.raises(ValueError, match="rounded to float64 first"):
        quantise(values, "mxfp4")


def test_whole_numbers_that_float64_holds_are_taken() -> None:
    values = np.full((1, 32), 2**53)
    assert (quantise(values, "mxfp4").values() == 2.0**53).all()


@pytest.mark.filterwarnings("error")
def test_huge_values_under_a_tiny_tensor_scale_saturate_in_silence() -> None:
    found = quantise(np.full((1, 16), -1.7e308), "nvfp4", tensor_scale=1e-45)
    assert found.factors.tolist() == [[126]]
    assert (found.codes == 0xF).all()


@pytest.mark.parametrize("name", FORMATS)
def test_elements_of_a_byte_each_stand_for_the_same_values(name: str) -> None:
    found = quantise(np.random.default_rng(4).standard_normal((5, 64)), name)
    alone = found.codes.view(ML[FORMATS[name].element])
    assert np.array_equal(dequantise(alone, found.scales, name), found.values())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            np.zeros((4, 32), np.float32),
            r"data of shape \(4, 32\), float32: mxfp4 is uint8 \(rows, K / 2\) or float4_e2m1fn",
        ),
        (np.zeros(32, np.uint8), r"data of shape \(32,\), uint8: mxfp4"),
        (np.zeros((4, 32), ml_dtypes.float6_e2m3fn), "mxfp4 is uint8"),
    ],
)
def test_elements_of_another_form_are_refused(data: NDArray[np.generic], message: str) -> None:
    scales = quantise(np.ones((4, 64)), "mxfp4").scales
    with pytest.raises(ValueError, match=message):
        dequantise(data, scales, "mxfp4")


def test_factors_that_are_not_laid_out_are_refused_with_a_drawing() -> None:
    found = quantise(np.ones((64, 128)), "mxfp4")
    with pytest.raises(LayoutError, match=r"scale_b\.shape=\(64, 4\).*place\(\) lays them out") as caught:
        dequantise(found.data, found.factors, "mxfp4", name="scale_b")
    assert "row 0 |   row 32 |   row 64 |   row 96" in str(caught.value)
