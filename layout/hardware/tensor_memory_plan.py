"""A plan of tensor memory: which columns each accumulator, A operand and scale factor gets, and the rules of
allocation.

Sources: PTX ISA 9.1 sections 9.7.16.2 (128 lanes x 512 columns) and 9.7.16.7 (alloc, dealloc, relinquish_alloc_permit);
ptxas 13.0 checks the column counts and the mix of cta_group, the rest is checked by nobody but this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import HardwareError, Problem, whole
from .tensor_memory import COLUMNS, LANES, accumulator_columns, data_path, scale_columns

MINIMUM_COLUMNS = 32  # an allocation is a power of two in 32..512 (PTX 9.7.16.7.1)
ALLOC_SHARED_BYTES = 1024  # shared memory that ptxas 13.0 reserves in a kernel with tcgen05.alloc
_GROUP = 16  # lanes are taken in groups of 16: half of a warp's quarter
ALL_LANES = (1 << LANES // _GROUP) - 1
LOWER_LANES = 0b01010101  # lanes 0-15 of each quarter: the accumulators of layouts F and C
UPPER_LANES = 0b10101010


@dataclass(frozen=True)
class Request:
    """Something that needs tensor memory: ``columns`` 32-bit columns in the 16-lane groups of ``lanes`` (a mask of 8
    bits).

    ``shares``: names of requests it may lie on top of, because they are never alive together.
    """

    name: str
    columns: int
    lanes: int = ALL_LANES
    shares: tuple[str, ...] = ()


@dataclass(frozen=True)
class Region:
    """A placed request: its first column."""

    request: Request
    column: int

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.column + self.request.columns

    def overlaps(self, other: Region) -> bool:
        """Whether the two share a cell: columns and lanes both meet.

        >>> a, b = Region(Request("a", 64, LOWER_LANES), 0), Region(Request("b", 64, UPPER_LANES), 0)
        >>> a.overlaps(b), a.overlaps(Region(Request("c", 8), 60))
        (False, True)
        """
        return self.column < other.end and other.column < self.end and bool(self.request.lanes & other.request.lanes)


@dataclass(frozen=True)
class Plan:
    """A plan: ``regions`` in order of their first column, ``columns`` to allocate (a power of two, 32..512),
    ``used``."""

    regions: tuple[Region, ...]
    columns: int
    used: int

    def __getitem__(self, name: str) -> Region:
        for region in self.regions:
            if region.request.name == name:
                return region
        raise HardwareError(f"no region {name!r}: there is {', '.join(r.request.name for r in self.regions)}")

    def explain(self) -> str:
        """One line a region."""
        lines = [f"{self.used} of {self.columns} allocated columns used"]
        for region in self.regions:
            lanes = {
                ALL_LANES: "all lanes",
                LOWER_LANES: "lanes 0-15 of each 32",
                UPPER_LANES: "lanes 16-31 of each 32",
            }
            where = lanes.get(region.request.lanes, f"16-lane groups {region.request.lanes:#010b}")
            lines.append(f"  columns {region.column:3}..{region.end - 1:3}  {region.request.name} ({where})")
        return "\n".join(lines)


def accumulator_request(
    name: str, m: int, n: int, cta_group: int = 1, ws: bool = False, sparse: bool = False, upper: bool = False
) -> Request:
    """The request of one accumulator. ``upper``: lanes 16 to 31 of each quarter, for the 64-row layouts F and C.

    >>> accumulator_request("acc", 64, 128).lanes == LOWER_LANES, accumulator_request("acc", 128, 256).columns
    (True, 256)
    """
    letter = data_path(m, cta_group, ws, sparse)
    if upper and letter not in "FC":
        raise HardwareError(f"upper: only the 64-row layouts F and C leave lanes free, not {letter}")
    lanes = (UPPER_LANES if upper else LOWER_LANES) if letter in "FC" else ALL_LANES
    return Request(name, accumulator_columns(m, n, cta_group, ws, sparse), lanes)


def scale_request(name: str, rows: int, scales: int) -> Request:
    """The request of the scale factors of ``rows`` rows, ``scales`` a row.

    >>> scale_request("sfa", 128, 16).columns
    16
    """
    return Request(name, scale_columns(rows, scales))


def plan_tensor_memory(requests: Iterable[Request], limit: int = COLUMNS) -> Plan:
    """Place every request, largest first, at the lowest columns where it meets nothing it may not share with.

    ``limit``: columns this CTA may take (512, or 256 where two share an SM). Raises HardwareError saying what did not
    fit.

    >>> plan = plan_tensor_memory([accumulator_request(f"acc{i}", 128, 128) for i in range(2)] + [scale_request("sfa", 128, 4)])
    >>> plan.columns, plan["acc1"].column, plan["sfa"].column
    (512, 128, 256)
    """
    wanted = list(requests) if isinstance(requests, Iterable) else [requests]
    if strange := [request for request in wanted if not isinstance(request, Request)]:
        raise HardwareError(f"a request must be a Request, not {strange[0]!r}")
    names = [request.name for request in wanted]
    if len(set(names)) != len(names):
        raise HardwareError(f"two requests have one name: {', '.join(sorted(names))}")
    for request in wanted:
        if (
            not 1 <= whole(f"columns of {request.name}", request.columns) <= COLUMNS
            or not 0 < request.lanes <= ALL_LANES
        ):
            raise HardwareError(
                f"{request.name}: {request.columns} columns, lane groups {request.lanes:#x}; 1..512 and 8 groups"
            )
        unknown = set(request.shares) - set(names)
        if unknown:
            raise HardwareError(f"{request.name} shares with {', '.join(sorted(unknown))}, which is not requested")
    placed: list[Region] = []
    for request in sorted(wanted, key=lambda r: -r.columns):
        starts = [0, *sorted(region.end for region in placed)]
        for start in starts:
            region = Region(request, start)
            if region.end <= limit and not any(_clash(region, other) for other in placed):
                placed.append(region)
                break
        else:
            need = sum(r.columns for r in wanted)
            raise HardwareError(
                f"{request.name} ({request.columns} columns) does not fit: all requests ask for {need} of {limit} columns;"
                " use fewer accumulators or a smaller N, or let some share"
            )
    used = max((region.end for region in placed), default=0)
    columns = max(MINIMUM_COLUMNS, 1 << (used - 1).bit_length()) if used else MINIMUM_COLUMNS
    if columns > limit:
        raise HardwareError(f"{used} columns round up to an allocation of {columns}, over the limit of {limit}")
    return Plan(tuple(sorted(placed, key=lambda r: (r.column, r.request.name))), columns, used)


def _clash(a: Region, b: Region) -> bool:
    may_share = b.request.name in a.request.shares or a.request.name in b.request.shares
    return a.overlaps(b) and not may_share


@dataclass(frozen=True)
class Event:
    """A step of a CTA's life: op "alloc" (of ``columns``), "dealloc" (of ``columns``), "relinquish" or "exit"."""

    op: str
    columns: int = 0
    cta_group: int = 1


def allocation_problems(events: Sequence[Event]) -> list[Problem]:
    """Every rule of tcgen05.alloc that a sequence of one CTA breaks.

    >>> [str(p.field) for p in allocation_problems([Event("alloc", 48), Event("exit")])]
    ['event 0', 'event 1']
    """
    found = []
    live: list[int] = []
    smallest = COLUMNS
    relinquished = False
    groups = {event.cta_group for event in events}
    if len(groups) > 1:
        found.append(Problem("cta_group", sorted(groups), "all tcgen05 of a kernel use one cta_group (ptxas 13.0)", ""))
    for number, event in enumerate(events):
        where = f"event {number}"
        if event.op in ("alloc", "dealloc"):
            size = whole(f"columns of event {number}", event.columns)
            if size & (size - 1) or not MINIMUM_COLUMNS <= size <= COLUMNS:
                fix = 1 << max(size - 1, MINIMUM_COLUMNS - 1).bit_length()
                found.append(
                    Problem(where, size, "must be a power of two in 32..512 (PTX 9.7.16.7.1)", f"{min(fix, COLUMNS)}")
                )
        if event.op == "alloc":
            if relinquished:
                found.append(
                    Problem(where, event.columns, "no alloc after relinquish_alloc_permit (PTX 9.7.16.7.1)", "")
                )
            if smallest < event.columns <= COLUMNS:
                rule = f"asks for more columns than an earlier allocation ({smallest}) (PTX 9.7.16.7.1)"
                found.append(Problem(where, event.columns, rule, "allocate the largest first"))
            if live and sum(live) + event.columns > COLUMNS:
                rule = f"{sum(live)} columns are held already: this alloc would block for ever"
                found.append(Problem(where, event.columns, rule, "free some, or allocate once"))
            smallest = min(smallest, event.columns)
            live.append(event.columns)
        elif event.op == "dealloc":
            if event.columns in live:
                live.remove(event.columns)
            else:
                found.append(Problem(where, event.columns, f"not allocated: held are {live or 'none'}", ""))
        elif event.op == "relinquish":
            relinquished = True
        elif event.op == "exit":
            if live:
                found.append(
                    Problem(where, "exit", f"{live} columns are still allocated (PTX 9.7.16.7.1)", "dealloc them")
                )
        else:
            found.append(Problem(where, event.op, "must be alloc, dealloc, relinquish or exit", ""))
    return found
