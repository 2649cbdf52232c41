"""st.async into another block of a cluster, and the vector registers that compilers hand it."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationError, EmulationResult, UnsupportedInstruction, emulate_ptx

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"

# Block r sends words to the block r ^ 1, waits for its own, and writes them out.
EXCHANGE = """
.visible .entry k(.param .u64 out) {{
 .reg .b32 %r<20>; .reg .b64 %d<4>; .reg .pred %p<4>;
 .shared .align 16 .b8 box[32];
 .shared .align 8 .b64 bar;
 mov.u32 %r0, %cluster_ctarank;
 mov.b32 %r1, bar;
 mov.b32 %r2, box;
 xor.b32 %r3, %r0, 1;
 mbarrier.init.shared::cta.b64 [%r1], 1;
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {expected};
 fence.mbarrier_init.release.cluster;
 barrier.cluster.arrive;
 barrier.cluster.wait;
 mapa.shared::cluster.u32 %r4, %r2, %r3;
 mapa.shared::cluster.u32 %r5, %r1, %r3;
 mad.lo.u32 %r6, %r0, 100, 7;
 add.u32 %r7, %r6, 1;
 {send}
W:
 mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
 @!%p1 bra W;
 ld.shared.b32 %r8, [%r2];
 ld.shared.b32 %r9, [%r2+{second}];
 ld.param.u64 %d0, [out];
 mul.wide.u32 %d1, %r0, 8;
 add.u64 %d0, %d0, %d1;
 st.global.v2.b32 [%d0], {{%r8, %r9}};
 barrier.cluster.arrive;
 barrier.cluster.wait;
 ret;
}}
"""

FORMS = {
    "two scalars": (
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %r6, [%r5];"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4+4], %r7, [%r5];",
        8,
        4,
    ),
    "v2": ("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.s32 [%r4], {%r6, %r7}, [%r5];", 8, 4),
    "v4, a vector register": (
        "{ .reg .v4 .b32 q; mov.b32 q.x, %r6; mov.b32 q.y, 0; mov.b32 q.b, %r7; mov.b32 q.w, 0;"
        " st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4], q, [%r5]; }",
        16,
        8,
    ),
}


def exchange(send: str, expected: int, second: int, seed: int = 0) -> tuple[list[int], EmulationResult]:
    out = np.zeros(4, np.uint32)
    ptx = HEAD + EXCHANGE.format(send=send, expected=expected, second=second)
    result = emulate_ptx(ptx, "k", 2, 1, [out], cluster=2, seed=seed)
    return out.tolist(), result


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_each_block_gets_the_others_words(form: str, seed: int) -> None:
    values, result = exchange(*FORMS[form], seed=seed)
    assert values == [107, 108, 7, 8]
    assert not result.races


def test_destination_and_barrier_must_be_of_one_block() -> None:
    with pytest.raises(EmulationError, match="its mbarrier is in block"):
        exchange("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %r6, [%r1];", 8, 4)


def test_destination_must_be_aligned_to_the_whole_vector() -> None:
    with pytest.raises(EmulationError, match="must be a multiple of its 8 bytes"):
        exchange("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r4+4], {%r6, %r7}, [%r5];", 8, 4)


@pytest.mark.parametrize(
    "form",
    ["st.async.release.gpu.global.u32 [%d0], %r6;", "st.async.mbarrier::complete_tx::bytes.b8 [%d0], %r6, [%d1];"],
)
def test_forms_of_other_chips_are_refused(form: str) -> None:
    with pytest.raises(UnsupportedInstruction):
        exchange(form, 8, 4)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_reading_before_the_wait_is_a_race(seed: int) -> None:
    send = FORMS["v2"][0] + " st.shared.b32 [%r2], 0; st.shared.b32 [%r2+4], 0;"
    _, result = exchange(send, 8, 4, seed=seed)
    assert result.races
