"""Shared by all tests: kernels built by a test run go to a cache of its own, never to the user's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium that playwright drives; tests are skipped where one of the two is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'stridewright[browser]'")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(filter(None, map(shutil.which, names)), None)
    with api.sync_playwright() as playwright:
        try:
            # Containers seldom allow Chromium's own sandbox; the pages are our own.
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield browser
        browser.close()
