"""A block's barriers must outlive what other blocks' arrivals do to them, each by itself: arrivals at different barriers may overtake each other."""

from __future__ import annotations

import pytest

from stridewright.codegen.build import build
from stridewright.codegen.emulator import emulate_ptx

# Block 1 arrives at two barriers of block 0, one after the other. Block 0 waits for one of them, for both, or for the cluster.
SOURCE = """
extern "C" __global__ void k() {
    __shared__ alignas(8) unsigned long long barriers[2];
    unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(barriers)), rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\\nmbarrier.init.shared::cta.b64 [%1], 1;" ::"r"(first), "r"(first + 8) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (rank == 1 && threadIdx.x == 0) {
        for (unsigned i = 0; i < 2; ++i) {
            asm volatile("{\\n.reg .b32 other;\\nmapa.shared::cluster.u32 other, %0, 0;\\nmbarrier.arrive.shared::cluster.b64 _, [other];\\n}" ::"r"(first + 8 * i) : "memory");
        }
    }
    if (rank == 0) {
        WAITS
    }
    END
}
"""
WAIT = """
        asm volatile("{\\n.reg .pred done;\\nagain:\\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\\n@done bra over;\\nbra again;\\nover:\\n}" ::"r"(first + NTH) : "memory");
"""
ALL = 'asm volatile("barrier.cluster.arrive.relaxed.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");'


@pytest.mark.parametrize(
    ("waited", "end", "found"),
    [
        ((0, 8), "", set()),
        ((8, 0), "", set()),
        ((8,), "", {"end with work in flight"}),
        ((0,), "", {"end with work in flight"}),
        ((), ALL, set()),
    ],
    ids=["both", "both, the later first", "the later only", "the earlier only", "the cluster's barrier"],
)
def test_each_arrival_is_waited_for_by_itself(waited: tuple[int, ...], end: str, found: set[str]) -> None:
    waits = "".join(WAIT.replace("NTH", str(nth)) for nth in waited)
    program = build(SOURCE.replace("WAITS", waits).replace("END", end), arch="sm_90a", strict=False)
    for seed in range(4):
        races = emulate_ptx(program.ptx, "k", 2, 32, [], cluster=2, seed=seed).races
        assert {race.kind for race in races} == found
        assert all("this very barrier" in race.missing for race in races)


def test_arrivals_in_the_block_itself_ask_for_nothing() -> None:
    source = SOURCE.replace("rank == 1 &&", "rank == 0 &&").replace("WAITS", "").replace("END", "")
    program = build(source, arch="sm_90a", strict=False)
    assert emulate_ptx(program.ptx, "k", 2, 32, [], cluster=2).races == ()
