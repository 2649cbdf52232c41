"""The host's time, the first result, and Nsight Compute's tables, without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from hopper_bench import counters, host, results
from hopper_bench.counters import ALWAYS, TENSOR, available, configuration, figures, main_kernel, parse
from hopper_bench.host import host_times

from stridewright.codegen.tuned import config_record
from stridewright.kernels.config import ConfigError, GemmConfig, Problem
from stridewright.kernels.fusion import Fusion

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

# As Nsight Compute 2025.3 prints `--csv --page raw --print-units base`: names, units, a line for each kernel.
PRINTED = """a line of the program
==PROF== Connected to process 123
==PROF== Profiling "stridewright_gemm": 0%....50%....100% - 4 passes
"ID","Process ID","Process Name","Kernel Name","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","gpu__time_duration.sum","lts__t_sector_hit_rate.pct","sm__cycles_elapsed.max","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","byte","ns","%","cycle","%"
"0","123","python3.12","fill_random","(256, 1, 1)","(4096, 1, 1)","0","9.0","128","5,000","10.5","8,000","0"
"1","123","python3.12","stridewright_gemm","(384, 1, 1)","(132, 1, 1)","0","9.0","1,213,505,536","1,400,000","77.25","2,100,000","97.5"
"""


def test_a_table_is_read_with_its_numbers() -> None:
    fill, ours = parse(PRINTED)
    assert fill["kernel"] == "fill_random"
    assert figures(ours) == {
        "kernel": "stridewright_gemm",
        "tensor_active_percent": 97.5,
        "tensor_metric": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "l2_hit_percent": 77.25,
        "dram_read_bytes": 1213505536.0,
        "nanoseconds": 1400000.0,
        "sm_cycles": 2100000.0,
        "clock_mhz": 1500.0,
    }


def test_units_are_turned_into_bytes_and_nanoseconds() -> None:
    scaled = (
        PRINTED.replace('"byte","ns"', '"Mbyte","msecond"').replace("1,213,505,536", "1.25").replace("1,400,000", "1.5")
    )
    found = figures(parse(scaled)[-1])
    assert found["dram_read_bytes"] == 1.25e6
    assert found["nanoseconds"] == 1.5e6


def test_output_without_a_table_is_refused_with_its_last_line() -> None:
    with pytest.raises(ValueError, match="No kernels were profiled"):
        parse("==WARNING== No kernels were profiled.")
    with pytest.raises(ValueError, match="printed nothing"):
        parse("")


def test_a_metric_that_the_gpu_lacks_is_not_asked_for() -> None:
    query = (
        "Device NVIDIA H200 (GH100)\nsm__pipe_tensor_cycles_active   Counter   cycle\ndram__bytes_read  Counter  byte\n"
    )
    asked = available([*TENSOR, *ALWAYS.values()], query)
    assert asked == ["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "dram__bytes_read.sum"]
    assert available(["x__y.sum"], "nothing to see") == ["x__y.sum"]


def test_files_made_by_hand_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(PRINTED, encoding="utf-8")
    assert [one["kernel"] for one in counters.read(path)] == ["fill_random", "stridewright_gemm"]


def test_settings_change_the_chosen_configuration() -> None:
    problem = Problem(m=8192, n=8192, k=8192)
    config = configuration(problem, "schedule_kind=pingpong,tile_m=128,tile_n=192,stages=4,order=hilbert")
    assert (config.tile.n, config.schedule.order) == (192, "hilbert")
    assert not configuration(problem, "").violations()
    fused = configuration(problem, "bias=n,activation=gelu")
    assert (fused.fusion.bias, fused.fusion.activation) == ("n", "gelu")
    assert fused.replace(fusion=Fusion()) == configuration(problem, "")
    with pytest.raises(ConfigError, match="tile_n=7"):
        configuration(problem, "tile_n=7")
    with pytest.raises(ValueError, match="NAME=VALUE"):
        configuration(problem, "tile_n")


def test_the_product_is_the_longest_kernel_of_the_last_launch() -> None:
    def kernel(name: str, ns: float) -> dict[str, Any]:
        return {"kernel": name, "gpu__time_duration.sum": ns}

    fills = [kernel("fill_random", 1e6)] * 4
    split = [kernel("gemm", 100.0), kernel("reduce", 20.0), kernel("gemm", 90.0), kernel("reduce", 30.0)]
    assert main_kernel(fills + split, 2) == kernel("gemm", 90.0)
    assert main_kernel([kernel("ours", 5.0), kernel("ours", 4.0)], 2) == kernel("ours", 4.0)
    with pytest.raises(ValueError, match="no product"):
        main_kernel(fills, 2)


def test_a_recorded_configuration_is_made_again() -> None:
    config = GemmConfig().replace(tile_n=96, order="serpentine", stages=5)
    problem = Problem(m=4096, n=4096, k=4096)
    assert configuration(problem, json.dumps(config_record(config))) == config.replace(problem=problem)


def test_limits_are_recorded_for_shapes_below_cublaslt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(labels: list[str], first: float, best: float, **more: Any) -> dict[str, Any]:
        config = None if labels == ["cublaslt"] else config_record(GemmConfig())
        pairs = {"to_first": {"ratio": first}, "to_best": {"ratio": best}}
        return {"labels": labels, "us": 10 / first, "config": config, "detail": "ours", **pairs, **more}

    theirs = entry(["cublaslt"], 1.0, 1.0, detail="cublaslt3_id66_tile20")
    sizes = {"m": 64, "n": 64, "k": 64, "first": 1, "best": 1}
    rows = [
        {"key": "good", **sizes, "entries": [entry(["tuned"], 1.1, 1.0), theirs]},
        {"key": "below best", **sizes, "entries": [entry(["tuned"], 1.01, 0.97), theirs]},
        {"key": "below first", **sizes, "entries": [entry(["tuned"], 0.98, 0.995), theirs]},
    ]
    of, tuned, path = (tmp_path / name for name in ("shapes.json", "tuned.json", "limits.json"))
    of.write_text(json.dumps({"rows": rows}), encoding="utf-8")
    tuned.write_text(json.dumps({"rows": [{"name": "below best", "outcomes": {"measured": 40}}]}), encoding="utf-8")
    asked: list[str] = []

    class Profiler:
        metrics = ("x",)

        def __init__(self, launches: int) -> None:
            pass

        def figures(self, shape: str, settings: str) -> dict[str, Any]:
            asked.append(settings)
            return {"l2_hit_percent": 70.0}

    monkeypatch.setattr(counters, "Profiler", Profiler)
    monkeypatch.setattr(results, "device_record", lambda: {"name": "a GPU"})
    arguments = Namespace(of=of, tuned=tuned, first=1.0, best=0.99, launches=2, json=path)
    assert counters.limits(arguments) == 0
    found = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["name"] for row in found] == ["below best", "below first"]
    assert [row["tried"] for row in found] == [{"measured": 40}, None]
    assert asked[1] == "cublaslt3"
    assert configuration(Problem(m=64, n=64, k=64), asked[0]).tile == GemmConfig().tile


def test_host_time_is_of_calls_alone_with_an_empty_queue() -> None:
    clock, calls = [0.0], []

    def way(name: str, seconds: float) -> Any:
        def call() -> None:
            clock[0] += seconds
            calls.append(name)

        return call

    def wait() -> None:
        clock[0] += 1.0
        calls.append("wait")

    times = host_times({"a": way("a", 5e-6), "b": way("b", 20e-6)}, wait, turns=3, calls=4, now=lambda: clock[0])
    assert times["a"] == pytest.approx([5.0] * 3)
    assert times["b"] == pytest.approx([20.0] * 3)
    assert calls[:10] == ["wait", *"aaaa", "wait", *"bbbb"]


def test_the_first_result_imports_nothing_of_the_package_before_its_clock_starts() -> None:
    code = "import sys; import hopper_bench.cold_start; print([m for m in sys.modules if m.startswith('stridewright')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


COLD = """
import json, os, pathlib, sys
assert sys.argv[1] == "first_result" and sys.argv[2:] == ["--shape", "64,64,64"], sys.argv
mark = pathlib.Path(os.environ["STRIDEWRIGHT_CACHE_DIR"]) / "made"
seconds = 0.02 if mark.exists() else 0.9
mark.write_text("x")
print("a line of a library")
print(json.dumps({"import_seconds": 0.01, "call_seconds": seconds, "seconds": seconds + 0.01, "right": True}))
"""


def test_cold_starts_alternate_between_an_empty_cache_and_what_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(COLD, encoding="utf-8")
    monkeypatch.setattr(host, "PROGRAM", program)
    monkeypatch.setattr(results, "device_record", lambda: {"name": "a GPU"})
    path = tmp_path / "cold.json"
    assert host.cold(Namespace(json=path, shape="64,64,64", repeats=2)) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["median"]["empty cache"]["seconds"] == pytest.approx(0.91)
    assert found["median"]["from the cache"]["call_seconds"] == pytest.approx(0.02)
    assert [len(rows) for rows in found["rows"].values()] == [2, 2]
    assert "all right: True" in capsys.readouterr().out
    program.write_text("raise SystemExit('no GPU')", encoding="utf-8")
    assert host.cold(Namespace(json=path, shape="64,64,64", repeats=1)) == 1
