"""Everything there is for an architecture, run once and judged: what the first person with such a GPU starts.

For Blackwell that is every rung of the ladder and a sample of configurations, for Hopper a sample of configurations. On
a GPU each case runs in a process of its own, so that one that hangs or dies takes no other with it: results into poisoned
outputs, small integers bit for bit and normal numbers within their bound, several launches in a row, then its time beside
cuBLASLt's first choice where that library is present. On the emulator the same cases run small, in strict mode.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stridewright.kernels.config import GemmConfig, Problem

if TYPE_CHECKING:
    from .gemm import Gemm

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a")

PATIENCE_SECONDS = 300.0
"""What a case may take on a GPU, compiling and measuring included. A kernel that hangs is killed with its process."""

EDGES = [(1, 8, 8), (130, 72, 72), (257, 136, 200), (333, 129, 512), (513, 264, 1000), (1000, 1000, 1000)]
"""Shapes whose results are compared bit for bit on a GPU: no tile divides them, and TMA cannot store one of them."""

EMULATED = [(130, 72, 72), (333, 129, 200)]

TIMED = (4096, 4096, 4096)

_LAUNCHES = 5
"""Launches in a row of each shape, each into an output full of NaN: what depends on chance shows again and again."""


@dataclass(frozen=True)
class Case:
    """A kernel to check: its name, and what makes it for a shape."""

    name: str
    make: Callable[[int, int, int], Gemm]


@dataclass(frozen=True)
class Finding:
    """What happened to one case on one shape. ``what``: "integers" (bit for bit), "normal" (within the bound of every
    element) or "time"; ``right`` is None where nothing was compared.
    """

    case: str
    what: str
    shape: tuple[int, int, int]
    right: bool | None
    words: str = ""
    config: str = ""
    relative_error: float | None = None
    us: float | None = None
    tflops: float | None = None
    to_cublas: float | None = None
    to_cublas_low: float | None = None
    to_cublas_high: float | None = None
    seconds: float | None = None


def cases(arch: str) -> list[Case]:
    """What there is to check for an architecture. ValueError for one that has no kernels.

    >>> [case.name for case in cases("sm_100a")][:2], len(cases("sm_100a")) > 30
    (['rung 0, textbook', 'rung 1, TMA'], True)
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"--arch {arch}: has no kernels here; there are {', '.join(ARCHITECTURES)}")
    return list(_hopper_cases() if arch == "sm_90a" else _blackwell_cases(arch))


def _hopper_cases() -> Iterator[Case]:
    base = GemmConfig()
    for parameters in (
        {},
        {"tile_m": 64, "tile_n": 64, "consumers": 1, "stages": 8},
        {"schedule_kind": "pingpong", "tile_n": 128, "stages": 6},
        {"schedule_kind": "pingpong", "tile_n": 176, "cluster_m": 2},
        {"tile_n": 128, "cluster_n": 2, "stages": 6},
    ):
        yield _configured(base.replace(**parameters))
    yield _chosen("sm_90a")


def _blackwell_cases(arch: str) -> Iterator[Case]:
    from stridewright.kernels.blackwell_ladder import rungs

    from .blackwell_select import with_most_stages

    for rung in rungs(arch):
        yield _rung(rung.number, rung.title, arch)
    base = GemmConfig(arch=arch).replace(accumulators=2)
    forms = [(False, 64), (False, 128), (True, 128), (True, 256)]
    widths = itertools.cycle((256, 64, 192, 32, 128, 16, 224, 96))
    majors = itertools.product(("k", "mn"), repeat=2)
    for number, ((pair, m), (a, b), launch) in enumerate(itertools.product(forms, list(majors), ("static", "clc"))):
        dtype = ("bf16", "f16")[number % 3 == 2]
        problem = Problem(a=dtype, b=dtype, d=dtype, a_major=a, b_major=b)  # type: ignore[arg-type]
        plain = base.replace(
            pair=pair, tile_m=m, tile_n=next(widths), launch=launch, accumulators=1 + (number % 4 > 0), problem=problem
        )
        config = with_most_stages(plain, 8)
        if config is None:
            raise AssertionError(f"{plain.name} fits no ring")
        yield _configured(config)
    for m, n in ((2, 1), (1, 2), (2, 2), (4, 1)):
        for pair, tile_m, tile_n in ((False, 128, 128), (True, 256, 256)):
            yield _configured(
                base.replace(pair=pair, tile_m=tile_m, tile_n=tile_n, cluster_m=m, cluster_n=n, launch="clc")
            )
    yield _chosen(arch)


def _rung(number: int, title: str, arch: str) -> Case:
    from .blackwell_gemm import RungGemm

    return Case(f"rung {number}, {title}", lambda m, n, k: RungGemm(number, m, n, k, arch=arch))


def _configured(config: GemmConfig) -> Case:
    def make(m: int, n: int, k: int) -> Gemm:
        from .gemm import Gemm

        problem = config.problem
        # MN-major operands want sizes that are multiples of 8, as rows of K do.
        m, n = (m + 7) // 8 * 8 if problem.a_major == "mn" else m, (n + 7) // 8 * 8 if problem.b_major == "mn" else n
        made = config.replace(store="direct") if n % 8 else config
        return Gemm(
            m, n, k, problem.a, problem.b, problem.d, config.arch, problem.a_major, problem.b_major, config=made
        )

    return Case(config.name, make)


def _chosen(arch: str) -> Case:
    def make(m: int, n: int, k: int) -> Gemm:
        from .gemm import Gemm

        return Gemm(m, n, k, arch=arch)

    return Case("the configuration chosen for each shape", make)


# ---- on the emulator ------------------------------------------------------------------------------------------------


def check_emulated(case: Case) -> list[Finding]:
    """The case on two small ragged shapes, in strict mode: the exact product bit for bit, no race, no rule broken."""
    import numpy as np

    from .emulator import EmulationError

    found = []
    for seed, shape in enumerate(EMULATED):
        start = time.perf_counter()
        gemm = case.make(*shape)
        a, b, exact = _integers(gemm)
        right, words = True, ""
        try:
            emulation = gemm.emulate(a, b, seed=seed, sms=4)
        except EmulationError as error:
            right, words = False, str(error)
        else:
            wrong = int(np.count_nonzero(emulation.d.view(np.uint16) != exact.view(np.uint16)))
            if wrong or emulation.races:
                right = False
                words = f"{wrong} of {exact.size} elements are wrong" if wrong else str(emulation.races[0])
        sizes = (gemm.m, gemm.n, gemm.k)
        found.append(
            Finding(case.name, "integers", sizes, right, words, gemm.config.name, seconds=time.perf_counter() - start)
        )
    return found


def _integers(gemm: Gemm) -> tuple[Any, Any, Any]:
    """A, B as the GEMM takes them, and the exact product rounded once: integers from -4 to 4, whose sums float32 holds."""
    import numpy as np

    from .gpu_values import element_type

    random = np.random.default_rng(1)
    problem = gemm.problem
    a, b = (
        random.integers(-4, 5, (rows, gemm.k)).astype(element_type(problem.a), order="F" if major == "mn" else "C")
        for rows, major in ((gemm.m, problem.a_major), (gemm.n, problem.b_major))
    )
    # Whole numbers below 2^24: exact in float32, which is several times faster than float64.
    return a, b, (a.astype(np.float32) @ b.astype(np.float32).T).astype(element_type(problem.d))


# ---- on a GPU -------------------------------------------------------------------------------------------------------


def check_on_gpu(case: Case, timed: bool = True) -> list[Finding]:
    """The case on a GPU of its architecture: ragged shapes bit for bit, a large one within its bound, and its time."""
    found = [_exact_on_gpu(case, shape) for shape in EDGES]
    found.append(_normal_on_gpu(case, TIMED))
    if timed and all(one.right for one in found):
        found.append(_time_on_gpu(case, TIMED))
    return found


def _device_operands(gemm: Gemm, a: Any, b: Any) -> tuple[Any, Any]:
    import cupy

    left, right = (
        cupy.asarray(array.T).T if major == "mn" else cupy.asarray(array)
        for array, major in ((a, gemm.problem.a_major), (b, gemm.problem.b_major))
    )
    return left, right


def _exact_on_gpu(case: Case, shape: tuple[int, int, int]) -> Finding:
    import cupy

    from .gpu_values import poison

    gemm = case.make(*shape)
    a, b, exact = _integers(gemm)
    left, right = _device_operands(gemm, a, b)
    wanted = cupy.asarray(exact).view(cupy.uint16)
    out = cupy.empty_like(cupy.asarray(exact))
    bound = gemm.bind(left, right, out)
    wrong = []
    for _ in range(_LAUNCHES):
        poison(out)
        bound.launch()
        cupy.cuda.Device().synchronize()
        wrong.append(int((out.view(cupy.uint16) != wanted).sum()))
    sizes = (gemm.m, gemm.n, gemm.k)
    words = "" if not any(wrong) else f"wrong elements of {exact.size} in {_LAUNCHES} launches: {wrong}"
    return Finding(case.name, "integers", sizes, not any(wrong), words, gemm.config.name)


def _normal_on_gpu(case: Case, shape: tuple[int, int, int]) -> Finding:
    import cupy

    from . import gpu_values

    gemm = case.make(*shape)
    buffers = gpu_values.random_buffers(*shape, gemm.problem.a, seed=3)
    # The check reads rows of K; an MN-major kernel gets the same values transposed.
    a, b = (
        cupy.ascontiguousarray(array.T).T if major == "mn" else array
        for array, major in ((buffers.a, gemm.problem.a_major), (buffers.b, gemm.problem.b_major))
    )
    gpu_values.poison(buffers.d)
    gemm.bind(a, b, buffers.d).launch()
    cupy.cuda.Device().synchronize()
    check = gpu_values.check_on_gpu(buffers, gemm.problem.a)
    return Finding(
        case.name, "normal", shape, check.passed, check.worst, gemm.config.name, relative_error=check.relative_error
    )


def _time_on_gpu(case: Case, shape: tuple[int, int, int]) -> Finding:
    import cupy

    from . import cublaslt, measure

    m, n, k = shape
    gemm = case.make(*shape)
    dtype = gemm.problem.a
    sets = measure.rotation(m, n, k, dtype)
    bound = []
    for one in sets:
        a, b = (
            cupy.ascontiguousarray(array.T).T if major == "mn" else array
            for array, major in ((one.a, gemm.problem.a_major), (one.b, gemm.problem.b_major))
        )
        bound.append(gemm.bind(a, b, one.d))
    ours = measure.GraphLoop([one.launch for one in bound])
    try:
        theirs = measure.GraphLoop(
            cublaslt.CublasLtGemm(m, n, k, cublaslt.heuristics(m, n, k, dtype)[0], dtype).launches(sets)
        )
    except cublaslt.CublasLtError as error:
        us = min(ours.replay_us() for _ in range(5))
        words = f"no cuBLASLt beside it: {error}"
        return Finding(case.name, "time", shape, None, words, gemm.config.name, us=us, tflops=2e-6 * m * n * k / us)
    pairs = measure.measure_pairs(ours, theirs)
    # measure_pairs gives second over first: cuBLASLt's time over ours.
    return Finding(
        case.name, "time", shape, None, "", gemm.config.name, us=pairs.first_us, tflops=2e-6 * m * n * k / pairs.first_us,
        to_cublas=pairs.ratio, to_cublas_low=pairs.low, to_cublas_high=pairs.high,
    )  # fmt: skip


def check_in_process(arch: str, number: int, timed: bool) -> list[Finding]:
    """One case in a process of its own. What it dies of, or that it took too long, is its finding."""
    name = cases(arch)[number].name
    command = [sys.executable, "-m", "stridewright.codegen.arch_check", arch, str(number), "time" if timed else ""]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        words = f"did not end within {PATIENCE_SECONDS:.0f} seconds: the kernel hangs, or its last launch does"
        return [Finding(name, "integers", EDGES[0], False, words)]
    if ran.returncode:
        words = " ".join(ran.stderr.strip().splitlines()[-3:]) or f"the process ended with status {ran.returncode}"
        return [Finding(name, "integers", EDGES[0], False, words)]
    records = json.loads(ran.stdout.splitlines()[-1])
    return [Finding(**{**record, "shape": tuple(record["shape"])}) for record in records]


def surroundings(arch: str, where: str) -> dict[str, Any]:
    """What a record says of the machine: the GPU and its driver, the compiler, the library beside it."""
    from . import nvrtc

    found: dict[str, Any] = {
        "arch": arch,
        "on": where,
        "python": platform.python_version(),
        "compiler": nvrtc.library().identity,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if where == "gpu":
        from . import cublaslt, nvml

        gpu = nvml.gpu_or_none()
        found["gpu"] = None if gpu is None else gpu.describe()
        try:
            found["cublaslt"] = cublaslt.version()
        except cublaslt.CublasLtError as error:
            found["cublaslt"] = f"missing: {error}"
    return found


def main(arguments: list[str]) -> None:
    """One case on the GPU, its findings as a line of JSON: what ``check_in_process`` starts."""
    arch, number, timed = arguments
    found = check_on_gpu(cases(arch)[int(number)], timed == "time")
    sys.stdout.write("\n" + json.dumps([dataclasses.asdict(one) for one in found]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
