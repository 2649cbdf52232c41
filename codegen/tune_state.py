"""What a tuner found out so far, as it is kept on the disk: every candidate's outcome, and which one is the best.

The record is written whole after every candidate, so that a run that is killed at any moment loses at most the
measurement it was in. A candidate during whose measurement two runs ended is taken to be what ended them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from stridewright.kernels.config import GemmConfig, Problem

from .tuned.records import config_record, read_config

Status = Literal["measured", "invalid", "refused", "failed", "wrong", "skipped"]
MOST_ATTEMPTS = 2

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Candidate:
    """A configuration, its problem in it, and whether its launches are dependent (programmatic dependent launch)."""

    config: GemmConfig
    dependent: bool = True

    @property
    def key(self) -> str:
        """A name that tells it from every other candidate of the same problem.

        >>> Candidate(GemmConfig()).key
        'sm_90a_bf16_cooperative2_128x256x64_stages4_group8_tma2_dependent'
        """
        return self.config.name + ("_dependent" if self.dependent else "")

    @property
    def twin(self) -> Candidate:
        """The same kernel, launched the other way."""
        return dataclasses.replace(self, dependent=not self.dependent)


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate.

    ``status``: "measured"; "invalid" (the predicate refuses it), "refused" (it does not compile, or spills, or the
    assembler warns), "failed" (it did not launch, or ended the run), "wrong" (its result), "skipped" (no time left); for all
    but the first ``reason`` says more. ``us``: microseconds a product, a first impression. ``ratio``: its time over the
    winner's, median of interleaved rounds, None where it was in none. ``modelled_us``: what the model said.
    """

    candidate: Candidate
    status: Status
    reason: str = ""
    us: float | None = None
    ratio: float | None = None
    modelled_us: float | None = None
    compile_seconds: float | None = None


@dataclass
class TuneState:
    """The outcomes by key, the best candidate and its microseconds, seconds spent, the most that a finished run was given,
    and whether one came to its end.
    """

    problem: Problem
    outcomes: dict[str, Outcome] = dataclasses.field(default_factory=dict)
    best: Candidate | None = None
    best_us: float = 0.0
    untuned_ratio: float | None = None
    seconds: float = 0.0
    budget: float = 0.0
    finished: bool = False
    attempts: dict[str, int] = dataclasses.field(default_factory=dict)
    """By key: how often measuring a candidate was begun and not ended."""
    _written: dict[str, tuple[Outcome, dict[str, Any]]] = dataclasses.field(default_factory=dict, repr=False)

    def record(self) -> dict[str, Any]:
        """As JSON holds it."""
        best = None
        if self.best is not None:
            best = {"config": config_record(self.best.config), "dependent": self.best.dependent, "us": self.best_us}
        return {
            "made_by": made_by(),
            "best": best,
            "untuned_ratio": self.untuned_ratio,
            "seconds": self.seconds,
            "budget": self.budget,
            "finished": self.finished,
            "attempts": self.attempts,
            "outcomes": [self._written_once(key, outcome) for key, outcome in self.outcomes.items()],
        }

    def _written_once(self, key: str, outcome: Outcome) -> dict[str, Any]:
        known = self._written.get(key)
        if known is None or known[0] is not outcome:
            known = self._written[key] = outcome, _outcome_record(outcome)
        return known[1]

    def begin(self, candidate: Candidate) -> None:
        """Notes that a candidate is being measured."""
        self.attempts[candidate.key] = self.attempts.get(candidate.key, 0) + 1

    def end(self, outcome: Outcome) -> None:
        """Notes what became of it."""
        self.outcomes[outcome.candidate.key] = outcome
        self.attempts.pop(outcome.candidate.key, None)

    def ended_runs(self, candidate: Candidate) -> bool:
        """Whether so many runs ended while this candidate was measured that it must be the reason."""
        return self.attempts.get(candidate.key, 0) >= MOST_ATTEMPTS

    def measured(self) -> list[Outcome]:
        """The measured candidates, fastest first."""
        found = [outcome for outcome in self.outcomes.values() if outcome.status == "measured"]
        return sorted(found, key=lambda outcome: outcome.us or 0.0)


def read_state(record: Mapping[str, Any] | None, problem: Problem) -> TuneState:
    """The state in a record; an empty one where there is none, or where other kernels or another compiler made it."""
    state = TuneState(problem)
    if record is None:
        return state
    if record.get("made_by") != made_by():
        _logger.info("an older tuning run of %s was made with other kernels or another compiler; begun anew", problem)
        return state
    try:
        for one in record["outcomes"]:
            outcome = read_outcome(one, problem)
            if outcome.status != "skipped":
                state.outcomes[outcome.candidate.key] = outcome
        best = record["best"]
        if best:
            state.best = Candidate(read_config(best["config"], problem), bool(best["dependent"]))
            state.best_us = float(best["us"])
        ratio = record["untuned_ratio"]
        state.untuned_ratio = None if ratio is None else float(ratio)
        state.seconds, state.budget = float(record["seconds"]), float(record["budget"])
        state.finished = bool(record["finished"])
        state.attempts = {str(key): int(count) for key, count in record["attempts"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        _logger.warning("an older tuning run of %s cannot be read and is begun anew: %s", problem, error)
        return TuneState(problem)
    return state


def _outcome_record(outcome: Outcome) -> dict[str, Any]:
    record = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    candidate = record.pop("candidate")
    kept = {name: value for name, value in record.items() if value not in (None, "")}
    return {"config": config_record(candidate.config, whole=False), "dependent": candidate.dependent, **kept}


def read_outcome(record: Mapping[str, Any], problem: Problem) -> Outcome:
    """An outcome from its record. Raises StaleRecordError, KeyError or TypeError for another version's."""
    given = {name: value for name, value in record.items() if name not in ("config", "dependent")}
    return Outcome(Candidate(read_config(record["config"], problem), bool(record["dependent"])), **given)


@lru_cache(maxsize=1)
def made_by() -> str:
    """A digest of what kernels are made of: their sources, the generator, the compiler. Times of different makes do not
    compare.
    """
    import stridewright.kernels

    from . import nvrtc

    folder = Path(stridewright.kernels.__file__).parent
    digest = hashlib.sha256()
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".cuh", ".cu"))
    for path in (*files, Path(__file__).parent / "source.py"):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    try:
        digest.update(nvrtc.library().identity.encode())
    except nvrtc.NvrtcMissingError:
        digest.update(b"no compiler")
    return digest.hexdigest()[:16]
