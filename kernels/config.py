"""The parameters of a GEMM kernel, and the one predicate that says which of them fit together and why not.

Knows types, tiles and the limits of the chip; knows nothing of CUDA source, of compilers or of arrays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Literal, get_args

from stridewright.layout.hardware.scale_factors import SCALED_TYPES

from .fusion import Fusion
from .spelling import format_meant

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a")
"""Architectures that have a kernel here."""

Major = Literal["k", "mn"]
Store = Literal["tma", "direct"]
Order = Literal["grouped", "serpentine", "row", "column", "nested", "hilbert"]
Hint = Literal["none", "first", "last"]
SplitKind = Literal["none", "split", "stream"]
Reduce = Literal["ordered", "atomic"]
Launch = Literal["static", "placed", "clc", "one"]
Form = Literal["one", "batch", "groups_m", "groups_k"]
AIn = Literal["shared", "tensor", "registers"]


class _WholeNumbers:
    """Fields given as numpy integers become Python's: the generated text and the rules' words show plain numbers."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if hasattr(value, "__index__") and not isinstance(value, int) and getattr(value, "shape", ()) == ():
                # What holds no integer after all (an array of one float) is left for the rules to name.
                with contextlib.suppress(TypeError):
                    object.__setattr__(self, name, operator.index(value))


@dataclass(frozen=True, kw_only=True)
class Problem(_WholeNumbers):
    """What is computed: ``D[m, n] = A[m, k] @ B[n, k].T``. Sizes in elements; ``None`` means "any" and is allowed for all three together."""

    m: int | None = None
    n: int | None = None
    k: int | None = None
    a: str = "bf16"
    b: str = "bf16"
    d: str = "bf16"
    a_major: Major = "k"
    b_major: Major = "k"
    form: Form = "one"
    """``"batch"``: as many products as there are matrices, each with its own A, B and D (or a shared A or B). ``"groups_m"``: the
    rows of A and D are those of consecutive groups, and each group has its own B. ``"groups_k"``: K is that of consecutive
    groups, and each has its own D. The groups' sizes lie in device memory."""


@dataclass(frozen=True, kw_only=True)
class Tile(_WholeNumbers):
    """The part of D that one CTA computes at a time, and how much of K a slot of the ring holds. Elements."""

    m: int = 128
    n: int = 256
    k: int = 64


@dataclass(frozen=True, kw_only=True)
class Pipeline(_WholeNumbers):
    """The ring of shared-memory slots between the copy engine and the tensor cores."""

    stages: int = 4
    hint_a: Hint = "none"
    """What L2 is told about A: its lines may be evicted ``"first"``, as for weights that are read once, or ``"last"``."""
    hint_b: Hint = "none"
    promote: int = 0
    """Elements of K after which the tensor core's sums are added to float32 ones, a multiple of ``tile.k``; 0: never.
    Sums of 8-bit floats keep 13 bits in the tensor core (measured on an H200), float32 ones 23."""
    accumulators: int = 1
    """Accumulators in tensor memory (Blackwell): with 2, one is stored while the next tile goes into the other. On Hopper, sets
    of partial sums of a promoted product: with 2, one is added to the float32 sums while the next slot goes into the other."""
    a_in: AIn = "shared"
    """Where the multiply reads A (Blackwell): in ``"shared"`` memory; in ``"tensor"`` memory, to which each slot is copied; or
    there after a warpgroup took it through ``"registers"``, where 8-bit elements become B's 16-bit format."""


@dataclass(frozen=True, kw_only=True)
class Cluster(_WholeNumbers):
    """CTAs that run together, along M and along N: each loads a slice of A for its row and of B for its column and multicasts it."""

    m: int = 1
    n: int = 1
    pair: bool = False
    """Whether two CTAs share each tile (Blackwell, cta_group::2)."""


@dataclass(frozen=True, kw_only=True)
class Schedule(_WholeNumbers):
    """Who does what, and in which order the tiles are taken."""

    kind: Literal["cooperative", "pingpong"] = "cooperative"
    """Cooperative consumers share each tile, its rows divided among them; ping-pong consumers, two of them, take whole tiles in turn,
    so that one multiplies while the other stores."""
    consumers: int = 2
    """Warpgroups that multiply."""
    swap: bool = False
    """Whether the operands change places, D^T = B A^T: ``tile.m`` runs along N then and ``tile.n`` along M. For M so
    small that 64 rows would mostly be padding."""
    order: Order = "grouped"
    """The order in which tiles are taken (:mod:`stridewright.kernels.orders`): ``"row"`` after row, ``"column"`` after
    column, ``"grouped"`` rows walked column by column, ``"serpentine"`` the same back and forth, ``"nested"``: such rows walked in patches
    as large as a GPC computes at a time, or along a ``"hilbert"`` curve."""
    group_m: int = 8
    """Tile rows walked together (``"grouped"``, ``"serpentine"``, ``"nested"``), so that CTAs running at the same time share panels
    of A and B in L2."""
    launch: Launch = "static"
    """Who hands out tiles: a persistent grid counts them (``"static"``); on Hopper the same with its clusters numbered GPC by GPC,
    whichever SM each was given (``"placed"``: neighbours in the order of tiles then share reads of L2); on Blackwell cluster launch
    control (``"clc"``), or each CTA computes ``"one"``."""
    stationary: bool = False
    """Whether the multiply is the weight-stationary tcgen05.mma.ws (Blackwell, one CTA): tiles of 32, 64 or 128 rows, and the
    accumulator of 32 or 64 rows fills all lanes of tensor memory."""
    producer_registers: int = 0
    """Registers setmaxnreg leaves a producer thread; the rest of the pool is the consumers'. 0: what fits best."""


@dataclass(frozen=True, kw_only=True)
class Split(_WholeNumbers):
    """How the sum over K of one tile is divided among CTAs, for problems of few tiles and much K."""

    kind: SplitKind = "none"
    """``"split"``: every tile among ``parts`` CTAs (or clusters), equal shares of K. ``"stream"``: the tiles that would
    not fill a last turn, and one turn more, are laid end to end and cut into equal shares, one for each CTA."""
    parts: int = 1
    """CTAs (or clusters) that share a tile (``"split"`` only)."""
    reduce: Reduce = "ordered"
    """``"ordered"``: each writes its partial sums, and they are added in a fixed order: the same bits every time.
    ``"atomic"``: they are added in the order in which they come."""


@dataclass(frozen=True, kw_only=True)
class Epilogue(_WholeNumbers):
    """How results leave: ``"tma"`` through swizzled shared memory, ``"direct"`` by plain stores, for rows that TMA cannot store."""

    store: Store = "tma"
    buffers: int = 2
    """Panels of shared memory a consumer warpgroup stores from in turn (``"tma"`` only)."""


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A broken rule: the parameter, the value given, the rule, and the nearest thing that works."""

    parameter: str
    value: object
    rule: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.parameter}={self.value}: {self.rule}" + (f"; {self.fix}" if self.fix else "")


class ConfigError(ValueError):
    """A configuration that no kernel can have. ``violations`` holds every broken rule."""

    def __init__(self, violations: tuple[Violation, ...]):
        self.violations = violations
        super().__init__("\n".join(str(violation) for violation in violations))


@dataclass(frozen=True, kw_only=True)
class GemmConfig:
    """All parameters of one kernel. Valid if :meth:`problems` is empty.

    >>> GemmConfig(tile=Tile(m=128, n=204)).problems()[0]
    'tile_n=204: must be a multiple of 8 and at most 256 (wgmma N, bf16); nearest 200, 208'
    >>> GemmConfig(tile=Tile(m=128, n=256), pipeline=Pipeline(stages=4)).problems()
    []
    """

    arch: str = "sm_90a"
    problem: Problem = field(default_factory=Problem)
    tile: Tile = field(default_factory=Tile)
    pipeline: Pipeline = field(default_factory=Pipeline)
    cluster: Cluster = field(default_factory=Cluster)
    schedule: Schedule = field(default_factory=Schedule)
    split: Split = field(default_factory=Split)
    epilogue: Epilogue = field(default_factory=Epilogue)
    fusion: Fusion = field(default_factory=Fusion)
    specialize: str = ""
    """Sizes baked into the source: ``"nk"`` (weights have a shape, tokens do not), ``"mnk"``, or ``""``: all at run time."""

    @property
    def on_blackwell(self) -> bool:
        """Whether the architecture's tensor cores are tcgen05, and its kernels those of ``cuda/blackwell``."""
        return isinstance(self.arch, str) and self.arch.startswith("sm_10")

    @property
    def threads(self) -> int:
        """Threads of a CTA: one producer warpgroup and the consumers."""
        if self.on_blackwell:
            return int(blackwell_rules().threads_of(self))
        return 128 * (1 + self.schedule.consumers)

    @property
    def name(self) -> str:
        """A short name for logs and files: what differs between kernels.

        >>> GemmConfig().name
        'sm_90a_bf16_cooperative2_128x256x64_stages4_group8_tma2'
        """
        if self.on_blackwell:
            return str(blackwell_rules().name(self))
        tile, schedule = self.tile, self.schedule
        kind = schedule.kind + str(schedule.consumers) + ("_swapped" if schedule.swap else "")
        cluster = "" if self.cluster == Cluster() else f"_cluster{self.cluster.m}x{self.cluster.n}"
        store = self.epilogue.store + (str(self.epilogue.buffers) if self.epilogue.store == "tma" else "")
        order = "" if schedule.order == "grouped" else f"_{schedule.order}"
        if schedule.order in ("grouped", "serpentine", "nested"):
            order += f"{'_group' if not order else ''}{schedule.group_m}"
        order += "_placed" if schedule.launch == "placed" else ""
        return (
            f"{self.arch}_{self._types()}_{kind}_{tile.m}x{tile.n}x{tile.k}{cluster}"
            f"_stages{self.pipeline.stages}{order}_{store}{self._rarely_named()}"
        )

    def _types(self) -> str:
        """The formats: A's alone, where the others are the same; and the majors that are not K."""
        problem = self.problem
        text = problem.a if problem.a == problem.b else f"{problem.a}x{problem.b}"
        text += f"_{problem.d}" if problem.d != problem.a else ""
        return text + "".join(f"_{operand}mn" for operand in "ab" if getattr(problem, f"{operand}_major") == "mn")

    def _rarely_named(self) -> str:
        """The part of the name for what mostly has its default."""
        split, pipeline = self.split, self.pipeline
        text = ""
        if split.kind != "none":
            text += f"_{split.kind}{split.parts if split.kind == 'split' else ''}"
            text += "_atomic" if split.reduce == "atomic" else ""
        for operand, hint in (("a", pipeline.hint_a), ("b", pipeline.hint_b)):
            text += "" if hint == "none" else f"_{operand}{hint}"
        text += f"_promote{pipeline.promote}" if pipeline.promote else ""
        text += f"_accumulators{pipeline.accumulators}" if pipeline.accumulators != 1 else ""
        text += f"_{self.problem.form}" if self.problem.form != "one" else ""
        text += f"_{self.fusion.name}" if self.fusion.uses_terms else ""
        if self.schedule.producer_registers:
            text += f"_producer{self.schedule.producer_registers}"
        if self.specialize:
            sizes = "x".join(str(getattr(self.problem, name)) for name in self.specialize)
            text += f"_{self.specialize}{sizes}"
        return text

    def replace(self, **changes: object) -> GemmConfig:
        """A copy with other parts, as :func:`dataclasses.replace`; ``tile_m``, ``tile_n``, ``stages``, ``consumers``,
        ``group_m``, ``store``, ``split_kind`` and the like reach into the parts.

        >>> GemmConfig().replace(tile_n=192, stages=5).tile
        Tile(m=128, n=192, k=64)
        """
        parts: dict[str, dict[str, object]] = {}
        direct: dict[str, object] = {}
        for name, value in changes.items():
            if name in _SHORT_NAMES:
                part, attribute = _SHORT_NAMES[name]
                parts.setdefault(part, {})[attribute] = value
            elif name in _PARTS:
                kind = _PART_TYPES.get(name)
                if kind is not None and not isinstance(value, kind):
                    inside = [short for short, (part, _) in _SHORT_NAMES.items() if part == name]
                    raise TypeError(
                        f"{name}={value!r}: must be a {kind.__name__}"
                        + (f"; {', '.join(inside)} change it one by one" if inside else "")
                    )
                direct[name] = value
            else:
                raise TypeError(f"{name}={value!r}: no such parameter; there are {', '.join((*_SHORT_NAMES, *_PARTS))}")
        config = dataclasses.replace(self, **direct)  # type: ignore[arg-type]
        return dataclasses.replace(
            config,
            **{part: dataclasses.replace(getattr(config, part), **attributes) for part, attributes in parts.items()},
        )

    def violations(self) -> tuple[Violation, ...]:
        """Every rule that is broken, all at once.

        >>> GemmConfig(tile=Tile(n=204)).violations()[0].parameter
        'tile_n'
        """
        # The rules do arithmetic on these values, so a value that is no integer is reported alone.
        return tuple(_wrong_kinds(self)) or tuple(_not_integers(self)) or tuple(_architecture_violations(self))

    def problems(self) -> list[str]:
        """Every violated rule as a line: value, rule, nearest thing that works. Empty if a kernel can be made."""
        return [str(violation) for violation in self.violations()]

    def require_valid(self) -> GemmConfig:
        """Itself, or :class:`ConfigError` with every violated rule.

        >>> GemmConfig().require_valid() == GemmConfig()
        True
        """
        violations = self.violations()
        if violations:
            raise ConfigError(violations)
        return self


_SHORT_NAMES = {
    "tile_m": ("tile", "m"),
    "tile_n": ("tile", "n"),
    "tile_k": ("tile", "k"),
    "stages": ("pipeline", "stages"),
    "schedule_kind": ("schedule", "kind"),
    "consumers": ("schedule", "consumers"),
    "swap": ("schedule", "swap"),
    "stationary": ("schedule", "stationary"),
    "cluster_m": ("cluster", "m"),
    "cluster_n": ("cluster", "n"),
    "order": ("schedule", "order"),
    "group_m": ("schedule", "group_m"),
    "launch": ("schedule", "launch"),
    "accumulators": ("pipeline", "accumulators"),
    "a_in": ("pipeline", "a_in"),
    "promote": ("pipeline", "promote"),
    "pair": ("cluster", "pair"),
    "producer_registers": ("schedule", "producer_registers"),
    "hint_a": ("pipeline", "hint_a"),
    "hint_b": ("pipeline", "hint_b"),
    "split_kind": ("split", "kind"),
    "parts": ("split", "parts"),
    "reduce": ("split", "reduce"),
    "store": ("epilogue", "store"),
    "buffers": ("epilogue", "buffers"),
}
_PARTS = ("arch", "problem", "tile", "pipeline", "cluster", "schedule", "split", "epilogue", "fusion", "specialize")
_NO_NUMBERS = (
    "a_in",
    "launch",
    "pair",
    "store",
    "schedule_kind",
    "swap",
    "stationary",
    "order",
    "hint_a",
    "hint_b",
    "split_kind",
    "reduce",
)
_PART_TYPES = {
    "problem": Problem,
    "tile": Tile,
    "pipeline": Pipeline,
    "cluster": Cluster,
    "schedule": Schedule,
    "split": Split,
    "epilogue": Epilogue,
    "fusion": Fusion,
}
OPERAND_FORMATS = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8")
"""Formats of A and B that wgmma multiplies. tf32 is float32 in memory, rounded to 10 fraction bits on its way."""

RESULT_FORMATS = ("bf16", "f16", "f32", "e4m3", "e5m2", "s8", "s32")


_K_MAJOR_ONLY = ("tf32", "e4m3", "e5m2", "s8")
"""Formats of operands without transpose bits (PTX ISA, wgmma)."""


def is_size(value: object) -> bool:
    """Whether this is a whole number, of Python or numpy, and no bool.

    >>> is_size(8), is_size(True), is_size(8.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong_kinds(config: GemmConfig) -> Iterator[Violation]:
    for name, kind in _PART_TYPES.items():
        value = getattr(config, name)
        if not isinstance(value, kind):
            yield Violation(parameter=name, value=repr(value), rule=f"must be a {kind.__name__}")


def _not_integers(config: GemmConfig) -> Iterator[Violation]:
    for name, (part, attribute) in _SHORT_NAMES.items():
        value = getattr(getattr(config, part), attribute)
        if name not in _NO_NUMBERS and not is_size(value):
            yield Violation(parameter=name, value=repr(value), rule="must be a whole number")
    for name in ("swap", "stationary"):
        value = getattr(config.schedule, name)
        if not isinstance(value, bool) and not (isinstance(value, int) and value in (0, 1)):
            yield Violation(parameter=name, value=repr(value), rule="must be 0 or 1")


def problem_violations(problem: Problem) -> Iterator[Violation]:
    """The rules for what is computed, whatever the kernel.

    >>> [str(violation) for violation in problem_violations(Problem(m=0, n=8, k=64))]
    ['m=0: must be at least 1']
    """
    for operand, formats in (("a", OPERAND_FORMATS), ("b", OPERAND_FORMATS), ("d", RESULT_FORMATS)):
        dtype = getattr(problem, operand)
        if dtype not in formats:
            hint = format_meant(dtype, formats)
            if isinstance(dtype, str) and dtype in SCALED_TYPES:
                hint = "factors of blocks of K are multiplied by Blackwell's tensor cores: arch='sm_100a'"
            yield Violation(
                parameter=operand,
                value=repr(dtype),
                rule=f"this type has no kernel; there is {', '.join(formats)}",
                fix=hint,
            )
    yield from _mixture_violations(problem)
    for operand in ("a_major", "b_major"):
        major, dtype = getattr(problem, operand), getattr(problem, operand[0])
        if major not in ("k", "mn"):
            yield Violation(
                parameter=operand, value=repr(major), rule='must be "k" (rows of K contiguous elements) or "mn"'
            )
        elif major == "mn" and dtype in _K_MAJOR_ONLY and problem.form != "groups_k":
            yield Violation(
                parameter=operand,
                value=repr(major),
                rule=f"wgmma reads {dtype} only K-major (PTX ISA, wgmma: only 16-bit types have transpose bits)",
                fix='pass it K-major ("k"), or let relayout="copy" transpose it on the device first',
            )
    if problem.form not in get_args(Form):
        words = ", ".join(f'"{word}"' for word in get_args(Form))
        yield Violation(parameter="form", value=repr(problem.form), rule=f"must be one of {words}")
    elif problem.form == "groups_m" and problem.a_major == "mn":
        yield Violation(
            parameter="a_major",
            value="'mn'",
            rule="groups begin at any row of A, and TMA wants the start of what is contiguous at a multiple of 16 bytes",
            fix='pass A K-major ("k")',
        )
    elif problem.form == "groups_k" and (problem.a in _K_MAJOR_ONLY or problem.b in _K_MAJOR_ONLY):
        dtype = problem.a if problem.a in _K_MAJOR_ONLY else problem.b
        yield Violation(
            parameter="group_by",
            value="'k'",
            rule=f"has no kernel on Hopper for {dtype}: 8-bit and tf32 operands are read K-major only, and groups of K lie MN-major",
            fix="one Gemm for each group works, or operands of 16 bits (bf16, f16)",
        )
    elif problem.form == "groups_k" and (problem.a_major, problem.b_major) != ("mn", "mn"):
        yield Violation(
            parameter="a_major" if problem.a_major == "k" else "b_major",
            value="'k'",
            rule="groups begin at any element of K, and TMA wants the start of what is contiguous at a multiple of 16 bytes",
            fix="pass both operands MN-major: for a weight gradient dY^T X that is how they lie",
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


def plain_violations(problem: Problem) -> Iterator[Violation]:
    """The rules for one plain bf16 product of arrays as they are, without copies: what the tuner and the ladder measure.

    >>> [str(one) for one in plain_violations(Problem(m=8, n=8, k=12))]
    ['k=12: must be a multiple of 8 for now: TMA wants rows of A and B to start at multiples of 16 bytes, and 12 * 2 bytes is 8 more; nearest 8, 16: pad A and B along K with zeros, which changes no result']
    """
    yield from problem_violations(problem)
    for operand in ("a", "b", "d"):
        dtype = getattr(problem, operand)
        if dtype != "bf16" and dtype in (*OPERAND_FORMATS, *RESULT_FORMATS):
            yield Violation(
                parameter=operand, value=repr(dtype), rule="this type has no kernel here yet; there is bf16"
            )
    size = problem.k
    if is_size(size) and size is not None and size > 0 and size % 8:
        below, above = size // 8 * 8, (size // 8 + 1) * 8
        yield Violation(
            parameter="k",
            value=size,
            rule=f"must be a multiple of 8 for now: TMA wants rows of A and B to start at multiples of 16 bytes, and {size} * 2 bytes is {size * 2 % 16} more",
            fix=f"nearest {', '.join(str(near) for near in (below, above) if near)}: pad A and B along K with zeros, which changes no result",
        )


def _mixture_violations(problem: Problem) -> Iterator[Violation]:
    """What of the formats does not go together."""
    eight = ("e4m3", "e5m2")
    if problem.a in OPERAND_FORMATS and problem.b in OPERAND_FORMATS:
        if problem.a != problem.b and not (problem.a in eight and problem.b in eight):
            yield Violation(
                parameter="b",
                value=repr(problem.b),
                rule=f"wgmma multiplies operands of one type, or e4m3 with e5m2, and a is {problem.a}",
                fix=f'b="{problem.a}"',
            )
        if problem.d == "s32" and problem.a != "s8":
            yield Violation(
                parameter="d", value="'s32'", rule=f"is what sums of s8 are, and a is {problem.a}", fix='d="f32"'
            )


def blackwell_rules() -> ModuleType:
    """The rules of the Blackwell family. Imported when asked for, since they speak of these classes."""
    from . import blackwell_rules as rules

    return rules


def _architecture_violations(config: GemmConfig) -> Iterator[Violation]:
    """The rules of the architecture's kernel family. Imported here, since the rules speak of these classes."""
    from . import hopper_rules

    if config.arch not in ARCHITECTURES:
        yield Violation(
            parameter="arch",
            value=repr(config.arch),
            rule="has no kernel here",
            fix=f"there is one for {', '.join(ARCHITECTURES)} (Hopper: H100, H200; Blackwell: B200, B300)",
        )
    yield from (blackwell_rules() if config.on_blackwell else hopper_rules).violations(config)
