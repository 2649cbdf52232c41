"""A small SVG writer: rectangles, texts, lines and groups, escaped, with tooltips and data attributes.

It keeps the extent of what was drawn, so that a view never states its own size. Texts carry their size and anchor as
attributes and stand in a font of one width, so that their boxes can be computed from the file alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from .style import CHARACTER

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;"}


def escape(value: object) -> str:
    """The text for use inside XML, also in an attribute; characters that XML forbids are replaced.

    >>> escape('a<b & "c"')
    'a&lt;b &amp; &quot;c&quot;'
    """
    return _FORBIDDEN.sub("\ufffd", str(value)).translate(_ESCAPES)


def number(value: float) -> str:
    """A coordinate in as few characters as needed, to a tenth.

    >>> number(3.0), number(2.25)
    ('3', '2.2')
    """
    if type(value) is int:
        return str(value)
    rounded = round(value, 1)
    return str(int(rounded)) if rounded == int(rounded) else str(rounded)


def text_width(text: str, size: float) -> float:
    """The estimated width of a text.

    >>> text_width("abcd", 10)
    24.4
    """
    return CHARACTER * size * len(text)


def _attributes(data: Mapping[str, object] | None) -> str:
    return "".join(f' data-{name}="{escape(value)}"' for name, value in data.items()) if data else ""


class Canvas:
    """SVG elements in the making. ``width`` and ``height`` reach as far as anything drawn."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = 0.0
        self.height = 0.0

    def reach(self, x: float, y: float) -> None:
        """Make the picture at least that large."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        tip: str | None = None,
        data: Mapping[str, object] | None = None,
        radius: float = 0,
    ) -> None:
        """A rectangle of class ``kind``, with a tooltip and data attributes."""
        self.reach(x + width, y + height)
        start = f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        if radius:
            start += f' rx="{number(radius)}"'
        start += f' class="{kind}"{_attributes(data)}'
        self.parts.append(f"{start}/>" if tip is None else f"{start}><title>{escape(tip)}</title></rect>")

    def text(self, x: float, y: float, text: object, size: float = 12, kind: str = "", anchor: str = "start") -> None:
        """A line of text with its baseline at ``y``; ``anchor`` start, middle or end."""
        words = str(text)
        width = text_width(words, size)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        self.reach(left + width, y + 0.3 * size)
        start = f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
        if kind:
            start += f' class="{kind}"'
        if anchor != "start":
            start += f' text-anchor="{anchor}"'
        self.parts.append(f"{start}>{escape(words)}</text>")

    def path(self, d: str, kind: str) -> None:
        """A path; it does not count for the picture's extent."""
        self.parts.append(f'<path d="{d}" class="{kind}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A straight line."""
        self.reach(max(x1, x2), max(y1, y2))
        self.path(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", kind)

    def arrow(self, x1: float, y1: float, x2: float, y2: float, kind: str = "arrow") -> None:
        """A line bent smoothly from one height to another, with an arrowhead pointing down or up at its end."""
        middle = (y1 + y2) / 2
        head = 4 if y2 > y1 else -4
        self.path(
            f"M{number(x1)} {number(y1)}C{number(x1)} {number(middle)} {number(x2)} {number(middle)}"
            f" {number(x2)} {number(y2)}M{number(x2 - 3)} {number(y2 - head)}L{number(x2)} {number(y2)}"
            f"L{number(x2 + 3)} {number(y2 - head)}",
            kind,
        )

    @contextmanager
    def group(self, kind: str = "", tip: str | None = None, data: Mapping[str, object] | None = None) -> Iterator[None]:
        """Everything drawn inside belongs to one ``<g>``."""
        start = f'<g class="{kind}"' if kind else "<g"
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(f"{start}{_attributes(data)}>{title}")
        yield
        self.parts.append("</g>")

    def cell(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        label: str = "",
        tip: str | None = None,
        size: float = 11,
        data: Mapping[str, object] | None = None,
        ink: str = "on",
    ) -> None:
        """A filled cell with its label in the middle."""
        self.rect(x, y, width, height, f"cell {kind}", tip, data)
        if label:
            self.text(x + width / 2, y + height / 2 + 0.35 * size, label, size, ink, "middle")

    def legend(self, x: float, y: float, entries: list[tuple[str, str]], size: float = 11, limit: float = 900) -> float:
        """Squares with what they mean, left to right, wrapped at ``limit``. Returns the height below the last line."""
        left = x
        for kind, meaning in entries:
            width = 20 + text_width(meaning, size) + 16
            if left > x and left + width > limit:
                left, y = x, y + 18
            self.rect(left, y, 13, 13, f"swatch {kind}")
            self.text(left + 19, y + 10.5, meaning, size, "faint")
            left += width
        return y + 18
