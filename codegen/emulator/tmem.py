"""Tensor memory of one block: 128 lanes of 512 columns of 32-bit words, who may use which columns, and the rules of allocation.

    memory = TensorMemory()
    memory.request(columns, cta_group, where)       checks a tcgen05.alloc; memory.place(columns, pick) finds room, or None: it waits
    memory.take(column, columns, where)             the columns are this block's, never written so far
    memory.free(column, columns, where)             tcgen05.dealloc; memory.relinquish(where)
    memory.check(column, columns, what)             every access: physical bounds, and only columns that are owned
    memory.words, .floats, .written                 (128, 512): bits, the same as float32, and which cells were ever written

Sources: PTX ISA 9.1 section 9.7.16.2 (addresses), 9.7.16.7 (alloc, dealloc, relinquish_alloc_permit). The list of what is checked is that of
`ptxas -g-tmem-access-check`. Knows no PTX and no threads. Nothing here was compared with a Blackwell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewright.layout.hardware.tensor_memory import COLUMNS, LANES
from stridewright.layout.hardware.tensor_memory_plan import MINIMUM_COLUMNS

from .faults import MachineError

__all__ = ["LANE_GROUP", "SOURCES", "Allocation", "TensorMemory", "TensorMemoryError", "cells", "split_address"]

LANE_GROUP = 16
"""Lanes that a race check takes together: half of the quarter that one warp reaches."""
GROUPS = LANES // LANE_GROUP
EVERY_GROUP = tuple(range(GROUPS))


SOURCES = {4: "b4x16_p64", 6: "b6x16_p32"}
"""Bits of the values that tcgen05.cp decompresses, and PTX's name of how they lie in shared memory."""


class TensorMemoryError(MachineError):
    """A use of tensor memory that the hardware would refuse, hang on, or whose result it does not define."""


@dataclass(frozen=True)
class Allocation:
    """Columns that a block owns: the first, how many, the .cta_group they were asked with, and where in the source."""

    column: int
    columns: int
    cta_group: int
    where: Any

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.column + self.columns

    def __str__(self) -> str:
        return f"columns {self.column}..{self.end - 1} (allocated at {self.where})"


def split_address(address: int) -> tuple[int, int]:
    """(lane, column) of an address word. Raises TensorMemoryError outside 128 lanes x 512 columns.

    >>> split_address(0x200005)
    (32, 5)
    """
    lane, column = address >> 16, address & 0xFFFF
    if lane >= LANES or column >= COLUMNS:
        raise TensorMemoryError(
            "out of bounds",
            f"tensor-memory address {address:#010x} is lane {lane}, column {column}; there are {LANES} lanes of {COLUMNS} columns",
        )
    return lane, column


@functools.lru_cache(maxsize=4096)
def cells(groups: tuple[int, ...], column: int, columns: int) -> NDArray[np.intp]:
    """Numbers of the race check's cells, 16 lanes of one column each: those of the lane groups given in a run of columns.

    >>> cells((0, 2), 5, 2).tolist()
    [5, 6, 1029, 1030]
    """
    run = np.arange(column, column + columns, dtype=np.intp)
    return np.concatenate([group * COLUMNS + run for group in groups])


class TensorMemory:
    """The tensor memory of a block that has its multiprocessor for itself.

    >>> memory = TensorMemory()
    >>> memory.request(64, 1, "k.cu:3")
    >>> memory.take(memory.place(64), 64, 1, "k.cu:3")
    >>> memory.check(32, 64, "tcgen05.ld")
    Traceback (most recent call last):
    ...
    stridewright.codegen.emulator.tmem.TensorMemoryError: unallocated: tcgen05.ld uses columns 32..95, of which 64..95 are not \
allocated; this block owns columns 0..63 (allocated at k.cu:3)
    """

    def __init__(self) -> None:
        self.words: NDArray[np.uint32] = np.zeros((LANES, COLUMNS), np.uint32)
        self.floats: NDArray[np.float32] = self.words.view(np.float32)
        self.written: NDArray[np.bool_] = np.zeros((LANES, COLUMNS), np.bool_)
        self.formats: NDArray[np.uint8] = np.zeros((LANES, COLUMNS), np.uint8)
        """4 or 6 where a tcgen05.cp put values of so many bits into bytes, else 0."""
        self.decompressed = False
        """Whether any cell of `formats` was ever set."""
        self.owned: NDArray[np.bool_] = np.zeros(COLUMNS, np.bool_)
        self.allocations: dict[int, Allocation] = {}
        self.relinquished: object = None
        """Where the block gave up its right to allocate."""
        self._least: tuple[int, object] | None = None
        self._checked: set[tuple[int, int]] = set()

    # -- allocation --------------------------------------------------------------------------------------------------------------

    def request(self, columns: int, cta_group: int, where: object) -> None:
        """Checks an allocation against the rules; the room is another question.

        >>> TensorMemory().request(48, 1, "")
        Traceback (most recent call last):
        ...
        stridewright.codegen.emulator.tmem.TensorMemoryError: allocation: tcgen05.alloc of 48 columns: must be a power of two in \
32..512; nearest 32, 64
        """
        check_columns(columns, "tcgen05.alloc")
        if self.relinquished is not None:
            raise TensorMemoryError(
                "allocation",
                f"tcgen05.alloc of {columns} columns after tcgen05.relinquish_alloc_permit ({self.relinquished}): this block may not "
                "allocate any more",
            )
        if self._least is not None and columns > self._least[0]:
            raise TensorMemoryError(
                "allocation",
                f"tcgen05.alloc of {columns} columns after one of {self._least[0]} ({self._least[1]}): later allocations of a block "
                "must not ask for more columns than earlier ones (PTX ISA, tcgen05.alloc); ask for the largest first",
            )
        if self._least is None or columns < self._least[0]:
            self._least = (columns, where)

    def place(self, columns: int, pick: Callable[[Sequence[int]], int] | None = None) -> int | None:
        """The first column of free room, None if there is none now. `pick` chooses among all places instead of the lowest.

        Places are multiples of the size: requests that do not grow then fill the memory without a gap.

        >>> memory = TensorMemory()
        >>> memory.take(0, 256, 1, ""), memory.place(256), memory.place(512)
        (None, 256, None)
        """
        free = [at for at in range(0, COLUMNS, columns) if not self.owned[at : at + columns].any()]
        if not free:
            return None
        return free[0] if pick is None else pick(free)

    def take(self, column: int, columns: int, cta_group: int, where: object) -> None:
        """Makes columns this block's; what they hold is undefined, here NaNs."""
        self.owned[column : column + columns] = True
        self.words[:, column : column + columns] = 0x7FC0_7FC0
        self.written[:, column : column + columns] = False
        self.formats[:, column : column + columns] = 0
        self.allocations[column] = Allocation(column, columns, cta_group, where)

    def check_free(self, column: int, columns: int, cta_group: int) -> None:
        """Checks a deallocation: of exactly what one allocation gave.

        >>> memory = TensorMemory()
        >>> memory.take(0, 64, 1, "k.cu:3")
        >>> memory.check_free(0, 32, 1)
        Traceback (most recent call last):
        ...
        stridewright.codegen.emulator.tmem.TensorMemoryError: allocation: tcgen05.dealloc of 32 columns from column 0: this block owns \
columns 0..63 (allocated at k.cu:3), and each is deallocated as it was allocated
        """
        check_columns(columns, "tcgen05.dealloc")
        found = self.allocations.get(column)
        if found is None or found.columns != columns:
            raise TensorMemoryError(
                "allocation",
                f"tcgen05.dealloc of {columns} columns from column {column}: {self.owners()}, and each is deallocated as it was allocated",
            )
        if found.cta_group != cta_group:
            raise TensorMemoryError(
                "allocation", f"tcgen05.dealloc.cta_group::{cta_group} of {found}, with .cta_group::{found.cta_group}"
            )

    def free(self, column: int, columns: int, cta_group: int) -> None:
        """Takes columns back.

        >>> memory = TensorMemory()
        >>> memory.take(0, 64, 1, "k.cu:3")
        >>> memory.free(0, 64, 1)
        >>> memory.owners()
        'this block owns no tensor memory'
        """
        self.check_free(column, columns, cta_group)
        del self.allocations[column]
        self.owned[column : column + columns] = False
        self._checked.clear()

    def relinquish(self, where: object) -> None:
        """This block allocates no more."""
        if self.relinquished is None:
            self.relinquished = where

    def owners(self) -> str:
        """What the block owns, in words."""
        if not self.allocations:
            return "this block owns no tensor memory"
        return "this block owns " + ", ".join(str(one) for _, one in sorted(self.allocations.items()))

    # -- accesses ----------------------------------------------------------------------------------------------------------------

    def check(self, column: int, columns: int, what: str) -> None:
        """Refuses an access to columns outside tensor memory or not owned. `what` names the instruction."""
        if (column, columns) in self._checked:
            return
        end = column + columns
        if not 0 <= column <= COLUMNS - columns:
            raise TensorMemoryError(
                "out of bounds", f"{what} uses columns {column}..{end - 1}; there are columns 0..{COLUMNS - 1}"
            )
        missing = np.flatnonzero(~self.owned[column:end]) + column
        if missing.size:
            raise TensorMemoryError(
                "unallocated",
                f"{what} uses columns {column}..{end - 1}, of which {int(missing[0])}..{int(missing[-1])} are not allocated; {self.owners()}",
            )
        self._checked.add((column, columns))

    def require_written(self, state: NDArray[np.bool_], lanes: Any, column: int, what: str) -> None:
        """Refuses a read of cells that nothing has written. `state`: a view of `written`; `lanes`: the lane of each of its rows."""
        if state.all():
            return
        row, offset = (int(part[0]) for part in np.nonzero(~state.reshape(-1, state.shape[-1])))
        lane = int(np.asarray(lanes).reshape(-1)[row])
        raise TensorMemoryError(
            "unwritten",
            f"{what} reads tensor memory that was never written since its allocation: {int((~state).sum())} cells, the first at "
            f"lane {lane}, column {column + offset}",
        )

    def require_format(self, formats: NDArray[np.uint8], bits: int, what: str) -> None:
        """Refuses a read of cells that hold values of other bits than these. `formats`: a view of the cells; 0: ordinary words.

        Where in a byte a decompressed value lies only a figure of the PTX ISA shows, so that its bits mean nothing to whoever looks at words.
        """
        if bool((formats == bits).all()):
            return
        held = int(formats[formats != bits][0])
        if bits:
            raise TensorMemoryError(
                "unknown",
                f"{what} reads {bits}-bit values from tensor memory that no tcgen05.cp.b8x16.{SOURCES[bits]} put there: the place of a value "
                "in its byte is not known",
            )
        raise TensorMemoryError(
            "unknown",
            f"{what} reads the words that tcgen05.cp made of {held}-bit values: the place of a value in its byte is not known",
        )


def check_columns(columns: int, what: str) -> None:
    """Refuses a column count that is no power of two in 32..512 (PTX ISA, tcgen05.alloc).

    >>> check_columns(128, "tcgen05.alloc")
    """
    if columns & (columns - 1) or not MINIMUM_COLUMNS <= columns <= COLUMNS:
        near = sorted({min(max(1 << max(columns, 1).bit_length() - 1 + up, MINIMUM_COLUMNS), COLUMNS) for up in (0, 1)})
        raise TensorMemoryError(
            "allocation",
            f"{what} of {columns} columns: must be a power of two in {MINIMUM_COLUMNS}..{COLUMNS}; nearest "
            f"{', '.join(map(str, near))}",
        )
