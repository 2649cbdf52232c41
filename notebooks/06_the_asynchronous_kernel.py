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
# # The asynchronous kernel: roles, barriers, bytes, phases
#
# A Hopper GEMM is three programs in one. A producer asks the copy engine for tiles, consumers ask the tensor core to multiply them,
# and nobody waits for anybody except at barriers in shared memory. Here the real PTX of such a kernel runs on the emulator, which gives
# every event a modelled time; then we break the kernel on purpose, three times, and read what the emulator says.

# %%
import ml_dtypes
import numpy as np
from stridewright import Gemm
from stridewright.codegen.build import build
from stridewright.codegen.emulator import DeadlockError
from stridewright.codegen.emulator.mbarrier import Mbarrier
from stridewright.codegen.pictures import deadlock_picture, emulation_timeline, race_picture
from stridewright.kernels.config import GemmConfig
from stridewright.layout import cosize

# %% [markdown]
# ## The kernel, and one run of it
# Tiles of 128 x 128, a ring of three slots of 64 elements of K. Two blocks share four tiles, so each does two, one after the other.

# %%
STAGES, STEPS, TILES = 3, 8, 2
config = GemmConfig().replace(tile_m=128, tile_n=128, tile_k=64, stages=STAGES, consumers=2)
gemm = Gemm(256, 256, 64 * STEPS, config=config)
rng = np.random.default_rng(0)
a, b = (rng.integers(-4, 5, (256, gemm.k)).astype(ml_dtypes.bfloat16) for _ in range(2))
run = gemm.emulate(a, b, sms=2, timeline=True)
exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
assert np.array_equal(run.d.view(np.uint16), exact.view(np.uint16))
assert run.races == ()

# %% [markdown]
# One block's timeline. Every row is on the same axis of clocks. Point at an orange gap of the tensor core: it says who was to multiply
# next, what they waited for, who completed that barrier last, and what *those* had waited for.

# %%
timeline = run.timeline
picture = emulation_timeline(timeline, gemm.derivation)
assert {"(producer)", "(consumer 0)", "(consumer 1)"} <= set(
    picture.text().replace(" (", "\n(").replace(")", ")\n").split("\n")
)
picture

# %% [markdown]
# ## Bytes: what a full barrier counts
# A `full` barrier expects one arrival, the producer's, *and* the bytes of both tiles. Only when both are there its phase is complete. The
# bytes are those of the layouts, which also made the tensor maps.

# %%
derivation = gemm.derivation
slot = 2 * (int(cosize(derivation.a.layout)) + int(cosize(derivation.b.layout)))
assert slot == derivation.a.slot_bytes + derivation.b.slot_bytes == 32768

full = Mbarrier(0x400)
full.init(1)
full.arrive_expect_tx(slot, who="the producer")
states = [full.describe()]
full.complete_tx(derivation.a.slot_bytes)
states.append(full.describe())
assert full.phase == 0  # A has landed, B has not
full.complete_tx(derivation.b.slot_bytes)
states.append(full.describe())
assert full.phase == 1  # the same barrier now counts for the next use of the slot
print("\n".join(states))

# %% [markdown]
# ## Phases: one barrier, used again and again
# Step $i$ of the stream of slots uses slot $i \bmod 3$, and waits for that slot's phase number $\lfloor i / 3 \rfloor$. The hardware only keeps whether a
# phase is even or odd, so a wait names a *parity*: $\lfloor i / 3 \rfloor \bmod 2$. The timeline has every phase with its end.

# %%
ends = {}
for end in timeline.phases:
    if end.block == 0:
        ends.setdefault(end.barrier, []).append(end)
addresses = sorted(ends)
full_barriers, empty_barriers = addresses[:STAGES], addresses[STAGES:]
for i in range(STEPS * TILES):
    landed = ends[full_barriers[i % STAGES]][i // STAGES]
    released = ends[empty_barriers[i % STAGES]][i // STAGES]
    assert landed.phase == released.phase == i // STAGES
    assert (landed.what, released.what) == ("copy", "arrival")
    assert landed.end < released.end
    if i >= STAGES:
        # A slot is filled again only after it was released.
        assert ends[empty_barriers[i % STAGES]][i // STAGES - 1].end <= landed.since

# %% [markdown]
# A producer's first wait is for a slot that nobody has used: parity 1 of a new barrier counts as complete, which is why its parity
# starts flipped.

# %%
fresh = Mbarrier(0x418)
fresh.init(8)
assert fresh.test_parity(1)
assert not fresh.test_parity(0)

# %% [markdown]
# ## The bubble
# With three slots of 64 the copy of a slot takes longer than the multiplies of the other two, so the tensor core waits. More slots in
# flight hide it: Little's law, told by the model.

# %%
shares = {}
for stages in (2, 3, 5):
    other = Gemm(256, 256, 1024, config=config.replace(stages=stages))
    x, y = (np.ones((256, 1024), ml_dtypes.bfloat16) for _ in range(2))
    found = other.emulate(x, y, sms=2, timeline=True).timeline
    shares[stages] = found.busy[0] / found.clocks
assert shares[2] < shares[3] < shares[5]
print({stages: f"tensor core busy {share:.0%}" for stages, share in shares.items()})

# %% [markdown]
# ## Breaking it: a wrong phase
# The producer's parity not flipped: ` ^ 1` left out of the source. On a GPU this hangs, without a word. The emulator stops when nobody can
# go on, and says who waits for what.


# %%
def planted(old, new):
    """The same GEMM with a fault in its source."""
    broken = Gemm(gemm.m, gemm.n, gemm.k, config=config)
    assert broken.source.count(old) == 1
    broken.__dict__["build"] = build(broken.source.replace(old, new), arch="sm_90a", strict=False)
    return broken


def hangs(broken):
    """The deadlock that the emulator reports."""
    try:
        broken.emulate(a, b, sms=2)
    except DeadlockError as error:
        return error
    raise AssertionError("it should hang")


error = hangs(planted("at.parity ^ 1)", "at.parity)"))
picture = deadlock_picture(error, derivation)
assert set(picture.facts["cycle"].split(" > ")) > {"empty[0]", "full[0]"}
picture

# %% [markdown]
# The producer waits for slot 0 to be released, the consumers for it to be filled: each waits for the other, and `empty[0]` *lacks 8 of 8
# arrivals*, for nobody has arrived there yet. The first wait on a fresh `empty` barrier must be for parity 1.

# %% [markdown]
# ## Breaking it: bytes that never come
# Sixteen bytes more are expected than the two tiles have. Now there is no cycle of threads: the arrival is there, and bytes are missing.

# %%
error = hangs(planted("A_SLOT_BYTES + B_SLOT_BYTES)", "A_SLOT_BYTES + B_SLOT_BYTES + 16)"))
lacking = next(barrier for wait in error.records for barrier, _ in wait.on if barrier.bytes_due)
assert (lacking.pending, lacking.bytes_due) == (0, 16)
deadlock_picture(error, derivation)

# %% [markdown]
# ## Breaking it: a slot released too early
# Without its `wgmma.wait_group`, a consumer hands a slot back while the tensor core still reads it. Values may even come out right, on
# most days. The emulator compares clocks instead of values.

# %%
races = planted("wgmma_wait<1>();    // the", "// the").emulate(a, b, sms=2).races
assert races[0].kind == "write after read"
assert "wgmma.wait_group" in races[0].missing
race_picture(races[0], derivation)
