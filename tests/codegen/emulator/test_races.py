"""Each fence, wait and barrier that is left out is reported with both places and the thing that is missing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError, EmulationResult, Race

from .cuda_pieces import RING, RING_PARTS, WRAPPERS, filled
from .harness import run_cuda
from .test_exec_async import run_cluster, run_copy_out, run_product, run_ring, word_map, words


def verdict(run: Callable[[], tuple[bool, EmulationResult]]) -> str:
    """The kinds of races found, or the error."""
    try:
        _, result = run()
    except EmulationError as error:
        return str(error)
    return ", ".join(sorted(kinds(result.races)))


def kinds(races: tuple[Race, ...]) -> set[str]:
    return {race.kind for race in races}


def test_a_store_without_its_proxy_fence() -> None:
    _, result = run_copy_out(3, FENCE="")
    race = result.races[0]
    assert race.kind == "read after write"
    assert race.missing.startswith("fence.proxy.async")
    assert race.first.operation.startswith("st.shared")
    assert "tensor" in race.second.operation
    assert "test.cu" in race.first.place
    assert "test.cu" in race.second.place


def test_a_proxy_fence_only_by_the_thread_that_issues() -> None:
    # After a barrier one fence is enough: it orders what the barrier has passed on.
    right, result = run_copy_out(3, FENCE="", SYNC_AFTER="__syncthreads(); fence_async()")
    assert right
    assert result.races == ()


def test_a_store_without_the_barrier_before_it() -> None:
    _, result = run_copy_out(3, SYNC_AFTER="")
    assert kinds(result.races) >= {"read after write"}
    assert "a barrier between the two" in result.races[0].missing


def test_a_buffer_refilled_before_it_was_read() -> None:
    for changes in ({"WAIT_READ": ""}, {"WAIT_READ": "store_wait_read<2>()"}, {"SYNC_BEFORE": ""}):
        right, result = run_copy_out(5, **changes)
        assert not right or result.races, changes
        assert "write after read" in kinds(result.races), changes
        assert any("wait_group.read" in race.missing for race in result.races), changes


def test_stores_still_in_flight_at_the_end() -> None:
    for changes in ({"WAIT_END": ""}, {"COMMIT": ""}):
        _, result = run_copy_out(1, **changes)
        assert kinds(result.races) == {"end with work in flight"}, changes


def test_a_load_read_before_its_barrier() -> None:
    found = verdict(lambda: run_ring(3, WAIT_FULL=""))
    assert "never written" in found or "read after write" in found


def test_a_slot_released_before_it_was_read() -> None:
    found = []
    for seed in range(4):
        _, result = run_ring(
            6, seed, WAIT_FULL="wait(&full[s], i / SLOTS & 1); fence_async(); arrive(&empty[s])", RELEASE=""
        )
        found += result.races
    assert any(race.kind in ("write after read", "read after write") for race in found)


def test_generic_reads_before_a_refill_need_a_proxy_fence_where_strict() -> None:
    _, result = run_ring(6, RELEASE="arrive(&empty[s])")
    assert kinds(result.races) == {"write after read"}
    assert result.races[0].missing.startswith("fence.proxy.async")


def test_barriers_used_before_their_initialisation_is_visible() -> None:
    _, result = run_ring(3, FENCE_INIT="")
    assert kinds(result.races) == {"barrier used before it is ready"}
    assert "fence.mbarrier_init" in result.races[0].missing


def test_no_barrier_after_initialisation() -> None:
    found = verdict(lambda: run_ring(3, SYNC=""))
    assert "no mbarrier was initialised" in found or "barrier used before it is ready" in found


def test_a_barrier_after_initialisation_is_demanded_where_lenient_and_a_fence_is_not() -> None:
    def lenient(**changes: str) -> tuple[bool, EmulationResult]:
        data, out = words(96), np.zeros(32, np.uint32)
        source = filled(RING, RING_PARTS, **changes)
        arrays = [word_map(data), out, np.int32(3)]
        result = run_cuda(source, "ring", 1, 64, arrays, shared=3 * 4096, strict=False)
        return bool((out == data.reshape(-1, 32).sum(axis=0)).all()), result

    right, result = lenient(FENCE_INIT="")
    assert right
    assert result.races == ()
    found = verdict(lambda: lenient(SYNC=""))
    assert "no mbarrier was initialised" in found or "barrier used before it is ready" in found


def test_wgmma_without_its_fence() -> None:
    with pytest.raises(EmulationError, match=r"without wgmma\.fence"):
        run_product(2, FENCE="")


def test_a_slot_overwritten_while_wgmma_may_read_it() -> None:
    for changes in (
        {"WAIT": ""},
        {"COMMIT": "", "WAIT_ALL": "wgmma_commit(); wgmma_wait<0>()"},
        {"WAIT": "wgmma_wait<2>()"},
    ):
        _, result = run_product(5, **changes)
        race = next(race for race in result.races if race.kind == "write after read")
        assert "wgmma.wait_group" in race.missing
        assert race.first.operation.startswith("wgmma.mma_async")


def test_blocks_that_end_while_the_other_still_multicasts() -> None:
    # Without the last cluster barrier a block may end while arrivals from the other are on their way.
    # In some orders the access comes after the end, an error; in the others the missing order is reported.
    for seed in range(6):
        found = verdict(lambda seed=seed: run_cluster(4, seed, CLUSTER_END=""))
        assert "which has ended" in found or "end with work in flight" in found


def test_clusters_that_do_not_meet_before_the_first_multicast() -> None:
    found = verdict(lambda: run_cluster(3, CLUSTER_SYNC="__syncthreads()"))
    assert "no mbarrier was initialised" in found or "barrier used before it is ready" in found


OVERLAP = """extern "C" __global__ void k(int *out, int step) {
    out[blockIdx.x * step + threadIdx.x] = 7;
}"""


def test_two_blocks_that_write_the_same_bytes() -> None:
    assert run_cuda(OVERLAP, "k", 4, 32, [np.zeros(128, np.int32), np.int32(32)]).races == ()
    races = run_cuda(OVERLAP, "k", 4, 32, [np.zeros(128, np.int32), np.int32(31)]).races
    assert [(race.kind, race.space, race.count) for race in races] == [("write after write", "global", 3)]
    assert "byte 124" in races[0].missing
    assert races[0].first.agent != races[0].second.agent


def test_a_block_that_reads_what_another_writes() -> None:
    source = """extern "C" __global__ void k(int *data) {
        data[blockIdx.x * 32 + threadIdx.x] = data[(blockIdx.x * 32 + threadIdx.x + 1) % 64] + 1;
    }"""
    races = run_cuda(source, "k", 2, 32, [np.zeros(64, np.int32)]).races
    assert {race.space for race in races} == {"global"}


def test_an_atomic_beside_it_orders_nothing() -> None:
    source = OVERLAP.replace("= 7;", "= 7; atomicAdd(out + 200, 0);")
    races = run_cuda(source, "k", 4, 32, [np.zeros(256, np.int32), np.int32(31)]).races
    assert [(race.kind, race.space, race.count) for race in races] == [("write after write", "global", 3)]


def test_two_groups_that_use_one_named_barrier_at_the_same_time() -> None:
    source = """extern "C" __global__ void k(int *out) {
        if (threadIdx.x < 64) { asm volatile("bar.sync 3, 64;" ::: "memory"); out[threadIdx.x] = 1; }
        else { asm volatile("bar.sync NUMBER, 64;" ::: "memory"); out[threadIdx.x] = 2; }
    }"""
    assert run_cuda(source.replace("NUMBER", "4"), "k", 1, 128, [np.zeros(128, np.int32)]).races == ()
    races = run_cuda(source.replace("NUMBER", "3"), "k", 1, 128, [np.zeros(128, np.int32)]).races
    assert kinds(races) == {"turns of a named barrier may mix"}


def test_a_barrier_initialised_by_several_threads() -> None:
    source = WRAPPERS + """extern "C" __global__ void k(u32 n) { __shared__ u64 bar; init(&bar, n); }"""
    with pytest.raises(EmulationError, match="by 32 threads at once"):
        run_cuda(source, "k", 1, 32, [np.uint32(1)])


LANE_COPIES = (
    WRAPPERS
    + """
extern "C" __global__ void k(const u32 *in, u32 *out) {
    __shared__ __align__(16) u32 buffer[2][256];
    for (int i = 0; i < 3; ++i) {
        ASM("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(shared(&buffer[i & 1][threadIdx.x * 4])), "l"(in + i * 256 + threadIdx.x * 4) : "memory");
        ASM("cp.async.commit_group;" ::: "memory");
        WAIT;
        SYNC;
        for (int k = 0; k < 4; ++k) out[i * 256 + k * 64 + threadIdx.x] = buffer[i & 1][255 - k * 64 - threadIdx.x];
        if (AGAIN) __syncthreads();
    }
}"""
)
LANE_PARTS = {"WAIT": 'ASM("cp.async.wait_group 0;" ::: "memory")', "SYNC": "__syncthreads()", "AGAIN": "true"}


def run_lane_copies(**changes: str) -> tuple[bool, EmulationResult]:
    data, out = np.arange(768, dtype=np.uint32), np.zeros(768, np.uint32)
    result = run_cuda(filled(LANE_COPIES, LANE_PARTS, **changes), "k", 1, 64, [data, out])
    return bool((out.reshape(3, 256) == data.reshape(3, 256)[:, ::-1]).all()), result


def test_lane_wise_copies_are_ordered_by_their_wait_and_a_barrier() -> None:
    right, result = run_lane_copies()
    assert right
    assert result.races == ()
    # Two buffers: the barrier of the next round is between a read and the copy after it.
    assert run_lane_copies(AGAIN="false")[1].races == ()


def test_lane_wise_copies_without_wait_or_barrier() -> None:
    found = verdict(lambda: run_lane_copies(WAIT=""))
    assert "never written" in found or "read after write" in found
    found = verdict(lambda: run_lane_copies(SYNC=""))
    assert "read after write" in found
    waits_late = 'if (i) ASM("cp.async.wait_group 1;" ::: "memory")'
    found = verdict(lambda: run_lane_copies(WAIT=waits_late))
    assert "never written" in found or "read after write" in found


def test_a_barrier_inside_the_destination_of_a_load() -> None:
    inside = RING.replace(
        "__shared__ u64 full[SLOTS], empty[SLOTS];", "__shared__ u64 empty[SLOTS]; u64 *full = (u64 *)(slots + 512);"
    )
    arguments = [word_map(words(96)), np.zeros(32, np.uint32), np.int32(3)]
    with pytest.raises(
        EmulationError, match=r"written, but the mbarrier at 0x[0-9a-f]+ lives there(.|\n)*when it completed"
    ):
        run_cuda(filled(inside, RING_PARTS), "ring", 1, 64, arguments, shared=3 * 4096)


def test_loads_that_nobody_waits_for() -> None:
    # The producer loads one box more than the consumer takes.
    source = filled(
        RING.replace(
            "for (int i = 0; i < tiles; ++i) {\n                int s",
            "for (int i = 0; i < tiles + 1; ++i) {\n                int s",
        ),
        RING_PARTS,
    )
    arguments = [word_map(words(96)), np.zeros(32, np.uint32), np.int32(2)]
    result = run_cuda(source, "ring", 1, 64, arguments, shared=3 * 4096)
    assert kinds(result.races) == {"end with work in flight"}
    assert "a wait for the copy's phase" in result.races[0].missing
