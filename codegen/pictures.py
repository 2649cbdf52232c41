"""The emulator's reports as pictures: a deadlock's wait-for graph, a race, a timeline; and a tuner's and a chip's records as points.

Turns objects of codegen into the plain records that layout.draw draws. With a GEMM's derivation, addresses get the names of its tiles and barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stridewright.layout.draw import (
    AccessNode,
    Drawing,
    Edge,
    Node,
    Roof,
    RooflinePoint,
    TunePoint,
    race_view,
    tuner_landscape,
    wait_graph,
)

from .pictures_source import source_picture
from .pictures_timeline import timeline_picture

if TYPE_CHECKING:
    from .emulator import DeadlockError, Race
    from .emulator.wait_records import BarrierRecord, WaitRecord
    from .speed_of_light import Device
    from .tune import TuneResult

__all__ = [
    "address_names",
    "deadlock_picture",
    "device_roof",
    "emulation_timeline",
    "race_picture",
    "roofline_points",
    "source_picture",
    "timeline_picture",
    "tune_points",
    "tuning_picture",
]


def address_names(derivation: Any) -> Callable[[int], str]:
    """What a kernel calls a shared address: the kernel's own names by its derivation (of a Gemm, or of a rung of the ladder), ""
    for None.

    >>> from stridewright import Gemm
    >>> gemm = Gemm(512, 512, 256)
    >>> address_names(gemm.derivation)(1024), address_names(None)(1024)
    ('A(0, 0) of slot 0', '')
    """
    if derivation is None:
        return lambda address: ""
    from stridewright.kernels.ladder import RungDerivation

    if isinstance(derivation, RungDerivation):
        from .ladder_where import describe as rung

        return lambda address: rung(derivation, address)
    if derivation.config.arch.startswith("sm_10"):
        from .blackwell_where import describe as blackwell

        return lambda address: blackwell(derivation, address)
    from .where import describe

    return lambda address: describe(derivation, address)


def _name(barrier: BarrierRecord, derivation: Any, several: bool) -> str:
    """A barrier's name: the kernel's own where it is known."""
    known = address_names(derivation)(barrier.number) if barrier.kind == "mbarrier" else ""
    there = f" of block {_spell(barrier.block)}" if several else ""
    return f"{known or barrier.name}{there}"


def _spell(block: Sequence[int]) -> str:
    return "(" + ",".join(map(str, block)) + ")"


def _wanted(barrier: BarrierRecord, parity: int | None) -> str:
    if parity is not None:
        return f"parity {parity} of "
    return "" if barrier.kind == "memory" else "its turn of "


def _ring(name: str) -> str:
    return name.partition("[")[0]


def _counterpart(ring: str) -> str:
    """The other half of a ring of slots: who waits for the one arrives at the other.

    >>> _counterpart("full"), _counterpart("accumulator empty"), _counterpart("mbarrier 0x400")
    ('empty', 'accumulator full', '')
    """
    first, _, last = ring.rpartition(" ")
    other = {"full": "empty", "empty": "full"}.get(last, "")
    return f"{first} {other}".strip() if other else ""


def _short(who: str, several: bool) -> str:
    """Threads in words, without the block where there is only one."""
    return who if several else who.partition(") ")[2] or who


def _block_of(records: Sequence[WaitRecord]) -> tuple[int, int, int]:
    return min(record.threads.block for record in records)


def deadlock_picture(
    error: DeadlockError, derivation: Any = None, block: tuple[int, int, int] | None = None
) -> Drawing:
    """The wait-for graph of a deadlock: the threads that wait, the barriers they wait for with their phases and what those lack, and who would have
    to arrive there. Barriers' tooltips have the last operations.

    One block's is drawn, the first by default, with the blocks that it waits for; the title says how many others wait too. ``derivation``: a GEMM's, so
    that barriers have names, and that an empty slot is known to wait for those who read full ones. Raises ValueError for an error without records.

    >>> from stridewright.codegen.emulator import DeadlockError
    >>> from stridewright.codegen.emulator.wait_records import BarrierRecord, Party, WaitRecord
    >>> one = Party("block (0,0,0) warp 1", (0, 0, 0), (1,))
    >>> barrier = BarrierRecord("mbarrier", (0, 0, 0), 0x400, 0, 0, 1, 16)
    >>> view = deadlock_picture(DeadlockError("", (), (), (WaitRecord(one, "k.cu:3", "", ((barrier, 0),)),)))
    >>> view.facts["waiting"], "lacks 16 bytes" in view.text()
    (1, True)
    """
    if not error.records:
        raise ValueError("this deadlock has no records of who waits: nothing to draw")
    block = _block_of(error.records) if block is None else block
    mine = [record for record in error.records if record.threads.block == block]
    if not mine:
        raise ValueError(
            f"no thread of block {_spell(block)} waits; there wait {sorted({r.threads.block for r in error.records})}"
        )
    several = len({barrier.block for record in mine for barrier, _ in record.on} | {block}) > 1
    threads, barriers, edges = [], {}, []
    for record in mine:
        name = _short(record.threads.who, several)
        wanted = [
            f"waits for {_wanted(barrier, parity)}{_name(barrier, derivation, several)}"
            for barrier, parity in record.on
        ] or [f"waits for {record.text}"]
        threads.append(Node(name, (*wanted, f"at {record.place}")))
        for barrier, parity in record.on:
            title = _name(barrier, derivation, several)
            barriers[title] = barrier
            tip = f"{record.threads.who} waits for {title}" + ("" if parity is None else f", parity {parity}")
            edges.append(Edge(name, title, "waits", tip))
    waiting_for: dict[str, list[str]] = {}
    for edge in edges:
        waiting_for.setdefault(_ring(edge.target), []).append(edge.source)
    nodes = []
    for title, barrier in barriers.items():
        lines = (
            [f"phase {barrier.phase} (parity {barrier.phase & 1}) in progress"] if barrier.kind == "mbarrier" else []
        )
        lines.append(f"lacks {barrier.lacks}")
        if barrier.bytes_due > 0 and not barrier.pending:
            lines.append("all copies have landed: more bytes were expected than came")
        if barrier.kind == "mbarrier" and not barrier.arrived:
            lines.append("nobody has arrived at it yet")
        nodes.append(Node(title, tuple(lines), barrier.history))
        edges += _owed(title, barrier, mine, waiting_for, several)
    others = len({record.threads.block for record in error.records}) - 1
    notes = [str(error).splitlines()[0] if str(error) else "nobody can go on"]
    if others:
        notes.append(
            f"block {_spell(block)} is shown; threads of {others} other block{'s' if others > 1 else ''} wait too"
        )
    return wait_graph(threads, nodes, edges, "who waits for what", notes)


def _owed(
    title: str,
    barrier: BarrierRecord,
    waits: Sequence[WaitRecord],
    waiting_for: dict[str, list[str]],
    several: bool,
) -> Iterable[Edge]:
    """Edges from a barrier to the waiting threads that would have to arrive: those seen to arrive before, or those that the kernel's ring says."""
    known = []
    if barrier.pending or not barrier.bytes_due:
        for record in waits:
            if any(party.meets(record.threads) for party in barrier.arrived):
                name = _short(record.threads.who, several)
                known.append(Edge(title, name, "owes", f"{name} arrived at {title} before"))
    if known:
        return known
    other = _counterpart(_ring(title))
    if barrier.pending and other:
        return [
            Edge(
                title,
                name,
                "supposed",
                f"{name} would arrive at {title}: it waits for {other} slots and hands on {_ring(title)} ones",
            )
            for name in dict.fromkeys(waiting_for.get(other, ()))
        ]
    return []


def _verbs(kind: str) -> tuple[str, str]:
    """What the first and the second access of a race are."""
    second, _, first = kind.partition(" after ")
    return (first, second) if first in ("read", "write") and second in ("read", "write") else ("access", "access")


def race_picture(race: Race, derivation: Any = None) -> Drawing:
    """A race: both accesses, the order that is missing between them, and where in shared memory they meet.

    With a GEMM's ``derivation`` the memory is drawn with its parts. ``EmulationResult.races`` and ``GemmEmulation.races`` have the races.

    >>> from stridewright.codegen.emulator import Access, Race
    >>> race = Race("write after read", Access("warp 1", "ld", "k.cu:2"), Access("warp 0", "st", "k.cu:5"), (0, 0, 0), 1040, "a barrier")
    >>> race_picture(race).facts["kind"]
    'write after read'
    """
    first, second = _verbs(race.kind)
    parts: list[tuple[str, int, int]] = []
    address = race.address
    if derivation is not None and race.space == "shared":
        from stridewright.kernels.hopper_rules import ALIGNMENT_SLACK  # Blackwell's is the same

        # The map counts from the first multiple of 1024 after what the system keeps; ranks of a cluster stand above bit 24.
        address = race.address & 0xFFFFFF
        parts = [(name, offset + ALIGNMENT_SLACK, size) for name, offset, size in derivation.shared_map]
    title = f"{race.kind}, block {_spell(race.block)}" + (f", seen {race.count} times" if race.count > 1 else "")
    return race_view(
        race.kind,
        AccessNode(first, race.first.agent, race.first.operation, race.first.place),
        AccessNode(second, race.second.agent, race.second.operation, race.second.place),
        race.missing,
        address,
        parts,
        race.where,
        race.space,
        title,
    )


def emulation_timeline(
    timeline: Any, derivation: Any = None, block: int = 0, window: tuple[float, float] | None = None
) -> Drawing:
    """``timeline_picture`` with the barriers named as the GEMM's ``derivation`` has them.

    >>> from stridewright.codegen.emulator.timeline import Timeline, CostModel, Span
    >>> from stridewright.codegen.emulator.timeline_model import Sharing
    >>> spans = (Span(0, "tensor core", "wgmma m64n64 of warps 0..3", 0, 90, -1),)
    >>> emulation_timeline(Timeline(spans, 100, {0: 90.0}, ((0, 0, 0),), 1e9, CostModel(), {}, Sharing(80, 80))).facts["busy"]
    '90.0%'
    """
    return timeline_picture(timeline, block, window, address_names(derivation))


def tune_points(rows: Iterable[Any]) -> list[TunePoint]:
    """Points for the landscape: from (GemmConfig, seconds) or (GemmConfig, seconds, modelled seconds).

    The parameters are those that name a configuration: tile_m, tile_n, tile_k, stages, cluster (as "2x1"), schedule, consumers, group.

    >>> from stridewright.kernels.config import GemmConfig
    >>> tune_points([(GemmConfig(), 1e-3)])[0].values["tile_n"]
    256
    """
    points = []
    for config, seconds, *modelled in rows:
        values = {
            "tile_m": config.tile.m,
            "tile_n": config.tile.n,
            "tile_k": config.tile.k,
            "stages": config.pipeline.stages,
            "cluster": f"{config.cluster.m}x{config.cluster.n}",
            "schedule": config.schedule.kind,
            "consumers": config.schedule.consumers,
        }
        points.append(TunePoint(config.name, values, seconds, *modelled))
    return points


def tuning_picture(result: TuneResult, across: str = "tile_n", down: str = "stages") -> Drawing:
    """The landscape of what a tuner measured: two parameters (as ``tune_points`` names them), all others free; the winner is underlined.

    >>> from types import SimpleNamespace
    >>> from stridewright.codegen.tune_state import Candidate, Outcome
    >>> from stridewright.kernels.config import GemmConfig, Problem
    >>> config = GemmConfig(problem=Problem(m=4096, n=4096, k=4096))
    >>> measured = (Outcome(Candidate(config), "measured", us=200.0), Outcome(Candidate(config.replace(stages=3)), "measured", us=230.0))
    >>> result = SimpleNamespace(problem=config.problem, device=SimpleNamespace(name="H200"), config=config, measured=measured)
    >>> tuning_picture(result).facts["best"]
    'sm_90a_bf16_cooperative2_128x256x64_stages4_group8_tma2'
    """
    points = tune_points((outcome.candidate.config, 1e-6 * (outcome.us or 0.0)) for outcome in result.measured)
    problem = result.problem
    title = f"{problem.m} x {problem.n} x {problem.k}, measured on {result.device.name}"
    return tuner_landscape(points, across, down, chosen=result.config.name, title=title)


def roofline_points(
    rows: Iterable[tuple[str, tuple[int, int, int], float]], element_bytes: int = 2
) -> list[RooflinePoint]:
    """Points for the roofline, from (name, (m, n, k), seconds): 2 m n k operations over the bytes of A, B and D, each moved once.

    >>> roofline_points([("cube", (4096, 4096, 4096), 200e-6)])[0].intensity
    1365.3333333333333
    """
    points = []
    for name, (m, n, k), seconds in rows:
        operations, moved = 2 * m * n * k, element_bytes * (m * k + n * k + m * n)
        tip = f"{m} x {n} x {k}: {operations:.4g} operations, {moved:.4g} bytes, {seconds * 1e6:.4g} us"
        points.append(RooflinePoint(name, operations / moved, operations / seconds, tip))
    return points


def device_roof(device: Device, kind: str = "bf16") -> Roof:
    """The roof of a chip of ``codegen.speed_of_light``: its peak for operands of ``kind``, and its memory.

    >>> from stridewright.codegen.speed_of_light import H200
    >>> round(device_roof(H200).ridge)
    206
    """
    return Roof(device.name, device.peak(kind), device.bytes_per_second)
