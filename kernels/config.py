"""The parameters of a GEMM kernel, and the one predicate that says which of them fit together and why not.

Knows types, tiles and the limits of the chip; knows nothing of CUDA source, of compilers or of arrays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

ARCHITECTURES = ("sm_90a",)
"""Architectures that have a kernel here."""

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

MAXIMUM_ACCUMULATORS_IN_CLUSTERS = 200
"""The same in clusters, whose loop state is larger: NVRTC 13.5 spills at 208."""

MAXIMUM_ACCUMULATORS_SWAPPED_DIRECT = 128
"""The same where plain stores go down a column of D, each to an address of its own: NVRTC 13.0 spills at 144."""

MAXIMUM_GROUP = 1024
MAXIMUM_STAGES = 16
"""Slots of a ring; more were never of use. Small slots need many of them to cover the latency of memory."""

Major = Literal["k", "mn"]
Store = Literal["tma", "direct"]


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


@dataclass(frozen=True, kw_only=True)
class Cluster(_WholeNumbers):
    """CTAs that run together, along M and along N: each loads a slice of A for its row and of B for its column and multicasts it."""

    m: int = 1
    n: int = 1


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
    group_m: int = 8
    """Tile rows walked together, so that CTAs running at the same time share panels of A and B in L2."""


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
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def threads(self) -> int:
        """Threads of a CTA: one producer warpgroup and the consumers."""
        return WARPGROUP * (1 + self.schedule.consumers)

    @property
    def name(self) -> str:
        """A short name for logs and files: what differs between kernels.

        >>> GemmConfig().name
        'sm_90a_bf16_cooperative2_128x256x64_stages4_group8_tma2'
        """
        tile, schedule = self.tile, self.schedule
        kind = schedule.kind + str(schedule.consumers) + ("_swapped" if schedule.swap else "")
        cluster = "" if self.cluster == Cluster() else f"_cluster{self.cluster.m}x{self.cluster.n}"
        store = self.epilogue.store + (str(self.epilogue.buffers) if self.epilogue.store == "tma" else "")
        return (
            f"{self.arch}_{self.problem.a}_{kind}_{tile.m}x{tile.n}x{tile.k}{cluster}"
            f"_stages{self.pipeline.stages}_group{schedule.group_m}_{store}"
        )

    def replace(self, **changes: object) -> GemmConfig:
        """A copy with other parts, as :func:`dataclasses.replace`; ``tile_m``, ``tile_n``, ``stages``, ``consumers``,
        ``group_m``, ``store`` and ``buffers`` reach into the parts.

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
        return tuple(_wrong_kinds(self)) or tuple(_not_integers(self)) or tuple(_violations(self))

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
    "cluster_m": ("cluster", "m"),
    "cluster_n": ("cluster", "n"),
    "group_m": ("schedule", "group_m"),
    "store": ("epilogue", "store"),
    "buffers": ("epilogue", "buffers"),
}
_PARTS = ("arch", "problem", "tile", "pipeline", "cluster", "schedule", "epilogue")
_PART_TYPES = {
    "problem": Problem,
    "tile": Tile,
    "pipeline": Pipeline,
    "cluster": Cluster,
    "schedule": Schedule,
    "epilogue": Epilogue,
}
_DTYPES = ("bf16",)


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
        if name not in ("store", "schedule_kind", "swap") and not is_size(value):
            yield Violation(parameter=name, value=repr(value), rule="must be a whole number")
    swap = config.schedule.swap
    if not isinstance(swap, bool) and not (isinstance(swap, int) and swap in (0, 1)):
        yield Violation(parameter="swap", value=repr(swap), rule="must be 0 or 1")


def problem_violations(problem: Problem) -> Iterator[Violation]:
    """The rules for what is computed, whatever the kernel.

    >>> [str(violation) for violation in problem_violations(Problem(m=0, n=8, k=64))]
    ['m=0: must be at least 1']
    """
    for operand in ("a", "b", "d"):
        dtype = getattr(problem, operand)
        if dtype not in _DTYPES:
            yield Violation(
                parameter=operand, value=repr(dtype), rule=f"this type has no kernel yet; there is {', '.join(_DTYPES)}"
            )
    for operand in ("a_major", "b_major"):
        major = getattr(problem, operand)
        if major == "mn":
            yield Violation(
                parameter=operand,
                value=repr(major),
                rule="this major has no kernel yet",
                fix='pass the operand K-major ("k"): each row of A (M, K) and B (N, K) contiguous',
            )
        elif major != "k":
            yield Violation(
                parameter=operand, value=repr(major), rule='must be "k" (rows of K contiguous elements) or "mn"'
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
        elif name == "k" and size % 8:
            below, above = size // 8 * 8, (size // 8 + 1) * 8
            yield Violation(
                parameter="k",
                value=size,
                rule=f"must be a multiple of 8 for now: TMA wants rows of A and B to start at multiples of 16 bytes, and {size} * 2 bytes is {size * 2 % 16} more",
                fix=f"nearest {', '.join(str(near) for near in (below, above) if near)}: pad A and B along K with zeros, which changes no result",
            )


def _nearest(value: int, step: int, low: int, high: int) -> str:
    below = min(max(value // step * step, low), high)
    above = min(max(-(-value // step) * step, low), high)
    return "nearest " + ", ".join(str(near) for near in sorted({below, above}))


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
    if config.schedule.swap and config.epilogue.store == "direct":
        return MAXIMUM_ACCUMULATORS_SWAPPED_DIRECT
    return MAXIMUM_ACCUMULATORS if config.cluster == Cluster() else MAXIMUM_ACCUMULATORS_IN_CLUSTERS


def sharers(config: GemmConfig) -> int:
    """Consumer warpgroups that share a tile: all of them if they cooperate, one if they take turns.

    >>> sharers(GemmConfig()), sharers(GemmConfig().replace(schedule_kind="pingpong", tile_n=128))
    (2, 1)
    """
    return 1 if config.schedule.kind == "pingpong" else config.schedule.consumers


def registers(consumers: int) -> tuple[int, int]:
    """What setmaxnreg leaves a producer thread and gives a consumer thread.

    The pool is what the CTA was launched with: ptxas gives 168 registers a thread at 384 threads, hence 504 for three
    warpgroups, and 24 + 2 * 240 fits exactly. With one consumer the launch gives every thread all it can name.

    >>> registers(2)
    (24, 240)
    """
    return (24, 240) if consumers == 2 else (40, 240)


def panel_rows(config: GemmConfig) -> int:
    """Rows of a panel of D in shared memory: a block's 64, or with operands swapped the tile's part of M.

    >>> panel_rows(GemmConfig()), panel_rows(GemmConfig().replace(swap=True, tile_n=40))
    (64, 40)
    """
    return config.tile.n if config.schedule.swap else 64


def shared_bytes(config: GemmConfig) -> dict[str, int]:
    """Bytes of shared memory by use, in the order they stand in it.

    >>> shared_bytes(GemmConfig())
    {'tiles of A': 65536, 'tiles of B': 131072, 'staging of D': 32768, 'barriers': 64}
    """
    element = 2
    tile, stages = config.tile, config.pipeline.stages
    staged = config.epilogue.store == "tma"
    return {
        "tiles of A": stages * tile.m * tile.k * element,
        "tiles of B": stages * tile.n * tile.k * element,
        "staging of D": config.schedule.consumers * config.epilogue.buffers * panel_rows(config) * 128 if staged else 0,
        "barriers": 2 * 8 * stages,
    }


def _violations(config: GemmConfig) -> Iterator[Violation]:
    tile, schedule, epilogue, problem = config.tile, config.schedule, config.epilogue, config.problem
    if config.arch not in ARCHITECTURES:
        yield Violation(
            parameter="arch",
            value=repr(config.arch),
            rule="has no kernel here",
            fix=f"there is one for {', '.join(ARCHITECTURES)} (Hopper: H100, H200)",
        )
    yield from problem_violations(problem)
    if schedule.kind not in ("cooperative", "pingpong"):
        yield Violation(parameter="schedule", value=repr(schedule.kind), rule='must be "cooperative" or "pingpong"')
    elif schedule.kind == "pingpong" and schedule.consumers != 2:
        yield Violation(
            parameter="consumers", value=schedule.consumers, rule="ping-pong is played by two", fix="consumers=2 works"
        )
    if schedule.consumers not in (1, 2):
        yield Violation(
            parameter="consumers",
            value=schedule.consumers,
            rule="must be 1 or 2 warpgroups",
            fix=_nearest(schedule.consumers, 1, 1, 2),
        )
    if not 1 <= schedule.group_m <= MAXIMUM_GROUP:
        yield Violation(
            parameter="group_m",
            value=schedule.group_m,
            rule=f"must be from 1 to {MAXIMUM_GROUP}: the scheduler counts a group's tiles in 32 bits",
            fix=_nearest(schedule.group_m, 1, 1, MAXIMUM_GROUP),
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
        for name, size, parts in (("tile_m", tile.m, cluster[1]), ("tile_n", tile.n, cluster[0])):
            if parts > 1 and size % (8 * parts):
                yield Violation(
                    parameter=name,
                    value=size,
                    rule=f"{parts} CTAs of a cluster load a slice each, whole groups of 8 rows: must be a multiple of {8 * parts}",
                    fix=_nearest(size, 8 * parts, 8 * parts, 256),
                )
    tile_fits = True
    if tile.m not in (64, 128, 256):
        tile_fits = False
        near = sorted((64, 128, 256), key=lambda size: abs(size - tile.m))[:2]
        yield Violation(
            parameter="tile_m",
            value=tile.m,
            rule="must be 64, 128 or 256 (wgmma M is 64)",
            fix="nearest " + ", ".join(map(str, sorted(near))),
        )
    if tile.n % 8 or not 8 <= tile.n <= 256:
        tile_fits = False
        yield Violation(
            parameter="tile_n",
            value=tile.n,
            rule="must be a multiple of 8 and at most 256 (wgmma N, bf16)",
            fix=_nearest(tile.n, 8, 8, 256),
        )
    if tile.k not in (64, 128, 256):
        tile_fits = False
        yield Violation(
            parameter="tile_k",
            value=tile.k,
            rule="must be 64, 128 or 256: a slot holds panels of 64 elements of K, the 128 bytes of the swizzle's span",
        )
    if not 2 <= config.pipeline.stages <= MAXIMUM_STAGES:
        tile_fits = False
        yield Violation(
            parameter="stages",
            value=config.pipeline.stages,
            rule=f"must be from 2 to {MAXIMUM_STAGES}",
            fix=_nearest(config.pipeline.stages, 1, 2, MAXIMUM_STAGES),
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
            fix=_nearest(epilogue.buffers, 1, 1, 4),
        )
    if epilogue.store == "tma" and is_size(problem.n) and problem.n is not None and problem.n * 2 % 16:
        yield Violation(
            parameter="store",
            value="'tma'",
            rule=f"TMA stores whole 16-byte chunks, and a row of D has n * 2 = {problem.n * 2} bytes: it would write past the row's end",
            fix='"direct" works',
        )
    if tile_fits and schedule.consumers in (1, 2):
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
