"""The Hopper GEMM beside cuBLASLt, on the chip: speed, rightness, cold starts, the host's time, hardware counters.

    python benchmarks/hopper_shapes.py shapes --json benchmarks/results/hopper_shapes.json
    python benchmarks/hopper_shapes.py random_shapes --tune 6 --json benchmarks/results/hopper_random_shapes.json

``shapes``: the shapes of shapes.json, ours untuned and tuned beside cuBLASLt's first choice and the best of its list
(and torch.mm, QuACK where installed). All multiply the same random normal buffers, larger together than twice the L2
cache, in CUDA graphs, in turns; ratios are medians over the turns with their 95 % interval. Every timed kernel's result
is compared with a float64 product. ``--sustained S`` lets the compute-bound ones also run alone for S seconds each.
``random_shapes``: the same for shapes drawn by ``--seed``, with ``--tune S`` seconds of tuning for each.
``pairs``: random (shape, configuration) pairs over everything valid, into poisoned outputs, with fresh random inputs;
deterministic ones must give the same bits twice.
``cold``: time from nothing to the first right result, with an empty cache and from it. ``host``: the host's time of a
call. ``ncu``: hardware counters of configurations, ``--set order=hilbert --set cublaslt`` and so on, by Nsight Compute.
``limits``: the same for the shapes of a file of results that stay below cuBLASLt, ours beside its best.

A run of the first two adds to its JSON file shape by shape and leaves out what is there (``--again`` measures it anew), so a run that is
stopped, or whose ``--budget`` of seconds is spent, goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = made.add_subparsers(dest="what", required=True)
    for name in ("shapes", "random_shapes"):
        mode = modes.add_parser(name)
        mode.add_argument("--json", type=Path, required=True, help="the file of results")
        mode.add_argument("--shapes", type=Path, default=Path(__file__).parent / "shapes.json", help="a file of shapes")
        mode.add_argument("--names", default="", help="only these shapes, with commas")
        mode.add_argument("--first", type=int, default=0, help="number of the first shape")
        mode.add_argument("--most", type=int, default=None, help="how many shapes")
        mode.add_argument("--budget", type=float, default=240.0, help="seconds after which no shape is begun")
        mode.add_argument("--mode", choices=("untuned", "tuned", "both"), default="both")
        mode.add_argument("--table", type=Path, action="append", default=[], help="a table of tuned configurations")
        mode.add_argument("--candidates", type=int, default=0, help="screen so many of the model's first choices too")
        mode.add_argument("--tune", type=float, default=0.0, help="tune each shape for so many seconds first")
        mode.add_argument("--rounds", type=int, default=15, help="turns whose ratios count")
        mode.add_argument("--algorithms", type=int, default=16, help="of cuBLASLt's list; 0 leaves it out")
        mode.add_argument("--sustained", type=float, default=0.0, help="seconds alone, for compute-bound shapes")
        mode.add_argument("--peers", default="torch", help="other programs, with commas: torch, quack, triton")
        mode.add_argument("--patience", type=float, default=90.0, help="seconds after which a shape is given up")
        mode.add_argument("--again", action="store_true", help="measure anew what is recorded")
        if name == "random_shapes":
            mode.add_argument("--count", type=int, default=30)
            mode.add_argument("--seed", type=int, default=0)
    pairs = modes.add_parser("pairs")
    pairs.add_argument("--json", type=Path, required=True, help="the file of results")
    pairs.add_argument("--count", type=int, default=2000)
    pairs.add_argument("--kernels", type=int, default=240, help="different kernels at most")
    pairs.add_argument("--seed", type=int, default=0)
    pairs.add_argument("--budget", type=float, default=300.0, help="seconds after which no pair is begun")
    pairs.add_argument("--configs", default="", help="only kernels whose names have this in them")
    modes.add_parser("pairs_worker")
    cold = modes.add_parser("cold")
    cold.add_argument("--json", type=Path, required=True, help="the file of results")
    cold.add_argument("--shape", default="4096,4096,4096")
    cold.add_argument("--repeats", type=int, default=3, help="new processes of each kind")
    modes.add_parser("first_result").add_argument("--shape", default="4096,4096,4096")
    host = modes.add_parser("host")
    host.add_argument("--json", type=Path, required=True, help="the file of results")
    host.add_argument("--size", type=int, default=128, help="m = n = k; small, so that the queue is never full")
    host.add_argument("--turns", type=int, default=40)
    for name in ("ncu", "launch_once"):
        ncu = modes.add_parser(name)
        ncu.add_argument("--shape", default="8192,8192,8192", help="m,n,k; for ncu several, with semicolons")
        ncu.add_argument("--set", action="append", default=[], help='parameters as tile_n=208,stages=4; or "cublaslt"')
        ncu.add_argument("--launches", type=int, default=2, help="of each; the last one counts")
        if name == "ncu":
            ncu.add_argument("--json", type=Path, required=True, help="the file of results")
    limits = modes.add_parser("limits")
    limits.add_argument("--of", type=Path, required=True, help="a file of results of shapes")
    limits.add_argument("--tuned", type=Path, default=None, help="a tuner's report, which says what was tried")
    limits.add_argument("--first", type=float, default=1.0, help="shapes below so much of cuBLASLt's first choice")
    limits.add_argument("--best", type=float, default=0.99, help="or of the best of its list")
    limits.add_argument("--launches", type=int, default=2)
    limits.add_argument("--json", type=Path, required=True, help="the file of results")
    return made


def main() -> int:
    """Runs a mode; 1 where a result was wrong, 2 where it cannot run."""
    arguments = parser().parse_args()
    if arguments.what == "first_result":
        # Before anything of the package is imported: that import is measured.
        from hopper_bench.cold_start import first_result

        m, n, k = (int(size) for size in arguments.shape.split(","))
        print(json.dumps(first_result((m, n, k))))
        return 0
    from stridewright.codegen.launch import gpu_available

    usable, reason = gpu_available("sm_90a")
    if not usable:
        print(f"error: no GPU to measure on: {reason}", file=sys.stderr)
        return 2
    from hopper_bench import counters, host, pairs, shapes

    if arguments.what == "pairs_worker":
        pairs.work()
        return 0
    if arguments.what in ("ncu", "launch_once"):
        arguments.set = arguments.set or [""]
    modes = {
        "pairs": pairs.run,
        "cold": host.cold,
        "host": host.host,
        "ncu": counters.run,
        "launch_once": counters.launch_once,
        "limits": counters.limits,
    }
    if arguments.what in modes:
        try:
            return int(modes[arguments.what](arguments) > 0)
        except FileNotFoundError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return int(shapes.run(arguments, shapes.chosen(arguments)) > 0)


if __name__ == "__main__":
    sys.exit(main())
