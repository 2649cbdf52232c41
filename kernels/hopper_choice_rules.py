"""The rules of the Hopper GEMM for what is a word out of a list: orders of tiles, L2 hints, who hands out tiles, how K is divided.

Knows which of them go together; knows nothing of what a kernel holds in registers or shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from .config import Cluster, GemmConfig, Hint, Order, Reduce, SplitKind, Violation

LAUNCHES = ("static", "placed")

MAXIMUM_PARTS = 128
"""CTAs (or clusters) that share a tile's K; there are 132 SMs."""


def nearest(value: int, step: int, low: int, high: int) -> str:
    below = min(max(value // step * step, low), high)
    above = min(max(-(-value // step) * step, low), high)
    return "nearest " + ", ".join(str(near) for near in sorted({below, above}))


def choice_violations(config: GemmConfig, least_registers: int) -> Iterator[Violation]:
    """The rules for what is a word out of a list, and for what those words ask of other parameters. ``least_registers``: of a producer
    thread.
    """
    schedule, split, problem = config.schedule, config.split, config.problem
    for name, value, allowed in (
        ("order", schedule.order, get_args(Order)),
        ("hint_a", config.pipeline.hint_a, get_args(Hint)),
        ("hint_b", config.pipeline.hint_b, get_args(Hint)),
        ("launch", schedule.launch, LAUNCHES),
        ("split_kind", split.kind, get_args(SplitKind)),
        ("reduce", split.reduce, get_args(Reduce)),
        ("specialize", config.specialize, ("", "nk", "mnk")),
    ):
        if value not in allowed:
            words = ", ".join(f'"{word}"' for word in allowed)
            also = '; "clc" and "one" are Blackwell\'s' if name == "launch" else ""
            yield Violation(parameter=name, value=repr(value), rule=f"must be one of {words}{also}")
    if schedule.launch == "placed":
        yield from _placed_violations(config)
    if schedule.producer_registers:
        least, most = least_registers, {1: 96, 2: 56, 3: 56}.get(schedule.consumers, 56)
        if schedule.producer_registers % 8 or not least <= schedule.producer_registers <= most:
            yield Violation(
                parameter="producer_registers",
                value=schedule.producer_registers,
                rule=f"setmaxnreg counts in eights, and the consumers need theirs: must be 0, or a multiple of 8 from {least} to {most}",
                fix=nearest(schedule.producer_registers, 8, least, most),
            )
    if split.kind == "split" and not 2 <= split.parts <= MAXIMUM_PARTS:
        yield Violation(
            parameter="parts",
            value=split.parts,
            rule=f"a split tile has from 2 to {MAXIMUM_PARTS} parts",
            fix=nearest(split.parts, 1, 2, MAXIMUM_PARTS) + ', or split_kind="none"',
        )
    elif split.kind in ("none", "stream") and split.parts != 1:
        yield Violation(
            parameter="parts",
            value=split.parts,
            rule=f'counts only with split_kind="split", and it is "{split.kind}"',
            fix='parts=1, or split_kind="split"',
        )
    if split.kind == "none" and split.reduce == "atomic":
        yield Violation(
            parameter="reduce",
            value="'atomic'",
            rule="is how partial sums of shared tiles are added, and every tile is computed whole",
            fix='reduce="ordered", or split_kind="split" or "stream"',
        )
    if split.kind != "none" and schedule.kind == "pingpong":
        yield Violation(
            parameter="split_kind",
            value=repr(split.kind),
            rule="a ping-pong schedule takes whole tiles: it hides the end of one under the next, and a split tile has no next",
            fix='schedule_kind="cooperative" works',
        )
    if split.kind != "none" and schedule.consumers == 3:
        yield Violation(
            parameter="consumers",
            value=3,
            rule="three consumers leave each thread no registers for the shares of a split tile",
            fix="consumers=2 works, with tile_m=128 or 256",
        )
    if schedule.consumers == 3 and schedule.swap and config.epilogue.store == "direct" and config.cluster != Cluster():
        yield Violation(
            parameter="consumers",
            value=3,
            rule="three consumers leave each thread no registers for plain stores down D's columns in a cluster (NVRTC 13.5 spills)",
            fix="consumers=2 works, with tile_m=128 or 256, or a single CTA",
        )
    hints = [name for name in ("hint_a", "hint_b") if getattr(config.pipeline, name) != "none"]
    if hints and schedule.consumers == 3:
        yield Violation(
            parameter=hints[0],
            value=repr(getattr(config.pipeline, hints[0])),
            rule="three consumers leave the producer no registers for a policy of L2",
            fix='"none" works, or consumers=2 with tile_m=128 or 256',
        )
    if config.specialize in ("nk", "mnk"):
        missing = [name for name in config.specialize if getattr(problem, name) is None]
        if missing:
            yield Violation(
                parameter="specialize",
                value=repr(config.specialize),
                rule=f"bakes sizes into the source, and {', '.join(missing)} of the problem {'is' if len(missing) == 1 else 'are'} not given",
                fix='Gemm(m, n, k, config=...) gives them, or specialize=""',
            )


def _placed_violations(config: GemmConfig) -> Iterator[Violation]:
    """What cannot go with numbers that clusters take when they start."""
    split, form, cluster = config.split.kind, config.problem.form, config.cluster
    for name, value, right, rule, fix in (
        (
            "split_kind",
            repr(split),
            split == "none",
            'must be "none": a kernel has counters for its shares of K or for the numbers of its clusters',
            'split_kind="none" works',
        ),
        (
            "form",
            repr(form),
            form == "one",
            'must be "one": kernels for several products go without',
            "one product works",
        ),
        (
            "cluster",
            f"{cluster.m}x{cluster.n}",
            1 in (cluster.m, cluster.n),
            "must be one row or column of CTAs: the first one holds the number, and at its end waits for those that share tiles with it",
            "1x2, 2x1, 1x4 and 4x1 work",
        ),
    ):
        if not right:
            yield Violation(
                parameter=name, value=value, rule=f'beside launch="placed" {rule}', fix=f'{fix}, or launch="static"'
            )
