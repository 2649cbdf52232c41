"""Fits the constants of the selection model to measured runs, and says what its choices cost.

    python benchmarks/fit_model.py                    # what the constants of codegen/model.py choose among the measured
    python benchmarks/fit_model.py --fit 150          # a new fit of about 150 seconds (needs scipy), printed as source

``results/selection_timings.json`` holds, for each shape, configurations and their microseconds a product (dependent
launches, with operands swapped the faster of both kinds, in CUDA graphs over buffers larger than L2, H200); times of different runs are scaled so that configurations
measured in both agree. A choice's cost is the time of the configuration that the model puts first among the measured,
over the least. The fit minimises the expected cost of a choice with a little noise, and a part of the squared error.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.codegen.model import CONSTANTS, Constants, Features, modelled_us

TIMINGS = Path(__file__).parent / "results" / "selection_timings.json"

BOUNDS: dict[str, tuple[float, float]] = {
    "clock": (1.5, 1.9), "row": (0, 32), "column": (0.5, 0.56), "one_consumer": (0.6, 1),
    "three_consumers": (0.8, 1.05), "slot": (0, 200), "slot_alone": (0, 250), "latency": (600, 2400),
    "latency_in_clusters": (0, 1), "door": (40, 110), "l2": (4, 9), "dram": (3.6, 4.7), "turn_pingpong": (0, 1000),
    "only_turn_pingpong": (0, 1500), "turn_cooperative": (200, 2500), "fill": (500, 3500), "launch": (0.6, 2.5),
    "cluster": (0, 1.0), "cluster_of_four": (0, 1.0), "split": (0.8, 6), "split_bytes": (0, 6), "direct": (0, 20),
    "power": (3, 12), "unshared": (0, 1), "window": (0, 1.5), "idle": (0, 1), "depth_32": (0, 0.4), "four": (0, 0.2),
    "one": (-0.05, 0.2), "three": (-0.05, 0.2), "stream": (0, 0.2), "swapped": (-0.06, 0.2), "narrow": (-0.03, 0.2),
}  # fmt: skip
"""What each constant may be: what the part it is named after could cost, and a little more."""


class Timings:
    """The measured runs as arrays, shapes one after another."""

    def __init__(self, shapes: Sequence[dict[str, Any]]):
        rows = [row for shape in shapes for row in shape["features"]]
        self.features = Features(*np.asarray(rows, dtype=np.float64).T)
        self.us = np.asarray([us for shape in shapes for us in shape["us"]])
        self.counts = np.asarray([len(shape["us"]) for shape in shapes])
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.least = np.repeat(np.minimum.reduceat(self.us, self.starts), self.counts)

    def costs(self, constants: Constants) -> Any:
        """For each shape the time of the model's first choice over the least."""
        modelled = modelled_us(self.features, constants=constants)
        firsts = [
            start + np.argmin(modelled[start : start + count])
            for start, count in zip(self.starts, self.counts, strict=True)
        ]
        return self.us[firsts] / self.least[firsts]

    def loss(self, constants: Constants) -> float:
        """What the fit makes small."""
        modelled = np.log(modelled_us(self.features, constants=constants))
        over = np.log(self.us / self.least)
        error = modelled - np.log(self.us)
        weight = np.exp(-over / 0.12)
        total = np.add.reduceat(weight, self.starts)
        shift = np.add.reduceat(weight * error, self.starts) / total
        spread = np.add.reduceat(weight * (error - np.repeat(shift, self.counts)) ** 2, self.starts) / total
        chance = np.exp(-(modelled - np.repeat(np.minimum.reduceat(modelled, self.starts), self.counts)) / 0.02)
        chance /= np.repeat(np.add.reduceat(chance, self.starts), self.counts)
        expected = np.add.reduceat(chance * np.minimum(over, 0.5), self.starts)
        return float((0.3 * spread + 0.01 * shift**2 + expected).mean())


def fit(timings: Timings, seconds: float, seed: int) -> Constants:
    """New constants, from about ``seconds`` of differential evolution and a descent after it."""
    from scipy.optimize import differential_evolution, minimize

    names = [field.name for field in fields(Constants)]
    bounds = [BOUNDS[name] for name in names]
    begin = np.clip([getattr(CONSTANTS, name) for name in names], *np.transpose(bounds))
    end = time.monotonic() + seconds

    def loss(values: Any) -> float:
        return timings.loss(Constants(*map(float, values)))

    found = differential_evolution(
        loss, bounds, popsize=6, maxiter=100_000, tol=1e-9, mutation=(0.5, 1.0), recombination=0.8, x0=begin,
        callback=lambda *_, **__: time.monotonic() > end, polish=False, seed=seed,
    )  # fmt: skip
    descended = minimize(loss, found.x, method="Nelder-Mead", bounds=bounds, options={"maxfev": 4000, "adaptive": True})
    best = min((found.x, descended.x), key=loss)
    return Constants(*(float(f"{value:.4g}") for value in best))


def main() -> None:
    """Reads the timings, fits if asked to, prints the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", type=float, default=0, metavar="SECONDS", help="fit anew")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shapes = json.loads(TIMINGS.read_text(encoding="utf-8"))["shapes"]
    timings = Timings(shapes)
    constants = fit(timings, arguments.fit, arguments.seed) if arguments.fit else CONSTANTS
    if arguments.fit:
        print("CONSTANTS = Constants(")
        for field in fields(Constants):
            print(f"    {field.name}={getattr(constants, field.name)},")
        print(")")
    costs = timings.costs(constants)
    for shape, cost in sorted(zip(shapes, costs, strict=True), key=lambda one: -one[1])[:10]:
        print(f"{cost:.3f}  {shape['shape']}")
    print(
        f"{len(timings.us)} timings of {len(shapes)} shapes: a choice reaches {1 / np.exp(np.log(costs).mean()):.3f} of the best measured"
    )


if __name__ == "__main__":
    main()
