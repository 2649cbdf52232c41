"""The tuner against a card made of a formula: it finds the fastest, keeps its budget, survives kills, trusts no result."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stridewright.codegen import tune as tune_module
from stridewright.codegen.compile_pool import Compiled
from stridewright.codegen.select import select
from stridewright.codegen.tune import TuneError, TuneProgress, TuneResult, tune
from stridewright.codegen.tune_plan import estimate, starting_points
from stridewright.codegen.tune_state import Candidate, made_by
from stridewright.codegen.tuned import BusyError, Place, Store, TuningDevice, lookup
from stridewright.kernels.config import ConfigError, GemmConfig, Problem

DEVICE = TuningDevice("Formula 1", "1.0", "sm_90a", 132)
PROBLEM = Problem(m=2048, n=2048, k=2048)


class Clock:
    """Seconds that pass only when something is done."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def noise(text: str) -> float:
    """From -1 to 1, the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**31 - 1


def true_us(config: GemmConfig, dependent: bool) -> float:
    """What a candidate really takes on the card of these tests: near the model, with a taste of its own."""
    return 1e6 * estimate(config) * (1 + 0.1 * noise(config.name)) * (0.97 if dependent else 1.0)


@dataclass
class FakeRunner:
    bench: FakeBench
    candidate: Candidate

    def check(self) -> str:
        self.bench.clock.now += 0.01
        return self.bench.complaint(self.candidate)

    def screen_us(self, expected_us: float) -> float:
        self.bench.clock.now += 0.02
        return self.bench.us(self.candidate)

    def expect(self, us: float) -> None:
        assert us > 0


@dataclass
class FakeBench:
    """A card whose clock drifts by 6 % and back, and whose faults are given."""

    clock: Clock
    complaint: Callable[[Candidate], str] = lambda _: ""
    fault: Callable[[Candidate], BaseException | None] = lambda _: None
    device: TuningDevice = DEVICE
    opened: list[str] = field(default_factory=list)
    lost: bool = False

    def us(self, candidate: Candidate) -> float:
        drift = 1 + 0.03 * math.sin(self.clock.now / 0.7)
        return true_us(candidate.config, candidate.dependent) * drift

    def open(self, config: GemmConfig, dependent: bool) -> FakeRunner:
        candidate = Candidate(config, dependent)
        self.clock.now += 0.02
        fault = self.fault(candidate)
        if fault is not None:
            self.lost = isinstance(fault, OSError)
            raise fault
        self.opened.append(candidate.key)
        return FakeRunner(self, candidate)

    def rounds(self, runners: Mapping[str, FakeRunner], rounds: int) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {key: [] for key in runners}
        for _ in range(rounds):
            self.clock.now += 0.005 * len(runners)
            drift = self.clock.now
            for key, runner in runners.items():
                self.clock.now = drift
                found[key].append(self.us(runner.candidate))
        return found

    def alive(self) -> bool:
        return not self.lost


class FakeCompiler:
    """Compiles at once; ``refuses`` gives the assembler's words for a configuration it complains about."""

    def __init__(self, refuses: Callable[[GemmConfig], str] = lambda _: "") -> None:
        self.refuses = refuses
        self.asked: list[str] = []

    def submit(self, config: GemmConfig, priority: int = 0) -> Future[Compiled]:
        self.asked.append(config.name)
        future: Future[Compiled] = Future()
        future.set_result(Compiled(0.3, 168, self.refuses(config)))
        return future


def run(
    folder: Path, bench: FakeBench, compiler: FakeCompiler | None = None, problem: Problem = PROBLEM, **more: Any
) -> TuneResult:
    return tune(
        problem,
        bench=bench,  # type: ignore[arg-type]
        compiler=compiler or FakeCompiler(),
        store=Store(folder),
        clock=bench.clock,
        **more,
    )


def test_the_result_is_the_fastest_of_all_that_were_measured_in_spite_of_drift(tmp_path: Path) -> None:
    result = run(tmp_path, FakeBench(Clock()), seconds=8)
    measured = {one.candidate.key: true_us(one.candidate.config, one.candidate.dependent) for one in result.measured}
    assert len(measured) > 50
    best = true_us(result.config, result.dependent)
    # The card's clock drifts by 6 %, yet only what is within the finals' reach can be missed.
    assert best <= 1.01 * min(measured.values())
    assert best < 0.95 * true_us(select(PROBLEM), False)
    assert result.finished


def test_steps_go_beyond_what_the_model_listed(tmp_path: Path) -> None:
    result = run(tmp_path, FakeBench(Clock()), seconds=8)
    listed = {config for _, config in starting_points(PROBLEM, tune_module.STARTING)}
    assert any(one.candidate.config not in listed for one in result.measured)


@pytest.mark.parametrize("seconds", [2.0, 5.0])
def test_the_budget_is_kept(tmp_path: Path, seconds: float) -> None:
    bench = FakeBench(Clock())
    result = run(tmp_path, bench, seconds=seconds)
    assert result.seconds == pytest.approx(bench.clock.now - 100.0)
    # One candidate, or one stage of the finals, may be under way when time is up.
    assert result.seconds <= seconds + 1.0
    assert result.finished


def test_no_more_candidates_are_measured_than_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, FakeBench(Clock()), seconds=100, most=10)
    # The finals launch the two best the other way too, and add what is chosen without tuning.
    assert 10 <= len(result.measured) <= 13


def test_a_wrong_result_is_never_chosen_however_fast(tmp_path: Path) -> None:
    honest = run(tmp_path / "honest", FakeBench(Clock()), seconds=4)

    def complaint(candidate: Candidate) -> str:
        return "7 elements of D are NaN" if candidate.config == honest.config else ""

    result = run(tmp_path / "faulty", FakeBench(Clock(), complaint=complaint), seconds=4)
    assert result.config != honest.config
    wrong = [outcome for outcome in result.outcomes if outcome.status == "wrong"]
    assert {outcome.candidate.config for outcome in wrong} == {honest.config}
    assert wrong[0].reason == "7 elements of D are NaN"
    assert wrong[0].us is None


def test_a_result_that_turns_wrong_in_the_finals_is_not_chosen(tmp_path: Path) -> None:
    honest = run(tmp_path / "honest", FakeBench(Clock()), seconds=4)
    seen: list[str] = []

    def complaint(candidate: Candidate) -> str:
        if candidate.config != honest.config:
            return ""
        seen.append(candidate.key)
        return "" if len(seen) == 1 else "wrong the second time"

    result = run(tmp_path / "faulty", FakeBench(Clock(), complaint=complaint), seconds=4)
    assert len(seen) >= 2
    assert result.config != honest.config


def test_what_turns_wrong_does_not_stay_in_use_even_where_it_was_the_only_one(tmp_path: Path) -> None:
    seen: set[str] = set()

    def complaint(candidate: Candidate) -> str:
        again = candidate.config.name in seen
        seen.add(candidate.config.name)
        return "wrong the second time" if again else ""

    with pytest.raises(TuneError, match="wrong the second time"):
        run(tmp_path, FakeBench(Clock(), complaint=complaint), seconds=4, most=1)
    assert lookup(PROBLEM, DEVICE.name, store=Store(tmp_path), tables=()) is None


def test_every_outcome_has_its_reason(tmp_path: Path) -> None:
    points = [config for _, config in starting_points(PROBLEM, tune_module.STARTING)]
    spilled, crashed, wrong = points[1], points[2], points[3]
    bench = FakeBench(
        Clock(),
        complaint=lambda candidate: "wrong" if candidate.config == wrong else "",
        fault=lambda candidate: RuntimeError("no room") if candidate.config == crashed else None,
    )
    compiler = FakeCompiler(lambda config: "16 bytes spill stores" if config == spilled else "")
    result = run(tmp_path, bench, compiler, seconds=4)
    found = {outcome.candidate.config: outcome for outcome in result.outcomes}
    assert (found[spilled].status, found[spilled].reason) == ("refused", "16 bytes spill stores")
    assert (found[crashed].status, found[crashed].reason) == ("failed", "RuntimeError: no room")
    assert (found[wrong].status, found[wrong].reason) == ("wrong", "wrong")
    for outcome in result.outcomes:
        assert outcome.status == "measured" or outcome.reason
        if outcome.status == "invalid":
            assert outcome.candidate.config.violations()
        elif outcome.status == "measured":
            assert outcome.candidate.config.violations() == ()
    assert spilled.name not in " ".join(bench.opened)


def test_progress_tells_of_every_candidate(tmp_path: Path) -> None:
    seen: list[TuneProgress] = []
    result = run(tmp_path, FakeBench(Clock()), seconds=5, progress=seen.append)
    told = {progress.last.candidate.key for progress in seen if progress.last is not None}
    assert {one.candidate.key for one in result.measured} <= told
    assert [progress.phase for progress in seen] == sorted((p.phase for p in seen), reverse=True)
    assert [progress.seconds for progress in seen] == sorted(progress.seconds for progress in seen)
    assert seen[0].budget == 5


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kill_at", [1, 2, 17, 40])
def test_a_killed_run_loses_nothing_that_was_measured(tmp_path: Path, kill_at: int) -> None:
    clock = Clock()
    count = 0

    def fault(candidate: Candidate) -> BaseException | None:
        nonlocal count
        count += 1
        return Killed() if count == kill_at else None

    first = FakeBench(clock, fault=fault)
    with pytest.raises(Killed):
        run(tmp_path, first, seconds=8)
    assert len(first.opened) == kill_at - 1
    # The place of a killed process is free again: nothing is left that would have to be cleaned up.
    second = FakeBench(clock)
    result = run(tmp_path, second, seconds=8)
    finals = len(second.opened) - len(set(second.opened))
    again = set(first.opened) & set(second.opened)
    # What was measured is not measured again, but for the finalists.
    assert len(again) <= finals + 8
    assert set(first.opened) <= {one.candidate.key for one in result.measured}
    assert result.resumed >= kill_at - 1
    assert result.finished


def test_a_candidate_that_ends_two_runs_is_left_out_of_the_third(tmp_path: Path) -> None:
    deadly = starting_points(PROBLEM, tune_module.STARTING)[5][1]

    def fault(candidate: Candidate) -> BaseException | None:
        return Killed() if candidate.config == deadly else None

    for _ in range(2):
        with pytest.raises(Killed):
            run(tmp_path, FakeBench(Clock(), fault=fault), seconds=4)
    result = run(tmp_path, FakeBench(Clock(), fault=fault), seconds=4)
    outcome = next(one for one in result.outcomes if one.candidate.config == deadly)
    assert outcome.status == "failed"
    assert "2 runs ended" in outcome.reason


def test_an_interrupt_leaves_the_best_so_far_where_lookup_finds_it(tmp_path: Path) -> None:
    count = 0

    def fault(candidate: Candidate) -> BaseException | None:
        nonlocal count
        count += 1
        return KeyboardInterrupt() if count == 12 else None

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, FakeBench(Clock(), fault=fault), seconds=4)
    found = lookup(PROBLEM, DEVICE.name, store=Store(tmp_path), tables=())
    assert found is not None
    record = Store(tmp_path).load(Place(DEVICE.name, DEVICE.driver, "sm_90a", PROBLEM))
    assert record is not None
    # The interrupt is no fault of the candidate that was running.
    assert record["attempts"] == {}
    times = [one["us"] for one in record["outcomes"] if one["status"] == "measured"]
    assert record["best"]["us"] == min(times)
    assert len(times) == 11


def test_a_lost_device_ends_the_run_and_the_next_one_goes_on_without_the_culprit(tmp_path: Path) -> None:
    deadly = starting_points(PROBLEM, tune_module.STARTING)[3][1]

    def fault(candidate: Candidate) -> BaseException | None:
        return OSError("illegal address") if candidate.config == deadly else None

    with pytest.raises(TuneError, match=r"does not answer after .*run the same again"):
        run(tmp_path, FakeBench(Clock(), fault=fault), seconds=4)
    bench = FakeBench(Clock(), fault=fault)
    result = run(tmp_path, bench, seconds=4)
    assert not bench.lost
    assert any(one.candidate.config == deadly and one.status == "failed" for one in result.outcomes)


def test_a_finished_run_is_returned_and_more_time_goes_on_from_it(tmp_path: Path) -> None:
    first = run(tmp_path, FakeBench(Clock()), seconds=5)
    again = FakeBench(Clock())
    same = run(tmp_path, again, seconds=4)
    assert again.opened == []
    assert (same.config, same.us, same.seconds) == (first.config, first.us, first.seconds)
    longer = run(tmp_path, FakeBench(Clock()), seconds=8)
    assert len(longer.measured) > len(first.measured)
    assert longer.resumed == sum(outcome.status != "skipped" for outcome in first.outcomes)
    anew = run(tmp_path, FakeBench(Clock()), seconds=5, resume=False)
    assert anew.resumed == 0


def test_outcomes_of_other_kernels_are_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, FakeBench(Clock()), seconds=5)
    monkeypatch.setattr("stridewright.codegen.tune_state.made_by", lambda: "another make")
    result = run(tmp_path, FakeBench(Clock()), seconds=5)
    assert result.resumed == 0
    assert made_by() != "another make"


def test_the_best_of_before_stays_until_something_new_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path, FakeBench(Clock()), seconds=5)
    monkeypatch.setattr("stridewright.codegen.tune_state.made_by", lambda: "another make")
    with pytest.raises(Killed):
        run(tmp_path, FakeBench(Clock(), fault=lambda _: Killed()), seconds=5)
    found = lookup(PROBLEM, DEVICE.name, store=Store(tmp_path), tables=())
    assert found is not None
    assert found.config == first.config


def test_two_runs_of_one_problem_at_once_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with (
        store.locked(Place(DEVICE.name, DEVICE.driver, "sm_90a", PROBLEM)),
        pytest.raises(BusyError, match="2048 x 2048 x 2048 is being tuned on Formula 1 by another process"),
    ):
        run(tmp_path, FakeBench(Clock()), seconds=5)


def test_where_nothing_works_the_reasons_are_given(tmp_path: Path) -> None:
    compiler = FakeCompiler(lambda _: "spills")
    with pytest.raises(TuneError, match=r"none of .* candidates could be measured: .*refused, spills"):
        run(tmp_path, FakeBench(Clock()), compiler, seconds=5)


def test_the_lookup_finds_what_was_tuned(tmp_path: Path) -> None:
    result = run(tmp_path, FakeBench(Clock()), seconds=5)
    found = lookup(PROBLEM, DEVICE.name, store=Store(tmp_path), tables=())
    assert found is not None
    assert (found.config, found.dependent) == (result.config, result.dependent)
    assert found.source == "tuned on Formula 1, driver 1.0"


def test_the_record_names_every_parameter_of_the_best(tmp_path: Path) -> None:
    result = run(tmp_path, FakeBench(Clock()), seconds=5)
    record = json.loads(result.path.read_text())
    assert record["best"]["config"]["schedule"]["group_m"] == result.config.schedule.group_m
    assert set(record["best"]["config"]) >= {"arch", "tile", "pipeline", "cluster", "schedule", "split", "epilogue"}


@pytest.mark.parametrize(
    ("problem", "more", "error", "words"),
    [
        (Problem(), {}, ValueError, "needs its sizes"),
        (Problem(m=8, n=8, k=12), {}, ConfigError, "k=12: must be a multiple of 8"),
        (PROBLEM, {"seconds": 0}, ValueError, "must be above 0"),
        (PROBLEM, {"most": 0}, ValueError, "must be above 0"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    tmp_path: Path, problem: Problem, more: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run(tmp_path, FakeBench(Clock()), problem=problem, **more)


def test_for_sustained_load_the_fastest_alone_wins_though_it_loses_in_rounds(tmp_path: Path) -> None:
    """A card on which cooperative kernels are a fifth faster alone, and a twentieth slower beside others."""

    class Hot(FakeBench):
        def us(self, candidate: Candidate) -> float:
            return super().us(candidate) * (1.05 if candidate.config.schedule.kind == "cooperative" else 1.0)

        def alone(self, runners: Mapping[str, FakeRunner], seconds: float) -> dict[str, float]:
            self.clock.now += seconds * len(runners)
            kinds = {name: runner.candidate.config.schedule.kind for name, runner in runners.items()}
            return {
                name: true_us(runner.candidate.config, True) * (0.8 if kinds[name] == "cooperative" else 1.0)
                for name, runner in runners.items()
            }

    store = Store(tmp_path)
    kinds = {}
    for load in ("bursts", "sustained"):
        bench = Hot(Clock())
        found = tune(
            PROBLEM, seconds=30, bench=bench, compiler=FakeCompiler(), store=store, clock=bench.clock, load=load
        )
        kinds[load] = found.config.schedule.kind
        looked_up = lookup(PROBLEM, DEVICE.name, store=store, tables=(), load=load)
        assert looked_up is not None
        assert looked_up.config == found.config
    assert kinds == {"bursts": "pingpong", "sustained": "cooperative"}


def test_a_load_that_is_unknown_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    bench = FakeBench(Clock())
    with pytest.raises(ValueError, match="load='hot': must be one of bursts, sustained"):
        tune(PROBLEM, bench=bench, compiler=FakeCompiler(), store=Store(tmp_path), clock=bench.clock, load="hot")
    with pytest.raises(ValueError, match="must be one of bursts, sustained"):
        lookup(PROBLEM, load="hot")
