"""stridewright: layouts of numbers for tensor cores, and the kernels that follow from them.

The code lives in three folders at the root of the repository, ``layout/``, ``kernels/`` and ``codegen/``; this package joins
them under one import name, through links. Nothing is imported until it is asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# A checkout on a file system without links has plain files in their place: look for the folders at the repository's root.
if not (Path(__file__).parent / "layout").is_dir():
    __path__.append(str(Path(__file__).resolve().parents[2]))

if TYPE_CHECKING:
    from stridewright.codegen.emulator import emulate_ptx
    from stridewright.codegen.first_call import gemm
    from stridewright.codegen.gemm import Gemm
    from stridewright.codegen.quantise import quantise

_LAZY = {
    "Gemm": "stridewright.codegen.gemm",
    "gemm": "stridewright.codegen.first_call",
    "emulate_ptx": "stridewright.codegen.emulator",
    "quantise": "stridewright.codegen.quantise",
}
_FOLDERS = ("layout", "kernels", "codegen")

__all__ = ["Gemm", "__version__", "emulate_ptx", "gemm", "quantise"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    if name in _FOLDERS:
        return importlib.import_module(f"stridewright.{name}")
    raise AttributeError(f"module 'stridewright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_FOLDERS})
