"""mbarrier.try_wait may give up before the phase is complete; with a seed it sometimes does."""

from __future__ import annotations

import numpy as np

from .harness import run_cuda

SOURCE = """
extern "C" __global__ void k(unsigned *out) {
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned done;
        out[1] = 0;
        do {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
            out[1] += 1;
        } while (LOOP && !done);
        out[0] = done;
    } else if (threadIdx.x == 32) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
    }
}
"""


def outcomes(loop: int) -> tuple[set[int], set[int]]:
    """What 40 seeds return, and how often they tried."""
    done, tries = set(), set()
    for seed in range(40):
        out = np.zeros(2, np.uint32)
        run_cuda(SOURCE.replace("LOOP", str(loop)), "k", 1, 64, [out], seed=seed)
        done.add(int(out[0]))
        tries.add(int(out[1]))
    return done, tries


def test_a_single_try_is_not_a_wait() -> None:
    assert outcomes(0) == ({0, 1}, {1})


def test_a_loop_around_it_is() -> None:
    done, tries = outcomes(1)
    assert done == {1}
    assert max(tries) > 1
