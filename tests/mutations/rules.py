"""What a mutation is: a rule over the kernel's text that must apply where it says, and the mutants that rules make of a subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .judge import SUBJECTS, Subject

ALL = tuple(SUBJECTS)
CLUSTERS = ("cluster", "row-cluster")
TURNS = ("pingpong", "cluster")
PANELS = ("cooperative", "pingpong", "cluster", "row-cluster")
STAGED = (*PANELS, "swapped")


@dataclass(frozen=True)
class Rule:
    """Replace the ``nth`` match (from 0) of ``pattern``; the text must have ``count`` matches, so that a rule that aged is noticed.

    ``on`` names the subjects it is applied to.
    """

    name: str
    pattern: str
    replacement: str
    on: tuple[str, ...] = ALL
    nth: int = 0
    count: int = 1

    def apply(self, text: str) -> str:
        """The mutant. Raises ValueError if the pattern does not stand in the text as often as it should, or changes nothing."""
        matches = list(re.finditer(self.pattern, text, re.MULTILINE))
        if len(matches) != self.count:
            raise ValueError(f"{self.name}: {self.pattern!r} matches {len(matches)} times, not {self.count}")
        match = matches[self.nth]
        mutant = text[: match.start()] + match.expand(self.replacement) + text[match.end() :]
        if mutant == text:
            raise ValueError(f"{self.name}: changes nothing")
        return mutant


@dataclass(frozen=True)
class Mutant:
    """A rule applied to a subject. ``level`` is the text it changes: the CUDA source, or the PTX made from it."""

    subject: Subject
    rule: Rule
    level: str

    @property
    def name(self) -> str:
        return f"{self.subject.name}/{self.level}/{self.rule.name}"


def exchange(name: str, old: str, new: str, on: tuple[str, ...] = ALL, nth: int = 0, count: int = 1) -> Rule:
    """A rule over plain text."""
    return Rule(name, re.escape(old), new.replace("\\", r"\\"), on, nth, count)


def drop(name: str, old: str, on: tuple[str, ...] = ALL, nth: int = 0, count: int = 1) -> Rule:
    """Leaves a piece of text out."""
    return exchange(name, old, "", on, nth, count)


def constant(name: str, formula: str, on: tuple[str, ...] = ALL, label: str = "") -> Rule:
    """Another value of a generated constant; ``{}`` in the formula is the value it has."""
    return Rule(
        f"{name} = {label or formula}",
        rf"^(constexpr \w+ {name}) = ([^;]+);",
        r"\1 = " + formula.replace("{}", r"(\2)") + ";",
        on,
    )


def applied(rules: tuple[Rule, ...], level: str) -> Iterator[Mutant]:
    """Every rule on every subject it is for."""
    for rule in rules:
        for name in rule.on:
            yield Mutant(SUBJECTS[name], rule, level)
