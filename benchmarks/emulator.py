"""How fast the emulator is: host seconds of a GEMM's PTX, with and without the race check, compiling and parsing apart.

    OPENBLAS_NUM_THREADS=1 python benchmarks/emulator.py --json results/emulator.json

Needs no GPU. Wall time, the least and the median of the rounds, and processor time, which a busy machine does not
change; one BLAS thread is asked for before numpy is loaded.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ml_dtypes
import numpy as np

from stridewright import Gemm
from stridewright.codegen import nvrtc
from stridewright.codegen.emulator import emulate_ptx
from stridewright.codegen.emulator.translate import program_of
from stridewright.codegen.source import KERNEL_NAME
from stridewright.kernels.config import GemmConfig

CASES = [
    (256, None),
    (256, GemmConfig().replace(tile_n=128, stages=4)),
    (1024, None),
    (1024, GemmConfig()),
    (1024, GemmConfig().replace(schedule_kind="pingpong", tile_n=128, stages=6)),
]


def measure(size: int, config: GemmConfig | None, rounds: int) -> dict[str, Any]:
    """Seconds of one case."""
    gemm = Gemm(size, size, size, config=config)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), dtype=np.float32).astype(ml_dtypes.bfloat16) for _ in range(2))
    ptx = gemm.ptx
    program_of.cache_clear()
    start = time.perf_counter()
    program_of(ptx, KERNEL_NAME)
    row: dict[str, Any] = {"size": size, "config": gemm.config.name, "parse_and_translate": time.perf_counter() - start}
    cluster = (gemm.config.cluster.m * gemm.config.cluster.n, 1, 1)
    for races in (False, True):
        wall, processor = [], []
        for _ in range(rounds):
            d = np.full((size, size), np.nan, dtype=ml_dtypes.bfloat16)
            begin, used = time.perf_counter(), time.process_time()
            emulate_ptx(
                ptx,
                KERNEL_NAME,
                gemm.grid(),
                (gemm.config.threads, 1, 1),
                gemm.emulator_arguments(a, b, d),
                cluster=cluster,
                shared=gemm.derivation.shared_bytes,
                check_races=races,
            )
            wall.append(time.perf_counter() - begin)
            processor.append(time.process_time() - used)
            if np.isnan(d).any():
                raise AssertionError("the emulated kernel left elements of D unwritten")
        row["with races" if races else "without races"] = {
            "least": min(wall),
            "median": statistics.median(wall),
            "processor": statistics.median(processor),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    rows = []
    for size, config in CASES:
        row = measure(size, config, arguments.rounds)
        rows.append(row)
        times = ", ".join(f"{name} {row[name]['median']:.3f} s" for name in ("without races", "with races"))
        print(f"{size}^3 {row['config']}: translate {row['parse_and_translate']:.3f} s, {times}")
    report = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "nvrtc": ".".join(map(str, nvrtc.library().version)),
        "cpus": os.cpu_count(),
        "blas_threads": os.environ["OPENBLAS_NUM_THREADS"],
        "rows": rows,
    }
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
