"""The command bench: what it takes, what it says without a GPU, how it shows a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stridewright.codegen import bench as bench_module
from stridewright.codegen import launch, nvml, speed_of_light
from stridewright.codegen.bench import Entry, Ours, ShapeResult
from stridewright.codegen.check import Check
from stridewright.codegen.cli import app, bench_commands
from stridewright.codegen.measure import Sustained, paired
from stridewright.codegen.speed_of_light import H200, floor
from stridewright.kernels.config import GemmConfig

GIVEN: list[tuple[tuple[int, ...], list[Ours], dict[str, Any]]] = []


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", *arguments])


def result_of(m: int, n: int, k: int, ours: list[Ours], device: Any, **options: Any) -> ShapeResult:
    """A made-up result: ours at 10 us, or 9 with dependent launches, cuBLASLt at 12 and 11."""
    GIVEN.append(((m, n, k), ours, options))
    right = Check(0.002, 0.1, m * n, 0, "")

    def entry(labels: tuple[str, ...], us: float, config: GemmConfig | None = None, dependent: bool = False) -> Entry:
        alone = Sustained(1.1 * us, 1500.0, 699.0, 2.0) if options["sustained"] else None
        pairs = [paired([us] * 15, [theirs] * 15) for theirs in (12.0, 11.0)]
        tflops = 2e-6 * m * n * k / us
        detail = config.name if config else "cublaslt0_id66"
        return Entry(labels, detail, dependent, config, us, tflops, 0.5, right, *pairs, alone)

    entries = [entry((one.label,), 9.0 if way else 10.0, one.config, way) for one in ours for way in one.dependent]
    entries += [entry(("cublaslt",), 12.0), entry(("cublaslt",), 11.0)]
    place = len(entries) - 2
    refused = (("a configuration", "wrong result: d[0, 0]"),) if m == 13 else ()
    return ShapeResult(
        m, n, k, "bf16", device.name, floor(device, m, n, k), 4, 15, tuple(entries), place, place + 1, refused
    )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    GIVEN.clear()
    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (True, ""))
    monkeypatch.setattr(speed_of_light, "current", lambda: H200)
    monkeypatch.setattr(nvml, "gpu_or_none", lambda: None)
    monkeypatch.setattr(bench_module, "bench_shape", result_of)


def test_without_a_gpu_it_says_what_is_possible() -> None:
    if launch.gpu_available("sm_90a")[0]:
        pytest.skip("there is a GPU")
    done = invoke("512", "256", "128")
    assert done.exit_code == 2
    assert "stridewright explain 512 256 128" in done.stderr
    assert "stridewright gemm 512 256 128 --on emulator" in done.stderr
    assert json.loads(invoke("512", "256", "128", "--json").stdout)["checked"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give M N K"),
        (("512", "512"), "give M N K"),
        (("1", "2", "3", "--shapes", "shapes.json"), "not both"),
        (("512", "512", "512", "--rounds", "0"), "--rounds 0"),
        (("--shapes", "no-such-file.json"), "no-such-file.json"),
        (("512", "512", "512", "--device", "Voodoo"), "A100, H100, H200, B200"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...], words: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_table_shows_ours_beside_cublaslt(gpu: None) -> None:
    done = invoke("4096", "4096", "4096", "--config", "chosen")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if "[" in line and "]" in line and "D[" not in line]
    titles = [line[2:26].strip() for line in lines]
    assert titles == ["untuned, dependent", "untuned", "cuBLASLt best", "cuBLASLt first choice"]
    assert "1.333 [1.333 1.333]" in lines[0]
    assert "1.222 [1.222 1.222]" in lines[0]
    assert "ridge 206" in done.stdout
    assert "MHz" not in done.stdout


def test_sustained_adds_clock_and_power(gpu: None) -> None:
    done = invoke("4096", "4096", "4096", "--sustained", "--rounds", "5", "--algorithms", "3")
    assert "1500, 699" in done.stdout
    ((_, _, options),) = GIVEN
    assert (options["sustained"], options["rounds"], options["most_algorithms"]) == (2.0, 5, 3)


def test_given_parameters_are_measured_alone(gpu: None) -> None:
    done = invoke("512", "512", "512", "--set", "tile_n=64", "--set", "stages=3", "--json")
    assert done.exit_code == 0
    ((_, ours, _),) = GIVEN
    (one,) = ours
    assert (one.label, one.config.tile.n, one.config.pipeline.stages) == ("given", 64, 3)
    refused = invoke("512", "512", "512", "--set", "tile_n=7")
    assert refused.exit_code == 2
    assert "tile_n=7" in refused.stderr


def test_json_is_one_object_for_all_shapes_of_a_file(gpu: None, tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    path.write_text('{"shapes": [{"name": "a", "m": 64, "n": 64, "k": 64}, {"m": 16, "n": 32, "k": 64}]}', "utf-8")
    done = invoke("--shapes", str(path), "--json", "--config", "chosen")
    found = json.loads(done.stdout)
    assert [shape["name"] for shape in found["shapes"]] == ["a", "16x32x64"]
    assert found["checked"] is True
    assert found["device"]["name"] == "H200"
    assert found["shapes"][0]["speed_of_light"][0]["floor"]["bound"] == "memory"


def test_the_roof_is_that_of_the_device_asked_for(gpu: None) -> None:
    assert "B200: 225" in invoke("512", "512", "512", "--config", "chosen", "--device", "b200").stdout
    assert "H200: 989" in invoke("512", "512", "512", "--config", "chosen").stdout


def test_a_wrong_result_is_status_one(gpu: None) -> None:
    done = invoke("13", "64", "64", "--config", "chosen")
    assert done.exit_code == 1
    assert "left out: a configuration: wrong result" in done.stdout


def test_tuned_asks_for_tuning_where_nothing_is_known(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from stridewright.codegen import tuned

    monkeypatch.setattr(tuned, "lookup", lambda problem, **given: None)
    done = invoke("64", "64", "64", "--config", "tuned")
    assert done.exit_code == 2
    assert "stridewright tune 64 64 64" in done.stderr
    assert bench_commands.listed_shapes(1, 2, 3, None) == [("1x2x3", 1, 2, 3)]
