"""The programs of benchmarks/ import one another by name, as when they are run; the GPU is that of tests/codegen."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS.parent / "benchmarks"))

_spec = importlib.util.spec_from_file_location("fake_gpu_fixtures", TESTS / "codegen/conftest.py")
assert _spec is not None
assert _spec.loader is not None
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)
fake_gpu, numpy_values = _fixtures.fake_gpu, _fixtures.numpy_values
