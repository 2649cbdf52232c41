"""The rules of the Blackwell GEMM for what is computed: formats, majors, sizes, what is done to the sums.

Knows problems and the terms of :mod:`.fusion`; tiles, rings and memories are in :mod:`.blackwell_rules`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from stridewright.layout.hardware.scale_factors import SCALED_TYPES

from .blackwell_scales import format_violations
from .blackwell_types import (
    KIND_OF,
    OPERANDS,
    PADDED_K,
    RESULTS,
    contiguous_unit,
    converts,
    element_of,
    kind_of,
    operand_formats,
    padded,
    stored,
)
from .config import RESULT_FORMATS, GemmConfig, Problem, Split, Violation, is_size
from .fusion import fusion_problems
from .spelling import format_meant

ALL_OPERANDS = (*OPERANDS, *SCALED_TYPES)
"""Formats of A and B, those with factors of blocks of K included."""


def one_of(words: Iterable[object]) -> str:
    """The words as a choice.

    >>> one_of((64, 128)), one_of(["k"])
    ('64 or 128', 'k')
    """
    items = [str(word) for word in words]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"


def problem_violations(problem: Problem, arch: str = "sm_100a") -> Iterator[Violation]:
    """The rules for what is computed.

    >>> [str(one) for one in problem_violations(Problem(a="e4m3", b="s8"))]
    ["b='s8': no kind of tcgen05.mma multiplies it with e4m3; b may be e4m3, e5m2, e2m3, e3m2 or e2m1"]
    """
    for name, formats in (("a", ALL_OPERANDS), ("b", ALL_OPERANDS), ("d", RESULT_FORMATS)):
        dtype = getattr(problem, name)
        if dtype not in formats:
            yield Violation(
                parameter=name,
                value=repr(dtype),
                rule=f"this type has no Blackwell kernel; there is {one_of(formats)}",
                fix=format_meant(dtype, formats),
            )
    if problem.a in ALL_OPERANDS and problem.b in ALL_OPERANDS:
        yield from _mixture_violations(problem, arch)
    for name in ("a_major", "b_major"):
        major, dtype = getattr(problem, name), getattr(problem, name[0])
        if major not in ("k", "mn"):
            yield Violation(
                parameter=name, value=repr(major), rule='must be "k" (rows of K contiguous elements) or "mn"'
            )
        elif major == "mn" and element_of(dtype) in ("e2m3", "e3m2", "e2m1"):
            yield Violation(
                parameter=name,
                value=repr(major),
                rule=f"tcgen05 reads {dtype} only K-major (PTX ISA 9.1, section 9.7.16.4: 4- and 6-bit types)",
                fix='pass it K-major ("k")',
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
    kind = kind_of(problem)
    of = {name.upper(): getattr(problem, name) for name in "ab" if getattr(problem, name) in ALL_OPERANDS}
    names = [name for name, dtype in of.items() if padded(stored(dtype, kind))]
    if names and is_size(problem.k) and problem.k is not None and problem.k % PADDED_K:
        words = " and ".join(dict.fromkeys(of[name] for name in names))
        yield Violation(
            parameter="k",
            value=problem.k,
            rule=f"must be a multiple of {PADDED_K}: the copy engine takes rows of {' and '.join(names)} ({words}) in boxes of "
            f"{PADDED_K} elements (cuTensorMapEncodeTiled)",
            fix=f"nearest {', '.join(map(str, around(problem.k, PADDED_K)))}: pad with zeros, which changes no result",
        )


def _mixture_violations(problem: Problem, arch: str) -> Iterator[Violation]:
    """What of the formats does not go together."""
    kind = kind_of(problem)
    scaled = list(format_violations(problem))
    yield from scaled
    if not kind:
        if scaled:
            return
        same = KIND_OF[problem.a]
        exchanged = converts(dataclasses.replace(problem, a=problem.b, b=problem.a))
        may = [problem.a] if same == "f16" else [dtype for dtype, own in KIND_OF.items() if own == same]
        yield Violation(
            parameter="b",
            value=repr(problem.b),
            rule=f"no kind of tcgen05.mma multiplies it with {problem.a}",
            fix=f"b may be {one_of(may)}" + ("; exchange the operands: A of 8 bits becomes B's" if exchanged else ""),
        )
        return
    if kind == "i8" and arch == "sm_103a":
        yield Violation(
            parameter="a",
            value=repr(problem.a),
            rule="sm_103a has no kind::i8 (ptxas 13.0 refuses it)",
            fix="arch='sm_100a' has it; e4m3 holds whole numbers up to 16",
        )
    if problem.d in RESULT_FORMATS and problem.d not in RESULTS[kind]:
        yield Violation(
            parameter="d",
            value=repr(problem.d),
            rule=f"is what sums of s8 and u8 are, and a is {problem.a}",
            fix='d="f32"',
        )


def plain_violations(problem: Problem) -> Iterator[Violation]:
    """The rules for operands that the copy engine reads where they lie, without copies to padded rows.

    >>> [str(one) for one in plain_violations(Problem(m=4, n=8, k=12))]
    ['k=12: must be a multiple of 8: TMA wants rows of A (K-major) and B (K-major) to start at multiples of 16 bytes; nearest 8, 16: pad with zeros, which changes no result']
    """
    units = dict(zip("ab", map(contiguous_unit, operand_formats(problem)), strict=True))
    for name in ("m", "n", "k"):
        size = getattr(problem, name)
        operands = _contiguous_along(problem, name)
        if not is_size(size) or size is None or not operands:
            continue
        unit = max(units[operand[0].lower()] for operand in operands)
        if size % unit:
            yield Violation(
                parameter=name,
                value=size,
                rule=f"must be a multiple of {unit}: TMA wants rows of {' and '.join(operands)} to start at multiples of 16 bytes",
                fix=f"nearest {', '.join(map(str, around(size, unit)))}: pad with zeros, which changes no result",
            )


def around(size: int, unit: int) -> list[int]:
    """The multiples of ``unit`` below and above, without 0.

    >>> around(12, 8), around(4, 8)
    ([8, 16], [8])
    """
    return [one for one in (size // unit * unit, (size // unit + 1) * unit) if one]


def _contiguous_along(problem: Problem, name: str) -> list[str]:
    """The operands whose contiguous rows run along that size."""
    found = []
    for operand, major, rows in (("A", problem.a_major, "m"), ("B", problem.b_major, "n")):
        if name == "k" and major == "k":
            found.append(f"{operand} (K-major)")
        if name == rows and major == "mn":
            found.append(f"{operand} (MN-major)")
    return found


def family_violations(config: GemmConfig) -> Iterator[Violation]:
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
    ):
        if value != default:
            yield Violation(
                parameter=name,
                value=value if isinstance(value, int) else repr(value),
                rule="is a parameter of the Hopper kernels; the Blackwell ones have fixed roles",
                fix=f"leave it at {default!r}",
            )


def form_violations(config: GemmConfig) -> Iterator[Violation]:
    """Several products in one launch: a batch of matrices one after the other, and no groups.

    >>> [str(one) for one in form_violations(GemmConfig(arch="sm_100a", problem=Problem(form="groups_m")))]
    ["form='groups_m': groups have no Blackwell kernel yet; one launch each, or arch='sm_90a'"]
    """
    problem = config.problem
    if problem.form == "one":
        return
    if problem.form != "batch":
        yield Violation(
            parameter="form",
            value=repr(problem.form),
            rule="groups have no Blackwell kernel yet",
            fix="one launch each, or arch='sm_90a'",
        )
        return
    kind = kind_of(problem)
    cluster = config.cluster
    for wrong, rule, fix in (
        (bool(kind) and any(padded(stored(dtype, kind)) for dtype in (problem.a, problem.b)), "padded formats of several matrices have no kernel yet", "one launch each"),
        (cluster.m * cluster.n > 1, "tiles of a cluster belong to one matrix", "cluster_m=1 and cluster_n=1 work"),
    ):  # fmt: skip
        if wrong:
            yield Violation(parameter="form", value="'batch'", rule=rule, fix=fix)


def fusion_violations(config: GemmConfig) -> Iterator[Violation]:
    """What is done to the sums beside what these kernels do."""
    fusion = config.fusion
    for parameter, value, rule, fix in fusion_problems(fusion):
        yield Violation(parameter=parameter, value=value, rule=rule, fix=fix)
    n = config.problem.n
    if fusion.gated and config.epilogue.store == "tma":
        rule = "with gated pairs, a pair's one result is stored from registers"
        yield Violation(parameter="store", value="'tma'", rule=rule, fix='"direct" works')
    if fusion.gated and is_size(n) and n is not None and n % 2:
        rule = "with gated pairs, columns come in pairs: must be even"
        yield Violation(parameter="n", value=n, rule=rule, fix=f"nearest {n - 1}, {n + 1}")
    if fusion.scale_a == "block" or fusion.scale_b == "block":
        yield Violation(
            parameter="scale_a" if fusion.scale_a == "block" else "scale_b",
            value="'block'",
            rule="float32 scales of blocks of K have no Blackwell kernel: its tensor cores scale by themselves",
            fix='"row", or formats with scales of their own',
        )
    if config.pipeline.promote:
        yield Violation(
            parameter="promote",
            value=config.pipeline.promote,
            rule="sums are float32 in tensor memory, with nothing to be promoted to",
            fix="leave it at 0",
        )
