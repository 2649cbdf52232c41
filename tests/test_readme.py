"""README: its code runs, its numbers are those of the recorded results, its commands exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from stridewright.codegen.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def tour_commands() -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("stridewright ")]


def readme_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "benchmarks/readme_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_are_those_of_the_recorded_results() -> None:
    assert readme_table().with_numbers(README) == README, "run: python benchmarks/readme_table.py --write"


def test_python_blocks_run_one_after_another() -> None:
    names: dict[str, object] = {}
    assert len(blocks("python")) >= 2
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert names["r"].races == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", tour_commands())
def test_commands_of_the_tour_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output


def test_every_command_that_is_named_exists() -> None:
    named = set(re.findall(r"(?:^|`|/bin/)stridewright ([a-z]+)", README, re.MULTILINE))
    assert named
    existing = set(re.findall(r"^│ ([a-z]+) ", CliRunner().invoke(app, ["--help"]).stdout, re.MULTILINE))
    assert named <= existing, named - existing
