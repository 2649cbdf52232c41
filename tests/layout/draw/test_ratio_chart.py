"""Bars of ratios: their lengths are their values, texts do not collide, and what is no ratio is refused."""

from __future__ import annotations

import pytest

from stridewright.layout import LayoutError
from stridewright.layout.draw.chart import Bar, BarGroup, ratio_chart

from .reading import beyond_the_edge, elements, overlaps

GROUPS = [
    BarGroup("no tensor cores", [Bar("small", 0.04, 0.03, 0.05, "slow", "30 TFLOP/s"), Bar("large", 0.045)], 0.035),
    BarGroup("all of it", [Bar("small", 0.98, 0.97, 0.99), Bar("large", 1.0625, 1.05, 1.07)], 1.0),
    BarGroup("elsewhere", [Bar("small", 0.5)]),
]


def test_a_bar_is_as_long_as_its_value() -> None:
    bars = elements(ratio_chart(GROUPS, "t", "r", "m"), "rect", "cell")
    assert len(bars) == 5
    for bar in bars:
        assert float(bar.attributes["width"]) == pytest.approx(
            float(bar.attributes["data-value"]) * 420 / 1.1, abs=0.06
        )


def test_bars_have_tooltips_and_the_legend_names_series_reference_and_mark() -> None:
    drawing = ratio_chart(GROUPS, "the title", "the reference", "the mark", ["a note"])
    tips = [bar.tip for bar in elements(drawing, "rect", "cell")]
    assert tips[0] == "no tensor cores, small: 0.040 (0.030 to 0.050)\nslow"
    texts = [text.text for text in elements(drawing, "text")]
    for words in ("the title", "a note", "small", "large", "1.0: the reference", "the mark"):
        assert words in texts
    assert drawing.facts["all-of-it-large"] == "1.062"


def test_no_text_covers_another_or_leaves_the_picture() -> None:
    drawing = ratio_chart(GROUPS, "t", "a reference with quite a long name, to see whether it stays inside", "m")
    assert overlaps(drawing) == []
    assert beyond_the_edge(drawing) == []


def test_the_text_form_has_every_bar() -> None:
    words = ratio_chart(GROUPS, "t", "r", "m").text()
    assert words.count("#\n") + words.count("|\n") + words.endswith("#") >= 4
    assert "1.062" in words
    assert "|" in words


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_what_is_no_ratio_is_refused(value: float) -> None:
    with pytest.raises(LayoutError, match="is no ratio"):
        ratio_chart([BarGroup("g", [Bar("s", value)])], "t", "r")


def test_nothing_and_too_many_series_are_refused() -> None:
    with pytest.raises(LayoutError, match="no bars"):
        ratio_chart([BarGroup("g", [])], "t", "r")
    with pytest.raises(LayoutError, match="8 series: there are 7 colours"):
        ratio_chart([BarGroup("g", [Bar(str(n), 0.5) for n in range(8)])], "t", "r")
