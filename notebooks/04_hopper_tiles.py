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
# # Hopper tiles: from one layout to descriptor, fragments and epilogue
#
# A GEMM's tile in shared memory is written once, as a layout. Everything that the hardware wants to be told follows from it:
# the tensor map's box and swizzle, the matrix descriptor and its steps, the bytes a barrier expects, the addresses of the epilogue.

# %%
from stridewright.kernels.config import GemmConfig
from stridewright.kernels.hopper import derive
from stridewright.layout import Layout
from stridewright.layout.banks import Access, bank_report
from stridewright.layout.draw import (
    access_map,
    beside,
    descriptor_view,
    fragment_view,
    layout_card,
    shared_memory_map,
    tensor_map_view,
    tile_order,
)
from stridewright.layout.hardware import (
    decode_matrix_descriptor,
    derive_tensor_map,
    k_advance,
    ldmatrix_layout,
    matrix_descriptor,
    mma_a_layout,
    mma_d_layout,
    smem_tile,
    stmatrix_layout,
    wgmma_d_layout,
)

# %% [markdown]
# ## The tile
# 64 rows of 64 bf16 values, K-major, under the 128-byte swizzle. (16 of its rows are drawn.)

# %%
tile = smem_tile("128B", "k", "bf16", 64, 64)
assert str(tile) == "S<3,3,3> o ((8,8),(64,1)):((64,512),(1,0))"
layout_card(smem_tile("128B", "k", "bf16", 16, 64), colours="columns")

# %% [markdown]
# ## The tensor map that fills it
# Derived from two layouts: the tensor in global memory and the tile in shared memory.

# %%
a = Layout((4096, 4096), (4096, 1))
derived = derive_tensor_map(a, tile, "bf16")
tensor_map = derived.tensor_map
assert tensor_map.problems() == []
assert (tensor_map.box, tensor_map.swizzle, tensor_map.box_bytes) == ((64, 64), "128B", 64 * 64 * 2)
assert derived.coordinate(128, 64) == (64, 128)  # element (row 128, k 64): innermost coordinate first
landing = tensor_map.landing()
assert all(landing(k, row) == tile(row, k) for row in range(64) for k in range(64))
tensor_map_view(tensor_map)

# %% [markdown]
# ## The descriptor that reads it
# SBO is the step from row 0 to row 8; LBO is not looked at in this form. What `wgmma` reads through it is what the layout says: the
# addresses below come from the descriptor's bits alone.

# %%
word = matrix_descriptor(tile, "bf16", "sm_90a", "k")
descriptor = decode_matrix_descriptor(word)
assert word == 0x4000004000010000
assert descriptor.stride == 2 * tile.layout(8, 0) == 1024
addresses = descriptor.addresses("bf16", "k", 64)
assert all(addresses[row, k] == 2 * tile(row, k) for row in range(64) for k in range(16))
descriptor_view(tile)

# %% [markdown]
# The next instruction along K reads 32 bytes further, before the swizzle: 2 units of 16 bytes are added to the start.

# %%
steps = k_advance(tile, "bf16")
assert str(steps) == "4:2"
for step in range(4):
    seen = descriptor.advanced(steps(step)).addresses("bf16", "k", 64)
    assert all(seen[row, k] == 2 * tile(row, 16 * step + k) for row in range(64) for k in range(16))

# %% [markdown]
# ## Fragments: who holds what
# The accumulator of `wgmma m64nN` is a layout from (thread, value) to the element. Hover a cell to see all that its thread holds.

# %%
accumulator = wgmma_d_layout(16)
assert accumulator(5, 2) == 9 + 64 * 2  # thread 5, value 2: row 9, column 2
fragment_view(accumulator, rows=64, title="wgmma m64n16, accumulator")

# %%
beside(
    fragment_view(mma_a_layout(16, 8, 16, "bf16"), rows=16, title="mma.sync m16n8k16, A"),
    fragment_view(mma_d_layout(16, 8, 16, "bf16"), rows=16, title="mma.sync m16n8k16, D"),
)

# %% [markdown]
# `ldmatrix` gives a warp such a fragment from rows of 16 bytes; with `.trans` from columns. `stmatrix` is the same map, written.

# %%
assert stmatrix_layout(1) == ldmatrix_layout(1)
assert ldmatrix_layout(1)(4, 0) == 8
assert ldmatrix_layout(1, trans=True)(1, 0) == 16
beside(
    fragment_view(ldmatrix_layout(1), rows=8, row_major=8, title="ldmatrix.x1"),
    fragment_view(ldmatrix_layout(1, trans=True), rows=8, row_major=8, title="ldmatrix.x1.trans"),
)

# %% [markdown]
# ## The epilogue
# The accumulator goes to shared memory by `stmatrix`, rows of 16 bytes whose addresses are computed from the fragment and from
# `stmatrix`'s own layout. `derive` does that for a whole configuration, and proves that no store conflicts.

# %%
derivation = derive(GemmConfig())
addresses = derivation.staging_addresses
print("(lane, warp, step) -> byte:", addresses)
for warp in range(4):
    for step in range(4):
        lanes = [(lane, warp, step) for lane in range(32)]
        assert bank_report(addresses, Access(16, lanes=lanes, op="stmatrix")).ratio == 1
first = Access(16, lanes=[(lane, 0, 0) for lane in range(32)], op="stmatrix")
picture = access_map(addresses, first, title="the first stmatrix of warp 0")
assert (picture.facts["wavefronts"], picture.facts["ideal"]) == (4, 4)
picture

# %% [markdown]
# Each row of 16 bytes is where the layout of the panel has the accumulator's elements: lane, warp and step name eight
# neighbours of one row.

# %%
fragment, panel, place = wgmma_d_layout(64), derivation.staging, stmatrix_layout(4)
for thread in range(128):
    for value in range(32):
        element = fragment(thread, value)
        row, column = element % 64, element // 64
        within = place(thread % 32, value % 8)  # 8 * (lane whose address names the row) + column
        byte = addresses(within // 8, thread // 32, value // 8) + 2 * (within % 8)
        assert byte == 2 * panel(row, column)

# %% [markdown]
# ## Shared memory of the kernel

# %%
config = derivation.config
slots = {"tiles of A": config.pipeline.stages, "tiles of B": config.pipeline.stages}
memory = shared_memory_map(derivation.shared_map, slots)
assert memory.facts["bytes"] <= 227 * 1024
assert derivation.a.slot_bytes == 2 * config.tile.m * config.tile.k
memory

# %% [markdown]
# ## The order of tiles
# Groups of rows walked together touch fewer rows of A and columns of B at a time than row by row, so more comes from L2.

# %%
by_rows = [(r, c) for r in range(8) for c in range(8)]
grouped = [(4 * g + r, c) for g in range(2) for c in range(8) for r in range(4)]
pictures = [tile_order(by_rows, 16, title="row by row"), tile_order(grouped, 16, panel=4, title="groups of 4 rows")]
assert [p.facts["touched"] for p in pictures] == ["9.860", "7.018"]
beside(*pictures)
