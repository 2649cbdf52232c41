"""The Hopper GEMM on the chip: is it right for every shape, and how fast beside cuBLAS.

    python benchmarks/gemm_hopper.py check --json results/gemm_hopper_check.json
    python benchmarks/gemm_hopper.py speed --json results/gemm_hopper_speed.json
    python benchmarks/gemm_hopper.py shapes --json results/gemm_hopper_shapes.json
    python benchmarks/gemm_hopper.py attribute --json results/gemm_hopper_attribute.json

``check`` runs every shape with random normal inputs and with small integers (which must come out bit for bit), into
outputs poisoned with NaN, compares with a float64 product, and records a SHA-256 of each result, so that the
emulator's can be compared without a GPU. ``speed`` times this kernel and cuBLAS (torch.mm) in turn: each pair is one
replay of a CUDA graph of each, over operands that together exceed the L2 cache. ``launch`` measures the host's time. ``shapes`` does that for the chosen
configuration and its neighbours on every shape of shapes.json; ``attribute`` for kernels of single CTAs with and
without ``__cluster_dims__(1, 1, 1)``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from stridewright import Gemm
from stridewright.codegen.build import BuildError
from stridewright.codegen.check import check_gemm
from stridewright.codegen.select import candidates, modelled_columns, select
from stridewright.kernels.config import GemmConfig, Problem

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
SCHEDULES: list[dict[str, Any]] = [
    {"schedule_kind": "pingpong", "tile_n": 128},
    {"schedule_kind": "pingpong", "tile_n": 208},
    {"schedule_kind": "pingpong", "tile_n": 80, "cluster_m": 2, "stages": 3},
    {"schedule_kind": "pingpong", "tile_m": 64, "tile_n": 88, "stages": 6, "swap": True},
    {"cluster_m": 2, "tile_n": 64},
    {"cluster_n": 2, "tile_n": 64},
    {"cluster_m": 2, "cluster_n": 2, "tile_n": 64},
    {"cluster_m": 4, "tile_n": 64, "stages": 3},
    {"cluster_n": 4, "tile_n": 64, "stages": 3},
    {"tile_n": 128, "tile_k": 128, "stages": 3},
    {"tile_m": 64, "tile_n": 16, "consumers": 1, "swap": True, "stages": 12},
    {"tile_m": 64, "tile_n": 40, "consumers": 1, "swap": True, "tile_k": 128, "stages": 5},
    {"tile_m": 128, "tile_n": 72, "swap": True, "cluster_n": 2},
    {"tile_m": 64, "tile_n": 8, "consumers": 1, "swap": True, "tile_k": 256, "store": "direct"},
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
    for parameters in SCHEDULES:
        config = GemmConfig().replace(**parameters)
        for shape in ((130, 136, 72), (531, 1032, 456)):
            yield f"{config.name}-{'x'.join(map(str, shape))}", shape, config


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


def time_pairs(
    m: int,
    n: int,
    k: int,
    config: GemmConfig | None,
    pairs: int = 15,
    replace: tuple[str, str] | None = None,
    dependent: bool = False,
) -> dict[str, Any]:
    """Median ratio of cuBLAS's time to ours over interleaved pairs of graph replays, and the median times (microseconds
    a product). ``replace``: a text of the source and what to put in its place.
    """
    import torch

    gemm = Gemm(m, n, k, config=config)
    if replace is not None:
        if replace[0] not in gemm.source:
            raise ValueError(f"{replace[0]!r} is not in the source")
        gemm.__dict__["source"] = gemm.source.replace(*replace)
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
    bound = [gemm.bind(a, b, d, dependent) for a, b, d in buffers]
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
        "dependent_launch": dependent,
        "buffer_sets": sets,
    }


def speed_configs(shape: tuple[int, int, int]) -> Iterator[GemmConfig]:
    """Other tiles than the chosen one, cooperative, beside it."""
    if min(shape) >= 2048:
        for tile_m, tile_n, stages in ((128, 256, 4), (128, 192, 4), (256, 128, 4), (128, 128, 6), (256, 160, 3)):
            yield GemmConfig().replace(tile_m=tile_m, tile_n=tile_n, stages=stages)


def neighbours(m: int, n: int, k: int, most: int = 8) -> list[GemmConfig]:
    """The chosen configuration first, then what the model ranks next, with and without clusters."""
    problem = Problem(m=m, n=n, k=k)
    ranked = sorted(candidates(problem), key=lambda config: (modelled_columns(config), -config.tile.n))
    chosen = select(problem)
    found = [chosen, *(config for config in ranked if config != chosen)][:most]
    if chosen.schedule.swap:
        for tile_k in (64, 128, 256):
            for cluster in ((1, 1), (2, 1), (1, 2)):
                for stages in (12, 9, 8, 6, 5, 4):
                    other = chosen.replace(tile_k=tile_k, cluster_m=cluster[0], cluster_n=cluster[1], stages=stages)
                    if not other.violations():
                        found.append(other)
                        break
    elif chosen.schedule.consumers == 1:
        for tile_m, consumers in ((64, 1), (128, 2), (128, 1)):
            for tile_n in (32, 48, 64, 96, 112, 128, 192, 256):
                for stages in (12, 9, 6, 4):
                    for cluster_n in (1, 2):
                        other = chosen.replace(
                            tile_m=tile_m, tile_n=tile_n, consumers=consumers, stages=stages, cluster_n=cluster_n
                        )
                        fits = not other.violations() and m * n / (tile_m * tile_n) <= 140
                        if fits and m * n / (tile_m * tile_n) >= 40 and stages in (9, 6, 4):
                            found.append(other)
    return list(dict.fromkeys(found))[: most + 6]


def run_shapes(budget: float, first: int, most: int) -> list[dict[str, Any]]:
    """The chosen configuration and at most ``most`` of its neighbours on the shapes from number ``first`` on, until
    ``budget`` seconds are spent.
    """
    listed = json.loads((Path(__file__).parent / "shapes.json").read_text(encoding="utf-8"))["shapes"][first:]
    start, rows = time.perf_counter(), []
    work = [(shape, neighbours(shape["m"], shape["n"], shape["k"])[: most + 1]) for shape in listed]
    with ThreadPoolExecutor() as pool:  # compile everything first, on all cores
        gemms = {c.name: Gemm(s["m"], s["n"], s["k"], config=c) for s, configs in work for c in configs}
        list(pool.map(try_build, gemms.values()))
    for shape, configs in work:
        m, n, k = shape["m"], shape["n"], shape["k"]
        found = []
        for config in configs:
            if time.perf_counter() - start > budget:
                break
            try:
                found.append(time_pairs(m, n, k, config, pairs=7))
            except BuildError as error:
                found.append({"config": config.name, "shape": [m, n, k], "refused": error.lines[0]})
        timed = [row for row in found if "refused" not in row]
        best = max(timed, key=lambda row: row["ratio_to_cublas"], default=None)
        rows.append({"name": shape["name"], "chosen": found[0] if found else None, "best": best, "all": found})
        if best is not None:
            chosen = found[0].get("ratio_to_cublas", 0.0)
            print(
                f"{shape['name']:20} chosen {chosen:.3f}  best {best['ratio_to_cublas']:.3f} {best['config']}",
                flush=True,
            )
    return rows


def try_build(gemm: Gemm) -> None:
    """Puts a kernel's build into the cache, if it can be built."""
    with contextlib.suppress(BuildError):
        _ = gemm.build


def run_launch(calls: int = 2000) -> list[dict[str, Any]]:
    """Host time of a call in microseconds, the queue never full: a bound launch, a whole call, torch.mm; in turn."""
    import torch

    m = n = k = 128
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    gemm = Gemm(m, n, k)
    bound = gemm.bind(a, b, out)
    ways = {
        "bound launch": bound.launch,
        "whole call": lambda: gemm(a, b, out=out),
        "torch.mm": lambda: torch.mm(a, b.t(), out=out),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(calls // 100):
        for name, way in ways.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                way()
            times[name].append((time.perf_counter() - start) * 1e4)
    rows = [{"way": name, "microseconds": statistics.median(values)} for name, values in times.items()]
    for row in rows:
        print(f"{row['way']}: {row['microseconds']:.2f} us of host time a call")
    return rows


def run_attribute() -> list[dict[str, Any]]:
    """Kernels of single CTAs, as they are and with ``__cluster_dims__(1, 1, 1)``."""
    rows = []
    plain = "#define CLUSTER_ATTRIBUTE\n"
    for shape in SPEED_SHAPES:
        for kind, tile_n, stages in (
            ("cooperative", 128, 6),
            ("cooperative", 256, 4),
            ("pingpong", 128, 6),
            ("pingpong", 192, 4),
        ):
            config = GemmConfig().replace(schedule_kind=kind, tile_n=tile_n, stages=stages)
            pair = [
                time_pairs(*shape, config, pairs=9),
                time_pairs(*shape, config, 9, (plain, plain.replace("\n", " __cluster_dims__(1, 1, 1)\n"))),
            ]
            rows.append({"without": pair[0], "with": pair[1]})
            print(
                f"{shape} {config.name}: {pair[0]['ratio_to_cublas']:.3f}, with the attribute {pair[1]['ratio_to_cublas']:.3f}",
                flush=True,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "speed", "shapes", "attribute", "launch"))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for shapes")
    parser.add_argument("--first", type=int, default=0, help="number of the first of the shapes")
    parser.add_argument("--most", type=int, default=13, help="neighbours of the chosen configuration, for shapes")
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
    elif arguments.what == "shapes":
        rows = run_shapes(arguments.budget, arguments.first, arguments.most)
        for what in ("chosen", "best"):
            ratios = [row[what]["ratio_to_cublas"] for row in rows if row[what] and "refused" not in row[what]]
            print(f"geometric mean of {len(ratios)}, {what}: {statistics.geometric_mean(ratios):.3f}")
    elif arguments.what == "attribute":
        rows = run_attribute()
    elif arguments.what == "launch":
        rows = run_launch()
    else:
        rows = []
        for shape in SPEED_SHAPES:
            for config, dependent in ((None, False), (None, True), *((one, False) for one in speed_configs(shape))):
                row = time_pairs(*shape, config, dependent=dependent)
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
