"""The command check: everything there is for an architecture, run and judged, with a record of what was found."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .gemm_commands import Where, write_whole
from .output import RIGHT, WRONG, console, guarded, plain, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stridewright.codegen.arch_check import Finding


@guarded
def check(
    arch: Annotated[str, typer.Option("--arch", help="sm_90a, sm_100a or sm_103a.")] = "sm_100a",
    on: Annotated[
        Where, typer.Option("--on", help="gpu (the default), or emulator: smaller, and nothing is timed.")
    ] = Where.GPU,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.json", help="The record; check_ARCH_WHERE.json if not given."),
    ] = None,
    only: Annotated[str, typer.Option("--only", metavar="WORD", help="Cases whose names have this word.")] = "",
    timed: Annotated[bool, typer.Option("--time/--no-time", help="Time each kernel beside cuBLASLt.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record too.")] = False,
) -> None:
    """Run every rung and a sample of configurations of an architecture, check each result, and write a record.

    On a GPU each kernel runs in a process of its own; a few minutes in all. Status 0: all right; 1: something is wrong;
    2: refused input, or no such GPU.
    """
    from stridewright.codegen import arch_check

    every = arch_check.cases(arch)
    chosen = [number for number, case in enumerate(every) if only in case.name]
    if not chosen:
        raise ValueError(f"--only {only}: no case has this word; the first are {', '.join(c.name for c in every[:3])}")
    where = _where(on, arch)
    path = output or Path(f"check_{arch}_{where}.json")
    found: list[Finding] = []
    record: dict[str, Any] = {**arch_check.surroundings(arch, where), "findings": found}
    for number in chosen:
        if where == "gpu":
            news = arch_check.check_in_process(arch, number, timed)
        else:
            news = arch_check.check_emulated(every[number])
        found += news
        # Written after each case: what was found so far stays if the machine does not.
        write_whole(path, (json.dumps(plain(record), indent=1) + "\n").encode())
        if not as_json:
            console().print("\n".join(_lines(every[number].name, news)), markup=False)
    wrong = [one for one in found if one.right is False]
    if as_json:
        print_json(record)
    else:
        compared = sum(one.right is not None for one in found)
        console().print(
            f"{len(chosen)} kernels, {compared} results: {f'{len(wrong)} WRONG' if wrong else 'all right'}; {path}",
            markup=False,
        )
    raise typer.Exit(WRONG if wrong else RIGHT)


def _where(on: Where, arch: str) -> str:
    from stridewright.codegen import launch

    if on is Where.EMULATOR:
        return "emulator"
    usable, reason = launch.gpu_available(arch)
    if usable:
        return "gpu"
    if on is Where.AUTO:
        return "emulator"
    raise launch.LaunchError(
        f"no GPU to check {arch} on: {reason}. `stridewright check --arch {arch} --on emulator` runs the same kernels' PTX without one"
    )


def _lines(name: str, found: list[Finding]) -> Iterator[str]:
    compared = [one for one in found if one.right is not None]
    wrong = [one for one in compared if not one.right]
    verdict = f"WRONG in {len(wrong)} of {len(compared)}" if wrong else f"right in {len(compared)}"
    speed = next((one for one in found if one.us is not None), None)
    text = f"{name}: {verdict}"
    if speed is not None:
        text += f"; {'x'.join(map(str, speed.shape))} in {speed.us:.1f} us, {speed.tflops:.0f} TFLOP/s"
        if speed.to_cublas is not None:
            text += f", {speed.to_cublas:.3f} of cuBLASLt's speed"
    yield text
    for one in wrong[:3]:
        yield f"  {'x'.join(map(str, one.shape))}: {' '.join(one.words.split())[:300]}"


@functools.cache
def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(check)
