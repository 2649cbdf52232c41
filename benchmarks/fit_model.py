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
it was fitted to, 0.951 of others; least squares of the same form 0.966 and 0.962). What families of configurations are off
by on average over their shapes comes last. Nothing is random: the same timings give the same numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.codegen.model import Features, families, modelled_us, physical_us
from stridewright.codegen.model_table import FAMILY, PATH, Constants, Fitted, fitted, read_fitted
from stridewright.codegen.select import SMS, many_turns

TIMINGS = Path(__file__).parent / "results" / "selection_timings.json"

BOUNDS: dict[str, tuple[float, float, float]] = {
    "column": (0.25, 0.33, 0.4), "narrow": (0, 10, 30), "three_consumers": (0.9, 1.05, 1.2), "alone": (0, 10, 100),
    "handshake_pair": (0, 100, 500), "handshake_four": (0, 100, 500), "latency": (100, 400, 2500),
    "latency_pair": (0, 0.5, 3), "burst": (15, 60, 400), "door": (25, 100, 400), "l2": (2, 10, 60),
    "misaligned": (0, 0.5, 6), "outside": (3, 20, 1000), "crossing": (1, 3, 10), "crossers": (1.2, 4, 40),
    "dram": (3.6, 4.2, 5), "uneven_pairs": (0, 0.4, 1.5), "idle_clusters": (0, 0.2, 1), "window": (0, 1, 4),
    "unshared": (0, 0.4, 1), "staged": (0, 3, 40), "direct": (0, 8, 40), "direct_odd": (0, 8, 40),
    "launch": (0.5, 2, 4), "cluster": (0, 0.2, 1), "split": (0, 2, 6), "split_bytes": (0, 2, 8), "power": (1.5, 4, 12),
    "depth_32": (-0.05, 0.05, 0.4), "swapped": (-0.1, 0, 0.1), "pingpong": (-0.1, 0, 0.1), "high": (-0.1, 0, 0.1),
}  # fmt: skip
"""The least that each constant may be, where the fit begins, and the most."""

DOUBT = 0.03
"""What a family that was never measured costs: the logarithm of a factor. It halves with each shape it was measured for,
as 1, 1/2, 1/3 and so on.
"""
_FAMILY_SHAPES = 2.0
"""With so many shapes half of what a family was off by is believed."""
_NEAR = 0.12
_LEAST_WEIGHT = 0.02
"""A configuration counts exp(-over / 0.12) + 0.02, ``over`` being the logarithm of its time over the shape's least."""
_FULL, _MOST = 15, 30
"""Timings of a shape from which it counts in full, and beyond which more do not add to its weight."""


class Timings:
    """The measured runs as arrays, shapes one after another. Without those that ``select`` decides by turns, and without
    sums divided so that a cluster's share begins inside a tile, which are never chosen.
    """

    def __init__(self, shapes: Sequence[dict[str, Any]]):
        rows, us, place, best = [], [], [], []
        self.shapes: list[list[int]] = []
        for shape in shapes:
            m, n, _ = shape["shape"]
            kept = [pair for pair in zip(shape["features"], shape["us"], strict=True) if _even(pair[0])]
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


def _even(features: Sequence[float]) -> bool:
    """Whether every CTA's share of K begins where a tile's does, or at the same place of it."""
    rows, columns, _, tile_m, tile_n, _, _, _, _, cluster_m, cluster_n, _, parts, *_ = features
    blocks = -(-rows // (tile_m * cluster_m)) * -(-columns // (tile_n * cluster_n))
    most = {1: SMS, 2: SMS // 2, 4: 30}[int(cluster_m * cluster_n)]
    return parts <= 1 or blocks * parts <= most


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


def fit_families(timings: Timings, constants: Constants) -> list[list[float]]:
    """Families that were measured: the fields of FAMILY, what they were off by (a logarithm, drawn towards 0), and for how
    many shapes they were measured, those where they were slow counting less.
    """
    x = timings.features
    error = timings.within(timings.log - np.log(physical_us(x, SMS, constants)))
    names = np.stack([*(getattr(x, name) for name in FAMILY[:-1]), x.parts != 1]).astype(int)
    codes = families(x)
    rows = []
    for code in np.unique(codes):
        of_family = codes == code
        weight = np.bincount(timings.place[of_family], timings.near[of_family], len(timings.shapes))
        sums = np.bincount(timings.place[of_family], (timings.near * error)[of_family], len(timings.shapes))
        measured = weight > 0
        means, shapes = sums[measured] / weight[measured], np.minimum(weight[measured], 1)
        beyond = float((shapes * means).sum() / (shapes.sum() + _FAMILY_SHAPES))
        rows.append([*names[:, np.argmax(of_family)].tolist(), round(beyond, 4), round(float(shapes.sum()), 2)])
    return rows


def fit(timings: Timings, evaluations: int = 120) -> dict[str, Any]:
    """The fit as ``model_table`` reads it."""
    constants = fit_constants(timings, evaluations)
    rows = fit_families(timings, constants)
    return {
        "note": "Written by benchmarks/fit_model.py --fit from results/selection_timings.json.",
        "timings": len(timings.log),
        "shapes": len(timings.shapes),
        "constants": asdict(constants),
        "doubt": DOUBT,
        "families": {"fields": [*FAMILY, "beyond", "shapes"], "rows": rows},
    }


def as_text(record: dict[str, Any]) -> str:
    """JSON with a line for each constant and family."""
    lines = [f" {json.dumps(name)}: {json.dumps(record[name])}" for name in ("note", "timings", "shapes", "doubt")]
    constants = ",\n".join(f"  {json.dumps(name)}: {value}" for name, value in record["constants"].items())
    rows = ",\n".join(f"   {json.dumps(row)}" for row in record["families"]["rows"])
    names = json.dumps(record["families"]["fields"])
    lines.append(f' "constants": {{\n{constants}\n }}')
    lines.append(f' "families": {{\n  "fields": {names},\n  "rows": [\n{rows}\n  ]\n }}')
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
