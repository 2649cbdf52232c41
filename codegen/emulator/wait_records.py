"""What a deadlock consists of, as plain records: who waits, for which barrier, and what that barrier still lacks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Party:
    """Threads, as `who` spells them, with their block and warps."""

    who: str
    block: tuple[int, int, int]
    warps: tuple[int, ...]

    def meets(self, other: Party) -> bool:
        """Whether both have threads of one warp.

        >>> Party("warps 4..7", (0, 0, 0), (4, 5, 6, 7)).meets(Party("warp 5", (0, 0, 0), (5,)))
        True
        """
        return self.block == other.block and not set(self.warps).isdisjoint(other.warps)


@dataclass(frozen=True)
class BarrierRecord:
    """A barrier at the moment of the deadlock, or memory that is polled.

    `kind`: "mbarrier", "named", "cluster" or "memory"; `block`: whose shared memory it lies in (the cluster's first block for the last); `number`: its shared
    address, its number, or the address that is polled; `phase`: completed phases so far; `pending` of `expected` arrivals are missing (threads for a named barrier, blocks for a
    cluster's), and `bytes_due` bytes. `arrived`: who has lately arrived or copied; `history`: the last operations.

    >>> barrier = BarrierRecord("mbarrier", (0, 0, 0), 0x400, 1, 0, 1, 16)
    >>> barrier.name, barrier.lacks
    ('mbarrier 0x400', '16 bytes')
    """

    kind: str
    block: tuple[int, int, int]
    number: int
    phase: int
    pending: int
    expected: int
    bytes_due: int = 0
    arrived: tuple[Party, ...] = ()
    history: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The barrier in words."""
        if self.kind == "mbarrier":
            return f"mbarrier {self.number:#x}"
        if self.kind == "memory":
            return f"memory at {self.number:#x}"
        return f"named barrier {self.number}" if self.kind == "named" else "cluster barrier"

    @property
    def lacks(self) -> str:
        """What it still waits for, in words."""
        if self.kind == "memory":
            return "a store of another value"
        units = {"mbarrier": "arrivals", "named": "threads", "cluster": "blocks"}[self.kind]
        parts = [f"{self.pending} of {self.expected} {units}"] if self.pending else []
        parts += [f"{self.bytes_due} bytes"] if self.bytes_due else []
        return " and ".join(parts) or "nothing: its phase is not the one that is waited for"


@dataclass(frozen=True)
class WaitRecord:
    """Threads that cannot go on, their `place` in the source, and what they wait for in words. `on`: the barriers, each with the parity that is
    waited for (None where it is no parity).
    """

    threads: Party
    place: str
    text: str
    on: tuple[tuple[BarrierRecord, int | None], ...] = ()
