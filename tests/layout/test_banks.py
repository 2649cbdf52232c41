"""The bank model against an H200's counters, and its three statements (count, rank, numpy) against each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.layout.banks import (
    Access,
    bank_report,
    count_wavefronts,
    linear_wavefronts,
    report_of_offsets,
    suggest_swizzle,
)
from stridewright.layout.core import Layout
from stridewright.layout.errors import LayoutError
from stridewright.layout.hardware import MatrixDescriptor

ORACLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "h200" / "banks.json").read_text())


def offsets_and_access(pattern: dict[str, Any]) -> tuple[list[int | None], Access]:
    op = pattern["instruction"].removesuffix(".trans")
    offsets = [o if pattern["active"] >> lane & 1 else None for lane, o in enumerate(pattern["offsets"])]
    if op in ("ldmatrix", "stmatrix"):
        return offsets[: 8 * pattern["size"]], Access(16, op=op)
    return offsets, Access(pattern["size"], op=op)


PATTERNS = [pattern for pattern in ORACLE["patterns"] if pattern["instruction"] != "wgmma"]


def test_wavefronts_and_conflicts_equal_the_chips_counters_on_every_pattern() -> None:
    for pattern in PATTERNS:
        offsets, access = offsets_and_access(pattern)
        report = report_of_offsets(offsets, access)
        assert report.wavefronts == pattern["wavefronts"], pattern
        assert report.conflicts == pattern["conflicts"], pattern
    assert len(PATTERNS) >= 270


def test_numpy_counts_and_f2_ranks_equal_the_phase_by_phase_count() -> None:
    by_rank = 0
    for pattern in PATTERNS:
        offsets, access = offsets_and_access(pattern)
        report = report_of_offsets(offsets, access)
        active = np.array([[offset is not None for offset in offsets]])
        addresses = np.array([[offset or 0 for offset in offsets]])
        wavefronts, ideal = count_wavefronts(addresses, access.bytes, access.op, active)
        assert (wavefronts[0], ideal[0]) == (report.wavefronts, report.ideal), pattern
        if report.method == "F2 rank":
            by_rank += 1
            ranks = [linear_wavefronts(offsets, phase.lanes, access.bytes) for phase in report.phases]
            assert ranks == [phase.wavefronts for phase in report.phases], pattern
    assert by_rank > 80


def test_wgmma_operand_reads_take_a_wavefront_for_each_8_rows_of_16_bytes() -> None:
    checked = 0
    for pattern in ORACLE["patterns"]:
        if pattern["instruction"] != "wgmma":
            continue
        mode = {0: "none", 32: "32B", 64: "64B", 128: "128B"}[pattern["swizzle"]]
        descriptor = MatrixDescriptor("sm_90a", 0, pattern["lbo"], pattern["sbo"], mode)
        bytes_read = descriptor.addresses("bf16", pattern["major"].lower(), pattern["rows"]).ravel()
        chunks = np.unique(bytes_read // 16).tolist()
        report = report_of_offsets([chunk * 16 for chunk in chunks], Access(16, op="wgmma"))
        # An A from shared memory was measured beside a B of 8 rows, which takes two more.
        beside = 2 if pattern["operand"] == "A" else 0
        counted = pattern["counters"]["wavefronts_gmma"] / ORACLE["unroll"]
        if len(chunks) == pattern["rows"] * 2:
            assert report.wavefronts + beside == counted, pattern
            assert report.conflicts == pattern["counters"].get("conflicts_gmma", 0) == 0
            checked += 1
    assert checked >= 25


@given(
    st.sampled_from([("ld", 1), ("ld", 4), ("ld", 8), ("ld", 16), ("st", 2), ("st", 8), ("st", 16)]),
    st.lists(st.one_of(st.none(), st.integers(0, 200)), min_size=1, max_size=32),
)
def test_numpy_equals_the_count_on_random_accesses(kind: tuple[str, int], units: list[int | None]) -> None:
    op, size = kind
    offsets = [None if unit is None else unit * size for unit in units]
    if all(offset is None for offset in offsets):
        return
    report = report_of_offsets(offsets, Access(size, op=op))
    active = np.array([[offset is not None for offset in offsets]])
    wavefronts, ideal = count_wavefronts(np.array([[offset or 0 for offset in offsets]]), size, op, active)
    assert (wavefronts[0], ideal[0]) == (report.wavefronts, report.ideal)


def test_collisions_name_lanes_of_different_words_of_one_bank() -> None:
    report = report_of_offsets([0, 128, 256, 4] + [None] * 28, Access(4))
    assert report.phases[0].collisions == ((0, (0, 1, 2)),)
    assert "bank 0 serves lanes 0, 1, 2" in str(report)


def test_a_lane_layout_stands_for_its_indices() -> None:
    tile = Layout((32, 32), (32, 1))
    by_layout = bank_report(tile, Access(4, lanes=Layout(32, 1), element_bytes=4))
    assert by_layout.wavefronts == bank_report(tile, Access(4, element_bytes=4)).wavefronts == 32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bytes": 3}, "bytes=3"),
        ({"op": "load"}, "op 'load'"),
        ({"bytes": 8, "op": "ldmatrix"}, "rows of 16 bytes"),
        ({"element_bytes": 0}, "element_bytes=0"),
    ],
)
def test_impossible_accesses_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Access(**arguments)


def test_misaligned_and_oversized_accesses_are_refused() -> None:
    with pytest.raises(LayoutError, match="lane 1 begins at byte 4"):
        bank_report(Layout(64, 1), Access(8, element_bytes=4))
    with pytest.raises(LayoutError, match="a warp has 32"):
        bank_report(Layout(64, 1), Access(4, lanes=range(40), element_bytes=4))
    with pytest.raises(LayoutError, match="8, 16 and 32"):
        bank_report(Layout(64, 16), Access(16, lanes=range(9), op="ldmatrix"))
    with pytest.raises(LayoutError, match="not known"):
        bank_report(Layout(64, 16), Access(16, op="tma"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bytes": True}, "not the bool"),
        ({"bytes": 4.0}, "bytes must be an int"),
        ({"bytes": "4"}, "bytes must be an int"),
        ({"element_bytes": 2.5}, "element_bytes must be an int"),
        ({"element_bytes": True}, "not the bool"),
        ({"lanes": 5}, "must be a sequence"),
        ({"lanes": "0123"}, "must be a sequence"),
        ({"lanes": {3: 4}}, "must be a sequence"),
        ({"op": None}, "must be one of"),
    ],
)
def test_an_access_of_the_wrong_types_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Access(**given)


def test_numpy_integers_are_numbers() -> None:
    access = Access(np.int64(4), lanes=np.arange(32), element_bytes=np.int32(4))  # type: ignore[arg-type]
    assert bank_report(Layout(32, 32), access).wavefronts == 32
    assert suggest_swizzle(Layout((32, 32), (32, 1)), access).bits == 5


def test_what_is_no_layout_and_no_access_is_refused() -> None:
    with pytest.raises(LayoutError, match="must be a Layout"):
        bank_report("(4,8)", Access(4))
    with pytest.raises(LayoutError, match="must be an Access"):
        bank_report(Layout(32), 4)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="Access objects"):
        suggest_swizzle(Layout(32), 4)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="must be an Access"):
        suggest_swizzle(Layout(32), [4])  # type: ignore[list-item]
