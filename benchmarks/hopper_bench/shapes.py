"""Shapes on the GPU, one after another: ours untuned and tuned, cuBLASLt's first choice and best, other programs.

Kernels are compiled by processes of their own, in the order of the shapes, while the card measures.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.codegen import tuned
from stridewright.codegen.bench import Ours, ShapeResult, bench_shape
from stridewright.codegen.compile_pool import CompilePool
from stridewright.codegen.select import select
from stridewright.codegen.speed_of_light import current
from stridewright.codegen.tuned.table import read_table, shipped_tables
from stridewright.kernels.config import Problem

from .peers import peers
from .results import Results, device_record, finite, listed_shapes
from .summary import entry_of, mean, summary, untuned_of_tuned

SHAPES = Path(__file__).resolve().parents[1] / "shapes.json"

# Sizes of language models in the open: hidden, query-key-value and feed-forward widths.
_WIDTHS = (
    1024,
    1536,
    2048,
    2560,
    3072,
    3584,
    4096,
    5120,
    6144,
    7168,
    8192,
    9216,
    11008,
    12288,
    14336,
    18432,
    22016,
    28672,
)


def random_shapes(count: int, seed: int) -> list[dict[str, Any]]:
    """``count`` shapes drawn by ``seed``, a third of each kind: of language models (decode and prefill), ragged, and 200
    to 300 rows.

    >>> [sorted(shape) for shape in random_shapes(1, 0)]
    [['k', 'm', 'n', 'name']]
    """
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        n, k = (int(width) for width in random.choice(_WIDTHS, 2))
        kind = ("llm", "ragged", "rows")[number % 3]
        if kind == "llm":
            m = int(random.choice((1, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 512, 1024, 2048, 4096, 8192)))
        elif kind == "ragged":
            m, n = (int(np.exp(random.uniform(np.log(100), np.log(6000)))) for _ in range(2))
            k = 8 * int(np.exp(random.uniform(np.log(32), np.log(1500))))
        else:
            m = int(random.integers(200, 301))
        found.append({"name": f"{kind}-{m}x{n}x{k}", "m": m, "n": n, "k": k})
    return found


def configurations(shape: dict[str, Any], arguments: Namespace, tables: tuple[tuned.Table, ...]) -> list[Ours]:
    """What is measured of ours for a shape: what the model chooses, what is known from tuning, and the model's next."""
    problem = Problem(m=shape["m"], n=shape["n"], k=shape["k"])
    found = []
    if arguments.mode in ("untuned", "both"):
        found.append(Ours("untuned", select(problem)))
    if arguments.mode in ("tuned", "both"):
        known = tuned.lookup(problem, tables=tables)
        if known is not None:
            found.append(Ours("tuned", known.config))
        lasting = tuned.lookup(problem, tables=tables, load="sustained") if arguments.sustained else None
        if lasting is not None and (known is None or lasting != known):
            found.append(Ours("sustained", lasting.config))
    if arguments.candidates:
        from stridewright.codegen.select import ranked

        found += [Ours("candidate", config) for _, config in ranked(problem, most=arguments.candidates)]
    return found


def in_pool(pool: CompilePool, ours: Iterable[Ours], shape: dict[str, Any]) -> list[Future[Any]]:
    """The compilations of a shape, asked for."""
    problem = Problem(m=shape["m"], n=shape["n"], k=shape["k"])
    return [pool.submit(dataclasses.replace(one.config, problem=problem)) for one in ours]


def line(name: str, result: ShapeResult) -> str:
    """One shape in one line."""
    row = {"key": name, "entries": [entry.record() for entry in result.entries]}
    parts = [f"{name:20}"]
    for label in ("untuned", "tuned"):
        entry = entry_of(row, label)
        if entry is None:
            continue
        text = f"{label} {entry['us']:.2f} us" + ("+pdl" if entry["dependent"] else "")
        if entry["to_first"] and entry["to_best"]:
            first = entry["to_first"]
            text += f" {first['ratio']:.3f} [{first['low']:.3f} {first['high']:.3f}] / {entry['to_best']['ratio']:.3f}"
        parts.append(text)
    share = untuned_of_tuned([row]).get(name)
    if share is not None and share < 0.97:
        named = " | ".join(entry["detail"] for label in ("untuned", "tuned") if (entry := entry_of(row, label)))
        parts.append(f"untuned of tuned {share:.3f}: {named}")
    if result.refused:
        parts.append("refused: " + "; ".join(f"{what}: {why[:80]}" for what, why in result.refused))
    return "  ".join(parts)


def run(arguments: Namespace, listed: Iterable[dict[str, Any]]) -> int:
    """Measures the shapes that are not recorded yet, until the budget is spent; returns how many results were wrong."""
    start = time.perf_counter()
    # First of all, so that PyTorch's cuBLASLt is the one that is loaded and both are measured with the same.
    entrants = peers([name for name in arguments.peers.split(",") if name])
    results = Results(arguments.json, device_record(), mode=arguments.what, arguments=_plain(arguments))
    todo = [shape for shape in listed if arguments.again or not results.has(shape["name"])]
    stuck = set() if arguments.again else results.stuck()
    for shape in todo:
        if shape["name"] in stuck:
            print(f"{shape['name']}: an earlier run never came back from it; --again tries it once more", flush=True)
    todo = [shape for shape in todo if shape["name"] not in stuck]
    tables = (*(read_table(path) for path in arguments.table), *shipped_tables())
    device = current()
    wrong = 0
    with CompilePool() as pool:
        if arguments.tune:
            _tune_all(pool, todo, arguments.tune)
        work = [(shape, configurations(shape, arguments, tables)) for shape in todo]
        waiting = [in_pool(pool, ours, shape) for shape, ours in work]
        for (shape, ours), compilations in zip(work, waiting, strict=True):
            if time.perf_counter() - start > arguments.budget:
                print(
                    f"budget of {arguments.budget:.0f} s spent before {shape['name']}; run again to go on", flush=True
                )
                break
            for compilation in compilations:
                compilation.result()
            begun = time.perf_counter()
            results.begin(shape["name"])
            # A kernel that never ends is waited for in the driver, where no exception reaches.
            faulthandler.dump_traceback_later(arguments.patience, exit=True)
            result = bench_shape(
                shape["m"],
                shape["n"],
                shape["k"],
                ours,
                device,
                rounds=arguments.rounds,
                most_algorithms=arguments.algorithms,
                sustained=arguments.sustained if _long(shape, device) else 0.0,
                extra=entrants,
            )
            faulthandler.cancel_dump_traceback_later()
            wrong += not result.passed or any(
                why.startswith("wrong result") and not what.startswith("cublaslt") for what, why in result.refused
            )
            results.add(shape["name"], finite({**result.record(), "seconds": time.perf_counter() - begun}))
            print(line(shape["name"], result), flush=True)
    results.finish(seconds=time.perf_counter() - start, after=device_record())
    for label in ("untuned", "tuned"):
        for text in summary(results.rows, label).lines():
            print(text)
    shares = untuned_of_tuned(results.rows)
    if shares:
        low = min(shares, key=lambda key: shares[key])
        print(f"untuned of tuned: {mean(shares.values()):.3f} of {len(shares)}; least {shares[low]:.3f} ({low})")
    return wrong


def _tune_all(pool: CompilePool, shapes: Iterable[dict[str, Any]], seconds: float) -> None:
    from stridewright.codegen.tune import TuneError, tune

    for shape in shapes:
        try:
            tune(Problem(m=shape["m"], n=shape["n"], k=shape["k"]), seconds=seconds, compiler=pool)
        except TuneError as error:
            print(f"{shape['name']:20} not tuned: {error}", flush=True)


def _long(shape: dict[str, Any], device: Any) -> bool:
    from stridewright.codegen.speed_of_light import floor

    from .summary import COMPUTE_BOUND_US

    least = floor(device, shape["m"], shape["n"], shape["k"])
    return least.bound == "tensor cores" and least.us >= COMPUTE_BOUND_US


def _plain(arguments: Namespace) -> dict[str, Any]:
    """The arguments for a record: files by their names, since where they lie says nothing to others."""
    kept = {name: value for name, value in vars(arguments).items() if name not in ("json", "what")}
    return {
        name: value if isinstance(value, int | float | str | bool) or value is None else _named(value)
        for name, value in kept.items()
    }


def _named(value: Any) -> str:
    return value.name if isinstance(value, Path) else str(value)


def chosen(arguments: Namespace) -> Iterator[dict[str, Any]]:
    """The shapes of shapes.json that the arguments name, or random ones."""
    if arguments.what == "random_shapes":
        listed = random_shapes(arguments.count, arguments.seed)[arguments.first :]
        yield from listed if arguments.most is None else listed[: arguments.most]
    else:
        yield from listed_shapes(arguments.shapes, arguments.first, arguments.most, arguments.names)
