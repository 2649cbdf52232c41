"""The kernels that are mutated, and what the emulator makes of a mutant.

Each subject is a small problem chosen so that faults can show: several tiles for each CTA, more k-tiles than twice the slots of the ring,
edges that no tile divides, groups of tile rows of which the last is lower.
"""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Literal

import ml_dtypes
import numpy as np

from stridewright import Gemm
from stridewright.codegen.build import Build, build
from stridewright.codegen.emulator import DeadlockError, EmulationError
from stridewright.codegen.source import whole
from stridewright.kernels.config import GemmConfig

SEEDS = 8
"""Orders of completion that a mutant may take to be found."""

PATIENCE_SECONDS = 60.0
"""A run that takes longer goes round for ever: the unmutated kernels take under a second."""

Kind = Literal["value", "race", "deadlock", "rule", "endless", "build", "survived"]


@dataclass(frozen=True)
class Subject:
    """One configuration, the shape it is tried on (m, n, k), and how many CTAs share its tiles."""

    name: str
    parameters: tuple[tuple[str, object], ...]
    shape: tuple[int, int, int]
    sms: int

    @property
    def config(self) -> GemmConfig:
        return GemmConfig().replace(**dict(self.parameters))


def _subject(name: str, shape: tuple[int, int, int], sms: int, **parameters: object) -> Subject:
    return Subject(name, tuple(parameters.items()), shape, sms)


SUBJECTS = {
    one.name: one
    for one in (
        _subject("cooperative", (280, 264, 696), 2, tile_m=128, tile_n=128, stages=3, group_m=2),
        _subject("pingpong", (280, 200, 440), 2, schedule_kind="pingpong", tile_m=128, tile_n=64, stages=3, group_m=2),
        _subject(
            "cluster", (300, 264, 440), 4, schedule_kind="pingpong", tile_m=128, tile_n=80, cluster_m=2, stages=3, group_m=2
        ),
        _subject("row-cluster", (280, 264, 696), 4, tile_m=128, tile_n=64, tile_k=128, cluster_n=2, stages=2, group_m=2),
        _subject(
            "square-cluster", (280, 264, 440), 4, tile_m=128, tile_n=64, cluster_m=2, cluster_n=2, stages=3, group_m=2
        ),
        _subject("swapped", (72, 200, 696), 2, tile_m=64, tile_n=40, consumers=1, swap=True, stages=3, group_m=2),
        _subject("direct", (200, 133, 440), 2, tile_m=128, tile_n=64, stages=3, store="direct", group_m=1),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What was found first, under which seed, and in which words."""

    kind: Kind
    seed: int = 0
    words: str = ""


@functools.lru_cache(maxsize=16)
def gemm_of(subject: Subject) -> Gemm:
    return Gemm(*subject.shape, config=subject.config)


@functools.lru_cache(maxsize=16)
def source_of(subject: Subject) -> str:
    """The kernel's files in full, before what its constants make dead is left out: rules speak of what is written there."""
    return whole(gemm_of(subject).derivation.config)


@functools.lru_cache(maxsize=16)
def problem_of(subject: Subject) -> tuple[Any, Any, Any]:
    """A, B, and the exact product rounded once: integers from -4 to 4, whose sums are exact in float32 and of which some need rounding."""
    random = np.random.default_rng(1)
    m, n, k = subject.shape
    a, b = (random.integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    return a, b, (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)


def built(subject: Subject, source: str) -> Build:
    """The mutant as a program. Not strict: the assembler would repair or refuse some faults, and here the emulator is asked as well."""
    return build(source, arch="sm_90a", strict=False, name="mutant.cu")


class Endless(Exception):  # noqa: N818 - it ends a run and is no error of the emulator
    """A run took too long."""


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises Endless after so many seconds, where the platform has alarms."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judge(
    subject: Subject,
    program: Build,
    seeds: range = range(SEEDS),
    gemm: Gemm | None = None,
    problem: tuple[Any, Any, Any] | None = None,
) -> Verdict:
    """Runs a program under seed after seed until one shows a fault; "survived" if none does. ``gemm`` may launch it in a way of its own, on operands and
    with a result (``problem``) of its own.
    """
    a, b, exact = problem or problem_of(subject)
    gemm = gemm or Gemm(*subject.shape, config=subject.config)
    gemm.__dict__["build"] = program
    for seed in seeds:
        try:
            with patience(PATIENCE_SECONDS):
                emulation = gemm.emulate(a, b, seed=seed, sms=subject.sms)
        except Endless:
            return Verdict("endless", seed)
        except DeadlockError as error:
            return Verdict("deadlock", seed, str(error))
        except EmulationError as error:
            return Verdict("rule", seed, str(error))
        if emulation.races:
            return Verdict("race", seed, str(emulation.races[0]))
        if not np.array_equal(emulation.d.view(np.uint8), exact.view(np.uint8)):
            return Verdict(
                "value", seed, f"{np.count_nonzero(emulation.d != exact)} of {exact.size} elements are wrong"
            )
    return Verdict("survived", seeds.stop - 1)


def with_ptx(program: Build, ptx: str) -> Build:
    """The same program with other PTX."""
    return replace(program, ptx=ptx)
