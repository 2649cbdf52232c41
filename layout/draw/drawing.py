"""The finished picture: SVG, a page, text, and how a notebook shows it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType

from .canvas import Canvas, escape, number
from .style import STYLE

MARGIN = 12


@dataclass(frozen=True)
class Drawing:
    """A picture. ``title``: what it shows, also read out by screen readers; ``body``: its SVG elements; ``width`` and
    ``height`` in pixels at scale 1; ``words``: its text form; ``facts``: the numbers it states, which the SVG carries as
    data attributes of its root.
    """

    title: str
    body: str
    width: float
    height: float
    words: str
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @staticmethod
    def of(title: str, canvas: Canvas, words: str, facts: Mapping[str, object] | None = None) -> Drawing:
        """The picture on a canvas."""
        return Drawing(
            title,
            "".join(canvas.parts),
            ceil(canvas.width),
            ceil(canvas.height),
            words,
            MappingProxyType(dict(facts or {})),
        )

    def svg(self) -> str:
        """The SVG document, which needs nothing else; it follows the reader's light or dark scheme.

        >>> from stridewright.layout import Layout
        >>> from stridewright.layout.draw import layout_card
        >>> layout_card(Layout((2, 2))).svg()[:4]
        '<svg'
        """
        width, height = number(self.width + 2 * MARGIN), number(self.height + 2 * MARGIN)
        data = "".join(f' data-{name}="{escape(value)}"' for name, value in self.facts.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="sw" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" font-family="monospace" role="img"{data}>'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>"
            f'<rect width="{width}" height="{height}" class="paper"/>'
            f'<g transform="translate({MARGIN},{MARGIN})">{self.body}</g></svg>'
        )

    def html(self) -> str:
        """A page of its own with the picture and, folded away, its text form.

        >>> from stridewright.layout import Layout
        >>> from stridewright.layout.draw import layout_card
        >>> "<details>" in layout_card(Layout((2, 2))).html()
        True
        """
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
            f"<title>{escape(self.title)}</title><style>body{{font-family:system-ui,sans-serif;margin:12px}}</style></head><body>{self._repr_html_()}"
            f"<details><summary>As text</summary><pre>{escape(self.words)}</pre></details></body></html>"
        )

    def text(self) -> str:
        """The same for a terminal."""
        return self.words

    def __str__(self) -> str:
        return self.words

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        # Notebooks show a bare SVG as an image, in which no tooltip opens; inside HTML it is part of the page.
        return f'<figure style="margin:0;overflow-x:auto">{self.svg()}</figure>'


def _join(drawings: tuple[Drawing, ...], across: bool, gap: float) -> Drawing:
    body, x, y, width, height = [], 0.0, 0.0, 0.0, 0.0
    facts: dict[str, object] = {}
    for i, drawing in enumerate(drawings):
        body.append(f'<g transform="translate({number(x)},{number(y)})">{drawing.body}</g>')
        width, height = max(width, x + drawing.width), max(height, y + drawing.height)
        if across:
            x += drawing.width + gap
        else:
            y += drawing.height + gap
        facts |= {f"{name}-{i}": value for name, value in drawing.facts.items()}
    title = "; ".join(drawing.title for drawing in drawings)
    words = "\n\n".join(drawing.words for drawing in drawings)
    return Drawing(title, "".join(body), width, height, words, MappingProxyType(facts))


def beside(*drawings: Drawing, gap: float = 36) -> Drawing:
    """The pictures side by side as one. A fact's name gets the number of its picture.

    >>> from stridewright.layout import Layout
    >>> from stridewright.layout.draw import layout_card
    >>> beside(layout_card(Layout(2)), layout_card(Layout(3))).facts["size-1"]
    3
    """
    return _join(drawings, True, gap)


def stack(*drawings: Drawing, gap: float = 28) -> Drawing:
    """The pictures one below the other as one. A fact's name gets the number of its picture.

    >>> from stridewright.layout import Layout
    >>> from stridewright.layout.draw import layout_card
    >>> sorted(stack(layout_card(Layout(2))).facts)[-1]
    'size-0'
    """
    return _join(drawings, False, gap)


def paragraph(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` characters.

    >>> paragraph("one two three", 8)
    ['one two', 'three']
    """
    return textwrap.wrap(text, width, break_long_words=True) or [""]
