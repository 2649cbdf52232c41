"""The orders in which a persistent grid takes its tiles: layouts where one exists, tables otherwise.

CTAs that run at the same time compute consecutive tiles, and share in L2 the panels of A (a row of tiles) and of B (a
column of tiles) that these need: the squarer a window of consecutive tiles, the fewer panels. The device computes most
orders itself (``cuda/scheduler.cuh``) and reads those of ``TABLES`` from a table made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stridewright.layout import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

ORDERS = ("grouped", "serpentine", "row", "column", "nested", "hilbert")
TABLES = ("nested", "hilbert")
GPC_SMS = 16
"""SMs of most GPCs of an H100 or H200: what is computed there at the same time is a patch of a nested order."""
TABLE_LIMIT = 1 << 16
"""Rows and columns of tiles that a table entry can name: 16 bits each."""


def patch_of(cluster_m: int, cluster_n: int) -> tuple[int, int]:
    """Rows and columns of clusters whose tiles one GPC should have. Its SMs share what they read of L2 if it is not multicast: single CTAs
    both operands, so a square; clusters the operand that their CTAs do not share, so a column or a row of clusters.

    >>> patch_of(1, 1), patch_of(1, 2), patch_of(2, 1), patch_of(2, 2)
    ((4, 4), (8, 1), (1, 8), (2, 2))
    """
    count = max(1, GPC_SMS // (cluster_m * cluster_n))
    if (cluster_m > 1) == (cluster_n > 1):
        side = 1 << (count.bit_length() - 1) // 2
        return side, count // side
    return (count, 1) if cluster_n > 1 else (1, count)


def order_layout(order: str, rows: int, columns: int, group: int = 8, patch: tuple[int, int] = (4, 4)) -> Layout | None:
    """place in the order -> ``row + rows * column`` of the tile, or None where that is no layout: a serpentine turns
    round, Hilbert's curve winds, and a last group or patch that is smaller than the others breaks the pattern. ``patch``: rows and
    columns of the patches that a band of ``group`` rows is walked in, column by column (``"nested"``).

    >>> print(order_layout("row", 4, 6), order_layout("column", 4, 6), order_layout("grouped", 16, 6, group=8))
    (6,4):(4,1) 24:1 (8,6,2):(1,16,8)
    >>> print(order_layout("nested", 16, 8, group=8))
    (4,4,2,2,2):(1,16,4,64,8)
    """
    if order == "row":
        return Layout((columns, rows), (rows, 1))
    if order == "column":
        return Layout(rows * columns, 1)
    if order == "grouped" and (rows % group == 0 or rows < group):
        height = min(group, rows)
        return Layout((height, columns, rows // height), (1, rows, height))
    high, wide = patch
    if order == "nested" and rows % group == 0 and group % high == 0 and columns % wide == 0:
        shape = (high, wide, group // high, columns // wide, rows // group)
        return Layout(shape, (1, rows, high, rows * wide, group))
    return None


def order_table(order: str, rows: int, columns: int, group: int = 8, patch: tuple[int, int] = (4, 4)) -> NDArray[Any]:
    """The tiles' (row, column) in the order in which they are taken: int64, shape (rows * columns, 2). ``group`` and ``patch`` as
    ``order_layout`` takes them.

    Raises ValueError for an unknown order or sizes under 1.

    >>> order_table("serpentine", 2, 3, group=1).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 2], [1, 1], [1, 0]]
    """
    import numpy as np

    if order not in ORDERS:
        raise ValueError(f"order={order!r}: must be one of {', '.join(ORDERS)}")
    if min(rows, columns, group, *patch) < 1:
        raise ValueError(f"rows={rows}, columns={columns}, group={group}, patch={patch}: each must be at least 1")
    if order == "hilbert":
        return _hilbert(rows, columns)
    layout = order_layout(order, rows, columns, group, patch)
    if layout is not None:
        places = np.asarray(layout(np.arange(rows * columns)))
        return np.stack([places % rows, places // rows], axis=1)
    if order == "nested":
        return _nested(rows, columns, group, patch)
    index = np.arange(rows * columns)
    number, within = np.divmod(index, group * columns)
    height = np.minimum(rows - number * group, group)
    column = within // height
    row = number * group + within - column * height
    if order == "serpentine":
        column = np.where(number % 2 == 1, columns - 1 - column, column)
    return np.stack([row, column], axis=1)


def _nested(rows: int, columns: int, group: int, patch: tuple[int, int]) -> NDArray[Any]:
    """Bands of ``group`` rows, in each the patches column by column, in each patch the tiles; smaller ones at the edges."""
    import numpy as np

    row, column = (each.ravel() for each in np.indices((rows, columns)))
    (high, wide), within = patch, row % group
    # The last key is the first to sort by.
    sorted_ = np.lexsort((within % high, column % wide, within // high, column // wide, row // group))
    return np.stack([row[sorted_], column[sorted_]], axis=1)


def _hilbert(rows: int, columns: int) -> NDArray[Any]:
    """Hilbert's curve through squares laid along the longer side; places outside the rectangle are left out."""
    import numpy as np

    short, long = sorted((rows, columns))
    bits = (short - 1).bit_length()
    side = 1 << bits
    x, y = _hilbert_square(bits)
    squares = -(-long // side)
    along = np.concatenate([x + square * side for square in range(squares)])
    across = np.tile(y, squares)
    inside = (along < long) & (across < short)
    along, across = along[inside], across[inside]
    return np.stack([across, along] if rows <= columns else [along, across], axis=1)


def _hilbert_square(bits: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """(along, across) of every place of the curve through a square of side ``2 ** bits``; it starts and ends on the side
    ``across = 0``, at the first and the last place ``along``.

    Each doubling puts four copies together: the first and last turned over the two diagonals, so that ends meet
    (D. Hilbert, 1891).
    """
    import numpy as np

    x = y = np.zeros(1, dtype=np.int64)
    for bit in range(bits):
        half = 1 << bit
        x, y = (
            np.concatenate([y, x, x + half, 2 * half - 1 - y]),
            np.concatenate([x, y + half, y + half, half - 1 - x]),
        )
    return x, y


def packed_table(order: str, rows: int, columns: int, group: int = 8, patch: tuple[int, int] = (4, 4)) -> NDArray[Any]:
    """The table as the kernel reads it: uint32, ``row | column << 16``, shape (rows * columns,).

    >>> [hex(entry) for entry in packed_table("hilbert", 2, 2)]
    ['0x0', '0x1', '0x10001', '0x10000']
    """
    import numpy as np

    if max(rows, columns) > TABLE_LIMIT:
        raise ValueError(
            f"{rows} x {columns} tiles: a table entry has 16 bits for each, at most {TABLE_LIMIT}; "
            'order="grouped" has no such limit'
        )
    table = order_table(order, rows, columns, group, patch)
    packed: NDArray[Any] = (table[:, 0] | table[:, 1] << 16).astype(np.uint32)
    return packed
