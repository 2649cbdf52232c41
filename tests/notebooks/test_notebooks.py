"""The notebooks run, assert what they say, give the same twice, are stored without outputs, and quote what was measured.

Here each cell is run as plain Python, so that this needs nothing but the package; CI also runs them in a Jupyter kernel.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))
SECONDS = 15

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[str]:
    """The sources of the code cells of a jupytext percent script."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [source for mark, source in zip(parts[::2], parts[1::2], strict=True) if "[markdown]" not in mark]


def run(path: Path) -> tuple[list[str], dict[str, Any]]:
    """What each cell prints and shows, and the names defined at the end."""
    names: dict[str, Any] = {"__name__": "notebook"}
    outputs = []
    for number, source in enumerate(code_cells(path)):
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), f"{path.name}, cell {number}", "eval"), names)
                if shown is not None:
                    printed.write(shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown))
        outputs.append(printed.getvalue())
    return outputs, names


def test_the_notebooks_are_there() -> None:
    found = [path.stem[:2] for path in NOTEBOOKS]
    assert set(found) >= {"01", "02", "03", "04", "06", "07", "08"}
    assert len(found) == len(set(found))


@every_notebook
def test_it_runs_twice_with_the_same_outputs_in_time(path: Path) -> None:
    start = time.perf_counter()
    first, _ = run(path)
    assert time.perf_counter() - start < SECONDS
    second, _ = run(path)
    assert first == second
    assert sum("<svg" in output for output in first) > 1


@every_notebook
def test_every_cell_asserts_or_only_shows(path: Path) -> None:
    for source in code_cells(path):
        tree = ast.parse(source)
        if any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(tree)):
            continue
        # A cell without an assertion claims nothing: imports, definitions, and a picture.
        *body, last = tree.body
        assert all(isinstance(node, ast.Import | ast.ImportFrom | ast.Assign) for node in body), source
        assert isinstance(last, ast.ImportFrom | ast.Expr), source
        assert "print" not in source


def test_no_outputs_are_stored() -> None:
    assert list(FOLDER.rglob("*.ipynb")) == []
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert "format_name: percent" in text
        assert "<svg" not in text.replace('startswith("<svg")', "")


def test_what_is_called_measured_was_measured() -> None:
    patterns = json.loads((ROOT / "tests" / "data" / "h200" / "banks.json").read_text(encoding="utf-8"))["patterns"]
    _, names = run(FOLDER / "03_bank_conflicts.py")
    for what, op, size, offsets, wavefronts in names["MEASURED"]:
        # The size of ldmatrix and stmatrix counts matrices there.
        recorded = 4 if op.endswith("matrix") else size
        found = [
            p["wavefronts"]
            for p in patterns
            if (p["instruction"], p.get("size"), p.get("active")) == (op, recorded, 0xFFFFFFFF)
            and [o - p["offsets"][0] for o in p["offsets"]] == [o - offsets[0] for o in offsets]
        ]
        assert found, f"no such pattern was measured: {what}"
        assert set(found) == {wavefronts}, what


def test_wgmma_operand_reads_were_measured_free_of_conflicts() -> None:
    data = json.loads((ROOT / "tests" / "data" / "h200" / "banks.json").read_text(encoding="utf-8"))
    reads = [p for p in data["patterns"] if p["instruction"] == "wgmma"]
    per_instruction = {p["counters"]["wavefronts_gmma"] / data["unroll"] for p in reads}
    # An A of 64 rows of 32 bytes is 16 times 8 rows of 16 bytes; beside it a B of 8 rows is 2 more. B of 128 rows: 32.
    assert per_instruction == {16 + 2, 32}
    assert len({(p["swizzle"], p["lbo"], p["sbo"]) for p in reads}) > 5
