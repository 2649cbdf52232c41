"""What is no number, no name or no shape is refused in words, never with Python's own error and never silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stridewright.layout import LayoutError
from stridewright.layout.hardware import (
    Event,
    HardwareError,
    InstructionDescriptor,
    MatrixDescriptor,
    Request,
    TensorMap,
    accumulator_layout,
    accumulator_request,
    accumulator_tiles,
    allocation_problems,
    decode_image,
    decode_instruction_descriptor,
    decode_matrix_descriptor,
    derive_tensor_map,
    encode_image,
    instruction_descriptor,
    ldmatrix_layout,
    matrix_descriptor,
    mma_operand_layouts,
    plan_tensor_memory,
    recognise,
    scale_columns,
    scale_layout,
    smem_tile,
    stage_problems,
    tensor_memory_access,
    tmem_address,
    wgmma_d_layout,
)
from stridewright.layout.hardware.tensor_copy import copy_plan

GOOD: dict[str, Any] = {
    "dtype": "bf16",
    "shape": (64, 128),
    "strides_bytes": (256,),
    "box": (64, 128),
    "swizzle": "128B",
}


def tensor_map(**changed: Any) -> TensorMap:
    return TensorMap(**(GOOD | changed))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("shape", (64.0, 128), "shape[0]"),
        ("shape", (True, 128), "shape[0]"),
        ("shape", (64, None), "shape[1]"),
        ("shape", "64", "shape[0]"),
        ("shape", None, "shape[0]"),
        ("strides_bytes", (256.0,), "strides_bytes[0]"),
        ("strides_bytes", None, "strides_bytes[0]"),
        ("strides_bytes", (), "strides_bytes"),
        ("box", None, "box[0]"),
        ("box", (), "box"),
        ("element_strides", (), "element_strides"),
        ("element_strides", (1,), "element_strides"),
        ("element_strides", (1, 1.0), "element_strides[1]"),
        ("swizzle", 3, "swizzle"),
        ("interleave", ["16B"], "interleave"),
        ("l2_promotion", 4, "l2_promotion"),
        ("oob_fill", True, "oob_fill"),
        ("dtype", ["bf16"], "dtype"),
        ("arch", 90, "arch"),
        ("arch", None, "arch"),
        ("arch", "sm_90x", "arch"),
    ],
)
def test_every_wrong_field_of_a_tensor_map_is_a_problem_of_its_own(field: str, value: Any, named: str) -> None:
    found = tensor_map(**{field: value}).problems()
    assert named in [problem.field for problem in found]
    assert "no tensor map" in tensor_map(**{field: value}).explain()


@pytest.mark.parametrize("address", [16.0, True, "16", None, -16, 1 << 64])
def test_an_address_is_a_64_bit_number(address: Any) -> None:
    assert [problem.field for problem in tensor_map().problems(address)] == ["address"]


def test_numpy_integers_and_single_numbers_are_numbers() -> None:
    given = tensor_map(shape=np.array([64, 128]), strides_bytes=np.int64(256), box=[np.int32(64), np.int8(127)])
    assert given.problems() == []
    assert type(given.shape[0]) is type(given.strides_bytes[0]) is type(given.box[1]) is int
    assert TensorMap("u8", np.int64(64), (), 64).problems() == []


@pytest.mark.parametrize("changed", [{"box": (64,)}, {"shape": (), "box": (), "strides_bytes": ()}])
@pytest.mark.parametrize("ask", ["box_bytes", "smem_bytes", "counts", "pitch", "landing"])
def test_an_impossible_map_names_its_problems_whatever_is_asked(changed: dict[str, Any], ask: str) -> None:
    with pytest.raises(HardwareError, match=r"rank|must have"):
        tensor_map(**changed).landing() if ask == "landing" else getattr(tensor_map(**changed), ask)


def test_large_strides_are_printed_in_full() -> None:
    text = tensor_map(shape=(64, 128), strides_bytes=(1048592,)).explain()
    assert "strides 2, 1048592 bytes" in text


def test_a_rank_mismatch_says_what_to_give() -> None:
    assert "one for each dimension" in str(tensor_map(box=(64,)).problems()[0])
    assert "leaves out the innermost" in str(tensor_map(strides_bytes=(2, 256)).problems()[0])


@pytest.mark.parametrize("stages", [0, -1, True, 2.0])
def test_a_ring_has_at_least_one_stage(stages: Any) -> None:
    assert [problem.field for problem in stage_problems(tensor_map(), 16384, stages)] == ["stages"]


TILE = smem_tile("128B", "k", "bf16", 64, 64)
REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "coordinate of a float": (lambda: copy_plan(tensor_map(), (0.0, 0)), r"coordinates\[0\] must be an int"),  # type: ignore[list-item]
    "coordinate beyond s32": (lambda: copy_plan(tensor_map(), (0, 1 << 31)), "signed 32-bit"),
    "shared address of a float": (lambda: copy_plan(tensor_map(), (0, 0), 128.0), "must be an int"),  # type: ignore[arg-type]
    "image beyond 64 bits": (lambda: encode_image(tensor_map(), 1 << 64), "0..2\\^64-1"),
    "image of text": (lambda: decode_image("a" * 128), "has 128 bytes, not 'aa"),  # type: ignore[arg-type]
    "descriptor word of a float": (lambda: decode_matrix_descriptor(1.0), "must be an int"),  # type: ignore[arg-type]
    "descriptor word of a bool": (lambda: decode_matrix_descriptor(True), "not the bool True"),
    "descriptor for no arch": (lambda: decode_matrix_descriptor(0, 90), "has no matrix descriptors"),  # type: ignore[arg-type]
    "descriptor for an unknown arch": (lambda: decode_matrix_descriptor(0, "sm_9000"), "has no matrix descriptors"),
    "descriptor of a float": (lambda: MatrixDescriptor("sm_90a", 16.0, 0, 0, "none").encode(), "start must be an int"),  # type: ignore[arg-type]
    "base offset 8": (lambda: MatrixDescriptor("sm_90a", 0, 0, 0, "128B", 8).encode(), "0..7"),
    "tile of nothing": (lambda: recognise(None, "bf16"), "is a Layout"),  # type: ignore[arg-type]
    "address beyond the window": (lambda: matrix_descriptor(TILE, address=1 << 18), "nearest 262128"),
    "address below the window": (lambda: matrix_descriptor(TILE, address=-1024), "nearest 0"),
    "address of a float": (lambda: matrix_descriptor(TILE, address=1024.0), "must be an int"),  # type: ignore[arg-type]
    "tile of no rows": (lambda: smem_tile("128B", "k", "bf16", 0, 64), "rows=0: .* nearest 8"),
    "tile of a float": (lambda: smem_tile("128B", "k", "bf16", 64.0, 64), "rows must be an int"),  # type: ignore[arg-type]
    "kind None": (lambda: instruction_descriptor(kind=None), "kind=None"),  # type: ignore[arg-type]
    "decode kind None": (lambda: decode_instruction_descriptor(0, None), "kind None"),  # type: ignore[arg-type]
    "instruction word of text": (lambda: decode_instruction_descriptor("1"), "must be an int"),  # type: ignore[arg-type]
    "n of a float": (lambda: instruction_descriptor(n=256.0), "n=256.0: must be an int"),  # type: ignore[arg-type]
    "m of a bool": (lambda: instruction_descriptor(m=True), "m=True: must be an int"),
    "wgmma n of text": (lambda: wgmma_d_layout("8"), "n must be an int"),  # type: ignore[arg-type]
    "matrices of a bool": (lambda: ldmatrix_layout(True), "x1, x2 or x4"),
    "repeat of a bool": (lambda: tensor_memory_access("32x32b", True), "not the bool"),
    "lane of a float": (lambda: tmem_address(1.5, 0), "lane must be an int"),  # type: ignore[arg-type]
    "accumulator of 7": (lambda: accumulator_layout(128, 7), "nearest 8"),
    "accumulator of 1024": (lambda: accumulator_layout(128, 1024), "nearest 256"),
    "accumulator of -8": (lambda: accumulator_layout(128, -8), "nearest 8"),
    "scales of no rows": (lambda: scale_layout("mxf4", 0, 32), "nearest 128"),
    "accumulator of 7 columns": (lambda: accumulator_request("a", 128, 7), "n=7"),
    "accumulators beyond tensor memory": (lambda: accumulator_tiles(128, 256, 2, 2), "1024 of 512 columns"),
    "columns for no rows": (lambda: scale_columns(0, 4), "rows=0: must be at least 1"),
    "columns for less than no scales": (lambda: scale_columns(128, -4), "scales=-4"),
    "an odd M over two CTAs": (lambda: mma_operand_layouts(255, 8, 16, 2), "m=255: .* nearest 254, 256"),
    "a plan of a number": (lambda: plan_tensor_memory(5), "must be a Request"),  # type: ignore[arg-type]
    "columns of a float": (lambda: plan_tensor_memory([Request("a", 1.5)]), "must be an int"),  # type: ignore[arg-type]
    "alloc of text": (lambda: allocation_problems([Event("alloc", "x")]), "must be an int"),  # type: ignore[arg-type]
    "map of no layouts": (lambda: derive_tensor_map(None, None, "bf16"), "must be layouts"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_rule(name: str) -> None:
    ask, message = REFUSALS[name]
    with pytest.raises(LayoutError, match=message):
        ask()


def test_an_alloc_of_no_legal_size_is_one_problem() -> None:
    assert len(allocation_problems([Event("alloc", 1024)])) == 1


def test_a_flag_that_is_no_bool_cannot_spill_into_its_neighbour() -> None:
    # 2 << 2 would set bit 3 (saturate) instead of bit 2 (sparse).
    for flag in ("sparse", "negate_a", "negate_b", "saturate"):
        with pytest.raises(HardwareError, match=f"{flag}=2: must be a bool"):
            instruction_descriptor(**{flag: 2})  # type: ignore[arg-type]
    assert InstructionDescriptor("f16", 128, 8, "f16", "f16", "f32", sparse=1).problems()  # type: ignore[arg-type]


def test_numpy_words_decode_to_plain_ints() -> None:
    found = decode_matrix_descriptor(np.uint64(0x4000004000010000))  # type: ignore[arg-type]
    assert type(found.start) is type(found.stride) is int
    assert found.encode() == 0x4000004000010000
