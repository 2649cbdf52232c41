"""The command line as programs see it: exit status, one clear message, one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from stridewright.codegen import launch
from stridewright.codegen.cli import app, gemm_commands
from stridewright.codegen.emulator import BankConflicts, DeadlockError, EmulationError, UnsupportedInstruction
from stridewright.kernels.config import GemmConfig, Problem


def call(*arguments: str) -> Any:
    """Run the application in this process."""
    return CliRunner().invoke(app, list(arguments))


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point in a process of its own."""
    code = "from stridewright.codegen.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


CONFLICT = BankConflicts("gemm.cu", 12, 340, "st.shared", 16, 4, 32, 16)


class FakeGemm:
    """A Gemm whose result, races and faults are chosen by the test."""

    source, ptx, cubin = "// source\n", "// ptx\n", b"cubin"
    build = None

    def __init__(self, wrong: float = 0.0, races: tuple[str, ...] = (), raises: Exception | None = None) -> None:
        self.m, self.n, self.k = 16, 24, 8
        self.config = GemmConfig().replace(problem=Problem(m=16, n=24, k=8))
        self.wrong, self.races, self.raises = wrong, races, raises

    def emulate(self, a: np.ndarray, b: np.ndarray) -> Any:
        if self.raises:
            raise self.raises
        d = (a.astype(np.float64) @ b.astype(np.float64).T).astype(a.dtype)
        d[3, 5] = d[3, 5] + d.dtype.type(self.wrong)
        whole = SimpleNamespace(instructions=1000, seconds=0.25, translate_seconds=0.125)
        return SimpleNamespace(d=d, races=self.races, conflicts=(CONFLICT,), timeline=None, result=whole)

    def explain(self, device: Any) -> str:
        return f"because of the {device.name}"


def fake(monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    monkeypatch.setattr(gemm_commands, "make_gemm", lambda *options, **named: FakeGemm(**given))


GEMM = ("gemm", "16", "24", "8", "--on", "emulator")


def test_right_result_is_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    done = call(*GEMM, "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert report["checked"] is True
    assert report["races"] == []
    assert report["relative_error"] < 2**-8
    promised = {"arch", "on", "config", "seconds", "relative_error", "max_abs_error", "checked", "races"}
    assert promised | {"bank_conflicts", "tflops"} <= set(report)
    assert {"generate", "compile", "run"} <= set(report["seconds"])
    assert (report["arch"], report["on"], report["tflops"]) == ("sm_90a", "emulator", None)
    (conflict,) = report["bank_conflicts"]
    assert (conflict["line"], conflict["ratio"], conflict["conflicts"]) == (12, 2.0, 16)
    assert (report["instructions"], report["seconds"]["run"], report["seconds"]["translate"]) == (1000, 0.25, 0.125)
    assert report["config"]["tile"] == {"m": 128, "n": 256, "k": 64}


def test_wrong_element_is_status_1_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, wrong=1.0)
    done = call(*GEMM, "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert report["elements_outside_bound"] == 1
    assert report["worst"].startswith("d[3, 5] is ")
    shown = call(*GEMM)
    assert shown.exit_code == 1
    assert "WRONG in 1 of 384 elements" in shown.stdout


def test_race_is_status_1_even_where_the_values_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, races=("bytes 0..15 written by the copy engine and read by warp 4 with no barrier between",))
    done = call(*GEMM, "--json")
    assert done.exit_code == 1
    assert len(json.loads(done.stdout)["races"]) == 1


@pytest.mark.parametrize("error", [DeadlockError("warp 0 waits for full[0], parity 1"), EmulationError("misaligned")])
def test_deadlock_or_fault_is_status_1_and_says_that_nothing_was_checked(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fake(monkeypatch, raises=error)
    done = call(*GEMM, "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert report["checked"] is False
    assert str(error) in report["reason"]
    assert report["fault"] == str(error)
    assert report["relative_error"] is None
    assert str(error) in call(*GEMM).stdout


def test_unknown_instruction_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, raises=UnsupportedInstruction("bfind.u32 is not modelled"))
    done = call(*GEMM)
    assert done.exit_code == 2
    assert done.stderr == "error: bfind.u32 is not modelled\n"


def test_bug_is_no_success_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, raises=ZeroDivisionError("division by zero"))
    done = call(*GEMM)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: internal error, please report it: ZeroDivisionError")


def test_integers_must_be_bit_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    assert json.loads(call(*GEMM, "--json", "--values", "integers").stdout)["bit_exact"] is True


def test_gpu_that_is_not_there_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "gpu_available", lambda arch=None: (False, "no NVIDIA driver is installed"))
    done = call("gemm", "16", "24", "8", "--on", "gpu")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: --on gpu: no NVIDIA driver is installed; --on emulator")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gemm", "0", "8", "8"), "m=0: must be at least 1"),
        (("gemm", "8", "8", "8", "--dtype", "f32"), "f32"),
        (("gemm", "8", "8", "8", "--dtype", "bf17"), "bf17"),
        (("gemm", "8", "8", "8", "--arch", "sm_80"), "sm_80"),
        (("gemm", "256", "256", "64", "--set", "tile_n=204"), "tile_n=204: must be a multiple of 8"),
        (("gemm", "256", "256", "64", "--set", "tile_n=200", "--set", "tile_m=256", "--set", "consumers=1"), "tile"),
        (("gemm", "256", "256", "64", "--set", "tile_m=256", "--set", "tile_n=256", "--set", "stages=8"), "stages"),
        (("gemm", "2000000000", "8", "8", "--on", "emulator"), "GiB of host memory"),
        (("gemm", "8", "8", "8", "--set", "tile_n"), "must be NAME=VALUE"),
        (("gemm", "8", "8", "8", "--set", "colour=5"), "colour"),
        (("layout", "(4,8"), "(4,8"),
        (("layout", "(4,8):(1)"), "form"),
        (("layout", "(4,8)", "--swizzle", "3,3"), "must be three integers B,M,S"),
        (("layout", "(4,8)", "--swizzle", "3,3,1"), "overlap"),
        (("banks", "(32):(1)", "--op", "read"), "must be one of"),
        (("emulate", "absent.ptx"), "absent.ptx"),
        (("gemm", "8", "8", "8", "--seed=-1"), "--seed -1: must be a whole number from 0 up"),
        (("gemm", "8", "8", "8", "--arch", ""), "must name an architecture"),
        (("gemm", "8", "8", "8", "--set", "tile=3"), "tile=3: must be a Tile; tile_m, tile_n, tile_k change it"),
        (("gemm", "8", "8", "8", "--set", "schedule=pingpong"), "schedule='pingpong': must be a Schedule"),
        (("gemm", "8", "8", "8", "--set", "swap=yes"), "swap='yes': must be 0 or 1"),
        (("cache", "show", "zzz"), "0 entries"),
    ],
)
def test_refused_input_is_status_2_with_one_message(arguments: tuple[str, ...], said: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("gemm", "8.5", "8", "8"), ("gemm", "8", "8"), ("gemm", "8", "8", "8", "--on", "tpu")]
)
def test_malformed_command_is_status_2(arguments: tuple[str, ...]) -> None:
    assert call(*arguments).exit_code == 2


def test_negative_size_is_told_apart_from_an_option() -> None:
    done = process("gemm", "-5", "8", "8")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: -5 is no size: sizes are whole numbers from 1 up\n"


def test_refusal_with_json_is_an_object_too() -> None:
    done = call("gemm", "0", "8", "12", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 2
    assert report["checked"] is False
    assert "m=0" in report["error"]


def test_cache_folder_that_cannot_be_written_is_status_2_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = process(
        "gemm", "64", "64", "64", "--on", "emulator", STRIDEWRIGHT_CACHE_DIR=str(tmp_path / "file" / "cache")
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "STRIDEWRIGHT_CACHE_DIR" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_missing_compiler_is_status_2_and_names_the_pip_command(tmp_path: Path) -> None:
    (tmp_path / "libnvrtc.so.13").write_bytes(b"")
    done = process("gemm", "64", "64", "64", "--on", "emulator", STRIDEWRIGHT_NVRTC=str(tmp_path / "libnvrtc.so.13"))
    assert done.returncode == 2
    assert "pip install 'stridewright[nvrtc]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_reader_that_goes_away_is_no_error() -> None:
    code = "from stridewright.codegen.cli import main; main()"
    command = f'"{sys.executable}" -c "{code}" layout "(64,64):(1,64)" | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "(64,64):(1,64)\n"


def test_version_is_shown() -> None:
    import stridewright

    assert call("--version").stdout == f"stridewright {stridewright.__version__}\n"


def test_traceback_is_shown_where_it_is_asked_for() -> None:
    done = process("layout", "(4,8", STRIDEWRIGHT_TRACEBACK="1")
    assert "Traceback" in done.stderr


def test_emit_writes_whole_files_of_each_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(monkeypatch)
    assert call("emit", "16", "24", "8").stdout == "// source\n\n"
    assert call("emit", "16", "24", "8", "--ptx").stdout == "// ptx\n\n"
    assert call("emit", "16", "24", "8", "--cubin").exit_code == 2
    done = call("emit", "16", "24", "8", "-o", str(tmp_path / "gemm.cu"), "--ptx", "--cubin")
    assert done.exit_code == 0
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"gemm.cu": b"// source\n", "gemm.ptx": b"// ptx\n", "gemm.cubin": b"cubin"}
    only = tmp_path / "only"
    only.mkdir()
    assert call("emit", "16", "24", "8", "-o", str(only / "k.ptx")).exit_code == 0
    assert [path.name for path in only.iterdir()] == ["k.ptx"]


def test_emit_into_a_folder_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(monkeypatch)
    done = call("emit", "16", "24", "8", "-o", str(tmp_path / "absent" / "gemm.cu"))
    assert done.exit_code == 2
    assert "absent" in done.stderr


def test_emit_over_a_folder_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(monkeypatch)
    done = call("emit", "16", "24", "8", "-o", str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr == f"error: {tmp_path}: is a folder; give the name of a file in it\n"
    assert list(tmp_path.iterdir()) == []
    done = call("emit", "16", "24", "8", "-o", str(tmp_path / "absent" / "gemm.cu"))
    assert done.stderr.startswith(f"error: {tmp_path / 'absent'}: nothing can be written into this folder")


def test_a_file_that_is_no_text_is_no_ptx(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cubin"
    path.write_bytes(b"\x7fELF\xbe\xff")
    done = call("emulate", str(path))
    assert done.exit_code == 2
    assert "kernel.cubin: is no text, and PTX is" in done.stderr


def test_explain_prints_the_derivation(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    assert call("explain", "16", "24", "8").stdout == "because of the H200\n"
    report = json.loads(call("explain", "16", "24", "8", "--device", "h100", "--json").stdout)
    assert report["explanation"] == "because of the H100"
    assert call("explain", "16", "24", "8", "--device", "abacus").exit_code == 2
