"""The ladder's measured results as a chart, a table for a terminal and one in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stridewright.kernels.ladder import find

from .ladder_measure import LadderResult, RungResult

if TYPE_CHECKING:
    from stridewright.layout.draw import Drawing

PUBLISHED = (
    'the own rung of the public source (pranjalssh, "Outperforming cuBLAS on H100: a Worklog"), on an H200 at 4096 cubed '
    "(1b: Tilus at 8192)"
)


def result_of(record: Mapping[str, Any]) -> LadderResult:
    """A result from its JSON form, ``dataclasses.asdict`` of it."""
    rows = tuple(RungResult(**row) for row in record["rows"])
    return LadderResult(**{**record, "rows": rows})


def shape_name(result: LadderResult) -> str:
    """The shape in a word.

    >>> shape_name(LadderResult(4096, 4096, 4096, "", 1.0, 1.0, ()))
    '4096 cubed'
    """
    cube = result.m == result.n == result.k
    return f"{result.m} cubed" if cube else f"{result.m} x {result.n} x {result.k}"


def ladder_drawing(results: Sequence[LadderResult], device: str) -> Drawing:
    """A bar for each rung and shape: its speed as a ratio to cuBLASLt's first choice in the same run, beside the public
    source's. ``device`` names the GPU.
    """
    from stridewright.layout.draw.chart import Bar, BarGroup, ratio_chart

    numbers = [row.number for row in results[0].rows]
    groups = []
    for number in numbers:
        bars = []
        for result in results:
            row = next(row for row in result.rows if row.number == number)
            tip = f"{row.configuration}\n{row.us:.1f} us, {row.tflops:.0f} TFLOP/s, median of {row.pairs} pairs, {'right' if row.right else 'WRONG'}"
            bars.append(Bar(shape_name(result), row.ratio, row.low, row.high, tip, f"{row.tflops:.0f} TFLOP/s"))
        groups.append(BarGroup(f"{number:>2} {find(number).title}", bars, find(number).published))
    notes = [
        f"{device}: D[M,N] = A[M,K] B[N,K]^T, bf16 in and out, float32 sums, random normal inputs larger than L2",
        "ratio of cuBLASLt's time to the rung's, replays of CUDA graphs in turn, with its 95 % interval",
    ]
    return ratio_chart(groups, "The Hopper ladder", "cuBLASLt's first choice, in the same run", PUBLISHED, notes)


def markdown(results: Sequence[LadderResult]) -> list[str]:
    """A table in Markdown: a line for each rung, a column with TFLOP/s and ratio for each shape, and the public source's ratio."""
    shapes = [shape_name(result) for result in results]
    lines = [
        f"| rung | what it adds | {' | '.join(shapes)} | public source |",
        f"|---|---|{'---|' * len(shapes)}---|",
    ]
    for row in results[0].rows:
        spec = find(row.number)
        cells = []
        for result in results:
            found = next(one for one in result.rows if one.number == row.number)
            cells.append(f"{found.tflops:.0f} ({found.ratio:.2f})")
        published = "" if spec.published is None else f"{spec.published:.2f}"
        lines.append(f"| {spec.number} | **{spec.title}**: {spec.idea} | {' | '.join(cells)} | {published} |")
    cells = [f"{result.reference_tflops:.0f}" for result in results]
    return [*lines, f"| | cuBLASLt's first choice | {' | '.join(cells)} | |"]


def record_of(result: LadderResult) -> dict[str, Any]:
    """A result as an object for JSON."""
    return dataclasses.asdict(result)
