"""Faults planted in the hand-over of partial sums between CTAs are found, and four kernels that share tiles raise no alarm without a fault.

CI runs a sample, the same in every run, and a few orders of the unmutated kernels. The nightly command runs everything:

    python -m pytest -m slow tests/mutations/test_split_mutations.py
"""

from __future__ import annotations

import random

import pytest

from .judge import Subject, built
from .rules import Mutant
from .split import EVERY, SPLIT_RULES, SUBJECTS, Outcome, gemm_of, judge, mutants, run, source_of

SAMPLE = 8


def sample() -> list[Mutant]:
    """Some mutants, another rule each."""
    found = mutants()
    random.Random(4).shuffle(found)
    return list({mutant.rule.name: mutant for mutant in found}.values())[:SAMPLE]


def assert_caught(outcome: Outcome) -> None:
    assert outcome.caught, f"{outcome.mutant.name} survives {outcome.verdict.seed + 1} seeds"


@pytest.mark.parametrize("mutant", sample(), ids=lambda mutant: mutant.name)
def test_a_sample_of_the_mutants_is_caught(mutant: Mutant) -> None:
    assert_caught(run(mutant))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    assert_caught(run(mutant))


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda subject: subject.name)
def test_kernels_without_a_fault_raise_no_alarm(subject: Subject) -> None:
    assert judge(subject, built(subject, source_of(subject)), range(2)).kind == "survived"


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda subject: subject.name)
def test_kernels_without_a_fault_raise_no_alarm_in_any_order(subject: Subject) -> None:
    assert judge(subject, built(subject, source_of(subject)), range(2, 24)).kind == "survived"


def test_rules_apply_where_they_say() -> None:
    for mutant in mutants():
        assert mutant.rule.apply(source_of(mutant.subject)) != source_of(mutant.subject)


def test_tiles_are_shared_by_several_ctas() -> None:
    for name in EVERY:
        subject = SUBJECTS[name]
        assert gemm_of(subject).grid(subject.sms)[0] > 1
        assert "red.relaxed" in source_of(subject) or subject.config.split.reduce == "ordered"
    assert len({rule.name for rule in SPLIT_RULES}) == len(SPLIT_RULES) > 40
