"""Commands about GEMMs: gemm generates, compiles, runs and checks one; emit writes its files; explain shows its
derivation.
"""

from __future__ import annotations

import difflib
import enum
import errno
import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import RIGHT, WRONG, console, fail, guarded, print_json

if TYPE_CHECKING:
    from stridewright.codegen.gemm import Gemm

    from .general_run import Options


class Where(enum.StrEnum):
    """Where a kernel runs."""

    AUTO = "auto"
    GPU = "gpu"
    EMULATOR = "emulator"


class Values(enum.StrEnum):
    """What the inputs are filled with."""

    NORMAL = "normal"
    INTEGERS = "integers"


class MajorName(enum.StrEnum):
    """Which dimension of an operand is contiguous."""

    K = "k"
    MN = "mn"


class LoadName(enum.StrEnum):
    """What the configuration is to be the fastest for."""

    BURSTS = "bursts"
    SUSTAINED = "sustained"


def _named(kind: type[enum.StrEnum], option: str) -> dict[str, Any]:
    """What makes typer read an option's value as one of ``kind``'s: its own message begins with words of a library's."""

    def read(text: str) -> enum.StrEnum:
        try:
            return kind(text)
        except ValueError:
            near = difflib.get_close_matches(text, [str(one) for one in kind], 1)
            words = f"{text!r} is none of {', '.join(kind)}" + (f"; {near[0]} is meant" if near else "")
            raise typer.BadParameter(words, param_hint=option) from None

    def complete(incomplete: str) -> list[str]:
        return [str(one) for one in kind if one.startswith(incomplete)]

    return {"parser": read, "metavar": f"[{'|'.join(kind)}]", "autocompletion": complete}


SizeM = Annotated[int, typer.Argument(metavar="M", help="Rows of A and D.")]
SizeN = Annotated[int, typer.Argument(metavar="N", help="Rows of B, columns of D.")]
SizeK = Annotated[int, typer.Argument(metavar="K", help="Columns of A and B.")]
Dtype = Annotated[str, typer.Option("--dtype", help="Format of A, B and D.")]
DtypeB = Annotated[
    str | None, typer.Option("--b-dtype", help="Format of B, where it differs: 8-bit floats mix; Blackwell mixes more.")
]
DtypeD = Annotated[str | None, typer.Option("--d-dtype", help="Format of D, where it differs.")]
MajorA = Annotated[
    MajorName, typer.Option("--a-major", help="Contiguous dimension of A (M, K).", **_named(MajorName, "--a-major"))
]
MajorB = Annotated[
    MajorName, typer.Option("--b-major", help="Contiguous dimension of B (N, K).", **_named(MajorName, "--b-major"))
]
Arch = Annotated[
    str | None,
    typer.Option("--arch", help="sm_90a (Hopper), sm_100a or sm_103a (Blackwell); by default the GPU's, or sm_90a."),
]
Load = Annotated[
    LoadName,
    typer.Option(
        "--load",
        help="bursts: the fastest where products take turns; sustained: alone, at the card's power limit.",
        **_named(LoadName, "--load"),
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change a parameter of the chosen configuration: tile_n=128, stages=5."
    ),
]
LadderRung = Annotated[
    int | None,
    typer.Option(
        "--rung", metavar="0..9", help="A kernel of the Blackwell ladder instead of the chosen one (sm_100a, sm_103a)."
    ),
]
TimelineFile = Annotated[
    Path | None,
    typer.Option(
        "--timeline",
        metavar="FILE.json",
        help="Write a timeline for chrome://tracing or ui.perfetto.dev, with modelled times (emulator only).",
    ),
]
Activation = Annotated[
    str, typer.Option("--activation", help="none, relu, gelu, gelu_tanh, silu or sigmoid, applied to the result.")
]
Promote = Annotated[
    int | None, typer.Option("--promote", help="Elements of K after which sums of 8-bit floats are added in float32.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def parse_settings(settings: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs as a dict; whole numbers become int. ValueError for a text without "=".

    >>> parse_settings(["tile_n=128", "store=tma"])
    {'tile_n': 128, 'store': 'tma'}
    """
    found: dict[str, Any] = {}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"--set {text}: must be NAME=VALUE, for example tile_n=128")
        try:
            found[name] = int(value)
        except ValueError:
            found[name] = value
    return found


def make_gemm(
    m: int,
    n: int,
    k: int,
    dtype: str,
    d_dtype: str | None,
    a_major: str,
    b_major: str,
    arch: str,
    settings: list[str] | None,
    rung: int | None = None,
    options: Options | None = None,
    load: str = "bursts",
    b_dtype: str | None = None,
) -> Gemm:
    """The Gemm of these options; with ``settings`` its configuration is the chosen one with those parameters
    changed. ``rung`` takes a kernel of the Blackwell ladder. ``b_dtype`` is B's format where it is not A's.
    """
    from stridewright.codegen.gemm import Gemm

    for name, size in (("m", m), ("n", n)):
        if size < 1:
            raise ValueError(f"{name}={size}: must be at least 1: there is nothing to compute, and nothing to check")
    from stridewright.kernels.fusion import BLOCK_K
    from stridewright.layout.hardware.scale_factors import SCALED_TYPES

    from .general_run import result_of

    changes = parse_settings(settings)
    if rung is not None:
        if options is not None and options.asks_for_more:
            raise ValueError(
                f"--rung {rung}: the ladder's kernels compute a @ b.T as it is; what is fused, scaled, batched or grouped works without --rung"
            )
        if b_dtype not in (None, dtype):
            raise ValueError(f"--b-dtype {b_dtype}: a rung's operands have one format, {dtype}")
        return ladder_rung(rung, (m, n, k), dtype, d_dtype, (a_major, b_major), arch, changes)
    if options is not None and options.group_by != "m" and options.groups is None:
        raise ValueError(
            f"--group-by {options.group_by}: says how groups are made, and there are none; --groups 8 asks"
        )
    own = {} if options is None else options.of_the_gemm()
    if options is not None and options.asks_for_more and not own:
        own["group_by"] = options.group_by  # whatever is named makes a Gemm that takes a bias and the like
    if options is not None and options.scales == "block" and dtype not in SCALED_TYPES:
        if arch != "sm_90a":
            raise ValueError(
                f"--scales block: float32 scales of blocks of K have no kernel for {arch}, whose tensor cores scale by themselves; --scales row, or --dtype mxfp8"
            )
        if not {dtype, b_dtype or dtype} <= {"e4m3", "e5m2"}:
            raise ValueError(
                f"--scales block: scales of blocks of K go with 8-bit floats, --dtype e4m3 or e5m2, and not with {dtype}; --scales row does"
            )
        own.setdefault("promote", BLOCK_K)  # of one block of K, this tells them from scales of rows
    if load != "bursts":
        own["load"] = load
    formats = (dtype, b_dtype or dtype)
    wanted = d_dtype or result_of(*formats)
    new = functools.partial(Gemm, m, n, k, *formats, wanted, arch, a_major, b_major, **own)
    made = new()
    return new(config=made.config.replace(**changes)) if changes else made


def ladder_rung(
    number: int,
    sizes: tuple[int, int, int],
    dtype: str,
    d_dtype: str | None,
    majors: tuple[str, str],
    arch: str,
    changes: dict[str, Any],
) -> Gemm:
    """A kernel of the Blackwell ladder. ValueError for an architecture that has none.

    >>> ladder_rung(3, (64, 64, 64), "bf16", None, ("k", "k"), "sm_100a", {}).rung.title
    'roles'
    """
    from stridewright.codegen.blackwell_gemm import RungGemm
    from stridewright.kernels.blackwell_rules import ARCHITECTURES

    if arch not in ARCHITECTURES:
        raise ValueError(
            f"--rung {number}: is of the Blackwell ladder, --arch {' or '.join(ARCHITECTURES)}; Hopper's is `stridewright ladder`"
        )
    if d_dtype not in (None, dtype):
        raise ValueError(f"--d-dtype {d_dtype}: a rung's result has the operands' format, {dtype}")
    return RungGemm(number, *sizes, dtype, arch, *majors, **changes)


@guarded
def gemm(
    m: SizeM,
    n: SizeN,
    k: SizeK,
    dtype: Dtype = "bf16",
    b_dtype: DtypeB = None,
    d_dtype: DtypeD = None,
    a_major: MajorA = MajorName.K,
    b_major: MajorB = MajorName.K,
    arch: Arch = None,
    on: Annotated[
        Where,
        typer.Option(
            "--on", help="Where to run it; auto takes the GPU if there is one for it.", **_named(Where, "--on")
        ),
    ] = Where.AUTO,
    values: Annotated[
        Values,
        typer.Option("--values", help="Inputs: normal, or small integers (exact).", **_named(Values, "--values")),
    ] = Values.NORMAL,
    seed: Annotated[int, typer.Option("--seed", help="For the inputs.")] = 0,
    settings: Set = None,
    rung: LadderRung = None,
    timeline: TimelineFile = None,
    activation: Activation = "none",
    gated: Annotated[bool, typer.Option("--gated", help="Pairs of columns: act(x[2 j]) * x[2 j + 1].")] = False,
    expression: Annotated[str, typer.Option("--expression", help="C++ of x, row, col in place of an activation.")] = "",
    bias: Annotated[str, typer.Option("--bias", help="n: one for each column; m: for each row.")] = "",
    with_c: Annotated[bool, typer.Option("--with-c", help="Add beta * C, drawn too.")] = False,
    with_alpha: Annotated[bool, typer.Option("--with-alpha", help="Multiply by alpha, drawn too.")] = False,
    scales: Annotated[str, typer.Option("--scales", help="Of A and B: row, or block (1x128 and 128x128).")] = "",
    aux: Annotated[bool, typer.Option("--aux", help="Store what the activation is applied to, too.")] = False,
    amax: Annotated[bool, typer.Option("--amax", help="Report the largest |D|.")] = False,
    promote: Promote = None,
    batch: Annotated[int | None, typer.Option("--batch", help="So many products in one launch.")] = None,
    groups: Annotated[int | None, typer.Option("--groups", help="Groups of rows (or of K) in one launch.")] = None,
    group_by: Annotated[str, typer.Option("--group-by", help="m: groups of rows of A; k: of K.")] = "m",
    relayout: Annotated[str, typer.Option("--relayout", help="copy: transpose what wgmma does not read.")] = "refuse",
    load: Load = LoadName.BURSTS,
    as_json: AsJson = False,
) -> None:
    """Generate, compile, run and check D[M,N] = A[M,K] B[N,K]^T, or act(alpha acc + beta C + bias) of it.

    Status 0: checked and right; 1: wrong, a race or a deadlock; 2: refused input.
    """
    from . import gemm_run
    from .general_run import Options

    gemm_run.require_seed(seed)
    if timeline is not None and on is Where.GPU:
        raise ValueError("--timeline: its times are modelled on the emulator; use --on emulator")
    where, reason, chosen_arch = gemm_run.choose(on.value if timeline is None else Where.EMULATOR.value, arch)
    options = Options(
        activation, gated, expression, bias, with_c, with_alpha, scales, aux, amax, promote, batch, groups, group_by, relayout
    )  # fmt: skip
    majors = (a_major.value, b_major.value)
    run = gemm_run.run(
        lambda: make_gemm(
            m, n, k, dtype, d_dtype, *majors, chosen_arch, settings, rung, options, load=load.value, b_dtype=b_dtype
        ),
        options=options,
        where=where,
        values=values.value,
        seed=seed,
        progress=not as_json,
        timeline=timeline is not None,
    )
    if as_json:
        print_json(run.report(reason))
    else:
        gemm_run.show(run, reason, console())
    if timeline is not None and run.timeline is not None:
        gemm_run.write_timeline(timeline, run.timeline, as_json)
    raise typer.Exit(RIGHT if run.right else WRONG)


@guarded
def emit(
    m: SizeM,
    n: SizeN,
    k: SizeK,
    dtype: Dtype = "bf16",
    b_dtype: DtypeB = None,
    d_dtype: DtypeD = None,
    a_major: MajorA = MajorName.K,
    b_major: MajorB = MajorName.K,
    arch: Arch = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where the source goes.")
    ] = None,
    load: Load = LoadName.BURSTS,
    ptx: Annotated[bool, typer.Option("--ptx", help="The PTX too (alone, where there is no -o).")] = False,
    cubin: Annotated[bool, typer.Option("--cubin", help="The cubin too, beside the source.")] = False,
    settings: Set = None,
    rung: LadderRung = None,
) -> None:
    """Write the generated CUDA source; with --ptx and --cubin also what it compiles to."""
    made = make_gemm(
        m,
        n,
        k,
        dtype,
        d_dtype,
        a_major.value,
        b_major.value,
        arch or "sm_90a",
        settings,
        rung,
        load=load.value,
        b_dtype=b_dtype,
    )
    if output is None:
        if cubin:
            fail("--cubin: a cubin is no text; say where it goes with -o FILE")
        typer.echo(made.ptx if ptx else made.source)
        return
    contents: dict[Path, bytes] = {}
    kind = output.suffix if output.suffix in (".ptx", ".cubin") else ".cu"
    if kind == ".cu":
        contents[output] = made.source.encode()
    if ptx or kind == ".ptx":
        contents[output.with_suffix(".ptx")] = made.ptx.encode()
    if cubin or kind == ".cubin":
        contents[output.with_suffix(".cubin")] = made.cubin
    for path, data in contents.items():
        write_whole(path, data)
        typer.echo(f"{path}: {len(data)} bytes", err=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all. OSError names the folder that cannot be written."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file in it", str(path))
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
    except OSError as error:
        # The error names the file that was to be renamed; the reader asked for no such file.
        raise type(error)(
            error.errno, f"nothing can be written into this folder ({error.strerror})", str(path.parent)
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@guarded
def explain(
    m: SizeM,
    n: SizeN,
    k: SizeK,
    dtype: Dtype = "bf16",
    b_dtype: DtypeB = None,
    d_dtype: DtypeD = None,
    a_major: MajorA = MajorName.K,
    b_major: MajorB = MajorName.K,
    arch: Arch = None,
    load: Load = LoadName.BURSTS,
    settings: Set = None,
    rung: LadderRung = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Whose speed of light is shown: H200 (the default) or H100 for sm_90a, B200 for Blackwell, or current."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how every constant of a kernel follows from layouts, and what bounds the shape on a device."""
    from stridewright.codegen.speed_of_light import device_named, require_device

    made = make_gemm(
        m,
        n,
        k,
        dtype,
        d_dtype,
        a_major.value,
        b_major.value,
        arch or "sm_90a",
        settings,
        rung,
        load=load.value,
        b_dtype=b_dtype,
    )
    try:
        against = require_device(made.config.arch, None if device is None else device_named(device))
        explanation = made.explain(against)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--device") from error
    if as_json:
        print_json({"arch": made.config.arch, "config": made.config, "explanation": str(explanation)})
        return
    console().print(str(explanation), markup=False)


@functools.cache
def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (gemm, emit, explain):
        app.command()(command)
