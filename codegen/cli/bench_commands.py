"""The command bench: our kernels beside cuBLASLt's on the GPU, with what bounds the shape."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .gemm_commands import Set, parse_settings
from .output import RIGHT, WRONG, console, guarded, print_json
from .tune_commands import read_shapes

if TYPE_CHECKING:
    from stridewright.codegen.bench import Entry, Ours, ShapeResult
    from stridewright.codegen.measure import Pairs
    from stridewright.codegen.speed_of_light import Device, SpeedOfLight


_SUSTAINED_SECONDS = 2.0


class Which(enum.StrEnum):
    """Which configurations run."""

    CHOSEN = "chosen"
    TUNED = "tuned"
    BOTH = "both"


def listed_shapes(m: int | None, n: int | None, k: int | None, file: Path | None) -> list[tuple[str, int, int, int]]:
    """(name, m, n, k) of the sizes given, or of a file of shapes. ValueError where both or neither is given.

    >>> listed_shapes(512, 512, 256, None)
    [('512x512x256', 512, 512, 256)]
    """
    sizes = [size for size in (m, n, k) if size is not None]
    if file is not None:
        if sizes:
            raise ValueError(f"{' '.join(map(str, sizes))} --shapes {file}: give M N K or --shapes, not both")
        return [(name or f"{a}x{b}x{c}", a, b, c) for name, a, b, c in read_shapes(file)]
    if m is None or n is None or k is None:
        raise ValueError("bench: give M N K, for example 4096 4096 4096, or --shapes FILE")
    return [(f"{m}x{n}x{k}", m, n, k)]


def require_gpu(shape: tuple[int, int, int]) -> None:
    """LaunchError where there is no GPU to measure on, with what is possible without one."""
    from stridewright.codegen.launch import LaunchError, gpu_available

    usable, reason = gpu_available("sm_90a")
    if not usable:
        sizes = " ".join(map(str, shape))
        raise LaunchError(
            f"bench measures on a GPU, and there is none for sm_90a: {reason}. Without one, `stridewright explain {sizes}` "
            f"shows the kernel and what bounds the shape, and `stridewright gemm {sizes} --on emulator` runs its PTX and checks it"
        )


def configurations(shape: tuple[int, int, int], which: Which, settings: Sequence[str] | None) -> list[Ours]:
    """Our configurations of a shape: what the model chooses, what is known from tuning, and with ``settings`` the chosen
    one with those parameters changed, "given". ConfigError for what no kernel can do.
    """
    from stridewright.codegen.bench import Ours, known_configurations
    from stridewright.codegen.gemm import Gemm

    chosen = Gemm(*shape).config  # names every rule that the sizes break
    if settings:
        return [Ours("given", chosen.replace(**parse_settings(list(settings))).require_valid())]
    known = known_configurations(*shape)
    wanted = {Which.CHOSEN: ("untuned",), Which.TUNED: ("tuned",), Which.BOTH: ("untuned", "tuned")}[which]
    found = [ours for ours in known if ours.label in wanted]
    if not found:
        sizes = " ".join(map(str, shape))
        raise ValueError(f"--config tuned: {sizes} was not tuned on this GPU; `stridewright tune {sizes}` does that")
    return found


@guarded
def bench(
    m: Annotated[int | None, typer.Argument(metavar="M", help="Rows of A and D.")] = None,
    n: Annotated[int | None, typer.Argument(metavar="N", help="Rows of B, columns of D.")] = None,
    k: Annotated[int | None, typer.Argument(metavar="K", help="Columns of A and B.")] = None,
    shapes: Annotated[
        Path | None,
        typer.Option("--shapes", metavar="FILE", help="Many shapes: JSON as tune takes it, or lines M N K."),
    ] = None,
    config: Annotated[
        Which, typer.Option("--config", help="The model's choice, what tuning found, or both where there are two.")
    ] = Which.BOTH,
    settings: Set = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Turns whose ratios count.")] = 15,
    algorithms: Annotated[int, typer.Option("--algorithms", help="Of cuBLASLt's list to try.")] = 16,
    sustained: Annotated[
        bool, typer.Option("--sustained", help="Let each also run alone for seconds, until power limits it.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option("--device", help="Whose speed of light: A100, H100, H200, B200; the GPU's own if not given."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure kernels beside cuBLASLt's first choice and the best of its list, on the GPU.

    All multiply the same random buffers, larger together than the L2 cache, in CUDA graphs, in turns; every result is
    checked. Status 0: all right; 1: a wrong result; 2: refused input, or no GPU.
    """
    listed = listed_shapes(m, n, k, shapes)
    if rounds < 1 or algorithms < 0:
        raise ValueError(f"--rounds {rounds} --algorithms {algorithms}: at least 1 round, and no negative number")
    from stridewright.codegen import nvml, speed_of_light
    from stridewright.codegen.bench import bench_shape

    roof = None if device is None else speed_of_light.device_named(device)
    require_gpu(listed[0][1:])
    roof = roof or speed_of_light.current()
    gpu = nvml.gpu_or_none()
    records, right = [], True
    for name, *sizes in listed:
        shape = (sizes[0], sizes[1], sizes[2])
        ours = configurations(shape, config, settings)
        with _status(f"measuring {name}", not as_json):
            result = bench_shape(
                *shape,
                ours,
                roof,
                rounds=rounds,
                most_algorithms=algorithms,
                sustained=_SUSTAINED_SECONDS if sustained else 0.0,
            )
        right = (
            right
            and result.passed
            and not any(
                why.startswith("wrong result") and not what.startswith("cublaslt") for what, why in result.refused
            )
        )
        lights = speed_of_light_of(result, roof)
        records.append({"name": name, **result.record(), "speed_of_light": [light.record() for light in lights]})
        if not as_json:
            console().print("\n".join(report_lines(name, result, lights)), markup=False)
    if as_json:
        described = None if gpu is None else gpu.describe()
        print_json({"on": "gpu", "device": roof, "gpu": described, "checked": True, "right": right, "shapes": records})
    raise typer.Exit(RIGHT if right else WRONG)


def speed_of_light_of(result: ShapeResult, device: Device) -> list[SpeedOfLight]:
    """What bounds the fastest of our configurations, alone in its list; empty where none ran."""
    from stridewright.codegen.gemm import Gemm
    from stridewright.codegen.speed_of_light import speed_of_light

    ours = [entry for entry in result.entries if entry.config is not None]
    if not ours:
        return []
    fastest = min(ours, key=lambda entry: entry.us)
    config = fastest.config
    assert config is not None
    plain = dataclasses.replace(config, problem=dataclasses.replace(config.problem, m=result.m, n=result.n, k=result.k))
    return [speed_of_light(Gemm(result.m, result.n, result.k, config=plain), device)]


def report_lines(name: str, result: ShapeResult, lights: Sequence[SpeedOfLight]) -> list[str]:
    """A shape's result in words: what bounds it, a line for each entrant, fastest first, and what was refused."""
    lines = [
        f"{name}: D[{result.m}, {result.n}] = A[{result.m}, {result.k}] B[{result.n}, {result.k}]^T, {result.dtype}"
    ]
    for light in lights:
        lines += [f"  {text}" for text in light.lines()]
    lines.append(
        f"  {'':24}{'us':>9} {'TFLOP/s':>8} {'of floor':>8}  {'cuBLASLt first / this':23} {'best / this':23}"
        + ("  alone: us, TFLOP/s, MHz, W" if any(entry.sustained for entry in result.entries) else "")
    )
    ordered = sorted(range(len(result.entries)), key=lambda place: result.entries[place].us)
    lines += [f"  {_entry_line(result.entries[place], _title(result, place), result)}" for place in ordered]
    details = dict.fromkeys((entry.detail, entry.labels) for entry in result.entries if entry.config is not None)
    lines += [f"  {', '.join(labels)}: {detail}" for detail, labels in details]
    lines += [f"  left out: {what}: {why}" for what, why in result.refused]
    lines.append(
        f"  {result.buffer_sets} sets of buffers, {result.rounds} turns, every result checked against float64."
    )
    return lines


def _title(result: ShapeResult, place: int) -> str:
    entry = result.entries[place]
    if entry.labels == ("cublaslt",):
        names = [what for what, at in (("first choice", result.first), ("best", result.best)) if at == place]
        return "cuBLASLt " + (", ".join(names) or "another")
    return ", ".join(entry.labels) + (", dependent" if entry.dependent else "")


def _entry_line(entry: Entry, title: str, result: ShapeResult) -> str:
    text = f"{title:24}{entry.us:9.2f} {entry.tflops:8.1f} {entry.of_floor:8.1%}"
    text += f"  {_ratio(entry.to_first):23} {_ratio(entry.to_best):23}"
    if entry.sustained is not None:
        alone = entry.sustained
        rate = 2e-6 * result.m * result.n * result.k / alone.us
        clock = "?" if alone.clock_mhz is None else f"{alone.clock_mhz:.0f}"
        watts = "?" if alone.watts is None else f"{alone.watts:.0f}"
        text += f"  {alone.us:.2f}, {rate:.1f}, {clock}, {watts}"
    return text.rstrip()


def _ratio(pairs: Pairs | None) -> str:
    return "" if pairs is None else f"{pairs.ratio:.3f} [{pairs.low:.3f} {pairs.high:.3f}]"


@contextlib.contextmanager
def _status(text: str, wanted: bool) -> Iterator[None]:
    if not (wanted and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@functools.cache
def register(app: typer.Typer) -> Any:
    """Add this command to the application."""
    return app.command()(bench)
