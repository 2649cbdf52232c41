"""Says who waits for what when nobody can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cta import Cluster, NamedBarrier
from .errors import DeadlockError
from .ops_barrier import Waiting, Who
from .ops_order import Polling
from .wait_records import BarrierRecord, Party, WaitRecord

if TYPE_CHECKING:
    from .cta import Barrier
    from .gang import Gang
    from .scheduler import Machine

_MANY = 24


def _place(g: Gang) -> str:
    return str(g.program.places[g.at])


def _wait_text(g: Gang) -> tuple[str, list[str]]:
    """What one gang waits for, and the history of it."""
    waiting: Any = g.waiting
    history: list[str] = []
    if isinstance(waiting, Waiting):
        texts = []
        for barrier, value, by_parity, phase in waiting.targets:
            what = f"parity {value}" if by_parity else f"the phase of token {value:#x}"
            missed = f" (it waits since phase {phase})" if phase != barrier.phase else ""
            slot = f"in block {barrier.cta.ctaid}: " if barrier.cta is not g.cta else ""
            texts.append(f"{what} of {slot}{barrier.describe()}{missed}")
            last = list(barrier.history)[-6:]
            history.extend(f"mbarrier {barrier.address:#x} of block {barrier.cta.ctaid}: {arrival}" for arrival in last)
        return " and ".join(texts), history
    if isinstance(waiting, Polling):
        return waiting.describe(g), history
    if isinstance(waiting, NamedBarrier):
        needed = waiting.expected or 32 * g.cta.alive_warps
        who = ", ".join(sorted({f"warp {warp} at {g.program.places[at]}" for warp, _, at in waiting.arrivers}))
        return f"named barrier {waiting.number}: {waiting.arrived} of {needed} threads have arrived ({who})", history
    if isinstance(waiting, Cluster):
        missing = [cta for cta in waiting.ctas if bool((cta.alive & (cta.cluster_token < waiting.phase)).any())]
        return (
            f"the cluster barrier, phase {waiting.phase}: blocks {[cta.ctaid for cta in missing]} have not all arrived",
            history,
        )
    if g.open:
        return f"{g.open} parts of itself that a branch divided", history
    return str(waiting or "its turn"), history


_ARRIVALS = frozenset({"arrive", "arrive_drop", "expect_tx", "complete_tx"})


def _party(g: Gang, mask: Any = None) -> Party:
    lanes = g.lanes if mask is None or mask is False else np.flatnonzero(mask)
    return Party(g.who(mask), g.cta.ctaid, tuple(np.unique((lanes + g.base) // 32).tolist()))


def _mbarrier_record(barrier: Barrier) -> BarrierRecord:
    past = barrier.history
    arrivals: list[Any] = [one.who for one in past if one.operation in _ARRIVALS]
    who = dict.fromkeys(_party(one.g, one.mask) for one in arrivals if isinstance(one, Who))
    return BarrierRecord(
        "mbarrier",
        barrier.cta.ctaid,
        barrier.address,
        barrier.phase,
        barrier.pending,
        barrier.expected,
        barrier.tx,
        tuple(who),
        tuple(str(one) for one in past[-6:]),
    )


def _waited_on(g: Gang) -> tuple[tuple[BarrierRecord, int | None], ...]:
    """The barriers that one gang waits for."""
    waiting: Any = g.waiting
    if isinstance(waiting, Waiting):
        return tuple(
            (_mbarrier_record(barrier), value if by_parity else None)
            for barrier, value, by_parity, _ in waiting.targets
        )
    if isinstance(waiting, NamedBarrier):
        needed = waiting.expected or 32 * g.cta.alive_warps
        who = dict.fromkeys(_party(other) for _, other, _ in waiting.arrivers)
        missing = needed - waiting.arrived
        return ((BarrierRecord("named", g.cta.ctaid, waiting.number, 0, missing, needed, 0, tuple(who)), None),)
    if isinstance(waiting, Cluster):
        late = sum(bool((cta.alive & (cta.cluster_token < waiting.phase)).any()) for cta in waiting.ctas)
        first, size = waiting.ctas[0].ctaid, len(waiting.ctas)
        return ((BarrierRecord("cluster", first, 0, waiting.phase, late, size), None),)
    polled = waiting if waiting is not None or g.poll is None else g.poll[1]
    if isinstance(polled, Polling):
        return ((BarrierRecord("memory", g.cta.ctaid, polled.span()[0], 0, 0, 0), None),)
    return ()


def deadlock_error(machine: Machine, polling: bool = False) -> DeadlockError:
    """The report. `polling`: threads still run, but only poll, and nothing has happened for long."""
    waits: list[str] = []
    history: list[str] = []
    seen: set[str] = set()
    records: list[WaitRecord] = []
    for g in machine.gangs:
        if g.open:
            continue
        text, past = _wait_text(g)
        if g.waiting is None and polling:
            text = "something that it polls in a loop" if g.poll is None else g.poll[1].describe(g)
        records.append(WaitRecord(_party(g), _place(g), text, _waited_on(g)))
        who = g.who()
        verb = "wait" if " warps " in who or " threads " in who else "waits"
        waits.append(f"{who} {verb} at {_place(g)} for {text}")
        for line in past:
            if line not in seen:
                seen.add(line)
                history.append(line)
    head = (
        "deadlock: no thread can go on" if not polling else "deadlock: threads poll, but nothing has happened for long"
    )
    lines = [head, *(f"  {wait}" for wait in waits[:_MANY])]
    if len(waits) > _MANY:
        lines.append(f"  and {len(waits) - _MANY} more")
    if history:
        lines += ["last operations on these barriers:", *(f"  {line}" for line in history[:_MANY])]
    if machine.next_cluster < machine.clusters:
        blocks = (machine.clusters - machine.next_cluster) * machine.cluster_size
        lines.append(
            f"  {machine.clusters - machine.next_cluster} clusters ({blocks} blocks) of the grid have not started: {machine.resident} blocks are resident, at most 132 run at once, one on each SM of an "
            "H200. Blocks that wait for one another must all be resident: make the grid smaller, or let blocks wait only for blocks before them"
        )
    return DeadlockError("\n".join(lines), tuple(waits), tuple(history), tuple(records))
