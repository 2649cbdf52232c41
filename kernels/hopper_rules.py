"""The rules of the Hopper GEMM: which parameters fit together, what a kernel holds in registers and shared memory.

Knows the chip's limits and the kernel family of ``cuda/hopper_gemm.cuh``; knows nothing of CUDA source or of arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stridewright.layout.hardware.dtypes import data_type
from stridewright.layout.hardware.fragments import wgmma_n_values

from .config import (
    Cluster,
    GemmConfig,
    Problem,
    Violation,
    is_size,
    problem_violations,
)
from .fusion import Fusion
from .hopper_choice_rules import choice_violations, nearest
from .hopper_fusion_rules import fusion_violations
from .orders import TABLES

WARPGROUP = 128
"""Threads of a warpgroup: four warps, the unit that issues wgmma (PTX ISA, "Warpgroup")."""

REGISTER_FILE = 64 * 1024
"""32-bit registers of one SM (CUDA C++ Programming Guide, compute capability 9.0)."""

SHARED_LIMIT = 232_448
"""Bytes of dynamic shared memory a CTA can ask for: 227 KiB (CUDA C++ Programming Guide, compute capability 9.0)."""

ALIGNMENT_SLACK = 1024
"""Bytes asked for beyond the map, so that the tiles can start at a multiple of 1024: the swizzle acts on address bits."""

MAXIMUM_ACCUMULATORS = 208
"""Accumulator registers of a thread beside which addresses and loop state still fit without spilling (every legal
tile is compiled by the nightly tests, and a spill fails the build).
"""

MAXIMUM_ACCUMULATORS_OF_MUCH_STATE = 200
"""The same beside a producer that needs 40 registers: that leaves each consumer thread 232, and 208 accumulators spill."""

MAXIMUM_ACCUMULATORS_SWAPPED_DIRECT = 128
"""The same where plain stores go down a column of D, each to an address of its own: NVRTC 13.0 spills at 144."""

MAXIMUM_ACCUMULATORS_OF_THREE = 96
"""The same of three consumer warpgroups, whose threads are compiled for 128 registers."""

MAXIMUM_ACCUMULATORS_SPLIT = 128
"""The same where tiles are shared among CTAs: NVRTC 13.0 spills at 200 with one consumer."""

MAXIMUM_ACCUMULATORS_BIASED = 200
"""Beside terms of which at most a bias lies in memory: alpha, an activation. This and the next were found by compiling kernels
drawn at these limits with NVRTC 12.9, 13.0 and 13.5; the tests of tests/codegen/test_general_limits.py draw others."""

MAXIMUM_ACCUMULATORS_TERMS = (160, 128)
"""Beside up to two terms that are read or written for each sum or each row (C, aux, amax, scales of A, of B), or by plain stores,
of which some spill at 176; and beside more of them, of which NVRTC 12.9 spills some at 160."""

MAXIMUM_ACCUMULATORS_TERMS_AND_STATE = (128, 96, 64)
"""The same beside a batch or groups, swapped operands, or the state of a cluster, of policies of L2, of a table of tiles, of shares
of K: where one of those terms is there, where two are, and where more are, or two beside shares of K or beside more of all these."""

MAXIMUM_ACCUMULATORS_TERMS_OF_THREE = 48
"""Of three consumer warpgroups: NVRTC 12.9 spills at 64."""

MAXIMUM_ACCUMULATORS_PROMOTED = 64
"""Of the float32 sums of a promoted tile, beside as many partial ones, or twice as many: NVRTC 13.0 spills at 80 in two sets."""

MAXIMUM_ACCUMULATORS_PROMOTED_AND_STATE = (48, 32)
"""The same in two sets or in a cluster, beside more than one term and that state, and beside more than two with a batch or groups."""

_REGISTER_POOL = {1: 336, 2: 504, 3: 512}
"""By consumer warpgroups: registers that one thread of each warpgroup has together when the CTA starts."""

_PRODUCER_REGISTERS = {1: 56, 2: 40, 3: 32}

NUMBER = "the cluster's number"
"""The use of the shared memory that holds it."""

TILE_ROWS = (64, 128, 192, 256)
SLOT_DEPTHS = (32, 64, 128, 256)
"""Elements of K in a slot, if they have 16 bits: 64 is the 128 bytes of the widest swizzle's span, 32 the 64 bytes of the
next. Of 8-bit elements twice as many, of 32-bit ones half."""

MN_BOX = 64
"""Rows of a box of an MN-major operand: the 128 bytes of the swizzle's span. (Only 16-bit types can be MN-major.)"""

MAXIMUM_GROUP = 1024
MAXIMUM_STAGES = 16
"""Slots of a ring; more were never of use. Small slots need many of them to cover the latency of memory."""


def accumulators(config: GemmConfig) -> int:
    """Float32 accumulator registers of one consumer thread: its share of the tile.

    >>> accumulators(GemmConfig())
    128
    """
    return config.tile.m * config.tile.n // (sharers(config) * WARPGROUP)


def most_accumulators(config: GemmConfig) -> int:
    """Accumulator registers that a consumer thread of this configuration may hold.

    >>> most_accumulators(GemmConfig()), most_accumulators(GemmConfig().replace(cluster_m=2))
    (208, 200)
    """
    if config.pipeline.promote:
        return _most_promoted(config)
    if uses_terms(config):
        return _most_beside_terms(config)
    if config.schedule.consumers == 3:
        return MAXIMUM_ACCUMULATORS_OF_THREE
    if config.split.kind != "none":
        swapped_direct = config.schedule.swap and config.epilogue.store == "direct"
        return MAXIMUM_ACCUMULATORS_SPLIT // 2 if swapped_direct else MAXIMUM_ACCUMULATORS_SPLIT
    if config.schedule.swap and config.epilogue.store == "direct":
        return MAXIMUM_ACCUMULATORS_SWAPPED_DIRECT
    plain = least_producer_registers(config) == 24 and config.schedule.producer_registers in (0, 24)
    return MAXIMUM_ACCUMULATORS if plain else MAXIMUM_ACCUMULATORS_OF_MUCH_STATE


def _most_promoted(config: GemmConfig) -> int:
    """The same of a promoted tile: what more than one term needs is too much beside two sets, or a cluster, and other state."""
    if config.pipeline.accumulators > 1 and config.fusion.scale_a == "block" and _crowds_scales(config):
        return MAXIMUM_ACCUMULATORS_PROMOTED_AND_STATE[0]
    terms = _terms_in_memory(config) + bool(config.fusion.expression)
    state, several = _holds_state(config), config.problem.form != "one"
    crowded = (config.pipeline.accumulators > 1 or config.cluster != Cluster()) and (state or several)
    if terms <= 1 or not crowded:
        return MAXIMUM_ACCUMULATORS_PROMOTED
    return MAXIMUM_ACCUMULATORS_PROMOTED_AND_STATE[terms > 2 and several]


def _crowds_scales(config: GemmConfig) -> bool:
    """What leaves no registers for scales of blocks beside two sets of 64 sums: two things of which each alone fits (spills of
    NVRTC 13.0).
    """
    cluster, direct = config.cluster, config.epilogue.store == "direct"
    several, single = config.problem.form != "one", cluster == Cluster()
    if config.split.kind != "none":
        return several or direct or not single
    return (config.problem.form == "groups_m" and not single) or (cluster.m > 1 and cluster.n > 1 and direct)


def _most_beside_terms(config: GemmConfig) -> int:
    """The same beside what finishing a sum needs: addresses of C, of scales, of what is written beside D."""
    schedule = config.schedule
    if schedule.consumers == 3:
        return MAXIMUM_ACCUMULATORS_TERMS_OF_THREE
    in_memory, several = _terms_in_memory(config), config.problem.form != "one"
    plain = not several and config.split.kind == "none" and schedule.order not in TABLES
    if plain and not in_memory and config.epilogue.store == "tma":
        return MAXIMUM_ACCUMULATORS_BIASED
    crowd = _holds_state(config) + schedule.swap + several + (config.split.kind != "none")
    if not crowd:
        return MAXIMUM_ACCUMULATORS_TERMS[in_memory > 2]
    one, two, more = MAXIMUM_ACCUMULATORS_TERMS_AND_STATE
    if several and crowd == 1:  # a batch or groups alone, which need the least
        return one if in_memory <= 2 else two
    if in_memory <= 1:
        # A table of tiles lies in memory too, and swapped operands have an address for each row of D; beside these and a number that was
        # taken NVRTC 13.0 spills some at 96.
        if in_memory and schedule.swap and schedule.launch == "placed":
            return more
        return two if in_memory and (schedule.order in TABLES or schedule.swap) else one
    return two if in_memory == 2 and crowd == 1 else more


def _terms_in_memory(config: GemmConfig) -> int:
    """How many terms beside a bias have addresses. Scales of blocks, of both operands, count as one."""
    fusion = config.fusion
    return sum(map(bool, (fusion.c, fusion.aux, fusion.amax, fusion.scale_a, fusion.scale_b == "row")))


def _holds_state(config: GemmConfig) -> bool:
    """Whether a thread holds more than the loops of one plain product need: of a cluster, policies of L2, shares of K, a table,
    a number that was taken."""
    shared = config.cluster != Cluster() or config.split.kind != "none"
    return shared or _hinted(config) or config.schedule.order in TABLES or config.schedule.launch == "placed"


def _hinted(config: GemmConfig) -> bool:
    return config.pipeline.hint_a != "none" or config.pipeline.hint_b != "none"


def least_producer_registers(config: GemmConfig) -> int:
    """Registers in which the producer's loop state fits: 24, or 40 where it holds the cluster's masks, policies of L2,
    shares of K, a table of tiles or a number of the cluster too.

    >>> least_producer_registers(GemmConfig()), least_producer_registers(GemmConfig().replace(cluster_m=2))
    (24, 40)
    """
    much = config.problem.form != "one" or "mn" in (config.problem.a_major, config.problem.b_major)
    return 40 if much or _holds_state(config) else 24


def sharers(config: GemmConfig) -> int:
    """Consumer warpgroups that share a tile: all of them if they cooperate, one if they take turns.

    >>> sharers(GemmConfig()), sharers(GemmConfig().replace(schedule_kind="pingpong", tile_n=128))
    (2, 1)
    """
    return 1 if config.schedule.kind == "pingpong" else config.schedule.consumers


def registers(config: GemmConfig) -> tuple[int, int]:
    """What setmaxnreg leaves a producer thread and gives a consumer thread.

    The pool is what the CTA was launched with: ptxas gives at most 168 registers a thread where setmaxnreg follows,
    hence 504 for three warpgroups, and 40 + 2 * 232 or 24 + 2 * 240 fits exactly; with four warpgroups the register file itself gives
    128, and 32 + 3 * 160 fits.

    >>> registers(GemmConfig()), registers(GemmConfig().replace(tile_m=192, consumers=3, tile_n=160))
    ((40, 232), (32, 160))
    """
    consumers = config.schedule.consumers
    producer = config.schedule.producer_registers or _PRODUCER_REGISTERS[consumers]
    if accumulators(config) > MAXIMUM_ACCUMULATORS_OF_MUCH_STATE:
        producer = 24
    if consumers == 3 and config.schedule.launch == "placed" and config.cluster != Cluster():
        # Of a cluster's masks and a number together NVRTC 13.0 spills some at 32; 152 are more than a consumer is compiled for.
        producer = max(producer, 40)
    share = (_REGISTER_POOL[consumers] - producer) // consumers
    return producer, min(share // 8 * 8, 240)


def element_bytes(dtype: str) -> int:
    """Bytes of an element in memory.

    >>> element_bytes("bf16"), element_bytes("e4m3"), element_bytes("tf32")
    (2, 1, 4)
    """
    return data_type(dtype).bits // 8


def kernel_operands(config: GemmConfig) -> tuple[tuple[str, str], tuple[str, str]]:
    """(format, major) of what the kernel calls A and B: with operands swapped, the problem's B and A.

    >>> kernel_operands(GemmConfig())
    (('bf16', 'k'), ('bf16', 'k'))
    """
    problem = config.problem
    a, b = (problem.a, problem.a_major), (problem.b, problem.b_major)
    return (b, a) if config.schedule.swap else (a, b)


def slot_rows(rows: int, major: str) -> int:
    """Rows of an operand's tile that a slot holds: MN-major, they come in boxes of 64.

    >>> slot_rows(40, "k"), slot_rows(40, "mn")
    (40, 64)
    """
    return rows if major == "k" else -(-rows // MN_BOX) * MN_BOX


def slot_depths(dtype: str) -> tuple[int, ...]:
    """Elements of K that a slot may hold.

    >>> slot_depths("bf16"), slot_depths("e4m3")
    ((32, 64, 128, 256), (64, 128, 256, 512))
    """
    return tuple(depth * 2 // element_bytes(dtype) for depth in SLOT_DEPTHS)


def uses_terms(config: GemmConfig) -> bool:
    """Whether the kernel's launch takes more than A and B: what is fused, scales, a batch, groups.

    >>> uses_terms(GemmConfig()), uses_terms(GemmConfig().replace(fusion=Fusion(bias="n")))
    (False, True)
    """
    return config.fusion.uses_terms or config.problem.form != "one" or config.pipeline.promote > 0


def panel_rows(config: GemmConfig) -> int:
    """Rows of a panel of D in shared memory: a block's 64, or with operands swapped the tile's part of M.

    >>> panel_rows(GemmConfig()), panel_rows(GemmConfig().replace(swap=True, tile_n=40))
    (64, 40)
    """
    return config.tile.n if config.schedule.swap else 64


def shared_bytes(config: GemmConfig) -> dict[str, int]:
    """Bytes of shared memory by use, in the order they stand in it.

    >>> shared_bytes(GemmConfig())
    {'tiles of A': 65536, 'tiles of B': 131072, 'staging of D': 32768, 'barriers': 64, "the cluster's number": 0}
    """
    tile, stages = config.tile, config.pipeline.stages
    staged = config.epilogue.store == "tma"
    (type_a, major_a), (type_b, major_b) = kernel_operands(config)
    rows_a, rows_b = slot_rows(tile.m, major_a), slot_rows(tile.n, major_b)
    return {
        "tiles of A": stages * rows_a * tile.k * element_bytes(type_a),
        "tiles of B": -(-stages * rows_b * tile.k * element_bytes(type_b) // 1024) * 1024,
        "staging of D": config.schedule.consumers * config.epilogue.buffers * panel_rows(config) * 128 if staged else 0,
        "barriers": 2 * 8 * stages,
        NUMBER: 8 if config.schedule.launch == "placed" else 0,
    }


def violations(config: GemmConfig) -> Iterator[Violation]:
    tile, schedule, epilogue, problem = config.tile, config.schedule, config.epilogue, config.problem
    wrong = list(problem_violations(problem))
    yield from wrong
    unknown = {violation.parameter for violation in wrong} & {"a", "b", "d", "a_major", "b_major", "form"}
    if unknown:
        # Bytes of slots follow from these; the other rules are those of the plainest problem.
        plain_problem = dataclasses.replace(Problem(), m=problem.m, n=problem.n, k=problem.k)
        config = dataclasses.replace(config, problem=plain_problem, fusion=Fusion())
        problem = plain_problem
    for name, value, plain in (
        ("pair", config.cluster.pair, False),
        ("stationary", bool(schedule.stationary), False),
        ("a_in", config.pipeline.a_in, "shared"),
    ):
        if value != plain:
            yield Violation(
                parameter=name,
                value=repr(value),
                rule="is a parameter of the Blackwell kernels",
                fix=f"leave it at {plain!r}, or take arch='sm_100a'",
            )
    if config.pipeline.accumulators != 1 and not (
        config.pipeline.accumulators == 2 and config.pipeline.promote == tile.k and sharers(config) > 1
    ):
        yield Violation(
            parameter="accumulators",
            value=config.pipeline.accumulators,
            rule="must be 1, or 2 sets of partial sums where cooperating consumers promote them after every slot (promote=tile_k)",
            fix="leave it at 1, or take arch='sm_100a', where it counts accumulators in tensor memory",
        )
    if schedule.kind not in ("cooperative", "pingpong"):
        yield Violation(parameter="schedule", value=repr(schedule.kind), rule='must be "cooperative" or "pingpong"')
    elif schedule.kind == "pingpong" and schedule.consumers != 2:
        yield Violation(
            parameter="consumers", value=schedule.consumers, rule="ping-pong is played by two", fix="consumers=2 works"
        )
    if schedule.consumers not in (1, 2, 3):
        yield Violation(
            parameter="consumers",
            value=schedule.consumers,
            rule="must be 1, 2 or 3 warpgroups",
            fix=nearest(schedule.consumers, 1, 1, 3),
        )
    yield from choice_violations(config, least_producer_registers(config))
    if not 1 <= schedule.group_m <= MAXIMUM_GROUP:
        yield Violation(
            parameter="group_m",
            value=schedule.group_m,
            rule=f"must be from 1 to {MAXIMUM_GROUP}: the scheduler counts a group's tiles in 32 bits",
            fix=nearest(schedule.group_m, 1, 1, MAXIMUM_GROUP),
        )
    clusters = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))
    cluster = (config.cluster.m, config.cluster.n)
    if cluster not in clusters:
        yield Violation(
            parameter="cluster",
            value="x".join(map(str, cluster)),
            rule=f"must be {', '.join('x'.join(map(str, one)) for one in clusters)}",
        )
    else:
        (_, major_a), (_, major_b) = kernel_operands(config)
        for name, size, parts, major in (
            ("tile_m", tile.m, cluster[1], major_a),
            ("tile_n", tile.n, cluster[0], major_b),
        ):
            if parts > 1 and major == "mn" and size % (MN_BOX * parts):
                yield Violation(
                    parameter=name,
                    value=size,
                    rule=f"{parts} CTAs of a cluster load a slice each of an MN-major operand, whole boxes of {MN_BOX} rows: must be a multiple of {MN_BOX * parts}",
                    fix=nearest(size, MN_BOX * parts, MN_BOX * parts, 256),
                )
            elif parts > 1 and size % (8 * parts):
                yield Violation(
                    parameter=name,
                    value=size,
                    rule=f"{parts} CTAs of a cluster load a slice each, whole groups of 8 rows: must be a multiple of {8 * parts}",
                    fix=nearest(size, 8 * parts, 8 * parts, 256),
                )
    tile_fits = True
    if tile.m not in TILE_ROWS:
        tile_fits = False
        near = sorted(TILE_ROWS, key=lambda size: abs(size - tile.m))[:2]
        yield Violation(
            parameter="tile_m",
            value=tile.m,
            rule="must be 64, 128, 192 or 256 (wgmma M is 64)",
            fix="nearest " + ", ".join(map(str, sorted(near))),
        )
    widths = wgmma_n_values(problem.a)
    if tile.n not in widths:
        tile_fits = False
        near = sorted(widths, key=lambda width: abs(width - tile.n))[:2] if is_size(tile.n) else []
        yield Violation(
            parameter="tile_n",
            value=tile.n,
            rule=f"must be {'8, 16, 24 or a multiple of 16' if problem.a == 's8' else 'a multiple of 8'} and at most 256 (wgmma N, {problem.a})",
            fix="nearest " + ", ".join(map(str, sorted(near)))
            if 8 < tile.n < 256
            else f"nearest {min(max(tile.n, 8), 256)}",
        )
    depths = slot_depths(problem.a)
    if tile.k not in depths:
        tile_fits = False
        yield Violation(
            parameter="tile_k",
            value=tile.k,
            rule=f"must be {', '.join(map(str, depths[:-1]))} or {depths[-1]}: a slot holds panels of {depths[1]} elements of K, the 128 bytes of the swizzle's span, or one of {depths[0]}",
        )
    if not 2 <= config.pipeline.stages <= MAXIMUM_STAGES:
        tile_fits = False
        yield Violation(
            parameter="stages",
            value=config.pipeline.stages,
            rule=f"must be from 2 to {MAXIMUM_STAGES}",
            fix=nearest(config.pipeline.stages, 1, 2, MAXIMUM_STAGES),
        )
    if epilogue.store not in ("tma", "direct"):
        tile_fits = False
        yield Violation(parameter="store", value=repr(epilogue.store), rule='must be "tma" or "direct"')
    if epilogue.store == "tma" and not 1 <= epilogue.buffers <= 4:
        tile_fits = False
        yield Violation(
            parameter="buffers",
            value=epilogue.buffers,
            rule="must be from 1 to 4 panels",
            fix=nearest(epilogue.buffers, 1, 1, 4),
        )
    if (
        epilogue.store == "tma"
        and is_size(problem.n)
        and problem.n is not None
        and problem.n * 2 % 16
        and problem.d in ("bf16", "f16")
    ):
        yield Violation(
            parameter="store",
            value="'tma'",
            rule=f"TMA stores whole 16-byte chunks, and a row of D has n * 2 = {problem.n * 2} bytes: it would write past the row's end",
            fix='"direct" works',
        )
    yield from fusion_violations(config)
    if tile_fits and schedule.consumers in (1, 2, 3):
        yield from _capacity_violations(config)


def _capacity_violations(config: GemmConfig) -> Iterator[Violation]:
    tile, consumers = config.tile, sharers(config)
    if tile.m < 64 * consumers:
        yield Violation(
            parameter="consumers",
            value=consumers,
            rule=f"each needs at least 64 rows, and tile_m is {tile.m}",
            fix="consumers=1 works",
        )
    elif tile.m % (64 * consumers):
        yield Violation(
            parameter="consumers",
            value=consumers,
            rule=f"they share the tile's {tile.m} rows evenly, in whole blocks of 64",
            fix=f"consumers={3 if tile.m == 192 else 2} works" + (", or 1" if tile.n <= 2 * 128 * 64 // tile.m else ""),
        )
    elif accumulators(config) > most_accumulators(config):
        widest = most_accumulators(config) * consumers * WARPGROUP // tile.m // 8 * 8
        yield Violation(
            parameter="tile_n",
            value=tile.n,
            rule=(
                f"a {tile.m} x {tile.n} tile on {consumers} consumer warpgroup{'s' * (consumers > 1)} is {accumulators(config)} accumulator registers a thread,"
                f" and at most {most_accumulators(config)} fit beside the rest"
            ),
            fix=f"tile_n={min(widest, 256)} works with tile_m={tile.m}"
            + (", or consumers=2" if consumers == 1 and tile.m > 64 else ""),
        )
    needed = sum(shared_bytes(config).values()) + ALIGNMENT_SLACK
    if needed > SHARED_LIMIT:
        fits = [
            stages
            for stages in range(2, config.pipeline.stages)
            if sum(shared_bytes(config.replace(stages=stages)).values()) + ALIGNMENT_SLACK <= SHARED_LIMIT
        ]
        yield Violation(
            parameter="stages",
            value=config.pipeline.stages,
            rule=f"{needed} bytes of shared memory ({', '.join(f'{use} {size}' for use, size in shared_bytes(config).items() if size)}, alignment {ALIGNMENT_SLACK}), and a CTA has {SHARED_LIMIT}",
            fix=f"stages={max(fits)} fits" if fits else "a smaller tile fits",
        )
