"""Runs the code blocks of a guide page, and says what each printed and showed.

A page's blocks run one after another in one namespace, as a reader would type them. What stands after the language says how:

    ```python               run and shown, then what it prints and what its last expression shows
    ```python hide          run, only its result is shown
    ```python raises        run and shown; it must raise, and the message is shown
    ```python quiet         run and shown, its result is not
    ```python norun WHY     shown only (it needs a GPU, say); it must at least be Python
    ```sh                   lines that begin with `stridewright` are run; `# status 2` after one is the exit status it must have
    ```sh quiet, norun WHY  as above

Used by hooks.py, when the guide is built, and by tests/notebooks/test_guide.py.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"

_FENCE = re.compile(r"^```(python|sh)([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_WAYS = ("", "hide", "raises", "quiet", "norun")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, how it is run, its source, and its line in the page."""

    language: str
    way: str
    source: str
    line: int


@dataclass(frozen=True)
class Result:
    """What a block printed, and the value of its last expression (None for none)."""

    printed: str = ""
    value: Any = None


class BlockError(RuntimeError):
    """A block that did not do what its fence says."""


def blocks(page: str) -> Iterator[tuple[Block, tuple[int, int]]]:
    """The blocks of a page with their places in it.

    >>> [(block.way, block.source) for block, _ in blocks("```python hide\\n1 + 1\\n```\\n")]
    [('hide', '1 + 1\\n')]
    """
    for found in _FENCE.finditer(page):
        language, how, source = found.groups()
        way, _, why = how.strip().partition(" ")
        line = page.count("\n", 0, found.start()) + 1
        if way not in _WAYS or (way == "norun") != bool(why.strip()):
            raise BlockError(f"line {line}: ```{language}{how}: must be hide, raises, quiet, or norun with a reason")
        yield Block(language, way, source, line), found.span()


class Page:
    """The namespace in which a page's blocks run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: dict[str, Any] = {"__name__": "guide", "ROOT": ROOT, "RESULTS": RESULTS}
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)

    def run(self, block: Block) -> Result:
        """What a block gives. Raises BlockError, with the page and line, where it fails or does not raise what it must."""
        try:
            return self._python(block) if block.language == "python" else self._shell(block)
        except BlockError:
            raise
        except Exception as error:
            raise BlockError(f"{self.name}, line {block.line}: {type(error).__name__}: {error}") from error

    def _python(self, block: Block) -> Result:
        tree = ast.parse(block.source)
        if block.way == "norun":
            return Result()
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, value = io.StringIO(), None
        where = f"{self.name}, line {block.line}"
        with contextlib.redirect_stdout(printed), _inside(self.folder):
            try:
                exec(compile(tree, where, "exec"), self.names)
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), where, "eval"), self.names)
            except Exception as error:
                if block.way != "raises":
                    raise
                return Result(printed.getvalue() + f"{type(error).__name__}: {error}\n")
        if block.way == "raises":
            raise BlockError(f"{where}: it raised nothing")
        return Result(printed.getvalue(), value)

    def _shell(self, block: Block) -> Result:
        from stridewright.codegen.cli import app
        from typer.testing import CliRunner

        if block.way == "norun":
            return Result()
        printed = []
        for line in block.source.splitlines():
            command, _, comment = line.partition("  #")
            if not command.startswith("stridewright "):
                raise BlockError(
                    f"{self.name}, line {block.line}: {command!r} is no stridewright command; say norun and why"
                )
            with _inside(self.folder):
                done = CliRunner().invoke(app, shlex.split(command)[1:])
            wanted = int(found[1]) if (found := re.search(r"status (\d)", comment)) else 0
            if done.exit_code != wanted:
                raise BlockError(f"{self.name}, line {block.line}: {command}: status {done.exit_code}\n{done.output}")
            printed.append(done.output)
        return Result("".join(printed))


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Files that a block writes go into a folder of its own."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def rewritten(page: str, name: str, show: Callable[[Block, Result], str]) -> str:
    """The page with every block replaced by what ``show`` makes of it and its result."""
    running = Page(name)
    parts, end = [], 0
    for block, (start, stop) in blocks(page):
        parts += [page[end:start], show(block, running.run(block))]
        end = stop
    return "".join([*parts, page[end:]])
