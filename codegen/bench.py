"""One shape on the GPU: our configurations beside cuBLASLt's first choice and the best of its list, in one run.

Everybody multiplies the same rotating buffers, everybody's result is checked, and what is compared ran in turns. What
is asked of the GPU stands in ``measure``, ``gpu_values`` and ``cublaslt``; here is only who runs, and what is recorded.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import cublaslt, measure
from .gpu_values import check_on_gpu, poison
from .measure import Launch, Loop, Pairs, Sustained
from .speed_of_light import Device, Floor, floor

if TYPE_CHECKING:
    from stridewright.kernels.config import GemmConfig

    from .check import Check
    from .gpu_values import Buffers

SCREEN_US, SCREEN_ROUNDS = 1500.0, 3
"""Length of a replay, and rounds, when only the fastest of many are looked for."""

FINALISTS = 3
"""Algorithms of cuBLASLt in the final rounds: its first choice and the fastest others; the best is found there, so that a
lucky screening does not decide.
"""


@dataclass(frozen=True)
class Ours:
    """A configuration to measure and what it is called: "untuned", "tuned", "given". ``dependent``: with plain launches,
    with dependent ones, or both."""

    label: str
    config: GemmConfig
    dependent: tuple[bool, ...] = (False, True)


@dataclass(frozen=True)
class Entrant:
    """Who runs: ``loop`` captures a loop of about so many microseconds, ``launch`` multiplies the first buffers once."""

    labels: tuple[str, ...]
    detail: str
    launch: Launch
    loop: Callable[[float], Loop]
    dependent: bool = False
    config: GemmConfig | None = None


@dataclass(frozen=True)
class Entry:
    """What one entrant did. Times in microseconds a product, in turns with the others; ``to_first`` and ``to_best`` are
    cuBLASLt's time over this one's; ``sustained`` where it was asked for.
    """

    labels: tuple[str, ...]
    detail: str
    dependent: bool
    config: GemmConfig | None
    us: float
    tflops: float
    of_floor: float
    check: Check
    to_first: Pairs | None = None
    to_best: Pairs | None = None
    sustained: Sustained | None = None

    def record(self) -> dict[str, Any]:
        """The entry for JSON; of the configuration all parameters but the problem."""
        from .tuned.records import config_record

        made = dataclasses.asdict(dataclasses.replace(self, config=None))
        made["config"] = None if self.config is None else config_record(self.config)
        made["check"] = {**made["check"], "passed": self.check.passed}
        return made


@dataclass(frozen=True)
class ShapeResult:
    """All entries of a shape; ``first`` and ``best`` are places in ``entries`` of cuBLASLt's first choice and of its
    fastest; ``refused`` names what could not run, and why.
    """

    m: int
    n: int
    k: int
    dtype: str
    device: str
    floor: Floor
    buffer_sets: int
    rounds: int
    entries: tuple[Entry, ...]
    first: int | None
    best: int | None
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every result of ours that was timed is right; another program's wrong one is not timed at all."""
        return all(entry.check.passed for entry in self.entries if entry.config is not None)

    def winner(self, label: str) -> Entry | None:
        """The fastest entry of that name, plain or with dependent launches; None where there is none."""
        named = [entry for entry in self.entries if label in entry.labels]
        return min(named, key=lambda entry: entry.us, default=None)

    def record(self) -> dict[str, Any]:
        """The result for JSON."""
        return {
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "dtype": self.dtype,
            "device": self.device,
            "floor": {**dataclasses.asdict(self.floor), "us": self.floor.us, "bound": self.floor.bound},
            "buffer_sets": self.buffer_sets,
            "rounds": self.rounds,
            "first": self.first,
            "best": self.best,
            "entries": [entry.record() for entry in self.entries],
            "refused": [list(pair) for pair in self.refused],
        }


def known_configurations(m: int, n: int, k: int, arch: str = "sm_90a") -> list[Ours]:
    """The configuration chosen by the model, "untuned", and where this computer or the package's table knows a tuned one,
    that.

    >>> [ours.label for ours in known_configurations(333, 777, 1504)][0]
    'untuned'
    """
    from stridewright.kernels.config import Problem

    from .select import select
    from .tuned import lookup

    problem = Problem(m=m, n=n, k=k)
    found = [Ours("untuned", select(problem, arch))]
    tuned = lookup(problem, arch=arch)
    if tuned is not None:
        found.append(Ours("tuned", tuned.config))
    return found


def entrants_of(
    ours: Sequence[Ours], m: int, n: int, k: int, buffers: Sequence[Buffers]
) -> tuple[list[Entrant], list[tuple[str, str]]]:
    """Our entrants, one for each configuration and way to launch, whatever it is called; and what was refused."""
    from .build import BuildError
    from .gemm import Gemm

    wanted: dict[tuple[GemmConfig, bool], list[str]] = {}
    for one in ours:
        config = dataclasses.replace(one.config, problem=dataclasses.replace(one.config.problem, m=m, n=n, k=k))
        for dependent in one.dependent:
            labels = wanted.setdefault((config, dependent), [])
            if one.label not in labels:
                labels.append(one.label)
    found: list[Entrant] = []
    refused: dict[str, str] = {}
    for (config, dependent), labels in wanted.items():
        if config.name in refused:
            continue
        try:
            launches = measure.gemm_launches(Gemm(m, n, k, config=config), buffers, dependent)
        except (BuildError, ValueError) as error:
            refused[config.name] = str(error)
            continue
        found.append(_entrant(tuple(labels), config.name, launches, dependent, config))
    return found, list(refused.items())


def _entrant(
    labels: tuple[str, ...],
    detail: str,
    launches: Sequence[Launch],
    dependent: bool = False,
    config: GemmConfig | None = None,
) -> Entrant:
    return Entrant(
        labels,
        detail,
        launches[0],
        lambda target_us: measure.GraphLoop(launches, target_us=target_us),
        dependent,
        config,
    )


def cublaslt_entrants(
    m: int, n: int, k: int, dtype: str, buffers: Sequence[Buffers], most: int
) -> list[tuple[str, Entrant]]:
    """(name, entrant) for each algorithm of cuBLASLt's heuristic, its first choice first. Raises CublasLtError."""
    found = []
    for algorithm in cublaslt.heuristics(m, n, k, dtype, most):
        launches = cublaslt.CublasLtGemm(m, n, k, algorithm, dtype).launches(buffers)
        found.append((algorithm.name, _entrant(("cublaslt",), algorithm.name, launches)))
    return found


def fastest(entrants: Mapping[str, Entrant], most: int) -> list[str]:
    """The names of the ``most`` fastest in short rounds, fastest first; all of them where they are no more."""
    if len(entrants) <= most:
        return list(entrants)
    loops = {name: entrant.loop(SCREEN_US) for name, entrant in entrants.items()}
    times = measure.measure_rounds(loops, rounds=SCREEN_ROUNDS, warm=1)
    return sorted(entrants, key=lambda name: statistics.median(times[name]))[:most]


OTHERS_ERROR = 1e-2
"""Relative error up to which another program's result counts as right: some add partial sums in bf16 (cuBLASLt's split
products with reduction in the output's type), which our bound for sums in float32 does not allow.
"""


def acceptable(entrant: Entrant, check: Check) -> bool:
    """Whether a result is right: ours within its bound, element by element; another program's by its relative error, with
    nothing unwritten.
    """
    if entrant.config is not None:
        return check.passed
    return check.passed or (check.relative_error <= OTHERS_ERROR and "NaN" not in check.worst)


@dataclass
class _Field:
    """Who takes part, by a name of its own; ``checks`` of those that were checked."""

    entrants: dict[str, Entrant] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    first: str = ""

    def add(self, name: str, entrant: Entrant, buffers: Buffers, dtype: str) -> None:
        """Checks an entrant and, where it is right, lets it run; what is wrong is kept among the refused."""
        check = measure.check_launch(entrant.launch, buffers, dtype)
        if acceptable(entrant, check):
            self.entrants[name], self.checks[name] = entrant, check
        else:
            self.refused.append((entrant.detail, f"wrong result: {check.worst}"))


def bench_shape(
    m: int,
    n: int,
    k: int,
    ours: Sequence[Ours],
    device: Device,
    *,
    dtype: str = "bf16",
    rounds: int = 15,
    most_algorithms: int = cublaslt.MOST_ALGORITHMS,
    finalists: int = FINALISTS,
    sustained: float = 0.0,
    extra: Callable[[Sequence[Buffers]], Sequence[Entrant]] | None = None,
    seed: int = 0,
) -> ShapeResult:
    """Measures a shape on the current GPU.

    Of several configurations called "candidate" only the ``finalists`` fastest take part in the final rounds.
    ``sustained``: seconds for which the fastest of each name, and each of cuBLASLt's, then run alone; 0 for none.
    ``extra`` makes further entrants from the buffers. What computes a wrong result is refused and not timed.
    """
    buffers = measure.rotation(m, n, k, dtype, seed=seed)
    field = _Field()
    mine, field.refused = entrants_of(ours, m, n, k, buffers)
    candidates = {str(place): entrant for place, entrant in enumerate(mine) if entrant.labels == ("candidate",)}
    kept = {id(candidates[name]) for name in fastest(candidates, finalists)}
    for place, entrant in enumerate(mine):
        if entrant.labels != ("candidate",) or id(entrant) in kept:
            field.add(f"ours {place}", entrant, buffers[0], dtype)
    try:
        theirs = dict(cublaslt_entrants(m, n, k, dtype, buffers, most_algorithms)) if most_algorithms else {}
    except cublaslt.CublasLtError as error:
        theirs = {}
        field.refused.append(("cublaslt", str(error)))
    if theirs:
        first = next(iter(theirs))
        names = dict.fromkeys([first, *fastest(theirs, finalists)])
        for name in list(names)[:finalists]:
            field.add(name, theirs[name], buffers[0], dtype)
        field.first = first
    for place, entrant in enumerate(extra(buffers) if extra is not None else ()):
        field.add(f"extra {place}", entrant, buffers[0], dtype)
    return _final(field, (m, n, k), dtype, device, rounds, sustained, buffers)


def _final(
    field: _Field,
    sizes: tuple[int, int, int],
    dtype: str,
    device: Device,
    rounds: int,
    sustained: float,
    buffers: Sequence[Buffers],
) -> ShapeResult:
    loops = {name: entrant.loop(measure.TARGET_US) for name, entrant in field.entrants.items()}
    times = measure.measure_rounds(loops, rounds) if loops else {}
    for name, loop in loops.items():
        # As it was timed: in a graph, one launch close behind the other.
        poison(buffers[-1].d, measure.timing_stream())
        loop.enqueue()()
        check = check_on_gpu(buffers[-1], dtype)
        if not check.passed:
            field.checks[name] = check
    medians = {name: statistics.median(values) for name, values in times.items()}
    theirs = [name for name, entrant in field.entrants.items() if entrant.labels == ("cublaslt",)]
    best = min(theirs, key=lambda name: medians[name], default=None)
    first = field.first if field.first in theirs else None
    alone: dict[str, Sustained] = {}
    if sustained > 0:
        alone = measure.measure_alone_in_turns({name: loops[name] for name in _alone(field, medians)}, sustained)
    least = floor(device, *sizes)
    m, n, k = sizes
    entries = []
    for name, entrant in field.entrants.items():
        us = medians[name]
        entries.append(
            Entry(
                labels=entrant.labels,
                detail=entrant.detail,
                dependent=entrant.dependent,
                config=entrant.config,
                us=us,
                tflops=2e-6 * m * n * k / us,
                of_floor=least.us / us,
                check=field.checks[name],
                to_first=None if first is None else measure.paired(times[name], times[first]),
                to_best=None if best is None else measure.paired(times[name], times[best]),
                sustained=alone.get(name),
            )
        )
    places = list(field.entrants)
    return ShapeResult(
        *sizes,
        dtype,
        device.name,
        least,
        len(buffers),
        rounds,
        tuple(entries),
        None if first is None else places.index(first),
        None if best is None else places.index(best),
        tuple(field.refused),
    )


def _alone(field: _Field, medians: Mapping[str, float]) -> list[str]:
    """Who runs alone: all of cuBLASLt's (the fastest in turns need not be the fastest alone), and the fastest of each name of
    ours, of what was chosen without tuning only where nothing was tuned.
    """
    chosen = dict.fromkeys(name for name, entrant in field.entrants.items() if entrant.labels == ("cublaslt",))
    labels = dict.fromkeys(label for entrant in field.entrants.values() for label in entrant.labels)
    for label in labels:
        ours = any(entrant.config is not None for entrant in field.entrants.values() if label in entrant.labels)
        if ours and not (label == "untuned" and "tuned" in labels):
            named = [name for name, entrant in field.entrants.items() if label in entrant.labels]
            chosen[min(named, key=lambda name: medians[name])] = None
    return list(chosen)
