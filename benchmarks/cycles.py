"""The cycle model (codegen/cycles.py) held against Hopper's measured times, and what it says of the Blackwell ladder.

    python benchmarks/cycles.py [-o benchmarks/results/cycles.json]

Needs no GPU. The measured times are those of benchmarks/results/ladder_hopper.json and selection_timings.json (an H200); of Blackwell
there are none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.codegen.cycles import B200, H200, walk
from stridewright.codegen.cycles_kernels import work_of, work_of_rung
from stridewright.codegen.cycles_report import ladder_cycles, modelled_cycles, sensitivity
from stridewright.kernels.blackwell_ladder import rungs
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.ladder import RUNGS

RESULTS = Path(__file__).parent / "results"
APART = 1.05
"""Times that differ by less are not counted as ordered."""


def agreement(modelled: Sequence[float], measured: Sequence[float]) -> dict[str, Any]:
    """Spearman's rank correlation, and of the pairs that are apart how many the model orders as measured."""
    ranks = [np.argsort(np.argsort(values)) for values in (modelled, measured)]
    pairs = [(i, j) for i, slow in enumerate(measured) for j, fast in enumerate(measured) if slow > APART * fast]
    best = min(range(len(modelled)), key=modelled.__getitem__)
    return {
        "kernels": len(measured),
        "spread": max(measured) / min(measured),
        "rank_correlation": float(np.corrcoef(*ranks)[0, 1]),
        "pairs_apart": len(pairs),
        "of_them_in_order": sum(modelled[i] > modelled[j] for i, j in pairs),
        "chosen_over_best": measured[best] / min(measured),
    }


def hopper_ladder() -> list[dict[str, Any]]:
    """Each size of the measured ladder, the rungs that multiply by wgmma."""
    found = []
    for run in json.loads((RESULTS / "ladder_hopper.json").read_text())["speed"]:
        rows = {row["number"]: row["us"] for row in run["rows"]}
        specs = [spec for spec in RUNGS if spec.multiply == "wgmma" and spec.file and spec.number in rows]
        walks = [walk(work_of_rung(spec, run["m"], run["n"], run["k"]), H200) for spec in specs]
        measured = [rows[spec.number] for spec in specs]
        found.append(
            {
                "size": run["m"],
                **agreement([one.clocks for one in walks], measured),
                "rungs": [
                    {"number": spec.number, "measured_us": us, "modelled_clocks": one.clocks, "steady": one.steady}
                    for spec, one, us in zip(specs, walks, measured, strict=True)
                ],
            }
        )
    return found


def hopper_tiles() -> dict[str, Any]:
    """The configurations of the selection's measurements that do not divide K, shape by shape."""
    record = json.loads((RESULTS / "selection_timings.json").read_text())
    shapes = []
    for entry in record["shapes"]:
        modelled, measured = [], []
        for row, us in zip(entry["features"], entry["us"], strict=True):
            x = dict(zip(record["features"], map(int, row), strict=True))
            if x["parts"] != 1:
                continue
            m, n = (x["columns"], x["rows"]) if x["swapped"] else (x["rows"], x["columns"])
            config = GemmConfig(problem=Problem(m=m, n=n, k=x["k"])).replace(
                **{
                    name: x[name]
                    for name in ("tile_m", "tile_n", "tile_k", "stages", "consumers", "cluster_m", "cluster_n")
                },
                schedule_kind="pingpong" if x["pingpong"] else "cooperative",
                swap=bool(x["swapped"]),
                store="direct" if x["direct"] else "tma",
                group_m=x["group"],
            )
            modelled.append(walk(work_of(config, H200), H200).clocks)
            measured.append(us)
        if len(measured) >= 8:
            shapes.append({"shape": entry["shape"], **agreement(modelled, measured)})
    apart, ordered = (sum(one[name] for one in shapes) for name in ("pairs_apart", "of_them_in_order"))
    return {
        "shapes": len(shapes),
        "kernels": sum(one["kernels"] for one in shapes),
        "median_rank_correlation": float(np.median([one["rank_correlation"] for one in shapes])),
        "pairs_apart_in_order": ordered / apart,
        "median_chosen_over_best": float(np.median([one["chosen_over_best"] for one in shapes])),
        "by_shape": shapes,
    }


def blackwell() -> dict[str, Any]:
    """The modelled ladder at 8192 cubed, and how the best rung's steady share depends on each constant."""
    best = rungs()[-1].config
    best = best.replace(problem=dataclasses.replace(best.problem, m=8192, n=8192, k=8192))
    return {
        "what": "a model: nothing of it was run on a Blackwell",
        "constants": dataclasses.asdict(B200),
        "ladder": [
            {"number": rung.number, "title": rung.title, **verdict.record()}
            for rung, verdict in ladder_cycles(8192, 8192, 8192)
        ],
        "best": modelled_cycles(best).record(),
        "sensitivity": {
            name: {str(factor): verdict.steady for factor, verdict in row.items()}
            for name, row in sensitivity(best).items()
        },
    }


def main() -> None:
    """Writes the record and prints its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "cycles.json")
    arguments = parser.parse_args()
    record = {"hopper_ladder": hopper_ladder(), "hopper_tiles": hopper_tiles(), "blackwell": blackwell()}
    arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for one in record["hopper_ladder"]:
        print(
            f"Hopper's ladder at {one['size']}: rank correlation {one['rank_correlation']:.2f}, {one['of_them_in_order']} of {one['pairs_apart']} pairs in order"
        )
    tiles = record["hopper_tiles"]
    print(
        f"{tiles['kernels']} configurations of {tiles['shapes']} shapes: median rank correlation {tiles['median_rank_correlation']:.2f}, "
        f"{tiles['pairs_apart_in_order']:.0%} of the pairs in order, chosen over best {tiles['median_chosen_over_best']:.3f}"
    )
    for one in record["blackwell"]["ladder"]:
        print(f"Blackwell rung {one['number']}: steady {one['steady']:.1%}, use {one['use']:.1%}")


if __name__ == "__main__":
    main()
