"""Every dense format of the Blackwell kernels is right on the emulator, in strict mode: bit for bit where sums are exact.

The nightly command runs each mixture of formats on every shape, in every form of a tile, under several orders of completion:
python -m pytest -m slow tests/codegen/test_blackwell_types.py
"""

from __future__ import annotations

import dataclasses
import itertools
import json

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from stridewright import Gemm
from stridewright.codegen.bind import OperandError
from stridewright.codegen.blackwell_gemm import BlackwellGemm
from stridewright.codegen.blackwell_general import BlackwellGeneralGemm
from stridewright.codegen.blackwell_operands import packed_length
from stridewright.codegen.breadth import Case, Recipe
from stridewright.codegen.cli import app
from stridewright.codegen.small_floats import pack, small_float
from stridewright.codegen.tensors import numpy_type
from stridewright.kernels.config import ConfigError, GemmConfig

from .blackwell_cases import CONVERTED, IN_BYTES, SHAPES, TYPES, assert_typed, in_tensor_memory, typed_case


def words(types: tuple[str, str, tuple[str, ...]]) -> str:
    return f"{types[0]}x{types[1]}"


@pytest.mark.parametrize("types", TYPES, ids=words)
def test_every_format_is_right(types: tuple[str, str, tuple[str, ...]]) -> None:
    first = TYPES.index(types)
    for number in range(first, first + 2):
        assert_typed(typed_case(number, types, SHAPES[(5 * number) % len(SHAPES)]), number)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("types", TYPES, ids=words)
def test_every_format_is_right_on_every_shape(types: tuple[str, str, tuple[str, ...]], turn: int) -> None:
    """13 shapes in 4 turns of everything else: forms, stores, majors, terms."""
    for number, shape in enumerate(SHAPES):
        assert_typed(typed_case(number + 5 * turn, types, shape), turn)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("types", TYPES, ids=words)
def test_every_format_is_right_in_any_order_of_completion(types: tuple[str, str, tuple[str, ...]], number: int) -> None:
    for seed in range(5):
        assert_typed(typed_case(number, types, (300, 144, 640)), seed)


@pytest.mark.parametrize("number", range(4))
def test_every_kind_is_right_in_the_hardware_s_published_numerics(number: int) -> None:
    for types in TYPES[2 + number :: 5]:
        assert_typed(typed_case(7 + 8 * number, types, (70, 48, 264)), numerics="hardware")


STATIONARY = list(itertools.product((32, 64, 128), (64, 128, 256), TYPES))


def stationary(number: int) -> Case:
    """The weight-stationary form of a case: its own tiles, one CTA, all else in turn."""
    tile_m, tile_n, types = STATIONARY[number]
    case = typed_case(number, types, (SHAPES[number % 13][0] % 150 + 1, *SHAPES[number % 13][1:]))
    config = case.recipe.config.replace(pair=False, tile_m=tile_m, tile_n=tile_n, stationary=True)
    return dataclasses.replace(case, recipe=Recipe(config))


@pytest.mark.parametrize("number", range(3, 144, 17))
def test_few_rows_are_right_where_the_weights_are_stationary(number: int) -> None:
    assert_typed(stationary(number), number)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(18))
def test_every_format_is_right_where_the_weights_are_stationary(first: int) -> None:
    for number in range(first, 144, 18):
        assert_typed(stationary(number), number)


def batch(number: int, types: tuple[str, str, tuple[str, ...]]) -> Case:
    """A batch of three, or of one; each operand its own or one for all, in turn."""
    shared = ((False, False), (True, False), (False, True), (True, True))[number % 4]
    make_case = in_tensor_memory if types in CONVERTED else typed_case
    case = make_case(number, types, (SHAPES[number % 13][0] % 150 + 1, SHAPES[number % 13][1] % 200 + 1, 200))
    config = case.recipe.config
    problem = dataclasses.replace(config.problem, form="batch")
    size = {"f32": 4, "s32": 4, "bf16": 2, "f16": 2}.get(problem.d, 1)
    config = config.replace(problem=problem, store="direct" if case.n * size % 16 else config.epilogue.store)
    return dataclasses.replace(case, recipe=Recipe(config), batches=3 - 2 * (number % 5 == 4), shared=shared)


@pytest.mark.parametrize("number", range(6))
def test_batches_are_right(number: int) -> None:
    types = [types for types in (*TYPES, *CONVERTED) if not {*types[:2]} & set(IN_BYTES)]
    assert_typed(batch(number, types[(5 * number) % len(types)]), number)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12))
def test_batches_of_every_format_are_right(first: int) -> None:
    types = [types for types in (*TYPES, *CONVERTED) if not {*types[:2]} & set(IN_BYTES)]
    for number in range(first, 12 * len(types), 12):
        assert_typed(batch(number, types[number // 12]), number)


@pytest.mark.parametrize("shape", [(72, 96, 64), (40, 50, 107)])
def test_gated_pairs_are_chosen_for(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    random = np.random.default_rng(6)
    a, b = (random.integers(-2, 3, (rows, k)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n))
    gemm = Gemm(m, n, k, "e4m3", "e4m3", "f32", "sm_100a", activation="relu", gated=True)
    product = a.astype(np.float32) @ b.astype(np.float32).T
    found = gemm.emulate(a, b, sms=2)
    np.testing.assert_array_equal(found.d, np.maximum(product[:, ::2], 0) * product[:, 1::2])
    assert found.races == ()


def test_a_batch_without_matrices_or_without_k_is_what_is_added() -> None:
    made = Gemm(24, 16, 0, "e4m3", "e4m3", "f32", "sm_100a", batch=2)
    a, b = (np.zeros((2, rows, 0), ml_dtypes.float8_e4m3fn) for rows in (24, 16))
    bias = np.arange(32, dtype=np.float32).reshape(2, 1, 16)
    np.testing.assert_array_equal(made.emulate(a, b, bias=bias, sms=1).d, np.broadcast_to(bias, (2, 24, 16)))
    none = Gemm(24, 16, 64, arch="sm_100a", batch=0)
    assert none.emulate(np.zeros((0, 24, 64), ml_dtypes.bfloat16), np.zeros((16, 64), ml_dtypes.bfloat16)).d.shape == (
        0,
        24,
        16,
    )


WHOLE = tuple(types for types in TYPES if not {*types[:2]} & set(IN_BYTES))
"""Mixtures without padded formats, which are read from shared memory."""


@pytest.mark.parametrize("types", [*CONVERTED, *WHOLE[::3]], ids=words)
def test_a_is_multiplied_from_tensor_memory(types: tuple[str, str, tuple[str, ...]]) -> None:
    first = len(types[0]) + 3 * (CONVERTED + WHOLE).index(types)
    assert_typed(in_tensor_memory(first, types, SHAPES[first % 13]), first)
    assert_typed(in_tensor_memory(first + 1, types, SHAPES[(first + 5) % 13]), first)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("types", [*CONVERTED, *WHOLE], ids=words)
def test_every_format_is_multiplied_from_tensor_memory_on_every_shape(
    types: tuple[str, str, tuple[str, ...]], seed: int
) -> None:
    for number, shape in enumerate(SHAPES):
        assert_typed(in_tensor_memory(number + 7 * seed, types, shape), seed)


@pytest.mark.parametrize("a", ["s8", "e4m3"])
def test_a_of_8_bits_beside_16_is_chosen_for(a: str) -> None:
    """Weights of 8 bits with a scale for each row, activations of 16: what quantised layers multiply."""
    random = np.random.default_rng(4)
    weights = random.integers(-8, 9, (72, 136)).astype(numpy_type(a))
    tokens = random.integers(-4, 5, (40, 136)).astype(ml_dtypes.bfloat16)
    scales = random.choice((0.5, 1.0, 2.0), 72).astype(np.float32)
    gemm = Gemm(72, 40, 136, a, "bf16", "f32", "sm_100a")
    assert gemm.config.pipeline.a_in == "registers"
    emulation = gemm.emulate(weights, tokens, scale_a=scales, sms=2)
    exact = (weights.astype(np.float64) * scales[:, None]) @ tokens.astype(np.float64).T
    np.testing.assert_array_equal(emulation.d, exact.astype(np.float32))
    assert emulation.races == ()


@pytest.mark.parametrize("shape", [(1, 8, 8), (130, 72, 72), (100, 105, 107), (257, 136, 200)])
@pytest.mark.parametrize("types", [("tf32", "tf32", "f32"), ("e4m3", "e5m2", "bf16"), ("s8", "u8", "s32")], ids=str)
def test_the_chosen_kernel_takes_any_size(types: tuple[str, str, str], shape: tuple[int, int, int]) -> None:
    """K of no whole 16 bytes goes through copies to padded rows, on the emulator too."""
    gemm = Gemm(*shape, *types, "sm_100a")
    assert type(gemm) is BlackwellGeneralGemm
    random = np.random.default_rng(5)
    m, n, k = shape
    a = random.integers(0, 4, (m, k)).astype(numpy_type(types[0]))
    b = random.integers(0, 4, (n, k)).astype(numpy_type(types[1]))
    emulation = gemm.emulate(a, b, sms=3)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(emulation.d.astype(np.float64), exact.astype(emulation.d.dtype).astype(np.float64))
    assert emulation.races == ()


def test_without_k_what_is_added_remains() -> None:
    gemm = Gemm(40, 24, 0, "e4m3", "e4m3", "f32", "sm_100a")
    bias, empty = np.arange(24, dtype=np.float32), np.zeros((40, 0), ml_dtypes.float8_e4m3fn)
    emulation = gemm.emulate(empty, empty[:24], bias=bias, sms=1)
    np.testing.assert_array_equal(emulation.d, np.tile(bias, (40, 1)))


def test_a_plain_gemm_takes_a_bias_in_its_call() -> None:
    gemm = Gemm(72, 64, 64, arch="sm_100a")
    assert type(gemm) is BlackwellGemm
    a, b = (np.ones((rows, 64), ml_dtypes.bfloat16) for rows in (72, 64))
    emulation = gemm.emulate(a, b, bias=np.full(64, 3, np.float32), alpha=0.5, sms=2)
    assert (emulation.d == 35).all()


@pytest.mark.parametrize("dtype", ["e2m1", "e2m3", "e3m2"])
def test_packed_bytes_and_unpacked_elements_are_the_same_operand(dtype: str) -> None:
    kind, random = small_float(dtype), np.random.default_rng(3)
    codes = random.integers(0, 1 << kind.bits, (48, 128)).astype(np.uint8)
    packed = pack(codes, kind.bits)
    assert packed.shape == (48, packed_length(128, dtype))
    exact = kind.values(codes) @ kind.values(codes).T
    gemm = Gemm(48, 48, 128, dtype, dtype, "f32", "sm_100a")
    # ml_dtypes takes no notice of a byte's high bits, nor may the kernel's neighbouring element.
    dirty = codes | np.uint8(256 - (1 << kind.bits))
    for operand in (packed, codes.view(numpy_type(dtype)), dirty.view(numpy_type(dtype))):
        np.testing.assert_array_equal(gemm.emulate(operand, operand, sms=1).d, exact.astype(np.float32))


def test_packed_operands_that_do_not_fit_are_refused_in_words() -> None:
    gemm = Gemm(64, 32, 128, "e2m1", "e4m3", "f32", "sm_100a")
    b = np.zeros((32, 128), ml_dtypes.float8_e4m3fn)
    with pytest.raises(
        OperandError,
        match=r"a: shape \(64, 128\), dtype uint8; e2m1 is taken packed, uint8 \(M, bytes of K\) = \(64, 64\), or as numpy float4",
    ):
        gemm.emulate(np.zeros((64, 128), np.uint8), b)
    wide = np.zeros((64, 72), np.uint8)[:, :64]
    with pytest.raises(
        OperandError, match="a: the bytes from one row to the next, 72, must be a multiple of 32 for e2m1"
    ):
        gemm.emulate(wide, b)
    with pytest.raises(OperandError, match="b: dtype bf16, and this GEMM takes e4m3 or u8"):
        gemm.emulate(wide[:, :64].copy(), np.zeros((32, 128), ml_dtypes.bfloat16))


def test_bytes_may_be_given_for_8_bit_floats() -> None:
    gemm = Gemm(32, 32, 64, "e5m2", "e5m2", "f32", "sm_100a")
    a = np.random.default_rng(1).integers(-3, 4, (32, 64)).astype(ml_dtypes.float8_e5m2)
    np.testing.assert_array_equal(gemm.emulate(a.view(np.uint8), a, sms=1).d, gemm.emulate(a, a, sms=1).d)


CLUSTER = GemmConfig(arch="sm_100a").replace(cluster_m=2, stages=2)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"groups": 2}, "groups=2: groups have no Blackwell kernel yet; one launch each, or arch='sm_90a'"),
        ({"batch": 2, "a": "e2m1", "b": "e2m1"}, "form='batch': padded formats of several matrices have no kernel yet"),
        ({"batch": 2, "config": CLUSTER}, "form='batch': tiles of a cluster belong to one matrix; cluster_m=1"),
        ({"gated": True, "n": 63}, "n=63: with gated pairs, columns come in pairs: must be even; nearest 62, 64"),
        ({"promote": 128, "a": "e4m3", "b": "e4m3"}, "promote=128: sums are float32 in tensor memory"),
        ({"b": "e4m3"}, "b='e4m3': no kind of tcgen05.mma multiplies it with bf16; b may be bf16; exchange the operands"),
        ({"a": "s8", "b": "s8", "arch": "sm_103a"}, "a='s8': sm_103a has no kind::i8"),
        ({"a": "e2m1", "b": "e2m1", "k": 64}, "k=64: must be a multiple of 128: the copy engine takes rows of A"),
        ({"d": "f64"}, "d='f64': this type has no Blackwell kernel; there is bf16, f16, f32"),
        ({"relayout": "always"}, "relayout='always': must be 'refuse' or 'copy'"),
    ],
)  # fmt: skip
def test_what_has_no_kernel_is_refused_with_what_works(options: dict[str, object], refusal: str) -> None:
    with pytest.raises(ConfigError) as error:
        Gemm(**{"m": 64, "n": 64, "k": 128, "arch": "sm_100a", **options})  # type: ignore[arg-type]
    assert refusal in str(error.value), str(error.value)


def test_the_command_line_takes_every_format() -> None:
    run = CliRunner().invoke
    common = ["--arch", "sm_100a", "--on", "emulator"]
    for options, name in (
        (["72", "40", "64", "--dtype", "e4m3", "--b-dtype", "e5m2", "--d-dtype", "f32", "--bias", "n", "--with-c"], "e4m3xe5m2_f32"),
        (["72", "40", "107", "--dtype", "u8", "--values", "integers", "--with-alpha", "--d-dtype", "s8"], "u8_s8"),
        (["72", "40", "128", "--dtype", "e2m1", "--scales", "row", "--activation", "relu"], "e2m1_bf16"),
        (["72", "40", "64", "--dtype", "s8", "--b-dtype", "f16"], "s8xf16_f16"),
        (["40", "64", "64", "--dtype", "tf32", "--set", "stationary=1", "--set", "pair=0", "--set", "tile_m=32", "--set", "tile_n=64"], "tf32_f32_ws32x64"),
    ):  # fmt: skip
        result = run(app, ["gemm", *options, *common, "--json"])
        assert result.exit_code == 0, result.output
        report = json.loads(
            result.output.splitlines()[-1]
            if result.output.count("\n") < 3
            else result.output[result.output.index("{") :]
        )
        assert report["name"].startswith(f"sm_100a_{name}")
        assert report["races"] == []
        assert report["relative_error"] < 0.01
    assert "kind::f8f6f4" in run(app, ["emit", "64", "64", "128", "--arch", "sm_103a", "--dtype", "e3m2"]).output
    explained = run(
        app, ["explain", "64", "64", "64", "--arch", "sm_100a", "--dtype", "e4m3", "--b-dtype", "bf16"]
    ).output
    assert "A in tensor memory, through registers" in explained
    refused = run(app, ["gemm", "64", "64", "64", "--dtype", "bf16", "--b-dtype", "e4m3", *common])
    assert refused.exit_code == 2
    assert "exchange the operands" in refused.output


def test_the_copy_that_is_named_has_the_kernel_s_major() -> None:
    shape = (64, 64, 64, "e4m3", "e4m3", "f32", "sm_100a", "mn", "k")
    gemm = Gemm(*shape, Gemm(*shape).config)
    a = np.ones((64, 64), ml_dtypes.float8_e4m3fn)
    with pytest.raises(
        OperandError, match=r"is K-major, and this kernel reads it MN-major.*np.ascontiguousarray\(a.T\).T once"
    ):
        gemm.emulate(a, a, sms=1)
    assert (gemm.emulate(np.ascontiguousarray(a.T).T, a, sms=1).d == 64).all()


def test_a_major_that_no_kernel_reads_is_copied_on_request() -> None:
    random = np.random.default_rng(2)
    a = random.integers(-3, 4, (2 * 48, 64)).astype(ml_dtypes.float8_e4m3fn)[::2, ::2].T
    b = random.integers(-3, 4, (40, 48)).astype(ml_dtypes.float8_e4m3fn)
    gemm = Gemm(32, 40, 48, "e4m3", "e4m3", "f32", "sm_100a")
    with pytest.raises(OperandError, match=r'has neither dimension of \(M, K\) contiguous.*relayout="copy"'):
        gemm.emulate(a, b)
    copying = Gemm(32, 40, 48, "e4m3", "e4m3", "f32", "sm_100a", relayout="copy")
    exact = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(copying.emulate(a, b, sms=1).d, exact)
