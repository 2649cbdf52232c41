"""Every transfer measured on an H200: which byte lands where, what is counted, what faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stridewright.layout.hardware import HardwareError, TensorMap
from stridewright.layout.hardware.tensor_copy import (
    TransferFault,
    check_transfer,
    copy_plan,
    fill_pattern,
    loaded_values,
)

DATA = Path(__file__).parents[2] / "data" / "h200"


@pytest.fixture(scope="module")
def landing() -> Any:
    return np.load(DATA / "tma_landing.npz")


def cases() -> list[dict[str, Any]]:
    return json.loads(str(np.load(DATA / "tma_landing.npz")["cases"]))  # type: ignore[no-any-return]


def tensor_map(case: dict[str, Any]) -> TensorMap:
    return TensorMap(
        case["dtype"],
        case["dims"],
        case["strides"],
        case["box"],
        case["swizzle"],
        case["element_strides"],
        case["interleave"],
        oob_fill=case["oob_fill"],
    )


def test_every_refusal_and_fault_of_the_transfers_is_foretold() -> None:
    seen = 0
    for case in cases():
        m = tensor_map(case)
        store = case["direction"] == "store"
        if "verdict" in case:
            assert bool(m.problems()) == (case["verdict"] != "CUDA_SUCCESS"), case
            seen += 1
        elif "fault" in case:
            with pytest.raises(TransferFault) as caught:
                check_transfer(m, case["coordinates"], case["offset"], store)
            assert caught.value.error == case["fault"], case
            seen += 1
        else:
            check_transfer(m, case["coordinates"], case["offset"], store)
    assert seen >= 10


def test_every_loaded_byte_lands_where_it_was_seen(landing: Any) -> None:
    checked = 0
    for case in cases():
        if case["direction"] != "load" or "verdict" in case or "fault" in case:
            continue
        m = tensor_map(case)
        plan = copy_plan(m, case["coordinates"], case["offset"])
        assert plan.box_bytes == case["bytes"] == m.box_bytes, case
        assert case["completed"]
        assert case["exact"]
        if case["name"] not in landing.files:
            # tf32 loads round what was to be traced: only their fill was kept.
            assert case["dtype"] in ("TFLOAT32", "FLOAT32_FTZ"), case
            continue
        seen = landing[case["name"]].astype(np.int64)
        expected = np.full(seen.size, -1, np.int64)
        # The arrays count from a multiple of 1024, as the offset does.
        filled = np.full(plan.smem.size, -2)
        if case["oob_fill"] != "NONE":
            # The byte of origin was read in two loads, low and high byte: a NaN fill shows its own byte in both.
            pattern = np.frombuffer(fill_pattern(m), np.uint8).astype(np.int64)
            filled = pattern[plan.smem % pattern.size] * 0x101
        expected[plan.smem] = np.where(plan.tensor < 0, filled, plan.tensor)
        assert np.array_equal(expected, seen), case
        checked += 1
    assert checked > 150


def test_every_stored_byte_comes_from_where_it_was_seen(landing: Any) -> None:
    checked = 0
    for case in cases():
        if case["direction"] != "store" or "verdict" in case or "fault" in case:
            continue
        plan = copy_plan(tensor_map(case), case["coordinates"], case["offset"], store=True)
        seen = landing[case["name"]].astype(np.int64)
        expected = np.full(seen.size, -1, np.int64)
        expected[plan.tensor] = plan.smem
        assert np.array_equal(expected, seen), case
        checked += 1
    assert checked > 30


def test_landing_layout_and_byte_of_agree_with_the_copy_plan() -> None:
    checked = 0
    for case in cases():
        if case["direction"] != "load" or "verdict" in case or "fault" in case or case["interleave"] != "NONE":
            continue
        m = tensor_map(case)
        size = m.row_bytes // m.box[0]
        plan = copy_plan(m, case["coordinates"], 1024)
        element = plan.smem.reshape(-1, size)[:, 0]
        rng = np.random.default_rng(checked)
        total = int(np.prod(m.counts))
        for index in rng.integers(0, total, 6):
            coordinates, rest = [], int(index)
            for count in m.counts:
                coordinates.append(rest % count)
                rest //= count
            assert m.byte_of(coordinates, 1024) == element[index]
            assert m.landing()(tuple(coordinates)) * size + 1024 == element[index]
        checked += 1
    assert checked > 100


def test_fill_patterns_are_those_of_a_load_of_zeros(landing: Any) -> None:
    checked = 0
    for case in cases():
        name = f"{case['name']}_fill"
        if name not in landing.files:
            continue
        m = tensor_map(case)
        raw = landing[name].view(np.uint8).ravel()
        plan = copy_plan(m, case["coordinates"], case["offset"])
        filled = np.sort(plan.smem[plan.tensor < 0])
        pattern = np.frombuffer(fill_pattern(m), np.uint8)
        assert np.array_equal(raw[filled], pattern[filled % pattern.size]), case
        checked += 1
    assert checked == sum(name.endswith("_fill") for name in landing.files)
    assert checked >= 4


@pytest.mark.parametrize("dtype", ["UINT32", "FLOAT32", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"])
def test_loaded_values_have_the_bits_seen(landing: Any, dtype: str) -> None:
    m = TensorMap(dtype, (32,), (), (32,))
    given = landing[f"values_{dtype}_in"].view(np.uint32).ravel()
    assert np.array_equal(loaded_values(m, given), landing[f"values_{dtype}_out"].view(np.uint32).ravel())


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16", "FLOAT64"])
def test_other_types_pass_unchanged(landing: Any, dtype: str) -> None:
    assert np.array_equal(landing[f"values_{dtype}_in"], landing[f"values_{dtype}_out"])


@pytest.mark.parametrize(
    ("dtype", "data", "slot"), [("e2m1", 8, 8), ("e2m1_padded", 8, 16), ("e2m3", 12, 16), ("e3m2", 12, 16)]
)
def test_groups_of_sixteen_values_are_padded_as_cuda_h_says(dtype: str, data: int, slot: int) -> None:
    """cuda.h: no gaps with ALIGN8B; 8-byte gaps after 8 bytes, or 4-byte gaps after 12, with ALIGN16B. One group at a time."""
    m = TensorMap(dtype, (256, 8), (192,), (128, 3), arch="sm_100a")
    plan = copy_plan(m, (128, 6), 256)
    want = {}
    for row, group, byte in np.ndindex(3, 8, data):
        inside = 6 + row < 8
        want[256 + row * 8 * slot + group * slot + byte] = (6 + row) * 192 + (8 + group) * data + byte if inside else -1
    assert dict(zip(plan.smem.tolist(), plan.tensor.tolist(), strict=True)) == want
    assert plan.box_bytes == m.box_bytes == 3 * 8 * data


@pytest.mark.parametrize("swizzle", ["none", "128B", "128B_atom_32B"])
@pytest.mark.parametrize("dtype", ["e2m1_padded", "e2m3"])
def test_byte_of_finds_the_first_value_of_every_group(dtype: str, swizzle: str) -> None:
    m = TensorMap(dtype, (128, 8), (96,), (128, 8), swizzle, arch="sm_100a")
    plan = copy_plan(m, (0, 0), 1024)
    first = plan.smem.reshape(8, 8, -1)[..., 0]
    assert all(m.byte_of((16 * group, row), 1024) == first[row, group] for row, group in np.ndindex(8, 8))


def test_a_store_of_six_bit_values_is_no_copy_of_bytes() -> None:
    m = TensorMap("e2m3", (128, 8), (96,), (128, 8), arch="sm_100a")
    with pytest.raises(HardwareError, match="packs 6 of every 8 bits"):
        copy_plan(m, (0, 0), store=True)


def test_interleaved_boxes_skip_pixels_as_seen() -> None:
    """The element stride of dimension 0, which does nothing otherwise, skips pixels of an interleaved map."""
    seen = json.loads((DATA / "tma_interleaved_strides.json").read_text(encoding="utf-8"))["cases"]
    assert {case["element_strides"][0] for case in seen} == {1, 2, 3, 4}
    for case in seen:
        fields = {name: tuple(case[name]) for name in ("shape", "box", "element_strides")}
        m = TensorMap("u16", strides_bytes=tuple(case["strides"]), interleave=case["interleave"], **fields)
        plan = copy_plan(m, case["coordinates"])
        expected = np.full(len(case["chunks"]) * 16, -1, np.int64)
        expected[plan.smem] = np.where(plan.tensor < 0, -2, plan.tensor // 16)
        assert expected[::16].tolist() == case["chunks"], case
        assert plan.box_bytes == m.box_bytes == plan.smem.size
