"""Which configuration is the fastest alone, for as long as the power limit lets it: the compute-bound shapes of shapes.json.

    python benchmarks/sustain_hopper.py --budget 120 --json results/sustain_hopper.json --table table.json

In interleaved runs all kernels share a clock; alone, one that moves fewer bytes for each multiply keeps a higher one. So
each of a dozen tiles runs alone until power has settled, the best few again and longer, and these once more in interleaved
rounds with what the package's table holds. ``--table`` writes that table with, for each shape, the configuration that is
fastest alone among those that lose at most ``--give`` in the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from device_info import device_info

from stridewright.codegen.compile_pool import CompilePool
from stridewright.codegen.measure import measure_alone
from stridewright.codegen.select import resident_ctas
from stridewright.codegen.space import tile_counts, with_most_stages
from stridewright.codegen.tune_bench import GpuBench, GpuRunner
from stridewright.codegen.tuned import TableEntry, shipped_tables, write_table
from stridewright.codegen.tuned.store import write_atomically
from stridewright.kernels.config import GemmConfig, Problem

COMPUTE_BOUND = 450.0
"""10^12 operations a second from which a shape counts as compute-bound."""
KINDS: list[tuple[dict[str, Any], range]] = [
    ({"schedule_kind": "pingpong", "tile_m": 128}, range(112, 209, 8)),
    ({"schedule_kind": "pingpong", "tile_m": 192}, range(96, 137, 8)),
    ({"schedule_kind": "pingpong", "tile_m": 256}, range(80, 105, 8)),
    ({"tile_m": 128}, range(192, 257, 8)),
    ({"tile_m": 256}, range(128, 209, 8)),
    ({"tile_m": 192, "consumers": 3}, range(128, 193, 8)),
]
CLUSTERS = ((1, 1), (2, 1), (1, 2))
_EACH = 2
_FINALISTS = 4


def cost(config: GemmConfig) -> float:
    """What ranks tiles of one kind: turns times the area of a tile, and the bytes that come through L2 for it."""
    tile, cluster = config.tile, config.cluster
    rows, columns, _ = tile_counts(config)
    turns = -(-rows * columns // resident_ctas(cluster.m * cluster.n))
    return turns * tile.m * tile.n * (1 + 12 / (tile.m * cluster.m) + 12 / (tile.n * cluster.n))


def candidates(problem: Problem) -> Iterator[GemmConfig]:
    """The best tiles of each kind."""
    base = GemmConfig(problem=problem)
    for changes, widths in KINDS:
        found = []
        for width in widths:
            for cluster_m, cluster_n in CLUSTERS:
                one = base.replace(**changes, tile_n=width, cluster_m=cluster_m, cluster_n=cluster_n)
                config = with_most_stages(one)
                if not config.violations():
                    found.append(config)
        yield from sorted(found, key=cost)[:_EACH]


def run_shape(problem: Problem, known: TableEntry | None, pool: CompilePool) -> dict[str, Any]:
    """The candidates of one shape, alone and in rounds."""
    listed = dict.fromkeys(candidates(problem), True)
    if known is not None:
        listed.setdefault(known.config, known.dependent)
    bench = GpuBench(problem)
    rows: dict[str, dict[str, Any]] = {}
    runners: dict[str, GpuRunner] = {}
    for config, dependent in listed.items():
        name = config.name
        compiled = pool.submit(config).result()
        if compiled.refused:
            rows[name] = {"config": name, "refused": compiled.refused[:200]}
            continue
        runner = bench.open(config, dependent)
        assert isinstance(runner, GpuRunner)
        complaint = runner.check()
        if complaint:
            rows[name] = {"config": name, "wrong": complaint}
            continue
        alone = measure_alone(runner.final_loop(), seconds=0.2, warm=0.2)
        rows[name] = {"config": name, "dependent": dependent, "first_us": alone.us}
        runners[name] = runner
    ranked = sorted(runners, key=lambda name: rows[name]["first_us"])
    chosen = ranked[:_FINALISTS]
    if known is not None and known.config.name in runners and known.config.name not in chosen:
        chosen.append(known.config.name)
    for name in chosen:
        alone = measure_alone(runners[name].final_loop(), seconds=0.4, warm=0.4)
        rows[name] |= {"alone_us": alone.us, "clock_mhz": alone.clock_mhz, "watts": alone.watts}
    times = bench.rounds({name: runners[name] for name in chosen}, 12)
    for name in chosen:
        rows[name]["round_us"] = statistics.median(times[name])
    by_name = {config.name: config for config in listed}
    return {"rows": list(rows.values()), "chosen": chosen, "configs": by_name}


def pick(result: dict[str, Any], give: float) -> tuple[str, dict[str, Any]] | None:
    """The fastest alone among those that lose at most ``give`` in the rounds."""
    rows = [row for row in result["rows"] if "alone_us" in row]
    if not rows:
        return None
    least = min(row["round_us"] for row in rows)
    close = [row for row in rows if row["round_us"] <= (1 + give) * least]
    best = min(close, key=lambda row: row["alone_us"])
    return best["config"], best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for all shapes together")
    parser.add_argument("--give", type=float, default=0.01, help="what may be lost in the rounds, as a share")
    parser.add_argument("--only", default="", help="names of shapes, separated by commas")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    arguments = parser.parse_args()
    start = time.perf_counter()
    table = shipped_tables()[0]
    entries = dict(table.entries)
    listed = json.loads((Path(__file__).parent / "shapes.json").read_text(encoding="utf-8"))["shapes"]
    shapes = []
    for shape in listed:
        problem = Problem(m=shape["m"], n=shape["n"], k=shape["k"])
        entry = entries.get(problem)
        flops = 0.0 if entry is None or not entry.us else 2e-6 * shape["m"] * shape["n"] * shape["k"] / entry.us
        wanted = shape["name"] in arguments.only.split(",") if arguments.only else flops > COMPUTE_BOUND
        if wanted and shape["m"] >= 512:
            shapes.append((shape["name"], problem, entry))
    report: dict[str, Any] = {"device": device_info(), "give": arguments.give, "shapes": []}
    with CompilePool() as pool:
        for _, problem, _ in shapes:
            for config in candidates(problem):
                pool.submit(config, 1000)
        for name, problem, entry in shapes:
            if time.perf_counter() - start > arguments.budget:
                print(f"no time left before {name}", flush=True)
                break
            result = run_shape(problem, entry, pool)
            picked = pick(result, arguments.give)
            report["shapes"].append({"name": name, "rows": result["rows"], "picked": picked and picked[0]})
            if picked is not None:
                row = picked[1]
                entries[problem] = TableEntry(result["configs"][picked[0]], row["dependent"], row["round_us"])
                before = next((one for one in result["rows"] if entry and one["config"] == entry.config.name), {})
                gain = before.get("alone_us", row["alone_us"]) / row["alone_us"]
                loss = before.get("round_us", row["round_us"]) / row["round_us"]
                print(
                    f"{name:20} alone {row['alone_us']:9.2f} us x{gain:.3f}, in rounds x{loss:.3f}, {row['clock_mhz']} MHz  "
                    f"{picked[0]}  (table: {entry.config.name if entry else 'none'})",
                    flush=True,
                )
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(arguments.json, json.dumps(report, indent=1) + "\n")
            write_table(arguments.table, table.device, table.driver, table.arch, table.sms, entries.items())
    print(f"{len(report['shapes'])} shapes in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
