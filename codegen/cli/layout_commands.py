"""Commands about layouts alone: layout, banks, atoms. They need no compiler and no GPU."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import console, guarded, plain, print_json

if TYPE_CHECKING:
    from stridewright.layout import Layout, Swizzle, SwizzledLayout

_TABLE_COLUMNS = 32
_TABLE_ELEMENTS = 1024

LayoutText = Annotated[
    str, typer.Argument(metavar="LAYOUT", help='Shape:Stride, for example "((8,16),(64,1)):((64,512),(1,0))".')
]
SwizzleText = Annotated[
    str | None, typer.Option("--swizzle", metavar="B,M,S", help="A swizzle over it, in the layout's units.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def parse_swizzle(text: str) -> Swizzle:
    """The swizzle written B,M,S. ValueError for any other text.

    >>> parse_swizzle("3,4,3")
    Swizzle(3, 4, 3)
    """
    from stridewright.layout import Swizzle

    parts = text.strip().strip("<>()").split(",")
    try:
        bits, base, shift = (int(part) for part in parts)
    except ValueError as error:
        raise ValueError(f"--swizzle {text}: must be three integers B,M,S, for example 3,3,3") from error
    return Swizzle(bits, base, shift)


def _parse(text: str, swizzle: str | None) -> tuple[Layout, Layout | SwizzledLayout]:
    from stridewright.layout import Layout, compose

    plain_layout = Layout.parse(text)
    return plain_layout, plain_layout if swizzle is None else compose(parse_swizzle(swizzle), plain_layout)


def _injective(layout: Any, count: int) -> bool | None:
    if count > 1 << 22:
        return None
    import numpy as np

    return len(np.unique(layout(np.arange(count)))) == count


def _facts(text: str, swizzle: str | None) -> dict[str, Any]:
    from stridewright.layout import coalesce, cosize, depth, rank, size

    base, seen = _parse(text, swizzle)
    count = size(base)
    return {
        "layout": str(seen),
        "shape": plain(base.shape),
        "stride": plain(base.stride),
        "size": count,
        "cosize": cosize(base),
        "rank": rank(base),
        "depth": depth(base),
        "coalesced": str(coalesce(base)),
        "swizzle": swizzle and str(parse_swizzle(swizzle)),
        "injective": _injective(seen, count),
    }


def _table(layout: Any, base: Layout) -> list[list[int]]:
    """The offsets as rows and columns: the first mode down, all others across."""
    from stridewright.layout import rank, size

    rows = size(base[0]) if rank(base) > 1 else 1
    columns = size(base) // rows if rows else 0
    return [[int(layout(row + column * rows)) for column in range(columns)] for row in range(rows)]


@guarded
def layout(
    text: LayoutText,
    swizzle: SwizzleText = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw it into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a layout is: size, cosize, simplest form, table; draw it."""
    facts = _facts(text, swizzle)
    base, seen = _parse(text, swizzle)
    if svg is not None:
        from stridewright.layout.draw import layout_svg

        svg.write_text(layout_svg(seen), encoding="utf-8")
        facts["svg"] = str(svg)
    if as_json:
        print_json(facts)
        return
    out = console()
    out.print(facts["layout"], markup=False, style="bold")
    for name in ("size", "cosize", "rank", "depth", "coalesced"):
        out.print(f"  {name:<10}{facts[name]}", markup=False)
    shared = {
        True: "each coordinate has an offset of its own",
        False: "coordinates share offsets",
        None: "not looked at",
    }
    out.print(f"  {'injective':<10}{shared[facts['injective']]}", markup=False)
    if 0 < facts["size"] <= _TABLE_ELEMENTS:
        table = _table(seen, base)
        width = max(len(str(value)) for row in table for value in row) + 1
        for row in table:
            cut = "".join(f"{value:>{width}}" for value in row[:_TABLE_COLUMNS])
            out.print(f"  {cut}{' ...' if len(row) > _TABLE_COLUMNS else ''}", markup=False)
    if svg is not None:
        out.print(f"  drawn in   {svg}", markup=False)


@guarded
def banks(
    text: LayoutText,
    swizzle: SwizzleText = None,
    op: Annotated[str, typer.Option("--op", help="ld, st, ldmatrix, stmatrix, wgmma or tma.")] = "ld",
    access_bytes: Annotated[int, typer.Option("--bytes", help="Bytes a lane accesses: 1, 2, 4, 8 or 16.")] = 4,
    element_bytes: Annotated[int, typer.Option("--element-bytes", help="Bytes of one unit of the offsets.")] = 1,
    lanes: Annotated[
        str | None,
        typer.Option(
            "--lanes",
            metavar="LAYOUT",
            help="From lane to index in the layout; lane l has index l otherwise. Indices count the first mode fastest.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count bank conflicts of one access, and find the swizzle that mends them.

    A warp's access takes one wavefront for each turn of the banks; the ideal is what its bytes need. In parentheses stands
    how they were counted: "F2 rank" from the ranks of the bits of the lanes' addresses, "count" bank by bank.
    """
    from stridewright.layout import Layout
    from stridewright.layout.banks import Access, bank_report, swizzle_search

    base, seen = _parse(text, swizzle)
    access = Access(access_bytes, None if lanes is None else Layout.parse(lanes), op, element_bytes)
    report = bank_report(seen, access)
    search = swizzle_search(base, [access])
    if as_json:
        facts = {"wavefronts": report.wavefronts, "ideal": report.ideal, "ratio": report.ratio, "phases": report.phases}
        print_json({**facts, "suggested_swizzle": search.swizzle, "suggestion": search.explain()})
        return
    console().print(str(report), markup=False)
    console().print(search.explain() if swizzle is None else f"of the layout alone: {search.explain()}", markup=False)
    if swizzle is None and search.swizzle is not None and search.swizzle[0]:
        console().print(f"try it with --swizzle {','.join(map(str, search.swizzle))}", markup=False)


@guarded
def atoms(
    pattern: Annotated[str, typer.Argument(help="Only those with this in their name.")] = "", as_json: AsJson = False
) -> None:
    """List the hardware's fragments and instructions as layouts."""
    from stridewright.layout import hardware

    found = dict(hardware.atoms())
    chosen = {name: atom for name, atom in found.items() if pattern in name}
    if not chosen:
        raise LookupError(f"no atom has {pattern!r} in its name; there are {', '.join(found)}")
    if as_json:
        print_json({name: str(atom) for name, atom in chosen.items()})
        return
    width = max(len(name) for name in chosen)
    for name, atom in chosen.items():
        console().print(f"{name:<{width}}  {atom}", markup=False)


@functools.cache
def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (layout, banks, atoms):
        app.command()(command)
