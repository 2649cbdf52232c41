"""Faults planted by rules in seven Hopper kernels are found, and the kernels without a fault raise no alarm.

CI runs a sample of the mutants, the same in every run, and a few seeds of the unmutated kernels. The nightly command runs everything:

    python -m pytest -m slow tests/mutations              every mutant, and 100 seeds of each unmutated kernel
    python -m tests.mutations --json mutations.json       the same mutants as a table: what found each, under which seed, in which words

A mutant is caught if the emulator finds a wrong value, a race, a deadlock or a broken rule under one of 8 seeds, or if the assembler's log fails
the strict build. What survives must be listed, with the reason, in survivors.py.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from .host_rules import host_mutants
from .judge import SUBJECTS, Subject, built, judge, source_of
from .rules import Mutant
from .suite import PTX_SUBJECTS, Outcome, mutants, run, source_mutants
from .survivors import EQUIVALENT, GAPS, SURVIVORS, reason

SAMPLE = 12
"""Mutants of the source that CI builds and runs, and a third as many of the launch and of the PTX."""


def sample() -> list[Mutant]:
    """Some mutants of the source and of the launch, another rule each."""
    chosen = []
    for found, count in ((source_mutants(), SAMPLE), (list(host_mutants()), SAMPLE // 3)):
        random.Random(6).shuffle(found)
        chosen += list({mutant.rule.name: mutant for mutant in found}.values())[:count]
    return chosen


def assert_caught_or_listed(outcome: Outcome) -> None:
    name = outcome.mutant.name
    if reason(name) is None:
        assert outcome.caught, f"{name} survives {outcome.verdict.seed + 1} seeds"
    else:
        assert not outcome.caught, f"{name} is caught ({outcome.verdict}): survivors.py need not list it"


@pytest.mark.parametrize("mutant", sample(), ids=lambda mutant: mutant.name)
def test_a_sample_of_the_mutants_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


def test_a_sample_of_the_mutants_of_the_ptx_is_caught() -> None:
    subject = SUBJECTS["swapped"]
    found = [mutant for mutant in mutants((subject.name,)) if mutant.level == "ptx"]
    for mutant in random.Random(6).sample(found, SAMPLE // 3):
        assert_caught_or_listed(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [*source_mutants(), *host_mutants()], ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_source_and_of_the_launch_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("subject", PTX_SUBJECTS)
def test_every_mutant_of_the_ptx_is_caught(subject: str) -> None:
    found = [mutant for mutant in mutants((subject,)) if mutant.level == "ptx"]
    assert len(found) >= 50
    survived = []
    for mutant in found:
        outcome = run(mutant)
        # Which copy of an unrolled loop is harmless is the compiler's choice, so patterns may list more than survives.
        if not outcome.caught and reason(mutant.name) is None:
            survived.append(mutant.name)
    assert survived == []


def test_every_rule_applies_where_it_says() -> None:
    for mutant in source_mutants():
        mutant.rule.apply(source_of(mutant.subject))


def test_a_rule_that_does_not_apply_is_noticed() -> None:
    mutant = source_mutants()[0]
    with pytest.raises(ValueError, match="matches 0 times, not 1"):
        mutant.rule.apply("nothing of the kind")


def test_there_are_many_mutants_each_with_its_own_name_and_few_are_listed_as_survivors() -> None:
    names = [mutant.name for mutant in mutants()]
    assert len(names) == len(set(names))
    assert len({mutant.rule.name for mutant in source_mutants()}) >= 80
    assert len({mutant.subject for mutant in source_mutants()}) >= 4
    listed = [name for name in names if reason(name) is not None]
    assert len(listed) <= 0.05 * len(names)
    # A pattern that matches nothing is a leftover.
    assert [pattern for pattern in SURVIVORS if not any(fnmatchcase(name, pattern) for name in names)] == []
    assert not EQUIVALENT.keys() & GAPS.keys()
    assert all(len(why) > 40 for why in SURVIVORS.values())


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_kernels_without_a_fault_raise_no_alarm(subject: Subject) -> None:
    program = built(subject, source_of(subject))
    assert program.complaints == ()
    m, n, _ = subject.shape
    verdict = judge(replace(subject, shape=(m, n, 200)), program)
    assert verdict.kind == "survived", verdict


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_kernels_without_a_fault_raise_no_alarm_over_100_seeds(subject: Subject) -> None:
    program = built(subject, source_of(subject))
    verdict = judge(subject, program, seeds=range(100))
    assert verdict.kind == "survived", verdict
