"""Faults planted in the kernel are found: a wrong value, a deadlock report, a race or an error; never a pass."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.emulator import DeadlockError, EmulationError
from stridewright.codegen.source import whole
from stridewright.kernels.config import GemmConfig


def planted(old: str, new: str, count: int = 1, **parameters: object) -> Gemm:
    """A GEMM of four tiles on two CTAs whose source has ``old`` replaced by ``new``; the source must hold it ``count`` times."""
    gemm = Gemm(256, 256, 320, config=GemmConfig().replace(**{"tile_m": 128, "tile_n": 128, "stages": 3, **parameters}))
    source = whole(gemm.derivation.config)  # in full: the faults are planted in what is written by hand
    assert source.count(old) == count, f"{old!r} stands {source.count(old)} times in the source"
    # Not strict: the assembler would repair or refuse some of these faults, and here the emulator is asked.
    gemm.__dict__["build"] = build(source.replace(old, new), arch="sm_90a", strict=False)
    return gemm


def verdict(gemm: Gemm, seeds: int = 3, sms: int = 2) -> str:
    """What the emulator makes of this kernel: "pass", or what it found first, over a few legal orders of completion."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (rows, gemm.k)).astype(ml_dtypes.bfloat16) for rows in (gemm.m, gemm.n))
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
    for seed in range(seeds):
        try:
            emulation = gemm.emulate(a, b, seed=seed, sms=sms)
        except DeadlockError as error:
            return f"deadlock: {error}"
        except EmulationError as error:
            return f"error: {error}"
        if emulation.races:
            return f"race: {emulation.races[0]}"
        if not (emulation.d.view(np.uint16) == exact.view(np.uint16)).all():
            return "wrong value"
    return "pass"


def test_the_kernel_without_a_fault_passes() -> None:
    gemm = Gemm(256, 256, 320, config=GemmConfig().replace(tile_m=128, tile_n=128, stages=3))
    assert verdict(gemm, seeds=8) == "pass"


def test_a_wrong_initial_phase_deadlocks() -> None:
    found = verdict(planted("at.parity ^ 1)", "at.parity)"))
    assert found.startswith("deadlock")


@pytest.mark.parametrize("bytes_more", [1, -1, 16, -16])
def test_expecting_other_bytes_than_arrive_is_found(bytes_more: int) -> None:
    found = verdict(planted("A_SLOT_BYTES + B_SLOT_BYTES)", f"A_SLOT_BYTES + B_SLOT_BYTES + ({bytes_more}))"))
    assert found.startswith(("deadlock", "error"))


def test_a_deadlock_report_says_who_waits_where_for_what() -> None:
    report = verdict(planted("A_SLOT_BYTES + B_SLOT_BYTES)", "A_SLOT_BYTES + B_SLOT_BYTES + 1)"))
    assert "parity" in report
    assert "pending" in report
    assert "mbarrier" in report
    assert "line" in report or ".cu:" in report


def test_releasing_a_slot_twice_is_found() -> None:
    found = verdict(
        planted("ring.release(previous);\n        }", "ring.release(previous); ring.release(previous);\n        }")
    )
    assert found != "pass"


def test_a_missing_wait_for_a_free_slot_is_named() -> None:
    """The producer arms a barrier whose phase has not ended."""
    found = verdict(planted("            ring.wait_empty(at);\n", ""))
    assert "a missing wait before this arrival" in found


def test_releasing_a_slot_while_it_is_still_read_is_found() -> None:
    found = verdict(planted("wgmma_wait<1>();    // the", "// the"))
    assert found != "pass"


def test_swapping_the_descriptor_s_offsets_is_found() -> None:
    found = verdict(planted("A_DESCRIPTOR = 0x4000004000010000ull", "A_DESCRIPTOR = 0x4000000100400000ull"))
    assert found == "wrong value"


@pytest.mark.parametrize("mode", ["0x0", "0x8", "0xc"])
def test_another_swizzle_mode_in_the_descriptor_is_found(mode: str) -> None:
    found = verdict(planted("B_DESCRIPTOR = 0x4000004000010000ull", f"B_DESCRIPTOR = {mode}000004000010000ull"))
    assert found != "pass"


def test_a_missing_arrival_deadlocks() -> None:
    found = verdict(planted("mbarrier_arrive(empty_barrier(slot))", "(void)slot"))
    assert found.startswith("deadlock")


def test_an_empty_barrier_that_does_not_wait_for_the_last_warp_is_an_error() -> None:
    # Too few k-tiles for the surplus arrivals to add up to a whole warpgroup's: no value and no order of warpgroups shows it.
    found = verdict(planted("SLOT_READERS * 4 * CLUSTER_PEERS);", "SLOT_READERS * 4 * CLUSTER_PEERS - 1);"), seeds=1)
    assert found.startswith("error")
    assert "completed with 3 of the 4 arrivals" in found


def test_a_barrier_inside_a_live_tma_destination_is_an_error() -> None:
    gemm = planted("FULL_BARRIERS_OFFSET = 114688;", "FULL_BARRIERS_OFFSET = 64;", buffers=1)
    found = verdict(gemm)
    assert found.startswith(("error", "deadlock"))


def test_a_wrong_k_step_is_found() -> None:
    step = "a_step_advance(uint32 step) {\n    return step << 1;"
    assert verdict(planted(step, step.replace("step << 1", "step << 2"))) != "pass"
    assert verdict(planted(step, step.replace("step << 1", "0 * step"))) == "wrong value"


def test_a_missing_proxy_fence_before_the_tma_store_is_found() -> None:
    assert verdict(planted("            fence_async_proxy();\n", "")) != "pass"


def test_a_missing_wgmma_fence_is_found() -> None:
    assert verdict(planted("        wgmma_fence();\n", "")) != "pass"


def test_reading_accumulators_before_the_wait_is_found() -> None:
    assert verdict(planted("        wgmma_wait<0>();\n", "")) != "pass"


def test_overwriting_a_staging_panel_that_is_still_stored_is_found() -> None:
    assert verdict(planted("tma_store_wait_read<STAGING_BUFFERS - 1>()", "(void)0")) != "pass"


def test_a_ring_position_that_restarts_at_each_tile_is_found() -> None:
    found = verdict(
        planted(
            "        Accumulator accumulators[STRIPS][TILE_N / 2];\n",
            "        at = RingPosition();\n        Accumulator accumulators[STRIPS][TILE_N / 2];\n",
        )
    )
    assert found != "pass"


def test_registers_beyond_the_launch_s_pool_are_found() -> None:
    found = verdict(planted("CONSUMER_REGISTERS = 232;", "CONSUMER_REGISTERS = 248;"))
    assert found.startswith(("deadlock", "error"))
    assert "setmaxnreg" in found


PINGPONG = {"schedule_kind": "pingpong", "tile_n": 64}


def test_ping_pong_without_turns_is_found() -> None:
    found = verdict(
        planted(
            "        if (PINGPONG) named_barrier_sync<CONSUMER_THREADS>(TURN_BARRIERS + consumer);\n", "", **PINGPONG
        ),
        seeds=8,
    )
    assert found != "pass"


def test_ping_pong_whose_first_turn_is_nobody_s_deadlocks() -> None:
    found = verdict(planted("        named_barrier_arrive<CONSUMER_THREADS>(TURN_BARRIERS);", "", **PINGPONG))
    assert found.startswith("deadlock")


def test_a_ping_pong_consumer_that_does_not_skip_the_other_s_slots_is_found() -> None:
    skip = "            scheduler.pass();\n            at.skip(tile_k_blocks);\n"
    assert verdict(planted(skip, "            scheduler.pass();\n", **PINGPONG)) != "pass"


CLUSTER = {"cluster_m": 2, "tile_n": 64}


def test_a_slice_sent_to_the_wrong_ctas_is_found() -> None:
    mask = "static_cast<uint16>(((1u << CLUSTER_M) - 1) << (column * CLUSTER_M))"
    assert verdict(planted(mask, "static_cast<uint16>(1)", **CLUSTER)) != "pass"


def test_a_slot_released_to_its_own_cta_only_is_found() -> None:
    release = "mbarrier_arrive_remote(empty_barrier(slot), place.peer(threadIdx.x % 32));"
    assert verdict(planted(release, "mbarrier_arrive(empty_barrier(slot));", **CLUSTER)) != "pass"


def test_barriers_used_before_the_peer_has_initialised_them_are_found() -> None:
    sync = "        cluster_sync_relaxed();    // the peers' barriers must be ready before anything arrives at them\n"
    assert verdict(planted(sync, "        __syncthreads();\n", **CLUSTER), seeds=8) != "pass"


def test_leaving_while_a_peer_still_writes_is_found() -> None:
    assert verdict(planted("    if (CLUSTER_SIZE > 1) ring.drain(at);\n", "", **CLUSTER), seeds=8) != "pass"


def test_leaving_before_the_last_slot_is_drained_is_found() -> None:
    drain = "slot < STAGES; ++slot) {\n            wait_empty(at);"
    assert verdict(planted(drain, drain.replace("STAGES", "STAGES - 1"), **CLUSTER), seeds=8) != "pass"


BEFORE = "    // Nothing is loaded before that has ended, and so nothing is stored: the consumers wait for slots that are filled after this.\n"
ADVANCE = "            at.advance();\n        }\n    }\n    if (CLUSTER_SIZE > 1)"


def waits_for_the_grid_before(gemm: Gemm) -> bool:
    """Whether griddepcontrol.wait stands before every load in the PTX, outside of any loop: the emulator runs a grid alone and cannot ask."""
    before, found, _ = gemm.build.ptx.partition("griddepcontrol.wait")
    return bool(found) and "cp.async.bulk.tensor.2d.shared::cluster" not in before


@pytest.mark.parametrize("parameters", [{}, PINGPONG, CLUSTER], ids=str)
def test_nothing_is_loaded_before_the_grid_before_has_ended(parameters: dict[str, object]) -> None:
    assert waits_for_the_grid_before(planted("    dependency_wait();\n", "    dependency_wait();\n", **parameters))
    assert not waits_for_the_grid_before(planted(BEFORE + "    dependency_wait();\n", "", **parameters))


def test_waiting_for_the_grid_before_after_the_first_load_is_found() -> None:
    gemm = Gemm(256, 256, 320, config=GemmConfig().replace(tile_m=128, tile_n=128, stages=3))
    source = whole(gemm.derivation.config).replace(BEFORE + "    dependency_wait();\n", "")
    assert source.count(ADVANCE) == 1
    late = source.replace(ADVANCE, "            dependency_wait();\n" + ADVANCE)
    gemm.__dict__["build"] = build(late, arch="sm_90a", strict=False)
    assert "griddepcontrol.wait" in gemm.build.ptx
    assert not waits_for_the_grid_before(gemm)


def test_storing_swapped_panels_without_transposing_is_a_wrong_value() -> None:
    gemm = planted(".x4.trans.shared", ".x4.shared", swap=True, tile_m=64, tile_n=32, consumers=1)
    assert verdict(gemm) == "wrong value"


# ---- tiles whose K is shared: each of the four among two CTAs ------------------------------------------------------------

WAIT = "if (consumer == 0 && leads_warpgroup()) global_wait(counter(block), count);"
WRITTEN = (
    "        named_barrier_sync<CONSUMER_THREADS>(PARTIAL_SUMS_BARRIER);    // all of this CTA's sums are written\n"
)


@pytest.mark.parametrize("parameters", [{"reduce": "ordered"}, {"reduce": "atomic"}, {"cluster_n": 2}], ids=str)
def test_the_split_kernel_itself_is_right(parameters: dict[str, object]) -> None:
    gemm = planted("SPLIT = true;", "SPLIT = (true);", split_kind="split", parts=2, **parameters)
    assert verdict(gemm, seeds=3, sms=8) == "pass"


@pytest.mark.parametrize("reduce", ["ordered", pytest.param("atomic", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        (WAIT, "", ("race", "wrong")),
        (WAIT, WAIT.replace("count)", "count - 1)"), ("race", "wrong")),
        (WAIT, WAIT.replace("count)", "count + 1)"), ("deadlock",)),
        (WRITTEN, "", ("race", "wrong")),
        ("ld.acquire.gpu.global.u32", "ld.relaxed.gpu.global.u32", ("race",)),
        ("atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32", ("race",)),
        ("part == 0)[fragment]", "part != 0)[fragment]", ("wrong", "race", "error")),
        ("(cluster - first) * CONSUMER_THREADS + thread", "thread", ("wrong", "race")),
    ],
    ids=[
        "no wait",
        "one too few",
        "one too many",
        "counted too early",
        "no acquire",
        "no release",
        "wrong place",
        "same part",
    ],
)
def test_a_fault_of_the_hand_over_is_found(old: str, new: str, seen: tuple[str, ...], reduce: str) -> None:
    if "part == 0" in old and reduce == "atomic":
        pytest.skip("sums that are added in place have one place")
    assert verdict(planted(old, new, split_kind="split", parts=2, reduce=reduce), seeds=3, sms=8).startswith(seen)
