"""The mbarrier's state machine: phases, parities, transaction bytes, tokens, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.codegen.emulator.faults import MbarrierError
from stridewright.codegen.emulator.mbarrier import MAX_COUNT, MAX_TX, Mbarrier, token_pending


def fresh(count: int = 1) -> Mbarrier:
    """A barrier in phase 0."""
    barrier = Mbarrier(0x400)
    barrier.init(count)
    return barrier


def test_one_iteration_with_arrive_expect_tx_completes_when_the_last_byte_lands() -> None:
    full = fresh()
    full.arrive_expect_tx(32768)
    assert not full.test_parity(0)
    assert not full.complete_tx(16384)
    assert full.complete_tx(16384)
    assert full.test_parity(0)
    assert not full.test_parity(1)


def test_expect_tx_without_arrive_never_completes() -> None:
    full = fresh()
    full.expect_tx(32768)
    full.complete_tx(32768)
    assert not full.test_parity(0)
    assert (full.pending, full.tx) == (1, 0)


def test_parities_of_a_ring_and_of_a_single_slot() -> None:
    stages, ring, seen = 3, [fresh() for _ in range(3)], []
    for k in range(6):
        barrier = ring[k % stages]
        parity = k // stages % 2
        assert not barrier.test_parity(parity)
        barrier.arrive()
        assert barrier.test_parity(parity)
        seen.append(parity)
    assert seen == [0, 0, 0, 1, 1, 1]
    single = fresh()
    for k in range(6):
        assert not single.test_parity(k % 2)
        single.arrive()
        assert single.test_parity(k % 2)


def test_the_opposite_parity_passes_at_once_on_a_fresh_barrier() -> None:
    assert fresh().test_parity(1)
    assert fresh().target_phase(1) is None
    assert fresh().target_phase(0) == 0


@given(st.integers(1, 6), st.lists(st.sampled_from(["arrive", "expect", "complete"]), max_size=60))
def test_a_phase_completes_exactly_when_arrivals_and_bytes_are_in(count: int, steps: list[str]) -> None:
    barrier = fresh(count)
    pending, due, phase = count, 0, 0
    for step in steps:
        if step == "arrive":
            if pending == 0:
                continue
            barrier.arrive()
            pending -= 1
        elif step == "expect":
            barrier.expect_tx(16)
            due += 16
        else:
            barrier.complete_tx(16)
            due -= 16
        if pending == 0 and due == 0:
            pending, phase = count, phase + 1
        assert (barrier.pending, barrier.tx, barrier.phase) == (pending, due, phase)


def test_bytes_may_land_before_they_are_expected() -> None:
    barrier = fresh()
    assert not barrier.complete_tx(64)
    assert barrier.tx == -64
    barrier.arrive_expect_tx(64)
    assert barrier.phase == 1


def test_too_many_bytes_keep_the_phase_open() -> None:
    barrier = fresh()
    barrier.arrive_expect_tx(64)
    assert not barrier.complete_tx(80)
    assert not barrier.test_parity(0)


def test_tokens_tell_their_phase_and_what_was_pending() -> None:
    barrier = fresh(2)
    first = barrier.arrive()
    assert token_pending(first) == 2
    assert not barrier.test_state(first)
    second = barrier.arrive()
    assert token_pending(second) == 1
    assert barrier.test_state(first)
    assert barrier.test_state(second)
    barrier.arrive(2)
    with pytest.raises(MbarrierError, match="token of phase 0, but phase 2"):
        barrier.test_state(first)


def test_arrive_drop_lowers_the_count_of_later_phases() -> None:
    barrier = fresh(3)
    barrier.arrive(drop=True)
    barrier.arrive(2)
    assert (barrier.phase, barrier.pending, barrier.expected) == (1, 2, 2)


def test_phases_follow_one_another_without_end() -> None:
    barrier = fresh(2)
    for phase in range(40):
        assert barrier.phase == phase
        barrier.arrive(2)


def test_a_barrier_may_live_again_after_inval() -> None:
    barrier = fresh(2)
    barrier.arrive()
    barrier.invalidate()
    barrier.init(1)
    assert (barrier.phase, barrier.pending) == (0, 1)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: fresh(0), "count 0; allowed are 1 to 1048575"),
        (lambda: fresh(MAX_COUNT + 1), "count 1048576"),
        (lambda: fresh().init(1), "initialised again"),
        (lambda: fresh().arrive(2), "2 more arrivals in phase 0, which waits for 1 of 1"),
        (lambda: fresh().arrive(0), "arrive with count 0"),
        (lambda: fresh().expect_tx(MAX_TX + 1), "transaction count ends"),
        (lambda: fresh().expect_tx(-16), "expect_tx of -16"),
        (lambda: fresh().complete_tx(MAX_TX + 1), "transaction count ends"),
        (lambda: fresh().test_parity(2), "parity 2"),
        (lambda: fresh().arrive(no_complete=True), "arrive.noComplete"),
        (lambda: fresh().arrive(drop=True), "dropped out"),
        (lambda: Mbarrier(0).arrive(), "before mbarrier.init"),
        (lambda: Mbarrier(0).complete_tx(16), "complete_tx on before mbarrier.init"),
        (lambda: Mbarrier(0).test_parity(0), "waited on before"),
        (lambda: Mbarrier(0).invalidate(), "invalidated before"),
    ],
)
def test_misuse_is_an_error(act: Callable[[], object], words: str) -> None:
    with pytest.raises(MbarrierError, match=words):
        act()


def test_a_slot_released_twice_is_an_error_once_the_phase_waits_for_bytes() -> None:
    barrier = fresh()
    barrier.arrive_expect_tx(128)
    with pytest.raises(MbarrierError, match="slot released twice"):
        barrier.arrive(where="gemm.cu:80", who="warp 4")


def test_expected_bytes_add_up_to_the_limit_and_not_beyond() -> None:
    barrier = fresh()
    barrier.expect_tx(MAX_TX)
    with pytest.raises(MbarrierError, match="with 1048575 due"):
        barrier.expect_tx(1)


def test_a_barrier_with_bytes_due_cannot_be_invalidated() -> None:
    barrier = fresh()
    barrier.arrive_expect_tx(128)
    with pytest.raises(MbarrierError, match="128 bytes of phase 0 are still due"):
        barrier.invalidate()


def test_history_and_description_name_who_arrived_where() -> None:
    barrier = fresh(2)
    barrier.arrive(where="gemm.cu:80", who="warp 4")
    barrier.expect_tx(256, where="gemm.cu:40", who="warp 0")
    assert barrier.describe() == "mbarrier 0x400: phase 0 (parity 0) waits for 1 of 2 arrivals and 256 bytes"
    lines = [str(one) for one in barrier.history]
    assert lines[1] == "phase 0: arrive 1 by warp 4 at gemm.cu:80 -> 1 pending, 0 bytes due"
    assert lines[2] == "phase 0: expect_tx 256 by warp 0 at gemm.cu:40 -> 1 pending, 256 bytes due"
    assert Mbarrier(8).describe() == "mbarrier 0x8: not initialised"
