"""Tunes many shapes in a given time, for the table that comes with the package.

    python benchmarks/tune_hopper.py --budget 360 --json results/tune_hopper.json --table tuned.json --state state.json

The 30 shapes of shapes.json come first, then ``--random`` more, drawn with a seed: shapes of language models, ragged
ones, and ones of 200 to 300 rows. Each shape gets its share of the time that is left. Kernels are compiled by other
processes, those of the next shape while this one is measured. ``--state`` holds every outcome of every shape: a run that
finds it goes on from it. A kernel that faults ends the process that tunes; another one goes on without that kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from device_info import device_info

from stridewright.codegen.compile_pool import CompilePool
from stridewright.codegen.tune import DeviceLostError, TuneResult, first_candidates, tune
from stridewright.codegen.tuned import Place, Store, TableEntry, current_device, read_problem, write_table
from stridewright.codegen.tuned.store import write_atomically
from stridewright.kernels.config import Problem

SEED = 20261130
WIDTHS = (1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 11008, 12288, 13824, 14336, 28672)
_LATER = 1_000_000
_LEAST_SECONDS = 1.0
_LOST = 75
_RESTARTS = 8
_SILENCE_SECONDS = 40.0


def listed_shapes() -> list[dict[str, Any]]:
    """The 30 shapes of shapes.json."""
    path = Path(__file__).parent / "shapes.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["shapes"])


def random_shapes(count: int, seed: int = SEED) -> list[dict[str, Any]]:
    """``count`` shapes, in turns: of a language model, ragged, of 200 to 300 rows."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        kind = ("model", "ragged", "rows")[number % 3]
        if kind == "ragged":
            m, n = (round(2 ** draw.uniform(6, 13)) for _ in range(2))
            k = 8 * round(2 ** draw.uniform(4, 10.5))
        else:
            m = (
                draw.randint(200, 300)
                if kind == "rows"
                else draw.choice((1, 8, 24, 48, 96, 192, 512, 1536, 3000, 6144))
            )
            n, k = draw.choice(WIDTHS), draw.choice(WIDTHS)
        found.append({"name": f"{kind}-{number}", "m": m, "n": n, "k": k})
    return found


def row(name: str, result: TuneResult) -> dict[str, Any]:
    """What is recorded of one shape."""
    problem = result.problem
    others = [outcome for outcome in result.outcomes if outcome.status != "measured"]
    return {
        "name": name,
        "shape": [problem.m, problem.n, problem.k],
        "config": result.config.name,
        "dependent": result.dependent,
        "us": result.us,
        "tflops": result.tflops,
        "untuned_ratio": result.untuned_ratio,
        "seconds": result.seconds,
        "finished": result.finished,
        "outcomes": dict(Counter(outcome.status for outcome in result.outcomes)),
        "fastest": [
            {"candidate": one.candidate.key, "us": one.us, "ratio": one.ratio, "modelled_us": one.modelled_us}
            for one in result.measured[:12]
        ],
        "rejected": [
            {"candidate": one.candidate.key, "status": one.status, "reason": one.reason[:200]}
            for one in others
            if one.status in ("wrong", "failed", "refused")
        ][:12],
    }


def carry_over(state: Path, store: Store) -> int:
    """Puts the records of an earlier run where the tuner finds them; returns how many."""
    if not state.exists():
        return 0
    records = json.loads(state.read_text(encoding="utf-8"))["records"]
    for record in records:
        place = Place(record["device"], record["driver"], record["arch"], read_problem(record["problem"]))
        store.save(place, record)
    return len(records)


def write_all(
    arguments: argparse.Namespace, store: Store, rows: list[dict[str, Any]], results: list[TuneResult]
) -> None:
    """The three files, each in one step."""
    device = current_device()
    assert device is not None
    records = [entry.record for entry in store.entries() if entry.record is not None]
    for path in (arguments.state, arguments.json, arguments.table):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(arguments.state, json.dumps({"records": records}))
    ratios = [one["untuned_ratio"] for one in rows if one["untuned_ratio"]]
    report = {
        "device": device_info(),
        "untuned_to_tuned": 1 / statistics.geometric_mean(ratios) if ratios else None,
        "rows": rows,
    }
    write_atomically(arguments.json, json.dumps(report, indent=1) + "\n")
    entries = [(one.problem, TableEntry(one.config, one.dependent, one.us)) for one in results]
    note = "Made by benchmarks/tune_hopper.py: interleaved rounds of CUDA graphs over buffers larger than the L2 cache."
    write_table(arguments.table, device.name, device.driver, device.arch, device.sms, entries, note)


def run(arguments: argparse.Namespace, started: float) -> int:
    """Tunes shape after shape; returns the exit status, _LOST where the device does not answer any more."""
    shapes = [*listed_shapes(), *random_shapes(arguments.random, arguments.seed)]
    if arguments.only:
        shapes = [shape for shape in shapes if shape["name"] in arguments.only.split(",")]
    problems = [(shape["name"], Problem(m=shape["m"], n=shape["n"], k=shape["k"])) for shape in shapes]
    store = Store(arguments.folder)
    known = len(store.entries()) if arguments.again else carry_over(arguments.state, store)
    watch = Watch()
    print(f"{len(problems)} shapes, {known} known from before", flush=True)
    rows: list[dict[str, Any]] = []
    results: list[TuneResult] = []
    status = 0
    device = current_device()
    if device is None:
        raise SystemExit("no GPU")
    with CompilePool(arguments.workers) as pool:
        for number, (name, problem) in enumerate(problems):
            left = arguments.budget - (time.time() - started)
            if left < _LEAST_SECONDS:
                print(f"no time left for {len(problems) - number} shapes", flush=True)
                break
            if number + 1 < len(problems):
                for place, config in enumerate(first_candidates(problems[number + 1][1], device, store)):
                    pool.submit(config, _LATER + place)
            seconds = max(left / (len(problems) - number), _LEAST_SECONDS)
            if arguments.again:
                # This process goes on for one that ended: what that one finished is not begun again.
                seconds = finished_in(store, problem) or seconds
            try:
                result = tune(problem, seconds=seconds, store=store, compiler=pool, progress=watch.told)
            except KeyboardInterrupt:
                break
            except DeviceLostError as error:
                print(f"{name}: {error}", flush=True)
                status = _LOST
                break
            except Exception as error:
                # One shape must not cost the others.
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                rows.append({"name": name, "error": f"{type(error).__name__}: {error}", "untuned_ratio": None})
                continue
            results.append(result)
            rows.append(row(name, result))
            counts = Counter(outcome.status for outcome in result.outcomes)
            print(
                f"{name:20} {result.us:9.2f} us {result.tflops:6.1f} TFLOP/s  untuned x{result.untuned_ratio or 0:.3f}  "
                f"{dict(counts)}  {result.seconds:.1f} s  {result.config.name}{' dependent' * result.dependent}",
                flush=True,
            )
            if number % 5 == 4:
                write_all(arguments, store, rows, results)
        write_all(arguments, store, rows, results)
    print(f"{len(results)} shapes in {time.time() - started:.0f} s", flush=True)
    return status


class Watch:
    """Ends the process where nothing was told for a long time: a kernel that waits for ever cannot be stopped otherwise. The
    tuner has noted which one it was.
    """

    def __init__(self) -> None:
        self.last = time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()

    def told(self, _: object) -> None:
        """Something was told."""
        self.last = time.monotonic()

    def _look(self) -> None:
        while time.monotonic() - self.last < _SILENCE_SECONDS:
            time.sleep(1.0)
        print("nothing moves any more", flush=True)
        os._exit(_LOST)


def finished_in(store: Store, problem: Problem) -> float | None:
    """Seconds that an earlier process was given for a shape, where it came to its end."""
    device = current_device()
    record = None if device is None else store.load(Place(device.name, device.driver, device.arch, problem))
    return float(record["budget"]) if record is not None and record["finished"] else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=360.0, help="seconds for all shapes together")
    parser.add_argument("--random", type=int, default=30, help="how many random shapes after those of shapes.json")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="names of shapes, separated by commas")
    parser.add_argument("--workers", type=int, default=None, help="compiling processes")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--started", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.started:
        raise SystemExit(run(arguments, arguments.started))
    # A kernel that faults ends the use of the device for its process: the tuning is done by one that may end.
    command = [sys.executable, *sys.argv, "--started", str(time.time())]
    command += ["--folder", tempfile.mkdtemp(prefix="stridewright-tune-")]
    for again in range(_RESTARTS):
        status = subprocess.run([*command, *(["--again"] if again else [])]).returncode
        if status == 0:
            break
        print(f"the process that tuned ended with status {status}; begun again", flush=True)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
