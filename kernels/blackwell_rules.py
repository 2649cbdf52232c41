"""The rules of the Blackwell GEMM: which parameters fit together, what a kernel holds in tensor and shared memory.

Knows the chip's limits and the kernel family of ``cuda/blackwell/``; knows nothing of CUDA source or of arrays. The
limits are those of documents and of the assembler: nothing here was run on a Blackwell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from stridewright.layout.hardware import accumulator_columns, data_path, swizzle_modes
from stridewright.layout.hardware.instruction_descriptors import legal_m
from stridewright.layout.hardware.tensor_memory import COLUMNS
from stridewright.layout.hardware.tensor_memory_plan import ALLOC_SHARED_BYTES, MINIMUM_COLUMNS

from .config import GemmConfig, Launch, Problem, Split, Violation, is_size

ARCHITECTURES = ("sm_100a", "sm_103a")

DTYPES = ("bf16", "f16")

SHARED_LIMIT = 232_448 - ALLOC_SHARED_BYTES
"""Bytes of dynamic shared memory a CTA can ask for: 227 KiB (CUDA C++ Programming Guide, compute capability 10.0), less
what ptxas keeps in a kernel that allocates tensor memory."""

ALIGNMENT_SLACK = 1024
"""Bytes asked for beyond the map, so that the tiles can start at a multiple of 1024: the swizzle acts on address bits."""

PANEL_COLUMNS = 64
"""Columns of a panel of D in shared memory: 64 elements of 2 bytes are the 128 bytes of the swizzle's span."""

TILE_ROWS = {1: legal_m("f16", 1), 2: legal_m("f16", 2)}
"""M of an instruction by the CTAs that share it; a tile is one instruction wide and high."""

SLOT_DEPTHS = (32, 64, 128, 256)
"""Elements of K in a slot."""

CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
"""Tiles of a cluster along M and N."""

TILE_SLOTS = 3
"""Answers of cluster launch control that may be on their way or unread: the copies run ahead of the epilogue by about two
tiles where there are two accumulators."""

MAXIMUM_STAGES = 16
MAXIMUM_GROUP = 1024
THREADS = 256
EPILOGUE_THREADS = 128


def ctas(config: GemmConfig) -> int:
    """CTAs that share a tile: 2 of a pair, else 1.

    >>> ctas(GemmConfig(arch="sm_100a"))
    1
    """
    return 2 if config.cluster.pair else 1


def name(config: GemmConfig) -> str:
    """A short name for logs and files: what differs between kernels.

    >>> name(GemmConfig(arch="sm_100a").replace(tile_m=256, pair=True, accumulators=2, launch="clc"))
    'sm_100a_bf16_pair256x256x64_stages4_acc2_clc_group8_tma2'
    """
    tile, schedule, problem = config.tile, config.schedule, config.problem
    order = f"group{schedule.group_m}" if schedule.order == "grouped" else schedule.order
    store = config.epilogue.store + (str(config.epilogue.buffers) if config.epilogue.store == "tma" else "")
    cluster = "" if config.cluster.m * config.cluster.n == 1 else f"_cluster{config.cluster.m}x{config.cluster.n}"
    majors = "".join(f"_{operand}mn" for operand in "ab" if getattr(problem, f"{operand}_major") == "mn")
    return (
        f"{config.arch}_{problem.a}_{'pair' if config.cluster.pair else ''}{tile.m}x{tile.n}x{tile.k}{cluster}_stages{config.pipeline.stages}"
        f"_acc{config.pipeline.accumulators}_{schedule.launch}_{order}_{store}{majors}"
    )


def cluster_ctas(config: GemmConfig) -> int:
    """CTAs of a cluster: those of all its tiles.

    >>> cluster_ctas(GemmConfig(arch="sm_100a").replace(tile_m=256, pair=True, cluster_n=2))
    4
    """
    return ctas(config) * config.cluster.m * config.cluster.n


def panel_rows(config: GemmConfig) -> int:
    """Rows of a panel of D, those that one epilogue warp holds: 32 lanes, or 16 where M = 64 uses half of them.

    >>> panel_rows(GemmConfig(arch="sm_100a")), panel_rows(GemmConfig(arch="sm_100a").replace(tile_m=64))
    (32, 16)
    """
    return 16 if data_path(config.tile.m, ctas(config)) == "F" else 32


def swizzle_of(run: int) -> str:
    """The widest swizzle mode whose span divides a contiguous run of so many 16-bit elements.

    >>> swizzle_of(64), swizzle_of(96), swizzle_of(48), swizzle_of(8)
    ('128B', '64B', '32B', 'none')
    """
    spans = {mode.span: mode.name for mode in swizzle_modes() if mode.name in ("128B", "64B", "32B")}
    return next((name for span, name in sorted(spans.items(), reverse=True) if run * 2 % span == 0), "none")


def tile_readers(config: GemmConfig) -> int:
    """Threads that read an answer of cluster launch control: in each CTA the copying one, the scheduler and the epilogue,
    and the one that multiplies.

    >>> tile_readers(GemmConfig(arch="sm_100a"))
    131
    """
    tiles = config.cluster.m * config.cluster.n
    return tiles * (ctas(config) * (2 + EPILOGUE_THREADS) + 1)


def shared_parts(config: GemmConfig) -> dict[str, int]:
    """Bytes of one CTA's shared memory by use, in the order they stand in it.

    >>> shared_parts(GemmConfig(arch="sm_100a"))
    {'tiles of A': 65536, 'tiles of B': 131072, 'staging of D': 32768, 'barriers': 80, "tensor memory's address": 16}
    """
    tile, stages, group = config.tile, config.pipeline.stages, ctas(config)
    warps = EPILOGUE_THREADS // 32
    controlled = config.schedule.launch == "clc"
    staged = config.epilogue.store == "tma"
    parts = {
        "tiles of A": stages * tile.m // group * tile.k * 2,
        # The swizzle acts on address bits: what is staged begins at a multiple of 1024.
        "tiles of B": -(-stages * tile.n // group * tile.k * 2 // 1024) * 1024,
        "staging of D": warps * config.epilogue.buffers * panel_rows(config) * 128 if staged else 0,
        "barriers": 16 * (stages + config.pipeline.accumulators + (TILE_SLOTS if controlled else 0)),
    }
    if controlled:
        parts["answers"] = 16 * TILE_SLOTS
    return {**parts, "tensor memory's address": 16}


def violations(config: GemmConfig) -> Iterator[Violation]:
    """Every broken rule.

    >>> [str(one) for one in violations(GemmConfig(arch="sm_100a").replace(tile_m=256, stages=2))]
    ['tile_m=256: one CTA multiplies 64 or 128 rows at a time; nearest 128, or pair=True for two CTAs']
    """
    yield from problem_violations(config.problem)
    yield from _not_of_this_family(config)
    tile_wrong = list(_tile_violations(config))
    yield from tile_wrong
    schedule, epilogue = config.schedule, config.epilogue
    if schedule.launch not in get_args(Launch):
        yield Violation(
            parameter="launch", value=repr(schedule.launch), rule=f"must be {_or(map(repr, get_args(Launch)))}"
        )
    if schedule.order not in ("grouped", "row"):
        yield Violation(
            parameter="order",
            value=repr(schedule.order),
            rule='must be "grouped" or "row" on this architecture',
            fix='"grouped" works',
        )
    if not 1 <= schedule.group_m <= MAXIMUM_GROUP:
        yield Violation(
            parameter="group_m",
            value=schedule.group_m,
            rule=f"must be from 1 to {MAXIMUM_GROUP}: the scheduler counts a group's tiles in 32 bits",
        )
    if epilogue.store not in ("tma", "direct"):
        yield Violation(parameter="store", value=repr(epilogue.store), rule='must be "tma" or "direct"')
        return
    if epilogue.store == "tma" and not 1 <= epilogue.buffers <= 4:
        yield Violation(parameter="buffers", value=epilogue.buffers, rule="must be from 1 to 4 panels")
        return
    n = config.problem.n
    if epilogue.store == "tma" and is_size(n) and n is not None and n % 8:
        yield Violation(
            parameter="store",
            value="'tma'",
            rule=f"TMA stores whole 16-byte chunks, and a row of D has n * 2 = {n * 2} bytes: it would write past the row's end",
            fix='"direct" works',
        )
    if not tile_wrong and schedule.launch in get_args(Launch):
        yield from _capacity_violations(config)


def problem_violations(problem: Problem) -> Iterator[Violation]:
    """The rules for what is computed.

    >>> [str(one) for one in problem_violations(Problem(m=4, n=8, k=12))]
    ['k=12: must be a multiple of 8: TMA wants rows of A (K-major) and B (K-major) to start at multiples of 16 bytes; nearest 8, 16: pad with zeros, which changes no result']
    """
    for name in ("a", "b", "d"):
        if getattr(problem, name) not in DTYPES:
            yield Violation(
                parameter=name,
                value=repr(getattr(problem, name)),
                rule=f"this type has no Blackwell kernel yet; there is {_or(DTYPES)}",
            )
    if problem.a in DTYPES and problem.b in DTYPES and problem.a != problem.b:
        yield Violation(parameter="b", value=repr(problem.b), rule=f"kind f16 takes one type for A ({problem.a}) and B")
    for name in ("a_major", "b_major"):
        if getattr(problem, name) not in ("k", "mn"):
            yield Violation(
                parameter=name,
                value=repr(getattr(problem, name)),
                rule='must be "k" (rows of K contiguous elements) or "mn"',
            )
    for name in ("m", "n", "k"):
        size = getattr(problem, name)
        if size is None:
            continue
        if not is_size(size):
            yield Violation(parameter=name, value=repr(size), rule="must be a whole number of elements")
        elif size < 1:
            yield Violation(parameter=name, value=size, rule="must be at least 1")
        elif size >= 2**31:
            yield Violation(parameter=name, value=size, rule="must be below 2^31 (TMA coordinates are 32-bit signed)")
        elif size % 8 and (operands := _contiguous_along(problem, name)):
            near = ", ".join(str(one) for one in (size // 8 * 8, (size // 8 + 1) * 8) if one)
            yield Violation(
                parameter=name,
                value=size,
                rule=f"must be a multiple of 8: TMA wants rows of {operands} to start at multiples of 16 bytes",
                fix=f"nearest {near}: pad with zeros, which changes no result",
            )


def _contiguous_along(problem: Problem, name: str) -> str:
    """The operands whose contiguous rows run along that size."""
    found = []
    for operand, major, rows in (("A", problem.a_major, "m"), ("B", problem.b_major, "n")):
        if name == "k" and major == "k":
            found.append(f"{operand} (K-major)")
        if name == rows and major == "mn":
            found.append(f"{operand} (MN-major)")
    return " and ".join(found)


def _not_of_this_family(config: GemmConfig) -> Iterator[Violation]:
    """Parameters of Hopper's kernels alone, unless they have their defaults."""
    plain = GemmConfig(arch=config.arch)
    for name, value, default in (
        ("schedule_kind", config.schedule.kind, plain.schedule.kind),
        ("consumers", config.schedule.consumers, plain.schedule.consumers),
        ("swap", bool(config.schedule.swap), False),
        ("producer_registers", config.schedule.producer_registers, 0),
        ("hint_a", config.pipeline.hint_a, "none"),
        ("hint_b", config.pipeline.hint_b, "none"),
        ("split_kind", config.split.kind, Split().kind),
        ("specialize", config.specialize, ""),
        ("fusion", config.fusion.name, ""),
        ("promote", config.pipeline.promote, 0),
        ("form", config.problem.form, "one"),
    ):
        if value != default:
            yield Violation(
                parameter=name,
                value=value if isinstance(value, int) else repr(value),
                rule="is a parameter of the Hopper kernels; the Blackwell ones have fixed roles",
                fix=f"leave it at {default!r}",
            )


def _tile_violations(config: GemmConfig) -> Iterator[Violation]:
    tile, cluster = config.tile, config.cluster
    if cluster.pair not in (False, True):
        yield Violation(parameter="pair", value=repr(cluster.pair), rule="must be 0 or 1")
        return
    group = ctas(config)
    if (cluster.m, cluster.n) not in CLUSTERS:
        yield Violation(
            parameter="cluster",
            value=f"{cluster.m}x{cluster.n}",
            rule=f"must be {_or(f'{m}x{n}' for m, n in CLUSTERS)} tiles, of one CTA or a pair each (8 CTAs are the most that every device runs)",
            fix="1x1 works",
        )
        return
    for name, rows, parts in (("tile_m", tile.m // group, cluster.n), ("tile_n", tile.n // group, cluster.m)):
        if parts > 1 and rows % (8 * parts):
            yield Violation(
                parameter=name,
                value=getattr(tile, name[-1]),
                rule=f"{parts} tiles of a cluster share {rows} rows in each CTA and load a slice each, whole groups of 8: must be a multiple of {8 * parts * group}",
                fix="a cluster of 1x1 works",
            )
    if tile.m not in TILE_ROWS[group]:
        near = min(TILE_ROWS[group], key=lambda rows: abs(rows - tile.m))
        other = ", or pair=True for two CTAs" if tile.m in TILE_ROWS[3 - group] and group == 1 else ""
        yield Violation(
            parameter="tile_m",
            value=tile.m,
            rule=f"{'a pair multiplies' if group == 2 else 'one CTA multiplies'} {_or(map(str, TILE_ROWS[group]))} rows at a time",
            fix=f"nearest {near}{other}",
        )
    if tile.n % 16 or not 16 <= tile.n <= 256:
        widths = {min(max(tile.n // 16 * 16, 16), 256), min(max(-(-tile.n // 16) * 16, 16), 256)}
        yield Violation(
            parameter="tile_n",
            value=tile.n,
            rule="must be a multiple of 16 from 16 to 256 (tcgen05.mma N; with M = 128 NVIDIA's kernels take no step of 8)",
            fix=f"nearest {', '.join(map(str, sorted(widths)))}",
        )
    if tile.k not in SLOT_DEPTHS:
        yield Violation(parameter="tile_k", value=tile.k, rule=f"must be {_or(map(str, SLOT_DEPTHS))} elements of K")
    if not 1 <= config.pipeline.stages <= MAXIMUM_STAGES:
        yield Violation(
            parameter="stages", value=config.pipeline.stages, rule=f"must be from 1 to {MAXIMUM_STAGES} slots"
        )
    if config.pipeline.accumulators not in (1, 2):
        yield Violation(
            parameter="accumulators",
            value=config.pipeline.accumulators,
            rule="must be 1, or 2 so that one is stored while the other is computed",
        )


def _capacity_violations(config: GemmConfig) -> Iterator[Violation]:
    columns = accumulator_columns(config.tile.m, config.tile.n, ctas(config)) * config.pipeline.accumulators
    if max(1 << (columns - 1).bit_length(), MINIMUM_COLUMNS) > COLUMNS:
        yield Violation(
            parameter="accumulators",
            value=config.pipeline.accumulators,
            rule=f"{columns} columns of tensor memory, and an SM has {COLUMNS}",
        )
    needed = sum(shared_parts(config).values()) + ALIGNMENT_SLACK
    if needed > SHARED_LIMIT:
        fits = [
            stages
            for stages in range(1, config.pipeline.stages)
            if sum(shared_parts(config.replace(stages=stages)).values()) + ALIGNMENT_SLACK <= SHARED_LIMIT
        ]
        parts = ", ".join(f"{use} {size}" for use, size in shared_parts(config).items() if size)
        yield Violation(
            parameter="stages",
            value=config.pipeline.stages,
            rule=f"{needed} bytes of shared memory ({parts}, alignment {ALIGNMENT_SLACK}), and a CTA has {SHARED_LIMIT}",
            fix=f"stages={max(fits)} fits" if fits else "a smaller tile fits",
        )


def _or(words: object) -> str:
    items = [str(word) for word in words]  # type: ignore[attr-defined]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"
