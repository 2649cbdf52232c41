"""The layout algebra: functions from coordinates to offsets, written Shape:Stride."""

from __future__ import annotations

if __name__ != "stridewright.layout":
    raise ImportError(
        f"this folder is imported as stridewright.layout, not as {__name__}: `import stridewright.layout`"
    )

from .algebra import bundle, coalesce, cosize, depth, filter, filter_zeros, flatten, rank, size
from .basis import E
from .coordinates import crd2crd, crd2idx, idx2crd
from .core import Layout
from .division import flat_divide, logical_divide, tiled_divide, zipped_divide
from .errors import LayoutError
from .expression import cpp_expression, index_expression
from .complements import complement
from .inverse import left_inverse, right_inverse
from .operations import compose
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
from .swizzle import Swizzle, SwizzledLayout, downcast, recast, upcast
from .tuples import compatible, congruent, product, weakly_congruent

__all__ = [
    "E",
    "Layout",
    "LayoutError",
    "Swizzle",
    "SwizzledLayout",
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
    "downcast",
    "filter",
    "filter_zeros",
    "flat_divide",
    "flat_product",
    "flatten",
    "idx2crd",
    "index_expression",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "ordered_layout",
    "product",
    "raked_product",
    "rank",
    "recast",
    "right_inverse",
    "size",
    "tile_to_shape",
    "tiled_divide",
    "tiled_product",
    "upcast",
    "weakly_congruent",
    "zipped_divide",
    "zipped_product",
]
