"""What users call: a GEMM for a shape, its source, its build, a run on the GPU, a run on the emulator.

Puts the other modules together; how a kernel is derived, compiled, launched or emulated is theirs.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stridewright.kernels.config import ConfigError, Epilogue, GemmConfig, Problem, Violation
from stridewright.kernels.fusion import Fusion
from stridewright.kernels.hopper import Derivation, TensorMaps, derive
from stridewright.kernels.orders import TABLES, packed_table, patch_of

from . import tuned
from .asked import _beyond_plain, _missing_sizes, _refuse_beyond, in_order
from .bind import BoundGemm, OperandError, UnreadableError, bind, multiprocessors_here, wrong_major
from .calls import Calls, call
from .division import Division, divide
from .first_call import forget
from .first_call import gemm as gemm
from .select import SMS, select
from .source import KERNEL_NAME, generate
from .workspace import sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .build import Build
    from .emulator import EmulationResult, Progress
    from .general import GeneralGemm
    from .general_bind import GeneralBound
    from .launch import LoadedKernel
    from .speed_of_light import Device
    from .tune import TuneResult

_NUMPY_NAMES = {"bf16": "bfloat16"}
_NAMES = ("m", "n", "k", "a", "b", "d", "arch", "a_major", "b_major", "config")
_ONE = 1.0


@dataclass(frozen=True)
class GemmEmulation:
    """What the emulator found for one GEMM.

    ``d`` is the result (M, N), ``races`` the races that were seen, ``conflicts`` a record for each instruction that reads or
    writes shared memory, also where its ``wavefronts`` are the ``ideal`` number: ``[one for one in conflicts if
    one.conflicts]`` are those with conflicts. ``timeline`` is the order of events (None if it was not recorded), ``seconds``
    the host time of the run, ``result`` the emulator's whole report.
    """

    d: NDArray[Any]
    races: tuple[Any, ...]
    conflicts: tuple[Any, ...]
    timeline: Any
    seconds: float
    result: EmulationResult


class Gemm:
    """``d = a @ b.T`` for one problem: a is (M, K), b is (N, K), d is (M, N), accumulated in float32.

    Chooses a configuration for the shape unless ``config`` gives one. Making a Gemm costs next to nothing; the source
    is generated, compiled and loaded when first asked for. Raises ConfigError, naming every violated rule, if no
    kernel can do it.

    ``a``, ``b``: formats, bf16, f16, tf32 (float32 arrays, rounded to 10 fraction bits), e4m3 and e5m2 (mixed, too), s8 (sums
    are s32). ``d``: bf16, f16, f32, e4m3, e5m2, s8 (saturating), s32. Blackwell also has u8, e2m3, e3m2 and e2m1 (packed bytes,
    mixed with any 8-bit float), formats with factors of blocks (``codegen.quantise.FORMATS``: mxfp8, mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3,
    mxfp4 and nvfp4; :func:`stridewright.quantise` makes such operands), and an ``a`` of e4m3, e5m2, s8 or u8 that becomes the
    format of a 16-bit ``b``; groups and promotion are Hopper's. A call also takes ``c``, ``bias``, ``alpha``, ``beta``, scales
    and more, and the result is, in this order,

        act(alpha * acc + beta * c + bias) * scale_d,  acc = (a * scale_a) @ (b * scale_b).T

    with scales of rows and of blocks in acc, while one of a whole tensor (one number) is multiplied into alpha: the alpha
    that an ``expression`` names is what alpha and the scales of whole tensors are together. These choose the
    kernel beside what is given here: ``activation`` none, relu, gelu, gelu_tanh, silu or sigmoid;
    ``gated``: neighbouring columns of the product make one of D, act(x[2 j]) * x[2 j + 1]; ``expression``: C++ in place
    of an activation, of x, acc, c, bias, alpha, beta, row, col, whose numbers with a point are float32; ``promote``:
    elements of K after which sums of 8-bit floats are added in float32 (0: never; with scales of blocks always 128);
    ``batch``: so many products, a (batch, M, K) or one for all (M, K); ``groups``: so many groups of rows of A, each
    with its own b (groups, N, K), or with ``group_by="k"`` of K, each with its own d (groups, M, N), told apart by
    ``offsets``; ``relayout="copy"``: operands in a major that the hardware does not read are copied on the device
    before each launch. ``load``: "bursts", or "sustained" for the configuration that is the fastest where this product
    alone runs on and on at the card's power limit (where one was measured for that). ``deterministic``: the same bits
    every time, also where adding up in the order in which sums come was measured to be faster. Rows of D that are in no
    group are not written.

    >>> g = Gemm(m=512, n=512, k=256)
    >>> g.config.problems()
    []
    """

    _calls: Calls | None = None
    """The launches that calls have made, kept for the next ones with the same arrays."""
    _launch: Callable[..., Any] = staticmethod(lambda a, b, out, stream: None)
    """Launches what is kept for these arrays and returns ``out``, or does nothing and returns None."""

    def __new__(cls, *args: Any, config: GemmConfig | None = None, **options: Any) -> Gemm:
        """One of the architecture's own class: what differs between the families stands there."""
        config = config or (args[9] if len(args) > 9 else None)
        asked = options.get("arch", args[6] if len(args) > 6 else None)
        arch = asked or "sm_90a"
        if isinstance(config, GemmConfig):
            arch = config.arch
            if cls is Gemm and asked not in (None, arch):
                raise ConfigError(
                    (
                        Violation(
                            parameter="arch",
                            value=repr(asked),
                            rule=f"and the given configuration is for {arch!r}",
                            fix=f"arch={arch!r} works, or a configuration for {asked}",
                        ),
                    )
                )
        if cls is Gemm and GemmConfig(arch=arch).on_blackwell:
            from .blackwell_general import class_of

            return object.__new__(class_of(dict(zip(_NAMES, args, strict=False)) | options, config))
        if cls is Gemm and _beyond_plain(dict(zip(_NAMES, args, strict=False)) | options, config):
            from .general import GeneralGemm

            return object.__new__(GeneralGemm)
        return object.__new__(cls)

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        a: str = "bf16",
        b: str = "bf16",
        d: str = "bf16",
        arch: str = "sm_90a",
        a_major: str = "k",
        b_major: str = "k",
        config: GemmConfig | None = None,
        *,
        activation: str = "none",
        gated: bool = False,
        expression: str = "",
        promote: int | None = None,
        batch: int | None = None,
        groups: int | None = None,
        group_by: str = "m",
        relayout: str = "refuse",
        fusion: Fusion | None = None,
        load: str = "bursts",
        deterministic: bool = False,
    ):
        tuned.require_load(load)
        # Whatever goes beyond a plain product makes a GeneralGemm; the other families have no kernels for it yet.
        beyond = {
            "activation": activation,
            "gated": gated,
            "expression": expression,
            "promote": promote,
            "batch": batch,
        }
        beyond |= {"groups": groups, "group_by": group_by, "relayout": relayout, "fusion": fusion}
        _refuse_beyond(beyond, arch)
        sizes = {
            name: int(size) if isinstance(size, np.integer) else size for name, size in (("m", m), ("n", n), ("k", k))
        }
        problem = Problem(**sizes, a=a, b=b, d=d, a_major=a_major, b_major=b_major)  # type: ignore[arg-type]
        # Plain stores serve every n, so that without a given configuration only what no kernel can do is reported.
        if config is not None and not isinstance(config, GemmConfig):
            raise TypeError(
                f"config={config!r}: must be a GemmConfig; GemmConfig().replace(tile_n=128, stages=5) makes one"
            )
        probe = GemmConfig(arch=arch, epilogue=Epilogue(store="direct")) if config is None else config
        probe = probe.replace(problem=problem)
        violations = (*_missing_sizes(sizes), *probe.violations())
        if violations:
            raise ConfigError(violations)
        chosen = probe
        self.dependent = True
        """Whether launches may start while the one before them in the stream ends (programmatic dependent launch)."""
        if config is None:
            known = tuned.lookup(problem, arch=arch, load=load)
            chosen = self._choose(problem, arch) if known is None else known.config
            self.dependent = known is None or known.dependent
        self.problem = problem
        self.load, self.deterministic = load, deterministic
        self.config = in_order(chosen, deterministic, config is not None)
        self.configured = config is not None
        self.m, self.n, self.k = sizes["m"], sizes["n"], sizes["k"]
        self._maps: dict[tuple[int, int, int] | None, TensorMaps] = {}
        self.seconds: dict[str, float] = {}
        """Host seconds that generating and compiling took, once they were done."""

    @staticmethod
    def _choose(problem: Problem, arch: str) -> GemmConfig:
        return select(problem, arch)

    def __repr__(self) -> str:
        return f"Gemm(m={self.m}, n={self.n}, k={self.k}, config={self.config.name})"

    @property
    def shape_d(self) -> tuple[int, ...]:
        """D's shape."""
        return (self.m, self.n)

    @property
    def derivation(self) -> Derivation:
        """The constants of the kernel and the layouts they come from."""
        return derive(self.config.replace(problem=_what_matters(self.config)))

    @cached_property
    def source(self) -> str:
        """The CUDA source: self-contained, and the same for every m, n, k of this configuration."""
        start = time.perf_counter()
        source = generate(self.config.replace(problem=_what_matters(self.config)))
        self.seconds["generate"] = time.perf_counter() - start
        return source

    @cached_property
    def build(self) -> Build:
        """The compiled program, from the cache where it was built before."""
        from . import build

        with self.__dict__.setdefault("_building", threading.Lock()):
            made: Build | None = self.__dict__.get("build")  # by a thread that came before
            if made is None:
                source = self.source
                start = time.perf_counter()
                made = build.build(source, arch=self.config.arch, name=f"{self.config.name}.cu")
                self.seconds["compile"] = time.perf_counter() - start
                self.__dict__["build"] = made
        return made

    @property
    def ptx(self) -> str:
        """The PTX that NVRTC made."""
        return self.build.ptx

    @property
    def cubin(self) -> bytes:
        """The machine code that its assembler made."""
        return self.build.cubin

    def explain(self, device: Device | None = None) -> str:
        """The derivation in words: layouts, descriptors, shared memory, registers, bank conflicts, waves, and what bounds the
        problem on ``device`` (``codegen.speed_of_light``; if None an H200, or of a Blackwell kernel a B200).

        >>> Gemm(512, 512, 256).explain().splitlines()[3]
        '1. The tile, and who computes it'
        """
        from .explain import explain

        return explain(self, device)

    def tiles(self) -> int:
        """Output tiles of the problem, counting those that only fill up a cluster.

        >>> Gemm(512, 512, 256, config=GemmConfig()).tiles()
        8
        """
        tile, cluster = self.config.tile, self.config.cluster
        rows, columns = tile.m * cluster.m, tile.n * cluster.n
        m, n = self.kernel_sizes
        return -(-m // rows) * -(-n // columns) * cluster.m * cluster.n

    def multiplies(self) -> int:
        """wgmma instructions that a launch issues: each tile, k-step of 16 and block of 64 rows.

        >>> Gemm(512, 512, 256, config=GemmConfig()).multiplies()
        256
        """
        tile = self.config.tile
        return self.tiles() * -(-self.k // tile.k) * (tile.k // 16) * (tile.m // 64)

    @property
    def kernel_sizes(self) -> tuple[int, int]:
        """What the kernel takes as its m and n: with operands swapped, the problem's n and m."""
        return (self.n, self.m) if self.config.schedule.swap else (self.m, self.n)

    def tensor_maps(self, row_bytes: tuple[int, int, int] | None = None) -> TensorMaps:
        """The tensor maps of this problem, for the pitches (bytes) of the kernel's two operands and of D; dense if None.
        Derived once for each.
        """
        if row_bytes not in self._maps:
            a, b, d = row_bytes or (None, None, None)
            self._maps[row_bytes] = self.derivation.tensor_maps(
                self.m, self.n, self.k, a_row_bytes=a, b_row_bytes=b, d_row_bytes=d
            )
        return self._maps[row_bytes]

    def grid(self, sms: int = SMS) -> tuple[int, int, int]:
        """CTAs to launch: one for each SM, or one for each tile if there are fewer.

        >>> Gemm(8192, 8192, 256).grid()
        (132, 1, 1)
        """
        return (self.division(sms).ctas, 1, 1)

    def division(self, sms: int = SMS) -> Division:
        """How the tiles are divided among the CTAs of a launch.

        >>> Gemm(8192, 8192, 256).division().clusters
        132
        """
        return divide(self.config, *self.kernel_sizes, self.k, sms)

    def order_table(
        self, sms: int = SMS, gpcs: Sequence[int] | None = None, clusters: int | None = None
    ) -> NDArray[Any]:
        """The order of the tiles as the kernel reads it, for the orders that it cannot compute, else empty; of ``launch="placed"``
        behind it the number of a cluster for each SM (``codegen.placement``), ``clusters`` of them, those of ``sms`` multiprocessors
        if not given. ``gpcs``: the GPC of each SM, those of no chip in particular if not given.

        >>> Gemm(512, 512, 256).order_table().size
        0
        """
        schedule, division = self.config.schedule, self.division(sms)
        table = np.zeros(0, dtype=np.uint32)
        if schedule.order in TABLES:
            patch = patch_of(self.config.cluster.m, self.config.cluster.n)
            table = packed_table(schedule.order, division.rows, division.columns, schedule.group_m, patch)
        if schedule.launch == "placed":
            from .placement import any_chip, homes

            table = np.concatenate([table, homes(gpcs or any_chip(), clusters or division.clusters)])
        return table

    # ---- on a GPU ---------------------------------------------------------------------------------------------------

    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        bias: Any = None,
        alpha: Any = _ONE,
        beta: float = 0.0,
        out: Any = None,
        stream: Any = None,
        **others: Any,
    ) -> Any:
        """``a @ b.T`` on the current GPU: a (M, K), b (N, K), result (M, N) in the caller's kind of array, or in
        ``out``.

        Arrays are CuPy's or anything that speaks DLPack (no copy), or numpy's (copied there and back). Rows may be
        further apart than they are long, by a multiple of 16 bytes. The launch goes to ``stream``, or the current one of PyTorch
        for its tensors, else CuPy's, on the arrays' device, and is not waited for unless numpy arrays came in. ``workspace``:
        memory of the caller's for partial sums, ``workspace_bytes`` of it or more (else an own one is kept). ``alpha``: a number or a float32 on the device; ``c`` (M, N); ``bias``
        (N,) for each column or (M, 1) for each row. ``others``: ``scale_a``, ``scale_b`` (one number, one for each row, or one for each
        128 of K, of B also of 128 rows), ``aux`` (M, N) for what the activation is applied to, ``amax`` (a float32 of 0 or more that
        is raised to the largest |D|, NaN not counted), ``scale_d``, ``offsets`` of groups. Raises OperandError for arrays that do not fit,
        LaunchError where there is no GPU of the kernel's architecture.
        """
        if c is None and bias is None and alpha is _ONE and not beta and not others:
            if self._launch(a, b, out, stream) is not None:
                return out
        elif c is not None or bias is not None or beta or not _is_one(alpha) or others.keys() - {"workspace"}:
            return self.general(a, b, c, bias, alpha, beta, out, stream, **others)
        return call(self, a, b, out, stream, others.get("workspace"))

    def bind(
        self, a: Any, b: Any, out: Any = None, dependent: bool | None = None, workspace: Any = None, **others: Any
    ) -> BoundGemm | GeneralBound:
        """The launch for these arrays, prepared: calling it launches and returns the result; nothing is checked or
        encoded again. With ``dependent`` the kernel starts while the one before it in the stream ends, and waits for
        it before it reads or writes an array (programmatic dependent launch). ``workspace``: memory of the caller's, for partial
        sums and numbers of clusters, which every launch clears first; by default an own one is kept with the launch. Two launches
        with the same one must not run at the same time, in two streams. ``others`` as a call takes them.
        """
        if others:
            return self.general.bind(a, b, out, bool(dependent), workspace, **others)
        try:
            return bind(self, a, b, out, self.dependent if dependent is None else dependent, workspace)
        except UnreadableError:
            # Another kernel may read it: MN-major, or after a copy to padded rows.
            return self.general.bind(a, b, out, workspace=workspace)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of device memory that a launch writes beside its result, on the current device (on 132 multiprocessors where
        there is none): partial sums and counters of tiles whose K several CTAs share, or the numbers that placed clusters take.

        >>> Gemm(128, 128, 65536, config=GemmConfig().replace(split_kind="split", parts=4)).workspace_bytes > 4 * 128 * 128
        True
        """
        return sizes(self.division(multiprocessors_here())).bytes

    def tune(self, seconds: float = 20.0, **options: Any) -> TuneResult:
        """Measures configurations on the current GPU for about ``seconds``; this Gemm, and every later one of the problem,
        uses the fastest. ``options`` are :func:`stridewright.codegen.tune.tune`'s. Raises TuneError where there is no GPU
        to measure on.
        """
        from .tune import tune

        result = tune(self.problem, seconds=seconds, arch=self.config.arch, **{"load": self.load, **options})
        for made in ("source", "build", "kernel"):
            self.__dict__.pop(made, None)
        self.config, self._maps, self._calls = in_order(result.config, self.deterministic, False), {}, None
        self.__dict__.pop("_launch", None)
        forget()  # gemm() must find it too
        self.dependent = result.dependent
        return result

    def _require_gpu(self) -> None:
        from . import launch

        usable, reason = launch.gpu_available(self.config.arch)
        if not usable:
            raise launch.LaunchError(
                f"no GPU to run {self.config.arch} on: {reason}. Gemm.emulate(a, b) runs the same PTX on numpy arrays without one"
            )

    @cached_property
    def general(self) -> GeneralGemm:
        """The same GEMM as one that takes c, bias and the like. Raises ConfigError where the family has none."""
        if self.config.on_blackwell:
            _refuse_beyond({"fusion": "given"}, self.config.arch)
        from .general import GeneralGemm

        given = self.config if self.configured else None
        asked: dict[str, Any] = {"load": self.load, "deterministic": self.deterministic}
        return GeneralGemm(self.m, self.n, self.k, arch=self.config.arch, config=given, **asked)

    def _refuse_epilogue(self, c: Any, bias: Any, alpha: Any, beta: float, **others: Any) -> None:
        """Raises ConfigError where something is to be added or scaled: for families without kernels for that."""
        given = {"c": c, "bias": bias, "alpha": None if _is_one(alpha) else alpha, "beta": beta or None, **others}
        _refuse_beyond(given, self.config.arch)

    @cached_property
    def kernel(self) -> LoadedKernel:
        """The kernel, ready to launch."""
        from .launch import LoadedKernel

        cluster = (self.config.cluster.m * self.config.cluster.n, 1, 1)
        made = LoadedKernel(self.cubin, KERNEL_NAME, self.derivation.shared_bytes, cluster=cluster)
        # Of threads that come at once the first one's is kept: it loads once.
        kept: LoadedKernel = self.__dict__.setdefault("kernel", made)
        return kept

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
        """Runs this kernel's PTX on the emulator. ``a`` (M, K) and ``b`` (N, K) are numpy arrays, bfloat16 of
        ml_dtypes; ``others`` are c, bias and the like, as a call takes them.

        D starts as NaN, so an element that the kernel does not write shows. With ``timeline`` the events are recorded and
        given modelled times; ``progress`` is called now and then, and ``progress.remaining(gemm.multiplies())``
        estimates the seconds left. Races and errors name what stands at an
        address in the terms of the kernel's tiles. Raises OperandError for arrays that do
        not fit, DeadlockError and EmulationError for what the kernel does wrong.
        """
        import ml_dtypes

        from .emulator import EmulationError, emulate_ptx
        from .where import legend, placed

        if isinstance(sms, bool) or not isinstance(sms, int | np.integer) or sms < 1:
            raise ValueError(
                f"sms={sms!r}: must be a whole number of multiprocessors, from 1 up; an H100 or H200 has {SMS}"
            )
        settings: dict[str, Any] = {
            "seed": seed,
            "strict": strict,
            "numerics": numerics,
            "sms": sms,
            "timeline": timeline,
        }
        if others:
            return self.general.emulate(a, b, progress=progress, **settings, **others)
        try:
            a, b = self._host_operand(a, "a", self.m), self._host_operand(b, "b", self.n)
        except UnreadableError:
            return self.general.emulate(a, b, progress=progress, **settings)
        d = np.full((self.m, self.n), np.nan, dtype=ml_dtypes.bfloat16)
        arguments = self.emulator_arguments(a, b, d, sms)
        ptx = self.ptx
        start = time.perf_counter()
        try:
            result = emulate_ptx(
                ptx,
                KERNEL_NAME,
                self.grid(sms),
                (self.config.threads, 1, 1),
                arguments,
                cluster=(self.config.cluster.m * self.config.cluster.n, 1, 1),
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
        result = dataclasses.replace(result, races=placed(self.derivation, result.races))
        return GemmEmulation(
            d=d,
            races=result.races,
            conflicts=result.bank_conflicts,
            timeline=result.timeline,
            seconds=seconds,
            result=result,
        )

    def emulator_arguments(self, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], sms: int = SMS) -> list[Any]:
        """The kernel's arguments for the emulator, from numpy arrays a (M, K), b (N, K) and d (M, N), for the grid that
        ``sms`` multiprocessors get. A workspace for partial sums starts as NaN, or as zeros where they are added up in
        place.
        """
        from .emulator import TensorMapArgument

        maps, division = self.tensor_maps(), self.division(sms)
        start = 0.0 if self.config.split.reduce == "atomic" else np.nan
        map_d: Any = bytes(128) if maps.d is None else TensorMapArgument(maps.d, d)
        map_tail: Any = bytes(128) if maps.d_tail is None else TensorMapArgument(maps.d_tail, d)
        first, second = (b, a) if self.config.schedule.swap else (a, b)
        return [
            TensorMapArgument(maps.a, first),
            TensorMapArgument(maps.b, second),
            map_d,
            map_tail,
            d,
            np.uint64(self.n),
            *map(np.uint32, (*self.kernel_sizes, self.k)),
            order if (order := self.order_table(sms)).size else None,
            np.full(division.partial_floats, start, dtype=np.float32) if division.shared_blocks else None,
            np.zeros(division.counters, dtype=np.uint32) if division.counters else None,
            np.uint32(division.shared_blocks),
        ]

    def _host_operand(self, array: Any, name: str, rows: int) -> NDArray[Any]:
        if not isinstance(array, np.ndarray):
            raise OperandError(f"{name}: {type(array).__name__} was given; the emulator takes numpy arrays")
        self.check_operand(name, tuple(array.shape), str(array.dtype), rows)
        if any(stride < 0 and size > 1 for size, stride in zip(array.shape, array.strides, strict=True)):
            strides = tuple(stride // array.itemsize for stride in array.strides)
            remedy = f"np.ascontiguousarray({name}) makes a copy that has none"
            raise OperandError(f"{name}: strides {strides}: must not be negative; {remedy}")
        if array.shape[1] > 1 and array.strides[1] != array.itemsize:
            raise UnreadableError(wrong_major(name, "np.ascontiguousarray"))
        return np.ascontiguousarray(array)

    def check_operand(self, name: str, shape: tuple[int, ...], dtype: str, rows: int) -> None:
        """Raises OperandError, with everything that is wrong, unless this is operand ``name`` ("a" or "b") of this GEMM."""
        wanted = (rows, self.k)
        expected = _NUMPY_NAMES[getattr(self.problem, name)]
        axes = "(M, K)" if name == "a" else "(N, K)"
        problems = []
        if shape != wanted:
            turned = (
                " (this is its transpose: pass the other, d = a @ b.T)"
                if shape == wanted[::-1] and shape != wanted
                else ""
            )
            problems.append(
                f"shape {shape}, and this GEMM (m={self.m}, n={self.n}, k={self.k}) takes {axes} = {wanted}{turned}"
            )
        if dtype != expected:
            problems.append(
                f"dtype {dtype}, and this GEMM takes {expected}: convert it, for instance {name}.astype({expected})"
            )
        if problems:
            raise OperandError(f"{name}: " + "; ".join(problems))


def _is_one(alpha: Any) -> bool:
    return isinstance(alpha, int | float) and alpha == 1 and alpha is not True


def _what_matters(config: GemmConfig) -> Problem:
    """What of the problem the source depends on: types and majors, and the sizes that are baked in."""
    m, n, k = (getattr(config.problem, name) if name in config.specialize else None for name in "mnk")
    return dataclasses.replace(config.problem, m=m, n=n, k=k)
