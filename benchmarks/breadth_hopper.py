"""Breadth of the Hopper GEMM on the chip: random mixtures against float64, and the speed of what goes beyond plain bf16.

    python benchmarks/breadth_hopper.py cases --count 5000 --kernels 300 --json benchmarks/results/breadth_hopper.json
    python benchmarks/breadth_hopper.py speed --json benchmarks/results/breadth_speed_hopper.json

``cases``: the generator of the emulated tests (codegen/breadth.py) with larger shapes: shape, type, majors, epilogue, batch
or groups, configuration; results go into poisoned arrays and are compared with a float64 reference on the GPU, aux and amax
too, and what lies beside D must stay as it was. Kernels are compiled in parallel first. A second run with ``--first`` goes on.
``speed``: fp8 with one scale a tensor beside cuBLASLt (with and without its fast accumulation), bias + gelu beside the
same kernel without, fp8 at K = 7168 with and without promotion (time and error), scales of blocks, groups of rows beside a
loop of cuBLASLt calls. All in CUDA graphs, in turns, on rotating buffers; ratios are medians with their 95 % interval.
``compile``: only compiles so many drawn kernels, here, without a GPU, and names those that do not.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from device_info import device_info

SHAPES = {
    "4096": (4096, 4096, 4096),
    "8192": (8192, 8192, 8192),
    "dsv3-2112": (4096, 2112, 7168),
    "dsv3-24576": (4096, 24576, 1536),
    "dsv3-32768": (4096, 32768, 512),
    "dsv3-7168-deep": (4096, 7168, 16384),
    "dsv3-4096": (4096, 4096, 7168),
    "dsv3-7168-shallow": (4096, 7168, 2048),
}
"""Cubes, and the products of DeepSeek-V3's layers at 4096 tokens."""


def compiled(config: Any) -> str:
    """Compiles a kernel into the cache: "" or why it cannot be used."""
    from stridewright.codegen.build import build
    from stridewright.codegen.source import generate

    try:
        build(generate(config), arch=config.arch, name=f"{config.name}.cu")
    except Exception as error:
        return f"{config.name}: {str(error)[:300]}"
    return ""


def compile_all(configs: list[Any], workers: int) -> list[str]:
    """Compiles kernels in processes of their own; those that failed, with the reason."""
    failed = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(compiled, config) for config in configs]):
            if done.result():
                failed.append(done.result())
    return failed


def run_share(args: argparse.Namespace, share: int, until: float) -> dict[str, Any]:
    """One process's share of the cases: every ``args.processes``-th from ``args.first + share`` on, begun before ``until``
    (seconds since the epoch). It stops where the device's context is gone.
    """
    from stridewright.codegen import breadth

    logging.disable(logging.WARNING)
    cases, _ = breadth.draw(args.seed, args.count, args.kernels, (args.most_m, args.most_n, args.most_k))
    wrong: dict[str, str] = {}
    counts: Counter[str] = Counter()
    number = args.first + share
    for number in range(args.first + share, len(cases), args.processes):
        if time.time() > until:
            break
        case = cases[number]
        try:
            found = breadth.launch(case)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:300]}"
        if found.startswith("refused"):
            counts[found] += 1
        elif found:
            wrong[f"{number}: {case}"] = found
            print(f"{number}: {case}: {found}", flush=True)
            if "illegal" in found or "misaligned" in found or len(wrong) > 40:
                break
        else:
            counts["right"] += 1
            problem = case.recipe.problem
            counts[f"{problem.a}x{problem.b}->{problem.d}"] += 1
            counts[problem.form] += 1
    else:
        number = len(cases)
    return {"next": number, "counts": dict(counts), "wrong": wrong}


def run_cases(args: argparse.Namespace) -> dict[str, Any]:
    """The random mixtures: drawing operands and their reference takes the host longer than the GPU, so several processes share
    the cases, and the GPU.
    """
    from stridewright.codegen import breadth

    cases, refused = breadth.draw(args.seed, args.count, args.kernels, (args.most_m, args.most_n, args.most_k))
    recipes = list(dict.fromkeys(case.recipe for case in cases))
    start = time.perf_counter()
    failed = compile_all([recipe.config for recipe in recipes], args.workers)
    compile_seconds = time.perf_counter() - start
    print(f"{len(recipes)} kernels compiled in {compile_seconds:.0f} s, {len(failed)} failed", flush=True)
    start, until = time.perf_counter(), time.time() + args.budget
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        shares = list(
            pool.map(run_share, *zip(*((args, share, until) for share in range(args.processes)), strict=True))
        )
    counts: Counter[str] = Counter()
    for share in shares:
        counts.update(share["counts"])
    return {
        "device": device_info(),
        "seed": args.seed,
        "first": args.first,
        "next": min(share["next"] for share in shares),
        "drawn": len(cases),
        "run": sum(count for name, count in counts.items() if name == "right" or name.startswith("refused"))
        + sum(len(share["wrong"]) for share in shares),
        "kernels": len(recipes),
        "kernels_failed": failed,
        "seconds": time.perf_counter() - start,
        "compile_seconds": compile_seconds,
        "counts": dict(sorted(counts.items())),
        "kernels_refused_by": dict(refused),
        "wrong": {name: found for share in shares for name, found in share["wrong"].items()},
    }


# ---- speed ------------------------------------------------------------------------------------------------------------


def buffers(m: int, n: int, k: int, dtype: str, sets: int) -> list[Any]:
    """Sets of (a, b, d) of random numbers: bf16, or bytes that are e4m3 numbers between -2 and 2."""
    import cupy
    import ml_dtypes
    import numpy as np

    from stridewright.codegen.gpu_values import random_buffers

    if dtype == "bf16":
        drawn = [random_buffers(m, n, k, seed=seed) for seed in range(sets)]
        return [(one.a, one.b, one.d) for one in drawn]
    random = np.random.default_rng(1)
    made = []
    for _ in range(sets):
        # Below 0x40 are the positive numbers under 2; the highest bit is the sign.
        pair = [cupy.asarray(random.integers(0, 256, (rows, k), dtype=np.uint8) & 0xBF) for rows in (m, n)]
        made.append((*pair, cupy.empty((m, n), dtype=ml_dtypes.bfloat16)))
    return made


def sets_of(m: int, n: int, k: int, element: int) -> int:
    """Sets that are together larger than twice the L2 cache."""
    from stridewright.codegen.measure import buffer_sets, l2_bytes

    return buffer_sets(m, n, k, l2_bytes(), element)


def kept(bound: Any) -> Any:
    """The launch of a bound GEMM, which keeps it alive."""
    return lambda stream: bound.launch(stream)


def best_of(gemms: list[Any], data: list[Any], **others: Any) -> tuple[Any, Any]:
    """The fastest of several GEMMs on the same data, in interleaved rounds, in which all have the same clock: (gemm, its loop)."""
    from stridewright.codegen.measure import GraphLoop, measure_rounds

    loops = {
        str(at): GraphLoop([kept(gemm.bind(a, b, d, **others)) for a, b, d in data]) for at, gemm in enumerate(gemms)
    }
    for rounds, most in ((3, 5), (9, 1)):
        times = {at: statistics.median(found) for at, found in measure_rounds(loops, rounds).items()}
        loops = {at: loops[at] for at in sorted(times, key=lambda at: times[at])[:most]}
    ((at, loop),) = loops.items()
    return gemms[int(at)], loop


def configurations(problem: Any, fusion: Any, promote: int = 0) -> list[Any]:
    """The choice without measuring, and a few more."""
    from stridewright.codegen.general_select import choose, with_most_stages

    first = choose(problem, fusion, promote)
    found = [first]
    if promote:
        shapes = [
            {"tile_m": 128, "tile_n": 128, "cluster_m": cluster_m, "cluster_n": cluster_n, "accumulators": sets}
            for cluster_m, cluster_n in ((1, 1), (2, 1), (1, 2))
            for sets in ((1, 2) if promote == 128 else (1,))
        ]
    else:
        shapes = [
            {"schedule_kind": "pingpong", "tile_m": 128, "tile_n": n, "consumers": 2, "cluster_m": c, "cluster_n": 1}
            for n in (112, 128, 152, 160, 176, 192, 200)
            for c in (1, 2)
        ]
        shapes += [
            {
                "schedule_kind": "cooperative",
                "tile_m": 128,
                "tile_n": 256,
                "consumers": 2,
                "cluster_m": c,
                "cluster_n": 1,
            }
            for c in (1, 2)
        ]
        shapes += [
            {
                "schedule_kind": "cooperative",
                "tile_m": 256,
                "tile_n": n,
                "consumers": 2,
                "cluster_m": c,
                "cluster_n": 3 - c,
            }
            for n in (128, 176)
            for c in (1, 2)
        ]
    if problem.n > 2 * problem.m:
        # All rows of a column of tiles one after the other: A stays in L2 while B is read once.
        whole = {"group_m": -(-problem.m // 128)}
        shapes = [shape | order for order in ({}, whole) for shape in shapes]
    for shape in shapes:
        config = with_most_stages(first.replace(swap=False, split_kind="none", parts=1, reduce="ordered", **shape))
        if config is not None and config not in found:
            found.append(config)
    return found


def ratio(first: Any, second: Any, rounds: int) -> dict[str, Any]:
    """second / first with its interval, and both times."""
    from stridewright.codegen.measure import measure_pairs

    pairs = measure_pairs(first, second, rounds)
    return {
        "ratio": pairs.ratio,
        "low": pairs.low,
        "high": pairs.high,
        "first_us": pairs.first_us,
        "second_us": pairs.second_us,
    }


def cublas_loop(m: int, n: int, k: int, dtype: str, data: list[Any], most: int) -> tuple[Any, Any]:
    """cuBLASLt's first choice and the fastest of its list, as loops."""
    from stridewright.codegen.cublaslt import CublasLtGemm, heuristics
    from stridewright.codegen.measure import GraphLoop, measure_rounds

    loops = {}
    for at, algorithm in enumerate(heuristics(m, n, k, dtype, most)):
        product = CublasLtGemm(m, n, k, algorithm, dtype)
        loops[str(at)] = GraphLoop(
            [lambda stream, a=a, b=b, d=d, p=product: p.launch(a, b, d, stream) for a, b, d in data]
        )
    times = {at: statistics.median(found) for at, found in measure_rounds(loops, 5).items()}
    return loops["0"], loops[min(times, key=lambda at: times[at])]


def relative_error(d: Any, a: Any, b: Any, rows: int = 64) -> float:
    """Of some rows of an fp8 product against float64."""
    import cupy
    import numpy as np

    from stridewright.codegen.reference import widened

    left, right = widened(cupy.asnumpy(a[:rows]), "e4m3"), widened(cupy.asnumpy(b), "e4m3")
    exact = left @ right.T
    got = cupy.asnumpy(d[:rows]).astype(np.float64)
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def gemm_with(m: int, n: int, k: int, config: Any, dtype: str = "e4m3", d: str = "bf16", **options: Any) -> Any:
    """A GEMM of one configuration."""
    from stridewright import Gemm

    return Gemm(m, n, k, dtype, dtype, d, config=config, **options)


def fp8_lines(args: argparse.Namespace, wanted: list[str]) -> dict[str, Any]:
    """fp8 with one scale a tensor beside cuBLASLt."""
    from stridewright.codegen.tuned import config_record
    from stridewright.kernels.config import Problem
    from stridewright.kernels.fusion import Fusion

    found = {}
    for name in wanted:
        m, n, k = SHAPES[name]
        data = buffers(m, n, k, "e4m3", sets_of(m, n, k, 1))
        problem = Problem(m=m, n=n, k=k, a="e4m3", b="e4m3", d="bf16")
        fusion = Fusion(alpha=True)
        configs = configurations(problem, fusion)
        compile_all(configs, args.workers)
        ours, loop = best_of([gemm_with(m, n, k, one) for one in configs], data, alpha=0.5)
        line: dict[str, Any] = {
            "sizes": [m, n, k],
            "config": ours.config.name,
            "parameters": config_record(ours.config, whole=False),
            "tflops": 2 * m * n * k / min(loop.replay_us() for _ in range(3)) / 1e6,
        }
        for dtype in ("e4m3 fast", "e4m3"):
            try:
                first, best = cublas_loop(m, n, k, dtype, data, args.algorithms)
            except Exception as error:
                line[dtype] = str(error)[:200]
                continue
            line[dtype] = {"first": ratio(loop, first, args.rounds), "best": ratio(loop, best, args.rounds)}
        found[name] = line
        print(name, json.dumps(line), flush=True)
    return found


def fused_lines(args: argparse.Namespace) -> dict[str, Any]:
    """bias + gelu beside a plain product, each as `Gemm` chooses it, and beside the plain kernel of the same configuration."""
    import cupy
    import numpy as np

    from stridewright import Gemm
    from stridewright.codegen.measure import GraphLoop
    from stridewright.kernels.fusion import Fusion

    found = {}
    for name in ("4096", "8192"):
        m, n, k = SHAPES[name]
        data = buffers(m, n, k, "bf16", sets_of(m, n, k, 2))
        bias = cupy.asarray(np.random.default_rng(2).standard_normal(n, dtype=np.float32))
        fused = Gemm(m, n, k, fusion=Fusion(bias="n", activation="gelu"))
        plain = Gemm(m, n, k)
        twin = Gemm(m, n, k, config=fused.config.replace(fusion=Fusion()))
        compile_all([fused.config, plain.config, twin.config], args.workers)
        fused_loop = GraphLoop([kept(fused.bind(a, b, d, bias=bias)) for a, b, d in data])
        plain_loop, twin_loop = (GraphLoop([kept(gemm.bind(a, b, d)) for a, b, d in data]) for gemm in (plain, twin))
        found[name] = {
            "fused": fused.config.name,
            "plain": plain.config.name,
            "fused_over_plain": ratio(plain_loop, fused_loop, args.rounds),
            "fused_over_same_plain": ratio(twin_loop, fused_loop, args.rounds),
        }
        print(name, json.dumps(found[name]), flush=True)
    return found


def promotion_lines(args: argparse.Namespace) -> dict[str, Any]:
    """fp8 at K = 7168 with and without promotion: error and time; scales of blocks."""
    import cupy
    import numpy as np

    from stridewright.kernels.config import Problem
    from stridewright.kernels.fusion import Fusion

    m, n, k = SHAPES["dsv3-4096"]
    data = buffers(m, n, k, "e4m3", sets_of(m, n, k, 1))
    random = np.random.default_rng(3)
    scale_a = cupy.asarray(random.uniform(0.5, 2.0, (m, k // 128)).astype(np.float32))
    scale_b = cupy.asarray(random.uniform(0.5, 2.0, (n // 128, k // 128)).astype(np.float32))
    found: dict[str, Any] = {}
    loops = {}
    for name, promote, fusion, others in (
        ("promote 0", 0, Fusion(), {}),
        ("promote 128", 128, Fusion(), {}),
        ("promote 512", 512, Fusion(), {}),
        ("block scales", 128, Fusion(scale_a="block", scale_b="block"), {"scale_a": scale_a, "scale_b": scale_b}),
    ):
        configs = configurations(Problem(m=m, n=n, k=k, a="e4m3", b="e4m3", d="bf16"), fusion, promote)
        compile_all(configs, args.workers)
        ours, loop = best_of([gemm_with(m, n, k, one) for one in configs], data, **others)
        loops[name] = loop
        a, b, _ = data[0]
        # The same sums, stored as they are: plain stores of float32 leave no registers for a second set.
        wide = ours.config.replace(
            problem=Problem(a="e4m3", b="e4m3", d="f32"), store="direct", accumulators=1, cluster_m=1, cluster_n=1
        )
        f32 = gemm_with(m, n, k, wide, d="f32")
        line: dict[str, Any] = {"config": ours.config.name, "us": min(loop.replay_us() for _ in range(3))}
        line["tflops"] = 2 * m * n * k / line["us"] / 1e6
        if not others:
            exact = f32(a, b)
            cupy.cuda.Device().synchronize()
            line["relative_error_f32_output"] = relative_error(exact, a, b)
        found[name] = line
        print(name, json.dumps(line), flush=True)
    found["promotion costs"] = ratio(loops["promote 0"], loops["promote 128"], args.rounds)
    found["block scales over promotion"] = ratio(loops["promote 128"], loops["block scales"], args.rounds)
    del data, loops
    found["block scales beside cuBLASLt"] = {name: block_lines(args, name) for name in args.shapes.split(",")}
    return found


def block_lines(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Scales of blocks (1 x 128 of A, 128 x 128 of B) beside cuBLASLt's, which PyTorch calls; it wants A's along M."""
    import cupy
    import numpy as np

    from stridewright.codegen.measure import GraphLoop
    from stridewright.kernels.config import Problem
    from stridewright.kernels.fusion import Fusion

    m, n, k = SHAPES[name]
    data = buffers(m, n, k, "e4m3", sets_of(m, n, k, 1))
    random = np.random.default_rng(3)
    by_rows = cupy.asarray(random.uniform(0.5, 2.0, (m, -(-k // 128))).astype(np.float32))
    scale_b = cupy.asarray(random.uniform(0.5, 2.0, (-(-n // 128), -(-k // 128))).astype(np.float32))
    down = cupy.ascontiguousarray(by_rows.T).T
    fusion = Fusion(scale_a="block", scale_b="block")
    configs = configurations(Problem(m=m, n=n, k=k, a="e4m3", b="e4m3", d="bf16"), fusion, 128)
    compile_all(configs, args.workers)
    gemms = [gemm_with(m, n, k, one) for one in configs]
    ours, loop = best_of(gemms, data, scale_a=down, scale_b=scale_b)
    rows_loop = GraphLoop([kept(ours.bind(a, b, d, scale_a=by_rows, scale_b=scale_b)) for a, b, d in data])
    line: dict[str, Any] = {
        "sizes": [m, n, k],
        "config": ours.config.name,
        "tflops": 2 * m * n * k / min(loop.replay_us() for _ in range(3)) / 1e6,
        "scales of A by rows, over along M": ratio(loop, rows_loop, args.rounds),
    }
    try:
        import torch

        kind = torch.float8_e4m3fn
        ours_d = data[0][2]
        ours(data[0][0], data[0][1], out=ours_d, scale_a=down, scale_b=scale_b)
        cupy.cuda.Device().synchronize()
        s_a, s_b = torch.as_tensor(down, device="cuda"), torch.as_tensor(scale_b, device="cuda")
        stream = loop.stream

        def call(a: Any, b: Any) -> Any:
            left, right = (torch.as_tensor(x, device="cuda").view(kind) for x in (a, b))
            return torch._scaled_mm(left, right.t(), scale_a=s_a, scale_b=s_b.t(), out_dtype=torch.bfloat16)

        theirs = call(data[0][0], data[0][1]).float()
        own = torch.as_tensor(ours_d.view("uint16").view("int16"), device="cuda").view(torch.bfloat16).float()
        line["relative difference"] = float((theirs - own).norm() / own.norm())
        if line["relative difference"] > 0.01:
            raise RuntimeError("PyTorch reads the scales in another way")

        def launch(on: Any, a: Any, b: Any) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(on.ptr)):
                call(a, b)

        peer = GraphLoop([lambda on, a=a, b=b: launch(on, a, b) for a, b, _ in data], stream=stream)
        line["cuBLASLt through PyTorch"] = ratio(loop, peer, args.rounds)
    except Exception as error:
        line["cuBLASLt through PyTorch"] = f"{type(error).__name__}: {str(error)[:300]}"
    print("block scales", name, json.dumps(line), flush=True)
    return line


def grouped_lines(args: argparse.Namespace) -> dict[str, Any]:
    """bf16 groups of rows in one launch beside a loop of cuBLASLt calls, one for each group."""
    import cupy
    import ml_dtypes
    import numpy as np

    from stridewright import Gemm
    from stridewright.codegen.cublaslt import CublasLtGemm, heuristics
    from stridewright.codegen.gpu_values import fill_random
    from stridewright.codegen.measure import GraphLoop

    found = {}
    for groups, rows, n, k in ((4, 8192, 4096, 7168), (8, 4096, 4096, 7168), (32, 256, 4096, 7168)):
        m = groups * rows
        a, b, d = (cupy.empty(shape, dtype=ml_dtypes.bfloat16) for shape in ((m, k), (groups, n, k), (m, n)))
        fill_random(a, 1)
        fill_random(b, 2)
        offsets = cupy.asarray(np.arange(groups + 1, dtype=np.int32) * rows)
        gemm = Gemm(m, n, k, groups=groups)
        ours = GraphLoop([kept(gemm.bind(a, b, d, offsets=offsets))])
        product = CublasLtGemm(rows, n, k, heuristics(rows, n, k, "bf16", 1)[0])
        parts = [(a[g * rows : (g + 1) * rows], b[g], d[g * rows : (g + 1) * rows]) for g in range(groups)]
        loop = GraphLoop([lambda stream, parts=parts, p=product: [p.launch(x, y, z, stream) for x, y, z in parts]])
        found[f"{groups} x {rows}"] = {"config": gemm.config.name, **ratio(ours, loop, args.rounds)}
        print(groups, rows, json.dumps(found[f"{groups} x {rows}"]), flush=True)
    return found


def main() -> int:
    """The command line."""
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cases", "speed", "compile"))
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--budget", type=float, default=400.0, help="seconds after which no case is begun")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--processes", type=int, default=8, help="that share the cases, and the GPU")
    parser.add_argument("--most-m", type=int, default=448)
    parser.add_argument("--most-n", type=int, default=448)
    parser.add_argument("--most-k", type=int, default=900)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--algorithms", type=int, default=8)
    parser.add_argument("--only", default="fp8,fused,promotion,grouped", help="lines of speed, with commas")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="of the fp8 lines")
    args = parser.parse_args()
    if args.what == "compile":
        from stridewright.codegen import breadth

        cases, _ = breadth.draw(args.seed, args.kernels, args.kernels)
        failed = compile_all([case.recipe.config for case in cases], args.workers)
        print("\n".join(failed) or "all compile")
        return int(bool(failed))
    if args.what == "cases":
        found = run_cases(args)
        bad = bool(found["wrong"] or found["kernels_failed"])
    else:
        found, bad = {"device": device_info()}, False
        lines = {
            "fp8": lambda: fp8_lines(args, args.shapes.split(",")),
            "fused": lambda: fused_lines(args),
            "promotion": lambda: promotion_lines(args),
            "grouped": lambda: grouped_lines(args),
        }
        for name in args.only.split(","):
            found[name] = lines[name]()
    text = json.dumps(found, indent=1)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
