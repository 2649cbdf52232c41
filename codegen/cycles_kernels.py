"""What the cycle model is told of a kernel: a configuration of either family, or a rung of Hopper's ladder.

    work_of(config, chip)            GemmConfig of sm_90a, sm_100a or sm_103a, with its sizes
    work_of_rung(spec, m, n, k)      RungSpec of kernels/ladder.py, from the first that uses wgmma on

Knows tiles, rings and who stores; knows no clocks but those of a multiply, which follow from a chip's operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from stridewright.kernels.blackwell_ladder import Rung
from stridewright.kernels.config import GemmConfig, Problem

from .cycles import H200, Chip, Work

if TYPE_CHECKING:
    from stridewright.kernels.ladder import RungSpec

SHARED_BYTES = 228 * 1024
"""Shared memory of an SM; a CTA takes 1 KiB beside what it asks for (CUDA C++ Programming Guide, compute capabilities 9.0 and 10.0)."""
THREADS = 2048
REGISTERS = 65536
TENSOR_COLUMNS = 512


@dataclass(frozen=True)
class _Shape:
    """A problem cut into tiles. ``sharers``: SMs that share a tile; ``across``, ``down``: tiles of a cluster."""

    m: int
    n: int
    k: int
    tile_m: int
    tile_n: int
    tile_k: int
    sharers: int = 1
    down: int = 1
    across: int = 1
    group: int = 1

    @property
    def slots(self) -> int:
        return -(-self.k // self.tile_k)

    def turns(self, sms: int) -> int:
        """Tiles that the busiest SM computes, or shares in."""
        blocks = -(-self.m // (self.tile_m * self.down)) * -(-self.n // (self.tile_n * self.across))
        clusters = max(sms // (self.sharers * self.down * self.across), 1)
        return -(-blocks // clusters)

    def active(self, sms: int) -> float:
        """SMs that load at a time, on average over the turns."""
        blocks = -(-self.m // (self.tile_m * self.down)) * -(-self.n // (self.tile_n * self.across))
        return blocks * self.sharers * self.down * self.across / self.turns(sms)

    def missing(self, chip: Chip, bytes_a: float, bytes_b: float, d_bytes: float) -> float:
        """Share of the bytes that the SMs ask L2 for that come from DRAM, D's writes counted with them. ``bytes_a``, ``bytes_b``: of an element."""
        rows, columns = -(-self.m // self.tile_m), -(-self.n // self.tile_n)
        at_once = max(self.active(chip.sms) / self.sharers, 1.0)
        everything = (self.m * bytes_a + self.n * bytes_b) * self.k
        # The tiles that run together cover `high` rows of tiles and so many columns; what they load is read once, and L2 keeps
        # operands from turn to turn only where half of it holds them all.
        high = min(self.group * self.down, rows)
        wide = min(columns, ceil(at_once / high))
        turns = rows * columns / at_once
        read = everything
        if everything > chip.l2_bytes / 2:
            panels = (high * self.tile_m * bytes_a + wide * self.tile_n * bytes_b) * self.k
            read = max(everything, turns * panels)
        asked = rows * columns * self.k * (self.tile_m * bytes_a / self.across + self.tile_n * bytes_b / self.down)
        return min((read + d_bytes * self.m * self.n) / asked, 1.0)


def _group(order: str, group: int, shape_rows: int) -> int:
    """Rows of tiles that are walked together, by the name of the order."""
    return {"row": 1, "column": shape_rows, "hilbert": 12}.get(order, group)


def work_of(config: GemmConfig, chip: Chip, rung: Rung | None = None) -> Work:
    """The work of a configuration whose problem has sizes. Raises ValueError without sizes or for one below 1, and for K divided among CTAs."""
    if None in (config.problem.m, config.problem.n, config.problem.k):
        raise ValueError("the cycle model needs the sizes m, n and k")
    if config.split.kind != "none":
        raise ValueError(f"split {config.split.kind}: the cycle model knows whole tiles only")
    _require_sizes(config.problem.m, config.problem.n, config.problem.k)
    return _of_hopper(config, chip) if config.arch.startswith("sm_90") else _of_blackwell(config, chip, rung)


def _require_sizes(m: object, n: object, k: object) -> None:
    """Raises ValueError for a size below 1."""
    for name, size in (("m", m), ("n", n), ("k", k)):
        if not isinstance(size, int) or size < 1:
            raise ValueError(
                f"{name}={size}: must be a whole number of at least 1; of an empty product there is nothing to model"
            )


def _of_hopper(config: GemmConfig, chip: Chip) -> Work:
    problem, tile, schedule, cluster = config.problem, config.tile, config.schedule, config.cluster
    assert problem.m is not None
    assert problem.n is not None
    assert problem.k is not None
    m, n = (problem.n, problem.m) if schedule.swap else (problem.m, problem.n)
    rows = -(-m // tile.m)
    group = _group(schedule.order, schedule.group_m, rows)
    shape = _Shape(m, n, problem.k, tile.m, tile.n, tile.k, 1, cluster.m, cluster.n, group)
    pingpong = schedule.kind == "pingpong"
    return _hopper_work(
        shape,
        chip,
        stages=config.pipeline.stages,
        accumulators=2 if pingpong else 1,
        own_epilogue=True,
        staged=config.epilogue.store == "tma",
        alone=schedule.consumers == 1,
        label=config.name,
    )


def _hopper_work(
    shape: _Shape,
    chip: Chip,
    stages: int,
    accumulators: int,
    own_epilogue: bool,
    staged: bool,
    alone: bool,
    label: str,
    persistent: bool = True,
    resident: int = 1,
) -> Work:
    steps = shape.tile_k / 16
    blocks = -(-shape.tile_m // 64)
    return Work(
        slots=shape.slots,
        tiles=shape.turns(chip.sms),
        multiply=2.0 * 64 * blocks * shape.tile_n * shape.tile_k / chip.flops,
        operations=2.0 * shape.tile_m * shape.tile_n * shape.tile_k,
        reads=blocks * (64 + shape.tile_n) * 32 * steps,
        arrives=2.0 * shape.tile_k * (shape.tile_m + shape.tile_n),
        requests=2.0 * shape.tile_k * (shape.tile_m / shape.across + shape.tile_n / shape.down),
        copies=2 * -(-shape.tile_k // 64),
        stages=stages,
        d_bytes=2.0 * shape.tile_m * shape.tile_n,
        accumulators=accumulators,
        own_epilogue=own_epilogue,
        staged=staged,
        # One warpgroup that waits for its multiplies leaves the tensor core idle until it is told; of two the other one's are there.
        awaited=chip.commit if alone else 0.0,
        missing=shape.missing(chip, 2, 2, 2),
        active=shape.active(chip.sms),
        persistent=persistent,
        resident=resident,
        label=label,
    )


def work_of_rung(spec: RungSpec, m: int, n: int, k: int, chip: Chip = H200) -> Work:
    """The work of a rung of Hopper's ladder. Raises ValueError for one without wgmma, and for the last, which is a configuration."""
    if spec.multiply != "wgmma" or not spec.file:
        raise ValueError(
            f"rung {spec.number}: the cycle model knows the rungs that multiply by wgmma, but for the last"
        )
    _require_sizes(m, n, k)
    group = _group(spec.order, spec.group_m or 1, -(-m // spec.tile_m))
    shape = _Shape(m, n, k, spec.tile_m, spec.tile_n, spec.tile_k, 1, spec.cluster_m, 1, group)
    shared = spec.stages * (spec.tile_m + spec.tile_n) * spec.tile_k * 2 + 2048
    sums = spec.tile_m * spec.tile_n // (128 * spec.consumers)
    resident = min(
        SHARED_BYTES // (shared + 1024), THREADS // spec.threads, REGISTERS // (spec.threads * (sums + 40)), 16
    )
    return _hopper_work(
        shape,
        chip,
        stages=spec.stages,
        accumulators=1,
        own_epilogue=True,
        staged=spec.staged,
        alone=spec.consumers == 1,
        label=f"{spec.number} {spec.title}",
        persistent=spec.persistent,
        resident=1 if spec.persistent else max(resident, 1),
    )


RATES = {"f16": 1.0, "tf32": 0.5, "f8f6f4": 2.0, "i8": 2.0, "mxf8f6f4": 2.0, "mxf4": 4.0, "mxf4nvf4": 4.0}
"""Operations of a kind of tcgen05.mma in a clock, beside those on 16-bit operands: 2.25 dense bf16 PFLOP/s, 1.13 tf32, 4.5 fp8 and
int8, 9 fp4 (NVIDIA, DGX B200 data sheet). Kinds with scale factors are taken to be as fast as those without."""


@dataclass(frozen=True)
class Formats:
    """What the model asks of a problem's formats: the kind; bytes of an element of A and of B in shared memory (``here``) and in
    global memory (``there``); elements that share a scale factor, 0 for none."""

    kind: str
    here: tuple[float, float]
    there: tuple[float, float]
    vector: int


def formats_of(problem: Problem) -> Formats:
    """Of a Blackwell problem, block-scaled or not.

    >>> formats_of(Problem(a="nvfp4", b="nvfp4")), formats_of(Problem(a="mxfp8", b="mxfp4")).there
    (Formats(kind='mxf4nvf4', here=(0.5, 0.5), there=(0.5, 0.5), vector=16), (1.0, 0.5))
    """
    from stridewright.kernels.blackwell_types import kind_of
    from stridewright.layout.hardware.dtypes import data_type
    from stridewright.layout.hardware.scale_factors import SCALED_TYPES, scaled_kind

    scaled = scaled_kind(problem.a, problem.b)
    kind = scaled or kind_of(problem)
    names = [SCALED_TYPES[one].element if scaled else one for one in (problem.a, problem.b)]
    there = [data_type(name).bits / 8 for name in names]
    # Kinds f8f6f4 and mxf8f6f4 take a byte for every element, whatever its bits.
    here = [1.0 if kind.endswith("f8f6f4") else one for one in there]
    vector = SCALED_TYPES[problem.a].vector if scaled else 0
    return Formats(kind, (here[0], here[1]), (there[0], there[1]), vector)


def scale_atoms(rows_a: int, rows_b: int, tile_k: int, vector: int) -> tuple[int, int]:
    """Atoms of 128 rows and 4 scale factors, 512 bytes, that a CTA takes with a slot: of A, of B.

    >>> scale_atoms(128, 256, 256, 16), scale_atoms(128, 256, 64, 0)
    ((4, 8), (0, 0))
    """
    if not vector:
        return 0, 0
    along = -(-tile_k // (4 * vector))
    return -(-rows_a // 128) * along, -(-rows_b // 128) * along


def _of_blackwell(config: GemmConfig, chip: Chip, rung: Rung | None) -> Work:
    from stridewright.layout.hardware import accumulator_columns
    from stridewright.layout.hardware.dtypes import data_type

    problem, tile, cluster = config.problem, config.tile, config.cluster
    assert problem.m is not None
    assert problem.n is not None
    assert problem.k is not None
    pair = 2 if cluster.pair else 1
    rows, columns = tile.m // pair, tile.n // pair
    group = _group(config.schedule.order, config.schedule.group_m, -(-problem.m // tile.m))
    shape = _Shape(problem.m, problem.n, problem.k, tile.m, tile.n, tile.k, pair, cluster.m, cluster.n, group)
    formats = formats_of(problem)
    here, there = formats.here, formats.there
    d_size = data_type(problem.d).bits / 8
    # Of a pair each CTA needs the factors of its rows of A and of all rows of B.
    scales = 512.0 * sum(scale_atoms(rows, tile.n, tile.k, formats.vector))
    one_tile = (rung is not None and rung.body != "gemm.cuh") or config.schedule.launch == "one"
    return Work(
        slots=shape.slots,
        tiles=shape.turns(chip.sms),
        # Half of the tensor core stands idle where a CTA has 64 rows.
        multiply=2.0 * max(rows, 128) * tile.n * tile.k / (chip.flops * RATES[formats.kind]),
        operations=2.0 * rows * tile.n * tile.k,
        reads=tile.k * (rows * here[0] + columns * here[1]),
        arrives=tile.k * (rows * here[0] + columns * here[1]) + scales,
        requests=tile.k * (rows * there[0] / cluster.n + columns * there[1] / cluster.m) + scales,
        copies=2 * ceil(tile.k * max(here) / 128) + (2 if scales else 0),
        stages=config.pipeline.stages,
        columns=accumulator_columns(tile.m, tile.n, pair),
        d_bytes=d_size * rows * tile.n,
        accumulators=config.pipeline.accumulators,
        staged=config.epilogue.store == "tma",
        scales=scales,
        missing=shape.missing(chip, there[0], there[1], d_size),
        active=shape.active(chip.sms),
        persistent=not one_tile,
        resident=resident_ctas(config, rung, here) if one_tile else 1,
        label=config.name if rung is None else f"{rung.number} {rung.title}",
    )


def resident_ctas(config: GemmConfig, rung: Rung | None, here: tuple[float, float]) -> int:
    """CTAs of an SM at a time, where each computes one tile: as many as shared memory, threads and tensor memory hold."""
    from stridewright.kernels.blackwell_rules import THREADS as OF_A_CTA

    tile, pipeline = config.tile, config.pipeline
    slot = tile.k * (tile.m * here[0] + tile.n * here[1]) / (2 if config.cluster.pair else 1)
    shared = int(pipeline.stages * slot) + 3072
    threads = OF_A_CTA if rung is None else rung.threads
    columns = 32
    while columns < tile.n * pipeline.accumulators:
        columns *= 2
    return max(min(SHARED_BYTES // shared, THREADS // threads, TENSOR_COLUMNS // columns), 1)
