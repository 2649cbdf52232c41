"""The disk cache of built kernels: one folder a kernel, named by a digest of everything that went into it.

An entry is written into a temporary folder beside its place and put there by one rename, under a lock a key; its
manifest holds the digest of every file, so a torn or edited entry is noticed, and rebuilt. ``STRIDEWRIGHT_CACHE_DIR``
moves the cache. This module stores bytes and knows nothing of compilers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FORMAT = 1
_FOLDER = f"kernels-{_FORMAT}"
_LOCKS = "locks"
_MANIFEST = "manifest.json"

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


class CacheError(RuntimeError):
    """The cache's folder cannot be used; the message says which folder, why, and how to choose another."""


@dataclass(frozen=True)
class CacheEntry:
    """One intact entry: its folder, its files' bytes by name, and the facts recorded when it was made."""

    key: str
    folder: Path
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class CacheListing:
    """What a listing tells about an entry without reading all of it; ``created`` is in seconds since 1970, sizes in
    bytes.
    """

    key: str
    folder: Path
    name: str
    arch: str
    compiler: str
    created: float
    size: int
    intact: bool


def default_folder() -> Path:
    """Where kernels are cached: ``STRIDEWRIGHT_CACHE_DIR`` if set, else the user's cache folder (see platformdirs)."""
    chosen = os.environ.get("STRIDEWRIGHT_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("stridewright", appauthor=False))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Cache:
    """The cache in one folder. Making a Cache touches nothing; the folder is created when the first entry is saved.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Cache(folder)
    ...     key = cache.key("source", "sm_90a", (), "kernel.cu", "nvrtc-13.0")
    ...     with cache.locked(key):
    ...         where = cache.save(key, {"kernel.ptx": b"ptx"}, {"name": "kernel.cu"})
    ...     cache.load(key).files["kernel.ptx"], len(cache.entries())
    (b'ptx', 1)
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()

    @property
    def _kernels(self) -> Path:
        return self.folder / _FOLDER

    def key(self, source: str, arch: str, options: Sequence[str], name: str, compiler: str) -> str:
        """The name of an entry: 32 hexadecimal digits of a SHA-256 over the source, options, architecture and
        compiler.
        """
        return _digest(json.dumps([_FORMAT, source, arch, list(options), name, compiler]).encode())[:32]

    def _unusable(self, error: OSError) -> CacheError:
        return CacheError(
            f"the kernel cache {self.folder} cannot be written ({error.strerror or error}). Set "
            "STRIDEWRIGHT_CACHE_DIR to a folder you can write, for example: STRIDEWRIGHT_CACHE_DIR=$(mktemp -d)"
        )

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the lock of one key, between threads and processes, while its entry is made. CacheError if it cannot
        be taken.
        """
        from filelock import FileLock

        lock = FileLock(str(self.folder / _LOCKS / f"{key}.lock"))
        try:
            (self.folder / _LOCKS).mkdir(parents=True, exist_ok=True)
            self._kernels.mkdir(parents=True, exist_ok=True)
            if not os.access(self._kernels, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied", str(self._kernels))
            lock.acquire()
        except OSError as error:
            raise self._unusable(error) from error
        try:
            yield
        finally:
            lock.release()

    def load(self, key: str) -> CacheEntry | None:
        """The entry of a key, or None where there is none or where its bytes are not those that were saved. Never
        writes.
        """
        folder = self._kernels / key
        try:
            manifest = json.loads((folder / _MANIFEST).read_bytes())
            digests: dict[str, str] = manifest["files"]
            files = {name: (folder / name).read_bytes() for name in digests}
            for name, data in files.items():
                if _digest(data) != digests[name]:
                    raise ValueError(f"{name} has changed since it was saved")
        except FileNotFoundError as error:
            if folder.is_dir():
                _logger.warning("cache entry %s is incomplete (%s); it is made anew", folder, error)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _logger.warning("cache entry %s is corrupt (%s); it is made anew", folder, error)
            return None
        return CacheEntry(key, folder, files, manifest.get("facts", {}))

    def save(self, key: str, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> Path:
        """Put an entry in its place by one rename, replacing a corrupt one; hold ``locked(key)``. Returns its
        folder.
        """
        place = self._kernels / key
        manifest = {
            "created": time.time(),
            "facts": dict(facts),
            "files": {name: _digest(data) for name, data in files.items()},
        }
        try:
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=self._kernels))
        except OSError as error:
            raise self._unusable(error) from error
        try:
            for name, data in files.items():
                (fresh / name).write_bytes(data)
            (fresh / _MANIFEST).write_text(json.dumps(manifest, indent=1))
            fresh.chmod(0o755)  # mkdtemp makes it private; a cache may be shared by a group
            if place.exists():
                old = Path(tempfile.mkdtemp(prefix=".old-", dir=self._kernels))
                place.rename(old / key)
                shutil.rmtree(old, ignore_errors=True)
            fresh.rename(place)
        except OSError as error:
            raise self._unusable(error) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return place

    def entries(self) -> tuple[CacheListing, ...]:
        """All entries, newest first, corrupt ones among them with ``intact`` false; () where the folder does not
        exist.
        """
        if not self._kernels.is_dir():
            return ()
        found = [self._listing(folder) for folder in self._kernels.iterdir() if not folder.name.startswith(".")]
        return tuple(sorted(found, key=lambda entry: (-entry.created, entry.key)))

    def _listing(self, folder: Path) -> CacheListing:
        files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else [folder]
        size = sum(path.stat().st_size for path in files)
        try:
            manifest = json.loads((folder / _MANIFEST).read_bytes())
            facts = manifest["facts"]
            name, arch, compiler = (str(facts.get(fact, "?")) for fact in ("name", "arch", "compiler"))
            created = float(manifest["created"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return CacheListing(folder.name, folder, "?", "?", "?", 0.0, size, intact=False)
        return CacheListing(
            folder.name, folder, name, arch, compiler, created, size, self.load(folder.name) is not None
        )

    def find(self, prefix: str) -> CacheListing:
        """The one entry whose key starts with ``prefix``. LookupError where there is none or more than one."""
        matching = [entry for entry in self.entries() if entry.key.startswith(prefix)]
        if len(matching) != 1 or not prefix:
            raise LookupError(
                f"{len(matching)} entries of {self.folder} have a key starting with {prefix!r}; give more of the key, "
                "as `stridewright cache list` shows it"
            )
        return matching[0]

    def clear(self) -> tuple[int, int]:
        """Remove every entry; returns how many there were and their bytes. Touches nothing but what this class
        writes.
        """
        found = self.entries()
        try:
            for folder in (self._kernels, self.folder / _LOCKS):
                if folder.exists():
                    shutil.rmtree(folder)
        except OSError as error:
            raise self._unusable(error) from error
        return len(found), sum(entry.size for entry in found)
