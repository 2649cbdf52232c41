"""The house's order: imports point one way, relative inside a folder and absolute across, and modules stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORDER = ("layout", "kernels", "codegen")
LONGEST = 600


def sources(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import; relative ones with their leading dots."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield node.lineno, module
            if module == "stridewright":
                yield from ((node.lineno, f"stridewright.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("folder", ORDER)
def test_imports_point_from_codegen_to_kernels_to_layout(folder: str) -> None:
    allowed = ORDER[: ORDER.index(folder) + 1]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(folder)
        for line, name in imports(path)
        if name.startswith("stridewright.") and name.split(".")[1] in ORDER and name.split(".")[1] not in allowed
    ]
    assert not wrong


@pytest.mark.parametrize("folder", ORDER)
def test_relative_imports_stay_inside_their_folder(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(folder)
        for line, name in imports(path)
        if name.startswith(".") and len(name) - len(name.lstrip(".")) > len(path.relative_to(ROOT / folder).parts)
    ]
    assert not wrong


@pytest.mark.parametrize("folder", ORDER)
def test_folders_are_never_imported_as_top_level_modules(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(folder)
        for line, name in imports(path)
        if name.split(".")[0] in ORDER
    ]
    assert not wrong


def test_modules_stay_small() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in (*ORDER, "src", "tests", "benchmarks")
        for path in sources(folder)
    }
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST}


def test_library_prints_nothing() -> None:
    wrong = []
    for folder in ORDER:
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong
