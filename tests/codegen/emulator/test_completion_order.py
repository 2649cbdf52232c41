"""What the completion of a bulk copy orders: its own bytes, and nothing that its issuer did before (PTX ISA, "Async operations")."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationResult

from .harness import run_cuda

SOURCE = """
extern "C" __global__ void k(const unsigned *from, unsigned *out) {
    __shared__ alignas(16) unsigned copied[4], stored;
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(copied);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        stored = 7;
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::"r"(to), "l"(from), "r"(at) : "memory");
        ARRIVE_BY_ISSUER
    }
    if (threadIdx.x == 32) {
        ARRIVE_BY_OTHER
        asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(at) : "memory");
        out[0] = copied[3];
        out[1] = *reinterpret_cast<volatile unsigned *>(&stored);
    }
}
"""
ARRIVE = 'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(at) : "memory");'


def run(issuer: str, other: str, strict: bool = True) -> EmulationResult:
    source = SOURCE.replace("ARRIVE_BY_ISSUER", issuer).replace("ARRIVE_BY_OTHER", other)
    return run_cuda(source, "k", 1, 64, [np.arange(4, dtype=np.uint32), np.zeros(2, np.uint32)], strict=strict)


def test_an_arrival_passes_on_what_its_thread_did() -> None:
    assert run(ARRIVE, "").races == ()


def test_a_copy_s_completion_does_not_pass_on_what_its_issuer_did() -> None:
    races = run("", ARRIVE).races
    assert [race.kind for race in races] == ["read after write"]
    assert "st." in races[0].first.operation
    assert "ld." in races[0].second.operation


@pytest.mark.parametrize(("issuer", "other"), [(ARRIVE, ""), ("", ARRIVE)])
def test_lenient_mode_takes_it_as_passed_on(issuer: str, other: str) -> None:
    assert run(issuer, other, strict=False).races == ()
