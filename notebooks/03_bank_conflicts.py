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
# # Bank conflicts: what a column costs, and the XOR that unties it
#
# Shared memory has 32 banks of 4 bytes, so a line of 128 bytes holds one word of each. A warp that asks one bank for two different
# words waits twice. This notebook reads one tile by rows and by columns, counts what each costs, and finds the permutation
# that makes both free. Every cell asserts what it says.

# %%
from stridewright.layout import Layout, Swizzle, compose, recast
from stridewright.layout.banks import Access, bank_report
from stridewright.layout.draw import access_map, bank_map, swizzle_bits

# %% [markdown]
# ## A tile of 8 rows of 128 bytes
# Eight chunks of 16 bytes a row: the unit that `ldmatrix` reads and TMA moves. The layout below counts in chunks.

# %%
tile = Layout((8, 8), (8, 1))
row = Access(bytes=16, lanes=[(0, c) for c in range(8)], element_bytes=16)
column = Access(bytes=16, lanes=[(r, 0) for r in range(8)], element_bytes=16)
bank_map(tile, element_bytes=16, cell_bytes=16)

# %%
by_row, by_column = bank_report(tile, row), bank_report(tile, column)
assert (by_row.wavefronts, by_row.ideal) == (1, 1)
assert (by_column.wavefronts, by_column.ideal) == (8, 1)
print(by_row, by_column, sep="\n")

# %% [markdown]
# A row touches all 32 banks once. A column lands in the same four banks eight times: eight wavefronts, one after another.

# %%
picture = access_map(tile, column, title="a column of the plain tile")
assert picture.facts["wavefronts"] == 8
picture

# %% [markdown]
# ## XOR the row into the column
# Put chunk `(r, c)` at column `c ^ r` of its row. That is `Swizzle<3,0,3>` of chunk numbers.

# %%
xor = Swizzle(3, 0, 3)
swizzled = compose(xor, tile)
assert all(swizzled(r, c) == 8 * r + (c ^ r) for r in range(8) for c in range(8))
bank_map(tile, element_bytes=16, cell_bytes=16, swizzle=xor)

# %%
costs = {name: bank_report(swizzled, access).wavefronts for name, access in (("row", row), ("column", column))}
assert costs == {"row": 1, "column": 1}
access_map(tile, column, swizzle=xor, title="the same column")

# %% [markdown]
# All eight rows and all eight columns are free now, not only the first ones.

# %%
rows = [Access(bytes=16, lanes=[(r, c) for c in range(8)], element_bytes=16) for r in range(8)]
columns = [Access(bytes=16, lanes=[(r, c) for r in range(8)], element_bytes=16) for c in range(8)]
assert all(bank_report(swizzled, access).ratio == 1 for access in rows + columns)
assert [bank_report(tile, access).wavefronts for access in columns] == [8] * 8

# %% [markdown]
# ## In bytes it is `Swizzle<3,4,3>`, the hardware's 128-byte swizzle
# A chunk is 16 bytes, four address bits more: the same permutation has its lowest bit at 4. On 2-byte elements it is `<3,3,3>`.

# %%
assert recast(xor, 128, 8) == Swizzle(3, 4, 3)
assert recast(xor, 128, 16) == Swizzle(3, 3, 3)
in_bytes = Swizzle(3, 4, 3)
for address in range(1024):
    r, c, byte = address // 128, address // 16 % 8, address % 16
    assert in_bytes(address) == 128 * r + 16 * (c ^ r) + byte

# %% [markdown]
# ## It loses nothing
# As a matrix over F2 the map has full rank, so it is a bijection on addresses of any number of bits; it is its own inverse.

# %%
diagram = swizzle_bits(in_bytes, address=0x380)
assert diagram.facts["rank"] == diagram.facts["bits"] == 12
assert sorted(in_bytes(a) for a in range(4096)) == list(range(4096))
assert all(in_bytes(in_bytes(a)) == a for a in range(4096))
diagram
