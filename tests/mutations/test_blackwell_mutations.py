"""Faults planted by rules in eight Blackwell kernels are found, those that others shipped among them, and the kernels without a fault raise no alarm.

CI runs every trap once, a sample of the other mutants, the same in every run, and two orders of the unmutated kernels. The nightly command runs everything:

    python -m pytest -m slow tests/mutations/test_blackwell_mutations.py
    python -m tests.mutations.blackwell --json mutations.json       the same mutants as a table: what found each, under which seed, in which words
"""

from __future__ import annotations

import random
from fnmatch import fnmatchcase

import pytest

from .blackwell import (
    PTX_SUBJECTS,
    SUBJECTS,
    Outcome,
    built,
    gemm_of,
    mutants,
    run,
    source_mutants,
    source_of,
    unmutated,
)
from .blackwell_host import host_mutants
from .blackwell_rules import BLACKWELL_RULES, PUBLIC_TRAPS, zeroed
from .blackwell_survivors import EQUIVALENT, GAPS, SURVIVORS, reason
from .judge import Subject, judge
from .rules import Mutant

SAMPLE = 14
"""Mutants of the source that CI builds and runs beside the traps."""


def traps() -> list[Mutant]:
    """One mutant of each fault that was told in public: on the subject with a pair where it is for one."""
    every = [*source_mutants(), Mutant(SUBJECTS["textbook"], zeroed(wait=False), "source")]
    return [next(m for m in reversed(every) if m.rule.name == name) for name in PUBLIC_TRAPS]


def sample() -> list[Mutant]:
    """Some mutants of the source, another rule each."""
    found = [mutant for mutant in source_mutants() if mutant.rule.name not in PUBLIC_TRAPS]
    random.Random(8).shuffle(found)
    return list({mutant.rule.name: mutant for mutant in found}.values())[:SAMPLE]


def assert_caught_or_listed(outcome: Outcome) -> None:
    name = outcome.mutant.name
    if reason(name) is None:
        assert outcome.caught, f"{name} survives {outcome.verdict.seed + 1} seeds"
    else:
        assert not outcome.caught, f"{name} is caught ({outcome.verdict}): blackwell_survivors.py need not list it"


@pytest.mark.parametrize("mutant", traps(), ids=lambda mutant: mutant.rule.name.replace("trap: ", ""))
def test_a_trap_that_others_fell_into_is_caught(mutant: Mutant) -> None:
    outcome = run(mutant)
    assert outcome.verdict.kind != "survived", f"{PUBLIC_TRAPS[mutant.rule.name]}: not seen"


def test_stored_zeros_that_are_waited_for_are_no_fault() -> None:
    """What the trap without the wait differs from."""
    subject = SUBJECTS["textbook"]
    verdict = judge(subject, built(zeroed(wait=True).apply(source_of(subject))), range(2), gemm_of(subject))
    assert verdict.kind == "survived", verdict


@pytest.mark.parametrize("mutant", sample(), ids=lambda mutant: mutant.name)
def test_a_sample_of_the_mutants_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", source_mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_source_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


def launch_mutants() -> list[Mutant]:
    return list(host_mutants(SUBJECTS))


@pytest.mark.parametrize("mutant", launch_mutants()[2::13], ids=lambda mutant: mutant.name)
def test_a_sample_of_the_mutants_of_the_launch_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", launch_mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_launch_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("subject", PTX_SUBJECTS)
def test_every_mutant_of_the_ptx_is_caught(subject: str) -> None:
    found = [mutant for mutant in mutants() if mutant.level == "ptx" and mutant.subject.name == subject]
    assert len(found) >= 50
    # Which copy of an unrolled loop is harmless is the compiler's choice, so patterns may list more than survives.
    assert [m.name for m in found if not run(m).caught and reason(m.name) is None] == []


def test_every_rule_applies_where_it_says() -> None:
    for mutant in source_mutants():
        mutant.rule.apply(source_of(mutant.subject))


def test_there_are_many_mutants_each_with_its_own_name_and_few_are_listed_as_survivors() -> None:
    names = [mutant.name for mutant in mutants()]
    assert len(names) == len(set(names))
    assert len({rule.name for rule in BLACKWELL_RULES}) >= 150
    listed = [name for name in names if reason(name) is not None]
    assert len(listed) <= 0.05 * len(names)
    # A pattern that matches nothing is a leftover.
    assert [pattern for pattern in SURVIVORS if not any(fnmatchcase(name, pattern) for name in names)] == []
    assert not EQUIVALENT.keys() & GAPS.keys()
    assert all(len(why) > 40 for why in SURVIVORS.values())


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_kernels_without_a_fault_raise_no_alarm(subject: Subject) -> None:
    assert unmutated(subject).complaints == ()
    verdict = judge(subject, unmutated(subject), range(2), gemm_of(subject))
    assert verdict.kind == "survived", verdict


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_kernels_without_a_fault_raise_no_alarm_over_100_seeds(subject: Subject) -> None:
    verdict = judge(subject, unmutated(subject), range(100), gemm_of(subject))
    assert verdict.kind == "survived", verdict
