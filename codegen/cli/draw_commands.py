"""Commands that draw: each view of layout.draw, as text on the terminal and as SVG or HTML in a file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .layout_commands import AsJson, LayoutText, SwizzleText, parse_swizzle
from .output import guarded, plain, print_json

if TYPE_CHECKING:
    from stridewright.layout import Layout, Swizzle
    from stridewright.layout.banks import Access
    from stridewright.layout.draw import Drawing

draw = typer.Typer(help="Draw layouts, swizzles, banks, fragments, memory and schedules.", no_args_is_help=True)

Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Draw it into this .svg or .html file.")
]
Lanes = Annotated[
    str | None,
    typer.Option("--lanes", metavar="LAYOUT", help="From lane to index in the layout; lane l has index l otherwise."),
]
Operation = Annotated[str, typer.Option("--op", help="ld, st, ldmatrix or stmatrix.")]
AccessBytes = Annotated[int, typer.Option("--bytes", help="Bytes a lane accesses: 1, 2, 4, 8 or 16.")]
ElementBytes = Annotated[int, typer.Option("--element-bytes", help="Bytes of one unit of the offsets.")]


def parse_coordinate(text: str) -> Any:
    """A coordinate from its text, None where a mode runs: ``2,_`` or ``_,(1,_)``.

    >>> parse_coordinate("2,_"), parse_coordinate("(_,(1,_))"), parse_coordinate("3")
    ((2, None), (None, (1, None)), 3)
    """
    import ast

    try:
        value = ast.literal_eval(text.replace("_", "None"))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"coordinate {text}: must be numbers and _, for example 2,_ or _,(1,_)") from error
    return value


def _finish(drawing: Drawing, output: Path | None, as_json: bool) -> None:
    """Write the picture where it is wanted, and print it as text, or its numbers as an object."""
    if output is not None:
        kinds = {".svg": drawing.svg, ".html": drawing.html}
        if output.suffix not in kinds:
            raise ValueError(f"--output {output}: the name must end in .svg or .html")
        output.write_text(kinds[output.suffix](), encoding="utf-8")
    if as_json:
        print_json({"title": drawing.title, **plain(dict(drawing.facts)), "output": output and str(output)})
        return
    typer.echo(drawing.text())
    if output is not None:
        typer.echo(f"drawn in {output}")


def _given(text: str, swizzle: str | None) -> tuple[Layout, Swizzle | None]:
    from stridewright.layout import Layout

    return Layout.parse(text), None if swizzle is None else parse_swizzle(swizzle)


def _access(lanes: str | None, op: str, size: int, element_bytes: int) -> Access:
    from stridewright.layout import Layout
    from stridewright.layout.banks import Access

    return Access(size, None if lanes is None else Layout.parse(lanes), op, element_bytes)


@draw.command()
@guarded
def card(
    text: LayoutText,
    swizzle: SwizzleText = None,
    highlight: Annotated[
        str | None, typer.Option("--highlight", metavar="COORDINATE", help="A slice to outline: 2,_ is row 2.")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A layout: its table of offsets, tree of modes, size, cosize."""
    from stridewright.layout import compose
    from stridewright.layout.draw import layout_card

    layout, by = _given(text, swizzle)
    slice_ = None if highlight is None else parse_coordinate(highlight)
    _finish(layout_card(layout if by is None else compose(by, layout), highlight=slice_), output, as_json)


@draw.command()
@guarded
def strip(
    operation: Annotated[str, typer.Argument(help="compose, complement, logical_divide, right_inverse, ..")],
    a: Annotated[str, typer.Argument(metavar="A", help="Shape:Stride.")],
    b: Annotated[str | None, typer.Argument(metavar="[B]", help="Shape:Stride, or a number.")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """An operation of the algebra: operands and result, its identity checked."""
    from stridewright.layout import Layout
    from stridewright.layout.draw import algebra_strip

    second = None if b is None else int(b) if b.isdecimal() else Layout.parse(b)
    _finish(algebra_strip(operation, Layout.parse(a), second), output, as_json)


@draw.command()
@guarded
def bits(
    swizzle: Annotated[str, typer.Argument(metavar="B,M,S")],
    address: Annotated[str | None, typer.Option("--address", help="One to follow through, 0x380 for example.")] = None,
    count: Annotated[int | None, typer.Option("--bits", help="How many bits to show.")] = None,
    unit_bytes: Annotated[int, typer.Option("--unit-bytes", help="Bytes of one unit of the address.")] = 1,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A swizzle: the bits it reads and changes, its matrix over F2."""
    from stridewright.layout.draw import swizzle_bits

    followed = None if address is None else int(address, 0)
    _finish(swizzle_bits(parse_swizzle(swizzle), count, unit_bytes, followed), output, as_json)


@draw.command("bank-map")
@guarded
def bank_map(
    text: LayoutText,
    element_bytes: ElementBytes = 2,
    swizzle: SwizzleText = None,
    cell_bytes: Annotated[int, typer.Option("--cell-bytes", help="Bytes of a cell: 4, 8, 16 or 32.")] = 4,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Where in the 32 banks each element lies, before and after a swizzle."""
    from stridewright.layout.draw import bank_map as view

    layout, by = _given(text, swizzle)
    _finish(view(layout, element_bytes, by, cell_bytes), output, as_json)


@draw.command()
@guarded
def access(
    text: LayoutText,
    lanes: Lanes = None,
    op: Operation = "ld",
    access_bytes: AccessBytes = 4,
    element_bytes: ElementBytes = 1,
    swizzle: SwizzleText = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """One warp's access: lanes, phases, banks and what it costs."""
    from stridewright.layout.draw import access_map

    layout, by = _given(text, swizzle)
    _finish(access_map(layout, _access(lanes, op, access_bytes, element_bytes), by), output, as_json)


@draw.command()
@guarded
def atlas(
    text: LayoutText,
    lanes: Lanes = None,
    op: Operation = "ld",
    access_bytes: AccessBytes = 4,
    element_bytes: ElementBytes = 1,
    tma: Annotated[
        bool, typer.Option("--tma", help="The copy engine touches it too: only its swizzles count.")
    ] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """What every swizzle costs for an access, the smallest ideal one outlined."""
    from stridewright.layout import Layout
    from stridewright.layout.banks import Access
    from stridewright.layout.draw import swizzle_atlas

    accesses = [_access(lanes, op, access_bytes, element_bytes)]
    if tma:
        accesses.append(Access(16, op="tma", element_bytes=element_bytes))
    _finish(swizzle_atlas(Layout.parse(text), accesses), output, as_json)


@draw.command()
@guarded
def descriptor(
    text: LayoutText,
    swizzle: SwizzleText = None,
    dtype: Annotated[str, typer.Option("--dtype")] = "bf16",
    arch: Annotated[str, typer.Option("--arch")] = "sm_90a",
    major: Annotated[str, typer.Option("--major", help="k or mn.")] = "k",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The matrix descriptor of a tile (row, k) in shared memory, bit by bit."""
    from stridewright.layout import compose
    from stridewright.layout.draw import descriptor_view

    layout, by = _given(text, swizzle)
    _finish(descriptor_view(layout if by is None else compose(by, layout), dtype, arch, major), output, as_json)


@draw.command("tensor-map")
@guarded
def tensor_map(
    tensor: Annotated[str, typer.Argument(metavar="TENSOR", help="The layout in global memory, (row, k) -> element.")],
    tile: Annotated[str, typer.Argument(metavar="TILE", help="The layout in shared memory, (row, k) -> element.")],
    swizzle: SwizzleText = None,
    dtype: Annotated[str, typer.Option("--dtype")] = "bf16",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The tensor map that copies a tile of a tensor into shared memory."""
    from stridewright.layout import Layout, compose
    from stridewright.layout.draw import tensor_map_view
    from stridewright.layout.hardware import TensorMap

    layout, by = _given(tile, swizzle)
    derived = TensorMap.from_layouts(Layout.parse(tensor), layout if by is None else compose(by, layout), dtype)
    _finish(tensor_map_view(derived), output, as_json)


@draw.command()
@guarded
def fragment(
    atom: Annotated[str, typer.Argument(help="As `stridewright atoms` lists it.")],
    operand: Annotated[str | None, typer.Argument(help="A, B, D, registers or TMEM.")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Which thread holds which element of an instruction's operand."""
    from stridewright.layout.draw import atom_view

    _finish(atom_view(atom, operand), output, as_json)


@draw.command("shared-memory")
@guarded
def shared_memory(
    m: int = typer.Argument(4096),
    n: int = typer.Argument(4096),
    k: int = typer.Argument(4096),
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The shared memory of the GEMM chosen for a problem."""
    from stridewright import Gemm
    from stridewright.kernels.hopper import derive
    from stridewright.layout.draw import shared_memory_map

    config = Gemm(m=m, n=n, k=k).config
    stages = dict.fromkeys(("tiles of A", "tiles of B"), config.pipeline.stages)
    parts = derive(config).shared_map
    _finish(shared_memory_map(parts, stages, title=f"shared memory of {config.name}"), output, as_json)


def _patch(text: str) -> tuple[int, int]:
    """Rows and columns of a patch."""
    sizes = text.replace("x", ",").split(",")
    if len(sizes) != 2 or not all(size.strip().isdecimal() and int(size) > 0 for size in sizes):
        raise typer.BadParameter(f"{text!r}: must be two whole numbers from 1 up, as 4,4 or 1,8", param_hint="--patch")
    return int(sizes[0]), int(sizes[1])


@draw.command("tile-order")
@guarded
def tile_order(
    rows: int = typer.Argument(..., help="Rows of tiles."),
    columns: int = typer.Argument(..., help="Columns of tiles."),
    group: Annotated[int, typer.Option("--group", help="Rows of a group, walked column by column.")] = 8,
    processors: Annotated[int, typer.Option("--processors", help="Tiles that run at once.")] = 132,
    order: Annotated[
        str, typer.Option("--order", help="grouped, serpentine, row, column, nested or hilbert.")
    ] = "grouped",
    patch: Annotated[
        str, typer.Option("--patch", metavar="ROWS,COLUMNS", help="Of a nested order: what one GPC computes at a time.")
    ] = "4,4",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The order of a kernel's tiles: waves, and panels that stay in L2."""
    from stridewright.kernels.orders import order_table
    from stridewright.layout.draw import grouped_order
    from stridewright.layout.draw import tile_order as view

    listed = grouped_order(rows, columns, group)  # says what is wrong with the sizes
    sizes = _patch(patch)
    if order != "grouped":
        try:
            listed = [(int(row), int(column)) for row, column in order_table(order, rows, columns, group, sizes)]
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--order") from error
    panel = group if order in ("grouped", "serpentine") else None
    _finish(view(listed, processors, panel=panel, title=f"{order} order of tiles"), output, as_json)


@draw.command()
@guarded
def source(
    m: int = typer.Argument(4096),
    n: int = typer.Argument(4096),
    k: int = typer.Argument(4096),
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The constants of a GEMM's source, linked with the cells of the layouts they come from."""
    from stridewright import Gemm
    from stridewright.codegen.pictures import source_picture

    _finish(source_picture(Gemm(m=m, n=n, k=k)), output, as_json)


@draw.command()
@guarded
def landscape(
    m: int = typer.Argument(4096),
    n: int = typer.Argument(4096),
    k: int = typer.Argument(4096),
    across: Annotated[str, typer.Option("--across", help="tile_m, tile_n, tile_k, stages, cluster ..")] = "tile_n",
    down: Annotated[str, typer.Option("--down", help="The same.")] = "tile_m",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The tuner's landscape of a GEMM by its coarse model, the choice without tuning underlined."""
    from stridewright.codegen.pictures import tune_points
    from stridewright.codegen.select import select
    from stridewright.codegen.space import cores
    from stridewright.codegen.tune_plan import estimate
    from stridewright.kernels.config import Problem
    from stridewright.layout.draw import tuner_landscape

    problem = Problem(m=m, n=n, k=k)
    chosen = select(problem)
    configs = [config for config in cores(problem) if config.tile.n % 16 == 0 or config == chosen]
    points = tune_points((config, estimate(config)) for config in configs)
    title = f"{m} x {n} x {k}, modelled"
    _finish(tuner_landscape(points, across, down, chosen.name, title), output, as_json)


@draw.command("roofline")
@guarded
def roofline_command(
    m: int = typer.Argument(4096),
    n: int = typer.Argument(4096),
    k: int = typer.Argument(4096),
    us: Annotated[float | None, typer.Option("--us", help="Microseconds that were measured.")] = None,
    device: Annotated[str, typer.Option("--device", help="A100, H100, H200 or B200.")] = "H200",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A GEMM under a chip's roofline: its floor, and a time if one is given."""
    from stridewright.codegen.pictures import device_roof, roofline_points
    from stridewright.codegen.speed_of_light import device_named, floor
    from stridewright.layout.draw import roofline

    chip = device_named(device)
    least = floor(chip, m, n, k).us
    if us is not None and us <= 0:
        raise ValueError(f"--us {us}: must be above 0")
    rows = [("floor", (m, n, k), least * 1e-6)] + ([] if us is None else [("measured", (m, n, k), us * 1e-6)])
    title = f"{m} x {n} x {k} on {chip.name}: at least {least:.2f} us"
    _finish(roofline([device_roof(chip)], roofline_points(rows), title), output, as_json)


@draw.command()
@guarded
def timeline(
    m: int = typer.Argument(256),
    n: int = typer.Argument(256),
    k: int = typer.Argument(512),
    block: Annotated[int, typer.Option("--block", help="Which block, counted as they start.")] = 0,
    window: Annotated[str | None, typer.Option("--window", metavar="FROM,TO", help="Clocks to show.")] = None,
    sms: Annotated[int, typer.Option("--sms", help="Multiprocessors: fewer, and a block works on more tiles.")] = 2,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Emulate a GEMM and draw when its units and warps work and wait (modelled)."""
    import ml_dtypes
    import numpy as np

    from stridewright import Gemm
    from stridewright.codegen.pictures import emulation_timeline

    from .gemm_run import emulation_progress

    part = None
    if window is not None:
        ends = window.split(",")
        if len(ends) != 2 or not all(end.strip().isdecimal() for end in ends):
            raise ValueError(f"--window {window}: must be two numbers of clocks, for example 0,4000")
        part = (float(ends[0]), float(ends[1]))
    gemm = Gemm(m=m, n=n, k=k)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    with emulation_progress(not as_json) as report:
        found = gemm.emulate(a, b, sms=sms, timeline=True, progress=report)
    _finish(emulation_timeline(found.timeline, gemm.derivation, block, part), output, as_json)


@functools.cache
def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.add_typer(draw, name="draw")
