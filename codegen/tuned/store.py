"""What was tuned on this computer: one JSON file for each device, driver, architecture, types, majors and shape.

The files lie beside the cache of built kernels. A file is written whole into a temporary one beside it and renamed, so
that a reader finds the old or the new one; one that cannot be read is logged and counts as absent. This module knows
records, not what is in them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from stridewright.codegen.cache import CacheError, default_folder
from stridewright.kernels.config import Problem

from .records import StaleRecordError, problem_record, read_problem

FORMAT = 1
LOADS = ("bursts", "sustained")
"""What a configuration was the fastest for: products among others, so that the card's clock is the same for each candidate, or
one product over and over at the power limit, where one that moves fewer bytes keeps a higher clock."""
_FOLDER = f"tuned-{FORMAT}"
_LOCKS = ".locks"

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


class BusyError(RuntimeError):
    """Another process is tuning the same problem on the same kind of device."""


@dataclass(frozen=True)
class Place:
    """What a result is filed under. The problem has its sizes."""

    device: str
    driver: str
    arch: str
    problem: Problem
    load: str = "bursts"

    @property
    def folder(self) -> str:
        """The device's folder, ``device/driver``, of letters that every file system takes.

        >>> Place("NVIDIA H200", "580.65.06", "sm_90a", Problem()).folder
        'NVIDIA-H200/580.65.06'
        """
        return f"{_plain(self.device)}/{_plain(self.driver)}"

    @property
    def file(self) -> str:
        """The file's name, which holds the rest.

        >>> Place("NVIDIA H200", "580.65.06", "sm_90a", Problem(m=16, n=6144, k=4096)).file
        'sm_90a_bf16-bf16-bf16_kk_16x6144x4096.json'
        """
        problem = self.problem
        types = "-".join((problem.a, problem.b, problem.d))
        sizes = f"{problem.m}x{problem.n}x{problem.k}"
        form = "" if problem.form == "one" else f"_{problem.form}"
        load = "" if self.load == "bursts" else f"_{self.load}"
        return f"{_plain(self.arch)}_{_plain(types)}_{problem.a_major}{problem.b_major}{form}_{sizes}{load}.json"


@lru_cache(maxsize=256)
def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".") or "unknown"


@dataclass(frozen=True)
class StoredEntry:
    """One file of the store, for listings. ``size`` in bytes; ``record`` is None where it cannot be read."""

    path: Path
    size: int
    record: Mapping[str, Any] | None


class Store:
    """The results in one folder. Making a Store touches nothing.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     place = Place("NVIDIA H200", "580", "sm_90a", Problem(m=1, n=8, k=64))
    ...     _ = store.save(place, {"us": 3.0})
    ...     store.load(place)["us"], len(store.entries())
    (3.0, 1)
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()

    @property
    def _root(self) -> Path:
        return self.folder / _FOLDER

    def path(self, place: Place) -> Path:
        """Where the result of ``place`` is, or would be."""
        return self._root / place.folder / place.file

    def load(self, place: Place) -> dict[str, Any] | None:
        """The record of exactly this place, None where there is none that can be read."""
        return _read(self.path(place), place.problem)

    def files(self, device: str) -> frozenset[str]:
        """The names of the files that any driver of such a device has: one look at the disk for many questions."""
        found: set[str] = set()
        for driver in _folders(self._root / _plain(device)):
            with contextlib.suppress(OSError):
                found.update(os.listdir(driver))
        return frozenset(found)

    def load_any_driver(self, place: Place) -> dict[str, Any] | None:
        """The record of this place, or else the newest one that another driver of the same device has."""
        own = self.path(place)
        for path in (own, *self._others(own, place)):
            record = _read(path, place.problem)
            if record is not None:
                return record
        return None

    def _others(self, own: Path, place: Place) -> list[Path]:
        """The files of the same name that other drivers have, newest first."""
        found = []
        for driver in _folders(self._root / _plain(place.device)):
            path = Path(driver, place.file)
            if path != own:
                with contextlib.suppress(OSError):
                    found.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(found, reverse=True)]

    def save(self, place: Place, record: Mapping[str, Any]) -> Path:
        """Files ``record`` in one step, in the place of an older one; CacheError where the folder cannot be written."""
        path = self.path(place)
        whole = {
            "format": FORMAT,
            "device": place.device,
            "driver": place.driver,
            "arch": place.arch,
            "load": place.load,
            "problem": problem_record(place.problem),
            **record,
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(whole))
        except OSError as error:
            raise CacheError(
                f"the folder of tuning results {self._root} cannot be written ({error.strerror or error}). Set "
                "STRIDEWRIGHT_CACHE_DIR to a folder you can write"
            ) from error
        return path

    @contextlib.contextmanager
    def locked(self, place: Place) -> Iterator[None]:
        """Holds the place while it is tuned. BusyError at once where another process does; the lock of a process that
        died is free.
        """
        from filelock import FileLock, Timeout

        name = _plain(f"{place.folder}-{place.file}")
        try:
            (self._root / _LOCKS).mkdir(parents=True, exist_ok=True)
            lock = FileLock(str(self._root / _LOCKS / f"{name}.lock"))
            lock.acquire(timeout=0)
        except Timeout:
            problem = place.problem
            raise BusyError(
                f"{problem.m} x {problem.n} x {problem.k} is being tuned on {place.device} by another process; wait for it, "
                "or set STRIDEWRIGHT_CACHE_DIR to another folder"
            ) from None
        except OSError as error:
            raise CacheError(f"the folder {self.folder} cannot be written ({error.strerror or error})") from error
        try:
            yield
        finally:
            lock.release()

    def entries(self) -> tuple[StoredEntry, ...]:
        """Every file, by device and name, unreadable ones with ``record`` None."""
        if not self._root.is_dir():
            return ()
        return tuple(
            StoredEntry(path, path.stat().st_size, _read(path)) for path in sorted(self._root.glob("*/*/*.json"))
        )

    def clear(self) -> tuple[int, int]:
        """Removes every result; returns how many there were and their bytes."""
        found = self.entries()
        try:
            if self._root.exists():
                shutil.rmtree(self._root)
        except OSError as error:
            raise CacheError(f"{self._root} cannot be removed ({error.strerror or error})") from error
        return len(found), sum(entry.size for entry in found)


def _folders(folder: Path) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def write_atomically(path: Path, text: str) -> None:
    """Puts ``text`` into a file by one rename: a reader, or a kill at any moment, finds the old file or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)  # mkstemp makes it private
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _read(path: Path, problem: Problem | None = None) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_bytes())
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise StaleRecordError(f"it is of another format than {FORMAT}")
        found = read_problem(record["problem"])
        if problem is not None and found != problem:
            raise StaleRecordError(f"it is about {found}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _logger.warning("tuning result %s is not used: %s", path, error)
        return None
    return record
