"""What an expression should give, and how far float32 may be from it, against the compiled expression itself on the emulator."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.build import BuildError, build
from stridewright.codegen.emulator import emulate_ptx
from stridewright.codegen.expression_bound import bounded
from stridewright.codegen.nvrtc import CompileError
from stridewright.codegen.source import whole
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.expression import FUNCTIONS, ExpressionError, in_float32, parse
from stridewright.kernels.fusion import Fusion

COUNT = 128
SIGNATURE = "float acc, float c, float bias, float alpha, float beta, float x, uint32 row, uint32 col"


def drawn(rng: random.Random, depth: int = 0) -> str:
    """An expression, as a user might write one."""
    if depth > 3 or rng.random() < 0.25:
        return rng.choice(
            ["x", "x", "acc", "c", "bias", "alpha", "beta", "row", "col", "0.1f", "0.3", "2.0f", "1", "3", "1.5f", "7u"]
        )
    kind = rng.choice(["binary", "binary", "binary", "call", "choice", "minus", "parentheses"])
    left, right = drawn(rng, depth + 1), drawn(rng, depth + 1)
    if kind == "binary":
        return f"{left} {rng.choice(['+', '-', '*', '+', '-', '*', '/', '<', '>=', '&&', '=='])} {right}"
    if kind == "call":
        return rng.choice(
            ["fmaxf({}, {})", "fminf({}, {})", "relu({})", "fabsf({})", "float({})", "tanhf({})", "sigmoid({})", "silu({})",
             "gelu({})", "gelu_tanh({})", "expf(0.1f * ({}))", "sqrtf(fabsf({}))", "erff({})", "floorf({})", "logf(1.0f + fabsf({}))"]
        ).format(left, right)  # fmt: skip
    if kind == "choice":
        return f"({drawn(rng, depth + 1)} < {left} ? {right} : {drawn(rng, depth + 1)})"
    return f"-({left})" if kind == "minus" else f"({left})"


def expressions(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    found: list[str] = []
    while len(found) < count:
        text = drawn(rng)
        try:
            parse(text)
        except ValueError:
            continue  # a whole number divided by 0, say
        if len(text) > 8:
            found.append(text)
    return found


def compiled(texts: list[str]) -> str:
    """PTX of a kernel that computes every expression of the values of a thread."""
    source = whole(
        GemmConfig(problem=Problem(d="f32"), fusion=Fusion(activation="gelu")).replace(tile_n=64, store="direct")
    )
    functions = "".join(f"DEVICE float user{i}({SIGNATURE}) {{ return {text}; }}\n" for i, text in enumerate(texts))
    calls = "".join(
        f"    out[{i} * {COUNT} + i] = user{i}(v[i], v[{COUNT} + i], v[{2 * COUNT} + i], 0.5f, 2.0f, v[{3 * COUNT} + i], i % 16, i / 16);\n"
        for i in range(len(texts))
    )
    kernel = (
        f'extern "C" __global__ void all(const float *v, float *out) {{\n    const uint32 i = threadIdx.x;\n{calls}}}\n'
    )
    return build(f"{source}\n{functions}{kernel}", arch="sm_90a").ptx


def test_compiled_expressions_are_within_their_bound() -> None:
    texts = [
        "fmaxf(x, 0.1f * x) + 0.25f * float(row) - float(col)", "row / 3 + col % 5", "row - col < 5 ? x : -x",
        "x > 0 ? x : expf(x) - 1.0f", "x * sigmoid(1.702f * x)", "powf(fabsf(x), 1.5f)", "rsqrtf(fabsf(x) + 1.0f)",
        "expf(expf(x))", "x * 2e38 * 10.0", "x / row", "x / 0.0 - x / 0.0", "1.0 / -(x == x - x)", "erff(x * 1e-30)", "erff(x / row)",
        "powf(x / 0.0, gelu_tanh(float(row)))", "silu(x / row)", "5 / row + col % row", "sqrtf(x) * logf(acc)",
        "log1pf(expf(fminf(x, 20.0f)))", "rintf(x) + ceilf(acc)", "!(x < 0) + 2 * (acc != acc)", "-row + 3u",
        *expressions(60, seed=4), *expressions(60, seed=5),
    ]  # fmt: skip
    values = np.random.default_rng(7).standard_normal((4, COUNT)).astype(np.float32) * np.float32(3.0)
    out = np.full(len(texts) * COUNT, np.nan, np.float32)
    emulate_ptx(compiled([in_float32(text) for text in texts]), "all", 1, COUNT, [values.reshape(-1), out])
    zero = np.zeros(COUNT)
    named: dict[str, Any] = {
        name: (row.astype(np.float64), zero) for name, row in zip(("acc", "c", "bias", "x"), values, strict=True)
    }
    place = np.arange(COUNT)
    sharp: list[bool] = []
    named |= {"alpha": (0.5, 0.0), "beta": (2.0, 0.0), "row": (place % 16, zero), "col": (place // 16, zero)}
    for text, got in zip(texts, out.reshape(len(texts), COUNT).astype(np.float64), strict=True):
        value, allowed = bounded(text, named)
        both = np.isinf(allowed) | (np.isnan(got) & np.isnan(value)) | (got == value)
        with np.errstate(invalid="ignore"):
            right = both | ((np.abs(got - value) <= allowed) & np.isfinite(value))
        assert right.all(), (text, got[~right][:3], value[~right][:3], allowed[~right][:3])
        finite = np.isfinite(value) & (np.abs(value) < 1e6)
        sharp += (allowed[finite] < 1e-4 * (1 + np.abs(value[finite]))).tolist()
    # A bound that allows anything would say nothing. (Where equal numbers are compared, it must.)
    assert np.mean(sharp) > 0.9


def hostile(rng: random.Random, depth: int = 0) -> str:
    """An expression of infinities, of what has no value, and of numbers at float32's ends."""
    if depth > 3 or rng.random() < 0.2:
        return rng.choice(
            [
                "x",
                "x",
                "acc",
                "c",
                "row",
                "col",
                "0.0",
                "1e38",
                "3e38",
                "1e-38",
                "2.0",
                "(x/0.0)",
                "(-1.0/0.0)",
                "1",
                "3u",
            ]
        )
    kind = rng.choice(["binary", "binary", "binary", "call", "choice", "minus"])
    left, right = hostile(rng, depth + 1), hostile(rng, depth + 1)
    if kind == "binary":
        return f"({left} {rng.choice(['+', '-', '*', '/', '*', '/', '<', '>=', '&&', '=='])} {right})"
    if kind == "call":
        name = rng.choice([*FUNCTIONS])
        return f"{name}({left}, {right})" if name in ("fmaxf", "fminf", "powf") else f"{name}({left})"
    if kind == "choice":
        return f"({left} < {right} ? {hostile(rng, depth + 1)} : {hostile(rng, depth + 1)})"
    return f"(- {left})"


def test_infinities_and_what_has_no_value_come_out_where_they_should() -> None:
    rng, texts = random.Random(11), []
    while len(texts) < 120:
        text = hostile(rng)
        with contextlib.suppress(ExpressionError):  # a whole number divided by 0
            parse(text)
            texts.append(text)
    values = np.random.default_rng(7).standard_normal((4, COUNT)).astype(np.float32) * np.float32(3.0)
    values[:, :8] = [0.0, 1e30, -1e30, 1e-30, -0.0, 3e38, -3e38, 1.0]
    out = np.full(len(texts) * COUNT, np.nan, np.float32)
    emulate_ptx(compiled([in_float32(text) for text in texts]), "all", 1, COUNT, [values.reshape(-1), out])
    place, zero = np.arange(COUNT), np.zeros(COUNT)
    named: dict[str, Any] = {
        name: (row.astype(np.float64), zero) for name, row in zip(("acc", "c", "bias", "x"), values, strict=True)
    }
    named |= {"alpha": (0.5, 0.0), "beta": (2.0, 0.0), "row": (place % 16, zero), "col": (place // 16, zero)}
    said: list[bool] = []
    for text, got in zip(texts, out.reshape(len(texts), COUNT).astype(np.float64), strict=True):
        value, allowed = bounded(text, named)
        right = np.isinf(allowed) | (np.isnan(got) & np.isnan(value)) | (got == value)
        with np.errstate(invalid="ignore"):
            right |= (np.abs(got - value) <= allowed) & np.isfinite(value)
        assert right.all(), (text, got[~right][:3], value[~right][:3], allowed[~right][:3])
        said += np.isfinite(allowed).tolist()
    assert np.mean(said) > 0.85  # of most it is known


@pytest.mark.parametrize(
    "text",
    ["x +", "x x", "fmaxf(x)", "x % 2", "1f * x", "x ? 1.0f", "(x 2.0f)", "expf()", "expf(x, x)", "1.5u * x", "* x"],
)
def test_the_compiler_refuses_what_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)
    with pytest.raises((CompileError, BuildError)):
        compiled([text])


def test_errors_of_the_values_go_into_the_bound() -> None:
    x = np.array([-1.0, 0.0005, 2.0])
    error = np.full(3, 0.001)
    value, allowed = bounded("x < 0 ? -10.0f : 10.0f", {"x": (x, error)})
    assert value.tolist() == [-10.0, 10.0, 10.0]
    assert (allowed > 1).tolist() == [False, True, False]  # 0.0005 may be on either side
    for text, slope in (
        ("3.0f * x", 3.0),
        ("x * x", 4.0),
        ("1.0f / (x + 10.0f)", 0.02),
        ("expf(x)", 7.5),
        ("x - x", 2.0),
    ):
        _, allowed = bounded(text, {"x": (x, error)})
        assert 0.5 * slope * 0.001 < allowed.max() < 1.5 * slope * 0.001 + 1e-5, text


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_number_without_an_f_computes_in_float32(arch: str) -> None:
    texts = [
        Gemm(128, 64, 64, d="f32", arch=arch, expression=words).ptx for words in ("0.1 * x + 1e-3", "0.1f * x + 1e-3f")
    ]
    assert ".f64" not in texts[0]
    assert texts[0] == texts[1]


def test_what_float32_has_no_number_for_is_infinite_where_that_is_sure() -> None:
    x, error = np.array([-2.0, 0.0, 3.0, 1.0e-9]), np.array([1e-6, 1e-6, 1e-6, 1e-6])
    rows = {"x": (x, error), "row": (np.arange(4), np.zeros(4))}
    infinite = np.inf
    for text, wanted, allowed in (
        ("x * 2e38 * 10", [-infinite, 0, infinite, 2e30], [0, 3e33, 0, 3e33]),
        ("x / 0.0", [-infinite, 0, infinite, 0], [0, infinite, 0, infinite]),
        ("expf(expf(x * 2.0))", [np.exp(np.exp(-4.0)), np.e, infinite, np.e], [1e-4, 1e-4, 0, 1e-4]),
        ("sqrtf(x - 1.5)", [np.nan, np.nan, 1.5**0.5, np.nan], [0, 0, 1e-4, 0]),
        ("x / row", [-infinite, 0, 1.5, 0], [0, 1e-4, 1e-4, 1e-4]),
        ("sigmoid(-x / 0.0)", [1.0, 0, 0.0, 0], [0, infinite, 0, infinite]),
        ("erff(x / 0.0)", [-1.0, 0, 1.0, 0], [1e-4, infinite, 1e-4, infinite]),
        ("fmaxf(1.0, sqrtf(x - 5.0))", [1.0, 1.0, 1.0, 1.0], [0, 0, 0, 0]),
    ):
        value, apart = bounded(text, rows)
        surely = np.asarray(apart) < infinite
        np.testing.assert_allclose(value[surely], np.array(wanted)[surely], rtol=1e-5, atol=1e-5, err_msg=text)
        assert (apart <= np.array(allowed)).all(), (text, apart)
        assert ((apart == infinite) == (np.array(allowed) == infinite)).all(), (text, apart)


def test_a_long_sum_and_a_long_row_of_choices_have_a_bound() -> None:
    x = (np.array([1.0]), np.array([0.0]))
    value, allowed = bounded("+".join(["x"] * 3000), {"x": x})
    assert value.tolist() == [3000.0]
    assert allowed < 3.0
    chosen = "".join(f"row == {row} ? {row}.5 : " for row in range(300)) + "x"
    assert bounded(chosen, {"x": x, "row": (np.array([7, 299, 300]), 0.0)})[0].tolist() == [7.5, 299.5, 1.0]


@pytest.mark.parametrize(
    ("scale_a", "scale_b", "acc", "alpha"),
    [
        (None, None, 64.0, 3.0),
        (0.5, None, 64.0, 1.5),
        (np.float32(0.5), 0.25, 64.0, 0.375),
        (np.full(1, 0.5, np.float32), 0.25, 64.0, 0.375),
        (np.full(16, 0.5, np.float32), None, 32.0, 3.0),
        (np.full(16, 0.5, np.float32), 0.25, 32.0, 0.75),
        (np.full(16, 0.5, np.float32), np.full(24, 0.25, np.float32), 8.0, 3.0),
    ],
)
def test_scales_of_rows_are_in_acc_and_those_of_whole_tensors_in_alpha(
    scale_a: Any, scale_b: Any, acc: float, alpha: float
) -> None:
    a, b = (np.ones((rows, 64), ml_dtypes.bfloat16) for rows in (16, 24))
    gemm = Gemm(16, 24, 64, d="f32", expression="row == 0 ? alpha : row == 1 ? x : acc")
    d = gemm.emulate(a, b, alpha=3.0, scale_a=scale_a, scale_b=scale_b, sms=1).d
    assert d[:, 0].tolist() == [alpha, alpha * acc, *[acc] * 14]


def test_scales_of_blocks_are_in_acc() -> None:
    a, b = (np.ones((rows, 256), ml_dtypes.float8_e4m3fn) for rows in (16, 24))
    gemm = Gemm(16, 24, 256, "e4m3", "e4m3", "f32", expression="row == 0 ? alpha : acc")
    scales = {"scale_a": np.full((16, 2), 0.5, np.float32), "scale_b": np.full((1, 2), 0.25, np.float32)}
    assert gemm.emulate(a, b, alpha=3.0, **scales, sms=1).d[:, 0].tolist() == [3.0, *[32.0] * 15]
