"""Examples in docstrings as code: a run of lines from `>>>` to the next blank line becomes a fenced block. And roles as links.

Plain Markdown takes `>>>` for a quotation three deep, and does not know :func: and its like.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|meth|class|mod|attr|data|exc|obj):`~?([^`]+)`")
_EXAMPLE = re.compile(r"(?m)^(?P<indent>[ \t]*)>>> .*(?:\n(?P=indent).*\S.*)*")


def fenced(text: str) -> str:
    """The docstring with its examples in fences.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2")
    'Adds.\\n\\n```python\\n>>> 1 + 1\\n2\\n```'
    """

    def fence(found: re.Match[str]) -> str:
        indent = found["indent"]
        lines = [line.replace("  # doctest: +SKIP", "") for line in found[0].splitlines()]
        return "\n".join([f"{indent}```python", *lines, f"{indent}```"])

    return _EXAMPLE.sub(fence, text)


def linked(text: str, full: Callable[[str], str]) -> str:
    """The docstring with its roles as code that leads to what is named, where the reference has it. ``full``: a name's full path.

    >>> linked("Like :meth:`Gemm.bind`.", lambda name: f"codegen.{name}")
    'Like <autoref optional identifier="codegen.Gemm.bind"><code>Gemm.bind</code></autoref>.'
    """

    def link(found: re.Match[str]) -> str:
        name = found[1].strip()
        shown = name.rpartition(".")[2] if name.startswith((".", "stridewright.")) else name
        return f'<autoref optional identifier="{full(name)}"><code>{shown}</code></autoref>'

    return _ROLE.sub(link, text)


def _full(obj: Any, name: str) -> str:
    """The full path of a name in an object's docstring; the name itself where nothing of that name is known."""
    if name.startswith("."):
        return f"{obj.module.path.rpartition('.')[0]}{name}"
    first, dot, rest = name.partition(".")
    try:
        return f"{obj.resolve(first)}{dot}{rest}"
    except griffe.NameResolutionError:
        return name


class Doctests(griffe.Extension):
    """Rewrites every docstring when it has been read."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if not obj.is_alias and obj.docstring is not None:
            # Two backquotes, reST's way, are Markdown's too.
            obj.docstring.value = linked(fenced(obj.docstring.value), lambda name: _full(obj, name))
