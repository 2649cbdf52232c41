"""How fast the layout algebra is, beside pycute and tensor-layouts, in one process.

    python benchmarks/algebra.py [--output benchmarks/results/algebra.json] [--rounds 15]

Every operation is timed in turn for each library, round after round, so that a slow moment of the machine hits all of them;
the figure is the median over the rounds, in microseconds of processor time (which other programs on the machine do not
lengthen), and claims are made on ratios only. Layouts are built inside the timed operation ("fresh", so that nothing cached
on a layout is reused) and once before ("built"); the ratio that counts is the larger. A peer that is not installed is left
out. Import times are of a new interpreter, in milliseconds of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.layout import Layout, Swizzle, complement, compose, logical_divide

A, B = ((8, 16, 4), (1, 64, 8)), ((4, 4, 8), (8, 1, 64))
C = ((2, (2, 2)), (16, (4, 1)))
D = ((128, 64), (64, 1))
POINTS = 65536
TILE = ((256, 256), (256, 1))

TARGETS = {
    "compose two 3-mode layouts": ("pycute", 0.55),
    "complement": ("pycute", 0.75),
    "logical_divide (128,64) by (32,16)": ("pycute", 0.6),
    "construct": ("tensor-layouts", 0.25),
    "evaluate 65,536 indices": ("pycute", 0.01),
    "evaluate 65,536 indices, swizzled": ("pycute", 0.01),
}


def _pycute() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    import pycute as p
    from pycute.swizzle import ComposedLayout
    from pycute.swizzle import Swizzle as PeerSwizzle

    a, b, c, d, t = (p.Layout(*x) for x in (A, B, C, D, TILE))
    swizzled = ComposedLayout(PeerSwizzle(3, 4, 3), 0, t)
    return {
        "compose two 3-mode layouts": (lambda: p.composition(p.Layout(*A), p.Layout(*B)), lambda: p.composition(a, b)),
        "complement": (lambda: p.complement(p.Layout(*C), 64), lambda: p.complement(c, 64)),
        "logical_divide (128,64) by (32,16)": (
            lambda: p.logical_divide(p.Layout(*D), (32, 16)),
            lambda: p.logical_divide(d, (32, 16)),
        ),
        "construct": (lambda: p.Layout(*D), lambda: p.Layout(*D)),
        "evaluate 65,536 indices": (lambda: [t(i) for i in range(POINTS)], lambda: [t(i) for i in range(POINTS)]),
        "evaluate 65,536 indices, swizzled": (
            lambda: [swizzled(i) for i in range(POINTS)],
            lambda: [swizzled(i) for i in range(POINTS)],
        ),
    }


def _tensor_layouts() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    import tensor_layouts as t

    a, b, c, d, tile = (t.Layout(*x) for x in (A, B, C, D, TILE))
    swizzled = t.compose(t.Swizzle(3, 4, 3), tile)
    return {
        "compose two 3-mode layouts": (lambda: t.compose(t.Layout(*A), t.Layout(*B)), lambda: t.compose(a, b)),
        "complement": (lambda: t.complement(t.Layout(*C), 64), lambda: t.complement(c, 64)),
        "logical_divide (128,64) by (32,16)": (
            lambda: t.logical_divide(t.Layout(*D), (32, 16)),
            lambda: t.logical_divide(d, (32, 16)),
        ),
        "construct": (lambda: t.Layout(*D), lambda: t.Layout(*D)),
        "evaluate 65,536 indices": (lambda: [tile(i) for i in range(POINTS)], lambda: [tile(i) for i in range(POINTS)]),
        "evaluate 65,536 indices, swizzled": (
            lambda: [swizzled(i) for i in range(POINTS)],
            lambda: [swizzled(i) for i in range(POINTS)],
        ),
    }


def _ours() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    a, b, c, d, t = (Layout(*x) for x in (A, B, C, D, TILE))
    swizzled = compose(Swizzle(3, 4, 3), t)
    indices = np.arange(POINTS)
    return {
        "compose two 3-mode layouts": (lambda: compose(Layout(*A), Layout(*B)), lambda: compose(a, b)),
        "complement": (lambda: complement(Layout(*C), 64), lambda: complement(c, 64)),
        "logical_divide (128,64) by (32,16)": (
            lambda: logical_divide(Layout(*D), (32, 16)),
            lambda: logical_divide(d, (32, 16)),
        ),
        "construct": (lambda: Layout(*D), lambda: Layout(*D)),
        "evaluate 65,536 indices": (lambda: t(indices), lambda: t(indices)),
        "evaluate 65,536 indices, swizzled": (lambda: swizzled(indices), lambda: swizzled(indices)),
    }


def _seconds(operation: Callable[[], Any], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        operation()
    return (time.process_time() - start) / repeats


def _import_ms(module: str, rounds: int) -> float:
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(rounds)
    ]
    return statistics.median(runs) * 1e3


def measure(rounds: int) -> dict[str, Any]:
    """The medians in microseconds, the ratios to the peers and whether each target is met."""
    libraries = {"stridewright": _ours()}
    for name, load in (("pycute", _pycute), ("tensor-layouts", _tensor_layouts)):
        try:
            libraries[name] = load()
        except ImportError:
            print(f"{name} is not installed: left out", file=sys.stderr)
    rows = {}
    for operation in TARGETS:
        times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in libraries}
        for _ in range(rounds):
            for name, library in libraries.items():
                slow = operation.startswith("evaluate") and name != "stridewright"
                for kind in (0, 1):
                    if slow and kind:
                        times[name][1].append(times[name][0][-1])
                    else:
                        times[name][kind].append(_seconds(library[operation][kind], 1 if slow else 300))
        medians = {name: tuple(statistics.median(kind) * 1e6 for kind in both) for name, both in times.items()}
        ours = medians["stridewright"]
        ratios = {
            name: max(ours[0] / both[0], ours[1] / both[1]) for name, both in medians.items() if name != "stridewright"
        }
        peer, limit = TARGETS[operation]
        rows[operation] = {
            "microseconds": {name: {"fresh": round(f, 3), "built": round(b, 3)} for name, (f, b) in medians.items()},
            "ratio": {name: round(ratio, 5) for name, ratio in ratios.items()},
            "target": {"peer": peer, "at_most": limit, "met": ratios[peer] <= limit if peer in ratios else None},
        }
    ms = _import_ms("stridewright.layout", 7)
    return {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "rounds": rounds,
        "operations": rows,
        "import_milliseconds": {"stridewright.layout": round(ms, 1), "target": {"at_most": 80, "met": ms <= 80}},
    }


def main() -> None:
    """Measures, prints a table and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "algebra.json")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    result = measure(arguments.rounds)
    for operation, row in result["operations"].items():
        mark = {True: "met", False: "MISSED", None: "not measured"}[row["target"]["met"]]
        times = "  ".join(f"{name} {t['fresh']:.2f}/{t['built']:.2f}" for name, t in row["microseconds"].items())
        ratios = "  ".join(f"{ratio:.4f} of {name}" for name, ratio in row["ratio"].items())
        print(f"{operation}: us fresh/built {times};  {ratios};  target {row['target']['at_most']} {mark}")
    print("import ms:", result["import_milliseconds"])
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
