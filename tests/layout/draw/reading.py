"""Reading a picture back: its elements with their places on the page, and the boxes that its texts need."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from stridewright.layout.draw import Drawing

SVG = "{http://www.w3.org/2000/svg}"
# The widest of the style sheet's fonts, DejaVu Sans Mono, is 0.602 em wide; its letters reach from 0.76 em above to
# 0.24 em below the baseline, digits and capitals to 0.73 em above.
EM_WIDTH, ABOVE, BELOW = 0.602, 0.73, 0.05


@dataclass(frozen=True)
class Element:
    """An element and where the groups around it move it to."""

    tag: str
    kind: str
    x: float
    y: float
    attributes: dict[str, str]
    text: str
    tip: str

    @property
    def classes(self) -> set[str]:
        return set(self.kind.split())


def root(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.svg())


def _walk(node: ElementTree.Element, dx: float, dy: float) -> Iterator[Element]:
    for child in node:
        tag = child.tag.removeprefix(SVG)
        if tag in ("title", "style"):
            continue
        x, y = dx, dy
        moved = re.fullmatch(r"translate\(([-\d.]+),([-\d.]+)\)", child.get("transform", ""))
        if moved:
            x, y = dx + float(moved[1]), dy + float(moved[2])
        title = child.find(f"{SVG}title")
        words = (child.text or "") + "".join(c.tail or "" for c in child)
        place = (x + float(child.get("x", 0)), y + float(child.get("y", 0)))
        tip = "" if title is None else title.text or ""
        yield Element(tag, child.get("class", ""), *place, dict(child.attrib), words, tip)
        if tag == "g":
            yield from _walk(child, x, y)


def elements(drawing: Drawing, tag: str = "", kind: str = "") -> list[Element]:
    found = _walk(root(drawing), 0, 0)
    return [e for e in found if tag in ("", e.tag) and (not kind or kind in e.classes)]


def label_of_cells(drawing: Drawing) -> list[tuple[Element, str]]:
    """Every cell with the text that stands in its middle, "" if none does."""
    texts = {
        (round(t.x), round(t.y - 0.35 * float(t.attributes["font-size"]))): t.text for t in elements(drawing, "text")
    }
    result = []
    for cell in elements(drawing, "rect", "cell"):
        x, y = cell.x + float(cell.attributes["width"]) / 2, cell.y + float(cell.attributes["height"]) / 2
        near = [texts.get((round(x) + i, round(y) + j)) for i in (0, -1, 1) for j in (0, -1, 1)]
        result.append((cell, next((text for text in near if text is not None), "")))
    return result


@dataclass(frozen=True)
class Box:
    """The area that a text's letters cover."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


def text_boxes(drawing: Drawing) -> list[Box]:
    boxes = []
    for e in elements(drawing, "text"):
        size = float(e.attributes["font-size"])
        width = EM_WIDTH * size * len(e.text)
        left = e.x - {"start": 0.0, "middle": width / 2, "end": width}[e.attributes.get("text-anchor", "start")]
        boxes.append(Box(left, e.y - ABOVE * size, left + width, e.y + BELOW * size, e.text))
    return boxes


def overlaps(drawing: Drawing) -> list[tuple[Box, Box]]:
    """Pairs of texts whose letters would cover each other by more than rounding."""
    boxes = sorted(text_boxes(drawing), key=lambda box: box.left)
    found, open_boxes = [], []
    for box in boxes:
        open_boxes = [other for other in open_boxes if other.right - 0.2 > box.left]
        found += [(other, box) for other in open_boxes if other.top < box.bottom - 0.2 and box.top < other.bottom - 0.2]
        open_boxes.append(box)
    return found


def beyond_the_edge(drawing: Drawing) -> list[Box]:
    width, height = (float(root(drawing).get(name, "0")) for name in ("width", "height"))
    return [b for b in text_boxes(drawing) if b.left < 0 or b.top < 0 or b.right > width or b.bottom > height]


def outline(drawing: Drawing) -> str:
    """The structure of a picture: how many elements of each tag and class, its facts and its size, one a line."""
    top = root(drawing)
    counts = Counter(f"{e.tag}.{'.'.join(sorted(e.classes)) or '-'}" for e in elements(drawing))
    facts = [f"{name} = {value}" for name, value in sorted(top.attrib.items()) if name.startswith("data-")]
    return (
        "\n".join(
            [
                f"size {top.get('width')} x {top.get('height')}",
                *facts,
                *(f"{n:>5} {k}" for k, n in sorted(counts.items())),
            ]
        )
        + "\n"
    )
