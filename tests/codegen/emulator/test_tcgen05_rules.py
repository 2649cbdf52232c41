"""What ptxas does not catch in tcgen05 code: each fault is planted in a right kernel, and seen by its own message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stridewright.codegen.emulator import DeadlockError, EmulationError, EmulationResult

from .test_tcgen05 import run_pair, run_pipeline, run_textbook

Run = Callable[..., tuple[bool, EmulationResult]]


def findings(run: Run, *args: Any, seeds: range = range(4), **changes: Any) -> str:
    """Everything that was found over the seeds, in one text; empty if nothing was."""
    found: list[str] = []
    for seed in seeds:
        try:
            right, result = run(*args, seed=seed, **changes)
        except (EmulationError, DeadlockError) as error:
            found.append(str(error))
            continue
        found.extend(str(race) for race in result.races)
        if not right and not result.races:
            found.append("wrong values, nothing said")
    return "\n".join(found)


RULES = {
    # Order of accesses to tensor memory.
    "no fence after the wait": ({"FENCE_AFTER": ""}, "fence::after_thread_sync after the mbarrier wait"),
    "no wait for the commit": ({"WAIT": "__syncthreads()"}, "tcgen05.commit after the operation"),
    "no commit": ({"COMMIT": ""}, "deadlock"),
    "commit by another thread": (
        {"COMMIT": "} if (threadIdx.x == 64) { commit(&done)"}, "by the thread that issued it"
    ),
    "no wait::ld": ({"WAIT_LD": ""}, "read before tcgen05.wait::ld"),
    "wait::st for wait::ld": ({"WAIT_LD": "wait_st()"}, "read before tcgen05.wait::ld"),
    "dealloc while others read": ({"SYNC_END": ""}, "barrier or arrival"),
    # Shared memory, barriers.
    "no proxy fence after ordinary stores": ({"FENCE_PROXY": ""}, "fence.proxy.async after the generic access"),
    "no fence of the barrier's init": ({"FENCE_INIT": "", "FENCE_PROXY": "if (warp) fence_async()"}, "fence.mbarrier_init"),
    # Allocation.
    "no alloc": ({"ALLOC": "slot = 0", "DEALLOC": ""}, "owns no tensor memory"),
    "address taken to be 0": ({"ADDRESS": "slot * 0"}, "are not allocated"),
    "no dealloc": ({"DEALLOC": ""}, "did not deallocate"),
    "dealloc of half": ({"DEALLOC": "tmem_dealloc(address, 32)"}, "deallocated as it was allocated"),
    "dealloc twice": ({"DEALLOC": "tmem_dealloc(address, COLUMNS); tmem_dealloc(address, COLUMNS)"}, "owns no tensor memory"),
    "dealloc of another column": ({"DEALLOC": "tmem_dealloc(address + 32, COLUMNS)"}, "deallocated as it was allocated"),
    "alloc of 48 columns": ({"COLUMNS": "(blockDim.x - 80)"}, "must be a power of two in 32..512; nearest 32, 64"),
    "alloc of 1024 columns": ({"COLUMNS": "(blockDim.x * 8)"}, "must be a power of two in 32..512; nearest 512"),
    "alloc after relinquish": ({"PERMIT": "tmem_permit(); tmem_alloc(&slot, 32)"}, "after tcgen05.relinquish_alloc_permit"),
    "a larger alloc after a smaller": ({"ALLOC": "tmem_alloc(&slot, 32); tmem_alloc(&slot, COLUMNS)"}, "ask for the largest first"),
    "alloc that never fits": (
        {"ALLOC": "tmem_alloc(&slot, blockDim.x * 4); tmem_alloc(&slot, blockDim.x * 4)"}, "deadlock"
    ),
    "alloc by half a warp": ({"ALLOC": "if (threadIdx.x < 16) tmem_alloc(&slot, COLUMNS)"}, ".aligned"),
    # What may be touched.
    "mma beyond what is owned": ({"COLUMNS": "32"}, "which 32..63 are not allocated"),
    "ld beyond what is owned": ({"LANE": "(warp << 21) + 64"}, "tcgen05.ld uses columns"),
    "ld beyond tensor memory": ({"LANE": "(warp << 21) + 508"}, "there are columns 0..511"),
    "ld at another warp's lanes": ({"LANE": "((warp ^ 1) << 21)"}, "warp w reaches the lanes from 32 * (w % 4)"),
    "ld without a lane": ({"LANE": "0"}, "by warp 1 at lane 0"),
    "ld at lane 128": ({"LANE": "(128 << 16)"}, "there are 128 lanes"),
    "accumulating on what was never written": ({"KEEP": "1"}, "never written since its allocation"),
    "ld of what was never written": ({"COLUMNS": "128", "LANE": "(warp << 21) + 64"}, "never written since its allocation"),
    "64 rows read as if they were 128": ({"IDESC": "0x04100490"}, "never written since its allocation"),
    "address read before it is there": ({"STAGED": ""}, "shared"),
    "mma by every thread of a warp": (
        {"COMMIT": "commit(&done); } if (warp == 2) { fence_after(); mma(address, operand(tile_a), operand(tile_b), IDESC, 0)"}, "tcgen05.mma of thread 65"
    ),
    # Work that outlives the block.
    "a commit that nobody waits for": (
        {"DEALLOC": "tmem_dealloc(address, COLUMNS); } if (threadIdx.x == 32) { fence_after(); commit(&done); commit(&done); commit(&done)"},
        "before the block's end",
    ),
    # Descriptors.
    "instruction descriptor with a reserved bit": ({"IDESC": "0x08900490"}, "reserved"),
    "instruction descriptor of M = 32": ({"IDESC": "0x02100490"}, "m=32"),
    "instruction descriptor of N = 264": ({"IDESC": "0x08420490"}, "n=264"),
    "instruction descriptor with an unknown type": ({"IDESC": "0x08100610"}, "not defined for kind f16"),
    "instruction descriptor of sparse A": ({"IDESC": "0x08100494"}, "sparse"),
}  # fmt: skip


@pytest.mark.parametrize("fault", RULES)
def test_a_fault_in_the_textbook_kernel_is_found(fault: str) -> None:
    changes, message = RULES[fault]
    assert message in findings(run_textbook, **changes)


PIPELINE_RULES = {
    "slot refilled before its mma is done": (
        {"WAIT_FULL": "wait(&full[s], turn / 2 & 1); commit(&empty[s])", "COMMIT_SLOT": ""}, "tcgen05.commit after the operation that uses this memory"
    ),
    "slot refilled without a wait": ({"WAIT_EMPTY": ""}, "1 more arrivals in phase 0"),
    "slot released by an arrival instead of a commit": (
        {"COMMIT_SLOT": "arrive(&empty[s])"}, "tcgen05.commit after the operation that uses this memory"
    ),
    "slot read before it is full": ({"WAIT_FULL": "if (turn) wait(&full[s], turn / 2 & 1)"}, "a wait on the copy's mbarrier"),
    "accumulator overwritten while it is read": (
        {"WAIT_ACCUMULATOR": "", "ACCUMULATORS": "1"}, "a wait for it"
    ),
    "accumulator released before its loads are done": (
        {"WAIT_RESULT": "wait(&acc_full[e], t / ACCUMULATORS & 1); fence_before(); arrive(&acc_empty[e])", "EARLY": "", "ACCUMULATORS": "1"},
        "a barrier or arrival after tcgen05.wait::ld",
    ),
    "no fence before the release": ({"EARLY": "arrive(&acc_empty[e])", "ACCUMULATORS": "1"}, "fence::before_thread_sync"),
    "no fence after the release is seen": ({"MMA_FENCE_AFTER": "", "ACCUMULATORS": "1"}, "fence::after_thread_sync"),
    "no fence after the result": ({"EPILOGUE_FENCE_AFTER": ""}, "fence::after_thread_sync after the mbarrier wait"),
    "accumulator read before its commit": ({"WAIT_RESULT": ""}, "tcgen05"),
    "result committed to the wrong barrier": ({"COMMIT_ACCUMULATOR": "commit(&acc_full[e ^ 1])"}, "deadlock"),
    "no commit of the slots": ({"COMMIT_SLOT": ""}, "deadlock"),
    "too few bytes expected": ({"EXPECT": "expect(&full[s], 16384)"}, ""),
    "too many bytes expected": ({"EXPECT": "expect(&full[s], 49152)"}, "deadlock"),
    "the end without a barrier": ({"END": ""}, "tcgen05"),
}  # fmt: skip


@pytest.mark.parametrize("fault", PIPELINE_RULES)
def test_a_fault_in_the_pipeline_is_found(fault: str) -> None:
    changes, message = PIPELINE_RULES[fault]
    found = findings(run_pipeline, 3, 3, **changes)
    assert found
    assert message in found


PAIR_RULES = {
    "alloc before the pair is known to run": ({"SYNC_START": "__syncthreads()"}, "pair used before it is known to run"),
    "follower's tile not handed over": ({"SYNC_STAGED": "__syncthreads()"}, ""),
    "no proxy fence in the pair": ({"FENCE_PROXY": ""}, "fence.proxy.async after the generic access"),
    "commit reaches one block only": ({"COMMIT": "commit(&done)"}, "deadlock"),
    "issued by the follower": ({"ISSUER": "1"}, "only the even-ranked block"),
    "follower does not deallocate": ({"DEALLOC": "if (me == 0) tmem_dealloc(address, 64)"}, "did not deallocate"),
    "follower does not allocate": ({"ALLOC": "if (me == 0) tmem_alloc(&slot, 64)"}, "tcgen05.alloc.cta_group::2"),
    "pair asks for different numbers": ({"ALLOC": "tmem_alloc(&slot, me ? 64 : 32)"}, "asks for"),
    "mask names a block too many": ({"COMMIT": "commit_all(&done, 7)"}, "multicast mask 0x7 in a cluster of 2"),
    "pair without a cluster": ({"CLUSTER": "1", "blocks": 2, "COMMIT": "commit(&done)"}, "needs pairs of blocks"),
    "no barrier before the end": ({"SYNC_END": "__syncthreads()"}, "barrier or arrival"),
    "only one block waits for the other before the end": (
        {"SYNC_END": "__syncthreads(); if (warp == 0) { arrive_at(&leave, me ^ 1); if (me == 0) wait(&leave, 0); }"}, "barrier or arrival"
    ),
    "instruction descriptor of one block": ({"IDESC": "0x04100490"}, "m=64"),
    "follower ends at once": ({"SYNC_START": "cluster_sync(); if (me) return"}, "has ended"),
    "lanes arrive on a barrier that counts one": ({"SYNC_END": "HANDSHAKE", "COUNT": "1"}, "arrivals"),
    "peer's barrier not waited for": (
        {"SYNC_END": "__syncthreads(); if (warp == 0) arrive_at(&leave, me ^ 1)", "COUNT": "32"}, "before the block's end"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PAIR_RULES)
def test_a_fault_in_the_pair_is_found(fault: str) -> None:
    changes, message = PAIR_RULES[fault]
    found = findings(run_pair, **changes)
    assert found
    assert message in found


@pytest.mark.parametrize("fault", [
    "slot refilled before its mma is done", "slot released by an arrival instead of a commit", "accumulator overwritten while it is read",
    "accumulator released before its loads are done", "accumulator read before its commit", "no commit of the slots",
])  # fmt: skip
def test_what_no_compiler_relies_on_is_found_in_lenient_mode_too(fault: str) -> None:
    assert findings(run_pipeline, 3, 3, strict=False, **PIPELINE_RULES[fault][0])


@pytest.mark.parametrize(
    "changes", [{"EARLY": "arrive(&acc_empty[e])"}, {"MMA_FENCE_AFTER": ""}, {"EPILOGUE_FENCE_AFTER": ""}]
)
def test_fences_that_nvidias_kernels_lack_are_not_missed_in_lenient_mode(changes: dict[str, str]) -> None:
    assert findings(run_pipeline, 3, 3, strict=False, ACCUMULATORS="1", **changes) == ""
