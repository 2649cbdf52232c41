"""The mbarrier of shared memory as a state machine: pending arrivals, transaction bytes, phase (PTX ISA, "mbarrier").

One object for each barrier; whoever executes instructions keeps them by shared address (and guards the 8 bytes there).
Who waits, and the clocks of a race check, are no business of this module.

    barrier = Mbarrier(address)
    barrier.init(count)
    token = barrier.arrive(count=1, where="gemm.cu:80", who="warp 4")        mbarrier.arrive
    barrier.arrive(..., drop=True / no_complete=True)                        arrive_drop, arrive.noComplete
    barrier.expect_tx(bytes, ...), barrier.complete_tx(bytes, ...)
    token = barrier.arrive_expect_tx(bytes, count=1, ...)                    expect first, then arrive
    barrier.test_parity(parity) -> bool, barrier.test_state(token) -> bool   test_wait / try_wait
    barrier.target_phase(parity) -> int | None     the phase a waiter has to see completed (None: it already is)
    barrier.phase                                  completed phases so far; compare before and after to wake waiters
    barrier.pending, .expected, .tx                counts of the phase in progress
    barrier.history, barrier.describe()            the last arrivals, for deadlock reports
    barrier.invalidate()

Everything PTX leaves undefined raises MbarrierError.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NoReturn

from .faults import MbarrierError

__all__ = ["MAX_COUNT", "MAX_TX", "Arrival", "Mbarrier", "token_pending"]

MAX_COUNT = (1 << 20) - 1
"""Largest arrival count (PTX ISA, "Contents of the mbarrier object")."""
MAX_TX = (1 << 20) - 1
"""Largest magnitude of the transaction count (same section)."""

_HISTORY = 16
_PENDING_BITS = 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """One operation on a barrier: what, in which phase, by whom and where, and the counts it left.

    ``who`` and ``where`` are anything that prints; empty strings are left out.
    """

    operation: str
    amount: int
    phase: int
    who: object
    where: object
    pending: int
    tx: int

    def __str__(self) -> str:
        by = "".join(f" {word} {text}" for word, text in (("by", self.who), ("at", self.where)) if text)
        return f"phase {self.phase}: {self.operation} {self.amount}{by} -> {self.pending} pending, {self.tx} bytes due"


def token_pending(token: int) -> int:
    """The pending count in a token of ``arrive``: what it was before that arrival (mbarrier.pending_count).

    >>> barrier = Mbarrier(0)
    >>> barrier.init(3)
    >>> token_pending(barrier.arrive())
    3
    """
    return token & MAX_COUNT


class Mbarrier:
    """One barrier, dead until ``init``.

    >>> barrier = Mbarrier(0x400)
    >>> barrier.init(1)
    >>> _ = barrier.arrive_expect_tx(32768)
    >>> barrier.test_parity(0), barrier.complete_tx(16384), barrier.complete_tx(16384), barrier.test_parity(0)
    (False, False, True, True)
    >>> barrier.phase, barrier.test_parity(1)
    (1, False)
    """

    __slots__ = ("_notes", "address", "expected", "live", "pending", "phase", "tx")

    def __init__(self, address: int) -> None:
        self.address = address
        self.live = False
        self.expected = 0
        self.pending = 0
        self.tx = 0
        self.phase = 0
        self._notes: deque[tuple[str, int, int, object, object, int, int]] = deque(maxlen=_HISTORY)

    @property
    def history(self) -> list[Arrival]:
        """The last operations, oldest first."""
        return [Arrival(*note) for note in self._notes]

    def init(self, count: int, where: object = "", who: object = "") -> None:
        """Starts phase 0 with ``count`` arrivals expected, 1 to 2^20 - 1."""
        if self.live:
            self._fail(f"initialised again at {where or 'an unknown place'} while it lives; mbarrier.inval it first")
        if not 1 <= count <= MAX_COUNT:
            self._fail(
                f"initialised with count {count}; allowed are 1 to {MAX_COUNT}, the threads (or warps) that arrive"
            )
        self.live = True
        self.expected = self.pending = count
        self.tx = self.phase = 0
        self._note("init", count, who, where)

    def invalidate(self, where: object = "", who: object = "") -> None:
        """Ends the barrier's life. A phase with bytes in flight cannot be ended: they would land on freed memory.

        >>> barrier = Mbarrier(0)
        >>> barrier.init(1)
        >>> barrier.invalidate()
        >>> barrier.live
        False
        """
        self._check_live("invalidated")
        if self.tx:
            self._fail(f"invalidated while {self.tx} bytes of phase {self.phase} are still due")
        self.live = False

    def arrive(
        self, count: int = 1, where: object = "", who: object = "", drop: bool = False, no_complete: bool = False
    ) -> int:
        """Takes ``count`` arrivals off the phase. Returns the token: the phase, and what was pending before.

        ``drop`` also lowers the count of the phases to come; ``no_complete`` promises that the phase does not complete.

        >>> barrier = Mbarrier(0)
        >>> barrier.init(2)
        >>> token = barrier.arrive()
        >>> barrier.pending, barrier.test_state(token)
        (1, False)
        """
        self._check_live("arrived at")
        if not 1 <= count <= MAX_COUNT:
            self._fail(f"arrive with count {count}; allowed are 1 to {MAX_COUNT}")
        if count > self.pending:
            self._fail(
                f"{count} more arrivals in phase {self.phase}, which waits for {self.pending} of {self.expected} "
                f"({who or 'a thread'} at {where or 'an unknown place'}); a slot released twice, a missing wait before this arrival, or a count too low"
            )
        token = (self.phase << _PENDING_BITS) | self.pending
        self.pending -= count
        if drop:
            self.expected -= count
        self._note("arrive_drop" if drop else "arrive", count, who, where)
        if self._advance() and no_complete:
            self._fail(f"arrive.noComplete by {who or 'a thread'} completed phase {self.phase - 1}")
        return token

    def expect_tx(self, size: int, where: object = "", who: object = "") -> None:
        """Adds ``size`` bytes to what the phase waits for.

        >>> barrier = Mbarrier(0)
        >>> barrier.init(1)
        >>> barrier.expect_tx(64)
        >>> barrier.tx, barrier.pending
        (64, 1)
        """
        self._check_live("expect_tx on")
        if not 0 <= size <= MAX_TX or self.tx + size > MAX_TX:
            self._fail(f"expect_tx of {size} bytes with {self.tx} due; the transaction count ends at {MAX_TX}")
        self.tx += size
        self._note("expect_tx", size, who, where)
        self._advance()

    def arrive_expect_tx(self, size: int, count: int = 1, where: object = "", who: object = "") -> int:
        """mbarrier.arrive.expect_tx: the bytes first, then the arrival. Returns the token.

        >>> barrier = Mbarrier(0)
        >>> barrier.init(1)
        >>> barrier.arrive_expect_tx(0) >> 20, barrier.phase
        (0, 1)
        """
        self._check_live("arrive.expect_tx on")
        if not 0 <= size <= MAX_TX or self.tx + size > MAX_TX:
            self._fail(f"expect_tx of {size} bytes with {self.tx} due; the transaction count ends at {MAX_TX}")
        self.tx += size
        if size:
            self._note("expect_tx", size, who, where)
        return self.arrive(count, where, who)

    def complete_tx(self, size: int, where: object = "", who: object = "") -> bool:
        """``size`` bytes have landed. Returns whether that completed the phase.

        Bytes may land before they are expected (the count is then negative for a while), but the phase stays open.

        >>> barrier = Mbarrier(0)
        >>> barrier.init(1)
        >>> barrier.complete_tx(64), barrier.tx
        (False, -64)
        """
        self._check_live("complete_tx on")
        if size < 0 or self.tx - size < -MAX_TX:
            self._fail(f"complete_tx of {size} bytes with {self.tx} due; the transaction count ends at -{MAX_TX}")
        self.tx -= size
        self._note("complete_tx", size, who, where)
        return self._advance()

    def _advance(self) -> bool:
        if self.pending or self.tx:
            return False
        if not self.expected:
            # Every thread has dropped out: the count of the next phase would be 0, which init does not allow either.
            self._fail("every participant has dropped out (arrive_drop): the next phase has nobody to wait for")
        self.phase += 1
        self.pending = self.expected
        return True

    def test_parity(self, parity: int) -> bool:
        """Whether the phase of that parity is complete: the latest one before the current. Parity 1 holds at first.

        >>> barrier = Mbarrier(0)
        >>> barrier.init(1)
        >>> barrier.test_parity(1), barrier.test_parity(0)
        (True, False)
        """
        self._check_live("waited on")
        if parity not in (0, 1):
            self._fail(f"waited on with parity {parity}; allowed are 0 and 1")
        return self.phase & 1 != parity

    def target_phase(self, parity: int) -> int | None:
        """The phase that a waiter for ``parity`` has to see completed, or None if it already is.

        A waiter may go on once ``barrier.phase`` exceeds the target; at ``target + 2`` it has missed a phase and, on
        hardware, would go on waiting.

        >>> barrier = Mbarrier(0)
        >>> barrier.init(1)
        >>> barrier.target_phase(0), barrier.target_phase(1)
        (0, None)
        """
        return None if self.test_parity(parity) else self.phase

    def test_state(self, token: int) -> bool:
        """Whether the phase in which ``token`` was made is complete; it must be the current or the last one."""
        self._check_live("waited on")
        made = token >> _PENDING_BITS
        if made not in (self.phase, self.phase - 1):
            self._fail(f"waited on with the token of phase {made}, but phase {self.phase} is in progress")
        return made != self.phase

    def describe(self) -> str:
        """One sentence for reports: phase, parity, and what it waits for.

        >>> barrier = Mbarrier(0x400)
        >>> barrier.init(2)
        >>> barrier.describe()
        'mbarrier 0x400: phase 0 (parity 0) waits for 2 of 2 arrivals and 0 bytes'
        """
        if not self.live:
            return f"mbarrier {self.address:#x}: not initialised"
        return (
            f"mbarrier {self.address:#x}: phase {self.phase} (parity {self.phase & 1}) waits for "
            f"{self.pending} of {self.expected} arrivals and {self.tx} bytes"
        )

    def _note(self, operation: str, amount: int, who: object, where: object) -> None:
        self._notes.append((operation, amount, self.phase, who, where, self.pending, self.tx))

    def _check_live(self, verb: str) -> None:
        if not self.live:
            self._fail(f"{verb} before mbarrier.init (or after mbarrier.inval)")

    def _fail(self, text: str) -> NoReturn:
        raise MbarrierError("barrier", f"mbarrier {self.address:#x}: {text}")
