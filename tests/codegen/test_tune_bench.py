"""Screening on the card: what is compared runs between replays of a reference, and a drifting clock cancels."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stridewright.codegen import launch, measure, tune_bench
from stridewright.codegen.compile_pool import Compiled
from stridewright.codegen.launch import LaunchError
from stridewright.codegen.tune import tune
from stridewright.codegen.tune_bench import GpuBench
from stridewright.codegen.tuned import Store, TuningDevice
from stridewright.kernels.config import GemmConfig, Problem


class Card:
    """Runs what is enqueued one after another; its clock swings by a quarter, slowly beside a few replays."""

    def __init__(self, period: float = 30_000) -> None:
        self.now_us, self.period = 0.0, period
        self.log: list[str] = []

    def slowness(self) -> float:
        return 1 + 0.25 * math.sin(self.now_us / self.period)


class Loop:
    def __init__(self, card: Card, name: str, us: float, products: int) -> None:
        self.card, self.name, self.us, self.products = card, name, us, products

    def enqueue(self) -> Callable[[], float]:
        us = self.us * self.card.slowness()
        self.card.now_us += us * self.products
        self.card.log.append(self.name)
        return lambda: us

    def replay_us(self) -> float:
        return self.enqueue()()


def bench(problem: Problem) -> GpuBench:
    made = GpuBench.__new__(GpuBench)
    made._problem, made._reference, made._reference_us = problem, None, 0.0
    return made


@pytest.mark.parametrize("reference_us", [3.0, 200.0, 12_000.0])
@pytest.mark.parametrize("ratio", [0.8, 0.97, 1.0, 1.03, 2.5])
def test_a_candidate_is_compared_with_what_runs_around_it(reference_us: float, ratio: float) -> None:
    card = Card(30_000 if reference_us < 1000 else 300_000)
    tuned = bench(Problem(m=4096, n=4096, k=4096))
    products = max(2, round(4000 / reference_us))
    reference = Loop(card, "reference", reference_us, products)
    base = tuned.against_reference(reference)  # type: ignore[arg-type]
    for number in range(6):
        card.now_us += 17_000 * number  # the time between candidates is of any length
        candidate = Loop(card, "candidate", ratio * reference_us, max(2, products // 2))
        found = tuned.against_reference(candidate)  # type: ignore[arg-type]
        # The clock alone would move it by a quarter.
        assert found / base == pytest.approx(ratio, rel=0.02)


def test_the_card_is_brought_to_the_clock_that_it_can_keep_where_power_limits() -> None:
    counts = []
    for problem, us in ((Problem(m=4096, n=4096, k=4096), 200.0), (Problem(m=16, n=4096, k=4096), 200.0)):
        card = Card()
        tuned = bench(problem)
        tuned.against_reference(Loop(card, "reference", us, 20))  # type: ignore[arg-type]
        card.log.clear()
        tuned.against_reference(Loop(card, "candidate", us, 10))  # type: ignore[arg-type]
        counts.append(card.log.index("candidate"))
        # Between two replays of the reference, every time.
        text = " ".join(card.log)
        assert "reference candidate reference candidate reference" in text
        # And no pause after it, while the host goes on to the next.
        assert (card.log[-2:] == ["reference", "reference"]) == (problem.m == 4096)
    assert counts[0] > counts[1]


def test_without_a_gpu_nothing_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stridewright.codegen.launch.gpu_available", lambda arch: (False, "no driver"))
    with pytest.raises(LaunchError, match="no GPU to tune sm_90a on: no driver"):
        GpuBench(Problem(m=64, n=64, k=64))


class AtOnce:
    """Compiles in no time."""

    def submit(self, config: GemmConfig, priority: int = 0) -> Future[Compiled]:
        future: Future[Compiled] = Future()
        future.set_result(Compiled(0.0, 168))
        return future


def lot(config: GemmConfig, many: int) -> int:
    """From 0 to ``many`` - 1, the same for the same configuration."""
    return zlib.crc32(config.name.encode()) % many


def true_us(config: GemmConfig, dependent: bool) -> float:
    return (5.0 if dependent else 6.0) * (1 + lot(config, 1000) / 2000)


@pytest.mark.usefixtures("numpy_values")
def test_a_whole_run_on_a_stand_in_for_the_card(fake_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that tuning makes of the card is made: graphs, events, poisoned outputs, checks."""

    def launches(gemm: Any, buffers: Any, dependent: bool) -> list[Any]:
        def of(one: Any) -> Any:
            def work() -> None:
                if not np.isnan(float(one.d.values[0, 0])):
                    return  # what was checked is only timed from now on
                right = one.a.values.astype(np.float32) @ one.b.values.astype(np.float32).T
                kind = lot(gemm.config, 7)
                if kind == 0:
                    right[3:] = np.nan
                one.d.values[...] = 0 * right if kind == 1 else right

            return lambda stream: stream.run(true_us(gemm.config, dependent), work)

        if lot(gemm.config, 7) == 2:
            raise RuntimeError("too many resources requested for launch")
        return [of(one) for one in buffers]

    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (True, "a stand-in"))
    monkeypatch.setattr(tune_bench, "current_device", lambda: TuningDevice("Stand-in", "1", "sm_90a", 132))
    monkeypatch.setattr(measure, "gemm_launches", launches)
    result = tune(
        Problem(m=64, n=128, k=64),
        seconds=0.6,
        compiler=AtOnce(),
        store=Store(tmp_path),
        clock=lambda: fake_gpu.now_us / 1e6,
    )
    found = {one.candidate: one for one in result.outcomes}
    for candidate, outcome in found.items():
        if outcome.status in ("measured", "wrong", "failed"):
            expected = {0: "wrong", 1: "wrong", 2: "failed"}.get(lot(candidate.config, 7), "measured")
            assert outcome.status == expected
        if outcome.status == "measured":
            assert outcome.us == pytest.approx(true_us(candidate.config, candidate.dependent), rel=0.01)
    assert {outcome.status for outcome in found.values()} >= {"measured", "wrong", "failed"}
    times = {one.candidate: true_us(one.candidate.config, one.candidate.dependent) for one in result.measured}
    assert true_us(result.config, result.dependent) == min(times.values())
    assert result.us == pytest.approx(min(times.values()), rel=0.01)
    assert result.finished
