"""The layout algebra: functions from coordinates to offsets, written Shape:Stride.

A layout such as ``(4,8):(8,1)`` takes the coordinate (i, j) to the offset 8 i + j. Shapes and strides are ints or nested
tuples; a nested mode is one coordinate made of several. An index stands for a coordinate, counted with the leftmost entry
fastest, so that every layout is also a function of one number. Offsets past the end go on along the last mode.

>>> from stridewright.layout import *
>>> l = Layout((4, 8), (8, 1))
>>> print(l, l(1, 2), l(9), l[0], l.slice(None, 3))
(4,8):(8,1) 10 10 4:8 4:8

Every operation has a post-condition that decides what it returns, and it returns that or raises `LayoutError`: nothing is
rounded, truncated or dropped, whatever the sizes. ``explain(operation, *operands)`` walks through any of them.

**What a layout is.** `size` counts its coordinates, `cosize` the span of its offsets, `rank` its modes, `depth` its levels.

>>> size(l), cosize(l), rank(l), depth(l)
(32, 32, 2, 1)

**coalesce**: the same function of an index with the fewest modes. With a profile each mode is done by itself. `flatten` only
removes nesting; `filter` also drops what repeats offsets (strides of 0).

>>> print(coalesce(Layout((2, (1, 6)), (1, (6, 2)))), filter(Layout((4, 1, 8), (0, 3, 1))))
12:1 8:1

**compose**(a, b): R(i) == a(b(i)). b picks and reorders, a places. The shape of R refines that of b: where a mode of b runs
across modes of a, it is split. Where no layout is that function, LayoutError shows a coordinate that proves it.

>>> print(compose(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
((2,2),3):((24,2),8)

**complement**(l, n): what l leaves out of n offsets, in order, so that l and its complement fill them without collision.

>>> print(complement(Layout(4, 2), 24))
(2,3):(1,8)

**right_inverse, left_inverse**: R with l(R(i)) == i, the largest there is; R with R(l(i)) == i. For a permutation they are the
same. `max_common_layout(a, b)` is the largest R that both take to 0, 1, 2, ...; `nullspace(l)` is all that l sends to 0.

>>> print(right_inverse(l), left_inverse(Layout(4, 2)), nullspace(Layout((4, 8), (0, 1))))
(8,4):(4,1) (2,4):(0,1) 4:1

**Divides** split a layout into tiles: compose(l, (tile, complement(tile, size(l)))). `logical_divide` puts (tile, rest) in the
place of each divided mode; `zipped_divide` gathers ((tiles), (rests)), `tiled_divide` ((tiles), rest, rest, ...) and
`flat_divide` (tile, tile, ..., rest, rest, ...). The tiler is a layout for the whole, or a tuple with a layout, an int or None
for each mode. Tiles that do not fill the layout raise, or round it up with ``pad=True``.

>>> print(zipped_divide(Layout((12, 32), (1, 12)), (4, 8)))
((4,8),(3,4)):((1,12),(4,96))

**Products** repeat a layout: (l, compose(complement(l, ...), repetition)), in the same four arrangements. `blocked_product`
pairs modes so that blocks lie side by side, `raked_product` so that they alternate, and `tile_to_shape` repeats an atom until a
shape is filled.

>>> print(logical_product(Layout((2, 2), (4, 1)), 6))
((2,2),(2,3)):((4,1),(2,8))
>>> print(tile_to_shape(Layout((8, 64), (64, 1)), (128, 64), order=(1, 0)))
((8,16),(64,1)):((64,512),(1,0))

**Swizzles** XOR some bits of an offset into others, a permutation that keeps columns of a tile off one bank. A swizzle acts in
the units of the layout it follows: `recast` (and `upcast`, `downcast`) changes the width of an element for both.

>>> tile = compose(Swizzle(3, 4, 3), Layout((8, 128), (128, 1)))  # in bytes
>>> print(recast(tile, 8, 16), tile.slice(2, None))
S<3,3,3> o (8,64):(64,1) S<3,4,3> o 256 o 128:1

**F2.** Layouts of powers of two and swizzles are linear in the bits of their index; `LinearLayout` decides by rank what would
take a walk over all inputs, and can print the proof.

>>> print(LinearLayout.of(Swizzle(1, 0, 1)).prove_bijective().conclusion)
rank 2 of 2 input bits: holds

**Partitions.** `local_tile` cuts out one tile, `local_partition` the share of one thread; `make_tv_layout` maps (thread, value) to
the elements of a tile, and `invert_tv_layout` says who holds an element.

>>> print(local_tile(Layout((8, 16), (16, 1)), (4, 8), (1, 1))[0], local_partition(Layout((8, 16), (16, 1)), Layout((2, 4), (4, 1)), 5))
(4,8):(16,1) (Layout((4, 4), (32, 4)), 17)

**Basis strides.** ``2 * E(0)`` is a stride along coordinate 0: offsets are then coordinates, as TMA takes them.

>>> print(Layout((4, 8), (E(1), 2 * E(0)))(3, 1))
2@0+3@1

**Symbolic sizes.** Extents and strides may be sympy expressions; `dimension` declares a size and a divisor. A result holds for
every value of the sizes, or the error names the missing fact.

>>> N = dimension("N", multiple_of=64)
>>> print(right_inverse(Layout((16, N), (1, 16))), logical_divide(Layout(N), 32))
16*N:1 (32,N/32):(1,32)

**Modes** are rearranged by `group`, `append`, `prepend`, `replace`, `zip_modes`, `dice`, `make_layout`; indices and coordinates by
`idx2crd`, `crd2idx`, `crd2crd`; shapes are compared by `congruent`, `weakly_congruent`, `compatible`. `cpp_expression` writes a
layout as C++; `grid_text`, `tv_text` and `hardware_text` show one in a terminal.

>>> print(cpp_expression(compose(Swizzle(3, 3, 3), Layout((128, 64), (64, 1))), "row", "column"))
((row << 6) + column) ^ ((row & 7) << 3)
>>> print(grid_text(Layout((2, 4), (4, 1))))
  | 0 1 2 3
--+--------
0 | 0 1 2 3
1 | 4 5 6 7
"""

from __future__ import annotations

if __name__ != "stridewright.layout":
    raise ImportError(
        f"this folder is imported as stridewright.layout, not as {__name__}: `import stridewright.layout`"
    )

from typing import TYPE_CHECKING, Any

from .algebra import bundle, coalesce, cosize, depth, filter, filter_zeros, flatten, rank, size
from .basis import E
from .complements import complement
from .core import Layout
from .division import flat_divide, logical_divide, tiled_divide, zipped_divide
from .errors import LayoutError
from .inverse import left_inverse, right_inverse
from .operations import compose
from .swizzle import Swizzle, SwizzledLayout

if TYPE_CHECKING:
    from .common import max_common_layout, max_common_vector, nullspace
    from .coordinates import crd2crd, crd2idx, idx2crd
    from .explaining import Explanation, explain
    from .expression import cpp_expression, index_expression
    from .facts import SizeSymbol, dimension
    from .linear import LinearLayout, Proof
    from .modes import append, dice, group, make_layout, prepend, replace, slice_and_offset, zip_modes
    from .partition import (
        identity_layout,
        in_bounds,
        invert_tv_layout,
        local_partition,
        local_tile,
        make_tv_layout,
        product_each,
        thread_values,
    )
    from .products import (
        blocked_product,
        flat_product,
        logical_product,
        ordered_layout,
        raked_product,
        tile_to_shape,
        tiled_product,
        zipped_product,
    )
    from .recasting import downcast, recast, upcast
    from .symbolic import substitute
    from .tuples import compatible, congruent, product, weakly_congruent
    from .views import grid_text, hardware_text, tv_text

# Loaded when first asked for, so that importing the algebra stays quick.
_LAZY = {
    "common": "max_common_layout max_common_vector nullspace",
    "coordinates": "crd2crd crd2idx idx2crd",
    "explaining": "explain Explanation",
    "expression": "cpp_expression index_expression",
    "facts": "SizeSymbol dimension",
    "linear": "LinearLayout Proof",
    "modes": "append dice group make_layout prepend replace slice_and_offset zip_modes",
    "partition": "identity_layout in_bounds invert_tv_layout local_partition local_tile make_tv_layout product_each thread_values",
    "products": "blocked_product flat_product logical_product ordered_layout raked_product tile_to_shape tiled_product zipped_product",
    "recasting": "downcast recast upcast",
    "symbolic": "substitute",
    "tuples": "compatible congruent product weakly_congruent",
    "views": "grid_text hardware_text tv_text",
}
_HOME = {name: module for module, names in _LAZY.items() for name in names.split()}

__all__ = [
    "E",
    "Explanation",
    "Layout",
    "LayoutError",
    "LinearLayout",
    "Proof",
    "SizeSymbol",
    "Swizzle",
    "SwizzledLayout",
    "append",
    "blocked_product",
    "bundle",
    "coalesce",
    "compatible",
    "complement",
    "compose",
    "congruent",
    "cosize",
    "cpp_expression",
    "crd2crd",
    "crd2idx",
    "depth",
    "dice",
    "dimension",
    "downcast",
    "explain",
    "filter",
    "filter_zeros",
    "flat_divide",
    "flat_product",
    "flatten",
    "grid_text",
    "group",
    "hardware_text",
    "identity_layout",
    "idx2crd",
    "in_bounds",
    "index_expression",
    "invert_tv_layout",
    "left_inverse",
    "local_partition",
    "local_tile",
    "logical_divide",
    "logical_product",
    "make_layout",
    "make_tv_layout",
    "max_common_layout",
    "max_common_vector",
    "nullspace",
    "ordered_layout",
    "prepend",
    "product",
    "product_each",
    "raked_product",
    "rank",
    "recast",
    "replace",
    "right_inverse",
    "size",
    "slice_and_offset",
    "substitute",
    "thread_values",
    "tile_to_shape",
    "tiled_divide",
    "tiled_product",
    "tv_text",
    "upcast",
    "weakly_congruent",
    "zip_modes",
    "zipped_divide",
    "zipped_product",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        import importlib

        value = getattr(importlib.import_module("." + _HOME[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
