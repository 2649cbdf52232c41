"""The tuner's landscape and the roofline. Both take plain records: who measured or modelled them is not known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10

from .. import LayoutError
from .canvas import Canvas, number, text_width
from .drawing import Drawing
from .grid import LABEL
from .style import GROUPS, group

_WIDTH, _HEIGHT = 560.0, 330.0


@dataclass(frozen=True)
class TunePoint:
    """A configuration that was timed or modelled: its name, its parameters, its seconds, and the model's, where there are both."""

    name: str
    values: Mapping[str, object]
    seconds: float
    modelled: float | None = None


@dataclass(frozen=True)
class Roof:
    """A limit: ``peak`` operations a second, and ``bandwidth`` bytes a second that must carry them."""

    name: str
    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Operations per byte from which on the peak limits.

        >>> Roof("chip", 100.0, 4.0).ridge
        25.0
        """
        return self.peak / self.bandwidth


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel's run: operations per byte moved, and operations a second."""

    name: str
    intensity: float
    rate: float
    tip: str = ""
    values: Mapping[str, object] = field(default_factory=dict)


def _slower(ratio: float) -> str:
    """The class of a time that is ``ratio`` times the best: steps at 2, 5, 10, 25 and 50 % more."""
    return f"h{sum(ratio > limit for limit in (1.02, 1.05, 1.1, 1.25, 1.5))}"


def _ordered(points: Sequence[TunePoint], name: str) -> list[object]:
    found = {point.values.get(name) for point in points}
    return sorted(found, key=lambda v: (not isinstance(v, int | float), v if isinstance(v, int | float) else 0, str(v)))


def tuner_landscape(
    points: Sequence[TunePoint],
    across: str,
    down: str,
    chosen: str = "",
    title: str = "tuner landscape",
    scale: float = 1e6,
    unit: str = "us",
) -> Drawing:
    """The best time for each pair of two parameters, all others free: a cell is coloured by how much slower than the best of all it is, and its tooltip
    lists its configurations. The best is outlined; ``chosen`` (a name) is underlined, and its cell has its own time even where another of that pair is
    faster, unless that is the best of all. Times are shown times ``scale``, in ``unit``.

    Raises LayoutError for no points and for a parameter that no point has.

    >>> points = [TunePoint(f"n{n}", {"n": n, "stages": 4}, n * 1e-6) for n in (128, 256)]
    >>> tuner_landscape(points, "n", "stages").facts["best"]
    'n128'
    """
    if not points:
        raise LayoutError("no points: nothing to draw")
    for name in (across, down):
        if not any(name in point.values for point in points):
            raise LayoutError(
                f"no point has {name!r}: there are {', '.join(sorted({k for p in points for k in p.values}))}"
            )
    best = min(points, key=lambda point: point.seconds)
    columns, rows = _ordered(points, across), _ordered(points, down)
    cells: dict[tuple[object, object], list[TunePoint]] = {}
    for point in sorted(points, key=lambda one: one.seconds):
        cells.setdefault((point.values.get(down), point.values.get(across)), []).append(point)

    def shown(point: TunePoint) -> str:
        return f"{point.seconds * scale:.4g}"

    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    canvas.text(0, 34, f"best: {shown(best)} {unit}, {best.name}", 12, "good")
    picked = next((point for point in points if point.name == chosen), None)

    def first(inside: Sequence[TunePoint]) -> TunePoint:
        return picked if picked is not None and picked in inside and best not in inside else inside[0]

    y = 52.0
    if picked is not None:
        canvas.text(
            0,
            y,
            f"chosen: {shown(picked)} {unit}, {picked.seconds / best.seconds:.3f} times the best, {picked.name}",
            12,
            "faint",
        )
        y += 18
    width = max([text_width(shown(p), LABEL) for p in points] + [text_width(str(c), LABEL) for c in columns]) + 12
    left = max([text_width(str(r), LABEL) for r in rows] + [text_width(down, 10)]) + 12
    y += 26
    canvas.text(0, y - 6, down, 10, "faint")
    canvas.text(left, y - 20, across, 10, "faint")
    for i, column in enumerate(columns):
        canvas.text(left + (i + 0.5) * width, y - 6, column, LABEL, "faint", "middle")
    for j, row in enumerate(rows):
        canvas.text(left - 8, y + j * 22 + 15, row, LABEL, "faint", "end")
        for i, column in enumerate(columns):
            inside = cells.get((row, column), [])
            x, top = left + i * width, y + j * 22
            if not inside:
                canvas.rect(x, top, width, 22, "cell empty", f"{across} {column}, {down} {row}: not tried")
                continue
            lines = [f"{shown(p)} {unit}, {p.seconds / best.seconds:.3f} times the best: {p.name}" for p in inside[:12]]
            lines += [f"and {len(inside) - 12} more"] if len(inside) > 12 else []
            data = {"across": column, "down": row, "count": len(inside)}
            canvas.cell(
                x,
                top,
                width,
                22,
                _slower(first(inside).seconds / best.seconds),
                shown(first(inside)),
                "\n".join(lines),
                LABEL,
                data,
            )
            if picked in inside:
                canvas.path(f"M{number(x + 5)} {number(top + 18)}h{number(width - 10)}", "under")
            if best in inside:
                canvas.rect(x + 2.5, top + 2.5, width - 5, 17, "mark")
    y += len(rows) * 22 + 10
    steps = [
        ("h0", "best, up to 2 % more"),
        ("h1", "5 %"),
        ("h2", "10 %"),
        ("h3", "25 %"),
        ("h4", "50 %"),
        ("h5", "beyond"),
        ("empty", "not tried"),
    ]
    y = canvas.legend(0, y, steps, limit=max(600, canvas.width))
    note = "a cell: the best of all configurations with that pair; outlined: the best of all"
    canvas.text(
        0, y + 10, note + ("; underlined: the chosen one, its own time" if picked is not None else ""), 11, "faint"
    )
    words = [title, f"  best: {shown(best)} {unit}, {best.name}"]
    broad = max([len(shown(p)) for p in points] + [len(str(c)) for c in columns]) + 2
    side = max(len(str(r)) for r in [*rows, down])
    words.append(f"  {down:<{side}}" + "".join(f"{c!s:>{broad}}" for c in columns) + f"   ({across})")
    for row in rows:
        found = [cells.get((row, column), []) for column in columns]
        words.append(f"  {row!s:<{side}}" + "".join(f"{shown(first(f)) if f else '-':>{broad}}" for f in found))
    facts: dict[str, object] = {"best": best.name, "seconds": best.seconds, "points": len(points)}
    if picked is not None:
        facts["chosen-over-best"] = f"{picked.seconds / best.seconds:.4f}"
    return Drawing.of(title, canvas, "\n".join(words), facts)


def model_scatter(
    points: Sequence[TunePoint], title: str = "model and measurement", scale: float = 1e6, unit: str = "us"
) -> Drawing:
    """Modelled against measured time, a dot a configuration, with the diagonal and 15 % on either side. Raises LayoutError where no point has both.

    >>> view = model_scatter([TunePoint("a", {}, 1e-6, 1.1e-6), TunePoint("b", {}, 2e-6, 2.5e-6)])
    >>> view.facts["within-15-percent"], view.facts["points"]
    (1, 2)
    """
    both = [(p, p.modelled) for p in points if p.modelled is not None]
    if not both:
        raise LayoutError("no point has a measured and a modelled time: nothing to draw")
    low = min(min(p.seconds, m) for p, m in both) * scale / 1.15
    high = max(max(p.seconds, m) for p, m in both) * scale * 1.15
    within = sum(abs(m / p.seconds - 1) <= 0.15 for p, m in both)
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    canvas.text(0, 34, f"{within} of {len(both)} configurations within 15 %", 12, "faint")
    axes = _Axes(canvas, 58.0, 50.0, (low, high), (low, high), f"measured, {unit}", f"modelled, {unit}", 360.0, 360.0)
    for factor, style in ((1.0, "line"), (1.15, "rule"), (1 / 1.15, "rule")):
        axes.line((low, low * factor), (high, high * factor), style)
    for point, modelled in both:
        tip = f"{point.name}: measured {point.seconds * scale:.4g} {unit}, modelled {modelled * scale:.4g} {unit}"
        axes.dot(
            point.seconds * scale, modelled * scale, "k0" if abs(modelled / point.seconds - 1) <= 0.15 else "k5", tip
        )
    canvas.legend(58, axes.bottom + 40, [("k0", "within 15 %"), ("k5", "further off")])
    words = [title, f"  {within} of {len(both)} configurations within 15 %"]
    words += [
        f"  {p.seconds * scale:>10.4g} {m * scale:>10.4g}  {p.name}"
        for p, m in sorted(both, key=lambda one: one[0].seconds)
    ]
    return Drawing.of(title, canvas, "\n".join(words), {"points": len(both), "within-15-percent": within})


class _Axes:
    """Two logarithmic axes, with ticks at 1, 2 and 5 times the powers of ten."""

    def __init__(
        self,
        canvas: Canvas,
        left: float,
        top: float,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        x_name: str,
        y_name: str,
        width: float = _WIDTH,
        height: float = _HEIGHT,
    ) -> None:
        self.canvas, self.left, self.bottom = canvas, left, top + height + 14
        self.x_low, self.x_scale = log10(x_range[0]), width / log10(x_range[1] / x_range[0])
        self.y_low, self.y_scale = log10(y_range[0]), height / log10(y_range[1] / y_range[0])
        self.limits = (*x_range, *y_range)
        canvas.text(left - 44, top + 4, y_name, 10, "faint")
        for value in _ticks(*x_range):
            x, _ = self.place(value, y_range[0])
            canvas.line(x, top + 14, x, self.bottom, "rule")
            canvas.text(x, self.bottom + 14, f"{value:g}", 10, "faint", "middle")
        for value in _ticks(*y_range):
            _, y = self.place(x_range[0], value)
            canvas.line(left, y, left + width, y, "rule")
            canvas.text(left - 6, y + 3.5, f"{value:g}", 10, "faint", "end")
        canvas.text(left + width, self.bottom + 30, x_name, 10, "faint", "end")

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a value lies on the canvas."""
        return self.left + (log10(x) - self.x_low) * self.x_scale, self.bottom - (log10(y) - self.y_low) * self.y_scale

    def line(self, start: tuple[float, float], end: tuple[float, float], style: str) -> None:
        """A straight line, cut to the axes' limits (its slope is 1 or 0)."""
        (x1, y1), (x2, y2) = start, end
        x_low, x_high, y_low, y_high = self.limits
        if y1 != y2:
            rise = y1 / x1
            x1, x2 = max(x1, x_low, y_low / rise), min(x2, x_high, y_high / rise)
            y1, y2 = x1 * rise, x2 * rise
        if x1 < x2:
            a, b = self.place(x1, y1), self.place(x2, y2)
            self.canvas.path(f"M{number(a[0])} {number(a[1])}L{number(b[0])} {number(b[1])}", style)

    def dot(self, x: float, y: float, style: str, tip: str) -> None:
        """A round dot."""
        px, py = self.place(x, y)
        self.canvas.rect(px - 4.5, py - 4.5, 9, 9, f"cell {style}", tip, None, 4.5)


def _ticks(low: float, high: float) -> list[float]:
    """Round values of a logarithmic axis, closer together where it is short."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    span = log10(high / low)
    steps = (1, 1.5, 2, 3, 4, 5, 7) if span < 1 else (1, 2, 5) if span < 3 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def roofline(
    roofs: Sequence[Roof],
    points: Sequence[RooflinePoint],
    title: str = "roofline",
    scale: float = 1e12,
    unit: str = "TFLOP/s",
) -> Drawing:
    """Rates against operations per byte, both logarithmic, under one roof or several; a point's tooltip has its share of the first roof.

    Raises LayoutError for no roof and for points that are not positive.

    >>> chip = Roof("chip", 100e12, 4e12)
    >>> roofline([chip], [RooflinePoint("gemm", 500.0, 80e12)]).facts["share-gemm"]
    '0.800'
    """
    if not roofs:
        raise LayoutError("no roof: give at least one Roof(name, peak, bandwidth)")
    for point in points:
        if point.intensity <= 0 or point.rate <= 0:
            raise LayoutError(f"{point.name}: intensity {point.intensity:g} and rate {point.rate:g} must be positive")
    peak, ridges = max(roof.peak for roof in roofs) / scale, [roof.ridge for roof in roofs]
    xs = [*ridges, *(point.intensity for point in points)]
    x_range = (min(xs) / 4, max(xs) * 3)
    lowest = min([roof.bandwidth * x_range[0] / scale for roof in roofs] + [point.rate / scale for point in points])
    y_range = (max(lowest / 1.5, peak / 1e4), peak * 1.6)
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    y = 34.0
    for roof in roofs:
        line = f"{roof.name}: {roof.peak / scale:.4g} {unit}, {roof.bandwidth / 1e12:.4g} TB/s, ridge at {roof.ridge:.0f} operations a byte"
        canvas.text(0, y, line, 12, "faint")
        y += 17
    axes = _Axes(canvas, 58.0, y + 4, x_range, y_range, "operations per byte", unit)
    for i, roof in enumerate(roofs):
        style = "roof" if i == 0 else "dashed"
        axes.line((x_range[0], roof.bandwidth * x_range[0] / scale), (roof.ridge, roof.peak / scale), style)
        axes.line((roof.ridge, roof.peak / scale), (x_range[1], roof.peak / scale), style)
    facts: dict[str, object] = {"ridge": f"{roofs[0].ridge:.1f}"}
    words = [title]
    words += [
        f"  {r.name}: {r.peak / scale:.4g} {unit}, {r.bandwidth / 1e12:.4g} TB/s, ridge {r.ridge:.0f}" for r in roofs
    ]
    names = []
    for i, point in enumerate(points):
        limit = min(roofs[0].peak, roofs[0].bandwidth * point.intensity)
        share = point.rate / limit
        bound = "compute" if point.intensity >= roofs[0].ridge else "memory"
        tip = f"{point.name}: {point.rate / scale:.4g} {unit} at {point.intensity:.4g} operations a byte, {share:.1%} of what {bound} allows"
        axes.dot(point.intensity, point.rate / scale, group(i), f"{tip}\n{point.tip}" if point.tip else tip)
        facts[f"share-{point.name}"] = f"{share:.3f}"
        names.append((group(i), f"{point.name} ({share:.0%})"))
        words.append(
            f"  {point.name}: {point.rate / scale:.4g} {unit}, {point.intensity:.4g} op/B, {share:.1%} of the {bound} roof"
        )
    note = "in brackets: the share of the roof above it" + ("; colours repeat after 8" if len(points) > GROUPS else "")
    y = canvas.legend(0, axes.bottom + 42, names, limit=_WIDTH + 58) if names else axes.bottom + 42
    if names:
        canvas.text(0, y + 8, note, 11, "faint")
    return Drawing.of(title, canvas, "\n".join(words), facts)
