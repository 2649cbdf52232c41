"""The Hopper GEMM on the chip: is it right for every shape, and how fast beside cuBLAS.

    python benchmarks/gemm_hopper.py check --json results/gemm_hopper_check.json
    python benchmarks/gemm_hopper.py speed --json results/gemm_hopper_speed.json

``check`` runs every shape with random normal inputs and with small integers (which must come out bit for bit), into
outputs poisoned with NaN, compares with a float64 product, and records a SHA-256 of each result, so that the
emulator's can be compared without a GPU. ``speed`` times this kernel and cuBLAS (torch.mm) in turn: each pair is one
replay of a CUDA graph of each, over operands that together exceed the L2 cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stridewright import Gemm
from stridewright.codegen.check import check_gemm
from stridewright.kernels.config import GemmConfig

SHAPES = [
    (1, 8, 8),
    (64, 64, 64),
    (128, 128, 64),
    (130, 136, 72),
    (257, 129, 512),
    (333, 777, 1504),
    (1000, 1000, 1000),
    (1024, 1024, 1024),
    (4096, 64, 64),
    (512, 512, 256),
    (127, 255, 1032),
    (2048, 1032, 320),
]
SPEED_SHAPES = [(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)]
L2_BYTES = 60 * 2**20


def operands(m: int, n: int, k: int, kind: str, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A (m, k) and B (n, k) in bfloat16: ``normal``, or ``integers`` from -4 to 4, whose products stay exact in float32."""
    import ml_dtypes

    random = np.random.default_rng(seed)
    if kind == "integers":
        draw = [random.integers(-4, 5, size=(rows, k)) for rows in (m, n)]
    else:
        draw = [random.standard_normal((rows, k), dtype=np.float32) for rows in (m, n)]
    a, b = (array.astype(ml_dtypes.bfloat16) for array in draw)
    return a, b


def cases() -> Iterator[tuple[str, tuple[int, int, int], GemmConfig | None]]:
    """(name, shape, configuration or None for the chosen one)."""
    for shape in SHAPES:
        yield "x".join(map(str, shape)), shape, None
    for stages in range(2, 9):
        for k_tiles in range(1, 2 * stages + 2):
            config = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1, stages=stages)
            yield f"stages{stages}-ktiles{k_tiles}", (192, 128, 64 * k_tiles), config
    for tile_m, tile_n, consumers in (
        (64, 8, 1),
        (64, 256, 1),
        (128, 24, 2),
        (128, 136, 1),
        (128, 200, 2),
        (128, 256, 2),
        (256, 128, 2),
        (256, 128, 2),
        (256, 72, 1),
    ):
        for store, n in (("tma", 520), ("direct", 517)):
            config = GemmConfig().replace(tile_m=tile_m, tile_n=tile_n, consumers=consumers, stages=2, store=store)
            yield f"tile{tile_m}x{tile_n}-{consumers}-{store}", (531, n, 456), config


def run_checks() -> list[dict[str, Any]]:
    import cupy
    import ml_dtypes

    rows = []
    for name, (m, n, k), config in cases():
        gemm = Gemm(m, n, k, config=config)
        for kind in ("normal", "integers"):
            a, b = operands(m, n, k, kind, seed=m + 7 * n + 13 * k)
            out = cupy.asarray(np.full((m, n), np.nan, dtype=ml_dtypes.bfloat16))
            gemm(cupy.asarray(a), cupy.asarray(b), out=out)
            cupy.cuda.Device().synchronize()
            d = cupy.asnumpy(out)
            check = check_gemm(d, a, b)
            exact = None
            if kind == "integers":
                reference = (
                    (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32).astype(ml_dtypes.bfloat16)
                )
                exact = bool((d.view(np.uint16) == reference.view(np.uint16)).all())
            rows.append(
                {
                    "case": name,
                    "shape": [m, n, k],
                    "config": gemm.config.name,
                    "inputs": kind,
                    "seed": m + 7 * n + 13 * k,
                    "relative_error": check.relative_error,
                    "passed": check.passed and exact is not False,
                    "bit_exact": exact,
                    "sha256": hashlib.sha256(d.tobytes()).hexdigest(),
                    "worst": check.worst if not check.passed else "",
                }
            )
    return rows


def time_pairs(m: int, n: int, k: int, config: GemmConfig | None, pairs: int = 15) -> dict[str, Any]:
    """Median ratio of cuBLAS's time to ours over interleaved pairs of graph replays, and the median times (microseconds a product)."""
    import torch

    gemm = Gemm(m, n, k, config=config)
    bytes_of_set = 2 * (m * k + n * k + m * n)
    sets = max(2, -(-2 * L2_BYTES // bytes_of_set))
    buffers = [
        (
            torch.randn(m, k, device="cuda").bfloat16(),
            torch.randn(n, k, device="cuda").bfloat16(),
            torch.empty(m, n, device="cuda", dtype=torch.bfloat16),
        )
        for _ in range(sets)
    ]
    bound = [gemm.bind(a, b, d) for a, b, d in buffers]
    # A graph lasts about 10 ms, so that launching it does not count.
    repeats = max(1, round(0.010 / (2 * m * n * k / 700e12) / sets))
    stream = torch.cuda.Stream()
    graphs = []
    with torch.cuda.stream(stream):
        for body in (
            lambda: [launch.launch(stream) for launch in bound],
            lambda: [torch.mm(a, b.t(), out=d) for a, b, d in buffers],
        ):
            body()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(repeats):
                    body()
            graphs.append(graph)
        times: list[list[float]] = [[], []]
        for pair in range(pairs + 3):
            for which in (0, 1) if pair % 2 else (1, 0):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                graphs[which].replay()
                end.record()
                end.synchronize()
                if pair >= 3:
                    times[which].append(start.elapsed_time(end) * 1000 / (repeats * sets))
    a, b, d = buffers[0]
    d.fill_(float("nan"))
    bound[0].launch()
    torch.cuda.synchronize()
    error = float((d.double() - a.double() @ b.double().t()).norm() / (a.double() @ b.double().t()).norm())
    ratios = sorted(theirs / ours for ours, theirs in zip(*times, strict=True))
    ours, theirs = (statistics.median(values) for values in times)
    return {
        "shape": [m, n, k],
        "config": gemm.config.name,
        "ratio_to_cublas": statistics.median(ratios),
        "ratio_range": [ratios[0], ratios[-1]],
        "ours_us": ours,
        "cublas_us": theirs,
        "ours_tflops": 2e-6 * m * n * k / ours,
        "cublas_tflops": 2e-6 * m * n * k / theirs,
        "relative_error": error,
        "pairs": pairs,
        "buffer_sets": sets,
    }


def speed_configs(shape: tuple[int, int, int]) -> Iterator[GemmConfig | None]:
    """The chosen configuration, and the tiles that a choice is made from."""
    yield None
    if min(shape) >= 2048:
        for tile_m, tile_n, stages in ((128, 256, 4), (128, 192, 4), (256, 128, 4), (128, 128, 6), (256, 160, 3)):
            yield GemmConfig().replace(tile_m=tile_m, tile_n=tile_n, stages=stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "speed"))
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    from device_info import device_info

    start = time.perf_counter()
    before = device_info()
    if arguments.what == "check":
        rows = run_checks()
        wrong = [row for row in rows if not row["passed"]]
        for row in wrong:
            print(f"WRONG {row['case']} {row['inputs']}: relative error {row['relative_error']:.3g}; {row['worst']}")
        print(f"{len(rows) - len(wrong)} of {len(rows)} right")
    else:
        rows = []
        for shape in SPEED_SHAPES:
            for config in speed_configs(shape):
                row = time_pairs(*shape, config)
                rows.append(row)
                print(
                    f"{shape} {row['config']}: {row['ratio_to_cublas']:.3f} of cuBLAS, {row['ours_tflops']:.0f} TFLOP/s, error {row['relative_error']:.2e}",
                    flush=True,
                )
    report = {"device": before, "after": device_info(), "seconds": time.perf_counter() - start, "rows": rows}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
