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
# words waits twice. This notebook reads one tile by rows and by columns, counts what each costs, finds the permutation that
# makes both free, and proves it. Then it looks at the same tile as TMA, `ldmatrix`, `wgmma` and an epilogue see it. Every cell
# asserts what it says; no GPU is needed. The last part is a cookbook of questions that people asked.
#
# The counts come from `bank_report`, whose model gives the wavefronts of all 419 access patterns that were measured with ncu on an
# H200. Where a number below was itself measured, the text says so.

# %%
from stridewright.layout import Layout, LinearLayout, Swizzle, compose, recast
from stridewright.layout.banks import Access, bank_report, suggest_swizzle, swizzle_search
from stridewright.layout.draw import (
    access_map,
    bank_map,
    explore,
    layout_card,
    stack,
    swizzle_atlas,
    swizzle_bits,
    tensor_map_view,
)
from stridewright.layout.hardware import TensorMap, smem_tile, swizzle_mode, wgmma_d_layout

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
mode = swizzle_mode("128B")
assert (mode.bits, mode.base, mode.shift) == (3, 4, 3)
in_bytes = Swizzle(3, 4, 3)
for address in range(1024):
    r, c, byte = address // 128, address // 16 % 8, address % 16
    assert in_bytes(address) == 128 * r + 16 * (c ^ r) + byte == mode.apply(address)

# %% [markdown]
# ## It loses nothing
# As a matrix over F2 the map has full rank, so it is a bijection; that covers every address, not only those tried here.

# %%
proof = LinearLayout.of(in_bytes, 12).prove_bijective()
assert proof
assert sorted(in_bytes(a) for a in range(4096)) == list(range(4096))
assert all(in_bytes(in_bytes(a)) == a for a in range(4096))
diagram = swizzle_bits(in_bytes, address=0x380)
assert diagram.facts["rank"] == diagram.facts["bits"] == 12
print(proof.conclusion)
diagram

# %% [markdown]
# ## Found, not guessed
# Which swizzle? Ask for the smallest that makes every given read and write ideal. The atlas shows the wavefronts under all of
# them: one cell is ideal, and it is the one the search returns.

# %%
halves = Layout((64, 64), (64, 1))  # a tile of 64 x 64 bf16 values, 128 bytes a row
matrices = [
    Access(16, lanes=[(8 * i + r, 8 * c) for r in range(8)], op="ldmatrix", element_bytes=2)
    for i in range(8)
    for c in range(8)
]
written_by_tma = Access(16, op="tma", element_bytes=2)
search = swizzle_search(halves, [*matrices, written_by_tma])
assert search.swizzle == (3, 3, 3)
assert (search.plain_wavefronts, search.best_wavefronts, search.ideal) == (8 * 64, 64, 64)
atlas = swizzle_atlas(halves, [*matrices, written_by_tma], title="every 8x8 matrix of the tile, by ldmatrix")
assert atlas.facts["smallest"] == "3,3,3"
atlas

# %% [markdown]
# ## Proven, not sampled
# Lanes 0 to 7 of a phase differ in three bits of the row. Seen through the swizzle those bits reach the three address bits that
# choose the four banks of a chunk: rank 3, so eight rows never meet in a bank. Without the swizzle the rank is 0.

# %%
through = LinearLayout.of(compose(Swizzle(3, 3, 3), halves))
plain = LinearLayout.of(halves)
lane_bits, bank_bits = [0, 1, 2], [3, 4, 5]  # the row's low bits; bits of the element offset above a chunk's 8 elements
no_conflict = through.prove_no_conflict(lane_bits, bank_bits, word=3)
assert no_conflict
assert not plain.prove_no_conflict(lane_bits, bank_bits, word=3)
print(no_conflict)

# %% [markdown]
# ## The same tile as TMA sees it
# The tensor map names the swizzle as a mode; where its box lands is a layout, and it is the one found above, transposed (a box
# has its innermost dimension first).

# %%
tensor_map = TensorMap("bf16", shape=(4096, 4096), strides_bytes=(8192,), box=(64, 64), swizzle="128B")
assert tensor_map.problems() == []
landing = tensor_map.landing()
found = compose(Swizzle(*search.swizzle), halves)
assert all(landing(k, r) == found(r, k) for r in range(64) for k in range(64))
assert smem_tile("128B", "k", "bf16", 64, 64)(5, 17) == found(5, 17)
tensor_map_view(tensor_map)

# %% [markdown]
# ## ... and as `ldmatrix.x4` sees it
# Four matrices side by side, 8 rows of 16 bytes each, a phase each. Measured on an H200: 32 wavefronts at a pitch of 128 bytes, 4
# with the swizzle (the latter with `.trans`, which reads the same rows, and with `stmatrix`).

# %%
x4 = Access(16, lanes=[(i % 8, 8 * (i // 8)) for i in range(32)], op="ldmatrix", element_bytes=2)
assert (bank_report(halves, x4).wavefronts, bank_report(found, x4).wavefronts) == (32, 4)
access_map(halves, x4, swizzle=Swizzle(3, 3, 3), title="ldmatrix.x4 of rows 0 to 7")

# %% [markdown]
# ## Where a wrong unit gives 2-way
# `<3,4,3>` is right for bytes. Used on the offsets of 2-byte elements it shifts the pattern by one bit: half of the banks are
# reached, each twice. No value is wrong, only slow, so nobody notices without counting.

# %%
eight = Layout((8, 64), (64, 1))
phase = Access(16, lanes=[(r, 0) for r in range(8)], op="ldmatrix", element_bytes=2)
ways = {
    s: bank_report(compose(Swizzle(*s), eight), phase).wavefronts for s in [(1, 3, 3), (2, 3, 3), (3, 3, 3), (3, 4, 3)]
}
assert ways == {(1, 3, 3): 4, (2, 3, 3): 2, (3, 3, 3): 1, (3, 4, 3): 2}
access_map(compose(Swizzle(3, 4, 3), eight), phase, title="the byte swizzle, misused on elements")

# %% [markdown]
# ## A surprise: `wgmma` does not need it
# Measured on an H200: reading its operands from shared memory, `wgmma` takes one wavefront for each 8 rows of 16 bytes under every
# layout that was tried, swizzled or not. The same chunks read by a plain load conflict eight times. So the 128-byte swizzle
# serves the others that touch the tile: TMA (whose box rows are 128 bytes), `ldmatrix`, and the epilogue.

# %%
operand = [(r, 8 * c) for c in range(2) for r in range(64)]  # what one wgmma of bf16 reads of A: 64 rows of 32 bytes
for layout in (halves, found):
    report = bank_report(layout, Access(16, lanes=operand, op="wgmma", element_bytes=2))
    assert (report.wavefronts, report.ratio) == (16, 1.0)
by_load = Access(16, lanes=operand[:32], element_bytes=2)
assert (bank_report(halves, by_load).ratio, bank_report(found, by_load).ratio) == (8.0, 1.0)

# %% [markdown]
# ## The epilogue
# An accumulator's thread `t` holds row `t / 4` and columns `2 (t % 4)` and the next. Stored as bf16 pairs to rows of 128 bytes that
# is 8-way; with the swizzle it is free. (Measured on an H200: 8 wavefronts at a pitch of 128 bytes, 1 at 272.)

# %%
fragment = wgmma_d_layout(64)
lanes = [(fragment(t, 0) % 64, fragment(t, 0) // 64) for t in range(32)]
assert lanes == [(t // 4, 2 * (t % 4)) for t in range(32)]
store = Access(4, lanes=lanes, op="st", element_bytes=2)
assert (bank_report(halves, store).wavefronts, bank_report(found, store).wavefronts) == (8, 1)
assert bank_report(Layout((64, 64), (136, 1)), store).wavefronts == 1  # padded to 272 bytes
access_map(halves, store, swizzle=Swizzle(3, 3, 3), title="one store of the accumulator")

# %% [markdown]
# Stored by the epilogue, read back by `ldmatrix`, moved by TMA: one swizzle serves all three.

# %%
together = swizzle_atlas(halves, [store, *matrices, written_by_tma], title="the epilogue's store and ldmatrix together")
assert together.facts["smallest"] == "3,3,3"
assert together.facts["ideal"] == 1 + 64
together

# %% [markdown]
# ## Measured on an H200
# Wavefronts of one instruction as ncu counted them, beside the library's prediction from the lanes' byte offsets.

# %%
warp = range(32)
MEASURED = [
    ("f32 column, pitch 128", "ld", 4, [128 * i for i in warp], 32),
    ("stride 16 words", "ld", 4, [64 * i for i in warp], 16),
    ("stride 5 words", "ld", 4, [20 * i for i in warp], 1),
    ("16-byte column, pitch 128", "ld", 16, [128 * i for i in warp], 32),
    ("everyone one address, 8 bytes", "ld", 8, [0 for _ in warp], 1),
    ("everyone one address, 16 bytes", "ld", 16, [0 for _ in warp], 2),
    ("everyone one address, 16 bytes", "st", 16, [0 for _ in warp], 4),
    ("accumulator as bf16x2, pitch 128", "st", 4, [128 * (i // 4) + 4 * (i % 4) for i in warp], 8),
    ("accumulator as bf16x2, pitch 272", "st", 4, [272 * (i // 4) + 4 * (i % 4) for i in warp], 1),
    ("ldmatrix.x4, pitch 128", "ldmatrix", 16, [128 * (i % 8) + 16 * (i // 8) for i in warp], 32),
    ("stmatrix.x4, pitch 128", "stmatrix", 16, [128 * (i % 8) + 16 * (i // 8) for i in warp], 32),
    ("stmatrix.x4, pitch 128, swizzled", "stmatrix", 16, [in_bytes(128 * (i % 8) + 16 * (i // 8)) for i in warp], 4),
    ("ldmatrix.x4, pitch 144", "ldmatrix", 16, [144 * i for i in warp], 4),
]
memory = Layout(1 << 16, 1)
for what, op, size, offsets, measured in MEASURED:
    predicted = bank_report(memory, Access(size, lanes=offsets, op=op)).wavefronts
    assert predicted == measured, what
    print(f"{what:<34}{op:<9}{size:>3} bytes: measured {measured:>2}, predicted {predicted:>2}")

# %% [markdown]
# # Cookbook
# Questions that people asked, each answered by one call.

# %% [markdown]
# **How many ways does a column of floats conflict?** By its pitch in words, and under swizzles in elements.

# %%
floats = Access(4, lanes=[(i, 0) for i in range(32)], element_bytes=4)
by_pitch = {pitch: bank_report(Layout((32, 16), (pitch, 1)), floats).ratio for pitch in (32, 64, 16, 33)}
square = Layout((32, 32), (32, 1))
by_swizzle = {s: bank_report(compose(Swizzle(*s), square), floats).ratio for s in [(5, 0, 5), (3, 0, 5), (2, 0, 5)]}
assert by_pitch == {32: 32, 64: 32, 16: 16, 33: 1}
assert by_swizzle == {(5, 0, 5): 1, (3, 0, 5): 4, (2, 0, 5): 8}

# %% [markdown]
# **Is a contiguous float4 store conflicted?** No: 512 bytes take 4 wavefronts at best, and take 4. The ratio says it.

# %%
report = bank_report(Layout(32, 16), Access(16, op="st"))
assert (report.wavefronts, report.ideal, report.ratio) == (4, 4, 1)

# %% [markdown]
# **`Swizzle<3,3,4>` with `ldmatrix.trans`: does it help?** For a tile (128, 8) with m contiguous it is the right one: rows are 256
# bytes, so the row's bits begin one higher than for `<3,3,3>`, which leaves 2-way.

# %%
m_major = Layout((128, 8), (1, 128))
chunks = [Access(16, lanes=[(8 * c, k) for k in range(8)], op="ldmatrix", element_bytes=2) for c in range(16)]
for swizzle, expected in ((None, 8), (Swizzle(3, 3, 4), 1), (Swizzle(3, 3, 3), 2)):
    seen = m_major if swizzle is None else compose(swizzle, m_major)
    assert {bank_report(seen, chunk).ratio for chunk in chunks} == {expected}
assert suggest_swizzle(m_major, chunks) == Swizzle(3, 3, 4)

# %% [markdown]
# **Why is `ldmatrix` 8-way?** Its 8 rows lie a multiple of 128 bytes apart. By pitch in bytes, plain and with byte swizzles.

# %%
first_rows = Access(16, lanes=[(r, 0) for r in range(8)], op="ldmatrix")
plain_ways = {pitch: bank_report(Layout((8, pitch), (pitch, 1)), first_rows).ratio for pitch in (128, 64, 32, 144)}
assert plain_ways == {128: 8, 64: 4, 32: 2, 144: 1}
for pitch, swizzle in ((128, (3, 4, 3)), (64, (2, 4, 3)), (32, (1, 4, 3))):
    assert bank_report(compose(Swizzle(*swizzle), Layout((8, pitch), (pitch, 1))), first_rows).ratio == 1

# %% [markdown]
# **A column-major 8 x 8 tile of floats read by rows.** 2-way; `<3,2,3>` mends it.

# %%
small = Layout((8, 8), (1, 8))
by_rows = Access(4, lanes=[(0, j) for j in range(8)], element_bytes=4)
assert bank_report(small, by_rows).ratio == 2
assert bank_report(compose(Swizzle(3, 2, 3), small), by_rows).ratio == 1

# %% [markdown]
# **Strange conflicts in a GEMM: is it the epilogue?** Ask for the store of the accumulator at its pitch (bytes), as bf16 or f32 pairs.


# %%
def epilogue(pitch, element_bytes, swizzle=None):
    """Ways of conflict of one warp's store of an accumulator pair."""
    plain = Layout((64, 8), (pitch, element_bytes))
    seen = plain if swizzle is None else compose(swizzle, plain)
    return bank_report(seen, Access(2 * element_bytes, lanes=lanes, op="st")).ratio


assert [epilogue(pitch, 2) for pitch in (256, 272, 128, 64)] == [8, 1, 8, 4]
assert epilogue(128, 2, Swizzle(3, 4, 3)) == 1
assert [epilogue(pitch, 4) for pitch in (256, 272, 288)] == [4, 2, 1]

# %% [markdown]
# **Find me the swizzle for a tile that TMA writes and `ldmatrix` reads.** One call, in the layout's units: here bytes.

# %%
in_byte_units = [
    Access(16, lanes=[(8 * i + r, 8 * c) for r in range(8)], op="ldmatrix") for i in range(8) for c in range(8)
]
assert suggest_swizzle(Layout((64, 64), (128, 2)), [*in_byte_units, Access(16, op="tma")]) == Swizzle(3, 4, 3)

# %% [markdown]
# **The profiler counts something for a store of halves: is it a conflict?** No: two lanes of one word share it.

# %%
report = bank_report(Layout(32, 2), Access(2, op="st"))
assert (report.wavefronts, report.ratio) == (1, 1)
shared = access_map(Layout(32, 2), Access(2, op="st"), title="lane t stores 2 bytes at 2 t")
assert shared.facts["merged"] == 32
shared

# %% [markdown]
# **A picture without LaTeX, in a notebook?** Every picture is an SVG, and text for a terminal.

# %%
card = layout_card(Layout((4, 8), (8, 1)))
assert card._repr_svg_().startswith("<svg")
print(card.text())
card

# %% [markdown]
# **The same outputs when run a second time?** Pictures are functions of their arguments.

# %%
assert layout_card(Layout((4, 8), (8, 1))).svg() == card.svg()
assert access_map(tile, column).svg() == access_map(tile, column).svg()

# %% [markdown]
# **An address inspector: which bits go where, for any (B, M, S)?** Change the numbers and run the cell; `swizzle_sliders()` of
# `stridewright.layout.draw` is the same with sliders.

# %%
inspector = swizzle_bits(Swizzle(3, 4, 3), address=128 * 5 + 16 * 2 + 6)
assert "bits 7-9 XOR into bits 4-6" in inspector.text()
assert inspector.facts["swizzled"] == 128 * 5 + 16 * (2 ^ 5) + 6
inspector

# %% [markdown]
# **Mark a slice in the picture.** A coordinate with None for what runs: row 2 of (4, 8).

# %%
marked = layout_card(Layout((4, 8), (8, 1)), highlight=(2, None))
assert marked.facts["highlighted"] == 8
stack(marked, layout_card(Layout((4, (2, 4)), (2, (1, 8))), highlight=(None, (1, None))))

# %% [markdown]
# **All of it at once?** `explore()`: shape and stride, the swizzle's sliders, type, instruction and phase, with pictures that are linked by hover. Python computes
# everything; the line of text below the controls is the state, and brings it back.

# %%
explorer = explore("shape=(32,64) stride=(64,1) swizzle=2,3,3 instruction=ldmatrix.x4")
assert explore(explorer.state).state == explorer.state
explorer
