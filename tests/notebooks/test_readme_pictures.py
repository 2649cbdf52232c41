"""README's pictures are those that the code draws, and images that need nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "notebooks" / "pictures").iterdir())


def drawer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_pictures", ROOT / "notebooks/guide/readme_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_one_for_each_that_is_drawn() -> None:
    assert [path.stem for path in PICTURES] == sorted(drawer().PICTURES)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_it_is_an_image_that_needs_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    top = ElementTree.fromstring(text)
    assert top.tag.endswith("svg")
    assert text.count("<title>") == 1
    assert "prefers-color-scheme:dark" in text
    assert "point " not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert len(text) < 100_000


def test_the_swizzle_is_drawn_anew_the_same() -> None:
    module = drawer()
    assert module.image(module.swizzle()) == (ROOT / "notebooks/pictures/swizzle.svg").read_text(encoding="utf-8")


def test_a_modelled_time_is_called_so() -> None:
    assert "a model, not a measurement" in (ROOT / "notebooks/pictures/timeline.svg").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timeline", "source"])
def test_pictures_of_the_kernel_are_of_the_kernel_as_it_is(name: str) -> None:
    """After a change of the kernel: python notebooks/guide/readme_pictures.py --write."""
    module = drawer()
    wanted = module.image(module.PICTURES[name]())
    assert wanted == (ROOT / "notebooks/pictures" / f"{name}.svg").read_text(encoding="utf-8")
