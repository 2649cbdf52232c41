"""Which configuration is the fastest alone, for as long as the power limit lets it: the compute-bound shapes of shapes.json.

    python benchmarks/sustain_hopper.py --budget 120 --json results/sustain_hopper.json --table table.json

In interleaved runs all kernels share a clock; alone, one that moves fewer bytes for each multiply keeps a higher one. So
each of a dozen tiles runs alone at the power limit, the fastest few again and longer, with those in other orders of
tiles, and once more in interleaved rounds with what the package's table holds for bursts. ``--table`` gets the fastest
alone of each shape, for ``load="sustained"``; ``--known`` takes the tiles from an earlier report instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from device_info import device_info

from stridewright.codegen.compile_pool import CompilePool
from stridewright.codegen.measure import measure_alone_in_turns
from stridewright.codegen.tune_bench import GpuBench, GpuRunner
from stridewright.codegen.tune_plan import sustained_points
from stridewright.codegen.tuned import TableEntry, config_record, read_config, shipped_tables, write_table
from stridewright.codegen.tuned.store import write_atomically
from stridewright.kernels.config import GemmConfig, Problem

COMPUTE_BOUND = 450.0
"""10^12 operations a second from which a shape counts as compute-bound."""
FINALISTS = 4
ORDERS: tuple[dict[str, Any], ...] = (
    {"order": "hilbert"},
    {"order": "grouped", "group_m": 4},
    {"order": "grouped", "group_m": 16},
    {"order": "grouped", "group_m": 32},
    {"order": "serpentine", "group_m": 8},
    {"launch": "placed"},
    {"launch": "placed", "group_m": 16},
    {"launch": "placed", "order": "nested", "group_m": 8},
    {"launch": "placed", "order": "nested", "group_m": 16},
    {"hint_a": "last", "hint_b": "first"},
)
"""What decides how often operands come from memory, and how long they stay in L2."""


def candidates(problem: Problem, known: list[GemmConfig], wide: bool = False) -> list[GemmConfig]:
    """The tiles to try: the fastest of an earlier report with their variants in other orders, or (``wide``: and) those that move least."""
    listed = dict.fromkeys(known[:4] if wide else known[:5])
    if not known or wide:
        listed.update(dict.fromkeys(sustained_points(problem)))
    for config in known[: 0 if wide else 2]:
        listed.update(dict.fromkeys(config.replace(**order) for order in ORDERS))
    return [config for config in listed if not config.violations()]


def run_shape(
    problem: Problem, listed: list[GemmConfig], entry: TableEntry | None, pool: CompilePool
) -> dict[str, Any]:
    """The candidates of one shape, alone and in rounds; ``entry`` is what the table holds for bursts."""
    bench = GpuBench(problem)
    rows: dict[str, dict[str, Any]] = {}
    runners: dict[str, GpuRunner] = {}
    for config in dict.fromkeys([*listed, *([entry.config] if entry else [])]):
        name = config.name
        compiled = pool.submit(config).result()
        if compiled.refused:
            rows[name] = {"config": name, "refused": compiled.refused[:200]}
            continue
        runner = bench.open(config, dependent=True)
        assert isinstance(runner, GpuRunner)
        complaint = runner.check()
        if complaint:
            rows[name] = {"config": name, "wrong": complaint}
            continue
        rows[name] = {"config": name, "parameters": config_record(config, whole=False)}
        runners[name] = runner
    loops = {name: runner.final_loop() for name, runner in runners.items()}
    for name, first in measure_alone_in_turns(loops, seconds=0.3, warm=0.1).items():
        rows[name]["first_us"] = first.us
    chosen = sorted(runners, key=lambda name: rows[name]["first_us"])[:FINALISTS]
    if entry is not None and entry.config.name in runners and entry.config.name not in chosen:
        chosen.append(entry.config.name)
    for name, alone in measure_alone_in_turns({name: loops[name] for name in chosen}, seconds=0.8, warm=0.2).items():
        rows[name] |= {"alone_us": alone.us, "clock_mhz": alone.clock_mhz, "watts": alone.watts}
    times = bench.rounds({name: runners[name] for name in chosen}, 8)
    for name in chosen:
        rows[name]["round_us"] = statistics.median(times[name])
    return {"rows": list(rows.values())}


def known_configs(path: Path | None) -> dict[str, list[GemmConfig]]:
    """By shape, the configurations of an earlier report, the fastest alone first."""
    if path is None:
        return {}
    found = {}
    for shape in json.loads(path.read_text(encoding="utf-8"))["shapes"]:
        rows = [row for row in shape["rows"] if "parameters" in row]
        rows.sort(key=lambda row: row.get("alone_us", 1.01 * row["first_us"]))
        problem = Problem(**{name: shape[name] for name in "mnk"})
        found[shape["name"]] = [read_config(row["parameters"], problem) for row in rows]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for all shapes together")
    parser.add_argument("--only", default="", help="names of shapes, separated by commas")
    parser.add_argument("--known", type=Path, default=None, help="an earlier report whose tiles are taken")
    parser.add_argument("--wide", action="store_true", help="the tiles of --known and those tried without it")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    arguments = parser.parse_args()
    start = time.perf_counter()
    table = shipped_tables()[0]
    known = known_configs(arguments.known)
    listed = json.loads((Path(__file__).parent / "shapes.json").read_text(encoding="utf-8"))["shapes"]
    shapes = []
    for shape in listed:
        problem = Problem(m=shape["m"], n=shape["n"], k=shape["k"])
        entry = table.entries.get(problem)
        flops = 0.0 if entry is None or not entry.us else 2e-6 * shape["m"] * shape["n"] * shape["k"] / entry.us
        wanted = shape["name"] in arguments.only.split(",") if arguments.only else flops > COMPUTE_BOUND
        if wanted and shape["m"] >= 256:
            shapes.append(
                (shape["name"], problem, entry, candidates(problem, known.get(shape["name"], []), arguments.wide))
            )
    report: dict[str, Any] = {"device": device_info(), "shapes": []}
    entries: dict[Problem, TableEntry] = {}
    with CompilePool() as pool:
        for _, _, _, configs in shapes:
            for config in configs:
                pool.submit(config, 1000)
        for name, problem, entry, configs in shapes:
            if time.perf_counter() - start > arguments.budget:
                print(f"no time left before {name}", flush=True)
                break
            result = run_shape(problem, configs, entry, pool)
            sizes = {size: getattr(problem, size) for size in "mnk"}
            rows = [row for row in result["rows"] if "alone_us" in row]
            if rows:
                best = min(rows, key=lambda row: row["alone_us"])
                report["shapes"].append({"name": name, **sizes, "picked": best["config"], **result})
                entries[problem] = TableEntry(read_config(best["parameters"], problem), True, best["alone_us"])
                before = next((one for one in rows if entry and one["config"] == entry.config.name), best)
                print(
                    f"{name:20} alone {best['alone_us']:9.2f} us x{before['alone_us'] / best['alone_us']:.3f}, in rounds "
                    f"x{before['round_us'] / best['round_us']:.3f}, {best['clock_mhz']} MHz  {best['config']}  "
                    f"(for bursts: {before['config']})",
                    flush=True,
                )
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(arguments.json, json.dumps(report, indent=1) + "\n")
            note = "Each alone until power had settled (benchmarks/sustain_hopper.py)."
            write_table(
                arguments.table, table.device, table.driver, table.arch, table.sms, entries.items(), note, "sustained"
            )
    print(f"{len(report['shapes'])} shapes in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
