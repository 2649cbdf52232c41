"""The guide's code runs and does what its pages say, its links lead somewhere, and nothing in it is stored that code can make."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "notebooks" / "guide"
PAGES = sorted((GUIDE / "pages").rglob("*.md"))


def runner() -> ModuleType:
    """notebooks/guide/blocks.py as a module."""
    name = "stridewright_guide_blocks"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, GUIDE / "blocks.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def run(text: str) -> list[Any]:
    """The results of a page's blocks."""
    found: list[Any] = []
    runner().rewritten(text, "page.md", lambda block, result: found.append(result) or "")
    return found


every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(GUIDE / "pages")))


@every_page
def test_the_blocks_of_every_page_run(path: Path) -> None:
    results = run(path.read_text(encoding="utf-8"))
    for result in results:
        assert (
            result.value is None
            or isinstance(result.value, int | str | tuple | list)
            or (hasattr(result.value, "_repr_html_") or hasattr(result.value, "_repr_markdown_"))
        )


def test_the_guide_shows_and_asserts() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
    cookbook = [path for path in PAGES if path.parent.name == "cookbook"]
    assert len(cookbook) >= 6
    for path in cookbook:
        assert "assert " in texts[path.name] or "raises" in texts[path.name], path
    for name in ("transpose.md", "deadlock.md", "which-swizzle.md", "race.md"):
        assert texts[name].count("assert ") >= 2, name


@every_page
def test_links_lead_to_pages_and_headings_that_are_there(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert not target.startswith("http"), f"{target}: the guide is whole without a network"
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings]
            assert anchor in slugs, target


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"\b([\w/-]+\.md)$", (GUIDE / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(path.relative_to(GUIDE / "pages")) for path in PAGES)


def test_no_picture_is_stored() -> None:
    kinds = {path.suffix for path in GUIDE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert kinds <= {".md", ".py", ".yml", ".css", ".js"}
    assert not any("<svg" in path.read_text(encoding="utf-8") for path in PAGES)


# -- the runner itself -------------------------------------------------------------------------------------------------


def test_what_a_block_prints_and_shows() -> None:
    first, second = run("```python\nx = 2\nprint('two')\nx\n```\ntext\n```python hide\nx + 1\n```\n")
    assert (first.printed, first.value, second.value) == ("two\n", 2, 3)


def test_a_block_that_fails_is_named_with_its_page_and_line() -> None:
    with pytest.raises(runner().BlockError, match=r"page.md, line 3: AssertionError"):
        run("a\n\n```python\nassert 1 == 2\n```\n")


def test_a_block_that_must_raise_and_does_not() -> None:
    assert run("```python raises\n1 / 0\n```\n")[0].printed.startswith("ZeroDivisionError")
    with pytest.raises(runner().BlockError, match="it raised nothing"):
        run("```python raises\n1 / 1\n```\n")


@pytest.mark.parametrize("fence", ["python norun", "python sometimes", "sh norun", "python hide why"])
def test_fences_that_mean_nothing(fence: str) -> None:
    with pytest.raises(runner().BlockError, match="must be hide, raises, quiet, or norun with a reason"):
        run(f"```{fence}\n1\n```\n")


def test_what_is_not_run_must_still_be_python() -> None:
    assert run("```python norun it needs a GPU\nimport torch\n```\n")[0].value is None
    with pytest.raises(runner().BlockError, match="SyntaxError"):
        run("```python norun it needs a GPU\nimport import\n```\n")


def test_commands_have_the_status_that_the_page_says() -> None:
    assert "stridewright" not in run("```sh\nstridewright banks '32:4'\n```\n")[0].printed
    assert run("```sh\nstridewright layout '(4'  # status 2\n```\n")
    with pytest.raises(runner().BlockError, match="status 2"):
        run("```sh\nstridewright layout '(4'\n```\n")
    with pytest.raises(runner().BlockError, match="no stridewright command"):
        run("```sh\nrm -rf build\n```\n")
