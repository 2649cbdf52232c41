"""Kernels compiled by other processes end in the cache, once each; what goes wrong with one costs only that one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stridewright import Gemm
from stridewright.codegen import compile_pool, compile_worker
from stridewright.codegen.build import BuildError
from stridewright.codegen.compile_pool import CompilePool
from stridewright.kernels.config import GemmConfig, Problem

PROBLEM = Problem(m=64, n=64, k=64)
SMALL = GemmConfig(problem=PROBLEM).replace(tile_m=64, tile_n=8, consumers=1, stages=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("STRIDEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path


def processes() -> set[int]:
    """Children of this process that compile."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return {int(line.split()[0]) for line in listed.stdout.splitlines() if "compile_worker" in line}


def test_what_was_compiled_elsewhere_is_loaded_from_the_cache(cache: Path) -> None:
    with CompilePool(2) as pool:
        futures = [pool.submit(SMALL.replace(tile_n=width)) for width in (8, 16, 8)]
        assert futures[0] is futures[2]
        done = [future.result(timeout=60) for future in futures]
    assert all(one.refused == "" and one.registers > 0 and one.seconds > 0 for one in done)
    assert Gemm(64, 64, 64, config=SMALL.replace(tile_n=16)).build.cached
    assert processes() == set()


def test_an_invalid_configuration_is_refused_in_words(cache: Path) -> None:
    with CompilePool(1) as pool:
        refused = pool.submit(SMALL.replace(tile_n=12)).result(timeout=60).refused
        assert "tile_n=12: must be a multiple of 8" in refused
        # The same process goes on.
        assert pool.submit(SMALL).result(timeout=60).refused == ""


def test_a_process_that_dies_costs_one_kernel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = CompilePool._start

    def remember(self: CompilePool) -> Any:
        started.append(start(self))
        return started[-1]

    monkeypatch.setattr(CompilePool, "_start", remember)
    with CompilePool(1) as pool:
        assert pool.submit(SMALL).result(timeout=60).refused == ""
        started[0].kill()
        started[0].wait()
        assert "the compiling process ended" in pool.submit(SMALL.replace(tile_n=16)).result(timeout=60).refused
        assert pool.submit(SMALL.replace(tile_n=24)).result(timeout=60).refused == ""
    assert len(started) == 2


def test_urgent_ones_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Process:
        stdin = stdout = None

        def kill(self) -> None: ...

        def wait(self) -> None: ...

    def ask(_: object, config: GemmConfig) -> compile_pool.Compiled:
        time.sleep(0.02)
        asked.append(config.tile.n)
        return compile_pool.Compiled(0.0, 1)

    monkeypatch.setattr(CompilePool, "_start", lambda self: Process())
    monkeypatch.setattr(compile_pool, "_ask", ask)
    with CompilePool(1) as pool:
        for priority, width in ((0, 8), (9, 16), (5, 24), (7, 32)):
            future = pool.submit(SMALL.replace(tile_n=width), priority)
        # Asked for again and more urgently, the third one overtakes the others.
        again = pool.submit(SMALL.replace(tile_n=16), 1)
        future.result(timeout=10)
        again.result(timeout=10)
    assert asked[0] == 8
    assert asked[1:] == [16, 24, 32]


def test_a_cancelled_one_can_be_asked_for_again(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    with CompilePool(1) as pool:
        pool.submit(SMALL)
        waiting = pool.submit(SMALL.replace(tile_n=16), 5)
        assert waiting.cancel()
        again = pool.submit(SMALL.replace(tile_n=16), 5)
        assert again is not waiting
        assert again.result(timeout=60).refused == ""


def test_leaving_ends_the_processes_and_cancels_the_rest(cache: Path) -> None:
    with CompilePool(1) as pool:
        pool.submit(SMALL)
        rest = [pool.submit(SMALL.replace(tile_n=width)) for width in range(16, 136, 8)]
        start = time.perf_counter()
    assert time.perf_counter() - start < 5
    assert sum(future.cancelled() for future in rest) >= len(rest) - 2
    assert all(future.done() for future in rest)
    assert processes() == set()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(SMALL)


def test_a_complaint_of_the_assembler_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BuildError("no", lines=("4 bytes spill stores",), log="")

    monkeypatch.setattr("stridewright.codegen.build.build", refuse)
    request = {
        "config": compile_pool.config_record(SMALL),
        "problem": compile_pool.problem_record(PROBLEM),
    }
    assert compile_worker.answer(request)["refused"] == "4 bytes spill stores"
    assert "KeyError" in compile_worker.answer({})["error"]


@pytest.mark.parametrize("workers", [0, -1])
def test_a_pool_has_at_least_one_worker(workers: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        CompilePool(workers)
