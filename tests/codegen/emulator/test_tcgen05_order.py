"""Which pairs of tcgen05 instructions are ordered by themselves, and what orders the others (PTX ISA 9.1, section 9.7.16.6)."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError, EmulationResult, emulate_ptx
from stridewright.layout.hardware import instruction_descriptor, matrix_descriptor, smem_tile

from .test_tmem_moves import FILL, kernel

A = matrix_descriptor(smem_tile("none", "k", "bf16", 128, 16), "bf16", "sm_100a")
B = matrix_descriptor(smem_tile("none", "k", "bf16", 64, 16), "bf16", "sm_100a", address=4096)
C = matrix_descriptor(smem_tile("none", "k", "u8", 128, 32), "u8", "sm_100a")

SETUP = (
    FILL
    + f"and.b32 %t7, %t5, 262143; shr.u32 %t7, %t7, 4; cvt.u64.u32 %d3, %t7; add.u64 %d4, %d3, {A}; add.u64 %d5, %d3, {B}; add.u64 %d6, %d3, {C};"
    "setp.eq.u32 %p3, %t0, 1024;"
)


def mma(column: int = 0, n: int = 64, a: int | None = None) -> str:
    """An mma by thread 0 into a column, A from shared memory or from a column."""
    word = instruction_descriptor("f16", 128, n, "bf16", "bf16", "f32")
    left = "%d4" if a is None else f"[%t3+{a}]"
    return f"1 tcgen05.mma.cta_group::1.kind::f16 [%t3+{column}], {left}, %d5, {word}, %p3;"


def cp(column: int, shape: str = "128x256b") -> str:
    return f"1 add.u32 %t8, %t3, {column}; tcgen05.cp.cta_group::1.{shape} [%t8], %d6;"


COMMIT = "1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%t6];"
WAIT = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%t6], 0; @!%p2 bra again{n};"
AFTER = "tcgen05.fence::after_thread_sync;"
BEFORE = "tcgen05.fence::before_thread_sync;"
SYNC = "bar.sync 0;"


def ld(column: int = 0) -> str:
    return f"tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%w0, %w1}}, [%row+{column}];"


def st(column: int = 0) -> str:
    return f"tcgen05.st.sync.aligned.32x32b.x2.b32 [%row+{column}], {{%t0, %t1}};"


WAIT_LD, WAIT_ST = "tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;"
DONE = [COMMIT, WAIT, AFTER]


def races(steps: list[str], seed: int = 0, strict: bool = True) -> list[str]:
    """What is found when the steps are done."""
    return [str(race) for race in execute(steps, seed, strict).races]


def execute(steps: list[str], seed: int = 0, strict: bool = True, timeline: bool = False) -> EmulationResult:
    """Does the steps; those that begin with 1 are thread 0's."""
    lines = [SETUP]
    for number, step in enumerate(steps):
        if step.startswith("1 "):
            lines.append(f"@!%p1 bra skip{number}; {step[2:]} skip{number}:")
        elif "again" in step:
            lines.append(f"again{number}: {step.format(n=number)}")
        else:
            lines.append(step)
    before = np.ones((128, 512), np.float32).view(np.uint32)
    data = np.full(4096, 0x3F80, np.uint16).view(np.uint8)
    args = [before, before.copy(), data]
    return emulate_ptx(kernel("\n".join(lines)), "k", 1, 128, args, seed=seed, strict=strict, timeline=timeline)


ORDERED = {
    "mma, mma of one accumulator": [mma(), mma(), *DONE],
    "mma, mma of two accumulators": [mma(), mma(64), *DONE],
    "cp, mma": [cp(128), mma(a=128), *DONE],
    "cp, mma over it": [cp(0), mma(), *DONE],
    "mma, commit, wait, ld": [mma(), *DONE, ld(), WAIT_LD],
    "ld, wait, st": [ld(), WAIT_LD, st(), WAIT_ST],
    "st, wait, ld": [st(), WAIT_ST, ld(), WAIT_LD],
    "ld, ld": [ld(), ld(1).replace("%w0, %w1", "%w2, %w3"), WAIT_LD],
    "st, wait, fences, mma reads A": [st(128), WAIT_ST, BEFORE, SYNC, AFTER, mma(a=128), *DONE],
    "ld, wait, fences, mma overwrites": [ld(), WAIT_LD, BEFORE, SYNC, AFTER, mma(), *DONE],
}  # fmt: skip

PIPELINED = "are pipelined"
UNORDERED = {
    "mma, mma of another shape": ([mma(), mma(n=32), *DONE], PIPELINED),
    "mma, mma that overlaps": ([mma(), mma(32), *DONE], PIPELINED),
    "mma, cp over its A": ([mma(a=128), cp(128), *DONE], PIPELINED),
    "mma, cp over its accumulator": ([mma(), cp(32), *DONE], PIPELINED),
    "cp, cp": ([cp(0), cp(4), *DONE], PIPELINED),
    "mma reads what mma writes": ([mma(128), mma(a=128), *DONE], PIPELINED),
    "mma, ld": ([mma(), ld(), WAIT_LD, *DONE], "tcgen05.commit after the operation"),
    "cp, ld": ([cp(0), ld(), WAIT_LD, *DONE], "tcgen05.commit after the operation"),
    "mma, st": ([mma(), st(), WAIT_ST, *DONE], "tcgen05.commit after the operation"),
    "commit before the mma": ([COMMIT, mma(), WAIT, AFTER, ld(), WAIT_LD], "tcgen05.commit after the operation"),
    "mma, commit, wait, ld without a fence": ([mma(), COMMIT, WAIT, ld(), WAIT_LD], "fence::after_thread_sync after the mbarrier wait"),
    "ld, st without wait::ld": ([ld(), st(), WAIT_ST, WAIT_LD], "tcgen05.wait::ld after the access"),
    "st, ld without wait::st": ([st(), ld(), WAIT_LD, WAIT_ST], "tcgen05.wait::st after the access"),
    "st, st": ([st(), st(1), WAIT_ST], "tcgen05.wait::st after the access"),
    "st, mma without wait::st": ([st(128), BEFORE, SYNC, AFTER, mma(a=128), *DONE, WAIT_ST], "tcgen05.wait::st after the access"),
    "st, mma without fence::before": (
        [st(128), WAIT_ST, SYNC, AFTER, mma(a=128), *DONE], "fence::before_thread_sync after tcgen05.wait::st"
    ),
    "st, mma without fence::after": ([st(128), WAIT_ST, BEFORE, SYNC, mma(a=128), *DONE], "fence::after_thread_sync after the barrier"),
    "st, mma without a barrier": ([st(128), WAIT_ST, BEFORE, AFTER, mma(a=128), *DONE], "a barrier or arrival after tcgen05.wait::st"),
    "ld, mma without wait::ld": ([ld(), BEFORE, SYNC, AFTER, mma(), *DONE, WAIT_LD], "tcgen05.wait::ld after the access"),
    "ld, mma without fence::before": ([ld(), WAIT_LD, SYNC, AFTER, mma(), *DONE], "fence::before_thread_sync after tcgen05.wait::ld"),
}  # fmt: skip
LENIENT = ("mma, cp over its A", "mma, mma of another shape", "mma, commit, wait, ld without a fence", "ld, mma without wait::ld",
           "ld, mma without fence::before", "st, mma without fence::after", "ld, st without wait::ld")  # fmt: skip


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str) -> None:
    for seed in range(3):
        assert races(ORDERED[name], seed) == []


@pytest.mark.parametrize("name", UNORDERED)
def test_what_nothing_orders_is_a_race(name: str) -> None:
    steps, missing = UNORDERED[name]
    found = races(steps)
    assert any(missing in race for race in found), found


@pytest.mark.parametrize("name", LENIENT)
def test_what_nvidias_kernels_rely_on_passes_in_lenient_mode(name: str) -> None:
    for seed in range(3):
        assert races(UNORDERED[name][0], seed, strict=False) == []


@pytest.mark.parametrize("name", ["mma, ld", "cp, ld", "mma, st", "commit before the mma"])
def test_a_missing_commit_is_a_race_in_lenient_mode_too(name: str) -> None:
    assert races(UNORDERED[name][0], strict=False)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([ld(), ld(1), WAIT_LD], "is written before tcgen05.wait::ld"),
        ([ld(), "add.u32 %w0, %t0, 1;", WAIT_LD], "is written before tcgen05.wait::ld"),
        ([ld(), "add.u32 %w8, %w1, 1;", WAIT_LD], "is read before tcgen05.wait::ld"),
        ([ld(), WAIT_ST, "add.u32 %w8, %w1, 1;", WAIT_LD], "is read before tcgen05.wait::ld"),
        ([ld(), st().replace("%t1", "%w1"), WAIT_LD], "is read before tcgen05.wait::ld"),
    ],
)
def test_registers_of_a_load_are_nobodys_before_its_wait(steps: list[str], message: str) -> None:
    for seed in range(2):
        with pytest.raises(EmulationError, match=message):
            races(steps, seed)
    races([*steps, WAIT_ST], strict=False)


def order_of(steps: list[str], seed: int) -> list[int]:
    """In which order the products of thread 0 are done, by the order of their issue."""
    done = [event.done for event in execute(steps, seed, timeline=True).tensor_memory if event.what in ("mma", "cp")]
    return sorted(range(len(done)), key=done.__getitem__)


def test_operations_that_nothing_orders_are_done_in_any_order() -> None:
    free = {tuple(order_of([mma(), mma(64), cp(128, "4x256b"), mma(192), *DONE], seed)) for seed in range(12)}
    assert len(free) > 3
    assert order_of([mma(), mma(64), cp(128, "4x256b"), mma(192), *DONE], 0) == [0, 1, 2, 3]
    # cp -> mma: the third is never done before the second, whatever happens to the rest.
    assert all(
        order.index(1) < order.index(2) for order in (order_of([mma(), cp(128), mma(64), *DONE], s) for s in range(8))
    )
    assert {tuple(order_of([mma(), mma(), mma(), *DONE], seed)) for seed in range(8)} == {(0, 1, 2)}
