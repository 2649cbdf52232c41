"""What all commands share: errors as one message with the right exit status, JSON, and a console made when first
used.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

import typer

if TYPE_CHECKING:
    from rich.console import Console

RIGHT, WRONG, REFUSED = 0, 1, 2

P = ParamSpec("P")

# Errors by which the package refuses what it was given; all its own errors derive from these.
_REFUSALS = (ValueError, TypeError, LookupError, OSError, RuntimeError)

# What the emulator finds wrong with a program that runs. Named, so that commands need not load the emulator for it.
_FAULTS = ("EmulationError", "MachineError")
_NOT_FAULTS = ("UnsupportedInstruction", "ParseError")


def bare_negative(arguments: Sequence[str]) -> str | None:
    """A message about the first negative number that stands where a size should, or None.

    >>> bare_negative(["gemm", "-5", "8", "8"])
    '-5 is no size: sizes are whole numbers from 1 up'
    >>> bare_negative(["gemm", "8", "8", "8", "--seed", "-5"])
    """
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if re.fullmatch(r"-\d+(\.\d*)?", argument) and not before.startswith("-"):
            return f"{argument} is no size: sizes are whole numbers from 1 up"
    return None


@functools.cache
def console() -> Console:
    """The console for people, on standard output; not a terminal, it writes plain text of any width."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def print_json(report: dict[str, Any]) -> None:
    """One object on standard output; numbers that JSON cannot hold become null."""
    typer.echo(json.dumps(plain(report), indent=2))


def plain(value: Any) -> Any:
    """The value as what JSON can hold: dataclasses as objects, tuples and arrays as lists, NaN and infinity as null.

    >>> plain({"a": (1, float("inf"))})
    {'a': [1, None]}
    """
    import dataclasses
    import math

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


def fail(message: str, as_json: bool = False, status: int = REFUSED) -> NoReturn:
    """End with ``status`` and one message on standard error (and, with ``as_json``, in an object on standard
    output).
    """
    if as_json:
        print_json({"error": message, "checked": False, "reason": message})
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(status)


def _status(error: Exception) -> int:
    names = [kind.__name__ for kind in type(error).__mro__]
    if any(name in names for name in _NOT_FAULTS):
        return REFUSED
    return WRONG if any(name in names for name in _FAULTS) else REFUSED


def _message(error: Exception) -> str:
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command with its errors turned into one message and an exit status; STRIDEWRIGHT_TRACEBACK=1 shows
    tracebacks.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:
            # The reader went away (`| head`); point the stream elsewhere so that the interpreter's last flush is quiet.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(RIGHT) from None
        except typer.Exit:
            raise
        except Exception as error:
            if os.environ.get("STRIDEWRIGHT_TRACEBACK") or type(error).__module__.startswith(("typer", "click")):
                raise
            as_json = bool(kwargs.get("as_json"))
            status = _status(error)
            if isinstance(error, _REFUSALS) or status == WRONG:
                fail(_message(error), as_json, status)
            kind = type(error).__name__
            fail(
                f"internal error, please report it: {kind}: {error} (STRIDEWRIGHT_TRACEBACK=1 shows where)",
                as_json,
                WRONG,
            )

    return run
