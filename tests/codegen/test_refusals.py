"""What cannot be done is refused in words: what was given, what is allowed, and the nearest thing that works."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen.bind import OperandError
from stridewright.kernels.config import ConfigError, GemmConfig

BF16 = ml_dtypes.bfloat16
A, B = (np.ones((rows, 64), BF16) for rows in (16, 24))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"activaton": "relu"}, "activaton: no such argument; activation is near; there are activation, gated,"),
        (
            {"batch": 2},
            "batch: no such argument; three dimensions are a batch: a (B, M, K), and b (B, N, K) or (N, K);",
        ),
        ({"a_major": "mn"}, "a_major: no such argument; the strides of a say it: a.T of an array (K, M) is MN-major"),
        ({"b_major": "mn"}, "b_major: no such argument; the strides of b say it"),
        ({"config": 1}, "config: no such argument; Gemm(m, n, k, config=...) takes one"),
        ({"allow_tf32": True}, "allow_tf32: no such argument; tf32 is near"),
        ({"zzz": 1}, "zzz: no such argument; there are activation"),
        ({"promot": 1, "bais": 1}, "bais: no such argument; bias is near; promot: no such argument; promote is near;"),
    ],
)
def test_an_unknown_keyword_of_gemm_is_answered_with_the_nearest_and_all(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as caught:
        gemm(A, B, **options)
    assert words in str(caught.value)
    for name in ("activation", "gated", "groups", "c", "bias", "alpha", "workspace", "out", "stream", "d", "tf32"):
        assert name in str(caught.value).split("there are ")[-1].split(", "), name


def test_an_unknown_argument_of_a_call_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(TypeError, match=r"biass: no such argument; bias is near; there are c, bias, .*, offsets, out"):
        Gemm(16, 24, 64).emulate(A, B, biass=1)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (np.zeros((16, 24)), "out: dtype float64, and a result is bfloat16, float16, float32, float8_e4m3fn, "),
        (np.zeros((16, 24)), "int8, int32; nearest float32"),
        (np.zeros((16, 24), np.int64), "nearest int32"),
        (np.zeros((16, 24), np.uint8), 'bytes of 8-bit floats: d="e4m3"'),
        (np.zeros((16, 24), complex), "out: dtype complex128, and a result is bfloat16"),
        ([1], "out: list was given, and the result is written into an array, for example np.empty((M, N), np.float32)"),
        ("x", "out: str was given, and the result is written into an array"),
    ],
)
def test_what_a_result_cannot_be_written_into_is_named(out: Any, words: str) -> None:
    with pytest.raises(OperandError) as caught:
        gemm(A, B, out=out)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": -1}, "groups=-1: must be from 0 up"),
        ({"batch": -1}, "batch=-1: must be from 0 up"),
        ({"promote": "128"}, "promote='128': must be a whole number of elements of K; promote=128, or 0 for never"),
        ({"promote": 128.0}, "promote=128.0: must be a whole number of elements of K"),
        ({"promote": True}, "promote=True: must be a whole number of elements of K"),
        ({"expression": 3}, 'expression=3: must be a string of C++; for example "fmaxf(x, 0.1f * x)"'),
        ({"expression": b"x"}, "expression=b'x': must be a string of C++"),
        ({"fusion": "x"}, "fusion='x': must be a Fusion; Fusion(bias=\"n\") makes one"),
        ({"activation": ["relu"]}, "activation=['relu']: must be one of \"none\", \"relu\""),
    ],
)  # fmt: skip
def test_options_of_a_wrong_kind_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Gemm(16, 24, 64, "e4m3", "e4m3", **options)
    assert words in str(caught.value)


def test_a_long_expression_is_not_repeated_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        Gemm(16, 24, 64, expression="(" * 3000 + "x" + ")" * 3000)
    assert "is nested more than 128 deep" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_fusion_that_is_none_is_named_whatever_the_architecture(arch: str) -> None:
    with pytest.raises(ConfigError, match="fusion='x': must be a Fusion"):
        Gemm(16, 24, 64, arch=arch, fusion="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"activation": ["relu"]}, "activation=['relu']: must be one of"),
        ({"expression": b"x"}, "expression=b'x': must be a string of C++"),
        ({"d": ["bf16"]}, "d=['bf16']: this type has no kernel"),
        ({"groups": [2]}, "groups=[2]: must be a whole number"),
    ],
)
def test_gemm_names_options_that_cannot_be_kept(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gemm(A, B, **options)
    assert words in str(caught.value)
    with pytest.raises(OperandError, match="a_format: 3 was given, and it is a word"):
        gemm(A, B, a_format=3)


@pytest.mark.parametrize("name", ["alpha", "beta", "scale_a", "scale_b"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (10**400, "a number of 1332 bits was given, and it is a float32, from -3.4028235e+38 to 3.4028235e+38; nearest 3.4"),
        (-(10**400), "nearest -3.4028235e+38"),
        (1e40, "1e+40 was given, and it is a float32"),
        (np.float64(-1e39), "-1e+39 was given, and it is a float32"),
        (True, "True was given, and it is a number: "),
        (np.bool_(False), "was given, and it is a number: "),
    ],
)  # fmt: skip
def test_numbers_that_are_no_float32_are_refused(name: str, value: Any, words: str) -> None:
    c = {"c": np.ones((16, 24), np.float32)} if name == "beta" else {}
    with pytest.raises(OperandError) as caught:
        Gemm(16, 24, 64).emulate(A, B, **c, **{name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert words in str(caught.value)


def test_numbers_that_are_too_large_together_are_refused_and_others_go_on_as_they_were() -> None:
    made = Gemm(16, 24, 64, d="f32")
    with pytest.raises(
        OperandError, match=r"alpha, scale_a, scale_b: they are 1e\+60 together, and float32 ends at 3.4"
    ):
        made.emulate(A, B, alpha=1e30, scale_a=1e30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for alpha, wanted in (
            (2, 128.0), (0.5, 32.0), (np.float16(2), 128.0), (np.int64(3), 192.0), (float("inf"), np.inf), (1e-50, 0.0),
            (float(np.finfo(np.float32).max), np.inf),
        ):  # fmt: skip
            assert made.emulate(A, B, alpha=alpha, sms=1).d[0, 0] == wanted


def test_groups_of_k_say_what_works() -> None:
    made = Gemm(16, 24, 64, groups=1, group_by="k", a_major="mn", b_major="mn")
    offsets = np.array([0, 64], np.int32)
    with pytest.raises(OperandError, match=r"np\.asfortranarray\(a\) once"):
        made.emulate(A, np.asfortranarray(B), offsets=offsets)
    assert (made.emulate(np.asfortranarray(A), np.asfortranarray(B), offsets=offsets, sms=1).d == 64.0).all()
    for dtype in ("e4m3", "e5m2", "tf32", "s8"):
        for majors in ({}, {"a_major": "mn", "b_major": "mn"}, {"relayout": "copy"}):
            with pytest.raises(ConfigError) as caught:
                Gemm(16, 24, 64, dtype, dtype, "f32", groups=2, group_by="k", **majors)
            assert str(caught.value) == (
                f"group_by='k': has no kernel on Hopper for {dtype}: 8-bit and tf32 operands are read K-major only, and "
                "groups of K lie MN-major; one Gemm for each group works, or operands of 16 bits (bf16, f16)"
            )


def test_a_batch_that_a_configuration_reads_mn_major_says_how_it_gets_so() -> None:
    config = Gemm(16, 24, 64, a_major="mn", batch=2).config
    made = Gemm(16, 24, 64, a_major="mn", batch=2, config=config)
    several = np.ones((2, 16, 64), BF16)
    with pytest.raises(OperandError) as caught:
        made.emulate(several, B)
    assert "np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) once" in str(caught.value)
    turned = np.ascontiguousarray(several.swapaxes(1, 2)).swapaxes(1, 2)
    assert (made.emulate(turned, B, sms=1).d == 64.0).all()


@pytest.mark.parametrize("d", ["bf16", "f32"])
def test_negative_strides_are_refused_by_the_plain_kernel_too(d: str) -> None:
    plain = Gemm(16, 24, 64, d=d)
    for array in (A[::-1], A[:, ::-1]):
        strides = tuple(stride // 2 for stride in array.strides)
        with pytest.raises(OperandError) as caught:
            plain.emulate(array, B)
        assert str(caught.value) == (
            f"a: strides {strides}: must not be negative; np.ascontiguousarray(a) makes a copy that has none"
        )
        assert (plain.emulate(np.ascontiguousarray(array), B, sms=1).d == 64.0).all()
    one = Gemm(1, 24, 64, d=d)
    assert (one.emulate(A[:1][::-1], B, sms=1).d == 64.0).all()


@pytest.mark.parametrize(("promote", "slot"), [(192, 64), (320, 64), (64, 64), (128, 128), (256, 128)])
@pytest.mark.parametrize("m", [16, 100])
def test_sums_are_promoted_after_any_number_of_elements_that_slots_can_have(promote: int, slot: int, m: int) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (rows, 512)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, 24))
    made = Gemm(m, 24, 512, "e4m3", "e4m3", "f32", promote=promote)
    assert (made.config.tile.k, made.config.pipeline.promote) == (slot, promote)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    run = made.emulate(a, b, sms=2)
    assert (run.d == wanted).all()
    assert not run.races


@pytest.mark.parametrize(
    ("promote", "words"),
    [
        (100, "promote=100: sums are added after whole slots: must be a multiple of tile_k=64; nearest 64"),
        (-128, "promote=-128: sums are added after whole slots: must be a multiple of tile_k=128; nearest 128"),
        (2**39, "promote=549755813888: must be at most 2^31, which no K reaches; 0 adds sums to float32 ones never"),
        (2**70, "must be at most 2^31"),
    ],
)
def test_what_promote_cannot_be_is_named(promote: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Gemm(16, 24, 512, "e4m3", "e4m3", "f32", promote=promote)
    assert words in str(caught.value)


def test_a_configuration_whose_slots_do_not_go_into_promote_is_told_of_smaller_ones() -> None:
    config = GemmConfig().replace(tile_m=64, tile_n=16, tile_k=128, consumers=1, stages=2, promote=192, store="direct")
    with pytest.raises(ConfigError, match=r"must be a multiple of tile_k=128; nearest 128, or tile_k=64$"):
        Gemm(16, 24, 512, "e4m3", "e4m3", "f32", config=config)
    assert Gemm(16, 24, 512, "e4m3", "e4m3", "f32", config=config.replace(tile_k=64)).config.pipeline.promote == 192
    assert Gemm(16, 24, 512, "e4m3", "e4m3", "f32", promote=2**31).config.pipeline.promote == 2**31


@pytest.mark.parametrize("dtype", ["bf16", "f16", "tf32", "s8"])
def test_scales_of_blocks_are_said_to_be_for_8_bit_floats(dtype: str) -> None:
    kind = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "s8": np.int8}[dtype]
    a, b = np.ones((8, 512), kind), np.ones((4, 512), kind)
    with pytest.raises(ConfigError) as caught:
        Gemm(8, 4, 512, dtype, dtype, "f32").emulate(
            a, b, scale_a=np.ones((8, 4), np.float32), scale_b=np.ones((1, 4), np.float32)
        )
    assert str(caught.value) == (
        f"scale_a='block': scales of blocks of K are for 8-bit floats, e4m3 and e5m2, and a is '{dtype}'; scales of rows, (M,) and "
        "(N,), and of whole tensors go with every format"
    )
