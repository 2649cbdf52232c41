"""A GEMM of the Blackwell family: what differs from Hopper's in source, grid, arguments and emulation.

``Gemm(..., arch="sm_100a")`` makes one of these. Emulated and assembled; never run on hardware.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.blackwell import Derivation, derive
from stridewright.kernels.blackwell_ladder import Rung, rungs
from stridewright.kernels.blackwell_problem_rules import plain_violations
from stridewright.kernels.blackwell_rules import cluster_ctas
from stridewright.kernels.config import ConfigError, GemmConfig, Problem, Violation

from .bind import OperandError
from .blackwell_select import SMS, modelled_clocks, select
from .blackwell_source import generate
from .blackwell_where import describe
from .gemm import Gemm, GemmEmulation, _is_one
from .source import KERNEL_NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .blackwell_general import BlackwellGeneralGemm
    from .blackwell_launch import BoundBlackwellGemm
    from .emulator import Progress
    from .general_bind import GeneralBound
    from .launch import LoadedKernel

_NUMPY_NAMES = {"bf16": "bfloat16", "f16": "float16"}


class BlackwellKernel(Gemm):
    """What every GEMM of the family has: derivation, source, grid and kernel, of its configuration."""

    rung: Rung | None = None
    """The rung of the ladder that this is, if it is one."""
    batches: int = 1
    """Products in one launch."""

    @property
    def derivation(self) -> Derivation:  # type: ignore[override]
        """The constants of the kernel and the layouts they come from."""
        if self.rung is not None:
            return derive(self.config, self.rung.swizzle, self.rung.threads)
        return derive(self.config)

    @cached_property
    def source(self) -> str:
        """The CUDA source: self-contained, and the same for every m, n, k of this configuration."""
        start = time.perf_counter()
        problem = dataclasses.replace(self.problem, m=None, n=None, k=None)
        source = generate(self.config.replace(problem=problem), self.rung)
        self.seconds["generate"] = time.perf_counter() - start
        return source

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.derivation.threads

    @property
    def ctas(self) -> int:
        """CTAs that share a tile."""
        return self.derivation.ctas

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster, those of all its tiles."""
        return cluster_ctas(self.config)

    def tiles(self) -> int:
        """Output tiles of the problem, counting those that only fill up a cluster.

        >>> Gemm(512, 512, 256, arch="sm_100a", config=GemmConfig(arch="sm_100a")).tiles()
        8
        """
        tile, cluster = self.config.tile, self.config.cluster
        blocks = -(-max(self.m, 1) // (tile.m * cluster.m)) * -(-max(self.n, 1) // (tile.n * cluster.n))
        return blocks * cluster.m * cluster.n * self.batches

    def multiplies(self) -> int:
        """tcgen05.mma instructions that a launch issues: each tile and k-step of 32 bytes.

        >>> Gemm(512, 512, 256, arch="sm_100a", config=GemmConfig(arch="sm_100a")).multiplies()
        128
        """
        return self.tiles() * -(-max(self.k, 1) // self.config.tile.k) * self.derivation.k_steps

    def grid(self, sms: int = SMS) -> tuple[int, int, int]:
        """CTAs to launch: of a persistent grid one for each SM, or as many as there are tiles; else those of all tiles.

        >>> config = GemmConfig(arch="sm_100a")
        >>> Gemm(8192, 8192, 256, config=config).grid(), Gemm(8192, 8192, 256, config=config.replace(launch="clc")).grid()
        ((148, 1, 1), (2048, 1, 1))
        """
        clusters = self.tiles() * self.ctas // self.cluster_ctas
        if self.config.schedule.launch == "static":
            clusters = min(clusters, max(sms // self.cluster_ctas, 1))
        return (clusters * self.cluster_ctas, 1, 1)

    @cached_property
    def kernel(self) -> LoadedKernel:
        """The kernel, ready to launch."""
        from .launch import LoadedKernel

        return LoadedKernel(self.cubin, KERNEL_NAME, self.derivation.shared_bytes, cluster=(self.cluster_ctas, 1, 1))


class BlackwellGemm(BlackwellKernel):
    """``d = a @ b.T`` for one problem on sm_100a or sm_103a; see :class:`Gemm`.

    >>> g = Gemm(512, 512, 256, arch="sm_100a")
    >>> type(g).__name__, g.config.problems()
    ('BlackwellGemm', [])
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        wrong = tuple(plain_violations(self.problem))
        if wrong:
            raise ConfigError(wrong)

    @staticmethod
    def _choose(problem: Problem, arch: str) -> GemmConfig:
        return select(problem, arch)

    def bind(
        self, a: Any, b: Any, out: Any = None, dependent: bool | None = None, workspace: Any = None, **others: Any
    ) -> BoundBlackwellGemm | GeneralBound:
        """The launch for these arrays, prepared; see :meth:`Gemm.bind`. Plain launches unless ``dependent`` says otherwise:
        what dependent ones gain here nobody has measured.
        """
        from .blackwell_launch import bind_blackwell

        if others:
            return self.general.bind(a, b, out, bool(dependent), workspace, **others)
        return bind_blackwell(self, a, b, out, bool(dependent))

    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        bias: Any = None,
        alpha: Any = 1.0,
        beta: float = 0.0,
        out: Any = None,
        stream: Any = None,
        **others: Any,
    ) -> Any:
        """``a @ b.T`` on the current GPU; see :meth:`Gemm.__call__`."""
        if c is not None or bias is not None or others or beta or not _is_one(alpha):
            return self.general(a, b, c, bias, alpha, beta, out, stream, **others)
        if out is None:
            self._require_gpu()
        return self.bind(a, b, out)(stream)

    # ---- on the emulator --------------------------------------------------------------------------------------------

    def emulate(
        self,
        a: Any,
        b: Any,
        *,
        seed: int = 0,
        strict: bool = True,
        numerics: str = "float32",
        sms: int = SMS,
        timeline: bool = False,
        progress: Callable[[Progress], None] | None = None,
        **others: Any,
    ) -> GemmEmulation:
        """Runs this kernel's PTX on the emulator; see :meth:`Gemm.emulate`. ``sms`` is the size of a persistent grid; under
        launch control the emulator itself chooses how many clusters run at a time (a few, another number for each seed).
        """
        from .emulator import EmulationError, emulate_ptx

        if isinstance(sms, bool) or not isinstance(sms, int | np.integer) or sms < 1:
            raise ValueError(f"sms={sms!r}: must be a whole number of multiprocessors, from 1 up; a B200 has {SMS}")
        if others:
            settings: dict[str, Any] = {"seed": seed, "strict": strict, "numerics": numerics, "sms": sms}
            return self.general.emulate(a, b, timeline=timeline, progress=progress, **settings, **others)
        a, b = self._host_operand(a, "a", self.m), self._host_operand(b, "b", self.n)
        d = np.full((self.m, self.n), np.nan, dtype=self.result_dtype)
        ptx = self.ptx
        start = time.perf_counter()
        try:
            result = emulate_ptx(
                ptx,
                KERNEL_NAME,
                self.grid(int(sms)),
                (self.threads, 1, 1),
                self.emulator_arguments(a, b, d),
                cluster=(self.cluster_ctas, 1, 1),
                shared=self.derivation.shared_bytes,
                seed=seed,
                strict=strict,
                numerics=numerics,
                timeline=timeline,
                progress=progress,
            )
        except EmulationError as error:
            error.args = (legend(self.derivation, str(error)), *error.args[1:])
            raise
        seconds = time.perf_counter() - start
        self.seconds["run"] = seconds
        races = placed(self.derivation, result.races)
        result = dataclasses.replace(result, races=races)
        return GemmEmulation(
            d=d, races=races, conflicts=result.bank_conflicts, timeline=result.timeline, seconds=seconds, result=result
        )

    @cached_property
    def general(self) -> BlackwellGeneralGemm:
        """The same GEMM as one that takes c, bias, alpha and the like. Raises ConfigError for a rung: those are plain."""
        from .blackwell_general import BlackwellGeneralGemm

        if self.rung is not None:
            raise ConfigError(
                (
                    Violation(
                        parameter="rung",
                        value=self.rung.number,
                        rule="the ladder's kernels compute a @ b.T as it is",
                        fix="Gemm(...) takes c, bias, alpha and the like",
                    ),
                )
            )
        problem, given = self.problem, self.config if self.configured else None
        return BlackwellGeneralGemm(
            self.m, self.n, self.k, problem.a, problem.b, problem.d, self.config.arch, problem.a_major, problem.b_major, given
        )  # fmt: skip

    @property
    def result_dtype(self) -> Any:
        """D's type as numpy knows it."""
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16) if self.problem.d == "bf16" else np.dtype(np.float16)

    def emulator_arguments(self, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], sms: int = SMS) -> list[Any]:
        """The kernel's arguments for the emulator, from numpy arrays a (M, K) or, MN-major, its transpose, b and d."""
        from .emulator import TensorMapArgument

        if self.rung is not None and not self.rung.maps:
            return [a, b, d, *map(np.uint32, (self.m, self.n, self.k))]
        maps = self.tensor_maps()
        return [
            TensorMapArgument(maps.a, a),
            TensorMapArgument(maps.b, b),
            bytes(128) if maps.d is None else TensorMapArgument(maps.d, d),
            bytes(128) if maps.d_tail is None else TensorMapArgument(maps.d_tail, d),
            d,
            np.uint64(self.n),
            *map(np.uint32, (self.m, self.n, self.k)),
        ]

    def _host_operand(self, array: Any, name: str, rows: int) -> NDArray[Any]:
        """The operand as it lies in memory: K-major as it is, MN-major as the transpose."""
        if not isinstance(array, np.ndarray):
            raise OperandError(f"{name}: {type(array).__name__} was given; the emulator takes numpy arrays")
        self.check_operand(name, tuple(array.shape), str(array.dtype), rows)
        mn_major = getattr(self.problem, f"{name}_major") == "mn"
        stored = array.T if mn_major else array
        if stored.shape[1] > 1 and stored.strides[1] != stored.itemsize:
            raise OperandError(wrong_major_of(name, mn_major))
        return np.ascontiguousarray(stored)

    def check_operand(self, name: str, shape: tuple[int, ...], dtype: str, rows: int) -> None:
        """Raises OperandError, with everything that is wrong, unless this is operand ``name`` ("a" or "b") of this GEMM."""
        expected = _NUMPY_NAMES[getattr(self.problem, name)]
        axes = "(M, K)" if name == "a" else "(N, K)"
        problems = []
        if shape != (rows, self.k):
            turned = " (this is its transpose: pass the other, d = a @ b.T)" if shape == (self.k, rows) else ""
            problems.append(
                f"shape {shape}, and this GEMM (m={self.m}, n={self.n}, k={self.k}) takes {axes} = {(rows, self.k)}{turned}"
            )
        if dtype != expected:
            problems.append(
                f"dtype {dtype}, and this GEMM takes {expected}: convert it, for instance {name}.astype({expected})"
            )
        if problems:
            raise OperandError(f"{name}: " + "; ".join(problems))


def kinds_of(a: Any, b: Any) -> tuple[str, str]:
    """Majors of two operands, read from the arrays: numpy's, CuPy's or PyTorch's. An array that is contiguous along neither
    dimension counts as K-major, which binding it refuses in words.

    >>> a, b = np.zeros((16, 8), np.float16), np.zeros((8, 24), np.float16).T
    >>> kinds_of(a, b)
    ('k', 'mn')
    """
    from .launch_arrays import majors

    found = []
    for array in (a, b):
        if callable(getattr(array, "stride", None)):
            strides = tuple(int(step) for step in array.stride())  # PyTorch counts elements
        else:
            strides = tuple(int(step) // int(array.dtype.itemsize) for step in array.strides)
        lies = majors((int(array.shape[0]), int(array.shape[1])), (strides[0], strides[1]))
        found.append("mn" if lies == ("mn",) else "k")
    return found[0], found[1]


def multiply(a: Any, b: Any, out: Any = None, stream: Any = None, arch: str = "sm_100a") -> Any:
    """``a @ b.T`` on the current GPU, sizes, formats and majors read from the arrays; the Gemm for them is made once."""
    from .general_call import _RESULTS, _format, _result_of
    from .general_call import multiply as general
    from .quantise import BlockScaled

    if isinstance(a, BlockScaled) or isinstance(b, BlockScaled):
        return general(a, b, out, stream, arch=arch)
    (m, k), (n, _) = (tuple(int(size) for size in array.shape) for array in (a, b))
    formats = _format(a, "a", None, False), _format(b, "b", None, False)
    # 8-bit operands beside 16-bit ones become theirs.
    wanted = _RESULTS[formats[1 if formats[1] in ("bf16", "f16") else 0]] if out is None else _result_of(out)
    return _gemm_for(m, n, k, arch, *formats, wanted, *kinds_of(a, b))(a, b, out=out, stream=stream)


@lru_cache(maxsize=256)
def _gemm_for(m: int, n: int, k: int, arch: str, a: str, b: str, d: str, a_major: str, b_major: str) -> Gemm:
    return Gemm(m, n, k, a, b, d, arch, a_major, b_major)


def wrong_major_of(name: str, mn_major: bool, remedy: str = "np.ascontiguousarray") -> str:
    """The words for an operand that does not lie in memory as its major says, and how to make a copy that does.

    >>> wrong_major_of("b", True)
    'b: its columns are not contiguous, and this kernel reads (N, K) with contiguous columns (b_major="mn"); np.ascontiguousarray(b.T).T is such a copy'
    """
    axes = "(M, K)" if name == "a" else "(N, K)"
    what, major = ("columns", "mn") if mn_major else ("rows along K", "k")
    copy = f"{remedy}({name}.T).T" if mn_major else f"{remedy}({name})"
    return (
        f'{name}: its {what} are not contiguous, and this kernel reads {axes} with contiguous {what} ({name}_major="{major}"); '
        f"{copy} is such a copy"
    )


def placed(derivation: Derivation, races: tuple[Any, ...]) -> tuple[Any, ...]:
    """The races with what lies at their addresses, in the terms of the kernel's tiles."""
    return tuple(
        dataclasses.replace(race, where=describe(derivation, race.address)) if race.space == "shared" else race
        for race in races
    )


def legend(derivation: Derivation, text: str) -> str:
    """``text`` with a line for every shared-memory address in it that the kernel's map explains."""
    import re

    meanings = {number: describe(derivation, int(number, 16)) for number in re.findall(r"\b0x[0-9a-f]+\b", text)}
    return "\n".join([text, *(f"  {number} is {meaning}" for number, meaning in meanings.items() if meaning)])


def waves(gemm: BlackwellKernel) -> list[str]:
    """How the tiles fall on a B200's multiprocessors, in words, and what the selection's model gives."""
    config = gemm.config
    rows, columns = -(-gemm.m // config.tile.m), -(-gemm.n // config.tile.n)
    at_once = SMS // gemm.ctas
    tiles = rows * columns
    useful = gemm.m * gemm.n / (rows * config.tile.m * columns * config.tile.n)
    who = "pairs of SMs" if gemm.ctas == 2 else "SMs"
    return [
        f"   {rows} x {columns} = {tiles} tiles on {at_once} {who}: {tiles / at_once:.2f} waves, {(tiles - 1) % at_once + 1} of {at_once} {who} busy in the last.",
        f"   {useful:.1%} of the multiplied rows and columns lie inside D; {-(-gemm.k // config.tile.k)} k-steps of {config.tile.k} a tile.",
        f"   The selection model gives {modelled_clocks(config):.0f} clocks (it ranks configurations; it was never held against a Blackwell).",
    ]


class RungGemm(BlackwellGemm):
    """A rung of the Blackwell ladder for one problem: same methods, its own kernel.

    ``number`` is 0 to 9; ``parameters`` change the rung's configuration (tile_n=128, say).

    >>> RungGemm(0, 128, 64, 64).source.splitlines()[0][:36]
    '// Rung 0 of the ladder, textbook: T'
    """

    def __init__(
        self,
        number: int,
        m: int,
        n: int,
        k: int,
        dtype: str = "bf16",
        arch: str = "sm_100a",
        a_major: str = "k",
        b_major: str = "k",
        **parameters: object,
    ):
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"rung {number!r}: must be a whole number")
        ladder = rungs(arch, dtype)
        if not 0 <= number < len(ladder):
            raise ValueError(f"rung {number}: the ladder has rungs 0 to {len(ladder) - 1}")
        if dtype not in _NUMPY_NAMES:
            raise ValueError(
                f"rung {number}: type {dtype!r} has no rung, the ladder's are {' and '.join(_NUMPY_NAMES)}; without a rung there is a kernel for it"
            )
        rung = ladder[number]
        fixed = {"cluster_m", "cluster_n", "cluster", "pair", "launch", "accumulators"} | (
            {"stages"} if number < 2 else set()
        )
        if number < 3 and fixed & parameters.keys():
            raise ValueError(
                f"rung {number}: {', '.join(sorted(fixed & parameters.keys()))} cannot be changed, its kernel has no such choice; "
                "from rung 3 on they can"
            )
        config = rung.config.replace(**parameters)
        if n % 8:
            config = config.replace(store="direct")
        if number < 3 and (a_major, b_major) != ("k", "k"):
            raise ValueError(f"rung {number}: takes K-major operands; from rung 3 on both majors are served")
        self.rung = dataclasses.replace(rung, config=config)
        super().__init__(m, n, k, dtype, dtype, dtype, arch, a_major, b_major, config=config)
