"""Records what the threads of a launch do, in order, for a timeline: copies, wgmma, barriers, stores, forks and joins of gangs.

Nothing here runs unless a timeline is asked for: the translated program is then run through a copy of it whose functions note what
they are called with. The record has no times; `timeline_replay` gives it some.

A stream is the events of one gang. Each event is (kind, instructions issued since the event before, PTX instruction, data):

    arrive, wait        ((barrier, phase), ...)         an mbarrier's phase, known by the barrier's block, address and number of the phase
    load                (bytes, what, targets)          a bulk or tensor copy into shared memory; targets: ((block, barrier, phase), ...)
    store               (bytes, thread)                 one out of it; commit: threads; drain: (threads, pending, read)
    wgmma               (n, a from registers)           64 rows and 32 bytes of K; commit_wgmma; wait_wgmma: pending
    mma                 (m, n, k, bits)                 mma.sync of each warp
    umma, commit_umma, columns                          tcgen05: timeline_tensor.py
    bar                 (barrier, waits)                a named barrier or the cluster's, known by its block, number and turn
    shared              wavefronts                      ld, st, ldmatrix, stmatrix on shared memory
    read, write         bytes                           ld, st on global memory
    copy                bytes                           cp.async; commit_copy; wait_copy: pending, or -1 for all
    fork, join          streams                         a gang divides, and goes on when these have ended
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from .gang import PARK
from .namespace import namespace
from .ops_barrier import lane_values
from .ops_copy import InFlight, each_thread
from .scheduler import Machine
from .timeline_tensor import tensor_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cta import Cta, NamedBarrier
    from .gang import Gang
    from .launch import Launch
    from .scheduler import AsyncOperation
    from .translate import Program

Event = tuple[str, int, int, Any]

FREE = frozenset({"mov", "cvta", "bra", "ld.param", "mapa"})
"""PTX instructions that count as none: moves are mostly renamed away by ptxas, parameters are operands of other instructions."""


class Stream:
    """The events of one gang, and who it is."""

    __slots__ = ("at", "base", "cta", "events", "issued", "label", "number", "root", "threads")

    def __init__(self, number: int, cta: int, base: int, threads: int, label: str, root: bool) -> None:
        self.number = number
        self.cta = cta
        self.base = base
        self.threads = threads
        self.label = label
        self.root = root
        self.events: list[Event] = []
        self.issued = 0
        self.at = 0


class Recording:
    """Everything a launch did. `blocks`: their coordinates, in the order in which they started, clusters of `cluster_size`. `loaded_bytes` left L2 for shared
    memory, `unique_bytes` of them for the first time; `received_bytes` count a multicast once for each block that it goes to.
    """

    def __init__(self, launch: Launch) -> None:
        self.streams: list[Stream] = []
        self.blocks: list[tuple[int, int, int]] = []
        self.cluster_size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        self.grid_blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self.program = launch.program
        self.unique_bytes = 0
        self.loaded_bytes = 0
        self.received_bytes = 0
        self.stored_bytes = 0


def _label(g: Gang) -> str:
    lanes = g.lanes + g.base
    if len(lanes) == 1:
        return f"thread {int(lanes[0])}"
    warps = sorted({int(lane) // 32 for lane in lanes})
    if len(lanes) == 32 * len(warps):
        return f"warp {warps[0]}" if len(warps) == 1 else f"warps {warps[0]}..{warps[-1]}"
    return f"{len(lanes)} threads of warps {warps[0]}..{warps[-1]}"


class Recorder(Machine):
    """A machine that notes what runs on it."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self.recording = Recording(launch)
        self._streams: dict[Gang, Stream] = {}
        self._blocks: dict[Cta, int] = {}
        self._turns: dict[tuple[int, int], int] = {}
        self._seen: set[Any] = set()
        self._pending: dict[Gang, list[int]] = {}
        items = launch.program.instructions
        weights = [0 if i.parts[0] in FREE or ".".join(i.parts[:2]) in FREE else 1 for i in items]
        self._weights = np.concatenate([[0], np.cumsum(weights)]).tolist()
        launch.program = traced(launch.program, self)

    # -- streams -----------------------------------------------------------------------------------------------------------------

    def block(self, cta: Cta) -> int:
        """A block's number in the recording."""
        found = self._blocks.get(cta)
        if found is None:
            for one in cta.cluster.ctas:
                self._blocks[one] = len(self._blocks)
                self.recording.blocks.append(one.ctaid)
            found = self._blocks[cta]
        return found

    def stream(self, g: Gang) -> Stream:
        """The stream of a gang, made when it first runs."""
        found = self._streams.get(g)
        if found is None:
            streams = self.recording.streams
            found = Stream(len(streams), self.block(g.cta), g.base, g.count, _label(g), g.parent is None)
            found.at = g.at
            streams.append(found)
            self._streams[g] = found
        return found

    def note(self, g: Gang, kind: str, data: Any) -> None:
        """Adds an event of the instruction that the gang is at."""
        stream = self.stream(g)
        at = g.at
        weights = self._weights
        issued = stream.issued + max(weights[at] - weights[stream.at], 0)
        stream.events.append((kind, issued, at, data))
        stream.issued, stream.at = 0, at

    def enter(self, g: Gang, first: int) -> Stream:
        """A gang starts a block of instructions."""
        stream = self.stream(g)
        stream.at = first
        return stream

    def leave(self, stream: Stream, end: int) -> None:
        """A gang has done the block that ends before instruction `end`."""
        stream.issued += max(self._weights[end] - self._weights[stream.at], 0)
        stream.at = end

    # -- what the scheduler does -------------------------------------------------------------------------------------------------

    def divide(self, g: Gang) -> None:
        """Children start when their parent divides."""
        super().divide(g)
        self.note(g, "fork", tuple(self.stream(child).number for child in g.children))
        self._pending[g] = []

    def finish(self, g: Gang, exited: bool) -> None:
        """A parent goes on when its children have ended."""
        stream, parent = self.stream(g), g.parent
        if stream.issued:
            stream.events.append(("end", stream.issued, stream.at, None))
        if parent is not None:
            self._pending.setdefault(parent, []).append(stream.number)
            if parent.open == 1:
                parents = self.stream(parent)
                parents.events.append(("join", 0, parents.at, tuple(self._pending.pop(parent))))
        super().finish(g, exited)

    def _loosen(self) -> bool:
        before = set(self.gangs)
        made = super()._loosen()
        for g in [one for one in self.gangs if one not in before]:
            parent = g.parent
            assert parent is not None
            stream = self.stream(g)
            self.note(parent, "fork", (stream.number,))
            stream.events.append(("join", 0, g.at, tuple(self._pending.get(parent, ()))))
        return made

    def hoisted(self, g: Gang) -> None:
        """Its warps have come to the parent's join, with those of its children that have ended."""
        assert g.parent is not None
        self._pending.setdefault(g.parent, []).extend((*self._pending.pop(g, ()), self.stream(g).number))
        super().hoisted(g)

    def check_named(self, cta: Cta, barrier: NamedBarrier) -> bool:
        """A named barrier's turns are counted."""
        done = super().check_named(cta, barrier)
        if done:
            key = self.block(cta), barrier.number
            self._turns[key] = self._turns.get(key, 0) + 1
        return done

    def turn(self, g: Gang, number: int) -> tuple[Any, ...]:
        """The turn of a named barrier that is in progress."""
        key = self.block(g.cta), number
        return ("bar", *key, self._turns.get(key, 0))

    def fly(self, operation: AsyncOperation) -> None:
        """Copies into shared memory."""
        if isinstance(operation, InFlight):
            what, where, bound = operation.text
            size = where if bound is None else bound.map.box_bytes
            targets = tuple((self.block(cta), self.phase(barrier)) for cta, _, barrier, _ in operation.targets)
            record = self.recording
            record.loaded_bytes += size
            record.received_bytes += size * len(targets)
            key = (id(bound), where) if bound is not None else (len(self._seen),)
            if key not in self._seen:
                self._seen.add(key)
                record.unique_bytes += size
            self.note(operation.who.g, "load", (size, f"{what} {where}", targets))
        super().fly(operation)

    def phase(self, barrier: Any) -> tuple[Any, ...]:
        """The phase of an mbarrier that is in progress."""
        return (self.block(barrier.cta), barrier.address, barrier.phase)


def traced(program: Program, machine: Recorder) -> Program:
    """The program with functions that tell the machine what they do."""
    made = copy.copy(program)
    scope = dict(namespace())
    scope.update(_hooks(scope, machine))
    exec(compile(program.source, f"<{program.kernel}>", "exec"), scope)
    made.functions = []
    for index, block in enumerate(program.blocks):
        function = scope.get(f"b{index}", program.functions[index])
        if block.instructions:
            first, end = block.instructions[0][0], block.instructions[-1][0] + 1
            function = _noted(function, first, end, machine)
        made.functions.append(function)
    return made


def _noted(
    function: Callable[[Gang, list[Any]], int], first: int, end: int, machine: Recorder
) -> Callable[[Gang, list[Any]], int]:
    def run(g: Gang, registers: list[Any]) -> int:
        stream = machine.enter(g, first)
        found = function(g, registers)
        if found != PARK:
            machine.leave(stream, end)
        return found

    return run


def _hooks(names: dict[str, Any], machine: Recorder) -> dict[str, Any]:
    """Functions of the namespace that note an event and then do what they did."""
    note = machine.note

    def before(name: str, kind: str, data: Callable[..., Any]) -> None:
        plain = names[name]

        def run(g: Gang, *args: Any) -> Any:
            note(g, kind, data(g, *args))
            return plain(g, *args)

        found[name] = run

    def phases(g: Gang, m: Any, address: Any, value: Any, *_: Any) -> Any:
        cluster = g.cta.cluster
        return tuple(
            machine.phase(cluster.of_address(at).barrier(at)) for (at, _), _ in lane_values(g, m, address, value)
        )

    def threads(g: Gang, m: Any) -> tuple[int, ...]:
        return tuple(g.base + lane for lane, _ in each_thread(g, m))

    def count(g: Gang, m: Any) -> int:
        return g.count if m is None else int(np.count_nonzero(m))

    found: dict[str, Any] = {}
    before("mbarrier_arrive", "arrive", phases)
    before("mbarrier_tx", "arrive", phases)
    before("wgmma_issue", "wgmma", lambda g, R, slots, sources, key, *_: (key[0], bool(sources)))
    before("wgmma_commit", "commit_wgmma", lambda g: None)
    before("wgmma_wait", "wait_wgmma", lambda g, pending: pending)
    before("mma_sync", "mma", lambda g, m, shape, a, *_: (*shape, names_bits(a)))
    before("bulk_commit", "commit", threads)
    before("bulk_wait", "drain", lambda g, m, pending, read: (threads(g, m), pending, read))
    before("bar_arrive", "bar", lambda g, number, *_: (machine.turn(g, int(np.max(number))), False))
    before("bar_sync", "bar", lambda g, number, *_: (machine.turn(g, int(np.max(number))), True))
    before(
        "cluster_arrive",
        "bar",
        lambda g, *_: (("cluster", machine.block(g.cta.cluster.ctas[0]), g.cta.cluster.phase), False),
    )
    before("load_global", "read", lambda g, m, address, width, count_, *_: width * count_ * count(g, m))
    before("store_global", "write", lambda g, m, address, value, width, count_, *_: width * count_ * count(g, m))

    def watched(name: str) -> None:
        plain = names[name]
        banks = machine.launch.banks.totals

        def run(g: Gang, *args: Any) -> Any:
            earlier = sum(total[0] for key, total in banks.items() if key[0] == g.at)
            result = plain(g, *args)
            waves = sum(total[0] for key, total in banks.items() if key[0] == g.at) - earlier
            note(g, "shared", waves)
            return result

        found[name] = run

    for name in ("load_shared", "store_shared", "load_matrix", "store_matrix"):
        watched(name)

    plain_store, plain_bulk = names["tensor_store"], names["bulk_store"]

    def stored(g: Gang, lane: int, size: int, what: Any, earlier: set[Any]) -> None:
        # The machine's instruction is a warp's: lanes that name the same copy make one (CuTe's kernels store with whole warps).
        key = (g.base + lane) // 32, what
        if key not in earlier:
            earlier.add(key)
            machine.recording.stored_bytes += size
            note(g, "store", (size, g.base + lane))

    def tensor_store(g: Gang, m: Any, tensor: Any, coordinates: Any, source: Any, *args: Any) -> Any:
        earlier: set[Any] = set()
        for lane, what in each_thread(g, m, tensor, source, *coordinates):
            stored(g, lane, g.cta.launch.tensor_map(what[0], g.cta).map.box_bytes, what, earlier)
        return plain_store(g, m, tensor, coordinates, source, *args)

    def bulk_store(g: Gang, m: Any, target: Any, source: Any, size: Any, *args: Any) -> Any:
        earlier: set[Any] = set()
        for lane, what in each_thread(g, m, target, source, size):
            stored(g, lane, what[2], what, earlier)
        return plain_bulk(g, m, target, source, size, *args)

    def copy_async(g: Gang, m: Any, target: Any, source: Any, size: int, *args: Any) -> Any:
        machine.recording.loaded_bytes += size * count(g, m)
        machine.recording.unique_bytes += size * count(g, m)
        machine.recording.received_bytes += size * count(g, m)
        note(g, "copy", size * count(g, m))
        return plain_copy(g, m, target, source, size, *args)

    plain_copy = names["copy_async"]
    found["copy_async"] = copy_async
    before("copy_commit", "commit_copy", lambda g, m: None)
    before("copy_wait", "wait_copy", lambda g, m, pending: pending)
    found["tensor_store"], found["bulk_store"] = tensor_store, bulk_store
    plain_wait, plain_cluster = names["try_wait"], names["cluster_wait"]

    def try_wait(g: Gang, address: Any, value: Any, *args: Any) -> Any:
        result = plain_wait(g, address, value, *args)
        if result is not None and result is not False:
            waited = []
            for (at, _), _ in lane_values(g, g.mask, address, value):
                block, where, phase = machine.phase(g.cta.barrier(at))
                waited.append((block, where, phase - 1))
            note(g, "wait", tuple(waited))
        return result

    def cluster_wait(g: Gang, *args: Any) -> bool:
        done = bool(plain_cluster(g, *args))
        if done:
            cluster = g.cta.cluster
            note(g, "bar", (("cluster", machine.block(cluster.ctas[0]), cluster.phase - 1), None))
        return done

    found["try_wait"], found["cluster_wait"] = try_wait, cluster_wait
    found.update(tensor_hooks(names, machine))
    return found


def names_bits(dtype: str) -> int:
    """Bits of an mma.sync operand's element.

    >>> names_bits("bf16"), names_bits("e4m3"), names_bits("f64")
    (16, 8, 64)
    """
    digits = "".join(filter(str.isdigit, dtype))
    return 8 if dtype in ("e4m3", "e5m2", "s8", "u8") else int(digits or 1)
