"""The command ``ladder``: every rung from the naive kernel to the product's, run, checked, and what changed from one to the next."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .gemm_commands import AsJson, Where
from .output import RIGHT, WRONG, console, guarded, plain, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from stridewright.codegen.ladder import Rung
    from stridewright.codegen.ladder_measure import LadderResult

ON_GPU = (4096, 4096, 4096)
ON_EMULATOR = (200, 264, 72)
"""Ragged, with more tiles than the two multiprocessors that the emulator is given, and small: rung 1 multiplies number by number."""
EMULATED_SMS = 2


@guarded
def ladder(
    m: Annotated[int | None, typer.Argument(metavar="[M", help="Rows of A and D.")] = None,
    n: Annotated[int | None, typer.Argument(metavar="N", help="Rows of B, columns of D.")] = None,
    k: Annotated[int | None, typer.Argument(metavar="K]", help="Columns of A and B.")] = None,
    number: Annotated[
        str | None, typer.Option("--rung", metavar="R", help="One rung only, with its diff: 1, 1b, 2 .. 12.")
    ] = None,
    arch: Annotated[
        str, typer.Option("--arch", help="sm_90a: Hopper's ladder; sm_100a, sm_103a: Blackwell's, modelled, not run.")
    ] = "sm_90a",
    on: Annotated[Where, typer.Option("--on", help="Where to run.")] = Where.AUTO,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE.svg", help="Draw the measured ladder (GPU only).")
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show the whole diff of every rung to the one before.")] = False,
    pairs: Annotated[int, typer.Option("--pairs", help="Turns of rung and cuBLASLt that are timed (GPU).")] = 15,
    as_json: AsJson = False,
) -> None:
    """Climb the Hopper ladder: numbered kernels from no tensor cores to the product's, each one idea more.

    With --arch sm_100a: what the cycle model says of the Blackwell ladder, and where each rung's tensor core waits. On a GPU every rung is timed beside cuBLASLt and checked. Without one each rung's PTX runs on the emulator on a small ragged
    shape and is checked for values, races and deadlocks.
    """
    from stridewright.codegen.ladder import rungs
    from stridewright.kernels.ladder import find

    from .gemm_run import choose

    if arch != "sm_90a":
        from stridewright.kernels.blackwell_rules import ARCHITECTURES

        from . import modelled_ladder

        if arch not in ARCHITECTURES:
            raise ValueError(f"--arch {arch}: there are ladders for sm_90a, {', '.join(ARCHITECTURES)}")
        modelled_ladder.show(*_sizes(m, n, k, modelled_ladder.SIZES), arch, number, as_json)
        return
    where, reason, _ = choose(on.value, "sm_90a")
    if svg is not None and svg.suffix != ".svg":
        raise ValueError(f"--svg {svg}: the name must end in .svg")
    if svg is not None and where != "gpu":
        raise ValueError(f"--svg {svg}: the chart shows measured speeds, and there is no GPU to measure on ({reason})")
    chosen = None if number is None else find(number)
    made = rungs(*_sizes(m, n, k, ON_GPU if where == "gpu" else ON_EMULATOR))
    taken = [rung for rung in made if chosen is None or rung.spec is chosen]
    whole = diff or number is not None
    report: dict[str, Any] = {"on": where, "reason": reason, "m": made[0].m, "n": made[0].n, "k": made[0].k}
    if not as_json:
        console().print(
            f"D[{made[0].m},{made[0].n}] = A[{made[0].m},{made[0].k}] B[{made[0].n},{made[0].k}]^T, bf16", markup=False
        )
        console().print(f"on the {where}: {reason}\n", markup=False)
    if where == "gpu":
        result = _on_gpu(taken, pairs, as_json)
        report |= {"cublaslt": result.reference, "cublaslt_tflops": result.reference_tflops, "right": result.right}
        found = {row.number: plain(row) for row in result.rows}
        if svg is not None:
            _draw(result, svg)
            report["svg"] = str(svg)
    else:
        found = _on_emulator(taken, as_json)
        report["right"] = all(row["right"] for row in found.values())
    if as_json:
        print_json(
            {**report, "checked": True, "rungs": [{**found[rung.number], **_change(rung, whole)} for rung in taken]}
        )
    else:
        _show_changes(taken, whole, console())
        if svg is not None:
            console().print(f"\ndrawn in {svg}", markup=False)
    raise typer.Exit(RIGHT if report["right"] else WRONG)


def _sizes(m: int | None, n: int | None, k: int | None, default: tuple[int, int, int]) -> tuple[int, int, int]:
    if m is None and n is None and k is None:
        return default
    if m is None or n is None or k is None:
        raise ValueError("M, N and K: give all three sizes, or none for the default")
    return m, n, k


@contextlib.contextmanager
def _working(text: str, quiet: bool) -> Iterator[None]:
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console as ErrorConsole

    with ErrorConsole(stderr=True).status(text):
        yield


def _on_gpu(taken: Sequence[Rung], pairs: int, quiet: bool) -> LadderResult:
    from stridewright.codegen.ladder_measure import RungResult, measure_ladder

    out = console()
    if not quiet:
        out.print(f"{'rung':>4}  {'':<27}{'TFLOP/s':>8}  to cuBLASLt (95 %)      public  result", markup=False)

    def report(row: RungResult) -> None:
        if quiet:
            return
        published = "" if row.published is None else f"{row.published:.2f}"
        verdict = "right" if row.right else "WRONG"
        out.print(
            f"{row.number:>4}  {row.title:<27}{row.tflops:>8.1f}  {row.ratio:.3f} ({row.low:.3f} to {row.high:.3f})  {published:>6}  {verdict}",
            markup=False,
            style=None if row.right else "red",
        )

    with _working("compiling and measuring", quiet):
        result = measure_ladder(taken, pairs, report)
    if not quiet:
        out.print(f"{'':>4}  {'cuBLASLt, first choice':<27}{result.reference_tflops:>8.1f}  1\n", markup=False)
    return result


def _draw(result: LadderResult, svg: Path) -> None:
    from stridewright.codegen.ladder_chart import ladder_drawing
    from stridewright.codegen.nvml import gpu_or_none

    gpu = gpu_or_none()
    name = "" if gpu is None else str(gpu.describe().get("name") or "")
    svg.write_text(ladder_drawing([result], name or "this GPU").svg(), encoding="utf-8")


def _on_emulator(taken: Sequence[Rung], quiet: bool) -> dict[str, dict[str, Any]]:
    import ml_dtypes
    import numpy as np

    from stridewright.codegen.check import check_gemm
    from stridewright.codegen.emulator import EmulationError, UnsupportedInstruction

    from .gemm_run import conflict_record

    random = np.random.default_rng(0)
    first = taken[0]
    a, b = (
        random.standard_normal((rows, first.k), dtype=np.float32).astype(ml_dtypes.bfloat16)
        for rows in (first.m, first.n)
    )
    out = console()
    if not quiet:
        out.print(
            f"{'rung':>4}  {'':<27}result  races  conflicts  instructions  seconds  tile and schedule", markup=False
        )
    found: dict[str, dict[str, Any]] = {}
    for rung in taken:
        row: dict[str, Any] = {"number": rung.number, "title": rung.title, "configuration": rung.configuration}
        try:
            with _working(f"rung {rung.number}: compiling and emulating", quiet):
                emulation = rung.emulate(a, b, sms=EMULATED_SMS)
        except UnsupportedInstruction:
            raise
        except EmulationError as error:
            found[rung.number] = {**row, "right": False, "fault": str(error)}
            if not quiet:
                out.print(f"{rung.number:>4}  {rung.title:<27}FAULT: {error}", markup=False, style="red")
            continue
        check = check_gemm(emulation.d, a, b)
        right = check.passed and not emulation.races
        conflicts = [record for record in emulation.conflicts if record.conflicts]
        found[rung.number] = {
            **row,
            "right": right,
            "relative_error": check.relative_error,
            "max_abs_error": check.max_abs_error,
            "races": emulation.races,
            "bank_conflicts": [conflict_record(record) for record in conflicts],
            "instructions": emulation.result.instructions,
            "seconds": emulation.seconds,
            "registers": rung.build.kernels[0].registers,
        }
        if not quiet:
            verdict = "right" if check.passed else "WRONG"
            out.print(
                f"{rung.number:>4}  {rung.title:<27}{verdict:<6}  {len(emulation.races) or 'none':>5}  {len(conflicts) or 'none':>9}"
                f"  {emulation.result.instructions:>12}  {emulation.seconds:>7.2f}  {rung.configuration}",
                markup=False,
                style=None if right else "red",
            )
            for race in emulation.races[:3]:
                out.print(f"      {race}", markup=False)
    return found


def _change(rung: Rung, whole: bool) -> dict[str, Any]:
    from stridewright.kernels.ladder import gain

    added, removed = rung.changed_lines()
    change = {
        "idea": rung.idea,
        "published": rung.spec.published,
        "published_gain": gain(rung.number),
        "lines_added": added,
        "lines_removed": removed,
        "constants_changed": rung.changed_constants(),
    }
    return {**change, "diff": rung.diff()} if whole else change


def _show_changes(taken: Sequence[Rung], whole: bool, out: Console) -> None:
    from stridewright.codegen.ladder_chart import PUBLISHED
    from stridewright.kernels.ladder import gain

    out.print("" if whole else "\nwhat each rung adds (--diff shows the sources' differences)", markup=False)
    if any(gain(rung.number) is not None for rung in taken):
        out.print(f"speeds of others: {PUBLISHED}", markup=False, style="dim")
    for rung in taken:
        added, removed = rung.changed_lines()
        better = gain(rung.number)
        faster = f"; {better:.2f} times the rung before in the public source" if better is not None else ""
        lines = f"+{added} -{removed} lines{faster}" if rung.before is not None else "the start"
        out.print(f"{rung.number:>4}  {rung.title}: {rung.idea}", markup=False)
        out.print(f"      {lines}", markup=False, style="dim")
        if whole:
            for line in rung.diff().splitlines():
                style = {"+": "green", "-": "red", "#": "cyan", "@": "dim"}.get(line[:1])
                out.print(line, markup=False, style=style)
            continue
        changed = [line for line in rung.changed_constants() if not line.split()[0].endswith("_OFFSET")]
        if changed and rung.spec.file and rung.before is not None:
            out.print(f"      {', '.join(changed)}", markup=False, style="dim")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(ladder)
