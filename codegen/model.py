"""The modelled time of a Hopper configuration for a shape: a roofline of one CTA's turns, fitted to measured runs.

A persistent CTA takes slot after slot of K. A slot lasts as long as the slowest of: the multiplies; the latency of
memory and the slot's own way, divided among the slots in flight; the bytes through the SM's door; all CTAs' requests to
L2, where rows that begin between sectors count more than once; what TMA fills in outside the operands. Turns cost what
nothing hides, the whole what a launch costs. Everything moves through DRAM at least once, and what several CTAs read
crosses from one half of L2 to the other.

The constants (``model_table``) were fitted to thousands of timings on an H200 (``benchmarks/fit_model.py``,
``benchmarks/results/selection_timings.json``), so they absorb what the form leaves out: they rank configurations, and are
no measurements of the parts they are named after. What measured runs like a configuration were off by corrects it
(``model_likeness``), and what is like none is doubted.

Arrays in, arrays out: a whole space is ranked at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.hopper_choice_rules import MAXIMUM_PARTS
from stridewright.kernels.hopper_rules import ALIGNMENT_SLACK, MAXIMUM_STAGES, SHARED_LIMIT

from .model_likeness import beyond_form
from .model_table import Constants, Fitted, fitted
from .model_work import Features, Work, features, up, work_of
from .select import RESIDENT, SMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Constants", "Features", "best_first", "features", "modelled_us", "physical_us", "space"]


def _slot_ns(x: Features, work: Work, c: Constants, active: Any) -> Any:
    """Nanoseconds of a slot in the middle of a tile."""
    p, pair, four = c.power, work.size == 2, work.size > 2
    wgmma = ((x.tile_n * c.column) ** 4 + c.narrow**4) ** 0.25
    multiply = (x.tile_m // 64) * (x.tile_k / 16) * wgmma * np.where(x.consumers == 3, c.three_consumers, 1.0)
    # Of two ping-pong consumers only one has anything to do where there is one turn.
    alone = (x.consumers == 1) | ((x.pingpong > 0) & (work.turns == 1) & ~work.divided)
    multiply = multiply + c.alone * alone
    arriving = (x.tile_m + x.tile_n) * x.tile_k * 2
    latency = (c.latency_pair * pair + arriving / c.burst) / np.maximum(x.stages - 1, 1)
    # A row of 128 bytes that begins inside a sector takes five of them, and two of L2's lines.
    dearer = 1 + c.misaligned * (x.k * 2 % 32 != 0)
    requested = (x.tile_m / x.cluster_n + x.tile_n / x.cluster_m) * x.tile_k * 2 * active
    rows_outside = (work.tile_rows * x.tile_m - x.rows) * work.tile_columns / x.cluster_n
    columns_outside = (work.tile_columns * x.tile_n - x.columns) * work.tile_rows / x.cluster_m
    share = np.minimum(1, active / (work.tile_rows * work.tile_columns))
    outside = (rows_outside + columns_outside) * x.tile_k / 64 * share
    l2 = requested * dearer / (c.l2 * 1e3) + outside / c.outside
    handshake = c.handshake_pair * pair + c.handshake_four * four
    return (multiply**p + latency**p + (arriving * dearer / c.door) ** p + l2**p + handshake**p) ** (1 / p)


def _readers(panels: Any, most: float) -> Any:
    """How many of so many readers of a panel make it cross on their own."""
    return most * (1 - (1 - 1 / most) ** panels)


def physical_us(x: Features, sms: int, c: Constants) -> NDArray[Any]:
    """Microseconds of each configuration by the form alone."""
    work = work_of(x, sms)
    p, slot = c.power, _slot_ns(x, work, c, work.ctas)
    left = work.tile_rows * work.tile_columns - (work.turns - 1) * work.ctas
    last = np.where(work.divided | (work.turns == 1), slot, _slot_ns(x, work, c, np.maximum(left, 1)))
    stores = x.tile_m * x.tile_n / (np.where(x.pingpong > 0, 1, x.consumers) * 128)
    store = np.where(x.columns % 2 == 1, c.direct_odd, c.direct)
    end = stores * np.where(x.direct > 0, np.where(x.swapped > 0, c.direct_swapped, store), c.staged)
    # While one ping-pong consumer stores, the other multiplies: only the last store is seen, or where multiplies are
    # short, each consumer's own.
    tile = work.k_blocks * slot
    hidden = (tile >= end) | (work.turns == 1)
    alternating = np.where(hidden, work.turns * tile + end, tile + np.ceil(work.turns / 2) * (tile + end))
    body = np.where(x.pingpong > 0, alternating, work.slots * slot + work.turns * end)
    # In the last turn fewer CTAs ask for something, and of the last slot of a tile TMA reads no more than there is.
    body = body - work.k_blocks * (slot - last)
    padding = np.where(work.divided, 0, work.k_blocks - x.k / x.tile_k)
    body = body - c.tail * padding * ((work.turns - 1) * slot + last)
    body = body / 1e3

    once = 2.0 * (x.rows * x.k + x.columns * x.k + x.rows * x.columns)
    windows = work.tile_rows * work.tile_columns / work.ctas
    window = windows * (work.high * x.tile_m + work.wide * x.tile_n) * x.k * 2 + 2.0 * x.rows * x.columns
    requested = (x.tile_m / x.cluster_n + x.tile_n / x.cluster_m) * x.tile_k * 2 * work.ctas
    moved = once + work.uneven * c.unshared * np.maximum(requested * work.slots - once, 0)
    moved = np.where((once > _L2_KEEPS) & ~work.uneven, once + c.window * np.maximum(window - once, 0), moved)
    # An SM of a pair that has its door for itself is done before one that has not.
    uneven_pairs = (work.turns == 1) & (work.size == 1) & (work.ctas > sms / 2)
    dram = moved / (c.dram * 1e6) * (1 + c.uneven_pairs * uneven_pairs * (sms / work.ctas - 1))
    dram = dram * np.where(work.size > 1, np.maximum(1, sms / work.ctas) ** c.idle_clusters, 1)

    groups = work.ctas / (work.high * work.wide) * windows
    panels_a = groups * work.high * x.tile_m * 2 * x.k * _readers(work.wide / x.cluster_n, c.crossers)
    panels_b = groups * work.wide * x.tile_n * 2 * x.k * _readers(work.high / x.cluster_m, c.crossers)
    crossing = 0.5 * (panels_a + panels_b) / (c.crossing * 1e6)  # half of what is read lies in the other half

    total = c.launch + (body**p + dram**p + crossing**p) ** (1 / p) + c.cluster * (work.size > 1)
    partial = work.ctas * x.tile_m * x.tile_n * 4 / 1e7 * np.where(x.atomic > 0, 0.7, 1.0)
    total = total + work.divided * (c.split + c.split_bytes * partial)
    beyond = c.depth_32 * (x.tile_k == 32) + c.swapped * (x.swapped > 0)
    beyond = beyond + c.pingpong * (x.pingpong > 0) + c.high * (x.tile_m == 256)
    found: NDArray[Any] = total * np.exp(beyond)
    return found


_L2_KEEPS = 60e6
"""Bytes of operands up to which L2 keeps what one turn leaves to the next: about its size."""


def modelled_us(x: Features, sms: int = SMS, fit: Fitted | None = None) -> NDArray[Any]:
    """Modelled microseconds of each configuration: by the form, and what measured runs like it say beyond."""
    fit = fitted() if fit is None else fit
    found: NDArray[Any] = physical_us(x, sms, fit.constants) * np.exp(beyond_form(x, work_of(x, sms), fit))
    return found


_SCHEDULES = (
    ("cooperative", 1, (64, 128, 192)),
    ("cooperative", 2, (128, 256)),
    ("cooperative", 3, (192,)),
    ("pingpong", 2, (64, 128, 192)),
)
"""Kinds of schedule, their consumers, and the tile heights that were ever of use with them."""

_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
_PARTS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 33, 44, 60, 64, 66, 120, 128)
_MOST_ACCUMULATORS = 208
_SWAPPED_ROWS = 1024
"""Rows of A up to which swapped operands are thought of; beyond, what differs is who stands in which rows."""
_FEW_ROWS = 32
"""Rows of A up to which only swapped operands are thought of: of a box of 64 rows more than half would lie outside."""
_STAGING_BUFFERS = 2
_BARRIER_BYTES = 16
"""Of a slot: one barrier for full, one for empty."""


@lru_cache(maxsize=1)
def _choices() -> NDArray[np.float64]:
    """Swap, ping-pong, consumers, tile height, depth of a slot and cluster: a row for each combination."""
    return np.asarray(
        [
            (swap, kind == "pingpong", consumers, tile_m, tile_k, cluster_m, cluster_n)
            for swap in (False, True)
            for kind, consumers, heights in _SCHEDULES
            for tile_m in heights
            for tile_k in ((64, 128, 256) if tile_m == 64 else (64, 128))
            for cluster_m, cluster_n in _CLUSTERS
        ],
        dtype=np.float64,
    )


def space(problem: Problem, sms: int = SMS) -> Features:
    """Every configuration that is worth a thought for the problem, as features: each tile with as many slots as fit and
    are of use. Some of them break a rule that is not looked at here.
    """
    m, n, k = problem.m, problem.n, problem.k
    if m is None or n is None or k is None:
        raise ValueError("a choice needs the sizes m, n and k")
    direct = n * 2 % 16 != 0
    table = _choices()
    widths = np.arange(8, min(256, -(-max(m, n) // 8) * 8) + 1, 8)
    swap, pingpong, consumers, tile_m, tile_k, cluster_m, cluster_n = np.repeat(table, len(widths), axis=0).T
    width = np.tile(widths, len(table)).astype(np.float64)
    rows, columns = np.where(swap > 0, n, m), np.where(swap > 0, m, n)
    sharers = np.where(pingpong > 0, 1, consumers)
    useful = (width < columns + 8) & (tile_m < rows + 64) & (tile_m * width <= _MOST_ACCUMULATORS * 128 * sharers)
    useful &= (cluster_m <= up(rows, tile_m)) & (cluster_n <= up(columns, width)) & (width % (8 * cluster_m) == 0)
    useful &= (tile_k <= 128) | (width <= 64)
    useful &= (swap == 0) | (m <= _SWAPPED_ROWS) | direct
    if m <= _FEW_ROWS and n >= 64:
        useful &= swap > 0
    names = (
        "rows",
        "columns",
        "tile_m",
        "tile_n",
        "tile_k",
        "consumers",
        "pingpong",
        "cluster_m",
        "cluster_n",
        "swapped",
    )
    columns_of = (rows, columns, tile_m, width, tile_k, consumers, pingpong, cluster_m, cluster_n, swap)
    given = {name: column[useful] for name, column in zip(names, columns_of, strict=True)}
    given["parts"] = np.ones(int(useful.sum()))

    # K is split where that fills SMs which would be idle.
    size = given["cluster_m"] * given["cluster_n"]
    resident = np.select([size == one for one in RESIDENT], list(RESIDENT.values()), 120) * sms // SMS // size
    blocks = up(given["rows"], given["tile_m"] * given["cluster_m"])
    blocks *= up(given["columns"], given["tile_n"] * given["cluster_n"])
    k_blocks = up(k, given["tile_k"])
    divisible = np.flatnonzero((given["pingpong"] == 0) & (given["consumers"] < 3) & (2 * blocks <= resident))
    parts = np.array([one for one in _PARTS if one <= MAXIMUM_PARTS], dtype=np.float64)
    which, part = (axis.ravel() for axis in np.meshgrid(divisible, parts, indexing="ij"))
    worth = (blocks[which] * part <= resident[which]) & (part * 2 <= k_blocks[which])
    picked = np.concatenate([np.arange(len(blocks)), which[worth]])
    given = {name: column[picked] for name, column in given.items()}
    given["parts"][len(blocks) :] = part[worth]

    turns = np.where(given["parts"] > 1, 1 / given["parts"], up(blocks, np.maximum(resident, 1))[picked])
    panel = np.where(given["swapped"] > 0, given["tile_n"], 64)
    staging = 0 if direct else given["consumers"] * _STAGING_BUFFERS * panel * 128
    free = SHARED_LIMIT - ALIGNMENT_SLACK - staging
    slot = (given["tile_m"] + given["tile_n"]) * given["tile_k"] * 2 + _BARRIER_BYTES
    fit = np.minimum(free // slot, MAXIMUM_STAGES)
    given["stages"] = np.minimum(fit, np.maximum(2, np.ceil(turns * k_blocks[picked])))
    fits = given["stages"] >= 2
    fixed = {"k": k, "atomic": 0, "direct": direct, "group": 8}
    count = int(fits.sum())
    kept = {name: column[fits] for name, column in given.items()}
    return Features(**kept, **{name: np.full(count, float(value)) for name, value in fixed.items()})


def best_first(
    problem: Problem, arch: str = "sm_90a", sms: int = SMS, most: int = 64
) -> Iterator[tuple[float, GemmConfig]]:
    """(modelled microseconds, valid configuration), best first among the few hundred that the form ranks highest, then the
    next few hundred; ``most`` at most.

    >>> from stridewright.kernels.config import Problem
    >>> next(best_first(Problem(m=16, n=6144, k=4096)))[1].schedule.swap
    True
    """
    x = space(problem, sms)
    form = physical_us(x, sms, fitted().constants)
    base = GemmConfig(arch=arch, problem=problem)
    found = 0
    for place, cost in _in_order(x, form, sms):
        at = {field.name: int(getattr(x, field.name)[place]) for field in fields(x)}
        config = base.replace(
            schedule_kind="pingpong" if at["pingpong"] else "cooperative",
            **{
                name: at[name]
                for name in ("tile_m", "tile_n", "tile_k", "stages", "consumers", "cluster_m", "cluster_n")
            },
            swap=bool(at["swapped"]),
            store="direct" if at["direct"] else "tma",
            **({"split_kind": "split", "parts": at["parts"]} if at["parts"] > 1 else {}),
            **_hints(bool(at["swapped"]), at["consumers"]),
        )
        if config.violations():
            continue
        yield cost, config
        found += 1
        if found == most:
            return


_AT_ONCE = 200
"""More change no choice: for 250 shapes the first of 3000 is the first of 120."""


def _in_order(x: Features, form: NDArray[Any], sms: int) -> Iterator[tuple[int, float]]:
    """Places and modelled microseconds, best first among each few hundred that the form ranks highest, then next: to ask how
    like measured runs a configuration is costs more than the form, and changes less.
    """
    ranked = np.argsort(form, kind="stable")
    for start in range(0, len(ranked), _AT_ONCE):
        places = ranked[start : start + _AT_ONCE]
        few = Features(**{name: column[places] for name, column in vars(x).items()})
        costs = modelled_us(few, sms)
        # Of equals the one without a cluster, then the wider tile.
        for one in np.lexsort((-few.tile_n, few.cluster_m * few.cluster_n, costs)):
            yield int(places[one]), float(costs[one])


def _hints(swapped: bool, consumers: int) -> dict[str, str]:
    """Weights that are read once may leave L2 first: the kernel's A where operands are swapped."""
    return {"hint_a": "first"} if swapped and consumers < 3 else {}
