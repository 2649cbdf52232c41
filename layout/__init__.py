"""The layout algebra: functions from coordinates to offsets, written Shape:Stride."""

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

# Loaded when first asked for, so that importing the algebra stays quick.
_LAZY = {
    "common": "max_common_layout max_common_vector nullspace",
    "coordinates": "crd2crd crd2idx idx2crd",
    "expression": "cpp_expression index_expression",
    "facts": "SizeSymbol dimension",
    "linear": "LinearLayout Proof",
    "modes": "append dice group make_layout prepend replace slice_and_offset zip_modes",
    "partition": "identity_layout in_bounds invert_tv_layout local_partition local_tile make_tv_layout product_each thread_values",
    "products": "blocked_product flat_product logical_product ordered_layout raked_product tile_to_shape tiled_product zipped_product",
    "recasting": "downcast recast upcast",
    "symbolic": "substitute",
    "tuples": "compatible congruent product weakly_congruent",
}
_HOME = {name: module for module, names in _LAZY.items() for name in names.split()}

__all__ = [
    "E",
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
    "filter",
    "filter_zeros",
    "flat_divide",
    "flat_product",
    "flatten",
    "group",
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
