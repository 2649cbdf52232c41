"""One GEMM from generation to verdict, timed step by step, and its report for people and for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import console

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from stridewright.codegen.check import Check
    from stridewright.codegen.emulator import BankConflicts, Progress
    from stridewright.codegen.emulator.timeline import Timeline
    from stridewright.codegen.gemm import Gemm
    from stridewright.codegen.general import GeneralGemm

    from .general_run import Options

_WARM_UP, _TIMED = 3, 20


@dataclass
class Run:
    """What happened. ``check`` is None where nothing could be compared; ``unchecked`` then says why."""

    gemm: Gemm
    where: str
    seconds: dict[str, float] = field(default_factory=dict)
    check: Check | None = None
    unchecked: str = ""
    fault: str = ""
    races: list[Any] = field(default_factory=list)
    conflicts: list[BankConflicts] = field(default_factory=list)
    instructions: int | None = None
    tflops: float | None = None
    exact: bool | None = None
    timeline: Timeline | None = None
    amax: float | None = None

    @property
    def right(self) -> bool:
        """Whether the result was compared and is right, with no race and no fault."""
        return (
            self.check is not None
            and self.check.passed
            and not self.races
            and not self.fault
            and self.exact is not False
        )

    def report(self, reason: str) -> dict[str, Any]:
        """The object that --json prints."""
        config = self.gemm.config
        problem = {name: getattr(self.gemm, name) for name in ("m", "n", "k")}
        check = self.check
        return {
            **problem,
            "arch": config.arch,
            "on": self.where,
            "reason": self.unchecked or self.fault or reason,
            "config": config,
            "name": config.name,
            "seconds": self.seconds,
            "checked": check is not None,
            "right": self.right,
            "relative_error": check and check.relative_error,
            "max_abs_error": check and check.max_abs_error,
            "elements_outside_bound": check and check.outside,
            "worst": check and check.worst,
            "bit_exact": self.exact,
            "amax": self.amax,
            "fault": self.fault or None,
            # Null on a GPU: nothing looks for them there.
            "races": self.races if self.where == "emulator" else None,
            "bank_conflicts": (
                [conflict_record(record) for record in self.conflicts] if self.where == "emulator" else None
            ),
            "instructions": self.instructions,
            "tflops": self.tflops,
            **_resources(self.gemm),
        }


def _resources(gemm: Gemm) -> dict[str, Any]:
    build = getattr(gemm, "build", None)
    if build is None or not build.kernels:
        return {}
    used = build.kernels[0]
    return {"registers": used.registers, "cached": build.cached, "compiler": build.compiler}


def require_seed(seed: int) -> None:
    """ValueError unless numpy takes this seed.

    >>> require_seed(0)
    """
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be a whole number from 0 up")


def choose(on: str, arch: str | None) -> tuple[str, str, str]:
    """Where to run, why, and for which architecture. ValueError where a GPU was asked for and there is none for it."""
    from stridewright.codegen import launch

    if arch == "":
        raise ValueError("--arch '': must name an architecture, for example sm_90a")
    if on == "emulator":
        return "emulator", "as asked", arch or "sm_90a"
    usable, reason = launch.gpu_available(arch)
    if usable:
        return "gpu", reason, arch or launch.device_arch()
    if on == "gpu":
        raise ValueError(f"--on gpu: {reason}; --on emulator runs the same PTX without one")
    return "emulator", reason, arch or "sm_90a"


@contextlib.contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


@contextlib.contextmanager
def _status(text: str, wanted: bool) -> Iterator[None]:
    if not (wanted and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextlib.contextmanager
def emulation_progress(wanted: bool, gemm: Gemm | None = None) -> Iterator[Callable[[Progress], None] | None]:
    """A bar with the time that is left, on a terminal; None anywhere else. Counted by the multiplies of ``gemm``, or without
    one by the blocks that have ended.
    """
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    multiplies = None if gemm is None else gemm.multiplies()
    text = TextColumn("running on the emulator")
    columns = (text, BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=multiplies)

        def report(progress: Progress) -> None:
            if multiplies is None:
                bar.update(task, completed=progress.ended, total=progress.blocks)
            else:
                bar.update(task, completed=progress.multiplies)

        yield report


def make_inputs(gemm: Gemm, values: str, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A (M, K) and B (N, K) in the problem's formats: standard normal, or integers -3..3 whose sums are exact."""
    import numpy as np

    from .machine_commands import numpy_type

    _require_memory(gemm)
    rng = np.random.default_rng(seed)
    problem = gemm.config.problem
    made = []
    for rows, dtype, major in ((gemm.m, problem.a, problem.a_major), (gemm.n, problem.b, problem.b_major)):
        shape = (rows, gemm.k)
        drawn = rng.integers(-3, 4, shape) if values == "integers" else rng.standard_normal(shape, np.float32)
        made.append(drawn.astype(numpy_type(dtype), order="F" if major == "mn" else "C"))
    return made[0], made[1]


def _require_memory(gemm: Gemm) -> None:
    # Inputs are drawn as float32 or int64 and the largest of them is held beside its rounded form.
    needed = 10 * gemm.k * max(gemm.m, gemm.n) + 2 * (gemm.m + gemm.n) * gemm.k + 2 * gemm.m * gemm.n
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise ValueError(
            f"m={gemm.m}, n={gemm.n}, k={gemm.k}: A, B and D need {needed / 2**30:.0f} GiB of host memory to be drawn and "
            f"checked, and there are {there / 2**30:.0f} GiB; Gemm(...) on your own arrays has no such limit"
        )


def run(
    make: Callable[[], Gemm],
    where: str,
    values: str = "normal",
    seed: int = 0,
    progress: bool = False,
    timeline: bool = False,
    options: Options | None = None,
) -> Run:
    """Generate, compile, run and check. A fault that the emulator finds is recorded; anything else is raised.
    ``timeline``: whether the emulator records one.
    """
    from stridewright.codegen.general import GeneralGemm

    from . import general_run

    options = options or general_run.Options()
    seconds: dict[str, float] = {}
    drawn: Any = None
    with _status("generating and compiling", progress):
        with _timed(seconds, "generate"):
            gemm = ran = make()
        if isinstance(gemm, GeneralGemm):
            drawn, ran = _drawn(gemm, options, values, seed)
        with _timed(seconds, "generate"):
            _ = ran.source
        with _timed(seconds, "compile"):
            _ = ran.cubin
    # What is reported is the kernel that runs: of a call with a bias another than of one without.
    done = Run(ran, where, seconds)
    if isinstance(gemm, GeneralGemm):
        return _run_general(done, gemm, options, values, seed, drawn)
    a, b = make_inputs(gemm, values, seed)
    if where == "emulator":
        with emulation_progress(progress, gemm) as report:
            d = _emulate(done, a, b, timeline, report)
    else:
        with _status("running on the gpu", progress):
            d = _launch(done, a, b)
    if d is None:
        done.unchecked = "the run did not come to an end: " + done.fault.splitlines()[0]
        return done
    with _status("checking against float64", progress), _timed(seconds, "check"):
        _check(done, d, a, b, values)
    return done


def _drawn(gemm: GeneralGemm, options: Options, values: str, seed: int) -> tuple[Any, GeneralGemm]:
    """What is drawn for a GEMM beyond a plain product, and the one whose kernel runs on it."""
    from stridewright.codegen.blackwell_scaled import BlackwellScaledGemm

    from . import general_run, scaled_run

    if isinstance(gemm, BlackwellScaledGemm):
        operands = scaled_run.operands(gemm, options, values, seed)
        return operands, gemm.variant_for(operands[0], operands[1], **operands[2])
    case, arrays = general_run.draw(gemm, options, values, seed)
    return (case, arrays), gemm.variant_for(arrays.a, arrays.b, **arrays.others)


def _run_general(done: Run, gemm: GeneralGemm, options: Options, values: str, seed: int, drawn: Any) -> Run:
    """What goes beyond a plain product: run and checked by ``general_run``."""
    from stridewright.codegen.blackwell_scaled import BlackwellScaledGemm
    from stridewright.codegen.emulator import EmulationError, UnsupportedInstruction

    from . import general_run, scaled_run

    try:
        if isinstance(gemm, BlackwellScaledGemm):
            found = scaled_run.run(gemm, options, done.where, values, seed, drawn)
        else:
            found = general_run.run(gemm, options, done.where, values, seed, drawn)
    except UnsupportedInstruction:
        raise
    except EmulationError as error:
        done.fault = str(error)
        done.unchecked = "the run did not come to an end: " + done.fault.splitlines()[0]
        return done
    done.seconds |= found["seconds"]
    done.check, done.races, done.conflicts = found["check"], found["races"], found["conflicts"]
    done.instructions, done.amax = found["instructions"], found.get("amax")
    return done


def _check(done: Run, d: Any, a: Any, b: Any, values: str) -> None:
    from stridewright.codegen.check import check_gemm

    module = None
    if done.where == "gpu":
        # Large results are checked where they lie: float64 on the GPU is a hundred times faster.
        import cupy

        module = cupy
        a, b = cupy.asarray(a), cupy.asarray(b)
    done.check = check_gemm(d, a, b, output=done.gemm.config.problem.d, array_module=module)
    if values == "integers" and done.check.passed:
        # Sums of small integers are exact in float32, so the result is the exact one rounded once.
        exact = (a.astype("float32") @ b.astype("float32").T).astype(d.dtype).astype("float32")
        done.exact = bool((exact == d.astype("float32")).all())


def write_timeline(path: Path, timeline: Timeline, quiet: bool) -> None:
    """Writes a timeline in the Trace Event Format; unless ``quiet``, prints where the tensor core waits."""
    path.write_text(json.dumps(timeline.to_chrome_trace()), encoding="utf-8")
    if not quiet:
        console().print(f"{timeline}\n{path}: for chrome://tracing or ui.perfetto.dev", markup=False, highlight=False)


def _emulate(done: Run, a: Any, b: Any, timeline: bool, report: Callable[[Progress], None] | None = None) -> Any:
    from stridewright.codegen.emulator import EmulationError, UnsupportedInstruction

    try:
        with _timed(done.seconds, "run"):
            wanted: dict[str, Any] = {"timeline": True} if timeline else {}
            if report is not None:
                wanted["progress"] = report
            result = done.gemm.emulate(a, b, **wanted)
    except UnsupportedInstruction:
        raise
    except EmulationError as error:
        done.fault = str(error)
        return None
    done.races = list(result.races)
    done.conflicts = list(result.conflicts)
    done.instructions = result.result.instructions
    if timeline:
        done.timeline = result.timeline
    # Reading and translating the PTX is the emulator's compiling, told apart from running.
    done.seconds["translate"] = result.result.translate_seconds
    done.seconds["run"] = result.result.seconds
    return result.d


def _launch(done: Run, a: Any, b: Any) -> Any:
    import cupy

    left, right = cupy.asarray(a), cupy.asarray(b)
    with _timed(done.seconds, "first_launch"):
        d = done.gemm(left, right)
        cupy.cuda.Device().synchronize()
    bound = done.gemm.bind(left, right, d)  # checked and encoded once, so that launches follow one another
    for _ in range(_WARM_UP):
        bound.launch()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(_TIMED):
        bound.launch()
    end.record()
    end.synchronize()
    done.seconds["run"] = float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3 / _TIMED
    done.tflops = 2 * done.gemm.m * done.gemm.n * done.gemm.k / done.seconds["run"] / 1e12
    return d


def conflict_record(record: BankConflicts) -> dict[str, Any]:
    """One instruction's bank conflicts as an object: the record's own fields, its ratio and its conflicts."""
    return {**dataclasses.asdict(record), "ratio": record.ratio, "conflicts": record.conflicts}


def conflict_text(record: BankConflicts) -> str:
    """One instruction's bank conflicts in a line."""
    place = f"{record.file}:{record.line} (PTX line {record.ptx_line})"
    return (
        f"{place}: {record.kind} of {record.bytes} bytes, {record.wavefronts} wavefronts where {record.ideal} would do"
    )


def show(run: Run, reason: str, out: Console) -> None:
    """Print the report for people."""

    def line(name: str, text: str, style: str | None = None) -> None:
        out.print(f"  {name:<15}{text}", markup=False, style=style)

    gemm = run.gemm
    problem = gemm.config.problem
    operands = problem.a if problem.a == problem.b else f"{problem.a} x {problem.b}"
    out.print(
        f"D[{gemm.m},{gemm.n}] = A[{gemm.m},{gemm.k}] B[{gemm.n},{gemm.k}]^T, {operands} -> {problem.d}", markup=False
    )
    line("kernel", gemm.config.name)
    used = _resources(gemm)
    if used:
        source = f"{len(gemm.source.splitlines())} lines of CUDA, {used['registers']} registers"
        line("generated", f"{source}, {used['compiler']}{', from the cache' if used['cached'] else ''}")
    line(
        "ran on",
        "the GPU: " + reason if run.where == "gpu" else f"the emulator ({reason}): its PTX, instruction by instruction",
    )
    if run.check is not None:
        verdict = "right" if run.check.passed else f"WRONG in {run.check.outside} of {run.check.elements} elements"
        line("result", verdict, "green" if run.check.passed else "red")
        errors = f"relative {run.check.relative_error:.3g}, largest {run.check.max_abs_error:.3g}"
        line(
            "error",
            f"{errors}, against float64; every element within its bound"
            if run.check.passed
            else f"{errors}; {run.check.worst}",
        )
    if run.exact is not None:
        line(
            "bit for bit",
            "equal to the exact sums rounded once" if run.exact else "NOT equal to the exact sums",
            None if run.exact else "red",
        )
    if run.amax is not None:
        line("amax", f"{run.amax:.6g}, the largest |D| before it is rounded to {problem.d}")
    if run.where == "emulator":
        line("fault", run.fault or "none: no deadlock, no access outside its memory", "red" if run.fault else None)
        line("races", f"{len(run.races)}" if run.races else "none found", "red" if run.races else None)
        for race in run.races[:5]:
            line("", str(race))
        _show_conflicts(run, line)
    line("seconds", ", ".join(f"{name} {value:.3g}" for name, value in run.seconds.items()))
    if run.tflops is not None:
        line("speed", f"{run.tflops:.1f} TFLOP/s over {_TIMED} launches in a row, inputs in cache where they fit")


def _accesses(count: int) -> str:
    return "1 access" if count == 1 else f"{count} accesses"


def _show_conflicts(run: Run, line: Callable[[str, str], None]) -> None:
    conflicting = [record for record in run.conflicts if record.conflicts]
    if not run.conflicts:
        line("bank conflicts", "no shared-memory access was counted")
    elif not conflicting:
        line("bank conflicts", f"none in {_accesses(len(run.conflicts))} of the source")
    else:
        line("bank conflicts", f"in {len(conflicting)} of {_accesses(len(run.conflicts))} of the source")
        for record in conflicting[:8]:
            line("", conflict_text(record))
