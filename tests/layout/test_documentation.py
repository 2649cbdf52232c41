"""Every public function, class and method of the algebra has a docstring with an example, and every name is exported once."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import stridewright.layout as library

MODULES = [
    info.name for info in pkgutil.iter_modules(library.__path__) if not info.ispkg and not info.name.startswith("banks")
]


def public(name: str) -> list[tuple[str, Any]]:
    module = importlib.import_module(f"stridewright.layout.{name}")
    found: list[tuple[str, Any]] = []
    for key, value in vars(module).items():
        if key.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) or inspect.isclass(value):
            found.append((key, value))
        if inspect.isclass(value):
            for method, member in vars(value).items():
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if not method.startswith("_") and inspect.isfunction(function):
                    found.append((f"{key}.{method}", function))
    return found


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_has_an_example(name: str) -> None:
    assert importlib.import_module(f"stridewright.layout.{name}").__doc__
    for key, value in public(name):
        assert ">>>" in (value.__doc__ or ""), f"{name}.{key} has no example"


def test_every_exported_name_exists_and_is_explained_in_the_module_docstring() -> None:
    for name in library.__all__:
        assert hasattr(library, name)
    assert len(set(library.__all__)) == len(library.__all__)
    operations = [
        "coalesce", "compose", "complement", "right_inverse", "left_inverse", "logical_divide", "zipped_divide", "tiled_divide",
        "flat_divide", "logical_product", "blocked_product", "raked_product", "tile_to_shape", "upcast", "downcast", "recast",
        "idx2crd", "crd2idx", "max_common_layout", "filter", "nullspace", "explain", "size", "cosize", "rank", "depth", "flatten",
    ]  # fmt: skip
    text = library.__doc__ or ""
    assert [name for name in operations if name not in text] == []
    with pytest.raises(AttributeError):
        library.no_such_name  # noqa: B018


def test_numpy_and_sympy_load_only_when_first_needed() -> None:
    code = (
        "import sys; import stridewright.layout as l; a = l.Layout((4, 8), (8, 1)); l.compose(a, a); l.logical_divide(a, (2, 2));"
        "l.complement(a, 64); l.left_inverse(a); l.logical_product(a, 2); l.recast(a, 16, 32); l.explain('compose', a, a);"
        "print([m for m in ('numpy', 'sympy') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_folder_refuses_to_load_under_another_name() -> None:
    spec = importlib.util.spec_from_file_location("layout", library.__path__[0] + "/__init__.py")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"stridewright\.layout"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_no_module_is_too_long() -> None:
    for name in MODULES:
        module = importlib.import_module(f"stridewright.layout.{name}")
        assert len(inspect.getsource(module).splitlines()) <= 600
