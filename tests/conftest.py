"""Shared by all tests: kernels built by a test run go to a cache of its own, never to the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """STRIDEWRIGHT_CACHE_DIR for the whole run; one set from outside is kept, so that a second run can find a warm
    cache.
    """
    if os.environ.get("STRIDEWRIGHT_CACHE_DIR"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("kernel-cache")))
        yield
