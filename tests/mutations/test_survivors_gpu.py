"""What the emulator lets pass is right on the chip too: each mutant that survives, many tiles for each SM, run again and again.

python -m pytest -m gpu tests/mutations
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.build import Build
from stridewright.codegen.launch import import_cupy

from .host_rules import HostRule
from .judge import SUBJECTS, Subject, built, source_of
from .rules import Mutant
from .suite import mutants
from .survivors import reason

pytestmark = pytest.mark.gpu

ROUNDS = 20
"""Launches of each mutant, each into an output full of NaN."""


def program_of(mutant: Mutant) -> Build:
    source = source_of(mutant.subject)
    if mutant.level == "source":
        return built(mutant.subject, mutant.rule.apply(source))
    unmutated = built(mutant.subject, source)
    # The driver assembles PTX where it is given that instead of a cubin.
    return replace(unmutated, cubin=mutant.rule.apply(unmutated.ptx).encode() + b"\0")


def wrong_rounds(subject: Subject, program: Build) -> int:
    """In how many launches D was not the exact product, bit for bit."""
    cupy = import_cupy()
    m, n, k = 2040, 2501 if subject.name == "direct" else 2504, subject.shape[2]
    random = np.random.default_rng(2)
    a, b = (random.integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    # Sums of such products are whole numbers below 2^24, exact in float32 too.
    exact = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    gemm = Gemm(m, n, k, config=subject.config)
    gemm.__dict__["build"] = program
    left, right, wanted = cupy.asarray(a), cupy.asarray(b), cupy.asarray(exact).view(cupy.uint16)
    nothing: Any = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    out = cupy.asarray(nothing)
    wrong = 0
    for _ in range(ROUNDS):
        out.view(cupy.uint16)[...] = 0x7FC0
        gemm(left, right, out=out)
        wrong += not bool((out.view(cupy.uint16) == wanted).all())
    return wrong


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_the_kernel_without_a_fault_is_right(subject: Subject) -> None:
    assert wrong_rounds(subject, built(subject, source_of(subject))) == 0


def test_every_survivor_is_right_on_the_chip() -> None:
    survivors = [m for m in mutants() if reason(m.name) is not None and not isinstance(m.rule, HostRule)]
    assert len(survivors) > 20
    assert {m.name: wrong for m in survivors if (wrong := wrong_rounds(m.subject, program_of(m)))} == {}
