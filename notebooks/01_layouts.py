# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Layouts: functions from coordinates to offsets
#
# A layout is written Shape:Stride. It maps a coordinate of its shape to an offset, the inner product of the coordinate with the
# strides. That one idea covers row-major and column-major matrices, tiles, fragments of tensor cores and padded buffers.

# %%
import numpy as np
from stridewright.layout import (
    Layout,
    LayoutError,
    Swizzle,
    coalesce,
    compose,
    cosize,
    depth,
    idx2crd,
    rank,
    recast,
    size,
)
from stridewright.layout.draw import beside, layout_card

# %% [markdown]
# ## Rows and columns
# `(4,8):(8,1)` has 4 rows of 8 columns; a step down costs 8, a step right costs 1: row-major.

# %%
row_major = Layout((4, 8), (8, 1))
assert row_major(1, 2) == 1 * 8 + 2 * 1
assert str(row_major) == "(4,8):(8,1)"
assert Layout.parse("(4,8):(8,1)") == row_major
layout_card(row_major)

# %% [markdown]
# Without strides a layout is column-major and compact. An index counts coordinates with the leftmost fastest, so a column-major
# layout is the identity on indices.

# %%
column_major = Layout((4, 8))
assert [column_major(i) for i in range(32)] == list(range(32))
assert row_major(5) == row_major(1, 1) == 9
beside(layout_card(row_major, colours="columns"), layout_card(column_major, colours="columns"))

# %% [markdown]
# ## Size and cosize
# The size counts coordinates, the cosize is the span of the offsets. Padding makes the cosize larger; a stride of 0 repeats
# offsets, and then two coordinates share one.

# %%
padded, repeated = Layout((4, 8), (9, 1)), Layout((4, 8), (0, 1))
assert (size(padded), cosize(padded)) == (32, 35)
assert (size(repeated), cosize(repeated)) == (32, 8)
assert layout_card(padded).facts["injective"] == "yes"
assert layout_card(repeated).facts["injective"] == "no"
beside(layout_card(padded), layout_card(repeated))

# %% [markdown]
# ## Modes within modes
# A shape may nest. The columns below are pairs (2, 4): a step inside a pair costs 1, from pair to pair 8. No single stride says
# that. Each column index stands for the coordinate it has inside.

# %%
nested = Layout((4, (2, 4)), (2, (1, 8)))
assert nested(3, (1, 2)) == 3 * 2 + 1 * 1 + 2 * 8
assert nested(3, 5) == nested(3, (1, 2))
assert idx2crd(5, (2, 4)) == (1, 2)
assert (rank(nested), depth(nested)) == (2, 2)
layout_card(nested)

# %% [markdown]
# ## Slices
# Fix some coordinates and leave others open with None: what is left is a layout again, starting at an offset.

# %%
part, start = nested.slice_and_offset(2, None)
assert (str(part), start) == ("(2,4):(1,8)", 4)
assert [start + part(j) for j in range(8)] == [nested(2, j) for j in range(8)]
card = layout_card(nested, highlight=(2, None))
assert card.facts["highlighted"] == 8
card

# %% [markdown]
# ## One function, several spellings
# `coalesce` gives the same function of an index with the fewest modes.

# %%
spelled = Layout((2, (1, 6)), (1, (6, 2)))
assert str(coalesce(spelled)) == "12:1"
assert all(spelled(i) == coalesce(spelled)(i) for i in range(size(spelled)))

# %% [markdown]
# ## Many coordinates at once
# Called with an array, a layout gives an array.

# %%
assert nested(np.arange(8)).tolist() == [nested(i) for i in range(8)]

# %% [markdown]
# ## Seen through a swizzle
# A swizzle XORs some bits of the offset into others. It acts in the layout's units: what is `<3,3,3>` on 2-byte elements is
# `<3,4,3>` on bytes.

# %%
swizzled = compose(Swizzle(2, 0, 2), Layout((4, 4), (4, 1)))
assert [swizzled(2, j) for j in range(4)] == [8 + (j ^ 2) for j in range(4)]
assert recast(Swizzle(3, 3, 3), 16, 8) == Swizzle(3, 4, 3)
beside(layout_card(Layout((4, 4), (4, 1)), colours="columns"), layout_card(swizzled, colours="columns"))

# %% [markdown]
# ## Right or refused
# What is no layout is an error that says why.

# %%
for wrong in ("(4,8):(8)", "4:", "(4,(8):1"):
    try:
        Layout.parse(wrong)
    except LayoutError as error:
        print(f"{wrong:<12}{error}")
    else:
        raise AssertionError(wrong)
