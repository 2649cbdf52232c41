"""What the emulator raises. Knows nothing of PTX syntax or of the machine; carries where a fault happened and says it in its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .wait_records import WaitRecord


@dataclass(frozen=True)
class SourcePlace:
    """A place in the kernel's source, as -lineinfo recorded it.

    `file` and `line` are of the CUDA source (line 0: no line information), `ptx_line` counts lines of the PTX text from 1,
    `inlined_at` lists (file, line) of the calls that were inlined around it, innermost first.

    >>> str(SourcePlace("src/gemm.cu", 12, 340, (("src/gemm.cu", 80), ("src/gemm.cu", 95))))
    'gemm.cu:12 (inlined at 80, 95; PTX line 340)'
    """

    file: str
    line: int
    ptx_line: int
    inlined_at: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        if not self.line:
            return f"PTX line {self.ptx_line}"
        name = self.file.rsplit("/", 1)[-1]
        calls = [
            str(line) if file == self.file else f"{file.rsplit('/', 1)[-1]}:{line}" for file, line in self.inlined_at
        ]
        inlined = f"inlined at {', '.join(calls)}; " if calls else ""
        return f"{name}:{self.line} ({inlined}PTX line {self.ptx_line})"


class EmulationError(RuntimeError):
    """The kernel did what the hardware forbids, or the call of the emulator was wrong. The text says what and where.

    >>> str(EmulationError("misaligned address 0x402", SourcePlace("k.cu", 3, 20)))
    'misaligned address 0x402\\n  at k.cu:3 (PTX line 20)'
    """

    def __init__(self, message: str, place: SourcePlace | None = None) -> None:
        super().__init__(message if place is None else f"{message}\n  at {place}")
        self.message = message
        self.place = place


class UnsupportedInstruction(EmulationError):  # noqa: N818 - the name is part of the public interface
    """The PTX has an instruction, modifier or operand that is not modelled. Nothing is approximated."""


class ParseError(EmulationError):
    """The text is no PTX that this parser reads."""


class DeadlockError(EmulationError):
    """No thread can go on. `waits` has one entry for each group of threads that waits, `history` the last arrivals; `records` has the waits as objects."""

    def __init__(
        self,
        message: str,
        waits: tuple[str, ...] = (),
        history: tuple[str, ...] = (),
        records: tuple[WaitRecord, ...] = (),
    ) -> None:
        super().__init__(message)
        self.waits = waits
        self.history = history
        self.records = records


class RaceError(EmulationError):
    """Raised for a race when the caller asked for an exception instead of a record in the result."""
