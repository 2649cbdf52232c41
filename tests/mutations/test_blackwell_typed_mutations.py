"""Faults planted by rules in eleven block-scaled and typed Blackwell kernels are found, and the kernels without a fault raise no alarm.

CI runs a sample, the same in every run, and two orders of the unmutated kernels. The nightly command runs everything:

    python -m pytest -m slow tests/mutations/test_blackwell_typed_mutations.py
    python -m tests.mutations.blackwell_typed --json mutations.json       the same mutants as a table: what found each, under which seed, in which words
"""

from __future__ import annotations

import random
from fnmatch import fnmatchcase

import pytest

from .blackwell import Outcome
from .blackwell_typed import (
    TYPED_SUBJECTS,
    gemm_of,
    launch_mutants,
    mutants,
    problem_of,
    run,
    source_mutants,
    source_of,
    unmutated,
)
from .blackwell_typed_rules import TYPED_RULES
from .blackwell_typed_survivors import TYPED_EQUIVALENT, TYPED_GAPS, TYPED_SURVIVORS, reason
from .judge import Subject, judge
from .rules import Mutant

SAMPLE = 16
"""Mutants of the source that CI builds and runs."""


def sample() -> list[Mutant]:
    """Some mutants of the source, another rule each; every subject is among them."""
    found = source_mutants()
    random.Random(9).shuffle(found)
    by_subject = {mutant.subject.name: mutant for mutant in found}
    others = [
        mutant
        for mutant in {mutant.rule.name: mutant for mutant in found}.values()
        if mutant not in by_subject.values()
    ]
    return [*by_subject.values(), *others][:SAMPLE]


def assert_caught_or_listed(outcome: Outcome) -> None:
    name = outcome.mutant.name
    if reason(name) is None:
        assert outcome.caught, f"{name} survives {outcome.verdict.seed + 1} seeds"
    else:
        assert not outcome.caught, (
            f"{name} is caught ({outcome.verdict}): blackwell_typed_survivors.py need not list it"
        )


@pytest.mark.parametrize("mutant", sample(), ids=lambda mutant: mutant.name)
def test_a_sample_of_the_mutants_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", source_mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_source_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


@pytest.mark.parametrize("mutant", launch_mutants()[5::17], ids=lambda mutant: mutant.name)
def test_a_sample_of_the_mutants_of_the_launch_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", launch_mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_launch_is_caught(mutant: Mutant) -> None:
    assert_caught_or_listed(run(mutant))


def test_every_rule_applies_where_it_says() -> None:
    for mutant in source_mutants():
        mutant.rule.apply(source_of(mutant.subject))


def test_there_are_many_mutants_each_with_its_own_name_and_few_are_listed_as_survivors() -> None:
    names = [mutant.name for mutant in mutants()]
    assert len(names) == len(set(names))
    assert len({rule.name for rule in TYPED_RULES}) >= 150
    listed = [name for name in names if reason(name) is not None]
    assert len(listed) <= 0.05 * len(names)
    # A pattern that matches nothing is a leftover.
    assert [pattern for pattern in TYPED_SURVIVORS if not any(fnmatchcase(name, pattern) for name in names)] == []
    assert not TYPED_EQUIVALENT.keys() & TYPED_GAPS.keys()
    assert all(len(why) > 40 for why in TYPED_SURVIVORS.values())


@pytest.mark.parametrize("subject", TYPED_SUBJECTS.values(), ids=TYPED_SUBJECTS)
def test_kernels_without_a_fault_raise_no_alarm(subject: Subject) -> None:
    assert unmutated(subject).complaints == ()
    verdict = judge(subject, unmutated(subject), range(2), gemm_of(subject), problem_of(subject))
    assert verdict.kind == "survived", verdict


@pytest.mark.slow
@pytest.mark.parametrize("subject", TYPED_SUBJECTS.values(), ids=TYPED_SUBJECTS)
def test_kernels_without_a_fault_raise_no_alarm_over_100_seeds(subject: Subject) -> None:
    verdict = judge(subject, unmutated(subject), range(100), gemm_of(subject), problem_of(subject))
    assert verdict.kind == "survived", verdict
