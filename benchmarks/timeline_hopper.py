"""The timeline's model held against an H200: modelled times beside those measured for the same shapes and configurations.

    python benchmarks/timeline_hopper.py check --json results/timeline_hopper.json
    python benchmarks/timeline_hopper.py fit

Needs no GPU: it reads results/gemm_hopper_shapes.json, gemm_hopper_speed.json and gemm_hopper_attribute.json. The six constants named in FITTED
of codegen/emulator/timeline_model.py are fitted to FITTED_SHAPES, half of the shapes measured by then; ``check``
reports the error on those, on the others, and on shapes that were measured after the model and its constants were fixed. (The form of the model, a
clock that falls with power and what is shared, was chosen with the first two groups in view.)
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stridewright import Gemm
from stridewright.codegen.emulator.timeline_model import FITTED, CostModel
from stridewright.codegen.modelled_time import modelled_time
from stridewright.kernels.config import GemmConfig

RESULTS = Path(__file__).parent / "results"
Shape = tuple[int, int, int]

_NAME = re.compile(
    r"sm_90a_bf16_(?P<kind>cooperative|pingpong)(?P<consumers>\d)(?P<swap>_swapped)?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"(?:_cluster(?P<cm>\d)x(?P<cn>\d))?_stages(?P<stages>\d+)_group(?P<group>\d+)_tma(?P<buffers>\d)"
)


FITTED_SHAPES: frozenset[Shape] = frozenset(
    {
        (1, 8192, 8192),
        (16, 6144, 4096),
        (64, 6144, 4096),
        (512, 4096, 14336),
        (2048, 2048, 2048),
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (16384, 16384, 16384),
    }
)
"""What the constants were fitted to: half of the 15 shapes that had been measured by then."""

OTHER_SHAPES: frozenset[Shape] = frozenset(
    {
        (64, 4096, 14336),
        (128, 28672, 4096),
        (512, 512, 512),
        (1024, 1024, 1024),
        (2048, 6144, 4096),
        (4096, 4096, 14336),
        (8192, 28672, 4096),
    }
)
"""The other half. The model's form was chosen with these in view; no constant was fitted to them."""


def group_of(shape: Shape) -> str:
    """ "fitted", "other", or "later": measured after the model and its constants were fixed, so unseen in every way."""
    return "fitted" if shape in FITTED_SHAPES else "other" if shape in OTHER_SHAPES else "later"


@dataclass(frozen=True)
class Measured:
    """A shape, a configuration, and the microseconds that it took: the median over all records of the two."""

    shape: Shape
    config: str
    microseconds: float


def config_of(name: str) -> GemmConfig:
    """The configuration of a name that GemmConfig.name made."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name}: not a name of a bf16 configuration that stores by TMA")
    config = GemmConfig().replace(
        schedule_kind=found["kind"],
        consumers=int(found["consumers"]),
        swap=found["swap"] is not None,
        tile_m=int(found["m"]),
        tile_n=int(found["n"]),
        tile_k=int(found["k"]),
        cluster_m=int(found["cm"] or 1),
        cluster_n=int(found["cn"] or 1),
        stages=int(found["stages"]),
        group_m=int(found["group"]),
        buffers=int(found["buffers"]),
    )
    if config.name != name:
        raise ValueError(f"{name} was read as {config.name}")
    return config


def _rows(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, dict):
        if "config" in found and "ours_us" in found:
            yield found
        else:
            for key, value in found.items():
                # Single CTAs with a cluster attribute were a quarter slower, which the kernels no longer have.
                if key != "with":
                    yield from _rows(value)
    elif isinstance(found, list):
        for value in found:
            yield from _rows(value)


def _dates(name: str) -> list[str]:
    """When a record was made, or its parts were."""
    found: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "driver_version" in value:
                found.add(str(value["date"]))
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(json.loads((RESULTS / f"gemm_hopper_{name}.json").read_text(encoding="utf-8")))
    return sorted(found)


def measured(results: Path = RESULTS) -> list[Measured]:
    """What was measured, in all three records, of bf16 configurations that store by TMA and are still valid."""
    times: dict[tuple[Shape, str], list[float]] = defaultdict(list)
    for name in ("shapes", "attribute", "speed"):
        for row in _rows(json.loads((results / f"gemm_hopper_{name}.json").read_text(encoding="utf-8"))):
            m, n, k = row["shape"]
            times[(m, n, k), row["config"]].append(row["ours_us"])
    return [
        Measured(shape, config, statistics.median(found))
        for (shape, config), found in sorted(times.items())
        if _NAME.fullmatch(config) and not config_of(config).violations()
    ]


def modelled(row: Measured, model: CostModel) -> float:
    """Modelled microseconds."""
    return modelled_time(Gemm(*row.shape, config=config_of(row.config)), model).microseconds


def rank_correlation(first: list[float], second: list[float]) -> float:
    """Spearman's: the correlation of ranks, ties sharing theirs."""

    def ranks(values: list[float]) -> list[float]:
        ordered = sorted(values)
        return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]

    return statistics.correlation(ranks(first), ranks(second))


def pairs_in_order(times: list[float], models: list[float], apart: float = 1.05) -> tuple[int, int]:
    """Of the pairs of configurations whose measured times differ by more than a factor of `apart`: how many the model puts in the measured order, and how many
    there are. Smaller differences are within what a measurement repeats to.
    """
    right = total = 0
    for i, slow in enumerate(times):
        for j, fast in enumerate(times):
            if slow > apart * fast:
                total += 1
                right += models[i] > models[j]
    return right, total


def error_summary(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Of (measured, modelled): how far the model is off."""
    errors = [model / time - 1 for time, model in pairs]
    sizes = sorted(abs(error) for error in errors)
    return {
        "pairs": len(errors),
        "within_15_percent": sum(size <= 0.15 for size in sizes),
        "median_absolute_error": statistics.median(sizes),
        "largest_absolute_error": sizes[-1],
        "mean_error": statistics.fmean(errors),
    }


def check(model: CostModel, rows: list[Measured]) -> dict[str, Any]:
    """All pairs with their errors, in all and by shape."""
    return report(model, [(row, modelled(row, model)) for row in rows])


def report(model: CostModel, pairs: list[tuple[Measured, float]]) -> dict[str, Any]:
    """What is recorded of measured and modelled times."""
    by_shape: dict[Shape, list[tuple[Measured, float]]] = defaultdict(list)
    for row, value in pairs:
        by_shape[row.shape].append((row, value))
    shapes = []
    for shape, found in by_shape.items():
        times, models = [row.microseconds for row, _ in found], [value for _, value in found]
        order = pairs_in_order(times, models)
        chosen = min(found, key=lambda item: item[1])[0]
        shapes.append(
            {
                "shape": list(shape),
                "group": group_of(shape),
                "rank_correlation": rank_correlation(times, models) if len(found) > 2 else None,
                "pairs_5_percent_apart": order[1],
                "of_them_in_order": order[0],
                "spread": max(times) / min(times),
                "chosen_over_best": chosen.microseconds / min(times),
                **error_summary(list(zip(times, models, strict=True))),
                "rows": [
                    {
                        "config": row.config,
                        "measured_us": row.microseconds,
                        "modelled_us": value,
                        "error": value / row.microseconds - 1,
                    }
                    for row, value in found
                ],
            }
        )
    groups: dict[str, Any] = {}
    for name in ("fitted", "other", "later"):
        times_of = [
            (row.microseconds, value)
            for shape, found in by_shape.items()
            if group_of(shape) == name
            for row, value in found
        ]
        inside = [s for s in shapes if s["group"] == name]
        if times_of:
            groups[name] = {
                **error_summary(times_of),
                "shapes": len(inside),
                "mean_rank_correlation": statistics.fmean(
                    s["rank_correlation"] for s in inside if s["rank_correlation"] is not None
                ),
                "pairs_5_percent_apart": sum(s["pairs_5_percent_apart"] for s in inside),
                "of_them_in_order": sum(s["of_them_in_order"] for s in inside),
                "mean_chosen_over_best": statistics.fmean(s["chosen_over_best"] for s in inside),
            }
    return {
        "what": "modelled against measured on an H200; a model, not a measurement",
        "measured": {name: _dates(name) for name in ("shapes", "attribute", "speed")},
        "constants": {name: getattr(model, name) for name in FITTED},
        "groups": groups,
        "shapes": shapes,
    }


def loss(model: CostModel, rows: list[Measured]) -> float:
    """Mean over shapes of the mean absolute error."""
    by_shape: dict[Shape, list[float]] = defaultdict(list)
    for row in rows:
        by_shape[row.shape].append(abs(modelled(row, model) / row.microseconds - 1))
    return statistics.fmean(statistics.fmean(found) for found in by_shape.values())


def fit(model: CostModel, rows: list[Measured], rounds: int = 3, step: float = 0.2) -> CostModel:
    """Coordinate descent: each constant in turn up and down by a step that shrinks."""
    best = loss(model, rows)
    for _ in range(rounds):
        for name in FITTED:
            for factor in (1 + step, 1 / (1 + step)):
                while True:
                    tried = replace(model, **{name: getattr(model, name) * factor})
                    value = loss(tried, rows)
                    if value >= best:
                        break
                    model, best = tried, value
                    print(f"{best:.4f} {name}={getattr(model, name):.4g}", flush=True)
        step /= 2
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "fit"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = measured()
    if arguments.what == "fit":
        model = fit(CostModel(), [row for row in rows if row.shape in FITTED_SHAPES])
        print({name: getattr(model, name) for name in FITTED})
        return
    found = check(CostModel(), rows)
    for shape in found["shapes"]:
        print(
            f"{shape['shape']} rank {shape['rank_correlation']} within {shape['within_15_percent']} of {shape['pairs']}"
        )
    print(json.dumps({key: value for key, value in found.items() if key != "shapes"}, indent=1))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
