"""The rules of the Blackwell GEMM: which parameters fit together, what a kernel holds in tensor and shared memory.

Knows the chip's limits and the kernel family of ``cuda/blackwell/``; knows nothing of CUDA source or of arrays. The
limits are those of documents and of the assembler: nothing here was run on a Blackwell.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewright.layout.hardware import accumulator_columns, data_path, swizzle_modes
from stridewright.layout.hardware.instruction_descriptors import legal_m, legal_n
from stridewright.layout.hardware.tensor_memory import COLUMNS
from stridewright.layout.hardware.tensor_memory_plan import ALLOC_SHARED_BYTES, MINIMUM_COLUMNS

from .blackwell_left import CONVERTING_THREADS, left_violations, slot_columns
from .blackwell_problem_rules import (
    around,
    family_violations,
    form_violations,
    fusion_violations,
    one_of,
    problem_violations,
)
from .blackwell_scales import tile_scales
from .blackwell_scales import tile_violations as scale_violations
from .blackwell_types import (
    PADDED_K,
    instruction_k,
    kind_of,
    operand_formats,
    padded,
    result_bytes,
    shared_bits,
)
from .config import GemmConfig, Violation, is_size

ARCHITECTURES = ("sm_100a", "sm_103a")

LAUNCHES = ("static", "clc", "one")

SHARED_LIMIT = 232_448 - ALLOC_SHARED_BYTES
"""Bytes of dynamic shared memory a CTA can ask for: 227 KiB (CUDA C++ Programming Guide, compute capability 10.0), less
what ptxas keeps in a kernel that allocates tensor memory."""

ALIGNMENT_SLACK = 1024
"""Bytes asked for beyond the map, so that the tiles can start at a multiple of 1024: the swizzle acts on address bits."""

PANEL_BYTES = 128
"""Bytes of a row of a panel of D in shared memory: the span of the widest swizzle."""

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


def rows_of_tiles(config: GemmConfig) -> tuple[int, ...]:
    """What M of a tile may be.

    >>> rows_of_tiles(GemmConfig(arch="sm_100a")), rows_of_tiles(GemmConfig(arch="sm_100a").replace(stationary=True))
    ((64, 128), (32, 64, 128))
    """
    return legal_m("f16", ws=True) if config.schedule.stationary else TILE_ROWS[ctas(config)]


def threads_of(config: GemmConfig) -> int:
    """Threads of a CTA: eight warps with a role each, and four where A goes through registers.

    >>> threads_of(GemmConfig(arch="sm_100a")), threads_of(GemmConfig(arch="sm_100a").replace(a_in="registers"))
    (256, 384)
    """
    return THREADS + (CONVERTING_THREADS if config.pipeline.a_in == "registers" else 0)


def uses_terms(config: GemmConfig) -> bool:
    """Whether the kernel takes more than A, B and D: what is added and scaled, the number of a batch's matrices.

    >>> uses_terms(GemmConfig(arch="sm_100a"))
    False
    """
    return config.fusion.uses_terms or config.problem.form == "batch"


def path_of(config: GemmConfig) -> str:
    """The letter of the accumulator's layout in tensor memory (PTX ISA 9.1, section 9.7.16.5).

    >>> path_of(GemmConfig(arch="sm_100a")), path_of(GemmConfig(arch="sm_100a").replace(tile_m=32, stationary=True))
    ('D', 'G')
    """
    return data_path(config.tile.m, ctas(config), bool(config.schedule.stationary))


def accumulator_width(config: GemmConfig) -> int:
    """Columns of tensor memory that an accumulator takes.

    >>> accumulator_width(GemmConfig(arch="sm_100a")), accumulator_width(GemmConfig(arch="sm_100a").replace(tile_m=32, stationary=True))
    (256, 64)
    """
    return accumulator_columns(config.tile.m, config.tile.n, ctas(config), bool(config.schedule.stationary))


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
    types = problem.a if problem.a == problem.b else f"{problem.a}x{problem.b}"
    types += f"_{problem.d}" if problem.d != problem.a else ""
    terms = f"_{config.fusion.name}" if config.fusion.uses_terms else ""
    terms = ("_batch" if problem.form == "batch" else "") + terms
    terms = ("" if config.pipeline.a_in == "shared" else f"_a{config.pipeline.a_in}") + terms
    return (
        f"{config.arch}_{types}_{'pair' if config.cluster.pair else 'ws' if schedule.stationary else ''}{tile.m}x{tile.n}x{tile.k}{cluster}_stages{config.pipeline.stages}"
        f"_acc{config.pipeline.accumulators}_{schedule.launch}_{order}_{store}{majors}{terms}"
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
    return 16 if path_of(config) == "F" else 32


def swizzle_of(run: int, bits: int = 16) -> str:
    """The widest swizzle mode whose span divides a contiguous run of so many elements, of ``bits`` each in shared memory.

    >>> swizzle_of(64), swizzle_of(96), swizzle_of(48), swizzle_of(8), swizzle_of(128, 8), swizzle_of(64, 8)
    ('128B', '64B', '32B', 'none', '128B', '64B')
    """
    spans = {mode.span: mode.name for mode in swizzle_modes() if mode.name in ("128B", "64B", "32B")}
    return next((name for span, name in sorted(spans.items(), reverse=True) if run * bits // 8 % span == 0), "none")


def operand_swizzle(dtype: str, major: str, run: int) -> str:
    """The swizzle of an operand whose contiguous run in a slot has so many elements. MN-major 32-bit elements have one mode
    only (PTX ISA 9.1, section 9.7.16.4.1).

    >>> operand_swizzle("bf16", "k", 64), operand_swizzle("tf32", "mn", 128)
    ('128B', '128B_atom_32B')
    """
    bits = shared_bits(dtype)
    return "128B_atom_32B" if major == "mn" and bits == 32 else swizzle_of(run, bits)


def tile_readers(config: GemmConfig) -> int:
    """Threads that read an answer of cluster launch control: in each CTA the copying one, the scheduler and the epilogue,
    and the one that multiplies.

    >>> tile_readers(GemmConfig(arch="sm_100a"))
    131
    """
    tiles = config.cluster.m * config.cluster.n
    return tiles * (ctas(config) * (2 + threads_of(config) - THREADS + EPILOGUE_THREADS) + 1)


def shared_parts(config: GemmConfig) -> dict[str, int]:
    """Bytes of one CTA's shared memory by use, in the order they stand in it.

    >>> shared_parts(GemmConfig(arch="sm_100a"))
    {'tiles of A': 65536, 'tiles of B': 131072, 'staging of D': 32768, 'barriers': 80, "tensor memory's address": 16}
    """
    tile, stages, group = config.tile, config.pipeline.stages, ctas(config)
    warps = EPILOGUE_THREADS // 32
    bits_a, bits_b = (shared_bits(dtype) for dtype in operand_formats(config.problem))
    controlled = config.schedule.launch == "clc"
    staged = config.epilogue.store == "tma"
    scales = tile_scales(config, instruction_k(config.problem))
    parts = {
        "tiles of A": stages * tile.m // group * tile.k * bits_a // 8,
        # The swizzle acts on address bits: what is staged begins at a multiple of 1024.
        "tiles of B": -(-stages * tile.n // group * tile.k * bits_b // 8 // 1024) * 1024,
        "staging of D": warps * config.epilogue.buffers * panel_rows(config) * PANEL_BYTES if staged else 0,
        **({"scales of A": stages * scales.a.bytes, "scales of B": stages * scales.b.bytes} if scales else {}),
        "barriers": 16 * (stages + config.pipeline.accumulators + (TILE_SLOTS if controlled else 0)),
    }
    if config.pipeline.a_in == "registers":
        parts["barriers"] += -(-stages // 2) * 16
    if controlled:
        parts["answers"] = 16 * TILE_SLOTS
    return {**parts, "tensor memory's address": 16}


def violations(config: GemmConfig) -> Iterator[Violation]:
    """Every broken rule.

    >>> [str(one) for one in violations(GemmConfig(arch="sm_100a").replace(tile_m=256, stages=2))]
    ['tile_m=256: one CTA multiplies 64 or 128 rows at a time; nearest 128, or pair=True for two CTAs']
    """
    wrong = list(problem_violations(config.problem, config.arch))
    yield from wrong
    yield from family_violations(config)
    yield from fusion_violations(config)
    yield from form_violations(config)
    if any(one.parameter in ("a", "b", "d") for one in wrong):
        return  # what follows counts bytes and elements of these formats
    tile_wrong = list(_tile_violations(config))
    yield from tile_wrong
    schedule, epilogue = config.schedule, config.epilogue
    if schedule.launch not in LAUNCHES:
        yield Violation(
            parameter="launch",
            value=repr(schedule.launch),
            rule=f"must be {one_of(map(repr, LAUNCHES))}"
            + (", and 'placed' is Hopper's" if schedule.launch == "placed" else ""),
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
    if not tile_wrong and epilogue.store == "tma":
        yield from _store_violations(config)
    if not tile_wrong and schedule.launch in LAUNCHES:
        yield from _capacity_violations(config)


def _store_violations(config: GemmConfig) -> Iterator[Violation]:
    """What TMA stores ask for, of sizes and of tiles."""
    problem, size = config.problem, result_bytes(config.problem)
    n = problem.n
    if is_size(n) and n is not None and n * size % 16:
        yield Violation(
            parameter="store",
            value="'tma'",
            rule=f"TMA stores whole 16-byte chunks, and a row of D has n * {size} = {n * size} bytes: it would write past the row's end",
            fix='"direct" works',
        )
    columns = accumulator_width(config) // (2 if path_of(config) == "F" else 1)
    if columns * size % 16:
        step = 16 // size * config.tile.n // columns
        yield Violation(
            parameter="tile_n",
            value=config.tile.n,
            rule=f"with a staged D of {problem.d} a thread writes whole 16-byte chunks: must be a multiple of {step} here",
            fix=f'nearest {", ".join(map(str, around(config.tile.n, step)))}, or store="direct"',
        )


def _operand_violations(config: GemmConfig) -> Iterator[Violation]:
    """What the formats and majors ask of a tile."""
    tile, problem, group = config.tile, config.problem, ctas(config)
    kind = kind_of(problem)
    if config.schedule.stationary and not legal_m(kind, ws=True):
        yield Violation(
            parameter="stationary",
            value=True,
            rule=f"tcgen05.mma.ws has no kind::{kind} (PTX ISA 9.1, section 9.7.16.10)",
            fix="stationary=False works",
        )
        return
    for name, dtype, rows, slices in (
        ("A", operand_formats(problem)[0], tile.m // group, config.cluster.n),
        ("B", operand_formats(problem)[1], tile.n // group, config.cluster.m),
    ):
        parameter = "tile_m" if name == "A" else "tile_n"
        if getattr(problem, f"{name.lower()}_major") == "mn":
            unit = 32 if shared_bits(dtype) == 32 else 128 // shared_bits(dtype)
            if rows // slices % unit:
                yield Violation(
                    parameter=parameter,
                    value=getattr(tile, parameter[-1]),
                    rule=f"MN-major {dtype} lies in runs of {unit} rows, and a CTA loads {rows // slices} rows of {name}",
                    fix=f"a multiple of {unit * slices * group} works",
                )
        if padded(dtype) and tile.k % PADDED_K:
            yield Violation(
                parameter="tile_k",
                value=tile.k,
                rule=f"the copy engine brings {dtype} in boxes of {PADDED_K} elements",
                fix=f"a multiple of {PADDED_K} works",
            )
    stationary = bool(config.schedule.stationary)
    wide = legal_n(kind, group, stationary)
    step = 16 * group if problem.b_major == "mn" and shared_bits(operand_formats(problem)[1]) == 8 else 1
    if tile.n not in wide or tile.n % step:
        allowed = [n for n in wide if n % 16 == 0 and n % step == 0]
        near = sorted(sorted(allowed, key=lambda n: abs(n - tile.n))[:2])
        yield Violation(
            parameter="tile_n",
            value=tile.n,
            rule=f"kind::{kind} of {'a pair' if group == 2 else 'one CTA'}"
            + (" with an MN-major B of 8 bits" if step > 1 else "")
            + (
                f", weight-stationary, takes {one_of(allowed)}"
                if stationary
                else f" takes multiples of {allowed[1] - allowed[0]}"
            )
            + " (PTX ISA 9.1, table 39)",
            fix=f"nearest {', '.join(map(str, near))}",
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
            rule=f"must be {one_of(f'{m}x{n}' for m, n in CLUSTERS)} tiles, of one CTA or a pair each (8 CTAs are the most that every device runs)",
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
    stationary = bool(config.schedule.stationary)
    if stationary and group == 2:
        yield Violation(
            parameter="stationary",
            value=True,
            rule="tcgen05.mma.ws is for one CTA (PTX ISA 9.1, section 9.7.16.10)",
            fix="pair=False works",
        )
        return
    allowed = rows_of_tiles(config)
    if tile.m not in allowed:
        near = min(allowed, key=lambda one: abs(one - tile.m))
        other = ", or pair=True for two CTAs" if tile.m in TILE_ROWS[3 - group] and group == 1 else ""
        other = ", or stationary=True for few rows" if tile.m == 32 and not stationary and group == 1 else other
        yield Violation(
            parameter="tile_m",
            value=tile.m,
            rule=f"{'a pair multiplies' if group == 2 else 'one CTA multiplies'} {one_of(map(str, allowed))} rows at a time",
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
    elif tile.m in allowed:
        yield from _operand_violations(config)
    yield from scale_violations(config)
    yield from left_violations(config)
    if tile.k not in SLOT_DEPTHS:
        yield Violation(parameter="tile_k", value=tile.k, rule=f"must be {one_of(map(str, SLOT_DEPTHS))} elements of K")
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
    left = slot_columns(config) * config.pipeline.stages
    columns = accumulator_width(config) * config.pipeline.accumulators + left
    scales = tile_scales(config, instruction_k(config.problem))
    factors = scales.columns * config.pipeline.stages if scales else 0
    if max(1 << (columns + factors - 1).bit_length(), MINIMUM_COLUMNS) > COLUMNS:
        most = (COLUMNS - columns) // scales.columns if scales else 0
        smaller = "accumulators=1 or a smaller tile_n fits" if columns > COLUMNS // 2 else ""
        yield Violation(
            parameter="stages" if most > 0 else "accumulators",
            value=config.pipeline.stages if most > 0 else config.pipeline.accumulators,
            rule=f"{columns} columns of tensor memory"
            + (f" ({left} of them for the slots of A)" if left else "")
            + (f" and {factors} for the scale factors of all slots" if factors else "")
            + f", and an SM has {COLUMNS}",
            fix=f"stages={most} fits" if most > 0 else smaller,
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
