"""The tuner: measures candidates of one problem on the card until time is up, and keeps what it found.

It begins with what is chosen without tuning and what a model ranks next, and walks on from the fastest so far to
configurations one step away. Kernels are compiled by other processes while the card measures. Each candidate is checked
before it is timed: its output starts as NaN. The first impressions come one after another and suffer from drifting
clocks; so the last few run in interleaved rounds, slower ones dropping out, and are compared by the median of the
ratios within rounds. Every candidate's outcome or reason for rejection is kept (``tune_state``), on the disk after each.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stridewright.kernels.config import ConfigError, GemmConfig, Problem, Violation, plain_violations

from . import space
from .compile_pool import Compiled, CompilePool, Compiler
from .measure import median_interval
from .tune_bench import Bench, GpuBench, Runner
from .tune_plan import Walks, estimate, family, for_sustained_load, starting_points
from .tune_state import Candidate, Outcome, TuneState, read_state
from .tuned import require_load
from .tuned.device import TuningDevice
from .tuned.store import Place, Store
from .tuned.table import shipped_tables
from .tuned.transfer import transfers

SECONDS = 20.0
"""Time for one problem unless told otherwise."""

STARTING = 24
_TRANSFERS = 10
_LEADERS = 4
_IN_FLIGHT = 8
"""Steps that are compiled ahead of the card; each is chosen from the fastest known when it is asked for."""
_SEARCH_SHARE = 0.7
_FINALISTS = 8
_OF_A_FAMILY = 3
_CLOSE = 1.05
"""First impressions within this of the best reach the finals."""
_ROUNDS = (5, 8, 12)
_DROP = 1.01
_SUSTAINED_CLOSE = 1.1
"""Alone at the power limit a kernel can be as much faster than one that was ahead of it in a first impression."""
_ALONE = ((16, 0.3), (4, 0.8))
"""How many run alone for how many seconds, for sustained load."""

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


class TuneError(RuntimeError):
    """Tuning cannot go on; what was found so far is kept, and the message says how to go on."""


class DeviceLostError(TuneError):
    """The device does not answer any more in this process; a new one can go on without the candidate that did it."""


@dataclass(frozen=True)
class TuneProgress:
    """How far a run is: its ``phase`` ("search" or "finals"), candidates ``done`` in this run, ``seconds`` spent of
    ``budget``, the best so far, and the outcome just found (None between).
    """

    phase: str
    done: int
    seconds: float
    budget: float
    best: Candidate | None
    best_us: float
    last: Outcome | None


@dataclass(frozen=True)
class TuneResult:
    """What tuning found for ``problem`` on ``device``.

    ``config`` and ``dependent`` are the fastest, ``us`` its microseconds a product; ``untuned_ratio`` the time of what is
    chosen without tuning over that (None where the finals were not reached); ``outcomes`` every candidate's, the fastest
    first; ``seconds`` spent in all, ``resumed`` outcomes that were known from an earlier run, ``finished`` whether
    the finals were run, ``path`` where it is kept.
    """

    problem: Problem
    device: TuningDevice
    config: GemmConfig
    dependent: bool
    us: float
    untuned_ratio: float | None
    outcomes: tuple[Outcome, ...]
    seconds: float
    resumed: int
    finished: bool
    path: Path

    @property
    def tflops(self) -> float:
        """10^12 floating-point operations a second of the fastest."""
        m, n, k = space.sizes_of(self.problem)
        return 2e-6 * m * n * k / self.us

    @property
    def measured(self) -> tuple[Outcome, ...]:
        """The candidates that were right and timed."""
        return tuple(outcome for outcome in self.outcomes if outcome.status == "measured")


def tune(
    problem: Problem,
    *,
    seconds: float = SECONDS,
    most: int | None = None,
    arch: str = "sm_90a",
    progress: Callable[[TuneProgress], None] | None = None,
    resume: bool = True,
    bench: Bench | None = None,
    compiler: Compiler | None = None,
    store: Store | None = None,
    clock: Callable[[], float] = time.perf_counter,
    load: str = "bursts",
) -> TuneResult:
    """Measures configurations of ``problem`` (its sizes given) on the current GPU for about ``seconds``, ``most`` of them at
    most, and keeps the fastest where ``tuned.lookup`` finds it.

    ``load``: "bursts" compares in interleaved rounds, where all have the same clock; "sustained" has each of the last few run
    alone until power has settled, since at the power limit one that moves fewer bytes keeps a higher clock.

    With ``resume`` an earlier run's outcomes are kept and its seconds count; a finished run that was given as many seconds
    is returned as it is. ``bench``, ``compiler``, ``store`` and ``clock`` stand for the card, the compilers, the disk and the
    time. Raises ConfigError for a problem without a kernel, ValueError for arguments out of range, LaunchError without a
    GPU, BusyError where another process tunes the same, and TuneError where the device was lost or nothing worked.
    A KeyboardInterrupt passes through; what was found before it is kept, and usable.

    >>> tune(Problem(m=64, n=64, k=60))
    Traceback (most recent call last):
    ...
    stridewright.kernels.config.ConfigError: k=60: must be a multiple of 8 for now: TMA wants rows of A and B to start at multiples of 16 bytes, and 60 * 2 bytes is 8 more; nearest 56, 64: pad A and B along K with zeros, which changes no result
    """
    space.sizes_of(problem)
    require_kernel(problem, arch)
    require_load(load)
    if seconds <= 0 or (most is not None and most < 1):
        raise ValueError(
            f"seconds={seconds}, most={most}: both must be above 0 (most=None: as many as there is time for)"
        )
    started = clock()
    bench = GpuBench(problem, arch) if bench is None else bench
    store = Store() if store is None else store
    place = Place(bench.device.name, bench.device.driver, arch, problem, load)
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.locked(place))
        earlier = store.load(place)
        state = read_state(earlier if resume else None, problem)
        resumed = len(state.outcomes)
        if not (state.finished and state.best is not None and state.budget >= seconds):
            if compiler is None:
                compiler = stack.enter_context(CompilePool())
            run = _Run(state, bench, compiler, store, place, progress, clock, started, seconds, most)
            run.known_best = (earlier or {}).get("best")
            run.go()
        if state.best is None:
            raise TuneError(_nothing_worked(state))
        return _result(state, bench.device, resumed, store.path(place))


def first_candidates(problem: Problem, device: TuningDevice, store: Store, arch: str = "sm_90a") -> list[GemmConfig]:
    """What a run measures first: what is chosen without tuning, what was fastest for the shapes most like this one, and
    what the model ranks next.
    """
    points = [config for _, config in starting_points(problem, STARTING, arch, device.sms)]
    others = transfers(problem, _TRANSFERS, store, shipped_tables(), device.name, arch, device.sms)
    return list(dict.fromkeys([points[0], *others, *points[1:]]))[:STARTING]


def require_kernel(problem: Problem, arch: str) -> None:
    """Raises ConfigError for a problem that no kernel of the architecture computes, or that cannot be measured here.

    >>> require_kernel(Problem(m=8, n=8, k=8), "sm_90a")
    """
    # Plain stores serve every n, so that only what no kernel can do is reported.
    violations = GemmConfig(arch=arch, problem=problem).replace(store="direct").violations()
    if not violations and arch == "sm_90a":
        violations = tuple(plain_violations(problem))
    if not violations and "mn" in (problem.a_major, problem.b_major):
        rule = "only K-major operands can be measured: what draws and checks them lies in rows"
        violations = (Violation(parameter="a_major, b_major", value=(problem.a_major, problem.b_major), rule=rule),)
    if violations:
        raise ConfigError(violations)


def _result(state: TuneState, device: TuningDevice, resumed: int, path: Path) -> TuneResult:
    assert state.best is not None
    others = [outcome for outcome in state.outcomes.values() if outcome.status != "measured"]
    return TuneResult(
        state.problem,
        device,
        state.best.config,
        state.best.dependent,
        state.best_us,
        state.untuned_ratio,
        (*state.measured(), *others),
        state.seconds,
        resumed,
        state.finished,
        path,
    )


def _nothing_worked(state: TuneState) -> str:
    reasons = [f"{one.candidate.key}: {one.status}, {one.reason}" for one in list(state.outcomes.values())[:3]]
    tried = f"none of {len(state.outcomes)} candidates could be measured"
    return tried + (": " + "; ".join(reasons) if reasons else ", there was no time for one; give more seconds")


class _Run:
    """One run of the tuner: a state, and what to measure with."""

    def __init__(
        self,
        state: TuneState,
        bench: Bench,
        compiler: Compiler,
        store: Store,
        place: Place,
        progress: Callable[[TuneProgress], None] | None,
        clock: Callable[[], float],
        started: float,
        seconds: float,
        most: int | None,
    ) -> None:
        self.state, self.bench, self.compiler, self.store, self.place = state, bench, compiler, store, place
        self.progress, self.clock, self.started, self.most = progress, clock, started, most
        self.earlier, self.asked = state.seconds, seconds
        # What an earlier run spent counts, but the finals need some time whatever happened before.
        self.budget = max(seconds - self.earlier, 0.25 * seconds)
        self.sms = bench.device.sms
        self.walks = Walks(self.sms)
        self.sustained = place.load == "sustained"
        self.done = 0
        self.phase = "search"
        self.known_best: Any = None
        """What an earlier run found, with other kernels perhaps: better than nothing until this run finds something."""

    # ---- the whole ------------------------------------------------------------------------------------------------

    def go(self) -> None:
        self.state.finished = False
        try:
            first = first_candidates(self.state.problem, self.bench.device, self.store, self.place.arch)
            untuned = Candidate(first[0])
            if self.sustained:
                first = for_sustained_load(first, self.state.problem, self.place.arch, self.sms)
            self.search([Candidate(config) for config in first])
            if self.sustained:
                self.alone(untuned)
            else:
                self.finals(untuned)
        finally:
            self.save()

    def spent(self) -> float:
        """Seconds of this run."""
        return self.clock() - self.started

    def save(self) -> None:
        self.state.seconds = self.earlier + self.spent()
        record = self.state.record()
        self.store.save(self.place, {**record, "best": record["best"] or self.known_best})

    def report(self, last: Outcome | None = None) -> None:
        if self.progress is not None:
            state = self.state
            self.progress(
                TuneProgress(self.phase, self.done, self.spent(), self.budget, state.best, state.best_us, last)
            )

    # ---- the search -----------------------------------------------------------------------------------------------

    def search(self, first: Iterable[Candidate]) -> None:
        """Screens ``first`` and then steps from the leaders, until time is up or no step is left."""
        deadline = _SEARCH_SHARE * self.budget
        waiting: dict[str, tuple[Candidate, Future[Compiled]]] = {}
        self.ask(waiting, first)
        while True:
            if len(waiting) < _IN_FLIGHT and self.may_ask(waiting):
                self.ask(waiting, self.steps(waiting, _IN_FLIGHT - len(waiting)))
            if not waiting:
                return
            if self.spent() >= (self.budget if self.state.best is None else deadline):
                break
            key = next((key for key, (_, future) in waiting.items() if future.done()), None)
            if key is None:
                left = max(deadline - self.spent(), 0.05)
                wait([future for _, future in waiting.values()], min(left, 0.5), FIRST_COMPLETED)
                continue
            candidate, future = waiting.pop(key)
            self.screen(candidate, future)
        for candidate, future in waiting.values():
            future.cancel()
            self.state.outcomes[candidate.key] = self.outcome(candidate, "skipped", "no time was left for it")

    def may_ask(self, waiting: dict[str, Any]) -> bool:
        if self.most is None:
            return True
        return len(self.state.measured()) + len(waiting) < self.most

    def ask(self, waiting: dict[str, tuple[Candidate, Future[Compiled]]], candidates: Iterable[Candidate]) -> None:
        """Has candidates compiled, those that are new."""
        for candidate in candidates:
            if candidate.key in self.state.outcomes or candidate.key in waiting or not self.may_ask(waiting):
                continue
            if self.state.ended_runs(candidate):
                reason = f"{self.state.attempts[candidate.key]} runs ended while it was measured"
                self.state.end(self.outcome(candidate, "failed", reason))
                continue
            waiting[candidate.key] = candidate, self.compiler.submit(candidate.config, len(waiting))

    def steps(self, waiting: dict[str, Any], most: int) -> list[Candidate]:
        """Steps from the fastest so far, launched as the fastest is; those the predicate refuses are noted."""
        leaders = self.leaders()
        if not leaders:
            return []
        tried = {outcome.candidate.config for outcome in self.state.outcomes.values()}
        tried |= {candidate.config for candidate, _ in waiting.values()}
        steps, refused = self.walks.steps([leader.config for leader in leaders], tried, most)
        for config in refused:
            reason = "; ".join(str(violation) for violation in config.violations())
            candidate = Candidate(config, leaders[0].dependent)
            self.state.outcomes[candidate.key] = self.outcome(candidate, "invalid", reason)
        return [Candidate(config, leaders[0].dependent) for config in steps]

    def leaders(self) -> list[Candidate]:
        """The fastest of each of the fastest families: steps from variants of one tile would lead to its variants only."""
        found: dict[tuple[object, ...], Candidate] = {}
        for outcome in self.state.measured():
            found.setdefault(family(outcome.candidate.config), outcome.candidate)
        return list(found.values())[:_LEADERS]

    def finalists(self, close: float = _CLOSE, most: int = _FINALISTS) -> list[Candidate]:
        """The fastest that are close to the best, ``most`` at most and not more than a few of a family."""
        ranked = self.state.measured()
        taken: Counter[tuple[object, ...]] = Counter()
        found: list[Candidate] = []
        for outcome in ranked:
            if (outcome.us or 0.0) > close * (ranked[0].us or 0.0) or len(found) == most:
                break
            kind = family(outcome.candidate.config)
            if taken[kind] < _OF_A_FAMILY:
                taken[kind] += 1
                found.append(outcome.candidate)
        return found

    def outcome(self, candidate: Candidate, status: Any, reason: str = "", **more: Any) -> Outcome:
        return Outcome(candidate, status, reason, modelled_us=1e6 * estimate(candidate.config, self.sms), **more)

    def screen(self, candidate: Candidate, future: Future[Compiled]) -> Runner | None:
        """Checks and times one candidate, keeps the outcome, and returns what runs it where it was right. One that was timed
        before is only checked again.
        """
        compiled = future.result()
        runner = None
        if compiled.refused:
            outcome = self.outcome(candidate, "refused", compiled.refused, compile_seconds=compiled.seconds)
        else:
            self.state.begin(candidate)
            self.save()
            outcome, runner = self.try_one(candidate, compiled.seconds)
        self.state.end(outcome)
        self.done += 1
        if outcome.status == "measured" and (self.state.best is None or (outcome.us or 0.0) < self.state.best_us):
            self.state.best, self.state.best_us = candidate, outcome.us or 0.0
        if outcome.status != "measured" and self.state.best == candidate:
            # It was right before, and is not now: whatever it is, it must not stay in use.
            others = self.state.measured()
            self.state.best = others[0].candidate if others else None
            self.state.best_us = (others[0].us or 0.0) if others else 0.0
        if outcome.status == "failed" and not self.bench.alive():
            raise DeviceLostError(
                f"the device does not answer after {candidate.key} ({outcome.reason}). What was found before is kept in "
                f"{self.store.path(self.place)}; run the same again, and it goes on without this candidate"
            )
        self.report(outcome)
        return runner

    def try_one(self, candidate: Candidate, compile_seconds: float) -> tuple[Outcome, Runner | None]:
        known = self.state.outcomes.get(candidate.key)
        try:
            runner = self.bench.open(candidate.config, candidate.dependent)
            complaint = runner.check()
            if complaint:
                return self.outcome(candidate, "wrong", complaint, compile_seconds=compile_seconds), None
            if known is not None and known.us:
                runner.expect(known.us)
                return known, runner
            us = runner.screen_us(1e6 * estimate(candidate.config, self.sms))
        except KeyboardInterrupt:
            self.state.attempts.pop(candidate.key, None)  # its end is no fault of the candidate
            raise
        except Exception as error:  # a launch fails in as many ways as CuPy and the driver have classes
            _logger.info("%s failed", candidate.key, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
            return self.outcome(candidate, "failed", reason, compile_seconds=compile_seconds), None
        return self.outcome(candidate, "measured", us=us, compile_seconds=compile_seconds), runner

    # ---- the finals -----------------------------------------------------------------------------------------------

    def finals(self, untuned: Candidate) -> None:
        """Interleaved rounds of the best few, of the best one launched the other way, and of what is chosen without
        tuning; slower ones drop out. The winner is the best from now on.
        """
        self.phase = "finals"
        close = self.finalists()
        if not close:
            return
        runners = self.open_all([*close, *(one.twin for one in close[:2]), untuned])
        if not runners:
            return
        times: dict[str, list[float]] = {key: [] for key in runners}
        racing = dict(runners)
        for number, rounds in enumerate(_ROUNDS):
            for key, values in self.bench.rounds(racing, rounds).items():
                times[key] += values
            leader = min(racing, key=lambda key: statistics.median(times[key]))
            if number + 1 < len(_ROUNDS):
                racing = {key: runner for key, runner in racing.items() if _may_win(times[leader], times[key])}
            self.report()
            if len(racing) == 1 or self.spent() >= self.budget:
                break
        self.decide(times, racing, untuned)

    def alone(self, untuned: Candidate) -> None:
        """The best few and what is chosen without tuning, each alone at the power limit; the fastest again and longer."""
        self.phase = "alone"
        racing = self.open_all([*self.finalists(_SUSTAINED_CLOSE, _ALONE[0][0]), untuned])
        times: dict[str, list[float]] = {}
        for most, seconds in _ALONE:
            ranked = sorted(racing, key=lambda key: times.get(key, [0.0])[-1])
            racing = {key: racing[key] for key in ranked[:most]}
            if times and self.spent() >= self.budget:
                break
            for key, us in self.bench.alone(racing, seconds).items():
                times.setdefault(key, []).append(us)
            self.report()
        if not times:
            return
        latest = {key: [values[-1]] for key, values in times.items()}
        longest = max(len(values) for values in times.values())
        self.decide(latest, {key: racing[key] for key in racing if len(times[key]) == longest}, untuned)

    def open_all(self, candidates: list[Candidate]) -> dict[str, Runner]:
        """Runners of those that are right; a twin that was not screened is screened now."""
        found: dict[str, Runner] = {}
        for candidate in candidates:
            key = candidate.key
            known = self.state.outcomes.get(key)
            if key in found or (known is not None and known.status != "measured"):
                continue
            # Its build is in the cache, or on its way.
            runner = self.screen(candidate, self.compiler.submit(candidate.config))
            if runner is not None:
                found[key] = runner
        return found

    def decide(self, times: dict[str, list[float]], racing: dict[str, Runner], untuned: Candidate) -> None:
        winner = min(racing, key=lambda key: statistics.median(times[key]))
        for key, values in times.items():
            ratio = statistics.median(other / own for other, own in zip(values, times[winner], strict=False))
            self.state.outcomes[key] = replace(self.state.outcomes[key], ratio=ratio)
        self.state.best = self.state.outcomes[winner].candidate
        self.state.best_us = statistics.median(times[winner])
        chosen = [outcome for key in (untuned.key, untuned.twin.key) if (outcome := self.state.outcomes.get(key))]
        ratios = [outcome.ratio for outcome in chosen if outcome.ratio is not None]
        self.state.untuned_ratio = min(ratios, default=None)
        self.state.finished, self.state.budget = True, max(self.state.budget, self.asked)


def _may_win(leader: list[float], other: list[float]) -> bool:
    """Whether a candidate may still be faster than the leader: its ratios within rounds reach down to 1, or it is close.

    >>> _may_win([1.0, 1.0, 1.0], [1.1, 1.1, 1.1]), _may_win([1.0, 1.0, 1.0], [0.99, 1.1, 1.1])
    (False, True)
    """
    ratios = median_interval([theirs / ours for theirs, ours in zip(other, leader, strict=True)])
    return ratios.low <= 1.0 or ratios.median <= _DROP
