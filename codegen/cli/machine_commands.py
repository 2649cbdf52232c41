"""The command emulate: a PTX file of any origin, run without a GPU."""

from __future__ import annotations

import functools
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .gemm_commands import TimelineFile
from .output import RIGHT, WRONG, console, guarded, plain, print_json

if TYPE_CHECKING:
    import numpy as np

    from stridewright.layout.draw import Drawing

_NUMPY_NAMES = {
    "u8": "uint8",
    "s8": "int8",
    "u16": "uint16",
    "s16": "int16",
    "u32": "uint32",
    "s32": "int32",
    "u64": "uint64",
    "s64": "int64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
}
_SHOWN_VALUES = 8
_SHOWN_RACES = 8

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def numpy_type(name: str) -> np.dtype[Any]:
    """The numpy dtype of a PTX type's name; ValueError lists those there are.

    >>> numpy_type("u32")
    dtype('uint32')
    """
    import numpy as np

    if name == "bf16":
        import ml_dtypes

        brain: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return brain
    if name not in _NUMPY_NAMES:
        raise ValueError(f"type {name!r}: must be one of bf16, {', '.join(_NUMPY_NAMES)}")
    dtype: np.dtype[Any] = np.dtype(_NUMPY_NAMES[name])
    return dtype


def parse_argument(text: str, seed: int = 0) -> Any:
    """A kernel argument from its text: ``u32:5`` a value; ``f32[64x32]`` an array of zeros, with ``=arange``,
    ``=ones`` or ``=normal`` filled so; ``@file.npy`` an array from a file; ``null``; or a bare integer, of the width
    the kernel declares.

    >>> parse_argument("u32:5"), parse_argument("f32[3]=arange"), parse_argument("7"), parse_argument("null")
    (np.uint32(5), array([0., 1., 2.], dtype=float32), 7, None)
    """
    import numpy as np

    if text == "null":
        return None
    if text.startswith("@"):
        return np.load(text[1:], allow_pickle=False)
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text):
        return int(text, 0)
    if match := re.fullmatch(r"(\w+):(.+)", text):
        dtype = numpy_type(match[1])
        value = int(match[2], 0) if dtype.kind in "iu" else float(match[2])
        return dtype.type(value)
    if match := re.fullmatch(r"(\w+)\[(\d+(?:[x,]\d+)*)\](?:=(\w+))?", text):
        shape = tuple(int(size) for size in re.split("[x,]", match[2]))
        return _filled(shape, numpy_type(match[1]), match[3] or "zeros", seed)
    raise ValueError(
        f"--arg {text}: must be a value such as u32:5, an array such as f32[64x32] or f32[64x32]=normal (zeros, ones, arange, "
        "normal), a file such as @data.npy, null, or a bare integer"
    )


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], how: str, seed: int) -> np.ndarray[Any, Any]:
    import numpy as np

    if how == "zeros":
        return np.zeros(shape, dtype)
    if how == "ones":
        return np.ones(shape, dtype)
    if how == "arange":
        return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    if how == "normal":
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    raise ValueError(f"an array cannot be filled with {how!r}: zeros, ones, arange or normal")


def parse_sizes(name: str, text: str) -> tuple[int, int, int]:
    """Up to three sizes written 4 or 4,2,1 (or 4x2x1). ValueError for any other text.

    >>> parse_sizes("--grid", "4,2")
    (4, 2, 1)
    """
    parts = re.split("[x,]", text)
    if not 1 <= len(parts) <= 3 or not all(re.fullmatch(r"\d+", part) and int(part) > 0 for part in parts):
        raise ValueError(f"{name} {text}: must be one to three sizes from 1 up, for example 4 or 4,2,1")
    filled = [*(int(part) for part in parts), 1, 1]
    return filled[0], filled[1], filled[2]


def _only_kernel(ptx: str) -> str:
    names = re.findall(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)", ptx, re.MULTILINE)
    if not names and "__global__" in ptx:
        raise ValueError(
            "the file is CUDA C++, and PTX is run: `nvcc -ptx -arch=sm_90a` makes it of a file, `stridewright emit M N K --ptx` of a GEMM"
        )
    if not names:
        raise ValueError("the file has no kernel, which in PTX begins with .entry: there is nothing to run")
    if len(names) != 1:
        raise ValueError(f"the file has {len(names)} kernels ({', '.join(names)}); choose one with --kernel")
    return str(names[0])


def _require_arguments(ptx: str, kernel: str, given: int) -> None:
    """ValueError unless there are as many arguments as the kernel has parameters."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
    head = re.search(rf"\.entry\s+{re.escape(kernel)}\s*\(([^)]*)\)", code)
    parameters = re.findall(r"\.param\b\s*([^,]*)", head[1]) if head else []
    if head is None or len(parameters) == given:
        return  # a kernel that is not there is the emulator's to refuse
    names = "; ".join(" ".join(text.split()) for text in parameters) or "none"
    raise ValueError(
        f"{kernel}: has {len(parameters)} parameters, and --arg was given {given} times; give one for each, in their order, for "
        f"example --arg 'f32[64x32]=normal' for a pointer or --arg u32:5 for a value. They are: {names}"
    )


def _draw(path: Path | None, drawings: list[Drawing]) -> None:
    """The pictures, one below the other, where a file is asked for and there is something to show."""
    from stridewright.layout.draw import stack

    if path is not None and drawings:
        whole = stack(*drawings[:_SHOWN_RACES])
        path.write_text(whole.html() if path.suffix == ".html" else whole.svg(), encoding="utf-8")


@guarded
def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE.ptx", help="PTX for sm_90a or sm_100a, from any compiler.")],
    arguments: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="ARG", help="One for each parameter: u32:5, f32[64x32]=normal, ..."),
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", help="Which kernel, where the file has several.")] = None,
    grid: Annotated[str, typer.Option("--grid", help="Blocks, as 4 or 4,2,1.")] = "1",
    block: Annotated[str, typer.Option("--block", help="Threads of a block.")] = "128",
    cluster: Annotated[str, typer.Option("--cluster", help="Blocks of a cluster.")] = "1",
    shared: Annotated[int, typer.Option("--shared", help="Bytes of dynamic shared memory a block.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="For the order of warps and for =normal.")] = 0,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE.npz", help="Write the arrays after the run.")
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Accept what NVIDIA's own compilers leave to the hardware.")
    ] = False,
    numerics: Annotated[
        str, typer.Option("--numerics", help="float32, or hardware for the bits of an H200.")
    ] = "float32",
    timeline: TimelineFile = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Draw a deadlock or race into this .svg or .html file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a PTX file without a GPU and report races, deadlocks and bank conflicts.

    Status 1 for a race, a deadlock or an access that the hardware forbids; 2 for PTX it cannot run.
    """
    try:
        ptx = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is no text, and PTX is; a cubin or an object file cannot be run here") from None

    import numpy as np

    from stridewright.codegen.emulator import DeadlockError, emulate_ptx
    from stridewright.codegen.pictures import deadlock_picture, race_picture

    from .gemm_run import conflict_record, conflict_text, emulation_progress, require_seed, write_timeline

    require_seed(seed)
    if picture is not None and picture.suffix not in (".svg", ".html"):
        raise ValueError(f"--picture {picture}: the name must end in .svg or .html")
    if numerics not in ("float32", "hardware"):
        raise ValueError(f"--numerics {numerics}: must be float32 or hardware")

    name = kernel or _only_kernel(ptx)
    _require_arguments(ptx, name, len(arguments or []))
    values = [parse_argument(text, seed) for text in arguments or []]
    sizes = (parse_sizes("--grid", grid), parse_sizes("--block", block), parse_sizes("--cluster", cluster))
    start = time.perf_counter()
    try:
        with emulation_progress(not as_json) as report:
            result = emulate_ptx(
                ptx,
                name,
                sizes[0],
                sizes[1],
                values,
                cluster=sizes[2],
                shared=shared,
                seed=seed,
                strict=not lenient,
                numerics=numerics,
                timeline=timeline is not None,
                progress=report,
            )
    except DeadlockError as error:
        _draw(picture, [deadlock_picture(error)])
        raise
    _draw(picture, [race_picture(race) for race in result.races])
    if timeline is not None:
        write_timeline(timeline, result.timeline, as_json)
    seconds = time.perf_counter() - start
    arrays = {f"arg{index}": value for index, value in enumerate(values) if isinstance(value, np.ndarray)}
    if save is not None:
        np.savez(save, allow_pickle=False, **arrays)
    races = list(result.races)
    conflicts = [record for record in result.bank_conflicts if record.conflicts]
    if as_json:
        shown = {array: plain(value.ravel()[:_SHOWN_VALUES].astype(float)) for array, value in arrays.items()}
        facts = {"kernel": name, "instructions": result.instructions, "seconds": seconds, "races": races}
        counted = [conflict_record(record) for record in result.bank_conflicts]
        print_json({**facts, "bank_conflicts": counted, "first_values": shown})
    else:
        out = console()
        out.print(f"{name}: {result.instructions} instructions in {seconds:.2f} s, {len(races)} races", markup=False)
        for race in races:
            out.print(f"  race: {race}", markup=False)
        out.print(f"  bank conflicts: {len(conflicts) or 'none'}", markup=False)
        for record in conflicts:
            out.print(f"  {conflict_text(record)}", markup=False)
        for array, value in arrays.items():
            shown_values = ", ".join(str(item) for item in value.ravel()[:_SHOWN_VALUES])
            out.print(f"  {array} {value.dtype} {value.shape}: {shown_values}, ...", markup=False)
    raise typer.Exit(WRONG if races else RIGHT)


@functools.cache
def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(emulate)
