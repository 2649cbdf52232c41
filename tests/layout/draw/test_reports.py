"""Timelines, deadlocks, races, landscapes, rooflines and linked source state what their records say, and refuse records that make no picture."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from stridewright.layout import LayoutError
from stridewright.layout.draw import (
    AccessNode,
    Drawing,
    Edge,
    Kind,
    LinkedCell,
    LinkedTable,
    Node,
    Roof,
    RooflinePoint,
    SourceLine,
    TimelineBar,
    Track,
    TunePoint,
    linked_source,
    model_scatter,
    pipeline_timeline,
    race_view,
    roofline,
    tuner_landscape,
    wait_graph,
)
from stridewright.layout.draw.waits import cycle

from .reading import Element, elements, overlaps, root

WORK = Kind("work", "k0", "#", "works")
REST = Kind("rest", "box", "-", "rests")


def rects(drawing: Drawing, **data: object) -> list[Element]:
    return [
        e for e in elements(drawing, "rect") if all(e.attributes.get(f"data-{k}") == str(v) for k, v in data.items())
    ]


# -- timeline ----------------------------------------------------------------------------------------------------------


def test_bars_are_to_scale_and_in_their_places() -> None:
    draw = random.Random(3)
    bars = []
    for _ in range(40):
        start = draw.uniform(0, 900)
        bars.append(TimelineBar(start, start + draw.uniform(5, 100), "work", f"bar {len(bars)}"))
    drawing = pipeline_timeline([Track("unit", tuple(bars))], [WORK])
    found = {e.tip: e for e in elements(drawing, "rect", "cell")}
    first = min(bars, key=lambda bar: bar.start)
    x0 = found[first.tip].x
    scale = 860 / (max(b.end for b in bars) - first.start)
    for bar in bars:
        e = found[bar.tip]
        assert e.x - x0 == pytest.approx((bar.start - first.start) * scale, abs=0.2)
        assert float(e.attributes["width"]) == pytest.approx((bar.end - bar.start) * scale, abs=0.2)


def test_no_bar_covers_another() -> None:
    draw = random.Random(5)
    starts = [draw.uniform(0, 100) for _ in range(60)]
    bars = tuple(TimelineBar(s, s + draw.uniform(1, 30), "work", str(i)) for i, s in enumerate(starts))
    drawing = pipeline_timeline([Track("a", bars[:30]), Track("b", bars[30:], "role")], [WORK])
    boxes = [
        (e.x, e.y, float(e.attributes["width"]), float(e.attributes["height"]))
        for e in elements(drawing, "rect", "cell")
    ]
    for i, (x, y, w, h) in enumerate(boxes):
        for ox, oy, ow, oh in boxes[:i]:
            assert x + w <= ox + 0.2 or ox + ow <= x + 0.2 or y + h <= oy + 0.2 or oy + oh <= y + 0.2


def test_a_window_keeps_what_reaches_into_it() -> None:
    bars = tuple(TimelineBar(10 * i, 10 * i + 8, "work", str(i)) for i in range(10))
    drawing = pipeline_timeline([Track("unit", bars)], [WORK], window=(25, 45))
    assert [e.tip for e in elements(drawing, "rect", "cell")] == ["2", "3", "4"]


def test_linked_bars_share_a_name_and_a_rule() -> None:
    tracks = [
        Track("a", (TimelineBar(0, 5, "work", "x", links=("full[0] 1",)),)),
        Track("b", (TimelineBar(3, 9, "rest", "y", links=("full[0] 1",)),)),
    ]
    drawing = pipeline_timeline(tracks, [WORK, REST])
    assert len(rects(drawing, link="full-0-1")) == 2
    assert '[data-link~="full-0-1"]:hover' in drawing.svg()


def test_the_text_form_covers_each_part_with_what_takes_most_of_it() -> None:
    drawing = pipeline_timeline(
        [Track("unit", (TimelineBar(0, 72, "work", "x"), TimelineBar(72, 96, "rest", "y")))], [WORK, REST]
    )
    (line,) = [text for text in drawing.text().splitlines() if text.startswith("  unit")]
    assert line.split()[-1] == "#" * 72 + "-" * 24


@pytest.mark.parametrize(
    ("tracks", "window", "message"),
    [
        ([], None, "nothing to draw"),
        ([Track("a", (TimelineBar(0, 1, "play", ""),))], None, "bars of kind play: the legend has work"),
        ([Track("a", (TimelineBar(0, 1, "work", ""),))], (5, 5), "empty"),
        ([Track("a", tuple(TimelineBar(i, i + 1, "work", "") for i in range(5000)))], None, "at most 4000"),
    ],
)
def test_timelines_that_are_refused(tracks: list[Track], window: tuple[float, float] | None, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        pipeline_timeline(tracks, [WORK], window)


# -- deadlock ----------------------------------------------------------------------------------------------------------


def reaches(edges: list[Edge], start: str, end: str) -> bool:
    """Whether a path of one edge or more leads from start to end."""
    seen, open_ = set(), [e.target for e in edges if e.source == start]
    while open_:
        name = open_.pop()
        if name == end:
            return True
        if name not in seen:
            seen.add(name)
            open_ += [e.target for e in edges if e.source == name]
    return False


def test_a_cycle_is_found_exactly_where_there_is_one() -> None:
    draw = random.Random(11)
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        names = "abcdefg"
        edges = [Edge(*draw.sample(names, 2), "waits") for _ in range(draw.randint(1, 8))]
        exists = any(reaches(edges, name, name) for name in names)
        found = cycle(edges)
        assert bool(found) == exists
        outcomes[exists] += 1
        pairs = {(e.source, e.target) for e in edges}
        assert all(step in pairs for step in zip(found, found[1:] + found[:1], strict=True))
    assert min(outcomes.values()) > 30


def test_the_arrows_of_a_cycle_stand_out_and_others_do_not() -> None:
    edges = [Edge("t", "b", "waits"), Edge("b", "t", "owes"), Edge("u", "b", "waits")]
    drawing = wait_graph([Node("t"), Node("u")], [Node("b", ("lacks 1",), ("init 1",))], edges)
    assert drawing.facts["cycle"] in ("t > b", "b > t")
    groups = elements(drawing, "g", "edge")
    assert [g.attributes["data-kind"] for g in groups] == ["waits", "owes", "waits"]
    styles = [e.kind for e in elements(drawing, "path")]
    assert styles.count("broken") == 1
    assert "arrow" in styles
    assert any("last operations:\ninit 1" in e.tip for e in elements(drawing, "rect"))


def test_many_threads_at_one_barrier_stay_legible() -> None:
    threads = [Node(f"warp {i}", ("waits for parity 0", "at k.cu:3")) for i in range(12)]
    drawing = wait_graph(threads, [Node("full[0]", ("phase 0",))], [Edge(t.name, "full[0]", "waits") for t in threads])
    assert overlaps(drawing) == []
    assert drawing.facts["waiting"] == 12
    assert drawing.facts["cycle"] == ""


def test_graphs_that_are_refused() -> None:
    with pytest.raises(LayoutError, match="nobody waits"):
        wait_graph([], [], [])
    with pytest.raises(LayoutError, match="an edge from a to c: the nodes are a, b"):
        wait_graph([Node("a")], [Node("b")], [Edge("a", "c", "waits")])


# -- race --------------------------------------------------------------------------------------------------------------

ONE = AccessNode("read", "warp 1", "ld", "k.cu:3")
TWO = AccessNode("write", "warp 2", "st", "k.cu:4")


@pytest.mark.parametrize("address", [1024, 1040, 5000, 66559, 66560, 70000])
def test_the_granule_and_the_part_are_those_of_the_address(address: int) -> None:
    parts = [("A", 1024, 65536), ("barriers", 66560, 64)]
    drawing = race_view("write after read", ONE, TWO, "a barrier", address, parts)
    inside = [name for name, start, size in parts if start <= address < start + size]
    assert drawing.facts["part"] == (inside[0] if inside else "")
    marked = [e for e in elements(drawing, "rect", "h5") if "data-granule" in e.attributes]
    assert [int(e.attributes["data-granule"]) for e in marked] == [address // 16 * 16]
    line = [int(e.attributes["data-granule"]) for e in elements(drawing, "rect") if "data-granule" in e.attributes]
    assert line == [address // 128 * 128 + 16 * i for i in range(8)]
    scale = 780 / (max(66624, address + 16) - 1024)
    mark = next(e for e in elements(drawing, "rect", "h5") if e.tip.startswith(f"{address:#x},"))
    assert mark.x - 12 + 2 == pytest.approx((address - 1024) * scale, abs=2.1)


def test_what_is_missing_stands_in_the_picture() -> None:
    drawing = race_view("write after read", ONE, TWO, "wgmma.wait_group", 0)
    assert any(e.text == "missing: wgmma.wait_group" for e in elements(drawing, "text", "warn"))
    assert {"first: read", "second: write"} <= {e.text for e in elements(drawing, "text")}


def test_an_address_of_tensor_memory_is_a_lane_and_a_column() -> None:
    drawing = race_view("write after read", ONE, TWO, "a wait", 3 << 16 | 40, space="tensor")
    assert any(e.text == "lane 3, column 40 of tensor memory" for e in elements(drawing, "text"))


def test_a_negative_address_is_refused() -> None:
    with pytest.raises(LayoutError, match="must not be negative"):
        race_view("write after read", ONE, TWO, "", -1)


# -- tuning ------------------------------------------------------------------------------------------------------------


def test_each_cell_is_the_best_of_its_pair() -> None:
    draw = random.Random(2)
    points = [
        TunePoint(
            f"p{i}", {"n": draw.choice([64, 128, 256]), "s": draw.choice([2, 3]), "other": i}, draw.uniform(1e-6, 2e-6)
        )
        for i in range(40)
    ]
    drawing = tuner_landscape(points, "n", "s")
    best = min(points, key=lambda p: p.seconds)
    assert drawing.facts["best"] == best.name
    for n in (64, 128, 256):
        for s in (2, 3):
            mine = [p.seconds for p in points if p.values["n"] == n and p.values["s"] == s]
            (cell,) = rects(drawing, across=n, down=s)
            assert int(cell.attributes["data-count"]) == len(mine)
            assert cell.tip.startswith(f"{min(mine) * 1e6:.4g} us, {min(mine) / best.seconds:.3f} times the best")


def test_shades_follow_how_much_slower() -> None:
    more = [0.0, 0.03, 0.08, 0.2, 0.4, 0.9]
    points = [TunePoint(str(x), {"x": i, "y": 0}, 1e-6 * (1 + x)) for i, x in enumerate(more)]
    cells = [e for e in elements(tuner_landscape(points, "x", "y"), "rect", "cell") if "data-across" in e.attributes]
    assert [next(c for c in e.classes if c.startswith("h")) for e in cells] == [f"h{i}" for i in range(6)]


def test_the_chosen_one_is_compared_with_the_best() -> None:
    points = [TunePoint("a", {"x": 1, "y": 1}, 2e-6), TunePoint("b", {"x": 2, "y": 1}, 3e-6)]
    assert tuner_landscape(points, "x", "y", "b").facts["chosen-over-best"] == "1.5000"


def test_the_cell_of_the_chosen_one_shows_its_own_time() -> None:
    """Unless the best of all is in it, which is outlined there."""
    points = [TunePoint("a", {"x": 1, "y": 1}, 2e-6), TunePoint("b", {"x": 2, "y": 1}, 3e-6)]
    points.append(TunePoint("c", {"x": 2, "y": 1}, 4e-6))
    assert tuner_landscape(points, "x", "y").text().splitlines()[-1].split() == ["1", "2", "3"]
    assert tuner_landscape(points, "x", "y", "c").text().splitlines()[-1].split() == ["1", "2", "4"]
    points.append(TunePoint("d", {"x": 1, "y": 1}, 5e-6))
    assert tuner_landscape(points, "x", "y", "d").text().splitlines()[-1].split() == ["1", "2", "3"]


def test_the_share_of_the_roof_by_its_definition() -> None:
    chip = Roof("chip", 100e12, 4e12)
    points = [RooflinePoint("low", 5.0, 10e12), RooflinePoint("high", 100.0, 60e12)]
    facts = roofline([chip], points).facts
    assert facts["share-low"] == f"{10e12 / (5 * 4e12):.3f}"
    assert facts["share-high"] == "0.600"


def test_equal_factors_are_equal_distances() -> None:
    points = [RooflinePoint(str(i), 10.0**i, 10.0 ** (i + 11)) for i in range(1, 4)]
    dots = elements(roofline([Roof("chip", 1e15, 1e12)], points), "rect", "cell")
    steps = [(b.x - a.x, b.y - a.y) for a, b in pairwise(dots)]
    assert math.isclose(steps[0][0], steps[1][0], abs_tol=0.25)
    assert math.isclose(steps[0][1], steps[1][1], abs_tol=0.25)


def test_what_within_15_percent_counts() -> None:
    points = [TunePoint(str(m), {}, 1e-6, m * 1e-6) for m in (0.8, 0.86, 1.0, 1.14, 1.2)]
    assert model_scatter(points).facts["within-15-percent"] == 3


def test_tuning_pictures_that_are_refused() -> None:
    with pytest.raises(LayoutError, match="no points"):
        tuner_landscape([], "x", "y")
    with pytest.raises(LayoutError, match="no point has 'z': there are x, y"):
        tuner_landscape([TunePoint("a", {"x": 1, "y": 1}, 1.0)], "x", "z")
    with pytest.raises(LayoutError, match="no roof"):
        roofline([], [])
    with pytest.raises(LayoutError, match="must be positive"):
        roofline([Roof("c", 1.0, 1.0)], [RooflinePoint("p", 0.0, 1.0)])
    with pytest.raises(LayoutError, match="a measured and a modelled time"):
        model_scatter([TunePoint("a", {}, 1.0)])


# -- source ------------------------------------------------------------------------------------------------------------


def test_lines_and_cells_of_a_name_are_linked() -> None:
    table = LinkedTable("t", ("0", "1"), ("0",), ((LinkedCell("0", "", ("P", "Q")),), (LinkedCell("64", "", ("P",)),)))
    lines = [SourceLine("int P = 64;", ("P",), "why"), SourceLine("// note"), SourceLine("int Q = 0;", ("Q",))]
    drawing = linked_source([table], lines)
    linked = [e.attributes.get("data-link", "").split() for e in elements(drawing, "rect")]
    assert sum("P" in names for names in linked) == 3
    assert sum("Q" in names for names in linked) == 2
    assert root(drawing).attrib["data-links"] == "2"


def test_a_cell_that_nothing_comes_from_names_nothing() -> None:
    table = LinkedTable("t", ("0",), ("0",), ((LinkedCell("0", "", ("P",)),),))
    with pytest.raises(LayoutError, match="cells name P, which no line derives"):
        linked_source([table], [SourceLine("int Q;", ("Q",))])
    with pytest.raises(LayoutError, match="at most 200"):
        linked_source([], [SourceLine("x")] * 300)
