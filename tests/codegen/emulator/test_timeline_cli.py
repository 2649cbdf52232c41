"""--timeline of the command line: a file that trace viewers read, and a summary."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from stridewright.codegen.cli import app

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) {
    .reg .b64 %a;
    ld.param.u64 %a, [p];
    bar.sync 0;
    st.global.u32 [%a], 7;
    ret;
}
"""


def test_gemm_writes_a_timeline(tmp_path: Path) -> None:
    file = tmp_path / "gemm.json"
    found = CliRunner().invoke(app, ["gemm", "128", "128", "64", "--timeline", str(file)])
    assert found.exit_code == 0, found.output
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    assert any(event["name"].startswith("wgmma m64n") for event in events)
    assert "model, not a measurement" in found.output


def test_json_stays_one_object(tmp_path: Path) -> None:
    file = tmp_path / "gemm.json"
    found = CliRunner().invoke(app, ["gemm", "128", "128", "64", "--timeline", str(file), "--json"])
    assert json.loads(found.output)["on"] == "emulator"
    assert file.exists()


def test_a_timeline_is_not_of_the_gpu(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["gemm", "128", "128", "64", "--on", "gpu", "--timeline", str(tmp_path / "x.json")])
    assert found.exit_code == 2
    assert "--on emulator" in found.output


def test_emulate_writes_a_timeline(tmp_path: Path) -> None:
    source, file = tmp_path / "k.ptx", tmp_path / "k.json"
    source.write_text(PTX, encoding="utf-8")
    found = CliRunner().invoke(
        app, ["emulate", str(source), "--block", "64", "--arg", "u32[4]=zeros", "--timeline", str(file)]
    )
    assert found.exit_code == 0, found.output
    assert json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
