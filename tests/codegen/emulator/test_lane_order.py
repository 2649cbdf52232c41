"""Lanes of a warp are threads: one of them may not send off what the others store before they have waited for each other."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationResult, TensorMapArgument
from stridewright.codegen.emulator.lane_order import LaneOrder
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
