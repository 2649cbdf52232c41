"""The widget in a browser: what a hand does there changes pictures and numbers to what Python says, and only to that.

The page has the widget's own JavaScript and, in place of Jupyter's connection, a model that hands requests to the Python widget.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stridewright.layout import Layout
from stridewright.layout.draw import Explorer, Track, layout_card, pipeline_timeline
from stridewright.layout.draw.pipeline import Kind, TimelineBar
from stridewright.layout.draw.widget import FOLDER, explore

pytest.importorskip("anywidget", reason="the widget needs anywidget: pip install 'stridewright[notebooks]'")

PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>widget</title><style>CSS</style></head><body><div id="here"></div>
<script type="module">
const data = {view: VIEW, request: {}};
const handlers = new Set();
const model = {
  get: (name) => data[name],
  set: (name, value) => { data[name] = value; },
  save_changes: async () => { data.view = JSON.parse(await window.toPython(JSON.stringify(data.request))); handlers.forEach((f) => f()); },
  on: (name, f) => handlers.add(f),
  off: (name, f) => handlers.delete(f),
};
const widget = (await import("data:text/javascript;base64,CODE")).default;
window.stop = widget.render({model, el: document.getElementById("here")});
window.ready = true;
</script></body></html>"""


class Driver:
    """A page with the widget in it."""

    def __init__(self, page: Any, state: str = "") -> None:
        self.page = page
        self.widget = explore(state)
        self.faults: list[str] = []
        page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self.faults.append(request.url) if request.url.startswith("http") else None)
        page.expose_function("toPython", self._answer)
        code = base64.b64encode((FOLDER / "widget.js").read_bytes()).decode()
        css = (FOLDER / "widget.css").read_text(encoding="utf-8")
        view = json.dumps(self.widget.view).replace("</", "<\\/")
        page.set_content(PAGE.replace("CSS", css).replace("VIEW", view).replace("CODE", code))
        page.wait_for_function("window.ready")

    def _answer(self, request: str) -> str:
        self.widget.request = json.loads(request)
        return json.dumps(self.widget.view)

    def field(self, name: str) -> Any:
        return self.page.locator(f'[data-field="{name}"]')

    def settle(self) -> None:
        """Until the page shows the answer to its last request."""
        serial = self.widget.view["serial"] + 1
        self.page.wait_for_function(f"Number(document.querySelector('.sw-explorer').dataset.serial) >= {serial}")

    def change(self, name: str, value: str) -> None:
        serial = self.widget.view["serial"] + 1
        field = self.field(name)
        if field.evaluate("e => e.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
            if field.get_attribute("type") == "text":
                field.press("Enter")
        self.page.wait_for_function(f"Number(document.querySelector('.sw-explorer').dataset.serial) >= {serial}")

    def numbers(self) -> list[list[str]]:
        return self.page.evaluate(  # type: ignore[no-any-return]
            "[...document.querySelectorAll('.sw-numbers dd')].map(e => [e.dataset.number, e.textContent])"
        )

    def same_picture(self, name: str, svg: str) -> bool:
        return self.page.evaluate(  # type: ignore[no-any-return]
            """([name, svg]) => {
                const wanted = document.createElement('div'); wanted.innerHTML = svg;
                const shown = document.querySelector(`figure[data-panel="${name}"] svg`);
                return shown !== null && shown.isEqualNode(wanted.firstChild); }""",
            [name, svg],
        )

    def shows(self, explorer: Explorer) -> bool:
        view = explorer.view
        return self.numbers() == [list(row) for row in view.numbers.rows] and all(
            self.same_picture(name, picture.svg()) for name, picture in view.panels
        )


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    made = chromium.new_page(viewport={"width": 1280, "height": 900})
    yield made
    made.close()


def test_it_starts_with_what_python_says(page: Any) -> None:
    driver = Driver(page)
    assert driver.shows(Explorer())
    assert driver.field("state").input_value() == Explorer().state
    assert driver.faults == []


def test_moving_a_slider_changes_picture_and_numbers_to_what_python_says(page: Any) -> None:
    driver = Driver(page)
    before = driver.numbers()
    serial = driver.widget.view["serial"]
    driver.field("bits").press("ArrowLeft")
    page.wait_for_function(f"Number(document.querySelector('.sw-explorer').dataset.serial) > {serial}")
    assert driver.widget.explorer == Explorer(bits=2)
    assert driver.shows(Explorer(bits=2))
    assert driver.numbers() != before
    assert not driver.shows(Explorer())
    assert dict(driver.numbers())["wavefronts"] == "8"
    driver.change("bits", "0")
    assert dict(driver.numbers())["wavefronts"] == "32"
    assert driver.shows(Explorer(bits=0))
    assert driver.faults == []


def test_keys_move_a_slider_where_the_page_takes_them_for_itself(page: Any) -> None:
    """JupyterLab does so with the arrow keys (4.6, in command mode)."""
    driver = Driver(page)
    page.evaluate("document.addEventListener('keydown', (event) => event.preventDefault())")
    driver.field("bits").press("ArrowLeft")
    page.wait_for_function("Number(document.querySelector('.sw-explorer').dataset.serial) > 0")
    assert driver.shows(Explorer(bits=2))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base", "2"),
        ("shift", "4"),
        ("dtype", "f16"),
        ("instruction", "stmatrix.x4"),
        ("instruction", "wgmma"),
        ("lanes", "along"),
        ("shape", "(64,64)"),
        ("phase", "3"),
    ],
)
def test_every_control_does_what_python_says(page: Any, name: str, value: str) -> None:
    driver = Driver(page)
    driver.change(name, value)
    typed: Any = int(value) if name in ("base", "shift", "phase") else value
    assert driver.shows(Explorer().replaced({name: typed}))
    assert driver.faults == []


def test_the_phase_scrubber_shows_the_lanes_of_each_phase(page: Any) -> None:
    driver = Driver(page)
    for phase in range(4):
        driver.change("phase", str(phase))
        labels = page.evaluate(
            "[...document.querySelectorAll('figure[data-panel=phase] rect.swatch title')].map(e => e.textContent)"
        )
        assert labels == [f"lane {lane}" for lane in range(8 * phase, 8 * phase + 8)]


def test_the_line_of_text_restores_the_state(page: Any) -> None:
    driver = Driver(page)
    other = Explorer(shape="(16,32)", stride="(32,1)", bits=2, dtype="f32", instruction="ld.b128", phase=1)
    driver.change("state", other.state)
    assert driver.shows(other)
    assert driver.field("state").input_value() == other.state
    assert driver.field("bits").input_value() == "2"
    assert driver.field("instruction").input_value() == "ld.b128"
    page.locator(".sw-state button").click()
    assert explore(driver.field("state").input_value()).explorer == other


def test_what_makes_no_picture_is_said(page: Any) -> None:
    driver = Driver(page)
    driver.change("stride", "(63,1)")
    assert "aligned to 16" in page.locator(".sw-error").inner_text()
    assert page.locator(".sw-panels figure").count() == 0
    driver.change("state", "colour=red")
    assert "must be name=value" in page.locator(".sw-error").inner_text()
    driver.change("stride", "(64,1)")
    assert page.locator(".sw-error").is_hidden()
    assert driver.shows(Explorer())


def test_pointing_at_a_cell_outlines_its_word_in_every_panel(page: Any) -> None:
    driver = Driver(page)
    page.locator("figure[data-panel=layout] rect.k1").first.hover()  # lane 1, at byte 144
    linked = page.evaluate(
        "[...document.querySelectorAll('rect.sw-linked')].map(e => [e.closest('figure').dataset.panel, e.dataset.link])"
    )
    assert {panel for panel, _ in linked} == {"layout", "memory", "phase"}
    assert {word for _, words in linked for word in words.split()} == {f"w{144 // 4 + i}" for i in range(4)}
    page.mouse.move(5, 5)
    assert driver.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_it_fits_the_page(chromium: Any, scheme: str, width: int) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    driver = Driver(context.new_page())
    assert driver.page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_after_it_is_taken_away_it_listens_no_more(page: Any) -> None:
    driver = Driver(page)
    page.evaluate("window.stop()")
    driver.field("bits").fill("1")
    page.wait_for_timeout(200)
    assert dict(driver.numbers())["wavefronts"] == "4"


# -- pictures that are files ------------------------------------------------------------------------------------------


def stroke(page: Any, selector: str) -> list[str]:
    return page.evaluate(f"[...document.querySelectorAll('{selector}')].map(e => getComputedStyle(e).strokeWidth)")  # type: ignore[no-any-return]


def test_a_still_picture_links_by_hover_too(page: Any, tmp_path: Path) -> None:
    kinds = [Kind("work", "k0", "#", "works")]
    tracks = [
        Track("a", (TimelineBar(0, 50, "work", "x", links=("p",)), TimelineBar(60, 90, "work", "y"))),
        Track("b", (TimelineBar(10, 90, "work", "z", links=("p",)),)),
    ]
    path = tmp_path / "timeline.html"
    path.write_text(pipeline_timeline(tracks, kinds).html(), encoding="utf-8")
    page.goto(path.as_uri())
    assert stroke(page, "rect.cell") == ["1px", "1px", "1px"]
    page.locator("rect.cell").first.hover()
    assert stroke(page, "rect.cell") == ["2.2px", "1px", "2.2px"]


def test_the_explorer_without_a_kernel_is_a_still_picture(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "still.html"
    bundle = explore()._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{data['text/html']}", encoding="utf-8")
    page.goto(path.as_uri())
    page.locator("rect.k1").first.hover()
    assert "2.2px" in stroke(page, "rect[data-link~=w36]")
    assert page.locator("svg").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_follow_the_reader_s_scheme(chromium: Any, tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "card.html"
    path.write_text(layout_card(Layout((4, 8), (8, 1))).html(), encoding="utf-8")
    context = chromium.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    paper = page.evaluate("getComputedStyle(document.querySelector('.paper')).fill")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 24, 28)")
    context.close()
