"""Examples in docstrings as code: a run of lines from `>>>` to the next blank line becomes a fenced block.

Plain Markdown takes `>>>` for a quotation three deep.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?m)^(?P<indent>[ \t]*)>>> .*(?:\n(?P=indent).*\S.*)*")


def fenced(text: str) -> str:
    """The docstring with its examples in fences.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2"))
    Adds.
    <BLANKLINE>
    ```python
    >>> 1 + 1
    2
    ```
    """

    def fence(found: re.Match[str]) -> str:
        indent = found["indent"]
        lines = [line.replace("  # doctest: +SKIP", "") for line in found[0].splitlines()]
        return "\n".join([f"{indent}```python", *lines, f"{indent}```"])

    return _EXAMPLE.sub(fence, text)


class Doctests(griffe.Extension):
    """Rewrites every docstring when it has been read."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if not obj.is_alias and obj.docstring is not None:
            # Two backquotes, reST's way, are Markdown's too.
            obj.docstring.value = fenced(obj.docstring.value)
