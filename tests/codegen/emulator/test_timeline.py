"""The timeline: what it records, and modelled times that can be worked out by hand from the model's constants."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.emulator import emulate_ptx
from stridewright.codegen.emulator.timeline import CostModel, Timeline
from stridewright.codegen.emulator.timeline_model import sharing
from stridewright.codegen.gemm import GemmEmulation
from stridewright.kernels.config import GemmConfig

COOPERATIVE = GemmConfig().replace(tile_m=128, tile_n=128, stages=4)
PINGPONG = COOPERATIVE.replace(schedule_kind="pingpong")
CLUSTER = PINGPONG.replace(cluster_m=2)
SWAPPED = GemmConfig().replace(swap=True, tile_m=64, tile_n=64, consumers=1, stages=4)


def emulate(config: GemmConfig, m: int, n: int, k: int, sms: int, timeline: bool) -> GemmEmulation:
    """A GEMM of random values on so many SMs."""
    random = np.random.default_rng(5)
    a, b = (random.standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16) for rows in (m, n))
    return Gemm(m, n, k, config=config).emulate(a, b, sms=sms, timeline=timeline)


@cache
def timeline(config: GemmConfig, m: int = 512, n: int = 128, k: int = 512, sms: int = 1) -> Timeline:
    """The timeline of a GEMM: with 128x128 tiles, four of them on one SM."""
    found = emulate(config, m, n, k, sms, True).timeline
    assert isinstance(found, Timeline)
    return found


def spans_of(found: Timeline, track: str, block: int = 0) -> list[Any]:
    """Spans of one unit, in the order of their starts."""
    return sorted((s for s in found.spans if s.block == block and s.track == track), key=lambda span: span.start)


@pytest.mark.parametrize("config", [COOPERATIVE, PINGPONG, CLUSTER], ids=["cooperative", "pingpong", "cluster"])
def test_recording_changes_nothing(config: GemmConfig) -> None:
    plain = emulate(config, 256, 256, 192, 2, False)
    timed = emulate(config, 256, 256, 192, 2, True)
    assert plain.timeline is None
    assert timed.d.tobytes() == plain.d.tobytes()
    assert timed.races == plain.races == ()
    assert timed.conflicts == plain.conflicts
    assert timed.result.instructions == plain.result.instructions


@pytest.mark.parametrize(
    ("config", "tile_n"),
    [(COOPERATIVE, 128), (PINGPONG, 128), (CLUSTER, 128), (SWAPPED, 64)],
    ids=["cooperative", "pingpong", "cluster", "swapped"],
)
def test_the_tensor_core_multiplies_for_as_long_as_the_product_takes(config: GemmConfig, tile_n: int) -> None:
    """64 columns or more: N / 2 clocks for 64 rows and 16 of K, which is m * n * k / 2048 in all."""
    m, n, k = (tile_n, 512, 512) if config.schedule.swap else (512, tile_n, 512)
    found = timeline(config, m, n, k, config.cluster.m)
    assert sum(found.busy.values()) == pytest.approx(m * n * k / 2048)
    assert found.unfinished == 0
    for block in range(len(found.blocks)):
        spans = spans_of(found, "tensor core", block)
        assert sum(span.end - span.start for span in spans) == pytest.approx(found.busy[block])
        assert all(first.end <= second.start for first, second in pairwise(spans))


@pytest.mark.parametrize("config", [COOPERATIVE, PINGPONG], ids=["cooperative", "pingpong"])
def test_every_load_is_there_and_comes_before_its_multiply(config: GemmConfig) -> None:
    """Two loads for each block of K; the wgmma of block i start after the loads of block i have landed."""
    found = timeline(config)
    loads, multiplies = spans_of(found, "copy engine"), spans_of(found, "tensor core")
    blocks = 4 * 512 // 64
    assert len(loads) == 2 * blocks
    a_block = len(multiplies) // blocks
    assert a_block == 8  # 4 steps of K for each of two blocks of 64 rows
    landed = [max(load.end for load in loads[2 * i : 2 * i + 2]) for i in range(blocks)]
    started = [min(span.start for span in multiplies[a_block * i : a_block * (i + 1)]) for i in range(blocks)]
    assert all(start >= land for start, land in zip(started, landed, strict=True))


def test_a_slot_is_refilled_after_it_was_multiplied() -> None:
    found = timeline(COOPERATIVE)
    loads, multiplies = spans_of(found, "copy engine"), spans_of(found, "tensor core")
    stages = COOPERATIVE.pipeline.stages
    for i in range(stages, 4 * 512 // 64):
        done = max(span.end for span in multiplies[8 * (i - stages) : 8 * (i - stages + 1)])
        assert loads[2 * i].start >= done


@pytest.mark.parametrize("config", [COOPERATIVE, PINGPONG, CLUSTER], ids=["cooperative", "pingpong", "cluster"])
def test_busy_and_waits_are_all_of_the_time(config: GemmConfig) -> None:
    found = timeline(config, sms=config.cluster.m)
    for block in range(len(found.blocks)):
        end = max(span.end for span in found.spans if span.block == block)
        assert sum(found.waits(block).values()) + found.busy[block] == pytest.approx(end)
        assert end <= found.clocks


def test_ping_pong_hides_the_epilogue() -> None:
    """Between tiles a cooperative kernel's tensor core waits for the epilogue, a ping-pong kernel's hardly."""

    def between(found: Timeline) -> float:
        outside = ("before the first operands", "after the last multiply")
        return sum(clocks for name, clocks in found.waits().items() if name not in outside)

    cooperative, pingpong = (timeline(config.replace(stages=6)) for config in (COOPERATIVE, PINGPONG))
    assert between(pingpong) < 0.5 * between(cooperative)
    assert pingpong.clocks < cooperative.clocks


def test_a_short_ring_waits_for_memory() -> None:
    """With two slots the multiplies of one (512 clocks) do not cover a load's latency, and the summary says which wait that is."""
    short = timeline(COOPERATIVE.replace(stages=2))
    assert short.clocks > 1.2 * timeline(COOPERATIVE).clocks
    mbarrier = sum(clocks for name, clocks in short.waits().items() if name.startswith("waits for an mbarrier"))
    assert mbarrier > 0.5 * (sum(short.waits().values()) - short.waits()["before the first operands"])
    assert "waits for an mbarrier" in str(short)


def test_json_and_chrome_trace() -> None:
    found = timeline(PINGPONG)
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["kind"] == "model, not a measurement"
    assert len(plain["spans"]) == len(found.spans)
    trace = json.loads(json.dumps(found.to_chrome_trace()))["traceEvents"]
    complete = [event for event in trace if event["ph"] == "X"]
    assert len(complete) == len(found.spans)
    rows = defaultdict(list)
    for event in complete:
        rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        spans.sort()
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(spans))
    names = {event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    assert {"tensor core", "copy engine", "copy engine stores"} <= names
    assert max(event["ts"] + event["dur"] for event in complete) == pytest.approx(
        max(span.end for span in found.spans) / found.clock * 1e6
    )
    assert "model, not a measurement" in str(found)


def test_a_named_barrier_waits_for_the_slower_warp() -> None:
    """Warp 0 executes 100 additions, warp 1 none: warp 1 waits for as many instructions."""
    body = "add.u32 %r, %r, 1;" * 100
    ptx = f"""
    .version 8.0
    .target sm_90a
    .address_size 64
    .visible .entry k() {{
        .reg .pred %p; .reg .b32 %r, %t;
        mov.u32 %t, %tid.x;
        mov.u32 %r, 0;
        setp.ge.u32 %p, %t, 32;
        @%p bra SECOND;
        {body}
        bar.sync 1, 64;
        bra DONE;
    SECOND:
        bar.sync 1, 64;
    DONE:
        ret;
    }}
    """
    found = emulate_ptx(ptx, "k", 1, 64, [], timeline=True).timeline
    model = CostModel()
    assert found.unfinished == 0
    (waits,) = [span for span in found.spans if span.track == "warp 1"]
    assert waits.name == "waits for a named barrier"
    assert waits.end - waits.start == pytest.approx(100 * model.instruction_clocks + model.barrier_latency)


def test_clocks_of_a_wgmma() -> None:
    """The multiplies, or where they are few the reads of shared memory: 2 KB of A and 32 bytes for each column of B, at 128 bytes a clock."""
    model = CostModel()
    assert model.wgmma_clocks(256, False) == 128
    assert model.wgmma_clocks(16, False) == 16 + 4
    assert model.wgmma_clocks(16, True) == 8


def test_bandwidth_is_shared() -> None:
    """All SMs together get what DRAM delivers, and none more than L2 gives it."""
    model = CostModel()
    share = sharing(model, 132, 1.0, 1e9)
    assert share.load * 132 * 1e9 == pytest.approx(model.dram_bytes_per_second, rel=0.01)
    assert sharing(model, 1, 1.0, 1e9).load == pytest.approx(model.l2_bytes_per_clock, abs=0.1)


def test_the_clock_falls_with_work() -> None:
    model = CostModel()
    clocks = [model.clock(busy, 64 * busy) for busy in np.linspace(0, 1, 11)]
    assert clocks[0] == model.highest_clock
    assert clocks == sorted(clocks, reverse=True)


def test_one_block_leaves_the_chip_its_highest_clock() -> None:
    assert timeline(COOPERATIVE).clock == CostModel().highest_clock
    assert timeline(COOPERATIVE).seconds == pytest.approx(
        timeline(COOPERATIVE).clocks / CostModel().highest_clock + CostModel().launch_seconds
    )
