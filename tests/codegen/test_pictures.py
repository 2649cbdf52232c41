"""Pictures of what the emulator reports: their numbers are those of the report, and the source's constants those of the cells they are linked with."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.emulator import DeadlockError, emulate_ptx
from stridewright.codegen.pictures import (
    deadlock_picture,
    emulation_timeline,
    race_picture,
    roofline_points,
    source_picture,
    tune_points,
    tuning_picture,
)
from stridewright.codegen.tune_state import Candidate, Outcome
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.layout import SwizzledLayout, size

CONFIG = GemmConfig().replace(tile_m=128, tile_n=128, stages=3)


def operands(gemm: Gemm) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.integers(-4, 5, (rows, gemm.k)).astype(ml_dtypes.bfloat16) for rows in (gemm.m, gemm.n)]


@pytest.fixture(scope="module")
def gemm() -> Gemm:
    return Gemm(256, 256, 320, config=CONFIG)


@pytest.fixture(scope="module")
def timeline(gemm: Gemm) -> Any:
    return gemm.emulate(*operands(gemm), sms=2, timeline=True).timeline


def planted(old: str, new: str) -> Gemm:
    gemm = Gemm(256, 256, 320, config=CONFIG)
    assert gemm.source.count(old) == 1
    gemm.__dict__["build"] = build(gemm.source.replace(old, new), arch="sm_90a", strict=False)
    return gemm


def deadlock(gemm: Gemm) -> DeadlockError:
    with pytest.raises(DeadlockError) as caught:
        gemm.emulate(*operands(gemm), sms=2)
    return caught.value


def tips(svg: str, style: str) -> list[str]:
    return re.findall(rf'class="[^"]*\b{style}"[^>]*><title>(.*?)</title>', svg, re.DOTALL)


def test_every_gap_of_the_tensor_core_is_explained(gemm: Gemm, timeline: Any) -> None:
    drawing = emulation_timeline(timeline, gemm.derivation)
    work = sorted((s.start, s.end) for s in timeline.spans if s.block == 0 and s.track == "tensor core")
    gaps, end = [], 0.0
    for start, until in work:
        if start - end >= 8:
            gaps.append((end, start))
        end = max(end, until)
    told = [
        re.match(r"the tensor core stands still for (\d+) clocks, (\d+) to (\d+)", tip)
        for tip in tips(drawing.svg(), "h5")
    ]
    assert len(told) == len(gaps) + 1  # and what comes after the last multiply
    for found, (start, until) in zip(told, gaps, strict=False):
        assert found is not None
        assert [int(v) for v in found.groups()] == [round(until - start), round(start), round(until)]
    assert drawing.facts["busy"] == f"{sum(b - a for a, b in work) / timeline.clocks:.1%}"


def test_the_first_gap_is_the_first_copy(gemm: Gemm, timeline: Any) -> None:
    tip = tips(emulation_timeline(timeline, gemm.derivation).svg(), "h5")[0]
    assert "waits for an mbarrier" in tip
    assert "full[0], phase 0 (parity 0) was completed" in tip
    assert "(producer) copied last" in tip


def test_phases_follow_each_other_and_count_every_slot(gemm: Gemm, timeline: Any) -> None:
    """A block has two tiles of five k-steps: ten slots over a ring of three."""
    per_barrier: dict[int, list[Any]] = {}
    for end in timeline.phases:
        if end.block == 0:
            per_barrier.setdefault(end.barrier, []).append(end)
    counts = sorted(len(ends) for ends in per_barrier.values())
    tiles = gemm.tiles() // 2
    assert sum(counts) == 2 * tiles * 5
    for ends in per_barrier.values():
        assert [end.phase for end in sorted(ends, key=lambda e: e.end)] == list(range(len(ends)))
        assert all(end.since <= end.end for end in ends)


def test_roles_are_read_off_what_threads_do(gemm: Gemm, timeline: Any) -> None:
    text = emulation_timeline(timeline, gemm.derivation).text()
    assert "(producer)" in text
    assert "(consumer 0)" in text
    assert "(consumer 1)" in text


def test_a_block_that_is_not_there(timeline: Any) -> None:
    with pytest.raises(ValueError, match="block=7: 2 blocks were emulated"):
        emulation_timeline(timeline, block=7)


def test_a_wrong_phase_is_a_cycle_through_the_ring() -> None:
    gemm = planted("at.parity ^ 1)", "at.parity)")
    error = deadlock(gemm)
    drawing = deadlock_picture(error, gemm.derivation)
    around = str(drawing.facts["cycle"]).split(" > ")
    assert {"empty[0]", "full[0]"} < set(around)
    assert len(around) == 4
    assert "lacks 1 of 1 arrivals" in drawing.text()
    # Without the kernel's layouts nothing is supposed: the waits alone make no cycle.
    assert deadlock_picture(error).facts["cycle"] == ""
    assert "mbarrier 0x" in deadlock_picture(error).text()


def test_bytes_that_never_come_are_named() -> None:
    gemm = planted("A_SLOT_BYTES + B_SLOT_BYTES)", "A_SLOT_BYTES + B_SLOT_BYTES + 16)")
    error = deadlock(gemm)
    text = deadlock_picture(error, gemm.derivation).text()
    assert "lacks 16 bytes" in text
    assert "more bytes were expected than came" in text
    full = next(b for r in error.records for b, _ in r.on if b.bytes_due)
    assert (full.pending, full.expected, full.bytes_due) == (0, 1, 16)
    with pytest.raises(ValueError, match="no thread of block"):
        deadlock_picture(error, block=(9, 0, 0))


def test_a_race_is_drawn_where_it_is() -> None:
    gemm = planted("wgmma_wait<1>();    // the", "// the")
    races = gemm.emulate(*operands(gemm), sms=2).races
    assert races
    drawing = race_picture(races[0], gemm.derivation)
    assert drawing.facts["kind"] == "write after read"
    assert drawing.facts["part"] in ("tiles of A", "tiles of B")
    assert drawing.facts["address"] == races[0].address
    assert "first: read by wgmma" in drawing.text()
    assert "second: write by copies" in drawing.text()


def numbers(source: str) -> dict[str, int]:
    found = re.findall(r"constexpr \w+ (\w+) = (0x[0-9a-f]+|\d+)(?:ull)?;", source)
    return {name: int(value, 0) for name, value in found}


def linked_cells(svg: str, name: str) -> list[int]:
    """The bytes that stand on the cells linked with a name."""
    cells = re.findall(
        r'<rect [^>]*class="cell [^>]*data-link="([^"]*)"[^>]*><title>[^<]*</title></rect><text[^>]*>(\d+)</text>', svg
    )
    return [int(label) for links, label in cells if name in links.split()]


@pytest.mark.parametrize(
    "parameters", [{}, {"tile_m": 64, "consumers": 1, "tile_n": 64}, {"tile_k": 128, "stages": 2, "tile_n": 128}]
)
def test_constants_are_the_distances_between_their_cells(parameters: dict[str, Any]) -> None:
    gemm = Gemm(512, 512, 512, config=GemmConfig().replace(**parameters))
    svg, source = source_picture(gemm).svg(), numbers(gemm.source)
    for operand in (gemm.derivation.a, gemm.derivation.b):
        name, layout = operand.name, operand.layout
        assert isinstance(layout, SwizzledLayout)
        # The swizzle is its own inverse and leaves steps of whole 8-row groups alone: what descriptors count lies under it.
        under = {
            2 * layout(r, k): 2 * layout.layout(r, k)
            for r in range(operand.rows)
            for k in range(0, gemm.config.tile.k, 8)
        }
        plain = {
            what: [under[b] for b in linked_cells(svg, f"{name}-{what}")]
            for what in ("SLOT-BYTES", "ROW-BYTES", "DESCRIPTOR")
        }
        assert max(plain["SLOT-BYTES"]) + 16 == source[f"{name}_SLOT_BYTES"]
        # Where no CTA loads a slice of it, nothing asks for the bytes from row to row of B.
        assert bool(plain["ROW-BYTES"]) == (f"{name}_ROW_BYTES" in source)
        if plain["ROW-BYTES"]:
            low, high = plain["ROW-BYTES"]
            assert high - low == source[f"{name}_ROW_BYTES"]
        low, high = plain["DESCRIPTOR"]
        assert (high - low) // 16 == source[f"{name}_DESCRIPTOR"] >> 32 & 0x3FFF
        steps = [under[b] // 16 for b in linked_cells(svg, f"{name.lower()}-step-advance")]
        assert steps == [operand.step_advance(i) for i in range(len(steps))]
        if f"{name}_STRIP_ADVANCE" in source and operand.rows > 64:
            low, high = [under[b] for b in linked_cells(svg, f"{name}-STRIP-ADVANCE")]
            assert (high - low) // 16 == source[f"{name}_STRIP_ADVANCE"]


def test_points_of_a_tuner_and_of_a_roofline() -> None:
    (point,) = tune_points([(CONFIG, 2e-6, 3e-6)])
    assert (point.values["tile_n"], point.values["stages"], point.seconds, point.modelled) == (128, 3, 2e-6, 3e-6)
    (point_,) = roofline_points([("x", (16, 8192, 4096), 1e-5)])
    assert point_.intensity == 2 * 16 * 8192 * 4096 / (2 * (16 * 4096 + 8192 * 4096 + 16 * 8192))
    assert point_.rate == 2 * 16 * 8192 * 4096 / 1e-5


def test_a_phase_ends_with_the_last_that_it_waits_for(gemm: Gemm, timeline: Any) -> None:
    """A wait on an mbarrier ends when the phase does that it names, and a full barrier's phase with its last copy."""
    ends = {(end.block, end.barrier, end.phase): end for end in timeline.phases}
    waits = [span for span in timeline.spans if span.name == "waits for an mbarrier"]
    assert len(waits) > 20
    for span in waits:
        assert max(ends[key].end for key in span.on) == pytest.approx(span.end)
    landed: dict[Any, float] = {}
    for span in timeline.spans:
        if span.track == "copy engine":
            for key in span.on:
                landed[key] = max(landed.get(key, 0.0), span.end)
    copies = {key: end for key, end in ends.items() if end.what == "copy"}
    assert len(copies) == len(landed) == 2 * 10
    assert all(copies[key].end == pytest.approx(time) for key, time in landed.items())


def test_a_deadlock_s_records_say_what_its_text_says() -> None:
    error = deadlock(planted("at.parity ^ 1)", "at.parity)"))
    assert len(error.records) == len(error.waits)
    for record, text in zip(error.records, error.waits, strict=True):
        verb = "wait" if "warps" in record.threads.who else "waits"
        assert text == f"{record.threads.who} {verb} at {record.place} for {record.text}"
        for barrier, parity in record.on:
            assert f"parity {parity} of {barrier.name}" in text
            assert barrier.lacks == f"{barrier.pending} of {barrier.expected} arrivals"


NAMED = """extern "C" __global__ void k(int *out) {
    if (threadIdx.x < 64) asm volatile("bar.sync 3, 128;" ::: "memory");
    out[threadIdx.x] = 1;
}"""


def test_a_named_barrier_is_drawn_too() -> None:
    with pytest.raises(DeadlockError) as caught:
        emulate_ptx(build(NAMED, strict=False).ptx, "k", 1, 128, [np.zeros(128, np.int32)])
    drawing = deadlock_picture(caught.value)
    assert "named barrier 3" in drawing.text()
    assert "lacks 64 of 128 threads" in drawing.text()


CLUSTER = """extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int *out) {
    unsigned rank; asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    if (rank == 1 && threadIdx.x >= 32) { asm volatile("bar.sync 1, 64;" ::: "memory"); }
    asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
    out[threadIdx.x] = 1;
}"""


def test_a_cluster_barrier_is_drawn_too() -> None:
    with pytest.raises(DeadlockError) as caught:
        emulate_ptx(build(CLUSTER, strict=False).ptx, "k", 2, 64, [np.zeros(64, np.int32)], cluster=2)
    text = deadlock_picture(caught.value).text()
    assert "cluster barrier" in text
    assert "lacks 1 of 2 blocks" in text


def test_what_a_tuner_measured_is_a_landscape() -> None:
    problem = Problem(m=512, n=512, k=512)
    config = GemmConfig(problem=problem)
    times = {2: 40.0, 3: 30.0, 4: 35.0}
    measured = tuple(Outcome(Candidate(config.replace(stages=s)), "measured", us=us) for s, us in times.items())
    result = SimpleNamespace(
        problem=problem, device=SimpleNamespace(name="a card"), config=config.replace(stages=3), measured=measured
    )
    drawing = tuning_picture(result)  # type: ignore[arg-type]
    assert "512 x 512 x 512, measured on a card" in drawing.title
    assert drawing.facts["best"] == config.replace(stages=3).name
    assert drawing.facts["chosen-over-best"] == "1.0000"


def test_blackwell_s_roles_and_barriers_have_names_too() -> None:
    gemm = Gemm(128, 128, 256, arch="sm_100a")
    found = gemm.emulate(*operands(gemm), sms=2, timeline=True).timeline
    text = emulation_timeline(found, gemm.derivation).text()
    assert "(issues products)" in text
    assert "(producer)" in text
    assert "(epilogue)" in text
    assert "us of launch" in text
    assert "accumulator full[0]" in text
    assert "0x" not in text


FLAG = """extern "C" __global__ void k(volatile int *flag) { while (*flag == 0) { } }"""


def test_memory_that_is_polled_for_ever_is_drawn_too() -> None:
    with pytest.raises(DeadlockError) as caught:
        emulate_ptx(build(FLAG, strict=False).ptx, "k", 1, 32, [np.zeros(1, np.int32)])
    text = deadlock_picture(caught.value).text()
    assert "memory at 0x" in text
    assert "lacks a store of another value" in text


@pytest.mark.parametrize(
    ("options", "element"),
    [
        ({"a": "e4m3", "b": "e4m3"}, 1),
        ({"a": "tf32", "b": "tf32", "d": "f32"}, 4),
        ({"activation": "relu"}, 2),
        ({"arch": "sm_100a"}, 2),
    ],
)
def test_other_types_and_architectures_are_linked_by_their_own_bytes(options: dict[str, Any], element: int) -> None:
    gemm = Gemm(512, 512, 512, **options)
    drawing = source_picture(gemm)
    source, text = numbers(gemm.source), drawing.text()
    for operand in (gemm.derivation.a, gemm.derivation.b):
        plain = operand.layout.layout
        assert f"{operand.name}_SLOT_BYTES" in text
        assert f"elements of {element} bytes" in text
        assert source[f"{operand.name}_SLOT_BYTES"] == int(size(plain)) * element
        assert (source[f"{operand.name}_DESCRIPTOR"] >> 32 & 0x3FFF) * 16 == plain(8, 0) * element
        assert f"from row 0 to row 8, {plain(8, 0) * element} bytes" in text
        assert f"from one k-step of {32 // element} elements" in text


def test_an_operand_that_is_not_k_major_is_said_to_be_left_out() -> None:
    text = source_picture(Gemm(512, 512, 512, a_major="mn")).text()
    assert re.search(r"[AB]: MN-major, not linked", text)


def test_a_constant_that_does_not_follow_from_its_cells_is_not_linked() -> None:
    gemm = Gemm(512, 512, 512, config=GemmConfig())
    right = source_picture(gemm)
    gemm.__dict__["source"] = re.sub(r"A_ROW_BYTES = \d+", "A_ROW_BYTES = 130", gemm.source)
    assert source_picture(gemm).facts["links"] == int(str(right.facts["links"])) - 1
    assert "A_ROW_BYTES" not in source_picture(gemm).text()
