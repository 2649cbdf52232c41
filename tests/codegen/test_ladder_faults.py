"""Faults planted in the rungs of the ladder are found: a wrong value, a deadlock report, a race or an error; never a pass."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.build import build
from stridewright.codegen.emulator import DeadlockError, EmulationError
from stridewright.codegen.ladder import ProductRung, Rung, rungs
from stridewright.kernels.ladder import RUNGS

# Several tiles a CTA, turns of the ring that do not end with a tile, ragged edges.
SHAPE = (257, 520, 424)
ONE_TILE_A_CTA = (129, 136, 424)
NUMBERS = [spec.number for spec in RUNGS]


def rung(number: str) -> Rung:
    place = NUMBERS.index(number)
    return rungs(*(ONE_TILE_A_CTA if place < NUMBERS.index("6") else SHAPE))[place]


def planted(number: str, old: str, new: str) -> Rung:
    """The rung with ``old``, which its source must hold once, replaced by ``new``."""
    made = rung(number)
    source = made.source
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in rung {number}"
    # Not strict: the assembler would repair or refuse some of these faults, and here the emulator is asked.
    faulty: Any = made.gemm if isinstance(made, ProductRung) else made
    faulty.__dict__["build"] = build(source.replace(old, new), arch="sm_90a", strict=False)
    return made


def verdict(made: Rung, seeds: int = 3) -> str:
    """What the emulator makes of this kernel: "pass", or what it found first, over a few legal orders of events."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (rows, made.k)).astype(ml_dtypes.bfloat16) for rows in (made.m, made.n))
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
    for seed in range(seeds):
        try:
            emulation = made.emulate(a, b, seed=seed, sms=2)
        except DeadlockError as error:
            return f"deadlock: {error}"
        except EmulationError as error:
            return f"error: {error}"
        if emulation.races:
            return f"race: {emulation.races[0]}"
        if not (emulation.d.view(np.uint16) == exact.view(np.uint16)).all():
            return "wrong value"
    return "pass"


EXPECT = "A_SLOT_BYTES + B_SLOT_BYTES);"

FAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "1b": {
        "no fence between reads and the copy engine": ("        fence_async_proxy();\n", ""),
        "no barrier before the tiles are overwritten": ("fence_async_proxy();\n        __syncthreads();", "fence_async_proxy();"),
        "a parity that does not turn": ("        parity ^= 1;\n", ""),
    },
    "2": {
        "multiplies not awaited": ("        wgmma_wait<0>();\n", ""),
        "multiplying before the tiles have arrived": ("        mbarrier_wait(loaded, parity);\n", ""),
        "no fence before the first multiply": ("        wgmma_fence();\n", ""),
    },
    "3": {
        "another number of bytes expected": (EXPECT, "A_SLOT_BYTES + B_SLOT_BYTES + 16);"),
        "the second block's rows read twice": ("block * A_BLOCK_BYTES", "A_BLOCK_BYTES"),
    },
    "4": {
        "slots not free at first": ("    for (uint32 slot = 0; slot < STAGES; ++slot) ring.release(slot);    // at first", "    // at first"),
        "one arrival too few in empty": ("mbarrier_init(empty + slot * 8, 1 + CONSUMER_THREADS);", "mbarrier_init(empty + slot * 8, CONSUMER_THREADS);"),
        "multiplying before the slot is full": ("        ring.wait_full(slot);\n", ""),
    },
    "5": {
        "a slot given back before the multiplies have read it": ("        wgmma_wait<0>();\n        ring.release(slot);    // the", "        ring.release(slot);\n        wgmma_wait<0>();    // the"),
        "refilling without waiting": ("        ring.wait_empty(slot);\n", ""),
        "both consumers multiply the same rows": ("consumer * M_BLOCKS", "0 * M_BLOCKS"),
    },
    "6": {
        "the producer's ring starts anew with each tile": ("    while (scheduler.take(tile)) {\n        for", "    while (scheduler.take(tile)) {\n        turn = 0;\n        for"),
        "tiles skipped": ("next += gridDim.x;", "next += 2 * gridDim.x;"),
    },
    "7": {
        "the wrong initial phase": ("turn / STAGES % 2 ^ 1", "turn / STAGES % 2"),
        "empty before the last warp has read": ("mbarrier_init(empty + slot * 8, CONSUMER_WARPS);", "mbarrier_init(empty + slot * 8, CONSUMER_WARPS - 1);"),
        "every lane arrives": ("if (elect_one()) mbarrier_arrive(", "mbarrier_arrive("),
    },
    "8": {
        "a slot released to its own CTA only": ("mbarrier_arrive_remote(empty + slot * 8, lane);", "mbarrier_arrive_remote(empty + slot * 8, cluster_rank());"),
        "a slice sent to one CTA only": ("(1 << CLUSTER_M) - 1;", "1;"),
        "barriers used before the peer has initialised them": ("    cluster_sync_relaxed();    // the other CTAs' barriers", "    __syncthreads();    // the other CTAs' barriers"),
        "leaving while a peer still writes": ("    __syncwarp();\n    cluster_sync_relaxed();", ""),
    },
    "9": {
        "a sum that does not start anew": ("k_first > 0 || step > 0", "true"),
        "a parity that does not turn": ("            parity ^= 1;\n", ""),
        "multiplies not awaited": ("            wgmma_wait<0>();\n            ring", "            ring"),
    },
    "9b": {
        "the multiplies of the slot before not awaited": ("                wgmma_wait<1>();    // the", "                // the"),
        "the slot that is being read released": ("                ring.release(previous);\n            }\n            previous", "                ring.release(at.slot);\n            }\n            previous"),
        "the last batch not awaited": ("        wgmma_wait<0>();\n        ring", "        ring"),
        "the last slot of a tile kept": ("        wgmma_wait<0>();\n        ring.release(previous);\n", "        wgmma_wait<0>();\n"),
    },
    "10": {
        "no fence between stmatrix and the copy engine": ("            fence_async_proxy();\n", ""),
        "a panel overwritten while it is stored": ("if (first_thread) tma_store_wait_read<STAGING_BUFFERS - 1>();", ""),
        "storing before all warps have written": ("            fence_async_proxy();\n            named_barrier_sync<128>(barrier);", "            fence_async_proxy();"),
        "leaving before the stores have read": ("if (threadIdx.x % 128 == 0) tma_store_wait_read<0>();", ""),
    },
    "11": {
        "rows and columns of the table mixed up": ("tile = {((place & 0xffff) * CLUSTER_M + cluster_rank()) * TILE_M, (place >> 16) * TILE_N};", "tile = {((place >> 16) * CLUSTER_M + cluster_rank()) * TILE_M, (place & 0xffff) * TILE_N};"),
        "every second tile of a cluster left out": ("next += gridDim.x / CLUSTER_M;", "next += gridDim.x;"),
    },
    "12": {
        "another number of bytes expected": ("A_SLOT_BYTES + B_SLOT_BYTES)", "A_SLOT_BYTES + B_SLOT_BYTES + 16)"),
        "no fence between stmatrix and the copy engine": ("fence_async_proxy();\n", "\n"),
    },
}  # fmt: skip


def test_there_are_at_least_two_faults_for_every_rung_that_has_barriers() -> None:
    assert set(FAULTS) == set(NUMBERS[1:])
    assert all(len(faults) >= 2 for faults in FAULTS.values())


@pytest.mark.parametrize("number", ["2", "4", "7", "8", "11"])
def test_the_rung_without_a_fault_passes(number: str) -> None:
    assert verdict(rung(number), seeds=1) == "pass"


def cases() -> list[Any]:
    """Two faults of each rung for every run, the others for the nightly command."""
    return [
        pytest.param(number, fault, marks=[] if place < 2 else [pytest.mark.slow])
        for number, faults in FAULTS.items()
        for place, fault in enumerate(faults)
    ]


@pytest.mark.parametrize(("number", "fault"), cases())
def test_a_planted_fault_is_found(number: str, fault: str) -> None:
    found = verdict(planted(number, *FAULTS[number][fault]), seeds=8)
    assert found != "pass"


@pytest.mark.parametrize("number", ["2", "3"])
def test_a_warpgroup_s_wait_is_for_the_multiplies_of_all_its_warps(number: str) -> None:
    """No fault: a wgmma is one operation of four warps (PTX ISA: "a wgmma-group per warpgroup"), so that a warp whose wait has
    returned knows that the tiles have been read by all. The barrier behind it keeps the warps together, and can go. (CUTLASS,
    too, releases a stage by one thread of a warpgroup.)
    """
    made = planted(number, "        __syncthreads();    // the multiplies", "    // the multiplies")
    assert verdict(made, seeds=8) == "pass"


def test_races_and_deadlocks_name_what_stands_at_an_address() -> None:
    fault = FAULTS["5"]["a slot given back before the multiplies have read it"]
    assert re.search(r"\((A|B)\(\d+, \d+\) of slot \d\)", verdict(planted("5", *fault)))
    assert re.search(r"is (full|empty)\[\d\]", verdict(planted("7", *FAULTS["7"]["the wrong initial phase"])))
