"""All mutants, and how one of them is run."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .host_rules import HostRule, Launched, host_mutants
from .judge import SUBJECTS, Subject, Verdict, built, judge, source_of, with_ptx
from .ptx_rules import ptx_mutants
from .rules import Mutant, applied
from .source_rules import SOURCE_RULES

PTX_SUBJECTS = ("cooperative", "cluster", "swapped")
"""Whose PTX is mutated: between them they have every instruction of the family."""


@dataclass(frozen=True)
class Outcome:
    """The emulator's verdict, and what the assembler complained of, which fails a strict build."""

    mutant: Mutant
    verdict: Verdict
    complaints: tuple[str, ...]

    @property
    def caught(self) -> bool:
        """By the emulator or by the build."""
        return self.verdict.kind != "survived" or bool(self.complaints)


@functools.lru_cache(maxsize=16)
def unmutated_ptx(subject: Subject) -> str:
    """The PTX of the kernel without a fault."""
    return built(subject, source_of(subject)).ptx


def source_mutants() -> list[Mutant]:
    """Those of the CUDA source; costs no compilation."""
    return list(applied(SOURCE_RULES, "source"))


def mutants(of_ptx: tuple[str, ...] = PTX_SUBJECTS) -> list[Mutant]:
    """Those of the source, of the launch, and of the PTX of some subjects; each has a name of its own."""
    found = [*source_mutants(), *host_mutants()]
    for name in of_ptx:
        found += ptx_mutants(SUBJECTS[name], unmutated_ptx(SUBJECTS[name]))
    return found


def run(mutant: Mutant) -> Outcome:
    """Builds the mutant and asks the emulator. Raises CompileError for a mutant that is no program, which is a fault of the rule."""
    subject = mutant.subject
    if mutant.level == "source":
        program = built(subject, mutant.rule.apply(source_of(subject)))
        return Outcome(mutant, judge(subject, program), program.complaints)
    program = built(subject, source_of(subject))
    if isinstance(mutant.rule, HostRule):
        gemm = Launched(*subject.shape, config=subject.config)
        gemm.rule = mutant.rule
        return Outcome(mutant, judge(subject, program, gemm=gemm), ())
    return Outcome(mutant, judge(subject, with_ptx(program, mutant.rule.apply(program.ptx))), ())
