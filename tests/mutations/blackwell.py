"""The Blackwell kernels that are mutated, their mutants, and how one is run: the emulator is asked, in strict mode, under several orders of completion.

``python -m tests.mutations.blackwell [words of names ...] [--json FILE]`` at the repository's root says of each mutant what found it.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stridewright.codegen.blackwell_gemm import BlackwellGemm, RungGemm
from stridewright.codegen.build import Build, build
from stridewright.kernels.config import GemmConfig

from .blackwell_host import host_mutants, launched
from .blackwell_rules import BLACKWELL_RULES
from .host_rules import HostRule
from .judge import Subject, Verdict, judge
from .ptx_rules import LOAD, ptx_mutants
from .rules import Mutant


def _subject(name: str, shape: tuple[int, int, int], sms: int, **parameters: object) -> Subject:
    return Subject(name, tuple({"arch": "sm_100a", **parameters}.items()), shape, sms)


SUBJECTS = {
    one.name: one
    for one in (
        _subject("textbook", (200, 72, 200), 4),
        _subject("ring", (200, 136, 696), 4),
        _subject("static", (280, 264, 440), 2, tile_m=128, tile_n=80, stages=3, accumulators=2, group_m=2),
        _subject("narrow", (136, 200, 440), 2, tile_m=64, tile_n=64, tile_k=128, stages=3, order="row", store="direct"),
        _subject("control", (280, 133, 440), 2, tile_m=128, tile_n=48, stages=3, accumulators=2, launch="clc", order="row", store="direct"),
        _subject("pair", (552, 264, 440), 4, tile_m=256, tile_n=96, pair=True, stages=3, accumulators=2, launch="clc", group_m=2),
        _subject("multicast", (400, 200, 440), 8, tile_m=128, tile_n=64, cluster_m=2, cluster_n=2, stages=3, accumulators=2, launch="clc", order="row"),
        _subject("halves", (280, 200, 440), 4, tile_m=128, tile_n=96, pair=True, stages=3, order="row"),
    )
}  # fmt: skip
"""Two rungs of the ladder and six of the family: between them they have every part."""

RUNGS = {"textbook": 0, "ring": 2}
PTX_SUBJECTS = ("static", "pair")

HARMLESS = tuple(f"later {name} " for name in (LOAD, "mbarrier.arrive.expect_tx", "tcgen05.commit", "mbarrier.init"))
"""What may come later, behind the next instruction: a copy that is asked for later arrives later; bytes may land before they are expected (PTX ISA, "Tracking
asynchronous operations by the mbarrier object"); a commit speaks for what was issued before it, whenever that is; and a barrier initialised behind the fence is one
that only this CTA's threads use, after its barrier."""


def gemm_of(subject: Subject) -> BlackwellGemm:
    """The kernel without a fault."""
    if subject.name in RUNGS:
        return RungGemm(RUNGS[subject.name], *subject.shape)
    config: GemmConfig = subject.config
    return BlackwellGemm(*subject.shape, config=config)


@functools.lru_cache(maxsize=16)
def source_of(subject: Subject) -> str:
    return gemm_of(subject).source


def built(source: str) -> Build:
    """The mutant as a program. Not strict: here the emulator is asked even where the build would be refused."""
    return build(source, arch="sm_100a", strict=False, name="mutant.cu", use_cache=False)


@functools.lru_cache(maxsize=16)
def unmutated(subject: Subject) -> Build:
    return built(source_of(subject))


def source_mutants() -> list[Mutant]:
    """Those of the CUDA source; costs no compilation."""
    return [Mutant(SUBJECTS[name], rule, "source") for rule in BLACKWELL_RULES for name in rule.on]


def mutants() -> Iterator[Mutant]:
    """Those of the source, of the launch, and of the PTX of two subjects; each has a name of its own."""
    yield from source_mutants()
    yield from host_mutants(SUBJECTS)
    for name in PTX_SUBJECTS:
        found = ptx_mutants(SUBJECTS[name], unmutated(SUBJECTS[name]).ptx)
        yield from (mutant for mutant in found if not mutant.rule.name.startswith(HARMLESS))


@dataclass(frozen=True)
class Outcome:
    """The emulator's verdict, and what the assembler complained of, which fails a strict build."""

    mutant: Mutant
    verdict: Verdict
    complaints: tuple[str, ...]

    @property
    def caught(self) -> bool:
        return self.verdict.kind != "survived" or bool(self.complaints)


def run(mutant: Mutant) -> Outcome:
    """Builds the mutant and asks the emulator. Raises CompileError for a mutant that is no program, which is a fault of the rule."""
    subject = mutant.subject
    if isinstance(mutant.rule, HostRule):
        gemm = launched(subject, mutant.rule)
        return Outcome(mutant, judge(subject, unmutated(subject), gemm=gemm), ())
    if mutant.level == "source":
        program = built(mutant.rule.apply(source_of(subject)))
    else:
        program = replace(unmutated(subject), ptx=mutant.rule.apply(unmutated(subject).ptx))
    return Outcome(mutant, judge(subject, program, gemm=gemm_of(subject)), program.complaints)


def tabulate(
    module: str, about: str | None, mutants: Callable[[], Iterator[Mutant]], run: Callable[[Mutant], Outcome]
) -> None:
    """The command: runs the mutants that are asked for and prints what found each."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.mutations.{module}", description=about)
    parser.add_argument("words", nargs="*", help="only mutants whose names have one of these; all if none is given")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--part", help="i/n: every n-th of them from the i-th on")
    arguments = parser.parse_args()
    chosen = [m for m in mutants() if not arguments.words or any(word in m.name for word in arguments.words)]
    if arguments.part:
        first, step = (int(number) for number in arguments.part.split("/"))
        chosen = chosen[first::step]
    if arguments.sample:
        chosen = random.Random(6).sample(chosen, min(arguments.sample, len(chosen)))
    rows = []
    for mutant in chosen:
        begun = time.perf_counter()
        found, seed, words = "broken", 0, ""
        try:
            outcome = run(mutant)
            found, seed, words = outcome.verdict.kind, outcome.verdict.seed, outcome.verdict.words
            if found == "survived" and outcome.complaints:
                found = "build"
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - begun
        print(f"{mutant.name}: {found}, seed {seed}, {seconds:.1f} s: {' '.join(words.split())[:150]}", flush=True)
        rows.append({"mutant": mutant.name, "found": found, "seed": seed, "words": words, "seconds": seconds})
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} mutants: {dict(Counter(str(row['found']) for row in rows))}")


if __name__ == "__main__":
    tabulate("blackwell", __doc__, mutants, run)
