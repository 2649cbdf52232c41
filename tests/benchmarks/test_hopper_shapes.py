"""The benchmark program without a GPU: shapes that it draws, files that it goes on with, means that it prints."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hopper_bench.results import Results, finite, listed_shapes
from hopper_bench.shapes import SHAPES, configurations, random_shapes
from hopper_bench.summary import compute_bound, entry_of, mean, summary, untuned_of_tuned, winner

from stridewright.kernels.config import GemmConfig, Problem, problem_violations

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks/hopper_shapes.py"


def pair(ratio: float) -> dict[str, float]:
    return {"ratio": ratio, "low": ratio, "high": ratio}


def entry(labels: list[str], us: float, first: float, best: float, **more: Any) -> dict[str, Any]:
    made = {"labels": labels, "us": us, "to_first": pair(first), "to_best": pair(best), "sustained": None}
    return {**made, "config": None if labels == ["cublaslt"] else {}, "dependent": False, **more}


def row(key: str, *entries: dict[str, Any], bound: str = "tensor cores", us: float = 100.0) -> dict[str, Any]:
    first = next(place for place, one in enumerate(entries) if one["labels"] == ["cublaslt"])
    return {"key": key, "entries": list(entries), "first": first, "floor": {"bound": bound, "us": us}}


ROWS = [
    row("square", entry(["untuned"], 10, 1.1, 1.0), entry(["tuned"], 8, 1.375, 1.25), entry(["cublaslt"], 11, 1, 0.91)),
    row("odd", entry(["untuned"], 10, 4.0, 2.0), entry(["cublaslt"], 40, 1, 0.5), bound="memory"),
    row(
        "small", entry(["untuned"], 2, 0.9, 0.8), entry(["candidate"], 1.8, 1.0, 0.9), entry(["cublaslt"], 1.8, 1, 0.9)
    ),
]


def test_shapes_file_has_the_thirty() -> None:
    shapes = list(listed_shapes(SHAPES))
    assert len(shapes) == 30
    assert [shape["name"] for shape in listed_shapes(SHAPES, first=2, most=2)] == ["square-2048", "square-4096"]
    assert [shape["name"] for shape in listed_shapes(SHAPES, names="odd,deep-k")] == ["odd", "deep-k"]
    with pytest.raises(ValueError, match="oddly"):
        list(listed_shapes(SHAPES, names="oddly"))


def test_shapes_of_a_tuners_report_are_taken_too(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({"rows": [{"name": "a", "shape": [1, 2, 3], "config": "x"}]}), encoding="utf-8")
    assert list(listed_shapes(path)) == [{"name": "a", "m": 1, "n": 2, "k": 3}]


def test_random_shapes_are_the_same_each_time_and_of_three_kinds() -> None:
    shapes = random_shapes(30, 0)
    assert shapes == random_shapes(30, 0)
    assert shapes != random_shapes(30, 1)
    assert len({shape["name"] for shape in shapes}) == 30
    kinds = [shape["name"].split("-")[0] for shape in shapes]
    assert all(kinds.count(kind) == 10 for kind in ("llm", "ragged", "rows"))
    assert all(200 <= shape["m"] <= 300 for shape in shapes if shape["name"].startswith("rows"))
    assert any(shape["n"] % 8 for shape in shapes)
    for shape in shapes:
        assert not list(problem_violations(Problem(m=shape["m"], n=shape["n"], k=shape["k"])))
        # A third of the card at most, so that buffers can rotate.
        assert 2 * 2 * (shape["m"] * shape["k"] + shape["n"] * shape["k"] + shape["m"] * shape["n"]) < 45e9


def test_results_go_on_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "found.json"
    first = Results(path, {"name": "a GPU"}, mode="shapes")
    first.add("one", {"us": 1.0})
    first.add("two", {"us": 2.0})
    second = Results(path, {"name": "a GPU"}, mode="shapes")
    assert second.has("two")
    assert not second.has("three")
    second.add("one", {"us": 0.5})
    second.finish(seconds=3.0)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [(one["key"], one["us"], one["run"]) for one in found["rows"]] == [("one", 0.5, 1), ("two", 2.0, 0)]
    assert [run.get("seconds") for run in found["runs"]] == [None, 3.0]
    assert list(path.parent.iterdir()) == [path]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5


def test_what_a_run_never_came_back_from_is_known_to_the_next(tmp_path: Path) -> None:
    first = Results(tmp_path / "found.json", {})
    first.begin("one")
    first.add("one", {})
    first.begin("two")
    second = Results(tmp_path / "found.json", {})
    assert second.stuck() == {"two"}
    second.begin("three")
    assert second.stuck() == {"two"}


def test_numbers_that_json_lacks_become_null() -> None:
    assert finite({"a": [math.nan, math.inf, 1 / 3], "b": (True, "x", 7)}) == {
        "a": [None, None, 0.3333333],
        "b": [True, "x", 7],
    }


def test_means_are_geometric_and_name_the_worst() -> None:
    assert mean([2.0, 8.0]) == pytest.approx(4.0)
    untuned = summary(ROWS, "untuned")
    assert untuned.first == {"square": 1.1, "odd": 4.0, "small": 0.9}
    text = untuned.lines()[0]
    assert f"geometric mean {(1.1 * 4 * 0.9) ** (1 / 3):.3f} of 3" in text
    assert f"without odd {(1.1 * 0.9) ** 0.5:.3f}" in text
    assert "least 0.900 (small)" in text


def test_tuned_is_the_fastest_of_ours_whatever_it_is_called() -> None:
    assert summary(ROWS, "tuned").first == {"square": 1.375, "odd": 4.0, "small": 1.0}
    assert untuned_of_tuned(ROWS) == {"square": 0.8, "odd": 1.0, "small": 0.9}
    assert winner(ROWS[0], "nobody") is None
    assert entry_of(ROWS[2], "tuned") is ROWS[2]["entries"][1]


def test_a_line_says_what_untuned_loses_and_to_what() -> None:
    from types import SimpleNamespace

    from hopper_bench.shapes import line

    def made(labels: tuple[str, ...], us: float, compared: bool) -> Any:
        found = entry(list(labels), us, 1.1, 1.05, detail=f"kernel_{us:g}")
        if not compared:
            found["to_first"] = found["to_best"] = None
        return SimpleNamespace(record=lambda: found)

    for compared in (True, False):
        entries = [made(("untuned",), 10.0, compared), made(("candidate",), 8.0, compared)]
        result: Any = SimpleNamespace(entries=entries, refused=[("a", "it spills")])
        text = line("square", result)
        assert ("1.100 [1.100 1.100] / 1.050" in text) == compared
        assert "untuned 10.00 us" in text
        assert "untuned of tuned 0.800: kernel_10 | kernel_8" in text
        assert text.endswith("refused: a: it spills")


def test_sustained_ratios_are_of_compute_bound_shapes() -> None:
    def alone(us: float) -> dict[str, float]:
        return {"us": us}

    entries = (
        entry(["untuned"], 10, 1.1, 1.0, sustained=alone(12)),
        entry(["cublaslt"], 11, 1, 0.9, sustained=alone(15)),
        entry(["cublaslt"], 10, 1.1, 1, sustained=alone(13)),
    )
    rows = [row("large", *entries), row("short", *entries, us=5.0), row("decode", *entries, bound="memory")]
    assert [compute_bound(one) for one in rows] == [True, False, False]
    found = summary(rows, "untuned")
    assert found.sustained_first == {"large": 15 / 12}
    assert found.sustained_best == {"large": 13 / 12}
    assert any("alone, sustained" in text for text in found.lines())


def test_configurations_come_from_the_model_and_from_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from stridewright.codegen import tuned

    known = GemmConfig().replace(tile_n=64)
    lasting = GemmConfig().replace(tile_n=32)

    def lookup(problem: Problem, tables: object, load: str = "bursts") -> tuned.Tuned:
        return tuned.Tuned(known if load == "bursts" else lasting, True, "a table")

    monkeypatch.setattr(tuned, "lookup", lookup)
    shape = {"name": "x", "m": 512, "n": 512, "k": 512}
    for mode, labels in (("both", ["untuned", "tuned"]), ("untuned", ["untuned"]), ("tuned", ["tuned"])):
        found = configurations(shape, Namespace(mode=mode, candidates=0, sustained=0.0), ())
        assert [one.label for one in found] == labels
    assert found[0].config == known
    found = configurations(shape, Namespace(mode="tuned", candidates=0, sustained=1.0), ())
    assert [(one.label, one.config) for one in found] == [("tuned", known), ("sustained", lasting)]


def test_without_a_gpu_the_program_says_so() -> None:
    from stridewright.codegen.launch import gpu_available

    if gpu_available("sm_90a")[0]:
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "shapes", "--json", "none.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no GPU to measure on: ")
