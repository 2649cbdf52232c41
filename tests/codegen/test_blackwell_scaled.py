"""Block-scaled products of the Blackwell kernels, on the emulator in strict mode: mxfp8, mxfp4, nvfp4 and mixtures, bit for bit where sums are exact.

The nightly command runs every format on every shape in every tile, under several orders of completion, and assembles every source:
python -m pytest -m slow tests/codegen/test_blackwell_scaled.py
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from stridewright import Gemm, gemm
from stridewright.codegen.bind import OperandError
from stridewright.codegen.blackwell_scaled import BlackwellScaledGemm
from stridewright.codegen.blackwell_select import select, with_most_stages
from stridewright.codegen.blackwell_source import generate
from stridewright.codegen.blackwell_where import describe
from stridewright.codegen.build import Build, build
from stridewright.codegen.cli import app
from stridewright.codegen.emulator import EmulationError
from stridewright.codegen.emulator.errors import DeadlockError
from stridewright.codegen.launch import LaunchError
from stridewright.codegen.quantise import BlockScaled, quantise
from stridewright.codegen.tensors import empty, of_numpy
from stridewright.kernels.blackwell import derive
from stridewright.kernels.config import ConfigError, GemmConfig, Problem

from .scaled_cases import (
    FORMATS,
    MIXED,
    SHAPES,
    TILES,
    assert_exact,
    assert_near,
    config_of,
    exact_operand,
    gemm_of,
    normal,
    turn_of,
)


@pytest.mark.parametrize("format", FORMATS)
def test_every_shape_is_right_to_the_bit(format: str) -> None:
    """Thirteen shapes, five kernels in turn."""
    kernels = [config_of(format, format, *TILES[i], **turn_of(i)) for i in (1, 7, 2, 4, 3)]
    for number, shape in enumerate(SHAPES):
        assert_exact(kernels[number % 5], shape, number)


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{'pair' if tile[0] else 'one'}-{tile[1]}x{tile[2]}")
def test_every_tile_is_right(tile: tuple[bool, int, int]) -> None:
    """Two of the three formats for each; the nightly command takes all."""
    for seed in range(2):
        format = FORMATS[(TILES.index(tile) + seed) % 3]
        config = config_of(format, format, *tile, **turn_of(seed + tile[2] // 64))
        assert_exact(config, (tile[1] + 40, tile[2] + 24, 416), seed)


@pytest.mark.parametrize(("a", "b"), MIXED)
def test_mixtures_are_right(a: str, b: str) -> None:
    for seed, (tile, k) in enumerate(((TILES[1], 384), (TILES[6], 640))):
        assert_exact(config_of(a, b, *tile, **turn_of(seed)), (300, 200, k), seed)


@pytest.mark.parametrize("format", FORMATS)
def test_every_number_of_k_tiles_goes_round_the_ring(format: str) -> None:
    """Factors' columns are overwritten when their slot is filled again: several tiles for each CTA, in several orders."""
    for k_tiles in range(1, 6):
        config = config_of(format, format, False, 128, 64, stages=2, accumulators=2)
        assert_exact(config, (3 * 128, 192, config.tile.k * k_tiles), k_tiles, sms=2)


@pytest.mark.parametrize(("pair", "m", "n"), [(False, 128, 128), (True, 256, 256)])
@pytest.mark.parametrize("format", FORMATS)
def test_normal_numbers_are_right_within_their_rounding(format: str, pair: bool, m: int, n: int) -> None:
    rule = "up" if format == "mxfp8" else None
    options = {"tensor_scale": "amax"} if format == "nvfp4" else {}
    gemm = gemm_of(config_of(format, format, pair, m, n, "f32"), (300, 200, 544))
    a, b = (normal(rows, 544, format, rows, rule=rule, **options) for rows in (300, 200))
    assert (a.tensor_scale != 1.0) == (format == "nvfp4")
    assert_near(gemm, a, b)
    if not pair:
        assert_near(gemm, a, b, numerics="hardware")


@pytest.mark.parametrize(
    ("format", "d", "store"),
    [("nvfp4", "f32", "tma"), ("mxfp8", "f16", "direct"), ("mxfp4", "bf16", "tma"), ("nvfp4", "e4m3", "tma")],
)
def test_terms_go_with_factors(format: str, d: str, store: str) -> None:
    """alpha, C, bias and an activation, in every format of D."""
    random = np.random.default_rng(5)
    m, n, k = 200, 144, 352
    a, b = (normal(rows, k, format, rows, tensor_scale=0.5 if format == "nvfp4" else None) for rows in (m, n))
    config = config_of(format, format, *TILES[2 + FORMATS.index(format)], d, store=store)
    made = Gemm(m, n, k, format, format, d, "sm_100a", config=config, activation="relu")
    c, bias = random.standard_normal((m, n)).astype(np.float32), random.standard_normal(n).astype(np.float32)
    assert_near(made, a, b, alpha=0.25, c=c, beta=-1.5, bias=bias)


def test_the_parts_of_a_quantised_matrix_are_the_same_operand() -> None:
    m, n, k = 130, 72, 224
    for format in FORMATS:
        a, b = (normal(rows, k, format, rows, tensor_scale="amax" if format == "nvfp4" else None) for rows in (m, n))
        gemm = Gemm(m, n, k, format, format, "f32", "sm_100a")
        whole = gemm.emulate(a, b)
        alpha = a.tensor_scale * b.tensor_scale
        for scale_a, scale_b in ((a.scales, b.scales), (a.scales.view(np.uint8).reshape(-1), b.scales.view(np.uint8))):
            parts = gemm.emulate(a.data, b.data, scale_a=scale_a, scale_b=scale_b, alpha=alpha)
            assert np.array_equal(whole.d, parts.d)
        # A factor in memory goes with the tensors' own.
        half = gemm.emulate(a, b, alpha=np.array([0.5], np.float32))
        assert np.allclose(half.d, 0.5 * whole.d, rtol=1e-6, atol=0)


def test_elements_may_come_unpacked_and_in_rows_further_apart() -> None:
    m, n, k = 100, 64, 96
    a, b = exact_operand(m, k, "mxfp4", 1), exact_operand(n, k, "mxfp4", 2)
    gemm = gemm_of(config_of("mxfp4", "mxfp4", *TILES[0]), (m, n, k))
    product = gemm.emulate(a, b).d
    wide = np.zeros((m, 80), np.uint8)
    wide[:, :48] = a.data
    unpacked = b.codes.view(ml_dtypes.float4_e2m1fn)
    parts = gemm.emulate(wide[:, :48], unpacked, scale_a=a.scales, scale_b=b.scales)
    assert np.array_equal(product, parts.d)


def test_eight_bit_elements_may_be_mn_major() -> None:
    m, n, k = 200, 144, 160
    a, b = exact_operand(m, k, "mxfp8", 1), exact_operand(n, k, "mxfp8_e5m2", 2)
    exact = a.values() @ b.values().T
    for a_major, b_major, tile in (("mn", "k", TILES[1]), ("k", "mn", TILES[5]), ("mn", "mn", TILES[7])):
        problem = Problem(a="mxfp8", b="mxfp8_e5m2", d="f32", a_major=a_major, b_major=b_major)  # type: ignore[arg-type]
        gemm = gemm_of(config_of("mxfp8", "mxfp8_e5m2", *tile).replace(problem=problem), (m, n, k))
        left, right = (
            np.asfortranarray(x) if major == "mn" else x for x, major in ((a.data, a_major), (b.data, b_major))
        )
        result = gemm.emulate(left, right, scale_a=a.scales, scale_b=b.scales)
        assert np.array_equal(result.d, exact.astype(np.float32))
        assert result.races == ()


def test_a_block_of_nan_makes_its_row_nan_and_no_other() -> None:
    """What quantise does with a NaN comes out where it belongs."""
    for format in FORMATS:
        x = np.random.default_rng(3).standard_normal((130, 128))
        x[17, 70] = np.nan
        w = np.random.default_rng(4).standard_normal((64, 128))
        d = gemm_of(config_of(format, format, *TILES[0], "f32"), (130, 64, 128)).emulate(quantise(x, format), quantise(w, format)).d  # fmt: skip
        assert np.isnan(d[17]).all()
        assert np.isfinite(np.delete(d, 17, axis=0)).all()


def test_padding_rows_of_factors_do_not_matter_and_padding_along_k_may_be_any_number() -> None:
    """Rows beyond M may even be NaN; along K what the factors pad meets zeros."""
    m, n, k = 130, 72, 96
    for format in FORMATS:
        a, b = exact_operand(m, k, format, 1), exact_operand(n, k, format, 2)
        gemm = gemm_of(config_of(format, format, *TILES[1], "f32"), (m, n, k))
        plain = gemm.emulate(a, b).d
        tensors = gemm.scale_tensors
        placed = [one.place(x.factors, padding=0x38) for one, x in zip(tensors, (a, b), strict=True)]
        rows = placed[0].reshape(2, -1, 32, 4, 4)
        rows[1, :, 2:] = 0xFF if format != "nvfp4" else 0x7F  # rows 130 and up of the second block of 128
        rows[1, :, :, 1:] = 0xFF if format != "nvfp4" else 0x7F
        again = gemm.emulate(a.data, b.data, scale_a=placed[0], scale_b=placed[1])
        assert np.array_equal(plain, again.d)
        # What is NaN in a row that counts would come out: 0 times NaN.
        placed[1][0, -1, 5, 0, 3] = 0xFF if format != "nvfp4" else 0x7F
        with pytest.raises(OperandError, match=r"scale_b: the padding of row 5, factor \d+, holds NaN"):
            gemm.emulate(a.data, b.data, scale_a=placed[0], scale_b=placed[1])


@pytest.mark.parametrize(("m", "n"), [(2, 1), (1, 2), (2, 2)])
def test_tiles_of_a_cluster_load_their_own_factors(m: int, n: int) -> None:
    for seed, (format, tile) in enumerate(((FORMATS[m], TILES[0]), (FORMATS[n], TILES[4]))):
        config = config_of(format, format, *tile, cluster_m=m, cluster_n=n, launch=("static", "clc")[seed])
        assert_exact(config, (tile[1] * m + 48, tile[2] * n + 72, 416), seed, sms=8)


@pytest.mark.parametrize("shape", [(1, 8, 32), (500, 512, 1024), (16, 1024, 512)])
def test_the_chosen_kernel_is_right(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for format in FORMATS:
        a, b = exact_operand(m, k, format, 1), exact_operand(n, k, format, 2)
        gemm = Gemm(m, n, k, format, format, "f32", "sm_100a")
        assert isinstance(gemm, BlackwellScaledGemm)
        result = gemm.emulate(a, b)
        assert np.array_equal(result.d, (a.values() @ b.values().T).astype(np.float32))
        assert result.races == ()


def test_the_choice_has_a_long_ring_and_the_rows_of_one_instruction() -> None:
    """Factors share tensor memory with accumulators: one wide accumulator rather than two with two slots."""
    for format in FORMATS:
        large = select(Problem(m=8192, n=8192, k=8192, a=format, b=format))
        assert (large.cluster.pair, large.tile.m, large.tile.n) == (True, 256, 256)
        assert large.pipeline.stages >= 4
        small = select(Problem(m=16, n=4096, k=4096, a=format, b=format))
        assert (small.cluster.pair, small.tile.m) == (False, 128)


def test_exact_sums_are_the_same_in_the_published_bits() -> None:
    """With the emulator's model of the tensor core in place of float32 sums."""
    for format in FORMATS:
        assert_exact(config_of(format, format, *TILES[1], "f32"), (130, 72, 288), numerics="hardware")


# -- planted faults ---------------------------------------------------------------------------------------------------------------


class Changed(BlackwellScaledGemm):
    """A kernel with a fault in its source."""

    old = new = ""

    @property
    def build(self) -> Build:  # type: ignore[override]
        assert self.source.count(self.old) >= 1
        return build(self.source.replace(self.old, self.new), arch=self.config.arch)


FAULTS = {
    "no fence before the copies": ("        tmem_fence_after_sync();\n        const uint64 from_a", "        const uint64 from_a", "races"),
    "one set of columns for all slots": ("scale_columns(slot) +", "0 +", "races"),
    "an atom is not copied": ("atom < SCALE_B_ATOMS", "atom < SCALE_B_ATOMS - 1", "never written"),
    "copies after the multiplies": ("scales.copy(at.slot, tmem);", "if (at.slot == 99) scales.copy(at.slot, tmem);", "never written"),
    "bytes not expected": ("ScaleFactors::SLOT_BYTES));", "ScaleFactors::SLOT_BYTES - 512));", "stops|wrong|races"),
    "bytes never come": ("ScaleFactors::SLOT_BYTES));", "ScaleFactors::SLOT_BYTES + 512));", "stops"),
    "a tile that begins inside an atom": ("+ scale_b_step(step) + within", "+ scale_b_step(step)", "wrong"),
    "one id for all steps": ("INSTRUCTION_DESCRIPTOR + scale_ids(step)", "INSTRUCTION_DESCRIPTOR", "wrong"),
    "the peer takes the leader's rows": ("+ cta_of_tile() * A_ROWS) / SCALE_ATOM_ROWS", ") / SCALE_ATOM_ROWS", "wrong"),
    "K is not followed": ("const uint32 along = k_first / SCALE_ATOM_K;", "const uint32 along = 0;", "wrong"),
    "factors of A for B": ("maps.b, barrier, along, tile.column", "maps.a, barrier, along, tile.column", "stops|wrong"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    old, new, how = FAULTS[fault]
    kind = type("Planted", (Changed,), {"old": old, "new": new})
    config = config_of("mxfp4", "mxfp4", True, 256, 192, stages=2).replace(tile_k=256)
    m, n, k = 300, 400, 1536
    a, b = exact_operand(m, k, "mxfp4", 1), exact_operand(n, k, "mxfp4", 2)
    exact = (a.values() @ b.values().T).astype(np.float32).astype(ml_dtypes.bfloat16)
    found = set()
    for seed in range(2):
        try:
            result = kind(m, n, k, "mxfp4", "mxfp4", "bf16", "sm_100a", config=config).emulate(a, b, seed=seed, sms=2)
            found |= {"races"} if result.races else set()
            found |= set() if np.array_equal(result.d, exact) else {"wrong"}
        except DeadlockError:
            found.add("stops")
        except EmulationError as error:
            found.add("never written" if "never written" in str(error) else "stops")
    assert found & set(how.split("|")), found


# -- refusals ---------------------------------------------------------------------------------------------------------------------


def refusal(**changes: Any) -> str:
    m, n, k = 200, 64, 512
    a, b = exact_operand(m, k, "mxfp8", 1), exact_operand(n, k, "mxfp8", 2)
    given: dict[str, Any] = {"a": a.data, "b": b.data, "scale_a": a.scales, "scale_b": b.scales} | changes
    with pytest.raises(OperandError) as caught:
        Gemm(m, n, k, "mxfp8", "mxfp8", "bf16", "sm_100a").emulate(given.pop("a"), given.pop("b"), **given)
    return str(caught.value)


DRAWN = "row 0 |   row 32 |   row 64 |   row 96"


def test_factors_of_the_wrong_shape_type_or_start_are_refused_with_the_layout_drawn() -> None:
    right = exact_operand(200, 512, "mxfp8", 1)
    text = refusal(scale_a=right.factors)
    assert "scale_a.shape=(200, 16): must be (2, 4, 32, 4, 4); these are the factors as (rows, K / vector)" in text
    assert DRAWN in text
    assert "(((32,4),2),((32,4),4)):(((16,4),2048),((0,1),512))" in text
    text = refusal(scale_b=np.ones((1, 4, 32, 4, 4), np.float32))
    assert "scale_b.dtype=float32: must be uint8 or float8_e8m0fnu" in text
    assert DRAWN in text
    text = refusal(scale_a=right.scales.view(ml_dtypes.float8_e4m3fn))
    assert "scale_a.dtype=float8_e4m3fn" in text
    moved = np.zeros(4096 + 32, np.uint8)
    start = -moved.ctypes.data % 16 + 8
    moved = moved[start : start + 4096]
    moved[:] = right.scales.view(np.uint8).reshape(-1)
    text = refusal(scale_a=moved)
    assert "must be a multiple of 16 bytes (TMA)" in text
    assert DRAWN in text
    holes = np.zeros((2, 4, 32, 4, 8), np.uint8)[..., ::2]
    text = refusal(scale_a=holes)
    assert "must be dense" in text
    assert DRAWN in text


def test_missing_or_doubled_factors_are_refused() -> None:
    assert "scale_b: must be given" in refusal(scale_b=None)
    assert "scale_a: 2.0 is no array" in refusal(scale_a=2.0)
    assert "scale_a: a list is no array" in refusal(scale_a=[[0] * 4] * 512)
    a = exact_operand(200, 512, "mxfp8", 1)
    assert "which has its factors" in refusal(a=a)
    assert "quantised to mxfp4, and this GEMM takes mxfp8" in refusal(a=exact_operand(200, 512, "mxfp4", 1), scale_a=None)  # fmt: skip
    assert "a: shape (512, 200)" in refusal(a=a.data.T)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mxfp8", "e4m3"), "b='e4m3': no kind of tcgen05.mma multiplies it with mxfp8; b may be mxfp8"),
        (("bf16", "nvfp4"), "a='bf16': no kind of tcgen05.mma multiplies it with nvfp4; a='nvfp4'"),
        (("nvfp4", "mxfp4"), "b='nvfp4'"),
        (("nvfp5", "nvfp5"), "no Blackwell kernel"),
        (("nvfp4", "nvfp5"), "b='nvfp5': this type has no Blackwell kernel; there is bf16"),
        (("nvfp4", "nvfp4", "nvfp4"), "d='nvfp4': this type has no Blackwell kernel; there is bf16"),
    ],
)
def test_formats_that_no_kind_multiplies_are_refused(arguments: tuple[str, ...], message: str) -> None:
    a, b, d = (*arguments, "bf16")[:3]
    with pytest.raises(ConfigError, match=message):
        Gemm(128, 128, 256, a, b, d, "sm_100a")


@pytest.mark.parametrize(
    ("k", "formats", "message"),
    [
        (144, "mxfp8", "must be a multiple of 32: 32 elements share a factor; nearest 128, 160"),
        (48, "nvfp4", "must be a multiple of 32: 16 elements share a factor, and TMA wants rows"),
        (0, "mxfp4", "at least one vector"),
        (np.int64(0), "mxfp4", "k=0: must be at least one vector.*formats without factors compute it"),
    ],
)
def test_a_k_that_vectors_do_not_divide_is_refused(k: int, formats: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Gemm(128, 128, k, formats, formats, "bf16", "sm_100a")


def test_an_empty_result_needs_no_factors() -> None:
    a, b = np.zeros((0, 64), np.uint8), np.zeros((32, 64), np.uint8)
    assert Gemm(0, 32, 128, "mxfp4", "mxfp4", "f32", "sm_100a").emulate(a, b).d.shape == (0, 32)


@pytest.mark.parametrize("options", [{"batch": 2}, {"groups": 2}])
def test_several_products_in_one_launch_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"one launch each|have no Blackwell kernel|groups") as error:
        Gemm(128, 128, 256, "nvfp4", "nvfp4", "bf16", "sm_100a", **options)
    assert len(error.value.violations) == 1


def test_tensor_scales_whose_product_is_no_float32_are_refused() -> None:
    gemm = Gemm(64, 32, 128, "nvfp4", "nvfp4", "f32", "sm_100a")
    x, w = (np.random.default_rng(seed).standard_normal((rows, 128)) for seed, rows in ((1, 64), (2, 32)))
    for scale in (1e-22, 1e25):
        a, b = quantise(x * scale, "nvfp4", tensor_scale="amax"), quantise(w * scale, "nvfp4", tensor_scale="amax")
        with pytest.raises(OperandError, match=r"tensor scales and alpha are .* together, which float32 does not hold"):
            gemm.emulate(a, b)
        # An alpha that brings it back is all that is missing.
        d = gemm.emulate(a, b, alpha=1 / scale**2, sms=1).d
        np.testing.assert_allclose(d, a.values() @ b.values().T / scale**2, rtol=1e-4, atol=1e-4)
    assert not gemm.emulate(a, b, alpha=0.0, sms=1).d.any()


def test_packed_rows_in_pieces_are_refused_with_what_helps() -> None:
    a, b = exact_operand(64, 128, "nvfp4", 1), exact_operand(32, 128, "nvfp4", 2)
    gemm = Gemm(64, 32, 128, "nvfp4", "nvfp4", "f32", "sm_100a", relayout="copy")
    with pytest.raises(
        OperandError, match=r"a: the bytes of a row of e2m1 must be neighbours.*np.ascontiguousarray\(a\)"
    ) as error:
        gemm.emulate(np.asfortranarray(a.data), b, scale_a=a.scales)
    assert "relayout" not in str(error.value)
    assert gemm.emulate(np.ascontiguousarray(np.asfortranarray(a.data)), b, scale_a=a.scales, sms=1).d.shape == (64, 32)


def test_a_load_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ValueError, match="load='always': must be one of bursts, sustained"):
        Gemm(64, 32, 128, "nvfp4", "nvfp4", "f32", "sm_100a", load="always")


def test_hopper_has_no_block_scaling() -> None:
    with pytest.raises(ConfigError, match=r"a='mxfp8': this type has no kernel.*arch='sm_100a'"):
        Gemm(128, 128, 128, "mxfp8", "mxfp8", "bf16")


# -- by other ways ----------------------------------------------------------------------------------------------------------------


def test_the_function_takes_quantised_matrices_and_bytes() -> None:
    a, b = exact_operand(64, 128, "nvfp4", 1), exact_operand(32, 128, "nvfp4", 2)
    with pytest.raises(LaunchError, match="no GPU to run sm_100a on"):
        gemm(a, b, arch="sm_100a")
    said = {"a_format": "nvfp4", "b_format": "nvfp4"}
    with pytest.raises(LaunchError, match="no GPU to run sm_100a on"):
        gemm(a.data, b.data, arch="sm_100a", scale_a=a.scales, scale_b=b.scales, alpha=0.5, **said)
    with pytest.raises(OperandError, match=r"they must be \(M, K\) and \(N, K\)"):
        gemm(a, exact_operand(32, 64, "nvfp4", 2), arch="sm_100a")


def test_the_launch_has_the_emulator_s_maps() -> None:
    """The tensor maps of the factors stand third and fourth, whoever launches."""
    m, n, k = 200, 72, 416
    a, b = exact_operand(m, k, "mxfp4", 1), exact_operand(n, k, "mxfp4", 2)
    made = gemm_of(config_of("mxfp4", "mxfp4", *TILES[1]), (m, n, k))
    given = made.collect(of_numpy, a, b, None, {})
    assert given.scale_a is not None
    emulated = made.emulated_arguments(given, given.a, given.b, empty((m, n), "bf16", given.a.tensor))
    maps = made.derivation.scale_maps(m, n, k)
    assert [one.map for one in emulated[2:4]] == list(maps)
    on_device = made.arguments_beside(given, lambda tensor_map, tensor: (tensor_map, tensor.address))
    assert on_device == [(maps[0], given.scale_a.address), (maps[1], given.scale_b.address)]


@pytest.mark.parametrize(
    "options",
    [
        ["--dtype", "nvfp4"],
        ["--dtype", "mxfp8", "--values", "integers", "--d-dtype", "f32"],
        ["--dtype", "mxfp4", "--with-alpha", "--with-c", "--bias", "n", "--activation", "relu"],
        ["--dtype", "mxfp8", "--b-dtype", "mxfp6_e3m2"],
    ],
)
def test_the_command_line_runs_block_scaled_products(options: list[str]) -> None:
    result = CliRunner().invoke(
        app, ["gemm", "136", "72", "384", "--arch", "sm_100a", "--on", "emulator", "--json", *options]
    )
    report = json.loads(result.stdout)
    assert result.exit_code == 0, report
    assert report["checked"] is True
    assert report["races"] == 0 or report["races"] == []
    assert report["relative_error"] < 0.004


def test_the_command_line_refuses_in_words() -> None:
    words = ["gemm", "136", "72", "384", "--arch", "sm_100a", "--on", "emulator", "--dtype", "mxfp8"]
    result = CliRunner().invoke(app, [*words, "--scales", "row"])
    assert result.exit_code == 2
    assert "--scales: is not served with block-scaled formats" in result.output
    for option in (["--amax"], ["--aux"], ["--expression", "x + 1"], ["--gated"]):
        result = CliRunner().invoke(app, [*words, *option])
        assert result.exit_code == 2
        assert f"{option[0]}: is not checked by this command" in result.output


def test_what_the_command_line_does_not_check_the_class_serves() -> None:
    m, n, k = 136, 72, 96
    a, b = exact_operand(m, k, "nvfp4", 1), exact_operand(n, k, "nvfp4", 2)
    exact = a.values() @ b.values().T
    aux, most = np.zeros((m, n), np.float32), np.zeros(1, np.float32)
    gemm = Gemm(m, n, k, "nvfp4", "nvfp4", "f32", "sm_100a", activation="relu")
    assert np.array_equal(gemm.emulate(a, b, aux=aux, amax=most, sms=2).d, np.maximum(exact, 0))
    assert np.array_equal(aux, exact)
    assert most[0] == np.maximum(exact, 0).max()
    gemm = Gemm(m, n, k, "nvfp4", "nvfp4", "f32", "sm_100a", gated=True)
    assert np.array_equal(gemm.emulate(a, b, sms=2).d, (exact[:, ::2] * exact[:, 1::2]).astype(np.float32))
    gemm = Gemm(m, n, k, "nvfp4", "nvfp4", "f32", "sm_100a", expression="2.0f * x + row")
    assert np.array_equal(gemm.emulate(a, b, sms=2).d, 2 * exact + np.arange(m)[:, None])


def test_the_command_line_refuses_a_k_that_no_vector_divides() -> None:
    result = CliRunner().invoke(app, ["gemm", "136", "72", "100", "--arch", "sm_100a", "--dtype", "mxfp8"])
    assert result.exit_code == 2
    assert "must be a multiple of 32" in result.output


def test_the_explanation_names_the_factors_maps() -> None:
    text = Gemm(300, 128, 512, "mxfp8", "mxfp8", "bf16", "sm_100a").explain()
    assert "factors of A: dims (256, 4, 3), strides (512, 2048) bytes" in text
    assert "Scale factors" in text


def test_addresses_in_reports_name_the_factor() -> None:
    derivation = derive(config_of("nvfp4", "nvfp4", True, 256, 256))
    scales = derivation.scales
    assert scales is not None
    for name, slot in (("A", scales.a), ("B", scales.b)):
        place = 1024 + derivation.offset(f"scales of {name}") + slot.bytes + int(slot.shared(70, 96))
        assert describe(derivation, place) == f"factor of {name}(70, 96) of slot 1"


# -- sources ----------------------------------------------------------------------------------------------------------------------


def assert_clean(config: GemmConfig) -> None:
    made = build(generate(config), arch=config.arch, use_cache=False)
    resources = made.kernel("stridewright_gemm")
    assert (resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes) == (0, 0, 0), config.name
    assert made.complaints == ()
    assert not [line for line in made.log.splitlines() if "warning" in line.lower()]


def every_source() -> list[GemmConfig]:
    """Every format, tile, architecture; all else in turn."""
    pairs = [*((one, one) for one in FORMATS), *MIXED]
    found = []
    for number, (arch, (a, b), tile) in enumerate(itertools.product(("sm_100a", "sm_103a"), pairs, TILES)):
        config = dataclasses.replace(config_of(a, b, *tile, d=("bf16", "f32", "f16")[number % 3]), arch=arch)
        config = with_most_stages(config.replace(**turn_of(number), accumulators=2 if tile[2] < 256 else 1), 4)
        assert config is not None
        found.append(config)
    return found


def test_a_sample_of_the_sources_is_assembled_without_a_warning() -> None:
    for config in every_source()[2::27]:
        assert_clean(config)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_source_is_assembled_without_a_warning(part: int) -> None:
    for config in every_source()[part::8]:
        assert_clean(config)


def test_the_source_names_the_layouts_of_its_factors() -> None:
    source = generate(config_of("nvfp4", "nvfp4", True, 256, 256))
    for text in (
        "((32,4),(16,4)):((16,4),(0,1))",
        "(((32,4),2),((16,4),4)):(((16,4),2048),((0,1),512))",
        "kind::mxf4nvf4.block_scale.block16",
        "tcgen05.cp.cta_group::2.32x128b.warpx4",
        "Emulated and assembled; never run on hardware.",
    ):
        assert text in source
    assert "block_scale" not in generate(GemmConfig(arch="sm_100a"))


# -- long runs --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{'pair' if tile[0] else 'one'}-{tile[1]}x{tile[2]}")
@pytest.mark.parametrize("format", FORMATS)
def test_every_shape_is_right_in_every_tile(format: str, tile: tuple[bool, int, int]) -> None:
    for number, shape in enumerate(SHAPES):
        assert_exact(config_of(format, format, *tile, **turn_of(number)), shape, number + 20)


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b"), MIXED)
def test_every_mixture_is_right_in_every_tile(a: str, b: str) -> None:
    for number, tile in enumerate(TILES):
        for k in (128, 384, 1024):
            assert_exact(config_of(a, b, *tile, **turn_of(number)), (tile[1] + 72, tile[2] + 40, k), number)


@pytest.mark.slow
@pytest.mark.parametrize("tile", [TILES[0], TILES[2], TILES[6], TILES[7]], ids=lambda tile: f"{tile[1]}x{tile[2]}")
@pytest.mark.parametrize("format", FORMATS)
def test_every_form_is_right_in_any_order_of_completion(format: str, tile: tuple[bool, int, int]) -> None:
    for seed in range(10):
        config = config_of(format, format, *tile, accumulators=2 if tile[2] < 256 else 1, **turn_of(seed))
        fitting = with_most_stages(config, 2 + seed % 2)
        assert fitting is not None
        assert_exact(fitting, (2 * tile[1] + 60, 2 * tile[2] + 24, 1056), seed)


def test_a_quantised_matrix_knows_its_shape() -> None:
    a = exact_operand(130, 96, "nvfp4", 1)
    assert isinstance(a, BlockScaled)
    assert a.shape == (130, 96)
