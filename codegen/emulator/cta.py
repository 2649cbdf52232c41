"""A block and its cluster while they run: shared memory, barriers, warpgroups. Knows no instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import EmulationError
from .faults import MbarrierError
from .matrix import WgmmaQueue
from .mbarrier import Mbarrier
from .memory import SharedMemory
from .races import ClusterRaces

if TYPE_CHECKING:
    from .gang import Gang
    from .launch import Launch
    from .scheduler import Machine

RANK_SHIFT = 24
"""A shared::cluster address holds the block's rank from this bit on, and what follows is its shared::cta address."""
SYSTEM_SHARED = 1024


class Barrier(Mbarrier):
    """An mbarrier with the gangs that wait on it and the clocks of a race check."""

    __slots__ = ("agent", "clock", "cta", "done_clock", "init_fenced", "initialised", "known", "known_async", "waiters")

    def __init__(self, address: int, cta: Cta) -> None:
        super().__init__(address)
        self.cta = cta
        self.waiters: list[Gang] = []
        self.clock: Any = None
        self.done_clock: Any = None
        self.agent = -1
        self.initialised: tuple[int, int, int] = (0, 0, 0)
        """Clock row of the warp that initialised it, that warp's epoch then, and the instruction."""
        self.init_fenced = False
        self.known: set[int] = set()
        self.known_async: set[int] = set()


class NamedBarrier:
    """One of the 16 barriers of a block: counts threads in whole warps."""

    __slots__ = ("arrived", "arrivers", "clock", "expected", "last", "marks", "number", "voters", "votes", "waiters")

    def __init__(self, number: int) -> None:
        self.number = number
        self.expected = 0
        self.arrived = 0
        self.arrivers: list[tuple[int, Gang, int]] = []
        self.waiters: list[Gang] = []
        self.clock: Any = None
        self.votes = 0
        self.voters = 0
        self.marks: list[tuple[int, int, int]] = []
        self.last: list[tuple[int, int, int]] = []
        """Arrivals of this turn, and of the last one: clock row, epoch, instruction (for the race check)."""


class WarpGroup:
    """Four warps that issue wgmma together."""

    __slots__ = ("agent", "fenced", "queue")

    def __init__(self, shared: SharedMemory, numerics: Any) -> None:
        self.queue = WgmmaQueue(shared, numerics)
        self.fenced = False
        self.agent = -1


class BulkGroups:
    """Bulk copies of one thread that a bulk_group tracks."""

    __slots__ = ("agent", "closed", "groups", "open", "read", "writer", "written")

    def __init__(self) -> None:
        self.agent = -1
        self.open: list[Any] = []
        self.closed: list[list[Any]] = []
        self.groups = 0
        self.read = 0
        self.writer = -1
        self.written = 0
        """The agent of what these copies write to global memory, and how many groups are known to have written."""


class Cta:
    """A block that runs."""

    def __init__(
        self, launch: Launch, machine: Machine, cluster: Cluster, rank: int, ctaid: tuple[int, int, int]
    ) -> None:
        self.launch = launch
        self.machine = machine
        self.cluster = cluster
        self.rank = rank
        self.ranks = cluster.size
        self.ctaid: tuple[int, int, int] = ctaid
        self.ntid: tuple[int, int, int] = launch.block
        self.nctaid = launch.grid
        shape = launch.cluster
        self.clusterid = tuple(c // n for c, n in zip(ctaid, shape, strict=True))
        self.nclusterid = tuple(g // n for g, n in zip(launch.grid, shape, strict=True))
        self.cluster_ctaid = tuple(c % n for c, n in zip(ctaid, shape, strict=True))
        self.cluster_nctaid = shape
        self.explicit_cluster = launch.explicit_cluster
        self.smid = (ctaid[0] + launch.grid[0] * (ctaid[1] + launch.grid[1] * ctaid[2])) % 132
        self.dynamic_size = launch.shared
        self.threads = launch.threads
        self.window = (rank << RANK_SHIFT) + SYSTEM_SHARED
        self.shared = SharedMemory(launch.shared_bytes, self.window)
        self.barriers: dict[int, Barrier] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.warpgroups: dict[int, WarpGroup] = {}
        self.bulk: dict[int, BulkGroups] = {}
        self.copies: dict[int, Any] = {}
        self.alive = np.ones(self.threads, np.bool_)
        self.cluster_token = np.full(self.threads, -1, np.int64)
        self.gangs = 0
        per_thread = launch.registers_per_thread
        self.warp_registers = dict.fromkeys(range(-(-self.threads // 32)), per_thread)
        self.free_registers = 0
        self.register_waiters: list[Gang] = []
        self.races: Any = None
        self.launch_refused = False
        """Whether a thread has seen that a clusterlaunchcontrol.try_cancel failed."""
        self.tensor: Any = None
        """Its tensor memory and what tcgen05 has in flight (tensor_state.py), from the first tcgen05 instruction on."""

    # -- barriers ----------------------------------------------------------------------------------------------------------------

    def barrier(self, address: int) -> Barrier:
        """The barrier at a shared address of this block's window; raises if none was initialised there."""
        found = self.barriers.get(address)
        if found is None:
            if address % 8:
                raise EmulationError(f"mbarrier address {address:#x} is not a multiple of 8")
            near = ", ".join(f"{one:#x}" for one in sorted(self.barriers, key=lambda one: abs(one - address))[:3])
            raise MbarrierError(
                "barrier",
                f"no mbarrier was initialised at shared address {address:#x}; the nearest are at {near or 'nowhere'}",
            )
        return found

    def named_barrier(self, number: int) -> NamedBarrier:
        """Barrier `number`, 0..15."""
        if not 0 <= number < 16:
            raise EmulationError(f"named barrier {number}: there are barriers 0 to 15")
        found = self.named.get(number)
        if found is None:
            found = self.named[number] = NamedBarrier(number)
        return found

    def warpgroup(self, g: Gang) -> WarpGroup:
        """The warpgroup of a gang, which must be one whole warpgroup."""
        if g.width != 128 or g.base % 128 or g.mask is not None:
            raise EmulationError(
                f"a warpgroup instruction is executed by {g.who()}: all 128 threads of four warps that begin at a multiple of "
                "4 must execute it together"
            )
        found = self.warpgroups.get(g.base)
        if found is None:
            found = self.warpgroups[g.base] = WarpGroup(self.shared, self.launch.numerics)
        return found

    def exit_threads(self, g: Gang, mask: Any) -> None:
        """Threads of a gang end: they leave every ancestor, and barriers no longer wait for them."""
        lanes = slice(g.base, g.base + g.width)
        if mask is None:
            self.alive[lanes] = False
            mask = np.ones(g.width, np.bool_)
        else:
            self.alive[lanes] &= ~mask
        parent = g.parent
        while parent is not None:
            parent.mask = ~mask if parent.mask is None else parent.mask & ~mask
            parent.warps_cache = None
            parent = parent.parent
        for hook in (self.machine.recheck_named, self.machine.recheck_cluster):
            hook(self)

    @property
    def alive_warps(self) -> int:
        """Warps with a thread that has not ended."""
        if self.threads % 32 == 0:
            return int(np.count_nonzero(self.alive.reshape(-1, 32).any(axis=1)))
        return len(np.unique(np.flatnonzero(self.alive) // 32))


def cluster_origin(launch: Launch, number: int) -> tuple[int, int, int]:
    """The first block of a cluster of the grid."""
    (x, y, z), (nx, ny, _) = launch.cluster, (g // c for g, c in zip(launch.grid, launch.cluster, strict=True))
    return number % nx * x, number // nx % ny * y, number // (nx * ny) * z


class Cluster:
    """The blocks of one cluster, and their common barrier."""

    def __init__(self, launch: Launch, machine: Machine, number: int, make: Callable[..., Cta] = Cta) -> None:
        shape = launch.cluster
        self.size = shape[0] * shape[1] * shape[2]
        self.number = number
        origin = cluster_origin(launch, number)
        self.ctas: list[Cta] = []
        for rank in range(self.size):
            inner = (rank % shape[0], rank // shape[0] % shape[1], rank // (shape[0] * shape[1]))
            ctaid = tuple(o + i for o, i in zip(origin, inner, strict=True))
            self.ctas.append(make(launch, machine, self, rank, ctaid))
        self.phase = 0
        self.arrived = 0
        self.waiters: list[Gang] = []
        self.clock: Any = None
        self.done_clock: Any = None
        self.history: list[str] = []
        self.tensor: Any = None
        """The race check of its tensor memories."""
        self.races = ClusterRaces(self, launch) if launch.check_races else None
        for cta in self.ctas:
            cta.races = self.races

    def of_address(self, address: int) -> Cta:
        """The block whose shared memory a shared::cluster address names."""
        rank = address >> RANK_SHIFT
        if rank >= self.size:
            raise EmulationError(f"shared::cluster address {address:#x} names block {rank} of a cluster of {self.size}")
        cta = self.ctas[rank]
        if not cta.alive.any():
            raise EmulationError(
                f"shared::cluster address {address:#x} lies in block {cta.ctaid}, which has ended: shared memory lasts as "
                "long as its block, so a cluster barrier is missing before its end"
            )
        return cta

    @property
    def alive(self) -> int:
        """Threads of the cluster that have not ended."""
        return sum(int(np.count_nonzero(cta.alive)) for cta in self.ctas)
