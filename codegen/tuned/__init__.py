"""What is known from measuring: the configuration that was fastest for a problem on a device.

``lookup`` asks the results of this computer first, then the tables that come with the package. It never measures, and
never raises for what it finds on the disk: a damaged or outdated record counts as absent.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any

from stridewright.kernels.config import GemmConfig, Problem

from .device import TuningDevice, current_device
from .records import StaleRecordError, config_record, problem_record, read_config, read_problem
from .store import LOADS, BusyError, Place, Store, StoredEntry
from .table import Table, TableEntry, read_table, shipped_tables, write_table

__all__ = [
    "LOADS",
    "BusyError",
    "Place",
    "StaleRecordError",
    "Store",
    "StoredEntry",
    "Table",
    "TableEntry",
    "Tuned",
    "TuningDevice",
    "config_record",
    "current_device",
    "lookup",
    "problem_record",
    "read_config",
    "read_problem",
    "read_table",
    "require_load",
    "shipped_tables",
    "write_table",
]

GRANULE = 8
"""Rows of A in a bucket: every tile extent along M is a multiple of 8 (64 rows of wgmma's M, or with operands swapped 8 of its N)."""

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Tuned:
    """A configuration found by measuring, with the asked problem in it; ``dependent`` says whether its launches were
    dependent (programmatic dependent launch); ``source`` where it comes from, in words.
    """

    config: GemmConfig
    dependent: bool
    source: str


def lookup(
    problem: Problem,
    device: str | None = None,
    arch: str = "sm_90a",
    *,
    sms: int | None = None,
    store: Store | None = None,
    tables: tuple[Table, ...] | None = None,
    load: str = "bursts",
) -> Tuned | None:
    """The fastest known configuration for ``problem``, or None where it was never measured.

    ``device`` is a name as the driver gives it; by default that of the current GPU, or without one that of any table
    for ``arch`` (so that source can be generated elsewhere). Results of this computer come first (the current driver's,
    then the newest of another's), then the package's tables; a table of another device of the same architecture
    serves where it has as many multiprocessors (``sms``).

    Only the same N, K, types and majors serve. M may differ within a bucket of 8 rows: each tile extent along M is a
    multiple of 8, so every configuration has as many tiles, turns and steps for one M of the bucket as for another, and
    what differs is padding. Of several the exact M is taken, then the nearest.

    ``load``: "bursts", the fastest where products of many kinds take turns, or "sustained", the fastest alone at the
    card's power limit; what was not measured for that is looked up for bursts. ValueError for another.

    >>> lookup(Problem(m=3, n=5, k=8)) is None
    True
    """
    require_load(load)
    if problem.m is None or problem.n is None or problem.k is None:
        return None
    driver, name = "", device
    if device is None:
        here = current_device()
        if here is not None and here.arch == arch:
            name, driver, sms = here.name, here.driver, here.sms if sms is None else sms
    store = Store() if store is None else store
    files = frozenset[str]() if name is None else store.files(name)
    tables = shipped_tables() if tables is None else tables
    for kind in dict.fromkeys((load, "bursts")):
        if name is not None and files:
            for m in _bucket(problem.m):
                place = Place(name, driver, arch, dataclasses.replace(problem, m=m), kind)
                found = _stored(store, place, problem) if place.file in files else None
                if found is not None:
                    return found
        found = _shipped(problem, name, arch, sms, tuple(table for table in tables if table.load == kind))
        if found is not None:
            return found
    return None


def require_load(load: str) -> None:
    """Raises ValueError for what is not one of ``LOADS``.

    >>> require_load("sustained")
    """
    if load not in LOADS:
        raise ValueError(
            f"load={load!r}: must be one of {', '.join(LOADS)}; bursts: products take turns; sustained: one kind, over and over"
        )


def _bucket(m: int) -> list[int]:
    """The exact M, then the others of its bucket, nearest first.

    >>> _bucket(9)
    [9, 10, 11, 12, 13, 14, 15, 16]
    """
    last = -(-m // GRANULE) * GRANULE
    return sorted(range(last - GRANULE + 1, last + 1), key=lambda other: (abs(other - m), other))


def _stored(store: Store, place: Place, problem: Problem) -> Tuned | None:
    record = store.load_any_driver(place)
    best: Any = None if record is None else record.get("best")
    if record is None or not best:
        return None
    words = f"tuned on {record['device']}, driver {record['driver']}" + _load_words(place.load)
    return _read(best, problem, place.arch, words + _row_words(problem, place.problem))


def _shipped(problem: Problem, name: str | None, arch: str, sms: int | None, tables: tuple[Table, ...]) -> Tuned | None:
    fitting = [table for table in tables if table.arch == arch and (name in (None, table.device) or table.sms == sms)]
    assert problem.m is not None
    for table in sorted(fitting, key=lambda table: table.device != name):
        for m in _bucket(problem.m):
            measured = dataclasses.replace(problem, m=m)
            entry = table.entries.get(measured)
            if entry is None:
                continue
            config = dataclasses.replace(entry.config, problem=problem)
            if not config.violations():
                words = (
                    f"the package's table for {table.device}{_load_words(table.load)}{_row_words(problem, measured)}"
                )
                return Tuned(config, entry.dependent, words)
    return None


def _load_words(load: str) -> str:
    return "" if load == "bursts" else f", {load} load"


def _row_words(problem: Problem, measured: Problem) -> str:
    return "" if problem.m == measured.m else f", measured for m={measured.m}"


def _read(best: Any, problem: Problem, arch: str, source: str) -> Tuned | None:
    try:
        config = read_config(best["config"], problem)
        violations = config.violations()
        if violations or config.arch != arch:
            raise StaleRecordError(f"not valid: {violations[0] if violations else config.arch}")
        return Tuned(config, bool(best["dependent"]), source)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        _logger.warning("%s for %s is not used: %s", source, problem, error)
        return None
