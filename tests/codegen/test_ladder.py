"""Every rung of the ladder assembles without a complaint, and its PTX on the emulator is right, without a race."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.bind import OperandError
from stridewright.codegen.check import check_gemm
from stridewright.codegen.ladder import Rung, rungs
from stridewright.kernels.config import ConfigError
from stridewright.kernels.ladder import RUNGS

NUMBERS = [spec.number for spec in RUNGS]

# Ragged in every way: a row, odd N, K of a chunk, K of several turns of the ring, one element more than a tile.
SHAPES = [
    (1, 8, 8),
    (64, 64, 64),
    (65, 7, 200),
    (130, 136, 72),
    (129, 257, 64),
    (257, 515, 136),
    (255, 264, 448),
    (300, 520, 456),
    (384, 777, 24),
    (513, 130, 320),
    (640, 512, 128),
    (128, 1032, 832),
]


def rung(number: str, m: int, n: int, k: int) -> Rung:
    return rungs(m, n, k)[NUMBERS.index(number)]


def integers(rows: int, k: int, seed: int) -> np.ndarray[Any, Any]:
    """Whole numbers whose products sum exactly in float32."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16)


def assert_right(made: Rung, seeds: range, sms: int) -> None:
    """The exact product, rounded once, bit for bit, in several legal orders of events, and no race in any."""
    a, b = integers(made.m, made.k, 1), integers(made.n, made.k, 2)
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
    for seed in seeds:
        emulation = made.emulate(a, b, seed=seed, sms=sms)
        np.testing.assert_array_equal(emulation.d.view(np.uint16), exact.view(np.uint16))
        assert emulation.races == ()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_rung_assembles_without_a_complaint(number: str) -> None:
    for n in (512, 515):
        made = rung(number, 512, n, 256)
        assert made.build.complaints == ()
        if number != "12":
            assert "warning" not in made.build.log.lower()
        assert made.build.kernels[0].spill_store_bytes == 0
        assert "#include" not in made.source


@pytest.mark.parametrize("number", NUMBERS)
def test_a_rung_is_right_and_free_of_races(number: str) -> None:
    # Rung 1 multiplies one number at a time, which the emulator does one instruction at a time: small shapes.
    small = number == "1"
    assert_right(rung(number, 70, 71, 24) if small else rung(number, 257, 515, 136), range(1 if small else 3), sms=4)
    larger = (129, 16, 40) if small else (200, 136, 456) if number == "1b" else (300, 520, 456)
    assert_right(rung(number, *larger), range(1), sms=2)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("number", NUMBERS)
def test_a_rung_is_right_at_every_edge(number: str, shape: tuple[int, int, int]) -> None:
    if number == "1":
        # It multiplies one number at a time, and so does the emulator: the same edges, nearer.
        assert_right(
            rung(number, *(min(size, most) for size, most in zip(shape, (140, 141, 72), strict=True))), range(1), 132
        )
        return
    for sms in (2, 132):
        assert_right(rung(number, *shape), range(2 if number == "1b" else 6), sms)


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_random_inputs_stay_within_the_bound_in_the_chip_s_arithmetic_too(number: str) -> None:
    random = np.random.default_rng(5)
    a, b = (random.standard_normal((rows, 264), dtype=np.float32).astype(ml_dtypes.bfloat16) for rows in (130, 200))
    check = check_gemm(rung(number, 130, 200, 264).emulate(a, b, numerics="hardware").d, a, b)
    assert check.passed, check.worst


@pytest.mark.parametrize("number", ["1", "1b", "10"])
def test_shared_memory_is_read_and_written_without_bank_conflicts(number: str) -> None:
    made = rung(number, 64, 64, 64)
    emulation = made.emulate(integers(64, 64, 1), integers(64, 64, 2))
    assert emulation.conflicts
    assert all(record.conflicts == 0 for record in emulation.conflicts)


def test_the_diff_of_a_rung_shows_what_it_adds() -> None:
    made = {made.number: made for made in rungs(512, 512, 256)}
    assert made["1"].diff() == ""
    assert "+            load_box_multicast(" in made["8"].diff()
    # What is in flight beside the next batch comes with the rung of that name, and with no other.
    assert [number for number, one in made.items() if "+                wgmma_wait<1>();" in one.diff()] == ["9b"]
    assert "# CLUSTER_M = 2 (new)" in made["8"].diff()
    assert "# STAGED = true (new)" in made["10"].diff()
    assert "ladder/staged_store.cuh" in made["10"].diff()


@pytest.mark.parametrize("number", ["3", "5", "7", "8", "9b", "10", "11"])
def test_a_rung_s_diff_is_small_enough_to_read(number: str) -> None:
    added, removed = rung(number, 512, 512, 256).changed_lines()
    assert 0 < added <= 70
    assert removed <= 40


def test_results_that_tma_cannot_store_leave_by_plain_stores() -> None:
    assert rung("10", 64, 520, 64).derivation.staged
    assert not rung("10", 64, 515, 64).derivation.staged
    assert "map_d" not in rung("10", 64, 515, 64).derivation.tensor_maps(64, 515, 64)


def test_the_last_rung_is_the_product_s_kernel() -> None:
    from stridewright import Gemm

    assert rung("12", 512, 512, 256).source == Gemm(512, 512, 256).source


def test_what_no_rung_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match="k=100: must be a multiple of 8"):
        rungs(64, 64, 100)
    with pytest.raises(OperandError, match="this GEMM"):
        rung("7", 64, 64, 64).emulate(integers(64, 72, 1), integers(64, 72, 2))
