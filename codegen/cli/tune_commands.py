"""The command tune: measures configurations of one shape, or of a file of shapes, and keeps the fastest."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .gemm_commands import Arch, Dtype, Load, LoadName
from .output import RIGHT, WRONG, console, fail, guarded, print_json

if TYPE_CHECKING:
    from stridewright.codegen.tune import TuneProgress, TuneResult
    from stridewright.codegen.tune_state import Outcome
    from stridewright.kernels.config import Problem

_SHOWN = 10
_SHOWN_CANDIDATES = 24
_INTERRUPTED = 130


def read_shapes(path: Path) -> list[tuple[str, int, int, int]]:
    """(name, m, n, k) of a file: JSON as benchmarks/shapes.json has it, or lines ``M N K`` or ``NAME M N K``, where # begins a
    comment. ValueError names the line.
    """
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith(("{", "[")):
        found: Any = json.loads(text)
        listed = found["shapes"] if isinstance(found, dict) else found
        try:
            return [(str(one.get("name", "")), int(one["m"]), int(one["n"]), int(one["k"])) for one in listed]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f'{path}: a shape must be an object with "m", "n" and "k": {error}') from error
    shapes = []
    for number, line in enumerate(text.splitlines(), 1):
        words = [word for text in line.partition("#")[0].split() for word in _sizes_of(text)]
        if not words:
            continue
        name = words.pop(0) if len(words) == 4 else ""
        if len(words) != 3 or not all(word.isdigit() for word in words):
            raise ValueError(f"{path}:{number}: {line!r} must be M N K or NAME M N K, for example 4096 4096 4096")
        shapes.append((name, int(words[0]), int(words[1]), int(words[2])))
    return shapes


def _sizes_of(word: str) -> list[str]:
    return word.split("x") if re.fullmatch(r"\d+(x\d+)+", word) else [word]


def outcome_lines(outcomes: Sequence[Outcome], most: int = _SHOWN) -> list[str]:
    """The fastest ``most`` candidates, a line each, then what the others came to: how many, why, and the first of them."""
    measured = [outcome for outcome in outcomes if outcome.status == "measured"]
    lines = []
    best = measured[0].us if measured else None
    for outcome in measured[:most]:
        times = f"{outcome.us:9.2f} us" if outcome.us else "           "
        slower = outcome.ratio or ((outcome.us or 0.0) / best if best else 0.0)
        how = "in rounds" if outcome.ratio else "at first"
        lines.append(f"{times}  x{slower:5.3f} {how:9}  {outcome.candidate.key}")
    if len(measured) > most:
        rest = measured[most:]
        lines.append(f"{len(rest)} more were measured, the slowest x{(rest[-1].us or 0.0) / (best or 1.0):.2f}")
    reasons: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.status != "measured":
            kind = outcome.reason if outcome.status != "invalid" else outcome.reason.split("=")[0]
            reasons.setdefault((outcome.status, kind[:80]), []).append(outcome)
    for (status, _), group in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(group)} {status}: {group[0].reason[:160]} (first {group[0].candidate.key})")
    return lines


@contextlib.contextmanager
def tuning_bar(wanted: bool, title: str) -> Iterator[Callable[[TuneProgress], None] | None]:
    """A bar over the seconds of a run, with the best so far, on a terminal; None anywhere else."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[found]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, found="")

        def report(progress: TuneProgress) -> None:
            found = "" if progress.best is None else f"{progress.best_us:.2f} us {progress.best.key}"
            bar.update(
                task,
                description=f"{title} {progress.phase}, {progress.done} candidates",
                completed=min(progress.seconds, progress.budget),
                total=progress.budget,
                found=found,
            )

        yield report


@guarded
def tune(
    m: Annotated[int | None, typer.Argument(metavar="M", help="Rows of A and D.", show_default=False)] = None,
    n: Annotated[int | None, typer.Argument(metavar="N", help="Rows of B, columns of D.", show_default=False)] = None,
    k: Annotated[int | None, typer.Argument(metavar="K", help="Columns of A and B.", show_default=False)] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Time for each shape.")] = 20.0,
    most: Annotated[int | None, typer.Option("--most", help="Measure at most so many candidates of a shape.")] = None,
    shapes: Annotated[
        Path | None, typer.Option("--shapes", metavar="FILE", help="Tune every shape of a file: lines M N K, or JSON.")
    ] = None,
    dtype: Dtype = "bf16",
    arch: Arch = None,
    load: Load = LoadName.BURSTS,
    table: Annotated[
        Path | None, typer.Option("--table", metavar="OUT.json", help="Write what was found as a table.")
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Measure again what an earlier run measured.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the candidates to begin with, and what is rejected and why. No GPU.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the fastest configuration of a shape by measuring, and keep it for every later use.

    A run that is stopped goes on where it was; Ctrl-C leaves the best so far in use. Status 0: found; 1: nothing worked;
    2: refused input, or no GPU; 130: interrupted.
    """
    given = _given_shapes(m, n, k, shapes)
    if not seconds > 0:
        raise ValueError(f"--seconds {seconds:g}: must be above 0")
    if most is not None and most < 1:
        raise ValueError(f"--most {most}: must be at least 1")
    wanted = arch or _device_arch()
    problems = [(name, _problem(sizes, dtype, wanted)) for name, *sizes in given]
    if dry_run:
        _dry_run(problems, wanted, load.value, as_json)
        return
    _require_gpu(wanted, as_json)
    from stridewright.codegen import compile_pool
    from stridewright.codegen import tune as tuner

    results: list[tuple[str, TuneResult]] = []
    failed: list[dict[str, str]] = []
    interrupted = False
    with compile_pool.CompilePool() as compiler:
        for name, problem in problems:
            title = f"{name} {problem.m}x{problem.n}x{problem.k}".strip()
            try:
                with tuning_bar(not as_json, title) as report:
                    found = tuner.tune(
                        problem,
                        seconds=seconds,
                        most=most,
                        arch=wanted,
                        progress=report,
                        resume=not anew,
                        compiler=compiler,
                        load=load.value,
                    )
                results.append((title, found))
            except KeyboardInterrupt:
                interrupted = True
                break
            except (RuntimeError, ValueError) as error:
                failed.append({"shape": title, "error": str(error)})
                typer.echo(f"error: {title}: {error}", err=True)
                if type(error).__name__ == "DeviceLostError":
                    break  # every other shape would fail as well
            if not as_json and len(results) and results[-1][0] == title:
                _print_result(title, results[-1][1])
    if table is not None:
        _write_table(table, [result for _, result in results], load.value)
    if as_json:
        print_json({"results": [_report(*one) for one in results], "failed": failed, "interrupted": interrupted})
    if interrupted:
        typer.echo(
            "interrupted: what was found so far is kept and in use; the same command goes on from here", err=True
        )
        raise typer.Exit(_INTERRUPTED)
    raise typer.Exit(WRONG if failed else RIGHT)


def _given_shapes(m: int | None, n: int | None, k: int | None, shapes: Path | None) -> list[tuple[str, int, int, int]]:
    if shapes is not None:
        if m is not None:
            raise ValueError("give M N K or --shapes FILE, not both")
        found = read_shapes(shapes)
        if not found:
            raise ValueError(f"{shapes}: has no shapes")
        return found
    if m is None or n is None or k is None:
        raise ValueError("give the sizes M N K, or --shapes FILE")
    return [("", m, n, k)]


def _problem(sizes: Sequence[int], dtype: str, arch: str) -> Problem:
    from stridewright.codegen.tune import require_kernel
    from stridewright.kernels.config import Problem

    problem = Problem(m=sizes[0], n=sizes[1], k=sizes[2], a=dtype, b=dtype, d=dtype)
    require_kernel(problem, arch)
    return problem


def _device_arch() -> str:
    from stridewright.codegen.tuned import current_device

    device = current_device()
    return "sm_90a" if device is None else device.arch


def _require_gpu(arch: str, as_json: bool) -> None:
    from stridewright.codegen.launch import gpu_available

    usable, reason = gpu_available(arch)
    if not usable:
        fail(f"no GPU to tune {arch} on: {reason}. --dry-run lists what would be measured", as_json)


def _print_result(title: str, result: TuneResult) -> None:
    out = console()
    counts = Counter(outcome.status for outcome in result.outcomes)
    counted = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    out.print(f"{title} on {result.device.name}: {result.us:.2f} us, {result.tflops:.1f} TFLOP/s", markup=False)
    out.print(f"  {result.config.name}{', dependent launches' if result.dependent else ''}", markup=False)
    if result.untuned_ratio:
        out.print(f"  without tuning x{result.untuned_ratio:.3f} of that time", markup=False)
    out.print(f"  {counted}; {result.seconds:.1f} s, {result.resumed} outcomes from earlier runs", markup=False)
    for line in outcome_lines(result.outcomes):
        out.print(f"    {line}", markup=False)
    out.print(f"  {result.path}", markup=False)


def _report(title: str, result: TuneResult) -> dict[str, Any]:
    from stridewright.codegen.tuned import config_record

    return {
        "shape": title,
        "device": result.device,
        "name": result.config.name,
        "config": config_record(result.config),
        "dependent": result.dependent,
        "us": result.us,
        "tflops": result.tflops,
        "untuned_ratio": result.untuned_ratio,
        "seconds": result.seconds,
        "finished": result.finished,
        "resumed": result.resumed,
        "path": str(result.path),
        "outcomes": [
            {
                "candidate": outcome.candidate.key,
                "status": outcome.status,
                "reason": outcome.reason,
                "us": outcome.us,
                "ratio": outcome.ratio,
                "modelled_us": outcome.modelled_us,
            }
            for outcome in result.outcomes
        ],
    }


def _write_table(path: Path, results: Sequence[TuneResult], load: str) -> None:
    from stridewright.codegen.tuned import TableEntry, write_table

    if not results:
        return
    device = results[0].device
    entries = [(one.problem, TableEntry(one.config, one.dependent, one.us)) for one in results]
    write_table(path, device.name, device.driver, device.arch, device.sms, entries, load=load)


def _dry_run(problems: Sequence[tuple[str, Problem]], arch: str, load: str, as_json: bool) -> None:
    from stridewright.codegen import space
    from stridewright.codegen.tune_plan import estimate, for_sustained_load, starting_points
    from stridewright.codegen.tuned import current_device

    device = current_device()
    sms = device.sms if device is not None and device.arch == arch else space.multiprocessors(arch)
    reports = []
    for name, problem in problems:
        rejected = space.Rejections()
        points = starting_points(problem, _SHOWN_CANDIDATES, arch, sms)
        if load == "sustained":
            listed = for_sustained_load([config for _, config in points], problem, arch, sms)
            points = [(estimate(config, sms), config) for config in listed]
        valid = sum(1 for _ in space.cores(problem, arch, sms, rejected))
        title = f"{name} {problem.m}x{problem.n}x{problem.k}".strip()
        candidates = [{"candidate": config.name, "modelled_us": 1e6 * seconds} for seconds, config in points]
        reports.append(
            {
                "shape": title,
                "valid_tiles": valid,
                "rejected_tiles": rejected.total,
                "candidates": candidates,
                "rejected": rejected.lines(),
            }
        )
        if as_json:
            continue
        out = console()
        out.print(f"{title} for {arch}, {sms} multiprocessors: the first {len(points)} candidates", markup=False)
        for seconds, config in points:
            out.print(f"  {1e6 * seconds:9.2f} us modelled  {config.name}", markup=False)
        out.print(
            f"  of {valid} valid choices of schedule, tile and cluster, in the order in which they are tried; from the fastest measured it goes on "
            "in steps: other slots, orders, hints, clusters that take their numbers. "
            f"Rejected: {rejected.total}",
            markup=False,
        )
        for line in rejected.lines():
            out.print(f"    {line}", markup=False)
    if as_json:
        print_json({"arch": arch, "sms": sms, "shapes": reports})


@functools.cache
def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(tune)
