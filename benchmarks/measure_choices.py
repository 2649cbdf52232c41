"""Measures what the selection model would choose first, and next, on an NVIDIA Hopper GPU: data for its fit.

    python benchmarks/measure_choices.py --budget 85 --json choices.json
    python benchmarks/selection_timings.py results/selection_timings.json choices.json --into results/selection_timings.json --date ...

New shapes are drawn with a seed: of language models, ragged, of 200 to 300 rows. Each runs the model's first few, then the
best of each other kind of tile, all in interleaved rounds. Shapes of the timings whose choice was never measured run it
beside the fastest that were. A kernel is checked before it is timed. The results are written every few shapes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from device_info import device_info
from fit_model import TIMINGS
from hopper_bench.shapes import random_shapes as drawn_by_widths
from selection_timings import key_of
from tune_hopper import random_shapes as drawn_by_powers

from stridewright.codegen.compile_pool import CompilePool
from stridewright.codegen.model import Features, best_first
from stridewright.codegen.select import many_turns
from stridewright.codegen.tune_bench import GpuBench, GpuRunner
from stridewright.codegen.tune_plan import family
from stridewright.codegen.tuned import config_record
from stridewright.codegen.tuned.store import write_atomically
from stridewright.kernels.config import GemmConfig, Problem

FIRST = 4
"""How many of the model's order run whatever their kind."""
LOOKED_AT = 200
ROUNDS = 7


def spread(problem: Problem, most: int) -> list[GemmConfig]:
    """The model's first few, then the best of kinds of tiles not seen yet.

    >>> len(spread(Problem(m=64, n=4096, k=4096), 8))
    8
    """
    ordered = [config for _, config in best_first(problem, most=LOOKED_AT)]
    found = dict.fromkeys(ordered[:FIRST])
    seen = {_kind(config) for config in found}
    widths = Counter(config.tile for config in found)
    for config in ordered:
        kind = _kind(config)
        if len(found) < most and kind not in seen and widths[config.tile] < 2:
            seen.add(kind)
            widths[config.tile] += 1
            found[config] = None
    return list(found)[:most]


def _kind(config: GemmConfig) -> tuple[object, ...]:
    return (*family(config)[:3], config.tile.m, config.tile.k, config.cluster)


def config_of(features: list[int]) -> GemmConfig:
    """The plain configuration with these features."""
    x = dict(zip(Features.__dataclass_fields__, features, strict=True))
    m, n = (x["columns"], x["rows"]) if x["swapped"] else (x["rows"], x["columns"])
    split: dict[str, Any] = {}
    if x["parts"] != 1:
        split = {"split_kind": "split" if x["parts"] else "stream", "reduce": "atomic" if x["atomic"] else "ordered"}
        split |= {"parts": x["parts"]} if x["parts"] else {}
    return GemmConfig(problem=Problem(m=m, n=n, k=x["k"])).replace(
        schedule_kind="pingpong" if x["pingpong"] else "cooperative",
        **{name: x[name] for name in ("tile_m", "tile_n", "tile_k", "stages", "consumers", "cluster_m", "cluster_n")},
        swap=bool(x["swapped"]),
        store="direct" if x["direct"] else "tma",
        group_m=x["group"],
        hint_a="first" if x["swapped"] and x["consumers"] < 3 else "none",
        **split,
    )


def never_measured(most: int) -> Iterator[tuple[Problem, list[GemmConfig]]]:
    """Shapes of the timings whose choice was not measured, with it, the next, and the fastest that were."""
    for shape in json.loads(TIMINGS.read_text(encoding="utf-8"))["shapes"]:
        m, n, k = shape["shape"]
        if many_turns(m, n) or len(shape["us"]) < 10:
            continue
        problem = Problem(m=m, n=n, k=k)
        chosen = [config for _, config in best_first(problem, most=most // 2)]
        if list(key_of(chosen[0])) in shape["features"]:
            continue
        fastest = sorted(zip(shape["us"], shape["features"], strict=True))
        known = [config for config in (config_of(features) for _, features in fastest) if not config.violations()]
        yield problem, list(dict.fromkeys([*chosen, *known]))[:most]


def new_shapes(count: int, seed: int, most: int) -> Iterator[tuple[Problem, list[GemmConfig]]]:
    """Shapes drawn both ways, in turns."""
    drawn = itertools.chain.from_iterable(zip(drawn_by_powers(count, seed), drawn_by_widths(count, seed), strict=True))
    for shape in drawn:
        problem = Problem(m=shape["m"], n=shape["n"], k=shape["k"])
        if not many_turns(shape["m"], shape["n"]):
            yield problem, spread(problem, most)


def run_shape(problem: Problem, configs: list[GemmConfig], pool: CompilePool) -> list[dict[str, Any]]:
    """An entry for each configuration that compiled and was right: its record and microseconds in rounds."""
    bench = GpuBench(problem)
    runners: dict[str, GpuRunner] = {}
    by_name = {config.name: config for config in configs}
    for name, config in by_name.items():
        if pool.submit(config).result().refused:
            continue
        runner = bench.open(config, dependent=True)
        assert isinstance(runner, GpuRunner)
        if not runner.check():
            runner.screen_us(20.0)
            runners[name] = runner
    if not runners:
        return []
    times = bench.rounds(runners, ROUNDS)
    return [{"config": config_record(by_name[name]), "us": statistics.median(us)} for name, us in times.items()]


def main() -> None:
    """Measures until the budget is spent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=85.0, help="seconds")
    parser.add_argument("--count", type=int, default=32, help="new shapes drawn in each of both ways")
    parser.add_argument("--seed", type=int, default=9001)
    parser.add_argument("--most", type=int, default=11, help="configurations of a new shape")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    start = time.perf_counter()
    pairs = itertools.zip_longest(new_shapes(arguments.count, arguments.seed, arguments.most), never_measured(6))
    work = [one for pair in pairs for one in pair if one is not None]
    report: dict[str, Any] = {"device": device_info(), "seed": arguments.seed, "rows": []}
    with CompilePool() as pool:
        for _, configs in work:
            for config in configs:
                pool.submit(config, 1000)
        for place, (problem, configs) in enumerate(work):
            if time.perf_counter() - start > arguments.budget:
                print(f"no time left for {len(work) - place} shapes", flush=True)
                break
            row = {name: getattr(problem, name) for name in "mnk"}
            row["entries"] = run_shape(problem, configs, pool)
            report["rows"].append(row)
            if row["entries"]:
                first, best = row["entries"][0]["us"], min(entry["us"] for entry in row["entries"])
                print(f"{problem.m}x{problem.n}x{problem.k}: first {first:.2f} us, best {best:.2f}", flush=True)
            if place % 10 == 0:
                write_atomically(arguments.json, json.dumps(report))
    report["seconds"] = time.perf_counter() - start
    write_atomically(arguments.json, json.dumps(report))
    print(f"{sum(len(row['entries']) for row in report['rows'])} timings of {len(report['rows'])} shapes", flush=True)


if __name__ == "__main__":
    main()
