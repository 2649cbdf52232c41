"""The general GEMM: every activation and format against its definition, what is refused in words, variants made once."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright import Gemm
from stridewright.codegen import launch, tuned
from stridewright.codegen.bind import OperandError
from stridewright.codegen.cli.general_run import Options, draw, run
from stridewright.codegen.general import GeneralGemm
from stridewright.codegen.general_call import multiply
from stridewright.codegen.overlap import share_memory
from stridewright.codegen.reference import LARGEST, activation, expected, widened
from stridewright.codegen.source import generate
from stridewright.codegen.tensors import numpy_type
from stridewright.kernels.config import ConfigError, GemmConfig, Problem
from stridewright.kernels.fusion import ACTIVATIONS, Fusion, expression_problem


def normal(rows: int, k: int, seed: int, dtype: str = "bf16") -> Any:
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(numpy_type(dtype))


def within(got: Any, should: Any, allowed: Any) -> None:
    difference = np.abs(got.astype(np.float64) - should)
    assert (difference <= allowed).all(), float(np.max(difference - allowed))


@pytest.mark.parametrize("name", [one for one in ACTIVATIONS if one != "none"])
@pytest.mark.parametrize("swap", [False, True])
def test_every_activation_is_its_definition(name: str, swap: bool) -> None:
    a, b = normal(24, 64, 1), normal(40, 64, 2)
    config = GemmConfig().replace(tile_m=64, tile_n=24, consumers=1, swap=swap, store="direct", stages=2)
    gemm = Gemm(24, 40, 64, d="f32", config=config.replace(problem=Problem(d="f32")), activation=name)
    run = gemm.emulate(a, b, alpha=0.5)
    should = expected(widened(a, "bf16"), widened(b, "bf16"), "f32", alpha=0.5, act=name)
    within(run.d, should.d, should.allowed)
    assert run.races == ()


@pytest.mark.parametrize("d", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "sigmoid", "relu"])
def test_activations_of_extreme_sums_are_their_limits(name: str, d: str) -> None:
    values = np.array([-1e30, -200.0, -90.0, -20.0, 20.0, 90.0, 200.0, 1e30], np.float32)
    a, b = np.zeros((8, 16), np.float32), np.zeros((8, 16), np.float32)
    a[:, 0], b[:, 0] = values, 1.0
    run = Gemm(8, 8, 16, "tf32", "tf32", d, activation=name).emulate(a, b)
    sums = widened(a[:, :1], "tf32")
    with np.errstate(over="ignore", invalid="ignore"):
        should = activation(name)(sums)
    should = np.where(np.isfinite(should), should, np.maximum(sums, 0.0))
    error = 1e-5 if d == "f32" else 2.0**-8
    np.testing.assert_allclose(run.d.astype(np.float64), np.broadcast_to(should, (8, 8)), rtol=error, atol=2e-6)


def test_gelu_into_bf16_is_as_exact_as_bf16_is() -> None:
    """Every bf16 between -12 and 12: half a step of rounding, and what the coarse polynomial may be off."""
    every = (np.arange(0x10000, dtype=np.uint32) << 16).view(np.float32)
    values = every[np.isfinite(every) & (np.abs(every) <= 12) & (np.abs(every) >= 2.0**-20)]
    values = np.concatenate([values, np.zeros(-values.size % 64, np.float32)]).reshape(64, -1)
    columns = values.shape[1] // 8 * 8
    a, b = np.zeros((64, 64), numpy_type("bf16")), np.zeros((columns, 64), numpy_type("bf16"))
    np.fill_diagonal(a, 1)
    b[:, :] = values[:, :columns].T
    run = Gemm(64, columns, 64, activation="gelu").emulate(a, b)
    x = values[:, :columns].astype(np.float64)
    exact = activation("gelu")(x)
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126))) - 7)
    error = np.abs(run.d.astype(np.float64) - exact)
    assert (error <= 0.5 * step + np.where(np.abs(x) <= 4.6, 2.0**-9.8 * np.abs(exact), 2e-8)).all()
    assert (error > 0).any()


@pytest.mark.parametrize("a", ["bf16", "f16", "tf32", "e4m3", "e5m2", "s8"])
@pytest.mark.parametrize("d", ["bf16", "f16", "f32", "e4m3", "e5m2", "s8"])
def test_every_format_goes_into_every_other(a: str, d: str) -> None:
    random = np.random.default_rng(3)
    left, right = (random.integers(-9, 10, (rows, 96)).astype(numpy_type(a)) for rows in (40, 24))
    run = Gemm(40, 24, 96, a, a, d).emulate(left, right)
    should = expected(widened(left, a), widened(right, a), d, step=0.0)
    within(run.d.astype(np.float64), should.d, should.allowed)
    if d in LARGEST:
        assert np.abs(run.d.astype(np.float64)).max() <= LARGEST[d] + 1


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("kind", ["plain", "batch", "groups", "aux", "amax"])
def test_whole_sums_beyond_float32_stay_whole_where_nothing_is_done_to_them(kind: str, arch: str) -> None:
    k = 2048
    a, b = np.full((16, k), 127, np.int8), np.full((24, k), 127, np.int8)
    a[:, 0], b[:, 0], b[:, 1] = 1, 1, 126
    exact = (a.astype(np.int64) @ b.T.astype(np.int64)).astype(np.int32)
    assert (exact.astype(np.float32).astype(np.int64) != exact).all()
    if kind == "groups" and arch == "sm_100a":
        pytest.skip("groups have no kernel there")
    several = {"batch": {"batch": 2}, "groups": {"groups": 1}}.get(kind, {})
    aux, amax = np.zeros((16, 24), np.int32), np.zeros(1, np.float32)
    others = {"aux": {"aux": aux}, "amax": {"amax": amax}, "groups": {"offsets": np.array([0, 16], np.int32)}}.get(
        kind, {}
    )
    if kind == "batch":
        a, b, exact = np.stack([a, a]), np.stack([b, b]), np.stack([exact, exact])
    if kind == "groups":
        b = b[None]
    made = Gemm(16, 24, k, "s8", "s8", "s32", arch, **several)
    np.testing.assert_array_equal(made.emulate(a, b, **others).d, exact)
    if kind == "aux":
        np.testing.assert_array_equal(aux, exact)
    if kind == "amax":
        assert amax[0] == np.float32(exact.max())


def test_hardware_numerics_of_every_format_are_exact_for_small_whole_numbers() -> None:
    random = np.random.default_rng(4)
    for a in ("f16", "tf32", "e4m3", "e5m2", "s8"):
        left, right = (random.integers(-2, 3, (rows, 64)).astype(numpy_type(a)) for rows in (24, 16))
        d = Gemm(24, 16, 64, a, a, "f32").emulate(left, right, numerics="hardware").d
        np.testing.assert_array_equal(d, widened(left, a) @ widened(right, a).T)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x; y", "';' at 1"),
        ("system(x)", "'system' is no function"),
        ("terms", "'terms' is no value"),
        ("x[0]", "'[' at 1"),
        ("(x", "1 '(' are not closed"),
        ("x)", "closes nothing"),
        ('"a"', "at 0"),
        ("   ", "is empty"),
        ("__trap()", "'__trap' is no function"),
        ("x = 2", "'=' at 2"),
    ],
)
def test_an_expression_of_other_words_is_refused(text: str, words: str) -> None:
    assert words in expression_problem(text)
    with pytest.raises(ConfigError, match="expression="):
        Gemm(64, 64, 64, expression=text)


def test_an_expression_takes_the_place_of_an_activation() -> None:
    a, b = normal(40, 64, 5), normal(24, 64, 6)
    gemm = Gemm(40, 24, 64, d="f32", expression="row < 8 ? x : (col % 2 == 0 ? fmaxf(acc, 0.0f) : -alpha)")
    run = gemm.emulate(a, b, alpha=0.25)
    sums = widened(a, "bf16") @ widened(b, "bf16").T
    should = np.where(np.arange(24)[None, :] % 2 == 0, np.maximum(sums, 0), -0.25)
    should[:8] = 0.25 * sums[:8]
    np.testing.assert_allclose(run.d, should, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"a": "e4m3", "b": "s8"}, "b='s8': wgmma multiplies operands of one type"),
        ({"d": "s32"}, "d='s32': is what sums of s8 are"),
        ({"a": "f32"}, 'float32 operands are multiplied as "tf32"'),
        ({"a": "tf32", "b": "tf32", "d": "f32", "b_major": "mn"}, 'relayout="copy" transpose'),
        ({"activation": "tanh"}, "activation='tanh': must be one of"),
        ({"promote": 128}, "promote=128: adds up sums of 8-bit floats"),
        ({"a": "e4m3", "b": "e4m3", "promote": 100}, "must be a multiple of tile_k"),
        ({"batch": 2, "groups": 2}, "a launch has a batch or groups"),
        ({"groups": 2, "group_by": "n"}, "group_by='n'"),
        ({"groups": 2, "a_major": "mn"}, "a_major='mn': groups begin at any row"),
        ({"groups": 2, "group_by": "k"}, "pass both operands MN-major"),
        ({"relayout": "never"}, "relayout='never'"),
        ({"gated": True, "n": 63}, "n=63: with gated pairs, columns come in pairs"),
        ({"fusion": Fusion(scale_a="block")}, "scales of blocks of K are applied to both operands"),
        ({"arch": "sm_100a", "groups": 2}, "no Blackwell kernel yet"),
    ],
    ids=str,
)
def test_what_has_no_kernel_is_refused_with_what_works(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Gemm(**({"m": 64, "n": 64, "k": 64} | options))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"bias": np.zeros(25, np.float32)}, "bias: shape (25,), and one for each column of D is (24,)"),
        ({"bias": np.zeros(24, np.float64)}, "bias: dtype f64"),
        ({"c": np.zeros((24, 40), np.float32), "beta": 1.0}, "c: shape (24, 40)"),
        ({"beta": 1.0}, "beta=1.0: there is no C for it"),
        ({"aux": np.zeros((40, 24), np.float16)}, "aux: dtype f16"),
        ({"amax": np.zeros(2, np.float32)}, "amax: shape (2,), and it is one number"),
        ({"scale_a": np.zeros(7, np.float32)}, "scale_a: shape (7,)"),
        ({"offsets": np.zeros(3, np.int32)}, "this GEMM has no groups"),
        ({"out": np.zeros((40, 25), np.float32)}, "out: shape (40, 25)"),
        ({"out": np.zeros((40, 24), np.float16)}, "out: dtype f16"),
        ({"c": np.zeros((40, 24), np.float32), "beta": "1"}, "beta: str was given; it is a number"),
        ({"c": np.zeros((40, 24), np.float32), "beta": np.ones(1)}, "beta: ndarray was given; it is a number"),
        ({"scale_d": 2.0}, "scale_d: a number was given, and it is one float32"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arrays_that_do_not_fit_are_refused_by_name(others: dict[str, Any], words: str) -> None:
    with pytest.raises(OperandError) as caught:
        Gemm(40, 24, 64, d="f32").emulate(normal(40, 64, 1), normal(24, 64, 2), **others)
    assert words in str(caught.value)


def test_bytes_of_8_bit_floats_are_copied_to_padded_rows_too() -> None:
    random = np.random.default_rng(8)
    a, b = (random.integers(-2, 3, (rows, 37)).astype(ml_dtypes.float8_e5m2) for rows in (40, 24))
    d = Gemm(40, 24, 37, "e5m2", "e5m2", "f32").emulate(a.view(np.uint8), b.view(np.uint8)).d
    np.testing.assert_array_equal(d, widened(a, "e5m2") @ widened(b, "e5m2").T)
    empty = Gemm(40, 24, 0, "e5m2", "e5m2", "f32").emulate(a.view(np.uint8)[:, :0], b.view(np.uint8)[:, :0]).d
    assert not empty.any()


def test_a_result_over_what_is_read_is_refused() -> None:
    memory = np.zeros((64, 160), np.float32)
    a, b, left = normal(64, 64, 1, "tf32"), normal(24, 64, 2, "tf32"), memory[:, :24]
    gemm = Gemm(64, 24, 64, "tf32", "tf32", "f32")
    memory[:, 64:128] = a
    apart = memory[:, 64:128]  # between the rows of the result, but nowhere in them
    np.testing.assert_array_equal(gemm.emulate(apart, b, out=left).d, gemm.emulate(a, b).d)
    for out in (
        memory[:, 50:74],
        memory[:, 110:134],
        memory[:, 64:88],
        memory[32:, 64:128].reshape(-1)[: 64 * 24].reshape(64, 24),
    ):
        if np.shares_memory(out, apart):
            with pytest.raises(OperandError, match="out: shares memory with a"):
                gemm.emulate(apart, b, out=out)
    c = np.ones((64, 24), np.float32)
    before = gemm.emulate(a, b, c=c.copy(), beta=1.0).d
    np.testing.assert_array_equal(gemm.emulate(a, b, c=c, beta=1.0, out=c).d, before)  # C in place
    shifted = np.zeros(64 * 24 + 24, np.float32)
    with pytest.raises(OperandError, match="out: shares memory with c"):
        gemm.emulate(a, b, c=shifted[:-24].reshape(64, 24), beta=1.0, out=shifted[24:].reshape(64, 24))


@given(
    rows=st.integers(1, 4), columns=st.integers(1, 5), place=st.integers(0, 24), other_rows=st.integers(1, 4),
    other_columns=st.integers(1, 5), other_place=st.integers(0, 24), pitches=st.sampled_from([(6, 6), (5, 5), (6, 8)]),
)  # fmt: skip
def test_memory_is_shared_as_numpy_says(
    rows: int, columns: int, place: int, other_rows: int, other_columns: int, other_place: int, pitches: tuple[int, int]
) -> None:
    memory = np.zeros(80, np.int16)
    views = []
    for start, shape, pitch in (
        (place, (rows, columns), pitches[0]),
        (other_place, (other_rows, other_columns), pitches[1]),
    ):
        views.append(np.lib.stride_tricks.as_strided(memory[start:], shape, (2 * pitch, 2)))
    places = [(view.ctypes.data, view.shape, view.strides, 2) for view in views]
    said, shared = share_memory(places[0], places[1]), np.shares_memory(*views)
    assert said == share_memory(places[1], places[0])
    known = pitches[0] == pitches[1] or 1 in (rows, other_rows)
    assert said == shared if known else not said or shared


@pytest.mark.parametrize("name", ["c", "bias"])
def test_what_an_expression_names_must_be_given(name: str) -> None:
    a, b = normal(40, 64, 5), normal(24, 64, 6)
    gemm = Gemm(40, 24, 64, d="f32", expression=f"x + {name} * {name}")
    with pytest.raises(OperandError, match=f"{name}: must be given, since the expression"):
        gemm.emulate(a, b)
    value = np.full((40, 24) if name == "c" else (24,), 3.0, np.float32)
    plain = Gemm(40, 24, 64, d="f32").emulate(a, b).d
    added = 9.0 + (3.0 if name == "bias" else 0.0)  # C is there for the expression, whatever beta is
    np.testing.assert_allclose(gemm.emulate(a, b, **{name: value}).d, plain + added, rtol=1e-6)


def test_c_without_beta_is_said_to_be_unread(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_told", set())
    a, b = normal(40, 64, 5), normal(24, 64, 6)
    for _ in range(2):
        Gemm(40, 24, 64, d="f32").emulate(a, b, c=np.zeros((40, 24), np.float32))
    said = [record.message for record in caplog.records if "beta" in record.message]
    assert said == ["c is given and beta is 0, so C is not read; beta=1.0 adds it"]


@pytest.mark.parametrize("values", [[0, 50, 40], [0, 20, 60], [-1, 20, 40]])
def test_offsets_that_lead_out_of_the_arrays_are_refused_where_they_can_be_seen(values: list[int]) -> None:
    a, b = normal(40, 64, 5), np.stack([normal(24, 64, 6)] * 2)
    with pytest.raises(OperandError, match=r"offsets: .* must ascend"):
        Gemm(40, 24, 64, groups=2).emulate(a, b, offsets=np.array(values, np.int32))


@pytest.mark.parametrize(
    ("dtype", "options", "majors"),
    [
        ("e4m3", {"a_major": "mn"}, ("k", "k")),
        ("s8", {"a_major": "mn", "b_major": "mn", "batch": 2}, ("k", "k")),
        ("bf16", {"a_major": "mn"}, ("mn", "k")),
        ("bf16", {"a_major": "mn", "groups": 2}, ("k", "k")),
        ("bf16", {"groups": 2, "group_by": "k"}, ("mn", "mn")),
    ],
)
def test_with_copies_majors_that_no_kernel_reads_may_be_asked_for(
    dtype: str, options: dict[str, Any], majors: tuple[str, str]
) -> None:
    made = Gemm(40, 24, 64, dtype, dtype, "f32", relayout="copy", **options)
    assert (made.problem.a_major, made.problem.b_major) == majors
    with pytest.raises(ConfigError, match="major='x'"):
        Gemm(40, 24, 64, dtype, dtype, "f32", relayout="copy", **(options | {"a_major": "x"}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bias": "q"}, "--bias q: must be n"),
        ({"scales": "all"}, "--scales all: must be row"),
        ({"groups": 0}, "--groups 0: without"),
    ],
)
def test_the_command_line_refuses_what_it_does_not_know(options: dict[str, Any], words: str) -> None:
    asked = Options(**options)
    with pytest.raises(ValueError, match=words):
        draw(Gemm(40, 24, 64, d="f32", **asked.of_the_gemm()), asked, "integers", 0)  # type: ignore[arg-type]


def test_the_command_line_draws_operands_as_they_are_said_to_lie() -> None:
    asked = Options(relayout="copy", groups=2)
    made = Gemm(40, 24, 64, a_major="mn", b_major="mn", d="f32", **asked.of_the_gemm())
    _, arrays = draw(made, asked, "integers", 0)  # type: ignore[arg-type]
    assert arrays.a.strides == (2, 80)
    assert arrays.b.strides[-2:] == (2, 48)
    assert run(made, asked, "emulator", "integers", 0)["check"].passed  # type: ignore[arg-type]


def test_no_groups_write_nothing() -> None:
    a, b = normal(40, 64, 5), np.zeros((0, 24, 64), ml_dtypes.bfloat16)
    d = Gemm(40, 24, 64, groups=0).emulate(a, b, offsets=np.zeros(1, np.int32)).d
    assert np.isnan(d.astype(np.float32)).all()


def test_deterministic_products_add_up_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    atomic = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1, split_kind="split", parts=2, reduce="atomic")
    monkeypatch.setattr(tuned, "lookup", lambda *given, **options: SimpleNamespace(config=atomic, dependent=True))
    assert Gemm(128, 128, 4096).config.split.reduce == "atomic"
    made = Gemm(128, 128, 4096, deterministic=True)
    assert (made.config.split.reduce, made.config.problems()) == ("ordered", [])
    assert made.general.deterministic
    fused = Gemm(128, 128, 4096, activation="relu", deterministic=True)
    assert fused.config.split.reduce == "ordered" or fused.config.split.kind == "none"
    for options in ({}, {"activation": "relu"}):
        with pytest.raises(ConfigError, match="deterministic=True asks for one order"):
            Gemm(128, 128, 4096, config=atomic, deterministic=True, **options)
    assert Gemm(128, 128, 4096, config=atomic.replace(reduce="ordered"), deterministic=True).config.split.parts == 2
    assert Gemm(128, 128, 256, arch="sm_100a", activation="relu", deterministic=True).config.on_blackwell


def test_an_unknown_argument_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="gamma: no such argument; there are c, bias"):
        Gemm(40, 24, 64, d="f32").emulate(normal(40, 64, 1), normal(24, 64, 2), gamma=1)


def test_float32_is_not_rounded_unasked() -> None:
    with pytest.raises(OperandError, match="tf32=True allows that"):
        multiply(np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32))


def test_a_plain_gemm_takes_a_bias_too_and_keeps_its_own_kernel() -> None:
    a, b = normal(40, 64, 1), normal(24, 64, 2)
    gemm = Gemm(40, 24, 64)
    assert type(gemm) is Gemm
    bias = np.arange(24, dtype=np.float32)
    run = gemm.emulate(a, b, bias=bias)
    should = expected(widened(a, "bf16"), widened(b, "bf16"), "bf16", bias=bias)
    within(run.d, should.d, should.allowed)
    assert "Terms terms" not in gemm.source


def test_what_is_not_used_is_not_in_the_kernel() -> None:
    plain = generate(GemmConfig())
    for word in ("activations.cuh", "factors", "PROMOTE_SLOTS", "relu"):
        assert word not in plain


def test_threads_that_come_at_once_share_one_variant() -> None:
    gemm = Gemm(40, 24, 64, d="f32", activation="relu")
    assert isinstance(gemm, GeneralGemm)
    fusion = Fusion(bias="n", activation="relu")
    found: list[Any] = []
    cubins: list[bytes] = []

    def ask() -> None:
        found.append(gemm.variant(fusion, "k", "k", direct=False))
        cubins.append(found[-1].cubin)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1
    assert len(set(cubins)) == 1


def test_empty_problems_launch_nothing() -> None:
    for m, n, k in ((0, 24, 64), (24, 0, 64)):
        assert Gemm(m, n, k).emulate(normal(m, k, 1), normal(n, k, 2)).d.shape == (m, n)
    run = Gemm(8, 8, 16, batch=0).emulate(np.zeros((0, 8, 16), ml_dtypes.bfloat16), normal(8, 16, 1))
    assert run.d.shape == (0, 8, 8)


def test_without_k_c_and_bias_remain() -> None:
    a, b = normal(24, 0, 1), normal(40, 0, 2)
    c, bias = np.arange(960, dtype=np.float32).reshape(24, 40), np.arange(40, dtype=np.float32)
    run = Gemm(24, 40, 0, d="f32").emulate(a, b, c=c, beta=2.0, bias=bias)
    np.testing.assert_array_equal(run.d, 2 * c + bias)


def test_c_may_be_the_result_itself() -> None:
    random = np.random.default_rng(7)
    a, b = (random.integers(-2, 3, (rows, 64)).astype(ml_dtypes.bfloat16) for rows in (72, 40))
    out = random.integers(-9, 10, (72, 40)).astype(np.float32)
    should = widened(a, "bf16") @ widened(b, "bf16").T + out
    Gemm(72, 40, 64, d="f32").emulate(a, b, c=out, beta=1.0, out=out)
    np.testing.assert_array_equal(out, should)


def test_a_stride_beyond_32_bits_is_one_number_of_the_tensor_map() -> None:
    maps = Gemm(64, 64, 64, d="f32").derivation.tensor_maps(2, 64, 64, a_row_bytes=1 << 33)
    assert maps.a.strides_bytes == (1 << 33,)
    assert maps.a.problems() == []


def test_the_blackwell_family_refuses_what_it_has_no_kernel_for() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"promote": 128}, "nothing to be promoted to"),
        ({"problem": Problem(form="groups_m")}, "groups have no Blackwell kernel yet"),
    ]
    for change, words in cases:
        problems = GemmConfig(arch="sm_100a").replace(**change).problems()
        assert any(words in problem for problem in problems)


@pytest.mark.parametrize(("kind", "parts"), [("split", 3), ("stream", 1)])
def test_scales_of_blocks_go_with_their_blocks_where_a_part_of_k_begins_within_one(kind: str, parts: int) -> None:
    """Found on an H200: parts of an odd number of slots of 64 elements, and scales for each 128."""
    random = np.random.default_rng(5)
    m, n, k = 100, 40, 704  # 11 slots
    left, right = (random.integers(0, 256, (rows, k), dtype=np.uint8) & 0xBF for rows in (m, n))
    scale_a = random.uniform(0.5, 2.0, (m, 6)).astype(np.float32)
    scale_b = random.uniform(0.5, 2.0, (1, 6)).astype(np.float32)
    config = GemmConfig(fusion=Fusion(scale_a="block", scale_b="block")).replace(
        tile_m=128, tile_n=8, tile_k=64, stages=4, split_kind=kind, parts=parts, promote=128, store="direct"
    )
    gemm = Gemm(m, n, k, "e4m3", "e4m3", "f32", config=config)
    run = gemm.emulate(left, right, scale_a=scale_a, scale_b=scale_b, sms=7)
    scaled_a = widened(left, "e4m3") * np.repeat(scale_a, 128, 1)[:, :k]
    scaled_b = widened(right, "e4m3") * np.repeat(scale_b, 128, 1)[:, :k]
    should = expected(scaled_a, scaled_b, "f32")
    within(run.d, should.d, should.allowed)
    assert run.races == ()


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("scaled", [False, True])
def test_two_sets_of_partial_sums_take_turns_through_any_number_of_blocks(blocks: int, scaled: bool) -> None:
    random = np.random.default_rng(blocks)
    m, n, k = 140, 72, 128 * blocks - 16
    left, right = (random.integers(0, 256, (rows, k), dtype=np.uint8) & 0xBF for rows in (m, n))
    scale_a = random.uniform(0.5, 2.0, (m, blocks)).astype(np.float32)
    scale_b = random.uniform(0.5, 2.0, (1, blocks)).astype(np.float32)
    fusion = Fusion(scale_a="block", scale_b="block") if scaled else Fusion()
    config = GemmConfig(fusion=fusion).replace(tile_m=128, tile_n=64, tile_k=128, stages=3, promote=128, accumulators=2)
    scales = {"scale_a": scale_a, "scale_b": scale_b} if scaled else {}
    run = Gemm(m, n, k, "e4m3", "e4m3", "bf16", config=config).emulate(left, right, sms=2, **scales)
    ones = np.ones_like(scale_a) if not scaled else scale_a, np.ones_like(scale_b) if not scaled else scale_b
    scaled_a = widened(left, "e4m3") * np.repeat(ones[0], 128, 1)[:, :k]
    scaled_b = widened(right, "e4m3") * np.repeat(ones[1], 128, 1)[:, :k]
    should = expected(scaled_a, scaled_b, "bf16")
    within(run.d.astype(np.float64), should.d, should.allowed)
    assert run.races == ()
