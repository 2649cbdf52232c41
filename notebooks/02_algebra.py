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
# # The algebra: layouts from layouts
#
# Each operation is defined by an identity. The pictures link operands and result by colour and check that identity for every
# index. Where no layout satisfies it, the operation raises and shows a counterexample; it never returns something close.

# %%
from itertools import permutations, product

from stridewright.layout import (
    Layout,
    LayoutError,
    bundle,
    coalesce,
    complement,
    compose,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
    size,
    tile_to_shape,
    zipped_divide,
)
from stridewright.layout.draw import algebra_strip, layout_card

# %% [markdown]
# ## Composition: first B, then A
# `R(i) == A(B(i))`. B chooses and orders indices of A; R is what one sees through both.

# %%
a, b = Layout((4, 8), (8, 1)), Layout((2, 4), (2, 4))
r = compose(a, b)
assert all(r(i) == a(b(i)) for i in range(size(b)))
strip = algebra_strip("compose", a, b)
assert strip.facts["holds"] == "yes"
strip

# %% [markdown]
# Past its size a layout continues by its last mode, also if that has extent 1.

# %%
assert str(compose(Layout((4, 6, 1), (2, 3, 0)), Layout(30, 4))) == "(6,5):(3,0)"
assert str(compose(Layout((2, 2), (2, 1)), Layout(2, 3))) == "2:3"

# %% [markdown]
# Some compositions are no layout: the values 0, 6, 7, 8, 9, 15 are no arithmetic of modes. That is an error, not a guess.

# %%
try:
    compose(Layout((4, 6, 8), (2, 3, 5)), Layout(6, 3))
except LayoutError as error:
    print(error)
else:
    raise AssertionError("no layout has these values")

# %% [markdown]
# ## Complement: where the other copies go
# Copies of A that start at the offsets of its complement fill memory without meeting.

# %%
a = Layout((2, 2), (1, 6))
copies = complement(a, 24)
everything = sorted(a(i) + copies(j) for i in range(size(a)) for j in range(size(copies)))
assert everything == list(range(24))
algebra_strip("complement", a, 24)

# %% [markdown]
# ## Division: tiles
# `logical_divide(A, B)` is A seen as tiles of B: A composed with (B, complement of B). Mode 0 is in a tile, mode 1 chooses one.

# %%
a, b = Layout(24, 2), Layout(4, 2)
r = logical_divide(a, b)
pair = bundle([b, complement(b, 24)])
assert all(r(i) == a(pair(i)) for i in range(24))
algebra_strip("logical_divide", a, b)

# %% [markdown]
# For matrices `zipped_divide` tiles every mode: ((tile), (which tile)).

# %%
matrix = Layout((8, 12), (12, 1))
tiles = zipped_divide(matrix, (4, 6))
assert tiles.shape == ((4, 6), (2, 2))
assert tiles((1, 2), (1, 0)) == matrix(4 + 1, 2)
layout_card(tiles)

# %% [markdown]
# A tile that does not divide is refused; padding is asked for by name.

# %%
try:
    logical_divide(Layout((6, 8), (8, 1)), 4)
except LayoutError as error:
    print(error)
else:
    raise AssertionError("4 does not divide the rows")
assert str(logical_divide(Layout((6, 8), (8, 1)), 4, pad=True)) == "(4,(2,8)):(8,(32,1))"

# %% [markdown]
# ## Product: A, once for each element of B

# %%
a = Layout((2, 2), (4, 1))
r = logical_product(a, 6)
assert str(r) == "((2,2),(2,3)):((4,1),(2,8))"
assert sorted(r(i) for i in range(24)) == list(range(24))
algebra_strip("logical_product", a, 6)

# %% [markdown]
# `tile_to_shape` repeats an atom over a shape: the tile that TMA fills and `wgmma` reads is 16 atoms of 8 rows.

# %%
atom = Layout((8, 64), (64, 1))
assert str(tile_to_shape(atom, (128, 64))) == "((8,16),(64,1)):((64,512),(1,0))"

# %% [markdown]
# ## Inverses
# `A(R(i)) == i` for the right inverse, as far as that can go; `R(A(i)) == i` for the left one.

# %%
a = Layout((4, 8), (8, 1))
assert [a(right_inverse(a)(i)) for i in range(32)] == list(range(32))
algebra_strip("right_inverse", a)

# %%
gaps = Layout(4, 2)
assert str(left_inverse(gaps)) == "(2,4):(0,1)"
assert [left_inverse(gaps)(gaps(i)) for i in range(4)] == list(range(4))
algebra_strip("left_inverse", gaps)

# %% [markdown]
# ## A law, tried on every case
# Composition is associative: all 216 triples of layouts that permute three bits.

# %%
shuffles = [Layout((2, 2, 2), strides) for strides in permutations((1, 2, 4))]
tried = 0
for x, y, z in product(shuffles, repeat=3):
    left, right = compose(compose(x, y), z), compose(x, compose(y, z))
    assert all(left(i) == right(i) == x(y(z(i))) for i in range(8))
    assert all(coalesce(left)(i) == left(i) for i in range(8))
    tried += 1
assert tried == 216
