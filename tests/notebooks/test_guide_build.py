"""The guide as it is built: without a warning, whole without a network, every link and anchor there, legible at two widths in both schemes.

Needs the extra `docs`; the last tests need a Chromium too.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "notebooks" / "guide"


class Links(HTMLParser):
    """What a page names: ids, links, and what a browser would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        for name in ("id", "name"):
            if found.get(name):
                self.ids.add(str(found[name]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(str(found.get("href")))
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.loaded.append(str(found["src"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(name, reason="the guide is built with: pip install 'stridewright[docs]'")
    folder = tmp_path_factory.mktemp("guide")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(GUIDE / "mkdocs.yml"), "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    return folder


def pages(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def test_every_page_is_built(site: Path) -> None:
    made = {path.relative_to(site).with_suffix("") for path in pages(site)}
    assert made == {path.relative_to(GUIDE / "pages").with_suffix("") for path in (GUIDE / "pages").rglob("*.md")}


def test_every_link_leads_to_a_file_and_an_anchor(site: Path) -> None:
    read = {path: Links(path.read_text(encoding="utf-8")) for path in pages(site)}
    for path, found in read.items():
        for link in found.links:
            parts = urlsplit(link)
            assert (parts.scheme, parts.netloc) == ("", ""), f"{path.name}: {link}"
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.name}: {link}"
            if parts.fragment and target in read:
                assert unquote(parts.fragment) in read[target].ids | {"__top"}, f"{path.name}: {link}"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        for name in Links(path.read_text(encoding="utf-8")).loaded:
            assert (urlsplit(name).scheme, urlsplit(name).netloc) == ("", ""), f"{path.name}: {name}"
    for path in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//|@import", path.read_text(encoding="utf-8")), path.name


def test_pictures_are_in_the_pages_and_not_in_the_search_index(site: Path) -> None:
    texts = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in pages(site)}
    assert not any("data-picture=" in text for text in texts.values())
    for name, least in (
        ("index.html", 3),
        ("concepts/pipeline.html", 2),
        ("cookbook/deadlock.html", 2),
        ("benchmarks.html", 2),
    ):
        assert texts[name].count('class="sw-figure"') >= least, name
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "<svg" not in index
    assert len(index) < 2_000_000


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("layout", "stridewright.layout"),
        ("banks", "stridewright.layout.banks"),
        ("hardware", "stridewright.layout.hardware"),
        ("draw", "stridewright.layout.draw"),
        ("draw", "stridewright.codegen.pictures"),
        ("emulator", "stridewright.codegen.emulator"),
    ],
)
def test_the_reference_has_every_public_name_with_its_docstring(site: Path, page: str, module: str) -> None:
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    ids = Links(text).ids
    for name in importlib.import_module(module).__all__:
        assert any(one == name or one.endswith(f".{name}") for one in ids), f"{module}.{name}"
    assert "<blockquote>" not in text, "an example of a docstring is shown as a quotation"


def test_the_reference_has_no_raw_roles_and_says_how_a_gemm_is_made(site: Path) -> None:
    for path in sorted((site / "reference").glob("*.html")):
        text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
        assert not re.findall(r":(?:func|meth|class|mod|attr|data|exc|obj):", text), path.name
    text = (site / "reference" / "gemm.html").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", text)
    assert "activation: str = " in shown.replace("&quot;", '"')
    assert {"stridewright.codegen.general_call.multiply", "stridewright.codegen.gemm.Gemm.__call__"} <= Links(text).ids


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_every_page_fits_and_loads_without_a_fault(site: Path, chromium: Any, scheme: str, width: int) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on("request", lambda r: faults.append(r.url) if r.url.startswith("http") else None)
    for path in pages(site):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        bright = sum(map(int, re.findall(r"\d+", background)[:3])) > 380
        assert bright == (scheme == "light"), path.name
    context.close()
    assert faults == []


def test_what_is_wider_than_the_page_fades_until_it_is_scrolled_to_its_end(site: Path, chromium: Any) -> None:
    page = chromium.new_page(viewport={"width": 420, "height": 900})
    page.goto((site / "concepts" / "pipeline.html").as_uri())
    # Of each box: how much of it is out of sight, and how wide its fade is, before and after it is scrolled to its end.
    boxes = page.evaluate(
        """async () => {
            const found = [];
            for (const box of document.querySelectorAll(".sw-figure > figure, .highlight pre > code")) {
                const fade = () => parseFloat(getComputedStyle(box).getPropertyValue("--sw-fade"));
                const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                await frame();
                const before = fade();
                box.scrollLeft = box.scrollWidth;
                await frame();
                found.push([box.scrollWidth - box.clientWidth, before, fade()]);
            }
            return found;
        }"""
    )
    assert max(hidden for hidden, _, _ in boxes) > 100
    for hidden, before, after in boxes:
        assert (before > 20) == (hidden > 0)
        assert after < 5
    page.close()


def test_search_finds_a_page_that_is_opened_as_a_file(site: Path, chromium: Any) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "cookbook" / "slow.html").as_uri())
    page.locator("label.md-search__icon").first.wait_for()
    page.locator("input.md-search__input").fill("wavefront")
    page.locator(".md-search-result__link").first.wait_for(timeout=20_000)
    links = [link.get_attribute("href") for link in page.locator(".md-search-result__link").all()]
    assert any("concepts/banks.html" in str(link) for link in links)
    page.close()


def test_pointing_at_a_gap_of_the_timeline_outlines_what_it_waits_for(site: Path, chromium: Any) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "concepts" / "pipeline.html").as_uri())
    outlined = "[...document.querySelectorAll('rect[data-link]')].filter(e => getComputedStyle(e).strokeWidth === '2.2px').length"
    assert page.evaluate(outlined) == 0
    page.locator("rect.h5[data-link]").first.hover()
    assert page.evaluate(outlined) > 2
    page.close()
