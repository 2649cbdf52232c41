"""Timing: what is counted, in which order loops run, and how sure a ratio is. The GPU is a clock that the tests move."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from stridewright.codegen.measure import (
    GraphLoop,
    Interval,
    buffer_sets,
    check_launch,
    gemm_launches,
    measure_alone,
    measure_alone_in_turns,
    measure_pairs,
    measure_rounds,
    median_interval,
    paired,
    repeats_for,
    rotation,
)


class ListedLoop:
    """A loop whose replays take the listed times, noting when they are started."""

    def __init__(self, times: list[float], log: list[str] | None = None, name: str = "") -> None:
        self.times = iter(times)
        self.log = [] if log is None else log
        self.name = name

    def enqueue(self) -> Callable[[], float]:
        self.log.append(self.name)
        us = next(self.times)
        return lambda: us


# Ranks of the symmetric interval around the median with at least 95 %, from published tables of the sign test
# (Conover, Practical Nonparametric Statistics; also Hahn and Meeker, Statistical Intervals, table A.16).
RANKS = {6: (1, 6), 8: (1, 8), 9: (2, 8), 10: (2, 9), 12: (3, 10), 15: (4, 12), 20: (6, 15), 25: (8, 18), 30: (10, 21)}


@pytest.mark.parametrize(("count", "ranks"), RANKS.items())
def test_interval_has_the_published_ranks(count: int, ranks: tuple[int, int]) -> None:
    found = median_interval(random.Random(1).sample(range(1, count + 1), count))
    assert (found.low, found.high) == ranks
    assert found.coverage >= 0.95


def test_interval_covers_the_median_as_often_as_it_says() -> None:
    drawn = random.Random(0)
    count, covered = 4000, 0
    for _ in range(count):
        found = median_interval([drawn.expovariate(1.0) for _ in range(11)])
        covered += found.low <= 0.6931471805599453 <= found.high
    # 11 values: ranks 2 and 10, 98.8 %. Five standard errors of a share over 4,000 draws.
    assert found.coverage == pytest.approx(0.98828125)
    assert abs(covered / count - found.coverage) < 5 * (0.9883 * 0.0117 / count) ** 0.5


def test_few_values_give_their_range_and_say_how_little_it_covers() -> None:
    assert median_interval([2.0, 1.0, 4.0]) == Interval(2.0, 1.0, 4.0, 0.75)
    assert median_interval([3.0]) == Interval(3.0, 3.0, 3.0, 0.0)
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


def test_pairs_compare_within_a_round_so_that_drift_cancels() -> None:
    drift = [1 + number / 10 for number in range(17)]
    first, second = ListedLoop([10 * factor for factor in drift]), ListedLoop([11 * factor for factor in drift])
    found = measure_pairs(first, second, pairs=15, warm=2)
    assert found.ratio == pytest.approx(1.1)
    assert found.high - found.low < 1e-9
    assert found.pairs == 15
    assert found.first_us == pytest.approx(10 * statistics.median(drift[2:]))


def test_ratio_above_one_means_that_the_first_is_faster() -> None:
    assert paired([1.0] * 7, [1.5] * 7).ratio == 1.5
    with pytest.raises(ValueError, match=r"shorter|longer"):
        paired([1.0], [1.0, 2.0])


def test_every_second_round_runs_backwards_and_warm_ones_do_not_count() -> None:
    log: list[str] = []
    loops = {name: ListedLoop([100.0, 1.0, 2.0, 3.0], log, name) for name in "abc"}
    times = measure_rounds(loops, rounds=3, warm=1)
    assert times == {name: [1.0, 2.0, 3.0] for name in "abc"}
    assert "".join(log) == "abccbaabccba"
    with pytest.raises(ValueError, match="rounds=0"):
        measure_rounds(loops, rounds=0)


def test_a_loop_counts_every_launch_of_its_replay(fake_gpu: Any) -> None:
    launches = [lambda stream, us=us: stream.run(us) for us in (2.0, 4.0)]
    loop = GraphLoop(launches, repeats=5)
    assert loop.products == 10
    assert loop.replay_us() == pytest.approx(3.0)
    # Warm launches, one replay: 6 + 5 * 6.
    assert fake_gpu.now_us == pytest.approx(36.0)


def test_a_loop_fills_its_target(fake_gpu: Any) -> None:
    loop = GraphLoop([lambda stream: stream.run(2.5)] * 80, target_us=5000)
    assert loop.products == 80 * 25
    assert fake_gpu.graphs == [80, 80 * 25]
    long = GraphLoop([lambda stream: stream.run(9000.0)] * 2, target_us=5000)
    assert long.products == 2
    assert repeats_for(0.0, 256) * 256 <= 20_000


def test_an_error_while_capturing_ends_the_capture(fake_gpu: Any) -> None:
    calls = []

    def second_time_wrong(stream: Any) -> None:
        calls.append(stream)
        if len(calls) == 2:
            raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        GraphLoop([second_time_wrong], repeats=1)
    assert fake_gpu.stream.captured is None


def test_an_empty_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one launch"):
        GraphLoop([])
    with pytest.raises(ValueError, match="repeats=0"):
        GraphLoop([lambda stream: None], repeats=0)


@pytest.mark.parametrize("shape", [(512, 512, 512), (1, 8192, 8192), (4096, 4096, 4096), (64, 64, 64)])
def test_buffers_together_exceed_twice_the_cache(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    sets = buffer_sets(m, n, k, 60 * 2**20)
    assert sets >= 2
    assert sets * 2 * (m * k + n * k + m * n) > 2 * 60 * 2**20 or sets == 256


def test_rotation_draws_every_set_anew(fake_gpu: Any) -> None:
    sets = rotation(8, 16, 32)
    assert sum(one.size_bytes for one in sets) > 2 * 4096
    assert len({one.a.values.tobytes() for one in sets} | {one.b.values.tobytes() for one in sets}) == 2 * len(sets)


class FakeNvml:
    """A GPU of 600 W whose clock falls while time passes."""

    def __init__(self, now: Callable[[], float], energy: bool) -> None:
        self.now = now
        self.energy = energy

    def clock_mhz(self) -> int:
        return 1500

    def watts(self) -> float:
        return 590.0

    def joules(self) -> float | None:
        return 600.0 * self.now() if self.energy else None

    def held_back_by(self) -> tuple[str, ...]:
        return ("power cap",)


@pytest.mark.parametrize("energy", [True, False])
def test_a_sustained_run_leaves_its_warm_up_out(energy: bool) -> None:
    clock = [0.0]

    class Loop:
        def enqueue(self) -> Callable[[], float]:
            def wait() -> float:
                clock[0] += 0.01
                return 10.0 if clock[0] < 1.0 else 14.0

            return wait

    gpu: Any = FakeNvml(lambda: clock[0], energy)
    found = measure_alone(Loop(), seconds=2.0, warm=1.0, gpu=gpu, now=lambda: clock[0])
    assert found.us == pytest.approx(14.0)
    assert found.seconds == pytest.approx(2.0, abs=0.05)
    assert found.clock_mhz == 1500
    assert found.watts == pytest.approx(600.0 if energy else 590.0)
    assert found.held_back_by == ("power cap",)


def test_loops_alone_by_turns_do_not_gain_from_running_first() -> None:
    """A card that is a fifth faster in its first second, and then slows down a little from second to second."""
    clock = [0.0]
    order: list[str] = []

    class Loop:
        def __init__(self, name: str, us: float) -> None:
            self.name, self.us = name, us

        def enqueue(self) -> Callable[[], float]:
            def wait() -> float:
                clock[0] += 0.01
                if order[-1:] != [self.name]:
                    order.append(self.name)
                return self.us * (0.8 if clock[0] < 1.0 else 1.0 + 0.001 * clock[0])

            return wait

    gpu: Any = FakeNvml(lambda: clock[0], True)
    loops = {"first": Loop("first", 10.0), "second": Loop("second", 9.9), "third": Loop("third", 10.1)}
    found = measure_alone_in_turns(loops, seconds=1.0, gpu=gpu, now=lambda: clock[0])
    there_and_back = ["first", "second", "third", "second"]
    assert order == [*there_and_back, *there_and_back, "first"]
    assert sorted(found, key=lambda name: found[name].us) == ["second", "first", "third"]
    # Each ran as much before the middle of the time as after it, so that the slowing falls out.
    assert found["first"].us / found["third"].us == pytest.approx(10.0 / 10.1, rel=1e-3)
    assert found["third"].seconds == pytest.approx(1.0, abs=0.05)
    assert found["first"].held_back_by == ("power cap",)
    assert measure_alone_in_turns({}, gpu=gpu) == {}


def test_launches_keep_what_their_bound_gemm_owns(fake_gpu: Any) -> None:
    import gc
    import weakref

    class Bound:
        def launch(self, stream: Any) -> None:
            stream.run(3.0)

    class Gemm:
        def bind(self, a: Any, b: Any, d: Any, dependent: bool, workspace: Any) -> Bound:
            made = Bound()
            owners.append(weakref.ref(made))
            return made

    owners: list[Any] = []
    gemm: Any = Gemm()
    launches = gemm_launches(gemm, rotation(8, 8, 8, l2=0))
    gc.collect()
    assert len(owners) == 2
    assert all(owner() is not None for owner in owners)
    assert GraphLoop(launches, repeats=1).replay_us() == pytest.approx(3.0)


def test_check_launch_poisons_first(fake_gpu: Any) -> None:
    buffers = rotation(8, 16, 32, l2=0)[0]

    def right(stream: Any) -> None:
        values = buffers.a.values.astype(float) @ buffers.b.values.astype(float).T
        buffers.d.values[...] = values.astype(buffers.d.dtype)

    assert check_launch(right, buffers).passed
    assert not check_launch(lambda stream: None, buffers).passed
