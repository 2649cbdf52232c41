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
# # Proving a swizzle
#
# A test that tries some addresses shows that they are right. A swizzle is linear over F2 (every output bit is an XOR of input
# bits), and then a question about all addresses is a question about the rank of a small matrix. This notebook proves four things
# that way, checks each proof against brute force, and shows what a failing proof looks like.

# %%
import random

from stridewright.layout import Layout, LayoutError, LinearLayout, Swizzle, SwizzledLayout, compose
from stridewright.layout.banks import Access, bank_report
from stridewright.layout.draw import access_map, beside, swizzle_bits

# %% [markdown]
# ## 1. A swizzle is a bijection
# The matrix has ones on its diagonal and, above or below it, one for each XOR: full rank.

# %%
swizzle = Swizzle(3, 4, 3)
proof = LinearLayout.of(swizzle, 10).prove_bijective()
assert proof
assert sorted(map(swizzle, range(1024))) == list(range(1024))
print(proof)

# %%
picture = swizzle_bits(swizzle, bits=10)
assert picture.facts["rank"] == 10
picture

# %% [markdown]
# The same for every swizzle of up to 10 bits, those with a negative shift too.

# %%
tried = 0
for bits in range(1, 5):
    for base in range(10):
        for shift in [*range(bits, 10), *range(-9, -bits + 1)]:
            if base + bits + abs(shift) <= 10:
                other = Swizzle(bits, base, shift)
                assert LinearLayout.of(other, 10).prove_bijective()
                assert LinearLayout.of(other, 10).compose(LinearLayout.of(other, 10)) == LinearLayout(
                    [1 << j for j in range(10)]
                )
                tried += 1
print(f"{tried} swizzles are bijections and their own inverses")
assert tried > 100

# %% [markdown]
# XORs that overlap would be none: a shift smaller than the number of bits is refused.

# %%
try:
    Swizzle(3, 4, 2)
except LayoutError as error:
    print(error)
else:
    raise AssertionError("the bits would overlap")

# %% [markdown]
# ## 2. A layout is linear, or it is not
# Powers of two whose modes do not carry into each other. A pitch of 33 words mends conflicts by carrying, and is outside.

# %%
tile = Layout((8, 64), (64, 1))
linear = LinearLayout.of(tile)
assert all(linear(i) == tile(i) for i in range(512))
try:
    LinearLayout.of(Layout((32, 32), (33, 1)))
except LayoutError as error:
    print(error)
else:
    raise AssertionError("33 carries")

# %% [markdown]
# ## 3. Eight rows never meet in a bank
# Input bits 0 to 2 number the row, output bits 3 to 5 of the element offset choose the bank group. The rank of that 3 x 3 part is
# 3 through the swizzle and 0 without: 1 wavefront or 8.

# %%
swizzled = compose(Swizzle(3, 3, 3), tile)
good = LinearLayout.of(swizzled).prove_no_conflict(lanes=[0, 1, 2], banks=[3, 4, 5], word=3)
bad = linear.prove_no_conflict(lanes=[0, 1, 2], banks=[3, 4, 5], word=3)
assert good
assert not bad
column = Access(16, lanes=[(r, 0) for r in range(8)], op="ldmatrix", element_bytes=2)
assert (bank_report(swizzled, column).wavefronts, bank_report(tile, column).wavefronts) == (1, 8)
print(good.conclusion, bad.conclusion, sep="\n")

# %%
beside(access_map(tile, column, title="rank 0"), access_map(swizzled, column, title="rank 3"))

# %% [markdown]
# The wrong unit leaves rank 2: two rows meet.

# %%
misused = compose(Swizzle(3, 4, 3), tile)
half = LinearLayout.of(misused).prove_no_conflict(lanes=[0, 1, 2], banks=[3, 4, 5], word=3)
assert not half
assert bank_report(misused, column).wavefronts == 2
print(half.conclusion)

# %% [markdown]
# ## 4. Two spellings are the same map
# Linear maps agree everywhere if they agree on the single bits.

# %%
one = LinearLayout.of(compose(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))))
two = LinearLayout.of(SwizzledLayout(Swizzle(3, 3, 3), 0, Layout(((2, 4), (8, 8)), ((64, 128), (1, 8)))))
assert one.prove_same(two)
assert not one.prove_same(LinearLayout.of(tile))
print(one.prove_same(two).conclusion)

# %% [markdown]
# ## A property test: proof and brute force agree
# Random layouts and swizzles, also ones that conflict: the proof holds exactly where `bank_report` counts no conflict.

# %%
draw = random.Random(7)
outcomes = {True: 0, False: 0}
while min(outcomes.values()) < 100:
    pitch = draw.choice([4, 8, 16, 32, 64, 128])
    bits = draw.randint(0, 3)
    candidate = Swizzle(bits, draw.randint(0, 3), draw.randint(max(bits, 1), 5))
    layout = compose(candidate, Layout((8, pitch), (pitch, 1)))  # in chunks of 16 bytes
    lanes = Access(16, lanes=[(r, 0) for r in range(8)], op="ldmatrix", element_bytes=16)
    claim = bool(LinearLayout.of(layout).prove_no_conflict(lanes=[0, 1, 2], banks=[0, 1, 2]))
    assert claim == (bank_report(layout, lanes).ratio == 1), layout
    outcomes[claim] += 1
print(f"{outcomes[True]} free of conflicts and {outcomes[False]} not: proof and count agree on all")
