"""The Hopper ladder on the chip: every rung beside cuBLASLt's first choice, its counters, and its memory discipline.

    python benchmarks/ladder_hopper.py speed --json benchmarks/results/ladder_hopper.json
    python benchmarks/ladder_hopper.py counters --json benchmarks/results/ladder_hopper.json
    python benchmarks/ladder_hopper.py sanitize --json benchmarks/results/ladder_hopper.json
    python benchmarks/ladder_hopper.py choices --json benchmarks/results/ladder_hopper.json
    python benchmarks/ladder_hopper.py once 4096 4096 4096

``speed`` times each rung and cuBLASLt in turn at each size (square), checks every timed kernel against float64, and records device, driver,
clocks and power. ``counters`` runs ``once`` under Nsight Compute and records, for each rung, how busy the tensor cores were and
how much L2 served. ``sanitize`` runs ``once`` under compute-sanitizer's memcheck, initcheck and synccheck on ragged shapes.
``choices`` times rungs beside themselves with one choice undone that no rung stands for. ``once`` launches each rung once, into an output poisoned with NaN, checks it, and exits with 1 if one is wrong. Each mode adds its
part to the file and leaves the others'.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from stridewright.codegen.ladder import Rung, rungs

RAGGED = ((257, 264, 200), (130, 515, 72), (1, 8, 8), (384, 777, 520))
TOOLS = ("memcheck", "initcheck", "synccheck")
PAIRS = ("if (!in_chunks) {", "if (true) {")
CHOICES = (
    ("3", "results in pairs of columns, not in chunks of eight", PAIRS),
    ("4", "results in pairs of columns, not in chunks of eight", PAIRS),
    ("6", "groups of 8 rows of tiles, not 16", ("GROUP_M = 16;", "GROUP_M = 8;")),
    ("7", "groups of 8 rows of tiles, not 16", ("GROUP_M = 16;", "GROUP_M = 8;")),
    ("8", "groups of 8 rows of tiles, not 16", ("GROUP_M = 8;", "GROUP_M = 4;")),
    ("9b", "results in pairs of columns, not in chunks of eight", PAIRS),
    ("10", "groups of 8 rows of tiles, not 16", ("GROUP_M = 8;", "GROUP_M = 4;")),
    ("10", "groups of 32 rows of tiles, not 16", ("GROUP_M = 8;", "GROUP_M = 16;")),
)
"""Rung, a choice that it shares with others, and the edit of its source that undoes it."""


def chosen(sizes: tuple[int, int, int], numbers: list[str] | None) -> list[Rung]:
    """The rungs of these numbers, or all."""
    return [rung for rung in rungs(*sizes) if not numbers or rung.number in numbers]


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """Every rung beside cuBLASLt at each size."""
    from hopper_bench.results import device_record

    from stridewright.codegen.ladder_measure import RungResult, measure_ladder

    def report(row: RungResult) -> None:
        verdict = "right" if row.right else "WRONG"
        print(
            f"  {row.number:>2}  {row.title:<26}{row.tflops:7.1f} TFLOP/s  {row.ratio:.3f} ({row.low:.3f} to {row.high:.3f})  {verdict}",
            flush=True,
        )

    found = []
    for size in args.sizes:
        print(f"{size} cubed", flush=True)
        result = measure_ladder(chosen((size, size, size), args.rungs), args.pairs, report)
        print(f"  cuBLASLt {result.reference_tflops:.1f} TFLOP/s ({result.reference})", flush=True)
        found.append(dataclasses.asdict(result))
    return {"device": device_record(), "speed": found}


def choices(args: argparse.Namespace) -> dict[str, Any]:
    """Rungs in pairs with themselves, one choice undone: the time without it over the time with it."""
    from hopper_bench.results import device_record

    from stridewright.codegen.build import build
    from stridewright.codegen.ladder_measure import rung_launches
    from stridewright.codegen.measure import GraphLoop, check_launch, measure_pairs, rotation

    rows = []
    for size in args.sizes:
        buffers = rotation(size, size, size)
        for number, what, (old, new) in CHOICES:
            (rung,) = chosen((size, size, size), [number])
            (other,) = chosen((size, size, size), [number])
            if old not in rung.source:
                raise ValueError(f"rung {number}: {old!r} is not in its source, so {what!r} cannot be undone")
            other.__dict__["build"] = build(rung.source.replace(old, new), strict=False)
            launches = rung_launches(other, buffers)
            right = check_launch(launches[0], buffers[0]).passed
            timed = measure_pairs(GraphLoop(rung_launches(rung, buffers)), GraphLoop(launches), args.pairs)
            row = {"size": size, "number": number, "without": what, "right": right, **dataclasses.asdict(timed)}
            rows.append(row)
            print(
                f"  {size} rung {number:>2} {timed.ratio:.3f} ({timed.low:.3f} to {timed.high:.3f}) {what}", flush=True
            )
    return {"choices": {"device": device_record(), "rows": rows}}


def once(args: argparse.Namespace) -> int:
    """Launches each rung once and checks it; with ``--cublas`` cuBLASLt's first choice before them."""
    import cupy

    from stridewright.codegen.gpu_values import check_on_gpu, poison, random_buffers

    m, n, k = args.shape
    buffers = random_buffers(m, n, k)
    launches: list[tuple[str, Any]] = []
    if args.cublas:
        from stridewright.codegen.cublaslt import CublasLtGemm, heuristics

        reference = CublasLtGemm(m, n, k, heuristics(m, n, k, most=1)[0])
        launches.append(("cuBLASLt", lambda: reference.launch(buffers.a, buffers.b, buffers.d)))
    for rung in chosen((m, n, k), args.rungs):
        bound = rung.bind(buffers.a, buffers.b, buffers.d)
        launches.append((rung.number, bound.launch))
    wrong = []
    for name, launch in launches:
        poison(buffers.d)
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.start()  # what Nsight Compute looks at
        launch()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.stop()
        check = check_on_gpu(buffers)
        print(f"{name}: {'right' if check.passed else 'WRONG: ' + check.worst}", flush=True)
        if not check.passed:
            wrong.append(name)
    return 1 if wrong else 0


def counters(args: argparse.Namespace) -> dict[str, Any]:
    """Nsight Compute's counters of each rung and of cuBLASLt, of the one launch that ``once`` makes of each."""
    from hopper_bench.counters import ALWAYS, TENSOR, available, figures, parse

    ncu = tool("ncu")
    query = subprocess.run([ncu, "--query-metrics"], check=False, capture_output=True, text=True).stdout
    metrics = available([*TENSOR, *ALWAYS.values()], query)
    found = []
    for size in args.sizes:
        # The chip's clocks are left as they are, and units are not scaled.
        command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
        command += ["--profile-from-start", "off", "--metrics", ",".join(metrics)]
        command += [sys.executable, __file__, "once", *[str(size)] * 3, "--cublas"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"ncu ended with {run.returncode}:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")
        rows = [figures(kernel) for kernel in parse(run.stdout)]
        # cuBLASLt comes first, and may take more than one kernel.
        numbers = ["cuBLASLt"] * (len(rows) - len(rungs())) + [rung.number for rung in rungs()]
        found.append({"size": size, "rows": [{"number": n, **row} for n, row in zip(numbers, rows, strict=True)]})
        for row in found[-1]["rows"]:
            print(f"  {size}  {row}", flush=True)
    return {"counters": found}


def sanitize(args: argparse.Namespace) -> dict[str, Any]:
    """compute-sanitizer's verdicts on every rung."""
    program = tool("compute-sanitizer")
    rows = []
    for shape in RAGGED:
        for checker in TOOLS:
            command = [program, "--tool", checker, "--error-exitcode", "99", sys.executable, __file__, "once"]
            run = subprocess.run([*command, *map(str, shape)], capture_output=True, text=True)
            summary = [line for line in run.stdout.splitlines() if "ERROR SUMMARY" in line]
            clean = run.returncode == 0 and any("0 errors" in line for line in summary)
            print(f"{checker} {shape}: {'clean' if clean else 'NOT CLEAN'} {summary}", flush=True)
            if not clean:
                print(run.stdout[-3000:], run.stderr[-2000:], flush=True)
            rows.append({"tool": checker, "shape": shape, "clean": clean, "status": run.returncode})
    return {"sanitize": rows}


def tool(name: str) -> str:
    """Where a program of the CUDA toolkit lies; ends the program, naming it, where it is not installed."""
    for place in (name, f"/usr/local/cuda/bin/{name}"):
        found = shutil.which(place)
        if found:
            return found
    sys.exit(f"{name} is not installed; it comes with the CUDA toolkit")


def main() -> None:
    """Run one mode and add its part to the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    for name, sizes in (
        ("speed", [2048, 4096, 8192]),
        ("counters", [4096]),
        ("choices", [4096, 8192]),
        ("sanitize", []),
    ):
        mode = modes.add_parser(name)
        mode.add_argument("--json", type=Path)
        mode.add_argument("--sizes", type=int, nargs="+", default=sizes)
        mode.add_argument("--rungs", nargs="+")
        mode.add_argument("--pairs", type=int, default=15)
    mode = modes.add_parser("once")
    mode.add_argument("shape", type=int, nargs=3)
    mode.add_argument("--rungs", nargs="+")
    mode.add_argument("--cublas", action="store_true")
    args = parser.parse_args()
    if args.mode == "once":
        sys.exit(once(args))
    made = {"speed": speed, "counters": counters, "choices": choices, "sanitize": sanitize}[args.mode](args)
    if args.json is not None:
        kept = json.loads(args.json.read_text(encoding="utf-8")) if args.json.exists() else {}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({**kept, **made}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
