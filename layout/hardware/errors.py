"""The one error of this folder, and the record of one violated rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import LayoutError
from ..tuples import to_int


class HardwareError(LayoutError):
    """What was asked is not what silicon does; the message says what was given, what is allowed and what works."""


@dataclass(frozen=True)
class Problem:
    """One violated rule: which field, what it holds, what the rule is and what would satisfy it.

    >>> print(Problem("box[0]", 512, "must be in 1..256 (cuTensorMapEncodeTiled)", "use 2 copies of 256"))
    box[0]=512: must be in 1..256 (cuTensorMapEncodeTiled); use 2 copies of 256
    """

    field: str
    value: object
    rule: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.field}={self.value}: {self.rule}" + (f"; {self.fix}" if self.fix else "")


def whole(name: str, value: object) -> int:
    """The plain int that a number is; numpy integers are accepted. Raises HardwareError for bools, floats and all else.

    >>> whole("n", 8)
    8
    """
    try:
        return to_int(value, name)
    except LayoutError as error:
        raise HardwareError(str(error)) from None


def is_whole(value: object) -> bool:
    """Whether ``whole`` would accept the value.

    >>> is_whole(8), is_whole(True), is_whole(8.0)
    (True, False, False)
    """
    try:
        to_int(value, "")
    except LayoutError:
        return False
    return True


def nearest(word: object, words: Iterable[str]) -> str:
    """The word most like the given one, for error messages.

    >>> nearest("bf17", ("bf16", "f32"))
    'bf16'
    """
    pool = list(words)
    return (difflib.get_close_matches(str(word), pool, n=1, cutoff=0.0) or [""])[0]


def nearest_multiples(value: int, divisor: int) -> str:
    """The multiples of ``divisor`` on both sides of ``value``, for error messages.

    >>> nearest_multiples(200, 16)
    'nearest 192, 208'
    """
    below = value // divisor * divisor
    return f"nearest {below}, {below + divisor}" if below > 0 else f"nearest {below + divisor}"
