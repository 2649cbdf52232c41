"""The foreign compilers' settings: a target without a GPU, and folders of the test run's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def compilers_without_a_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The CuTe DSL reads its settings when it is imported, so no test module here imports it at its top."""
    folder = tmp_path_factory.mktemp("foreign-compilers")
    settings = {
        "CUDA_VISIBLE_DEVICES": "",
        "CUTE_DSL_ARCH": "sm_90a",
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_DUMP_DIR": str(folder),
        "QUACK_ARCH": "90",
        "QUACK_CACHE_ENABLED": "0",
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield
