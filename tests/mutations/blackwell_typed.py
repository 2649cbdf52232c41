"""The block-scaled and typed Blackwell kernels that are mutated, their mutants, and how one is run: as in :mod:`.blackwell`.

``python -m tests.mutations.blackwell_typed [words of names ...] [--json FILE]`` at the repository's root says of each mutant what found it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from stridewright import Gemm
from stridewright.codegen.build import Build
from stridewright.codegen.quantise import BlockScaled, scaled_format
from stridewright.codegen.tensors import numpy_type
from stridewright.kernels.config import Problem
from stridewright.layout.hardware.scale_factors import SCALED_TYPES

from .blackwell import Outcome, built, tabulate
from .blackwell_typed_host import TYPED_HOST_RULES, launched
from .blackwell_typed_rules import TYPED_RULES
from .host_rules import HostRule
from .judge import Subject, judge
from .rules import Mutant


def _subject(
    name: str,
    shape: tuple[int, int, int],
    sms: int,
    formats: tuple[str, str, str],
    major: str = "k",
    **parameters: object,
) -> Subject:
    a, b, d = formats
    problem = Problem(a=a, b=b, d=d, a_major=major, b_major=major)  # type: ignore[arg-type]
    return Subject(name, tuple({"arch": "sm_100a", "problem": problem, **parameters}.items()), shape, sms)


TYPED_SUBJECTS = {
    one.name: one
    for one in (
        _subject("nvfp4", (280, 400, 1440), 2, ("nvfp4", "nvfp4", "bf16"), tile_m=128, tile_n=192, tile_k=256, stages=2, group_m=2),
        _subject("mxfp8", (280, 264, 928), 2, ("mxfp8", "mxfp8", "bf16"), tile_m=128, tile_n=64, tile_k=128, stages=3, accumulators=2, group_m=2),
        _subject("mxfp4-pair", (552, 400, 1440), 4, ("mxfp4", "mxfp4", "bf16"), tile_m=256, tile_n=192, tile_k=256, pair=True, stages=2, accumulators=2, launch="clc", group_m=2),
        _subject("mixed", (280, 200, 896), 2, ("mxfp8_e5m2", "mxfp4", "bf16"), tile_m=128, tile_n=128, tile_k=128, stages=3, accumulators=2, order="row", store="direct"),
        _subject("padded", (280, 264, 896), 2, ("e4m3", "e2m1", "bf16"), tile_m=128, tile_n=64, tile_k=128, stages=3, accumulators=2, group_m=2),
        _subject("sixes", (552, 136, 896), 4, ("e2m3", "e3m2", "f16"), tile_m=256, tile_n=64, tile_k=128, pair=True, stages=3, accumulators=2, group_m=2),
        _subject("tf32", (280, 136, 232), 2, ("tf32", "tf32", "f32"), "mn", tile_m=128, tile_n=64, tile_k=32, stages=3, accumulators=2, group_m=2),
        _subject("whole", (280, 136, 880), 2, ("u8", "s8", "s32"), tile_m=128, tile_n=64, tile_k=128, stages=3, accumulators=2, group_m=2),
        _subject("stationary", (72, 264, 440), 2, ("bf16", "bf16", "bf16"), tile_m=32, tile_n=128, tile_k=64, stages=3, stationary=True, store="direct", order="row"),
        _subject("copied", (552, 136, 440), 4, ("f16", "f16", "bf16"), tile_m=256, tile_n=64, tile_k=64, pair=True, stages=3, accumulators=2, a_in="tensor", group_m=2),
        _subject("registers", (280, 136, 448), 2, ("e4m3", "bf16", "bf16"), tile_m=128, tile_n=64, tile_k=64, stages=3, accumulators=2, a_in="registers", group_m=2),
    )
}  # fmt: skip
"""Three kinds of block scaling and a mixture, packed 4 and 6 bits, both operands MN-major, whole numbers, a weight-stationary tile, and A in tensor memory."""


def scaled(subject: Subject) -> bool:
    """Whether its operands have factors."""
    return subject.config.problem.a in SCALED_TYPES


def gemm_of(subject: Subject) -> Gemm:
    """The kernel without a fault."""
    config = subject.config
    problem = config.problem
    return Gemm(*subject.shape, problem.a, problem.b, problem.d, config.arch, problem.a_major, problem.b_major, config)


@functools.lru_cache(maxsize=16)
def source_of(subject: Subject) -> str:
    return gemm_of(subject).source


@functools.lru_cache(maxsize=16)
def unmutated(subject: Subject) -> Build:
    return built(source_of(subject))


def _quantised(rows: int, k: int, name: str, random: np.random.Generator) -> BlockScaled:
    """Whole numbers from -4 to 4 and factors other than one, so few bits in all that every sum of their products is exact in float32."""
    form = scaled_format(name)
    codes = form.elements.nearest(random.integers(-4, 5, (rows, k)).astype(np.float64))
    shape = (rows, k // form.vector)
    # ue8m0: 1/4 to 4; ue4m3: 1/2 to 3.75 in steps of a quarter of their power of two.
    drawn = 125 + random.integers(0, 5, shape) if form.scale == "ue8m0" else 0x30 + 2 * random.integers(0, 12, shape)
    return BlockScaled(form, codes, drawn.astype(np.uint8))


_SPAN = {"u8": (0, 256), "s8": (-128, 128)}
"""Whole numbers that are drawn; of others -4 to 4, which every format has and whose sums are exact."""


@functools.lru_cache(maxsize=16)
def problem_of(subject: Subject) -> tuple[Any, Any, Any]:
    """A, B, and the exact product rounded once."""
    random = np.random.default_rng(1)
    (m, n, k), problem = subject.shape, subject.config.problem
    result = numpy_type(problem.d)
    if scaled(subject):
        left, right = _quantised(m, k, problem.a, random), _quantised(n, k, problem.b, random)
        return left, right, (left.values() @ right.values().T).astype(np.float32).astype(result)
    drawn = [random.integers(*_SPAN.get(name, (-4, 5)), (rows, k)) for rows, name in ((m, problem.a), (n, problem.b))]
    orders = ["F" if major == "mn" else "C" for major in (problem.a_major, problem.b_major)]
    a, b = (np.array(one.astype(numpy_type(name)), order=order) for one, name, order in zip(drawn, (problem.a, problem.b), orders, strict=True))  # type: ignore[call-overload]  # fmt: skip
    return a, b, (drawn[0] @ drawn[1].T).astype(np.float64).astype(result)


def source_mutants() -> list[Mutant]:
    """Those of the CUDA source; costs no compilation."""
    return [Mutant(TYPED_SUBJECTS[name], rule, "source") for rule in TYPED_RULES for name in rule.on]


def launch_mutants() -> list[Mutant]:
    """Those of tensor maps and of how operands and factors lie in memory."""
    return [Mutant(TYPED_SUBJECTS[name], rule, "launch") for rule in TYPED_HOST_RULES for name in rule.on]


def mutants() -> Iterator[Mutant]:
    """All of them; each has a name of its own."""
    yield from source_mutants()
    yield from launch_mutants()


def run(mutant: Mutant) -> Outcome:
    """Builds the mutant and asks the emulator. Raises CompileError for a mutant that is no program, which is a fault of the rule."""
    subject = mutant.subject
    if isinstance(mutant.rule, HostRule):
        gemm = launched(gemm_of(subject), mutant.rule)
        return Outcome(mutant, judge(subject, unmutated(subject), gemm=gemm, problem=problem_of(subject)), ())
    program = built(mutant.rule.apply(source_of(subject)))
    verdict = judge(subject, program, gemm=gemm_of(subject), problem=problem_of(subject))
    return Outcome(mutant, verdict, program.complaints)


if __name__ == "__main__":
    tabulate("blackwell_typed", __doc__, mutants, run)
