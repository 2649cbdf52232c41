"""Tables of tuned configurations: those that come with the package, and how one is written.

A table is a JSON file beside this module: the device it was tuned on, and an entry for each shape. An entry that this
version cannot read, or that is no longer valid, is logged and skipped.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from stridewright.kernels.config import GemmConfig, Problem

from .records import KINDS, StaleRecordError, config_record, problem_record, read_config, read_problem
from .store import FORMAT, LOADS, write_atomically

FOLDER = Path(__file__).parent

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class TableEntry:
    """One tuned shape: its configuration, whether its launches are dependent (programmatic dependent launch), and the
    microseconds a product took when it was tuned.
    """

    config: GemmConfig
    dependent: bool
    us: float | None


@dataclass(frozen=True)
class Table:
    """The tuned shapes of one device; ``entries`` by problem. ``load``: one of ``store.LOADS``, what they are the fastest for."""

    name: str
    device: str
    driver: str
    arch: str
    sms: int
    entries: Mapping[Problem, TableEntry]
    load: str = "bursts"


def read_table(path: Path) -> Table:
    """The table in a file, without entries that are stale or invalid. Raises ValueError where the file is no table."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise StaleRecordError(f"it is of format {record['format']}, and this version reads {FORMAT}")
        device, driver, arch, sms = record["device"], record["driver"], record["arch"], record["sms"]
        listed, load = list(record["entries"]), str(record.get("load", "bursts"))
        if load not in LOADS:
            raise StaleRecordError(f"it is for load={load!r}, and this version knows {', '.join(LOADS)}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: is no table of tuned configurations ({type(error).__name__}: {error})") from error
    entries: dict[Problem, TableEntry] = {}
    for number, entry in enumerate(listed):
        try:
            problem = read_problem(entry["problem"])
            config = read_config(entry["config"], problem)
            violations = config.violations()
            if violations or config.arch != arch:
                raise StaleRecordError(f"not valid: {violations[0] if violations else config.arch}")
            us = entry.get("us")
            entries[problem] = TableEntry(config, bool(entry["dependent"]), None if us is None else float(us))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            _logger.warning("%s: entry %d is not used: %s", path, number, error)
    return Table(path.stem, str(device), str(driver), str(arch), int(sms), entries, load)


@lru_cache(maxsize=1)
def shipped_tables() -> tuple[Table, ...]:
    """The tables that come with the package, read once.

    >>> all(entry.config.problems() == [] for table in shipped_tables() for entry in table.entries.values())
    True
    """
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        try:
            found.append(read_table(path))
        except (OSError, ValueError) as error:
            _logger.warning("%s", error)
    return tuple(found)


def write_table(
    path: Path,
    device: str,
    driver: str,
    arch: str,
    sms: int,
    entries: Iterable[tuple[Problem, TableEntry]],
    note: str = "",
    load: str = "bursts",
) -> int:
    """Writes a table, an entry a line, sorted by types and shape; returns how many it has."""
    rows = []
    for problem, entry in entries:
        config = config_record(dataclasses.replace(entry.config, problem=Problem()))
        us = None if entry.us is None else round(entry.us, 3)
        rows.append({"problem": problem_record(problem), "dependent": entry.dependent, "us": us, "config": config})
    rows.sort(key=_order)
    head = {"format": FORMAT, "device": device, "driver": driver, "arch": arch, "sms": sms, "load": load, "note": note}
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = json.dumps(head)[:-1] + ', "entries": [\n  ' + lines + "\n]}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return len(rows)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    problem = row["problem"]
    return (*(problem[name] for name in KINDS), problem["m"], problem["n"], problem["k"])
