"""Screening on the card: what is compared runs between replays of a reference, and a drifting clock cancels."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from stridewright.codegen.launch import LaunchError
from stridewright.codegen.tune_bench import GpuBench
from stridewright.kernels.config import Problem


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
