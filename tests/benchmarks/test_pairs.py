"""Random pairs: what is drawn, what a process that hangs or dies costs, what is recorded."""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import Namespace
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hopper_bench import pairs, results
from hopper_bench.pairs import Pair, Worker, draw_pairs, features, read_pair

from stridewright.codegen import compile_pool
from stridewright.codegen.compile_pool import Compiled
from stridewright.kernels.config import GemmConfig

DRAWN = draw_pairs(2000, 240, 0)

# Answers as told: a relative error, silence, an end, or the loss of the device.
SCRIPT = """
import json, sys, time
for line in sys.stdin:
    seed = json.loads(line)["seed"]
    if seed == 1:
        time.sleep(60)
    if seed == 2:
        sys.exit(3)
    answer = {"failure": "", "relative_error": 0.001}
    if seed == 3:
        answer = {"failure": "the device was lost", "lost": True}
    print(json.dumps(answer), flush=True)
"""


def pair(seed: int, **changes: Any) -> Pair:
    config = GemmConfig().replace(**changes)
    return Pair(config.replace(problem=GemmConfig().problem), False, False, seed)


def test_pairs_are_valid_reproducible_and_of_few_kernels() -> None:
    assert len(DRAWN) == 2000
    assert len({one.config.name for one in DRAWN}) <= 240
    assert all(not one.config.violations() for one in DRAWN[::7])
    assert draw_pairs(40, 10, 5) == draw_pairs(40, 10, 5)
    assert len({one.seed for one in DRAWN}) == 2000
    assert max(m * n * k for m, n, k in (one.sizes for one in DRAWN)) < 2e10


@pytest.mark.parametrize(
    "feature",
    [
        *(f"order {order}" for order in ("grouped", "serpentine", "row", "column", "hilbert")),
        *(f"cluster {cluster}" for cluster in ("1x1", "2x1", "1x2", "2x2", "4x1", "1x4")),
        *(f"split {split}" for split in ("none", "split ordered", "split atomic", "stream ordered", "stream atomic")),
        *(f"tile_k {k}" for k in (32, 64, 128, 256)),
        *("cooperative 1", "cooperative 2", "cooperative 3", "pingpong 2", "swap True", "store tma", "store direct"),
        *(f"specialize {sizes}" for sizes in ("none", "nk", "mnk")),
        *(f"hints {a} {b}" for a in ("none", "first", "last") for b in ("none", "first", "last")),
    ],
)
def test_every_feature_is_drawn(feature: str) -> None:
    assert features(DRAWN).get(feature, 0) >= 15


def test_a_record_makes_the_pair_again() -> None:
    for one in DRAWN[::97]:
        assert read_pair(json.loads(json.dumps(one.record()))) == one


def test_only_unordered_sums_may_differ() -> None:
    assert pair(0).deterministic
    assert pair(0, split_kind="split", parts=2, reduce="ordered").deterministic
    assert not pair(0, split_kind="stream", reduce="atomic").deterministic


def test_a_worker_that_hangs_dies_or_loses_the_device_is_replaced() -> None:
    worker = Worker([sys.executable, "-c", SCRIPT], patience=0.5, first_patience=20)
    try:
        assert worker.ask({"seed": 0})["failure"] == ""
        assert "does not end" in worker.ask({"seed": 1})["failure"]
        assert worker.restarts == 1
        assert worker.ask({"seed": 0})["relative_error"] == 0.001
        assert worker.ask({"seed": 2})["failure"] == "the process ended"
        assert worker.ask({"seed": 3})["failure"] == "the device was lost"
        assert worker.restarts == 3
        assert worker.ask({"seed": 4})["failure"] == ""
    finally:
        worker.close()


def test_a_run_counts_and_keeps_every_failure_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def submit(self, config: GemmConfig) -> Future[Compiled]:
            made: Future[Compiled] = Future()
            made.set_result(Compiled(0.1, refused="it spills" if config == listed[1].config else ""))
            return made

    class Asked:
        restarts = 0

        def __init__(self, command: list[str]) -> None:
            pass

        def ask(self, record: dict[str, Any]) -> dict[str, Any]:
            wrong = "3 of 64 elements differ between two runs" if record["seed"] == listed[5].seed else ""
            return {"failure": wrong, "relative_error": 0.002}

        def close(self) -> None:
            pass

    listed = draw_pairs(8, 8, 1)
    monkeypatch.setattr(compile_pool, "CompilePool", Pool)
    monkeypatch.setattr(pairs, "Worker", Asked)
    monkeypatch.setattr(results, "device_record", lambda: {"name": "a GPU"})
    path = tmp_path / "pairs.json"
    arguments = Namespace(count=8, kernels=8, seed=1, configs="", budget=100.0, json=path)
    assert pairs.run(arguments) == 1
    found = json.loads(path.read_text(encoding="utf-8"))
    # The refused one was replaced by a pair of another kernel.
    assert (found["pairs"], found["passed"], found["kernels"]) == (8, 7, 8)
    assert found["refused"] == {listed[1].config.name: "it spills"}
    (failure,) = found["failures"]
    assert read_pair(failure) == listed[5]
    assert failure["failure"] == "3 of 64 elements differ between two runs"


@pytest.fixture
def multiplier(fake_gpu: Any, numpy_values: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for a bound GEMM: multiplies with numpy, and does what ``faults`` says to the numbers of its launches."""
    from stridewright import Gemm

    state: dict[str, Any] = {"launches": 0, "faults": {}}

    class Bound:
        def __init__(self, a: Any, b: Any, d: Any) -> None:
            self.a, self.b, self.d = a, b, d

        def launch(self, stream: Any) -> None:
            state["launches"] += 1
            values = self.a.values.astype(float) @ self.b.values.astype(float).T
            self.d.values[...] = values.astype(self.d.dtype)
            self.d.values[0, 0] += state["faults"].get(state["launches"], 0)

    monkeypatch.setattr(Gemm, "bind", lambda gemm, a, b, d, dependent: Bound(a, b, d))
    monkeypatch.setattr(pairs, "synchronize", lambda: None)

    def different(x: Any, y: Any) -> int:
        return int((x.values.view("u2") != y.values.view("u2")).sum())

    from stridewright.codegen import gpu_values

    monkeypatch.setattr(gpu_values, "different_elements", different)
    return state


@pytest.mark.parametrize(
    ("faults", "reduce", "words"),
    [
        ({}, "ordered", ""),
        ({1: 1.0}, "ordered", "d[0, 0]"),
        ({3: 1.0}, "ordered", "1 of 96 elements differ"),
        ({3: 1.0}, "atomic", "the second run is wrong"),
    ],
)
def test_a_pair_is_right_twice_or_fails(
    multiplier: dict[str, Any], faults: dict[int, float], reduce: str, words: str
) -> None:
    multiplier["faults"] = faults
    config = GemmConfig().replace(tile_n=64, split_kind="split", parts=2, reduce=reduce)
    problem = DRAWN[0].config.problem
    config = config.replace(problem=dataclasses.replace(problem, m=8, n=12, k=128), store="direct")
    found = pairs.run_pair(Pair(config, True, False, 3))
    assert words in found["failure"]
    assert bool(found["failure"]) == bool(words)
    assert multiplier["launches"] == (1 if 1 in faults else 3)
