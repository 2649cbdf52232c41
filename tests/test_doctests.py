"""The examples in the docstrings of every module are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import stridewright


def modules() -> list[str]:
    return sorted(info.name for info in pkgutil.walk_packages(stridewright.__path__, "stridewright."))


def test_all_three_folders_are_walked() -> None:
    found = modules()
    for folder in ("layout", "kernels", "codegen"):
        assert any(name.startswith(f"stridewright.{folder}.") for name in found)


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
