"""Random (shape, configuration) pairs over everything that is valid: is each right, and the same bits twice?

Pairs run in a process of their own, one after another, so that a kernel which never ends, or ends the use of the card,
costs one pair: the process is replaced and the pair recorded as a failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stridewright.codegen.tuned import config_record, read_config
from stridewright.kernels.config import GemmConfig, Problem

PROGRAM = Path(__file__).resolve().parents[1] / "hopper_shapes.py"
PATIENCE = 20.0
"""Seconds for one pair: what takes longer never ends. The first of a process also waits for the context."""

FIRST_PATIENCE = 90.0
MOST_RESTARTS = 25
MOST_PRODUCTS = 3e9


@dataclass(frozen=True)
class Pair:
    """A configuration with its problem's sizes, how it is launched, and what its inputs are drawn by."""

    config: GemmConfig
    dependent: bool
    integers: bool
    seed: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, n, k."""
        problem = self.config.problem
        assert problem.m is not None
        assert problem.n is not None
        assert problem.k is not None
        return problem.m, problem.n, problem.k

    @property
    def deterministic(self) -> bool:
        """Whether two runs must give the same bits: all but sums that are added in the order in which they come."""
        return self.config.split.kind == "none" or self.config.split.reduce != "atomic"

    def record(self) -> dict[str, Any]:
        """The pair for JSON; ``read_pair`` makes it again."""
        given = {"dependent": self.dependent, "integers": self.integers, "seed": self.seed}
        return {"name": self.config.name, "shape": list(self.sizes), **given, "config": config_record(self.config)}


def read_pair(record: dict[str, Any]) -> Pair:
    """The pair of a record."""
    m, n, k = record["shape"]
    config = read_config(record["config"], Problem(m=m, n=n, k=k))
    return Pair(config, record["dependent"], record["integers"], record["seed"])


_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4))


def draw_parameters(random: np.random.Generator) -> dict[str, Any]:
    """Parameters of a configuration, valid or not: each feature as likely as the next."""

    def one(*choices: Any) -> Any:
        return choices[int(random.integers(len(choices)))]

    kind, consumers = one(("cooperative", 1), ("cooperative", 2), ("cooperative", 3), ("pingpong", 2))
    cluster_m, cluster_n = one(*_CLUSTERS)
    split = one("none", "none", "split", "stream") if kind == "cooperative" else "none"
    return {
        "schedule_kind": kind,
        "consumers": consumers,
        "tile_m": 192 if consumers == 3 else one(64, 128, 256),
        "tile_n": int(8 * random.integers(1, 33)),
        "tile_k": one(32, 64, 64, 128, 256),
        "stages": int(random.integers(2, 13)),
        "cluster_m": cluster_m,
        "cluster_n": cluster_n,
        "swap": one(False, True),
        "order": one("grouped", "serpentine", "row", "column", "nested", "hilbert"),
        "group_m": one(1, 2, 3, 8, 16),
        "launch": one("static", "placed") if split == "none" else "static",
        "split_kind": split,
        "parts": int(random.integers(2, 9)) if split == "split" else 1,
        "reduce": one("ordered", "atomic") if split != "none" else "ordered",
        "hint_a": one("none", "first", "last"),
        "hint_b": one("none", "first", "last"),
        "specialize": one("", "", "", "", "", "nk", "mnk"),
        "store": one("tma", "direct"),
        "buffers": one(1, 2, 3, 4),
    }


def draw_shape(random: np.random.Generator, config: GemmConfig) -> Problem:
    """A shape for a configuration: some tiles along each side and some slots of K, whole or not, or next to nothing."""

    def side(tile: int, step: int) -> int:
        kind = int(random.integers(4))
        whole = tile * int(random.integers(1, 9))
        if kind == 0:
            return whole
        if kind == 1:
            return max(step, (whole + int(random.integers(-tile, tile))) // step * step)
        return max(step, int(np.exp(random.uniform(np.log(step), np.log(2200)))) // step * step)

    tile_m, tile_n = (config.tile.n, config.tile.m) if config.schedule.swap else (config.tile.m, config.tile.n)
    n_step = 8 if config.epilogue.store == "tma" else 1
    k = 8 * int(random.integers(1, 24 * config.tile.k // 8 + 1))
    return Problem(m=side(tile_m, 1), n=side(tile_n, n_step), k=k)


def draw_pairs(count: int, kernels: int, seed: int) -> list[Pair]:
    """``count`` pairs of at most ``kernels`` different kernels, each valid for its shape."""
    random = np.random.default_rng(seed)
    found: list[Pair] = []
    for number in range(kernels):
        base = _valid_parameters(random)
        problem = base.problem
        # The shares of all kernels add up to the count.
        for _ in range(count * (number + 1) // kernels - count * number // kernels):
            config = base
            for _ in range(50):
                other = draw_shape(random, base)
                if base.specialize == "nk":
                    other = dataclasses.replace(other, n=problem.n, k=problem.k)
                elif base.specialize == "mnk":
                    other = problem
                if not (tried := base.replace(problem=other)).violations():
                    config = tried
                    break
            dependent, integers = bool(random.integers(2)), bool(random.integers(4) == 0)
            found.append(Pair(config, dependent, integers, len(found)))
    return found


def _valid_parameters(random: np.random.Generator) -> GemmConfig:
    while True:
        config = GemmConfig().replace(**draw_parameters(random))
        config = config.replace(problem=draw_shape(random, config))
        if not config.violations():
            return config


def run_pair(pair: Pair) -> dict[str, Any]:
    """Runs a pair on the GPU: ``failure`` is empty where it is right, and the same twice where it must be."""
    from stridewright import Gemm
    from stridewright.codegen.gpu_values import check_on_gpu, different_elements, poison, random_buffers
    from stridewright.codegen.launch import import_cupy
    from stridewright.codegen.measure import timing_stream

    m, n, k = pair.sizes
    gemm = Gemm(m, n, k, config=pair.config)
    buffers = random_buffers(m, n, k, seed=pair.seed, integers=pair.integers)
    bound = gemm.bind(buffers.a, buffers.b, buffers.d, pair.dependent)
    again = import_cupy().empty((m, n), dtype=buffers.d.dtype)
    stream = timing_stream()
    synchronize()
    bound.launch(stream)
    stream.synchronize()
    check = check_on_gpu(buffers, most_products=MOST_PRODUCTS, exact_sums=pair.integers)
    found: dict[str, Any] = {"relative_error": check.relative_error, "elements": check.elements, "failure": ""}
    if not check.passed:
        found["failure"] = check.worst
        return found
    # Twice more, one right after the other: counters and workspaces must be as the first launch found them.
    second = gemm.bind(buffers.a, buffers.b, again, pair.dependent)
    poison(again, stream)
    bound.launch(stream)
    second.launch(stream)
    stream.synchronize()
    if pair.deterministic:
        found["different"] = different_elements(buffers.d, again)
        if found["different"]:
            found["failure"] = f"{found['different']} of {m * n} elements differ between two runs"
        return found
    second_check = check_on_gpu(
        dataclasses.replace(buffers, d=again), most_products=MOST_PRODUCTS, exact_sums=pair.integers
    )
    if not second_check.passed:
        found["failure"] = "the second run is wrong"
    return found


def synchronize() -> None:
    """Waits for the whole device."""
    from stridewright.codegen.launch import import_cupy

    import_cupy().cuda.Device().synchronize()


def work() -> None:
    """The process that runs pairs: a record a line on standard input, an answer a line on standard output."""
    for text in sys.stdin:
        try:
            answer = run_pair(read_pair(json.loads(text)))
        except Exception as error:  # whatever a kernel or its driver does belongs to this pair
            answer = {"failure": f"{type(error).__name__}: {error}"}
        try:
            synchronize()
        except Exception as error:  # the card answers this process no more
            answer = {"failure": f"{answer.get('failure')}; the device was lost: {error}", "lost": True}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


class Worker:
    """A process that answers pairs, and is replaced when it does not."""

    def __init__(self, command: Sequence[str], patience: float = PATIENCE, first_patience: float = FIRST_PATIENCE):
        self._command = list(command)
        self._patience, self._first_patience = patience, first_patience
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self.restarts = 0

    def ask(self, record: dict[str, Any]) -> dict[str, Any]:
        """The answer about a pair; a failure where the process ends or is silent for too long."""
        patience = self._patience
        if self._process is None:
            self._start()
            patience = self._first_patience
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(record) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=patience)
        except queue.Empty:
            line = ""
            why = f"no answer within {patience:.0f} s: the kernel does not end"
        except OSError:
            line, why = "", "the process ended"
        else:
            why = "the process ended"
        answer: dict[str, Any] = json.loads(line) if line else {"failure": why, "lost": True}
        if answer.get("lost"):
            self.close()
            self.restarts += 1
        return answer

    def _start(self) -> None:
        self._answers = queue.Queue()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=_read, args=(self._process, self._answers), daemon=True).start()

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _read(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(ValueError):
        for line in process.stdout:
            answers.put(line)
    answers.put("")


def features(pairs: Sequence[Pair]) -> dict[str, int]:
    """How many pairs have each value of each parameter that is a choice."""
    counts: Counter[str] = Counter()
    for pair in pairs:
        counts.update(_features(pair.config))
    return dict(sorted(counts.items()))


def _features(config: GemmConfig) -> Iterator[str]:
    schedule, cluster, pipeline = config.schedule, config.cluster, config.pipeline
    yield f"{schedule.kind} {schedule.consumers}"
    yield f"tile_m {config.tile.m}"
    yield f"tile_k {config.tile.k}"
    yield f"cluster {cluster.m}x{cluster.n}"
    yield f"order {schedule.order}"
    yield f"launch {schedule.launch}"
    yield f"swap {schedule.swap}"
    yield f"split {config.split.kind}" + ("" if config.split.kind == "none" else f" {config.split.reduce}")
    yield f"hints {pipeline.hint_a} {pipeline.hint_b}"
    yield f"specialize {config.specialize or 'none'}"
    yield f"store {config.epilogue.store}"


@dataclass
class _Tally:
    """What became of the pairs."""

    ran: list[Pair] = field(default_factory=list)
    passed: int = 0
    same: int = 0
    largest: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def add(self, pair: Pair, answer: dict[str, Any]) -> None:
        """Counts an answer; a failure is kept in full."""
        self.ran.append(pair)
        if answer["failure"]:
            self.failures.append({**pair.record(), **answer})
            print(f"FAILED {pair.config.name} {pair.sizes}: {answer['failure']}", flush=True)
            return
        self.passed += 1
        self.same += pair.deterministic
        self.largest = max(self.largest, answer["relative_error"] or 0.0)


_MOST_DRAWS = 5


def run(arguments: Namespace) -> int:
    """Compiles the kernels in parallel, runs the pairs, and records counts and every failure in full.

    A kernel that the assembler's log forbids cannot run; other pairs take the place of its own, until as many as were
    asked for have run.
    """
    from stridewright.codegen.compile_pool import CompilePool

    from .results import device_record, finite

    start = time.perf_counter()
    tally = _Tally()
    worker = Worker([sys.executable, str(PROGRAM), "pairs_worker"])

    def over() -> bool:
        return time.perf_counter() - start > arguments.budget or worker.restarts > MOST_RESTARTS

    with CompilePool() as pool:
        for draw in range(_MOST_DRAWS):
            missing = arguments.count - len(tally.ran)
            if missing <= 0 or over():
                break
            # As many kernels for each pair as at first; seeds go on, so that no input comes twice.
            kernels = max(1, -(-arguments.kernels * missing // arguments.count))
            pairs = draw_pairs(missing, kernels, arguments.seed + 1000 * draw)
            pairs = [dataclasses.replace(pair, seed=pair.seed + arguments.count * draw) for pair in pairs]
            if arguments.configs:
                pairs = [pair for pair in pairs if arguments.configs in pair.config.name]
            compilations = [pool.submit(pair.config) for pair in pairs]
            for pair, compilation in zip(pairs, compilations, strict=True):
                if over():
                    break
                why = compilation.result().refused
                if why:
                    tally.refused[pair.config.name] = why
                else:
                    tally.add(pair, worker.ask(pair.record()))
            if arguments.configs:
                break
    worker.close()
    report = {
        "device": device_record(),
        "seed": arguments.seed,
        "pairs": len(tally.ran),
        "kernels": len({pair.config.name for pair in tally.ran}),
        "passed": tally.passed,
        "bit_equal": tally.same,
        "largest_relative_error": tally.largest,
        "refused": tally.refused,
        "restarts": worker.restarts,
        "features": features(tally.ran),
        "seconds": time.perf_counter() - start,
        "failures": tally.failures,
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(finite(report), indent=1) + "\n", encoding="utf-8")
    print(
        f"{tally.passed} of {len(tally.ran)} pairs right over {report['kernels']} kernels, {tally.same} of them twice with the "
        f"same bits; {len(tally.failures)} failures; {len(tally.refused)} more kernels were refused by the assembler's log; "
        f"{report['seconds']:.0f} s"
    )
    return len(tally.failures)
