"""The rules of the Hopper GEMM for what goes beyond one plain product: formats, fused terms, batches, groups, promotion.

Knows what the kernels of ``cuda/finish.cuh``, ``multiply_promoted.cuh`` and ``multiply_groups.cuh`` take; the rules of
tiles and rings are in ``hopper_rules``.
"""

from __future__ import annotations

from collections.abc import Iterator

from .config import GemmConfig, Violation
from .fusion import BLOCK_K, fusion_problems
from .orders import TABLES

STAGED_FORMATS = ("bf16", "f16")
"""Formats of D that stmatrix stages for TMA stores: those of 16 bits."""


PROMOTED_FORMATS = ("e4m3", "e5m2")
"""Formats of operands whose sums keep few bits in the tensor core, and may be promoted to float32 on the way."""

MOST_PROMOTE = 2**31
"""Elements of K that a sum may go without being promoted: more than there are. The kernel counts slots in 32 bits."""


def fusion_violations(config: GemmConfig) -> Iterator[Violation]:
    """Every broken rule of what is fused, how it is stored, and several products in one launch.

    >>> [str(one) for one in fusion_violations(GemmConfig().replace(promote=64))]
    ["promote=64: adds up sums of 8-bit floats, and a is 'bf16'; promote=0"]
    """
    for parameter, value, rule, fix in fusion_problems(config.fusion):
        yield Violation(parameter=parameter, value=value, rule=rule, fix=fix)
    problem, fusion = config.problem, config.fusion
    if config.epilogue.store == "tma" and problem.d not in STAGED_FORMATS:
        yield Violation(
            parameter="store",
            value="'tma'",
            rule=f"results are staged as 16-bit elements, and d is {problem.d}",
            fix='"direct" works',
        )
    majors = (problem.a_major, problem.b_major)
    if config.schedule.consumers == 3 and (fusion.uses_terms or problem.form != "one" or "mn" in majors):
        yield from _of_three_violations(config)
    if fusion.gated:
        yield from _gated_violations(config)
    if fusion.scale_a == "block" and problem.a not in PROMOTED_FORMATS:
        yield Violation(
            parameter="scale_a",
            value="'block'",
            rule=f"scales of blocks of K are for 8-bit floats, {' and '.join(PROMOTED_FORMATS)}, and a is {problem.a!r}",
            fix="scales of rows, (M,) and (N,), and of whole tensors go with every format",
        )
    elif config.pipeline.promote:
        yield from _promotion_violations(config)
    if fusion.scale_a == "block" and problem.a in PROMOTED_FORMATS:
        yield from _block_violations(config)
    if problem.form != "one":
        yield from _form_violations(config)


def _of_three_violations(config: GemmConfig) -> Iterator[Violation]:
    """Three consumers leave the producer 32 registers, which its loop for one plain product fills."""
    for parameter, value, plain in (
        ("form", config.problem.form, "one"),
        ("promote", config.pipeline.promote, 0),
        ("cluster", f"{config.cluster.m}x{config.cluster.n}", "1x1"),
    ):
        if value != plain:
            yield Violation(
                parameter=parameter,
                value=value if isinstance(value, int) else repr(value),
                rule="with three consumers the producer has 32 registers, too few for this",
                fix="consumers=2 works",
            )


def _gated_violations(config: GemmConfig) -> Iterator[Violation]:
    n = config.problem.n
    for wrong, parameter, value, rule, fix in (
        (config.epilogue.store != "direct", "store", "'tma'", "a pair's one result is stored from registers", '"direct" works'),
        (config.schedule.swap, "swap", True, "the columns of a pair would lie in different threads", "swap=False works"),
        (config.split.kind != "none", "split_kind", repr(config.split.kind), "partial sums are stored one by one", '"none" works'),
        (bool(n and n % 2), "n", n, "columns come in pairs: must be even", "nearest 2" if n == 1 else f"nearest {(n or 0) - 1}, {(n or 0) + 1}"),
    ):  # fmt: skip
        if wrong:
            yield Violation(parameter=parameter, value=value, rule=f"with gated pairs, {rule}", fix=fix)


def _promotion_violations(config: GemmConfig) -> Iterator[Violation]:
    promote, tile = config.pipeline.promote, config.tile
    if config.problem.a not in PROMOTED_FORMATS:
        yield Violation(
            parameter="promote",
            value=promote,
            rule=f"adds up sums of 8-bit floats, and a is {config.problem.a!r}",
            fix="promote=0",
        )
    elif promote < tile.k or promote % tile.k:
        fits = tile.k > 64 and promote > 0 and promote % 64 == 0
        yield Violation(
            parameter="promote",
            value=promote,
            rule=f"sums are added after whole slots: must be a multiple of tile_k={tile.k}",
            fix=f"nearest {max(promote // tile.k, 1) * tile.k}" + (", or tile_k=64" if fits else ""),
        )
    elif promote > MOST_PROMOTE:
        yield Violation(
            parameter="promote",
            value=promote,
            rule="must be at most 2^31, which no K reaches",
            fix="0 adds sums to float32 ones never, a multiple of 128 from K up once",
        )
    if config.problem.form == "groups_k":
        yield Violation(
            parameter="promote", value=promote, rule="8-bit operands are K-major, and groups of K take MN-major ones"
        )


def _block_violations(config: GemmConfig) -> Iterator[Violation]:
    if config.pipeline.promote != BLOCK_K:
        yield Violation(
            parameter="promote",
            value=config.pipeline.promote,
            rule=f"scales of {BLOCK_K} elements of K are applied where sums are promoted",
            fix=f"promote={BLOCK_K}",
        )
    if BLOCK_K % config.tile.n:
        yield Violation(
            parameter="tile_n",
            value=config.tile.n,
            rule=f"a tile takes one scale of B, that of {BLOCK_K} rows: must be 8, 16, 32, 64 or 128",
            fix="nearest 64, 128",
        )
    if config.schedule.swap:
        yield Violation(
            parameter="swap", value=True, rule="a row of the kernel's A takes its own scale, and B's has 128", fix="swap=False"
        )  # fmt: skip


def _form_violations(config: GemmConfig) -> Iterator[Violation]:
    form = config.problem.form
    if config.problem.form == "batch":
        return
    schedule = config.schedule
    for wrong, parameter, value, rule, fix in (
        (config.split.kind != "none", "split_kind", repr(config.split.kind), "shares of K are counted on the host", '"none" works'),
        ("m" in config.specialize, "specialize", repr(config.specialize), "sizes of groups are read by the kernel", '"nk" works'),
        (form == "groups_m" and schedule.swap, "swap", True, "groups of rows are the kernel's own rows", "swap=False works"),
        (form == "groups_m" and schedule.order in TABLES, "order", repr(schedule.order), "a table of tiles is made on the host", '"grouped" works'),
        (form == "groups_k" and schedule.kind == "pingpong", "schedule_kind", "'pingpong'", "turns are counted in tiles of one depth", '"cooperative" works'),
        (form == "groups_k" and "k" in config.specialize, "specialize", repr(config.specialize), "each group has a K of its own", '"" works'),
    ):  # fmt: skip
        if wrong:
            yield Violation(parameter=parameter, value=value, rule=f"with groups, {rule}", fix=fix)
