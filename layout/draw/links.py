"""Hover that links: elements that share a name are outlined together while the pointer is on one of them.

An element names its links in ``data-link``, separated by spaces. The rules are CSS alone (``:has``, in every browser since
2023), so that they work in a notebook, in a page and in a file opened by itself; elsewhere the tooltips still say it all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .. import LayoutError
from .canvas import Canvas

MAXIMUM = 600
"""Names of one picture: each costs two rules, some 150 bytes."""


def link_name(text: object) -> str:
    """A name that fits into a selector.

    >>> link_name("full[0], phase 2")
    'full-0-phase-2'
    """
    return re.sub(r"[^0-9A-Za-z]+", "-", str(text)).strip("-")


def joined(names: Iterable[object]) -> dict[str, object] | None:
    """The data attribute of an element with these links, None for none.

    >>> joined(["a b", "c"])
    {'link': 'a-b c'}
    """
    spelled = " ".join(dict.fromkeys(link_name(name) for name in names))
    return {"link": spelled} if spelled else None


def add_rules(canvas: Canvas, names: Iterable[object]) -> None:
    """Put the rules for these names into the picture. Raises LayoutError for more than ``MAXIMUM``.

    >>> canvas = Canvas()
    >>> add_rules(canvas, ["a"])
    >>> canvas.parts[0][:34]
    '<style>.sw:has([data-link~="a"]:ho'
    """
    unique = list(dict.fromkeys(link_name(name) for name in names))
    if len(unique) > MAXIMUM:
        raise LayoutError(f"{len(unique)} linked things: a picture links at most {MAXIMUM}; show a part of it")
    rules = [
        f'.sw:has([data-link~="{name}"]:hover) rect[data-link~="{name}"]{{stroke:currentColor;stroke-width:2.2}}'
        for name in unique
    ]
    if rules:
        canvas.parts.append(f"<style>{''.join(rules)}</style>")
