"""The wait-for graph of a deadlock: who waits for which barrier, and who would have to complete it. Takes plain records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import LayoutError
from .canvas import Canvas, number, text_width
from .drawing import Drawing, paragraph
from .links import add_rules, joined

_LINE = 16.0
_GAP = 150.0  # between the columns, for the arrows
_CHARACTERS = 46


@dataclass(frozen=True)
class Node:
    """Threads, or a barrier: its name, what else is to be said, a line each, and its history for the tooltip."""

    name: str
    lines: tuple[str, ...] = ()
    history: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """From the node that cannot go on to the one that it needs. ``kind``: "waits" (threads for a barrier), "owes" (a barrier for threads that are known
    to arrive at it) or "supposed" (for threads that the kernel's structure says arrive there)."""

    source: str
    target: str
    kind: str
    tip: str = ""


def cycle(edges: Sequence[Edge]) -> list[str]:
    """The nodes of one cycle, in order; [] if there is none.

    >>> cycle([Edge("a", "b", "waits"), Edge("b", "c", "owes"), Edge("c", "b", "waits")])
    ['b', 'c']
    """
    following: dict[str, list[str]] = {}
    for edge in edges:
        following.setdefault(edge.source, []).append(edge.target)
    done: set[str] = set()
    for start in following:
        path: list[str] = []
        stack = [(start, iter(following.get(start, ())))]
        path.append(start)
        while stack:
            name, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                done.add(name)
                path.pop()
                stack.pop()
            elif target in path:
                return path[path.index(target) :]
            elif target not in done:
                path.append(target)
                stack.append((target, iter(following.get(target, ()))))
    return []


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def _column(nodes: Sequence[Node]) -> list[list[str]]:
    return [[line for text in node.lines for line in paragraph(text, _CHARACTERS)] for node in nodes]


def _draw(canvas: Canvas, nodes: Sequence[Node], x: float, y: float, style: str) -> dict[str, _Box]:
    texts = _column(nodes)
    width = max(
        [text_width(node.name, 13) for node in nodes] + [text_width(line, 11) for lines in texts for line in lines]
    )
    boxes = {}
    for node, lines in zip(nodes, texts, strict=True):
        height = 26 + _LINE * len(lines) + (6 if lines else 0)
        tip = "\n".join([node.name, *node.lines, *(["last operations:", *node.history] if node.history else [])])
        canvas.rect(x, y, width + 24, height, style, tip, joined([node.name]), radius=6 if style == "box" else 0)
        canvas.text(x + 12, y + 19, node.name, 13, "bold")
        for i, line in enumerate(lines):
            canvas.text(x + 12, y + 37 + _LINE * i, line, 11, "faint")
        boxes[node.name] = _Box(x, y, width + 24, height)
        y += height + 24
    return boxes


def wait_graph(
    threads: Sequence[Node],
    barriers: Sequence[Node],
    edges: Sequence[Edge],
    title: str = "deadlock",
    notes: Sequence[str] = (),
) -> Drawing:
    """Threads on the left, barriers on the right; an arrow leads from who cannot go on to what it needs. The arrows of a cycle are drawn thick.

    Raises LayoutError for no threads and for an edge between nodes that are not there.

    >>> view = wait_graph([Node("producer"), Node("consumer")], [Node("full"), Node("empty")], [
    ...     Edge("producer", "empty", "waits"), Edge("empty", "consumer", "supposed"),
    ...     Edge("consumer", "full", "waits"), Edge("full", "producer", "supposed")])
    >>> view.facts["cycle"]
    'producer > empty > consumer > full'
    """
    if not threads:
        raise LayoutError("nobody waits: nothing to draw")
    names = {node.name for node in (*threads, *barriers)}
    for edge in edges:
        if edge.source not in names or edge.target not in names:
            raise LayoutError(f"an edge from {edge.source} to {edge.target}: the nodes are {', '.join(sorted(names))}")
    around = cycle(edges)
    steps = set(zip(around, around[1:] + around[:1], strict=True))
    canvas = Canvas()
    canvas.text(0, 15, title, 15, "bold")
    y = 34.0
    for note in notes:
        for line in paragraph(note, 110):
            canvas.text(0, y, line, 12, "faint")
            y += 17
    if around:
        for line in paragraph("a cycle: " + " needs ".join([*around, around[0]]), 110):
            canvas.text(0, y, line, 12, "warn")
            y += 17
    y += 6
    left = _draw(canvas, threads, 0, y, "box")
    middle = max(box.width for box in left.values()) + _GAP
    right = _draw(canvas, barriers, middle, y, "box") if barriers else {}
    boxes = {**left, **right}
    used: dict[tuple[str, str], int] = {}
    for edge in edges:
        _arrow(canvas, edge, boxes, used, (edge.source, edge.target) in steps)
    y = canvas.height + 22
    kinds = {edge.kind for edge in edges}
    x = 0.0
    for kind, style, meaning in (
        ("waits", "arrow", "waits for"),
        ("owes", "dashed", "has arrived there before, and would have to again"),
        ("supposed", "dashed", "would have to arrive, by the kernel's structure"),
    ):
        if kind in kinds:
            canvas.line(x, y + 6, x + 28, y + 6, style)
            canvas.text(x + 36, y + 10, meaning, 11, "faint")
            x += 36 + text_width(meaning, 11) + 22
    if around:
        canvas.line(x, y + 6, x + 28, y + 6, "alarm")
        canvas.text(x + 36, y + 10, "part of the cycle", 11, "faint")
    add_rules(canvas, names)
    words = [title, *(f"  {line}" for note in notes for line in paragraph(note, 110))]
    for node in (*threads, *barriers):
        words.append(f"  {node.name}")
        words += [f"      {line}" for line in node.lines]
        words += [f"      -> {edge.kind} {edge.target}" for edge in edges if edge.source == node.name]
    if around:
        words.append("  a cycle: " + " > ".join([*around, around[0]]))
    facts: dict[str, object] = {"waiting": len(threads), "barriers": len(barriers), "cycle": " > ".join(around)}
    return Drawing.of(title, canvas, "\n".join(words), facts)


def _arrow(canvas: Canvas, edge: Edge, boxes: dict[str, _Box], used: dict[tuple[str, str], int], hot: bool) -> None:
    """An arrow between the columns; several at one side of a box are spread over its height."""
    source, target = boxes[edge.source], boxes[edge.target]
    ends = []
    for box, name in ((source, edge.source), (target, edge.target)):
        side = "right" if box.x == 0 else "left"
        place = used.get((name, side), 0)
        used[name, side] = place + 1
        spread = (0, -1, 1, -2, 2, -3, 3)[place % 7] * min(13.0, box.height / 6)
        ends.append(
            (box.x + box.width if side == "right" else box.x, box.middle + spread, 1 if side == "right" else -1)
        )
    (x1, y1, out), (x2, y2, into) = ends
    reach = 70.0
    style = {"waits": "arrow"}.get(edge.kind, "dashed")
    if hot:
        style = "alarm" if edge.kind == "waits" else "broken"
    head = 6 * into
    with canvas.group("edge", edge.tip or f"{edge.source} -> {edge.target}", {"kind": edge.kind}):
        canvas.path(
            f"M{number(x1)} {number(y1)}C{number(x1 + out * reach)} {number(y1)} {number(x2 + into * reach)} {number(y2)}"
            f" {number(x2)} {number(y2)}",
            style,
        )
        solid = "alarm" if hot else "arrow"
        canvas.path(
            f"M{number(x2 + head)} {number(y2 - 4)}L{number(x2)} {number(y2)}L{number(x2 + head)} {number(y2 + 4)}",
            solid,
        )
