"""Group b of the field reports: what people met with tensor maps, each as a test of the behaviour it asks for."""

from __future__ import annotations

import pytest

from stridewright.layout import Layout
from stridewright.layout.hardware import (
    HardwareError,
    Problem,
    TensorMap,
    delivery_problems,
    derive_tensor_map,
    stage_problems,
)
from stridewright.layout.hardware.tensor_map import MAP_ALIGNMENT, MAP_BYTES
from stridewright.layout.hardware.tensor_map_driver import needs_bit_85_cleared, patched


def only(problems: list[Problem]) -> str:
    assert len(problems) == 1, [str(problem) for problem in problems]
    return str(problems[0])


def test_b01_a_pitch_of_200_bytes_is_refused_and_208_suggested() -> None:
    text = only(TensorMap("f16", (100, 256), (200,), (64, 64), "128B").problems())
    assert text.startswith("strides_bytes[0]=200")
    assert "200 % 16 = 8" in text
    assert "208 B = 104 elements" in text


def test_b03_a_pitch_of_6932_bytes_is_refused_with_its_remainder() -> None:
    text = only(TensorMap("f32", (1733, 128), (6932,), (64, 32)).problems())
    assert text.startswith("strides_bytes[0]=6932")
    assert "6932 % 16 = 4" in text


def test_b04_a_box_row_may_not_exceed_the_swizzle_span() -> None:
    narrow = only(TensorMap("f16", (128, 256), (256,), (48, 64), "32B").problems())
    assert "96" in narrow
    assert "32 bytes" in narrow
    wide = only(TensorMap("f16", (128, 256), (256,), (128, 64), "128B").problems())
    assert "256" in wide
    assert "2 copies of 64" in wide
    assert TensorMap("f16", (128, 256), (256,), (64, 64), "128B").problems() == []


def test_b06_a_box_of_512_is_refused_and_two_copies_offered() -> None:
    text = only(TensorMap("f32", (512,), (), (512,)).problems())
    assert text.startswith("box[0]=512")
    assert "2 copies of at most 256" in text


def test_b07_dimensions_are_not_merged_beyond_256_and_rank_6_is_refused() -> None:
    tensor = Layout(((256, 2), 4), ((1, 256), 512))
    tile = Layout(((256, 2), 1), ((1, 256), 0))
    assert derive_tensor_map(tensor, tile, "u8").tensor_map.box == (256, 2, 1)
    six = TensorMap("u8", (16,) * 6, tuple(16**i for i in range(1, 6)), (16, 1, 1, 1, 1, 1))
    assert "rank 6 must be in 1..5" in only(six.problems())


def test_b09_a_store_that_would_write_past_the_rows_end_is_warned_of() -> None:
    view = TensorMap("s8", (466, 64), (512,), (128, 64))
    assert view.problems() == []
    text = only(view.warnings(store=True))
    assert "466 % 16 = 2" in text
    assert "bytes 466..479" in text
    assert "predicated st.global" in text
    assert view.warnings(store=False) == []


def test_b10_strides_beyond_32_bits_are_fine() -> None:
    assert TensorMap("f16", (65536, 65536, 2), (131072, 8589934592), (64, 128, 1), "128B").problems() == []


def test_b12_the_object_is_128_bytes_aligned_to_128() -> None:
    assert (MAP_BYTES, MAP_ALIGNMENT) == (128, 128)


def test_b13_bit_85_is_cleared_on_blackwell_alone() -> None:
    view = TensorMap("f16", (64, 64), (192,), (64, 64), "128B", arch="sm_100a")
    assert needs_bit_85_cleared(view, 64 * 192, 13020)
    assert not needs_bit_85_cleared(view.with_arch("sm_90a"), 64 * 192, 13020)
    assert not needs_bit_85_cleared(view, 128 * 1024, 13020)
    dense = TensorMap("f16", (64, 64), (128,), (64, 64), "128B", arch="sm_100a")
    assert not needs_bit_85_cleared(dense, 64 * 128, 13020)
    image = bytes([0xFF]) * 128
    cleared = patched(image)
    assert int.from_bytes(cleared, "little") == int.from_bytes(image, "little") & ~(1 << 85)


def test_b15_a_map_in_plain_global_memory_needs_an_acquire_fence() -> None:
    text = only(delivery_problems("global"))
    assert "acquire" in text
    assert "__grid_constant__" in text
    assert delivery_problems("param") == []


def test_b16_a_map_is_rewritten_only_after_its_copies_have_drained() -> None:
    assert "still read the old map" in only(delivery_problems("global", True, rewritten=True))
    assert delivery_problems("global", True, rewritten=True, drained=True) == []


def test_b18_a_box_larger_than_the_tensor_is_normal_and_counts_in_full() -> None:
    m = TensorMap("bf16", (4096, 7), (8192,), (64, 128), "128B")
    assert m.problems() == []
    assert m.warnings() == []
    assert m.box_bytes == 16384


@pytest.mark.parametrize("dtype", ["u8", "e4m3", "s32"])
def test_b19_nan_fill_needs_a_floating_type(dtype: str) -> None:
    text = only(TensorMap(dtype, (64, 8), (256,), (64, 8), oob_fill="nan").problems())
    assert "NaN fill needs a floating point type" in text
    assert ("travels as UINT8" in text) == (dtype == "e4m3")


def test_b21_rank_mismatch_is_said_before_the_driver() -> None:
    text = only(TensorMap("f16", (64, 64, 4), (128, 8192), (64, 64)).problems())
    assert "rank mismatch" in text
    assert "3" in text
    assert "2" in text


def test_b22_stages_of_96_bytes_are_refused_or_padded() -> None:
    text = only(stage_problems(TensorMap("u8", (96, 1), (96,), (96, 1)), 96, 3))
    assert "0, 96, 192" in text
    assert "128" in text
    swizzled = TensorMap("bf16", (64, 12), (128,), (64, 12), "128B")
    assert "multiples of 1024" in only(stage_problems(swizzled, 1536, 3))


def test_b24_a_map_in_shared_memory_is_refused() -> None:
    assert delivery_problems("shared")
    with pytest.raises(HardwareError):
        TensorMap("f16", (100, 256), (200,), (64, 64)).check()
