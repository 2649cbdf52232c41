"""The modelled time of a Hopper configuration for a shape: a roofline of one CTA's turns, fitted to measured runs.

A persistent CTA takes slot after slot of K. A slot lasts as long as the slowest of: the multiplies; the latency of
memory, divided among the slots in flight; the bytes through the SM's door; all CTAs' requests to L2. Turns cost what
nothing hides, the whole what a launch costs, and everything moves through DRAM at least once. The constants were fitted
to thousands of timings on an H200 (``benchmarks/fit_model.py``, ``benchmarks/results/selection_timings.json``), so they absorb
what the form leaves out: they rank configurations, and are no measurements of the parts they are named after.

Arrays in, arrays out: a whole space is ranked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.hopper_rules import ALIGNMENT_SLACK, MAXIMUM_PARTS, MAXIMUM_STAGES, SHARED_LIMIT

from .select import RESIDENT, SMS

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Constants:
    """The fitted constants. Times in microseconds or clocks, rates in bytes a clock or terabytes a second."""

    clock: float
    """Clocks a nanosecond."""
    row: float
    """Clocks of a wgmma of 64 rows and 16 of K beside its columns."""
    column: float
    """Clocks a column of it."""
    one_consumer: float
    """Share of the tensor cores' rate that one consumer warpgroup reaches, and three."""
    three_consumers: float
    slot: float
    """Clocks a slot beside its multiplies; with one consumer."""
    slot_alone: float
    latency: float
    """Clocks from the request for a slot to its arrival."""
    latency_in_clusters: float
    """How much longer that is, as a share, where a slot waits for the CTAs of a cluster."""
    door: float
    """Bytes a clock into an SM's shared memory."""
    l2: float
    dram: float
    turn_pingpong: float
    """Clocks a turn that nothing hides."""
    only_turn_pingpong: float
    """The same where there is only one turn."""
    turn_cooperative: float
    fill: float
    """Clocks before the first multiply and after the last."""
    launch: float
    cluster: float
    cluster_of_four: float
    """Microseconds that a cluster costs, and one of four CTAs more."""
    split: float
    split_bytes: float
    """Microseconds to hand partial sums over, and for each 10 MB of them."""
    direct: float
    """Clocks of a plain store."""
    power: float
    """How sharply the slowest of several wins: the exponent of a power mean."""
    unshared: float
    """Share of a stream's requests that miss L2, since its CTAs stand at different K."""
    window: float
    """Share of what the panels of a window of tiles ask for beyond the operands that reaches DRAM."""
    idle: float
    """How much of DRAM's rate is lost with the SMs that take no part: an exponent."""
    depth_32: float
    """Logarithms of what slots of 32, clusters of four, one and three consumers, streams, swapped operands and narrow tiles
    cost beyond the form."""
    four: float
    one: float
    three: float
    stream: float
    swapped: float
    narrow: float


CONSTANTS = Constants(
    clock=1.5318,
    row=8.0066,
    column=0.5003,
    one_consumer=1.0,
    three_consumers=0.894,
    slot=160.2552,
    slot_alone=0.1024,
    latency=2398.8611,
    latency_in_clusters=0.0013,
    door=109.8815,
    l2=8.2594,
    dram=4.2477,
    turn_pingpong=0.5589,
    only_turn_pingpong=660.7437,
    turn_cooperative=1961.9418,
    fill=501.7001,
    launch=0.6058,
    cluster=0.5825,
    cluster_of_four=0.0012,
    split=3.7751,
    split_bytes=4.5118,
    direct=19.7852,
    power=6.1595,
    unshared=0.4068,
    window=1.4972,
    idle=0.3777,
    depth_32=0.1124,
    four=0.0,
    one=-0.0186,
    three=-0.0168,
    stream=0.0047,
    swapped=-0.0578,
    narrow=-0.0296,
)


@dataclass(frozen=True)
class Features:
    """What the model looks at, an array a field, an element a configuration."""

    rows: NDArray[Any]
    """Of the kernel's problem: with operands swapped, D's columns."""
    columns: NDArray[Any]
    k: NDArray[Any]
    tile_m: NDArray[Any]
    tile_n: NDArray[Any]
    tile_k: NDArray[Any]
    stages: NDArray[Any]
    consumers: NDArray[Any]
    pingpong: NDArray[Any]
    cluster_m: NDArray[Any]
    cluster_n: NDArray[Any]
    swapped: NDArray[Any]
    parts: NDArray[Any]
    """CTAs that share a tile; 1 is none, 0 a stream."""
    atomic: NDArray[Any]
    direct: NDArray[Any]
    group: NDArray[Any]


def features(configs: Iterable[GemmConfig]) -> Features:
    """The features of configurations whose problems have their sizes. Raises ValueError where one has not."""
    rows = []
    for config in configs:
        problem, tile, schedule = config.problem, config.tile, config.schedule
        m, n, k = problem.m, problem.n, problem.k
        if m is None or n is None or k is None:
            raise ValueError("the modelled time needs the sizes m, n and k")
        first, second = (n, m) if schedule.swap else (m, n)
        parts = {"none": 1, "stream": 0}.get(config.split.kind, config.split.parts)
        made = (first, second, k, tile.m, tile.n, tile.k, config.pipeline.stages, schedule.consumers)
        how = (schedule.kind == "pingpong", config.cluster.m, config.cluster.n, schedule.swap, parts)
        ends = (config.split.reduce == "atomic", config.epilogue.store == "direct", schedule.group_m)
        rows.append((*made, *how, *ends))
    return Features(*np.asarray(rows, dtype=np.float64).reshape(-1, len(fields(Features))).T)


def _up(value: Any, step: Any) -> Any:
    return np.ceil(value / step)


def modelled_us(x: Features, sms: int = SMS, constants: Constants = CONSTANTS) -> NDArray[Any]:
    """Modelled microseconds of each configuration."""
    c = constants
    size = x.cluster_m * x.cluster_n
    resident = np.maximum(np.select([size == one for one in RESIDENT], list(RESIDENT.values()), 120) * sms // SMS, size)
    most = resident // size
    blocks = _up(x.rows, x.tile_m * x.cluster_m) * _up(x.columns, x.tile_n * x.cluster_n)
    k_blocks = _up(x.k, x.tile_k)
    stream = (x.parts == 0) & (blocks % most != 0)
    shared = np.where(x.parts > 1, blocks, np.where(stream, blocks % most + np.where(blocks > most, most, 0), 0))
    clusters = np.where(
        x.parts > 1, np.minimum(np.minimum(blocks * x.parts, most), blocks * k_blocks), np.minimum(blocks, most)
    )
    clusters = np.where(stream, np.minimum(most, shared * k_blocks), clusters)
    ctas = clusters * size
    split = shared > 0
    cut = shared * k_blocks / clusters + (blocks - shared) / clusters * k_blocks
    turns = np.where(split, np.ceil(cut / k_blocks) + 1, _up(blocks, clusters))
    slots = np.where(split, cut, turns * k_blocks)

    clock = c.clock * 1e3  # clocks a microsecond
    multiply = (x.tile_m // 64) * (x.tile_k / 16) * (x.tile_n * c.column + c.row)
    rate = np.where(x.consumers == 1, c.one_consumer, np.where(x.consumers == 3, c.three_consumers, 1.0))
    multiply = multiply / rate + np.where(x.consumers == 1, c.slot_alone, c.slot)
    arriving = (x.tile_m + x.tile_n) * x.tile_k * 2
    requested = (x.tile_m / x.cluster_n + x.tile_n / x.cluster_m) * x.tile_k * 2 * ctas
    p = c.power
    latency = c.latency * (1 + c.latency_in_clusters * (size > 1))
    slot = (
        multiply**p
        + (latency / np.maximum(x.stages - 1, 1)) ** p
        + (arriving / c.door) ** p
        + (requested * clock / (c.l2 * 1e6)) ** p
    ) ** (1 / p)
    pingpong = np.where(turns > 1, c.turn_pingpong, c.only_turn_pingpong)
    turn = np.where(x.pingpong > 0, pingpong, c.turn_cooperative)
    turn = turn + x.direct * x.tile_m * x.tile_n / (x.consumers * 128) * c.direct
    body = (slots * slot + turns * turn) / clock

    once = 2.0 * (x.rows * x.k + x.columns * x.k + x.rows * x.columns)
    tile_rows, tile_columns = _up(x.rows, x.tile_m), _up(x.columns, x.tile_n)
    high = np.minimum(x.group * x.cluster_m, tile_rows)
    wide = np.minimum(tile_columns, np.maximum(1, ctas / high))
    window = tile_rows * tile_columns / ctas * (high * x.tile_m + wide * x.tile_n) * x.k * 2 + 2.0 * x.rows * x.columns
    moved = once + stream * c.unshared * np.maximum(requested * slots - once, 0)
    moved = np.where((once > 60e6) & ~stream, once + c.window * np.maximum(window - once, 0), moved)
    dram = moved / (c.dram * 1e6) * np.maximum(1, sms / ctas) ** c.idle

    total = c.launch + c.fill / clock + (body**p + dram**p) ** (1 / p)
    total = total + c.cluster * (size > 1) + c.cluster_of_four * (size > 2)
    partial = ctas * x.tile_m * x.tile_n * 4 / 1e7 * np.where(x.atomic > 0, 0.7, 1.0)
    total = total + split * (c.split + c.split_bytes * partial)
    beyond = c.depth_32 * (x.tile_k == 32) + c.four * (size == 4) + c.one * (x.consumers == 1)
    beyond = beyond + c.three * (x.consumers == 3) + c.stream * stream + c.swapped * (x.swapped > 0)
    beyond = beyond + c.narrow * ((x.tile_n < 64) & (x.swapped == 0))
    result: NDArray[Any] = total * np.exp(beyond)
    return result


_SCHEDULES = (
    ("cooperative", 1, (64, 128, 192)),
    ("cooperative", 2, (128, 256)),
    ("cooperative", 3, (192,)),
    ("pingpong", 2, (64, 128, 192)),
)
"""Kinds of schedule, their consumers, and the tile heights that were ever of use with them."""

_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
_PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 33, 44, 60, 64, 66, 120, 128)
_MOST_ACCUMULATORS = 208
_STAGING_BUFFERS = 2


def space(problem: Problem, sms: int = SMS) -> Features:
    """Every configuration that is worth a thought for the problem, as features: each tile with as many slots as fit and
    are of use. Some of them break a rule that is not looked at here.
    """
    m, n, k = problem.m, problem.n, problem.k
    if m is None or n is None or k is None:
        raise ValueError("a choice needs the sizes m, n and k")
    direct = n * 2 % 16 != 0
    choices = [
        (swap, kind == "pingpong", consumers, tile_m, tile_k, cluster_m, cluster_n)
        for swap in ((False, True) if m <= 512 else (False,))
        for kind, consumers, heights in _SCHEDULES
        for tile_m in heights
        for tile_k in ((64, 128, 256) if swap and m <= 64 else (64, 128))
        for cluster_m, cluster_n in _CLUSTERS
    ]
    widths = np.arange(8, min(256, -(-max(m, n) // 8) * 8) + 1, 8)
    parts = np.array([one for one in _PARTS if one <= MAXIMUM_PARTS])
    table = np.asarray(choices, dtype=np.float64)
    which, width, part = (axis.ravel() for axis in np.meshgrid(np.arange(len(table)), widths, parts, indexing="ij"))
    swap, pingpong, consumers, tile_m, tile_k, cluster_m, cluster_n = table[which].T
    rows, columns = np.where(swap > 0, n, m), np.where(swap > 0, m, n)
    size = cluster_m * cluster_n
    resident = np.select([size == one for one in RESIDENT], list(RESIDENT.values()), 120) * sms // SMS // size
    blocks = _up(rows, tile_m * cluster_m) * _up(columns, width * cluster_n)
    sharers = np.where(pingpong > 0, 1, consumers)
    useful = (width < columns + 8) & (tile_m < rows + 64) & (tile_m * width <= _MOST_ACCUMULATORS * 128 * sharers)
    useful &= (cluster_m <= _up(rows, tile_m)) & (cluster_n <= _up(columns, width)) & (width % (8 * cluster_m) == 0)
    # K is split where that fills SMs which would be idle.
    useful &= (part == 1) | (
        (pingpong == 0) & (consumers < 3) & (blocks * part <= resident) & (part * 2 <= _up(k, tile_k))
    )
    panel = np.where(swap > 0, width, 64)
    staging = np.zeros_like(width) if direct else consumers * _STAGING_BUFFERS * panel * 128
    free = SHARED_LIMIT - ALIGNMENT_SLACK - 16 * MAXIMUM_STAGES - 1024 - staging
    turns = np.where(part > 1, 1 / part, _up(blocks, np.maximum(resident, 1)))
    fit = np.minimum(free // ((tile_m + width) * tile_k * 2), MAXIMUM_STAGES)
    stages = np.minimum(fit, np.maximum(2, np.ceil(turns * _up(k, tile_k))))
    useful &= stages >= 2
    fixed = {"k": k, "atomic": 0, "direct": direct, "group": 8}
    given = {
        "rows": rows, "columns": columns, "tile_m": tile_m, "tile_n": width, "tile_k": tile_k, "stages": stages,
        "consumers": consumers, "pingpong": pingpong, "cluster_m": cluster_m, "cluster_n": cluster_n, "swapped": swap,
        "parts": part,
    }  # fmt: skip
    kept = {name: np.asarray(value, dtype=np.float64)[useful] for name, value in given.items()}
    count = int(useful.sum())
    return Features(**kept, **{name: np.full(count, float(value)) for name, value in fixed.items()})


def best_first(
    problem: Problem, arch: str = "sm_90a", sms: int = SMS, most: int = 64
) -> Iterator[tuple[float, GemmConfig]]:
    """(modelled microseconds, valid configuration), best first, ``most`` at most.

    >>> from stridewright.kernels.config import Problem
    >>> next(best_first(Problem(m=16, n=6144, k=4096)))[1].schedule.swap
    True
    """
    x = space(problem, sms)
    costs = modelled_us(x, sms)
    base = GemmConfig(arch=arch, problem=problem)
    found = 0
    # Of equals the one without a cluster, then the wider tile.
    for place in np.lexsort((-x.tile_n, x.cluster_m * x.cluster_n, costs)):
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
        yield float(costs[place]), config
        found += 1
        if found == most:
            return


def _hints(swapped: bool, consumers: int) -> dict[str, str]:
    """Weights that are read once may leave L2 first: the kernel's A where operands are swapped."""
    return {"hint_a": "first"} if swapped and consumers < 3 else {}
