"""Configurations and problems as plain JSON, and back.

Every parameter is written, those at their default too: a default may change, what was measured may not. What a record
holds that this version does not know makes it stale, and a parameter it does not hold has its default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stridewright.kernels.config import GemmConfig, Problem

KINDS = ("a", "b", "d", "a_major", "b_major", "form")
"""What of a problem names its types, how its operands lie, and whether it is one product or many."""


class StaleRecordError(ValueError):
    """A record of another version, or of none: what it says cannot be read as a configuration."""


def config_record(config: GemmConfig, whole: bool = True) -> dict[str, Any]:
    """``config`` without its problem: parts as objects, the rest as they are. Not ``whole``: only what differs from the
    defaults of this very version.

    >>> config_record(GemmConfig())["tile"]
    {'m': 128, 'n': 256, 'k': 64}
    >>> config_record(GemmConfig().replace(tile_n=64), whole=False)
    {'tile': {'n': 64}}
    """
    record: dict[str, Any] = {}
    defaults = GemmConfig()
    for field in dataclasses.fields(config):
        value, default = getattr(config, field.name), getattr(defaults, field.name)
        if field.name == "problem" or (not whole and value == default):
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            inside = dataclasses.asdict(value)
            value = {name: one for name, one in inside.items() if whole or one != getattr(default, name)}
        record[field.name] = value
    return record


def read_config(record: Mapping[str, Any], problem: Problem) -> GemmConfig:
    """The configuration that a record describes, for ``problem``; it may be invalid. Raises StaleRecordError, naming
    what is unknown.

    >>> read_config(config_record(GemmConfig().replace(stages=3)), Problem()).pipeline.stages
    3
    >>> read_config({"tile": {"depth": 3}}, Problem())
    Traceback (most recent call last):
    ...
    stridewright.codegen.tuned.records.StaleRecordError: tile: this version has no depth
    """
    defaults = GemmConfig()
    if not isinstance(record, Mapping):
        raise StaleRecordError(f"{record!r} is no configuration")
    known = {field.name for field in dataclasses.fields(defaults)} - {"problem"}
    _require(known, record, "configuration")
    parts: dict[str, Any] = {}
    for name, value in record.items():
        default = getattr(defaults, name)
        if not dataclasses.is_dataclass(default):
            parts[name] = value
            continue
        if not isinstance(value, Mapping):
            raise StaleRecordError(f"{name}={value!r}: must be an object")
        _require({field.name for field in dataclasses.fields(default)}, value, name)
        parts[name] = dataclasses.replace(default, **value)  # type: ignore[type-var]
    return GemmConfig(problem=problem, **parts)


def _require(known: set[str], given: Mapping[str, Any], where: str) -> None:
    unknown = [str(name) for name in given if name not in known]
    if unknown:
        raise StaleRecordError(f"{where}: this version has no {', '.join(unknown)}")


def problem_record(problem: Problem) -> dict[str, Any]:
    """The problem's sizes, types and majors.

    >>> problem_record(Problem(m=1, n=8, k=64))
    {'m': 1, 'n': 8, 'k': 64, 'a': 'bf16', 'b': 'bf16', 'd': 'bf16', 'a_major': 'k', 'b_major': 'k', 'form': 'one'}
    """
    return {field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)}


def read_problem(record: Mapping[str, Any]) -> Problem:
    """The problem that a record describes, its sizes given. Raises StaleRecordError for anything else.

    >>> read_problem(problem_record(Problem(m=1, n=8, k=64))).n
    8
    """
    if not isinstance(record, Mapping):
        raise StaleRecordError(f"{record!r} is no problem")
    known = {field.name for field in dataclasses.fields(Problem)}
    given = {name: value for name, value in record.items() if name in known}
    problem = Problem(**given)
    for name in ("m", "n", "k"):
        size = getattr(problem, name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise StaleRecordError(f"{name}={size!r}: must be a whole number from 1 up")
    return problem
