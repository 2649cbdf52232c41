"""The commands tune and cache, with a card made of a formula."""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stridewright.codegen import compile_pool
from stridewright.codegen import tune as tune_module
from stridewright.codegen.build import build
from stridewright.codegen.cli import app
from stridewright.codegen.cli.tune_commands import read_shapes, tuning_bar
from stridewright.codegen.compile_pool import Compiled
from stridewright.codegen.tune import TuneProgress
from stridewright.codegen.tune_plan import estimate
from stridewright.codegen.tune_state import Candidate
from stridewright.codegen.tuned import Store, TuningDevice, lookup, read_table
from stridewright.kernels.config import GemmConfig, Problem

SIZES = ("512", "512", "512")
PROBLEM = Problem(m=512, n=512, k=512)


def lot(config: GemmConfig) -> int:
    """From 0 to 4, the same for the same configuration."""
    return zlib.crc32(config.name.encode()) % 5


class Formula:
    """A card that is as fast as the model says, and wrong for every fifth configuration; it interrupts after ``most``
    kernels.
    """

    device = TuningDevice("Formula 2", "2.0", "sm_90a", 132)
    most = 10**9

    def __init__(self, problem: Problem, arch: str) -> None:
        self.opened = 0

    def open(self, config: GemmConfig, dependent: bool) -> Formula:
        self.opened += 1
        if self.opened > type(self).most:
            raise KeyboardInterrupt
        self.config = config
        runner = type(self).__new__(type(self))
        runner.config = config
        return runner

    def check(self) -> str:
        return "5 elements of D are NaN" if lot(self.config) == 0 else ""

    def screen_us(self, expected_us: float) -> float:
        return expected_us

    def expect(self, us: float) -> None:
        assert us > 0

    def rounds(self, runners: Mapping[str, Formula], rounds: int) -> dict[str, list[float]]:
        return {key: [1e6 * estimate(runner.config)] * rounds for key, runner in runners.items()}

    def alive(self) -> bool:
        return True


class AtOnce:
    def submit(self, config: GemmConfig, priority: int = 0) -> Future[Compiled]:
        future: Future[Compiled] = Future()
        future.set_result(Compiled(0.1, 168, "8 bytes spill stores" if lot(config) == 1 else ""))
        return future


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Formula]:
    monkeypatch.setenv("STRIDEWRIGHT_CACHE_DIR", str(tmp_path))

    class Card(Formula):
        pass

    monkeypatch.setattr(tune_module, "GpuBench", Card)
    monkeypatch.setattr(compile_pool, "CompilePool", lambda: contextlib.nullcontext(AtOnce()))
    monkeypatch.setattr("stridewright.codegen.launch.gpu_available", lambda arch=None: (True, "a formula"))
    return Card


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_without_a_gpu_the_message_says_what_can_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIDEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("stridewright.codegen.launch.gpu_available", lambda arch=None: (False, "no driver"))
    done = call("tune", *SIZES)
    assert done.exit_code == 2
    assert done.stderr == "error: no GPU to tune sm_90a on: no driver. --dry-run lists what would be measured\n"
    report = json.loads(call("tune", *SIZES, "--json").stdout)
    assert report["checked"] is False
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_lists_candidates_and_reasons(tmp_path: Path) -> None:
    done = call("tune", "4096", "4096", "4096", "--dry-run")
    assert done.exit_code == 0
    assert done.stdout.count("us modelled") == 24
    assert "there are" not in done.stdout.splitlines()[0]
    assert "accumulator registers a thread" in done.stdout
    report = json.loads(call("tune", "64", "4096", "4096", "--dry-run", "--json").stdout)["shapes"][0]
    assert len(report["candidates"]) == 24
    assert report["valid_tiles"] > 100
    assert sum(int(line.split(" x ")[0]) for line in report["rejected"]) == report["rejected_tiles"]


def test_a_dry_run_for_sustained_load_begins_with_what_moves_least() -> None:
    bursts, sustained = (
        [one["candidate"] for one in report["shapes"][0]["candidates"]]
        for report in (
            json.loads(call("tune", "4096", "4096", "4096", "--dry-run", "--json", "--load", load).stdout)
            for load in ("bursts", "sustained")
        )
    )
    assert sustained[0] == bursts[0]
    assert set(bursts) <= set(sustained)
    added = [name for name in sustained if name not in bursts]
    assert added
    assert sustained.index(added[-1]) < len(sustained) - len(bursts) + 1 + len(added)


def test_a_dry_run_lists_kernels_of_the_architecture_that_is_asked_for() -> None:
    report = json.loads(
        call("tune", "512", "512", "512", "--dry-run", "--json", "--load", "sustained", "--arch", "sm_100a").stdout
    )
    names = [one["candidate"] for one in report["shapes"][0]["candidates"]]
    assert names
    assert all(name.startswith("sm_100a_") for name in names)


def test_what_was_found_is_shown_kept_and_looked_up(card: type[Formula], tmp_path: Path) -> None:
    done = call("tune", *SIZES, "--most", "20", "--seconds", "60")
    assert done.exit_code == 0, done.output
    assert "512x512x512 on Formula 2:" in done.stdout
    assert "wrong: 5 elements of D are NaN" in done.stdout
    assert "refused: 8 bytes spill stores" in done.stdout
    found = lookup(PROBLEM, "Formula 2", store=Store(tmp_path), tables=())
    assert found is not None
    assert found.config.name in done.stdout
    again = json.loads(call("tune", *SIZES, "--seconds", "60", "--json").stdout)["results"][0]
    assert again["name"] == found.config.name
    assert again["resumed"] > 20
    assert {one["status"] for one in again["outcomes"]} >= {"measured", "wrong", "refused"}


def test_a_file_of_shapes_becomes_a_table(card: type[Formula], tmp_path: Path) -> None:
    shapes, table = tmp_path / "shapes.txt", tmp_path / "table.json"
    shapes.write_text("# two shapes\n512 512 512\ndeep 64x64x4096   # a name, and x between\n\n")
    done = call("tune", "--shapes", str(shapes), "--table", str(table), "--most", "5", "--seconds", "30")
    assert done.exit_code == 0, done.output
    assert "deep 64x64x4096 on Formula 2" in done.stdout
    written = read_table(table)
    assert {(p.m, p.n, p.k) for p in written.entries} == {(512, 512, 512), (64, 64, 4096)}
    assert (written.device, written.sms) == ("Formula 2", 132)


def test_ctrl_c_leaves_the_best_so_far_in_use(card: type[Formula], tmp_path: Path) -> None:
    card.most = 9
    done = call("tune", *SIZES, "--seconds", "60")
    assert done.exit_code == 130
    assert "the same command goes on from here" in done.stderr
    assert lookup(PROBLEM, "Formula 2", store=Store(tmp_path), tables=()) is not None
    card.most = 10**9
    report = json.loads(call("tune", *SIZES, "--seconds", "60", "--most", "30", "--json").stdout)["results"][0]
    assert report["resumed"] >= 9
    assert report["finished"]


def test_one_shape_that_fails_does_not_cost_the_others(
    card: type[Formula], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Formula.check
    monkeypatch.setattr(card, "check", lambda self: "all wrong" if self.config.problem.m == 64 else check(self))
    shapes = tmp_path / "shapes.json"
    shapes.write_text(
        json.dumps({"shapes": [{"m": 64, "n": 64, "k": 64}, {"name": "b", "m": 512, "n": 512, "k": 512}]})
    )
    done = call("tune", "--shapes", str(shapes), "--most", "5", "--seconds", "2", "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert [one["shape"] for one in report["results"]] == ["b 512x512x512"]
    assert report["failed"][0]["shape"] == "64x64x64"
    assert "all wrong" in report["failed"][0]["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give the sizes M N K, or --shapes FILE"),
        (("512", "512"), "give the sizes M N K, or --shapes FILE"),
        (("512", "512", "510"), "k=510: must be a multiple of 8"),
        (("512", "512", "512", "--dtype", "f64"), "this type has no kernel"),
        (("512", "512", "512", "--shapes", "nowhere"), "not both"),
        (("--shapes", "nowhere"), "nowhere: No such file"),
        (("512", "512", "512", "--seconds", "0"), "--seconds 0"),
        (("512", "512", "512", "--most", "0"), "--most 0"),
    ],
)
def test_what_cannot_be_tuned_is_refused(card: type[Formula], arguments: tuple[str, ...], words: str) -> None:
    done = call("tune", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize("text", ["1 2", "1 2 x", "a b c d", "1,2,3", '[{"m": 1}]', '{"shapes": [5]}'])
def test_a_file_that_is_no_list_of_shapes_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shapes"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"shapes"):
        read_shapes(path)


def test_the_cache_lists_shows_and_clears_what_was_tuned(
    card: type[Formula], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build('extern "C" __global__ void nothing() {}', name="nothing.cu")
    assert made.folder is not None
    call("tune", *SIZES, "--most", "20", "--seconds", "60")
    listed = call("cache", "list").stdout
    assert "1 tuned shapes" in listed
    assert "512x512x512  Formula 2, driver 2.0" in listed
    report = json.loads(call("cache", "list", "--json").stdout)["tuned"][0]
    assert report["finished"]
    assert report["candidates"] > 12
    shown = call("cache", "show", "512x512x512").stdout
    assert report["config"].split()[0] in shown
    assert "refused: 8 bytes spill stores" in shown
    assert json.loads(call("cache", "show", "512x512x512", "--json").stdout)["best"]["us"] == report["us"]
    assert call("cache", "show", "5x5x5").exit_code == 2
    # The source of a kernel and the record of a shape are opened, or printed where nothing can open them.
    key = made.folder.name[:10]
    assert "void nothing()" in call("cache", "show", key, "--file", "kernel.cu").stdout
    assert "void nothing()" in call("cache", "open", key).stdout
    assert ".visible .entry nothing" in call("cache", "open", key, "--file", "kernel.ptx").stdout
    assert "kernel.cu, kernel.ptx" in call("cache", "open", key, "--file", "kernel.cubin").stderr
    assert json.loads(call("cache", "open", "512x512x512").stdout)["device"] == "Formula 2"
    assert "1 tuned shapes are kept" in call("cache", "clear").stdout
    assert "removed 1 tuned shapes" in call("cache", "clear", "--tuned").stdout
    assert Store(tmp_path).entries() == ()


def test_a_damaged_result_is_listed_as_such(card: type[Formula], tmp_path: Path) -> None:
    call("tune", *SIZES, "--most", "5", "--seconds", "60")
    path = Store(tmp_path).entries()[0].path
    path.write_text("{")
    assert "CORRUPT, not used" in call("cache", "list").stdout
    assert call("cache", "list", "--json").exit_code == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_a_pipe_none(monkeypatch: pytest.MonkeyPatch) -> None:
    best = Candidate(GemmConfig(problem=PROBLEM))
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with tuning_bar(True, "512x512x512") as report:
        assert report is not None
        for done in range(3):
            report(TuneProgress("search", done, 1.0 * done, 2.0, best, 5.25, None))
    assert "512x512x512 search, 2 candidates" in terminal.getvalue()
    assert "5.25 us" in terminal.getvalue()
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with tuning_bar(True, "512x512x512") as report:
        assert report is None
    monkeypatch.setattr("sys.stderr", Terminal())
    with tuning_bar(False, "512x512x512") as report:  # --json
        assert report is None
