"""The commands of ``cache``: what was generated and what was tuned, as it lies on the disk."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import console, guarded, print_json

if TYPE_CHECKING:
    from stridewright.codegen.cache import CacheEntry
    from stridewright.codegen.tuned import StoredEntry

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Key = Annotated[
    str,
    typer.Argument(help="A kernel's key or its beginning, or a tuned shape such as 4096x4096x4096: see `cache list`."),
]
_SHOWN_OUTCOMES = 12

cache_app = typer.Typer(no_args_is_help=True, help="Look into what was built and tuned on this computer, or empty it.")


@cache_app.command("list")
@guarded
def cache_list(as_json: AsJson = False) -> None:
    """List the cached kernels, newest first, and what was tuned."""
    from stridewright.codegen.cache import Cache
    from stridewright.codegen.tuned import Store

    cache, store = Cache(), Store()
    entries, tuned = cache.entries(), store.entries()
    if as_json:
        print_json({"folder": str(cache.folder), "entries": entries, "tuned": [_tuned_facts(entry) for entry in tuned]})
        return
    out = console()
    out.print(
        f"{len(entries)} kernels, {sum(entry.size for entry in entries) / 1e6:.1f} MB in {cache.folder}", markup=False
    )
    for entry in entries:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.created)) if entry.created else "?"
        state = "" if entry.intact else "  CORRUPT, made anew at its next use"
        out.print(f"  {entry.key[:12]}  {made}  {entry.size:>9}  {entry.arch}  {entry.name}{state}", markup=False)
    out.print(f"{len(tuned)} tuned shapes", markup=False)
    for one in tuned:
        facts = _tuned_facts(one)
        shown = facts["config"] or ("nothing found yet" if one.record is not None else "CORRUPT, not used")
        times = f"  {facts['us']:.2f} us" if facts["us"] else ""
        out.print(f"  {facts['shape']}  {facts['device']}, driver {facts['driver']}{times}  {shown}", markup=False)


def _tuned_facts(entry: StoredEntry) -> dict[str, Any]:
    """What a listing tells about a tuned shape; ``config`` is empty where nothing was found."""
    record: Any = entry.record or {}
    problem: Any = record.get("problem") or {}
    best: Any = record.get("best") or {}
    name = ""
    if best:
        from stridewright.codegen.tuned import StaleRecordError, read_config, read_problem

        try:
            name = read_config(best["config"], read_problem(problem)).name + (" dependent" if best["dependent"] else "")
        except (StaleRecordError, KeyError, TypeError) as error:
            name = f"stale: {error}"
    return {
        "shape": "x".join(str(problem.get(size, "?")) for size in ("m", "n", "k")) if problem else entry.path.stem,
        "device": record.get("device", entry.path.parent.parent.name),
        "driver": record.get("driver", entry.path.parent.name),
        "arch": record.get("arch", "?"),
        "config": name,
        "us": best.get("us"),
        "candidates": len(record.get("outcomes", ())),
        "finished": bool(record.get("finished")),
        "path": str(entry.path),
    }


@cache_app.command("path")
@guarded
def cache_path() -> None:
    """Print the cache's folder (STRIDEWRIGHT_CACHE_DIR moves it)."""
    from stridewright.codegen.cache import Cache

    typer.echo(str(Cache().folder))


@cache_app.command("show")
@guarded
def cache_show(
    key: Key,
    file: Annotated[
        str | None, typer.Option("--file", help="Print a file of the kernel instead: kernel.cu, kernel.ptx, log.txt.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a cached kernel was made and where its files lie, or a tuned shape with its candidates."""
    tuned = _find_tuned(key)
    if tuned is not None:
        _show_tuned(tuned, as_json)
        return
    entry = _intact(key)
    if file is not None:
        typer.echo(_file_of(entry, file).read_text(encoding="utf-8"), nl=False)
        return
    from stridewright.codegen.build import resources

    kernels = resources(entry.files["log.txt"].decode()) if "log.txt" in entry.files else ()
    files = {name: str(entry.folder / name) for name in entry.files}
    if as_json:
        print_json({"key": entry.key, **entry.facts, "kernels": kernels, "files": files})
        return
    out = console()
    out.print(f"{entry.key}  {entry.facts.get('name')} for {entry.facts.get('arch')}", markup=False)
    out.print(f"  compiler  {entry.facts.get('compiler')}", markup=False)
    out.print(f"  options   {' '.join(entry.facts.get('options', []))}", markup=False)
    for used in kernels:
        out.print(
            f"  kernel    {used.name}: {used.registers} registers, {used.static_shared_bytes} B static shared",
            markup=False,
        )
    for path in files.values():
        out.print(f"  {path}", markup=False)


@cache_app.command("open")
@guarded
def cache_open(
    key: Key, file: Annotated[str, typer.Option("--file", help="Which file of a kernel.")] = "kernel.cu"
) -> None:
    """Open a kernel's source, or a tuned shape's record, in $VISUAL or $EDITOR; without one, or not on a terminal, print it."""
    tuned = _find_tuned(key)
    path = tuned.path if tuned is not None else _file_of(_intact(key), file)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor and sys.stdout.isatty():
        subprocess.run([*shlex.split(editor), str(path)], check=True)
        return
    typer.echo(path.read_text(encoding="utf-8"), nl=False)


@cache_app.command("clear")
@guarded
def cache_clear(
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned", help="Remove what was tuned as well; without it only kernels, which are soon made anew."
        ),
    ] = False,
) -> None:
    """Remove all cached kernels."""
    from stridewright.codegen.cache import Cache
    from stridewright.codegen.tuned import Store

    cache, store = Cache(), Store()
    count, size = cache.clear()
    console().print(f"removed {count} kernels, {size / 1e6:.1f} MB, from {cache.folder}", markup=False)
    if tuned:
        count, size = store.clear()
        console().print(f"removed {count} tuned shapes, {size / 1e6:.1f} MB", markup=False)
    elif left := len(store.entries()):
        console().print(f"{left} tuned shapes are kept; --tuned removes them too", markup=False)


def _intact(key: str) -> CacheEntry:
    from stridewright.codegen.cache import Cache

    cache = Cache()
    entry = cache.load(cache.find(key).key)
    if entry is None:
        raise LookupError(
            f"entry {key} is corrupt; it is made anew at its next use, or remove it with `stridewright cache clear`"
        )
    return entry


def _file_of(entry: CacheEntry, name: str) -> Path:
    texts = sorted(file for file in entry.files if not file.endswith(".cubin"))
    if name not in texts:
        raise LookupError(f"--file {name}: entry {entry.key[:12]} has {', '.join(texts)}")
    return entry.folder / name


def _find_tuned(key: str) -> StoredEntry | None:
    """The tuned shape of that name, on the newest of several devices; None where the key is no shape."""
    if "x" not in key:  # kernels' keys are hexadecimal
        return None
    from stridewright.codegen.tuned import Store

    found = [entry for entry in Store().entries() if _tuned_facts(entry)["shape"] == key]
    if not found:
        raise LookupError(f"{key}: no such shape was tuned here; `stridewright cache list` shows those that were")
    return max(found, key=lambda entry: entry.path.stat().st_mtime)


def _show_tuned(entry: StoredEntry, as_json: bool) -> None:
    if entry.record is None:
        raise LookupError(
            f"{entry.path} cannot be read; it is not used, and written anew when the shape is tuned again"
        )
    record: Any = entry.record
    if as_json:
        print_json({**_tuned_facts(entry), **record})
        return
    from stridewright.codegen.tune_state import read_outcome
    from stridewright.codegen.tuned import StaleRecordError, read_problem

    from .tune_commands import outcome_lines

    facts = _tuned_facts(entry)
    out = console()
    out.print(f"{facts['shape']}  {facts['arch']} on {facts['device']}, driver {facts['driver']}", markup=False)
    state = "finished" if facts["finished"] else "not finished"
    out.print(f"  {facts['config'] or 'nothing found yet'}  {facts['us'] or 0:.2f} us, {state}", markup=False)
    problem = read_problem(record["problem"])
    try:
        outcomes = [read_outcome(one, problem) for one in record["outcomes"]]
    except (StaleRecordError, KeyError, TypeError) as error:
        out.print(f"  the candidates are of another version: {error}", markup=False)
        outcomes = []
    outcomes.sort(key=lambda outcome: (outcome.status != "measured", outcome.us or 0.0))
    for line in outcome_lines(outcomes, _SHOWN_OUTCOMES):
        out.print(f"  {line}", markup=False)
    out.print(f"  {entry.path}", markup=False)


@functools.cache
def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.add_typer(cache_app, name="cache")
