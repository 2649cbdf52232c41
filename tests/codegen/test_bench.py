"""A shape's entrants: who is timed, who is refused, what is compared with what. Kernels are stand-ins with a known time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stridewright.codegen import bench, cublaslt, measure
from stridewright.codegen.bench import Entrant, Ours, ShapeResult, bench_shape, known_configurations
from stridewright.codegen.build import BuildError
from stridewright.codegen.check import Check
from stridewright.codegen.gpu_values import Buffers
from stridewright.codegen.speed_of_light import H200
from stridewright.kernels.config import GemmConfig

FAST = GemmConfig().replace(tile_n=128)
SLOW = GemmConfig().replace(tile_n=64)
WRONG = GemmConfig().replace(tile_n=96)
SPILLING = GemmConfig().replace(tile_n=192)
SHAPE = (16, 24, 32)


def launcher(one: Buffers, us: float, right: bool = True, in_graph: bool = True) -> measure.Launch:
    """Multiplies in so many microseconds, or leaves D as it is where it is not ``right``."""

    def multiply() -> None:
        values = one.a.values.astype(float) @ one.b.values.astype(float).T
        one.d.values[...] = values.astype(one.d.dtype)

    def launch(stream: Any) -> None:
        captured = stream.captured is not None
        stream.run(us, multiply if right and (in_graph or not captured) else None)

    return launch


@pytest.fixture
def lab(fake_gpu: Any, numpy_values: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ours take 10, 20 or 30 us a product, 1 less with dependent launches; cuBLASLt's algorithms 13, 15, 11, 12, 14."""
    times = {FAST.tile.n: 10.0, SLOW.tile.n: 20.0, WRONG.tile.n: 5.0}

    def gemm_launches(gemm: Any, buffers: Sequence[Buffers], dependent: bool = False) -> list[measure.Launch]:
        tile_n = gemm.config.tile.n
        if tile_n == SPILLING.tile.n:
            raise BuildError("it spills", lines=(), log="")
        return [launcher(one, times[tile_n] - dependent, tile_n != WRONG.tile.n) for one in buffers]

    class CublasLtGemm:
        def __init__(self, m: int, n: int, k: int, algorithm: cublaslt.Algorithm, dtype: str) -> None:
            self.us = [13.0, 15.0, 11.0, 12.0, 14.0][algorithm.place]

        def launches(self, buffers: Sequence[Buffers]) -> list[measure.Launch]:
            return [launcher(one, self.us) for one in buffers]

    def heuristics(m: int, n: int, k: int, dtype: str, most: int) -> list[cublaslt.Algorithm]:
        return [cublaslt.Algorithm(place, 0, 1.0, (("id", 66),), (0,) * 8) for place in range(min(most, 5))]

    monkeypatch.setattr(measure, "gemm_launches", gemm_launches)
    monkeypatch.setattr(cublaslt, "CublasLtGemm", CublasLtGemm)
    monkeypatch.setattr(cublaslt, "heuristics", heuristics)
    return fake_gpu


def run(*ours: Ours, **options: Any) -> ShapeResult:
    return bench_shape(*SHAPE, ours, H200, rounds=7, **options)


def test_ratios_are_cublaslts_time_over_ours(lab: Any) -> None:
    found = run(Ours("untuned", FAST, (False,)))
    (mine,) = [entry for entry in found.entries if entry.labels == ("untuned",)]
    assert mine.us == pytest.approx(10)
    assert mine.to_first is not None
    assert mine.to_best is not None
    assert mine.to_first.ratio == pytest.approx(1.3)
    assert mine.to_best.ratio == pytest.approx(1.1)
    assert mine.tflops == pytest.approx(2 * 16 * 24 * 32 / 10e-6 / 1e12)
    assert mine.of_floor == pytest.approx(found.floor.us / 10)
    assert found.passed


def test_best_of_the_list_is_found_and_the_first_choice_always_runs(lab: Any) -> None:
    found = run(Ours("untuned", FAST))
    assert found.first is not None
    assert found.best is not None
    assert found.entries[found.first].us == pytest.approx(13)
    assert found.entries[found.best].us == pytest.approx(11)
    assert sum(entry.labels == ("cublaslt",) for entry in found.entries) == bench.FINALISTS


def test_both_ways_to_launch_run_and_the_faster_one_wins(lab: Any) -> None:
    found = run(Ours("untuned", FAST), Ours("tuned", FAST), Ours("given", SLOW, (True,)))
    assert [entry.labels for entry in found.entries[:3]] == [("untuned", "tuned"), ("untuned", "tuned"), ("given",)]
    winner = found.winner("tuned")
    assert winner is not None
    assert winner.dependent
    assert winner.us == pytest.approx(9)
    assert found.winner("unheard of") is None


def test_wrong_results_are_refused_and_not_timed(lab: Any) -> None:
    found = run(Ours("untuned", FAST), Ours("tuned", WRONG, (False,)))
    assert found.winner("tuned") is None
    ((detail, reason),) = found.refused
    assert "128x96x64" in detail
    assert "is nan" in reason


def test_others_may_add_in_bf16_but_leave_nothing_out() -> None:
    def entrant(config: GemmConfig | None) -> Entrant:
        return Entrant(("x",), "x", lambda stream: None, lambda us: measure.GraphLoop([]), config=config)

    coarse = Check(0.004, 0.5, 100, 3, "3 elements are beyond their bound, the first of them d[1, 2]")
    unwritten = Check(0.002, 0.1, 100, 1, "1 elements of D are NaN")
    wrong = Check(0.3, 9.0, 100, 50, "50 elements are beyond their bound, the first of them d[1, 2]")
    assert [bench.acceptable(entrant(None), check) for check in (coarse, unwritten, wrong)] == [True, False, False]
    assert not bench.acceptable(entrant(FAST), coarse)


def test_what_is_wrong_only_in_its_graph_is_found_too(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gemm_launches(gemm: Any, buffers: Sequence[Buffers], dependent: bool = False) -> list[measure.Launch]:
        return [launcher(one, 10.0, in_graph=not dependent) for one in buffers]

    monkeypatch.setattr(measure, "gemm_launches", gemm_launches)
    found = run(Ours("untuned", FAST))
    assert [entry.check.passed for entry in found.entries[:2]] == [True, False]
    assert not found.passed


def test_what_does_not_build_is_refused_once(lab: Any) -> None:
    found = run(Ours("tuned", SPILLING), Ours("untuned", FAST))
    assert [reason for _, reason in found.refused] == ["it spills"]


def test_only_the_fastest_candidates_reach_the_final(lab: Any) -> None:
    ours = [Ours("candidate", FAST.replace(stages=stages), (False,)) for stages in (2, 3, 4)]
    ours += [Ours("candidate", SLOW.replace(stages=stages), (False,)) for stages in (2, 3)]
    found = run(*ours, finalists=2)
    finalists = [entry for entry in found.entries if entry.labels == ("candidate",)]
    assert [entry.us for entry in finalists] == [pytest.approx(10), pytest.approx(10)]


def test_without_cublaslt_ours_are_still_timed(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*given: Any) -> None:
        raise cublaslt.CublasLtError("cuBLASLt is not installed")

    monkeypatch.setattr(cublaslt, "heuristics", missing)
    found = run(Ours("untuned", FAST, (False,)))
    assert (found.first, found.best) == (None, None)
    assert found.entries[0].to_first is None
    assert found.refused == (("cublaslt", "cuBLASLt is not installed"),)


def test_extra_entrants_are_compared_too(lab: Any) -> None:
    def extra(buffers: Sequence[Buffers]) -> list[Entrant]:
        launches = [launcher(one, 12.0) for one in buffers]
        return [Entrant(("torch",), "torch.mm", launches[0], lambda us: measure.GraphLoop(launches, target_us=us))]

    found = run(Ours("untuned", FAST), extra=extra)
    theirs = found.winner("torch")
    assert theirs is not None
    assert theirs.to_first is not None
    assert theirs.to_first.ratio == pytest.approx(13 / 12)


def test_sustained_runs_are_of_the_fastest_and_of_cublaslt(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[float] = []

    def alone(loops: Mapping[str, Any], seconds: float) -> dict[str, measure.Sustained]:
        ran.extend(loop.replay_us() for loop in loops.values())
        return {name: measure.Sustained(us * 1.2, 1500.0, 700.0, seconds) for name, us in zip(loops, ran, strict=True)}

    monkeypatch.setattr(measure, "measure_alone_in_turns", alone)
    found = run(Ours("untuned", SLOW), Ours("tuned", FAST), sustained=2.0)
    # Ours as tuned in 9 us, and each of cuBLASLt's three finalists: its first choice and the fastest two others.
    assert sorted(ran) == [pytest.approx(us) for us in (9, 11, 12, 13)]
    tuned = found.winner("tuned")
    assert tuned is not None
    assert tuned.sustained is not None
    assert tuned.sustained.us == pytest.approx(9 * 1.2)
    ran.clear()
    run(Ours("untuned", SLOW), sustained=2.0)
    assert sorted(ran) == [pytest.approx(us) for us in (11, 12, 13, 19)]


def test_a_result_is_plain_json(lab: Any) -> None:
    record = json.loads(json.dumps(run(Ours("untuned", FAST)).record()))
    assert record["entries"][0]["config"]["tile"] == {"m": 128, "n": 128, "k": 64}
    assert "problem" not in record["entries"][0]["config"]
    assert record["entries"][0]["check"]["passed"] is True
    assert record["floor"]["bound"] == "memory"
    assert record["entries"][record["first"]]["to_first"]["ratio"] == 1.0


def test_known_configurations_have_the_tuned_one_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from stridewright.codegen import tuned

    monkeypatch.setattr(tuned, "lookup", lambda problem, **given: None)
    assert [one.label for one in known_configurations(512, 512, 512)] == ["untuned"]
    monkeypatch.setattr(tuned, "lookup", lambda problem, **given: tuned.Tuned(SLOW, True, "a table"))
    found = known_configurations(512, 512, 512)
    assert [one.label for one in found] == ["untuned", "tuned"]
    assert found[1].config == SLOW
