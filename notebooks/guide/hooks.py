"""What MkDocs calls while it builds the guide: code blocks are run, pictures put in, and the reference's lists made.

Pictures are put in last, into the finished page: they are no text to be searched, and Markdown has no business in them.
"""

from __future__ import annotations

import html
import importlib
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from blocks import Block, Result, rewritten

_pictures: dict[str, list[str]] = {}


def _show(page: str, block: Block, result: Result) -> str:
    """A block and its result, in Markdown."""
    parts = [] if block.way == "hide" else [f"```{block.language}\n{block.source}```"]
    if block.way == "quiet":
        return parts[0]
    if result.printed:
        lines = result.printed.splitlines()
        # A few long lines are a message, to be read; many are a table, to be scrolled.
        prose = " .sw-prose" if len(lines) <= 10 and max(map(len, lines)) > 100 else ""
        parts.append(f"```{{.text .sw-result{prose}}}\n{result.printed.rstrip()}\n```")
    value = result.value
    if hasattr(value, "_repr_html_"):
        pictures = _pictures.setdefault(page, [])
        text = html.escape(value.text() if hasattr(value, "text") else str(value))
        pictures.append(
            f'<div class="sw-figure">{_fitted(value._repr_html_())}<details class="sw-text"><summary>As text</summary>'
            f"<pre>{text}</pre></details></div>"
        )
        parts.append(f'<div data-picture="{len(pictures) - 1}"></div>')
    elif hasattr(value, "_repr_markdown_"):
        parts.append(value._repr_markdown_())
    elif value is not None:
        parts.append(f"```{{.text .sw-result}}\n{value!r}\n```")
    return "\n\n".join(parts)


def _fitted(picture: str) -> str:
    """The picture made a little smaller where it is a little too wide; beyond that it scrolls."""

    def style(found: re.Match[str]) -> str:
        width = float(found[1])
        return f'{found[0]} style="width:{width:g}px;max-width:100%;min-width:{0.86 * width:g}px;height:auto"'

    return re.sub(r'<svg [^>]*?\bwidth="([\d.]+)"', style, picture, count=1)


def _members(found: re.Match[str]) -> str:
    """A directive for each public name of a module, in the order of its __all__."""
    module = importlib.import_module(found[1])
    hidden = set(found[2].split()) if found[2] else set()
    names = [name for name in module.__all__ if name not in hidden]
    return "\n\n".join(f"::: {found[1]}.{name}" for name in names)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Blocks are run; `<!-- api: MODULE -->` becomes the reference of all that the module exports."""
    name = page.file.src_uri
    _pictures.pop(name, None)
    made = rewritten(markdown, name, lambda block, result: _show(name, block, result))
    return re.sub(r"<!-- api: ([\w.]+)(?: except ([\w ]+))? -->", _members, made)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The pictures."""
    pictures = _pictures.get(page.file.src_uri, [])
    return re.sub(r'<div data-picture="(\d+)"></div>', lambda found: pictures[int(found[1])], output)
