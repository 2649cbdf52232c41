"""Tensor memory of sm_100: where accumulators, A operands and scale factors lie, as Layouts.

An address is lane << 16 | column, 128 lanes of 512 columns of 32 bits. Layouts of 32-bit values map to that word;
layouts of b-bit values count in b-bit cells, as CuTe does: a lane is then 65536 * 32 / b apart, a column 32 / b.

Sources: PTX ISA 9.1 section 9.7.16.2 (addresses), 9.7.16.5 (data paths A to G), 9.7.16.10.5 (scale factors);
layouts printed by CuTe's headers; TVM's, whose authors ran them on a B200. Nothing was run here on a Blackwell.
"""

from __future__ import annotations

from ..core import Layout
from .errors import HardwareError, nearest_multiples, whole

LANES = 128
COLUMNS = 512
CELL_BITS = 32
LANE = 1 << 16  # one lane, in the address word
MAXIMUM_N = 256  # of one tcgen05.mma (PTX ISA 9.1, table 39 of 9.7.16)
SCALE_BYTES = 4  # scale factors of one row that share a 32-bit column


def tmem_address(lane: int, column: int) -> int:
    """The address word. Raises HardwareError outside 128 lanes x 512 columns.

    >>> hex(tmem_address(32, 5))
    '0x200005'
    """
    lane, column = whole("lane", lane), whole("column", column)
    if not (0 <= lane < LANES and 0 <= column < COLUMNS):
        raise HardwareError(f"lane {lane}, column {column}: tensor memory has {LANES} lanes of {COLUMNS} columns")
    return lane << 16 | column


def data_path(m: int, cta_group: int = 1, ws: bool = False, sparse: bool = False) -> str:
    """The letter PTX gives the accumulator's layout (section 9.7.16.5). ``m`` is the whole instruction's M.

    >>> [data_path(128), data_path(64), data_path(256, 2), data_path(128, 2), data_path(32, ws=True)]
    ['D', 'F', 'A', 'B', 'G']
    """
    table = {
        (1, False, 128): "D",
        (1, False, 64): "F",
        (2, False, 256): "A",
        (2, False, 128): "C" if sparse else "B",
        (1, True, 128): "D",
        (1, True, 64): "E",
        (1, True, 32): "G",
    }
    letter = table.get((cta_group, ws, m))
    if letter is None:
        allowed = sorted(size for group, weight, size in table if (group, weight) == (cta_group, ws))
        text = ", ".join(map(str, allowed)) if allowed else "none: .ws is for cta_group::1"
        raise HardwareError(f"m={m}, cta_group {cta_group}{', .ws' if ws else ''}: M may be {text} (PTX table 39)")
    return letter


def accumulator_layout(
    m: int,
    n: int,
    cta_group: int = 1,
    ws: bool = False,
    sparse: bool = False,
    value_bits: int = 32,
) -> Layout:
    """The accumulator of one tcgen05.mma in one CTA: (rows of this CTA, n) -> tensor-memory address.

    ``value_bits`` 16 counts in 16-bit cells (an f16 accumulator takes the low half of a 32-bit cell). With M = 64 it
    takes lanes 0 to 15 of each quarter, or 16 to 31 from an address 16 lanes further on. Raises HardwareError for an M that the form does not have or an N that is no multiple of 8 up to 256.

    >>> print(accumulator_layout(128, 256), accumulator_layout(64, 128))
    (128,256):(65536,1) ((16,4),128):((65536,2097152),1)
    >>> print(accumulator_layout(128, 256, cta_group=2))
    (64,(128,2)):(65536,(1,4194304))
    """
    letter = data_path(m, cta_group, ws, sparse)
    _check_n(n)
    scale = cells_per_column(value_bits)
    lane, column = LANE * scale, scale
    if letter in "DA":
        return Layout((128, n), (lane, column))
    if letter in "FC":
        # 16 rows in each quarter of 32 lanes, which is what each of four warps can reach.
        return Layout(((16, 4), n), ((lane, 32 * lane), column))
    rows = {"B": 64, "E": 64, "G": 32}[letter]
    parts = LANES // rows
    return Layout((rows, (n // parts, parts)), (lane, (column, rows * lane)))


def _check_n(n: int) -> None:
    if whole("n", n) % 8 or not 8 <= n <= MAXIMUM_N:
        fix = f"nearest {MAXIMUM_N}" if n > MAXIMUM_N else nearest_multiples(max(n, 0), 8)
        raise HardwareError(f"n={n}: an accumulator has 8, 16, .. {MAXIMUM_N} columns (PTX table 39); {fix}")


def cells_per_column(value_bits: int) -> int:
    """How many values of that width a 32-bit column holds. Raises HardwareError for other widths than 8, 16 and 32.

    >>> cells_per_column(16)
    2
    """
    if value_bits not in (8, 16, 32):
        raise HardwareError(f"value_bits={value_bits}: must be 8, 16 or 32")
    return CELL_BITS // value_bits


def accumulator_columns(m: int, n: int, cta_group: int = 1, ws: bool = False, sparse: bool = False) -> int:
    """32-bit columns that one accumulator takes.

    >>> accumulator_columns(128, 256), accumulator_columns(128, 256, 2), accumulator_columns(32, 256, ws=True)
    (256, 128, 64)
    """
    _check_n(n)
    return n // {"B": 2, "E": 2, "G": 4}.get(data_path(m, cta_group, ws, sparse), 1)


def accumulator_tiles(
    m: int,
    n: int,
    tiles_m: int = 1,
    tiles_n: int = 1,
    interleaved: bool = False,
    value_bits: int = 32,
    **form: bool | int,
) -> Layout:
    """Several accumulators side by side: ((rows, n), tiles_m, tiles_n) -> address, as CuTe's tmem fragments.

    ``interleaved``: with M = 64 two tiles along M share columns, the second in lanes 16 to 31. ``form`` holds
    cta_group, ws and sparse of ``accumulator_layout``.

    >>> print(accumulator_tiles(128, 128, 2, 2))
    ((128,128),2,2):((65536,1),128,256)
    """
    one = accumulator_layout(m, n, value_bits=value_bits, **form)  # type: ignore[arg-type]
    scale = cells_per_column(value_bits)
    width = accumulator_columns(m, n, **form) * scale  # type: ignore[arg-type]
    if interleaved:
        if tiles_m != 2 or data_path(m, **form) not in "FC":  # type: ignore[arg-type]
            raise HardwareError("interleaved: two tiles along M of 64 rows each share their columns, nothing else does")
        step_m, step_n = 16 * LANE * scale, width
    else:
        step_m, step_n = width, width * tiles_m
    columns = step_n // scale * whole("tiles_n", tiles_n)
    if columns > COLUMNS:
        raise HardwareError(
            f"{tiles_m} x {tiles_n} accumulators of {width // scale} columns: {columns} of {COLUMNS} columns; use fewer"
        )
    return Layout(
        (one.shape, tiles_m, tiles_n), (one.stride, step_m if tiles_m > 1 else 0, step_n if tiles_n > 1 else 0)
    )


def operand_a_layout(m: int, k: int, cta_group: int = 1, value_bits: int = 16, steps: int = 1) -> Layout:
    """A in tensor memory: ((rows, k), 1, steps) -> address in cells of ``value_bits``, values packed in their column.

    For cta_group 2 with M = 128 the CTA's 64 rows stand twice, in lanes 64 to 127 again, so that the map has 128 lanes.

    >>> print(operand_a_layout(128, 16, steps=4))
    ((128,16),1,4):((131072,1),0,16)
    """
    letter = data_path(m, cta_group)
    lane = LANE * cells_per_column(value_bits)
    if letter == "F":
        rows, strides = (16, 4), (lane, 32 * lane)
    else:
        rows, strides = 128, lane  # type: ignore[assignment]
    return Layout(((rows, k), 1, steps), ((strides, 1), 0, k if steps > 1 else 0))


def scale_smem_layout(rows: int = 128, vector: int = 32) -> Layout:
    """Scale factors in global and shared memory: ((row), (element in its vector, scale)) -> byte, 512 for 128 rows x 4.

    >>> print(scale_smem_layout())
    ((32,4),(32,4)):((16,4),(0,1))
    """
    if rows != 128:
        raise HardwareError(
            f"rows={rows}: a scale-factor atom has 128 rows (PTX 9.7.16.10.5); pad to a multiple of 128"
        )
    return Layout(((32, 4), (vector, 4)), ((16, 4), (0, 1)))


# Scale factors that one instruction takes a row, by scale_vec size: K / vector.
_PER_INSTRUCTION = {("mxf8f6f4", 32): 1, ("mxf4", 32): 2, ("mxf4nvf4", 32): 2, ("mxf4nvf4", 16): 4}


def scale_layout(kind: str, rows: int, vector: int, steps: int = 1, two_by_two: bool = False) -> Layout:
    """Scale factors in tensor memory: ((rows.., replicas), (element, scale)), 1, steps -> byte cell.

    A row's factors lie in lane row % 32, four to a column, ``rows / 32`` columns for every four; all is repeated in
    each quarter of 32 lanes. ``steps`` are instructions along K: where one takes fewer than four factors, the next
    finds its own in the same columns (the scale factor id), else further columns. ``two_by_two``: SFB of a pair of CTAs
    with M = 128, N's first half in lanes 0 to 63, its second in 64 to 127.

    >>> print(scale_layout("mxf8f6f4", 128, 32, 4))
    ((((32,4),4),(32,1)),1,4):((((262144,4),8388608),(0,1)),0,1)
    """
    each = _PER_INSTRUCTION.get((kind, vector))
    if each is None:
        allowed = ", ".join(f"{k} with {v}" for k, v in _PER_INSTRUCTION)
        raise HardwareError(f"kind {kind} with vectors of {vector}: {allowed} (PTX 9.7.16.10.5)")
    if whole("rows", rows) < 1 or rows % 128:
        fix = nearest_multiples(max(rows, 0), 128)
        raise HardwareError(f"rows={rows}: scale factors are padded to multiples of 128 rows; {fix}")
    lane = LANE * 4
    groups = rows // 32
    if two_by_two:
        if rows != 256:
            raise HardwareError(f"rows={rows}: the 2x2 layout is that of N = 256")
        row: tuple[object, ...] = ((32, 4), 2, 2)
        row_stride: tuple[object, ...] = ((lane, SCALE_BYTES), 64 * lane, 32 * lane)
        groups = 4
    else:
        row, row_stride = ((32, groups), 4), ((lane, SCALE_BYTES), 32 * lane)
    in_column = SCALE_BYTES // each
    further = groups * SCALE_BYTES
    shape: object = steps
    stride: object = each
    if steps == 1:
        stride = 0
    elif in_column == 1:
        stride = further
    elif steps > in_column:
        if steps % in_column:
            raise HardwareError(
                f"steps={steps}: must be a multiple of {in_column}, the instructions that share columns"
            )
        shape, stride = (in_column, steps // in_column), (each, further)
    return Layout(((row, (vector, each)), 1, shape), ((row_stride, (0, 1)), 0, stride))


def scale_columns(rows: int, scales: int) -> int:
    """Columns for ``scales`` factors of each of ``rows`` rows (padded to 128 rows and 4 factors).

    >>> scale_columns(128, 4), scale_columns(256, 4), scale_columns(128, 16)
    (4, 8, 16)
    """
    for name, value in (("rows", rows), ("scales", scales)):
        if whole(name, value) < 1:
            raise HardwareError(f"{name}={value}: must be at least 1")
    return -(-rows // 128) * 4 * -(-scales // 4)


def mma_operand_layouts(m: int, n: int, k: int, cta_group: int = 1) -> tuple[Layout, Layout, Layout]:
    """(A, B, C) of tcgen05.mma over the CTAs: (cta, (rows, columns)) -> row + rows * column, as CuTe's traits.

    Of a pair each CTA brings half the rows of A and of B and ends with half the rows of D.

    >>> print(mma_operand_layouts(256, 128, 16, 2)[1])
    (2,(64,16)):(64,(1,128))
    """
    if cta_group not in (1, 2):
        raise HardwareError(f"cta_group {cta_group}: must be 1 or 2")
    for name, value in (("m", m), ("n", n)):
        if whole(name, value) % cta_group:
            raise HardwareError(f"{name}={value}: a pair of CTAs halves it; {nearest_multiples(value, cta_group)}")

    def operand(rows: int, columns: int) -> Layout:
        if cta_group == 1:
            return Layout((1, (rows, columns)), (0, (1, rows)))
        return Layout((2, (rows // 2, columns)), (rows // 2, (1, rows)))

    return operand(m, k), operand(n, k), operand(m, n)
