"""What users of other GEMMs reported: each report (tests/data/gemm_field_reports.json) is a test here or elsewhere, or has a reason.

Sizes are the reports' where an emulator gets through them; where not, the same edge at a smaller size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.bind import OperandError
from stridewright.codegen.build import build
from stridewright.codegen.general_call import multiply
from stridewright.codegen.reference import spread
from stridewright.codegen.source import generate
from stridewright.kernels.config import ConfigError, GemmConfig, Problem

TESTS = Path(__file__).parents[1]
REPORTS = {
    report["id"]: report
    for report in json.loads((TESTS / "data" / "gemm_field_reports.json").read_text(encoding="utf-8"))
}

ELSEWHERE = {
    "c03": "codegen/emulator/test_mbarrier.py::test_parities_of_a_ring_and_of_a_single_slot",
    "c04": "codegen/emulator/test_mbarrier.py::test_the_opposite_parity_passes_at_once_on_a_fresh_barrier",
    "c06": "kernels/test_config.py::test_the_register_split_fits_the_pool_that_the_launch_leaves",
    "c07": "codegen/test_build.py::test_every_code_of_the_rule_is_matched",
    "c15": "codegen/test_gemm_faults.py::test_a_missing_proxy_fence_before_the_tma_store_is_found",
    "c19": "codegen/emulator/test_mbarrier.py::test_misuse_is_an_error",
    "c21": "codegen/test_gemm_faults.py::test_a_ring_position_that_restarts_at_each_tile_is_found",
    "c22": "codegen/test_gemm_faults.py::test_releasing_a_slot_while_it_is_still_read_is_found",
    "c24": "codegen/test_nvrtc.py::test_instruction_of_another_architecture_is_a_compile_error",
    "c25": "layout/hardware/test_tensor_memory_plan.py::test_no_two_regions_share_a_cell",
    "c27": "layout/hardware/test_tensor_memory.py::test_accumulators_follow_the_data_paths",
    "d01": "codegen/test_nvrtc.py::test_architecture_among_the_options_is_refused",
    "d03": "codegen/test_launch.py::test_encoded_tensor_map_goes_by_value",
    "d06": "codegen/test_launch.py::test_impossible_launches_are_refused",
    "d07": "codegen/test_launch_gpu.py::test_clusters_up_to_sixteen_blocks_launch",
    "d09": "codegen/test_source.py::test_the_source_is_self_contained",
    "d10": "codegen/test_source.py::test_the_source_is_self_contained",
    "d12": "codegen/test_launch.py::test_too_much_shared_memory_is_refused_with_the_limit",
    "d13": "codegen/test_launch_gpu.py::test_dynamic_shared_memory_of_every_size_is_usable_beside_static",
    "d15": "codegen/test_launch_gpu.py::test_torch_bf16_goes_in_and_comes_out_without_a_copy",
    "d19": "codegen/test_launch.py::test_arguments_without_a_width_are_refused_with_advice",
    "d21": "codegen/test_driver.py::test_encoded_map_is_one_scalar_of_128_bytes",
    "d22": "codegen/test_source.py::test_the_source_is_self_contained",
}
REASONS = {
    "c18": "a pair's CTAs each expect their own bytes at one barrier; the Blackwell mutation tests plant other counts",
    "c30": "about a sanitizer's false alarm, not about a result; this emulator orders wgmma's reads by its own rules",
    "e14": "the same as e13",
    "e23": "the shapes with N = 512 are tested here; the others take 60 million products each and are the chip's to run",
    "e26": "256 MiB of weights are the chip's to read; a split kernel of the same form is tested here",
}


def test_every_report_is_a_test_or_has_a_reason() -> None:
    here = {name.split("_")[1] for name in globals() if name.startswith("test_") and name.split("_")[1] in REPORTS}
    assert here | set(ELSEWHERE) | set(REASONS) == set(REPORTS)
    for place in ELSEWHERE.values():
        file, name = place.split("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), place


def whole(random: np.random.Generator, *shape: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
    """Small whole numbers: their sums are exact."""
    return random.integers(-2, 3, shape).astype(dtype)


def wide(array: Any) -> Any:
    return array.astype(np.float64)


def product(a: Any, b: Any) -> Any:
    return wide(a) @ wide(b).T


def exact(gemm: Gemm, a: Any, b: Any, expected: Any, **others: Any) -> None:
    """The kernel gives the expected whole numbers, rounded once, without a race."""
    run = gemm.emulate(a, b, sms=4, **others)
    assert run.races == ()
    np.testing.assert_array_equal(wide(run.d), wide(expected.astype(run.d.dtype)))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(10)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_c01_a_pipeline_of_one_iteration_finishes(stages: int, random: np.random.Generator) -> None:
    a, b = whole(random, 128, 64), whole(random, 128, 64)
    exact(Gemm(128, 128, 64, config=GemmConfig().replace(tile_n=128, stages=stages)), a, b, product(a, b))


def test_c01_one_stage_is_refused() -> None:
    assert "stages=1: must be from 2" in GemmConfig().replace(stages=1).problems()[0]


@pytest.mark.parametrize("tile_n", [24, 40, 72])
def test_c09_tiles_of_8_mod_16_columns_are_right(tile_n: int, random: np.random.Generator) -> None:
    a, b = whole(random, 70, 64), whole(random, 150, 64)
    config = GemmConfig().replace(tile_m=64, tile_n=tile_n, consumers=1, store="direct")
    exact(Gemm(70, 150, 64, config=config), a, b, product(a, b))


def test_c10_widths_of_s8_are_those_that_the_instruction_has() -> None:
    base = GemmConfig(problem=Problem(a="s8", b="s8", d="s32")).replace(tile_k=128, store="direct", stages=2)
    assert [n for n in (24, 32, 40, 48, 56, 64, 72) if base.replace(tile_n=n).problems()] == [40, 56, 72]
    assert "multiple of 16" in base.replace(tile_n=40).problems()[0]


def test_c12_a_tail_of_k_is_not_dropped(random: np.random.Generator) -> None:
    a, b = whole(random, 64, 24, dtype=np.float16), whole(random, 64, 24, dtype=np.float16)
    exact(Gemm(64, 64, 24, "f16", "f16", "f16"), a, b, product(a, b))


def test_c13_all_104_columns_are_written(random: np.random.Generator) -> None:
    a, b = whole(random, 16, 64), whole(random, 104, 64)
    exact(Gemm(16, 104, 64), a, b, product(a, b))


def test_c16_what_is_written_to_a_slot_is_fenced_before_the_tensor_core_reads_it(random: np.random.Generator) -> None:
    # Only groups of K write to slots: zeros where the next group's elements lie.
    source = generate(GemmConfig(problem=Problem(a_major="mn", b_major="mn", form="groups_k")).replace(tile_n=128))
    body = source[source.index("DEVICE void multiply_tile(") :]
    assert body.index("clear_from(") < body.index("fence_async_proxy();") < body.index("wgmma_fence();")
    a, b = whole(random, 40, 100), whole(random, 24, 100)
    offsets = np.array([0, 33, 33, 100], np.int32)
    parts = [product(a[:, low:high], b[:, low:high]) for low, high in ((0, 33), (33, 33), (33, 100))]
    gemm = Gemm(40, 24, 100, d="f32", a_major="mn", b_major="mn", groups=3, group_by="k")
    exact(gemm, np.asfortranarray(a), np.asfortranarray(b), np.stack(parts), offsets=offsets)


def test_c28_a_tile_of_64_rows_is_supported_on_blackwell() -> None:
    assert GemmConfig(arch="sm_100a").replace(tile_m=64, tile_n=128).problems() == []


def test_d04_the_struct_of_terms_lies_on_the_host_as_on_the_device() -> None:
    from stridewright.codegen.emulator import emulate_ptx
    from stridewright.codegen.terms import TERMS

    fields = TERMS.fields
    assert fields is not None
    start = "static_cast<const Terms *>(nullptr)"
    stores = [f"out[{i}] = reinterpret_cast<uint64>(&{start}->{name});" for i, name in enumerate(fields)]
    stores.append(f"out[{len(fields)}] = sizeof(Terms);")
    source = generate(GemmConfig(problem=Problem(form="batch")).replace(tile_n=128))
    kernel = f'extern "C" __global__ void offsets_of(uint64 *out) {{ {" ".join(stores)} }}'
    found = np.zeros(len(stores), np.uint64)
    emulate_ptx(build(f"{source}\n{kernel}\n", arch="sm_90a").ptx, "offsets_of", 1, 1, [found])
    assert found.tolist() == [*(int(fields[name][1]) for name in fields), TERMS.itemsize]


def test_d16_bytes_are_8_bit_floats_where_the_gemm_says_so(random: np.random.Generator) -> None:
    a = whole(random, 40, 64, dtype=ml_dtypes.float8_e4m3fn)
    b = whole(random, 24, 64, dtype=ml_dtypes.float8_e4m3fn)
    exact(Gemm(40, 24, 64, "e4m3", "e4m3", "f32"), a.view(np.uint8), b.view(np.uint8), product(a, b))
    with pytest.raises(OperandError, match='a_format="e4m3"'):
        multiply(a.view(np.uint8), b.view(np.uint8))


def test_d18_a_transposed_view_is_read_as_what_it_is(random: np.random.Generator) -> None:
    a, b = whole(random, 64, 48), whole(random, 72, 64)
    exact(Gemm(48, 72, 64), a.T, b, product(a.T, b))


def test_e01_a_skinny_product_swaps_its_operands(random: np.random.Generator) -> None:
    a, b = whole(random, 2752, 64, dtype=np.float16), whole(random, 16, 64, dtype=np.float16)
    exact(Gemm(2752, 16, 64, "f16", "f16", "f16"), a, b, product(a, b))


def test_e02_block_scales_and_a_split_k_go_together(random: np.random.Generator) -> None:
    kind = ml_dtypes.float8_e4m3fn
    m, n, k = 72, 136, 768
    a, b = whole(random, m, k, dtype=kind), whole(random, n, k, dtype=kind)
    scale_a = random.choice((0.5, 1.0, 2.0), (m, 6)).astype(np.float32)
    scale_b = random.choice((0.5, 1.0, 2.0), (2, 6)).astype(np.float32)
    expected = (wide(a) * spread(scale_a, (m, k), 1)) @ (wide(b) * spread(scale_b, (n, k), 128)).T
    config = GemmConfig().replace(tile_m=64, tile_n=64, tile_k=128, consumers=1, promote=128, stages=3)
    config = config.replace(split_kind="split", parts=3)
    gemm = Gemm(m, n, k, "e4m3", "e4m3", "bf16", config=config)
    first = gemm.emulate(a, b, sms=12, seed=1, scale_a=scale_a, scale_b=scale_b)
    second = gemm.emulate(a, b, sms=12, seed=2, scale_a=scale_a, scale_b=scale_b)
    np.testing.assert_array_equal(wide(first.d), wide(expected.astype(ml_dtypes.bfloat16)))
    # Ordered sums: the same bits, whoever comes first.
    np.testing.assert_array_equal(first.d.view(np.uint16), second.d.view(np.uint16))


def test_e04_one_odd_row_with_bias_and_relu_works_through_a_padded_copy(
    random: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    from stridewright.codegen import launch

    launch._told.clear()
    a, b = whole(random, 1, 107, dtype=np.float16), whole(random, 105, 107, dtype=np.float16)
    bias = whole(random, 105, dtype=np.float16)
    gemm = Gemm(1, 105, 107, "f16", "f16", "f16", activation="relu")
    for _ in range(2):
        exact(gemm, a, b, np.maximum(product(a, b) + wide(bias), 0), bias=bias)
    said = [record.message for record in caplog.records if "padded rows" in record.message]
    assert len(said) == 1  # B's, once; a single row of A has no pitch
    assert said[0].startswith("b: the bytes from one row to the next are 214")


@pytest.mark.parametrize("m", [7, 9])
def test_e05_few_rows_of_blockwise_fp8_with_a_bias_are_right(m: int, random: np.random.Generator) -> None:
    kind = ml_dtypes.float8_e4m3fn
    a, b = whole(random, m, 512, dtype=kind), whole(random, 256, 512, dtype=kind)
    scale_a = random.choice((0.5, 1.0, 2.0), (m, 4)).astype(np.float32)
    scale_b = random.choice((0.5, 1.0, 2.0), (2, 4)).astype(np.float32)
    bias = whole(random, 256, dtype=np.float32)
    expected = (wide(a) * spread(scale_a, (m, 512), 1)) @ (wide(b) * spread(scale_b, (256, 512), 128)).T + bias
    exact(Gemm(m, 256, 512, "e4m3", "e4m3", "f32"), a, b, expected, scale_a=scale_a, scale_b=scale_b, bias=bias)


def test_e07_a_column_major_result_is_refused_with_the_way_to_have_it(random: np.random.Generator) -> None:
    a, b = whole(random, 1638, 64), whole(random, 72, 64)
    out = np.zeros((72, 1638), ml_dtypes.bfloat16)
    with pytest.raises(OperandError, match=r"D\.T = b @ a\.T, with out=out\.T"):
        Gemm(1638, 72, 64, activation="relu").emulate(a, b, out=out.T)
    exact(Gemm(72, 1638, 64, activation="relu"), b, a, np.maximum(product(b, a), 0), out=out)


def test_e08_a_leading_dimension_of_1026_is_copied_or_refused(random: np.random.Generator) -> None:
    a, b = whole(random, 16, 1026)[:, :1024], whole(random, 24, 1024)
    exact(Gemm(16, 24, 1024, relayout="copy"), a, b, product(a, b))


@pytest.mark.parametrize("sizes", [(8, 16, 64, 0), (0, 128, 0, 256), (0, 0, 0, 0), (1, 0, 3, 65)])
def test_e10_groups_of_any_size_are_right(sizes: tuple[int, ...], random: np.random.Generator) -> None:
    groups_are_right(sizes, random)


def test_e11_groups_without_rows_neither_hang_nor_touch_others(random: np.random.Generator) -> None:
    groups_are_right((0, 128, 0, 256), random)


def groups_are_right(sizes: tuple[int, ...], random: np.random.Generator) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    a, b = whole(random, int(offsets[-1]), 72), whole(random, len(sizes), 40, 72)
    parts = [product(a[offsets[g] : offsets[g + 1]], b[g]) for g in range(len(sizes))]
    exact(Gemm(len(a), 40, 72, groups=len(sizes)), a, b, np.concatenate(parts), offsets=offsets)


def test_e13_majors_of_fp8_are_refused_with_the_reason_or_copied(random: np.random.Generator) -> None:
    kind = ml_dtypes.float8_e4m3fn
    a, b = whole(random, 40, 64, dtype=kind), whole(random, 24, 64, dtype=kind)
    with pytest.raises(ConfigError, match="wgmma reads e4m3 only K-major"):
        Gemm(40, 24, 64, "e4m3", "e4m3", a_major="mn")
    with pytest.raises(OperandError, match=r'a: is MN-major, and wgmma reads e4m3 only K-major; relayout="copy"'):
        Gemm(40, 24, 64, "e4m3", "e4m3", "f32").emulate(np.asfortranarray(a), b)
    gemm = Gemm(40, 24, 64, "e4m3", "e4m3", "f32", relayout="copy")
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b)):
            exact(gemm, left, right, product(a, b))


def test_e16_a_batch_has_a_bias_of_its_own_for_each_matrix(random: np.random.Generator) -> None:
    a, b, bias = whole(random, 2, 300, 96), whole(random, 2, 160, 96), whole(random, 2, 1, 160)
    expected = np.stack([product(a[i], b[i]) for i in range(2)]) + wide(bias)
    exact(Gemm(300, 160, 96, d="f32", batch=2), a, b, expected, bias=bias)


@pytest.mark.parametrize("alpha", [0.5, np.array([0.5], np.float32)], ids=["number", "in-memory"])
@pytest.mark.parametrize("biased", [False, True])
def test_e17_alpha_comes_before_bias_and_activation(alpha: Any, biased: bool, random: np.random.Generator) -> None:
    a, b, bias = whole(random, 40, 64), whole(random, 24, 64), whole(random, 24, dtype=np.float32)
    others = {"bias": bias} if biased else {}
    expected = np.maximum(0.5 * product(a, b) + (bias if biased else 0), 0)
    exact(Gemm(40, 24, 64, d="f32", activation="relu"), a, b, expected, alpha=alpha, **others)


def test_e19_bias_gelu_and_what_it_is_applied_to(random: np.random.Generator) -> None:
    from math import erf

    a, b, bias = whole(random, 40, 64), whole(random, 24, 64), whole(random, 24, dtype=np.float32)
    aux = np.full((40, 24), np.nan, np.float32)
    run = Gemm(40, 24, 64, d="f32", activation="gelu").emulate(a, b, bias=bias, aux=aux)
    before = product(a, b) + bias
    np.testing.assert_array_equal(aux, before)
    gelu = 0.5 * before * (1 + np.vectorize(erf)(before / np.sqrt(2)))
    np.testing.assert_allclose(run.d, gelu, rtol=1e-6, atol=2e-6)
    # Gradients (DGELU, BGRADB) need a second input and a sum over rows: no activation of that name.
    with pytest.raises(ConfigError, match="activation='dgelu': must be one of"):
        Gemm(40, 24, 64, activation="dgelu")


def test_e20_promotion_keeps_what_the_tensor_core_drops(random: np.random.Generator) -> None:
    kind = ml_dtypes.float8_e4m3fn
    a = random.standard_normal((16, 7168)).astype(kind)
    b = random.standard_normal((24, 7168)).astype(kind)
    scale = np.float32(0.5)
    exact_sums = 0.5 * product(a, b)
    errors = {}
    # One sum over all of K: parts of it that are added in float32 lose less.
    whole_k = GemmConfig().replace(tile_m=64, tile_n=32, tile_k=128, consumers=1, store="direct", stages=3)
    for promote in (0, 128):
        run = Gemm(16, 24, 7168, "e4m3", "e4m3", "f32", config=whole_k, promote=promote).emulate(
            a, b, numerics="hardware", scale_a=np.array([scale], np.float32)
        )
        errors[promote] = np.linalg.norm(run.d - exact_sums) / np.linalg.norm(exact_sums)
    assert errors[128] < 3e-4
    assert errors[0] > 4 * errors[128]


def test_e22_stream_k_is_one_argument(random: np.random.Generator) -> None:
    a, b = whole(random, 300, 256), whole(random, 136, 256)
    config = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1, stages=3).replace(split_kind="stream")
    exact(Gemm(300, 136, 256, config=config), a, b, product(a, b))


@pytest.mark.parametrize("m", [1, 2])
def test_e23_decode_shapes_are_right(m: int, random: np.random.Generator) -> None:
    a, b = whole(random, m, 3584, dtype=np.int8), whole(random, 512, 3584, dtype=np.int8)
    exact(Gemm(m, 512, 3584, "s8", "s8", "s32"), a, b, product(a, b))


@pytest.mark.parametrize("majors", ["CC", "CF", "FC", "FF"])
def test_e25_awkward_sizes_are_right_in_all_four_layouts(majors: str, random: np.random.Generator) -> None:
    a, b = whole(random, 257, 512, dtype=np.float16), whole(random, 129, 512, dtype=np.float16)
    left, right = np.array(a, order=majors[0]), np.array(b, order=majors[1])  # type: ignore[call-overload]
    exact(Gemm(257, 129, 512, "f16", "f16", "f16"), left, right, product(a, b))


def test_e26_few_rows_and_much_k_may_be_split(random: np.random.Generator) -> None:
    a, b = whole(random, 128, 1024), whole(random, 256, 1024)
    config = GemmConfig().replace(tile_n=128, stages=3, split_kind="split", parts=4)
    run = Gemm(128, 256, 1024, config=config).emulate(a, b, sms=8)
    np.testing.assert_array_equal(wide(run.d), wide(product(a, b).astype(ml_dtypes.bfloat16)))


def test_e28_a_split_on_blackwell_is_refused() -> None:
    problems = GemmConfig(arch="sm_100a").replace(split_kind="stream").problems()
    assert any("split_kind='stream': is a parameter of the Hopper kernels" in problem for problem in problems)
