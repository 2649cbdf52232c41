"""Merges measured runs into the timings that the selection model is fitted to.

    python benchmarks/selection_timings.py state.json hopper_shapes.json ... --into results/selection_timings.json

Takes the states of ``tune_hopper.py``, the results of ``hopper_shapes.py`` and of ``measure_choices.py``. Of a
configuration's variants in order, hints, panels and specialization the one that is chosen without tuning counts, or else
the fastest; of both ways to launch the faster. Times of different runs are scaled so that what was measured in both
agrees. What a tuner only screened is scaled as the finalists of its kind were between screening and rounds: short runs
find a higher clock than rounds do. ``best`` is the least time that interleaved rounds gave.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.codegen.model import Features, features
from stridewright.codegen.tuned.records import read_config, read_problem
from stridewright.kernels.config import GemmConfig, Problem

NAMES = tuple(one.name for one in fields(Features))
Key = tuple[int, ...]


@dataclass
class Run:
    """What one run found for a shape: microseconds by features, and the least of interleaved rounds."""

    shape: tuple[int, int, int]
    us: dict[Key, float] = field(default_factory=dict)
    best: float = float("inf")


def key_of(config: GemmConfig) -> Key:
    """The features of a configuration as whole numbers.

    >>> key_of(GemmConfig(problem=Problem(m=64, n=64, k=64)))[:6]
    (64, 64, 64, 128, 256, 64)
    """
    return tuple(int(column[0]) for column in vars(features([config])).values())


def is_plain(config: GemmConfig) -> bool:
    """Whether a configuration is as the choice without tuning would have it beside what its features say.

    >>> is_plain(GemmConfig(problem=Problem(m=64, n=64, k=64))), is_plain(GemmConfig(problem=Problem(m=64, n=64, k=64)).replace(hint_b="first"))
    (True, False)
    """
    schedule, pipeline = config.schedule, config.pipeline
    hint = "first" if schedule.swap and schedule.consumers < 3 else "none"
    store = "direct" if (config.problem.n or 0) * 2 % 16 else "tma"
    made = (schedule.order, schedule.group_m, config.specialize, config.epilogue.store, config.epilogue.buffers)
    return made == ("grouped", 8, "", store, 2) and (pipeline.hint_a, pipeline.hint_b) == (hint, "none")


def _run(shape: tuple[int, int, int], timed: Iterable[tuple[GemmConfig, float]], best: float) -> Run:
    found: dict[Key, list[tuple[bool, float]]] = defaultdict(list)
    for config, us in timed:
        found[key_of(config)].append((not is_plain(config), us))
    return Run(shape, {key: min(both)[1] for key, both in found.items()}, best)


def from_tuner(record: dict[str, Any]) -> Run:
    """A run of the tuner: rounds where there were some, screens scaled to them."""
    problem = read_problem(record["problem"])
    measured = [
        (read_config(one["config"], problem), one["us"], one.get("ratio"))
        for one in record["outcomes"]
        if one["status"] == "measured"
    ]
    best = record["best"]["us"]
    scales: dict[tuple[str, int], list[float]] = defaultdict(list)
    for config, us, ratio in measured:
        if ratio:
            scales[config.schedule.kind, config.schedule.consumers].append(best * ratio / us)
    every = [scale for kind in scales.values() for scale in kind]
    common = statistics.median(every) if every else 1.0
    timed = []
    for config, us, ratio in measured:
        own = scales.get((config.schedule.kind, config.schedule.consumers), [])
        scale = statistics.median(own) if len(own) > 1 else common
        timed.append((config, best * ratio if ratio else us * scale))
    return _run((problem.m or 0, problem.n or 0, problem.k or 0), timed, best if every else float("inf"))


def from_rounds(row: dict[str, Any]) -> Run:
    """A shape of ``hopper_shapes.py`` or ``measure_choices.py``: interleaved rounds."""
    problem = Problem(m=row["m"], n=row["n"], k=row["k"])
    timed = [
        (read_config({name: one for name, one in entry["config"].items() if name != "problem"}, problem), entry["us"])
        for entry in row["entries"]
        if entry.get("config")
    ]
    return _run((row["m"], row["n"], row["k"]), timed, min(us for _, us in timed) if timed else float("inf"))


def runs_of(path: Path) -> list[Run]:
    """The runs in a file. Raises ValueError for a file of another kind."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if "records" in record:
        return [from_tuner(one) for one in record["records"] if one.get("best")]
    if "rows" in record:
        return [from_rounds(one) for one in record["rows"]]
    if "shapes" in record and "features" in record:
        return [
            Run(
                tuple(one["shape"]),
                dict(zip((tuple(key) for key in one["features"]), one["us"], strict=True)),
                one["best"],
            )
            for one in record["shapes"]
        ]
    raise ValueError(f"{path}: neither a tuner's state, nor results of rounds, nor merged timings")


def merged(runs: Iterable[Run]) -> list[Run]:
    """One run for each shape, in order of shapes; times of later runs scaled to those of the first."""
    found: dict[tuple[int, int, int], Run] = {}
    counts: dict[tuple[int, int, int], dict[Key, int]] = {}
    for run in runs:
        if not run.us:
            continue
        if run.shape not in found:
            found[run.shape] = Run(run.shape, dict(run.us), run.best)
            counts[run.shape] = dict.fromkeys(run.us, 1)
            continue
        known, count = found[run.shape], counts[run.shape]
        common = [key for key in run.us if key in known.us]
        if not common:
            continue
        scale = float(np.exp(np.median([np.log(known.us[key] / run.us[key]) for key in common])))
        for key, us in run.us.items():
            seen = count.get(key, 0)
            known.us[key] = float(np.exp((seen * np.log(known.us.get(key, us)) + np.log(us * scale)) / (seen + 1)))
            count[key] = seen + 1
        known.best = min(known.best, run.best * scale)
    for run in found.values():
        run.best = run.best if np.isfinite(run.best) else min(run.us.values())
    return [found[shape] for shape in sorted(found)]


def main() -> None:
    """Reads the files, writes the merged timings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--device", default="NVIDIA H200")
    parser.add_argument("--date", required=True)
    arguments = parser.parse_args()
    runs = merged(run for path in arguments.files for run in runs_of(path))
    shapes = [
        {
            "shape": list(run.shape),
            "best": float(f"{run.best:.5g}"),
            "features": [list(key) for key in run.us],
            "us": [float(f"{us:.5g}") for us in run.us.values()],
        }
        for run in runs
    ]
    record = {"device": arguments.device, "date": arguments.date, "features": list(NAMES), "shapes": shapes}
    arguments.into.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{sum(len(run.us) for run in runs)} timings of {len(runs)} shapes")


if __name__ == "__main__":
    main()
