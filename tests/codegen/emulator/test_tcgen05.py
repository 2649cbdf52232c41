"""tcgen05 end to end: the textbook kernel and its variations give the right product, with no race in any order of completion."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationResult

from .tcgen05_pieces import TEXTBOOK, TEXTBOOK_PARTS, filled, run_blackwell

SEEDS = range(6)


def run_textbook(
    seed: int = 0, strict: bool = True, numerics: str = "float32", n: int = 64, **changes: str
) -> tuple[bool, EmulationResult]:
    random = np.random.default_rng(n)
    a, b = (random.integers(-8, 9, (rows, 64)).astype(ml_dtypes.bfloat16) for rows in (128, n))
    out = np.zeros((128, n), np.float32)
    source = filled(TEXTBOOK, TEXTBOOK_PARTS, **changes)
    result = run_blackwell(source, "textbook", 1, 128, [a, b, out], seed=seed, strict=strict, numerics=numerics)
    return bool((out == a.astype(np.float32) @ b.astype(np.float32).T).all()), result


@pytest.mark.parametrize("numerics", ["float32", "hardware"])
@pytest.mark.parametrize("strict", [True, False])
def test_the_textbook_kernel(strict: bool, numerics: str) -> None:
    for seed in SEEDS:
        right, result = run_textbook(seed, strict, numerics)
        assert right
        assert [str(race) for race in result.races] == []
