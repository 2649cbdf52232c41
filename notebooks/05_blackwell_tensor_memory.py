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
# # Blackwell's tensor memory: an accumulator's life
#
# On Hopper the accumulators live in the registers of the warps that multiply. Blackwell gives them a memory of their own: 128 lanes of 512
# columns of 32 bits on each SM, which a kernel must ask for, may read only by quarters, and has to give back. This notebook looks at its
# addresses as layouts, reads one accumulator register by register, and then draws the life of two accumulators from a run of a real
# kernel's PTX. At the end we break that kernel three times.
#
# Everything here is emulated and assembled. Nothing was run on a Blackwell: layouts and descriptors are held against CuTe's headers, and the
# emulator knows the rules of the PTX ISA. Every cell asserts what it says.

# %%
from itertools import pairwise

import ml_dtypes
import numpy as np
from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.emulator import EmulationError
from stridewright.kernels.blackwell import derive
from stridewright.kernels.config import GemmConfig
from stridewright.layout import Layout, compose, left_inverse
from stridewright.layout.draw import Kind, TimelineBar, Track, pipeline_timeline, tensor_memory_map, tensor_memory_view
from stridewright.layout.hardware import accumulator_layout, data_path, tensor_memory_access

# %% [markdown]
# ## An address is a lane and a column
# The word is `lane << 16 | column`, so one lane is 65536 apart and an accumulator is a layout like any other: (row, column) of the matrix to
# that word. Which one depends on M and on how many CTAs share the instruction. The PTX ISA gives them letters.

# %%
forms = {(128, 1): "(128,32):(65536,1)", (64, 1): "((16,4),32):((65536,2097152),1)", (256, 2): "(128,32):(65536,1)", (128, 2): "(64,(16,2)):(65536,(1,4194304))"}  # fmt: skip
for (m, ctas), expected in forms.items():
    layout = accumulator_layout(m, 32, ctas)
    assert str(layout) == expected
    print(f"M={m:3}, {ctas} CTA{'s' * (ctas > 1)}: layout {data_path(m, ctas)}  {layout}")

# %% [markdown]
# M = 64 is the odd one: its rows sit in lanes 0 to 15 of each quarter, and the other lanes stay free. A kernel that takes them for 64
# neighbouring lanes reads nonsense, which has happened to more than one compiler.

# %%
half = accumulator_layout(64, 16)
lanes = {int(half(row, 0)) >> 16 for row in range(64)}
assert lanes == {32 * quarter + lane for quarter in range(4) for lane in range(16)}
tensor_memory_map(half)

# %% [markdown]
# ## A warp reads its quarter
# `tcgen05.ld` moves columns of 32 lanes into the registers of a warp, and warp $w$ may touch lanes $32 (w \bmod 4)$ to $32 (w \bmod 4) + 31$ only. The
# shape `32x32b` gives each thread one lane; `16x32bx2` reads 16 lanes twice, at two columns, which is what M = 64 wants.

# %%
tensor_memory_view(tensor_memory_access("32x32b", 8))

# %% [markdown]
# Which element of the matrix is in which register? The accumulator's layout, inverted, after the instruction's: a composition, and again a layout.

# %%
config = GemmConfig(arch="sm_100a").replace(tile_n=64, stages=3, accumulators=2)
derivation = derive(config)
fragment = derivation.fragment
element = compose(left_inverse(derivation.accumulator), fragment.place)
assert element == fragment.element
assert str(fragment.place) == "(32,4,32,2):(65536,2097152,1,32)"  # (lane, warp, value, piece) -> lane << 16 | column
assert str(fragment.row) == "(32,4):(1,32)"
assert str(fragment.column) == "(32,4,32,2):(0,0,1,32)"
for lane, warp, value, piece in np.ndindex(32, 4, 32, 2):
    word = int(fragment.place(lane, warp, value, piece))
    assert derivation.accumulator(fragment.row(lane, warp), fragment.column(lane, warp, value, piece)) == word
    assert word >> 16 in range(32 * warp, 32 * warp + 32)

# %% [markdown]
# ## Planned, then asked for
# A CTA asks for whole columns, a power of two from 32 to 512. The plan places what the kernel needs; here two accumulators of 64 columns.

# %%
plan = derivation.plan
assert plan.columns == 128
assert derivation.accumulator_offsets == Layout(2, 64)
print(plan.explain())

# %% [markdown]
# ## The life of two accumulators
# The kernel: one warp copies tiles of A and B, one multiplies, four store. Three tiles of 128 x 64, one after the other on one CTA, with the two
# accumulators taken in turn. The run is of its real PTX; the emulator notes everything that touches tensor memory, from its issue until it
# is done. (There are no times: the axis counts beginnings and ends in the order in which they happened, under one legal order of completion.)

# %%
TILES, STEPS = 3, 12
rng = np.random.default_rng(0)
a, b = (rng.integers(-4, 5, (rows, 16 * STEPS)).astype(ml_dtypes.bfloat16) for rows in (128 * TILES, 64))
exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)


def run_of(accumulators, seed=1):
    gemm = Gemm(128 * TILES, 64, 16 * STEPS, config=config.replace(accumulators=accumulators))
    emulation = gemm.emulate(a, b, sms=1, seed=seed, timeline=True)
    assert np.array_equal(emulation.d.view(np.uint16), exact.view(np.uint16))
    assert emulation.races == ()
    return emulation.result.tensor_memory


events = run_of(accumulators=2)
first, last = events[0], events[-1]
assert (first.what, first.columns, last.what, last.columns) == ("alloc", 128, "dealloc", 128)
assert all(first.done < event.issued and event.done < last.issued for event in events[1:-1])
multiplies = [event for event in events if event.what == "mma"]
loads = [event for event in events if event.what == "ld"]
assert len(multiplies) == TILES * STEPS
assert len(loads) == TILES * fragment.pieces * 4  # each warp, each piece

# %% [markdown]
# What must hold in every order: a tile's first multiply does not add to what was there (`fresh`); no register is loaded before the last multiply of
# its tile is done; and nothing multiplies into an accumulator that is still being loaded.

# %%
kinds = [
    Kind("mma, starts the sum", "k1", "*", "overwrites what the accumulator held"),
    Kind("mma", "k0", "#", "adds 16 elements of K"),
    Kind("ld", "k2", "o", "a warp's quarter on its way into registers"),
    Kind("held", "k7", "-", "allocated"),
]


def lives(events):
    """Of each accumulator its (multiplies, loads), tile by tile."""
    base, found = events[0].column, {}
    for event in events[1:-1]:
        tiles = found.setdefault((event.column - base) // 64, [])
        if event.fresh:
            tiles.append(([], []))
        tiles[-1][event.what == "ld"].append(event)
    return found


def bar(event, tile):
    kind = "ld" if event.what == "ld" else "mma, starts the sum" if event.fresh else "mma"
    tip = f"{event.what} by {event.who}, columns {event.column} to {event.column + event.columns - 1}"
    return TimelineBar(event.issued, event.done, kind, tip, links=(tile,))


def drawn(events, title):
    held = TimelineBar(events[0].issued, events[-1].done, "held", f"{events[0].columns} columns")
    tracks = [Track("tensor memory", (held,))]
    for number, tiles in lives(events).items():
        bars = [
            bar(event, f"tile{number}.{index}")
            for index, (written, read) in enumerate(tiles)
            for event in (*written, *read)
        ]
        tracks.append(Track(f"accumulator {number}", tuple(bars), f"columns from {64 * number}"))
    return pipeline_timeline(tracks, kinds, title=title, unit="beginnings and ends")


two = lives(events)
assert {number: len(tiles) for number, tiles in two.items()} == {0: 2, 1: 1}
for tiles in two.values():
    for written, read in tiles:
        assert [event.fresh for event in written] == [True] + [False] * (STEPS - 1)
        assert max(event.done for event in written) < min(event.issued for event in read)
    for before, after in pairwise(tiles):
        assert max(event.done for event in before[1]) < min(event.issued for event in after[0])
drawn(events, "two accumulators: one is stored while the next tile goes into the other")

# %% [markdown]
# With two accumulators the second tile's multiplies begin before the first tile's loads have ended. With one they cannot: the multiply waits until
# the last register is loaded. Four orders of completion say the same.

# %%


def overlaps(events):
    """Whether some multiply was issued while loads of the tile before were still to come."""
    tiles = sorted((tile for tiles in lives(events).values() for tile in tiles), key=lambda tile: tile[0][0].issued)
    return any(after[0][0].issued < max(load.done for load in before[1]) for before, after in pairwise(tiles))


assert any(overlaps(run_of(2, seed)) for seed in range(4))
assert not any(overlaps(run_of(1, seed)) for seed in range(4))
drawn(run_of(accumulators=1), "one accumulator: multiply, store, multiply, store")

# %% [markdown]
# ## Broken on purpose
# Three ways to get this wrong, each of which somebody shipped. The kernel's source is changed in one place and built again; the emulator runs it.


# %%
def broken(old, new):
    gemm = Gemm(128 * TILES, 64, 16 * STEPS, config=config)
    assert old in gemm.source
    gemm.__dict__["build"] = build(gemm.source.replace(old, new), arch="sm_100a", use_cache=False)
    try:
        emulation = gemm.emulate(a, b, sms=1)
    except EmulationError as error:
        return str(error).splitlines()[0]
    return str(emulation.races[0]) if emulation.races else "nothing found"


# %% [markdown]
# The memory is not given back. The next kernel on this SM would wait for it for ever.

# %%
words = broken("if (warp == 3) tmem_free<TMEM_COLUMNS>(tmem);", "")
assert "did not deallocate: columns 0..127" in words
print(words)

# %% [markdown]
# The registers are used, and the accumulator released, before the load was waited for. On hardware this is right most of the time.

# %%
words = broken("            tmem_load_wait(values);\n", "")
assert "is read before tcgen05.wait::ld" in words
print(words)

# %% [markdown]
# The multiply does not wait until the accumulator is free: it overwrites what is still being loaded.

# %%
words = broken("        accumulators.wait_empty(into);\n", "")
assert words.startswith("write after read at lane 0, column 0 of the tensor memory")
print(words)
