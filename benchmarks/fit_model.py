"""Fits the selection model to measured runs, and says what its choices cost.

    python benchmarks/fit_model.py                 # what the fit that ships chooses among the measured
    python benchmarks/fit_model.py --folds 8       # the same of shapes that were left out of the fit
    python benchmarks/fit_model.py --fit           # fits anew and writes codegen/selection_model.json (needs scipy)

``results/selection_timings.json`` (``selection_timings.py``) holds, for each shape, configurations and their microseconds
a product (the faster of both kinds of launches, in CUDA graphs over buffers larger than L2, H200), and the least that
interleaved rounds gave for it. A choice's cost is the time of the configuration that the model puts first among the
measured, over that least.

The fit is least squares of the logarithms of times within a shape: what a shape as a whole is off by hardly counts, slow
configurations count little. To minimise the cost of choices itself fits better and predicts worse (0.975 of the shapes
it was fitted to, 0.951 of others; least squares of the same form 0.966 and 0.962). What the form is off by then is
ascribed to a few hundred of the runs (``codegen/model_likeness.py``). Nothing is random: the same timings give the same
numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.codegen.model import Features, modelled_us, physical_us
from stridewright.codegen.model_likeness import coordinates, likeness
from stridewright.codegen.model_table import PATH, Constants, Fitted, fitted, read_fitted
from stridewright.codegen.model_work import work_of
from stridewright.codegen.select import SMS, many_turns

TIMINGS = Path(__file__).parent / "results" / "selection_timings.json"

BOUNDS: dict[str, tuple[float, float, float]] = {
    "column": (0.25, 0.33, 0.4), "narrow": (0, 10, 30), "three_consumers": (0.9, 1.05, 1.2), "alone": (0, 10, 100),
    "handshake_pair": (0, 100, 500), "handshake_four": (0, 100, 500), "latency": (0, 300, 2500),
    "latency_pair": (0, 200, 1500), "burst": (15, 60, 400), "door": (25, 100, 400), "l2": (2, 10, 60),
    "misaligned": (0, 0.5, 6), "outside": (3, 20, 1000), "crossing": (1, 3, 10), "crossers": (1.2, 4, 40),
    "dram": (3.6, 4.2, 5), "uneven_pairs": (0, 0.4, 1.5), "idle_clusters": (0, 0.2, 1), "window": (0, 1, 4),
    "unshared": (0, 0.4, 1), "staged": (0, 3, 40), "direct": (0, 8, 100), "direct_odd": (0, 8, 100),
    "tail": (0, 0.5, 1), "direct_swapped": (0, 15, 100), "launch": (0.5, 2, 4), "cluster": (0, 0.2, 1), "split": (0, 2, 6), "split_bytes": (0, 2, 8), "power": (1.5, 4, 12),
    "depth_32": (-0.05, 0.05, 0.4), "swapped": (-0.1, 0, 0.1), "pingpong": (-0.1, 0, 0.1), "high": (-0.1, 0, 0.1),
}  # fmt: skip
"""The least that each constant may be, where the fit begins, and the most."""

DOUBT = 0.03
"""What a configuration costs that is like no measured run: the logarithm of a factor."""
RUNS = 600
"""How many runs are kept to correct the form."""
_AMPLITUDE = 0.08
"""How far the form is off, as a logarithm, before anything is known."""
_NOISE = 0.03
"""How far a timing is off, as a logarithm; of slow configurations, which matter less, a multiple (1 + 8 over)."""
_NEAR = 0.12
_LEAST_WEIGHT = 0.02
"""A configuration counts exp(-over / 0.12) + 0.02, ``over`` being the logarithm of its time over the shape's least."""
_FULL, _MOST = 15, 30
"""Timings of a shape from which it counts in full, and beyond which more do not add to its weight."""


class Timings:
    """The measured runs as arrays, shapes one after another. Without those that ``select`` decides by turns, and without
    configurations that are never chosen.
    """

    def __init__(self, shapes: Sequence[dict[str, Any]]):
        rows, us, place, best = [], [], [], []
        self.shapes: list[list[int]] = []
        for shape in shapes:
            m, n, _ = shape["shape"]
            kept = [pair for pair in zip(shape["features"], shape["us"], strict=True) if could_be_chosen(pair[0])]
            if many_turns(m, n) or len(kept) < 2:
                continue
            rows += [features for features, _ in kept]
            us += [one for _, one in kept]
            place += [len(self.shapes)] * len(kept)
            best.append(shape["best"])
            self.shapes.append(shape["shape"])
        self.features = Features(*np.asarray(rows, dtype=np.float64).T)
        self.log = np.log(np.asarray(us))
        self.place = np.asarray(place)
        self.over = np.maximum(0, self.log - np.log(np.asarray(best))[self.place])
        self.counts = np.bincount(self.place)
        self.near = np.exp(-self.over / _NEAR) + _LEAST_WEIGHT
        self._sums = np.bincount(self.place, self.near)
        importance = np.sqrt(np.minimum(1, self.counts / _FULL)) * np.minimum(self.counts, _MOST)
        self.weight = self.near / self._sums[self.place] * importance[self.place]

    def of_shapes(self, values: Any) -> Any:
        """The weighted mean of each shape."""
        return np.bincount(self.place, self.near * values) / self._sums

    def within(self, values: Any) -> Any:
        """What values differ by from the mean of their shape."""
        return values - self.of_shapes(values)[self.place]

    def costs(self, modelled: Any) -> Any:
        """For each shape the time of the model's first choice over the least."""
        starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        firsts = [
            start + np.argmin(modelled[start : start + count]) for start, count in zip(starts, self.counts, strict=True)
        ]
        return np.exp(self.over[firsts])


def could_be_chosen(features: Sequence[float]) -> bool:
    """Whether a choice looks at such configurations: every CTA of a cluster has a tile, and where the sum over K is divided,
    a CTA for every part.
    """
    rows, columns, _, tile_m, tile_n, _, _, _, _, cluster_m, cluster_n, _, parts, *_ = features
    blocks = -(-rows // (tile_m * cluster_m)) * -(-columns // (tile_n * cluster_n))
    most = {1: SMS, 2: SMS // 2, 4: 30}[int(cluster_m * cluster_n)]
    with_tiles = cluster_m <= -(-rows // tile_m) and cluster_n <= -(-columns // tile_n)
    return with_tiles and (parts <= 1 or blocks * parts <= most)


def fit_constants(timings: Timings, evaluations: int = 120) -> Constants:
    """The constants, by least squares from the middle column of BOUNDS."""
    from scipy.optimize import least_squares

    names = [field.name for field in fields(Constants)]
    low, start, high = (np.asarray([BOUNDS[name][side] for name in names]) for side in range(3))
    begin = (start - low) / (high - low)
    scale = np.sqrt(timings.weight)

    def residuals(values: Any) -> Any:
        constants = Constants(*map(float, low + values * (high - low)))
        error = np.log(physical_us(timings.features, SMS, constants)) - timings.log
        return np.concatenate([timings.within(error) * scale, 0.3 * timings.of_shapes(error), 0.01 * (values - begin)])

    found = least_squares(residuals, begin, bounds=(0, 1), max_nfev=evaluations, loss="soft_l1", f_scale=0.3)
    return Constants(*(float(f"{value:.4g}") for value in low + found.x * (high - low)))


def kept_runs(timings: Timings, points: Any) -> list[int]:
    """The runs that say most about the others: each the one that those before it tell least about, those near the best of
    their shape first (pivoted Cholesky).
    """
    importance = np.sqrt(timings.near)
    unknown = np.ones(len(points))
    factors = np.zeros((len(points), RUNS))
    kept: list[int] = []
    while len(kept) < min(RUNS, len(points)):
        run = int(np.argmax(unknown * importance))
        if unknown[run] < 1e-4:
            break
        column = likeness(points, points[run : run + 1])[:, 0] - factors[:, : len(kept)] @ factors[run, : len(kept)]
        factors[:, len(kept)] = column / np.sqrt(unknown[run])
        unknown = np.maximum(unknown - factors[:, len(kept)] ** 2, 0)
        kept.append(run)
    return kept


def fit_runs(timings: Timings, constants: Constants) -> list[list[float]]:
    """The runs that correct the form, as features and a weight: what the form is off by within each shape, by regression."""
    x = timings.features
    points = coordinates(x, work_of(x, SMS))
    kept = kept_runs(timings, points)
    alike = likeness(points, points[kept])
    sure = 1 / (_NOISE * (1 + 8 * np.minimum(timings.over, 0.6)))
    of_shape = np.bincount(timings.place, sure**2)

    def within(values: Any) -> Any:
        sums = np.zeros((len(of_shape), *values.shape[1:]))
        np.add.at(sums, timings.place, (values.T * sure**2).T)
        return ((values - (sums.T / of_shape).T[timings.place]).T * sure).T

    error = within(timings.log - np.log(physical_us(x, SMS, constants)))
    seen = within(alike)
    system = seen.T @ seen + (alike[kept] + 1e-6 * np.eye(len(kept))) / _AMPLITUDE**2
    weights = np.linalg.solve(system, seen.T @ error)
    features = np.stack(list(vars(x).values()), axis=1)[kept].astype(int).tolist()
    return [[*row, float(f"{weight:.4g}")] for row, weight in zip(features, weights, strict=True)]


def fit(timings: Timings, evaluations: int = 120) -> dict[str, Any]:
    """The fit as ``model_table`` reads it."""
    constants = fit_constants(timings, evaluations)
    return {
        "note": "Written by benchmarks/fit_model.py --fit from results/selection_timings.json.",
        "timings": len(timings.log),
        "shapes": len(timings.shapes),
        "constants": asdict(constants),
        "doubt": DOUBT,
        "runs": fit_runs(timings, constants),
    }


def as_text(record: dict[str, Any]) -> str:
    """JSON with a line for each constant and run."""
    lines = [f" {json.dumps(name)}: {json.dumps(record[name])}" for name in ("note", "timings", "shapes", "doubt")]
    constants = ",\n".join(f"  {json.dumps(name)}: {value}" for name, value in record["constants"].items())
    runs = ",\n".join(f"  {json.dumps(run, separators=(',', ':'))}" for run in record["runs"])
    lines += [f' "constants": {{\n{constants}\n }}', f' "runs": [\n{runs}\n ]']
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fitted_to(timings: Timings) -> Fitted:
    """A fit, ready to use."""
    return read_fitted(as_text(fit(timings)))


def cross_validated(shapes: Sequence[dict[str, Any]], folds: int) -> tuple[list[list[int]], Any]:
    """The shapes and what choices cost for each, by fits that did not see it."""
    order = np.random.default_rng(1).permutation(len(shapes))
    names: list[list[int]] = []
    costs: list[Any] = []
    for fold in range(folds):
        left_out = set(order[fold::folds].tolist())
        rest = Timings([shape for place, shape in enumerate(shapes) if place not in left_out])
        held = Timings([shape for place, shape in enumerate(shapes) if place in left_out])
        names += held.shapes
        costs.append(held.costs(modelled_us(held.features, fit=fitted_to(rest))))
    return names, np.concatenate(costs)


def reached(costs: Any) -> float:
    """The share of the best measured that choices reach, geometric mean.

    >>> reached(np.asarray([1.0, 1.0]))
    1.0
    """
    return float(1 / np.exp(np.log(costs).mean()))


def main() -> None:
    """Reads the timings, fits if asked to, prints the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit anew and write the package's table")
    parser.add_argument("--folds", type=int, default=0, help="leave shapes out, so many times")
    parser.add_argument("--timings", type=Path, default=TIMINGS)
    arguments = parser.parse_args()
    shapes = json.loads(arguments.timings.read_text(encoding="utf-8"))["shapes"]
    timings = Timings(shapes)
    if arguments.fit:
        PATH.write_text(as_text(fit(timings)), encoding="utf-8")
        fitted.cache_clear()
    if arguments.folds:
        names, costs = cross_validated(shapes, arguments.folds)
    else:
        names, costs = timings.shapes, timings.costs(modelled_us(timings.features))
    for shape, cost in sorted(zip(names, costs, strict=True), key=lambda one: -one[1])[:10]:
        print(f"{cost:.3f}  {shape}")
    how = f"by fits without them ({arguments.folds} folds)" if arguments.folds else "by the fit that ships"
    print(
        f"{len(timings.log)} timings of {len(names)} shapes, {how}: a choice reaches {reached(costs):.4f} of the best measured"
    )


if __name__ == "__main__":
    main()
