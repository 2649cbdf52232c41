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
# # Tuning, and the speed of light
#
# How fast could this GEMM be? What holds it back? Which of thousands of configurations is the one? Nothing here needs a GPU: what was
# measured is read from `benchmarks/results/` of the repository, and everything else is a model, and called one.

# %%
import json
import re
from pathlib import Path

import stridewright.layout
from stridewright import Gemm
from stridewright.codegen.pictures import device_roof, roofline_points, tune_points
from stridewright.codegen.select import select
from stridewright.codegen.space import Rejections, cores
from stridewright.codegen.speed_of_light import H200, floor, panels_per_window, speed_of_light
from stridewright.codegen.tune_plan import estimate, starting_points
from stridewright.kernels.config import Problem
from stridewright.kernels.orders import order_table
from stridewright.layout.draw import TunePoint, beside, model_scatter, roofline, tile_order, tuner_landscape

RESULTS = Path(stridewright.layout.__file__).resolve().parents[1] / "benchmarks" / "results"
RECORD = json.loads((RESULTS / "timeline_hopper.json").read_text(encoding="utf-8"))
assert RECORD["shapes"]

# %% [markdown]
# ## The floor
# Two times that no kernel beats: the multiplies at the peak of the tensor cores, and the bytes of A, B and D, moved once each. The larger is the
# floor. Their ratio, operations a byte, is compared with the chip's: its *ridge*.

# %%
square, decode = floor(H200, 8192, 8192, 8192), floor(H200, 16, 6144, 4096)
assert (square.bound, decode.bound) == ("tensor cores", "memory")
assert round(H200.ridge()) == round(H200.peak() / H200.bytes_per_second) == 206
print(f"8192 x 8192 x 8192: at least {square.us:.0f} us, its multiplies bound it")
print(f"  16 x 6144 x 4096: at least {decode.us:.1f} us, its bytes bound it")

# %% [markdown]
# ## The roofline, with what an H200 measured
# The fastest configuration recorded for each shape. A point below the roof on the left waits for memory; one far below it has too little work to fill
# the chip, or pays for its launch.

# %%
measured = {tuple(shape["shape"]): min(row["measured_us"] for row in shape["rows"]) for shape in RECORD["shapes"]}
shown = [
    (16, 6144, 4096),
    (128, 28672, 4096),
    (512, 512, 512),
    (512, 4096, 14336),
    (2048, 2048, 2048),
    (8192, 8192, 8192),
]
points = roofline_points([("x".join(map(str, shape)), shape, measured[shape] * 1e-6) for shape in shown])
picture = roofline([device_roof(H200)], points, title="H200, bf16: the fastest recorded of each shape")
for shape, point in zip(shown, points, strict=True):
    # Nothing is faster than light, and the share is the floor over the time.
    assert float(picture.facts[f"share-{point.name}"]) <= 1
    assert abs(float(picture.facts[f"share-{point.name}"]) - floor(H200, *shape).us / measured[shape]) < 2e-3
picture

# %% [markdown]
# ## Why not at the roof: whole tiles in whole turns
# 132 SMs take tiles in turns. If the last turn is not full, some SMs have nothing to do, and the time is that of whole turns.

# %%
light = speed_of_light(Gemm(4096, 4096, 4096), H200)
assert light.quantised_us >= light.floor.compute_us
assert light.waves.used <= 1
print("\n".join(light.lines()))

# %% [markdown]
# ## Why not at the roof: operands come from L2
# One tile alone has too few operations a byte. Tiles that run at the same time must share rows of A and columns of B, so their order matters.

# %%
assert light.tile_intensity < H200.ridge()
rows, columns = 32, 32
touched = {
    order: panels_per_window([tuple(tile) for tile in order_table(order, rows, columns, 8).tolist()], 132)
    for order in ("row", "grouped", "hilbert")
}
assert touched["grouped"] < touched["row"]
assert touched["hilbert"] < touched["row"]
print({order: f"{count:.1f} panels of A and B for 132 tiles" for order, count in touched.items()})

# %%
beside(
    tile_order([tuple(t) for t in order_table("row", 16, 16, 8).tolist()], 33, window=33, title="row by row"),
    tile_order(
        [tuple(t) for t in order_table("grouped", 16, 16, 8).tolist()], 33, panel=8, window=33, title="groups of 8 rows"
    ),
)

# %% [markdown]
# ## The space
# One predicate says what is valid and why not, for people and for the tuner.

# %%
problem = Problem(m=2048, n=2048, k=2048)
rejected = Rejections()
space = list(cores(problem, rejected=rejected))
assert all(config.problems() == [] for config in space[::500])
assert rejected.total > len(space) > 1000
print(f"{len(space)} tiles, schedules and clusters are valid, {rejected.total} are not, for example:")
print(re.sub(r" \(first .*", "", rejected.lines()[0]))

# %% [markdown]
# ## The landscape by a coarse model
# Turns, multiplies, L2 and DRAM in a few lines. It ranks; it does not predict. Each cell is the best of all configurations with that tile.

# %%
modelled = tune_points(
    (config, estimate(config)) for config in space if config.tile.n % 16 == 0 and config.tile.m <= 192
)
landscape = tuner_landscape(
    modelled, "tile_n", "tile_m", chosen=select(problem).name, title="2048 x 2048 x 2048, modelled"
)
assert landscape.facts["seconds"] == min(point.seconds for point in modelled)
landscape

# %% [markdown]
# The tuner does not walk the whole landscape: it starts with what is chosen without tuning and with the model's favourites, compiles while the card
# measures, and goes on from the fastest so far.

# %%
start = [config for _, config in starting_points(problem, 24)]
assert start[0] == select(problem)
assert len({config.tile for config in start}) > 8
assert all(config.problems() == [] for config in start)

# %% [markdown]
# ## The landscape as measured
# What was measured on an H200 for one shape, few but real.


# %%
def parameters(name):
    """Tile and stages of a configuration, from its name."""
    m, n, k = map(int, re.search(r"_(\d+)x(\d+)x(\d+)_", name).groups())
    assert m % 64 == 0
    return {"tile_m": m, "tile_n": n, "tile_k": k, "stages": int(re.search(r"stages(\d+)", name)[1])}


(recorded,) = [shape for shape in RECORD["shapes"] if shape["shape"] == [1024, 1024, 1024]]
real = [
    TunePoint(row["config"], parameters(row["config"]), row["measured_us"] * 1e-6, row["modelled_us"] * 1e-6)
    for row in recorded["rows"]
]
best = min(real, key=lambda point: point.seconds)
picture = tuner_landscape(real, "tile_n", "stages", title="1024 x 1024 x 1024, measured on an H200")
assert picture.facts["best"] == best.name
picture

# %% [markdown]
# ## Can the model be trusted?
# The emulator's timeline gives each configuration a modelled time without a GPU. Here it stands against every recorded measurement. It is not fitted to
# most of these shapes, and where it is more than 15 % off, the dot is orange.

# %%
everything = [
    TunePoint(f"{shape['shape']} {row['config']}", {}, row["measured_us"] * 1e-6, row["modelled_us"] * 1e-6)
    for shape in RECORD["shapes"]
    for row in shape["rows"]
]
scatter = model_scatter(everything, title="timeline model and measurement, H200")
assert scatter.facts["within-15-percent"] == sum(group["within_15_percent"] for group in RECORD["groups"].values())
assert scatter.facts["within-15-percent"] > 0.85 * len(everything)
scatter
