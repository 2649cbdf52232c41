"""How an operand's tile is told to the hardware: the tensor map's dimensions and the matrix descriptor's bits, each beside
the mode of the layout that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import Layout, LayoutError, SwizzledLayout
from ..hardware.canonical import Tile, recognise
from ..hardware.descriptors import CORE_ROWS, OPERAND_K_BYTES, UNIT, MatrixDescriptor, is_blackwell
from ..hardware.dtypes import data_type
from ..hardware.tensor_map_driver import driver_arguments
from .canvas import Canvas, text_width
from .drawing import Drawing, paragraph
from .grid import extent_of
from .style import group

if TYPE_CHECKING:
    from ..hardware.tensor_map import TensorMap

_BIT = 12.0
_LINE = 110  # characters


@dataclass(frozen=True)
class _Field:
    """A descriptor field: its lowest bit, how many, its name, what it says, and where that comes from."""

    low: int
    width: int
    name: str
    meaning: str
    source: str


def _steps(inner: Layout, descriptor: MatrixDescriptor, major: str, bits: int) -> tuple[str, str]:
    """Where LBO and SBO come from: the coordinate steps of the layout, in words."""
    rows, k = extent_of(inner[0]), extent_of(inner[1])
    mode = descriptor.mode
    chunk, width = UNIT * 8 // bits, mode.span * 8 // bits
    group_rows = 4 if mode.name == "128B_atom_32B" else CORE_ROWS

    def step(row: int, column: int) -> str:
        if row >= rows or column >= k:
            return "the tile ends before that step"
        elements = int(inner(row, column) - inner(0, 0))
        return f"(0,0) to ({row},{column}) in {inner}: {elements} elements = {elements * bits // 8} B"

    if major == "k":
        leading = step(0, chunk) if mode.bits == 0 else "not looked at: K-major with a swizzle"
        return leading, step(CORE_ROWS, 0)
    if mode.bits == 0:
        return step(0, CORE_ROWS), step(chunk, 0)
    return step(width, 0), step(0, group_rows)


def descriptor_view(
    tile: Tile, dtype: str = "bf16", arch: str = "sm_90a", major: str = "k", address: int = 0
) -> Drawing:
    """The 64-bit matrix descriptor of a tile in shared memory, bit by bit, each field beside the step of the layout that it
    encodes.

    Arguments and errors are those of ``hardware.matrix_descriptor``, whose word this shows.

    >>> from stridewright.layout.hardware import smem_tile
    >>> descriptor_view(smem_tile("128B", "k", "bf16", 64, 64)).facts["word"]
    '0x4000004000010000'
    """
    operand = recognise(tile, dtype, arch, major, address)
    descriptor = operand.descriptor
    word = descriptor.encode()
    inner = tile.layout if isinstance(tile, SwizzledLayout) else tile
    leading, stride = _steps(inner, descriptor, major, data_type(dtype).smem_bits)
    mode = descriptor.mode
    swizzle = str(tile.swizzle) if isinstance(tile, SwizzledLayout) else "no swizzle"
    fields = [
        _Field(0, 14, "start", f"{descriptor.start} B", "where coordinate (0,0) lies, in units of 16 B"),
        _Field(16, 14, "LBO", f"{descriptor.leading} B", leading),
        _Field(32, 14, "SBO", f"{descriptor.stride} B", stride),
        _Field(49, 3, "base offset", str(descriptor.base_offset), "0: the tile begins at a multiple of its repeat"),
    ]
    if is_blackwell(arch):
        fields.insert(3, _Field(46, 3, "version", str(word >> 46 & 7), "fixed by PTX for tcgen05"))
        fields.append(_Field(61, 3, "swizzle", mode.name, f"{swizzle} of {dtype} elements"))
    else:
        fields.append(_Field(62, 2, "swizzle", mode.name, f"{swizzle} of {dtype} elements"))
    title = f"matrix descriptor {word:#018x}"
    subtitle = f"{major.upper()}-major {dtype}, {arch}: {tile}"
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    canvas.text(0, 34, subtitle, 12, "faint")
    _bits(canvas, 58, word, fields)
    y = 104.0
    names = ("field", "bits", "raw", "value", "from")
    _table(canvas, y, names, [_cells(field, word) for field in fields])
    for i, field in enumerate(fields):
        canvas.rect(0, y + 12 + 22 * i, 13, 13, f"swatch {group(i)}", f"{field.name}: {field.meaning}")
    y += 22 * (len(fields) + 1) + 4
    canvas.text(
        0,
        y,
        f"each further instruction along K ({OPERAND_K_BYTES} B) adds to the start, in units of 16 B: {operand.k_advance}",
        12,
    )
    facts = {"word": f"{word:#018x}", "start": descriptor.start, "lbo": descriptor.leading, "sbo": descriptor.stride}
    lines = [title, f"  {subtitle}"]
    for field in fields:
        cells = _cells(field, word)
        lines.append(f"  {cells[0]:<12}{cells[1]:<8}{cells[2]:<7}{cells[3]:<8}{cells[4]}")
    lines.append(f"  k-advance   {operand.k_advance} units of 16 B")
    return Drawing.of(title, canvas, "\n".join(lines), facts)


def _cells(field: _Field, word: int) -> tuple[str, ...]:
    raw = word >> field.low & ((1 << field.width) - 1)
    return field.name, f"{field.low}-{field.low + field.width - 1}", str(raw), field.meaning, field.source


def _bits(canvas: Canvas, y: float, word: int, fields: list[_Field]) -> None:
    owner = {bit: i for i, field in enumerate(fields) for bit in range(field.low, field.low + field.width)}
    marks = {bit for field in fields for bit in (field.low, field.low + field.width - 1)} | {63}
    last = -_BIT * 2
    for bit in range(63, -1, -1):
        x = (63 - bit) * _BIT
        kind = group(owner[bit]) if bit in owner else "empty"
        one = word >> bit & 1
        canvas.cell(x, y, _BIT, 20, kind, str(one), f"bit {bit}", 10, {"bit": bit}, "on" if bit in owner else "faint")
        if bit in marks and x - last > _BIT:
            canvas.text(x + _BIT / 2, y - 5, bit, 9, "faint", "middle")
            last = x


def _table(canvas: Canvas, y: float, names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A table of texts in columns as wide as needed."""
    x = 20.0
    for column, name in enumerate(names):
        canvas.text(x, y + 2, name, 11, "faint")
        for i, row in enumerate(rows):
            canvas.text(x, y + 23 + 22 * i, row[column], 12)
        x += max(text_width(text, 12) for text in [name, *(row[column] for row in rows)]) + 18


def tensor_map_view(tensor_map: TensorMap, title: str | None = None) -> Drawing:
    """A tensor map: every dimension's size, stride and box beside the mode of the layout in which the box lands in shared
    memory, the tensor and its box to scale, the bytes the mbarrier counts, and what the driver would say against it.

    >>> from stridewright.layout.hardware import TensorMap
    >>> view = tensor_map_view(TensorMap("bf16", (256, 128), (512,), (64, 64), swizzle="128B"))
    >>> view.facts["box-bytes"], view.facts["problems"]
    (8192, 0)
    """
    m = tensor_map
    problems = m.problems()
    name = title or f"tensor map of {m.dtype}, box {' x '.join(map(str, m.box))}"
    canvas = Canvas()
    canvas.text(0, 15, name, 15, "bold")
    rows: list[tuple[str, ...]] = []
    landing = ""
    modes: list[str] = ["-"] * m.rank
    if not problems:
        try:
            seen = m.landing()
        except LayoutError as error:
            landing = str(error)
        else:
            landing = f"lands as {seen} (box coordinate -> element)"
            inner = seen.layout if isinstance(seen, SwizzledLayout) else seen
            modes = [str(inner[i]) for i in range(m.rank)]
    for i in range(m.rank):
        stride = data_type(m.dtype).bits / 8 if i == 0 else m.strides_bytes[i - 1]
        step = m.steps[i]
        rows.append((str(i), str(m.shape[i]), f"{stride:g}", str(m.box[i]), str(step), modes[i]))
    y = 44.0
    _table(canvas, y, ("dim", "size", "stride B", "box", "step", "mode in shared memory"), rows)
    for i in range(m.rank):
        canvas.rect(0, y + 12 + 22 * i, 13, 13, f"swatch {group(i)}", f"dimension {i}: box {m.box[i]} of {m.shape[i]}")
    y += 22 * (m.rank + 1) + 8
    lines = [
        landing,
        f"swizzle {m.swizzle}, interleave {m.interleave}, L2 promotion {m.l2_promotion}, out of bounds {m.oob_fill}",
    ]
    if not problems:
        lines.append(f"{m.box_bytes} bytes a copy (what the mbarrier counts); rows {m.pitch} B apart in shared memory")
        codes = driver_arguments(m)
        lines.append(
            f"cuTensorMapEncodeTiled: data type {codes.dtype}, rank {codes.rank}, interleave {codes.interleave}, swizzle"
            f" {codes.swizzle}, L2 promotion {codes.l2_promotion}, out of bounds {codes.oob_fill}"
        )
    for line in filter(None, lines):
        canvas.text(0, y, line, 12)
        y += 18
    for problem in problems:
        for line in paragraph(str(problem), _LINE):
            canvas.text(0, y, line, 12, "warn")
            y += 18
    if not problems:
        canvas.text(0, y, "the driver would accept it", 12, "good")
        y += 10
        _draw_box(canvas, y + 14, m)
    words = [name]
    header = f"  {'dim':<5}{'size':<10}{'stride B':<12}{'box':<6}{'step':<6}mode in shared memory"
    words += [header, *(f"  {r[0]:<5}{r[1]:<10}{r[2]:<12}{r[3]:<6}{r[4]:<6}{r[5]}" for r in rows)]
    words += [f"  {line}" for line in lines if line] + [f"  {problem}" for problem in problems]
    facts: dict[str, object] = {"problems": len(problems)}
    if not problems:
        facts |= {"box-bytes": m.box_bytes, "pitch": m.pitch}
    return Drawing.of(name, canvas, "\n".join(words), facts)


def _draw_box(canvas: Canvas, y: float, m: TensorMap) -> None:
    """Dimensions 0 (across) and 1 (down) of the tensor to scale, with its first box."""
    across, down = m.shape[0], m.shape[1] if m.rank > 1 else 1
    scale = min(520 / across, 180 / down)
    width, height = max(across * scale, 6), max(down * scale, 6)
    box_down = m.counts[1] * m.steps[1] if m.rank > 1 else 1
    canvas.rect(0, y, width, height, "box", f"the tensor: {across} x {down}")
    canvas.rect(
        0,
        y,
        max(min(m.box[0], across) * scale, 3),
        max(min(box_down, down) * scale, 3),
        "cell k1",
        f"the box: {m.box[0]} x {box_down}",
        {"box": f"{m.box[0]}x{box_down}"},
    )
    canvas.text(0, y + height + 15, "the tensor and its first box, dimension 0 across, 1 down", 11, "faint")
