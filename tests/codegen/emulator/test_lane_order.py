"""Lanes of a warp are threads: one of them may not send off what the others store before they have waited for each other, and what one has waited for is over
for the others only then.
"""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationResult, TensorMapArgument
from stridewright.codegen.emulator.lane_order import LaneClocks, LaneOrder
from stridewright.layout.hardware import TensorMap

from .cuda_pieces import WRAPPERS, filled
from .harness import run_cuda

PANELS = (
    WRAPPERS
    + """
// Each warp fills a panel of 32 rows of 32 words of its own, and one lane of it sends it off by a tensor store.
extern "C" __global__ void __launch_bounds__(64) panels(const __grid_constant__ Map map) {
    __shared__ __align__(1024) u32 panel[2][1024];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    FILL;
    fence_async();
    SYNC;
    if (ONE) {
        store(&map, panel[warp], 0, 32 * warp);
        store_commit();
        store_wait<0>();
    }
}
"""
)
PARTS = {
    "FILL": "for (int k = 0; k < 32; ++k) panel[warp][32 * k + lane] = threadIdx.x * 32 + k",
    "SYNC": "__syncwarp()",
    "ONE": "lane == 0",
}


def run(**changes: str) -> EmulationResult:
    out = np.zeros((64, 32), np.uint32)
    bound = TensorMapArgument(TensorMap("u32", (32, 64), (128,), (32, 32), "none"), out)
    result = run_cuda(filled(PANELS, PARTS, **changes), "panels", 1, 64, [bound])
    assert (out == np.arange(2048).reshape(2, 32, 32).transpose(0, 2, 1).reshape(64, 32)).all()
    return result


@pytest.mark.parametrize("sync", ["__syncwarp()", "__syncthreads()", 'asm volatile("bar.sync 1, 64;" ::: "memory")'])
@pytest.mark.parametrize("one", ["lane == 0", "lane == 7", "elect()"])
def test_lanes_that_wait_for_each_other(sync: str, one: str) -> None:
    assert run(SYNC=sync, ONE=one).races == ()


@pytest.mark.parametrize("sync", ["", "__shfl_sync(~0u, lane, 0)", "elect()"])
@pytest.mark.parametrize("one", ["lane == 0", "elect()"])
def test_lanes_that_do_not(sync: str, one: str) -> None:
    races = run(SYNC=sync, ONE=one).races
    assert {race.missing for race in races} == {
        "bar.warp.sync (__syncwarp) or a barrier between the lanes' stores and what one of them issues"
    }
    assert all("st.shared" in race.first.operation and "tensor" in race.second.operation for race in races)


def test_a_lane_may_send_off_what_it_stored_itself() -> None:
    fill = "if (lane == 0) for (int k = 0; k < 1024; ++k) panel[warp][k] = (threadIdx.x + k % 32) * 32 + k / 32"
    assert run(FILL=fill, SYNC="").races == ()


def test_stores_elsewhere_do_not_matter() -> None:
    order = LaneOrder()
    order.wrote(3, 0, np.arange(32) * 4, 4, np.arange(32) != 2, where=1)
    assert order.unsynced(3, 0, 0, [(128, 256), (8, 12)]) is None
    assert order.unsynced(3, 0, 1, [(0, 128)]) is None
    assert order.unsynced(4, 0, 0, [(0, 128)]) is None
    assert order.unsynced(3, 0, 0, [(0, 4)]) is None
    assert order.unsynced(3, 0, 0, [(7, 8)]) == 1


# ---- what one lane has waited for -------------------------------------------------------------------------------------------------

AGAIN = (
    WRAPPERS
    + """
// A warp fills a panel again and again; one lane of it sends it off, and waits until it has been read.
extern "C" __global__ void __launch_bounds__(32) again(const __grid_constant__ Map map) {
    __shared__ __align__(1024) u32 panel[1024];
    u32 lane = threadIdx.x % 32;
    for (int i = 0; i < 3; ++i) {
        if (WAITS) store_wait_read<0>();
        SYNC;
        STORES;
        fence_async();
        __syncwarp();
        if (lane == 0) {
            store(&map, panel, 0, 32 * i);
            store_commit();
        }
    }
    if (lane == 0) store_wait<0>();
}
"""
)
AGAIN_PARTS = {"WAITS": "lane == 0", "SYNC": "__syncwarp()", "STORES": "for (int k = 0; k < 32; ++k) panel[32 * k + lane] = 32 * k + lane"}  # fmt: skip

LOADED = (
    WRAPPERS
    + """
// A warp reads what was loaded; one lane has waited for it.
extern "C" __global__ void __launch_bounds__(32) loaded(const __grid_constant__ Map map, u32 *out) {
    __shared__ __align__(1024) u32 panel[1024];
    __shared__ u64 full;
    u32 lane = threadIdx.x % 32, total = 0;
    if (lane == 0) {
        init(&full, 1);
        fence_init();
        expect(&full, 4096);
        load(panel, &map, 0, 0, &full);
    }
    __syncwarp();
    if (WAITS) wait(&full, 0);
    SYNC;
    for (int k = 0; k < 32; ++k) if (READS) total += *(volatile u32 *)&panel[32 * k + lane];
    out[lane] = total;
}
"""
)
LOADED_PARTS = {"WAITS": "lane == 0", "SYNC": "__syncwarp()", "READS": "true"}
LANES_MISSING = "some lanes have waited: bar.warp.sync (__syncwarp) or a barrier before what the others access"


def again(**changes: str) -> EmulationResult:
    bound = TensorMapArgument(TensorMap("u32", (32, 96), (128,), (32, 32), "none"), np.zeros((96, 32), np.uint32))
    return run_cuda(filled(AGAIN, AGAIN_PARTS, **changes), "again", 1, 32, [bound])


def loaded(**changes: str) -> EmulationResult:
    bound = TensorMapArgument(TensorMap("u32", (32, 32), (128,), (32, 32), "none"), np.ones((32, 32), np.uint32))
    return run_cuda(filled(LOADED, LOADED_PARTS, **changes), "loaded", 1, 32, [bound, np.zeros(32, np.uint32)])


@pytest.mark.parametrize("sync", ["__syncwarp()", "__syncthreads()", 'asm volatile("bar.sync 1, 32;" ::: "memory")'])
def test_a_wait_of_one_lane_is_one_of_all_after_they_have_met(sync: str) -> None:
    assert again(SYNC=sync).races == ()
    assert loaded(SYNC=sync).races == ()


@pytest.mark.parametrize("sync", ["", "__shfl_sync(~0u, lane, 0)", "elect()"])
def test_a_wait_of_one_lane_is_none_of_the_others(sync: str) -> None:
    for kind, races in (("write after read", again(SYNC=sync).races), ("read after write", loaded(SYNC=sync).races)):
        assert {race.kind for race in races} == {kind}
        assert all(LANES_MISSING in race.missing for race in races)


def test_the_lane_that_waited_may_go_on_alone() -> None:
    assert again(SYNC="", STORES="if (lane == 0) for (int k = 0; k < 1024; ++k) panel[k] = k").races == ()
    assert loaded(SYNC="", READS="lane == 0").races == ()
    assert loaded(SYNC="", READS="lane < 2").races != ()


def test_each_lane_may_wait_for_itself() -> None:
    assert loaded(SYNC="", WAITS="true").races == ()
    assert loaded(SYNC="", WAITS="lane < 8", READS="lane < 8").races == ()
    assert loaded(SYNC="if (lane != 0) wait(&full, 0)").races == ()


def test_what_lanes_know_is_exact() -> None:
    clocks = LaneClocks()
    lanes = np.arange(32)
    warp = np.array([3, 0, 0], np.uint32)
    clocks.learnt(5, lanes < 2, warp, np.array([0, 7], np.uint32))
    after = np.array([3, 7, 0], np.uint32)
    clocks.learnt(5, lanes == 9, after, np.array([0, 4, 2], np.uint32))
    after = np.array([6, 7, 2], np.uint32)  # its own epoch has grown meanwhile
    known = {tuple(clock): tuple(who) for who, clock in clocks.of(5, lanes < 11, after)}
    assert known == {(6, 7, 0): (0, 1), (6, 4, 2): (9,), (6, 0, 0): (2, 3, 4, 5, 6, 7, 8, 10)}
    assert clocks.least(5, lanes < 2, after).tolist() == [6, 7, 0]
    clocks.synchronised(5, lanes < 10)
    assert clocks.least(5, lanes < 10, after).tolist() == [6, 7, 2]
    assert clocks.least(5, lanes < 11, after).tolist() == [6, 0, 0]
    clocks.synchronised(5, None)
    assert not clocks.differ(5)


# ---- what one lane passes on for all ----------------------------------------------------------------------------------------------

HANDED = (
    WRAPPERS
    + """
// A warp reads a panel, or writes it, and one lane says so; the other warp then loads over it, or sends it off.
extern "C" __global__ void __launch_bounds__(64) handed(const __grid_constant__ Map map, u32 *out) {
    __shared__ __align__(1024) u32 panel[1024];
    __shared__ u64 full, free;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, total = 0;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&free, ARRIVALS);
        fence_init();
    }
    for (int k = threadIdx.x; k < 1024; k += 64) panel[k] = k;
    fence_async();
    __syncthreads();
    if (warp == 0) {
        USE;
        FENCE;
        SYNC;
        if (ONE) arrive(&free);
        AFTER;
        out[lane] = total;
    } else if (elect()) {
        wait(&free, 0);
        THEN;
    }
}
"""
)
HANDED_PARTS = {
    "ARRIVALS": "1",
    "USE": "for (int k = 0; k < 32; ++k) total += *(volatile u32 *)&panel[32 * k + lane]",
    "FENCE": "fence_async()",
    "SYNC": "__syncwarp()",
    "ONE": "lane == 0",
    "AFTER": "",
    "THEN": "expect(&full, 4096); load(panel, &map, 0, 0, &full); wait(&full, 0)",
}
WRITTEN = {
    "USE": "for (int k = 0; k < 32; ++k) panel[32 * k + lane] = total + k",
    "THEN": "store(&map, panel, 0, 0); store_commit(); store_wait<0>()",
}
PASSED = (
    "bar.warp.sync (__syncwarp) or a barrier between what the lanes of the warp did and the arrival of some of them"
)
FENCED = "fence.proxy.async by each lane, or by one after bar.warp.sync (__syncwarp) or a barrier"


def handed(**changes: str) -> EmulationResult:
    bound = TensorMapArgument(TensorMap("u32", (32, 32), (128,), (32, 32), "none"), np.ones((32, 32), np.uint32))
    return run_cuda(filled(HANDED, HANDED_PARTS, **changes), "handed", 1, 64, [bound, np.zeros(32, np.uint32)])


@pytest.mark.parametrize("use", [{}, WRITTEN], ids=["read", "written"])
def test_one_lane_may_arrive_for_all_after_they_have_met(use: dict[str, str]) -> None:
    assert handed(**use).races == ()
    assert handed(**use, FENCE="", SYNC="__syncwarp(); if (lane == 0) fence_async()").races == ()
    assert handed(**use, ARRIVALS="32", ONE="true", SYNC="").races == ()
    assert handed(**use, ARRIVALS="2", ONE="lane < 2", SYNC="__syncwarp()").races == ()


@pytest.mark.parametrize(("use", "kind"), [({}, "write after read"), (WRITTEN, "read after write")], ids=["read", "written"])  # fmt: skip
def test_one_lane_does_not_speak_for_the_others(use: dict[str, str], kind: str) -> None:
    for missing, changes in (
        (PASSED, {"SYNC": ""}),
        (PASSED, {"SYNC": "elect()"}),
        (PASSED, {"SYNC": "", "AFTER": "__syncwarp()"}),
        (FENCED, {"FENCE": "if (lane == 0) fence_async()"}),
        (FENCED, {"FENCE": "if (elect()) fence_async()"}),
    ):
        races = handed(**use, **changes).races
        assert {race.kind for race in races} == {kind}, changes
        assert {race.missing for race in races} == {missing}, changes
        assert all("other lanes of warp 0" in race.first.agent for race in races)


def test_one_lane_speaks_for_itself() -> None:
    alone = "if (lane == 0) for (int k = 0; k < 1024; ++k) total += *(volatile u32 *)&panel[k]"
    assert handed(USE=alone, SYNC="", FENCE="if (lane == 0) fence_async()").races == ()


def test_what_is_not_passed_on_matters_only_to_who_touches_it() -> None:
    elsewhere = {"USE": "__shared__ u32 other[32]; other[lane] = 1; total += *(volatile u32 *)&other[lane]", "SYNC": ""}
    assert handed(**elsewhere).races == ()
    # The warp itself goes on with what it has, and a later arrival after they have met passes it on.
    again = "for (int k = 0; k < 32; ++k) panel[32 * k + lane] += 1; fence_async(); __syncwarp(); if (lane == 0) arrive(&free)"
    assert handed(SYNC="", AFTER=again, THEN="wait(&free, 1); " + HANDED_PARTS["THEN"]).races == ()
